"""Stored responses: what was generated once is replayed, never regenerated.

SQLite with a write-ahead log: each response is its own transaction, so a process killed at any
moment leaves the responses before it, and several processes may share the file.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ecoagent.llm.protocol import GenerationRequest, GenerationResponse, sampling_text
from ecoagent.runs import parse_json
from ecoagent.settings import UserError

BUSY_TIMEOUT_S = 60.0
_AWAY = "move it away or set llm.store to another: what is missing is asked again"
_BATCH = 500
_COLUMNS = (
    "request_hash",
    "model",
    "sampling",
    "prompt_sha256",
    "text",
    "tokens_in",
    "tokens_out",
    "finish_reason",
    "status",
    "first_token_logprobs",
)
_HELD = ("request_hash", "model", "text", "tokens_in", "tokens_out", "finish_reason", "status")
_CREATE = """
CREATE TABLE IF NOT EXISTS responses (
  request_hash TEXT PRIMARY KEY, model TEXT NOT NULL, sampling TEXT NOT NULL, prompt_sha256 TEXT NOT NULL,
  text TEXT NOT NULL, tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL, finish_reason TEXT NOT NULL,
  status TEXT NOT NULL, first_token_logprobs TEXT
) WITHOUT ROWID
"""
# A stored answer is final; only a stored failure may be replaced, by whatever came of another try.
_PUT = f"""
INSERT INTO responses ({", ".join(_COLUMNS)}) VALUES ({", ".join("?" for _ in _COLUMNS)})
ON CONFLICT (request_hash) DO UPDATE SET {", ".join(f"{c} = excluded.{c}" for c in _COLUMNS[1:])}
WHERE responses.status <> 'ok'
"""


class ResponseStore:
    """Responses by request hash. Usable from several threads and processes."""

    def __init__(self, path: Path) -> None:
        """Open or create the file.

        Raises:
            UserError: the file cannot be opened or is no store of responses.
        """
        self.path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                path, timeout=BUSY_TIMEOUT_S, check_same_thread=False, isolation_level=None
            )
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute(_CREATE)
        except (sqlite3.DatabaseError, OSError) as error:
            raise UserError(
                f"store of responses {path}: {error}", remedy="set llm.store to another file or mend this one"
            ) from error

    def get_many(self, hashes: Iterable[str]) -> dict[str, GenerationResponse]:
        """Stored responses, failures included (look at ``status``); ids are left empty.

        Raises:
            UserError: a row holds no response; file and request are named.
        """
        return {row["request_hash"]: response_of(row, self.path, _AWAY) for row in self._rows(hashes)}

    def put(self, response: GenerationResponse, request: GenerationRequest) -> GenerationResponse:
        """Store a response and return what the store now holds for its hash.

        Where another process was first, that is its answer, so that both write the same tables.
        """
        logprobs = response.first_token_logprobs
        self._write(
            [
                (
                    response.request_hash,
                    response.model,
                    sampling_text(request.sampling),
                    request.prompt_sha256,
                    response.text,
                    response.tokens_in,
                    response.tokens_out,
                    response.finish_reason,
                    response.status,
                    None if logprobs is None else json.dumps(logprobs, ensure_ascii=False, sort_keys=True),
                )
            ]
        )
        held = self.get_many([response.request_hash])[response.request_hash]
        if held.text == response.text and held.status == response.status:
            return response
        return held.model_copy(update={"id": response.id})

    def dump(self, hashes: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """Rows as plain values, sorted by hash; all of them if no hashes are given.

        Raises:
            UserError: a row holds no response; file and request are named.
        """
        rows = self._rows(hashes)
        for row in rows:
            response_of(row, self.path, _AWAY)
        return rows

    def _rows(self, hashes: Iterable[str] | None) -> list[dict[str, Any]]:
        columns = ", ".join(_COLUMNS)
        if hashes is None:
            return self._read(f"SELECT {columns} FROM responses ORDER BY request_hash", ())
        wanted = sorted(set(hashes))
        rows: list[dict[str, Any]] = []
        for start in range(0, len(wanted), _BATCH):
            some = wanted[start : start + _BATCH]
            marks = ", ".join("?" for _ in some)
            rows += self._read(
                f"SELECT {columns} FROM responses WHERE request_hash IN ({marks}) ORDER BY request_hash", some
            )
        return rows

    def load(self, rows: Iterable[Mapping[str, Any]]) -> int:
        """Add rows as ``dump`` gives them; answers already held are kept. Returns how many were read."""
        values = [tuple(row.get(column) for column in _COLUMNS) for row in rows]
        self._write(values)
        return len(values)

    def count(self) -> int:
        """Number of stored responses."""
        with self._lock:
            return int(self._db.execute("SELECT count(*) FROM responses").fetchone()[0])

    def close(self) -> None:
        """Close the file; safe to call twice."""
        with self._lock:
            self._db.close()

    def _read(self, statement: str, values: Sequence[str]) -> list[dict[str, Any]]:
        with self._lock:
            try:
                found = self._db.execute(statement, tuple(values)).fetchall()
            except sqlite3.DatabaseError as error:
                raise self._trouble(error) from error
        return [dict(zip(_COLUMNS, row, strict=True)) for row in found]

    def _write(self, rows: Sequence[tuple[Any, ...]]) -> None:
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.executemany(_PUT, rows)
                self._db.execute("COMMIT")
            except sqlite3.DatabaseError as error:
                raise self._trouble(error) from error
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def _trouble(self, error: sqlite3.Error) -> UserError:
        return UserError(
            f"store of responses {self.path}: {error}",
            remedy=f"see that the disk has room and nothing else holds it; if it is damaged, {_AWAY}",
        )


def response_of(row: Mapping[str, Any], path: Path, remedy: str) -> GenerationResponse:
    """The response a row of ``path`` holds, its id left empty.

    Raises:
        UserError: it holds none, with this remedy; file, request and column are named.
    """
    shown = row["first_token_logprobs"]
    try:
        logprobs = None if shown is None else parse_json(shown)
    except (ValueError, TypeError) as error:
        raise broken_row(path, row, f"first_token_logprobs: {error}", remedy) from error
    values = {name: row[name] for name in _HELD}
    try:
        return GenerationResponse(id="", first_token_logprobs=logprobs, replayed=True, **values)
    except ValidationError as error:
        raise broken_row(path, row, first_fault(error), remedy) from error


def first_fault(error: ValidationError) -> str:
    """Column and message of the first fault."""
    fault = error.errors()[0]
    return f"{'.'.join(str(p) for p in fault['loc'])}: {fault['msg']}"


def broken_row(path: Path, row: Mapping[str, Any], fault: str, remedy: str) -> UserError:
    """What is said of a row that is no response."""
    return UserError(f"{path}, response {row.get('request_hash')}, column {fault}", remedy=remedy)
