"""Splits, negatives and the assembly of tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoagent.schema import ScoredTool, query_id
from ecoagent.settings import GateError, SynthesisSettings
from ecoagent.synthesis.assemble import assemble, drop_near, merge_texts
from ecoagent.synthesis.filters import Query, Rejected
from ecoagent.synthesis.generate import Coverage
from ecoagent.synthesis.negatives import MiningSettings, Positive, ToolPool, best_ranks, mine
from ecoagent.synthesis.splits import SplitItem, allocate, allocate_strata, cold_tools, split_queries
from tests.unit.fixture_run import make_tools

SHARES = (0.8, 0.1, 0.1)


@settings(deadline=None)
@given(st.integers(0, 400), st.lists(st.floats(0, 1), min_size=1, max_size=4))
def test_allocation_is_complete_and_close(total: int, shares: list[float]) -> None:
    counts = allocate(total, shares)
    if sum(shares) > 0:
        assert sum(counts) == total
        if total >= len(shares):
            assert all(c > 0 for c, s in zip(counts, shares, strict=True) if s > 0)
    assert min(counts) >= 0


@settings(deadline=None)
@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 60), max_size=6))
def test_strata_add_up_and_totals_stay_close(sizes: dict[str, int]) -> None:
    counts = allocate_strata(sizes, SHARES)
    assert {s: sum(c) for s, c in counts.items()} == sizes
    total = sum(sizes.values())
    given_all = [sum(c[k] for c in counts.values()) for k in range(3)]
    assert all(abs(g - s * total) <= 2 for g, s in zip(given_all, SHARES, strict=True))
    if total >= 3:
        assert min(given_all) >= 1
    assert all(n >= 0 for c in counts.values() for n in c)


def _items(count: int, tools: int = 10) -> list[SplitItem]:
    sources = ("langchain", "crewai", "n8n_community")
    return [
        SplitItem(query_id("syn", f"text {i}"), sources[i % 3], frozenset({f"tool{i % tools}"}))
        for i in range(count)
    ]


def test_split_follows_shares_cold_tools_and_hash() -> None:
    items = _items(300)
    cold = cold_tools({f"tool{i}": "langchain" for i in range(10)}, 0.1, seed=0)
    split = split_queries(items, SHARES, cold, seed=0)
    assert len(cold) == 1
    assert {i.query_id for i in items if i.golds & cold} == {q for q, s in split.items() if s == "cold"}
    sizes = {name: sum(s == name for s in split.values()) for name in ("train", "val", "test", "cold")}
    assert sizes == {"train": 216, "val": 27, "test": 27, "cold": 30}
    assert split == split_queries(items[::-1], SHARES, cold, seed=0)
    more = split_queries([*items, *_items(301)[300:]], SHARES, cold, seed=0)
    assert sum(more[q] != s for q, s in split.items()) <= 3


def test_few_queries_still_fill_every_split() -> None:
    split = split_queries(_items(4), SHARES, frozenset(), seed=3)
    assert {"train", "val", "test"} <= set(split.values())


def test_an_empty_split_names_the_threshold() -> None:
    with pytest.raises(GateError, match=r"'(val|train)' is empty: synthesis\.splits"):
        split_queries(_items(2), SHARES, frozenset(), seed=0)
    with pytest.raises(GateError, match="'cold' is empty"):
        split_queries(_items(20), SHARES, frozenset({"nowhere"}), seed=0)


def test_query_with_a_cold_gold_among_others_is_cold() -> None:
    items = [*_items(20), SplitItem("q:syn:zz", "crewai", frozenset({"warm", "icy"}))]
    assert split_queries(items, SHARES, frozenset({"icy"}), seed=0)["q:syn:zz"] == "cold"


def test_cold_leaves_tools_on_both_sides() -> None:
    assert len(cold_tools({"a": "crewai", "b": "langchain"}, 0.5, seed=0)) == 1
    assert cold_tools({"a": "crewai"}, 0.5, seed=0) == frozenset()
    assert cold_tools({"a": "crewai", "b": "crewai"}, 0.0, seed=0) == frozenset()
    assert len(cold_tools({f"t{i}": "x" for i in range(28)}, 0.1, seed=0)) == 3


def _unit(rng: np.random.Generator, n: int, d: int = 8) -> np.ndarray:
    rows = rng.normal(size=(n, d)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 3), st.integers(0, 3), st.integers(1, 7))
def test_negatives_keep_every_promise(seed: int, hard: int, rand: int, block: int) -> None:
    rng = np.random.default_rng(seed)
    ids = [f"t{i:02d}" for i in range(20)]
    groups = {t: ids[i - i % 2] if i < 8 else t for i, t in enumerate(ids)}
    pool = ToolPool(ids, _unit(rng, 20), groups)
    vectors = _unit(rng, 9)
    queries = [
        Positive(
            f"q{i}",
            tuple(sorted(rng.choice(ids, size=rng.integers(1, 3), replace=False))),
            frozenset(rng.choice(ids, size=2)),
        )
        for i in range(9)
    ]
    mining = MiningSettings(hard, rand, 0.95, seed)
    pairs = mine(queries, vectors, pool, mining, block=block)
    assert pairs == mine(queries, vectors, pool, mining, block=block)
    assert len({(p.query_id, p.tool_id) for p in pairs}) == len(pairs)
    for query, vector in zip(queries, vectors, strict=True):
        own = [p for p in pairs if p.query_id == query.query_id]
        assert [p.tool_id for p in own if p.label] == list(query.golds)
        banned = {groups[t] for t in (*query.golds, *query.excluded)}
        negatives = [p for p in own if not p.label]
        assert len(negatives) <= (hard + rand) * len(query.golds)
        best_gold = max(float(vector @ pool.vectors[pool.place[g]]) for g in query.golds)
        for pair in negatives:
            assert groups[pair.tool_id] not in banned
            assert pair.score < max(0.95 * best_gold, best_gold) + 1e-6
            assert pair.score == pytest.approx(
                float(vector @ pool.vectors[pool.place[pair.tool_id]]), abs=1e-5
            )


def test_hard_is_the_best_below_the_margin() -> None:
    angles = np.array([0.0, 0.05, 0.6, 1.0, 1.5])
    tools = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    ids = ["gold", "twin", "near", "far", "off"]
    order = np.argsort(ids)
    pool = ToolPool([ids[i] for i in order], tools[order], {i: i for i in ids})
    (positive, hard, random_one) = mine(
        [Positive("q", ("gold",))], np.array([[1.0, 0.0]]), pool, MiningSettings(1, 1, 0.95, 0)
    )
    assert (positive.tool_id, positive.label, positive.negative_type) == ("gold", 1, None)
    # "twin" scores 0.9988, above 0.95 of the gold's 1.0: too likely right.
    assert (hard.tool_id, hard.negative_type) == ("near", "hard")
    assert random_one.tool_id in {"far", "off"} and random_one.negative_type == "random"


def test_best_ranks_count_ties_by_id() -> None:
    pool = ToolPool(["a", "b", "c"], np.array([[1, 0], [1, 0], [0, 1]], float), {i: i for i in "abc"})
    query = np.array([[1.0, 0.0]] * 3)
    assert best_ranks(query, [[0], [1], [2]], pool) == [1, 2, 3]
    assert best_ranks(query[:1], [[1, 2]], pool, block=1) == [2]


def _line(tool: str, text: str, line: int = 0, intent: str = "direct") -> Query:
    return Query(tool, intent, 0, line, "h", text)


def _shared(near: str) -> tuple[list[Query], str, str]:
    """A text of two tools, another, and a near-duplicate of the first; ids of the text and the latter."""
    text = "Book a quiet table for four in Graz tonight"
    lines = [
        _line("tool:b", f"{text}!"),
        _line("tool:a", text.lower()),
        _line("tool:c", "Book a quiet table for five people in Graz tonight please"),
        _line("tool:d", f"{text} {near}"),
    ]
    return lines, query_id("syn", text), query_id("syn", lines[3].text)


def _near_word(smaller: bool) -> str:
    """A word with which the near-duplicate's id is smaller than that of the text, or larger."""
    words = (f"table{n}" for n in range(100))
    return next(w for w in words if (_shared(w)[2] < _shared(w)[1]) == smaller)


