"""The model of these checkpoints: odd sizes, a tied head, a frozen layer, a buffer and a parameter
of one element. make.py trains it under DeepSpeed, the tests export it with torch.jit.script."""
import torch
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self, width: int, inner: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class TinyModel(nn.Module):
    def __init__(self, vocabulary: int = 11, width: int = 6, inner: int = 7):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([Block(width, inner), Block(width, inner)])
        self.frozen = nn.Linear(width, width, bias=False)
        self.frozen.weight.requires_grad_(False)
        self.gain = nn.Parameter(torch.tensor([1.5]))
        self.register_buffer("shift", torch.linspace(-0.5, 0.5, width))
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        x = self.frozen(x) * self.gain + self.shift.to(x.dtype)
        logits = self.head(x).float()
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def make_model(seed: int) -> TinyModel:
    torch.manual_seed(seed)
    return TinyModel()


def make_data():
    """80 samples: 3 steps of 8 before the checkpoint, 5 after it, and some to spare."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(0, 11, (80, 5), generator=generator)
    return {"tokens": tokens, "labels": (tokens * 3 + 1) % 11}
