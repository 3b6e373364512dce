#!/usr/bin/env python3
"""Recomputation changes no number: with "activation_checkpointing" every model case trains bit by bit as without.

By hand: DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/oracle/test_recomputation.py [Case.test...]"""
import os
import sys
import unittest

import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import model_cases  # noqa: E402
import tensor_file  # noqa: E402
import test_model_cases  # noqa: E402
import harness  # noqa: E402
from model_cases import Block, Regression  # noqa: E402

ON = {"activation_checkpointing": {"enabled": True}}
ACCUMULATION = 3  # of test_model_cases.config_of


def blocks_said(text):
    """(recomputed, blocks) of the line at the start."""
    for line in text.splitlines():
        if "blocks are recomputed" in line:
            words = line.split("activation_checkpointing: ")[1].split()
            return int(words[0]), int(words[2])
    return None


class RecomputationTest(test_model_cases.CaseTest):
    plain = {}

    def metrics_of(self, rows):
        return [(row["step"], row["loss"], row["grad_norm"]) for row in rows]

    def check_same(self, name, stage=1, **section):
        config = test_model_cases.config_of(name, zero_optimization={"stage": stage})
        if (name, stage) not in self.plain:
            self.plain[name, stage] = self.run_case(name, config)[0]
        rows, text = self.run_case(name, {**config, "activation_checkpointing": section or {"enabled": True}})
        self.assertEqual(self.metrics_of(self.plain[name, stage]), self.metrics_of(rows), f"{name} stage {stage} {section}")
        return text


class SameNumbers(RecomputationTest):
    """Bit by bit the run without recomputation; the second number is how many blocks are recomputed."""

    def recomputes(self, name, count, stage=1, **section):
        said = blocks_said(self.check_same(name, stage, **section))
        self.assertEqual(said and said[0], count, name)

    def test_plain_blocks_at_every_stage(self):
        for stage in (0, 1, 2, 3):
            self.recomputes("plain", 2, stage)
            self.recomputes("plain_trace", 2, stage)

    def test_dropout_repeats_its_random_numbers(self):
        self.recomputes("dropout", 2, 1)
        self.recomputes("dropout_trace", 2, 3)

    def test_batch_norm_updates_its_statistics_once(self):
        """Seen by the buffers, not by the losses: in train mode nothing reads them."""
        for name in ("batch_norm", "batch_norm_trace", "buffers"):
            self.recomputes(name, 2)
            saved = [self.saved_state(name, section) for section in ({}, ON)]
            self.assertEqual(sorted(saved[0]), sorted(saved[1]))
            for key in saved[0]:
                self.assertTrue(torch.equal(saved[0][key], saved[1][key]), f"{name}: {key}")

    def saved_state(self, name, section):
        config = test_model_cases.config_of(name, checkpoint={"at_end": True}, **section)
        _, folder = self.env.train(self.model(name), self.data(name), config, 2, 3)
        out = self.env.path(f"{name}{len(section)}.safetensors")
        done = harness.run([harness.program("dslaunch"), "consolidate", os.path.join(folder, "checkpoints"), out])
        self.assertEqual(done.code, 0, str(done))
        return tensor_file.read(out)

    def test_a_counter_passed_from_call_to_call(self):
        """A trace returns the counter that it counted in, and the next call of the block counts on in that."""
        torch.manual_seed(0)
        model, data, counts = self.env.path("counted.pt"), self.data("plain"), []
        torch.jit.trace(CalledAgain().train(), model_cases.example_of("plain"), check_trace=False).save(model)
        for section in ({}, ON):
            config = test_model_cases.config_of("plain", units=["NormedBlock"], checkpoint={"at_end": True}, **section)
            _, folder = self.env.train(model, data, config, 2, 3)
            counts.append(self.consolidated(folder)["block.norm.num_batches_tracked"])
        self.assertEqual(counts[1], counts[0])

    def test_units_that_work_in_place_on_their_input(self):
        self.recomputes("in_place", 2)
        self.recomputes("in_place", 2, 3)

    def test_tied_and_shared_parameters(self):
        """A module under two names is two modules in the file, tied: its parameters are the root's, so it is no unit."""
        for name, count in (("tied", 2), ("tied_trace", 2), ("shared_names", 2), ("read_outside", 2),
                            ("read_outside_trace", 2)):
            self.recomputes(name, count)
            self.recomputes(name, count, 3)

    def test_parameters_of_every_kind(self):
        for name, count in (("zero_size", 2), ("scalar", 2), ("mixed_dtype", 2), ("unused", 2), ("parameter_list", 2)):
            self.recomputes(name, count, 3)

    def test_frozen_blocks(self):
        """The one that is called twice is no unit in a trace."""
        for name, count in (("lora", 3), ("lora_trace", 3), ("frozen_between", 6), ("frozen_between_trace", 5)):
            for stage in (1, 3):
                self.recomputes(name, count, stage)

    def test_calls_of_every_kind(self):
        for name, count in (("used_twice", 2), ("called_twice", 2), ("skip_by_value", 3), ("skip_by_parity", 3), ("loop", 2),
                            ("no_grad", 2), ("no_grad_unit", 3), ("defaults", 3), ("own_method", 2), ("nested", 2),
                            ("hooked", 2)):
            self.recomputes(name, count)

    def test_values_of_every_kind(self):
        for name, count in (("tuples", 3), ("tuples_trace", 3), ("dicts", 2), ("mask_minimum", 2)):
            self.recomputes(name, count)

    def test_matmuls_that_depend_on_requires_grad(self):
        """matmul of three dims in another order of memory, as in attention, folds them only beside a weight that does."""
        if "cuda" in self.env.ranks(1):
            self.skipTest("attention's last bits differ there, as docs/config.md says")
        torch.manual_seed(5)
        model, data, losses = self.env.path("attending.pt"), self.env.path("attended.safetensors"), []
        ids = torch.randint(0, model_cases.VOCAB, (60, 7))
        tensor_file.write(data, {"ids": ids, "labels": (3 * ids + 1) % model_cases.VOCAB})
        torch.jit.script(Attending()).save(model)
        for section in ({}, ON):
            config = test_model_cases.config_of("plain", train_batch_size=2 * ACCUMULATION, units=["TransformerEncoder"],
                                                **section)
            losses.append(self.metrics_of(self.env.train(model, data, config, 1, 20)[0]))
        self.assertEqual(losses[1], losses[0])

    def test_groups_of_blocks(self):
        for name, stage in (("plain", 3), ("dropout_trace", 3), ("frozen_between", 3), ("batch_norm", 1), ("in_place", 3),
                            ("skip_by_parity", 3), ("called_twice", 2), ("tied", 3), ("tuples", 3)):
            self.assertIsNotNone(blocks_said(self.check_same(name, stage, number_checkpoints=1)), name)

    def test_blocks_that_modify_their_arguments_are_not_recomputed(self):
        for stage in (1, 3):
            self.recomputes("leaving", 0, stage)

    def test_models_without_blocks_report_that_nothing_is_recomputed(self):
        for name in ("no_blocks", "interface", "forked"):
            self.assertIn("activation_checkpointing has no effect", self.check_same(name))


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(model_cases.VOCAB, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, model_cases.VOCAB)

    def forward(self, ids, labels):
        return model_cases.token_loss(self.head(self.encoder(self.embedding(ids))), labels)


