#!/usr/bin/env python3
"""The oracle against PyTorch's own DistributedDataParallel, and against itself split in other ways."""
import os
import socket
import sys
import unittest

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import one_process  # noqa: E402
import tensor_file  # noqa: E402
import harness  # noqa: E402


def free_store(world):
    """A store that the parent holds, so that no port is guessed."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    return dist.TCPStore("127.0.0.1", listener.getsockname()[1], None, True, wait_for_workers=False,
                         master_listen_fd=listener.detach())


def ddp_rank(rank, world, port, model_path, data_path, config, steps, out):
    """The way a PyTorch user would write it: DDP over gloo, the rank's share of each global batch, clip_grad_norm_."""
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, None, False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    model = torch.nn.parallel.DistributedDataParallel(torch.jit.load(model_path))
    params = [p for p in model.parameters()]
    settings = config["optimizer"]["params"]
    optimizer = torch.optim.AdamW(params, settings["lr"], weight_decay=settings["weight_decay"])
    samples, batch = one_process.Samples(data_path, config), config["train_batch_size"]
    share, losses = batch // world, []
    for k in range(steps):
        rows = samples.rows(k, batch)[rank * share:(rank + 1) * share]
        loss = model(*samples.take(samples.inputs, rows, torch.float32), *samples.take(samples.labels, rows, torch.float32))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, config["gradient_clipping"])
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach() / world
        dist.all_reduce(mean)
        losses.append(mean.item())
    if rank == 0:
        torch.save(losses, out)
    store.set(f"done {rank}", "")
    store.wait([f"done {other}" for other in range(world)])
    # Without an end in order: the reducer's destructor holds Python's lock while it joins a thread that may want it.
    os._exit(0)


class OneProcess(harness.TrainingTest):
    def losses(self, kind, shares, **changes):
        config = harness.base_config(kind, **changes)
        rows = one_process.train(self.env.model(kind), self.env.data(kind), config, 50, shares)
        return [row["loss"] for row in rows]

    def assert_near(self, first, second):
        for a, b in zip(first, second):
            self.assertLessEqual(abs(a - b) / a, 1e-5)

    def test_a_split_into_shares_and_accumulation_changes_rounding_only(self):
        for kind in ("mlp", "gpt"):
            self.assert_near(self.losses(kind, 1), self.losses(kind, 4, gradient_accumulation_steps=3))

    def test_batch_norm_makes_the_split_matter(self):
        self.assertGreater(abs(self.losses("convnet", 1)[0] - self.losses("convnet", 4)[0]), 1e-3)

    def test_agrees_with_distributed_data_parallel(self):
        config = harness.base_config("mlp")
        del config["scheduler"]
        out, world = self.env.path("losses.pt"), 2
        store = free_store(world)
        processes.spawn(ddp_rank, (world, store.port, self.env.model("mlp"), self.env.data("mlp"), config, 50, out), world)
        rows = one_process.train(self.env.model("mlp"), self.env.data("mlp"), config, 50)
        self.assert_near([row["loss"] for row in rows], torch.load(out))

    def test_schedules_at_the_values_that_the_formulas_give_by_hand(self):
        def rate(kind, step, **params):
            config = {"optimizer": {"type": "AdamW", "params": {"lr": 0.1}}, "scheduler": {"type": kind, "params": params}}
            return one_process.learning_rate(config, step)

        linear = {"warmup_num_steps": 10, "warmup_type": "linear"}
        for step, value in ((1, 0.0), (2, 0.0), (3, 0.01), (7, 0.05), (12, 0.1), (40, 0.1)):
            self.assertAlmostEqual(rate("WarmupLR", step, **linear), value, places=15)
        self.assertAlmostEqual(rate("WarmupLR", 5, warmup_num_steps=16), 0.1 * 0.5, places=15)  # ln 4 / ln 16
        decay = {**linear, "total_num_steps": 20, "warmup_max_lr": 0.1}
        for step, value in ((12, 0.1), (17, 0.05), (22, 0.0), (30, 0.0)):
            self.assertAlmostEqual(rate("WarmupDecayLR", step, **decay), value, places=15)
        cosine = {**linear, "total_num_steps": 20, "warmup_min_ratio": 0.5, "cos_min_ratio": 0.2}
        for step, value in ((1, 0.0), (2, 0.05), (7, 0.075), (16, 0.06), (21, 0.02)):
            self.assertAlmostEqual(rate("WarmupCosineLR", step, **cosine), value, places=15)

    def test_tensor_files_survive_a_round_trip(self):
        tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([1, 2]), "c": torch.ones(3, dtype=torch.bfloat16),
                   "d": torch.tensor(3.5), "e": torch.empty(0, 4)}
        tensor_file.write(self.env.path("t.safetensors"), tensors)
        back = tensor_file.read(self.env.path("t.safetensors"))
        self.assertEqual(list(back), list(tensors))
        for name in tensors:
            self.assertTrue(torch.equal(back[name], tensors[name]) and back[name].dtype == tensors[name].dtype, name)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    unittest.main(verbosity=2)
