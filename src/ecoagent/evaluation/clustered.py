"""Intervals and tests over queries that come in clusters: those of one tool are not independent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ecoagent.metrics.ranking import BOOTSTRAP_SAMPLES
from ecoagent.settings import UserError

FLIPS = 10_000
"""Sign changes drawn by the paired test: the smallest p it can give is 1 / (FLIPS + 1)."""

_BLOCK_FLOATS = 1 << 24
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


def _sums(values: Sequence[float], clusters: Sequence[str]) -> tuple[Floats, Floats]:
    """Sum and number of the values of each cluster, clusters in order of name."""
    if len(values) != len(clusters) or not len(values):
        raise UserError(f"{len(values)} values and {len(clusters)} cluster names do not belong together")
    _, place = np.unique(np.asarray(clusters), return_inverse=True)
    return (
        np.bincount(place, weights=np.asarray(values, dtype=np.float64)).astype(np.float64),
        np.bincount(place).astype(np.float64),
    )


def cluster_interval(
    values: Sequence[float],
    clusters: Sequence[str],
    *,
    level: float = 0.95,
    samples: int = BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> ClusterInterval:
    """Interval of the mean of ``values``, one cluster name a value.

    Raises:
        UserError: no values, or not one cluster name each.
    """
    sums, sizes = _sums(values, clusters)
    n = len(sums)
    rng = np.random.default_rng(seed)
    means = np.empty(samples)
    block = max(1, _BLOCK_FLOATS // n)
    for start in range(0, samples, block):
        size = min(block, samples - start)
        drawn = rng.multinomial(n, np.full(n, 1 / n), size=size)
        # Clusters differ in size: the mean of a resample is over its values, not over its clusters.
        means[start : start + size] = (drawn @ sums) / (drawn @ sizes)
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(means, [tail, 100 - tail])
    return ClusterInterval(float(sums.sum() / sizes.sum()), float(low), float(high), len(values), n)


def paired_test(
    values: Sequence[float],
    others: Sequence[float],
    clusters: Sequence[str],
    *,
    flips: int = FLIPS,
    seed: int = 0,
) -> PairedTest:
    """Whether ``values`` and ``others``, paired by position, have the same mean.

    Under that hypothesis the sign of a cluster's summed difference is a coin's; p is the share of
    sign patterns with a total as far from 0 as the one seen (Fisher's randomisation test by cluster).

    Raises:
        UserError: the lengths differ or are zero.
    """
    if len(values) != len(others):
        raise UserError(f"{len(values)} and {len(others)} values cannot be paired")
    difference = np.asarray(values, dtype=np.float64) - np.asarray(others, dtype=np.float64)
    sums, _ = _sums(difference.tolist(), clusters)
    rng = np.random.default_rng(seed)
    seen, reached = abs(float(sums.sum())), 0
    block = max(1, _BLOCK_FLOATS // len(sums))
    for start in range(0, flips, block):
        size = min(block, flips - start)
        signs = 2.0 * rng.integers(0, 2, size=(size, len(sums))) - 1.0
        # Rounding must not make a pattern that equals the one seen fall short of it.
        reached += int((np.abs(signs @ sums) >= seen - 1e-12).sum())
    return PairedTest(cluster_interval(difference.tolist(), clusters, seed=seed), (1 + reached) / (1 + flips))
