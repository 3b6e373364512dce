#!/usr/bin/env python3
"""Compares the JSON documents of two builds: for a change that may alter texts of messages but no key and no value.

    compare_json.py OLD_BIN NEW_BIN

Runs the same commands with both builds. A value that differs between two runs of the old build (a time, a pid, a port)
counts as volatile and only its type is compared. A text with a space is prose: a difference is printed, and is no error.
Exit status 1 when a key or a value was removed or changed; added keys are printed."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(TESTS)
TIMEOUT = 120  # seconds, of one command
UNORDERED = ("trace",)  # documents whose events have no order of their own

HOSTFILE = "alpha slots=4\nbeta slots=4\n10.1.2.3 slots=2\n"
BROKEN = '{"train_batch_size": 7, "zero_optimization": {"stage": 9}, "optimiser": {}}'
SLURM = {"SLURM_JOB_ID": "77", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NNODES": "2",
         "SLURM_TASKS_PER_NODE": "2(x2)", "SLURM_NODEID": "0", "SLURM_NTASKS": "4", "SLURM_NODELIST": "n[1-2]"}


def guide(name):
    return os.path.join(TESTS, "data", "guide_configs", name)


def config(**changes):
    return json.dumps({"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
                       "zero_optimization": {"stage": 2},
                       "data": {"train": "synthetic", "synthetic": {"x": {"shape": [6]}, "y": {"shape": [1]}}}, **changes})


class Commands:
    """The commands of one build, in a directory of its own. `documents`: name -> parsed JSON."""

    def __init__(self, bin_dir, directory):
        self.program, self.directory, self.documents = os.path.join(os.path.abspath(bin_dir), "dslaunch"), directory, {}
        self.environment = {**os.environ, "XDG_STATE_HOME": os.path.join(directory, "state"), "CUDA_VISIBLE_DEVICES": "",
                            "XDG_RUNTIME_DIR": directory, "OMP_NUM_THREADS": "1", "HOME": directory}
        for name in [name for name in self.environment if name.startswith("SLURM_")]:
            del self.environment[name]
        for name, text in (("hosts", HOSTFILE), ("broken.json", BROKEN), ("ds.json", config()),
                           ("ds3.json", config(zero_optimization={"stage": 3}))):
            with open(os.path.join(directory, name), "w") as file:
                file.write(text)
        shutil.copy(os.path.join(ROOT, "configs", "zero1_adamw.yaml"), directory)

    def run(self, name, *arguments, **environment):
        process = subprocess.run([self.program, *arguments], cwd=self.directory, stdin=subprocess.DEVNULL, text=True,
                                 capture_output=True, timeout=TIMEOUT, env={**self.environment, **environment})
        try:
            document = json.loads(process.stdout)
        except ValueError:
            document = {"no JSON on standard output": process.stdout + process.stderr}
        self.documents[name] = {"exit_code": process.returncode, "document": document}

    def read_lines(self, name, path):
        with open(os.path.join(self.directory, path)) as file:
            self.documents[name] = [json.loads(line) for line in file]

    def read(self, name, path):
        with open(os.path.join(self.directory, path)) as file:
            self.documents[name] = json.load(file)

    def run_all(self, model):
        self.run_checks()
        self.run_plans(model)
        self.run_training(model)
        self.run_jobs(model)
        return self.documents

    def run_checks(self):
        self.run("config check", "config", "check", "ds.json", "--world_size", "4", "--json")
        self.run("config check, broken", "config", "check", "broken.json", "--json")
        self.run("config explain, yaml", "config", "explain", "zero1_adamw.yaml", "--json")
        for name in ("guide0_02.json", "guide2_08.json", "guide4_01.json"):
            self.run(f"config explain {name}", "config", "explain", guide(name), "--world_size", "8", "--json")
        self.run("hosts", "hosts", "--hostfile", "hosts", "--json")
        self.run("hosts, filtered", "hosts", "--hostfile", "hosts", "--include", "alpha:0,1@beta", "--json")
        self.run("hosts, none left", "hosts", "--hostfile", "hosts", "--exclude", "gamma", "--json")
        self.run("hosts of Slurm", "hosts", "--json", **SLURM)

    def run_plans(self, model):
        self.run("run --dry_run", "run", model, "--config", "ds.json", "--num_gpus", "2", "--dry_run", "--json")
        self.run("exec --dry_run", "exec", "--hostfile", "hosts", "--dry_run", "--json", "--", "true", "a b")
        self.run("run, no model", "run", "missing.pt", "--json")

    def run_training(self, model):
        data = ("--num_gpus", "2", "--quiet", "--json")
        self.run("run", "run", model, "--config", "ds.json", "--steps", "4", "--run_dir", "a", *data)
        self.read_lines("metrics.jsonl", "a/metrics.jsonl")
        self.run("run --resume", "run", model, "--config", "ds3.json", "--steps", "6", "--run_dir", "a", "--resume", "auto",
                 "--trace", "6", "--timings", *data)
        self.read("trace", "a/trace.step_6.rank_0.json")
        self.run("run --verify", "run", model, "--config", "ds.json", "--steps", "2", "--verify", "2", "--run_dir", "b",
                 *data)
        self.run("consolidate", "consolidate", "a/checkpoints/latest", "whole.safetensors", "--json")
        self.run("consolidate, missing", "consolidate", "nowhere", "whole2.safetensors", "--json")
        self.run("import", "import", os.path.join(TESTS, "data/deepspeed_checkpoints/stage2_fp32"), "imported", "--json")

    def run_jobs(self, model):
        self.run("exec", "exec", "--num_gpus", "2", "--json", "--", "true")
        self.run("exec, failing", "exec", "--num_gpus", "2", "--max_restarts", "1", "--json", "--", "sh", "-c",
                 'test $RANK = 0 || exec sleep 600; echo last line; exit 3')
        self.run("exec, killed", "exec", "--num_gpus", "2", "--json", "--", "sh", "-c",
                 'test $RANK = 0 || exec sleep 600; kill -SEGV $$')
        self.run("exec, no program", "exec", "--json", "--", "./missing")
        self.run("jobs", "jobs", "--all", "--json")
        subprocess.run([self.program, "exec", "--num_gpus", "2", "--detach", "--", "sleep", "600"], cwd=self.directory,
                       env=self.environment, capture_output=True, timeout=TIMEOUT)
        self.run("jobs, one", "jobs", "last", "--json")
        self.run("stacks", "stacks", "last", "--json")
        self.run("stop", "stop", "last", "--now", "--json")
        jobs = os.path.join(self.directory, "state/dslaunch/jobs")
        for name in sorted(os.listdir(jobs))[-1:]:
            self.read("job.json", os.path.join(jobs, name, "job.json"))
        self.run("doctor", "doctor", "--json")


def leaves(value, path=()):
    """(path, scalar or empty container) of a document; list items by their index."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = False
    for key, item in items:
        found = True
        yield from leaves(item, (*path, key))
    if not found:
        yield path, value


