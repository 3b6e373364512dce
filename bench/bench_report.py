"""What the scripts of this folder share: finding the programs, paired runs, and the page of docs/results/ that a run of
them becomes. Every page carries its command, date, commit and machine, so that a figure can be asked for again."""
import datetime
import os
import platform
import shlex
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PINNED_PYTHON = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
                             "dslaunch/torch-2.11.0/bin/python")


def fail(code, message):
    print(f"{os.path.basename(sys.argv[0])}: {message}", file=sys.stderr)
    sys.exit(code)


def program(bin_dir, name):
    path = os.path.join(os.path.abspath(bin_dir), name)
    if not os.access(path, os.X_OK):
        fail(66, f"'{path}' is not there; build it (cmake --build build/dev) or name the folder with --bin")
    return path


def torch_python():
    """A Python with PyTorch: this one, else the pinned environment."""
    try:
        import torch  # noqa: F401
        return sys.executable
    except ImportError:
        if os.path.exists(PINNED_PYTHON):
            return PINNED_PYTHON
        fail(69, "no Python with PyTorch here; the peers need one")


def torch_libraries(python):
    """Folders of LibTorch and CUDA libraries of that Python, for programs built on another machine."""
    code = ("import os, torch; site = os.path.dirname(os.path.dirname(torch.__file__)); print(torch.__path__[0] + '/lib');"
            "nvidia = os.path.join(site, 'nvidia');"
            "[print(os.path.join(nvidia, d, 'lib')) for d in (os.listdir(nvidia) if os.path.isdir(nvidia) else [])]")
    out = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout
    return [line for line in out.split() if os.path.isdir(line)]


def environment(**changes):
    env = {key: value for key, value in os.environ.items()
           if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")}
    env.update({"NCCL_NVLS_ENABLE": "0", "PYTHONDONTWRITEBYTECODE": "1", **changes})
    return env


def checked(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **options)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


def figure(value):
    """Three digits, and no powers of ten."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def spread(values):
    """median (least–most)"""
    return f"{figure(statistics.median(values))} ({figure(min(values))}–{figure(max(values))})"


def machine():
    model = "unknown processor"
    try:
        with open("/proc/cpuinfo") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    with open("/proc/meminfo") as file:
        memory = int(file.readline().split()[1]) / 2**20
    text = f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, Linux {platform.release().split('-')[0]}"
    try:
        gpus = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                              capture_output=True, text=True, check=True).stdout.strip().splitlines()
        name, driver = gpus[0].split(", ")
        text += f"; {len(gpus)} × {name}, driver {driver}"
    except (OSError, subprocess.CalledProcessError, IndexError, ValueError):
        pass
    return text


def commit():
    """DSLAUNCH_COMMIT where the programs were built elsewhere, else what the checkout says."""
    if os.environ.get("DSLAUNCH_COMMIT"):
        return os.environ["DSLAUNCH_COMMIT"]
    done = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=10"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def table(columns, rows):
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join("---" for _ in columns) + " |"]
    return "\n".join(lines + ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows])


def page(title, text, columns, rows, notes=()):
    """The whole page as Markdown."""
    command = shlex.join([os.path.relpath(os.path.abspath(sys.argv[0]), ROOT)] + sys.argv[1:])
    facts = table(("", ""), [("date", datetime.date.today().isoformat()), ("commit", commit()), ("machine", machine()),
                             ("command", f"`{command}`")])
    parts = [f"# {title}", text, facts, table(columns, rows)] + [note for note in notes if note]
    return "\n\n".join(parts) + "\n"


def write_page(path, content):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w") as file:
        file.write(content)
    print(content)
    print(f"written to {path}", file=sys.stderr)
