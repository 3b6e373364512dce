"""dslaunch from Python: train a model file with `run`, make one from a module with `export` (docs/install.md).

    import dslaunch
    dslaunch.export(module, "model.pt")
    job = dslaunch.run("model.pt", {"optimizer": {"type": "AdamW"}}, data="train.safetensors", num_gpus=2, steps=100)
    job.metrics()
"""
from importlib import import_module

__all__ = ["Job", "JobFailed", "export", "run"]
_HOMES = {"Job": ".jobs", "JobFailed": ".jobs", "run": ".jobs", "export": ".models"}


def __getattr__(name):
    # Loaded at the first use: the commands of a wheel pass through this package, and start without what they do not need.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
