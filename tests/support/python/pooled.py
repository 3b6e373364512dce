"""Tests whose runs take place in the grid's pools of persistent ranks (tests/grid/pool.py): milliseconds each, where a start
of dslaunch takes a second. Each rank does what `dsworker train` does, with the same config text; what only the programs have
(files, exit codes, the console, signals, restarts) is tested end to end. One pool of each world size serves all classes of
a process. On GPUs (tests/gpu/test_gpu_suites.py) the same tests start programs."""
import atexit
import os
import sys

import harness

sys.path.insert(0, os.path.join(harness.ROOT, "tests/grid"))

from pool import Pool  # noqa: E402

os.environ.setdefault("OMP_NUM_THREADS", "1")
_pools = {}


def pool(world):
    if world not in _pools:
        _pools[world] = Pool(world)
        atexit.register(_pools[world].close)
    return _pools[world]


def options_of(words):
    """Options of the programs as fields of a case (grid_rank.hpp); --job is what DSLAUNCH_JOB_ID tells a program."""
    fields, words = {}, list(words)
    while words:
        word = words.pop(0)
        if word == "--eval_only":
            fields["eval_only"] = True
        elif word == "--verify":
            fields["verify"] = int(words.pop(0))
        elif word in ("--resume", "--begin_from", "--job"):
            fields[word[2:]] = words.pop(0)
        else:
            raise ValueError(f"no option of a case in a pool: {word}")
    return fields


class PoolEnv(harness.TrainingEnv):
    def run(self, model, data, config, run_dir, world=1, steps=50, extra=()):
        """The outcome of a case: exit code, and all that its ranks said."""
        if data:
            config = {**config, "data": {**config.get("data", {}), "train": data}}
        ending = pool(world).run(model, config, run_dir, steps or 1, shows=True, **options_of(extra))
        return harness.Outcome(["a case of", str(world), "ranks"], ending.code, f"{ending.said}\n", f"{ending.message}\n",
                               ending.seconds)


class PooledTest(harness.TrainingTest):
    parent_folder = harness.memory_folder()

    @classmethod
    def make_env(cls):
        return PoolEnv(cls.parent_folder)
