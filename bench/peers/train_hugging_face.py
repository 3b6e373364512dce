#!/usr/bin/env python3
"""The peers: a Hugging Face model, or the GPT of tools/recipes, and the same step as a PyTorch user writes it, on one GPU.

    train_hugging_face.py save llama --config '{"hidden_size": 256}' --out DIR           # random weights, in bf16
    train_hugging_face.py train --model DIR --data samples.safetensors --micro 8 --steps 30 \
        --precision masters --compile default < /dev/null
    train_hugging_face.py train --model gpt-163m --weights gpt-163m.pt ...

The loss, with the logits and the fp32 cross-entropy, is inside of what is compiled: what stays outside costs the peer
milliseconds. --precision autocast: fp32 parameters, bf16 by torch.autocast; masters: bf16 parameters, gradients cast to
fp32 for fused AdamW on fp32 masters. --float8: linear layers but the head, from 256 wide, by torchao's recipe. Gradients are clipped to 1. Samples are on the device before the first step. Trains
--steps steps and writes the line
{"step_ms": [...], "loss": [...], "gpu_mem_bytes": N, "first_step_s": N} to standard output; once more for each
line that comes on standard input, so that a caller alternates programs without compiling again. Step times are by CUDA
events."""
import argparse
import contextlib
import json
import os
import sys
import time

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools"))
from recipes import gpt  # noqa: E402

BEGAN = time.monotonic()


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    save = commands.add_parser("save")
    save.add_argument("architecture")
    save.add_argument("--config", required=True, help="JSON")
    save.add_argument("--head", default="causal-lm", choices=["causal-lm", "masked-lm"])
    save.add_argument("--out", required=True)
    train = commands.add_parser("train")
    train.add_argument("--model", required=True, help="a folder of save, or a preset of tools/recipes/gpt.py")
    train.add_argument("--weights", help="of a preset: a file of tools/export")
    train.add_argument("--data", required=True, help="a safetensors file with the arguments of forward and labels")
    train.add_argument("--micro", type=int, required=True)
    train.add_argument("--steps", type=int, required=True)
    train.add_argument("--precision", choices=["autocast", "masters"], required=True)
    train.add_argument("--float8", choices=["tensorwise", "rowwise", "rowwise_with_gw_hp"])
    train.add_argument("--compile", choices=["none", "default", "reduce-overhead", "max-autotune"], default="none")
    return parser.parse_args()


def auto_class(architectures):
    import transformers
    masked = any(name.endswith("ForMaskedLM") for name in architectures)
    return transformers.AutoModelForMaskedLM if masked else transformers.AutoModelForCausalLM


def save(args):
    import transformers
    config = transformers.AutoConfig.for_model(args.architecture, **json.loads(args.config))
    head = transformers.AutoModelForMaskedLM if args.head == "masked-lm" else transformers.AutoModelForCausalLM
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = head.from_config(config, dtype=torch.float32)
    model.to(torch.bfloat16).save_pretrained(args.out)


class Loss(torch.nn.Module):
    """labels[i] belongs to position i."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, labels, **inputs):
        logits = self.model(**inputs).logits
        return F.cross_entropy(logits.reshape(-1, logits.size(-1)).float(), labels.reshape(-1))


class GptLoss(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, labels, input_ids):
        return self.model(input_ids, labels)


def load(args):
    if args.model in gpt.PRESETS:
        with torch.device("cuda"):
            model = gpt.GPT(*gpt.PRESETS[args.model])
        model.load_state_dict(torch.jit.load(args.weights, map_location="cpu").state_dict())
        return GptLoss(model)
    with open(os.path.join(args.model, "config.json")) as file:
        architectures = json.load(file)["architectures"]
    model = auto_class(architectures).from_pretrained(args.model, dtype=torch.float32).cuda()
    model.config.use_cache = False
    return Loss(model)


def read_samples(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        begin, types = file.tell(), {"I64": torch.int64}
        out = {}
        for name, entry in header.items():
            file.seek(begin + entry["data_offsets"][0])
            raw = bytearray(file.read(entry["data_offsets"][1] - entry["data_offsets"][0]))
            out[name] = torch.frombuffer(raw, dtype=types[entry["dtype"]]).view(entry["shape"]).cuda()
    return out


def use_float8(model, recipe):
    """In the layers that dslaunch takes as well."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    def is_wide(layer, name):
        sizes = layer.weight.shape if isinstance(layer, torch.nn.Linear) else (0,)
        return min(sizes) >= 256 and all(size % 16 == 0 for size in sizes) and "head" not in name and "embed_out" not in name
    convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name(recipe), module_filter_fn=is_wide)


class Training:
    def __init__(self, args):
        self.args = args
        self.loss_of = load(args).train()
        parameters, self.masters = list(self.loss_of.parameters()), None
        if args.precision == "masters":
            self.masters = [parameter.detach().clone() for parameter in parameters]
            self.loss_of.bfloat16()
            parameters = list(self.loss_of.parameters())
        if args.float8:
            use_float8(self.loss_of, args.float8)
            parameters = list(self.loss_of.parameters())
        self.parameters, self.optimized = parameters, self.masters or parameters
        self.optimizer = torch.optim.AdamW(self.optimized, lr=1e-4, weight_decay=0.0, fused=True)
        self.precision = torch.autocast("cuda", torch.bfloat16) if args.precision == "autocast" else contextlib.nullcontext()
        self.function = self.loss_of
        if args.compile != "none":
            self.function = torch.compile(self.loss_of, mode=None if args.compile == "default" else args.compile)
        self.samples, self.first_step_s = read_samples(args.data), None

    def step(self, batch):
        if self.args.compile == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        with self.precision:
            loss = self.function(**batch)
        loss.backward()
        value = loss.detach().clone()
        if self.masters:
            for master, parameter in zip(self.masters, self.parameters):
                master.grad = parameter.grad.float()
                parameter.grad = None
        torch.nn.utils.clip_grad_norm_(self.optimized, 1.0)
        self.optimizer.step()
        if self.masters:
            with torch.no_grad():
                torch._foreach_copy_(self.parameters, self.masters)
        self.optimizer.zero_grad(set_to_none=True)
        return value

    def round(self):
        events, losses = [torch.cuda.Event(enable_timing=True)], []
        events[0].record()
        for step in range(self.args.steps):
            first = step * self.args.micro
            losses.append(self.step({name: values[first:first + self.args.micro] for name, values in self.samples.items()}))
            events.append(torch.cuda.Event(enable_timing=True))
            events[-1].record()
            if self.first_step_s is None:
                torch.cuda.synchronize()
                self.first_step_s = time.monotonic() - BEGAN
        torch.cuda.synchronize()
        return {"step_ms": [before.elapsed_time(after) for before, after in zip(events, events[1:])],
                "loss": [float(loss) for loss in losses], "gpu_mem_bytes": torch.cuda.max_memory_allocated(),
                "first_step_s": self.first_step_s}


def train(args):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    training = Training(args)
    while True:
        print(json.dumps(training.round()), flush=True)
        if not sys.stdin.readline():
            return


def main():
    args = parse()
    save(args) if args.command == "save" else train(args)


if __name__ == "__main__":
    main()
