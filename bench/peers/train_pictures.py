#!/usr/bin/env python3
"""Models and samples of bench/input_stall, and its peer: an eager ViT with PyTorch's DataLoader, on one GPU.

    train_pictures.py model vit --size 224 --out vit.pt               # vit: transformers' ViT-base; floats: an MLP
    train_pictures.py data uint8 --size 224 --samples 4096 --out u8.safetensors       # uint8, fp32 or floats
    train_pictures.py train --data u8.safetensors --size 224 --micro 128 --steps 40 --warm 15 --workers 2

train writes the line {"step_ms": [...], "held_ms": [...]}: steps with the loader, and with their batch held on the device;
fp32 masters with bf16 autocast and fused AdamW, gradients clipped to 1, times by CUDA events."""
import argparse
import json
import os
import time

import torch
import torch.nn.functional as F

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
NUM_CLASSES = 1000


class Vit(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        import transformers
        config = transformers.ViTConfig(image_size=size, num_labels=NUM_CLASSES, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
        if size < 224:
            config.hidden_size, config.num_hidden_layers, config.num_attention_heads = 64, 2, 2
            config.intermediate_size, config.patch_size = 128, 8
        self.vit = transformers.ViTForImageClassification(config)

    def forward(self, pixel_values, labels):
        return F.cross_entropy(self.vit(pixel_values).logits.float(), labels)


class Wide(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        width, depth = (4096, 48) if size > 4096 else (64, 8)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(size, width)] + [torch.nn.Linear(width, width) for _ in range(depth)])
        self.head = torch.nn.Linear(width, NUM_CLASSES)

    def forward(self, values, labels):
        for layer in self.layers:
            values = F.relu(layer(values))
        return F.cross_entropy(self.head(values).float(), labels)


def example(kind, size, count):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, NUM_CLASSES, (count,), generator=generator)
    if kind == "floats":
        return {"values": torch.rand((count, size), generator=generator), "labels": labels}
    pixels = torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator)
    return {"pixel_values": normalized(pixels) if kind == "fp32" else pixels, "labels": labels}


def normalized(pixels):
    mean, std = (torch.tensor(values, device=pixels.device).view(3, 1, 1) for values in (MEAN, STD))
    return (pixels.float() / 255 - mean) / std


def write_model(args):
    torch.manual_seed(0)
    model = (Vit if args.kind == "vit" else Wide)(args.size).train()
    sample = example("fp32" if args.kind == "vit" else "floats", args.size, 2)
    torch.jit.trace(model, example_kwarg_inputs=sample).save(args.out)


def write_data(args):
    types = {torch.uint8: "U8", torch.float32: "F32", torch.int64: "I64"}
    samples, header, end = example(args.kind, args.size, args.samples), {}, 0
    for name, value in samples.items():
        header[name] = {"dtype": types[value.dtype], "shape": list(value.shape), "data_offsets": [end, end + value.nbytes]}
        end += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(args.out, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for value in samples.values():
            file.write(memoryview(value.numpy()).cast("B"))


class Samples(torch.utils.data.Dataset):
    """Rows of the mapped file."""

    def __init__(self, path):
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
        types = {"U8": torch.uint8, "F32": torch.float32, "I64": torch.int64}
        whole = torch.from_file(path, shared=False, size=os.path.getsize(path), dtype=torch.uint8)
        self.arrays = {name: whole[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]].view(types[entry["dtype"]])
                       .view(entry["shape"]) for name, entry in header.items()}

    def __len__(self):
        return len(self.arrays["labels"])

    def __getitem__(self, index):
        return {name: array[index] for name, array in self.arrays.items()}


def endless(loader):
    while True:
        yield from loader


def train(args):
    device = torch.device(args.device)
    model = Vit(args.size).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    loader = torch.utils.data.DataLoader(Samples(args.data), batch_size=args.micro, shuffle=True, drop_last=True, num_workers=args.workers,
                                         pin_memory=device.type == "cuda", persistent_workers=args.workers > 0)
    batches = endless(loader)

    def fetch():
        batch = {name: value.to(device, non_blocking=True) for name, value in next(batches).items()}
        if batch["pixel_values"].dtype == torch.uint8:
            batch["pixel_values"] = normalized(batch["pixel_values"])
        return batch

    def mark():
        if device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def run(next_batch, count):
        marks = [mark()]
        for _ in range(count):
            with torch.autocast(device.type, torch.bfloat16):
                loss = model(**next_batch())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            marks.append(mark())
        if device.type != "cuda":
            return [1000 * (b - a) for a, b in zip(marks, marks[1:])]
        torch.cuda.synchronize()
        return [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]

    run(fetch, args.warm)
    step_ms = run(fetch, args.steps)
    held = fetch()
    run(lambda: held, 2)
    print(json.dumps({"step_ms": step_ms, "held_ms": run(lambda: held, args.steps)}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, kinds in (("model", ["vit", "floats"]), ("data", ["uint8", "fp32", "floats"])):
        command = commands.add_parser(name)
        command.add_argument("kind", choices=kinds)
        command.add_argument("--out", required=True)
    commands.choices["data"].add_argument("--samples", type=int, required=True)
    command = commands.add_parser("train")
    command.add_argument("--data", required=True)
    command.add_argument("--device", default="cuda")
    for option in ("--micro", "--steps", "--warm", "--workers"):
        command.add_argument(option, type=int, required=True)
    for command in commands.choices.values():
        command.add_argument("--size", type=int, required=True)
    args = parser.parse_args()
    {"model": write_model, "data": write_data, "train": train}[args.command](args)


if __name__ == "__main__":
    main()
