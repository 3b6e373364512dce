"""The optimizers of docs/optimizers.md, one parameter at a time, with all of their settings and with groups: written a
second time."""
import fnmatch
import math
import operator
import re

import torch

import plain_optimizers

CONDITIONS = {"<": operator.lt, "<=": operator.le, "==": operator.eq, ">=": operator.ge, ">": operator.gt}


def matches(pattern, names, dims):
    found = re.fullmatch(r"ndim(<=|>=|==|<|>)(\d+)", pattern)
    if found:
        return CONDITIONS[found[1]](dims, int(found[2]))
    return any(fnmatch.fnmatchcase(name, pattern) for name in names)


def in_no_decay(no_decay, names, dims, norm_weights):
    if no_decay == "auto":
        return dims < 2 or any(name.endswith("bias") or name in norm_weights for name in names)
    return any(matches(pattern, names, dims) for pattern in no_decay or [])


def settings_of(section, names, dims, norm_weights):
    """The settings of one parameter: those of its group over those of all. `own_lr`: its group has given one."""
    params = dict(section["params"])
    for group in section.get("param_groups", {}).values():
        if any(matches(pattern, names, dims) for pattern in group["match"]):
            own = {key: value for key, value in group.items() if key != "match"}
            return {**params, **own, "own_lr": "lr" in own}
    return {**params, "weight_decay": 0.0} if in_no_decay(section.get("no_decay"), names, dims, norm_weights) else params


