"""make_model.py FOLDER: a tiny model and its data, by the pinned PyTorch; the file `ready` comes last."""
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support/python"))
import tensor_file  # noqa: E402


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))

    def forward(self, x, y):
        return (self.body(x) - y).square().mean()


if __name__ == "__main__":
    folder = sys.argv[1]
    torch.manual_seed(1)
    torch.jit.save(torch.jit.script(Net()), f"{folder}/model.pt")
    x = torch.randn(48, 6)
    tensor_file.write(f"{folder}/train.safetensors", {"x": x, "y": x.sum(1, keepdim=True).sin()})
    with open(f"{folder}/ready", "w", encoding="utf-8"):
        pass
