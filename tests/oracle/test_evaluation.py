#!/usr/bin/env python3
"""Evaluation during and after training and alone, on 1 to 4 CPU ranks, most in the grid's pools: the mean loss is that of
plain PyTorch in evaluation mode over every sample once, however the samples divide among ranks and micro batches, and
training goes on as if it had not been."""
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import one_process  # noqa: E402
import tensor_file  # noqa: E402
import harness  # noqa: E402
from pooled import PooledTest  # noqa: E402
from harness import BATCH, base_config, program, run  # noqa: E402

STAGES = (0, 1, 2, 3)
BOUND = 1e-5  # relative, fp32: what the order of additions may change


class Classifier(torch.nn.Module):
    """Logits of 5 classes from 6 numbers; with dropout, which evaluation switches off."""

    def __init__(self, dropout: float):
        super().__init__()
        self.first, self.last = torch.nn.Linear(6, 16), torch.nn.Linear(16, 5)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, x):
        return self.last(self.dropout(torch.relu(self.first(x))))


def plain_mean(model, tensors, loss=None):
    """The definition: every sample by itself, in evaluation mode, in double."""
    model.eval()
    total, arrays = 0.0, list(tensors.values())
    with torch.no_grad():
        for i in range(len(arrays[0])):
            total += one_process.loss_of(model, loss, [a[i:i + 1] for a in arrays[:-1]], [arrays[-1][i:i + 1]]).item()
    return total / len(arrays[0])


class MaskedMean(torch.nn.Module):
    """A language model of one word's memory with the mean over its labels as many write it: 0/0 where there are none."""

    def __init__(self):
        super().__init__()
        self.words, self.last = torch.nn.Embedding(64, 16), torch.nn.Linear(16, 64)

    def forward(self, input_ids, labels):
        scores = torch.log_softmax(self.last(self.words(input_ids)), -1)
        counts = labels != -100
        picked = scores.gather(-1, torch.where(counts, labels, torch.zeros_like(labels)).unsqueeze(-1)).squeeze(-1)
        return -(picked * counts).sum() / counts.sum()


class EvaluationTest(PooledTest):
    def samples_file(self, kind, count):
        """Samples that training does not see, `count` of them."""
        tensors = {name: array[-count:] for name, array in harness.samples_of(kind).items()}
        path = self.env.path(f"{kind}-{count}.safetensors")
        tensor_file.write(path, tensors)
        return path, tensors

    def classifier(self, dropout=0.0):
        path = self.env.path(f"classifier-{dropout}.pt")
        if not os.path.exists(path):
            torch.manual_seed(5)
            torch.jit.script(Classifier(dropout)).save(path)
        return path

    def labelled(self, name, count=7 * BATCH, ignored=0.0):
        generator = torch.Generator().manual_seed(11)
        x = torch.randn(count, 6, generator=generator)
        label = (x.sum(1) + 2.5).long().clamp(0, 4)
        label[torch.rand(count, generator=generator) < ignored] = -100
        path = self.env.path(name)
        tensor_file.write(path, {"x": x, "label": label})
        return path, {"x": x, "label": label}

    def trained(self, *args, **kwargs):
        return self.env.train(*args, **kwargs)

    def consolidated(self, folder):
        return torch.jit.load(self.env.consolidate(folder, "whole.pt"))

    def evaluate_only(self, model, config, world, *extra, run_dir=None, data=None):
        """(line of metrics.jsonl, outcome) of a run with --eval_only."""
        run_dir = run_dir or self.env.run_dir()
        outcome = self.env.run(model, data, config, run_dir, world, None, ["--eval_only", *extra])
        self.assertEqual(outcome.code, 0, str(outcome))
        return harness.read_metrics(run_dir)[-1], outcome

    def assert_near(self, actual, expected, what="", bound=None):
        bound = BOUND if bound is None else bound
        self.assertLessEqual(abs(actual - expected), bound * abs(expected), f"{what}: {actual} is not {expected}")


