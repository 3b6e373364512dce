#!/usr/bin/env python3
"""tools/export --hf: weights, heads, adapters and metadata of what it writes beside transformers and peft themselves; runs of
such files beside transformers' Trainer; and what it says to a user who slips. Skipped where transformers and peft are not
installed (scripts/setup --tests does that).

By hand: DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/oracle/test_hugging_face_exports.py [Weights...]"""
import contextlib
import io
import json
import os
import sys
import unittest
import unittest.mock

import torch

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), folder) for folder in ("../support/python", "../grid")]
import checkpoint_state  # noqa: E402
import harness  # noqa: E402
import hugging_face  # noqa: E402
import model_packages  # noqa: E402
import tensor_file  # noqa: E402
from export_case import LENGTH, LORA, VOCABULARY, ExportTest, built  # noqa: E402


def padded_samples(count):
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(3, VOCABULARY, (count, LENGTH), generator=generator)
    lengths = torch.randint(4, LENGTH + 1, (count, 1), generator=generator)
    mask = (torch.arange(LENGTH) < lengths).long()
    return {"input_ids": torch.where(mask == 1, ids, 0), "attention_mask": mask, "labels": torch.where(mask == 1, ids, -100)}


class Weights(ExportTest):
    """The oracle is transformers' class with the weights of the same directory."""

    def model(self, name, kind, **changes):
        import transformers

        return getattr(transformers, kind).from_pretrained(self.directory(name), **changes)

    def check(self, name, kind, options, arrays, changes=None, own=lambda model, arrays: model(**arrays).loss, bound=1e-5):
        path, traced, found = self.export("--hf", self.directory(name), *options)
        torch.manual_seed(0)  # of what the directory does not have
        model = self.model(name, kind, **(changes or {}))
        values = dict(traced.named_parameters())
        model.load_state_dict({target: values[source] for source, target in found["hugging_face"]["parameters"].items()
                               if source in values}, strict=False)
        self.assert_close(traced.eval()(*arrays.values()), own(model.eval(), arrays), bound)
        return path, traced, found

    def text(self, *names):
        arrays = padded_samples(5)
        return {name: arrays[name] for name in names}

    def test_heads(self):
        classes = torch.tensor([0, 2, 1, 0, 2])
        two = {"input_ids", "attention_mask"}
        with_mask = ["--inputs", "input_ids,attention_mask"]
        for name, kind, options, arrays, changes in (
                ("gpt2", "AutoModelForCausalLM", ["--labels", "same"], self.text("input_ids", "labels"), {}),
                ("llama", "AutoModelForCausalLM", ["--labels", "same", *with_mask], padded_samples(5), {}),
                ("bert", "AutoModelForMaskedLM", with_mask, padded_samples(5), {}),
                ("bert", "AutoModelForTokenClassification", ["--head", "token-classification", *with_mask,
                 "--hf-config", f'{{"num_labels": {VOCABULARY}}}'], padded_samples(5), {"num_labels": VOCABULARY}),
                ("bert", "AutoModelForSequenceClassification", ["--head", "sequence-classification", *with_mask,
                 "--hf-config", '{"num_labels": 3}'], {**self.text(*sorted(two, reverse=True)), "labels": classes},
                 {"num_labels": 3}),
                ("bert", "AutoModelForQuestionAnswering", ["--head", "question-answering"],
                 {**self.text("input_ids"), "start_positions": classes, "end_positions": classes + 1}, {}),
                ("t5", "AutoModelForSeq2SeqLM", with_mask, padded_samples(5), {}),
                ("vit", "AutoModelForImageClassification", [],
                 {"pixel_values": torch.randn(5, 3, 16, 16), "labels": classes}, {})):
            with self.subTest(kind=kind, options=options):
                self.check(name, kind, options, arrays, changes)

    def test_labels_that_come_shifted(self):
        arrays = self.text("input_ids", "labels")

        def own(model, arrays):
            logits = model(input_ids=arrays["input_ids"]).logits
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1), arrays["labels"].flatten())

        _, _, found = self.check("gpt2", "AutoModelForCausalLM", [], arrays, own=own)
        self.assertEqual((found["labels"], found["loss_average"]), ("next", "tokens"))
        ids = found["inputs"][0]
        self.assertEqual([each["name"] for each in found["inputs"]], ["input_ids", "labels"])
        self.assertEqual((ids["dtype"], len(ids["shape"])), ("int64", 1))
        self.assertLessEqual(ids["high"], found["hugging_face"]["config"]["vocab_size"])

    def test_a_directory_brings_its_dtype(self):
        path, traced, found = self.export("--hf", self.directory("llama-bf16"))
        self.assertEqual({parameter.dtype for parameter in traced.parameters()}, {torch.bfloat16})
        own = self.model("llama-bf16", "AutoModelForCausalLM").state_dict()
        for name, value in traced.named_parameters():
            self.assertTrue(torch.equal(value, own[found["hugging_face"]["parameters"][name]]), name)
        _, wide, _ = self.export("--hf", self.directory("llama-bf16"), "--dtype", "float32")
        self.assertEqual({parameter.dtype for parameter in wide.parameters()}, {torch.float32})

    def test_outputs_without_labels(self):
        _, traced, found = self.export("--hf", self.directory("bert"), "--returns", "output")
        ids = self.text("input_ids")["input_ids"]
        self.assert_close(traced.eval()(ids), self.model("bert", "AutoModelForMaskedLM").eval()(ids).logits)
        self.assertNotIn("loss_average", found)

    def test_names_are_those_of_the_files_that_transformers_writes(self):
        """mixtral's experts are one tensor in the model and many in the files; gpt2's head is tied."""
        for name in ("gpt2", "llama", "mixtral", "bert", "t5", "whisper"):
            with self.subTest(name=name):
                _, traced, found = self.export("--hf", self.directory(name))
                facts = found["hugging_face"]
                written = tensor_file.read(os.path.join(self.directory(name), "model.safetensors"))
                made = {}
                for source, target in facts["parameters"].items():
                    value = dict([*traced.named_parameters(), *traced.named_buffers()])[source].detach()
                    for piece in facts["files"].get(target, [{"name": target}]):
                        made[piece["name"]] = value if "shape" not in piece else \
                            torch.as_strided(value, piece["shape"], piece["strides"], piece["offset"])
                self.assertEqual(facts["unmapped"], [])
                self.assertEqual(sorted(made), sorted(written))
                for each, value in made.items():
                    self.assertTrue(torch.equal(value, written[each]), each)

    def test_an_empty_export_records_where_its_weights_are(self):
        for name in ("llama", "mixtral"):
            path, traced, found = self.export("--hf", self.directory(name), "--empty")
            facts = found["hugging_face"]
            self.assertEqual((facts["source"]["kind"], facts["source"]["name"], facts["has_weights"]),
                             ("directory", self.directory(name), False))
            self.assertLess(os.path.getsize(path), 100_000)
            self.assertEqual(sorted(facts["parameters"]), sorted(name for name, _ in traced.named_parameters()))


