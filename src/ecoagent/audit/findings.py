"""The audit of a run as a pure function: tables in, result and failing rows out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import polars as pl

from ecoagent.audit.cross import CHECKS, Violation
from ecoagent.audit.gate import GateOutcome, run_gate
from ecoagent.audit.rules import Severity
from ecoagent.audit.tables import SPECS, RunTables, SchemaFault, TableSpec, shape_holds, table_faults
from ecoagent.schema import SCHEMA_VERSION, RejectRow
from ecoagent.settings import Settings

MAX_LISTED = 1_000
"""Failing rows written per check; the count is always complete."""


@dataclass(frozen=True)
class CheckResult:
    """One check of the audit and the rows that broke it."""

    name: str
    table: str
    severity: Severity
    says: str
    violations: tuple[Violation, ...]


@dataclass(frozen=True)
class AuditResult:
    """Everything the audit found."""

    rows: dict[str, int]
    faults: tuple[SchemaFault, ...]
    checks: tuple[CheckResult, ...]
    gate: GateOutcome

    @property
    def passed(self) -> bool:
        """Neither a critical expectation nor a table's schema failed."""
        return self.gate.passed and not self.faults and not self.broken("critical")

    def broken(self, severity: Severity) -> list[CheckResult]:
        """Checks of a severity that some row broke."""
        return [c for c in self.checks if c.severity == severity and c.violations]

    def failures(self) -> list[RejectRow]:
        """Failing rows, at most ``MAX_LISTED`` a check, sorted."""
        rows = [
            RejectRow(
                id=v.row_id, stage="audit", reason=c.name, detail=f"{c.severity}; {v.table}: {v.detail}"
            )
            for c in self.checks
            for v in c.violations[:MAX_LISTED]
        ]
        return sorted(rows, key=lambda r: (r.reason, r.id, r.detail))

    def first_failures(self, limit: int = 3) -> str:
        """The first critical failures in words, for an error message."""
        shown = [
            f"{c.name} ({len(c.violations)} rows, first {c.violations[0].row_id}: {c.violations[0].detail})"
            for c in self.broken("critical")
        ]
        shown += [f"{f.table}.{f.column} {f.check}" for f in self.faults]
        shown += [
            f"{e.table}.{e.subject} {e.expectation}"
            for e in self.gate.expectations
            if not e.success and e.severity == "critical"
        ]
        return "; ".join(shown[:limit])

    def to_json(self) -> dict[str, Any]:
        """The audit as plain values, without times or run ids: equal runs give equal bytes."""
        expectations = self.gate.expectations
        return {
            "passed": self.passed,
            "max_severity": "critical" if not self.passed else self.gate.max_severity,
            "schema_version": SCHEMA_VERSION,
            "tables": [
                {
                    "table": name,
                    "rows": count,
                    "schema_faults": [
                        {"column": f.column, "check": f.check, "rows": f.rows}
                        for f in self.faults
                        if f.table == name
                    ],
                }
                for name, count in self.rows.items()
            ],
            "checks": [
                {
                    "name": c.name,
                    "table": c.table,
                    "severity": c.severity,
                    "says": c.says,
                    "violations": len(c.violations),
                    "examples": [f"{v.table} {v.row_id}: {v.detail}" for v in c.violations[:5]],
                }
                for c in self.checks
            ],
            "expectations": [vars(e) for e in expectations],
            "counts": {
                "checks": len(self.checks),
                "expectations": len(expectations),
                "failed_critical": len(self.broken("critical")),
                "failed_warning": len(self.broken("warning")),
            },
        }


def _column_checks(item: TableSpec, frame: pl.DataFrame) -> Iterable[CheckResult]:
    keyed = frame.with_columns(_row=item.row_id())
    for rule in item.rules:
        bad = (
            keyed.filter(rule.broken())
            .select("_row", pl.col(rule.column).cast(pl.String, strict=False))
            .rows()
        )
        found = tuple(Violation(item.name, key, f"{rule.column} = {_short(value)}") for key, value in bad)
        yield CheckResult(f"{item.name}.{rule.name}", item.name, rule.severity, rule.limits(), found)
    if item.unique:
        twice = keyed.filter(pl.col("_row").is_duplicated())["_row"].unique().sort().to_list()
        found = tuple(Violation(item.name, key, "key stands in more than one row") for key in twice)
        yield CheckResult(f"{item.name}.unique", item.name, "critical", "key is unique", found)


def _short(value: str | None) -> str:
    return "null" if value is None else repr(value if len(value) <= 60 else value[:57] + "…")


def check_tables(
    tables: RunTables, settings: Settings
) -> tuple[tuple[SchemaFault, ...], tuple[CheckResult, ...]]:
    """Schema faults and checks with their failing rows: everything but the gate.

    Cross-table checks need sound columns; where a table breaks its schema in shape they are left
    out, and the audit has failed already.
    """
    faults = tuple(f for item in SPECS for f in table_faults(item, tables[item.name]))
    checks = [
        c
        for item in SPECS
        if shape_holds(item, tables[item.name])
        for c in _column_checks(item, tables[item.name])
    ]
    if all(shape_holds(item, tables[item.name]) for item in SPECS):
        for entry in CHECKS:
            found = tuple(entry.find(tables, settings))
            checks.append(CheckResult(entry.name, "run", entry.severity, entry.says, found))
    return faults, tuple(checks)


def audit_tables(tables: RunTables, settings: Settings) -> AuditResult:
    """Audit a run's tables: pandera schemas, column rules, cross-table checks, the gate."""
    faults, checks = check_tables(tables, settings)
    cross: dict[str, tuple[Severity, str, int]] = {
        c.name: (c.severity, c.says, len(c.violations)) for c in checks if c.table == "run"
    }
    gate = run_gate(tables, cross)
    return AuditResult({s.name: tables[s.name].height for s in SPECS}, faults, checks, gate)
