"""A pool of persistent ranks (grid_worker) of one world size. A case that hangs is told with the stacks of all ranks, and
one that breaks the pool costs that pool only: the next case gets a new one."""
import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from typing import NamedTuple

import harness

DEADLINE = 60  # seconds for one case; a usual one takes a fraction of a second


class Ending(NamedTuple):
    code: int  # the exit code that dsworker would have had
    message: str
    seconds: float
    said: str = ""  # what the ranks printed, of a case that "shows" it


class Pool:
    def __init__(self, world):
        self.world, self.process, self.restarts = world, None, 0
        self.errors = tempfile.TemporaryFile()
        self.pending = b""

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            try:
                self.process.wait(10)
                self.process.stdout.close()
            except subprocess.TimeoutExpired:
                self._kill()
        self.process = None
        self.errors.close()

    def run(self, model, config, run_dir, steps, resume="", deadline=DEADLINE, **more):
        """`more`: as grid_rank.hpp has them."""
        if self.process is None:
            self._start()
        case = {"model": model, "config": config, "run_dir": run_dir, "steps": steps, "resume": resume, **more}
        begin = self.errors.seek(0, os.SEEK_END)
        began = time.monotonic()
        try:
            self.process.stdin.write(json.dumps(case).encode() + b"\n")
            self.process.stdin.flush()
            line = self._read_line(began + deadline)
        except BrokenPipeError:
            line = b""
        seconds = time.monotonic() - began
        if line is None:
            threads = "\n".join(threads_of_children(self.process.pid))
            self._print_stacks(begin)
            self._kill()
            return Ending(124, f"no end within {deadline} s\n{threads}{readable(self._said_since(begin))}", seconds)
        if not line:
            self._kill()
            return Ending(70, f"the pool of {self.world} ended during the case{self._said_since(begin)}", seconds)
        result = json.loads(line)
        if result["pool"] != "ready":
            self._kill()
            result["message"] += self._said_since(begin)
        said = self._said_since(begin, limit=None) if more.get("shows") else ""
        return Ending(result["code"], result["message"], seconds, said)

    def _start(self):
        self.process = subprocess.Popen([harness.program("grid_worker"), str(self.world)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.errors, env=harness.environment(),
                                        start_new_session=True)
        self.pending = b""

    def _print_stacks(self, begin):
        self.process.send_signal(signal.SIGQUIT)
        until = time.monotonic() + 3
        while self._said_since(begin).count("--- stack") < self.world and time.monotonic() < until:
            select.select([], [], [], 0.05)

    def _kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
        with contextlib.suppress(BrokenPipeError):  # what nobody has read
            self.process.stdin.close()
        self.process = None
        self.restarts += 1

    def _read_line(self, until):
        """The next line, b"" when the pool has ended, None when time is up."""
        while b"\n" not in self.pending:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return None
            piece = os.read(self.process.stdout.fileno(), 65536)
            if not piece:
                return b""
            self.pending += piece
        line, self.pending = self.pending.split(b"\n", 1)
        return line

    def _said_since(self, begin, limit=6000):
        self.errors.seek(begin)
        text = self.errors.read().decode(errors="replace").strip()
        return "\n" + text[-(limit or len(text)):] if text else ""


def threads_of_children(parent):
    """What every thread of the ranks is in: a main thread's stack does not tell what it waits for."""
    lines = []
    with contextlib.suppress(OSError):
        for child in read_text(f"/proc/{parent}/task/{parent}/children").split():
            lines.append(f"--- threads of process {child}: name, state, number of its system call, where in the kernel")
            for thread in sorted(os.listdir(f"/proc/{child}/task"), key=int):
                task = f"/proc/{child}/task/{thread}"
                state = read_text(f"{task}/stat").rsplit(")", 1)[-1].split()[:1]
                lines.append(" ".join([thread, read_text(f"{task}/comm").strip(), *state,
                                       *read_text(f"{task}/syscall").split()[:1], read_text(f"{task}/wchan")]))
    return lines


def read_text(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def readable(stacks):
    """The frames of ours, with their names as they stand in the source where c++filt is here."""
    lines = [line for line in stacks.splitlines() if "grid_worker" not in line and ".so" not in line or "dslaunch" in line]
    names = "\n".join(line.split("(")[-1].split("+")[0].split(")")[0] if "(" in line else line for line in lines)
    with contextlib.suppress(OSError):
        names = subprocess.run(["c++filt", "-p"], input=names, capture_output=True, text=True).stdout
    return "\n".join(line for line in names.splitlines() if line.strip())
