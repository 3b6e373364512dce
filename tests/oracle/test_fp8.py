#!/usr/bin/env python3
"""Training in fp8 on CPU ranks, which emulate its rounding, against the recipes in plain PyTorch (fp8_layers.py).

The oracle adds a bias to what is rounded to bf16 already, and sums in double, so bits of bf16 part now and then. Two such
oracles, with and without these differences, are 1e-3 (losses) and 1.6e-3 (norms) apart at this learning rate; the bounds
are three times that. Run by ctest (label oracle); by hand as test_oracle.py."""
import os
import sys
import unittest

import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import fp8_layers  # noqa: E402
import harness  # noqa: E402
import one_process  # noqa: E402
import tensor_file  # noqa: E402
from harness import base_config  # noqa: E402
from pooled import PooledTest  # noqa: E402
from test_oracle import OracleTest  # noqa: E402

STEPS, ROWS, WIDTH = 20, 108, 256


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.gate = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH), nn.Linear(WIDTH, 8)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x))) * torch.sigmoid(self.gate(x).sum(1, keepdim=True))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.ModuleList([Block(), Block()]), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, y):
        for block in self.blocks:
            x = block(x)
        return (self.head(x).mean(1, keepdim=True).float() - y.float()).square().mean()


class Fp8(PooledTest, OracleTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        torch.manual_seed(3)
        net = Net()
        cls.model, cls.data, cls.state = cls.env.path("wide.pt"), cls.env.path("wide.safetensors"), net.state_dict()
        torch.jit.script(net).save(cls.model)
        x = torch.randn(ROWS, WIDTH)
        tensor_file.write(cls.data, {"x": x, "y": torch.sin(x[:, :6].sum(1, keepdim=True))})

    def expected(self, config, world):
        def make():
            net = Net()
            net.load_state_dict(self.state)
            return fp8_layers.convert(net, config["fp8"]["recipe"], lambda path: path.endswith(("up", "down")))
        return one_process.train(make, self.data, config, STEPS, world)

    def test_twenty_steps_are_those_of_the_recipe(self):
        """A rank rounds its own samples by their own maximum, so the oracle has as many shares as the run has ranks."""
        for recipe, world, stage, accumulation, recomputes in (
                ("tensorwise", 1, 0, 1, False), ("rowwise", 2, 3, 1, True), ("rowwise_with_gw_hp", 1, 2, 3, False)):
            with self.subTest(recipe=recipe, world=world, stage=stage):
                config = base_config("mlp", bf16={"enabled": True}, fp8={"enabled": True, "recipe": recipe},
                                     zero_optimization={"stage": stage}, gradient_accumulation_steps=accumulation,
                                     activation_checkpointing={"enabled": recomputes},
                                     optimizer={"type": "AdamW", "params": {"lr": 3e-4}}, communication_data_type="fp32")
                expected = self.expected(config, world)
                rows, _ = self.env.train(self.model, self.data, config, world, STEPS)
                self.assert_close(expected, rows, 3e-3, ["loss"], recipe)
                self.assert_close(expected, rows, 5e-3, ["grad_norm"], recipe)
                self.assertLess(rows[-1]["loss"], rows[0]["loss"])


if __name__ == "__main__":
    unittest.main()
