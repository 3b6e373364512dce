"""Failures of ranks, agents, connections, hosts and of the launcher: the exit code, who is named, and nothing left."""
import glob
import os
import signal
import sys
import time

from host_case import HostCase, pace
from memory_cgroup import MemoryCgroup
from parallel_cases import long_running

STUBBORN = "trap '' TERM INT HUP; echo ready; while :; do sleep 0.05; done"
SAVES = "trap 'echo saved; exit 75' TERM; echo ready; while :; do sleep 0.05; done"
GRANDCHILD = "setsid sh -c \"trap '' TERM HUP; sleep 1000\" >/dev/null 2>&1 </dev/null & "


class RankFailures(HostCase):
    def expect_first(self, outcome, code, cause, host="node2", rank=1):
        self.expect(outcome, code, f"rank {rank} on {host} failed first: {cause}")
        self.assertIn(f"rank {rank} on {host} failed first", "\n".join(outcome.err.rstrip().splitlines()[-4:]), str(outcome))

    def dies(self, script, code, cause):
        outcome = self.exec(f"[ $RANK != 1 ] || {{ {script}; }}; exec sleep 1000")
        self.expect_first(outcome, code, cause)
        self.assertIn("stopped by dslaunch", outcome.err)

    def test_an_exit_code(self):
        self.dies("echo alas >&2; exit 3", 3, "exit code 3")

    def test_sigterm(self):
        self.dies("kill -TERM $$", 143, "killed by SIGTERM")

    def test_sigkill_is_137_and_not_0(self):
        self.dies("kill -KILL $$", 137, "killed by SIGKILL")

    def test_a_child_that_died_of_a_signal_is_137_and_not_0(self):
        self.dies("sh -c 'kill -KILL $$'; exit $?", 137, "exit code 137")

    def test_sigsegv(self):
        self.dies("kill -SEGV $$", 139, "killed by SIGSEGV")

    def test_a_program_missing_on_one_host(self):
        os.mkdir(self.path("tools"))
        self.write("tools/train", "#!/bin/sh\nexec sleep 1000\n", 0o755)
        self.cluster.node3.hide(self.path("tools"))
        outcome = self.launch("exec", "--device", "cpu", "--hostfile", self.hostfile(), "--", self.path("tools/train"))
        self.expect(outcome, 127, "node3", self.path("tools/train"))
        self.cluster.node3.unhide()

    def test_out_of_memory_in_a_cgroup(self):
        script = "import os, time\nif os.environ['RANK'] == '1': hog = bytearray(1 << 30)\ntime.sleep(1000)\n"
        node = self.cluster.node2
        with MemoryCgroup(limit_bytes=192 << 20) as cgroup:
            if not cgroup.possible:
                self.skipTest(f"no memory cgroup can be made here: {cgroup.reason}")
            cgroup.add(node.sshd.pid)
            outcome = self.launch("exec", "--device", "cpu", "--hostfile", self.hostfile(), "--", sys.executable, "-c", script)
            self.expect_first(outcome, 137, "killed by SIGKILL")
            self.assertIn("memory cgroup", outcome.err, str(outcome))
            cgroup.release()

    def test_all_ranks_share_one_grace_period(self):
        process = self.start_exec(STUBBORN, "--grace", "1", hosts="node1 slots=3\nnode2 slots=1\n")
        self.lines(process, 4)
        with pace.at_most(1 + 3):
            process.send_signal(signal.SIGTERM)
            self.assertEqual(self.finish(process).code, 137)

    def test_the_job_ends_promptly_after_a_failure(self):
        process = self.start_exec("echo $$; exec sleep 1000")
        self.lines(process, 3)
        with pace.at_most(2 + 2):
            self.cluster.node2.kill("sleep 1000")
            outcome = self.finish(process)
        self.expect_first(outcome, 137, "killed by SIGKILL")

    def test_a_rank_that_is_stopped_while_the_job_is_ended(self):
        process = self.start_exec(STUBBORN, "--grace", "1")
        self.lines(process, 3)
        with pace.at_most(1 + 3):
            process.send_signal(signal.SIGTERM)
            self.cluster.node1.kill("trap", signal.SIGSTOP)
            self.assertEqual(self.finish(process).code, 137)

    def test_a_rank_that_was_stopped_before(self):
        process = self.start_exec("echo up; exec sleep 1000")
        self.lines(process, 3)
        self.cluster.node3.kill("sleep 1000", signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(process).code, 143)

    def test_grandchildren_of_all_ends(self):
        for end, code in (("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137)):
            with self.subTest(end=end):
                outcome = self.exec(GRANDCHILD + end)
                self.assertEqual(outcome.code, code, str(outcome))
                self.assertEqual([p for host in self.cluster.processes().values() for p in host.values() if "sleep" in p], [])


class Stopping(HostCase):
    def test_one_ctrl_c_lets_the_ranks_save(self):
        process = self.start_exec(SAVES)
        self.lines(process, 3)
        process.send_signal(signal.SIGINT)
        outcome = self.finish(process)
        self.expect(outcome, 130, "Ctrl-C")
        self.assertEqual(outcome.out.count("saved"), 3, str(outcome))

    def test_two_ctrl_c_end_at_once(self):
        process = self.start_exec(STUBBORN, "--grace", "1000")
        self.lines(process, 3)
        process.send_signal(signal.SIGINT)
        process.stderr.readline()  # it says that it stops: the first one was seen

        def pressed():  # one at once after another is the same for the launcher
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            return process.poll() is not None

        self.wait_until(pressed, 5, "the end after a further Ctrl-C")
        self.expect(self.finish(process), 130)

    def test_sigterm_gives_75_when_all_could_save(self):
        process = self.start_exec(SAVES)
        self.lines(process, 3)
        process.send_signal(signal.SIGTERM)
        outcome = self.finish(process)
        self.expect(outcome, 75)
        self.assertEqual(outcome.out.count("saved"), 3, str(outcome))

    def test_user_signals_reach_all_hosts(self):
        process = self.start_exec("trap 'echo heard; exit 0' USR1; echo ready; while :; do sleep 0.05; done")
        self.lines(process, 3)
        process.send_signal(signal.SIGUSR1)
        outcome = self.finish(process)
        self.assertEqual((outcome.code, outcome.out.count("heard")), (0, 3), str(outcome))

    def test_a_time_limit(self):
        outcome = self.exec("exec sleep 1000", "--timeout", "2s")
        self.expect(outcome, 124, "--timeout")


class LostHosts(HostCase):
    """What ranks and grandchildren there are must go, whoever is the one that dies."""

    def begin(self, *options, script=GRANDCHILD + STUBBORN):
        process = self.start_exec(script, *options)
        self.lines(process, 3)
        return process

    def alive(self, *hosts):
        hosts = hosts or self.cluster.hosts.values()
        return {host.name: host.processes() for host in hosts if host.processes()}

    def test_an_agent_that_is_killed(self):
        process = self.begin("--grace", "1")
        self.assertEqual(len(self.cluster.node2.kill(r"dslaunch agent\b")), 1)
        outcome = self.finish(process)
        self.expect(outcome, 69, "node2")
        self.wait_until(lambda: self.alive() == {}, 3, f"an end of all processes ({self.alive()})")

    def test_an_sshd_that_is_killed(self):
        process = self.begin("--grace", "1")
        self.cluster.node2.kill_sshd()
        outcome = self.finish(process)
        self.expect(outcome, 69, "node2")
        self.wait_until(lambda: self.alive() == {}, 3, "an end of all processes")

    def test_a_resumed_launcher_learns_why_its_ranks_ended(self):
        process = self.start_exec("trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done", "--lost_after", "2s")
        self.lines(process, 3)
        process.send_signal(signal.SIGSTOP)
        try:
            self.wait_until(lambda: not any(node.kill("dslaunch agent", 0) for node in self.cluster.nodes),
                            what="an end of the agents")
        finally:
            process.send_signal(signal.SIGCONT)
        self.expect(self.finish(process), 69, "node1: no heartbeat from the launcher: ending this node's ranks")

    def test_an_agent_with_pending_output_exits_when_the_launcher_is_silent(self):
        """More than stays in what lies between, and not so much that the rank could not end."""
        process = self.start_exec(f"echo up; while [ ! -e {self.path('go')} ]; do sleep 0.05; done; head -c 3000000 /dev/zero",
                                  "--lost_after", "2s", hosts="node2 slots=1\n")
        self.lines(process, 1)
        process.send_signal(signal.SIGSTOP)
        self.write("go", "")
        try:
            self.wait_until(lambda: not self.cluster.node2.kill("dslaunch agent", 0), what="an end of the agent")
        finally:
            process.send_signal(signal.SIGCONT)
        self.expect(self.finish(process), 69, "node2")

    def test_a_resumed_launcher_learns_the_cause_after_much_output(self):
        process = self.start_exec("echo up; yes | head -c 50000000", "--lost_after", "2s", "--quiet",
                                  "--run_dir", self.path("run"), hosts="node2 slots=1\n")
        self.wait_until(lambda: self.cluster.node2.kill("^yes", 0), what="a rank that writes")
        process.send_signal(signal.SIGSTOP)
        try:
            self.wait_until(lambda: not self.cluster.node2.kill("^yes", 0), what="an end of the rank")
        finally:
            process.send_signal(signal.SIGCONT)
        outcome = self.finish(process)
        self.assertEqual(outcome.code, 69, outcome.err)
        self.assertIn("no heartbeat from the launcher: ending this node's ranks", outcome.err)

    def test_hidden_processes_end_with_a_killed_agent(self):
        """Neither by the job's id nor by a parent could anybody find it: it is an orphan without an environment."""
        hidden = "env -i setsid setsid sh -c \"trap '' TERM HUP; sleep 1000\" >/dev/null 2>&1 </dev/null &"
        process = self.start_exec(f"{hidden} echo up; exec sleep 500")
        self.lines(process, 3)
        self.wait_until(lambda: all(len(node.kill("^sleep 1000", 0)) == 1 for node in self.cluster.nodes),
                        what="a hidden process on each host")
        self.assertEqual(len(self.cluster.node2.kill(r"dslaunch agent\b")), 1)
        self.expect(self.finish(process), 69, "lost node2", "SIGKILL")
        self.assertEqual([node.kill("sleep 1000", 0) for node in self.cluster.nodes], [[], [], []])

    def test_no_process_remains_two_seconds_after_the_launcher_was_killed(self):
        def left():
            return [command for found in self.alive().values() for command in found.values() if not command.startswith("sshd:")]

        process = self.begin()
        process.kill()
        process.wait()
        self.wait_until(lambda: not left(), 2, lambda: f"an end of all processes ({left()})")
        self.remove_sockets()

    def test_a_launcher_killed_while_it_starts(self):
        for delay in (0.05, 0.2, 0.5):
            with self.subTest(delay=delay):
                process = self.start_exec(STUBBORN)
                time.sleep(delay)
                process.kill()
                process.wait()
                self.wait_until(lambda: self.alive() == {}, 5, "an end of all processes")
        self.remove_sockets()

    @long_running
    def test_a_host_that_is_cut_off_is_lost_within_20_s(self):
        process = self.begin("--grace", "1")
        self.cluster.partition(self.cluster.node2)
        began = time.monotonic()
        with pace.at_most(20 + 5):
            outcome = self.finish(process)
        self.expect(outcome, 69, "node2")
        self.assertGreater(time.monotonic() - began, 10)
        self.assertEqual(self.alive(self.cluster.node1, self.cluster.node3, self.cluster.head), {})
        # Its ranks have no launcher any more, and know it, although the way is still cut.
        self.wait_until(lambda: not self.cluster.node2.kill("trap|dslaunch agent", 0), 10, "an end of its ranks")
        self.reconnect(self.cluster.node2)

    def reconnect(self, host):
        """sshd still has to learn that nobody is there any more, which takes it as long as TCP pleases."""
        self.cluster.heal(host)
        host.kill_sshd()

    @long_running
    def test_a_host_whose_cable_is_pulled(self):
        process = self.begin("--grace", "1", "--lost_after", "4s")
        self.cluster.partition(self.cluster.node3, "unplugged")
        with pace.at_most(4 + 5):
            outcome = self.finish(process)
        self.expect(outcome, 69, "node3")
        self.wait_until(lambda: not self.cluster.node3.kill("trap|dslaunch agent", 0), 10, "an end of its ranks")
        self.reconnect(self.cluster.node3)

    @long_running
    def test_a_flap_of_five_seconds_heals(self):
        for how in ("blackhole", "unplugged"):
            with self.subTest(how=how):
                process = self.start_exec(f"echo up; while [ ! -e {self.path('go')} ]; do sleep 0.05; done; echo done")
                self.lines(process, 3)
                self.cluster.partition(self.cluster.node2, how)
                time.sleep(5)  # the flap itself
                self.cluster.heal(self.cluster.node2)
                self.write("go", "")
                outcome = self.finish(process)
                self.expect(outcome, 0)
                self.assertEqual(outcome.out.count("done"), 3, str(outcome))
                os.unlink(self.path("go"))


class Refusals(HostCase):
    """A job that cannot begin: all hosts are tried, all that failed are told, and nothing has run anywhere."""

    def refused(self, code, *words, hosts=None, options=()):
        outcome = self.exec(f"touch {self.path('ran')}.$RANK", *options, hosts=hosts)
        self.expect(outcome, code, *words)
        self.assertEqual(glob.glob(self.path("ran.*")), [], "a rank ran although a host was refused")
        return outcome

    def test_a_missing_hostfile_never_runs_locally(self):
        outcome = self.launch("exec", "--device", "cpu", "--hostfile", self.path("none"), "--", "touch", self.path("ran.0"))
        self.expect(outcome, 66, self.path("none"))
        self.assertFalse(os.path.exists(self.path("ran.0")))

    def test_all_unreachable_hosts_are_reported(self):
        self.cluster.node2.kill_sshd()
        self.cluster.partition(self.cluster.node3, "unplugged")
        with pace.at_most(2 + 5):
            self.refused(69, "node2", "refused", "node3", options=["--connect_timeout", "2s"])

    def test_an_unknown_host_name(self):
        self.refused(69, "no-such-host", hosts="node1 slots=1\nno-such-host slots=1\n")

    def test_an_unknown_host_key_is_refused_with_the_fix(self):
        known = self.head.root("/root/.ssh/known_hosts")
        with open(known, encoding="utf-8") as file:
            lines = [line for line in file if not line.startswith("node2,")]
        with open(known, "w", encoding="utf-8") as file:
            file.writelines(lines)
        outcome = self.refused(77, "node2", "known_hosts")
        self.assertIn("ssh-keyscan", outcome.err)

    def test_a_changed_host_key_is_refused(self):
        known = self.head.root("/root/.ssh/known_hosts")
        with open(known, encoding="utf-8") as file:
            text = file.read()
        key2, key3 = (next(line.split()[2] for line in text.splitlines() if line.startswith(name))
                      for name in ("node2,", "node3,"))
        with open(known, "w", encoding="utf-8") as file:
            file.write(text.replace(key2, key3))
        self.refused(77, "node2", "known_hosts")

    def test_a_user_without_login_permission(self):
        self.refused(77, "node3", "nobody", hosts="node1 slots=1\nnobody@node3 slots=1\n")

    def test_several_errors_are_reported_together(self):
        self.cluster.node1.kill_sshd()
        outcome = self.refused(69, "node1", "node3", "nobody", hosts="node1 slots=1\nnode2 slots=1\nnobody@node3 slots=1\n")
        self.assertNotIn("node2", outcome.err, str(outcome))

    def test_a_host_without_the_program(self):
        self.cluster.node2.hide(os.path.dirname(self.program_there()))
        self.refused(69, "node2", "--push")
        self.cluster.node2.unhide()

    def program_there(self):
        return os.path.join(os.path.realpath(os.environ["DSLAUNCH_BIN"]), "dslaunch")
