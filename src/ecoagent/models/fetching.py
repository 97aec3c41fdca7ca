"""What the ways of getting weights share: the error they fail with and the count of bytes."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

from ecoagent.runs import ProgressTask


class SourceFailed(Exception):  # noqa: N818 - names what happened; caught by the store, never shown as is
    """One way of getting the bytes did not work; the message is the reason shown to the user."""


class ByteCount:
    """Advances a progress task that counts in MB by bytes."""

    def __init__(self, task: ProgressTask | None) -> None:
        self._task, self._bytes, self._shown = task, 0, 0

    def add(self, count: int, note: str = "") -> None:
        """Count bytes; whole megabytes are passed on."""
        self._bytes += count
        whole = round(self._bytes / 1e6)
        if self._task is not None and whole > self._shown:
            self._task.advance(whole - self._shown, note)
            self._shown = whole


class FolderWatch:
    """Counts the bytes that another library writes under ``folder``, once a second."""

    def __init__(self, folder: Path, count: ByteCount, note: str) -> None:
        self._folder, self._count, self._note = folder, count, note
        self._stop, self._seen = threading.Event(), 0
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> FolderWatch:
        self._seen = self._size()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._tick()

    def _watch(self) -> None:
        while not self._stop.wait(1.0):
            self._tick()

    def _tick(self) -> None:
        size = self._size()
        self._count.add(max(0, size - self._seen), self._note)
        self._seen = max(size, self._seen)

    def _size(self) -> int:
        total = 0
        for path in self._folder.rglob("*"):
            try:
                if path.is_file():
                    total += path.stat().st_size
            except FileNotFoundError:
                # Renamed while we looked; the next look counts it.
                continue
        return total
