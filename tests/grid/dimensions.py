"""The grid's one table: what is varied, over which values, what a case's job file looks like, and which combinations the
runtime is expected to refuse. A new optimizer, model or setting becomes a row here and nothing else."""
import copy
import tempfile
from typing import Callable, NamedTuple

import model_cases

WORLDS = (1, 2, 3, 4)
SLOW_WORLD = 7
STAGES = (0, 1, 2, 3)
ACCUMULATIONS = (1, 3)
CLIPPINGS = (0.0, 0.05)
STEPS = 12
WARMUP = 5

PRECISIONS = {
    "fp32": {},
    "bf16": {"bf16": {"enabled": True}},
    "fp16": {"fp16": {"enabled": True, "initial_scale_power": 8, "loss_scale_window": 6, "hysteresis": 1}},
}

# eps is far above the rounding noise of gradients that are zero by nature (a key's bias in attention): Adam would
# otherwise turn that noise into steps of full size, different ones for every order of additions.
OPTIMIZERS = {
    "AdamW": {"type": "AdamW", "params": {"lr": 2e-3, "weight_decay": 0.01, "eps": 1e-5}},
    "Adam": {"type": "Adam", "params": {"lr": 2e-3, "weight_decay": 0.05, "eps": 1e-5, "betas": [0.8, 0.95],
                                        "adam_w_mode": False}},
    "SGD": {"type": "SGD", "params": {"lr": 0.02, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}},
    "AdamW_groups": {"type": "AdamW", "params": {"lr": 2e-3, "weight_decay": 0.3, "eps": 1e-5}, "no_decay": "auto"},
    "Adagrad": {"type": "Adagrad", "params": {"lr": 0.01, "eps": 1e-5}},
    "Lion": {"type": "Lion", "params": {"lr": 2e-4, "weight_decay": 0.1, "betas": [0.9, 0.99]}},
    "Lamb": {"type": "Lamb", "params": {"lr": 5e-3, "weight_decay": 0.01, "eps": 1e-5}},
    "Muon": {"type": "Muon", "params": {"lr": 2e-3, "weight_decay": 0.01, "momentum": 0.9, "eps": 1e-5}},
}
# In the full set only, with the base model. ASGD is not here, as torch's takes a schedule's rates a step late
# (docs/optimizers.md), nor Rprop, which follows signs.
MORE_OPTIMIZERS = {
    "RMSprop": {"type": "RMSprop", "params": {"lr": 1e-3, "momentum": 0.9, "centered": True, "eps": 1e-3, "weight_decay": 0.01}},
    "NAdam": {"type": "NAdam", "params": {"lr": 2e-3, "eps": 1e-5, "weight_decay": 0.01}},
    "RAdam": {"type": "RAdam", "params": {"lr": 2e-3, "eps": 1e-5, "weight_decay": 0.01}},
    "Adamax": {"type": "Adamax", "params": {"lr": 2e-3, "eps": 1e-5}},
}

def offloaded(case, sections):
    """Stage 0 and optimizers of whole parameters are refused with offload (tests/unit/config)."""
    return {"zero_optimization": sections} if case.stage > 0 and case.optimizer not in ("Lamb", "Muon") else {}


