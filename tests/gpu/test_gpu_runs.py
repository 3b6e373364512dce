#!/usr/bin/env python3
"""Runs on this machine's GPUs against plain PyTorch on the CPU: loss, rate and gradient norm of 50 steps, ZeRO 0 to 3, on
1 to all GPUs; resume bit by bit; bf16. Run by ctest (label gpu) where there is a GPU; elsewhere it ends with 77 (skipped).

    DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/gpu/test_gpu_runs.py"""
import json
import os
import sys
import unittest

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../oracle"))
import one_process
import workshop
from workshop import base_config

STEPS = 50
# fp32 on both sides, but matrix products add up in another order than on a CPU, and 50 steps carry that on.
BOUND = 1e-4
WORLDS = [world for world in (1, 2, 4, 8) if world <= torch.cuda.device_count()]


class GpuWorkshop(workshop.Workshop):
    def command(self, model, data, config, run_dir, world=1, steps=50, extra=()):
        command = super().command(model, data, config, run_dir, world, steps, extra)
        command[command.index("cpu")] = "cuda"
        return command


class GpuRuns(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shop = GpuWorkshop()
        workshop.environment = gpu_environment  # the GPUs stay visible

    @classmethod
    def tearDownClass(cls):
        cls.shop.close()

    def compare(self, expected, actual, bound, what):
        self.assertEqual(len(expected), len(actual), what)
        worst = 0.0
        for want, got in zip(expected, actual):
            for key in ("loss", "lr", "grad_norm"):
                worst = max(worst, abs(want[key] - got[key]) / max(abs(want[key]), 1e-30))
        print(f"{what}: largest relative difference {worst:.1e}", flush=True)
        self.assertLessEqual(worst, bound, what)

    def test_numbers_are_those_of_one_process(self):
        for kind in ("mlp", "gpt", "convnet"):
            form = "trace" if kind == "mlp" else "script"
            for world in WORLDS:
                shares = world if kind == "convnet" else 1
                for stage in (0, 1, 2, 3):
                    # Small models would stay whole at stage 3 by default.
                    config = base_config(kind, zero_optimization={
                        "stage": stage, "overlap_comm": stage != 1, "stage3_param_persistence_threshold": 0,
                        "stage3_prefetch_bucket_size": 20000})
                    if workshop.BATCH % world:
                        config["train_batch_size"] = 32
                    expected = one_process.train(self.shop.model(kind, form), self.shop.data(kind), config, STEPS, shares)
                    actual, _ = self.shop.train(self.shop.model(kind, form), self.shop.data(kind), config, world, STEPS)
                    with self.subTest(kind=kind, world=world, stage=stage):
                        self.compare(expected, actual, BOUND, f"{kind} {form}, {world} GPUs, stage {stage}")

    def test_a_resumed_run_equals_the_uninterrupted_one_bit_by_bit(self):
        for world in WORLDS[:2]:
            config = base_config("gpt", zero_optimization={"stage": 1}, deterministic=True)
            model, data = self.shop.model("gpt"), self.shop.data("gpt")
            whole, _ = self.shop.train(model, data, config, world, 30)
            _, folder = self.shop.train(model, data, config, world, 12)
            resumed, _ = self.shop.train(model, data, config, world, 30, folder, ("--resume", "auto"))
            self.compare(whole, resumed, 0.0, f"resume on {world} GPUs")

    def test_bf16_stays_near_fp32(self):
        config = base_config("gpt", zero_optimization={"stage": 1})
        model, data = self.shop.model("gpt"), self.shop.data("gpt")
        exact, _ = self.shop.train(model, data, config, 1, STEPS)
        rounded, _ = self.shop.train(model, data, {**config, "bf16": {"enabled": True}}, WORLDS[-1], STEPS)
        # bf16 keeps 8 bits: single losses differ in the third digit.
        for want, got in zip(exact, rounded):
            self.assertLess(abs(want["loss"] - got["loss"]) / want["loss"], 2e-2, json.dumps(got))


def gpu_environment(**changes):
    env = {key: value for key, value in os.environ.items()
           if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")}
    env.update(changes)
    return env


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print("skipped: no GPU on this machine")
        sys.exit(77)
    unittest.main(verbosity=2)
