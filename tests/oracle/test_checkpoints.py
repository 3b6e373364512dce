#!/usr/bin/env python3
"""Checkpoints through pools (pooled.py) and programs: any world, stage and precision loads any other's; what --resume PATH takes of
one; torn ones; whole weights beside the shards. The oracle is plain PyTorch (one_process.py) or the uninterrupted run."""
import contextlib
import glob
import os
import random
import re
import shutil
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
from test_oracle import OracleTest  # noqa: E402
from harness import base_config  # noqa: E402

BOUND = 1e-6  # relative, fp32: another world or stage adds in another order


class Changes(PooledTest, OracleTest):
    """The trajectory does not notice what changes in mid-run."""

    def through(self, kind, segments, last_config=None):
        """Runs segment after segment, each from the checkpoint of the one before: (world, config, last step)."""
        folder = self.env.run_dir()
        for world, config, last in segments:
            rows, _ = self.env.train(self.env.model(kind), self.env.data(kind), config, world, last, folder,
                                      ["--resume", "auto"])
        return rows

    def test_world_and_stage(self):
        walk = [(2, 1), (3, 2), (4, 3), (1, 0), (3, 3), (2, 0), (4, 1), (1, 3), (2, 2)]
        for kind, accumulation in (("mlp", 1), ("gpt", 3)):
            with self.subTest(kind=kind):
                segments = [(world, base_config(kind, zero_optimization={"stage": stage},
                                                gradient_accumulation_steps=accumulation), 3 * (i + 1))
                            for i, (world, stage) in enumerate(walk)]
                rows = self.through(kind, segments)
                config = base_config(kind, gradient_accumulation_steps=accumulation)
                expected = one_process.train(self.env.model(kind), self.env.data(kind), config, len(rows))
                self.assert_close(expected, rows, BOUND, keys=("loss", "lr"), what=kind)

    def test_the_same_world_and_stage_at_every_stage_bit_by_bit(self):
        for stage in (0, 1, 2, 3):
            with self.subTest(stage=stage):
                config = base_config("gpt", zero_optimization={"stage": stage})
                whole, _ = self.env.train(self.env.model("gpt"), self.env.data("gpt"), config, 2, 12)
                self.assert_same(whole, self.through("gpt", [(2, config, 5), (2, config, 9), (2, config, 12)]))

    def test_precision(self):
        """Master weights and moments are fp32 in all of them: only the steps that compute in bf16 differ, by its rounding."""
        exact = base_config("gpt", zero_optimization={"stage": 1})
        short = base_config("gpt", zero_optimization={"stage": 2}, bf16={"enabled": True})
        rows = self.through("gpt", [(2, exact, 6), (3, short, 12), (1, exact, 18)])
        whole = one_process.train(self.env.model("gpt"), self.env.data("gpt"), exact, 18)
        self.assert_close(whole[:6], rows[:6], BOUND, ["loss"])
        self.assert_close(whole, rows, 1e-2, ["loss"])
        self.assert_close(whole, rows, 1e-12, ["lr"])
        self.assertNotEqual(whole[11]["loss"], rows[11]["loss"], "bf16 was not in effect")


