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

    def units(self, model):
        """For the file's metadata: none where a run finds the same blocks by itself, several of a class in one parent,
        and where it cannot be told which (a lambda over the whole model)."""
        repeated = {id(model)}
        for parent in model.modules():
            children = list(parent.children())
            kinds = [type(child) for child in children]
            repeated.update(id(child) for child in children if kinds.count(type(child)) > 1)
        return [] if all(id(module) in repeated for module in self.modules) else self.classes()


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


# Keywords of checkpoint itself; everything else is the function's.
OWN_KEYWORDS = ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state")


@contextlib.contextmanager
def left_out(model):
    """Under it torch.utils.checkpoint.checkpoint calls its function: in every Python module that has imported it, and
    where modules of the model keep it, as gradient_checkpointing_enable() makes them."""
    import torch.utils.checkpoint

    original, found = torch.utils.checkpoint.checkpoint, LeftOut()

    @functools.wraps(original)
    def call(function, *args, **kwargs):
        found.add(function)
        return function(*args, **{name: value for name, value in kwargs.items() if name not in OWN_KEYWORDS})

    holders = [holder for holder in list(sys.modules.values()) if hasattr(holder, "__dict__")] + list(model.modules())
    # Written out, not a function: a process with transformers has a hundred thousand names.
    changed = [(holder, name, value) for holder in holders for name, value in list(vars(holder).items())
               if value is original or (type(value) is functools.partial and value.func is original)]
    for holder, name, _ in changed:
        setattr(holder, name, call)
    try:
        yield found
    finally:
        for holder, name, value in changed:
            setattr(holder, name, value)
