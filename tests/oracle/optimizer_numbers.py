#!/usr/bin/env python3
"""Makes the committed numbers that lib/runtime/optim is tested against: 200 steps of schedules and optimizers.

    optimizer_numbers.py OUT_FOLDER          writes schedules.json and optimizers.json (tests/data/optimizers)

Needs PyTorch 2.11 and DeepSpeed 0.18.2, installed with DS_BUILD_OPS=0, and a C++ compiler; no GPU. What each number comes from:

  schedules     deepspeed.runtime.lr_schedules on torch.optim, read before each optimizer step
  Adam, AdamW, SGD, Adagrad   torch.optim in double precision (DeepSpeed's Adam computes the same; for Adagrad without
                offload it takes torch.optim itself)
  RMSprop, NAdam, RAdam, Adamax, Adadelta, Rprop, ASGD, Adafactor   torch.optim in double precision
  Adam with torch_adam        what DeepSpeedEngine._configure_basic_optimizer makes of the section, in double precision
  AdamW8bit     AdamW with bitsandbytes' block-wise 8-bit moments, written here after its sources, fp32
  Lion          DeepSpeed's csrc/lion/cpu_lion_impl.cpp, fp32, compiled here
  Lamb          deepspeed.runtime.fp16.onebit.lamb.OnebitLamb before its freeze step, in double precision: plain Lamb
                without bias correction (FusedLamb needs a GPU). With bias correction the rate of each step is multiplied
                by sqrt(1 - beta2^t) / (1 - beta1^t), which is what FusedLamb's kernel does
  Muon          deepspeed.runtime.zero.muon.original_muon.SingleDeviceMuonWithAuxAdam, fp32 with bf16 iterations

Start values and gradients are exact in fp32 and made by integer arithmetic, so that the test makes the same ones."""
import json
import logging
import os
import sys
import types

import torch
from torch.utils import cpp_extension

logging.disable(logging.WARNING)
import deepspeed.comm  # noqa: E402,F401
from deepspeed.runtime import lr_schedules  # noqa: E402
from deepspeed.runtime.engine import DeepSpeedEngine  # noqa: E402
from deepspeed.runtime.fp16.onebit.lamb import OnebitLamb  # noqa: E402
from deepspeed.runtime.zero.muon.original_muon import SingleDeviceMuonWithAuxAdam  # noqa: E402

STEPS = 200
SHOWN = (1, 20, 200)
PARAMETERS = [("embed.weight", (7, 4)), ("scale", ()), ("empty", (0,)), ("blocks.0.fc.weight", (6, 5)),
              ("blocks.0.fc.bias", (6,)), ("blocks.0.norm.weight", (5,)), ("blocks.0.conv.weight", (3, 2, 2, 3)),
              ("blocks.1.proj.weight", (9, 3)), ("blocks.1.proj.bias", (9,)), ("lm_head.weight", (7, 4))]