class Loading(PooledTest, OracleTest):
    """What --resume PATH takes of a checkpoint."""

    def setUp(self):
        self.config = base_config("gpt", zero_optimization={"stage": 1})
        self.model, self.data = self.env.model("gpt"), self.env.data("gpt")

    def saved(self, steps=12):
        _, folder = self.env.train(self.model, self.data, self.config, 2, steps)
        return os.path.join(folder, "checkpoints")

    def resumed(self, checkpoint, steps, load, world=2, model=None):
        """(metrics, what the program said); `load` is the config's section."""
        config = {**self.config, "checkpoint": {"load": load}}
        folder = self.env.run_dir()
        outcome = self.env.run(model or self.model, self.data, config, folder, world, steps,
                                                 ["--resume", checkpoint])
        return outcome, harness.read_metrics(folder) if outcome.code == 0 else None

    def test_without_the_moments_the_optimizer_starts_afresh_and_the_schedule_goes_on(self):
        self.config["steps_per_print"] = 20
        outcome, rows = self.resumed(self.saved(), 20, {"optimizer_states": False}, world=3)
        self.assertEqual(outcome.code, 0, str(outcome))
        line = re.search(r"step=20, skipped=(-?\d+), lr=\[(.*)\], mom", outcome.text)
        self.assertEqual((int(line[1]), float(line[2])), (0, one_process.learning_rate(self.config, 21)), line[0])
        torch.set_num_threads(1)
        trainer = one_process.Trainer([torch.jit.load(self.model)], one_process.Samples(self.data, self.config), self.config)
        expected = [trainer.step(k) for k in range(12)]
        trainer.optimizer.state.clear()  # moments and their step count; rates are set in every step
        expected = [trainer.step(k) for k in range(12, 20)]
        self.assert_close(expected, rows)
        whole = one_process.train(self.model, self.data, self.config, 20)
        self.assertGreater(abs(whole[-1]["loss"] - rows[-1]["loss"]), 1e-4 * whole[-1]["loss"], "nothing was left out")
        self.assertIn("with fresh moments", outcome.text)

    def test_weights_only_is_a_new_run_with_these_weights(self):
        checkpoint = self.saved()
        outcome, rows = self.resumed(checkpoint, 8, {"load_module_only": True})
        self.assertEqual(outcome.code, 0, str(outcome))
        start = self.env.consolidate(os.path.dirname(checkpoint), "start.pt")
        self.assert_close(one_process.train(start, self.data, self.config, 8), rows)
        self.assertIn("loaded the weights of", outcome.text)

    def test_auto_takes_all_of_the_run_s_own_checkpoint(self):
        config = {**self.config, "checkpoint": {"load": {"weights_only": True}}}
        whole, _ = self.env.train(self.model, self.data, config, 2, 12)
        _, folder = self.env.train(self.model, self.data, config, 2, 6)
        rows, _ = self.env.train(self.model, self.data, config, 2, 12, folder, ["--resume", "auto"])
        self.assert_same(whole, rows)

    def larger(self):
        """The same GPT with a third block, and a narrower one."""
        paths = []
        for name, options in (("three", ["--blocks", "3", "--width", "32"]), ("narrow", ["--blocks", "2", "--width", "16"])):
            paths.append(self.env.path(f"gpt-{name}.pt"))
            if not os.path.exists(paths[-1]):
                self.env.tool.main(["gpt", "--vocab", "64", "--seq", "12", *options, "--heads", "2", paths[-1]])
        return paths

    def test_a_checkpoint_of_another_model_is_refused_with_the_names_and_shapes(self):
        checkpoint, (three, narrow) = self.saved(3), self.larger()
        outcome, _ = self.resumed(checkpoint, 5, {}, model=three)
        self.assertEqual(outcome.code, 65, str(outcome))
        for word in ("missing in the checkpoint", "blocks.2", '"strict": false'):
            self.assertIn(word, outcome.text)
        for load in ({}, {"strict": False}):
            outcome, _ = self.resumed(checkpoint, 5, load, model=narrow)
            self.assertEqual(outcome.code, 65, str(outcome))
            self.assertIn("different shapes", outcome.text)
            self.assertIn("(64, 32) in the checkpoint and (64, 16) in the model", outcome.text)

    def test_not_strict_loads_what_both_have_and_says_what_it_left(self):
        checkpoint, (three, _) = self.saved(), self.larger()
        outcome, rows = self.resumed(checkpoint, 14, {"strict": False}, model=three)
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("keeping initial values", outcome.text)
        self.assertIn("'blocks.2", outcome.text)
        weights = tensor_file.read(self.env.consolidate(os.path.dirname(checkpoint), "part.safetensors"))
        model = torch.jit.load(three)
        missing = model.load_state_dict(weights, strict=False)
        self.assertEqual(missing.unexpected_keys, [])
        loss = one_process.loss_at(model, self.data, self.config, 13)
        self.assertEqual(rows[0]["step"], 13)
        self.assertLessEqual(abs(rows[0]["loss"] - loss) / loss, 1e-5)

    def test_another_optimizer_s_state_is_told_and_the_way_past(self):
        checkpoint = self.saved(3)
        self.config["optimizer"] = {"type": "SGD", "params": {"lr": 0.01, "momentum": 0.9}}
        outcome, _ = self.resumed(checkpoint, 5, {})
        self.assertEqual(outcome.code, 65, str(outcome))
        for word in ("has no 'momentum'", "another optimizer", "optimizer_states false"):
            self.assertIn(word, outcome.text)
        outcome, rows = self.resumed(checkpoint, 5, {"load_optimizer_states": False})
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual([row["step"] for row in rows], [4, 5])


