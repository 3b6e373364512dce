"""What makes a case right. Pure functions from the numbers of runs to problems; bounds in one table.

A deviation of parameters is relative: the norm of the difference over the norm of the values, for the whole model and for
every parameter alone. Under bf16 and fp16 it is taken relative to what the run has changed, since a bound on values that
hardly move would say nothing."""
import math
import statistics
from typing import NamedTuple

import torch

# precision: (whole model, one parameter) against plain PyTorch with the same split, and against one process.
# docs/numerics.md says why.
BOUNDS = {
    "fp32": {"split": (1e-6, 5e-6), "one": (1e-6, 5e-6)},
    "bf16": {"split": (2e-2, 1e-1), "one": (5e-2, 3e-1)},
    "fp16": {"split": (2e-2, 1e-1), "one": (3e-2, 3e-1)},
}
# Muon's iteration runs in bf16 and spreads a last bit over a whole matrix; Lion turns the sign of a number near zero into a
# whole step.
OPTIMIZER_BOUNDS = {("Muon", "fp32"): (4e-3, 2e-1), ("Muon", "bf16"): (2e-1, 1.0), ("Muon", "fp16"): (2e-1, 1.0),
                    ("Lion", "fp32"): (1e-3, 1e-2), ("Lion", "bf16"): (1e-1, 5e-1), ("Lion", "fp16"): (1e-1, 5e-1)}
# Of a model that keeps some parameters in bf16 in an fp32 run.
MIXED_BOUND = 1e-3
# Relative, of a step's loss and gradient norm; where parameters may be further off in fp32, so may these.
ROW_BOUNDS = {"fp32": 1e-5, "bf16": 3e-2, "fp16": 3e-2}


# Of what a run changes, in 16 bits: the middle one of all cases' deviations from plain PyTorch with the same split.
TYPICAL_BOUND, ENOUGH_FOR_MEDIAN = 1e-4, 20
# Tensor ranks do not round alike: each rounds its part of a sum to the type, half a unit in the last place.
TYPICAL_OF_PARTS = {"bf16": 2.0**-8, "fp16": 2.0**-11}

# A unit of these models is called more than once in a micro step.
CALLED_AGAIN = ("called_twice", "called_twice_trace", "loop", "shared_names", "nested")
# These look at norms of whole parameters, which shards add up in another order.
WITH_NORMS = ("Lamb", "Muon")


def numbers_class(case):
    """Cases of a group whose classes are equal give the same bits: the same numbers are added in the same order."""
    if case.data_ranks == 1:
        return ()
    # With clipping the norm counts: a replicated gradient's squares are added up in one go, those of shards by shard.
    # Parameters that stay whole at stage 3 are cut into shards apart from the others.
    norm = None
    if case.clipping or case.optimizer in WITH_NORMS:
        norm = "whole" if case.stage == 0 else "other shards" if (case.stage, case.variant) == (3, "some_whole") else "shards"
    # Stages 2 and 3 add over the ranks for each call of a unit and then over the calls, 0 and 1 the other way round.
    order = case.stage >= 2 if case.accumulation > 1 or case.model in CALLED_AGAIN else None
    return norm, order


class Noise(NamedTuple):
    """How far plain PyTorch with parted sums is off plain PyTorch."""
    whole: float = 0.0
    each: dict = {}  # by parameter
    rows: float = 0.0


def deviations_of_each(values, expected, start, precision):
    """(whole model, by parameter): relative deviation of flat tensors by name."""
    total_difference = total_size = 0.0
    each = {}
    for name, want in expected.items():
        want = want.double().flatten()
        difference = (values[name].double() - want).norm().item()
        size = (want if precision == "fp32" else want - start[name].double().flatten()).norm().item()
        each[name] = difference / size if size else (math.inf if difference else 0.0)
        total_difference, total_size = math.hypot(total_difference, difference), math.hypot(total_size, size)
    return (total_difference / total_size if total_size else 0.0), each


def worst_of(each):
    """The name of the largest, or of one that is not a number; "": there is none."""
    return max(each, key=lambda name: (math.isnan(each[name]), each[name]), default="")


def deviations(values, expected, start, precision):
    """(whole model, worst parameter, its name)"""
    whole, each = deviations_of_each(values, expected, start, precision)
    name = worst_of(each)
    return whole, each.get(name, 0.0), name


def typical_bound(precision, in_parts):
    return TYPICAL_OF_PARTS[precision] if in_parts else TYPICAL_BOUND


def check_typical(precision, found, in_parts=False):
    """Under the same split both sides round alike: single cases part where a last bit decides, most of them must not.
    `in_parts`: cases of tensor ranks."""
    if precision == "fp32" or len(found) < ENOUGH_FOR_MEDIAN:
        return []
    median, bound = statistics.median(found), typical_bound(precision, in_parts)
    return [] if median <= bound else [f"half of the {len(found)} cases in {precision} are more than {median:.1e} off "
                                       f"plain PyTorch with the same split (bound {bound:.0e})"]


def check_names(state, run):
    """Every trainable parameter with all of its elements, and nothing else."""
    masters = state.setdefault("master", {})
    for name, value in run.parameters.items():
        if value.numel() == 0:
            masters.setdefault(name, torch.empty(0))
        if name not in masters:
            yield f"parameter '{name}' is not in the checkpoint"
        elif masters[name].numel() != value.numel():
            yield f"parameter '{name}' has {masters[name].numel()} elements, expected {value.numel()}"
    for name in sorted(set(masters) - set(run.parameters)):
        yield f"'{name}' is in the checkpoint, but no parameter of the model"


