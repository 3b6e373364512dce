#!/usr/bin/env python3
"""recipes/: the lines of every page run in a copy of its directory, as they are there, with tiny models, texts and hosts in the
place of those that they name, and with fewer steps."""
import json
import math
import os
import re
import shutil
import sys
import tempfile
import unittest
import wave

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python")]
import light_torch  # noqa: E402,F401
import torch  # noqa: E402
import harness  # noqa: E402
import model_packages  # noqa: E402
import tensor_file  # noqa: E402

FOLDER = os.path.join(harness.ROOT, "recipes")
NAMES = sorted(name for name in os.listdir(FOLDER) if os.path.isdir(os.path.join(FOLDER, name)))
HOSTS = "localhost slots=1\n127.0.0.1 slots=1\n"
TEXTS = ["the cat sat on the mat", "a licence to copy and to change", "ranks that wait for one another", "one more line of text"]
ROUND = 4  # rows of each text
STEPS = 3  # a warm-up takes two
LLAMA = {"vocab_size": 300, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 1}
T5 = {"vocab_size": 300, "d_model": 16, "d_ff": 32, "d_kv": 8, "num_layers": 2, "num_heads": 2}
SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", "</s>")


def rows_of(**columns):
    """JSON lines; in a value {} stands for a text, {0} for its beginning."""
    return "".join(json.dumps({name: value.format(text[:9], text) for name, value in columns.items()}) + "\n"
                   for text in TEXTS * ROUND)


def write(folder, name, text):
    os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)


def save_tokenizer(directory):
    """A token for each byte, and special ones."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, *letters])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
                            mask_token="[MASK]", eos_token="</s>", bos_token="</s>").save_pretrained(directory)


def save_model(directory, name, config, ids=(4, 0)):
    """What `hf download` would bring, with random weights. `ids`: of the tokens for the end and for padding."""
    import transformers
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model_class = getattr(transformers, name)
    config = model_class.config_class(**config, eos_token_id=ids[0], pad_token_id=ids[1], bos_token_id=ids[0])
    model_class(config).save_pretrained(directory)
    save_tokenizer(directory)


def tone(path, frequency):
    with wave.open(path, "wb") as clip:
        clip.setparams((1, 2, 16000, 0, "NONE", ""))
        clip.writeframes(b"".join(round(9000 * math.sin(frequency * i / 16000)).to_bytes(2, "little", signed=True)
                                  for i in range(4000)))


class RecipeTest(unittest.TestCase):
    def copy(self, name):
        self.folder = tempfile.mkdtemp(prefix=f"dsl-recipe-{name}-")
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.here = os.path.join(self.folder, name)
        shutil.copytree(os.path.join(FOLDER, name), self.here)
        write(self.here, "hosts", HOSTS)
        for file in os.listdir(self.here):
            if file.endswith(".json"):
                self.shrink(file)

    def shrink(self, file):
        """Batches of a few samples."""
        with open(os.path.join(self.here, file), encoding="utf-8") as given:
            text = given.read()
        for key, value in ((r'"train_batch_size": \d{3,}', 64), (r'"train_micro_batch_size_per_gpu": \d+', 1),
                           (r'"gradient_accumulation_steps": \d+', 2)):
            text = re.sub(key, lambda found, value=value: re.sub(r"\d+$", str(value), found[0]), text)
        write(self.here, file, text)

    def path(self, name):
        return os.path.join(self.here, name)

    def walk(self, *changes):
        """Runs the page's lines. `changes`: pairs of a regular expression, which must be there, and what takes its place."""
        with open(self.path("README.md"), encoding="utf-8") as file:
            script = "".join(re.findall(r"```bash\n(.*?)```", file.read(), re.S))
        self.assertIn("dslaunch plan ", script)
        changes = [(r"--steps \d+", f"--steps {STEPS}"), *changes]
        for pattern, instead in changes:
            script, count = re.subn(pattern, instead, script)
            self.assertGreater(count, 0, pattern)
        script = re.sub(r"--num_gpus [48]\b(?! --gpu_memory)", "--num_gpus 2", script)
        path = os.pathsep.join([os.path.dirname(sys.executable), os.path.dirname(harness.program("dslaunch")), os.environ["PATH"]])
        environment = harness.environment(PATH=path, CUDA_VISIBLE_DEVICES="", XDG_STATE_HOME=self.path("state"))
        outcome = harness.run(["bash", "-exc", script], timeout=300, env=environment, cwd=self.here)
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertNotIn("Traceback", outcome.text)
        return outcome.text

    def losses(self, run):
        return [line["loss"] for line in harness.read_metrics(self.path(run))]


class Pages(unittest.TestCase):
    def test_each_recipe_is_in_the_table_and_its_configs_are_accepted(self):
        with open(os.path.join(FOLDER, "README.md"), encoding="utf-8") as file:
            table = file.read()
        for name in NAMES:
            self.assertIn(f"({name}/README.md)", table)
            for file in sorted(os.listdir(os.path.join(FOLDER, name))):
                with open(os.path.join(FOLDER, name, file), encoding="utf-8") as given:
                    if not file.endswith(".json") or "batch" not in given.read():
                        continue
                outcome = harness.run([harness.program("dslaunch"), "config", "check", os.path.join(FOLDER, name, file),
                                       "--num_gpus", "4"], timeout=60)
                with self.subTest(recipe=name, file=file):
                    self.assertEqual(outcome.code, 0, str(outcome))


