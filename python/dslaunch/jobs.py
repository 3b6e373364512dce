"""Jobs from Python: `run` starts dslaunch and waits for it; the output of the job goes to this process's standard error,
which a notebook shows below the cell."""
import json
import os
import signal
import subprocess
import sys
import threading

from . import programs

LINES_OF_FAILURE = 12


class JobFailed(RuntimeError):
    """`exit_code`: as in docs/exit_codes.md."""

    def __init__(self, exit_code, lines):
        super().__init__(f"the job ended with exit code {exit_code}:\n" + "".join(lines).rstrip())
        self.exit_code = exit_code


class Job:
    """A job that has ended. `run_dir`: its directory, with metrics.jsonl, logs and checkpoints. `report`: what
    `dslaunch --json` prints."""

    def __init__(self, run_dir, exit_code, report):
        self.run_dir, self.exit_code, self.report = run_dir, exit_code, report

    def metrics(self):
        """The lines of metrics.jsonl: one dictionary for each step, with "step" and "loss" among its entries."""
        with open(os.path.join(self.run_dir, "metrics.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    def __repr__(self):
        return f"<dslaunch.Job {self.run_dir}, exit code {self.exit_code}>"


def words_of(options):
    """num_gpus=2 is --num_gpus 2, overwrite=True is --overwrite; a list repeats the option, and a dictionary (of `set` and
    `env`) does so with NAME=VALUE."""
    for name, value in options.items():
        if value is None or value is False:
            continue
        if isinstance(value, dict):
            value = [f"{key}={text_of(each)}" for key, each in value.items()]
        for each in value if isinstance(value, (list, tuple)) else [value]:
            yield f"--{name}"
            if each is not True:
                yield text_of(each)


def text_of(value):
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    return json.dumps(value)


def command():
    """What messages tell the user to type: of an environment its bin/dslaunch, which knows where PyTorch is."""
    beside = os.path.join(os.path.dirname(sys.executable), "dslaunch")
    return beside if os.path.exists(beside) else programs.find_program("dslaunch")


def run(model, config=None, *, check=True, **options):
    """Trains the model file as the config says, and returns the Job when it has ended.

    model: a file written by `export`, torch.jit.save or `dslaunch export`
    config: a dictionary with the keys of docs/config.md, or the path of a file
    options: those of `dslaunch --help` by their names: data="train.safetensors", num_gpus=2, steps=100, run_dir="runs/a",
        overwrite=True, set={"optimizer.params.lr": 1e-4}
    check: a job that fails raises JobFailed; with False, look at the Job's exit_code"""
    words = ["run", os.fspath(model), "--json"]
    if config is not None:
        words += ["--config", json.dumps(config) if isinstance(config, dict) else os.fspath(config)]
    words += words_of(options)
    exit_code, printed, last_lines = follow(words)
    if check and exit_code != 0:
        raise JobFailed(exit_code, last_lines)
    report = json.loads(printed) if printed.strip() else {}
    return Job(report.get("run_dir"), exit_code, report)


def follow(words):
    """dslaunch with these words: exit code, standard output, and the last lines of standard error, which is passed on line
    by line."""
    program = programs.find_program("dslaunch")
    words = [programs.name_to_type(command()), *words]
    # In a session of its own, so that Ctrl-C on a terminal reaches it once, through us, as it does in a notebook.
    process = subprocess.Popen(words, executable=program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, errors="replace", env=programs.environment(),
                               start_new_session=True)
    printed, lines = [], []
    reader = threading.Thread(target=lambda: printed.append(process.stdout.read()), daemon=True)
    reader.start()
    interrupted = False
    while True:
        try:
            line = process.stderr.readline()
            if not line:
                break
            sys.stderr.write(line)
            lines = [*lines, line][-LINES_OF_FAILURE:]
        except KeyboardInterrupt:
            interrupted = True
            process.send_signal(signal.SIGINT)
    reader.join()
    exit_code = process.wait()
    if interrupted:
        raise KeyboardInterrupt
    return exit_code, "".join(printed), lines
