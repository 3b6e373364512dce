#!/usr/bin/env python3
"""Runs the tests of several files in one process, which then share the start of PyTorch and pools of ranks.

    run_tests.py FILE [CLASS...] [FILE [CLASS...]]...      without classes: all of a file"""
import importlib
import os
import sys
import unittest

import light_torch  # noqa: F401


def module_of(path):
    folder, name = os.path.split(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name[:-len(".py")])


def load(words):
    loader, suite = unittest.defaultTestLoader, unittest.TestSuite()
    for word, following in zip(words, [*words[1:], ".py"]):
        if word.endswith(".py"):
            module = module_of(word)
            if following.endswith(".py"):
                suite.addTests(loader.loadTestsFromModule(module))
        else:
            suite.addTests(loader.loadTestsFromName(word, module))
    return suite


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(load(sys.argv[1:])).wasSuccessful())
