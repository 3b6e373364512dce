#!/usr/bin/env python3
"""A loss or gradient that is not finite ends a run with 76 and a message that names the culprit: rank, stage, micro batch and
samples, and there the first tensor that was not finite: data, parameter, a unit's output, the loss, a gradient."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import light_torch  # noqa: E402,F401
import torch  # noqa: E402
import tensor_file  # noqa: E402
import harness  # noqa: E402
from harness import base_config, run  # noqa: E402


class Block(torch.nn.Module):
    """A residual step; one of them takes the square root of its input."""

    def __init__(self, is_root: bool):
        super().__init__()
        self.layer, self.is_root = torch.nn.Linear(6, 6), is_root

    def forward(self, x):
        if self.is_root:
            x = torch.sqrt(x)
        return x + 0.1 * torch.tanh(self.layer(x))


class Net(torch.nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks, self.head = torch.nn.ModuleList(blocks), torch.nn.Linear(6, 1)

    def forward(self, x, y):
        for block in self.blocks:
            x = block(x)
        return (self.head(x) - y).square().mean()


class SteepNet(torch.nn.Module):
    """Its loss is finite at a weight of 0, its gradient is not."""

    def __init__(self):
        super().__init__()
        self.first, self.steep = torch.nn.Linear(6, 1), torch.nn.Parameter(torch.zeros(1))

    def forward(self, x, y):
        return (self.first(x) - y).square().mean() + torch.sqrt(self.steep).sum()


class NotFinite(harness.TrainingTest):
    def save(self, name, model):
        path = self.env.path(name)
        torch.jit.script(model).save(path)
        return path

    def blocks(self):
        torch.manual_seed(4)
        return self.save("blocks.pt", Net([Block(False), Block(True), Block(False)]))

    def data(self, name, change=lambda x, y: None, positive=False):
        tensors = harness.samples_of("mlp")
        if positive:
            tensors["x"] = tensors["x"].abs() + 1
        change(tensors["x"], tensors["y"])
        path = self.env.path(name)
        tensor_file.write(path, tensors)
        return path

    def failed(self, model, data, world, *words, stage=0, steps=6, **changes):
        config = base_config("mlp", zero_optimization={"stage": stage, "stage3_param_persistence_threshold": 0}, **changes)
        outcome = run(self.env.command(model, data, config, self.env.run_dir(), world, steps), timeout=60)
        self.assertEqual(outcome.code, 76, str(outcome))
        for word in words:
            self.assertIn(word, outcome.text, str(outcome))
        return outcome

    def test_a_value_of_the_data(self):
        def change(x, y):
            y[80] = float("nan")  # in the third batch of 36

        data = self.data("nan.safetensors", change)
        for world, stage, accumulation, rank, micro, samples in ((1, 0, 1, 0, 0, "72, 73"), (3, 3, 1, 0, 0, "72, 73"),
                                                                 (3, 2, 3, 2, 0, "80, 81"), (2, 1, 3, 1, 0, "78, 79")):
            with self.subTest(world=world, stage=stage):
                self.failed(self.env.model("mlp"), data, world, "the loss is not finite at step 3",
                            f"rank {rank}, micro batch {micro} (samples {samples}", "array 'y' of the data, sample 80",
                            "nan.safetensors", "[0] is nan", stage=stage, gradient_accumulation_steps=accumulation)

    def test_an_infinite_value_is_reported_with_the_nan_it_causes(self):
        def change(x, y):
            x[40, 2] = float("inf")

        self.failed(self.env.model("mlp"), self.data("inf.safetensors", change), 2, "step 2", "samples 36, 37",
                    "array 'x' of the data, sample 40", "element [2] is inf")

    def test_a_parameter_of_the_file(self):
        model = torch.jit.load(self.blocks())
        with torch.no_grad():
            getattr(model.blocks, "2").layer.weight[1, 3] = float("nan")
        path = self.env.path("spoilt.pt")
        model.save(path)
        for stage in (0, 3):
            with self.subTest(stage=stage):
                self.failed(path, self.data("good.safetensors", positive=True), 2, "step 1", "rank 0, micro batch 0",
                            "parameter 'blocks.2.layer.weight' (unit 'blocks.2')", "element [1, 3] is nan", stage=stage)

    def test_what_a_unit_makes_of_finite_values(self):
        def change(x, y):
            x[60] = -5.0

        data = self.data("negative.safetensors", change, positive=True)
        for world, stage in ((2, 0), (3, 3)):
            with self.subTest(world=world, stage=stage):
                self.failed(self.blocks(), data, world, "step 2", f"rank {(60 - 36) // (36 // world)}, micro batch 0",
                            "the output of unit 'blocks.1'", "is nan", stage=stage)
        with self.subTest(stages=2):
            self.failed(self.blocks(), data, 4, "step 2", "rank 1 (stage 0), micro batch 0 (samples 54, 55",
                        "the output of unit 'blocks.1'", "is nan", pipeline={"stages": 2, "partition": "parameters"})

    def test_a_gradient(self):
        torch.manual_seed(1)
        model = self.save("steep.pt", SteepNet())
        for stage in (0, 2):
            with self.subTest(stage=stage):
                self.failed(model, self.env.data("mlp"), 2, "the gradient is not finite at step 1", "rank 0, micro batch 0",
                            "the gradient of parameter 'steep'", "is inf", stage=stage)

    def test_diverging_weights(self):
        self.failed(self.env.model("mlp"), self.env.data("mlp"), 2, "not finite", "Run again with checks: rank",
                    "Lower the learning rate", optimizer={"type": "SGD", "params": {"lr": 1e12}}, gradient_clipping=0)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    unittest.main(verbosity=2)
