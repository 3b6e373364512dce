"""Which files the inputs name, and what each of them holds."""
import bz2
import contextlib
import dataclasses
import gzip
import io
import lzma
import os
import re
import zlib

from failure import Failure

ENDINGS = {".jsonl": "json lines", ".ndjson": "json lines", ".json": "json", ".csv": "csv", ".tsv": "tsv",
           ".parquet": "parquet", ".arrow": "arrow"}
TEXT_ENDINGS = (".txt", ".text")  # in a directory; alone any file may be a text
COMPRESSED = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
NOT_TEXT = {".safetensors": "has samples already", ".npz": "has arrays already", ".npy": "has an array already",
            ".pt": "is a file of PyTorch", ".pth": "is a file of PyTorch", ".zst": "is compressed; zstd -d unpacks it",
            ".zip": "is an archive; unzip unpacks it", ".tar": "is an archive; tar -xf unpacks it",
            ".tgz": "is an archive; tar -xf unpacks it", ".gguf": "has a model's weights"}
SPLIT = re.compile(r"(train|test|validation|valid|val|dev|eval)(?=[-_.])")
CIFAR_NAME = re.compile(r"(data_batch_\d+|test_batch|train|test)\.bin$")


@dataclasses.dataclass(frozen=True)
class Source:
    path: str
    kind: str  # a value of ENDINGS, "text", "cifar", "image directory"

    @property
    def size(self):
        return os.path.getsize(self.path) if self.kind != "image directory" else 0


def ending_of(path):
    """Without that of a compression."""
    stem, ending = os.path.splitext(path.lower())
    return os.path.splitext(stem)[1] if ending in COMPRESSED else ending


def is_cifar(path):
    size = os.path.getsize(path)
    return bool(CIFAR_NAME.search(path)) and size > 0 and (size % 3073 == 0 or size % 3074 == 0)


def kind_of_file(path):
    ending = ending_of(path)
    if ending in ENDINGS:
        return ENDINGS[ending]
    if ending in NOT_TEXT:
        raise Failure(65, f"'{path}' {NOT_TEXT[ending]}: the inputs are .txt, .jsonl, .json, .csv, .tsv, .parquet and .arrow "
                          "files, directories of these, of images, of save_to_disk, and CIFAR's binary files")
    if ending in IMAGE_ENDINGS:
        raise Failure(65, f"'{path}' is one image: give the directory that has a directory of images for each class")
    return "cifar" if is_cifar(path) else "text"


def find(paths):
    """The sources that the arguments name, in order."""
    found = []
    for path in paths:
        if os.path.isdir(path):
            found += in_directory(path)
            continue
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise Failure(66, f"cannot read '{path}': {error.strerror}")
        found.append(Source(path, kind_of_file(path)))
    tables = [source for source in found if source.kind in ENDINGS.values()]
    if tables and len(tables) < len(found):
        other = next(source for source in found if source not in tables)
        raise Failure(65, f"'{tables[0].path}' has rows and '{other.path}' is {described(other)}: give inputs of one sort")
    kinds = {source.kind for source in found} - set(ENDINGS.values())
    if len(kinds) > 1:
        raise Failure(65, f"'{found[0].path}' is {described(found[0])} and '{found[-1].path}' is {described(found[-1])}: "
                          "give inputs of one sort")
    return found


def described(source):
    return {"text": "text", "cifar": "a binary file of CIFAR", "image directory": "a directory of images"}.get(
        source.kind, "a table")


