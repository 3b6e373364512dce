"""What the tool shows while it works: one live line on a terminal, otherwise a plain line every half minute."""
import os
import shutil
import sys
import time

LIVE_EVERY_S, PLAIN_EVERY_S = 0.2, 30.0


def short(count):
    """3 digits of a large number: 12.3M."""
    for unit in ("", "k", "M", "G", "T"):
        if count < 1000:
            break
        count /= 1000
    return f"{count:.0f}{unit}" if not unit or count >= 100 else f"{count:.1f}{unit}"


class Progress:
    """`total_bytes`: of all inputs. Readers add the bytes that they have read, shapes the rows and tokens."""

    def __init__(self, name, total_bytes, unit="tokens", stream=None, clock=time.monotonic):
        self.name, self.total, self.unit = name, total_bytes, unit
        self.stream, self.clock = stream or sys.stderr, clock
        self.is_live = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self.bytes = self.rows = self.tokens = self.shown = 0
        self.began = self.last = clock()

    def add_bytes(self, count):
        self.bytes += count

    def add(self, rows, tokens):
        self.rows += rows
        self.tokens += tokens
        now = self.clock()
        if now - self.last >= (LIVE_EVERY_S if self.is_live else PLAIN_EVERY_S):
            self.last = now
            self.show(now)

    def line(self, now):
        seconds = max(now - self.began, 1e-9)
        parts = [f"{self.rows:,} rows"] if self.rows else []
        parts += [f"{short(self.tokens)} {self.unit}", f"{self.bytes / 1e6 / seconds:.1f} MB/s"]
        if self.total > 0 and 0 < self.bytes <= self.total:
            left = int(seconds * (self.total - self.bytes) / self.bytes)
            parts += [f"{100 * self.bytes // self.total} %", f"{left // 60}:{left % 60:02} left"]
        return f"{self.name}: {', '.join(parts)}"

    def show(self, now):
        text = self.line(now)
        if self.is_live:
            text = text[: shutil.get_terminal_size().columns - 1]
            print(f"\r{text:<{self.shown}}", end="", file=self.stream, flush=True)
            self.shown = len(text)
        else:
            print(text, file=self.stream, flush=True)

    def clear(self):
        """Before another line is printed, and at the end."""
        if self.is_live and self.shown:
            print(f"\r{'':<{self.shown}}\r", end="", file=self.stream, flush=True)
            self.shown = 0
