#!/usr/bin/env python3
"""`dslaunch consolidate` on a checkpoint several times larger than its limit of memory: the peak of the real program, in
all three forms, and what torch and other readers make of the files.

Run by ctest (label oracle); by hand: DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/oracle/test_consolidate.py [Case...]."""
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import unittest
import zipfile
from collections import OrderedDict

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import tensor_file  # noqa: E402
import harness  # noqa: E402

LIMIT, LIMIT_TEXT = 25_000_000, "25MB"
ROWS, BLOCKS = 1_000_000, 3  # of 8 columns: 3 x 32 MB and one vector of 4 MB


class Large(torch.nn.Module):
    """Parameters without storage of their size: the file has a few kB."""

    def __init__(self, rows):
        super().__init__()
        self.w0 = torch.nn.Parameter(torch.zeros(()).expand(rows, 8))
        self.w1 = torch.nn.Parameter(torch.zeros(()).expand(rows, 8))
        self.w2 = torch.nn.Parameter(torch.zeros(()).expand(rows, 8))
        self.bias = torch.nn.Parameter(torch.zeros(()).expand(rows))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.w0 @ x + self.w1 @ x + self.w2 @ x + self.bias).sum()


def weights(rows):
    values = OrderedDict((f"w{i}", (torch.arange(rows * 8, dtype=torch.float32) % 8191 + i).view(rows, 8))
                         for i in range(BLOCKS))
    values["bias"] = torch.arange(rows, dtype=torch.float32) % 127
    return values


def save_deepspeed(folder, values):
    """A checkpoint of stage 0 without optimizer state, as DeepSpeed lays it out."""
    os.makedirs(os.path.join(folder, "global_step1"))
    torch.save({"module": values, "buffer_names": [], "optimizer": None, "param_shapes": None, "global_steps": 1,
                "skipped_steps": 0, "global_samples": 1, "dp_world_size": 1, "mp_world_size": 1, "ds_version": "0.18.2"},
               os.path.join(folder, "global_step1/mp_rank_00_model_states.pt"))
    with open(os.path.join(folder, "latest"), "w") as file:
        file.write("global_step1")


# A process keeps the peak of the one that it was forked from, across exec: the program is started from a small one.
START = """import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stderr=subprocess.STDOUT).returncode
print(f"\\n{code} {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss}")
"""


def peak_of(command):
    """(exit code, text, peak resident bytes) of a command; dslaunch becomes dsworker, so it is one process."""
    started = subprocess.run([sys.executable, "-S", "-c", START, *command], stdout=subprocess.PIPE, text=True, check=True,
                             env=harness.environment())
    text, _, numbers = started.stdout.rstrip().rpartition("\n")
    code, peak = map(int, numbers.split())
    return code, text, peak * 1024


