"""One process a run: a lock that the kernel releases however its holder ends."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ecoagent.settings import UserError

_held: dict[Path, int] = {}
_guard = threading.Lock()


@contextmanager
def run_lock(root: Path) -> Iterator[None]:
    """Hold the lock of the run at ``root``; re-entrant inside one process.

    Raises:
        UserError: another process works on this run; its id is named.
    """
    root.mkdir(parents=True, exist_ok=True)
    path = (root / ".lock").resolve()
    with _guard:
        if path in _held:
            _held[path] += 1
            handle = None
        else:
            handle = path.open("a+")
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                handle.seek(0)
                holder = handle.read().strip() or "unknown"
                handle.close()
                raise UserError(
                    f"run {root.name!r} is being worked on by process {holder}",
                    remedy="wait for it, stop it, or give this build another --run name",
                ) from error
            handle.truncate(0)
            handle.write(str(os.getpid()))
            handle.flush()
            _held[path] = 1
    try:
        yield
    finally:
        with _guard:
            _held[path] -= 1
            if not _held[path]:
                del _held[path]
                if handle is not None:
                    handle.close()
