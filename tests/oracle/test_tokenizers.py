#!/usr/bin/env python3
"""Texts to ids and back in C++, beside Hugging Face's tokenizers and Google's sentencepiece: lines of mixed scripts through
tokenizers of the kinds that real models have. Skipped where these packages are not installed (scripts/setup --tests does
that).

By hand: DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/oracle/test_tokenizers.py [Tokenizers.test_tokenizer_json...]"""
import itertools
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python")]
import model_packages  # noqa: E402
import tokenizer_kinds  # noqa: E402

NUM_LINES, NUM_SAMPLES = 10000, 1500


@unittest.skipIf(model_packages.WHY_NOT, model_packages.WHY_NOT)
class Tokenizers(unittest.TestCase):
    STEP = 12  # each tokenizer sees every twelfth line, others than the one before; the slow test: all of them

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="dsl-tokenizers-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.all_lines = tokenizer_kinds.lines(NUM_LINES)
        cls.samples = [tokenizer_kinds.text_of(line) for line in cls.all_lines[-NUM_SAMPLES:]]
        cls.parts = itertools.cycle(range(cls.STEP))

    def ours(self, path, lines, *options):
        """(ids, text, text without special tokens) of each line"""
        program = os.path.join(os.environ["DSLAUNCH_BIN"], "tokenize_lines")
        texts = "".join(line.hex() + "\n" for line in lines)
        outcome = subprocess.run([program, path, *options], input=texts, capture_output=True, encoding="ascii", timeout=100)
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        for line in outcome.stdout.splitlines():
            ids, text, plain = line.split("\t")
            yield [int(each) for each in ids.split()], *(bytes.fromhex(each).decode() for each in (text, plain))

    def compare(self, kind, path, theirs, decode, *options):
        lines = self.all_lines[next(self.parts)::self.STEP]
        texts = [tokenizer_kinds.text_of(line) for line in lines]
        wanted = theirs(texts)
        found = list(self.ours(path, lines, *options))
        self.assertEqual(len(found), len(lines))
        for text, ids, one in zip(texts, wanted, found):
            self.assertEqual(one[0], ids, f"{kind}: {text!r}")
        for way, skips in ((1, False), (2, True)):
            for ids, text, one in zip(wanted, decode(wanted, skips), found):
                self.assertEqual(one[way], text, f"{kind}: {ids}")

    def test_tokenizer_json(self):
        import tokenizers

        for kind, document in tokenizer_kinds.documents(self.samples).items():
            with self.subTest(kind):
                path = os.path.join(self.folder, f"{kind}.json")
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(document, file)
                library = tokenizers.Tokenizer.from_file(path)
                self.compare(kind, path, lambda texts: [each.ids for each in library.encode_batch(texts)],
                             lambda ids, skips: library.decode_batch(ids, skip_special_tokens=skips), "add_special")

    def test_sentencepiece(self):
        import sentencepiece

        for kind, model in tokenizer_kinds.sentencepiece_models(self.samples).items():
            with self.subTest(kind):
                path = os.path.join(self.folder, f"{kind}.model")
                with open(path, "wb") as file:
                    file.write(model)
                library = sentencepiece.SentencePieceProcessor(model_proto=model)
                self.compare(kind, path, library.encode, lambda ids, _: library.decode(ids))


class TokenizersOften(Tokenizers):
    STEP = 1


if __name__ == "__main__":
    unittest.main()
