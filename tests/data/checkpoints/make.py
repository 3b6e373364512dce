#!/usr/bin/env python3
"""Made format_2/: a run of three steps on two ranks, and the losses of its next three steps, by the programs of commit
bd75b0c3, which wrote checkpoints of format 2. format_3/ is the same state in slices of four ranks (slices_test.cpp).

    DSLAUNCH_BIN=OLD_BIN PYTHON_WITH_TORCH tests/data/checkpoints/make.py"""
import json
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../support/python"))

import harness  # noqa: E402
import tensor_file  # noqa: E402


def main():
    env = harness.TrainingEnv()
    os.chdir(env.folder)
    tensor_file.write(os.path.join(HERE, "data.safetensors"), harness.samples_of("mlp"))
    with open(os.path.join(HERE, "config.json"), "w") as file:
        json.dump(harness.base_config("mlp", zero_optimization={"stage": 1}), file, indent=1)
    for name in ("data.safetensors", "config.json"):
        shutil.copy(os.path.join(HERE, name), name)
    command = [*env.launcher(2), "--config", "config.json", "--data", "data.safetensors", "--run_dir", "run",
               "--resume", "auto", env.model("mlp")]
    for steps in (3, 6):
        outcome = harness.run([*command[:1], "--steps", str(steps), *command[1:]])
        assert outcome.code == 0, outcome
        if steps == 3:
            shutil.rmtree(os.path.join(HERE, "format_2"), ignore_errors=True)
            shutil.copytree("run/checkpoints/step_00000003", os.path.join(HERE, "format_2/step_00000003"))
    losses = {row["step"]: row["loss"] for row in harness.read_metrics("run")}
    with open(os.path.join(HERE, "losses.json"), "w") as file:
        json.dump(losses, file, indent=1)
    os.chdir(HERE)
    env.close()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
