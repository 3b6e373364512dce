"""docs/migrating.md against the real program: an option that is honoured is accepted, any other gets its reason."""
import os
import re
import subprocess
import sys
import tempfile

BIN = os.environ["DSLAUNCH_BIN"]

# How each honoured option is given to `dslaunch exec`. {hosts}: a hostfile; {venv}: a virtual environment; {dir}: a
# folder that does not exist yet.
SAMPLES = {
    "--hostfile": ["--hostfile", "{hosts}"],
    "--include": ["--hostfile", "{hosts}", "--include", "localhost:1"],
    "--exclude": ["--hostfile", "{hosts}", "--exclude", "localhost:0"],
    "--num_nodes": ["--num_nodes", "1"],
    "--num_gpus": ["--num_gpus", "2"],
    "--num_accelerators": ["--num_accelerators", "2"],
    "--master_port": ["--master_port", "29512"],
    "--master_addr": ["--master_addr", "127.0.0.1"],
    "--no_local_rank": ["--no_local_rank"],
    "--force_multi": ["--force_multi"],
    "--no_ssh_check": ["--no_ssh_check"],
    "--node_rank": ["--nnodes", "2", "--node_rank", "0", "--master_addr", "127.0.0.1"],
    "--no_ssh": ["--no_ssh", "--num_nodes", "2", "--node_rank", "0", "--master_addr", "127.0.0.1"],
    "--ssh_port": ["--ssh_port", "2222"],
    "--venv_script": ["--venv_script", "{venv}/bin/activate"],
    "--bind_cores_to_rank": ["--bind_cores_to_rank"],
    "--bind_core_list": ["--bind_cores_to_rank", "--bind_core_list", "{core}"],
    "--quiet": ["--quiet"],
    "--nproc_per_node": ["--nproc_per_node", "2"],
    "--nproc": ["--nproc=cpu"],
    "--nnodes": ["--nnodes", "1:1"],
    "--standalone": ["--standalone"],
    "--max_restarts": ["--max_restarts", "3"],
    "--numa_binding": ["--numa_binding", "core-complex"],
    "--save_pid": ["--save_pid"],
    "--enable_each_rank_log": ["--enable_each_rank_log", "{dir}"],
    "--log_dir": ["--log_dir", "{dir}"],
    "--redirects": ["--redirects", "3"],
    "--tee": ["--tee", "0:1,1:2"],
    "--local_ranks_filter": ["--local_ranks_filter", "0"],
}


# Options that are not needed and have no value.
NO_VALUE = {"--deepspeed", "--deepscale", "--no_python"}
# Honoured options of a training script: they belong to `run`.
OF_RUN = {"--deepspeed_config", "--deepscale_config"}
# Short forms that are no options here.
SHORT = {"--module": "-m"}
# Short forms of honoured options, which mean the same.
SHORT_HONOURED = {"--hostfile": "-H", "--include": "-i", "--exclude": "-e", "--quiet": "-q", "--redirects": "-r",
                  "--tee": "-t"}


def rows(page):
    for line in open(page, encoding="utf-8"):
        found = re.match(r"\| `(--\w+)` \| ([\w ]+) \| (.*?) ?\|$", line)
        if found:
            yield found.groups()


def run(words):
    return subprocess.run([os.path.join(BIN, "dslaunch"), "exec", "--device", "cpu", "--dry_run", *words, "--", "true"],
                          capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


def main(page):
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        places = {"hosts": folder + "/hosts", "venv": folder + "/venv", "dir": folder + "/new",
                  "core": str(max(os.sched_getaffinity(0)))}
        with open(places["hosts"], "w") as hosts:
            hosts.write("localhost slots=2\n")
        os.makedirs(places["venv"] + "/bin")
        os.symlink("/bin/sh", places["venv"] + "/bin/python")
        for option, here, text in sorted(set(rows(page))):
            if here == "honoured":
                if option in OF_RUN:
                    result = subprocess.run([os.path.join(BIN, "dslaunch"), option, "nowhere.json", "nowhere.pt"],
                                            capture_output=True, text=True, timeout=60)
                    if result.returncode != 66:
                        wrong.append(f"{option} is honoured, says the page; exit {result.returncode}: {result.stderr}")
                    continue
                if option not in SAMPLES:
                    wrong.append(f"{option}: this test has no sample of it")
                    continue
                words = [word.format(**places) for word in SAMPLES[option]]
                short = [SHORT_HONOURED.get(option, option) if word == option else word for word in words]
                for given in (words, short) if short != words else (words,):
                    result = run(given)
                    if result.returncode != 0:
                        wrong.append(f"{given} is honoured, says the page; exit {result.returncode}: {result.stderr}")
            else:
                for spelling in (option, option.replace("_", "-"), SHORT.get(option, option)):
                    result = run([spelling] if here != "not needed" or option in NO_VALUE else [spelling, "1"])
                    if result.returncode != (0 if here == "not needed" else 64) or text not in result.stderr:
                        wrong.append(f"{spelling} is {here}, says the page ({text}); "
                                     f"exit {result.returncode}: {result.stderr}")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
