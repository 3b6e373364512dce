#!/usr/bin/env python3
"""The grid: thousands of small training runs in a pool of persistent ranks for each world size, every one compared with
one process and with plain PyTorch under the same split, and bit by bit with the other stages of ZeRO and the other
schedules of its pipeline.

    run_grid.py --world 2 3 --set fast          what ctest runs (grid.worlds2-3)
    run_grid.py --set full                      every world, 7 ranks too, and pipelines and tensor ranks on 6 and 8 (scripts/grid)
    run_grid.py --world 3 --only "tied, AdamW"  groups whose description holds these words ("3 stages", too)
    run_grid.py --set full --thin 7:5           of world 7 only every 5th group

The programs come from DSLAUNCH_BIN. Exit status 1 when a case failed."""
import argparse
import collections
import concurrent.futures
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
import traceback

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, "oracle"), os.path.join(TESTS, "support/python"),
                os.path.join(os.path.dirname(TESTS), "bench")]

import light_torch  # noqa: E402,F401
import torch  # noqa: E402

import bench_report as report  # noqa: E402
import checkpoint_state  # noqa: E402
import dimensions  # noqa: E402
import comparison  # noqa: E402
import model_cases  # noqa: E402
import parted_sums  # noqa: E402
import plain_pytorch  # noqa: E402
import selection  # noqa: E402
import tensor_file  # noqa: E402
import harness  # noqa: E402
from pool import Pool  # noqa: E402

AGAINST = {"split": "parameters: plain PyTorch, same split", "one": "parameters: one process",
           "rows": "loss and norm of each step: plain PyTorch, same split"}
NOISE_RUNS = 6  # with parted sums: in as many parts as there are tensor ranks, and in more
REFUSED_CODES = (64, 65, 78)  # what a config that cannot be honoured ends with


