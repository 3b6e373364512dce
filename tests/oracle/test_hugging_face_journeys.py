#!/usr/bin/env python3
"""From a directory of save_pretrained through training and back: tools/export, runs with a stock ZeRO file of Hugging Face's
guides, an evaluation, `dslaunch consolidate --hf`, from_pretrained. The oracle of every step is transformers' own class in
plain PyTorch. Skipped where transformers and peft are not installed (scripts/setup --tests does that).

By hand: DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/oracle/test_hugging_face_journeys.py [Journeys...]"""
import json
import os
import resource
import shutil
import subprocess
import sys
import unittest

import torch

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), folder) for folder in ("../support/python", "../grid")]
import checkpoint_state  # noqa: E402
import harness  # noqa: E402
import model_packages  # noqa: E402
import tensor_file  # noqa: E402
import test_hugging_face_exports as exports  # noqa: E402

STEPS, ROWS, WORLD = 30, 4, 2
# As Hugging Face's guide to DeepSpeed shows it. What a user gives Trainer as arguments, a test sets itself.
STOCK_ZERO_2 = {
    "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2,
             "min_loss_scale": 1},
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": True}, "allgather_partitions": True,
                          "allgather_bucket_size": 2e8, "overlap_comm": True, "reduce_scatter": True,
                          "reduce_bucket_size": 2e8, "contiguous_gradients": True},
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "steps_per_print": 2000,
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "wall_clock_breakdown": False,
}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
LOSS_BOUNDS = {"fp32": 2e-5, "bf16": 2e-2}  # relative, of a step
COPIED = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


