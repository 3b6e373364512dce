#!/usr/bin/env python3
"""dslaunch doctor on real processes: who is stale, what --kill ends, and what nobody may touch.

The table of docs/doctor.md stands once, as Table.ROWS and Container.ROWS, each row a real process.

As root everything happens in namespaces of its own (processes, mounts, shared memory), where the pid 1 is a shell: a
doctor of a test can then never meet a stranger, and what it removes lies on file systems of the test. As an ordinary user
only the cases run that name their ports."""
import contextlib
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

DSLAUNCH = os.path.join(os.environ["DSLAUNCH_BIN"], "dslaunch")
LIMIT_S = 60
ISOLATED = os.environ.get("DSL_DOCTOR_ISOLATED") == "1"
NOBODY = 65534

# Says its pid on the pipe that it got as descriptor 1, then holds the listener (descriptor 3) until it is ended.
HOLDER = "import os, sys, time\nos.write(1, b'%d\\n' % os.getpid())\nos.close(1)\ntime.sleep(1000)\n"
# Under another user, whom the test's Python need not be open to.
STRANGER = ("import os\nos.setgroups([])\nos.setresgid(65534, 65534, 65534)\nos.setresuid(65534, 65534, 65534)\n" + HOLDER)
DEAF = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + HOLDER


# Listens, says "PORT PID..." in the file named first, and waits. "--loader": a child has inherited the listener.
# "--ranks": as torchrun does it: handles SIGHUP itself, and its children hold nothing of it.
HOLD = """import os, signal, socket, subprocess, sys, time
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
pids = [os.getpid()]
if "--loader" in sys.argv:
    pids.append(os.fork())
    if pids[-1] == 0: time.sleep(1000)
if "--ranks" in sys.argv:
    signal.signal(signal.SIGHUP, lambda *_: None)
    pids.append(subprocess.Popen(["sleep", "1000"]).pid)
with open(sys.argv[1] + ".new", "w") as file: file.write(" ".join(map(str, [listener.getsockname()[1], *pids])))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(1000)
"""

CHECKOUT = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))


def needed_below_tmp():
    """What stays where it is although the rest of /tmp is hidden: the checkout, this Python, and the cache with LibTorch."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    needed = {os.path.realpath(path) for path in (CHECKOUT, sys.prefix, sys.base_prefix, os.path.join(cache, "dslaunch"))}
    return sorted(path for path in needed if path.startswith("/tmp/") and os.path.isdir(path))


def isolate():
    """Starts this file again in namespaces of its own; pid 1 there is a shell, which collects orphans."""
    script = ("mount -t tmpfs none /dev/shm && mkdir \"$0/tmp\" && "
              "printf '%s' \"$DSL_NEEDED\" | while read -r each; do "
              "mkdir -p \"$0$each\" && mount --bind \"$each\" \"$0$each\" || exit 1; done && "
              "mount --rbind \"$0/tmp\" /tmp && XDG_STATE_HOME=/tmp/state DSL_DOCTOR_ISOLATED=1 \"$@\" & wait $!")
    folder = tempfile.mkdtemp(prefix="dsl-doctor-")
    try:
        return subprocess.call(["unshare", "--mount", "--pid", "--ipc", "--fork", "--mount-proc", "sh", "-c", script,
                                folder, sys.executable, *sys.argv], env={**os.environ, "DSL_NEEDED": "".join(f"{path}\n" for path in needed_below_tmp())})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def can_isolate():
    return os.getuid() == 0 and subprocess.call(
        ["unshare", "--mount", "--pid", "--ipc", "--fork", "--mount-proc", "true"], stderr=subprocess.DEVNULL) == 0


def state_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rsplit(")", 1)[1].split()[0]


def start_of(pid):
    """Time of start in ticks since boot; None: gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


