"""The reference GPT: learned positions, pre-norm blocks, fused QKV, tanh GELU, untied head without bias, and the mean
cross entropy over fp32 logits. Runs at any batch size and at any sequence up to `seq`, scripted or traced."""
from typing import Final

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, dim=2)
        q = q.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        v = v.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.ln1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln2 = nn.LayerNorm(width)
        self.fc = nn.Linear(width, 4 * width)
        self.out = nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    label_convention = "next"  # labels[i] is the token after input_ids[i]
    returns_logits: Final[bool]

    def __init__(self, vocab: int = 256, seq: int = 128, blocks: int = 4, width: int = 128, heads: int = 4,
                 returns: str = "loss"):
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} cannot be divided among {heads} heads")
        self.returns_logits = returns == "loss_logits"
        self.vocab, self.seq = vocab, seq
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(seq, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(blocks)])
        self.lnf = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)

    def init_weights(self):
        """GPT-2's: N(0, 0.02), the projections into the residual stream smaller by sqrt(2 * blocks)."""
        for name, p in self.named_parameters():
            if p.dim() < 2:
                continue
            residual = name.endswith(("attn.proj.weight", "out.weight"))
            nn.init.normal_(p, 0.0, 0.02 / (2 * len(self.blocks)) ** 0.5 if residual else 0.02)
        for m in self.modules():
            if isinstance(m, nn.Linear) and m.bias is not None:
                nn.init.zeros_(m.bias)

    def forward(self, input_ids, labels):
        T = input_ids.shape[1]
        x = self.wte(input_ids) + self.wpe(torch.arange(T, device=input_ids.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.lnf(x))
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)).float(), labels.reshape(-1))
        if self.returns_logits:
            return loss, logits
        else:
            return loss

    def example_inputs(self):
        ids = torch.zeros(2, min(8, self.seq), dtype=torch.int64)
        return ids, ids.clone()

    def sample_inputs(self):
        ids = torch.randint(0, self.vocab, (8, self.seq))
        return ids, ids.clone()


# name: (vocab, seq, blocks, width, heads) of the models that our figures are about
PRESETS = {
    "gpt-32m": (50304, 256, 8, 256, 4),
    "gpt-163m": (50304, 1024, 12, 768, 12),
    "gpt-1.4b": (50304, 1024, 24, 2048, 16),
    "gpt-2.7b": (50304, 2048, 32, 2560, 32),
    "gpt-6.9b": (50304, 2048, 32, 4096, 32),
}
