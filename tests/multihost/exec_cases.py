"""`exec` on three hosts while all goes well: what reaches the ranks, and what comes back."""
import json
import os
import subprocess
import sys
import time

from host_case import HostCase
from netns import HOME
from parallel_cases import long_running

SHOW = "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $(hostname)"
ECHO_ARGUMENTS = "import json, sys; print(json.dumps(sys.argv[1:]))"
ECHO_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"


def after_prefix(outcome):
    """host:rank -> what that rank wrote, of lines with a prefix."""
    return dict(line.split("| ", 1) for line in outcome.out.splitlines())


class Ranks(HostCase):
    def documents(self, outcome):
        self.expect(outcome, 0)
        return {name: json.loads(text) for name, text in after_prefix(outcome).items()}

    def test_ranks_have_their_numbers_and_hosts(self):
        outcome = self.exec(SHOW, hosts="node1 slots=2\n# a comment\n\nnode[2-3] slots=1\n")
        self.expect(outcome, 0)
        self.assertEqual(sorted(outcome.out.splitlines()),
                         ["node1:0| 0 0 4 2 0 node1", "node1:1| 1 1 4 2 0 node1", "node2:2| 2 0 4 1 1 node2",
                          "node3:3| 3 0 4 1 2 node3"])

    def test_ranks_agree_on_a_reachable_master_address(self):
        script = ("import os, socket\n"
                  "socket.create_connection((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])), 5).close()\n"
                  "print(os.environ['MASTER_ADDR'], os.environ['MASTER_PORT'], os.environ['TORCHELASTIC_RUN_ID'])\n")
        outcome = self.launch("exec", "--device", "cpu", "--hostfile", self.hostfile(), "--", sys.executable, "-c", script)
        self.expect(outcome, 0)
        self.assertEqual(len(set(after_prefix(outcome).values())), 1, str(outcome))

    def test_the_master_address_may_be_on_another_network(self):
        """What a client of torch begins with: its validation and a ping, which comes back."""
        nodes = (self.cluster.node1, self.cluster.node2)
        for node in nodes:
            node.run(["ip", "address", "add", f"10.88.0.{node.address.split('.')[-1]}/24", "dev", "eth0"])
        script = ("import os, socket\n"
                  "with socket.create_connection((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))) as client:\n"
                  "    client.sendall(bytes.fromhex('00cef7853c0d45290000'))\n"
                  "    print(client.getsockname()[0], client.recv(4).hex())\n")
        outcome = self.launch("exec", "--device", "cpu", "--hostfile", self.hostfile("node1 slots=1\nnode2 slots=1\n"),
                              "--master_addr", "10.88.0.12", "--", sys.executable, "-c", script)
        for node in nodes:
            node.run(["ip", "address", "flush", "to", "10.88.0.0/24", "dev", "eth0"])
        self.expect(outcome, 0)
        self.assertEqual(sorted(after_prefix(outcome).values()), ["10.88.0.12 45290000", "10.88.0.13 45290000"])

    def test_the_launching_host_may_run_ranks(self):
        outcome = self.exec(SHOW, hosts="head slots=1\nnode1 slots=1\n")
        self.expect(outcome, 0)
        self.assertEqual(sorted(after_prefix(outcome).values()), ["0 0 2 1 0 head", "1 0 2 1 1 node1"])

    def test_a_single_remote_host_is_remote(self):
        outcome = self.exec("hostname", hosts="node2 slots=1\n")
        self.expect(outcome, 0)
        self.assertEqual(outcome.out, "node2\n")

    def test_hosts_with_user_port_and_address(self):
        hosts = f"root@node1:22 slots=1\n{self.cluster.node2.address} slots=1\n[{self.cluster.node3.address6}] slots=1\n"
        outcome = self.exec("hostname", hosts=hosts)
        self.expect(outcome, 0)
        self.assertEqual(sorted(after_prefix(outcome).values()), ["node1", "node2", "node3"])

    def test_names_of_the_ssh_configuration(self):
        config = self.head.root(f"{HOME}/.ssh/config")
        with open(config, "w", encoding="utf-8") as file:
            file.write("Host worker-a\n  HostName node1\n  User root\n  Port 22\n"
                       f"Host worker-b\n  HostName {self.cluster.node2.address}\n")
        os.chmod(config, 0o600)
        outcome = self.exec("hostname", hosts="worker-a slots=1\nworker-b slots=1\n")
        self.expect(outcome, 0)
        self.assertEqual(after_prefix(outcome), {"worker-a:0": "node1", "worker-b:1": "node2"})
        os.unlink(config)

    def test_arguments_are_unchanged(self):
        odd = ["", "a b", "it's", 'say "hi"', "$HOME", "`id`", "$(id)", ";", "*", "?", "new\nline", "--num_gpus", "--", "\\",
               "é ☃", "a=b", "~", "!", "{a,b}", "|", "&", "<", ">", "#", "\t"]
        outcome = self.launch("exec", "--device", "cpu", "--hostfile", self.hostfile(), "--", sys.executable, "-c",
                              ECHO_ARGUMENTS, *odd)
        documents = self.documents(outcome)
        self.assertEqual(len(documents), 3)
        for document in documents.values():
            self.assertEqual(document, odd)

    def test_ranks_get_environment_and_directory(self):
        odd = "a b'\"$HOME;*\n\\"
        outcome = self.launch("exec", "--device", "cpu", "--hostfile", self.hostfile(), "--env", f"ODD={odd}", "--env",
                              "EMPTY=", "--chdir", self.folder, "--", sys.executable, "-c",
                              "import json, os; print(json.dumps([dict(os.environ), os.getcwd()]))", NOT_FOR_THEM="x")
        for name, (environment, folder) in self.documents(outcome).items():
            self.assertEqual((environment["ODD"], environment["EMPTY"]), (odd, ""))
            self.assertEqual(folder, self.folder)
            self.assertEqual(environment["HOME"], HOME)
            self.assertNotIn("SSH_AUTH_SOCK", environment, name)

    def test_variables_of_nccl_and_python_are_exported(self):
        outcome = self.launch("exec", "--device", "cpu", "--hostfile", self.hostfile(), "--", sys.executable, "-c",
                              ECHO_ENVIRONMENT, NCCL_DEBUG="WARN", PYTHONPATH="/some/where")
        for environment in self.documents(outcome).values():
            self.assertEqual(environment.get("NCCL_DEBUG"), "WARN")
            self.assertIn("/some/where", environment.get("PYTHONPATH", ""))

    def test_an_environment_file_with_comments_and_blank_lines(self):
        file = self.write("env", "# what we need\n\nA=1\n  \nB=two words\nexport C=3\nD='quoted # no comment'\nE=\"x y\"\n")
        outcome = self.launch("exec", "--device", "cpu", "--hostfile", self.hostfile(), "--env_file", file, "--",
                              sys.executable, "-c", ECHO_ENVIRONMENT)
        for environment in self.documents(outcome).values():
            self.assertEqual({name: environment.get(name) for name in "ABDE"},
                             {"A": "1", "B": "two words", "D": "quoted # no comment", "E": "x y"})

    def test_a_deepspeed_env_with_comments_and_blank_lines(self):
        self.write(".deepspeed_env", "# a comment\n\nFROM_DEEPSPEED=yes\n")
        outcome = self.launch("exec", "--device", "cpu", "--hostfile", self.hostfile(), "--", sys.executable, "-c",
                              ECHO_ENVIRONMENT)
        for environment in self.documents(outcome).values():
            self.assertEqual(environment.get("FROM_DEEPSPEED"), "yes")

    def test_a_virtual_environment_is_active_on_every_host(self):
        venv = self.path("venv")
        os.makedirs(f"{venv}/bin")
        self.write("venv/bin/activate", f"VIRTUAL_ENV='{venv}'\nexport VIRTUAL_ENV\nPATH=\"{venv}/bin:$PATH\"\nexport PATH\n")
        self.write("venv/bin/mine", "#!/bin/sh\necho mine on $(hostname) $VIRTUAL_ENV\n", 0o755)
        self.write("venv/pyvenv.cfg", "")
        os.symlink(sys.executable, f"{venv}/bin/python")
        outcome = self.launch("exec", "--device", "cpu", "--hostfile", self.hostfile(), "--venv", venv, "--", "mine")
        self.expect(outcome, 0)
        self.assertEqual(sorted(after_prefix(outcome).values()), [f"mine on node{i} {venv}" for i in (1, 2, 3)])


