"""Growth as a stage of its own: one shard a pinned release, then the monthly table and the figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl

from ecoagent.crawlers import ClientMissingError, HashMismatchError
from ecoagent.crawlers.history import History, missing_releases, read_release, release_key
from ecoagent.crawlers.lock import LockEntry
from ecoagent.crawlers.records import PARSER_VERSION
from ecoagent.models import ModelStore
from ecoagent.reliability import ReliabilityScales, combine, cosines, quality, shown_name, source_weight
from ecoagent.reliability.sbert import load_sbert
from ecoagent.report import growth
from ecoagent.report.growth_figures import growth_figure, tags_figure
from ecoagent.runs import (
    RunContext,
    Shard,
    ShardResult,
    Stage,
    StageReport,
    read_json,
    read_jsonl,
    read_table,
    sha256_text,
    write_bytes,
    write_json,
    write_jsonl,
)
from ecoagent.runs.stage import SHARD_MARKER
from ecoagent.schema.tools import Source
from ecoagent.settings import UserError

TOOLS, FAILURE, COSINES, ASKED = "tools.jsonl", "failure.json", "growth_cosines.json", "growth_inputs.json"
COLUMNS = (
    "id",
    "source",
    "granularity",
    "name",
    "display_name",
    "description",
    "tags",
    "group_id",
    "r_cons",
    "reliable",
)
CHUNK = 256
"""Pairs encoded between two writes of the cache: what a killed run loses."""
_DIGITS = 6


@dataclass(frozen=True)
class Asked:
    """What the table is made from beside the run's own tables.

    Attributes:
        history: pinned releases.
        created: package to the UTC date of its first version, where that is known.
        crawls: points of successive crawls.
        notes: what could not be had, in words.
    """

    history: History
    created: dict[str, str] = field(default_factory=dict)
    crawls: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class GrowthStage(Stage):
    """Cumulative tools a month, total and reliable, and the spread of tags."""

    name: ClassVar[str] = "growth"
    version: ClassVar[str] = "1"

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.entries = {release_key(e): e for e in asked.history.ordered}

    def prepare(self, ctx: RunContext) -> None:
        """Write what was asked into the run, where it counts as an input.

        Not part of the stage's key itself: a new crawl must not have every release parsed again.
        """
        weights = ModelStore(ctx.settings.models).digest(ctx.settings.reliability.encoder)
        write_json(
            ctx.paths.raw / ASKED,
            {
                "history": self.asked.history.digest,
                "created": self.asked.created,
                "crawls": self.asked.crawls,
                "notes": self.asked.notes,
                "encoder": weights,
                "reliability": ctx.settings.reliability.model_dump(mode="json"),
            },
        )

    def inputs(self, ctx: RunContext) -> list[Path]:
        """The run's tools and ruler, and what was asked."""
        core = ctx.paths.core
        return [core / "tools.parquet", core / "reliability_scales.json", ctx.paths.raw / ASKED]

    def plan(self, ctx: RunContext) -> list[Shard]:
        """One shard a release."""
        return [Shard(key, (entry.spec,)) for key, entry in sorted(self.entries.items())]

    def shard_content(self, ctx: RunContext, shard: Shard) -> Any:
        """The release's lock entry and the parser's version."""
        return {"entry": self.entries[shard.key].model_dump(mode="json"), "parser": PARSER_VERSION}

    def estimate(self, ctx: RunContext) -> dict[str, Any]:
        """Releases, those to fetch, MB and minutes; nothing is fetched for it."""
        missing = missing_releases(self.asked.history, ctx.settings.crawl)
        megabytes = sum(e.size for e in missing) / 1e6
        total = sum(e.size for e in self.entries.values()) / 1e6
        return {
            "releases": len(self.entries),
            "client_calls": len(missing),
            "download_mb": round(megabytes, 1),
            "minutes": round((2 * len(missing) + megabytes / 4 + 0.3 * total + 60) / 60, 1),
        }

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        """Fetch and parse one release; what makes up its score is kept.

        Raises:
            HashMismatchError: the release is not the one pinned.
            ClientMissingError: npm is not installed.
        """
        entry = self.entries[shard.key]
        try:
            found = read_release(entry, ctx.settings.crawl)
        except (HashMismatchError, ClientMissingError):
            raise
        except UserError as error:
            # One dead release is a gap in the line, not the end of it.
            ctx.progress.say(f"growth: {entry.spec} left out: {error.message}")
            write_json(directory / FAILURE, {"release": entry.spec, "detail": error.message})
            return
        fields = set(COLUMNS) - {"r_cons", "reliable", "granularity"}
        rows = [c.record.model_dump(include=fields) for c in found if c.status == "kept"]
        write_jsonl(directory / TOOLS, rows)
        ctx.progress.say(f"growth: {entry.spec} of {entry.published_at}: {len(rows)} tools")

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """Score every tool as it was, count by month, draw.

        Raises:
            UserError: the run's ruler cannot be read.
        """
        artifact = pl.col("provenance").struct.field("artifact").alias("package")
        frame = read_table(ctx.paths.core / "tools.parquet").select(*COLUMNS, artifact)
        notes, failed = list(self.asked.notes), []
        for level in sorted(set(frame["granularity"]) - {"tool"}):
            notes.append(f"the run counts {level}s, the releases tools: the two do not compare")
        rows: dict[str, list[dict[str, Any]]] = {}
        for result in results:
            if (result.directory / FAILURE).is_file():
                fault = read_json(result.directory / FAILURE)
                notes.append(f"{fault['release']} is missing: {fault['detail']}")
                failed.append(result.shard.key)
                (result.directory / SHARD_MARKER).unlink(missing_ok=True)
            else:
                rows[result.shard.key] = read_jsonl(result.directory / TOOLS)
        cons = _consistency(ctx, frame, [r for own in rows.values() for r in own])
        releases: dict[Source, dict[str, list[tuple[str, growth.Snapshot]]]] = {}
        for key, own in rows.items():
            entry = self.entries[key]
            snapshot = growth.Snapshot(entry.published_at or "", _scored(ctx, entry, own, cons))
            packages = releases.setdefault(entry.source, {})
            packages.setdefault(entry.name, []).append((entry.version, snapshot))
        content = self._content(frame, releases, notes)
        content["incomplete"] = sorted(failed)
        outputs = [write_json(ctx.paths.out / "results" / growth.GROWTH_FILE, content)]
        outputs += write_pictures(ctx.paths.report, content)
        last = content["all"][-1] if content["all"] else {}
        return StageReport(
            outputs,
            {"months": len(content["all"]), "releases": len(rows)},
            {"releases": len(failed)} if failed else {},
            summary={**last, "months": content["all"], "incomplete": sorted(failed), "notes": notes},
        )

    def _content(
        self,
        frame: pl.DataFrame,
        releases: dict[Source, dict[str, list[tuple[str, growth.Snapshot]]]],
        notes: list[str],
    ) -> dict[str, Any]:
        by_source = {
            s: {name: [snap for _, snap in own] for name, own in packages.items()}
            for s, packages in releases.items()
        }
        born = _births(frame, self.asked.created, set(by_source))
        dates = [s.date for p in [*by_source.values(), *born.values()] for own in p.values() for s in own]
        # The window is that of the pinned releases: what is older than they are is base.
        firsts = [s.date for p in by_source.values() for own in p.values() for s in own] or dates
        months = growth.months_between(min(firsts), max(dates)) if dates else []
        rows: list[growth.MonthRow] = []
        for source, packages in sorted(by_source.items()):
            rows += growth.monthly(source, packages, months)
        for catalog, packages in sorted(born.items()):
            rows += growth.monthly(catalog, packages, months, first_is_base=False)
        why = {"n8n_community": "when their packages were first published is not known"}
        listed = [r for s in sorted(releases) for r in growth.release_rows(releases[s])]
        return {
            "growth_version": 1,
            "dates_from": self.asked.history.dates_from,
            "all": growth.as_rows(growth.summed(rows)),
            "rows": growth.as_rows(sorted(rows, key=lambda r: (r.month, r.source))),
            "releases": listed,
            "undated": growth.undated(frame, {r.source for r in rows}, why),
            "crawls": self.asked.crawls,
            "tags": growth.tag_table(frame),
            "notes": notes,
        }


