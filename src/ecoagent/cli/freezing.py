"""``ecoagent freeze``: the reference build, written from a run or compared with one."""

from __future__ import annotations

from dataclasses import asdict
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
from ecoagent.runs import Progress, RunContext, run_lock
from ecoagent.settings import Settings, UserError

DEFAULT = Path("reference_build")


def freeze(
    out: Annotated[Path, typer.Option(help="Folder of the reference build.")] = DEFAULT,
    check: Annotated[
        bool, typer.Option("--check", help="Instead: compare the run with it; exit code 1 if they differ.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a reference build that is there.")] = False,
    profile: Profile = None,
    run: Run = None,
    limit: Limit = None,
    seed: Seed = None,
    overrides: Set = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Write a run's model responses and statistics, so that others can replay it byte for byte.

    Examples:

      ecoagent freeze --run my-own --out my_build

      ecoagent freeze --run reference --check
    """

    def work() -> int:
        settings = settings_of(profile, run, limit, seed, overrides)
        ctx = RunContext.create(settings, Progress())
        if not ctx.paths.root.is_dir():
            raise UserError(
                f"there is no run {settings.run_name!r} under {ctx.paths.root.parent}",
                remedy="see `ecoagent runs`",
            )
        if check:
            return _check(ctx, out, as_json=as_json)
        return _freeze(ctx, settings, out, force=force, dry_run=dry_run, as_json=as_json)

    guarded(work, out=out)


def _freeze(
    ctx: RunContext, settings: Settings, out: Path, *, force: bool, dry_run: bool, as_json: bool
) -> int:
    from ecoagent.publish.reference import STATISTICS
    from ecoagent.publish.reference import freeze as write

    if (out / STATISTICS).is_file() and not force:
        raise UserError(
            f"{out} holds a reference build, which would be replaced",
            remedy="name another folder with --out, compare with --check, or replace it with --force",
        )
    if dry_run:
        ctx.progress.say(f"would write the responses and statistics of run {settings.run_name} to {out}")
        return 0
    with run_lock(ctx.paths.root):
        written = write(ctx, out)
    responses = written["responses"]
    if as_json:
        print_json(responses)
    else:
        show_rows(f"written to {out}", [{"what": k, "value": v} for k, v in responses.items()])
    return 0


def _check(ctx: RunContext, folder: Path, *, as_json: bool) -> int:
    from ecoagent.publish.reference import compare, load_statistics

    differences = compare(ctx, folder)
    tables = len(load_statistics(folder)["tables"])
    if as_json:
        print_json([asdict(d) for d in differences])
    elif differences:
        show_rows(
            "differs from the reference build",
            [
                {
                    "what": d.what,
                    "expected": d.expected[:16],
                    "found": d.found[:16],
                    "cause": "rounding of another processor, perhaps" if d.machine else "content",
                }
                for d in differences
            ],
        )
    if not differences:
        ctx.progress.say(f"all {tables} tables are those of the reference build, byte for byte")
    return 1 if any(not d.machine for d in differences) else 0