def flip_a_bit(path):
    with open(path, "r+b") as file:
        file.seek(-3, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-3, os.SEEK_END)
        file.write(bytes([byte ^ 16]))


class Torn(PooledTest, OracleTest):
    """The newest sound one is taken, and the others are named."""

    def setUp(self):
        self.config = base_config("gpt", zero_optimization={"stage": 1}, checkpoint={"interval": 4, "keep_last": 3})
        self.model, self.data = self.env.model("gpt"), self.env.data("gpt")
        self.rows, self.folder = self.env.train(self.model, self.data, self.config, 2, 12)
        self.newest = os.path.join(self.folder, "checkpoints/step_00000012")

    def resume(self, how="auto", steps=14):
        return self.env.run(self.model, self.data, self.config, self.folder, 2, steps, ["--resume", how])

    def test_a_flipped_bit_sends_auto_back_loudly_and_ends_a_named_one(self):
        flip_a_bit(os.path.join(self.newest, "rank_00001.safetensors"))
        named = self.resume(self.newest)
        self.assertEqual(named.code, 65, str(named))
        self.assertIn("rank_00001.safetensors has the hash", named.text)
        self.assertNotIn("resumed from", named.text)
        auto = self.resume()
        self.assertEqual(auto.code, 0, str(auto))
        for word in ("rank_00001.safetensors has the hash", "FALLING BACK to", "resumed from", "step_00000008"):
            self.assertIn(word, auto.text)
        rows = harness.read_metrics(self.folder)
        self.assertEqual([row["step"] for row in rows], list(range(1, 15)))
        self.assert_same(self.rows, rows[:12])

    def test_a_cut_file_and_a_missing_manifest_are_named(self):
        os.truncate(os.path.join(self.newest, "rank_00000.safetensors"), 1000)
        os.unlink(os.path.join(self.folder, "checkpoints/step_00000008/manifest.json"))
        os.mkdir(os.path.join(self.folder, "checkpoints/step_00000016.tmp"))
        outcome = self.resume()
        self.assertEqual(outcome.code, 0, str(outcome))
        for word in ("rank_00000.safetensors has 1000 bytes, its manifest says", "step_00000008': it has no manifest.json",
                     "step_00000016.tmp': its save did not finish", "resumed from", "step_00000004"):
            self.assertIn(word, outcome.text)

    def test_when_all_are_damaged_nothing_starts_afresh(self):
        for path in glob.glob(os.path.join(self.folder, "checkpoints/*/rank_00000.safetensors")):
            flip_a_bit(path)
        outcome = self.resume()
        self.assertEqual(outcome.code, 65, str(outcome))
        self.assertIn("no checkpoint in", outcome.text)
        self.assertEqual(harness.read_metrics(self.folder)[-1]["step"], 12)

    def test_the_stall_of_every_save_is_told(self):
        shutil.rmtree(self.folder)
        outcome = self.env.run(self.model, self.data, self.config, self.folder, 2, 12)
        self.assertEqual(outcome.text.count("training blocked for"), 4, str(outcome))  # three saves and the sum

    def test_a_save_that_is_waited_for_is_told_as_waiting(self):
        config = {**self.config, "checkpoint": {"interval": 4, "async": False}}
        outcome = self.env.run(self.model, self.data, config, self.env.run_dir(), 2, 8)
        waited = [float(ms) for ms in re.findall(r"([\d.]+) waiting for files", outcome.text)]
        self.assertEqual(len(waited), 2, str(outcome))
        self.assertGreater(min(waited), 0.0, str(outcome))


