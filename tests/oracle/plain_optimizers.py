"""Lion, Lamb and Muon in a few lines of PyTorch each, parameter by parameter: the oracle's second writing of
docs/optimizers.md. Everything else is torch.optim's."""
import math

import torch


# Whose section has the arguments of the class.
TORCH_NAMES = {name.lower(): name for name in ("RMSprop", "NAdam", "RAdam", "Adamax", "Adadelta", "Rprop", "ASGD")}


def by_name(config, named):
    """Groups for torch.optim: `named` is a list of (name, parameter, number of dims). Knows "no_decay": "auto"."""
    if config.get("optimizer", {}).get("no_decay") != "auto":
        return [{"params": [parameter for _, parameter, _ in named]}]
    small = [parameter for _, parameter, dims in named if dims < 2]
    large = [parameter for _, parameter, dims in named if dims >= 2]
    return [{"params": small, "weight_decay": 0.0}, {"params": large}]


class Plain:
    """As much of torch.optim.Optimizer as the oracle uses."""

    def __init__(self, groups, **settings):
        self.param_groups = [{**settings, **group} for group in groups]
        self.state, self.t = {}, 0

    @torch.no_grad()
    def step(self):
        self.t += 1
        for group in self.param_groups:
            for p in group["params"]:
                moments = self.state.setdefault(id(p), [torch.zeros_like(p), torch.zeros_like(p)])
                self.update(p, p.grad, *moments, group)


class Lion(Plain):
    def update(self, p, g, m, _, group):
        first, second = group["betas"]
        sign = torch.sign(first * m + (1 - first) * g)
        p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * sign)
        m.mul_(second).add_((1 - second) * g)


class Lamb(Plain):
    def update(self, p, g, m, v, group):
        first, second = group["betas"]
        m.mul_(first).add_((1 - first) * g)
        v.mul_(second).add_((1 - second) * g * g)
        u = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * p
        norms = p.norm().item(), u.norm().item()
        ratio = min(group["max_coeff"], max(group["min_coeff"], norms[0] / norms[1])) if all(norms) else 1.0
        correction = math.sqrt(1 - second**self.t) / (1 - first**self.t)
        p.sub_(group["lr"] * correction * ratio * u)


class Muon(Plain):
    """Groups carry use_muon."""

    def update(self, p, g, m, v, group):
        decayed = p * (1 - group["lr"] * group["weight_decay"])
        if not group["use_muon"]:
            first, second = group["betas"]
            m.mul_(first).add_((1 - first) * g)
            v.mul_(second).add_((1 - second) * g * g)
            step = (m / (1 - first**self.t)) / ((v / (1 - second**self.t)).sqrt() + group["eps"])
        else:
            m.add_((1 - group["momentum"]) * (g - m))
            step = self.orthogonal(m - (1 - group["momentum"]) * (m - g)).float()
        p.copy_(decayed - group["lr"] * step)

    @staticmethod
    def orthogonal(u):
        if u.numel() == 0:
            return u
        x = (u.flatten(1) if u.dim() == 4 else u).bfloat16()  # a row for each filter
        tall = x.shape[-2] > x.shape[-1]
        x = x.mT if tall else x
        x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
        for _ in range(5):
            a = x @ x.mT
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        return (x.mT if tall else x).reshape(u.shape) * math.sqrt(max(1.0, u.shape[-2] / u.shape[-1]))


def make(kind, groups, given):
    """None for a kind that torch.optim has."""
    settings = {"lr": given.get("lr", 1e-3), "weight_decay": given.get("weight_decay", 0.0)}
    if kind == "lion":
        return Lion(groups, betas=given.get("betas", (0.9, 0.999)), **settings)
    if kind == "lamb":
        return Lamb(groups, betas=given.get("betas", (0.9, 0.999)), eps=given.get("eps", 1e-8),
                    min_coeff=given.get("min_coeff", 0.01), max_coeff=given.get("max_coeff", 10.0), **settings)
    if kind == "adagrad":
        return torch.optim.Adagrad(groups, lr=given.get("lr", 1e-2), lr_decay=given.get("lr_decay", 0.0),
                                   weight_decay=given.get("weight_decay", 0.0), eps=given.get("eps", 1e-10),
                                   foreach=False)
    if kind in TORCH_NAMES:
        return getattr(torch.optim, TORCH_NAMES[kind])(groups, foreach=False, **given)
    return None


def make_muon(named, given):
    settings = {"lr": given["lr"], "weight_decay": given.get("weight_decay", 0.0), "momentum": given.get("momentum", 0.95),
                "betas": given.get("betas", (0.9, 0.95)), "eps": given.get("eps", 1e-10)}
    matrices = [p for name, p, dims in named if dims >= 2 and "embed" not in name and "lm_head" not in name]
    others = [p for _, p, _ in named if not any(p is matrix for matrix in matrices)]
    return Muon([{"params": matrices, "use_muon": True}, {"params": others, "use_muon": False}], **settings)
