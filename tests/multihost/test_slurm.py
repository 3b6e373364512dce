#!/usr/bin/env python3
"""dslaunch inside a real Slurm of three nodes with two GPUs each that are only device files.

DSLAUNCH_BIN is the folder of dslaunch. Options: names of cases (Class.test_name), -j N for the number of clusters."""
import sys

sys.dont_write_bytecode = True

import parallel_cases  # noqa: E402
import slurm  # noqa: E402
import model_fixture  # noqa: E402
from host_case import HostCase  # noqa: E402
from slurm_cases import Allocation, Termination, Task, Training  # noqa: E402,F401


class Harness(HostCase):
    def test_jobs_run_on_all_nodes_and_see_their_gpus(self):
        out = self.head.run(["srun", "-N3", "--gres=gpu:2", "sh", "-c", "echo $(hostname) $CUDA_VISIBLE_DEVICES"]).stdout
        self.assertEqual(sorted(out.splitlines()), ["node1 0,1", "node2 0,1", "node3 0,1"])

    def test_a_leftover_batch_job_is_found_and_ended(self):
        self.write("job", "#!/bin/sh\nsrun sleep 1000\n", 0o755)
        self.head.run(["sbatch", "-N2", "-o", self.path("out"), self.path("job")])
        self.wait_until(lambda: set(self.cluster.leftovers()) >= {"node1", "node2"}, what="the job on its nodes")
        self.cluster.restore()
        self.assertEqual(self.cluster.jobs(), {})


if __name__ == "__main__":
    parallel_cases.main("multihost.slurm", slurm.SlurmCluster, slurm.NEEDED_PROGRAMS, workers=2, begin=model_fixture.start)
