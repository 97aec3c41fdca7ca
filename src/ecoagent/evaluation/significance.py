"""Summaries and intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ecoagent.settings import UserError


@dataclass(frozen=True)
class Summary:
    """Mean and sample standard deviation of one number per seed (``sd`` is None for one seed)."""

    mean: float
    sd: float | None
    values: tuple[float, ...]


@dataclass(frozen=True)
class Interval:
    """A mean difference with its interval; ``low`` and ``high`` are None where one pair gives none."""

    mean: float
    low: float | None
    high: float | None
    pairs: int


def summarize(values: Sequence[float]) -> Summary:
    """Mean, sample standard deviation and the values themselves."""
    if not values:
        raise UserError("nothing to summarise")
    array = np.asarray(values, dtype=np.float64)
    return Summary(
        float(array.mean()),
        float(array.std(ddof=1)) if len(array) > 1 else None,
        tuple(array.tolist()),
    )


def paired_interval(values: Sequence[float], others: Sequence[float], *, level: float = 0.95) -> Interval:
    """Interval of the mean of ``values - others``, paired by position (Student's t).

    Over seeds it covers the draw of the stream, not the choice of the queries behind it.

    Raises UserError if the lengths differ or are zero.
    """
    from scipy import stats  # heavy; only needed here

    if len(values) != len(others) or not values:
        raise UserError(f"{len(values)} and {len(others)} values cannot be paired")
    difference = np.asarray(values, dtype=np.float64) - np.asarray(others, dtype=np.float64)
    mean, n = float(difference.mean()), len(difference)
    if n == 1:
        return Interval(mean, None, None, n)
    half = float(stats.t.ppf((1 + level) / 2, n - 1)) * float(difference.std(ddof=1)) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)
