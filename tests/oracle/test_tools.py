#!/usr/bin/env python3
"""tools/export: what it writes, and what it says to a user who slips."""
import contextlib
import io
import json
import os
import resource
import stat
import subprocess
import sys
import unittest

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import harness  # noqa: E402

EXPORT = os.path.join(harness.ROOT, "tools/export")


class ToolTest(harness.TrainingTest):
    def run_tool(self, tool, *arguments):
        return harness.run([sys.executable, tool, *arguments], cwd=self.env.folder)

    def assert_refused(self, outcome, code, *words):
        self.assertEqual(outcome.code, code, str(outcome))
        self.assertNotIn("Traceback", outcome.text)
        for word in words:
            self.assertIn(word, outcome.text)

    def file(self, name, content):
        with open(self.env.path(name), "wb") as file:
            file.write(content)
        return self.env.path(name)


class Plan(ToolTest):
    """dslaunch plan of a model file, through both programs, against PyTorch's own count."""

    def plan(self, *arguments):
        return harness.run([harness.program("dslaunch"), "plan", *arguments], cwd=self.env.folder)

    def test_a_large_model_without_weights(self):
        model = self.env.path("large.pt")
        self.env.tool.main(["gpt-1.4b", "--empty", model])
        count = sum(p.numel() for p in torch.jit.load(model).parameters())
        hosts = ["--num_gpus", "8", "--num_nodes", "2", "--gpu_memory", "24GiB", "--host_memory", "256GiB"]
        outcome = self.plan(model, *hosts, "--set", "bf16.enabled=true", "--set", "zero_optimization.offload_param.max_in_cpu=0",
                            "--json")
        self.assertEqual(outcome.code, 0, str(outcome))
        document = json.loads(outcome.out)
        self.assertEqual(document["num_parameters"], count)
        rows = {(row["zero_stage"], row["offload_optimizer"], row["offload_param"]): row for row in document["settings"]}
        self.assertEqual(len(rows), 11)
        for stage, sharded_by in ((0, 1), (1, 16), (3, 16)):
            device = rows[stage, "none", "none"]["bytes_per_rank"]["device"]
            self.assertAlmostEqual(device["masters"] / (4 * count / sharded_by), 1, delta=0.01)
            self.assertAlmostEqual(device["moments"] / (8 * count / sharded_by), 1, delta=0.01)
            self.assertAlmostEqual(device["parameters"] / (2 * count / (sharded_by if stage == 3 else 1)), 1, delta=0.01)
        # Masters and moments, gradients in the type of the training, parameters.
        of_files = rows[3, "nvme", "nvme"]["bytes_per_rank"]["file"]["total"]
        self.assertAlmostEqual(of_files / ((4 + 8 + 2 + 2) * count / 16), 1, delta=0.01)
        self.assertTrue(rows[0, "none", "none"]["fits"])
        self.assertFalse(json.loads(self.plan(model, "--gpu_memory", "16GiB", "--json").out)["settings"][0]["fits"])

    def test_files_that_cannot_be_planned(self):
        self.assert_refused(self.plan("nowhere.pt"), 66, "nowhere.pt does not exist")
        self.assert_refused(self.plan(self.file("text.pt", b"I am no model")), 65, "text.pt")