def damage(content, generator):
    """(what was done, the bytes after it): one random damage of a file."""
    at = generator.randrange(len(content))
    end = min(len(content), at + generator.choice((1, 8, 512, 4096)))
    before, after = content[:at], content[end:]
    done = {f"bit flipped in byte {at}": before + bytes([content[at] ^ 1 << generator.randrange(8)]) + content[at + 1:],
            f"zeros from byte {at} to {end}": before + bytes(end - at) + after,
            f"noise from byte {at} to {end}": before + generator.randbytes(end - at) + after,
            f"bytes {at} to {end} lost": before + after,
            f"cut to {at} bytes": before}
    return generator.choice(list(done.items()))


class Damaged(PooledTest, OracleTest):
    """Random damage of one file of the newest checkpoint: a resume has the numbers of the undamaged run, or is refused."""
    TRIALS, SAVED, STEPS = 12, 4, 6

    def saved_run(self, kind, zero):
        """(config, metrics of the uninterrupted run, directory of the run that saved the last two of its steps)"""
        config = base_config(kind, zero_optimization=zero, checkpoint={"interval": 1, "keep_last": 2})
        whole, _ = self.env.train(self.env.model(kind), self.env.data(kind), config, 2, self.STEPS)
        return config, whole, self.env.train(self.env.model(kind), self.env.data(kind), config, 2, self.SAVED)[1]

    def ending(self, kind, saved, generator):
        """How a resume from a copy of the run ended, one file of which was damaged."""
        config, whole, original = saved
        folder = self.env.run_dir()
        shutil.copytree(original, folder)
        checkpoints, step = os.path.join(folder, "checkpoints"), f"step_{self.SAVED:08d}"
        newest = os.path.join(checkpoints, step)
        path = generator.choice([*sorted(glob.glob(os.path.join(newest, "*"))), os.path.join(checkpoints, "latest")])
        with open(path, "r+b") as file:
            done, content = damage(file.read(), generator)
            file.seek(0)
            file.truncate()
            file.write(content)
        how = generator.choice(("auto", newest))
        outcome = self.env.run(self.env.model(kind), self.env.data(kind), config, folder, 2, self.STEPS, ["--resume", how])
        shown = f"{kind}: {os.path.relpath(path, folder)}: {done}\n{outcome}"
        said = all(name in outcome.text for name in (step, os.path.basename(path)))
        if outcome.code == 65 and how == newest:
            self.assertTrue(said and "resumed from" not in outcome.text, shown)
            return "refused"
        self.assertEqual(outcome.code, 0, shown)
        self.assert_same(whole, harness.read_metrics(folder), shown)
        if re.search(rf"resumed from \S+/{step}\b", outcome.text):
            return "as undamaged"
        self.assertTrue(said, shown)
        return "from the checkpoint before"

    def test_a_resume_has_the_numbers_of_the_undamaged_run_or_is_refused(self):
        runs = {"mlp": self.saved_run("mlp", {"stage": 1}),
                "gpt": self.saved_run("gpt", {"stage": 3, "stage3_param_persistence_threshold": 0,
                                              "stage3_gather_16bit_weights_on_model_save": True})}
        endings = set()
        for trial in range(self.TRIALS):
            with self.subTest(trial=trial):
                kind = ("mlp", "gpt")[trial % 2]
                endings.add(self.ending(kind, runs[kind], random.Random(trial)))
        self.assertEqual(endings, {"refused", "as undamaged", "from the checkpoint before"})


class DamagedOften(Damaged):
    """A thousand, with the programs (scripts/test --slow)."""
    TRIALS = 1000

    @classmethod
    def make_env(cls):
        return harness.TrainingEnv(cls.parent_folder)


