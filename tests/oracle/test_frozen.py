#!/usr/bin/env python3
"""Models of which only a part is trained (LoRA, a frozen backbone). At stage 3 the frozen parameters are sharded as well:
their way through checkpoints, worlds and stages, in 8 bits, in evaluation, and the memory that they take. The oracle is
plain PyTorch (one_process.py) or the model file; that every step's numbers are right, the grid and test_model_cases show.

By hand: DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/oracle/test_frozen.py [Case.test...]"""
import collections
import copy
import glob
import os
import sys
import unittest
from typing import List

import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import model_cases  # noqa: E402
import one_process  # noqa: E402
import tensor_file  # noqa: E402
import test_model_cases  # noqa: E402
import harness  # noqa: E402

MAX_RANKS = 4
STAGE_3 = {"stage": 3, "stage3_param_persistence_threshold": 0}


class FrozenTest(test_model_cases.CaseTest):
    def config(self, zero=None, **changes):
        return test_model_cases.config_of("lora", zero_optimization=zero or STAGE_3, **changes)

    def train(self, config, world=3, steps=6, folder=None, extra=(), model=None):
        """(metrics, run folder, all text)"""
        world = min(world, MAX_RANKS)
        folder = folder or self.env.run_dir()
        outcome = self.env.run(model or self.model("lora"), self.data("lora"), config, folder, world, steps, extra)
        self.assertEqual(outcome.code, 0, str(outcome))
        return harness.read_metrics(folder), folder, outcome.text

    def frozen_of_file(self, path):
        return {name: value.detach() for name, value in torch.jit.load(path).named_parameters() if not value.requires_grad}

    def consolidated(self, folder):
        return tensor_file.read(self.env.consolidate(folder, "whole.safetensors"))

    def assert_frozen(self, folder, path):
        """The consolidated checkpoint has the file's frozen values bit by bit, in the file's type."""
        whole = self.consolidated(folder)
        for name, value in self.frozen_of_file(path).items():
            self.assertEqual(whole[name].dtype, value.dtype, name)
            self.assertTrue(torch.equal(whole[name], value), name)


class Checkpoints(FrozenTest):
    KEPT = {"checkpoint": {"at_end": True}}

    def test_every_rank_saves_its_part_and_nothing_twice(self):
        """In bf16 too: what the run computes with is shorter than what it saves."""
        for precision in ({}, {"bf16": {"enabled": True}}):
            _, folder, _ = self.train(self.config(**self.KEPT, **precision))
            sizes, savers = collections.Counter(), set()
            for path in glob.glob(os.path.join(folder, "checkpoints/step_*/*.safetensors")):
                for key, tensor in tensor_file.read(path).items():
                    if key.startswith("frozen@"):
                        sizes[key.split("/", 1)[1]] += tensor.numel()
                        savers.add(os.path.basename(path))
            self.assertEqual(sizes, {name: value.numel() for name, value in self.frozen_of_file(self.model("lora")).items()})
            self.assertEqual(len(savers), min(3, MAX_RANKS), savers)
            self.assert_frozen(folder, self.model("lora"))

    def test_through_worlds_and_stages(self):
        config, folder = self.config(), self.env.run_dir()
        for i, (world, stage) in enumerate([(3, 3), (2, 1), (4, 3), (1, 3), (2, 3), (3, 0), (2, 3)]):
            zero = {**STAGE_3, "stage": stage}
            rows, _, _ = self.train(self.config(zero, **self.KEPT), world, 3 * (i + 1), folder, ["--resume", "auto"])
        expected = one_process.train(lambda: model_cases.eager("lora"), self.data("lora"), config, len(rows), 1)
        self.assert_close(expected, rows, test_model_cases.BOUND, "lora")
        self.assert_frozen(folder, self.model("lora"))

    def test_a_checkpoint_s_frozen_weights_win_over_the_file_s(self):
        """And the replica of --verify has them, too."""
        other = model_cases.export("lora", self.env.path("other.pt"), seed=9)
        whole, _, _ = self.train(self.config(), steps=8)
        for stage in (1, 3):
            zero = {**STAGE_3, "stage": stage}
            _, folder, _ = self.train(self.config(zero, **self.KEPT), steps=4)
            rows, _, text = self.train(self.config(zero, **self.KEPT), 2, 8, folder, ["--resume", "auto", "--verify", "3"],
                                       model=other)
            self.assertIn("--verify: 3 steps agree", text)
            self.assert_close(whole, rows, test_model_cases.BOUND, f"stage {stage}")
            self.assert_frozen(folder, self.model("lora"))


