"""What surrounds a job on several hosts: other ways through SSH, a held port, secrets, restarts, jobs in the background."""
import json
import os
import re
import signal
import socket
import sys

from host_case import HostCase
from netns import HOME
from parallel_cases import long_running

WAIT = "echo up; exec sleep 1000"


class Transports(HostCase):
    def ssh_config(self, text):
        path = self.head.root(f"{HOME}/.ssh/config")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o600)
        self.addCleanup(os.unlink, path)

    def tearDown(self):
        self.doCleanups()
        super().tearDown()

    def test_the_ssh_program_instead_of_the_library(self):
        outcome = self.exec("hostname", "--ssh_program", "ssh")
        self.expect(outcome, 0)
        self.assertEqual(sorted(line.split("| ")[1] for line in outcome.out.splitlines()), ["node1", "node2", "node3"])
        self.expect(self.exec("[ $RANK != 2 ] || exit 9; exec sleep 1000", "--ssh_program", "ssh"), 9, "rank 2 on node3")

    def test_the_ssh_program_reports_failures(self):
        self.cluster.node2.kill_sshd()
        self.expect(self.exec("true", "--ssh_program", "ssh"), 69, "node2")
        self.expect(self.exec("true", "--ssh_program", "ssh", hosts="node1 slots=1\nnobody@node3 slots=1\n"), 77, "node3")

    def test_forwardings_and_commands_of_the_users_ssh_config_are_not_used(self):
        self.ssh_config("IgnoreUnknown UseKeychain\nHost *\n  UseKeychain yes\n  LocalForward 9999 localhost:22\n"
                        "  ExitOnForwardFailure yes\n  RemoteCommand echo mine\n")
        self.expect(self.exec("true", "--ssh_program", "ssh"), 0)

    def test_an_unknown_jump_host_is_refused_at_once(self):
        known = self.head.root(f"{HOME}/.ssh/known_hosts")
        with open(known, encoding="utf-8") as file:
            lines = [line for line in file if not line.startswith("node1,")]
        with open(known, "w", encoding="utf-8") as file:
            file.writelines(lines)
        self.ssh_config("Host node2\n  ProxyJump node1\n")
        for way in ([], ["--ssh_program", "ssh"]):
            outcome = self.exec("true", "--connect_timeout", "40s", *way, hosts="node2 slots=1\n")
            self.expect(outcome, 77, "node2", "Host key verification failed")
            self.assertLess(outcome.seconds, 30)

    def test_a_host_behind_a_jump_host(self):
        """Directly there is no way to node2."""
        address = f"{self.cluster.node2.address}/32"
        self.head.run(["ip", "route", "add", "blackhole", address])
        self.addCleanup(self.head.run, ["ip", "route", "del", "blackhole", address])
        self.ssh_config("Host node2\n  ProxyJump node1\n")
        for node in self.cluster.nodes:  # the test is about the way, not about who may connect
            node.run(["true"])
        outcome = self.exec("hostname", hosts="node2 slots=1\n")
        self.expect(outcome, 0)
        self.assertEqual(outcome.out, "node2\n")

    def test_a_name_with_a_silent_address(self):
        """The one that the resolver puts first, being nearest to ours. node3 is no router and drops what is for others."""
        self.head.run(["ip", "route", "add", "10.77.0.10/32", "via", self.cluster.node3.address])
        self.addCleanup(self.head.run, ["ip", "route", "del", "10.77.0.10/32"])
        names = self.write("names", f"10.77.0.10 node1\n{self.cluster.node1.address} node1\n")
        self.head.run(["mount", "-n", "--bind", names, "/etc/hosts"])
        self.addCleanup(self.head.run, ["umount", "-n", "/etc/hosts"])
        outcome = self.exec("hostname", "--connect_timeout", "5s", hosts="node1 slots=1\n")
        self.expect(outcome, 0)
        self.assertEqual(outcome.out, "node1\n")

    def test_ssh_port_from_option_and_hostfile(self):
        self.expect(self.exec("true", "--ssh_port", "2222", hosts="node1 slots=1\n"), 69, "node1", "2222")
        self.expect(self.exec("true", "--ssh_port", "2222", hosts="node1:22 slots=1\n"), 0)


class MasterPort(HostCase):
    def test_a_held_port_on_node_0_names_its_holder(self):
        script = ("import socket, time\ns = socket.socket(); s.bind(('', 0)); s.listen()\n"
                  "print(s.getsockname()[1], flush=True)\ntime.sleep(1000)\n")
        node = self.cluster.node1
        holder = node.popen([sys.executable, "-c", script], stdout=-1)
        port = int(holder.stdout.readline())
        pid_there = node.run(["sh", "-c", "pgrep -f time.sleep.1000 | head -1"]).stdout.strip()
        outcome = self.exec("true", "--master_port", str(port))
        holder.kill()
        holder.communicate()
        self.expect(outcome, 69, "node1", str(port), f"pid {pid_there}")

    def test_a_free_port_is_used(self):
        with socket.socket() as probe:  # free here, so it is free in the empty hosts
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        outcome = self.exec("echo $MASTER_PORT", "--master_port", str(port))
        self.expect(outcome, 0)
        self.assertEqual(outcome.out.count(str(port)), 3, str(outcome))


