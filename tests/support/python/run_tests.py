#!/usr/bin/env python3
"""Runs the tests of several files in one process, which then share the start of PyTorch and pools of ranks.

    run_tests.py FILE [CLASS...] [FILE [CLASS...]]...      without classes: all of a file"""
import importlib
import os
import sys
import time
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


class TimedResult(unittest.TextTestResult):
    """At the end the tests that took longest, pools of ranks that they started first included."""
    LONGEST = 12

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.seconds = {}

    def startTest(self, test):
        super().startTest(test)
        self.seconds[test.id()] = -time.monotonic()

    def stopTest(self, test):
        super().stopTest(test)
        self.seconds[test.id()] += time.monotonic()

    def printErrors(self):
        super().printErrors()
        for name, seconds in sorted(self.seconds.items(), key=lambda each: -each[1])[:self.LONGEST]:
            self.stream.writeln(f"{seconds:6.1f} s {name}")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(not unittest.TextTestRunner(verbosity=2, resultclass=TimedResult).run(load(sys.argv[1:])).wasSuccessful())
