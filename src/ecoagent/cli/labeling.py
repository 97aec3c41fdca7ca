"""``ecoagent label``: EcoAgent-Real, and the measurement its verifier rests on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
    print_json,
    settings_of,
)
from ecoagent.cli.show import show_rows
from ecoagent.cli.stages import Force, run_flow
from ecoagent.runs import Progress, RunContext, read_rows, run_lock
from ecoagent.settings import Settings, UserError


def label(
    calibrate: Annotated[
        Path | None,
        typer.Option(help="Instead: measure the verifier on the calibration fold and write this file."),
    ] = None,
    profile: Profile = None,
    run: Run = None,
    limit: Limit = None,
    seed: Seed = None,
    overrides: Set = None,
    force: Force = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Label EcoAgent-Real: encoder candidates, then verification by the model.

    Examples:

      ecoagent label --set labeling.max_verified=120

      ecoagent label --calibrate mine.json && ecoagent label --set labeling.calibration=mine.json
    """

    def work() -> int:
        settings = settings_of(profile, run, limit, seed, overrides)
        if calibrate is not None:
            return _calibrate(settings, calibrate, dry_run=dry_run, as_json=as_json)
        return run_flow(
            ("label",),
            settings,
            overrides,
            force=("label",) if force else (),
            dry_run=dry_run,
            as_json=as_json,
            flow_name="label",
        )

    guarded(work)


def _calibrate(settings: Settings, target: Path, *, dry_run: bool, as_json: bool) -> int:
    from ecoagent.labeling import load_calibrations
    from ecoagent.labeling.calibration_run import calibrate_verifier, write_calibrations
    from ecoagent.llm import close_engines
    from ecoagent.schema import ScoredTool

    ctx = RunContext.create(settings, Progress())
    table = ctx.paths.core / "tools.parquet"
    if not table.is_file():
        raise UserError(
            f"{table} is not there", remedy="run `ecoagent score` first, the catalog is measured on"
        )
    if dry_run:
        ctx.progress.say(f"would measure {settings.llm.model} on the calibration fold and write {target}")
        return 0
    with run_lock(ctx.paths.root):
        made = calibrate_verifier(
            settings, read_rows(table, ScoredTool), ctx.progress, most_requests=settings.limit
        )
        close_engines()
    known = load_calibrations(target) if target.is_file() else []
    same = (made.model, made.encoder, made.form)
    kept = [c for c in known if (c.model, c.encoder, c.form) != same]
    write_calibrations(target, [*kept, made])
    facts = made.model_dump(mode="json", exclude={"curve", "knots_x", "knots_y"})
    if as_json:
        print_json(facts)
    else:
        show_rows(f"calibration written to {target}", [{"what": k, "value": v} for k, v in facts.items()])
    return 0
