#!/usr/bin/env python3
"""The models of examples/alexnet, cifar and gpt2 with the job files that stand there, as plain PyTorch trains the modules
themselves. The commands of their pages: multiproc.examples. Runs take place in the grid's pools (pooled.py).

By hand: DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/oracle/test_example_models.py [AlexNet...]"""
import importlib.util
import itertools
import json
import os
import sys
import unittest
import warnings

import torch

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), folder) for folder in ("../support/python", "../grid")]
import harness  # noqa: E402
import model_packages  # noqa: E402
import plain_pytorch  # noqa: E402
import tensor_file  # noqa: E402
from pooled import PooledTest  # noqa: E402
from test_oracle import OracleTest  # noqa: E402

STEPS = 8


def module_at(*path):
    """A Python file of the tree as a module."""
    spec = importlib.util.spec_from_file_location("_".join(path).removesuffix(".py"), os.path.join(harness.ROOT, *path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def seeded(make):
    torch.manual_seed(0)
    return make().train()


def without_warnings(convert, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return convert(*arguments)


class ExampleTest(PooledTest, OracleTest):
    def job_file(self, example, name, **changes):
        """What the file says, with the samples in the order of the oracle and without what the test does not look at."""
        with open(os.path.join(harness.ROOT, "examples", example, name)) as file:
            config = json.load(file)
        return {**config, "data": {"shuffle": False}, "checkpoint": {"at_end": False}, **changes}

    def check(self, model, make, data, config, data_ranks=1, bound=None, keys=("loss", "lr", "grad_norm"), whole_batch=False):
        """`model`: the exported file; `make`: makes the module. PyTorch gets the micro batches of each data rank, or with
        `whole_batch` the batch in one piece."""
        world = data_ranks * config.get("pipeline", {}).get("stages", 1)
        rows, _ = self.env.train(model, data, config, world, STEPS)
        micro = config.get("train_micro_batch_size_per_gpu", config["train_batch_size"] // data_ranks)
        split = {} if whole_batch else {"accumulation": config["train_batch_size"] // (micro * data_ranks),
                                        "shares": data_ranks}
        expected = plain_pytorch.train(seeded(make), data, config, STEPS, **split).rows
        self.assert_close(expected, rows, bound, keys)
        return rows


class Pictures(ExampleTest):
    def pictures(self, count):
        path = self.env.path(f"pictures{count}.safetensors")
        if not os.path.exists(path):
            made = list(itertools.islice(module_at("examples", "cifar", "make_data.py").made_up(count), count))
            tensor_file.write(path, {"x": torch.tensor([picture for _, picture in made]).view(count, 3, 32, 32),
                                     "label": torch.tensor([label for label, _ in made])})
        return path

    def scripted(self, make):
        path = self.env.path("model.pt")
        without_warnings(torch.jit.script, seeded(make)).save(path)
        return path


class Cifar(Pictures):
    def make(self):
        return module_at("tools", "recipes", "cifar.py").CifarNet()

    def run_of(self, name, data_ranks, **more):
        # Without the warm-up, in which 8 steps would hardly move.
        config = self.job_file("cifar", name, scheduler={"type": "WarmupLR", "params": {"warmup_num_steps": 1}})
        rows = self.check(self.scripted(self.make), self.make, self.pictures(4 * config["train_batch_size"]), config,
                          data_ranks, **more)
        self.assertLess(rows[-1]["loss"], 0.99 * rows[0]["loss"])
        return rows

    def test_two_stages(self):
        self.run_of("pipeline.json", 1)

    def test_two_stages_beside_two_data_ranks(self):
        self.run_of("pipeline.json", 2)

    def test_fp16_with_zero_2(self):
        """The gradients of a net in fp16 differ in the last of 11 bits, and Adam's first steps are as large for small ones."""
        rows = self.run_of("fp16_zero2.json", 2, bound=2e-3, keys=("loss", "lr", "loss_scale"))
        self.assertEqual(rows[0]["loss_scale"], 2**15)


class AlexNet(Pictures):
    SMALL = {"classes": 10, "width": 4, "size": 64}

    def maker(self, **changes):
        recipe = module_at("tools", "recipes", "alexnet.py")
        return lambda: recipe.AlexNet(**self.SMALL, **changes)

    def config(self, **changes):
        return self.job_file("alexnet", "config.json", train_batch_size=32, train_micro_batch_size_per_gpu=4, **changes)

    def test_the_sizes_are_those_of_torchvision(self):
        recipe = module_at("tools", "recipes", "alexnet.py")
        with torch.device("meta"):
            count = sum(parameter.numel() for parameter in recipe.AlexNet(1000).parameters())
        self.assertEqual(count, 61_100_840)  # of torchvision's alexnet
        self.assertEqual(len(list(recipe.AlexNet(**self.SMALL))), 23)

    def test_stages_and_schedules(self):
        make = self.maker(dropout=0.0)
        for stages, data_ranks, schedule in ((2, 1, "1f1b"), (2, 2, "zb-h1"), (4, 1, "gpipe")):
            with self.subTest(stages=stages, data_ranks=data_ranks, schedule=schedule):
                config = self.config(pipeline={"stages": stages, "schedule": schedule})
                self.check(self.scripted(make), make, self.pictures(96), config, data_ranks)

    def test_dropout_is_on_in_training_and_off_in_evaluation(self):
        """Other numbers are drawn than in one process, so what can be compared is the evaluation of the weights at the end."""
        make, data = self.maker(dropout=0.5), self.pictures(96)
        config = self.config(data={"shuffle": False, "eval": data}, checkpoint={})
        rows, folder = self.env.train(self.scripted(make), data, config, 2, STEPS)
        net = seeded(make).eval()
        net.load_state_dict(tensor_file.read(self.env.consolidate(folder, "trained.safetensors")))
        arrays = tensor_file.read(data)
        with torch.no_grad():
            expected = torch.nn.functional.cross_entropy(net(arrays["x"]), arrays["label"]).item()
        self.assertLess(abs(rows[-1]["eval_loss"] / expected - 1), 1e-5)
        without, _ = self.env.train(self.scripted(self.maker(dropout=0.0)), data, self.config(), 2, 1)
        self.assertGreater(abs(rows[0]["loss"] / without[0]["loss"] - 1), 1e-5, "no dropout in training")


@unittest.skipIf(model_packages.WHY_NOT, model_packages.WHY_NOT)
class GPT2(ExampleTest):
    CONFIG = {"vocab_size": 64, "n_positions": 16, "n_embd": 32, "n_layer": 3, "n_head": 4, "resid_pdrop": 0.0,
              "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    LENGTH = 12

    def make(self):
        tool = self.env.tool
        return tool.build_hugging_face(torch, tool.parse(self.export_options("gpt2.pt"))).module

    def export_options(self, path):
        return ["--hf", "gpt2", "--mask", "--hf-config", json.dumps(self.CONFIG), path]

    def padded(self, count, side):
        """Padding on the left shows whether the mask reaches attention: a causal model never looks to the right."""
        generator = torch.Generator().manual_seed(7)
        tokens = (torch.randint(0, 64, (count, 1), generator=generator) + 5 * torch.arange(self.LENGTH + 1)) % 64
        length = torch.randint(3, self.LENGTH + 1, (count, 1), generator=generator)
        mask = torch.arange(self.LENGTH) < length if side == "right" else torch.arange(self.LENGTH) >= self.LENGTH - length
        return {"input_ids": torch.where(mask, tokens[:, :-1], 0), "mask": mask.to(torch.uint8),
                "labels": torch.where(mask, tokens[:, 1:], -100)}

    def file(self, name, arrays):
        path = self.env.path(name)
        tensor_file.write(path, arrays)
        return path

    def exported(self):
        path = self.env.path("gpt2.pt")
        if not os.path.exists(path):
            without_warnings(self.env.tool.main, self.export_options(path))
        return path

    def config(self):
        """A rate that does not change: the schedule of the file is that of its number of steps."""
        config = self.job_file("gpt2", "config.json")
        del config["scheduler"]
        return config

    def test_padded_text_on_two_stages(self):
        """The mean over the tokens of all micro batches is that of the whole batch in one piece."""
        for side, data_ranks in (("left", 1), ("right", 2)):
            with self.subTest(side=side):
                data = self.file(f"{side}.safetensors", self.padded(96, side))
                rows = self.check(self.exported(), self.make, data, self.config(), data_ranks, whole_batch=True)
                self.assertLess(rows[-1]["loss"], rows[0]["loss"])

    def test_the_oracle_would_notice(self):
        """Without the mask, or with micro batches that count alike, the losses would be others."""
        arrays = self.padded(96, "left")
        config, data = self.config(), self.file("left.safetensors", arrays)
        unmasked = self.file("unmasked.safetensors", {**arrays, "mask": torch.ones_like(arrays["mask"])})
        runs = [plain_pytorch.train(seeded(self.make), path, config, STEPS, accumulation)
                for path, accumulation in ((data, 1), (unmasked, 1), (data, 8))]
        want, no_mask, alike = ([row["loss"] for row in run.rows] for run in runs)
        for other in (no_mask, alike):
            self.assertGreater(max(abs(a / b - 1) for a, b in zip(other, want)), 1e-4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
