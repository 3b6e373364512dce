#!/usr/bin/env python3
"""Tiny models of transformers and peft, with random weights from their configs, as users wrap them for a trace; and
data for them. Needs transformers and peft beside torch (model_packages.py).

    hugging_face.py        makes the traces that several tests share, in shared_folder(), where they are not there yet"""
import hashlib
import importlib.metadata
import json
import os
import sys
import warnings

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import model_packages  # noqa: E402

VOCABULARY, LENGTH, ROWS = 64, 12, 24
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
TEXT = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, attention_dropout=0.0)
GROUPED = dict(TEXT, num_key_value_heads=2)
CONFIGS = {
    "gpt2": dict(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=32, resid_pdrop=0, embd_pdrop=0,
                 attn_pdrop=0),
    "llama": GROUPED,
    "qwen2": GROUPED,
    "mistral": GROUPED,
    # Experts 7 units of 8 features wide, which tensor ranks share unevenly.
    "mixtral": dict(GROUPED, intermediate_size=56, num_local_experts=4, num_experts_per_tok=2),
    "t5": dict(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0,
               dropout_rate=0.0),
    "bert": dict(TEXT, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
    "vit": dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=16,
                patch_size=8, num_labels=5, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
    "whisper": dict(vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                    decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, num_mel_bins=8,
                    max_source_positions=16, max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                    decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None, dropout=0.0),
    "gpt_neox": dict(TEXT, hidden_dropout=0.0),
    "phi3": dict(GROUPED, resid_pdrop=0.0, embd_pdrop=0.0),
    "lora": GROUPED,  # a llama with adapters
    "opt": dict(vocab_size=VOCABULARY, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4,
                max_position_embeddings=32, word_embed_proj_dim=32, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                dropout=0.0, attention_dropout=0.0),
    "roberta": dict(TEXT, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
    "gemma": dict(GROUPED, head_dim=8),
    "qwen3": dict(GROUPED, head_dim=8),
    "gpt_neo": dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_layers=2, num_heads=4,
                    attention_types=[[["global", "local"], 1]], window_size=8, max_position_embeddings=32, resid_dropout=0.0,
                    embed_dropout=0.0, attention_dropout=0.0, bos_token_id=1, eos_token_id=2),
    "falcon": dict(vocab_size=VOCABULARY, hidden_size=32, ffn_hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
                   max_position_embeddings=32, bos_token_id=1, eos_token_id=2),  # one key and value, in a weight with all queries
}
NAMES = tuple(CONFIGS)
# One of each kind of attention, norm, position and head: those that every test run compares with PyTorch.
PROBED = ("gpt2", "llama", "qwen2", "mistral", "gpt_neox", "opt", "t5", "bert", "roberta", "vit", "lora", "gemma")
# The architectures that are trained on tensor parallel ranks.
SPLIT = ("gpt2", "llama", "qwen2", "qwen3", "mistral", "phi3", "gemma", "gpt_neo", "gpt_neox", "opt", "bert", "t5", "mixtral",
         "lora", "falcon")
HEADS = {"t5": "AutoModelForSeq2SeqLM", "vit": "AutoModelForImageClassification", "bert": "AutoModelForMaskedLM",
         "roberta": "AutoModelForMaskedLM", "whisper": "AutoModelForSpeechSeq2Seq"}


class Wrapped(torch.nn.Module):
    """forward(first input, attention mask, labels) -> loss, with the keywords of the model."""

    def __init__(self, model, first, mask):
        super().__init__()
        self.model, self.first, self.mask = model, first, mask

    def forward(self, inputs, mask, labels):
        return self.model(**{self.first: inputs, self.mask: mask}, labels=labels).loss


class WrappedWithoutMask(Wrapped):
    def forward(self, inputs, labels):
        return self.model(**{self.first: inputs}, labels=labels).loss


def keywords(name):
    first = {"vit": "pixel_values", "whisper": "input_features"}.get(name, "input_ids")
    return first, "decoder_attention_mask" if name == "whisper" else "attention_mask"


def build(name, masked, dtype=torch.float32):
    """The same weights in every type: fp32's rounded to bf16, then to fp16 with what that has of them. Buffers that
    transformers keeps in fp32 (rotary frequencies) stay so."""
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model("llama" if name == "lora" else name, **CONFIGS[name])
    config.use_cache = False
    model = getattr(transformers, HEADS.get(name, "AutoModelForCausalLM")).from_config(config)
    if name == "lora":
        import peft

        model = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"],
                                                           task_type="CAUSAL_LM"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.data = parameter.data.bfloat16().half().to(dtype)
    return (Wrapped if masked else WrappedWithoutMask)(model, *keywords(name)).train()


def samples(name, masked, count):
    """Named as the inputs of forward."""
    generator = torch.Generator().manual_seed(7)
    start = torch.randint(0, VOCABULARY, (count, 1), generator=generator)
    ids = (start + 5 * torch.arange(LENGTH)) % (VOCABULARY - 3) + 3
    if name == "vit":
        pixels = torch.randn(count, 3, 16, 16, generator=generator)
        return {"inputs": pixels, "labels": (pixels.mean((1, 2, 3)) * 40 + 2.5).long().clamp(0, 4)}
    inputs = torch.randn(count, 8, 32, generator=generator) if name == "whisper" else ids
    if not masked:
        return {"inputs": inputs, "labels": ids}
    mask = (torch.arange(LENGTH) < torch.randint(5, LENGTH + 1, (count, 1), generator=generator)).long()
    return {"inputs": inputs, "mask": mask, "labels": torch.where(mask == 1, ids, -100)}


def trace(name, masked, dtype):
    example = [array.to(dtype) if array.is_floating_point() else array for array in samples(name, masked, 2).values()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(build(name, masked, dtype), tuple(example), check_trace=False)


def export(name, masked, dtype, folder):
    """The path of the file; one that is there already is taken as it is, without transformers."""
    path = os.path.join(folder, f"{name}-{'mask' if masked else 'plain'}-{dtype}.pt")
    if not os.path.exists(path):
        inputs = [{"name": key, "dtype": str(array.dtype).removeprefix("torch."), "shape": list(array.shape[1:])}
                  for key, array in samples(name, masked, 1).items()]
        torch.jit.save(trace(name, masked, DTYPES[dtype]), path + ".part",
                       _extra_files={"dslaunch.json": json.dumps({"format": 1, "inputs": inputs})})
        os.replace(path + ".part", path)
    return path


def is_masked(name):
    """Whether the tests that have one of both give the model a mask: every second one."""
    return NAMES.index(name) % 2 == 0 and name != "vit"


def shared_folder():
    """Of traces that all tests of a build may use: named after all that decides what is in them. None by hand."""
    root = os.environ.get("DSL_TEST_FIXTURES")
    if not root:
        return None
    with open(__file__, "rb") as file:
        made_by = file.read() + repr([importlib.metadata.version(name) for name in ("torch", "transformers", "peft")]).encode()
    return os.path.join(root, "hugging_face-" + hashlib.sha256(made_by).hexdigest()[:12])


def main():
    if model_packages.WHY_NOT:
        print(f"skipped: {model_packages.WHY_NOT}")
        return 77
    folder = shared_folder() or sys.exit("DSL_TEST_FIXTURES has to name a folder")
    os.makedirs(folder, exist_ok=True)
    for name in sorted({*PROBED, *SPLIT}):
        export(name, is_masked(name), "fp32", folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
