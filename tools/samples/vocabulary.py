"""Tokenizers behind one interface: bytes, a tokenizer.json, a directory of a Hugging Face tokenizer.

encode() takes a list of texts, or of pairs of texts, and returns for each an encoding with ids, offsets (of characters in
its text; (0, 0) for special tokens), type_ids, sequence_ids and overflowing (further pieces where `limit` cuts it)."""
import json
import os
import sys

from failure import Failure, first_lines, printable
from python_packages import import_package

SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class ByteEncoding:
    overflowing = ()

    def __init__(self, text, limit):
        whole = text.encode()
        self.ids = list(whole[:limit])
        if limit is not None and len(whole) > limit:
            self.overflowing = (whole[limit:],)
        self.text = text

    @property
    def type_ids(self):
        return [0] * len(self.ids)

    @property
    def offsets(self):
        found = [(at, at + 1) for at, character in enumerate(self.text) for _ in character.encode()]
        return found[:len(self.ids)]


class Bytes:
    """A token is a byte of UTF-8; a document ends with a line feed."""

    is_bytes = True
    size, pad_id, eos_id, chat_template, special = 256, None, 10, None, {}

    def encode(self, texts, special=True, limit=None, stride=0, only_second=False):
        return [ByteEncoding(text, limit) for text in texts]

    def id_of(self, token):
        if token.isdigit() and int(token) < 256:
            return int(token)
        raise Failure(65, f"--eos '{token}': a token is a byte here, 0 to 255, or none")


class Tokenizer:
    """`backend`: of the package tokenizers. `special`: {"eos_token": "</s>", ...}."""

    is_bytes = False

    def __init__(self, backend, path, special=None, chat_template=None):
        backend.no_truncation()  # a file may bring both
        backend.no_padding()
        self.backend, self.path = backend, path
        self.special, self.chat_template = special or {}, chat_template
        self.size = backend.get_vocab_size()
        self.bos_id, self.eos_id, self.pad_id = map(self.special_id, ("bos_token", "eos_token", "pad_token"))

    def special_id(self, name):
        token = self.special.get(name)
        return self.backend.token_to_id(token) if token else None

    def id_of(self, token):
        found = self.backend.token_to_id(token)
        if found is None:
            raise Failure(65, f"--eos '{token}': '{self.path}' has no such token")
        return found

    def encode(self, texts, special=True, limit=None, stride=0, only_second=False):
        if limit is None:
            self.backend.no_truncation()
        else:
            try:
                self.backend.enable_truncation(limit, stride=stride, strategy="only_second" if only_second else "longest_first")
            except BaseException as error:  # pyo3's panics are no Exceptions
                raise Failure(64, f"a sample of {limit} tokens with --stride {stride}: {first_lines(error)}")
        return self.backend.encode_batch(texts, add_special_tokens=special)

    def surroundings(self):
        """The special tokens in front of a text and behind it."""
        encoding = self.encode(["a"])[0]
        kinds, ids = encoding.special_tokens_mask, encoding.ids
        front = next((at for at, is_special in enumerate(kinds) if not is_special), len(ids))
        behind = next((at for at, is_special in enumerate(reversed(kinds)) if not is_special), 0)
        return ids[:front], ids[len(ids) - behind:]

    def marks_second_text(self):
        """Whether a model of this tokenizer tells two texts apart by token_type_ids."""
        return any(self.encode([("a", "a")])[0].type_ids)


def load(path):
    """`path`: None for bytes."""
    if path is None:
        return Bytes()
    if os.path.isdir(path):
        return of_directory(path)
    if not os.path.isfile(path):
        raise Failure(66, f"cannot read the tokenizer '{path}': no such file or directory (of a model of the hub: hf download "
                          "NAME --include 'tokenizer*' --local-dir DIR)")
    folder = os.path.dirname(os.path.abspath(path))
    return Tokenizer(of_file(path), path, special_tokens(folder), chat_template_of(folder))


def of_file(path):
    tokenizers = import_package("tokenizers", f"the tokenizer '{path}'")
    try:
        return tokenizers.Tokenizer.from_file(path)
    except Exception as error:
        raise Failure(65, f"'{path}' is not a tokenizer file (tokenizer.json): {first_lines(error)}")


def of_directory(path):
    """transformers adapts some tokenizers when it reads them; without it tokenizer.json is used as it is."""
    file = os.path.join(path, "tokenizer.json")
    if not any(os.path.isfile(os.path.join(path, name)) for name in ("tokenizer.json", "tokenizer_config.json",
                                                                     "tokenizer.model", "vocab.json", "vocab.txt")):
        raise Failure(65, f"the directory '{path}' has no tokenizer (tokenizer.json)")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        transformers = import_package("transformers", f"the tokenizer '{path}', which has no tokenizer.json,")
    except Failure:
        if not os.path.isfile(file):
            raise
        return Tokenizer(of_file(file), path, special_tokens(path), chat_template_of(path))
    transformers.logging.set_verbosity_error()
    try:
        loaded = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        if os.path.isfile(file):  # such as one with a class of its own, in Python
            print(printable(f"the tokenizer '{path}' is used as its tokenizer.json is: transformers cannot load it: "
                            f"{first_lines(error, 1)}"), file=sys.stderr)
            return Tokenizer(of_file(file), path, special_tokens(path), chat_template_of(path))
        raise Failure(65, f"the tokenizer '{path}' cannot be loaded: {first_lines(error)}")
    backend = getattr(loaded, "backend_tokenizer", None) or getattr(loaded, "_tokenizer", None)
    if backend is None:
        raise Failure(65, f"the tokenizer '{path}' is one of Python code ({type(loaded).__name__}): only those with a "
                          "tokenizer.json can be used")
    special = {name: text for name in SPECIAL if isinstance(text := getattr(loaded, name, None), str)}
    return Tokenizer(backend, path, special, template_in(loaded.chat_template))


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise Failure(65, f"'{path}' cannot be read: {first_lines(error)}")
    return value if isinstance(value, dict) else {}


def special_tokens(folder):
    config = {**read_json(os.path.join(folder, "special_tokens_map.json")),
              **read_json(os.path.join(folder, "tokenizer_config.json"))}
    tokens = {name: config[name].get("content") if isinstance(config[name], dict) else config[name]
              for name in SPECIAL if config.get(name)}
    return {name: text for name, text in tokens.items() if isinstance(text, str)}


def chat_template_of(folder):
    try:
        with open(os.path.join(folder, "chat_template.jinja"), encoding="utf-8") as file:
            return file.read()
    except OSError:
        return template_in(read_json(os.path.join(folder, "tokenizer_config.json")).get("chat_template"))


def template_in(value):
    """Of several templates that is the one called default."""
    if isinstance(value, list):
        value = {each.get("name"): each.get("template") for each in value if isinstance(each, dict)}
    return value.get("default") if isinstance(value, dict) else value
