"""The oracle suites' harness with the ranks on GPUs. Worlds of more ranks than the machine has GPUs are skipped, unless
SHARE_GPUS names those that several ranks may share (SHARE_GPUS=0 on a machine with one)."""
import os
import sys
import unittest

import torch

import harness

SHARED_BY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "share_gpus.py")
IS_SHARED = "SHARE_GPUS" in os.environ and torch.cuda.device_count() < 2  # then also worlds of two
if IS_SHARED:
    harness.LIMIT_S = 300
MAX_RANKS = max(torch.cuda.device_count(), 4 if "SHARE_GPUS" in os.environ else 0)


class GpuTrainingEnv(harness.TrainingEnv):
    def ranks(self, world):
        if world > MAX_RANKS:
            raise unittest.SkipTest(f"{world} ranks need as many GPUs")
        return ["--device", "cuda", "--num_gpus", str(1 if world > torch.cuda.device_count() else world)]

    def launcher(self, world):
        shared = [sys.executable, SHARED_BY, str(world)] if world > torch.cuda.device_count() else []
        return shared + super().launcher(world)


class DeterministicTrainingEnv(GpuTrainingEnv):
    """Its runs use kernels that always add in one order, for what is compared bit by bit."""
    SETTINGS = {"deterministic": True}

    def config(self, config, ending=".json", text=None):
        return super().config({**self.SETTINGS, **config} if text is None else config, ending, text)


def environment(**changes):
    """That of the suites, with the GPUs in sight."""
    return {**harness.own_environment(), **changes}
