"""Stage ``score``: normalised tools to scored tools."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ecoagent.models import ModelStore
from ecoagent.reliability.columns import measure, names_and_descriptions
from ecoagent.reliability.flaws import flaw_table, iter_facts, write_flaws
from ecoagent.reliability.grouping import COMPARED_TOGETHER, GROUPS, PAIRS, group_table
from ecoagent.reliability.sbert import load_sbert
from ecoagent.reliability.score import ReliabilityScores, cosines, score_signals
from ecoagent.reliability.statistics import statistics, summarize
from ecoagent.retrieval import Encoder
from ecoagent.runs import (
    ROWS_PER_GROUP,
    RunContext,
    Shard,
    ShardResult,
    Stage,
    StageReport,
    count_rows,
    sha256_file,
    table_groups,
    write_json,
    write_table_stream,
)
from ecoagent.schema import DuplicateRow, NormalizedTool, RejectedTool, ScoredTool
from ecoagent.settings import UserError

COSINE_DIGITS = 6
"""r_cons is kept to this many digits: below lies float32 noise that differs between machines."""
TOOLS_PER_SHARD = ROWS_PER_GROUP
"""Tools a shard encodes; what a killed stage does again is at most this."""
COSINES = "r_cons.npy"
DUPLICATES = "duplicates"
"""Key of the shard that finds near-duplicates."""
FLAG = "duplicate"
"""Quality flag of tools that are the same tool as another; replaces what equal words alone said."""
TOOLS, REJECTS = "tools_normalized.parquet", "tool_rejects.parquet"


class ScoreStage(Stage):
    """Metadata reliability of every kept tool (Eq. 4-5)."""

    name: ClassVar[str] = "score"
    version: ClassVar[str] = "2"
    sections: ClassVar[tuple[str, ...]] = ("reliability",)

    def __init__(self) -> None:
        self._encoder: Encoder | None = None
        self._encoding = threading.Lock()
        self._table = ""

    def inputs(self, ctx: RunContext) -> list[Path]:
        """The normalised tools, and the rejects, which the flaw table counts too."""
        return [ctx.paths.core / TOOLS, ctx.paths.core / REJECTS]

    def extra_key(self, ctx: RunContext) -> dict[str, Any]:
        """Digest of the encoder's weights."""
        name = ctx.settings.reliability.encoder
        return {"encoder": {name: ModelStore(ctx.settings.models).digest(name)}}

    def plan(self, ctx: RunContext) -> list[Shard]:
        """Shards of ``TOOLS_PER_SHARD`` rows, ids the first and the one after the last; then duplicates."""
        self._table = sha256_file(ctx.paths.core / TOOLS)
        count = count_rows(ctx.paths.core / TOOLS)
        starts = range(0, max(count, 1), TOOLS_PER_SHARD)
        rows = [Shard(f"rows-{s:09d}", (str(s), str(min(s + TOOLS_PER_SHARD, count)))) for s in starts]
        return [*rows, Shard(DUPLICATES)]

    def shard_content(self, ctx: RunContext, shard: Shard) -> Any:
        """The whole table of tools, hashed once for all shards: a hundred of them share it."""
        return self._table or sha256_file(ctx.paths.core / TOOLS)

    def estimate(self, ctx: RunContext) -> dict[str, Any]:
        """Texts to encode."""
        path = ctx.paths.core / TOOLS
        return {"texts": 2 * count_rows(path)} if path.is_file() else {"shards": 1}

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        """Write r_cons of the shard's tools in the order of the table, or the groups of duplicates."""
        path = ctx.paths.core / TOOLS
        if shard.key == DUPLICATES:
            encode = partial(self._encode, ctx, "texts of near-duplicates")
            group_table(path, count_rows(path), encode, directory)
            return
        start, stop = (int(i) for i in shard.ids)
        names, descriptions = names_and_descriptions(path, start, stop)
        vectors = self._encode(ctx, "names and descriptions", [*names, *descriptions])
        cons = cosines(vectors[: len(names)], vectors[len(names) :])
        np.save(directory / COSINES, np.array([round(float(c), COSINE_DIGITS) for c in cons], dtype=float))

    def _encode(self, ctx: RunContext, what: str, texts: list[str]) -> npt.NDArray[Any]:
        """(n, d) vectors. One shard at a time: a model uses all cores, and its tokenizer is not shared."""
        with self._encoding:
            if self._encoder is None:
                self._encoder = load_sbert(ctx, ctx.settings.reliability.encoder)
            count = len(set(texts))
            with ctx.progress.task(f"{what} encoded", total=count, unit="texts") as task:
                return self._encoder.encode_documents(texts, on_batch=task.advance)

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """Write ``core/tools.parquet``, the scales a new tool is measured by, and the statistics.

        Raises:
            UserError: a shard holds another number of tools than the table.
        """
        source, settings = ctx.paths.core / TOOLS, ctx.settings.reliability
        found = measure(source)
        near = next(r.directory for r in results if r.shard.key == DUPLICATES)
        cons = np.concatenate([np.load(r.directory / COSINES) for r in results if r.shard.key != DUPLICATES])
        groups = np.load(near / GROUPS)
        if not len(cons) == len(groups) == len(found.sources):
            raise UserError(
                f"{len(cons)} cosines for {len(found.sources)} tools",
                remedy="run `ecoagent score --force score`",
            )
        scores = score_signals(cons, found.descriptions, found.tags, found.sources, settings)
        stats = statistics(scores, found.sources, settings)
        tools = write_table_stream(
            ctx.paths.core / "tools.parquet", scored(source, scores, groups), ScoredTool
        )
        pairs = write_table_stream(
            ctx.paths.core / PAIRS, table_groups(near / PAIRS, DuplicateRow), DuplicateRow
        )
        rejects = iter_facts(ctx.paths.core / REJECTS, RejectedTool)
        outputs = [
            tools,
            pairs,
            write_json(ctx.paths.core / "reliability_scales.json", asdict(scores.scales)),
            write_json(ctx.paths.out / "results" / "reliability.json", stats),
            write_flaws(ctx.paths.out, flaw_table(iter_facts(tools, ScoredTool), rejects, None)),
        ]
        members = np.bincount(groups, minlength=1)
        counts = {
            "groups": int((members > 1).sum()),
            "tools": int(members[members > 1].sum()),
            "compared_in_parts": max(1, -(-len(groups) // COMPARED_TOGETHER)),
        }
        rows = {"tools": len(cons), "duplicate_pairs": count_rows(pairs)}
        return StageReport(outputs, rows, summary={**summarize(stats), "duplicates": counts})


def scored(path: Path, scores: ReliabilityScores, groups: npt.NDArray[np.int64]) -> Iterator[pa.Table]:
    """The table of tools with its scores and groups, one row group at a time.

    Args:
        path: normalised tools, sorted by id.
        scores: scores of n tools in that order.
        groups: (n,) row of the smallest id of each tool's group.
    """
    first = 0
    named: dict[int, str] = {}
    duplicated = np.bincount(groups, minlength=1)[groups] > 1
    for group in table_groups(path, NormalizedTool):
        here = slice(first, first + group.num_rows)
        first += group.num_rows
        names, flags = [], []
        ids, known = group["id"].to_pylist(), group["quality_flags"].to_pylist()
        for identifier, found, place, twin in zip(ids, known, groups[here], duplicated[here], strict=True):
            names.append(named.setdefault(int(place), identifier) if twin else identifier)
            flags.append(sorted({*found, FLAG} if twin else set(found) - {FLAG}))
        for name, values in (("duplicate_group", names), ("quality_flags", flags)):
            column = group.schema.get_field_index(name)
            group = group.set_column(
                column, group.schema.field(name), pa.array(values, group.schema.field(name).type)
            )
        for name in ("r_cons", "w_src", "r_qual", "r_static", "reliable"):
            group = group.append_column(name, pa.array(getattr(scores, name)[here]))
        yield group
