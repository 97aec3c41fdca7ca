"""Progress with time left, on a terminal or as lines in a log."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


def duration(seconds: float) -> str:
    """``75`` -> ``1 min 15 s``."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class ProgressTask:
    """Counter of one piece of work; safe to advance from several threads."""

    def __init__(self, parent: Progress, label: str, total: int, unit: str) -> None:
        self._parent, self._label, self._total, self._unit = parent, label, total, unit
        self._done, self._note = 0, ""
        self._start = time.monotonic()
        self._lock = threading.Lock()
        self.shown = False

    @property
    def unfinished(self) -> bool:
        """Whether less was done than was to do."""
        return self._done < self._total

    def advance(self, count: int = 1, note: str = "") -> None:
        """Count ``count`` more units done; ``note`` is shown at the end of the line."""
        with self._lock:
            self._done += count
            self._note = note or self._note
            self.shown = self._parent.show(self.line(), final=self._done == self._total)

    def line(self) -> str:
        """Count, share, time passed and an estimate of the time left."""
        elapsed = time.monotonic() - self._start
        share = f" ({100 * self._done // self._total}%)" if self._total else ""
        text = f"  {self._label}: {self._done:,}/{self._total:,} {self._unit}{share}, {duration(elapsed)}"
        if 0 < self._done < self._total:
            text += f", about {duration(elapsed / self._done * (self._total - self._done))} left"
        return f"{text}  {self._note}".rstrip()


class Progress:
    """Writes progress to a stream: rewritten in place on a terminal, every few seconds in a log."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False, every_s: float = 10.0) -> None:
        self._stream = stream or sys.stderr
        self._quiet, self._every = quiet, every_s
        self._lock = threading.Lock()
        self._last, self._open_line = 0.0, False

    @contextmanager
    def task(self, label: str, *, total: int, unit: str = "items") -> Iterator[ProgressTask]:
        """A counter that prints its last state when it ends."""
        work = ProgressTask(self, label, total, unit)
        self.show(work.line(), final=not self._stream.isatty())
        yield work
        if work.unfinished or not work.shown:
            self.show(work.line(), final=True)

    def say(self, line: str) -> None:
        """Print a line of its own."""
        if self._quiet:
            return
        with self._lock:
            if self._open_line:
                self._stream.write("\n")
                self._open_line = False
            self._stream.write(line + "\n")
            self._stream.flush()

    def show(self, line: str, *, final: bool) -> bool:
        """Print a progress line; a log gets one every few seconds and the last. Tells whether it did."""
        if self._quiet:
            return False
        terminal = self._stream.isatty()
        with self._lock:
            now = time.monotonic()
            if not final and now - self._last < (0.2 if terminal else self._every):
                return False
            self._last = now
            self._stream.write(f"\r\x1b[2K{line[:160]}" if terminal else line + "\n")
            self._open_line = terminal
            if terminal and final:
                self._stream.write("\n")
                self._open_line = False
            self._stream.flush()
            return True
