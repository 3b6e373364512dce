"""Runs of dslaunch and of the peers on this host's GPUs, for the scripts of this folder."""
import json
import os
import random
import statistics
import subprocess
import sys
import time
from array import array

import bench_report as report

PARAMETERS = {"gpt-32m": 32.1e6, "gpt-163m": 163.1e6, "gpt-1.4b": 1416.7e6, "gpt-2.7b": 2780.4e6, "gpt-6.9b": 6864.6e6}
WIDTH = {"gpt-32m": 256, "gpt-163m": 768, "gpt-1.4b": 2048, "gpt-2.7b": 2560, "gpt-6.9b": 4096}
BLOCKS = {"gpt-32m": 8, "gpt-163m": 12, "gpt-1.4b": 24, "gpt-2.7b": 32, "gpt-6.9b": 32}
VOCABULARY = 50304
MICRO = {"gpt-32m": 4, "gpt-163m": 16, "gpt-1.4b": 8, "gpt-2.7b": 4, "gpt-6.9b": 4}  # samples a GPU
SEQUENCE = {"gpt-32m": 256, "gpt-163m": 1024, "gpt-1.4b": 1024, "gpt-2.7b": 2048, "gpt-6.9b": 2048}
WITH_WEIGHTS = ("gpt-32m", "gpt-163m", "gpt-1.4b")  # those whose files hold initial weights, so that all programs start from the same ones
DRIVER_FLOOR = "import ctypes; c = ctypes.CDLL('libcuda.so.1'); c.cuInit(0); p = ctypes.c_void_p(); " \
               "c.cuDevicePrimaryCtxRetain(ctypes.byref(p), 0)"


def gpu_count():
    try:
        out = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    return len(out.strip().splitlines())


def require_gpus():
    if not gpu_count():
        report.fail(69, "no GPU here (nvidia-smi --list-gpus names none)")


def environment(args, python, **changes):
    """Of programs of --bin, with the libraries of --host-torch."""
    env = report.environment(**changes)
    if args.host_torch:
        env["LD_LIBRARY_PATH"] = ":".join(report.torch_libraries(python) + [env.get("LD_LIBRARY_PATH", "")]).rstrip(":")
    return env


