"""Writes cifar.safetensors: pictures x [N, 3, 32, 32], each channel from -1 to 1, and their class as label.

    make_data.py                            # 2,000 made-up pictures: coloured stripes with noise, ten kinds
    make_data.py cifar-10-batches-bin/data_batch_*.bin      # CIFAR-10 itself, its "binary version" unpacked

A safetensors file is a length, a JSON header and the bytes: no package is needed to write one."""
import array
import json
import math
import random
import sys

PIXELS = 3 * 32 * 32


def made_up(count):
    random.seed(0)
    noise = [random.gauss(0, 0.3) for _ in range(8191)]  # no multiple of a picture's pixels: each begins elsewhere
    for i in range(count):
        kind, phase, first = random.randrange(10), random.random(), random.randrange(len(noise))
        angle, channel = math.pi * (kind % 5) / 5, kind // 5
        across = [math.cos(angle) * (p % 32) + math.sin(angle) * (p // 32) for p in range(1024)]
        stripes = [math.sin(across[p] + 6 * phase) for p in range(1024)]
        yield kind, [0.7 * stripes[p % 1024] * (p // 1024 == channel) + noise[(first + p) % len(noise)] for p in range(PIXELS)]


def from_files(paths):
    """Records of a class and 3,072 bytes, channel by channel."""
    for path in paths:
        with open(path, "rb") as file:
            records = file.read()
        if not records or len(records) % (1 + PIXELS):
            sys.exit(f"make_data.py: '{path}' is not a file of CIFAR-10's binary version: {len(records)} bytes are not a "
                     f"multiple of {1 + PIXELS}")
        for begin in range(0, len(records), 1 + PIXELS):
            yield records[begin], [byte / 127.5 - 1 for byte in records[begin + 1:begin + 1 + PIXELS]]


def main(paths):
    labels, pixels = array.array("q"), array.array("f")
    for label, picture in from_files(paths) if paths else made_up(2000):
        labels.append(label)
        pixels.extend(picture)
    size = 4 * len(pixels)
    header = {"x": {"dtype": "F32", "shape": [len(labels), 3, 32, 32], "data_offsets": [0, size]},
              "label": {"dtype": "I64", "shape": [len(labels)], "data_offsets": [size, size + 8 * len(labels)]}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open("cifar.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + pixels.tobytes() + labels.tobytes())
    print(f"cifar.safetensors: {len(labels)} pictures")


if __name__ == "__main__":
    main(sys.argv[1:])
