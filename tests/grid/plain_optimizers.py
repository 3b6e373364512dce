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


def adam(given, masters, decoupled, undecayed=()):
    """`undecayed`: indices of parameters without weight decay."""
    settings = {"lr": given.get("lr", 1e-3), "betas": tuple(given.get("betas", (0.9, 0.999))),
                "eps": given.get("eps", 1e-8), "weight_decay": given.get("weight_decay", 0.0), "foreach": False}
    groups = [{"params": [master for i, master in enumerate(masters) if i not in undecayed]},
              {"params": [masters[i] for i in undecayed], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW if decoupled else torch.optim.Adam
    return FromTorch(optimizer([group for group in groups if group["params"]], **settings), masters)


def sgd(given, masters):
    return FromTorch(torch.optim.SGD(masters, given.get("lr", 1e-3), given.get("momentum", 0.0),
                                     given.get("dampening", 0.0), given.get("weight_decay", 0.0),
                                     given.get("nesterov", False), foreach=False), masters)


class Lion:
    """Chen et al. 2023, with decoupled weight decay."""

    def __init__(self, given, masters):
        self.masters, self.decay = masters, given.get("weight_decay", 0.0)
        self.beta1, self.beta2 = given.get("betas", (0.9, 0.999))
        self.momenta = [torch.zeros_like(master) for master in masters]

    @torch.no_grad()
    def step(self, gradients, lr):
        for master, gradient, momentum in zip(self.masters, gradients, self.momenta):
            direction = torch.sign(self.beta1 * momentum + (1 - self.beta1) * gradient)
            master.mul_(1 - lr * self.decay).add_(direction, alpha=-lr)
            momentum.mul_(self.beta2).add_(gradient, alpha=1 - self.beta2)


class Lamb:
    """DeepSpeed's FusedLamb (csrc/lamb/fused_lamb_cuda_kernel.cu): bias correction in the step size, the ratio of norms of a
    whole parameter between min_coeff and max_coeff."""

    def __init__(self, given, masters):
        self.masters, self.given, self.count = masters, given, 0
        self.moments = [(torch.zeros_like(master), torch.zeros_like(master)) for master in masters]

    @torch.no_grad()
    def step(self, gradients, lr):
        self.count += 1
        beta1, beta2 = self.given.get("betas", (0.9, 0.999))
        eps, decay = self.given.get("eps", 1e-8), self.given.get("weight_decay", 0.0)
        size = lr * (1 - beta2**self.count)**0.5 / (1 - beta1**self.count) if self.given.get("bias_correction", True) else lr
        for master, gradient, (m, v) in zip(self.masters, gradients, self.moments):
            m.mul_(beta1).add_(gradient, alpha=1 - beta1)
            v.mul_(beta2).add_(gradient.square(), alpha=1 - beta2)
            root = (v + eps).sqrt() if self.given.get("eps_inside_sqrt", False) else v.sqrt() + eps
            update = m / root + decay * master
            weight_norm, update_norm = master.double().norm().item(), update.double().norm().item()
            ratio = 1.0
            if weight_norm and update_norm:
                ratio = min(max(weight_norm / update_norm, self.given.get("min_coeff", 0.01)), self.given.get("max_coeff", 10.0))
            master.sub_(size * ratio * update)


class Muon:
    """DeepSpeed 0.18.2 (runtime/zero/muon/original_muon.py): parameters of two dims and more that are neither embeddings nor
    the head go by momentum and Newton-Schulz in bf16, all others by Adam with decoupled decay. One rate for both here."""

    def __init__(self, given, names, masters):
        self.matrices = [i for i, (name, master) in enumerate(zip(names, masters))
                         if master.ndim >= 2 and not any(word in name.lower() for word in ("embed", "lm_head"))]
        others = [i for i in range(len(masters)) if i not in self.matrices]
        self.masters, self.others = masters, others
        self.momentum, self.decay = given.get("momentum", 0.95), given.get("weight_decay", 0.0)
        self.buffers = {i: torch.zeros_like(masters[i]) for i in self.matrices}
        self.adam = adam(given, [masters[i] for i in others], True) if others else None

    @torch.no_grad()
    def step(self, gradients, lr):
        if self.adam:
            with torch.enable_grad():
                self.adam.step([gradients[i] for i in self.others], lr)
        for i in self.matrices:
            if self.masters[i].numel() == 0:
                continue
            buffer = self.buffers[i]
            buffer.lerp_(gradients[i], 1 - self.momentum)
            update = gradients[i].lerp(buffer, self.momentum)
            rows, columns = update.size(-2), update.size(-1)
            update = newton_schulz(update.flatten(1) if update.ndim == 4 else update) * max(1, rows / columns)**0.5
            self.masters[i].mul_(1 - lr * self.decay).add_(update.reshape(self.masters[i].shape), alpha=-lr)


def newton_schulz(matrix):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.bfloat16()
    is_tall = x.size(-2) > x.size(-1)
    x = x.mT if is_tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if is_tall else x


def undecayed(names, masters):
    """"no_decay": "auto": biases and the weights of norms."""
    return [i for i, (name, master) in enumerate(zip(names, masters))
            if master.ndim < 2 or name.split(".")[-1] == "bias" or name.endswith("norm.weight")]


def adagrad(given, masters):
    return FromTorch(torch.optim.Adagrad(masters, given.get("lr", 1e-2), given.get("lr_decay", 0.0),
                                         given.get("weight_decay", 0.0), eps=given.get("eps", 1e-10), foreach=False), masters)


def make(config, names, masters):
    section = config.get("optimizer", {"type": "AdamW"})
    kind, given = section["type"].lower(), section.get("params", {})
    if kind == "adamw":
        return adam(given, masters, True, undecayed(names, masters) if section.get("no_decay") == "auto" else ())
    if kind == "muon":
        return Muon(given, names, masters)
    if kind == "adam":
        return adam(given, masters, given.get("adam_w_mode", True))
    if kind in ("sgd", "adagrad", "lion", "lamb"):
        return {"sgd": sgd, "adagrad": adagrad, "lion": Lion, "lamb": Lamb}[kind](given, masters)
    raise NotImplementedError(f"the oracle knows no {section['type']}")
