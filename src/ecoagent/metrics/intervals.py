"""Wilson intervals of shares, for counts and for weighted samples."""

from __future__ import annotations

import math

Z95 = 1.959963984540054


def wilson(share: float, of: float, z: float = Z95) -> tuple[float, float]:
    """Interval of a share seen in a sample (Wilson 1927); (0, 1) where nothing was seen.

    Args:
        share: in [0, 1].
        of: size of the sample; of a weighted one the effective size, which need not be whole.
        z: quantile; 95% by default.
    """
    if of <= 0:
        return 0.0, 1.0
    square = z * z / of
    middle = (share + square / 2) / (1 + square)
    half = z * math.sqrt(share * (1 - share) / of + square / (4 * of)) / (1 + square)
    low = 0.0 if share <= 0 else max(0.0, middle - half)
    return low, 1.0 if share >= 1 else min(1.0, middle + half)
