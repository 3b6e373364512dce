#!/usr/bin/env python3
"""The grid must be able to fail: its comparison, its choice of cases, and pools that meet refusals, deaths and hangs."""
import importlib.machinery
import itertools
import os
import shutil
import signal
import sys
import types
import unittest

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, "oracle"), os.path.join(TESTS, "support/python")]

import light_torch  # noqa: E402,F401
import torch  # noqa: E402

import checkpoint_state  # noqa: E402
import dimensions  # noqa: E402
import comparison  # noqa: E402
import parted_sums  # noqa: E402
import plain_pytorch  # noqa: E402
import run_grid  # noqa: E402
import selection  # noqa: E402
import pooled  # noqa: E402
from pool import Pool  # noqa: E402


def case_of(world=2, stage=1, accumulation=1, clipping=0.0, precision="fp32", pipe=1):
    return dimensions.Case(world, accumulation, clipping, precision, "plain", "AdamW", "default", pipe, 1, "1f1b", stage)


def run_of(values, start=None, rows=()):
    start = start or {name: torch.zeros_like(value) for name, value in values.items()}
    return plain_pytorch.Run(values, start, {}, {}, False, list(rows))


class Comparison(unittest.TestCase):
    def setUp(self):
        self.values = {"a": torch.linspace(1, 2, 50), "b": torch.tensor([[0.1, 0.2]])}
        self.run = run_of(self.values)

    def state(self, **changes):
        return {"master": {name: changes.get(name, value).flatten() for name, value in self.values.items()}}

    def problems(self, case, **changes):
        return comparison.check_parameters(case, "split", self.state(**changes)["master"], self.run)[0]

    def test_equal_values_pass(self):
        self.assertEqual(self.problems(case_of()), [])

    def test_one_wrong_element_is_reported_with_its_parameter(self):
        wrong = self.values["b"].clone()
        wrong[0, 1] += 1e-5
        self.assertIn("'b'", self.problems(case_of(), b=wrong)[0])

    def test_a_nan_element_is_reported(self):
        for value in (float("nan"), float("inf")):
            wrong = self.values["a"].clone()
            wrong[7] = value
            self.assertNotEqual(self.problems(case_of(), a=wrong), [])

    def test_half_precision_is_compared_by_change(self):
        close = {name: value * (1 - 1e-4) for name, value in self.values.items()}
        run = run_of(self.values, start=close)  # the whole run moved them by 1e-4
        problems, deviation = comparison.check_parameters(case_of(precision="bf16"), "split", self.state(**close)["master"], run)
        self.assertAlmostEqual(deviation, 1.0, places=3)
        self.assertNotEqual(problems, [])

    def test_the_median_of_many_cases_has_a_tighter_bound(self):
        self.assertEqual(comparison.check_typical("bf16", [1e-6] * 30 + [1e-2] * 20), [])
        self.assertIn("25 cases in bf16", comparison.check_typical("bf16", [1e-3] * 13 + [1e-6] * 12)[0])
        self.assertEqual(comparison.check_typical("bf16", [1e-3] * 5), [], "too few to say")
        self.assertEqual(comparison.check_typical("bf16", [1e-3] * 30, in_parts=True), [], "ranks round their parts of sums")
        self.assertNotEqual(comparison.check_typical("bf16", [5e-3] * 30, in_parts=True), [], "as a truncation would")

    def test_only_plain_pytorchs_split_error_widens_the_bound(self):
        off = {name: value * (1 + 1.5e-6) for name, value in self.values.items()}
        state, case = self.state(**off)["master"], case_of()
        self.assertNotEqual(comparison.check_parameters(case, "one", state, self.run)[0], [])
        split = run_of({name: value * (1 + 0.9e-6) for name, value in self.values.items()})
        least = comparison.sensitivity(case, split, self.run)
        self.assertEqual(comparison.check_parameters(case, "one", state, self.run, least)[0], [])
        least = comparison.sensitivity(case, run_of(self.values), self.run)
        self.assertNotEqual(comparison.check_parameters(case, "one", state, self.run, least)[0], [])

    def test_noise_of_parted_sums_widens_the_bound_of_its_own_parameter_only(self):
        case = case_of()
        parted = run_of({"a": self.values["a"], "b": self.values["b"] * (1 + 4e-6)})
        noise = comparison.noise_of(case, self.run, [parted, self.run])
        for name, is_noise in (("b", True), ("a", False)):
            state = self.state(**{name: self.values[name] * (1 + 7e-6)})["master"]
            self.assertNotEqual(comparison.check_parameters(case, "split", state, self.run)[0], [])
            found, _ = comparison.check_parameters(case, "split", state, self.run, noise=noise._replace(whole=1.0))
            self.assertEqual(found == [], is_noise, found)

    def test_parted_sums_are_the_same_sums_in_another_order(self):
        torch.manual_seed(0)
        layer, x = torch.nn.Linear(10, 6).bfloat16(), torch.randn(2, 5, 10).bfloat16().requires_grad_()

        def results():
            y = layer(x)
            scores = y @ y.transpose(1, 2)
            return [y, scores, *torch.autograd.grad(scores.sum(), [x, *layer.parameters()])]

        whole = results()
        with parted_sums.PartedSums(3):
            parted = results()
        for one, other in zip(whole, parted):
            self.assertLess((one - other).float().norm(), 2e-2 * one.float().norm())
        self.assertFalse(all(map(torch.equal, whole, parted)))

    def test_missing_and_unknown_names_and_wrong_sizes_are_reported(self):
        state = {"master": {"a": torch.zeros(3), "c": torch.zeros(1)}}
        text = "\n".join(comparison.check_names(state, self.run))
        for words in ("'a' has 3 elements, expected 50", "'b' is not in the checkpoint", "'c' is in the checkpoint"):
            self.assertIn(words, text)

    def test_rows_are_compared_step_by_step(self):
        row = {"step": 1, "loss": 1.0, "lr": 1e-3, "grad_norm": 2.0, "overflow": False, "loss_scale": 1.0}
        run = run_of(self.values, rows=[row])
        self.assertEqual(comparison.check_rows(case_of(), [dict(row)], run), [])
        for key, value in (("loss", 1.001), ("lr", 1.1e-3), ("grad_norm", 2.1), ("overflow", True), ("loss_scale", 2.0),
                           ("loss", None)):
            self.assertIn(key, comparison.check_rows(case_of(), [{**row, key: value}], run)[0])
        self.assertIn("0 steps were logged", comparison.check_rows(case_of(), [], run)[0])
        self.assertIn("nothing was clipped", comparison.check_rows(case_of(clipping=5.0), [dict(row)], run)[0])

    def test_a_single_bit_is_seen(self):
        other = self.values["a"].clone()
        other[3] = torch.nextafter(other[3], torch.tensor(9.0))
        found = list(comparison.check_same_bits((self.state(), []), (self.state(a=other), [])))
        self.assertEqual(found, ["master of 'a'"])
        zero = {"master": {"a": torch.tensor([0.0])}}, {"master": {"a": torch.tensor([-0.0])}}
        self.assertEqual(len(list(comparison.check_same_bits((zero[0], []), (zero[1], [])))), 1)

    def test_which_stages_must_share_their_bits(self):
        def classes(**values):
            return [comparison.numbers_class(case_of(stage=stage, **values)) for stage in dimensions.STAGES]

        def equal(**values):
            first = classes(**values)
            return [value == first[0] for value in first], first[1] == first[2], first[2] == first[3]

        self.assertEqual(equal(), ([True] * 4, True, True))
        self.assertEqual(equal(clipping=0.1), ([True, False, False, False], True, True))
        self.assertEqual(equal(accumulation=3), ([True, True, False, False], False, True))
        self.assertEqual(equal(world=1, clipping=0.1, accumulation=3), ([True] * 4, True, True))
        self.assertEqual(equal(world=2, pipe=2, clipping=0.1), ([True] * 4, True, True), "one data rank")
        self.assertEqual(equal(world=4, pipe=2, clipping=0.1)[0][:2], [True, False])


