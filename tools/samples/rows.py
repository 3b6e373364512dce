"""Rows of tables, one after the other: .jsonl, .json, .csv, .tsv; parquet and Arrow through arrow_files. A row knows where it
stands, for messages."""
import codecs
import csv
import json
import re
import sys

from failure import Failure, shortened
from samples import source_files

BLANK = re.compile(r"[ \t\r\n]*")
CHUNK = 1 << 20


class Row:
    """`values`: {column: value}."""

    __slots__ = ("values", "path", "number", "unit")

    def __init__(self, values, path, number, unit="line"):
        self.values, self.path, self.number, self.unit = values, path, number, unit

    def place(self):
        return f"'{self.path}' {self.unit} {self.number}"

    def get(self, column):
        """The value of a column; "a.b" is the entry b of the object in column a. KeyError where it is absent."""
        if column in self.values:
            return self.values[column]
        value = self.values
        for name in column.split("."):
            if not isinstance(value, dict) or name not in value:
                raise KeyError(column)
            value = value[name]
        return value


def read(sources, meter, columns=None, quotes=True):
    """Rows of all sources. `columns`: the only ones that are needed, where a format can leave the others unread."""
    for source in sources:
        if source.kind in ("parquet", "arrow"):
            from samples import arrow_files
            yield from arrow_files.read(source, meter, columns)
            continue
        with source_files.open_bytes(source.path, meter) as file:
            if source.kind == "json lines":
                yield from json_lines(file, source.path)
            elif source.kind == "json":
                yield from json_values(file, source.path)
            else:
                yield from table_lines(file, source.path, "\t" if source.kind == "tsv" else None, quotes)


def decoded(line, path, number):
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Failure(65, f"'{path}' line {number}: not UTF-8 at byte {error.start + 1} of the line; "
                          "iconv -f latin1 -t utf-8 converts a file of Latin-1")


def without_mark(file):
    """Lines without the byte order mark that some programs write in front."""
    for number, line in enumerate(file, 1):
        yield number, line.removeprefix(codecs.BOM_UTF8) if number == 1 else line


def json_lines(file, path):
    for number, line in without_mark(file):
        if not line.strip():
            continue
        text = decoded(line, path, number)
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            raise Failure(65, f"'{path}' line {number}: not JSON: {error.msg} at character {error.pos + 1}")
        except (ValueError, RecursionError) as error:
            raise Failure(65, f"'{path}' line {number}: {beyond_limit(error)}")
        if not isinstance(value, dict):
            raise Failure(65, f"'{path}' line {number}: {type_of(value)}, expected an object with named columns")
        yield Row(value, path, number)


def beyond_limit(error):
    """Of JSON that Python does not take."""
    return "nested too deep" if isinstance(error, RecursionError) else \
        f"a number of more than {sys.get_int_max_str_digits()} digits"


class JsonText:
    """Values of a file of which only a part is in memory."""

    def __init__(self, file, path):
        self.file, self.path = file, path
        self.decoder, self.utf8 = json.JSONDecoder(), codecs.getincrementaldecoder("utf-8-sig")()
        self.text, self.at, self.line, self.is_whole = "", 0, 1, False

    def more(self):
        """The part doubles, so that a long value is not begun again too often."""
        data = self.file.read(max(CHUNK, len(self.text)))
        self.is_whole = not data
        self.line += self.text.count("\n", 0, self.at)
        try:
            self.text, self.at = self.text[self.at:] + self.utf8.decode(data, self.is_whole), 0
        except UnicodeDecodeError as error:
            raise Failure(65, f"'{self.path}' is not UTF-8: {error.reason} after line {self.line}")

    def peek(self):
        """The next character that is not blank; empty at the end."""
        while True:
            self.at = BLANK.match(self.text, self.at).end()
            if self.at < len(self.text) or self.is_whole:
                return self.text[self.at:self.at + 1]
            self.more()

    def position(self, offset=0):
        return f"'{self.path}' line {self.line + self.text.count(chr(10), 0, self.at + offset)}"

    def value(self):
        while True:
            try:
                value, end = self.decoder.raw_decode(self.text, self.at)
            except json.JSONDecodeError as error:
                unfinished = error.pos + 16 > len(self.text) or error.msg.startswith("Unterminated")
                if unfinished and not self.is_whole:
                    self.more()
                    continue
                raise Failure(65, f"{self.position(error.pos - self.at)}: not JSON: {error.msg}")
            except (ValueError, RecursionError) as error:
                raise Failure(65, f"{self.position()}: {beyond_limit(error)}")
            if end == len(self.text) and not self.is_whole and self.text[end - 1] not in "}]\"":
                self.more()  # a number may have more digits
                continue
            self.at = end
            return value


