"""The normalize stage: candidates of a crawl as ``core/tools_normalized.parquet`` and its rejects."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import ClassVar

from ecoagent.crawlers.normalize import normalize
from ecoagent.crawlers.stage import candidate_files, load_candidates
from ecoagent.runs import RunContext, Shard, ShardResult, Stage, StageReport, write_table
from ecoagent.schema import TOOL_TEXT_VERSION, NormalizedTool, RejectedTool
from ecoagent.settings import MissingInputError, UserError

TOOLS, REJECTS = "tools_normalized.parquet", "tool_rejects.parquet"


class NormalizeStage(Stage):
    """One table of kept tools and one of rejects, both sorted by id."""

    name: ClassVar[str] = "normalize"
    version: ClassVar[str] = f"1.{TOOL_TEXT_VERSION}"
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
        """Nothing to do: the whole table is made in ``merge``, in seconds."""

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """Write both tables.

        Raises:
            UserError: two tools have the same id, or no tool was kept.
        """
        found = normalize(load_candidates(ctx.paths.raw))
        if not found.tools:
            raise UserError(
                f"all {len(found.rejects)} candidates were rejected; no tool is left",
                remedy="see the reasons in raw/crawl_summary.json",
            )
        tools = write_table(ctx.paths.core / TOOLS, found.tools, NormalizedTool)
        rejects = write_table(ctx.paths.core / REJECTS, found.rejects, RejectedTool)
        flags = Counter(f for t in found.tools for f in t.quality_flags)
        return StageReport(
            outputs=[tools, rejects],
            rows={"tools": len(found.tools), "rejects": len(found.rejects)},
            rejects=dict(sorted(Counter(r.reason for r in found.rejects).items())),
            summary={
                "sources": dict(sorted(Counter(t.source for t in found.tools).items())),
                "providers": len({t.provider for t in found.tools}),
                "duplicate_groups": sum(
                    1 for n in Counter(t.duplicate_group for t in found.tools).values() if n > 1
                ),
                "quality_flags": dict(sorted(flags.items())),
                "languages": dict(sorted(Counter(t.language or "unknown" for t in found.tools).items())),
            },
        )
