#!/usr/bin/env python3
"""The oracle of promise 1: one process, plain PyTorch, the same file, samples and settings as a run of dslaunch.

    one_process.py MODEL.pt DATA.safetensors CONFIG.json --steps 50 [--shares 4]

prints one JSON object a step: step, loss, lr, grad_norm. Global batch k is samples kB ... (k+1)B-1. It is computed in
accumulation x shares pieces, whose losses and gradients are averaged: 1 share is the plain program; a model whose result
depends on how a batch is split (BatchNorm, dropout) needs as many shares as the run has ranks. Each share has buffers and
random numbers (seeded with train.seed + share) of its own, as a rank has. Rates follow the formulas of DeepSpeed's
schedules, written here a second time on purpose."""
import argparse
import contextlib
import json
import math
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import plain_optimizers  # noqa: E402
import tensor_file  # noqa: E402

LABELS = ("labels", "label", "y")


def learning_rate(config, step):
    """The rate that optimizer step `step` (from 1) uses: the schedule was stepped step-1 times, from n = -1."""
    base = config.get("optimizer", {}).get("params", {}).get("lr", 1e-3)
    if "scheduler" not in config:
        return base
    kind, params = config["scheduler"]["type"], config["scheduler"].get("params", {})
    n = step - 2
    if kind == "LRRangeTest":
        x = (n + 1) / params.get("lr_range_test_step_size", 2000)
        x = math.floor(x) if params.get("lr_range_test_staircase") else x
        return params.get("lr_range_test_min_lr", 1e-3) * (1 + params.get("lr_range_test_step_rate", 1.0) * x)
    if kind == "OneCycle":
        height, decays = one_cycle(params, n)
        low, high = params["cycle_min_lr"], params["cycle_max_lr"]
        return (low + (high - low) * height) / (1 + params.get("decay_lr_rate", 0.0) * decays)
    warm = max(2, params.get("warmup_num_steps", 1000))
    linear = params.get("warmup_type", "log") == "linear"
    gamma = n / warm if linear else math.log(max(n, 0) + 1) / math.log(warm)
    total = params.get("total_num_steps")
    if kind == "WarmupCosineLR":
        first, last = params.get("warmup_min_ratio", 0.0), params.get("cos_min_ratio", 1e-4)
        if n < 0:
            return 0.0
        if n < warm:
            return base * (first + (1 - first) * gamma)
        cosine = (1 + math.cos(math.pi * (n - warm + 1) / (total - warm))) / 2
        return base * max(0.0, last + (1 - last) * cosine)
    low = params.get("warmup_min_lr", 0.0)
    high = params.get("warmup_max_lr", base if kind == "WarmupLR" else 1e-3)
    high = base if high is None else high
    if n < 0:
        return low
    if n < warm:
        return low + (high - low) * gamma
    if kind == "WarmupLR":
        return high
    return low + (high - low) * max(0.0, (total - n) / max(1.0, total - warm))


def one_cycle(params, n):
    """How high on the way up or down the cycle stands at index n, and how many decay steps lie behind its end."""
    up = params.get("cycle_first_step_size", 2000)
    down = params.get("cycle_second_step_size") or up
    size = params.get("decay_step_size", 0)
    if n >= up + down:
        return 0.0, (n + 1 - up - down) / size if size else 0.0
    at = (n + 1) % (up + down) if n >= 0 else 0
    return (at / up if at <= up else (up + down - at) / down), 0.0


def betas(config, step):
    """What OneCycle makes of the betas; None when nothing does."""
    scheduler = config.get("scheduler", {})
    params = scheduler.get("params", {})
    if scheduler.get("type") != "OneCycle" or not params.get("cycle_momentum", True):
        return None
    low, high = params.get("cycle_min_mom", 0.8), params.get("cycle_max_mom", 0.9)
    height, decays = one_cycle(params, step - 2) if step > 1 else (1.0, 0.0)
    return (high - (high - low) * height) * (1 + params.get("decay_mom_rate", 0.0) * decays), 0.99


