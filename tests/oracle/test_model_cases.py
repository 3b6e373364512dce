#!/usr/bin/env python3
"""Models with unusual habits (model_cases.py): every one trains with the real programs on two CPU ranks, and its loss and
gradient norm at every step are those of plain PyTorch on the same file and samples.

By hand: DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/oracle/test_model_cases.py [Cases.test_tied...]"""
import json
import math
import os
import unittest

import torch

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


class CaseTest(workshop.ShopTest):
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
        return one_process.train(lambda: model_cases.eager(name), self.data(name), config, steps, shares)

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
        what = f"{name} {json.dumps(changes)}"
        self.assert_close(self.expected(name, config, world), actual, LOOSE.get(name, BOUND), what)


class Cases(CaseTest):
    """Every case in fp32; the methods are made below, one for each."""


def add_cases():
    for name in model_cases.CASES:
        setattr(Cases, "test_" + name, lambda self, name=name: self.check(name))


add_cases()


class Modes(CaseTest):
    """Train and eval mode of traces, and of modules that were saved in eval mode."""

    def evaluations(self, name, **changes):
        config = config_of(name, train={"eval_interval": 2}, **changes)
        config["data"] = {"shuffle": False, "eval": self.data(name)}
        rows, text = self.run_case(name, config, steps=6)
        return [row["eval_loss"] for row in rows if "eval_loss" in row], [row["loss"] for row in rows], text

    def test_evaluation_switches_off_what_a_trace_in_train_mode_has_baked_in(self):
        """The trace against the scripted module, which reads its flag itself."""
        for traced, scripted in (("dropout_trace", "dropout"), ("batch_norm_trace", "batch_norm")):
            found, expected = self.evaluations(traced), self.evaluations(scripted)
            self.assertEqual(len(found[0]), 3)
            self.assertEqual(found[:2], expected[:2], traced)

    def test_evaluation_in_the_middle_changes_nothing(self):
        for name in ("dropout_trace", "batch_norm_trace"):
            _, losses, _ = self.evaluations(name)
            rows, _ = self.run_case(name, config_of(name), steps=6)
            self.assertEqual(losses, [row["loss"] for row in rows], name)

    def test_attention_dropout_of_a_trace_is_off_in_evaluation(self):
        found, expected = self.evaluations("attention_trace"), self.evaluations("attention")
        self.assertEqual(found[:2], expected[:2])

    def test_a_trace_in_eval_mode_is_named(self):
        _, text = self.run_case("dropout_trace_eval", config_of("dropout_trace_eval"), steps=1)
        self.assertIn("traced in eval mode, so their dropout is gone: blocks.0.drop, blocks.1.drop", text)
        _, text = self.run_case("dropout_trace", config_of("dropout_trace"), steps=1)
        self.assertNotIn("eval mode", text)
        _, text = self.run_case("batch_norm_trace_eval", config_of("batch_norm_trace_eval"), steps=1)
        self.assertIn("so they normalise by their saved statistics: blocks.0.norm, blocks.1.norm", text)

    def test_modules_that_were_saved_in_eval_mode_stay_so_and_are_named(self):
        _, text = self.run_case("frozen_norm", config_of("frozen_norm"), steps=1)
        self.assertIn("kept in eval mode, as they were saved: blocks.0.norm, blocks.1.norm", text)


class Consolidated(CaseTest):
    """A TorchScript file made of a checkpoint computes with the trained weights wherever the module holds them."""

    def test_weights_that_a_module_holds_in_a_list_too(self):
        config = config_of("lstm", checkpoint={"at_end": True})
        rows, folder = self.shop.train(self.model("lstm"), self.data("lstm"), config, 2, 4)
        out = self.shop.path("lstm-trained.pt")
        done = workshop.run([workshop.program("dslaunch"), "consolidate", os.path.join(folder, "checkpoints"), out])
        self.assertEqual(done.code, 0, str(done))
        expected = self.expected("lstm", config, 2, 5)[4]["loss"]
        loss = one_process.loss_at(torch.jit.load(out), self.data("lstm"), config, 5)
        self.assertLessEqual(abs(loss - expected) / expected, BOUND)


