"""--hf-config: entries that a config has not are errors; transformers would keep them, and nothing would read them."""
from failure import Failure, suggestion

# Entries that transformers takes out of a config's arguments, so that no attribute shows them.
TAKEN = {"attn_implementation", "torch_dtype", "num_labels"}
SPECIAL_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")


def names_of(config):
    from transformers import GenerationConfig

    found = set(config.to_dict()) | set(type(config).attribute_map) | TAKEN | set(GenerationConfig().to_dict())
    return found | {name for name in vars(config) if not name.startswith("_")}


def moved(config, entries):
    """Entries under names from before they were part of a dict (rope_theta, now in rope_parameters), where they are now."""
    found, values = {}, config.to_dict()
    for name, value in entries.items():
        places = [] if name in values else [key for key, part in values.items() if isinstance(part, dict) and name in part]
        if len(places) == 1:
            found[places[0]] = {**values[places[0]], **found.get(places[0], {}), name: value}
        else:
            found[name] = value
    return found


def check(config, entries, where=""):
    """`config`: with its own values, before the entries."""
    known = names_of(config)
    sections = getattr(type(config), "sub_configs", {})
    for name, value in entries.items():
        if name not in known and not hasattr(config, name):
            raise Failure(65, f"--hf-config: the config of '{config.model_type}' has no entry '{where}{name}'"
                              + (suggestion(name, sorted(known)) or "; see its page in transformers' documentation"))
        if name in sections and isinstance(value, dict) and getattr(config, name, None) is not None:
            check(getattr(config, name), value, f"{where}{name}.")


def special_ids(config, tokenizer):
    """The entries that --tokenizer stands for; null where the tokenizer has no such token."""
    if not hasattr(config, "eos_token_id"):
        raise Failure(65, f"--tokenizer: the config of '{config.model_type}' has no eos_token_id to set; --hf-config names the "
                          "entries of its parts")
    return dict(zip(SPECIAL_IDS, (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id)))


def require_room(config, tokenizer):
    vocabulary = getattr(config.get_text_config(), "vocab_size", None)
    size = max(tokenizer.size, *(id + 1 for id in (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id) if id is not None), 0)
    if vocabulary is not None and size > vocabulary:
        raise Failure(65, f"the tokenizer '{tokenizer.path}' has {size} ids and the model {vocabulary}: "
                          f"--hf-config '{{\"vocab_size\": {size}}}'")
