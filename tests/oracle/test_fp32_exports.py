#!/usr/bin/env python3
"""Traces that were exported in fp32 train in bf16 as the Python code does in bf16: the first loss is that of plain
PyTorch, and all losses are those of the same model exported in bf16, bit by bit.

By hand: DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/oracle/test_fp32_exports.py [Cases.test_rotary...]"""
import os
import re
import sys
import unittest

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import fp32_exports  # noqa: E402
import tensor_file  # noqa: E402
import harness  # noqa: E402
from pooled import PooledTest  # noqa: E402

STEPS, ROWS = 6, 24
# In a trace in fp32 several uses of a value share one upcast, and their gradients are added up in fp32.
MORE_EXACT = {"no_recorded_cast_back": 1e-3, "weight_upcast": 1e-3}
BF16 = {"bf16": {"enabled": True}}


def config_of(**changes):
    return {"train_batch_size": ROWS, "optimizer": {"type": "AdamW", "params": {"lr": 5e-3}},
            "zero_optimization": {"stage": 2}, "data": {"shuffle": False}, "checkpoint": {"at_end": False}, **changes}


class ExportTest(PooledTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.data = cls.env.path("samples.safetensors")
        tensor_file.write(cls.data, fp32_exports.samples(ROWS * STEPS))

    def model(self, name, dtype=torch.float32):
        return fp32_exports.export(name, self.env.path(f"{name}-{str(dtype)[6:]}.pt"), dtype)

    def run_with(self, model, world=2, extra=(), **changes):
        """(rows of metrics, all text)"""
        folder = self.env.run_dir()
        outcome = self.env.run(model, self.data, config_of(**changes), folder, world, STEPS, extra)
        self.assertEqual(outcome.code, 0, str(outcome))
        return harness.read_metrics(folder), outcome.text

    def losses(self, model, **changes):
        rows, text = self.run_with(model, **changes)
        return [row["loss"] for row in rows], text


class Cases(ExportTest):
    """One method for each case, made below."""

    def check(self, name):
        found, text = self.losses(self.model(name), **BF16)
        expected, of_own_type = self.losses(self.model(name, torch.bfloat16), **BF16)
        for step, (got, want) in enumerate(zip(found, expected, strict=True)):
            bound = MORE_EXACT.get(name, 0) if step else 0
            self.assertLessEqual(abs(got / want - 1), bound, f"{name}: {found} {expected}")
        self.assertNotIn("export:", of_own_type)
        arrays = [tensor[:ROWS] for tensor in fp32_exports.samples(ROWS * STEPS).values()]
        shares = zip(*(array.chunk(2) for array in arrays))
        with torch.no_grad():
            model = fp32_exports.build(name, torch.bfloat16)
            eager = sum(model(*share).item() for share in shares) / 2
        self.assertLessEqual(abs(found[0] / eager - 1), 1e-6, name)


def add_cases():
    for name in fp32_exports.CASES:
        setattr(Cases, "test_" + name, lambda self, name=name: self.check(name))


add_cases()


class SameGraph(ExportTest):
    """What else runs the model runs the graph with the same types."""

    def setUp(self):
        self.rotary = self.model("rotary")

    def test_the_start_says_once_what_was_done(self):
        _, text = self.losses(self.rotary, **BF16)
        self.assertEqual(re.findall(r"fp32 export: .*", text), 
                         ["fp32 export: 12 casts follow bf16, 2 inputs of operators are cast where types differ"])

    def test_stages_recomputation_and_fp16(self):
        for half in (BF16, {"fp16": {"enabled": True, "initial_scale_power": 8}}):
            expected, _ = self.losses(self.rotary, **half)
            for changes in ({"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}},
                            {"activation_checkpointing": {"enabled": True}}):
                found, _ = self.losses(self.rotary, **half, **changes)
                self.assertEqual(found, expected, str(changes))

    def test_a_program_s_run_is_a_pool_s(self):
        folder = self.env.run_dir()
        outcome = harness.run(self.env.command(self.rotary, self.data, config_of(**BF16), folder, 2, STEPS))
        self.assertEqual(outcome.code, 0, str(outcome))
        found, text = self.losses(self.rotary, **BF16)
        self.assertEqual([row["loss"] for row in harness.read_metrics(folder)], found)
        said = re.findall(r"fp32 export: .*", text)
        self.assertTrue(said)
        self.assertEqual(re.findall(r"fp32 export: .*", outcome.text), said)

    def test_verify(self):
        rows, text = self.run_with(self.rotary, extra=("--verify", "3"), **BF16)
        self.assertEqual(len(rows), STEPS, text)

    def test_evaluation(self):
        evaluated = []
        for model in (self.rotary, self.model("rotary", torch.bfloat16)):
            data = {"shuffle": False, "eval": self.data}
            rows, _ = self.run_with(model, data=data, train={"eval_interval": 3}, **BF16)
            evaluated.append([row["eval_loss"] for row in rows if "eval_loss" in row])
        self.assertTrue(evaluated[0])
        self.assertEqual(*evaluated)

    def test_resume_is_bit_by_bit(self):
        expected, _ = self.losses(self.rotary, **BF16)
        config, folder = config_of(checkpoint={"at_end": True}, **BF16), self.env.run_dir()
        self.env.train(self.rotary, self.data, config, 2, 3, folder)
        rows, _ = self.env.train(self.rotary, self.data, config, 2, STEPS, folder, ("--resume", "auto"))
        self.assertEqual([row["loss"] for row in rows], expected)

    def test_an_export_in_bf16_runs_in_fp16_with_a_warning(self):
        model = self.model("cast_back", torch.bfloat16)
        losses, text = self.losses(model, fp16={"enabled": True, "initial_scale_power": 8})
        self.assertIn("casts follow fp16. fp16 ends at 65504", text)
        expected, _ = self.losses(self.model("cast_back"))
        self.assertLessEqual(max(abs(a / b - 1) for a, b in zip(losses, expected)), 0.02)


if __name__ == "__main__":
    unittest.main(verbosity=2)