class NormedBlock(Block):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(model_cases.WIDTH)
        self.unused = nn.Parameter(torch.zeros(2))  # no other call of a trace reads it, so the block is a unit

    def forward(self, x):
        return self.norm(x + self.down(torch.tanh(self.up(x))))


class CalledAgain(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.head = NormedBlock(), nn.Linear(model_cases.WIDTH, 1)

    def forward(self, x, y):
        return ((self.head(self.block(self.block(x))) - y) ** 2).mean()


class Programs(RecomputationTest):
    def test_a_program_recomputes_as_a_pool_does(self):
        config = test_model_cases.config_of("dropout_trace", zero_optimization={"stage": 3}, **ON)
        folder = self.env.run_dir()
        outcome = harness.run(self.env.command(self.model("dropout_trace"), self.data("dropout_trace"), config, folder, 2, 8))
        self.assertEqual(outcome.code, 0, str(outcome))
        rows, text = self.run_case("dropout_trace", config)
        self.assertEqual(blocks_said(outcome.text), blocks_said(text))
        self.assertEqual(self.metrics_of(harness.read_metrics(folder)), self.metrics_of(rows))

    def test_a_refusal_ends_with_65(self):
        torch.manual_seed(0)
        path = self.env.path("refused.pt")
        torch.jit.script(InPlaceAfter()).save(path)
        config = test_model_cases.config_of("plain", **ON)
        outcome = harness.run(self.env.command(path, self.data("plain"), config, self.env.run_dir(), 2, 2))
        self.assertEqual(outcome.code, 65, str(outcome))
        self.assertIn("cannot recompute unit 'blocks.0': one of its arguments was changed in place", outcome.text)


class Settings(RecomputationTest):
    def calls(self, section):
        """Recomputed calls in one step, as `profile` counts them."""
        section = {**section, "profile": True}
        config = test_model_cases.config_of("plain", steps_per_print=1, activation_checkpointing=section)
        _, text = self.run_case("plain", config, steps=1)
        lines = [line for line in text.splitlines() if "recomputation: " in line]
        return int(lines[0].split("recomputation: ")[1].split()[0]) if lines else None

    def test_every_call_of_every_block_is_recomputed(self):
        self.assertEqual(self.calls({"enabled": True}), 2 * ACCUMULATION)
        self.assertEqual(self.calls({"number_checkpoints": 1}), 2 * ACCUMULATION)

    def test_one_buffer_for_saved_inputs(self):
        self.check_same("plain", contiguous_memory_optimization=True)
        self.check_same("skip_by_parity", contiguous_memory_optimization=True)
        self.check_same("in_place", 3, contiguous_memory_optimization=True, cpu_checkpointing=True)

    def test_the_sections_of_deepspeed_switch_it_on_and_off(self):
        text = self.check_same("plain", partition_activations=True)
        self.assertEqual(blocks_said(text), (2, 2))
        self.assertIn("has no effect beside recomputation: saved inputs are split among tensor ranks", text)
        self.assertEqual(blocks_said(self.check_same("plain", cpu_checkpointing=True)), (2, 2))
        self.assertEqual(blocks_said(self.check_same("plain", number_checkpoints=1)), (2, 2))
        off = {"partition_activations": False, "cpu_checkpointing": False, "profile": False}
        self.assertIsNone(blocks_said(self.check_same("plain", **off)))
        self.assertIsNone(blocks_said(self.check_same("plain", enabled=False, cpu_checkpointing=True)))


class InPlaceAfter(Regression):
    """Adds to what a block was given before its backward could use it. Its own backward does not need that tensor."""

    def __init__(self):
        super().__init__([Block(), Block()])

    def forward(self, x, y):
        x = x * 1.0 + 0.0 * self.head.weight.sum()
        out = self.blocks[0](x)
        x += 1.0
        return ((self.head(self.blocks[1](out)) - y) ** 2).mean()


class AppendBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x, seen: list[torch.Tensor]):
        out = torch.tanh(self.layer(x))
        seen.append(out)
        return out