class Selection(unittest.TestCase):
    def test_the_full_set_holds_every_model_with_every_world_stage_accumulation_and_precision(self):
        worlds = [*dimensions.WORLDS, dimensions.SLOW_WORLD]
        cases = [case for group in selection.full(worlds) for case in group.cases()]
        self.assertEqual(len(cases), len(set(cases)))
        self.assertGreater(len(cases), 1000)
        met = {(case.model, case.world, case.accumulation, case.precision) for case in cases}
        self.assertEqual(len(met), len(dimensions.MODELS) * len(worlds) * len(dimensions.ACCUMULATIONS)
                         * len(dimensions.PRECISIONS))
        met = {(case.optimizer, case.stage, case.clipping, case.accumulation, case.precision, case.world) for case in cases}
        self.assertEqual(len(met), len(dimensions.OPTIMIZERS | dimensions.MORE_OPTIMIZERS) * 4 * 2 * 2 * 3 * len(worlds))

    def test_the_fast_set_holds_every_model_in_two_worlds_and_most_pairs_of_values(self):
        rows = selection.fast(dimensions.WORLDS)
        for model in dimensions.MODELS:
            if model == selection.BASE_MODEL:
                continue  # in all of them
            worlds = {row.world for row in rows if row.model == model and row.pipe == row.tensor == 1}
            self.assertEqual((len(worlds), len(worlds & {3, 4})), (2, 1), model)
        met = {pair for row in rows for pair in selection.pairs(row)}
        for first, second in (("PRECISIONS", "OPTIMIZERS"), ("PRECISIONS", "VARIANTS"), ("OPTIMIZERS", "VARIANTS")):
            number = {"PRECISIONS": 3, "OPTIMIZERS": 5, "VARIANTS": 6}  # places in a group
            for a in getattr(dimensions, first):
                for b in getattr(dimensions, second):
                    self.assertIn((number[first], a, number[second], b), met)

    def test_the_fast_set_holds_hundreds_of_cases_and_each_pair_of_settings_in_both_pairs_of_worlds(self):
        rows = selection.fast(dimensions.WORLDS)
        self.assertEqual(len(rows), len(set(rows)))
        self.assertGreater(sum(len(row.cases()) for row in rows), 700)
        self.assertEqual(sorted(sum(selection.WORLD_PAIRS, ())), list(dimensions.WORLDS))
        settings = {"accumulation": dimensions.ACCUMULATIONS, "clipping": dimensions.CLIPPINGS,
                    "precision": dimensions.PRECISIONS, "optimizer": dimensions.OPTIMIZERS, "variant": dimensions.VARIANTS}
        for worlds in selection.WORLD_PAIRS:
            of_data_ranks = [row for row in rows if row.world in worlds and row.pipe == row.tensor == 1]
            for one, other in itertools.combinations(settings, 2):
                if (one, other) == ("optimizer", "variant"):
                    continue
                met = {(getattr(row, one), getattr(row, other)) for row in of_data_ranks}
                self.assertEqual(met, set(itertools.product(settings[one], settings[other])), f"worlds {worlds}")
            met = {(row.accumulation, row.precision, row.optimizer) for row in of_data_ranks}
            self.assertEqual(len(met), 2 * 3 * len(dimensions.OPTIMIZERS))

    def test_pipelines_meet_every_mesh_with_every_model_and_most_pairs_of_settings(self):
        rows = [row for row in selection.fast(dimensions.WORLDS) if row.pipe > 1 and row.tensor == 1]
        meshes = {(2, 2), (3, 3), (4, 2), (4, 4)}
        for model, num_layers in dimensions.PIPELINE_MODELS.items():
            self.assertEqual({(row.world, row.pipe) for row in rows if row.model == model},
                             {(world, pipe) for world, pipe in meshes if pipe <= num_layers})
        settings = {"accumulation": dimensions.ACCUMULATIONS, "clipping": dimensions.CLIPPINGS,
                    "precision": dimensions.PRECISIONS, "variant": dimensions.PIPELINE_VARIANTS}
        for one, other in itertools.combinations(settings, 2):
            met = {(getattr(row, one), getattr(row, other)) for row in rows}
            self.assertEqual(met, set(itertools.product(settings[one], settings[other])), f"{one}, {other}")
        for name in ("accumulation", "clipping", "precision"):
            met = {(row.world, row.pipe, getattr(row, name)) for row in rows}
            self.assertEqual(len(met), len(meshes) * len(settings[name]), name)
        self.assertEqual({row.optimizer for row in rows}, set(dimensions.OPTIMIZERS))
        met = {(case.world, case.pipe, case.schedule, case.stage) for row in rows for case in row.cases()}
        self.assertEqual(len(met), len(meshes) * len(dimensions.SCHEDULES) * len(dimensions.PIPELINE_STAGES))
        full = selection.full([*dimensions.WORLDS, dimensions.SLOW_WORLD, *dimensions.PIPELINE_WORLDS])
        self.assertEqual({(row.world, row.pipe) for row in full if row.pipe > 1 and row.tensor == 1}, meshes | {(6, 2), (6, 3), (8, 2), (8, 4)})
        self.assertTrue(all(row.pipe > 1 or row.tensor > 1 for row in full if row.world in dimensions.PIPELINE_WORLDS))

    def test_tensor_ranks_meet_every_mesh_with_every_model_and_every_setting(self):
        rows = [row for row in selection.fast(dimensions.WORLDS) if row.tensor > 1]
        meshes = {(2, 2, 1), (3, 3, 1), (4, 2, 1), (4, 4, 1), (4, 2, 2)}
        self.assertEqual({(row.world, row.tensor, row.pipe) for row in rows}, meshes)
        for model in dimensions.TENSOR_MODELS:
            self.assertEqual({(row.world, row.tensor, row.pipe) for row in rows if row.model == model and row.pipe == 1},
                             {mesh for mesh in meshes if mesh[2] == 1})
        for name, values in (("accumulation", dimensions.ACCUMULATIONS), ("clipping", dimensions.CLIPPINGS),
                             ("precision", dimensions.PRECISIONS), ("variant", dimensions.TENSOR_VARIANTS),
                             ("optimizer", selection.tensor_optimizers())):
            self.assertEqual({getattr(row, name) for row in rows}, set(values), name)
        full = selection.full([*dimensions.WORLDS, dimensions.SLOW_WORLD, *dimensions.PIPELINE_WORLDS])
        self.assertEqual({(row.world, row.tensor, row.pipe) for row in full if row.tensor > 1},
                         meshes | {(6, 3, 1), (6, 3, 2), (8, 2, 2), (8, 4, 2)})

    def test_a_world_has_the_same_rows_whoever_else_is_run(self):
        self.assertEqual(selection.fast([3]), [row for row in selection.fast([1, 2, 3, 4]) if row.world == 3])


