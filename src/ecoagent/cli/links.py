"""``ecoagent audit-links``: whether the addresses that tools name answer, and the table of flaws."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ecoagent.cli.options import (
    DryRun,
    Json,
    Limit,
    Profile,
    Run,
    Set,
    guarded,
    one_of,
    print_json,
    settings_of,
)
from ecoagent.cli.show import show_rows
from ecoagent.runs import Progress, RunContext, RunPaths, duration, run_lock
from ecoagent.schema import SOURCES, NormalizedTool, RejectedTool, ScoredTool
from ecoagent.settings import MissingInputError

if TYPE_CHECKING:
    from ecoagent.reliability.flaws import FlawTable
    from ecoagent.reliability.links import Result, Target
    from ecoagent.schema import LinkRow

WORKERS = 8
"""Hosts asked at the same time."""


@dataclass(frozen=True)
class _Choice:
    """What is to be asked: the targets of the run, those chosen, and those of them that are due."""

    targets: list[Target]
    chosen: list[Target]
    due: list[Target]


def audit_links(
    kind: Annotated[
        list[str] | None, typer.Option(help="Only docs, page, repository or endpoint; may be repeated.")
    ] = None,
    source: Annotated[
        list[str] | None, typer.Option(help=f"Only tools of {', '.join(SOURCES)}; may be repeated.")
    ] = None,
    max_age_days: Annotated[
        float, typer.Option(min=0, help="An answer younger than this is not asked for again.")
    ] = 7.0,
    retry_unknown: Annotated[
        bool, typer.Option("--retry-unknown", help="Ask again where the last answer was not clear.")
    ] = False,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Hosts asked at the same time.")] = WORKERS,
    profile: Profile = None,
    run: Run = None,
    limit: Limit = None,
    overrides: Set = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Ask whether documentation, pages, repositories and endpoints answer; write the table of flaws.

    Nothing else asks other people's servers this much: hosts are asked at http.requests_per_second, their
    robots.txt is kept to. Stopped with Ctrl-C, what was done is kept and the same command goes on.

    Examples:

      ecoagent audit-links --run local --dry-run

      ecoagent audit-links --run local --kind docs --limit 100
    """

    def work() -> int:
        from ecoagent.reliability.links import KINDS

        one_of("--kind", kind or (), KINDS)
        one_of("--source", source or (), SOURCES)
        ctx = RunContext.create(settings_of(profile, run, limit, None, overrides), Progress())
        asked = _Asked(ctx, kind or (), source or (), max_age_days, retry_unknown)
        if dry_run:
            return _dry_run(ctx, asked.choose(), workers, as_json=as_json)
        with run_lock(ctx.paths.root):
            return _audit(ctx, asked, workers, as_json=as_json)

    guarded(work)


@dataclass(frozen=True)
class _Asked:
    """What the command line asks for."""

    ctx: RunContext
    kinds: Collection[str]
    sources: Collection[str]
    max_age_days: float
    retry_unknown: bool

    def choose(self) -> _Choice:
        """Targets of the run.

        Raises:
            UserError: the run has no table of tools.
        """
        from ecoagent.reliability.flaws import iter_facts
        from ecoagent.reliability.link_store import LinkStore
        from ecoagent.reliability.links import chosen, due, link_targets

        path, model = tools_of(self.ctx.paths)
        settings = self.ctx.settings
        targets = link_targets(iter_facts(path, model), allowed=settings.http.allow_private)
        picked = chosen(targets, self.kinds, self.sources)
        waiting = due(
            picked,
            LinkStore(self.ctx.paths.raw, clock=time.monotonic).load(),
            now=datetime.now(UTC),
            max_age_days=self.max_age_days,
            retry_unknown=self.retry_unknown,
        )
        return _Choice(targets, picked, waiting[: settings.limit])


def tools_of(paths: RunPaths) -> tuple[Path, type[NormalizedTool]]:
    """The table of tools of a run: scored if it is there, else normalised.

    Raises:
        MissingInputError: there is none.
    """
    for name, model in (("tools.parquet", ScoredTool), ("tools_normalized.parquet", NormalizedTool)):
        if (paths.core / name).is_file():
            return paths.core / name, model
    raise MissingInputError(
        f"run {paths.root.name!r} has no tools yet",
        remedy="run `ecoagent normalize` and what it needs first, or `ecoagent build`",
    )


