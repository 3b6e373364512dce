#!/usr/bin/env python3
"""Models with unusual habits (model_cases.py): every one trains with the real programs on two CPU ranks, and its loss and
gradient norm at every step are those of plain PyTorch on the same file and samples.

By hand: DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/oracle/test_model_cases.py [Cases.test_tied...]"""
import json
import math
import os
import unittest

import model_cases
import one_process
import tensor_file
import workshop
from workshop import BATCH

STEPS = 8
BOUND = 1e-5  # relative, fp32: what the order of additions may change
LOOSE = {"mixed_dtype": 2e-2}  # one layer in bf16: 8 bits of mantissa


def config_of(name, **changes):
    config = {
        "train_batch_size": BATCH,
        "gradient_accumulation_steps": 3,
        "gradient_clipping": 0.4,
        "optimizer": {"type": "AdamW", "params": {"lr": 5e-3, "weight_decay": 0.01}},
        "zero_optimization": {"stage": 1},
        "data": {"shuffle": False},
        "checkpoint": {"at_end": False},
    }
    config.update(model_cases.CASES[name].config)
    config.update(changes)
    return config


class CaseTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shop = workshop.Workshop()

    @classmethod
    def tearDownClass(cls):
        cls.shop.close()

    def model(self, name):
        path = self.shop.path(name + ".pt")
        return path if os.path.exists(path) else model_cases.export(name, path)

    def data(self, name):
        path = self.shop.path(name + ".safetensors")
        if not os.path.exists(path):
            tensor_file.write(path, model_cases.CASES[name].samples(4 * BATCH))
        return path

    def run_case(self, name, config, world=2, steps=STEPS):
        """What a run prints and measures: (metrics, all text)."""
        folder = self.shop.run_dir()
        outcome = workshop.run(self.shop.command(self.model(name), self.data(name), config, folder, world, steps))
        self.assertEqual(outcome.code, 0, str(outcome))
        return workshop.read_metrics(folder), outcome.text

    def expected(self, name, config, world, steps=STEPS):
        shares = world if model_cases.CASES[name].split else 1
        return one_process.train(self.model(name), self.data(name), config, steps, shares)

    def assert_close(self, expected, actual, bound, what, keys=("loss", "grad_norm")):
        self.assertEqual(len(expected), len(actual), what)
        for want, got in zip(expected, actual):
            for key in keys:
                self.assertTrue(math.isfinite(got[key]), f"{what} step {want['step']}: {key} is {got[key]}")
                difference = abs(want[key] - got[key]) / max(abs(want[key]), 1e-30)
                self.assertLessEqual(difference, bound, f"{what} step {want['step']}: {key} is {got[key]!r}, expected "
                                                        f"{want[key]!r}")

    def check(self, name, world=2, **changes):
        config = config_of(name, **changes)
        actual, _ = self.run_case(name, config, world)
        self.assert_close(self.expected(name, config, world), actual, LOOSE.get(name, BOUND), f"{name} {json.dumps(changes)}")


class Cases(CaseTest):
    """Every case in fp32; the methods are made below, one for each."""


def add_cases():
    for name in model_cases.CASES:
        setattr(Cases, "test_" + name, lambda self, name=name: self.check(name))


add_cases()

if __name__ == "__main__":
    unittest.main(verbosity=2)
