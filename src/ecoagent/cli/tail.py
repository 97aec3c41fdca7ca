"""``ecoagent tail``: train and evaluate on a run, a folder in Hub layout or a data set of the Hub."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from ecoagent.cli.options import DryRun, Json, Limit, Profile, Run, Seed, Set, guarded, settings_of
from ecoagent.cli.stages import ForceStages, run_flow
from ecoagent.runs import Progress, run_lock
from ecoagent.settings import Settings, UserError

STAGES = ("train", "evaluate")


def _locate(dataset: str, settings: Settings) -> tuple[str, Path]:
    """What kind of thing ``dataset`` names, and where it is.

    Raises:
        UserError: it names nothing that is there.
    """
    from ecoagent.publish.importing import is_hub_layout

    runs = settings.outputs / "runs"
    for folder in (runs / dataset, Path(dataset)):
        if (folder / "core" / "tools.parquet").is_file():
            return "run", folder
    if is_hub_layout(Path(dataset)):
        return "folder", Path(dataset)
    if Path(dataset).exists():
        raise UserError(
            f"{dataset} is neither a run nor a data set in Hub layout",
            remedy="give a folder with tools/ and syn/, or a run's name",
        )
    if re.fullmatch(r"[\w.-]+/[\w.-]+", dataset):
        return "hub", Path(dataset)
    raise UserError(
        f"no run and no folder {dataset!r}",
        remedy="see `ecoagent runs`, or give a folder or ORG/NAME of the Hub",
    )


def tail(
    dataset: Annotated[
        str | None, typer.Option(help="Run name or folder, data set folder, or ORG/NAME; by default the run.")
    ] = None,
    profile: Profile = None,
    run: Run = None,
    limit: Limit = None,
    seed: Seed = None,
    overrides: Set = None,
    force: ForceStages = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Train the dual encoder and evaluate, on any EcoAgent data set.

    Examples:

      ecoagent tail --dataset local --set train.epochs=5

      ecoagent tail --dataset outputs/runs/local/out/dataset --run from-folder
    """

    def work() -> int:
        from ecoagent.publish.importing import fetch_dataset, import_dataset

        settings = settings_of(profile, run, limit, seed, overrides)
        name = run
        if dataset is not None:
            kind, found = _locate(dataset, settings)
            if kind == "run":
                if run is not None and (settings.outputs / "runs" / run).resolve() != found.resolve():
                    raise UserError(
                        f"--dataset {dataset} is a run of its own, so --run {run} cannot apply",
                        remedy="leave --run out, or give the run's out/dataset folder",
                    )
                if found.resolve().parent != (settings.outputs / "runs").resolve():
                    raise UserError(
                        f"run {found} is not under {settings.outputs / 'runs'}",
                        remedy=f"add --set outputs={found.resolve().parent.parent}",
                    )
                name = found.name
            else:
                name = run or f"tail-{re.sub(r'[^A-Za-z0-9.-]+', '-', dataset).strip('-')}"[:90]
                root = settings.outputs / "runs" / name
                if (root / ".stages" / "score.json").is_file():
                    raise UserError(
                        f"run {name!r} was built, and importing would replace its tables",
                        remedy="give the import another name with --run",
                    )
                if dry_run:
                    Progress().say(f"would import {dataset} into {root}")
                    return 0
                with run_lock(root):
                    folder = fetch_dataset(dataset, root / "raw" / "hub") if kind == "hub" else found
                    counts = import_dataset(folder, root / "core")
                Progress().say(f"imported {folder}: " + ", ".join(f"{n:,} {t}" for t, n in counts.items()))
        return run_flow(
            STAGES,
            settings_of(profile, name, limit, seed, overrides),
            overrides,
            force=tuple(force or ()),
            dry_run=dry_run,
            as_json=as_json,
            flow_name="tail",
        )

    guarded(work)
