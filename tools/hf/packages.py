"""Imports transformers and peft, and says why where that fails."""
import importlib
import os
import socket
import urllib.parse

from failure import Failure, first_lines


def import_package(name, option):
    """A package that is absent differs from one that is broken: installing it again would not help."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            raise Failure(69, f"{option} needs the Python package '{name}' beside torch, which is not installed here; "
                              f"pip install {name}")
        reason = first_lines(error)
    except Exception as error:
        reason = f"{type(error).__name__}: {first_lines(error)}"
    raise Failure(69, f"{option} needs the Python package '{name}', which is installed but cannot be imported: {reason}")


def import_transformers():
    transformers = import_package("transformers", "--hf")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def expect_offline():
    """Before transformers is imported: without a network its cache is asked alone, instead of after five retries."""
    if any(name in os.environ for name in ("HF_HUB_OFFLINE", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")):
        return
    host = urllib.parse.urlparse(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        os.environ["HF_HUB_OFFLINE"] = "1"
