#!/usr/bin/env python3
"""Makes the checkpoints of this folder with DeepSpeed itself, and what is expected of them.

    DS_ACCELERATOR=cpu DS_BUILD_OPS=0 PYTHON_WITH_DEEPSPEED_0.18.2 make.py [CASE...]

Every case trains TinyModel for 3 steps on 2 CPU ranks (Gloo), saves, then trains 5 steps more from the saved state in a
fresh engine. CASE/ holds DeepSpeed's folder as it wrote it (without its copy of zero_to_fp32.py), CASE/expected.safetensors
the fp32 weights by DeepSpeed's own zero_to_fp32 and the moments by its safe_get_full_optimizer_state, CASE/expected.json the
losses of the continuation and what the engine said of itself."""
import json
import os
import shutil
import socket
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS_BEFORE, STEPS_AFTER, BATCH, WORLD = 3, 5, 8, 2
FP16 = {"fp16": {"enabled": True, "initial_scale_power": 18, "loss_scale_window": 4, "hysteresis": 1}}
BF16 = {"bf16": {"enabled": True}}

CASES = {
    "stage0_fp32": {"zero_optimization": {"stage": 0}},
    "stage1_fp32": {"zero_optimization": {"stage": 1}},
    "stage1_bf16": {"zero_optimization": {"stage": 1}, **BF16},
    "stage2_fp32": {"zero_optimization": {"stage": 2}},
    "stage2_bf16": {"zero_optimization": {"stage": 2, "round_robin_gradients": True}, **BF16},
    "stage2_fp16": {"zero_optimization": {"stage": 2}, **FP16},
    "stage3_fp32": {"zero_optimization": {"stage": 3, "sub_group_size": 60}},
    "stage3_bf16": {"zero_optimization": {"stage": 3}, **BF16},
    "stage0_bf16": {"zero_optimization": {"stage": 0}, **BF16},
    "stage0_fp16": {"zero_optimization": {"stage": 0}, "fp16": {**FP16["fp16"], "initial_scale_power": 16}},
    "stage2_groups_fp32": {"zero_optimization": {"stage": 2}},
    "stage0_sgd_fp32": {"zero_optimization": {"stage": 0}},
}


def config_of(case):
    config = {
        "train_batch_size": BATCH,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 0.5,
        "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.01, "warmup_num_steps": 6,
                                                     "warmup_type": "linear"}},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    config.update(CASES[case])
    return config


def optimizer_of(case, model):
    import torch
    trained = [p for p in model.parameters() if p.requires_grad]
    if "sgd" in case:
        return torch.optim.SGD(trained, lr=0.05, momentum=0.9)
    if "groups" in case:
        decayed, others = [p for p in trained if p.dim() > 1], [p for p in trained if p.dim() <= 1]
        return torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=0.01)
    return torch.optim.AdamW(trained, lr=0.01, weight_decay=0.1)


def start_engine(case, seed):
    import deepspeed
    from tiny_model import make_model
    model = make_model(seed)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer_of(case, model), config=config_of(case))
    return engine


def train(engine, first, steps):
    """Rank r takes the r-th share of every batch; returns the mean losses over the ranks."""
    import torch
    from tiny_model import make_data
    data, losses = make_data(), []
    rank, share = torch.distributed.get_rank(), BATCH // WORLD
    for step in range(first, first + steps):
        begin = step * BATCH + rank * share
        loss = engine(data["tokens"][begin:begin + share], data["labels"][begin:begin + share])
        engine.backward(loss)
        engine.step()
        mean = loss.detach().float().clone()
        torch.distributed.all_reduce(mean)
        losses.append(mean.item() / WORLD)
    return losses


def moments_of(case, engine):
    from deepspeed.utils import safe_get_full_optimizer_state
    if CASES[case]["zero_optimization"].get("round_robin_gradients"):
        return moments_in_flat_order(engine)
    if "groups" in case:  # DeepSpeed links the states of the first group only
        engine.optimizer._hp_optimizer_states_linked = False
        engine.optimizer._lazy_init_hp_params_optimizer_state()
    names = ("momentum_buffer",) if "sgd" in case else ("exp_avg", "exp_avg_sq")
    return {f"{state}/{name}": safe_get_full_optimizer_state(parameter, state).clone().float()
            for name, parameter in engine.module.named_parameters() if parameter.requires_grad for state in names}


