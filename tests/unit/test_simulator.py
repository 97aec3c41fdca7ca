"""Streams, the failing set and the simulator."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoagent.evaluation import PermanentOutage, Stream, StreamSource, failing_tools, simulate
from ecoagent.evaluation.dynamic import build_policy
from ecoagent.rated import POLICIES
from ecoagent.settings import EvaluateSettings, UserError

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "failing_set.json").read_text())
TOOLS = ["t:a", "t:b", "t:c", "t:d"]


def make_source(**changes):
    fields = {
        "query_ids": ["q:1", "q:2"],
        "contexts": np.array([[1, 0, 0], [0, 1, 0]], dtype=np.float32),
        "candidates": [["t:a", "t:b", "t:c"], ["t:c", "t:d"]],
        "semantic": [[0.9, 0.8, 0.8], [0.7, 0.2]],
        "golds": [{"t:b"}, {"t:c", "t:a"}],
        "tool_ids": TOOLS,
        "r_static": {"t:a": 0.5, "t:b": 0.6, "t:c": 0.7, "t:d": 0.8},
    }
    return StreamSource(**(fields | changes))


def random_source(seed, queries=12, tools=15, dim=6, k=5):
    """A small random world in which a gold is usually, not always, among the candidates."""
    generator = np.random.default_rng(seed)
    ids = [f"t:{i:02d}" for i in range(tools)]
    contexts = generator.normal(size=(queries, dim)).astype(np.float32)
    contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
    candidates, semantic, golds = [], [], []
    for _ in range(queries):
        size = int(generator.integers(1, k + 1))
        # Few distinct scores, so that ties are met.
        pairs = sorted(
            (-float(generator.integers(1, 6)) / 6, tool)
            for tool in generator.choice(ids, size=size, replace=False).tolist()
        )
        candidates.append([tool for _, tool in pairs])
        semantic.append([-score for score, _ in pairs])
        golds.append(set(generator.choice(candidates[-1] + ids[:2], size=2).tolist()))
    prior = dict(zip(ids, generator.random(tools).tolist(), strict=True))
    names = [f"q:{i}" for i in range(queries)]
    return StreamSource(names, contexts, candidates, semantic, golds, ids, prior)


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: f"{case['rule']}-{case['rho']}")
def test_failing_set_golden(case):
    stream = GOLDEN["gold_stream"]
    assert failing_tools(stream, case["rho"], rule=case["rule"]) == case["failing"]
    assert failing_tools(reversed(stream), case["rho"], rule=case["rule"]) == case["failing"]


def test_failing_set_edges():
    assert failing_tools([], 0.3) == []
    assert failing_tools(["a", "b"], 0.0) == []
    assert failing_tools(["a", "b", "b"], 1.0, skip=0) == ["b", "a"]
    with pytest.raises(UserError, match="must lie in"):
        failing_tools(["a"], 1.2)


def test_stream_is_seeded_and_counts_golds():
    source = make_source()
    stream = Stream.draw(source, 50, (0, 3))
    assert (stream.draws == Stream.draw(source, 50, (0, 3)).draws).all()
    assert (stream.draws != Stream.draw(source, 50, (0, 4)).draws).any()
    assert (stream.draws != Stream.draw(source, 50, (1, 3)).draws).any()
    second = int((stream.draws == 1).sum())
    assert stream.gold_counts == {"t:b": 50 - second, "t:a": second, "t:c": second}
    golds = list(stream.gold_stream())
    assert {tool: golds.count(tool) for tool in golds} == stream.gold_counts
    with pytest.raises(UserError, match="empty"):
        Stream.draw(source, 0, 0)


def test_source_keeps_the_first_k():
    source = make_source(top_k=2)
    assert [len(query.candidates) for query in source.queries] == [2, 2]
    assert source.queries[0].gold_among == {0: False, 1: True}
    np.testing.assert_array_equal(source.queries[1].static, [0.7, 0.8])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"query_ids": []}, "at least one query"),
        ({"query_ids": ["q:1"]}, "2 contexts for 1 queries"),
        ({"contexts": np.array([[1, 0], [np.nan, 0]])}, "finite"),
        ({"tool_ids": [*TOOLS, "t:a"]}, "appears twice"),
        ({"candidates": [["t:a", "t:b", "t:c"], []], "semantic": [[0.9, 0.8, 0.8], []]}, "query q:2"),
        ({"semantic": [[0.9, 0.8, 0.8], [0.7]]}, "query q:2: 2 candidates with 1 scores"),
        ({"semantic": [[0.9, 0.8, 0.8], [0.7, float("nan")]]}, "not finite"),
        ({"semantic": [[0.9, 0.8, 0.8], [0.2, 0.7]]}, "not in order"),
        ({"candidates": [["t:a", "t:c", "t:b"], ["t:c", "t:d"]]}, "not in order"),
        ({"golds": [set(), {"t:a"}]}, "query q:1: no gold"),
        ({"golds": [{"t:x"}, {"t:a"}]}, "t:x is not in the pool"),
        ({"r_static": {"t:a": 0.5}}, "t:b has no r_static"),
    ],
)
def test_source_errors_name_the_query(changes, words):
    with pytest.raises(UserError, match=words):
        make_source(**changes)


@dataclass
class Scripted:
    """Plays given orders and records its feedback."""

    orders: list
    executions: int = 1

    def __post_init__(self):
        self.heard = []

    def choose(self, step, x, candidates, semantic, static):
        return self.orders[step - 1]

    def update(self, step, x, arm, reward):
        self.heard.append((step, arm, reward))


@dataclass(frozen=True)
class Down:
    """A scenario of two lines: these arms are down from a step on."""

    arms: frozenset
    onset: int = 1
    name: str = "down"

    def start(self, stream, seed):
        return self

    def up(self, step, arm):
        return step <= self.onset or arm not in self.arms


def test_a_step_by_hand():
    stream = Stream(make_source(), np.array([0, 0, 0, 1]))
    policy = Scripted([[1], [1, 0, 2], [0, 2, 1], [2]], executions=3)
    log = simulate(policy, stream, Down(frozenset({0, 1})), 0)
    # Step 2: tool 1 and 0 fail, 2 is up but wrong. Step 3: 0 fails, then 2. Step 4: right and up.
    assert policy.heard == [(1, 1, 1), (2, 1, 0), (2, 0, 0), (2, 2, 1), (3, 0, 0), (3, 2, 1), (4, 2, 1)]
    assert log.arm.tolist() == [1, 2, 2, 2]
    assert log.correct.tolist() == [True, False, False, True]
    assert log.up.tolist() == [True, True, True, True]
    assert log.first_up.tolist() == [True, False, False, True]
    assert log.executions.tolist() == [1, 3, 2, 1]
    assert log.success.tolist() == [True, False, False, True]
    assert log.fault.tolist() == [False, True, True, False]


@pytest.mark.parametrize(
    ("order", "executions", "words"),
    [
        ([], 1, "needs 1 to 1"),
        ([0, 1], 1, "needs 1 to 1"),
        ([0, 0], 2, "different"),
        ([3], 1, "no candidate"),
    ],
)
def test_a_policy_that_breaks_the_rules(order, executions, words):
    stream = Stream(make_source(), np.array([0]))
    with pytest.raises(UserError, match=words):
        simulate(Scripted([order], executions), stream, Down(frozenset()), 0)


def test_permanent_outage_by_the_stream():
    """Ten golds: the most frequent is skipped, the next two fail, from the step after onset on."""
    ids = [f"t:{i}" for i in range(10)]
    source = StreamSource(
        [f"q:{i}" for i in range(10)],
        np.eye(10, dtype=np.float32),
        [[tool] for tool in ids],
        [[0.5]] * 10,
        [{tool} for tool in ids],
        ids,
        dict.fromkeys(ids, 0.5),
    )
    stream = Stream(source, np.repeat(np.arange(10), np.arange(10, 0, -1)))
    outage = PermanentOutage(rate=0.2, onset=7).start(stream, 0)
    assert outage.down == {1, 2}
    assert outage.up(7, 1)
    assert not outage.up(8, 1)
    assert outage.up(8, 0)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(sorted(POLICIES)), st.sampled_from([0.0, 0.3, 0.8]))
def test_invariants_of_every_policy(seed, name, rate):
    source = random_source(seed)
    stream = Stream.draw(source, 120, seed)
    scenario = PermanentOutage(rate, onset=40)
    constants = EvaluateSettings()
    policy = build_policy(name, source, constants)
    log = simulate(policy, stream, scenario, seed)
    candidates = [set(query.candidates.tolist()) for query in stream]
    assert all(arm in among for arm, among in zip(log.arm.tolist(), candidates, strict=True))
    assert (log.executions >= 1).all()
    assert (log.executions <= policy.executions).all()
    assert log.first_up[:40].all()
    if rate == 0:
        assert not log.fault.any()
    if policy.executions == 1:
        assert (log.first_up == log.up).all()
        assert log.success[40:].mean() + log.fault[40:].mean() <= 1
    again = simulate(build_policy(name, source, constants), stream, scenario, seed)
    assert (again.arm == log.arm).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_blacklist_meets_each_fault_once_where_it_has_a_choice(seed):
    source = random_source(seed)
    stream = Stream.draw(source, 200, seed)
    log = simulate(
        build_policy("blacklist", source, EvaluateSettings()), stream, PermanentOutage(0.4, onset=50), seed
    )
    failed = set()
    for query, arm, fault in zip(stream, log.arm.tolist(), log.fault.tolist(), strict=True):
        if arm in failed:
            assert set(query.candidates.tolist()) <= failed
        if fault:
            failed.add(arm)


def test_the_log_is_frozen_and_sized():
    log = simulate(Scripted([[0]]), Stream(make_source(), np.array([0])), Down(frozenset()), 0)
    assert len(log) == 1
    assert len(replace(log, arm=log.arm)) == 1