class Runner:
    """args: bin, host_torch, and device if it is not cuda. Models and configs are made once, below `folder`. `train`: the
    parameters that are trained, a pattern; the others are frozen."""

    def __init__(self, args, folder, train=""):
        self.folder, self.python, self.device = folder, report.torch_python(), getattr(args, "device", "cuda")
        self.train = ["--train", train] if train else []
        self.dslaunch = report.program(args.bin, "dslaunch")
        self.env = environment(args, self.python, OMP_NUM_THREADS="8")
        self.models = {}

    def model(self, preset):
        if preset not in self.models:
            path = os.path.join(self.folder, preset + ".pt")
            report.checked([self.python, os.path.join(report.ROOT, "tools/export"), preset, path, *self.train,
                            *([] if preset in WITH_WEIGHTS else ["--empty"])])
            self.models[preset] = path
        return self.models[preset]

    def data(self, preset, samples):
        """Random tokens; a label follows from its own token, so that losses fall and say something when they are compared."""
        path = os.path.join(self.folder, f"{preset}-{samples}.safetensors")
        if not os.path.exists(path):
            shape = [samples, SEQUENCE[preset]]
            tokens = array("q", random.Random(0).choices(range(VOCABULARY), k=shape[0] * shape[1]))
            labels = array("q", [(5 * token + 7) % VOCABULARY for token in tokens]).tobytes()
            entry = {"dtype": "I64", "shape": shape, "data_offsets": [0, len(labels)]}
            header = json.dumps({"input_ids": entry, "labels": {**entry, "data_offsets": [len(labels), 2 * len(labels)]}})
            header += " " * (-len(header) % 8)
            with open(path, "wb") as file:
                file.write(len(header).to_bytes(8, "little") + header.encode() + tokens.tobytes() + labels)
        return path

    def config(self, preset, stage, steps):
        path = os.path.join(self.folder, f"{preset}-{stage}.json")
        with open(path, "w") as file:
            json.dump({"train_micro_batch_size_per_gpu": MICRO[preset], "gradient_accumulation_steps": 1,
                       "bf16": {"enabled": True}, "zero_optimization": {"stage": stage, "overlap_comm": True},
                       "graph_harvesting": False,
                       "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
                       **({} if preset in WITH_WEIGHTS else {"init": {"seed": 0, "std": 0.02}}), "train": {"steps": steps},
                       "checkpoint": {"at_end": False}, "data": {"shuffle": False}}, file)
        return path

    def command(self, preset, world, stage, steps, run_dir, settings=()):
        return [self.dslaunch, "--device", self.device, "--num_gpus", str(world), "--config", self.config(preset, stage, steps),
                *(part for setting in settings for part in ("--set", setting)),
                "--data", self.data(preset, MICRO[preset] * world * steps), "--run_dir", run_dir, "--steps", str(steps), self.model(preset)]

    def ours(self, preset, world, stage, steps, warm, settings=(), trace=False):
        """The rows of metrics.jsonl after the warm-up; `settings`: KEY=VALUE of the config. With `trace` the last step is
        traced and its time not counted; `spans`: {category: {name: milliseconds in all}}."""
        run_dir = os.path.join(self.folder, f"{preset}-{world}-{stage}-{time.monotonic_ns()}")
        command = self.command(preset, world, stage, steps, run_dir, settings)
        report.checked(command + (["--trace", str(steps)] if trace else []), env=self.env, timeout=300)
        with open(os.path.join(run_dir, "metrics.jsonl")) as file:
            rows = [json.loads(line) for line in file]
        timed = rows[warm:-1] if trace else rows[warm:]
        return {"step_ms": [row["step_ms"] for row in timed], "loss": [row["loss"] for row in rows],
                "gpu_mem_bytes": max((row.get("gpu_mem_bytes") or 0) for row in rows),
                "host_mem_bytes": max((row.get("host_mem_bytes") or 0) for row in rows),
                "spans": spans_of(os.path.join(run_dir, f"trace.step_{steps}.rank_0.json")) if trace else {}}

    def timings(self, preset, run_dir):
        """The table of --timings of a run of one step on one GPU."""
        lines = report.checked([*self.command(preset, 1, 0, 1, run_dir), "--timings"], env=self.env).splitlines()
        lines = [line.split("| ", 1)[-1] for line in lines]  # without the rank's prefix
        first = next(i for i, line in enumerate(lines) if line.startswith("where the time went"))
        end = next(i for i in range(first + 1, len(lines) + 1) if i == len(lines) or not line_of_table(lines[i]))
        return "\n".join(lines[first:end])

    def peer(self, preset, world, kind, steps, warm, *options):
        out = os.path.join(self.folder, f"peer-{time.monotonic_ns()}.json")
        report.checked([self.python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(world),
                        os.path.join(report.ROOT, "bench/peers/train_gpt.py"), "--kind", kind, "--preset", preset,
                        "--data", self.data(preset, MICRO[preset] * world * steps), "--micro", str(MICRO[preset]), "--steps",
                        str(steps), "--mean-loss", "--out", out, *self.train, *options,
                        *(["--weights", self.model(preset)] if preset in WITH_WEIGHTS else [])],
                       env=self.env, timeout=300)
        with open(out) as file:
            result = json.load(file)
        return {**result, "step_ms": result["step_ms"][warm:]}

    def first_step(self, preset, run_dir, **environment):
        """Seconds from launch until metrics.jsonl holds the first step; with `environment`."""
        metrics = os.path.join(run_dir, "metrics.jsonl")
        command = self.command(preset, 1, 0, 1, run_dir)
        log = open(run_dir + ".log", "wb+")
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env={**self.env, **environment},
                                   stdin=subprocess.DEVNULL)
        while not (os.path.exists(metrics) and os.path.getsize(metrics)) and process.poll() is None:
            time.sleep(0.001)
        seconds = time.monotonic() - began
        if process.wait(timeout=120):
            log.seek(0)
            raise RuntimeError(f"{' '.join(command)}:\n{log.read().decode(errors='replace')[-3000:]}")
        return seconds


