"""How the tools report what a user has to change, and end."""
import difflib
import os
import sys
import traceback

MOST = 600  # characters of a message

class Failure(Exception):
    """A message for the user and the exit code that goes with it."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def first_lines(error, count=3):
    lines = [line.strip().removesuffix(".") for line in str(error).splitlines() if line.strip()]
    return shortened("; ".join(lines[:count])) or type(error).__name__


def shortened(text, most=300):
    """A message quotes no more than this of what it got."""
    return text if len(text) <= most else text[:most] + " ..."


def printable(text):
    """Names from files may hold what a terminal would obey."""
    return "".join(each if each.isprintable() or each == "\n" else repr(each)[1:-1] for each in text)


def suggestion(name, known):
    """"; did you mean 'n_embd'?", or nothing where no known name is near."""
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean '{near[0]}'?" if near else ""


def where(error):
    """The line of the tools in which an unexpected error came up, and the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    tools = os.path.dirname(os.path.abspath(__file__))
    own = [frame for frame in frames if frame.filename.startswith(tools)]
    lines = dict.fromkeys(f"{frame.filename}:{frame.lineno}" for frame in own[-1:] + frames[-1:])
    return ", ".join(lines)


def as_typed(text):
    """`dslaunch export` is tools/export by another name, and messages call it what the user typed."""
    typed = os.environ.get("DSLAUNCH_COMMAND", "")
    return text.replace("tools/" + typed.removeprefix("dslaunch "), typed) if typed.startswith("dslaunch ") else text


def exit_code_of(name, main, arguments):
    """Runs main(arguments). Every way to end is a sentence and a code of docs/exit_codes.md."""
    try:
        return main(arguments) or 0
    except Failure as failure:
        code, message = failure.code, str(failure)
    except KeyboardInterrupt:
        return 130
    except MemoryError:
        code, message = 69, "out of memory"
    except Exception as error:
        code, message = 70, (f"this is a bug of the tool, please report it: {type(error).__name__}: {first_lines(error)} "
                             f"({where(error)})")
    print(f"{as_typed(name)}: {printable(shortened(as_typed(message), MOST))}", file=sys.stderr)
    return code
