"""A tiny model, its data and its config for `run` on several hosts, made once for all cases while the first ones run."""
import json
import os
import shutil
import subprocess
import sys

from netns import wait_until

FOLDER = "/tmp/dsl-model-fixture"  # in the test's own world
TORCH_PYTHON = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "dslaunch/torch-2.11.0/bin/python")
CONFIG = {"train_batch_size": 12, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "data": {"shuffle": False},
          "zero_optimization": {"stage": 1}}


def has_torch():
    return os.access(TORCH_PYTHON, os.X_OK)


def start():
    """Begins; import torch alone takes seconds."""
    if not has_torch():
        return
    os.mkdir(FOLDER)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "make_model.py")
    subprocess.Popen([TORCH_PYTHON, "-B", script, FOLDER], stdout=sys.stderr)


def copy_model(folder):
    """model.pt, train.safetensors and ds.json in this folder."""
    wait_until(lambda: os.path.exists(f"{FOLDER}/ready"), 120, "the model is made")
    for name in ("model.pt", "train.safetensors"):
        shutil.copy(f"{FOLDER}/{name}", folder)
    with open(os.path.join(folder, "ds.json"), "w", encoding="utf-8") as file:
        json.dump(CONFIG, file)
