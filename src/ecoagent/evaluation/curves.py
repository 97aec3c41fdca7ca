"""Recall and hit rate at every depth of a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ecoagent.evaluation.offline import JudgedSplit, part_of
from ecoagent.retrieval import RankedRun

CURVE_DEPTH = 100


@dataclass(frozen=True)
class Curve:
    """Means over a split's queries at depths 1 to ``len(recall)``."""

    set: str
    split: str
    ranker: str
    recall: tuple[float, ...]
    """Share of a query's golds among the first k."""
    hit: tuple[float, ...]
    """Share of queries with any gold among the first k."""


def recall_curve(run: RankedRun, split: JudgedSplit, depth: int = CURVE_DEPTH) -> Curve:
    """Both curves of one run on one split.

    Args:
        run: rankings, best first; it answers the split's queries.
        split: queries with golds.
        depth: largest k.
    """
    own = part_of(run, split)
    gained, first = np.zeros(depth), np.zeros(depth)
    for query, tools in zip(own.query_ids, own.tool_ids, strict=True):
        golds = split.golds[query]
        places = [place for place, tool in enumerate(tools[:depth]) if tool in golds]
        gained[places] += 1 / len(golds)
        if places:
            first[places[0]] += 1
    return Curve(split.set_name, split.split, run.name, _shares(gained, len(own)), _shares(first, len(own)))


def _shares(counts: npt.NDArray[np.float64], queries: int) -> tuple[float, ...]:
    return tuple((counts.cumsum() / queries).tolist())