class Traces(ExportTest):
    def attention_masks(self, traced):
        """What each attention of the graph gets as its mask: whether there is one, whether it is causal."""
        graph = traced.inlined_graph
        inputs = [list(node.inputs()) for node in graph.findAllNodes("aten::scaled_dot_product_attention")]
        self.assertTrue(inputs)
        return {(not isinstance(each[3].type(), torch._C.NoneType), each[5].toIValue()) for each in inputs}

    def test_causal_and_full_masks_are_no_tensors(self):
        for name, causal in (("gpt2", True), ("llama", True), ("bert", False)):
            with self.subTest(name=name):
                _, traced, _ = self.export("--hf", self.directory(name))
                self.assertEqual(self.attention_masks(traced), {(False, causal)})

    def test_a_mask_of_the_inputs_stays_one(self):
        for name in ("llama", "bert"):
            _, traced, _ = self.export("--hf", self.directory(name), "--inputs", "input_ids,attention_mask")
            self.assertEqual(self.attention_masks(traced), {(True, False)})

    def test_numbers_that_python_code_draws_do_not_shift_those_of_dropout(self):
        """As the LayerDrop of transformers does before 5.20, also where it drops nothing."""
        import transformers

        forward = transformers.GPT2Model.forward

        def drawing(self, *args, **kwargs):
            if torch.rand([]) < 0:
                raise AssertionError("torch.rand is not negative")
            return forward(self, *args, **kwargs)

        with unittest.mock.patch.object(transformers.GPT2Model, "forward", drawing):
            _, traced, _ = self.export("--hf", "gpt2", "--hf-config", json.dumps(
                {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 32, "n_positions": 32}))
        self.assertIn("aten::dropout", str(traced.inlined_graph))

    def test_an_entry_that_moved_into_a_dict_keeps_its_older_name(self):
        _, traced, _ = self.export("--hf", "llama", "--hf-config", json.dumps(
            {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 32,
             "rope_theta": 500000}))
        (inverse,) = [value for name, value in traced.named_buffers() if name.endswith(".inv_freq")]
        self.assertAlmostEqual(inverse[1].item(), 500000 ** (-2 / 16), places=6)

    def test_checkpoint_calls_are_left_out(self):
        _, plain, found = self.export("--hf", self.directory("llama"))
        _, traced, marked = self.export("--hf", self.directory("llama"), "--gradient-checkpointing")
        self.assertNotIn("recompute", found)
        self.assertEqual(marked["recompute"], [])
        ids = padded_samples(2)["input_ids"]
        self.assertTrue(torch.equal(plain(ids, ids), traced(ids, ids)))

    def test_a_recipe_that_returns_a_model_output_and_has_checkpointing_on(self):
        with open(self.env.path("recipe.py"), "w") as file:
            file.write("""import torch, transformers
def make(path):
    model = transformers.AutoModelForCausalLM.from_pretrained(path, use_cache=False)
    model.gradient_checkpointing_enable()
    model.example_inputs = lambda: (torch.arange(16).reshape(2, 8),)
    return model
""")
        _, traced, found = self.export("--recipe", self.env.path("recipe.py") + ":make", "--trace",
                                       "--args", json.dumps([self.directory("llama")]))
        _, exported, _ = self.export("--hf", self.directory("llama"), "--returns", "output")
        ids = padded_samples(3)["input_ids"][:, :8]
        self.assert_close(traced(ids)["logits"], exported(ids))
        self.assertEqual((found["format"], found["recompute"]), (1, []))

    def test_models_with_few_positions(self):
        os.makedirs(self.env.path("gpt_bigcode"), exist_ok=True)  # not a model: the name is still the architecture's
        for name, entries in (("gpt_bigcode", {"n_embd": 16, "n_head": 2, "n_layer": 1, "n_positions": 4, "vocab_size": 9}),
                              ("roberta", {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1,
                                           "intermediate_size": 8, "max_position_embeddings": 6, "vocab_size": 9})):
            _, traced, _ = self.export("--hf", name, "--hf-config", json.dumps(entries))
            ids = torch.randint(3, 9, (5, 4))
            self.assertEqual(traced(ids, ids).shape, ())

    def test_a_model_of_ones_own_that_calls_checkpoint(self):
        """Blocks that are not repeated are named, where the call shows which module it runs."""
        with open(self.env.path("own.py"), "w") as file:
            file.write("""import torch
from torch.utils.checkpoint import checkpoint
class Block(torch.nn.Linear):
    pass
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Block(4, 4)
        self.second = torch.nn.Linear(4, 4)
    def example_inputs(self):
        return torch.ones(2, 4),
    def forward(self, x):
        return self.second(checkpoint(self.first, x, use_reentrant=False)).square().mean()
class Unclear(Net):
    def forward(self, x):
        return self.second(checkpoint(lambda x: self.first(x), x, use_reentrant=False)).square().mean()
""")
        _, traced, found = self.export("--recipe", self.env.path("own.py") + ":Net", "--trace")
        self.assertEqual(found["recompute"], ["Block"])
        _, traced, found = self.export("--recipe", self.env.path("own.py") + ":Unclear", "--trace")
        x = torch.randn(3, 4)
        own = torch.nn.functional.linear(torch.nn.functional.linear(x, traced.first.weight, traced.first.bias),
                                         traced.second.weight, traced.second.bias).square().mean()
        self.assert_close(traced(x), own)
        self.assertEqual(found["recompute"], [])


