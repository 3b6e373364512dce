#!/usr/bin/env python3
"""Makes the checkpoints pipe_* of this folder with DeepSpeed itself, as make.py does the others.

    DS_ACCELERATOR=cpu DS_BUILD_OPS=0 PYTHON_WITH_DEEPSPEED make_pipeline.py [CASE...]

Without names it makes those of the DeepSpeed that is installed: 0.18.2, or 0.18.9 for one case.

Every case trains the layers of pipeline_model.py for 3 steps as two stages beside two data ranks (CPU, Gloo), saves, then
trains 5 steps more from the saved state in a fresh engine. CASE/expected.safetensors has masters and moments as the live
engine gives them out, named LAYER.NAME, CASE/expected.json the losses of the continuation."""
import json
import os
import shutil
import subprocess
import sys

from make import BF16, FP16, HERE, STEPS_AFTER, STEPS_BEFORE, free_port, write_safetensors

BATCH, MICRO, STAGES, DATA_RANKS = 8, 4, 2, 2

CASES = {
    "pipe_stage0_fp32": {"zero_optimization": {"stage": 0}},
    "pipe_stage0_fp16": {"zero_optimization": {"stage": 0}, "fp16": {**FP16["fp16"], "initial_scale_power": 16}},
    "pipe_stage0_bf16": {"zero_optimization": {"stage": 0}, **BF16},
    "pipe_stage1_fp32": {"zero_optimization": {"stage": 1}},
    "pipe_stage1_bf16": {"zero_optimization": {"stage": 1}, **BF16},
    "pipe_stage1_fp16": {"zero_optimization": {"stage": 1}, **FP16},
    # The tied module is a layer twice; with "call", its second use is a function of it, which has no file.
    "pipe_tied_stage1_fp32": {"zero_optimization": {"stage": 1}},
    "pipe_tied_call_stage1_bf16": {"zero_optimization": {"stage": 1}, **BF16},
    # DeepSpeed's own optimizer for bf16, which 0.18.2 never uses (it takes its fp16 wrapper by mistake).
    "pipe_stage1_bf16_sums": {"zero_optimization": {"stage": 1}, **BF16, "data_types": {"grad_accum_dtype": "fp32"}},
}
VERSIONS = {"pipe_stage1_bf16_sums": "0.18.9"}  # of all others: 0.18.2


def config_of(case):
    """One micro batch and no clipping: the pipelines of 0.18.2 add up gradients of micro batches without dividing by their
    number, which clipping would hide from step to step."""
    return {
        "train_batch_size": BATCH,
        "train_micro_batch_size_per_gpu": MICRO,
        "gradient_clipping": 0.0,
        "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.01, "warmup_num_steps": 6,
                                                     "warmup_type": "linear"}},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        **CASES[case],
    }


def layers_of(case, seed):
    """For DeepSpeed: functions in the place of modules without state, and tied layers by their key."""
    import torch
    from deepspeed.pipe import TiedLayerSpec
    from pipeline_model import Embed, Halve, halve, logits_of, make_layers
    torch.manual_seed(seed)
    layers = [halve if isinstance(layer, Halve) else layer for layer in make_layers("tied" in case)]
    if "tied" in case:
        layers[0] = TiedLayerSpec("embed", Embed)
        layers[-1] = TiedLayerSpec("embed", Embed, forward_fn=logits_of if "call" in case else None)
    return layers


def start_engine(case, seed):
    import deepspeed
    import torch
    from deepspeed.pipe import PipelineModule
    from pipeline_model import loss_of
    net = PipelineModule(layers_of(case, seed), num_stages=STAGES, loss_fn=loss_of, partition_method="uniform")
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.AdamW(trained, lr=0.01, weight_decay=0.1),
                                      config=config_of(case))
    return engine