class Rule:
    def __init__(self, kind, settings, names, dims):
        self.settings, self.state, self.t = settings, {}, 0
        self.kind = "adamw" if kind == "Muon" else kind.lower()
        self.decays_apart = kind != "Adam" or settings.get("adam_w_mode", True)
        self.eps, self.default_betas, self.lr = settings.get("eps"), (0.9, 0.999), settings["lr"]
        if kind == "Muon":
            self.default_betas = (0.9, 0.95)
            is_matrix = dims >= 2 and not any("embed" in name or "lm_head" in name for name in names)
            self.kind = "muon" if is_matrix else "adamw"
            if not settings.get("own_lr"):
                self.lr = settings.get("muon_lr" if is_matrix else "adam_lr", self.lr)

    def kept(self, name, p, first=0.0):
        return self.state.setdefault(name, torch.full_like(p, first))

    def betas(self, cycled):
        return cycled or self.settings.get("betas", self.default_betas)

    @torch.no_grad()
    def step(self, p, g, lr, cycled):
        """`cycled`: the betas that a schedule sets, or None."""
        self.t += 1
        g = -g if self.settings.get("maximize") else g
        decay = self.settings.get("weight_decay", 0.0)
        kind = "adamw" if self.kind == "adam" else self.kind
        getattr(self, kind)(p, g, lr, decay, cycled)

    def moments(self, p, g, betas):
        m, v = self.kept("m", p), self.kept("v", p)
        m.add_((g - m) * (1 - betas[0]))
        v.mul_(betas[1]).add_(g * g * (1 - betas[1]))
        corrected = self.settings.get("bias_correction", True)
        return m, v, *((1 - beta**self.t if corrected else 1.0) for beta in betas)

    def adamw(self, p, g, lr, decay, cycled):
        if not self.decays_apart:
            g, decay = g + decay * p, 0.0
        m, v, c1, c2 = self.moments(p, g, self.betas(cycled))
        if self.settings.get("amsgrad"):
            v = self.kept("largest", p).copy_(torch.maximum(self.kept("largest", p), v))
        p.mul_(1 - lr * decay).sub_(lr / c1 * m / (v.sqrt() / math.sqrt(c2) + self.eps))

    def sgd(self, p, g, lr, decay, cycled):
        g, momentum = g + decay * p, self.settings.get("momentum", 0.0)
        if momentum:
            b = self.kept("b", p)
            g = b.copy_(g if self.t == 1 else momentum * b + (1 - self.settings.get("dampening", 0.0)) * g)
        p.sub_(lr * g)

    def lion(self, p, g, lr, decay, cycled):
        (b1, b2), m = self.betas(cycled), self.kept("m", p)
        p.mul_(1 - lr * decay).sub_(lr * torch.sign(b1 * m + (1 - b1) * g))
        m.mul_(b2).add_((1 - b2) * g)

    def adagrad(self, p, g, lr, decay, cycled):
        g = g + decay * p
        s = self.kept("s", p, self.settings.get("initial_accumulator_value", 0.0)).add_(g * g)
        p.sub_(lr / (1 + (self.t - 1) * self.settings.get("lr_decay", 0.0)) * g / (s.sqrt() + self.eps))

    def rmsprop(self, p, g, lr, decay, cycled):
        g, alpha = g + decay * p, self.settings.get("alpha", 0.99)
        variance = self.kept("s", p).mul_(alpha).add_(g * g * (1 - alpha))
        if self.settings.get("centered"):
            a = self.kept("a", p)
            a.add_((g - a) * (1 - alpha))
            variance = variance - a * a
        u = g / (variance.clamp(min=0).sqrt() + self.eps)
        momentum = self.settings.get("momentum", 0.0)
        p.sub_(lr * (self.kept("b", p).mul_(momentum).add_(u) if momentum else u))

    def coupled(self, p, g, lr, decay):
        """The gradient with the decay, where that is not apart."""
        if not self.settings.get("decoupled_weight_decay"):
            return g + decay * p
        p.mul_(1 - lr * decay)
        return g

    def nadam(self, p, g, lr, decay, cycled):
        g, betas, rate = self.coupled(p, g, lr, decay), self.betas(None), self.settings.get("momentum_decay", 4e-3)
        now, then = (betas[0] * (1 - 0.5 * 0.96 ** ((self.t + more) * rate)) for more in (0, 1))
        self.product = getattr(self, "product", 1.0) * now
        m, v, _, c2 = self.moments(p, g, betas)
        root = (v / c2).sqrt() + self.eps
        p.sub_(lr * ((1 - now) / (1 - self.product) * g + then / (1 - self.product * then) * m) / root)

    def radam(self, p, g, lr, decay, cycled):
        g, (first, second) = self.coupled(p, g, lr, decay), self.betas(cycled)
        m, v, c1, c2 = self.moments(p, g, (first, second))
        end = 2 / (1 - second) - 1
        rho = end - 2 * self.t * second**self.t / c2
        if rho <= 5:
            return p.sub_(lr / c1 * m)
        r = math.sqrt((rho - 4) * (rho - 2) * end / ((end - 4) * (end - 2) * rho))
        return p.sub_(lr * r / c1 * math.sqrt(c2) * m / (v.sqrt() + self.eps))

    def adamax(self, p, g, lr, decay, cycled):
        g, (first, second), m, u = g + decay * p, self.betas(cycled), self.kept("m", p), self.kept("u", p)
        m.add_((g - m) * (1 - first))
        u.copy_(torch.maximum(u * second, g.abs() + self.eps))
        p.sub_(lr / (1 - first**self.t) * m / u)

    def adadelta(self, p, g, lr, decay, cycled):
        g, rho, s, a = g + decay * p, self.settings.get("rho", 0.9), self.kept("s", p), self.kept("a", p)
        s.mul_(rho).add_((1 - rho) * g * g)
        u = (a + self.eps).sqrt() / (s + self.eps).sqrt() * g
        a.mul_(rho).add_((1 - rho) * u * u)
        p.sub_(lr * u)

    def adafactor(self, p, g, lr, decay, cycled):
        share, eps = self.t ** self.settings.get("beta2_decay", -0.8), self.settings.get("eps1", 2.0**-23)
        if p.numel() == 0:
            return
        size = max(self.settings.get("eps2", 1e-3), p.square().mean().sqrt().item()) * min(lr, self.t**-0.5)
        if p.dim() < 2:
            v = self.kept("v", p)
            v.add_((g * g - v) * share)
        else:
            row, column = (self.kept(name, p.sum(dim, keepdim=True)) for name, dim in (("row", -1), ("column", -2)))
            row.add_(((g * g).mean(-1, keepdim=True) - row) * share)
            column.add_(((g * g).mean(-2, keepdim=True) - column) * share)
            v = row * column / row.mean(-2, keepdim=True).clamp(min=eps)
        u = g / v.clamp(min=eps * eps).sqrt()
        p.mul_(1 - lr * decay).sub_(size / max(1.0, u.square().mean().sqrt().item() / self.settings.get("d", 1.0)) * u)

    def lamb(self, p, g, lr, decay, cycled):
        m, v, c1, c2 = self.moments(p, g, self.betas(cycled))
        root = (v + self.eps).sqrt() if self.settings.get("eps_inside_sqrt") else v.sqrt() + self.eps
        u = m / root + decay * p
        norms = p.norm().item(), u.norm().item()
        ratio = min(self.settings.get("max_coeff", 10.0), max(0.01, norms[0] / norms[1])) if all(norms) else 1.0
        p.sub_(lr * math.sqrt(c2) / c1 * ratio * u)

    def muon(self, p, g, lr, decay, cycled):
        m, momentum = self.kept("m", p), self.settings.get("momentum", 0.95)
        m.add_((1 - momentum) * (g - m))
        step = plain_optimizers.Muon.orthogonal(m - (1 - momentum) * (m - g)).float()
        p.mul_(1 - lr * decay).sub_(lr * step)
