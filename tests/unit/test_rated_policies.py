"""Policies on hand-made steps."""

from __future__ import annotations

import numpy as np
import pytest

from ecoagent.rated import POLICIES, BanditError, PolicyContext, policy_spec

PRIOR = np.array([0.9, 0.5, 0.7, 0.6])
X = np.array([0.6, 0.8], dtype=np.float32)
CANDIDATES = np.array([2, 0, 3])
SEMANTIC = np.array([0.80, 0.79, 0.10])


def build(name, **changes):
    return policy_spec(name).build(PolicyContext(prior=PRIOR, dim=2, **changes))


def choose(policy, step=1, candidates=CANDIDATES, semantic=SEMANTIC):
    return list(policy.choose(step, X, candidates, semantic, PRIOR[candidates]))


def test_registry_names_and_unknown():
    assert list(POLICIES) == ["static", "blacklist", "retry", "global_mab", "rated"]
    assert all(name == spec.name and spec.about for name, spec in POLICIES.items())
    with pytest.raises(BanditError, match="one of static"):
        policy_spec("rate")


def test_static_never_learns():
    policy = build("static")
    for step in range(1, 4):
        assert choose(policy, step) == [2]
        policy.update(step, X, 2, 0.0)


def test_retry_gives_the_first_k():
    assert choose(build("retry")) == [2, 0, 3]
    assert choose(build("retry", retry=2)) == [2, 0]
    assert choose(build("retry"), candidates=CANDIDATES[:1], semantic=SEMANTIC[:1]) == [2]
    with pytest.raises(BanditError, match="at least 1"):
        build("retry", retry=0)


def test_blacklist_excludes_after_the_first_failure_and_falls_back():
    policy = build("blacklist")
    policy.update(1, X, 2, 1.0)
    assert choose(policy) == [2]
    for down, then in ((2, [0]), (0, [3]), (3, [2])):
        policy.update(2, X, down, 0.0)
        assert choose(policy) == then
    policy.update(3, X, 2, 1.0)
    assert policy.excluded[2]  # for good


@pytest.mark.parametrize("name", ["rated", "global_mab"])
def test_learners_use_the_prior_then_leave_a_failing_tool(name):
    policy = build(name)
    assert choose(policy) == [0]  # .9 against .7 outweighs a semantic gap of .01
    for step in range(1, 30):
        policy.update(step, X, 0, 0.0)
    assert choose(policy) == [2]


def test_global_mab_is_algorithm_1_with_x_1():
    policy = build("global_mab", dtype="float64")
    A, b = 1.0, 0.7
    for y in (1.0, 0.0, 1.0):
        policy.update(1, X, 2, y)
        A, b = 0.95 * A + 1, 0.95 * b + y
    assert policy.bandit.scores([1.0], [2])[0] == pytest.approx(b / A + 0.1 / np.sqrt(A), rel=1e-12)


@pytest.mark.parametrize("name", ["rated", "global_mab", "static", "blacklist"])
def test_ties_go_to_the_lowest_position(name):
    context = PolicyContext(prior=np.full(4, 0.5), dim=2)
    policy = policy_spec(name).build(context)
    order = policy.choose(1, X, np.array([3, 1, 2]), np.full(3, 0.4), np.full(3, 0.5))
    assert list(order) == [3]