class Appending(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([AppendBlock(), AppendBlock()])
        self.head = nn.Linear(6, 1)

    def forward(self, x, y):
        seen = torch.jit.annotate(list[torch.Tensor], [])
        for block in self.blocks:
            x = block(x, seen)
        return ((self.head(seen[0] + seen[1]) - y) ** 2).mean()


class GradientPenalty(Regression):
    """Asks for gradients in forward, so that backward comes to each block twice."""

    def __init__(self):
        super().__init__([Block(), Block()])

    def forward(self, x, y):
        x = x.detach().requires_grad_(True)
        out = x
        for block in self.blocks:
            out = block(out)
        out = self.head(out)
        slope = torch.autograd.grad([out.sum()], [x], create_graph=True)[0]
        assert slope is not None
        return ((out - y) ** 2).mean() + 0.1 * slope.square().mean()


class OverlapBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        x = self.layer(x)
        return x, x.view(-1)


class Overlapping(nn.Module):
    """What the blocks return is one memory twice, and is changed in place."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([OverlapBlock(), OverlapBlock()])
        self.head = nn.Linear(6, 1)

    def forward(self, x, y):
        for block in self.blocks:
            x, flat = block(x)
            x.mul_(1.5)
            x = x + flat.view_as(x)
        return ((self.head(x) - y) ** 2).mean()


class Refused(RecomputationTest):
    def run_module(self, module, section):
        torch.manual_seed(0)
        path, data = self.env.path("refused.pt"), self.data("plain")
        torch.jit.script(module()).save(path)
        config = test_model_cases.config_of("plain", **section)
        return self.env.run(path, data, config, self.env.run_dir(), 1, 2)

    def test_an_input_that_changes_before_backward_is_named(self):
        outcome = self.run_module(InPlaceAfter, ON)
        self.assertEqual(outcome.code, 65, str(outcome))
        self.assertIn("cannot recompute unit 'blocks.0': one of its arguments was changed in place", outcome.text)

    def test_outputs_that_share_memory_and_change_in_place_are_named(self):
        outcome = self.run_module(Overlapping, ON)
        self.assertEqual(outcome.code, 65, str(outcome))
        self.assertIn("cannot recompute unit 'blocks.1': two of its outputs share memory, and one of the two was changed",
                      outcome.text)

    def test_blocks_of_a_model_that_computes_gradients_are_not_recomputed(self):
        outcomes = [self.run_module(GradientPenalty, section) for section in (ON, {})]
        self.assertEqual([outcome.code for outcome in outcomes], [0, 0], str(outcomes[0]))
        self.assertIn("0 of 2 blocks are recomputed in backward; not 'blocks.0': the model computes gradients in its forward",
                      outcomes[0].text)

    def test_a_block_that_appends_to_its_argument_is_not_recomputed(self):
        outcome = self.run_module(Appending, ON)
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("0 of 2 blocks are recomputed", outcome.text)
        self.assertIn("'blocks.0': it changes a list or dict argument", outcome.text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
