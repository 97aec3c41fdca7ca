"""``ecoagent build`` and ``ecoagent synthesize``: what of it is generated anew, and what is replayed."""

from __future__ import annotations

from typing import Annotated

import typer

from ecoagent.cli.options import (
    DryRun,
    Json,
    Limit,
    Profile,
    RealSplit,
    Run,
    Seed,
    Set,
    guarded,
    real_split_overrides,
    settings_of,
)
from ecoagent.cli.stages import Force, ForceStages, run_flow
from ecoagent.settings import UserError

Live = Annotated[
    str | None,
    typer.Option(
        metavar="N|all",
        help="Ask the model anew for N tools of each catalog and replay published responses for the rest; "
        "all: replay nothing.",
    ),
]


def live_overrides(live: str | None) -> list[str]:
    """Settings that ``--live`` stands for.

    Raises:
        UserError: neither a number nor ``all``.
    """
    if live is None:
        return []
    if live == "all":
        return ["llm.reference=none"]
    if live.isdecimal():
        return [f"synthesis.live_per_catalog={int(live)}"]
    raise UserError(f"--live {live!r} is neither a number nor all", remedy="write --live 3 or --live all")


def build(
    profile: Profile = None,
    run: Run = None,
    limit: Limit = None,
    seed: Seed = None,
    overrides: Set = None,
    live: Live = None,
    real_split: RealSplit = None,
    force: ForceStages = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Regenerate EcoAgent, from the crawl of the four catalogs to the report.

    Stages that are up to date are passed over; a build that was interrupted goes on where it stopped.

    Examples:

      ecoagent build

      ecoagent build --profile smoke --run first-look

      ecoagent build --profile reference --live all --run my-own

      ecoagent build --force train --set train.epochs=5

      ecoagent build --profile paper --dry-run
    """

    def work() -> int:
        from ecoagent.flows.stages import STAGE_NAMES

        chosen = [*(overrides or ()), *live_overrides(live), *real_split_overrides(real_split)]
        settings = settings_of(profile, run, limit, seed, chosen)
        return run_flow(
            STAGE_NAMES,
            settings,
            chosen,
            force=tuple(force or ()),
            dry_run=dry_run,
            as_json=as_json,
            flow_name="build",
        )

    guarded(work)


def synthesize(
    profile: Profile = None,
    run: Run = None,
    limit: Limit = None,
    seed: Seed = None,
    overrides: Set = None,
    live: Live = None,
    force: Force = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Generate EcoAgent-Syn: queries, filters, exact deduplication, negatives, splits.

    Examples:

      ecoagent synthesize --live 3

      ecoagent synthesize --run local --set synthesis.max_round_trip_rank=10
    """

    def work() -> int:
        chosen = [*(overrides or ()), *live_overrides(live)]
        settings = settings_of(profile, run, limit, seed, chosen)
        return run_flow(
            ("synthesize",),
            settings,
            chosen,
            force=("synthesize",) if force else (),
            dry_run=dry_run,
            as_json=as_json,
            flow_name="synthesize",
        )

    guarded(work)
