"""1-bit Adam on several ranks in one process of plain PyTorch: the oracle's second writing of docs/optimizers.md. A share of
one_process.py is a rank."""
import math

import one_process
import torch


def signs(values, lost):
    """Signs (of 0: positive) times the root mean square of the values and what was lost before; what that loses is kept."""
    values = values + lost
    scale = values.square().mean().sqrt()
    out = torch.where(values >= 0, scale, -scale)
    lost.copy_(values - out)
    return out


class Mean:
    """Of one tensor over the ranks. Each rounds all of it; then rank r rounds the mean of the r-th part."""

    def __init__(self, numel, ranks):
        part = math.lcm(8, ranks) * ranks
        self.padded = (numel + part - 1) // part * part
        self.lost = [torch.zeros(self.padded) for _ in range(ranks)]
        self.lost_of_parts = [torch.zeros(self.padded // ranks) for _ in range(ranks)]

    def of(self, values):
        sent = []
        for value, lost in zip(values, self.lost):
            whole = torch.zeros(self.padded)
            whole[:value.numel()] = value.flatten()
            sent.append(signs(whole, lost))
        parts = (sum(sent) / len(sent)).chunk(len(sent))
        mean = torch.cat([signs(part, lost) for part, lost in zip(parts, self.lost_of_parts)])
        return mean[:values[0].numel()].view(values[0].shape)


class Trainer(one_process.Trainer):
    def __init__(self, models, samples, config):
        super().__init__(models, samples, config)
        self.given = config["optimizer"]["params"]
        self.moments = [(torch.zeros_like(m), torch.zeros_like(m)) for m in self.master]
        self.means = [Mean(m.numel(), len(models)) for m in self.master]

    def gradients(self, k):
        """The mean loss of global batch k, and the mean gradients of each rank."""
        rows, size, ranks = self.samples.rows(k, self.batch), self.batch // self.pieces, len(self.shares)
        own, total = [[torch.zeros_like(m) for m in self.master] for _ in range(ranks)], 0.0
        for i in range(self.pieces):
            loss, gradients = self.piece(self.shares[i % ranks], rows[i * size:(i + 1) * size])
            total += loss / self.pieces
            for sum_, gradient in zip(own[i % ranks], gradients):
                sum_ += gradient / self.accumulation
        return total, own

    @torch.no_grad()
    def step(self, k):
        with torch.enable_grad():
            loss, own = self.gradients(k)
        averages, lr = k + 1 <= self.given["freeze_step"], one_process.learning_rate(self.config, k + 1)
        if averages:
            own = [[sum(each) / len(own) for each in zip(*own)]]
        norm = math.sqrt(sum(g.double().square().sum().item() for rank in own for g in rank) / len(own))
        factor = max(1.0, (norm + 1e-6) / self.clip) if self.clip else 1.0
        first, second = self.given.get("betas", (0.9, 0.999))
        for i, (p, (m, v), mean) in enumerate(zip(self.master, self.moments, self.means)):
            moved = [first * m + (1 - first) * rank[i] / factor for rank in own]
            m.copy_(moved[0] if averages else mean.of(moved))
            if averages:
                v.mul_(second).add_((1 - second) * (own[0][i] / factor).square())
            p.sub_(lr * (m / (v.sqrt() + self.given.get("eps", 1e-8)) + self.given.get("weight_decay", 0.0) * p))
        for share in self.shares:
            for param, master in zip(share.params, self.master):
                param.copy_(master)
        return {"step": k + 1, "loss": loss, "lr": lr, "grad_norm": norm}
