"""The normalize stage: candidates of a crawl as ``core/tools_normalized.parquet`` and its rejects."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

from ecoagent.crawlers.merging import Crawled
from ecoagent.crawlers.normalize import Rows, Survey, reject_rows
from ecoagent.crawlers.stage import candidate_files
from ecoagent.runs import RunContext, Shard, ShardResult, Stage, StageReport, table_writer
from ecoagent.schema import TOOL_TEXT_VERSION, NormalizedTool, RejectedTool
from ecoagent.settings import MissingInputError, UserError

TOOLS, REJECTS = "tools_normalized.parquet", "tool_rejects.parquet"


class NormalizeStage(Stage):
    """One table of kept tools and one of rejects, both sorted by id."""

    name: ClassVar[str] = "normalize"
    version: ClassVar[str] = f"2.{TOOL_TEXT_VERSION}"
    sections: ClassVar[tuple[str, ...]] = ()

    def inputs(self, ctx: RunContext) -> list[Path]:
        """The candidate files of the crawl.

        Raises:
            MissingInputError: there are none.
        """
        files = candidate_files(ctx.paths.raw)
        if not files:
            raise MissingInputError(
                f"run {ctx.settings.run_name!r} has no crawled candidates",
                remedy="run `ecoagent crawl` first, or `ecoagent build`",
            )
        return files

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        """Nothing to do: the whole table is made in ``merge``, about 5,000 candidates a second."""

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """Join documentation to packages and write both tables, a few rows of each in memory.

        Raises:
            UserError: two tools have the same id, or no tool was kept.
        """
        crawled = Crawled(candidate_files(ctx.paths.raw))
        survey = Survey()
        for brief in crawled.briefs():
            survey.add(brief)
        shared = survey.settle()
        if not len(shared.first):
            raise UserError(
                f"all {survey.rejected} candidates were rejected; no tool is left",
                remedy="see the reasons in raw/crawl_summary.json",
            )
        tools, rejects = ctx.paths.core / TOOLS, ctx.paths.core / REJECTS
        counts = Counts()
        with table_writer(tools, NormalizedTool) as kept, table_writer(rejects, RejectedTool) as dropped:
            rows = Rows(shared)
            for same in groupby(crawled.candidates(), key=lambda c: c.record.id):
                here = list(same[1])
                for found in here:
                    if found.status == "kept":
                        row = rows.tool(found.record)
                        counts.tool(row)
                        kept.append(row)
                for row in reject_rows(here):
                    counts.reasons[row["reason"]] += 1
                    dropped.append(row)
        return StageReport(
            outputs=[tools, rejects],
            rows={"tools": kept.rows, "rejects": dropped.rows},
            rejects=dict(sorted(counts.reasons.items())),
            summary=counts.summary(shared.groups),
        )


@dataclass
class Counts:
    """What the stage tells of its tables."""

    reasons: Counter[str] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)
    flags: Counter[str] = field(default_factory=Counter)
    languages: Counter[str] = field(default_factory=Counter)
    providers: set[str] = field(default_factory=set)

    def tool(self, row: dict[str, Any]) -> None:
        """Count in a row of the table of tools."""
        self.sources[row["source"]] += 1
        self.flags.update(row["quality_flags"])
        self.languages[row["language"] or "unknown"] += 1
        self.providers.add(row["provider"])

    def summary(self, groups: int) -> dict[str, Any]:
        """Counts in the order of their names."""
        return {
            "sources": dict(sorted(self.sources.items())),
            "providers": len(self.providers),
            "duplicate_groups": groups,
            "quality_flags": dict(sorted(self.flags.items())),
            "languages": dict(sorted(self.languages.items())),
        }