class EightBits(FrozenTest):
    def test_frozen_weights_in_8_bits(self):
        """A weight is off by at most 1/254 of the largest one of its block; the checkpoint has the exact ones."""
        if MAX_RANKS == 1:
            self.skipTest("on one rank nothing is sharded, and nothing is rounded")
        exact, _, _ = self.train(self.config())
        zero = {**STAGE_3, "zero_quantized_nontrainable_weights": True}
        rows, folder, text = self.train(self.config(zero, checkpoint={"at_end": True}), extra=["--verify", "4"])
        drift = max(abs(want["loss"] - got["loss"]) / want["loss"] for want, got in zip(exact, rows))
        self.assertGreater(drift, 0.0, "weights must rest as integers")
        self.assertLess(drift, 1e-2)
        self.assertIn("--verify: 4 steps agree", text)
        self.assert_frozen(folder, self.model("lora"))


class InsideAHost(FrozenTest):
    """With programs, which make the groups of a host's ranks."""

    @classmethod
    def make_env(cls):
        return harness.TrainingEnv()

    def test_gathers_inside_a_host_change_no_bit(self):
        """Of the second micro step on, in forward as well."""
        for more in ({}, {"zero_quantized_nontrainable_weights": True}):
            plain, inside = [self.train(self.config({**STAGE_3, **more, **changes}), 4)[0]
                             for changes in ({}, {"zero_hpz_partition_size": 2})]
            self.assertEqual([(row["loss"], row["grad_norm"]) for row in plain],
                             [(row["loss"], row["grad_norm"]) for row in inside])


class Evaluation(FrozenTest):
    def test_a_model_without_a_trained_parameter(self):
        """On all ranks together, none of which has a whole layer."""
        model = model_cases.build("lora").requires_grad_(False)
        path = self.env.path("all_frozen.pt")
        torch.jit.script(model).save(path)
        folder = self.env.run_dir()
        config = {"zero_optimization": STAGE_3, "train_micro_batch_size_per_gpu": 4}
        done = self.env.run(path, self.data("lora"), config, folder, min(3, MAX_RANKS), None, ["--eval_only"])
        self.assertEqual(done.code, 0, str(done))
        arrays = tensor_file.read(self.data("lora"))
        with torch.no_grad():
            expected = model(arrays["ids"], arrays["labels"]).item()
        got = harness.read_metrics(folder)[-1]["eval_loss"]
        self.assertLessEqual(abs(got - expected) / expected, test_model_cases.BOUND)


class Wide(nn.Module):
    """Frozen matrices of 16 M elements in all, with an adapter each."""

    def __init__(self, blocks: int = 16, width: int = 1024):
        super().__init__()
        self.blocks = nn.ModuleList([model_cases.Adapted(width, width) for _ in range(blocks)])
        self.width = width

    def forward(self, x, y):
        h = x.expand(-1, self.width)
        for block in self.blocks:
            h = h + torch.tanh(block(h))
        return ((h.mean(1, keepdim=True) - y) ** 2).mean()


