#!/usr/bin/env python3
"""Random models under random job files, each in a pool of persistent ranks and in plain PyTorch with the same split: what
nobody thought of when the grid was made.

    run_by_seed.py                       the seeds that ctest runs (grid.by_seed)
    run_by_seed.py --seeds 1000..2000    others
    run_by_seed.py --seeds 17..18 --show one: its source and its job file as well

The programs come from DSLAUNCH_BIN. Exit status 1 when a case failed."""
import argparse
import collections
import json
import math
import os
import shutil
import sys
import tempfile
import traceback
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(TESTS, "oracle"), os.path.join(TESTS, "grid"), os.path.join(TESTS, "support/python"),
                os.path.join(os.path.dirname(TESTS), "bench")]

import light_torch  # noqa: E402,F401
import torch  # noqa: E402

import checkpoint_state  # noqa: E402
import jobs  # noqa: E402
import comparison  # noqa: E402
import models  # noqa: E402
import tensor_file  # noqa: E402
import harness  # noqa: E402
from plain_run import NoNumbers, PlainRun  # noqa: E402
from pool import Pool  # noqa: E402

USUAL_SEEDS = range(0, 25)
NUDGES = {"fp32": 1e-7, "bf16": 1e-3, "fp16": 1e-3}


class Numbers:
    """What a run leaves: flat tensors by name, and the rows of its metrics."""

    def __init__(self, parameters, start, buffers, rows):
        self.parameters, self.start, self.buffers, self.rows = parameters, start, buffers, rows

    @classmethod
    def of(cls, plain):
        flat = [{name: value.flatten() for name, value in zip(plain.names, values)}
                for values in (plain.masters, plain.start)]
        buffers = {name: value.flatten() for name, value in plain.model.named_buffers() if value.numel() > 0}
        return cls(*flat, buffers, plain.rows)


def precision_of(model, config):
    words = json.dumps(config)
    if "fp16" in config:
        return "fp16"
    return "bf16" if "bf16" in words or "bfloat16" in words + model.source else "fp32"


def deviations(got, want, precision):
    """(whole model, worst parameter, steps, buffers): each relative, as comparison.py takes them. In 16 bits a parameter that
    hardly moves is seen beside the one that moves most."""
    sizes = {name: (value if precision == "fp32" else value - want.start[name]).double().norm().item()
             for name, value in want.parameters.items()}
    off = {name: (got.parameters[name].double() - value.double()).norm().item() for name, value in want.parameters.items()}
    least = 1e-30 if precision == "fp32" else max(1e-2 * max(sizes.values()), 1e-30)
    buffers = max(((got.buffers[name].double() - value.double()).abs().max().item() / (1 + value.double().abs().max().item())
                   for name, value in want.buffers.items()), default=0.0)
    return (math.hypot(*off.values()) / max(math.hypot(*sizes.values()), 1e-30),
            max(off[name] / max(sizes[name], least) for name in off), row_deviation(got.rows, want.rows), buffers)


def row_deviation(rows, expected):
    pairs = [(row.get(key), want.get(key)) for row, want in zip(rows, expected)
             for key in ("loss", "grad_norm", "eval_loss")]
    if any((got is None) != (want is None or not math.isfinite(want)) for got, want in pairs):
        return math.inf  # JSON has no word for what is not finite
    return max((abs(got - want) / max(abs(want), 1e-9) for got, want in pairs if got is not None), default=0.0)


def bounds_of(optimizer, precision):
    whole, one = comparison.OPTIMIZER_BOUNDS.get((optimizer, precision), comparison.BOUNDS[precision]["split"])
    rows = max(comparison.ROW_BOUNDS[precision], whole) if precision == "fp32" else comparison.ROW_BOUNDS[precision]
    return whole, one, rows, 10 * rows


def problems(got, want, optimizer, precision, nudged):
    """`nudged`: makes further oracles whose weights start a little off, for what a model makes of last bits."""
    if [row["step"] for row in got.rows] != [row["step"] for row in want.rows]:
        return [f"steps {[row['step'] for row in got.rows]}"]
    for row, expected in zip(got.rows, want.rows):
        for key in ("lr", "overflow", "loss_scale"):
            if not comparison.near(row[key], expected[key], 1e-12):
                return [f"step {row['step']}: {key} is {row[key]}, expected {expected[key]}"]
    found, bounds = deviations(got, want, precision), bounds_of(optimizer, precision)
    if all(value <= bound for value, bound in zip(found, bounds)):
        return []
    least = [max(values) for values in zip(*(deviations(moved, want, precision) for moved in nudged()))]
    names = ("whole model", "one parameter", "a step's numbers", "a buffer")
    return [f"{name}: {value:.1e} off (bound {bound:.0e}, its own sensitivity {own:.0e})"
            for name, value, bound, own in zip(names, found, bounds, least) if not value <= max(bound, 5 * own)]


