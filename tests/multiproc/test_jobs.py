#!/usr/bin/env python3
"""Jobs as their users meet them after the start: --detach, jobs, logs, attach, stop, and where the ranks' output goes.

The program comes from DSLAUNCH_BIN. Every test has a home, a state folder and a runtime folder of its own; every process
carries a mark in its environment, which is how leftovers are found."""
import contextlib
import glob
import json
import os
import pty
import re
import resource
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import unittest

from frozen_cgroup import FrozenCgroup
from tagged_case import DSLAUNCH, LIMIT_S, TaggedTest, refuse_process_descriptors

SAVES = "trap 'echo saved; exit 75' TERM; echo ready $RANK; while :; do sleep 0.05; done"
STUBBORN = "trap '' TERM INT; echo ready $RANK; while :; do sleep 0.05; done"


class Outcome:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out.decode(errors="replace"), err.decode(errors="replace")

    def __str__(self):
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def without_core():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class JobsTest(TaggedTest):
    def setUp(self):
        super().setUp()
        self.env = self.environment(HOME=self.make("home"), XDG_RUNTIME_DIR=self.make("runtime"))

    def tearDown(self):
        # A supervisor in the background ends a moment after it has said that its job has.
        leftovers = self.end_processes(settle_s=5)
        temporary = os.listdir(self.temp)
        sockets = [path for path in glob.glob(self.path("**"), recursive=True) if stat.S_ISSOCK(os.lstat(path).st_mode)]
        shutil.rmtree(self.folder)
        self.assertEqual(leftovers, {}, "processes are left behind")
        self.assertEqual(temporary, [], "temporary files are left behind")
        self.assertEqual(sockets, [], "sockets are left behind")

    def start(self, *arguments, **options):
        process = subprocess.Popen([DSLAUNCH, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=self.env, **options)
        self.running.append(process)
        return process

    def finish(self, process):
        out, err = process.communicate(timeout=LIMIT_S)
        self.running.remove(process)
        return Outcome(process.returncode, out, err)

    def run_it(self, *arguments, code=None, **options):
        outcome = self.finish(self.start(*arguments, **options))
        if code is not None:
            self.assertEqual(outcome.code, code, str(outcome))
        return outcome

    def exec_words(self, world, script, *options):
        return ("exec", "--device", "cpu", "--num_gpus", str(world), *options, "--", "sh", "-c", script)

    def exec_sh(self, world, script, *options, code=0):
        return self.run_it(*self.exec_words(world, script, *options), code=code)

    def detach(self, world, script, *options):
        """The id of a job that was started in the background."""
        outcome = self.run_it(*self.exec_words(world, script, "--detach", "--json", *options), code=0)
        return json.loads(outcome.out)["job_id"]

    def job_folder(self, job):
        return os.path.join(self.env["XDG_STATE_HOME"], "dslaunch/jobs", job)

    def read(self, *parts):
        with open(os.path.join(*parts), encoding="utf-8", errors="replace") as file:
            return file.read()

    def record(self, job):
        return json.loads(self.read(self.job_folder(job), "job.json"))

    def console(self, job):
        return self.read(self.job_folder(job), "console.log")

    def ready(self, job, count):
        self.wait_until(lambda: self.console(job).count("ready") == count, f"{count} ranks that are ready")

    def listed(self, job, *options):
        jobs = json.loads(self.run_it("jobs", "--json", *options, code=0).out)["jobs"]
        return next((entry for entry in jobs if entry["job_id"] == job), None)


    def listed_ids(self):
        return [job["job_id"] for job in json.loads(self.run_it("jobs", "--all", "--json", code=0).out)["jobs"]]

    def write(self, path, text, size=0):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
            file.truncate(max(size, len(text)))


class Detached(JobsTest):
    def test_a_detached_job_runs_on_and_can_be_stopped(self):
        outcome = self.run_it(*self.exec_words(2, SAVES, "--detach"), code=0)
        job = re.search(r"job (\S+) runs in", outcome.out).group(1)
        for command in ("attach", "logs -f", "stop"):
            self.assertIn(f"dslaunch {command} {job}", outcome.out)
        supervisor = self.record(job)["supervisor"]["pid"]
        # A session of its own, without a terminal.
        fields = self.read(f"/proc/{supervisor}/stat").rsplit(")", 1)[1].split()
        self.assertNotEqual(int(fields[3]), os.getsid(0))
        self.assertEqual(int(fields[4]), 0)
        self.ready(job, 2)
        stopped = self.run_it("stop", job, code=0)
        self.assertIn(f"{job}: stopped, exit code 75", stopped.out)
        self.assertEqual(self.console(job).count("saved"), 2)
        # It has ended when stop returns; whoever inherited it reaps it.
        self.assertTrue(supervisor not in self.tagged_processes())

    def test_the_working_directory_is_kept(self):
        job = self.finish(self.start(*self.exec_words(1, "pwd", "--detach", "--json"), cwd=self.temp))
        job = json.loads(job.out)["job_id"]
        self.run_it("attach", job, code=0)
        self.assertIn(os.path.realpath(self.temp), self.console(job))

    def test_a_failed_start_returns_its_code_and_messages(self):
        cases = [(127, ["--", "no-such-program-here"], "no-such-program-here"),
                 (66, ["--hostfile", self.path("none"), "--", "true"], "none"),
                 (64, ["--no_such_option", "--", "true"], "no_such_option"),
                 (66, ["--chdir", self.path("none"), "--", "true"], "none")]
        for code, words, text in cases:
            with self.subTest(words=words):
                outcome = self.run_it("exec", "--detach", "--device", "cpu", *words, code=code)
                self.assertIn(text, outcome.err)

    def test_a_taken_port_is_reported(self):
        with socket.socket() as listener:
            listener.bind(("0.0.0.0", 0))
            listener.listen()
            port = str(listener.getsockname()[1])
            outcome = self.run_it(*self.exec_words(2, "true", "--detach", "--master_port", port), code=69)
        self.assertIn(f"pid {os.getpid()}", outcome.err)
        self.assertIn("did not start", outcome.err)

    def test_detach_without_a_directory_for_output_is_refused(self):
        with open(self.path("in-the-way"), "w", encoding="utf-8"):
            self.env["XDG_STATE_HOME"] = self.path("in-the-way")
        outcome = self.run_it(*self.exec_words(1, "true", "--detach"), code=73)
        self.assertIn("XDG_STATE_HOME", outcome.err)

    def test_detach_without_a_record_is_refused(self):
        """A full disk, or a quota: here files may not grow at all."""
        def without_room():
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        outcome = self.run_it(*self.exec_words(1, f"touch {self.path('ran')}", "--detach"), code=73, preexec_fn=without_room)
        self.assertRegex(outcome.err, "job.json: File too large.*XDG_STATE_HOME")
        self.assertFalse(os.path.exists(self.path("ran")))
        self.assertEqual(os.listdir(self.job_folder("")), [])

    @unittest.skipUnless(os.geteuid() == 0, "a limit of processes that leaves room for two needs a user without any")
    def test_a_process_limit_has_its_own_message(self):
        def as_a_new_user():
            os.setgroups([])
            os.setresgid(54321, 54321, 54321)
            os.setresuid(54321, 54321, 54321)
            resource.setrlimit(resource.RLIMIT_NPROC, (2, 2))

        program = shutil.copy(DSLAUNCH, self.path("dslaunch"))
        os.chmod(self.folder, 0o755)
        outcome = subprocess.run([program, "exec", "--device", "cpu", "--detach", "--", "true"], env=self.env, cwd="/",
                                 preexec_fn=as_a_new_user, capture_output=True, timeout=LIMIT_S)
        self.assertEqual(outcome.returncode, 69, outcome.stderr)
        self.assertIn(b"Resource temporarily unavailable", outcome.stderr)

    @unittest.skipUnless(os.geteuid() == 0, "limits of processes need a user without any")
    def test_a_process_limit_is_never_an_input_error(self):
        program = shutil.copy(DSLAUNCH, self.path("dslaunch"))
        for folder in (self.folder, self.temp):
            os.chmod(folder, 0o777)
        words = [program, "exec", "--device", "cpu", "--num_gpus", "3", "--", "sleep", "0.1"]
        for limit in range(1, 30):
            def as_another_new_user():
                os.setgroups([])
                os.setresgid(54322, 54322, 54322)
                os.setresuid(54322, 54322, 54322)
                resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
            outcome = subprocess.run(words, env=self.env, cwd="/", preexec_fn=as_another_new_user, capture_output=True,
                                     timeout=LIMIT_S)
            if outcome.returncode == 0:
                break
            with self.subTest(limit=limit):
                self.assertEqual(outcome.returncode, 69, outcome.stderr)
                self.assertIn(b"ulimit -u", outcome.stderr)
        self.assertEqual(outcome.returncode, 0, outcome.stderr)

    def test_a_thread_limit_is_not_reported_as_a_killed_supervisor(self):
        """No thread's stack of this size fits into an address space."""
        hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
        if hard != resource.RLIM_INFINITY:
            self.skipTest("stacks are limited here")
        with open(self.path("hosts"), "w", encoding="utf-8") as file:
            file.write("192.0.2.1 slots=1\n")
        words = ("--hostfile", self.path("hosts"), "--push", "--ssh_program", "/bin/false", "--detach", "--", "true")
        outcome = self.run_it("exec", "--device", "cpu", *words, code=69,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (1 << 47, hard)))
        self.assertIn("cannot create a thread", outcome.err)
        self.assertNotIn("was killed", outcome.err)
        (job,) = json.loads(self.run_it("jobs", "--json", code=0).out)["jobs"]
        self.assertEqual(job["condition"], "ended")
        self.assertIn("cannot create a thread", job["end"]["first_cause"])

    def test_console_output_lost_to_a_full_disk_is_reported(self):
        isolate = ["unshare", "--user", "--map-root-user", "--mount"]
        small = [*isolate, "sh", "-c", 'mount -t tmpfs -o size=64k none "$XDG_STATE_HOME" || exit 77; "$@"', "sh"]
        self.make("state")
        if subprocess.run([*small, "true"], env=self.env, stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no file system of one's own here")
        script = f'''
            {DSLAUNCH} exec --detach --device cpu --num_gpus 2 -- sh -c 'head -c 200000 /dev/zero | tr "\\0" "~"; exit 3' &&
            for command in "attach last" "logs last" "jobs last" "jobs --json"; do
              echo "--- $command"; {DSLAUNCH} $command 2>&1 | tr -d '~'; done'''
        outcome = subprocess.run([*small, "bash", "-o", "pipefail", "-c", script], env=self.env, capture_output=True, text=True,
                                 timeout=LIMIT_S)
        started, attached, logged, details, document = outcome.stdout.split("--- ")
        self.assertIn("runs in the background", started)
        for text in (attached, logged):
            self.assertRegex(text, "warning: the job's output is incomplete: .*console.log: No space left")
        self.assertIn("has ended: exit code 3", attached)
        self.assertRegex(details, "error .*console.log: No space left")
        (job,) = json.loads(document.split("\n", 1)[1])["jobs"]
        self.assertEqual((len(job["troubles"]), job["end"]["exit_code"]), (2, 3))  # the ranks' logs are the other one

    def test_a_file_system_without_inodes_hides_no_cause(self):
        """Whatever of the job's directory can still be made: no cause is lost, and no log is named that is not there."""
        isolate = ["unshare", "--user", "--map-root-user", "--mount"]
        self.make("state")
        script = f'''
            mount -t tmpfs -o nr_inodes=$1 none "$XDG_STATE_HOME" || exit 77
            {DSLAUNCH} exec --device cpu --num_gpus 2 -- sh -c "echo text; exit 3" 2>&1; echo "code $?"
            for log in "$XDG_STATE_HOME"/dslaunch/jobs/*/logs/*; do echo "there: $log"; done'''
        num_named = 0
        for inodes in range(2, 12):
            with self.subTest(inodes=inodes):
                done = subprocess.run([*isolate, "sh", "-c", script, "sh", str(inodes)], env=self.env, capture_output=True, text=True,
                                      timeout=LIMIT_S)
                if done.returncode == 77:
                    self.skipTest("no file system of one's own here")
                told, code = done.stdout.split("\ncode ")
                self.assertEqual(code[0], "3", done.stdout)
                lines = told.splitlines()
                named = [line.split(": ")[2] for line in lines if "its output: " in line]
                num_named += len(named)
                self.assertTrue(all(f"there: {log}\n" in code for log in named), done.stdout)
                self.assertIn("failed first: exit code 3", lines[-1 - len(named)])
                warnings = [line for line in lines if "warning: " in line]
                self.assertEqual(len(warnings), len(set(warnings)), done.stdout)
                self.assertEqual([line for line in warnings if "No space left on device (df, and df -i" not in line], [])
        self.assertGreater(num_named, 0)

    def test_a_dry_run_detaches_nothing(self):
        self.assertIn("world", self.exec_sh(1, "true", "--detach", "--dry_run").out)
        self.assertEqual(os.path.exists(self.env["XDG_STATE_HOME"]), False)

    def test_ctrl_c_during_the_start_stops_the_job(self):
        gate = self.path("gate")
        os.mkfifo(gate)
        # The command waits for the start; here for what comes before it, the reading of a hostfile that nobody writes.
        for number in (signal.SIGINT, signal.SIGQUIT):
            with self.subTest(signal=number):
                process = self.start("exec", "--detach", "--hostfile", gate, "--", "true", preexec_fn=without_core)
                self.wait_until(lambda: len(self.tagged_processes()) == 2, "a supervisor")
                process.send_signal(number)
                self.assertEqual(self.finish(process).code, 128 + number)

    def grandchildren(self, process):
        """Of the command, which waits for the supervisor; what is forked between the two is its child."""
        parents = {}
        for pid in self.tagged_processes():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                parents[pid] = int(self.read(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[1])
        return [pid for pid, parent in parents.items() if process.pid not in (pid, parent)]

    def test_a_supervisor_killed_during_the_start_is_reported(self):
        gate = self.path("gate")
        os.mkfifo(gate)
        process = self.start("exec", "--detach", "--hostfile", gate, "--", "true")
        self.wait_until(lambda: self.grandchildren(process), "a supervisor")
        (supervisor,) = self.grandchildren(process)
        os.kill(supervisor, signal.SIGKILL)
        outcome = self.finish(process)
        self.assertEqual(outcome.code, 69, str(outcome))
        said = rf"supervisor( \(pid {supervisor}\))? was killed before the job had started"  # it says its pid first of all
        self.assertRegex(outcome.err, said)


class Listed(JobsTest):
    def test_a_job_from_its_start_to_its_end(self):
        job = self.detach(2, SAVES, "--run_dir", self.path("run"))
        self.ready(job, 2)
        entry = self.listed(job)
        self.assertEqual((entry["condition"], entry["state"], entry["world_size"]), ("living", "running", 2))
        self.assertEqual(entry["hosts"], [{"host": "localhost", "ranks": 2}])
        self.assertEqual(entry["command"], ["sh", "-c", SAVES])
        self.assertEqual(entry["run_dir"], self.path("run"))
        table = self.run_it("jobs", code=0).out
        self.assertRegex(table, rf"{job} +running +- +- +\d+[sm] +localhost")
        details = json.loads(self.run_it("jobs", "last", "--json", code=0).out)["jobs"][0]
        for rank in details["ranks"]:
            self.assertIn("sh -c", self.tagged_processes()[rank["pid"]])
        self.run_it("stop", job, code=0)
        entry = self.listed(job)
        self.assertEqual((entry["condition"], entry["end"]["exit_code"]), ("ended", 75))
        self.assertIn("stopped by 'dslaunch stop'", entry["end"]["first_cause"])
        self.assertRegex(self.run_it("jobs", code=0).out, rf"{job} +ended 75 ")

    def test_foreground_jobs_too_with_their_first_cause(self):
        self.exec_sh(2, "[ $RANK = 0 ] || { echo alas >&2; exit 7; }; exec sleep 1000", code=7)
        jobs = json.loads(self.run_it("jobs", "--json", code=0).out)["jobs"]
        self.assertEqual(len(jobs), 1)
        self.assertEqual(jobs[0]["end"]["exit_code"], 7)
        self.assertEqual(jobs[0]["end"]["first_cause"], "rank 1 on localhost failed first: exit code 7")
        self.assertIn("alas", self.run_it("logs", "last", code=0).out)

    def test_the_first_cause_is_a_host_with_its_error(self):
        hosts = self.path("hosts")
        with open(hosts, "w") as file:
            file.write("nowhere.invalid slots=2\n")
        report = self.run_it("exec", "--json", "--hostfile", hosts, "--connect_timeout", "2", "--", "true", code=69).out
        (failure,) = json.loads(report)["host_failures"]
        self.assertEqual(failure["host"], "nowhere.invalid")
        self.assertIn("nowhere.invalid", failure["cause"])
        (job,) = json.loads(self.run_it("jobs", "--json", code=0).out)["jobs"]
        self.assertRegex(job["end"]["first_cause"], r"^nowhere\.invalid failed: \w+: .*nowhere\.invalid")

    def test_the_first_cause_is_a_host_that_failed_to_prepare(self):
        with socket.socket() as taken:
            taken.bind(("0.0.0.0", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            report = json.loads(self.exec_sh(2, "true", "--json", "--master_port", port, code=69).out)
        (failure,) = report["host_failures"]
        self.assertEqual((failure["host"], failure["phase"], report["first_failure"]), ("localhost", "agent", None))
        self.assertIn(f"port {port}", failure["cause"])
        (job,) = json.loads(self.run_it("jobs", "--json", code=0).out)["jobs"]
        self.assertEqual(job["end"]["first_cause"], f"localhost failed: agent: {failure['cause']}")

    def test_a_supervisor_that_was_killed(self):
        job = self.detach(2, STUBBORN)
        self.ready(job, 2)
        os.kill(self.record(job)["supervisor"]["pid"], signal.SIGKILL)
        self.wait_until(lambda: self.tagged_processes() == {}, "the end of the ranks")
        self.assertEqual(self.listed(job)["condition"], "lost")
        self.assertRegex(self.run_it("jobs", code=0).out, rf"{job} +lost ")
        for command in (("logs", "-f", job), ("attach", job)):
            outcome = self.run_it(*command, code=69)
            self.assertIn("ready", outcome.out)
            self.assertRegex(outcome.err, rf"supervisor of job {job} \(pid \d+\) did not record the job's end.*'running'")
        self.assertIn("ready", self.run_it("logs", job, code=0).out)
        self.assertIn("supervisor had exited", self.run_it("stop", job, code=0).out)

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("unshare"), "mounts a small disk of its own")
    def test_the_end_of_a_job_that_filled_the_disk(self):
        os.makedirs(self.path("state"))
        script = ("mount -t tmpfs -o size=64k none $XDG_STATE_HOME && $0 exec --device cpu -- sh -c 'yes | head -c 99999; exit 3' | wc -c; "
                  "$0 jobs --json last")
        done = subprocess.run(["unshare", "--mount", "sh", "-c", script, DSLAUNCH], env=self.env, capture_output=True,
                              timeout=LIMIT_S)
        if b"permission denied" in done.stderr.lower():
            self.skipTest("this container forbids mounts")
        self.assertIn(b"No space left", done.stderr)
        written, document = done.stdout.split(b"\n", 1)
        job = json.loads(document)["jobs"][0]
        self.assertEqual((int(written), job["condition"], job["end"]["exit_code"]), (99999, "ended", 3))

    def test_another_process_with_the_supervisors_pid_is_not_the_supervisor(self):
        self.exec_sh(1, "true")
        path = glob.glob(self.path("state/dslaunch/jobs/*/job.json"))[0]
        document = json.loads(self.read(path))
        document["supervisor"]["pid"], document["end"], document["state"] = os.getpid(), None, "running"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(document, file)
        self.assertEqual(self.listed(document["job_id"])["condition"], "lost")
        self.run_it("stop", "last", code=0)  # and we live on

    def test_short_unknown_and_ambiguous_names(self):
        self.exec_sh(1, "echo one")
        self.exec_sh(1, "echo two")
        jobs = [job["job_id"] for job in json.loads(self.run_it("jobs", "--json", code=0).out)["jobs"]]
        self.assertEqual(len(set(jobs)), 2)
        self.assertEqual(self.run_it("logs", "last", code=0).out, "two\n")
        common = os.path.commonprefix(jobs)
        self.assertEqual(self.run_it("logs", jobs[1][: len(common) + 1], code=0).out, "one\n")
        outcome = self.run_it("logs", common, code=64)
        for job in jobs:
            self.assertIn(job, outcome.err)
        wrong = jobs[0][:-1] + ("0" if jobs[0][-1] != "0" else "1")
        self.assertIn(jobs[0], self.run_it("stop", wrong, code=66).err)
        self.assertIn("'nothing'", self.run_it("attach", "nothing", code=66).err)

    def test_an_invalid_record_is_reported_and_not_waited_for(self):
        self.exec_sh(1, "true")
        job = self.listed_ids()[0]
        newer = json.dumps({"job_id": "newer", "format": 9})
        for name, damage in (("pipe", os.mkfifo), ("folder", os.mkdir), ("newer", lambda path: self.write(path, newer)),
                             ("torn", lambda path: self.write(path, '{"job_id": "to')), ("empty", lambda path: self.write(path, "")),
                             ("endless", lambda path: self.write(path, "", size=1 << 40))):
            os.mkdir(self.job_folder(name))
            damage(os.path.join(self.job_folder(name), "job.json"))
            os.utime(self.job_folder(name), (1, 1))
            for command in (("jobs",), ("logs", job), ("attach", job), ("stop", job)):
                with self.subTest(record=name, command=command):
                    outcome = self.run_it(*command, code=0)
                    self.assertRegex(outcome.err, f"cannot read .*{name}/job.json: ")
            with self.subTest(record=name):
                self.assertIn("no job", self.run_it("stop", name, code=66).err)
        self.exec_sh(1, "true")  # which clears away what is old and was never a job's
        self.assertEqual(sorted(set(os.listdir(self.job_folder(""))) - set(self.listed_ids())),
                         ["empty", "endless", "folder", "newer", "pipe", "torn"])

    @unittest.skipUnless(os.geteuid() == 0, "needs another user")
    def test_another_users_record_is_ignored(self):
        self.exec_sh(1, "true")
        for folder in (self.folder, self.path("state"), self.path("state/dslaunch"), self.job_folder("")):
            os.chmod(folder, 0o755)
        job = self.listed_ids()[0]
        os.chmod(self.job_folder(job), 0o755)
        os.chmod(os.path.join(self.job_folder(job), "job.json"), 0o644)
        program = shutil.copy(DSLAUNCH, self.path("dslaunch"))
        outcome = subprocess.run([program, "stop", job], env=self.env, cwd="/", user=54321, group=54321, extra_groups=[],
                                 capture_output=True, timeout=LIMIT_S)
        self.assertEqual(outcome.returncode, 66, outcome.stderr)
        self.assertIn(b"it belongs to another user", outcome.stderr)

    @unittest.skipUnless(os.geteuid() == 0, "needs another user")
    def test_another_users_directory_is_an_error(self):
        self.exec_sh(1, "true")
        os.chmod(self.folder, 0o755)
        program = shutil.copy(DSLAUNCH, self.path("dslaunch"))
        for words in (["jobs"], ["jobs", "--json"], ["logs", "last"], ["stop", "last"]):
            with self.subTest(words=words):
                outcome = subprocess.run([program, *words], env=self.env, cwd="/", user=54321, group=54321, extra_groups=[],
                                         capture_output=True, timeout=LIMIT_S)
                self.assertEqual((outcome.returncode, outcome.stdout), (77, b""), outcome.stderr)
                self.assertIn(b"Permission denied", outcome.stderr)
                self.assertIn(self.job_folder("").rstrip("/").encode(), outcome.stderr)

    def test_a_pipe_in_place_of_a_console(self):
        self.exec_sh(1, "true")
        console = os.path.join(self.job_folder(self.listed_ids()[0]), "console.log")
        os.unlink(console)
        os.mkfifo(console)
        for command in ("logs", "attach"):
            self.assertIn("not a regular file", self.run_it(command, "last", code=66).err)

    def test_old_jobs_are_pruned(self):
        self.exec_sh(1, "true")
        root = self.path("state/dslaunch/jobs")
        pattern = os.path.join(root, os.listdir(root)[0])
        document = json.loads(self.read(pattern, "job.json"))
        for number in range(120):
            document["job_id"] = f"20200101-000000-{number}-abcd"
            document["end"]["at"] = document["started_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ",
                                                                           time.gmtime(time.time() - 3600 - number))
            os.mkdir(os.path.join(root, document["job_id"]))
            with open(os.path.join(root, document["job_id"], "job.json"), "w", encoding="utf-8") as file:
                json.dump(document, file)
        self.exec_sh(1, "true")
        left = os.listdir(root)
        self.assertEqual(len(left), 101)
        self.assertIn("20200101-000000-0-abcd", left)
        self.assertNotIn("20200101-000000-119-abcd", left)

    def test_files_and_socket_are_private(self):
        self.env["PATH"] = os.environ["PATH"]
        job = self.detach(1, SAVES)
        self.ready(job, 1)
        socket_path = self.record(job)["socket"]
        self.assertEqual(socket_path, os.path.join(self.env["XDG_RUNTIME_DIR"], "dslaunch", job + ".sock"))
        self.assertEqual(stat.S_IMODE(os.stat(socket_path).st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(os.stat(os.path.dirname(socket_path)).st_mode), 0o700)
        for folder, names, files in os.walk(self.path("state")):
            for name in names:
                self.assertEqual(stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode), 0o700, name)
            for name in files:
                self.assertEqual(stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode), 0o600, name)
        self.run_it("stop", "--now", job, code=0)

    def test_a_state_directory_that_cannot_be_created_is_a_warning(self):
        with open(self.path("in-the-way"), "w", encoding="utf-8"):
            pass
        del self.env["XDG_STATE_HOME"]
        self.env["HOME"] = self.path("in-the-way")
        outcome = self.exec_sh(2, "echo fine")
        self.assertEqual(outcome.out.count("fine"), 2)
        self.assertEqual(outcome.err.count("warning"), 1, str(outcome))

    def test_without_a_runtime_directory_and_with_a_long_path(self):
        del self.env["XDG_RUNTIME_DIR"]
        self.env["XDG_STATE_HOME"] = self.path("/".join(["long" * 20] * 3))
        job = self.detach(1, SAVES)
        self.ready(job, 1)
        self.assertTrue(self.record(job)["socket"].startswith(self.job_folder(job)))
        self.assertGreater(len(self.record(job)["socket"]), 108)
        self.assertIn(f"{job}: stopped, exit code 75", self.run_it("stop", job, code=0).out)

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root and setpriv")
    def test_another_user_gets_no_answer(self):
        job = self.detach(1, SAVES)
        self.ready(job, 1)
        path = self.record(job)["socket"]
        # As if all modes had been opened by mistake: the peer's user is looked at, too.
        for name in (self.folder, self.env["XDG_RUNTIME_DIR"], os.path.dirname(path)):
            os.chmod(name, 0o755)
        os.chmod(path, 0o666)
        script = ("import socket, sys\n"
                  "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
                  "try:\n"
                  "  s.sendall(b'{\"ask\":\"stop\",\"now\":true,\"grace_ms\":null}\\n'); print(s.recv(100))\n"
                  "except OSError: print(b'')\n")
        ask = [sys.executable, "-c", script, path]
        other = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *ask],
                               capture_output=True, timeout=LIMIT_S, check=True)
        self.assertEqual(other.stdout, b"b''\n")
        self.assertEqual(self.listed(job)["condition"], "living")
        ours = subprocess.run(ask, capture_output=True, timeout=LIMIT_S, check=True)
        self.assertIn(b"accepted", ours.stdout)
        self.wait_until(lambda: self.listed(job)["condition"] == "ended", "the end of the job")


