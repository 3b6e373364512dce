#!/usr/bin/env python3
"""What must not matter to a run's numbers: which rank holds which share, how the batch is split, and a change of world
size, stage or both in mid-run through a checkpoint, also where the precision changes there. Each run is compared with
another run, without any oracle."""
import itertools
import os
import shutil
import sys
import tempfile
import unittest

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, "oracle"), os.path.join(TESTS, "support/python")]

import light_torch  # noqa: E402,F401
import torch  # noqa: E402

import checkpoint_state  # noqa: E402
import dimensions  # noqa: E402
import comparison  # noqa: E402
import model_cases  # noqa: E402
import run_grid  # noqa: E402
import tensor_file  # noqa: E402
import harness  # noqa: E402
from dimensions import STEPS  # noqa: E402
from pooled import pool  # noqa: E402

BATCH = dimensions.batch_of(1)


def case_of(world=1, stage=0, accumulation=1, precision="fp32", model="plain", optimizer="AdamW", clipping=0.05):
    return dimensions.Case(world, accumulation, clipping, precision, model, optimizer, "default", 1, 1, "1f1b", stage)


def runs_here(case):
    return dimensions.expected_refusal(case) is None


class Metamorphic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.files = run_grid.GridFiles()

    @classmethod
    def tearDownClass(cls):
        cls.files.close()

    def train(self, case, run_dir=None, steps=STEPS, data=None, resume="", changes=None):
        """Final state and rows of a run, or of its continuation in `run_dir`."""
        folder = run_dir or self.files.run_dir()
        config = dimensions.merged(self.files.config(case), changes or {})
        if data is not None:
            config["data"]["train"] = data
        ending = pool(case.world).run(self.files.model(case.model), config, folder, steps, resume)
        self.assertEqual(ending.code, 0, f"{case}: {ending.message}")
        state, _ = checkpoint_state.read(checkpoint_state.newest(folder))
        rows = harness.read_metrics(folder)
        if run_dir is None:
            shutil.rmtree(folder)
        return state, rows

    def start_of(self, case):
        parameters = torch.jit.load(self.files.model(case.model)).named_parameters()
        return {name: p.detach().float() for name, p in parameters if p.requires_grad}

    def assert_near(self, got, want, case):
        expected = want[0]["master"]
        whole, worst, name = comparison.deviations(got[0]["master"], expected, self.start_of(case), case.precision)
        whole_bound, one_bound = comparison.BOUNDS[case.precision]["one"]
        self.assertLessEqual(whole, whole_bound, f"{case}: worst is {name}, {worst:.2e}")
        self.assertLessEqual(worst, one_bound, f"{case}: {name}")
        self.assertEqual([row["step"] for row in got[1]], [row["step"] for row in want[1]])
        for ours, theirs in zip(got[1], want[1]):
            self.assertTrue(comparison.near(ours["loss"], theirs["loss"], comparison.ROW_BOUNDS[case.precision]),
                            f"{case}: {ours} is not {theirs}")

    def assert_same_bits(self, got, want, case):
        self.assertEqual(list(comparison.check_same_bits(got, want)), [], str(case))


class Ranks(Metamorphic):
    def permuted(self, case, order):
        """The samples in such an order that rank r gets what rank order[r] had, in every micro batch of every step."""
        arrays = model_cases.CASES[case.model].samples(dimensions.samples_of(case.world))
        share = BATCH // case.world // case.accumulation
        count = len(next(iter(arrays.values())))
        rows = torch.arange(count)
        whole = count // BATCH * BATCH
        rows[:whole] = rows[:whole].view(-1, case.world, share)[:, list(order)].reshape(-1)
        path = os.path.join(self.files.folder, f"permuted-{case.model}-{case.world}-{case.accumulation}.safetensors")
        tensor_file.write(path, {name: array[rows] for name, array in arrays.items()})
        return path

    def test_permuting_ranks_changes_rounding_only(self):
        """Each pair of a world, a stage and a model."""
        for number, (world, order) in enumerate(((2, (1, 0)), (3, (2, 0, 1)), (4, (2, 3, 1, 0)))):
            for stage in dimensions.STAGES:
                model = ("plain", "tied", "batch_norm")[(number + stage) % 3]
                case = case_of(world, stage, accumulation=1 + 2 * (stage % 2), model=model)
                if runs_here(case):
                    with self.subTest(case=str(case)):
                        self.assert_near(self.train(case, data=self.permuted(case, order)), self.train(case), case)


class Splits(Metamorphic):
    SPLITS = ((1, 4), (1, 36), (2, 1), (2, 9), (3, 2), (3, 12), (4, 1), (4, 3))  # (world, accumulation)

    def test_every_split_of_a_batch_gives_the_same_numbers(self):
        for turn, (model, optimizer) in enumerate((("plain", "AdamW"), ("tied", "SGD"), ("odd", "Adam"))):
            want = self.train(case_of(model=model, optimizer=optimizer))
            for number, (world, accumulation) in list(enumerate(self.SPLITS))[turn % 2::2]:
                case = case_of(world, number % 4, accumulation, model=model, optimizer=optimizer)
                if runs_here(case):
                    with self.subTest(case=str(case)):
                        self.assert_near(self.train(case), want, case)


