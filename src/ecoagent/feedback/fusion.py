"""TR-Feedback before RATED's re-ranking: which candidates go on, and when the critic is worth its time.

The candidates are the reciprocal-rank fusion of the iterations. What re-ranks them keeps the first
query's vector e_{q_0}, as S_sem's query and as the bandit's context: outcomes belong to what was asked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ecoagent.retrieval import RRF_CONSTANT, Embeddings, RankedRun
from ecoagent.retrieval.fusion import fuse_rankings
from ecoagent.retrieval.runs import SCORE_DECIMALS
from ecoagent.settings import UserError

GATE_DECIMALS = 6


@dataclass(frozen=True)
class Gate:
    """Probability that the first tool found is right, by the gap of its score to the next other tool's.

    p = sigmoid(slope * gap + intercept), fitted on queries no result is reported on.

    Attributes:
        queries: fitted on; 0 = there were none, and p is 0 throughout: the critic is always asked.
        right: of these, with a right tool first.
    """

    slope: float
    intercept: float
    queries: int
    right: int

    def probability(self, gap: float) -> float:
        """p of a gap, in [0, 1]."""
        if not self.queries:
            return 0.0
        z = self.slope * gap + self.intercept
        return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


@dataclass(frozen=True)
class FusedCandidates:
    """What re-ranking starts from; lists are parallel, one entry a query.

    Attributes:
        contexts: (n, d) e_{q_0}, the bandit's x.
        tool_ids: candidates, best S_sem first (then tool id), as a stream takes them.
        semantic: their S_sem with e_{q_0}.
    """

    query_ids: tuple[str, ...]
    contexts: Embeddings
    tool_ids: list[list[str]]
    semantic: list[list[float]]


def score_gaps(run: RankedRun, groups: Mapping[str, str]) -> list[float]:
    """Score of each query's first tool minus that of the next one that is no copy of it; 2, the most two
    cosines can differ by, where there is none."""
    gaps = []
    for tools, scores in zip(run.tool_ids, run.scores, strict=True):
        other = [s for t, s in zip(tools, scores, strict=True) if groups[t] != groups[tools[0]]]
        gaps.append(round(scores[0] - other[0], SCORE_DECIMALS) if other else 2.0)
    return gaps


def fit_gate(gaps: Sequence[float], right: Sequence[bool]) -> Gate:
    """Logistic regression of "the first tool is right" on the gap; a constant where all agree."""
    n, k = len(gaps), sum(right)
    if n != len(right):
        raise UserError(f"{n} gaps but {len(right)} outcomes", remedy="give one of each a query")
    if not n:
        return Gate(0.0, 0.0, 0, 0)
    if k in (0, n):
        # Laplace's rule: no sample makes a thing certain.
        p = (k + 1) / (n + 2)
        return Gate(0.0, round(math.log(p / (1 - p)), GATE_DECIMALS), n, k)
    from sklearn.linear_model import LogisticRegression

    x = np.asarray(gaps, dtype=np.float64)
    scale = float(x.std()) or 1.0
    fitted = LogisticRegression(C=100.0).fit(x[:, None] / scale, np.asarray(right))
    slope, intercept = float(fitted.coef_[0, 0]) / scale, float(fitted.intercept_[0])
    return Gate(round(slope, GATE_DECIMALS), round(intercept, GATE_DECIMALS), n, k)


def fuse_runs(
    runs: Sequence[RankedRun],
    *,
    rrf_k: int = RRF_CONSTANT,
    last: Mapping[str, int] | None = None,
    name: str = "fused",
) -> RankedRun:
    """Reciprocal-rank fusion of the iterations, see ``retrieval.fusion``.

    A ranking that an iteration only carried on is the same list, and counts once.

    Args:
        runs: iterations 0 to T, of the same queries in the same order.
        rrf_k: the constant k.
        last: the last iteration that is taken of a query; none = all.
        name: name of the fused run.

    Raises:
        UserError: the runs are of other queries.
    """
    if not runs or any(run.query_ids != runs[0].query_ids for run in runs):
        raise UserError("runs of other queries cannot be fused", remedy="give the iterations of one loop")
    tool_ids, scores = [], []
    for n, query in enumerate(runs[0].query_ids):
        most = len(runs) - 1 if last is None else last[query]
        lists: list[list[str]] = []
        for run in runs[: most + 1]:
            if run.tool_ids[n] not in lists:
                lists.append(run.tool_ids[n])
        best, sums = fuse_rankings(lists, constant=rrf_k)
        tool_ids.append(best)
        scores.append(sums)
    return RankedRun(name, runs[0].query_ids, tool_ids, scores)


def fused_candidates(
    fused: RankedRun, contexts: Embeddings, tool_vectors: Embeddings, tool_ids: Sequence[str], k: int
) -> FusedCandidates:
    """The first ``k`` of the fusion with their S_sem, ready for re-ranking (``StreamSource`` takes them).

    Args:
        fused: fusion of the iterations.
        contexts: (n, d) e_{q_0} of RATED's query tower, in the order of ``fused``.
        tool_vectors: (m, d) e_a of RATED's tool tower.
        tool_ids: the m tools.
        k: candidates per query (K of RATED, Section 4.1).
    """
    place = {tool: n for n, tool in enumerate(tool_ids)}
    chosen, semantic = [], []
    for n, tools in enumerate(fused.tool_ids):
        cut = tools[:k]
        values = tool_vectors[[place[tool] for tool in cut]].astype(np.float64) @ contexts[n].astype(
            np.float64
        )
        scored = sorted(
            zip((round(float(v), SCORE_DECIMALS) for v in values), cut, strict=True),
            key=lambda pair: (-pair[0], pair[1]),
        )
        chosen.append([tool for _, tool in scored])
        semantic.append([value for value, _ in scored])
    return FusedCandidates(fused.query_ids, contexts, chosen, semantic)
