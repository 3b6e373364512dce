"""Plain PyTorch as tensor ranks add: the sum of each matrix product in parts, each rounded to the type of the result, which
are then added in fp32 and rounded once more. Which products tensor ranks split, and where, is for them to choose; this
shows what a model makes of such roundings."""
import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
PRODUCTS = {aten.mm.default: torch.mm, aten.bmm.default: torch.bmm}
ADDED = {aten.addmm.default: torch.mm, aten.baddbmm.default: torch.bmm}


class PartedSums(TorchDispatchMode):
    def __init__(self, parts):
        super().__init__()
        self.parts = parts

    def product(self, multiply, a, b):
        pieces = zip(a.tensor_split(self.parts, -1), b.tensor_split(self.parts, -2))
        return sum(multiply(x, y).float() for x, y in pieces if x.shape[-1]).to(a.dtype)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in PRODUCTS and args[0].shape[-1] >= self.parts:
            return self.product(PRODUCTS[function], *args)
        if function in ADDED and args[1].shape[-1] >= self.parts:
            added = self.product(ADDED[function], *args[1:3])
            return kwargs.get("beta", 1) * args[0] + kwargs.get("alpha", 1) * added
        return function(*args, **kwargs)