class Adapters(ExportTest):
    def test_only_adapters_are_trained_and_merging_is_described(self):
        import peft

        _, traced, found = self.export("--hf", self.directory("llama"), "--peft", LORA)
        adapter = found["hugging_face"]["adapter"]
        trained = {name for name, parameter in traced.named_parameters() if parameter.requires_grad}
        self.assertEqual(trained, set(adapter["parameters"]))
        self.assertEqual(len(trained), 8)
        with torch.no_grad():  # a new adapter is zero: give it something to add
            for name, parameter in traced.named_parameters():
                if "lora_B" in name:
                    parameter.copy_(torch.randn(parameter.shape))
        values = dict(traced.named_parameters())
        folder = self.env.path("adapter")
        os.makedirs(folder, exist_ok=True)
        tensor_file.write(os.path.join(folder, "adapter_model.safetensors"),
                          {target: values[source].detach() for source, target in adapter["parameters"].items()})
        with open(os.path.join(folder, "adapter_config.json"), "w") as file:
            json.dump(adapter["config"], file)
        import transformers

        base = transformers.AutoModelForCausalLM.from_pretrained(self.directory("llama"))
        model = peft.PeftModel.from_pretrained(base, folder)
        ids = padded_samples(3)["input_ids"]
        with torch.no_grad():
            own = torch.nn.functional.cross_entropy(model(input_ids=ids).logits.flatten(0, 1), ids.flatten())
            self.assert_close(traced.eval()(ids, ids), own)
            merged = model.merge_and_unload().state_dict()
        by_target = {target: source for source, target in found["hugging_face"]["parameters"].items()}
        self.assertEqual(adapter["not_mergeable"], [])
        for target, merge in adapter["merges"].items():
            delta = merge["scaling"] * values[merge["b"]] @ values[merge["a"]]
            self.assert_close(values[by_target[target]] + (delta.T if merge["transposed"] else delta), merged[target], 1e-6)

    def test_an_adapter_from_a_directory(self):
        import peft

        model = built("llama", "AutoModelForCausalLM")
        config = peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
        model = peft.get_peft_model(model, config)
        config.base_model_name_or_path = self.directory("llama")
        model.save_pretrained(self.env.path("lora"))
        saved = tensor_file.read(self.env.path("lora", "adapter_model.safetensors"))
        for options in (["--hf", self.env.path("lora")], ["--hf", self.directory("llama"), "--peft", self.env.path("lora")]):
            _, traced, found = self.export(*options)
            values = dict(traced.named_parameters())
            names = found["hugging_face"]["adapter"]["parameters"]
            self.assertEqual(sorted(names.values()), sorted(saved))
            for source, target in names.items():
                self.assertTrue(torch.equal(values[source].detach(), saved[target]), target)

    def test_new_adapters_have_the_type_of_the_model(self):
        _, traced, _ = self.export("--hf", self.directory("llama-bf16"), "--peft", LORA)
        self.assertEqual({parameter.dtype for parameter in traced.parameters()}, {torch.bfloat16})


