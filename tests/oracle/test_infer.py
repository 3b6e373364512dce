#!/usr/bin/env python3
"""`dsworker infer` token by token beside transformers' generate(), and its scores beside PyTorch's cross entropy: from exports
that return only their loss. Skipped where transformers is not installed (scripts/setup --tests does that).

By hand: DSLAUNCH_BIN=build/dev/bin PYTHON_WITH_TORCH tests/oracle/test_infer.py [Generation...]"""
import contextlib
import copy
import glob
import json
import os
import pty
import signal
import subprocess
import sys
import unittest

import torch

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), folder) for folder in ("../support/python", "../grid")]
import export_case  # noqa: E402
import harness  # noqa: E402
import hugging_face  # noqa: E402
import tensor_file  # noqa: E402
import tokenizer_kinds  # noqa: E402

VOCABULARY = hugging_face.VOCABULARY
WINDOW = {"sliding_window": 6}  # the texts pass it
BART = dict(vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=32, pad_token_id=0,
            bos_token_id=1, eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=2)
CONFIGS = {"gpt2": dict(hugging_face.CONFIGS["gpt2"], bos_token_id=1, eos_token_id=2, initializer_range=0.3),
           "llama": dict(hugging_face.GROUPED, initializer_range=0.3),
           "qwen2": dict(hugging_face.GROUPED, initializer_range=0.3),
           "mistral": dict(hugging_face.GROUPED, **WINDOW, initializer_range=0.3),
           "mixtral": dict(hugging_face.CONFIGS["mixtral"], initializer_range=0.3),
           "gpt_neox": dict(hugging_face.CONFIGS["gpt_neox"], initializer_range=0.3),
           "gemma2": dict(hugging_face.GROUPED, head_dim=8, **WINDOW, initializer_range=0.3),
           "t5": dict(hugging_face.CONFIGS["t5"], initializer_factor=3.0),
           "bart": dict(BART, init_std=0.3)}
PROMPTS = ([5, 9, 13], [7, 8, 9, 10, 11, 12, 20], [33])  # of different lengths
NUM_TOKENS = 12
DEVICE = "cpu"


class InferTest(export_case.ExportTest):
    def export_of(self, name):
        """The path of its export, which returns only the loss; transformers' model with the same weights."""
        import transformers

        path, traced, found = self.export("--hf", name, "--hf-config", json.dumps(CONFIGS[name]))
        facts = found["hugging_face"]
        model = getattr(transformers, facts["class"])(transformers.AutoConfig.for_model(name, **CONFIGS[name])).eval()
        values = dict(traced.named_parameters())
        model.load_state_dict({
target: values[source] for source, target in facts["parameters"].items() if source in values},
                              strict=False)
        return path, model

    def infer(self, path, *words):
        command = [harness.program("dsworker"), "infer", path, "--device", DEVICE, "--json", *words]
        outcome = subprocess.run(command, capture_output=True, text=True, env=harness.environment(), timeout=120)
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        return json.loads(outcome.stdout)

    def expected(self, model, prompt, **options):
        ids = torch.tensor([prompt])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NUM_TOKENS, do_sample=False,
                             **options)[0].tolist()
        return out[1:] if model.config.is_encoder_decoder else out[len(prompt):]

    def check(self, name, beams, *words):
        path, model = self.export_of(name)
        choice = ["--greedy"] if beams == 1 else ["--num_beams", str(beams)]
        ids = [word for prompt in PROMPTS for word in ("--ids", ",".join(map(str, prompt)))]
        found = self.infer(path, "--num_tokens", str(NUM_TOKENS), *choice, *ids, *words)
        wanted = [self.expected(model, prompt, num_beams=beams) for prompt in PROMPTS]
        self.assertEqual([text["ids"] for text in found["texts"]], wanted)
        self.assertGreater(len(set(sum(wanted, []))), 2)  # not one token again and again
        is_cached = "--no_cache" not in words
        self.assertEqual(found["report"]["cache"] == "on", is_cached, found["report"]["cache"])
        self.assertEqual(found["report"]["memory_bytes"]["cache"] > 0, is_cached)


