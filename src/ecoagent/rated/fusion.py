"""The score that ranks candidates (Eq. 9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ecoagent.rated.errors import BanditError

FUSION_WEIGHTS = (0.75, 0.15, 0.10)
"""w1, w2, w3 of Eq. 9 (paper, Section 4.1)."""


def fuse(
    semantic: ArrayLike,
    bandit: ArrayLike,
    static: ArrayLike,
    weights: Sequence[float] = FUSION_WEIGHTS,
) -> NDArray[np.floating[Any]]:
    """``w1 * S_sem + w2 * S_bandit + w3 * r_static`` for k candidates (Eq. 9).

    The three inputs have one shape, usually ``(k,)``; so has the result. Weights are not required to sum
    to one, so that sensitivity grids may leave the simplex.

    Raises BanditError if shapes differ or there are not three weights.
    """
    if len(weights) != 3:
        raise BanditError(f"fusion needs three weights, got {len(weights)}")
    first, second, third = np.asarray(semantic), np.asarray(bandit), np.asarray(static)
    if not first.shape == second.shape == third.shape:
        raise BanditError(
            f"scores to fuse have shapes {first.shape}, {second.shape} and {third.shape}; they must agree"
        )
    fused: NDArray[np.floating[Any]] = first * weights[0] + second * weights[1] + third * weights[2]
    return fused