def make_optimizer(config, named):
    """`named`: (name, master weight, number of dims) of each parameter."""
    section = config.get("optimizer", {"type": "AdamW"})
    kind, given = section["type"].lower(), dict(section.get("params", {}))
    if kind == "muon":
        return plain_optimizers.make_muon(named, given)
    params = plain_optimizers.by_name(config, named)
    if plain := plain_optimizers.make(kind, params, given):
        return plain
    lr, decay = given.get("lr", 1e-3), given.get("weight_decay", 0.0)
    if kind == "sgd":
        return torch.optim.SGD(params, lr, given.get("momentum", 0.0), given.get("dampening", 0.0), decay,
                               given.get("nesterov", False))
    decoupled = kind == "adamw" or given.get("adam_w_mode", True)
    settings = {"lr": lr, "betas": tuple(given.get("betas", (0.9, 0.999))), "eps": given.get("eps", 1e-8),
                "weight_decay": decay, "foreach": False, "amsgrad": given.get("amsgrad", False),
                "maximize": given.get("maximize", False)}
    return (torch.optim.AdamW if decoupled else torch.optim.Adam)(params, **settings)


class Samples:
    """Arrays by name, and the row numbers of global batch k without shuffling."""

    def __init__(self, path, config):
        self.arrays = tensor_file.read(path)
        section = config.get("data", {})
        names = list(self.arrays)
        self.inputs = section.get("inputs") or [name for name in names if name not in LABELS]
        self.labels = section.get("labels") or [name for name in names if name in LABELS]
        self.count = len(self.arrays[names[0]])
        self.drop_last = section.get("drop_last", True)

    def rows(self, k, batch):
        usable = self.count // batch * batch if self.drop_last else self.count
        return [(k * batch + i) % usable for i in range(batch)]

    def take(self, names, rows, dtype):
        picked = [self.arrays[name][rows] for name in names]
        return [tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in picked]


def loss_of(model, loss_name, inputs, labels, upcast=False):
    """`upcast`: a loss that the config names is taken of outputs in fp32 (docs/precision.md)."""
    if not loss_name:
        result = model(*inputs, *labels)
        if isinstance(result, dict):
            return result["loss"]
        return result[0] if isinstance(result, (tuple, list)) else result
    functional = {"cross_entropy": torch.nn.functional.cross_entropy, "mse": torch.nn.functional.mse_loss}
    outputs = model(*inputs)
    return functional[loss_name](outputs.float() if upcast else outputs, *labels)


def label_dtype(config, dtype):
    """Of labels of floats: a loss that the config names computes in fp32."""
    return torch.float32 if config.get("loss") in ("cross_entropy", "mse") else dtype


class Share:
    """What a rank has of its own: the model with its buffers, a stream of random numbers."""

    def __init__(self, model, seed, dtype):
        self.model = model.to(dtype)
        self.params = [p for p in model.parameters() if p.requires_grad]
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.random_state = torch.get_rng_state()

    @contextlib.contextmanager
    def random_numbers(self):
        with torch.random.fork_rng():
            torch.set_rng_state(self.random_state)
            yield
            self.random_state = torch.get_rng_state()


