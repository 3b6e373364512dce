#!/usr/bin/env python3
"""What a stranger meets: every slip has a message that says what to do, the exit code of the manual, no traceback, nothing
left behind, and a bounded time. Then the deaths of ranks and the ways to start ranks by hand. What is decided while words,
configs and files are read has one case of each kind here, and its list in tests/unit (config/bad_config_test.cpp,
command_line/*_words_test.cpp, command_line/input_slips_test.cpp, runtime/data/bad_data_test.cpp)."""
import fcntl
import json
import os
import re
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import light_torch  # noqa: E402,F401
import numpy  # noqa: E402
import torch  # noqa: E402
import tensor_file  # noqa: E402
from memory_cgroup import MemoryCgroup  # noqa: E402
import pace  # noqa: E402
import harness  # noqa: E402
from pooled import PooledTest  # noqa: E402
from harness import base_config, program, run  # noqa: E402

FORBIDDEN = ("Traceback", "terminate called", "what():", "core dumped", "Segmentation fault", "c10::Error", "std::")

NVML_WITH_TWO_GPUS = """
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#ifndef BEGUN
#define BEGUN 0
#endif
#ifndef LOST
#define LOST -1
#endif
static void *wait_for_ever(void *none) { for (;;) pause(); }
int nvmlInit_v2(void) {
  pthread_t thread;
  return BEGUN ? BEGUN : pthread_create(&thread, 0, wait_for_ever, 0);  // as NVIDIA's does
}
const char *nvmlErrorString(int status) { return status == 18 ? "Driver/library version mismatch" : "GPU is lost"; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  *device = (void *)(unsigned long)(index + 1);
  return (int)index == LOST ? 15 : 0;
}
int nvmlDeviceGetName(void *device, char *out, unsigned size) { return snprintf(out, size, "GPU of a test") < 0; }
int nvmlDeviceGetUUID(void *device, char *out, unsigned size) {
  snprintf(out, size, "GPU-0000000%lu-0000-0000-0000-000000000000", (unsigned long)device);
  return 0;
}
"""


