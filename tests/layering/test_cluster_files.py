#!/usr/bin/env python3
"""The files in scripts/slurm and scripts/kubernetes: their syntax, what they name, and what requeue.sbatch does on signals."""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml
except ImportError:
    yaml = None

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SLURM = os.path.join(ROOT, "scripts", "slurm")
KUBERNETES = os.path.join(ROOT, "scripts", "kubernetes")
BATCH_FILES = [os.path.join(SLURM, name) for name in sorted(os.listdir(SLURM))]


def read(path):
    with open(path, encoding="utf-8") as text:
        return text.read()


def directives(path):
    return dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", read(path), re.MULTILINE))


class BatchFiles(unittest.TestCase):
    def test_bash_and_shellcheck_accept_them(self):
        self.assertEqual(len(BATCH_FILES), 3)
        for path in BATCH_FILES:
            subprocess.run(["bash", "-n", path], check=True)
            self.assertTrue(os.access(path, os.X_OK), path)
        if shutil.which("shellcheck"):
            subprocess.run(["shellcheck", *BATCH_FILES], check=True)

    def test_every_directive_is_read_and_one_task_a_node_is_asked_for(self):
        for path in BATCH_FILES:
            text = read(path)
            self.assertEqual(len(re.findall("^#SBATCH", text, re.MULTILINE)), len(directives(path)), path)
            self.assertEqual(directives(path)["ntasks-per-node"], "1")
            # Slurm stops reading directives at the first command.
            self.assertLess(text.rindex("#SBATCH"), text.index("set -euo pipefail"))

    def test_requeue_asks_for_the_signal_for_the_script_and_for_being_put_back(self):
        asked = directives(os.path.join(SLURM, "requeue.sbatch"))
        self.assertEqual(asked["signal"], "B:USR1@60")
        self.assertIn("requeue", asked)
        self.assertEqual(asked["open-mode"], "append")

    def test_without_a_model_they_print_usage(self):
        for path in BATCH_FILES:
            done = subprocess.run(["bash", path], capture_output=True, text=True, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("usage: sbatch scripts/slurm/" + os.path.basename(path), done.stderr)


class BatchRuns(unittest.TestCase):
    """With stand-ins for dslaunch and scontrol that write down how they were called."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="dslaunch-sbatch-")
        self.addCleanup(self.folder.cleanup)
        os.mkfifo(self.file("ready"))
        self.program("scontrol", 'printf "%s " "$@" >scontrol.args')

    def file(self, name):
        return os.path.join(self.folder.name, name)

    def program(self, name, body):
        with open(self.file(name), "w", encoding="utf-8") as out:
            out.write("#!/usr/bin/env bash\ncd " + self.folder.name + "\n" + body + "\n")
        os.chmod(self.file(name), 0o755)

    def start(self, script, *arguments):
        return subprocess.Popen(["bash", os.path.join(SLURM, script), *arguments], cwd=self.folder.name,
                                env={**os.environ, "PATH": self.folder.name + ":" + os.environ["PATH"], "SLURM_JOB_ID": "7"},
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def asked(self):
        return read(self.file("scontrol.args")).split() if os.path.exists(self.file("scontrol.args")) else None

    def test_arguments_are_unchanged(self):
        self.program("dslaunch", r'printf "%s\0" "$@" >dslaunch.args')
        for name in ("one_node.sbatch", "many_nodes.sbatch", "requeue.sbatch"):
            self.assertEqual(self.start(name, "my model.pt", "--set", "a=$b;*").wait(timeout=30), 0)
            given = read(self.file("dslaunch.args")).split("\0")[:-1]
            self.assertEqual(given[:2], ["--run_dir", "runs/7"])
            self.assertEqual(given[-3:], ["my model.pt", "--set", "a=$b;*"])
            self.assertEqual("--resume" in given, name == "requeue.sbatch")
            self.assertEqual("--grace 50s" in " ".join(given), name == "requeue.sbatch")  # of the minute before the end
        self.assertIsNone(self.asked())

    def signalled(self, number, body):
        """The script's exit code when it gets `number` while dslaunch, which says so through a pipe, is waiting."""
        self.program("dslaunch", body)
        script = self.start("requeue.sbatch", "model.pt")
        with open(self.file("ready"), encoding="utf-8") as ready:
            ready.read()
        script.send_signal(number)
        return script.wait(timeout=30)

    def test_a_signal_is_forwarded_and_75_requeues(self):
        for number in (signal.SIGUSR1, signal.SIGTERM):
            name = signal.Signals(number).name
            code = self.signalled(number, f"""
                mkfifo never; exec 3<>never; rm never
                trap 'echo {name} >got; exit 75' {name[3:]}
                : >ready
                while true; do read -r -u 3 -t 60 || true; done""")
            self.assertEqual(code, 75)
            self.assertEqual(read(self.file("got")).strip(), name)
            self.assertEqual(self.asked(), ["requeue", "7"])
            os.remove(self.file("scontrol.args"))

    def test_other_exit_codes_are_kept(self):
        code = self.signalled(signal.SIGUSR1, """
            mkfifo never; exec 3<>never; rm never
            trap 'kill -KILL $$' USR1
            : >ready
            while true; do read -r -u 3 -t 60 || true; done""")
        self.assertEqual(code, 137)
        self.assertIsNone(self.asked())
        self.program("dslaunch", "exit 76")
        self.assertEqual(self.start("requeue.sbatch", "model.pt").wait(timeout=30), 76)
        self.assertIsNone(self.asked())


@unittest.skipIf(yaml is None, "python3-yaml is not installed")
class Manifests(unittest.TestCase):
    def load(self, name):
        documents = list(yaml.safe_load_all(read(os.path.join(KUBERNETES, name))))
        self.assertEqual(len(documents), 1)
        return documents[0]

    def check_container(self, container, resources):
        self.assertEqual(container["image"], "REGISTRY/dslaunch")
        self.assertEqual(container["command"], ["dslaunch"])
        model, *options = container["args"]
        self.check_is_in_the_image(model)
        options = dict(option.lstrip("-").split("=", 1) for option in options)
        self.check_is_in_the_image(options["config"])
        self.assertEqual(options["resume"], "auto")
        self.assertTrue(options["run_dir"].startswith("/runs/"))
        secrets = {entry["name"]: entry["valueFrom"] for entry in container["env"] if "valueFrom" in entry}
        self.assertEqual(secrets, {"DSLAUNCH_TOKEN": {"secretKeyRef": {"name": "dslaunch", "key": "token"}}})
        env = {entry["name"]: entry["value"] for entry in container["env"] if entry["name"] not in secrets}
        self.assertTrue(all(isinstance(value, str) for value in env.values()), env)
        self.assertEqual(env["FI_PROVIDER"], "efa")
        # Devices and huge pages cannot be overcommitted: request and limit are one number.
        for name, count in {"nvidia.com/gpu": 1, "vpc.amazonaws.com/efa": 8, "hugepages-2Mi": "5120Mi"}.items():
            self.assertEqual(resources["limits"][name], count)
            self.assertEqual(resources["requests"][name], count)
        return env

    def check_is_in_the_image(self, path):
        prefix = "/opt/dslaunch/share/dslaunch/"
        self.assertTrue(path.startswith(prefix), path)
        below = path[len(prefix):]
        made = below == "gpt.pt" and "tools/export gpt-163m " + path in read(os.path.join(KUBERNETES, "Dockerfile"))
        self.assertTrue(made or os.path.exists(os.path.join(ROOT, below)), path)

    def check_volumes(self, spec):
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        mounts = {mount["name"]: mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
        self.assertEqual(mounts, {"runs": "/runs", "shm": "/dev/shm"})
        self.assertEqual(set(volumes), set(mounts))
        self.assertEqual(volumes["shm"]["emptyDir"]["medium"], "Memory")

    def test_the_train_job(self):
        job = self.load("trainjob.yaml")
        self.assertEqual((job["apiVersion"], job["kind"]), ("trainer.kubeflow.org/v1alpha1", "TrainJob"))
        trainer = job["spec"]["trainer"]
        self.assertEqual((trainer["numNodes"], trainer["numProcPerNode"]), (4, 1))
        env = self.check_container(trainer, trainer["resourcesPerNode"])
        # Trainer rejects jobs that set what it sets itself.
        self.assertFalse([name for name in env if name.startswith("PET_")])
        (override,) = job["spec"]["podTemplateOverrides"]
        self.assertEqual(override["targetJobs"], [{"name": "node"}])
        self.assertEqual(override["spec"]["containers"][0]["name"], "node")
        self.check_volumes(override["spec"])

    def test_the_job_set(self):
        job_set = self.load("jobset.yaml")
        self.assertEqual((job_set["apiVersion"], job_set["kind"]), ("jobset.x-k8s.io/v1alpha2", "JobSet"))
        (replicated,) = job_set["spec"]["replicatedJobs"]
        job = replicated["template"]["spec"]
        self.assertEqual((job["parallelism"], job["completions"], job["completionMode"]), (4, 4, "Indexed"))
        pod = job["template"]["spec"]
        (container,) = pod["containers"]
        env = self.check_container(container, container["resources"])
        self.assertEqual(env["PET_NNODES"], str(job["completions"]))
        name = job_set["metadata"]["name"]
        self.assertEqual(env["PET_MASTER_ADDR"], f"{name}-{replicated['name']}-0-0.{name}")
        self.assertTrue(job_set["spec"]["network"]["enableDNSHostnames"])
        self.check_volumes(pod)
        # A pod failure policy needs pods that are not restarted in place.
        self.assertEqual(pod["restartPolicy"], "Never")
        actions = {rule["action"]: rule["onExitCodes"] for rule in job["podFailurePolicy"]["rules"]}
        self.assertEqual(actions["Ignore"]["values"], [75])
        for rule in actions.values():
            self.assertEqual(rule["containerName"], container["name"])


class Image(unittest.TestCase):
    def setUp(self):
        text = read(os.path.join(KUBERNETES, "Dockerfile"))
        text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
        self.lines = [line.split(None, 1) for line in text.splitlines() if line.strip()]

    def arguments(self, instruction):
        return [rest for name, rest in self.lines if name == instruction]

    def test_instructions_are_docker_s_and_the_stages_are_named(self):
        known = {"FROM", "ARG", "ENV", "WORKDIR", "COPY", "RUN", "ENTRYPOINT", "CMD"}
        self.assertEqual({name for name, _ in self.lines} - known, set())
        stages = [words.split(" AS ")[1] for words in self.arguments("FROM") if " AS " in words]
        for rest in self.arguments("COPY"):
            if rest.startswith("--from="):
                self.assertIn(rest.split()[0][len("--from="):], stages)

    def test_files_of_the_tree_that_it_names_exist(self):
        for rest in self.arguments("COPY"):
            if not rest.startswith("--from="):
                for source in rest.split()[:-1]:
                    self.assertTrue(os.path.exists(os.path.join(ROOT, source)), source)
        for rest in self.arguments("RUN"):
            subprocess.run(["bash", "-n", "-c", rest], check=True)
            for path in re.findall(r"(?<![\w/.-])((?:scripts|tools)/\w+)", rest):
                self.assertTrue(os.access(os.path.join(ROOT, path), os.X_OK), path)
        setup = read(os.path.join(ROOT, "scripts", "setup"))
        self.assertIn("--cuda)", setup)
        self.assertIn("XDG_CACHE_HOME", setup)

    def test_what_setup_calls_is_in_the_image_before_it(self):
        before = self.lines[:next(i for i, (_, rest) in enumerate(self.lines) if "scripts/setup --" in rest)]
        copied = {word for name, rest in before if name == "COPY" for word in rest.split()[:-1]}
        called = re.findall(r"\$checkout/([\w/]+)", read(os.path.join(ROOT, "scripts", "setup")))
        self.assertIn("cmake/find_nvcc", called)
        self.assertLessEqual({"scripts/setup", *called}, copied)

    def test_presets_it_builds_exist(self):
        presets = read(os.path.join(ROOT, "CMakePresets.json"))
        for name in re.findall(r"--preset (\w+)", "\n".join(self.arguments("RUN"))):
            self.assertIn(f'"name": "{name}"', presets)

    def test_the_container_runs_the_main_job(self):
        self.assertEqual(self.arguments("ENTRYPOINT"), ['["dslaunch"]'])
        (command,) = self.arguments("CMD")
        model, option, config = re.findall(r'"([^"]+)"', command)
        self.assertEqual(option, "--config")
        self.assertIn(f"tools/export gpt-163m {model}", "\n".join(self.arguments("RUN")))
        self.assertTrue(os.path.exists(os.path.join(ROOT, config.replace("/opt/dslaunch/share/dslaunch/", ""))))
        self.assertTrue(any("/opt/dslaunch/bin" in rest for rest in self.arguments("ENV")))


if __name__ == "__main__":
    sys.exit(unittest.main())
