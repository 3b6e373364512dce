"""The harness itself: a fault that does nothing, or a check that finds nothing, would make every other case worthless."""
import os
import signal
import subprocess
import sys
import time

import netns
from host_case import HostCase


class Harness(HostCase):
    def ssh(self, host, *command, **options):
        return self.head.run(["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=1", host, *command], check=False, **options)

    def reaches(self, host):
        return self.ssh(host.address, "true").returncode == 0

    def test_every_host_is_reachable_by_ssh_and_distinct(self):
        for node in self.cluster.nodes:
            for name in (node.name, node.address, node.address6):
                self.assertEqual(self.ssh(name, "hostname").stdout.strip(), node.name)
        told = {self.ssh(node.name, "readlink", "/proc/self/ns/pid", "/proc/self/ns/net", "/proc/self/ns/ipc").stdout
                for node in self.cluster.nodes}
        self.assertEqual(len(told), len(self.cluster.nodes))

    def test_hosts_have_their_own_files_and_a_shared_directory(self):
        node1, node2 = self.cluster.node1, self.cluster.node2
        for folder in netns.COVERED:
            node1.run(["touch", f"{folder}/mine"])
            self.assertNotEqual(node2.run(["ls", f"{folder}/mine"], check=False).returncode, 0)
        self.assertEqual(self.cluster.leftovers()["node1"]["files"], sorted(f"{folder}/mine" for folder in netns.COVERED))
        node1.remove_files()
        node1.run(["touch", self.path("ours")])
        node2.run(["ls", self.path("ours")])

    def test_a_partition_is_silent_and_heals(self):
        node = self.cluster.node2
        for how in ("blackhole", "unplugged"):
            with self.subTest(how=how):
                self.assertTrue(self.reaches(node))
                self.cluster.partition(node, how)
                began = time.monotonic()
                self.assertFalse(self.reaches(node))
                self.assertGreater(time.monotonic() - began, 0.9, "an error came back: that is no partition")
                self.assertTrue(self.reaches(self.cluster.node1))
                self.cluster.heal(node)
                self.wait_until(lambda: self.reaches(node), 10, "the way back")

    def test_a_killed_sshd_ends_its_sessions_and_restarts(self):
        client = self.head.popen(["ssh", "node1", "sleep 1000"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait_until(lambda: self.ranks_of(self.cluster.node1, "sleep"), what="a session")
        self.cluster.node1.kill_sshd()
        self.assertEqual(client.wait(10), 255)
        self.assertFalse(self.reaches(self.cluster.node1))
        self.assertEqual(len(self.cluster.node1.kill("sleep 1000")), 1)
        self.cluster.restore()
        self.assertTrue(self.reaches(self.cluster.node1))

    def ranks_of(self, host, word):
        return [pid for pid, command in host.processes().items() if word in command]

    def test_leftovers_are_found(self):
        node = self.cluster.node3
        script = ("import socket, time\ns = socket.socket(); s.bind(('', 0)); s.listen()\n"
                  "print(s.getsockname()[1], flush=True)\ntime.sleep(99)\n")
        process = node.popen([sys.executable, "-c", script], env=node.environment(A="b c"), stdout=subprocess.PIPE)
        port = int(process.stdout.readline())
        left = self.cluster.leftovers()
        self.assertEqual(list(left), ["node3"])
        self.assertEqual(left["node3"]["ports"], [port])
        self.assertEqual(list(left["node3"]["processes"]), [process.pid])
        self.assertEqual(list(node.processes("A=b c")), [process.pid])
        self.assertEqual(node.processes("A=b"), {})
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()

    def test_a_directory_can_be_hidden_on_one_host(self):
        self.write("here", "")
        self.cluster.node1.hide(self.folder)
        self.assertNotEqual(self.ssh("node1", "ls", self.path("here")).returncode, 0)
        self.assertEqual(self.ssh("node2", "ls", self.path("here")).returncode, 0)
