#!/usr/bin/env python3
"""Makes the committed numbers that curricula and dynamic batches are tested against.

    data_efficiency_numbers.py OUT_FOLDER          writes tests/data/data_efficiency

Needs NumPy, PyTorch 2.11 and DeepSpeed 0.18.2, installed with DS_BUILD_OPS=0; no GPU. What each number comes from:

  schedules      deepspeed.runtime.data_pipeline.curriculum_scheduler.CurriculumScheduler, updated at each step as the
                 engine does
  random         numpy.random.default_rng and random.Random
  metrics        index files that data_sampling.data_analyzer.DataAnalyzer writes (map and reduce) for the values below
  samples        the global batches of data_sampling.data_sampler.DeepSpeedDataSampler over those files
  batches        data_sampling.variable_batch_size_and_lr.batch_by_seqlens, scale_lr, and the samples of each rank from
                 its data loader

The values of samples are made by integer arithmetic."""
import json
import logging
import os
import random
import sys
import tempfile

import numpy as np
import torch
import torch.distributed

logging.disable(logging.WARNING)
import deepspeed.comm  # noqa: E402
from deepspeed.runtime.data_pipeline.curriculum_scheduler import CurriculumScheduler  # noqa: E402
from deepspeed.runtime.data_pipeline.data_sampling import variable_batch_size_and_lr as batching  # noqa: E402
from deepspeed.runtime.data_pipeline.data_sampling.data_analyzer import DataAnalyzer  # noqa: E402
from deepspeed.runtime.data_pipeline.data_sampling.data_sampler import DeepSpeedDataSampler  # noqa: E402

STEPS = 30
SAMPLES = 210
METRICS = ("seqlen", "rarity")


def seqlen(i):
    return 3 + i * 7 % 13


def rarity(i):
    return 100 + i * i % 11 * 10


SCHEDULES = {
    "linear": {"min_difficulty": 8, "max_difficulty": 64, "schedule_type": "fixed_linear",
               "schedule_config": {"total_curriculum_step": 20, "difficulty_step": 8}},
    "linear, no multiples": {"min_difficulty": 11, "max_difficulty": 61, "schedule_type": "fixed_linear",
                             "schedule_config": {"total_curriculum_step": 17, "difficulty_step": 8}},
    "square root": {"min_difficulty": 8, "max_difficulty": 128, "schedule_type": "fixed_root",
                    "schedule_config": {"total_curriculum_step": 25, "difficulty_step": 8, "root_degree": 2}},
    "cube root": {"min_difficulty": 1, "max_difficulty": 100, "schedule_type": "fixed_root",
                  "schedule_config": {"total_curriculum_step": 28, "difficulty_step": 1, "root_degree": 3}},
    "list": {"min_difficulty": 4, "max_difficulty": 32, "schedule_type": "fixed_discrete",
             "schedule_config": {"difficulty": [4, 16, 24, 32], "max_step": [3, 10, 21]}},
    "list that falls": {"min_difficulty": 4, "max_difficulty": 32, "schedule_type": "fixed_discrete",
                        "schedule_config": {"difficulty": [4, 16, 8, 24], "max_step": [3, 10, 21]}},
    "list that stays at its maximum": {"min_difficulty": 4, "max_difficulty": 16, "schedule_type": "fixed_discrete",
                                       "schedule_config": {"difficulty": [4, 16, 8], "max_step": [3, 10]}},
    "constant": {"min_difficulty": 20, "max_difficulty": 20, "schedule_type": "fixed_linear",
                 "schedule_config": {"total_curriculum_step": 10, "difficulty_step": 8}},
    "slow": {"min_difficulty": 8, "max_difficulty": 1024, "schedule_type": "fixed_linear",
             "schedule_config": {"total_curriculum_step": 1000, "difficulty_step": 8}},
}


def schedules():
    out = []
    for name, config in SCHEDULES.items():
        scheduler = CurriculumScheduler(config)
        out.append({"name": name, "config": config,
                    "difficulties": [scheduler.update_difficulty(step) for step in range(1, STEPS + 1)]})
    return out


def random_numbers():
    out = []
    for seed in (0, 1, 1234, 2**32 + 5):
        numpy_rng, python_rng = np.random.default_rng(seed), random.Random(seed)
        array, items = np.arange(50), list(range(50))
        numpy_rng.shuffle(array)
        weighted = np.bincount(numpy_rng.choice(4, 100, replace=True, p=[0.1, 0.2, 0.3, 0.4]), minlength=4)
        numpy_rng.shuffle(items)
        python_items = list(range(50))
        python_rng.shuffle(python_items)
        out.append({"seed": seed, "array": array.tolist(), "weighted": weighted.tolist(), "items": items,
                    "python": python_items})
    return out


class Values(torch.utils.data.Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, i):
        return torch.tensor([seqlen(i), rarity(i)], dtype=torch.long)


def analyze(folder):
    for worker in range(2):
        analyzer(folder, worker).run_map()
    analyzer(folder, 0).run_reduce()