class BySeed:
    def __init__(self):
        self.folder, self.pools = tempfile.mkdtemp(prefix="dsl-by-seed-", dir=harness.memory_folder()), {}

    def close(self):
        for pool in self.pools.values():
            pool.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def data(self, name, arrays):
        path = os.path.join(self.folder, f"{name}.safetensors")
        tensor_file.write(path, arrays)
        return path

    def run(self, model, job, arrays, eval_arrays):
        """The legs, one after the other; the numbers in the end, or how one of them ended."""
        config, run_dir = json.loads(json.dumps(job.config)), os.path.join(self.folder, "run")
        config["data"]["train"] = self.data("train", arrays)
        if eval_arrays:
            config["data"]["eval"] = self.data("eval", eval_arrays)
        shutil.rmtree(run_dir, ignore_errors=True)
        for leg in job.legs:
            config["zero_optimization"]["stage"] = leg.stage
            pool = self.pools.setdefault(leg.world, Pool(leg.world))
            resume = "" if leg is job.legs[0] else "auto"
            ending = pool.run(models.export(model, self.folder), config, run_dir, leg.end, resume)
            if ending.code:
                return None, [f"{leg} ended with {ending.code}: {ending.message}"]
        state, _ = checkpoint_state.read(checkpoint_state.newest(run_dir))
        return (state, harness.read_metrics(run_dir)), []

    def check(self, model, job):
        """"passed", "failed" or "no case", and words."""
        arrays = models.samples(model, job.rows, job.ignored)
        eval_arrays = models.samples(model._replace(seed=model.seed + 1), job.eval_rows) if job.eval_rows else {}

        def plain(nudge=0.0):
            module = models.build(model, self.folder)
            return PlainRun(module, arrays, eval_arrays, job, model.draws, nudge).train()
        try:
            models.export(model, self.folder)
            oracle = plain()
        except (NoNumbers, RuntimeError) as error:  # PyTorch does not train it either
            return "no case", [str(error)]
        left, words = self.run(model, job, arrays, eval_arrays)
        if words:
            return "failed", words
        state, rows = left
        want, precision = Numbers.of(oracle), precision_of(model, job.config)
        masters = {name: torch.empty(0) for name, value in want.parameters.items() if value.numel() == 0}
        got = Numbers({**masters, **state.get("master", {})}, want.start, state.get("buffer", {}), rows)
        if set(got.parameters) != set(want.parameters) or not set(want.buffers) <= set(got.buffers):
            return "failed", ["the checkpoint has other parameters or buffers"]
        found = problems(got, want, job.config["optimizer"]["type"], precision, lambda: [
            Numbers.of(self.moved(plain(nudge), want)) for nudge in (NUDGES[precision], -NUDGES[precision])])
        return ("failed", found) if found else ("passed", [])

    @staticmethod
    def moved(plain, want):
        """Its values without what it was moved by in the beginning."""
        for name, master, start in zip(plain.names, plain.masters, plain.start):
            master -= start - want.start[name].view_as(start)
        return plain


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", metavar="A..B", help="these, without B")
    parser.add_argument("--show", action="store_true", help="print sources and job files")
    return parser.parse_args()


def main():
    args, counts, by_seed = parse_arguments(), collections.Counter(), BySeed()
    seeds = range(*map(int, args.seeds.split(".."))) if args.seeds else USUAL_SEEDS
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        for seed in seeds:
            model = models.make(seed)
            job = jobs.make(model, seed)
            if args.show:
                print(model.source, json.dumps(job.config, indent=1), job.legs, sep="\n")
            try:
                outcome, words = by_seed.check(model, job)
            except Exception:  # the oracle or the reader fell: told with its seed, and the others go on
                outcome, words = "failed", [traceback.format_exc()]
            counts[outcome] += 1
            if outcome == "failed" or args.show:
                print(f"seed {seed}: {outcome} " + "\n   ".join(words), flush=True)
    finally:
        by_seed.close()
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
