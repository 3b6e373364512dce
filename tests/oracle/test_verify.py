#!/usr/bin/env python3
"""--verify N, most in the grid's pools (pooled.py): a run that is right is said to be, on 1 to 4 ranks, at every stage, in
fp32 and bf16, with dropout and BatchNorm, resumed, with evaluations in between, and its numbers are those of a run without;
a run that is not one with its replica ends with 76 and names step and parameter."""
import json
import os
import re
import sys
import unittest

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import tensor_file  # noqa: E402
import harness  # noqa: E402
from pooled import PooledTest  # noqa: E402
from harness import base_config, program, run  # noqa: E402


class Forgetful(torch.nn.Module):
    """Counts its calls where neither parameters nor buffers are: in one process the second call is the second, on two
    ranks it is the first of the other rank."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 1)
        self.calls: int = 0

    def forward(self, x, y):
        self.calls += 1
        return (self.layer(x) - y).square().mean() * (1.0 + 0.01 * self.calls)


class Dropping(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(6, 16), torch.nn.Linear(16, 1)

    def forward(self, x, y):
        hidden = torch.nn.functional.dropout(torch.relu(self.first(x)), 0.3, self.training)
        return (self.last(hidden) - y).square().mean()


class VerifyTest(harness.TrainingTest):
    def tearDown(self):
        self.assertEqual(harness.job_processes(self.env.folder), [], "processes are left behind")

    def scripted(self, kind):
        path = self.env.path(f"{kind.__name__}.pt")
        torch.manual_seed(2)
        torch.jit.script(kind()).save(path)
        return path

    def verified(self, model, data, config, world, steps, verify, extra=(), run_dir=None):
        """(metrics, what was said) of a run that agrees with its replica."""
        run_dir = run_dir or self.env.run_dir()
        outcome = self.env.run(model, data, config, run_dir, world, steps, ["--verify", str(verify), *extra])
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual(len(re.findall(r"--verify: \d+ steps? agrees?", outcome.text)), 1, str(outcome))
        self.assertRegex(outcome.text, r"--verify: the unsharded replica uses [\d.]+ [KMG]iB on rank 0")
        return harness.read_metrics(run_dir), outcome


class Agreement(PooledTest, VerifyTest):
    def test_worlds_stages_accumulation_and_precision(self):
        cases = [(1, 0, 3, "fp32", "mlp"), (2, 0, 1, "fp32", "gpt"), (3, 1, 3, "fp32", "mlp"), (2, 2, 1, "bf16", "gpt"),
                 (4, 3, 1, "fp32", "gpt"), (2, 1, 1, "bf16", "mlp"), (3, 2, 3, "bf16", "gpt"), (4, 3, 3, "bf16", "gpt"),
                 (2, 1, 3, "fp16", "gpt"), (3, 2, 1, "fp16", "gpt"), (4, 3, 3, "fp16", "mlp")]
        for world, stage, accumulation, precision, kind in cases:
            with self.subTest(world=world, stage=stage, accumulation=accumulation, precision=precision, kind=kind):
                config = base_config(kind, gradient_accumulation_steps=accumulation,
                                     zero_optimization={"stage": stage, "stage3_param_persistence_threshold": 40})
                if precision != "fp32":
                    config[precision] = {"enabled": True}
                if precision == "fp16":
                    config[precision]["initial_scale_power"] = 8
                self.agrees(config, world, kind, 1e-6 if precision == "fp32" else 2**-8)

    def agrees(self, config, world, kind, bound):
        rows, outcome = self.verified(self.env.model(kind), self.env.data(kind), config, world, 12, 8)
        self.assertIn("--verify: 8 steps agree", outcome.text)
        self.assertEqual(len(rows), 12)
        said = re.search(r"loss within (\S+), gradient norm within (\S+), parameters and moments within (\d+) %",
                         outcome.text)
        self.assertLess(float(said[1].rstrip(",")), bound, outcome.text)
        self.assertLess(int(said[3]), 100, outcome.text)

    def test_offloaded_state(self):
        """With a delay the run waits for the update before every comparison."""
        in_files = {"device": "nvme", "nvme_path": self.env.folder}
        for world, stage, kind, more in ((2, 3, "gpt", {"offload_param": {"device": "cpu"}}), (3, 1, "mlp", {}),
                                         (2, 2, "gpt", {"offload_optimizer": in_files}),
                                         (2, 2, "gpt", {"offload_optimizer": {"device": "cpu", "delayed_update": True}})):
            with self.subTest(stage=stage):
                zero = {"stage": stage, "stage3_param_persistence_threshold": 40, "offload_optimizer": {"device": "cpu"}, **more}
                self.agrees(base_config(kind, bf16={"enabled": True}, zero_optimization=zero), world, kind, 2**-8)

    def test_every_optimizer(self):
        """Those whose update makes much of little: signs, roots, whole matrices."""
        for i, name in enumerate(("Lion", "Lamb", "Adagrad", "Muon", "SGD")):
            with self.subTest(optimizer=name):
                config = base_config("gpt", optimizer={"type": name, "params": {"lr": 3e-3}}, gradient_accumulation_steps=3,
                                     bf16={"enabled": i % 2 == 0}, zero_optimization={"stage": i % 4})
                self.agrees(config, 3, "gpt", 2**-8)

    def test_tensor_ranks(self):
        """The bias of attention's keys: its gradient is zero, and in some order of additions exactly so."""
        for world, stage in ((2, 0), (4, 1)):
            with self.subTest(world=world):
                self.agrees(base_config("gpt", tensor_parallel={"size": 2}, zero_optimization={"stage": stage}), world, "gpt", 1e-5)

    def test_split_dependent_operations_are_split_alike_and_named(self):
        for model, kind, word in ((self.scripted(Dropping), "mlp", "random numbers"),
                                  (self.env.model("convnet"), "convnet", "statistics of batches")):
            with self.subTest(model=model):
                config = base_config(kind, gradient_accumulation_steps=3, zero_optimization={"stage": 2})
                _, outcome = self.verified(model, self.env.data(kind), config, 3, 6, 6)
                self.assertIn(word, outcome.text)

    def test_the_numbers_are_those_of_a_run_without(self):
        data = self.env.path("eval.safetensors")
        tensor_file.write(data, {name: array[:7] for name, array in harness.samples_of("mlp").items()})
        config = base_config("mlp", zero_optimization={"stage": 3}, train={"eval_interval": 2},
                             data={"shuffle": True, "eval": data})
        plain, _ = self.env.train(self.scripted(Dropping), self.env.data("mlp"), config, 3, 8)
        checked, _ = self.verified(self.scripted(Dropping), self.env.data("mlp"), config, 3, 8, 5)
        for want, got in zip(plain, checked):
            for key in ("loss", "grad_norm", "lr"):
                self.assertEqual(want[key], got[key], (want["step"], key))
            self.assertEqual(want.get("eval_loss"), got.get("eval_loss"))

    def test_a_resumed_run(self):
        config = base_config("gpt", zero_optimization={"stage": 1})
        whole, _ = self.env.train(self.env.model("gpt"), self.env.data("gpt"), config, 2, 9)
        _, folder = self.env.train(self.env.model("gpt"), self.env.data("gpt"), config, 2, 4)
        rows, outcome = self.verified(self.env.model("gpt"), self.env.data("gpt"), config, 2, 9, 3, ["--resume", "auto"],
                                      folder)
        self.assertIn("3 steps agree", outcome.text)
        self.assertEqual([r["loss"] for r in rows], [r["loss"] for r in whole])

    def test_more_steps_than_the_run_has(self):
        _, outcome = self.verified(self.env.model("mlp"), self.env.data("mlp"), base_config("mlp"), 2, 3, 50)
        self.assertIn("--verify: 3 steps agree", outcome.text)