class Resumed(Metamorphic):
    # (world, stage) of each part of a run; the parts follow one another through checkpoints.
    PATHS = (((2, 1), (2, 1)), ((1, 0), (3, 1), (2, 0)), ((4, 3), (1, 0)), ((2, 2), (4, 3), (3, 1)), ((3, 3), (2, 2)),
             ((1, 3), (4, 2)), ((3, 0), (4, 1), (1, 2), (2, 3)))

    def travel(self, path, template, changes=None, precisions=None):
        """A run of STEPS steps in parts of about equal length; each with its own precision where `precisions` are given."""
        folder, numbers = self.files.run_dir(), None
        for i, (world, stage) in enumerate(path):
            case = template._replace(world=world, stage=stage, precision=(precisions or [template.precision] * len(path))[i])
            steps = STEPS * (i + 1) // len(path)
            numbers = self.train(case, folder, steps, resume="auto" if i else "", changes=changes)
        shutil.rmtree(folder)
        return numbers

    def test_world_size_and_stage_may_change_in_mid_run(self):
        for turn, (model, optimizer, precision) in enumerate((
                ("plain", "AdamW", "fp32"), ("frozen", "SGD", "fp32"), ("tied", "Adam", "fp32"), ("odd", "AdamW", "bf16"),
                ("plain", "AdamW", "fp16"))):
            template = case_of(model=model, optimizer=optimizer, precision=precision)
            if not runs_here(template):
                continue
            want = self.train(template)
            for path in self.PATHS[turn % 2::2]:
                if all(runs_here(template._replace(world=world, stage=stage)) for world, stage in path):
                    with self.subTest(model=model, precision=precision, path=path):
                        self.assert_near(self.travel(path, template), want, template)

    def test_precision_may_change_in_mid_run_with_world_size_and_stage(self):
        """Where the precision changes is part of the job; where the ranks and stages change is not."""
        paths = itertools.cycle((((2, 1), (3, 3), (1, 2), (4, 0)), ((4, 2), (1, 0), (3, 1), (2, 3)),
                                 ((3, 3), (2, 3), (4, 1), (1, 1))))
        for precisions in (("fp32", "bf16"), ("bf16", "fp32"), ("fp16", "bf16"), ("fp32", "fp16", "bf16", "fp32")):
            for model, optimizer in (("plain", "AdamW"), ("tied", "SGD")):
                template = case_of(model=model, optimizer=optimizer)
                half = template._replace(precision=max(precisions, key=lambda name: name != "fp32"))
                want = self.travel([(1, 0)] * len(precisions), template, precisions=precisions)
                path = next(paths)[:len(precisions)]
                with self.subTest(model=model, precisions=precisions, path=path):
                    self.assert_near(self.travel(path, template, precisions=precisions), want, half)

    def test_a_pause_in_the_same_world_and_stage_changes_no_bit(self):
        # No model whose buffers feed back into its numbers: a checkpoint keeps those of rank 0 (docs/numerics.md).
        for number, (world, model, precision) in enumerate(((1, "plain", "fp32"), (2, "dropout", "fp32"),
                                                            (3, "batch_norm", "fp32"), (4, "tied", "bf16"),
                                                            (2, "plain", "fp16"))):
            for stage in dimensions.STAGES[number % 2::2]:
                case = case_of(world, stage, accumulation=3, model=model, precision=precision)
                if not runs_here(case):
                    continue
                with self.subTest(case=str(case)):
                    shuffled = {"data": {"shuffle": True, "seed": 5}}
                    self.assert_same_bits(self.travel([(world, stage)] * 3, case, shuffled),
                                          self.train(case, changes=shuffled), case)


