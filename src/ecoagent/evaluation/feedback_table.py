"""The tables of TR-Feedback: metrics by iteration against iteration 0, and what the critic did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ecoagent.evaluation.clustered import cluster_interval, paired_test
from ecoagent.evaluation.offline import DECIMALS
from ecoagent.metrics import RankingMetrics, evaluate_run
from ecoagent.retrieval import RankedRun
from ecoagent.schema import FeedbackRow

FEEDBACK_METRICS = ("nDCG@1", "nDCG@3", "nDCG@5", "Recall@1", "Recall@3", "Recall@5")
"""Metrics of the paper's tables."""


@dataclass(frozen=True)
class Judged:
    """A domain's queries of one critic.

    Attributes:
        domain: in_domain, out_of_domain or real.
        golds: query to its golds.
        clusters: query to the tool it counts under.
    """

    domain: str
    golds: Mapping[str, frozenset[str]]
    clusters: Mapping[str, str]


@dataclass(frozen=True)
class Ranking:
    """What a row of the table says of a ranking.

    Attributes:
        name: as the table shows it.
        iteration: t of a ranking of the feedback's retriever as it stands.
        fused_to: t of a ranking made from iterations 0 to t.
        gated: whether queries whose first search is trusted have iteration 0.
        rated: whether RATED's S_final gives the order.
    """

    name: str
    run: RankedRun
    iteration: int | None = None
    fused_to: int | None = None
    gated: bool = False
    rated: bool = False


def metric_rows(
    critic: str, judged: Judged, rankings: Sequence[Ranking], *, seed: int
) -> list[dict[str, Any]]:
    """A row a ranking: means, 95% intervals, and the difference from the first ranking with its test.

    Args:
        critic: the model.
        judged: queries of one domain.
        rankings: the first is iteration 0.
        seed: of the resamples.
    """
    rows: list[dict[str, Any]] = []
    first: RankingMetrics | None = None
    for ranking in rankings:
        found = evaluate_run(ranking.run, judged.golds, FEEDBACK_METRICS)
        clusters = [judged.clusters[query] for query in found.query_ids]
        row: dict[str, Any] = {
            "critic": critic,
            "domain": judged.domain,
            "ranking": ranking.name,
            "iteration": ranking.iteration,
            "fused_to": ranking.fused_to,
            "gated": ranking.gated,
            "rated": ranking.rated,
            "queries": len(found.query_ids),
            "tools": len(set(clusters)),
            "metrics": {m: round(v, DECIMALS) for m, v in found.means().items()},
            "intervals": {},
            "against_first": {},
        }
        for metric, values in found.values.items():
            inside = cluster_interval(values.tolist(), clusters, seed=seed)
            row["intervals"][metric] = [round(inside.low, DECIMALS), round(inside.high, DECIMALS)]
            if first is not None:
                test = paired_test(values.tolist(), first.values[metric].tolist(), clusters, seed=seed)
                row["against_first"][metric] = {
                    "difference": round(test.difference.mean, DECIMALS),
                    "interval": [round(test.difference.low, DECIMALS), round(test.difference.high, DECIMALS)],
                    "p": round(test.p, DECIMALS),
                }
        first = first or found
        rows.append(row)
    return rows


def critic_rows(critic: str, domain: str, rows: Sequence[FeedbackRow]) -> list[dict[str, Any]]:
    """What became of the queries in each iteration from 1 on: counts, shares, tokens a query."""
    found = []
    for iteration in sorted({row.iteration for row in rows} - {0}):
        own = [row for row in rows if row.iteration == iteration]
        status = Counter(row.status for row in own)
        asked = sum(bool(row.response_hashes) for row in own)
        found.append(
            {
                "critic": critic,
                "domain": domain,
                "iteration": iteration,
                "queries": len(own),
                "asked": asked,
                "requests": sum(len(row.response_hashes) for row in own),
                "rewritten": status["rewritten"],
                "stopped": status["stopped"],
                "share_stopped": round(status["stopped"] / len(own), DECIMALS),
                "fallback": status["fallback"],
                "reasons": dict(sorted(Counter(r.reason for r in own if r.reason).items())),
                "tokens_in": sum(row.tokens_in for row in own),
                "tokens_out": sum(row.tokens_out for row in own),
                "tokens_per_query": round(sum(r.tokens_in + r.tokens_out for r in own) / len(own), 1),
            }
        )
    return found


def latency_rows(times: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Seconds by critic and iteration from ``feedback_latency.json``; what is of another form is left out."""
    found = []
    for critic, iterations in sorted(times.items()):
        for iteration, own in sorted(iterations.items()) if isinstance(iterations, Mapping) else ():
            if not isinstance(own, Mapping):
                continue
            asked, queries, searched = (own.get(k) or 0 for k in ("asked", "queries", "searched"))
            found.append(
                {
                    "critic": critic,
                    "iteration": int(iteration),
                    "requests": asked,
                    "s_per_query": round(own.get("asked_s", 0.0) / queries, 3) if queries else None,
                    "ms_search_per_query": round(1000 * own.get("searched_s", 0.0) / searched, 1)
                    if searched
                    else None,
                }
            )
    return found
