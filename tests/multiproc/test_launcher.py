#!/usr/bin/env python3
"""dslaunch as its users meet it: exit codes, the first failure, signals, output, and nothing left behind.

The program comes from DSLAUNCH_BIN, the folder of dslaunch. Ranks are small shell and Python scripts started by `exec`.
Every process of a test carries a mark in its environment, which is how leftovers are found."""
import contextlib
import json
import os
import pty
import re
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import unittest
import zipfile

from tagged_case import DSLAUNCH, LIMIT_S, TaggedTest, pace


class Outcome:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __str__(self):
        return f"exit code {self.code}\n--- stdout\n{self.out!r}\n--- stderr\n{self.err.decode(errors='replace')}"


class LauncherTest(TaggedTest):
    def tearDown(self):
        self.assertEqual(self.end_processes(), {}, "processes are left behind")
        self.assertEqual(os.listdir(self.temp), [], "temporary files are left behind")
        shutil.rmtree(self.folder)

    def start(self, *arguments, env=None, stdout=subprocess.PIPE):
        process = subprocess.Popen([DSLAUNCH, *arguments], stdin=subprocess.DEVNULL, stdout=stdout,
                                   stderr=subprocess.PIPE, env=env or self.environment())
        self.running.append(process)
        return process

    def finish(self, process, timeout=LIMIT_S):
        out, err = process.communicate(timeout=timeout)
        self.running.remove(process)
        return Outcome(process.returncode, out, err)

    def press_until(self, process, condition):
        """Ctrl-C again and again: one at once after another is the same for the launcher."""
        def pressed():
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            return condition()
        self.wait_until(pressed, "the end after a further Ctrl-C", 15)

    def launch(self, *arguments, env=None):
        return self.finish(self.start(*arguments, env=env))

    def exec_sh(self, world, script, *options):
        return self.launch("exec", "--device", "cpu", "--num_gpus", str(world), *options, "--", "sh", "-c", script)

    def start_sh(self, world, script, *options):
        return self.start("exec", "--device", "cpu", "--num_gpus", str(world), *options, "--", "sh", "-c", script)

    def lines(self, process, count, stream="stdout"):
        return [getattr(process, stream).readline().decode() for _ in range(count)]

    def agent_of(self, process):
        agents = [pid for pid, command in self.tagged_processes().items() if command.rstrip().endswith("dslaunch agent")]
        self.assertEqual(len(agents), 1)
        return agents[0]

    def free_port_taken(self):
        """A listening socket and its number."""
        listener = socket.socket()
        listener.bind(("0.0.0.0", 0))
        listener.listen()
        self.addCleanup(listener.close)
        return listener.getsockname()[1]


class ExitCodes(LauncherTest):
    def test_success_only_when_every_rank_succeeds(self):
        self.assertEqual(self.exec_sh(3, "exit 0").code, 0)
        self.assertEqual(self.exec_sh(3, "[ $RANK != 2 ] || exit 5").code, 5)

    def test_the_exit_code_is_the_programs(self):
        for code in (1, 3, 65, 71, 75, 255):
            with self.subTest(code=code):
                self.assertEqual(self.exec_sh(1, f"exit {code}").code, code)

    def test_min_nodes_without_restarts_has_no_effect(self):
        for options, is_told in (["--min_nodes", "1"], True), (["--min_nodes", "1", "--max_restarts", "1"], False):
            outcome = self.exec_sh(1, "exit 0", *options)
            self.assertEqual((outcome.code, b"has no effect without --max_restarts" in outcome.err), (0, is_told))

    def test_program_not_found_and_not_executable(self):
        outcome = self.launch("exec", "--", "no-such-program-here")
        self.assertEqual(outcome.code, 127, str(outcome))
        self.assertIn(b"no-such-program-here", outcome.err)
        with open(self.path("plain"), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n")
        outcome = self.launch("exec", "--device", "cpu", "--num_gpus", "4", "--", self.path("plain"))
        self.assertEqual(outcome.code, 126, str(outcome))
        self.assertIn(b"plain", outcome.err)

    def in_removed_folder(self, *words):
        os.mkdir(self.path("gone"))
        script = f"cd {self.path('gone')} && rmdir {self.path('gone')} && exec \"$@\""
        return subprocess.run(["sh", "-c", script, "-", DSLAUNCH, *words], env=self.environment(), capture_output=True,
                              timeout=LIMIT_S)

    def test_in_a_removed_directory(self):
        cases = [(66, [], b"give --chdir DIR"), (0, ["--chdir", self.folder], b""),
                 (66, ["--chdir", self.folder, "--run_dir", "runs"], b"give runs as an absolute path"),
                 (66, ["--chdir", self.folder, "--log_dir", "logs"], b"give logs as an absolute path"),
                 (66, ["--chdir", self.folder, "--venv", "env"], b"give env as an absolute path")]
        for code, options, words in cases:
            with self.subTest(options=options):
                outcome = self.in_removed_folder("exec", "--device", "cpu", *options, "--", "true")
                self.assertEqual(outcome.returncode, code, outcome.stderr)
                self.assertIn(words, outcome.stderr)

    def test_commands_on_files_in_a_removed_directory(self):
        """They become dsworker, which MKL ends with 2 where there is no working folder."""
        for words in (["consolidate", self.folder, self.path("out.pt")], ["import", self.folder, self.path("out")],
                      ["infer", "--checkpoint", self.folder, "--prompt", "a"]):
            with self.subTest(words=words):
                outcome = self.in_removed_folder(*words)
                self.assertEqual(outcome.returncode, 66, outcome.stderr)
                self.assertIn(b"has it been removed? cd to another directory", outcome.stderr)

    def test_death_by_signal_is_128_plus_its_number(self):
        self.assertEqual(self.exec_sh(1, "kill -SEGV $$").code, 139)

    def test_time_limit(self):
        with pace.at_most(15):
            outcome = self.exec_sh(2, "sleep 1000", "--timeout", "500ms")
        self.assertEqual(outcome.code, 124, str(outcome))
        self.assertIn(b"--timeout", outcome.err)

    def test_a_low_limit_of_open_files_is_reported_last(self):
        """Whether the launcher or the agent meets the limit, in whatever it does then."""
        def start(limit):
            return subprocess.Popen([DSLAUNCH, "exec", "--device", "cpu", "--num_gpus", "4", "--", "sh", "-c", "sleep 0.1"],
                                    env=self.environment(), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))

        processes = {limit: start(limit) for limit in range(8, 48, 2)}
        self.running += processes.values()
        codes = {}
        for limit, process in processes.items():
            with self.subTest(limit=limit):
                outcome = self.finish(process)
                codes[limit] = outcome.code
                if outcome.code != 0:
                    self.assertEqual(outcome.code, 69, str(outcome))
                    self.assertRegex(outcome.err.splitlines()[-1].lower(), b"too many open files|limit of open files is too low", str(outcome))
        self.assertEqual(codes[46], 0)
        self.assertEqual(codes[8], 69)

    def test_a_time_limit_covers_all_attempts(self):
        outcome = self.exec_sh(1, "sleep 0.1; exit 4", "--timeout", "1s", "--max_restarts", "1000")
        self.assertEqual(outcome.code, 124, str(outcome))  # whether it passes in an attempt or while a failure is told
        self.assertIn(b"the time limit (--timeout) passed", outcome.err)

    def test_extreme_durations(self):
        for limit in ("0", "10000d"):
            self.assertEqual(self.exec_sh(1, "exit 3", "--timeout", limit).code, 3)

    def test_a_missing_directory(self):
        self.assertEqual(self.launch("exec", "--chdir", self.path("none"), "--", "true").code, 66)