class Runs(ExportTest):
    """Files of tools/export in runs of dslaunch."""

    CONFIG = {"optimizer": {"type": "SGD", "params": {"lr": 0.1}}, "checkpoint": {"async": False}}

    def run_case(self, model, arrays, steps, **config):
        data, run_dir = self.env.path(f"data{self.env.made}.safetensors"), self.env.run_dir()
        tensor_file.write(data, arrays)
        config = {**self.CONFIG, "data": {"shuffle": False}, **config}
        outcome = self.env.run(model, data, config, run_dir, steps=steps)
        return outcome, run_dir

    def trained(self, *arguments, **config):
        outcome, run_dir = self.run_case(*arguments, **config)
        self.assertEqual(outcome.code, 0, str(outcome))
        return harness.read_metrics(run_dir), checkpoint_state.read(checkpoint_state.newest(run_dir))[0]["master"], outcome

    def trainer(self, model, arrays, steps, rows, accumulation):
        """Steps of transformers' Trainer with SGD; returns the losses of its steps."""
        import transformers

        class InOrder(transformers.Trainer):
            def _get_train_sampler(self, *_):
                return torch.utils.data.SequentialSampler(self.train_dataset)

        losses = []

        class Record(transformers.TrainerCallback):
            def on_log(self, args, state, control, logs=None, **_):
                losses.extend([logs["loss"]] if "loss" in logs else [])

        dataset = [{name: values[i] for name, values in arrays.items()} for i in range(len(arrays["labels"]))]
        args = transformers.TrainingArguments(
            output_dir=self.env.path("trainer"), max_steps=steps, per_device_train_batch_size=rows, save_strategy="no",
            gradient_accumulation_steps=accumulation, max_grad_norm=0.0, logging_steps=1, report_to=[], use_cpu=True,
            disable_tqdm=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
        with contextlib.redirect_stdout(io.StringIO()):
            InOrder(model, args, train_dataset=dataset, optimizers=(optimizer, schedule), callbacks=[Record()]).train()
        return losses

    def check_padded(self, name, kind, options, accumulation, reference):
        import transformers

        steps, rows = 3, 4
        arrays = padded_samples(steps * rows * accumulation)
        path, _, found = self.export("--hf", self.directory(name), "--inputs", "input_ids,attention_mask", *options)
        metrics, masters, outcome = self.trained(path, arrays, steps, train_micro_batch_size_per_gpu=rows,
                                                 gradient_accumulation_steps=accumulation)
        self.assertIn("as the model file asks for", outcome.text)
        model = getattr(transformers, kind).from_pretrained(self.directory(name))
        losses = reference(model, arrays, steps, rows, accumulation)
        for row, want in zip(metrics, losses, strict=True):
            self.assertAlmostEqual(row["loss"], want, delta=6e-5)
        own, names = model.state_dict(), found["hugging_face"]["parameters"]
        for source, value in masters.items():
            self.assert_close(value, own[names[source]].flatten(), 2e-6)

    def test_padded_batches_train_as_in_the_trainer(self):
        for accumulation in (1, 3):
            with self.subTest(accumulation=accumulation):
                self.check_padded("llama", "AutoModelForCausalLM", ["--labels", "same"], accumulation, self.trainer)

    def test_padded_batches_of_a_masked_model_are_averaged_over_all_labels(self):
        """BERT's loss ignores the number of labels that the Trainer gives it, so that with accumulation the Trainer adds up
        the means of the micro batches: not an oracle."""

        def one_batch(model, arrays, steps, rows, accumulation):
            optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
            for step in range(steps):
                part = slice(step * rows * accumulation, (step + 1) * rows * accumulation)
                loss = model(**{name: values[part] for name, values in arrays.items()}).loss
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item())
            return losses

        self.check_padded("bert", "AutoModelForMaskedLM", [], 3, one_batch)

    def test_blocks_are_recomputed_where_the_python_model_did(self):
        arrays = padded_samples(12)
        del arrays["attention_mask"]
        found = []
        for options in ([], ["--gradient-checkpointing"]):
            path, _, _ = self.export("--hf", self.directory("llama"), "--labels", "same", *options)
            rows, _, outcome = self.trained(path, arrays, 3, train_batch_size=4)
            found.append([row["loss"] for row in rows])
            self.assertEqual("recompute" in outcome.text, bool(options), outcome.text)
        self.assertEqual(*found)
        outcome, _ = self.run_case(path, arrays, 1, train_batch_size=4, activation_checkpointing={"enabled": False})
        self.assertNotIn("recompute", outcome.text)

    def test_labels_that_are_shifted_twice_or_not_at_all(self):
        ids = padded_samples(8)["input_ids"] + 1
        same, following = {"input_ids": ids, "labels": ids}, {"input_ids": ids[:, :-1], "labels": ids[:, 1:]}
        with_padding = {"input_ids": ids, "labels": padded_samples(8)["labels"] + 1}
        with_padding["labels"][with_padding["labels"] == -99] = -100
        for labels, arrays, words in (("same", following, "shifted twice"), ("next", same, "not be shifted at all"),
                                      ("next", with_padding, "not be shifted at all"),
                                      ("same", same, None), ("next", following, None)):
            with self.subTest(labels=labels, words=words):
                path, _, _ = self.export("--hf", self.directory("gpt2"), "--labels", labels)
                outcome, _ = self.run_case(path, arrays, 1, train_batch_size=4)
                self.assertEqual(outcome.code, 65 if words else 0, str(outcome))
                self.assertIn(words or "", outcome.text)
                self.assertIn("--labels same" if words else "", outcome.text)

    def test_a_trace_of_ones_own_that_shifts_its_labels(self):
        """Its graph shows it: pad and slice, as in transformers' losses."""
        ids = padded_samples(8)["input_ids"] + 1
        following, own = {"inputs": ids[:, :-1], "labels": ids[:, 1:]}, {"inputs": ids, "labels": ids}
        for name in ("gpt2", "llama"):
            path = hugging_face.export(name, False, "fp32", self.env.folder)
            outcome, _ = self.run_case(path, following, 1, train_batch_size=4)
            self.assertEqual(outcome.code, 65, str(outcome))
            self.assertIn("shifted twice", outcome.text)
            outcome, _ = self.run_case(path, own, 1, train_batch_size=4)
            self.assertEqual(outcome.code, 0, str(outcome))

    def test_checkpoints_keep_what_the_file_records(self):
        """Twice: in the checkpoint's own model, and in TorchScript made of it."""
        path, _, found = self.export("--hf", self.directory("gpt2"))
        ids = padded_samples(8)["input_ids"]
        _, run_dir = self.run_case(path, {"input_ids": ids[:, :-1], "labels": ids[:, 1:]}, 1, train_batch_size=4)
        for model in (os.path.join(checkpoint_state.newest(run_dir), "model.pt"), self.env.consolidate(run_dir, "out.pt")):
            files = {"dslaunch.json": ""}
            torch.jit.load(model, _extra_files=files)
            self.assertEqual(json.loads(files["dslaunch.json"]), found)