class Difference(PooledTest, VerifyTest):
    def test_a_run_that_differs_from_its_replica(self):
        for stage in (0, 3):
            with self.subTest(stage=stage):
                config = base_config("mlp", zero_optimization={"stage": stage, "stage3_param_persistence_threshold": 0})
                outcome = self.env.run(self.scripted(Forgetful), self.env.data("mlp"), config,
                                       self.env.run_dir(), 2, 10, ["--verify", "5"])
                self.assertEqual(outcome.code, 76, str(outcome))
                self.assertRegex(outcome.text, r"--verify: at step 1 the run differs from an unsharded replica: the loss is")
                self.assertRegex(outcome.text, r"first difference: parameter 'layer.weight' \(")
                self.assertRegex(outcome.text, r"element \[0, \d\]( of \w+)?: \S+ on rank \d, \S+ in the replica")
                self.assertNotIn("agree", outcome.text)

    def test_a_single_rank_matches_its_replica(self):
        self.verified(self.scripted(Forgetful), self.env.data("mlp"), base_config("mlp"), 1, 4, 4)


class Options(VerifyTest):
    def test_a_run_that_differs_from_its_replica_ends_with_76(self):
        outcome = run(self.env.command(self.scripted(Forgetful), self.env.data("mlp"), base_config("mlp"),
                                       self.env.run_dir(), 2, 10, ["--verify", "5"]))
        self.assertEqual(outcome.code, 76, str(outcome))
        self.assertIn("--verify: at step 1 the run differs from an unsharded replica", outcome.text)

    def test_in_the_background(self):
        command = self.env.command(self.env.model("mlp"), self.env.data("mlp"), base_config("mlp"), self.env.run_dir(),
                                    2, 4, ["--verify", "2", "--detach", "--json"])
        started = run(command)
        self.assertEqual(started.code, 0, str(started))
        attached = run([program("dslaunch"), "attach", json.loads(started.out)["job_id"]])
        self.assertEqual(attached.code, 0, str(attached))
        self.assertIn("2 steps agree", attached.text)
        for pid, _ in harness.job_processes(self.env.folder):  # the one in the background ends after its last word
            harness.wait_for_end(pid)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    unittest.main(verbosity=2)
