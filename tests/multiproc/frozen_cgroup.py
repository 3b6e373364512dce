"""Processes in state D that no signal ends, for as long as a test wants: a frozen cgroup of version 1."""
import contextlib
import os
import shutil
import subprocess
import time
import unittest

ROOT = "/sys/fs/cgroup/freezer"


class FrozenCgroup:
    """`with FrozenCgroup() as cgroup:` skips the test where there is none to be had. What was frozen goes on at the end."""

    def __enter__(self):
        self.folder = f"{ROOT}/dsl-test-{os.urandom(6).hex()}"
        try:
            if not os.path.exists(f"{ROOT}/cgroup.procs"):
                raise OSError("no freezer of version 1")
            os.mkdir(self.folder)
        except OSError as error:
            raise unittest.SkipTest(f"no process can be frozen here: {error}") from error
        return self

    def _set(self, state):
        with open(f"{self.folder}/freezer.state", "w", encoding="utf-8") as file:
            file.write(state)

    def freeze(self, pid):
        """This process and what it has started."""
        pids = [pid]
        for parent in pids:
            with open(f"/proc/{parent}/task/{parent}/children", encoding="utf-8") as file:
                pids += map(int, file.read().split())
        for each in pids:
            with open(f"{self.folder}/cgroup.procs", "w", encoding="utf-8") as file:
                file.write(str(each))
        self._set("FROZEN")
        while not self._reads("FROZEN"):
            time.sleep(0.01)

    def _reads(self, state):
        with open(f"{self.folder}/freezer.state", encoding="utf-8") as file:
            return file.read().strip() == state

    def thaw(self):
        self._set("THAWED")

    def __exit__(self, *_):
        self.thaw()
        deadline = time.monotonic() + 20
        while True:
            try:
                return os.rmdir(self.folder)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
