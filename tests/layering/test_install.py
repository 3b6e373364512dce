#!/usr/bin/env python3
"""Installs the build to a prefix: the programs must find each other, their modules and LibTorch (test_wheel.py runs jobs).

usage: test_install.py BUILD_FOLDER
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

BUILD = os.path.abspath(sys.argv.pop())
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def run(command, cwd, seconds=120, **variables):
    return subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds,
                          stdin=subprocess.DEVNULL, env={**os.environ, **variables}, check=False)


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="dslaunch-install-")
        staged = os.path.join(cls.folder.name, "staged")
        done = run(["cmake", "--install", BUILD, "--prefix", staged], ROOT)
        if done.returncode != 0:
            raise AssertionError(done.stdout)
        # Moved after the installation: nothing may depend on the prefix.
        cls.prefix = os.path.join(cls.folder.name, "prefix with a blank")
        os.rename(staged, cls.prefix)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def program(self, name):
        return os.path.join(self.prefix, "bin", name)

    def test_the_launcher_answers(self):
        for argument in ("--help", "--version"):
            done = run([self.program("dslaunch"), argument], self.folder.name)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertTrue(done.stdout.strip())

    def test_the_launcher_needs_neither_libtorch_nor_cuda(self):
        needed = run(["readelf", "-d", self.program("dslaunch")], self.folder.name).stdout
        for library in ("torch", "c10", "cuda", "nccl", "gloo", "ssh"):
            self.assertNotIn(f"lib{library}", needed)

    def test_modules_are_installed_where_the_worker_looks(self):
        built = sorted(os.listdir(os.path.join(BUILD, "lib", "dslaunch")))
        self.assertTrue(built)
        self.assertEqual(sorted(os.listdir(os.path.join(self.prefix, "lib", "dslaunch"))), built)

    def test_libtorch_is_searched_in_the_named_directory(self):
        dynamic = run(["readelf", "-d", self.program("dsworker")], self.folder.name).stdout
        built_with = re.search(r"runpath: \[([^\]:]+)", dynamic).group(1)
        other_spelling = os.path.join(os.path.dirname(built_with), ".", os.path.basename(built_with))
        infer = [self.program("dslaunch"), "infer", "--checkpoint", self.folder.name, "--prompt", "a"]
        searched = run(infer, self.folder.name, DSLAUNCH_TORCH_LIB=other_spelling, LD_DEBUG="libs").stdout
        self.assertIn(f"trying file={other_spelling}/libtorch_cpu.so", searched)
        refused = run(infer, self.folder.name, DSLAUNCH_TORCH_LIB=self.folder.name)
        self.assertEqual(refused.returncode, 66)
        self.assertIn("DSLAUNCH_TORCH_LIB", refused.stdout)


if __name__ == "__main__":
    unittest.main()