class DuringTraining(EvaluationTest):
    def test_every_interval_and_at_the_end_with_the_weights_of_that_step(self):
        """BatchNorm (convnet) is evaluated with the running statistics of rank 0."""
        for world, stage, kind in ((1, 0, "gpt"), (2, 1, "mlp"), (3, 2, "mlp"), (4, 3, "mlp"), (3, 3, "gpt"), (3, 1, "convnet")):
            with self.subTest(world=world, stage=stage, kind=kind):
                path, tensors = self.samples_file(kind, 23)
                config = base_config(kind, zero_optimization={"stage": stage}, train={"eval_interval": 4},
                                     data={"shuffle": False, "eval": path})
                expected = self.expected(kind, config, tensors, world if kind == "convnet" else 1)
                rows, _ = self.trained(self.env.model(kind), self.env.data(kind), config, world, 10)
                self.assertEqual({row["step"] for row in rows if "eval_loss" in row}, set(expected))
                self.assertEqual([row["step"] for row in rows], list(range(1, 11)))
                for step, loss in expected.items():
                    self.assert_near(rows[step - 1]["eval_loss"], loss, f"step {step}")

    def expected(self, kind, config, tensors, shares):
        """step -> the mean over `tensors` of plain PyTorch's model of rank 0, after 4, 8 and 10 steps."""
        torch.set_num_threads(1)
        oracle = one_process.Trainer([torch.jit.load(self.env.model(kind)) for _ in range(shares)],
                                     one_process.Samples(self.env.data(kind), config), config)
        means = {}
        for step in range(1, 11):
            oracle.step(step - 1)
            if step in (4, 8, 10):
                means[step] = plain_mean(oracle.shares[0].model, tensors, config.get("loss"))
                oracle.shares[0].model.train()
        return means

    def test_without_an_interval_there_is_one_at_the_end(self):
        path, _ = self.samples_file("mlp", 5)
        config = base_config("mlp", data={"shuffle": False, "eval": path})
        rows, _ = self.trained(self.env.model("mlp"), self.env.data("mlp"), config, 2, 6)
        self.assertEqual([row["step"] for row in rows if "eval_loss" in row], [6])

    def test_an_end_that_falls_on_the_interval_is_evaluated_once(self):
        path, _ = self.samples_file("mlp", 5)
        config = base_config("mlp", data={"shuffle": False, "eval": path}, train={"eval_interval": 3})
        outcome = run(self.env.command(self.env.model("mlp"), self.env.data("mlp"), config, self.env.run_dir(), 2, 6))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual(len(re.findall(r"\bstep 6 .*eval_loss", outcome.out)), 1, str(outcome))

    def test_a_rank_killed_in_the_evaluation_at_the_end_loses_neither_the_last_step_nor_the_evaluation(self):
        path, _ = self.samples_file("mlp", 100)
        long = self.env.path("long.safetensors")
        tensor_file.write(long, {name: array.repeat(1000, 1) for name, array in tensor_file.read(path).items()})
        config = base_config("mlp", data={"shuffle": False, "eval": long})
        folder = self.env.run_dir()
        command = self.env.command(self.env.model("mlp"), self.env.data("mlp"), config, folder, 2, 6, ["--resume", "auto"])
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                                   env=harness.environment())
        while process.poll() is None and not os.path.exists(os.path.join(folder, "checkpoints/latest")):
            time.sleep(0.001)
        os.kill(harness.rank_processes(folder, 1)[0], signal.SIGKILL)
        self.assertEqual(process.wait(timeout=60), 137)
        rows = harness.read_metrics(folder)
        self.assertEqual([(row["step"], "eval_loss" in row) for row in rows], [(step, False) for step in range(1, 7)])
        for words in ("only the evaluation is left", "nothing to do"):
            outcome = run(command)
            self.assertEqual(outcome.code, 0, str(outcome))
            self.assertIn(words, outcome.text)
            more = harness.read_metrics(folder)
            self.assertEqual(more[:-1], rows)
            self.assertEqual((more[-1]["step"], more[-1]["eval_samples"]), (6, 100000))

    def test_a_run_stopped_in_an_evaluation_on_the_way_makes_up_for_it(self):
        path, _ = self.samples_file("mlp", 100)
        long = self.env.path("long_on_the_way.safetensors")  # seconds, of which the run is stopped in the first
        tensor_file.write(long, {name: array.repeat(20000, 1) for name, array in tensor_file.read(path).items()})
        folder = self.env.run_dir()

        def command(evaluated, steps):
            config = base_config("mlp", data={"shuffle": False, "eval": evaluated}, train={"eval_interval": 3})
            return self.env.command(self.env.model("mlp"), self.env.data("mlp"), config, folder, 2, steps, ["--resume", "auto"])
        process = subprocess.Popen(command(long, 3), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   start_new_session=True, env=harness.environment())
        said = []
        while "step 3/3" not in "".join(said[-1:]):
            said.append(process.stdout.readline())
            self.assertTrue(said[-1], "".join(said))  # else it has ended
        process.terminate()
        rest, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 75, "".join(said) + rest)
        rows = harness.read_metrics(folder)
        self.assertEqual([(row["step"], "eval_loss" in row) for row in rows], [(step, False) for step in (1, 2, 3)])
        os.unlink(long)
        for _ in range(2):  # the second time there is nothing to make up for
            outcome = run(command(path, 4))
            self.assertEqual(outcome.code, 0, str(outcome))
            more = harness.read_metrics(folder)
            self.assertEqual([(row["step"], "eval_loss" in row, "loss" in row) for row in more[3:]],
                             [(3, True, False), (4, True, True)])

    def test_training_goes_on_as_if_it_had_not_been(self):
        """Dropout's random numbers and BatchNorm's statistics included: bit by bit."""
        data, _ = self.labelled("train.safetensors")
        evaluated, _ = self.labelled("eval.safetensors", 13)
        for model, kind, loss, eval_path, train_path in (
                (self.classifier(0.3), "mlp", "cross_entropy", evaluated, data),
                (self.env.model("convnet"), "convnet", "cross_entropy", self.samples_file("convnet", 13)[0],
                 self.env.data("convnet"))):
            with self.subTest(model=model):
                plain = base_config(kind, loss=loss)
                config = base_config(kind, loss=loss, train={"eval_interval": 2},
                                     data={"shuffle": False, "eval": eval_path})
                expected, _ = self.trained(model, train_path, plain, 3, 9)
                actual, _ = self.trained(model, train_path, config, 3, 9)
                for want, got in zip(expected, actual):
                    self.assertEqual((want["loss"], want["grad_norm"]), (got["loss"], got["grad_norm"]), want["step"])