def _dry_run(ctx: RunContext, choice: _Choice, workers: int, *, as_json: bool) -> int:
    from ecoagent.reliability.links import plan

    cost = plan(choice.due, per_second=ctx.settings.http.requests_per_second, workers=workers)
    facts = {
        "addresses": cost.urls,
        "answered before": len(choice.chosen) - len(choice.due),
        "hosts": cost.hosts,
        "requests, at least": cost.requests,
        "time, at least": duration(60 * cost.minutes),
    }
    if as_json:
        print_json({**asdict(cost), "known": facts["answered before"], "busiest": dict(cost.busiest)})
        return 0
    show_rows("dry run: nothing was asked", [facts])
    show_rows("busiest hosts", [{"host": host, "addresses": count} for host, count in cost.busiest])
    return 0


def _audit(ctx: RunContext, asked: _Asked, workers: int, *, as_json: bool) -> int:
    from ecoagent.crawlers.web.client import PoliteClient
    from ecoagent.reliability.link_store import LinkStore
    from ecoagent.reliability.links import check

    choice = asked.choose()
    store = LinkStore(ctx.paths.raw, clock=time.monotonic)
    store.load()
    finished, done = False, 0
    try:
        with (
            # Answers are kept in the run; kept a second time they would only grow old.
            PoliteClient(ctx.settings.http, store=None, say=ctx.progress.say) as client,
            ctx.progress.task("links", total=len(choice.due), unit="addresses") as task,
        ):

            def keep(result: Result) -> None:
                store.add(result)
                task.advance(1, note=f"{result.state}: {result.url}")

            done = check(choice.due, client, workers=workers, on_result=keep)
        store.settle()
        finished = True
    finally:
        store.flush()
        rows = store.gather(choice.targets)
        table = _write_flaws(ctx.paths, rows) if rows or finished else None
    if table is not None:
        _show(ctx, choice, rows, table, done, as_json=as_json)
    return 0


def _write_flaws(paths: RunPaths, rows: list[LinkRow]) -> FlawTable:
    from ecoagent.reliability.flaws import flaw_table, iter_facts, write_flaws

    path, model = tools_of(paths)
    rejects = paths.core / "tool_rejects.parquet"
    dropped = iter_facts(rejects, RejectedTool) if rejects.is_file() else iter(())
    table = flaw_table(iter_facts(path, model), dropped, rows)
    write_flaws(paths.out, table)
    return table


def _show(
    ctx: RunContext, choice: _Choice, rows: list[LinkRow], table: FlawTable, done: int, *, as_json: bool
) -> None:
    from ecoagent.reliability.links import state_counts

    wanted = {t.url for t in choice.chosen}
    shown = [row for row in rows if row.url in wanted]
    states = state_counts(choice.chosen, shown)
    seen = Counter((row.state, row.reason) for row in shown)
    reasons: list[dict[str, Any]] = [
        {"state": state, "reason": reason, "addresses": count}
        for (state, reason), count in sorted(seen.items(), key=lambda item: (-item[1], item[0]))
    ]
    path = str(ctx.paths.raw / "links.parquet")
    if as_json:
        flaws = [row.model_dump(mode="json") for row in table.rows]
        print_json(
            {
                "asked": done,
                "known": len(rows),
                "states": states,
                "reasons": reasons,
                "flaws": flaws,
                "path": path,
            }
        )
        return
    show_rows("addresses by source and kind", states)
    show_rows("what was seen", reasons)
    show_rows("flaws", flaw_rows(table))
    oldest = min((row.checked_at for row in rows), default="")
    age = f", the oldest answer of {oldest}" if oldest else ""
    ctx.progress.say(f"links: {done:,} asked, {len(rows):,} known{age}; table: {path}")


def flaw_rows(table: FlawTable) -> list[dict[str, Any]]:
    """Critical rows and totals over all sources, for a terminal."""
    return [
        {
            "flaw": row.flaw,
            "tools": row.tools,
            "flawed": row.flawed,
            "share": "" if row.share is None else f"{100 * row.share:.1f}%",
            "95%": ""
            if row.low is None or row.high is None
            else f"{100 * row.low:.1f}-{100 * row.high:.1f}%",
            "note": row.note,
        }
        for row in table.rows
        if row.source == "all" and (row.flawed or row.level != "minor")
    ]