class DoctorTest(unittest.TestCase):
    def setUp(self):
        self.children = []
        self.pids = []

    def tearDown(self):
        for pid, start in self.pids:
            if start_of(pid) == start:
                with contextlib.suppress(ProcessLookupError):  # its own launcher may end it now
                    os.kill(pid, signal.SIGKILL)
        for child in self.children:
            child.wait()

    def doctor(self, *arguments, env=None):
        outcome = subprocess.run([DSLAUNCH, "doctor", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, timeout=LIMIT_S, env=env, check=False, text=True)
        self.trace = f"{outcome.returncode}\n{outcome.stdout}\n{outcome.stderr}"
        return outcome

    def report(self, *arguments):
        outcome = self.doctor("--json", *arguments)
        document = json.loads(outcome.stdout)
        self.assertEqual(document["exit_code"], outcome.returncode)
        return document["hosts"][0]

    def finding(self, report, pid):
        found = [finding for finding in report["findings"] if finding.get("pid") == pid]
        self.assertEqual(len(found), 1, report)
        return found[0]

    def listener(self, address="127.0.0.1"):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.socket(family)
        listener.bind((address, 0))
        listener.listen()
        self.addCleanup(listener.close)
        return listener

    def hold(self, listener, program=HOLDER, orphan=False, env=None):
        """Starts a process that holds the listener; an orphan's parent, the leader of its session, is gone. Its pid."""
        read, write = os.pipe()

        def keep():
            os.dup2(listener.fileno(), 3)
            os.set_inheritable(3, True)

        command = [sys.executable, "-c", program]
        if orphan:
            middle = "import subprocess, sys\nsubprocess.Popen(sys.argv[1:], close_fds=False)\n"
            command = [sys.executable, "-c", middle, *command]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=write, stderr=subprocess.DEVNULL,
                                 preexec_fn=keep, close_fds=False, start_new_session=True,
                                 env={**os.environ, **(env or {})})
        os.close(write)
        with os.fdopen(read) as said:
            pid = int(said.readline())
        if orphan:
            child.wait()
        else:
            self.children.append(child)
        self.pids.append((pid, start_of(pid)))
        return pid

    def let_go(self, listener):
        port = listener.getsockname()[1]
        listener.close()
        return str(port)

    def alive(self, pid):
        return start_of(pid) is not None

    def wait_until(self, condition):
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def dead_agent(self):
        """The mark of an agent that is gone."""
        child = subprocess.Popen(["sleep", "1000"])
        mark = f"{child.pid}:{start_of(child.pid)}:{os.stat('/proc/self/ns/pid').st_ino}"
        child.kill()
        child.wait()
        return mark

    def stop_agent_of(self, supervisor):
        """So that it cannot end its ranks when that is killed."""
        def child_of(pid):
            return int(subprocess.run(["pgrep", "-P", str(pid)], stdout=subprocess.PIPE, text=True, check=True).stdout)
        agent = child_of(child_of(supervisor.pid))  # below its guard
        os.kill(agent, signal.SIGSTOP)
        self.wait_until(lambda: state_of(agent) == "T")
        return agent

    def job(self, agent):
        return {"DSLAUNCH_JOB_ID": "20260131-174502-4711", "DSLAUNCH_AGENT": agent}

    def living_agent(self):
        return f"{os.getpid()}:{start_of(os.getpid())}:{os.stat('/proc/self/ns/pid').st_ino}"


class Row:
    """A process, how it comes to be where it is, and what doctor says of it."""

    def __init__(self, who, start, verdict, evidence, needs=lambda: True):
        self.who, self.start, self.verdict, self.evidence, self.needs = who, start, verdict, evidence, needs


def can_make_services():
    return ISOLATED and os.access("/sys/fs/cgroup/systemd", os.W_OK)


