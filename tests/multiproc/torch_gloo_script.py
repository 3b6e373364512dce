"""A plain torch.distributed script as users have them: nothing in it knows of dslaunch. Prints what rank 0 saw."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import light_torch  # noqa: E402,F401
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
seen = [f"world {world}"]

value = torch.arange(4.0) + rank
dist.all_reduce(value)
seen.append(f"all_reduce {value.tolist()}")
dist.barrier()

groups = [dist.new_group(range(world)) for _ in range(3)]
for index, group in enumerate(groups):
    value = torch.tensor([float(10 * index + rank)])
    dist.all_reduce(value, group=group)
    seen.append(f"group {index}: {value.item()}")
alone = [dist.new_group([member]) for member in range(world)]
dist.barrier(group=alone[rank])

gathered = [None] * world
dist.all_gather_object(gathered, {"rank": rank, "bytes": bytes([0, rank, 255])})
seen.append(f"objects {gathered}")
if world > 1:
    box = torch.zeros(1)
    dist.send(torch.tensor([42.0]), 1) if rank == 0 else dist.recv(box, 0) if rank == 1 else None
    seen.append(f"received {box.item() if rank == 1 else 'elsewhere'}")
dist.monitored_barrier()
store = dist.distributed_c10d._get_default_store()
store.set(f"from {rank}", str(rank))
seen.append(f"store {[store.get(f'from {each}') for each in range(world)]}")
dist.barrier()
dist.destroy_process_group()
assert os.environ["TORCHELASTIC_USE_AGENT_STORE"] == "True"
if rank == 0:
    print("SEEN " + "; ".join(seen), flush=True)
