"""A memory cgroup with a limit, of version 1 or 2, for one case."""
import contextlib
import errno
import glob
import os
import time

PREFIX = "dsl-multihost-"


def _root():
    """Folder of the memory controller; None where there is none that we could use."""
    for folder in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup"):
        if os.path.exists(f"{folder}/cgroup.procs") and (folder.endswith("memory") or _v2_has_memory(folder)):
            return folder
    return None


def _v2_has_memory(folder):
    try:
        with open(f"{folder}/cgroup.subtree_control", encoding="utf-8") as file:
            return "memory" in file.read().split()
    except OSError:
        return False


class MemoryCgroup:
    """`with MemoryCgroup(bytes) as cgroup:` look at `possible` first. Processes leave it before it is removed."""

    def __init__(self, limit_bytes):
        self.limit_bytes = limit_bytes
        self.root = _root()
        self.folder, self.possible, self.reason = None, False, "there is no memory controller"

    def __enter__(self):
        if self.root is None:
            return self
        self._remove_forgotten()
        folder = os.path.join(self.root, f"{PREFIX}{os.urandom(6).hex()}")
        try:
            os.mkdir(folder)
            self.folder = folder
            version_1 = os.path.exists(f"{folder}/memory.limit_in_bytes")
            self._write("memory.limit_in_bytes" if version_1 else "memory.max", str(self.limit_bytes))
            with contextlib.suppress(OSError):  # no swap is no reason not to test
                self._write("memory.memsw.limit_in_bytes" if version_1 else "memory.swap.max",
                            str(self.limit_bytes) if version_1 else "0")
            self.possible = True
        except OSError as error:
            self.reason = f"{error}"
        return self

    def _remove_forgotten(self):
        """What a killed test left: a cgroup has no owner that could take it along. rmdir refuses those in use."""
        for folder in glob.glob(f"{self.root}/{PREFIX}*"):
            with contextlib.suppress(OSError):
                if time.time() - os.stat(folder).st_ctime > 600:
                    os.rmdir(folder)

    def _write(self, name, text):
        with open(f"{self.folder}/{name}", "w", encoding="utf-8") as file:
            file.write(text)

    def add(self, pid):
        """The process and what it starts from now on."""
        self._write("cgroup.procs", str(pid))

    def release(self):
        with open(f"{self.folder}/cgroup.procs", encoding="utf-8") as file:
            pids = file.read().split()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError), open(f"{self.root}/cgroup.procs", "w", encoding="utf-8") as file:
                file.write(pid)

    def __exit__(self, *_):
        if self.folder is None:
            return
        self.release()
        with contextlib.suppress(FileNotFoundError):
            try:
                os.rmdir(self.folder)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
