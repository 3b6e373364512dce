#!/usr/bin/env python3
"""Promise 1: a run's numbers are those of one process. Every case trains on CPU ranks, most in the grid's pools (pooled.py),
and compares metrics.jsonl, step by step, with one_process.py (plain PyTorch) or with another run.

Run by ctest (label oracle); by hand: DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/oracle/test_oracle.py [Case...]."""
import json
import math
import os
import sys
import unittest

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import one_bit_process  # noqa: E402
import one_process  # noqa: E402
import harness  # noqa: E402
from pooled import PooledTest  # noqa: E402
from harness import base_config  # noqa: E402

BOUND = 1e-5  # relative, fp32: what the order of additions may change
STEPS = 15  # the data end after 7 and 14 steps
HALF = 10  # where a run stops that is resumed: between the ends of the data, after a warm-up


def zero(stage, **changes):
    """The models here are small: at stage 3 they would stay whole by default."""
    return {"stage": stage, **({"stage3_param_persistence_threshold": 0} if stage == 3 else {}), **changes}


def yaml_of(value, indent=0):
    """Block-style YAML of a config made of mappings, lists of scalars, and scalars."""
    pad, lines = "  " * indent, []
    for key, entry in value.items():
        if isinstance(entry, dict):
            lines += [f"{pad}{key}:", yaml_of(entry, indent + 1)]
        elif isinstance(entry, list):
            lines += [f"{pad}{key}:"] + [f"{pad}  - {json.dumps(item)}" for item in entry]
        elif isinstance(entry, str):
            lines.append(f"{pad}{key}: {entry}")
        else:
            lines.append(f"{pad}{key}: {json.dumps(entry)}")
    return "\n".join(lines)


