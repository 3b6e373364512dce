"""Indices of metrics as DeepSpeed's data analyzer writes them: X.bin has the numbers of all rows, X.idx says where each
row begins (lib/runtime/data/megatron_file.hpp describes it)."""
import os
import struct

import numpy

from output_file import cannot_write

CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 6, "uint32": 7, "uint64": 8}


def smallest_type(low, high):
    for name in ("uint8", "uint16", "uint32", "uint64") if low >= 0 else ("int8", "int16", "int32", "int64"):
        limits = numpy.iinfo(name)
        if limits.min <= low and high <= limits.max:
            return numpy.dtype(name)


def write_rows(prefix, values, lengths):
    """`lengths`: numbers of each row. Appears under its name when it is complete."""
    dtype = smallest_type(int(values.min()), int(values.max()))
    lengths = numpy.asarray(lengths, "<i4")
    offsets = (numpy.cumsum(lengths, dtype=numpy.int64) - lengths) * dtype.itemsize
    header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, CODES[dtype.name], len(lengths), 2)
    documents = numpy.array([0, len(lengths)], "<i8")
    for ending, parts in ((".bin", [values.astype(dtype)]), (".idx", [header, lengths, offsets.astype("<i8"), documents])):
        path = prefix + ending
        try:
            with open(path + ".part", "wb") as file:
                for part in parts:
                    file.write(part if isinstance(part, bytes) else part.tobytes())
            os.replace(path + ".part", path)
        except OSError as error:
            raise cannot_write(path, error)


def write_metric(directory, name, metric):
    """`metric`: of each sample, int64. Writes directory/name/name_..., where a config looks for them."""
    try:
        os.makedirs(os.path.join(directory, name), exist_ok=True)
    except OSError as error:
        raise cannot_write(os.path.join(directory, name), error)
    prefix = os.path.join(directory, name, name)
    order = numpy.argsort(metric, kind="stable")
    values, counts = numpy.unique(metric, return_counts=True)
    write_rows(prefix + "_sample_to_metric", metric, numpy.ones(len(metric), int))
    write_rows(prefix + "_index_to_metric", values, numpy.ones(len(values), int))
    write_rows(prefix + "_index_to_sample", order, counts)
    return prefix, values