def kind_of(case, run):
    """Which of the bounds holds for a case."""
    if (case.optimizer, case.precision) in OPTIMIZER_BOUNDS:
        return case.optimizer
    return "mixed types" if run.is_mixed and case.precision == "fp32" else "others"


def bounds_of(case, against, run):
    """(whole model, one parameter)"""
    kind, bounds = kind_of(case, run), BOUNDS[case.precision][against]
    if kind == "mixed types":  # a last bit of fp32 may be the one that decides how bf16 rounds
        return tuple(max(bound, MIXED_BOUND) for bound in bounds)
    return OPTIMIZER_BOUNDS.get((kind, case.precision), bounds)


def sensitivity(case, split, one):
    """How far plain PyTorch under the same split is off plain PyTorch in one process: what a model makes of last bits."""
    return deviations(flat(split), one.parameters, one.start, case.precision)[:2]


def noise_of(case, split, parted):
    """Of several runs with parted sums; the largest each."""
    found = [deviations_of_each(flat(run), split.parameters, split.start, case.precision) for run in parted]
    return Noise(max(whole for whole, _ in found), {name: max(each[name] for _, each in found) for name in split.parameters},
                 max(row_deviation(run.rows, split) for run in parted))


def flat(run):
    return {name: value.double().flatten() for name, value in run.parameters.items()}


def check_parameters(case, against, values, run, least=(0.0, 0.0), noise=Noise()):
    """Complaints, and the whole model's deviation. The bound is twice `least` (whole model, one parameter) or `noise` where
    that is more."""
    whole, each = deviations_of_each(values, run.parameters, run.start, case.precision)
    whole_bound, one_bound = (max(bound, 2 * size) for bound, size in zip(bounds_of(case, against, run), least))
    whole_bound = max(whole_bound, 2 * noise.whole)
    bounds = {name: max(one_bound, 2 * noise.each.get(name, 0.0)) for name in each}
    wrong = {name: off for name, off in each.items() if not off <= bounds[name]}
    words = {"split": "plain PyTorch with the same split", "one": "one process"}[against]
    problems = []
    if not whole <= whole_bound:
        worst = worst_of(each)
        problems.append(f"all parameters together are {whole:.2e} off {words} (bound {whole_bound:.0e}; "
                          f"worst {worst}: {each[worst]:.2e})")
    elif wrong:
        worst = worst_of(wrong)
        problems.append(f"parameter '{worst}' is {wrong[worst]:.2e} off {words} (bound {bounds[worst]:.0e})")
    return problems, whole


def check_rows(case, rows, run, noise=Noise()):
    """Loss, rate, norm, overflow and scale of every step against plain PyTorch with the same split."""
    if len(rows) != len(run.rows):
        return [f"{len(rows)} steps were logged, expected {len(run.rows)}"]
    bound = max(row_bound(case, run), 2 * noise.rows)
    for got, want in zip(rows, run.rows):
        for key, limit in (("step", 0), ("lr", 1e-12), ("loss_scale", 0), ("overflow", 0), ("loss", bound),
                           ("grad_norm", bound)):
            if not near(got[key], want[key], limit):
                return [f"step {want['step']}: {key} is {got[key]!r}, expected {want[key]!r}"]
    if case.clipping and not any(row["grad_norm"] and row["grad_norm"] > case.clipping for row in run.rows):
        return ["nothing was clipped: this case shows nothing about clipping"]
    return []


def row_bound(case, run):
    """A step sees the parameters as they are. (In 16 bits their bound is relative to the run's changes, not to them.)"""
    bound = ROW_BOUNDS[case.precision]
    return max(bound, bounds_of(case, "split", run)[0]) if case.precision == "fp32" else bound


def row_deviation(rows, run):
    """The largest of all losses and norms that are numbers."""
    pairs = [(got[key], want[key]) for got, want in zip(rows, run.rows) for key in ("loss", "grad_norm")]
    return max((abs(got - want) / max(abs(want), 1e-9) for got, want in pairs
                if got is not None and want is not None and math.isfinite(got) and math.isfinite(want)), default=0.0)


def near(got, want, limit):
    if want is None or (isinstance(want, float) and not math.isfinite(want)):
        return got is None or not math.isfinite(got)  # JSON has no word for it
    return got is not None and abs(got - want) <= limit * max(abs(want), 1e-9)


def check_kept(state, run, case):
    """Frozen parameters are what they were; buffers are rank 0's, made with the parameters as they are."""
    for name, value in run.frozen.items():
        if not torch.equal(state.get("frozen", {}).get(name, torch.empty(0)), value.flatten()):
            yield f"frozen parameter '{name}' has changed"
    bound = row_bound(case, run) / 10 if case.precision == "fp32" else 1e-2
    for name, want in run.buffers.items():
        got = state.get("buffer", {}).get(name)
        if got is None or got.numel() != want.numel():
            yield f"buffer '{name}' is not in the checkpoint, or of another size"
        elif not torch.allclose(got.double(), want.double().flatten(), rtol=10 * bound, atol=bound):
            yield f"buffer '{name}' is {(got.double() - want.double().flatten()).abs().max():.2e} off"


def check_same_bits(first, second):
    """The names of parameters and steps that differ in a bit between two runs (state, rows)."""
    for kind in first[0]:
        for name, value in first[0][kind].items():
            other = second[0].get(kind, {}).get(name)
            if other is None or not torch.equal(bits(value), bits(other)):
                yield f"{kind} of '{name}'"
    for got, want in zip(first[1], second[1]):
        for key in ("loss", "overflow", "loss_scale"):
            if got[key] != want[key]:
                yield f"{key} of step {want['step']}"


def bits(tensor):
    return tensor.contiguous().view(torch.uint8)
