"""What values of settings must hold, beyond their types. A message says what to write instead."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationInfo

SHARES_TOLERANCE = 1e-4
"""Shares written with few digits (0.33333 three times) count as a whole."""
LARGEST = 10_000_000
"""No count needs more; far larger ones overflow in a library, hours later."""
LONGEST = 1_000_000.0
"""No other number needs more. Seconds: twelve days; a socket takes 25 at most, a timer 2 ** 63 ns."""


def bounded(value: Any) -> None:
    """Check a number; anything else passes.

    Raises:
        ValueError: it is beyond all use.
    """
    if isinstance(value, int | float):
        most = LARGEST if isinstance(value, int) else LONGEST
        if abs(value) > most:
            raise ValueError(f"must be at most {most:,.0f}: give a smaller number")


def whole(shares: tuple[float, ...], what: str) -> None:
    """Check that shares are a whole.

    Raises:
        ValueError: one is negative, or they do not sum to 1.
    """
    if min(shares) < 0:
        raise ValueError(f"{what} must not be negative")
    if abs(sum(shares) - 1) > SHARES_TOLERANCE:
        raise ValueError(f"{what} must sum to 1; these sum to {sum(shares):g}")


def listed(names: tuple[str, ...]) -> tuple[str, ...]:
    """Check a list of names.

    Raises:
        ValueError: it is empty, or names one twice.
    """
    if not names:
        raise ValueError("the list is empty: give at least one")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{twice[0]!r} is listed twice: list it once")
    return names


def not_below(most: int, info: ValidationInfo, least_key: str, section: str) -> int:
    """Check an upper bound against the lower one, which stands before it.

    Raises:
        ValueError: it is lower; both keys are named.
    """
    # The lower one is absent where it was itself refused.
    least = info.data.get(least_key, most)
    if most < least:
        raise ValueError(
            f"must not be below {section}.{least_key}, which is {least}: lower that or raise this"
        )
    return most
