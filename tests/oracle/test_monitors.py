#!/usr/bin/env python3
"""The monitors of a job file and --trace, --timings, on the real programs: what they write is parsed by readers of its own
and compared with metrics.jsonl, with DeepSpeed's numbers (deepspeed_monitors.json) and with PyTorch's flop counter."""
import json
import os
import re
import struct
import sys
import unittest

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import deepspeed_monitors  # noqa: E402
import event_file  # noqa: E402
import one_process  # noqa: E402
import harness  # noqa: E402

STEPS, TRACED, PROFILED = 6, 4, 2  # profile_step counts the steps done before
PREFIX = "Train/Samples/"
PHASES = ["forward", "backward"] * 3 + ["reduce", "update", "gather"]
TIMES = ["elapsed_time_ms_" + name for name in ("forward", "backward", "backward_inner", "backward_allreduce", "step")]
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "deepspeed_monitors.json")) as oracle_file:
    DEEPSPEED = json.load(oracle_file)


def number_to_string(value):
    """DeepSpeed's, for numbers of at least 1."""
    size, unit = next(((s, u) for s, u in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K")) if value >= s), (1, ""))
    return f"{round(value / size, 2):g} {unit}"


class MonitorsTest(harness.TrainingTest):
    """One run of two ranks with every monitor on."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.plain = harness.base_config("gpt", gradient_accumulation_steps=3, zero_optimization={"stage": 1})
        cls.files = cls.env.path("files")
        cls.config = dict(
            cls.plain, steps_per_print=2, wall_clock_breakdown=True, memory_breakdown=True,
            tensorboard={"enabled": True, "output_path": cls.files, "job_name": "tb"},
            csv_monitor={"enabled": True, "output_path": cls.files, "job_name": "csv"},
            flops_profiler={"enabled": True, "profile_step": PROFILED, "top_modules": 2},
            comms_logger={"enabled": True, "verbose": True, "debug": True})
        cls.run_dir = cls.env.run_dir()
        cls.outcome = harness.run(cls.env.command(
            cls.env.model("gpt"), cls.env.data("gpt"), cls.config, cls.run_dir, 2, STEPS,
            ["--trace", str(TRACED), "--timings", "--verbose"]))
        if cls.outcome.code != 0:
            raise AssertionError(str(cls.outcome))
        cls.metrics = harness.read_metrics(cls.run_dir)
        cls.has_device = "cuda" in cls.env.ranks(2)
        cls.memory = r"\d+\.\d+" if cls.has_device else r"0\.0"  # of the device, in GB
        # What the ranks wrote, without the prefix that tells them apart.
        cls.lines = [re.sub(r"^\S+:\d+\| ", "", line) for line in cls.outcome.text.splitlines()]

    def csv_rows(self, event):
        with open(os.path.join(self.files, "csv", "Train_Samples_" + event + ".csv"), newline="") as file:
            text = file.read()
        self.assertTrue(text.endswith("\r\n"))
        return [tuple(line.split(",")) for line in text[:-2].split("\r\n")]

    def expected_points(self):
        """{event: [(x, value)]} by DeepSpeed's rules; times have no values here."""
        batch = harness.BATCH
        rates = [one_process.learning_rate(self.plain, k + 1) for k in range(1, STEPS + 1)]
        self.assertEqual([round(r, 12) for r in rates[:-1]], [round(m["lr"], 12) for m in self.metrics[1:]])
        points = {"train_loss": [(k * batch, m["loss"]) for k, m in enumerate(self.metrics)],
                  "lr": [((k + 1) * batch, rate) for k, rate in enumerate(rates)]}
        for key in ("grad_norm", "overflow", "step_ms", "samples_per_s", "tokens_per_s", "gpu_mem_bytes", "gpu_reserved_bytes",
                    "host_mem_bytes", "input_ms"):
            if self.metrics[0].get(key) is not None:
                points[key] = [((k + 1) * batch, float(m[key])) for k, m in enumerate(self.metrics)]
        points.update({name: [((k + 1) * batch, None) for k in range(STEPS)] for name in TIMES})
        return points

    def test_monitors_do_not_change_the_run(self):
        metrics, _ = self.env.train(self.env.model("gpt"), self.env.data("gpt"), self.plain, 2, STEPS)
        for key in ("step", "loss", "lr", "grad_norm"):
            self.assertEqual([m[key] for m in metrics], [m[key] for m in self.metrics])

    def test_csv_files(self):
        points = self.expected_points()
        self.assertEqual(sorted(os.listdir(os.path.join(self.files, "csv"))),
                         sorted(f"Train_Samples_{name}.csv" for name in points))
        for name, expected in points.items():
            rows = self.csv_rows(name)
            self.assertEqual(rows[0], ("step", name))
            self.assertEqual([int(x) for x, _ in rows[1:]], [x for x, _ in expected])
            for (_, text), (_, value) in zip(rows[1:], expected):
                self.assertEqual(text, repr(float(text)))
                if value is None:
                    self.assertGreaterEqual(float(text), 0)
                else:
                    self.assertAlmostEqual(float(text), value, delta=1e-12 * max(1, value))

    def test_tensorboard_file(self):
        names = os.listdir(os.path.join(self.files, "tb"))
        self.assertEqual(len(names), 1)
        self.assertRegex(names[0], r"^events\.out\.tfevents\.\d{10}\..+\.\d+\.0$")
        path = os.path.join(self.files, "tb", names[0])
        points = event_file.read(path)
        of_csv = {PREFIX + name: self.csv_rows(name)[1:] for name in self.expected_points()}
        single = lambda text: struct.unpack("<f", struct.pack("<f", float(text)))[0]
        for tag, rows in of_csv.items():
            self.assertEqual([(x, value) for _, x, name, value in points if name == tag],
                             [(int(x), single(text)) for x, text in rows])
        self.assertEqual(len(points), sum(map(len, of_csv.values())))
        walls = [wall for wall, *_ in points]
        self.assertEqual(walls, sorted(walls))
        # DeepSpeed's odd order: a step's loss stands at the samples before it, its rate behind it.
        self.assertEqual([(name, x) for _, x, name, _ in points if name in (PREFIX + "train_loss", PREFIX + "lr")][:4],
                         [(PREFIX + "train_loss", 0), (PREFIX + "lr", harness.BATCH),
                          (PREFIX + "train_loss", harness.BATCH), (PREFIX + "lr", 2 * harness.BATCH)])
        try:
            from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
        except ImportError:
            return  # the reader above is independent already
        self.assertEqual(sum(len(event.summary.value) for event in LegacyEventFileLoader(path).Load()), len(points))

    def test_progress_lines(self):
        expected = []
        for step in range(2, STEPS + 1, 2):
            rate = one_process.learning_rate(self.plain, step + 1)
            expected.append((step, 0, rate))
        found = [re.fullmatch(r"step=(\d+), skipped=(\d+), lr=\[(.*)\], mom=\[\(0\.9, 0\.999\)\]", line)
                 for line in self.lines if line.startswith("step=")]
        self.assertEqual([(int(m[1]), int(m[2]), round(float(m[3]), 12)) for m in found],
                         [(step, skipped, round(rate, 12)) for step, skipped, rate in expected])
        self.assertEqual(len([line for line in self.lines if re.match(r"step +\d+/6  loss ", line)]), 4)  # 1, 2, 4, 6
        speeds = [line for line in self.lines if "RunningAvgSamplesPerSec=" in line]
        self.assertEqual(len(speeds), 2)  # at 4 and 6: two steps are left out
        self.assertRegex(speeds[0], r"^micro_step=12/global_step=4, RunningAvgSamplesPerSec=[\d.]+, CurrSamplesPerSec=[\d.]+, "
                                    r"MemAllocated={0}GB, MaxMemAllocated={0}GB, TFLOPS=\d+\.\d\d$".replace("{0}", self.memory))

    def test_wall_clock_breakdown(self):
        micro = [line for line in self.lines if line.startswith("time (ms) | fwd_microstep: ")]
        whole = [line for line in self.lines if line.startswith("time (ms) | fwd: ")]
        self.assertEqual((len(micro), len(whole)), (4, 4))
        values = lambda line: [float(v) for v in re.findall(r": (\d+\.\d\d)(?: |$)", line)]
        names = lambda line: re.findall(r"\| (\w+):", line)
        for inner, outer in zip(micro, whole):
            self.assertEqual(names(outer), ["fwd", "bwd", "bwd_inner", "bwd_allreduce", "step"])
            self.assertEqual(names(inner), [name + "_microstep" for name in names(outer)])
            self.assertTrue(all(a <= b for a, b in zip(values(inner), values(outer))), (inner, outer))
            forward, backward, backward_inner, reduce, step = values(outer)
            self.assertAlmostEqual(backward, backward_inner + reduce, delta=0.02)
            self.assertTrue(min(forward, backward_inner, step) > 0)
        for m, row in zip(self.metrics, zip(*(self.csv_rows(name)[1:] for name in TIMES))):
            forward, backward, _, _, step = (float(value) for _, value in row)
            self.assertLessEqual(forward + backward + step, m["step_ms"] * 1.01 + 1)

    def test_memory_breakdown(self):
        points = [line for line in self.lines if line.startswith("Engine ")]
        one_step = (["Engine before forward"] + ["Engine after forward", "Engine after backward"] * 3
                    + ["Engine after step"])
        self.assertEqual(points, one_step * 4)
        allocated = rf"MA {self.memory} GB +Max_MA {self.memory} GB"
        self.assertEqual(len([line for line in self.lines if re.match(allocated, line)]), len(points))
        self.assertEqual(len([line for line in self.lines if re.match(
            r"CPU Virtual Memory:  used = \d+\.\d+ GB, percent = \d+\.\d%", line)]), len(points))
        share = r"\d+\.\d\d GiB \(\d+\.\d%\)"
        self.assertEqual(len([line for line in self.lines if re.fullmatch(
            rf"fragmentation {share} at the peak of this phase", line)]), len(points) if self.has_device else 0)
        self.assertEqual(len([line for line in self.lines if re.fullmatch(
            rf"memory      GPU of rank 0, at the peak: .* reserved, fragmentation {share}", line)]), 1 if self.has_device else 0)

    def test_comms_logger(self):
        header = next(i for i, line in enumerate(self.lines) if line.startswith("Comm. Op  "))
        table, name = {}, None
        for line in self.lines[header + 1:]:
            row = re.match(r"\s{20}(\S+(?: \S+)?)\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s*$", line)
            if row:
                table[name, row[1]] = int(row[2])
            elif re.match(r"(all_|reduce_|broadcast|barrier|send|recv)", line):
                name = line.strip()
            else:
                break
        said = {}
        for line in self.lines:
            call = re.match(r"comm op: (.*) \| time \(ms\): [\d.]+ \| msg size: (\S+(?: \S+)?) \| "
                            r"algbw \(Gbps\): [\d.]+ \| busbw \(Gbps\): [\d.]+$", line)
            if call:
                said[call[1], call[2]] = said.get((call[1], call[2]), 0) + 1
        # Every collective is in the table, and those of the steps (not the last barrier's) have had their line.
        self.assertEqual({key: count for key, count in table.items() if "Caller Func" in key[0]}, table)
        self.assertTrue(set(said) <= set(table), (said, table))
        in_steps = {key: count for key, count in table.items() if "between steps" not in key[0]}
        self.assertEqual({key: said.get(key, 0) for key in in_steps}, in_steps)
        traced = {}
        for event in self.trace(0)["collective"]:
            traced[event["name"]] = traced.get(event["name"], 0) + 1
        by_op = {}
        for (name, _), count in in_steps.items():
            op = name.split(" | ")[0]
            by_op[op] = by_op.get(op, 0) + count
        self.assertEqual(by_op, {op: count * STEPS for op, count in traced.items()})

    def trace_file(self, rank):
        with open(os.path.join(self.run_dir, f"trace.step_{TRACED}.rank_{rank}.json")) as file:
            return json.load(file)

    def trace(self, rank):
        events = self.trace_file(rank)["traceEvents"]
        self.assertEqual({event["pid"] for event in events}, {rank})
        lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
        found, device = {"lanes": lanes}, {}
        for event in events:
            if event["ph"] == "X":
                where = device if lanes[event["tid"]].startswith("device:") else found
                where.setdefault(event["cat"], []).append(event)
        if self.has_device:
            self.check_device_lanes(device)
        return found

    def check_device_lanes(self, spans):
        """When the device did what the host lanes say it was told."""
        (step,) = spans["step"]
        phases = sorted(spans["phase"], key=lambda s: s["ts"])
        self.assertEqual([span["name"] for span in phases], PHASES)
        for span in phases + spans["module"] + spans["backward"]:
            self.assertGreaterEqual(span["ts"], step["ts"] - 0.01)
            self.assertLessEqual(span["ts"] + span["dur"], step["ts"] + step["dur"] + 0.01)
        self.assertTrue({"GPT", "blocks.0 (Block)"} <= {span["name"] for span in spans["module"]})
        self.assertTrue(spans["kernel"])
        self.assertTrue(all("nccl" in span["name"] for span in spans["communication kernel"]))

    def test_exposed_communication(self):
        """The line of the traced step, from the files' own spans."""
        exposed, total = [], []
        for rank in (0, 1):
            numbers = self.trace_file(rank)["otherData"]
            self.assertEqual(set(numbers), {"communication_ms", "exposed_communication_ms"})
            spans = [e for e in self.trace_file(rank)["traceEvents"] if e["ph"] == "X"]
            # Collectives of CPU ranks follow each other on one thread.
            of = (lambda category: sum(span["dur"] for span in spans if span["cat"] == category) / 1e3)
            total.append(of("communication kernel" if self.has_device else "collective"))
            exposed.append(of("exposed") if self.has_device else total[-1])
            self.assertGreater(total[-1], 0)
            self.assertAlmostEqual(numbers["exposed_communication_ms"], exposed[-1], delta=0.01 + 0.01 * exposed[-1])
            self.assertLessEqual(numbers["exposed_communication_ms"], numbers["communication_ms"])
            (step,) = [span["dur"] / 1e3 for span in spans if span["cat"] == "step" and span["tid"] == 1]
            if not self.has_device:
                self.assertLess(exposed[-1], step)
        (line,) = [line for line in self.lines if line.startswith("exposed communication")]
        said = re.fullmatch(rf"exposed communication (\S+) ms of (\S+) ms communication in step {TRACED} "
                            r"\(rank (\d), the most of 2 ranks; mean (\S+) ms\)(.*)", line)
        self.assertTrue(said, line)
        self.assertEqual(int(said[3]), exposed.index(max(exposed)), line)
        self.assertAlmostEqual(float(said[1]), max(exposed), delta=0.01 + 0.01 * max(exposed))
        self.assertAlmostEqual(float(said[2]), total[int(said[3])], delta=0.01 + 0.05 * max(total))
        self.assertEqual("; on CPU ranks it is synchronous" in said[5], not self.has_device)

    def test_trace(self):
        names = [name for name in os.listdir(self.run_dir) if name.startswith("trace")]
        self.assertEqual(sorted(names), [f"trace.step_{TRACED}.rank_{rank}.json" for rank in (0, 1)])
        issued = []
        for rank in (0, 1):
            trace = self.trace(rank)
            lanes = trace.pop("lanes")
            self.assertTrue({"step", "compute", "communication (world)"} <= set(lanes.values()), lanes)
            spans = [span for group in trace.values() for span in group]
            (step,) = trace["step"]
            for span in spans:
                what = f"{span['name']} on {lanes[span['tid']]}"
                self.assertGreaterEqual(span["ts"], step["ts"] - 0.01, what)
                # A device's collectives stand where it did them, and the last gather overlaps the next step.
                if not (self.has_device and span["cat"] == "collective"):
                    self.assertLessEqual(span["ts"] + span["dur"], step["ts"] + step["dur"] + 0.01, what)
            self.check_nesting(spans)
            self.assertEqual([span["name"] for span in sorted(trace["phase"], key=lambda s: s["ts"])], PHASES)
            self.assertTrue(all(lanes[s["tid"]] == "communication (world)" for s in trace["collective"]))
            # Backward on a device has a thread of its own.
            threads = {lanes[s["tid"]] for s in trace["module"] + trace["backward"]}
            self.assertEqual({re.sub(r" \(thread \d+\)", "", name) for name in threads}, {"compute"})
            self.assertEqual(len(threads), 2 if self.has_device else 1)
            where = {lanes[s["tid"]] for s in trace["operator"]}
            self.assertTrue(all(re.fullmatch(r"compute|(compute|other) \(thread \d+\)", name) for name in where), where)
            modules = {span["name"] for span in trace["module"]}
            self.assertTrue({"GPT", "blocks.0 (Block)", "wte (Embedding)"} <= modules, modules)
            if not self.has_device:  # a device computes linear layers, activations and their neighbours as layers of ours
                self.assertTrue({"blocks.1.attn.qkv (Linear)", "head (Linear)"} <= modules, modules)
                self.assertTrue({"aten::linear", "aten::scaled_dot_product_attention", "aten::gelu"}
                                <= {span["name"] for span in trace["operator"]})
            self.assertTrue(trace["backward"])
            issued.append([(s["name"], s["args"]["bytes"]) for s in sorted(trace["collective"], key=lambda s: s["ts"])])
        self.assertEqual(issued[0], issued[1])
        scattered = sum(int(size) for name, size in issued[0] if name == "reduce_scatter_tensor")
        params = DEEPSPEED["flops"]["gpt"]["params"]
        self.assertGreaterEqual(2 * scattered, 4 * params)  # fp32, each rank its half, padded
        self.assertLess(2 * scattered, 4 * params * 1.05)

    def check_nesting(self, spans):
        for lane in {span["tid"] for span in spans}:
            open_ends = []
            for span in sorted((s for s in spans if s["tid"] == lane), key=lambda s: (s["ts"], -s["dur"])):
                while open_ends and open_ends[-1] <= span["ts"] + 0.002:
                    open_ends.pop()
                if open_ends:
                    self.assertLessEqual(span["ts"] + span["dur"], open_ends[-1] + 0.002, span)
                open_ends.append(span["ts"] + span["dur"])

    def test_timings(self):
        first = next(i for i, line in enumerate(self.lines) if line.startswith("where the time went (rank 0)"))
        rows = {}
        for line in self.lines[first + 1:]:
            row = re.match(r"  (.{42}) *([\d.]+)(?: +([\d.]+)%)?", line)
            if not row:
                break
            rows[row[1].strip()] = float(row[2])
        total = rows.pop("since the launch")
        self.assertTrue({"launch, until the rank's program started", "reading the model", "the first step", "steps",
                         "checkpoints", "waiting for the other ranks"} <= set(rows), rows)
        self.assertAlmostEqual(total, sum(rows.values()), delta=0.01 + 0.001 * len(rows))
        self.assertLess(total, self.outcome.seconds + 0.1)
        self.assertGreater(total, sum(m["step_ms"] for m in self.metrics[1:]) / 1e3)


class Flops(harness.TrainingTest):
    """What one forward costs: as DeepSpeed counts it, and as PyTorch's flop counter does."""

    def profile(self, kind, form="script", **changes):
        """({flops, macs, params}, all that the run said): exact numbers stand in the log, rounded ones in the report."""
        options = {"enabled": True, "profile_step": 1, **changes}
        config = harness.base_config(kind, train_batch_size=2 * deepspeed_monitors.MICRO_BATCH,
                                      gradient_accumulation_steps=2, flops_profiler=options)
        outcome = harness.run(self.env.command(self.env.model(kind, form), self.env.data(kind), config,
                                                 self.env.run_dir(), 1, 3, ["--verbose"]))
        self.assertEqual(outcome.code, 0, str(outcome))
        exact = re.search(r"flops profile of step 2: (\d+) flops, (\d+) macs, (\d+) params", outcome.text)
        self.assertTrue(exact, str(outcome))
        return dict(zip(("flops", "macs", "params"), map(int, exact.groups()))), outcome.text

    def flop_counter(self, kind):
        """2 * multiply-accumulates; the plain form of attention, whose products the counter sees one by one."""
        model, inputs = deepspeed_monitors.eager_models()[kind]
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            model(*inputs)
        return counter.get_total_flops()

    def test_counts_are_those_of_deepspeed_and_pytorch(self):
        for kind in ("gpt", "mlp", "convnet"):
            for form in ("script", "trace"):
                with self.subTest(model=kind, form=form):
                    counted, text = self.profile(kind, form)
                    self.assertEqual(counted, DEEPSPEED["flops"][kind])
                    self.assertEqual(2 * counted["macs"], self.flop_counter(kind))
                    line = lambda title, value: re.escape(f"{title:<70}  {value:<8}")
                    self.assertRegex(text, line("fwd MACs per GPU: ", number_to_string(counted["macs"]) + "MACs"))
                    self.assertRegex(text, line("fwd flops per GPU: ", number_to_string(counted["flops"])))
                    self.assertRegex(text, line("params per GPU: ", number_to_string(counted["params"]).strip()))
                    self.assertIn("Profile Summary at step 2:", text)
                    self.assertIn("time (ms) | fwd: ", text)  # the profiler brings the times with it

    def test_bench_step_counts_backward_as_pytorch_does(self):
        """And leaves nothing behind."""
        batch, width, seq, blocks = deepspeed_monitors.MICRO_BATCH, 32, 12, 2
        for kind in ("gpt", "convnet"):
            with self.subTest(model=kind):
                model, inputs = deepspeed_monitors.eager_models()[kind]
                with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
                    loss = model(*inputs).sum()
                    forward = counter.get_total_flops()
                    loss.backward()
                    backward = counter.get_total_flops() - forward
                if kind == "gpt":  # a fused attention keeps no scores and computes them again
                    backward += blocks * 2 * batch * seq * seq * width
                config = self.env.config(harness.base_config(kind, train_batch_size=2 * batch,
                                                              gradient_accumulation_steps=2))
                folder = self.env.path("bench_" + kind)
                os.mkdir(folder)
                # Without data, samples are made up as the export has recorded the inputs: of the model's length.
                data = [] if kind == "gpt" else ["--data", self.env.data(kind)]
                outcome = harness.run(
                    [harness.program("dslaunch"), "bench", "step", self.env.model(kind), *data,
                     "--config", config, "--device", "cpu", "--steps", "2", "--against", "torch", "--json"], cwd=folder)
                self.assertEqual(outcome.code, 0, str(outcome))
                self.assertEqual(os.listdir(folder), [])
                report = json.loads(outcome.out)
                for side in ("dslaunch", "eager_torchscript"):
                    self.assertEqual(report[side]["flops_per_step"],
                                     {"forward": 2 * forward, "backward": 2 * backward, "update": 0}, side)
                    self.assertEqual(len(report[side]["step_ms"]), 2)
                self.assertEqual(report["eager_torchscript"]["replaced_operators"], {})
                self.assertGreater(report["matrix_product_flops_per_second"], 0)

    def test_report_goes_to_a_file_and_tells_modules_apart(self):
        path = self.env.path("deep", "flops.txt")
        _, text = self.profile("gpt", output_file=path)
        self.assertNotIn("DeepSpeed Flops Profiler", text)
        with open(path) as file:
            report = file.read()
        batch, width, seq = deepspeed_monitors.MICRO_BATCH, 32, 12
        linear = lambda a, b: batch * seq * a * b
        macs = {"qkv": linear(width, 3 * width), "proj": linear(width, width), "fc": linear(width, 4 * width),
                "out": linear(4 * width, width)}
        for name, count in macs.items():
            found = re.findall(rf"\({name}\): Linear\((\S+ ?\S*) = [\d.]+% Params, ([\d.]+ \w*MACs) = ", report)
            self.assertEqual([value for _, value in found], [number_to_string(count) + "MACs"] * 2)
        attention = macs["qkv"] + macs["proj"] + 2 * batch * seq * seq * width
        self.assertRegex(report, rf"\(attn\): Attention\(\n +\S+ ?\S* = \S+% Params, {number_to_string(attention)}MACs = ")
        self.assertRegex(report, r"depth 1:\n    params      - \{'ModuleList': '\S+ K'\}")
        self.assertIn("100% latency", report)


class Files(harness.TrainingTest):
    def command(self, run_dir, steps, extra=(), **sections):
        config = harness.base_config("mlp", **sections)
        return self.env.command(self.env.model("mlp"), self.env.data("mlp"), config, run_dir, 1, steps, extra)

    def test_a_resumed_run_appends_to_its_files(self):
        run_dir, files = self.env.run_dir(), self.env.path("resumed")
        sections = {name: {"enabled": True, "output_path": files, "job_name": name} for name in ("tensorboard", "csv_monitor")}
        self.assertEqual(harness.run(self.command(run_dir, 2, **sections)).code, 0)
        outcome = harness.run(self.command(run_dir, 4, ["--resume", "auto"], **sections))
        self.assertEqual(outcome.code, 0, str(outcome))
        with open(os.path.join(files, "csv_monitor", "Train_Samples_train_loss.csv"), newline="") as file:
            rows = [line.split(",")[0] for line in file.read().split("\r\n")]
        batch = harness.BATCH
        self.assertEqual(rows, ["step", "0", str(batch), "step", str(2 * batch), str(3 * batch), ""])
        found = []
        for name in sorted(os.listdir(os.path.join(files, "tensorboard"))):
            found.append([x for _, x, tag, _ in event_file.read(os.path.join(files, "tensorboard", name))
                          if tag == PREFIX + "train_loss"])
        self.assertEqual(sorted(found), [[0, batch], [2 * batch, 3 * batch]])

    def test_directories_that_cannot_be_created_are_named(self):
        blocked = self.env.path("blocked")
        with open(blocked, "w"):
            pass
        for name in ("tensorboard", "csv_monitor"):
            outcome = harness.run(self.command(self.env.run_dir(), 1, **{name: {"enabled": True, "output_path": blocked}}))
            self.assertEqual(outcome.code, 73, str(outcome))
            self.assertIn(blocked, outcome.text)

    def test_steps_beyond_the_run_are_reported(self):
        outcome = harness.run(self.command(self.env.run_dir(), 2, ["--trace", "9"],
                                            flops_profiler={"enabled": True, "profile_step": 7}))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("did not execute step 9", outcome.text)
        self.assertIn("profile_step 7 means step 8", outcome.text)

    def test_without_monitors_nothing_is_written_and_no_line_comes(self):
        run_dir, cwd = self.env.run_dir(), self.env.path("empty")
        os.mkdir(cwd)
        outcome = harness.run(self.command(run_dir, 2), cwd=cwd)
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual(os.listdir(cwd), [])
        for word in ("step=", "time (ms)", "Comm. Op", "Engine ", "RunningAvg", "where the time went"):
            self.assertNotIn(word, outcome.text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
