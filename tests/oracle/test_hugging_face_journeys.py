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
import export_case  # noqa: E402
import harness  # noqa: E402
import tensor_file  # noqa: E402

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


class JourneyTest(export_case.ExportTest):
    def directory(self, name):
        path = super().directory(name)
        for each in COPIED[:2]:
            with open(os.path.join(path, each), "w") as file:
                json.dump({"of": name}, file)
        return path

    def samples(self, name, count):
        generator = torch.Generator().manual_seed(9)
        ids = torch.randint(3, export_case.VOCABULARY, (count, export_case.LENGTH), generator=generator)
        ids[:, 1:] = (ids[:, :1] + 3 * torch.arange(1, export_case.LENGTH)) % (export_case.VOCABULARY - 3) + 3
        if name == "vit":
            pixels = torch.randn(count, 3, 16, 16, generator=generator)
            return {"pixel_values": pixels, "labels": (pixels.mean((1, 2, 3)) * 40 + 2.5).long().clamp(0, 4)}
        return {"input_ids": ids, "labels": ids[:, 0] % 3 if name == "classifier" else ids}

    def travel(self, name, kind, options=(), precision="fp32", samples=None, changes=None, world=WORLD, stage=2):
        """Export and training; `kind` is the class of transformers. The batch is that of WORLD ranks, whatever `world` is."""
        trip = Journey()
        trip.source, trip.kind, trip.precision, trip.changes = self.directory(name), kind, precision, changes or {}
        trip.model, trip.traced, trip.found = self.export("--hf", trip.source, *options)
        trip.arrays = self.samples(samples or name, ROWS * WORLD * STEPS)
        trip.data = self.env.path(f"data{self.env.made}.safetensors")
        tensor_file.write(trip.data, trip.arrays)
        trip.config = {**STOCK_ZERO_2, "bf16": {"enabled": precision == "bf16"}, "data": {"shuffle": False},
                       "optimizer": {"type": "AdamW", "params": {**STOCK_ZERO_2["optimizer"]["params"], "lr": 4e-3}},
                       "zero_optimization": {**STOCK_ZERO_2["zero_optimization"], "stage": stage,
                                             "stage3_param_persistence_threshold": 0},
                       "train_micro_batch_size_per_gpu": ROWS * WORLD // world, "checkpoint": {"async": False}}
        trip.metrics, trip.run_dir = self.env.train(trip.model, trip.data, trip.config, world=world, steps=STEPS)
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

    def check_texts(self, trip, model, *sources):
        """What `infer` writes from each source is what transformers' generate() writes."""
        prompt = trip.arrays["input_ids"][:1, :5]
        wanted = model.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=6, do_sample=False)
        for words in sources:
            outcome = harness.run([harness.program("dsworker"), "infer", *words, "--device", "cpu", "--greedy", "--ids",
                                   ",".join(map(str, prompt[0].tolist())), "--num_tokens", "6"])
            self.assertEqual((outcome.code, outcome.out.split()), (0, list(map(str, wanted[0, 5:].tolist()))), str(outcome))

    def check_score(self, trip, model):
        """Of the run's data, from its checkpoint."""
        outcome = harness.run([harness.program("dsworker"), "infer", trip.run_dir, "--device", "cpu", "--score", "--data",
                               trip.data, "--json"])
        self.assertEqual(outcome.code, 0, str(outcome))
        with torch.no_grad():
            loss = model(**trip.arrays).loss.item()
        self.assertAlmostEqual(json.loads(outcome.out)["all"]["loss"], loss, delta=1e-5 * loss)

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
        """Four ranks at stage 3 save the checkpoint that is read."""
        trip = self.travel("gpt2", "AutoModelForCausalLM", ["--labels", "same"], world=4, stage=3)
        path, loaded = self.check_out(trip)
        self.assertIs(loaded.lm_head.weight, loaded.transformer.wte.weight)
        self.check_texts(trip, loaded, [trip.run_dir], [trip.model, "--weights", path])
        self.check_score(trip, loaded)
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
        self.check_adapter("llama", export_case.LORA)

    def test_an_adapter_of_weights_that_are_transposed(self):
        self.check_adapter("gpt2", '{"r": 4, "lora_alpha": 8, "target_modules": ["c_attn", "c_proj"]}')

    def check_adapter(self, name, adapter):
        import peft
        import transformers

        trip = self.travel(name, "AutoModelForCausalLM", ["--labels", "same", "--peft", adapter])
        own = self.trained_model(trip, torch.float32)
        arrays = {name: values[:3] for name, values in trip.arrays.items()}
        self.check_texts(trip, own, [trip.run_dir])
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
        options = ["--labels", "same", "--peft", json.dumps({**json.loads(export_case.LORA), "modules_to_save": ["lm_head"]})]
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
        module, trip.model = torch.jit.load(trip.model), self.env.path("other_metadata.pt")
        torch.jit.save(module, trip.model, _extra_files={"dslaunch.json": json.dumps(trip.found)})
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


