"""Small models with unusual habits, one dictionary for every test that iterates over models: CASES[name] is a Case.

    case = CASES["tied"];  model_cases.export("tied", path);  tensor_file.write(data, case.samples(rows))

Every model here is one that a user may bring. The numbers of a run must be those of plain PyTorch on the same file."""
import json
import warnings
from typing import Callable, Dict, Final, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Case(NamedTuple):
    module: Callable[[], nn.Module]  # built after torch.manual_seed, see build()
    samples: Callable[[int], Dict[str, Tensor]]  # number of rows -> arrays in the order of forward, labels last
    form: str = "script"  # or "trace" (in train mode), "trace_eval"
    config: dict = {}  # keys of the job's config that the model needs: "loss", "units"
    split: bool = False  # the numbers depend on how a batch is dealt: the oracle must split it alike
    stateful: bool = False  # buffers feed back into the numbers: in the oracle each rank has its own
    random: bool = False  # forward draws random numbers: each rank its own stream, seeded with train.seed + rank
    half_bound: float = 0.0  # where not 0: how far bf16 and fp16 runs may be off, instead of the grid's own bound


WIDTH, VOCAB, CLASSES = 6, 19, 5
FP32_MINIMUM = -3.4028234663852886e38
LABELS = ("labels", "label", "y")  # what the runtime takes for labels by name


# Samples -----------------------------------------------------------------------------------------------------------

def regression(rows, width=WIDTH):
    x = torch.randn(rows, width, generator=torch.Generator().manual_seed(11))
    return {"x": x, "y": torch.sin(x.sum(1, keepdim=True))}


def tokens(rows, length=5):
    generator = torch.Generator().manual_seed(12)
    ids = torch.randint(0, VOCAB, (rows, 1), generator=generator) + 3 * torch.arange(length + 1)
    noise = torch.randint(0, VOCAB, ids.shape, generator=generator)
    ids = torch.where(torch.rand(ids.shape, generator=generator) < 0.2, noise, ids)
    return {"ids": ids[:, :-1].contiguous() % VOCAB, "labels": ids[:, 1:].contiguous() % VOCAB}


def masked_tokens(rows):
    arrays = tokens(rows)
    mask = torch.ones(rows, 5, dtype=torch.int64)
    mask[::3, :2] = 0  # padded on the left: whole rows of the scores are hidden
    return {"ids": arrays["ids"], "mask": mask, "labels": arrays["labels"]}


def classes(rows):
    x = torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(13))
    return {"x": x, "label": (x[:, 0] * 1.5 + 2.5).long().clamp(0, CLASSES - 1)}


def images(rows):
    x = torch.randn(rows, 2, 5, 5, generator=torch.Generator().manual_seed(14))
    return {"x": x, "label": (x.mean((1, 2, 3)) * 12 + 2.5).long().clamp(0, CLASSES - 1)}


# Parts -------------------------------------------------------------------------------------------------------------

class Block(nn.Module):
    def __init__(self, width: int = WIDTH):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


def token_loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Regression(nn.Module):
    """Blocks, a head, the mean squared error. The cases differ in their blocks."""

    def __init__(self, blocks, width=WIDTH):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(width, 1)

    def forward(self, x, y):
        for block in self.blocks:
            x = block(x)
        return F.mse_loss(self.head(x), y)


def blocks_of(kind, count=2):
    return lambda: Regression([kind() for _ in range(count)])


# Parameters --------------------------------------------------------------------------------------------------------

class Tied(nn.Module):
    """The head is the embedding; two blocks share their second layer."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.blocks[1].down = self.blocks[0].down
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids, labels):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return token_loss(self.head(x), labels)


def frozen():
    model = Regression([Block(), Block(), Block()])
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not (name.startswith("blocks.1") or name.endswith("up.bias")))
    return model


class Adapted(nn.Module):
    """LoRA: a frozen layer beside a trained one of low rank that starts at zero."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.down, self.up = nn.Linear(inputs, 2, bias=False), nn.Linear(2, outputs, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x)) * 2.0


