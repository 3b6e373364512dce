"""The layers of the pipeline checkpoints: a function among them, a frozen weight, a buffer, and in two cases a tied embedding.
make_pipeline.py trains them under DeepSpeed, the tests export them as an nn.Sequential with torch.jit.script."""
import torch
from torch import Tensor, nn

from tiny_model import Block, make_data  # noqa: F401

VOCABULARY, WIDTH, INNER = 11, 6, 7


class Halve(nn.Module):
    """In DeepSpeed's list a function; as a module it has no state either, so both have the same numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return halve(x)


def halve(x: Tensor) -> Tensor:
    return x * 0.5


class Shift(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(WIDTH, WIDTH, bias=False)
        self.frozen.weight.requires_grad_(False)
        self.gain = nn.Parameter(torch.tensor([1.5]))
        self.register_buffer("shift", torch.linspace(-0.5, 0.5, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(x) * self.gain + self.shift.to(x.dtype)


class Embed(nn.Module):
    """Both ends of the net with one weight: ids become vectors, vectors become logits."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(VOCABULARY, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == torch.int64:
            return torch.nn.functional.embedding(x, self.weight)
        return torch.nn.functional.linear(x, self.weight)


def logits_of(module, x: Tensor) -> Tensor:
    return torch.nn.functional.linear(x, module.weight)


def loss_of(logits, labels):
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


class Loss(nn.Module):
    """The same as the file that a config's "loss" names."""

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


def make_layers(tied):
    """Modules in their order; with `tied`, the last one is the first one again."""
    first = Embed() if tied else nn.Embedding(VOCABULARY, WIDTH)
    return [first, Block(WIDTH, INNER), Halve(), Block(WIDTH, INNER), Shift(),
            first if tied else nn.Linear(WIDTH, VOCABULARY)]


def make_model(seed, tied=False):
    torch.manual_seed(seed)
    return nn.Sequential(*make_layers(tied))
