"""Imports transformers, and keeps its talk and its waits from the user."""
import os
import socket
import urllib.parse

from python_packages import import_package


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
