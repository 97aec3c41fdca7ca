"""The exact join equals comparing every pair, on whatever sets hypothesis finds."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoagent.retrieval import dedup
from ecoagent.retrieval.dedup import Deduplicated, deduplicate, deduplicate_brute, jaccard
from ecoagent.schema import tokens

SETS = st.frozensets(st.sampled_from("abcdefghijklmnop"), max_size=12)
THRESHOLDS = st.sampled_from([0.0, 0.3, 0.5, 0.6, 2 / 3, 0.7, 0.75, 0.8, 0.9, 1.0]) | st.floats(0, 1)


@pytest.fixture(scope="module", autouse=True)
def joined() -> Iterator[None]:
    """Few sets go through the join as well, or these tests would compare one thing with itself."""
    with mock.patch.object(dedup, "FEW", -1):
        yield


def _named(sets: list[frozenset[str]]) -> dict[str, frozenset[str]]:
    return {f"q{i:04d}": words for i, words in enumerate(sets)}


def _checked(queries: Mapping[str, frozenset[str]], threshold: float = 0.7) -> Deduplicated:
    found = deduplicate(queries, threshold)
    assert found == deduplicate_brute(queries, threshold)
    return found


@settings(max_examples=300, deadline=None)
@given(st.lists(SETS, max_size=25), THRESHOLDS, st.integers(1, 9), st.sampled_from([1, 20, 10**6]))
def test_join_equals_brute_force(
    sets: list[frozenset[str]], threshold: float, block: int, products: int
) -> None:
    # Small blocks and products, so that few sets fill several of each.
    with mock.patch.multiple(dedup, BLOCK=block, PRODUCTS=products):
        found = _checked(_named(sets), threshold)
    assert {*found.kept, *(d.id for d in found.dropped)} == {*_named(sets)}
    assert all(d.witness == d.near[0] < d.id for d in found.dropped)


@pytest.mark.parametrize("count", [5, 6])
def test_up_to_a_few_sets_are_compared_pair_by_pair(count: int) -> None:
    with mock.patch.object(dedup, "FEW", 5), mock.patch.object(dedup, "_Join") as join:
        join.side_effect = AssertionError
        sets = _named([frozenset({str(i), "a", "b", "c"}) for i in range(count)])
        if count == 5:
            assert len(deduplicate(sets).kept) == 5
        else:
            with pytest.raises(AssertionError):
                deduplicate(sets)


@settings(max_examples=100, deadline=None)
@given(st.lists(SETS, max_size=20), THRESHOLDS, st.randoms(use_true_random=False))
def test_order_of_arrival_does_not_matter(
    sets: list[frozenset[str]], threshold: float, rng: random.Random
) -> None:
    items = list(_named(sets).items())
    shuffled = items[:]
    rng.shuffle(shuffled)
    assert deduplicate(dict(shuffled), threshold) == deduplicate(dict(items), threshold)


def _draw(rng: random.Random, low: int, high: int, vocabulary: int = 400) -> frozenset[str]:
    return frozenset(f"w{rng.randrange(vocabulary)}" for _ in range(rng.randint(low, high)))


def _hostile(case: str) -> list[frozenset[str]]:
    rng = random.Random(case)
    match case:
        case "one token in all":
            return [_draw(rng, 1, 6) | {"the"} for _ in range(250)]
        case "huge groups":
            bases = [sorted(_draw(rng, 20, 20)) for _ in range(3)]
            return [frozenset({*rng.choice(bases)[: rng.randint(17, 20)], f"x{i % 90}"}) for i in range(400)]
        case "very long":
            bases = [sorted(_draw(rng, 120, 160, 2000)) for _ in range(40)]
            return [frozenset(rng.sample(b, k=int(len(b) * rng.uniform(0.6, 1)))) for b in bases * 4]
        case "one template":
            fixed = [f"t{i}" for i in range(12)]
            return [_draw(rng, 3, 3, 25) | {*fixed} for _ in range(300)]
        case "single words":
            return [frozenset({f"w{rng.randrange(60)}"}) for _ in range(200)] + [frozenset()]
        case "empty and small":
            return [frozenset(), frozenset("a"), frozenset(), frozenset("ab"), frozenset("a"), frozenset("b")]
    raise AssertionError(case)


@pytest.mark.parametrize("threshold", [0, 0.5, 0.7, 0.9, 1])
@pytest.mark.parametrize(
    "case",
    ["one token in all", "huge groups", "very long", "one template", "single words", "empty and small"],
)
def test_hostile_sets(case: str, threshold: float) -> None:
    with mock.patch.multiple(dedup, BLOCK=64, PRODUCTS=2000):
        found = _checked(_named(_hostile(case)), threshold)
    if threshold == 1:
        assert found.dropped == ()


@pytest.mark.parametrize("threshold", [-0.1, 1.5, float("nan")])
def test_a_threshold_out_of_range_is_refused(threshold: float) -> None:
    for function in (deduplicate, deduplicate_brute):
        with pytest.raises(ValueError, match="Jaccard threshold"):
            function({"a": frozenset("a")}, threshold)


@pytest.mark.parametrize(("shared", "dropped"), [(7, 0), (14, 0), (21, 0), (8, 1), (15, 1), (22, 1)])
def test_exactly_the_threshold_at_other_sizes(shared: int, dropped: int) -> None:
    whole = [f"w{i}" for i in range(-(-shared // 7) * 10 if shared % 7 == 0 else shared // 7 * 10)]
    assert len(_checked({"a": frozenset(whole), "b": frozenset(whole[:shared])}).dropped) == dropped


def test_tokens_are_as_written_down() -> None:
    assert tokens("  Don't re-send the_report, the REPORT \uff21! ") == {
        *("don", "t", "re", "send", "the_report", "the", "report", "a"),
    }


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
