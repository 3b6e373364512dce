"""Keeps PyTorch's compiler out of a process that compiles nothing: torch.optim imports torch._dynamo, which takes a second,
only to call two of its functions. Whoever asks for anything else of it, as transformers does, gets the real one."""
import importlib
import sys
import types

import torch


class Compiler(types.ModuleType):
    def __init__(self):
        super().__init__("torch._dynamo")
        self.graph_break = lambda *_, **__: None
        self.disable = lambda function, *_, **__: function

    def __getattr__(self, name):
        if name.startswith("__") and name != "__path__":  # of those who look at all modules
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
            del torch._dynamo
        return getattr(importlib.import_module(self.__name__), name)


if "torch._dynamo" not in sys.modules:
    torch._dynamo = sys.modules["torch._dynamo"] = Compiler()
