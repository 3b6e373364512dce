#!/usr/bin/env python3
"""Runs on this machine's GPUs against plain PyTorch on the CPU: loss, rate and gradient norm of 50 steps, ZeRO 0 to 3, on
1 to all GPUs; resume bit by bit; bf16. Run by ctest (label gpu) where there is a GPU; elsewhere it ends with 77 (skipped).

    DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/gpu/test_gpu_runs.py"""
import json
import os
import re
import sys
import unittest

import torch

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, "oracle"), os.path.join(TESTS, "support/python")]
import gpu_harness
import one_process
import harness
from harness import base_config

STEPS = 50
# fp32 on both sides, but matrix products add up in another order than on a CPU, and 50 steps carry that on.
BOUND = 1e-4
WORLDS = [world for world in (1, 2, 4, 8) if world <= gpu_harness.MAX_RANKS]


class GpuRuns(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.env = gpu_harness.GpuTrainingEnv()
        harness.environment = gpu_harness.environment  # the GPUs stay visible

    @classmethod
    def tearDownClass(cls):
        cls.env.close()

    def compare(self, expected, actual, bound, what):
        self.assertEqual(len(expected), len(actual), what)
        worst = 0.0
        for want, got in zip(expected, actual):
            for key in ("loss", "lr", "grad_norm"):
                worst = max(worst, abs(want[key] - got[key]) / max(abs(want[key]), 1e-30))
        print(f"{what}: largest relative difference {worst:.1e}", flush=True)
        self.assertLessEqual(worst, bound, what)

    def test_numbers_are_those_of_one_process(self):
        for kind in ("mlp", "gpt", "convnet"):
            form = "trace" if kind == "mlp" else "script"
            for world in WORLDS:
                shares = world if kind == "convnet" else 1
                for stage in (0, 1, 2, 3):
                    # Small models would stay whole at stage 3 by default.
                    config = base_config(kind, zero_optimization={
                        "stage": stage, "overlap_comm": stage != 1, "stage3_param_persistence_threshold": 0,
                        "stage3_prefetch_bucket_size": 20000, "stage3_max_reuse_distance": 0})
                    if harness.BATCH % world:
                        config["train_batch_size"] = 32
                    expected = one_process.train(self.env.model(kind, form), self.env.data(kind), config, STEPS, shares)
                    actual, _ = self.env.train(self.env.model(kind, form), self.env.data(kind), config, world, STEPS)
                    with self.subTest(kind=kind, world=world, stage=stage):
                        self.compare(expected, actual, BOUND, f"{kind} {form}, {world} GPUs, stage {stage}")

    def test_pipelines_have_the_numbers_of_one_process(self):
        for world in (world for world in WORLDS if world > 1):
            for schedule in ("1f1b", "gpipe", "zb-h1"):
                config = base_config("gpt", zero_optimization={"stage": 1}, gradient_clipping=0.5,
                                     gradient_accumulation_steps=3, pipeline={"stages": 2, "schedule": schedule})
                model, data = self.env.model("gpt"), self.env.data("gpt")
                expected = one_process.train(model, data, config, STEPS)
                actual, _ = self.env.train(model, data, config, world, STEPS)
                with self.subTest(world=world, schedule=schedule):
                    self.compare(expected, actual, BOUND, f"gpt, {world} GPUs, 2 stages, {schedule}")

    def test_a_resumed_run_equals_the_uninterrupted_one_bit_by_bit(self):
        for world in WORLDS[:2]:
            config = base_config("gpt", zero_optimization={"stage": 1}, deterministic=True)
            model, data = self.env.model("gpt"), self.env.data("gpt")
            whole, _ = self.env.train(model, data, config, world, 30)
            _, folder = self.env.train(model, data, config, world, 12)
            resumed, _ = self.env.train(model, data, config, world, 30, folder, ("--resume", "auto"))
            self.compare(whole, resumed, 0.0, f"resume on {world} GPUs")

    def test_page_locked_memory_changes_no_bit(self):
        model, data = self.env.model("gpt"), self.env.data("gpt")
        for world in WORLDS[:2]:
            for stage, accumulation, parameters in ((2, 1, False), (2, 2, False), (3, 1, True), (3, 2, True)):
                def rows(pin_memory):
                    where = {"device": "cpu", "pin_memory": pin_memory}
                    zero = {"stage": stage, "stage3_param_persistence_threshold": 0, "overlap_comm": accumulation == 1,
                            "offload_optimizer": where, **({"offload_param": where} if parameters else {})}
                    config = base_config("gpt", zero_optimization=zero, deterministic=True, bf16={"enabled": True},
                                         gradient_accumulation_steps=accumulation, gradient_clipping=0.1)
                    return self.env.train(model, data, config, world, 20)[0]

                with self.subTest(world=world, stage=stage, accumulation=accumulation):
                    self.compare(rows(True), rows(False), 0.0, f"staged copies on {world} GPUs, stage {stage}")

    def test_updates_in_backward_change_no_bit(self):
        model, data = self.env.model("gpt"), self.env.data("gpt")
        for world in WORLDS[:2]:
            for stage, accumulation, more in ((1, 1, {}), (1, 2, {}), (2, 1, {}), (2, 2, {"overlap_comm": False}),
                                              (3, 1, {}), (3, 2, {"offload_param": {"device": "cpu", "pin_memory": True}})):
                for recomputes in (False, True):
                    def rows(clipping):  # with a clipping that clips nothing, updates begin after backward
                        zero = {"stage": stage, "stage3_param_persistence_threshold": 0, "overlap_comm": True,
                                "offload_optimizer": {"device": "cpu", "pin_memory": True}, **more}
                        config = base_config("gpt", zero_optimization=zero, deterministic=True, bf16={"enabled": True},
                                             gradient_accumulation_steps=accumulation, gradient_clipping=clipping,
                                             activation_checkpointing={"enabled": recomputes})
                        return self.env.train(model, data, config, world, 20)[0]

                    with self.subTest(world=world, stage=stage, accumulation=accumulation, recomputes=recomputes):
                        self.compare(rows(1e9), rows(0), 0.0, f"updates in backward on {world} GPUs, stage {stage}")

    def test_optimizer_state_in_files_changes_no_bit(self):
        model, data = self.env.model("gpt"), self.env.data("gpt")
        for world in WORLDS[:2]:
            for stage, accumulation, more in ((1, 1, {}), (2, 2, {"pipeline_read": True, "pipeline_write": True}),
                                              (3, 1, {"pipeline_read": True, "buffer_count": 2}),
                                              (3, 2, {"pipeline_write": True, "delayed_update": True})):
                def rows(**offload):
                    zero = {"stage": stage, "stage3_param_persistence_threshold": 0, "overlap_comm": stage > 1,
                            "offload_optimizer": {"pin_memory": True, **offload}}
                    config = base_config("gpt", zero_optimization=zero, deterministic=True, bf16={"enabled": True},
                                         gradient_accumulation_steps=accumulation, gradient_clipping=0.1)
                    return self.env.train(model, data, config, world, 20)[0]

                delay = {key: value for key, value in more.items() if key == "delayed_update"}
                with self.subTest(world=world, stage=stage, accumulation=accumulation):
                    self.compare(rows(device="cpu", **delay), rows(device="nvme", nvme_path=self.env.folder, **more), 0.0,
                                 f"state in files on {world} GPUs, stage {stage}")

    def test_parameters_in_files_change_no_bit(self):
        model, data = self.env.model("gpt"), self.env.data("gpt")
        in_files = {"device": "nvme", "nvme_path": self.env.folder}
        for world in WORLDS[:2]:
            for accumulation, state, keys in (
                    (1, {}, {"buffer_count": 1}), (2, {"device": "cpu", "pin_memory": True}, {"buffer_size": 4096}),
                    (1, {"device": "cpu", "delayed_update": True}, {}), (2, in_files, {"max_in_cpu": 20000}),
                    (1, {**in_files, "delayed_update": True, "pipeline_read": True, "pipeline_write": True}, {})):
                def rows(**parameters):
                    where = state if parameters or "delayed_update" in state else {}
                    zero = {"stage": 3, "stage3_param_persistence_threshold": 0, "overlap_comm": accumulation == 1,
                            "offload_optimizer": where, "offload_param": parameters}
                    config = base_config("gpt", zero_optimization=zero, deterministic=True, bf16={"enabled": True},
                                         gradient_accumulation_steps=accumulation, gradient_clipping=0.1)
                    return self.env.train(model, data, config, world, 20)[0]

                with self.subTest(world=world, state=state, keys=keys):
                    # Updates on the host and on the device may differ in the last bit.
                    want = rows(device="cpu") if state else rows()
                    self.compare(want, rows(**{**in_files, "max_in_cpu": 0, **keys}), 0.0,
                                 f"parameters in files on {world} GPUs")
        self.assertEqual([name for name in os.listdir(self.env.folder) if name.startswith("dslaunch-offload")], [])

    def test_bf16_stays_near_fp32(self):
        config = base_config("gpt", zero_optimization={"stage": 1})
        model, data = self.env.model("gpt"), self.env.data("gpt")
        exact, _ = self.env.train(model, data, config, 1, STEPS)
        rounded, _ = self.env.train(model, data, {**config, "bf16": {"enabled": True}}, WORLDS[-1], STEPS)
        # bf16 keeps 8 bits: single losses differ in the third digit.
        for want, got in zip(exact, rounded):
            self.assertLess(abs(want["loss"] - got["loss"]) / want["loss"], 2e-2, json.dumps(got))

    def test_bench_step_shows_kernels_regions_and_capture(self):
        config = self.env.config(base_config("gpt", bf16={"enabled": True}, graph_harvesting=True))
        outcome = harness.run([harness.program("dslaunch"), "bench", "step", self.env.model("gpt"), "--data",
                               self.env.data("gpt"), "--config", config, "--against", "torch", "--json"])
        self.assertEqual(outcome.code, 0, str(outcome))
        report = json.loads(outcome.out)
        own, torchscript = report["dslaunch"], report["eager_torchscript"]
        self.assertTrue(own["captured"], own["why_not_captured"])
        self.assertFalse(torchscript["captured"])
        self.assertEqual(torchscript["fused_regions"], [])
        self.assertEqual(torchscript["replaced_operators"], {})
        self.assertGreater(len(own["fused_regions"]), 0)
        self.assertGreater(own["region_kernels"], 0)
        self.assertEqual(own["flops_per_step"]["forward"], torchscript["flops_per_step"]["forward"])
        for side in (own, torchscript):
            profile = side["profile"]
            self.assertEqual(profile["of"], "kernels")
            self.assertGreater(len(profile["work"]), 5)
            self.assertGreater(profile["wall_ms"], 0.9 * profile["busy_ms"])
            self.assertEqual(profile["work"], sorted(profile["work"], key=lambda row: -row["ms"]))
            self.assertGreaterEqual(side["peak_reserved_bytes"], side["peak_allocated_bytes"])
        self.assertTrue(any("region" in row["name"] for row in own["profile"]["work"]))
        self.assertFalse(any("region" in row["name"] for row in torchscript["profile"]["work"]))
        self.assertGreater(report["matrix_product_flops_per_second"], 1e13)

    def test_algorithms_of_products_are_measured_once_on_a_host(self):
        model = self.env.model("gpt", "script", "--width", "2048", "--heads", "8")
        config = self.env.config(base_config("gpt", bf16={"enabled": True}))
        measured = re.compile(r"algorithms of (\d+) products measured")

        def train(cache, *settings):
            run_dir = self.env.run_dir()
            command = [*self.env.command(model, self.env.data("gpt"), config, run_dir, 1, 8, settings), "--timings"]
            outcome = harness.run(command, env=gpu_harness.environment(XDG_CACHE_HOME=cache))
            self.assertEqual(outcome.code, 0, str(outcome))
            found = measured.search(outcome.out + outcome.err)
            return harness.read_metrics(run_dir), int(found[1]) if found else 0

        cache = self.env.path("cache")
        first, num_measured = train(cache)
        self.assertGreaterEqual(num_measured, 8)
        again, num_measured_again = train(cache)
        self.assertEqual(num_measured_again, 0)
        by_pytorch, num_measured_off = train(cache, "--set", "kernels.gemm_autotuning=false")
        self.assertEqual(num_measured_off, 0)
        # bf16; embeddings add their gradients in another order each time.
        self.compare(by_pytorch, first, 2e-2, "measured algorithms of products beside PyTorch's")
        self.compare(by_pytorch, again, 2e-2, "algorithms of products from the cache")
        kernels = os.path.join(cache, "dslaunch/kernels")
        for name in os.listdir(kernels):
            os.truncate(os.path.join(kernels, name), os.path.getsize(os.path.join(kernels, name)) // 2)
        rows, num_measured = train(cache)
        self.assertGreaterEqual(num_measured, 8)
        self.compare(by_pytorch, rows, 2e-2, "with a damaged cache")
        nowhere = self.env.path("a_file")
        with open(nowhere, "w"):
            pass
        rows, num_measured = train(nowhere)  # no cache can be there
        self.assertGreaterEqual(num_measured, 8)
        self.compare(by_pytorch, rows, 2e-2, "without a cache")

    def test_selective_recomputation_changes_no_bit(self):
        model, data = self.env.model("gpt", "script", "--width", "512", "--heads", "8"), self.env.data("gpt")
        for changes in ({}, {"graph_harvesting": True}, {"activation_checkpointing": {"enabled": True}}):
            rows = {}
            for selective in (False, True):
                section = {**changes.get("activation_checkpointing", {}), "selective": selective}
                config = base_config("gpt", deterministic=True, **{**changes, "activation_checkpointing": section})
                rows[selective] = self.env.train(model, data, config, 1, 8)[0]
            self.compare(rows[False], rows[True], 0, f"selective recomputation, {changes}")

    def test_fp16_scales_skips_and_resumes(self):
        """The scale starts far too high: the first steps are skipped on the device, one step before the host knows. Rates
        and bias correction count the applied steps, and a resumed run is the uninterrupted one bit by bit."""
        keys = ("step", "loss", "lr", "grad_norm", "loss_scale", "overflow")
        for world, stage in ((1, 0), (WORLDS[-1], 1), (WORLDS[-1], 3)):
            config = base_config("gpt", zero_optimization={"stage": stage}, deterministic=True, fp16={
                "enabled": True, "initial_scale_power": 32, "loss_scale_window": 6})
            model, data = self.env.model("gpt"), self.env.data("gpt")
            with self.subTest(world=world, stage=stage):
                whole, _ = self.env.train(model, data, config, world, STEPS)
                skipped = [row["overflow"] for row in whole]
                scales = [row["loss_scale"] for row in whole]
                self.assertTrue(all(skipped[:10]) and skipped.count(False) > STEPS // 2, skipped)
                self.assertEqual(scales[:3], [2.0**32, 2.0**(32 if stage else 31), 2.0**(31 if stage else 30)])
                for k in range(len(skipped)):
                    self.assertAlmostEqual(whole[k]["lr"], one_process.learning_rate(config, skipped[:k].count(False) + 1), 12)
                self.assertLess(whole[-1]["loss"], whole[0]["loss"])
                for at in (5, 21):
                    _, folder = self.env.train(model, data, config, world, at)
                    resumed, _ = self.env.train(model, data, config, world, STEPS, folder, ("--resume", "auto"))
                    self.assertEqual([[row[key] for key in keys] for row in whole], [[row[key] for key in keys] for row in resumed])

    def test_sixteen_bits_by_autocast_and_apexs_levels_stay_near_fp32(self):
        config = base_config("gpt", zero_optimization={"stage": 1})
        model, data = self.env.model("gpt"), self.env.data("gpt")
        exact, _ = self.env.train(model, data, config, 1, STEPS)
        sections = [{"torch_autocast": {"enabled": True, "dtype": name}} for name in ("bfloat16", "float16")]
        sections += [{"amp": {"enabled": True, "opt_level": level}} for level in ("O1", "O2")]
        for section in sections:
            with self.subTest(section=section):
                rows, _ = self.env.train(model, data, {**config, **section}, WORLDS[-1], STEPS)
                self.assertNotEqual(rows[0]["loss"], exact[0]["loss"])
                # A skipped first step or two leaves the trajectory behind by as many.
                behind = sum(row["overflow"] for row in rows)
                self.assertLessEqual(behind, 3)
                self.assertLess(abs(rows[-1]["loss"] - exact[-1]["loss"]) / exact[-1]["loss"], 5e-2)


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print("skipped: no GPU on this machine")
        sys.exit(77)
    unittest.main(verbosity=2)
