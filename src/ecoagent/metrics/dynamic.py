"""Metrics of a run with failing tools (Section 4.2, Eq. 10-12 of the paper).

All take plain arrays with one entry a step. Steps count from 1; ``onset`` is the last step before the
failures, so entry ``onset`` (counted from 0) is the first step after it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ecoagent.settings import UserError

AdaptationForm = Literal["trailing", "forward"]

_SLACK = 1e-9
"""Successes are counted, so a mean that equals the target must not miss it by rounding."""


def post_fail_success_rate(
    correct: ArrayLike, up: ArrayLike, *, onset: int, window: int | None = None
) -> float:
    """Share of steps after onset whose executed tool was right and up (Eq. 10), in [0, 1].

    ``correct`` and ``up`` are ``(T,)`` truth values; ``window`` is the number of steps after onset that
    are averaged, none = to the end.

    Raises UserError if the arrays differ in length or the window does not fit.
    """
    right, live = _flags(correct), _flags(up)
    if right.shape != live.shape:
        raise UserError(f"correct has {len(right)} steps and up has {len(live)}")
    return float((right & live)[_after(len(right), onset, window)].mean())


def fault_selection_rate(up: ArrayLike, *, onset: int, window: int | None = None) -> float:
    """Share of steps after onset whose executed tool was not up (Eq. 11), in [0, 1].

    For a policy that may execute several tools in a step, pass whether the *first* one was up.

    Raises UserError if the window does not fit.
    """
    live = _flags(up)
    return float((~live)[_after(len(live), onset, window)].mean())


def success_peak(success: ArrayLike, *, onset: int, window: int = 200) -> float:
    """Largest mean of ``window`` successive steps that lie before onset: SR_peak of Eq. 12.

    Raises UserError if fewer than ``window`` steps lie before onset.
    """
    before = _flags(success)[:onset]
    if not 1 <= window <= len(before):
        raise UserError(
            f"a window of {window} steps does not fit before onset {onset}",
            remedy="lower the adaptation window or move the onset",
        )
    return float(_window_counts(before, window).max()) / window


def adaptation_steps(
    success: ArrayLike,
    *,
    onset: int,
    window: int = 200,
    theta: float = 0.9,
    form: AdaptationForm = "trailing",
    target: float | None = None,
) -> int | None:
    """Steps after onset until the success rate over ``window`` steps reaches the target (Eq. 12).

    The target is ``theta * success_peak(...)`` unless given. Only windows wholly after onset count.
    ``trailing``: the window ends at the step returned, so the answer is at least ``window``.
    ``forward``: the window starts there, so the answer may be 0 (the released code's form).
    None = the target is never reached ("Failed" in the paper's Table 2), or there was no success before
    onset that could be recovered.

    Raises UserError as ``success_peak`` does, or if the window does not fit after onset.
    """
    flags = _flags(success)
    peak = theta * success_peak(flags, onset=onset, window=window) if target is None else target
    after = flags[onset:]
    if not 1 <= window <= len(after):
        raise UserError(f"a window of {window} steps does not fit in the {len(after)} steps after onset")
    if peak <= 0:
        return None
    reached = np.flatnonzero(_window_counts(after, window) >= peak * window - _SLACK)
    if not reached.size:
        return None
    first = int(reached[0])
    return first if form == "forward" else first + window


def _flags(values: ArrayLike) -> NDArray[np.bool_]:
    flags = np.asarray(values).astype(np.bool_)
    if flags.ndim != 1:
        raise UserError(f"expected one entry per step, got shape {flags.shape}")
    return flags


def _after(steps: int, onset: int, window: int | None) -> slice:
    """The averaged steps; UserError if there are none or fewer than asked for."""
    end = steps if window is None else onset + window
    if not 0 <= onset < end <= steps:
        raise UserError(
            f"{steps} steps do not hold {'any' if window is None else window} after onset {onset}",
            remedy="use a shorter window or more steps",
        )
    return slice(onset, end)


def _window_counts(flags: NDArray[np.bool_], window: int) -> NDArray[np.int64]:
    """Successes in every run of ``window`` entries: ``(n - window + 1,)``."""
    sums = np.concatenate([[0], np.cumsum(flags, dtype=np.int64)])
    counts: NDArray[np.int64] = sums[window:] - sums[:-window]
    return counts