class GridFiles:
    """Models, data and run folders of one pass, and the oracles that several groups share."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="dsl-grid-", dir=harness.memory_folder())
        self.ones, self.made = {}, 0

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def model(self, name):
        path = os.path.join(self.folder, f"{name}.pt")
        return path if os.path.exists(path) else model_cases.export(name, path)

    def data(self, name, world):
        path = os.path.join(self.folder, f"{name}-{dimensions.samples_of(world)}.safetensors")
        if not os.path.exists(path):
            tensor_file.write(path, model_cases.CASES[name].samples(dimensions.samples_of(world)))
        return path

    def run_dir(self):
        self.made += 1
        return os.path.join(self.folder, f"run{self.made}")

    def config(self, case):
        return dimensions.config_of(case, self.data(case.model, case.world))

    def module(self, case):
        return model_cases.eager(case.model, dtype=plain_pytorch.low_precision(self.config(case)) or torch.float32)

    def one_process(self, case):
        """The whole global batch in one piece; None where the split matters by nature."""
        if model_cases.CASES[case.model].split or (case.variant, case.precision) == ("overflows", "fp16"):
            return None
        key = (dimensions.batch_of(case.world), case.clipping, case.precision, case.model, case.optimizer)
        if key not in self.ones:
            self.ones[key] = plain_pytorch.train(self.module(case), self.data(case.model, case.world),
                                                 self.config(case), dimensions.STEPS)
        return self.ones[key]

    def same_split(self, case, each_micro):
        return plain_pytorch.train(self.module(case), self.data(case.model, case.world), self.config(case),
                                   dimensions.STEPS, case.accumulation, case.data_ranks,
                                   model_cases.CASES[case.model].random, each_micro)

    def noise(self, case, each_micro, split):
        runs = []
        for parts in range(case.tensor, case.tensor + NOISE_RUNS):
            with parted_sums.PartedSums(parts):
                runs.append(self.same_split(case, each_micro))
        return comparison.noise_of(case, split, runs)


class Tally:
    """What is counted for the summary: by value of every dimension."""

    def __init__(self):
        self.passed, self.failed, self.refused = 0, [], collections.Counter()
        self.values = collections.defaultdict(lambda: {"cases": 0, "passed": 0, "refused": 0})
        self.worst = collections.defaultdict(float)  # against what, precision, kind of case, bound
        # Deviations by precision and whether of tensor ranks, without those of wayward optimizers.
        self.of_split = collections.defaultdict(list)
        self.same_bits = 0
        self.seconds = 0.0

    def count(self, case, outcome):
        for name, value in zip(case._fields, case):
            row = self.values[name, value]
            row["cases"] += 1
            if outcome in row:
                row[outcome] += 1
        if outcome == "passed":
            self.passed += 1

    def note(self, against, case, run, bound, deviation):
        key = AGAINST[against], case.precision, comparison.kind_of(case, run), f"{bound:.0e}"
        self.worst[key] = max(self.worst[key], deviation)
        if against == "split" and comparison.kind_of(case, run) == "others":
            self.of_split[case.precision, case.tensor > 1].append(deviation)

    def check_overall(self):
        for (precision, in_parts), found in self.of_split.items():
            for problem in comparison.check_typical(precision, found, in_parts):
                cases = f"all cases in {precision}{' of tensor ranks' if in_parts else ''}"
                self.failed.append((cases, problem))
                print(f"FAIL: {cases}\n      {problem}", flush=True)

    def fail(self, case, text):
        self.failed.append((str(case), text))
        self.count(case, "failed")
        print(f"FAIL: {case}\n      {text}", flush=True)


class Grid:
    def __init__(self, files, pool, tally, verbose):
        self.files, self.pool, self.tally, self.verbose = files, pool, tally, verbose

    def train(self, case):
        """Runs one case; (ending, numbers) where numbers are the final state and the rows of metrics."""
        run_dir = self.files.run_dir()
        ending = self.pool.run(self.files.model(case.model), self.files.config(case), run_dir, dimensions.STEPS)
        numbers = None
        if ending.code == 0:
            state, _ = checkpoint_state.read(checkpoint_state.newest(run_dir))
            numbers = state, harness.read_metrics(run_dir)
        shutil.rmtree(run_dir, ignore_errors=True)
        return ending, numbers

    def check(self, group, trained):
        """`trained`: case -> future of train()."""
        done, splits, noises = {}, {}, {}
        for case in group.cases():
            ending, numbers = trained[case].result()
            self.tally.seconds += ending.seconds
            refusal = dimensions.expected_refusal(case)
            if refusal and ending.code in REFUSED_CODES and re.search(refusal.words, ending.message):
                self.tally.refused[refusal.why] += 1
                self.tally.count(case, "refused")
            elif ending.code:
                self.tally.fail(case, f"ended with {ending.code}: {ending.message}")
            elif refusal and refusal.always:
                self.tally.fail(case, f"was to be refused ({refusal.why}), but ran: the table in dimensions.py is behind")
            else:
                problems = self.problems(case, numbers, splits, noises)
                problems += self.bit_problems(case, numbers, done)
                done[case] = numbers
                if problems:
                    self.tally.fail(case, "\n      ".join(problems))
                else:
                    self.tally.count(case, "passed")

    def problems(self, case, numbers, splits, noises):
        # In which order micro steps and ranks are added makes a difference to numbers that are rounded in between.
        each_micro = case.stage >= 2 and case.accumulation > 1
        if each_micro not in splits:
            splits[each_micro] = self.files.same_split(case, each_micro)
        split, one = splits[each_micro], self.files.one_process(case)
        problems = list(comparison.check_names(numbers[0], split))
        if problems:
            return problems
        problems, found = self.differences(case, numbers, split, one)
        if problems and case.tensor > 1:
            if each_micro not in noises:
                noises[each_micro] = self.files.noise(case, each_micro, split)
            problems, found = self.differences(case, numbers, split, one, noises[each_micro])
        for against, deviation in found.items():
            self.tally.note(against, case, split, comparison.bounds_of(case, against, split)[0], deviation)
            if self.verbose:
                print(f"{against} {deviation:.2e} {case}", flush=True)
        self.tally.note("rows", case, split, comparison.row_bound(case, split), comparison.row_deviation(numbers[1], split))
        return problems

    @staticmethod
    def differences(case, numbers, split, one, noise=comparison.Noise()):
        """Complaints, and the deviations of the whole model."""
        state, rows = numbers
        problems, deviations = [], {}
        for against, run in (("split", split), ("one", one)):
            if run is not None:
                least = comparison.sensitivity(case, split, run) if against == "one" else (0.0, 0.0)
                found, deviations[against] = comparison.check_parameters(case, against, state["master"], run, least, noise)
                problems += found
        problems += comparison.check_rows(case, rows, split, noise)
        problems += comparison.check_kept(state, split, case)
        return problems, deviations

    def bit_problems(self, case, numbers, done):
        for other, theirs in done.items():
            if comparison.numbers_class(other) == comparison.numbers_class(case):
                self.tally.same_bits += 1
                different = list(comparison.check_same_bits(theirs, numbers))
                if different:
                    return [f"not the bits of stage {other.stage}, {other.schedule}: {len(different)} differ, first "
                            f"{different[0]}"]
                break
        return []


def run_world(files, world, groups, tally, verbose):
    for group in groups:  # now, since exporting draws random numbers, and so do oracles while the pool works
        files.model(group.model)
        files.data(group.model, group.world)
    pool = Pool(world)
    grid = Grid(files, pool, tally, verbose)
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as ahead:
            trained = {case: ahead.submit(grid.train, case) for group in groups for case in group.cases()}
            try:
                for group in groups:
                    try:
                        grid.check(group, trained)
                    except Exception:  # the oracle or the reader fell: told with its group, and the grid goes on
                        tally.fail(group.cases()[0], traceback.format_exc())
            except BaseException:
                ahead.shutdown(cancel_futures=True)
                raise
    finally:
        pool.close()
    if pool.restarts:
        print(f"world {world}: the pool was started again {pool.restarts} times", flush=True)


def tables(tally):
    """What the summary and the page of results share: (columns, rows) twice."""
    rows = [(name, value, row["cases"], row["passed"], row["refused"], row["cases"] - row["passed"] - row["refused"])
            for (name, value), row in sorted(tally.values.items(), key=lambda item: item[0][0])]
    bounds = [(*key, f"{found:.1e}") for key, found in sorted(tally.worst.items())]
    bounds += [("the same, the middle case", precision, "tensor ranks" if in_parts else "others",
                f"{comparison.typical_bound(precision, in_parts):.0e}", f"{statistics.median(found):.1e}")
               for (precision, in_parts), found in sorted(tally.of_split.items()) if precision != "fp32"]
    return ((("dimension", "value", "cases", "passed", "refused as expected", "failed"), rows),
            (("against", "precision", "of", "bound", "worst deviation found"), bounds))


def verdict(tally, seconds):
    refused = sum(tally.refused.values())
    lines = [f"{count} cases were refused as expected: {why}." for why, count in tally.refused.items()]
    lines.append(f"{tally.passed + len(tally.failed) + refused} cases in {seconds:.0f} s ({tally.seconds:.0f} s of them in "
                 f"the pools): {tally.passed} passed, {refused} refused as expected, {len(tally.failed)} failed. "
                 f"{tally.same_bits} were compared bit by bit with another stage.")
    return "\n".join(lines)


def page(tally, seconds, worlds, thin):
    text = ("Every case trains 20 steps on CPU ranks and is compared with plain PyTorch in one process and under the same "
            "split, and bit by bit with the other stages: docs/numerics.md says which numbers must be equal and what the "
            "bounds are.")
    text += "".join(f" Of world {world} every {n}th group of cases was taken." for world, n in thin.items())
    (columns, rows), bounds = tables(tally)
    failures = "\n".join(f"- {case}: {words}" for case, words in tally.failed)
    notes = [report.table(*bounds), verdict(tally, seconds), failures and "Failed:\n\n" + failures]
    title = "The grid: " + ", ".join(f"{world} rank" + "s" * (world > 1) for world in worlds)
    return report.page(title, text, columns, rows, notes)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=int, nargs="+", default=None)
    parser.add_argument("--set", choices=("fast", "full"), default="fast")
    parser.add_argument("--only", default="", help="words that a group's description must hold, separated by commas")
    parser.add_argument("--thin", nargs="+", default=[], metavar="WORLD:N", help="only every Nth group of a world")
    parser.add_argument("--verbose", action="store_true", help="the deviation of every case")
    parser.add_argument("--out", help="write the page of results to this file")
    return parser.parse_args()


def main():
    args = parse_arguments()
    worlds = args.world or [*dimensions.WORLDS]
    if args.set == "full" and not args.world:
        worlds += [dimensions.SLOW_WORLD, *dimensions.PIPELINE_WORLDS]
    groups = getattr(selection, args.set)(worlds)
    words = [word.strip() for word in args.only.split(",") if word.strip()]
    groups = [group for group in groups if all(word in str(group).split(", ") for word in words)]
    thin = {int(world): int(n) for world, n in (words.split(":") for words in args.thin)}
    files, tally, began = GridFiles(), Tally(), time.monotonic()
    try:
        for world in worlds:
            own = [group for group in groups if group.world == world][::thin.get(world, 1)]
            run_world(files, world, own, tally, args.verbose)
        tally.check_overall()
    finally:
        files.close()
    seconds = time.monotonic() - began
    for columns, rows in tables(tally):
        print("\n" + report.table(columns, rows))
    print("\n" + verdict(tally, seconds))
    if args.out:
        report.write_page(args.out, page(tally, seconds, worlds, thin))
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
