#!/usr/bin/env python3
"""Half precision, loss scaling, autocast: runs on CPU ranks, most in the pools of pooled.py, against half_process.py (plain
PyTorch).

The scale, the overflows and the rates must be the oracle's at every step. Losses: weights are rounded to fp16 (11 bits)
or results to bf16 (8 bits), and a last bit of difference in an fp32 master flips such a rounding now and then, so two
right runs part by about 2^-11 (2^-8) of a weight, not more: losses within 2e-3 (1e-2), norms within ten times that.
Run by ctest (label oracle); by hand as test_oracle.py."""
import os
import sys
import unittest

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import half_process  # noqa: E402
import tensor_file  # noqa: E402
import harness  # noqa: E402
from pooled import PooledTest  # noqa: E402
from test_oracle import OracleTest, one_process  # noqa: E402
from harness import BATCH, base_config  # noqa: E402

STEPS = 29  # the last one has the samples of the first
SHORT = 12  # where no scale has to fall first
HIGH = {"initial_scale_power": 32, "min_loss_scale": 2**30}  # at its minimum after two halvings


def half_config(kind, stage=1, fp16=None, **changes):
    section = {"enabled": True, "initial_scale_power": 24, "loss_scale_window": 6, "hysteresis": 2, **(fp16 or {})}
    return base_config(kind, fp16=section, zero_optimization={"stage": stage}, communication_data_type="fp32", **changes)


