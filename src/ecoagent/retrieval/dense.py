"""Exact dense search by matrix products in blocks."""

from __future__ import annotations

import numpy as np

from ecoagent.retrieval.encoders import Embeddings, Encoder, OnBatch
from ecoagent.retrieval.runs import SCORE_DECIMALS, RankedRun, TextSet, TopK

BLOCK_FLOATS = 1 << 24
"""Scores held at once: 64 MB of float32."""


def rank_dense(
    encoder: Encoder,
    queries: TextSet,
    tools: TextSet,
    k: int,
    *,
    name: str | None = None,
    on_batch: OnBatch | None = None,
    decimals: int = SCORE_DECIMALS,
) -> RankedRun:
    """Encode both sides and return the ``k`` best tools per query by S_sem (Eq. 2).

    Args:
        encoder: f_Q and f_T.
        queries: queries to answer.
        tools: every tool that may be returned, with its tool_text.
        k: tools kept per query.
        name: name of the run; none = the encoder's.
        on_batch: told how many texts were encoded.
        decimals: decimals of scores that are compared.
    """
    tool_vectors = encoder.encode_documents(tools.texts, on_batch)
    query_vectors = encoder.encode_queries(queries.texts, on_batch)
    return rank_vectors(
        query_vectors, tool_vectors, queries.ids, tools.ids, k, name=name or encoder.name, decimals=decimals
    )


def rank_vectors(
    query_vectors: Embeddings,
    tool_vectors: Embeddings,
    query_ids: tuple[str, ...],
    tool_ids: tuple[str, ...],
    k: int,
    *,
    name: str,
    decimals: int = SCORE_DECIMALS,
) -> RankedRun:
    """``rank_dense`` over vectors that exist: (n, d) queries against (m, d) tools."""
    kept = TopK(name, tool_ids, k, decimals=decimals)
    block = max(1, BLOCK_FLOATS // max(1, len(tool_ids)))
    transposed = np.ascontiguousarray(tool_vectors.T)
    for start in range(0, len(query_ids), block):
        kept.add(query_ids[start : start + block], query_vectors[start : start + block] @ transposed)
    return kept.run()
