"""Cold start: tools that no training query was about, searched among all tools.

A tool that joins after training competes with tools the encoder was trained to return. The table says how
well queries of such tools are answered, and how many are lost to a tool that was seen in training: before
training and after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Any, Literal

import numpy as np

from ecoagent.evaluation.clustered import cluster_interval, paired_test
from ecoagent.evaluation.datasets import EvalData
from ecoagent.evaluation.offline import DECIMALS, JudgedSplit, part_of
from ecoagent.metrics import evaluate_run
from ecoagent.retrieval import RankedRun, find_ranker
from ecoagent.settings import TrainSettings

RESULT = "cold_start.json"
SPLIT = ("syn", "cold")
BEFORE, AFTER = "rated_wo_contrastive", "rated"
METRICS = ("MRR", "nDCG@1", "nDCG@3", "nDCG@5", "nDCG@10", "Recall@1", "Recall@5", "Recall@10")

Winner = Literal["gold", "seen", "cold", "other", "none"]
WINNERS: tuple[Winner, ...] = ("gold", "seen", "cold", "other", "none")
"""What a query's first tool is: right; wrong and seen in training; wrong and held out of it; wrong and
without any query; or nothing was found."""


def cold_start(
    data: EvalData, runs: Sequence[RankedRun], splits: Sequence[JudgedSplit], train: TrainSettings, seed: int
) -> dict[str, Any]:
    """``out/results/cold_start.json``: rows, the comparison before and after training, and notes.

    Args:
        runs: rankings of all judged queries among all tools.
        splits: the judged splits; without a cold one the rows are empty.
        seed: of the intervals.
    """
    split = next((s for s in splits if (s.set_name, s.split) == SPLIT), None)
    if split is None:
        return {"rows": [], "change": None, "tools": {}, "notes": ["No judged query of a held-out tool."]}
    seen = seen_tools(data)
    cold = frozenset(tool for golds in split.golds.values() for tool in golds) - seen
    by_tool = data.clusters
    clusters = [by_tool[query] for query in split.queries.ids]
    rows: list[dict[str, Any]] = []
    values: dict[str, list[float]] = {}
    firsts: dict[str, list[Winner]] = {}
    for run in runs:
        part = part_of(run, split)
        metrics = evaluate_run(part, split.golds, METRICS)
        place = {query: n for n, query in enumerate(metrics.query_ids)}
        order = [place[query] for query in split.queries.ids]
        values[run.name] = metrics.values["MRR"][order].tolist()
        firsts[run.name] = [
            winner(tools, split.golds[query], seen, cold)
            for query, tools in zip(part.query_ids, part.tool_ids, strict=True)
        ]
        above = [
            seen_above_gold(tools, split.golds[query], seen)
            for query, tools in zip(part.query_ids, part.tool_ids, strict=True)
        ]
        interval = cluster_interval(values[run.name], clusters, seed=seed)
        counts, count = Counter(firsts[run.name]), len(split.queries)
        rows.append(
            {
                "ranker": run.name,
                "label": find_ranker(run.name).label(train),
                "queries": count,
                "tools": interval.clusters,
                "metrics": {name: round(value, DECIMALS) for name, value in metrics.means().items()},
                "MRR_interval": [round(interval.low, DECIMALS), round(interval.high, DECIMALS)],
                "first": {name: round(counts[name] / count, DECIMALS) for name in WINNERS},
                "lost_to_seen": round(counts["seen"] / count, DECIMALS),
                "seen_above_gold": round(float(np.mean(above)), DECIMALS),
            }
        )
    total = len(data.tools)
    wrong = total - float(np.mean([len(golds) for golds in split.golds.values()]))
    return {
        "rows": rows,
        "change": change(values, firsts, clusters, seed),
        "tools": {
            "all": total,
            "seen": len(seen),
            "cold": len(cold),
            "seen_share_of_wrong": round(len(seen) / wrong, DECIMALS) if wrong > 0 else None,
        },
        "notes": [
            "Every ranker chooses among all tools of the run; cold tools were kept out of training.",
            "Seen: gold of a training query, duplicates included. By chance a wrong first tool would be a "
            "seen one as often as seen tools are among the wrong ones.",
            "Intervals: 95% percentile bootstrap over tools, whose queries stay together.",
        ],
    }


def seen_tools(data: EvalData) -> frozenset[str]:
    """Golds of the training queries of EcoAgent-Syn."""
    train = data.queries.get(("syn", "train"))
    ids = train.ids if train is not None else ()
    return frozenset(tool for query in ids for tool in data.golds.get(query, ()))


def winner(tools: Sequence[str], golds: Set[str], seen: Set[str], cold: Set[str]) -> Winner:
    """What a ranking's first tool is."""
    if not tools:
        return "none"
    first = tools[0]
    return "gold" if first in golds else "seen" if first in seen else "cold" if first in cold else "other"


def seen_above_gold(tools: Sequence[str], golds: Set[str], seen: Set[str]) -> bool:
    """Whether a wrong tool seen in training stands above the first right one, or above nothing right."""
    for tool in tools:
        if tool in golds:
            return False
        if tool in seen:
            return True
    return False


def change(
    values: Mapping[str, Sequence[float]],
    firsts: Mapping[str, Sequence[Winner]],
    clusters: Sequence[str],
    seed: int,
) -> dict[str, Any] | None:
    """What training did to the held-out tools' queries; none without both rankers.

    Args:
        values: ranker to reciprocal rank of each query.
        firsts: ranker to what each query's first tool is.
        clusters: tool of each query.
    """
    if not {BEFORE, AFTER} <= values.keys():
        return None
    test = paired_test(values[AFTER], values[BEFORE], clusters, seed=seed)
    pairs = list(zip(firsts[BEFORE], firsts[AFTER], strict=True))
    lost = [float(a == "seen") - float(b == "seen") for b, a in pairs]
    shift = cluster_interval(lost, clusters, seed=seed)

    def three(low: float, mean: float, high: float) -> dict[str, Any]:
        return {"mean": round(mean, DECIMALS), "interval": [round(low, DECIMALS), round(high, DECIMALS)]}

    difference = test.difference
    return {
        "before": BEFORE,
        "after": AFTER,
        "MRR": {**three(difference.low, difference.mean, difference.high), "p": round(test.p, DECIMALS)},
        "lost_to_seen": three(shift.low, shift.mean, shift.high),
        "right_before_lost_to_seen_after": sum(b == "gold" and a == "seen" for b, a in pairs),
        "lost_to_seen_before_right_after": sum(b == "seen" and a == "gold" for b, a in pairs),
    }