def json_values(file, path):
    """A list of objects, or objects one after the other."""
    text, number = JsonText(file, path), 0
    first = text.peek()
    if not first:
        return
    in_list = first == "["
    text.at += in_list
    while True:
        following = text.peek()
        if not following and not in_list:
            return
        if following == "]" and in_list:
            text.at += 1
            if text.peek():
                raise Failure(65, f"{text.position()}: more text after the list")
            return
        where = text.position()
        value = text.value()
        if not isinstance(value, dict):
            raise Failure(65, f"{where}: {type_of(value)}, expected an object with named columns")
        for values in unfolded(value):
            number += 1
            yield Row(values, path, number, "row")
        if in_list and text.peek() == ",":
            text.at += 1
        elif in_list and text.peek() != "]":
            raise Failure(65, f"{text.position()}: not JSON: expected ',' or ']'")


def unfolded(value):
    """Rows of {"data": [row, ...]}, and of SQuAD's own files."""
    inner = value.get("data")
    if isinstance(inner, list) and all(isinstance(each, dict) for each in inner):
        for each in inner:
            yield from unfolded(each)
    elif isinstance(value.get("paragraphs"), list):
        for paragraph in value["paragraphs"]:
            for question in paragraph.get("qas", ()):
                yield {**question, "context": paragraph.get("context"), "title": value.get("title")}
    else:
        yield value


def table_lines(file, path, delimiter, quotes):
    csv.field_size_limit(sys.maxsize)
    lines = (decoded(line, path, number) for number, line in without_mark(file))
    first = next(lines, None)
    if first is None:
        return
    if delimiter is None:
        delimiter = next((mark for mark in (",", "\t", ";") if mark in first), ",")

    def all_lines():
        yield first
        yield from lines

    table = csv.reader(all_lines(), delimiter=delimiter, strict=quotes, quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE)
    try:
        header = [name.strip() for name in next(table)]
        twice = next((name for name in header if header.count(name) > 1), None)
        if twice is not None:
            raise Failure(65, f"'{path}' line 1: the column '{twice}' is there twice; the first line must name the columns")
        begin = table.line_num + 1
        for fields in table:
            if len(fields) not in (0, len(header)):
                raise Failure(65, f"'{path}' line {begin}: {len(fields)} fields, but the header names {len(header)} columns "
                                  f"({', '.join(header)})")
            if fields:
                yield Row(dict(zip(header, fields)), path, begin)
            begin = table.line_num + 1
    except csv.Error as error:
        raise Failure(65, f"'{path}' line {table.line_num}: {error}; --no-quotes reads quotation marks as text")


def type_of(value):
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"a boolean ({str(value).lower()})"
    if isinstance(value, (int, float)):
        return f"a number ({shortened(str(value), 40)})"
    if isinstance(value, dict):
        return f"an object ({shortened(', '.join(map(str, list(value)[:6])), 100)})"
    return {str: "a text", list: "a list", bytes: "bytes"}.get(type(value), f"a {type(value).__name__}")


def require_characters(text, row):
    """JSON can hold one half of a character (\\ud83d), which UTF-8 cannot."""
    if text and not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise Failure(65, f"{row.place()}: '\\u{ord(text[error.start]):x}' is half of a character (a surrogate)")
    return text
