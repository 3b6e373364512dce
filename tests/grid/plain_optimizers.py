"""The optimizers of the grid's oracle: torch.optim's own where it has them, else the published formula written out."""
import torch


class FromTorch:
    def __init__(self, optimizer, masters):
        self.optimizer, self.masters = optimizer, masters

    def step(self, gradients, lr):
        for master, gradient in zip(self.masters, gradients):
            master.grad = gradient
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()


def adam(given, masters, decoupled):
    settings = {"lr": given.get("lr", 1e-3), "betas": tuple(given.get("betas", (0.9, 0.999))),
                "eps": given.get("eps", 1e-8), "weight_decay": given.get("weight_decay", 0.0), "foreach": False}
    return FromTorch((torch.optim.AdamW if decoupled else torch.optim.Adam)(masters, **settings), masters)


def sgd(given, masters):
    return FromTorch(torch.optim.SGD(masters, given.get("lr", 1e-3), given.get("momentum", 0.0),
                                     given.get("dampening", 0.0), given.get("weight_decay", 0.0),
                                     given.get("nesterov", False), foreach=False), masters)


def make(config, names, masters):
    section = config.get("optimizer", {"type": "AdamW"})
    kind, given = section["type"].lower(), section.get("params", {})
    if kind == "adamw":
        return adam(given, masters, True)
    if kind == "adam":
        return adam(given, masters, given.get("adam_w_mode", True))
    if kind == "sgd":
        return sgd(given, masters)
    raise NotImplementedError(f"the oracle knows no {section['type']}")
