#!/usr/bin/env python3
"""Traces of transformers' models, cut into stages without a word from the user: between their layers one hidden state is
carried and nothing else, and loss and gradients of the stages are those of the whole model, bit for bit, and PyTorch's.
Skipped where transformers and peft are not installed (scripts/setup --tests does that).

By hand: DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/oracle/test_stages.py [Stages.test_gpt2...]"""
import json
import os
import sys
import unittest

import torch

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), folder) for folder in ("../support/python",)]
import harness  # noqa: E402
import hugging_face  # noqa: E402
import model_packages  # noqa: E402
import tensor_file  # noqa: E402

ROWS = 4
# A parameter of three uses: the stages add them in another order.
REORDERED = {"t5": {"model.shared.weight"}}


@unittest.skipIf(model_packages.WHY_NOT, model_packages.WHY_NOT)
class Stages(harness.TrainingTest):
    def staged(self, name, num_stages, *more):
        masked, folder = hugging_face.is_masked(name), hugging_face.shared_folder() or self.env.folder
        data, model = self.env.path("data.safetensors"), hugging_face.export(name, masked, "fp32", folder)
        tensor_file.write(data, hugging_face.samples(name, masked, ROWS))
        program = os.path.join(os.environ["DSLAUNCH_BIN"], "staged_model")
        outcome = harness.run([program, model, data, str(num_stages), *more])
        self.assertEqual(outcome.code, 0, str(outcome))
        return json.loads(outcome.out)

    def check(self, name, num_stages, *units, carried=1, dtype="fp32"):
        found = self.staged(name, num_stages, "parameters", dtype, *units)
        self.assertEqual(found["loss"], found["whole_loss"])
        different = {each for each, is_equal in found["gradients"].items() if not is_equal}
        self.assertLessEqual(different, REORDERED.get(name, set()))
        self.assertEqual(found["num_gradients"], len(found["gradients"]))
        stages = found["plan"]["stages"]
        self.assertEqual(len(stages), num_stages)
        for stage in stages[1:]:
            self.assertLessEqual(len(stage["carried"]), carried, stage)
            self.assertTrue(carried > 1 or not stage["carried"][0]["number"], stage)
        held = [each for stage in stages for each in stage["parameters"]]
        tied = sum(len(each["stages"]) - 1 for each in found["plan"]["tied"])
        self.assertEqual(len(held) - tied, len(set(held)))
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

    def test_encoder_and_decoder(self):
        """The stacks are the units where nothing else is named; the encoder's output is carried past the decoder's."""
        self.check("t5", 2, carried=4)
        self.check("t5", 3, "T5Block", carried=6)


def add_cases():
    for name in ("gpt2", "llama", "bert", "gpt_neox", "qwen2", "mistral", "opt"):
        for num_stages in (2, 3):
            setattr(Stages, f"test_{name}_in_{num_stages}_stages",
                    lambda self, name=name, num_stages=num_stages: self.check_with_pytorch(name, num_stages))


add_cases()


if __name__ == "__main__":
    unittest.main(verbosity=2)
