#!/usr/bin/env python3
"""Records what DeepSpeed's loss scalers do: loss_scaler_traces.inc, the numbers that loss_scaler_test.cpp compares with.

    PYTHON_WITH_DEEPSPEED_0.18 tests/unit/runtime/precision/record_loss_scaler.py .../loss_scaler_traces.inc

500 traces of random settings and overflows. A trace is followed until the scaler refuses to go on (its exception at the
minimum) or its steps are over. `zero`: deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler, as ZeRO stages use it.
`fused`: FP16_Optimizer._update_scale, as stage 0 uses it. Overflows are written as bits, what the scaler did as a hash
over every (scale, iteration, last overflow, budget) and the last of these in clear."""
import random
import sys
import types

from deepspeed.runtime.fp16 import loss_scaler
from deepspeed.runtime.fp16.fused_optimizer import FP16_Optimizer

loss_scaler.dist = types.SimpleNamespace(get_rank=lambda: 1)  # not rank 0: it logs nothing


class Fused:
    """The part of FP16_Optimizer that _update_scale works on."""
    dynamic_loss_scale, scale_factor, verbose = True, 2.0, False

    def __init__(self, init_scale, scale_window, min_scale, **_):
        self.cur_scale, self.scale_window, self.min_loss_scale = init_scale, scale_window, min_scale
        self.cur_iter, self.last_overflow_iter, self.cur_hysteresis = 0, -1, 1

    def update_scale(self, overflow):
        FP16_Optimizer._update_scale(self, overflow)


def mix(value, number):
    """FNV-1a over the eight bytes of a number (64 bits, two's complement)."""
    for byte in (number % 2**64).to_bytes(8, "little"):
        value = ((value ^ byte) * 0x100000001b3) % 2**64
    return value


def trace(rng, out):
    kind = rng.choice(["zero", "zero", "zero", "fused"])
    settings = {"init_scale": 2.0**rng.randint(0, 40), "scale_window": rng.choice([1, 2, 3, 5, 8, 20]),
                "min_scale": rng.choice([0, 1, 1, 2, 128, 1000]), "delayed_shift": rng.choice([1, 2, 3, 5]),
                "consecutive_hysteresis": rng.random() < 0.4}
    if kind == "fused":
        settings.update(delayed_shift=1, consecutive_hysteresis=False)
    scaler = Fused(**settings) if kind == "fused" else loss_scaler.DynamicLossScaler(**settings)
    rate = rng.choice([0.02, 0.1, 0.3, 0.6, 1.0])
    bits, digest, stopped = [], 0xcbf29ce484222325, False
    for _ in range(rng.choice([40, 64])):
        overflow = rng.random() < rate
        bits.append(overflow)
        try:
            scaler.update_scale(overflow)
        except Exception as error:
            assert "already at minimum" in str(error)
            stopped = True
            break
        for number in (scaler.cur_iter, scaler.last_overflow_iter, scaler.cur_hysteresis):
            digest = mix(digest, number)
        digest = mix(digest, int(scaler.cur_scale * 2**16))
    word = sum(1 << i for i, bit in enumerate(bits) if bit)
    yes = {True: "true", False: "false"}
    print(f"{{{yes[kind == 'zero']}, {settings['init_scale']:.0f}, {settings['scale_window']}, {settings['min_scale']}, "
          f"{settings['delayed_shift']}, {yes[settings['consecutive_hysteresis']]}, {len(bits)}, 0x{word:x}ULL, "
          f"{yes[stopped]}, {float(scaler.cur_scale)!r}, 0x{digest:x}ULL}},", file=out)


with open(sys.argv[1], "w") as file:
    rng = random.Random(20181)
    print("// Made by record_loss_scaler.py with DeepSpeed 0.18.2; do not edit. As RecordedTrace in loss_scaler_test.cpp.",
          file=file)
    for _ in range(500):
        trace(rng, file)
