"""Files of samples and of tokens, written while they grow: first under another name, renamed when they are whole. What was
begun is removed again when anything ends the work before that."""
import array
import dataclasses
import json
import os
import shutil
import sys

import output_file
from failure import Failure

TYPES = {"uint8": ("B", "u1", "U8"), "uint16": ("H", "u2", "U16"), "uint32": ("I", "u4", "U32"),
         "int64": ("q", "i8", "I64"), "float32": ("f", "f4", "F32")}
HEADER_BYTES = 4096  # kept free in front of the samples, whose number is known last
BUFFER_BYTES = 1 << 22


@dataclasses.dataclass(frozen=True)
class Array:
    name: str
    dtype: str
    shape: tuple = ()  # of one sample


def as_type(values, dtype):
    """An array.array of the dtype. `values`: numbers, never bytes (those would be taken as raw memory)."""
    code = TYPES[dtype][0]
    if isinstance(values, array.array) and values.typecode == code:
        return values
    try:
        return array.array(code, values)
    except OverflowError:
        largest = max(values)
        raise Failure(65, f"token {largest} does not fit {dtype}; choose a larger --dtype")


def little_endian(values):
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values


class PartFile:
    """Bytes that go to `path` in the end; meanwhile they are in `path`.part."""

    def __init__(self, path, aside=None):
        self.path, self.aside = path, aside or f"{path}.part"
        for name in (self.path, self.aside):
            output_file.require_replaceable(name)
        self.file = self.guard(lambda: open(self.aside, "w+b", buffering=BUFFER_BYTES))

    def guard(self, action):
        try:
            return action()
        except OSError as error:
            raise output_file.cannot_write(self.path, error)

    def write(self, data):
        self.guard(lambda: self.file.write(data))

    def write_at(self, offset, data):
        def act():
            self.file.seek(offset)
            self.file.write(data)
            self.file.seek(0, os.SEEK_END)
        self.guard(act)

    def append(self, other):
        """Moves the bytes of another part to the end of this one."""
        def act():
            other.file.seek(0)
            shutil.copyfileobj(other.file, self.file, BUFFER_BYTES)
        self.guard(act)
        other.remove()

    def finish(self):
        self.guard(self.file.close)
        self.guard(lambda: os.replace(self.aside, self.path))

    def remove(self):
        try:
            self.file.close()
        except OSError:
            pass  # a full disk; the file goes anyway
        if os.path.exists(self.aside):
            os.unlink(self.aside)


class Output:
    """A context: what is not finished when it ends is removed."""

    def __init__(self):
        self.parts = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for part in self.parts:
            part.remove()

    def part(self, *arguments):
        part = PartFile(*arguments)
        self.parts.append(part)
        return part


class SampleFile(Output):
    """safetensors. The first array grows behind a header that is filled in last, the others in files of their own."""

    def __init__(self, path, arrays):
        super().__init__()
        self.path, self.arrays, self.count = path, arrays, 0
        self.main = self.part(path)
        try:
            self.spools = [self.main] + [self.part(path, f"{path}.part.{each.name}") for each in arrays[1:]]
        except Failure:
            self.__exit__()
            raise
        self.main.write(b"\0" * HEADER_BYTES)

    def write(self, count, values):
        """`values`: of each array the elements of `count` samples, as numbers."""
        for each, spool, elements in zip(self.arrays, self.spools, values):
            spool.write(little_endian(as_type(elements, each.dtype)))
        self.count += count

    def finish(self, metadata=None, convert=None):
        """`metadata`: texts for the header; left out where they are too long for it. `convert`: {name of an array: function
        of its elements}, for values that only the whole data decide; these arrays are of int64."""
        header, offset = {}, 0
        for each in self.arrays:
            size = array.array(TYPES[each.dtype][0]).itemsize * self.count
            for dim in each.shape:
                size *= dim
            header[each.name] = {"dtype": TYPES[each.dtype][2], "shape": [self.count, *each.shape],
                                 "data_offsets": [offset, offset + size]}
            offset += size
        text = json.dumps({"__metadata__": metadata, **header} if metadata else header, separators=(",", ":")).encode()
        if len(text) > HEADER_BYTES - 8:
            text = json.dumps(header, separators=(",", ":")).encode()
        self.main.write_at(0, (HEADER_BYTES - 8).to_bytes(8, "little") + text.ljust(HEADER_BYTES - 8))
        for each, spool in zip(self.arrays[1:], self.spools[1:]):
            self.main.append(self.converted(spool, convert[each.name]) if convert and each.name in convert else spool)
        self.main.finish()

    def converted(self, spool, function):
        fresh = self.part(self.path, spool.aside + ".converted")
        spool.file.seek(0)
        while data := spool.file.read(BUFFER_BYTES):
            fresh.write(little_endian(array.array("q", map(function, little_endian(array.array("q", data))))))
        spool.remove()
        return fresh


class TokenFile(Output):
    """A stream of tokens: flat, or a .npy file whose header is filled in last."""

    def __init__(self, path, dtype):
        super().__init__()
        self.dtype, self.count, self.is_npy = dtype, 0, path.endswith(".npy")
        self.main = self.part(path)
        if self.is_npy:
            self.main.write(npy_header(dtype, 0))

    def write(self, tokens):
        self.main.write(little_endian(as_type(tokens, self.dtype)))
        self.count += len(tokens)

    def finish(self):
        if self.is_npy:
            self.main.write_at(0, npy_header(self.dtype, self.count))
        self.main.finish()


def npy_header(dtype, count):
    """128 bytes for any count."""
    code = TYPES[dtype][1]
    text = f"{{'descr': '{'|' if code == 'u1' else '<'}{code}', 'fortran_order': False, 'shape': ({count},), }}"
    return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + text.ljust(117).encode() + b"\n"


def write_text(path, text):
    with Output() as out:
        part = out.part(path)
        part.write(text.encode())
        part.finish()
