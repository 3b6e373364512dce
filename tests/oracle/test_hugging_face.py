#!/usr/bin/env python3
"""Models of transformers and peft. Probe: on two ranks they train as plain PyTorch trains the model itself, which never
was a trace. Types (slow): models that were exported in fp32 train in bf16 as their exports in bf16 do; which casts follow
is read off the trace in bf16, where casts back have that type, and upcasts have fp32. The complete list of types and
stages: bench/hugging_face_types.py. Skipped where transformers and peft are not installed (scripts/setup --tests does that).

By hand: DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/oracle/test_hugging_face.py [Probe.test_gpt2...]"""
import json
import os
import re
import sys
import unittest

import torch

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), folder) for folder in ("../support/python", "../grid")]
import harness  # noqa: E402
import hugging_face  # noqa: E402
import model_packages  # noqa: E402
import plain_pytorch  # noqa: E402
import pooled  # noqa: E402
import same_training  # noqa: E402
import tensor_file  # noqa: E402

STEPS = 6
BF16_STEP = 2.0**-7  # of a loss in bf16
# Casts that a trace in bf16 has and one in fp32 has not: T5's norms cast back only in half precision.
NOT_RECORDED = {"t5": 12}
PROBE_STEPS, PROBE_RANKS = 3, 2
TENSOR_STEPS = 20
TENSOR_MESHES = ((2, 2), (3, 3), (4, 2))  # ranks, tensor ranks
SEQUENCE_STEPS = 8
# Those of every test run: each kind of attention, norm, head and mixture once, with the meshes in turns; along the sequence.
ALWAYS_SPLIT = ("gpt2", "qwen3", "phi3", "gpt_neox", "bert", "t5", "mixtral", "lora")
SEQUENCE_PARALLEL = {"gpt2": (4, 2)}
PROBE_BOUND = 1e-5  # relative, fp32: ranks add in another order


def casts_to(dtype, traced):
    """Casts to a type, and new tensors of it, in a trace."""
    number = {torch.float32: 6, torch.bfloat16: 15}[dtype]
    text = str(traced.inlined_graph)
    constants = set(re.findall(rf"(%[\w.]+) : int = prim::Constant\[value={number}\]", text))
    found = re.findall(r"= aten::(?:to|zeros|ones|full|empty|zeros_like|new_zeros)\(([^)]*)\)", text)
    return sum(any(name in constants for name in re.findall(r"%[\w.]+", arguments)) for arguments in found)


