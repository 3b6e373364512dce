"""--hf-config: entries that a config has not are errors; transformers would keep them, and nothing would read them."""
from failure import Failure, suggestion

# Entries that transformers takes out of a config's arguments, so that no attribute shows them.
TAKEN = {"attn_implementation", "torch_dtype", "num_labels"}


def names_of(config):
    from transformers import GenerationConfig

    found = set(config.to_dict()) | set(type(config).attribute_map) | TAKEN | set(GenerationConfig().to_dict())
    return found | {name for name in vars(config) if not name.startswith("_")}


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
