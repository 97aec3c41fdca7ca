"""Commands that run stages: ``build``, ``tail`` and one command a stage."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ecoagent.cli.options import (
    DryRun,
    Json,
    Limit,
    Profile,
    Run,
    Seed,
    Set,
    guarded,
    one_of,
    print_json,
    settings_of,
)
from ecoagent.cli.show import show_estimates, show_outcomes
from ecoagent.cli.stopping import require_space, stop_at_once_on_signals
from ecoagent.runs import Progress, RunContext, StageOutcome, duration
from ecoagent.schema import CATALOGS
from ecoagent.settings import MissingInputError, Settings, UserError, quiet_environment

Force = Annotated[bool, typer.Option("--force", help="Run the stage anew even if it is up to date.")]
ForceStages = Annotated[
    list[str] | None, typer.Option("--force", metavar="STAGE", help="Run this stage anew; may be repeated.")
]


UNKNOWN = "known once the stages before it have run"


def prepare(ctx: RunContext) -> None:
    """Set the environment before Prefect is imported."""
    from ecoagent.flows.context import prefect_home  # sets the rest of the environment on import

    home = prefect_home(ctx.paths.root)
    if home is not None:
        home.mkdir(parents=True, exist_ok=True)
    quiet_environment(home)


def missing_for(settings: Settings) -> list[str]:
    """What the doctor finds missing for these settings."""
    from ecoagent.cli.doctor import examine

    return [f"{f.what} ({f.detail})" for f in examine(settings) if f.state == "missing"]


def estimates(names: tuple[str, ...], ctx: RunContext) -> dict[str, dict[str, Any]]:
    """What each stage would do, as far as the stages before it have run."""
    from ecoagent.flows.stages import stage_named
    from ecoagent.runs import stage_key, up_to_date

    found: dict[str, dict[str, Any]] = {}
    for name in names:
        stage = stage_named(name)
        try:
            if up_to_date(stage, ctx, stage_key(stage, ctx)):
                unchanged = all(f["state"] == "up to date" for f in found.values())
                found[name] = {"state": "up to date" if unchanged else "up to date if its inputs stay"}
            else:
                found[name] = {"state": "would run", **stage.estimate(ctx)}
        except MissingInputError as error:
            found[name] = {"state": "would run", "estimate": UNKNOWN, "needs": error.message}
        except FileNotFoundError as error:
            found[name] = {"state": "would run", "estimate": UNKNOWN, "needs": str(error.filename)}
    return found


def run_flow(
    names: tuple[str, ...],
    settings: Settings,
    overrides: list[str] | None,
    *,
    force: tuple[str, ...] = (),
    dry_run: bool = False,
    as_json: bool = False,
    flow_name: str = "stage",
) -> int:
    """Run stages through their flow and show what came out.

    Raises:
        UserError: the run is not there, and the stage is not one that starts a run.
    """
    ctx = RunContext.create(settings)
    if flow_name not in ("build", "crawl") and not ctx.paths.root.is_dir():
        raise UserError(
            f"there is no run {settings.run_name!r} under {ctx.paths.root.parent}",
            remedy="see `ecoagent runs`, or start one with `ecoagent build` or `ecoagent crawl`",
        )
    if dry_run:
        planned = estimates(names, ctx)
        lacking = missing_for(settings)
        if lacking:
            ctx.progress.say("missing on this machine for these settings: " + "; ".join(lacking))
        print_json(planned) if as_json else show_estimates(planned)
        if not as_json and any(facts.get("estimate") == UNKNOWN for facts in planned.values()):
            ctx.progress.say(
                "to know more, run `ecoagent crawl`, `normalize` and `score` with these options first: "
                "they ask no model, and the dry run then counts requests, tokens and minutes"
            )
        return 0
    started = time.monotonic()
    ctx.progress.say(f"ecoagent {flow_name}: profile {settings.profile}, run {ctx.paths.root}")
    if not force:
        finished = finished_outcomes(names, ctx)
        if finished is not None:
            return finish(finished, ctx, flow_name, started, as_json=as_json)
    prepare(ctx)
    from ecoagent.flows import build as flows
    from ecoagent.flows.context import reap_orphan_servers
    from ecoagent.flows.single import call
    from ecoagent.llm import close_engines
    from ecoagent.runs import run_lock

    parameters: dict[str, Any] = {
        "profile": settings.profile_source,
        "run": settings.run or None,
        "overrides": tuple(overrides or ()),
        "limit": settings.limit,
        "seed": settings.seed,
        "progress": ctx.progress,
    }
    outcomes: list[StageOutcome]
    require_space(ctx.paths.root)
    stop_at_once_on_signals()
    with run_lock(ctx.paths.root):
        reap_orphan_servers(ctx.paths.root / ".prefect")
        if flow_name == "build":
            outcomes = flows.build(force=force, **parameters)
        elif flow_name == "tail":
            outcomes = flows.tail(force=force, **parameters)
        else:
            outcomes = [call(names[0], settings.flow.workers, force=bool(force), **parameters)]
            close_engines()
    return finish(outcomes, ctx, flow_name, started, as_json=as_json)


def finished_outcomes(names: tuple[str, ...], ctx: RunContext) -> list[StageOutcome] | None:
    """Outcomes of stages that are all up to date, found without starting a flow; else none."""
    from ecoagent.flows.stages import stage_named
    from ecoagent.runs import finished

    outcomes = []
    for name in names:
        outcome = finished(stage_named(name), ctx)
        if outcome is None:
            return None
        outcomes.append(outcome)
    for outcome in outcomes:
        ctx.progress.say(f"{outcome.name}: up to date")
    return outcomes


def finish(
    outcomes: list[StageOutcome], ctx: RunContext, flow_name: str, started: float, *, as_json: bool
) -> int:
    """Show what came out, and the time it took."""
    if as_json:
        print_json([asdict(o) for o in outcomes])
    else:
        show_outcomes(outcomes, ctx.paths)
    fresh = sum(o.status == "up to date" for o in outcomes)
    ctx.progress.say(
        f"{flow_name}: {len(outcomes) - fresh} stages run, {fresh} up to date, "
        f"{duration(time.monotonic() - started)} in all"
    )
    return 0


def add_stage_commands(app: typer.Typer, descriptions: dict[str, str]) -> None:
    """One command for each stage that has no options of its own."""
    for name, text in descriptions.items():
        app.command(name, help=text)(_stage_command(name))


def _stage_command(name: str) -> Any:
    def command(
        profile: Profile = None,
        run: Run = None,
        limit: Limit = None,
        seed: Seed = None,
        overrides: Set = None,
        force: Force = False,
        dry_run: DryRun = False,
        as_json: Json = False,
    ) -> None:
        def work() -> int:
            settings = settings_of(profile, run, limit, seed, overrides)
            return run_flow(
                (name,),
                settings,
                overrides,
                force=(name,) if force else (),
                dry_run=dry_run,
                as_json=as_json,
                flow_name=name,
            )

        guarded(work)

    return command


def crawl(
    source: Annotated[
        list[str] | None,
        typer.Option(help="Catalog to crawl; may be repeated: langchain, crewai, llamaindex, n8n."),
    ] = None,
    granularity: Annotated[str | None, typer.Option(help="package, tool or operation.")] = None,
    backend: Annotated[
        str | None,
        typer.Option(help="client: packages through pip and npm; http: documentation pages; both."),
    ] = None,
    lock: Annotated[Path | None, typer.Option(help="Lock file; by default the one shipped.")] = None,
    update_lock: Annotated[
        bool,
        typer.Option(
            "--update-lock",
            help="Fetch what is selected and write its hashes to --lock; what is there already is kept "
            "unless --force is given. With --backend http or both, documentation pages too.",
        ),
    ] = False,
    table: Annotated[
        Path | None,
        typer.Option(
            help="With --update-lock: pin the packages of this CSV file, the newest where no version is "
            "given; `shipped` is the table that comes along. With --discover: the file written."
        ),
    ] = None,
    discover: Annotated[
        bool,
        typer.Option(
            "--discover",
            help="Append packages of n8n's verified list to --table; with --set http.npm_search=true also "
            "those of a search in npm's registry.",
        ),
    ] = False,
    pin: Annotated[
        list[str] | None,
        typer.Option(help="With --update-lock: also pin SOURCE:NAME==VERSION; may be repeated."),
    ] = None,
    check_digests: Annotated[
        Path | None,
        typer.Option(help="Compare the crawled candidates with a file of digests, field by field."),
    ] = None,
    profile: Profile = None,
    run: Run = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most this many packages of each catalog.")
    ] = None,
    seed: Seed = None,
    overrides: Set = None,
    force: Force = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Read the tool catalogs through the user's own pip and npm, and from their documentation.

    Examples:

      ecoagent crawl --source crewai

      ecoagent crawl --set crawl.n8n_official=true --dry-run

      ecoagent crawl --update-lock --table shipped --source langchain --limit 5 --lock my.lock.json

      ecoagent crawl --update-lock --backend http --lock my.lock.json --dry-run

      ecoagent crawl --discover --table packages.csv

      ecoagent crawl --lock my.lock.json --backend both --run wide
    """

    def work() -> int:
        from ecoagent.cli.crawling import check, rewrite_lock
        from ecoagent.cli.crawling import discover as find_packages

        extra = list(overrides or ())
        one_of("--source", source or (), CATALOGS)
        one_of("--granularity", [granularity] if granularity else (), ("package", "tool", "operation"))
        one_of("--backend", [backend] if backend else (), ("client", "http", "both"))
        if source:
            extra.append("crawl.catalogs=[" + ", ".join(f'"{s}"' for s in source) + "]")
        if granularity:
            extra.append(f'crawl.granularity="{granularity}"')
        if backend:
            extra.append(f'crawl.backend="{backend}"')
        if lock:
            extra.append(f'crawl.lock="{lock}"')
        if table:
            extra.append(f'crawl.table="{table}"')
        settings = settings_of(profile, run, limit, seed, extra)
        if table and not (update_lock or discover):
            raise UserError(
                "--table does nothing by itself: a crawl reads what the lock file pins",
                remedy="add --update-lock --lock FILE to pin its packages, or --discover to add to it",
            )
        if discover:
            code = find_packages(settings, dry_run=dry_run, as_json=as_json)
            if not update_lock:
                return code
        if update_lock:
            return rewrite_lock(
                settings,
                pin or [],
                force=force,
                with_pages=backend in ("http", "both"),
                dry_run=dry_run,
                as_json=as_json,
            )
        code = run_flow(
            ("crawl",),
            settings,
            extra,
            force=("crawl",) if force else (),
            dry_run=dry_run,
            as_json=as_json,
            flow_name="crawl",
        )
        if check_digests is not None and not dry_run:
            return check(RunContext.create(settings, Progress()), check_digests)
        return code

    guarded(work)
