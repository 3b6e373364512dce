#!/usr/bin/env python3
"""Runs classes of tests of several files in one process, which then share the start of PyTorch and pools of ranks.

    run_tests.py FILE CLASS... [FILE CLASS...]..."""
import importlib
import os
import sys
import unittest

import light_torch  # noqa: F401


def load(words):
    suite, module = unittest.TestSuite(), None
    for word in words:
        if word.endswith(".py"):
            folder, name = os.path.split(os.path.abspath(word))
            if folder not in sys.path:
                sys.path.insert(0, folder)
            module = importlib.import_module(name[:-len(".py")])
        else:
            suite.addTests(unittest.defaultTestLoader.loadTestsFromName(word, module))
    return suite


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(load(sys.argv[1:])).wasSuccessful())