def analyzer(folder, worker):
    return DataAnalyzer(Values(), num_workers=2, worker_id=worker, num_threads=1, batch_size=5, metric_names=METRICS,
                        metric_functions=[lambda batch: batch[:, 0].numpy(), lambda batch: batch[:, 1].numpy()],
                        metric_types=["single_value_per_sample"] * 2, metric_dtypes=[np.int64] * 2, save_path=folder)


def metric(folder, name, schedule, **others):
    return {"index_to_sample_path": f"{folder}/{name}/{name}_index_to_sample",
            "index_to_metric_path": f"{folder}/{name}/{name}_index_to_metric",
            "difficulty_type": "value", "clustering_type": "schedule_based", **schedule, **others}


def linear(low, high, steps, grain=1):
    return {"min_difficulty": low, "max_difficulty": high, "schedule_type": "fixed_linear",
            "schedule_config": {"total_curriculum_step": steps, "difficulty_step": grain}}


def samples(folder):
    cases = {
        "value": {"seqlen": metric(folder, "seqlen", linear(4, 15, 10))},
        "percentile": {"seqlen": metric(folder, "seqlen", linear(10, 100, 12, 10), difficulty_type="percentile")},
        "two metrics": {"seqlen": metric(folder, "seqlen", linear(5, 15, 12)),
                        "rarity": metric(folder, "rarity", linear(40, 100, 8, 20), difficulty_type="percentile")},
        "one is a single cluster": {"seqlen": metric(folder, "seqlen", linear(5, 15, 12)),
                                    "rarity": metric(folder, "rarity", linear(100, 200, 8),
                                                     clustering_type="single_cluster")},
        "a single cluster": {"rarity": metric(folder, "rarity", linear(100, 200, 8),
                                              clustering_type="single_cluster")},
    }
    out = []
    for name, metrics in cases.items():
        for seed in (1234, 7):
            with tempfile.TemporaryDirectory() as clusters:
                config = {"seed": seed, "data_sampling": {"num_epochs": 1000, "curriculum_learning": {
                    "enabled": True, "data_cluster_path": clusters, "curriculum_metrics": metrics}}}
                sampler = DeepSpeedDataSampler(config, SAMPLES, 4, 0, 1, torch.distributed.group.WORLD, 2, 0)
                micro_batches = iter(sampler)
                batches = [next(micro_batches) + next(micro_batches) for _ in range(STEPS)]
            shown = json.loads(json.dumps(metrics).replace(folder + "/", ""))
            out.append({"name": name, "seed": seed, "metrics": shown, "batches": [[int(i) for i in b] for b in batches]})
    return out


class Indices(torch.utils.data.Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, i):
        return i


def batches():
    lengths = [seqlen(i) for i in range(SAMPLES)]
    cases = [dict(max_tokens=40), dict(max_tokens=40, sequence_picking_order="random"),
             dict(max_tokens=40, sequence_picking_order="seqlen"), dict(max_tokens=60, max_batch_size=4),
             dict(max_tokens=30, min_batch_size=3, sequence_picking_order="seqlen"), dict(max_tokens=12),
             dict(max_tokens=90, required_microbatches_of_same_size=True)]
    out = []
    for case in cases:
        ids, sizes, longest = batching.batch_by_seqlens(lengths, effective_batch_size=4, seed=9, **case)
        ranks = []
        for rank in range(2):
            loader, _ = batching.dataloader_for_variable_batch_size(
                Indices(), ids, longest, dataloader_rank=rank, dataloader_batch_size=1, dataloader_num_replicas=2,
                dataloader_num_workers=0, dataloader_collate_fn=list)
            ranks.append(list(loader))
        out.append({"options": case, "groups": [members for _, members in ids], "sizes": [int(n) for n in sizes],
                    "longest": [int(n) for n in longest], "ranks": ranks,
                    "lr": [batching.scale_lr(4, int(n), 1e-3, "linear") for n in sizes]})
    return {"lengths": lengths, "cases": out}


def write(folder, name, content):
    with open(os.path.join(folder, name), "w") as out:
        out.write(json.dumps(content, separators=(",", ":")).replace("{\"name\"", "\n{\"name\"") + "\n")


def main():
    out = os.path.abspath(sys.argv[1])
    os.makedirs(out, exist_ok=True)
    with tempfile.TemporaryDirectory() as store:
        deepspeed.comm.init_distributed("gloo", init_method=f"file://{store}/store", rank=0, world_size=1,
                                        auto_mpi_discovery=False)
        analyze(out)
        write(out, "schedules.json", schedules())
        write(out, "random.json", random_numbers())
        write(out, "samples.json", samples(out))
        write(out, "batches.json", batches())
    for path, _, files in os.walk(out):  # the parts of the workers
        for name in files:
            if "worker" in path or "thread0" in name or "percentile" in name:
                os.remove(os.path.join(path, name))


if __name__ == "__main__":
    main()