def with_dtype(model, dtype):
    """Buffers that from_pretrained keeps in fp32 (rotary frequencies) stay so."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


class Journey:
    """A model on its way: where it comes from, what its run has made."""


class JourneyTest(exports.ExportTest):
    def directory(self, name):
        path = super().directory(name)
        for each in COPIED[:2]:
            with open(os.path.join(path, each), "w") as file:
                json.dump({"of": name}, file)
        return path

    def samples(self, name, count):
        generator = torch.Generator().manual_seed(9)
        ids = torch.randint(3, exports.VOCABULARY, (count, exports.LENGTH), generator=generator)
        ids[:, 1:] = (ids[:, :1] + 3 * torch.arange(1, exports.LENGTH)) % (exports.VOCABULARY - 3) + 3
        if name == "vit":
            pixels = torch.randn(count, 3, 16, 16, generator=generator)
            return {"pixel_values": pixels, "labels": (pixels.mean((1, 2, 3)) * 40 + 2.5).long().clamp(0, 4)}
        return {"input_ids": ids, "labels": ids[:, 0] % 3 if name == "classifier" else ids}

    def travel(self, name, kind, options=(), precision="fp32", samples=None, changes=None):
        """Export and training; `kind` is the class of transformers."""
        trip = Journey()
        trip.source, trip.kind, trip.precision, trip.changes = self.directory(name), kind, precision, changes or {}
        trip.model, trip.traced, trip.found = self.export("--hf", trip.source, *options)
        trip.arrays = self.samples(samples or name, ROWS * WORLD * STEPS)
        trip.data = self.env.path(f"data{self.env.made}.safetensors")
        tensor_file.write(trip.data, trip.arrays)
        trip.config = {**STOCK_ZERO_2, "bf16": {"enabled": precision == "bf16"}, "data": {"shuffle": False},
                       "optimizer": {"type": "AdamW", "params": {**STOCK_ZERO_2["optimizer"]["params"], "lr": 4e-3}},
                       "train_micro_batch_size_per_gpu": ROWS, "checkpoint": {"async": False}}
        trip.metrics, trip.run_dir = self.env.train(trip.model, trip.data, trip.config, world=WORLD, steps=STEPS)
        trip.masters = checkpoint_state.read(checkpoint_state.newest(trip.run_dir))[0]["master"]
        self.check_losses(trip)
        return trip

    def own_model(self, trip):
        """transformers' class with the values that the export had."""
        import transformers

        config = transformers.AutoConfig.from_pretrained(trip.source, **trip.changes)
        model = getattr(transformers, trip.kind).from_config(config).float()
        facts, values = trip.found["hugging_face"], dict([*trip.traced.named_parameters(), *trip.traced.named_buffers()])
        state = {target: values[source].detach() for source, target in facts["parameters"].items()}
        absent = set(model.load_state_dict(state, strict=False).missing_keys)
        self.assertEqual(absent, set(facts["tied"]))
        model.tie_weights()
        if "adapter" in facts:
            import peft

            entries = {name: value for name, value in facts["adapter"]["config"].items() if name != "peft_type"}
            model = peft.get_peft_model(model, peft.LoraConfig(**entries))
            peft.set_peft_model_state_dict(model, {target: values[source].detach() for source, target in
                                                   facts["adapter"]["parameters"].items()})
        return model.train()

    def check_losses(self, trip):
        """Each step beside PyTorch's AdamW; in bf16 the model computes in it, and its weights are rounded masters."""
        with open(os.path.join(trip.run_dir, "config.resolved.json")) as file:
            resolved = json.load(file)
        params, clipping = resolved["optimizer"]["params"], resolved["gradient_clipping"]
        model = self.own_model(trip)
        computed = [parameter for parameter in model.parameters() if parameter.requires_grad]
        masters = [parameter.detach().clone().requires_grad_() for parameter in computed]
        with_dtype(model, DTYPES[trip.precision])
        optimizer = torch.optim.AdamW(masters, lr=0.0, betas=params["betas"], eps=params["eps"],
                                      weight_decay=params["weight_decay"])
        for step, row in enumerate(trip.metrics):
            with torch.no_grad():
                for parameter, master in zip(computed, masters, strict=True):
                    parameter.copy_(master)
            part = slice(step * ROWS * WORLD, (step + 1) * ROWS * WORLD)
            loss = model(**self.of_dtype(trip, {name: values[part] for name, values in trip.arrays.items()})).loss
            loss.backward()
            for parameter, master in zip(computed, masters, strict=True):
                master.grad, parameter.grad = parameter.grad.float(), None
            if clipping:
                torch.nn.utils.clip_grad_norm_(masters, clipping)
            optimizer.param_groups[0]["lr"] = row["lr"]
            optimizer.step()
            self.assertLessEqual(abs(row["loss"] - loss.item()), LOSS_BOUNDS[trip.precision] * loss.item(), f"step {step + 1}")
        self.assertLess(trip.metrics[-1]["loss"], 0.98 * trip.metrics[0]["loss"])  # something was learned

    def of_dtype(self, trip, arrays):
        return {name: values.to(DTYPES[trip.precision]) if values.is_floating_point() else values
                for name, values in arrays.items()}

    def out(self, trip, *options, code=0):
        self.env.made += 1
        path = self.env.path(f"out{self.env.made}")
        outcome = harness.run([harness.program("dslaunch"), "consolidate", os.path.join(trip.run_dir, "checkpoints"), "--hf",
                               path, *options])
        self.assertEqual(outcome.code, code, str(outcome))
        trip.said = outcome.err
        return path

    def load(self, path, kind, dtype):
        import transformers

        model, info = getattr(transformers, kind).from_pretrained(path, output_loading_info=True)
        self.assertEqual([name for name, found in info.items() if found], [], info)
        self.assertEqual(model.dtype, dtype)
        return model.eval()

    def trained_model(self, trip, dtype):
        """transformers' class with the checkpoint's masters, read without dslaunch."""
        model, facts = self.own_model(trip), trip.found["hugging_face"]
        names = {**facts["parameters"], **facts.get("adapter", {}).get("parameters", {})}
        if "adapter" in facts:
            import peft

            peft.set_peft_model_state_dict(model, {names[name]: value.view(dict(trip.traced.named_parameters())[name].shape)
                                                   for name, value in trip.masters.items()})
        else:
            state = model.state_dict()
            for name, value in trip.masters.items():
                state[names[name]].copy_(value.view(state[names[name]].shape))
        return with_dtype(model, dtype).eval()

    def outputs(self, model, arrays):
        with torch.no_grad():
            return model(**arrays).logits

    def check_out(self, trip, *options, dtype="fp32"):
        """The directory holds what was trained, bit by bit, and its logits are those of the trained model."""
        path = self.out(trip, *options, *(["--dtype", dtype] if dtype != "fp32" else []))
        loaded, own = self.load(path, trip.kind, DTYPES[dtype]), self.trained_model(trip, DTYPES[dtype])
        state = loaded.state_dict()
        for name, value in own.state_dict().items():
            self.assertTrue(torch.equal(state[name], value), name)
        arrays = {name: values[:3].to(DTYPES[dtype]) if values.is_floating_point() else values[:3]
                  for name, values in trip.arrays.items()}
        self.assertTrue(torch.equal(self.outputs(loaded, arrays), self.outputs(own, arrays)))
        return path, loaded

    def evaluate(self, trip):
        """The loss of an evaluation of the checkpoint over all samples."""
        config = {**trip.config, "data": {"eval": trip.data, "shuffle": False}}
        run_dir = self.env.run_dir()
        outcome = self.env.run(trip.model, None, config, run_dir, world=WORLD, steps=None,
                               extra=("--eval_only", "--resume", os.path.join(trip.run_dir, "checkpoints")))
        self.assertEqual(outcome.code, 0, str(outcome))
        return harness.read_metrics(run_dir)[-1]["eval_loss"]


