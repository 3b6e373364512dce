"""A random small model from a seed: Python source, which is both exported to TorchScript and run eagerly as the oracle.

    model = models.make(7);  print(model.source);  module = models.build(model, folder)"""
import importlib.util
import os
import random
import re
from typing import NamedTuple

import torch

from blocks import Block, indented

VOCABULARY, CLASSES, LENGTH = 13, 5, 4
HEAD = """from typing import Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


"""
# kind of data: (its first layer, what h begins as, the loss in forward, its name in a job file)
KINDS = {
    "rows": ("nn.Tanh()", "self.stem(x)", "F.mse_loss(out, y)", "mse"),
    "images": ("nn.Conv2d(2, W, 3, padding=1)", "self.stem(x).mean((2, 3))", "F.cross_entropy(out, label)", "cross_entropy"),
    "tokens": ("nn.Embedding(V, W)", "self.stem(ids)", "F.cross_entropy(out.flatten(0, 1), labels.flatten())",
               "cross_entropy"),
}
ARGUMENTS = {"rows": ("x", "y", "1"), "images": ("x", "label", "C"), "tokens": ("ids", "labels", "V")}
IN_CONTAINERS = {"list": ("nn.ModuleList([{b}() for _ in range({n})])", "self.{p}"),
                 "dict": ('nn.ModuleDict({{str(i): {b}() for i in range({n})}})', "self.{p}.values()"),
                 "again": ("nn.ModuleList([{b}() for _ in range({n})])\nself.{p}.append(self.{p}[0])", "self.{p}")}


class Model(NamedTuple):
    seed: int
    source: str
    kind: str
    form: str  # "script" or "trace"
    loss: str  # that the job file must name; "": forward returns it
    width: int
    blocks: tuple  # names of the classes that are there
    draws: bool  # random numbers


class Root:
    def __init__(self, rng, kind, form):
        self.rng, self.kind, self.form = rng, kind, form
        data = "tokens" if kind == "tokens" else "rows"
        self.classes = [Block(rng, f"Block{i}", form, data) for i in range(rng.randint(1, 3))]
        self.members, self.lines, self.changes, self.used, self.paths = [], [], [], [], []
        self.names_loss = rng.random() < 0.4
        for i in range(rng.randint(1, 4)):
            self.add_part(f"part{i}")
        self.share()

    def add_part(self, part):
        """Blocks of one class, alone or in a container, and the lines that call them."""
        rng, block = self.rng, self.rng.choice(self.classes)
        self.used.append(block)
        if rng.random() < 0.3:
            self.members.append(f"self.{part} = {block.name}()")
            self.paths.append((f"self.{part}", block))
            for _ in range(rng.choice([1, 1, 1, 0, 2, 3])):
                self.lines += self.disturbed(block.call(f"self.{part}"), is_loop=False)
            return
        # To TorchScript a module that is held twice is two: a buffer that one of them assigns is not the other's.
        made, walk = IN_CONTAINERS[rng.choice(["list", "list", "dict", "list" if block.assigns else "again"])]
        count = rng.randint(1, 3)
        self.members += f"self.{part} = {made}".format(b=block.name, n=count, p=part).split("\n")
        if "Dict" not in made:
            self.paths += [(f"self.{part}[{i}]", block) for i in range(count)]
        self.lines += self.disturbed([f"for q in {walk.format(p=part)}:", *indented(block.call("q"))], is_loop=True)

    def disturbed(self, lines, is_loop):
        """What a model may do around its blocks."""
        ways = [lines] * 8
        ways += [lines + ["h = h * 1.0", "h[..., 0] = 0.0"], lines + ["h.mul_(0.7)"],
                 ["before = h", *lines, "h = h + 0.5 * before.detach()"],
                 ["before = h", *lines, "h = torch.cat([h, before], 0)[:before.shape[0]]"],
                 lines + ["h = h.detach() + self.rest(h)"]]
        if self.form == "script":
            ways.append(["with torch.no_grad():", *indented(lines), "h = h + self.rest(h)"])
            if not is_loop:  # a loop over modules may not stand in an "if"
                ways.append(["if self.training:", *indented(lines)])
        return self.rng.choice(ways)

    def share(self):
        """Tied and frozen parameters, shared modules."""
        rng, dice = self.rng, self.rng.random()
        for path, block in self.paths:
            other, _ = rng.choice(self.paths)
            if block.layers and rng.random() < 0.1:
                self.changes.append(f"{path}.{block.layers[0]}.weight = {path}.{block.layers[-1]}.weight")
            if block.layers and (other, block) in self.paths and rng.random() < 0.15:
                self.changes.append(f"{path}.{block.layers[0]} = {other}.{block.layers[0]}")
            if dice < 0.15 and rng.random() < 0.5:
                self.changes.append(f"{path}.requires_grad_(False)")
        if self.kind == "tokens" and dice > 0.7:
            self.changes.append("self.head.weight = self.stem.weight")

    def source(self):
        stem, begin, loss, _ = KINDS[self.kind]
        inputs, labels, outputs = ARGUMENTS[self.kind]
        returned = ["return out"] if self.names_loss else [f"loss = {loss}", self.rng.choice([
            "return loss", "return loss + 0.01 * self.head.weight.square().sum()", "return loss, out",
            'return {"out": out, "loss": loss}'])]
        lines = [line for block in self.classes for line in block.source()]
        lines += ["class Root(nn.Module):", "    def __init__(self):", "        super().__init__()"]
        lines += indented([f"self.stem = {stem}", "self.rest = nn.Linear(W, W)", f"self.head = nn.Linear(W, {outputs})",
                           *self.members, *self.changes], 2)
        lines += ["", f"    def forward(self, {inputs if self.names_loss else f'{inputs}, {labels}'}):"]
        lines += indented([f"h = {begin}", "state = torch.zeros_like(h)", "count = torch.zeros((), dtype=torch.int64)",
                           *self.lines, "out = self.head(h + 0.1 * state)", *returned], 2)
        return HEAD + "\n".join(lines) + "\n"