class Mistakes(ExportTest):
    def test_what_the_tool_says(self):
        os.makedirs(self.env.path("without_config"), exist_ok=True)
        os.makedirs(self.env.path("without_weights"), exist_ok=True)
        built("llama", "AutoModelForCausalLM").config.save_pretrained(self.env.path("without_weights"))
        llama = self.directory("llama")
        for code, words, arguments in (
                (65, ["'n_embdd'", "did you mean 'n_embd'?"], ["--hf", "gpt2", "--hf-config", '{"n_embdd": 8}']),
                (65, ["'hiden_size'", "did you mean 'hidden_size'?"], ["--hf", llama, "--hf-config", '{"hiden_size": 8}']),
                (64, ["must be JSON"], ["--hf", "gpt2", "--hf-config", "{"]),
                (65, ["'llama' has no head 'masked'", "causal"], ["--hf", "llama", "--head", "masked"]),
                (65, ["without_weights", "no weights", "model.safetensors"], ["--hf", "without_weights"]),
                (65, ["no config.json"], ["--hf", "without_config"]),
                (66, ["no such directory"], ["--hf", "./nowhere"]),
                (65, ["is a file", "directory"], ["--hf", os.path.join(llama, "model.safetensors")]),
                (65, ["did you mean 'gpt2'?"], ["--hf", "gpd2"]),
                (65, ["cannot be reached", "hf download owner/model", "--hf DIR"], ["--hf", "owner/model"]),
                (65, ["cannot be reached"], ["--pretrained", "gpt2"]),
                (64, ["brings weights of its own"], ["--hf", llama, "--pretrained", "gpt2"]),
                (65, ["'llama', not 'gpt2'"], ["--hf", "gpt2", "--pretrained", llama]),
                (65, ["do not fit", "shape [64, 32]"], ["--hf", llama, "--hf-config", '{"hidden_size": 64}']),
                (65, ["'atention_mask'", "did you mean 'attention_mask'?"], ["--hf", llama, "--inputs",
                                                                             "input_ids,atention_mask"]),
                (65, ["needs 'input_ids'"], ["--hf", llama, "--inputs", "attention_mask"]),
                (65, ["did you mean 'target_modules'?"], ["--hf", llama, "--peft", '{"target_module": ["q_proj"]}']),
                (65, ["not found in the base model"], ["--hf", llama, "--peft", '{"target_modules": ["query"]}']),
                (65, ["adapter_config.json"], ["--hf", llama, "--peft", "without_config"]),
                (64, ["--train goes without --peft"], ["--hf", llama, "--peft", LORA, "--train", "bias"]),
                (64, ["--head goes with --hf"], ["gpt", "--head", "causal"])):
            with self.subTest(arguments=arguments):
                found, text = self.say(*arguments, "x.pt")
                self.assertEqual(found, code, text)
                for word in words:
                    self.assertIn(word, text)
                self.assertFalse(os.path.exists(self.env.path("x.pt")))

    def test_what_dslaunch_says_to_models_that_are_not_exported(self):
        llama = self.directory("llama")
        for code, words, model in (
                (66, ["gpt2", "tools/export --pretrained gpt2 model.pt"], "gpt2"),
                (65, ["no TorchScript", f"tools/export --pretrained {llama} model.pt"],
                 os.path.join(llama, "model.safetensors")),
                (65, ["is a Hugging Face model directory", "tools/export --pretrained"], llama)):
            outcome = harness.run([harness.program("dslaunch"), "--device", "cpu", "--data", "x.npz", model])
            self.assertEqual(outcome.code, code, str(outcome))
            for word in words:
                self.assertIn(word, outcome.text)

    def test_a_trace_that_depends_on_the_sizes_of_its_example(self):
        import transformers

        forward = transformers.LlamaModel.forward

        def counting(self, *args, **kwargs):
            output = forward(self, *args, **kwargs)
            output.last_hidden_state = output.last_hidden_state * int(output.last_hidden_state.shape[0])
            return output

        def fixed(self, *args, **kwargs):
            output = forward(self, *args, **kwargs)
            output.last_hidden_state = output.last_hidden_state.view([int(size) for size in output.last_hidden_state.shape])
            return output

        for broken, words in ((counting, "instead of"), (fixed, "it fails")):
            with unittest.mock.patch.object(transformers.LlamaModel, "forward", broken):
                code, text = self.say("--hf", self.directory("llama"), "x.pt")
            self.assertEqual(code, 65, text)
            for word in (words, "depends on the sizes", "traced with batch 2 and length 8", "int("):
                self.assertIn(word, text)

    def test_a_function_of_python_in_the_model(self):
        from transformers.models.bloom import modeling_bloom

        path = self.env.path("bloom.pt")
        arguments = ("--hf", "bloom", "--hf-config", json.dumps({"vocab_size": 64, "hidden_size": 32, "n_layer": 1, "n_head": 4}),
                     path)
        code, text = self.say(*arguments)
        self.assertEqual(code, 0, text)
        self.assertNotIn("GeLUFunction", str(torch.jit.load(path).inlined_graph))
        other = staticmethod(lambda context, upstream: upstream)
        with unittest.mock.patch.object(modeling_bloom.GeLUFunction, "backward", other):
            code, text = self.say(*arguments)
        self.assertEqual(code, 65, text)
        self.assertIn("BloomForCausalLM cannot be traced: its forward calls 'GeLUFunction'", text)
        self.assertIn("whose backward gives other gradients than its forward has", text)

    def test_a_model_whose_input_has_no_examples(self):
        tiny = {"d_model": 16, "d_latents": 16, "num_latents": 4, "num_self_attends_per_block": 1, "vocab_size": 64,
                "max_position_embeddings": 16}
        code, text = self.say("--hf", "perceiver", "--head", "masked", "--hf-config", json.dumps(tiny), "x.pt")
        self.assertEqual(code, 65, text)
        self.assertIn("PerceiverForMaskedLM cannot be exported: of its input 'inputs' no examples can be made", text)

    def test_a_package_that_is_broken_differs_from_one_that_is_absent(self):
        from hf import packages

        os.makedirs(self.env.path("site", "broken_package"), exist_ok=True)
        with open(self.env.path("site", "broken_package", "__init__.py"), "w") as file:
            file.write("import httpx_that_is_not_here")
        sys.path.insert(0, self.env.path("site"))
        self.addCleanup(sys.path.remove, self.env.path("site"))
        for name, word, other in (("broken_package", "httpx_that_is_not_here", "not installed"),
                                  ("absent_package", "pip install absent_package", "cannot be imported")):
            with self.assertRaises(self.env.tool.Failure) as raised:
                packages.import_package(name, "--hf")
            self.assertEqual(raised.exception.code, 69)
            self.assertIn(word, str(raised.exception))
            self.assertNotIn(other, str(raised.exception))


