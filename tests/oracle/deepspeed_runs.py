#!/usr/bin/env python3
"""Runs drawn DeepSpeed configs under DeepSpeed and under dslaunch, and names every step where the two part.

    PYTHON_WITH_DEEPSPEED_0.18.2 tests/oracle/deepspeed_runs.py [--cases 40] [--seed 1] [--keep FOLDER]

The same small model from the same weights, the same samples in the same order, on one and two CPU ranks. Compared at
every step: loss, learning rate, gradient norm, loss scale, skipped steps; and the weights at the end. No part of the
test run: needs DeepSpeed 0.18.2 (DS_BUILD_OPS=0) beside PyTorch, ninja and a C++ compiler; its first use builds
DeepSpeed's CPU Adam.

Not drawn is what DeepSpeed 0.18.2 itself gets wrong, each seen with configs like these:

  stage 2 with accumulation   only the last micro batch counts (its issue 7718; independent_gradient_partition_epilogue
                              begins the sum anew while averaged_gradients is None: until the last micro step)
  stage 1 on several ranks, with contiguous_gradients false, or with a grad_accum_dtype that is not the model's type
                              (but for fp32 beside bf16): gradients stay unreduced, each rank applies its own
  a step that doubles the scale   gradients are divided by the new scale, so that it is half a step
  stage 0 in 16 bits          fused: a step on zeros comes first, Adam's bias correction is one step ahead; not fused:
                              the norm is shown with the scale, and bf16's gradients are never set back
  Adagrad at stages 1 to 3    KeyError in 16 bits
  FusedAdam on CPU            adam_w_mode false is ignored
  round_robin_gradients       the weights are right, its functions that read them give out other parameters'"""
import argparse
import datetime
import json
import logging
import math
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [HERE, os.path.join(HERE, "../support/python"), os.path.join(HERE, "../data/deepspeed_checkpoints")]

import tensor_file  # noqa: E402
from tiny_model import make_model  # noqa: E402

STEPS = 12
WORLDS = (1, 2)


def model():
    """Weights that fp16 and bf16 hold exactly: DeepSpeed makes its masters of these, dslaunch of what the file has."""
    net = make_model(1)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(parameter.bfloat16())
    return net


def samples():
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(0, 11, (480, 5), generator=generator)
    return {"tokens": tokens, "labels": (tokens * 3 + 1) % 11}


def some(rng, choices, share=0.5):
    return {key: rng.choice(values) for key, values in choices.items() if rng.random() < share}


def draw_optimizer(rng, stage):
    kind = rng.choice(["Adam", "AdamW", "SGD"] + ["Adagrad"] * (stage == 0))
    decay = {"weight_decay": [0, 0.01, 0.1, 0.5]}
    if kind == "SGD":
        momentum = rng.choice([{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}])
        return kind, {"lr": rng.choice([0.05, 0.01]), **momentum, **some(rng, decay)}
    if kind == "Adagrad":
        return kind, some(rng, {**decay, "lr": [0.01, 0.1], "lr_decay": [0, 0.1],
                                "initial_accumulator_value": [0, 0.1]})
    by_torch = {"torch_adam": True, **some(rng, {"amsgrad": [True, False], "adam_w_mode": [True, False]})}
    return kind, {"eps": 1e-4, **some(rng, {**decay, "lr": [1e-3, 0.01], "betas": [[0.8, 0.95], [0.5, 0.5]]}),
                  **rng.choice([by_torch, some(rng, {"bias_correction": [True, False]})])}


