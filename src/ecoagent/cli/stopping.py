"""How a command is stopped from outside: by a signal, or by a disk that is full."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sqlite3
import sys
from pathlib import Path
from types import FrameType

import psutil

from ecoagent.settings import UserError

NEEDED = 256 * 1024**2
FULL = 16 * 1024**2
"""Bytes wanted before a flow starts, and bytes under which a failure is put down to the full disk."""


def _free(folder: Path) -> int:
    there = folder.resolve()
    while not there.exists():
        there = there.parent
    return shutil.disk_usage(there).free


def require_space(folder: Path) -> None:
    """Refuse to start where the disk is all but full: databases and logs would fail first, noisily.

    Raises:
        UserError: less than 256 MB are free.
    """
    free = _free(folder)
    if free < NEEDED:
        raise UserError(
            f"only {free / 1e6:.0f} MB are free on the disk that holds {folder}",
            remedy="free some space (a local run needs about 5 GB), or give --set outputs=DIR elsewhere",
        )


def is_full_disk(error: Exception) -> bool:
    """Whether a failure means that the disk (or the file size limit) is used up."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return True
    if isinstance(error, sqlite3.Error) and "full" in str(error):
        return True
    return isinstance(error, OSError | sqlite3.Error | RuntimeError) and _free(Path.cwd()) < FULL


def stop_at_once_on_signals() -> None:
    """On SIGINT or SIGTERM end this process and what it started, within a second.

    Ending hard is safe: every file is written whole or not at all, responses are stored as they
    arrive, and the kernel releases the run's lock. Waiting for threads that are inside native code or
    for a server that got the same signal is what took minutes. Set late, since libraries set their own.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        for child in psutil.Process().children(recursive=True):
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue
        sys.stderr.write("\nstopped; finished shards are kept, run the same command again to go on\n")
        sys.stderr.flush()
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
