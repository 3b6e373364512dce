"""The inputs that a model's forward may have in an export, and examples of them in several sizes."""
import dataclasses
import inspect

from failure import Failure, suggestion


@dataclasses.dataclass(frozen=True)
class Size:
    batch: int
    length: int  # of a sequence; where a model has one length only, that is used


TRACED = Size(2, 8)
OTHERS = (Size(3, 11), Size(1, 5))

TEXT_IDS = ("input_ids", "decoder_input_ids")
MASKS = ("attention_mask", "decoder_attention_mask")
POSITIONS = ("max_position_embeddings", "max_target_positions", "max_seq_len")
KNOWN = TEXT_IDS + MASKS + ("token_type_ids", "position_ids", "pixel_values", "pixel_mask", "input_features",
                            "input_values", "bbox")


def possible(model):
    """Names of the inputs that the model takes and that have examples here, in forward's order."""
    return [name for name in inspect.signature(model.forward).parameters if name in KNOWN]


def choose(model, text):
    """`text`: of --inputs, or None: the model's main input alone."""
    names = possible(model)
    if model.main_input_name not in KNOWN:
        raise Failure(65, f"{type(model).__name__} cannot be exported: of its input '{model.main_input_name}' no examples can be "
                          "made; export your own wrapper around it with --recipe FILE.py:Class")
    if text is None:
        return [model.main_input_name]
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    for name in wanted:
        if name not in names:
            raise Failure(65, f"--inputs: {type(model).__name__} has no input '{name}'"
                              + (suggestion(name, names) or f"; it has {', '.join(names)}"))
    if len(set(wanted)) != len(wanted):
        raise Failure(64, f"--inputs names an input twice: '{text}'")
    if model.main_input_name not in wanted:
        raise Failure(65, f"--inputs: {type(model).__name__} needs '{model.main_input_name}'")
    return wanted


class Examples:
    """Random arrays, the same for each size. Sequences end in padding where a mask is an input."""

    def __init__(self, model, head, names, label_names):
        self.model, self.config, self.head = model, model.config, head
        self.text = model.config.get_text_config()
        self.names, self.label_names = names, label_names

    def fitting(self, size):
        """Not longer than the model's positions; those of RoBERTa begin at 2."""
        limits = [getattr(self.text, name, None) for name in POSITIONS]
        return Size(size.batch, min([size.length] + [max(1, limit - 2) for limit in limits if limit and limit > 0]))

    def make(self, wanted):
        import torch

        size = self.fitting(wanted)
        generator = torch.Generator().manual_seed(wanted.batch * 100 + wanted.length)
        masks = [name for name in self.names if name in MASKS]
        found = {}
        for name in (*masks, *self.names, *self.label_names):
            if name not in found:
                found[name] = self.array(name, size, generator, found)
        return tuple(found[name] for name in (*self.names, *self.label_names))

    def array(self, name, size, generator, found):
        import torch

        if name in MASKS:
            return self.mask(name, size)
        if name in TEXT_IDS:
            return self.ids(size, generator)
        if name == "token_type_ids":
            return torch.zeros(size.batch, size.length, dtype=torch.int64)
        if name == "position_ids":
            return torch.arange(size.length).expand(size.batch, -1).clone()
        if name == "bbox":
            return torch.ones(size.batch, size.length, 4, dtype=torch.int64)
        if name in self.label_names:
            return self.labels(size, generator)
        shape = {"pixel_values": self.pixels, "pixel_mask": self.pixels, "input_features": self.features,
                 "input_values": self.samples}[name](size)
        if name == "pixel_mask":
            return torch.ones(shape[0], *shape[2:], dtype=torch.int64)
        return torch.randn(shape, generator=generator).to(self.model.dtype)

    def ids(self, size, generator):
        import torch

        vocabulary = self.text.vocab_size
        low = min(3, vocabulary - 1)  # the first ones are often padding, beginning and end
        return torch.randint(low, vocabulary, (size.batch, size.length), generator=generator)

    def mask(self, name, size):
        """Of a speech model's encoder too: a mask over samples or frames."""
        import torch

        main = self.model.main_input_name
        length = size.length
        if name == "attention_mask" and main in ("input_values", "input_features"):
            shape = self.samples(size) if main == "input_values" else self.features(size)
            length = shape[-1]
        mask = torch.ones(size.batch, length, dtype=torch.int64)
        mask[-1, length - length // 4:] = 0
        return mask

    def labels(self, size, generator):
        import torch

        if self.head == "question-answering":
            return torch.randint(0, size.length, (size.batch,), generator=generator)
        if self.head in ("token-classification", "sequence-classification", "image-classification",
                         "audio-classification"):
            return self.classes(size, generator)
        labels = self.ids(size, generator)
        if self.head != "ctc":  # there padding is -100 too, but no alignment has to exist
            labels[-1, -1] = -100
        return labels

    def classes(self, size, generator):
        import torch

        count, kind = self.config.num_labels, getattr(self.config, "problem_type", None)
        shape = (size.batch, size.length) if self.head == "token-classification" else (size.batch,)
        if kind == "multi_label_classification":
            return torch.ones(*shape, count, dtype=self.model.dtype)
        if kind == "regression" or (kind is None and count == 1 and self.head != "token-classification"):
            return torch.randn(shape if count == 1 else (*shape, count), generator=generator).to(self.model.dtype)
        return torch.randint(0, count, shape, generator=generator)

    def pixels(self, size):
        image = getattr(self.config, "image_size", None) or 224
        height, width = image if isinstance(image, (list, tuple)) else (image, image)
        return size.batch, getattr(self.config, "num_channels", 3), height, width

    def features(self, size):
        """Whisper has one length; conformers take any, and a frame of theirs is a row."""
        if hasattr(self.config, "max_source_positions") and hasattr(self.config, "num_mel_bins"):
            frames = 2 * self.config.max_source_positions if self.config.model_type == "whisper" else 16 * size.length
            if self.config.model_type == "whisper":
                return size.batch, self.config.num_mel_bins, frames
            return size.batch, frames, getattr(self.config, "input_feat_per_channel", self.config.num_mel_bins)
        width = getattr(self.config, "feature_projection_input_dim", None) or getattr(self.config, "num_mel_bins", 80)
        return size.batch, 16 * size.length, width

    def samples(self, size):
        ratio = getattr(self.config, "inputs_to_logits_ratio", 320)
        return size.batch, ratio * 4 * size.length
