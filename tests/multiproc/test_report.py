#!/usr/bin/env python3
"""The page of `dslaunch report` in a browser (headless Chromium), and how the command finds runs."""
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import harness  # noqa: E402

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

# Runs in the page once it is loaded: what a person would see, as one JSON text for the page around it.
PROBE = """<script>
addEventListener("load", () => {
  const box = (element) => { const b = element.getBoundingClientRect(); return [b.width, b.height]; };
  const charts = [...document.querySelectorAll("figure.chart")].map((figure) => ({
    id: figure.id, picture: figure.querySelector("svg") ? box(figure.querySelector("svg")) : null,
    drawn: [...figure.querySelectorAll(".line path, .area, .bar")].map((part) => part.getBBox().width) }));
  const svg = document.querySelector("#chart-loss svg"), at = svg.getBoundingClientRect();
  svg.dispatchEvent(new PointerEvent("pointermove", { clientX: at.left + at.width / 2, clientY: at.top + 20 }));
  const tip = document.getElementById("tip"), shown = [tip.hidden, tip.textContent, tip.children.length];
  const inside = tip.getBoundingClientRect().right <= innerWidth;
  const toggle = document.querySelector("input[data-run='1']");
  toggle.click();
  const hidden = getComputedStyle(document.querySelector("#chart-loss .r1")).display === "none";
  const scrolling = [...document.querySelectorAll(".scroll")].filter((box) => box.scrollWidth > box.clientWidth)
    .map((box) => box.closest("section").id);
  parent.postMessage(JSON.stringify({ charts, scrolling, shown, inside, hidden, width: innerWidth,
    overflow: document.documentElement.scrollWidth }), "*");
});
</script></body>"""
# A frame has any width, a window of Chromium 500 pixels and more.
FRAME = """<!DOCTYPE html><script>
addEventListener("message", (event) => {
  const out = document.createElement("pre");
  out.id = "probe";
  out.textContent = event.data;
  document.body.append(out);
});
</script><iframe src="probed.html" style="border: 0; width: WIDTHpx; height: 800px"></iframe>"""

CHARTS = ["chart-loss", "chart-lr", "chart-grad_norm", "chart-loss_scale", "chart-tokens_per_s",
          "chart-samples_per_s", "chart-step_ms", "chart-gpu_mem_bytes", "chart-host_mem_bytes", "chart-eval_accuracy",
          "chart-breakdown-0", "chart-breakdown-1", "ranks-step_ms-0", "spread-step_ms-0"]


def write_lines(path, lines):
    with open(path, "w") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def write_run(folder, lr):
    """Three hundred steps with two of each kind of thing that a page shows."""
    os.makedirs(folder)
    rows = []
    for step in range(1, 301):
        row = {"step": step, "loss": 8 * math.exp(-step / 100) + 2, "lr": lr / step, "grad_norm": 1 + step % 5,
               "loss_scale": 65536 >> step // 100, "overflow": False, "step_ms": 100 + step % 9,
               "samples_per_s": 80 + step % 2, "tokens_per_s": 800 + step, "gpu_mem_bytes": (3 << 30) + step, "host_mem_bytes": (1 << 30) + step,
               "forward_ms": 30, "backward_ms": 50, "reduce_ms": 8, "update_ms": 6}
        rows.append(row if step % 50 else {**row, "eval_loss": row["loss"] + 0.1, "eval_accuracy": step / 400})
    write_lines(os.path.join(folder, "metrics.jsonl"), rows)
    ranks = {"time": 1010, "event": "ranks", "step": [100] * 4, "step_ms": [100, 101, 102, 130]}
    write_lines(os.path.join(folder, "launcher.jsonl"), [
        {"time": 1000, "event": "launch", "attempt": 0, "job_id": "J", "world_size": 4},
        ranks, {**ranks, "time": 1020, "step": [200] * 4},
        {"time": 1030, "event": "end", "exit_code": 1, "cause": "rank 1 on node1: <b>" + "/a/long/path" * 30, "step": 220, "restarts": True},
        {"time": 1031, "event": "launch", "attempt": 1, "job_id": "J", "world_size": 4},
        {"time": 1060, "event": "end", "exit_code": 0, "cause": "", "step": 300, "restarts": False}])
    write_lines(os.path.join(folder, "events.jsonl"), [
        {"time": 1001, "event": "start", "step": 0, "total_steps": 300, "environment": {"torch": "2.11"}},
        {"time": 1021, "event": "checkpoint", "step": 200},
        {"time": 1032, "event": "start", "step": 200, "total_steps": 300}])
    with open(os.path.join(folder, "config.resolved.json"), "w") as file:
        json.dump({"optimizer": {"params": {"lr": lr}}}, file)