def test_equal_texts_are_one_query_and_a_dropped_one_excludes_its_tool() -> None:
    lines, same, near = _shared(_near_word(smaller=False))
    kept, (reject,) = drop_near(merge_texts(lines), 0.7)
    by_id = {m.query_id: m for m in kept}
    assert len(kept) == 2 and near not in by_id
    assert by_id[same].golds == ("tool:a", "tool:b") and by_id[same].first.tool_id == "tool:a"
    assert by_id[same].excluded == {"tool:d"}
    assert reject.id == near and same in reject.detail


def test_a_dropped_text_of_several_tools_excludes_them_all() -> None:
    lines, same, near = _shared(_near_word(smaller=True))
    kept, (reject,) = drop_near(merge_texts(lines), 0.7)
    by_id = {m.query_id: m for m in kept}
    assert len(kept) == 2 and same not in by_id
    assert by_id[near].golds == ("tool:d",) and by_id[near].excluded == {"tool:a", "tool:b"}
    assert reject.id == same and near in reject.detail and "tool:a, tool:b" in reject.detail


def _embed(texts: list[str]) -> np.ndarray:
    rows = np.zeros((len(texts), 64), dtype=np.float32)
    for row, text in zip(rows, texts, strict=True):
        for word in text.lower().split():
            row[sum(word.encode()) % 64] += 1
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_assembled_tables_hold_the_contract() -> None:
    tools: list[ScoredTool] = make_tools(30)
    twins = [t for t in tools if sum(o.duplicate_group == t.duplicate_group for o in tools) > 1]
    chosen = [tools[0], tools[5], tools[9], min(twins, key=lambda t: t.id)]
    lines = [
        _line(t.id, f"Please {t.name.lower()} item{i} thing{t.id[-3:]}{i} place{i} and day{i} for me", i)
        for t in chosen
        for i in range(10)
    ]
    chosen_settings = SynthesisSettings(cold_fraction=0.25)
    reject = Rejected("z|direct.0.1", "parse", "heading", "## x")
    coverage = [Coverage(t.id, 12, 10, 1, False) for t in chosen]

    def build(order: list[Query]) -> object:
        return assemble(tools[::-1], order, [reject], coverage, (_embed, _embed), chosen_settings, seed=1)

    tables = assemble(tools, lines, [reject], coverage, (_embed, _embed), chosen_settings, seed=1)
    assert build(lines[::-1]) == tables
    ids = [q.query_id for q in tables.queries]
    assert ids == sorted(set(ids)) and len(ids) == 40
    assert {q.split for q in tables.queries} == {"train", "val", "test", "cold"}
    assert all(q.origin == "live" and q.round_trip_rank for q in tables.queries)
    gold = {(r.query_id, r.tool_id) for r in tables.qrels}
    assert {r.origin for r in tables.qrels} == {"generated", "duplicate_group"}
    split = {q.query_id: q.split for q in tables.queries}
    cold = set(tables.summary["cold_tools"])
    assert len(cold) == 1
    for pair in tables.pairs:
        assert pair.split == split[pair.query_id]
        assert ((pair.query_id, pair.tool_id) in gold) == bool(pair.label)
        if pair.split == "train":
            assert pair.tool_id not in cold
    assert tables.rejects[0].stage == "synthesize/parse"
    assert [c["tool_id"] for c in tables.coverage] == sorted(t.id for t in chosen)
    assert tables.summary["short_tools"] == {}
