#!/usr/bin/env python3
"""Steps that are recorded once and replayed ("graph_harvesting") against the same steps issued launch by launch: bit by bit,
on one and on all GPUs. Run by ctest (label gpu) where there is a GPU; elsewhere it ends with 77 (skipped).

    DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/gpu/test_step_graph.py [StepGraph.test_...]"""
import os
import random
import signal
import subprocess
import sys
import threading
import time
import unittest

import torch

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, "oracle"), os.path.join(TESTS, "support/python")]
import gpu_harness
import hugging_face
import model_cases
import model_packages
import tensor_file
import harness
from harness import base_config

ALL = 2 if gpu_harness.IS_SHARED else torch.cuda.device_count()
WORLDS = sorted({1, ALL})
RECORDED = "captured as a graph"
LAUNCH_BY_LAUNCH = "graph_harvesting has no effect: "
HOST_IS_SLOWER = "graph_harvesting: the device waits for the host, which takes "
DEVICE_IS_SLOWER = ": steps are not captured"
NUMBERS = ("step", "loss", "lr", "grad_norm", "loss_scale", "overflow", "eval_loss")
# Some units are gathered again for backward, the last ones stay gathered.
ZERO3 = {"stage": 3, "stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 20000,
         "stage3_max_reuse_distance": 20000}


class Skew(threading.Thread):
    """While in its `with`: holds one rank after another of the job in `folder` for a moment, so that others run ahead."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.num_holds, self.is_over = folder, 0, threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.join()

    def run(self):
        draw = random.Random(0)
        while not self.is_over.wait(0.001):
            for pid in harness.rank_processes(self.folder, draw.randrange(ALL)):
                self.hold(pid, draw.uniform(0, 0.02))

    def hold(self, pid, seconds):
        try:
            os.kill(pid, signal.SIGSTOP)
            self.is_over.wait(seconds)
            os.kill(pid, signal.SIGCONT)
            self.num_holds += 1
        except ProcessLookupError:
            pass


class Wide(torch.nn.Module):
    """Few kernels of milliseconds."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(64, 4096)
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(4096, 4096) for _ in range(8)])

    def forward(self, inputs, labels):
        values = self.first(inputs)
        for block in self.blocks:
            values = block(values).relu()
        return (values.mean(1) - labels).square().mean()


