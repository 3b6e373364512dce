#!/usr/bin/env python3
"""dslaunch over SSH on three hosts: what reaches the ranks, how every end is told, and that nothing stays on any host.

DSLAUNCH_BIN is the folder of dslaunch. Options: names of cases (Class.test_name), -j N for the number of clusters."""
import sys

sys.dont_write_bytecode = True

import netns  # noqa: E402
import parallel_cases  # noqa: E402
import model_fixture  # noqa: E402
from doctor_cases import Doctor  # noqa: E402,F401
from exec_cases import OtherJobs, Output, Ranks, SlowReaders  # noqa: E402,F401
from failure_cases import RankFailures, LostHosts, Refusals, Stopping  # noqa: E402,F401
from harness_cases import Harness  # noqa: E402,F401
from job_cases import Background, MasterPort, Restarts, Secrets, Transports  # noqa: E402,F401
from node_local_cases import NodeLocalCheckpoints  # noqa: E402,F401
from training_cases import ExternallyStarted, Programs, Torch, Training  # noqa: E402,F401

if __name__ == "__main__":
    parallel_cases.main("multihost.hosts", netns.Cluster, netns.NEEDED_PROGRAMS, workers=4, begin=model_fixture.start)
