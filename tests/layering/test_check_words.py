#!/usr/bin/env python3
"""Plants one retired word at a time and expects the check to name it, with the word that takes its place."""
import os
import subprocess
import sys
import tempfile
import unittest

CHECK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "check_words.py")


class PlantedNames(unittest.TestCase):
    def check(self, path, text, glossary=None):
        """The exit status and the output for a tree of that one file, and a glossary if one is given."""
        files = {path: text} if glossary is None else {path: text, "docs/glossary.md": glossary}
        with tempfile.TemporaryDirectory(prefix="dslaunch-words-") as root:
            for name, content in files.items():
                os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
                with open(os.path.join(root, name), "w", encoding="utf-8") as file:
                    file.write(content)
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

    def test_a_part_of_an_identifier(self):
        self.assertEqual(self.check("lib/launch/jobs/a.hpp", "int x;\nint job_folder(JobFolder f);\n"),
                         (1, "lib/launch/jobs/a.hpp:2: 'JobFolder' has the retired word 'folder': directory\n"
                             "lib/launch/jobs/a.hpp:2: 'job_folder' has the retired word 'folder': directory\n"))
        self.assertEqual(self.check("lib/runtime/engine/a.cpp", "// A folder.\nconst char* x = R\"(hollow)\";\n"),
                         (0, ""))

    def test_a_part_of_a_file_name(self):
        self.assertEqual(self.check("lib/launch/plan/a_folder.cpp", "\n"),
                         (1, "lib/launch/plan/a_folder.cpp:1: the file's name has the retired word 'folder': "
                             "directory\n"))

    def test_a_message(self):
        self.assertEqual(self.check("apps/worker/a.cpp", 'int x;\nf("it waited in "\n  "vain");\n'),
                         (1, "apps/worker/a.cpp:2: a message says 'in vain': timed out waiting for\n"))
        self.assertEqual(self.check("lib/runtime/data/a.cpp", 'f("the file is no array");\n')[0], 1)
        self.assertEqual(self.check("lib/launch/doctor/a.cpp", 'f("The run stood still");\n')[0], 1)
        self.assertEqual(self.check("tools/a.py", '# Told once more.\nprint(f"read it once "\n      f"more")\n'),
                         (1, "tools/a.py:2: a message says 'once more': again\n"))

    def test_messages_of_tests_and_plain_english_pass(self):
        self.assertEqual(self.check("tests/unit/base/a.cpp", 'f("in vain");\n'), (0, ""))
        self.assertEqual(self.check("lib/base/a.cpp", 'f("there is no file; it is no longer here, vainly");\n'),
                         (0, ""))

    def test_a_heading(self):
        self.assertEqual(self.check("docs/a.md", "# Start\n\nA torn page.\n\n## When a rank stands still\n"),
                         (1, "docs/a.md:5: a heading says 'stands still': is blocked\n"))
        self.assertEqual(self.check("README.md", "# The run folder\n")[0], 1)

    def test_exactly_the_names_in_the_glossary_stay(self):
        glossary = "# Glossary\n\n## Names that stay\n\n| name | where |\n| --- | --- |\n| `folder`, `torn` | keys |\n"
        self.assertEqual(self.check("lib/base/a.cpp", 'f("folder", "torn");\n', glossary), (0, ""))
        self.assertEqual(self.check("lib/base/a.cpp", 'f("folder");\n')[0], 1)
        self.assertEqual(self.check("lib/base/a.cpp", 'f("a folder");\n', glossary)[0], 1)
        self.assertEqual(self.check("lib/base/a.cpp", "int folder;\n", glossary)[0], 1)

    def test_comments_and_test_prose_of_models(self):
        for path, line in (("lib/runtime/model/graph/a.cpp", "// The product with a weight."),
                           ("lib/runtime/device/a.hpp", "int x;  // measured once more"),
                           ("lib/runtime/model/fusion/a.cpp", "// Inputs that are handed on."),
                           ("tests/unit/runtime/model/a_test.cpp", 'TEST_CASE("regions: nobody reads it") {}'),
                           ("tests/gpu/a_test.cpp", 'TEST_CASE("products of 16 bits") {}')):
            self.assertEqual(self.check(path, line + "\n")[0], 1, line)
            self.assertEqual(self.check("tests/unit/base/" + os.path.basename(path), line + "\n"), (0, ""))
        self.assertEqual(self.check("lib/runtime/model/graph/a.cpp", "// Fine.\n// `a` carves it.\n"),
                         (1, "lib/runtime/model/graph/a.cpp:2: a comment says 'carves': extract\n"))
        self.assertEqual(self.check("lib/runtime/model/graph/a.cpp", "// F.scaled_dot_product_attention\n"), (0, ""))

    def test_namespaces_and_types_of_models(self):
        for code in ("regions::Op op;", "fused::linear();", "script::ScriptFile file;", "struct Place {};", "kSpread"):
            self.assertEqual(self.check("lib/runtime/model/fusion/a.cpp", code + "\n")[0], 1, code)
        self.assertEqual(self.check("lib/runtime/model/a.cpp", "torch::jit::script::Module m;\n"), (0, ""))

    def test_names_that_only_contain_one_pass(self):
        self.assertEqual(self.check("lib/base/a.cpp", "JobCourses c; int kMostly; int misused; int kMaxRanks;\n"), (0, ""))


if __name__ == "__main__":
    unittest.main()
