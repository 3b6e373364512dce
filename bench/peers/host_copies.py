#!/usr/bin/env python3
"""For every line of stdin: one copy from the GPU to page-locked memory and one back, of so many bytes each; then a line
with their milliseconds. The first line says "ready".

    bench/peers/host_copies.py BYTES"""
import sys
import time

import torch


def main():
    count = int(sys.argv[1])
    on_device = torch.empty(count, dtype=torch.uint8, device="cuda")
    down, up = (torch.zeros(count, dtype=torch.uint8).pin_memory() for _ in range(2))
    torch.cuda.synchronize()
    print("ready", flush=True)
    for _ in sys.stdin:
        began = time.monotonic()
        down.copy_(on_device, non_blocking=True)
        on_device.copy_(up, non_blocking=True)
        torch.cuda.synchronize()
        print(f"{1000 * (time.monotonic() - began):.1f}", flush=True)


if __name__ == "__main__":
    main()
