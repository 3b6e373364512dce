#!/usr/bin/env python3
"""Names the classes of tests of Python files, without importing them: CMake makes a ctest entry of each
(cmake/PythonTests.cmake). tests/layering/test_entries.py compares that with what unittest itself finds.

    test_classes.py FILE...        prints FILE:CLASS lines, in the order of the sources"""
import ast
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


def main():
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            for name in classes_with_tests(file.read()):
                print(f"{path}:{name}")


if __name__ == "__main__":
    main()
