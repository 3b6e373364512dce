"""A multi-layer perceptron for regression: forward(x, y) returns the mean squared error, forward of `returns="output"`
takes x alone and returns the prediction (then the config names the loss)."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Layer(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return torch.tanh(self.linear(x))


class MLP(nn.Module):
    def __init__(self, inputs: int = 8, width: int = 32, layers: int = 2, outputs: int = 1):
        super().__init__()
        self.inputs, self.outputs = inputs, outputs
        self.first = nn.Linear(inputs, width)
        self.layers = nn.ModuleList([Layer(width) for _ in range(layers)])
        self.last = nn.Linear(width, outputs)

    def predict(self, x):
        x = torch.tanh(self.first(x))
        for layer in self.layers:
            x = layer(x)
        return self.last(x)

    def example_inputs(self):
        return (torch.zeros(2, self.inputs),)


class MLPOutput(MLP):
    def forward(self, x):
        return self.predict(x)


class MLPLoss(MLP):
    def forward(self, x, y):
        return F.mse_loss(self.predict(x), y)

    def example_inputs(self):
        return torch.zeros(2, self.inputs), torch.zeros(2, self.outputs)
