"""How far a run is from plain PyTorch's training of the same model, for what a test or a page of results makes of it."""
import checkpoint_state
import harness


def relative(found, expected):
    """The largest difference in units of the largest number: a key's bias, whose gradient is noise about 0, counts as such."""
    return ((found - expected).abs().max() / expected.abs().max().clamp_min(1e-3)).item()


def of_rows(run_dir, expected):
    """{(key, step): relative difference} of the losses and the norms of the gradients of all steps."""
    rows = harness.read_metrics(run_dir)
    if len(rows) != len(expected.rows):
        raise AssertionError(f"{len(rows)} steps instead of {len(expected.rows)}")
    return {(key, want["step"]): abs(row[key] / want[key] - 1)
            for row, want in zip(rows, expected.rows, strict=True) for key in ("loss", "grad_norm")}


def of_movements(run_dir, expected):
    """{parameter: relative difference} of what the parameters have moved by since the start."""
    masters = checkpoint_state.read(checkpoint_state.newest(run_dir))[0]["master"]
    if sorted(masters) != sorted(expected.parameters):
        raise AssertionError(f"other parameters: {sorted(masters)} instead of {sorted(expected.parameters)}")
    return {name: relative(masters[name] - expected.start[name].flatten(), (value - expected.start[name]).flatten())
            for name, value in expected.parameters.items()}
