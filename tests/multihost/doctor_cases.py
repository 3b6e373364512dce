"""`doctor --hostfile`: what is stale on any of the hosts, and what is only alive."""
import json
import signal
import sys
import time

from host_case import HostCase

LISTEN = ("import socket, sys, time\ns = socket.socket()\ns.bind(('', int(sys.argv[1])))\ns.listen()\n"
          "print(s.getsockname()[1], flush=True)\ntime.sleep(1000)\n")


class Doctor(HostCase):
    def listen(self, host, orphan, port=0):
        """A process that listens there, with a parent that lives or without one: its port."""
        script = self.write("listen.py", LISTEN)
        end = "exit 0" if orphan else "wait"
        parent = host.popen(["setsid", "sh", "-c", f"{sys.executable} {script} {port} & {end}"], stdout=-1)
        port = int(parent.stdout.readline())
        parent.stdout.close()
        if orphan:
            parent.wait()
        return port

    def doctor(self, *options):
        return self.launch("doctor", "--hostfile", self.hostfile(), *options)

    def test_healthy_hosts(self):
        outcome = self.doctor("--json")
        self.expect(outcome, 0)
        document = json.loads(outcome.out)
        self.assertEqual([host["host"] for host in document["hosts"]], ["node1", "node2", "node3"])
        # Any program's child is a zombie for a moment before its parent takes notice.
        findings = [[each for each in host["findings"] if each["kind"] != "zombie"] for host in document["hosts"]]
        self.assertEqual(findings, [[], [], []])

    def test_a_stale_holder_of_a_port_is_ended_on_its_host_and_a_live_one_is_not(self):
        port = self.listen(self.cluster.node2, orphan=True)
        self.listen(self.cluster.node3, orphan=False, port=port)
        seen = json.loads(self.doctor("--port", str(port), "--json").out)
        verdicts = {host["host"]: [(finding["kind"], finding["verdict"]) for finding in host["findings"]]
                    for host in seen["hosts"]}
        self.assertEqual(verdicts, {"node1": [], "node2": [("port_holder", "stale")], "node3": [("port_holder", "in_use")]})
        outcome = self.doctor("--port", str(port), "--kill", "--yes")
        self.expect(outcome, 69)
        self.wait_until(lambda: port not in self.cluster.node2.listening_ports(), 5, "an end of the stale one")
        self.assertIn(port, self.cluster.node3.listening_ports())
        self.cluster.node3.kill("listen.py|sh -c")

    def test_without_a_terminal_and_without_yes_nothing_is_ended(self):
        port = self.listen(self.cluster.node2, orphan=True)
        self.expect(self.doctor("--port", str(port), "--kill"), 64, "--yes")
        self.assertIn(port, self.cluster.node2.listening_ports())
        self.cluster.node2.kill("listen.py")

    def test_an_unreachable_host_is_reported_and_other_hosts_are_examined(self):
        port = self.listen(self.cluster.node3, orphan=True)
        self.cluster.node1.kill_sshd()
        outcome = self.doctor("--port", str(port), "--json")
        self.assertEqual(outcome.code, 69, str(outcome))
        hosts = {host["host"]: host for host in json.loads(outcome.out)["hosts"]}
        self.assertTrue(hosts["node1"]["error"])
        self.assertEqual(len(hosts["node3"]["findings"]), 1)
        self.cluster.node3.kill("listen.py")

    def test_a_running_job_is_not_touched(self):
        process = self.start_exec("echo up $MASTER_PORT; exec sleep 1000")
        port = self.lines(process, 3)[0].split()[-1]
        outcome = self.doctor("--port", port, "--kill", "--yes")
        self.assertIn(outcome.code, (0, 69), str(outcome))
        self.assertEqual([len(node.kill("sleep 1000", 0)) for node in self.cluster.nodes], [1, 1, 1])
        process.terminate()
        self.assertEqual(self.finish(process).code, 143)

    def test_processes_of_a_job_with_dead_launcher_and_agents_are_stale(self):
        """Processes end with doctor, sockets with the next command about jobs, private folders with the hosts' next agents."""
        grandchild = "setsid sh -c \"trap '' TERM HUP; sleep 1000\" >/dev/null 2>&1 </dev/null &"
        process = self.start_exec(f"{grandchild} echo up; exec sleep 500")
        self.lines(process, 3)
        self.wait_until(lambda: all(node.kill("^sleep 1000", 0) for node in self.cluster.nodes), 5, "the grandchildren")
        for node in self.cluster.nodes:
            node.kill(r"dslaunch agent\b", signal.SIGSTOP)
        process.kill()
        process.wait()
        for node in self.cluster.nodes:
            node.kill(r"dslaunch (guard|agent)\b")
        self.wait_until(lambda: all(not node.kill("sleep 500", 0) for node in self.cluster.nodes), 5, "an end of the ranks")
        self.assertEqual([len(node.kill("^sleep 1000", 0)) for node in self.cluster.nodes], [1, 1, 1])
        time.sleep(0.1)
        outcome = self.doctor("--kill", "--yes")
        self.assertIn(outcome.code, (0,), str(outcome))
        self.assertEqual([len(node.kill("sleep 1000", 0)) for node in self.cluster.nodes], [0, 0, 0])
        self.remove_sockets()
        self.expect(self.exec("true"), 0)

    def test_a_lost_job_whose_agents_are_stopped_is_stale_on_every_host(self):
        process = self.start_exec("echo up; exec sleep 1000")
        self.lines(process, 3)
        for node in self.cluster.nodes:
            node.kill(r"dslaunch agent\b", signal.SIGSTOP)
        process.kill()
        process.wait()
        seen = json.loads(self.doctor("--json").out)
        for host in seen["hosts"]:
            found = sorted((each["kind"], each["verdict"]) for each in host["findings"] if each["kind"] != "zombie")
            self.assertEqual(found, [("leftover_process", "stale")] * 2, host)  # the rank and its agent
        self.expect(self.doctor("--kill", "--yes"), 0)
        self.assertEqual([len(node.kill("sleep 1000", 0)) for node in self.cluster.nodes], [0, 0, 0])
        self.remove_sockets()
        self.expect(self.exec("true"), 0)  # removes the private directories of those agents
