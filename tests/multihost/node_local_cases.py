"""Hosts that share no file system: every node keeps its part of a checkpoint in a folder of its own, under the same name."""
import json
import os
import shutil
import unittest

import model_fixture
from host_case import HostCase
from parallel_cases import long_running
from training_cases import WORKER

OWN = "/tmp/checkpoints"  # every host has a /tmp of its own


@unittest.skipUnless(model_fixture.has_torch() and os.access(WORKER, os.X_OK), "no pinned PyTorch, or dsworker is not built")
class NodeLocalCheckpoints(HostCase):
    def setUp(self):
        super().setUp()
        model_fixture.copy_model(self.folder)
        self.allowed_files = rf"{self.allowed_files}|^{OWN}(-whole)?(/.*)?$"
        self.nodes = self.cluster.nodes

    def command(self, *options, run_dir="out", folder=OWN, hosts=None, own=True, interval=2):
        checkpoint = {"dir": folder, "interval": interval, "keep_last": 3, "use_node_local_storage": own}
        with open(self.path("ds.json"), "w", encoding="utf-8") as file:
            json.dump({**model_fixture.CONFIG, "checkpoint": checkpoint}, file)
        return ["--device", "cpu", "--hostfile", self.hostfile(*([hosts] if hosts else [])), "--config", "ds.json", "--data",
                "train.safetensors", "--run_dir", run_dir, *options, "model.pt"]

    def losses(self, run_dir="out"):
        return [json.loads(line)["loss"] for line in self.read(f"{run_dir}/metrics.jsonl").splitlines()]

    def steps_on(self, node):
        names = os.listdir(node.root(OWN)) if os.path.isdir(node.root(OWN)) else []
        return sorted(int(name[5:]) for name in names if name.startswith("step_") and name[5:].isdigit())

    def latest(self):
        """The highest step that `latest` names anywhere: later ones were not finished."""
        return max(int(open(node.root(f"{OWN}/latest"), encoding="utf-8").read().strip()[5:]) for node in self.nodes)

    def killed_run(self, steps=9):
        """A run that loses a rank after some saves. The newest step that is complete on all nodes."""
        process = self.start(*self.command("--steps", "1000000"))
        metrics = self.path("out/metrics.jsonl")
        self.wait_until(lambda: os.path.exists(metrics) and len(self.read("out/metrics.jsonl").splitlines()) > steps,
                        what="the first steps")
        self.assertEqual(len(self.nodes[1].kill("dsworker train")), 1)
        self.expect(self.finish(process), 137)
        complete = set.intersection(*(set(self.steps_on(node)) for node in self.nodes))
        return max(step for step in complete if step <= self.latest())

    def uninterrupted(self, steps):
        self.expect(self.launch(*self.command("--steps", str(steps), run_dir="whole", folder=OWN + "-whole", interval=0)), 0)
        return self.losses("whole")

    @long_running
    def test_a_killed_run_resumes_bit_by_bit(self):
        saved = self.killed_run()
        for rank, node in enumerate(self.nodes):
            self.assertEqual(sorted(os.listdir(node.root(f"{OWN}/step_{saved:08}"))),
                             ["manifest.json", "model.pt", f"rank_0000{rank}.safetensors"])
        # A node that was killed before it renamed its folder has one step less than the others.
        newest = max(max(self.steps_on(node)) for node in self.nodes)
        if newest == saved:
            shutil.rmtree(self.nodes[2].root(f"{OWN}/step_{saved:08}"))
            saved = max(step for step in self.steps_on(self.nodes[2]))
        outcome = self.launch(*self.command("--steps", str(saved + 6), "--resume", "auto"))
        self.expect(outcome, 0, f"resumed from {OWN}/step_{saved:08}", "on no host of this job")
        self.assertEqual(self.losses(), self.uninterrupted(saved + 6))

    @long_running
    def test_another_world_size_fetches_shards_over_the_network(self):
        saved = self.killed_run()
        outcome = self.launch(*self.command("--steps", str(saved + 6), "--resume", "auto",
                                            hosts="node3 slots=2\nnode1 slots=1\nnode2 slots=1\n"))
        self.expect(outcome, 0, f"resumed from {OWN}/step_{saved:08}")
        for mine, whole in zip(self.losses(), self.uninterrupted(saved + 6)):
            self.assertLessEqual(abs(mine - whole), 1e-6 * abs(whole))

    @long_running
    def test_a_missing_host_of_a_shard_is_named(self):
        self.killed_run()
        outcome = self.launch(*self.command("--steps", "100", "--resume", "auto", hosts="node1 slots=2\nnode3 slots=1\n"))
        self.expect(outcome, 65, "rank_00001.safetensors of node2", "on no host of this job")

    @long_running
    def test_the_directories_copied_into_one_are_a_complete_checkpoint(self):
        self.expect(self.launch(*self.command("--steps", "4")), 0)
        merged = self.path("merged")
        shutil.copytree(self.nodes[0].root(OWN), merged)
        outcome = self.launch("consolidate", merged, self.path("one.safetensors"))
        self.expect(outcome, 65, "rank_00001.safetensors of node2; rank_00002.safetensors of node3", "Copy")
        for node in self.nodes[1:]:
            shutil.copytree(node.root(OWN), merged, dirs_exist_ok=True)
        self.expect(self.launch("consolidate", merged, self.path("one.safetensors")), 0)
        shared = self.path("shared")  # which all hosts see
        self.expect(self.launch(*self.command("--steps", "4", run_dir="again", folder=shared, own=False)), 0)
        self.expect(self.launch("consolidate", shared, self.path("other.safetensors")), 0)
        with open(self.path("one.safetensors"), "rb") as one, open(self.path("other.safetensors"), "rb") as other:
            self.assertEqual(one.read(), other.read())

    @long_running
    def test_a_missing_key_is_named_in_the_error(self):
        outcome = self.launch(*self.command("--steps", "4", own=False))
        self.expect(outcome, 73, "ranks 1, 2 cannot see /tmp/checkpoints", "use_node_local_storage")
