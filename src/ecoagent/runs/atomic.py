"""Files that are whole or absent: every write goes through a temporary name and ``os.replace``."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from ecoagent.schema import Record, arrow_schema
from ecoagent.settings import UserError

R = TypeVar("R", bound=Record)
_counter = itertools.count()
_BLOCK = 1 << 16
ROWS_PER_GROUP = 10_000
"""Rows of a Parquet row group."""
TEMPORARY = ".tmp-"
"""Prefix of unfinished files and folders; leftovers of a killed run are swept at the next start."""


def temporary_sibling(path: Path) -> Path:
    """A fresh name beside ``path`` that no other thread, process or node of a cluster uses."""
    return path.with_name(f"{TEMPORARY}{path.name}.{platform.node()}.{os.getpid()}.{next(_counter)}")


def _replace(path: Path, write: Callable[[Path], None]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_sibling(path)
    try:
        write(temporary)
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def write_bytes(path: Path, data: bytes) -> Path:
    """Write ``data`` atomically."""

    def write(temporary: Path) -> None:
        temporary.write_bytes(data)

    return _replace(path, write)


def write_text(path: Path, text: str) -> Path:
    """Write UTF-8 text atomically."""
    return write_bytes(path, text.encode("utf-8"))


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: the form that is hashed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)


def write_json(path: Path, value: Any) -> Path:
    """Write ``value`` as JSON with sorted keys, one blank of indent, ending in a newline."""
    return write_text(
        path, json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, default=str) + "\n"
    )


def parse_json(text: str | bytes) -> Any:
    """JSON from elsewhere.

    Raises:
        ValueError: it is none, or is nested or has numbers beyond what Python reads.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def write_jsonl(path: Path, rows: Iterable[Record | Mapping[str, Any]]) -> Path:
    """Write one JSON object a line, in the order given; rows are taken one at a time."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as handle:
            for row in rows:
                value = row.model_dump(mode="json") if isinstance(row, Record) else dict(row)
                handle.write(canonical_json(value).encode("utf-8") + b"\n")

    return _replace(path, write)


def iter_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, ends left off, one block in memory at a time.

    The file is open only while a block is read, so that thousands can be read side by side. Only
    a newline ends a line: the other line ends of Unicode may stand inside a JSON string.
    """
    place, rest = 0, b""
    while True:
        with path.open("rb") as handle:
            handle.seek(place)
            block = handle.read(_BLOCK)
        if not block:
            break
        place += len(block)
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
    if rest:
        yield rest


def to_arrow(rows: Iterable[Record | Mapping[str, Any]] | pl.DataFrame, model: type[Record]) -> pa.Table:
    """Arrow table in the column order and types of ``model``."""
    schema = arrow_schema(model)
    if isinstance(rows, pl.DataFrame):
        return rows.select(schema.names).to_arrow().cast(schema)
    data = [r.model_dump(mode="python") if isinstance(r, Record) else dict(r) for r in rows]
    return pa.Table.from_pylist(data, schema=schema)


def write_table(
    path: Path, rows: Iterable[Record | Mapping[str, Any]] | pl.DataFrame, model: type[Record]
) -> Path:
    """Write a Parquet table of ``model`` rows (zstd), in the order given.

    Equal rows give equal bytes for one version of Arrow.
    """
    table = to_arrow(rows, model)

    def write(temporary: Path) -> None:
        pq.write_table(table, temporary, compression="zstd", row_group_size=ROWS_PER_GROUP)

    return _replace(path, write)


def read_table(path: Path, columns: Iterable[str] = ()) -> pl.DataFrame:
    """A Parquet table as a frame.

    Args:
        path: the table.
        columns: columns that must be there; all are read.

    Raises:
        UserError: the file is missing, damaged, or lacks a column.
    """
    try:
        table = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise damaged(path, error) from error
    for name in columns:
        if name not in table.columns:
            raise UserError(f"{path} lacks column {name!r}", remedy=REBUILD)
    return table


REBUILD = "`ecoagent build` on this run makes it anew"


def damaged(path: Path, error: Exception, remedy: str = REBUILD) -> UserError:
    """What is said of a table that cannot be read."""
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return UserError(f"{path} cannot be read ({first[:120]})", remedy=remedy)


def read_rows(path: Path, model: type[R], *, subset: bool = False, remedy: str = REBUILD) -> list[R]:
    """A Parquet table as validated records.

    Args:
        path: the table.
        model: record of its rows.
        subset: read the record's columns only, where a file holds more.
        remedy: what to do about a file that is damaged or a row that does not fit.

    Raises:
        UserError: the file is missing, damaged, lacks a column, or a row does not fit (all named).
    """
    try:
        present = set(pq.read_schema(path).names) if subset else set(model.model_fields)
        lacking = [name for name in model.model_fields if name not in present]
        if lacking:
            raise UserError(f"{path} lacks column {lacking[0]!r}", remedy=remedy)
        rows = pq.read_table(path, columns=list(model.model_fields) if subset else None).to_pylist()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        # Arrow looks at text only when it becomes Python's.
        raise damaged(path, error, remedy) from error
    return list(validated(path, model, rows, remedy=remedy))


def validated(
    path: Path, model: type[R], rows: Iterable[Any], *, first: int = 1, remedy: str = REBUILD
) -> Iterator[R]:
    """Rows of ``path`` as records; ``first`` is the number of the first row.

    Raises:
        UserError: a row does not fit; file, row and column are named.
    """
    for number, row in enumerate(rows, first):
        try:
            yield model.model_validate(row)
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(str(p) for p in fault["loc"])
            raise UserError(
                f"{path} row {number}, column {where!r}: {fault['msg']}", remedy=remedy
            ) from error


def sha256_file(path: Path) -> str:
    """SHA-256 of a file, hex."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def sha256_text(text: str) -> str:
    """SHA-256 of UTF-8 text, hex."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON of ``value``, hex."""
    return sha256_text(canonical_json(value))


def bucket(identifier: str, count: int) -> int:
    """Shard of an id among ``count``: by hash, so that a new id moves no other."""
    return int(sha256_text(identifier)[:8], 16) % count


def replace_directory(temporary: Path, final: Path) -> None:
    """Put a finished folder in its place, whatever stood there."""
    if final.exists():
        stale = temporary_sibling(final)
        final.rename(stale)
        temporary.rename(final)
        shutil.rmtree(stale)
    else:
        temporary.rename(final)


def sweep(root: Path) -> int:
    """Remove what a killed process left unfinished below ``root``; returns how many entries went."""
    removed = 0
    for leftover in sorted(root.rglob(f"{TEMPORARY}*"), reverse=True):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)
        removed += 1
    return removed
