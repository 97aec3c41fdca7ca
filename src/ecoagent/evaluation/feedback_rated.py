"""RATED after TR-Feedback: what the iterations found, scored by Eq. 9 before anything was executed.

The queries' contexts stay e_{q_0}: S_sem and the bandit score a tool for what was asked, not for how the
critic worded it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ecoagent.evaluation.datasets import EvalData
from ecoagent.evaluation.run_index import run_encoder
from ecoagent.evaluation.stream import StreamSource
from ecoagent.evaluation.train_stage import RECORD, model_folder
from ecoagent.feedback import fused_candidates
from ecoagent.rated import DiscountedLinUCB, fuse
from ecoagent.retrieval import Embeddings, RankedRun, TextSet, rank_vectors
from ecoagent.retrieval.runs import SCORE_DECIMALS
from ecoagent.runs import RunContext
from ecoagent.settings import EvaluateSettings

CONTEXTS, TOOLS = "contexts.npy", "tools.npy"


def rated_record(ctx: RunContext) -> Path | None:
    """The record of the training of RATED's towers, which stands for them; none where there are none."""
    record = ctx.paths.core / RECORD
    return record if record.is_file() and model_folder(ctx).is_dir() else None


def rated_key(ctx: RunContext) -> dict[str, Any] | None:
    """Settings of the re-ranking, part of a stage key; none where RATED was not trained."""
    if rated_record(ctx) is None:
        return None
    return ctx.settings.evaluate.model_dump(mode="json", include={"alpha", "gamma", "fusion", "top_k"})


@dataclass(frozen=True)
class RatedVectors:
    """Vectors of RATED's towers.

    Attributes:
        query_ids: the queries of ``contexts``.
        contexts: (n, d) e_{q_0}, rows of length 1.
        tools: (m, d) e_a, in the order of the run's tools.
    """

    query_ids: tuple[str, ...]
    contexts: Embeddings
    tools: Embeddings

    def of(self, query_ids: Sequence[str]) -> Embeddings:
        """(k, d) contexts of some queries, in their order."""
        place = {query: n for n, query in enumerate(self.query_ids)}
        return self.contexts[[place[query] for query in query_ids]]


def write_vectors(ctx: RunContext, data: EvalData, queries: TextSet, directory: Path) -> None:
    """Encode the queries and every tool with the run's trained towers; stored vectors are taken."""
    encoder = run_encoder(ctx, among=("rated",))
    total = len(queries) + len(data.tools)
    with ctx.progress.task("feedback: vectors of RATED", total=total, unit="texts") as task:
        np.save(directory / CONTEXTS, encoder.encode_queries(queries.texts, task.advance))
        np.save(directory / TOOLS, encoder.encode_documents(data.tools.texts, task.advance))


def read_vectors(directory: Path, queries: TextSet) -> RatedVectors:
    """What ``write_vectors`` wrote for these queries."""
    return RatedVectors(queries.ids, np.load(directory / CONTEXTS), np.load(directory / TOOLS))


def own_candidates(
    query_ids: tuple[str, ...], vectors: RatedVectors, data: EvalData, settings: EvaluateSettings
) -> RankedRun:
    """RATED without feedback: the first K tools of its own search with q_0, by S_sem."""
    return rank_vectors(
        vectors.of(query_ids), vectors.tools, query_ids, data.tools.ids, settings.top_k, name="rated"
    )


def rated_ranking(
    candidates: RankedRun, vectors: RatedVectors, data: EvalData, settings: EvaluateSettings
) -> RankedRun:
    """The first K of each ranking, ordered by S_final (Eq. 9) with the bandit at its prior.

    Nothing was executed: A is the identity and b the cold start from r_static, so that S_bandit (Eq. 6) is
    that of Algorithm 1 in its first step. Equal scores stand as S_sem has them.

    Args:
        candidates: rankings of any ranker over the run's tools, as deep as K.
        vectors: of RATED's towers, for these queries at least.
        data: golds, tools and r_static.
        settings: K, alpha, gamma and the weights of Eq. 9.
    """
    found = fused_candidates(
        candidates, vectors.of(candidates.query_ids), vectors.tools, data.tools.ids, settings.top_k
    )
    golds = [data.golds[query] for query in found.query_ids]
    # Arms do not touch each other: those that nobody may choose are left out.
    pool = sorted({tool for tools in (*found.tool_ids, *golds) for tool in tools})
    source = StreamSource(
        query_ids=found.query_ids,
        contexts=found.contexts,
        candidates=found.tool_ids,
        semantic=found.semantic,
        golds=golds,
        tool_ids=pool,
        r_static=data.r_static,
        top_k=settings.top_k,
    )
    bandit = DiscountedLinUCB(
        len(pool), source.dim, alpha=settings.alpha, gamma=settings.gamma, prior=source.prior
    )
    tool_ids, scores = [], []
    for query in source.queries:
        bandit_scores = bandit.scores(query.x, query.candidates)
        final = fuse(query.semantic, bandit_scores, query.static, settings.fusion)
        order = np.argsort(-final, kind="stable")
        tool_ids.append([pool[arm] for arm in query.candidates[order].tolist()])
        scores.append([round(float(value), SCORE_DECIMALS) for value in final[order]])
    return RankedRun(candidates.name, candidates.query_ids, tool_ids, scores)
