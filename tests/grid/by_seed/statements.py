"""What a random block is made of: a table of statements. Each maps tensors of [..., W] to one of the same shape, so that
any may follow any other; a new operator or layer becomes a row here and nothing else.

In texts {v} and {w} are tensors that are there, {m} and {n} what the row's members are called, {o} the new tensor; W is the
width, replaced in the whole source at the end."""
from typing import NamedTuple, Tuple


class Statement(NamedTuple):
    result: str  # what the new tensor is made of
    members: Tuple[str, ...] = ()  # of the block, set in __init__
    after: Tuple[str, ...] = ()  # lines behind it
    form: str = ""  # "script" or "trace" where only that form takes it (or means what Python means)
    data: str = ""  # "tokens": needs [batch, length, W]; "rows": needs [batch, W]
    draws: bool = False  # random numbers


LINEAR, MATRIX = ("nn.Linear(W, W)",), ("nn.Parameter(torch.randn(W, W) * 0.3)",)
VECTOR = ("nn.Parameter(torch.randn(W) * 0.3)",)


def changed(line):
    """Work in place on a fresh tensor."""
    return Statement("{v} * 1.0", after=(line,))


LAYERS = [
    *[Statement(text, LINEAR) for text in (
        "torch.tanh({m}({v}))", "F.gelu({m}({v}))", "torch.sigmoid({m}({v}))", "{m}({v}).sin()",
        "{v} + 0.3 * {m}({v}).detach()", "{v} + 0.3 * {m}({v}.detach())", "torch.stack([{v}, {m}({w})]).mean(0)",
        "{v} * (1.0 + {m}.weight.square().mean())")],
    Statement("F.silu({m}({v}))", ("nn.Linear(W, W, bias=False)",)),
    Statement("torch.tanh({m}({v}))", ("nn.Linear(W, W).requires_grad_(False)",)),
    Statement("{v} + {n}(torch.tanh({m}({v})))", ("nn.Linear(W, 11)", "nn.Linear(11, W)")),
    Statement("{v} + {n}(F.softplus({m}({v})))", ("nn.Linear(W, 1)", "nn.Linear(1, W, bias=False)")),
    *[Statement("{m}({v})", (layer,)) for layer in
      ("nn.LayerNorm(W)", "nn.LayerNorm(W, elementwise_affine=False)", "nn.RMSNorm(W)", "nn.PReLU()",
       "nn.Sequential(nn.LayerNorm(W), nn.Linear(W, 5), nn.SiLU(), nn.Linear(5, W, bias=False))")],
    Statement("{v} * 1.0", LINEAR, ("for _ in range(3):", "    {o} = torch.tanh({m}({o}))")),
    Statement("{v} * 1.0", LINEAR, ("for _ in range(0):", "    {o} = {m}({o})")),
    Statement("{v} * 1.0", ("nn.ModuleList([nn.Linear(W, W) for _ in range(2)])",), ("for q in {m}:", "    {o} = q({o})")),
    Statement("torch.tanh({m}({v}.reshape(-1, 1, W)).sum(1)).view({v}.shape)", ("nn.Conv1d(1, 2, 3, padding=1)",)),
    Statement("{v} * 1.0", LINEAR, ("if {o}.dim() == 2 or self.training:", "    {o} = {o} + {m}({o})"), form="script"),
    Statement("{v}", LINEAR, ("with torch.no_grad():", "    {o} = torch.sigmoid({m}({v}))", "{o} = {o} * {v}"),
              form="script"),
    Statement("torch.tanh({m}({v}.to({m}.weight.dtype)).to({v}.dtype))", ("nn.Linear(W, W).bfloat16()",), form="script"),
    Statement("{v}", LINEAR, ('with torch.autocast("cpu", dtype=torch.bfloat16):', "    {o} = {m}({v}).tanh()",
                              "{o} = {o}.to({v}.dtype)"), form="script"),
    Statement("torch.tanh({m}({v}))", ("torch.nn.utils.parametrizations.weight_norm(nn.Linear(W, W))",), form="trace"),
    Statement("{m}({v} * 1.0)", ("nn.Dropout(0.2)",), draws=True),
    Statement("{m}({v} * 1.0)", ("nn.Dropout(0.1, inplace=True)",), draws=True),
]

