"""Model files from modules, through the functions of tools/export."""
import contextlib
import importlib.machinery
import importlib.util
import os
import sys

from . import programs


def tools_directory():
    installed = programs.installed_directory()
    if installed:
        return os.path.join(installed, "share/dslaunch/tools")
    return os.path.normpath(os.path.join(programs.PACKAGE, "../../tools"))


@contextlib.contextmanager
def export_tool():
    """tools/export as a module. The tools import each other by plain names, which the caller's own modules may have: those
    are set aside meanwhile."""
    directory = tools_directory()
    names = {entry.removesuffix(".py") for entry in os.listdir(directory)}
    own_path, bytecode = list(sys.path), sys.dont_write_bytecode
    set_aside = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] in names}
    try:
        loader = importlib.machinery.SourceFileLoader("dslaunch_export_tool", os.path.join(directory, "export"))
        tool = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
        loader.exec_module(tool)
        yield tool
    finally:
        sys.path[:], sys.dont_write_bytecode = own_path, bytecode
        for name in [name for name in sys.modules if name.split(".")[0] in names]:
            del sys.modules[name]
        sys.modules.update(set_aside)


def export(module, path, example=None):
    """Writes the module to a file that `run` trains.

    example: a tensor or a tuple of tensors with which forward is recorded (torch.jit.trace); without it the module is
        compiled (torch.jit.script), which keeps conditions and loops. forward returns the loss, or the config names one.

    Raises ValueError for a module that cannot be compiled or recorded."""
    import torch

    with export_tool() as tool:
        try:
            tool.export_module(torch, module, os.fspath(path), example)
        except tool.Failure as failure:
            raise ValueError(str(failure)) from None
