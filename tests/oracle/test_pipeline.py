#!/usr/bin/env python3
"""Pipelines of stages train as one process does: models of transformers as plain PyTorch trains the modules, ours as a run
with one stage, bit by bit where the order of additions is the same. Most in the grid's pools (pooled.py).

By hand: DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/oracle/test_pipeline.py [Transformers.test_gpt2...]"""
import os
import re
import signal
import sys
import time
import unittest

import torch

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), folder) for folder in ("../support/python", "../grid")]
import checkpoint_state  # noqa: E402
import harness  # noqa: E402
import hugging_face  # noqa: E402
import model_cases  # noqa: E402
import model_packages  # noqa: E402
import one_process  # noqa: E402
import plain_pytorch  # noqa: E402
import tensor_file  # noqa: E402
import test_model_cases  # noqa: E402
from pooled import PooledTest  # noqa: E402
from test_oracle import OracleTest  # noqa: E402
from harness import base_config  # noqa: E402

STEPS = 11  # of data that end after 5 steps: the last one has the samples of the first
BOUND = 1e-5  # relative, fp32: what the order of additions may change
# (stages, data ranks): each model has one of them.
MESHES = {"gpt2": (2, 1), "llama": (3, 1), "bert": (2, 2), "gpt_neox": (3, 1), "qwen2": (2, 2), "mistral": (3, 1),
          "opt": (3, 1)}


def staged(config, stages, **more):
    return {**config, "pipeline": {"stages": stages, **more}}


