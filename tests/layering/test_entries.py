#!/usr/bin/env python3
"""Every test that unittest finds in tests/oracle and tests/multiproc is in exactly one entry of ctest (cmake/PythonTests.cmake
reads the files without importing them); and what a run says of tests that it skipped.

    test_entries.py BUILD_DIR"""
import collections
import glob
import importlib
import json
import os
import subprocess
import sys
import unittest
from xml.etree import ElementTree

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = [os.path.join(TESTS, name) for name in ("oracle", "multiproc")]
sys.path[:0] = [os.path.join(TESTS, "support/python"), *FOLDERS]
sys.dont_write_bytecode = True
import skipped_tests  # noqa: E402
import test_classes  # noqa: E402

BUILD = None


class Entries(unittest.TestCase):
    def test_a_class_is_found_by_its_base(self):
        source = ("class HostTest(unittest.TestCase): pass\n"
                  "class Lists(HostTest):\n def test_a(self): pass\n"
                  "class FilledLater(other.HostTest): pass\n"
                  "class Base(HostTest):\n def test_b(self): pass\n"
                  "class Derived(Base): pass\n"
                  "class Model(nn.Module):\n def test_c(self): pass\n")
        self.assertEqual(test_classes.classes_with_tests(source), ["Lists", "FilledLater", "Base", "Derived"])

    def test_classes_share_entries(self):
        classes = {"a": ["One", "Two", "Slow", "Four"], "b": ["One"]}
        self.assertEqual(test_classes.entries(classes, ["a:Two", "a:*"], ["a.Slow"]),
                         {"a.Two": {"a": ["Two"]}, "a": {"a": ["One", "Four"]}, "a.Slow": {"a": ["Slow"]}, "b.One": {"b": ["One"]}})
        self.assertEqual(test_classes.entries(classes, ["a:Two", "a,b:*"], ["a.Slow"]),
                         {"a.Two": {"a": ["Two"]}, "a-b": {"a": ["One", "Four"], "b": ["One"]}, "a.Slow": {"a": ["Slow"]}})
        self.assertEqual(list(test_classes.entries(classes, ["a:One+Four"], [])), ["a.One-Four", "a.Two", "a.Slow", "b.One"])
        for group in ("a:Three", "c:*", "a,c:*", "a:"):
            with self.assertRaises(ValueError):
                test_classes.entries(classes, [group], [])

    def test_every_class_with_tests_is_in_one_entry(self):
        listing = subprocess.run(["ctest", "--test-dir", BUILD, "-C", "slow", "--show-only=json-v1"], capture_output=True,
                                 check=True).stdout
        commands = [test["command"] for test in json.loads(listing)["tests"] if "command" in test]
        listed = collections.Counter()
        for command in commands:
            file = None
            for word in command:
                if os.path.dirname(word) in FOLDERS:
                    file = os.path.basename(word)
                elif file and not word.startswith("-"):
                    listed[file, word] += 1
        found = collections.Counter()
        for path in sorted(path for folder in FOLDERS for path in glob.glob(f"{folder}/test_*.py")):
            module = importlib.import_module(os.path.basename(path)[:-3])
            for suite in unittest.defaultTestLoader.loadTestsFromModule(module):
                for case in {type(case) for case in suite if type(case).__module__ == module.__name__}:
                    found[os.path.basename(path), case.__name__] += 1
        self.assertEqual(listed, found)


class Skipped(unittest.TestCase):
    def summary(self, *tests):
        lines = "".join(f"<testcase name='t'>{mark}<system-out>{output}</system-out></testcase>" for mark, output in tests)
        return skipped_tests.summary(ElementTree.fromstring(f"<testsuite>{lines}</testsuite>"))

    def test_reasons_are_counted(self):
        code = "<skipped message='SKIP_RETURN_CODE=77'/>"
        self.assertEqual(self.summary(("", "test_a (m.C.test_a) ... ok")), "")
        self.assertEqual(self.summary(("", "test_a (m.C.test_a) ... skipped 'no root'\ntest_b (m.C.test_b)\nDoc. ... skipped 'no root'"),
                                      ("", "  0.1 s  C.test_c: skipped: no memory cgroup"),
                                      (code, "multihost.hosts: SKIPPED: needs root: yes"), (code, "  not run: no GPU\n")),
                         "; 5 skipped: 2 (no root); 1 (no memory cgroup); 1 (needs root: yes); 1 (no GPU)")
        self.assertEqual(self.summary((code, "")), "; 1 skipped: 1 (it does not say why)")


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    unittest.main()