def draw_schedule(rng):
    warmup = {"warmup_num_steps": [0, 1, 2, 5, STEPS, 2 * STEPS], "warmup_type": ["log", "linear"]}
    rates = {"warmup_min_lr": [0, 1e-4, 3e-3], "warmup_max_lr": [0, 1e-3, 0.01]}
    total = {"total_num_steps": rng.choice([1, 3, 6, STEPS, 2 * STEPS])}
    ratios = {"warmup_min_ratio": [0, 0.1, 1.5], "cos_min_ratio": [0, 0.05, 1.0, 2.0]}
    test = {"lr_range_test_min_lr": [1e-4, 0.01], "lr_range_test_step_size": [1, 3, 7],
            "lr_range_test_step_rate": [0, 0.5, 3], "lr_range_test_staircase": [True, False]}
    cycle = {"decay_lr_rate": [0, 0.5, 2], "cycle_first_step_size": [1, 2, 5], "cycle_second_step_size": [1, 4],
             "decay_step_size": [0, 1, 3], "cycle_momentum": [True, False], "cycle_min_mom": [0.0, 0.85],
             "cycle_max_mom": [0.9, 0.95], "decay_mom_rate": [0, 0.001]}
    return rng.choice([("WarmupLR", some(rng, {**warmup, **rates})),
                       ("WarmupDecayLR", {**some(rng, {**warmup, **rates}), **total}),
                       ("WarmupCosineLR", {**some(rng, {**warmup, **ratios}), **total}),
                       ("LRRangeTest", some(rng, test)),
                       ("OneCycle", {"cycle_min_lr": 1e-4, "cycle_max_lr": 0.01, **some(rng, cycle)})])


def draw(rng):
    stage, precision = rng.choice([0, 1, 2, 3]), rng.choice(["fp32", "bf16", "fp16"])
    if stage == 0:
        precision = "fp32"
    kind, params = draw_optimizer(rng, stage)
    at_once = stage == 2 or stage == 1 and precision != "fp32"
    config = {"train_micro_batch_size_per_gpu": rng.choice([1, 2, 3]),
              "gradient_accumulation_steps": 1 if at_once else rng.choice([1, 1, 3]),
              "optimizer": {"type": kind, "params": params}, "zero_allow_untested_optimizer": True,
              "zero_optimization": {"stage": stage, "reduce_bucket_size": 20000, **some(rng, {
                  "overlap_comm": [True, False], "reduce_scatter": [True, False], "allgather_partitions": [True, False],
                  "stage3_prefetch_bucket_size": [0, 100], "stage3_param_persistence_threshold": [0, 10],
                  "stage3_max_live_parameters": [100, 10**9], "sub_group_size": [50, 10**9]}, 0.2)},
              **some(rng, {"gradient_clipping": [0, 0.1, 0.5, 1.0]})}
    if stage == 0:
        config.update(some(rng, {"prescale_gradients": [True], "gradient_predivide_factor": [0.5, 4.0]}, 0.3))
    if rng.random() < 0.6:
        kind, params = draw_schedule(rng)
        if kind == "WarmupCosineLR" and params.get("warmup_num_steps") == params["total_num_steps"]:
            params["warmup_num_steps"] = 0  # dslaunch refuses at the start what DeepSpeed divides by zero at the end
        config["scheduler"] = {"type": kind, "params": params}
    if precision != "fp32":
        if stage > 1:
            config["data_types"] = {"grad_accum_dtype": "fp32"}
        config[precision] = {"enabled": True}
    if precision == "fp16":
        config["fp16"].update(rng.choice([{"loss_scale": rng.choice([1, 128, 2**20])},
                                          {"initial_scale_power": rng.choice([0, 8, 16, 20, 24])}]),
                              **some(rng, {"hysteresis": [1, 3], "consecutive_hysteresis": [True, False],
                                           "min_loss_scale": [0, 2, 2**14]}))
    return {"world": rng.choice(WORLDS), "config": config}


def masters(net):
    """The fp32 weights, by name; the module's own where DeepSpeed keeps no others."""
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param
    out = {}
    for name, parameter in net.named_parameters():
        value = safe_get_full_fp32_param(parameter) if parameter.requires_grad else None
        if value is None:
            with deepspeed.zero.GatheredParameters([parameter], enabled=hasattr(parameter, "ds_id")):
                value = parameter.data.clone()
        out[name] = value.detach().float().flatten().tolist()
    return out