class Programs(OracleTest):
    """What stands on the console, and the exit code."""

    def setUp(self):
        self.config = base_config("gpt", zero_optimization={"stage": 1}, checkpoint={"interval": 4, "keep_last": 3})
        self.model, self.data = self.env.model("gpt"), self.env.data("gpt")

    def test_a_quiet_run_tells_neither_saves_nor_where_it_goes_on(self):
        folder = self.env.run_dir()
        for steps in (12, 13):
            shown = harness.run(self.env.command(self.model, self.data, self.config, folder, 2, steps,
                                                 ("--quiet", "--resume", "auto")))
            self.assertEqual((shown.code, shown.text), (0, ""), str(shown))

    def test_a_damaged_checkpoint_sends_auto_back_loudly_and_ends_a_named_one(self):
        _, folder = self.env.train(self.model, self.data, self.config, 2, 12)
        newest = os.path.join(folder, "checkpoints/step_00000012")
        flip_a_bit(os.path.join(newest, "rank_00001.safetensors"))
        named, auto = (harness.run(self.env.command(self.model, self.data, self.config, folder, 2, 14, ["--resume", how]))
                       for how in (newest, "auto"))
        self.assertEqual(named.code, 65, str(named))
        self.assertIn("rank_00001.safetensors has the hash", named.text)
        self.assertEqual(auto.code, 0, str(auto))
        for word in ("FALLING BACK to", "resumed from", "step_00000008"):
            self.assertIn(word, auto.text)


    def test_a_run_that_resumes_on_other_ranks_keeps_its_global_batch(self):
        config = base_config("mlp", train_micro_batch_size_per_gpu=6, checkpoint={"interval": 4})
        del config["train_batch_size"]
        model, data = self.env.model("mlp"), self.env.data("mlp")
        whole, folder = self.env.train(model, data, config, 2, 8)
        for ranks in (1, 3):
            to = self.env.run_dir()
            outcome = self.env.run(model, data, config, to, ranks, 8,
                                   ["--resume", os.path.join(folder, "checkpoints/step_00000004")])
            self.assertEqual(outcome.code, 0, str(outcome))
            self.assertIn("global batch of 12 is kept", outcome.text)
            self.assert_close(whole[4:], harness.read_metrics(to))


class Stopped(OracleTest):
    def test_a_stop_that_saves_nothing_is_not_told_as_saved(self):
        config = base_config("mlp", checkpoint={"on_interrupt": False})
        command = self.env.command(self.env.model("mlp"), self.env.data("mlp"), config, self.env.run_dir(), 2, 10**6)
        process = harness.start(command)
        next(line for line in process.stdout if "| step" in line)
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 75, text)
        self.assertIn("stopped on request, no checkpoint saved", text)
        self.assertNotIn("state saved", text)

    def test_a_drain_saves_state_from_files_and_leaves_none(self):
        swap = self.env.path("drained")
        os.makedirs(swap, exist_ok=True)
        in_files = {"device": "nvme", "nvme_path": "$DSL_TEST_SCRATCH/drained"}
        config = base_config("gpt", zero_optimization={
            "stage": 3, "stage3_param_persistence_threshold": 0, "offload_param": {**in_files, "max_in_cpu": 0},
            "offload_optimizer": {**in_files, "pipeline_read": True, "pipeline_write": True}})
        model, data, folder = self.env.model("gpt"), self.env.data("gpt"), self.env.run_dir()
        os.environ["DSL_TEST_SCRATCH"] = os.path.dirname(swap)
        self.addCleanup(os.environ.pop, "DSL_TEST_SCRATCH")
        process = harness.start(self.env.command(model, data, config, folder, 2, 10**6))
        next(line for line in process.stdout if "| step" in line)
        process.send_signal(signal.SIGUSR1)
        text, _ = process.communicate(timeout=30)  # what Slurm leaves between SIGTERM and SIGKILL
        self.assertEqual(process.returncode, 75, text)
        self.assertEqual(os.listdir(swap), [])
        steps = harness.read_metrics(folder)[-1]["step"] + 2
        resumed, _ = self.env.train(model, data, config, 2, steps, folder, ("--resume", "auto"))
        whole, _ = self.env.train(model, data, config, 2, steps)
        self.assert_same(whole, resumed)


