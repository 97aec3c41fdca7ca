"""The report as a stage: ``report/index.html`` and its figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ecoagent.audit import SPECS, load_tables
from ecoagent.reliability.flaws import load_flaws
from ecoagent.report.growth import GROWTH_FILE, load_growth
from ecoagent.report.render import RunFiles, render_report
from ecoagent.runs import (
    RunContext,
    Shard,
    ShardResult,
    Stage,
    StageReport,
    load_manifest,
    read_json,
    sha256_file,
    write_bytes,
    write_text,
)

COVERAGE = "syn_coverage.json"
ROUND_TRIP, LABELLER, REVIEW = "round_trip.json", "labeller.json", "review.json"
OPTIONAL = (GROWTH_FILE, "flaws.json", "flaws_links.json", ROUND_TRIP, LABELLER, REVIEW)
"""Results that commands of their own write: part of the page, and of its key, where they are there."""

TEMPLATES = Path(__file__).parent / "templates"


class ReportStage(Stage):
    """One self-contained page of everything a run found."""

    name: ClassVar[str] = "report"
    version: ClassVar[str] = "3"
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
        return {"templates": names, "profile": ctx.settings.profile, "run": ctx.settings.run_name}

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
    return RunFiles(
        tables=load_tables(core),
        offline=read_json(out / "results" / "offline.json"),
        dynamic=read_json(out / "results" / "dynamic.json"),
        training=read_json(core / "training.json"),
        label_stats=read_json(core / "label_stats.json"),
        audit=read_json(out / "audit.json"),
        published={"rows": published.get("rows", {}), "left_out": published.get("rejects", {})},
        manifest=manifest,
        growth=load_growth(out),
        flaws=load_flaws(out),
        coverage=[row for row in read_found(core / COVERAGE) or [] if isinstance(row, dict)],
        round_trip=read_found(out / "results" / ROUND_TRIP),
        labeller=read_found(out / "results" / LABELLER),
        review=read_found(out / "results" / REVIEW),
    )


def read_found(path: Path) -> Any:
    """A JSON file that may not be there; then none."""
    return read_json(path) if path.is_file() else None
