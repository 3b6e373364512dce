"""Real work on several hosts: `run` with dsworker over Gloo, plain torch.distributed under `exec`, programs that are not
where we are, nodes that are started by hand."""
import json
import os
import shutil
import signal
import sys
import unittest

import model_fixture
from host_case import DSLAUNCH, HostCase
from netns import HOME
from parallel_cases import long_running

WORKER = os.path.join(os.path.dirname(DSLAUNCH), "dsworker")


@unittest.skipUnless(model_fixture.has_torch(), "no pinned PyTorch")
class Torch(HostCase):
    """PyTorch meets at the port that the agent of node rank 0 holds."""

    SCRIPT = ("import os, torch, torch.distributed as dist\n"
              "rank, port = int(os.environ['RANK']), int(os.environ['MASTER_PORT'])\n"
              "store = dist.TCPStore(os.environ['MASTER_ADDR'], port, is_master=False)\n"
              "store.set(f'from {rank}', str(rank))\n"
              "print([store.get(f'from {other}').decode() for other in range(3)], flush=True)\n"
              "dist.init_process_group('gloo')\n"
              "total = torch.tensor([float(dist.get_rank() + 1)])\n"
              "dist.all_reduce(total)\n"
              "print('sum', total.item(), dist.get_world_size(), flush=True)\n"
              "dist.destroy_process_group()\n")

    @long_running
    def test_a_script_with_its_own_store_and_gloo_on_two_hosts(self):
        script = self.write("script.py", self.SCRIPT)
        outcome = self.launch("exec", "--device", "cpu", "--hostfile", self.hostfile("node1 slots=2\nnode2 slots=1\n"),
                              "--env", "GLOO_SOCKET_IFNAME=eth0", "--", model_fixture.TORCH_PYTHON, script)
        self.expect(outcome, 0)
        self.assertEqual(outcome.out.count("['0', '1', '2']"), 3, str(outcome))
        self.assertEqual(outcome.out.count("sum 6.0 3"), 3, str(outcome))


