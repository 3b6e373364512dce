#!/usr/bin/env python3
"""Models of transformers and peft that were exported in fp32 train in bf16 as their exports in bf16 do. Which casts
follow is read off the trace in bf16: there casts back have that type, and upcasts have fp32. The complete list of types
and stages: bench/hugging_face_types.py. Skipped where transformers and peft are not installed.

By hand, with PYTHONPATH=WHERE_TRANSFORMERS_IS:
DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/oracle/test_hugging_face.py"""
import importlib.util
import os
import re
import sys
import unittest

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import hugging_face  # noqa: E402
import tensor_file  # noqa: E402
import harness  # noqa: E402

STEPS = 6
BF16_STEP = 2.0**-7  # of a loss in bf16
# Casts that a trace in bf16 has and one in fp32 has not: T5's norms cast back only in half precision.
NOT_RECORDED = {"t5": 12}


def casts_to(dtype, traced):
    """Casts to a type, and new tensors of it, in a trace."""
    number = {torch.float32: 6, torch.bfloat16: 15}[dtype]
    text = str(traced.inlined_graph)
    constants = set(re.findall(rf"(%[\w.]+) : int = prim::Constant\[value={number}\]", text))
    found = re.findall(r"= aten::(?:to|zeros|ones|full|empty|zeros_like|new_zeros)\(([^)]*)\)", text)
    return sum(any(name in constants for name in re.findall(r"%[\w.]+", arguments)) for arguments in found)


@unittest.skipUnless(all(importlib.util.find_spec(name) for name in ("transformers", "peft")),
                     "transformers and peft are not installed")
class HuggingFace(harness.TrainingTest):
    def losses(self, name, masked, export, **changes):
        data = self.env.path(f"{name}-{masked}.safetensors")
        tensor_file.write(data, hugging_face.samples(name, masked, 3 * hugging_face.ROWS))
        config = {"train_batch_size": hugging_face.ROWS, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
                  "data": {"shuffle": False}, "checkpoint": {"at_end": False}, **changes}
        folder, model = self.env.run_dir(), hugging_face.export(name, masked, export, self.env.folder)
        outcome = harness.run(self.env.command(model, data, config, folder, 2, STEPS))
        self.assertEqual(outcome.code, 0, str(outcome))
        return [row["loss"] for row in harness.read_metrics(folder)], outcome.text

    def check(self, name, masked):
        changes = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3 if masked else 2}}
        found, text = self.losses(name, masked, "fp32", **changes)
        own, text_of_own = self.losses(name, masked, "bf16", **changes)
        self.assertNotIn("export:", text_of_own)
        exact, _ = self.losses(name, masked, "fp32")
        for got, of_own, want in zip(found, own, exact, strict=True):
            self.assertLessEqual(abs(got / of_own - 1), BF16_STEP, f"{name}: {found} {own}")
            self.assertLessEqual(abs(got / want - 1), 0.02, f"{name}: {found} {exact}")
        traced = torch.jit.load(hugging_face.export(name, masked, "bf16", self.env.folder))
        expected = casts_to(torch.bfloat16, traced) - NOT_RECORDED.get(name, 0)
        note = re.search(r"fp32 export: (\d+) casts follow bf16", text)
        self.assertEqual(int(note[1]) if note else 0, expected, name)


def add_cases():
    for i, name in enumerate(hugging_face.NAMES):
        masked = i % 2 == 0 and name != "vit"
        setattr(HuggingFace, "test_" + name, lambda self, name=name, masked=masked: self.check(name, masked))


add_cases()


if __name__ == "__main__":
    unittest.main(verbosity=2)
