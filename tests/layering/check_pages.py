#!/usr/bin/env python3
"""Checks the pages: every relative link leads to a file, docs/exit_codes.md lists what exit_code.hpp defines, and
docs/control_channel.md the messages of message.hpp.

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
    problems = list(broken_links(root)) + list(exit_codes(root)) + list(control_messages(root))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
