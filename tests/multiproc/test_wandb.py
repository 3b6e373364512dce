#!/usr/bin/env python3
"""wandb.enabled, with a client in the place of Weights & Biases' that writes down what it is told."""
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/python"))
import harness  # noqa: E402

CLIENT = """
import json, os
def note(**what):
    with open(os.environ["NOTES"], "a") as file:
        file.write(json.dumps(what) + "\\n")
class Run:
    def __init__(self, id):
        self.id = id
    def log(self, values, step):
        note(log=values, step=step)
    def finish(self):
        note(finish=self.id)
def init(**given):
    print("a banner")
    if os.environ.get("REFUSE"):
        raise RuntimeError("api_key not configured\\n(no-tty)")
    note(init=given)
    return Run(given.get("id") or os.environ.get("WANDB_RUN_ID") or "fresh")
"""


class Wandb(harness.TrainingTest):
    def setUp(self):
        super().setUp()
        self.env.made += 1
        self.folder = self.env.path(f"client{self.env.made}")
        os.mkdir(self.folder)
        self.client(CLIENT)
        self.run_dir = self.env.run_dir()

    def client(self, text):
        with open(os.path.join(self.folder, "wandb.py"), "w") as file:
            file.write(text)

    def train(self, steps, *extra, wandb=None, **variables):
        variables = {"PYTHONPATH": self.folder, "NOTES": os.path.join(self.folder, "notes"),
                     "PYTHONDONTWRITEBYTECODE": "1", "XDG_STATE_HOME": self.env.path("state"), **variables}
        config = harness.base_config("mlp", wandb=dict({"enabled": True}, **(wandb or {})), train={"eval_interval": 2},
                                     data={"shuffle": False, "eval": self.env.data("mlp")})
        command = self.env.command(self.env.model("mlp"), self.env.data("mlp"), config, self.run_dir, 2, steps, extra)
        return harness.run(command, env=harness.environment(**variables))

    def notes(self):
        with open(os.path.join(self.folder, "notes")) as file:
            return [json.loads(line) for line in file]

    def test_points_and_a_resumed_run(self):
        for steps, extra in ((4, ()), (6, ("--resume", "auto"))):
            outcome = self.train(steps, *extra, wandb={"group": "g", "team": "t"}, WANDB_PROJECT="mine")
            self.assertEqual(outcome.code, 0, str(outcome))
        notes = self.notes()
        begun = [note["init"] for note in notes if "init" in note]
        self.assertEqual([(b["project"], b["group"], b["entity"], b["resume"], b.get("id")) for b in begun],
                         [("mine", "g", "t", "allow", None), ("mine", "g", "t", "allow", "fresh")])
        self.assertEqual(begun[0]["config"]["train_batch_size"], harness.BATCH)
        self.assertEqual([note["finish"] for note in notes if "finish" in note], ["fresh", "fresh"])
        points = {}
        for note in notes:
            for name, value in note.get("log", {}).items():
                points.setdefault(name.removeprefix("Train/Samples/"), []).append((note["step"], value))
        rows, batch = harness.read_metrics(self.run_dir), harness.BATCH
        self.assertEqual(len(rows), 6)
        self.assertEqual(points["train_loss"], [(k * batch, row["loss"]) for k, row in enumerate(rows)])
        for key in ("grad_norm", "step_ms", "samples_per_s", "host_mem_bytes"):
            self.assertEqual(points[key], [(row["step"] * batch, row[key]) for row in rows], key)
        self.assertEqual(points["eval_loss"], [(row["step"] * batch, row["eval_loss"]) for row in rows if "eval_loss" in row])

    def test_its_variables_and_defaults(self):
        self.assertEqual(self.train(2, WANDB_RUN_ID="given", WANDB_RESUME="must").code, 0)
        begun = self.notes()[0]["init"]
        self.assertEqual(begun["project"], "deepspeed")
        self.assertEqual(set(begun), {"project", "config"})
        self.assertEqual(self.notes()[-1], {"finish": "given"})

    def test_no_client_and_one_that_refuses_end_the_job_before_its_first_step(self):
        self.client("raise ImportError('no wandb here')")
        for variables, words in (({}, ["wandb.enabled", "no wandb here", "pip install wandb", "--venv"]),
                                 ({"REFUSE": "1"}, ["wandb.enabled: wandb.init: api_key not configured (no-tty)"])):
            with self.subTest(words=words):
                outcome = self.train(2, **variables)
                self.assertEqual(outcome.code, 69, str(outcome))
                for word in words:
                    self.assertIn(word, outcome.err)
                self.assertNotIn("Traceback", outcome.text)
                self.client(CLIENT)

    def test_a_client_that_dies_costs_points_only(self):
        self.client(CLIENT.replace('note(log=values, step=step)', 'os._exit(3)'))
        outcome = self.train(200)
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual(len(harness.read_metrics(self.run_dir)), 200)
        self.assertIn("wandb: the Python client has ended", outcome.err)


if __name__ == "__main__":
    unittest.main()
