"""The oracle suites' workshop with the ranks on GPUs."""
import unittest

import torch

import workshop


class GpuWorkshop(workshop.Workshop):
    def ranks(self, world):
        if world > torch.cuda.device_count():
            raise unittest.SkipTest(f"{world} ranks need as many GPUs")
        return ["--device", "cuda", "--num_gpus", str(world)]


class RepeatableWorkshop(GpuWorkshop):
    """Its runs use kernels that always add in one order, for what is compared bit by bit."""
    SETTINGS = {"deterministic": True}

    def config(self, config, ending=".json", text=None):
        return super().config({**self.SETTINGS, **config} if text is None else config, ending, text)


def environment(**changes):
    """That of the suites, with the GPUs in sight."""
    return {**workshop.own_environment(), **changes}