class Output(HostCase):
    def test_logs_of_all_ranks_are_on_the_launching_host(self):
        self.cluster.node1.run(["mkdir", "-p", "/tmp/x"])
        outcome = self.exec("echo out $RANK; echo err $RANK >&2", "--run_dir", "/tmp/run")
        self.cluster.node1.run(["rmdir", "/tmp/x"])
        self.expect(outcome, 0)
        for rank in range(3):
            with open(self.head.root(f"/tmp/run/logs/node{rank + 1}.{rank}.log"), encoding="utf-8") as file:
                self.assertEqual(sorted(file.read().splitlines()), [f"err {rank}", f"out {rank}"])
        for node in self.cluster.nodes:
            self.assertEqual(node.files(), set(), "the logs belong to the launching host")
        self.head.run(["rm", "-r", "/tmp/run"])

    def test_large_output_is_complete(self):
        script = ("import os, sys\n"
                  "r = os.environ['RANK']\n"
                  "for i in range(3000): sys.stdout.write(r * 1000 + '\\n')\n"
                  "sys.stdout.write(r * 3000000 + '\\n')\n")
        outcome = self.launch("exec", "--device", "cpu", "--hostfile", self.hostfile(), "--", sys.executable, "-c", script)
        self.expect(outcome, 0)
        lines = outcome.out.splitlines()
        for rank in "012":
            mine = [line.split("| ", 1)[1] for line in lines if line.startswith(f"node{int(rank) + 1}:{rank}|")]
            self.assertEqual(mine, [rank * 1000] * 3000 + [rank * 3000000])

    def test_a_line_is_shown_when_it_is_written(self):
        process = self.start_exec("echo first; exec sleep 1000")
        self.assertEqual(sorted(self.lines(process, 3)), [f"node{rank + 1}:{rank}| first\n" for rank in range(3)])
        process.terminate()
        self.assertEqual(self.finish(process).code, 143)

    def test_json_report(self):
        outcome = self.exec("[ $RANK != 1 ] || exit 4; exec sleep 1000", "--json")
        self.expect(outcome, 4)
        document = json.loads(outcome.out)
        self.assertEqual((document["first_failure"]["rank"], document["first_failure"]["host"]), (1, "node2"))


