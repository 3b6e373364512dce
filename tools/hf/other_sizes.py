"""Whether a trace says the same as the model at other batch and sequence sizes than those that were traced."""
import contextlib

from failure import Failure, first_lines
from hf.inputs import OTHERS, TRACED

BOUNDS = {"torch.float32": 1e-4, "torch.float64": 1e-4, "torch.float16": 2e-2, "torch.bfloat16": 5e-2}


def values(torch, outputs):
    outputs = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    return [output.detach().double() for output in outputs]


@contextlib.contextmanager
def single_numbers_apart(torch):
    """A number that Python code draws to decide upon (LayerDrop: torch.rand([]) for each layer) is not in a trace. It comes
    from another generator."""
    apart, rand = torch.Generator().manual_seed(0), torch.rand

    def drawn(*size, **keywords):
        return rand(*size, **keywords, **({"generator": apart} if size in (([],), ((),)) and "generator" not in keywords else {}))

    torch.rand = drawn
    try:
        yield
    finally:
        torch.rand = rand


def run(torch, module, inputs):
    """With the same random numbers for both: their dropout draws in one order."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]), single_numbers_apart(torch):
        torch.manual_seed(0)
        return values(torch, module(*inputs))


def check(torch, model, traced, examples, name, dtype):
    for size in OTHERS:
        inputs = examples.make(size)
        where = (f"the trace of {name} depends on the sizes of its example: traced with batch {TRACED.batch} and length "
                 f"{TRACED.length}, with batch {size.batch} and length {size.length} it ")
        try:
            expected = run(torch, model, inputs)
        except Exception as error:
            raise Failure(65, f"{name} cannot run on batch {size.batch} and length {size.length}, beside which its trace is "
                              f"checked: {first_lines(error)}")
        try:
            found = run(torch, traced, inputs)
        except Exception as error:
            lines = [line for line in str(error).splitlines() if "Error" in line] or [first_lines(error)]
            raise Failure(65, f"{where}fails: {lines[-1].strip()}\n{ADVICE}")
        for got, want in zip(found, expected, strict=True):
            if got.shape != want.shape:
                raise Failure(65, f"{where}gives shape {list(got.shape)} instead of {list(want.shape)}\n{ADVICE}")
            finite = want.isfinite()
            if not finite.all():
                require_finite_weights(model, name)
            scale = want[finite].abs().max().clamp_min(1.0) if finite.any() else 1.0
            near = torch.isclose(got, want, rtol=0, atol=float(BOUNDS[str(dtype)] * scale), equal_nan=True)
            if not near.all():
                at = (got - want).abs().nan_to_num(float("inf")).masked_fill(near, -1).argmax()
                raise Failure(65, f"{where}gives {got.flatten()[at]:.6g} instead of {want.flatten()[at]:.6g}\n{ADVICE}")


def require_finite_weights(model, name):
    for parameter, value in model.named_parameters():
        bad = value.numel() - int(value.isfinite().sum())
        if bad:
            raise Failure(65, f"{name} gives no numbers: {bad} of {value.numel()} values of its weight '{parameter}' are NaN or "
                              "infinite")


ADVICE = ("its Python code reads a size as a number (len(x), int(x.shape[0]), an if on a shape); use x.shape[0] without "
          "int() there, or a release of transformers in which it does")
