"""The report as a stage: ``report/index.html`` and its figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ecoagent.audit import SPECS, load_tables
from ecoagent.audit.stage import load_audit
from ecoagent.evaluation.feedback_data import LATENCY, read_latency
from ecoagent.evaluation.round_trip import encoders_of
from ecoagent.reliability.flaws import load_flaws
from ecoagent.report.benchmarked import BENCHMARKS
from ecoagent.report.comparison import FILES, ComparisonFiles
from ecoagent.report.growth import GROWTH_FILE, load_growth
from ecoagent.report.measured import shipped_labeller, shipped_round_trip
from ecoagent.report.render import RunFiles, render_report
from ecoagent.runs import (
    AGAIN,
    Kind,
    RunContext,
    Shard,
    ShardResult,
    Stage,
    StageReport,
    UnreadableError,
    each_with_fields,
    load_manifest,
    read_json,
    read_object,
    sha256_file,
    write_bytes,
    write_text,
)

COVERAGE = "syn_coverage.json"
ROUND_TRIP, LABELLER, REVIEW = "round_trip.json", "labeller.json", "review.json"
COLD_START, FEEDBACK = "cold_start.json", "feedback.json"
OPTIONAL = (
    GROWTH_FILE,
    "flaws.json",
    "flaws_links.json",
    ROUND_TRIP,
    LABELLER,
    REVIEW,
    COLD_START,
    BENCHMARKS,
    FEEDBACK,
    *FILES,
)
"""Results that not every run has: part of the page, and of its key, where they are there."""

TEMPLATES = Path(__file__).parent / "templates"


class ReportStage(Stage):
    """One self-contained page of everything a run found."""

    name: ClassVar[str] = "report"
    version: ClassVar[str] = "6"
    sections: ClassVar[tuple[str, ...]] = (
        "crawl", "reliability", "llm", "synthesis", "labeling", "train", "evaluate", "audit", "publish",
    )  # fmt: skip

    def inputs(self, ctx: RunContext) -> list[Path]:
        """Tables, results, audit and card. Not the manifest: its times change with every run."""
        core, out = ctx.paths.core, ctx.paths.out
        return [
            *(item.path(core) for item in SPECS),
            core / "label_stats.json",
            core / "training.json",
            out / "results" / "offline.json",
            out / "results" / "dynamic.json",
            out / "audit.json",
            out / "publish_rejects.parquet",
            out / "dataset" / "README.md",
            *(p for p in (core / COVERAGE, *(out / "results" / name for name in OPTIONAL)) if p.is_file()),
        ]

    def extra_key(self, ctx: RunContext) -> dict[str, Any]:
        """The templates, and what the heading shows."""
        names = {p.name: sha256_file(p) for p in sorted(TEMPLATES.iterdir()) if p.is_file()}
        return {
            "templates": names,
            "profile": ctx.settings.profile,
            "run": ctx.settings.run_name,
            "shipped_labeller": shipped_labeller(ctx.settings.llm.model),
            "shipped_round_trip": shipped_round_trip(encoders_of(ctx.settings)),
        }

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        """Render the page and its pictures."""
        with ctx.progress.task("report", total=1, unit="pages") as task:
            report = render_report(read_files(ctx), ctx.settings)
            write_text(directory / "index.html", report.html)
            for figure in report.figures.values():
                write_bytes(directory / figure.file, figure.png)
                if figure.svg is not None:
                    write_bytes((directory / figure.file).with_suffix(".svg"), figure.svg)
            task.advance(1)

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """Put page and pictures in their place; pictures of an earlier report go."""
        folder, final = results[0].directory, ctx.paths.report
        names = sorted(p.name for p in folder.iterdir() if p.suffix in (".html", ".png", ".svg"))
        written = [write_bytes(final / name, (folder / name).read_bytes()) for name in names]
        for stale in sorted({*final.glob("*.png"), *final.glob("*.svg")} - set(written)):
            stale.unlink()
        ctx.progress.say(f"report: {final / 'index.html'}")
        return StageReport(outputs=written, rows={}, summary={"page": "report/index.html"})


def read_files(ctx: RunContext) -> RunFiles:
    """What the report of a run is made from."""
    core, out = ctx.paths.core, ctx.paths.out
    manifest = load_manifest(ctx.paths.manifest)
    published = manifest.get("stages", {}).get("publish", {})
    own = read_found(out / "results" / LABELLER, (dict, list))
    round_trip = read_found(out / "results" / ROUND_TRIP)
    return RunFiles(
        tables=load_tables(core),
        offline=_with_rows(out / "results" / "offline.json"),
        dynamic=_with_rows(out / "results" / "dynamic.json"),
        training=read_object(core / "training.json", remedy="run `ecoagent train --force` on the run"),
        label_stats=read_object(core / "label_stats.json", remedy="run `ecoagent label --force` on the run"),
        audit=load_audit(out / "audit.json"),
        published={"rows": published.get("rows", {}), "left_out": published.get("rejects", {})},
        manifest=manifest,
        growth=load_growth(out),
        flaws=load_flaws(out),
        coverage=[row for row in read_found(core / COVERAGE, (list, dict)) or [] if isinstance(row, dict)],
        round_trip=round_trip or shipped_round_trip(encoders_of(ctx.settings)),
        round_trip_shipped=not round_trip,
        labeller=own or shipped_labeller(ctx.settings.llm.model),
        labeller_shipped=own is None,
        review=read_found(out / "results" / REVIEW),
        compared=ComparisonFiles(*(_optional_rows(out / "results" / name) for name in FILES)),
        cold_start=read_cold_start(out / "results" / COLD_START),
        benchmarks=read_found(out / "results" / BENCHMARKS),
        feedback=read_found(out / "results" / FEEDBACK),
        feedback_times=read_latency(ctx.paths.raw / LATENCY),
    )


def _with_rows(path: Path) -> dict[str, Any]:
    """A result file of the evaluation; it is read leniently later, but has rows."""
    remedy = "run `ecoagent evaluate --force` on the run"
    found = read_object(path, {"rows": list}, remedy=remedy)
    each_with_fields(path, found["rows"], {}, within="rows", remedy=remedy)
    return found


def _optional_rows(path: Path) -> dict[str, Any]:
    return _with_rows(path) if path.is_file() else {}


def read_cold_start(path: Path) -> dict[str, Any] | None:
    """The cold-start table, where an evaluation has written one.

    Raises:
        UserError: the file is damaged.
    """
    if not path.is_file():
        return None
    remedy = "run `ecoagent evaluate --force` on the run"
    found = read_object(path, {"rows": list, "tools": dict, "notes": list}, remedy=remedy)
    kinds: dict[str, Kind] = {"label": str, "metrics": dict, "MRR_interval": list, "first": dict}
    each_with_fields(path, found["rows"], kinds, within="rows", remedy=remedy)
    return found


def read_found(path: Path, kind: Kind = dict) -> Any:
    """A JSON file that may not be there; then none.

    Raises:
        UserError: the file is damaged, or of another kind.
    """
    if not path.is_file():
        return None
    found = read_json(path)
    if not isinstance(found, kind):
        raise UnreadableError(f"{path} is damaged: its form is another", remedy=AGAIN)
    return found
