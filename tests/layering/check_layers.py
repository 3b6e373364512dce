#!/usr/bin/env python3
"""Checks every #include of lib/, apps/ and kernels/ against the tables of docs/map.md.

usage: check_layers.py [ROOT]     exit status 1 and one line a violation, FILE:LINE: what
"""
import os
import re
import sys

SOURCE_FOLDERS = ("lib", "apps", "kernels")
# Each directory with sources below these is a room of its own; elsewhere a room holds its subdirectories.
DIVIDED = ("lib/launch", "lib/runtime")
SOURCE_ENDINGS = (".cpp", ".hpp", ".cu", ".cuh", ".c", ".h")
HEADER_ENDINGS = (".hpp", ".cuh", ".h")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
NAMED = re.compile(r"`([^`]+)`")


class Map:
    def __init__(self, path):
        self.levels = {}  # room -> level
        self.homes = {}  # header prefix -> rooms that may include it
        table = None
        with open(path, encoding="utf-8") as page:
            for line in page:
                if not line.startswith("|"):
                    table = None
                    continue
                cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
                if table is None:
                    table = cells[0]
                elif table == "level" and cells[0].isdigit():
                    self.levels[NAMED.findall(cells[1])[0]] = int(cells[0])
                elif table == "header" and NAMED.match(cells[0]):
                    self.homes[NAMED.findall(cells[0])[0]] = NAMED.findall(cells[1])
        if not self.levels or not self.homes:
            raise SystemExit(f"{path}: the tables of rooms and headers were not found")

    def homes_of(self, header):
        """The rooms that may include `header`, by the longest prefix of the table; None: every room."""
        prefix = max((prefix for prefix in self.homes if header.startswith(prefix)), key=len, default=None)
        return self.homes.get(prefix)

    def room_of(self, path):
        """The room that holds `path` (from the root); the longest name wins. None: it lies in no room."""
        if path.startswith(tuple(top + "/" for top in DIVIDED)):
            folder = os.path.dirname(path)
            return folder if folder in self.levels else None
        rooms = [room for room in self.levels if path.startswith(room + "/")]
        return max(rooms, key=len, default=None)


def source_files(root):
    for top in SOURCE_FOLDERS:
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith(SOURCE_ENDINGS):
                    yield os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")


def resolve(root, file, name):
    """The file of ours that `name` means, from the root; None for a header of somebody else."""
    for candidate in (os.path.join("lib", name), name, os.path.join(os.path.dirname(file), name)):
        if os.path.isfile(os.path.join(root, candidate)):
            return os.path.normpath(candidate).replace(os.sep, "/")
    return None


def check_include(map_, root, file, name):
    """What is wrong with `file` including `name`, or None."""
    room = map_.room_of(file)
    target = resolve(root, file, name)
    spellings = (name, target.removeprefix("lib/") if target else name)
    for homes in filter(None, map(map_.homes_of, spellings)):
        if not any(file.startswith(home + "/") for home in homes):
            return f"'{name}' may be included only in {', '.join(homes)}"
    if name.startswith("nlohmann/") and name != "nlohmann/json_fwd.hpp" and file.endswith(HEADER_ENDINGS):
        return f"'{name}' in a header; include it in sources only"
    if target is None:
        return None
    if not target.startswith(SOURCE_FOLDERS):
        return f"'{name}' lies outside the rooms ({target})"
    other = map_.room_of(target)
    if other is None or other == room:
        return None  # a target outside every room is reported where it lies
    if room == "kernels":
        return f"kernels include nothing of ours, but this includes {other}"
    if map_.levels[other] > map_.levels[room]:
        return f"upward include: {room} (level {map_.levels[room]}) of {other} (level {map_.levels[other]})"
    if map_.levels[other] == map_.levels[room]:
        return f"sideways include: {room} of {other} (both level {map_.levels[room]})"
    return None


def check_file(map_, root, file):
    if map_.room_of(file) is None:
        yield f"{file}:1: lies in no room of docs/map.md"
        return
    with open(os.path.join(root, file), encoding="utf-8") as source:
        for number, line in enumerate(source, 1):
            match = INCLUDE.match(line)
            problem = match and check_include(map_, root, file, match.group(2))
            if problem:
                yield f"{file}:{number}: {problem}"


def main():
    root = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", ".."))
    map_ = Map(os.path.join(root, "docs", "map.md"))
    files = list(source_files(root))
    problems = [problem for file in files for problem in check_file(map_, root, file)]
    rooms = {map_.room_of(file) for file in files}
    problems += [f"docs/map.md: {room} holds no sources" for room in map_.levels if room not in rooms]
    for problem in problems:
        print(problem)
    print(f"{len(files)} files in {len(map_.levels)} rooms: {len(problems)} violations", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
