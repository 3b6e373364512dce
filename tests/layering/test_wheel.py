#!/usr/bin/env python3
"""Packages of the build, as a user installs them: the wheel with pip into a fresh virtual environment, which sees the
installed PyTorch and nothing of this checkout.

usage: test_wheel.py BUILD_FOLDER [CLASS]...
"""
import glob
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

BUILD = os.path.abspath(sys.argv.pop(1))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "dslaunch")
TORCH_SITE = next(iter(glob.glob(os.path.join(CACHE, "torch-2.11.0/lib/python3*/site-packages"))))
PINNED_PYTHON = os.path.join(CACHE, "torch-2.11.0/bin/python")


def clean_environment(home, **variables):
    """Of a user without this checkout and the pinned PyTorch."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("DSLAUNCH_", "PYTHON")) and name not in ("VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH")}
    return {**kept, "HOME": home, "XDG_CACHE_HOME": os.path.join(home, "cache"), "PYTHONDONTWRITEBYTECODE": "1", **variables}


class Packages(unittest.TestCase):
    options = ()

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="dslaunch-wheel-")
        cls.path = pathlib.Path(cls.folder.name)
        cls.out = cls.path / "packages"
        cls.output_of(os.path.join(ROOT, "scripts/wheel"), "--built", BUILD, "--out", cls.out, *cls.options)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def finished(cls, *command, **variables):
        return subprocess.run([str(word) for word in command], cwd=cls.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=300, stdin=subprocess.DEVNULL, check=False,
                              env=clean_environment(cls.folder.name, **variables))

    @classmethod
    def output_of(cls, *command, **variables):
        done = cls.finished(*command, **variables)
        if done.returncode != 0:
            raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}")
        return done.stdout

    @classmethod
    def make_environment(cls, name):
        """A virtual environment that has PyTorch through a path file, so that nothing of torch lies beside dslaunch."""
        environment = cls.path / name
        cls.output_of(PINNED_PYTHON, "-m", "venv", "--without-pip", environment)
        (site,) = environment.glob("lib/python3*/site-packages")
        (site / "torch.pth").write_text(TORCH_SITE + "\n", encoding="utf-8")
        return environment


class Wheel(Packages):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.environment = cls.make_environment("environment")
        # Its dependencies too: pip finds torch==2.11.0 installed.
        cls.output_of(cls.environment / "bin/python", "-m", "pip", "install", "-q", "--no-index", "--find-links", cls.out,
                      "dslaunch")
        (cls.tree,) = cls.environment.glob("lib/python3*/site-packages/dslaunch")

    def test_the_command_is_the_program(self):
        command = self.environment / "bin/dslaunch"
        version = self.output_of(command, "--version", DSLAUNCH_BIN=str(self.environment / "bin"))
        self.assertEqual(version, self.output_of(self.tree / "bin/dslaunch", "--version"))
        self.assertRegex(version, r"^dslaunch (\d+\.\d+\.\d+) \((commit [0-9a-f]{10}(, modified)?, )?LibTorch 2\.11\.0\)\n$")
        (wheel,) = self.out.glob("*.whl")
        self.assertIn(f"-{version.split()[1]}-py3-none-", wheel.name)
        self.assertEqual(self.finished(command, "--no_option").returncode, 64)
        self.assertIn("LibTorch", self.output_of(self.environment / "bin/dsworker", "--version"))

    def test_the_tools_are_commands(self):
        (self.path / "text.txt").write_text("some text of several words " * 20, encoding="utf-8")
        self.output_of(self.environment / "bin/dslaunch", "tokenize", "text.txt", "words.safetensors", "--seq", "8")
        self.assertTrue((self.path / "words.safetensors").exists())
        refused = self.finished(self.environment / "bin/dslaunch", "tokenize", "--size")
        self.assertEqual(refused.returncode, 64)
        self.assertRegex(refused.stdout, r"^dslaunch tokenize: .*see dslaunch tokenize --help")
        # Without the Python of the environment, and none elsewhere.
        none = self.finished(self.tree / "bin/dslaunch", "export", "gpt", "model.pt", PATH=str(self.path))
        self.assertEqual(none.returncode, 69)
        self.assertIn("needs a Python with the package 'torch', which none of these has: python3", none.stdout)
        chosen = self.finished(self.tree / "bin/dslaunch", "export", "--python=/bin/false", "gpt", "model.pt")
        self.assertIn("'torch', which the Python of --python does not have: /bin/false; install it", chosen.stdout)

    def test_completions_and_manual_pages_are_below_the_prefix(self):
        share = self.environment / "share"
        for path in ("bash-completion/completions/dslaunch", "zsh/site-functions/_dslaunch",
                     "fish/vendor_completions.d/dslaunch.fish", "man/man1/dslaunch.1", "man/man1/dslaunch-logs.1"):
            self.assertGreater((share / path).stat().st_size, 100, path)

    def test_no_file_names_a_directory_of_the_build_machine(self):
        searched = {path.name: re.findall(r"(?:RPATH|RUNPATH).*\[(.*)\]", self.output_of("readelf", "-d", path))
                    for path in [*self.tree.glob("bin/*"), *self.tree.glob("lib/dslaunch/*")]}
        self.assertEqual(searched["dsworker"], ["$ORIGIN/../../torch/lib"])
        self.assertEqual(searched["libdslaunch_ssh.so"], ["$ORIGIN"])
        for name, paths in searched.items():
            self.assertTrue(all(each.startswith("$ORIGIN") for path in paths for each in path.split(":")), (name, paths))

    def test_libraries_of_the_modules_come_along(self):
        for module in ("libdslaunch_ssh.so", "libdslaunch_gloo.so"):
            found = dict(re.findall(r"(\S+) => (\S+)", self.output_of("ldd", self.tree / "lib/dslaunch" / module)))
            ours = [name for name in found if name.startswith(("libssh", "libcrypto", "libgloo"))]
            self.assertTrue(ours)
            for name in ours:
                self.assertEqual(os.path.dirname(os.path.realpath(found[name])), str(self.tree / "lib/dslaunch"))

    def test_a_notebook_exports_trains_and_reads_the_losses(self):
        (self.path / "cells.py").write_text(textwrap.dedent("""
            import numpy, torch, dslaunch

            class Net(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layer = torch.nn.Linear(4, 1)

                def forward(self, x, y):
                    return (self.layer(x) - y).square().mean()

            dslaunch.export(Net(), "scripted.pt")
            dslaunch.export(Net(), "traced.pt", (torch.rand(2, 4), torch.rand(2, 1)))
            numpy.savez("data.npz", x=numpy.ones((16, 4), "float32"), y=numpy.ones((16, 1), "float32"))
            config = {"train_micro_batch_size_per_gpu": 2, "data": {"train": "data.npz"}, "checkpoint": {"at_end": False}}
            job = dslaunch.run("traced.pt", config, device="cpu", num_gpus=2, steps=3, run_dir="run",
                               set={"optimizer.type": "SGD", "optimizer.params.lr": 0.1})
            print("steps", [line["step"] for line in job.metrics()])
            print("fewer", job.metrics()[-1]["loss"] < job.metrics()[0]["loss"])
            try:
                dslaunch.run("scripted.pt", config, set={"optimizer.type": "Sdg"})
            except dslaunch.JobFailed as failed:
                print("failed", failed.exit_code, failed)
            try:
                dslaunch.export(torch.nn.Module(), "none.pt", torch.rand(1))
            except ValueError as error:
                print("refused", error)
            import failure  # not the module of this name that the tools have
        """), encoding="utf-8")
        done = self.finished(self.environment / "bin/python", "cells.py")
        self.assertIn("steps [1, 2, 3]\nfewer True\n", done.stdout)
        self.assertRegex(done.stdout, r"failed 65 the job ended with exit code 65:\n.*did you mean 'SGD'")
        self.assertIn("refused Module cannot be traced", done.stdout)
        self.assertIn("ModuleNotFoundError: No module named 'failure'", done.stdout)

    def test_an_older_c_library_than_a_program_needs_is_no_floor(self):
        loader = importlib.machinery.SourceFileLoader("wheel_script", os.path.join(ROOT, "scripts/wheel"))
        script = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
        loader.exec_module(script)
        script.check_floor(self.tree)
        script.FLOOR["GLIBC"] = (2, 17)
        with self.assertRaisesRegex(SystemExit, r"needs GLIBC_2\.\d+, and manylinux_2_35_x86_64 has none later than GLIBC_2\.17"):
            script.check_floor(self.tree)


class FirstRun(Packages):
    """The commands of the README with the installed wheel."""

    def test_the_readme(self):
        environment = self.make_environment("environment")
        self.output_of(environment / "bin/python", "-m", "pip", "install", "-q", "--no-index", "--no-deps",
                       *self.out.glob("*.whl"))
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            section = file.read().split("## Your first run\n")[1].split("\n![")[0]
        lines = [line.removeprefix("    ") for line in section.splitlines() if line.startswith("    ")]
        script = "\n".join(line for line in lines if not line.startswith("export PATH"))
        (self.path / "demo-run").mkdir()
        (self.path / "demo-run/text.txt").write_text("In the beginning was the word. " * 4000, encoding="utf-8")
        done = self.output_of("bash", "-euc", script, PATH=f"{environment}/bin:{os.environ['PATH']}")
        self.assertIn("step 100/100", done)
        self.assertIn("metrics.jsonl", done)


class Others(Packages):
    """The .tar.gz, the .deb and `pip install --target`: a job runs from each, with the PyTorch of the active environment."""
    options = ("--all",)

    def check_job(self, program, **variables):
        model = self.path / "model.pt"
        if not model.exists():
            self.output_of(PINNED_PYTHON, os.path.join(ROOT, "tools/export"), "mlp", model, "--inputs", "4", "--width", "8")
        config = '{"data": {"train": "synthetic", "synthetic": {"x": {"shape": [4]}, "y": {"shape": [1]}}}}'
        self.output_of(program, "--device", "cpu", "--num_gpus", "2", model, "--config", config, "--steps", "2", "--run_dir",
                       self.path / "run", "--overwrite", **variables)

    def active(self):
        return {"VIRTUAL_ENV": os.path.dirname(os.path.dirname(PINNED_PYTHON))}

    def test_the_archive(self):
        (self.path / "an archive").mkdir()
        self.output_of("tar", "-xzf", next(self.out.glob("*.tar.gz")), "-C", self.path / "an archive")
        (program,) = self.path.glob("an archive/dslaunch-*/bin/dslaunch")
        refused = self.finished(program, "infer", self.path, "--prompt", "a")
        self.assertEqual(refused.returncode, 69, refused.stdout)
        self.assertIn("install PyTorch 2.11.0 with pip", refused.stdout)
        self.check_job(program, **self.active())
        package = program.parent.parent / "share/dslaunch/python"
        found = self.output_of(PINNED_PYTHON, "-c", "from dslaunch import programs; print(programs.find_program('dslaunch'))",
                               PYTHONPATH=package)
        self.assertEqual(found.strip(), str(program))

    @unittest.skipUnless(shutil.which("dpkg-deb"), "dpkg-deb is not installed")
    def test_the_debian_package(self):
        deb = next(self.out.glob("*.deb"))
        self.output_of("dpkg-deb", "--extract", deb, self.path / "root")
        self.assertIn("libc6 (>= 2.35)", self.output_of("dpkg-deb", "--field", deb, "Depends"))
        self.check_job(self.path / "root/usr/bin/dslaunch", **self.active())
        self.assertTrue((self.path / "root/usr/lib/python3/dist-packages/dslaunch/__init__.py").exists())

    def test_pip_with_a_target(self):
        environment = self.make_environment("pips")
        self.output_of(environment / "bin/python", "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target",
                       self.path / "target", *self.out.glob("*.whl"))
        self.check_job(self.path / "target/bin/dslaunch")


if __name__ == "__main__":
    unittest.main()
