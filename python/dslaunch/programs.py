"""The programs of this package: where they are, and what of this Python's environment they need to know."""
import os
import sys

PACKAGE = os.path.dirname(os.path.abspath(__file__))
TORCH_VERSION = "2.11.0"


def installed_directory():
    """The directory with bin, lib and share: of a wheel this package, else the one that this package lies in as
    share/dslaunch/python/dslaunch. None: neither, as in a checkout."""
    for directory in (PACKAGE, os.path.join(PACKAGE, "../../../..")):
        if os.access(os.path.join(directory, "bin/dslaunch"), os.X_OK):
            return os.path.normpath(directory)
    return None


def find_program(name):
    """Of this installation; of a checkout, in the directory DSLAUNCH_BIN, then in PATH. DSLAUNCH_BIN may name the directory
    of the commands that call this, so an installation does not heed it."""
    given, installed = os.environ.get("DSLAUNCH_BIN"), installed_directory()
    if installed:
        return os.path.join(installed, "bin", name)
    if given:
        return os.path.join(given, name)
    from shutil import which

    found = which(name)
    if not found:
        raise FileNotFoundError(f"cannot start {name}: it is in no directory of PATH; install the wheel of dslaunch, or let "
                                "DSLAUNCH_BIN name the directory of the programs")
    return found


def torch_lib():
    """The directory of LibTorch, unless dsworker finds it without being told: beside this package."""
    if os.path.exists(os.path.join(PACKAGE, "../torch/lib/libtorch_cpu.so")):
        return None
    from importlib.util import find_spec

    torch = find_spec("torch")
    for directory in torch.submodule_search_locations or () if torch else ():
        try:
            with open(os.path.join(directory, "version.py"), encoding="utf-8") as file:
                is_ours = f"'{TORCH_VERSION}" in file.read()
        except OSError:
            continue
        if is_ours and os.path.exists(os.path.join(directory, "lib/libtorch_cpu.so")):
            return os.path.join(directory, "lib")
    return None


def environment():
    """That of this process, with LibTorch and the Python of this environment named where the user has not."""
    found = {"DSLAUNCH_TORCH_LIB": torch_lib(), "DSLAUNCH_PYTHON": sys.executable}
    return {**{name: value for name, value in found.items() if value}, **os.environ}


def name_to_type(path):
    """What a user types for a command: its plain name where PATH leads to it, else its path."""
    from shutil import which

    plain = os.path.basename(path)
    found = which(plain)
    return plain if found and os.path.realpath(found) == os.path.realpath(path) else path


def start(name):
    """Becomes the program, with this process's arguments."""
    variables = environment()
    torch = variables.get("DSLAUNCH_TORCH_LIB")
    if name == "dsworker" and torch:  # dslaunch does this for the dsworkers that it starts
        variables["LD_LIBRARY_PATH"] = ":".join(filter(None, (torch, variables.get("LD_LIBRARY_PATH"))))
    try:
        os.execve(find_program(name), [name_to_type(sys.argv[0]), *sys.argv[1:]], variables)
    except OSError as error:
        sys.exit(f"{name}: error: {error}")
