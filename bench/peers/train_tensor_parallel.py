#!/usr/bin/env python3
"""The peers of bench/tensor_steps: llama.py on several ranks that hold each layer together, started by torchrun.

    torchrun --nproc_per_node 2 train_tensor_parallel.py --kind dtensor --size llama-1.4b --data tokens.safetensors --steps 20 \
        --out steps.json
    torchrun --nproc_per_node 2 train_tensor_parallel.py --kind dtensor --device cpu --size llama-tiny --steps 3 ...

--kind dtensor: parallelize_module with sequence parallelism and loss_parallel, as torchtitan's Llama, and with --compile
torch.compile on each block; bf16 parameters, fused AdamW on fp32 masters of the own shards. --kind deepspeed: AutoTP by
tp_model_init and its engine in bf16 at ZeRO 1. Without gradient clipping. The samples are on the device before the first
step. Rank 0 writes {"step_ms": [...], "loss": [...], "gpu_mem_bytes": N}; the file appears when the last step is done."""
import argparse
import contextlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import llama  # noqa: E402


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=["dtensor", "deepspeed"], required=True)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--size", choices=list(llama.SIZES), required=True)
    parser.add_argument("--data", required=True, help="a safetensors file with input_ids and labels")
    parser.add_argument("--weights", help="a file of tools/export of the same model: start from its weights")
    parser.add_argument("--compile", action="store_true", help="dtensor: torch.compile on each block")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--out", required=True)
    return parser.parse_args()


def make_model(args, device):
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16 if args.device == "cuda" else torch.float32)
    with torch.device(device):
        model = llama.LlamaModel(args.size)
        if not args.weights:
            model.init_weights()
    torch.set_default_dtype(torch.float32)
    if args.weights:
        model.load_state_dict(torch.jit.load(args.weights, map_location="cpu").state_dict(), strict=False)
    return model


def parallelize(model, device_type, compiles):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                                   parallelize_module)
    mesh = init_device_mesh(device_type, (dist.get_world_size(),))
    parallelize_module(model, mesh, {
        "embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "lm_head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    })
    for block in model.layers:
        parallelize_module(block, mesh, {
            "input_layernorm": SequenceParallel(),
            "self_attn": PrepareModuleInput(input_layouts=(Shard(1), None, None), desired_input_layouts=(Replicate(), None, None)),
            "self_attn.q_proj": ColwiseParallel(),
            "self_attn.k_proj": ColwiseParallel(),
            "self_attn.v_proj": ColwiseParallel(),
            "self_attn.o_proj": RowwiseParallel(output_layouts=Shard(1)),
            "post_attention_layernorm": SequenceParallel(),
            "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "mlp.gate_proj": ColwiseParallel(),
            "mlp.up_proj": ColwiseParallel(),
            "mlp.down_proj": RowwiseParallel(output_layouts=Shard(1)),
        })
        if compiles:
            block.compile(fullgraph=True)


def own_part(tensor, placements):
    """The local shard of a DTensor with these placements."""
    if not hasattr(tensor, "to_local"):
        return tensor
    return (tensor if tensor.placements == placements else tensor.redistribute(placements=placements)).to_local()


class DTensorStep:
    def __init__(self, args, model):
        from torch.distributed.tensor.parallel import loss_parallel
        parallelize(model, args.device, args.compile)
        self.model, self.loss_parallel = model, loss_parallel
        self.parameters = list(model.parameters())
        with torch.no_grad():
            self.masters = [own_part(parameter, getattr(parameter, "placements", None)).float().clone() for parameter in self.parameters]
        self.optimizer = torch.optim.AdamW(self.masters, lr=args.lr, weight_decay=0.0, fused=args.device == "cuda")

    def __call__(self, inputs, labels):
        with self.loss_parallel():
            loss = self.model(inputs, labels)
            loss.backward()
        for master, parameter in zip(self.masters, self.parameters):
            master.grad = own_part(parameter.grad, getattr(parameter, "placements", None)).float()
            parameter.grad = None
        self.optimizer.step()
        with torch.no_grad():
            locals_ = [own_part(parameter, getattr(parameter, "placements", None)) for parameter in self.parameters]
            torch._foreach_copy_(locals_, self.masters)
        return loss.full_tensor().detach() if hasattr(loss, "full_tensor") else loss.detach()


class DeepSpeedStep:
    def __init__(self, args, model):
        import deepspeed
        deepspeed.init_distributed()
        world = dist.get_world_size()
        config = {"train_micro_batch_size_per_gpu": llama.SIZES[args.size][5], "gradient_accumulation_steps": 1,
                  "bf16": {"enabled": args.device == "cuda"}, "zero_optimization": {"stage": 1, "overlap_comm": True},
                  "tensor_parallel": {"autotp_size": world}, "zero_allow_untested_optimizer": True}
        model = deepspeed.tp_model_init(model, tp_size=world, dtype=torch.bfloat16 if args.device == "cuda" else torch.float32)
        optimizer = torch.optim.AdamW(model.parameters(), args.lr, weight_decay=0.0, fused=args.device == "cuda")
        self.engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)

    def __call__(self, inputs, labels):
        loss = self.engine(inputs, labels)
        self.engine.backward(loss)
        self.engine.step()
        return loss.detach()


def read_samples(path, device):
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        begin, out = file.tell(), {}
        for name, entry in header.items():
            file.seek(begin + entry["data_offsets"][0])
            raw = bytearray(file.read(entry["data_offsets"][1] - entry["data_offsets"][0]))
            out[name] = torch.frombuffer(raw, dtype=torch.int64).view(entry["shape"]).to(device)
    return out["input_ids"], out["labels"]


@contextlib.contextmanager
def process_group(device_type):
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local) if device_type == "cuda" else torch.device("cpu")
    if device_type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
    yield device
    dist.barrier()  # Gloo may abort a rank whose peers have left
    dist.destroy_process_group()


def train(args, device):
    micro, is_gpu = llama.SIZES[args.size][5], device.type == "cuda"
    step = (DTensorStep if args.kind == "dtensor" else DeepSpeedStep)(args, make_model(args, device))
    inputs, labels = read_samples(args.data, device)
    marks, losses = [], []

    def mark():
        if is_gpu:
            marks.append(torch.cuda.Event(enable_timing=True))
            marks[-1].record()
        else:
            marks.append(time.monotonic())

    mark()
    for first in range(0, args.steps * micro, micro):
        losses.append(step(inputs[first:first + micro], labels[first:first + micro]))
        mark()
    if is_gpu:
        torch.cuda.synchronize()
    between = (lambda a, b: a.elapsed_time(b)) if is_gpu else (lambda a, b: (b - a) * 1000)
    return {"step_ms": [between(a, b) for a, b in zip(marks, marks[1:])], "loss": [float(loss) for loss in losses],
            "gpu_mem_bytes": torch.cuda.max_memory_allocated() if is_gpu else None}


def main():
    args = parse()
    torch.backends.cuda.matmul.allow_tf32 = True
    with process_group(args.device) as device:
        result = train(args, device)
        if dist.get_rank() == 0:
            with open(args.out + ".part", "w") as file:
                json.dump(result, file)
            os.replace(args.out + ".part", args.out)


if __name__ == "__main__":
    main()
