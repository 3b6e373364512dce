"""A random job file for a model, from a seed: what the config says, in which legs the run is made, and how many samples."""
import math
import random
from typing import NamedTuple


class Leg(NamedTuple):
    """One part of a run; a later one resumes the checkpoint of the one before."""
    world: int
    stage: int
    end: int  # steps


class Job(NamedTuple):
    config: dict  # without paths and stage
    legs: tuple
    rows: int
    eval_rows: int  # 0: no evaluation
    ignored: float  # share of labels that do not count


ZERO = {
    "reduce_bucket_size": [1, 40, 333], "allgather_bucket_size": [1, 40, 333], "reduce_scatter": [False],
    "allgather_partitions": [False], "overlap_comm": [True, False], "stage3_prefetch_bucket_size": [0, 30],
    "stage3_max_live_parameters": [0, 100], "stage3_max_reuse_distance": [0, 0, 100], "stage3_model_persistence_threshold": [0, 30],
    "stage3_param_persistence_threshold": [0, 0, 10, 50], "round_robin_gradients": [True], "sub_group_size": [1, 10],
}
PRECISIONS = [
    {}, {}, {}, {"bf16": {"enabled": True}}, {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}},
    {"fp16": {"enabled": True, "initial_scale_power": 8, "loss_scale_window": 3, "hysteresis": 1}},
    {"fp16": {"enabled": True, "loss_scale": 128}},
]
SENDING = [{}] * 5 + [{"communication_data_type": "fp32"}, {"communication_data_type": "bf16"}, {"prescale_gradients": True},
                      {"data_types": {"grad_accum_dtype": "bf16"}},
                      {"prescale_gradients": True, "gradient_predivide_factor": 2.0}]
RECOMPUTATION = [{"enabled": True}, {"number_checkpoints": 1}, {"cpu_checkpointing": True, "enabled": True},
                 {"enabled": True, "contiguous_memory_optimization": True}]

