"""What cases on several hosts share: dslaunch started on `head`, and the proof that nothing is left on any host."""
import os
import subprocess
import time
import unittest
import uuid

from netns import HOME, pace, wait_until

DSLAUNCH = os.path.join(os.path.realpath(os.environ["DSLAUNCH_BIN"]), "dslaunch")
SETTLE_S = 3  # a closed connection's sshd, a killed process: gone by then
LIMIT_S = 60  # for what should take moments, on a machine that is busy
# The job's record on the launching host is meant to stay, and the folder of the launchers' sockets.
RECORDS = rf"^{HOME}/\.local(/state(/dslaunch(/.*)?)?)?$|^/run/user/0/dslaunch$"


class Outcome:
    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    def __str__(self):
        return f"exit code {self.code} after {self.seconds:.1f} s\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class HostCase(unittest.TestCase):
    cluster = None  # set by parallel_cases
    maxDiff = None
    allowed_files = RECORDS

    def setUp(self):
        self.head = self.cluster.head
        self.tag = f"DSL_TEST_TAG={uuid.uuid4()}"
        self.running = []
        self.folder = self.cluster.path(uuid.uuid4().hex)
        os.mkdir(self.folder)

    def tearDown(self):
        for process in self.running:
            process.kill()
            process.communicate()
        try:
            self.expect_nothing_left()
        finally:
            self.cluster.restore()

    def expect_nothing_left(self, limit=SETTLE_S):
        deadline = pace.Deadline(limit)
        while (left := self.cluster.leftovers(self.allowed_files)) and not deadline.passed():
            time.sleep(0.02)
        self.assertEqual(left, {}, "this is left behind")

    # --- files and processes -------------------------------------------------------------------------------------

    def path(self, name):
        """In a folder that all hosts see."""
        return os.path.join(self.folder, name)

    def write(self, name, text, mode=0o644):
        return self.cluster.write(self.path(name), text, mode)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def hostfile(self, text="node1 slots=1\nnode2 slots=1\nnode3 slots=1\n"):
        return self.write("hosts", text)

    def start(self, *arguments, host=None, program=DSLAUNCH, **env):
        host = host or self.head
        name, value = self.tag.split("=")
        process = host.popen([program, *arguments], env=host.environment(**{name: value}, **env), cwd=self.folder,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             start_new_session=True)
        process.began = time.monotonic()
        self.running.append(process)
        return process

    def finish(self, process, limit=LIMIT_S):
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired as late:
            process.kill()
            out, err = process.communicate()
            self.running.remove(process)
            raise AssertionError(f"still running after {limit} s\n--- stdout\n{out.decode(errors='replace')}\n"
                                 f"--- stderr\n{err.decode(errors='replace')}\n--- {self.cluster.processes()}") from late
        self.running.remove(process)
        return Outcome(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"),
                       time.monotonic() - process.began)

    def launch(self, *arguments, limit=LIMIT_S, **env):
        return self.finish(self.start(*arguments, **env), limit)

    def start_exec(self, script, *options, hosts=None, **env):
        """One rank on each of three hosts runs the shell script."""
        return self.start("exec", "--device", "cpu", "--hostfile", self.hostfile(*([hosts] if hosts else [])), *options, "--",
                          "sh", "-c", script, **env)

    def exec(self, script, *options, hosts=None, limit=LIMIT_S, **env):
        return self.finish(self.start_exec(script, *options, hosts=hosts, **env), limit)

    def remove_sockets(self, host=None):
        """What a launcher that was killed had no time for, the next command about jobs does; the check for leftovers follows."""
        outcome = self.finish(self.start("jobs", host=host))
        self.expect(outcome, 0)

    def lines(self, process, count):
        """The next lines of standard output."""
        found = []
        for _ in range(count):
            line = process.stdout.readline().decode()
            if not line:
                raise AssertionError(f"the output ended after {found}: {self.finish(process)}")
            found.append(line)
        return found

    def wait_until(self, condition, limit=LIMIT_S, what="the condition"):
        """`what` names it; a function is asked when it did not come true."""
        return wait_until(condition, limit, what)

    # --- what an outcome must say --------------------------------------------------------------------------------

    def expect(self, outcome, code, *words):
        self.assertEqual(outcome.code, code, str(outcome))
        for word in words:
            self.assertIn(word, outcome.err, str(outcome))