class Journeys(JourneyTest):
    def test_llama_in_bf16(self):
        trip = self.travel("llama", "AutoModelForCausalLM", ["--labels", "same"], precision="bf16")
        evaluated = self.evaluate(trip)
        path, loaded = self.check_out(trip, "--max_shard_size", "20KB", dtype="bf16")
        with torch.no_grad():
            parts = [loaded(**{name: values[at:at + 24] for name, values in trip.arrays.items()}).loss.item()
                     for at in range(0, ROWS * WORLD * STEPS, 24)]
        self.assertAlmostEqual(evaluated, sum(parts) / len(parts), delta=2e-2 * evaluated)
        with open(os.path.join(path, "model.safetensors.index.json")) as file:
            index = json.load(file)
        files = sorted(set(index["weight_map"].values()))
        self.assertGreater(len(files), 1)
        self.assertEqual(sorted(os.listdir(path)), sorted([*files, *COPIED, "config.json", "model.safetensors.index.json"]))
        for name in COPIED:
            with open(os.path.join(path, name), "rb") as made, open(os.path.join(trip.source, name), "rb") as given:
                self.assertEqual(made.read(), given.read(), name)
        self.check_out(trip)  # the masters

    def test_gradient_checkpointing(self):
        trip = self.travel("llama", "AutoModelForCausalLM", ["--labels", "same", "--gradient-checkpointing"])
        self.check_out(trip)

    def test_a_tied_gpt2(self):
        trip = self.travel("gpt2", "AutoModelForCausalLM", ["--labels", "same"])
        path, loaded = self.check_out(trip)
        self.assertIs(loaded.lm_head.weight, loaded.transformer.wte.weight)
        made = tensor_file.read(os.path.join(path, "model.safetensors"))
        self.assertEqual(sorted(made), sorted(tensor_file.read(os.path.join(trip.source, "model.safetensors"))))

    def test_a_classifier_on_bert(self):
        trip = self.travel("bert", "AutoModelForSequenceClassification",
                           ["--head", "sequence-classification", "--hf-config", '{"num_labels": 3}'], samples="classifier",
                           changes={"num_labels": 3})
        _, loaded = self.check_out(trip)
        self.assertEqual(loaded.config.num_labels, 3)

    def test_t5(self):
        self.check_out(self.travel("t5", "AutoModelForSeq2SeqLM"))

    def test_vit(self):
        self.check_out(self.travel("vit", "AutoModelForImageClassification"))

    def test_experts_that_files_have_one_by_one(self):
        trip = self.travel("mixtral", "AutoModelForCausalLM", ["--labels", "same"])
        path, _ = self.check_out(trip)
        made = tensor_file.read(os.path.join(path, "model.safetensors"))
        self.assertEqual(sorted(made), sorted(tensor_file.read(os.path.join(trip.source, "model.safetensors"))))

    def test_an_adapter_apart_and_merged(self):
        self.check_adapter("llama", exports.LORA)

    def test_an_adapter_of_weights_that_are_transposed(self):
        self.check_adapter("gpt2", '{"r": 4, "lora_alpha": 8, "target_modules": ["c_attn", "c_proj"]}')

    def check_adapter(self, name, adapter):
        import peft
        import transformers

        trip = self.travel(name, "AutoModelForCausalLM", ["--labels", "same", "--peft", adapter])
        own = self.trained_model(trip, torch.float32)
        arrays = {name: values[:3] for name, values in trip.arrays.items()}
        path = self.out(trip)
        self.assertEqual(sorted(os.listdir(path)), sorted(["adapter_config.json", "adapter_model.safetensors", *COPIED[:2]]))
        base = transformers.AutoModelForCausalLM.from_pretrained(trip.source)
        apart = peft.PeftModel.from_pretrained(base, path).eval()
        self.assertTrue(torch.equal(self.outputs(apart, arrays), self.outputs(own, arrays)))
        by_its_name = transformers.AutoModelForCausalLM.from_pretrained(path).eval()  # it names its base
        self.assertTrue(torch.equal(self.outputs(by_its_name, arrays), self.outputs(own, arrays)))

        merged = self.load(self.out(trip, "--merge_lora"), trip.kind, torch.float32)
        state = own.merge_and_unload().state_dict()
        for name, value in merged.state_dict().items():
            self.assert_close(value, state[name], 1e-6)
        self.assert_close(self.outputs(merged, arrays), self.outputs(own, arrays))

    def test_a_trained_copy_beside_an_adapter_is_merged(self):
        """PEFT's modules_to_save: the head of the files is the trained one."""
        options = ["--labels", "same", "--peft", json.dumps({**json.loads(exports.LORA), "modules_to_save": ["lm_head"]})]
        trip = self.travel("llama", "AutoModelForCausalLM", options)
        merged = self.load(self.out(trip, "--merge_lora"), trip.kind, torch.float32)
        arrays = {name: values[:3] for name, values in trip.arrays.items()}
        self.assert_close(self.outputs(merged, arrays), self.outputs(self.trained_model(trip, torch.float32), arrays))


