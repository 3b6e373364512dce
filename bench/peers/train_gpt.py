#!/usr/bin/env python3
"""The peers: the same GPT and the same step as a PyTorch user writes it, started by torchrun.

    torchrun --nproc_per_node 8 train_gpt.py --kind ddp --preset gpt-163m --data tokens.safetensors --micro 16 --steps 40 \
        --out steps.json
    torchrun --nproc_per_node 2 train_gpt.py --kind ddp --device cpu --data text.safetensors --micro 8 --steps 1 ...

--kind ddp: DistributedDataParallel, fused AdamW; on GPUs bf16 autocast. --kind fsdp2: fully_shard on each block and the
root with bf16 parameters and reductions. --kind deepspeed: DeepSpeed's engine in bf16 at --zero, overlap_comm, PyTorch's
fused AdamW (no operator of DeepSpeed's has to be compiled). --offload: masters and moments on the host (deepspeed, by
DeepSpeedCPUAdam, which is compiled at the first start), parameters too (all). --kind deepspeed-pipeline: its
PipelineModule with --stages, --accumulation micro batches a step, ZeRO 1. --compile: torch.compile on each block and on
the loss (fsdp2) or on the whole model (ddp). The samples are on the device before the first step. Rank 0 writes
{"step_ms": [...], "loss": [...]}; step times are by CUDA events. The file appears when the last step is done."""
import argparse
import json
import os
import re
import sys
import types

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools"))
from recipes import gpt  # noqa: E402


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=["ddp", "fsdp2", "deepspeed", "deepspeed-pipeline"], default="ddp")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--preset", choices=list(gpt.PRESETS))
    parser.add_argument("--vocab", type=int, default=256)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--data", required=True, help="a safetensors file with input_ids and labels")
    parser.add_argument("--weights", help="a file of tools/export of the same model: start from its weights")
    parser.add_argument("--micro", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--zero", type=int, default=1, help="deepspeed: the stage")
    parser.add_argument("--stages", type=int, default=1, help="deepspeed-pipeline")
    parser.add_argument("--accumulation", type=int, default=1, help="deepspeed-pipeline: micro batches a step")
    parser.add_argument("--offload", choices=["optimizer", "all"], help="deepspeed and fsdp2 (all): state on the host")
    parser.add_argument("--compile", action="store_true", help="ddp and fsdp2: torch.compile")
    parser.add_argument("--no-reshard", action="store_true", help="fsdp2: keep parameters gathered after forward")
    parser.add_argument("--train", metavar="PATTERN", help="train only parameters whose name matches; freeze the others")
    parser.add_argument("--mean-loss", action="store_true", help="report losses as means over the ranks")
    parser.add_argument("--out", required=True)
    return parser.parse_args()


def make_model(args, device):
    sizes = gpt.PRESETS[args.preset] if args.preset else (args.vocab, args.seq, args.blocks, args.width, args.heads)
    torch.manual_seed(0)
    with torch.device(device):
        model = gpt.GPT(*sizes)
    model.init_weights()
    if args.weights:
        model.load_state_dict(torch.jit.load(args.weights, map_location="cpu").state_dict())
    if args.train:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(re.search(args.train, name) is not None)
    return model


def trained(model):
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def shard(args, model, device):
    if args.kind == "ddp":
        if args.compile:
            model.compile()
        return torch.nn.parallel.DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    options = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
               "reshard_after_forward": not args.no_reshard}
    if args.offload:
        from torch.distributed.fsdp import CPUOffloadPolicy
        options["offload_policy"] = CPUOffloadPolicy()
    for block in model.blocks:
        if args.compile:
            block.compile()
        fully_shard(block, **options)
    fully_shard(model, **options)
    if args.compile:  # of what is outside the blocks, the loss is what pays
        gpt.F = types.SimpleNamespace(**vars(gpt.F))
        gpt.F.cross_entropy = torch.compile(gpt.F.cross_entropy)
    return model


class DeepSpeedStep:
    """DeepSpeed's engine behind the three calls of the loop below."""

    def __init__(self, args, model):
        import deepspeed
        config = {"train_micro_batch_size_per_gpu": args.micro, "gradient_accumulation_steps": 1, "bf16": {"enabled": True},
                  "zero_optimization": {"stage": args.zero, "overlap_comm": True, "contiguous_gradients": True},
                  "zero_allow_untested_optimizer": True}
        on_host = {"device": "cpu", "pin_memory": True}
        if args.offload:
            from deepspeed.ops.adam import DeepSpeedCPUAdam
            config["zero_optimization"]["offload_optimizer"] = on_host
            optimizer = DeepSpeedCPUAdam(trained(model), args.lr, weight_decay=0.0)
        else:
            optimizer = torch.optim.AdamW(trained(model), args.lr, weight_decay=0.0, fused=args.device == "cuda")
        if args.offload == "all":
            config["zero_optimization"]["offload_param"] = on_host
        self.engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)

    def __call__(self, inputs, labels):
        return self.engine(inputs, labels)

    def backward(self, loss):
        self.engine.backward(loss)

    def update(self):
        self.engine.step()


