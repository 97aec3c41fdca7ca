"""Effective size of a weighted sample, and chance-corrected agreement: pure functions."""

from __future__ import annotations

from collections.abc import Sequence


def effective_size(weights: Sequence[float]) -> float:
    """Size of the equally weighted sample of the same worth (L. Kish, 1965); 0 of none."""
    square = sum(w * w for w in weights)
    return sum(weights) ** 2 / square if square else 0.0


def cohen_kappa(
    first: Sequence[bool], second: Sequence[bool], weights: Sequence[float] | None = None
) -> float | None:
    """Cohen's kappa of two judges over the same pairs (J. Cohen, 1960).

    None where it is not defined: no pair, or both judges give one and the same answer to all.

    Raises:
        ValueError: lengths differ.
    """
    weight = [1.0] * len(first) if weights is None else list(weights)
    if not len(first) == len(second) == len(weight):
        raise ValueError("judges of different lengths")
    total = sum(weight)
    if not total:
        return None
    agreed = sum(w for a, b, w in zip(first, second, weight, strict=True) if a == b) / total
    yes_first = sum(w for a, w in zip(first, weight, strict=True) if a) / total
    yes_second = sum(w for b, w in zip(second, weight, strict=True) if b) / total
    chance = yes_first * yes_second + (1 - yes_first) * (1 - yes_second)
    if chance >= 1 - 1e-12:
        return None
    return (agreed - chance) / (1 - chance)
