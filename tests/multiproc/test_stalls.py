#!/usr/bin/env python3
"""A rank of a PyTorch script under `exec` that hangs is named in less than 30 s. All jobs run at once: they mostly wait."""
import os
import re
import select
import signal
import subprocess
import sys
import time
import unittest

from tagged_case import DSLAUNCH, LIMIT_S, TaggedTest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_hang_script.py")
BEGIN = r"dslaunch: {} of 2 ranks used less than 1% of a core and printed nothing for \d+ s: "
# Where the machine has no free core, one of two ranks that wait may come to rest seconds after the other.
BOTH_WAIT = BEGIN.format("[12]") + r"(ranks 0-1 idle|rank [01] idle; rank [01] \(localhost, process \d+\) busy)"
LINES = {  # what the last rank does: what is said
    "stopped": BEGIN.format(2) + r"rank 0 idle; rank 1 \(localhost\) stopped, e.g. by SIGSTOP",
    "endless": BEGIN.format(1) + r"rank 0 idle; rank 1 \(localhost, process \d+\) busy: the other ranks may be waiting for it",
    "mismatched": BOTH_WAIT,
    "loader": BOTH_WAIT,
}


class Job:
    def __init__(self, how, env):
        words = [DSLAUNCH, "exec", "--device", "cpu", "--num_gpus", "2", "--grace", "0", "--", sys.executable, SCRIPT, how]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        env=env)
        self.how, self.said, self.hangs_at, self.told_at = how, "", None, None

    def read(self):
        """False when there is nothing more to wait for."""
        more = os.read(self.process.stdout.fileno(), 1 << 16).decode(errors="replace")
        self.said += more
        if self.hangs_at is None and "hangs now" in self.said:
            self.hangs_at = time.monotonic()
        if re.search(LINES[self.how], self.said):
            self.told_at = time.monotonic()
        return bool(more) and self.told_at is None


class Stalls(TaggedTest):
    def tearDown(self):
        self.end_processes()

    def test_a_rank_that_hangs_is_named(self):
        jobs = [Job(how, self.environment(OMP_NUM_THREADS="1")) for how in LINES]
        self.running.extend(job.process for job in jobs)
        waiting, deadline = list(jobs), time.monotonic() + LIMIT_S
        while waiting and time.monotonic() < deadline:
            ready, _, _ = select.select([job.process.stdout for job in waiting], [], [], deadline - time.monotonic())
            waiting = [job for job in waiting if job.process.stdout not in ready or job.read()]
        for job in jobs:
            self.assertIsNotNone(job.told_at, f"{job.how}:\n{job.said}")
            self.assertLess(job.told_at - job.hangs_at, 30, f"{job.how}:\n{job.said}")
            self.assertEqual(len(re.findall("1% of a core", job.said)), 1, job.said)
            self.assertIsNone(job.process.poll(), f"{job.how}: a stall ended the job:\n{job.said}")
            job.process.send_signal(signal.SIGINT)
            self.assertEqual(job.process.wait(LIMIT_S), 130)


if __name__ == "__main__":
    unittest.main()
