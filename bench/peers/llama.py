"""A Llama as users write it, with the names of transformers' modules, which DeepSpeed's AutoTP goes by. All programs of
bench/tensor_steps train this one: dslaunch its trace (tools/export --recipe), the peers the modules."""
import types

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY = 50304
# name: (blocks, width, width of the MLP, heads, heads of keys and values, micro batch, sequence)
SIZES = {
    "llama-tiny": (2, 64, 176, 4, 2, 2, 32),
    "llama-1.4b": (24, 2048, 5632, 16, 16, 8, 1024),
    "llama-6.9b": (32, 4096, 11008, 32, 32, 2, 2048),
}


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        return self.weight * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def rotated(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class LlamaAttention(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.head_dim, self.num_groups = width // heads, heads // kv_heads
        self.q_proj = nn.Linear(width, heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(width, kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(width, kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(heads * self.head_dim, width, bias=False)

    def forward(self, x, cos, sin):
        batch, length = x.shape[0], x.shape[1]
        q, k, v = (proj(x).view(batch, length, -1, self.head_dim).transpose(1, 2) for proj in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.num_groups > 1)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, -1))


class LlamaMLP(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaDecoderLayer(nn.Module):
    def __init__(self, width, inner, heads, kv_heads):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(width), RMSNorm(width)
        self.self_attn, self.mlp = LlamaAttention(width, heads, kv_heads), LlamaMLP(width, inner)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class LlamaModel(nn.Module):
    label_convention = "same"  # labels[i] belongs to input_ids[i]

    def __init__(self, size="llama-tiny"):
        super().__init__()
        blocks, width, inner, heads, kv_heads, _, self.sequence = SIZES[size]
        self.embed_tokens = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList([LlamaDecoderLayer(width, inner, heads, kv_heads) for _ in range(blocks)])
        self.norm = RMSNorm(width)
        self.lm_head = nn.Linear(width, VOCABULARY, bias=False)
        self.register_buffer("inverse_frequencies", 10000.0 ** (-torch.arange(0, width // heads, 2).float() / (width // heads)),
                             persistent=False)
        self.config = types.SimpleNamespace(model_type="llama", hidden_size=width, num_attention_heads=heads, num_key_value_heads=kv_heads)

    def init_weights(self):
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0.0, 0.02)

    def forward(self, input_ids, labels):
        x = self.embed_tokens(input_ids)
        angles = torch.outer(torch.arange(input_ids.shape[1], device=input_ids.device).float(), self.inverse_frequencies.float())
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        logits = self.lm_head(self.norm(x))
        return F.cross_entropy(logits.view(-1, VOCABULARY).float(), labels.reshape(-1))

    def example_inputs(self):
        ids = torch.zeros(2, min(8, self.sequence), dtype=torch.int64)
        return ids, ids.clone()
