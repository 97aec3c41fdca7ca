"""``ecoagent tail``: train and evaluate on a run, a folder in Hub layout, a data set of the Hub, or the
authors' own release."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from ecoagent.cli.options import DryRun, Json, Limit, Profile, Run, Seed, Set, guarded, one_of, settings_of
from ecoagent.cli.stages import ForceStages, run_flow
from ecoagent.runs import Progress, run_lock
from ecoagent.settings import Settings, UserError

STAGES = ("train", "evaluate")
FORMATS = ("hub", "ecoagent-release")


def _locate(dataset: str, settings: Settings, form: str | None = None) -> tuple[str, Path]:
    """What kind of thing ``dataset`` names, and where it is.

    Args:
        form: one of ``FORMATS``; none = told by what is there.

    Raises:
        UserError: it names nothing that is there.
    """
    from ecoagent.publish.importing import is_hub_layout
    from ecoagent.publish.released import find_release

    if form == "ecoagent-release":
        if find_release(Path(dataset)) is None:
            raise UserError(
                f"{dataset} holds no release of EcoAgent: no tools_*.csv with *_pairs.csv below it",
                remedy="give the folder of a clone of the authors' repository, or its data folder",
            )
        return "release", Path(dataset)
    runs = settings.outputs / "runs"
    for folder in (runs / dataset, Path(dataset)):
        if (folder / "core" / "tools.parquet").is_file():
            return "run", folder
    if is_hub_layout(Path(dataset)):
        return "folder", Path(dataset)
    if form is None and find_release(Path(dataset)) is not None:
        return "release", Path(dataset)
    if Path(dataset).exists():
        raise UserError(
            f"{dataset} is neither a run nor a data set in Hub layout nor a release of EcoAgent",
            remedy="give a run's name, or a folder with tools/ and syn/, or with tools_*.csv and *_pairs.csv",
        )
    if re.fullmatch(r"[\w.-]+/[\w.-]+", dataset):
        return "hub", Path(dataset)
    raise UserError(
        f"no run and no folder {dataset!r}",
        remedy="see `ecoagent runs`, or give a folder or ORG/NAME of the Hub",
    )


def import_authors(folder: Path, core: Path, settings: Settings) -> dict[str, int]:
    """Import the authors' release and say what is to be known of it; rows a table.

    Raises:
        UserError: see ``import_release``; or the weights for Eq. 4 cannot be had.
    """
    from ecoagent.models import ModelStore
    from ecoagent.publish.release_tables import import_release
    from ecoagent.publish.released import find_release
    from ecoagent.retrieval import Encoder, load_encoder
    from ecoagent.retrieval.stored import keep_vectors, store_folder

    files = find_release(folder)
    if files is None:
        raise UserError(f"{folder} holds no release of EcoAgent", remedy="give the folder of its data")
    progress, store, name = Progress(), ModelStore(settings.models), settings.reliability.encoder

    def load() -> Encoder:
        return load_encoder(store.path(name, progress), name=name, pooling="mean")

    # Kept vectors: a second import encodes nothing.
    encoder = keep_vectors(name, [store.digest(name), "mean"], store_folder(settings), load)

    def embed(texts: list[str]) -> Any:
        with progress.task("names and descriptions", total=len(set(texts)), unit="texts") as task:
            return encoder.encode_documents(texts, task.advance)

    record = import_release(files, core, embed, settings.reliability)
    for note in record["notes"]:
        progress.say(f"import: {note}")
    for path, why in record["not_read"].items():
        progress.say(f"import: {path} is not read: {why}")
    return {
        "tools": record["tools"]["rows"],
        "syn queries": record["syn"]["queries"],
        "real queries": record["real"]["queries"],
    }


def tail(
    dataset: Annotated[
        str | None, typer.Option(help="Run name or folder, data set folder, or ORG/NAME; by default the run.")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="hub, or ecoagent-release: the authors' own tools_*.csv, *_pairs.csv and eval_real*.jsonl; "
            "by default told by what is there.",
        ),
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

      ecoagent tail --dataset EcoAgent/data --format ecoagent-release --profile paper
    """

    def work() -> int:
        from ecoagent.publish.importing import fetch_dataset, import_dataset

        settings = settings_of(profile, run, limit, seed, overrides)
        one_of("--format", [form] if form else (), FORMATS)
        name = run
        if form is not None and dataset is None:
            raise UserError("--format says what --dataset is", remedy="give --dataset DIR")
        if dataset is not None:
            kind, found = _locate(dataset, settings, form)
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
                    if kind == "release":
                        counts = import_authors(folder, root / "core", settings)
                    else:
                        (root / "core" / "import.json").unlink(missing_ok=True)  # of another data set
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
