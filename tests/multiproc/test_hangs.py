#!/usr/bin/env python3
"""A rank that the others wait for is named, with what it is at, long before the job gives up; what cannot go on ends."""
import contextlib
import ctypes
import os
import re
import select
import signal
import socket
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import light_torch  # noqa: E402,F401
import torch  # noqa: E402
from torch import nn  # noqa: E402
import tensor_file  # noqa: E402
import harness  # noqa: E402
import pace  # noqa: E402
from harness import BATCH, TrainingTest, base_config  # noqa: E402

STAGE_3 = {"stage": 3, "stage3_param_persistence_threshold": 0}
SAVES = {"interval": 1, "keep_last": 2}  # at every step
# What the others say of a rank that SIGSTOP holds, when they run beside it; from another host only its silence is seen.
IN_IT = "(?:, which has arrived)?"  # the signal may come when the rank has entered the collective
STOPPED = r"it is stopped, as by SIGSTOP \('kill -CONT {pid}' resumes it\)"


@contextlib.contextmanager
def held_threads(pid, name):
    """The threads of a process that have this name, held by a tracer while each waits for a condition variable.

    A thread that were stopped in the middle of malloc would keep the lock of its arena, and with it whoever frees
    what it has allocated."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    seize, interrupt, go_on, detach, all_kinds = 0x4206, 0x4207, 7, 17, 0x40000000
    futex, wait_bitset = {"x86_64": "202", "aarch64": "98"}[os.uname().machine], 9  # locks use FUTEX_WAIT, which is 0

    def ptrace(request, thread):
        if libc.ptrace(request, thread, None, None) != 0:
            raise OSError(ctypes.get_errno(), f"ptrace {request:#x} of thread {thread}")

    def waits_for_a_condition(thread):
        with open(f"/proc/{pid}/task/{thread}/syscall") as file:
            call = file.read().split()
        return call[0] == futex and int(call[2], 16) & 0x7f == wait_bitset

    threads = [int(thread) for thread in os.listdir(f"/proc/{pid}/task")
               if open(f"/proc/{pid}/task/{thread}/comm").read() == name + "\n"]
    assert threads, f"process {pid} has no thread named '{name}'"
    for thread in threads:
        ptrace(seize, thread)
        ptrace(interrupt, thread)
        os.waitpid(thread, all_kinds)
        while not waits_for_a_condition(thread):
            ptrace(go_on, thread)
            ptrace(interrupt, thread)
            os.waitpid(thread, all_kinds)
    yield
    for thread in threads:
        ptrace(detach, thread)


class Busy(nn.Module):
    """Takes for ever over a batch that says so."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 1)

    def forward(self, x, y):
        while int(x[0, 0]) == 7:
            pass
        return ((self.linear(x) - y) ** 2).mean()


class BusyStage(nn.Module):
    """The same behind its second layer."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 1)

    def forward(self, x, y):
        out = self.second(torch.tanh(self.first(x)))
        rounds = 0
        while int(x[0, 0]) == 7:
            rounds += 1
        return ((out + rounds - y) ** 2).mean()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        return torch.tanh(self.linear(x))


class Again(nn.Module):
    """Calls its second block once more for a batch that says so."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(6, 1)

    def forward(self, x, y):
        again = int(x[0, 0]) == 7
        for block in self.blocks:
            x = block(x)
        if again:
            x = self.blocks[1](x)
        return ((self.head(x) - y) ** 2).mean()