class TableTest(DoctorTest):
    """HOLD in a row's command stands for a program that listens."""

    def setUp(self):
        super().setUp()
        self.folder = tempfile.mkdtemp(prefix="dsl-table-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.program = os.path.join(self.folder, "hold.py")
        with open(self.program, "w", encoding="utf-8") as file:
            file.write(HOLD)

    def path(self, name):
        return os.path.join(self.folder, name)

    def command(self, number, start):
        return start.replace("HOLD", f"{sys.executable} {self.program} {self.path(str(number))}")

    def wait_for_row(self, number):
        """Its port, and the pids of the process and its children."""
        self.wait_until(lambda: os.path.exists(self.path(str(number))))
        with open(self.path(str(number)), encoding="utf-8") as file:
            port, *pids = file.read().split()
        return port, [int(pid) for pid in pids]


class Table(TableTest):
    ROWS = [
        Row("nohup in a shell that has exited", "nohup HOLD >/dev/null 2>&1 &", "unknown",
            "but it ignores SIGHUP, as nohup makes it"),
        Row("nohup torchrun in a shell that has exited, with its ranks", "nohup HOLD --ranks >/dev/null 2>&1 &",
            "unknown", "but it has running children: pid "),
        Row("setsid", "setsid HOLD &", "unknown", "may be its real parent" if ISOLATED else ""),
        Row("disown, with job control", "set -m; HOLD & disown", "unknown", "but it leads its process group"),
        Row("a background job of a script whose shell is gone", "HOLD &", "stale",
            "has exited, and so have the leaders of its process group and session"),
        Row("the same, with a data loader that has the socket too", "HOLD --loader &", "stale", "and so have the leaders"),
        Row("a background job of a script that lives", "HOLD & wait", "in_use", "its parent is alive: pid "),
        Row("a data loader of a program that lives", "HOLD --loader; true", "in_use", "its parent is alive: pid "),
        Row("torchrun's leftover, in a session of its own", "TORCHELASTIC_RUN_ID=none setsid HOLD &", "stale",
            "a rank of a launcher: TORCHELASTIC_RUN_ID is in its environment"),
        Row("DeepSpeed's leftover, under nohup", "CROSS_RANK=0 nohup HOLD --local_rank=0 >/dev/null 2>&1 &", "stale",
            "a rank of a launcher: CROSS_RANK is in its environment"),
        Row("--local_rank alone, where pid 1 is a shell", "nohup HOLD --local_rank=0 >/dev/null 2>&1 &", "unknown",
            "but it ignores SIGHUP", lambda: ISOLATED),
        Row("hand-exported RANK, LOCAL_RANK and WORLD_SIZE", "RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 nohup HOLD >/dev/null 2>&1 &",
            "unknown", "but it ignores SIGHUP"),
        Row("a rank whose launcher lives", "TORCHELASTIC_RUN_ID=none setsid HOLD & wait", "in_use",
            "its parent is alive: pid "),
        Row("another user's", f"setpriv --reuid {NOBODY} --clear-groups HOLD &", "foreign", "it belongs to another user",
            lambda: ISOLATED),
        Row("a systemd service", "echo $$ >$SERVICE/cgroup.procs; HOLD &", "in_use",
            "it is part of the service dsl-table-", can_make_services),
        Row("a rank of a live job of ours", f"exec {DSLAUNCH} exec --device cpu -- HOLD", "in_use",
            "is running: its supervisor, pid "),
        Row("a rank of a lost job of ours whose agent is stopped", f"exec {DSLAUNCH} exec --device cpu -- HOLD", "stale",
            "the supervisor of its job "),
        Row("what a lost job of ours has left", "DSLAUNCH_JOB_ID=20260131-174502-4711 DSLAUNCH_AGENT=$DEAD setsid HOLD &",
            "stale", "the agent of its job 20260131-174502-4711 has exited"),
    ]

    def start(self, number, row):
        shell = subprocess.Popen(["bash", "-c", self.command(number, row.start)], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                                 env={**os.environ, "DEAD": self.dead_agent(), "SERVICE": self.service})
        self.children.append(shell)
        self.pids.append((shell.pid, start_of(shell.pid)))
        return shell

    def make_service(self):
        self.service = f"/sys/fs/cgroup/systemd/{os.path.basename(self.folder)}.service"
        if can_make_services():
            os.mkdir(self.service)
            self.addCleanup(self.remove_service)

    def remove_service(self):
        """Its processes have been killed, but may still be ending."""
        def members():
            with open(f"{self.service}/cgroup.procs", encoding="utf-8") as file:
                return file.read()
        self.wait_until(lambda: not members())
        os.rmdir(self.service)

    def test_verdict_and_evidence_of_each_row(self):
        if ISOLATED:
            os.chmod(self.folder, 0o777)  # for another user's row
        self.make_service()
        rows = {number: row for number, row in enumerate(self.ROWS) if row.needs()}
        shells = {number: self.start(number, row) for number, row in rows.items()}
        held = {number: self.wait_for_row(number) for number in rows}
        for _, pids in held.values():
            self.pids += [(pid, start_of(pid)) for pid in pids]
        for number, row in rows.items():
            if "lost job of ours whose agent" in row.who:
                agent = self.stop_agent_of(shells[number])
                self.pids.append((agent, start_of(agent)))
                shells[number].kill()
                shells[number].wait()
            elif row.start.endswith("&") or row.start.endswith("disown"):
                shells[number].wait()

        ports = [held[number][0] for number in rows]
        report = self.report("--port", *ports)
        text = self.doctor("--port", *ports).stdout
        self.doctor("--port", *ports, "--kill", "--yes")
        for number, row in rows.items():
            with self.subTest(row.who):
                pid = held[number][1][-1] if "data loader of" in row.who else held[number][1][0]
                found = self.finding(report, pid)
                self.assertEqual(found["verdict"], row.verdict, found)
                self.assertIn(row.evidence, found["reason"])
                self.assertRegex(text, f"{row.verdict.replace('_', ' ')} +pid {pid} .*\n +{re.escape(found['reason'])}\n")
                holders = [each["pid"] for each in report["findings"] if each["ports"] == [int(held[number][0])]]
                self.assertEqual([self.alive(each) for each in holders], [row.verdict != "stale"] * len(holders))
                if "data loader that" in row.who:
                    self.assertEqual(sorted(holders), sorted(held[number][1]))
                    self.assertIn("its parent is stale: pid ", self.finding(report, held[number][1][1])["reason"])


@unittest.skipUnless(ISOLATED, "needs root for containers")
class Container(TableTest):
    """Pid 1 is not the machine's, and may have started what is below it. Each pid 1 is a namespace of processes."""
    BASH, TINI, TORCHRUN = "bash", "tini", "torchrun"
    ROWS = [
        (BASH, Row("a server of the start script", "HOLD &", "in_use", "its parent is alive: pid 1 (bash")),
        (BASH, Row("the start script gave --local_rank", "HOLD --local_rank=0 &", "in_use", "its parent is alive: pid 1 (bash")),
        (BASH, Row("a child that has called setsid itself", "setsid HOLD &", "unknown", "pid 1 (bash")),
        (BASH, Row("DeepSpeed's leftover", "sh -c 'CROSS_RANK=0 HOLD --local_rank=0 & exit'", "stale",
                   "CROSS_RANK is in its environment")),
        (BASH, Row("torchrun's leftover", "sh -c 'TORCHELASTIC_RUN_ID=none setsid HOLD & exit'", "stale",
                   "TORCHELASTIC_RUN_ID is in its environment")),
        (BASH, Row("a script's, whose shell is gone", "setsid sh -c 'HOLD & exit'", "stale", "and so have the leaders")),
        (BASH, Row("nohup torchrun, with its ranks", "setsid sh -c 'nohup HOLD --ranks >/dev/null 2>&1 & exit'", "unknown",
                   "it has running children: pid ")),
        (TINI, Row("a leftover with --local_rank", "sh -c 'setsid HOLD --local_rank=0 & exit'", "stale",
                   "--local_rank is among its arguments")),
        (TORCHRUN, Row("its rank", "TORCHELASTIC_RUN_ID=none setsid HOLD &", "in_use", "its parent is alive: pid 1 (torchrun")),
        (TORCHRUN, Row("a data loader whose rank is gone", "TORCHELASTIC_RUN_ID=none setsid sh -c 'HOLD & exit'", "stale",
                       "TORCHELASTIC_RUN_ID is in its environment")),
    ]

    def reports_in(self, init, rows):
        """What doctor says there before and after it has ended what is stale."""
        starts = "\n".join(self.command(number, row.start) for number, row in rows.items())
        files = " ".join(self.path(str(number)) for number in rows)
        script = (f"{starts}\nfor file in {files}; do until [ -e $file ]; do sleep 0.01; done; done\n"
                  f"ports=$(cut -d' ' -f1 {files})\n{DSLAUNCH} doctor --json --port $ports\n"
                  f"{DSLAUNCH} doctor --json --port $ports --kill --yes\ntrue\n")
        # bash in whatever name: the first of its words.
        outcome = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c",
                                  "exec -a \"$0\" bash -c \"$1\"", init, script],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                 timeout=LIMIT_S, text=True, check=True)
        decoder = json.JSONDecoder()
        first, end = decoder.raw_decode(outcome.stdout)
        second, _ = decoder.raw_decode(outcome.stdout[end:].lstrip())
        return first["hosts"][0], second["hosts"][0]

    def test_verdict_and_evidence_of_each_row(self):
        for init in (self.BASH, self.TINI, self.TORCHRUN):
            rows = {number: row for number, (pid1, row) in enumerate(self.ROWS) if pid1 == init}
            before, after = self.reports_in(init, rows)
            for number, row in rows.items():
                with self.subTest(f"{init} as pid 1: {row.who}"):
                    port = int(self.wait_for_row(number)[0])
                    found, = [each for each in before["findings"] if each["ports"] == [port]]
                    self.assertEqual(found["verdict"], row.verdict, found)
                    self.assertIn(row.evidence, found["reason"])
                    held = {each["port"]: each["held"] for each in after["ports"]}[port]
                    self.assertEqual(held, row.verdict != "stale")


