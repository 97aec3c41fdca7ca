"""``ecoagent publish``: the data set in Hub layout, checked by loading it, and its card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ecoagent.cli.options import DryRun, Json, Limit, Profile, Run, Seed, Set, guarded, settings_of
from ecoagent.cli.show import show_rows
from ecoagent.cli.stages import Force, run_flow
from ecoagent.runs import Progress, RunContext


def publish(
    verify: Annotated[
        bool, typer.Option("--verify", help="Then load every config and split as a user of the Hub would.")
    ] = False,
    card: Annotated[Path | None, typer.Option(help="Also write the data card to this file.")] = None,
    profile: Profile = None,
    run: Run = None,
    limit: Limit = None,
    seed: Seed = None,
    overrides: Set = None,
    force: Force = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Write the data set in Hub layout with its card.

    Example: ecoagent publish --verify --card dataset_card.md
    """

    def work() -> int:
        settings = settings_of(profile, run, limit, seed, overrides)
        code = run_flow(
            ("publish",),
            settings,
            overrides,
            force=("publish",) if force else (),
            dry_run=dry_run,
            as_json=as_json,
            flow_name="publish",
        )
        if dry_run:
            return code
        ctx = RunContext.create(settings, Progress(quiet=True))
        if card is not None:
            from ecoagent.publish import write_card

            write_card(ctx, card)
        if verify:
            from ecoagent.publish import verify_dataset

            loaded = verify_dataset(ctx.paths.out / "dataset")
            rows = [
                {"config": c, "split": s, "rows": n}
                for c, splits in loaded.items()
                for s, n in splits.items()
            ]
            show_rows("loaded with datasets.load_dataset", rows)
        return code

    guarded(work)
