"""What the tests that drive the real programs share: tiny models and data, the command line, and how a run is read back.
The programs come from DSLAUNCH_BIN (a folder or the path of dslaunch); everything is written below one temporary folder."""
import importlib.machinery
import importlib.util
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import light_torch  # noqa: F401
import torch

import tensor_file

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
BATCH = 36  # divides by worlds 1, 2, 3, 4 times accumulation 1 and 3
SAMPLES = 7 * BATCH + 5  # 50 steps cross several epochs, and each has a remainder
LIMIT_S = 60  # of a run, where a test names no other

# Models are tiny: a second thread of OpenMP only spins, on a core that another test needs.
torch.set_num_threads(1)


def program(name):
    given = os.environ.get("DSLAUNCH_BIN", os.path.join(ROOT, "build/dev/bin"))
    folder = given if os.path.isdir(given) else os.path.dirname(given)
    return os.path.join(os.path.abspath(folder), name)


def export_tool():
    """tools/export as a module: the tool itself makes the models, without a new Python for each."""
    sys.path.insert(0, os.path.join(ROOT, "tools"))
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("export_tool", os.path.join(ROOT, "tools/export"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("export_tool", loader))
    loader.exec_module(module)
    return module


MODELS = {
    "mlp": ["mlp", "--inputs", "6", "--width", "16", "--layers", "2"],
    "gpt": ["gpt", "--vocab", "64", "--seq", "12", "--blocks", "2", "--width", "32", "--heads", "2"],
    "wide_gpt": ["gpt", "--vocab", "64", "--seq", "12", "--blocks", "2", "--width", "256", "--heads", "2"],
    "convnet": ["convnet", "--classes", "5", "--width", "6", "--blocks", "2", "--size", "6"],
}


def samples_of(kind):
    generator = torch.Generator().manual_seed(7)
    if kind == "mlp":
        x = torch.randn(SAMPLES, 6, generator=generator)
        return {"x": x, "y": torch.sin(x.sum(1, keepdim=True))}
    if kind == "gpt":
        start = torch.randint(0, 64, (SAMPLES, 1), generator=generator)
        tokens = (start + 5 * torch.arange(13)) % 64
        noise = torch.randint(0, 64, tokens.shape, generator=generator)
        tokens = torch.where(torch.rand(tokens.shape, generator=generator) < 0.2, noise, tokens)
        return {"input_ids": tokens[:, :-1].contiguous(), "labels": tokens[:, 1:].contiguous()}
    x = torch.randn(SAMPLES, 1, 6, 6, generator=generator)
    return {"x": x, "label": (x.mean((1, 2, 3)) * 12 + 2.5).long().clamp(0, 4)}


def base_config(kind, **changes):
    config = {
        "train_batch_size": BATCH,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 0.4,
        "optimizer": {"type": "AdamW", "params": {"lr": 2e-3, "weight_decay": 0.01}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10, "warmup_type": "linear"}},
        "zero_optimization": {"stage": 0},
        "data": {"shuffle": False},
    }
    if kind == "convnet":
        config.update(loss="cross_entropy", gradient_clipping=0.2)
    config.update(changes)
    return config


def own_environment():
    """This process's, without what a launch around it has set for its ranks."""
    return {key: value for key, value in os.environ.items()
            if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")}


def environment(**changes):
    return {**own_environment(), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **changes}


class Outcome:
    """A finished program: code, out, err, seconds; `text` is all that it said."""

    def __init__(self, command, code, out, err, seconds):
        self.command, self.code, self.out, self.err, self.seconds = command, code, out, err, seconds
        self.text = out + err

    def __str__(self):
        return f"{' '.join(self.command)}\n-> {self.code} after {self.seconds:.1f} s\n{self.out}{self.err}"


def start(command):
    """Starts a command in a session of its own; all that it says comes out of its stdout."""
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
                            errors="replace", env=environment(), start_new_session=True)


def run(command, timeout=None, env=None, cwd=None, stdin=subprocess.DEVNULL):
    """Runs a command to its end; when it takes longer than `timeout` it is killed with its group and that is an error."""
    timeout = timeout or LIMIT_S
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=stdin, text=True,
                               errors="replace", env=env or environment(), cwd=cwd, start_new_session=True)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"no end within {timeout} s: {' '.join(command)}\n{out}{err}")
    return Outcome(command, process.returncode, out, err, time.monotonic() - began)


def read_metrics(run_dir):
    with open(os.path.join(run_dir, "metrics.jsonl")) as file:
        return [json.loads(line) for line in file]