class Embedding(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.wte, self.wpe = model.wte, model.wpe

    def forward(self, ids):
        return self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))


class Head(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.lnf, self.head = model.lnf, model.head

    def forward(self, x):
        return self.head(self.lnf(x))


def pipeline_losses(args, model, source, mark):
    """DeepSpeed's pipeline engine: the mean loss of each step."""
    import deepspeed
    from deepspeed.pipe import PipelineModule
    deepspeed.init_distributed()

    def loss_of(logits, labels):
        return torch.nn.functional.cross_entropy(logits.view(-1, logits.size(-1)).float(), labels.reshape(-1))

    module = PipelineModule([Embedding(model), *model.blocks, Head(model)], num_stages=args.stages, loss_fn=loss_of,
                            partition_method="parameters")
    config = {"train_micro_batch_size_per_gpu": args.micro, "gradient_accumulation_steps": args.accumulation,
              "bf16": {"enabled": True}, "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True}
    optimizer = torch.optim.AdamW(trained(module), args.lr, weight_decay=0.0, fused=True)
    engine, *_ = deepspeed.initialize(model=module, optimizer=optimizer, config=config)
    samples = list(source)
    batches = (samples[i % len(samples)] for i in range(args.steps * args.accumulation))
    losses = []
    for _ in range(args.steps):
        losses.append(engine.train_batch(batches).detach())
        mark()
    return losses


class PlainStep:
    def __init__(self, args, model, device):
        self.model = shard(args, model, device)
        self.optimizer = torch.optim.AdamW(trained(self.model), args.lr, weight_decay=0.0, fused=True)
        self.autocast = torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda" and args.kind == "ddp")

    def __call__(self, inputs, labels):
        with self.autocast:
            return self.model(inputs, labels)

    def backward(self, loss):
        loss.backward()

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def batches(args, rank, world, device):
    """Yields (input_ids, labels) of this rank, as the run of dslaunch deals them."""
    with open(args.data, "rb") as file:
        content = bytearray(file.read())
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + size])
    arrays = [torch.frombuffer(content, dtype=torch.int64, offset=8 + size + header[name]["data_offsets"][0],
                               count=header[name]["shape"][0] * header[name]["shape"][1]).view(header[name]["shape"]).to(device)
              for name in ("input_ids", "labels")]
    for step in range(args.steps):
        begin = (step * world + rank) * args.micro
        yield tuple(array[begin:begin + args.micro] for array in arrays)


def main():
    args = parse()
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if args.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo",
                            device_id=device if device.type == "cuda" else None)
    plain = make_model(args, device)
    is_pipeline = args.kind == "deepspeed-pipeline"
    num_pipelines = dist.get_world_size() // args.stages
    source = batches(args, dist.get_rank() % num_pipelines, num_pipelines, device)
    if not is_pipeline:
        step = DeepSpeedStep(args, plain) if args.kind == "deepspeed" else PlainStep(args, plain, device)
    marks, losses = [], []

    def mark():
        if device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            marks.append(event)

    mark()
    if is_pipeline:
        losses = pipeline_losses(args, plain, source, mark)
    for inputs, labels in () if is_pipeline else source:
        loss = step(inputs, labels)
        step.backward(loss)
        step.update()
        losses.append(loss.detach())
        mark()
    if args.mean_loss and not is_pipeline:
        for loss in losses:
            dist.all_reduce(loss)
            loss /= dist.get_world_size()
    if device.type == "cuda":
        torch.cuda.synchronize()
    if dist.get_rank() == 0:
        result = {"step_ms": [a.elapsed_time(b) for a, b in zip(marks, marks[1:])], "loss": [loss.item() for loss in losses],
                  "gpu_mem_bytes": torch.cuda.max_memory_allocated() if device.type == "cuda" else None}
        with open(args.out + ".part", "w") as file:
            json.dump(result, file)
        os.replace(args.out + ".part", args.out)
    dist.barrier()  # Gloo may abort a rank whose peers have left
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