class TwoJobs(PooledTest, OracleTest):
    def test_a_folder_of_checkpoints_takes_one_job_at_a_time(self):
        """checkpoint.dir outside of the run folders, which are two."""
        folder = self.env.run_dir()
        config = base_config("mlp", checkpoint={"dir": folder})
        model, data = self.env.model("mlp"), self.env.data("mlp")
        first = harness.start(self.env.command(model, data, config, self.env.run_dir(), 2, 10**6))
        next(line for line in first.stdout if "| step" in line)
        second = harness.run(self.env.command(model, data, config, self.env.run_dir(), 2, 5))
        self.assertEqual(second.code, 73, str(second))
        self.assertRegex(second.text, rf"cannot save into '{folder}': job \S+ \(process \d+ on .*\) is using it")
        reader = harness.run(self.env.command(model, data, config, self.env.run_dir(), 2, 5,
                                                ["--set", "checkpoint.at_end=false", "--set", "checkpoint.on_interrupt=false"]))
        self.assertEqual(reader.code, 0, str(reader))  # saves nothing
        first.send_signal(signal.SIGTERM)
        text, _ = first.communicate(timeout=60)
        self.assertEqual(first.returncode, 75, text)
        self.assertEqual([name for name in os.listdir(folder) if name.startswith(".")], [])
        self.env.train(model, data, config, 2, 5)


class Killed(PooledTest, OracleTest):
    """A rank that is killed in the middle of a save, again and again: the run that goes on is the uninterrupted one."""
    KILLS, STEPS = 2, 30
    parent_folder = None  # a disk, where a save takes its time

    def kill_in_a_save(self, command, folder, rank):
        """Starts the job and kills one rank as soon as a save is under way; its exit code."""
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                                   env=harness.environment())
        before = self.steps(folder)
        while process.poll() is None:
            # A save of this start, not a folder that the last one left half written.
            if self.steps(folder) - before and glob.glob(os.path.join(folder, "checkpoints/*.tmp")):
                for pid in harness.rank_processes(folder, rank):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                break
            time.sleep(0.001)
        return process.wait(timeout=60)

    def steps(self, folder):
        return set(glob.glob(os.path.join(folder, "checkpoints/step_????????")))

    def test_in_the_middle_of_a_save(self):
        offloads = {"offload_optimizer": {"device": "cpu", "delayed_update": True},
                    "offload_param": {"device": "nvme", "nvme_path": self.env.folder, "max_in_cpu": 0}}
        in_files = {"device": "nvme", "nvme_path": self.env.folder, "pipeline_read": True, "pipeline_write": True}
        for world, stage, in_background, offload in ((2, 1, True, {}), (3, 3, False, {}), (2, 3, True, offloads),
                                                     (2, 2, True, {"offload_optimizer": in_files})):
            with self.subTest(world=world, stage=stage, in_background=in_background, offload=offload):
                config = base_config("gpt", zero_optimization={"stage": stage, **offload},
                                     checkpoint={"interval": 1, "async": in_background})
                self.check_kills("script", config, world, self.KILLS, self.STEPS)

    def check_kills(self, form, config, world, kills, steps):
        model, data = self.env.model("gpt", form), self.env.data("gpt")
        whole, _ = self.env.train(model, data, config, world, steps)
        folder = self.env.run_dir()
        command = self.env.command(model, data, config, folder, world, steps, ["--resume", "auto"])
        for kill in range(kills):
            rank = 0 if kill % 2 == 0 else world - 1
            self.assertEqual(self.kill_in_a_save(command, folder, rank), 137)
        outcome = harness.run(command)
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("resumed from", outcome.text)
        self.assert_same(whole, harness.read_metrics(folder))


class KilledOften(Killed):
    """A thousand kills (scripts/test --slow)."""
    KILLS, STEPS = 500, 1000  # each start comes a step or two further

    def test_in_the_middle_of_a_save_of_tensor_ranks(self):
        config = base_config("gpt", zero_optimization={"stage": 1}, tensor_parallel={"size": 2}, checkpoint={"interval": 1})
        self.check_kills("trace", config, world=4, kills=100, steps=250)