class Wide(nn.Module):
    """Its gradient is more than the kernel keeps for a connection: no rank can send all of it ahead of the others."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 1)
        self.wide = nn.Parameter(torch.zeros(8_000_000))

    def forward(self, x, y):
        return ((self.linear(x) + self.wide[:1] - y) ** 2).mean()


class HangingJobs(TrainingTest):
    """Jobs of two ranks and more, and what they say."""

    def start(self, model, data, limit, config=None, steps=10**6, grace="1s", world=2):
        folder = self.env.run_dir()
        command = self.env.command(model, data, config or base_config("mlp"), folder, world, steps,
                                    ["--hang_timeout", limit, "--grace", grace])
        process = harness.start(command)
        self.addCleanup(lambda: process.poll() is None and os.killpg(process.pid, signal.SIGKILL))
        self.addCleanup(process.stdout.close)
        self.said = ""
        return process, folder

    def is_on_device(self):
        return "cuda" in self.env.ranks(1)

    def wait_for(self, process, pattern, limit=40):
        """Until the launcher has said it; the match."""
        deadline = time.monotonic() + limit
        while not (found := re.search(pattern, self.said)):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                self.fail(f"not said within {limit} s: {pattern}\n{self.said}")
            if not (more := os.read(process.stdout.fileno(), 1 << 16)):
                self.fail(f"ended ({process.wait()}) without saying {pattern}\n{self.said}")
            self.said += more.decode(errors="replace")
        return found

    def end(self, process, code, limit=40):
        deadline = time.monotonic() + limit
        while select.select([process.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
            if not (more := os.read(process.stdout.fileno(), 1 << 16)):
                break
            self.said += more.decode(errors="replace")
        else:
            self.fail(f"no end within {limit} s:\n{self.said}")
        self.assertEqual(process.wait(), code, self.said)

    def marked_data(self, value):
        """Of the mlp; the first number of a sample is -1, and `value` in what rank 1 of 2 takes in step 4."""
        path = self.env.path(f"marked{value}.safetensors")
        samples = harness.samples_of("mlp")
        samples["x"][:, 0] = -1
        samples["x"][3 * BATCH + BATCH // 2:4 * BATCH, 0] = value
        tensor_file.write(path, samples)
        return path

    def script(self, module):
        path = self.env.path(f"{type(module).__name__}.pt")
        torch.jit.script(module).save(path)
        return path

    def stopped_rank(self, process, folder, rank=1):
        """Once it trains, by SIGSTOP."""
        self.wait_for(process, r"step +\d+")
        [pid] = harness.rank_processes(folder, rank)
        os.kill(pid, signal.SIGSTOP)
        return pid

    def freeze_during_saves(self, rank, limit, wait, world=2, tensor_ranks=1):
        """A save at every step; the rank is stopped at some moment of one, and the newest checkpoint resumes."""
        form, place = ("trace", rf", tensor rank {rank % tensor_ranks} of {tensor_ranks}[^)]*") if tensor_ranks > 1 else ("script", "")
        kind, config = ("gpt", {"tensor_parallel": {"size": tensor_ranks}}) if tensor_ranks > 1 else ("mlp", {})
        model, data = self.env.model(kind, form), self.env.data(kind)
        process, folder = self.start(model, data, f"{limit}s", base_config(kind, checkpoint=SAVES, **config), grace="15s", world=world)
        self.wait_for(process, r"step +\d+")
        done = len(harness.read_metrics(folder))
        began = time.monotonic()
        while time.monotonic() < began + wait or len(harness.read_metrics(folder)) <= done:
            self.assertIsNone(process.poll(), self.said)
        [pid] = harness.rank_processes(folder, rank)
        os.kill(pid, signal.SIGSTOP)
        stopped = pace.Deadline(limit + 5)
        self.wait_for(process, rf"warning: .* has been waiting .* for rank {rank} \(\S+, process {pid}{place}\){IN_IT}: "
                               rf"{STOPPED.format(pid=pid)}", limit + 5)
        self.end(process, 124, limit + 10)
        self.assertFalse(stopped.passed(), self.said)
        self.assertEqual(harness.job_processes(folder), [])
        saved = max(int(name[5:]) for name in os.listdir(os.path.join(folder, "checkpoints")) if name[5:].isdigit())
        again = self.env.run(model, data, base_config(kind, **config), folder, world, saved + 1, ["--resume", "auto"])
        self.assertEqual(again.code, 0, str(again))
        self.assertRegex(str(again), rf"step_0*{saved}\b")


class Hangs(HangingJobs):
    def test_a_rank_that_stands_still_is_named_and_may_go_on(self):
        process, folder = self.start(self.env.model("mlp"), self.env.data("mlp"), "12s")
        pid = self.stopped_rank(process, folder)
        self.wait_for(process, rf"warning: .*all_reduce .* has been waiting .* for rank 1 \(\S+, process {pid}\){IN_IT}: "
                               rf"{STOPPED.format(pid=pid)}\. The job ends when the wait reaches 12 s")
        os.kill(pid, signal.SIGCONT)
        self.wait_for(process, r"all_reduce .*: completed after \d+")
        done = len(harness.read_metrics(folder))
        while len(harness.read_metrics(folder)) <= done + 1:
            self.assertIsNone(process.poll(), self.said)
        os.kill(process.pid, signal.SIGINT)
        self.end(process, 130)

    def test_a_stage_that_never_ends_its_forward_is_named_with_its_part_of_the_schedule(self):
        """In the second micro batch of step 4: stage 0 waits for a gradient."""
        config = base_config("mlp", gradient_accumulation_steps=2, pipeline={"stages": 2, "partition": "parameters"})
        process, folder = self.start(self.script(BusyStage()), self.marked_data(7), "5s", config)
        self.end(process, 124)
        # A device's rank issues its whole part of the schedule, and waits for the device at the end of the step.
        where = "" if self.is_on_device() else r" in group 'pipe\.0' \([a-z ]+ of micro batch \d.* on stage 0 in step 4\)"
        self.assertRegex(self.said, rf"warning: .*{where} has been "
                                    r"waiting .* for rank 1 \(\S+, process \d+, stage 1\): it has been busy with forward of "
                                    r"micro batch 1 on stage 1 in step 4 for [\d.]+ s")
        self.assertEqual(harness.job_processes(folder), [])

    def test_a_rank_that_never_goes_on_ends_the_job(self):
        process, folder = self.start(self.env.model("mlp"), self.env.data("mlp"), "8s")
        pid = self.stopped_rank(process, folder)
        self.end(process, 124)
        story = self.said[self.said.rindex("first cause"):] if "first cause" in self.said else self.said[-3000:]
        self.assertRegex(story, rf"rank 1 \(\S+, process {pid}\){IN_IT}: {STOPPED.format(pid=pid)}")
        self.assertIn("--hang_timeout", story)
        self.assertEqual(harness.job_processes(folder), [])

    def test_a_rank_that_freezes_inside_a_collective_is_named(self):
        """Rank 1 is in the call, since it has said that it waits there for rank 0, which then comes."""
        process, folder = self.start(self.script(Wide()), self.env.data("mlp"), "8s", base_config("mlp", gradient_clipping=0),
                                     grace="30s")  # a device's rank takes its time to save
        self.wait_for(process, r"step +\d+")
        [first], [second] = harness.rank_processes(folder, 0), harness.rank_processes(folder, 1)
        os.kill(first, signal.SIGSTOP)
        # On a device the host of rank 1 may be at a later collective, or a captured step at its last one.
        call = r"\S+ of \d+" if self.is_on_device() else r"all_reduce of 80000\d\d"
        self.wait_for(process, rf"\S+:1\| warning: {call} .* for rank 0 \(\S+, process {first}\)")
        os.kill(second, signal.SIGSTOP)
        os.kill(first, signal.SIGCONT)
        # A device completes the call without the host of the rank, which then does not come to the next one.
        arrived = "(, which has arrived)?" if self.is_on_device() else ", which has arrived"
        self.wait_for(process, rf"\S+:0\| warning: .* has been waiting .* for rank 1 \(\S+, process {second}\){arrived}: "
                               rf"{STOPPED.format(pid=second)}")
        os.kill(second, signal.SIGCONT)
        os.kill(process.pid, signal.SIGTERM)
        self.end(process, 75)

    def test_a_rank_that_waits_for_its_data_is_named(self):
        """Its loader's thread is held by a tracer, as a read is that a file server does not answer."""
        process, folder = self.start(self.env.model("mlp"), self.env.data("mlp"), "8s")
        self.wait_for(process, r"step +\d+")
        [pid] = harness.rank_processes(folder, 1)
        with held_threads(pid, "data loader"):
            self.wait_for(process, rf"warning: .*for rank 1 \(\S+, process {pid}\): it has been busy with the data of step")
        os.kill(process.pid, signal.SIGINT)
        self.end(process, 130)

    def test_a_rank_that_was_never_started_is_named(self):
        """By hand: nobody knows more of it than that it has not come."""
        command = [harness.program("dsworker"), "train", *self.env.ranks(1)[:2], "--config",
                   self.env.config(base_config("mlp")), "--data", self.env.data("mlp"), "--run_dir", self.env.run_dir(),
                   "--steps", "1", "--hang_timeout", "4", self.env.model("mlp")]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        outcome = harness.run(command, env=harness.environment(RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                                                                 MASTER_PORT=port))
        self.assertEqual(outcome.code, 124, str(outcome))
        self.assertRegex(outcome.err, r"warning: the set-up of the ranks' communicators has been waiting [\d.]+ s for rank 1: it "
                                      r"has not arrived and has never reported")
        self.assertIn("--hang_timeout", outcome.err)

    def test_a_busy_rank_is_named_with_what_it_is_at(self):
        process, _ = self.start(self.script(Busy()), self.marked_data(7), "8s")
        self.wait_for(process, r"warning: .*for rank 1 \(.*\): it has been busy with step 4 for [\d.]+ s")
        self.end(process, 124)

    def test_ranks_that_wait_for_each_other_are_not_waited_for(self):
        """Rank 1 calls a unit a second time, which it did not in the first step: nobody comes."""
        process, _ = self.start(self.script(Again()), self.marked_data(7), "20s",
                                base_config("mlp", zero_optimization=STAGE_3))
        self.end(process, 65)
        unit = r"the forward of unit 'blocks\.1', place \d+ at step 4 .which the first step did not have."
        waits = rf"rank 1 is waiting in {unit} for rank 0"
        if self.is_on_device():  # while rank 0's device waits and its host does not yet, rank 1 gives up at the limit
            waits += rf"|this rank reached {unit} and timed out waiting for the other ranks"
        self.assertRegex(self.said, waits)
        self.assertIn("use stage 0 or 1", self.said)

    def test_a_tensor_rank_that_stands_still_or_is_killed_is_named_by_its_place(self):
        """Nobody takes its silence in the middle of a layer for a fault of the model."""
        config = base_config("gpt", tensor_parallel={"size": 2})
        model, data = self.env.model("gpt", "trace"), self.env.data("gpt")
        process, folder = self.start(model, data, "3s", config)
        pid = self.stopped_rank(process, folder)
        self.end(process, 124)
        self.assertRegex(self.said, rf"error: .* has been waiting .* for rank 1 \(\S+, process {pid}, tensor rank 1 of 2\){IN_IT}: "
                                    rf"{STOPPED.format(pid=pid)}")
        self.assertNotIn("forward of", self.said)
        process, folder = self.start(model, data, "30s", config)
        self.wait_for(process, r"step +\d+")
        os.kill(harness.rank_processes(folder, 1)[0], signal.SIGKILL)
        self.end(process, 137)
        self.assertIn("rank 1 (tensor rank 1 of 2) on localhost failed first: killed by SIGKILL", self.said)
        self.assertNotIn("forward of", self.said)
        self.assertEqual(harness.job_processes(folder), [])

    def test_a_rank_that_freezes_while_a_checkpoint_is_written_is_named_and_ends_the_job(self):
        self.freeze_during_saves(rank=0, limit=4, wait=0.3)


