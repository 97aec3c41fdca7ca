"""Candidates of each request: the encoder's nearest tools above a cosine (paper, Section 2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ecoagent.retrieval.dense import rank_dense
from ecoagent.retrieval.encoders import Encoder
from ecoagent.retrieval.runs import TextSet


@dataclass(frozen=True)
class CandidatePair:
    """A query and one of its nearest tools.

    Attributes:
        cosine: of the labelling encoder, rounded to 6 digits.
        rank: 1 = nearest.
    """

    query_id: str
    tool_id: str
    cosine: float
    rank: int


@dataclass(frozen=True)
class Candidates:
    """Pairs at or above the cosine, and those of the nearest that lie below it; sorted by query and rank."""

    kept: tuple[CandidatePair, ...]
    below: tuple[CandidatePair, ...]

    def by_query(self) -> dict[str, list[CandidatePair]]:
        """Kept pairs of each query that has any."""
        grouped: dict[str, list[CandidatePair]] = {}
        for pair in self.kept:
            grouped.setdefault(pair.query_id, []).append(pair)
        return grouped

    def best_below(self) -> dict[str, CandidatePair]:
        """Nearest dropped pair of each query."""
        best: dict[str, CandidatePair] = {}
        for pair in self.below:
            best.setdefault(pair.query_id, pair)
        return best


def find_candidates(
    encoder: Encoder,
    queries: Mapping[str, str],
    tools: Sequence[tuple[str, str]],
    *,
    top_k: int,
    min_cosine: float,
    on_batch: Callable[[int], None] | None = None,
) -> Candidates:
    """The ``top_k`` nearest tools of every query, divided at ``min_cosine``; one matrix product a block.

    Args:
        queries: text by id.
        tools: (id, tool_text) of the catalog.
        on_batch: told how many texts were encoded.
    """
    ordered = sorted(queries)
    ranked = rank_dense(
        encoder,
        TextSet(tuple(ordered), tuple(queries[i] for i in ordered)),
        TextSet(tuple(i for i, _ in tools), tuple(t for _, t in tools)),
        top_k,
        on_batch=on_batch,
    )
    kept: list[CandidatePair] = []
    below: list[CandidatePair] = []
    for query, tool_ids, scores in zip(ranked.query_ids, ranked.tool_ids, ranked.scores, strict=True):
        for rank, (tool, score) in enumerate(zip(tool_ids, scores, strict=True), start=1):
            (kept if score >= min_cosine else below).append(CandidatePair(query, tool, score, rank))
    return Candidates(tuple(kept), tuple(below))
