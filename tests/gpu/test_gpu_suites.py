#!/usr/bin/env python3
"""The oracle suites that CPU ranks pass, with the ranks on GPUs: models of every kind, recomputation bit by bit, every
optimizer, evaluation, values that are not finite, loading of checkpoints, --verify, monitors, ranks that others
wait for, tensor ranks, texts.
Worlds of more ranks than the machine has GPUs are skipped (or share them: gpu_harness.py). Run by ctest (label gpu) where
there is a GPU; elsewhere it ends with 77 (skipped).

    DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/gpu/test_gpu_suites.py [--jobs N] [--graphs] [WORD...]

Words: only tests whose names hold one. With several jobs the tests are dealt out to that many processes, which share the
GPUs. --graphs: every run with "graph_harvesting", which may change no number."""
import argparse
import os
import subprocess
import sys
import unittest

import torch

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, "oracle"), os.path.join(TESTS, "multiproc"), os.path.join(TESTS, "support/python")]
import gpu_harness
import model_cases
import pooled
import test_checkpoints
import test_evaluation
import test_frozen
import test_hangs
import test_hugging_face
import test_infer
import test_model_cases
import test_monitors
import test_not_finite
import test_oracle
import test_recomputation
import test_serve
import test_verify
import harness

# fp32 on both sides, but matrix products add up in another order than on a CPU, and the steps carry that on.
BOUND = 1e-4
SUITES = (test_model_cases.Cases, test_model_cases.Modes, test_recomputation.SameNumbers, test_recomputation.Settings,
          test_recomputation.Refused, test_oracle.Programs, test_oracle.Recipes, test_oracle.ZeroPlusPlus,
          test_evaluation.DuringTraining, test_evaluation.Alone, test_evaluation.ByLabels, test_not_finite.NotFinite,
          test_verify.Agreement, test_verify.Difference, test_checkpoints.Changes, test_checkpoints.Loading,
          test_checkpoints.Torn, test_checkpoints.WholeWeights, test_frozen.Checkpoints, test_frozen.EightBits,
          test_frozen.Evaluation, test_monitors.MonitorsTest, test_monitors.Files, test_hangs.Hangs,
          test_hugging_face.TensorParallel, test_hugging_face.TensorParallelMeshes,
          test_infer.Generation, test_infer.Everything, test_serve.Serving)


def put_on_gpus():
    harness.TrainingEnv = pooled.PoolEnv = gpu_harness.DeterministicTrainingEnv
    harness.environment = gpu_harness.environment
    for suite in (test_checkpoints, test_evaluation, test_model_cases, test_oracle):
        suite.BOUND = BOUND
    test_hugging_face.PROBE_BOUND = BOUND
    test_infer.DEVICE = "cuda"
    test_serve.DEVICE, test_serve.RANKS = "cuda", min(2, gpu_harness.MAX_RANKS)
    for split in (test_hugging_face.TensorParallel, test_hugging_face.TensorParallelMeshes):
        # Within a bound, not bit by bit: transformers counts the rows of experts by a kernel that has no fixed order.
        split.make_env = classmethod(lambda cls: gpu_harness.GpuTrainingEnv(cls.parent_folder))
    test_frozen.MAX_RANKS = gpu_harness.MAX_RANKS
    for name, case in model_cases.CASES.items():
        if case.random:  # a GPU draws other numbers than plain PyTorch's CPU run; recomputation compares GPU with GPU
            delattr(test_model_cases.Cases, f"test_{name}")


def tests(words):
    loader = unittest.defaultTestLoader
    found = [test for suite in SUITES for test in loader.loadTestsFromTestCase(suite)]
    return [test for test in found if not words or any(word in test.id() for word in words)]


def in_processes(count, arguments):
    command = [sys.executable, "-W", "ignore", os.path.abspath(__file__), *arguments]
    running = [subprocess.Popen([*command, "--slice", str(i), str(count)]) for i in range(count)]
    return max(process.wait() for process in running)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--slice", type=int, nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("skipped: no GPU on this machine")
        return 77
    if args.jobs > 1:
        return in_processes(args.jobs, args.words + ["--graphs"] * args.graphs)
    put_on_gpus()
    if args.graphs:
        gpu_harness.DeterministicTrainingEnv.SETTINGS["graph_harvesting"] = True
    first, step = args.slice or (0, 1)
    suite = unittest.TestSuite(tests(args.words)[first::step])
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
