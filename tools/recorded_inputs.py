"""What a model file records about the inputs of forward: name, shape of one sample, type and range of values. dslaunch bench
step makes up samples from it."""
import inspect

LENGTH = 1024  # of sequences, where the model's positions allow it


def of_arrays(torch, names, arrays):
    """`arrays`: a batch of examples. Negative integers are labels that do not count."""
    return [one(torch, name, array) for name, array in zip(names, arrays, strict=True)]


def one(torch, name, array):
    found = {"name": name, "shape": list(array.shape[1:])}
    if array.dtype.is_floating_point:
        return {**found, "dtype": "float32", "low": 0, "high": 1}
    if array.dtype == torch.bool:
        return {**found, "dtype": "bool", "low": 0, "high": 2}
    counted = array[array >= 0]
    low, high = int(counted.min()), int(counted.max()) + 1
    if name.endswith("mask"):  # all of a sample counts
        low = high - 1
    return {**found, "dtype": str(array.dtype).removeprefix("torch."), "low": low, "high": high}


def of_module(torch, model):
    """Of a recipe, or of a class of the user's: by sample_inputs(), which may be larger than what is traced, or
    example_inputs(). Empty: it has neither."""
    make = getattr(model, "sample_inputs", None) or getattr(model, "example_inputs", None)
    if make is None:
        return []
    with torch.random.fork_rng(devices=[]):
        return of_forward(torch, model, tuple(make()))


def of_forward(torch, model, arrays):
    """`arrays`: arguments of forward. Empty: one of them is not a batch of arrays."""
    names = list(inspect.signature(model.forward).parameters)[:len(arrays)]
    if len(names) < len(arrays) or not all(torch.is_tensor(array) and array.dim() > 0 for array in arrays):
        return []
    return of_arrays(torch, names, arrays)