def deepspeed_run(config):
    import deepspeed
    net, data = model(), samples()
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    engine, *_ = deepspeed.initialize(model=net, model_parameters=trained, config=config)
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    steps, micro, at, stopped = [], engine.train_micro_batch_size_per_gpu(), 0, None
    try:
        for _ in range(STEPS):
            lr, scale, losses = engine.optimizer.param_groups[0]["lr"], getattr(engine.optimizer, "loss_scale", 1.0), []
            for _ in range(engine.gradient_accumulation_steps()):
                begin, at = at + rank * micro, at + micro * world
                loss = engine(data["tokens"][begin:begin + micro], data["labels"][begin:begin + micro])
                engine.backward(loss)
                engine.step()
                losses.append(loss.detach().float())
            mean = torch.stack(losses).mean()
            torch.distributed.all_reduce(mean)
            norm = engine.get_global_grad_norm()
            steps.append({"loss": mean.item() / world, "lr": float(lr), "loss_scale": float(scale),
                          "grad_norm": None if norm is None else float(norm), "skipped": engine.skipped_steps})
    except Exception as error:  # at the minimum of the loss scale DeepSpeed ends the run by one
        stopped = str(error)
    out = {"steps": steps, "stopped": stopped, "weights": masters(net)}
    engine.destroy()
    return out


def rank_main(folder):
    """One rank of DeepSpeed: all cases of its world size, one after the other."""
    import deepspeed
    from deepspeed.accelerator import get_accelerator
    logging.disable(logging.WARNING)
    deepspeed.init_distributed(dist_backend="gloo", timeout=datetime.timedelta(minutes=2))
    get_accelerator().is_fp16_supported = lambda: True  # it asks for mkldnn's fp16; torch's plain kernels do as well
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name, "case.json")) as file:
            case = json.load(file)
        if case["world"] != torch.distributed.get_world_size():
            continue
        try:
            out = deepspeed_run(case["config"])
        except Exception as error:  # what DeepSpeed refuses it refuses on all ranks
            out = {"refused": f"{type(error).__name__}: {error}"}
        if torch.distributed.get_rank() == 0:
            with open(os.path.join(folder, name, "deepspeed.json"), "w") as file:
                json.dump(out, file)