class Large(JourneyTest):
    """"init": {"from": DIR} beside the same model exported with its weights: every number is the same."""

    STAGE_3 = {"stage": 3, "stage3_param_persistence_threshold": 0}
    WAYS = ({"stage": 0}, {"stage": 1}, {"stage": 2}, STAGE_3,
            {**STAGE_3, "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}, "sub_group_size": 500})

    def outcome_of(self, model, arrays, world=WORLD, **config):
        data, run_dir = self.env.path("large.safetensors"), self.env.run_dir()
        tensor_file.write(data, arrays)
        config = {"train_micro_batch_size_per_gpu": 2, "data": {"shuffle": False}, "checkpoint": {"async": False},
                  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, **config}
        return self.env.run(model, data, config, run_dir, world=world, steps=2), run_dir

    def trained(self, *arguments, **config):
        """(losses, what the checkpoint holds)"""
        outcome, run_dir = self.outcome_of(*arguments, **config)
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertNotIn("no effect", outcome.text)
        return [row["loss"] for row in harness.read_metrics(run_dir)], \
            checkpoint_state.read(checkpoint_state.newest(run_dir))[0]

    def check_same(self, got, want):
        self.assertEqual(got[0], want[0])
        self.assertEqual(set(got[1]), set(want[1]))
        for kind in ("master", "frozen", "buffer"):
            self.assertEqual(set(got[1].get(kind, ())), set(want[1].get(kind, ())))
            for name, value in want[1].get(kind, {}).items():
                self.assertTrue(torch.equal(got[1][kind][name], value), name)

    def both(self, name, *options, source=None):
        source = source or self.directory(name)
        return self.export("--hf", source, *options)[0], self.export("--hf", source, "--empty", *options)[0]

    def check(self, name, *options, ways=WAYS, source=None, arrays=None, **config):
        source = source or self.directory(name)
        full, empty = self.both(name, *options, source=source)
        arrays = arrays or self.samples(name, 8)
        for way in ways:
            with self.subTest(name=name, way=way):
                want = self.trained(full, arrays, zero_optimization=way, **config)
                self.check_same(self.trained(empty, arrays, zero_optimization=way, init={"from": source}, **config), want)

    def sharded(self, name):
        """The directory's weights in several files with an index."""
        import transformers

        path = self.env.path(name + "-in-shards")
        if not os.path.exists(path):
            model = getattr(transformers, export_case.SAVED[name][1]).from_pretrained(self.directory(name))
            model.save_pretrained(path, max_shard_size="20KB")
            self.assertTrue(os.path.exists(os.path.join(path, "model.safetensors.index.json")))
        return path

    def test_all_stages_and_offloading(self):
        self.check("llama", "--labels", "same", source=self.sharded("llama"))

    def test_other_dtypes(self):
        """The files are bf16; the export is so too, or fp32."""
        for options in ([], ["--dtype", "float32"]):
            self.check("llama-bf16", "--labels", "same", *options, ways=[self.STAGE_3])
            self.check("llama-bf16", "--labels", "same", *options, ways=[{"stage": 2}], bf16={"enabled": True})

    def test_tied_tensors_and_tensors_in_pieces(self):
        for name, options in (("gpt2", ["--labels", "same"]), ("t5", []), ("mixtral", ["--labels", "same"])):
            self.check(name, *options, ways=[{"stage": 1}, self.STAGE_3])

    def test_pipeline_stages(self):
        full, empty = self.both("llama", "--labels", "same", source=self.sharded("llama"))
        arrays = self.samples("llama", 8)
        options = {"pipeline": {"stages": 2, "partition": "uniform"}, "gradient_accumulation_steps": 2}
        want = self.trained(full, arrays, **options)
        self.check_same(self.trained(empty, arrays, init={"from": self.sharded("llama")}, **options), want)

    def test_buffers(self):
        """The running statistics of batch norms."""
        import transformers

        path = self.env.path("resnet")
        torch.manual_seed(2)
        config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=5)
        model = transformers.ResNetForImageClassification(config)
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                if "running" in name:
                    buffer.uniform_(0.5, 1.5)
        model.save_pretrained(path)
        pixels = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(4))
        arrays = {"pixel_values": pixels, "labels": torch.arange(8) % 5}
        self.check("resnet", source=path, ways=[{"stage": 0}, self.STAGE_3], arrays=arrays)

        trip = Journey()  # and out again
        trip.model, _, found = self.export("--hf", path, "--empty")
        outcome, trip.run_dir = self.outcome_of(trip.model, arrays, init={"from": path})
        self.assertEqual(outcome.code, 0, str(outcome))
        loaded = self.load(self.out(trip), "AutoModelForImageClassification", torch.float32).state_dict()
        state = checkpoint_state.read(checkpoint_state.newest(trip.run_dir))[0]
        for source, target in found["hugging_face"]["parameters"].items():
            value = state["master"][source] if source in state["master"] else state["buffer"][source]
            self.assertTrue(torch.equal(loaded[target].flatten(), value), target)
        self.assertEqual(len(loaded), len(found["hugging_face"]["parameters"]))

    def test_a_directory_of_the_model_without_its_prefix(self):
        """As gpt2's own on the hub, with masks that transformers computes today."""
        full, empty = self.both("gpt2", "--labels", "same")
        path = self.env.path("gpt2-without-prefix")
        os.makedirs(path)
        tensors = tensor_file.read(os.path.join(self.directory("gpt2"), "model.safetensors"))
        tensors = {name.removeprefix("transformer."): value for name, value in tensors.items()}
        tensor_file.write(os.path.join(path, "model.safetensors"), {**tensors, "h.0.attn.bias": torch.ones(1, 1, 4, 4)})
        arrays = self.samples("gpt2", 8)
        self.check_same(self.trained(empty, arrays, init={"from": path}), self.trained(full, arrays))

    def test_a_new_adapter_adds_nothing_at_first(self):
        source = self.directory("llama")
        _, empty = self.both("llama", "--labels", "same", "--peft", export_case.LORA)
        plain, _, _ = self.export("--hf", source, "--labels", "same")
        arrays = self.samples("llama", 8)
        losses, state = self.trained(empty, arrays, init={"from": source}, zero_optimization=self.STAGE_3)
        want, own = self.trained(plain, arrays)
        self.assertAlmostEqual(losses[0], want[0], delta=1e-5)
        self.assertEqual(len(state["master"]), 8)
        for name, value in state["master"].items():
            self.assertGreater(value.abs().max().item(), 1e-4 if "lora_B" in name else 1e-2, name)  # after two steps
        self.assertNotEqual(losses[1], losses[0])

    def test_an_adapter_of_a_directory(self):
        import peft

        config = peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
        model = peft.get_peft_model(export_case.built("llama", "AutoModelForCausalLM"), config)
        config.base_model_name_or_path = self.directory("llama")
        adapter = self.env.path("adapter-to-continue")
        model.save_pretrained(adapter)
        self.check("llama", "--labels", "same", "--peft", adapter, ways=[{"stage": 1}, self.STAGE_3])

    def test_mistakes(self):
        source, arrays = self.directory("llama"), self.samples("llama", 8)
        full, empty = self.both("llama", "--labels", "same")
        tensors = tensor_file.read(os.path.join(source, "model.safetensors"))
        name = "model.layers.1.mlp.up_proj.weight"

        def made(label, **files):
            path = self.env.path("mistake-" + label)
            os.makedirs(path)
            for each, content in files.items():
                if isinstance(content, dict):
                    tensor_file.write(os.path.join(path, each.replace("_", ".")), content)
                else:
                    with open(os.path.join(path, each.replace("_", ".")), "w") as file:
                        file.write(content)
            return path

        without = {each: value for each, value in tensors.items() if each != name}
        index = json.dumps({"weight_map": {each: "shard.safetensors" for each in tensors}})
        for code, words, path in (
                (65, [f"has no {name};"], made("missing", model_safetensors=without)),
                (65, ["has odd.weight, which the model does not have"], made("more", model_safetensors={**tensors, "odd.weight": torch.ones(2)})),
                (65, [f"has no {name}, and has other"], made("renamed", model_safetensors={**without, "other": tensors[name]})),
                (65, [name, "shape [32, 48], but the model has [48, 32]"],
                 made("shape", model_safetensors={**tensors, name: tensors[name].t().contiguous()})),
                (65, ["has no model.safetensors"], made("empty")),
                (65, ["only pytorch_model.bin"], made("old", **{"pytorch-model_bin": ""})),
                (65, ["has no 'shard.safetensors'", "download"], made("incomplete", model_safetensors_index_json=index)),
                (65, ["damaged index"], made("index", model_safetensors_index_json="{}")),
                (65, ["weights", "model.safetensors"], made("damaged", model_safetensors="not safetensors at all")),
                (66, ["no such directory"], self.env.path("nowhere")),
                (66, ["it is not a directory"], os.path.join(source, "model.safetensors"))):
            with self.subTest(words=words):
                if path.endswith("mistake-old"):
                    os.rename(os.path.join(path, "pytorch-model.bin"), os.path.join(path, "pytorch_model.bin"))
                outcome, run_dir = self.outcome_of(empty, arrays, init={"from": path})
                self.assertEqual(outcome.code, code, str(outcome))
                for word in words:
                    self.assertIn(word, outcome.text)
        outcome, _ = self.outcome_of(full, arrays, init={"from": source})
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn('"init" has no effect', outcome.text)
        outcome, _ = self.outcome_of(empty, arrays)
        self.assertEqual(outcome.code, 65, str(outcome))
        self.assertIn('"init": {"from": DIR}', outcome.text)
        outcome = self.env.run(self.env.model("gpt", "script", "--empty"), self.env.data("gpt"),
                               {"train_batch_size": 4, "init": {"from": source}}, self.env.run_dir(), steps=1)
        self.assertEqual(outcome.code, 65, str(outcome))
        self.assertIn("needs a model that tools/export --hf exported with --empty", outcome.text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