class Generation(InferTest):
    def test_texts_are_those_of_transformers(self):
        """Greedy and beams in turn; the slow test has all of both."""
        for number, name in enumerate(CONFIGS):
            with self.subTest(name=name):
                self.check(name, 4 if number % 2 else 1)

    def test_texts_go_through_the_tokenizer_where_the_model_comes_from(self):
        import transformers

        directory = self.env.path("source")
        config = transformers.AutoConfig.for_model("llama", **dict(CONFIGS["llama"], vocab_size=1104, eos_token_id=0))
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        model.save_pretrained(directory)
        samples = [tokenizer_kinds.text_of(line) for line in tokenizer_kinds.lines(2000)[-500:]]
        file = os.path.join(directory, "tokenizer.json")
        with open(file, "w", encoding="utf-8") as out:
            json.dump(tokenizer_kinds.documents(samples)["llama3"], out)
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=file)
        path, _, _ = self.export("--hf", directory)
        prompt = "the 1234567 ελληνικά\r\n"
        text = self.infer(path, "--num_tokens", str(NUM_TOKENS), "--greedy", "--prompt", prompt)["texts"][0]
        ids = tokenizer(prompt)["input_ids"]
        wanted = self.expected(model, ids)
        self.assertEqual([text["prompt_ids"], text["ids"]], [ids, wanted])
        self.assertEqual(text["text"], tokenizer.decode(wanted, skip_special_tokens=True))
        self.check_interrupt(path, prompt)
        self.check_messages(path, model, tokenizer, file)

    def check_interrupt(self, path, prompt):
        """Ctrl-C at a terminal ends the line that is being written."""
        ours, theirs = pty.openpty()
        command = [harness.program("dsworker"), "infer", path, "--device", "cpu", "--prompt", prompt, "--num_tokens", "1000000"]
        program = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=harness.environment())
        os.close(theirs)
        shown = b""
        while len(shown) < len(prompt.encode()) + 40:
            shown += os.read(ours, 4096)
        program.send_signal(signal.SIGINT)
        self.assertEqual(program.wait(timeout=60), -signal.SIGINT)
        with contextlib.suppress(OSError):  # the end of a terminal
            while part := os.read(ours, 4096):
                shown += part
        os.close(ours)
        self.assertTrue(shown.endswith(b"\r\n"), shown)

    def check_messages(self, path, model, tokenizer, file):
        """Rendered in Python: what transformers makes of a conversation, and the answer to it."""
        messages = self.env.path("messages.json")
        chat = [{"role": "user", "content": "1234 ελληνικά?"}]
        with open(messages, "w") as out:
            json.dump(chat, out)
        command = [harness.program("dsworker"), "infer", path, "--device", "cpu", "--messages", messages, "--tokenizer", file]
        outcome = subprocess.run(command, capture_output=True, text=True, env=harness.environment(), timeout=120)
        self.assertEqual(outcome.returncode, 65, outcome.stderr)
        self.assertRegex(outcome.stderr, r"cannot render the messages of '.*messages.json': tools/tokenize: .* has no chat template")
        self.assertEqual(len(outcome.stderr.splitlines()), 1, outcome.stderr)
        tokenizer.chat_template = ("{{ '<|begin|>' }}{% for m in messages %}<{{ m.role }}>{{ m.content }}<|end|>{% endfor %}"
                                   "{% if add_generation_prompt %}<assistant>{% endif %}")
        with open(os.path.join(os.path.dirname(file), "chat_template.jinja"), "w") as out:
            out.write(tokenizer.chat_template)
        text = self.infer(path, "--num_tokens", str(NUM_TOKENS), "--greedy", "--messages", messages, "--tokenizer", file)["texts"][0]
        ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)["input_ids"]
        wanted = self.expected(model, ids)
        self.assertEqual([text["prompt_ids"], text["ids"]], [ids, wanted])
        self.assertEqual([text["prompt"], text["text"]], [
            tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False),
            tokenizer.decode(wanted, skip_special_tokens=True)])

    def test_scores_are_cross_entropies(self):
        path, model = self.export_of("llama")
        generator = torch.Generator().manual_seed(3)
        texts = [torch.randint(3, VOCABULARY, (2 + i % 20,), generator=generator) for i in range(100)]
        prompts = self.env.path("texts.jsonl")
        with open(prompts, "w") as file:
            for text in texts:
                file.write(json.dumps({"ids": text.tolist()}) + "\n")
        found = self.infer(path, "--score", "--prompts", prompts)
        with torch.no_grad():
            for text, score in zip(texts, found["texts"], strict=True):
                loss = torch.nn.functional.cross_entropy(model(text[None]).logits[0, :-1], text[1:])
                self.assertAlmostEqual(score["loss"], loss.item(), delta=1e-5)
        self.assertEqual(found["all"]["tokens"], sum(len(text) - 1 for text in texts))

    def quantize(self, model):
        """The weights of linear layers that are wide enough, as --weight_dtype int8 keeps them; their names."""
        names = []
        for name, module in model.named_modules():
            is_transposed = type(module).__name__ == "Conv1D"  # of gpt2
            if not (is_transposed or isinstance(module, torch.nn.Linear)):
                continue
            rows = module.weight.data.T if is_transposed else module.weight.data
            if min(rows.shape) < 32:
                continue
            scale = rows.abs().amax(1, keepdim=True) / 127
            value = torch.round(rows / scale) * scale
            module.weight = torch.nn.Parameter(value.T.contiguous() if is_transposed else value)  # a head's own
            names.append(name)
        return names

    def test_texts_of_quantized_weights_are_those_of_pytorch(self):
        path, model = self.export_of("llama")
        model = copy.deepcopy(model)
        self.assertEqual(len(self.quantize(model)), 5 * 2 + 1)
        found = self.infer(path, "--weight_dtype", "int8", "--num_tokens", str(NUM_TOKENS), "--greedy", "--ids", "5,9,13")
        self.assertEqual(found["texts"][0]["ids"], self.expected(model, PROMPTS[0]))
        self.assertEqual([found["report"]["cache"], found["report"]["weight_types"]], ["on", "int8, fp32"])

    def test_scores_of_quantized_weights_are_those_of_pytorch(self):
        """Beside those of the whole weights. gpt2's layers have their weights transposed, and its head that of the embedding."""
        path, model = self.export_of("gpt2")
        model, ids = copy.deepcopy(model), PROMPTS[1]
        whole = self.loss(model, ids)
        self.assertEqual(len(self.quantize(model)), 4 * 2 + 1)
        found = self.infer(path, "--weight_dtype", "int8", "--score", "--compare_weights", "--ids", ",".join(map(str, ids)))
        self.assertAlmostEqual(found["all"]["loss"], self.loss(model, ids), delta=1e-5)
        self.assertAlmostEqual(found["without_weight_dtype"]["loss"], whole, delta=1e-5)
        self.assertNotAlmostEqual(found["all"]["loss"], whole, delta=1e-5)

    def loss(self, model, ids):
        ids = torch.tensor(ids)
        with torch.no_grad():
            return torch.nn.functional.cross_entropy(model(ids[None]).logits[0, :-1], ids[1:]).item()

    def test_scores_of_answers_are_the_losses_of_training(self):
        """Of data with padding: the encoder's by its mask, the labels' by -100."""
        for name in ("t5", "bart"):
            with self.subTest(name=name):
                path, model = self.export_of(name)
                generator = torch.Generator().manual_seed(4)
                ids, labels = (torch.randint(3, VOCABULARY, (6, length), generator=generator) for length in (9, 7))
                mask = torch.arange(9) < torch.tensor([[9], [4], [1], [7], [9], [2]])
                labels[torch.arange(7) >= torch.tensor([[7], [3], [5], [1], [7], [2]])] = -100
                data = self.env.path(f"{name}.safetensors")
                tensor_file.write(data, {"attention_mask": mask.long(), "input_ids": ids, "labels": labels})
                found = self.infer(path, "--score", "--data", data)["all"]
                with torch.no_grad():
                    loss = model(input_ids=ids, attention_mask=mask.long(), labels=labels).loss.item()
                self.assertAlmostEqual(found["loss"], loss, delta=1e-5 * loss)
                self.assertEqual(found["tokens"], int((labels != -100).sum()))