@unittest.skipIf(model_packages.WHY_NOT, model_packages.WHY_NOT)
class Quick(RecipeTest):
    def test_vit(self):
        self.copy("vit")
        write(self.here, "model.json", json.dumps({"image_size": 32, "patch_size": 16, "hidden_size": 16, "num_hidden_layers": 1,
                                                   "num_attention_heads": 2, "intermediate_size": 32, "num_labels": 10}))
        # CIFAR's files instead of photos, which need Pillow.
        os.mkdir(self.path("pictures"))
        with open(self.path("pictures/data_batch_1.bin"), "wb") as file:
            file.write(b"".join(bytes([number % 10]) + bytes(range(number, number + 192)) * 16 for number in range(64)))
        self.walk((r"photos/train", "pictures"), (r" --size \d+", ""))
        self.assertEqual(len(self.losses("run")), STEPS)


@unittest.skipIf(model_packages.WHY_NOT, model_packages.WHY_NOT)
class All(RecipeTest):
    def test_dpo(self):
        self.copy("dpo")
        write(self.here, "pairs.jsonl", rows_of(prompt="{0}", chosen=" {1}", rejected=" no"))
        save_model(self.path("base"), "LlamaForCausalLM", LLAMA)
        self.walk((r"--seq \d+", "--seq 24"))
        # bf16 rounds the policy's probabilities, not the reference's.
        self.assertAlmostEqual(self.losses("run")[0], math.log(2), delta=0.02)

    def test_llama3_8b(self):
        self.copy("llama3_8b")
        write(self.here, "instructions.jsonl", rows_of(prompt="{0}", completion="{1}"))
        save_model(self.path("Meta-Llama-3-8B"), "LlamaForCausalLM", LLAMA)
        self.walk((r"--seq \d+", "--seq 32"))
        self.assertEqual(len(self.losses("one_node")), STEPS)
        self.assertTrue(os.path.exists(self.path("adapter/adapter_model.safetensors")))

    def test_gpt2_question_answering(self):
        self.copy("gpt2_question_answering")
        write(self.here, "questions.jsonl", rows_of(prompt="Question: {0}\nAnswer:", completion=" {1}"))
        save_model(self.path("gpt2"), "GPT2LMHeadModel", {"vocab_size": 300, "n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 2,
                                                          "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0})
        self.walk((r"--seq \d+", "--seq 48"))
        wanted = self.losses_of_pytorch()
        for stage in range(4):
            for ours, theirs in zip(self.losses(f"zero{stage}"), wanted, strict=True):
                self.assertAlmostEqual(ours, theirs, delta=1e-5)

    def losses_of_pytorch(self):
        """Of the exported file with PyTorch's optimizer. The batch has all samples, so their order does not matter."""
        arrays = tensor_file.read(self.path("train.safetensors"))
        self.assertEqual(len(arrays["input_ids"]), 16)
        model, losses = torch.jit.load(self.path("model.pt")), []
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.01)
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = model(arrays["input_ids"], arrays["mask"], arrays["labels"])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        return losses

    def test_t5_translation(self):
        self.copy("t5_translation")
        write(self.here, "pairs.csv", "en,de\n" + "".join(f"{text},{text[::-1]}\n" for text in TEXTS * ROUND))
        save_model(self.path("t5-small"), "T5ForConditionalGeneration", {**T5, "decoder_start_token_id": 0})
        self.walk((r"--seq \d+", "--seq 48"))
        self.assertTrue(os.path.exists(self.path("translator/model.safetensors")))

    def test_bert_pretraining(self):
        self.copy("bert_pretraining")
        write(self.here, "model.json", json.dumps({"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
                                                   "intermediate_size": 32, "vocab_size": 300}))
        write(self.here, "corpus.txt", "".join(text + "\n" for text in TEXTS * 40))
        save_tokenizer(self.path("bert-large-uncased"))
        self.walk((r"--seq 128", "--seq 16"), (r"--seq 512", "--seq 32"), (r"train_batch_size=\d+", "train_batch_size=4"),
                  (r"train_micro_batch_size_per_gpu=\d+", "train_micro_batch_size_per_gpu=1"))
        self.assertEqual(len(self.losses("phase2")), STEPS)

    def test_mixtral(self):
        self.copy("mixtral")
        write(self.here, "model.json", json.dumps({**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2}))
        write(self.here, "corpus.txt", "".join(text + "\n" for text in TEXTS * 40))
        save_tokenizer(self.path("Mixtral-8x7B-v0.1"))
        self.walk((r"--seq \d+", "--seq 32"))

    def test_whisper(self):
        self.copy("whisper")
        for number, text in enumerate(TEXTS):
            tone(self.path(f"{number}.wav"), 900 * (number + 1))
        write(self.here, "clips.tsv", "".join(f"{number}.wav\t{text}\n" for number, text in enumerate(TEXTS)))
        save_model(self.path("whisper-small"), "WhisperForConditionalGeneration",
                   {"vocab_size": 300, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
                    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "decoder_start_token_id": 4})
        self.walk()
        self.assertEqual(len(self.losses("run")), STEPS)

    def test_t0(self):
        self.copy("t0")
        write(self.here, "prompts.jsonl", rows_of(source="Which text is it? {0}", target="{1}"))
        save_model(self.path("T0_3B"), "T5ForConditionalGeneration",
                   {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "decoder_start_token_id": 0})
        self.walk((r"--seq \d+", "--seq 48"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