@unittest.skipUnless(model_fixture.has_torch() and os.access(WORKER, os.X_OK), "no pinned PyTorch, or dsworker is not built")
class Training(HostCase):
    def setUp(self):
        super().setUp()
        model_fixture.copy_model(self.folder)

    def train(self, *options, hosts=None, **env):
        return self.launch("--device", "cpu", "--hostfile", self.hostfile(*([hosts] if hosts else [])), "--config", "ds.json",
                           "--data", "train.safetensors", "--steps", "4", "--run_dir", "out", *options, "model.pt", **env)

    def losses(self):
        return [json.loads(line)["loss"] for line in self.read("out/metrics.jsonl").splitlines()]

    @long_running
    def test_three_hosts_match_one_host(self):
        outcome = self.train()
        self.expect(outcome, 0)
        three = self.losses()
        self.assertEqual(len(three), 4)
        self.assertEqual(sorted(os.listdir(self.path("out/logs"))), ["node1.0.log", "node2.1.log", "node3.2.log"])
        shutil.rmtree(self.path("out"))
        alone = self.launch("--device", "cpu", "--config", "ds.json", "--data", "train.safetensors", "--steps", "4",
                            "--run_dir", "out", "model.pt")
        self.expect(alone, 0)
        for mine, his in zip(three, self.losses()):
            self.assertAlmostEqual(mine, his, places=6)

    @long_running
    def test_three_externally_started_nodes(self):
        nodes = [self.start("--device", "cpu", "--no_ssh", "--num_nodes", "3", "--node_rank", str(rank), "--master_addr",
                            self.cluster.node1.address, "--num_gpus", "1", "--config", "ds.json", "--data",
                            "train.safetensors", "--steps", "4", "--run_dir", "out", "model.pt", host=node)
                 for rank, node in enumerate(self.cluster.nodes)]
        for outcome in [self.finish(node) for node in nodes]:
            self.expect(outcome, 0)
        self.assertEqual(len(self.losses()), 4)

    @long_running
    def test_a_different_model_on_a_host_is_refused(self):
        """Without a shared file system: the folder of node2 has a model of its own."""
        os.mkdir(self.path("there"))
        model_fixture.copy_model(self.path("there"))
        with open(self.path("there/model.pt"), "ab") as file:
            file.write(b"x")
        node = self.cluster.node2
        node.run(["mount", "-n", "--bind", self.path("there/model.pt"), self.path("model.pt")])
        outcome = self.train()
        node.run(["umount", "-n", self.path("model.pt")])
        self.expect(outcome, 65, "node2", "model.pt")
        self.assertFalse(os.path.exists(self.path("out/metrics.jsonl")))

    @long_running
    def test_a_model_missing_on_a_host_is_refused(self):
        os.mkdir(self.path("models"))
        shutil.move(self.path("model.pt"), self.path("models/model.pt"))
        self.cluster.node3.hide(self.path("models"))
        outcome = self.launch("--device", "cpu", "--hostfile", self.hostfile(), "--config", "ds.json", "--data",
                              "train.safetensors", "--steps", "4", "--run_dir", "out", "models/model.pt")
        self.cluster.node3.unhide()
        self.expect(outcome, 66, "node3", "models/model.pt")

    @long_running
    def test_a_worker_of_another_version_is_refused(self):
        os.mkdir(self.path("bin"))
        self.write("bin/dsworker", "#!/bin/sh\necho 'dsworker 0.0 (LibTorch 1.0)'\n", 0o755)
        node = self.cluster.node2
        node.run(["mount", "-n", "--bind", self.path("bin/dsworker"), WORKER])
        outcome = self.train()
        node.run(["umount", "-n", WORKER])
        self.expect(outcome, 69, "node2", "dsworker 0.0")

    @long_running
    def test_a_worker_that_is_killed_ends_the_others_and_is_named(self):
        process = self.start("--device", "cpu", "--hostfile", self.hostfile(), "--config", "ds.json", "--data",
                             "train.safetensors", "--steps", "1000000", "--run_dir", "out", "model.pt")
        metrics = self.path("out/metrics.jsonl")
        self.wait_until(lambda: os.path.exists(metrics) and os.path.getsize(metrics) > 0, what="the first step")
        self.assertEqual(len(self.cluster.node2.kill("dsworker train")), 1)
        self.expect(self.finish(process), 137, "rank 1 on node2 failed first: killed by SIGKILL")

    @long_running
    def test_ranks_that_do_not_join_are_named(self):
        os.mkdir(self.path("bin"))
        shutil.copy(WORKER, self.path("bin/real"))
        version = f"[ \"$1\" != --version ] || exec {self.path('bin/real')} --version"
        self.write("bin/dsworker", f"#!/bin/sh\n{version}\nexec sleep 1000\n", 0o755)
        node = self.cluster.node2
        node.run(["mount", "-n", "--bind", self.path("bin/dsworker"), WORKER])
        process = self.start("--device", "cpu", "--hostfile", self.hostfile(), "--config", "ds.json", "--data",
                             "train.safetensors", "--steps", "4", "--run_dir", "out", "--grace", "1", "model.pt")
        line = "-"
        while line and "waiting" not in line:  # the first word comes after ten seconds
            line = process.stderr.readline().decode()
        process.terminate()
        outcome = self.finish(process)
        node.run(["umount", "-n", "-l", WORKER])
        self.assertIn("waiting for 1 of 3 ranks to join: 1 (on node2", line, str(outcome))

    @long_running
    def test_a_scheduler_stop_then_resume_on_fewer_hosts(self):
        """USR1: all ranks save after the same step; two hosts go on from there."""
        common = ["--device", "cpu", "--config", "ds.json", "--data", "train.safetensors", "--run_dir", "out"]
        process = self.start(*common, "--hostfile", self.hostfile(), "--steps", "1000000", "model.pt")
        metrics = self.path("out/metrics.jsonl")
        self.wait_until(lambda: os.path.exists(metrics) and len(self.read("out/metrics.jsonl").splitlines()) > 2,
                        what="the first steps")
        process.send_signal(signal.SIGUSR1)
        self.expect(self.finish(process), 75)
        done = len(self.losses())
        self.assertEqual(self.saved_step(), done)
        outcome = self.launch(*common, "--hostfile", self.hostfile("node1 slots=1\nnode3 slots=1\n"), "--steps", str(done + 3),
                              "--resume", "auto", "model.pt")
        self.expect(outcome, 0)
        steps = [json.loads(line)["step"] for line in self.read("out/metrics.jsonl").splitlines()]
        self.assertEqual(steps, list(range(1, done + 4)))

    @long_running
    def test_a_lost_host_leaves_whole_pipelines(self):
        """Two pipelines of two stages; of the three ranks that are left, two go on."""
        config = json.loads(self.read("ds.json"))
        self.write("ds.json", json.dumps({**config, "pipeline": {"stages": 2}, "checkpoint": {"interval": 5}}))
        process = self.start("--device", "cpu", "--config", "ds.json", "--data", "train.safetensors", "--run_dir", "out",
                             "--hostfile", self.hostfile("node1 slots=2\nnode2 slots=1\nnode3 slots=1\n"), "--max_restarts", "1",
                             "--min_nodes", "1", "--grace", "1", "--steps", "1000000", "model.pt")
        self.wait_until(lambda: os.path.exists(self.path("out/checkpoints/latest")), what="a checkpoint")
        node1, node3 = self.cluster.node1, self.cluster.node3
        first = set(node1.kill("dsworker train", 0))
        self.cluster.node2.kill_sshd()
        self.wait_until(lambda: len(set(node1.kill("dsworker train", 0)) - first) == 2, 20, "the next attempt")
        done = os.path.getmtime(self.path("out/checkpoints/latest"))
        self.wait_until(lambda: os.path.getmtime(self.path("out/checkpoints/latest")) > done, 20, "its first checkpoint")
        self.assertEqual(node3.kill("dsworker train", 0), [])
        process.send_signal(signal.SIGINT)
        outcome = self.finish(process)
        self.expect(outcome, 130, "1 of 3 slots stay idle: 2 pipeline stages need a multiple of 2 ranks")
        self.assertIn("is now micro batch", outcome.out + outcome.err)
        steps = [json.loads(line)["step"] for line in self.read("out/metrics.jsonl").splitlines()]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))

    def saved_step(self):
        """The step of the newest checkpoint, from its name."""
        (word,) = self.read("out/checkpoints/latest").split()
        return int("".join(filter(str.isdigit, word)))

    @long_running
    def test_a_worker_that_was_pushed(self):
        self.allowed_files = rf"{self.allowed_files}|^{HOME}/\.cache($|/dslaunch)"
        there = os.path.dirname(os.path.dirname(os.path.realpath(DSLAUNCH)))
        for node in self.cluster.nodes:
            node.hide(there)
        outcome = self.train("--push")
        self.expect(outcome, 0)
        self.assertEqual(len(self.losses()), 4)


