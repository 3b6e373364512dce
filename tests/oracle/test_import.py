#!/usr/bin/env python3
"""`dslaunch import`: what DeepSpeed 0.18.2 saved (tests/data/deepspeed_checkpoints, made by the script there) becomes a
checkpoint of ours with DeepSpeed's own numbers in it, and a run that goes on from it has the losses that DeepSpeed's own
continuation had.

Run by ctest (label oracle); by hand: DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/oracle/test_import.py [Case...]."""
import fcntl
import glob
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import unittest

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import tensor_file  # noqa: E402
import harness  # noqa: E402
from pooled import PooledTest  # noqa: E402

DATA = os.path.join(harness.ROOT, "tests/data/deepspeed_checkpoints")
sys.path.insert(0, DATA)
sys.dont_write_bytecode = True
import pipeline_model  # noqa: E402
import tiny_model  # noqa: E402

ALL = sorted(os.path.basename(os.path.dirname(path)) for path in glob.glob(os.path.join(DATA, "*/expected.json")))
PIPELINES = [case for case in ALL if case.startswith("pipe_")]  # of make_pipeline.py
CASES = [case for case in ALL if case not in PIPELINES]  # of make.py
WEIGHTS_ONLY = {"stage0_bf16"}  # DeepSpeed 0.18.2 saves no optimizer state there
# Relative. Most losses are equal to the last bit; another CPU may add in another order (fp32), and half a unit in the last
# place of bf16's 8 bits is 2**-9.
BOUNDS = {"fp32": 1e-6, "bf16": 2 ** -9, "fp16": 2 ** -11}


def expected_of(case):
    with open(os.path.join(DATA, case, "expected.json")) as file:
        return json.load(file), tensor_file.read(os.path.join(DATA, case, "expected.safetensors"))


def read_shards(folder):
    """{(state, parameter): {begin: 1-D tensor}} of all shards."""
    states = {}
    for path in glob.glob(os.path.join(folder, "rank_*.safetensors")):
        for name, values in tensor_file.read(path).items():
            place, parameter = name.split("/", 1)
            state, begin = place.split("@")
            states.setdefault((state, parameter), {})[int(begin)] = values
    return states


def whole(pieces):
    """The pieces joined; they must follow each other without gaps."""
    values = []
    for begin, part in sorted(pieces.items()):
        assert begin == sum(v.numel() for v in values), f"a gap before element {begin}"
        values.append(part)
    return torch.cat(values)


