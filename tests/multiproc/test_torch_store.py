#!/usr/bin/env python3
"""`dslaunch exec` serves PyTorch's store: real TCPStore clients and plain torch.distributed scripts, side by side with
torch's own server and torchrun, which are the oracle: what they answer is what we have to.

The programs come from DSLAUNCH_BIN. Needs a Python with PyTorch; skipped with a word where there is none."""
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest

try:
    import torch  # noqa: F401
except ImportError:
    print("skipped: this Python has no PyTorch", file=sys.stderr)
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
SUPPORT = os.path.join(os.path.dirname(HERE), "support/python")
BIN = os.environ["DSLAUNCH_BIN"]
LIMIT_S = 120


def environment():
    env = {key: value for key, value in os.environ.items()
           if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")}
    return {**env, "CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LIMIT_S, env=environment(),
                          stdin=subprocess.DEVNULL, check=False)


def marked(test, outcome, mark):
    """What follows the mark in the one line that has it."""
    test.assertEqual(outcome.returncode, 0, f"{outcome.args}\n{outcome.stdout[-2000:]}\n{outcome.stderr[-4000:]}")
    found = re.findall(rf"{mark} (.*)", outcome.stdout)
    test.assertEqual(len(found), 1, outcome.stdout)
    return found[0]


class TorchStore(unittest.TestCase):
    maxDiff = None

    def dslaunch(self, *arguments):
        return run(os.path.join(BIN, "dslaunch"), "exec", "--device", "cpu", *arguments)

    def free_port(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return str(probe.getsockname()[1])

    def hostfile(self, text):
        file = tempfile.NamedTemporaryFile("w", suffix=".hosts", delete=False)
        self.addCleanup(os.unlink, file.name)
        with file:
            file.write(text)
        return file.name

    def test_every_message_is_answered_like_torchs_server(self):
        script = os.path.join(HERE, "torch_store_calls.py")
        expected = json.loads(marked(self, run(sys.executable, script, "--own"), "ANSWERS"))
        got = json.loads(marked(self, self.dslaunch("--", sys.executable, script), "ANSWERS"))
        self.assertGreater(len(expected), 90)
        self.assertEqual(got, expected)

    def test_plain_scripts_run_as_under_torchrun(self):
        script = os.path.join(HERE, "torch_gloo_script.py")
        expected = marked(self, run(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
                                    script), "SEEN")
        two_names = self.hostfile("localhost slots=1\n127.0.0.2 slots=1\n")
        ways = {"one host": ["--num_gpus", "2"],
                "two hosts, a given port": ["--hostfile", two_names, "--master_port", self.free_port()]}
        for name, options in ways.items():
            with self.subTest(name):
                self.assertEqual(marked(self, self.dslaunch(*options, "--", sys.executable, script), "SEEN"), expected)

    def test_the_port_is_held_before_any_rank_connects_and_takes_values_beyond_torchs_own_limit(self):
        # Rank 0 asks only once rank 1 has shown, through the store, that it needs no rank 0 to be there.
        script = ("import light_torch, os, torch.distributed as d\n"
                  "r = int(os.environ['RANK'])\n"
                  "s = d.TCPStore(os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']), is_master=False,"
                  " wait_for_workers=False)\n"
                  "v = 'abcdefgh' * (8 << 20)\n"
                  "s.set('from1', v) if r == 1 else print('SAME', s.get('from1') == v.encode())\n")
        outcome = self.dslaunch("--num_gpus", "2", "--env", f"PYTHONPATH={SUPPORT}", "--", sys.executable, "-c", script)
        self.assertEqual(marked(self, outcome, "SAME"), "True")

    def test_dsworker_uses_the_same_port(self):
        probe = os.path.join(BIN, "rendezvous_probe")
        if not os.path.exists(probe):
            self.skipTest("rendezvous_probe is not built")
        outcome = self.dslaunch("--num_gpus", "3", "--", probe)
        self.assertEqual(outcome.returncode, 0, outcome.stdout + outcome.stderr)
        for line in ("rank 0 of 3 got 11", "rank 1 of 3 got 22", "rank 2 of 3 got 0"):
            self.assertIn(line, outcome.stdout)
        outcome = self.dslaunch("--", sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
                                "--no-python", probe)
        self.assertEqual(outcome.returncode, 0, outcome.stdout + outcome.stderr)
        for line in ("rank 0 of 2 got 11", "rank 1 of 2 got 0"):
            self.assertIn(line, outcome.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
