"""Eq. 10-12 on golden logs and at their edges."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoagent.metrics import (
    adaptation_steps,
    fault_selection_rate,
    post_fail_success_rate,
    success_peak,
)
from ecoagent.settings import UserError

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "dynamic_metrics.json").read_text())


@pytest.mark.parametrize("log", GOLDEN["logs"], ids=lambda log: log["name"])
def test_golden(log):
    onset, W, window, want = GOLDEN["onset"], GOLDEN["W"], GOLDEN["window"], log["expected"]
    correct, up = log["correct"], log["up"]
    success = np.logical_and(correct, up)
    sr = post_fail_success_rate(correct, up, onset=onset, window=window)
    assert sr == pytest.approx(want["post_fail_sr_window50"], rel=1e-6)
    sr = post_fail_success_rate(correct, up, onset=onset)
    assert sr == pytest.approx(want["post_fail_sr_all"], rel=1e-6)
    assert fault_selection_rate(up, onset=onset, window=window) == pytest.approx(
        want["fsr_window50"], rel=1e-6
    )
    assert fault_selection_rate(up, onset=onset) == pytest.approx(want["fsr_all"], rel=1e-6)
    assert success_peak(success, onset=onset, window=W) == pytest.approx(want["peak_trailing"], rel=1e-6)
    for theta in (0.9, 0.8):
        trailing = adaptation_steps(success, onset=onset, window=W, theta=theta)
        assert trailing == want[f"AS_trailing_theta{theta}"]
        forward = adaptation_steps(success, onset=onset, window=W, form="forward", target=theta)
        assert forward == want[f"AS_forward_target{theta:.2f}"]


def test_a_rate_equal_to_the_target_counts_as_reached():
    """0.9 x 0.7 of 10 is 6.3: seven are needed; 0.8 x 1.0 of 5 is exactly four."""
    before = [1, 1, 1, 1, 1]
    assert adaptation_steps([*before, 0, 1, 1, 1, 1, 0], onset=5, window=5, theta=0.8) == 5
    ten = [1] * 7 + [0] * 3
    assert adaptation_steps(ten + [0] * 4 + [1] * 6 + [0] * 4, onset=10, window=10, theta=0.9) is None
    assert adaptation_steps(ten + [0] * 3 + [1] * 7, onset=10, window=10, theta=0.9) == 10


def test_windows_never_reach_back_before_onset():
    success = [1] * 20 + [0] * 10 + [1] * 10
    assert adaptation_steps(success, onset=20, window=10, theta=0.1) == 11


def test_no_success_before_onset_cannot_be_recovered():
    assert adaptation_steps([0] * 10 + [1] * 10, onset=10, window=5) is None


def test_windows_that_do_not_fit():
    flags = [1] * 10
    with pytest.raises(UserError, match="do not hold 7 after onset 4"):
        fault_selection_rate(flags, onset=4, window=7)
    with pytest.raises(UserError, match="do not hold any"):
        post_fail_success_rate(flags, flags, onset=10)
    with pytest.raises(UserError, match="before onset"):
        success_peak(flags, onset=4, window=5)
    with pytest.raises(UserError, match="after onset"):
        adaptation_steps(flags, onset=6, window=5)
    with pytest.raises(UserError, match="10 steps and up has 9"):
        post_fail_success_rate(flags, flags[1:], onset=4)
    with pytest.raises(UserError, match="one entry per step"):
        fault_selection_rate([flags], onset=0)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=6, max_size=60), st.integers(1, 3))
def test_properties(steps, window):
    correct, up = np.array(steps).T
    onset = len(steps) // 2
    sr = post_fail_success_rate(correct, up, onset=onset)
    fsr = fault_selection_rate(up, onset=onset)
    assert 0 <= sr <= 1 - fsr + 1e-12
    success = correct & up
    trailing = adaptation_steps(success, onset=onset, window=window, theta=0.8)
    forward = adaptation_steps(success, onset=onset, window=window, theta=0.8, form="forward")
    assert (trailing is None) == (forward is None)
    if trailing is not None:
        assert trailing == forward + window
        reached = success[onset + trailing - window : onset + trailing].mean()
        assert reached >= 0.8 * success_peak(success, onset=onset, window=window) - 1e-9