class Everything(InferTest):
    """Each architecture with and without a cache, greedy and with beams."""

    def test_all(self):
        for name in CONFIGS:
            for beams in (1, 4):
                for words in ((), ("--no_cache",)):
                    with self.subTest(name=name, beams=beams, words=words):
                        self.check(name, beams, *words)

    def test_quantized_weights_of_a_trained_model_keep_its_perplexity(self):
        """Of a byte model that has learned from our pages, on pages that it has not seen."""
        import transformers

        pages = sorted(glob.glob(os.path.join(harness.ROOT, "docs/*.md")))
        train, held = (torch.tensor(list("".join(open(page, encoding="utf-8").read() for page in part).encode()))
                       for part in (pages[3:], pages[:3]))
        config = transformers.AutoConfig.for_model("llama", hidden_size=128, intermediate_size=256, num_hidden_layers=2,
                                                   num_attention_heads=4, vocab_size=256, max_position_embeddings=128)
        torch.manual_seed(5)
        model = transformers.AutoModelForCausalLM.from_config(config)
        optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
        for _ in range(300):
            ids = torch.stack([train[start:start + 96] for start in torch.randint(len(train) - 96, (16,)).tolist()])
            optimizer.zero_grad()
            model(ids, labels=ids).loss.backward()
            optimizer.step()
        directory, texts = self.env.path("trained"), self.env.path("held.jsonl")
        model.save_pretrained(directory)
        path, _, _ = self.export("--hf", directory)
        with open(texts, "w") as file:
            file.writelines(json.dumps({"ids": held[start:start + 128].tolist()}) + "\n" for start in range(0, 128 * 60, 128))
        for dtype, most in (("int8", 0.005), ("fp8", 0.01), ("int4", 0.02)):
            with self.subTest(dtype=dtype):
                found = self.infer(path, "--score", "--weight_dtype", dtype, "--compare_weights", "--prompts", texts)
                before, after = found["without_weight_dtype"]["perplexity"], found["all"]["perplexity"]
                self.assertLess(before, 16)  # it has learned
                self.assertNotEqual(before, after)
                self.assertLess(abs(after / before - 1), most)

    def test_beams_with_other_lengths_and_ends(self):
        for name in ("gpt2", "bart"):
            path, model = self.export_of(name)
            for penalty, early, theirs in (("2.5", "true", True), ("-1", "never", "never"), ("0.5", "false", False)):
                with self.subTest(name=name, penalty=penalty, early=early):
                    found = self.infer(path, "--num_tokens", str(NUM_TOKENS), "--num_beams", "3", "--length_penalty", penalty,
                                       "--early_stopping", early, "--repetition_penalty", "1.3", "--ids", "5,9,13")
                    wanted = self.expected(model, PROMPTS[0], num_beams=3, length_penalty=float(penalty), early_stopping=theirs,
                                           repetition_penalty=1.3)
                    self.assertEqual(found["texts"][0]["ids"], wanted)


if __name__ == "__main__":
    unittest.main()
