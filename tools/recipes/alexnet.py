"""AlexNet as a list of layers, as pipelines want it: convolutions with in-place ReLU, and two functions that are layers of
their own. forward(x) returns logits: the config names the loss, "loss": "cross_entropy". The sizes are torchvision's at
width 64. Dropout draws other numbers on each rank and stage; dropout 0 makes trajectories comparable."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Enlarge(nn.Module):
    """Pictures of any size become size x size: data stay as small as they came."""

    def __init__(self, size: int):
        super().__init__()
        self.size = size

    def forward(self, x):
        return F.interpolate(x, size=[self.size, self.size], mode="bilinear", align_corners=False)


class Flatten(nn.Module):
    def forward(self, x):
        return torch.flatten(x, 1)


def conv(channels, outputs, kernel, stride=1, padding=0):
    return [nn.Conv2d(channels, outputs, kernel, stride, padding), nn.ReLU(inplace=True)]


class AlexNet(nn.Sequential):
    def __init__(self, classes: int = 10, width: int = 64, size: int = 224, dropout: float = 0.5):
        if size < 63:
            raise ValueError(f"AlexNet needs pictures of 63 x 63 or more, not {size} x {size}")
        hidden = 64 * width
        super().__init__(
            Enlarge(size),
            *conv(3, width, 11, stride=4, padding=2), nn.MaxPool2d(3, 2),
            *conv(width, 3 * width, 5, padding=2), nn.MaxPool2d(3, 2),
            *conv(3 * width, 6 * width, 3, padding=1),
            *conv(6 * width, 4 * width, 3, padding=1),
            *conv(4 * width, 4 * width, 3, padding=1), nn.MaxPool2d(3, 2),
            nn.AdaptiveAvgPool2d(6), Flatten(),
            nn.Dropout(dropout), nn.Linear(4 * width * 36, hidden), nn.ReLU(inplace=True),
            nn.Dropout(dropout), nn.Linear(hidden, hidden), nn.ReLU(inplace=True),
            nn.Linear(hidden, classes))

    def example_inputs(self):
        return (torch.randn(2, 3, 32, 32),)