class AdaptedBlock(nn.Module):
    """Ends in a frozen layer, so backward needs that one first."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH).requires_grad_(False)
        self.mix, self.out = Adapted(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH).requires_grad_(False)

    def forward(self, x):
        return x + self.out(torch.tanh(self.mix(self.norm(x))))


class Lora(nn.Module):
    """Only adapters are trained: the embedding, the last norm and the head have no trained parameter at all."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH).requires_grad_(False)
        self.blocks = nn.ModuleList([AdaptedBlock(), AdaptedBlock(), AdaptedBlock()])
        self.norm = nn.LayerNorm(WIDTH).requires_grad_(False)
        self.head = nn.Linear(WIDTH, VOCAB).requires_grad_(False)

    def forward(self, ids, labels):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return token_loss(self.head(self.norm(x)), labels)


class FrozenBetween(nn.Module):
    """Frozen blocks in front of all trained ones, between them (called twice, with several inputs and outputs, one of
    them unused) and behind them; a frozen matrix that two blocks and the root share."""

    def __init__(self):
        super().__init__()
        self.stem = nn.ModuleList([Block(), Block()]).requires_grad_(False)
        self.trained = nn.ModuleList([SharedBlock(), SharedBlock()])
        self.pairs = nn.ModuleList([PairBlock(), PairBlock()]).requires_grad_(False)
        self.shared = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        for block in self.trained:
            block.shared = self.shared
        self.head = nn.Linear(WIDTH, 1).requires_grad_(False)

    def forward(self, x, y):
        for block in self.stem:
            x = block(x)
        first = self.trained[0](x)
        left, right = self.pairs[0](first, x)
        left, _ = self.pairs[0](left, right)
        left, right = self.pairs[1](self.trained[1](left), right.detach())
        return ((self.head(self.shared(left) + right) - y) ** 2).mean()


@torch.jit.script
class Basket:
    def __init__(self):
        self.parts: List[Tensor] = []

    def put(self, part: Tensor):
        self.parts.append(part)


class LeavingBlock(Block):
    """Returns one thing and leaves another in a list and in an object that it was given."""

    def forward(self, x, parts: List[Tensor], basket: Basket):
        hidden = torch.tanh(self.up(x))
        parts.append(self.down(hidden))
        basket.put(self.down(hidden * 0.5))
        return x + 0.1 * hidden[:, :x.size(1)]


class Leaving(nn.Module):
    """The loss sees only what blocks left behind, the middle one's frozen."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([LeavingBlock(), LeavingBlock(), LeavingBlock()])
        self.blocks[1].requires_grad_(False)

    def forward(self, x, y):
        parts: List[Tensor] = []
        basket = Basket()
        for block in self.blocks:
            x = block(x, parts, basket)
        total = torch.zeros_like(y)
        for part in parts + basket.parts:
            total = total + part.sum(1, keepdim=True)
        return ((total - y) ** 2).mean()


class SharedBlock(Block):
    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.shared(torch.tanh(x + self.down(torch.tanh(self.up(x)))))


class PairBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, a, b):
        return torch.tanh(self.left(a) * b), torch.sigmoid(self.right(b)) + a


class EmptyParameterBlock(Block):
    """A parameter without elements that is used, and one that is not."""

    def __init__(self):
        super().__init__()
        self.none, self.idle = nn.Parameter(torch.empty(0, WIDTH)), nn.Parameter(torch.empty(3, 0))

    def forward(self, x):
        extra = torch.cat([self.up.weight, self.none])
        return x + self.down(torch.tanh(F.linear(x, extra, self.up.bias)))


class ScalarBlock(Block):
    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.tensor(0.9)), nn.Parameter(torch.tensor(0.1))

    def forward(self, x):
        return x * self.scale + self.down(torch.tanh(self.up(x) + self.shift))


class ScalarModel(Regression):
    def __init__(self):
        super().__init__([ScalarBlock(), ScalarBlock()])
        self.temperature = nn.Parameter(torch.tensor(1.5))

    def forward(self, x, y):
        for block in self.blocks:
            x = block(x)
        return F.mse_loss(self.head(x) / self.temperature, y)


class Bottleneck(nn.Module):
    """Every parameter has an odd number of elements."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(7, 13), nn.Linear(13, 7)
        self.gain = nn.Parameter(torch.ones(1, 7))

    def forward(self, x):
        return x + self.gain * self.b(torch.tanh(self.a(x)))


