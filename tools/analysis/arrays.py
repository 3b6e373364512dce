"""The arrays of training data as memory maps: the same files, and the same samples, as a run reads."""
import glob
import json
import os
import struct

from failure import Failure

try:
    import numpy
except ImportError as error:
    raise Failure(69, "NumPy is needed: pip install numpy") from error

SAFETENSORS = {"BOOL": "?", "U8": "u1", "I8": "i1", "I16": "<i2", "U16": "<u2", "I32": "<i4", "U32": "<u4", "I64": "<i8",
               "U64": "<u8", "F16": "<f2", "F32": "<f4", "F64": "<f8"}
MEGATRON = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<u2", 7: "<u4", 8: "<u2"}


class Samples:
    """`arrays`: by name; the first dim counts samples. Can be pickled: files are mapped again in another process."""

    def __init__(self, paths, seq, dtype):
        self.paths, self.seq, self.dtype = expand(paths), seq, dtype
        self.open()

    def __getstate__(self):
        return self.paths, self.seq, self.dtype

    def __setstate__(self, state):
        self.paths, self.seq, self.dtype = state
        self.open()

    def open(self):
        if self.seq is not None:
            self.arrays = {"input_ids": TokenRows(numpy.concatenate([read_stream(path, self.dtype) for path in self.paths])
                                                  if len(self.paths) > 1 else read_stream(self.paths[0], self.dtype), self.seq)}
        else:
            files = [read_arrays(path) for path in self.paths]
            for path, each in zip(self.paths[1:], files[1:]):
                if each.keys() != files[0].keys():
                    raise Failure(65, f"'{path}' has the arrays {', '.join(each)}, and '{self.paths[0]}' {', '.join(files[0])}")
            self.arrays = {name: Joined([each[name] for each in files]) for name in files[0]}
        counts = {name: len(array) for name, array in self.arrays.items()}
        if len(set(counts.values())) != 1:
            raise Failure(65, f"the arrays have different numbers of samples: {counts}")
        self.count = next(iter(counts.values()))
        if self.count == 0:
            raise Failure(65, f"'{self.paths[0]}' has no samples")


class Joined:
    """Arrays one after the other."""

    def __init__(self, parts):
        self.parts, self.ends = parts, numpy.cumsum([len(part) for part in parts])

    def __len__(self):
        return int(self.ends[-1])

    def rows(self, begin, end):
        out, first = [], 0
        for part, last in zip(self.parts, self.ends):
            if begin < last and end > first:
                out.append(part[max(begin, first) - first:min(end, last) - first])
            first = last
        return numpy.asarray(out[0]) if len(out) == 1 else numpy.concatenate(out)

    @property
    def sample_shape(self):
        return self.parts[0].shape[1:]

    @property
    def kind(self):
        return self.parts[0].dtype.kind


class TokenRows:
    """The samples of a stream, as data.seq_len makes them."""

    def __init__(self, tokens, seq):
        self.tokens, self.seq, self.sample_shape, self.kind = tokens, seq, (seq,), "i"

    def __len__(self):
        return max(0, (len(self.tokens) - 1) // self.seq)

    def rows(self, begin, end):
        return numpy.asarray(self.tokens[begin * self.seq:end * self.seq]).reshape(-1, self.seq)


def expand(paths):
    out = []
    for path in paths:
        found = [path] if os.path.exists(path) or os.path.exists(path + ".idx") else sorted(glob.glob(path))
        if not found:
            raise Failure(66, f"'{path}' does not exist")
        out += found
    return out


def read_arrays(path):
    if path.endswith((".idx", ".bin")) or os.path.exists(path + ".idx"):
        raise Failure(64, f"'{path}' is a stream of tokens: give --seq, as data.seq_len")
    try:
        if path.endswith(".npy"):
            return {os.path.splitext(os.path.basename(path))[0]: numpy.load(path, mmap_mode="r")}
        if path.endswith(".npz"):
            with numpy.load(path) as file:
                return {name: file[name] for name in file.files}
        return read_safetensors(path)
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise Failure(65, f"cannot read '{path}': {error}") from error


def read_safetensors(path):
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        if size > os.path.getsize(path):
            raise ValueError("it is not a safetensors file; a stream of tokens needs --seq")
        header = json.loads(file.read(size))
    out = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] not in SAFETENSORS:
            continue
        begin, end = entry["data_offsets"]
        dtype, shape = numpy.dtype(SAFETENSORS[entry["dtype"]]), tuple(entry["shape"])
        out[name] = numpy.memmap(path, dtype, "r", 8 + size + begin, shape) if end > begin else numpy.empty(shape, dtype)
    return out


def read_stream(path, dtype):
    prefix = path[:-4] if path.endswith((".bin", ".idx")) else path
    try:
        if os.path.exists(prefix + ".idx") and os.path.exists(prefix + ".bin"):
            return read_megatron(prefix)
        if path.endswith(".npy"):
            return numpy.load(path, mmap_mode="r")
        return numpy.memmap(path, dtype, "r")
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise Failure(65, f"cannot read '{path}': {error}") from error


def read_megatron(prefix):
    with open(prefix + ".idx", "rb") as file:
        if file.read(9) != b"MMIDIDX\0\0":
            raise ValueError("its .idx is not an index of Megatron")
        _, code, sequences, _ = struct.unpack("<QBQQ", file.read(25))
        lengths = numpy.frombuffer(file.read(4 * sequences), "<i4")
        offsets = numpy.frombuffer(file.read(8 * sequences), "<i8")
    dtype = numpy.dtype(MEGATRON[code])
    tokens = numpy.memmap(prefix + ".bin", dtype, "r")
    ends = offsets + lengths.astype(numpy.int64) * dtype.itemsize
    if offsets[0] == 0 and (offsets[1:] == ends[:-1]).all():
        return tokens[:ends[-1] // dtype.itemsize]
    return numpy.concatenate([tokens[at // dtype.itemsize:end // dtype.itemsize] for at, end in zip(offsets, ends)])
