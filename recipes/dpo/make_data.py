#!/usr/bin/env python3
"""Pairs of answers as arrays, with the log-probabilities that the reference model gives them: rows of PAIRS.jsonl have `prompt`,
`chosen` and `rejected`. Needs transformers, here only."""
import argparse
import json

import numpy
import torch
from model import Pairs
from transformers import AutoTokenizer


def arrays_of(answers, prompt, length):
    """Ids and the tokens that follow them, which count in the answer only."""
    ids, targets = numpy.zeros((2, length), "int64"), numpy.full((2, length), -100, "int64")
    for row, answer in enumerate(answers):
        tokens = (prompt + answer)[:length + 1]
        ids[row, :len(tokens) - 1] = tokens[:-1]
        targets[row, len(prompt) - 1:len(tokens) - 1] = tokens[len(prompt):]
    return ids, targets


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", help="PAIRS.jsonl")
    parser.add_argument("out", help="OUT.npz")
    parser.add_argument("--model", metavar="DIR", required=True, help="the reference model, with its tokenizer")
    parser.add_argument("--seq", type=int, default=512, help="positions of prompt and answer together")
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    with open(options.pairs, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file if line.strip()]
    pairs = []
    for row in rows:
        prompt = tokenizer(row["prompt"]).input_ids
        answers = [[*tokenizer(row[name], add_special_tokens=False).input_ids, tokenizer.eos_token_id]
                   for name in ("chosen", "rejected")]
        if len(prompt) < options.seq:  # else nothing of the answers is left
            pairs.append(arrays_of(answers, prompt, options.seq))
    ids, targets = (numpy.stack(array) for array in zip(*pairs))
    model = Pairs(options.model).eval()
    with torch.no_grad():
        reference = [model(torch.from_numpy(ids[i:i + 1]), torch.from_numpy(targets[i:i + 1]))[0] for i in range(len(ids))]
    numpy.savez(options.out, input_ids=ids, targets=targets, reference=torch.stack(reference).numpy())
    print(f"{options.out}: {len(ids)} pairs, {len(rows) - len(ids)} prompts were too long")


if __name__ == "__main__":
    main()