class FirstFailure(LauncherTest):
    def test_is_reported_last_with_its_last_output(self):
        outcome = self.exec_sh(3, "if [ $RANK = 1 ]; then echo alas >&2; exit 7; fi; sleep 1000")
        self.assertEqual(outcome.code, 7, str(outcome))
        story = outcome.err.decode().rstrip().splitlines()
        self.assertIn("alas", story[-1])
        self.assertIn("rank 1 on localhost failed first: exit code 7", "\n".join(story[-4:]))
        self.assertIn("localhost.1.log", "\n".join(story[-4:]))
        self.assertIn("ranks 0, 2: stopped by dslaunch", outcome.err.decode())

    def test_a_rank_killed_from_outside(self):
        process = self.start_sh(2, "[ $RANK = 0 ] || echo $$; exec sleep 1000")
        line = process.stdout.readline().decode()
        with pace.at_most(5):
            os.kill(int(line.split("| ")[1]), signal.SIGKILL)
            outcome = self.finish(process)
        self.assertEqual(outcome.code, 137, str(outcome))
        self.assertIn(b"rank 1 on localhost failed first: killed by SIGKILL (signal 9)", outcome.err)

    def test_many_ranks_with_the_same_exit_are_reported_as_ranges(self):
        outcome = self.exec_sh(12, f"echo x >> {self.path('up')}; [ $RANK = 5 ] || exec sleep 1000; "
                                   f"while [ $(wc -l < {self.path('up')}) -lt 12 ]; do sleep 0.05; done; exit 3")
        self.assertEqual(outcome.code, 3, str(outcome))
        self.assertIn(b"dslaunch: ranks 0-4, 6-11: stopped by dslaunch", outcome.err)

    def test_the_exception_of_a_python_program_is_reported(self):
        script = ("import json, os, sys\n"
                  "json.dump({'message': {'message': 'ValueError: too odd'}}, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w'))\n"
                  "sys.exit(1)\n")
        outcome = self.launch("exec", "--", sys.executable, "-c", script)
        self.assertEqual(outcome.code, 1, str(outcome))
        self.assertIn(b"exit code 1: ValueError: too odd", outcome.err)

    def test_a_rank_that_replaces_its_error_file(self):
        for script in ("mkfifo $F", "mkdir $F", "ln -s /dev/zero $F", "rm -rf $(dirname $F)"):
            with self.subTest(script=script):
                outcome = self.exec_sh(1, f"F=$TORCHELASTIC_ERROR_FILE; {script}; exit 3")
                self.assertEqual(outcome.code, 3, str(outcome))

    def test_json_report(self):
        outcome = self.exec_sh(2, "echo chatter; [ $RANK = 0 ] || exit 4; exec sleep 1000", "--json")
        self.assertEqual(outcome.code, 4, str(outcome))
        document = json.loads(outcome.out)
        self.assertEqual(document["exit_code"], 4)
        self.assertEqual(document["first_failure"]["rank"], 1)
        self.assertTrue(document["ranks"][0]["stopped_by_us"])
        self.assertEqual(document["host_failures"], [])
        self.assertIn(b"chatter", outcome.err)

    def test_the_document_begins_a_new_line(self):
        both = subprocess.run([DSLAUNCH, "exec", "--device", "cpu", "--num_gpus", "1", "--json", "--", "printf", "half"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=self.environment(), timeout=LIMIT_S).stdout
        self.assertTrue(both.startswith(b"half\n{"), both)

    def test_options_for_missing_local_ranks_are_reported(self):
        outcome = self.exec_sh(2, "true", "--local_ranks_filter", "0,5", "--tee", "1:1,7:3", "--log_dir", self.path("teed"))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual([line.split(b": ", 2)[2] for line in outcome.err.splitlines() if b"no host has" in line],
                         [b"--local_ranks_filter: no host has a local rank 5", b"--tee: no host has a local rank 7"])


class Stopping(LauncherTest):
    SAVES = "trap 'echo saved; exit 75' TERM; echo ready; while :; do sleep 0.05; done"
    STUBBORN = "trap '' TERM INT; echo ready; while :; do sleep 0.05; done"

    def test_one_ctrl_c_lets_the_ranks_save(self):
        process = self.start_sh(2, self.SAVES)
        self.lines(process, 2)
        process.send_signal(signal.SIGINT)
        outcome = self.finish(process)
        self.assertEqual(outcome.code, 130, str(outcome))
        self.assertEqual(outcome.out.count(b"saved"), 2, str(outcome))
        self.assertIn(b"Ctrl-C", outcome.err)

    def test_repeated_copies_of_one_ctrl_c_count_once(self):
        """`timeout -s INT` sends it to the launcher, and then to the whole group."""
        process = self.start_sh(2, self.SAVES.replace("trap '", "trap 'sleep 0.3; "))
        self.lines(process, 2)
        while not select.select([process.stderr], [], [], 0)[0]:  # until it has acted upon the first of them
            process.send_signal(signal.SIGINT)
        outcome = self.finish(process)
        self.assertEqual(outcome.code, 130, str(outcome))
        self.assertEqual(outcome.out.count(b"saved"), 2, str(outcome))
        self.assertEqual(outcome.err.count(b"Ctrl-C again"), 1, str(outcome))

    def test_two_ctrl_c_end_at_once(self):
        process = self.start_sh(2, self.STUBBORN, "--grace", "1000")
        self.lines(process, 2)
        process.send_signal(signal.SIGINT)
        process.stderr.readline()  # it says that it stops: the first one was seen
        with pace.at_most(10):
            self.press_until(process, lambda: process.poll() is not None)
            outcome = self.finish(process)
        self.assertEqual(outcome.code, 130, str(outcome))

    def test_a_stop_request_during_a_failure_prevents_a_restart(self):
        """They have their grace then, which may be long."""
        script = (f"if [ $RANK = 0 ]; then while [ ! -e {self.path('up')} ]; do sleep 0.05; done; exit 3; fi; "
                  f"trap 'echo told' TERM; : > {self.path('up')}; while :; do sleep 0.05; done")
        interrupt, stop = lambda process: process.send_signal(signal.SIGINT), lambda _: self.launch("stop", "--now", "last")
        for ask, restarts, code in (interrupt, 1, 130), (stop, 1, 143), (interrupt, 0, 3):
            process = self.start_sh(2, script, "--grace", "1000", "--max_restarts", str(restarts))
            self.assertIn("told", self.lines(process, 1)[0])
            ask(process)
            outcome = self.finish(process)
            self.assertEqual(outcome.code, code, str(outcome))  # without a restart the failure is the job's end
            self.assertEqual(b"no restart: " in outcome.err, restarts > 0, str(outcome))
            os.unlink(self.path("up"))

    def test_ctrl_backslash_kills_at_once_and_is_reported(self):
        for before in ([], [signal.SIGINT]):
            with self.subTest(before=before):
                process = self.start_sh(2, self.STUBBORN, "--grace", "1000")
                self.lines(process, 2)
                for number in (*before, signal.SIGQUIT):
                    process.send_signal(number)
                    process.stderr.readline()  # it says that it was seen
                with pace.at_most(10):
                    outcome = self.finish(process)
                self.assertEqual(outcome.code, 130 if before else 131, str(outcome))
                self.assertEqual(self.tagged_processes(), {})
                job = json.loads(self.launch("jobs", "--json", "last").out)["jobs"][0]
                self.assertEqual((job["condition"], job["end"]["exit_code"]), ("ended", outcome.code))

    def test_all_ranks_share_one_grace_period(self):
        process = self.start_sh(4, self.STUBBORN, "--grace", "1")
        self.lines(process, 4)
        with pace.at_most(3):  # four in a row would take four
            process.send_signal(signal.SIGINT)
            self.assertEqual(self.finish(process).code, 130)

    def test_sigterm_gives_75_when_every_rank_could_save(self):
        process = self.start_sh(2, self.SAVES)
        self.lines(process, 2)
        process.send_signal(signal.SIGTERM)
        outcome = self.finish(process)
        self.assertEqual(outcome.code, 75, str(outcome))

    def test_a_ctrl_c_that_reaches_the_agent_first_counts_once(self):
        """`scancel -s INT`, where the launcher has started the agents under srun."""
        process = self.start_sh(2, self.SAVES.replace("trap '", "trap 'sleep 0.3; "))
        self.lines(process, 2)
        os.kill(self.agent_of(process), signal.SIGINT)
        process.stderr.readline()  # it says that it stops the ranks
        process.send_signal(signal.SIGINT)
        outcome = self.finish(process)
        self.assertEqual(outcome.out.count(b"saved"), 2, str(outcome))

    def test_a_signalled_agent_lets_the_ranks_save(self):
        """A host that goes down, a scheduler that signals the processes of a step."""
        process = self.start_sh(2, self.SAVES)
        self.lines(process, 2)
        os.kill(self.agent_of(process), signal.SIGTERM)
        outcome = self.finish(process)
        self.assertEqual((outcome.code, outcome.out.count(b"saved")), (75, 2), str(outcome))
        self.assertRegex(outcome.err.splitlines()[-1], b"the job ended: .*: the agent received SIGTERM")

    def test_sigterm_gives_the_cause_when_a_rank_could_not_save(self):
        process = self.start_sh(2, f"if [ $RANK = 0 ]; then {self.SAVES}; else echo ready; exec sleep 1000; fi")
        self.lines(process, 2)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(process).code, 143)

    def test_a_stopped_rank_is_ended_too(self):
        process = self.start_sh(2, "echo $$; exec sleep 1000")
        pids = [int(line.split("| ")[1]) for line in self.lines(process, 2)]
        os.kill(pids[0], signal.SIGSTOP)
        with pace.at_most(10):
            process.send_signal(signal.SIGTERM)
            self.assertEqual(self.finish(process).code, 143)

    def test_user_signals_reach_the_ranks(self):
        process = self.start_sh(2, "trap 'echo heard; exit 0' USR1; echo ready; while :; do sleep 0.05; done")
        self.lines(process, 2)
        process.send_signal(signal.SIGUSR1)
        outcome = self.finish(process)
        self.assertEqual((outcome.code, outcome.out.count(b"heard")), (0, 2), str(outcome))


class Restarts(LauncherTest):
    def read_until_second_pause(self, process):
        pauses = []
        while len(pauses) < 2:
            line = process.stderr.readline().decode()
            self.assertNotEqual(line, "", f"the job has ended after {pauses}")
            pauses += re.findall(r"restarting in ([\d.]+) s \(restart (\d+) of 1000\): the last attempt made no progress", line)
        return [(float(seconds), int(number)) for seconds, number in pauses]

    def job_of(self, word):
        (job,) = [job for job in json.loads(self.launch("jobs", "--json").out)["jobs"] if word in job["command"][-1]]
        return job["job_id"]

    def test_restart_pauses_grow_and_can_be_interrupted(self):
        ends = {130: (lambda process: process.send_signal(signal.SIGINT), b"interrupted by Ctrl-C"),
                143: (lambda _: self.launch("stop", self.job_of("tries143")), b"stopped by 'dslaunch stop'"),
                124: (lambda _: None, b"the time limit (--timeout) passed")}
        jobs = {code: self.start_sh(1, f"echo $TORCHELASTIC_RESTART_COUNT >> {self.path(f'tries{code}')}; exit 4",
                                    "--max_restarts", "1000", *(["--timeout", "2s"] if code == 124 else [])) for code in ends}
        for code, process in jobs.items():
            with self.subTest(code=code):
                pauses = self.read_until_second_pause(process)
                self.assertEqual([number for _, number in pauses], [2, 3])
                self.assertTrue(0.8 <= pauses[0][0] <= 1.2 and 1.6 <= pauses[1][0] <= 2.4, pauses)
                ask, words = ends[code]
                ask(process)
                outcome = self.finish(process)
                self.assertEqual(outcome.code, code, str(outcome))
                self.assertIn(b"no restart: " + words, outcome.err)
                with open(self.path(f"tries{code}"), encoding="utf-8") as file:
                    self.assertEqual(file.read().split(), ["0", "1", "2"])  # the pause did not pass


