"""dslaunch inside Slurm: an allocation, a batch job, a task of srun; slots, preemption and cancelling."""
import contextlib
import json
import os
import re
import shlex
import unittest

import model_fixture
from host_case import DSLAUNCH, HostCase
from parallel_cases import REPO, long_running

SHOW = "echo $RANK $LOCAL_RANK $WORLD_SIZE $GROUP_RANK $(hostname)"
SAVES = "trap 'echo saved $RANK; exit 75' TERM; echo ready; while :; do sleep 0.05; done"


class SlurmCase(HostCase):
    def setUp(self):
        super().setUp()
        self.exec_cpu = [DSLAUNCH, "exec", "--device", "cpu"]

    def batch(self, script, *options):
        """Submits the script; its job id. Output goes to the file `out` that all hosts see."""
        self.write("job.sh", "#!/bin/sh\n" + script, 0o755)
        done = self.head.run(["sbatch", "--parsable", "-o", self.path("out"), "--open-mode=append", *options,
                              self.path("job.sh")])
        return done.stdout.strip()

    def await_job(self, job, limit=60):
        """The exit code of the batch script and what it wrote."""
        self.wait_until(lambda: job not in self.cluster.jobs(), limit, f"the end of job {job}")
        shown = self.head.run(["scontrol", "show", "job", job]).stdout
        code, number = map(int, re.search(r" ExitCode=(\d+):(\d+)", shown).groups())
        return (code if number == 0 else 128 + number), self.read("out")

    def dslaunch(self, *words):
        return " ".join(shlex.quote(word) for word in [*self.exec_cpu, *words])

    def read_output(self, text):
        return sorted(line.split("| ")[1] for line in text.splitlines() if "| " in line)

    def await_text(self, text, count=1):
        self.wait_until(lambda: os.path.exists(self.path("out")) and self.read("out").count(text) >= count, 30, text)


class Allocation(SlurmCase):
    def expected(self, nodes, slots):
        return sorted(f"{node * slots + slot} {slot} {nodes * slots} {node} node{node + 1}"
                      for node in range(nodes) for slot in range(slots))

    def test_salloc_with_gpus_has_their_slots(self):
        outcome = self.finish(self.start("-N3", "--gpus-per-node=2", *self.exec_cpu, "--", "sh", "-c", SHOW, program="salloc"))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual(self.read_output(outcome.out), self.expected(3, 2), str(outcome))

    def test_salloc_without_gpus_has_a_slot_per_task(self):
        outcome = self.finish(self.start("-N3", "--ntasks-per-node=2", *self.exec_cpu, "--", "sh", "-c", SHOW,
                                         program="salloc"))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual(self.read_output(outcome.out), self.expected(3, 2), str(outcome))

    def test_salloc_with_gres_asks_the_nodes(self):
        """No variable of salloc's shell tells of --gres."""
        outcome = self.finish(self.start("-N3", "--gres=gpu:2", *self.exec_cpu, "--", "sh", "-c", SHOW, program="salloc"))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual(self.read_output(outcome.out), self.expected(3, 2), str(outcome))

    def test_sbatch_with_gres_has_a_slot_per_gpu(self):
        job = self.batch(self.dslaunch("--", "sh", "-c", SHOW), "-N3", "--ntasks-per-node=1", "--gres=gpu:2")
        code, text = self.await_job(job)
        self.assertEqual(code, 0, text)
        self.assertEqual(self.read_output(text), self.expected(3, 2), text)

    def test_arguments_are_unchanged(self):
        odd = ["", "a b", "it's", "$HOME", ";", "*", "new\nline", 'say "hi"', "%n", "\\"]
        script = "import sys; print('ARGV', ascii(sys.argv[1:]))"
        code, text = self.await_job(self.batch(self.dslaunch("--", "python3", "-c", script, *odd), "-N2", "--export",
                                               f"ALL,PATH={os.environ['PATH']}"))
        self.assertEqual(code, 0, text)
        self.assertEqual(text.count(f"ARGV {ascii(odd)}"), 2, text)

    def test_the_exit_code_is_that_of_the_first_failure(self):
        code, text = self.await_job(self.batch(self.dslaunch("--", "sh", "-c", "[ $RANK != 1 ] || kill -9 $$; exec sleep 1000"),
                                               "-N3"))
        self.assertEqual(code, 137, text)
        self.assertIn("rank 1 on node2 failed first: killed by SIGKILL", text)

    def test_fewer_nodes_than_slurm_says_are_refused(self):
        code, text = self.await_job(self.batch("SLURM_JOB_NODELIST=node[1-2] SLURM_NODELIST=node[1-2] "
                                               + self.dslaunch("--", "sh", "-c", SHOW), "-N3"))
        self.assertEqual(code, 78, text)
        self.assertIn("SLURM_JOB_NODELIST", text)
        self.assertEqual(self.read_output(text), [], text)

    def test_srun_supports_the_options_used(self):
        """Slurm's srun itself is the judge: nothing of its own on the terminal of a job that succeeds."""
        code, text = self.await_job(self.batch(self.dslaunch("--", "true"), "-N3"))
        self.assertEqual(code, 0, text)
        self.assertNotIn("srun", text)