def job_processes(folder):
    """Live processes whose command line or environment names `folder`: what a run has left behind. [(pid, command)]"""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        try:
            command, env, status = (read_proc(pid, name) for name in ("cmdline", "environ", "status"))
        except OSError:
            continue  # it has ended meanwhile, or is not ours to read
        if folder.encode() in command + env and not re.search(rb"^State:\s+Z", status, re.M):
            found.append((int(pid), command.replace(b"\0", b" ").decode(errors="replace").strip()))
    return found


def wait_for_end(pid, limit=10):
    """Until the process has ended, `limit` seconds at most."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([process], [], [], limit)
    finally:
        os.close(process)


def read_proc(pid, name):
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()


def rank_processes(folder, rank):
    """The dsworker processes of one rank of the job that runs in `folder`."""
    ranks = []
    for pid, command in job_processes(folder):
        try:
            variables = read_proc(pid, "environ").split(b"\0")
            is_worker = os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "dsworker"
        except OSError:
            continue
        if is_worker and b"RANK=%d" % rank in variables:
            ranks.append(pid)
    return ranks


def memory_folder():
    """For runs by the hundred, each of which makes sure of its checkpoint: a folder where that waits for no disk; None where
    the machine has none."""
    folder = "/dev/shm"
    return folder if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > 2**31 else None


class TrainingEnv:
    """A temporary folder with the models, the data and the runs of one test class."""

    def __init__(self, parent=None):
        self.folder = tempfile.mkdtemp(prefix="dsl-oracle-", dir=parent)
        self.tool = export_tool()
        self.made = 0

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def model(self, kind, form="script", *extra):
        path = self.path("-".join([kind, form, *extra]).replace("-" * 3, "-") + ".pt")
        if not os.path.exists(path):
            quiet, sys.stderr = sys.stderr, open(os.devnull, "w")
            try:
                self.tool.main(MODELS[kind] + [path, *extra] + (["--trace"] if form == "trace" else []))
            finally:
                sys.stderr.close()
                sys.stderr = quiet
        return path

    def data(self, kind):
        path = self.path(f"{kind}.safetensors")
        if not os.path.exists(path):
            tensor_file.write(path, samples_of(kind))
        return path

    def config(self, config, ending=".json", text=None):
        self.made += 1
        path = self.path(f"config{self.made}{ending}")
        with open(path, "w") as file:
            file.write(json.dumps(config, indent=1) if text is None else text)
        return path

    def run_dir(self):
        self.made += 1
        return self.path(f"run{self.made}")

    def ranks(self, world):
        """What asks for that many ranks."""
        return ["--device", "cpu", "--num_gpus", str(world)]

    def launcher(self, world):
        """What starts that many ranks, with the options that ask for them."""
        return [program("dslaunch"), *self.ranks(world)]

    def command(self, model, data, config, run_dir, world=1, steps=50, extra=()):
        """Without data and steps: of an evaluation."""
        path = config if isinstance(config, str) else self.config(config)
        return [*self.launcher(world), "--config", path, *(["--data", data] if data else []), "--run_dir", run_dir,
                *(["--steps", str(steps)] if steps else []), *extra, model]

    def run(self, model, data, config, run_dir, world=1, steps=50, extra=()):
        """The outcome of a run of dslaunch."""
        return run(self.command(model, data, config, run_dir, world, steps, extra))

    def train(self, model, data, config, world=1, steps=50, run_dir=None, extra=()):
        """Runs to success and returns (metrics, run folder)."""
        run_dir = run_dir or self.run_dir()
        outcome = self.run(model, data, config, run_dir, world, steps, extra)
        if outcome.code != 0:
            raise AssertionError(f"expected success: {outcome}")
        return read_metrics(run_dir), run_dir

    def consolidate(self, run_dir, name, *options):
        """One file of a run's newest checkpoint; its ending says of which kind."""
        out = self.path(name)
        outcome = run([program("dslaunch"), "consolidate", os.path.join(run_dir, "checkpoints"), out, *options])
        if outcome.code != 0:
            raise AssertionError(f"expected success: {outcome}")
        return out


class TrainingTest(unittest.TestCase):
    """A test class with its own `env`, which starts programs; that of pooled.py runs in the grid's pools."""

    @classmethod
    def make_env(cls):
        return TrainingEnv()

    @classmethod
    def setUpClass(cls):
        cls.env = cls.make_env()
        cls.addClassCleanup(cls.env.close)
