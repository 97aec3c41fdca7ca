"""Every ranker against RATED, split by split: differences with intervals, paired tests, neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ecoagent.evaluation.clustered import flip_columns, holm, interval_columns
from ecoagent.evaluation.offline import JudgedSplit, part_of
from ecoagent.metrics import METRICS, evaluate_run
from ecoagent.retrieval import RankedRun
from ecoagent.settings import UserError

REFERENCE = "rated"
"""The ranker that the others are compared with."""

COMPARED: tuple[str, ...] = ("MRR", "nDCG@10", "Recall@1", "Recall@5", "Hit@5")
"""Metrics that are compared; the first decides order and summary."""

LEVEL = 0.05
"""Two rankers are told apart where Holm's p of the test by tool is below."""

COMPARISON_FLIPS = 50_000
"""Sign patterns of each test: Holm's p over a dozen rows can still fall to .0003."""

FEW_CLUSTERS = 10
"""With fewer clusters a bootstrap's intervals are too narrow."""

Floats = npt.NDArray[np.float64]
Ends = tuple[float, float]


@dataclass(frozen=True)
class SplitValues:
    """What each ranker reached on each query of a split."""

    split: JudgedSplit
    query_ids: tuple[str, ...]
    rankers: tuple[str, ...]
    metrics: tuple[str, ...]
    values: Floats
    """(queries, rankers, metrics), in [0, 1]."""
    clusters: tuple[str, ...]
    """Tool that each query counts under."""

    def of(self, ranker: str) -> Floats:
        """(queries, metrics) of one ranker."""
        found: Floats = self.values[:, self.rankers.index(ranker), :]
        return found

    def columns(self, metrics: Sequence[str]) -> Floats:
        """(queries, rankers, metrics) of some metrics."""
        found: Floats = self.values[:, :, [self.metrics.index(name) for name in metrics]]
        return found


@dataclass(frozen=True)
class MeanRow:
    """One ranker's mean of one metric, with 95% intervals by query and by tool."""

    set: str
    split: str
    ranker: str
    metric: str
    mean: float
    by_query: Ends
    by_tool: Ends


@dataclass(frozen=True)
class ContrastRow:
    """The reference minus one ranker, paired by query."""

    set: str
    split: str
    reference: str
    ranker: str
    metric: str
    difference: float
    by_query: Ends
    by_tool: Ends
    p_by_query: float
    p_by_tool: float
    holm_by_query: float
    """Corrected over the rankers of the split, metric by metric."""
    holm_by_tool: float
    separable: bool
    """Whether ``holm_by_tool`` is below ``LEVEL``."""


@dataclass(frozen=True)
class NeighbourRow:
    """Two rankers that follow each other in the order by the first metric."""

    set: str
    split: str
    metric: str
    better: str
    worse: str
    difference: float
    by_tool: Ends
    p_by_tool: float
    holm_by_tool: float
    separable: bool


@dataclass(frozen=True)
class SplitComparison:
    """Everything said of one split."""

    set: str
    split: str
    queries: int
    tools: int
    """Clusters, see ``tool_clusters``."""
    means: tuple[MeanRow, ...]
    contrasts: tuple[ContrastRow, ...]
    neighbours: tuple[NeighbourRow, ...]


def split_values(
    split: JudgedSplit,
    runs: Sequence[RankedRun],
    clusters: Mapping[str, str],
    metrics: Sequence[str] = METRICS,
) -> SplitValues:
    """Judge every run on a split, query by query.

    Args:
        split: queries with golds.
        runs: at least one; each answers the split's queries, perhaps others too.
        clusters: query to the tool it counts under.
        metrics: names as ``evaluate_run`` takes them.

    Raises:
        UserError: there is no run, two share a name, or a run cannot be judged.
    """
    names = tuple(run.name for run in runs)
    if not names or len(set(names)) != len(names):
        raise UserError(f"runs to compare need a name each, found: {', '.join(names) or 'none'}")
    found = [evaluate_run(part_of(run, split), split.golds, metrics) for run in runs]
    query_ids = found[0].query_ids
    values = np.stack([np.stack([f.values[m] for m in metrics], axis=1) for f in found], axis=1)
    return SplitValues(
        split, query_ids, names, tuple(metrics), values, tuple(clusters[query] for query in query_ids)
    )