class ConsolidateTest(harness.TrainingTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.checkpoints = {}
        for name, rows in (("small", 10), ("large", ROWS)):
            source, model = cls.env.path(name), cls.env.path(name + ".pt")
            save_deepspeed(source, weights(rows))
            torch.jit.script(Large(rows)).save(model)
            out = cls.env.path(name + "-imported")
            code, text, _ = peak_of([harness.program("dslaunch"), "import", source, out, "--model", model])
            assert code == 0, text
            cls.checkpoints[name] = out

    def consolidate(self, which, out, *options):
        path = self.env.path(out)
        code, text, peak = peak_of([harness.program("dslaunch"), "consolidate", self.checkpoints[which], path, *options])
        self.assertEqual(code, 0, text)
        return path, peak

    def check_memory(self, out, *options):
        """The peak beyond what the program takes for a checkpoint of a few hundred bytes."""
        _, small = self.consolidate("small", "small-" + out, *options)
        path, limited = self.consolidate("large", out, "--max_memory", LIMIT_TEXT, *options)
        self.assertLessEqual(limited - small, LIMIT, f"{limited} {small}")
        return path, small

    def check_values(self, tensors, rows=ROWS):
        for name, want in weights(rows).items():
            self.assertTrue(torch.equal(tensors[name].float(), want), name)

    def test_safetensors(self):
        path, small = self.check_memory("out.safetensors")
        self.check_values(tensor_file.read(path))
        # The test can fail: without the limit it takes more.
        _, free = self.consolidate("large", "out.safetensors", "--max_memory", "4GB")
        self.assertGreater(free - small, LIMIT)

    def test_state_dict(self):
        path, _ = self.check_memory("out.pt", "--state_dict")
        self.check_values(torch.load(path, weights_only=True, mmap=True))
        self.assertIsNone(zipfile.ZipFile(path).testzip(), "checksums")

    def test_torchscript(self):
        path, _ = self.check_memory("script.pt")
        self.check_values(dict(torch.jit.load(path).named_parameters()))
        self.assertIsNone(zipfile.ZipFile(path).testzip(), "checksums")

    def test_several_files(self):
        path, _ = self.check_memory("split.safetensors", "--max_shard_size", "40MB")
        with open(path + ".index.json") as file:
            index = json.load(file)
        self.assertEqual(index["metadata"]["total_size"], ROWS * 4 * (8 * BLOCKS + 1))
        self.assertEqual(sorted(set(index["weight_map"].values())), [f"split-0000{i}-of-00003.safetensors" for i in (1, 2, 3)])
        tensors = {}
        for name in set(index["weight_map"].values()):
            self.assertLessEqual(os.path.getsize(self.env.path(name)), 40_000_000 + 10_000)
            tensors.update(tensor_file.read(self.env.path(name)))
        self.check_values(tensors)
        for name, file in index["weight_map"].items():
            self.assertIn(name, tensor_file.read(self.env.path(file)))

    def test_json_names_what_was_written(self):
        out = self.env.path("told.safetensors")
        outcome = harness.run([harness.program("dslaunch"), "consolidate", self.checkpoints["small"], out, "--json",
                                "--max_shard_size", "0.7KB"])
        self.assertEqual(outcome.code, 0, str(outcome))
        checkpoint = os.path.join(self.checkpoints["small"], "step_00000001")
        self.assertEqual(json.loads(outcome.out),
                         {"source": self.checkpoints["small"], "checkpoint": checkpoint, "step": 1, "files": [self.env.path("told-00001-of-00002.safetensors"),
                          self.env.path("told-00002-of-00002.safetensors"), out + ".index.json"]})
        self.assertEqual(outcome.err.count("wrote "), 3)
        self.assertTrue(outcome.err.endswith(f"the weights are those of step 1, in {checkpoint}\n"), outcome.err)

    def test_other_dtypes_small(self):
        for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", torch.float32)):
            for out in (f"{name}.safetensors", f"{name}.bin"):
                path, _ = self.consolidate("small", out, "-d", name)
                tensors = torch.load(path, weights_only=True) if out.endswith(".bin") else tensor_file.read(path)
                for key, want in weights(10).items():
                    self.assertTrue(torch.equal(tensors[key], want.to(dtype)), f"{out} {key}")

    def test_no_more_room_at_whichever_byte(self):
        """A limit of file sizes stands for a full disk."""
        for out, options in (("room.safetensors", ()), ("room-state.pt", ("--state_dict",)), ("room.pt", ())):
            path, _ = self.consolidate("small", out, *options)
            size = os.path.getsize(path)
            os.unlink(path)
            for room in (0, 1, size // 3, size // 2, size - 200, size - 1):
                with self.subTest(out=out, room=room, size=size):
                    command = [harness.program("dslaunch"), "consolidate", self.checkpoints["small"], path, *options]
                    outcome = subprocess.run(command, capture_output=True, text=True, timeout=60,
                                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)))
                    self.assertEqual(outcome.returncode, 74, outcome.stderr)
                    self.assertIn("File too large", outcome.stderr)
                    self.assertEqual(len(outcome.stderr.splitlines()), 1, outcome.stderr)
                    self.assertEqual([name for name in os.listdir(self.env.folder) if name.startswith("room")], [])

    def test_that_is_ended_leaves_nothing(self):
        """The file that is written aside is a pipe here, so that the signal comes in the middle of it."""
        out = self.env.path("ended.safetensors")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=number):
                os.mkfifo(out + ".tmp")
                process = subprocess.Popen([harness.program("dslaunch"), "consolidate", self.checkpoints["large"], out],
                                           env=harness.environment(),
                                           preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))  # not as under nohup
                with open(out + ".tmp", "rb") as pipe:
                    pipe.read(1)
                    process.send_signal(number)
                    self.assertEqual(process.wait(60), -number)
                self.assertEqual([name for name in os.listdir(self.env.folder) if name.startswith("ended")], [])

    def test_a_file_of_a_checkpoint_is_not_replaced_small(self):
        folder = next(entry.path for entry in os.scandir(self.checkpoints["small"]) if entry.is_dir())

        def contents():
            return {entry.name: pathlib.Path(entry.path).read_bytes() for entry in os.scandir(folder)}

        before = contents()
        for name in ("model.pt", "rank_00000.safetensors"):
            code, text, _ = peak_of([harness.program("dslaunch"), "consolidate", self.checkpoints["small"],
                                     os.path.join(folder, name)])
            self.assertEqual(code, 64, text)
            self.assertIn("a file of a checkpoint", text)
        self.assertEqual(contents(), before)
        self.consolidate("small", os.path.join(folder, "whole.safetensors"))  # beside them there is room
        os.unlink(os.path.join(folder, "whole.safetensors"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
