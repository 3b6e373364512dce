#!/usr/bin/env python3
"""Every command of every README below examples/ is run, in a copy of the folder, and must succeed; and every job file of
configs/ trains, with tiny models and data in the place of those that it is meant for."""
import os
import re
import shutil
import sys
import tempfile
import unittest

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import harness  # noqa: E402


class Examples(unittest.TestCase):
    def walk(self, name):
        folder = tempfile.mkdtemp(prefix="dsl-example-")
        self.addCleanup(shutil.rmtree, folder, True)
        shutil.copytree(os.path.join(harness.ROOT, "tools"), os.path.join(folder, "tools"))
        here = os.path.join(folder, "examples", name)
        shutil.copytree(os.path.join(harness.ROOT, "examples", name), here)
        with open(os.path.join(here, "README.md")) as file:
            blocks = re.findall(r"```bash\n(.*?)```", file.read(), re.S)
        self.assertTrue(blocks)
        path = os.pathsep.join([os.path.dirname(sys.executable), os.path.dirname(harness.program("dslaunch")),
                                os.environ["PATH"]])
        outcome = harness.run(["bash", "-exc", "".join(blocks)], timeout=120, env=harness.environment(PATH=path), cwd=here)
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertNotIn("Traceback", outcome.text)
        return outcome

    def test_own_model(self):
        self.assertIn("mean squared error", self.walk("own_model").out)

    def test_text(self):
        self.assertIn("The licen", self.walk("text").text)

    def test_images(self):
        self.assertIn("did you mean", self.walk("images").text)


class Configs(harness.TrainingTest):
    TOKENS = ["--set", "data.seq_len=12"]
    # What each one needs that its own model and data would bring: the kind of the model, its data, further options.
    NEEDS = {
        "demo.json": ("gpt", "uint8", TOKENS),
        "gpt_bf16.json": ("gpt", "uint16", TOKENS),
        "gpt_fp32.json": ("gpt", "uint16", TOKENS),
        "monitored_gpt.json": ("gpt", "arrays", []),
        "synthetic_gpt.json": ("gpt", "none", ["--set", "data.synthetic.input_ids.shape=[12]",
                                               "--set", "data.synthetic.input_ids.high=64"]),
        "zero1_adamw.yaml": ("mlp", "arrays", []),
    }

    def data(self, kind, form):
        if form == "none":
            return []
        if form == "arrays":
            return ["--data", self.env.data(kind)]
        tokens = torch.randint(0, 64, (5000,), generator=torch.Generator().manual_seed(3))
        path = self.env.path(form + ".bin")
        with open(path, "wb") as file:
            file.write(tokens.numpy().astype(form).tobytes())
        return ["--data", path]

    def test_each_trains(self):
        folder = os.path.join(harness.ROOT, "configs")
        self.assertEqual(sorted(os.listdir(folder)), sorted(self.NEEDS))
        for name, (kind, form, options) in self.NEEDS.items():
            with self.subTest(name):
                run_dir = self.env.run_dir()
                outcome = harness.run([*self.env.launcher(2), "--config",
                                        os.path.join(folder, name), *self.data(kind, form), "--run_dir", run_dir,
                                        "--steps", "6", *options, self.env.model(kind)], cwd=self.env.folder)
                self.assertEqual(outcome.code, 0, str(outcome))
                self.assertEqual(len(harness.read_metrics(run_dir)), 6)


if __name__ == "__main__":
    unittest.main(verbosity=2)
