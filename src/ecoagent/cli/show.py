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
    """A table of dictionaries, columns in the order of the first row."""
    if not rows:
        return
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in rows[0]:
        numeric = all(isinstance(r.get(name), int | float) for r in rows)
        table.add_column(str(name), justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*(Text(_cell(row.get(name))) for name in rows[0]))
    console().print(table)


def show_outcomes(outcomes: Sequence[StageOutcome], paths: RunPaths) -> None:
    """What each stage did, the tables it made, and where the results are."""
    for outcome in outcomes:
        for key, value in outcome.report.summary.items():
            if isinstance(value, list) and value and isinstance(value[0], dict):
                show_rows(f"{outcome.name}: {key}", value)
            elif isinstance(value, dict):
                _fact(f"{outcome.name}: {key}", counts(value))
            elif value not in (None, [], ""):
                _fact(f"{outcome.name}: {key}", _cell(value))
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
                "estimate": counts({k: v for k, v in facts.items() if k != "state"}),
            }
            for name, facts in planned.items()
        ],
    )
