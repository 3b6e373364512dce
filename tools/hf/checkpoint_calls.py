"""Models that call torch.utils.checkpoint themselves, or for which gradient checkpointing is on: the tracer cannot record
such a call. It is left out of the trace, and the run recomputes the same blocks."""
import contextlib
import functools
import sys


class LeftOut:
    """Modules whose forward was to be recomputed."""

    def __init__(self):
        self.modules, self.num_calls = [], 0

    def add(self, function):
        self.num_calls += 1
        module = module_of(function)
        if module is not None and all(module is not other for other in self.modules):
            self.modules.append(module)

    def classes(self):
        return sorted({type(module).__name__ for module in self.modules})


def module_of(function):
    """The module that a checkpointed function runs: itself, of a bound method, or what a closure calls."""
    import torch

    while isinstance(function, functools.partial):
        if function.args and isinstance(function.args[0], torch.nn.Module):
            return function.args[0]
        function = function.func
    if isinstance(function, torch.nn.Module):
        return function
    if isinstance(getattr(function, "__self__", None), torch.nn.Module):
        return function.__self__
    for cell in getattr(function, "__closure__", None) or ():
        found = cell.cell_contents
        found = getattr(found, "__self__", found)
        if isinstance(found, torch.nn.Module):
            return found
    return None


@contextlib.contextmanager
def left_out():
    """Under it torch.utils.checkpoint.checkpoint calls its function, in every module that has imported it."""
    import torch.utils.checkpoint

    original, found = torch.utils.checkpoint.checkpoint, LeftOut()

    # Keywords of checkpoint itself; everything else is the function's.
    own = ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state")

    @functools.wraps(original)
    def call(function, *args, **kwargs):
        found.add(function)
        return function(*args, **{name: value for name, value in kwargs.items() if name not in own})

    holders = [(module, name) for module in list(sys.modules.values()) if hasattr(module, "__dict__")
               for name, value in list(vars(module).items()) if value is original]
    for module, name in holders:
        setattr(module, name, call)
    try:
        yield found
    finally:
        for module, name in holders:
            setattr(module, name, original)
