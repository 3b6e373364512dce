#!/usr/bin/env python3
"""`delayed_update` against its definition in plain PyTorch: a step's gradients are those of the parameters before the
update of the step before, w[k+1] = update(w[k], g(w[k-1])). Without delay: the warm-up steps, and the step after a save or
an evaluation, which wait for what is still to come."""
import os
import sys
import unittest

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, "oracle"), os.path.join(TESTS, "support/python")]

import light_torch  # noqa: E402,F401
import torch  # noqa: E402

import comparison  # noqa: E402
import dimensions  # noqa: E402
import one_process  # noqa: E402
import plain_pytorch  # noqa: E402
import test_metamorphic  # noqa: E402
from dimensions import STEPS  # noqa: E402
from test_metamorphic import case_of  # noqa: E402


class StaleTrainer(plain_pytorch.Trainer):
    """Forward and backward use `params`, which follow the masters one update later."""

    def follow(self, warmup, waits):
        self.warmup, self.waits, self.begun, self.coming = warmup, waits, 0, None
        return self

    def publish(self):
        if self.coming is not None:
            with torch.no_grad():
                for param, value in zip(self.params, self.coming):
                    param.copy_(value)
        self.coming = None

    def summed(self, rows):
        out = super().summed(rows)
        self.publish()  # the update before this one has run beside this step
        return out

    def apply(self, gradients, lr):
        before = [param.detach().clone() for param in self.params]
        super().apply(gradients, lr)
        if self.begun < self.warmup:
            return
        self.coming = [param.detach().clone() for param in self.params]
        with torch.no_grad():
            for param, value in zip(self.params, before):
                param.copy_(value)

    def step(self, k):
        row = super().step(k)
        self.begun += 1
        if k + 1 in self.waits:
            self.publish()
        return row


class Delayed(test_metamorphic.Metamorphic):
    def expected(self, case, warmup=0, waits=(), **more):
        """(rows, masters, masters at the start) by the definition."""
        torch.set_num_threads(1)
        config = dimensions.merged(self.files.config(case), more)
        samples = one_process.Samples(self.files.data(case.model, case.world), config)
        trainer = StaleTrainer(self.files.module(case), samples, config, case.accumulation, case.world, False,
                               case.stage >= 2).follow(warmup, waits)
        start = {name: master.detach().clone() for name, master in zip(trainer.names, trainer.master)}
        rows = [trainer.step(k) for k in range(STEPS)]
        return rows, {name: master.detach() for name, master in zip(trainer.names, trainer.master)}, start

    def changes(self, case, warmup=0, **more):
        delay = {"warmup_steps": warmup} if warmup else True
        offload = {"offload_optimizer": {"device": "cpu", "delayed_update": delay}}
        if case.stage == 3:
            offload["offload_param"] = {"device": "cpu"}
        return {"zero_optimization": {**offload, "sub_group_size": 50}, **more}

    def deviation(self, got, want, case):
        return comparison.deviations(got[0]["master"], want[1], want[2], case.precision)

    def assert_is(self, got, want, case):
        bounds = comparison.BOUNDS[case.precision]["split"]
        whole, worst, name = self.deviation(got, want, case)
        self.assertLessEqual(whole, bounds[0], f"{case}: worst is {name}, {worst:.2e}")
        self.assertLessEqual(worst, bounds[1], f"{case}: {name}")
        self.assertEqual(len(got[1]), len(want[0]))
        for ours, theirs in zip(got[1], want[0]):
            for key in ("loss", "grad_norm"):
                bound = comparison.ROW_BOUNDS[case.precision]
                self.assertTrue(theirs["overflow"] or comparison.near(ours[key], theirs[key], bound),
                                f"{case}: {key} of {ours} is not that of {theirs}")
            self.assertEqual((ours["overflow"], ours["loss_scale"] or 1.0), (theirs["overflow"], theirs["loss_scale"]))

    def assert_is_not(self, got, want, case):
        self.assertGreater(self.deviation(got, want, case)[0], comparison.BOUNDS[case.precision]["split"][0], str(case))

    def test_the_definition(self):
        for case, warmup in ((case_of(1, 1, optimizer="AdamW"), 0), (case_of(2, 3, 3, optimizer="SGD", model="tied"), 6),
                             (case_of(2, 2, 3, "bf16", optimizer="AdamW"), 0), (case_of(1, 3, 1, "bf16", optimizer="SGD"), 7),
                             (case_of(3, 2, 1, "fp32", "frozen", "AdamW"), 5), (case_of(2, 1, 1, "fp16", optimizer="SGD"), 0)):
            with self.subTest(case=str(case), warmup=warmup):
                # In fp16 some steps overflow: they are skipped, and have nothing to publish.
                more = {"fp16": {"initial_scale_power": 22}} if case.precision == "fp16" else {}
                got = self.train(case, changes=self.changes(case, warmup, **more))
                self.assert_is(got, self.expected(case, warmup, **more), case)
                self.assertEqual(any(row["overflow"] for row in got[1]), case.precision == "fp16")
                if case.precision == "fp32":
                    self.assert_is_not(got, self.expected(case, STEPS), case)
                if case.precision == "fp32" and warmup:
                    self.assert_is_not(got, self.expected(case, warmup + 1), case)

    def test_saves_and_evaluations_wait_for_the_update(self):
        """At step 12 an evaluation exchanges parameters first."""
        for case in (case_of(2, 2), case_of(3, 3, optimizer="SGD"), case_of(2, 1, 3)):
            with self.subTest(case=str(case)):
                more = {"checkpoint": {"async": True, "interval": 4},
                        "data": {"eval": self.files.data(case.model, case.world)}, "train": {"seed": 42, "eval_interval": 6}}
                got = self.train(case, changes=self.changes(case, **more))
                want = self.expected(case, waits=(4, 6, 8, 12, 16, 18))
                got[1][:] = [row for row in got[1] if "loss" in row]
                self.assert_is(got, want, case)
                self.assert_is_not(got, self.expected(case, waits=(4, 8, 16)), case)

    def test_a_resumed_run_goes_on_with_the_delay(self):
        case = case_of(2, 2)
        changes, folder = self.changes(case, 3), self.files.run_dir()
        self.train(case, folder, STEPS // 2, changes=changes)
        got = self.train(case, folder, STEPS, resume="auto", changes=changes)
        self.assert_is(got, self.expected(case, 3, waits=(STEPS // 2,)), case)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    unittest.main(verbosity=2)
