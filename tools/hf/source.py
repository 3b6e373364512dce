"""What --hf and --pretrained name: an architecture, a model directory, a model of the hub, an adapter of one of these."""
import dataclasses
import json
import os

from failure import Failure, first_lines, suggestion
from hf import packages

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
ADAPTER = "adapter_config.json"


@dataclasses.dataclass
class Source:
    kind: str  # architecture, directory, hub
    name: str  # as transformers takes it; a directory's path is absolute
    adapter: str | None = None  # a directory or a hub id of PEFT's files

    def describe(self):
        return {"architecture": "the architecture", "directory": "the directory", "hub": "the hub's model"}[self.kind] + \
            f" '{self.name}'"


def looks_like_path(name):
    return name.startswith((".", "/", "~")) or name.endswith((".safetensors", ".bin", ".pt", ".pth", ".json"))


def from_directory(name):
    path = os.path.abspath(os.path.expanduser(name))
    if os.path.exists(os.path.join(path, ADAPTER)) and not os.path.exists(os.path.join(path, "config.json")):
        try:
            with open(os.path.join(path, ADAPTER), encoding="utf-8") as file:
                base = json.load(file).get("base_model_name_or_path")
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            raise Failure(65, f"'{os.path.join(name, ADAPTER)}' is not the config of an adapter: {first_lines(error)}")
        if not base or not isinstance(base, str):
            raise Failure(65, f"the adapter '{name}' does not say which model it belongs to (base_model_name_or_path); "
                              f"give both: --hf MODEL --peft {name}")
        return dataclasses.replace(pretrained(base), adapter=path)
    if not os.path.exists(os.path.join(path, "config.json")):
        raise Failure(65, f"the directory '{name}' has no config.json, so it is not a model that save_pretrained wrote")
    return Source("directory", path)


def pretrained(name):
    """A model with weights: a directory, or else a name of the hub."""
    path = os.path.expanduser(name)
    if os.path.isdir(path):
        return from_directory(name)
    if os.path.isfile(path):
        raise Failure(65, f"'{name}' is a file; give the directory that has it beside config.json, as save_pretrained "
                          "writes it")
    if looks_like_path(name):
        raise Failure(66, f"cannot read the model '{name}': no such directory")
    packages.expect_offline()
    return Source("hub", name)


def resolve(name, weights):
    """`name`: of --hf, `weights`: of --pretrained; one of them may be None."""
    if name is None:
        return pretrained(weights)
    path = os.path.expanduser(name)
    # A directory that happens to be called as an architecture is one of a model only with a config.
    is_model = any(os.path.exists(os.path.join(path, file)) for file in ("config.json", ADAPTER))
    if is_model or looks_like_path(name) or "/" in name or (os.path.exists(path) and name not in architectures()):
        if weights:
            raise Failure(64, f"--pretrained goes with the name of an architecture: '{name}' brings weights of its own")
        return pretrained(name)
    if weights and not os.path.exists(os.path.expanduser(weights)):
        packages.expect_offline()
    known = architectures()
    if name not in known:
        raise Failure(65, f"transformers {packages.import_transformers().__version__} knows no architecture '{name}'"
                          + (suggestion(name, known) or " (gpt2, llama, bert, ...)")
                          + f"; for a model of the hub that has no owner: --pretrained {name}")
    if not weights:
        return Source("architecture", name)
    source = pretrained(weights)
    found = load_config(source, {}).model_type
    if found != name:
        raise Failure(65, f"{source.describe()} is of the architecture '{found}', not '{name}'; leave --hf out, or name its "
                          "own architecture")
    return source


def architectures():
    packages.import_transformers()
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return list(CONFIG_MAPPING.keys())


def load_config(source, overrides):
    """The config of a model with weights; of an architecture, its defaults."""
    transformers = packages.import_transformers()
    try:
        if source.kind == "architecture":
            return transformers.AutoConfig.for_model(source.name, **overrides)
        return transformers.AutoConfig.from_pretrained(source.name, trust_remote_code=False, **overrides)
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise Failure(65, f"{source.describe()} is defined by Python code of its own, which is not run here (auto_map in its "
                              "config.json): export its class with --recipe FILE.py:Class")
        raise Failure(65, unreadable(source, error))


def unreadable(source, error):
    if source.kind != "hub":
        return f"the config of {source.describe()} cannot be used: {first_lines(error)}"
    offline = os.environ.get("HF_HUB_OFFLINE") == "1" or "connect" in str(error)
    if offline:
        return (f"'{source.name}' is not a directory here, and the Hugging Face hub cannot be reached and has no copy in its "
                f"cache: {first_lines(error, 1)}; fetch the model where there is a network (hf download {source.name} "
                "--local-dir DIR) and give --hf DIR")
    return f"the Hugging Face hub has no usable model '{source.name}': {first_lines(error)}"


def require_weights(source):
    """transformers' own message for a directory without weights speaks of its file names only."""
    if source.kind == "directory" and not any(os.path.exists(os.path.join(source.name, name)) for name in WEIGHTS):
        raise Failure(65, f"the directory '{source.name}' has a config.json but no weights ({', '.join(WEIGHTS[:2])}); "
                          "with --empty only its shapes are exported")
