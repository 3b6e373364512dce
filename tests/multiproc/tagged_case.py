"""What the tests of dslaunch's commands share: a folder for each test, and a tag in the environment of all its processes,
which is how leftovers are found. The program comes from DSLAUNCH_BIN."""
import ctypes
import glob
import os
import signal
import struct
import sys
import tempfile
import time
import unittest
import uuid

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import pace  # noqa: E402

DSLAUNCH = os.path.join(os.environ["DSLAUNCH_BIN"], "dslaunch")
LIMIT_S = 60  # for what should take moments, on a machine that is busy


def refuse_process_descriptors():
    """A preexec_fn: for the program pidfd_open fails with EPERM, as under the seccomp profile of an older Docker."""
    pidfd_open = 434  # the same number on every architecture
    instructions = [(0x20, 0, 0, 0), (0x15, 0, 1, pidfd_open), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in instructions))
    filters = struct.pack("HxxxxxxP", len(instructions), ctypes.addressof(code))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(38, 1, 0, 0, 0) != 0 or prctl(22, 2, filters) != 0:  # no new privileges; a filter
        raise OSError(ctypes.get_errno(), "prctl")


class TaggedTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="dsl-test-")
        self.temp = self.make("tmp")
        self.tag = f"DSL_TEST_TAG={uuid.uuid4()}"
        self.running = []

    def path(self, name):
        return os.path.join(self.folder, name)

    def make(self, name):
        os.mkdir(self.path(name))
        return self.path(name)

    def environment(self, **extra):
        name, value = self.tag.split("=")
        # The same on a host with GPUs: one rank unless a test asks for more.
        return {**os.environ, name: value, "TMPDIR": self.temp, "CUDA_VISIBLE_DEVICES": "",
                "XDG_STATE_HOME": self.path("state"), **extra}

    def end_processes(self, settle_s=0):
        """Ends what the test started; returns which others were still there `settle_s` later, and ends those as well."""
        for process in self.running:
            process.kill()
            process.wait()
            for stream in filter(None, (process.stdout, process.stderr)):
                stream.close()
        deadline = pace.Deadline(settle_s)
        while (leftovers := self.tagged_processes()) and not deadline.passed():
            time.sleep(0.01)
        for pid in leftovers:
            os.kill(pid, signal.SIGKILL)
        return leftovers

    def tagged_processes(self, but=()):
        """pid -> command line of every living process with this test's mark."""
        found = {}
        for entry in glob.glob("/proc/[0-9]*"):
            pid = int(entry[6:])
            try:
                with open(f"{entry}/environ", "rb") as file:
                    environment = file.read().split(b"\0")
                if self.tag.encode() in environment and pid not in but and pid != os.getpid():
                    with open(f"{entry}/cmdline", "rb") as file:
                        found[pid] = file.read().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
        return found

    def wait_until(self, condition, what="the condition", limit=LIMIT_S):
        deadline = pace.Deadline(limit)
        while not condition():
            self.assertFalse(deadline.passed(), f"{what} did not come true in {limit} s")
            time.sleep(0.01)
