#!/usr/bin/env python3
"""Models with unusual habits (model_cases.py): every one trains on two CPU ranks, most in the grid's pools (pooled.py), and
its loss and gradient norm at every step are those of plain PyTorch on the same file and samples.

By hand: DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/oracle/test_model_cases.py [Cases.test_tied...]"""
import json
import math
import os
import sys
import unittest
from typing import Dict, List, NamedTuple

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import model_cases  # noqa: E402
import one_process  # noqa: E402
import tensor_file  # noqa: E402
import harness  # noqa: E402
from pooled import PooledTest  # noqa: E402
from harness import BATCH  # noqa: E402

STEPS = 8
BOUND = 1e-5  # relative, fp32: what the order of additions may change
LOOSE = {"mixed_dtype": 2e-2}  # one layer in bf16: 8 bits of mantissa


def config_of(name, **changes):
    config = {
        "train_batch_size": BATCH,
        "gradient_accumulation_steps": 3,
        "gradient_clipping": 0.4,
        "optimizer": {"type": "AdamW", "params": {"lr": 5e-3, "weight_decay": 0.01}},
        "zero_optimization": {"stage": 1},
        "data": {"shuffle": False},
        "checkpoint": {"at_end": False},
    }
    config.update(model_cases.CASES[name].config)
    config.update(changes)
    return config


class CaseTest(PooledTest):
    def model(self, name):
        path = self.env.path(name + ".pt")
        return path if os.path.exists(path) else model_cases.export(name, path)

    def data(self, name):
        path = self.env.path(name + ".safetensors")
        if not os.path.exists(path):
            tensor_file.write(path, model_cases.CASES[name].samples(4 * BATCH))
        return path

    def run_case(self, name, config, world=2, steps=STEPS):
        """What a run prints and measures: (metrics, all text)."""
        folder = self.env.run_dir()
        outcome = self.env.run(self.model(name), self.data(name), config, folder, world, steps)
        self.assertEqual(outcome.code, 0, str(outcome))
        return harness.read_metrics(folder), outcome.text

    def consolidated(self, run_dir):
        return tensor_file.read(self.env.consolidate(run_dir, "consolidated.safetensors"))

    def expected(self, name, config, world, steps=STEPS):
        shares = world if model_cases.CASES[name].split else 1
        return one_process.train(lambda: model_cases.eager(name), self.data(name), config, steps, shares)

    def assert_close(self, expected, actual, bound, what, keys=("loss", "grad_norm")):
        self.assertEqual(len(expected), len(actual), what)
        for want, got in zip(expected, actual):
            for key in keys:
                self.assertTrue(math.isfinite(got[key]), f"{what} step {want['step']}: {key} is {got[key]}")
                difference = abs(want[key] - got[key]) / max(abs(want[key]), 1e-30)
                self.assertLessEqual(difference, bound, f"{what} step {want['step']}: {key} is {got[key]!r}, expected "
                                                        f"{want[key]!r}")

    def check(self, name, world=2, **changes):
        config = config_of(name, **changes)
        actual, _ = self.run_case(name, config, world)
        what = f"{name} {json.dumps(changes)}"
        self.assert_close(self.expected(name, config, world), actual, LOOSE.get(name, BOUND), what)


class Cases(CaseTest):
    """Every case in fp32; the methods are made below, one for each."""


def add_cases():
    for name in model_cases.CASES:
        setattr(Cases, "test_" + name, lambda self, name=name: self.check(name))


add_cases()


