"""--hf: from its options to a module that can be traced, and to what the file records about where it comes from."""
import json
import os
import sys

import recorded_inputs
from failure import Failure, as_typed, first_lines, suggestion
from hf import adapters, attention, checkpoint_calls, config_entries, heads, inputs, names, packages, wrapper
from hf import source as sources
from python_packages import import_package
from samples import vocabulary

DTYPES = ("float32", "bfloat16", "float16")
# Random choices of the Python code that a trace would make once and for all.
ONCE_ONLY = {"layerdrop": 0.0, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "apply_spec_augment": False}


def say(text):
    print(f"{as_typed('tools/export')}: {text}", file=sys.stderr)


class HuggingFaceExport:
    """`module` is what is traced; `examples` makes its arguments."""

    def __init__(self, torch, options, entries, without_storage):
        self.torch, self.options = torch, options
        self.source = sources.resolve(options.hf, options.pretrained)
        self.transformers = packages.import_transformers()
        self.adapter = options.peft or self.source.adapter
        if self.adapter:  # here, where nothing is said and loaded yet
            import_package("peft", "--peft")
        if self.adapter and options.train is not None:
            raise Failure(64, "--train goes without --peft: of a model with adapters only these are trained")
        config = self.load_config(entries)
        self.head, self.model_class = heads.choose(config, options.head)
        self.saved_config = json.loads(config.to_json_string())
        self.left_out = self.simplify(config)
        with without_storage:
            self.base = self.load_model(config)
        state_names, tied = names.state_names(self.base)
        self.model = adapters.add(self.base, self.head, self.adapter) if self.adapter else self.base
        if options.gradient_checkpointing:
            self.switch_on_checkpointing()
        self.input_names = inputs.choose(self.base, "input_ids,attention_mask" if options.mask else options.inputs)
        self.label_names = [] if options.returns == "output" else list(heads.HEADS[self.head].labels)
        self.is_causal = self.head == "causal"
        self.takes_shifted = self.is_causal and options.labels != "same"
        self.module = wrapper.wrap(torch, self.model, self.input_names, self.label_names, options.returns or "loss",
                                   self.takes_shifted, {"attention_mask": "mask"} if options.mask else {})
        self.module.train()
        self.examples = inputs.Examples(self.base, self.head, self.input_names, self.label_names)
        self.origin = self.describe(state_names, tied)
        self.recomputed = None  # set by the trace

    def load_config(self, entries):
        if self.options.dtype:
            entries = {**entries, "dtype": self.options.dtype}
        if entries.get("dtype") not in (None, "auto", *DTYPES):
            raise Failure(65, f"a model is exported in {', '.join(DTYPES)}, not in '{entries['dtype']}'"
                              + suggestion(str(entries["dtype"]), DTYPES))
        own = sources.load_config(self.source, {})
        entries = config_entries.moved(own, entries)
        config_entries.check(own, entries)
        if self.options.tokenizer is None:
            return sources.load_config(self.source, entries)
        if self.source.kind != "architecture":
            raise Failure(64, f"--tokenizer goes with an architecture: {self.source.describe()} has the ids of its tokenizer")
        tokenizer = vocabulary.load(self.options.tokenizer)
        config = sources.load_config(self.source, {**config_entries.special_ids(own, tokenizer), **entries})
        config_entries.require_room(config, tokenizer)
        return config

    def simplify(self, config):
        """Returns the names of what was switched off in the config."""
        config.use_cache = False
        if config.is_encoder_decoder and getattr(config, "decoder_start_token_id", None) is None:
            config.decoder_start_token_id = getattr(config, "pad_token_id", None)  # as in T5's own configs
        changed = []
        for name, value in ONCE_ONLY.items():
            if getattr(config, name, value) not in (value, None):
                setattr(config, name, value)
                changed.append(name)
        return changed

    def load_model(self, config):
        torch = self.torch
        if self.source.kind == "architecture" or self.options.empty:
            return self.model_class._from_config(config)
        sources.require_weights(self.source)
        try:
            model, info = self.model_class.from_pretrained(self.source.name, config=config, dtype=config.dtype or "auto",
                                                           output_loading_info=True, ignore_mismatched_sizes=True,
                                                           trust_remote_code=False)
        except Exception as error:
            if self.source.kind == "hub":
                raise Failure(65, sources.unreadable(self.source, error))
            raise Failure(65, f"the weights of {self.source.describe()} cannot be loaded as {self.model_class.__name__}: "
                              f"{first_lines(error)}")
        for name, saved, own in sorted(info["mismatched_keys"]):
            raise Failure(65, f"the weights of {self.source.describe()} do not fit its config and --hf-config: '{name}' has "
                              f"shape {list(saved)} there and {list(own)} in the model")
        missing = sorted(info["missing_keys"])
        if missing and len(missing) >= sum(1 for _ in model.parameters()):
            raise Failure(65, f"none of the weights of {self.source.describe()} has a name of {self.model_class.__name__}'s")
        if missing:
            say(f"random, because {self.source.describe()} does not have them: {shortened(missing)}")
        if info["unexpected_keys"]:
            say(f"not used of {self.source.describe()}: {shortened(sorted(info['unexpected_keys']))}")
        return model.to(torch.float32) if model.dtype not in (torch.float32, torch.bfloat16, torch.float16) else model

    def switch_on_checkpointing(self):
        try:
            self.base.gradient_checkpointing_enable()
        except ValueError as error:
            raise Failure(65, f"--gradient-checkpointing: {first_lines(error)}")

    def prepare(self):
        """After the weights are as they stay: chooses the attention functions by a first run."""
        arguments = self.examples.make(inputs.TRACED)

        def run():
            with self.torch.no_grad(), self.torch.random.fork_rng(devices=[]), checkpoint_calls.left_out(self.module):
                self.module(*arguments)

        try:
            if self.options.attention == "eager":
                self.base.set_attn_implementation("eager")
            else:
                attention.use(self.base, run)
        except Exception as error:
            raise Failure(65, f"{self.model_class.__name__} cannot run on examples of {', '.join(self.input_names)}: "
                              f"{first_lines(error)}")
        return arguments

    def averages_over_labels(self):
        """As transformers' Trainer weights the labels of a step: where it gives the model their number."""
        if not heads.HEADS[self.head].labels_are_tokens or not self.label_names:
            return False
        import inspect

        accepts = getattr(self.base, "accepts_loss_kwargs", None)
        if accepts is None:
            accepts = any(parameter.kind == parameter.VAR_KEYWORD
                          for parameter in inspect.signature(self.base.forward).parameters.values())
        return bool(accepts)

    def metadata(self):
        found = {"labels": ("next" if self.takes_shifted else "same") if self.is_causal and self.label_names else None,
                 "loss_average": "tokens" if self.averages_over_labels() else None,
                 "recompute": self.recomputed.units(self.model) if self.recomputed and self.recomputed.num_calls else None,
                 "inputs": recorded_inputs.of_arrays(self.torch, self.argument_names(),
                                                     self.examples.make(inputs.Size(4, recorded_inputs.LENGTH))),
                 "hugging_face": self.origin}
        return {name: value for name, value in found.items() if value is not None}

    def argument_names(self):
        """Of the exported forward."""
        names = ["mask" if self.options.mask and name == "attention_mask" else name for name in self.input_names]
        return names + self.label_names

    def describe(self, state_names, tied):
        """While parameters are those that transformers and peft made."""
        pieces, unmapped = names.pieces_in_files(self.base)
        generation = getattr(self.base, "generation_config", None)
        out = {"transformers": self.transformers.__version__,
               "source": {"kind": self.source.kind, "name": self.source.name,
                          "revision": getattr(self.base.config, "_commit_hash", None)},
               "has_weights": self.source.kind != "architecture" and not self.options.empty,
               "class": self.model_class.__name__,
               "head": self.head,
               "dtype": str(self.base.dtype).removeprefix("torch."),
               "config": {**self.saved_config, "architectures": [self.model_class.__name__]},
               "generation_config": json.loads(generation.to_json_string()) if generation else None,
               "parameters": names.traced_names(self.module, state_names),
               "base_prefix": self.base.base_model_prefix,
               "tied": tied,
               "files": pieces,
               "unmapped": unmapped}
        if self.adapter:
            config, parameters = adapters.describe(self.model)
            merges, others = names.lora_merges(self.model, state_names, adapters.NAME) \
                if config.get("peft_type") == "LORA" else ({}, [])
            out["adapter"] = {"config": config, "parameters": {f"model.{name}": value for name, value in parameters.items()},
                              "merges": merges, "not_mergeable": others,
                              "source": None if self.adapter.lstrip().startswith("{") else given_name(self.adapter)}
        return out

    def summary(self):
        """Lines for the user."""
        lines = []
        if self.source.kind == "architecture" and not self.options.empty:
            lines.append(f"{self.model_class.__name__} with random weights (seed {self.options.seed}); --pretrained NAME|DIR "
                         "gives it others")
        elif not self.options.empty:
            lines.append(f"{self.model_class.__name__} with the weights of {self.source.describe()}")
        arguments = ", ".join(self.argument_names())
        more = [name for name in inputs.possible(self.base) if name not in self.input_names]
        lines.append(f"forward({arguments})" + (f"; --inputs can add {', '.join(more)}" if more else ""))
        if self.is_causal and self.label_names:
            lines.append("labels[i] is the token after input_ids[i], as tools/tokenize writes them (--labels same: labels are "
                         "the input_ids)" if self.takes_shifted else "labels are the input_ids: the model shifts them")
        if self.options.tokenizer:
            ids = {name.removesuffix("_token_id"): self.saved_config.get(name) for name in config_entries.SPECIAL_IDS}
            lines.append(", ".join(f"{name} {'none' if id is None else id}" for name, id in ids.items())
                         + f": of the tokenizer '{self.options.tokenizer}'")
        if self.left_out:
            lines.append(f"switched off, since a trace cannot draw again: {', '.join(self.left_out)}")
        if self.recomputed and self.recomputed.num_calls:
            lines.append(f"calls of torch.utils.checkpoint are left out; a run recomputes {shortened(self.recomputed.classes())}"
                         if self.recomputed.modules else "calls of torch.utils.checkpoint are left out")
        return lines


def shortened(names):
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def given_name(path):
    return os.path.abspath(path) if os.path.isdir(path) else path