class MixedBlock(nn.Module):
    """A layer in bf16 between layers in fp32, as models are exported that keep their norms in fp32."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH).bfloat16(), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        hidden = self.up(self.norm(x).to(self.up.weight.dtype))
        return x + self.down(torch.tanh(hidden.to(self.down.weight.dtype)))


class UnusedBlock(Block):
    def __init__(self):
        super().__init__()
        self.idle = nn.Linear(3, 3)


class UnusedModel(Regression):
    """A parameter and a layer of a unit, a parameter of the root and a whole block that nobody calls."""

    def __init__(self):
        super().__init__([UnusedBlock() for _ in range(3)])
        self.idle = nn.Parameter(torch.ones(5))

    def forward(self, x, y):
        for i, block in enumerate(self.blocks):
            if i != 1:
                x = block(x)
        return F.mse_loss(self.head(x), y)


class TwiceInside(nn.Module):
    """One layer used twice inside a unit."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + torch.tanh(self.layer(torch.tanh(self.layer(x))))


class CalledTwice(Regression):
    """A unit that is called twice in a step, with another between."""

    def forward(self, x, y):
        x = self.blocks[0](x)
        x = self.blocks[1](x)
        x = self.blocks[0](x)
        return F.mse_loss(self.head(x), y)


class SharedNames(nn.Module):
    """One module under two names, and a shared module inside two units."""

    def __init__(self):
        super().__init__()
        self.first = Block()
        self.second = self.first
        self.blocks = nn.ModuleList([Block(), Block()])
        self.blocks[1].up = self.blocks[0].up
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x, y):
        x = self.second(self.first(x))
        for block in self.blocks:
            x = block(x)
        return F.mse_loss(self.head(x), y)


class ListBlock(nn.Module):
    """A ParameterList and a ParameterDict."""

    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(WIDTH, WIDTH) * 0.3) for _ in range(3)])
        self.named = nn.ParameterDict({"gain": nn.Parameter(torch.ones(WIDTH)),
                                       "bias": nn.Parameter(torch.zeros(WIDTH))})

    def forward(self, x):
        out = x
        for weight in self.weights:
            out = torch.tanh(out @ weight)
        return x + out * self.named["gain"] + self.named["bias"]


class HeldAgainBlock(nn.Module):
    """Its parameters once more in a dict, a tuple and a list of dicts: the same tensors, as in Python."""
    by_name: Dict[str, Tensor]
    pair: Tuple[Tensor, Tensor]
    nested: List[Dict[str, List[Tensor]]]

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)
        self.by_name = {"weight": self.up.weight}
        self.pair = (self.up.weight, self.up.bias)
        self.nested = [{"all": [self.up.weight, self.up.bias]}]

    def forward(self, x):
        weight, bias = self.pair
        x = torch.tanh(x @ weight.t() + bias) @ self.by_name["weight"]
        return x + torch.tanh(self.up(x)) @ self.nested[0]["all"][0]


class HeldOutside(Regression):
    """The root holds weights of the blocks in a list, and reads one that a block holds in a dict."""
    held: List[Tensor]

    def __init__(self):
        super().__init__([HeldAgainBlock(), HeldAgainBlock(), Block()])
        self.held = [self.blocks[2].up.weight]

    def forward(self, x, y):
        for block in self.blocks:
            x = block(x)
        penalty = self.held[0].square().mean() + self.blocks[1].by_name["weight"].square().mean()
        return F.mse_loss(self.head(x), y) + 0.1 * penalty


class Recurrent(nn.Module):
    """nn.LSTM keeps its parameters a second time, in a list."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.lstm = nn.LSTM(WIDTH, 7, num_layers=2, batch_first=True)
        self.head = nn.Linear(7, VOCAB)

    def forward(self, ids, labels):
        hidden, _ = self.lstm(self.embedding(ids))
        return token_loss(self.head(hidden), labels)


# Control flow ------------------------------------------------------------------------------------------------------

class SkipByValue(Regression):
    """The second block runs when the batch's mean is positive."""

    def forward(self, x, y):
        for i, block in enumerate(self.blocks):
            if i != 1 or bool(x.mean() > 0):
                x = block(x)
        return F.mse_loss(self.head(x), y)


class SkipByParity(Regression):
    """The second block runs in every other forward pass; a buffer counts."""

    def __init__(self):
        super().__init__([Block(), Block(), Block()])
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x, y):
        if self.training:
            self.calls += 1
        for i, block in enumerate(self.blocks):
            if i != 1 or int(self.calls) % 2 == 0:
                x = block(x)
        return F.mse_loss(self.head(x), y)


class Loop(Regression):
    """A unit called as often as a tensor says."""

    def forward(self, x, y):
        x = self.blocks[0](x)
        for _ in range(int((x[0, 0] > 0).long()) + 1):
            x = self.blocks[1](x)
        return F.mse_loss(self.head(x), y)