class Programs(CaseTest):
    """What a pool does is what the programs do, bit by bit; and with which code they end."""

    def started(self, path, data, config, steps=STEPS):
        folder = self.env.run_dir()
        return harness.run(self.env.command(path, data, config, folder, 2, steps)), folder

    def test_a_program_s_run_is_a_pool_s(self):
        for name, changes in (("batch_norm_trace", {}), ("mask_minimum_trace", {"bf16": {"enabled": True}}),
                              ("dropout", {"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}})):
            with self.subTest(name):
                config = config_of(name, **changes)
                config["data"] = {"shuffle": True, "eval": self.data(name)}
                outcome, folder = self.started(self.model(name), self.data(name), config)
                self.assertEqual(outcome.code, 0, str(outcome))
                pooled, text = self.run_case(name, config)
                self.assertEqual([self.numbers(row) for row in harness.read_metrics(folder)], list(map(self.numbers, pooled)))
                for line in text.splitlines():
                    if "out of range for bf16" in line:
                        self.assertIn(line.split(": ", 1)[1], outcome.text)

    def numbers(self, row):
        return {key: row.get(key) for key in ("step", "loss", "grad_norm", "lr", "eval_loss")}

    def test_exit_codes(self):
        for make, code, words in ((Clamping, 65, "writes to parameter 'layer.weight'"), (Hungry, 69, "out of memory in forward"),
                                  (Raising, 65, "ValueError: no batch is good enough")):
            with self.subTest(make.__name__):
                path = self.env.path(make.__name__ + ".pt")
                torch.jit.script(make()).save(path)
                outcome, _ = self.started(path, self.data("plain"), config_of("plain"), 1)
                self.assertEqual(outcome.code, code, str(outcome))
                self.assertIn(words, outcome.text)
                self.assertNotIn("step 1", outcome.text)


class Modes(CaseTest):
    """Train and eval mode of traces, and of modules that were saved in eval mode."""

    def evaluations(self, name, **changes):
        config = config_of(name, train={"eval_interval": 2}, **changes)
        config["data"] = {"shuffle": False, "eval": self.data(name)}
        rows, text = self.run_case(name, config, steps=6)
        return [row["eval_loss"] for row in rows if "eval_loss" in row], [row["loss"] for row in rows], text

    def test_evaluation_switches_off_what_a_trace_in_train_mode_has_baked_in(self):
        """The trace against the scripted module, which reads its flag itself."""
        for traced, scripted in (("dropout_trace", "dropout"), ("batch_norm_trace", "batch_norm")):
            found, expected = self.evaluations(traced), self.evaluations(scripted)
            self.assertEqual(len(found[0]), 3)
            self.assertEqual(found[:2], expected[:2], traced)

    def test_evaluation_in_the_middle_changes_nothing(self):
        for name in ("dropout_trace", "batch_norm_trace"):
            _, losses, _ = self.evaluations(name)
            rows, _ = self.run_case(name, config_of(name), steps=6)
            self.assertEqual(losses, [row["loss"] for row in rows], name)

    def test_attention_dropout_of_a_trace_is_off_in_evaluation(self):
        found, expected = self.evaluations("attention_trace"), self.evaluations("attention")
        self.assertEqual(found[:2], expected[:2])

    def test_a_trace_in_eval_mode_is_named(self):
        _, text = self.run_case("dropout_trace_eval", config_of("dropout_trace_eval"), steps=1)
        self.assertIn("traced in eval mode, so their dropout is lost: blocks.0.drop, blocks.1.drop", text)
        _, text = self.run_case("dropout_trace", config_of("dropout_trace"), steps=1)
        self.assertNotIn("eval mode", text)
        _, text = self.run_case("batch_norm_trace_eval", config_of("batch_norm_trace_eval"), steps=1)
        self.assertIn("so they normalise by their saved statistics: blocks.0.norm, blocks.1.norm", text)

    def test_modules_that_were_saved_in_eval_mode_stay_so_and_are_named(self):
        _, text = self.run_case("frozen_norm", config_of("frozen_norm"), steps=1)
        self.assertIn("kept in eval mode, as saved: blocks.0.norm, blocks.1.norm", text)

    def test_dropout_of_a_trace_that_holds_what_was_scripted_is_off_in_evaluation(self):
        for make in (HoldsScripted, HoldsExported):
            module = model_cases.Regression([make(), make()]).train()
            path, data = self.env.path(make.__name__ + ".pt"), self.data("plain")
            torch.jit.trace(module, model_cases.example_of("plain"), check_trace=False).save(path)
            config = config_of("plain", data={"shuffle": False, "eval": data}, checkpoint={"at_end": True})
            rows, folder = self.env.train(path, data, config, 1, 2)
            trained = torch.jit.load(self.env.consolidate(folder, make.__name__ + "-trained.pt")).eval()
            module.eval().load_state_dict(trained.state_dict())
            arrays = [tensor_file.read(data)[name] for name in ("x", "y")]
            for model in (module, trained):
                self.assertLessEqual(abs(rows[-1]["eval_loss"] / model(*arrays).item() - 1), BOUND, make.__name__)

    def test_stochastic_depth_of_a_trace_is_named(self):
        for make, found in ((DropsPath, True), (DropsPathByRand, True), (model_cases.Block, False)):
            path = self.env.path(make.__name__ + "-path.pt")
            module = model_cases.Regression([make(), make()]).train()
            torch.jit.trace(module, model_cases.example_of("plain"), check_trace=False).save(path)
            outcome = self.env.run(path, self.data("plain"), config_of("plain"), self.env.run_dir(), 1, 1)
            self.assertEqual(outcome.code, 0, str(outcome))
            self.assertEqual("so they drop in evaluation as well: blocks.0, blocks.1; " in outcome.text, found,
                             str(outcome))
            scripted = self.env.path(make.__name__ + "-scripted.pt")
            torch.jit.script(module).save(scripted)
            outcome = self.env.run(scripted, self.data("plain"), config_of("plain"), self.env.run_dir(), 1,
                                                     1)
            self.assertEqual(outcome.code, 0, str(outcome))
            self.assertNotIn("drop in evaluation", outcome.text)

    def test_batch_norms_that_average_over_all_batches(self):
        """momentum=None: scripted they do what PyTorch does, and a trace, which cannot, is told apart from others."""
        model = model_cases.build("batch_norm")
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.momentum = None
        path, data = self.env.path("averaging.pt"), self.data("batch_norm")
        torch.jit.script(model).save(path)
        config = config_of("batch_norm", checkpoint={"at_end": True})
        _, folder = self.env.train(path, data, config, 1, STEPS)
        trainer = one_process.Trainer([torch.jit.load(path)], one_process.Samples(data, config), config)
        for k in range(STEPS):
            trainer.step(k)
        found = self.consolidated(folder)
        for name, buffer in trainer.shares[0].model.named_buffers():
            torch.testing.assert_close(found[name], buffer, rtol=1e-5, atol=1e-6, msg=name)
        for batches in range(2):  # that they had seen before
            torch.jit.trace(model, model_cases.example_of("batch_norm"), check_trace=False).save(path)
            outcome = self.env.run(path, data, config, self.env.run_dir(), 1, 1)
            self.assertIn("looks like a trace of momentum=None: blocks.0.norm, blocks.1.norm; if so", outcome.text)
        _, text = self.run_case("batch_norm_trace", config_of("batch_norm_trace"), steps=1)
        self.assertNotIn("momentum=None", text)
        for momentum, batches in ((0.1, 9), (0.1, 10), (0.01, 100)):  # by chance 1 over these
            for module in model.modules():
                if isinstance(module, torch.nn.BatchNorm2d):
                    module.momentum = momentum
                    module.num_batches_tracked.fill_(batches)
            traced = torch.jit.trace(model, model_cases.example_of("batch_norm"), check_trace=False)
            for name, buffer in traced.named_buffers():
                if name.endswith("num_batches_tracked"):
                    buffer.fill_(batches)
            traced.save(path)
            outcome = self.env.run(path, data, config, self.env.run_dir(), 1, 1)
            self.assertEqual(outcome.code, 0, str(outcome))
            self.assertNotIn("momentum=None", outcome.text)


class Gate(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x) if x.dim() > 1 else x


class HoldsScripted(model_cases.Block):
    def __init__(self):
        super().__init__()
        self.gate = torch.jit.script(Gate())

    def forward(self, x):
        return x + torch.nn.functional.dropout(self.down(self.gate(self.up(x))), 0.9, self.training)


class HoldsExported(model_cases.Block):
    @torch.jit.export
    def predict(self, x):
        return torch.nn.functional.linear(x, self.up.weight)

    def forward(self, x):
        return x + torch.nn.functional.dropout(self.down(torch.tanh(self.up(x))), 0.9, self.training)


class DropsPath(model_cases.Block):
    def forward(self, x):
        change = self.down(torch.tanh(self.up(x)))
        if self.training:
            change = change * x.new_empty([x.shape[0], 1]).bernoulli_(0.8).div_(0.8)
        return x + change


class DropsPathByRand(model_cases.Block):
    def forward(self, x):
        change = self.down(torch.tanh(self.up(x)))
        if self.training:
            change = change.div(0.8) * (0.8 + torch.rand([x.shape[0], 1], dtype=x.dtype, device=x.device)).floor_()
        return x + change


class State(CaseTest):
    def test_what_no_checkpoint_keeps_is_named(self):
        path = self.env.path("counting.pt")
        torch.jit.script(Counting([model_cases.Block(), model_cases.Block()])).save(path)
        outcome = self.env.run(path, self.data("plain"), config_of("plain"), self.env.run_dir(), 1, 1)
        self.assertIn("attributes that are not tensors, so checkpoints do not store them and evaluations do not restore "
                      "them: calls, seen. Use buffers for state that matters", outcome.text)
        _, text = self.run_case("buffers", config_of("buffers"), steps=1)
        self.assertNotIn("checkpoints do not store them", text)


class Dropped(CaseTest):
    def test_max_norm_that_scripting_leaves_out_is_named(self):
        bound, free = self.env.path("bound.pt"), self.env.path("free.pt")
        torch.jit.script(Tables(1.0)).save(bound)
        torch.jit.script(Tables(None)).save(free)
        for path, found in ((bound, True), (free, False)):
            outcome = self.env.run(path, self.data("tied"), config_of("tied"), self.env.run_dir(), 1, 1)
            self.assertEqual(outcome.code, 0, str(outcome))
            self.assertEqual("scripting drops max_norm of embeddings, so their rows are not renormalised: one, two"
                             in outcome.text, found, str(outcome))


class Tables(torch.nn.Module):
    def __init__(self, max_norm):
        super().__init__()
        self.one = torch.nn.Embedding(model_cases.VOCAB, model_cases.VOCAB, max_norm=max_norm)
        self.two = torch.nn.EmbeddingBag(model_cases.VOCAB, model_cases.VOCAB, max_norm=max_norm)

    def forward(self, ids, labels):
        return model_cases.token_loss(self.one(ids) + self.two(ids).unsqueeze(1), labels)


class Consolidated(CaseTest):
    """A TorchScript file made of a checkpoint computes with the trained weights wherever the module holds them."""

    def test_weights_that_modules_hold_again_in_lists_and_dicts(self):
        for name in ("lstm", "held_outside"):
            with self.subTest(name):
                config = config_of(name, checkpoint={"at_end": True})
                rows, folder = self.env.train(self.model(name), self.data(name), config, 2, 4)
                out = self.env.consolidate(folder, name + "-trained.pt")
                expected = self.expected(name, config, 2, 5)[4]["loss"]
                loss = one_process.loss_at(torch.jit.load(out), self.data(name), config, 5)
                self.assertLessEqual(abs(loss - expected) / expected, BOUND)


    def test_a_trace_made_in_train_mode_follows_eval(self):
        """It kept its dropout, and the statistics of each batch, whatever was called on it."""
        for name in ("dropout_trace", "batch_norm_trace", "attention_trace"):
            with self.subTest(name):
                config = config_of(name, checkpoint={"at_end": True}, train={"eval_interval": 2})
                config["data"] = {"shuffle": False, "eval": self.data(name)}
                rows, folder = self.env.train(self.model(name), self.data(name), config, 2, 2)
                out = self.env.path(name + "-trained.pt")
                done = harness.run([harness.program("dslaunch"), "consolidate", os.path.join(folder, "checkpoints"), out])
                self.assertIn("is in train mode, as the model file was: call eval()", done.text)
                samples = one_process.Samples(self.data(name), config)
                arrays = [samples.take(names, slice(None), torch.float32) for names in (samples.inputs, samples.labels)]
                trained = torch.jit.load(out)
                with torch.no_grad(), torch.random.fork_rng():
                    torch.manual_seed(0)
                    loss = {mode: one_process.loss_of(trained.train(mode), config.get("loss"), *arrays).item()
                            for mode in (False, True)}
                self.assertLessEqual(abs(loss[False] / rows[-1]["eval_loss"] - 1), BOUND)
                self.assertGreater(abs(loss[True] / loss[False] - 1), 10 * BOUND)


class Half(CaseTest):
    """Masks whose minimum does not fit bf16: rows that are hidden as a whole would be NaN."""

    def test_mask_minima(self):
        for name in ("mask_minimum", "mask_filled_trace"):
            config = config_of(name, bf16={"enabled": True})
            rows, text = self.run_case(name, config)
            self.assertIn("are out of range for bf16 and were replaced by -1.695e+38", text)
            self.assert_close(self.expected(name, config_of(name), 2), rows, 5e-2, name, ["loss"])


    def test_a_mask_minimum_in_what_is_forked(self):
        path = self.env.path("forked_mask.pt")
        torch.manual_seed(0)
        torch.jit.script(ForkedMask([model_cases.Block()])).save(path)
        outcome = self.env.run(path, self.data("plain"), config_of("plain", bf16={"enabled": True}),
                                                 self.env.run_dir(), 2, 3)
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("1 constants of its graphs (minima of masks) are out of range for bf16", outcome.text)


def hide_all(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(torch.full_like(x, 1.0) * -3.4028234663852886e38, -1) * x


class ForkedMask(model_cases.Regression):
    def forward(self, x, y):
        hidden = torch.jit.fork(hide_all, x)
        return torch.nn.functional.mse_loss(self.head(self.blocks[0](x) + torch.jit.wait(hidden)), y)


class UnusualModels(CaseTest):
    """Modules of this file, trained by ranks and as plain modules."""

    def file_of(self, make, form="script"):
        path = self.env.path(f"{make.__name__}.pt")
        torch.jit.script(self.module_of(make)).save(path)
        return path

    def module_of(self, make):
        torch.manual_seed(0)
        return make([model_cases.Block(), model_cases.Block()]).train()

    def run_module(self, make, config, world=2, steps=STEPS, folder=None, extra=()):
        folder = folder or self.env.run_dir()
        outcome = self.env.run(self.file_of(make), self.data("plain"), config, folder, world, steps, extra)
        self.assertEqual(outcome.code, 0, str(outcome))
        return harness.read_metrics(folder), folder

    def check_module(self, make, world=2, steps=STEPS, **changes):
        config = config_of("plain", **changes)
        expected = one_process.train(lambda: self.module_of(make), self.data("plain"), config, steps, world)
        rows, folder = self.run_module(make, config, world, steps)
        self.assert_close(expected, rows, BOUND, f"{make.__name__} {json.dumps(changes)}")
        return folder

    def test_weights_that_units_hand_out(self):
        """They are put into a list, which is no change of them; at stage 3 they are read long after their unit was left."""
        for stage in (0, 3):
            self.check_module(HandsOutWeights, zero_optimization={"stage": stage})

    def test_units_without_gradients_of_their_own(self):
        """Backward goes through them and comes to none of their parameters; with one slot the unit before such a one needs
        its place in memory."""
        one_slot = {"stage": 3, "stage3_param_persistence_threshold": 0, "stage3_max_live_parameters": 0,
                    "stage3_prefetch_bucket_size": 0}
        for make in (Detaches, DetachesSometimes):
            for zero in (one_slot, {"stage": 1}):
                self.check_module(make, steps=3, zero_optimization=zero)

    def test_regions_under_autocast(self):
        """Which layers run in bf16 is the model's own choice; at dispatch, as in eager PyTorch."""
        halves = 2  # a factor of 1/3 on the loss would round otherwise in bf16
        self.check_module(AutocastRegions, gradient_accumulation_steps=halves)
        self.check_module(AutocastRegions, gradient_accumulation_steps=halves, zero_optimization={"stage": 3},
                          activation_checkpointing={"enabled": True})

    def test_a_region_without_autocast_in_a_run_with_it(self):
        config = config_of("plain", torch_autocast={"enabled": True, "dtype": "bfloat16"})
        rows, _ = self.run_module(NoAutocast, config)
        expected = one_process.train(lambda: self.module_of(NoAutocast), self.data("plain"), config_of("plain"), STEPS, 2)
        self.assert_close(expected, rows, BOUND, "all of it is in fp32")

    def test_convolutions_of_a_trace_under_autocast(self):
        """A trace holds them as another operator than a script does."""
        config = config_of("plain", torch_autocast={"enabled": True, "dtype": "bfloat16"})
        module, losses = self.module_of(Convolving), []
        for form, file in (("script", torch.jit.script(module)),
                           ("trace", torch.jit.trace(module, model_cases.example_of("plain"), check_trace=False))):
            path = self.env.path(f"convolving-{form}.pt")
            file.save(path)
            rows, _ = self.env.train(path, self.data("plain"), config, 2, STEPS)
            losses.append([row["loss"] for row in rows])
        self.assertEqual(*losses)

    def test_numbers_of_a_traced_loss_file(self):
        """Numbers of Python are no tensors of 64 bits, in a file that was traced neither."""
        path = self.env.path("traced_loss.pt")
        outputs, labels = torch.randn(6, 5), torch.arange(6) % 5
        torch.jit.trace(traced_loss, (outputs, labels)).save(path)
        config = config_of("named_loss", loss=path)
        rows, _ = self.env.train(self.model("named_loss"), self.data("named_loss"), config, 2, STEPS)
        plain = one_process.train(lambda: WithLoss(model_cases.build("named_loss")), self.data("named_loss"),
                                  config_of("named_loss", loss=None), STEPS, 2)
        self.assert_close(plain, rows, BOUND, "traced loss")

    def test_complex_and_expanded_buffers_are_saved_resumed_and_consolidated(self):
        save = {"checkpoint": {"at_end": True}}
        steps = 7  # of three micro steps, after which the angles have been multiplied 22 times
        folder = self.check_module(Rotating, steps=steps, **save)
        config = config_of("plain", **save)
        _, part = self.run_module(Rotating, config, steps=3)
        self.run_module(Rotating, config, steps=steps, folder=part, extra=["--resume", "auto"])
        weights = [self.consolidated(run_dir) for run_dir in (folder, part)]
        self.assertEqual(sorted(weights[0]), sorted(weights[1]))
        for name, value in weights[0].items():
            self.assertTrue(torch.equal(value, weights[1][name]), name)
        self.assertTrue(torch.equal(weights[0]["angles"], torch.tensor([-1, -1, 1 + 0j])))

    def test_an_evaluation_leaves_buffers_as_they_were(self):
        """Also those that share memory within themselves, and those that forward replaces in evaluation as well."""
        for make in (Rotating, Restless):
            with self.subTest(make=make.__name__):
                plain, _ = self.run_module(make, config_of("plain"))
                config = config_of("plain", train={"eval_interval": 1}, data={"shuffle": False, "eval": self.data("plain")})
                evaluated, _ = self.run_module(make, config)
                self.assertTrue(all("eval_loss" in row for row in evaluated))
                self.assertEqual([row["loss"] for row in plain], [row["loss"] for row in evaluated])

    def test_a_buffer_that_grows_does_not_keep_a_job_from_going_on(self):
        config = config_of("plain", checkpoint={"at_end": True}, zero_optimization={"stage": 2})
        whole, _ = self.run_module(Growing, config)
        _, folder = self.run_module(Growing, config, steps=3)
        resumed, _ = self.run_module(Growing, config, folder=folder, extra=["--resume", "auto"])
        self.assertEqual([row["loss"] for row in whole], [row["loss"] for row in resumed])

    def test_frozen_parameters_that_forward_writes_to(self):
        """They are saved as they have become, are whole at stage 3 too, and --verify has them for each rank."""
        config = config_of("plain", checkpoint={"at_end": True}, zero_optimization={"stage": 3})
        folder = self.check_module(Following, **{key: config[key] for key in ("checkpoint", "zero_optimization")})
        half = {**config, "bf16": {"enabled": True}}
        whole, done = self.run_module(Following, half, extra=["--verify", "3"])
        _, part = self.run_module(Following, half, steps=STEPS // 2)
        resumed, _ = self.run_module(Following, half, folder=part, extra=["--resume", "auto"])
        self.assertEqual([row["loss"] for row in whole], [row["loss"] for row in resumed])
        kept = self.consolidated(done), self.consolidated(part), self.consolidated(folder)
        start = self.module_of(Following).target.up.weight
        for weights in kept:
            self.assertTrue(torch.equal(weights["target.up.weight"], kept[0]["target.up.weight"]) or weights is kept[2])
            self.assertFalse(torch.equal(weights["target.up.weight"], start.to(weights["target.up.weight"].dtype)))
        torch.testing.assert_close(kept[2]["target.up.weight"], kept[0]["target.up.weight"].float(), rtol=0.1, atol=0.1)

    def test_what_the_model_takes_is_no_value_out_of_range(self):
        """Labels of the loss's own ignore_index; columns that go to tables of different sizes; choices made of one output."""
        generator = torch.Generator().manual_seed(3)
        rows = 4 * BATCH
        ids = torch.stack([torch.randint(0, size, (rows,), generator=generator) for size in (3, 40, 3)], 1)
        labels = torch.randint(-1, 3, (rows,), generator=generator)
        arrays = {"ids": ids, "labels": labels}
        path, data = self.env.path("columns.pt"), self.env.path("columns.safetensors")
        torch.manual_seed(0)
        module = Columns()
        torch.jit.script(module).save(path)
        tensor_file.write(data, arrays)
        config = config_of("plain", gradient_accumulation_steps=1)
        expected = one_process.train(lambda: torch.jit.load(path), data, config, STEPS, 2)
        rows, _ = self.env.train(path, data, config, 2, STEPS)
        self.assert_close(expected, rows, BOUND, "columns")
        for array, row, value in (("ids", (5, 0), 3), ("ids", (5, 1), 40), ("labels", (5,), -2), ("labels", (5,), 3)):
            wrong = {key: tensor.clone() for key, tensor in arrays.items()}
            wrong[array][row] = value
            tensor_file.write(data, wrong)
            outcome = self.env.run(path, data, config, self.env.run_dir(), 1, 1)
            self.assertEqual(outcome.code, 65, str(outcome))
            self.assertIn(f"array '{array}' of the data, sample 5", outcome.text)
            self.assertIn(f"the value {value} is out of range", outcome.text)

    def test_more_classes_in_the_second_dim_than_the_last_dim_is_long(self):
        """Linear layers that work on positions: the loss takes its classes from dim 1, as PyTorch has it."""
        generator = torch.Generator().manual_seed(4)
        positions, classes, rows = 5, 9, 4 * BATCH
        for between in ((), (3,)):
            x = torch.randn(rows, classes, *between, model_cases.WIDTH, generator=generator)
            y = torch.randint(0, classes, (rows, *between, positions), generator=generator)
            y[::7] = -100
            for loss in ("cross_entropy", None):
                name = f"positions_{len(between)}_{loss}"
                path, data = self.env.path(name + ".pt"), self.env.path(name + ".safetensors")
                torch.manual_seed(0)
                layer = torch.nn.Linear(model_cases.WIDTH, positions)
                torch.jit.script(torch.nn.Sequential(layer) if loss else PositionLoss(layer)).save(path)
                tensor_file.write(data, {"x": x, "y": y})
                # one micro batch on one rank: means over labels that count are means of nothing else
                config = config_of("plain", gradient_accumulation_steps=1, **({"loss": loss} if loss else {}))
                expected = one_process.train(lambda: torch.jit.load(path), data, config, STEPS, 1)
                found, _ = self.env.train(path, data, config, 1, STEPS)
                self.assert_close(expected, found, BOUND, name)

    def test_a_named_tuple_with_the_loss_behind_the_outputs(self):
        """Found by its name, with a single number of outputs and with more."""
        torch.manual_seed(0)
        torch.jit.script(NamedLoss()).save(self.env.path("named.pt"))
        for rows in (2, BATCH):
            config = config_of("plain", train_batch_size=rows, gradient_accumulation_steps=1)
            data = self.data("plain")
            expected = one_process.train(lambda: FirstLoss(torch.jit.load(self.env.path("named.pt"))), data, config, STEPS, 1)
            found, _ = self.env.train(self.env.path("named.pt"), data, config, 2, STEPS)
            self.assert_close(expected, found, BOUND, f"{rows} rows")

    def test_a_loss_file_resumes_to_the_bit(self):
        """No executor that runs its graph otherwise from the third call on."""
        path = self.env.path("loss.pt")
        torch.jit.script(SoftLoss()).save(path)
        config = config_of("named_loss", loss=path, bf16={"enabled": True}, checkpoint={"at_end": True})
        model, data = self.model("named_loss"), self.data("named_loss")
        rows, _ = self.env.train(model, data, config, 2, STEPS)
        part, folder = self.env.train(model, data, config, 2, 3)
        resumed, _ = self.env.train(model, data, config, 2, STEPS, folder, ["--resume", "auto"])
        self.assertEqual([row["loss"] for row in rows], [row["loss"] for row in resumed])
        self.assertEqual([row["grad_norm"] for row in rows], [row["grad_norm"] for row in resumed])


class Outputs(NamedTuple):
    logits: torch.Tensor
    loss: torch.Tensor


class NamedLoss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(model_cases.WIDTH, 1)

    def forward(self, x, y):
        outputs = self.layer(x)
        return Outputs(outputs, torch.nn.functional.mse_loss(outputs, y))


class FirstLoss(torch.nn.Module):
    """As plain PyTorch's loop has it: `model(x, y).loss`."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, y):
        return self.model(x, y).loss


class PositionLoss(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, y):
        return torch.nn.functional.cross_entropy(self.layer(x), y)


class HandsOut(model_cases.Block):
    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x))), self.up.weight


class HandsOutWeights(model_cases.Regression):
    def __init__(self, _):
        super().__init__([HandsOut(), HandsOut()])

    def forward(self, x, y):
        weights = torch.jit.annotate(List[torch.Tensor], [])
        for block in self.blocks:
            x, weight = block(x)
            weights.append(weight)
        penalty = (weights[1] @ weights[0].t()).square().mean()
        return torch.nn.functional.mse_loss(self.head(x), y) + 0.01 * penalty


class DetachedBlock(model_cases.Block):
    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x))).detach()


class Detaches(model_cases.Regression):
    """With one such block called twice, on an input that is changed in place in between."""

    def __init__(self, blocks):
        super().__init__([blocks[0], DetachedBlock(), DetachedBlock(), blocks[1], DetachedBlock()])

    def forward(self, x, y):
        for block in self.blocks:
            x = block(x)
            x[:, :3].mul_(0.5)
            x = x + block(x.flip(1))
        return torch.nn.functional.mse_loss(self.head(x), y)


class SplitBlock(model_cases.Block):
    """Its weights see no gradient, or those of half of its calls do, which come in two inputs."""

    def forward(self, x, state, detaches: bool):
        change = self.down(torch.tanh(self.up(x + state)))
        if detaches:
            change = change.detach()
        return x * 0.9 + change, state + change


class DetachesSometimes(model_cases.Regression):
    def __init__(self, _):
        super().__init__([SplitBlock(), SplitBlock(), SplitBlock()])

    def forward(self, x, y):
        state = torch.tanh(x)
        for round in range(2):
            for i, block in enumerate(self.blocks):
                x, state = block(x, state, i == 1 or i == round)
        return torch.nn.functional.mse_loss(self.head(x + state), y)


class Growing(model_cases.Regression):
    """A table that is made when it is needed, and then moves."""
    table: torch.Tensor

    def __init__(self, blocks):
        super().__init__(blocks)
        self.register_buffer("table", torch.zeros(0))

    def forward(self, x, y):
        if self.table.numel() < x.shape[1]:
            self.table = 0.1 * torch.arange(x.shape[1], dtype=x.dtype, device=x.device)
        self.table += 0.01
        x = x + self.table
        for block in self.blocks:
            x = block(x)
        return torch.nn.functional.mse_loss(self.head(x), y)


class Counting(model_cases.Regression):
    seen: List[int]

    def __init__(self, blocks):
        super().__init__(blocks)
        self.calls, self.seen = 0, [0]

    def forward(self, x, y):
        self.calls += 1
        self.seen.append(x.shape[0])
        for block in self.blocks:
            x = block(x)
        return torch.nn.functional.mse_loss(self.head(x), y) / self.calls


class Following(model_cases.Regression):
    """A target network without gradients that moves towards a trained block in every forward."""

    def __init__(self, blocks):
        super().__init__(blocks)
        self.target = model_cases.Block().requires_grad_(False)

    def forward(self, x, y):
        if self.training:
            with torch.no_grad():
                self.target.up.weight.mul_(0.9).add_(0.1 * self.blocks[0].up.weight)
                self.target.down.bias.copy_(self.blocks[0].down.bias)
        aim = self.target(x)
        for block in self.blocks:
            x = block(x)
        return torch.nn.functional.mse_loss(self.head(x), y) + 0.1 * torch.nn.functional.mse_loss(x, aim)


class AutocastRegions(model_cases.Regression):
    def forward(self, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.blocks[0](x)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
                x = self.blocks[1](x.float())
        return torch.nn.functional.mse_loss(self.head(x), y)


class NoAutocast(model_cases.Regression):
    def forward(self, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
            for block in self.blocks:
                x = block(x)
            return torch.nn.functional.mse_loss(self.head(x), y)


class Rotating(model_cases.Regression):
    """A complex buffer, as rotary embeddings keep one, that turns with every call, and one that is expanded."""
    angles: torch.Tensor

    def __init__(self, blocks):
        super().__init__(blocks)
        self.register_buffer("turn", torch.tensor([1j, -1j, 1 + 0j]))
        self.register_buffer("angles", self.turn.clone())
        self.register_buffer("scale", torch.full((1,), 0.5).expand(6))
        self.always = False

    def forward(self, x, y):
        if self.training or self.always:
            self.angles = self.angles * self.turn
        x = self.scale * torch.view_as_real(torch.view_as_complex(x.reshape(x.shape[0], 3, 2)) * self.angles).flatten(1)
        for block in self.blocks:
            x = block(x)
        return torch.nn.functional.mse_loss(self.head(x), y)


class Restless(Rotating):
    def __init__(self, blocks):
        super().__init__(blocks)
        self.always = True


class Columns(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.few, self.many = torch.nn.Embedding(3, 4), torch.nn.Embedding(40, 4)
        self.classes, self.choice = torch.nn.Linear(4, 3), torch.nn.Linear(4, 1)

    def forward(self, ids, labels):
        x = self.few(ids[:, 0]) + self.many(ids[:, 1:2]).squeeze(1) + self.few(ids[..., -1])
        loss = torch.nn.functional.cross_entropy(self.classes(x), labels, ignore_index=-1)
        pairs = self.choice(torch.tanh(x)).view(-1, 2)
        return loss + torch.nn.functional.cross_entropy(pairs, labels[:pairs.shape[0]] % 2)


class Convolving(model_cases.Regression):
    """A convolution behind a layer that autocast computes in bf16."""

    def __init__(self, blocks):
        super().__init__(blocks)
        self.conv = torch.nn.Conv1d(1, 1, 3, padding=1)

    def forward(self, x, y):
        for block in self.blocks:
            x = self.conv(block.up(x).unsqueeze(1)).squeeze(1)[:, :6] + x
        return torch.nn.functional.mse_loss(self.head(x), y)


def traced_loss(outputs, labels):
    penalty = torch.stack([0.1 * outputs.square().mean(), outputs.mean()])
    return torch.nn.functional.cross_entropy(outputs, labels) + penalty @ torch.ones_like(outputs[0, :2])


class WithLoss(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x, labels):
        return traced_loss(self.module(x), labels)


class SoftLoss(torch.nn.Module):
    def forward(self, outputs, labels):
        shifted = torch.tanh(outputs * 0.3) * torch.sigmoid(outputs) + outputs * 1.7
        return -(torch.log_softmax(shifted, -1).gather(1, labels[:, None]) * torch.sigmoid(shifted.mean())).mean()


class Refused(CaseTest):
    """What cannot be trained as it stands is refused at load, with the name of the culprit."""

    def refusal(self, make, text, trace=False, saves=False, code=65, **changes):
        path = self.env.path("refused.pt")
        torch.manual_seed(0)
        module = torch.jit.trace(make(), model_cases.example_of("plain")) if trace else torch.jit.script(make())
        module.save(path)
        config = config_of("plain", gradient_accumulation_steps=1, checkpoint={"at_end": saves}, **changes)
        outcome = self.env.run(path, self.data("plain"), config, self.env.run_dir(), 1, 1)
        self.assertEqual(outcome.code, code, str(outcome))
        self.assertIn(text, outcome.text)
        self.assertNotIn("step 1", outcome.text)

    def test_parameters_that_forward_writes_to(self):
        self.refusal(Clamping, "writes to parameter 'layer.weight'")
        self.refusal(Assigning, "writes to parameter 'gain'")
        self.refusal(Renormed, "writes to parameter 'table.weight'", trace=True)  # script drops max_norm

    def test_memory_that_is_shared_without_being_tied(self):
        self.refusal(Transposed, "parameters 'a' and 'b' share memory")
        self.refusal(Peeking, "'window' shares memory with parameter 'layer.weight'")
        self.refusal(Detached, "'held' shares memory with parameter 'layer.weight'")
        self.refusal(InObject, "'basket' shares memory with parameter 'layer.weight'")

    def test_numbers_that_cannot_be_trained(self):
        self.refusal(Complex, "parameter 'z' is ComplexFloat; only real floating point numbers can be trained: store "
                              "torch.view_as_real of it")

    def test_numbers_that_no_checkpoint_can_hold(self):
        """At the start, not after the training."""
        self.refusal(Precise, "buffer 'z' is ComplexDouble, which a checkpoint cannot store", saves=True)

    def test_tensors_without_values_of_their_own(self):
        with torch.device("meta"):
            hollow = Small()
        self.refusal(lambda: hollow, "has no values: 'layer.weight' was saved from the device \"meta\"")
        self.refusal(Sparse, "has 'links', which is Sparse")

    def test_a_file_in_16_bits_in_a_run_in_32(self):
        self.refusal(lambda: Small().half(), "set fp16.enabled or bf16.enabled, or export the model with .float()")

    def test_number_types_that_do_not_meet(self):
        """What to do depends on what the run does already."""
        half = {"bf16": {"enabled": True}}
        self.refusal(FixedType, "layer: linear takes operands of one type, and got fp32 and bf16. A trace keeps", **half)
        self.refusal(FixedType, "torch.zeros without a dtype creates fp32): export it in the dtype of this run, or train it in "
                                "fp32 or with torch_autocast", **half)
        self.refusal(NotInHalf, "PyTorch does not have this operator in 16 bits on this device: train it in fp32 or with "
                                "torch_autocast", **half)
        self.refusal(NotInHalf, "not have this operator in 16 bits on this device: train it in fp32\n",
                     torch_autocast={"enabled": True, "dtype": "bfloat16"})

    def test_a_trace_of_what_ran_without_gradients(self):
        self.refusal(Spectral, "A trace loses torch.no_grad(): script the model, or trace it in eval mode", trace=True)

    def test_parametrizations_in_a_script(self):
        self.refusal(Parametrized, "Parametrization is not working with scripting. PyTorch cannot script modules of "
                                   "torch.nn.utils.parametrizations: trace the model")

    def test_an_evaluation_that_asks_for_gradients(self):
        path = self.env.path("penalty.pt")
        torch.jit.script(Penalty()).save(path)
        config = config_of("plain", data={"shuffle": False, "eval": self.data("plain")})
        outcome = self.env.run(path, self.data("plain"), config, self.env.run_dir(), 1, 1)
        self.assertEqual(outcome.code, 65, str(outcome))
        self.assertIn("An evaluation computes without gradients", outcome.text)

    def test_a_trace_that_counted_its_examples(self):
        self.refusal(CountsRows, "use x.shape[0] itself, or script the model", trace=True)

    def test_a_name_that_torchscript_cannot_read_again(self):
        """It writes the file without a word."""
        named = Small()
        named.add_module("größe", torch.nn.Linear(6, 1))
        named.forward = lambda x, y: ((getattr(named, "größe")(x) - y) ** 2).mean()
        self.refusal(lambda: named, 'ill formed octal specifier: gr____e = getattr(self, "gr', trace=True)

    def test_arguments_that_are_no_tensors(self):
        self.refusal(TakesDict, "arrays are passed one by one, as tensors: wrap the model in a module whose forward accepts tensors")

    def test_what_the_model_itself_raises(self):
        self.refusal(Raising, "failed on inputs Float[36, 6], Float[36, 1]: ValueError: no batch is good enough")
        self.refusal(Asserting, "AssertionError: one row only")

    def test_more_memory_than_there_is(self):
        self.refusal(Hungry, "out of memory in forward on Float[36, 6], Float[36, 1]:", code=69)

    def test_what_autograd_refuses(self):
        self.refusal(Overwriting, "backward of the model failed: one of the variables needed for gradient computation")


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 1)

    def forward(self, x, y):
        return ((self.layer(x) - y) ** 2).mean()


class TakesDict(Small):
    def forward(self, batch: Dict[str, torch.Tensor]):
        return ((self.layer(batch["x"]) - batch["y"]) ** 2).mean()


class Spectral(Small):
    def __init__(self):
        super().__init__()
        torch.nn.utils.parametrizations.spectral_norm(self.layer)

    def forward(self, x, y):
        return ((self.layer(x) - y) ** 2).mean()


class Parametrized(Small):
    def __init__(self):
        super().__init__()
        torch.nn.utils.parametrizations.weight_norm(self.layer)

    def forward(self, x, y):
        return ((self.layer(x) - y) ** 2).mean()


class Penalty(Small):
    def forward(self, x, y):
        z = x.detach().requires_grad_()
        slope = torch.autograd.grad([self.layer(z).sum()], [z], create_graph=True)[0]
        assert slope is not None
        return ((self.layer(x) - y) ** 2).mean() + slope.square().mean()


class CountsRows(Small):
    def forward(self, x, y):
        return ((self.layer(x).reshape(len(x)) - y.reshape(len(x))) ** 2).mean()


class Hungry(Small):
    def forward(self, x, y):
        return ((self.layer(x) - y) ** 2).mean() + x.new_empty([1 << 46])[0]


class FixedType(Small):
    def forward(self, x, y):
        return ((self.layer(x + torch.zeros(6)) - y) ** 2).mean()


class NotInHalf(Small):
    def forward(self, x, y):
        return (torch.linalg.slogdet(self.layer(x)[:1])[1] - y).square().mean()


class Clamping(Small):
    def forward(self, x, y):
        with torch.no_grad():
            self.layer.weight.clamp_(-1.0, 1.0)
        return ((self.layer(x) - y) ** 2).mean()


class Assigning(Small):
    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(1))

    def forward(self, x, y):
        loss = ((self.layer(x) * self.gain - y) ** 2).mean()
        self.gain = self.gain * 0.9
        return loss


class Renormed(Small):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(3, 1, max_norm=1.0)

    def forward(self, x, y):
        return ((self.layer(x) + self.table(torch.zeros(1, dtype=torch.int64)) - y) ** 2).mean()


class Transposed(Small):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.randn(6, 6))
        self.b = torch.nn.Parameter(self.a.detach().t())

    def forward(self, x, y):
        return ((self.layer(x @ self.a @ self.b) - y) ** 2).mean()


class Peeking(Small):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", self.layer.weight.detach()[:, :3])

    def forward(self, x, y):
        return ((self.layer(x) + x[:, :3] @ self.window.t() - y) ** 2).mean()


class Detached(Small):
    """In plain PyTorch this penalty gives no gradient."""
    held: List[torch.Tensor]

    def __init__(self):
        super().__init__()
        self.held = [self.layer.weight.detach()]

    def forward(self, x, y):
        return ((self.layer(x) - y) ** 2).mean() + self.held[0].square().mean()


class InObject(Small):
    def __init__(self):
        super().__init__()
        self.basket = model_cases.Basket()
        self.basket.put(self.layer.weight)

    def forward(self, x, y):
        return ((self.layer(x) - y) ** 2).mean() + self.basket.parts[0].square().mean()


class Complex(Small):
    def __init__(self):
        super().__init__()
        self.z = torch.nn.Parameter(torch.ones(1, dtype=torch.complex64))

    def forward(self, x, y):
        return ((self.layer(x) * self.z.abs() - y) ** 2).mean()


class Precise(Small):
    def __init__(self):
        super().__init__()
        self.register_buffer("z", torch.ones(1, dtype=torch.complex128))


class Sparse(Small):
    def __init__(self):
        super().__init__()
        self.register_buffer("links", torch.eye(6).to_sparse())


class Raising(Small):
    def forward(self, x, y):
        if x.dim() == 2:
            raise ValueError("no batch is good enough")
        return ((self.layer(x) - y) ** 2).mean()


class Asserting(Small):
    def forward(self, x, y):
        assert x.shape[0] == 1, "one row only"
        return ((self.layer(x) - y) ** 2).mean()


class Overwriting(Small):
    def forward(self, x, y):
        z = torch.exp(self.layer(x))
        z.mul_(2.0)
        return ((z - y) ** 2).mean()


if __name__ == "__main__":
    unittest.main(verbosity=2)