def place_of(pid):
    with open(f"/proc/{pid}/wchan", encoding="utf-8") as file:
        return file.read()


def can_freeze():
    return os.access("/sys/fs/cgroup/freezer", os.W_OK)


class Ports(DoctorTest):
    def test_a_free_port(self):
        port = self.let_go(self.listener())
        outcome = self.doctor("--port", port)
        self.assertEqual(outcome.returncode, 0, self.trace)
        self.assertIn(f"port {port} is free", outcome.stdout)

    def test_an_orphan_of_a_dead_job_is_ended(self):
        for address in ("127.0.0.1", "::1"):
            listener = self.listener(address)
            pid = self.hold(listener, orphan=True, env=self.job(self.dead_agent()))
            port = self.let_go(listener)
            found = self.finding(self.report("--port", port), pid)
            self.assertEqual((found["kind"], found["verdict"]), ("port_holder", "stale"))
            self.assertEqual(found["job_id"], "20260131-174502-4711")
            outcome = self.doctor("--port", port, "--kill", "--yes")
            self.assertEqual(outcome.returncode, 0, self.trace)
            self.assertIn(f"ended: pid {pid}", outcome.stdout)
            self.assertIn(f"port {port} is free", outcome.stdout)
            self.assertFalse(self.alive(pid))

    def test_a_worker_that_inherited_the_socket_ends_with_its_parent(self):
        listener = self.listener()
        program = ("import os, sys, time\nif os.fork() == 0: os.close(1); time.sleep(1000)\n" + HOLDER)
        pid = self.hold(listener, program, orphan=True)
        port = self.let_go(listener)
        report = self.report("--port", port)
        holders = [finding for finding in report["findings"] if finding["kind"] == "port_holder"]
        self.assertEqual([holder["verdict"] for holder in holders], ["stale", "stale"], report)
        self.pids += [(holder["pid"], start_of(holder["pid"])) for holder in holders]
        self.assertEqual(self.doctor("--port", port, "--kill", "--yes").returncode, 0, self.trace)
        self.assertFalse(any(self.alive(holder["pid"]) for holder in holders))

    def test_orphaned_data_loaders_are_ended(self):
        listener = self.listener()
        program = "import os, time\nif os.fork(): os._exit(0)\n" + HOLDER
        pid = self.hold(listener, program, orphan=True)
        port = self.let_go(listener)
        self.assertEqual(self.finding(self.report("--port", port), pid)["verdict"], "stale")

    def test_a_process_that_ignores_sigterm_is_killed(self):
        listener = self.listener()
        pid = self.hold(listener, DEAF, orphan=True)
        port = self.let_go(listener)
        outcome = self.doctor("--port", port, "--kill", "--yes", "--grace", "100ms")
        self.assertEqual(outcome.returncode, 0, self.trace)
        self.assertIn(f"killed: pid {pid}", outcome.stdout)

    def test_a_process_with_a_live_parent_is_ended_only_with_force(self):
        listener = self.listener()
        pid = self.hold(listener)
        port = self.let_go(listener)
        outcome = self.doctor("--port", port, "--kill", "--yes")
        self.assertEqual(outcome.returncode, 69, self.trace)
        self.assertIn(f"its parent is alive: pid {os.getpid()}", outcome.stdout)
        self.assertTrue(self.alive(pid))
        self.assertEqual(self.doctor("--port", port, "--kill", "--yes", "--force").returncode, 0, self.trace)
        self.assertFalse(self.alive(pid))

    def test_a_running_job_is_ended_only_with_force(self):
        listener = self.listener()
        pid = self.hold(listener, orphan=True, env=self.job(self.living_agent()))
        port = self.let_go(listener)
        self.assertEqual(self.doctor("--port", port, "--kill", "--yes").returncode, 69, self.trace)
        self.assertTrue(self.alive(pid))
        self.assertIn("is running", self.doctor("--port", port).stdout)
        self.assertEqual(self.doctor("--port", port, "--kill", "--yes", "--force").returncode, 0, self.trace)

    def test_ancestors_of_the_command_are_never_ended(self):
        listener = self.listener()
        port = str(listener.getsockname()[1])
        report = self.report("--port", port, "--kill", "--yes", "--force")
        self.assertTrue(self.finding(report, os.getpid())["spared"])

    def test_only_the_holders_of_the_named_port_are_ended(self):
        first, second = self.listener(), self.listener()
        one, other = self.hold(first, orphan=True), self.hold(second, orphan=True)
        port = self.let_go(first)
        self.let_go(second)
        self.assertEqual(self.doctor("--port", port, "--kill", "--yes").returncode, 0, self.trace)
        self.assertFalse(self.alive(one))
        self.assertTrue(self.alive(other))

    def test_only_shown_processes_are_ended(self):
        listener = self.listener()
        pid = self.hold(listener, orphan=True)
        port = self.let_go(listener)
        start = start_of(pid)
        for only in (f"{pid}:{start - 1}", "none"):
            self.assertEqual(self.doctor("--port", port, "--kill", "--yes", "--only", only).returncode, 69, self.trace)
        self.assertTrue(self.alive(pid))
        self.assertEqual(self.doctor("--port", port, "--kill", "--yes", "--only", f"{pid}:{start}").returncode, 0)

    def test_several_ports_in_all_spellings(self):
        ports = [self.let_go(self.listener()) for _ in range(3)]
        for words in (["--port", *ports], ["--port", ",".join(ports)], [f"--port={port}" for port in ports]):
            report = self.report(*words)
            self.assertEqual([str(port["port"]) for port in report["ports"]], ports)

    def test_the_children_of_a_stale_process_end_with_it(self):
        listener = self.listener()
        program = "import subprocess\nchild = subprocess.Popen(['sleep', '1000'], stdout=subprocess.DEVNULL)\n" + HOLDER
        pid = self.hold(listener, program, orphan=True, env={"TORCHELASTIC_RUN_ID": "none"})
        port = self.let_go(listener)
        report = self.report("--port", port)
        child, = [each for each in report["findings"] if each.get("parent") == pid]
        self.pids.append((child["pid"], start_of(child["pid"])))
        self.assertEqual((child["kind"], child["verdict"]), ("stale_child", "stale"))
        self.assertIn(f"its parent is stale: pid {pid} ", child["reason"])
        self.assertEqual(self.doctor("--port", port, "--kill", "--yes").returncode, 0, self.trace)
        self.assertFalse(self.alive(child["pid"]))

    @unittest.skipUnless(can_freeze(), "needs the freezer of cgroup version 1: its processes are in state D for SIGKILL too")
    def test_an_unkillable_process_is_reported_with_its_wait_channel(self):
        listener = self.listener()
        pid = self.hold(listener, orphan=True)
        port = self.let_go(listener)
        self.freeze(pid)
        self.wait_until(lambda: place_of(pid) != "0")  # it is on its way into the freezer until then
        place = place_of(pid)
        found = self.finding(self.report("--port", port), pid)
        self.assertEqual((found["verdict"], found["state"], found["wait_channel"]), ("stale", "D", place))
        self.assertIn(f"in an uninterruptible wait ({place})", self.doctor("--port", port).stdout)
        kill = [DSLAUNCH, "doctor", "--port", port, "--kill", "--yes", "--grace", "0"]
        both = [subprocess.Popen([*kill, *more], stdout=subprocess.PIPE, text=True) for more in ([], ["--json"])]
        text, document = [process.communicate(timeout=LIMIT_S)[0] for process in both]
        self.assertEqual([process.returncode for process in both], [69, 69])
        still_there = f"does not end even with SIGKILL: it waits in the kernel (state D, in {place})"
        self.assertIn(still_there, text)
        treated, = json.loads(document)["hosts"][0]["treated"]
        self.assertFalse(treated["gone"])
        self.assertIn(still_there, treated["outcome"])

    def freeze(self, pid):
        folder = tempfile.mkdtemp(prefix="dsl-doctor-", dir="/sys/fs/cgroup/freezer")

        def write(name, text):
            with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
                file.write(text)

        def thaw():
            write("freezer.state", "THAWED")
            self.wait_until(lambda: not self.alive(pid))
            os.rmdir(folder)

        write("cgroup.procs", str(pid))
        self.addCleanup(thaw)
        write("freezer.state", "FROZEN")
        self.wait_until(lambda: state_of(pid) == "D")

    @unittest.skipUnless(os.getuid() == 0, "needs root to become another user")
    def test_another_users_process_is_never_touched(self):
        listener = self.listener()
        pid = self.hold(listener, STRANGER, orphan=True, env=self.job(self.dead_agent()))
        port = self.let_go(listener)
        outcome = self.doctor("--port", port, "--kill", "--yes", "--force")
        self.assertEqual(outcome.returncode, 77, self.trace)
        self.assertIn("foreign", outcome.stdout)
        self.assertTrue(self.alive(pid))

    @unittest.skipUnless(os.getuid() == 0, "needs root to become another user")
    def test_a_holder_that_cannot_be_inspected_is_reported(self):
        listener = self.listener()
        self.hold(listener, orphan=True)
        port = self.let_go(listener)
        outcome = subprocess.run([DSLAUNCH, "doctor", "--port", port, "--kill", "--yes", "--force"], timeout=LIMIT_S,
                                 stdout=subprocess.PIPE, user=NOBODY, group=NOBODY, extra_groups=[], text=True, check=False)
        self.assertEqual(outcome.returncode, 77, outcome.stdout)
        self.assertIn("a process of user root", outcome.stdout)


