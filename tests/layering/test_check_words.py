#!/usr/bin/env python3
"""Plants one retired name at a time and expects the check to name it, with the name that takes its place."""
import os
import subprocess
import sys
import tempfile
import unittest

CHECK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "check_words.py")


class PlantedNames(unittest.TestCase):
    def check(self, path, text):
        with tempfile.TemporaryDirectory(prefix="dslaunch-words-") as root:
            os.makedirs(os.path.join(root, os.path.dirname(path)))
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
            done = subprocess.run([sys.executable, CHECK, root], stdout=subprocess.PIPE, text=True, check=False)
        return done.returncode, done.stdout

    def test_a_type_in_a_library(self):
        self.assertEqual(self.check("lib/launch/a.cpp", "int x;\nclass JobCourse {};\n"),
                         (1, "lib/launch/a.cpp:2: 'JobCourse' is retired: JobLifecycle\n"))

    def test_a_member_and_a_word_of_a_test(self):
        self.assertEqual(self.check("apps/launcher/a.hpp", "bool spares_output_;\n")[0], 1)
        self.assertEqual(self.check("tests/oracle/a.py", "meet_all()\n")[0], 1)

    def test_constants(self):
        for name in ("kMostRanks", "kLongestName", "kUsualGrace", "kPatience", "kLinkPatience"):
            self.assertEqual(self.check("lib/base/a.hpp", f"constexpr int {name} = 1;\n")[0], 1, name)

    def test_a_file(self):
        self.assertEqual(self.check("lib/base/whole_number.hpp", "#pragma once\n"),
                         (1, "lib/base/whole_number.hpp:1: the file's name is retired: parse_int\n"))
        self.assertEqual(self.check("tests/unit/base/side_by_side_test.cpp", "\n")[0], 1)

    def test_names_that_only_contain_one_pass(self):
        self.assertEqual(self.check("lib/base/a.cpp", "JobCourses c; int kMostly; int misused; int kMaxRanks;\n"), (0, ""))


if __name__ == "__main__":
    unittest.main()
