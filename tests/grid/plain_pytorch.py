"""The grid's oracle: a training run in one process and plain PyTorch, on the same model and samples.

train(…, shares=1) with accumulation 1 is the program that a user would write: the whole global batch in one piece. With
more shares and accumulation it is "the same split": the micro batch of every rank one after the other, each rank with its
own random numbers and buffers, gradients rounded to the type that travels and added in the order of ranks. It knows
nothing of units, flat buffers, shards or stages."""
import math
from typing import NamedTuple

import torch

import one_process

LOW = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Run(NamedTuple):
    parameters: dict  # name -> fp32 master of a trainable parameter
    start: dict  # the same before the first step
    buffers: dict  # name -> value on rank 0
    frozen: dict  # name -> parameter that is not trained, as in the file
    is_mixed: bool  # the model's own parameters are not all fp32
    rows: list  # a step each: loss, grad_norm, lr, overflow, loss_scale


def low_precision(config):
    enabled = [name for name in LOW if config.get(name, {}).get("enabled")]
    return LOW[enabled[0]] if enabled else None


def lower(model, dtype):
    """Casts a model; batch norms stay in fp32 (docs/precision.md)."""
    for module in model.modules():
        if hasattr(module, "running_mean"):
            continue
        for held in (module._parameters, module._buffers):
            for name, value in held.items():
                if value is not None and value.is_floating_point():
                    value.data = value.data.to(dtype)


class Scaler:
    """DeepSpeed 0.18.2's DynamicLossScaler, or a static scale; outside fp16 a scale of 1 that never moves."""

    def __init__(self, section):
        enabled = section.get("enabled", False)
        static = section.get("loss_scale", 0) if enabled else 1.0
        self.is_dynamic = enabled and static == 0
        self.scale = float(2 ** section.get("initial_scale_power", 16)) if self.is_dynamic else float(static)
        self.window, self.least = section.get("loss_scale_window", 1000), section.get("min_loss_scale", 1)
        self.hysteresis = self.left = section.get("hysteresis", 2)
        self.consecutive = section.get("consecutive_hysteresis", False)
        self.step, self.last_overflow = 0, -1

    def update(self, overflow):
        if not self.is_dynamic:
            return
        if overflow:
            if self.left > 1:
                self.left -= 1
            else:
                self.scale = max(self.scale / 2, self.least)
            self.last_overflow = self.step
        else:
            if self.consecutive:
                self.left = self.hysteresis
            calm = self.step - self.last_overflow - 1
            if calm > 0 and calm % self.window == 0:
                self.left = self.hysteresis
                self.scale *= 2
        self.step += 1


class Rank:
    """What a data rank has of its own: random numbers and buffers."""

    def __init__(self, model, seed, rank, is_random):
        self.buffers = [buffer.clone() for buffer in model.buffers()]
        self.generator = None
        if is_random:
            torch.manual_seed(seed + rank)
            self.generator = torch.get_rng_state()

    def enter(self, model):
        for buffer, value in zip(model.buffers(), self.buffers):
            buffer.copy_(value)
        if self.generator is not None:
            torch.set_rng_state(self.generator)

    def leave(self, model):
        self.buffers = [buffer.clone() for buffer in model.buffers()]
        if self.generator is not None:
            self.generator = torch.get_rng_state()


