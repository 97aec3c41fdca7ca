"""Stages: content keys, shards that are never redone, a marker written last."""

from __future__ import annotations

import json
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from ecoagent import __version__
from ecoagent.runs.atomic import (
    digest,
    replace_directory,
    sha256_file,
    temporary_sibling,
    write_json,
    write_text,
)
from ecoagent.runs.context import RunContext
from ecoagent.runs.manifest import read_marker, record_stage
from ecoagent.settings import MissingInputError, result_settings

SHARD_MARKER = "_shard.json"
MARKER_FIELDS = {
    "key": str,
    "stage": str,
    "outputs": dict,
    "rows": dict,
    "rejects": dict,
    "tokens": dict,
    "summary": dict,
}
"""What a completion marker must hold; one that does not counts as absent, and the stage runs again."""


@dataclass(frozen=True)
class Shard:
    """A piece of a stage: a folder name and the sorted ids it covers."""

    key: str
    ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class ShardResult:
    """A finished shard and the folder that holds its files."""

    shard: Shard
    directory: Path


@dataclass
class StageReport:
    """What a stage wrote and counted."""

    outputs: list[Path] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    rejects: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)
    """What a model was asked, and how long: differs from run to run."""


@dataclass(frozen=True)
class StageOutcome:
    """How a stage ended."""

    name: str
    status: Literal["done", "up to date"]
    seconds: float
    report: StageReport


class Stage(ABC):
    """One step of the pipeline. Subclasses stay thin over pure functions."""

    name: ClassVar[str]
    version: ClassVar[str]
    sections: ClassVar[tuple[str, ...]] = ()
    shards_alone: ClassVar[bool] = False
    """Whether ``shard_content`` says all that a shard depends on: then a change elsewhere keeps it."""

    def inputs(self, ctx: RunContext) -> list[Path]:
        """Files of the run whose bytes this stage depends on."""
        return []

    def extra_key(self, ctx: RunContext) -> dict[str, Any]:
        """Digests of prompts, weights and lock files this stage depends on."""
        return {}

    def plan(self, ctx: RunContext) -> list[Shard]:
        """Shards, in order."""
        return [Shard("all")]

    def shard_content(self, ctx: RunContext, shard: Shard) -> Any:
        """What one shard depends on, JSON-able; by default all inputs."""
        return input_digests(self, ctx)

    def estimate(self, ctx: RunContext) -> dict[str, Any]:
        """What a run would cost, for ``--dry-run``."""
        return {"shards": len(self.plan(ctx))}

    @abstractmethod
    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        """Write the shard's files into ``directory``."""

    def shard_finished(self, directory: Path) -> bool:
        """Whether a shard written before lacks nothing; if not, it is run again.

        Args:
            directory: its folder; its files are as they were written.
        """
        return True

    @abstractmethod
    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """Make the stage's outputs from its shards."""


Mapper = Callable[[Callable[[Shard], str], Sequence[Shard]], None]
"""Runs a function over shards; flows give one that runs them as tasks."""


def serial(work: Callable[[Shard], str], shards: Sequence[Shard]) -> None:
    """The plain mapper: one shard after the other."""
    for shard in shards:
        work(shard)


def input_digests(stage: Stage, ctx: RunContext) -> dict[str, str]:
    """SHA-256 of each input.

    Raises:
        MissingInputError: an input is missing; the stage that makes it has not run.
    """
    digests = {}
    for path in stage.inputs(ctx):
        if not path.is_file():
            raise MissingInputError(
                f"stage {stage.name!r} needs {path}, which is not there",
                remedy="run the stages before it, or `ecoagent build`",
            )
        digests[ctx.paths.relative(path)] = sha256_file(path)
    return dict(sorted(digests.items()))


def _base_key(stage: Stage, ctx: RunContext) -> dict[str, Any]:
    return {
        "stage": stage.name,
        "version": stage.version,
        "package": __version__,
        "settings": result_settings(ctx.settings, stage.sections),
        "extra": stage.extra_key(ctx),
    }


def stage_key(stage: Stage, ctx: RunContext) -> str:
    """Key of a stage: code version, the settings it reads, input, prompt and weight digests."""
    return digest({**_base_key(stage, ctx), "inputs": input_digests(stage, ctx)})


def marker_path(name: str, ctx: RunContext) -> Path:
    """Completion marker of a stage."""
    return ctx.paths.markers / f"{name}.json"


def _load_marker(name: str, ctx: RunContext) -> dict[str, Any] | None:
    return read_marker(marker_path(name, ctx), MARKER_FIELDS)


def up_to_date(stage: Stage, ctx: RunContext, key: str) -> bool:
    """Whether the marker holds ``key``, nothing was left open, and outputs have the bytes recorded."""
    marker = _load_marker(stage.name, ctx)
    if marker is None or marker["key"] != key:
        return False
    if marker["summary"].get("incomplete"):
        return False  # something could not be had; it is tried again
    for relative, expected in marker["outputs"].items():
        path = ctx.paths.root / relative
        if not path.is_file() or sha256_file(path) != expected:
            return False
    return True


def forget(name: str, ctx: RunContext) -> None:
    """Drop a stage's marker and shards, so that it runs anew."""
    marker_path(name, ctx).unlink(missing_ok=True)
    shutil.rmtree(ctx.paths.raw / name, ignore_errors=True)


def folder_done(directory: Path, key: str) -> bool:
    """Whether ``write_folder`` wrote ``directory`` for ``key``, and its files have the bytes recorded."""
    stored = read_marker(directory / SHARD_MARKER, {"key": str, "files": dict})
    if stored is None:
        return False
    return stored["key"] == key and all(
        (directory / name).is_file() and sha256_file(directory / name) == expected
        for name, expected in stored["files"].items()
    )


