#!/usr/bin/env python3
"""Models of transformers and peft that were exported in fp32, trained in bf16 and fp16 at ZeRO stages 0, 2 and 3: every
loss against the same file in fp32, and against the same model exported in the type of the run.

    PYTHONPATH=WHERE_TRANSFORMERS_IS PYTHON_WITH_TORCH bench/hugging_face_types.py
    ... bench/hugging_face_types.py --device cuda --jobs 8 --out page.md
    ... bench/hugging_face_types.py --folder exports --only-export     # for a machine without transformers

Exit status 1 when a loss is further off than the bounds. The programs come from --bin (build/release/bin)."""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "tests/oracle"), os.path.join(ROOT, "tests/support/python")]
import bench_report as report  # noqa: E402
import hugging_face  # noqa: E402
import tensor_file  # noqa: E402

STEPS, STAGES = 30, (0, 2, 3)
TO_FP32 = 0.02
# The type's own steps: a loss that a model computes in 16 bits (T5, BERT, ViT, Whisper) has 8 or 11 bits.
OF_TYPE = {"bf16": 2.0**-6, "fp16": 2.0**-9}


class Runs:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder

    def data(self, name, masked):
        path = os.path.join(self.folder, f"{name}-{'mask' if masked else 'plain'}.safetensors")
        if not os.path.exists(path):
            tensor_file.write(path, hugging_face.samples(name, masked, 10 * hugging_face.ROWS))
        return path

    def ranks(self, stage):
        return 2 if stage and self.args.device == "cpu" else 1

    def losses(self, name, masked, export, run, stage, seed=None):
        """`seed`: of the data's order, which is that of the file without one."""
        config = {"train_batch_size": hugging_face.ROWS, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
                  "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
                  "data": {"shuffle": seed is not None, "seed": seed or 0}, "checkpoint": {"at_end": False}}
        if run != "fp32":
            config[run] = {"enabled": True}
        if run == "fp16":
            config[run]["initial_scale_power"] = 8  # so that no first step is skipped
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            path = os.path.join(folder, "config.json")
            with open(path, "w") as file:
                json.dump(config, file)
            command = [os.path.join(self.args.bin, "dslaunch"), "--device", self.args.device,
                       "--num_gpus", str(self.ranks(stage)), "--config", path, "--data", self.data(name, masked), "--run_dir", os.path.join(folder, "run"),
                       "--steps", str(STEPS), hugging_face.export(name, masked, export, self.folder)]
            env = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": folder}
            done = subprocess.run(command, capture_output=True, text=True, env=env)
            if done.returncode:
                raise RuntimeError(f"{name} {export} in {run}, stage {stage}: {done.stdout}{done.stderr}")
            with open(os.path.join(folder, "run/metrics.jsonl")) as file:
                return [json.loads(line)["loss"] for line in file]


def off(found, expected):
    return max(abs(a / b - 1) for a, b in zip(found, expected, strict=True))


def rows_of(runs, name, masked, types):
    """[(type, stage, from fp32, own export from fp32, from own export, between two seeds)]"""
    stage_of = {runs.ranks(stage): stage for stage in reversed(STAGES)}  # the first for each number of ranks
    exact = {ranks: runs.losses(name, masked, "fp32", "fp32", stage) for ranks, stage in stage_of.items()}
    out = []
    for run in types:
        seeds = off(*(runs.losses(name, masked, run, run, 0, seed) for seed in (1, 2)))
        own = {ranks: runs.losses(name, masked, run, run, stage) for ranks, stage in stage_of.items()}
        for stage in STAGES:
            ranks, found = runs.ranks(stage), runs.losses(name, masked, "fp32", run, stage)
            out.append((run, stage, off(found, exact[ranks]), off(own[ranks], exact[ranks]), off(found, own[ranks]),
                        seeds))
    return out


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--types", nargs="+", choices=["bf16", "fp16"], default=["bf16", "fp16"])
    parser.add_argument("--models", nargs="+", choices=hugging_face.NAMES, default=hugging_face.NAMES)
    parser.add_argument("--jobs", type=int, default=1, help="models at a time")
    parser.add_argument("--folder", help="keeps the exports, and takes those that it has")
    parser.add_argument("--only-export", action="store_true")
    parser.add_argument("--out", help="write the page of results to this file")
    return parser.parse_args()


COLUMNS = ("model", "mask", "type", "stage", "from fp32", "own export from fp32", "from own export", "two seeds")


def page(args, table, failed):
    text = (f"{STEPS} steps of tiny models with random weights, AdamW, on {args.device}. Every number is the largest "
            "relative difference of a loss over all steps: of the export in fp32 run in the type from the same file run "
            f"in fp32 (at most {TO_FP32:.0%}); of an export in the type from that; of the two in the type from each other "
            "(at most " + ", ".join(f"{OF_TYPE[run]:.1e} in {run}" for run in args.types) + ", steps of a loss that a "
            "model computes in the type); and of two seeds of the data's order, with the export in the type.")
    rows = [(name, "yes" if masked else "no", run, stage, *(f"{number:.1e}" for number in numbers))
            for (name, masked), found in table for run, stage, *numbers in found]
    return report.page("Hugging Face models exported in fp32 and trained in 16 bits", text, COLUMNS, rows,
                       [f"{len(failed)} of {len(rows)} rows are beyond the bounds."])


def main():
    args = parse()
    folder = args.folder or tempfile.mkdtemp(prefix="dsl-hf-")
    os.makedirs(folder, exist_ok=True)
    cases = [(name, masked) for name in args.models for masked in ((True, False) if name != "vit" else (False,))]
    runs = Runs(args, folder)
    for name, masked in cases:  # here and one by one: tracing is not for threads
        runs.data(name, masked)
        for dtype in ["fp32", *args.types]:
            hugging_face.export(name, masked, dtype, folder)
    if args.only_export:
        return 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        table = list(zip(cases, pool.map(lambda case: rows_of(runs, *case, args.types), cases)))
    failed = [(case, row) for case, rows in table for row in rows if row[2] > TO_FP32 or row[4] > OF_TYPE[row[0]]]
    content = page(args, table, failed)
    if args.out:
        report.write_page(args.out, content)
    else:
        print(content)
    for case, row in failed:
        print("beyond the bounds:", case, row, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