def write_pictures(folder: Path, content: dict[str, Any]) -> list[Path]:
    """PNG and SVG of both figures, where there is something to draw."""
    written = []
    for stem, picture in (("growth", growth_figure(content)), ("tags", tags_figure(content["tags"]))):
        if picture is not None:
            written.append(write_bytes(folder / f"{stem}.png", picture.png))
            written.append(write_bytes(folder / f"{stem}.svg", picture.svg))
    return written


def _births(
    frame: pl.DataFrame, created: dict[str, str], pinned: set[Source]
) -> dict[str, dict[str, list[growth.Snapshot]]]:
    """Packages known by their date of creation, with the tools the run found in them."""
    found: dict[str, dict[str, list[growth.Snapshot]]] = {}
    for source, package, identifier, reliable in frame.select(
        "source", "package", "id", "reliable"
    ).iter_rows():
        if source in pinned or package not in created:
            continue
        own = found.setdefault(source, {}).setdefault(package, [growth.Snapshot(created[package], {})])
        own[0] = growth.Snapshot(own[0].date, {**own[0].tools, identifier: bool(reliable)})
    return found


def _pair(row: dict[str, Any]) -> tuple[str, str]:
    return shown_name(row["name"], row["display_name"]), row["description"]


def _consistency(
    ctx: RunContext, frame: pl.DataFrame, rows: Sequence[dict[str, Any]]
) -> dict[tuple[str, str], float]:
    """r_cons of every distinct (name, description); kept in the run, so that each is encoded once."""
    known = {
        (shown_name(n, d), text): float(c)
        for n, d, text, c in frame.select("name", "display_name", "description", "r_cons").iter_rows()
    }
    name = ctx.settings.reliability.encoder
    weights = ModelStore(ctx.settings.models).digest(name)
    path = ctx.paths.raw / COSINES
    stored = read_json(path) if path.is_file() else {}
    cached: dict[str, float] = stored.get("values", {}) if stored.get("encoder") == weights else {}
    keys = {pair: sha256_text("\n".join(pair)) for pair in map(_pair, rows)}
    lacking = sorted(p for p, k in keys.items() if p not in known and k not in cached)
    if lacking:
        encoder = load_sbert(ctx, name)
        with ctx.progress.task("texts of earlier releases encoded", total=len(lacking), unit="tools") as task:
            for start in range(0, len(lacking), CHUNK):
                part = lacking[start : start + CHUNK]
                vectors = encoder.encode_documents([n for n, _ in part] + [d for _, d in part])
                values = cosines(vectors[: len(part)], vectors[len(part) :])
                cached |= {keys[p]: round(float(v), _DIGITS) for p, v in zip(part, values, strict=True)}
                write_json(path, {"encoder": weights, "values": cached})
                task.advance(len(part))
    return {p: known[p] if p in known else cached[k] for p, k in keys.items()}


def _scored(
    ctx: RunContext, entry: LockEntry, rows: Sequence[dict[str, Any]], cons: dict[tuple[str, str], float]
) -> dict[str, bool]:
    """Id to reliable, by the ruler of the run."""
    chosen = ctx.settings.reliability
    path = ctx.paths.core / "reliability_scales.json"
    try:
        scales = ReliabilityScales(**read_json(path))
    except (TypeError, ValueError) as error:
        raise UserError(
            f"file {path} is not a ruler: {error}", remedy="run `ecoagent score --force` on the run"
        ) from error
    r_cons = np.array([cons[_pair(r)] for r in rows], dtype=float)
    qual = quality(
        [len(r["description"]) for r in rows],
        [len(" ".join(r["tags"])) for r in rows],
        scales,
        chosen.quality_weights,
    )
    src = np.full(len(rows), source_weight(entry.source, chosen.source_weights))
    static = combine(r_cons, src, qual, chosen.weights)
    return {r["id"]: bool(v >= chosen.threshold) for r, v in zip(rows, static, strict=True)}
