"""Negatives mined by blocks are those of one query at a time, and keep every promise."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoagent.synthesis.negatives import MiningSettings, Positive, ScoredPair, ToolPool, mine, mine_plain

TOOLS, QUERIES = 24, 14
IDS = [f"t{i:02d}" for i in range(TOOLS)]
SEEDS = st.integers(0, 10_000)
MINING = st.builds(
    MiningSettings, st.integers(0, 3), st.integers(0, 3), st.sampled_from([0.5, 0.95, 1.0]), st.integers(0, 5)
)


def _world(seed: int, *, golds: int = 2, exact: bool = True) -> tuple[list[Positive], np.ndarray, ToolPool]:
    """Queries, their vectors and tools.

    ``exact``: coordinates are eighths, so that no sum is rounded, whatever its order; with so few
    values many cosines tie.
    """
    rng = np.random.default_rng(seed)
    groups = {t: IDS[i - i % 3] if i < 9 else t for i, t in enumerate(IDS)}
    if exact:
        tools, vectors = (rng.integers(-3, 4, size=(n, 4)) / 8 for n in (TOOLS, QUERIES))
    else:
        tools, vectors = (rng.normal(size=(n, 48)) / 7 for n in (TOOLS, QUERIES))
    queries = [
        Positive(
            f"q{i:02d}",
            tuple(sorted(rng.choice(IDS, size=rng.integers(1, golds + 1), replace=False).tolist())),
            frozenset(rng.choice(IDS, size=rng.integers(0, 5)).tolist()),
        )
        for i in range(QUERIES)
    ]
    return queries, vectors.astype(np.float32), ToolPool(IDS, tools, groups)


@settings(max_examples=150, deadline=None)
@given(SEEDS, MINING, st.integers(1, 20), st.integers(1, 3), st.booleans())
def test_blocks_give_what_one_at_a_time_gives(
    seed: int, mining: MiningSettings, block: int, golds: int, exact: bool
) -> None:
    queries, vectors, pool = _world(seed, golds=golds, exact=exact)
    found = mine(queries, vectors, pool, mining, block=block)
    assert found == mine_plain(queries, vectors, pool, mining, block=block)
    if exact:
        assert found == mine_plain(queries, vectors, pool, mining)


@settings(max_examples=100, deadline=None)
@given(SEEDS, MINING, st.sets(st.integers(0, QUERIES - 1), min_size=1))
def test_other_queries_change_nothing(seed: int, mining: MiningSettings, chosen: set[int]) -> None:
    queries, vectors, pool = _world(seed)
    everything = mine(queries, vectors, pool, mining)
    rows = sorted(chosen, reverse=True)
    some = mine([queries[i] for i in rows], vectors[rows], pool, mining)
    wanted = {queries[i].query_id for i in rows}
    by_query = sorted(some, key=lambda p: p.query_id)
    assert by_query == [p for p in everything if p.query_id in wanted]


@settings(max_examples=150, deadline=None)
@given(SEEDS, MINING)
def test_negatives_keep_every_promise(seed: int, mining: MiningSettings) -> None:
    queries, vectors, pool = _world(seed, golds=1)
    groups = {t: IDS[i - i % 3] if i < 9 else t for i, t in enumerate(IDS)}
    pairs = mine(queries, vectors, pool, mining)
    assert pairs == mine(queries, vectors, pool, mining)
    assert max(Counter((p.query_id, p.tool_id) for p in pairs).values()) == 1
    for query, vector in zip(queries, vectors, strict=True):
        scores = dict(zip(IDS, np.round(pool.vectors @ vector, 6).astype(float), strict=True))
        own = [p for p in pairs if p.query_id == query.query_id]
        gold = scores[query.golds[0]]
        assert own[0] == ScoredPair(query.query_id, query.golds[0], 1, None, pytest.approx(gold))
        banned = {groups[t] for t in (*query.golds, *query.excluded)}
        bound = np.float32(min(mining.margin * gold, gold))
        allowed = [t for t in IDS if groups[t] not in banned and np.float32(scores[t]) < bound]
        best = sorted(allowed, key=lambda t: (-scores[t], t))
        hard = [p.tool_id for p in own if p.negative_type == "hard"]
        rand = [p.tool_id for p in own if p.negative_type == "random"]
        assert hard == best[: mining.hard]
        assert {*rand} <= {*allowed} - {*hard}
        assert len(rand) == min(mining.random, len(allowed) - len(hard))
        assert all(p.score == pytest.approx(scores[p.tool_id]) for p in own)


def test_ties_go_to_the_smaller_place() -> None:
    pool = ToolPool(list("abcd"), np.array([[1, 0], [0.5, 0], [0.5, 1], [0.5, 2]]), {i: i for i in "abcd"})
    found = mine([Positive("q", ("a",))], np.array([[1.0, 0.0]]), pool, MiningSettings(2, 0, 0.95, 0))
    assert [p.tool_id for p in found] == ["a", "b", "c"]


def test_random_ones_depend_on_seed_query_and_gold() -> None:
    rng = np.random.default_rng(0)
    tools = np.concatenate([[[1.0, 0.0]] * 2, rng.uniform(-0.5, 0.5, size=(200, 2))])
    ids = [f"t{i:03d}" for i in range(len(tools))]
    pool = ToolPool(ids, tools, {i: i for i in ids})

    def drawn(query: str, gold: str, seed: int) -> list[str]:
        mining = MiningSettings(0, 5, 0.95, seed)
        return [p.tool_id for p in mine([Positive(query, (gold,))], np.array([[1.0, 0.0]]), pool, mining)[1:]]

    assert drawn("q", ids[0], 0) == drawn("q", ids[0], 0)
    others = {
        tuple(drawn(*key)) for key in (("q", ids[0], 0), ("r", ids[0], 0), ("q", ids[1], 0), ("q", ids[0], 1))
    }
    assert len(others) == 4


def test_nothing_left_gives_the_positive_alone() -> None:
    pool = ToolPool(["a", "b"], np.array([[1.0, 0.0], [0.0, 1.0]]), {"a": "a", "b": "a"})
    query = np.array([[1.0, 0.0]])
    for excluded in (frozenset[str](), frozenset({"b"})):
        found = mine([Positive("q", ("a",), excluded)], query, pool, MiningSettings(1, 1, 0.95, 0))
        assert [(p.tool_id, p.label) for p in found] == [("a", 1)]
    assert mine([], np.zeros((0, 2)), pool, MiningSettings(1, 1, 0.95, 0)) == []


def test_more_sets_of_excluded_tools_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ecoagent.synthesis.negatives.REMEMBERED", 2)
    queries, vectors, pool = _world(3)
    mining = MiningSettings(2, 2, 0.95, 0)
    assert mine(queries, vectors, pool, mining) == mine_plain(queries, vectors, pool, mining)