class Logs(JobsTest):
    def test_follow_until_the_job_has_ended(self):
        gate = self.path("gate")
        os.mkfifo(gate)
        job = self.detach(1, f"echo ready; read word < {gate}; seq 100000; exit 3")
        self.ready(job, 1)
        follower = self.start("logs", "-f", job)
        rank = self.start("logs", "-f", job, "--rank", "0")
        self.assertEqual(follower.stdout.readline(), b"ready\n")
        with open(gate, "w", encoding="utf-8") as file:
            file.write("go\n")
        numbers = "".join(f"{i}\n" for i in range(1, 100001))
        outcome = self.finish(follower)
        self.assertEqual(outcome.code, 0)
        self.assertTrue(outcome.out.startswith(numbers + "dslaunch: rank 0 on localhost failed first: exit code 3"))
        outcome = self.finish(rank)
        self.assertEqual((outcome.code, outcome.out), (0, "ready\n" + numbers))

    def test_following_a_lost_job_fails(self):
        job = self.detach(1, STUBBORN)
        self.ready(job, 1)
        process = self.start("logs", "-f", job)
        self.assertEqual(process.stdout.readline(), b"ready 0\n")
        os.kill(self.record(job)["supervisor"]["pid"], signal.SIGKILL)
        outcome = self.finish(process)
        self.assertEqual(outcome.code, 69, str(outcome))
        self.assertIn("did not record the job's end", outcome.err)
        self.run_it("jobs", code=0)  # removes the socket

    def test_without_a_reader_logs_end_with_sigpipe(self):
        """Also below a parent that ignores SIGPIPE, as Python does. A job that says nothing more keeps nobody here."""
        job = self.detach(1, "echo ready; exec sleep 1000")
        self.ready(job, 1)
        read, write = os.pipe()
        os.close(read)
        self.addCleanup(os.close, write)
        for command in (["logs", job], ["logs", "-f", job], ["jobs"], ["jobs", "--json"], ["jobs", job]):
            with self.subTest(command=command):
                outcome = subprocess.run([DSLAUNCH, *command], stdout=write, stderr=subprocess.PIPE, env=self.env,
                                         timeout=LIMIT_S, restore_signals=False)
                self.assertEqual((outcome.stderr, outcome.returncode), (b"", -signal.SIGPIPE))
        following = self.start("logs", "-f", job, restore_signals=False)
        self.assertEqual(following.stdout.readline(), b"ready\n")
        following.stdout.close()
        self.assertEqual((following.stderr.read(), following.wait(LIMIT_S)), (b"", -signal.SIGPIPE))
        following.stderr.close()
        self.running.remove(following)
        self.run_it("stop", job, code=0)

    def test_ranks_logs_are_in_the_run_directory(self):
        self.exec_sh(2, "echo out $RANK; echo err $RANK >&2", "--run_dir", self.path("run"))
        self.assertEqual(sorted(self.read(self.path("run/logs/localhost.1.log")).split("\n")), ["", "err 1", "out 1"])
        outcome = self.run_it("logs", "last", "--rank", "1", code=0)
        self.assertEqual(outcome.out, self.read(self.path("run/logs/localhost.1.log")))
        self.assertIn("0 to 1", self.run_it("logs", "last", "--rank", "2", code=64).err)
        shutil.rmtree(self.path("run"))
        self.assertIn("localhost.1.log", self.run_it("logs", "last", "--rank", "1", code=66).err)


    def test_a_small_stack_is_enough(self):
        with open(DSLAUNCH, "rb") as program:
            if b"__sanitizer" in program.read():
                self.skipTest("a sanitizer's frames are larger")

        def limited():
            resource.setrlimit(resource.RLIMIT_STACK, (64 << 10, resource.getrlimit(resource.RLIMIT_STACK)[1]))

        self.run_it(*self.exec_words(2, "echo out $RANK"), code=0, preexec_fn=limited)
        for command in ("logs", "attach"):
            self.assertIn("out 1", self.run_it(command, "last", code=0, preexec_fn=limited).out)


