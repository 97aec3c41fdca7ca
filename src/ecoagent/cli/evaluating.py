"""``ecoagent evaluate``: Tables 1 and 2, and the same rankers on independent collections."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ecoagent.cli.options import (
    DryRun,
    Json,
    Profile,
    Run,
    Seed,
    Set,
    guarded,
    print_json,
    settings_of,
)
from ecoagent.cli.show import show_estimates, show_rows
from ecoagent.cli.stages import Force, run_flow
from ecoagent.cli.stopping import require_space, stop_at_once_on_signals
from ecoagent.runs import RunContext, execute, run_lock, stage_key, up_to_date
from ecoagent.settings import Settings, UserError

if TYPE_CHECKING:
    from ecoagent.evaluation.benchmark_stage import BenchmarkStage
    from ecoagent.evaluation.benchmarks import Benchmark

PANEL = "Independent collections"
EVERY = "all"
"""In place of a collection's name: every one of the folder."""


def evaluate(
    benchmark: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DIR[/SET]",
            help="Instead: judge the rankers of evaluate.rankers on a test collection (JSON lines, BEIR, "
            "ToolBench), or on hub:mangopy/ToolRet-Queries[/CONFIG] with its tools; may be repeated.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    collection: Annotated[
        list[str] | None,
        typer.Option(
            help=f"The set, where a folder holds several; may be repeated; `{EVERY}` = each of them.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    profile: Profile = None,
    run: Run = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, help="At most this many queries of each split; of a collection, drawn by seeded hash."
        ),
    ] = None,
    seed: Seed = None,
    overrides: Set = None,
    force: Force = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Offline ranking metrics and the failure simulator (Tables 1 and 2).

    Examples:

      ecoagent evaluate

      ecoagent evaluate --benchmark DIR/restbench --benchmark DIR/sealtools

      ecoagent evaluate --benchmark DIR --collection all --limit 500 --dry-run

      ecoagent evaluate --benchmark hub:mangopy/ToolRet-Queries/apigen
    """

    def work() -> int:
        if collection and not benchmark:
            raise UserError("--collection chooses in a folder", remedy="give --benchmark DIR")
        if benchmark:
            # The limit is the benchmark's own: among the settings it would be recorded as the run's.
            settings = settings_of(profile, run, None, seed, overrides)
            return judge(
                settings, benchmark, collection or [], limit, force=force, dry_run=dry_run, as_json=as_json
            )
        settings = settings_of(profile, run, limit, seed, overrides)
        return run_flow(
            ("evaluate",),
            settings,
            overrides,
            force=("evaluate",) if force else (),
            dry_run=dry_run,
            as_json=as_json,
            flow_name="evaluate",
        )

    guarded(work)


def load_benchmarks(where: list[str], names: list[str], *, limit: int | None, seed: int) -> list[Benchmark]:
    """The collections that the options name, by name.

    Raises:
        UserError: one is not there or damaged, two have one name, or names are given for several folders.
    """
    from ecoagent.evaluation.benchmarks import make_benchmark
    from ecoagent.evaluation.toolret import is_hub, load_hub_collections
    from ecoagent.metrics import TOOLRET_METRICS
    from ecoagent.retrieval.collections import collection_at, collection_names

    if names and len(where) > 1:
        raise UserError(
            "--collection chooses in one folder, and --benchmark names several",
            remedy="write --benchmark DIR/SET for each",
        )
    found: dict[str, Benchmark] = {}
    for place in where:
        if is_hub(place):
            chosen = None if not names or names == [EVERY] else names
            made = [
                make_benchmark(
                    c.collection,
                    limit=limit,
                    seed=seed,
                    unknown_golds=c.unknown_golds,
                    own_metrics=TOOLRET_METRICS,
                )
                for c in load_hub_collections(place, chosen)
            ]
        else:
            wanted: list[str | None] = [*names] if names else [None]
            if names == [EVERY]:
                wanted = [*collection_names(Path(place))]
            made = [make_benchmark(collection_at(place, name), limit=limit, seed=seed) for name in wanted]
        for benchmark in made:
            if benchmark.name in found:
                raise UserError(
                    f"two collections are called {benchmark.name!r}",
                    remedy="judge them one after the other, or rename one",
                )
            found[benchmark.name] = benchmark
    return [found[name] for name in sorted(found)]


def judge(
    settings: Settings,
    where: list[str],
    names: list[str],
    limit: int | None,
    *,
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Judge the run's rankers on collections and write ``out/results/benchmarks.json``.

    Raises:
        UserError: a collection is not there or damaged, or a trained ranker is asked for and not there.
    """
    from ecoagent.evaluation.benchmark_stage import benchmark_stage, write_benchmarks
    from ecoagent.evaluation.ranking import ranker_keys

    ctx = RunContext.create(settings)
    keys = ranker_keys(ctx, settings.evaluate.rankers)
    benchmarks = load_benchmarks(where, names, limit=limit, seed=settings.seed)
    stages = [benchmark_stage(b, keys) for b in benchmarks]
    if dry_run:
        planned = {stage.benchmark.name: _planned(stage, ctx) for stage in stages}
        print_json(planned) if as_json else show_estimates(planned)
        return 0
    require_space(ctx.paths.root)
    stop_at_once_on_signals()
    with run_lock(ctx.paths.root):
        for number, stage in enumerate(stages, 1):
            ctx.progress.say(f"[{number}/{len(stages)}] {stage.benchmark.name}")
            execute(stage, ctx, force=force)
            content = write_benchmarks(ctx)
        content = write_benchmarks(ctx, ctx.progress.say)
    mine = {b.name for b in benchmarks}
    shown = {
        "sets": [facts for facts in content["sets"] if facts["set"] in mine],
        "rows": [row for row in content["rows"] if row["set"] in mine],
        "averages": content["averages"],
        "notes": content["notes"],
    }
    if as_json:
        print_json(shown)
    else:
        _show(shown, ctx)
    return 0


def _planned(stage: BenchmarkStage, ctx: RunContext) -> dict[str, Any]:
    if up_to_date(stage, ctx, stage_key(stage, ctx)):
        return {"state": "up to date"}
    return {"state": "would run", **stage.estimate(ctx)}


def _show(content: dict[str, Any], ctx: RunContext) -> None:
    from ecoagent.evaluation.benchmark_stage import RESULT, TABLE, shown_own, shown_rows
    from ecoagent.evaluation.offline import NOT_RUN

    columns = ("set", "queries", "queries_with_gold", "tools", "duplicate_tools", "licence", "origin")
    sets = [
        {c: facts[c] for c in columns}
        | {"left out": "; ".join(f"{reason} {count:,}" for reason, count in facts["left_out"].items())}
        for facts in content["sets"]
    ]
    show_rows("collections", sets)
    show_rows("rankers on independent collections", shown_rows(content["rows"]))
    named = ("origin", "label", "asked", "sets", "queries")
    means = [{**{n: a[n] for n in named}, **shown_own(a)} for a in content["averages"]]
    show_rows("averages over sets", means)
    for row in content["rows"]:
        if row["status"] == NOT_RUN:
            ctx.progress.say(f"{row['set']}: {row['label']} is not run: {row['reason']}")
    folder = ctx.paths.out / "results"
    ctx.progress.say(f"{folder / RESULT}, {TABLE}; `ecoagent report` shows them")
