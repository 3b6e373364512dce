"""Makes transformers, peft and what they need (model_packages.txt) importable here and in the Pythons that we start;
scripts/setup --tests has put them beside torch. WHY_NOT is the reason to skip, or None. With
DSL_TEST_OLDER_TRANSFORMERS=1 transformers is that of older_transformers.txt."""
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "../../../tools"))
import python_packages  # noqa: E402


def folder(packages="model_packages.txt"):
    return python_packages.folder_of(os.path.join(HERE, packages))


lists = ["older_transformers.txt", "model_packages.txt"] if os.environ.get("DSL_TEST_OLDER_TRANSFORMERS") else \
    ["model_packages.txt"]
folders = [folder(packages) for packages in lists]
if all(map(os.path.isdir, folders)):
    sys.path += folders
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), *folders]))
    os.environ["HF_HUB_OFFLINE"] = "1"  # configs and weights are made here
WHY_NOT = None if all(map(importlib.util.find_spec, ("transformers", "peft"))) else \
    "transformers and peft are not here (scripts/setup --tests installs them)"