class SlowReaders(HostCase):
    """A reader that pauses or is slow holds up the ranks, and nobody takes that for a lost host."""
    LOST_AFTER_S = 1.5

    def write_much(self, script):
        return self.start_exec(script, "--lost_after", f"{self.LOST_AFTER_S}s", "--no_fold")

    def processor_share(self, process, seconds):
        """What the launcher uses of a core in that time, in which nobody reads."""
        def used():
            with open(f"/proc/{process.pid}/stat", encoding="utf-8") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        before = used()
        with self.assertRaises(subprocess.TimeoutExpired):
            process.wait(timeout=seconds)
        return (used() - before) / seconds

    def expect_all(self, outcome, already_read, lines, line):
        self.assertEqual((outcome.code, outcome.err), (0, ""))
        found = (already_read + outcome.out).splitlines()
        for rank in range(3):
            self.assertEqual(found.count(f"node{rank + 1}:{rank}| {line}"), lines)

    @long_running
    def test_a_reader_that_pauses(self):
        process = self.write_much(f"yes {'x' * 99} | head -n 100000")
        begun = os.read(process.stdout.fileno(), 9).decode()
        self.processor_share(process, self.LOST_AFTER_S)  # what fits is still on its way
        self.assertLess(self.processor_share(process, 2 * self.LOST_AFTER_S), 0.05)
        self.expect_all(self.finish(process), begun, 100000, "x" * 99)

    @long_running
    def test_a_reader_of_500_kb_per_second(self):
        process = self.write_much(f"yes {'x' * 99} | head -n 100000")
        begun, began = os.read(process.stdout.fileno(), 9), time.monotonic()
        while (passed := time.monotonic() - began) < 4 * self.LOST_AFTER_S:
            begun += os.read(process.stdout.fileno(), max(1, int(500e3 * passed) - len(begun)))
            time.sleep(0.02)  # the pace itself
        outcome = self.finish(process)
        self.assertEqual((outcome.code, outcome.err), (0, ""))
        self.assertEqual(len(begun) + len(outcome.out), 3 * 100000 * len('node1:0| ' + 'x' * 99 + '\n'))

    @long_running
    def test_a_fast_reader_of_very_short_lines(self):
        outcome = self.finish(self.write_much("yes | head -c 2000000"))
        self.expect_all(outcome, "", 1000000, "y")


class OtherJobs(HostCase):
    def test_another_job_with_the_same_command_line_continues(self):
        """Nothing is ended by its name."""
        script = "echo up; exec sleep 12345"
        other = self.start_exec(script)
        self.lines(other, 3)
        mine = self.start_exec(script)
        self.lines(mine, 3)
        mine.terminate()
        self.assertEqual(self.finish(mine).code, 143)
        for node in self.cluster.nodes:
            self.assertEqual(sum(command == "sleep 12345" for command in node.processes().values()), 1)
        self.assertIsNone(other.poll())
        other.terminate()
        self.assertEqual(self.finish(other).code, 143)

    def test_other_processes_of_the_user_continue(self):
        bystander = self.cluster.node1.popen(["sleep", "12345"])
        outcome = self.exec("[ $RANK != 0 ] || exit 3; exec sleep 12345")
        self.expect(outcome, 3)
        self.assertIsNone(bystander.poll())
        bystander.kill()
        bystander.wait()
