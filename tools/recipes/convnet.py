"""A small convolutional net with BatchNorm and in-place ReLU. forward(x) returns logits: the config names the loss,
"loss": "cross_entropy". Its trajectory depends on how a batch is split, since BatchNorm sees one micro batch at a time."""
import torch
import torch.nn as nn


class ConvBlock(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.norm(self.conv(x)))


class ConvNet(nn.Module):
    def __init__(self, in_channels: int = 1, classes: int = 10, width: int = 8, blocks: int = 2, size: int = 8):
        super().__init__()
        self.in_channels, self.size = in_channels, size
        self.stem = nn.Conv2d(in_channels, width, 3, padding=1)
        self.blocks = nn.ModuleList([ConvBlock(width) for _ in range(blocks)])
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.pool(x).flatten(1))

    def example_inputs(self):
        return (torch.randn(4, self.in_channels, self.size, self.size),)