class NothingLeftBehind(LauncherTest):
    GRANDCHILD = "setsid sh -c \"trap '' TERM HUP; sleep 1000\" >/dev/null 2>&1 </dev/null & "

    def test_grandchildren_after_success_and_after_failure(self):
        for end in ("exit 0", "exit 3", "kill -9 $$"):
            with self.subTest(end=end):
                self.exec_sh(2, self.GRANDCHILD + end)
                self.assertEqual(self.tagged_processes(), {})

    def test_grandchildren_that_hold_the_output_open(self):
        with pace.at_most(15):
            outcome = self.exec_sh(2, "setsid sleep 1000 & echo said; exit 0")
        self.assertEqual((outcome.code, outcome.out.count(b"said")), (0, 2), str(outcome))

    def test_grandchildren_without_the_jobs_environment(self):
        process = self.start_sh(1, "env -i setsid sleep 1000.5 >/dev/null 2>&1 & echo $!; exit 0")
        pid = int(process.stdout.readline())
        self.assertEqual(self.finish(process).code, 0)
        self.assertFalse(os.path.exists(f"/proc/{pid}"))

    def test_hidden_processes_end_with_a_killed_agent(self):
        """An orphan without the job's environment; whoever is killed, the launcher is told and nothing stays."""
        hidden = self.path("hidden")
        process = self.start_sh(1, f"env -i setsid setsid sh -c 'trap \"\" TERM HUP; echo $$ > {hidden}; exec sleep 1000' & "
                                   f"while [ ! -s {hidden} ]; do sleep 0.01; done; echo up; exec sleep 500")
        self.lines(process, 1)
        with open(hidden, encoding="utf-8") as file:
            orphan = int(file.read())
        self.addCleanup(lambda: os.path.exists(f"/proc/{orphan}") and os.kill(orphan, signal.SIGKILL))
        os.kill(self.agent_of(process), signal.SIGKILL)
        outcome = self.finish(process)
        self.assertEqual(outcome.code, 69, str(outcome))
        self.assertIn(b"SIGKILL", outcome.err)
        self.assertFalse(os.path.exists(f"/proc/{orphan}"))

    def test_no_process_remains_two_seconds_after_the_launcher_was_killed(self):
        process = self.start_sh(3, self.GRANDCHILD + Stopping.STUBBORN)
        self.lines(process, 3)
        process.kill()
        process.wait()
        self.wait_until(lambda: self.tagged_processes() == {}, "an end of all processes", 2)
        self.wait_until(lambda: os.listdir(self.temp) == [], what="an empty temporary folder")

    def test_a_launcher_killed_while_it_starts(self):
        for delay in (0, 0.01, 0.03):
            with self.subTest(delay=delay):
                process = self.start_sh(3, Stopping.STUBBORN)
                time.sleep(delay)
                process.kill()
                process.wait()
                self.wait_until(lambda: self.tagged_processes() == {}, "an end of all processes", 5)

    def test_ranks_die_with_their_agent_and_that_is_reported(self):
        process = self.start_sh(2, self.GRANDCHILD + Stopping.STUBBORN)
        self.lines(process, 2)
        os.kill(self.agent_of(process), signal.SIGKILL)
        outcome = self.finish(process)
        self.assertEqual(outcome.code, 69, str(outcome))
        self.assertIn(b"lost localhost: the agent of this machine", outcome.err)
        self.assertEqual(self.tagged_processes(), {})

    def test_a_launcher_inside_another_job(self):
        inner = [DSLAUNCH, "exec", "--grace", "0.2", "--device", "cpu", "--num_gpus", "2", "--", "sh", "-c", Stopping.STUBBORN]
        process = self.start("exec", "--", *inner)
        self.lines(process, 2)
        process.send_signal(signal.SIGTERM)
        self.finish(process)
        self.wait_until(lambda: self.tagged_processes() == {}, "an end of the inner job", 5)