class Task(SlurmCase):
    def test_one_dslaunch_per_node(self):
        outcome = self.finish(self.start("-N3", "--ntasks-per-node=1", "--gres=gpu:2", *self.exec_cpu, "--", "sh", "-c", SHOW,
                                         program="srun"))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual(self.read_output(outcome.out), Allocation.expected(self, 3, 2), str(outcome))

    def test_the_exit_code_of_the_step_is_that_of_the_first_failure(self):
        outcome = self.finish(self.start("-N3", *self.exec_cpu, "--", "sh", "-c", "[ $RANK != 2 ] || exit 9; exec sleep 1000",
                                         program="srun"))
        self.assertEqual(outcome.code, 9, str(outcome))
        self.assertIn("rank 2 on node3 failed first: exit code 9", outcome.err)


class Termination(SlurmCase):
    def test_scancel_leaves_nothing(self):
        job = self.batch(self.dslaunch("--grace", "1", "--", "sh", "-c",
                                       "setsid sh -c \"trap '' TERM; sleep 1000\" >/dev/null 2>&1 & trap '' TERM; echo ready; "
                                       "while :; do sleep 0.05; done"), "-N3")
        self.await_text("ready", 3)
        self.head.run(["scancel", job])
        self.wait_until(lambda: job not in self.cluster.jobs(), 20, "the end of the job")
        self.wait_until(lambda: not self.cluster.processes(), 5, f"an end of all processes ({self.cluster.processes()})")

    def test_scancel_is_reported_last_as_the_cause(self):
        """Slurm signals ranks, agents, dslaunch and the script at once, in any order, and some of them twice; a shell
        lets its program end before it minds a signal."""
        cases = {"die": ("echo ready; exec sleep 1000", 143), "save": (SAVES, 75),
                 "stay": ("trap '' TERM; echo ready; while :; do sleep 0.05; done", 137)}
        for name, (script, code) in cases.items():
            with self.subTest(name=name):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.path("out"))
                job = self.batch("trap : TERM\n" + self.dslaunch("--json", "--grace", "1", "--", "sh", "-c", script) + f" > {self.path('json')}\n"
                                 "echo code $?", "-N3")
                self.await_text("ready", 3)
                self.head.run(["scancel", job])
                self.await_text("code ")
                self.wait_until(lambda: job not in self.cluster.jobs(), what="the end of the job")
                told = self.read("out")
                cause, end = told.splitlines()[-2:]
                self.assertRegex(cause, "the job ended: (stopped by a signal|node.: the agent received)", told)
                self.assertEqual(end, f"code {code}", told)
                self.assertNotRegex(told, "failed first|also failed")
                report = json.loads(self.read("json"))
                self.assertEqual((report["exit_code"], report["first_failure"]), (code, None), told)

    def test_scancel_with_a_signal_lets_the_ranks_save(self):
        job = self.batch("exec " + self.dslaunch("--", "sh", "-c", SAVES), "-N3")
        self.await_text("ready", 3)
        self.head.run(["scancel", "--batch", "--signal=TERM", job])
        code, text = self.await_job(job)
        self.assertEqual((code, text.count("saved")), (75, 3), text)

    def test_a_killed_launcher_leaves_no_process(self):
        """The batch job ends with it, and Slurm kills the agents in the middle of their tidying up: the next ones do it."""
        self.batch(self.dslaunch("--", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"), "-N3")
        self.await_text("ready", 3)
        self.assertEqual(len(self.cluster.node1.kill(r"dslaunch exec")), 1)
        self.wait_until(lambda: not any(node.kill("while :", 0) for node in self.cluster.nodes), 5, "an end of all ranks")
        self.wait_until(lambda: not any(node.kill("dslaunch agent", 0) for node in self.cluster.nodes), 5, "an end of the agents")
        self.assertEqual(self.await_job(self.batch(self.dslaunch("--", "true"), "-N3"))[0], 0)

    def test_a_killed_agent_is_reported(self):
        job = self.batch(self.dslaunch("--grace", "1", "--", "sh", "-c", "echo ready; exec sleep 1000"), "-N3")
        self.await_text("ready", 3)
        self.assertGreaterEqual(len(self.cluster.node3.kill(r"dslaunch agent\b")), 1)
        code, text = self.await_job(job)
        self.assertEqual(code, 69, text)
        self.assertIn("node3", text)


@unittest.skipUnless(model_fixture.has_torch() and os.access(os.path.join(os.path.dirname(DSLAUNCH), "dsworker"), os.X_OK),
                     "no pinned PyTorch, or dsworker is not built")
class Training(SlurmCase):
    """The scripts of scripts/slurm as they are, with fewer nodes and GPUs."""

    def setUp(self):
        super().setUp()
        model_fixture.copy_model(self.folder)

    def submit(self, script, steps, *options):
        environment = self.head.environment(PATH=os.path.dirname(DSLAUNCH) + ":" + self.head.environment()["PATH"])
        done = self.head.run(["sbatch", "--parsable", "--nodes=3", "--gpus-per-node=2", "--chdir", self.folder, "-o",
                              self.path("out"), *options, f"{REPO}/scripts/slurm/{script}", "model.pt", "--config", "ds.json",
                              "--data", "train.safetensors", "--device", "cpu", "--steps", str(steps)], env=environment)
        return done.stdout.strip()

    def steps(self, job):
        """Of the run's metrics; a line that is being written does not count."""
        path = self.path(f"runs/{job}/metrics.jsonl")
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as file:
            return [json.loads(line)["step"] for line in file if line.endswith("\n")]

    @long_running
    def test_many_nodes(self):
        job = self.submit("many_nodes.sbatch", 3)
        code, text = self.await_job(job)
        self.assertEqual(code, 0, text)
        self.assertEqual(self.steps(job), [1, 2, 3])
        self.assertEqual(len(os.listdir(self.path(f"runs/{job}/logs"))), 6)

    @long_running
    def test_preemption_saves_requeues_and_resumes(self):
        job = self.submit("requeue.sbatch", 1000000)
        self.wait_until(lambda: len(self.steps(job)) > 2, what="the first steps")
        self.head.run(["scancel", "--batch", "--signal=USR1", job])
        self.wait_until(lambda: self.cluster.jobs().get(job) == "PENDING", 30, "the job's way back into the queue")
        done = len(self.steps(job))
        self.assertIn("scheduler", self.read("out"))
        self.wait_until(lambda: len(self.steps(job)) > done + 2, 60, lambda: f"steps after the requeue: {self.read('out')}\n"
                        + self.head.run(["scontrol", "show", "job", job]).stdout)
        self.head.run(["scancel", "--batch", "--signal=TERM", job])
        self.wait_until(lambda: self.cluster.jobs().get(job) == "PENDING", 30, "a second way back")
        self.head.run(["scancel", job])
        steps = self.steps(job)
        self.assertEqual(steps, list(range(1, len(steps) + 1)), "no step is missing and none was done twice")