def in_directory(path):
    names = sorted(os.listdir(path))
    if "dataset_dict.json" in names:
        splits = [name for name in names if os.path.isfile(os.path.join(path, name, "state.json"))]
        one = os.path.join(path, "train" if "train" in splits or not splits else splits[0])
        raise Failure(65, f"'{path}' holds the splits {', '.join(splits)} of a data set: give one, as '{one}'")
    if "state.json" in names:
        from samples import arrow_files
        return [Source(file, "arrow") for file in arrow_files.files_of_data_set(path)]
    if "batches.meta" in names or "data_batch_1" in names:
        raise Failure(65, f"'{path}' has CIFAR's version for Python, which is a pickle: download its binary version")
    cifar = [name for name in names if name.endswith(".bin") and is_cifar(os.path.join(path, name))]
    if cifar:
        train = [name for name in cifar if not name.startswith("test")]
        return [Source(os.path.join(path, name), "cifar") for name in train or cifar]
    files = [name for name in names if os.path.isfile(os.path.join(path, name)) and not name.startswith(".")]
    tables = [name for name in files if ending_of(name) in ENDINGS]
    texts = [name for name in files if ending_of(name) in TEXT_ENDINGS]
    kinds = sorted({ENDINGS[ending_of(name)] for name in tables} | ({"text"} if texts else set()))
    directories = [name for name in names if os.path.isdir(os.path.join(path, name)) and not name.startswith(".")]
    if directories and (not tables or "metadata" in tables[0]) and not texts:
        return [image_directory(path, directories)]
    splits = {match[1] for match in map(SPLIT.match, tables + texts) if match}
    if len(splits) > 1:
        one = os.path.join(path, "train*" if "train" in splits else f"{min(splits)}*")
        raise Failure(65, f"the directory '{path}' has files of the splits {', '.join(sorted(splits))}: name those of one, as {one}")
    if not kinds and any(name.lower().endswith(IMAGE_ENDINGS) for name in files):
        raise Failure(65, f"'{path}' has images, but no directory for each class: give the directory above it")
    if not kinds:
        raise Failure(65, f"the directory '{path}' has no file that is read here (.txt, .jsonl, .json, .csv, .tsv, .parquet, "
                          ".arrow), and no directories of images")
    if len(kinds) > 1:
        raise Failure(65, f"the directory '{path}' has files of several sorts ({', '.join(kinds)}): name those to read")
    return [Source(os.path.join(path, name), ENDINGS.get(ending_of(name), "text")) for name in tables + texts]


def has_images(path):
    return any(name.lower().endswith(IMAGE_ENDINGS) for _, _, names in os.walk(path) for name in names)


def image_directory(path, directories):
    """Directories of classes; one level more is a split."""
    for name in directories:
        here = os.path.join(path, name)
        if any(entry.name.lower().endswith(IMAGE_ENDINGS) for entry in os.scandir(here)):
            return Source(path, "image directory")
    if set(directories) & {"train", "val", "valid", "validation", "test"} and any(
            has_images(os.path.join(path, name)) for name in directories):
        raise Failure(65, f"'{path}' holds the splits {', '.join(directories)}: give one of them, as "
                          f"'{os.path.join(path, 'train' if 'train' in directories else directories[0])}'")
    if any(has_images(os.path.join(path, name)) for name in directories):
        return Source(path, "image directory")
    for name in directories:
        if any(ending_of(inner) in ENDINGS or ending_of(inner) in TEXT_ENDINGS for inner in os.listdir(os.path.join(path, name))):
            raise Failure(65, f"the directory '{path}' has no file that is read here, but '{os.path.join(path, name)}' has: give that")
    raise Failure(65, f"the directory '{path}' has directories without images ({', '.join(directories[:4])}), and no file that is "
                      "read here")


class MeteredFile(io.FileIO):
    """Tells the progress how much was read."""

    def __init__(self, path, meter):
        super().__init__(path)
        self.meter = meter

    def readinto(self, buffer):
        count = super().readinto(buffer)
        self.meter.add_bytes(count or 0)
        return count


@contextlib.contextmanager
def open_bytes(path, meter):
    """The file's bytes, unpacked where its name says that it is compressed."""
    try:
        raw = MeteredFile(path, meter)
    except OSError as error:
        raise Failure(66, f"cannot read '{path}': {error.strerror}")
    opener = COMPRESSED.get(os.path.splitext(path.lower())[1])
    with io.BufferedReader(raw, 1 << 20) as file:
        if opener is None:
            yield file
        else:
            with opener(file, "rb") as unpacked, damage_named(path):
                yield unpacked


@contextlib.contextmanager
def damage_named(path):
    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise Failure(65, f"'{path}' is damaged: {error}")
    except OSError as error:  # bz2 has no type of its own
        raise Failure(65 if error.errno is None else 66, f"cannot read '{path}': {error.strerror or error}")