def make(seed):
    rng = random.Random(seed)
    kind, form, width = rng.choice([*KINDS]), rng.choice(["script", "script", "trace"]), rng.choice([3, 4, 6, 7])
    root = Root(rng, kind, form)
    numbers = {"W": width, "V": VOCABULARY, "C": CLASSES}
    source = re.sub(r"\b[WVC]\b", lambda found: str(numbers[found[0]]), root.source())
    return Model(seed, source, kind, form, KINDS[kind][3] if root.names_loss else "", width,
                 tuple(sorted({block.name for block in root.used})), any(block.drawn for block in root.used))


def build(model, folder):
    """The module in train mode, the same at every call."""
    path = os.path.join(folder, f"model{model.seed}.py")  # TorchScript reads the source of classes from files
    if not os.path.exists(path):
        with open(path, "w") as file:
            file.write(model.source)
    spec = importlib.util.spec_from_file_location(f"model{model.seed}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with torch.random.fork_rng():
        torch.manual_seed(model.seed)
        return module.Root().train()


def export(model, folder):
    """The path of the TorchScript file."""
    path = os.path.join(folder, f"model{model.seed}.pt")
    if os.path.exists(path):
        return path
    module, given = build(model, folder), tuple(samples(model, 4).values())
    buffers = {name: value.clone() for name, value in module.named_buffers()}  # a trace is a run, and updates them
    with torch.random.fork_rng():
        made = (torch.jit.script(module) if model.form == "script" else
                torch.jit.trace(module, given[:-1] if model.loss else given, check_trace=False, strict=False))
    with torch.no_grad():
        for name, value in module.named_buffers():
            value.copy_(buffers[name])
    torch.jit.save(made, path)
    return path


def samples(model, rows, ignored=0.0):
    """Arrays in the order of forward, labels last; a share of the labels does not count."""
    generator = torch.Generator().manual_seed(model.seed)
    if model.kind == "tokens":
        ids = (torch.randint(0, VOCABULARY, (rows, 1), generator=generator) + 3 * torch.arange(LENGTH + 1)) % VOCABULARY
        arrays = {"ids": ids[:, :-1].contiguous(), "labels": ids[:, 1:].contiguous()}
    elif model.kind == "images":
        x = torch.randn(rows, 2, 5, 5, generator=generator)
        arrays = {"x": x, "label": (x.mean((1, 2, 3)) * 12 + 2.5).long().clamp(0, CLASSES - 1)}
    else:
        x = torch.randn(rows, model.width, generator=generator)
        arrays = {"x": x, "y": torch.sin(x.sum(1, keepdim=True))}
    name, labels = list(arrays.items())[-1]
    if ignored and not labels.is_floating_point():
        arrays[name] = labels.masked_fill(torch.rand(labels.shape, generator=generator) < ignored, -100)
    return arrays
