#!/usr/bin/env python3
"""Plants one violation at a time into a tree with a source in each room and expects the check to name it."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FOLDERS = ("lib", "apps", "kernels")


def run_check(root):
    done = subprocess.run([sys.executable, os.path.join(HERE, "check_layers.py"), root], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout


def all_but_a_source(folder, names):
    """What is not copied: a room that has any source is not empty."""
    files = sorted(name for name in names if os.path.isfile(os.path.join(folder, name)))
    sources = [name for name in files if name.endswith((".cpp", ".hpp", ".cu"))]
    return set(files) - set(sources[:1])


class PlantedViolations(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp(prefix="dslaunch-layering-")
        for folder in FOLDERS:
            shutil.copytree(os.path.join(ROOT, folder), os.path.join(cls.root, folder), ignore=all_but_a_source)
        os.mkdir(os.path.join(cls.root, "docs"))
        shutil.copy(os.path.join(ROOT, "docs", "map.md"), os.path.join(cls.root, "docs"))
        # Headers to include, whatever the rooms hold at the moment.
        for header in ("lib/launch/plan/planted.hpp", "lib/launch/jobs/planted.hpp",
                       "lib/launch/nodes/planted.hpp", "lib/hostfile/planted.hpp", "lib/base/planted.hpp",
                       "lib/comm/planted.hpp", "lib/runtime/optim/planted.hpp",
                       "lib/runtime/checkpoint/planted.hpp", "lib/runtime/checkpoint/pickle/planted.hpp",
                       "lib/runtime/checkpoint/deepspeed/planted.hpp", "lib/runtime/engine/step/planted.hpp",
                       "lib/runtime/pipeline/schedule.hpp",
                       "tests/planted.hpp"):
            cls.write(header, "#pragma once\n")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.root)

    @classmethod
    def write(cls, path, text):
        full = os.path.join(cls.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)

    def plant(self, path, include):
        """Exit status and output of the check with a file at `path` that has this include on line 2."""
        self.write(path, f"// planted\n#include {include}\n")
        try:
            return run_check(self.root)
        finally:
            os.unlink(os.path.join(self.root, path))

    def expect_refusal(self, path, include, *words):
        status, output = self.plant(path, include)
        self.assertEqual(status, 1, f"{path} may include {include}")
        self.assertIn(f"{path}:2:", output)
        for word in words:
            self.assertIn(word, output)

    def test_without_a_violation(self):
        self.assertEqual(run_check(self.root), (0, ""))

    def test_upward(self):
        self.expect_refusal("lib/base/bad.cpp", '"hostfile/planted.hpp"', "upward", "level 0", "level 1")
        self.expect_refusal("lib/launch/plan/bad.hpp", '"launch/jobs/planted.hpp"', "upward")
        self.expect_refusal("lib/runtime/checkpoint/bad.cpp", '"runtime/checkpoint/deepspeed/planted.hpp"', "upward")
        self.expect_refusal("lib/runtime/optim/bad.cpp", '"runtime/engine/step/planted.hpp"', "upward")
        self.expect_refusal("lib/base/bad.hpp", '"../hostfile/planted.hpp"', "upward")
        self.expect_refusal("lib/base/bad.hpp", '  <hostfile/planted.hpp>', "upward")

    def test_sideways(self):
        self.expect_refusal("lib/ports/bad.cpp", '"hostfile/planted.hpp"', "sideways", "level 1")
        self.expect_refusal("lib/runtime/data/bad.cpp", '"runtime/optim/planted.hpp"', "sideways")
        self.expect_refusal("lib/launch/jobs/bad.cpp", '"launch/nodes/planted.hpp"', "sideways", "level 7")
        self.expect_refusal("lib/runtime/checkpoint/pickle/bad.cpp", '"runtime/checkpoint/planted.hpp"', "sideways")

    def test_subdirectories_that_include_each_other(self):
        self.write("lib/launch/jobs/good.cpp", '// planted\n#include "launch/plan/planted.hpp"\n')
        self.addCleanup(os.unlink, os.path.join(self.root, "lib/launch/jobs/good.cpp"))
        self.expect_refusal("lib/launch/plan/bad.cpp", '"launch/jobs/planted.hpp"', "upward")

    def test_kernels_include_nothing_of_ours(self):
        self.expect_refusal("kernels/bad.cu", '"base/planted.hpp"', "nothing of ours")
        self.expect_refusal("kernels/bad.cu", "<ATen/ATen.h>", "only in")

    def test_restricted_headers(self):
        for header, stray in (("<CLI/CLI.hpp>", "lib/config/bad.cpp"), ("<CLI/CLI.hpp>", "lib/launch/plan/bad.cpp"),
                              ("<yaml-cpp/yaml.h>", "lib/launch/plan/bad.cpp"),
                              ("<nccl.h>", "lib/runtime/engine/step/bad.cpp"),
                              ("<libssh/libssh.h>", "lib/spawn/local/bad.cpp"),
                              ("<torch/script.h>", "lib/launch/agent/bad.cpp"),
                              ("<ATen/ATen.h>", "lib/config/bad.cpp"), ("<c10/util/Exception.h>", "lib/base/bad.cpp"),
                              ("<torch/torch.h>", "apps/launcher/bad.cpp"),
                              ("<fmt/format.h>", "lib/launch/jobs/bad.cpp"),
                              ('"launch/plan/planted.hpp"', "apps/worker/bad.cpp"),
                              ('"launch/plan/planted.hpp"', "lib/runtime/engine/step/bad.cpp"),
                              ('"../../../launch/plan/planted.hpp"', "lib/runtime/engine/step/bad.cpp"),
                              ('"comm/planted.hpp"', "apps/launcher/bad.cpp"),
                              ('"runtime/engine/step/planted.hpp"', "apps/launcher/bad.cpp")):
            with self.subTest(header=header, file=stray):
                self.expect_refusal(stray, header, "may be included only in")

    def test_the_longest_row_of_a_restricted_header_counts(self):
        header = '"runtime/pipeline/schedule.hpp"'
        self.assertEqual(self.plant("apps/launcher/good.cpp", header), (0, ""))
        self.expect_refusal("lib/launch/plan/bad.cpp", header, "may be included only in", "apps/launcher")

    def test_json_in_a_header(self):
        self.expect_refusal("lib/launch/jobs/bad.hpp", "<nlohmann/json.hpp>", "sources only")

    def test_outside_the_rooms(self):
        status, output = self.plant("lib/loose.hpp", "<vector>")
        self.assertEqual(status, 1)
        self.assertIn("lib/loose.hpp:1: lies in no room", output)
        self.expect_refusal("lib/launch/plan/bad.cpp", '"tests/planted.hpp"', "outside the rooms")

    def test_a_subdirectory_that_the_page_does_not_list(self):
        for file in ("lib/launch/loose.hpp", "lib/launch/unlisted/bad.cpp", "lib/launch/plan/unlisted/bad.cpp",
                     "lib/runtime/checkpoint/unlisted/bad.hpp", "lib/runtime/loose.cpp"):
            with self.subTest(file=file):
                self.assertEqual(self.plant(file, "<vector>"), (1, f"{file}:1: lies in no room of docs/map.md\n"))

    def test_a_room_of_the_page_without_sources(self):
        page = os.path.join(self.root, "docs/map.md")
        with open(page, encoding="utf-8") as file:
            text = file.read()
        row = "| 4 | `lib/runtime/state` |"
        self.assertIn(row, text)
        self.addCleanup(self.write, "docs/map.md", text)
        for room in ("lib/runtime/lost", "lib/launch", "lib/lost"):
            with self.subTest(room=room):
                self.write("docs/map.md", text.replace(row, f"| 4 | `{room}` | gone |\n" + row))
                self.assertEqual(run_check(self.root), (1, f"docs/map.md: {room} holds no sources\n"))

    def test_allowed_includes(self):
        for path, include in (("lib/hostfile/good.cpp", '"base/planted.hpp"'),
                              ("lib/hostfile/good.cpp", '"hostfile/planted.hpp"'),
                              ("lib/config/good.cpp", "<yaml-cpp/yaml.h>"),
                              ("lib/launch/jobs/good.cpp", "<nlohmann/json.hpp>"),
                              ("lib/launch/jobs/good.cpp", '"launch/plan/planted.hpp"'),
                              ("apps/launcher/good.cpp", '"launch/plan/planted.hpp"'),
                              ("lib/runtime/checkpoint/deepspeed/good.cpp", '"runtime/checkpoint/pickle/planted.hpp"'),
                              ("lib/base/good.hpp", "<nlohmann/json_fwd.hpp>"),
                              ("lib/comm/good.cpp", "<nccl.h>"), ("lib/spawn/ssh/good.cpp", "<libssh/libssh.h>"),
                              ("apps/launcher/good.cpp", "<CLI/CLI.hpp>"), ("apps/worker/good.cpp", "<CLI/CLI.hpp>"),
                              ("lib/runtime/engine/step/good.cpp", '"runtime/optim/planted.hpp"')):
            with self.subTest(path=path, include=include):
                self.assertEqual(self.plant(path, include), (0, ""))


if __name__ == "__main__":
    unittest.main()
