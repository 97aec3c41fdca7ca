"""The tables of a run, their keys, and pandera (polars) schemas derived from their records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from ecoagent.audit.rules import ColumnRule, column_rules
from ecoagent.runs import read_table
from ecoagent.schema import (
    NormalizedTool,
    PairRow,
    QrelRow,
    QueryRow,
    Record,
    RejectedTool,
    RejectRow,
    ResponseRow,
    ScoredTool,
    VerdictRow,
    arrow_schema,
)
from ecoagent.settings import UserError


@dataclass(frozen=True)
class TableSpec:
    """A table of ``core/``: its record, its key, the rules of its columns.

    ``stage`` is the stage that writes it, named in the remedy when the file is missing.
    """

    name: str
    model: type[Record]
    key: tuple[str, ...]
    stage: str
    unique: bool = True
    lenient: frozenset[str] = field(default_factory=frozenset)

    @property
    def rules(self) -> tuple[ColumnRule, ...]:
        """Rules derived from the record."""
        return column_rules(self.model, lenient=self.lenient)

    def path(self, core: Path) -> Path:
        """File of the table."""
        return core / f"{self.name}.parquet"

    def row_id(self) -> pl.Expr:
        """The key as one text, parts joined by a blank."""
        return pl.concat_str([pl.col(c).cast(pl.String).fill_null("?") for c in self.key], separator=" ")


_REJECTED = frozenset({"name", "description"})

SPECS: tuple[TableSpec, ...] = (
    TableSpec("tools_normalized", NormalizedTool, ("id",), "normalize"),
    TableSpec("tool_rejects", RejectedTool, ("id", "reason"), "normalize", unique=False, lenient=_REJECTED),
    TableSpec("tools", ScoredTool, ("id",), "score"),
    TableSpec("syn_queries", QueryRow, ("query_id",), "synthesize"),
    TableSpec("syn_qrels", QrelRow, ("query_id", "tool_id"), "synthesize"),
    TableSpec("syn_pairs", PairRow, ("query_id", "tool_id"), "synthesize"),
    TableSpec("syn_rejects", RejectRow, ("id", "stage"), "synthesize", unique=False),
    TableSpec("syn_responses", ResponseRow, ("request_hash",), "synthesize"),
    TableSpec("real_queries", QueryRow, ("query_id",), "label"),
    TableSpec("real_qrels", QrelRow, ("query_id", "tool_id"), "label"),
    TableSpec("verdicts", VerdictRow, ("query_id", "tool_id"), "label"),
    TableSpec("real_rejects", RejectRow, ("id", "stage"), "label", unique=False),
    TableSpec("real_responses", ResponseRow, ("request_hash",), "label"),
)

RunTables = dict[str, pl.DataFrame]


def spec(name: str) -> TableSpec:
    """The declaration of a table by name."""
    return next(s for s in SPECS if s.name == name)


def load_tables(core: Path, names: Iterable[str] | None = None) -> RunTables:
    """Tables of a run's ``core/`` folder.

    Raises:
        UserError: a table is missing; the stage that writes it is named.
    """
    chosen = SPECS if names is None else tuple(spec(n) for n in names)
    tables: RunTables = {}
    for item in chosen:
        path = item.path(core)
        if not path.is_file():
            raise UserError(f"{path} is missing", remedy=f"run `ecoagent {item.stage}` for this run first")
        tables[item.name] = read_table(path)
    return tables


def polars_types(model: type[Record]) -> dict[str, pl.DataType]:
    """Polars type of each column, by way of the Arrow schema."""
    frame = pl.from_arrow(arrow_schema(model).empty_table())
    if not isinstance(frame, pl.DataFrame):
        raise TypeError(f"{model.__name__} did not become a table")
    return dict(frame.schema)


@cache
def pandera_schema(item: TableSpec) -> Any:
    """Pandera schema of a table: exact columns and types, nulls, vocabularies, ranges, patterns, key."""
    import pandera.polars as pa

    checks: dict[str, list[Any]] = {}
    required: set[str] = set()
    for rule in item.rules:
        if rule.kind == "not_null":
            required.add(rule.column)
        elif rule.kind == "in_set":
            checks.setdefault(rule.column, []).append(pa.Check.isin(list(rule.values), name=rule.name))
        elif rule.kind == "matches":
            if rule.severity == "critical":
                checks.setdefault(rule.column, []).append(pa.Check.str_contains(rule.pattern, name=rule.name))
        else:
            if rule.low is not None:
                checks.setdefault(rule.column, []).append(pa.Check.ge(rule.low, name=rule.name))
            if rule.high is not None:
                checks.setdefault(rule.column, []).append(pa.Check.le(rule.high, name=rule.name))
    columns = {
        name: pa.Column(dtype, checks=checks.get(name, []), nullable=name not in required)
        for name, dtype in polars_types(item.model).items()
    }
    return pa.DataFrameSchema(
        columns, strict=True, unique=list(item.key) if item.unique else None, name=item.name
    )


def shape_holds(item: TableSpec, frame: pl.DataFrame) -> bool:
    """Whether a table has the columns and types of its record, whatever the values."""
    return list(frame.schema.items()) == list(polars_types(item.model).items())


@dataclass(frozen=True)
class SchemaFault:
    """One kind of breach pandera found in a table."""

    table: str
    column: str
    check: str
    rows: int


def _shape_faults(item: TableSpec, frame: pl.DataFrame) -> list[SchemaFault]:
    wanted, found = polars_types(item.model), dict(frame.schema)
    faults = [SchemaFault(item.name, c, "column is missing", frame.height) for c in wanted if c not in found]
    faults += [
        SchemaFault(item.name, c, "column is not declared", frame.height) for c in found if c not in wanted
    ]
    faults += [
        SchemaFault(item.name, c, f"type {found[c]} instead of {wanted[c]}", frame.height)
        for c in wanted
        if c in found and found[c] != wanted[c]
    ]
    if not faults:
        faults = [SchemaFault(item.name, "(table)", "columns are in another order", frame.height)]
    return sorted(faults, key=lambda f: (f.column, f.check))


def table_faults(item: TableSpec, frame: pl.DataFrame) -> list[SchemaFault]:
    """Breaches of a table's pandera schema, sorted; none = sound.

    A table of another shape is compared column by column, since pandera then stops at the shape and
    names columns unevenly.
    """
    import pandera.errors

    if not shape_holds(item, frame):
        return _shape_faults(item, frame)

    try:
        pandera_schema(item).validate(frame, lazy=True)
    except pandera.errors.SchemaErrors as error:
        cases = error.failure_cases
        where, what = pl.col("column").cast(pl.String), pl.col("check").cast(pl.String)
        counts = (
            cases.select(column=where.fill_null("(table)"), check=what.fill_null("?"))
            .group_by("column", "check")
            .len()
            .sort("column", "check")
        )
        return [
            SchemaFault(item.name, r["column"], r["check"], int(r["len"]))
            for r in counts.iter_rows(named=True)
        ]
    return []