# Sections whose parameters are arguments of the class in torch.optim, in every regime of its formula.
TORCH_ONLY = [
    ("RMSprop", "RMSprop", {"weight_decay": 0.02}),
    ("RMSprop, momentum", "RMSprop", {"lr": 0.005, "alpha": 0.9, "eps": 1e-6, "momentum": 0.8}),
    ("RMSprop, centered, maximize", "RMSprop", {"lr": 0.005, "eps": 1e-3, "centered": True, "maximize": True}),
    ("RMSprop, centered, momentum", "RMSprop", {"lr": 0.002, "eps": 0.01, "centered": True, "momentum": 0.5}),
    ("NAdam", "NAdam", {"weight_decay": 0.1}),
    ("NAdam, decoupled", "NAdam", {"lr": 0.01, "betas": [0.8, 0.95], "momentum_decay": 0.02, "weight_decay": 0.1,
                                   "decoupled_weight_decay": True, "maximize": True}),
    ("NAdam, steady momentum", "NAdam", {"lr": 0.01, "momentum_decay": 0.0}),
    ("RAdam", "RAdam", {"lr": 0.01, "weight_decay": 0.1}),
    ("RAdam, decoupled", "RAdam", {"lr": 0.01, "betas": [0.8, 0.9], "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Adamax", "Adamax", {"weight_decay": 0.1}),
    ("Adamax, maximize", "Adamax", {"lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-4, "maximize": True}),
    ("Adadelta", "Adadelta", {"weight_decay": 0.1}),
    ("Adadelta, slow", "Adadelta", {"lr": 0.7, "rho": 0.97, "eps": 1e-3, "maximize": True}),
    ("Rprop", "Rprop", {"etas": [0.5, 1.25]}),  # of 1.2, fp32's nearest number is off at each growth
    ("Rprop, bounds", "Rprop", {"lr": 0.05, "etas": [0.7, 1.5], "step_sizes": [1e-3, 0.1], "maximize": True}),
    ("Adafactor", "Adafactor", {"eps1": 2.0**-23}),
    ("Adafactor, bounds", "Adafactor", {"lr": 0.05, "beta2_decay": -0.5, "eps1": 0.25, "eps2": 0.5, "d": 1.5,
                                        "weight_decay": 0.1, "maximize": True}),
    ("ASGD", "ASGD", {"weight_decay": 0.02}),
    ("ASGD, fast decay", "ASGD", {"lr": 0.05, "lambd": 0.05, "alpha": 0.5, "t0": 20, "maximize": True}),
]


def by_torch(kind, params):
    """torch has Adafactor's two eps in one argument."""
    params = dict(params)
    if kind == "Adafactor":
        params["eps"] = params.pop("eps1"), params.pop("eps2", 1e-3)
    return lambda groups: getattr(torch.optim, kind)(groups, **params)


def numel(shape):
    return int(torch.Size(shape).numel())


def start_value(i):
    return ((i * 53) % 997 - 498) / 256


def gradient_value(i, step):
    return ((i * 37 + step * 101 + i * step * 13) % 1009 - 504) / 512


def flat(make, dtype):
    out, first = [], 0
    for _, shape in PARAMETERS:
        count = numel(shape)
        out.append(torch.tensor([make(i) for i in range(first, first + count)], dtype=dtype).reshape(shape))
        first += count
    return out


def schedule_cases():
    adamw = {"type": "AdamW", "params": {"lr": 0.01}}
    grouped = {"type": "AdamW", "params": {"lr": 0.01},
               "param_groups": {"a": {"match": ["a"], "lr": 0.02}, "b": {"match": ["b"], "lr": 0.005}}}
    sgd = {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}}
    one_cycle = {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-2, "cycle_first_step_size": 40}
    return [
        ("WarmupLR", adamw, {"warmup_min_lr": 1e-4, "warmup_max_lr": 0.02, "warmup_num_steps": 100}),
        ("WarmupLR", adamw, {"warmup_num_steps": 77, "warmup_type": "linear"}),
        ("WarmupLR", grouped, {"warmup_min_lr": [0.0, 1e-4, 2e-4], "warmup_max_lr": [0.1, 0.2, 0.3],
                               "warmup_num_steps": 60}),
        ("WarmupDecayLR", adamw, {"total_num_steps": 180, "warmup_num_steps": 30}),
        ("WarmupDecayLR", grouped, {"total_num_steps": 150, "warmup_num_steps": 30, "warmup_type": "linear",
                                    "warmup_min_lr": 1e-5, "warmup_max_lr": [0.1, 0.2, 0.3]}),
        ("WarmupCosineLR", adamw, {"total_num_steps": 170, "warmup_num_steps": 20}),
        ("WarmupCosineLR", grouped, {"total_num_steps": 170, "warmup_num_steps": 20, "warmup_type": "linear",
                                     "warmup_min_ratio": 0.1, "cos_min_ratio": 0.05}),
        ("LRRangeTest", adamw, {"lr_range_test_step_size": 30}),
        ("LRRangeTest", sgd, {"lr_range_test_min_lr": 3e-4, "lr_range_test_step_size": 7,
                              "lr_range_test_step_rate": 2.5, "lr_range_test_staircase": True}),
        ("LRRangeTest", grouped, {"lr_range_test_min_lr": [1e-3, 2e-3, 3e-3], "lr_range_test_step_size": 13}),
        ("OneCycle", adamw, one_cycle),
        ("OneCycle", adamw, {**one_cycle, "cycle_second_step_size": 70, "decay_step_size": 10, "decay_lr_rate": 0.5,
                             "decay_mom_rate": 0.001, "cycle_min_mom": 0.85, "cycle_max_mom": 0.95}),
        ("OneCycle", {"type": "Lamb", "params": {"lr": 0.01}}, {**one_cycle, "decay_step_size": 3,
                                                                "decay_lr_rate": 0.1, "cycle_momentum": False}),
        ("OneCycle", sgd, {**one_cycle, "cycle_first_step_size": 33, "decay_step_size": 5, "decay_lr_rate": 0.2}),
    ]


def torch_groups(section):
    """Groups as DeepSpeed would be handed them: the named ones, then the default group."""
    base = section["params"]["lr"]
    named = section.get("param_groups", {})
    rates = [group.get("lr", base) for group in named.values()] + [base]
    return [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in rates]


def run_schedule(kind, section, params):
    optimizer_class = torch.optim.SGD if section["type"] == "SGD" else torch.optim.AdamW
    optimizer = optimizer_class(torch_groups(section))
    scheduler = getattr(lr_schedules, kind)(optimizer, **params)
    rates, betas = [], []
    for _ in range(STEPS):
        rates.append([group["lr"] for group in optimizer.param_groups])
        betas.append(list(optimizer.param_groups[0].get("betas", ())))
        optimizer.step()
        scheduler.step()
    moves = kind == "OneCycle" and params.get("cycle_momentum", True) and section["type"] != "SGD"
    return {"config": {"optimizer": section, "scheduler": {"type": kind, "params": params}}, "lr": rates,
            "betas": betas if moves else None}


def plain_lamb(groups, **defaults):
    """OnebitLamb in its warm-up, without the communication that its constructor wants to set up."""
    optimizer = OnebitLamb.__new__(OnebitLamb)
    torch.optim.Optimizer.__init__(optimizer, groups, dict(bias_correction=False, max_grad_norm=0.0, **defaults))
    optimizer.lamb_freeze_key, optimizer.initialize, optimizer.freeze_step = False, True, 1 << 40
    optimizer.coeff_beta, optimizer.lamb_coeffs = 0.9, []
    optimizer.exp_avg_flat = optimizer.worker_errors = [None]
    return optimizer


class CpuLion(torch.optim.Optimizer):
    """DeepSpeed's CPU kernel of Lion, compiled from the sources in its package; its Python class asks for a GPU."""

    def __init__(self, groups, **defaults):
        super().__init__(groups, defaults)
        root = os.path.join(os.path.dirname(deepspeed.__file__), "ops", "csrc")
        self.kernel = cpp_extension.load(
            "cpu_lion", [os.path.join(root, "lion", name) for name in ("cpu_lion.cpp", "cpu_lion_impl.cpp")],
            extra_include_paths=[os.path.join(root, "includes")], extra_cflags=["-O1", "-ffp-contract=off"])
        self.kernel.create_lion(0, 1e-3, 0.9, 0.99, 0.0, False)
        self.step_count = 0

    @torch.no_grad()
    def step(self):
        self.step_count += 1
        for group in self.param_groups:
            for p in group["params"]:
                if not self.state[p]:
                    self.state[p]["exp_avg"] = torch.zeros_like(p)
                self.kernel.lion_update(0, self.step_count, group["lr"], *group["betas"], group["weight_decay"],
                                        p.data, p.grad.data, self.state[p]["exp_avg"])


def dynamic_map(signed):
    """bitsandbytes.functional.create_dynamic_map for 8 bits with 7 bits of exponent."""
    data = [0.0, 1.0]
    for i in range(7):
        bounds = torch.linspace(0.1, 1, 2 ** (i if signed else i + 1) + 1, dtype=torch.float64)
        means = 10.0 ** (i - 6) * (bounds[:-1] + bounds[1:]) / 2
        data += means.tolist() + ((-means).tolist() if signed else [])
    return torch.tensor(sorted(data), dtype=torch.float32)


class AdamW8bit(torch.optim.Optimizer):
    """Moments of a parameter in blocks of 256: each the nearest value of the map times the block's largest magnitude."""

    def __init__(self, groups, **defaults):
        super().__init__(groups, defaults)
        self.maps, self.t = (dynamic_map(True), dynamic_map(False)), 0

    def rounded(self, moment, values):
        out = []
        for block in moment.flatten().split(256):
            largest = block.abs().max()
            nearest = (block / largest - values[:, None]).abs().argmin(0) if largest > 0 else (values == 0).nonzero()[0]
            out.append((values[nearest] * largest).expand(block.shape))
        return torch.cat(out).reshape(moment.shape)

    @torch.no_grad()
    def step(self):
        self.t += 1
        for group in self.param_groups:
            (b1, b2), lr = group["betas"], group["lr"]
            for p in group["params"]:
                m, v = self.state[p].get("moments", (torch.zeros_like(p), torch.zeros_like(p)))
                m, v = m + (p.grad - m) * (1 - b1), v * b2 + p.grad * p.grad * (1 - b2)
                root = v.sqrt() * (1 - b2**self.t) ** -0.5 + group["eps"]
                p.sub_(m / root * (lr / (1 - b1**self.t)) + p * (lr * group["weight_decay"]))
                self.state[p]["moments"] = self.rounded(m, self.maps[0]), self.rounded(v, self.maps[1])


def chosen_by_engine(kind, params):
    """The optimizer that DeepSpeed's engine builds from a config section: its choice of class, with that class's defaults."""
    engine = types.SimpleNamespace(optimizer_name=lambda: kind.lower(), optimizer_params=lambda: dict(params),
                                   zero_use_cpu_optimizer=lambda: False)
    return lambda groups: DeepSpeedEngine._configure_basic_optimizer(engine, groups)


def optimizer_cases():
    """name, config section, dtype, groups of parameter indices with settings, constructor, hook before each step"""
    every = [{"indices": range(len(PARAMETERS))}]
    decayed = [i for i, (_, shape) in enumerate(PARAMETERS) if len(shape) >= 2]
    others = [i for i in range(len(PARAMETERS)) if i not in decayed]
    double, single = torch.float64, torch.float32

    def simple(name, kind, params, dtype, make, hook=None):
        return name, {"optimizer": {"type": kind, "params": params}}, dtype, every, make, hook

    def torch_adam(cls, params, **more):
        return lambda groups: cls(groups, lr=params["lr"], betas=tuple(params.get("betas", (0.9, 0.999))),
                                  eps=params.get("eps", 1e-8), weight_decay=params.get("weight_decay", 0.0), **more)

    adamw = {"lr": 0.01, "weight_decay": 0.1}
    adam = {"lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1}
    sgd = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.02}
    torch_adamw = {"lr": 0.01, "torch_adam": True}
    torch_l2 = {**torch_adamw, "weight_decay": 0.1, "adam_w_mode": False}
    adagrad = {"lr": 0.05, "weight_decay": 0.01}
    slowing = {"lr": 0.05, "eps": 1e-6, "lr_decay": 0.01, "initial_accumulator_value": 0.1}
    lion = {"lr": 1e-3, "betas": [0.9, 0.99], "weight_decay": 0.1}
    lamb = {"lr": 0.01, "weight_decay": 0.01, "max_coeff": 0.7, "min_coeff": 0.2}
    muon = {"lr": 0.01, "weight_decay": 0.05}

    def corrected(optimizer, step):
        optimizer.param_groups[0]["lr"] = lamb["lr"] * (1 - 0.999**step)**0.5 / (1 - 0.9**step)

    yield simple("AdamW", "AdamW", adamw, double, torch_adam(torch.optim.AdamW, adamw))
    yield simple("Adam, L2", "Adam", {**adam, "adam_w_mode": False}, double, torch_adam(torch.optim.Adam, adam))
    yield simple("AdamW, AMSGrad, maximize", "AdamW", {**adamw, "amsgrad": True, "maximize": True}, double,
                 torch_adam(torch.optim.AdamW, adamw, amsgrad=True, maximize=True))
    yield simple("Adam, torch_adam", "Adam", torch_adamw, double, chosen_by_engine("Adam", torch_adamw))
    yield simple("Adam, torch_adam, L2", "Adam", torch_l2, double, chosen_by_engine("Adam", torch_l2))
    yield simple("SGD, Nesterov", "SGD", {**sgd, "nesterov": True}, double,
                 lambda groups: torch.optim.SGD(groups, **sgd, nesterov=True))
    yield simple("SGD, dampening, maximize", "SGD", {**sgd, "dampening": 0.3, "maximize": True}, double,
                 lambda groups: torch.optim.SGD(groups, **sgd, dampening=0.3, maximize=True))
    yield simple("Adagrad", "Adagrad", adagrad, double, lambda groups: torch.optim.Adagrad(groups, **adagrad))
    yield simple("Adagrad, slowing", "Adagrad", slowing, double, lambda groups: torch.optim.Adagrad(groups, **slowing))
    for name, kind, params in TORCH_ONLY:
        yield simple(name, kind, params, double, by_torch(kind, params))
    yield simple("AdamW8bit", "AdamW8bit", {**adamw, "min_8bit_size": 0}, single,
                 lambda groups: AdamW8bit(groups, betas=(0.9, 0.999), eps=1e-8, **adamw))
    yield simple("Lion", "Lion", lion, single, lambda groups: CpuLion(groups, **lion))
    yield simple("Lamb", "Lamb", lamb, double,
                 lambda groups: plain_lamb(groups, **lamb, betas=(0.9, 0.999), eps=1e-8), corrected)
    yield simple("Lamb, no bias correction", "Lamb",
                 {"lr": 0.002, "betas": [0.8, 0.99], "eps": 1e-6, "bias_correction": False}, double,
                 lambda groups: plain_lamb(groups, lr=0.002, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.0,
                                           max_coeff=10.0, min_coeff=0.01))

    by_muon = [i for i, (name, shape) in enumerate(PARAMETERS)
               if len(shape) >= 2 and "embed" not in name and "lm_head" not in name]
    muon_groups = [{"indices": by_muon, "use_muon": True, **muon},
                   {"indices": [i for i in range(len(PARAMETERS)) if i not in by_muon], "use_muon": False, **muon}]
    yield ("Muon", {"optimizer": {"type": "Muon", "params": muon}}, single, muon_groups,
           lambda groups: SingleDeviceMuonWithAuxAdam(groups), None)

    no_decay = {"type": "AdamW", "params": adamw, "no_decay": "auto",
                "param_groups": {"head": {"match": ["lm_head.*", "scale"], "lr": 0.003, "weight_decay": 0.3,
                                          "betas": [0.8, 0.99]}}}
    head = [i for i, (name, _) in enumerate(PARAMETERS) if name in ("lm_head.weight", "scale")]
    yield ("AdamW with groups", {"optimizer": no_decay}, double,
           [{"indices": head, "lr": 0.003, "weight_decay": 0.3, "betas": (0.8, 0.99)},
            {"indices": [i for i in others if i not in head], "weight_decay": 0.0},
            {"indices": [i for i in decayed if i not in head]}], torch_adam(torch.optim.AdamW, adamw), None)

    cycle = {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-2, "cycle_first_step_size": 40, "decay_step_size": 10,
             "decay_lr_rate": 0.5}
    schedulers = []

    def cycled(optimizer, step):
        if step == 1:
            schedulers.append(lr_schedules.OneCycle(optimizer, **cycle))
        else:
            schedulers[-1].step()

    yield ("AdamW under OneCycle",
           {"optimizer": {"type": "AdamW", "params": adamw}, "scheduler": {"type": "OneCycle", "params": cycle}}, double,
           every, torch_adam(torch.optim.AdamW, adamw), cycled)


def run_optimizer(name, config, dtype, groups, make, hook):
    values = [torch.nn.Parameter(value) for value in flat(start_value, dtype)]
    built = [{"params": [values[i] for i in group["indices"] if values[i].numel() > 0],
              **{key: value for key, value in group.items() if key != "indices"}} for group in groups]
    optimizer = make(built)
    shown = {}
    for step in range(1, STEPS + 1):
        for value, gradient in zip(values, flat(lambda i: gradient_value(i, step), dtype)):
            value.grad = gradient
        if hook:
            hook(optimizer, step)
        optimizer.step()
        if step in SHOWN:
            shown[str(step)] = [float(f"{x:.10g}") for value in values for x in value.detach().reshape(-1).tolist()]
    return {"name": name, "config": config, "values": shown}


def write(folder, name, content):
    lines = ",\n".join(json.dumps(case) for case in content["cases"])
    head = json.dumps({key: value for key, value in content.items() if key != "cases"})
    with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
        out.write(head[:-1] + ', "cases": [\n' + lines + "\n]}\n")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    versions = {"torch": torch.__version__.split("+")[0], "deepspeed": deepspeed.__version__.split("+")[0],
                "made_by": "tests/oracle/optimizer_numbers.py"}
    torch.set_num_threads(1)
    write(sys.argv[1], "schedules.json", {**versions, "cases": [run_schedule(*case) for case in schedule_cases()]})
    parameters = [{"name": name, "shape": shape} for name, shape in PARAMETERS]
    write(sys.argv[1], "optimizers.json",
          {**versions, "parameters": parameters, "cases": [run_optimizer(*case) for case in optimizer_cases()]})


if __name__ == "__main__":
    main()