class Programs(HostCase):
    """Hosts that have dslaunch elsewhere, or not at all."""

    def setUp(self):
        super().setUp()
        self.there = os.path.dirname(os.path.realpath(DSLAUNCH))

    def hide_programs(self, *nodes):
        for node in nodes or self.cluster.nodes:
            node.hide(self.there)

    def exec_hostname(self, *options):
        return self.exec("hostname", *options)

    def test_programs_in_another_directory(self):
        os.mkdir(self.path("elsewhere"))
        shutil.copy(DSLAUNCH, self.path("elsewhere"))
        self.hide_programs()
        outcome = self.exec_hostname("--remote_path", self.path("elsewhere"))
        self.expect(outcome, 0)
        self.assertEqual(outcome.out.count("node"), 6, str(outcome))

    def test_another_program_under_its_name(self):
        os.mkdir(self.path("other"))
        self.write("other/dslaunch", "#!/bin/sh\necho Welcome to another program\n", 0o755)
        outcome = self.exec_hostname("--remote_path", self.path("other"))
        self.expect(outcome, 69, "node1", "Welcome")

    def test_a_shell_that_prints_when_it_starts(self):
        """bash reads ~/.bashrc for commands that come through sshd."""
        with open(self.cluster.node2.root(f"{HOME}/.bashrc"), "w", encoding="utf-8") as file:
            file.write("echo Good morning; echo 'and mind the quota' >&2\n")
        outcome = self.exec_hostname()
        os.unlink(self.cluster.node2.root(f"{HOME}/.bashrc"))
        self.expect(outcome, 0)
        self.assertNotIn("morning", outcome.out)

    def test_a_shell_that_prints_when_it_exits(self):
        start_file = self.cluster.node2.root(f"{HOME}/.bashrc")
        with open(start_file, "w", encoding="utf-8") as file:
            file.write("trap 'echo Goodbye; exit 3' EXIT\n")
        process = self.start_exec(f"echo up; while [ ! -e {self.path('go')}.$RANK ]; do sleep 0.05; done")
        self.lines(process, 3)
        process.send_signal(signal.SIGSTOP)  # so that the agent's last word and the shell's are there together
        self.write("go.1", "")
        self.wait_until(lambda: not self.cluster.node2.kill("dslaunch agent|^bash", 0), what="the end of the shell")
        process.send_signal(signal.SIGCONT)
        self.wait_until(lambda: not self.cluster.node2.processes(), what="the end of the connection")
        for rank in (0, 2):
            self.write(f"go.{rank}", "")
        outcome = self.finish(process)
        os.unlink(start_file)
        self.expect(outcome, 0)
        self.assertNotIn("Goodbye", outcome.out + outcome.err)

    def test_a_shell_that_exits_when_it_starts(self):
        start_file = self.cluster.node2.root(f"{HOME}/.bashrc")
        try:
            for text, what in (("exit 0\n", "its shell exited without starting the agent"), ("exit 3\n", "exit code 3")):
                with open(start_file, "w", encoding="utf-8") as file:
                    file.write(text)
                for way in ([], ["--ssh_program", "ssh"]):
                    self.expect(self.exec_hostname(*way), 69, "node2", what, "~/.bashrc", "ssh node2 true")
        finally:
            os.unlink(start_file)

    def test_a_shell_that_hangs_when_it_starts(self):
        """The limit is one for the connection and the agent's greeting."""
        start_file = self.cluster.node2.root(f"{HOME}/.bashrc")
        with open(start_file, "w", encoding="utf-8") as file:
            file.write("sleep 1000\n")
        self.allowed_files = rf"{self.allowed_files}|^{HOME}/\.cache($|/dslaunch)"
        for way, words in (([], "did not greet within 2 s"), (["--push"], "its login shell did not start sh")):
            outcome = self.exec_hostname("--connect_timeout", "2s", *way)
            self.cluster.node2.kill("sleep 1000")  # sshd passes no signals on to root's sessions
            self.expect(outcome, 69, "node2", words, "ssh node2 true")
            self.assertLess(outcome.seconds, 10)
        os.unlink(start_file)

    def test_a_shell_that_hangs_ends_with_the_connection(self):
        """Of a user other than root."""
        node = self.cluster.node2
        with open("/etc/passwd", encoding="utf-8") as file:
            users = self.write("passwd", file.read() + "guest:x:4711:4711::/tmp/guest:/bin/bash\n")
        node.run(["mount", "-n", "--bind", users, "/etc/passwd"])
        self.addCleanup(node.run, ["umount", "-n", "/etc/passwd"])
        node.run(["sh", "-c", "mkdir /tmp/guest; echo 'sleep 1000' > /tmp/guest/.bashrc; "
                  f"chmod 711 {HOME}; chmod 755 {HOME}/.ssh; chmod 644 {HOME}/.ssh/authorized_keys"])
        self.addCleanup(node.run, ["sh", "-c", f"chmod 700 {HOME} {HOME}/.ssh; chmod 600 {HOME}/.ssh/authorized_keys"])
        process = self.start_exec("hostname", "--connect_timeout", "2s", hosts="guest@node2 slots=1\n")
        self.wait_until(lambda: node.kill("^sleep 1000", 0), what="the shell's start")
        self.expect(self.finish(process), 69, "node2", "did not greet within 2 s")
        self.wait_until(lambda: not node.kill("sleep 1000|dslaunch agent", 0), 5, "the end of the shell")
        node.run(["rm", "-r", "/tmp/guest"])

    @long_running
    def test_programs_are_pushed_once(self):
        self.allowed_files = rf"{self.allowed_files}|^{HOME}/\.cache($|/dslaunch)"
        self.hide_programs()
        for _ in range(2):
            outcome = self.exec_hostname("--push")
            self.expect(outcome, 0)
            self.assertEqual(outcome.out.count("node"), 6, str(outcome))
        for node in self.cluster.nodes:
            copies = [path for path in node.files() if path.endswith("/dslaunch") and "/push/" in path]
            self.assertEqual(len(copies), 1, f"{node}: {copies}")