# Buffers -----------------------------------------------------------------------------------------------------------

class BufferBlock(Block):
    """Buffers that forward updates, in place and by assignment, of floating and integer type; one feeds back."""

    mean: Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("order", torch.arange(WIDTH - 1, -1, -1))

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
            self.calls += 1
        return x + self.down(torch.tanh(self.up(x[:, self.order] - self.mean)))


class Teacher(nn.Module):
    """Buffers that follow a layer under no_grad, which a trace forgets: they must not carry gradients from step to step."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
        self.register_buffer("weight", self.layer.weight.detach().clone())
        self.register_buffer("bias", self.layer.bias.detach().clone())

    def forward(self, x, y):
        hidden = self.layer(x)
        loss = F.mse_loss(self.head(torch.tanh(hidden)), y) + F.mse_loss(hidden, F.linear(x, self.weight, self.bias))
        if self.training:
            with torch.no_grad():
                self.weight.lerp_(self.layer.weight, 0.3)
                self.bias.lerp_(self.layer.bias, 0.3)
        return loss


class NormBlock(nn.Module):
    """BatchNorm and an activation that works in place, on the unit's own input too."""

    def __init__(self, channels: int = 4):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.act(self.norm(self.conv(x)) + x)


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.blocks = nn.Sequential(NormBlock(), NormBlock())
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class InPlaceBlock(nn.Module):
    """Works in place on the very tensor that it was given."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        x = torch.tanh_(x)
        return x + self.layer(x)


class InPlaceModel(Regression):
    def forward(self, x, y):
        x = x * 1.0  # the samples themselves stay
        for block in self.blocks:
            x = block(x)
        return F.mse_loss(self.head(x), y)


# Gradients ---------------------------------------------------------------------------------------------------------

class NoGradBlock(Block):
    """A statistic under no_grad and a detached path."""

    def forward(self, x):
        with torch.no_grad():
            scale = 1.0 / (1.0 + self.up(x).abs().mean())
        return x + self.down(torch.tanh(self.up(x) * scale)) + 0.1 * self.down(self.up(x)).detach()


class NoGradUnit(Regression):
    """A whole unit under no_grad, another whose output is detached."""

    def forward(self, x, y):
        with torch.no_grad():
            x = self.blocks[0](x)
        x = self.blocks[1](x).detach() + x
        x = self.blocks[2](x)
        return F.mse_loss(self.head(x), y)


# Values that units take and return ---------------------------------------------------------------------------------

class ViewsBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        x = self.layer(torch.tanh(x))
        return x[:, :3], x[:, 3:]


class ViewsModel(nn.Module):
    """Blocks return views, and what calls them works in place on one."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([ViewsBlock(), ViewsBlock()])
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x, y):
        for block in self.blocks:
            first, second = block(x)
            first.mul_(1.5)
            x = torch.cat([second, first], 1)
        return F.mse_loss(self.head(x), y)


class TupleBlock(nn.Module):
    """Takes a tuple and an optional, returns a tuple: a state that wanders along."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, pair: Tuple[Tensor, Tensor], shift: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
        x, state = pair
        if shift is not None:
            x = x + shift
        state = torch.tanh(self.a(state) + x)
        return x + self.b(state), state


class TupleModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([TupleBlock(), TupleBlock(), TupleBlock()])
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x, y):
        pair = (x, torch.zeros_like(x))
        for i, block in enumerate(self.blocks):
            pair = block(pair, pair[1] if i == 1 else None)
        out = self.head(pair[0])
        return F.mse_loss(out, y), out


class DictBlock(nn.Module):
    """Takes and returns a dict and a list; one entry is no tensor of gradients."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, state: Dict[str, Tensor], seen: List[Tensor]) -> Tuple[Dict[str, Tensor], List[Tensor]]:
        x = state["x"]
        y = torch.tanh(self.a(x))
        return {"x": x + self.b(y), "count": state["count"] + 1}, seen + [y]


class DictModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([DictBlock(), DictBlock()])
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x, y) -> Dict[str, Tensor]:
        state, seen = {"x": x, "count": torch.zeros((), dtype=torch.int64)}, torch.jit.annotate(List[Tensor], [])
        for block in self.blocks:
            state, seen = block(state, seen)
        out = self.head(state["x"] + torch.stack(seen).sum(0) / state["count"])
        return {"out": out, "loss": F.mse_loss(out, y)}


