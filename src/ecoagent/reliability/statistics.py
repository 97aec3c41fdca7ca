"""What a scored catalog looks like, overall and by source. Pure functions over arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from ecoagent.metrics.intervals import wilson
from ecoagent.reliability.score import ReliabilityScores
from ecoagent.settings import ReliabilitySettings

SIGNALS = ("r_cons", "w_src", "r_qual", "r_static")
BINS = 20
"""Bins of the histogram of r_static, each 0.05 wide, closed below; the last one holds 1 as well."""
_DIGITS = 6


def statistics(
    scores: ReliabilityScores, sources: Sequence[str], settings: ReliabilitySettings
) -> dict[str, Any]:
    """The content of ``results/reliability.json``.

    Args:
        scores: scores of n tools.
        sources: source of each, n entries.
        settings: weights and threshold they were made with.
    """
    names, codes = np.unique(np.asarray(sources, dtype=object).astype(str), return_inverse=True)
    return {
        "threshold": settings.threshold,
        "weights": list(settings.weights),
        "quality_weights": list(settings.quality_weights),
        "source_weights": settings.source_weights,
        "scales": asdict(scores.scales),
        "overall": describe(scores, np.arange(len(codes))),
        "by_source": {str(n): describe(scores, np.flatnonzero(codes == i)) for i, n in enumerate(names)},
    }


def describe(scores: ReliabilityScores, index: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Statistics of the tools at ``index``: reliable share with its interval, quartiles, histogram."""
    hits, count = int(scores.reliable[index].sum()), len(index)
    if not count:
        return {"tools": 0, "reliable": 0}
    static = scores.r_static[index]
    bins = np.minimum((static * BINS).astype(int), BINS - 1)
    return {
        "tools": count,
        "reliable": hits,
        "share": _rounded(hits / count),
        "share_interval_95": [_rounded(x) for x in wilson(hits / count, count)],
        "signals": {name: _spread(getattr(scores, name)[index]) for name in SIGNALS},
        "histogram": np.bincount(bins, minlength=BINS).tolist(),
    }


def _spread(values: npt.NDArray[np.float64]) -> dict[str, float]:
    low, quarter, median, three, high = np.quantile(values, (0.0, 0.25, 0.5, 0.75, 1.0))
    return {
        "min": _rounded(low),
        "q1": _rounded(quarter),
        "median": _rounded(median),
        "q3": _rounded(three),
        "max": _rounded(high),
        "mean": _rounded(values.mean()),
    }


def _rounded(value: Any) -> float:
    return round(float(value), _DIGITS)


def summarize(found: dict[str, Any]) -> dict[str, Any]:
    """The short form a stage's summary shows: share of reliable tools and medians of the signals."""

    def numbers(part: dict[str, Any]) -> dict[str, Any]:
        if not part["tools"]:
            return {"tools": 0}
        medians = {f"median_{name}": round(part["signals"][name]["median"], 4) for name in SIGNALS}
        return {"tools": part["tools"], "reliable": round(part["share"], 4), **medians}

    return {
        **numbers(found["overall"]),
        "by_source": {source: numbers(part) for source, part in found["by_source"].items()},
        "scales": found["scales"],
    }