PARAMETERS = [
    *[Statement(text, MATRIX) for text in ("{v} @ {m}", "F.linear({v}, {m})", "torch.tanh({v} @ {m}.t())")],
    *[Statement(text, VECTOR) for text in ("{v} + {m}", "{v} * torch.softmax({m}, 0) * W", "torch.addcmul({v}, {v}, {m})",
                                           "torch.where({v} * 0 + {m} > 0, {v}, {v} * {m})")],
    Statement("{v} * {m}", ("nn.Parameter(torch.tensor(0.7))",)),
    Statement("{v} * {m} + {n}", ("nn.Parameter(torch.ones(W))", "nn.Parameter(torch.zeros(1, W))")),
    Statement("torch.tanh({v} @ {m}[1:W + 1])", ("nn.Parameter(torch.randn(2 * W + 1, W) * 0.3)",)),
    Statement("{v} + {m}[1]", ("nn.Parameter(torch.randn(W, 3).t() * 0.3)",)),
    Statement("torch.tanh({v} @ {m}[0]) @ {m}[1]", ("nn.Parameter(torch.randn(2, W, W) * 0.3)",)),
    Statement("{v} + {m}.sum(0)", ("nn.Parameter(torch.empty(0, W))",)),
    Statement("torch.einsum('...i,ijk->...j', {v}, {m}).tanh()", ("nn.Parameter(torch.randn(W, W, 2) * 0.3)",)),
    Statement("{v} * 1.0", ("nn.ParameterList([nn.Parameter(torch.randn(W, W) * 0.3) for _ in range(2)])",),
              ("for q in {m}:", "    {o} = torch.tanh({o} @ q)")),
]

BUFFERS = [
    Statement("{v} - {m}.clone()", ("torch.zeros(W)",),
              ("{m}.mul_(0.9).add_({v}.detach().flatten(0, -2).mean(0), alpha=0.1)",)),
    Statement("{v} / (1.0 + 0.1 * ({m} % 3))", ("torch.zeros((), dtype=torch.int64)",), ("{m} += 1",)),
    Statement("{v}.index_select(-1, {m})", ("torch.arange(W - 1, -1, -1)",)),
    Statement("{v} + 0.1 * {m}.to({v}.dtype)", ("torch.randn(W, dtype=torch.float64)",), form="script"),
    Statement("{v} - {m}", ("torch.zeros(W)",),
              ("if self.training:", "    {m} = 0.9 * {m} + 0.1 * {v}.detach().flatten(0, -2).mean(0)"), form="script"),
]

PLAIN = [
    *[changed(line) for line in ("{o}.add_({w})", "{o}.tanh_()", "{o}[..., 0] = 0.5", "{o}[..., :2].mul_(0.3)", "{o} += {w}",
                                 "{o}[..., 1:] += {w}[..., :-1] * 0.3", "F.relu({o}, inplace=True)", "{o}.zero_().add_({w})",
                                 "{o}[..., 0].copy_({w}[..., 1])", "{o}.masked_fill_({w} > 10.0, 0.1)")],
    *[Statement(text) for text in (
        "{v} + {w}", "{v} * torch.tanh({w})", "torch.maximum({v}, {w} * 0.5)", "{v} / (1.0 + {w} * {w})",
        "torch.cat([{v}[..., 1:], {v}[..., :1]], -1)", "{v}.flip(-1)", "{v}.unsqueeze(0).squeeze(0)", "{v}.roll(1, -1)",
        "{v}.transpose(0, -1).contiguous().transpose(0, -1)", "{v}.reshape(-1, W).view({v}.shape)", "{v}.softmax(-1) * W",
        "{v}[..., :1].expand_as({v}) * 0.5", "{v} - {v}.mean(0, keepdim=True)", "{v} * torch.sigmoid({v}.mean())")],
    Statement("({v}.double() * 1.5).to({v}.dtype)", form="script"),
]

OF_TOKENS = [Statement(result, (layer,), data="tokens") for result, layer in (
    ("{m}({v})[0]", "nn.LSTM(W, W, batch_first=True)"), ("{m}({v})[0]", "nn.GRU(W, W, 2, batch_first=True, bias=False)"),
    ("{v} + {m}({v}, {v}, {v}, need_weights=False)[0]", "nn.MultiheadAttention(W, 1, batch_first=True)"),
    ("{m}({v})", "nn.TransformerEncoderLayer(W, 1, 2 * W, dropout=0.0, batch_first=True)"),
    ("F.scaled_dot_product_attention({m}({v}), {v}, {w}, is_causal=True)", "nn.Linear(W, W)"),
    ("{m}({v}.transpose(1, 2)).transpose(1, 2)", "nn.BatchNorm1d(W)"))]
OF_TOKENS += [Statement("{v} + {v}.mean(1, keepdim=True)", data="tokens"), Statement("{v}.cumsum(1) * 0.3", data="tokens")]

OF_ROWS = [Statement(result, (layer,), data="rows") for result, layer in (
    ("{m}({v})", "nn.BatchNorm1d(W)"), ("{m}({v})", "nn.GroupNorm(1, W)"), ("{m}({v}, {w})", "nn.GRUCell(W, W)"),
    ("torch.tanh({m}({v}, {w}))", "nn.Bilinear(W, W, W)"),
    ("{v} + {m}(torch.arange(7).unsqueeze(0).expand({v}.shape[0], 7))", 'nn.EmbeddingBag(7, W, mode="mean", sparse=True)'))]

KINDS = (LAYERS, LAYERS, PARAMETERS, BUFFERS, PLAIN, PLAIN, OF_TOKENS + OF_ROWS)


def fitting(kind, form, data):
    return [row for row in kind if row.form in ("", form) and row.data in ("", data)]
