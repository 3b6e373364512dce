#!/usr/bin/env python3
"""Greedy decoding in bf16 by the peers of bench/generate: transformers' generate() with a static cache, which it
compiles, and a plain Llama whose step is compiled with coordinate descent, with bf16 or int8 weights. Prints a JSON object.
Weights are those of DIR, or random ones of its config: the time does not depend on them."""
import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, c, capacity):
        super().__init__()
        self.heads, self.kv_heads, self.eps = c.num_attention_heads, c.num_key_value_heads, c.rms_norm_eps
        self.width = c.hidden_size // self.heads
        self.norms = nn.ParameterList([torch.ones(c.hidden_size) for _ in range(2)])
        self.qkv = nn.Linear(c.hidden_size, (self.heads + 2 * self.kv_heads) * self.width, bias=False)
        self.out = nn.Linear(c.hidden_size, c.hidden_size, bias=False)
        self.gate_up = nn.Linear(c.hidden_size, 2 * c.intermediate_size, bias=False)
        self.down = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, self.kv_heads, capacity, self.width))

    def norm(self, x, number):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype) * self.norms[number]

    def forward(self, x, position, cos, sin, mask):
        length = x.shape[1]
        parts = self.qkv(self.norm(x, 0)).view(1, length, -1, self.width).transpose(1, 2)
        q, k, v = parts.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        q, k = (t * cos + torch.cat((-t[..., self.width // 2:], t[..., :self.width // 2]), -1) * sin for t in (q, k))
        self.keys[:, :, position], self.values[:, :, position] = k, v
        y = F.scaled_dot_product_attention(q, self.keys, self.values, mask, enable_gqa=self.heads > self.kv_heads)
        x = x + self.out(y.transpose(1, 2).reshape(1, length, -1))
        gate, up = self.gate_up(self.norm(x, 1)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class PlainLlama(nn.Module):
    def __init__(self, c, capacity):
        super().__init__()
        self.embedding = nn.Embedding(c.vocab_size, c.hidden_size)
        self.blocks = nn.ModuleList([Block(c, capacity) for _ in range(c.num_hidden_layers)])
        self.norm_weight = nn.Parameter(torch.ones(c.hidden_size))
        self.head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)
        width = c.hidden_size // c.num_attention_heads
        angles = torch.outer(torch.arange(capacity), 1e4 ** (-torch.arange(0, width, 2) / width)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("seen", torch.ones(capacity, capacity).tril() == 1)

    def forward(self, ids, position):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, position, self.cos[position], self.sin[position], self.seen[position])
        x = F.rms_norm(x[:, -1:], x.shape[-1:], self.norm_weight)
        return self.head(x).argmax(-1)


class Int8Linear(nn.Module):
    """As gpt-fast and torchao have int8 weights: a scale for each output, and a product that inductor fuses with the cast."""

    def __init__(self, linear):
        super().__init__()
        scale = linear.weight.float().abs().amax(1) / 127
        self.register_buffer("weight", torch.round(linear.weight.float() / scale[:, None]).to(torch.int8))
        self.register_buffer("scale", scale.to(linear.weight.dtype))

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype)) * self.scale


def quantize(module):
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, Int8Linear(child))
        else:
            quantize(child)


def plain(config, prompt, num_tokens, is_int8=False):
    torch._inductor.config.coordinate_descent_tuning = True
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        model = PlainLlama(config, -(-(len(prompt) + num_tokens) // 64) * 64).eval()
        torch.set_default_dtype(torch.float32)
    if is_int8:
        quantize(model)
    step = torch.compile(lambda ids, position: model(ids, position), mode="reduce-overhead", fullgraph=True)
    ids = torch.tensor([prompt], device="cuda")

    def decode():
        token = model(ids, torch.arange(len(prompt), device="cuda"))
        position = torch.tensor([len(prompt)], device="cuda")
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(num_tokens - 1):
            token = step(token, position).clone()
            position += 1
        torch.cuda.synchronize()
        return 1000 * (time.perf_counter() - start) / (num_tokens - 1)
    return decode, None


def mean_behind(model, prompt, text):
    logits = model(torch.tensor([prompt + text[:-1]], device="cuda")).logits[0, len(prompt) - 1:]
    chosen = logits.gather(1, torch.tensor(text, device="cuda")[:, None])[:, 0]
    return ((logits.amax(1) - chosen) / logits.std(1)).mean().item()


def hugging_face(config, directory, prompt, num_tokens):
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16, device_map="cuda").eval()
    ids = torch.tensor([prompt], device="cuda")

    def generate(count):
        return model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, min_new_tokens=count, do_sample=False,
                              cache_implementation="static", pad_token_id=0)[0, len(prompt):].tolist()

    def timed(count):
        torch.cuda.synchronize()
        start = time.perf_counter()
        generate(count)
        torch.cuda.synchronize()
        return time.perf_counter() - start

    def decode():
        return 1000 * (timed(num_tokens) - timed(1)) / (num_tokens - 1)

    def behind(text):
        """How far the chosen tokens' logits lie below the largest ones of the model in fp32, on average, in standard deviations
        of the logits: of that text, and of the one that generate() writes in bf16."""
        written = generate(num_tokens)
        exact = model.float()
        return [mean_behind(exact, prompt, each) for each in (text, written)]
    return decode, behind


def reading(directory, prompt):
    """The pass over a prompt that fills a cache and gives the logits of the next token."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16, device_map="cuda").eval()
    ids = torch.tensor([prompt], device="cuda")

    def read():
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
            model(ids, use_cache=True, logits_to_keep=1).logits.argmax(-1).item()
        return 1000 * (time.perf_counter() - start)
    return read, None


def padded_batch(config, directory, prompts, num_tokens):
    """generate() of all texts, prompts padded on the left, until the longest has ended; a static cache, compiled."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16, device_map="cuda").eval()
    longest, count = max(map(len, prompts)), max(num_tokens)
    ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts], device="cuda")
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts], device="cuda")

    def generate(steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        stop = [lambda ids, scores, **_: torch.full((len(ids),), ids.shape[1] >= longest + steps, device="cuda")]
        model.generate(ids, attention_mask=mask, max_new_tokens=count, min_new_tokens=count, do_sample=False,
                       cache_implementation="static", pad_token_id=0, stopping_criteria=stop)
        torch.cuda.synchronize()
        return time.perf_counter() - start
    generate(8), generate(8)
    first, seconds = generate(1), generate(count)
    return {"seconds": seconds, "ms": 1000 * (seconds - first) / (count - 1)}


def save(config, directory):
    import transformers

    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(directory)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=["save", "hf", "hf_batch", "plain", "plain_int8", "prompt"], required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("task", help="JSON file: config (of transformers' Llama), dir, prompts, num_tokens, text (tokens that another "
                        "program has chosen)")
    args = parser.parse_args()
    import transformers

    with open(args.task) as file:
        task = json.load(file)
    config = transformers.AutoConfig.for_model("llama", **task["config"])
    prompt, num_tokens = task["prompts"][0], task["num_tokens"][0]
    with torch.inference_mode():
        if args.kind == "save":
            return save(config, task["dir"])
        if args.kind == "hf_batch":
            return print(json.dumps(padded_batch(config, task["dir"], task["prompts"], task["num_tokens"])))
        if args.kind == "prompt":
            decode, behind = reading(task["dir"], prompt)
        elif args.kind == "hf":
            decode, behind = hugging_face(config, task["dir"], prompt, num_tokens)
        else:
            decode, behind = plain(config, prompt, num_tokens, is_int8=args.kind == "plain_int8")
        decode(), decode()
        ms = statistics.median(decode() for _ in range(args.rounds))
        print(json.dumps({"ms": ms, "behind": behind(task["text"]) if behind and task["text"] else None}))


if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    main()
