"""How the tools report what a user has to change."""
import difflib


class Failure(Exception):
    """A message for the user and the exit code that goes with it."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def first_lines(error, count=3):
    lines = [line.strip().removesuffix(".") for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines[:count]) or type(error).__name__


def suggestion(name, known):
    """"; did you mean 'n_embd'?", or nothing where no known name is near."""
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean '{near[0]}'?" if near else ""