def batches(first, data_rank):
    """Micro batches in the order in which dslaunch deals samples."""
    from pipeline_model import make_data
    data = make_data()
    for step in range(first, STEPS_BEFORE + STEPS_AFTER):
        for micro in range(BATCH // (MICRO * DATA_RANKS)):
            begin = step * BATCH + (micro * DATA_RANKS + data_rank) * MICRO
            yield data["tokens"][begin:begin + MICRO], data["labels"][begin:begin + MICRO]


def train(engine, first, steps):
    samples = batches(first, engine.grid.data_parallel_id)
    return [engine.train_batch(samples).item() for _ in range(steps)]


def parameters_of(engine):
    """(LAYER.NAME, parameter) of this stage; a tied module has the number of its first layer."""
    for name, parameter in engine.module.named_parameters():
        yield name.replace("tied_modules.embed", "0"), parameter


def states_of(case, engine):
    """Masters and moments of what this stage trains; the weights where the optimizer has no copy."""
    out, states = {}, ("exp_avg", "exp_avg_sq")
    if CASES[case]["zero_optimization"]["stage"] == 1:
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
        for name, parameter in parameters_of(engine):
            if parameter.requires_grad:
                out[f"master/{name}"] = safe_get_full_fp32_param(parameter).clone().float()
                for state in states:
                    out[f"{state}/{name}"] = safe_get_full_optimizer_state(parameter, state).clone().float()
        return out
    wrapper = engine.optimizer if "fp16" in case else None  # it has an fp32 copy of each parameter
    copies = dict(zip(map(id, wrapper.fp16_groups[0]), wrapper.fp32_groups[0])) if wrapper else {}
    for name, parameter in parameters_of(engine):
        if not parameter.requires_grad:
            continue
        master = copies.get(id(parameter), parameter)
        out[f"master/{name}"] = master.detach().clone().float()
        for state in states if "bf16" not in case else ():  # not saved (0.18.2)
            out[f"{state}/{name}"] = (wrapper.optimizer if wrapper else engine.optimizer).state[master][state].clone().float()
    return out


def rank_main(case):
    import deepspeed
    import torch
    from deepspeed.accelerator import get_accelerator
    deepspeed.init_distributed(dist_backend="gloo")
    torch.use_deterministic_algorithms(True)
    folder = os.path.join(HERE, case)
    if "fp16" in case:  # DeepSpeed asks for mkldnn's fp16; torch's plain kernels do as well
        get_accelerator().is_fp16_supported = lambda: True
    engine = start_engine(case, 1)
    losses_before = train(engine, 0, STEPS_BEFORE)
    mine = states_of(case, engine)
    for name, parameter in engine.module.named_parameters():
        if not parameter.requires_grad:
            mine[f"frozen/{name}"] = parameter.detach().clone().float()
    for name, buffer in engine.module.named_buffers():
        mine[f"buffer/{name}"] = buffer.clone().float()
    by_rank = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(by_rank, mine)
    engine.save_checkpoint(folder, client_state={"note": "from make_pipeline.py"})
    restored = start_engine(case, 2)
    restored.load_checkpoint(folder)
    losses_after = train(restored, STEPS_BEFORE, STEPS_AFTER)
    if torch.distributed.get_rank() == 0:
        states = {}
        for one in reversed(by_rank):  # the first stage that holds a tied parameter counts
            states.update(one)
        write_safetensors(os.path.join(folder, "expected.safetensors"), dict(sorted(states.items())))
        with open(os.path.join(folder, "expected.json"), "w") as file:
            json.dump({"losses_before": losses_before, "losses_after": losses_after, "global_steps": STEPS_BEFORE,
                       "skipped_steps": engine.skipped_steps, "deepspeed": deepspeed.__version__,
                       "torch": torch.__version__, "config": config_of(case)}, file, indent=1)
            file.write("\n")


def main():
    if "RANK" in os.environ:
        rank_main(sys.argv[1])
        return
    from importlib.metadata import version
    world, installed = STAGES * DATA_RANKS, version("deepspeed")
    for case in sys.argv[1:] or [name for name in CASES if VERSIONS.get(name, "0.18.2") == installed]:
        folder = os.path.join(HERE, case)
        shutil.rmtree(folder, ignore_errors=True)
        env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world),
               "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
        ranks = [subprocess.Popen([sys.executable, __file__, case], env={**env, "RANK": str(r), "LOCAL_RANK": str(r)})
                 for r in range(world)]
        codes = [rank.wait() for rank in ranks]
        if any(codes):
            sys.exit(f"{case}: the ranks ended with {codes}")
        if os.path.exists(os.path.join(folder, "zero_to_fp32.py")):
            os.unlink(os.path.join(folder, "zero_to_fp32.py"))


if __name__ == "__main__":
    main()