class Report(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="dsl-report-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def report(self, *words):
        return harness.run([harness.program("dslaunch"), "report", *words], cwd=self.folder,
                           env=harness.environment(XDG_STATE_HOME=self.path("state")))

    def test_how_runs_are_named(self):
        write_run(self.path("run"), 1e-3)
        os.makedirs(self.path("other"))
        for words, code, text in (([], 64, "which run?"), (["run", "--out", "-", "--json"], 64, "exclude each other"),
                                  (["nothing"], 66, "nothing"), (["./nothing"], 66, "no run directory"),
                                  (["other"], 65, "is not a run directory"), (["run", "other"], 65, "'other'"),
                                  (["run", "--out", "none/r.html"], 73, "--out FILE.html"),
                                  (["run", "--out", "/dev/full"], 74, "No space left")):
            with self.subTest(words=words):
                outcome = self.report(*words)
                self.assertEqual(outcome.code, code, str(outcome))
                self.assertIn(text, outcome.err)
        outcome = self.report("run")
        self.assertEqual((outcome.code, outcome.out), (0, "run/report.html\n"), str(outcome))
        outcome = self.report("run", "--out", "-")
        self.assertTrue(outcome.out.startswith("<!DOCTYPE html>") and outcome.out.endswith("</html>\n"), str(outcome))

    @unittest.skipUnless(CHROMIUM, "Chromium is not installed")
    def test_a_browser_draws_every_chart_at_both_widths(self):
        for name, lr in (("a", 1e-3), ("b", 5e-4)):
            write_run(self.path(name), lr)
        outcome = self.report("a", "b", "--out", "ab.html")
        self.assertEqual(outcome.code, 0, str(outcome))
        with open(self.path("ab.html")) as file:
            page = file.read()
        with open(self.path("probed.html"), "w") as file:
            file.write(page.replace("</body>", PROBE))
        for width in (1200, 400):
            with self.subTest(width=width):
                with open(self.path("frame.html"), "w") as file:
                    file.write(FRAME.replace("WIDTH", str(width)))
                seen = self.browse("frame.html")
                self.assertEqual(seen["width"], width)
                self.assertLessEqual(seen["overflow"], width)
                if width == 1200:
                    self.assertEqual(seen["scrolling"], [])
                charts = {chart["id"]: chart for chart in seen["charts"]}
                for name in CHARTS:
                    chart = charts[name]
                    self.assertTrue(chart["drawn"] and all(w > 0 for w in chart["drawn"]), chart)
                    self.assertGreater(min(chart["picture"]), 150, chart)
                self.assertEqual(all(c["picture"] for c in charts.values()), True)
                is_hidden, text, count = seen["shown"]
                self.assertEqual((is_hidden, count, seen["inside"], seen["hidden"]), (False, 4, True, True))
                self.assertRegex(text, r"a: \d\.\d+ \(step 1[23]\d\)")

    def browse(self, name):
        done = subprocess.run(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
             f"--user-data-dir={self.path('browser')}", "--window-size=1400,900", "--virtual-time-budget=3000",
             "--dump-dom", "file://" + self.path(name)], capture_output=True, text=True, timeout=60,
            stdin=subprocess.DEVNULL)
        self.assertNotIn("CONSOLE", done.stderr)
        found = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout)
        self.assertTrue(found, done.stderr[-2000:] + done.stdout[-2000:])
        return json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


if __name__ == "__main__":
    unittest.main()
