"""A plain torch.distributed script of which one rank hangs in the way that the argument says."""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import light_torch  # noqa: E402,F401
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402


class Stuck(Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        time.sleep(3600)


def hang(how, group):
    if how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "endless":
        os.nice(19)
        while True:
            pass
    elif how == "mismatched":
        dist.all_reduce(torch.zeros(4), group=group)
    elif how == "loader":
        next(iter(DataLoader(Stuck(), num_workers=1)))


torch.set_num_threads(1)
dist.init_process_group("gloo")
other_group = dist.new_group([0, 1])
for group in (None, other_group):  # what a first call sets up takes processor time, and would count as busy
    dist.all_reduce(torch.zeros(4), group=group)
dist.barrier()
if dist.get_rank() == 1:
    print("hangs now", flush=True)
    hang(sys.argv[1], other_group)
dist.all_reduce(torch.zeros(4))
