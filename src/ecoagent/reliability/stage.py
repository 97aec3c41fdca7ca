"""Stage ``score``: normalised tools to scored tools."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ecoagent.models import ModelStore
from ecoagent.reliability.sbert import load_sbert
from ecoagent.reliability.score import ReliabilityScores, cosines, score_signals, shown_name
from ecoagent.runs import (
    RunContext,
    Shard,
    ShardResult,
    Stage,
    StageReport,
    read_json,
    read_rows,
    write_json,
    write_table,
)
from ecoagent.schema import NormalizedTool, ScoredTool
from ecoagent.settings import UserError

COSINE_DIGITS = 6
"""r_cons is kept to this many digits: below lies float32 noise that differs between machines."""


class ScoreStage(Stage):
    """Metadata reliability of every kept tool (Eq. 4-5)."""

    name: ClassVar[str] = "score"
    version: ClassVar[str] = "1"
    sections: ClassVar[tuple[str, ...]] = ("reliability",)

    def inputs(self, ctx: RunContext) -> list[Path]:
        """The normalised tools."""
        return [ctx.paths.core / "tools_normalized.parquet"]

    def extra_key(self, ctx: RunContext) -> dict[str, Any]:
        """Digest of the encoder's weights."""
        name = ctx.settings.reliability.encoder
        return {"encoder": {name: ModelStore(ctx.settings.models).digest(name)}}

    def estimate(self, ctx: RunContext) -> dict[str, Any]:
        """Texts to encode."""
        path = self.inputs(ctx)[0]
        return {"texts": 2 * len(read_rows(path, NormalizedTool))} if path.is_file() else {"shards": 1}

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        """Write r_cons of each tool by id: the only part that needs the encoder."""
        tools = read_rows(self.inputs(ctx)[0], NormalizedTool)
        texts = [shown_name(t.name, t.display_name) for t in tools] + [t.description for t in tools]
        encoder = load_sbert(ctx, ctx.settings.reliability.encoder)
        with ctx.progress.task("names and descriptions encoded", total=len(set(texts)), unit="texts") as task:
            vectors = encoder.encode_documents(texts, on_batch=task.advance)
        cons = cosines(vectors[: len(tools)], vectors[len(tools) :])
        values = {t.id: round(float(c), COSINE_DIGITS) for t, c in zip(tools, cons, strict=True)}
        write_json(directory / "r_cons.json", values)

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """Write ``core/tools.parquet`` and the scales a new tool is measured by."""
        tools = sorted(read_rows(self.inputs(ctx)[0], NormalizedTool), key=lambda t: t.id)
        found: dict[str, float] = {}
        for result in results:
            found |= read_json(result.directory / "r_cons.json")
        lacking = [t.id for t in tools if t.id not in found]
        if lacking:
            raise UserError(f"tool {lacking[0]} has no r_cons", remedy="run `ecoagent score --force score`")
        scores = score_signals(
            np.array([found[t.id] for t in tools], dtype=float),
            [len(t.description) for t in tools],
            [len(" ".join(t.tags)) for t in tools],
            [t.source for t in tools],
            ctx.settings.reliability,
        )
        rows = [ScoredTool(**t.model_dump(), **scores.row(i)) for i, t in enumerate(tools)]
        outputs = [
            write_table(ctx.paths.core / "tools.parquet", rows, ScoredTool),
            write_json(ctx.paths.core / "reliability_scales.json", asdict(scores.scales)),
        ]
        return StageReport(outputs, {"tools": len(rows)}, summary=summarize(rows, scores))


def summarize(rows: list[ScoredTool], scores: ReliabilityScores) -> dict[str, Any]:
    """Share of reliable tools and medians of the signals, overall and by source."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        places[row.source].append(i)

    def numbers(index: list[int]) -> dict[str, Any]:
        columns = ("r_cons", "w_src", "r_qual", "r_static")
        medians = {f"median_{c}": round(float(np.median(getattr(scores, c)[index])), 4) for c in columns}
        return {"tools": len(index), "reliable": round(float(scores.reliable[index].mean()), 4), **medians}

    if not rows:
        return {"tools": 0}
    return {
        **numbers(list(range(len(rows)))),
        "by_source": {source: numbers(index) for source, index in sorted(places.items())},
        "scales": asdict(scores.scales),
    }
