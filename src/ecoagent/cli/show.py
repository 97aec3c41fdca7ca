"""Tables on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ecoagent.runs import RunPaths, StageOutcome, duration


def console() -> Console:
    """Console on standard output; a log gets no colours and enough width for the tables."""
    made = Console()
    return made if made.is_terminal else Console(width=130)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return f"({counts(value)})"
    if isinstance(value, list):
        return ", ".join(_cell(v) for v in value)
    return "" if value is None else str(value)


def counts(values: Mapping[str, Any]) -> str:
    """``a 1, b 2``."""
    return ", ".join(f"{k} {_cell(v)}" for k, v in values.items())


def _fact(label: str, value: str) -> None:
    console().print(Text.assemble((label, "bold"), "  ", value))


def show_rows(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """A table of dictionaries, columns in the order they are first met; nothing if there are no values."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if not any(columns):
        return
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in columns:
        numeric = all(isinstance(r.get(name, 0), int | float) for r in rows)
        table.add_column(str(name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(row.get(name))) for name in columns))
    console().print(table)


def _scalars(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in values.items() if not isinstance(v, dict | list) and v not in (None, "")}


def _grouped(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of a dictionary of dictionaries, one level of grouping taken out."""
    rows: list[dict[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, dict) and value and all(isinstance(v, dict) for v in value.values()):
            rows += _grouped(value)
        elif isinstance(value, dict):
            rows.append({"": key, **{k: v for k, v in value.items() if not isinstance(v, dict | list)}})
    return rows


def show_summary(name: str, summary: Mapping[str, Any]) -> None:
    """A stage's own facts: tables as tables, single facts on one line, what is nested is in the manifest."""
    single = _scalars(summary)
    if single:
        _fact(name, counts(single))
    for key, value in summary.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            show_rows(f"{name}: {key}", value)
        elif isinstance(value, dict) and value and all(isinstance(v, dict) for v in value.values()):
            show_rows(f"{name}: {key}", _grouped(value))
        elif isinstance(value, dict) and _scalars(value):
            _fact(f"{name}: {key}", counts(_scalars(value)))
        elif isinstance(value, list) and value:
            _fact(f"{name}: {key}", _cell(value))


def show_outcomes(outcomes: Sequence[StageOutcome], paths: RunPaths) -> None:
    """What each stage did, the tables it made, and where the results are."""
    for outcome in outcomes:
        show_summary(outcome.name, outcome.report.summary)
    show_rows(
        "stages",
        [
            {
                "stage": o.name,
                "status": o.status,
                "time": duration(o.seconds),
                "rows": counts(o.report.rows),
                "rejected": counts(o.report.rejects),
            }
            for o in outcomes
        ],
    )
    table = Table(title="results", title_justify="left", title_style="bold", show_header=False)
    for label, path in (
        ("tables", paths.core),
        ("results", paths.out / "results"),
        ("data set", paths.out / "dataset"),
        ("report", paths.report / "index.html"),
        ("manifest", paths.manifest),
    ):
        if path.exists():
            table.add_row(label, Text(str(path)))
    console().print(table)


def show_estimates(planned: Mapping[str, Mapping[str, Any]]) -> None:
    """What a dry run found."""
    show_rows(
        "dry run: nothing was done",
        [
            {
                "stage": name,
                "state": facts["state"],
                "estimate": facts.get("estimate")
                or counts({k: v for k, v in facts.items() if k not in ("state", "needs")}),
            }
            for name, facts in planned.items()
        ],
    )
