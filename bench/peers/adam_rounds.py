#!/usr/bin/env python3
"""The peers of bench/cpu_adam: steps of AdamW on the CPU, one for each line of standard input.

    adam_rounds.py COUNT THREADS

The lines are `torch fp32`: PyTorch's fused AdamW with fp32 gradients, which are all it takes; `torch bf16`: the same with
a bf16 gradient widened before and bf16 parameters written after it, as needs to be done around it; `deepspeed fp32`:
DeepSpeedCPUAdam, where it can be imported and compiled. The answers are two numbers of milliseconds: on the clock, and
processor time of all threads together. The first line says which kinds there are, as a JSON object of name to null or
the reason why not."""
import json
import os
import sys
import time

count, threads = int(sys.argv[1]), int(sys.argv[2])
os.environ["OMP_NUM_THREADS"] = str(threads)
out = os.fdopen(os.dup(1), "w")  # for the answers alone: DeepSpeed and compilers that it starts print
os.dup2(2, 1)

import torch  # noqa: E402

torch.set_num_threads(threads)


def filled(value):
    tensor = torch.empty(count)
    return tensor.copy_(torch.arange(count) % 1000).mul_(value)  # touched by all threads


parameter = torch.nn.Parameter(filled(1e-3))
parameter.grad = filled(1e-5)
half_gradient, half_parameter = parameter.grad.to(torch.bfloat16), parameter.detach().to(torch.bfloat16)
optimizers = {"torch": torch.optim.AdamW([parameter], lr=1e-3, fused=True)}
missing = {"torch fp32": None, "torch bf16": None, "deepspeed fp32": None}
try:
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    optimizers["deepspeed"] = DeepSpeedCPUAdam([parameter], lr=1e-3, adamw_mode=True)
except Exception as error:  # no package, no compiler, no operator: many types
    missing["deepspeed fp32"] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def step(kind):
    if kind == "torch bf16":
        parameter.grad.copy_(half_gradient)
    optimizers[kind.split()[0]].step()
    if kind == "torch bf16":
        half_parameter.copy_(parameter.detach())


for kind, reason in missing.items():
    if reason is None:
        step(kind)  # makes its moments
print(json.dumps(missing), file=out, flush=True)
for line in sys.stdin:
    began, cpu_began = time.perf_counter(), time.process_time()
    step(line.strip())
    ended, cpu_ended = time.perf_counter(), time.process_time()
    print((ended - began) * 1000, (cpu_ended - cpu_began) * 1000, file=out, flush=True)