def normalize(value, directory):
    """Texts without the directory of the build and without identities that each run makes for itself."""
    text = json.dumps(value).replace(directory, "DIR")
    return json.loads(re.sub(r"\b\d{8}-\d{6}-[0-9a-f]+\b", "JOB", text))


def generic(path):
    """A path with every index as '*': events and processes come in any number."""
    return tuple("*" if isinstance(key, int) else key for key in path)


def compare(name, old, again, new):
    """Lines (kind, text) about one document; kind 'added', 'text' or 'error'."""
    before, second, after = dict(leaves(old)), dict(leaves(again)), dict(leaves(new))
    volatile = {generic(path) for path in before.keys() | second.keys() if before.get(path) != second.get(path)}
    known, now = {generic(path) for path in before.keys() | second.keys()}, {generic(path) for path in after}
    for path in sorted(now - known, key=str):
        yield "added", f"{name}: {'.'.join(path)}"
    for path in sorted(known - now - volatile, key=str):
        yield "error", f"{name}: {'.'.join(map(str, path))} was removed"
    seen = {(generic(path), value) for path, value in (*before.items(), *second.items()) if not isinstance(value, (dict, list))}
    for path, value in before.items():
        if generic(path) in volatile or path not in after or after[path] == value:
            continue
        if name in UNORDERED and (generic(path), after[path]) in seen:
            continue
        prose = isinstance(value, str) and isinstance(after[path], str) and " " in value
        yield ("text" if prose else "error"), f"{name}: {'.'.join(map(str, path))}:\n    {value!r}\n    {after[path]!r}"


def main():
    old_bin, new_bin = sys.argv[1:]
    base = tempfile.mkdtemp(prefix="dsl-compare-")
    model = os.path.join(base, "model.pt")
    subprocess.run([sys.executable, os.path.join(ROOT, "tools/export"), "mlp", model, "--inputs", "6", "--width", "16",
                    "--layers", "2"], check=True, stdout=subprocess.DEVNULL)
    documents = []
    try:
        for name, bin_dir in (("1", old_bin), ("2", old_bin), ("3", new_bin)):
            directory = os.path.join(base, name)
            os.mkdir(directory)
            found = Commands(bin_dir, directory).run_all(model)
            documents.append({key: normalize(value, directory) for key, value in found.items()})
    finally:
        shutil.rmtree(base, ignore_errors=True)
    old, again, new = documents
    lines = [line for name in old for line in compare(name, old[name], again[name], new[name])]
    for kind, title in (("text", "texts changed"), ("added", "keys added"), ("error", "removed or changed")):
        chosen = [text for found, text in lines if found == kind]
        print(f"{title}: {len(chosen)}")
        for text in chosen:
            print("  " + text)
    print(f"{len(old)} documents with {sum(1 for name in old for _ in leaves(old[name]))} values")
    return any(kind == "error" for kind, _ in lines)


if __name__ == "__main__":
    sys.exit(main())
