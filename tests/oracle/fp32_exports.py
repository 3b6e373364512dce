"""Small models that mix number types as language models do: norms, softmax and losses in fp32 on purpose, casts back to the
type of the model, tables and masks in fp32. A trace of them in fp32 has lost which cast is which."""
import math

import torch

F = torch.nn.functional
WIDTH, LENGTH, VOCAB, HEADS = 16, 6, 32, 2


class RMSNorm(torch.nn.Module):
    """Llama's."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 1.5, WIDTH))

    def forward(self, x):
        dtype = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * x.to(dtype)


class LateRMSNorm(RMSNorm):
    """OLMo's: the weight is applied in fp32."""

    def forward(self, x):
        dtype = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (self.weight * x).to(dtype)


class T5Norm(RMSNorm):
    """Casts back only in half precision, so that a trace in fp32 has no such cast."""

    def forward(self, x):
        x = x * torch.rsqrt(x.to(torch.float32).pow(2).mean(-1, keepdim=True) + 1e-6)
        if self.weight.dtype in (torch.float16, torch.bfloat16):
            x = x.to(self.weight.dtype)
        return self.weight * x


class GemmaNorm(RMSNorm):
    def forward(self, x):
        out = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        return (out * (1.0 + self.weight.float())).type_as(x)


class Float32LayerNorm(torch.nn.LayerNorm):
    def __init__(self):
        super().__init__(WIDTH)

    def forward(self, x):
        return F.layer_norm(x.float(), self.normalized_shape, self.weight.float(), self.bias.float(), self.eps).type_as(x)


class Attention(torch.nn.Module):
    """Scores by hand, softmax in fp32."""

    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)

    def heads(self, x):
        return (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))

    def forward(self, x, mask):
        q, k, v = self.heads(x)
        q, k = self.turned(q, k)
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.size(-1)) + mask
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        return self.out(torch.matmul(weights, v).transpose(1, 2).flatten(2))

    def turned(self, q, k):
        return q, k


class Float32Scores(Attention):
    """GPT-Neo's: also the scores in fp32."""

    def forward(self, x, mask):
        q, k, v = self.heads(x)
        scores = torch.matmul(q.to(torch.float32), k.to(torch.float32).transpose(-1, -2)) + mask
        weights = F.softmax(scores, dim=-1).to(v.dtype)
        return self.out(torch.matmul(weights, v).transpose(1, 2).flatten(2))


class Rotary(Attention):
    """Positions in fp32, whatever the model's type."""

    def __init__(self):
        super().__init__()
        self.register_buffer("inv_freq", 0.5 ** torch.arange(WIDTH // HEADS // 2).float())

    def tables(self, x):
        positions = torch.arange(x.size(-2), device=x.device)
        angles = positions[:, None].float() * 37 * self.inv_freq[None, :].float()
        angles = torch.cat((angles, angles), -1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    def turned(self, q, k):
        cos, sin = self.tables(q)
        return q * cos + half_turn(q) * sin, k * cos + half_turn(k) * sin


class Float32Rotary(Rotary):
    """Also the rotation in fp32."""

    def turned(self, q, k):
        cos, sin = (table.float() for table in self.tables(q.float()))
        dtype, q, k = q.dtype, q.float(), k.float()
        return (q * cos + half_turn(q) * sin).to(dtype), (k * cos + half_turn(k) * sin).to(dtype)


def half_turn(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


class Experts(torch.nn.Module):
    """Mixtral's routing: weights in fp32, results added up in the model's type."""

    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Linear(WIDTH, 2)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, x):
        flat = x.flatten(0, 1)
        weights = F.softmax(self.gate(flat), dim=1, dtype=torch.float)
        weights = (weights / weights.sum(-1, keepdim=True)).to(flat.dtype)
        out = torch.zeros(flat.shape, dtype=flat.dtype, device=flat.device)
        rows = torch.arange(flat.shape[0], device=flat.device)
        for i, expert in enumerate(self.experts):
            out.index_add_(0, rows, (expert(flat) * weights[:, i, None]).to(flat.dtype))
        return out.view(x.shape)


class Adapted(torch.nn.Module):
    """LoRA's linear layer."""

    def __init__(self):
        super().__init__()
        self.base, self.down, self.up = (torch.nn.Linear(a, b) for a, b in ((WIDTH, WIDTH), (WIDTH, 4), (4, WIDTH)))

    def forward(self, x):
        result = self.base(x)
        dtype = result.dtype
        return (result + self.up(self.down(x.to(self.down.weight.dtype))) * 2.0).to(dtype)


class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.tanh(self.layer(x))


class Model(torch.nn.Module):
    """ids, mask (1: seen), labels -> loss. Blocks with a residual stream, as in every transformer."""

    def __init__(self, norm=RMSNorm, attention=Attention, rest=Plain):
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(VOCAB, WIDTH)
        self.norms = torch.nn.ModuleList(norm() for _ in range(5))
        self.attentions = torch.nn.ModuleList(attention() for _ in range(2))
        self.rests = torch.nn.ModuleList(rest() for _ in range(2))
        self.head = torch.nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, ids, mask, labels):
        x = self.table(ids)
        minimum = torch.finfo(x.dtype).min
        causal = torch.triu(torch.full((ids.size(1), ids.size(1)), minimum, dtype=x.dtype, device=x.device), 1)
        hidden = causal + (1.0 - mask[:, None, None, :].to(x.dtype)) * minimum
        hidden = hidden.clamp(min=minimum)
        for i in range(2):
            x = x + self.attentions[i](self.norms[2 * i](x), hidden)
            x = x + self.rests[i](self.norms[2 * i + 1](x))
        logits = self.head(self.norms[4](x)).float()
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


CASES = {
    "cast_back": {},
    "weight_in_fp32": {"norm": LateRMSNorm},
    "no_recorded_cast_back": {"norm": T5Norm},
    "weight_upcast": {"norm": GemmaNorm},
    "layer_norm_in_fp32": {"norm": Float32LayerNorm},
    "layer_norm": {"norm": lambda: torch.nn.LayerNorm(WIDTH)},
    "scores_in_fp32": {"attention": Float32Scores},
    "rotary": {"attention": Rotary},
    "rotation_in_fp32": {"attention": Float32Rotary},
    "experts": {"rest": Experts},
    "adapter": {"rest": Adapted},
}


def build(name, dtype=torch.float32):
    """The same weights in every type: those that bf16 has. Buffers stay in fp32."""
    model = Model(**CASES[name])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16())
            parameter.data = parameter.data.to(dtype)
    return model


def samples(count):
    generator = torch.Generator().manual_seed(5)
    ids = (torch.randint(0, VOCAB, (count, 1), generator=generator) + 3 * torch.arange(LENGTH)) % VOCAB
    mask = (torch.arange(LENGTH) < torch.randint(2, LENGTH + 1, (count, 1), generator=generator)).long()
    return {"ids": ids, "mask": mask, "labels": torch.where(mask == 1, (ids + 3) % VOCAB, -100)}


def export(name, path, dtype=torch.float32):
    example = tuple(samples(2).values())
    torch.jit.trace(build(name, dtype).train(), example, check_trace=False).save(path)
    return path