class Export(ToolTest):
    def outcome_of(self, *arguments):
        """What the program says and ends with, inside this process; in the tests' folder."""
        said, code = io.StringIO(), 0
        with contextlib.redirect_stderr(said), contextlib.chdir(self.env.folder):
            try:
                self.env.tool.main(list(arguments))
            except self.env.tool.Failure as failure:
                print(failure, file=said)
                code = failure.code
        return harness.Outcome(["tools/export", *arguments], code, "", said.getvalue(), 0.0)

    def export(self, *arguments):
        """Runs the tool inside this process: a new PyTorch for each case would be most of the time."""
        path = self.env.path(f"m{len(os.listdir(self.env.folder))}.pt")
        self.env.tool.main([*arguments, path])
        return path

    def test_a_gpt_runs_at_other_batch_sizes_and_shorter_sequences_scripted_and_traced(self):
        sizes = ["--vocab", "64", "--seq", "12", "--blocks", "2", "--width", "16", "--heads", "2"]
        scripted, traced = (torch.jit.load(self.export("gpt", *sizes, *more)) for more in ([], ["--trace"]))
        for batch, length in ((1, 12), (5, 3), (2, 1)):
            ids = torch.randint(0, 64, (batch, length))
            self.assertTrue(torch.equal(scripted(ids, ids), traced(ids, ids)), (batch, length))

    def test_loss_and_logits(self):
        model = torch.jit.load(self.export("gpt", "--vocab", "64", "--seq", "8", "--returns", "loss_logits"))
        ids = torch.randint(0, 64, (3, 8))
        loss, logits = model(ids, ids)
        self.assertEqual(logits.shape, (3, 8, 64))
        self.assertTrue(torch.equal(loss, torch.nn.functional.cross_entropy(logits.view(-1, 64), ids.view(-1))))

    def test_the_same_seed_gives_the_same_weights(self):
        first, again, other = (torch.jit.load(self.export("mlp", "--seed", seed)) for seed in ("1", "1", "2"))
        self.assertTrue(torch.equal(first.first.weight, again.first.weight))
        self.assertFalse(torch.equal(first.first.weight, other.first.weight))

    def test_presets_have_the_sizes_that_the_documents_name(self):
        for name, millions in (("gpt-32m", 32.1), ("gpt-163m", 163.1), ("gpt-1.4b", 1416.7), ("gpt-2.7b", 2780.4), ("gpt-6.9b", 6864.6)):
            path = self.export(name, "--empty")
            self.assertLess(os.path.getsize(path), 150_000)
            count = sum(p.numel() for p in torch.jit.load(path).parameters())
            self.assertAlmostEqual(count / 1e6, millions, delta=0.06, msg=name)

    def test_stacked_weights_of_an_empty_model_take_no_memory(self):
        """Tracing reads them, so they are dense meanwhile."""
        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * resource.getpagesize()

        model = torch.nn.Module()
        model.stack = torch.nn.Parameter(torch.zeros(1).expand(16, 1024, 1024))
        before = resident()
        with self.env.tool.dense_stacks(torch, model):
            self.assertTrue(model.stack.is_contiguous())
            self.assertEqual(model.stack.data.sum().item(), 0)
            self.assertLess(resident() - before, model.stack.nbytes / 4)

    def test_an_empty_model_keeps_constants_and_shapes(self):
        model = torch.jit.load(self.export("convnet", "--empty"))
        norm = getattr(model.blocks, "0").norm
        self.assertTrue(torch.equal(norm.weight, torch.ones(8)) and torch.equal(norm.running_var, torch.ones(8)))
        self.assertEqual(getattr(model.blocks, "0").conv.weight.stride(), (0, 0, 0, 0))

    def test_a_traced_batch_norm_has_seen_no_batch(self):
        model = torch.jit.load(self.export("convnet", "--trace"))
        self.assertEqual(getattr(model.blocks, "0").norm.running_mean.abs().max().item(), 0.0)

    def test_a_class_of_the_users_own_with_a_tied_weight(self):
        self.file("own.py", b"""import torch
class Net(torch.nn.Module):
    def __init__(self, width, depth=1):
        super().__init__()
        self.a = torch.nn.Linear(width, width)
        self.b = torch.nn.Linear(width, width)
        self.b.weight = self.a.weight
    def forward(self, x):
        return self.b(self.a(x)).sum()
""")
        for extra in ([], ["--empty"]):
            model = torch.jit.load(self.export("--recipe", self.env.path("own.py") + ":Net", "--args", '{"width": 3}', *extra))
            self.assertEqual(model.a.weight.data_ptr(), model.b.weight.data_ptr())
        self.assert_refused(self.outcome_of("--recipe", "own.py:Net", "--args", "[2]", "--trace", "x.pt"), 65,
                            "example_inputs")

    def test_masks_that_no_trace_can_record(self):
        """As transformers 4.53 to 4.57 make them."""
        self.file("masked.py", b"""import torch
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(3, 1)
    def example_inputs(self):
        return torch.ones(2, 3),
    def forward(self, x):
        with TransformGetItemToIndex():
            return super().forward(x[torch.tensor(0), torch.arange(3)])
""")
        self.assert_refused(self.outcome_of("--recipe", "masked.py:Net", "--trace", "x.pt"), 65,
                            "pip install 'transformers>=5'")

    def test_only_what_matches_is_trained(self):
        for extra in ([], ["--empty"]):
            model = torch.jit.load(self.export("gpt", "--train", "ln|bias", *extra))
            for name, parameter in model.named_parameters():
                self.assertEqual(parameter.requires_grad, "ln" in name or "bias" in name, name)

    def test_usage_errors_have_messages(self):
        self.file("broken.py", b"x = (")
        for code, words, arguments in (
                (64, ["did you mean 'gpt'"], ["gpd", "x.pt"]),
                (64, ["usage:"], ["gpt"]),
                (64, ["--layers means nothing to gpt"], ["gpt", "x.pt", "--layers", "2"]),
                (64, ["--width means nothing to cifar"], ["cifar", "x.pt", "--width", "2"]),
                (64, ["the alexnet returns logits"], ["alexnet", "x.pt", "--returns", "loss"]),
                (64, ["--mask goes with --hf"], ["gpt", "x.pt", "--mask"]),
                (65, ["63 x 63 or more, not 32 x 32"], ["alexnet", "x.pt", "--size", "32"]),
                (64, ["--args must be JSON"], ["--recipe", "own.py:Net", "--args", "{", "x.pt"]),
                (64, ["regular expression"], ["gpt", "x.pt", "--train", "("]),
                (65, ["'nrom' matches none", "wte.weight"], ["gpt", "x.pt", "--train", "nrom"]),
                (65, ["cannot be divided"], ["gpt", "x.pt", "--width", "10", "--heads", "3"]),
                (65, ["SyntaxError"], ["--recipe", "broken.py:Net", "x.pt"]),
                (66, ["no such file"], ["--recipe", "none.py:Net", "x.pt"]),
                (73, ["cannot write"], ["mlp", "no/folder/x.pt"])):
            with self.subTest(arguments=arguments):
                self.file("own.py", b"")
                self.assert_refused(self.outcome_of(*arguments), code, *words)
        self.assert_refused(self.run_tool(EXPORT, "gpd", "x.pt"), 64, "tools/export: no recipe 'gpd'; did you mean 'gpt'?")

    def test_a_full_disk_differs_from_a_missing_directory(self):
        """A limit of file sizes stands for the disk."""
        outcome = subprocess.run([sys.executable, EXPORT, "mlp", self.env.path("full.pt")], capture_output=True, text=True,
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)))
        self.assertEqual((outcome.returncode, "Traceback" in outcome.stderr), (74, False), outcome.stderr)
        self.assertIn("File too large", outcome.stderr)
        self.assert_refused(self.outcome_of("mlp", self.env.path("nowhere/full.pt")), 73, "nowhere/full.pt")
        self.assertFalse(os.path.exists(self.env.path("full.pt")) or os.path.exists(self.env.path("full.pt.part")))

    def test_what_is_not_a_regular_file_is_not_replaced(self):
        pipe = self.env.path("pipe")
        os.mkfifo(pipe)
        self.assert_refused(self.outcome_of("mlp", pipe), 73, "'" + pipe + "': it is a pipe")
        self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))
        self.assert_refused(self.outcome_of("mlp", "/dev/null"), 73, "it is a device")
        self.assert_refused(self.outcome_of("mlp", self.env.folder), 73, "it is a directory")
        # A name of the file while it is written, too.
        os.mkfifo(self.env.path("m.pt.part"))
        self.assert_refused(self.outcome_of("mlp", self.env.path("m.pt")), 73, "m.pt.part': it is a pipe")

    def test_an_unexpected_error_is_a_sentence(self):
        def breaks(_):
            raise ValueError("surprise \x1b]0;title\x07" + "x" * 1000)

        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            code = self.env.tool.exit_code_of("tools/export", breaks, [])
        self.assertEqual(code, 70)
        self.assertRegex(said.getvalue(), r"^tools/export: this is a bug of the tool, .*ValueError: surprise \\x1b.*\n$")
        self.assertLess(len(said.getvalue()), 700)

    def test_hugging_face_without_transformers_says_what_to_install(self):
        """With the Python of the tool, and not where scripts/setup has put it into its cache."""
        try:
            import transformers  # noqa: F401
            self.skipTest("transformers is installed here")
        except ImportError:
            outcome = harness.run([sys.executable, EXPORT, "--hf", "gpt2", "x.pt"],
                                  env=harness.environment(XDG_CACHE_HOME=self.env.path("no cache")))
            self.assert_refused(outcome, 69, f"{sys.executable} -m pip install transformers")


if __name__ == "__main__":
    unittest.main(verbosity=2)
