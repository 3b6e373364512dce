"""torchao's float8 recipes on linear layers in plain PyTorch, written here a second time on purpose: factors rounded to
float8, GEMMs of them in double. convert(model, recipe, names) replaces layers of a model in bf16."""
import torch
from torch import nn

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def rounded(matrix, dtype, dim, power_of_two):
    """What the matrix stands for in float8, in double. `dim`: the one that is summed over, with a scale for each of the
    others' entries; None: one scale."""
    values = matrix.detach().float()
    largest = values.abs().max() if dim is None else values.abs().amax(dim, keepdim=True)
    scale = (torch.finfo(dtype).max / largest.double().clamp(min=1e-12)).float()
    if power_of_two:
        scale = torch.exp2(torch.floor(torch.log2(scale)))
    limit = torch.finfo(dtype).max
    return (values * scale).clamp(-limit, limit).to(dtype).double() * scale.reciprocal().double()


class Recipe:
    def __init__(self, name):
        self.by_row, self.plain_weight_gradient = name != "tensorwise", name == "rowwise_with_gw_hp"
        self.of_gradient = E4M3 if self.by_row else E5M2

    def round(self, matrix, dtype, dim):
        return rounded(matrix, dtype, dim if self.by_row else None, self.by_row)


class Fp8Gemm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, weight, recipe):
        ctx.save_for_backward(rows, weight)
        ctx.recipe = recipe
        return (recipe.round(rows, E4M3, 1) @ recipe.round(weight, E4M3, 1).t()).to(rows.dtype)

    @staticmethod
    def backward(ctx, gradient):
        (rows, weight), recipe = ctx.saved_tensors, ctx.recipe
        for_input = recipe.round(weight, E4M3, 0)
        if recipe.plain_weight_gradient:
            for_input = rounded(weight, E4M3, None, True)
            of_weight = gradient.double().t() @ rows.double()
        else:
            of_weight = recipe.round(gradient, recipe.of_gradient, 0).t() @ recipe.round(rows, E4M3, 0)
        of_input = recipe.round(gradient, recipe.of_gradient, 1) @ for_input
        return of_input.to(rows.dtype), of_weight.to(rows.dtype), None


class Fp8Linear(nn.Module):
    def __init__(self, layer, recipe):
        super().__init__()
        self.weight, self.bias, self.recipe = layer.weight, layer.bias, recipe

    def forward(self, x):
        out = Fp8Gemm.apply(x.reshape(-1, x.shape[-1]), self.weight, self.recipe)
        return out.reshape(*x.shape[:-1], -1) + self.bias


def convert(model, recipe, is_fp8):
    """`is_fp8`: of a layer's name."""
    for name, child in list(model.named_modules()):
        for part, layer in list(child.named_children()):
            path = f"{name}.{part}" if name else part
            if isinstance(layer, nn.Linear) and is_fp8(path):
                setattr(child, part, Fp8Linear(layer, Recipe(recipe)))
    return model