class Alone(EvaluationTest):
    """--eval_only."""

    def test_any_number_of_samples_on_any_number_of_ranks(self):
        """Micro batch 3: 1 sample, fewer than ranks, fewer than a slice, uneven last slices, whole ones."""
        for index, (world, count) in enumerate([(1, 7), (2, 1), (3, 2), (4, 1), (4, 3), (4, 12), (4, 13), (3, 23), (2, 6)]):
            stage = STAGES[index % len(STAGES)]
            with self.subTest(world=world, count=count, stage=stage):
                path, tensors = self.samples_file("gpt", count)
                config = {"train_micro_batch_size_per_gpu": 3, "zero_optimization": {"stage": stage},
                          "data": {"eval": path}}
                row, outcome = self.evaluate_only(self.env.model("gpt"), config, world)
                self.assert_near(row["eval_loss"], plain_mean(torch.jit.load(self.env.model("gpt")), tensors))
                self.assertEqual((row["step"], row["eval_samples"]), (0, count))
                self.assertRegex(outcome.out, rf"step 0  eval_loss \d+\.\d+  over {count} samples")

    def test_with_parameters_outside_of_the_device(self):
        swap = self.env.path("swap")
        os.makedirs(swap, exist_ok=True)
        path, tensors = self.samples_file("gpt", 7)
        expected = plain_mean(torch.jit.load(self.env.model("gpt")), tensors)
        for world, place in ((1, {"device": "cpu"}), (3, {"device": "nvme", "nvme_path": swap, "max_in_cpu": 0}),
                             (2, {"device": "cpu", "pin_memory": True})):
            with self.subTest(world=world, place=place):
                zero = {"stage": 3, "stage3_param_persistence_threshold": 0, "offload_param": place}
                row, _ = self.evaluate_only(self.env.model("gpt"), {"zero_optimization": zero, "data": {"eval": path}}, world)
                self.assert_near(row["eval_loss"], expected)

    def test_fillers_count_nothing_even_where_their_loss_is_not_finite(self):
        path, tensors = self.samples_file("mlp", 2)
        config = {"train_micro_batch_size_per_gpu": 1, "data": {"eval": path}}
        tensors["y"][1] = float("nan")  # what fillers repeat
        tensor_file.write(path, tensors)
        row, outcome = self.evaluate_only(self.env.model("mlp"), config, 3)
        self.assertIsNone(row["eval_loss"], "the sample itself counts")
        self.assertIn("eval_loss nan", outcome.out)

    def test_a_checkpoint_with_batch_norm_and_dropout(self):
        """All ranks use rank 0's running statistics, which are also what the checkpoint holds."""
        cases = [("convnet", self.env.model("convnet"), self.env.data("convnet"), *self.samples_file("convnet", 37))]
        data, _ = self.labelled("train.safetensors")
        cases.append(("mlp", self.classifier(0.4), data, *self.labelled("eval.safetensors", 37)))
        for kind, model, train_path, eval_path, tensors in cases:
            with self.subTest(model=model):
                config = base_config(kind, loss="cross_entropy", data={"shuffle": False, "eval": eval_path},
                                     zero_optimization={"stage": STAGES[-1]})
                rows, folder = self.trained(model, train_path, config, 4, 6)
                expected = plain_mean(self.consolidated(folder), tensors, "cross_entropy")
                self.assert_near(rows[-1]["eval_loss"], expected, "at the end of training")
                for world in (1, 3):
                    row, _ = self.evaluate_only(model, {**config, "train_batch_size": 12}, world, "--resume",
                                                os.path.join(folder, "checkpoints"))
                    self.assert_near(row["eval_loss"], expected, f"--eval_only, world {world}")
                    self.assertEqual(row["step"], 6)

    def test_in_the_folder_of_the_run_it_adds_a_line_and_leaves_the_rest(self):
        path, _ = self.samples_file("mlp", 5)
        config = base_config("mlp")
        rows, folder = self.trained(self.env.model("mlp"), self.env.data("mlp"), config, 2, 5)
        with open(os.path.join(folder, "config.resolved.json")) as file:
            resolved = file.read()
        row, _ = self.evaluate_only(self.env.model("mlp"), {**config, "data": {"eval": path}}, 2, "--resume", "auto",
                                    run_dir=folder)
        self.assertEqual(sorted(row), ["eval_loss", "eval_samples", "step"])
        self.assertEqual(harness.read_metrics(folder)[:-1], rows)
        with open(os.path.join(folder, "config.resolved.json")) as file:
            self.assertEqual(file.read(), resolved)
        again, _ = self.trained(self.env.model("mlp"), self.env.data("mlp"), config, 2, 8, folder, ["--resume", "auto"])
        self.assertEqual([r["step"] for r in again if "loss" in r], list(range(1, 9)))

    def test_without_evaluation_data_it_looks_at_the_training_data(self):
        row, _ = self.evaluate_only(self.env.model("mlp"), base_config("mlp"), 2, data=self.env.data("mlp"))
        expected = plain_mean(torch.jit.load(self.env.model("mlp")), harness.samples_of("mlp"))
        self.assert_near(row["eval_loss"], expected)

    def test_a_frozen_module_which_cannot_be_trained(self):
        path, tensors = self.samples_file("mlp", 9)
        frozen = self.env.path("frozen.pt")
        torch.jit.save(torch.jit.freeze(torch.jit.load(self.env.model("mlp")).eval()), frozen)
        row, _ = self.evaluate_only(frozen, {"data": {"eval": path}}, 2)
        self.assert_near(row["eval_loss"], plain_mean(torch.jit.load(self.env.model("mlp")), tensors))

    def test_one_document(self):
        path, _ = self.samples_file("mlp", 5)
        folder = self.env.run_dir()
        outcome = run(self.env.command(self.env.model("mlp"), None, {"data": {"eval": path}}, folder, 2, None,
                                       ["--eval_only", "--json", "--quiet"]))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual(json.loads(outcome.out)["last_metrics"], harness.read_metrics(folder)[-1])