# kind: (params that always stand there, others). eps: see the grid's optimizers.
ADAM = {"betas": [[0.8, 0.95]], "amsgrad": [True], "bias_correction": [False], "maximize": [True]}
OPTIMIZERS = {
    "AdamW": ({"lr": 2e-3, "eps": 1e-5}, ADAM),
    "Adam": ({"lr": 2e-3, "eps": 1e-5}, {**ADAM, "adam_w_mode": [False]}),
    "SGD": ({"lr": 0.02}, {"momentum": [0.9, 0.5], "dampening": [0.2], "maximize": [True]}),
    "Lion": ({"lr": 2e-4}, {"betas": [[0.9, 0.99]]}),
    "Adagrad": ({"lr": 0.01, "eps": 1e-5}, {"lr_decay": [0.1], "initial_accumulator_value": [0.1]}),
    "RMSprop": ({"lr": 2e-3, "eps": 1e-3}, {"alpha": [0.9], "momentum": [0.5], "centered": [True], "maximize": [True]}),
    "NAdam": ({"lr": 2e-3, "eps": 1e-5}, {"betas": [[0.8, 0.95]], "momentum_decay": [0.1],
                                          "decoupled_weight_decay": [True]}),
    "RAdam": ({"lr": 2e-3, "eps": 1e-5}, {"betas": [[0.8, 0.9]], "decoupled_weight_decay": [True]}),
    "Adamax": ({"lr": 2e-3, "eps": 1e-3}, {"betas": [[0.8, 0.95]], "maximize": [True]}),
    "Adadelta": ({"lr": 0.1, "eps": 1e-3}, {"rho": [0.8]}),
    "Adafactor": ({"lr": 5e-3}, {"d": [2.0], "beta2_decay": [-0.5], "eps2": [0.1]}),
    "Lamb": ({"lr": 5e-3, "eps": 1e-5}, {"bias_correction": [False], "eps_inside_sqrt": [True], "max_coeff": [0.5]}),
    "Muon": ({"lr": 2e-3, "eps": 1e-5}, {"momentum": [0.9], "muon_lr": [5e-3], "adam_lr": [1e-3]}),
}
WARMUP = {"warmup_type": ["linear", "log"]}
SCHEDULES = {
    "WarmupLR": ({"warmup_num_steps": 3}, {**WARMUP, "warmup_min_lr": [1e-4], "warmup_max_lr": [1e-3]}),
    "WarmupDecayLR": ({"warmup_num_steps": 3, "total_num_steps": 7}, {**WARMUP, "warmup_max_lr": [1e-3, None]}),
    "WarmupCosineLR": ({"warmup_num_steps": 3, "total_num_steps": 9}, {**WARMUP, "cos_min_ratio": [0.2]}),
    "LRRangeTest": ({"lr_range_test_min_lr": 1e-4, "lr_range_test_step_size": 2}, {"lr_range_test_staircase": [True]}),
    "OneCycle": ({"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-3, "cycle_first_step_size": 2},
                 {"cycle_second_step_size": [3], "decay_step_size": [2], "decay_lr_rate": [0.3], "cycle_momentum": [False]}),
}


def some(rng, options, chance=0.3):
    """Some of the keys, each with one of its values."""
    return {key: rng.choice(values) for key, values in options.items() if rng.random() < chance}


def optimizer(rng):
    kind = rng.choice([*OPTIMIZERS])
    always, others = OPTIMIZERS[kind]
    params = {**always, **some(rng, others), **some(rng, {"weight_decay": [0.01, 0.1]}, 0.6)}
    section = {"type": kind, "params": params, **some(rng, {"no_decay": ["auto", ["*bias"], ["ndim<2"]]}, 0.2)}
    group = some(rng, {"lr": [3 * params["lr"]], "weight_decay": [0.3]})
    if group:
        section["param_groups"] = {"first": {"match": [rng.choice(["head*", "*weight", "ndim>=2"])], **group}}
    return section


def scheduler(rng):
    kind = rng.choice([*SCHEDULES])
    always, others = SCHEDULES[kind]
    return {"type": kind, "params": {**always, **some(rng, others)}}


def legs(rng, model):
    first = Leg(rng.choice([1, 2, 2, 2, 3, 4]), rng.choice([0, 1, 2, 3, 3]), rng.choice([4, 5, 6]))
    if rng.random() < 0.7:
        return (first,)
    world = first.world if model.draws else rng.choice([1, 2, 3])  # each rank has random numbers of its own
    return (first._replace(end=rng.randint(1, first.end - 1)), Leg(world, rng.choice([0, 1, 2, 3]), first.end))


def make(model, seed):
    rng = random.Random(seed)
    parts, accumulation = legs(rng, model), rng.choice([1, 1, 2, 3])
    batch = rng.choice([2, 3]) * math.lcm(*(leg.world for leg in parts)) * accumulation  # a batch norm wants two samples
    precision = rng.choice(PRECISIONS)
    if model.form == "trace" and ("nn.LSTM" in model.source or "nn.GRU(" in model.source) or "Bilinear" in model.source:
        precision = {}  # refused: a trace of theirs keeps fp32, and autocast knows nothing of the last
    config = {
        "train_batch_size": batch, "gradient_accumulation_steps": accumulation, "optimizer": optimizer(rng),
        "zero_optimization": {"stage3_param_persistence_threshold": 0, **some(rng, ZERO)}, "train": {"seed": 7},
        "data": {"shuffle": rng.random() < 0.5, "seed": 3, "drop_last": rng.random() < 0.5,
                 "num_workers": rng.randint(0, 2)},
        "checkpoint": {"async": rng.random() < 0.3}, **precision, **rng.choice(SENDING),
        **some(rng, {"gradient_clipping": [0.01, 0.1, 1.0], "activation_checkpointing": RECOMPUTATION,
                     "units": [[name] for name in model.blocks], "deterministic": [True]}),
    }
    if rng.random() < 0.5:
        config["scheduler"] = scheduler(rng)
    ignored = 0.0
    if model.loss:
        config["loss"] = model.loss
        if rng.random() < 0.3:
            config["loss_average"], ignored = "tokens", 0.3
    eval_rows = rng.randint(1, 20) if rng.random() < 0.25 else 0
    if eval_rows:
        config["train"]["eval_interval"] = rng.choice([0, 2])
    return Job(config, parts, batch * rng.randint(1, 3) + rng.randint(0, batch - 1), eval_rows, ignored)
