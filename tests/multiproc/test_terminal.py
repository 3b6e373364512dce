#!/usr/bin/env python3
"""What stands on the screen of a terminal (tmux) while a run starts, trains, fails and ends."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import harness  # noqa: E402

LIMIT_S = 60
LIVE = re.compile(r"step +\d+/\d+  loss \S+.*(ETA|done)")


@unittest.skipUnless(shutil.which("tmux"), "tmux is not installed")
class Screen(harness.TrainingTest):
    def setUp(self):
        super().setUp()
        self.shown = 0

    def tmux(self, *words):
        return subprocess.run(["tmux", "-S", self.socket, *words], check=True, capture_output=True, text=True,
                              env=harness.environment(TERM="xterm-256color", XDG_STATE_HOME=self.env.path("state"),
                                                      TMUX="")).stdout

    def show(self, command, columns=110, before=""):
        """Runs a command on a new screen, which stays when it has ended, below the line CODE n."""
        self.shown += 1
        self.socket = self.env.path(f"tmux{self.env.made}-{self.shown}")
        self.addCleanup(subprocess.run, ["tmux", "-S", self.socket, "kill-server"], capture_output=True)
        # Ctrl-C reaches the shell, too.
        text = "trap : INT; " + before + " ".join(f"'{word}'" for word in command) + "; echo CODE $?; cat"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", "45", f"sh -c {_quoted(text)}")

    def lines(self, *options):
        return [line for line in self.tmux("capture-pane", "-p", *options).splitlines() if line]

    def wait(self, condition):
        """The screen for which it holds."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            lines = self.lines()
            if condition(lines):
                return lines
            time.sleep(0.05)
        self.fail("the screen never showed it:\n" + "\n".join(self.lines()))

    def ended(self):
        return self.wait(lambda lines: any(line.startswith("CODE ") for line in lines))

    def command(self, steps, *extra, world=2, **config):
        return self.env.command(self.env.model("mlp"), self.env.data("mlp"), harness.base_config("mlp", **config),
                                self.env.run_dir(), world, steps, extra)

    def test_a_run_from_start_to_end(self):
        self.show(self.command(60, train={"eval_interval": 30}, data={"shuffle": False, "eval": self.env.data("mlp")}))
        lines = self.ended()
        text = "\n".join(lines)
        self.assertIn("CODE 0", text)
        headings = [line.split("| ")[1].split()[0] for line in lines[1:] if "| " in line]
        self.assertEqual(headings[:6], ["model", "precision", "ranks", "batch", "data", "written"])
        self.assertEqual(sum(LIVE.search(line) is not None for line in lines), 1, text)
        live = next(i for i, line in enumerate(lines) if LIVE.search(line))
        self.assertRegex(lines[live], r"^\[=+\]  epoch [\d.]+  step 60/60  loss \d\.\d+  lr \S+  .* ms/step .*  done$")
        above, below = "\n".join(lines[:live]), "\n".join(lines[live + 1:])
        self.assertRegex(above, r"step 30  eval_loss \d")
        for words in (r"steps +60 done in", r"loss +first \d\S+, last \d\S+, best \d\S+ at step", r"eval_loss +\d",
                      r"finished, checkpoint in", r"dslaunch: to train on: \S+"):
            self.assertRegex(below, words)
        self.assertNotIn("\x1e", text)

    def test_ctrl_c_a_new_width_and_the_printed_command(self):
        run_dir = self.env.run_dir()
        command = self.env.command(self.env.model("gpt"), self.env.data("gpt"), harness.base_config("gpt"), run_dir, 2,
                                   1_000_000)
        self.show(command)
        self.wait(lambda lines: LIVE.search(lines[-1]) if lines else False)
        self.look_at_the_ranks()
        # tmux moves rows that a narrower screen wraps to its history, out of reach: only the first width counts them.
        for columns, shown in ((60, LIVE), (35, re.compile(r"step +\d+/\d+  loss [\d.]+$")), (120, LIVE)):
            self.tmux("resize-window", "-x", str(columns), "-y", "45")
            fits = self.wait(lambda lines: lines and len(lines[-1]) < columns and shown.search(lines[-1]))
            if columns == 60:
                self.assertEqual(sum("/1000000  loss" in line for line in fits), 1, "\n".join(fits))
        self.tmux("send-keys", "C-c")
        text = "\n".join(self.ended())
        self.assertIn("CODE 130", text)
        self.assertRegex(text, "stopped on request, checkpoint in")
        self.ranks_screen_ended()
        words = re.search(r"to continue: (.*(\n\S.*)?)\nCODE", text)[1].replace("\n", "").split()
        done = harness.read_metrics(run_dir)[-1]["step"]
        again = harness.run([*words, "--steps", str(done + 3)],
                            env=harness.environment(XDG_STATE_HOME=self.env.path("state")))
        self.assertEqual(again.code, 0, str(again))
        steps = [row["step"] for row in harness.read_metrics(run_dir)]
        self.assertEqual(steps, list(range(1, done + 4)))
        self.look_at_the_records(run_dir, done)
        # The plain lines, which no screen showed, are in the logs; the records are in none.
        with open(os.path.join(run_dir, "logs", "localhost.0.log")) as log:
            written = log.read()
        self.assertIn("step       1/1000000  loss", written)
        self.assertNotIn("\x1e", written + again.text)

    def look_at_the_ranks(self):
        """`top` on a second screen, while the job runs on the first one."""
        first = self.socket
        top = [harness.program("dslaunch"), "top"]
        self.show(top, columns=160)
        row = re.compile(r" +[01]  localhost +\d+/1000000 +[\d.]+  (busy|waiting)")
        self.wait(lambda lines: sum(row.match(line) is not None for line in lines) == 2 and lines[-1] == "q ends")
        for columns in (40, 160):
            self.tmux("resize-window", "-x", str(columns), "-y", "12")
            self.wait(lambda lines: lines and lines[-1] == "q ends" and ("STATE" in lines[1]) == (columns == 160))
        self.tmux("send-keys", "q")
        after = self.ended()
        self.assertEqual(after, ["CODE 0"])  # of the table, nothing is left
        once = harness.run([*top, "--once"], env=harness.environment(XDG_STATE_HOME=self.env.path("state")))
        self.assertEqual(once.code, 0, str(once))
        self.assertRegex(once.out, r"^job \S+: running, 2 ranks on localhost\nRANK  HOST")
        self.assertNotIn("\x1b", once.out)
        # A screen that is left up when the job ends: tested by the caller, who stops the job.
        self.show(top, columns=160)
        self.wait(lambda lines: lines and lines[-1] == "q ends")
        self.watching, self.socket = self.socket, first

    def look_at_the_records(self, run_dir, done):
        """What a report is made of: two starts, the first stopped by Ctrl-C, and a checkpoint at the end of each."""
        own = self.records(run_dir, "events.jsonl")
        self.assertEqual([(each["event"], each["step"]) for each in own],
                         [("start", 0), ("checkpoint", done), ("end", done),
                          ("start", done), ("checkpoint", done), ("checkpoint", done + 3), ("end", done + 3)])
        ends = self.records(run_dir, "launcher.jsonl", "end")
        self.assertEqual([(each["exit_code"], each["step"]) for each in ends], [(130, done), (0, done + 3)])
        report = harness.run([harness.program("dslaunch"), "report", run_dir, "--json"],
                             env=harness.environment(XDG_STATE_HOME=self.env.path("state")))
        self.assertEqual(report.code, 0, str(report))
        run = json.loads(report.out)["runs"][0]
        self.assertEqual((run["state"], run["last_step"], run["starts"], run["checkpoints"]),
                         ("finished", done + 3, 2, 2))

    def records(self, run_dir, name, event=None):
        """All, or those of one event."""
        with open(os.path.join(run_dir, name)) as file:
            return [each for each in map(json.loads, file) if event in (None, each["event"])]

    def ranks_screen_ended(self):
        self.socket = self.watching
        text = "\n".join(self.ended())
        self.assertRegex(text, r"job \S+ has ended, exit code 130.*dslaunch report \S+' shows the run")
        self.assertIn("CODE 0", text)

    def test_the_printed_command_and_a_kill_change_no_number(self):
        """Ctrl-C, then the command on the screen as it stands there, SIGKILL, then another world size: one trajectory."""
        run_dir, config = self.env.run_dir(), harness.base_config("gpt", checkpoint={"interval": 20})
        model, data = self.env.model("gpt"), self.env.data("gpt")
        self.show(self.env.command(model, data, config, run_dir, 2, 1_000_000))
        self.wait(lambda lines: LIVE.search(lines[-1]) if lines else False)
        self.tmux("send-keys", "C-c")
        text = "\n".join(self.ended())
        self.assertIn("CODE 130", text)
        printed = re.search(r"to continue: (.*(\n\S.*)?)\nCODE", text)[1].replace("\n", "")
        stopped = self.last_step(run_dir)
        killed = self.kill_after(printed, run_dir, stopped + 25)
        end = killed + 3
        rows, _ = self.env.train(model, data, config, 1, end, run_dir, ["--resume", "auto"])
        self.assertEqual([row["step"] for row in rows], list(range(1, end + 1)))
        whole, _ = self.env.train(model, data, config, 2, end)
        losses, expected = ([row["loss"] for row in some] for some in (rows, whole))
        # Which checkpoint was whole when the kill came is chance; what follows it is one rank's.
        begun = self.records(run_dir, "events.jsonl", "start")[-1]["step"]
        self.assertTrue(stopped <= begun <= killed, begun)
        self.assertEqual(losses[:begun], expected[:begun])
        for step, (loss, wanted) in enumerate(zip(losses, expected), 1):
            self.assertLess(abs(loss / wanted - 1), 1e-4, f"step {step}")

    def kill_after(self, printed, run_dir, step):
        """Runs the line in a shell until the step is done, kills all its processes, and returns the last step done."""
        process = subprocess.Popen(["sh", "-c", printed], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   stdin=subprocess.DEVNULL, start_new_session=True,
                                   env=harness.environment(XDG_STATE_HOME=self.env.path("state")))
        self.addCleanup(process.stdout.close)
        end = time.monotonic() + LIMIT_S
        while process.poll() is None and time.monotonic() < end and self.last_step(run_dir) < step:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        for pid, _ in harness.job_processes(run_dir):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        text = process.communicate(timeout=LIMIT_S)[0]
        self.assertGreaterEqual(self.last_step(run_dir), step, text)
        return self.last_step(run_dir)

    @staticmethod
    def last_step(run_dir):
        with open(os.path.join(run_dir, "metrics.jsonl")) as file:
            lines = [line for line in file if line.endswith("\n")]
        return json.loads(lines[-1])["step"] if lines else 0

    def test_errors_are_red_unless_colours_are_off(self):
        command = [harness.program("dslaunch"), self.env.path("no-model.pt")]
        bad = [*self.command(3, world=2), "--set", "data.inputs=[\"z\"]"]
        for before, words, red in (("", command, True), ("NO_COLOR=1 ", command, False), ("TERM=dumb ", command, False),
                                   ("NO_COLOR=1 ", [*command, "--color", "always"], True),
                                   ("", [*command, "--color=never"], False), ("", bad, True)):
            with self.subTest(before=before, words=words[1:]):
                self.show(words, before=before)
                self.ended()
                screen = self.tmux("capture-pane", "-p", "-e")
                self.assertRegex(screen, r"error:")
                self.assertEqual(re.search(r"\x1b\[[\d;]*31m(\x1b\[\d+m)*error:", screen) is not None, red, repr(screen))

    def test_no_terminal_gets_plain_lines(self):
        outcome = harness.run(self.command(25), env=harness.environment(XDG_STATE_HOME=self.env.path("state")))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual(re.findall(r"step +(\d+)/25  loss", outcome.out), ["1", "10", "20", "25"])
        for byte in "\x1b\x1e\r":
            self.assertNotIn(byte, outcome.text)


def _quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


if __name__ == "__main__":
    unittest.main()
