#!/usr/bin/env python3
"""Checks the pages: every relative link leads to a file, and so does every path below lib/, apps/ or kernels/;
docs/exit_codes.md lists what exit_code.hpp defines, and docs/control_channel.md the messages of message.hpp. Headers
that comments of lib/ name, and sources that those of lib/runtime name, exist.

usage: check_pages.py [ROOT]     exit status 1 and one line a problem, FILE:LINE: what
"""
import os
import re
import sys

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
CONSTANT = re.compile(r"^\s*k\w+ = (\d+),")
CODE_ROW = re.compile(r"^\| (\d+)")
MESSAGE = re.compile(r"^struct (\w+) \{(?:(?!^\};).)*?kType = (\d+);", re.MULTILINE | re.DOTALL)
MESSAGE_ROW = re.compile(r"^\| (\d+) \| (\w+) \|", re.MULTILINE)
PATH = re.compile(r"`((?:lib|apps|kernels)/[\w./-]*\w)[/`]")
COMMENT = re.compile(r"//(.*)")
NAMED_HEADER, NAMED_FILE = re.compile(r"[\w./-]*\w\.(?:hpp|cuh)\b"), re.compile(r"[\w./-]*\w\.(?:[ch]pp|cuh?)\b")
SKIPPED = {"build", ".git", "demo-run", "runs", "data", "__pycache__"}


def pages(root):
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if name not in SKIPPED and not name.startswith("build")]
        for name in sorted(names):
            if name.endswith(".md"):
                yield os.path.join(folder, name)


def broken_links(root):
    for page in pages(root):
        with open(page, encoding="utf-8") as text:
            for number, line in enumerate(text, 1):
                for target in LINK.findall(line):
                    if "://" in target or target.startswith("mailto:"):
                        continue
                    if not os.path.exists(os.path.join(os.path.dirname(page), target)):
                        yield f"{os.path.relpath(page, root)}:{number}: no file {target}"


def broken_paths(root):
    for page in pages(root):
        shown = os.path.relpath(page, root)
        if not shown.startswith(("docs" + os.sep, "README")) or "results" in shown:
            continue  # results describe the tree of their day
        with open(page, encoding="utf-8") as text:
            for number, line in enumerate(text, 1):
                for path in PATH.findall(line):
                    if not os.path.exists(os.path.join(root, path)):
                        yield f"{shown}:{number}: no file {path}"


def names_in_comments(root):
    sources = [os.path.join(folder, name) for top in ("lib", "kernels", "tests", "apps")
               for folder, _, names in os.walk(os.path.join(root, top)) for name in names
               if name.endswith((".cpp", ".hpp", ".cu", ".cuh"))]
    ends = set()
    for source in sources:
        parts = os.path.relpath(source, root).split(os.sep)
        ends.update("/".join(parts[i:]) for i in range(len(parts)))
    for source in sorted(sources):
        shown = os.path.relpath(source, root)
        if not shown.startswith("lib" + os.sep):
            continue
        pattern = NAMED_FILE if shown.startswith(os.path.join("lib", "runtime")) else NAMED_HEADER
        with open(source, encoding="utf-8") as text:
            for number, line in enumerate(text, 1):
                comment = COMMENT.search(line)
                for name in pattern.findall(comment[1]) if comment else ():
                    if name not in ends:
                        yield f"{shown}:{number}: a comment names {name}, which does not exist"


def numbers(path, pattern):
    with open(path, encoding="utf-8") as text:
        return {int(match.group(1)) for match in map(pattern.match, text) if match}


def exit_codes(root):
    page = numbers(os.path.join(root, "docs", "exit_codes.md"), CODE_ROW)
    code = numbers(os.path.join(root, "lib", "base", "exit_code.hpp"), CONSTANT)
    for number in sorted(page ^ code):
        where = "docs/exit_codes.md" if number in code else "lib/base/exit_code.hpp"
        yield f"{where}:1: exit code {number} is missing"


def control_messages(root):
    with open(os.path.join(root, "lib", "launch", "channel", "message.hpp"), encoding="utf-8") as text:
        code = {(int(number), name) for name, number in MESSAGE.findall(text.read())}
    with open(os.path.join(root, "docs", "control_channel.md"), encoding="utf-8") as text:
        page = {(int(number), name) for number, name in MESSAGE_ROW.findall(text.read())}
    for number, name in sorted(page ^ code):
        where = "docs/control_channel.md" if (number, name) in code else "lib/launch/channel/message.hpp"
        yield f"{where}:1: message {number}, {name}, is missing"


def main():
    root = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", ".."))
    problems = [problem for check in (broken_links, broken_paths, names_in_comments, exit_codes, control_messages)
                for problem in check(root)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