class ExternallyStarted(HostCase):
    """--no_ssh: the same command on every node."""

    def start_nodes(self, *options, count=3, script="echo $RANK $GROUP_RANK $MASTER_PORT $(hostname)", **env):
        master = self.cluster.node1.address
        return [self.start("exec", "--device", "cpu", "--no_ssh", "--num_nodes", "3", "--node_rank", str(rank), "--master_addr",
                           master, *options, "--", "sh", "-c", script, host=node, **env)
                for rank, node in enumerate(self.cluster.nodes[:count])]

    def test_nodes_connect_and_node_0_reports(self):
        outcomes = [self.finish(process) for process in self.start_nodes("--num_gpus", "2")]
        for outcome in outcomes:
            self.expect(outcome, 0)
        told = sorted(line.split("| ")[1] for line in outcomes[0].out.splitlines())
        self.assertEqual(told, sorted(f"{rank} {rank // 2} 29500 node{rank // 2 + 1}" for rank in range(6)), str(outcomes[0]))

    def test_nodes_with_ipv6_only_and_no_names(self):
        nodes = [self.cluster.node1, self.cluster.node2]
        names = self.write("names", "::1 localhost\n")
        script = ("import os, socket\n"
                  "with socket.create_connection((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))) as client:\n"
                  "    client.sendall(bytes.fromhex('00cef7853c0d45290000'))\n"  # a validation of torch's, and a ping
                  "    print(client.recv(4).hex())\n")
        for node in nodes:
            node.run(["ip", "address", "del", f"{node.address}/24", "dev", "eth0"])
            node.run(["mount", "-n", "--bind", names, "/etc/hosts"])
        started = [self.start("exec", "--device", "cpu", "--no_ssh", "--num_nodes", "2", "--node_rank", str(rank),
                              "--master_addr", nodes[0].address6, "--", sys.executable, "-c", script, host=node)
                   for rank, node in enumerate(nodes)]
        outcomes = [self.finish(process) for process in started]
        for node in nodes:
            node.run(["umount", "-n", "/etc/hosts"])
            node.run(["ip", "address", "add", f"{node.address}/24", "dev", "eth0"])
        for outcome in outcomes:
            self.expect(outcome, 0)
        self.assertEqual(outcomes[0].out.count("45290000"), 2, str(outcomes[0]))

    def test_a_failure_ends_all_nodes_with_its_exit_code(self):
        outcomes = [self.finish(process) for process in self.start_nodes(script="[ $RANK != 2 ] || exit 7; exec sleep 1000")]
        self.assertEqual([outcome.code for outcome in outcomes], [7, 7, 7], "\n".join(map(str, outcomes)))
        self.assertIn("rank 2 on node3 failed first", outcomes[0].err)

    def test_a_node_that_does_not_connect_is_named(self):
        outcomes = [self.finish(process) for process in self.start_nodes("--join_timeout", "2s", count=2)]
        self.expect(outcomes[0], 124, "2")

    def test_a_killed_launcher_ends_the_other_nodes(self):
        processes = self.start_nodes(script="echo up; trap '' TERM; while :; do sleep 0.05; done")
        self.lines(processes[0], 3)
        processes[0].send_signal(signal.SIGKILL)
        for process in processes:
            self.finish(process, 10)
        self.remove_sockets(self.cluster.node1)