# Settings that move the work and must leave the numbers alone, at every stage (where they mean nothing, trivially).
VARIANTS = {
    "default": {},
    "small_buckets": {"zero_optimization": {"reduce_bucket_size": 40, "allgather_bucket_size": 40}},
    "all_reduce": {"zero_optimization": {"reduce_scatter": False}},
    "broadcast": {"zero_optimization": {"allgather_partitions": False}},
    "overlap": {"zero_optimization": {"overlap_comm": True}},
    "prescale": {"prescale_gradients": True},
    "comm_fp32": {"communication_data_type": "fp32"},
    "one_slot": {"zero_optimization": {"stage3_max_live_parameters": 0, "stage3_prefetch_bucket_size": 0}},
    "no_prefetch": {"zero_optimization": {"stage3_prefetch_bucket_size": 0, "stage3_max_reuse_distance": 0}},
    # Two slots for most units; the last ones stay gathered from forward to backward.
    "some_kept": {"zero_optimization": {"stage3_prefetch_bucket_size": 0, "stage3_max_reuse_distance": 100}},
    "some_whole": {"zero_optimization": {"stage3_param_persistence_threshold": 20}},
    # State in host memory; what a stage cannot offload stays.
    "offload": lambda case: offloaded(case, {"offload_optimizer": {"device": "cpu"}}),
    "offload_all": lambda case: offloaded(case, {"offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"},
                                                 "sub_group_size": 50}),
    "offload_half": lambda case: offloaded(case, {"offload_optimizer": {"device": "cpu", "ratio": 0.5 if case.stage == 3 else 1},
                                                  "offload_param": {"device": "cpu", "pin_memory": True}}),
    "offload_files": lambda case: offloaded(case, {
        "offload_optimizer": {"device": "nvme", "nvme_path": tempfile.gettempdir(), "pipeline_read": True,
                              "pipeline_write": case.stage != 2, "buffer_count": 2 + case.stage},
        "offload_param": {"device": "nvme", "nvme_path": tempfile.gettempdir(), "buffer_size": 300,
                          "buffer_count": 1 + case.stage, "max_in_cpu": 100 * (case.world % 2)}}),
    # Under fp16 only: the first steps overflow and are skipped. The split decides which, as gradients differ in size.
    "overflows": {"fp16": {"initial_scale_power": 22}},
}

MODELS = tuple(model_cases.CASES)

# Pipelines of stages, with every schedule, at ZeRO 0 and 1. `PIPES`: the numbers of stages by world; worlds of
# PIPELINE_WORLDS are for the full set, with stages or tensor ranks only. With 1 and 3 micro batches there are fewer than
# stages, too.
PIPES = {2: (2,), 3: (3,), 4: (2, 4), 6: (2, 3), 8: (2, 4)}
PIPELINE_WORLDS = (6, 8)
SCHEDULES = ("1f1b", "gpipe", "zb-h1")
PIPELINE_STAGES = (0, 1)  # of ZeRO
# model -> its layers: stages of different sizes, a tied first and last weight, tuples, activations that pass by
# stages, running statistics. (Random numbers differ by stage: tests/oracle/test_pipeline.py.)
PIPELINE_MODELS = {"plain": 3, "tied": 4, "batch_norm": 4, "tuples": 4, "nested": 4, "skip_connections": 5}
# Settings that are for pipelines only, and those of VARIANTS that mean something there.
STAGE_VARIANTS = {
    "recompute": {"activation_checkpointing": {"enabled": True}},
    "uniform": {"pipeline": {"partition": "uniform"}},
    # Of tensor ranks.
    "sequence_parallel": {"tensor_parallel": {"sequence_parallel": True}},
    "sequence_recompute": {"tensor_parallel": {"sequence_parallel": True}, "activation_checkpointing": {"enabled": True}},
}
PIPELINE_VARIANTS = ("default", "small_buckets", "overlap", "comm_fp32", "offload", "recompute", "uniform")

# Tensor parallelism, alone, with data ranks, with stages, with both: (tensor ranks, stages) by world. Whether a model is
# split or stays whole must not show in its numbers. `TENSOR_MODELS`: of the fast set and of PIPELINE_WORLDS; with stages
# those of the pipelines.
# (Random numbers of a split value are others than those of the whole one.)
TENSORS = {2: ((2, 1),), 3: ((3, 1),), 4: ((2, 1), (4, 1), (2, 2)), 6: ((3, 1), (3, 2)), 8: ((2, 2), (4, 2))}
TENSOR_MODELS = ("plain", "tied", "lora", "mask_minimum_trace")
TENSOR_VARIANTS = ("default", "small_buckets", "overlap", "comm_fp32", "offload", "offload_files", "one_slot", "recompute",
                   "sequence_parallel", "sequence_recompute")