def moments_in_flat_order(engine):
    """With round_robin_gradients DeepSpeed's own mapping from parameters to flat memory keeps the order of before (0.18.2), and
    safe_get_full_optimizer_state gives out other parameters' moments. This is the order in which the parts really lie."""
    import torch
    names, out = {id(p): name for name, p in engine.module.named_parameters()}, {}
    state = engine.optimizer.optimizer.state[engine.optimizer.single_partition_of_fp32_groups[0]]
    for key in ("exp_avg", "exp_avg_sq"):
        parts = [torch.empty_like(state[key]) for _ in range(WORLD)]
        torch.distributed.all_gather(parts, state[key])
        flat, at = torch.cat(parts), 0
        for parameter in engine.optimizer.round_robin_bit16_groups[0]:
            out[f"{key}/{names[id(parameter)]}"] = flat[at:at + parameter.numel()].view(parameter.shape).clone()
            at += parameter.numel()
    return out


def plain_moments(engine):
    """Without ZeRO the optimizer is torch's own."""
    out, names = {}, {id(p): name for name, p in engine.module.named_parameters()}
    for parameter, state in engine.optimizer.state.items():
        for key in ("exp_avg", "exp_avg_sq", "momentum_buffer"):
            if key in state and id(parameter) in names:
                out[f"{key}/{names[id(parameter)]}"] = state[key].clone().float()
    return out


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.detach().contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def rank_main(case):
    import deepspeed
    import torch
    from deepspeed.accelerator import get_accelerator
    deepspeed.init_distributed(dist_backend="gloo")
    torch.use_deterministic_algorithms(True)
    rank, folder = torch.distributed.get_rank(), os.path.join(HERE, case)
    if "fp16" in case:  # DeepSpeed asks for mkldnn's fp16; torch's plain kernels do as well
        get_accelerator().is_fp16_supported = lambda: True
    engine = start_engine(case, 1)
    losses_before = train(engine, 0, STEPS_BEFORE)
    moments = moments_of(case, engine) if not case.startswith("stage0") else plain_moments(engine)
    engine.save_checkpoint(folder, client_state={"note": "from make.py"})
    # The scheduler and optimizer that made the checkpoint go on from the file, not from memory.
    restored = start_engine(case, 2)
    restored.load_checkpoint(folder)
    losses_after = train(restored, STEPS_BEFORE, STEPS_AFTER)
    if rank == 0:
        weights = {}
        if not case.startswith("stage0"):
            from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
            weights = {f"master/{name}": value.float() for name, value in get_fp32_state_dict_from_zero_checkpoint(folder).items()}
        else:
            state = torch.load(os.path.join(folder, f"global_step{STEPS_BEFORE}", "mp_rank_00_model_states.pt"), weights_only=False)
            weights = {f"master/{name}": value.float() for name, value in state["module"].items()}
            if "fp16" in case:  # the masters that belong to those
                masters = dict(zip(map(id, engine.optimizer.fp16_groups[0]), engine.optimizer.fp32_groups[0]))
                weights.update({f"master/{name}": masters[id(p)].detach() for name, p in engine.module.named_parameters()
                                if id(p) in masters})
        write_safetensors(os.path.join(folder, "expected.safetensors"), {**weights, **moments})
        with open(os.path.join(folder, "expected.json"), "w") as file:
            json.dump({"losses_before": losses_before, "losses_after": losses_after, "global_steps": STEPS_BEFORE,
                       "skipped_steps": engine.skipped_steps, "deepspeed": deepspeed.__version__,
                       "torch": torch.__version__, "config": config_of(case)}, file, indent=1)
            file.write("\n")


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def main():
    if "RANK" in os.environ:
        rank_main(sys.argv[1])
        return
    for case in sys.argv[1:] or CASES:
        shutil.rmtree(os.path.join(HERE, case), ignore_errors=True)
        env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(WORLD),
               "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
        ranks = [subprocess.Popen([sys.executable, __file__, case], env={**env, "RANK": str(r), "LOCAL_RANK": str(r)})
                 for r in range(WORLD)]
        codes = [rank.wait() for rank in ranks]
        if any(codes):
            sys.exit(f"{case}: the ranks ended with {codes}")
        os.unlink(os.path.join(HERE, case, "zero_to_fp32.py")) if os.path.exists(os.path.join(HERE, case, "zero_to_fp32.py")) else None


if __name__ == "__main__":
    main()