class Attached(JobsTest):
    def test_earlier_output_then_live_and_the_jobs_exit_code(self):
        gate = self.path("gate")
        os.mkfifo(gate)
        job = self.detach(1, f"seq 50000; echo ready; read word < {gate}; echo after; exit 5")
        self.ready(job, 1)
        process = self.start("attach", job)
        for number in range(1, 50001):
            self.assertEqual(process.stdout.readline(), b"%d\n" % number)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        with open(gate, "w", encoding="utf-8") as file:
            file.write("go\n")
        outcome = self.finish(process)
        self.assertTrue(outcome.out.startswith("after\n"))
        self.assertEqual(outcome.code, 5, str(outcome))
        late = self.run_it("attach", job, code=5)
        self.assertIn("after\n", late.out)

    def test_ctrl_c_detaches_and_the_job_continues(self):
        job = self.detach(1, SAVES)
        for number in (signal.SIGINT, signal.SIGQUIT):
            process = self.start("attach", job, preexec_fn=without_core)
            self.assertEqual(process.stdout.readline(), b"ready 0\n")
            process.send_signal(number)
            outcome = self.finish(process)
            self.assertEqual(outcome.code, 0, str(outcome))
            self.assertIn("detached", outcome.err)
            self.assertEqual(self.listed(job)["condition"], "living")
        self.run_it("stop", job, code=0)

    def test_without_the_jobs_socket_its_console_is_followed(self):
        """The end of a login session takes XDG_RUNTIME_DIR away, and the job's socket with it."""
        gate = self.path("gate")
        os.mkfifo(gate)
        job = self.detach(1, f"echo ready; read word < {gate}; echo word $word; exit 3")
        self.ready(job, 1)
        os.unlink(self.record(job)["socket"])
        process = self.start("attach", job)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        with open(gate, "w", encoding="utf-8") as file:
            file.write("go\n")
        outcome = self.finish(process)
        self.assertEqual(outcome.code, 3, str(outcome))
        self.assertIn("word go", outcome.out)
        self.assertIn("no answer at the job's socket", outcome.err)

    def test_without_a_reader_attach_ends(self):
        job = self.detach(1, "echo ready; while :; do echo more; sleep 0.05; done")
        self.ready(job, 1)
        process = self.start("attach", job)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.stdout.close()
        self.assertEqual((process.stderr.read(), process.wait(timeout=LIMIT_S)), (b"", -signal.SIGPIPE))
        process.stderr.close()
        self.running.remove(process)
        with open("/dev/full", "wb") as full:
            outcome = subprocess.run([DSLAUNCH, "attach", job], stdout=full, stderr=subprocess.PIPE, env=self.env,
                                     timeout=LIMIT_S)
        self.assertEqual(outcome.returncode, 74, outcome.stderr)
        self.assertIn(b"standard output", outcome.stderr)
        self.run_it("stop", job, code=0)

    def test_a_client_that_does_not_read_delays_nothing(self):
        gate = self.path("gate")
        os.mkfifo(gate)
        job = self.detach(1, f"echo ready; read word < {gate}; yes | head -c 20000000")
        self.ready(job, 1)
        process = self.start("attach", job)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.send_signal(signal.SIGSTOP)
        with open(gate, "w", encoding="utf-8") as file:
            file.write("go\n")
        self.wait_until(lambda: self.listed(job)["condition"] == "ended", "the end of the job")
        process.send_signal(signal.SIGCONT)
        outcome = self.finish(process)
        self.assertEqual((outcome.code, len(outcome.out)), (0, 20000000), outcome.err)

    def test_to_a_foreground_job(self):
        process = self.start(*self.exec_words(1, SAVES))
        self.assertEqual(process.stdout.readline(), b"ready 0\n")
        watcher = self.start("attach", "last")
        self.assertEqual(watcher.stdout.readline(), b"ready 0\n")
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(process).code, 130)
        outcome = self.finish(watcher)
        self.assertEqual(outcome.code, 130)
        self.assertIn("saved", outcome.out)


