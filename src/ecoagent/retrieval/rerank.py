"""Reranking: a cross-encoder reads query and tool together and reorders the head of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ecoagent.retrieval.declared import RERANK_TOP
from ecoagent.retrieval.encoders import OnBatch, require_model, set_max_length
from ecoagent.retrieval.runs import SCORE_DECIMALS, RankedRun, TextSet
from ecoagent.runs import read_object
from ecoagent.settings import UserError

Pair = tuple[str, str]
PairScores = npt.NDArray[np.float32]
RERANK_BATCH = 16
_HEADS = ("ForSequenceClassification", "ForCausalLM")


class CrossScorer:
    """A sentence-transformers ``CrossEncoder`` with one output, read before the sigmoid.

    The sigmoid keeps the order but is flat at its ends: in float32 good candidates would tie there.
    """

    def __init__(self, model: Any, *, name: str, batch_size: int = RERANK_BATCH) -> None:
        self.model, self.name = model, name
        self._batch_size = batch_size

    def score(self, pairs: Sequence[Pair], on_batch: OnBatch | None = None) -> PairScores:
        """(n,) logits of (query, document) pairs, in the order of ``pairs``."""
        from torch import nn

        ordered = sorted(set(pairs), key=lambda pair: (-len(pair[0]) - len(pair[1]), pair))
        found = np.empty(len(ordered), dtype=np.float32)
        for start in range(0, len(ordered), self._batch_size):
            batch = ordered[start : start + self._batch_size]
            found[start : start + len(batch)] = self.model.predict(
                [list(pair) for pair in batch],
                batch_size=len(batch),
                activation_fn=nn.Identity(),
                show_progress_bar=False,
            )
            if on_batch is not None:
                on_batch(len(batch))
        place = {pair: row for row, pair in enumerate(ordered)}
        scores: PairScores = found[[place[pair] for pair in pairs]]
        return scores


def load_reranker(
    path: Path,
    *,
    name: str,
    max_length: int = 512,
    batch_size: int = RERANK_BATCH,
    device: str | None = None,
) -> CrossScorer:
    """Load a cross-encoder from a folder; nothing is downloaded.

    Raises:
        UserError: the folder holds no model that scores pairs.
    """
    require_model(path)
    kinds = read_object(path / "config.json", remedy="give a reranker's weights").get("architectures") or []
    if not any(str(kind).endswith(_HEADS) for kind in kinds):
        # The library would put an untrained head on top of any other model.
        found = ", ".join(map(str, kinds)) or "of no known kind"
        raise UserError(
            f"{path} holds no model that scores pairs: it is {found}",
            remedy="give a reranker's weights",
        )
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(path), device=device, local_files_only=True).float().eval()
    if model.num_labels != 1:
        raise UserError(
            f"{path} has {model.num_labels} outputs; a reranker has one", remedy="give a reranker's weights"
        )
    set_max_length(model, max_length)
    return CrossScorer(model, name=name, batch_size=batch_size)


def rerank(
    score: Callable[[Sequence[Pair], OnBatch | None], PairScores],
    first: RankedRun,
    queries: TextSet,
    tools: TextSet,
    k: int,
    *,
    name: str,
    top: int = RERANK_TOP,
    on_batch: OnBatch | None = None,
) -> RankedRun:
    """``first`` with its ``top`` tools of each query reordered by ``score``, cut after ``k``.

    Tools below ``top`` keep the order of ``first``; their scores are moved below those of the head, so
    that scores fall along the whole ranking. Ties in the head are broken by tool id.

    Raises:
        UserError: ``first`` answers other queries.
    """
    if first.query_ids != queries.ids:
        raise UserError(
            f"run {first.name} does not answer the queries to rerank", remedy="rank the same queries first"
        )
    texts = dict(zip(tools.ids, tools.texts, strict=True))
    pairs = [
        (query, texts[tool])
        for query, found in zip(queries.texts, first.tool_ids, strict=True)
        for tool in found[:top]
    ]
    scores = np.round(score(pairs, on_batch).astype(np.float64), SCORE_DECIMALS) + 0.0
    tool_ids, values, start = [], [], 0
    for found, before in zip(first.tool_ids, first.scores, strict=True):
        head, tail = found[:top], found[top:k]
        own = dict(zip(head, scores[start : start + len(head)].tolist(), strict=True))
        start += len(head)
        best = sorted(own, key=lambda tool: (-own[tool], tool))
        lowest = min(own.values(), default=0.0)
        below = [lowest - 1.0 - (before[top] - value) for value in before[top:k]]
        tool_ids.append([*best, *tail][:k])
        values.append([*(own[tool] for tool in best), *below][:k])
    return RankedRun(name, first.query_ids, tool_ids, values)
