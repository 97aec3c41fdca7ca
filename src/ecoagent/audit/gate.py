"""The release gate: Great Expectations checkpoints over every table, derived from the records.

Great Expectations takes pandas, not polars, and does not reliably name failing rows, so nested
columns stay with pandera and the rows are named by ``findings``.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from ecoagent.audit.rules import ColumnRule, Severity
from ecoagent.audit.tables import SPECS, RunTables, TableSpec
from ecoagent.settings import quiet_environment

CROSS_TABLE = "cross_checks"
"""Name of the batch whose columns are cross-table checks and whose one row holds their breaches."""


@dataclass(frozen=True)
class ExpectationOutcome:
    """What one expectation of the gate found."""

    table: str
    expectation: str
    subject: str
    limits: str
    severity: str
    success: bool
    unexpected: int


@dataclass(frozen=True)
class GateOutcome:
    """The gate's result; ``max_severity`` is None where everything held."""

    expectations: tuple[ExpectationOutcome, ...]
    max_severity: str | None

    @property
    def passed(self) -> bool:
        """Warnings pass, critical failures do not."""
        return self.max_severity != "critical"


def _flat_columns(frame: pl.DataFrame) -> list[str]:
    return [n for n, t in frame.schema.items() if not isinstance(t, pl.List | pl.Struct)]


def _library(name: str) -> Any:
    """A module of Great Expectations, untyped: its own annotations refuse what its constructors accept."""
    return importlib.import_module(name)


def _expectation(rule: ColumnRule) -> Any:
    gxe = _library("great_expectations.expectations")
    common = {"column": rule.column, "severity": rule.severity, "notes": rule.limits()}
    if rule.kind == "not_null":
        return gxe.ExpectColumnValuesToNotBeNull(**common)
    if rule.kind == "in_set":
        return gxe.ExpectColumnValuesToBeInSet(value_set=list(rule.values), **common)
    if rule.kind == "matches":
        return gxe.ExpectColumnValuesToMatchRegex(regex=rule.pattern, **common)
    return gxe.ExpectColumnValuesToBeBetween(min_value=rule.low, max_value=rule.high, **common)


def _table_suite(item: TableSpec, frame: pl.DataFrame) -> list[Any]:
    gxe = _library("great_expectations.expectations")
    flat = _flat_columns(frame)
    declared = [n for n in item.model.model_fields if n not in frame.columns or n in flat]
    suite: list[Any] = [
        gxe.ExpectTableColumnsToMatchSet(
            column_set=declared, exact_match=True, severity="critical", notes="the columns of the record"
        )
    ]
    if item.unique and set(item.key) <= set(flat):
        if len(item.key) == 1:
            suite.append(
                gxe.ExpectColumnValuesToBeUnique(column=item.key[0], severity="critical", notes="unique")
            )
        else:
            suite.append(
                gxe.ExpectCompoundColumnsToBeUnique(
                    column_list=list(item.key), severity="critical", notes="unique together"
                )
            )
    # A column that is null throughout has nothing to check and no type Great Expectations can read.
    filled = {n for n in flat if frame[n].null_count() < frame.height}
    suite += [
        _expectation(r)
        for r in item.rules
        if r.column in filled or (r.kind == "not_null" and r.column in flat)
    ]
    return suite


def _cross_suite(checks: Mapping[str, tuple[Severity, str, int]]) -> list[Any]:
    gxe = _library("great_expectations.expectations")
    return [
        gxe.ExpectColumnMaxToBeBetween(column=name, min_value=0, max_value=0, severity=severity, notes=says)
        for name, (severity, says, _) in checks.items()
    ]


def run_gate(tables: RunTables, checks: Mapping[str, tuple[Severity, str, int]]) -> GateOutcome:
    """Validate all tables and the counts of the cross-table checks, a checkpoint each.

    Args:
        tables: table name to frame.
        checks: check name to (severity, what it says, number of rows that break it).
    """
    quiet_environment()
    import pandas as pd

    gx = _library("great_expectations")
    # Its import sets the level anew, so that this comes after.
    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    source = context.data_sources.add_pandas("run")
    frames: dict[str, Any] = {}
    suites: dict[str, list[Any]] = {}
    for item in SPECS:
        if item.name in tables:
            frame = tables[item.name]
            suites[item.name] = _table_suite(item, frame)
            frames[item.name] = frame.select(_flat_columns(frame)).to_pandas(use_pyarrow_extension_array=True)
    frames[CROSS_TABLE] = pd.DataFrame([{name: count for name, (_, _, count) in checks.items()}])
    suites[CROSS_TABLE] = _cross_suite(checks)

    outcomes: list[ExpectationOutcome] = []
    worst: str | None = None
    for name, expectations in suites.items():
        batch = source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("all")
        suite = context.suites.add(gx.ExpectationSuite(name, expectations=expectations))
        definition = context.validation_definitions.add(
            gx.ValidationDefinition(name=name, data=batch, suite=suite)
        )
        point = context.checkpoints.add(
            gx.Checkpoint(
                name=name, validation_definitions=[definition], result_format={"result_format": "BASIC"}
            )
        )
        result = point.run(batch_parameters={"dataframe": frames[name]})
        for validation in result.run_results.values():
            severity = validation.get_max_severity_failure()
            worst = _worse(worst, getattr(severity, "value", severity))
            outcomes += [_outcome(name, entry, checks) for entry in validation.results]
    outcomes.sort(key=lambda o: (o.table, o.subject, o.expectation))
    return GateOutcome(tuple(outcomes), worst)


_ORDER = {None: 0, "info": 1, "warning": 2, "critical": 3}


def _worse(a: str | None, b: str | None) -> str | None:
    return a if _ORDER[a] >= _ORDER[b] else b


def _outcome(table: str, entry: Any, checks: Mapping[str, tuple[Severity, str, int]]) -> ExpectationOutcome:
    config = entry.expectation_config
    kwargs = config.kwargs
    subject = kwargs.get("column") or " + ".join(kwargs.get("column_list", [])) or "(columns)"
    result = entry.result or {}
    unexpected = result.get("unexpected_count", 0 if entry.success else 1)
    if table == CROSS_TABLE:
        unexpected = checks[subject][2]
    notes = config.notes
    severity = config.severity
    return ExpectationOutcome(
        table=table,
        expectation=config.type,
        subject=subject,
        limits=notes if isinstance(notes, str) else " ".join(notes or []),
        severity=str(getattr(severity, "value", severity)),
        success=bool(entry.success),
        unexpected=int(unexpected or 0),
    )
