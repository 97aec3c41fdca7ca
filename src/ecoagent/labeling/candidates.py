"""Candidates of each request: the encoder's nearest tools above a cosine (paper, Section 2), and BM25's best.

A gold that only one encoder may propose is whatever that encoder likes; BM25's best tools are therefore
judged too where ``labeling.lexical_top_k`` asks for them, whatever their cosine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ecoagent.retrieval.dense import rank_vectors
from ecoagent.retrieval.encoders import Embeddings, Encoder
from ecoagent.retrieval.lexical import rank_bm25
from ecoagent.retrieval.runs import SCORE_DECIMALS, TextSet
from ecoagent.settings import LexicalAnalysis

ANALYSIS: LexicalAnalysis = "plain"
"""Of BM25's candidates, whatever the baselines use: stored verdicts and calibrations are of these pairs."""

Retriever = Literal["dense", "bm25", "dense+bm25"]


@dataclass(frozen=True)
class CandidatePair:
    """A query and a tool that a retriever proposed for it.

    Attributes:
        cosine: of the labelling encoder, rounded to 6 digits, whoever proposed the pair.
        rank: 1 = nearest by cosine; where the encoder did not propose the pair, 1 = best by BM25.
        retriever: who proposed it; the encoder proposes its nearest tools at or above the cosine.
    """

    query_id: str
    tool_id: str
    cosine: float
    rank: int
    retriever: Retriever = "dense"


@dataclass(frozen=True)
class Candidates:
    """Pairs to judge, and those of the nearest that lie below the cosine and nobody else proposed.

    Both are sorted by query; ``kept`` holds the encoder's by rank, then BM25's own by rank.
    """

    kept: tuple[CandidatePair, ...]
    below: tuple[CandidatePair, ...]

    @cached_property
    def by_query(self) -> Mapping[str, Sequence[CandidatePair]]:
        """Kept pairs of each query that has any; grouped once, since every shard asks."""
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
    lexical_top_k: int = 0,
    on_batch: Callable[[int], None] | None = None,
) -> Candidates:
    """The ``top_k`` nearest tools of every query, divided at ``min_cosine``, and BM25's best.

    Each text is encoded once. A tool that shares no word with the query scores 0 by BM25 and is not proposed.

    Args:
        queries: text by id.
        tools: (id, tool_text) of the catalog.
        lexical_top_k: BM25's tools a query, kept whatever their cosine; 0 = the encoder's alone.
        on_batch: told how many texts were encoded.
    """
    ordered = sorted(queries)
    asked = TextSet(tuple(ordered), tuple(queries[i] for i in ordered))
    catalog = TextSet(tuple(i for i, _ in tools), tuple(t for _, t in tools))
    tool_vectors = encoder.encode_documents(catalog.texts, on_batch)
    query_vectors = encoder.encode_queries(asked.texts, on_batch)
    ranked = rank_vectors(query_vectors, tool_vectors, asked.ids, catalog.ids, top_k, name=encoder.name)
    lexical: list[list[str]] = [[] for _ in ordered]
    if lexical_top_k:
        lexical = rank_bm25(asked, catalog, lexical_top_k, analysis=ANALYSIS).tool_ids
    column = {tool: number for number, tool in enumerate(catalog.ids)}
    kept: list[CandidatePair] = []
    below: list[CandidatePair] = []
    for row, query in enumerate(ordered):
        proposed = set(lexical[row])
        near: dict[str, float] = dict(zip(ranked.tool_ids[row], ranked.scores[row], strict=True))
        taken = {tool for tool, cosine in near.items() if cosine >= min_cosine}
        for rank, (tool, cosine) in enumerate(near.items(), start=1):
            if tool in taken:
                by: Retriever = "dense+bm25" if tool in proposed else "dense"
                kept.append(CandidatePair(query, tool, cosine, rank, by))
            elif tool not in proposed:
                below.append(CandidatePair(query, tool, cosine, rank))
        rest = [(rank, tool) for rank, tool in enumerate(lexical[row], start=1) if tool not in taken]
        missing = [tool for _, tool in rest if tool not in near]
        near |= _cosines(query_vectors, tool_vectors, row, {tool: column[tool] for tool in missing})
        kept += [CandidatePair(query, tool, near[tool], rank, "bm25") for rank, tool in rest]
    return Candidates(tuple(kept), tuple(below))


def _cosines(
    query_vectors: Embeddings, tool_vectors: Embeddings, row: int, columns: Mapping[str, int]
) -> dict[str, float]:
    """Cosine of one query with some tools, rounded as the ranking's are."""
    if not columns:
        return {}
    products = tool_vectors[list(columns.values())] @ query_vectors[row]
    return {
        tool: round(float(p), SCORE_DECIMALS) + 0.0
        for tool, p in zip(columns, products.tolist(), strict=True)
    }
