"""Python packages that a tool needs: those of the Python that runs it, else those that scripts/setup has put into its cache
for the pinned PyTorch, whose Python the tool then starts again with."""
import hashlib
import importlib
import importlib.machinery
import importlib.util
import os
import shlex
import sys

from failure import Failure, first_lines

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "dslaunch")
PINNED = os.path.join(CACHE, "torch-2.11.0")
PYTHON = os.path.join(PINNED, "bin/python")
MODEL_PACKAGES = os.path.join(ROOT, "tests/support/python/model_packages.txt")


def folder_of(packages):
    """Where scripts/setup --tests puts the packages of a list: named after the list's checksum."""
    with open(packages, "rb") as file:
        listed = b"".join(line for line in file if not line.startswith(b"#"))
    return os.path.join(CACHE, "models-" + hashlib.sha256(listed).hexdigest()[:12])


def is_pinned():
    return os.path.realpath(sys.prefix) == os.path.realpath(PINNED)


def start_again():
    """This program from its beginning, with the pinned Python; nothing may have been written or said before."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(PYTHON, [PYTHON, os.path.abspath(sys.argv[0]), *sys.argv[1:]])


def find(name):
    """Makes a package of the cache importable if this Python does not have it."""
    if importlib.util.find_spec(name) or not os.path.exists(PYTHON):
        return
    folders = [os.path.join(PINNED, "lib", entry, "site-packages") for entry in os.listdir(os.path.join(PINNED, "lib"))]
    if os.path.exists(MODEL_PACKAGES):
        folders.append(folder_of(MODEL_PACKAGES))
    if importlib.machinery.PathFinder.find_spec(name, folders) is None:
        return
    if not is_pinned():
        start_again()
    sys.path.append(folders[-1])
    importlib.invalidate_caches()


def install_torch_command():
    """A checkout has its script for that."""
    setup = os.path.join(ROOT, "scripts/setup")
    if os.path.exists(setup):
        return f"{shlex.quote(setup)} installs it there"
    return f"install it: {shlex.quote(sys.executable)} -m pip install torch==2.11.0"


def install_command(package):
    """With the Python that the tool uses."""
    return f"{shlex.quote(PYTHON if os.path.exists(PYTHON) else sys.executable)} -m pip install {package}"


def import_package(name, needed_by, package=None, parts=()):
    """`package`: what pip calls it. `parts`: its modules to import, too. A package that is absent differs from one that is broken: installing it again would not
    help. Standard input is not for questions of a package."""
    package = package or name
    find(name)
    if getattr(sys.stdin, "name", None) != os.devnull:
        sys.stdin = open(os.devnull)
    try:
        for part in parts:
            importlib.import_module(f"{name}.{part}")
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            raise Failure(69, f"{needed_by} needs the Python package '{package}', which is not installed; "
                              f"{install_command(package)}")
        reason = first_lines(error)
    except Exception as error:
        reason = f"{type(error).__name__}: {first_lines(error)}"
    raise Failure(69, f"{needed_by} needs the Python package '{package}', which is installed but cannot be imported: {reason}")
