"""Tables larger than memory: Parquet written and read by row groups."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from ecoagent.runs.atomic import (
    REBUILD,
    ROWS_PER_GROUP,
    damaged,
    temporary_sibling,
    to_arrow,
    validated,
)
from ecoagent.schema import Record, arrow_schema
from ecoagent.settings import UserError

R = TypeVar("R", bound=Record)
Rows: TypeAlias = Sequence[Record | Mapping[str, Any]] | pa.Table
ROWS_PER_BATCH = 64
"""Rows held as Python objects before they become Arrow columns, which are about ten times smaller."""
BYTES_PER_GROUP = 64 * 1024 * 1024
"""Columns a row group may hold before it is written, however few its rows; writing takes a few times that."""


class TableWriter:
    """Writes rows in the order given, one row group after the other; see ``table_writer``.

    Equal rows give the same bytes as ``write_table``, however they are cut into calls, as long as
    no row group reaches ``BYTES_PER_GROUP``.
    """

    def __init__(self, path: Path, model: type[Record]) -> None:
        self._model, self._schema = model, arrow_schema(model)
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")
        self._pending: list[pa.Table] = []
        self._pending_rows = self._pending_bytes = 0
        self._buffer: list[Record | Mapping[str, Any]] = []
        self.rows = 0

    def append(self, row: Record | Mapping[str, Any]) -> None:
        """Add one row."""
        self._buffer.append(row)
        if len(self._buffer) >= ROWS_PER_BATCH:
            self._drain()

    def write(self, rows: Rows) -> None:
        """Add rows, or an Arrow table of the model's columns."""
        self._drain()
        self._take(rows.cast(self._schema) if isinstance(rows, pa.Table) else to_arrow(rows, self._model))

    def finish(self) -> None:
        """Write what is left; an empty table gets one empty row group."""
        self._drain()
        if self._pending_rows or not self.rows:
            self._group(self._pending_rows)

    def close(self) -> None:
        """Close the file; what was not finished is lost."""
        self._writer.close()

    def _drain(self) -> None:
        if self._buffer:
            rows, self._buffer = self._buffer, []
            self._take(to_arrow(rows, self._model))

    def _take(self, table: pa.Table) -> None:
        self._pending.append(table)
        self._pending_rows += table.num_rows
        self.rows += table.num_rows
        self._pending_bytes += table.nbytes
        while self._pending_rows >= ROWS_PER_GROUP:
            self._group(ROWS_PER_GROUP)
        if self._pending_bytes >= BYTES_PER_GROUP:
            self._group(self._pending_rows)

    def _group(self, size: int) -> None:
        # In one piece: how columns are cut into chunks shows in the pages of the file.
        whole = pa.concat_tables(self._pending or [self._schema.empty_table()]).combine_chunks()
        self._writer.write_table(whole.slice(0, size), row_group_size=ROWS_PER_GROUP)
        rest = whole.slice(size)
        self._pending = [rest] if rest.num_rows else []
        self._pending_rows, self._pending_bytes = rest.num_rows, rest.nbytes


@contextmanager
def table_writer(path: Path, model: type[Record]) -> Iterator[TableWriter]:
    """A writer of ``path``; the file appears whole when the block ends, and not at all if it fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_sibling(path)
    try:
        writer = TableWriter(temporary, model)
        try:
            yield writer
            writer.finish()
        finally:
            writer.close()
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_table_stream(path: Path, batches: Iterable[Rows], model: type[Record]) -> Path:
    """Write batches of rows as one table, holding one row group at a time."""
    with table_writer(path, model) as writer:
        for batch in batches:
            writer.write(batch)
    return path


def count_rows(path: Path) -> int:
    """Rows of a Parquet table, from its footer.

    Raises:
        UserError: the file is missing or damaged.
    """
    with _opened(path) as file:
        return int(file.metadata.num_rows)


def table_groups(
    path: Path,
    model: type[Record],
    columns: Sequence[str] | None = None,
    *,
    start: int = 0,
    stop: int | None = None,
) -> Iterator[pa.Table]:
    """Rows ``start`` to ``stop`` of a table, one row group at a time, in the types of ``model``.

    Args:
        path: the table.
        model: record of its rows.
        columns: columns to read; none = all of the record.
        start: first row, from 0.
        stop: row after the last; none = to the end.

    Raises:
        UserError: the file is missing, damaged, or lacks a column.
    """
    names = list(columns or model.model_fields)
    schema = pa.schema([arrow_schema(model).field(n) for n in names])
    with _opened(path) as file:
        lacking = [n for n in names if n not in set(file.schema_arrow.names)]
        if lacking:
            raise UserError(f"{path} lacks column {lacking[0]!r}", remedy=REBUILD)
        first = 0
        for number in range(file.metadata.num_row_groups):
            size = file.metadata.row_group(number).num_rows
            low, high = max(start - first, 0), min(size, (stop if stop is not None else first + size) - first)
            first += size
            if low < high:
                try:
                    table = file.read_row_group(number, columns=names).select(names).cast(schema)
                except (pa.ArrowException, OSError) as error:
                    raise damaged(path, error) from error
                yield table.slice(low, high - low)


def iter_rows(path: Path, model: type[R], *, remedy: str = REBUILD) -> Iterator[R]:
    """A Parquet table as validated records, one row group in memory at a time.

    Raises:
        UserError: as ``read_rows``.
    """
    first = 1
    for group in table_groups(path, model):
        for batch in group.to_batches(max_chunksize=ROWS_PER_BATCH):
            yield from validated(path, model, batch.to_pylist(), first=first, remedy=remedy)
            first += batch.num_rows


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, error) from error
    with file:
        yield file