class GoneBack(PooledTest, OracleTest):
    def test_a_run_that_went_back_goes_on_from_there(self):
        """It ended before it saved again: the later checkpoints in its folder are those that it turned away from."""
        config = base_config("mlp", checkpoint={"interval": 2, "keep_last": 9})
        model, data = self.env.model("mlp"), self.env.data("mlp")
        whole, folder = self.env.train(model, data, config, 2, 6)
        saves_nothing = {**config, "checkpoint": {"at_end": False}}
        back = os.path.join(folder, "checkpoints/step_00000002/")
        self.env.train(model, data, saves_nothing, 2, 3, folder, ["--resume", back])
        again, _ = self.env.train(model, data, config, 2, 6, folder, ["--resume", "auto"])
        self.assert_same(whole, again)

    def test_a_checkpoint_whose_replacement_was_killed_is_found_by_its_name(self):
        config = base_config("mlp", checkpoint={"interval": 2, "keep_last": 9})
        model, data = self.env.model("mlp"), self.env.data("mlp")
        whole, folder = self.env.train(model, data, config, 2, 4)
        named = os.path.join(folder, "checkpoints/step_00000002")
        os.rename(named, named + ".replaced")
        outcome = harness.run([harness.program("dslaunch"), "consolidate", named, self.env.path("whole.safetensors")])
        self.assertEqual(outcome.code, 0, str(outcome))
        again, _ = self.env.train(model, data, config, 2, 4, folder, ["--resume", named])
        self.assert_same(whole, again)
        self.assertFalse(os.path.exists(named + ".replaced"))


class Restarted(PooledTest, OracleTest):
    """--max_restarts before the job has saved anything: it begins again where it began."""

    def setUp(self):
        self.config = base_config("mlp", zero_optimization={"stage": 1}, checkpoint={"dir": self.env.run_dir()})
        self.model, self.data = self.env.model("mlp"), self.env.data("mlp")
        _, self.earlier = self.env.train(self.model, self.data, base_config("mlp"), 2, 5)

    def restarted(self, *options):
        """The metrics of 300 steps, of whose first attempt a rank was killed after its first step."""
        folder = self.env.run_dir()
        command = self.env.command(self.model, self.data, self.config, folder, 2, 300, ["--max_restarts", "1", *options])
        process = harness.start(command)
        while process.poll() is None and not os.path.exists(os.path.join(folder, "metrics.jsonl")):
            time.sleep(0.001)
        os.kill(harness.rank_processes(folder, 1)[0], signal.SIGKILL)
        text, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, text)
        self.assertIn("restart 1 of 1", text)
        return harness.read_metrics(folder)

    def test_at_the_path_that_it_was_given(self):
        checkpoint = ["--resume", os.path.join(self.earlier, "checkpoints")]
        whole, _ = self.env.train(self.model, self.data, self.config, 2, 300, extra=checkpoint)
        self.assertEqual(whole[0]["step"], 6)
        self.assert_same(whole, self.restarted(*checkpoint))

    def test_afresh_although_an_earlier_run_left_checkpoints_in_the_same_folder(self):
        whole, _ = self.env.train(self.model, self.data, self.config, 2, 300)
        self.assert_same(whole, self.restarted())


