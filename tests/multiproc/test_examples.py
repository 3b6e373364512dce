#!/usr/bin/env python3
"""Every command of every README below examples/ is run, in a copy of the folder, and must succeed; and every job file of
configs/ trains, with tiny models and data in the place of those that it is meant for. So does every published file with
offloading."""
import contextlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
import unittest

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), folder) for folder in ("../support/python", "../../tools")]
import light_torch  # noqa: E402,F401
import torch  # noqa: E402
import harness  # noqa: E402
import model_packages  # noqa: E402
import tensor_file  # noqa: E402
from analysis import analyze  # noqa: E402


class Notebook(unittest.TestCase):
    """examples/notebook, executed by nbclient in a Python of its own, as Jupyter would."""

    EXECUTE = """
import sys
import nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""

    @unittest.skipUnless(os.path.isdir(model_packages.folder("notebook_packages.txt")), "scripts/setup --tests installs it")
    def test_it_trains_and_plots_the_loss(self):
        folder = tempfile.mkdtemp(prefix="dsl-notebook-")
        self.addCleanup(shutil.rmtree, folder, True)
        packages = os.pathsep.join([os.path.join(harness.ROOT, "python"), model_packages.folder("notebook_packages.txt")])
        environment = harness.environment(
            PYTHONPATH=packages, DSLAUNCH_BIN=os.path.dirname(harness.program("dslaunch")), HOME=folder, MPLBACKEND="",
            # Where the kernel python3 is said to be this Python.
            JUPYTER_PATH=os.path.join(model_packages.folder("notebook_packages.txt"), "share/jupyter"))
        done = os.path.join(folder, "done.ipynb")
        outcome = harness.run([sys.executable, "-c", self.EXECUTE, os.path.join(harness.ROOT, "examples/notebook/train.ipynb"),
                               done], timeout=180, env=environment, cwd=folder)
        self.assertEqual(outcome.code, 0, str(outcome))
        with open(done, encoding="utf-8") as file:
            outputs = [output for cell in json.load(file)["cells"] for output in cell.get("outputs", [])]
        self.assertTrue(any("image/png" in output.get("data", {}) for output in outputs))
        self.assertIn("step 80/80", "".join("".join(output.get("text", "")) for output in outputs))
        with open(os.path.join(folder, "run/metrics.jsonl"), encoding="utf-8") as file:
            losses = [json.loads(line)["loss"] for line in file]
        self.assertEqual(len(losses), 80)
        self.assertLess(losses[-1], losses[0] / 4)


class Examples(unittest.TestCase):
    def walk(self, name, steps=None):
        """`steps`: instead of those in the README, which are for people to watch."""
        folder = tempfile.mkdtemp(prefix="dsl-example-")
        self.addCleanup(shutil.rmtree, folder, True)
        shutil.copytree(os.path.join(harness.ROOT, "tools"), os.path.join(folder, "tools"))
        shutil.copytree(os.path.join(harness.ROOT, "examples"), os.path.join(folder, "examples"))
        here = os.path.join(folder, "examples", name)
        with open(os.path.join(here, "README.md")) as file:
            blocks = re.findall(r"```bash\n(.*?)```", file.read(), re.S)
        self.assertTrue(blocks)
        script = "".join(blocks)
        if steps:
            script, count = re.subn(r"--steps \d+", f"--steps {steps}", script)
            self.assertGreater(count, 0)
        path = os.pathsep.join([os.path.dirname(sys.executable), os.path.dirname(harness.program("dslaunch")),
                                os.environ["PATH"]])
        outcome = harness.run(["bash", "-exc", script], timeout=120, env=harness.environment(PATH=path), cwd=here)
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertNotIn("Traceback", outcome.text)
        return outcome

    def test_own_model(self):
        self.assertIn("mean squared error", self.walk("own_model").out)

    def test_text(self):
        self.assertIn("The licen", self.walk("text").text)

    def test_images(self):
        self.assertIn("did you mean", self.walk("images").text)

    def test_cifar(self):
        text = self.walk("cifar", steps=3).text
        for mesh in ("1 data x 2 stages", "2 data x 2 stages"):
            self.assertEqual(text.count(f"({mesh})"), 1, text)

    def test_alexnet(self):
        text = self.walk("alexnet", steps=3).text
        for mesh, times in (("1 data x 2 stages", 2), ("1 data x 4 stages", 1)):
            self.assertEqual(text.count(f"({mesh})"), times, text)

    @unittest.skipIf(model_packages.WHY_NOT, model_packages.WHY_NOT)
    def test_gpt2(self):
        text = self.walk("gpt2", steps=3).text
        self.assertIn("tied: 'model.transformer.wte.weight' is held by stages 0, 1", text)
        self.assertIn("receives 1 tensor", text)


def read(path):
    with open(path) as file:
        return file.read()


def offloading_files():
    found = []
    for name in ("guide_configs", "offload_configs"):
        folder = os.path.join(harness.ROOT, "tests", "data", name)
        found += [os.path.join(folder, file) for file in sorted(os.listdir(folder))]
    return [path for path in found if "offload" in read(path)]


def nvme_options(config, directory):
    """The directory of the test in the place of the directories for files in a job file's text."""
    return ["--nvme_path", directory] if re.search(r'"(offload_\w+)": \{[^}]*"nvme"', config) else []


