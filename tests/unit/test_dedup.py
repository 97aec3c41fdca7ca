"""The exact join equals comparing every pair, on whatever sets hypothesis finds."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoagent.retrieval.dedup import deduplicate, deduplicate_brute, jaccard
from ecoagent.schema import tokens
from ecoagent.synthesis import dedup

SETS = st.frozensets(st.sampled_from("abcdefghijklmnop"), max_size=12)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(SETS, max_size=25),
    st.sampled_from([0.0, 0.3, 0.5, 0.6, 2 / 3, 0.7, 0.75, 0.8, 0.9, 1.0]),
    st.booleans(),
)
def test_join_equals_brute_force(sets: list[frozenset[str]], threshold: float, pairs: bool) -> None:
    queries = {f"q{i:03d}": words for i, words in enumerate(sets)}
    limit, dedup.MAX_PAIR_KEYS = dedup.MAX_PAIR_KEYS, dedup.MAX_PAIR_KEYS if pairs else -1
    try:
        assert deduplicate(queries, threshold) == deduplicate_brute(queries, threshold)
    finally:
        dedup.MAX_PAIR_KEYS = limit


def test_join_equals_brute_force_on_edited_sentences() -> None:
    rng = random.Random(7)
    texts = [[f"w{rng.randrange(60)}" for _ in range(rng.randint(5, 20))] for _ in range(150)]
    for _ in range(450):
        words = list(rng.choice(texts))
        for _ in range(rng.randint(1, 3)):
            words[rng.randrange(len(words))] = f"w{rng.randrange(60)}"
        texts.append(words)
    queries = {f"q{rng.random()}": tokens(" ".join(words)) for words in texts}
    found = deduplicate(queries)
    assert found == deduplicate_brute(queries)
    assert len(found.dropped) > 100


def test_exactly_the_threshold_is_kept() -> None:
    ten = frozenset("abcdefghij")
    assert jaccard(ten, frozenset("abcdefg")) == 0.7
    assert deduplicate({"a": ten, "b": frozenset("abcdefg")}).dropped == ()
    assert [d.id for d in deduplicate({"a": ten, "b": frozenset("abcdefgh")}).dropped] == ["b"]


def test_smallest_id_is_canonical_whatever_the_order_of_arrival() -> None:
    words = tokens("please send the monthly report to the whole team")
    more = tokens("please send the monthly report to the whole team today")
    for order in (("q1", "q2"), ("q2", "q1")):
        result = deduplicate(dict(zip(order, (words, more), strict=True)))
        assert result.kept == ("q1",)
        assert result.dropped[0].witness == "q1"


def test_a_chain_is_cut_at_kept_queries_only() -> None:
    # b is near a, c is near b but not near a: b goes, c stays, and c is named as near b as well.
    a, b, c = frozenset("abcdefghij"), frozenset("abcdefghiK"), frozenset("abcdefghKL")
    result = deduplicate({"1": a, "2": b, "3": c})
    assert result.kept == ("1", "3")
    assert result.dropped[0].witness == "1"
    assert result.dropped[0].near == ("1", "3")


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_to_compare(count: int) -> None:
    queries = {f"q{i}": frozenset("abc") for i in range(count)}
    assert deduplicate(queries).kept == tuple(queries)
