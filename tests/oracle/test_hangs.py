#!/usr/bin/env python3
"""A rank that the others wait for is named, with what it is at, long before the job gives up; what cannot go on ends."""
import os
import re
import select
import signal
import socket
import time
import unittest

import torch
from torch import nn

import tensor_file
import workshop
from workshop import BATCH, ShopTest, base_config

STAGE_3 = {"stage": 3, "stage3_param_persistence_threshold": 0}
# What the others say of a rank that SIGSTOP holds, when they run beside it; from another host only its silence is seen.
STOPPED = r"it is stopped, as by SIGSTOP \('kill -CONT {pid}' lets it go on\)"


class Busy(nn.Module):
    """Takes for ever over a batch that says so."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 1)

    def forward(self, x, y):
        while int(x[0, 0]) == 7:
            pass
        return ((self.linear(x) - y) ** 2).mean()


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


class Hangs(ShopTest):
    def start(self, model, data, limit, config=None, steps=10**6):
        folder = self.shop.run_dir()
        command = self.shop.command(model, data, config or base_config("mlp"), folder, 2, steps,
                                    ["--hang_timeout", limit, "--grace", "1s"])
        process = workshop.start(command)
        self.addCleanup(lambda: process.poll() is None and os.killpg(process.pid, signal.SIGKILL))
        self.addCleanup(process.stdout.close)
        self.said = ""
        return process, folder

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
        path = self.shop.path(f"marked{value}.safetensors")
        samples = workshop.samples_of("mlp")
        samples["x"][:, 0] = -1
        samples["x"][3 * BATCH + BATCH // 2:4 * BATCH, 0] = value
        tensor_file.write(path, samples)
        return path

    def script(self, module):
        path = self.shop.path(f"{type(module).__name__}.pt")
        torch.jit.script(module).save(path)
        return path

    def stopped_rank(self, process, folder):
        """Rank 1, once it trains, by SIGSTOP."""
        self.wait_for(process, r"step +\d+")
        [pid] = workshop.rank_processes(folder, 1)
        os.kill(pid, signal.SIGSTOP)
        return pid

    def test_a_rank_that_stands_still_is_named_and_may_go_on(self):
        process, folder = self.start(self.shop.model("mlp"), self.shop.data("mlp"), "12s")
        pid = self.stopped_rank(process, folder)
        self.wait_for(process, rf"warning: .*all_reduce .* has waited .* for rank 1 \(\S+, process {pid}\): "
                               rf"{STOPPED.format(pid=pid)}\. The job ends when it has waited 12 s")
        os.kill(pid, signal.SIGCONT)
        self.wait_for(process, r"all_reduce .*: went on after \d+")
        done = len(workshop.read_metrics(folder))
        while len(workshop.read_metrics(folder)) <= done + 1:
            self.assertIsNone(process.poll(), self.said)
        os.kill(process.pid, signal.SIGINT)
        self.end(process, 130)

    def test_a_rank_that_never_goes_on_ends_the_job(self):
        process, folder = self.start(self.shop.model("mlp"), self.shop.data("mlp"), "8s")
        pid = self.stopped_rank(process, folder)
        self.end(process, 124)
        story = self.said[self.said.rindex("first cause"):] if "first cause" in self.said else self.said[-3000:]
        self.assertRegex(story, rf"rank 1 \(\S+, process {pid}\): {STOPPED.format(pid=pid)}")
        self.assertIn("--hang_timeout", story)
        self.assertEqual(workshop.job_processes(folder), [])

    def test_a_rank_that_was_never_started_is_named(self):
        """By hand: nobody knows more of it than that it has not come."""
        command = [workshop.program("dsworker"), "train", *self.shop.ranks(1)[:2], "--config",
                   self.shop.config(base_config("mlp")), "--data", self.shop.data("mlp"), "--run_dir", self.shop.run_dir(),
                   "--steps", "1", "--hang_timeout", "4", self.shop.model("mlp")]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        outcome = workshop.run(command, env=workshop.environment(RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                                                                 MASTER_PORT=port))
        self.assertEqual(outcome.code, 124, str(outcome))
        self.assertRegex(outcome.err, r"warning: the set-up of the ranks' connections has waited [\d.]+ s for rank 1, which "
                                      r"has not come and says nothing")
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
        # A rank whose device waits may yet go on, for all that the other knows: rank 1 gives up at the limit.
        on_device = "cuda" in self.shop.ranks(1)
        self.assertRegex(self.said, rf"this rank came to {unit}, and waited for the others in vain" if on_device else
                         rf"rank 1 waits in {unit} for rank 0")
        self.assertIn("use stage 0 or 1", self.said)


if __name__ == "__main__":
    unittest.main()
