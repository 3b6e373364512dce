"""A tiny model, its data and its config, made once by the pinned PyTorch, for `run` on several hosts; and PyTorch itself."""
import json
import os
import subprocess

from netns import HOME

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TORCH_PYTHON = os.path.join(os.environ.get("XDG_CACHE_HOME") or f"{HOME}/.cache", "dslaunch/torch-2.11.0/bin/python")
SAMPLES = 48
CONFIG = {"train_batch_size": 12, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "data": {"shuffle": False},
          "zero_optimization": {"stage": 1}}

MAKE = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import tensor_file
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    def forward(self, x, y):
        return (self.body(x) - y).square().mean()
torch.manual_seed(1)
torch.jit.save(torch.jit.script(Net()), sys.argv[2] + '/model.pt')
x = torch.randn(%d, 6)
tensor_file.write(sys.argv[2] + '/train.safetensors', {'x': x, 'y': x.sum(1, keepdim=True).sin()})
""" % SAMPLES


def has_torch():
    return os.access(TORCH_PYTHON, os.X_OK)


def make_model(folder):
    """model.pt, train.safetensors and ds.json in this folder."""
    subprocess.run([TORCH_PYTHON, "-c", MAKE, os.path.join(REPO, "tests/oracle"), folder], check=True)
    with open(os.path.join(folder, "ds.json"), "w", encoding="utf-8") as file:
        json.dump(CONFIG, file)
