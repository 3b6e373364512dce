#!/usr/bin/env python3
"""tools/analyze_data: its files against those of DeepSpeed's analyzer (tests/data/data_efficiency), metrics against plain
NumPy, and what it says of data that are not usable. Its functions are called in this process."""
import contextlib
import io
import math
import os
import sys
import tempfile
import unittest

import numpy

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests/support/python"), os.path.join(ROOT, "tools")]
sys.dont_write_bytecode = True
from analysis import analyze  # noqa: E402
from failure import exit_code_of  # noqa: E402

FIXTURES = os.path.join(ROOT, "tests/data/data_efficiency")
SAMPLES, LENGTH = 210, 16


def lengths():
    return numpy.array([3 + i * 7 % 13 for i in range(SAMPLES)])


class AnalyzeData(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="dsl-analyze-")
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)

    def analyze(self, *arguments):
        """(exit code, what it says)"""
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            code = exit_code_of("tools/analyze_data", analyze.main, [str(each) for each in arguments])
        return code, said.getvalue()

    def check_files(self, name):
        for kind in ("sample_to_metric", "index_to_sample", "index_to_metric"):
            self.assertEqual(*(self.content(folder, name, kind, ".bin") for folder in ("out", FIXTURES)), kind)
            own, theirs = (self.content(folder, name, kind, ".idx") for folder in ("out", FIXTURES))
            rows = int.from_bytes(own[18:26], "little")
            self.assertEqual(own[:26], theirs[:26], kind)  # behind it is the number of documents, which nothing reads
            self.assertEqual(own[34:34 + 12 * rows], theirs[34:34 + 12 * rows], kind)

    def content(self, folder, name, kind, ending):
        with open(os.path.join(folder, name, f"{name}_{kind}{ending}"), "rb") as file:
            return file.read()

    def test_files_are_those_of_deepspeeds_analyzer(self):
        mask = (numpy.arange(LENGTH)[None] < lengths()[:, None]).astype(numpy.uint8)
        numbers = numpy.arange(SAMPLES)
        numpy.savez("a.npz", input_ids=mask[:100].astype(numpy.int64), mask=mask[:100], number=numbers[:100])
        numpy.savez("b.npz", input_ids=mask[100:].astype(numpy.int64), mask=mask[100:], number=numbers[100:])
        with open("mine.py", "w") as file:
            file.write("def rarity(arrays):\n    return 100 + arrays['number'] ** 2 % 11 * 10\n")
        code, said = self.analyze("a.npz", "b.npz", "out", "--metrics", "seqlen,rarity", "--function", "rarity=mine.py:rarity")
        self.assertEqual(code, 0, said)
        self.assertIn("seqlen: 210 samples, 13 values from 3 to 15", said)
        self.check_files("seqlen")
        self.check_files("rarity")

    def test_padding_is_told_by_its_token_and_processes_share_the_samples(self):
        tokens = numpy.where(numpy.arange(LENGTH)[None] < lengths()[:, None], 7, 0)
        tokens[:, 1] = 0  # in front of a token: not padding
        numpy.savez("a.npz", input_ids=tokens)
        analyze.ROWS, before = 50, analyze.ROWS
        self.addCleanup(setattr, analyze, "ROWS", before)
        code, said = self.analyze("a.npz", "out", "--pad", 0, "--workers", 2)
        self.assertEqual(code, 0, said)
        self.check_files("seqlen")

    def test_rarity_of_a_stream(self):
        tokens = numpy.array([1, 1, 1, 2, 1, 3, 1, 1, 9], numpy.uint16)
        tokens.tofile("a.bin")
        code, said = self.analyze("a.bin", "out", "--seq", 4, "--metrics", "vocabularyrarity")
        self.assertEqual(code, 0, said)
        share = {1: 6 / 8, 2: 1 / 8, 3: 1 / 8}
        expected = [round(-sum(math.log(share[t]) for t in row)) for row in (tokens[:4], tokens[4:8])]
        found = numpy.fromfile("out/vocabularyrarity/vocabularyrarity_sample_to_metric.bin", numpy.uint8)
        self.assertEqual(found.tolist(), expected)

    def test_what_it_cannot_use(self):
        numpy.savez("two.npz", x=numpy.zeros((4, 3)), y=numpy.zeros((4, 3, 3), int))
        numpy.savez("ids.npz", input_ids=numpy.zeros((4, 3), int))
        numpy.zeros(9, numpy.uint16).tofile("stream.bin")
        with open("bad.py", "w") as file:
            file.write("def floats(arrays):\n    return [0.5] * len(arrays['input_ids'])\n")
        for code, part, arguments in (
                (64, "then the directory", ["ids.npz"]), (66, "'no.npz' does not exist", ["no.npz", "out"]),
                (64, "did you mean 'seqlen'", ["ids.npz", "out", "--metrics", "seqlne"]),
                (64, "no array 'input_id'", ["ids.npz", "out", "--array", "input_id"]),
                (65, "not known which array has the tokens", ["two.npz", "out"]),
                (64, "give --seq", ["stream.bin", "out"]), (65, "no samples", ["stream.bin", "out", "--seq", 20]),
                (65, "must return 4 integers", ["ids.npz", "out", "--metrics", "a", "--function", "a=bad.py:floats"]),
                (65, "no function 'ints'", ["ids.npz", "out", "--metrics", "a", "--function", "a=bad.py:ints"]),
                (64, "NAME=FILE.py:FUNCTION", ["ids.npz", "out", "--function", "a"]),
                (73, "cannot write", ["ids.npz", "ids.npz"])):
            with self.subTest(part):
                found, said = self.analyze(*arguments)
                self.assertEqual(found, code, said)
                self.assertIn(part, said)


if __name__ == "__main__":
    unittest.main()