class Trainer:
    def __init__(self, models, samples, config):
        """`models`: one for each share, all alike."""
        self.samples, self.config = samples, config
        self.batch = config["train_batch_size"]
        self.accumulation = config.get("gradient_accumulation_steps", 1)
        self.clip = config.get("gradient_clipping", 0.0)
        self.dtype = torch.bfloat16 if config.get("bf16", {}).get("enabled") else torch.float32
        named = [(name, p) for name, p in models[0].named_parameters() if p.requires_grad]
        self.master = [torch.nn.Parameter(p.detach().float().clone()) for _, p in named]
        self.optimizer = make_optimizer(config, [(name, master, p.dim()) for (name, p), master in zip(named, self.master)])
        seed = config.get("train", {}).get("seed", 42)
        half = self.dtype if self.dtype != torch.float32 else None  # fp32 runs leave the model's own types as they are
        self.shares = [Share(model, seed + i, half) for i, model in enumerate(models)]
        self.pieces = self.accumulation * len(self.shares)

    def piece(self, share, rows):
        """Loss and gradients (fp32) of one micro batch of one rank."""
        inputs = self.samples.take(self.samples.inputs, rows, self.dtype)
        labels = self.samples.take(self.samples.labels, rows, label_dtype(self.config, self.dtype))
        with share.random_numbers():
            loss = loss_of(share.model, self.config.get("loss"), inputs, labels)
            gradients = torch.autograd.grad(loss, share.params, allow_unused=True)
        return loss.item(), [torch.zeros_like(m) if g is None else g.float() for g, m in zip(gradients, self.master)]

    def add_up(self, k):
        """The sums of the losses and the gradients of global batch k, over all shares' pieces."""
        rows = self.samples.rows(k, self.batch)
        size = self.batch // self.pieces
        total_loss, total = 0.0, [torch.zeros_like(m) for m in self.master]
        for i in range(self.pieces):
            loss, gradients = self.piece(self.shares[i % len(self.shares)], rows[i * size:(i + 1) * size])
            total_loss += loss
            for sum_, gradient in zip(total, gradients):
                sum_ += gradient
        return total_loss, total

    def step(self, k):
        total_loss, total = self.add_up(k)
        for sum_ in total:
            sum_ /= self.pieces
        return {"step": k + 1, "loss": total_loss / self.pieces, "lr": learning_rate(self.config, k + 1),
                "grad_norm": self.apply(total, learning_rate(self.config, k + 1), betas(self.config, k + 1))}

    def apply(self, gradients, lr, cycled=None):
        norm = math.sqrt(sum(g.double().square().sum().item() for g in gradients))
        factor = max(1.0, (norm + 1e-6) / self.clip) if self.clip else 1.0
        for master, gradient in zip(self.master, gradients):
            master.grad = gradient / factor
        for group in self.optimizer.param_groups:
            group["lr"] = lr
            if cycled and "betas" in group:
                group["betas"] = cycled
        self.optimizer.step()
        with torch.no_grad():
            for share in self.shares:
                for param, master in zip(share.params, self.master):
                    param.copy_(master)
        return norm


def train(model_path, data_path, config, steps, shares=1, trainer=Trainer):
    """The metrics of every step. Deterministic: one thread, one order. A function that makes the model may stand for its
    path."""
    torch.set_num_threads(1)
    make = model_path if callable(model_path) else lambda: torch.jit.load(model_path)
    models = [make() for _ in range(shares)]
    trainer = trainer(models, Samples(data_path, config), config)
    return [trainer.step(k) for k in range(steps)]


def loss_at(model, data_path, config, step, shares=1):
    """The loss that `model` (a module with weights from elsewhere) has on the samples of step `step`."""
    torch.set_num_threads(1)
    samples, batch = Samples(data_path, config), config["train_batch_size"]
    rows, pieces = samples.rows(step - 1, batch), shares * config.get("gradient_accumulation_steps", 1)
    size = batch // pieces
    losses = []
    for i in range(pieces):
        part = rows[i * size:(i + 1) * size]
        inputs, labels = (samples.take(names, part, torch.float32) for names in (samples.inputs, samples.labels))
        losses.append(loss_of(model, config.get("loss"), inputs, labels).item())
    return sum(losses) / pieces


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("config")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--shares", type=int, default=1)
    args = parser.parse_args()
    with open(args.config) as file:
        config = json.load(file)
    for row in train(args.model, args.data, config, args.steps, args.shares):
        print(json.dumps(row))


if __name__ == "__main__":
    sys.exit(main())
