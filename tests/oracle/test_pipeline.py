#!/usr/bin/env python3
"""Pipelines of stages train as one process does: models of transformers as plain PyTorch trains the modules, ours as a run
with one stage, bit by bit where the order of additions is the same. Most in the grid's pools (pooled.py).

By hand: DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/oracle/test_pipeline.py [Transformers.test_gpt2...]"""
import os
import sys
import unittest

import torch

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), folder) for folder in ("../support/python", "../grid")]
import checkpoint_state  # noqa: E402
import harness  # noqa: E402
import hugging_face  # noqa: E402
import model_packages  # noqa: E402
import one_process  # noqa: E402
import plain_pytorch  # noqa: E402
import tensor_file  # noqa: E402
from pooled import PooledTest  # noqa: E402
from test_oracle import OracleTest  # noqa: E402
from harness import base_config  # noqa: E402

STEPS = 20
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


class Checkpoints(PooledTest, OracleTest):
    """The trajectory does not notice how many stages save and load it."""

    def through(self, kind, segments, config):
        folder = self.env.run_dir()
        for stages, data_ranks, zero, last in segments:
            part = staged({**config, "zero_optimization": {"stage": zero}}, stages)
            rows, _ = self.env.train(self.env.model(kind), self.env.data(kind), part, stages * data_ranks, last, folder,
                                     ["--resume", "auto"])
        return rows, folder

    def test_any_stages_load_any_other_s(self):
        walk = [(2, 2, 1, 3), (1, 1, 0, 6), (3, 1, 1, 9), (2, 2, 0, 12), (1, 2, 2, 15), (2, 1, 1, 18)]
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


def add_cases():
    for name, mesh in MESHES.items():
        setattr(Transformers, "test_" + name, lambda self, name=name, mesh=mesh: self.check(name, *mesh))


add_cases()


if __name__ == "__main__":
    unittest.main(verbosity=2)