class DefaultsBlock(Block):
    """Arguments that are no tensors, with defaults and by name."""

    def forward(self, x, scale: float = 0.5, times: int = 1, flip: bool = False, name: str = "a"):
        for _ in range(times):
            x = x + scale * self.down(torch.tanh(self.up(x)))
        if flip:
            x = x.flip(1)
        return x if name == "a" else -x


class DefaultsModel(Regression):
    def __init__(self):
        super().__init__([DefaultsBlock(), DefaultsBlock(), DefaultsBlock()])

    def forward(self, x, y):
        for i, block in enumerate(self.blocks):
            if i == 0:
                x = block(x)
            elif i == 1:
                x = block(x, times=2, flip=True)
            else:
                x = block(x, 0.25, name="b")
        return F.mse_loss(self.head(x), y)


class OptionalInputs(Regression):
    """Inputs of forward that the data need not have."""

    def __init__(self):
        super().__init__([Block(), Block()])

    def forward(self, x, y, weight: Optional[Tensor] = None):
        for block in self.blocks:
            x = block(x)
        difference = (self.head(x) - y).square()
        return difference.mean() if weight is None else (difference * weight).mean()


# Modules -----------------------------------------------------------------------------------------------------------

class NoBlocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(WIDTH, 9), nn.LayerNorm(9), nn.Linear(9, 1)

    def forward(self, x, y):
        return F.mse_loss(self.third(torch.tanh(self.second(self.first(x)))), y)


class BareParameters(nn.Module):
    """No module at all below the root."""

    def __init__(self):
        super().__init__()
        self.w, self.b = nn.Parameter(torch.randn(WIDTH, 1) * 0.1), nn.Parameter(torch.zeros(1))

    def forward(self, x, y):
        return F.mse_loss(x @ self.w + self.b, y)


class OtherMethodBlock(Block):
    @torch.jit.export
    def project(self, x):
        return self.up(x)[:, :x.shape[1]]


class OtherMethod(Regression):
    """A method of a unit other than forward is called from outside."""

    def __init__(self):
        super().__init__([OtherMethodBlock(), OtherMethodBlock()])

    def forward(self, x, y):
        x = self.blocks[0](x) + self.blocks[1].project(x)
        return F.mse_loss(self.head(self.blocks[1](x)), y)


class OwnMethodBlock(Block):
    """A unit whose forward calls other methods of its own and a scripted function."""

    def inner(self, x):
        return torch.tanh(self.up(x))

    def forward(self, x):
        return residual(x, self.down(self.inner(x)))


@torch.jit.script
def residual(x: Tensor, change: Tensor) -> Tensor:
    return x + 0.5 * change


class ReadFromOutside(Regression):
    """The root uses a parameter of a block: a penalty, and a head tied to a part of it."""

    def forward(self, x, y):
        for block in self.blocks:
            x = block(x)
        return F.mse_loss(self.head(x), y) + 0.01 * self.blocks[1].up.weight.square().mean()


class SkipConnections(Regression):
    """The last block and the head read what earlier blocks have returned: the blocks between them have nothing to do with
    it."""

    def forward(self, x, y):
        first = self.blocks[0](x)
        second = self.blocks[1](first)
        third = self.blocks[2](second)
        return F.mse_loss(self.head(self.blocks[3](third + first) + second), y)


class Nested(nn.Module):
    """Blocks of blocks: the outer ones are the units; and the inner class stands outside them as well."""

    def __init__(self):
        super().__init__()
        self.first = Block()
        self.groups = nn.ModuleList([nn.Sequential(Block(), Block()), nn.Sequential(Block(), Block())])
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x, y):
        x = self.first(x)
        for group in self.groups:
            x = group(x)
        return F.mse_loss(self.head(x), y)


class CallsItsNeighbour(nn.Module):
    """A unit holds another unit of its own kind inside."""

    def __init__(self, inner: Optional[nn.Module] = None):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.inner = inner if inner is not None else nn.Identity()

    def forward(self, x):
        return x + torch.tanh(self.inner(self.layer(x)))


@torch.jit.interface
class Step(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class SmallStep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.layer(x))


class InterfaceModel(nn.Module):
    """The block to call is picked from a list by a number, through an interface."""

    def __init__(self):
        super().__init__()
        self.steps = nn.ModuleList([SmallStep(), SmallStep(), SmallStep()])
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x, y):
        for i in [2, 0, 1]:
            step: Step = self.steps[i]
            x = step.forward(x)
        return F.mse_loss(self.head(x), y)


