"""Reciprocal-rank fusion of runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ecoagent.retrieval.runs import RankedRun
from ecoagent.settings import UserError

RRF_CONSTANT = 60
"""k of the formula (Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion", SIGIR 2009)."""


def fuse_rankings(
    rankings: Iterable[Sequence[str]], *, constant: float = RRF_CONSTANT
) -> tuple[list[str], list[float]]:
    """Tools of rankings of one query by the sum of 1 / (``constant`` + rank), best first, and the sums.

    Ties are broken by tool id, whatever the order of the rankings.
    """
    shares: dict[str, list[float]] = {}
    for ranking in rankings:
        for rank, tool in enumerate(ranking, start=1):
            shares.setdefault(tool, []).append(1.0 / (constant + rank))
    # fsum rounds once: equal shares in another order give an equal sum.
    sums = {tool: math.fsum(parts) for tool, parts in shares.items()}
    best = sorted(sums, key=lambda tool: (-sums[tool], tool))
    return best, [sums[tool] for tool in best]


def reciprocal_rank_fusion(
    runs: Sequence[RankedRun], k: int, *, name: str, constant: float = RRF_CONSTANT
) -> RankedRun:
    """The ``k`` tools with the largest sum over ``runs`` of 1 / (``constant`` + rank), ranks from 1.

    A tool that a run does not list adds nothing for it. Scores of the runs play no part, so runs of
    different kinds can be fused. Ties are broken by tool id, whatever the order of the runs.

    Raises:
        UserError: no runs, or runs that do not answer the same queries.
    """
    if not runs:
        raise UserError("no runs to fuse", remedy="give at least one")
    queries = runs[0].query_ids
    for run in runs[1:]:
        if run.query_ids != queries:
            raise UserError(
                f"runs {runs[0].name} and {run.name} do not answer the same queries in the same order",
                remedy="fuse runs over one set of queries",
            )
    tool_ids, scores = [], []
    for row in range(len(queries)):
        best, sums = fuse_rankings((run.tool_ids[row] for run in runs), constant=constant)
        tool_ids.append(best[:k])
        scores.append(sums[:k])
    return RankedRun(name, queries, tool_ids, scores)
