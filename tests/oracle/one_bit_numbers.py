#!/usr/bin/env python3
"""Makes the committed numbers that the 1-bit optimizers are tested against: 50 steps of DeepSpeed's own classes on two and
three ranks, in double precision.

    one_bit_numbers.py OUT_FOLDER          writes one_bit.json (tests/data/optimizers)

Needs what optimizer_numbers.py needs, whose parameters, start values and gradients are used. A rank is a thread here;
its optimizer is DeepSpeed's, with the compressed all-reduce below instead of DeepSpeed's, which needs GPUs and cupy:
the same two rounds in double precision, written after the paper (https://arxiv.org/abs/2102.02888).

DeepSpeed's first call of step() only sets up buffers, counts as a step and drops its gradient. Here it gets none, and
the count goes back to 0. OnebitLamb keeps in the padding of its buffer what the last exchange left there; here it is
zero before each step."""
import json
import math
import os
import sys
import threading
import types

import torch
from optimizer_numbers import PARAMETERS, deepspeed, flat, gradient_value, start_value

from deepspeed.runtime.fp16.onebit import adam, lamb, zoadam

STEPS = 50
SHOWN = (10, 31, 50)
CASES = [  # class of DeepSpeed, type and parameters here, what DeepSpeed calls differently
    (adam.OnebitAdam, "OneBitAdam", {"lr": 0.01, "weight_decay": 0.1, "freeze_step": 10}, {}),
    (adam.OnebitAdam, "OneBitAdam", {"lr": 0.005, "betas": [0.8, 0.95], "eps": 1e-6, "freeze_step": 1}, {}),
    (lamb.OnebitLamb, "OneBitLamb", {"lr": 0.01, "weight_decay": 0.01, "max_coeff": 0.7, "min_coeff": 0.2,
                                     "freeze_step": 12}, {}),
    (lamb.OnebitLamb, "OneBitLamb", {"lr": 0.005, "betas": [0.8, 0.95], "freeze_step": 9, "coeff_beta": 0.5,
                                     "factor_max": 1.5, "factor_min": 0.9, "factor_threshold": 0.05}, {}),
    # Its variance changes for the last time at step var_freeze_step + 1, if that is a step of the schedule.
    (zoadam.ZeroOneAdam, "ZeroOneAdam", {"lr": 0.01, "weight_decay": 0.1, "var_freeze_step": 20, "var_update_scaler": 4,
                                         "local_step_scaler": 5, "local_step_clipper": 3}, {"var_freeze_step": 19}),
]


class Ranks:
    """Lets threads see what each of them brings."""

    def __init__(self, size):
        self.size, self.barrier, self.brought = size, threading.Barrier(size), [None] * size

    def all(self, rank, value):
        self.barrier.wait()
        self.brought[rank] = value
        self.barrier.wait()
        return list(self.brought)


def rounded(exact):
    """Signs (of 0: positive) times the root mean square; and what that loses."""
    scale = exact.square().mean().sqrt()
    out = torch.where(exact >= 0, scale, -scale)
    return out, exact - out


class Backend:
    """One rank of the compressed all-reduce."""

    def __init__(self, ranks, rank):
        self.ranks, self.rank, self.size = ranks, rank, ranks.size

    def compressed_allreduce(self, buffer, worker_error, server_error, local_rank):
        padded = torch.zeros_like(worker_error)
        padded[:buffer.numel()] = buffer.flatten()
        sent, lost = rounded(padded + worker_error)
        worker_error.copy_(lost)
        chunks = [whole.view(self.size, -1)[self.rank] for whole in self.ranks.all(self.rank, sent)]
        mean, lost = rounded(sum(chunks) / self.size + server_error)
        server_error.copy_(lost)
        result = torch.cat(self.ranks.all(self.rank, mean))[:buffer.numel()].view(buffer.shape)
        return buffer.copy_(result)


def make_optimizer(cls, params, values, ranks, rank):
    module = sys.modules[cls.__module__]
    module.dist = types.SimpleNamespace(is_initialized=lambda: True, get_rank=lambda: rank)
    sys.modules["deepspeed.runtime.comm.nccl"] = types.SimpleNamespace(NcclBackend=lambda mpu: Backend(ranks, rank))
    engine = types.SimpleNamespace(mpu=None, local_rank=0, enable_backward_allreduce=True)
    return cls([value for value in values if value.numel() > 0], engine, **params), engine


def gradients_of(rank, step):
    return flat(lambda i: gradient_value(i + 1000 * rank, step), torch.float64)


def run_rank(optimizer, engine, values, ranks, rank, shown):
    for value in values:
        value.grad = torch.zeros_like(value)
    optimizer.step()
    for state in optimizer.state.values():
        state["step"] = 0
    for step in range(1, STEPS + 1):
        every = ranks.all(rank, gradients_of(rank, step))
        for i, value in enumerate(values):
            averaged = sum(each[i] for each in every) / ranks.size
            value.grad = averaged if engine.enable_backward_allreduce else every[rank][i]
        for padding in getattr(optimizer, "dummy_exp_avg", {}).values():
            padding.zero_()
        optimizer.step()
        if step in SHOWN and rank == ranks.size - 1:
            shown[str(step)] = [float(f"{x:.9g}") for value in values for x in value.detach().reshape(-1).tolist()]


def run_case(cls, kind, params, renamed, size):
    ranks, shown, threads = Ranks(size), {}, []
    for rank in range(size):
        values = [torch.nn.Parameter(value) for value in flat(start_value, torch.float64)]
        made = make_optimizer(cls, {**params, **renamed}, values, ranks, rank)
        threads.append(threading.Thread(target=run_rank, args=(*made, values, ranks, rank, shown)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"config": {"optimizer": {"type": kind, "params": params}}, "ranks": size, "values": shown}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    head = {"torch": torch.__version__.split("+")[0], "deepspeed": deepspeed.__version__.split("+")[0],
            "made_by": "tests/oracle/one_bit_numbers.py",
            "parameters": [{"name": name, "shape": shape} for name, shape in PARAMETERS]}
    lines = ",\n".join(json.dumps(run_case(*case, size)) for case in CASES for size in (2, 3))
    with open(os.path.join(sys.argv[1], "one_bit.json"), "w", encoding="utf-8") as out:
        out.write(json.dumps(head)[:-1] + ', "cases": [\n' + lines + "\n]}\n")
    assert math.isfinite(sum(sum(values) for case in json.load(open(out.name))["cases"] for values in case["values"].values()))


if __name__ == "__main__":
    main()