class NamedModules(nn.Module):
    """A ModuleDict, and blocks of one class side by side without a container."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"one": Block(), "two": Block()})
        self.left, self.right = Block(), Block()
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x, y):
        for block in self.parts.values():
            x = block(x)
        return F.mse_loss(self.head(self.left(x) + self.right(x)), y)


class Hooked(Regression):
    """A forward hook of a block, which TorchScript keeps."""

    def __init__(self):
        super().__init__([Block(), Block()])
        self.blocks[1].register_forward_hook(halve_output)


def halve_output(module, inputs: Tuple[Tensor], output: Tensor) -> Tensor:
    return output * 0.5


class Forked(Regression):
    """Two blocks run on threads of their own."""

    def forward(self, x, y):
        other = torch.jit.fork(self.blocks[0], x)
        x = self.blocks[1](x) + torch.jit.wait(other)
        return F.mse_loss(self.head(x), y)


class SparseTable(nn.Module):
    """An embedding whose gradient is sparse."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(VOCAB, WIDTH, sparse=True), nn.Linear(WIDTH, VOCAB)

    def forward(self, ids, labels):
        return token_loss(self.head(self.embedding(ids)), labels)


class Strided(nn.Module):
    """Weights whose memory is not in the order of their dims."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1).to(memory_format=torch.channels_last)
        self.mix = nn.Parameter(torch.randn(3, 4).t())
        self.head = nn.Linear(3, CLASSES)

    def forward(self, x):
        return self.head(self.stem(x).mean((2, 3)) @ self.mix)


class FrozenNorm(ConvNet):
    """BatchNorm that was put into eval mode while the rest trains."""

    def __init__(self):
        super().__init__()
        for block in self.blocks:
            block.norm.running_mean.uniform_(-0.1, 0.1)


def frozen_norm():
    model = FrozenNorm()
    model.train = lambda mode=True: nn.Module.train(model, mode) and still(model)
    return model


def still(model):
    for block in model.blocks:
        block.norm.eval()
    return model


class LargeLeaf(nn.Module):
    """An embedding that is a unit of its own and padded, a head that is one too."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(70_000, 2, padding_idx=0)
        self.head = nn.Linear(2, VOCAB)

    def forward(self, ids, labels):
        return token_loss(self.head(self.embedding(ids * 13)), labels)


# Random numbers, masks, constants ----------------------------------------------------------------------------------

class DropoutBlock(Block):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.25)

    def forward(self, x):
        return x + self.drop(self.down(torch.tanh(self.up(self.drop(x)))))


class Attention(nn.Module):
    """Scores plus a mask whose minimum is that of fp32: what traced models of transformers hold as a constant."""

    hidden: Final[float]

    def __init__(self):
        super().__init__()
        self.hidden = FP32_MINIMUM
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.drop = nn.Dropout(0.1)

    def forward(self, x, allowed):
        q, k, v = self.qkv(x).chunk(3, -1)
        hidden = torch.full((), self.hidden, dtype=torch.float32, device=x.device)
        scores = (q @ k.transpose(-1, -2)) / x.shape[-1] ** 0.5
        scores = scores + torch.where(allowed, torch.zeros_like(hidden), hidden).to(scores.dtype)
        return x + self.out(self.drop(scores.softmax(-1)) @ v)


class FusedAttention(nn.Module):
    """Attention as one operator, whose dropout is a number."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(x.unsqueeze(1)).chunk(3, -1)
        p = 0.2 if self.training else 0.0
        return x + self.out(F.scaled_dot_product_attention(q, k, v, dropout_p=p)).squeeze(1)


class MaskedModel(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList([Attention(), Attention()])
        for block in self.blocks:
            block.drop.p = dropout
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, ids, mask, labels):
        length = ids.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=ids.device).tril()
        allowed = causal & (mask[:, None, :] > 0)
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, allowed)
        return token_loss(self.head(x), labels)


class FilledMask(nn.Module):
    """The other way of masks: masked_fill with fp32's minimum as a number."""

    hidden: Final[float]

    def __init__(self):
        super().__init__()
        self.hidden = FP32_MINIMUM
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.qkv, self.head = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, VOCAB)

    def forward(self, ids, mask, labels):
        q, k, v = self.qkv(self.embedding(ids)).chunk(3, -1)
        scores = (q @ k.transpose(-1, -2)).masked_fill(mask[:, None, :] == 0, self.hidden)
        return token_loss(self.head(scores.softmax(-1) @ v), labels)