@dataclass(frozen=True)
class ShardWork:
    """What a mapper runs over shards: it says enough of itself for another process to do the same.

    Attributes:
        stage: the stage.
        ctx: its run.
        keys: content key of each shard by its name.
    """

    stage: Stage
    ctx: RunContext
    keys: dict[str, str]

    def __call__(self, shard: Shard) -> str:
        """Run one shard; returns its folder."""
        return _run_shard(self.stage, self.ctx, self.keys[shard.key], shard)


def _run_shard(stage: Stage, ctx: RunContext, key: str, shard: Shard) -> str:
    final = ctx.paths.raw / stage.name / shard.key
    write_folder(final, key, lambda directory: stage.run_shard(ctx, shard, directory))
    return str(final)


def write_folder(final: Path, key: str, write: Callable[[Path], None]) -> None:
    """Write a folder that is whole or absent, with a record of its files in it.

    Args:
        final: its place; what stood there is replaced.
        key: of what its files depend on, for ``folder_done``.
        write: writes them into the folder it is given, which lies beside ``final``.
    """
    temporary = temporary_sibling(final)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        write(temporary)
        files = sorted(p for p in temporary.rglob("*") if p.is_file())
        listing = {p.relative_to(temporary).as_posix(): sha256_file(p) for p in files}
        write_json(temporary / SHARD_MARKER, {"key": key, "files": listing})
        replace_directory(temporary, final)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _shard_keys(stage: Stage, ctx: RunContext, shards: Sequence[Shard]) -> dict[str, str]:
    """Content key of each shard by its name."""
    base = _base_key(stage, ctx)
    if stage.shards_alone:
        base = {k: base[k] for k in ("stage", "version", "package")}
    return {s.key: digest({**base, "ids": s.ids, "content": stage.shard_content(ctx, s)}) for s in shards}


def _missing(stage: Stage, ctx: RunContext, shards: Sequence[Shard], keys: dict[str, str]) -> list[Shard]:
    folder = ctx.paths.raw / stage.name
    return [
        s
        for s in shards
        if not (folder_done(folder / s.key, keys[s.key]) and stage.shard_finished(folder / s.key))
    ]


def missing_shards(stage: Stage, ctx: RunContext) -> list[Shard]:
    """Shards that are not there yet, or no longer as they would be written now; for estimates."""
    shards = stage.plan(ctx)
    return _missing(stage, ctx, shards, _shard_keys(stage, ctx, shards))


def finished(stage: Stage, ctx: RunContext) -> StageOutcome | None:
    """The outcome of a stage that is up to date, as its marker tells it; none if it has to run."""
    started = time.monotonic()
    marker = _load_marker(stage.name, ctx)
    if marker is None or not up_to_date(stage, ctx, stage_key(stage, ctx)):
        return None
    report = StageReport(
        [ctx.paths.root / p for p in marker["outputs"]],
        marker["rows"],
        marker["rejects"],
        marker["tokens"],
        marker["summary"],
    )
    return StageOutcome(stage.name, "up to date", time.monotonic() - started, report)


def execute(stage: Stage, ctx: RunContext, *, force: bool = False, mapper: Mapper = serial) -> StageOutcome:
    """Run a stage, or find it up to date.

    Shards that are finished and whose key and files are as recorded are kept; the others run through
    ``mapper``. Outputs are written by the stage through atomic writers, the marker last, so that a
    process killed at any moment leaves either the old state or the new.
    """
    started = time.monotonic()
    if force:
        forget(stage.name, ctx)
    found = finished(stage, ctx)
    if found is not None:
        ctx.progress.say(f"{stage.name}: up to date")
        return found
    key = stage_key(stage, ctx)
    marker_path(stage.name, ctx).unlink(missing_ok=True)
    ctx.progress.say(f"{stage.name}: started")
    shards = stage.plan(ctx)
    keys = _shard_keys(stage, ctx, shards)
    folder = ctx.paths.raw / stage.name
    missing = _missing(stage, ctx, shards, keys)
    if len(missing) < len(shards):
        ctx.progress.say(
            f"{stage.name}: {len(shards) - len(missing)} of {len(shards)} shards kept from before"
        )

    mapper(ShardWork(stage, ctx, keys), missing)
    for stale in sorted(folder.iterdir()) if folder.is_dir() else []:
        if stale.is_dir() and stale.name not in keys:
            shutil.rmtree(stale)
    report = stage.merge(ctx, [ShardResult(s, folder / s.key) for s in shards])
    seconds = time.monotonic() - started
    marker = {
        "key": key,
        "stage": stage.name,
        "version": stage.version,
        "inputs": input_digests(stage, ctx),
        "extra": stage.extra_key(ctx),
        "outputs": {ctx.paths.relative(p): sha256_file(p) for p in sorted(report.outputs)},
        "rows": report.rows,
        "rejects": report.rejects,
        "tokens": report.tokens,
        "summary": report.summary,
        "engine": report.engine,
        "shards": {"planned": len(shards), "run": len(missing)},
        "seconds": round(seconds, 3),
    }
    # Not write_json: the order of a summary's columns is what a later command shows.
    write_text(marker_path(stage.name, ctx), json.dumps(marker, indent=1, default=str) + "\n")
    record_stage(ctx)
    ctx.progress.say(f"{stage.name}: done in {seconds:.1f} s")
    if report.summary.get("incomplete"):
        ctx.progress.say(f"{stage.name}: incomplete; the next run takes up what is missing")
    return StageOutcome(stage.name, "done", seconds, report)
