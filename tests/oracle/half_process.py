"""The oracle of 16-bit training: one_process.py's trainer with a loss scale, autocast and the types of apex's levels, in
plain PyTorch. The scale follows DeepSpeed's description (stages 1 to 3 with a budget, stage 0 without) or that of
torch.amp.GradScaler, written here a second time on purpose."""
import contextlib
import math

import torch

import one_process


class Scale:
    """window, hysteresis, ... as the config has them. `late`: the first doubling needs one clean step more."""

    def __init__(self, initial, window=1000, hysteresis=1, consecutive=False, minimum=1.0, dynamic=True, late=True):
        self.value, self.window, self.hysteresis, self.consecutive = float(initial), window, hysteresis, consecutive
        self.minimum, self.dynamic, self.late = minimum, dynamic, late
        self.budget, self.clean = hysteresis, 0

    def update(self, overflow):
        if not self.dynamic:
            return
        if overflow:
            if self.budget > 1:
                self.budget -= 1
            else:
                self.value = max(self.value / 2, self.minimum)
            self.clean = 0
            return
        if self.consecutive:
            self.budget = self.hysteresis
        grows_at = self.clean if self.late else self.clean + 1
        if grows_at > 0 and grows_at % self.window == 0:
            self.budget, self.value = self.hysteresis, self.value * 2
        self.clean += 1


def scale_of(config):
    fp16, amp, autocast = (config.get(name, {}) for name in ("fp16", "amp", "torch_autocast"))
    torch_scale = Scale(65536, 2000, late=False, minimum=2.0**-24)
    if fp16.get("enabled"):
        if fp16.get("loss_scale"):
            return Scale(fp16["loss_scale"], dynamic=False)
        sharded = config["zero_optimization"]["stage"] > 0
        return Scale(2.0**fp16.get("initial_scale_power", 16), fp16.get("loss_scale_window", 1000),
                     fp16.get("hysteresis", 2) if sharded else 1, sharded and fp16.get("consecutive_hysteresis", False),
                     fp16.get("min_loss_scale", 1))
    if amp.get("enabled") and amp.get("opt_level", "O1") != "O0":
        if "loss_scale" in amp and amp["loss_scale"] != "dynamic":
            return Scale(amp["loss_scale"], dynamic=False)
        return Scale(1, dynamic=False) if amp.get("opt_level") == "O3" else torch_scale
    if autocast.get("enabled") and "float16" in autocast["dtype"] and "bfloat16" not in autocast["dtype"]:
        return torch_scale
    return None


class HalfTrainer(one_process.Trainer):
    """`models`: one for each share, all alike, in fp32."""

    def __init__(self, models, samples, config):
        super().__init__(models, samples, config)
        amp, level = config.get("amp", {}), config.get("amp", {}).get("opt_level", "O1")
        self.pure = bool(amp.get("enabled")) and level == "O3"
        if config.get("fp16", {}).get("enabled") or (amp.get("enabled") and level in ("O2", "O3")):
            self.dtype = torch.float16
            for model in models:
                to_half(model, keep_batch_norm=not self.pure)
        if self.pure:
            for master in self.master:
                master.data.copy_(master.half())
        for share in self.shares:  # a batch norm lost nothing on its way to fp16 and back
            for param, master in zip(share.params, self.master):
                param.data.copy_(master)
        self.scale, self.applied = scale_of(config), 0
        self.autocast = torch.float16 if amp.get("enabled") and level == "O1" else None
        if config.get("torch_autocast", {}).get("enabled"):
            self.autocast = getattr(torch, config["torch_autocast"]["dtype"].replace("torch.", ""))

    def piece(self, share, rows):
        inputs = self.samples.take(self.samples.inputs, rows, self.dtype)
        labels = self.samples.take(self.samples.labels, rows, one_process.label_dtype(self.config, self.dtype))
        with share.random_numbers():
            with torch.autocast("cpu", self.autocast) if self.autocast else contextlib.nullcontext():
                # Losses that the config names are computed in fp32 (docs/precision.md).
                model = (lambda *given: share.model(*given).float()) if self.config.get("loss") else share.model
                loss = one_process.loss_of(model, self.config.get("loss"), inputs, labels)
            scaled = loss if self.scale is None else loss.float() * self.scale.value
            gradients = torch.autograd.grad(scaled / self.accumulation, share.params, allow_unused=True)
        return loss.item(), [torch.zeros_like(m) if g is None else g.float() for g, m in zip(gradients, self.master)]

    def step(self, k):
        total_loss, total = self.add_up(k)
        scale = 1.0 if self.scale is None else self.scale.value
        finite = math.isfinite(total_loss) and all(torch.isfinite(sum_).all() for sum_ in total)
        lr, norm = one_process.learning_rate(self.config, self.applied + 1), None
        if finite or self.scale is None:
            norm = self.apply([sum_ / (len(self.shares) * scale) for sum_ in total], lr)
            self.applied += 1
        if self.pure:
            for master, param in zip(self.master, self.shares[0].params):
                master.data.copy_(param)
        if self.scale is not None:
            self.scale.update(not finite)
        return {"step": k + 1, "loss": total_loss / self.pieces, "lr": lr, "grad_norm": norm, "loss_scale": scale,
                "overflow": not finite}


def to_half(model, keep_batch_norm):
    model.half()
    for module in model.modules():
        if keep_batch_norm and hasattr(module, "running_mean"):
            module.float()


def train(model_path, data_path, config, steps, shares=1):
    torch.set_num_threads(1)
    torch._C._jit_set_autocast_mode(False)  # autocast as eager PyTorch does it, operator by operator
    torch._C._set_graph_executor_optimize(False)  # scripted backward graphs know nothing of it
    models = [torch.jit.load(model_path) for _ in range(shares)]
    trainer = HalfTrainer(models, one_process.Samples(data_path, config), config)
    return [trainer.step(k) for k in range(steps)]
