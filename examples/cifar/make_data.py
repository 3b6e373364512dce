"""Writes made_up/data_batch_1.bin: 2,000 pictures of coloured stripes with noise, ten kinds, in the format of CIFAR-10's
"binary version": of each its class, a byte, and 3,072 bytes, channel by channel."""
import math
import os
import random

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


def main():
    os.makedirs("made_up", exist_ok=True)
    with open("made_up/data_batch_1.bin", "wb") as file:
        for kind, picture in made_up(2000):
            file.write(bytes([kind, *(min(255, max(0, round(127.5 * (value + 1)))) for value in picture)]))


if __name__ == "__main__":
    main()