class FrozenInSaves(HangingJobs):
    """A hundred moments; alone, under `scripts/test --slow`."""

    def test_a_rank_that_freezes_at_any_moment_of_saves_is_named_and_ends_the_job(self):
        for moment in range(100):
            with self.subTest(moment=moment):
                world = 2 + moment % 2
                self.freeze_during_saves(rank=moment // 2 % world, limit=4, wait=moment * 0.0137 % 0.5, world=world)

    def test_a_tensor_rank_that_freezes_at_any_moment_of_saves_is_named_and_ends_the_job(self):
        for moment in range(20):
            with self.subTest(moment=moment):
                self.freeze_during_saves(rank=moment % 4, limit=4, wait=moment * 0.0137 % 0.5, world=4, tensor_ranks=2)

    def test_by_default_a_rank_is_named_within_25_s(self):
        for rank in range(3):
            with self.subTest(rank=rank):
                process, folder = self.start(self.env.model("mlp"), self.env.data("mlp"), "30m",
                                             base_config("mlp", checkpoint=SAVES), grace="15s", world=3)
                pid = self.stopped_rank(process, folder, rank)
                stopped = pace.Deadline(25)
                self.wait_for(process, rf"warning: .* has been waiting .* for rank {rank} \(\S+, process {pid}\){IN_IT}: "
                                       rf"{STOPPED.format(pid=pid)}.*\. The job ends when the wait reaches 30 min")
                self.assertFalse(stopped.passed(), self.said)
                os.kill(process.pid, signal.SIGTERM)
                self.end(process, 75)


if __name__ == "__main__":
    unittest.main()
