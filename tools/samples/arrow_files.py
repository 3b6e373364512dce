"""Parquet, Arrow files, and directories of datasets' save_to_disk, through the Python package pyarrow."""
import json
import os

from failure import Failure, first_lines
from python_packages import import_package
from samples.rows import Row

ROWS = 256  # in memory at a time


def import_pyarrow(path):
    return import_package("pyarrow", f"'{path}'", parts=("ipc", "parquet"))


def files_of_data_set(path):
    """The files that state.json lists."""
    try:
        with open(os.path.join(path, "state.json"), encoding="utf-8") as file:
            state = json.load(file)
        names = [entry["filename"] for entry in state["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failure(65, f"'{path}/state.json' does not list the files of a data set: {type(error).__name__} {error}")
    if state.get("_indices_data_files"):
        raise Failure(65, f"'{path}' selects its rows by a table of indices: dataset.flatten_indices().save_to_disk(DIR)")
    return [os.path.join(path, name) for name in names]


def open_batches(pyarrow, source, columns):
    """(schema, number of rows or None, record batches)"""
    path = source.path
    if source.kind == "parquet":
        # Pages carry a CRC-32 where the writer was asked for it (write_page_checksum); pyarrow does not look unasked.
        file = pyarrow.parquet.ParquetFile(path, memory_map=True, page_checksum_verification=True)
        return file.schema_arrow, file.metadata.num_rows, file.iter_batches(batch_size=ROWS, columns=columns)
    mapped = pyarrow.memory_map(path)
    try:
        reader = pyarrow.ipc.open_stream(mapped)
        return reader.schema, None, reader
    except pyarrow.ArrowInvalid:
        reader = pyarrow.ipc.open_file(mapped)
        return reader.schema, None, (reader.get_batch(i) for i in range(reader.num_record_batches))


def read(source, meter, columns=None):
    pyarrow = import_pyarrow(source.path)
    path, number = source.path, 0
    try:
        schema, _, batches = open_batches(pyarrow, source, None)
        if columns is not None:  # a column that is absent is named with its row
            columns = [name for name in schema.names if name in columns or name in {each.split(".")[0] for each in columns}]
            schema, _, batches = open_batches(pyarrow, source, columns)
        total = max(1, count_rows(pyarrow, source))
        for batch in batches:
            for begin in range(0, batch.num_rows, ROWS):
                piece = batch.slice(begin, ROWS)
                piece = piece.select(columns) if columns is not None else piece
                for values in piece.to_pylist():
                    number += 1
                    yield Row(values, path, number, "row")
                meter.add_bytes(source.size * piece.num_rows // total)
    except (pyarrow.ArrowException, OSError) as error:
        raise Failure(65, f"'{path}' cannot be read: {first_lines(error)}")


def count_rows(pyarrow, source):
    """For the progress: parquet knows it, of Arrow files the batches are counted, without reading their columns."""
    _, known, batches = open_batches(pyarrow, source, None)
    return known if known is not None else sum(batch.num_rows for batch in batches)


def class_names(source, column):
    """Names of the classes that the data set's features give a column of numbers, or None."""
    schema, _, _ = open_batches(import_pyarrow(source.path), source, None)
    try:
        names = json.loads(schema.metadata[b"huggingface"])["info"]["features"][column]["names"]
        return [str(name) for name in names]
    except (KeyError, TypeError, ValueError):
        return None
