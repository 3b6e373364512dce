#!/usr/bin/env python3
"""--no_ssh: one dslaunch on every node, as a user, a task of srun or a pod starts it. The nodes are all this machine."""
import glob
import hashlib
import hmac
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import unittest
import zipfile

from test_launcher import LauncherTest

TOKEN = "5" * 64
# When the process in the file LEFT has ended: what torch's clients begin with, a validation and a ping, 20 times.
PINGS = """import os, socket, sys, time
left, end = sys.argv[1], time.monotonic() + 30
while time.monotonic() < end and not (os.path.exists(left) and os.path.getsize(left)):
    time.sleep(0.01)
with open(left) as file:
    process = int(file.read())
while time.monotonic() < end and os.path.exists(f"/proc/{process}"):
    time.sleep(0.01)
for _ in range(20):
    with socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 5) as client:
        client.sendall(bytes.fromhex("00cef7853c0d45290000"))
        print("ping", client.recv(4).hex(), flush=True)
        time.sleep(0.02)
"""


class ExternallyStartedNodes(LauncherTest):
    def setUp(self):
        super().setUp()
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = str(listener.getsockname()[1])

    def node(self, rank, script, *options, num_nodes=2, slots=1, stdout=subprocess.PIPE, **env):
        env.setdefault("DSLAUNCH_TOKEN", TOKEN)
        return self.start("exec", "--device", "cpu", "--num_gpus", str(slots), "--no_ssh", "--node_rank", str(rank),
                          "--num_nodes", str(num_nodes), "--master_addr", "127.0.0.1", "--master_port", self.port,
                          *options, "--", "sh", "-c", script, env=self.environment(**env), stdout=stdout)

    def test_nodes_with_different_slots_form_one_world(self):
        script = "echo rank $RANK of $WORLD_SIZE local $LOCAL_RANK of $LOCAL_WORLD_SIZE node $GROUP_RANK"
        others = [self.node(2, script, num_nodes=3, slots=2), self.node(1, script, num_nodes=3)]
        first = self.finish(self.node(0, script, num_nodes=3))
        self.assertEqual(first.code, 0, str(first))
        lines = sorted(line.split("| ")[1] for line in first.out.decode().splitlines())
        self.assertEqual(lines, ["rank 0 of 4 local 0 of 1 node 0", "rank 1 of 4 local 0 of 1 node 1",
                                 "rank 2 of 4 local 0 of 2 node 2", "rank 3 of 4 local 1 of 2 node 2"])
        # What a pod's own log shows.
        self.assertEqual(sorted(self.finish(others[0]).out.decode().splitlines()), lines[2:])
        self.assertEqual(self.finish(others[1]).code, 0)

    def test_every_node_has_its_host_name(self):
        host = socket.gethostname()
        # Rank 1 fails when rank 0 has said its word: a failure ends the others at once.
        script = (f"echo at $DSLAUNCH_HOST; [ $RANK = 1 ] || : > {self.path('said')}; "
                  f"while [ ! -e {self.path('said')} ]; do sleep 0.05; done; exit $RANK")
        other = self.node(1, script, "--run_dir", self.path("run"))
        first = self.finish(self.node(0, script, "--run_dir", self.path("run"), "--json"))
        self.assertEqual((first.code, self.finish(other).code), (1, 1), str(first))
        report = json.loads(first.out)
        self.assertEqual([rank["host"] for rank in report["ranks"]], [host, host], str(first))
        self.assertEqual(sorted(os.listdir(self.path("run/logs"))), [f"{host}.0.log", f"{host}.1.log"])
        self.assertNotIn(b"node0", first.out + first.err)
        for rank in range(2):
            with open(self.path(f"run/logs/{host}.{rank}.log"), encoding="utf-8") as log:
                self.assertEqual(log.read(), f"at {host}\n")

    def test_the_default_port_of_the_nodes_is_the_ranks_master_port(self):
        nodes = ("--no_ssh", "--num_nodes", "2", "--node_rank", "0", "--master_addr", "127.0.0.1")
        for named in ([], ["--master_port", self.port]):
            shown = self.launch("exec", "--device", "cpu", "--dry_run", "--json", *nodes, *named, "--", "true")
            self.assertEqual(json.loads(shown.out)["master_port"], int(named[1]) if named else 29500, str(shown))

    def test_the_first_failure_is_every_nodes_exit_code_and_summary(self):
        script = "[ $RANK = 1 ] && { echo alas >&2; exit 3; }; sleep 1000"
        other = self.node(1, script)
        first = self.finish(self.node(0, script))
        second = self.finish(other)
        self.assertEqual((first.code, second.code), (3, 3), str(first) + str(second))
        for outcome in (first, second):
            self.assertIn(b"rank 1 on", outcome.err)
            self.assertIn(b"failed first: exit code 3", outcome.err)

    def test_a_failed_start_is_every_nodes_exit_code_and_summary(self):
        """Node rank 0 looks for the data when all have come."""
        model, data = self.path("model.pt"), self.path("nowhere.npz")
        with zipfile.ZipFile(model, "w") as archive:
            for name in ("data.pkl", "constants.pkl", "code/m.py"):
                archive.writestr(f"model/{name}", b"")
        first, second = [
            self.start("--device", "cpu", "--num_gpus", "1", "--no_ssh", "--node_rank", str(rank), "--num_nodes", "2",
                       "--master_addr", "127.0.0.1", "--master_port", self.port, "--data", data, model,
                       env=self.environment(DSLAUNCH_TOKEN=TOKEN))
            for rank in (0, 1)]
        for outcome in (self.finish(first), self.finish(second)):
            self.assertEqual(outcome.code, 66, str(outcome))
            self.assertIn(data.encode(), outcome.err)

    def test_sigterm_to_any_node_lets_all_ranks_save(self):
        script = f"trap 'echo saved $RANK; exit 75' TERM; echo up; echo x >> {self.path('up')}; while :; do sleep 0.05; done"
        for told in (0, 1):
            with self.subTest(told=told):
                nodes = [self.node(rank, script) for rank in (0, 1)]
                self.wait_until(lambda: os.path.exists(self.path("up")) and os.path.getsize(self.path("up")) == 4)
                nodes[told].send_signal(signal.SIGTERM)
                outcomes = [self.finish(node) for node in nodes]
                self.assertEqual([outcome.code for outcome in outcomes], [75, 75], "\n".join(map(str, outcomes)))
                self.assertEqual(outcomes[0].out.count(b"saved"), 2)
                os.remove(self.path("up"))

    def test_one_ctrl_c_to_all_nodes_lets_all_ranks_save(self):
        """As srun and scancel pass it on."""
        script = f"trap 'sleep 1; echo saved $RANK; exit 0' TERM; echo x >> {self.path('up')}; while :; do sleep 0.05; done"
        nodes = [self.node(rank, script, num_nodes=3) for rank in range(3)]
        self.wait_until(lambda: os.path.exists(self.path("up")) and os.path.getsize(self.path("up")) == 6)
        for node in nodes:
            node.send_signal(signal.SIGINT)
        outcomes = [self.finish(node) for node in nodes]
        self.assertEqual([outcome.code for outcome in outcomes], [130] * 3, "\n".join(map(str, outcomes)))
        self.assertEqual(outcomes[0].out.count(b"saved"), 3, str(outcomes[0]))

    def test_a_user_signal_to_all_nodes_reaches_each_rank_once(self):
        heard = self.path("heard")
        script = (f"trap 'echo heard $RANK >> {heard}' USR1; trap 'echo told; exit 0' USR2; echo up >> {heard}; "
                  "while :; do sleep 0.05; done")
        nodes = [self.node(rank, script, num_nodes=3) for rank in range(3)]
        lines = lambda: sorted(open(heard, encoding="utf-8").read().split("\n")) if os.path.exists(heard) else []
        self.wait_until(lambda: lines().count("up") == 3)
        nodes[1].send_signal(signal.SIGUSR1)
        once = ["", "heard 0", "heard 1", "heard 2", "up", "up", "up"]
        self.wait_until(lambda: lines() == once)
        for node in (nodes[2], nodes[0]):
            node.send_signal(signal.SIGUSR1)
            node.send_signal(signal.SIGUSR2)  # passed on after the other one, so a second one would be heard before it
        outcomes = [self.finish(node) for node in nodes]
        self.assertEqual([outcome.code for outcome in outcomes], [0] * 3, "\n".join(map(str, outcomes)))
        self.assertEqual(outcomes[0].out.count(b"told"), 3, str(outcomes[0]))
        self.assertEqual(lines(), once)

    def test_a_second_ctrl_c_at_any_node_ends_all_at_once(self):
        script = f"trap '' TERM; echo x >> {self.path('up')}; while :; do sleep 0.05; done"
        for told in (0, 1):
            with self.subTest(told=told):
                nodes = [self.node(rank, script, "--grace", "1000") for rank in range(2)]
                self.wait_until(lambda: os.path.exists(self.path("up")) and os.path.getsize(self.path("up")) == 4)
                self.press_until(nodes[told], lambda: nodes[0].poll() is not None)
                self.assertEqual([self.finish(node).code for node in nodes], [130, 130])
                os.remove(self.path("up"))

    def test_a_node_whose_ranks_have_ended_passes_signals_on(self):
        script = (f"[ $RANK = 0 ] || {{ echo $$ > {self.path('ended')}; exit 0; }}; "
                  "trap 'echo saved; exit 75' TERM; echo up; while :; do sleep 0.05; done")
        nodes = [self.node(rank, script) for rank in (0, 1)]
        self.assertIn(b"up", nodes[0].stdout.readline())
        self.wait_until(lambda: os.path.exists(self.path("ended")) and os.path.getsize(self.path("ended")) > 0)
        with open(self.path("ended"), encoding="utf-8") as file:
            ended = int(file.read())
        self.wait_until(lambda: not os.path.exists(f"/proc/{ended}"))
        nodes[1].send_signal(signal.SIGTERM)
        outcomes = [self.finish(node) for node in nodes]
        self.assertEqual([outcome.code for outcome in outcomes], [75, 75], "\n".join(map(str, outcomes)))

    def test_leftovers_of_a_rank_do_not_block_the_store(self):
        """Node rank 0's agent ends it and serves on."""
        left, pings = self.path("left"), self.path("pings.py")
        with open(pings, "w", encoding="utf-8") as file:
            file.write(PINGS)
        script = (f"[ $RANK = 1 ] || {{ setsid sleep 1000 & echo $! > {left}; exit 0; }}; "
                  f"exec {sys.executable} {pings} {left}")
        nodes = [self.node(rank, script) for rank in (0, 1)]
        outcomes = [self.finish(node) for node in nodes]
        self.assertEqual([outcome.code for outcome in outcomes], [0, 0], "\n".join(map(str, outcomes)))
        self.assertEqual(outcomes[1].out.count(b"ping 45290000"), 20, str(outcomes[1]))

    def test_ctrl_backslash_at_any_node_ends_all_at_once(self):
        script = f"trap '' TERM; echo x >> {self.path('up')}; while :; do sleep 0.05; done"
        for told in (0, 1):
            with self.subTest(told=told):
                nodes = [self.node(rank, script, "--grace", "1000") for rank in (0, 1)]
                self.wait_until(lambda: os.path.exists(self.path("up")) and os.path.getsize(self.path("up")) == 4)
                nodes[told].send_signal(signal.SIGQUIT)
                self.assertEqual([self.finish(node).code for node in nodes], [131, 131])
                os.remove(self.path("up"))

    def test_a_paused_reader_does_not_count_as_a_silent_node(self):
        """Ctrl-S, a pager: what the launcher leaves unread for longer than --lost_after is not the node's fault."""
        script = f"[ $RANK = 0 ] || yes {'x' * 99} | head -n 400000"
        options = ("--lost_after", "1s", "--grace", "1s")
        with open(os.devnull, "wb") as null:
            other = self.node(1, script, *options, stdout=null)
            first = self.node(0, script, *options)
            with self.assertRaises(subprocess.TimeoutExpired):
                first.wait(timeout=4)  # its standard output is full; nobody reads
            outcome = self.finish(first)
        self.assertEqual(outcome.code, 0, str(outcome)[-2000:])
        self.assertEqual(outcome.out.count(b"x" * 99 + b"\n"), 400000)
        self.assertEqual(self.finish(other).code, 0)

    def test_a_paused_reader_of_a_nodes_output_does_not_count_as_silence(self):
        script = f"[ $RANK = 0 ] || yes {'x' * 99} | head -n 100000"
        options = ("--lost_after", "1s", "--grace", "1s")
        other = self.node(1, script, *options)
        with open(os.devnull, "wb") as null:
            first = self.node(0, script, *options, stdout=null)
            with self.assertRaises(subprocess.TimeoutExpired):
                first.wait(timeout=4)  # the other node's standard output is full; nobody reads
            second = self.finish(other)
        self.assertEqual((second.code, self.finish(first).code), (0, 0), str(second)[-2000:])
        self.assertEqual(second.out.count(b"x" * 99 + b"\n"), 100000)

    def test_lost_output_of_a_node_is_a_failure_there(self):
        for script, codes in (("echo result", (0, 74)), ("echo result; [ $RANK = 0 ] || exit 5", (5, 5))):
            with self.subTest(script=script):
                with open("/dev/full", "wb") as full:
                    other = self.node(1, script, stdout=full)
                    first, second = self.finish(self.node(0, script)), self.finish(other)
                self.assertEqual((first.code, second.code), codes, str(first) + str(second))
                self.assertIn(b"this node's standard output", second.err)

    def test_a_restart_connects_the_nodes_again(self):
        script = "echo try $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || [ $RANK = 0 ] || exit 4"
        other = self.node(1, script, "--max_restarts", "2")
        first = self.finish(self.node(0, script, "--max_restarts", "2"))
        self.assertEqual((first.code, self.finish(other).code), (0, 0), str(first))
        self.assertEqual(first.out.count(b"try 1"), 2)

    def nodes_between_attempts(self, says="true"):
        """Node 0 goes to wait for node 1, which was killed, for its second attempt. `says`: what ranks do first."""
        options = ("--max_restarts", "1", "--grace", "1s")
        script = f"{says}; echo x >> {self.path('up')}; exec sleep 1000"
        nodes = [self.node(rank, script, *options) for rank in (0, 1)]
        self.wait_until(lambda: os.path.exists(self.path("up")) and os.path.getsize(self.path("up")) == 4)
        nodes[1].kill()
        for line in nodes[0].stderr:
            if b"restart 1 of 1" in line:
                break
        return nodes

    def assert_on_record(self, exit_code, cause):
        job = json.loads(self.launch("jobs", "--json").out)["jobs"][0]
        self.assertEqual((job["condition"], job["end"]["exit_code"], job["end"]["first_cause"]), ("ended", exit_code, cause))

    def test_a_wait_for_the_nodes_of_a_restart_can_be_interrupted(self):
        nodes = self.nodes_between_attempts()
        nodes[0].send_signal(signal.SIGINT)
        outcome = self.finish(nodes[0])
        self.assertEqual(outcome.code, 130, str(outcome))
        self.assertIn(b"no restart: interrupted by Ctrl-C", outcome.err)
        self.assert_on_record(130, "interrupted by Ctrl-C")
        self.finish(nodes[1])
        for name in os.listdir(self.temp):
            shutil.rmtree(os.path.join(self.temp, name))

    def test_a_signal_while_output_is_not_read_is_not_lost(self):
        nodes = self.nodes_between_attempts(says="head -c 200000 /dev/zero | tr '\\0' x | fold -w 99")
        nodes[0].send_signal(signal.SIGINT)
        self.assertEqual(self.finish(nodes[0]).code, 130)
        self.assert_on_record(130, "interrupted by Ctrl-C")
        self.finish(nodes[1])
        for name in os.listdir(self.temp):
            shutil.rmtree(os.path.join(self.temp, name))

    def test_a_wait_for_the_nodes_of_a_restart_can_be_stopped_by_the_jobs_id(self):
        nodes = self.nodes_between_attempts()
        outcome = self.finish(self.start("stop", "last"))
        self.assertEqual((outcome.code, self.finish(nodes[0]).code), (0, 143), str(outcome))
        self.assertIn(b"stopped, exit code 143", outcome.out)
        self.finish(nodes[1])
        for name in os.listdir(self.temp):
            shutil.rmtree(os.path.join(self.temp, name))

    def test_a_late_node_learns_that_node_0_has_ended(self):
        options = ("--max_restarts", "1", "--grace", "1s")
        script = "[ $RANK = 0 ] && exec sleep 1000; yes | head -c 200000; exit 4"
        late = self.node(1, script, *options)  # nobody reads it yet
        first = self.node(0, script, *options)
        for line in first.stderr:
            if b"restart 1 of 1" in line:
                break
        first.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(first).code, 130)
        second = self.finish(late)
        self.assertEqual(second.code, 69, str(second)[-2000:])
        self.assertIn(b"exited between two attempts of the job (connection refused)", second.err.lower())

    def test_a_node_that_is_killed_ends_the_job(self):
        script = f"echo x >> {self.path('up')}; exec sleep 1000"
        nodes = [self.node(rank, script) for rank in (0, 1)]
        self.wait_until(lambda: os.path.exists(self.path("up")) and os.path.getsize(self.path("up")) == 4)
        nodes[1].kill()
        outcome = self.finish(nodes[0])
        self.assertEqual(outcome.code, 69, str(outcome))
        self.finish(nodes[1])
        # Nobody is left on that node to clear its private folder away: its next agent does.
        self.assertEqual(self.launch("exec", "--device", "cpu", "--", "true").code, 0)
        self.assertEqual(os.listdir(self.temp), [])

    def test_a_launcher_that_is_killed_ends_the_other_nodes(self):
        script = f"echo x >> {self.path('up')}; sleep 1000"
        nodes = [self.node(rank, script) for rank in (0, 1)]
        self.wait_until(lambda: os.path.exists(self.path("up")) and os.path.getsize(self.path("up")) == 4)
        nodes[0].kill()
        outcome = self.finish(nodes[1])
        self.assertEqual(outcome.code, 69, str(outcome))
        self.assertIn(b"node rank 0", outcome.err)
        self.finish(nodes[0])
        self.wait_until(lambda: self.tagged_processes() == {}, "the end of the killed launcher's agent", 5)

    def has_connected_to_node_0(self, process):
        """A loop takes its signals then."""
        try:
            return any("signalfd" in os.readlink(path) for path in glob.glob(f"/proc/{process.pid}/fd/*"))
        except OSError:
            return False

    def test_a_waiting_node_can_exit_and_reconnect(self):
        first = self.node(0, "true", num_nodes=3)
        leaving = self.node(1, "true", num_nodes=3)
        self.wait_until(lambda: self.has_connected_to_node_0(leaving))
        leaving.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(leaving).code, 130)
        others = [self.node(rank, "true", num_nodes=3) for rank in (1, 2)]
        outcome = self.finish(first)
        self.assertEqual([outcome.code, *(self.finish(node).code for node in others)], [0, 0, 0], str(outcome))

    def test_a_wrong_token_is_refused_and_the_right_one_accepted(self):
        first = self.node(0, "true")
        for token, here in (("6" * 64, b"is set here, and it has another one"), ("", b"is not set here")):
            unknown_peer = self.finish(self.node(1, "true", DSLAUNCH_TOKEN=token))
            self.assertEqual(unknown_peer.code, 69, str(unknown_peer))
            self.assertIn(b"refused the token: DSLAUNCH_TOKEN " + here, unknown_peer.err)
            self.assertNotIn(b"66666", unknown_peer.err)
        self.assertEqual(self.finish(self.node(1, "true")).code, 0)
        outcome = self.finish(first)
        self.assertEqual(outcome.code, 0)
        self.assertEqual(outcome.err.count(b"its DSLAUNCH_TOKEN is missing or differs from ours"), 2, str(outcome))
        self.assertNotIn(b"55555", outcome.err)

    def test_a_token_set_on_one_node_only_is_reported_on_both(self):
        first = self.node(0, "true", DSLAUNCH_TOKEN="")
        unknown_peer = self.finish(self.node(1, "true"))
        self.assertEqual(unknown_peer.code, 69, str(unknown_peer))
        self.assertIn(b"Set DSLAUNCH_TOKEN to the same value on every node", unknown_peer.err)
        self.assertEqual(self.finish(self.node(1, "true", DSLAUNCH_TOKEN="")).code, 0)
        self.assertIn(b"it has a DSLAUNCH_TOKEN and none is set here", self.finish(first).err)

    def test_nodes_with_different_commands_are_reported(self):
        for commands, options in ((("echo this", "echo that"), ([], [])),
                                  (("echo this", "echo this"), (["--env", "A=1"], ["--env", "A=2"])),
                                  (("echo this", "echo this"), (["--max_restarts", "1"], []))):
            with self.subTest(commands=commands, options=options):
                nodes = [self.node(rank, commands[rank], *options[rank]) for rank in (0, 1)]
                outcomes = [self.finish(node) for node in nodes]
                self.assertEqual([outcome.code for outcome in outcomes], [78, 78], "\n".join(map(str, outcomes)))
                for outcome in outcomes:
                    told = outcome.err.decode()
                    for rank in (0, 1):
                        self.assertRegex(told, rf"node rank {rank} \(.*\): dslaunch exec .*-- sh -c '{commands[rank]}'")
                    self.assertNotIn("A=1", told)
                self.assertEqual(outcomes[0].out, b"")

    def test_options_of_a_node_may_differ(self):
        nodes = [self.node(0, "true", "--json"), self.node(1, "true", "--join_timeout", "9m", "--quiet", slots=2)]
        outcomes = [self.finish(node) for node in nodes]
        self.assertEqual([outcome.code for outcome in outcomes], [0, 0], "\n".join(map(str, outcomes)))

    def test_a_node_that_does_not_connect_is_named(self):
        first = self.node(0, "true", "--join_timeout", "1500ms", num_nodes=3)
        there = self.unknown_peer(num_nodes=3)
        outcome = self.finish(first)
        self.assertEqual(outcome.code, 124, str(outcome))
        self.assertIn(b"1 of 3 nodes have not connected: node rank 2", outcome.err)
        self.assertIn(b"node rank 0: 1 of 3 nodes have not connected: node rank 2", self.job_ended_message(there))
        outcome = self.finish(self.node(1, "true", "--join_timeout", "300ms"))
        self.assertEqual(outcome.code, 124, str(outcome))
        self.assertIn(b"node rank 0 does not answer", outcome.err)

    def test_no_limit_to_the_wait_for_nodes(self):
        first = self.node(0, "true", "--join_timeout", "0")
        second = self.finish(self.node(1, "true", "--join_timeout", "0"))
        self.assertEqual((second.code, self.finish(first).code), (0, 0), str(second))

    def test_a_node_rank_beyond_the_nodes_is_refused(self):
        outcome = self.launch("exec", "--device", "cpu", "--no_ssh", "--node_rank", "2", "--num_nodes", "2", "--master_addr", "a",
                              "--", "true")
        self.assertEqual(outcome.code, 64, str(outcome))
        self.assertIn(b"2 nodes", outcome.err)

    def test_a_bad_token_is_not_repeated(self):
        outcome = self.finish(self.node(0, "true", DSLAUNCH_TOKEN="secret"))
        self.assertEqual(outcome.code, 78, str(outcome))
        self.assertNotIn(b"secret", outcome.err)

    def unknown_peer(self, num_nodes=2):
        """What shakes hands as node rank 1, as docs/wire.md has it, and is none."""
        connection = socket.socket()
        self.addCleanup(connection.close)
        self.wait_until(lambda: connection.connect_ex(("127.0.0.1", int(self.port))) == 0, "node rank 0's port")

        def receive(size):
            data = b""
            while len(data) < size:
                piece = connection.recv(size - len(data))
                self.assertTrue(piece, data)
                data += piece
            return data
        nonce = os.urandom(32)
        connection.sendall(b"DSLSTORE" + struct.pack("<H", 1) + nonce)
        claim = struct.pack("<IIB", 1, num_nodes, 1) + b"x".ljust(255, b"\0")
        proven = text(b"dslaunch store 1: client") + nonce + receive(42)[10:] + claim
        connection.sendall(hmac.new(bytes.fromhex(TOKEN), proven, hashlib.sha256).digest() + claim)
        self.assertEqual(receive(37)[0], 0)  # admitted
        return connection

    def job_ended_message(self, connection):
        """JobEnded, and that it is one that ends the node."""
        with connection.makefile("rb") as stream:
            word = stream.read()
        self.assertEqual(word[4:5] + word[13:14], b"\x0e\0", word)
        return word

    def test_an_unknown_peer_as_a_node_ends_only_the_job(self):
        """Numbers that no agent would send: each would be an index, a length or a choice in the launcher."""
        started, wrote, ended = 8, 9, 10
        exited = number(1) + b"\0" + number(0) + b"\0" + text(b"") + b"\0"
        for type, body in ((started, number(99) + number(1)), (started, number(0) + number(1)),
                           (started, number(-1) + number(1)), (wrote, number(1 << 30) + b"\0" + text(b"boo\n")),
                           (wrote, number(1) + b"\xc8" + text(b"boo\n")), (wrote, number(0) + b"\0" + text(b"boo\n")), (ended, number(1 << 40) + exited[8:]),
                           (ended, number(1) + b"\x07" + exited[9:])):
            with self.subTest(type=type, body=body):
                first = self.node(0, "exec sleep 1000")
                self.unknown_peer().sendall(hello(slots=1) + frame(type, body))
                outcome = self.finish(first)
                self.assertIn(outcome.code, (69, 70), str(outcome))
                self.assertNotIn(b"internal error", outcome.err)
                self.assertNotIn(b"boo", outcome.out)

    def test_invalid_greetings_are_refused(self):
        for bytes, words in ((hello(slots=-1), b"sent an invalid greeting"), (hello(slots=1 << 20), b"offers 1048576 slots"),
                             (b"GET / HTTP/1.1\r\n\r\n", b"sent an invalid greeting"), (frame(12, b""), b"another message"),
                             (struct.pack("<IB", 1 << 20, 5) + b"x" * 70000, b"too long"), (b"", b"did not send a greeting")):
            with self.subTest(bytes=bytes[:40]):
                first = self.node(0, "exec sleep 1000", "--join_timeout", "1500ms")
                unknown_peer = self.unknown_peer()
                unknown_peer.sendall(bytes)
                outcome = self.finish(first)
                self.assertEqual(outcome.code, 69, str(outcome))
                self.assertIn(words, outcome.err)
                self.assertIn(words, self.job_ended_message(unknown_peer))

    def test_an_invalid_host_name_is_not_shown(self):
        first = self.node(0, "exec sleep 1000")
        unknown_peer = self.unknown_peer()
        unknown_peer.sendall(hello(slots=1, name=b"\x1b[2J/../x"))
        unknown_peer.close()
        outcome = self.finish(first)
        self.assertEqual(outcome.code, 69, str(outcome))
        self.assertNotIn(b"\x1b", outcome.out + outcome.err)


def number(value):
    return struct.pack("<q", value)


def text(value):
    return struct.pack("<I", len(value)) + value


def frame(type, body):
    """As docs/control_channel.md has it."""
    return struct.pack("<IB", len(body) + 1, type) + body


def hello(slots, name=b"peer"):
    return frame(5, struct.pack("<I", 6) + text(b"x") + number(1) + text(name) + text(b"127.0.0.1") + text(b"") + text(b"") +
                 text(b"") + number(slots) + text(b"") + number(0))


if __name__ == "__main__":
    unittest.main()