class Half(CaseTest):
    """Masks whose minimum does not fit bf16: rows that are hidden as a whole would be NaN."""

    def test_mask_minima(self):
        for name in ("mask_minimum", "mask_filled_trace"):
            config = config_of(name, bf16={"enabled": True})
            rows, text = self.run_case(name, config)
            self.assertIn("are beyond bf16 and became -1.695e+38", text)
            self.assert_close(self.expected(name, config_of(name), 2), rows, 5e-2, name, ["loss"])


    def test_a_mask_minimum_in_what_is_forked(self):
        path = self.shop.path("forked_mask.pt")
        torch.manual_seed(0)
        torch.jit.script(ForkedMask([model_cases.Block()])).save(path)
        outcome = workshop.run(self.shop.command(path, self.data("plain"), config_of("plain", bf16={"enabled": True}),
                                                 self.shop.run_dir(), 2, 3))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("1 constants of its graphs (minima of masks) are beyond bf16", outcome.text)


def hide_all(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(torch.full_like(x, 1.0) * -3.4028234663852886e38, -1) * x


class ForkedMask(model_cases.Regression):
    def forward(self, x, y):
        hidden = torch.jit.fork(hide_all, x)
        return torch.nn.functional.mse_loss(self.head(self.blocks[0](x) + torch.jit.wait(hidden)), y)


class Refused(CaseTest):
    """What cannot be trained as it stands is refused at load, with the name of the culprit."""

    def refusal(self, make, text, trace=False):
        path = self.shop.path("refused.pt")
        torch.manual_seed(0)
        module = torch.jit.trace(make(), model_cases.example_of("plain")) if trace else torch.jit.script(make())
        module.save(path)
        outcome = workshop.run(self.shop.command(path, self.data("plain"), config_of("plain"), self.shop.run_dir(), 1, 1))
        self.assertEqual(outcome.code, 65, str(outcome))
        self.assertIn(text, outcome.text)

    def test_parameters_that_forward_writes_to(self):
        self.refusal(Clamping, "writes to parameter 'layer.weight'")
        self.refusal(Assigning, "writes to parameter 'gain'")
        self.refusal(Renormed, "writes to parameter 'table.weight'", trace=True)  # script drops max_norm

    def test_memory_that_is_shared_without_being_tied(self):
        self.refusal(Transposed, "parameters 'a' and 'b' share memory")
        self.refusal(Peeking, "'window' shares memory with parameter 'layer.weight'")

    def test_numbers_that_cannot_be_trained(self):
        self.refusal(Complex, "parameter 'z' is ComplexFloat")


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 1)

    def forward(self, x, y):
        return ((self.layer(x) - y) ** 2).mean()


class Clamping(Small):
    def forward(self, x, y):
        with torch.no_grad():
            self.layer.weight.clamp_(-1.0, 1.0)
        return ((self.layer(x) - y) ** 2).mean()


class Assigning(Small):
    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(1))

    def forward(self, x, y):
        loss = ((self.layer(x) * self.gain - y) ** 2).mean()
        self.gain = self.gain * 0.9
        return loss


class Renormed(Small):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(3, 1, max_norm=1.0)

    def forward(self, x, y):
        return ((self.layer(x) + self.table(torch.zeros(1, dtype=torch.int64)) - y) ** 2).mean()


class Transposed(Small):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.randn(6, 6))
        self.b = torch.nn.Parameter(self.a.detach().t())

    def forward(self, x, y):
        return ((self.layer(x @ self.a @ self.b) - y) ** 2).mean()


class Peeking(Small):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", self.layer.weight.detach()[:, :3])

    def forward(self, x, y):
        return ((self.layer(x) + x[:, :3] @ self.window.t() - y) ** 2).mean()


class Complex(Small):
    def __init__(self):
        super().__init__()
        self.z = torch.nn.Parameter(torch.ones(1, dtype=torch.complex64))

    def forward(self, x, y):
        return ((self.layer(x) * self.z.abs() - y) ** 2).mean()


if __name__ == "__main__":
    unittest.main(verbosity=2)
