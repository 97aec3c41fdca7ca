"""``ecoagent index``: which tool fits a request now, new tools without training included."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ecoagent.cli.data import run_tables
from ecoagent.cli.options import DryRun, Json, Limit, Profile, Run, Set, guarded, print_json, settings_of
from ecoagent.cli.show import show_rows
from ecoagent.runs import RunContext, run_lock

if TYPE_CHECKING:
    from ecoagent.evaluation.run_index import IndexReport, RunIndex

_SHOWN = 100

index_app = typer.Typer(
    help="Search the tools of a run by request; add tools without training.", no_args_is_help=True
)


@index_app.callback()
def _group() -> None:
    """Search the tools of a run by request; add tools without training."""


@index_app.command("build")
def build(
    profile: Profile = None,
    run: Run = None,
    overrides: Set = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Index every tool of a run by its trained encoder, else by the untrained one.

    Tools added before are not kept. Vectors are stored: what was encoded once is not encoded again.

    Example: ecoagent index build --run local
    """

    def work() -> int:
        index = _index(profile, run, overrides)
        if dry_run:
            from ecoagent.runs import count_rows

            count = count_rows(index.ctx.paths.core / "tools.parquet")
            return _show({"tools": count, "encoder": index.encoder.name}, "would be indexed", as_json)
        with run_lock(index.ctx.paths.root):
            return _report(index, index.build(), as_json)

    guarded(work)


@index_app.command("add")
def add(
    tools: Annotated[
        Path,
        typer.Argument(
            help="JSON lines or Parquet: id with a tool_text, or with name, description and, where there "
            "are any, display_name, group_name, operations, tags and source."
        ),
    ],
    profile: Profile = None,
    run: Run = None,
    limit: Limit = None,
    overrides: Set = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Put tools into a run's index; only new texts are encoded, and they are found at once.

    Their r_static (Eq. 5) is measured by the run's own scales; a tool_text alone has none.

    Example: ecoagent index add my_tools.jsonl --run local
    """

    def work() -> int:
        from ecoagent.evaluation.new_tools import read_new_tools

        index = _index(profile, run, overrides)
        new = read_new_tools(tools, limit)
        if dry_run:
            return _show({"tools": len(new), "encoder": index.encoder.name}, "would be added", as_json)
        with run_lock(index.ctx.paths.root):
            return _report(index, index.add(new), as_json)

    guarded(work)


@index_app.command("remove")
def remove(
    ids: Annotated[list[str], typer.Argument(help="Ids of tools.")],
    profile: Profile = None,
    run: Run = None,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Take tools out of a run's index; the run's tables stay as they are.

    Example: ecoagent index remove mine:send_fax --run local
    """

    def work() -> int:
        index = _index(profile, run, overrides)
        with run_lock(index.ctx.paths.root):
            return _show({"removed": len(set(ids)), "tools": index.remove(ids)}, "index", as_json)

    guarded(work)


@index_app.command("search")
def search(
    request: Annotated[str, typer.Argument(help="What is to be done, in words.")],
    k: Annotated[int, typer.Option("--k", min=1, help="Tools shown.")] = 5,
    profile: Profile = None,
    run: Run = None,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """The tools that fit a request best, with their cosine and metadata reliability.

    Example: ecoagent index search "post a message to a channel" --run local --k 5
    """

    def work() -> int:
        from ecoagent.settings import UserError

        if not request.strip():
            raise UserError("the request is empty", remedy="say what is to be done")
        [found] = _index(profile, run, overrides).search([request], k)
        if as_json:
            print_json([{"rank": n, "score": f.hit.score, **_facts(f.tool)} for n, f in enumerate(found, 1)])
            return 0
        show_rows(
            "tools",
            [
                {
                    "tool": f.tool.id,
                    "score": f"{f.hit.score:.3f}",
                    "r_static": "" if f.tool.r_static is None else f"{f.tool.r_static:.3f}",
                    "text": f.tool.tool_text[:_SHOWN] + ("…" if len(f.tool.tool_text) > _SHOWN else ""),
                }
                for f in found
            ],
        )
        return 0

    guarded(work)


def _index(profile: str | None, run: str | None, overrides: list[str] | None) -> RunIndex:
    settings = settings_of(profile, run, None, None, overrides)
    run_tables(settings, settings.run_name)
    from ecoagent.evaluation.run_index import RunIndex

    return RunIndex(RunContext.create(settings))


def _facts(tool: Any) -> dict[str, Any]:
    facts: dict[str, Any] = tool.model_dump(mode="json")
    return facts


def _show(facts: dict[str, Any], title: str, as_json: bool) -> int:
    print_json(facts) if as_json else show_rows(title, [facts])
    return 0


def _report(index: RunIndex, report: IndexReport, as_json: bool) -> int:
    from ecoagent.retrieval import store_folder, store_size

    facts, folder = asdict(report), store_folder(index.ctx.settings)
    store = store_size(folder)
    if as_json:
        facts["store"] = {"folder": str(folder), **asdict(store)}
        print_json(facts)
        return 0
    recall = facts.pop("recall")
    facts["recall"] = "exact" if recall is None else f"{recall['recall']:.3f} at {recall['k']}"
    show_rows("index", [facts])
    index.ctx.progress.say(
        f"index: {folder} keeps {store.vectors:,} vectors of every encoder so far "
        f"in {store.bytes / 1e6:.1f} MB; it may be deleted, what is needed is encoded again"
    )
    return 0
