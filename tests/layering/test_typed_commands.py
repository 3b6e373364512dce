"""tests/data/typed_commands.txt: what people type, and the answer: it runs, or the line that does the same, which runs when it
is pasted, or the reason why nothing does. Jobs are planned (--dry_run), with two hosts where a line is for several."""
import concurrent.futures
import os
import re
import shlex
import subprocess
import sys
import tempfile
import zipfile

BIN = os.environ["DSLAUNCH_BIN"]
# Commands that dslaunch executes itself, without the worker, and that change nothing.
HARMLESS = ("config", "version", "--version", "-V", "help", "--help", "-h", "jobs", "list", "hosts")
SEVERAL = {"--num_nodes", "--nnodes", "--min_nodes", "--exclude"}


def write(folder, name, text=""):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)


def make_files(folder):
    """What the lines name; a model and data as far as the launcher looks into them."""
    with zipfile.ZipFile(os.path.join(folder, "model.pt"), "w") as model:
        for name, content in (("constants.pkl", b""), ("data.pkl", b"\x80\x02}."), ("version", b"3\n"), ("code/__torch__.py", b"")):
            model.writestr("model/" + name, content)
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2), }".ljust(117) + "\n"
    with zipfile.ZipFile(os.path.join(folder, "x.npz"), "w") as data:
        data.writestr("x.npy", b"\x93NUMPY\x01\x00v\x00" + header.encode() + bytes(32))
    for name in ("train.py", "run_clm.py", "finetune.sh"):
        write(folder, name)
    write(folder, "ds.json", '{"train_batch_size": 16, "zero_optimization": {"stage": 2}}')
    write(folder, "lf.yaml", "model_name_or_path: x\nstage: sft\ndo_train: true\nfinetuning_type: lora\ncutoff_len: 1024\n")
    write(folder, "ax.yml", "base_model: x\ndatasets:\n  - path: x\nsequence_len: 4096\n")
    write(folder, "acc.yaml", "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 2\n")
    write(folder, "hostfile", "localhost slots=8\n127.0.0.1 slots=8\n")
    os.makedirs(os.path.join(folder, "env/bin"))
    os.symlink("/bin/sh", os.path.join(folder, "env/bin/python"))
    os.makedirs(os.path.join(folder, "ckpt"))


def rows(path):
    """(line number, words as typed, kind of the answer, its text)."""
    typed = None
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            if not line.startswith(" "):
                assert typed is None, f"line {number}: no answer before it"
                typed = shlex.split(text)
                typed = typed[1:] if typed[0] == "dslaunch" else typed
                continue
            kind, _, rest = text.partition(" ")
            yield number, typed, kind, rest
            typed = None


def planned(words):
    """The words with what makes a plan of them, on CPUs; None: a command that this test does not start."""
    command = next((word for word in words[:1] if not word.startswith("-") and "." not in word), "run")
    if words[:1] and words[0] in HARMLESS:
        return words
    if command not in ("run", "train", "launch", "exec"):
        return None
    at = 1 if words[0] == command else 0
    end = words.index("--") if "--" in words else len(words)
    names = {word.partition("=")[0].replace("-", "_").replace("__", "--", 1) for word in words[:end]}
    added = ["--dry_run"]
    if "--device" not in names:
        added += ["--device", "cpu"]
    if names & SEVERAL and not names & {"--hostfile", "-H", "--no_ssh", "--node_rank"}:
        added += ["--hostfile", "hostfile"]
    if command != "exec" and "--data" not in names:
        added += ["--data", "x.npz"]
    return words[:at] + added + words[at:]


class Checker:
    def __init__(self, folder):
        self.folder = folder
        self.env = dict(os.environ, XDG_STATE_HOME=os.path.join(folder, "state"), NO_COLOR="1")

    def run(self, words):
        return subprocess.run([os.path.join(BIN, "dslaunch"), *words], capture_output=True, text=True, timeout=60, env=self.env,
                              stdin=subprocess.DEVNULL, cwd=self.folder)

    def runs(self, words):
        command = planned(words)
        if command is None:
            return None
        outcome = self.run(command)
        return None if outcome.returncode == 0 else f"{shlex.join(command)}: exit {outcome.returncode}: {outcome.stderr}"

    def check(self, row):
        number, typed, kind, rest = row
        where = f"line {number}: {shlex.join(typed)}: "
        if kind == "runs":
            fault = self.runs(typed)
            return where + fault if fault else None
        answer = self.run(typed)
        if answer.returncode == 0 or len(answer.stderr.splitlines()) > 9:
            return where + f"exit {answer.returncode}: {answer.stderr}"
        if kind == "because":
            return None if rest in answer.stderr else where + answer.stderr
        wanted = shlex.split(rest)[1:]
        lines = re.findall(r"did you mean 'dslaunch (.*?)'\?", answer.stderr)
        if lines:
            given = [shlex.split(line) for line in lines]
        else:  # the words in place of an option
            found = re.search(r"(--set .*)$|is (--\w+ \S+) here$", answer.stderr, re.M)
            words = shlex.split(found[1] or found[2]) if found else []
            at = next((i for i in range(len(wanted)) if wanted[i:i + len(words)] == words), None) if words else None
            given = [wanted] if at is not None else [words]
        if wanted not in given:
            return where + answer.stderr
        fault = self.runs(wanted)
        return where + fault if fault else None


def main(path):
    given = list(rows(path))
    with tempfile.TemporaryDirectory() as folder:
        make_files(folder)
        checker = Checker(folder)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            wrong = [fault for fault in pool.map(checker.check, given) if fault]
    print("\n".join(wrong), f"\n{len(given)} lines")
    return 1 if wrong or len(given) < 150 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
