#!/usr/bin/env python3
"""Trains the grid's cases with two builds and compares losses, norms, other metrics and final states bit by bit: for a
change that may alter no number.

    compare_grid.py OLD_BIN NEW_BIN [--world 1 2 ...] [--thin N]     only every Nth group of cases

Exit status 1 when a number differs or a case ends otherwise."""
import argparse
import contextlib
import os
import shutil
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, "grid"), os.path.join(TESTS, "oracle"), os.path.join(TESTS, "support/python"),
                os.path.join(os.path.dirname(TESTS), "bench")]

import torch  # noqa: E402

import checkpoint_state  # noqa: E402
import dimensions  # noqa: E402
import run_grid  # noqa: E402
import selection  # noqa: E402
import harness  # noqa: E402
from pool import Pool  # noqa: E402

# In names of metrics that are not numbers of the training.
TIMES = ("time", "seconds", "_s", "_ms", "memory", "bytes", "tflops", "mfu")


@contextlib.contextmanager
def programs(bin_dir):
    before = os.environ.get("DSLAUNCH_BIN")
    os.environ["DSLAUNCH_BIN"] = bin_dir
    try:
        yield
    finally:
        os.environ.pop("DSLAUNCH_BIN") if before is None else os.environ.update(DSLAUNCH_BIN=before)


def is_number_of_training(name):
    return not any(part in name for part in TIMES)


def flatten(value, path=""):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from flatten(item, f"{path}.{key}")
    else:
        yield path, value


def train(files, pool, bin_dir, case):
    """Exit code, rows of metrics without times, tensors of the final state by name."""
    run_dir = files.run_dir()
    with programs(bin_dir):
        ending = pool.run(files.model(case.model), files.config(case), run_dir, dimensions.STEPS)
    if ending.code:
        return ending.code, [], {}
    state, _ = checkpoint_state.read(checkpoint_state.newest(run_dir))
    rows = [{key: value for key, value in flatten(row) if is_number_of_training(key)}
            for row in harness.read_metrics(run_dir)]
    shutil.rmtree(run_dir, ignore_errors=True)
    return 0, rows, dict(flatten(state))


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.view(torch.uint8) if a.numel() else a,
                                                                         b.view(torch.uint8) if b.numel() else b)
    return a == b or (a != a and b != b)


def difference(old, new):
    """What differs first between two outcomes of train(), or None."""
    if old[0] != new[0]:
        return f"exit code {old[0]}, now {new[0]}"
    for number, (a, b) in enumerate(zip(old[1], new[1])):
        for key in sorted(a.keys() | b.keys()):
            if not same(a.get(key), b.get(key)):
                return f"metrics line {number}: {key}: {a.get(key)!r}, now {b.get(key)!r}"
    if len(old[1]) != len(new[1]) or old[2].keys() != new[2].keys():
        return "another number of metrics lines, or other states"
    return next((f"state {name}" for name in old[2] if not same(old[2][name], new[2][name])), None)


def compare_world(files, world, groups, bins):
    """(cases, cases that ran to the end, numbers and tensors compared, texts of differences)."""
    pools, count, trained, values, problems = [Pool(world) for _ in bins], 0, 0, 0, []
    try:
        for group in groups:
            for case in group.cases():
                old, new = (train(files, pool, bin_dir, case) for pool, bin_dir in zip(pools, bins))
                count, trained = count + 1, trained + (old[0] == 0)
                values += sum(map(len, old[1])) + len(old[2])
                found = difference(old, new)
                if found:
                    problems.append(f"{case}: {found}")
                    print(f"DIFFERENT: {problems[-1]}", flush=True)
    finally:
        for pool in pools:
            pool.close()
    return count, trained, values, problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old_bin")
    parser.add_argument("new_bin")
    parser.add_argument("--world", type=int, nargs="+", default=[*dimensions.WORLDS])
    parser.add_argument("--thin", type=int, default=1, metavar="N", help="only every Nth group of cases")
    args = parser.parse_args()
    bins = [os.path.abspath(args.old_bin), os.path.abspath(args.new_bin)]
    files, totals, failed = run_grid.GridFiles(), [0, 0, 0], []
    try:
        for world in args.world:
            groups = list(selection.fast([world]))[::args.thin]
            *counts, problems = compare_world(files, world, groups, bins)
            totals = [a + b for a, b in zip(totals, counts)]
            failed += problems
    finally:
        files.close()
    print(f"{totals[0]} cases, {totals[1]} of them trained to the end by both builds, {totals[2]} values compared: "
          f"{len(failed)} cases differ")
    return 1 if failed or not totals[1] else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
