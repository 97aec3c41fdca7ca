"""Intervals and tests over queries that come in clusters: those of one tool are not independent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ecoagent.metrics.ranking import BOOTSTRAP_SAMPLES
from ecoagent.settings import UserError

FLIPS = 10_000
"""Sign changes drawn by the paired test: the smallest p it can give is 1 / (FLIPS + 1)."""

_BLOCK_FLOATS = 1 << 24
_SLACK = 1e-9
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ClusterInterval:
    """A mean with its percentile bootstrap interval, clusters resampled with replacement."""

    mean: float
    low: float
    high: float
    values: int
    clusters: int


@dataclass(frozen=True)
class PairedTest:
    """Mean difference with its interval, and the two-sided p of a test that flips signs by cluster."""

    difference: ClusterInterval
    p: float


def tool_clusters(
    golds: Mapping[str, Set[str]], groups: Mapping[str, str], sources: Mapping[str, str]
) -> dict[str, str]:
    """Query to the tool it counts under: the one it was generated for, else its first gold.

    Queries of one tool were written from one text and are hard or easy together. Duplicates count as one
    tool; of several golds the first duplicate group by name is taken, so that every query is in one cluster.

    Args:
        golds: query to its golds, at least one each.
        groups: tool to duplicate group; a tool that is not in it is its own.
        sources: query to the tool it was generated for, where there is one.
    """
    return {
        query: min(groups.get(tool, tool) for tool in ((sources[query],) if query in sources else own))
        for query, own in golds.items()
    }


def _sums(values: npt.ArrayLike, clusters: Sequence[str]) -> tuple[Floats, Floats]:
    """Sums (clusters, columns) and number of the values of each cluster, clusters in order of name."""
    table = np.asarray(values, dtype=np.float64)
    table = table.reshape(len(table), -1)
    if len(table) != len(clusters) or not len(table):
        raise UserError(f"{len(table)} values and {len(clusters)} cluster names do not belong together")
    names, place = np.unique(np.asarray(clusters), return_inverse=True)
    sums = np.zeros((len(names), table.shape[1]))
    np.add.at(sums, place, table)
    return sums, np.bincount(place).astype(np.float64)


def interval_columns(
    values: npt.ArrayLike,
    clusters: Sequence[str],
    *,
    level: float = 0.95,
    samples: int = BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> tuple[Floats, Floats]:
    """Ends of the interval of each column's mean, one cluster name a row of ``values``.

    Percentile bootstrap, clusters resampled with replacement. All columns share the resamples, so that
    their intervals can be read together.

    Args:
        values: (queries, columns).
        clusters: cluster name of each query.
        level: of the interval.
        samples: resamples.
        seed: of the resamples.

    Returns:
        Low and high ends, (columns,) each.

    Raises:
        UserError: no values, or not one cluster name each.
    """
    sums, sizes = _sums(values, clusters)
    n = len(sums)
    rng = np.random.default_rng(seed)
    means = np.empty((samples, sums.shape[1]))
    block = max(1, _BLOCK_FLOATS // n)
    for start in range(0, samples, block):
        size = min(block, samples - start)
        drawn = rng.multinomial(n, np.full(n, 1 / n), size=size).astype(np.float64)
        # Clusters differ in size: the mean of a resample is over its values, not over its clusters.
        means[start : start + size] = (drawn @ sums) / (drawn @ sizes)[:, None]
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(means, [tail, 100 - tail], axis=0)
    return low, high


def flip_columns(
    differences: npt.ArrayLike, clusters: Sequence[str], *, flips: int = FLIPS, seed: int = 0
) -> Floats:
    """Two-sided p of each column of paired differences: is its mean 0?

    If it is, the sign of a cluster's summed difference is a coin's; p is the share of sign patterns with
    a total as far from 0 as the one seen (Fisher's randomisation test by cluster). All columns share the
    patterns.

    Args:
        differences: (queries, columns).
        clusters: cluster name of each query; names of their own make it the test by query.
        flips: sign patterns drawn.
        seed: of the patterns.

    Raises:
        UserError: no values, or not one cluster name each.
    """
    sums, _ = _sums(differences, clusters)
    rng = np.random.default_rng(seed)
    # Rounding must not make a pattern that equals the one seen fall short of it.
    seen = np.abs(sums.sum(axis=0)) - _SLACK
    reached = np.zeros(sums.shape[1])
    block = max(1, _BLOCK_FLOATS // max(len(sums), sums.shape[1]))
    for start in range(0, flips, block):
        size = min(block, flips - start)
        signs = 2.0 * rng.integers(0, 2, size=(size, len(sums)), dtype=np.bool_) - 1.0
        reached += (np.abs(signs @ sums) >= seen).sum(axis=0)
    found: Floats = (1 + reached) / (1 + flips)
    return found


def holm(p: Sequence[float]) -> list[float]:
    """Holm's step-down correction (Holm 1979): the chance of any false finding stays below the level.

    Values come back in the order given; the largest possible is 1.
    """
    order = sorted(range(len(p)), key=lambda i: p[i])
    found, highest = [0.0] * len(p), 0.0
    for place, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p) - place) * p[index]))
        found[index] = highest
    return found


def cluster_interval(
    values: Sequence[float],
    clusters: Sequence[str],
    *,
    level: float = 0.95,
    samples: int = BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> ClusterInterval:
    """Interval of the mean of ``values``, one cluster name a value; see ``interval_columns``.

    Raises:
        UserError: no values, or not one cluster name each.
    """
    low, high = interval_columns(values, clusters, level=level, samples=samples, seed=seed)
    return ClusterInterval(
        float(np.mean(np.asarray(values))), float(low[0]), float(high[0]), len(values), len(set(clusters))
    )


def paired_test(
    values: Sequence[float],
    others: Sequence[float],
    clusters: Sequence[str],
    *,
    flips: int = FLIPS,
    seed: int = 0,
) -> PairedTest:
    """Whether ``values`` and ``others``, paired by position, have the same mean; see ``flip_columns``.

    Raises:
        UserError: the lengths differ or are zero.
    """
    if len(values) != len(others):
        raise UserError(f"{len(values)} and {len(others)} values cannot be paired")
    difference = (np.asarray(values, dtype=np.float64) - np.asarray(others, dtype=np.float64)).tolist()
    p = float(flip_columns(difference, clusters, flips=flips, seed=seed)[0])
    return PairedTest(cluster_interval(difference, clusters, seed=seed), p)