class Output(LauncherTest):
    def test_output_of_a_single_rank_is_unchanged(self):
        script = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 50 + b'no newline')"
        outcome = self.launch("exec", "--", sys.executable, "-c", script)
        self.assertEqual(outcome.out, bytes(range(256)) * 50 + b"no newline")

    def test_launcher_lines_do_not_split_a_single_ranks_line(self):
        for stream in ("", " >&2"):
            with self.subTest(stream=stream):
                process = subprocess.run([DSLAUNCH, "exec", "--device", "cpu", "--num_gpus", "1", "--", "sh", "-c",
                                          f"printf 'half a line'{stream}; exit 3"], env=self.environment(),
                                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                         timeout=LIMIT_S)
                self.assertEqual(process.stdout.splitlines()[0], b"half a line")
                self.assertTrue(process.stdout.splitlines()[1].startswith(b"dslaunch: "), process.stdout)
                self.assertEqual(self.launch("logs", "last").out, process.stdout)
        outcome = self.exec_sh(1, "printf 'half a line'; exit 3")  # into two pipes
        self.assertEqual(outcome.out, b"half a line")
        self.assertTrue(outcome.err.startswith(b"dslaunch: "), outcome.err)

    def run_on_terminal(self, *arguments):
        """Exit code and what a terminal gets."""
        reader, terminal = pty.openpty()
        self.addCleanup(os.close, reader)
        process = subprocess.Popen([DSLAUNCH, *arguments], env=self.environment(), stdin=subprocess.DEVNULL, stdout=terminal,
                                   stderr=terminal)
        self.running.append(process)
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: the other side is closed
            while part := os.read(reader, 65536):
                shown += part
        process.wait(LIMIT_S)
        self.running.remove(process)
        return process.returncode, shown.replace(b"\r\n", b"\n")

    def test_an_open_escape_sequence_hides_no_launcher_line(self):
        title = rb"printf '\033]0;a title without its end\n'"
        for stream in ("", " >&2"):
            with self.subTest(stream=stream):
                code, shown = self.run_on_terminal("exec", "--device", "cpu", "--num_gpus", "2", "--", "sh", "-c",
                                                   f"[ $RANK = 0 ] || exec sleep 1000; {title.decode()}{stream}; exit 3")
                self.assertEqual(code, 3, shown)
                live, ours = shown.split(b"\x18\x1b\\", 1)
                self.assertIn(b"\x1b]0;a title without its end\n", live)  # the live output is the rank's own
                self.assertNotIn(b"dslaunch: ", live)
                self.assertIn(b"rank 0 on localhost failed first: exit code 3\n", ours)
                self.assertNotIn(b"\x1b", ours)
                self.assertEqual(rb"  | \x1b]0;a title without its end" in ours, stream == " >&2", ours)

    def test_quoted_output_has_no_control_bytes(self):
        write = "json.dump({'message': 'a\\033]0;b\\tc'}, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w'))"
        script = f"import json, os, sys; sys.stderr.write('\\033[31mred\\033[0m\\t\u00e9\\n'); {write}; sys.exit(3)"
        for options in ([], ["--json"]):
            outcome = self.launch("exec", "--device", "cpu", "--num_gpus", "1", *options, "--", sys.executable, "-c", script)
            self.assertEqual(outcome.code, 3, str(outcome))
            ours = outcome.err[outcome.err.index(b"dslaunch: "):].decode()
            self.assertIn("failed first: exit code 3: a\\x1b]0;b\tc\n", ours)
            self.assertIn("  | \\x1b[31mred\\x1b[0m\t\u00e9\n", ours)
            self.assertNotIn("\x1b", ours)
        first = json.loads(outcome.out)["first_failure"]
        self.assertEqual(first["last_lines"], "\\x1b[31mred\\x1b[0m\t\u00e9")

    def test_lines_of_several_ranks_are_complete_and_prefixed(self):
        script = ("import os, sys\n"
                  "r = os.environ['RANK'].encode()\n"
                  "for i in range(200): sys.stdout.buffer.write(r * 3000 + b'\\0' + r * 3000 + b'\\n')\n"
                  "sys.stdout.buffer.write(r * 3000000 + b'\\n')\n"
                  "sys.stderr.buffer.write(b'err ' + r + b'\\n')\n")
        outcome = self.launch("exec", "--device", "cpu", "--num_gpus", "3", "--run_dir", self.path("run"), "--",
                              sys.executable, "-c", script)
        self.assertEqual(outcome.code, 0)
        for rank in (b"0", b"1", b"2"):
            short, long = rank * 3000 + b"\0" + rank * 3000 + b"\n", rank * 3000000 + b"\n"
            lines = [line for line in outcome.out.splitlines(keepends=True) if line.startswith(b"localhost:" + rank)]
            self.assertEqual(lines, [b"localhost:" + rank + b"| " + short] * 200 + [b"localhost:" + rank + b"| " + long])
            self.assertIn(b"localhost:" + rank + b"| err " + rank + b"\n", outcome.err)
            with open(self.path(f"run/logs/localhost.{rank.decode()}.log"), "rb") as file:
                log = file.read()
            self.assertEqual(log.replace(b"err " + rank + b"\n", b""), short * 200 + long)

    def test_lines_are_shown_as_they_are_written(self):
        process = self.start_sh(2, "echo first; sleep 1000")
        self.assertEqual(sorted(self.lines(process, 2)), ["localhost:0| first\n", "localhost:1| first\n"])
        process.send_signal(signal.SIGTERM)
        self.finish(process)

    def test_a_reader_that_exits_does_not_end_the_job(self):
        process = self.start_sh(1, f"yes | head -c 3000000; touch {self.path('done')}")
        process.stdout.read(10)
        process.stdout.close()
        self.assertEqual(process.wait(LIMIT_S), 0)
        self.assertTrue(os.path.exists(self.path("done")))

    def test_a_slow_reader_gets_everything(self):
        process = self.start_sh(1, "yes | head -c 30000000")
        time.sleep(1)  # nobody reads
        outcome = self.finish(process)
        self.assertEqual((outcome.code, len(outcome.out)), (0, 30000000))

    def test_a_stopped_local_agent_is_detected(self):
        process = self.start_sh(2, f"echo up; [ $RANK = 1 ] || exec sleep 1000; while [ ! -e {self.path('go')} ]; do sleep 0.05; "
                                "done; exit 3", "--lost_after", "1s")
        self.lines(process, 2)
        agent = self.agent_of(process)
        os.kill(agent, signal.SIGSTOP)
        open(self.path("go"), "w").close()  # a rank's end that the agent does not tell
        outcome = self.finish(process)
        self.assertEqual(outcome.code, 69, outcome)
        self.assertIn(f"no heartbeat from its agent (process {agent}) for 1 s: it is stopped, e.g. by SIGSTOP".encode(), outcome.err)
        self.assertEqual(self.tagged_processes(), {})

    def test_a_local_job_survives_a_suspended_launcher(self):
        process = self.start_sh(2, f"echo up; while [ ! -e {self.path('go')} ]; do sleep 0.05; done; echo end", "--lost_after", "1s")
        self.lines(process, 2)
        process.send_signal(signal.SIGSTOP)
        with self.assertRaises(subprocess.TimeoutExpired):  # longer than the limit
            process.wait(timeout=2)
        process.send_signal(signal.SIGCONT)
        open(self.path("go"), "w").close()
        outcome = self.finish(process)
        self.assertEqual((outcome.code, outcome.out.count(b"end")), (0, 2), outcome)

    def test_a_stalled_reader_does_not_delay_the_second_ctrl_c(self):
        process = self.start_sh(2, f"echo x >> {self.path('up')}; yes")
        self.wait_until(lambda: os.path.exists(self.path("up")))
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        process.stderr.readline()
        self.press_until(process, lambda: self.tagged_processes(but={process.pid}) == {})
        self.press_until(process, lambda: process.poll() is not None)
        self.assertEqual(process.wait(LIMIT_S), 130)

    def test_a_stalled_reader_does_not_keep_ranks_from_saving(self):
        """Nor whoever asked for the end from getting it."""
        save = f"touch {self.path('saved')}; exit 75"
        line = "x" * 1000
        process = self.start_sh(1, f"trap '{save}' TERM; while :; do echo {line}; done", "--run_dir", self.path("run"))
        log = self.path("run/logs/localhost.0.log")
        self.wait_until(lambda: os.path.exists(log) and os.path.getsize(log) > 8 << 20, "more than the launcher keeps")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(LIMIT_S), 75)
        self.assertTrue(os.path.exists(self.path("saved")))
        self.assertIn(b"the reader of the output has stopped reading: dropping its pending output", process.stderr.read())

    def test_a_paused_reader_loses_nothing_during_a_failure(self):
        """Less than the launcher keeps: nobody waits for the reader, however long the end takes."""
        script = (f"[ $RANK = 0 ] && {{ yes 0123456789 | head -n 30000; touch {self.path('written')}; exec sleep 1000; }}; "
                  f"while [ ! -e {self.path('written')} ]; do sleep 0.05; done; echo the reason >&2; exit 3")
        slow_to_end = "trap 'sleep 6; exit 1' TERM; " + script.replace("exec sleep 1000", "while :; do sleep 0.05; done")
        process = subprocess.Popen([DSLAUNCH, "exec", "--device", "cpu", "--num_gpus", "2", "--", "sh", "-c", slow_to_end],
                                   env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
        self.running.append(process)
        self.wait_until(lambda: os.path.exists(self.path("written")))
        self.wait_until(lambda: self.tagged_processes(but={process.pid}) == {}, "the end of all but the launcher")
        outcome = self.finish(process)
        self.assertEqual((outcome.code, outcome.out.count(b"localhost:0| 0123456789\n")), (3, 30000))
        self.assertIn(b"the reason", outcome.out)

    def test_a_paused_reader_gets_the_launchers_lines_after_a_stop(self):
        process = subprocess.Popen([DSLAUNCH, "exec", "--device", "cpu", "--num_gpus", "2", "--run_dir", self.path("run"),
                                    "--", "sh", "-c", "yes 0123456789"], env=self.environment(),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.running.append(process)
        logs = [self.path(f"run/logs/localhost.{rank}.log") for rank in (0, 1)]
        size = lambda: sum(os.path.getsize(log) for log in logs if os.path.exists(log))
        seen = []

        def stands_still():
            seen.append(size())
            return seen[-1] > 3 << 20 and len(seen) > 20 and seen[-20] == seen[-1]
        self.wait_until(stands_still, "ranks that wait for the reader")
        process.send_signal(signal.SIGTERM)
        self.wait_until(lambda: self.tagged_processes(but={process.pid}) == {}, "the end of all but the launcher")
        outcome = self.finish(process)
        lines = outcome.out.decode().splitlines()
        self.assertEqual(lines[-1], "dslaunch: the job ended: stopped by a signal")
        cut = next(at for at, line in enumerate(lines) if line.startswith("dslaunch: warning: the reader of the output has stopped reading"))
        whole = {"localhost:0| 0123456789", "localhost:1| 0123456789"}
        self.assertTrue(all(line in whole or line.startswith("dslaunch: ") for line in lines[:cut - 1]))
        self.assertTrue(any(line.startswith(lines[cut - 1]) for line in whole), lines[cut - 1])  # the pipe took a part

    def test_a_slow_reader_of_both_streams_gets_them_in_order(self):
        process = subprocess.Popen([DSLAUNCH, "exec", "--device", "cpu", "--num_gpus", "2", "--run_dir", self.path("run"), "--",
                                    "sh", "-c", "yes out | head -n 30000 & yes err | head -n 30000 >&2; wait; "
                                    f"echo >> {self.path('up')}; [ $RANK = 0 ] || exec sleep 1000; "
                                    f"while [ $(wc -l < {self.path('up')}) != 2 ]; do sleep 0.05; done; exit 3"],
                                   env=self.environment(),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.running.append(process)
        self.wait_until(lambda: self.tagged_processes(but={process.pid}) == {}, "the end of all but the launcher")
        shown = b""
        while piece := os.read(process.stdout.fileno(), 4096):
            shown += piece
        *lines, last = shown.decode().splitlines()
        self.assertEqual(last, "  | err")  # the last words of the rank that failed
        self.assertEqual({line for line in lines if not line.startswith("dslaunch: ")},
                         {f"localhost:{rank}| {word}" for rank in range(2) for word in ("out", "err")} | {last})
        process.stdout.close()
        self.assertEqual(process.wait(LIMIT_S), 3)

    def test_an_unread_terminal_blocks_only_the_ranks(self):
        """As behind an ssh that stands still. It takes a part of what is written and blocks for the rest."""
        reader, terminal = pty.openpty()
        self.addCleanup(os.close, reader)
        process = self.start("exec", "--device", "cpu", "--num_gpus", "1", "--run_dir", self.path("run"), "--",
                             "sh", "-c", "yes | head -c 30000000; sleep 1000", stdout=terminal)
        os.close(terminal)
        log = self.path("run/logs/localhost.0.log")
        self.wait_until(lambda: os.path.exists(log) and os.path.getsize(log) > 2 << 20, "more than a terminal takes", 15)
        self.press_until(process, lambda: self.tagged_processes(but={process.pid}) == {})
        self.press_until(process, lambda: process.poll() is not None)
        self.assertEqual(process.wait(LIMIT_S), 130)

    def test_one_ctrl_c_suffices_without_a_reader(self):
        """A terminal behind an ssh that stands still, with more waiting for it than the launcher keeps; and a pipe."""
        for with_terminal in (True, False):
            with self.subTest(with_terminal=with_terminal):
                reader, writer = pty.openpty() if with_terminal else os.pipe()
                process = self.start("exec", "--device", "cpu", "--num_gpus", "1", "--run_dir", self.path(f"run{with_terminal}"),
                                     "--", "sh", "-c", "yes 0123456789", stdout=writer)
                os.close(writer)
                log = self.path(f"run{with_terminal}/logs/localhost.0.log")
                self.wait_until(lambda: os.path.exists(log) and os.path.getsize(log) > 8 << 20, "more than the launcher keeps")
                with pace.at_most(7):  # 2 s for the reader
                    process.send_signal(signal.SIGINT)
                    self.assertEqual(process.wait(LIMIT_S), 130)
                os.close(reader)

    def test_without_any_standard_stream(self):
        """As a careless daemon starts it: no pipe or file of ours may get the number of standard output."""
        words = [DSLAUNCH, "exec", "--device", "cpu", "--num_gpus", "2", "--run_dir", self.path("run"), "--", "sh", "-c",
                 "echo word; [ $RANK = 0 ] || exec sleep 1000; exit 3"]
        process = subprocess.Popen(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *words], env=self.environment())
        self.running.append(process)
        self.assertEqual(process.wait(timeout=LIMIT_S), 3)
        self.running.remove(process)
        with open(self.path("run/logs/localhost.0.log"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "word\n")

    def test_a_thread_limit_is_not_an_internal_error(self):
        """No thread's stack of this size fits into an address space."""
        hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
        if hard != resource.RLIM_INFINITY:
            self.skipTest("stacks are limited here")
        process = subprocess.Popen([DSLAUNCH, "exec", "--device", "cpu", "--num_gpus", "2", "--", "true"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment(),
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (1 << 47, hard)))
        self.running.append(process)
        outcome = self.finish(process)
        self.assertEqual(outcome.code, 69, str(outcome))
        self.assertIn(b"cannot create a thread", outcome.err)
        self.assertNotIn(b"internal error", outcome.err)

    def test_under_a_limit_of_file_sizes(self):
        """The launcher's own files stop growing; the job and its exit code are what they were."""
        process = subprocess.Popen([DSLAUNCH, "exec", "--device", "cpu", "--num_gpus", "2", "--", "sh", "-c", "exit 3"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment(),
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16)))
        self.running.append(process)
        outcome = self.finish(process)
        self.assertEqual(outcome.code, 3, str(outcome))

    def log_of_rank_0(self):
        with open(self.path("run/logs/localhost.0.log"), encoding="utf-8") as file:
            return file.read()

    def test_a_run_directory_that_holds_a_run_is_refused_without_overwrite(self):
        named = ["--run_dir", self.path("run")]
        self.assertEqual(self.exec_sh(1, "echo one", *named).code, 0)
        for more in ([], ["--dry_run"]):
            outcome = self.exec_sh(1, "echo two", *named, *more)
            self.assertEqual(outcome.code, 73, str(outcome))
            for words in (self.path("run"), "already holds a run", "--overwrite"):
                self.assertIn(words.encode(), outcome.err)
        self.assertEqual(self.log_of_rank_0(), "one\n")
        with open(self.path("run/notes"), "w", encoding="utf-8"):
            pass
        self.assertEqual(self.exec_sh(1, "echo two", *named, "--overwrite").code, 0)
        self.assertEqual(self.log_of_rank_0(), "two\n")
        self.assertTrue(os.path.exists(self.path("run/notes")))
        # Logs alone, as an older dslaunch left them.
        os.unlink(self.path("run/exec.json"))
        self.assertEqual(self.exec_sh(1, "echo three", *named).code, 73)

    def test_a_job_that_never_started_leaves_no_run(self):
        named = ["exec", "--device", "cpu", "--run_dir", self.path("run"), "--"]
        self.assertEqual(self.launch(*named, self.path("no-such-program")).code, 127)
        self.assertEqual(self.launch(*named, "true").code, 0)
        self.assertEqual(self.launch(*named, "true").code, 73)

    def test_a_requeue_of_the_same_slurm_job_appends(self):
        words = ["exec", "--device", "cpu", "--include", "localhost:0", "--run_dir", self.path("run"), "--", "sh", "-c"]
        for slurm_job, script, code in (("7", "echo one", 0), ("7", "echo two", 0), ("8", "echo three", 73)):
            outcome = self.launch(*words, script, env=self.environment(SLURM_JOB_ID=slurm_job))
            self.assertEqual(outcome.code, code, str(outcome))
        self.assertEqual(self.log_of_rank_0(), "one\ntwo\n")
        with open(self.path("run/exec.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["slurm_job_id"], "7")

    def test_a_restart_of_one_job_appends(self):
        script = "echo $TORCHELASTIC_RESTART_COUNT; exit $((1 - $TORCHELASTIC_RESTART_COUNT))"
        outcome = self.exec_sh(1, script, "--run_dir", self.path("run"), "--max_restarts", "1")
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual(self.log_of_rank_0(), "0\n1\n")

    def test_a_pipe_in_place_of_a_ranks_log(self):
        os.makedirs(self.path("run/logs"))
        os.mkfifo(self.path("run/logs/localhost.1.log"))
        outcome = self.exec_sh(2, "echo hello", "--run_dir", self.path("run"))
        self.assertEqual(outcome.code, 73, str(outcome))
        self.assertIn(b"localhost.1.log: a pipe with this name exists", outcome.err)

    def test_a_run_directory_that_cannot_be_created(self):
        with open(self.path("in-the-way"), "w", encoding="utf-8"):
            pass
        outcome = self.exec_sh(1, "true", "--run_dir", self.path("in-the-way/run"))
        self.assertEqual(outcome.code, 73, str(outcome))
        os.mkdir(self.path("run"))
        os.symlink("/sys/kernel", self.path("run/logs"))  # nobody makes files there
        outcome = self.exec_sh(1, "true", "--run_dir", self.path("run"))
        self.assertEqual(outcome.code, 73, str(outcome))
        self.assertRegex(outcome.err, b"Permission denied|Read-only file system")  # why, not that it is not there yet


class Environment(LauncherTest):
    def ranks(self, *arguments, env=None):
        script = "import json, os; print(json.dumps(dict(os.environ)))"
        outcome = self.launch("exec", "--device", "cpu", *arguments, "--", sys.executable, "-c", script, env=env)
        self.assertEqual(outcome.code, 0, str(outcome))
        lines = [line[line.index("{"):] for line in outcome.out.decode().splitlines()]
        return sorted((json.loads(line) for line in lines), key=lambda env: int(env["RANK"]))

    def test_torchruns_variables(self):
        for rank, env in enumerate(self.ranks("--num_gpus", "3")):
            expected = {"RANK": rank, "LOCAL_RANK": rank, "ROLE_RANK": rank, "WORLD_SIZE": 3, "LOCAL_WORLD_SIZE": 3,
                        "ROLE_WORLD_SIZE": 3, "GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1, "NODE_RANK": 0,
                        "ROLE_NAME": "default", "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RESTART_COUNT": 0,
                        "TORCHELASTIC_MAX_RESTARTS": 0, "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1}
            self.assertEqual({name: env.get(name) for name in expected}, {k: str(v) for k, v in expected.items()})
            for name in ("MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE",
                         "OMP_NUM_THREADS"):
                self.assertIn(name, env)

    def test_all_ranks_agree_on_the_master_port_and_it_is_held_for_them(self):
        script = ("import errno, os, socket\n"
                  "port = int(os.environ['MASTER_PORT'])\n"
                  "try: socket.socket().bind(('', port))\n"
                  "except OSError as error: held = error.errno == errno.EADDRINUSE\n"
                  "else: held = False\n"
                  "socket.create_connection((os.environ['MASTER_ADDR'], port)).close()\n"
                  "print(port, held, os.environ['TORCHELASTIC_RUN_ID'], os.environ['TORCHELASTIC_USE_AGENT_STORE'])\n")
        outcome = self.launch("exec", "--device", "cpu", "--num_gpus", "2", "--", sys.executable, "-c", script)
        self.assertEqual(outcome.code, 0, str(outcome))
        lines = {line.split("| ")[1] for line in outcome.out.decode().splitlines()}
        self.assertEqual(len(lines), 1)
        self.assertRegex(lines.pop(), r"^\d+ True \S+ True$")

    def test_options_for_environment_and_directory(self):
        env = self.ranks("--env", "A=b=c", "--env", "EMPTY=", "--chdir", self.folder)[0]
        self.assertEqual((env["A"], env["EMPTY"], os.path.realpath(env["PWD"]) if "PWD" in env else None)[:2], ("b=c", ""))
        outcome = self.launch("exec", "--chdir", self.folder, "--", "pwd")
        self.assertEqual(outcome.out.decode().strip(), os.path.realpath(self.folder))

    def test_a_too_large_variable_is_named(self):
        with open(self.path("variables"), "w", encoding="utf-8") as file:
            file.write(f"BIG={'x' * 200000}\n")
        outcome = self.exec_sh(1, "true", "--env_file", self.path("variables"))
        self.assertEqual(outcome.code, 126, str(outcome))
        self.assertIn(b"the variable BIG has 200004 bytes", outcome.err)

    def test_a_variable_that_the_launcher_sets_is_refused(self):
        outcome = self.exec_sh(1, "true", "--env", "RANK=7", "--env", "A=1", "--env", "MASTER_ADDR=node7")
        self.assertEqual(outcome.code, 64, str(outcome))
        for words in (b"--env RANK: ", b"--num_gpus", b"--env MASTER_ADDR: ", b"use --master_addr"):
            self.assertIn(words, outcome.err)
        self.assertNotIn(b"--env A", outcome.err)
        # Where there are no devices to deal out it is the user's.
        self.assertEqual(self.ranks("--env", "CUDA_VISIBLE_DEVICES=7")[0]["CUDA_VISIBLE_DEVICES"], "7")

    def test_launcher_variables_in_a_file_are_a_warning(self):
        with open(self.path("variables"), "w", encoding="utf-8") as file:
            file.write("RANK=7\nA=1\nWORLD_SIZE=9\n")
        outcome = self.exec_sh(1, "echo $RANK $WORLD_SIZE $A", "--env_file", self.path("variables"))
        self.assertEqual((outcome.code, outcome.out), (0, b"0 1 1\n"), str(outcome))
        self.assertIn(f"RANK, WORLD_SIZE in {self.path('variables')}: ignored".encode(), outcome.err)

    def test_ranks_per_node_of_torchruns_environment(self):
        for number, world in (("3", 3), ("cpu", os.cpu_count())):
            env = self.environment(PET_NPROC_PER_NODE=number)
            outcome = self.launch("exec", "--dry_run", "--json", "--device", "cpu", "--", "true", env=env)
            self.assertEqual(json.loads(outcome.out)["world_size"], world, str(outcome))
        outcome = self.launch("exec", "--device", "cpu", "--num_gpus", "2", "--", "true",
                              env=self.environment(PET_NPROC_PER_NODE="3"))
        self.assertEqual(outcome.code, 78, str(outcome))
        self.assertIn(b"PET_NPROC_PER_NODE=3", outcome.err)

    def test_variables_of_another_launcher_are_replaced(self):
        stale = self.environment(RANK="7", WORLD_SIZE="9", MASTER_PORT="1", DSLAUNCH_AGENT_STORE="1", OMP_NUM_THREADS="5")
        env = self.ranks(env=stale)[0]
        self.assertEqual((env["RANK"], env["WORLD_SIZE"], env["OMP_NUM_THREADS"]), ("0", "1", "5"))
        self.assertNotEqual(env["MASTER_PORT"], "1")
        self.assertNotIn("DSLAUNCH_AGENT_STORE", env)

    def test_standard_input_is_at_its_end(self):
        process = subprocess.Popen([DSLAUNCH, "exec", "--device", "cpu", "--num_gpus", "1", "--", "sh", "-c", "cat; echo end"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=self.environment())
        self.running.append(process)
        self.assertEqual(process.wait(LIMIT_S), 0)  # though ours is open
        self.running.remove(process)
        self.assertEqual(process.communicate()[0], b"end\n")

    def test_arguments_are_unchanged(self):
        odd = ["", "a b", "it's", "--num_gpus", "--", "$HOME", "*", "new\nline", "--x-y=1"]
        script = "import json, sys; print(json.dumps(sys.argv[1:]))"
        outcome = self.launch("exec", "--", sys.executable, "-c", script, *odd)
        self.assertEqual(json.loads(outcome.out), odd)


class HostsAndPorts(LauncherTest):
    def hostfile(self, text):
        with open(self.path("hosts"), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path("hosts")

    def test_a_taken_master_port_names_its_holder(self):
        port = self.free_port_taken()
        outcome = self.exec_sh(2, "true", "--master_port", str(port))
        self.assertEqual(outcome.code, 69, str(outcome))
        for word in (str(port), f"pid {os.getpid()}", "test_launcher"):
            self.assertIn(word, outcome.err.decode())

    def test_an_unusable_master_address_is_refused(self):
        cases = [(64, "bad host", "not a host name"), (64, "a/b", "not a host name"), (64, "http://a", "a URL"), (64, "a:29500", "--master_port"),
                 (64, "[::1]", "without brackets"), (64, "1:2:3", "not an IPv6 address"), (69, "node7.invalid", "not known"),
                 (69, "192.0.2.1", "not an address of this machine")]
        for code, address, words in cases:
            with self.subTest(address=address):
                outcome = self.exec_sh(1, f"touch {self.path('started')}", "--master_addr", address)
                self.assertEqual(outcome.code, code, str(outcome))
                self.assertIn(f"--master_addr {address}" if code == 69 else f"--master_addr '{address}'", outcome.err.decode())
                self.assertIn(words, outcome.err.decode())
        self.assertFalse(os.path.exists(self.path("started")))
        for address in ("localhost", "127.0.0.1"):
            self.assertEqual(self.exec_sh(1, "echo $MASTER_ADDR", "--master_addr", address).out.decode(), address + "\n")

    def test_host_names_are_case_insensitive(self):
        hosts = self.hostfile("localhost slots=1\nLocalHost slots=1\n")
        outcome = self.launch("exec", "--device", "cpu", "--hostfile", hosts, "--", "true")
        self.assertEqual(outcome.code, 65, str(outcome))
        self.assertIn(b"'LocalHost' is already listed on line 1", outcome.err)

    def test_two_names_of_this_machine_are_two_nodes(self):
        hosts = self.hostfile("localhost slots=2\n127.0.0.1 slots=1\n")
        outcome = self.launch("exec", "--device", "cpu", "--hostfile", hosts, "--", "sh", "-c",
                              "echo $RANK $LOCAL_RANK $GROUP_RANK $GROUP_WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_PORT")
        self.assertEqual(outcome.code, 0, str(outcome))
        lines = sorted(outcome.out.decode().splitlines())
        self.assertRegex(lines[0], r"^127.0.0.1:2\| 2 0 1 2 1 \d+$")
        self.assertRegex(lines[1], r"^localhost:0\| 0 0 0 2 2 \d+$")
        self.assertRegex(lines[2], r"^localhost:1\| 1 1 0 2 2 \d+$")
        self.assertEqual(len({line.split()[-1] for line in lines}), 1)

    def test_a_node_that_ends_early_does_not_affect_others(self):
        hosts = self.hostfile("localhost slots=1\n127.0.0.1 slots=1\n127.0.0.2 slots=1\n")
        gates = [self.path(f"gate{rank}") for rank in range(3)]
        for gate in gates:
            os.mkfifo(gate)
        # The last one asks whether the store is still there, which node 0 holds.
        process = self.start("exec", "--device", "cpu", "--hostfile", hosts, "--", "bash", "-c",
                             f"read word < {self.path('gate')}$RANK; echo still here; "
                             "[ $RANK != 2 ] || exec 3<>/dev/tcp/127.0.0.1/$MASTER_PORT")

        def agents():
            return sum("dslaunch agent" in command for command in self.tagged_processes().values())

        def ranks():
            return sum(command.startswith("bash -c") for command in self.tagged_processes().values())

        def open_gate(gate):
            with open(gate, "w", encoding="utf-8") as file:
                file.write("go\n")

        self.wait_until(lambda: (agents(), ranks()) == (3, 3), what="three agents with a rank each")
        open_gate(gates[1])
        self.wait_until(lambda: agents() == 2, what="the end of node 1's agent")
        open_gate(gates[0])
        self.wait_until(lambda: ranks() == 1, what="the end of rank 0")
        open_gate(gates[2])
        outcome = self.finish(process)
        self.assertEqual((outcome.code, outcome.out.count(b"still here")), (0, 3), str(outcome))

    def test_a_host_that_cannot_be_found_is_named(self):
        hosts = self.hostfile("localhost slots=1\nnode7.invalid slots=8\n")
        outcome = self.launch("exec", "--device", "cpu", "--hostfile", hosts, "--", "true")
        self.assertEqual(outcome.code, 69, str(outcome))
        self.assertIn(b"node7.invalid", outcome.err)
        included = self.launch("exec", "--device", "cpu", "--hostfile", hosts, "--include", "localhost", "--", "true")
        self.assertEqual(included.code, 0, str(included))

    def test_hosts_as_text_and_json(self):
        hosts = self.hostfile("localhost slots=2\nnode7.invalid slots=8\n")
        document = json.loads(self.launch("hosts", "--hostfile", hosts, "--exclude", "node7.invalid:0,1", "--json").out)
        self.assertEqual([(h["host"], h["slots"]) for h in document["hosts"]],
                         [("localhost", [0, 1]), ("node7.invalid", [2, 3, 4, 5, 6, 7])])
        self.assertIn(b"node7.invalid", self.launch("hosts", "--hostfile", hosts).out)


WORKER = f"""#!{sys.executable}
import json, os, resource, signal, sys, time
print("ARGV " + json.dumps(sys.argv[1:]), flush=True)
print("STORE " + os.environ.get("DSLAUNCH_AGENT_STORE", "-") + " " + os.environ.get("MASTER_PORT", "-"), flush=True)
end = os.environ.get("END_" + os.environ.get("RANK", ""), os.environ.get("END", "0"))
if end == "wait":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    print("waiting", flush=True)
    while True: time.sleep(0.05)
if end == "kill":
    time.sleep(0.2)  # who says "a peer is gone" comes first; who it was shows a little later
    os.kill(os.getpid(), signal.SIGKILL)
if end == "interrupted":
    # Not print(), which may not be entered again while it writes "waiting".
    signal.signal(signal.SIGINT, lambda *_: os.write(1, b"one Ctrl-C\\n"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    print("waiting", flush=True)
    while True: time.sleep(0.05)
if end.startswith("SIG"):
    number = getattr(signal, end)
    if number != signal.SIGKILL: signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), number)
sys.exit(int(end))
"""


class Run(LauncherTest):
    """`run` and the tool commands, with a stand-in for dsworker beside a copy of dslaunch: what reaches the worker and what
    becomes of its end. The real worker's runs are tested elsewhere."""

    def setUp(self):
        super().setUp()
        os.mkdir(self.path("bin"))
        self.program = shutil.copy(DSLAUNCH, self.path("bin"))
        self.worker = self.file("bin/dsworker", WORKER)
        os.chmod(self.worker, 0o755)
        self.model = self.path("model.pt")
        with zipfile.ZipFile(self.model, "w") as archive:
            for record in ("constants.pkl", "data.pkl", "code/__torch__.py"):
                archive.writestr(f"model/{record}", "no worker reads it")
        self.data = self.file("train.safetensors", "any file")
        self.config = self.file("ds.json", '{"train_batch_size": 6}')

    def file(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def start_run(self, *arguments, **ends):
        process = subprocess.Popen([self.program, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=self.environment(**ends), cwd=self.folder)
        self.running.append(process)
        return process

    def run_job(self, *arguments, world=2, **ends):
        return self.finish(self.start_run("--device", "cpu", "--num_gpus", str(world), "--no_fold", *arguments, **ends))

    def refused(self, code, words, *arguments, world=2):
        outcome = self.run_job(*arguments, world=world)
        self.assertEqual(outcome.code, code, str(outcome))
        for word in words:
            self.assertIn(word, outcome.err.decode())
        self.assertNotIn(b"ARGV", outcome.out)
        self.assertFalse(os.path.exists(self.path("runs")), "a refused run left a run folder")
        return outcome

    def test_options_may_precede_or_follow_the_model(self):
        outcome = self.run_job("--steps", "5", "model.pt", "--config", "ds.json", "--data", "train.safetensors", "--set",
                               "train.seed=3", "--run_dir", "out")
        self.assertEqual(outcome.code, 0, str(outcome))
        lines = [line.split("ARGV ")[1] for line in outcome.out.decode().splitlines() if "ARGV" in line]
        expected = ["train", self.model, "--config", self.config, "--run_dir", self.path("out"), "--device", "cpu", "--set",
                    "train.seed=3", "--data", self.data, "--steps", "5"]
        self.assertEqual([json.loads(line) for line in lines], [expected] * 2)
        for rank in (0, 1):
            with open(self.path(f"out/logs/localhost.{rank}.log"), encoding="utf-8") as file:
                self.assertIn("ARGV", file.read())

    def test_several_workers_use_the_agents_store(self):
        outcome = self.run_job("model.pt", "--data", "train.safetensors")
        stores = {line.split("STORE ")[1] for line in outcome.out.decode().splitlines() if "STORE" in line}
        self.assertEqual(len(stores), 1)
        self.assertRegex(stores.pop(), r"^1 \d+$")
        outcome = self.run_job("model.pt", "--data", "train.safetensors", world=1)
        self.assertIn(b"STORE - -\n", outcome.out)

    def test_without_a_config_defaults_and_run_directory_are_reported(self):
        outcome = self.run_job("model.pt", "--data", "train.safetensors")
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual(outcome.err.count(b"no --config"), 1, str(outcome))
        (job,) = os.listdir(self.path("runs"))
        self.assertIn(job.encode(), outcome.err)
        self.assertEqual(self.run_job("model.pt", "--data", "train.safetensors", "--quiet").err, b"")

    def replaced_while_it_runs(self, by):
        """A job whose first attempt puts `by` (nothing: empty) in the place of the running dslaunch, and fails."""
        act = f"mv {by} {self.program}" if by else f"rm {self.program}"
        script = f"test $TORCHELASTIC_RESTART_COUNT = 1 && echo again && exit; {act}; exit 3"
        return self.finish(self.start_run("exec", "--device", "cpu", "--num_gpus", "1", "--max_restarts", "1", "--", "sh",
                                          "-c", script))

    def test_a_restart_after_an_upgrade_uses_the_new_program(self):
        outcome = self.replaced_while_it_runs(shutil.copy(DSLAUNCH, self.path("newer")))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn(b"again", outcome.out)

    def test_a_replaced_program_of_another_protocol_is_reported(self):
        hello = struct.pack("<II", 99, 5) + b"9.9.9"
        frame = struct.pack("<IB", len(hello) + 1, 5) + hello
        newer = self.file("newer", f"#!{sys.executable}\nimport os\nos.write(1, {frame!r})\nos.read(0, 1)\n")
        os.chmod(newer, 0o755)
        outcome = self.replaced_while_it_runs(newer)
        self.assertEqual(outcome.code, 69, str(outcome))
        self.assertIn(f"{self.program} was replaced while this job was running: it is now version 9.9.9 (protocol 99)",
                      outcome.err.decode().splitlines()[-2])

    def test_a_removed_program_is_named(self):
        outcome = self.replaced_while_it_runs(None)
        self.assertNotEqual(outcome.code, 0, str(outcome))
        self.assertIn(f"program '{self.program}' does not exist", outcome.err.decode())

    def test_bad_input_is_refused_before_any_rank_starts(self):
        self.refused(66, ["--resume", "File name too long"], self.model, "--data", self.data, "--resume", "a" * 300)
        self.refused(66, ["nowhere.pt"], "nowhere.pt", "--data", self.data)
        self.refused(66, ["none.json"], self.model, "--data", self.data, "--config", "none.json")
        typo = self.file("typo.json", '{\n  "gradient_clipp1ng": 1.0\n}')
        self.refused(65, ["gradient_clipping", "2"], self.model, "--data", self.data, "--config", typo)
        self.refused(65, ["--data", '"data"'], self.model, "--config", self.config)
        self.refused(65, ["train_batch_size"], self.model, "--data", self.data, "--config", self.config, world=4)
        self.refused(64, ["--run_dir"], self.model, "--data", self.data, "--eval_only", "--resume", "auto")
        self.refused(66, ["no-checkpoint"], self.model, "--data", self.data, "--resume", "no-checkpoint")
        self.refused(73, ["model.pt"], self.model, "--data", self.data, "--run_dir", "model.pt/run")
        os.unlink(self.worker)
        self.refused(69, ["dsworker"], self.model, "--data", self.data)

    def test_a_config_that_can_be_read_only_once(self):
        read, write = os.pipe()
        os.write(write, b"{}")
        os.close(write)
        process = subprocess.run([self.program, self.model, "--data", self.data, "--config", f"/dev/fd/{read}"],
                                 capture_output=True, env=self.environment(), cwd=self.folder, timeout=LIMIT_S,
                                 pass_fds=[read])
        os.close(read)
        self.assertEqual(process.returncode, 66, process.stderr)
        self.assertIn(b"write it to a file", process.stderr)
        self.assertNotIn(b"ARGV", process.stdout)

    def test_a_directory_that_holds_a_run(self):
        os.mkdir(self.path("old"))
        self.file("old/metrics.jsonl", "{}\n")
        arguments = [self.model, "--data", self.data, "--run_dir", "old"]
        self.refused(73, ["--resume", "--overwrite", self.path("old")], *arguments)
        self.assertEqual(self.run_job(*arguments, "--resume", "auto").code, 0)
        self.assertTrue(os.path.exists(self.path("old/metrics.jsonl")))
        self.assertEqual(self.run_job(*arguments, "--overwrite").code, 0)
        self.assertFalse(os.path.exists(self.path("old/metrics.jsonl")))

    def test_a_directory_in_use_by_another_job(self):
        arguments = ["--device", "cpu", "--num_gpus", "2", self.model, "--data", self.data, "--run_dir", "out"]
        first = self.start_run(*arguments, END="wait")
        seen = first.stdout.readline() + first.stdout.readline()  # a rank works
        self.file("out/metrics.jsonl", "{}\n")
        for option in ([], ["--resume", "auto"], ["--overwrite"]):
            with self.subTest(option=option):
                second = self.finish(self.start_run(*arguments, *option))
                self.assertEqual(second.code, 73, str(second))
                self.assertIn(self.path("out"), second.err.decode())
        self.assertIn(b"is using it", second.err)
        self.assertTrue(os.path.exists(self.path("out/metrics.jsonl")))
        first.send_signal(signal.SIGKILL)  # however it ends, the next one gets the folder
        self.finish(first)
        self.assertNotEqual(seen, b"")
        self.assertEqual(self.finish(self.start_run(*arguments, "--resume", "auto")).code, 0)
        self.assertFalse(os.path.exists(self.path("out/.lock")))

    def test_logs_of_a_running_job_are_not_truncated_by_another_kind(self):
        one, named = ["--device", "cpu", "--num_gpus", "1"], ["--run_dir", self.path("out")]
        program = ["--", "sh", "-c", "echo waiting; [ \"$END\" = 0 ] || exec sleep 600"]
        jobs = {"exec": ["exec", *one, *named, "--overwrite", *program],
                "run": [*one, self.model, "--data", self.data, *named, "--resume", "auto"]}
        for first, second in (("exec", "exec"), ("exec", "run"), ("run", "exec")):
            with self.subTest(first=first, second=second):
                holder = self.start_run(*jobs[first], END="wait")
                while b"waiting" not in holder.stdout.readline():
                    self.assertIsNone(holder.poll())
                for words in (jobs[second], ["exec", *one, *named, *program]):
                    refused = self.finish(self.start_run(*words, END="0"))
                    self.assertEqual(refused.code, 73, str(refused))
                    self.assertRegex(refused.err.decode(), rf"{self.path('out')}: job \S+ is using it")
                with open(self.path("out/logs/localhost.0.log"), encoding="utf-8") as log:
                    self.assertIn("waiting", log.read())
                holder.send_signal(signal.SIGTERM)
                self.finish(holder)
                self.assertEqual(self.finish(self.start_run(*jobs[second], END="0")).code, 0)  # it is free again
        self.assertNotIn(".lock", os.listdir(self.path("out")))

    def test_the_command_that_a_stopped_run_prints_resumes_it(self):
        process = self.start_run("--device", "cpu", "--num_gpus", "1", "model.pt", "--data", "train.safetensors",
                                 "--name", "mine", "--overwrite", "--env", "KEY=secret", END="wait")
        while b"waiting" not in process.stdout.readline():
            self.assertIsNone(process.poll())
        (run,) = os.listdir(self.path("runs"))
        self.file(f"runs/{run}/metrics.jsonl", '{"step": 1}\n')  # which the real worker writes
        process.send_signal(signal.SIGINT)
        stopped = self.finish(process)
        self.assertEqual(stopped.code, 130, str(stopped))
        self.assertIn("nothing was saved", stopped.err.decode())  # and `resume` does not replace what is recorded
        refused = self.resume(["mine"])
        self.assertEqual(refused.returncode, 66, refused.stderr)
        self.assertIn(b"to start again: cd ", refused.stderr)
        os.makedirs(self.path(f"runs/{run}/checkpoints/step_00000001"))
        self.file(f"runs/{run}/checkpoints/step_00000001/manifest.json", "{}")
        failed = self.resume(["mine", "--set", "steps_per_print=7"], END="65")
        self.assertEqual(failed.returncode, 65, failed.stderr)
        self.assertNotIn(b"to continue", failed.stderr)
        stopped = self.resume(["mine"], END="76")
        printed = re.search(r"to continue: (.*)", stopped.stderr.decode())[1]
        self.assertEqual(printed, f"{self.program} resume mine")
        elsewhere = self.resume([], cwd="/")
        self.assertEqual(elsewhere.returncode, 66, elsewhere.stderr)
        self.assertIn(b"dslaunch resume mine", elsewhere.stderr)
        consolidated = self.finish(self.start_run("consolidate", "mine", "out.pt", END="0"))
        self.assertIn(f'["consolidate", "{self.path("runs/" + run)}", "out.pt"]', consolidated.out.decode())
        moved = self.path("moved")
        for words, run_dir in ((["--steps", "7"], f"runs/{run}"), ([moved], "moved")):
            if words == [moved]:
                shutil.copytree(self.path(f"runs/{run}"), moved)
                shutil.rmtree(self.path("state"))
            again = self.resume(words, KEY="secret")
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertIn(b"from step 1:", again.stderr)
            arguments = json.loads(re.search(rb"ARGV (.*)", again.stdout)[1])
            self.assertEqual(arguments[1], self.model)
            self.assertEqual(arguments[arguments.index("--run_dir") + 1], self.path(run_dir))
            self.assertEqual(arguments[arguments.index("--resume") + 1], "auto")
            self.assertNotIn("steps_per_print=7", arguments)  # of the resume that failed
            if words == ["--steps", "7"]:
                self.assertEqual(arguments[arguments.index("--steps") + 1], "7")

    def resume(self, words, cwd=None, **environment):
        return subprocess.run([self.program, "resume", *words], capture_output=True, cwd=cwd or self.folder, timeout=LIMIT_S,
                              env=self.environment(**({"END": "0"} | environment)))

    def test_a_start_without_a_step_leaves_no_run_directory(self):
        failed = self.run_job("model.pt", "--data", "train.safetensors", world=1, END="65")
        self.assertEqual(failed.code, 65, str(failed))
        self.assertEqual(os.listdir(self.path("runs")), [])
        logs = re.search(rb"the logs are in (\S+)", failed.err)[1].decode()
        with open(f"{logs}/localhost.0.log", encoding="utf-8") as log:
            self.assertIn("ARGV", log.read())

    def test_exit_codes_of_workers(self):
        arguments = [self.model, "--data", self.data, "--run_dir", "out"]
        for code, words, ends in ((76, ["training cannot continue", "rank 1"], {"END_1": "76"}),
                                  (137, ["rank 1 on localhost failed first", "SIGKILL"], {"END_0": "71", "END_1": "kill"}),
                                  (70, ["rank"], {"END": "71"})):
            with self.subTest(ends=ends):
                outcome = self.run_job(*arguments, **ends)
                self.assertEqual(outcome.code, code, str(outcome))
                for word in words:
                    self.assertIn(word, outcome.err.decode())

    def test_a_scheduler_stop_request(self):
        for sent, code in ((signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGUSR2, 75), (signal.SIGINT, 130)):
            with self.subTest(signal=sent):
                process = self.start_run("--device", "cpu", "--num_gpus", "2", "model.pt", "--data", self.data, "--no_fold",
                                         END="wait")
                seen = b""
                while seen.count(b"waiting") < 2:
                    seen += process.stdout.readline()
                process.send_signal(sent)
                outcome = self.finish(process)
                self.assertEqual(outcome.code, code, str(outcome))

    def test_a_dry_run_leaves_nothing(self):
        outcome = self.run_job("model.pt", "--data", self.data, "--dry_run", "--json")
        document = json.loads(outcome.out)
        self.assertEqual((document["kind"], document["world_size"], document["argv"][1]), ("run", 2, "train"))
        self.assertFalse(os.path.exists(self.path("runs")))

    def test_a_dry_run_shows_who_holds_which_stage(self):
        stages = ("model.pt", "--data", self.data, "--num_gpus", "4", "--stages", "2", "--device", "cpu")
        outcome = self.finish(self.start_run(*stages, "--set", "train_batch_size=8", "--dry_run", "--json"))
        document = json.loads(outcome.out)
        self.assertEqual(document["mesh"], {"data": 2, "pipe": 2, "tensor": 1})
        places = [(rank["rank"], rank["mesh"]["pipe"], rank["mesh"]["data"]) for rank in document["ranks"]]
        self.assertEqual(places, [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1)])
        self.assertIn("--stages", document["argv"])
        text = self.finish(self.start_run(*stages, "--dry_run")).out
        self.assertIn(b"mesh       2 data ranks x 2 pipeline stages\n", text)
        self.assertIn(b"local rank 2, slot 2, stage 1, data rank 0", text)
        outcome = self.finish(self.start_run("model.pt", "--data", self.data, "--num_gpus", "6", "--stages", "4",
                                             "--device", "cpu", "--dry_run"))
        self.assertEqual(outcome.code, 78, str(outcome))
        self.assertIn(b"start a multiple of 4 ranks, as 4 or 8, or set pipeline.stages (--stages) to 3 or 6", outcome.err)

    def test_a_dry_run_shows_tensor_ranks(self):
        command = ("model.pt", "--data", self.data, "--num_gpus", "4", "--stages", "2", "--tp", "2", "--device", "cpu", "--dry_run")
        document = json.loads(self.finish(self.start_run(*command, "--json")).out)
        self.assertEqual(document["mesh"], {"data": 1, "pipe": 2, "tensor": 2})
        places = [(rank["mesh"]["pipe"], rank["mesh"]["tensor"]) for rank in document["ranks"]]
        self.assertEqual(places, [(0, 0), (0, 1), (1, 0), (1, 1)])
        self.assertIn("--tp", document["argv"])

    def test_tool_commands_run_the_worker(self):
        os.mkdir(self.path("c"))
        outcome = self.finish(self.start_run("infer", "--checkpoint", "c", "--prompt", "To be", "--num-tokens", "5", END="3"))
        self.assertEqual(outcome.code, 3, str(outcome))
        self.assertIn(b'["infer", "c", "--prompt", "To be", "--num_tokens", "5"]', outcome.out)
        outcome = self.finish(self.start_run("consolidate", "c", "out.pt", "--state_dict"))
        self.assertIn(b'["consolidate", "c", "out.pt", "--state_dict"]', outcome.out)
        outcome = self.finish(self.start_run("consolidate", "c", "o.safetensors", "--max-memory", "2GB", "-d", "bf16", "--json"))
        self.assertIn(b'["consolidate", "c", "o.safetensors", "--max_memory", "2GB", "--dtype", "bf16", "--json"]', outcome.out)
        outcome = self.finish(self.start_run("import", "ds", "out", "--model", "m.pt", "--tag", "t", "--json"))
        self.assertIn(b'["import", "ds", "out", "--tag", "t", "--model", "m.pt", "--json"]', outcome.out)

    def test_a_tool_command_explains_what_its_worker_died_of(self):
        for end, code, meaning in (("SIGSEGV", 139, b"invalid memory"), ("SIGABRT", 134, b"its last lines say which")):
            outcome = self.finish(self.start_run("plan", "model.pt", END=end))
            self.assertEqual(outcome.code, code, str(outcome))
            self.assertIn(b"error: plan model.pt: dsworker, which reads the files, was killed by " + end.encode(),
                          outcome.err)
            self.assertIn(meaning, outcome.err)
            self.assertEqual(len(outcome.err.splitlines()), 1, str(outcome))
        for end in ("SIGTERM", "SIGINT", "SIGPIPE"):
            outcome = self.finish(self.start_run("plan", "model.pt", END=end))
            self.assertEqual((outcome.code, outcome.err), (-getattr(signal, end), b""), str(outcome))

    def test_a_tool_command_and_its_worker_end_together(self):
        process = self.start_run("plan", "model.pt", END="wait")
        self.assertEqual(self.lines(process, 3)[2], "waiting\n")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(process).code, 75)
        process = self.start_run("plan", "model.pt", END="wait")
        self.lines(process, 3)
        process.kill()
        self.wait_until(lambda: not self.tagged_processes(), "the worker's end")
        self.finish(process)

    def test_a_terminal_interrupts_the_worker_of_a_tool_command_once(self):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(self.program, [self.program, "plan", self.model], self.environment(END="interrupted"))
        self.addCleanup(os.close, terminal)
        shown = b""

        def show(word):
            nonlocal shown
            while word not in shown:
                shown += os.read(terminal, 4096)

        show(b"waiting")
        os.write(terminal, b"\x03")
        show(b"one Ctrl-C")
        os.kill(pid, signal.SIGTERM)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 75)
        with contextlib.suppress(OSError):  # EIO: the other side is closed
            while part := os.read(terminal, 4096):
                shown += part
        self.assertEqual(shown.count(b"one Ctrl-C"), 1, shown)

    def test_config_check_and_explain(self):
        outcome = self.finish(self.start_run("config", "check", "ds.json", "--world_size", "3"))
        self.assertEqual(outcome.code, 0, str(outcome))
        explained = json.loads(self.finish(self.start_run("config", "explain", "ds.json", "--json")).out)
        self.assertEqual(explained["keys"]["train_batch_size"]["value"], 6)


class CommandLine(LauncherTest):
    def refused(self, code, *words, arguments):
        outcome = self.launch(*arguments)
        self.assertEqual(outcome.code, code, str(outcome))
        self.assertEqual(outcome.out, b"")
        for word in words:
            self.assertIn(word, outcome.err.decode())

    def test_more_ranks_than_a_node_can_have(self):
        """Slips in the words themselves: tests/unit/command_line/launcher_words_test.cpp."""
        by_hand = ["--no_ssh", "--node_rank", "0", "--num_nodes", "2", "--master_addr", "127.0.0.1"]
        for options in ([], by_hand):
            with self.subTest(options=options):
                self.refused(69, "3000000", "4096", arguments=["exec", "--device", "cpu", "--num_gpus", "3000000", *options,
                                                               "--", "true"])

    def test_both_spellings_of_options(self):
        one = json.loads(self.launch("exec", "--dry_run", "--json", "--num_gpus", "2", "--device", "cpu", "--", "x").out)
        two = json.loads(self.launch("exec", "--dry-run", "--json", "--num-gpus=2", "--device", "cpu", "--", "x").out)
        self.assertEqual(one["world_size"], 2)
        self.assertEqual(one["ranks"], two["ranks"])

    def test_numbers_are_decimal(self):
        for text, count in (("010", 10), ("08", 8), ("3", 3)):
            outcome = self.launch("exec", "--dry_run", "--json", "--num_gpus", text, "--device", "cpu", "--", "x")
            self.assertEqual(json.loads(outcome.out)["world_size"], count, text)

    def test_an_empty_filter_keeps_everything(self):
        for words in (["--include", ""], ["--include="], ["--exclude", ""]):
            self.assertEqual(self.launch("hosts", "--device", "cpu", *words).code, 0, words)

    def to_a_full_disk(self, *arguments):
        with open("/dev/full", "wb") as full:
            return subprocess.run([DSLAUNCH, *arguments], stdout=full, stderr=subprocess.PIPE, env=self.environment(),
                                  timeout=LIMIT_S)

    def test_a_lost_document_is_a_failure(self):
        for arguments in (["--help"], ["--version"], ["hosts", "--device", "cpu", "--json"], ["jobs", "--json"],
                          ["config", "explain", self.document("{}")],
                          ["exec", "--device", "cpu", "--dry_run", "--", "true"]):
            with self.subTest(arguments=arguments):
                outcome = self.to_a_full_disk(*arguments)
                self.assertEqual(outcome.returncode, 74)
                self.assertIn(b"standard output", outcome.stderr)

    def test_lost_output_is_a_failure(self):
        for options, rank, code in ((["--json"], "exit 0", 74), ([], "echo result", 74), (["--json"], "exit 5", 5),
                                    ([], "echo alas >&2", 0)):
            with self.subTest(options=options, rank=rank):
                outcome = self.to_a_full_disk("exec", "--device", "cpu", *options, "--", "sh", "-c", rank)
                self.assertEqual(outcome.returncode, code, outcome.stderr)
                self.assertEqual(b"cannot write all output to standard output" in outcome.stderr, code != 0)

    def document(self, text):
        with open(self.path("ds.json"), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path("ds.json")

    def test_commands_end_with_sigpipe_without_a_reader(self):
        """Whether its SIGPIPE is ignored, as Python's is, so that the write fails, or not."""
        read, write = os.pipe()
        os.close(read)
        self.addCleanup(os.close, write)
        for arguments in (["--help"], ["--version"], ["config", "explain", self.document("{}"), "--json"],
                          ["hosts", "--device", "cpu"], ["jobs"], ["doctor"],
                          ["exec", "--device", "cpu", "--dry_run", "--", "true"]):
            for usual in (False, True):
                with self.subTest(arguments=arguments, usual=usual):
                    outcome = subprocess.run([DSLAUNCH, *arguments], stdout=write, stderr=subprocess.PIPE,
                                             env=self.environment(), timeout=LIMIT_S, restore_signals=usual)
                    self.assertEqual((outcome.returncode, outcome.stderr), (-signal.SIGPIPE, b""))

    def test_a_dry_run_starts_nothing(self):
        script = f"touch {self.path('started')}"
        outcome = self.exec_sh(2, script, "--dry_run", "--run_dir", self.path("run"))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn(script.encode(), outcome.out)
        self.assertEqual(sorted(os.listdir(self.folder)), ["tmp"])

    def test_help_shows_examples_first_and_is_fast(self):
        times = []
        for _ in range(10):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            outcome = self.launch("--help")
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        self.assertEqual(outcome.code, 0)
        self.assertLess(outcome.out.index(b"Examples:"), outcome.out.index(b"--set"))
        self.assertLess(min(times), 0.020)

    def test_every_command_has_help_and_there_is_a_version(self):
        overview = self.launch("--help").out
        listed = overview[overview.index(b"Commands:"):overview.index(b"Options:")].decode()
        for command in ("run", "exec", "infer", "hosts", "config", "consolidate", "import", "jobs", "logs", "attach",
                        "stop", "doctor"):
            outcome = self.launch(command, "--help")
            self.assertEqual((outcome.code, b"Examples:" in outcome.out), (0, True), str(outcome))
            self.assertRegex(listed, rf"(dslaunch|\|) \[?{command}\b")
        self.assertTrue(re.match(rb"dslaunch \d+\.\d+", self.launch("--version").out))


if __name__ == "__main__":
    unittest.main()