class BadInputTest(harness.TrainingTest):
    def tearDown(self):
        self.assertEqual(harness.job_processes(self.env.folder), [], "processes are left behind")

    def path(self, name):
        return self.env.path(name)

    def file(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        return self.path(name)

    def start(self, kind="mlp", model=None, data=None, config=None, world=2, steps=5, run_dir=None, extra=()):
        """The command of a good run, one part replaced by a bad one."""
        return self.env.command(model or self.env.model(kind), data or self.env.data(kind), config or base_config(kind),
                                 run_dir or self.env.run_dir(), world, steps, extra)

    def outcome_of(self, command, env):
        return run(command, env=env)

    def small_disk(self):
        """A file system of 1 MB, or the reason why there is none here."""
        mount = tempfile.mkdtemp(prefix="dsl-small-")
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", mount], capture_output=True, text=True)
        if made.returncode:
            os.rmdir(mount)
            self.skipTest(f"cannot mount a small file system here (needs root): {made.stderr.strip()}")
        self.addCleanup(lambda: (subprocess.run(["umount", "-l", mount]), os.rmdir(mount)))
        return mount

    def assert_refused(self, command, code, *words, env=None):
        outcome = self.outcome_of(command, env)
        codes = code if isinstance(code, tuple) else (code,)
        self.assertIn(outcome.code, codes, str(outcome))
        self.assert_clean(outcome)
        said = outcome.text.lower()
        for word in words:
            options = word if isinstance(word, tuple) else (word,)
            self.assertTrue(any(option.lower() in said for option in options), f"none of {options} in: {outcome}")
        return outcome

    def assert_clean(self, outcome):
        for word in FORBIDDEN:
            self.assertNotIn(word, outcome.text, str(outcome))


class PooledInput(PooledTest, BadInputTest):
    """What ranks refuse, in the grid's pools."""

    def start(self, kind="mlp", model=None, data=None, config=None, world=2, steps=5):
        """The arguments of a good run, one part replaced by a bad one."""
        return (model or self.env.model(kind), data or self.env.data(kind), config or base_config(kind), self.env.run_dir(),
                world, steps)

    def outcome_of(self, command, env):
        return self.env.run(*command) if isinstance(command, tuple) else super().outcome_of(command, env)


class CommandLine(BadInputTest):
    def test_an_unknown_option_has_a_suggestion(self):
        self.assert_refused(self.start(extra=["--num_gpu", "2"]), 64, "--num_gpus")

    def cuda_command(self, count):
        return [program("dslaunch"), "--device", "cuda", "--num_gpus", str(count), "--config",
                self.env.config(base_config("mlp")), "--data", self.env.data("mlp"), "--run_dir", self.env.run_dir(),
                self.env.model("mlp")]

    def test_gpus_requested_without_gpus(self):
        self.assert_refused(self.cuda_command(3), 69, "GPU")

    def test_three_gpus_requested_of_two(self):
        """NVML is opened at run time, so a library of that name with two devices is two GPUs to the launcher."""
        outcome = self.assert_refused(self.cuda_command(3), 69, "GPU", "2", env=self.with_two_gpus())
        if "without CUDA" not in outcome.text:  # such a build stops before it counts
            self.assertIn("3", outcome.text)

    def test_gpus_that_do_not_answer_do_not_select_the_cpu(self):
        """As after an upgrade of the driver without a reboot. Who wants the CPU says so, in either way."""
        env, command = self.with_two_gpus("-DBEGUN=18"), [program("dslaunch"), "exec"]
        for device in ([], ["--device", "cuda"]):
            self.assert_refused([*command, *device, "--", "true"], 69, "Driver/library version mismatch", "reboot",
                                "--device cpu", env=env)
        for device, variables in ((["--device", "cpu"], {}), ([], {"CUDA_VISIBLE_DEVICES": ""}),
                                  ([], {"CUDA_VISIBLE_DEVICES": "-1"})):
            outcome = run([*command, *device, "--", "true"], env={**env, **variables})
            self.assertEqual((outcome.code, "mismatch" in outcome.text), (0, False), outcome)

    def test_nvml_without_a_driver_means_no_gpus(self):
        for answer in (9, 12, 17):  # not loaded; a toolkit's stand-in for the library; blocked by the job's cgroup
            outcome = run([program("dslaunch"), "exec", "--", "true"], env=self.with_two_gpus(f"-DBEGUN={answer}"))
            self.assertEqual((outcome.code, outcome.text), (0, ""), outcome)

    def test_a_lost_gpu_is_reported(self):
        env, command = self.with_two_gpus("-DLOST=1"), [program("dslaunch"), "exec"]
        told = 'GPU 1 of 2 does not answer: NVML says "GPU is lost"'
        outcome = run([*command, "--", "sh", "-c", "echo $WORLD_SIZE"], env=env)
        self.assertEqual((outcome.code, outcome.out), (0, "1\n"), outcome)
        self.assertIn(told, outcome.err)
        self.assert_refused([*command, "--num_gpus", "2", "--", "true"], 69, "1 GPU(s)", told, env=env)
        env = {**self.with_two_gpus("-DLOST=0"), "CUDA_VISIBLE_DEVICES": "1"}  # which CUDA counts, we cannot know
        self.assert_refused([*command, "--", "true"], 69, "GPU 0 of 2 does not answer", "--device cpu", env=env)

    def test_device_cpu_with_torchruns_auto(self):
        outcome = run([program("dslaunch"), "exec", "--device", "cpu", "--nproc_per_node", "auto", "--", "true"],
                      env=self.with_two_gpus("-DBEGUN=18"))
        self.assertEqual(outcome.code, 0, outcome)

    def test_a_rank_without_a_device_says_why(self):
        config = self.env.config(base_config("mlp"))
        outcome = self.assert_refused([program("dsworker"), "train", self.env.model("mlp"), "--config", config, "--data",
                                       self.env.data("mlp"), "--run_dir", self.env.run_dir(), "--device", "cuda"], 69)
        if "built without" not in outcome.text and "libdslaunch_cuda" not in outcome.text:
            self.assertRegex(outcome.text, "libcuda.so.1|no CUDA device is visible")

    def with_two_gpus(self, *macros):
        """An environment in which NVML is a library of ours."""
        source = self.file("nvml.c", NVML_WITH_TWO_GPUS)
        made = subprocess.run(["cc", "-shared", "-fPIC", "-pthread", "-Wl,-z,nodelete", *macros, "-o",
                               self.path("libnvidia-ml.so.1"), source], capture_output=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        env = harness.environment(LD_LIBRARY_PATH=self.env.folder)
        del env["CUDA_VISIBLE_DEVICES"]
        return env

    def test_the_drivers_thread_does_not_take_signals(self):
        """It was there before the launcher's loop, and would end the launcher, with no rank told to save."""
        script = "trap 'echo saved; exit 75' TERM; echo ready; while :; do sleep 0.05; done"
        for number, code in ((signal.SIGTERM, 75), (signal.SIGINT, 130)):
            with self.subTest(signal=number):
                process = subprocess.Popen([program("dslaunch"), "exec", "--device", "cuda", "--num_gpus", "2", "--", "sh", "-c",
                                            script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                           env=self.with_two_gpus(), start_new_session=True)
                for _ in range(2):
                    self.assertIn("ready", process.stdout.readline())
                process.send_signal(number)
                out, err = process.communicate(timeout=harness.LIMIT_S)
                self.assertEqual((process.returncode, out.count("saved")), (code, 2), out + err)

    def test_what_a_run_assumes_is_reported(self):
        """Of the config, and of the model."""
        outcome = run([program("dslaunch"), "--device", "cpu", "--data", self.env.data("mlp"), "--run_dir",
                       self.env.run_dir(), "--steps", "2", "--set", "init.seed=5", self.env.model("mlp")])
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("default", outcome.text.lower())
        self.assertEqual(outcome.text.count('"init" has no effect'), 1, str(outcome))


    def test_too_little_address_space_for_libtorch(self):
        """Its initializers allocate before main, where nobody catches what they throw."""
        def version(mib):
            limit = mib << 20
            return subprocess.run([program("dsworker"), "--version"], capture_output=True, text=True,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))

        least, enough, without_libraries = 16, 1 << 14, 127
        if version(enough).returncode != 0:
            self.skipTest("a sanitizer's build needs more address space than that")
        while enough - least > 4:
            middle = (least + enough) // 2
            least, enough = (middle, enough) if version(middle).returncode == without_libraries else (least, middle)
        outcome = version(enough)
        while outcome.returncode != 0:
            self.assertEqual((outcome.returncode, outcome.stderr.count("error: out of memory")), (69, 1), outcome.stderr)
            self.assert_clean(harness.Outcome([], 69, outcome.stdout, outcome.stderr, 0))
            enough += 16
            outcome = version(enough)
        self.assertGreater(enough, least + 16, "no limit between too little for the libraries and enough")


class Mistakes(BadInputTest):
    """What the launcher alone refuses, by the hundred: the code of the table, a short answer, and nothing twice."""
    LINES, COLUMNS = 12, 400

    def setUp(self):
        shutil.copy(self.env.model("mlp"), self.path("model.pt"))
        numpy.savez(self.path("data.npz"), x=numpy.zeros((4, 6), "f4"), y=numpy.zeros((4, 1), "f4"))
        tensor_file.write(self.path("weights.safetensors"), {"w": torch.zeros(1)})
        for name in ("notes.txt", "run.py", "\33[31mred.pt"):
            self.file(name, "text\n")
        self.file("ds.json", '{"train_batch_size": 4}')
        os.mkdir(self.path("runs"))

    def command(self, row, number):
        words, _, rest = row.partition(" <<")
        if rest:
            ending, _, text = rest.partition(" ")
            self.file(f"given{number}.{ending}", text.replace("\\e", "\\x1b").encode().decode("unicode_escape"))
            words += f" given{number}.{ending}"
        return ["bash", "-c", f'exec "$0" {words}', program("dslaunch")]

    def test_each_is_answered_with_its_code_shortly_and_once(self):
        with open(os.path.join(harness.ROOT, "tests/data/mistaken_commands.txt")) as file:
            rows = [line.rstrip("\n") for line in file if line[:1].isdigit()]
        self.assertGreater(len(rows), 100)
        env = harness.environment(XDG_STATE_HOME=self.path("state"))
        for number, row in enumerate(rows):
            code, _, words = row.partition(" ")
            outcome = run(self.command(words, number), env=env, cwd=self.env.folder)
            with self.subTest(row=row):
                self.assertEqual(outcome.code, int(code), str(outcome))
                self.assert_clean(outcome)
                self.assertNotRegex(outcome.text, r"[\0-\x08\x0b-\x1f\x7f]", "control characters")
                lines = [re.sub("^(dslaunch: |error: |warning: |note: )+", "", line) for line in outcome.text.splitlines()]
                self.assertTrue(lines, "no answer")
                self.assertLessEqual(len(lines), self.LINES, str(outcome))
                self.assertLessEqual(max(map(len, lines)), self.COLUMNS, str(outcome))
                self.assertEqual(len(set(lines)), len(lines), f"said twice: {outcome}")


class Models(PooledInput):
    def test_a_program_ends_as_a_pool_does(self):
        command = self.env.command(self.file("none.pt", "I am no model\n"), self.env.data("mlp"), base_config("mlp"),
                                   self.env.run_dir(), 2, 5)
        self.assert_refused(command, 65, "none.pt", "TorchScript")

    def refused(self, path, code, *words):
        self.assert_refused(self.start(model=path), code, os.path.basename(path), *words)

    def test_a_frozen_module(self):
        path = self.path("for_serving.pt")
        torch.jit.save(torch.jit.freeze(torch.jit.load(self.env.model("mlp")).eval()), path)
        self.refused(path, 65, "frozen")

    def test_a_file_made_for_inference(self):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.norm, self.layer = torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Linear(64, 5)

            def forward(self, x):
                return self.layer(torch.relu(self.norm(self.conv(x))).flatten(1))

        def quantized():
            """Its first layer still has parameters, which the second one would give no gradient."""
            net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Linear(16, 1))
            chosen = {"1": torch.ao.quantization.default_dynamic_qconfig}
            return torch.jit.script(torch.ao.quantization.quantize_dynamic(net, chosen))

        from torch.utils.mobile_optimizer import optimize_for_mobile
        plain = torch.jit.script(Net().eval())
        made = {"optimize_for_inference": torch.jit.optimize_for_inference(plain),
                "optimize_for_mobile": optimize_for_mobile(torch.jit.script(Net().eval())), "quantized": quantized()}
        for word, module in made.items():
            with self.subTest(word=word):
                module.save(self.path("made.pt"))
                self.refused(self.path("made.pt"), 65, word, "no gradient", "torch.jit.script(module).save")

    def scripted(self, module):
        torch.jit.script(module).save(self.path("scripted.pt"))
        return self.path("scripted.pt")

    def test_a_backward_that_fails(self):
        class Overwrites(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(6, 1)

            def forward(self, x, y):
                h = self.layer(x).exp()
                h += 1  # exp's backward needs what it gave
                return (h * h - y).mean()

        self.assert_refused(self.start(model=self.scripted(Overwrites())), 65, "backward", "inplace operation")

    def test_a_dict_without_a_loss(self):
        class Names(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(6, 1)

            def forward(self, x, y):
                h = self.layer(x)
                return {"penalty": h.abs().mean(), "error": (h - y).square().mean()}

        self.assert_refused(self.start(model=self.scripted(Names())), 65, "dict", '"loss"')

    def test_outputs_before_the_loss(self):
        """With one sample a rank the outputs are a single number, which was taken for the loss."""
        class OutputsFirst(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(6, 1)

            def forward(self, x, y):
                h = self.layer(x)
                return h, (h - y).square().mean()

        config = base_config("mlp", train_batch_size=2)
        self.assert_refused(self.start(model=self.scripted(OutputsFirst()), config=config), 65, "Float[1, 1] first",
                            "the loss must be the first element of a tuple")

    def test_a_loss_file_that_raises(self):
        class Raises(torch.nn.Module):
            def forward(self, outputs, labels):
                if outputs.numel() > 0:
                    raise RuntimeError("not with me")
                return outputs.sum()

        class Predicts(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(6, 1)

            def forward(self, x):
                return self.layer(x)

        torch.jit.script(Raises()).save(self.path("loss.pt"))
        config = base_config("mlp", loss=self.path("loss.pt"))
        self.assert_refused(self.start(model=self.scripted(Predicts()), config=config), 65, "loss.pt", "not with me")


class Data(PooledInput):
    def test_a_program_ends_as_a_pool_does(self):
        config = base_config("mlp")
        for data, code in ((self.path("nowhere.safetensors"), 66), (self.file("no.safetensors", "not tensors at all"), 65)):
            command = self.env.command(self.env.model("mlp"), data, config, self.env.run_dir(), 2, 5)
            self.assert_refused(command, code, os.path.basename(data))

    def data_file(self, name, **tensors):
        tensor_file.write(self.path(name), tensors)
        return self.path(name)

    def test_synthetic_samples_larger_than_memory(self):
        arrays = {"x": {"shape": [2**40], "dtype": "float32"}, "y": {"shape": [1], "dtype": "float32"}}
        config = base_config("mlp", data={"train": "synthetic", "synthetic": arrays})
        self.assert_refused(self.env.command(self.env.model("mlp"), "synthetic", config, self.env.run_dir(), 2, 5), 69, "memory")

    def test_shapes_that_do_not_fit_forward(self):
        data = self.data_file("wide.safetensors", x=torch.zeros(72, 9), y=torch.zeros(72, 1))
        self.assert_refused(self.start(data=data), 65, ("shape", "size"), "9", "6")

    def test_types_that_forward_and_the_loss_do_not_accept(self):
        """Pixels in 8 bits, classes and ids that came as floats: the message says which array becomes what."""
        pixels, classes, ids = (harness.samples_of(kind) for kind in ("convnet", "convnet", "gpt"))
        pixels["x"] = (pixels["x"] * 9).to(torch.uint8)
        classes["label"] = classes["label"].float()
        ids["input_ids"] = ids["input_ids"].float()
        masks = harness.samples_of("mlp")
        masks["x"] = masks["x"] > 0
        for kind, arrays, words in (("convnet", pixels, "numeric inputs (pixels) as float32"),
                                    ("mlp", masks, "arrays of integers and booleans are not"),
                                    ("convnet", classes, "save class labels as integers"),
                                    ("gpt", ids, "save the array as integers")):
            with self.subTest(words=words):
                data = self.data_file("types.safetensors", **arrays)
                self.assert_refused(self.start(kind, data=data), 65, words)

    def test_a_loss_that_is_not_finite(self):
        tensors = harness.samples_of("mlp")
        tensors["y"][80] = float("nan")  # in the third batch of 36
        data = self.data_file("nan.safetensors", **tensors)
        for world in (1, 3):
            with self.subTest(world=world):
                self.assert_refused(self.start(data=data, world=world), 76, ("not finite", "finite", "nan"), "step 3")


class Config(BadInputTest):
    def test_a_typo_has_line_column_and_a_suggestion(self):
        config = self.env.config(None, ".json", '{\n "train_batch_size": 36,\n "gradient_clipp1ng": 1.0\n}\n')
        self.assert_refused(self.start(config=config), 65, "gradient_clipp1ng", "gradient_clipping", ":3:2:")


class Network(BadInputTest):
    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("unshare"), "makes a network of its own")
    def test_a_loopback_interface_that_is_down(self):
        if subprocess.call(["unshare", "--net", "true"], stderr=subprocess.DEVNULL) != 0:
            self.skipTest("this container forbids it")
        self.assert_refused(["unshare", "--net", *self.start()], 69, "Network is unreachable", "loopback", "ip link set lo up")


class RunFolder(BadInputTest):
    def test_a_run_directory_that_cannot_be_created(self):
        self.file("in-the-way", "")
        self.assert_refused(self.start(run_dir=self.path("in-the-way/run")), 73, "in-the-way")

    def test_a_run_directory_that_holds_a_run(self):
        folder = self.env.run_dir()
        self.env.train(self.env.model("mlp"), self.env.data("mlp"), base_config("mlp"), 1, 3, folder)
        self.assert_refused(self.start(run_dir=folder), 73, folder, "--resume", "--overwrite")
        mine = self.file("mine.txt", "mine")
        written = ("metrics.jsonl", "events.jsonl", "launcher.jsonl", "run.json", "config.resolved.json",
                   "model_skeleton.pt", "logs/localhost.0.log", "checkpoints/latest", "checkpoints/latest.tmp")
        for name in written:
            path = os.path.join(folder, name)
            if os.path.lexists(path):
                os.unlink(path)
            os.symlink(mine, path)
        rows, _ = self.env.train(self.env.model("mlp"), self.env.data("mlp"), base_config("mlp"), 1, 4, folder,
                                  ["--overwrite"])
        self.assertEqual([row["step"] for row in rows], [1, 2, 3, 4])
        with open(mine, encoding="utf-8") as file:  # every file of a run is replaced, never followed
            self.assertEqual(file.read(), "mine")
        for name in written[:-1]:
            self.assertFalse(os.path.islink(os.path.join(folder, name)), name)

    def test_checkpoints_elsewhere_are_not_overwritten(self):
        """They may be another run's; what a run that dies before it saves would resume from is told."""
        folder, elsewhere = self.env.run_dir(), self.path("elsewhere")
        config = base_config("mlp", checkpoint={"dir": elsewhere})
        self.env.train(self.env.model("mlp"), self.env.data("mlp"), config, 1, 3, folder)
        outcome = run(self.env.command(self.env.model("mlp"), self.env.data("mlp"), config, folder, 1, 2, ["--overwrite"]))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertRegex(outcome.err, rf"warning: --overwrite keeps the checkpoints in {elsewhere}: .*--resume auto")
        self.assertIn("step_00000003", os.listdir(elsewhere))

    def test_a_usage_error_keeps_an_earlier_run(self):
        """--overwrite removes nothing for a run whose files are not there; the launcher says what a rank would have
        (tests/unit/command_line/input_slips_test.cpp has the other slips)."""
        folder, model, data = self.env.run_dir(), self.env.model("convnet"), self.env.data("convnet")
        config = base_config("convnet", checkpoint={"interval": 2})
        self.env.train(model, data, config, 1, 3, folder)
        tree = lambda: {name: os.stat(name).st_mtime_ns for name in
                        (os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)}
        before = tree()
        for code, words in ((66, ["--data", self.path("nowhere.pt"), model]),
                            (65, ["--data", data, self.file("text.pt", "no model")])):
            with self.subTest(code=code):
                self.assert_refused([program("dslaunch"), "--device", "cpu", "--config", self.env.config(config), "--steps",
                                     "3", "--num_gpus", "1", "--run_dir", folder, "--overwrite", *words], code)
                self.assertEqual(tree(), before)

    def test_a_file_size_limit_is_reported_like_a_full_disk(self):
        command = self.start("gpt", steps=3)
        outcome = subprocess.run(command, capture_output=True, text=True, env=harness.environment(), timeout=60,
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)))
        self.assertEqual(outcome.returncode, 74, outcome.stderr)
        self.assertIn("File too large", outcome.stderr)

    def test_a_variable_of_a_nodes_directory_that_is_not_set(self):
        offload = {"device": "nvme", "nvme_path": "$NO_SUCH_SCRATCH/swap"}
        config = base_config("mlp", zero_optimization={"stage": 2, "offload_optimizer": offload})
        self.assert_refused(self.start(config=config), 65, "zero_optimization.offload_optimizer.nvme_path",
                            "the variable NO_SUCH_SCRATCH is not set on this node")

    def test_an_unusable_checkpoint_directory_is_reported_before_training(self):
        self.file("no-folder", "")
        config = base_config("mlp", checkpoint={"dir": self.path("no-folder/checkpoints")})
        outcome = self.assert_refused(self.start(config=config), 73, "checkpoint.dir", self.path("no-folder"))
        self.assertNotIn("step 1", outcome.text)

    def test_an_unusable_report_path_is_reported_before_training(self):
        self.file("in-the-way", "")
        for place in ("in-the-way/flops.txt", "."):
            profile = {"enabled": True, "profile_step": 10**6, "output_file": self.path(place)}
            with self.subTest(place=place):
                self.assert_refused(self.start(config=base_config("mlp", flops_profiler=profile)), 73, "flops_profiler.output_file", self.path(place))

    def test_a_full_disk_is_not_reported_as_a_permission_error(self):
        """A restart may help there, which 73 is not followed by."""
        folder = self.env.run_dir()
        os.mkdir(folder)
        try:
            os.mknod(os.path.join(folder, "config.resolved.json"), 0o666 | stat.S_IFCHR, os.makedev(1, 7))  # /dev/full
        except OSError as error:
            self.skipTest(f"cannot make a device node here (needs root): {error}")
        self.assert_refused(self.start(run_dir=folder, extra=["--resume", "auto"]), 74, "config.resolved.json", "No space left")

    def test_a_full_disk_keeps_the_previous_checkpoint(self):
        mount = self.small_disk()
        checkpoint = {"dir": mount, "interval": 2, "keep_last": 9}
        config = base_config("gpt", checkpoint=checkpoint)
        self.assert_refused(self.start("gpt", config=config, steps=20), 74, ("No space left", "disk full", "full"), mount)
        out = self.path("rescued.pt")
        outcome = run([program("dslaunch"), "consolidate", mount, out])
        self.assertEqual(outcome.code, 0, str(outcome))
        loss = torch.jit.load(out)(*[t[:4] for t in harness.samples_of("gpt").values()])
        self.assertTrue(torch.isfinite(loss))
        self.assertEqual([name for name in os.listdir(mount) if name.endswith((".tmp", ".part"))], [])


class Large(torch.nn.Module):
    """Its weight is one element in the file."""

    def __init__(self, rows):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1).expand(rows, 1024))

    def forward(self, x, y):
        return (self.weight[0, :6] * x - y).square().mean()


