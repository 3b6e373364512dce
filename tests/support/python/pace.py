"""How fast this machine is at the moment, in how long it takes to run the smallest job. A time that dslaunch promises holds
on a machine that has nothing else to do; one that is busy may take longer by a number of such jobs, measured beside the
promise and not in advance."""
import contextlib
import os
import signal
import subprocess
import tempfile
import time

# A shell ignores these for what it starts with `&`, and programs would inherit that from us.
for number in (signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)

DSLAUNCH = os.path.join(os.environ.get("DSLAUNCH_BIN", ""), "dslaunch")
JOBS = 20  # how many jobs' time a busy machine may add: a second and a half where nothing else runs


def job_seconds():
    """One rank that does nothing, from the start of dslaunch to its end."""
    with tempfile.TemporaryDirectory(prefix="dsl-pace-") as state:
        environment = {**os.environ, "XDG_STATE_HOME": state, "CUDA_VISIBLE_DEVICES": ""}
        began = time.monotonic()
        subprocess.run([DSLAUNCH, "exec", "--device", "cpu", "--num_gpus", "1", "--", "true"], env=environment,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        return time.monotonic() - began


class Deadline:
    """Passes after the seconds; where they were not enough, after those and the jobs that the machine runs meanwhile."""

    def __init__(self, seconds, jobs=JOBS):
        self.began, self.allowed, self.jobs, self.is_extended = time.monotonic(), seconds, jobs, False

    def passed(self):
        if time.monotonic() - self.began > self.allowed and not self.is_extended:
            self.is_extended = True
            self.allowed += self.jobs * job_seconds()
        return time.monotonic() - self.began > self.allowed


@contextlib.contextmanager
def at_most(seconds, jobs=JOBS):
    """What is inside ends in time: within the seconds, or those and the jobs that the machine could have run meanwhile."""
    before, began = job_seconds(), time.monotonic()
    yield
    taken = time.monotonic() - began
    if taken > seconds:
        unit = max(before, job_seconds())
        assert taken <= seconds + jobs * unit, (f"took {taken:.1f} s, not at most {seconds} s; "
                                                f"a job of one rank takes {unit:.2f} s now")
