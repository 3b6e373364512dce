"""One random block: the source of a class, and of the calls that pass `h` (and what else it takes) through it."""
import statements

# What a block takes, what of it are x and z, what it returns. {r} is its result.
SIGNATURES = {
    "one": ("x", (), "return {r}"),
    "two": ("x, z", (), "return {r}, z * 0.5 + x"),
    "tuple": ("s: Tuple[Tensor, Tensor]", ("x, z = s",), "return {r}, z"),
    "named": ("s: Pair", ("x, z = s.first, s.second",), "return Pair({r}, z + 0.1 * x)"),
    "dict": ("s: Dict[str, Tensor]", ('x = s["x"]',), 'return {{"x": {r}, "count": s["count"] + 1}}'),
    "list": ("s: List[Tensor]", ("x = s[0]",), "return [{r}] + s[:2]"),
    "optional": ("x, extra: Optional[Tensor] = None", ("if extra is not None:", "    x = x + 0.2 * extra"), "return {r}"),
    "defaults": ("x, scale: float = 1.0, flip: bool = False", ("x = x * scale", "if flip:", "    x = x.flip(-1)"),
                 "return {r}"),
}
CALLS = {
    "one": ("h = {b}(h)",), "two": ("h, state = {b}(h, state)",), "tuple": ("h, state = {b}((h, state))",),
    "named": ("both = {b}(Pair(h, state))\nh, state = both.first, both.second",),
    "dict": ('h = {b}({{"x": h, "count": count}})["x"]',), "list": ("h = {b}([h, state])[0]",),
    "optional": ("h = {b}(h)", "h = {b}(h, state)", "h = {b}(h, extra=None)"),
    "defaults": ("h = {b}(h)", "h = {b}(h, 0.5)", "h = {b}(h, flip=True)"),
}
RESULTS = ("x + 0.5 * {v}", "torch.tanh({v})", "x + torch.tanh({v})", "{v} * 0.5 + x * 0.3", "x + 0.5 * {v}", "x",
           "({v} + x).view(x.shape)")


class Block:
    def __init__(self, rng, name, form, data):
        self.rng, self.name = rng, name
        self.signature = rng.choice(["one"] * 5 + list(SIGNATURES))
        self.tensors = ["x", "z"] if self.signature in ("two", "tuple", "named") else ["x"]
        self.members, self.buffers, self.lines, self.drawn, self.layers = [], [], [], [], []
        for _ in range(rng.randint(1, 6)):
            self.add(rng.choice(statements.fitting(rng.choice(statements.KINDS), form, data)))
        if not self.members:
            self.add(statements.LAYERS[0])

    def add(self, row):
        number = len(self.tensors)
        names = {"m": f"self.m{number}", "n": f"self.n{number}", "o": f"v{number}",
                 "v": self.rng.choice(self.tensors[-3:]), "w": self.rng.choice(self.tensors[-3:])}
        for name, made in zip((names["m"], names["n"]), row.members):
            is_buffer = row in statements.BUFFERS
            self.members.append(f'self.register_buffer("{name[5:]}", {made})' if is_buffer else f"{name} = {made}")
            if is_buffer:
                self.buffers.append(f"{name[5:]}: Tensor")
            if made == "nn.Linear(W, W)":
                self.layers.append(name[5:])
        self.lines += [f"{names['o']} = {row.result}".format(**names)] + [line.format(**names) for line in row.after]
        self.tensors.append(names["o"])
        if row.draws:
            self.drawn.append(names["o"])

    @property
    def assigns(self):
        return any(line.strip().startswith("self.") and " = " in line for line in self.lines)

    def source(self):
        head, begin, end = SIGNATURES[self.signature]
        result = self.rng.choice(RESULTS).format(v=self.tensors[-1])
        # What is drawn is used: a trace leaves out what is not, and with it the random numbers.
        result += "".join(f" + 0.1 * {name}" for name in self.drawn)
        return [f"class {self.name}(nn.Module):", *indented(self.buffers), "    def __init__(self):",
                "        super().__init__()", *indented(self.members, 2), "", f"    def forward(self, {head}):",
                *indented([*begin, *self.lines, end.format(r=result)], 2), "", ""]

    def call(self, what):
        return self.rng.choice(CALLS[self.signature]).format(b=what).split("\n")


def indented(lines, depth=1):
    return ["    " * depth + line for line in lines]