class PrecisionTest(PooledTest, OracleTest):
    def check(self, kind, config, world=1, bound=2e-3, form="script", steps=STEPS):
        model, data = self.env.model(kind, form), self.env.data(kind)
        expected = half_process.train(model, data, config, steps, world)
        actual, folder = self.env.train(model, data, config, world, steps)
        what = f"{kind} world {world} {config}"
        for want, got in zip(expected, actual):
            self.assertEqual((want["loss_scale"], want["overflow"]), (got["loss_scale"], got["overflow"]),
                             f"{what} step {want['step']}")
        self.assert_close(expected, actual, 1e-12, ["lr"], what)
        self.assert_close(expected, actual, bound, ["loss"], what)
        applied = [(want, got) for want, got in zip(expected, actual) if not want["overflow"]]
        self.assertGreater(len(applied), steps // 4, "nearly every step was skipped")
        self.assert_close(*map(list, zip(*applied)), 10 * bound, ["grad_norm"], what)
        self.assertTrue(all(row["grad_norm"] is None for row in actual if row["overflow"]), what)
        self.assertLess(actual[-1]["loss"], actual[0]["loss"], "it must have learnt something")
        return actual, folder


class LossScaling(PrecisionTest):
    def test_a_model_that_overflows_at_first_then_trains(self):
        for kind, world, stage, accumulation in (("gpt", 1, 0, 1), ("gpt", 2, 3, 1), ("mlp", 2, 1, 3), ("mlp", 2, 2, 3)):
            with self.subTest(kind=kind, world=world, stage=stage, accumulation=accumulation):
                rows, _ = self.check(kind, half_config(kind, stage, gradient_accumulation_steps=accumulation), world)
                skipped = [row["overflow"] for row in rows]
                self.assertTrue(all(skipped[:5]) and not all(skipped))
                scales = [row["loss_scale"] for row in rows]
                self.assertEqual(scales[:3], [2.0**24] * (2 if stage else 1) + [2.0**(23 - i) for i in range(1 if stage else 2)])
                self.assertTrue(any(b > a for a, b in zip(scales, scales[1:])), "the scale never grew")
                # Skipped steps leave the schedule where it is: both first updates of a warm-up use its minimum.
                rates = [row["lr"] for row in rows]
                first = skipped.index(False)
                self.assertEqual(rates[:first + 2], [rates[0]] * (first + 2))
                self.assertGreater(rates[-1], 0.0)

    def test_a_sum_between_ranks_overflows_only_where_a_part_does(self):
        """Without communication_data_type fp16 gradients travel as fp16, divided by the ranks before they are added."""
        for world, stage in ((2, 0), (3, 1), (4, 3)):
            with self.subTest(world=world, stage=stage):
                config = half_config("gpt", stage)
                exact, _ = self.env.train(self.env.model("gpt"), self.env.data("gpt"), config, world, 18)
                del config["communication_data_type"]
                rows, _ = self.env.train(self.env.model("gpt"), self.env.data("gpt"), config, world, 18)
                self.assertEqual([(row["overflow"], row["loss_scale"]) for row in rows],
                                 [(row["overflow"], row["loss_scale"]) for row in exact])
                self.assertNotEqual(rows[-1]["loss"], exact[-1]["loss"])
                self.assert_close(exact, rows, 2e-3, ["loss"])

    def test_a_traced_model(self):
        self.check("gpt", half_config("gpt"), form="trace")

    def test_consecutive_hysteresis(self):
        self.check("mlp", half_config("mlp", fp16={"consecutive_hysteresis": True, "hysteresis": 3, "loss_scale_window": 3,
                                                   "initial_scale_power": 20}))

    def test_a_static_scale(self):
        rows, _ = self.check("gpt", half_config("gpt", fp16={"loss_scale": 512}), 2)
        self.assertEqual({row["loss_scale"] for row in rows}, {512.0})
        rows, _ = self.env.train(self.env.model("mlp"), self.env.data("mlp"),
                                  half_config("mlp", fp16={"loss_scale": 1e30}), 1, 5)
        self.assertEqual([row["overflow"] for row in rows], [True] * 5)

    def test_at_the_minimum_the_run_ends_with_a_diagnosis(self):
        for stage, steps in ((1, 4), (0, 3)):  # stage 0 has no budget
            with self.subTest(stage=stage):
                folder = self.env.run_dir()
                config = half_config("gpt", stage, HIGH)
                outcome = self.env.run(self.env.model("gpt"), self.env.data("gpt"), config, folder, 2)
                self.assertEqual(outcome.code, 76, str(outcome))
                self.assertIn("the loss scale is at its minimum 1073741824:", outcome.text)
                self.assertIn(f"{steps} steps in a row overflowed, from step 1 to step {steps}", outcome.text)
                self.assertIn("0 steps were applied before", outcome.text)
                rows = harness.read_metrics(folder)
                self.assertEqual([row["overflow"] for row in rows], [True] * steps)
                self.assertEqual(harness.job_processes(folder), [])

    def test_resumed_in_the_middle_of_the_scales_life(self):
        """Bit by bit: at step 4 the scale is still falling, later the budget is spent again or the window half full."""
        for kind, world, stage, at in (("gpt", 2, 1, 4), ("gpt", 1, 0, 15), ("mlp", 2, 3, 14)):
            with self.subTest(kind=kind, world=world, stage=stage, at=at):
                config = half_config(kind, stage)
                model, data = self.env.model(kind), self.env.data(kind)
                whole, _ = self.env.train(model, data, config, world, STEPS)
                _, folder = self.env.train(model, data, config, world, at)
                rows, _ = self.env.train(model, data, config, world, STEPS, folder, ["--resume", "auto"])
                keys = ("step", "loss", "lr", "grad_norm", "loss_scale", "overflow")
                self.assertEqual([[row[key] for key in keys] for row in whole], [[row[key] for key in keys] for row in rows])
                self.assertTrue(whole[at - 1]["overflow"] or whole[at]["loss_scale"] == whole[at - 1]["loss_scale"])

    def test_a_checkpoint_goes_from_one_precision_to_another(self):
        model, data = self.env.model("gpt"), self.env.data("gpt")
        plain = base_config("gpt", zero_optimization={"stage": 1})
        exact, _ = self.env.train(model, data, plain, 2, 16)
        for first, then in ((plain, half_config("gpt", fp16={"initial_scale_power": 8})),
                            (half_config("gpt", fp16={"initial_scale_power": 8}), plain)):
            _, folder = self.env.train(model, data, first, 2, 8)
            rows, _ = self.env.train(model, data, then, 2, 16, folder, ["--resume", "auto"])
            self.assertFalse(any(row["overflow"] for row in rows))
            self.assert_close(exact, rows, 1e-12, ["lr"])
            self.assert_close(exact, rows, 2e-2, ["loss"])


class Programs(PrecisionTest):
    """What stands on the console, and the exit code."""

    def test_overflow_messages_match_deepspeeds(self):
        config = half_config("mlp", fp16={"initial_scale_power": 32})
        outcome = harness.run(self.env.command(self.env.model("mlp"), self.env.data("mlp"), config, self.env.run_dir(), 2, 4))
        self.assertEqual(outcome.code, 0, str(outcome))
        attempt = "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 4294967296"
        self.assertIn(attempt + ", but hysteresis is 2. Reducing hysteresis to 1\n", outcome.out)
        self.assertIn(attempt + ", reducing to 2147483648\n", outcome.out)
        self.assertEqual(outcome.out.count("OVERFLOW!"), 4)

    def test_at_the_minimum_the_run_ends_with_76_and_no_process_is_left(self):
        config = half_config("gpt", 1, HIGH)
        outcome = harness.run(self.env.command(self.env.model("gpt"), self.env.data("gpt"), config, self.env.run_dir(), 2))
        self.assertEqual(outcome.code, 76, str(outcome))
        self.assertIn("the loss scale is at its minimum 1073741824:", outcome.text)
        self.assertEqual(harness.job_processes(self.env.folder), [])

    def test_autocast_trains_as_in_the_pool(self):
        """Which of a process's settings of TorchScript hold is the program's to see to."""
        config = base_config("gpt", torch_autocast={"enabled": True, "dtype": "bfloat16"}, zero_optimization={"stage": 1})
        run_dir = self.env.run_dir()
        outcome = harness.run(self.env.command(self.env.model("gpt"), self.env.data("gpt"), config, run_dir, 2, SHORT))
        self.assertEqual(outcome.code, 0, str(outcome))
        pooled, _ = self.env.train(self.env.model("gpt"), self.env.data("gpt"), config, 2, SHORT)
        self.assert_same(pooled, harness.read_metrics(run_dir))


class Types(PrecisionTest):
    def test_batch_norms_stay_as_the_model_has_them(self):
        config = half_config("convnet", fp16={"initial_scale_power": 10})
        _, folder = self.check("convnet", config, 2)
        weights = one_process.tensor_file.read(self.env.consolidate(folder, "half.safetensors"))
        mean = weights["blocks.0.norm.running_mean"]
        self.assertEqual(str(mean.dtype), "torch.float32")
        self.assertFalse((mean == mean.half().float()).all(), "averaged in 16 bits")

    def test_labels_of_a_named_loss_are_not_rounded(self):
        """1013.7 is 1016 in bf16; 70000 is no number in fp16."""
        path, data = self.env.path("linear.pt"), self.env.path("prices.safetensors")
        torch.manual_seed(0)
        torch.jit.script(torch.nn.Linear(6, 1)).save(path)
        x = harness.samples_of("mlp")["x"]
        for dtype, level in ((torch.bfloat16, 1013.7), (torch.float16, 70000.0)):
            y = level + x.sum(1, keepdim=True)
            tensor_file.write(data, {"x": x, "y": y})
            half = {"bf16": {"enabled": True}} if dtype == torch.bfloat16 else {"fp16": {"enabled": True, "loss_scale": 1e-3}}
            rows, _ = self.env.train(path, data, base_config("mlp", loss="mse", **half), 2, 1)
            outputs = torch.jit.load(path).to(dtype)(x[:BATCH].to(dtype)).float()
            self.assertAlmostEqual(rows[0]["loss"] / torch.nn.functional.mse_loss(outputs, y[:BATCH]).item(), 1, 5)

    def test_gradients_summed_and_sent_in_each_type(self):
        """fp16 and bf16 sums round each addition: 11 and 8 bits."""
        reference, _ = self.env.train(self.env.model("gpt"), self.env.data("gpt"), base_config("gpt"), 2, SHORT)
        for accumulate, send, bound in (("fp16", "fp16", 5e-3), ("fp32", "bf16", 1e-2), ("bf16", "fp32", 1e-2),
                                        ("fp16", "fp32", 5e-3)):
            with self.subTest(accumulate=accumulate, send=send):
                config = base_config("gpt", gradient_accumulation_steps=3, communication_data_type=send,
                                     data_types={"grad_accum_dtype": accumulate}, zero_optimization={"stage": 1})
                rows, _ = self.env.train(self.env.model("gpt"), self.env.data("gpt"), config, 2, SHORT)
                self.assert_close(reference, rows, bound, ["loss"])
                self.assertNotEqual([row["loss"] for row in reference], [row["loss"] for row in rows])

    def test_auto_is_fp32_on_cpu_ranks(self):
        reference, _ = self.env.train(self.env.model("mlp"), self.env.data("mlp"), base_config("mlp"), 1, 5)
        config = base_config("mlp", fp16={"enabled": "auto"}, bf16={"enabled": "auto"})
        rows, _ = self.env.train(self.env.model("mlp"), self.env.data("mlp"), config, 1, 5)
        self.assert_same(reference, rows)

    def test_tf32_has_no_effect_on_cpu_ranks_and_says_so(self):
        reference, _ = self.env.train(self.env.model("mlp"), self.env.data("mlp"), base_config("mlp"), 1, 5)
        folder = self.env.run_dir()
        outcome = self.env.run(self.env.model("mlp"), self.env.data("mlp"),
                                                 base_config("mlp", tf32=True), folder, 1, 5)
        self.assertIn("'tf32' has no effect on CPU ranks", outcome.text)
        self.assert_same(reference, harness.read_metrics(folder))


class Autocast(PrecisionTest):
    def differs_from_fp32(self, kind, rows):
        exact = half_process.train(self.env.model(kind), self.env.data(kind), base_config(kind), 3, 1)
        self.assertNotEqual([row["loss"] for row in exact], [row["loss"] for row in rows[:3]], "autocast had no effect")

    def test_torch_autocast(self):
        for kind, dtype, world, stage, form in (("gpt", "bfloat16", 2, 1, "script"), ("gpt", "float16", 1, 0, "trace"),
                                                ("convnet", "bfloat16", 1, 1, "script"), ("mlp", "float16", 2, 0, "trace")):
            with self.subTest(kind=kind, dtype=dtype, world=world, stage=stage, form=form):
                config = base_config(kind, torch_autocast={"enabled": True, "dtype": dtype},
                                     zero_optimization={"stage": stage})
                rows, _ = self.check(kind, config, world, 1e-2 if dtype == "bfloat16" else 2e-3, form, SHORT)
                self.assertEqual(rows[0]["loss_scale"], 65536.0 if dtype == "float16" else 1.0)
                self.differs_from_fp32(kind, rows)

    def test_apexs_levels(self):
        for level, kinds in (("O0", ("gpt",)), ("O1", ("gpt", "convnet")), ("O2", ("convnet",)), ("O3", ("gpt", "convnet"))):
            for kind in kinds:
                with self.subTest(level=level, kind=kind):
                    amp = {"enabled": True, "opt_level": level}
                    if level == "O3":
                        amp["loss_scale"] = 128.0
                    config = base_config(kind, amp=amp, communication_data_type="fp32")
                    rows, _ = self.check(kind, config, 2 if kind == "gpt" else 1, 1e-5 if level == "O0" else 2e-3,
                                         steps=SHORT)
                    if level != "O0":
                        self.differs_from_fp32(kind, rows)


class Ends(PrecisionTest):
    def test_non_finite_values_end_a_run_without_a_scale(self):
        for section in ({}, {"bf16": {"enabled": True}}, {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}}):
            with self.subTest(section=section):
                config = base_config("mlp", optimizer={"type": "SGD", "params": {"lr": 1e38}}, gradient_clipping=0.0,
                                     **section)
                config.pop("scheduler")
                outcome = self.env.run(self.env.model("mlp"), self.env.data("mlp"), config,
                                                         self.env.run_dir(), 1, 20)
                self.assertEqual(outcome.code, 76, str(outcome))
                self.assertIn("not finite", outcome.text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