class Offloaded(BadInputTest):
    """State that has no room outside of the device: refused before the first step."""

    RING = 0.25  # GiB of each rank, through which updated parameters go

    def zero(self, place, stage=2, **more):
        return {"stage": stage, "offload_optimizer": place, **more}

    def large_model(self, state_bytes):
        """A model without weights in its file, whose masters, moments and gradients take so much."""
        rows = state_bytes // (16 * 1024) + 1
        path = self.path(f"large-{rows}.pt")
        torch.jit.script(Large(rows)).save(path)
        return path

    def assert_too_large(self, model, world, prefix=()):
        config = base_config("mlp", init={"seed": 1, "std": 0.02}, zero_optimization=self.zero({"device": "cpu"}))
        outcome = run([*prefix, *self.start("mlp", model=model, config=config, world=world)])
        self.assertEqual(outcome.code, 69, str(outcome))
        said = re.search(r"offloaded state needs ([\d.]+) GiB of host memory \(([\d.]+) GiB for each of (\d) ranks? of this "
                         r"host\), but only ([\d.]+) GiB are available", outcome.text)
        self.assertTrue(said, str(outcome))
        self.assertEqual(int(said[3]), world)
        self.assertAlmostEqual(float(said[1]), world * float(said[2]), delta=0.02 * world)
        self.assertGreater(float(said[1]), float(said[4]))
        self.assertNotIn("step 1 ", outcome.text)
        return [float(number) for number in (said[1], said[4])]

    def test_state_larger_than_the_memory_of_the_host(self):
        with open("/proc/meminfo") as file:
            total = int(re.search(r"MemTotal:\s+(\d+) kB", file.read())[1]) << 10
        model = self.large_model(total)
        for world in (1, 2):
            with self.subTest(world=world):
                needed, available = self.assert_too_large(model, world)
                self.assertAlmostEqual(needed - world * self.RING, total / 2**30, delta=0.1 + 0.01 * total / 2**30)
                self.assertLessEqual(available, total / 2**30)

    def test_state_on_the_device_larger_than_the_memory_of_the_host(self):
        with open("/proc/meminfo") as file:
            total = int(re.search(r"MemTotal:\s+(\d+) kB", file.read())[1]) << 10
        config = base_config("mlp", init={"seed": 1, "std": 0.02}, zero_optimization={"stage": 1})
        outcome = run(self.start("mlp", model=self.large_model(2 * total), config=config, world=2))
        self.assertEqual(outcome.code, 69, str(outcome))
        self.assertRegex(outcome.text, r"the run does not fit: its state needs [\d.]+ GiB of host memory \([\d.]+ GiB for "
                                       r"each of 2 ranks\), of which [\d.]+ GiB are available")
        self.assertIn("shows what each setting needs", outcome.text)

    def test_state_larger_than_the_limit_of_the_cgroup(self):
        """The pages of a file that was read count as used there, but are dropped when memory is needed."""
        with open(self.path("read"), "wb") as file:
            file.truncate(600 << 20)
        with MemoryCgroup(limit_bytes=3 << 29) as cgroup:
            if not cgroup.possible:
                self.skipTest(f"no memory cgroup can be made here: {cgroup.reason}")
            enter = ["sh", "-c", f'echo $$ > "$0/cgroup.procs" && cat {self.path("read")} > /dev/null && exec "$@"',
                     cgroup.folder]
            needed, available = self.assert_too_large(self.large_model(2 << 30), 1, enter)
            self.assertAlmostEqual(needed - self.RING, 2.0, delta=0.02)
            self.assertLess(available, 1.5)
            self.assertGreater(available, 1.0)

    def test_a_directory_that_takes_no_files(self):
        self.file("not-a-folder", "")
        for path, word in ((self.path("nowhere"), "No such file"), (self.path("not-a-folder"), "Not a directory"),
                           ("/proc/self", "not permitted")):
            with self.subTest(path=path):
                config = base_config("mlp", zero_optimization=self.zero({"device": "nvme", "nvme_path": path}))
                outcome = self.assert_refused(self.start(config=config), 73, path, "nvme_path", word)
                self.assertNotIn("step 1 ", outcome.text)

    def test_a_full_file_system(self):
        mount = self.small_disk()
        for place in ("offload_optimizer", "offload_param"):
            with self.subTest(place=place):
                zero = {"stage": 3, "stage3_param_persistence_threshold": 0, place: {"device": "nvme", "nvme_path": mount}}
                if place == "offload_param":
                    zero[place]["max_in_cpu"] = 0
                config = base_config("mlp", init={"seed": 1, "std": 0.02}, zero_optimization=zero)
                outcome = self.assert_refused(self.start(config=config, model=self.large_model(16 << 21)), 74, mount,
                                              "nvme_path", "No space left")
                self.assertNotIn("step 1 ", outcome.text)
                self.assertEqual(os.listdir(mount), [])


    def test_a_disk_that_fails_during_a_step(self):
        """An image of ext4 that is shut down as after an error of its disk. It has the files of one rank; the error that the
        others get from it is not shown again."""
        image, folder = self.file("disk.img", ""), tempfile.mkdtemp(prefix="dsl-disk-")
        self.addCleanup(shutil.rmtree, folder)
        for rank in range(3):
            os.mkdir(os.path.join(folder, str(rank)))
        mount = os.path.join(folder, "1")
        os.truncate(image, 32 << 20)
        made = None
        for command in (["mkfs.ext4", "-q", "-F", image], ["mount", "-o", "loop", image, mount]):
            made = shutil.which(command[0]) and subprocess.run(command, capture_output=True, text=True)
            if not made or made.returncode:
                self.skipTest(f"cannot mount an image here (needs root): {command[0]}: {made.stderr.strip() if made else 'absent'}")
        self.addCleanup(subprocess.run, ["umount", "-l", mount])
        in_files = {"device": "nvme", "nvme_path": folder + "/$RANK"}
        zero = {"stage": 3, "stage3_param_persistence_threshold": 0, "offload_optimizer": in_files,
                "offload_param": {**in_files, "max_in_cpu": 0}}
        config = base_config("mlp", zero_optimization=zero, checkpoint={"at_end": False})
        command = self.start(config=config, world=3, steps=1_000_000)
        job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=harness.environment())
        lines = []
        for line in job.stdout:
            is_first_step = " step " in line and not any(" step " in before for before in lines)
            lines.append(line)
            if is_first_step:
                directory = os.open(mount, os.O_RDONLY)
                fcntl.ioctl(directory, 0x8004587d, struct.pack("I", 2))  # EXT4_IOC_SHUTDOWN, without writing the log
                os.close(directory)
        text = "".join(lines)
        self.assertEqual(job.wait(timeout=60), 74, text)
        errors = [line for line in lines if "error: " in line and not line.startswith("  | ")]  # not of the summary at the end
        self.assertEqual(len(errors), 1, text)
        self.assertRegex(errors[0], r"(read|write) \d+ bytes at offset \d+ of the unnamed file in '\S+': Input/output error")
        self.assertFalse([word for word in FORBIDDEN if word in text], text)