class PlacedBlock(Block):
    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x) + 0.1 * torch.ones(2 * x.shape[-1], device=x.device, dtype=x.dtype)))


class DeviceConstants(nn.Module):
    """Tensors that forward makes on the device of its inputs; a trace bakes that device in."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(5, WIDTH)
        self.blocks = nn.ModuleList([PlacedBlock(), PlacedBlock()])
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, ids, labels):
        place = torch.arange(ids.shape[1], device=ids.device)
        x = self.tokens(ids) + self.places(place)
        x = x + torch.tensor([0.1] * WIDTH, device=ids.device, dtype=x.dtype)
        for block in self.blocks:
            x = block(x)
        return token_loss(self.head(x), labels)


class NumbersBlock(Block):
    """Numbers beside scalars: a trace's file has them as tensors in 64 bits, which must not make float64 of all they
    meet."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(0.9))

    def forward(self, x):
        gains = torch.stack([0.5 * self.gain, 1.5 - self.gain]).repeat(x.shape[1] // 2)
        return x + gains * self.down(torch.tanh(self.up(x)))


def logits_of(blocks):
    class Logits(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks, self.head = nn.Sequential(*blocks()), nn.Linear(WIDTH, CLASSES)

        def forward(self, x):
            return self.head(self.blocks(x))

    return Logits


ENTROPY = {"loss": "cross_entropy"}

CASES = {
    "plain": Case(blocks_of(Block), regression),
    "plain_trace": Case(blocks_of(Block), regression, "trace"),
    # parameters
    "tied": Case(Tied, tokens),
    "tied_trace": Case(Tied, tokens, "trace"),
    "frozen": Case(frozen, regression),
    "frozen_trace": Case(frozen, regression, "trace"),
    "lora": Case(Lora, tokens),
    "lora_trace": Case(Lora, tokens, "trace"),
    "frozen_between": Case(FrozenBetween, regression),
    "frozen_between_trace": Case(FrozenBetween, regression, "trace"),
    "leaving": Case(Leaving, regression),
    "zero_size": Case(blocks_of(EmptyParameterBlock), regression),
    "scalar": Case(ScalarModel, regression),
    "odd": Case(lambda: Regression([Bottleneck(), Bottleneck(), Bottleneck()], 7), lambda rows: regression(rows, 7)),
    "mixed_dtype": Case(blocks_of(MixedBlock), regression, half_bound=5e-2),
    "unused": Case(UnusedModel, regression),
    "used_twice": Case(blocks_of(TwiceInside), regression),
    "called_twice": Case(lambda: CalledTwice([Block(), Block()]), regression),
    "called_twice_trace": Case(lambda: CalledTwice([Block(), Block()]), regression, "trace"),
    "shared_names": Case(SharedNames, regression),
    "parameter_list": Case(blocks_of(ListBlock), regression),
    "lstm": Case(Recurrent, tokens),
    "lstm_trace": Case(Recurrent, tokens, "trace"),
    # control flow
    "skip_by_value": Case(lambda: SkipByValue([Block(), Block(), Block()]), regression, split=True),
    "skip_by_parity": Case(SkipByParity, regression, split=True, stateful=True),
    "loop": Case(lambda: Loop([Block(), Block()]), regression, split=True),
    # buffers
    "buffers": Case(blocks_of(BufferBlock), regression, split=True, stateful=True),
    "teacher": Case(Teacher, regression, split=True, stateful=True),
    "teacher_trace": Case(Teacher, regression, "trace", split=True, stateful=True),
    "batch_norm": Case(ConvNet, images, config=ENTROPY, split=True),
    "batch_norm_trace_eval": Case(ConvNet, images, "trace_eval", ENTROPY),
    "batch_norm_trace": Case(ConvNet, images, "trace", ENTROPY, split=True),
    "in_place": Case(lambda: InPlaceModel([InPlaceBlock(), InPlaceBlock()]), regression),
    # gradients
    "no_grad": Case(blocks_of(NoGradBlock), regression, split=True),
    "no_grad_unit": Case(lambda: NoGradUnit([Block(), Block(), Block()]), regression),
    # what units take and return
    "tuples": Case(TupleModel, regression),
    "tuples_trace": Case(TupleModel, regression, "trace"),
    "dicts": Case(DictModel, regression),
    "defaults": Case(DefaultsModel, regression),
    "optional_inputs": Case(OptionalInputs, regression),
    # modules
    "no_blocks": Case(NoBlocks, regression),
    "no_blocks_trace": Case(NoBlocks, regression, "trace"),
    "bare": Case(BareParameters, regression),
    "other_method": Case(OtherMethod, regression),
    "own_method": Case(blocks_of(OwnMethodBlock), regression),
    "read_outside": Case(lambda: ReadFromOutside([Block(), Block()]), regression),
    "read_outside_trace": Case(lambda: ReadFromOutside([Block(), Block()]), regression, "trace"),
    "nested": Case(Nested, regression),
    "unit_in_unit": Case(blocks_of(lambda: CallsItsNeighbour(CallsItsNeighbour())), regression),
    "interface": Case(InterfaceModel, regression),
    "named_modules": Case(NamedModules, regression),
    "hooked": Case(Hooked, regression),
    "forked": Case(lambda: Forked([Block(), Block()]), regression),
    "sparse_table": Case(SparseTable, tokens),
    "strided": Case(Strided, images, config=ENTROPY),
    "frozen_norm": Case(frozen_norm, images, config=ENTROPY),
    "large_leaf": Case(LargeLeaf, tokens),
    # random numbers, masks, constants
    "dropout": Case(blocks_of(DropoutBlock), regression, split=True, random=True),
    "dropout_trace": Case(blocks_of(DropoutBlock), regression, "trace", split=True, random=True),
    "dropout_trace_eval": Case(blocks_of(DropoutBlock), regression, "trace_eval"),
    "attention": Case(blocks_of(FusedAttention), regression, split=True, random=True),
    "attention_trace": Case(blocks_of(FusedAttention), regression, "trace", split=True, random=True),
    "mask_minimum": Case(MaskedModel, masked_tokens),
    "mask_minimum_trace": Case(MaskedModel, masked_tokens, "trace"),
    "mask_filled_trace": Case(FilledMask, masked_tokens, "trace"),
    "device_constants_trace": Case(DeviceConstants, tokens, "trace"),
    "numbers_trace": Case(blocks_of(NumbersBlock), regression, "trace"),
    "named_loss": Case(lambda: logits_of(lambda: [Block(), Block()])(), classes, config=ENTROPY),

    "held_again": Case(blocks_of(HeldAgainBlock), regression),
    "held_outside": Case(HeldOutside, regression),
    "view_outputs": Case(ViewsModel, regression),
    "skip_connections": Case(lambda: SkipConnections([Block() for _ in range(4)]), regression),
}


def build(name, seed=0):
    """The case's module in train mode, the same at every call."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return CASES[name].module().train()


def eager(name, seed=0, dtype=torch.float32):
    """The case as a plain module that computes what its file should: the oracle, more exact than PyTorch's own run of the
    file (whose passes merge equal expressions across the end of a no_grad block, and so lose gradients). With `dtype`
    bf16 or fp16, minima of masks are those that stand in for fp32's (docs/precision.md): half of the type's own."""
    module = build(name, seed).train(CASES[name].form != "trace_eval")
    for part in module.modules():
        if dtype != torch.float32 and hasattr(part, "hidden"):
            part.hidden = torch.finfo(dtype).min / 2
    return module


def example_of(name, rows=4):
    """Arguments of forward for a trace."""
    case = CASES[name]
    is_apart = "loss" in case.config  # labels go to the loss, not to forward
    return tuple(array for key, array in case.samples(rows).items() if not (is_apart and key in LABELS))


def exported(name, seed=0):
    """The case's TorchScript module."""
    module, form = build(name, seed), CASES[name].form
    if form == "script":
        return torch.jit.script(module)
    module.train(form == "trace")
    buffers = {key: value.clone() for key, value in module.named_buffers()}  # a trace is a run, and updates them
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(module, example_of(name), check_trace=False)
    for key, value in module.named_buffers():
        value.copy_(buffers[key])
    return traced


def export(name, path, seed=0):
    """With the shapes of the inputs, as exporters record them: without, no tensor parallel ranks would split anything."""
    module = exported(name, seed)
    names = [argument.name for argument in module._c._get_method("forward").schema.arguments[1:]]
    inputs = [{"name": each, "dtype": str(array.dtype).removeprefix("torch."), "shape": list(array.shape[1:])}
              for each, array in zip(names, example_of(name))]
    torch.jit.save(module, path, _extra_files={"dslaunch.json": json.dumps({"format": 1, "inputs": inputs})})
    return path
