"""``ecoagent growth``: how the catalog grew (paper, Figure 1)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ecoagent.cli.data import run_tables
from ecoagent.cli.options import DryRun, Json, Limit, Profile, Run, Set, guarded, print_json, settings_of
from ecoagent.cli.show import show_estimates, show_rows
from ecoagent.runs import (
    Progress,
    RunContext,
    load_manifest,
    read_object,
    read_table,
    run_lock,
    with_fields,
    write_json,
)
from ecoagent.settings import Settings, UserError

if TYPE_CHECKING:
    import polars as pl

DATES = "growth_dates.json"
_FAILURES = 3
"""Packages without an answer in a row, after which the index is not asked any more."""
_COUNTED = ("source", "reliable")


def growth(
    profile: Profile = None,
    run: Run = None,
    history: Annotated[
        Path | None, typer.Option(help="File of pinned releases; by default the one shipped.")
    ] = None,
    runs: Annotated[
        list[str] | None, typer.Option(help="A successive crawl: name or folder of a run; may be repeated.")
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask no index for dates that the lock file lacks.")
    ] = False,
    limit: Limit = None,
    overrides: Set = None,
    force: Annotated[bool, typer.Option("--force", help="Read every release anew.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Tools by month, total and reliable, from pinned releases and your own successive crawls.

    Examples:

      ecoagent growth --run local

      ecoagent growth --run june --runs april --runs may --offline
    """

    def work() -> int:
        from ecoagent.crawlers.history import load_history
        from ecoagent.report.growth import read_growth
        from ecoagent.report.growth_stage import GrowthStage
        from ecoagent.runs import execute

        settings = settings_of(profile, run, limit, None, overrides)
        ctx = RunContext.create(settings)
        tables = run_tables(settings, settings.run_name) / "core" / "tools.parquet"
        pinned = load_history(history).newest(limit)  # not the run's own limit
        if dry_run:
            planned = {"growth": {"state": "would run", **GrowthStage(_only(pinned)).estimate(ctx)}}
            print_json(planned) if as_json else show_estimates(planned)
            return 0
        with run_lock(ctx.paths.root):
            points = crawls(settings, runs or [], ctx)
            created, notes = creation_dates(
                ctx, read_table(tables, ("source", "provenance")), offline=offline
            )
            stage = GrowthStage(_only(pinned, created, points, notes))
            stage.prepare(ctx)
            outcome = execute(stage, ctx, force=force)
        content = read_growth(ctx.paths.out / "results" / "growth.json")
        if as_json:
            print_json(content)
        else:
            _show(content, ctx)
        if not content["all"] and outcome.report.summary.get("incomplete"):
            raise UserError(
                "not one release could be read", remedy="check the network and npm, and try again"
            )
        return 0

    guarded(work)


def _only(history: Any, created: Any = None, points: Any = None, notes: Any = None) -> Any:
    from ecoagent.report.growth_stage import Asked

    return Asked(history, created or {}, points or [], notes or [])


def _show(content: dict[str, Any], ctx: RunContext) -> None:
    columns = ("month", "source", "total", "reliable", "base", "added", "removed", "pinned")
    shown = [{c: r[c] for c in columns} for r in content["rows"] if r["pinned"]]
    show_rows("growth: months with a dated release", shown)
    show_rows("successive crawls", content["crawls"])
    show_rows("tools without a date, not in the table", content["undated"])
    progress = Progress()
    for note in content["notes"]:
        progress.say(f"growth: {note}")
    names = ", ".join(p.name for p in sorted(ctx.paths.report.glob("growth.*")))
    progress.say(f"growth: {ctx.paths.out / 'results' / 'growth.json'}; {ctx.paths.report}: {names}")


def crawls(settings: Settings, names: list[str], ctx: RunContext) -> list[dict[str, Any]]:
    """Points of the runs named and of the run itself, oldest first; none if no run is named.

    Raises:
        UserError: a run is not there, or its manifest has no date.
    """
    from ecoagent.report.growth import crawl_points

    points: list[dict[str, Any]] = []
    folders = {p.resolve(): p.name for p in [run_tables(settings, n) for n in names]}
    if folders:
        folders[ctx.paths.root.resolve()] = ctx.paths.root.name
    for folder, name in folders.items():
        path = folder / "manifest.json"
        written = load_manifest(path).get("updated") if path.is_file() else None
        if not isinstance(written, str) or len(written) < 10:
            raise UserError(
                f"run {name} has no date in {path}", remedy="leave it out of --runs, or build it again"
            )
        points += crawl_points(name, written[:10], read_table(folder / "core" / "tools.parquet", _COUNTED))
    return sorted(points, key=lambda p: (p["date"], p["run"], p["source"]))


def _told(path: Path) -> dict[str, str]:
    """Dates an earlier call was told; none where there was no such call."""
    if not path.is_file():
        return {}
    remedy = "remove the file: the dates are asked for again"
    found = read_object(path, remedy=remedy)
    return with_fields(path, found, dict.fromkeys(found, str), remedy=remedy)


def creation_dates(
    ctx: RunContext, tools: pl.DataFrame, *, offline: bool
) -> tuple[dict[str, str], list[str]]:
    """Date of the first version of each n8n community package, and what could not be had.

    From the lock file, then from what an earlier call was told, then from the user's npm.
    """
    import polars as pl

    from ecoagent.crawlers import ClientMissingError, FetchError, load_lock
    from ecoagent.crawlers.npm_times import CREATED, DatesUnknownError, date_of, publication_times

    wanted = sorted(
        set(
            tools.filter(pl.col("source") == "n8n_community")["provenance"].struct.field("artifact").to_list()
        )
    )
    locked = {e.name: e.created_at for e in load_lock(ctx.settings.crawl.lock).artifacts if e.created_at}
    path = ctx.paths.raw / DATES
    told = _told(path)
    known = {n: locked.get(n) or told[n] for n in wanted if n in locked or n in told}
    lacking = [n for n in wanted if n not in known]
    notes: list[str] = []
    if offline or not lacking:
        if lacking:
            notes.append(f"{len(lacking)} n8n community packages have no date, and npm was not asked")
        return known, notes
    failures = 0
    with ctx.progress.task("dates of packages", total=len(lacking), unit="packages") as task:
        for name in lacking:
            try:
                date = date_of(publication_times(name, timeout_s=60.0), CREATED)
            except (DatesUnknownError, ClientMissingError) as error:
                # No other package would fare better.
                notes.append(error.message)
                break
            except FetchError as error:
                failures += 1
                notes.append(f"no date of {name}: {error.message}")
                if failures == _FAILURES:
                    break
            else:
                failures = 0
                if date:
                    known[name] = told[name] = date
                    write_json(path, told)
            task.advance()
    left = len(wanted) - len(known)
    if left:
        notes.append(f"{left} of {len(wanted)} n8n community packages have no date and are not in the table")
    return known, notes
