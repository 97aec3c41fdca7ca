"""One process a run: a lock that the kernel releases however its holder ends."""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ecoagent.settings import UserError

_held: dict[Path, int] = {}
_guard = threading.Lock()


@contextmanager
def file_lock(path: Path, folder: Path) -> Iterator[None]:
    """Be the only process that rewrites the file at ``path``; others are refused.

    Args:
        path: the file.
        folder: where the lock is kept, out of the user's sight.

    Raises:
        UserError: another process is at it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    with (folder / f".writing-{name}").open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"{path} is being written by another process", remedy="wait for it, or name another file"
            ) from error
        yield


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
