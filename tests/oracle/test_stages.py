#!/usr/bin/env python3
"""Models that are cut into stages: loss and gradients are those of the whole model, bit for bit, and PyTorch's. Between
the layers of transformers' traces one hidden state is carried and nothing else, without a word from the user; these are
skipped where transformers and peft are not installed (scripts/setup --tests does that).

By hand: DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/oracle/test_stages.py [Transformers.test_gpt2...]"""
import json
import os
import sys
import unittest
import warnings

import torch
import torch.nn.functional as F

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), folder) for folder in ("../support/python",)]
import harness  # noqa: E402
import hugging_face  # noqa: E402
import model_packages  # noqa: E402
import tensor_file  # noqa: E402

ROWS = 4
# A parameter of three uses: the stages add them in another order.
REORDERED = {"t5": {"model.shared.weight"}}


class StagedTest(harness.TrainingTest):
    def staged(self, model, samples, num_stages, partition="parameters", dtype="fp32", units=(), reordered=frozenset()):
        """What staged_model says, checked against the whole model there."""
        data = self.env.path("data.safetensors")
        tensor_file.write(data, samples)
        program = os.path.join(os.environ["DSLAUNCH_BIN"], "staged_model")
        outcome = harness.run([program, model, data, str(num_stages), partition, dtype, *units])
        self.assertEqual(outcome.code, 0, str(outcome))
        found = json.loads(outcome.out)
        self.assertEqual(found["loss"], found["whole_loss"])
        self.assertLessEqual({each for each, is_equal in found["gradients"].items() if not is_equal}, reordered)
        self.assertEqual(found["num_gradients"], len(found["gradients"]))
        stages = found["plan"]["stages"]
        self.assertEqual(len(stages), num_stages)
        held = [each for stage in stages for each in stage["parameters"]]
        tied = sum(len(each["stages"]) - 1 for each in found["plan"]["tied"])
        self.assertEqual(len(held) - tied, len(set(held)))
        return found


@unittest.skipIf(model_packages.WHY_NOT, model_packages.WHY_NOT)
class Transformers(StagedTest):
    def check(self, name, num_stages, carried=1, **more):
        masked, folder = hugging_face.is_masked(name), hugging_face.shared_folder() or self.env.folder
        found = self.staged(hugging_face.export(name, masked, "fp32", folder), hugging_face.samples(name, masked, ROWS),
                            num_stages, reordered=REORDERED.get(name, set()), **more)
        for stage in found["plan"]["stages"][1:]:
            self.assertLessEqual(len(stage["carried"]), carried, stage)
            self.assertFalse(carried == 1 and stage["carried"][0]["number"], stage)
        return found

    def check_with_pytorch(self, name, num_stages):
        found = self.check(name, num_stages)
        masked = hugging_face.is_masked(name)
        model = hugging_face.build(name, masked)
        loss = model(*hugging_face.samples(name, masked, ROWS).values())
        self.assertLessEqual(abs(found["loss"] / loss.item() - 1), 1e-6)
        self.assertEqual(found["num_gradients"], len(list(model.parameters())))

    def test_half_precision(self):
        """The casts of a trace in fp32 are decided on the whole model."""
        for name in ("llama", "bert"):
            self.check(name, 2, dtype="bf16")

    def test_heads_by_chunks(self):
        """The pass that GPUs get: the last stage's graph with it, and the model's numbers."""
        for name in ("gpt2", "llama", "bert"):
            found = self.check(name, 2, dtype="chunks")
            self.assertEqual(found["num_chunked"], 1, name)
            self.assertLessEqual(found["largest_error"], 2e-5, name)

    def test_encoder_and_decoder(self):
        """The stacks are the units where nothing else is named; the encoder's output is carried past the decoder's."""
        self.check("t5", 2, carried=4)
        self.check("t5", 3, units=["T5Block"], carried=6)


class Basic(torch.nn.Module):
    """Of ResNet: the sum and the activations work in place."""

    def __init__(self, channels):
        super().__init__()
        self.one = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.two = torch.nn.BatchNorm2d(channels)
        self.relu = torch.nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.two(self.one(x))
        out += x
        return self.relu(out)


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = torch.nn.ModuleList([torch.nn.LSTM(8, 8, batch_first=True) for _ in range(3)])
        self.head = torch.nn.Linear(8, 10)

    def forward(self, x):
        h = x.flatten(1).unflatten(1, (-1, 8))
        for cell in self.cells:
            h = h + cell(h)[0]
        return self.head(h[:, -1])


class SkipNet(torch.nn.Module):
    """Of U-Net: values of the first layers skip the middle ones."""

    def __init__(self):
        super().__init__()
        self.down = torch.nn.ModuleList([self.layer(3), self.layer(8)])
        self.middle = self.layer(8)
        self.up = torch.nn.ModuleList([self.layer(16), self.layer(16)])
        self.head = torch.nn.Conv2d(8, 10, 1)

    @staticmethod
    def layer(channels):
        return torch.nn.Sequential(torch.nn.Conv2d(channels, 8, 3, padding=1), torch.nn.BatchNorm2d(8),
                                   torch.nn.ReLU(inplace=True))

    def forward(self, x):
        one = self.down[0](x)
        two = self.down[1](F.max_pool2d(one, 2))
        y = self.middle(F.max_pool2d(two, 2))
        y = self.up[0](torch.cat([F.interpolate(y, scale_factor=2.0), two], 1))
        y = self.up[1](torch.cat([F.interpolate(y, scale_factor=2.0), one], 1))
        return self.head(y).mean((2, 3))


class WithLoss(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, x, labels):
        return F.cross_entropy(self.layers(x), labels)


def layers_of_alexnet():
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1),
                         nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d((2, 2)), nn.Flatten(), nn.Dropout(), nn.Linear(32, 32),
                         nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(32, 10))


def layers_of_resnet():
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *(Basic(8) for _ in range(4)), nn.AdaptiveAvgPool2d((1, 1)),
                         nn.Flatten(), nn.Linear(8, 10))


class Networks(StagedTest):
    """Scripted and traced. Dropout draws the same numbers: the stages run in turn, in one process."""

    def check(self, layers):
        torch.manual_seed(0)
        model = WithLoss(layers()).train()
        samples = {"x": torch.randn(ROWS, 3, 16, 16), "labels": torch.tensor([1, 2, 3, 9])}
        path = self.env.path("model.pt")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = torch.jit.trace(model, tuple(samples.values()), check_trace=False)
        for made in (torch.jit.script(model), traced):
            made.save(path)
            for num_stages in (2, 4):
                found = self.staged(path, samples, num_stages, partition="uniform")
                self.assertGreater(min(stage["flops"] for stage in found["plan"]["stages"]), 0)

    def test_alexnet(self):
        self.check(layers_of_alexnet)

    def test_resnet(self):
        self.check(layers_of_resnet)

    def test_recurrent_layers(self):
        self.check(Recurrent)

    def test_values_that_skip_layers(self):
        self.check(SkipNet)


def add_cases():
    for name in ("gpt2", "llama", "bert", "gpt_neox", "qwen2", "mistral", "opt"):
        for num_stages in (2, 3):
            setattr(Transformers, f"test_{name}_in_{num_stages}_stages",
                    lambda self, name=name, num_stages=num_stages: self.check_with_pytorch(name, num_stages))


add_cases()


if __name__ == "__main__":
    unittest.main(verbosity=2)