class Memory(FrozenTest):
    """Of fresh programs."""

    @classmethod
    def make_env(cls):
        return harness.TrainingEnv()

    def test_a_rank_reads_and_holds_its_part(self):
        """Of 16 M frozen elements on 4 ranks; in bf16, so that what is held is no page of the file."""
        model, data = self.env.path("wide.pt"), self.env.path("wide.safetensors")
        torch.jit.script(Wide()).save(model)
        tensor_file.write(data, {"x": torch.randn(64, 1), "y": torch.randn(64, 1)})
        most = {}
        for stage in (2, 3):
            config = {"train_batch_size": 8, "bf16": {"enabled": True}, "checkpoint": {"at_end": False},
                      "zero_optimization": {**STAGE_3, "stage": stage, "stage3_prefetch_bucket_size": 0,
                                            "stage3_max_live_parameters": 2_000_000}}
            rows, _ = self.env.train(model, data, config, 4, 3)
            most[stage] = rows[-1]["host_mem_bytes"]
        file_and_copy = 16 * 2**20 * (4 + 2)
        self.assertGreater(most[2] - most[3], 0.5 * file_and_copy, most)  # 3/4 of it, less the slots of two blocks


class Keeping(nn.Module):
    """A frozen block that keeps what it made of a trained layer in an attribute, which the model reads."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(model_cases.WIDTH, model_cases.WIDTH)
        self.blocks = nn.ModuleList([KeepingBlock(), KeepingBlock()]).requires_grad_(False)

    def forward(self, x, y):
        h = self.first(x)
        kept: List[torch.Tensor] = []
        for block in self.blocks:
            h = block(h)
            kept.append(block.kept)
        return ((kept[0].sum(1, keepdim=True) + h.sum(1, keepdim=True) - y) ** 2).mean()


class KeepingBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(model_cases.WIDTH, model_cases.WIDTH)
        self.kept = torch.zeros(1)

    def forward(self, x):
        self.kept = torch.tanh(self.layer(x))
        return x + self.kept


class HiddenWays(FrozenTest):
    def test_what_leaves_by_an_attribute_is_refused_at_stage_3_only(self):
        model, data = self.env.path("keeping.pt"), self.env.path("keeping.safetensors")
        torch.jit.script(Keeping()).save(model)
        tensor_file.write(data, model_cases.regression(64))
        for stage in (2, 3):
            config = {"train_batch_size": 8, "checkpoint": {"at_end": False}, "zero_optimization": {**STAGE_3, "stage": stage}}
            outcome = self.env.run(model, data, config, self.env.run_dir(), 2, 3)
            self.assertEqual(outcome.code, 65 if stage == 3 else 0, str(outcome))
            if stage == 3:
                self.assertIn("unit 'blocks.0' has frozen parameters", outcome.text)
                self.assertIn("ZeRO stage 2", outcome.text)


class SlopeOfFrozen(nn.Module):
    """Asks for gradients of what frozen blocks make, so that the loss comes to them by a second way."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([model_cases.Block(), model_cases.Block()]).requires_grad_(False)
        self.gain = nn.Parameter(torch.ones(model_cases.WIDTH))

    def forward(self, x, y):
        x = x * self.gain
        h = x
        for block in self.blocks:
            h = block(h)
        slope = torch.autograd.grad([h.sum()], [x], create_graph=True)[0]
        assert slope is not None
        return (h.sum(1, keepdim=True) - y).square().mean() + slope.square().mean()


class FewSlots(FrozenTest):
    def test_gradients_of_gradients_find_every_block_in_its_place_or_say_so(self):
        """With few slots it went on with another block's values there."""
        torch.manual_seed(0)
        module, model, data = SlopeOfFrozen(), self.env.path("slope.pt"), self.data("plain")
        torch.jit.script(module).save(model)
        config = self.config()
        expected = one_process.train(lambda: copy.deepcopy(module), data, config, 3, 2)
        rows, _ = self.env.train(model, data, config, 2, 3)
        self.assert_close(expected, rows, test_model_cases.BOUND, "slope")
        config = self.config({**STAGE_3, "stage3_prefetch_bucket_size": 0, "stage3_max_live_parameters": 0})
        outcome = self.env.run(model, data, config, self.env.run_dir(), 2, 3)
        self.assertEqual(outcome.code, 65, str(outcome))
        self.assertIn("unit 'blocks.0' is needed for backward in memory where unit 'blocks.1' is still running", outcome.text)
        self.assertIn("stage3_max_live_parameters", outcome.text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