def run_deepspeed(folder, world):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world),
           "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", __file__, "--rank_of", folder]
    ranks = [subprocess.Popen(command, stdout=subprocess.DEVNULL,
                              env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(world)]
    codes = [rank.wait() for rank in ranks]
    if any(codes):
        sys.exit(f"DeepSpeed's ranks ended with {codes}")


def dslaunch_run(folder, case):
    import harness
    data = {"train": os.path.join(folder, "../../data.safetensors"), "shuffle": False, "inputs": ["tokens", "labels"]}
    config, run_dir = os.path.join(folder, "config.json"), os.path.join(folder, "run")
    with open(config, "w") as file:
        json.dump({**case["config"], "data": data}, file, indent=1)
    outcome = harness.run([harness.program("dslaunch"), "--device", "cpu", "--num_gpus", str(case["world"]),
                            "--config", config, "--run_dir", run_dir, "--steps", str(STEPS),
                            os.path.join(folder, "../../model.pt")])
    out = {"code": outcome.code, "said": outcome.text, "steps": [], "weights": {}}
    if os.path.exists(os.path.join(run_dir, "metrics.jsonl")):
        out["steps"] = harness.read_metrics(run_dir)
    if outcome.code == 0:
        whole = os.path.join(folder, "weights.safetensors")
        saved = os.path.join(run_dir, "checkpoints")
        written = harness.run([harness.program("dslaunch"), "consolidate", saved, whole])
        if written.code:
            return {**out, "code": written.code, "said": written.text}
        out["weights"] = {name: value.float().flatten().tolist() for name, value in tensor_file.read(whole).items()}
    return out


def off(ours, theirs, bound):
    """Whether they part. What is not finite is null in dslaunch's metrics."""
    if ours is None or not math.isfinite(theirs):
        return ours is not None or math.isfinite(theirs)
    return not abs(ours - theirs) <= bound * abs(theirs) + 1e-12


def differences(case, ours, theirs):
    """What parts the two, in words. A norm that DeepSpeed has not (without clipping) is not compared."""
    if "refused" in theirs:
        return [] if ours["code"] else [f"DeepSpeed refuses: {theirs['refused'][:300]}"]
    if ours["code"] and not theirs["stopped"]:
        return [f"dslaunch ends with {ours['code']}: {ours['said'][-500:]}"]
    precision = next((name for name in ("bf16", "fp16") if name in case["config"]), "fp32")
    low = precision != "fp32"
    bounds = {"lr": 1e-9, "loss_scale": 0, "loss": 3e-2 if low else 2e-5, "grad_norm": 5e-2 if low else 5e-5}
    out, skipped = [], 0
    for number, (a, b) in enumerate(zip(ours["steps"], theirs["steps"]), 1):
        skipped += a["overflow"]
        found = [f"{key} {a[key]}, DeepSpeed {b[key]}" for key, bound in bounds.items()
                 if not (key == "grad_norm" and (a["overflow"] or b[key] is None)) and off(a[key], b[key], bound)]
        if skipped != b["skipped"]:
            found.append(f"{skipped} steps skipped, DeepSpeed {b['skipped']}")
        if found:
            out.append(f"step {number}: {'; '.join(found)}")
            break
    if theirs["stopped"]:
        return out + ([] if ours["code"] else [f"DeepSpeed stops: {theirs['stopped'][:300]}"])
    if len(ours["steps"]) != len(theirs["steps"]):
        out.append(f"{len(ours['steps'])} steps, DeepSpeed {len(theirs['steps'])}")
    start, bound = dict(model().named_parameters()), {"bf16": 2e-2, "fp16": 2e-3, "fp32": 2e-5}[precision]
    all_names = set(model().state_dict())  # with buffers, and every name of what is tied
    for whose, has, names in (("dslaunch", ours["weights"], all_names), ("DeepSpeed", theirs["weights"], set(start))):
        if set(has) != names:
            return out + [f"weights that only {whose} or only the model has: {sorted(set(has) ^ names)}"]
    for name in start:
        apart = (torch.tensor(ours["weights"][name]) - torch.tensor(theirs["weights"][name])).norm().item()
        size = start[name].norm().item() + 0.02 * math.sqrt(start[name].numel())  # a bias begins at zero
        if not apart <= bound * size:
            out.append(f"weights of {name}: {apart / size:.2g} apart")
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="a folder to leave all cases in")
    parser.add_argument("--rank_of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.rank_of:
        rank_main(options.rank_of)
        return
    folder = options.keep or tempfile.mkdtemp(prefix="dsl-deepspeed-")
    folder, rng, parted, refused = os.path.abspath(folder), random.Random(options.seed), 0, 0
    cases = os.path.join(folder, "cases")
    for number in range(options.cases):
        os.makedirs(os.path.join(cases, f"{number:04}"))
        with open(os.path.join(cases, f"{number:04}", "case.json"), "w") as file:
            json.dump(draw(rng), file, indent=1)
    torch.jit.script(model()).save(os.path.join(folder, "model.pt"))
    tensor_file.write(os.path.join(folder, "data.safetensors"), samples())
    for world in WORLDS:
        run_deepspeed(cases, world)
    for name in sorted(os.listdir(cases)):
        with open(os.path.join(cases, name, "case.json")) as file:
            case = json.load(file)
        with open(os.path.join(cases, name, "deepspeed.json")) as file:
            theirs = json.load(file)
        found = differences(case, dslaunch_run(os.path.join(cases, name), case), theirs)
        refused += "refused" in theirs
        parted += bool(found)
        if found:
            print(f"{name}: world {case['world']} {json.dumps(case['config'])}", *found, sep="\n    ")
    print(f"{options.cases} cases, {parted} of them part, {refused} refused by DeepSpeed")
    if not options.keep:
        shutil.rmtree(folder)
    sys.exit(1 if parted else 0)


if __name__ == "__main__":
    main()
