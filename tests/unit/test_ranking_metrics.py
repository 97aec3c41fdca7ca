"""Ranking metrics: golden values, equality with ir-measures, invariants, intervals."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoagent.metrics import METRICS, evaluate_run
from ecoagent.retrieval import RankedRun
from ecoagent.settings import UserError

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "ir_metrics.json").read_text())


def make_run(rankings: dict[str, list[str]]) -> RankedRun:
    return RankedRun(
        "run", tuple(rankings), list(rankings.values()), [[0.0] * len(r) for r in rankings.values()]
    )


def test_golden_values_per_query_and_mean() -> None:
    cases = GOLDEN["cases"]
    run = make_run({f"q{i}": case["ranking"] for i, case in enumerate(cases)})
    found = evaluate_run(run, {f"q{i}": set(case["golds"]) for i, case in enumerate(cases)})
    for i, case in enumerate(cases):
        for name, expected in case["expected"].items():
            assert found.values[name.replace("NDCG", "nDCG")][i] == pytest.approx(expected, abs=1e-9)
    means = found.means()
    for name, expected in GOLDEN["mean"].items():
        assert means[name.replace("NDCG", "nDCG")] == pytest.approx(expected, abs=1e-9)


def plain(name: str, ranking: list[str], golds: set[str]) -> float:
    """The definitions, written out."""
    if name == "MRR":
        return next((1 / place for place, tool in enumerate(ranking, 1) if tool in golds), 0.0)
    kind, k = name.split("@")
    top = ranking[: int(k)]
    hits = [tool in golds for tool in top]
    if kind == "Recall":
        return sum(hits) / len(golds)
    if kind == "Hit":
        return float(any(hits))
    if kind == "P":
        return sum(hits) / int(k)
    ideal = sum(1 / np.log2(i + 2) for i in range(min(int(k), len(golds))))
    return float(sum(hit / np.log2(i + 2) for i, hit in enumerate(hits)) / ideal)


TOOLS = [f"t{i}" for i in range(9)]


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["q1", "q2", "q3", "q4"]),
        st.tuples(st.lists(st.sampled_from(TOOLS), unique=True), st.sets(st.sampled_from(TOOLS), min_size=1)),
        min_size=1,
    )
)
def test_equals_the_definitions(cases: dict[str, tuple[list[str], set[str]]]) -> None:
    run = make_run({query: ranking for query, (ranking, _) in cases.items()})
    qrels = {query: golds for query, (_, golds) in cases.items()}
    names = (*METRICS, "P@1")
    found = evaluate_run(run, qrels, names)
    for row, query in enumerate(found.query_ids):
        for name in names:
            assert found.values[name][row] == pytest.approx(plain(name, *cases[query]), abs=1e-9)
    first = make_run({query: ranking[:1] for query, (ranking, _) in cases.items()})
    assert evaluate_run(first, qrels, ["MRR"]).means()["MRR"] == pytest.approx(found.means()["P@1"])
    assert found.means()["Hit@1"] == pytest.approx(found.means()["P@1"])


CASES = st.dictionaries(
    st.sampled_from(["q1", "q2", "q3", "q4"]),
    st.tuples(st.lists(st.sampled_from(TOOLS), unique=True), st.sets(st.sampled_from(TOOLS), min_size=1)),
    min_size=1,
)


@settings(max_examples=40, deadline=None)
@given(CASES)
def test_deeper_never_loses_and_one_definition_bounds_the_other(
    cases: dict[str, tuple[list[str], set[str]]],
) -> None:
    run = make_run({query: ranking for query, (ranking, _) in cases.items()})
    depths = (1, 2, 5, 10, 100)
    names = [f"{kind}@{k}" for kind in ("Recall", "Hit") for k in depths]
    found = evaluate_run(run, {query: golds for query, (_, golds) in cases.items()}, names).values
    for kind in ("Recall", "Hit"):
        for low, high in pairwise(depths):
            assert (found[f"{kind}@{low}"] <= found[f"{kind}@{high}"] + 1e-12).all()
    for k in depths:
        assert (found[f"Recall@{k}"] <= found[f"Hit@{k}"] + 1e-12).all()


@settings(max_examples=40, deadline=None)
@given(CASES, st.randoms(use_true_random=False))
def test_the_order_of_the_queries_says_nothing(
    cases: dict[str, tuple[list[str], set[str]]], order: Random
) -> None:
    shuffled = list(cases)
    order.shuffle(shuffled)
    one = evaluate_run(make_run({q: cases[q][0] for q in cases}), {q: cases[q][1] for q in cases})
    two = evaluate_run(make_run({q: cases[q][0] for q in shuffled}), {q: cases[q][1] for q in shuffled[::-1]})
    assert one.means() == two.means() and one.intervals() == two.intervals()


def test_perfect_run_is_one_and_empty_run_is_zero() -> None:
    qrels = {"q1": {"a", "b"}, "q2": {"c"}}
    perfect = evaluate_run(make_run({"q1": ["a", "b", "x"], "q2": ["c", "a"]}), qrels).means()
    assert all(value == 1 for name, value in perfect.items() if name != "Recall@1")
    assert perfect["Recall@1"] == pytest.approx(0.75)
    assert set(evaluate_run(make_run({"q1": [], "q2": []}), qrels).means().values()) == {0.0}
    assert set(evaluate_run(make_run({}), qrels).means().values()) == {0.0}


def test_unanswered_queries_count_zero_and_unjudged_ones_do_not_count() -> None:
    run = make_run({"q1": ["a"], "q9": ["a"]})
    found = evaluate_run(run, {"q1": {"a"}, "q2": {"a"}})
    assert found.query_ids == ("q1", "q2")
    assert found.means()["MRR"] == 0.5


def test_order_of_the_run_stands_even_where_scores_tie() -> None:
    for ranking in (["a", "b"], ["b", "a"]):
        found = evaluate_run(make_run({"q": ranking}), {"q": {"a"}}, ["MRR"])
        assert found.means()["MRR"] == 1 / (ranking.index("a") + 1)


def test_intervals_hold_the_mean_are_seeded_and_shrink() -> None:
    rng = np.random.default_rng(1)

    def judged(n: int) -> tuple[RankedRun, dict[str, set[str]]]:
        rankings = {f"q{i:04d}": ["a", "b"] if rng.random() < 0.6 else ["b", "a"] for i in range(n)}
        return make_run(rankings), {query: {"a"} for query in rankings}

    small, large = evaluate_run(*judged(50)), evaluate_run(*judged(2000))
    assert small.intervals(seed=3) == small.intervals(seed=3)
    for found in (small, large):
        low, high = found.intervals()["Hit@1"]
        assert low < found.means()["Hit@1"] < high
    share = large.means()["Hit@1"]
    low, high = large.intervals()["Hit@1"]
    # The normal interval of a share is the yardstick.
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(share * (1 - share) / 2000), rel=0.1)
    sure = evaluate_run(make_run({"q": ["a"]}), {"q": {"a"}})
    assert sure.intervals()["MRR"] == (1.0, 1.0)


def test_errors_say_what_is_wrong() -> None:
    run = make_run({"q1": ["a", "a"]})
    with pytest.raises(UserError, match="twice"):
        evaluate_run(run, {"q1": {"a"}})
    with pytest.raises(UserError, match="no gold"):
        evaluate_run(make_run({}), {"q1": set()})
    with pytest.raises(UserError, match="no judged queries"):
        evaluate_run(make_run({}), {})
    with pytest.raises(UserError, match="unknown metric 'MAP'"):
        evaluate_run(make_run({}), {"q1": {"a"}}, ["MAP"])
