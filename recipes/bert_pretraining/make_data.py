#!/usr/bin/env python3
"""BERT's masked samples of a text: of 15% of the tokens 80% become the mask, 10% another token, 10% stay; only those are
labels. Documents, one a line, follow one another between separators and are cut every --seq tokens."""
import argparse

import numpy


class Bytes:
    """Without a tokenizer: bytes, behind the special tokens."""
    pad, cls, sep, mask, first, size = 0, 1, 2, 3, 4, 260

    def ids(self, text):
        return [self.first + byte for byte in text.encode()]


class Pieces:
    def __init__(self, directory):
        from tokenizers import Tokenizer
        self.tokenizer = Tokenizer.from_file(directory + "/tokenizer.json")
        special = {name: self.tokenizer.token_to_id(f"[{name.upper()}]") for name in ("pad", "cls", "sep", "mask")}
        if missing := [name for name, number in special.items() if number is None]:
            raise SystemExit(f"make_data.py: the tokenizer of {directory} has no token for {', '.join(missing)}")
        self.__dict__.update(special)
        self.first, self.size = max(special.values()) + 1, self.tokenizer.get_vocab_size()

    def ids(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids


def samples(path, vocabulary, length):
    body = []
    with open(path, encoding="utf-8") as file:
        for line in filter(str.strip, file):
            body += [*vocabulary.ids(line.strip()), vocabulary.sep]
            while len(body) >= length - 1:
                yield [vocabulary.cls, *body[:length - 1]]
                del body[:length - 1]
    if body:
        yield [vocabulary.cls, *body, *[vocabulary.pad] * (length - 1 - len(body))]


def masked(ids, vocabulary, random):
    is_text = ids >= vocabulary.first
    chosen = is_text & (random.random(ids.shape) < 0.15)
    chosen[~chosen.any(axis=1), 1] = True  # a sample without a label would have no loss
    kind = random.random(ids.shape)
    labels = numpy.where(chosen, ids, -100)
    ids = numpy.where(chosen & (kind < 0.8), vocabulary.mask, ids)
    return numpy.where(chosen & (kind >= 0.9), random.integers(vocabulary.first, vocabulary.size, ids.shape), ids), labels


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text")
    parser.add_argument("out", help="OUT.npz")
    parser.add_argument("--seq", type=int, required=True)
    parser.add_argument("--tokenizer", metavar="DIR")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    vocabulary = Pieces(options.tokenizer) if options.tokenizer else Bytes()
    ids = numpy.array(list(samples(options.text, vocabulary, options.seq)), dtype="int64")
    attention = (ids != vocabulary.pad).astype("int64")
    ids, labels = masked(ids, vocabulary, numpy.random.default_rng(options.seed))
    numpy.savez(options.out, input_ids=ids, attention_mask=attention, labels=labels)
    print(f"{options.out}: {len(ids)} samples of {options.seq} tokens, {(labels >= 0).mean():.1%} of them masked")


if __name__ == "__main__":
    main()