class Trainer:
    def __init__(self, model, samples, config, accumulation, shares, is_random, reduces_every_micro_step):
        self.model, self.samples, self.config = model, samples, config
        self.accumulation, self.shares, self.every = accumulation, shares, reduces_every_micro_step
        self.batch, self.clip = config["train_batch_size"], config.get("gradient_clipping", 0.0)
        low = low_precision(config)
        self.input_dtype = low or torch.float32
        self.wire = {None: None, "fp32": torch.float32, **LOW}[config.get("communication_data_type")]
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self.names, self.params = [name for name, _ in named], [p for _, p in named]
        self.master = [torch.nn.Parameter(p.detach().float().clone()) for p in self.params]
        if low is not None:
            lower(model, low)
        self.optimizer = one_process.make_optimizer(
            config, [(name, master, master.dim()) for name, master in zip(self.names, self.master)])
        self.scaler, self.scales = Scaler(config.get("fp16", {})), low is torch.float16
        self.ranks = [Rank(model, config.get("train", {}).get("seed", 42), rank, is_random) for rank in range(shares)]
        self.applied = 0

    def gradients(self, rank, rows):
        """Loss of one micro batch of one rank, and its gradients as backward leaves them."""
        inputs = self.samples.take(self.samples.inputs, rows, self.input_dtype)
        labels = self.samples.take(self.samples.labels, rows, one_process.label_dtype(self.config, self.input_dtype))
        self.ranks[rank].enter(self.model)
        loss = one_process.loss_of(self.model, self.config.get("loss"), inputs, labels, upcast=True)
        self.ranks[rank].leave(self.model)
        scaled = loss.float() * self.scaler.scale if self.scales else loss
        gradients = torch.autograd.grad(scaled / self.accumulation if self.accumulation > 1 else scaled, self.params,
                                        allow_unused=True)
        return loss.detach().float(), [torch.zeros_like(p) if g is None else g.to_dense() if g.is_sparse else g
                                       for g, p in zip(gradients, self.params)]

    def reduced(self, by_rank):
        """The sum over the ranks, in their order, of what each sends: in the parameter's type unless the config names one;
        where something travels as fp16, or with "prescale_gradients", all is divided by the ranks first."""
        if self.shares == 1:
            return by_rank[0]
        out = []
        in_fp16 = torch.float16 in ([self.wire] if self.wire else {p.dtype for p in self.params})
        part = self.shares if in_fp16 or self.config.get("prescale_gradients") else 1
        for i, param in enumerate(self.params):
            travels_as = self.wire or param.dtype
            sent = [(gradients[i] / part).to(travels_as).float() for gradients in by_rank]
            total = sent[0].clone()
            for one in sent[1:]:
                total += one
            out.append(total.to(travels_as).float() * part)
        return out

    def summed(self, rows):
        """The step's loss and the sum of all gradients over ranks."""
        size = self.batch // (self.accumulation * self.shares)
        loss, waiting, total = 0.0, [None] * self.shares, None
        for micro in range(self.accumulation):
            for rank in range(self.shares):
                first = (micro * self.shares + rank) * size
                value, gradients = self.gradients(rank, rows[first:first + size])
                loss += value.item()
                waiting[rank] = added(waiting[rank], [g.float() for g in gradients])
            if self.every or micro == self.accumulation - 1:
                total = added(total, self.reduced(waiting))
                waiting = [None] * self.shares
        return loss / (self.accumulation * self.shares), total

    def step(self, k):
        loss, total = self.summed(self.samples.rows(k, self.batch))
        scale = self.scaler.scale
        squares = sum(g.double().square().sum().item() for g in total)
        overflow = self.scales and not (math.isfinite(squares) and math.isfinite(loss))
        norm = math.sqrt(squares) / (self.shares * scale) if math.isfinite(squares) else math.inf
        lr = one_process.learning_rate(self.config, self.applied + 1)
        if not overflow:
            ratio = max(1.0, (norm + 1e-6) / self.clip) if self.clip else 1.0
            factor = torch.tensor(1.0 / (self.shares * scale) / ratio, dtype=torch.float32)
            self.apply([g * factor for g in total], lr)
        self.scaler.update(overflow)
        return {"step": k + 1, "loss": loss, "lr": lr, "grad_norm": norm, "overflow": overflow, "loss_scale": scale}

    def apply(self, gradients, lr):
        self.applied += 1
        for master, gradient in zip(self.master, gradients):
            master.grad = gradient
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        with torch.no_grad():
            for param, master in zip(self.params, self.master):
                param.copy_(master)


def added(total, gradients):
    if total is None:
        return [g.clone() for g in gradients]
    return [a.add_(b) for a, b in zip(total, gradients)]


def train(model, data_path, config, steps, accumulation=1, shares=1, is_random=False,
          reduces_every_micro_step=False):
    """`model`: a module in the modes that it trains in; it is used up. Deterministic: one thread, one order."""
    torch.set_num_threads(1)
    frozen = {name: p.detach().clone() for name, p in model.named_parameters() if not p.requires_grad}
    is_mixed = any(p.dtype != torch.float32 for p in model.parameters())
    with torch.random.fork_rng():
        trainer = Trainer(model, one_process.Samples(data_path, config), config, accumulation, shares, is_random,
                          reduces_every_micro_step)
        start = {name: master.detach().clone() for name, master in zip(trainer.names, trainer.master)}
        rows = [trainer.step(k) for k in range(steps)]
        trainer.ranks[0].enter(model)
    return Run({name: master.detach() for name, master in zip(trainer.names, trainer.master)}, start,
               {name: buffer.clone() for name, buffer in model.named_buffers()}, frozen, is_mixed, rows)
