#!/usr/bin/env python3
"""dslaunch with more ranks than the machine has GPUs: NCCL refuses a GPU to two ranks of one host, so every rank becomes a
host of its own (--no_ssh; NCCL_HOSTID), and they meet over sockets. For right and wrong only: such ranks take turns.

    SHARE_GPUS=0 share_gpus.py RANKS dslaunch [OPTION]... MODEL

Prints what node rank 0 says and ends with its exit code; its signals go to that one."""
import os
import secrets
import signal
import socket
import subprocess
import sys


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def main():
    num_ranks, dslaunch, *words = sys.argv[1:]
    devices = os.environ["SHARE_GPUS"].split(",")
    meeting = ["--no_ssh", "--num_nodes", num_ranks, "--master_addr", "127.0.0.1", "--master_port", free_port()]
    token = secrets.token_hex(32)
    nodes = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: nodes[0].send_signal(number))
    for rank in range(int(num_ranks)):
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": devices[rank % len(devices)], "NCCL_SOCKET_IFNAME": "lo",
               "NCCL_IB_DISABLE": "1", "DSLAUNCH_TOKEN": token}
        if rank > 0:  # node rank 0 would hand on its own to all ranks, as every variable of NCCL's
            env["NCCL_HOSTID"] = f"rank{rank}"
        quiet = {} if rank == 0 else {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        nodes.append(subprocess.Popen([dslaunch, *meeting, "--node_rank", str(rank), *words], env=env, **quiet))
    codes = [node.wait() for node in nodes]
    return codes[0] if codes[0] >= 0 else 128 - codes[0]


if __name__ == "__main__":
    sys.exit(main())
