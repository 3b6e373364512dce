"""Plain PyTorch under the same split, for the jobs of jobs.py: more settings than plain_pytorch.Trainer knows, which this
one builds on. Every rank's micro batches one after the other, gradients rounded to what is kept and what travels and added
in the order of ranks. It knows nothing of units, buckets or shards."""
import contextlib
import math

import torch
from torch.nn import functional as F

import one_process
import rules
from plain_pytorch import LOW, Rank, Scaler, low_precision
from sample_order import Order

TYPES = {None: None, "fp32": torch.float32, **LOW}


class NoNumbers(Exception):
    """The run has no finite loss in plain PyTorch either."""


def lower(model, dtype):
    """Batch norms with running statistics stay in fp32 (docs/precision.md)."""
    for module in model.modules():
        if getattr(module, "running_mean", None) is None:
            for held in (module._parameters, module._buffers):
                for value in held.values():
                    if value is not None and value.is_floating_point():
                        value.data = value.data.to(dtype)


class PlainRun:
    """`nudge`: how far each weight is moved before the start, relative: what the model makes of last bits."""

    def __init__(self, module, arrays, eval_arrays, job, draws, nudge=0.0):
        self.model, self.arrays, self.eval_arrays, self.job, self.draws = module, arrays, eval_arrays, job, draws
        config = self.config = job.config
        self.low, self.autocast = low_precision(config), "torch_autocast" in config
        self.wire = TYPES[config.get("communication_data_type")]
        self.kept = TYPES[config.get("data_types", {}).get("grad_accum_dtype", "fp32")]
        self.batch, self.accumulation = config["train_batch_size"], config["gradient_accumulation_steps"]
        self.counts_tokens = config.get("loss_average") == "tokens"
        self.order = Order(job.rows, self.batch, config["data"])
        self.scaler, self.applied, self.ranks, self.rows = Scaler(config.get("fp16", {})), 0, [], []
        self.read_parameters(nudge)

    def read_parameters(self, nudge):
        named = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        self.names, self.params = list(named), list(named.values())
        self.masters = [p.detach().float().clone() for p in self.params]
        generator = torch.Generator().manual_seed(1)
        for master in self.masters if nudge else []:
            master.mul_(1 + nudge * torch.randn(master.shape, generator=generator))
        self.start = [master.clone() for master in self.masters]
        self.rules = [self.rule_of(p) for p in self.params]
        if self.low is not None:
            lower(self.model, self.low)
        self.write_parameters()

    def rule_of(self, parameter):
        section = self.config["optimizer"]
        names = [name for name, p in self.model.named_parameters(remove_duplicate=False) if p is parameter]
        norms = {f"{name}.weight" for name, _ in self.model.named_modules() if "norm" in name.split(".")[-1]}
        return rules.Rule(section["type"], rules.settings_of(section, names, parameter.dim(), norms), names, parameter.dim())

    @torch.no_grad()
    def write_parameters(self):
        for param, master in zip(self.params, self.masters):
            param.copy_(master)

    def enter_leg(self, leg):
        """A resumed run goes on with rank 0's buffers on every rank, and with each rank's random numbers."""
        before, self.world, self.adds_ranks_first = self.ranks, leg.world, leg.stage >= 2
        self.ranks = [Rank(self.model, self.config["train"]["seed"], rank, self.draws) for rank in range(leg.world)]
        for rank, old in zip(self.ranks, before if self.draws else []):
            rank.generator = old.generator
        for rank in self.ranks if before else []:
            rank.buffers = [buffer.clone() for buffer in before[0].buffers]

    def loss(self, arrays, rows):
        name = self.config.get("loss")
        *inputs, labels = [array[rows] for array in arrays.values()]
        inputs = [self.fitted(array) for array in inputs]
        labels = labels if name else self.fitted(labels)  # a loss that the config names computes in fp32
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False) if self.autocast else contextlib.nullcontext():
            result = self.model(*inputs) if name else self.model(*inputs, labels)
            if not name:
                return result["loss"] if isinstance(result, dict) else result[0] if isinstance(result, tuple) else result
            result = result.float()
            if name == "mse":
                return F.mse_loss(result, labels.float())
            return F.cross_entropy(result.flatten(0, -2), labels.flatten())

    def fitted(self, array):
        return array.to(self.low) if self.low is not None and array.is_floating_point() else array

    def counted(self, arrays, rows):
        """The labels that count, or the samples."""
        labels = list(arrays.values())[-1][rows]
        return int((labels != -100).sum()) if self.counts_tokens and not labels.is_floating_point() else labels.numel()

    def gradients(self, rank, rows, weight):
        """Loss of one micro batch of one rank times its weight, and its gradients."""
        self.ranks[rank].enter(self.model)
        loss = self.loss(self.arrays, rows)
        self.ranks[rank].leave(self.model)
        if weight == 0:
            return 0.0, [torch.zeros_like(p) for p in self.params]
        scaled = (loss.float() * self.scaler.scale if self.low is torch.float16 else loss) * weight
        found = torch.autograd.grad(scaled, self.params, allow_unused=True)
        return loss.item() * weight, [torch.zeros_like(p) if g is None else g.to_dense() if g.is_sparse else g
                                      for g, p in zip(found, self.params)]

    def over_ranks(self, by_rank):
        if self.world == 1:
            return [g.float() for g in by_rank[0]]
        in_fp16 = torch.float16 in ([self.wire] if self.wire else {p.dtype for p in self.params})
        part, out = self.world if in_fp16 or self.config.get("prescale_gradients") else 1, []
        for i, param in enumerate(self.params):
            travels_as = self.wire or param.dtype
            sent = [(gradients[i].float() / part).to(travels_as).float() for gradients in by_rank]
            out.append(sum(sent[1:], sent[0]).to(travels_as).float() * part)
        return out

    def added(self, total, gradients):
        if total is None:
            return [g.to(self.kept) for g in gradients]
        return [(a.float() + b.float()).to(self.kept) for a, b in zip(total, gradients)]

    def summed(self, rows):
        """The step's loss, and the sum over ranks of all gradients."""
        size, whole = self.batch // (self.accumulation * self.world), self.counted(self.arrays, rows)
        loss, own, total = 0.0, [None] * self.world, None
        for micro in range(self.accumulation):
            for rank in range(self.world):
                first = (micro * self.world + rank) * size
                part = rows[first:first + size]
                share = self.counted(self.arrays, part) / whole * self.world if self.counts_tokens else 1 / self.accumulation
                value, gradients = self.gradients(rank, part, share)
                loss += value / self.world
                own[rank] = gradients if self.adds_ranks_first else self.added(own[rank], gradients)
            if self.adds_ranks_first:
                total = self.added(total, self.over_ranks(own))
        return loss, [g.float() for g in (total if self.adds_ranks_first else self.over_ranks(own))]

    def step(self, k):
        rows = self.order.rows(k)
        if self.counted(self.arrays, rows) == 0:
            raise NoNumbers
        loss, total = self.summed(rows)
        scale, squares = self.scaler.scale, sum(g.double().square().sum().item() for g in total)
        overflow = not (math.isfinite(squares) and math.isfinite(loss))
        if overflow and self.low is not torch.float16:
            raise NoNumbers
        norm = math.sqrt(squares) / (self.world * scale) if math.isfinite(squares) else math.inf
        lr = self.rate(self.config["optimizer"]["params"].get("muon_lr", self.config["optimizer"]["params"]["lr"]))
        if not overflow:
            clip = self.config.get("gradient_clipping")
            ratio = max(1.0, (norm + 1e-6) / clip) if clip else 1.0
            self.apply(total, torch.tensor(1.0 / (self.world * scale) / ratio, dtype=torch.float32))
        self.scaler.update(overflow)
        self.rows.append({"step": k + 1, "loss": loss, "lr": lr, "grad_norm": norm, "overflow": overflow,
                          "loss_scale": scale})

    def rate(self, base):
        section = self.config["optimizer"]
        return one_process.learning_rate({**self.config, "optimizer": {**section, "params": {"lr": base}}}, self.applied + 1)

    def apply(self, gradients, factor):
        cycled, rates = one_process.betas(self.config, self.applied + 1), [self.rate(rule.lr) for rule in self.rules]
        self.applied += 1
        for rule, master, gradient, lr in zip(self.rules, self.masters, gradients, rates):
            rule.step(master, gradient * factor, lr, None if self.config["optimizer"]["type"] == "Muon" else cycled)
        self.write_parameters()

    @torch.no_grad()
    def evaluate(self):
        """The mean over all samples, each rank's slices one after the other, all of them with rank 0's buffers."""
        count, width = self.job.eval_rows, self.batch // self.accumulation
        total = weights = 0.0
        self.model.eval()
        for rank in range(self.world):
            for buffer, value in zip(self.model.buffers(), self.ranks[0].buffers):
                buffer.copy_(value)
            for first in range(0, count, width):
                size = min(width, count - first)
                shares = [size // self.world + (r < size % self.world) for r in range(self.world)]
                begin = first + sum(shares[:rank])
                rows = list(range(begin, begin + shares[rank]))
                loss = self.loss(self.eval_arrays, rows or [count - 1]).item()  # forward may move buffers
                weight = self.counted(self.eval_arrays, rows)
                total, weights = total + (loss * weight if weight else 0.0), weights + weight
        self.model.train()
        return total / weights

    def train(self):
        interval, step = self.config["train"].get("eval_interval", 0), 0
        with torch.random.fork_rng():
            for leg in self.job.legs:
                self.enter_leg(leg)
                for step in range(step, leg.end):
                    self.step(step)
                    if self.eval_arrays and (step + 1 == leg.end or (interval and (step + 1) % interval == 0)):
                        self.rows[-1]["eval_loss"] = self.evaluate()
                step = leg.end
            self.ranks[0].enter(self.model)
        return self