def line_of_table(line):
    return line.startswith(("  ", "beside these"))


def spans_of(path):
    """{category: {name: milliseconds in all}} of a trace; of phases that the GPU executed, its own times. "exposed": host
    updates that run while no kernel of the compute stream does, and copies of offloaded state beside neither."""
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    lanes = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    sums = {}
    kernels, updates, copies = [], [], []
    for event in events:
        if event["ph"] != "X" or (event["cat"] == "phase" and lanes[event["tid"]] != "device: step"):
            continue
        of_name = sums.setdefault(event["cat"], {})
        of_name[event["name"]] = of_name.get(event["name"], 0) + event["dur"] / 1000
        interval = (event["ts"], event["ts"] + event["dur"])
        if event["cat"] == "kernel" and "(compute)" in lanes[event["tid"]]:
            kernels.append(interval)
        elif event["cat"] == "offload":
            (updates if event["name"] == "host update" else copies).append(interval)
    covered = [covered_ms(kernels), covered_ms(kernels + updates), covered_ms(kernels + updates + copies)]
    sums["exposed"] = {"updates": covered[1] - covered[0], "copies": covered[2] - covered[1]}
    return sums


def covered_ms(intervals):
    """The length of the union of intervals in microseconds."""
    total, end = 0, float("-inf")
    for first, last in sorted(intervals):
        total += max(0, last - max(first, end))
        end = max(end, last)
    return total / 1000


def figures(preset, world, result):
    """(ms a step, tokens a second, loss after the steps) as cells of a table."""
    if isinstance(result, Exception):
        print(result, file=sys.stderr)
        return ["failed", "", ""]
    milliseconds = statistics.median(result["step_ms"])
    tokens = MICRO[preset] * SEQUENCE[preset] * world / milliseconds * 1000
    return [report.spread(result["step_ms"]), f"{tokens:,.0f}", f"{result['loss'][-1]:.3f}"]


def expected_gib(preset, world, stage, frozen=False, in_8_bits=False, own_kernels=True):
    """(state, activations) in GiB a rank, from docs/zero.md and from what eager PyTorch keeps of this GPT in bf16.

    Without gradients: these come as activations go, and take less (in those of the models here).

    Activations: 17 tensors of the width a block and token (two norms' inputs and outputs, qkv 3, attention's output twice,
    the MLP's 4 + 4, the residual), 10 where the linear layers are frozen and so need not keep their inputs (1 + 1 + 1 + 4);
    at the loss, for each logit: itself and its gradient (2 + 2 bytes); with PyTorch's operators its fp32 copy, the
    log-softmax and that one's gradient too (4 + 4 + 4)."""
    params, width, blocks = PARAMETERS[preset], WIDTH[preset], BLOCKS[preset]
    largest = max(12 * width * width, VOCABULARY * width)  # elements of the largest unit
    whole, shard = {0: (2 + 4 + 8, 0), 1: (2, 4 + 8), 2: (2, 4 + 8), 3: (0, 2 + 4 + 8)}[stage]
    if frozen:  # but for some vectors: no master or moment, and buckets only of those
        whole, shard = (0, 1 + 4 / 256 if in_8_bits else 2) if stage == 3 else (2, 0)
    state = params * (whole + shard / world)
    if stage >= 2 and not frozen:
        state += 2 * 2 * largest
    if stage == 3:
        state += 3 * 2 * largest
    tokens = MICRO[preset] * SEQUENCE[preset]
    activations = tokens * (2 * (10 if frozen else 17) * width * blocks + (4 if own_kernels else 16) * VOCABULARY)
    return state / 2**30, activations / 2**30
