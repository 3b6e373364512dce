"""The oracle suites' workshop with the ranks on GPUs."""
import os
import unittest

import torch

import workshop


class GpuWorkshop(workshop.Workshop):
    device = "cuda"

    def command(self, model, data, config, run_dir, world=1, steps=50, extra=()):
        if world > torch.cuda.device_count():
            raise unittest.SkipTest(f"{world} ranks need as many GPUs")
        return super().command(model, data, config, run_dir, world, steps, extra)


def environment(**changes):
    """That of the suites, with the GPUs in sight."""
    env = {key: value for key, value in os.environ.items()
           if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")}
    env.update(changes)
    return env