class RestartedOnDamage(PooledTest, OracleTest):
    """What a rank of a restart does: it takes what its job saved, or begins where the job began."""

    def setUp(self):
        self.model, self.data, self.saves = self.env.model("mlp"), self.env.data("mlp"), self.env.run_dir()
        self.config = base_config("mlp", checkpoint={"dir": self.saves})
        _, earlier = self.env.train(self.model, self.data, base_config("mlp"), 1, 5)
        self.path = os.path.join(earlier, "checkpoints")

    def attempt(self, job, steps, *options):
        folder = self.env.run_dir()
        outcome = self.env.run(self.model, self.data, self.config, folder, 1, steps, ["--job", job, *options])
        self.assertEqual(outcome.code, 0, str(outcome))
        return outcome.text, harness.read_metrics(folder)

    def restart(self, job, begin_from, steps=8):
        return self.attempt(job, steps, "--resume", "auto", "--begin_from", begin_from)

    def spoil_manifest(self, step):
        with open(os.path.join(self.saves, f"step_{step:08d}", "manifest.json"), "w") as file:
            file.write("{")

    def test_a_manifest_that_cannot_be_read_is_not_held_against_the_job(self):
        self.attempt("earlier", 9)
        self.spoil_manifest(9)
        for begin_from, first in (("", 1), (self.path, 6)):
            text, rows = self.restart(f"mine{first}", begin_from)
            self.assertEqual([row["step"] for row in rows], list(range(first, 9)), text)
            self.assertIn("step_00000009/manifest.json", text)
        text, rows = self.restart("mine6", "", 10)
        self.assertEqual([row["step"] for row in rows], [9, 10], text)
        self.assertIn("skipping", text)

    def test_its_own_that_are_damaged_send_it_back_to_where_it_began(self):
        shard = os.path.join(self.saves, "step_00000007/rank_00000.safetensors")
        for begin_from in ("", self.path):
            _, whole = self.restart("whole", begin_from)
            for harm, told in ((flip_a_bit, "has the hash"), (lambda path: os.truncate(path, 1000), "has 1000 bytes")):
                with self.subTest(begin_from=begin_from, told=told):
                    shutil.rmtree(self.saves, ignore_errors=True)
                    self.attempt("mine", 7)
                    harm(shard)
                    text, rows = self.restart("mine", begin_from)
                    self.assert_same(whole, rows)
                    self.assertIn(told, text)
                    self.assertIn("FALLING BACK to the job's start", text)


    def check_shared_folder(self, spoil):
        self.attempt("earlier", 5)
        self.attempt("mine", 7, "--resume", self.saves)
        spoil()
        text, rows = self.restart("mine", self.saves)
        self.assertEqual([row["step"] for row in rows], [6, 7, 8], text)

    def test_its_own_that_are_damaged_are_not_where_it_began_in_a_folder_that_it_shares(self):
        self.check_shared_folder(lambda: os.truncate(os.path.join(self.saves, "step_00000007/rank_00000.safetensors"), 1000))

    def test_nor_are_those_of_which_nobody_can_say_whose_they_are(self):
        self.check_shared_folder(lambda: self.spoil_manifest(7))


class RunFolderRemoved(OracleTest):
    def test_the_run_goes_on_in_a_new_one_and_says_so(self):
        config, folder = base_config("mlp", checkpoint={"interval": 300}), self.env.run_dir()
        command = self.env.command(self.env.model("mlp"), self.env.data("mlp"), config, folder, 2, 600)
        process = harness.start(command)
        latest = os.path.join(folder, "checkpoints/latest")
        while process.poll() is None and not os.path.exists(latest):
            time.sleep(0.001)
        ranks = [pid for rank in range(2) for pid in harness.rank_processes(folder, rank)]
        for pid in ranks:
            os.kill(pid, signal.SIGSTOP)  # nothing is made there while it goes
        shutil.rmtree(folder)
        for pid in ranks:
            os.kill(pid, signal.SIGCONT)
        text, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, text)
        self.assertEqual(text.count("was removed during the run"), 1, text)
        self.assertEqual(harness.read_metrics(folder)[-1]["step"], 600)
        with open(latest) as file:
            self.assertEqual(file.read().strip(), "step_00000600")


class WholeWeights(PooledTest, OracleTest):
    def test_beside_every_checkpoint_in_the_compute_type(self):
        for precision, dtype in ({"enabled": True}, torch.bfloat16), ({"enabled": False}, torch.float32):
            with self.subTest(dtype=dtype):
                zero = {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}
                config = base_config("gpt", zero_optimization=zero, bf16=precision)
                _, folder = self.env.train(self.env.model("gpt"), self.env.data("gpt"), config, 3, 3)
                whole = tensor_file.read(os.path.join(folder, "checkpoints/step_00000003/weights.safetensors"))
                expected = tensor_file.read(self.env.consolidate(folder, f"whole-{dtype}.safetensors"))
                self.assertEqual(sorted(whole), sorted(expected))
                for name, tensor in whole.items():
                    self.assertEqual(tensor.dtype, dtype, name)
                    self.assertTrue(torch.equal(tensor, expected[name].to(dtype)), name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
