"""What a checkpoint holds, read by hand (docs/checkpoint_format.md): the grid must not share a reader with the programs."""
import json
import math
import os
import re

import torch

import tensor_file


def newest(run_dir):
    folder = os.path.join(run_dir, "checkpoints")
    with open(os.path.join(folder, "latest")) as file:
        return os.path.join(folder, file.read().strip())


PIECE = re.compile(r"([^@[]+)(?:\[(\d+):(\d+):(\d+)\])?@(\d+)/(.*)")


def read(checkpoint):
    """{state: {name: flat tensor}} of all shards, and the manifest. Every element of a state must be there."""
    with open(os.path.join(checkpoint, "manifest.json")) as file:
        manifest = json.load(file)
    shapes = {tensor["name"]: tensor["shape"] for tensor in manifest["parameters"]}
    pieces = {}
    for entry in manifest["files"]:
        if not entry["name"].endswith(".safetensors"):
            continue
        for key, tensor in tensor_file.read(os.path.join(checkpoint, entry["name"])).items():
            piece = PIECE.fullmatch(key)
            if not piece:
                continue
            state, *cut, begin, name = piece.groups()
            parts = pieces.setdefault(state, {}).setdefault(name, [])
            if cut[0] is None:
                parts.append((int(begin), tensor))
            else:
                parts += runs_of(shapes[name], [int(number) for number in cut], int(begin), tensor)
    return {state: {name: joined(name, parts) for name, parts in of.items()} for state, of in pieces.items()}, manifest


def runs_of(shape, cut, begin, tensor):
    """A range of a slice (dim, start, length) as ranges of the whole parameter: (position, elements)."""
    dim, start, length = cut
    row = length * math.prod(shape[dim + 1:])  # back to back in both
    runs, element = [], begin
    while element < begin + len(tensor):
        count = min(row - element % row, begin + len(tensor) - element)
        position = (element // row * shape[dim] + start) * math.prod(shape[dim + 1:]) + element % row
        runs.append((position, tensor[element - begin:][:count]))
        element += count
    return runs


def joined(name, parts):
    end, out = 0, []
    for begin, tensor in sorted(parts, key=lambda part: part[0]):
        if begin > end:
            raise AssertionError(f"elements {end} to {begin} of '{name}' are in no shard")
        out.append(tensor[end - begin:])
        end = max(end, begin + len(tensor))
    return torch.cat(out)