@unittest.skipIf(model_packages.WHY_NOT, model_packages.WHY_NOT)
class Transformers(PooledTest, OracleTest):
    """Cut without a word from the user: nothing but the number of stages is given."""

    def check(self, name, stages, data_ranks, accumulation=4):
        masked, folder = hugging_face.is_masked(name), hugging_face.shared_folder() or self.env.folder
        data = self.env.path(f"{name}.safetensors")
        tensor_file.write(data, hugging_face.samples(name, masked, 5 * hugging_face.ROWS))
        config = {"train_batch_size": hugging_face.ROWS, "gradient_accumulation_steps": accumulation,
                  "gradient_clipping": 1.0, "optimizer": {"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9}},
                  "zero_optimization": {"stage": data_ranks - 1}, "data": {"shuffle": False},
                  "checkpoint": {"at_end": False}}
        rows, _ = self.env.train(hugging_face.export(name, masked, "fp32", folder), data, staged(config, stages),
                                 stages * data_ranks, STEPS)
        expected = plain_pytorch.train(hugging_face.build(name, masked), data, config, STEPS, accumulation, data_ranks)
        self.assert_close(expected.rows, rows, what=f"{name} {stages} x {data_ranks}")
        self.assertLess(rows[-1]["loss"], rows[0]["loss"], "it must have learnt something")


class OneStage(PooledTest, OracleTest):
    """Beside the run of the same model and the same data ranks with one stage."""

    def both(self, kind, config, stages=2, data_ranks=1, steps=8, form="script", extra=(), **pipeline):
        model, data = self.env.model(kind, form), self.env.data(kind)
        want, self.whole_dir = self.env.train(model, data, config, data_ranks, steps, extra=extra)
        got, self.staged_dir = self.env.train(model, data, staged(config, stages, **pipeline), stages * data_ranks, steps,
                                              extra=extra)
        self.assertEqual([row.get("eval_loss") is None for row in want], [row.get("eval_loss") is None for row in got])
        return want, got

    def config(self, kind="gpt", **changes):
        return base_config(kind, **{"gradient_accumulation_steps": 3, "checkpoint": {"at_end": False}, **changes})

    def test_bit_by_bit_without_clipping(self):
        """Micro batches are added up in the same order; only the norm is a sum in another order."""
        for stages, data_ranks in ((2, 1), (3, 1), (2, 2)):
            want, got = self.both("gpt", self.config(gradient_clipping=0.0), stages, data_ranks)
            self.assertEqual([row["loss"] for row in want], [row["loss"] for row in got], f"{stages} x {data_ranks}")
            self.assert_close(want, got)

    def test_clipping(self):
        want, got = self.both("gpt", self.config(), 3)
        self.assertGreater(max(row["grad_norm"] for row in got), 0.4, "nothing was clipped")
        self.assert_close(want, got)

    def test_gpipe(self):
        self.assert_close(*self.both("gpt", self.config(), 2, 2, schedule="gpipe"))

    def test_one_micro_batch_and_fewer_than_stages(self):
        for accumulation in (1, 2):
            self.assert_close(*self.both("mlp", self.config("mlp", gradient_accumulation_steps=accumulation), 3))

    def test_half_precision(self):
        bf16 = self.config(bf16={"enabled": True}, gradient_clipping=0.0)
        want, got = self.both("gpt", bf16)
        self.assertEqual([row["loss"] for row in want], [row["loss"] for row in got])
        section = {"enabled": True, "initial_scale_power": 24, "loss_scale_window": 4, "hysteresis": 1}
        want, got = self.both("gpt", self.config(fp16=section, zero_optimization={"stage": 1}), steps=20)
        self.assertEqual([(row["loss_scale"], row["overflow"]) for row in want],
                         [(row["loss_scale"], row["overflow"]) for row in got])
        self.assertTrue(got[0]["overflow"] and not got[-1]["overflow"])
        self.assert_close(want, got, 2e-3, ["loss"])

    def test_offloaded_optimizer(self):
        for delayed in (False, True):
            section = {"stage": 1, "offload_optimizer": {"device": "cpu", "delayed_update": delayed}}
            want, got = self.both("gpt", self.config(gradient_clipping=0.0, zero_optimization=section), 2, 2)
            self.assertEqual([row["loss"] for row in want], [row["loss"] for row in got], f"delayed: {delayed}")

    def test_evaluation(self):
        config = self.config(train={"eval_interval": 2})
        config["data"] = {**config["data"], "eval": self.env.data("gpt")}
        want, got = ([row for row in rows if "eval_loss" in row] for rows in self.both("gpt", config, 2, 2, steps=4))
        self.assertGreater(len(want), 1)
        self.assert_close(want, got, keys=["eval_loss"])

    def test_recomputation(self):
        config = self.config(gradient_clipping=0.0)
        want, _ = self.both("gpt", config)
        _, got = self.both("gpt", {**config, "activation_checkpointing": {"enabled": True}})
        self.assertEqual([row["loss"] for row in want], [row["loss"] for row in got])

    def test_batch_norm(self):
        """A stage has its running statistics; the checkpoint has all of them, once."""
        want, got = self.both("convnet", self.config("convnet", gradient_clipping=0.0, checkpoint={}), 2, 2)
        self.assertEqual([row["loss"] for row in want], [row["loss"] for row in got])
        whole, parts = (checkpoint_state.read(checkpoint_state.newest(folder))[0]
                        for folder in (self.whole_dir, self.staged_dir))
        self.assertEqual({state: sorted(of) for state, of in whole.items()}, {state: sorted(of) for state, of in parts.items()})
        for state, of in whole.items():
            for name, value in of.items():
                self.assertTrue(torch.equal(value, parts[state][name]), f"{state} {name}")


# Models that cannot be cut, with the reason that is given.
NOT_CUT = {"tied_trace": "one that another module passes on", "frozen_between_trace": "one that another module passes on",
           "interface": "an interface", "forked": "on other threads", "leaving": "a value of type List\\[Tensor\\]",
           "bare": "it has 0 layers .*Use 1 stage$"}
# A parameter of several uses: its gradient is a sum in another order.
REORDERED = {"tied", "called_twice", "called_twice_trace", "other_method", "held_outside"}
# Each rank draws random numbers of its own, and a stage has only some of the layers that draw.
RANDOM = {"dropout", "dropout_trace", "attention", "attention_trace"}


class CutCase(test_model_cases.CaseTest):
    def run_in(self, stages, name, config):
        """Several stages beside the replica of --verify, which knows the random numbers of each."""
        folder = self.env.run_dir()
        config, extra = staged(config, stages, partition="parameters"), ["--verify", "3"] if stages > 1 else []
        outcome = self.env.run(self.model(name), self.data(name), config, folder, stages, 6, extra)
        return outcome, [row["loss"] for row in harness.read_metrics(folder)] if outcome.code == 0 else None

    def check(self, names):
        for name in names:
            with self.subTest(name=name):
                config = test_model_cases.config_of(name, gradient_clipping=0.0)
                outcome, got = self.run_in(2, name, config)
                if name in NOT_CUT:
                    self.assertEqual(outcome.code, 65, str(outcome))
                    self.assertRegex(outcome.err.strip(), NOT_CUT[name])
                    continue
                self.assertEqual(outcome.code, 0, str(outcome))
                self.assertIn("--verify: 3 steps agree", outcome.text)
                _, want = self.run_in(1, name, config)
                bound = 1.0 if name in RANDOM else BOUND if name in REORDERED else 0.0
                for one, other in zip(want, got, strict=True):
                    self.assertLessEqual(abs(one - other), bound * abs(one), f"{want} {got}")


class ModelCases(CutCase):
    """Models with unusual habits, in two stages and in one: the same losses, or a refusal with the reason. Every third of
    those that are cut."""

    def test_all_that_cannot_be_cut(self):
        self.check(NOT_CUT)

    def test_some_that_are_cut(self):
        self.check([name for name in model_cases.CASES if name not in NOT_CUT][::3])

    def test_an_offloaded_optimizer_beside_data_ranks(self):
        """Also where a rank skips units that the other data rank of its stage calls."""
        for name in ("skip_by_value", "tied", "batch_norm"):
            with self.subTest(name=name):
                zero = {"stage": 1, "offload_optimizer": {"device": "cpu"}}
                config = staged(test_model_cases.config_of(name, zero_optimization=zero), 2,
                                partition="parameters")
                outcome = self.env.run(self.model(name), self.data(name), config, self.env.run_dir(), 4, 6, ["--verify", "3"])
                self.assertEqual(outcome.code, 0, str(outcome))
                self.assertIn("--verify: 3 steps agree", outcome.text)


class EveryModelCase(CutCase):
    """`scripts/test --slow`."""

    def test_all(self):
        self.check(model_cases.CASES)


class Checkpoints(PooledTest, OracleTest):
    """The trajectory does not notice how many stages save and load it, and --verify finds what was saved on every stage."""

    def through(self, kind, segments, config):
        folder = self.env.run_dir()
        for stages, data_ranks, zero, last in segments:
            part = staged({**config, "zero_optimization": {"stage": zero}}, stages)
            verifies = ["--verify", "1"] if stages > 1 else []
            rows, _ = self.env.train(self.env.model(kind), self.env.data(kind), part, stages * data_ranks, last, folder,
                                     ["--resume", "auto", *verifies])
        return rows, folder

    def test_any_stages_load_any_other_s(self):
        walk = [(2, 2, 1, 2), (1, 1, 0, 4), (3, 1, 1, 6), (2, 2, 0, 8), (1, 2, 2, 10), (2, 1, 1, 12)]
        for kind in ("gpt", "mlp"):
            config = base_config(kind, gradient_accumulation_steps=3)
            rows, _ = self.through(kind, walk, config)
            expected = one_process.train(self.env.model(kind), self.env.data(kind), config, len(rows))
            self.assert_close(expected, rows, keys=("loss", "lr"), what=kind)

    def test_the_same_mesh_bit_by_bit_and_batch_norm_from_stage_to_stage(self):
        for kind, mesh in (("gpt", (2, 2)), ("convnet", (2, 1))):
            config = base_config(kind, gradient_accumulation_steps=3)
            whole, _ = self.through(kind, [(*mesh, 1, 9)], config)
            self.assert_same(whole, self.through(kind, [(*mesh, 1, 4), (*mesh, 1, 9)], config)[0], kind)
        config = base_config("convnet", gradient_accumulation_steps=3, gradient_clipping=0.0)
        whole, whole_dir = self.through("convnet", [(1, 1, 0, 9)], config)
        rows, folder = self.through("convnet", [(2, 1, 0, 3), (1, 1, 0, 6), (3, 1, 0, 9)], config)
        self.assertEqual([row["loss"] for row in whole], [row["loss"] for row in rows])
        want, got = (tensor_file.read(self.env.consolidate(each, f"{name}.safetensors"))
                     for each, name in ((whole_dir, "whole"), (folder, "staged")))
        self.assertEqual(sorted(want), sorted(got))
        for name, value in want.items():
            self.assertTrue(torch.equal(value, got[name]), name)

    def test_frozen_parameters(self):
        """Saved once, by the stage that has them, and restored where another stage has them."""
        torch.manual_seed(0)
        layers = torch.nn.Sequential(*(torch.nn.Linear(6, 6) for _ in range(5)), torch.nn.Linear(6, 1))
        for i in (0, 3):
            layers[i].requires_grad_(False)
        path = self.env.path("frozen.pt")
        torch.jit.script(layers).save(path)
        config = base_config("mlp", gradient_accumulation_steps=3, loss="mse", gradient_clipping=0.0)
        folders, data = [], self.env.data("mlp")
        for segments in (((1, 9),), ((2, 3), (3, 6), (1, 9))):
            folders.append(self.env.run_dir())
            for stages, last in segments:
                rows, _ = self.env.train(path, data, staged(config, stages), stages, last, folders[-1],
                                         ["--resume", "auto", "--verify", "1"])
        self.assert_close(one_process.train(path, data, config, 9), rows, keys=("loss",))
        want, got = (tensor_file.read(self.env.consolidate(each, f"{i}.safetensors")) for i, each in enumerate(folders))
        self.assertEqual(sorted(want), sorted(dict(layers.named_parameters())))
        self.assertEqual(sorted(want), sorted(got))
        for name, value in want.items():
            self.assertTrue(torch.equal(value, got[name]), name)


class Programs(PooledTest, OracleTest):
    """What reaches the ranks by options, and what a job says."""

    def command(self, config, folder, world, steps, *extra, kind="gpt"):
        return self.env.command(self.env.model(kind), self.env.data(kind), config, folder, world, steps, extra)

    def test_a_killed_rank_is_named_and_the_job_goes_on(self):
        config = base_config("gpt", gradient_accumulation_steps=3, zero_optimization={"stage": 1},
                             checkpoint={"interval": 5})
        folder = self.env.run_dir()
        process = harness.start(self.command(config, folder, 4, 100_000, "--stages", "2"))
        self.addCleanup(lambda: process.poll() is None and os.killpg(process.pid, signal.SIGKILL))
        newest = os.path.join(folder, "checkpoints/latest")
        while process.poll() is None and not os.path.exists(newest):
            time.sleep(0.001)
        for pid in harness.rank_processes(folder, 2):
            os.kill(pid, signal.SIGKILL)
        text, _ = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 137, text)
        self.assertIn("rank 2 (stage 1) on localhost failed first", "\n".join(text.strip().splitlines()[-25:]), text)
        self.assertIn("2 stages", text)
        done = int(os.path.basename(checkpoint_state.newest(folder)).removeprefix("step_"))
        outcome = harness.run(self.command(config, folder, 4, done + 3, "--stages", "2", "--resume", "auto", "--verify", "2"))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("--verify: 2 steps agree with an unsharded replica", outcome.text)
        whole, _ = self.env.train(self.env.model("gpt"), self.env.data("gpt"), staged(config, 2), 4, done + 3)
        self.assert_same(whole, harness.read_metrics(folder))

    def test_a_traced_step_is_shown_as_the_schedule_that_it_was(self):
        config = base_config("gpt", gradient_accumulation_steps=3, checkpoint={"at_end": False},
                             pipeline={"schedule": "zb-h1"})
        outcome = harness.run(self.command(config, self.env.run_dir(), 2, 3, "--stages", "2", "--trace", "2"))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertRegex(outcome.text, r"pipeline as measured: zb-h1, 2 stages, 3 micro batches; a slot is [0-9.e+]+ ms")
        self.assertRegex(outcome.text, r"bubble [0-9.]+ % of [0-9.e+]+ ms; [0-9.]+ % of [0-9.e+]+ ms if transfers took no time")
        for stage in (0, 1):
            cells = re.search(rf"stage {stage} +((?:[.FIW][0-9]* *)+)$", outcome.text, re.M)[1].split()
            firsts = list(dict.fromkeys(cell for cell in cells if cell.startswith("F")))
            self.assertEqual(firsts, sorted(firsts), str(outcome))
            self.assertRegex(outcome.text, rf"stage {stage}: waits [0-9.]+ % of the step; forward [0-9.e-]+ ms, input gradient")

    def refused(self, code, words, outcome):
        self.assertEqual(outcome.code, code, str(outcome))
        self.assertEqual(outcome.text.count(words), 1, f"{words!r} has to be said once: {outcome}")
        for never in ("terminate called", "internal error", "Traceback"):
            self.assertNotIn(never, outcome.text)

    def test_refusals_before_a_rank_starts(self):
        """Words and lines of the config: tests/unit/config/pipeline_rules_test.cpp."""
        def zero(**section):
            return {"zero_optimization": section}

        for code, words, world, changes in (
                (78, "cannot divide the job into models: 3 ranks", 3, {}),
                (65, "'zero_optimization.stage' 2 does not go with 2 pipeline stages", 2, zero(stage=2)),
                (65, "'zero_optimization.stage' 3 does not go with 2 pipeline stages", 2, zero(stage=3))):
            with self.subTest(words=words):
                outcome = harness.run(self.command(base_config("mlp", **changes), self.env.run_dir(), world, 2, "--stages",
                                                   "2", kind="mlp"))
                self.refused(code, words, outcome)

    def refused_by_all(self, words, outcome):
        """Every rank meets the error by itself, none by another one's end."""
        self.assertEqual(outcome.code, 65, str(outcome))
        errors = [line for line in outcome.text.splitlines() if " error: " in line and "dslaunch: " not in line]
        for each in words:
            self.assertIn(each, errors[-1], str(outcome))
        self.assertEqual(outcome.text.count("cannot be cut"), 1, f"once for all ranks: {outcome}")
        for never in ("exit code 71", "terminate called", "internal error"):
            self.assertNotIn(never, outcome.text)

    def test_a_model_that_cannot_be_cut(self):
        config = base_config("mlp")
        outcome = harness.run(self.command(config, self.env.run_dir(), 5, 2, "--stages", "5", kind="mlp"))
        self.refused_by_all(["cannot be cut into 5 pipeline stages: it has 4 layers", "Use at most 4 stages"], outcome)

        class Repeated(torch.nn.Module):
            """All of its layers are called in a loop of a length that the data decides."""

            def __init__(self):
                super().__init__()
                self.one, self.two = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)

            def forward(self, x):
                while bool(x.abs().max() > 1.0):
                    x = torch.tanh(self.two(self.one(x))) * 0.5
                return x.sum(1, keepdim=True)

        path = self.env.path("repeated.pt")
        torch.jit.script(Repeated()).save(path)
        outcome = harness.run(self.env.command(path, self.env.data("mlp"), {**config, "loss": "mse"}, self.env.run_dir(), 2,
                                               2, ["--stages", "2"]))
        self.refused_by_all(["cannot be cut into 2 pipeline stages"], outcome)

    def test_a_stage_that_runs_out_of_memory(self):
        class Large(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(6, 6)

            def forward(self, x):
                return self.linear(x) + torch.empty(1 << 46).sum()

        path = self.env.path("large.pt")
        torch.jit.script(torch.nn.Sequential(torch.nn.Linear(6, 6), Large(), torch.nn.Linear(6, 1))).save(path)
        config = base_config("mlp", loss="mse", gradient_accumulation_steps=3, pipeline={"partition": "parameters"})
        outcome = harness.run(self.env.command(path, self.env.data("mlp"), config, self.env.run_dir(), 3, 2,
                                               ["--stages", "3"]))
        self.assertEqual(outcome.code, 69, str(outcome))
        for words in (r"error: out of memory in forward on .*can't allocate memory.*\(forward of micro batch 0\)\. This is stage 1: "
                      r"layer '1.linear' .* It keeps the activations of 2 micro batches, the last stage those of 1 micro batch\. Use ",
                      r"rank 1 \(stage 1\) on localhost failed first: exit code 69"):
            self.assertRegex(outcome.text, words)


def add_cases():
    for name, mesh in MESHES.items():
        setattr(Transformers, "test_" + name, lambda self, name=name, mesh=mesh: self.check(name, *mesh))


add_cases()


if __name__ == "__main__":
    unittest.main(verbosity=2)