class Probed(pooled.PooledTest):
    """With SGD and momentum, what a parameter has moved by after a few steps is a sum of its gradients."""

    def check(self, name, ranks=PROBE_RANKS, tensor=1, steps=PROBE_STEPS, stage=2, stages=1, **changes):
        masked, folder = hugging_face.is_masked(name), hugging_face.shared_folder() or self.env.folder
        data = self.env.path(f"{name}.safetensors")
        tensor_file.write(data, hugging_face.samples(name, masked, steps * hugging_face.ROWS))
        config = {"train_batch_size": hugging_face.ROWS, "optimizer": {"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9}},
                  "zero_optimization": {"stage": stage}, "data": {"shuffle": False},
                  "tensor_parallel": {"size": tensor}, "pipeline": {"stages": stages}, **changes}
        run_dir = self.env.run_dir()
        outcome = self.env.run(hugging_face.export(name, masked, "fp32", folder), data, config, run_dir, ranks, steps)
        self.assertEqual(outcome.code, 0, str(outcome))
        if tensor > 1:
            self.assertRegex(outcome.text, rf"{tensor} ranks split [1-9]")
        expected = plain_pytorch.train(hugging_face.build(name, masked), data, config, steps, shares=ranks // (tensor * stages))
        for (key, step), off in same_training.of_rows(run_dir, expected).items():
            self.assertLessEqual(off, PROBE_BOUND, f"{key} of step {step}: {harness.read_metrics(run_dir)} {expected.rows}")
        for each, off in same_training.of_movements(run_dir, expected).items():
            self.assertLessEqual(off, 100 * PROBE_BOUND, each)


@unittest.skipIf(model_packages.WHY_NOT, model_packages.WHY_NOT)
class Probe(Probed):
    pass


@unittest.skipIf(model_packages.WHY_NOT, model_packages.WHY_NOT)
class TensorParallel(Probed):
    """Nothing but the number of tensor ranks is configured. Three ranks: more than there are key heads, and the four heads
    and the vocabulary do not divide. Two of four: with two data ranks."""


@unittest.skipIf(model_packages.WHY_NOT, model_packages.WHY_NOT)
class TensorParallelMeshes(Probed):
    """Slow: the other meshes of each architecture."""


class ProbedAlongPositions(Probed):
    def check(self, name, ranks, tensor, steps, stage, stages=1, **changes):
        super().check(name, ranks, tensor, steps, stage, stages,
                      **{**changes, "tensor_parallel": {"size": tensor, "sequence_parallel": True}})


@unittest.skipIf(model_packages.WHY_NOT, model_packages.WHY_NOT)
class SequenceParallel(ProbedAlongPositions):
    """What lies between the products is split along positions: some architectures, and with stages."""

    def test_gpt2_in_two_stages(self):
        self.check("gpt2", 4, 2, SEQUENCE_STEPS, 1, stages=2)


@unittest.skipIf(model_packages.WHY_NOT, model_packages.WHY_NOT)
class SequenceParallelMeshes(ProbedAlongPositions):
    """Slow: all architectures on all meshes, recomputed on one of them."""


@unittest.skipIf(model_packages.WHY_NOT, model_packages.WHY_NOT)
class Tools(harness.TrainingTest):
    """tools/export and tools/tokenize with the real packages."""

    def run_tool(self, name, *arguments):
        outcome = harness.run([sys.executable, os.path.join(harness.ROOT, "tools", name), *arguments], cwd=self.env.folder)
        self.assertEqual(outcome.code, 0, str(outcome))

    def test_a_model_exported_by_its_name_is_the_model(self):
        import transformers

        changes = {**hugging_face.CONFIGS["llama"], "use_cache": False}
        self.run_tool("export", "--hf", "llama", "--hf-config", json.dumps(changes), "llama.pt")
        traced = torch.jit.load(self.env.path("llama.pt"))
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model("llama", **changes))
        model.load_state_dict({name.removeprefix("model."): value for name, value in traced.named_parameters()})
        ids = hugging_face.samples("llama", False, 3)["inputs"]
        loss = torch.nn.functional.cross_entropy(model(input_ids=ids).logits.flatten(0, 1), ids.flatten())
        self.assertLessEqual(same_training.relative(traced(ids, ids), loss), 1e-6)

    def test_a_tokenizer_file(self):
        import tokenizers

        words = {word: i for i, word in enumerate(("[UNK]", "a", "loss", "falls"))}
        tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        tokenizer.save(self.env.path("tokenizer.json"))
        with open(self.env.path("text.txt"), "w") as file:
            file.write("a loss never falls")
        self.run_tool("tokenize", "text.txt", "text.bin", "--tokenizer", "tokenizer.json")
        with open(self.env.path("text.bin"), "rb") as file:
            self.assertEqual(file.read(), bytes([1, 0, 2, 0, 0, 0, 3, 0]))


@unittest.skipIf(model_packages.WHY_NOT, model_packages.WHY_NOT)
class Types(harness.TrainingTest):
    def losses(self, name, masked, export, **changes):
        data = self.env.path(f"{name}-{masked}.safetensors")
        tensor_file.write(data, hugging_face.samples(name, masked, 3 * hugging_face.ROWS))
        config = {"train_batch_size": hugging_face.ROWS, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
                  "data": {"shuffle": False}, "checkpoint": {"at_end": False}, **changes}
        folder, model = self.env.run_dir(), hugging_face.export(name, masked, export, self.env.folder)
        outcome = harness.run(self.env.command(model, data, config, folder, 2, STEPS))
        self.assertEqual(outcome.code, 0, str(outcome))
        return [row["loss"] for row in harness.read_metrics(folder)], outcome.text

    def check(self, name, masked):
        changes = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3 if masked else 2}}
        found, text = self.losses(name, masked, "fp32", **changes)
        own, text_of_own = self.losses(name, masked, "bf16", **changes)
        self.assertNotIn("export:", text_of_own)
        exact, _ = self.losses(name, masked, "fp32")
        for got, of_own, want in zip(found, own, exact, strict=True):
            self.assertLessEqual(abs(got / of_own - 1), BF16_STEP, f"{name}: {found} {own}")
            self.assertLessEqual(abs(got / want - 1), 0.02, f"{name}: {found} {exact}")
        traced = torch.jit.load(hugging_face.export(name, masked, "bf16", self.env.folder))
        expected = casts_to(torch.bfloat16, traced) - NOT_RECORDED.get(name, 0)
        note = re.search(r"fp32 export: (\d+) casts follow bf16", text)
        self.assertEqual(int(note[1]) if note else 0, expected, name)


def add_cases():
    for name in hugging_face.PROBED:
        setattr(Probe, "test_" + name, lambda self, name=name: self.check(name))
    for number, name in enumerate(hugging_face.SPLIT):
        for turn, (ranks, tensor) in enumerate(TENSOR_MESHES):
            is_always = name in ALWAYS_SPLIT and turn == number % len(TENSOR_MESHES)
            test_case = TensorParallel if is_always else TensorParallelMeshes
            setattr(test_case, f"test_{name}_on_{tensor}_of_{ranks}", lambda self, name=name, ranks=ranks, tensor=tensor,
                    stage=(number + turn) % 4: self.check(name, ranks, tensor, TENSOR_STEPS, stage))
            recompute = {"activation_checkpointing": {"enabled": turn == number % len(TENSOR_MESHES)}}
            along = SequenceParallel if SEQUENCE_PARALLEL.get(name) == (ranks, tensor) else SequenceParallelMeshes
            steps = SEQUENCE_STEPS if along is SequenceParallel else TENSOR_STEPS
            setattr(along, f"test_{name}_on_{tensor}_of_{ranks}", lambda self, name=name, ranks=ranks, tensor=tensor, steps=steps,
                    stage=(number + turn + 1) % 4, recompute=recompute: self.check(name, ranks, tensor, steps, stage, **recompute))
    for name in hugging_face.NAMES:
        setattr(Types, "test_" + name, lambda self, name=name: self.check(name, hugging_face.is_masked(name)))


add_cases()


if __name__ == "__main__":
    unittest.main(verbosity=2)
