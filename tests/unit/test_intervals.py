"""Wilson's interval against values worked out by hand."""

from __future__ import annotations

import pytest

from ecoagent.metrics.intervals import wilson


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [
        # z^2 = 3.841459; at 0 of n the upper end is z^2 / (n + z^2), at n of n the lower is n / (n + z^2).
        (0, 10, 0.0, 0.277533),
        (10, 10, 0.722467, 1.0),
        (5, 5, 0.565518, 1.0),
        (1, 1, 0.206549, 1.0),
        (5, 10, 0.236593, 0.763407),
        # Centre 0.5, half-width 1.96 sqrt(0.0025 + 3.8415/40000) / 1.038415.
        (50, 100, 0.403832, 0.596168),
        (8, 10, 0.490162, 0.943318),
    ],
)
def test_interval_of_a_share(hits: int, of: int, low: float, high: float) -> None:
    assert wilson(hits / of, of) == pytest.approx((low, high), abs=1e-6)


def test_ends_are_exact_and_nothing_seen_says_nothing() -> None:
    assert wilson(0.0, 7)[0] == 0.0 and wilson(1.0, 7)[1] == 1.0
    assert wilson(1.0, 0) == wilson(0.0, 0) == (0.0, 1.0)