class ImportTest(harness.TrainingTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.data = cls.env.path("tokens.safetensors")
        tensor_file.write(cls.data, tiny_model.make_data())
        cls.model = cls.env.path("tiny.pt")
        model = tiny_model.make_model(99)  # other weights than those that were trained
        torch.jit.script(model).save(cls.model)

    def run_import(self, source, *options):
        out = self.env.run_dir()
        return harness.run([harness.program("dslaunch"), "import", source, out, *options]), out

    def imported(self, case, *options):
        outcome, out = self.run_import(os.path.join(DATA, case), "--json", *options)
        self.assertEqual(outcome.code, 0, str(outcome))
        return json.loads(outcome.out), out

    def refused(self, source, code, *words, options=()):
        outcome, out = self.run_import(source, *options)
        self.assertEqual(outcome.code, code, str(outcome))
        for word in words:
            self.assertIn(word, outcome.text)
        self.assertFalse(glob.glob(out + "*"), "nothing is left behind")

    def copy_of(self, case):
        folder = self.env.run_dir()
        shutil.copytree(os.path.join(DATA, case), folder)
        return folder


class Numbers(ImportTest):
    """Weights and moments, bit by bit, with DeepSpeed's names and with the model's."""

    def check_states(self, case, report):
        values, tensors = expected_of(case)
        states = read_shards(report["checkpoint"])
        checked = 0
        for name, want in tensors.items():
            state, parameter = name.split("/", 1)
            if parameter == "head.weight":
                continue  # tied to the embedding
            ours = {"momentum_buffer": "momentum"}.get(state, state)
            if state == "master" and parameter == "frozen.weight":
                ours = "frozen"
            if state == "master" and parameter == "shift":
                ours = "buffer"
            got = whole(states[ours, parameter])
            self.assertTrue(torch.equal(got.float(), want.reshape(-1)), f"{case} {ours} {parameter}")
            checked += 1
        self.assertGreaterEqual(checked, 16)
        self.assertEqual(report["step"], values["global_steps"])
        self.assertEqual(report["skipped_steps"], values["skipped_steps"])
        moments = {state for state, _ in states} - {"master", "frozen", "buffer"}
        self.assertEqual(sorted(moments), report["optimizer_states"])
        if case in WEIGHTS_ONLY:
            self.assertFalse(moments)
        else:
            self.assertTrue(moments)
            self.assertEqual(len([s for s in states if s[0] in moments]), 14 * len(moments))

    def test_with_the_model(self):
        self.assertGreaterEqual(len(CASES), 12)
        for case in CASES:
            with self.subTest(case=case):
                report, _ = self.imported(case, "--model", self.model)
                self.check_states(case, report)
                self.assertTrue(os.path.exists(os.path.join(report["checkpoint"], "model.pt")))

    def test_that_is_ended_leaves_nothing(self):
        """What is written aside first is a pipe here, so that the signal comes in the middle of it."""
        parent = self.env.run_dir()
        out = os.path.join(parent, "imported")
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                os.mkdir(parent)
                os.mkfifo(out + ".skeleton.tmp")
                pipe = os.open(out + ".skeleton.tmp", os.O_RDONLY | os.O_NONBLOCK)
                self.addCleanup(os.close, pipe)
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)  # less than the skeleton takes
                process = subprocess.Popen([harness.program("dslaunch"), "import", os.path.join(DATA, CASES[0]), out,
                                            "--model", self.model], env=harness.environment(),
                                           preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))  # not as under nohup
                select.select([pipe], [], [], 60)
                process.send_signal(number)
                self.assertEqual(process.wait(60), -number)
                self.assertEqual(os.listdir(parent), [])
                os.rmdir(parent)

    def test_that_fails_leaves_no_folder(self):
        parent = self.env.run_dir()
        for options in ([], ["--model", self.model]):
            with self.subTest(options=options):
                outcome = subprocess.run([harness.program("dslaunch"), "import", os.path.join(DATA, CASES[0]),
                                          os.path.join(parent, "new", "out"), *options],
                                         env=harness.environment(), capture_output=True, text=True, timeout=60,
                                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)))
                self.assertEqual(outcome.returncode, 74, outcome.stderr)
                self.assertFalse(os.path.exists(parent))

    def test_a_report_that_did_not_arrive_is_no_success(self):
        with open("/dev/full", "wb") as full:
            outcome = subprocess.run([harness.program("dslaunch"), "import", os.path.join(DATA, CASES[0]),
                                      self.env.run_dir(), "--json"], env=harness.environment(), stdout=full,
                                     stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(outcome.returncode, 74, outcome.stderr)

    def test_into_a_run_folder_that_is_not_there(self):
        out = os.path.join(self.env.run_dir(), "checkpoints")
        outcome = harness.run([harness.program("dslaunch"), "import", os.path.join(DATA, CASES[0]), out, "--model",
                                self.model])
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual(len(glob.glob(out + "/step_*/manifest.json")), 1)
        self.assertEqual(os.listdir(os.path.dirname(out)), ["checkpoints"])

    def test_without_the_model(self):
        for case in CASES:
            with self.subTest(case=case):
                report, _ = self.imported(case)
                self.check_states(case, report)

    def test_counters_and_loss_scale(self):
        for case in ("stage2_fp16", "stage0_fp16"):
            report, _ = self.imported(case)
            values, _ = expected_of(case)
            with open(os.path.join(report["checkpoint"], "manifest.json")) as file:
                manifest = json.load(file)
            scalars, skipped = manifest["scalars"], values["skipped_steps"]
            power = values["config"]["fp16"]["initial_scale_power"]
            self.assertGreater(skipped, 0)
            self.assertEqual(scalars["loss_scale"], 2 ** (power - skipped))
            self.assertEqual(report["loss_scale"], scalars["loss_scale"])
            extra = scalars.get("schedule_offset", 0)  # its wrapper without ZeRO takes one step on zero gradients
            self.assertEqual(extra, -1 if case == "stage0_fp16" else 0)
            self.assertEqual(scalars["applied_steps"], 3 - skipped - extra)
            self.assertEqual(scalars["loss_scale_iteration"], 3)
            self.assertEqual(scalars["loss_scale_last_overflow"], skipped - 1)
            self.assertEqual(manifest["data"], {"epoch": 0, "offset": 24})

    def test_a_tag_and_its_folder(self):
        folder = self.copy_of("stage1_fp32")
        shutil.copytree(os.path.join(folder, "global_step3"), os.path.join(folder, "older"))
        for source, options in ((folder, ("--tag", "older")), (os.path.join(folder, "older"), ())):
            outcome, _ = self.run_import(source, "--json", *options)
            self.assertEqual(json.loads(outcome.out)["tag"], "older")

    def test_names_with_prefixes(self):
        wrapped = torch.jit.script(Wrapper(tiny_model.make_model(5)))
        path = self.env.path("wrapped.pt")
        wrapped.save(path)
        report, _ = self.imported("stage3_fp32", "--model", path)
        states = read_shards(report["checkpoint"])
        _, tensors = expected_of("stage3_fp32")
        for name in ("gain", "blocks.1.up.weight"):
            got = whole(states["exp_avg_sq", "inner." + name])
            self.assertTrue(torch.equal(got, tensors["exp_avg_sq/" + name].reshape(-1)))


class Wrapper(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.inner(tokens, labels)


class Continuation(PooledTest, ImportTest):
    """Losses of the 5 steps after the checkpoint."""

    def config_of(self, case, values):
        config = {key: values["config"][key] for key in ("train_batch_size", "gradient_clipping", "scheduler")}
        config["zero_optimization"] = {"stage": values["config"]["zero_optimization"]["stage"]}
        config["data"] = {"inputs": ["tokens"], "labels": ["labels"], "shuffle": False}
        config["checkpoint"] = {"at_end": False, "on_interrupt": False}
        for precision in ("bf16", "fp16"):
            if precision in case:
                config[precision] = values["config"][precision]
        if "sgd" in case:
            config["optimizer"] = {"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9}}
        else:
            config["optimizer"] = {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}}
        if "groups" in case:
            config["optimizer"]["no_decay"] = ["ndim<2"]
        return config

    def test_losses(self):
        cases = [case for case in CASES if case not in WEIGHTS_ONLY]
        self.assertGreaterEqual(len(cases), 11)
        for case in cases:
            with self.subTest(case=case):
                values, _ = expected_of(case)
                _, out = self.imported(case, "--model", self.model)
                rows, _ = self.env.train(self.model, self.data, self.config_of(case, values), 2, 8,
                                          extra=["--resume", out])
                self.assertEqual([row["step"] for row in rows], [4, 5, 6, 7, 8])
                bound = BOUNDS[case.split("_")[-1]]
                for row, want in zip(rows, values["losses_after"]):
                    self.assertLessEqual(abs(row["loss"] - want) / want, bound, f"{case} step {row['step']}: {row} {want}")

    def test_another_world_size(self):
        values, _ = expected_of("stage3_fp32")
        _, out = self.imported("stage3_fp32", "--model", self.model)
        rows, _ = self.env.train(self.model, self.data, self.config_of("stage3_fp32", values), 4, 8,
                                  extra=["--resume", out])
        for row, want in zip(rows, values["losses_after"]):
            self.assertLessEqual(abs(row["loss"] - want) / want, BOUNDS["fp32"])

    def test_the_weights_as_a_model(self):
        _, out = self.imported("stage2_fp32", "--model", self.model)
        path = self.env.path("trained.pt")
        outcome = harness.run([harness.program("dslaunch"), "consolidate", out, path])
        self.assertEqual(outcome.code, 0, str(outcome))
        values, _ = expected_of("stage2_fp32")
        data = tiny_model.make_data()
        loss = torch.jit.load(path)(data["tokens"][24:32], data["labels"][24:32]).item()
        self.assertLessEqual(abs(loss - values["losses_after"][0]) / loss, BOUNDS["fp32"])


class Named(torch.nn.Module):
    """The layers of pipeline_model.py with names instead of numbers, in another nesting."""

    def __init__(self, layers):
        super().__init__()
        self.embedding, first, _, second, self.shift, self.head = layers
        self.blocks = torch.nn.ModuleList([first, second])

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for i, block in enumerate(self.blocks):
            x = block(x)
            if i == 0:
                x = x * 0.5
        return self.head(self.shift(x))


class Pipelines(PooledTest, ImportTest):
    """What DeepSpeed's PipelineEngine saved: two stages beside two data ranks."""

    def scripted(self, case, make=lambda layers: torch.nn.Sequential(*layers)):
        torch.manual_seed(99)
        path = self.env.path(f"{case}.pt")
        torch.jit.script(make(pipeline_model.make_layers("tied" in case))).save(path)
        return path

    def check_states(self, case, report, rename=lambda name: name):
        values, tensors = expected_of(case)
        states = read_shards(report["checkpoint"])
        for name, want in tensors.items():
            state, parameter = name.split("/", 1)
            got = whole(states.pop((state, rename(parameter))))
            self.assertTrue(torch.equal(got.float(), want.reshape(-1)), f"{case} {name}")
        self.assertFalse(states, "nothing else is there")
        self.assertEqual(len(tensors), (44 if "tied" in case else 50) if "stage0_bf16" not in case else 18)
        self.assertEqual((report["step"], report["pipeline_stages"], report["zero_stage"]), (3, 2, int("stage1" in case)))
        self.assertEqual(report["skipped_steps"], values["skipped_steps"])
        self.assertEqual(report["notes"][0], "client_state is left out: note")

    def test_states(self):
        self.assertEqual(len(PIPELINES), 9)
        for case in PIPELINES:
            with self.subTest(case=case):
                for options in ((), ("--model", self.scripted(case))):
                    report, _ = self.imported(case, *options)
                    self.check_states(case, report)
                    self.assertEqual(len(report["notes"]), 2 if "stage0_bf16" in case else 1, report["notes"])

    def test_layers_by_their_order(self):
        modules = {"0": "embedding", "1": "blocks.0", "3": "blocks.1", "4": "shift", "5": "head"}
        for case in ("pipe_stage1_fp32", "pipe_stage0_fp32", "pipe_tied_stage1_fp32"):
            with self.subTest(case=case):
                report, _ = self.imported(case, "--model", self.scripted(case, Named))
                self.check_states(case, report, lambda name: modules[name.split(".")[0]] + "." + name.split(".", 1)[1])
                self.assertIn("0 is embedding, 1 is blocks.0, 3 is blocks.1, 4 is shift, 5 is head", "".join(report["notes"]))

    def continued(self, case, stages, data_ranks):
        values, _ = expected_of(case)
        loss, model = self.env.path("loss.pt"), self.scripted(case)
        torch.jit.script(pipeline_model.Loss()).save(loss)
        config = {key: values["config"][key] for key in ("gradient_clipping", "scheduler")}
        config.update(train_batch_size=8, train_micro_batch_size_per_gpu=4, loss=loss, pipeline={"stages": stages},
                      optimizer={"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}},
                      zero_optimization={"stage": min(1, data_ranks - 1)},
                      data={"inputs": ["tokens"], "labels": ["labels"], "shuffle": False}, checkpoint={"at_end": False})
        for precision in ("bf16", "fp16"):
            if precision in case:
                config[precision] = values["config"][precision]
        _, out = self.imported(case, "--model", model)
        rows, _ = self.env.train(model, self.data, config, stages * data_ranks, 8, extra=["--resume", out])
        return [row["loss"] for row in rows], values["losses_after"]

    def test_losses(self):
        for case in PIPELINES:
            if case == "pipe_stage0_bf16":
                continue  # DeepSpeed 0.18.2 saves no optimizer state there
            for stages, data_ranks in ((2, 2), (1, 1)):
                with self.subTest(case=case, stages=stages):
                    got, want = self.continued(case, stages, data_ranks)
                    bound = BOUNDS[next(each for each in BOUNDS if each in case)]
                    self.assertEqual(len(got), len(want))
                    # In fp16 the scale grows soon to where one of both skips a step.
                    for one, other in list(zip(got, want))[:3 if "fp16" in case else None]:
                        self.assertLessEqual(abs(one / other - 1), bound, f"{case}: {got} {want}")


class BadInput(ImportTest):
    """Files that are damaged, missing or of another kind: tests/unit/runtime/checkpoint/deepspeed_checkpoint_test.cpp."""

    def test_into_a_checkpoint_of_deepspeed(self):
        """Its `latest` is DeepSpeed's own, and the next import wants it too."""
        folder = self.copy_of("stage1_fp32")
        before = sorted(glob.glob(folder + "/**", recursive=True))
        for source, out in ((folder, folder), (os.path.join(DATA, "stage2_fp32"), folder),
                            (folder, os.path.join(folder, "global_step3"))):
            outcome = harness.run([harness.program("dslaunch"), "import", source, out])
            self.assertEqual(outcome.code, 64, str(outcome))
            self.assertIn("another directory", outcome.text)
        self.assertEqual(sorted(glob.glob(folder + "/**", recursive=True)), before)
        with open(os.path.join(folder, "latest")) as latest:
            self.assertEqual(latest.read(), "global_step3")

    def test_over_a_checkpoint_of_the_same_step(self):
        source = os.path.join(DATA, "stage1_fp32")
        _, out = self.run_import(source)
        manifest = os.path.join(out, "step_00000003", "manifest.json")
        os.utime(manifest, (1, 1))  # to be known again
        again = [harness.program("dslaunch"), "import", source, out]
        outcome = harness.run(again)
        self.assertEqual(outcome.code, 73, str(outcome))
        self.assertIn("--overwrite", outcome.text)
        self.assertIn("step_00000003", outcome.text)
        self.assertEqual(os.stat(manifest).st_mtime, 1)
        self.assertEqual(harness.run([*again, "--overwrite"]).code, 0)
        self.assertNotEqual(os.stat(manifest).st_mtime, 1)

    def test_another_model_is_listed(self):
        class Other(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding = torch.nn.Embedding(12, 6)
                self.gian = torch.nn.Parameter(torch.ones(1))

            def forward(self, x):
                return self.embedding(x).sum() * self.gian

        path = self.env.path("other.pt")
        torch.jit.script(Other()).save(path)
        self.refused(os.path.join(DATA, "stage1_fp32"), 65, "'gian' (1) is not in the checkpoint (did you mean 'gain'?)",
                     "(11, 6) there and (12, 6) in the model", "'blocks.0.up.bias' is not in the model",
                     options=("--model", path))


if __name__ == "__main__":
    unittest.main(verbosity=2)
