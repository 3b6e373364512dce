#!/usr/bin/env python3
"""Checkpoints of every format (tests/data/checkpoints) through the real programs and through the Python of
docs/checkpoint_format.md: a run resumes from all of them with the losses of the version that wrote format 2.

Run by ctest (label oracle); by hand: DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/oracle/test_checkpoint_formats.py"""
import glob
import json
import os
import re
import shutil
import sys
import types
import unittest

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import tensor_file  # noqa: E402
import harness  # noqa: E402
from test_oracle import OracleTest  # noqa: E402

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.path.join(REPO, "tests/data/checkpoints")
sys.path.append(os.path.join(REPO, "tests/grid"))
import checkpoint_state  # noqa: E402

BOUND = 1e-6  # relative, fp32: another machine or world adds in another order


def documented_loader():
    """load() of the documentation, with the package safetensors or, where it is not installed, our own reader."""
    with open(os.path.join(REPO, "docs/checkpoint_format.md"), encoding="utf-8") as page:
        code = re.search(r"```python\n(.*?)```", page.read(), re.DOTALL)[1]
    try:
        import safetensors.torch  # noqa: F401
    except ImportError:
        package, module = types.ModuleType("safetensors"), types.ModuleType("safetensors.torch")
        module.load_file = tensor_file.read
        sys.modules.update({"safetensors": package, "safetensors.torch": module})
    names = {}
    exec(code, names)  # noqa: S102
    return names["load"]


class Formats(OracleTest):
    def setUp(self):
        with open(os.path.join(DATA, "losses.json")) as file:
            self.losses = {int(step): loss for step, loss in json.load(file).items()}

    def folder_with(self, number):
        """A run's folder whose only checkpoint, of step 3, has this format."""
        folder = self.env.run_dir()
        checkpoint = os.path.join(folder, "checkpoints/step_00000003")
        shutil.copytree(os.path.join(DATA, f"format_{max(number, 2)}/step_00000003"), checkpoint)
        if number == 1:
            with open(os.path.join(checkpoint, "manifest.json"), "r+") as file:
                manifest = {**json.load(file), "format": 1}
                del manifest["checksum"]
                file.seek(0)
                file.truncate()
                json.dump(manifest, file)
        return folder, checkpoint

    def train(self, folder, world, extra):
        rows, _ = self.env.train(self.env.model("mlp"), os.path.join(DATA, "data.safetensors"),
                                 os.path.join(DATA, "config.json"), world, 6, folder, extra)
        return rows

    def test_a_run_resumes_from_every_format_on_any_world_and_saves_in_the_newest(self):
        for number, world in ((1, 2), (2, 1), (2, 2), (3, 2), (3, 3)):
            with self.subTest(format=number, world=world):
                folder, _ = self.folder_with(number)
                rows = self.train(folder, world, ["--resume", "auto"])
                self.assertEqual([row["step"] for row in rows], [4, 5, 6])
                for row in rows:
                    expected = self.losses[row["step"]]
                    self.assertLessEqual(abs(row["loss"] - expected), BOUND * expected)
                with open(os.path.join(checkpoint_state.newest(folder), "manifest.json")) as file:
                    self.assertEqual(json.load(file)["format"], 3)

    def test_the_weights_alone_of_slices_begin_a_new_run(self):
        config = harness.base_config("mlp", zero_optimization={"stage": 1}, checkpoint={"load": {"weights_only": True}})
        losses = []
        for number in (2, 3):
            _, checkpoint = self.folder_with(number)
            rows, _ = self.env.train(self.env.model("mlp"), os.path.join(DATA, "data.safetensors"), config, 2, 3,
                                     extra=["--resume", checkpoint])
            losses.append([row["loss"] for row in rows])
        self.assertEqual(*losses)
        self.assertNotEqual(losses[0], [self.losses[step] for step in (1, 2, 3)], "the weights were not loaded")

    def test_whole_weights_are_the_same_of_every_format(self):
        expected = None
        for number in (1, 2, 3):
            folder, _ = self.folder_with(number)
            weights = tensor_file.read(self.env.consolidate(folder, f"format_{number}.safetensors"))
            expected = expected or weights
            self.assertEqual(weights.keys(), expected.keys())
            self.assertTrue(all(torch.equal(weights[name], expected[name]) for name in expected))
            script = torch.jit.load(self.env.consolidate(folder, f"format_{number}.pt"))
            self.assertTrue(all(torch.equal(value, expected[name]) for name, value in script.state_dict().items()))

    def test_the_documented_python_reads_slices(self):
        load = documented_loader()
        newest = os.path.join(DATA, "format_3/step_00000003")
        keys = [key for path in glob.glob(newest + "/rank_*") for key in tensor_file.read(path)]
        self.assertGreater(sum("[0:" in key for key in keys), 20)
        self.assertGreater(sum("[1:" in key for key in keys), 10)
        states = {number: checkpoint_state.read(os.path.join(DATA, f"format_{number}/step_00000003"))[0]
                  for number in (2, 3)}
        for state in ("master", "exp_avg", "exp_avg_sq"):
            expected = load(os.path.join(DATA, "format_2/step_00000003"), state)
            loaded = load(newest, state)
            self.assertEqual(len(loaded), 8)
            for name, value in loaded.items():
                self.assertEqual(value.shape, expected[name].shape)
                self.assertTrue(torch.equal(value, expected[name]), name)
                for number in (2, 3):
                    self.assertTrue(torch.equal(value.flatten(), states[number][state][name]), name)

    def test_a_format_of_the_future_is_named(self):
        folder, checkpoint = self.folder_with(3)
        path = os.path.join(checkpoint, "manifest.json")
        with open(path) as file:
            text = file.read()
        with open(path, "w") as file:
            file.write(text.replace('"format": 3', '"format": 4'))
        command = [harness.program("dslaunch"), "consolidate", checkpoint, self.env.path("future.safetensors")]
        outcome = harness.run(command)
        self.assertEqual(outcome.code, 65, str(outcome))
        self.assertIn("has the format 4, written by a newer version of dslaunch", outcome.text)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    unittest.main(verbosity=2)