class Offloaded(Metamorphic):
    def offloaded(self, stage, **more):
        sections = {"offload_optimizer": {"device": "cpu", **more}}
        return {"zero_optimization": {**sections, **({"offload_param": {"device": "cpu"}} if stage == 3 else {})}}

    def test_where_state_rests_changes_no_bit(self):
        for number, (world, model, precision, optimizer) in enumerate((
                (1, "plain", "fp32", "AdamW"), (2, "tied", "bf16", "SGD"), (3, "odd", "fp16", "Adam"),
                (2, "frozen", "fp32", "Lion"), (4, "plain", "bf16", "Adagrad"), (2, "dropout", "fp16", "AdamW"))):
            for stage in (1, 2, 3):
                case = case_of(world, stage, 1 + 2 * (number % 2), precision, model, optimizer)
                with self.subTest(case=str(case)):
                    ratio = {"ratio": 0.5} if stage == 3 and number % 2 else {}
                    self.assert_same_bits(self.train(case, changes=self.offloaded(stage, **ratio)), self.train(case), case)

    def test_state_in_files_changes_no_bit(self):
        for number, (world, model, precision, optimizer, accumulation) in enumerate((
                (1, "plain", "bf16", "AdamW", 1), (3, "tied", "fp32", "SGD", 1), (2, "odd", "fp16", "AdamW", 3),
                (2, "frozen", "bf16", "Adagrad", 1))):
            for stage in (1, 2, 3):
                case = case_of(world, stage, accumulation, precision, model, optimizer)
                swap = {"device": "nvme", "nvme_path": [self.files.folder] * (1 + stage % 2)}
                overlap = {"pipeline_read": number % 2 == 0, "pipeline_write": number < 2, "buffer_count": 1 + number}
                ratio = {"ratio": 0.5} if stage == 3 and number == 2 else {}
                parameters = {**swap, "max_in_cpu": 200 * (number % 2), "buffer_size": 64, "buffer_count": 1 + number}
                changes = {"zero_optimization": {"offload_optimizer": {**swap, **overlap, **ratio},
                                                 **({"offload_param": parameters} if stage == 3 else {})},
                           "aio": {"block_size": 8192, "thread_count": 2}}
                with self.subTest(case=str(case)):
                    self.assert_same_bits(self.train(case, changes=changes), self.train(case), case)

    def test_state_of_pipeline_stages_in_files_changes_no_bit(self):
        swap = {"device": "nvme", "nvme_path": self.files.folder, "pipeline_read": True, "pipeline_write": True}
        for world, model, precision in ((2, "tied", "bf16"), (4, "tied", "fp32"), (2, "plain", "fp16")):
            case = case_of(world, 1, 3, precision, model)._replace(pipe=2)
            with self.subTest(case=str(case)):
                changes = {"zero_optimization": {"offload_optimizer": swap}}
                self.assert_same_bits(self.train(case, changes=changes), self.train(case), case)

    def test_where_state_rests_changes_no_bit_beside_other_techniques(self):
        quantized = {"zero_quantized_weights": True, "zero_quantized_gradients": True}
        recomputed = {"activation_checkpointing": {"enabled": True, "cpu_checkpointing": True}}
        for world, model, zero, more in (
                (4, "plain", {"zero_hpz_partition_size": 2}, {}), (2, "frozen", quantized, {}),
                (4, "tied", {**quantized, "zero_hpz_partition_size": 2,
                             "zeropp_loco_param": {"err_beta": 0.8, "reset_T": 1024}}, {}),
                (2, "plain", {}, recomputed), (2, "frozen", {"stage3_param_persistence_threshold": 20}, recomputed)):
            case = case_of(world, 3, 1, "bf16", model)
            with self.subTest(case=str(case), zero=zero, more=more):
                resident = {"zero_optimization": zero, **more}
                want = self.train(case, changes=resident)
                on_host = {"zero_optimization": {**zero, **self.offloaded(3)["zero_optimization"]}, **more}
                self.assert_same_bits(self.train(case, changes=on_host), want, case)
                if world == 4:  # hpZ reads a slice once a step
                    on_host["zero_optimization"]["offload_param"] = {"device": "nvme", "nvme_path": self.files.folder,
                                                                     "max_in_cpu": 0, "buffer_size": 500}
                    self.assert_same_bits(self.train(case, changes=on_host), want, case)

    def test_a_run_continues_where_its_state_rests_elsewhere(self):
        case = case_of(2, 3, 1, "bf16", "tied")
        want = self.train(case)
        folder = self.files.run_dir()
        for i, changes in enumerate((self.offloaded(3), {}, self.offloaded(3, ratio=0.3))):
            got = self.train(case, folder, STEPS * (i + 1) // 3, resume="auto" if i else "", changes=changes)
        self.assert_same_bits(got, want, case)

    def test_worlds_stages_and_where_state_rests_may_change_together(self):
        swap = tempfile.mkdtemp(prefix="dsl-swap-")  # on a disk
        self.addCleanup(shutil.rmtree, swap, True)
        nothing, in_memory, in_files = {}, {"device": "cpu"}, {"device": "nvme", "nvme_path": swap}
        no_parameters_in_memory = {**in_files, "max_in_cpu": 0}
        # (world, stage, where the optimizer's state rests, where parameters do)
        path = ((2, 1, in_memory, nothing), (3, 3, in_files, no_parameters_in_memory), (1, 0, nothing, nothing),
                (4, 3, in_memory, no_parameters_in_memory), (2, 2, in_files, nothing), (1, 3, nothing, in_memory))
        for model, optimizer, precision in (("plain", "AdamW", "fp32"), ("tied", "SGD", "fp32"), ("frozen", "AdamW", "bf16"),
                                            ("plain", "Adam", "fp16")):
            template, folder = case_of(model=model, optimizer=optimizer, precision=precision), self.files.run_dir()
            with self.subTest(model=model, precision=precision):
                for i, (world, stage, state, parameters) in enumerate(path):
                    changes = {"zero_optimization": {"offload_optimizer": state, "offload_param": parameters}}
                    got = self.train(template._replace(world=world, stage=stage), folder, STEPS * (i + 1) // len(path),
                                     resume="auto" if i else "", changes=changes)
                self.assert_near(got, self.train(template), template)
        self.assertEqual(os.listdir(swap), [], "files that have a name outlive the run")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    unittest.main(verbosity=2)
