#!/usr/bin/env python3
"""Makes deepspeed_monitors.json: what DeepSpeed 0.18.2 itself counts and prints for the models of test_monitors.py.

    python tests/oracle/deepspeed_monitors.py        # a Python with torch, numpy and deepspeed==0.18.2 (DS_BUILD_OPS=0)

The FLOPs come from its flops profiler over the eager models of tools/recipes; the bandwidths, averages and sizes from
its comms logger's own functions."""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../tools"))
sys.dont_write_bytecode = True
MICRO_BATCH = 6


def eager_models():
    """{name: (model, inputs of one micro batch)}; the sizes are those of harness.MODELS."""
    import torch
    from recipes import convnet, gpt, mlp

    tokens = torch.zeros(MICRO_BATCH, 12, dtype=torch.int64)
    return {
        "gpt": (gpt.GPT(vocab=64, seq=12, blocks=2, width=32, heads=2, returns="loss"), (tokens, tokens)),
        "mlp": (mlp.MLPLoss(inputs=6, width=16, layers=2), (torch.zeros(MICRO_BATCH, 6), torch.zeros(MICRO_BATCH, 1))),
        "convnet": (convnet.ConvNet(classes=5, width=6, blocks=2, size=6), (torch.zeros(MICRO_BATCH, 1, 6, 6),)),
    }


def flops():
    from deepspeed.profiling.flops_profiler.profiler import FlopsProfiler

    counted = {}
    for name, (model, inputs) in eager_models().items():
        profiler = FlopsProfiler(model)
        model.train()
        profiler.start_profile()
        model(*inputs)
        counted[name] = {"flops": profiler.get_total_flops(), "macs": profiler.get_total_macs(),
                         "params": profiler.get_total_params()}
        profiler.end_profile()
    return counted


def comms():
    import deepspeed.comm
    from deepspeed.utils import comms_logging, timer

    deepspeed.comm.get_world_size = lambda: 4
    comms_logging.print_rank_0 = print
    bandwidths = [[op, size, latency, *comms_logging.calc_bw_log(op, size, latency)]
                  for op in ("all_reduce", "reduce_scatter_tensor", "all_gather_into_tensor", "all_to_all_single",
                             "broadcast", "send", "barrier")
                  for size, latency in ((4096, 0.5), (123456789, 7.25))]
    values = [3.0, 1.0, 100.0, 2.0, 5.0, 4.0, 6.0, 7.0, 8.0, 9.0, 0.5, 11.0, 12.0, 13.0, 14.0]
    means = [[values[:n], float(timer.trim_mean(list(values[:n]), 0.1))] for n in (0, 1, 5, 10, 14, 15)]
    sizes = [[n, comms_logging.convert_size(n)] for n in (0, 1, 1000, 1024, 123456789, 5 << 40)]
    return {"bandwidths_of_4": bandwidths, "trimmed_means": means, "sizes": sizes}


def main():
    with open(os.path.join(HERE, "deepspeed_monitors.json"), "w") as file:
        json.dump({"micro_batch": MICRO_BATCH, "flops": flops(), "comms": comms()}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