class OutMistakes(JourneyTest):
    def trained(self, *arguments):
        trip = Journey()
        trip.model, _, trip.found = self.export(*arguments)
        ids = self.samples("", 8)["input_ids"]
        data = self.env.path("few.safetensors")
        tensor_file.write(data, {"input_ids": ids, "labels": ids})
        _, trip.run_dir = self.env.train(trip.model, data, {"train_batch_size": 4, "data": {"shuffle": False},
                                                            "checkpoint": {"async": False}}, steps=1)
        return trip

    def check(self, trip, code, words, *options, out=None):
        out = out or self.env.path("mistaken")
        outcome = harness.run([harness.program("dslaunch"), "consolidate", os.path.join(trip.run_dir, "checkpoints"), *(
            ["--hf", out]), *options])
        self.assertEqual(outcome.code, code, str(outcome))
        for word in words:
            self.assertIn(word, outcome.err)
        return outcome

    def test_what_it_says(self):
        trip = self.trained("--hf", self.directory("llama"), "--labels", "same")
        full = self.env.path("full")
        os.makedirs(full)
        with open(os.path.join(full, "of_somebody"), "w") as file:
            file.write("text")
        for code, words, options, out in (
                (66, ["--hf_source", "no such directory"], ["--hf_source", "/nowhere"], None),
                (64, ["has no adapter"], ["--merge_lora"], None),
                (73, ["is not empty"], [], full),
                (73, ["is not a directory"], [], os.path.join(full, "of_somebody")),
                (73, ["No such file or directory"], [], "/nowhere/below"),
                (64, ["either 'x.pt' or --hf"], ["x.pt"], None),
                (64, ["--state_dict does not go with --hf"], ["--state_dict"], None),
                (64, ["--exclude_frozen_parameters does not go with --hf"], ["--exclude_frozen_parameters"], None)):
            with self.subTest(words=words):
                outcome = self.check(trip, code, words, *options, out=out)
                self.assertEqual(len(outcome.err.splitlines()), 1, outcome.err)
                self.assertFalse(os.path.exists(self.env.path("mistaken")))
        self.assertEqual(os.listdir(full), ["of_somebody"])

    def test_a_model_that_is_not_from_hugging_face(self):
        run_dir = self.env.run_dir()
        outcome = self.env.run(self.env.model("gpt"), self.env.data("gpt"), {"train_batch_size": 4, "checkpoint": {"async": False}},
                               run_dir, steps=1)
        self.assertEqual(outcome.code, 0, str(outcome))
        trip = Journey()
        trip.run_dir = run_dir
        self.check(trip, 65, ["was not exported by tools/export --hf", "OUT.safetensors"])

    def test_a_source_that_is_gone(self):
        source = self.env.path("moved")
        shutil.copytree(self.directory("llama"), source)
        trip = self.trained("--hf", source, "--labels", "same")
        os.rename(source, source + "_away")
        path = self.out(trip)
        self.assertIn("without a tokenizer's files", trip.said)
        self.assertIn("--hf_source DIR", trip.said)
        self.assertEqual(sorted(os.listdir(path)), ["config.json", "generation_config.json", "model.safetensors"])
        self.load(path, "AutoModelForCausalLM", torch.float32)
        path = self.out(trip, "--hf_source", source + "_away")
        self.assertNotIn("without", trip.said)
        self.assertEqual(sorted(os.listdir(path)), sorted([*COPIED, "config.json", "model.safetensors"]))

    def test_a_source_in_the_cache_of_the_hub(self):
        cache = self.env.path("hub_cache")
        snapshot = os.path.join(cache, "models--owner--tiny/snapshots/abc")
        os.makedirs(os.path.join(cache, "models--owner--tiny/refs"))
        shutil.copytree(self.directory("llama"), snapshot)
        with open(os.path.join(cache, "models--owner--tiny/refs/main"), "w") as file:
            file.write("abc")
        trip = self.trained("--hf", self.directory("llama"), "--labels", "same")
        facts = trip.found["hugging_face"]
        facts["source"] = {"kind": "hub", "name": "owner/tiny", "revision": None}
        self.rewrite_metadata(trip)
        out = self.env.path("from_cache")
        command = [harness.program("dslaunch"), "consolidate", os.path.join(trip.run_dir, "checkpoints"), "--hf", out]
        outcome = harness.run(command, env=harness.environment(HF_HUB_CACHE=cache))
        self.assertEqual((outcome.code, "without" in outcome.err), (0, False), str(outcome))
        self.assertIn("tokenizer.json", os.listdir(out))
        shutil.rmtree(out)
        outcome = harness.run(command, env=harness.environment(HF_HUB_CACHE=self.env.path("empty_cache")))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("'owner/tiny' is not in the cache", outcome.err)

    def rewrite_metadata(self, trip):
        """Trains again, on a model file with other metadata: a checkpoint's own file is under its hash."""
        torch.jit.save(torch.jit.load(trip.model), trip.model, _extra_files={"dslaunch.json": json.dumps(trip.found)})
        _, trip.run_dir = self.env.train(trip.model, self.env.path("few.safetensors"),
                                         {"train_batch_size": 4, "data": {"shuffle": False}, "checkpoint": {"async": False}},
                                         steps=1)

    def test_names_that_do_not_match(self):
        trip = self.trained("--hf", self.directory("llama"), "--labels", "same")
        parameters = trip.found["hugging_face"]["parameters"]
        name, target = next(iter(parameters.items()))
        parameters["model.absent"] = parameters.pop(name)
        self.rewrite_metadata(trip)
        self.check(trip, 65, ["parameters that its model.pt does not record", name])
        parameters[name] = target
        self.rewrite_metadata(trip)
        self.check(trip, 65, ["has no tensor 'model.absent'"])
        parameters.pop("model.absent")
        trip.found["hugging_face"]["files"][target] = [{"name": "piece", "offset": 0, "shape": [9999, 9999], "strides": [9999, 1]}]
        self.rewrite_metadata(trip)
        self.check(trip, 65, ["too small for 'piece'"])
        trip.found["hugging_face"]["unmapped"] = ["odd.weight"]
        self.rewrite_metadata(trip)
        self.check(trip, 65, ["'odd.weight'", "in another form"])

    def test_no_more_room_at_whichever_byte(self):
        """A limit of file sizes stands for a full disk."""
        trip = self.trained("--hf", self.directory("llama"), "--labels", "same")
        size = os.path.getsize(os.path.join(self.out(trip), "model.safetensors"))
        out = self.env.path("room")
        for room in (0, 30, size // 2, size - 1):
            command = [harness.program("dslaunch"), "consolidate", os.path.join(trip.run_dir, "checkpoints"), "--hf", out]
            outcome = subprocess.run(command, capture_output=True, text=True, timeout=60, env=harness.environment(),
                                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)))
            self.assertEqual(outcome.returncode, 74, outcome.stderr)
            self.assertIn("File too large", outcome.stderr)
            self.assertEqual(len(outcome.stderr.splitlines()), 1, outcome.stderr)
            self.assertFalse(os.path.exists(out))


if __name__ == "__main__":
    unittest.main(verbosity=2)
