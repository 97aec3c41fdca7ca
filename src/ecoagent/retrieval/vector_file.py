"""A file of vectors by key: SQLite, so that writes are whole or absent and processes may share it."""

from __future__ import annotations

import fcntl
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")
Floats32 = npt.NDArray[np.float32]

FORMAT = 1
BUSY_TIMEOUT_S = 120.0
_ASKED_TOGETHER = 500
_PAGE = 32768
"""Bytes of a page: with SQLite's 4,096 a vector of 384 numbers leaves a third of each page empty."""
_CREATE = """
CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, sum INTEGER NOT NULL, vector BLOB NOT NULL)
"""


class _DamagedError(Exception):
    """The file is no whole file of vectors."""


class VectorFile:
    """Vectors of one length by key of 16 bytes.

    A file that is damaged, cut off, or no file of vectors is made anew; a vector whose bytes do not hold
    their sum is as one that is not there. Connections are opened for each call: threads and processes may
    share the file, and a process that is killed leaves every finished call behind.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Floats32]:
        """Key to (d,) vector of those that are there and whole."""
        if not self.path.is_file():
            return {}

        def read(db: sqlite3.Connection) -> dict[bytes, Floats32]:
            found: dict[bytes, Floats32] = {}
            for start in range(0, len(keys), _ASKED_TOGETHER):
                some = keys[start : start + _ASKED_TOGETHER]
                marks = ", ".join("?" * len(some))
                rows = db.execute(f"SELECT key, sum, vector FROM vectors WHERE key IN ({marks})", some)
                for key, total, data in rows:
                    if isinstance(data, bytes) and data and not len(data) % 4 and zlib.crc32(data) == total:
                        found[key] = np.frombuffer(data, dtype="<f4")
            return found

        return self._mended(read)

    def put(self, keys: Sequence[bytes], vectors: Floats32) -> None:
        """Keep vectors (n, d) under n keys, all or none of them; what was there is replaced."""
        blobs = [np.ascontiguousarray(row, dtype="<f4").tobytes() for row in vectors]
        rows = [(key, zlib.crc32(data), data) for key, data in zip(keys, blobs, strict=True)]
        self.path.parent.mkdir(parents=True, exist_ok=True)

        def write(db: sqlite3.Connection) -> None:
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)
            db.execute("COMMIT")

        self._mended(write)

    def count(self) -> int:
        """Number of vectors."""
        if not self.path.is_file():
            return 0
        return self._mended(lambda db: int(db.execute("SELECT count(*) FROM vectors").fetchone()[0]))

    def _mended(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with self._open() as db:
                return work(db)
        except _DamagedError:
            self._renew()
        with self._open() as db:
            return work(db)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as db:
                form = db.execute("PRAGMA user_version").fetchone()[0]
                if form != FORMAT:
                    if form or db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                        raise _DamagedError
                    db.execute(f"PRAGMA page_size = {_PAGE}")
                    db.execute("BEGIN IMMEDIATE")
                    db.execute(_CREATE)
                    db.execute(f"PRAGMA user_version = {FORMAT}")
                    db.execute("COMMIT")
                yield db
        except sqlite3.OperationalError as error:
            # Locked for too long, no space, no right to write: nothing that a new file would mend.
            if "no such" in str(error) or "no column" in str(error):
                raise _DamagedError from error
            raise
        except sqlite3.DatabaseError as error:
            raise _DamagedError from error

    def _renew(self) -> None:
        """Take a damaged file away; one process does, the others find its new one."""
        with self.path.with_name(f".{self.path.name}.lock").open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            try:
                with self._open() as db:
                    if db.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok":
                        return
            except _DamagedError:
                pass
            self.path.with_name(f"{self.path.name}-journal").unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)
