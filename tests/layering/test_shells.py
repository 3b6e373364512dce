#!/usr/bin/env python3
"""Completion in the shells of this machine, typed on a terminal, and manual pages through groff.

usage: test_shells.py BUILD_FOLDER [CLASS]...
"""
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = os.path.abspath(sys.argv.pop(1))
PROGRAM = os.path.join(BUILD, "bin/dslaunch")
SECONDS = 30  # for what takes milliseconds, on a busy machine
ESCAPES = re.compile(rb"\x1b(\[[0-9;?=>]*[ -/]*[@-~]|[\]P][^\x07\x1b]*(\x07|\x1b\\)|[()][A-Z0-9]|[=>])")


class Terminal:
    """A shell on a terminal of its own, in an empty directory, with dslaunch in PATH."""

    def __init__(self, folder, *command):
        environment = {"HOME": folder, "PATH": f"{BUILD}/bin:{os.environ['PATH']}", "TERM": "xterm", "LANG": "C.UTF-8",
                       "PS1": "> "}
        pid, self.fd = pty.fork()
        if pid == 0:
            os.chdir(folder)
            os.execvpe(command[0], list(command), environment)
        self.pid, self.seen = pid, b""

    def close(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)

    def type(self, text):
        self.seen = b""
        os.write(self.fd, text.encode())

    def wait_for(self, text):
        """Until the screen shows it."""
        deadline = time.monotonic() + SECONDS
        while text.encode() not in ESCAPES.sub(b"", self.seen):
            if not select.select([self.fd], [], [], max(0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"{text!r} is not in {ESCAPES.sub(b'', self.seen)!r}")
            read = os.read(self.fd, 65536)
            if b"\x1b[c" in read or b"\x1b[0c" in read:  # fish asks what terminal this is
                os.write(self.fd, b"\x1b[?6c")
            self.seen += read


class Completion(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="dslaunch-shells-")
        self.addCleanup(self.folder.cleanup)
        with open(os.path.join(self.folder.name, "a_model.pt"), "w", encoding="utf-8"):
            pass

    def complete_on(self, *command):
        terminal = Terminal(self.folder.name, *command)
        self.addCleanup(terminal.close)
        terminal.type("echo rea''dy\n")
        terminal.wait_for("ready")
        # Shells print what they add to a word.
        terminal.type("dslaunch consol\t")
        terminal.wait_for("idate ")
        # A key without a blank behind it, then one of its values; bash and zsh split words at '=' in ways of their own.
        terminal.type("\x15dslaunch a_model.pt --set bf16.en\t")
        terminal.wait_for("abled=")
        terminal.type("t\t")
        terminal.wait_for("rue")
        terminal.type("\x15dslaunch --nvme\t")
        terminal.wait_for("_path ")
        # Files where a model is expected.
        terminal.type("\x15dslaunch --num_gpus 2 a_mo\t")
        terminal.wait_for("del.pt")

    def script(self, shell):
        path = os.path.join(self.folder.name, f"completion.{shell}")
        with open(path, "w", encoding="utf-8") as file:
            subprocess.run([PROGRAM, "completion", shell], stdout=file, check=True)
        return path

    def test_bash(self):
        start = os.path.join(self.folder.name, "start")
        with open(start, "w", encoding="utf-8") as file:
            file.write(f"source {self.script('bash')}\nbind 'set enable-bracketed-paste off'\n")
        self.complete_on("bash", "--noprofile", "--rcfile", start, "-i")

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh(self):
        with open(os.path.join(self.folder.name, ".zshrc"), "w", encoding="utf-8") as file:
            file.write(f"autoload -Uz compinit && compinit -u -D\nsource {self.script('zsh')}\n")
        self.complete_on("zsh", "-d", "-i")

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh_from_a_directory_of_functions(self):
        os.rename(self.script("zsh"), os.path.join(self.folder.name, "_dslaunch"))
        with open(os.path.join(self.folder.name, ".zshrc"), "w", encoding="utf-8") as file:
            file.write(f"fpath=({self.folder.name} $fpath)\nautoload -Uz compinit && compinit -u -D\n")
        self.complete_on("zsh", "-d", "-i")

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed")
    def test_fish(self):
        completions = os.path.join(self.folder.name, ".config/fish/completions")
        os.makedirs(completions)
        os.rename(self.script("fish"), os.path.join(completions, "dslaunch.fish"))
        self.complete_on("fish", "-i")


@unittest.skipUnless(shutil.which("groff"), "groff is not installed")
class ManualPages(unittest.TestCase):
    def test_groff_reads_them_without_a_warning(self):
        for command in ("", "logs", "plan", "infer"):
            page = subprocess.run([PROGRAM, "help", "--man", *([command] if command else [])], stdout=subprocess.PIPE,
                                  check=True).stdout
            done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-P-cbou"], input=page, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, check=True)
            self.assertEqual(done.stderr.decode(), "", command)
            self.assertIn("SYNOPSIS", done.stdout.decode())


if __name__ == "__main__":
    unittest.main()
