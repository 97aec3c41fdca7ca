"""From the accepted lines of all shards to the tables of EcoAgent-Syn."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from ecoagent.retrieval.dedup import Duplicate, deduplicate
from ecoagent.schema import NormalizedTool, PairRow, QrelRow, QueryRow, RejectRow, query_id, tokens
from ecoagent.settings import SynthesisSettings
from ecoagent.synthesis.filters import NAME_LEAK, Query, Rejected
from ecoagent.synthesis.generate import Coverage
from ecoagent.synthesis.negatives import DIGITS, MiningSettings, Positive, ToolPool, best_ranks, mine
from ecoagent.synthesis.splits import COLD, SplitItem, cold_tools, split_queries

TEXT_LICENCE = "Apache-2.0"
"""Licence of generated text: that of the default generator's weights, which allow it; a gated
generator's own terms come on top and are the user's to keep."""

STAGE = "synthesize"


@dataclass(frozen=True)
class Merged:
    """A query text with all tools it was written for.

    Attributes:
        query_id: of the normalised text.
        first: the line whose wording, intent and tool stand for the query: of the smallest tool id.
        golds: tools it was written for, sorted.
        flags: flaws of any of its lines, sorted.
        verifier_raw: the verifier's best score for any of its golds; none where it was not asked.
        excluded: tools whose own near-duplicate of it was dropped: neither gold nor negative.
    """

    query_id: str
    first: Query
    golds: tuple[str, ...]
    flags: tuple[str, ...]
    verifier_raw: float | None = None
    excluded: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Tables:
    """Rows of the Syn tables, each sorted, and numbers for the summary."""

    queries: list[QueryRow]
    qrels: list[QrelRow]
    pairs: list[PairRow]
    rejects: list[RejectRow]
    coverage: list[dict[str, Any]]
    summary: dict[str, Any]


def merge_texts(lines: Sequence[Query]) -> dict[str, Merged]:
    """One query per normalised text, with the union of golds, by id."""
    by_id: defaultdict[str, list[Query]] = defaultdict(list)
    for line in lines:
        by_id[query_id("syn", line.text)].append(line)
    merged: dict[str, Merged] = {}
    for identifier, same in by_id.items():
        same.sort(key=lambda q: (q.tool_id, q.attempt, q.intent, q.line))
        golds = tuple(sorted({q.tool_id for q in same}))
        flags = tuple(sorted({f for q in same for f in q.flags}))
        # One right tool is enough: whose line stands for the query is a matter of ids.
        raw = max((q.verifier_raw for q in same if q.verifier_raw is not None), default=None)
        merged[identifier] = Merged(identifier, same[0], golds, flags, raw)
    return merged


def drop_near(merged: Mapping[str, Merged], threshold: float) -> tuple[list[Merged], list[Rejected]]:
    """Exact deduplication; the tools of a dropped query are excluded for the kept ones near it.

    Returns:
        Kept queries by id, and a reject per dropped query that names its witness.
    """
    unique = deduplicate({i: tokens(m.first.text) for i, m in merged.items()}, threshold)
    excluded: defaultdict[str, set[str]] = defaultdict(set)
    for twin in unique.dropped:
        for near in twin.near:
            excluded[near] |= set(merged[twin.id].golds) - set(merged[near].golds)
    kept = [replace(merged[i], excluded=frozenset(excluded[i])) for i in unique.kept]
    return kept, [_dropped(twin, merged[twin.id]) for twin in unique.dropped]


def _dropped(twin: Duplicate, query: Merged) -> Rejected:
    detail = (
        f"Jaccard {twin.similarity:.3f} with {twin.witness}; of {', '.join(query.golds)}: {query.first.text}"
    )
    return Rejected(twin.id, "dedup", "near_duplicate", detail)


def assemble(
    tools: Sequence[NormalizedTool],
    lines: Sequence[Query],
    rejects: Sequence[Rejected],
    coverage: Sequence[Coverage],
    embed: Any,
    settings: SynthesisSettings,
    *,
    probability: Callable[[float], float] | None = None,
    seed: int,
) -> Tables:
    """Build the tables.

    Args:
        tools: all kept tools: what negatives are drawn from and round trips search.
        lines: accepted lines of all shards.
        rejects: what the shards rejected.
        coverage: how far each tool got.
        embed: a pair of functions, queries and documents to (n, d) unit vectors.
        settings: thresholds, negatives, splits.
        probability: from the verifier's score to a probability, where that is known.
        seed: the run's seed.

    Raises:
        GateError: a split came out empty.
    """
    ordered = sorted(tools, key=lambda t: t.id)
    by_id = {t.id: t for t in ordered}
    groups = {t.id: t.duplicate_group for t in ordered}
    embed_queries, embed_documents = embed
    pool = ToolPool([t.id for t in ordered], embed_documents([t.tool_text for t in ordered]), groups)
    merged = merge_texts(lines)
    lost: list[Rejected] = []
    if settings.max_round_trip_rank is not None:
        # Before deduplication: a query that is not kept must be no other's witness.
        merged, lost = keep_found(merged, embed_queries, pool, settings.max_round_trip_rank)
    kept, dropped = drop_near(merged, settings.jaccard)
    covered = {g for m in kept for g in m.golds}
    cold = cold_tools({g: by_id[g].source for g in sorted(covered)}, settings.cold_fraction, seed=seed)
    items = [SplitItem(m.query_id, by_id[m.first.tool_id].source, frozenset(m.golds)) for m in kept]
    splits = split_queries(items, settings.splits, cold, seed=seed)
    vectors: npt.NDArray[Any] = np.asarray(embed_queries([m.first.text for m in kept]))
    ranks = best_ranks(vectors, [pool.with_duplicates(m.golds) for m in kept], pool)
    queries = [
        _query_row(m, splits[m.query_id], rank, probability) for m, rank in zip(kept, ranks, strict=True)
    ]
    positives = [_positive(m, splits[m.query_id], cold) for m in kept]
    mining = MiningSettings(
        settings.hard_negatives, settings.random_negatives, settings.false_negative_margin, seed
    )
    scored = mine(positives, vectors, pool, mining)
    pairs = [
        PairRow(
            query_id=p.query_id,
            tool_id=p.tool_id,
            label=p.label,
            negative_type=p.negative_type,
            score=p.score,
            split=splits[p.query_id],
        )
        for p in sorted(scored, key=lambda p: (p.query_id, p.tool_id))
    ]
    qrels = _qrels(kept, vectors, pool)
    rows = [
        RejectRow(id=r.id, stage=f"{STAGE}/{r.stage}", reason=r.reason, detail=r.detail)
        for r in sorted([*rejects, *lost, *dropped], key=lambda r: (r.id, r.stage, r.reason, r.detail))
    ]
    table = coverage_table(kept, coverage, by_id, settings)
    summary = summarize(queries, pairs, rows, table, cold)
    return Tables(queries, qrels, pairs, rows, table, summary)


def keep_found(
    merged: Mapping[str, Merged], embed_queries: Any, pool: ToolPool, most: int
) -> tuple[dict[str, Merged], list[Rejected]]:
    """Queries one of whose golds, or a duplicate, is among the ``most`` nearest; rejects for the others."""
    ids = sorted(merged)
    if not ids:
        return {}, []
    vectors = np.asarray(embed_queries([merged[i].first.text for i in ids]))
    ranks = best_ranks(vectors, [pool.with_duplicates(merged[i].golds) for i in ids], pool)
    kept = {i: merged[i] for i, rank in zip(ids, ranks, strict=True) if rank <= most}
    return kept, [
        Rejected(
            i, "round_trip", "rank", f"{', '.join(merged[i].golds)} at rank {rank}: {merged[i].first.text}"
        )
        for i, rank in zip(ids, ranks, strict=True)
        if rank > most
    ]


def _query_row(
    query: Merged, split: str, rank: int, probability: Callable[[float], float] | None
) -> QueryRow:
    raw = query.verifier_raw
    return QueryRow(
        query_id=query.query_id,
        text=query.first.text,
        set="syn",
        intent=query.first.intent,
        source_tool_id=query.first.tool_id,
        language="en",
        split=split,
        origin=query.first.origin,
        licence=TEXT_LICENCE,
        quality_flags=list(query.flags),
        round_trip_rank=rank,
        verifier_raw=raw,
        verifier_score=None if raw is None or probability is None else probability(raw),
    )


def _positive(query: Merged, split: str, cold: frozenset[str]) -> Positive:
    # Tools of the cold split are kept out of training altogether, as negatives too.
    banned = query.excluded | cold if split != COLD else query.excluded
    return Positive(query.query_id, query.golds, banned)


def _qrels(kept: Sequence[Merged], vectors: npt.NDArray[Any], pool: ToolPool) -> list[QrelRow]:
    rows = []
    for query, vector in zip(kept, vectors, strict=True):
        for place in pool.with_duplicates(query.golds):
            tool_id = pool.ids[place]
            rows.append(
                QrelRow(
                    query_id=query.query_id,
                    tool_id=tool_id,
                    grade=1,
                    origin="generated" if tool_id in query.golds else "duplicate_group",
                    encoder_score=round(float(vector @ pool.vectors[place]), DIGITS),
                )
            )
    return rows


def coverage_table(
    kept: Sequence[Merged],
    coverage: Sequence[Coverage],
    tools: dict[str, NormalizedTool],
    settings: SynthesisSettings,
) -> list[dict[str, Any]]:
    """Per tool what was asked, accepted and kept; ``short`` where it stays under the wanted number."""
    count = Counter(g for m in kept for g in m.golds)
    return [
        {
            "tool_id": c.tool_id,
            "source": tools[c.tool_id].source,
            "asked": c.asked,
            "accepted": c.accepted,
            "kept": count[c.tool_id],
            "attempts": c.attempts,
            "failed_requests": c.failed,
            "short": count[c.tool_id] < settings.min_queries_per_tool,
        }
        for c in sorted(coverage, key=lambda c: c.tool_id)
    ]


def summarize(
    queries: Sequence[QueryRow],
    pairs: Sequence[PairRow],
    rejects: Sequence[RejectRow],
    coverage: Sequence[dict[str, Any]],
    cold: frozenset[str],
) -> dict[str, Any]:
    """What a reader wants to know of the set at a glance; tools that stay under are listed."""
    ranks = [q.round_trip_rank for q in queries if q.round_trip_rank is not None]
    raws = [q.verifier_raw for q in queries if q.verifier_raw is not None]
    kinds = Counter(p.negative_type or "positive" for p in pairs)
    total = max(1, len(queries))

    def counted(values: Any) -> dict[str, int]:
        return dict(sorted(Counter(values).items()))

    return {
        "tools": len(coverage),
        "tools_by_source": counted(c["source"] for c in coverage),
        "queries": len(queries),
        "queries_by_split": counted(q.split for q in queries),
        "queries_by_intent": counted(q.intent or "none" for q in queries),
        "median_words": median(len(q.text.split()) for q in queries) if queries else 0,
        "queries_by_origin": counted(q.origin for q in queries),
        "name_leak_share": round(sum(NAME_LEAK in q.quality_flags for q in queries) / total, 4),
        "round_trip_top1": round(sum(r == 1 for r in ranks) / total, 4),
        "round_trip_top10": round(sum(r <= 10 for r in ranks) / total, 4),
        "verified": len(raws),
        "verifier_says_yes": round(sum(r >= 0.5 for r in raws) / max(1, len(raws)), 4),
        "pairs": {"positive": kinds["positive"], "hard": kinds["hard"], "random": kinds["random"]},
        "rejects_by_reason": counted(r.reason for r in rejects),
        "cold_tools": sorted(cold),
        "short_tools": {c["tool_id"]: c["kept"] for c in coverage if c["short"]},
    }