def compare_split(
    found: SplitValues,
    *,
    reference: str = REFERENCE,
    compared: Sequence[str] = COMPARED,
    flips: int = COMPARISON_FLIPS,
    seed: int = 0,
) -> SplitComparison:
    """Means with both intervals, contrasts with the reference, and which neighbours are not separable.

    Without the reference among the rankers there are no contrasts. All rankers and metrics share the
    resamples and the sign patterns.
    """
    split = found.split
    return SplitComparison(
        split.set_name,
        split.split,
        len(found.query_ids),
        len(set(found.clusters)),
        _means(found, seed),
        _contrasts(found, reference, compared, flips, seed) if reference in found.rankers else (),
        _neighbours(found, compared[0], flips, seed),
    )


def _ends(values: Floats, names: Sequence[str], seed: int) -> Floats:
    """Interval ends of the means over queries: (2, ...) for (queries, ...)."""
    low, high = interval_columns(values.reshape(len(values), -1), names, seed=seed)
    return np.stack([low, high]).reshape(2, *values.shape[1:])


def _pair(ends: Floats) -> Ends:
    return float(ends[0]), float(ends[1])


def _means(found: SplitValues, seed: int) -> tuple[MeanRow, ...]:
    means = found.values.mean(axis=0)
    by_query = _ends(found.values, found.query_ids, seed)
    by_tool = _ends(found.values, found.clusters, seed)
    return tuple(
        MeanRow(
            found.split.set_name,
            found.split.split,
            ranker,
            metric,
            float(means[r, m]),
            _pair(by_query[:, r, m]),
            _pair(by_tool[:, r, m]),
        )
        for r, ranker in enumerate(found.rankers)
        for m, metric in enumerate(found.metrics)
    )


def _contrasts(
    found: SplitValues, reference: str, compared: Sequence[str], flips: int, seed: int
) -> tuple[ContrastRow, ...]:
    others = [ranker for ranker in found.rankers if ranker != reference]
    if not others:
        return ()
    values = found.columns(compared)
    own = values[:, [found.rankers.index(reference)], :]
    differences = own - values[:, [found.rankers.index(other) for other in others], :]
    flat = differences.reshape(len(differences), -1)
    means = differences.mean(axis=0)
    ends, p, corrected = {}, {}, {}
    for unit, names in (("query", found.query_ids), ("tool", found.clusters)):
        ends[unit] = _ends(differences, names, seed)
        p[unit] = flip_columns(flat, names, flips=flips, seed=seed).reshape(means.shape)
        corrected[unit] = np.stack([holm(column.tolist()) for column in p[unit].T], axis=1)
    return tuple(
        ContrastRow(
            found.split.set_name,
            found.split.split,
            reference,
            other,
            metric,
            float(means[r, m]),
            _pair(ends["query"][:, r, m]),
            _pair(ends["tool"][:, r, m]),
            float(p["query"][r, m]),
            float(p["tool"][r, m]),
            float(corrected["query"][r, m]),
            float(corrected["tool"][r, m]),
            bool(corrected["tool"][r, m] < LEVEL),
        )
        for r, other in enumerate(others)
        for m, metric in enumerate(compared)
    )


def _neighbours(found: SplitValues, metric: str, flips: int, seed: int) -> tuple[NeighbourRow, ...]:
    values = found.columns([metric])[:, :, 0]
    means = values.mean(axis=0)
    # Rounded first: rankers that are equal but for the last bits keep the order of the table.
    order = sorted(range(len(found.rankers)), key=lambda r: -round(float(means[r]), 9))
    if len(order) < 2:
        return ()
    differences = values[:, order[:-1]] - values[:, order[1:]]
    names = found.clusters
    ends = _ends(differences, names, seed)
    p = flip_columns(differences, names, flips=flips, seed=seed).tolist()
    return tuple(
        NeighbourRow(
            found.split.set_name,
            found.split.split,
            metric,
            found.rankers[order[n]],
            found.rankers[order[n + 1]],
            float(differences[:, n].mean()),
            _pair(ends[:, n]),
            p[n],
            corrected,
            corrected < LEVEL,
        )
        for n, corrected in enumerate(holm(p))
    )