class Configs(harness.TrainingTest):
    TOKENS = ["--set", "data.seq_len=12"]
    LAYERS = [option for key, value in (("random_ltd_layer_num", "2"), ("random_ltd_layer_id", "[0, 1]"),
                                        ("random_ltd_schedule.min_value", "4"), ("random_ltd_schedule.max_value", "12"),
                                        ("random_ltd_schedule.schedule_config.seq_per_step", "4"))
              for option in ("--set", f"data_efficiency.data_routing.random_ltd.{key}={value}")]
    # What each one needs that its own model and data would bring: the kind of the model, its data, further options.
    NEEDS = {
        "curriculum_gpt.json": ("gpt", "uint16", [*TOKENS, "--stages", "2", "--verify", "6",
                                                   "--set", "curriculum_learning.min_difficulty=4",
                                                   "--set", "curriculum_learning.schedule_config.difficulty_step=4",
                                                   "--set", "curriculum_learning.schedule_config.total_curriculum_step=300"]),
        "demo.json": ("gpt", "uint8", TOKENS),
        "dynamic_batching_gpt.json": ("gpt", "padded", ["--tp", "2", "--verify", "6", "--set", "bf16.enabled=false",
                                                        "--set", "data_efficiency.data_sampling"
                                                        ".dynamic_batching.max_tokens=40"]),
        "fp8_gpt.json": ("wide_gpt", "uint16", TOKENS),
        "gpt_bf16.json": ("gpt", "uint16", TOKENS),
        "gpt_fp32.json": ("gpt", "uint16", TOKENS),
        "monitored_gpt.json": ("gpt", "arrays", []),
        "pipeline_gpt.json": ("gpt", "uint16", [*TOKENS, "--stages", "2"]),
        "tensor_parallel_llama.json": ("gpt", "uint16", [*TOKENS, "--tp", "2"]),
        "zero2_offload.json": ("gpt", "uint16", TOKENS),
        "zero3_nvme.json": ("gpt", "uint16", TOKENS),
        "zero3_offload.json": ("gpt", "uint16", TOKENS),
        "random_ltd_gpt.json": ("gpt", "uint16", [*TOKENS, "--tp", "2", "--set", "data_efficiency.data_routing.random_ltd"
                                                  ".total_layer_num=2", *LAYERS]),
        "synthetic_gpt.json": ("gpt", "none", ["--set", "data.synthetic.input_ids.shape=[12]",
                                               "--set", "data.synthetic.input_ids.high=64"]),
        "zero1_adamw.yaml": ("mlp", "arrays", []),
    }

    def data(self, kind, form):
        if form == "none":
            return []
        if form == "arrays":
            return ["--data", self.env.data(kind)]
        if form == "padded":
            return ["--data", self.padded(kind)]
        tokens = torch.randint(0, 64, (5000,), generator=torch.Generator().manual_seed(3))
        path = self.env.path(form + ".bin")
        with open(path, "wb") as file:
            file.write(tokens.numpy().astype(form).tobytes())
        return ["--data", path]

    def padded(self, kind):
        """Samples of 3 to 12 tokens, and the index of their lengths."""
        arrays = harness.samples_of(kind)
        count, length = arrays["input_ids"].shape
        mask = torch.arange(length)[None] < 3 + torch.arange(count)[:, None] % (length - 2)
        path = self.env.path("padded.safetensors")
        tensor_file.write(path, {"input_ids": arrays["input_ids"] * mask, "mask": mask.to(torch.uint8),
                                 "labels": torch.where(mask, arrays["labels"], -100)})
        self.analyze(path)
        return path

    def analyze(self, *arguments):
        with contextlib.redirect_stdout(io.StringIO()):
            analyze.main([*arguments[:1], self.env.path("metrics"), *arguments[1:]])

    def test_each_trains(self):
        folder = os.path.join(harness.ROOT, "configs")
        _, tokens = self.data("gpt", "uint16")
        self.analyze(tokens, "--seq", "12", "--metrics", "vocabularyrarity")
        self.assertEqual(sorted(os.listdir(folder)), sorted(self.NEEDS))
        for name, (kind, form, options) in self.NEEDS.items():
            with self.subTest(name):
                self.train(os.path.join(folder, name), self.env.model(kind), 6, [*self.data(kind, form), *options])

    def test_each_published_file_with_offloading_trains(self):
        """As it is, but for the directory of what is kept in files."""
        data = self.data("gpt", "arrays")
        for path in offloading_files():
            with self.subTest(os.path.basename(path)):
                self.train(path, self.env.model("gpt"), 2, data)

    def train(self, path, model, steps, options):
        run_dir = self.env.run_dir()
        options = [*options, *nvme_options(read(path), self.env.folder)]
        outcome = harness.run([*self.env.launcher(2), "--config", path, "--run_dir", run_dir, "--steps", str(steps),
                               *options, model], cwd=self.env.folder)
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual(len(harness.read_metrics(run_dir)), steps)


if __name__ == "__main__":
    unittest.main(verbosity=2)