class Mutations(unittest.TestCase):
    def test_every_mutation_finds_its_place_once(self):
        """They are tried by hand, on another day than the code is changed."""
        here = os.path.dirname(os.path.abspath(__file__))
        loader = importlib.machinery.SourceFileLoader("mutate", os.path.join(here, "mutate"))
        mutate = sys.modules["mutate"] = types.ModuleType("mutate")
        mutate.__file__ = loader.path
        loader.exec_module(mutate)
        for mutation in mutate.MUTATIONS:
            with open(os.path.join(os.path.dirname(os.path.dirname(here)), mutation.file)) as file:
                self.assertEqual(file.read().count(mutation.old), 1, mutation.name)


class Pools(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.files, cls.shared = run_grid.GridFiles(), pooled.pool(2)

    @classmethod
    def tearDownClass(cls):
        cls.files.close()

    def run_in(self, pool, deadline=60, steps=2, **changes):
        config = dimensions.merged(self.files.config(case_of()), changes)
        run_dir = self.files.run_dir()
        ending = pool.run(self.files.model("plain"), config, run_dir, steps, deadline=deadline)
        shutil.rmtree(run_dir, ignore_errors=True)
        return ending

    def ranks(self, pool):
        pid = pool.process.pid
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]

    def test_a_refusal_is_reported_and_keeps_the_pool(self):
        self.assertEqual(self.run_in(self.shared).code, 0)
        before = self.ranks(self.shared)
        ending = self.run_in(self.shared, optimizer={"type": "Admw"})
        self.assertEqual(ending.code, 65, ending.message)
        self.assertIn("AdamW", ending.message)
        self.assertEqual(self.run_in(self.shared).code, 0)
        self.assertEqual(self.ranks(self.shared), before)

    def test_a_rank_that_dies_costs_its_case_only(self):
        pool = Pool(2)
        try:
            self.assertEqual(self.run_in(pool).code, 0)
            os.kill(self.ranks(pool)[1], signal.SIGKILL)
            ending = self.run_in(pool, steps=2000)
            self.assertNotEqual(ending.code, 0)
            self.assertEqual(self.run_in(pool).code, 0)
            self.assertEqual(pool.restarts, 1)
        finally:
            pool.close()

    def test_a_hanging_case_is_reported_with_stacks(self):
        pool = Pool(2)
        try:
            self.assertEqual(self.run_in(pool).code, 0)
            stopped_rank = self.ranks(pool)[1]
            os.kill(stopped_rank, signal.SIGSTOP)
            ending = self.run_in(pool, deadline=2)
            self.assertEqual(ending.code, 124)
            self.assertIn("--- stack of a rank's main thread", ending.message)
            self.assertIn("dslaunch::", ending.message)
            stopped = ending.message.split(f"--- threads of process {stopped_rank}:")[1].splitlines()[1]
            self.assertRegex(stopped, r"^\d+ grid_worker T ")
            self.assertEqual(self.run_in(pool).code, 0)
        finally:
            pool.close()

    def test_an_incomplete_checkpoint_is_reported(self):
        with self.assertRaisesRegex(AssertionError, "elements 2 to 3 of 'a'"):
            checkpoint_state.joined("a", [(0, torch.zeros(2)), (3, torch.zeros(1))])

    def test_slices_of_a_checkpoint_are_put_together(self):
        shape, parts = (2, 6, 3), []
        whole = torch.arange(36.0)
        for start in (0, 2, 4):
            part = whole.reshape(shape).narrow(1, start, 2).flatten()
            for begin, end in ((0, 5), (5, 12)):
                parts += checkpoint_state.runs_of(shape, (1, start, 2), begin, part[begin:end])
        self.assertTrue(torch.equal(checkpoint_state.joined("a", parts), whole))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    unittest.main(verbosity=2)
