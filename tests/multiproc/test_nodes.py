#!/usr/bin/env python3
"""What a rank finds on its node: cores, threads, variables from files, a virtual environment, its folder; and defects
of other launchers that users must not meet again.

The program comes from DSLAUNCH_BIN, the folder of dslaunch."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest

DSLAUNCH = os.path.join(os.environ["DSLAUNCH_BIN"], "dslaunch")
LIMIT_S = 60  # for what should take moments, on a machine that is busy


def cores_allowed():
    return sorted(os.sched_getaffinity(0))


class NodeTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="dsl-nodes-")
        self.home = self.path("home")
        self.here = self.path("here")
        os.mkdir(self.home)
        os.mkdir(self.here)

    def tearDown(self):
        shutil.rmtree(self.folder)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, path, text):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def environment(self, **extra):
        env = {name: value for name, value in os.environ.items()
               if name not in ("OMP_NUM_THREADS", "KMP_AFFINITY", "DS_ENV_FILE", "PYTHONHOME", "VIRTUAL_ENV")}
        return {**env, "HOME": self.home, "XDG_STATE_HOME": self.path("state"), "CUDA_VISIBLE_DEVICES": "", **extra}

    def exec(self, *words, cores=None, **extra):
        """Runs `dslaunch exec --device cpu WORDS` in a folder of its own, on `cores` only."""
        narrow = (lambda: os.sched_setaffinity(0, cores)) if cores else None
        return subprocess.run([DSLAUNCH, "exec", "--device", "cpu", *words], capture_output=True, text=True,
                              timeout=LIMIT_S, stdin=subprocess.DEVNULL, cwd=self.here, env=self.environment(**extra),
                              preexec_fn=narrow)

    def output_of_ranks(self, num_ranks, *options, script, **how):
        """What each rank says, by rank. The script's output is one word."""
        result = self.exec("--num_gpus", str(num_ranks), *options, "--", "sh", "-c", f'echo "<$RANK=$({script})>"', **how)
        self.assertEqual(result.returncode, 0, result.stderr)
        found = {}
        for part in result.stdout.split("<")[1:]:
            rank, _, word = part.split(">")[0].partition("=")
            found[int(rank)] = word
        self.assertEqual(len(found), num_ranks, result.stdout)
        return [found[rank] for rank in range(num_ranks)]

    AFFINITY = "sed -n 's/Cpus_allowed_list:\\t//p' /proc/self/status"
    THREADS = "echo $OMP_NUM_THREADS"

    def planned(self, *options, **how):
        result = self.exec("--dry_run", "--json", *options, "--", "true", **how)
        self.assertEqual(result.returncode, 0, result.stderr)
        return [rank["placement"] for rank in json.loads(result.stdout)["ranks"]]

    # ---- cores and threads

    def test_ranks_run_on_the_planned_cores(self):
        cores = cores_allowed()[:2]
        if len(cores) < 2:
            self.skipTest("one core")
        chosen = ",".join(map(str, cores))
        bind = ["--bind_core_list", chosen]
        self.assertEqual(self.output_of_ranks(2, *bind, script=self.AFFINITY), [str(core) for core in cores])
        plan = self.planned("--num_gpus", "2", *bind)
        for core, placement in zip(cores, plan):
            self.assertIn(f"cpus {core}", placement)
            self.assertIn("1 thread", placement)

    def test_by_default_ranks_are_not_bound_and_threads_share_the_mask(self):
        cores = cores_allowed()[:1]
        self.assertEqual(self.output_of_ranks(2, script=self.AFFINITY, cores=cores), [str(cores[0])] * 2)
        self.assertEqual(self.output_of_ranks(2, script=self.THREADS, cores=cores), ["1", "1"])
        self.assertEqual(self.planned("--num_gpus", "1", cores=cores), ["cpus not bound, 1 thread"])

    def test_the_users_thread_count_is_kept(self):
        self.assertEqual(self.output_of_ranks(1, script=self.THREADS, OMP_NUM_THREADS="7"), ["7"])
        self.assertEqual(self.output_of_ranks(1, "--env", "OMP_NUM_THREADS=5", script=self.THREADS), ["5"])

    def test_impossible_bindings_are_reported_before_a_rank_starts(self):
        outside = max(cores_allowed()) + 1
        cases = [(["--bind_cores_to_rank"], {"cores": cores_allowed()[:1]}, 69, "2 rank(s) on 1 core(s)"),
                 (["--bind_core_list", str(outside)], {}, 69, f"core(s) {outside} cannot be used here"),
                 (["--bind_core_list", "1,0"], {}, 64, "column 3"),
                 (["--bind_cores_to_rank", "--numa_binding", "node"], {}, 64, "exclude each other"),
                 (["--numa_binding", "here"], {}, 64, "core-complex"),
                 (["--bind_cores_to_rank"], {"KMP_AFFINITY": "compact"}, 78, "KMP_AFFINITY")]
        for options, how, code, text in cases:
            with self.subTest(options=options):
                result = self.exec("--num_gpus", "2", *options, "--", "touch", self.path("started"), **how)
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertIn(text, result.stderr)
                self.assertFalse(os.path.exists(self.path("started")))

    # ---- variables

    def test_later_files_and_the_command_line_override(self):
        self.write(self.path("home", ".deepspeed_env"), "A=home\nB=home\nC=home\nD=home\n")
        self.write(self.path("here", ".deepspeed_env"), "# a comment\n\nexport B = 'here'\nC=here\nD=here\n")
        named = self.write(self.path("named"), "C=\"named\"\r\nD=named\n")
        words = self.output_of_ranks(1, "--env_file", named, "--env", "D=line", script="echo $A-$B-$C-$D-$E", E="kept")
        self.assertEqual(words, ["home-here-named-line-kept"])

    def test_a_bad_or_missing_environment_file_ends_the_launch(self):
        bad = self.write(self.path("bad"), "A=1\nB\nC='\n")
        result = self.exec("--env_file", bad, "--", "true")
        self.assertEqual(result.returncode, 65)
        self.assertIn(f"{bad}:2:2:", result.stderr)
        self.assertIn(f"{bad}:3:3:", result.stderr)
        result = self.exec("--env_file", self.path("gone"), "--", "true")
        self.assertEqual(result.returncode, 66)
        self.assertIn(self.path("gone"), result.stderr)
        self.assertEqual(self.exec("--", "true", DS_ENV_FILE="other").returncode, 66)

    def test_a_found_environment_file_writable_by_others_is_refused(self):
        found = self.write(self.path("here", ".deepspeed_env"), "A=found\n")
        os.chmod(found, 0o666)
        changes = [("mode 0666", lambda: None)]
        if os.geteuid() == 0:
            changes.append(("uid 54321", lambda: (os.chmod(found, 0o600), os.chown(found, 54321, 54321))))
        for words, change in changes:
            with self.subTest(words):
                change()
                result = self.exec("--", "touch", self.path("started"))
                self.assertEqual(result.returncode, 77, result.stderr)
                self.assertIn(found, result.stderr)
                self.assertIn(words, result.stderr)
                self.assertFalse(os.path.exists(self.path("started")))
                result = self.exec("--", "sh", "-c", "echo $A", DS_ENV_FILE=found)
                self.assertEqual(result.stdout, "found\n", result.stderr)
                self.assertIn(words, result.stderr)

    def test_the_first_lines_name_the_environment_files(self):
        home = self.write(self.path("home", ".deepspeed_env"), "A=1\n")
        named = self.write(self.path("named"), "B=1\n")
        result = self.exec("--env_file", named, "--", "true")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stderr.splitlines()[:2]
        self.assertIn(home, lines[0])
        self.assertIn(named, lines[1])
        plan = json.loads(self.exec("--env_file", named, "--dry_run", "--json", "--", "true").stdout)
        self.assertEqual(plan["env_files"], [home, named])

    def test_environment_files_are_not_executed(self):
        self.write(self.path("here", ".deepspeed_env"), "A=$(touch started)`touch started`;x\n")
        self.assertEqual(self.output_of_ranks(1, script="printf %s \"$A\" | wc -c"), ["33"])
        self.assertFalse(os.path.exists(self.path("here", "started")))

    # ---- virtual environment, folder

    def test_a_virtual_environment_is_active_in_every_rank(self):
        os.makedirs(self.path("venv", "bin"))
        self.write(self.path("venv", "bin", "python"), "#!/bin/sh\necho its-own\n")
        os.chmod(self.path("venv", "bin", "python"), 0o755)
        for option in (["--venv", self.path("venv")], ["--venv", "../venv/"],
                       ["--venv_script", self.path("venv", "bin", "activate")]):
            words = self.output_of_ranks(2, *option, script="echo $(python)-$VIRTUAL_ENV-$PYTHONHOME", PYTHONHOME="/x")
            self.assertEqual(words, [f"its-own-{self.path('venv')}-"] * 2)
        result = self.exec("--venv", self.path("gone"), "--", "true")
        self.assertEqual(result.returncode, 66)
        self.assertIn("bin/python", result.stderr)

    # ---- torchrun's words

    def test_torchruns_counts(self):
        def num_ranks(*options):
            return len(self.planned(*options))
        self.assertEqual(num_ranks("--nproc_per_node", "3"), 3)
        self.assertEqual(num_ranks("--nproc-per-node=cpu"), len(cores_allowed()))
        self.assertEqual(num_ranks("--nnodes", "1", "--node_rank", "0", "--nproc_per_node=2", "--standalone"), 2)
        for options in (["--nnodes", "2:1"], ["--nnodes", "0"], ["--nnodes", "1:2:3"], ["--nproc_per_node", "xpu"],
                        ["--nproc_per_node", "2", "--num_gpus", "2"], ["--nnodes", "1", "--node_rank", "1"]):
            with self.subTest(options=options):
                self.assertEqual(self.exec("--dry_run", *options, "--", "true").returncode, 64)

    # ---- what other launchers got wrong

    def test_a_child_that_died_of_a_signal_is_a_failure(self):
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV):
            result = self.exec("--", "sh", "-c", f"kill -{int(number)} $$")
            self.assertEqual(result.returncode, 128 + number, result.stderr)

    def test_a_missing_hostfile_never_trains_locally(self):
        result = self.exec("--hostfile", self.path("gone"), "--", "touch", self.path("started"))
        self.assertEqual(result.returncode, 66)
        self.assertFalse(os.path.exists(self.path("started")))

    def test_a_process_of_the_same_name_survives_the_job(self):
        marker = self.path("same-name.sh")
        self.write(marker, "#!/bin/sh\nread -r line\nexit ${1:-0}\n")
        os.chmod(marker, 0o755)
        with subprocess.Popen([marker], stdin=subprocess.PIPE) as bystander:
            result = self.exec("--num_gpus", "2", "--", marker, "3")
            self.assertEqual(result.returncode, 3, result.stderr)
            self.assertIsNone(bystander.poll())
            bystander.communicate(b"\n", timeout=LIMIT_S)
            self.assertEqual(bystander.returncode, 0)


if __name__ == "__main__":
    unittest.main()