class Confirmation(DoctorTest):
    def setUp(self):
        super().setUp()
        listener = self.listener()
        self.pid = self.hold(listener, orphan=True)
        self.port = self.let_go(listener)

    def on_terminal(self, answer):
        """`dslaunch doctor --kill` on a terminal of its own, answered once it asks. Its exit code and the screen."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(DSLAUNCH, ["dslaunch", "doctor", "--port", self.port, "--kill"])
        screen = b""
        answered = False
        while select.select([terminal], [], [], LIMIT_S)[0]:
            try:
                got = os.read(terminal, 65536)
            except OSError:  # the terminal has no program any more
                break
            screen += got
            if b"[y/N]" in screen and not answered:
                answered = True
                os.write(terminal, answer)
        os.close(terminal)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), screen.decode()

    def test_yes(self):
        code, screen = self.on_terminal(b"y\n")
        self.assertEqual(code, 0, screen)
        self.assertIn(f"pid {self.pid}", screen.split("Shall")[0])
        self.assertFalse(self.alive(self.pid))

    def test_no_and_empty_answer(self):
        for answer in (b"n\n", b"\n", b"\x04"):
            code, screen = self.on_terminal(answer)
            self.assertEqual(code, 69, screen)
            self.assertIn("nothing was ended", screen)
            self.assertTrue(self.alive(self.pid))

    def test_ctrl_c(self):
        code, screen = self.on_terminal(b"\x03")
        self.assertEqual(code, 130, screen)
        self.assertTrue(self.alive(self.pid))

    def test_no_terminal_to_ask_on(self):
        outcome = self.doctor("--port", self.port, "--kill")
        self.assertEqual(outcome.returncode, 64, self.trace)
        self.assertIn("--yes", outcome.stderr)
        self.assertTrue(self.alive(self.pid))


class CommandLine(DoctorTest):
    def test_help_begins_with_examples(self):
        outcome = self.doctor("--help")
        self.assertEqual(outcome.returncode, 0)
        self.assertLess(outcome.stdout.index("Examples:"), outcome.stdout.index("Options:"))

    def test_a_hostfile_with_this_machine(self):
        with tempfile.NamedTemporaryFile("w", suffix=".hosts") as file:
            file.write("localhost slots=1\n")
            file.flush()
            port = self.let_go(self.listener())
            outcome = self.doctor("--hostfile", file.name, "--port", port)
            self.assertEqual(outcome.returncode, 0, self.trace)


class Zombies(DoctorTest):
    def test_a_zombie_is_reported_with_its_parent(self):
        child = subprocess.Popen(["true"])
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        port = self.let_go(self.listener())
        found = self.finding(self.report("--port", port, *["--kill", "--yes", "--force"]), child.pid)
        self.assertEqual((found["kind"], found["state"], found["parent"]), ("zombie", "Z", os.getpid()))
        self.assertIn(str(child.pid), self.doctor("--port", port).stdout)
        child.wait()


@unittest.skipUnless(ISOLATED, "needs root and namespaces: what it ends is not limited to a port")
class WholeMachine(DoctorTest):
    def test_leftovers_of_dead_jobs_are_ended_when_no_port_is_named(self):
        listener = self.listener()
        pid = self.hold(listener, orphan=True, env=self.job(self.dead_agent()))
        orphan = self.hold(listener, orphan=True)
        living = self.hold(listener, orphan=True, env=self.job(self.living_agent()))
        self.let_go(listener)
        found = self.finding(self.report(), pid)
        self.assertEqual((found["kind"], found["verdict"]), ("leftover_process", "stale"))
        self.assertEqual(self.doctor("--kill", "--yes").returncode, 0, self.trace)
        self.assertFalse(self.alive(pid))
        self.assertTrue(self.alive(orphan))
        self.assertTrue(self.alive(living))

    def test_a_named_port_leaves_other_leftovers_alone(self):
        listener = self.listener()
        pid = self.hold(listener, orphan=True, env=self.job(self.dead_agent()))
        self.let_go(listener)
        port = self.let_go(self.listener())
        self.assertEqual(self.doctor("--port", port, "--kill", "--yes").returncode, 0, self.trace)
        self.assertTrue(self.alive(pid))

    def test_ranks_whose_launcher_and_agent_were_killed(self):
        script = "import os, time\nos.setsid()\nif os.fork(): os._exit(0)\nprint(os.getpid(), flush=True)\ntime.sleep(1000)\n"
        job = subprocess.Popen([DSLAUNCH, "exec", "--device", "cpu", "--", "sh", "-c",
                                f"{sys.executable} -c '{script}'; exec sleep 1000"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(job.stdout.close)
        pid = int(job.stdout.readline())
        self.pids.append((pid, start_of(pid)))
        self.assertEqual([finding for finding in self.report()["findings"] if finding.get("pid") == pid], [])
        children = lambda parent: subprocess.run(["pgrep", "-P", parent], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        (guard,) = children(str(job.pid))
        agents = [guard, *children(guard)]
        victims = (job.pid, *map(int, agents))
        for victim in victims:  # stood still first: the second to die would tidy up after the first
            os.kill(victim, signal.SIGSTOP)
        self.wait_until(lambda: all(state_of(victim) == "T" for victim in victims))
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        job.wait()
        self.wait_until(lambda: not any(self.alive(int(agent)) for agent in agents))
        self.assertEqual(self.finding(self.report(), pid)["kind"], "leftover_process")
        self.assertEqual(self.doctor("--kill", "--yes").returncode, 0, self.trace)
        self.assertFalse(self.alive(pid))

    def test_a_lost_job_whose_agent_is_stopped(self):
        job = subprocess.Popen([DSLAUNCH, "exec", "--device", "cpu", "--num_gpus", "2", "--", "sh", "-c",
                                "echo $$; exec sleep 1000"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(job.stdout.close)
        ranks = [int(job.stdout.readline().split()[-1]) for _ in range(2)]
        self.assertEqual([each for each in self.report()["findings"] if each.get("pid") in ranks], [])
        agent = self.stop_agent_of(job)
        job.kill()
        job.wait()
        everyone = [agent, *ranks]
        self.pids += [(pid, start_of(pid)) for pid in everyone]
        report = self.report()
        self.assertEqual([self.finding(report, pid)["verdict"] for pid in everyone], ["stale"] * 3)
        for pid in everyone:
            self.assertRegex(self.finding(report, pid)["reason"], f"the supervisor of its job .*, pid {job.pid}, has exited")
        self.assertEqual(self.doctor("--kill", "--yes").returncode, 0, self.trace)
        self.assertEqual([self.alive(pid) for pid in everyone], [False] * 3)

    def test_shared_memory_and_pid_files(self):
        dead = self.dead_agent().split(":")[0]
        leftovers = [f"/dev/shm/torch_{dead}_1_2", "/dev/shm/nccl-AbCdEf", f"/tmp/{dead}.deepspeed"]
        wanted = [f"/dev/shm/torch_{os.getpid()}_1_2", "/dev/shm/other"]
        for path in leftovers + wanted:
            with open(path, "w", encoding="utf-8") as file:
                file.write("x")
            os.utime(path, (0, time.time() - 3600))
        report = self.report()
        self.assertEqual(sorted(finding["path"] for finding in report["findings"] if "path" in finding), sorted(leftovers))
        outcome = self.doctor("--kill", "--yes")
        self.assertEqual(outcome.returncode, 0, self.trace)
        self.assertEqual([path for path in leftovers + wanted if os.path.exists(path)], wanted)
        for path in wanted:
            os.remove(path)


class PortReclaim(DoctorTest):
    def exec_on(self, port):
        return subprocess.run([DSLAUNCH, "exec", "--device", "cpu", "--master_port", port, "--", "true"], timeout=LIMIT_S,
                              stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)

    def test_a_dead_jobs_port_is_reclaimed_and_reported(self):
        listener = self.listener("0.0.0.0")
        pid = self.hold(listener, orphan=True, env=self.job(self.dead_agent()))
        outcome = self.exec_on(self.let_go(listener))
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        self.assertIn(f"pid {pid}", outcome.stderr)
        self.assertFalse(self.alive(pid))

    def test_a_port_of_another_process_is_an_error_naming_it(self):
        for env in (self.job(self.living_agent()), {}):
            listener = self.listener("0.0.0.0")
            pid = self.hold(listener, orphan=True, env=env)
            outcome = self.exec_on(self.let_go(listener))
            self.assertEqual(outcome.returncode, 69, outcome.stderr)
            self.assertIn(f"pid {pid}", outcome.stderr)
            self.assertTrue(self.alive(pid))


if __name__ == "__main__":
    if not ISOLATED and can_isolate():
        sys.exit(isolate())
    with tempfile.TemporaryDirectory(prefix="dsl-state-") as state:
        os.environ.setdefault("XDG_STATE_HOME", state)
        unittest.main()
