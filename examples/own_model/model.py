"""A model of your own: forward takes the arrays of the data file by position and returns the loss."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Residual(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Regressor(nn.Module):
    def __init__(self, inputs: int = 4, width: int = 64, depth: int = 3):
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.layers = nn.ModuleList([Residual(width) for _ in range(depth)])
        self.last = nn.Linear(width, 1)

    @torch.jit.export
    def predict(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return self.last(x)

    def forward(self, x, y):
        return F.mse_loss(self.predict(x), y)
