"""PyTorch as tests use it, in two thirds of its time to load; to be imported before torch.

torch/__init__ ends with what computes sizes for its compiler (torch._meta_registrations), and torch.optim imports the
compiler (torch._dynamo), only to call functions that then do nothing. Whoever asks for anything else of them, as transformers does,
gets the real ones. Loading makes half a million objects that stay: the collector of garbage need not look at them."""
import gc
import importlib
import sys
import types


class LoadedWhenAsked(types.ModuleType):
    """Stands for a module of PyTorch's until somebody wants an attribute that it does not have. `after`: another one that
    the real module wants to be there."""

    def __init__(self, name, after=None, **attributes):
        super().__init__(name)
        self.__dict__.update(attributes)
        self.__after = after
        sys.modules[name] = self

    def __getattr__(self, name):
        if name.startswith("__") and name != "__path__":  # of those who look at all modules
            raise AttributeError(name)
        return getattr(self.__real(), name)

    def __real(self):
        if self.__after:
            self.__after.__real()
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
            torch.__dict__.pop(self.__name__.rpartition(".")[2], None)
        return importlib.import_module(self.__name__)


sizes = None
if "torch" not in sys.modules:
    gc.disable()
    sizes = LoadedWhenAsked("torch._meta_registrations")
import torch  # noqa: E402
if sizes:
    torch._meta_registrations = sizes
    gc.freeze()
    gc.enable()
if "torch._dynamo" not in sys.modules:
    torch._dynamo = LoadedWhenAsked("torch._dynamo", after=sizes, graph_break=lambda *_, **__: None,
                                    disable=lambda function, *_, **__: function,
                                    trace_rules=types.SimpleNamespace(clear_lru_cache=lambda: None))  # torch.distributed
