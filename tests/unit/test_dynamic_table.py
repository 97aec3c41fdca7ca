"""The dynamic table: contents, invariants, and errors in the settings."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ecoagent.evaluation import dynamic_table, paired_interval, summarize
from ecoagent.evaluation.simulator import binned
from ecoagent.evaluation.stream import StreamSource
from ecoagent.settings import EvaluateSettings, UserError

SHORT = {"steps": 1_000, "onset": 300, "window": 400, "adaptation_window": 100, "seeds": 3}


@pytest.fixture(scope="module")
def source():
    """A world of 40 tools, each with a twin that looks almost alike and is also right."""
    generator = np.random.default_rng(7)
    base = generator.normal(size=(20, 16))
    tools = np.concatenate([base, base + 0.2 * generator.normal(size=base.shape)])
    tools /= np.linalg.norm(tools, axis=1, keepdims=True)
    topic = np.minimum(generator.geometric(0.12, size=80) - 1, 19)
    queries = base[topic] + 0.8 * generator.normal(size=(80, 16))
    queries = (queries / np.linalg.norm(queries, axis=1, keepdims=True)).astype(np.float32)
    ids = [f"t:{i:02d}" for i in range(40)]
    scores = queries @ tools.T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :10]
    return StreamSource(
        [f"q:{i}" for i in range(80)],
        queries,
        [[ids[j] for j in row] for row in order],
        [scores[i, row].tolist() for i, row in enumerate(order)],
        [{ids[t], ids[t + 20]} for t in topic],
        ids,
        dict.fromkeys(ids, 0.7),
    )


@pytest.fixture(scope="module")
def rows(source):
    return dynamic_table(source, EvaluateSettings(**SHORT), ranker="encoder", split="test")


def test_a_row_for_each_rate_and_policy(rows):
    policies = ["static", "blacklist", "retry", "global_mab", "rated"]
    assert [(r.rate, r.policy) for r in rows] == [(rate, p) for rate in (0.2, 0.3) for p in policies]
    for row in rows:
        assert (row.ranker, row.split, row.scenario, row.protocol) == (
            "encoder",
            "test",
            "permanent",
            "paper",
        )
        assert row.underpowered and row.distinct_golds <= 40
        assert row.theta == {0.2: 0.9, 0.3: 0.8}[row.rate]
        assert row.failing == int(round(row.rate * row.distinct_golds, 9))
        for summary in (row.success_rate, row.fault_rate, row.success_rate_to_end, row.fault_rate_to_end):
            assert len(summary.values) == 3
            assert summary.mean == pytest.approx(np.mean(summary.values))
            assert summary.sd == pytest.approx(np.std(summary.values, ddof=1))


def test_single_execution_rows_never_pass_one(rows):
    for row in rows:
        if row.policy == "retry":
            assert row.executions.mean > 1
            continue
        assert row.executions.mean == 1
        for success, fault in zip(row.success_rate.values, row.fault_rate.values, strict=True):
            assert success + fault <= 1


def test_shapes_known_by_construction(rows):
    by = {(r.policy, r.rate): r for r in rows}
    for rate in (0.2, 0.3):
        static, blacklist, retry = (by[name, rate] for name in ("static", "blacklist", "retry"))
        # A retry changes what happens after the first fault, never whether there is one.
        assert retry.fault_rate == static.fault_rate
        assert retry.success_rate.mean > static.success_rate.mean
        assert blacklist.fault_rate.mean < static.fault_rate.mean / 2
        assert blacklist.success_rate.mean > static.success_rate.mean
        assert static.success_before == blacklist.success_before == retry.success_before


def test_differences_are_paired_to_the_reference(rows):
    for rate in (0.2, 0.3):
        group = {r.policy: r for r in rows if r.rate == rate}
        rated = group["rated"]
        assert rated.success_difference is None and rated.fault_difference is None
        for name, row in group.items():
            if name == "rated":
                continue
            wanted = np.subtract(row.fault_rate.values, rated.fault_rate.values)
            assert row.reference == "rated"
            assert row.fault_difference.mean == pytest.approx(wanted.mean())
            assert row.fault_difference.low <= wanted.mean() <= row.fault_difference.high


def test_curves_hold_the_same_numbers_as_the_rates(rows):
    for row in rows:
        assert len(row.curve.success) == len(row.curve.fault) == 10
        assert np.mean(row.curve.success[3:7]) == pytest.approx(row.success_rate.mean, abs=1e-5)
        assert np.mean(row.curve.fault[3:7]) == pytest.approx(row.fault_rate.mean, abs=1e-5)
        assert not any(row.curve.fault[:3])


def test_adaptation_is_told_in_full(rows):
    for row in rows:
        for adaptation in (row.adaptation, row.adaptation_forward):
            recovered = [s for s in adaptation.steps if s is not None]
            assert adaptation.failed_share == pytest.approx(1 - len(recovered) / 3)
            assert adaptation.median == (float(np.median(recovered)) if recovered else None)
        for trailing, forward in zip(row.adaptation.steps, row.adaptation_forward.steps, strict=True):
            assert trailing == (None if forward is None else forward + 100)


def test_rows_are_json_and_repeatable(source, rows):
    again = dynamic_table(source, EvaluateSettings(**SHORT), ranker="encoder", split="test")
    text = [json.dumps([row.as_json() for row in table], sort_keys=True) for table in (rows, again)]
    assert text[0] == text[1]
    other = dynamic_table(source, EvaluateSettings(**SHORT), ranker="encoder", split="test", base_seed=1)
    assert json.dumps([row.as_json() for row in other], sort_keys=True) != text[0]


def test_without_the_reference_and_with_one_seed(source):
    calls = []
    rows = dynamic_table(
        source,
        EvaluateSettings(**SHORT | {"seeds": 1, "policies": ("static", "retry"), "min_golds": 3}),
        ranker="encoder",
        split="test",
        on_simulation=lambda: calls.append(1),
    )
    assert len(calls) == 4
    assert all(row.reference is None and row.success_difference is None for row in rows)
    assert all(row.success_rate.sd is None and not row.underpowered for row in rows)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"theta": (0.9,)}, "evaluate.theta"),
        ({"window": 900}, "onset 300 . window 900"),
        ({"adaptation_window": 301}, "adaptation_window"),
        ({"policies": ("static", "oracle9")}, "unknown policy"),
    ],
)
def test_settings_that_do_not_fit(source, changes, words):
    with pytest.raises(UserError, match=words):
        dynamic_table(source, EvaluateSettings(**SHORT | changes), ranker="encoder", split="test")


def test_paired_interval_by_hand():
    """Differences 1, 2, 3: mean 2, sd 1, t(.975, 2) = 4.3027, so 2 +- 2.4841."""
    interval = paired_interval([2, 4, 6], [1, 2, 3])
    assert (interval.mean, interval.pairs) == (2, 3)
    assert interval.low == pytest.approx(-0.48414, abs=1e-4)
    assert interval.high == pytest.approx(4.48414, abs=1e-4)
    assert paired_interval([2], [1]).low is None
    with pytest.raises(UserError, match="cannot be paired"):
        paired_interval([1, 2], [1])
    with pytest.raises(UserError, match="nothing"):
        summarize([])


def test_bins():
    assert binned(np.array([1, 0, 1, 1, 0], dtype=bool), 2) == [0.5, 1.0, 0.0]
