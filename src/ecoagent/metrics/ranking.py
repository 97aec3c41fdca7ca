"""Ranking metrics over runs, computed by ir-measures, with bootstrap intervals.

Two definitions of recall are kept apart: ``Recall@k`` is the share of a query's golds among the
first k, ``Hit@k`` whether any gold is (``Success@k`` in ir-measures).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ecoagent.settings import UserError

METRICS: tuple[str, ...] = (
    "MRR",
    "nDCG@1",
    "nDCG@3",
    "nDCG@5",
    "nDCG@10",
    "Recall@1",
    "Recall@5",
    "Recall@10",
    "Hit@1",
    "Hit@5",
    "Hit@10",
)
"""Metrics of the offline table (Section 4.1), in its order."""

TOOLRET_METRICS: tuple[str, ...] = tuple(
    f"{name}@{k}" for name in ("nDCG", "MAP", "Recall", "P", "Comp") for k in (5, 10, 20)
)
"""Metrics of ToolRet's own evaluation; ``P`` is its Precision and ``Comp`` its Comprehensiveness, also called
Completeness: the share of queries with every gold among the first k."""

COMPLETE = 1 - 1e-9
"""A recall from here on is 1."""
BOOTSTRAP_SAMPLES = 2000
_BLOCK_FLOATS = 1 << 24

Qrels = Mapping[str, Set[str]]
"""Query id to its gold tools, duplicate groups included."""


class Ranking(Protocol):
    """A run as the metrics need it; ``retrieval.RankedRun`` is one."""

    @property
    def query_ids(self) -> tuple[str, ...]:
        """Queries answered."""
        ...

    @property
    def tool_ids(self) -> list[list[str]]:
        """Tools of each query, best first."""
        ...


@dataclass(frozen=True)
class RankingMetrics:
    """Values of each metric, query by query."""

    query_ids: tuple[str, ...]
    values: dict[str, npt.NDArray[np.float64]]
    """Metric to (queries,) values in [0, 1]."""

    def means(self) -> dict[str, float]:
        """Mean over the queries."""
        return {name: float(values.mean()) for name, values in self.values.items()}

    def intervals(
        self, *, level: float = 0.95, samples: int = BOOTSTRAP_SAMPLES, seed: int = 0
    ) -> dict[str, tuple[float, float]]:
        """Percentile bootstrap intervals of the means, queries resampled with replacement.

        All metrics share the resamples, so that their intervals can be read together.
        """
        table = np.stack(list(self.values.values()), axis=1)
        n = len(table)
        rng = np.random.default_rng(seed)
        means = np.empty((samples, table.shape[1]))
        block = max(1, _BLOCK_FLOATS // n)
        for start in range(0, samples, block):
            size = min(block, samples - start)
            means[start : start + size] = rng.multinomial(n, np.full(n, 1 / n), size=size) @ table / n
        tail = 100 * (1 - level) / 2
        low, high = np.percentile(means, [tail, 100 - tail], axis=0)
        return {name: (float(a), float(b)) for name, a, b in zip(self.values, low, high, strict=True)}


def evaluate_run(run: Ranking, qrels: Qrels, metrics: Sequence[str] = METRICS) -> RankingMetrics:
    """Judge a run by ir-measures.

    Every query of ``qrels`` counts: one that the run does not answer, or answers with nothing, has
    0 in each metric. The order of the run is taken as it stands, whatever its scores.

    Args:
        run: rankings, best first.
        qrels: golds; each query needs at least one.
        metrics: names out of ``METRICS``, or ``nDCG``, ``Recall``, ``Hit``, ``P``, ``MAP``, ``Comp`` with any
            ``@k``; ``Comp@k`` is whether every gold is among the first k.

    Raises:
        UserError: no queries, a query without golds, a tool twice in a ranking or an unknown metric.
    """
    import ir_measures

    if not qrels:
        raise UserError("there are no judged queries to evaluate on", remedy="use a split that has qrels")
    for query, golds in qrels.items():
        if not golds:
            raise UserError(f"query {query!r} has no gold tool", remedy="leave it out of the qrels")
    measures = {name: _measure(name) for name in metrics}
    found: dict[str, dict[str, float]] = {}
    for query, tools in zip(run.query_ids, run.tool_ids, strict=True):
        if len(set(tools)) != len(tools):
            raise UserError(f"query {query!r}: a tool is ranked twice", remedy="mend the ranker")
        # Scores are the places themselves: trec_eval would break ties in its own way.
        found[query] = {tool: float(len(tools) - place) for place, tool in enumerate(tools)}
    judged = {query: dict.fromkeys(sorted(golds), 1) for query, golds in qrels.items()}
    query_ids = tuple(sorted(qrels))
    row = {query: n for n, query in enumerate(query_ids)}
    names: dict[Any, list[str]] = {}
    for name, measure in measures.items():
        names.setdefault(measure, []).append(name)
    values = {name: np.zeros(len(query_ids)) for name in metrics}
    answered = {query: ranking for query, ranking in found.items() if query in row and ranking}
    if answered:
        for result in ir_measures.iter_calc(list(names), judged, answered):
            for name in names[result.measure]:
                whole = name.startswith("Comp@")
                values[name][row[result.query_id]] = result.value >= COMPLETE if whole else result.value
    return RankingMetrics(query_ids, values)


def _measure(name: str) -> Any:
    import ir_measures

    if name == "MRR":
        return ir_measures.RR
    kind, at, cutoff = name.partition("@")
    families = {
        "nDCG": ir_measures.nDCG,
        "Recall": ir_measures.R,
        "Hit": ir_measures.Success,
        "P": ir_measures.P,
        "MAP": ir_measures.AP,
        "Comp": ir_measures.R,
    }
    if kind not in families or not at or not cutoff.isdigit() or int(cutoff) < 1:
        raise UserError(f"unknown metric {name!r}", remedy=f"use one of {', '.join(METRICS)}")
    return families[kind] @ int(cutoff)