class Infer(BadInputTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.checkpoints = {vocabulary: cls.trained(vocabulary) for vocabulary in (64, 256)}

    @classmethod
    def trained(cls, vocabulary):
        model, folder = cls.env.path(f"bytes{vocabulary}.pt"), cls.env.run_dir()
        outcome = run([sys.executable, os.path.join(harness.ROOT, "tools/export"), "gpt", model, "--vocab", str(vocabulary),
                       "--seq", "12", "--blocks", "1", "--width", "16", "--heads", "2", "--returns", "loss_logits"])
        assert outcome.code == 0, str(outcome)
        arrays = {"input_ids": {"shape": [12], "dtype": "int64", "low": 0, "high": vocabulary}, "labels": {"like": "input_ids"}}
        config = {"train_batch_size": 4, "data": {"train": "synthetic", "synthetic": arrays}}
        outcome = run([program("dslaunch"), "--device", "cpu", "--config", cls.env.config(config), "--run_dir", folder,
                       "--steps", "2", model])
        assert outcome.code == 0, str(outcome)
        return os.path.join(folder, "checkpoints")

    def command(self, *words, vocabulary=256):
        return [program("dslaunch"), "infer", "--checkpoint", self.checkpoints[vocabulary], "--prompt", "hello", *words]

    def test_every_temperature_is_accepted(self):
        coldest = run(self.command("--temperature", "0"))
        self.assertEqual((coldest.code, coldest.out[:5]), (0, "hello"), str(coldest))
        self.assertEqual(run(self.command("--temperature", "1e-300")).out, coldest.out)

    def test_a_too_long_context_restores_autocast(self):
        """The longest context is found by forwards that fail, here inside a region. Under autocast the scores of the two
        letters would be the same number."""
        class TwoLetters(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.positions = torch.nn.Embedding(24, 4)
                scores = torch.zeros(256, 4)
                scores[ord("A")], scores[ord("B")] = 1.0, 1.001
                self.register_buffer("scores", scores)

            def forward(self, input_ids: torch.Tensor, labels: torch.Tensor):
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    places = self.positions(torch.arange(input_ids.shape[1])).unsqueeze(0)
                logits = torch.nn.functional.linear(torch.ones_like(places), self.scores)
                return places.mean(), logits

        model, folder = self.path("regions.pt"), self.env.run_dir()
        torch.jit.script(TwoLetters()).save(model)
        arrays = {"input_ids": {"shape": [12], "dtype": "int64", "low": 0, "high": 256}, "labels": {"like": "input_ids"}}
        config = {"train_batch_size": 1, "data": {"train": "synthetic", "synthetic": arrays}}
        outcome = run([program("dslaunch"), "--device", "cpu", "--config", self.env.config(config), "--run_dir", folder,
                       "--steps", "1", model])
        self.assertEqual(outcome.code, 0, str(outcome))
        command = [program("dslaunch"), "infer", "--checkpoint", os.path.join(folder, "checkpoints"), "--prompt", "hi",
                   "--temperature", "0", "--num_tokens", "4"]
        given, found = run([*command, "--context", "24"]), run(command)
        self.assertEqual((given.code, given.out.strip()), (0, "hiBBBB"), str(given))
        self.assertEqual((found.code, found.out), (given.code, given.out), str(found))

    def test_parameters_in_files(self):
        folder = tempfile.mkdtemp(dir=self.env.folder)
        held, streamed = run(self.command("--num_tokens", "9")), run(self.command("--num_tokens", "9", "--nvme_path", folder))
        self.assertEqual((streamed.code, streamed.out), (0, held.out), str(streamed))
        self.assertEqual(os.listdir(folder), [])
        self.assert_refused(self.command("--nvme_path", folder + "/absent"), 73, folder + "/absent", "No such file", "--nvme_path DIR")

    def test_an_error_has_no_other_output(self):
        outcome = self.assert_refused(self.command(vocabulary=64), 65, "vocabulary has 64 tokens")
        self.assertEqual(outcome.out, "")

    def test_mistakes(self):
        for code, words, said in ((66, ["--prompts", self.path("absent")], ["file of prompts", "absent"]),
                                  (65, ["--context", "13"], ["has 13 tokens, and the model takes at most 12", "--context 12"]),
                                  (65, ["--num_beams", "2", "--cache_bytes", "1KiB"], ["needs", "may take 1.00 KiB"]),
                                  (64, ["--stop_ids", "a"], ["--stop_ids 'a': expected ids"])):
            with self.subTest(words=words):
                self.assert_refused(self.command("--prompt", "a longer text", *words), code, *said)
        outcome = run(self.command("--stop", "never comes", "--num_tokens", "3", "--json"))
        self.assertEqual((outcome.code, json.loads(outcome.out)["texts"][0]["finish"]), (0, "length"), str(outcome))

    def test_a_text_that_is_interrupted(self):
        process = subprocess.Popen(self.command("--num_tokens", str(10**6)), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=harness.environment(), start_new_session=True)
        self.assertEqual(process.stdout.read(8)[:5], b"hello")
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
        self.assertEqual((process.returncode, said), (-signal.SIGINT, b""))

    def test_lost_text_is_a_failure(self):
        with open("/dev/full", "wb") as full:
            outcome = subprocess.run(self.command("--num_tokens", "3"), stdout=full, stderr=subprocess.PIPE,
                                     env=harness.environment(), timeout=60)
        self.assertEqual(outcome.returncode, 74, outcome.stderr)


class RankFailures(BadInputTest):
    """A run without end, something that happens to it, and how the job ends."""

    def endless(self, world=3, **changes):
        folder = self.env.run_dir()
        config = base_config("gpt", **changes)
        process = harness.start(self.start("gpt", config=config, world=world, steps=10**6, run_dir=folder))
        self.addCleanup(lambda: process.poll() is None and os.killpg(process.pid, signal.SIGKILL))
        self.wait_for_steps(process, folder, 3)
        return process, folder

    def wait_for_steps(self, process, folder, count):
        deadline = time.monotonic() + harness.LIMIT_S
        while time.monotonic() < deadline and process.poll() is None:
            try:
                if len(harness.read_metrics(folder)) >= count:
                    return
            except (OSError, json.JSONDecodeError):
                pass  # not written yet, or just being written
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        self.fail(f"no {count} steps within {harness.LIMIT_S} s:\n{process.communicate()[0]}")

    def end(self, process, seconds):
        began = time.monotonic()
        with pace.at_most(seconds):
            try:
                text, _ = process.communicate(timeout=harness.LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                self.fail(f"the job did not end:\n{process.communicate()[0]}")
        outcome = harness.Outcome(process.args, process.returncode, text, "", time.monotonic() - began)
        self.assert_clean(outcome)
        return outcome

    def test_a_killed_rank_ends_the_job_and_is_named(self):
        process, folder = self.endless()
        victim = harness.rank_processes(folder, 1)
        self.assertEqual(len(victim), 1, harness.job_processes(folder))
        os.kill(victim[0], signal.SIGKILL)
        outcome = self.end(process, 5)
        self.assertEqual(outcome.code, 137, str(outcome))
        last = "\n".join(outcome.text.strip().splitlines()[-25:])
        self.assertIn("rank 1", last, str(outcome))
        self.assertRegex(last, "SIGKILL|signal 9")

    def test_a_rank_killed_in_an_evaluation_at_stage_3(self):
        """Gathers run in the middle of forward, and at its end for those that have left it already."""
        data = self.path("long.safetensors")
        tensor_file.write(data, {name: values.repeat(300, *[1] * (values.dim() - 1))
                                 for name, values in harness.samples_of("gpt").items()})
        folder = self.env.run_dir()
        config = base_config("gpt", zero_optimization={"stage": 3, "stage3_param_persistence_threshold": 0})
        process = harness.start(self.start("gpt", config=config, data=data, world=3, run_dir=folder,
                                            extra=["--eval_only"]))
        self.addCleanup(lambda: process.poll() is None and os.killpg(process.pid, signal.SIGKILL))
        self.wait_for_steps(process, folder, 0)  # the file is there, and the evaluation begins
        os.kill(harness.rank_processes(folder, 1)[0], signal.SIGKILL)
        outcome = self.end(process, 5)
        self.assertEqual(outcome.code, 137, str(outcome))
        self.assertIn("ranks 0, 2: stopped by dslaunch (exit code 71", outcome.text)

    def test_a_killed_rank_zero_too(self):
        process, folder = self.endless(world=2)
        os.kill(harness.rank_processes(folder, 0)[0], signal.SIGKILL)
        outcome = self.end(process, 5)
        self.assertEqual(outcome.code, 137, str(outcome))
        self.assertIn("rank 0", "\n".join(outcome.text.strip().splitlines()[-25:]), str(outcome))

    def test_ctrl_c_stops_cleanly_with_a_checkpoint(self):
        process, folder = self.endless(world=2)
        os.kill(process.pid, signal.SIGINT)
        outcome = self.end(process, 10)
        self.assertEqual(outcome.code, 130, str(outcome))
        done = harness.read_metrics(folder)[-1]["step"]
        rows, _ = self.env.train(self.env.model("gpt"), self.env.data("gpt"), base_config("gpt"), 2, done + 3, folder,
                                  ["--resume", "auto"])
        self.assertEqual([row["step"] for row in rows], list(range(1, done + 4)))

    def test_a_signal_to_launcher_and_ranks_lets_the_ranks_save(self):
        """As a scheduler sends it to all processes of a job: each rank hears of the end twice."""
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 75)):
            with self.subTest(number=number):
                process, folder = self.endless(world=2)
                for pid in (*(harness.rank_processes(folder, rank)[0] for rank in (0, 1)), process.pid):
                    os.kill(pid, number)
                outcome = self.end(process, 10)
                self.assertEqual(outcome.code, code, str(outcome))
                self.assertNotIn("killed by", outcome.text)
                done = harness.read_metrics(folder)[-1]["step"]
                self.assertTrue(os.path.isdir(os.path.join(folder, "checkpoints", f"step_{done:08d}")), str(outcome))

    def test_ctrl_c_twice_stops_at_once(self):
        process, _ = self.endless(world=2)
        deadline = pace.Deadline(5)
        while process.poll() is None and not deadline.passed():  # one at once after another is the same press
            os.kill(process.pid, signal.SIGINT)
            time.sleep(0.01)
        self.assertEqual(self.end(process, 5).code, 130)

    def test_a_killed_launcher_ends_the_ranks(self):
        process, folder = self.endless(world=2)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        deadline = pace.Deadline(5)
        while harness.job_processes(folder) and not deadline.passed():
            time.sleep(0.05)
        self.assertEqual(harness.job_processes(folder), [])


class WithoutDslaunch(BadInputTest):
    """dsworker as others start it."""

    rows = None  # of the same run by dslaunch

    def worker(self, folder, steps=5):
        return [program("dsworker"), "train", "--device", "cpu", "--config", self.env.config(base_config("mlp")), "--data",
                self.env.data("mlp"), "--run_dir", folder, "--steps", str(steps), self.env.model("mlp")]

    @classmethod
    def expected(cls):
        if cls.rows is None:
            cls.rows = cls.env.train(cls.env.model("mlp"), cls.env.data("mlp"), base_config("mlp"), 2, 5)[0]
        return cls.rows

    def assert_same_run(self, folder):
        keys = ("step", "loss", "lr", "grad_norm")
        rows, expected = harness.read_metrics(folder), self.expected()
        self.assertEqual([row["step"] for row in rows], [row["step"] for row in expected])
        for got, want in zip(rows, expected):
            for key in keys:
                self.assertAlmostEqual(got[key], want[key], delta=1e-5 * abs(want[key]))

    def free_port(self):
        import socket
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return str(probe.getsockname()[1])


class Torchrun(WithoutDslaunch):
    def test_torchrun(self):
        for rendezvous in (["--standalone"], ["--master_addr", "127.0.0.1", "--master_port", self.free_port()]):
            with self.subTest(rendezvous=rendezvous):
                folder = self.env.run_dir()
                outcome = run([sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", *rendezvous,
                               "--no-python", *self.worker(folder)], timeout=90)
                self.assertEqual(outcome.code, 0, str(outcome))
                self.assert_same_run(folder)


class ManualStart(WithoutDslaunch):
    """By hand, or alone."""

    def test_two_manually_started_ranks(self):
        folder, command = self.env.run_dir(), None
        command, port = self.worker(folder), self.free_port()
        ranks = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env=harness.environment(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                                                           MASTER_PORT=port)) for rank in (0, 1)]
        for rank in ranks:
            text, _ = rank.communicate(timeout=60)
            self.assertEqual(rank.returncode, 0, text)
        self.assert_same_run(folder)

    def wait_for_first_step(self, rank):
        lines = []
        for line in rank.stdout:
            if re.match(r"step +1/", line):
                return
            lines.append(line)
        self.fail("the rank ended before its first step:\n" + "".join(lines))

    def test_any_second_signal_ends_a_rank_at_once(self):
        """Rank 1 stands still, so that rank 0 cannot come to the end of its step."""
        folder, port = self.env.run_dir(), self.free_port()
        ranks = [subprocess.Popen(self.worker(folder, 10**6), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env=harness.environment(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                                                           MASTER_PORT=port)) for rank in (0, 1)]
        try:
            self.wait_for_first_step(ranks[0])
            ranks[1].send_signal(signal.SIGSTOP)
            for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):  # a warning is no first one
                ranks[0].send_signal(number)
            caught = lambda: int(re.search(rb"SigCgt:\s*(\w+)", harness.read_proc(ranks[0].pid, "status"))[1], 16)
            deadline = time.monotonic() + harness.LIMIT_S
            while caught() >> (signal.SIGTERM - 1) & 1 and time.monotonic() < deadline:  # until the first has arrived
                time.sleep(0.01)
            ranks[0].send_signal(signal.SIGINT)
            ranks[0].communicate(timeout=harness.LIMIT_S)
            self.assertEqual(ranks[0].returncode, -signal.SIGINT)
        finally:
            for rank in ranks:
                rank.kill()
                rank.communicate()

    def test_under_exec_with_the_same_run_directory(self):
        folder = self.env.run_dir()
        launch = [program("dslaunch"), "exec", "--device", "cpu", "--num_gpus", "2", "--run_dir", folder, "--"]
        outcome = run([*launch, *self.worker(folder)])
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assert_same_run(folder)

    def test_a_world_of_one_needs_nothing(self):
        folder = self.env.run_dir()
        outcome = run(self.worker(folder))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assert_same_run(folder)

    def test_a_run_directory_belongs_to_one_job_at_a_time(self):
        folder, forever = self.env.run_dir(), 10**6
        first = subprocess.Popen(self.worker(folder, forever), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 env=harness.environment())
        try:
            self.wait_for_first_step(first)
            other = self.worker(folder)
            self.assert_refused(other, 73, f"dsworker (process {first.pid}", folder)
            self.assert_refused(self.env.command(self.env.model("mlp"), self.env.data("mlp"), base_config("mlp"), folder,
                                                  extra=["--overwrite"]), 73, f"dsworker (process {first.pid}")
            # The other ranks of such a job hear of it at once.
            port = self.free_port()
            started = [subprocess.Popen(other, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env=harness.environment(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                                                                 MASTER_PORT=port)) for rank in (0, 1)]
            texts = [rank.communicate(timeout=harness.LIMIT_S)[0] for rank in started]
            self.assertEqual([rank.returncode for rank in started], [73, 71], texts)
        finally:
            first.terminate()
            first.communicate(timeout=60)
        self.assertEqual(first.returncode, 75)
        outcome = run([*self.worker(folder), "--resume", "auto"])  # it is free again
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertNotIn(".lock", os.listdir(folder))

    def test_an_unusable_trace_path_is_reported_before_training(self):
        self.file("in-the-way", "")
        port, folders = self.free_port(), [self.env.run_dir(), self.path("in-the-way/run")]
        ranks = [subprocess.Popen([*self.worker(folder), "--trace", "1000000"], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True,
                                  env=harness.environment(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                                                           MASTER_PORT=port)) for rank, folder in enumerate(folders)]
        text, _ = ranks[1].communicate(timeout=harness.LIMIT_S)
        ranks[0].kill()  # it waits for rank 1, as it would for one that was never started
        ranks[0].communicate()
        self.assertEqual(ranks[1].returncode, 73, text)
        self.assertIn("cannot write the trace to", text)

    def test_half_an_environment_is_a_contradiction(self):
        self.assert_refused(self.worker(self.env.run_dir()), 78, "WORLD_SIZE", env=harness.environment(RANK="1"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