class OracleTest(harness.TrainingTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.oracles, cls.runs = {}, {}

    def oracle(self, kind, form, config, shares, steps=STEPS):
        key = (kind, form, json.dumps({**config, "zero_optimization": None}, sort_keys=True), shares, steps)
        if key not in self.oracles:
            self.oracles[key] = one_process.train(self.env.model(kind, form), self.env.data(kind), config, steps, shares)
        return self.oracles[key]

    def run_of(self, kind, form, config, world, steps=STEPS):
        """A run, made once for all cases that compare with it."""
        key = (kind, form, json.dumps(config, sort_keys=True), world, steps)
        if key not in self.runs:
            self.runs[key] = self.env.train(self.env.model(kind, form), self.env.data(kind), config, world, steps)
        return self.runs[key]

    def assert_close(self, expected, actual, bound=None, keys=("loss", "lr", "grad_norm"), what=""):
        self.assertEqual([row["step"] for row in expected], [row["step"] for row in actual], what)
        bound = BOUND if bound is None else bound
        for want, got in zip(expected, actual):
            for key in keys:
                difference = abs(want[key] - got[key]) / max(abs(want[key]), 1e-30) if want[key] != got[key] else 0.0
                if not difference <= bound:
                    self.fail(f"{what} step {want['step']}: {key} is {got[key]!r}, expected {want[key]!r} "
                              f"(relative difference {difference:.2e}, bound {bound:.0e})")

    def assert_same(self, expected, actual, what=""):
        self.assert_close(expected, actual, 0.0, what=what)

    def check(self, kind, config, world=2, form="script", bound=None, steps=STEPS):
        shares = world if kind == "convnet" or bound is not None else 1
        expected = self.oracle(kind, form, config, shares, steps)
        actual, _ = self.run_of(kind, form, config, world, steps)
        self.assertTrue(all(math.isfinite(row["loss"]) for row in actual))
        self.assert_close(expected, actual, bound, what=f"{kind} {form} world {world} {json.dumps(config)}")
        return actual


class Programs(PooledTest, OracleTest):
    """Whole programs: what reaches the ranks by files, options and the launcher. Every world, stage, accumulation and model
    by itself: tests/grid."""

    def train(self, kind, config, world, form="script", steps=STEPS, extra=()):
        """Metrics and run folder of programs; `config` may be a file."""
        folder = self.env.run_dir()
        outcome = harness.run(self.env.command(self.env.model(kind, form), self.env.data(kind), config, folder, world, steps,
                                               extra))
        self.assertEqual(outcome.code, 0, str(outcome))
        return harness.read_metrics(folder), folder

    def test_loss_rate_and_norm_of_every_step(self):
        for kind, world, stage, form, accumulation, ending in (("mlp", 2, 1, "trace", 3, ".json"),
                                                               ("gpt", 3, 3, "script", 1, ".yaml"),
                                                               ("convnet", 4, 2, "script", 3, ".json")):
            with self.subTest(kind=kind):
                config = base_config(kind, gradient_accumulation_steps=accumulation, zero_optimization=zero(stage))
                config["optimizer"]["params"]["betas"] = [0.9, 0.98]
                text = yaml_of(config) + "\n" if ending == ".yaml" else None
                rows, _ = self.train(kind, self.env.config(config, ending, text), world, form)
                expected = self.oracle(kind, form, config, world if kind == "convnet" else 1)
                self.assert_close(expected, rows, what=kind)
                self.assertGreater(max(row["grad_norm"] for row in rows), config["gradient_clipping"], "nothing was clipped")

    def test_gathers_inside_a_host_change_no_bit(self):
        """The program makes the groups. Later micro steps are gathered inside the host in forward, too."""
        plain, inside = (base_config("gpt", gradient_accumulation_steps=3, zero_optimization=zero(3, **changes))
                         for changes in ({}, {"zero_hpz_partition_size": 2}))
        self.assert_same(self.run_of("gpt", "script", plain, 4)[0], self.train("gpt", inside, 4)[0])

    def test_resume_from_a_named_checkpoint_in_a_new_directory(self):
        config = base_config("mlp", zero_optimization={"stage": 1})
        whole, _ = self.run_of("mlp", "script", config, 2)
        _, folder = self.train("mlp", config, 2, steps=HALF)
        rows, _ = self.train("mlp", config, 2, extra=["--resume", os.path.join(folder, "checkpoints")])
        self.assert_same(whole[HALF:], rows)


class ZeroPlusPlus(PooledTest, OracleTest):
    """Gathers inside a host change nothing; what travels as integers stays near what does not."""

    def drift(self, **changes):
        """The largest relative difference of a loss to that of plain stage 3, over all steps."""
        plain, _ = self.run_of("gpt", "script", base_config("gpt", zero_optimization=zero(3)), 2)
        # Norms stay whole, as in any real model: beside their ones a block's small weights would be lost.
        changes["stage3_param_persistence_threshold"] = 500
        actual, _ = self.run_of("gpt", "script", base_config("gpt", zero_optimization=zero(3, **changes)), 2)
        drift = max(abs(want["loss"] - got["loss"]) / want["loss"] for want, got in zip(plain, actual))
        self.assertGreater(drift, 0.0, "integers must have travelled")
        return drift

    def test_weights_in_8_bits(self):
        # A weight is off by at most 1/254 of the largest one of its block.
        self.assertLess(self.drift(zero_quantized_weights=True), 1e-2)

    def test_gradients_in_4_bits(self):
        # A gradient is off by at most 1/14 of the largest one of its block, before the moments average it.
        self.assertLess(self.drift(zero_quantized_gradients=True), 5e-2)
        self.assertLess(self.drift(zero_quantized_gradients=True, zeropp_loco_param={"err_beta": 0.8}), 5e-2)


class Graphs(PooledTest, OracleTest):
    """On GPUs: tests/gpu/test_step_graph.py."""

    def test_cpu_ranks_have_no_graphs_and_say_so(self):
        config = base_config("mlp", graph_harvesting=True)
        outcome = self.env.run(self.env.model("mlp"), self.env.data("mlp"), config, self.env.run_dir(), 2, 3)
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual(outcome.text.count("graph_harvesting has no effect: it needs a GPU"), 1)


class Recipes(PooledTest, OracleTest):
    """Optimizers, schedules, sample order and precision, each against the oracle."""

    def test_adam_with_weight_decay_in_the_gradient(self):
        self.check("mlp", base_config("mlp", optimizer={"type": "Adam", "params": {
            "lr": 3e-3, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1, "adam_w_mode": False}}))

    def test_adam_is_decoupled_by_default(self):
        self.check("mlp", base_config("mlp", optimizer={"type": "Adam", "params": {"lr": 3e-3, "weight_decay": 0.1}},
                                      zero_optimization={"stage": 1}), world=3)

    def test_sgd_with_momentum_and_nesterov(self):
        for stage, params in ((0, {"lr": 0.05}), (1, {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}),
                              (1, {"lr": 0.05, "momentum": 0.9, "nesterov": True})):
            with self.subTest(stage=stage, params=params):
                self.check("mlp", base_config("mlp", optimizer={"type": "SGD", "params": params},
                                              zero_optimization=zero(stage)), world=3)

    def test_the_other_optimizers(self):
        """Each at a stage and world where it must ask other ranks for what it needs, and in the plain case."""
        sections = [
            {"type": "AdamW", "params": {"lr": 3e-3, "weight_decay": 0.1, "amsgrad": True}},
            {"type": "Lion", "params": {"lr": 3e-4, "betas": [0.9, 0.99], "weight_decay": 0.1}},
            {"type": "Lamb", "params": {"lr": 5e-3, "weight_decay": 0.01}},
        ]
        for section in sections:
            for world, stage in ((1, 0), (3, 1)):
                with self.subTest(optimizer=section["type"], world=world, stage=stage):
                    self.check("gpt", base_config("gpt", optimizer=section, zero_optimization={"stage": stage}), world)

    def test_adagrad(self):
        """Its first step is the sign of the gradient, so that a gradient of nearly 0 may send its weight the other way:
        losses agree as for the others, norms (of all gradients, the smallest included) to 1e-3."""
        config = base_config("gpt", optimizer={"type": "Adagrad", "params": {"lr": 5e-3, "weight_decay": 0.01}})
        oracle = self.oracle("gpt", "script", config, 1)
        for world, stage in ((1, 0), (3, 1)):
            with self.subTest(world=world, stage=stage):
                rows, _ = self.run_of("gpt", "script", {**config, "zero_optimization": {"stage": stage}}, world)
                self.assert_close(oracle, rows, keys=("loss", "lr"), what=f"adagrad world {world}")
                self.assert_close(oracle, rows, 1e-3, ["grad_norm"], f"adagrad world {world}")

    def test_muon(self):
        """Its iteration rounds to bf16 after every product, so that a last bit of a gradient becomes 2^-8 of an update, and
        training spreads that. How far is asked of the oracle itself: it runs again from weights changed by a last bit."""
        config = base_config("gpt", optimizer={"type": "Muon", "params": {"lr": 8e-3, "weight_decay": 0.01}})
        del config["scheduler"]  # it learns from the first step on
        oracle = self.oracle("gpt", "script", config, 1)
        nudged = one_process.train(self.nudged(self.env.model("gpt")), self.env.data("gpt"), config, STEPS)
        for world, stage in ((1, 0), (2, 1), (3, 1), (2, 3)):
            with self.subTest(world=world, stage=stage):
                rows, _ = self.run_of("gpt", "script", {**config, "zero_optimization": {"stage": stage}}, world)
                for key in ("loss", "grad_norm"):
                    drift = max(abs(a[key] - b[key]) / a[key] for a, b in zip(oracle, nudged))
                    self.assertLess(drift, 1e-2)
                    self.assert_close(oracle, rows, 4 * drift, [key], f"muon world {world}")
                self.assert_close(oracle, rows, 1e-12, ["lr"], f"muon world {world}")
                self.assertLess(rows[-1]["loss"], 0.9 * rows[0]["loss"])

    def nudged(self, model):
        path = model[:-3] + "-nudged.pt"
        module = torch.jit.load(model)
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for param in module.parameters():
                param.mul_(1 + 1e-7 * torch.randn(param.shape, generator=generator).sign())
        module.save(path)
        return path

    def test_one_bit_adam(self):
        """Two ranks that average gradients for 6 steps, and then exchange one bit for each element of the momentum."""
        config = base_config("mlp", gradient_accumulation_steps=3, optimizer={"type": "OneBitAdam", "params": {
            "lr": 2e-3, "weight_decay": 0.01, "eps": 1e-3, "freeze_step": 6}})
        expected = one_process.train(self.env.model("mlp", "script"), self.env.data("mlp"), config, STEPS, 2,
                                     one_bit_process.Trainer)
        rows, _ = self.run_of("mlp", "script", config, 2)
        self.assert_close(expected, rows, what="1-bit Adam")

    def test_biases_and_norms_without_weight_decay(self):
        optimizer = {"type": "AdamW", "params": {"lr": 3e-3, "weight_decay": 0.5}, "no_decay": "auto"}
        for world, stage in ((1, 0), (3, 1)):
            with self.subTest(world=world, stage=stage):
                config = base_config("gpt", optimizer=optimizer, zero_optimization={"stage": stage})
                rows = self.check("gpt", config, world)
                decayed = self.oracle("gpt", "script", base_config("gpt", optimizer={**optimizer, "no_decay": None}), 1)
                self.assertNotEqual(decayed[-1]["loss"], rows[-1]["loss"], "weight decay must make a difference")

    def test_no_optimizer_section_means_adamw_at_1e_3(self):
        config = base_config("mlp")
        del config["optimizer"], config["scheduler"]
        self.check("mlp", config)

    def test_schedules(self):
        schedules = [
            {"type": "WarmupLR", "params": {"warmup_min_lr": 1e-4, "warmup_max_lr": 4e-3, "warmup_num_steps": 8}},
            {"type": "WarmupDecayLR", "params": {"total_num_steps": 16, "warmup_num_steps": 4, "warmup_max_lr": 3e-3}},
            {"type": "WarmupDecayLR", "params": {"total_num_steps": 20, "warmup_num_steps": 1,
                                                 "warmup_max_lr": 3e-3, "warmup_type": "linear"}},
            {"type": "WarmupCosineLR", "params": {"total_num_steps": 20, "warmup_num_steps": 4,
                                                  "warmup_min_ratio": 0.1, "cos_min_ratio": 0.01}},
            {"type": "WarmupCosineLR", "params": {"total_num_steps": 16, "warmup_num_steps": 3, "warmup_type": "linear"}},
            {"type": "LRRangeTest", "params": {"lr_range_test_min_lr": 1e-4, "lr_range_test_step_size": 3,
                                               "lr_range_test_step_rate": 3.0, "lr_range_test_staircase": True}},
            {"type": "OneCycle", "params": {"cycle_min_lr": 1e-4, "cycle_max_lr": 5e-3, "cycle_first_step_size": 5,
                                            "cycle_second_step_size": 8, "decay_step_size": 2, "decay_lr_rate": 0.5}},
        ]
        for schedule in schedules:
            with self.subTest(schedule=schedule):
                self.check("mlp", base_config("mlp", scheduler=schedule), steps=20)

    def test_without_clipping(self):
        self.check("gpt", base_config("gpt", gradient_clipping=0.0))

    def test_a_remainder_is_joined_with_the_next_epoch_unless_dropped(self):
        self.check("mlp", base_config("mlp", data={"shuffle": False, "drop_last": False}))

    def test_small_buckets(self):
        zero = {"stage": 1, "reduce_bucket_size": 100, "allgather_bucket_size": 100}
        self.check("gpt", base_config("gpt", zero_optimization=zero), world=3)

    def test_forward_that_returns_loss_and_logits(self):
        model = self.env.model("gpt", "script", "--returns", "loss_logits")
        expected = one_process.train(model, self.env.data("gpt"), base_config("gpt"), STEPS)
        actual, _ = self.env.train(model, self.env.data("gpt"), base_config("gpt"), 2, STEPS)
        self.assert_close(expected, actual)

    def test_bf16(self):
        """Against an oracle that computes in bf16 and keeps fp32 masters too. bf16 has 8 bits of mantissa: the ranks add
        gradients in bf16 (as DeepSpeed does) while the oracle adds in fp32, and forward rounds at every operation, so
        rounding of 2^-9 a value remains: losses within 1 %, norms within 5 %, rates exact."""
        for world, stage in ((1, 1), (2, 0), (3, 1)):
            with self.subTest(world=world, stage=stage):
                config = base_config("gpt", bf16={"enabled": True}, zero_optimization=zero(stage))
                expected = self.oracle("gpt", "script", config, world)
                actual, _ = self.run_of("gpt", "script", config, world)
                self.assert_close(expected, actual, 1e-2, ["loss"], f"bf16 world {world}")
                self.assert_close(expected, actual, 5e-2, ["grad_norm"], f"bf16 world {world}")
                self.assert_close(expected, actual, 1e-12, ["lr"], f"bf16 world {world}")
                exact = self.oracle("gpt", "script", base_config("gpt"), 1)
                self.assertNotEqual([r["loss"] for r in exact], [r["loss"] for r in actual], "bf16 was not in effect")


class EquivalentRuns(PooledTest, OracleTest):
    """Two runs that must be one: bit by bit."""

    def test_a_run_repeats_itself(self):
        for world, stage in ((2, 0), (3, 1)):
            config = base_config("gpt", zero_optimization=zero(stage))
            first, _ = self.run_of("gpt", "script", config, world)
            again, _ = self.env.train(self.env.model("gpt"), self.env.data("gpt"), config, world, STEPS)
            self.assert_same(first, again, f"world {world}")

    def test_a_shuffled_run_repeats_itself_and_does_not_depend_on_the_world(self):
        config = base_config("mlp", data={"shuffle": True, "seed": 3})
        runs = [self.env.train(self.env.model("mlp"), self.env.data("mlp"), config, world, STEPS)[0]
                for world in (1, 2, 3, 2)]
        self.assert_same(runs[1], runs[3])
        self.assert_close(runs[0], runs[1])
        self.assert_close(runs[0], runs[2])
        ordered, _ = self.run_of("mlp", "script", base_config("mlp"), 2)
        self.assertNotEqual(ordered[0]["loss"], runs[1][0]["loss"], "the samples were not shuffled")

    def test_data_formats_agree(self):
        config = base_config("gpt")
        first, _ = self.run_of("gpt", "script", config, 2)
        numpy.savez(self.env.path("gpt.npz"), **{name: array.numpy() for name, array in harness.samples_of("gpt").items()})
        again, _ = self.env.train(self.env.model("gpt"), self.env.path("gpt.npz"), config, 2, STEPS)
        self.assert_same(first, again, "npz")

    def test_a_token_stream_is_cut_as_tokenize_cuts_it(self):
        text, model = self.env.path("text"), self.env.model("gpt")
        with open(text, "wb") as file:
            file.write(bytes((i * i // 5 + i // 3) % 64 for i in range(5000)))
        for name, options in (("t.safetensors", ["--seq", "12"]), ("t.bin", []), ("t.npy", ["--dtype", "uint8"])):
            done = harness.run([sys.executable, os.path.join(harness.ROOT, "tools/tokenize"), text, self.env.path(name),
                                 *options])
            self.assertEqual(done.code, 0, str(done))
        config = base_config("gpt")
        samples, _ = self.env.train(model, self.env.path("t.safetensors"), config, 2, STEPS)
        for name, dtype in (("t.bin", "uint16"), ("t.npy", "uint8")):
            stream = {"shuffle": False, "format": "tokens", "seq_len": 12, "dtype": dtype}
            rows, _ = self.env.train(model, self.env.path(name), base_config("gpt", data=stream), 2, STEPS)
            self.assert_same(samples, rows, name)

    def test_stages_0_and_1_agree(self):
        runs = [self.run_of("gpt", "script", base_config("gpt", zero_optimization=zero(stage)), 2)[0]
                for stage in (0, 1)]
        self.assert_close(runs[0], runs[1])

    def test_an_empty_model_is_filled_alike_in_every_world(self):
        model = self.env.model("gpt", "script", "--empty")
        runs = {}
        for world, stage in ((1, 0), (2, 1), (3, 1), (3, 0)):
            config = base_config("gpt", init={"seed": 5, "std": 0.02}, zero_optimization=zero(stage),
                                 optimizer={"type": "AdamW", "params": {"lr": 3e-3, "weight_decay": 0.01}})
            del config["scheduler"]  # it learns from the first step on
            runs[world, stage], _ = self.env.train(model, self.env.data("gpt"), config, world, STEPS)
        self.assertAlmostEqual(runs[1, 0][0]["loss"], math.log(64), delta=0.1)
        self.assertLess(runs[1, 0][-1]["loss"], 3.5)
        for key in runs:
            self.assert_close(runs[1, 0], runs[key], what=str(key))


class Resume(PooledTest, OracleTest):
    """A run that was stopped and resumed is the uninterrupted one."""

    def stopped_and_resumed(self, kind, config, world, other_config=None, other_world=None):
        model, data = self.env.model(kind), self.env.data(kind)
        half, folder = self.env.train(model, data, config, world, HALF)
        self.assertEqual([row["step"] for row in half], list(range(1, HALF + 1)))
        rows, _ = self.env.train(model, data, other_config or config, other_world or world, STEPS, folder,
                                  ["--resume", "auto"])
        return rows

    def test_bit_by_bit_at_the_same_world(self):
        for kind, world, stage, accumulation in (("gpt", 2, 0, 1), ("gpt", 2, 1, 3), ("mlp", 3, 1, 1), ("gpt", 1, 0, 1)):
            with self.subTest(kind=kind, world=world, stage=stage):
                config = base_config(kind, zero_optimization={"stage": stage}, gradient_accumulation_steps=accumulation)
                whole, _ = self.run_of(kind, "script", config, world)
                self.assert_same(whole, self.stopped_and_resumed(kind, config, world), kind)

    def test_with_momentum_shuffling_and_bf16(self):
        config = base_config("gpt", bf16={"enabled": True}, data={"shuffle": True, "seed": 1},
                             optimizer={"type": "SGD", "params": {"lr": 0.02, "momentum": 0.9}},
                             zero_optimization={"stage": 1})
        whole, _ = self.run_of("gpt", "script", config, 2)
        self.assert_same(whole, self.stopped_and_resumed("gpt", config, 2))

    def test_with_muon_and_groups_at_another_world(self):
        config = base_config("gpt", optimizer={"type": "Muon", "params": {"lr": 5e-3, "weight_decay": 0.1},
                                               "no_decay": "auto"}, zero_optimization={"stage": 1})
        whole, _ = self.run_of("gpt", "script", config, 2)
        self.assert_same(whole, self.stopped_and_resumed("gpt", config, 2))
        resumed = self.stopped_and_resumed("gpt", config, 2, other_world=3)
        self.assert_close(whole, resumed, 1e-3, ["loss"])

    def test_batch_norm_statistics_travel(self):
        config = base_config("convnet")
        whole, folder = self.run_of("convnet", "script", config, 2)
        model, data = self.env.model("convnet"), self.env.data("convnet")
        _, other = self.env.train(model, data, config, 2, HALF)
        rows, _ = self.env.train(model, data, config, 2, STEPS, other, ["--resume", "auto"])
        self.assert_same(whole, rows)
        first, second = (one_process.tensor_file.read(self.env.consolidate(where, name + ".safetensors"))
                         for where, name in ((folder, "whole"), (other, "resumed")))
        self.assertEqual(sorted(first), sorted(second))
        for name in first:
            self.assertTrue(torch.equal(first[name], second[name]), name)
        self.assertFalse(torch.equal(first["blocks.0.norm.running_mean"], torch.zeros(6)))

    def test_within_the_bound_at_another_world_and_stage(self):
        for first, then in (((2, 0), (3, 1)), ((3, 1), (1, 0)), ((4, 1), (2, 1))):
            with self.subTest(first=first, then=then):
                configs = [base_config("gpt", zero_optimization=zero(stage)) for _, stage in (first, then)]
                whole, _ = self.run_of("gpt", "script", configs[0], first[0])
                rows = self.stopped_and_resumed("gpt", configs[0], first[0], configs[1], then[0])
                self.assert_same(whole[:HALF], rows[:HALF])
                self.assert_close(whole, rows, what=f"{first} then {then}")

    def test_resume_auto_without_a_checkpoint_starts_from_scratch(self):
        config = base_config("mlp")
        whole, _ = self.run_of("mlp", "script", config, 2)
        rows, _ = self.env.train(self.env.model("mlp"), self.env.data("mlp"), config, 2, STEPS,
                                 extra=["--resume", "auto"])
        self.assert_same(whole, rows)


class Consolidated(PooledTest, OracleTest):
    """Whole weights from a sharded checkpoint give PyTorch the loss that the run has at its next step."""

    def check_weights(self, kind, world, stage, form="script", changes=None):
        config = base_config(kind, zero_optimization={"stage": stage}, **(changes or {}))
        model, data = self.env.model(kind, form), self.env.data(kind)
        whole, _ = self.run_of(kind, form, config, world)
        _, folder = self.env.train(model, data, config, world, HALF)
        shares = world if kind == "convnet" else 1

        def loss_of(weights):
            return one_process.loss_at(weights, data, config, HALF + 1, shares)

        def loss_with(state):
            weights = torch.jit.load(model)
            missing = weights.load_state_dict(state, strict=False).missing_keys
            self.assertEqual([name for name in missing if "num_batches_tracked" not in name], [])
            return loss_of(weights)

        tag = f"{kind}{world}{stage}{form}"
        losses = {
            ".pt": loss_of(torch.jit.load(self.env.consolidate(folder, tag + ".pt"))),
            "--state_dict": loss_with(torch.load(self.env.consolidate(folder, tag + "-state.pt", "--state_dict"),
                                                 weights_only=True)),
            "safetensors": loss_with(one_process.tensor_file.read(self.env.consolidate(folder, tag + ".safetensors"))),
        }
        for name, loss in losses.items():
            self.assertLessEqual(abs(loss - whole[HALF]["loss"]) / whole[HALF]["loss"], BOUND, f"{tag} {name}: {losses}")

    def test_gpt(self):
        self.check_weights("gpt", 3, 1)

    def test_mlp_traced(self):
        self.check_weights("mlp", 2, 0, "trace")

    def test_convnet(self):
        self.check_weights("convnet", 2, 1)

    def test_an_empty_model_that_was_trained_is_a_whole_model(self):
        config = base_config("gpt", init={"seed": 5, "std": 0.02})
        model, data = self.env.model("gpt", "script", "--empty"), self.env.data("gpt")
        rows, folder = self.env.train(model, data, config, 2, HALF)
        weights = torch.jit.load(self.env.consolidate(folder, "filled.pt"))
        more, _ = self.env.train(model, data, config, 2, HALF + 1, folder, ["--resume", "auto"])
        loss = one_process.loss_at(weights, data, config, HALF + 1)
        self.assertLessEqual(abs(loss - more[HALF]["loss"]) / loss, BOUND)


if __name__ == "__main__":
    unittest.main(verbosity=2)