class ByLabels(EvaluationTest):
    """"loss_average": "tokens": the mean over all labels that count, wherever they lie."""

    def config(self, **changes):
        return base_config("mlp", loss="cross_entropy", loss_average="tokens", **changes)

    def test_training_is_one_process_that_averages_over_the_whole_batch(self):
        data, _ = self.labelled("sparse.safetensors", ignored=0.6)
        for world, accumulation, stage in ((1, 3, 0), (2, 1, STAGES[-1]), (3, 3, STAGES[1]), (4, 1, 0)):
            with self.subTest(world=world, accumulation=accumulation, stage=stage):
                config = self.config(gradient_accumulation_steps=accumulation, zero_optimization={"stage": stage})
                whole = {**config, "gradient_accumulation_steps": 1}  # F.cross_entropy over all of it at once
                expected = one_process.train(self.classifier(), data, whole, 20)
                actual, _ = self.trained(self.classifier(), data, config, world, 20)
                for want, got in zip(expected, actual):
                    for key in ("loss", "grad_norm"):
                        self.assert_near(got[key], want[key], f"step {want['step']} {key}")

    def test_the_mean_of_means_is_another_number(self):
        data, _ = self.labelled("sparse.safetensors", ignored=0.6)
        by_batches, _ = self.trained(self.classifier(), data, base_config("mlp", loss="cross_entropy"), 4, 2)
        by_labels, _ = self.trained(self.classifier(), data, self.config(), 4, 2)
        self.assertGreater(abs(by_batches[0]["loss"] - by_labels[0]["loss"]), 1e-3)

    def test_a_micro_batch_without_labels_takes_part_and_counts_nothing(self):
        data, tensors = self.labelled("gap.safetensors", ignored=0.3)
        tensors["label"][:9] = -100  # the whole first micro batch of 4 ranks
        tensor_file.write(data, tensors)
        expected = one_process.train(self.classifier(), data, self.config(), 5)
        actual, _ = self.trained(self.classifier(), data, self.config(), 4, 5)
        for want, got in zip(expected, actual):
            self.assert_near(got["loss"], want["loss"], str(want["step"]))

    def test_labels_of_narrow_integers(self):
        data, tensors = self.labelled("wide.safetensors", ignored=0.6)
        expected = one_process.train(self.classifier(), data, self.config(), 3)
        narrow = self.env.path("narrow.safetensors")
        tensor_file.write(narrow, {**tensors, "label": tensors["label"].to(torch.int32)})
        actual, _ = self.trained(self.classifier(), narrow, self.config(), 2, 3)
        for want, got in zip(expected, actual):
            self.assert_near(got["loss"], want["loss"], str(want["step"]))

    def test_minus_100_is_a_number_to_mse(self):
        x = torch.randn(72, 6, generator=torch.Generator().manual_seed(5))
        labels = torch.where(x[:, :1] > 0, -100, 3)
        config = base_config("mlp", loss="mse", loss_average="tokens", gradient_accumulation_steps=3)
        model, paths = self.env.model("mlp", "script", "--returns", "output"), {}
        for dtype in (torch.int64, torch.float32):
            paths[dtype] = self.env.path(f"{dtype}.safetensors")
            tensor_file.write(paths[dtype], {"x": x, "y": labels.to(dtype)})
        expected = one_process.train(model, paths[torch.float32], config, 3)
        actual, _ = self.trained(model, paths[torch.int64], config, 2, 3)
        for want, got in zip(expected, actual):
            self.assert_near(got["loss"], want["loss"], str(want["step"]))

    def test_evaluation(self):
        for world, count in ((1, 23), (3, 23), (4, 3)):
            with self.subTest(world=world, count=count):
                path, tensors = self.labelled(f"eval-{count}.safetensors", count, ignored=0.4)
                logits = torch.jit.load(self.classifier()).eval()(tensors["x"])
                expected = torch.nn.functional.cross_entropy(logits, tensors["label"]).item()
                row, _ = self.evaluate_only(self.classifier(), {
                    "loss": "cross_entropy", "loss_average": "tokens", "train_micro_batch_size_per_gpu": 2,
                    "data": {"eval": path}}, world)
                self.assert_near(row["eval_loss"], expected)

    def gpt_data(self, empty=0):
        """Texts of unequal lengths, as padding leaves them; of the first `empty` ones nothing counts."""
        data, tensors = self.env.path("padded.safetensors"), harness.samples_of("gpt")
        labels = tensors["labels"].clone()
        lengths = torch.randint(1, labels.shape[1] + 1, (len(labels), 1), generator=torch.Generator().manual_seed(3))
        lengths[:empty] = 0
        labels[torch.arange(labels.shape[1]) >= lengths] = -100
        tensor_file.write(data, {**tensors, "labels": labels})
        return data

    def test_a_loss_that_forward_returns_weighs_by_the_labels_it_is_the_mean_of(self):
        data = self.gpt_data(empty=3)  # the first micro batch of 4 ranks, accumulation 3
        plain, masked = self.env.model("gpt"), self.env.path("masked_mean.pt")
        torch.manual_seed(5)
        torch.jit.script(MaskedMean()).save(masked)
        config = base_config("gpt", loss_average="tokens")
        # The model's mean over all of a batch at once.
        expectations = {model: one_process.train(model, data, config, 10) for model in (plain, masked)}
        for model, world, accumulation, stage in ((plain, 1, 3, 0), (plain, 4, 3, STAGES[-1]), (masked, 4, 3, STAGES[-1])):
            with self.subTest(model=model, world=world, accumulation=accumulation):
                expected = expectations[model]
                config = base_config("gpt", loss_average="tokens", gradient_accumulation_steps=accumulation,
                                     zero_optimization={"stage": stage})
                run_dir = self.env.run_dir()
                outcome = self.env.run(model, data, config, run_dir, world, 10)
                self.assertEqual(outcome.code, 0, str(outcome))
                for want, got in zip(expected, harness.read_metrics(run_dir)):
                    for key in ("loss", "grad_norm"):
                        self.assert_near(got[key], want[key], f"step {want['step']} {key}")
                self.assertEqual(outcome.text.count("counts as the mean over the labels of 'labels' that are not -100"), 1)

    def test_evaluation_of_a_loss_that_forward_returns(self):
        model, data = self.env.model("gpt"), self.gpt_data()
        tensors = tensor_file.read(data)
        expected = torch.jit.load(model).eval()(tensors["input_ids"], tensors["labels"]).item()
        row, _ = self.evaluate_only(model, {"loss_average": "tokens", "train_micro_batch_size_per_gpu": 2,
                                            "data": {"eval": data}}, 3)
        self.assert_near(row["eval_loss"], expected)

    def test_labels_that_nobody_names_cannot_be_counted(self):
        outcome = self.env.run(self.env.model("mlp"), self.env.data("mlp"),
                                        base_config("mlp", loss_average="tokens", data={"shuffle": False, "inputs": ["x", "y"]}),
                                        self.env.run_dir(), 2)
        self.assertEqual(outcome.code, 65, str(outcome))
        self.assertIn("set data.labels", outcome.text)


