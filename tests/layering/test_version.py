#!/usr/bin/env python3
"""cmake/Version.cmake in small projects: the version is the tag's, else the changelog's; the build names its commit."""
import os
import re
import subprocess
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
PROJECT = f"""
cmake_minimum_required(VERSION 3.25)
include({os.path.abspath(ROOT)}/cmake/Version.cmake)
project(small VERSION ${{DSL_PROJECT_VERSION}} LANGUAGES NONE)
set(DSL_TORCH_VERSION 9.9)
dsl_describe_build(${{CMAKE_BINARY_DIR}}/build.txt ${{CMAKE_SOURCE_DIR}}/build.in)
file(WRITE ${{CMAKE_BINARY_DIR}}/version.txt ${{PROJECT_VERSION}})
"""


class Version(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for name, text in (("CMakeLists.txt", PROJECT), ("build.in", "@DSL_BUILD@"),
                           ("CHANGELOG.md", "# Changelog\n\n## 0.3.0 (not released yet)\n\n## 0.2.0\n")):
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                file.write(text)

    def git(self, *words):
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b",
                       "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
        return subprocess.run(["git", *words], cwd=self.folder, env=environment, check=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True).stdout.strip()

    def configured(self):
        done = subprocess.run(["cmake", "-S", ".", "-B", "build"], cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        texts = []
        for name in ("version.txt", "build.txt"):
            with open(os.path.join(self.folder, "build", name), encoding="utf-8") as file:
                texts.append(file.read().strip())
        return texts

    def test_sources_without_a_repository(self):
        self.assertEqual(self.configured(), ["0.3.0", "LibTorch 9.9"])

    def test_a_repository(self):
        self.git("init", "-q")
        self.git("add", "CMakeLists.txt", "build.in", "CHANGELOG.md")
        self.git("commit", "-qm", "first")
        commit = self.git("rev-parse", "--short=10", "HEAD")
        self.assertEqual(self.configured(), ["0.3.0", f"commit {commit}, LibTorch 9.9"])
        self.git("tag", "v1.2.3")
        self.git("commit", "-qm", "second", "--allow-empty")
        with open(os.path.join(self.folder, "CHANGELOG.md"), "a", encoding="utf-8") as file:
            file.write("more\n")
        version, build = self.configured()
        self.assertEqual(version, "1.2.3")
        self.assertTrue(re.fullmatch(r"commit [0-9a-f]{10}, modified, LibTorch 9\.9", build), build)
        self.assertNotIn(commit, build)


if __name__ == "__main__":
    unittest.main()
