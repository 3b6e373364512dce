"""Classes of torch.autograd.Function in Python code, which no TorchScript file can hold: a trace holds what their forward
computes instead, where autograd finds the gradients of it that their backward gives."""
import contextlib

from failure import Failure


class Context:
    """What forward gets for autograd's context: nothing that it saves is asked for."""

    def __init__(self, args):
        self.needs_input_grad = tuple(getattr(arg, "requires_grad", False) for arg in args)

    def __getattr__(self, name):
        return lambda *args: None  # save_for_backward, mark_non_differentiable, ...


@contextlib.contextmanager
def computed(torch):
    """Under it forward is plain code, which autograd and the tracer follow."""
    base = torch.autograd.Function
    own, no_setup = base.__dict__["apply"], base.setup_context

    def apply(cls, *args, **kwargs):
        context = () if cls.setup_context is not no_setup else (Context(args),)
        return cls.forward(*context, *args, **kwargs)

    base.apply = classmethod(apply)
    try:
        yield
    finally:
        base.apply = own


def gradients(torch, model, inputs):
    """[(name, gradient)] of all outputs' sum, with the same random numbers at every call."""
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        outputs = model(*inputs)
        outputs = outputs if isinstance(outputs, (tuple, list)) else [outputs]
        trained = [(name, value) for name, value in model.named_parameters() if value.requires_grad]
        total = sum(output.double().sum() for output in outputs if output.requires_grad)
        found = torch.autograd.grad(total, [value for _, value in trained], allow_unused=True)
    return [(name, gradient) for (name, _), gradient in zip(trained, found, strict=True) if gradient is not None]


def require_own_gradients(torch, model, inputs, name, function):
    """Refuses a backward that is not the one of its forward (a straight-through estimate, a quantized gradient)."""
    from hf.other_sizes import BOUNDS

    expected = gradients(torch, model, inputs)
    with computed(torch):
        found = dict(gradients(torch, model, inputs))
    largest = max((gradient.abs().max().item() for _, gradient in expected), default=0.0)
    for parameter, want in expected:
        got = found.get(parameter)
        off = float("inf") if got is None else (got - want).abs().max().item()
        if not off <= BOUNDS[str(want.dtype)] * largest:
            raise Failure(65, f"{name} cannot be traced: its forward calls '{function}', a torch.autograd.Function of Python code "
                              f"whose backward gives other gradients than its forward has (of '{parameter}', for one), and no "
                              "TorchScript file can hold that")
