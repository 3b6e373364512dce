"""Labels of rows as numbers: numbers stay what they are, names are numbered in their sorted order."""
import json
import math
import os

from failure import Failure, first_lines, shortened, suggestion
from samples.rows import type_of

PEEKED = 256  # rows that decide what the labels are


# int64 and float32
LARGEST = {"classes": (1 << 63) - 1, "names": (1 << 63) - 1, "values": (2 - 2**-23) * 2.0**127}


def number_in(value):
    """The int or float that a value or its text is, or None."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, str):
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                pass
    return None


class Labels:
    """`kind`: "classes" for numbers of classes, "names", "values" for numbers to be predicted. `names`: all there are, or
    None where they are collected on the way; convert() then numbers them at the end."""

    def __init__(self, kind, names=None):
        self.kind, self.names = kind, names
        self.seen = {name: at for at, name in enumerate(names)} if names else {}
        self.dtype = "float32" if kind == "values" else "int64"
        self.largest = -1

    def value(self, label, row):
        if self.kind == "names":
            return self.of_name(str(label) if isinstance(label, (int, bool)) else label, row)
        number = number_in(label)
        if isinstance(number, float) and not math.isfinite(number):
            raise Failure(65, f"{row.place()}: the label is {number}")
        if number is not None and not -LARGEST[self.kind] <= number <= LARGEST[self.kind]:
            raise Failure(65, f"{row.place()}: the label is {shown(label)}, which {self.dtype} does not hold")
        if number is None or (self.kind == "classes" and number != int(number)):
            raise Failure(65, f"{row.place()}: the label is {shown(label)}, but the first ones are "
                              f"{'whole numbers' if self.kind == 'classes' else 'numbers'}; --label-type names or values")
        if self.kind == "values":
            return float(number)
        if number < 0:
            raise Failure(65, f"{row.place()}: the label is {number}; classes are 0 or more (a test set without labels has -1)")
        if self.names and number >= len(self.names):
            raise Failure(65, f"{row.place()}: the label is {int(number)}, but there are names of {len(self.names)} classes")
        self.largest = max(self.largest, int(number))
        return int(number)

    def of_name(self, name, row):
        if not isinstance(name, str):
            raise Failure(65, f"{row.place()}: the label is {shown(name)}, expected the name of a class")
        if self.names is None:
            return self.seen.setdefault(name, len(self.seen))
        if name not in self.seen:
            raise Failure(65, f"{row.place()}: '{name}' is not one of the classes"
                              + (suggestion(name, self.names) or f" ({', '.join(self.names[:8])})"))
        return self.seen[name]

    def final_names(self):
        if self.kind == "values":
            return None
        return self.names or (sorted(self.seen) if self.kind == "names" else None)

    def convert(self):
        """{"labels": function from the number that value() gave}, or None where that number is final."""
        if self.kind != "names" or self.names is not None:
            return None
        final = {name: at for at, name in enumerate(sorted(self.seen))}
        by_order = [final[name] for name in self.seen]
        return {"labels": by_order.__getitem__}

    def summary(self):
        names = self.final_names()
        if names:
            return f"{len(names)} classes ({', '.join(names[:6])}{', ...' if len(names) > 6 else ''})"
        return f"classes 0 to {self.largest}" if self.kind == "classes" else "values as labels"


def shown(label):
    return f"'{shortened(label, 60)}'" if isinstance(label, str) else type_of(label)


def of_rows(labels, given_type, given_names, own_names=None):
    """`labels`: of the first rows; `own_names`: those that the data set's own description has."""
    names = given_names or own_names
    labels = [label for label in labels if label is not None]
    kind = given_type
    if kind is None:
        numbers = [number_in(label) for label in labels]
        if any(isinstance(label, (list, dict)) for label in labels):
            raise Failure(65, f"a label is {type_of(next(each for each in labels if isinstance(each, (list, dict))))}: one class "
                              "or number a row is expected")
        if not labels or None in numbers:
            kind = "names"
        else:
            kind = "values" if any(isinstance(number, float) for number in numbers) else "classes"
    if kind == "values" and names and given_names:
        raise Failure(64, "--classes names classes, but the labels are numbers to predict; --label-type classes or names")
    if kind == "classes" and names:
        return Labels("classes", names)
    return Labels(kind, names if kind == "names" else None)


def read_names(path):
    """Of a JSON list, as this tool writes it, of the header of a safetensors file, or of a text with a name a line."""
    try:
        with open(path, "rb") as file:
            if path.endswith(".safetensors"):
                text = json.loads(file.read(int.from_bytes(file.read(8), "little")))["__metadata__"]["classes"]
            else:
                text = file.read().decode("utf-8")
    except OSError as error:
        raise Failure(66, f"cannot read '{path}': {error.strerror}")
    except (ValueError, KeyError, TypeError, OverflowError, MemoryError):
        raise Failure(65, f"'{path}' names no classes")
    try:
        names = json.loads(text) if text.lstrip().startswith("[") else [line for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise Failure(65, f"'{path}' is not a list of names: {first_lines(error)}")
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise Failure(65, f"'{path}' is not a list of different names")
    return names


def side_file(out):
    return os.path.splitext(out)[0] + ".classes.json"
