"""What a checkpoint holds, read by hand (docs/checkpoint_format.md): the grid must not share a reader with the programs."""
import json
import os

import torch

import tensor_file


def newest(run_dir):
    folder = os.path.join(run_dir, "checkpoints")
    with open(os.path.join(folder, "latest")) as file:
        return os.path.join(folder, file.read().strip())


def read(checkpoint):
    """{state: {name: flat tensor}} of all shards, and the manifest. Every element of a state must be there."""
    with open(os.path.join(checkpoint, "manifest.json")) as file:
        manifest = json.load(file)
    pieces = {}
    for entry in manifest["files"]:
        if not entry["name"].endswith(".safetensors"):
            continue
        for key, tensor in tensor_file.read(os.path.join(checkpoint, entry["name"])).items():
            if "@" in key:
                place, name = key.split("/", 1)
                state, begin = place.split("@")
                pieces.setdefault(state, {}).setdefault(name, []).append((int(begin), tensor))
    return {state: {name: joined(name, parts) for name, parts in of.items()} for state, of in pieces.items()}, manifest


def joined(name, parts):
    end, out = 0, []
    for begin, tensor in sorted(parts, key=lambda part: part[0]):
        if begin > end:
            raise AssertionError(f"elements {end} to {begin} of '{name}' are in no shard")
        out.append(tensor[end - begin:])
        end = max(end, begin + len(tensor))
    return torch.cat(out)
