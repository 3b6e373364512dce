"""Writes digits.safetensors: noisy 8x8 pictures x [960, 1, 8, 8] of four kinds of stripes, and their kind as label.
A safetensors file is a length, a JSON header and the bytes: no package is needed to write one."""
import array
import json
import random

random.seed(0)
KINDS = [lambda r, c: r % 2, lambda r, c: c % 2, lambda r, c: (r + c) % 2, lambda r, c: (r // 2 + c // 2) % 2]
labels = array.array("q", (random.randrange(4) for _ in range(960)))
pixels = array.array("f", (KINDS[kind](r, c) + random.gauss(0, 0.5) for kind in labels for r in range(8) for c in range(8)))
header = {"x": {"dtype": "F32", "shape": [960, 1, 8, 8], "data_offsets": [0, 4 * len(pixels)]},
          "label": {"dtype": "I64", "shape": [960], "data_offsets": [4 * len(pixels), 4 * len(pixels) + 8 * len(labels)]}}
text = json.dumps(header).encode()
with open("digits.safetensors", "wb") as file:
    file.write(len(text).to_bytes(8, "little") + text + pixels.tobytes() + labels.tobytes())