class Secrets(HostCase):
    def test_no_command_line_and_no_readable_file_has_the_token(self):
        script = "echo up ${DSLAUNCH_TOKEN:-none}; exec sleep 1000"
        process = self.start_exec(script)
        told = {re.search(r"up (\S+)", line).group(1) for line in self.lines(process, 3)}
        commands = "\n".join(command for host in self.cluster.hosts.values() for command in host.processes().values())
        self.assertIn("dslaunch agent", commands)
        self.assertNotRegex(commands, r"[0-9a-f]{64}")
        for token in told - {"none"}:
            self.assertNotIn(token, commands)
        for host in self.cluster.hosts.values():
            for path in host.files():
                status = os.lstat(host.root(path))
                if not path.startswith(f"{HOME}/.local") or not os.path.isdir(host.root(path)):
                    self.assertEqual(status.st_mode & 0o077, 0, f"{host}:{path} can be reached by others")
        process.terminate()
        self.assertEqual(self.finish(process).code, 143)


class Restarts(HostCase):
    def test_a_rank_that_fails_once(self):
        script = ("echo try $TORCHELASTIC_RESTART_COUNT; [ $RANK != 1 ] || [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 5; "
                  "sleep 0.2")
        outcome = self.exec(script, "--max_restarts", "2")
        self.expect(outcome, 0, "rank 1 on node2 failed first: exit code 5")
        self.assertEqual(outcome.out.count("try 1"), 3, str(outcome))
        self.assertEqual(outcome.out.count("try 2"), 0, str(outcome))

    def test_a_rank_that_always_fails(self):
        outcome = self.exec("echo try $TORCHELASTIC_RESTART_COUNT; exit 5", "--max_restarts", "1", hosts="node1 slots=1\n")
        self.expect(outcome, 5)
        self.assertEqual(outcome.out.splitlines(), ["try 0", "try 1"])

    @long_running
    def test_a_lost_host_is_left_out(self):
        script = ("echo up $TORCHELASTIC_RESTART_COUNT $WORLD_SIZE $(hostname); "
                  "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exec sleep 1000")
        process = self.start_exec(script, "--max_restarts", "1", "--min_nodes", "2", "--grace", "1")
        self.lines(process, 3)
        self.cluster.node2.kill_sshd()
        outcome = self.finish(process)
        self.expect(outcome, 0, "node2")
        self.assertEqual(sorted(line.split("| ")[1] for line in outcome.out.splitlines()), ["up 1 2 node1", "up 1 2 node3"])

    @long_running
    def test_a_resumed_agent_does_not_touch_the_next_attempt(self):
        script = f"echo up $TORCHELASTIC_RESTART_COUNT; while [ ! -e {self.path('go')} ]; do sleep 0.05; done"
        process = self.start_exec(script, "--max_restarts", "1", "--lost_after", "2s", "--grace", "1",
                                  hosts="node1 slots=1\nnode2 slots=1\n")
        self.lines(process, 2)
        node = self.cluster.node2
        (still,) = node.kill(r"dslaunch agent\b", signal.SIGSTOP)
        self.assertEqual({line.split("| ")[1] for line in self.lines(process, 2)}, {"up 1\n"})
        os.kill(still, signal.SIGCONT)
        self.wait_until(lambda: still not in node.processes(), what="an end of the first attempt's agent")
        self.write("go", "")
        self.expect(self.finish(process), 0, "node2")

    def test_too_few_hosts_are_left(self):
        process = self.start_exec(WAIT, "--max_restarts", "1", "--min_nodes", "3", "--grace", "1")
        self.lines(process, 3)
        self.cluster.node2.kill_sshd()
        self.expect(self.finish(process), 69, "node2", "--min_nodes")


class Background(HostCase):
    """--detach, and the commands that find the job again. All of them run on the launching host."""

    def detach(self, script):
        outcome = self.exec(script, "--detach")
        self.expect(outcome, 0)
        (job,) = [job for job in json.loads(self.launch("jobs", "--json").out)["jobs"]]
        return job["job_id"]

    def jobs_ranks(self):
        return sum("sleep 1000" in command for host in self.cluster.nodes for command in host.processes().values())

    def test_a_job_in_the_background_is_found_and_stopped(self):
        job = self.detach("echo words of $RANK; exec sleep 1000")
        self.wait_until(lambda: self.jobs_ranks() == 3, what="three ranks")
        logs = self.launch("logs", job)
        self.assertEqual([f"words of {rank}" in logs.out for rank in range(3)], [True] * 3, str(logs))
        one = self.launch("logs", job, "--rank", "2")
        self.assertEqual(("words of 2" in one.out, "words of 1" in one.out), (True, False), str(one))
        self.expect(self.launch("stop", job, "--now"), 0)
        self.wait_until(lambda: not self.cluster.processes(), 5, "an end of all processes")

    def test_hosts_of_its_ranks_are_listed(self):
        job = self.detach("exec sleep 1000")
        self.wait_until(lambda: self.jobs_ranks() == 3, what="three ranks")
        outcome = self.launch("stacks", job, "--json")
        self.expect(outcome, 0)
        document = json.loads(outcome.out)
        places = [(each["rank"], each["host"]) for group in document["stacks"] for each in group["ranks"]]
        self.assertEqual((sorted(places), document["missing"]), ([(0, "node1"), (1, "node2"), (2, "node3")], []), str(outcome))
        self.assertIn("sleep", document["stacks"][0]["text"])
        self.expect(self.launch("stop", job, "--now"), 0)

    def test_its_supervisor_is_killed(self):
        self.allowed_files += r"|^/run/user/0/dslaunch/"
        self.detach("trap '' TERM; echo up; while :; do sleep 0.05; done")
        self.wait_until(lambda: len(self.cluster.node3.processes()) > 1, what="a rank")
        self.assertGreaterEqual(len(self.head.kill("dslaunch", signal.SIGKILL)), 1)
        self.wait_until(lambda: not self.cluster.processes(), 5, "an end of all processes")