class Architectures(ExportTest):
    """Slow: what a default export is of many architectures, with small random weights; each is checked at other sizes by
    the tool itself."""


class OlderTransformers(unittest.TestCase):
    """Slow."""

    @unittest.skipUnless(os.path.isdir(model_packages.folder("older_transformers.txt")), "scripts/setup --tests installs it")
    def test_exports_and_runs(self):
        outcome = harness.run([sys.executable, os.path.abspath(__file__), "Weights", "Traces", "Runs"],
                              timeout=300, env=harness.environment(DSL_TEST_OLDER_TRANSFORMERS="1"))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertNotIn("skipped", outcome.text)


# Only what keeps the models small; entries that a config has not are left out.
SMALL = dict(vocab_size=99, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, head_dim=8,
             num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
OWN_ENTRIES = {"codegen": {"rotary_dim": 4}, "gptj": {"rotary_dim": 4},
               "gpt_neo": {"attention_types": [[["global", "local"], 1]]}}
MANY = ("albert", "camembert", "codegen", "convbert", "deberta-v2", "distilbert", "electra", "falcon", "gemma",
        "gemma2", "gemma3_text", "glm", "gpt_bigcode", "gpt_neo", "gptj", "granite", "mistral", "mpt", "olmo", "olmo2", "phi",
        "phi3", "qwen2", "qwen3", "roberta", "smollm3", "stablelm", "starcoder2", "xlm-roberta", "deit", "beit", "bart",
        "mbart", "pegasus", "wav2vec2", "hubert", "qwen2_moe", "qwen3_moe", "mixtral", "gpt_oss")


def add_cases():
    def check(self, name):
        import transformers

        config = transformers.AutoConfig.for_model(name)
        known = {*config.to_dict(), *type(config).attribute_map}
        entries = {entry: value for entry, value in SMALL.items() if entry in known} | OWN_ENTRIES.get(name, {})
        with torch.device("meta"):  # before an architecture with sizes of its own fills the memory
            model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(name, **entries))
        self.assertLess(sum(parameter.numel() for parameter in model.parameters()), 200e6)
        self.export("--hf", name, "--hf-config", json.dumps(entries))

    for name in MANY:
        setattr(Architectures, "test_" + name.replace("-", "_"), lambda self, name=name: check(self, name))


add_cases()


if __name__ == "__main__":
    unittest.main(verbosity=2)
