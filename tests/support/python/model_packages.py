"""Makes transformers, peft and what they need (model_packages.txt) importable here and in the Pythons that we start;
scripts/setup --tests has put them beside torch. WHY_NOT is the reason to skip, or None."""
import hashlib
import importlib.util
import os
import sys

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "dslaunch")


def folder():
    with open(os.path.splitext(os.path.abspath(__file__))[0] + ".txt", "rb") as file:
        listed = b"".join(line for line in file if not line.startswith(b"#"))
    return os.path.join(CACHE, "models-" + hashlib.sha256(listed).hexdigest()[:12])


if os.path.isdir(folder()):
    sys.path.append(folder())
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), folder()]))
    os.environ["HF_HUB_OFFLINE"] = "1"  # configs and weights are made here
WHY_NOT = None if all(map(importlib.util.find_spec, ("transformers", "peft"))) else \
    "transformers and peft are not here (scripts/setup --tests installs them)"
