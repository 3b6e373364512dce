#!/usr/bin/env python3
"""Names the classes of tests of Python files, without importing them: CMake makes a ctest entry of each
(cmake/PythonTests.cmake). tests/layering/test_entries.py compares that with what unittest itself finds.

    test_classes.py FILE... [--together GROUP...] [--alone FILE.CLASS...]
        prints a line for each entry: its name, and each of its files with the classes"""
import argparse
import ast
import os
import sys


def is_test_method(node):
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test")


def base_names(node):
    """Last words of the bases: unittest.TestCase is TestCase."""
    return [base.attr if isinstance(base, ast.Attribute) else base.id
            for base in node.bases if isinstance(base, (ast.Attribute, ast.Name))]


def classes_with_tests(source):
    """Classes derived from one whose name ends with Test or TestCase, or from another such class of the file. One that
    others of the file derive from counts if it has tests itself; any other may also get them while the file is read."""
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    cases, derived_from = set(), set()
    for node in classes:
        bases = base_names(node)
        if any(base in cases or base.endswith(("Test", "TestCase")) for base in bases):
            cases.add(node.name)
            derived_from.update(bases)
    return [node.name for node in classes if node.name in cases
            and (node.name not in derived_from or any(map(is_test_method, node.body)))]


def entries(classes, together, alone):
    """{name: {file: its classes}}, where `classes` has those of every file. Groups are FILE:CLASS+CLASS, or FILE,FILE:* for
    all that are left of files but those that are to be alone (FILE.CLASS)."""
    left, found = {file: list(names) for file, names in classes.items()}, {}

    def take(group, file, taken):
        missing = [name for name in taken if name not in left.get(file, [])]
        if missing or not taken:
            raise ValueError(f"TOGETHER {group}: test_{file}.py has no class {' or '.join(missing)} that is left")
        left[file] = [name for name in left[file] if name not in taken]
        return taken

    for group in together:
        head, _, words = group.partition(":")
        if words == "*":
            files = head.split(",")
            found["-".join(files)] = {file: take(group, file, [name for name in left.get(file, [])
                                                               if f"{file}.{name}" not in alone]) for file in files}
        else:
            taken = words.split("+")
            found[f"{head}.{'-'.join(taken)}"] = {head: take(group, head, taken)}
    return found | {f"{file}.{name}": {file: [name]} for file, names in left.items() for name in names}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--together", nargs="*", default=[], metavar="GROUP")
    parser.add_argument("--alone", nargs="*", default=[], metavar="FILE.CLASS")
    args = parser.parse_args()
    classes = {}
    for path in args.files:
        with open(path, encoding="utf-8") as file:
            classes[os.path.basename(path)[len("test_"):-len(".py")]] = classes_with_tests(file.read())
    try:
        for name, members in entries(classes, args.together, args.alone).items():
            print(name, *(word for file, names in members.items() for word in (f"test_{file}.py", *names)))
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