class Refusal(NamedTuple):
    """Cases that the runtime refuses, and with which words. `always`: one of them that runs is a failure, too."""
    applies: Callable
    why: str
    words: str  # a regular expression
    always: bool = True


# Every refusal outside this table is a failure.
REFUSALS = (
    Refusal(lambda case: case.stage >= 2 and case.data_ranks > 1 and case.model == "loop",
            "a unit that some ranks call more often than the first step had it", "which the first step did not have",
            always=False),
)


class Group(NamedTuple):
    """Cases that differ in their ZeRO stage and their schedule only: they share oracles, and most of their numbers are
    equal bit by bit."""
    world: int
    accumulation: int
    clipping: float
    precision: str
    model: str
    optimizer: str
    variant: str
    pipe: int = 1  # stages of the pipeline
    tensor: int = 1  # tensor parallel ranks

    def cases(self):
        if self.pipe == 1:
            return [Case(*self, SCHEDULES[0], stage) for stage in STAGES]
        # Every schedule, with either stage of ZeRO; half of the groups have the other halves of these pairs.
        turn = (self.accumulation > 1) != (self.clipping > 0)
        return [Case(*self, schedule, PIPELINE_STAGES[(i + turn) % 2]) for i, schedule in enumerate(SCHEDULES)]

    def __str__(self):
        clip = f"clip {self.clipping}" if self.clipping else "no clip"
        pipe = f", {self.pipe} stages" if self.pipe > 1 else ""
        tensor = f", {self.tensor} tensor ranks" if self.tensor > 1 else ""
        return (f"world {self.world}, accumulation {self.accumulation}, {clip}, {self.precision}, {self.model}, "
                f"{self.optimizer}, {self.variant}{pipe}{tensor}")


class Case(NamedTuple):
    world: int
    accumulation: int
    clipping: float
    precision: str
    model: str
    optimizer: str
    variant: str
    pipe: int
    tensor: int
    schedule: str
    stage: int  # of ZeRO

    @property
    def data_ranks(self):
        return self.world // (self.pipe * self.tensor)

    def __str__(self):
        schedule = f"{self.schedule}, " if self.pipe > 1 else ""
        return f"stage {self.stage}, {schedule}{Group(*self[:-2])}"


def batch_of(world):
    """Divides by every world of the fast set times every accumulation, with two samples and more in a micro batch."""
    return 36 if world in WORLDS else world * 6


def samples_of(world):
    return 5 * batch_of(world) + 5  # 12 steps end two epochs, each with a remainder


def merged(base, change):
    out = copy.deepcopy(base)
    for key, value in change.items():
        out[key] = merged(out[key], value) if isinstance(value, dict) and isinstance(out.get(key), dict) else value
    return out


def config_of(case, data):
    config = {
        "train_batch_size": batch_of(case.world),
        "gradient_accumulation_steps": case.accumulation,
        "gradient_clipping": case.clipping,
        "optimizer": {**OPTIMIZERS, **MORE_OPTIMIZERS}[case.optimizer],
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": WARMUP, "warmup_type": "linear"}},
        # By default parameters as small as these stay whole at stage 3.
        "zero_optimization": {"stage": case.stage, "stage3_param_persistence_threshold": 0},
        "train": {"seed": 42},
        "data": {"train": data, "shuffle": False, "num_workers": 1, "prefetch": 2},
        "checkpoint": {"async": False},
    }
    if case.pipe > 1:
        config["pipeline"] = {"stages": case.pipe, "schedule": case.schedule, "partition": "parameters"}
    if case.tensor > 1:
        config["tensor_parallel"] = {"size": case.tensor}
    variants = {**VARIANTS, **STAGE_VARIANTS}
    variant = {} if case.variant == "overflows" and case.precision != "fp16" else variants[case.variant]
    if callable(variant):
        variant = variant(case)
    for change in (PRECISIONS[case.precision], model_cases.CASES[case.model].config, variant):
        config = merged(config, change)
    return config


def expected_refusal(case):
    return next((refusal for refusal in REFUSALS if refusal.applies(case)), None)