class StepGraph(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.env = gpu_harness.DeterministicTrainingEnv()
        cls.addClassCleanup(cls.env.close)
        harness.environment = gpu_harness.environment  # the GPUs stay visible

    def run_job(self, model, data, config, world, steps, graph, run_dir=None, extra=()):
        folder = run_dir or self.env.run_dir()
        command = self.env.command(model, data, {"graph_harvesting": graph, **config}, folder, world, steps,
                                    ("--verbose", *extra))
        outcome = harness.run(command, timeout=120)
        self.assertEqual(outcome.code, 0, str(outcome))
        rows = [{key: row.get(key) for key in NUMBERS} for row in harness.read_metrics(folder)]
        return rows, outcome.text, folder

    def assert_same(self, model, data, config, world, steps=24, extra=()):
        plain, _, _ = self.run_job(model, data, config, world, steps, False, extra=extra)
        rows, text, folder = self.run_job(model, data, config, world, steps, True, extra=extra)
        self.assertIn(RECORDED, text)
        self.assertNotIn(LAUNCH_BY_LAUNCH, text)
        self.assertEqual(plain, rows)
        return rows, folder

    def case(self, name):
        model, data = self.env.path(name + ".pt"), self.env.path(name + ".safetensors")
        if not os.path.exists(model):
            model_cases.export(name, model)
            tensor_file.write(data, model_cases.CASES[name].samples(4 * harness.BATCH))
        return model, data

    def check_stages(self, kind):
        for world in WORLDS:
            for stage in (0, 1, 2, 3):
                for accumulation in (1, 3):
                    config = base_config(kind, train_batch_size=24, gradient_accumulation_steps=accumulation,
                                         zero_optimization={**ZERO3, "stage": stage, "overlap_comm": stage in (1, 3)})
                    with self.subTest(world=world, stage=stage, accumulation=accumulation):
                        self.assert_same(self.env.model(kind), self.env.data(kind), config, world)

    def test_every_stage_with_accumulation_and_clipping_of_an_mlp(self):
        self.check_stages("mlp")

    def test_every_stage_with_accumulation_and_clipping_of_a_gpt(self):
        self.check_stages("gpt")

    def test_every_stage_with_accumulation_and_clipping_of_a_convnet(self):
        self.check_stages("convnet")

    def test_sixteen_bits_and_a_loss_scale_that_overflows(self):
        for world in WORLDS:
            for stage in (1, 3):
                for precision in ({"bf16": {"enabled": True}},
                                  {"fp16": {"enabled": True, "initial_scale_power": 32, "loss_scale_window": 6}}):
                    config = base_config("gpt", zero_optimization={**ZERO3, "stage": stage}, **precision)
                    with self.subTest(world=world, stage=stage, precision=list(precision)):
                        self.assert_same(self.env.model("gpt"), self.env.data("gpt"), config, world, 40)

    def test_dropout_has_the_same_random_numbers(self):
        for world in WORLDS:
            model, data = self.case("dropout")
            rows, _ = self.assert_same(model, data, base_config("mlp", zero_optimization=ZERO3), world)
            self.assertGreater(len({row["loss"] for row in rows}), 20)

    def test_evaluations_and_saves_between_replays_and_a_resumed_run(self):
        for world in WORLDS:
            for stage in (1, 3):
                config = base_config("gpt", zero_optimization={**ZERO3, "stage": stage}, train={"eval_interval": 5},
                                     checkpoint={"interval": 7})
                config["data"] = {"shuffle": True, "eval": self.env.data("gpt")}
                model, data = self.env.model("gpt"), self.env.data("gpt")
                with self.subTest(world=world, stage=stage):
                    whole, _ = self.assert_same(model, data, config, world)
                    _, _, folder = self.run_job(model, data, config, world, 15, True)
                    resumed, text, _ = self.run_job(model, data, config, world, 24, True, folder, ("--resume", "auto"))
                    self.assertIn(RECORDED, text)
                    self.assertEqual(whole, resumed)

    @unittest.skipIf(model_packages.WHY_NOT, model_packages.WHY_NOT)
    def test_traces_of_transformers_read_nothing_back_from_the_device(self):
        for name in ("gpt2", "llama", "qwen2", "bert", "phi3", "gemma", "gpt_neox"):
            for masked in (False, True):
                data = self.env.path(f"{name}-{masked}.safetensors")
                tensor_file.write(data, hugging_face.samples(name, masked, 24))
                config = {"train_batch_size": 6, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
                          "data": {"shuffle": False}}
                with self.subTest(name=name, masked=masked):
                    self.assert_same(hugging_face.export(name, masked, "fp32", self.env.folder), data, config, 1, 12)

    def test_a_thousand_replays_at_stage_3(self):
        """Gathers and reductions in one graph, on two communicators; a second time with ranks that do not keep in step."""
        config = base_config("gpt", zero_optimization=ZERO3, train_batch_size=2 * ALL, gradient_clipping=1.0, steps_per_print=500)
        plain, _ = self.assert_same(self.env.model("gpt"), self.env.data("gpt"), config, ALL, 1000)
        folder = self.env.run_dir()
        with Skew(folder) as skew:
            rows, _, _ = self.run_job(self.env.model("gpt"), self.env.data("gpt"), config, ALL, 1000, True, folder)
        self.assertGreater(skew.num_holds, 50)
        self.assertEqual(plain, rows)

    @unittest.skipIf(ALL < 2, "needs two GPUs")
    def test_nccl_orders_the_launches_of_the_two_communicators(self):
        command = self.env.command(self.env.model("gpt"), self.env.data("gpt"), base_config("gpt", zero_optimization=ZERO3),
                                    self.env.run_dir(), ALL, 2)
        for own, used in ((None, "1"), ("0", "0")):
            told = {"NCCL_LAUNCH_ORDER_IMPLICIT": own} if own else {}
            outcome = harness.run(command + ["--overwrite"],
                                   env=gpu_harness.environment(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="ENV", **told))
            self.assertEqual(outcome.code, 0, str(outcome))
            self.assertIn(f"NCCL_LAUNCH_ORDER_IMPLICIT set by environment to {used}", outcome.text)

    @unittest.skipIf(model_packages.WHY_NOT or ALL < 2, model_packages.WHY_NOT or "needs two GPUs")
    def test_tensor_ranks_sum_within_the_graph(self):
        for name in ("gpt2", "llama", "t5"):
            data = self.env.path(f"{name}-split.safetensors")
            tensor_file.write(data, hugging_face.samples(name, False, 8 * 24))
            for ranks, changes in ((2, {}), (2, {"activation_checkpointing": {"enabled": True}}),
                                   (2, {"bf16": {"enabled": True}, "gradient_accumulation_steps": 2}),
                                   (4, {"zero_optimization": ZERO3})):
                config = {"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
                          "data": {"shuffle": False}, "tensor_parallel": {"size": 2}, "gradient_clipping": 1.0, **changes}
                with self.subTest(name=name, ranks=ranks, changes=list(changes)):
                    if ranks > ALL:
                        self.skipTest(f"{ranks} ranks need as many GPUs")
                    rows, _ = self.assert_same(hugging_face.export(name, False, "fp32", self.env.folder), data, config, ranks)
                    self.assertEqual(len({row["loss"] for row in rows}), 24)

    @unittest.skipIf(model_packages.WHY_NOT or ALL < 2, model_packages.WHY_NOT or "needs two GPUs")
    def test_a_thousand_replays_of_tensor_ranks_that_do_not_keep_in_step(self):
        data = self.env.path("skewed.safetensors")
        tensor_file.write(data, hugging_face.samples("llama", False, 64))
        config = {"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "steps_per_print": 500,
                  "data": {"shuffle": False}, "tensor_parallel": {"size": ALL}}
        model, folder = hugging_face.export("llama", False, "fp32", self.env.folder), self.env.run_dir()
        plain, _ = self.assert_same(model, data, config, ALL, 1000)
        with Skew(folder) as skew:
            rows, _, _ = self.run_job(model, data, config, ALL, 1000, True, folder)
        self.assertGreater(skew.num_holds, 50)
        self.assertEqual(plain, rows)

    def test_models_with_host_work_run_without_a_graph(self):
        for name, reason in (("buffers", "sets its attribute"), ("forked", "on other threads"),
                             ("skip_by_value", "captur")):
            model, data = self.case(name)
            config = base_config("mlp", zero_optimization={"stage": 1})
            with self.subTest(name=name):
                plain, _, _ = self.run_job(model, data, config, ALL, 10, False)
                rows, text, _ = self.run_job(model, data, config, ALL, 10, True)
                line = [line for line in text.splitlines() if LAUNCH_BY_LAUNCH in line]
                self.assertEqual(len(line), 1, text)
                self.assertIn(reason, line[0])
                self.assertEqual(plain, rows)

    def test_recomputation_with_accumulation_and_dropout(self):
        """The second forward draws the first one's random numbers, also within a graph."""
        for world in WORLDS:
            for stage in (0, 3):
                for number_checkpoints in (None, 1):
                    model, data = self.case("dropout")
                    config = base_config("mlp", zero_optimization={**ZERO3, "stage": stage}, train_batch_size=24,
                                         gradient_accumulation_steps=3, activation_checkpointing={
                                             "enabled": True, "number_checkpoints": number_checkpoints})
                    with self.subTest(world=world, stage=stage, number_checkpoints=number_checkpoints):
                        rows, _ = self.assert_same(model, data, config, world)
                        self.assertGreater(len({row["loss"] for row in rows}), 20)

    def test_recomputation_of_a_gpt(self):
        config = base_config("gpt", zero_optimization=ZERO3, activation_checkpointing={"enabled": True})
        self.assert_same(self.env.model("gpt"), self.env.data("gpt"), config, ALL)

    def test_inputs_of_recomputation_in_host_memory_disable_step_graphs(self):
        config = base_config("gpt", activation_checkpointing={"enabled": True, "cpu_checkpointing": True})
        _, text, _ = self.run_job(self.env.model("gpt"), self.env.data("gpt"), config, 1, 6, True)
        self.assertIn(LAUNCH_BY_LAUNCH + "activation_checkpointing.cpu_checkpointing", text)

    def test_by_default_steps_are_captured_where_the_device_waits(self):
        for world in WORLDS:
            config = base_config("gpt", zero_optimization={"stage": 1})
            with self.subTest(world=world):
                plain, _, _ = self.run_job(self.env.model("gpt"), self.env.data("gpt"), config, world, 12, False)
                rows, text, _ = self.run_job(self.env.model("gpt"), self.env.data("gpt"), config, world, 12, "auto")
                self.assertEqual(text.count(HOST_IS_SLOWER), 1, text)
                self.assertIn("step 7: " + RECORDED, text)
                self.assertEqual(plain, rows)

    def test_by_default_steps_are_not_captured_where_the_host_waits(self):
        model, data = self.env.path("wide.pt"), self.env.path("wide.safetensors")
        torch.jit.script(Wide()).save(model)
        tensor_file.write(data, {"inputs": torch.randn(2048, 64), "labels": torch.randn(2048)})
        config = {"train_micro_batch_size_per_gpu": 2048, "optimizer": {"type": "SGD", "params": {"lr": 1e-3}}}
        _, text, _ = self.run_job(model, data, config, 1, 8, "auto")
        self.assertEqual(text.count(DEVICE_IS_SLOWER), 1, text)
        self.assertNotIn(RECORDED, text)

    def test_by_default_a_model_with_host_work_says_why_capture_would_pay(self):
        for name, reason in (("buffers", "sets its attribute"), ("skip_by_value", "captur")):
            model, data = self.case(name)
            with self.subTest(name=name):
                _, text, _ = self.run_job(model, data, base_config("mlp"), ALL, 10, "auto")
                line = [line for line in text.splitlines() if HOST_IS_SLOWER in line]
                self.assertEqual(len(line), 1, text)
                self.assertIn("cannot be captured as a CUDA graph: ", line[0])
                self.assertIn(reason, line[0])

    def test_verify_compares_replayed_steps(self):
        config = base_config("gpt", zero_optimization=ZERO3)
        _, text, _ = self.run_job(self.env.model("gpt"), self.env.data("gpt"), config, ALL, 12, True,
                                  extra=("--verify", "10"))
        self.assertIn(RECORDED, text)
        self.assertIn("10 steps", text)

    @unittest.skipIf(ALL < 2, "needs two GPUs")
    def test_a_rank_that_is_killed_between_replays_ends_the_job(self):
        config = base_config("gpt", zero_optimization=ZERO3, graph_harvesting=True, steps_per_print=10)
        folder = self.env.run_dir()
        command = self.env.command(self.env.model("gpt"), self.env.data("gpt"), config, folder, ALL, 10**7, ("--verbose",))
        job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env=gpu_harness.environment())
        lines = []
        for line in job.stdout:
            lines.append(line)
            if "step 200" in line:
                break
        self.assertTrue(any(RECORDED in line for line in lines), "".join(lines))
        os.kill(harness.rank_processes(folder, 1)[0], signal.SIGKILL)
        killed = time.monotonic()
        rest = job.communicate(timeout=60)[0]
        self.assertLess(time.monotonic() - killed, 5, rest)
        self.assertEqual(job.returncode, 137, rest)
        self.assertIn("rank 1", rest)


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print("skipped: no GPU on this machine")
        sys.exit(77)
    unittest.main(verbosity=2)