class Refusals(EvaluationTest):
    def refused(self, code, *words, config=None, extra=(), data=None):
        command = [program("dslaunch"), "--device", "cpu", "--config", self.env.config(config or base_config("mlp")),
                   "--run_dir", self.env.run_dir(), *extra, self.env.model("mlp")]
        outcome = run(command + (["--data", data] if data else []))
        self.assertEqual(outcome.code, code, str(outcome))
        self.assertNotIn("Traceback", outcome.text)
        for word in words:
            self.assertIn(word, outcome.text, str(outcome))

    def test_an_interval_without_data(self):
        self.refused(65, "eval_interval", "data.eval", data=self.env.data("mlp"),
                     config=base_config("mlp", train={"eval_interval": 3}))

    def test_only_evaluation_without_any_data(self):
        self.refused(65, "no data", extra=["--eval_only"])

    def test_only_evaluation_of_data_without_end(self):
        self.refused(65, "finite data", extra=["--eval_only"], config=base_config("mlp", data={
            "train": "synthetic", "synthetic": {"x": {"shape": [6]}, "y": {"shape": [1]}}}))

    def test_an_evaluation_set_that_does_not_fit_the_model(self):
        path = self.env.path("wide.safetensors")
        tensor_file.write(path, {"x": torch.zeros(4, 9), "y": torch.zeros(4, 1)})
        self.refused(65, "9", "6", config=base_config("mlp", data={"eval": path}), extra=["--eval_only"])

    def test_only_evaluation_from_a_checkpoint_that_is_not_there(self):
        self.refused(66, "no complete checkpoint", data=self.env.data("mlp"), extra=["--eval_only", "--resume", "auto"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