class Stacks(JobsTest):
    HANGS = "echo ready; [ $RANK = 1 ] && kill -STOP $$; exec sleep 1000"

    def tearDown(self):
        for job in json.loads(self.run_it("jobs", "--json", code=0).out)["jobs"]:
            self.run_it("stop", "--now", job["job_id"], code=0)
        super().tearDown()

    def debugger(self, script):
        """In the place of gdb on the hosts of the jobs that follow."""
        folder = self.make("debugger")
        self.write(os.path.join(folder, "gdb"), "#!/bin/sh\n" + script)
        os.chmod(os.path.join(folder, "gdb"), 0o755)
        self.env["PATH"] = f"{folder}:{os.environ['PATH']}"

    def hanging_job(self, world=3):
        job = self.detach(world, self.HANGS)
        self.ready(job, world)
        ranks = [rank["pid"] for rank in self.listed(job, job)["ranks"]]
        self.wait_until(lambda: [self.read(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[0] for pid in ranks]
                        == ["T" if rank == 1 else "S" for rank in range(world)]
                        and self.read(f"/proc/{ranks[0]}/comm") == "sleep\n", "one rank that is stopped, others that sleep")
        return job

    def test_without_a_debugger_the_kernels_view_is_shown(self):
        self.debugger("echo 'Could not attach to process.' >&2; echo 'ptrace: Operation not permitted.' >&2; exit 1")
        job = self.hanging_job()
        text = self.run_it("stacks", job, code=0).out
        self.assertRegex(text, r"ranks 0, 2 \(same stack\) on localhost, the kernel's view\n"
                               r"  note: gdb failed: ptrace: Operation not permitted\..*\n"
                               r"  process sleep\n    main thread 'sleep' sleeps, in clock_nanosleep")
        self.assertRegex(text, r"rank 1 on localhost, process \d+, the kernel's view\n(  note: .*\n)?"
                               r"  process sh, which is stopped, e.g. by SIGSTOP\n")

    def test_equal_stacks_are_shown_once(self):
        self.debugger('shift $(($# - 3)); echo noise; echo "Thread 1 (Thread 0x7f$1 (LWP $1)):"; echo "#0  0x00$1 in wait ()"; '
                      'echo "[Inferior 1 (process $1) detached]"')
        job = self.hanging_job()
        document = json.loads(self.run_it("stacks", job, "--json", "--rank", "0,2", code=0).out)
        (group,) = document["stacks"]
        ranks = {rank["rank"]: rank["pid"] for rank in self.listed(job, job)["ranks"]}
        self.assertEqual(document["job_id"], job)
        self.assertEqual([(each["rank"], each["host"], each["pid"]) for each in group["ranks"]],
                         [(0, "localhost", ranks[0]), (2, "localhost", ranks[2])])
        self.assertEqual((group["source"], group["notes"], document["missing"]), ("gdb", [], []))
        self.assertEqual(group["text"].splitlines()[1:],
                         [f"  Thread 1 (Thread 0x7f{ranks[0]} (LWP {ranks[0]})):", f"  #0  0x00{ranks[0]} in wait ()"])

    def test_the_default_is_the_running_job(self):
        self.assertIn("no job is running", self.run_it("stacks", code=66).err)
        self.debugger("exit 1")
        job = self.hanging_job(2)
        ended = self.detach(1, "true")
        self.run_it("attach", ended, code=0)
        outcome = self.run_it("stacks", code=0)
        self.assertIn(f"dslaunch: job {job}\n", outcome.err)
        self.assertIn("rank 1 on localhost", outcome.out)
        self.assertIn("has ranks 0 to 1", self.run_it("stacks", job, "--rank", "2", code=64).err)
        self.assertIn("has ended", self.run_it("stacks", ended, code=69).err)
        self.run_it("stacks", "nosuch", code=66)

    def test_a_rank_that_has_ended_has_no_stack(self):
        self.debugger("exit 1")
        job = self.detach(2, "echo ready; [ $RANK = 0 ] || exec sleep 1000")
        self.wait_until(lambda: self.listed(job, job)["ranks"][0]["state"] == "ended", "an end of rank 0")
        self.assertIn("rank 0: no stack: it has ended: exit code 0\n", self.run_it("stacks", job, code=0).out)


class Stuck(JobsTest):
    """Ranks in state D, which no signal ends: frozen ones."""

    def start_with_frozen_rank(self, cgroup, *options):
        script = (f"echo $$ > {self.path('pid')}$RANK; [ $RANK = 0 ] && {{ read word < {self.path('go')}; exit 3; }}; "
                  "exec sleep 1000")
        os.mkfifo(self.path("go"))
        process = self.start(*self.exec_words(2, script, "--grace", "0", *options))
        self.wait_until(lambda: all(os.path.exists(self.path(pid)) and self.read(self.path(pid)) for pid in ("pid0", "pid1")))
        pid = int(self.read(self.path("pid1")))
        cgroup.freeze(pid)
        return process, pid

    def test_an_unkillable_rank_is_reported_and_delays_nothing(self):
        with FrozenCgroup() as cgroup:
            process, pid = self.start_with_frozen_rank(cgroup, "--json")
            with open(self.path("go"), "w", encoding="utf-8") as go:
                go.write("go\n")
            outcome = self.finish(process)
            self.assertEqual(outcome.code, 3, str(outcome))
            text = rf"rank 1 on localhost: process {pid} is stuck in the kernel \(state D, wait channel \w+\) and does not end"
            self.assertRegex(outcome.err, "dslaunch: " + text)
            self.assertNotIn("ended with its agent", outcome.err)
            report = json.loads(outcome.out)
            self.assertEqual(report["first_failure"]["rank"], 0)
            self.assertEqual([(each["rank"], each["host"], each["pid"], each["state"]) for each in report["stuck"]],
                             [(1, "localhost", pid, "D")])
            self.assertEqual((report["ranks"][1]["exit_code"], report["ranks"][1]["stuck"]["state"]), (None, "D"))
            self.assertRegex(self.run_it("jobs", "last", code=0).out, "stuck +" + text)
            stopped = self.run_it("stop", "last", code=69)
            self.assertIn("had ended already, exit code 3; 1 of its process(es) cannot be ended", stopped.out)
            self.assertRegex(stopped.err, text)
        self.wait_until(lambda: not os.path.exists(f"/proc/{pid}"))
        self.assertTrue(self.run_it("stop", "last", code=0).out.endswith("had ended already, exit code 3\n"))

    def test_stop_names_unkillable_processes(self):
        with FrozenCgroup() as cgroup:
            process, pid = self.start_with_frozen_rank(cgroup)
            stopped = self.run_it("stop", "--json", "last", code=69)
            self.assertEqual(self.finish(process).code, 137)
            (job,) = json.loads(stopped.out)["stopped"]
            self.assertEqual([(each["rank"], each["pid"], each["state"]) for each in job["stuck"]], [(1, pid, "D")])
            self.assertIn("state D, wait channel", stopped.err)


class Stopped(JobsTest):
    def test_now_kills_at_once(self):
        job = self.detach(2, STUBBORN, "--grace", "1000")
        self.ready(job, 2)
        self.run_it("stop", "--now", job, code=0)
        self.assertIn("stopped by 'dslaunch stop'", self.record(job)["end"]["first_cause"])

    def test_stop_without_pidfds(self):
        script = "setsid sleep 1000 >/dev/null 2>&1 & " + SAVES
        how = {"code": 0, "preexec_fn": refuse_process_descriptors}
        job = json.loads(self.run_it(*self.exec_words(1, script, "--detach", "--json"), **how).out)["job_id"]
        self.ready(job, 1)
        self.assertIn(f"{job}: stopped, exit code 75", self.run_it("stop", job, **how).out)
        self.wait_until(lambda: not self.tagged_processes(), "the end of what a rank left behind", 10)

    def test_its_own_grace_and_a_second_stop(self):
        job = self.detach(1, STUBBORN, "--grace", "1000")
        self.ready(job, 1)
        first = self.start("stop", job)
        self.wait_until(lambda: self.record(job)["state"] == "stopping", "a job that is stopping")
        self.run_it("stop", "--grace", "0.1", job, code=0)
        self.assertEqual(self.finish(first).code, 0)
        self.assertEqual(self.record(job)["end"]["exit_code"], 137)

    def test_several_jobs_and_one_that_had_ended(self):
        self.exec_sh(1, "exit 4", code=4)
        ended = json.loads(self.run_it("jobs", "--json", code=0).out)["jobs"][0]["job_id"]
        jobs = [self.detach(1, SAVES) for _ in range(2)]
        for job in jobs:
            self.ready(job, 1)
        document = json.loads(self.run_it("stop", "--json", ended, *jobs, code=0).out)
        self.assertEqual([(entry["job_id"], entry["exit_code"], entry["ended_before"]) for entry in document["stopped"]],
                         [(ended, 4, True), (jobs[0], 75, False), (jobs[1], 75, False)])

    def test_a_foreground_job_that_is_suspended(self):
        process = self.start(*self.exec_words(1, SAVES))
        self.assertEqual(process.stdout.readline(), b"ready 0\n")
        process.send_signal(signal.SIGSTOP)
        self.wait_until(lambda: "T (stopped)" in self.read(f"/proc/{process.pid}/status"), "a suspended launcher")
        self.assertIn("suspended", self.run_it("stop", "last", code=0).err)
        self.assertEqual(self.finish(process).code, 75)

    def test_a_supervisor_that_does_not_answer_is_signalled(self):
        """One of another version, say; here somebody else at the place of its socket."""
        job = self.detach(1, SAVES)
        self.ready(job, 1)
        path = self.record(job)["socket"]
        os.unlink(path)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            stop = self.start("stop", job)
            with listener.accept()[0] as client:
                client.recv(4096)
                client.sendall(b'{"refused": "what is that?"}\n')
                self.assertIn("exit code 75", self.finish(stop).out)

    def test_one_unknown_name_stops_nothing(self):
        job = self.detach(1, SAVES)
        self.ready(job, 1)
        self.run_it("stop", job, "nothing", code=66)
        self.assertEqual(self.listed(job)["condition"], "living")
        self.run_it("stop", job, code=0)


class OutputOptions(JobsTest):
    def test_equal_lines_are_deduplicated_and_logs_are_complete(self):
        outcome = self.exec_sh(4, "echo same; echo own $RANK; echo same", "--fold")
        for rank in range(4):
            log = self.read(glob.glob(self.path(f"state/dslaunch/jobs/*/logs/localhost.{rank}.log"))[0])
            self.assertEqual(log, f"same\nown {rank}\nsame\n")
        # Whatever folded: every rank's lines, in its order.
        seen = {rank: [] for rank in range(4)}
        for line in outcome.out.splitlines():
            folded = re.match(r"\[ranks ([0-9, -]+)\] (.*)", line)
            if folded:
                for part in folded.group(1).split(", "):
                    first, last = (part.split("-") * 2)[:2]
                    for rank in range(int(first), int(last) + 1):
                        seen[rank].append(folded.group(2))
            else:
                rank, text = re.match(r"localhost:(\d)\| (.*)", line).groups()
                seen[int(rank)].append(text)
        self.assertEqual(seen, {rank: ["same", f"own {rank}", "same"] for rank in range(4)})

    def on_a_terminal(self, *words):
        reader, terminal = pty.openpty()
        process = subprocess.Popen([DSLAUNCH, *words], stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal,
                                   env=self.env)
        os.close(terminal)
        shown = b""
        while select.select([reader], [], [], LIMIT_S)[0]:
            try:
                shown += os.read(reader, 65536)
            except OSError:
                break
        os.close(reader)
        self.assertEqual(process.wait(LIMIT_S), 0)
        return shown.decode()

    def test_deduplication_is_for_terminals(self):
        words, plain = self.exec_words(2, "echo same"), self.exec_words(2, "echo same", "--no_fold")
        # Two ranks of a busy machine may miss each other now and then.
        self.assertTrue(any("[ranks 0-1] same" in self.on_a_terminal(*words) for _ in range(20)))
        for _ in range(3):
            self.assertNotIn("[ranks", self.on_a_terminal(*plain))
            self.assertNotIn("[ranks", self.exec_sh(2, "echo same").out)

    def test_redirects_and_tee_use_torchruns_layout(self):
        logs = self.path("logs")
        outcome = self.exec_sh(3, "echo out $RANK; echo err $RANK >&2", "--log_dir", logs, "--redirects", "0:3,1:1",
                               "--tee", "2:2")
        self.assertEqual(outcome.out, "localhost:2| out 2\n")
        self.assertEqual(sorted(outcome.err.splitlines()), ["localhost:1| err 1", "localhost:2| err 2"])
        job = os.listdir(logs)[0]
        found = {os.path.relpath(path, f"{logs}/{job}/attempt_0"): self.read(path)
                 for path in glob.glob(f"{logs}/{job}/attempt_0/*/*")}
        self.assertEqual(found, {"0/stdout.log": "out 0\n", "0/stderr.log": "err 0\n", "1/stdout.log": "out 1\n",
                                 "2/stderr.log": "err 2\n"})
        self.assertIn("out 0", self.run_it("logs", "last", "--rank", "0", code=0).out)

    def test_one_file_per_rank_and_filtered_ranks(self):
        outcome = self.exec_sh(3, "echo out $RANK; echo err $RANK >&2", "--enable_each_rank_log", self.path("each"),
                               "--local_ranks_filter", "2")
        self.assertEqual((outcome.out, outcome.err), ("localhost:2| out 2\n", "localhost:2| err 2\n"))
        names = sorted(os.listdir(self.path("each")))
        for rank, name in enumerate(names):
            self.assertRegex(name, rf"^\d{{14}}_rank{rank}\.log$")
            self.assertEqual(sorted(self.read(self.path("each"), name).split()), sorted(f"out {rank} err {rank}".split()))
        self.assertEqual(len(names), 3)

    def test_the_launchers_pid(self):
        job = self.detach(1, SAVES, "--save_pid")
        pid = int(self.read(self.job_folder(job), "launcher.pid"))
        self.assertEqual(pid, self.record(job)["supervisor"]["pid"])
        self.ready(job, 1)
        self.run_it("stop", job, code=0)
        self.assertFalse(os.path.exists(os.path.join(self.job_folder(job), "launcher.pid")))
        outcome = self.exec_sh(1, "true", "--save_pid")
        self.assertRegex(outcome.out, r"^launcher pid: \d+\n$")

    def test_exec_honours_quiet_and_verbose(self):
        quiet, verbose = [self.exec_sh(1, "echo kept", "--save_pid", option) for option in ("--quiet", "--verbose")]
        self.assertRegex(quiet.out, r"^launcher pid: \d+\nkept\n$")
        self.assertEqual(quiet.err, "")
        restarted = self.exec_sh(1, "test $TORCHELASTIC_RESTART_COUNT = 1 || exit 3", "--quiet", "--max_restarts", "1")
        self.assertRegex(restarted.err, r"exit code 3")
        self.assertNotIn("restart 1 of 1", restarted.err)
        self.assertRegex(verbose.err, r"\[\d+\.\d{3} s\] the launcher's pid is in ")


if __name__ == "__main__":
    unittest.main(verbosity=2)
