"""Rankers against RATED: tests by query and by tool, Holm, neighbours, curves, and the files."""

from __future__ import annotations

import csv
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoagent.evaluation.clustered import (
    cluster_interval,
    flip_columns,
    holm,
    interval_columns,
    paired_test,
    tool_clusters,
)
from ecoagent.evaluation.comparison import COMPARED, LEVEL, compare_split, split_values
from ecoagent.evaluation.comparison_files import Compared, compare, short
from ecoagent.evaluation.curves import recall_curve
from ecoagent.evaluation.offline import JudgedSplit
from ecoagent.metrics import METRICS, evaluate_run
from ecoagent.retrieval import RankedRun, TextSet
from ecoagent.runs import read_json
from ecoagent.settings import UserError

TOOLS = [f"t{n:02d}" for n in range(40)]
GROUPS = {tool: tool for tool in TOOLS} | {"t39": "t38"}


def make_split(queries: int, per_tool: int = 4, name: str = "test") -> JudgedSplit:
    ids = tuple(f"q:syn:{n:03d}" for n in range(queries))
    golds = {q: frozenset({TOOLS[n // per_tool % 38]}) for n, q in enumerate(ids)}
    return JudgedSplit("syn", name, TextSet(ids, ids), golds)


def by_tool(split: JudgedSplit) -> dict[str, str]:
    return tool_clusters(split.golds, GROUPS, {})


def make_run(name: str, split: JudgedSplit, skill: float, seed: int = 0, depth: int = 20) -> RankedRun:
    """A ranker that finds a gold as often as it is skilled; a tool is easy or hard as a whole."""
    rng = np.random.default_rng(seed)
    rankings = []
    for query in split.queries.ids:
        golds = sorted(split.golds[query])
        luck = np.random.default_rng(int(golds[0][1:]) % 7).random()
        others = [str(t) for t in rng.permutation([t for t in TOOLS if t not in golds])]
        place = 0 if rng.random() < skill * (0.5 + luck) else int(rng.integers(1, 15))
        rankings.append([*others[:place], *golds, *others[place:]][:depth])
    return RankedRun(
        name, split.queries.ids, rankings, [[float(-n) for n in range(len(r))] for r in rankings]
    )


@pytest.fixture(scope="module")
def split() -> JudgedSplit:
    return make_split(120)


@pytest.fixture(scope="module")
def runs(split: JudgedSplit) -> list[RankedRun]:
    skills = {"tfidf": 0.2, "bm25": 0.21, "rated_wo": 0.5, "rated": 0.7}
    return [make_run(name, split, skill, n) for n, (name, skill) in enumerate(skills.items())]


@pytest.fixture(scope="module")
def table(runs: list[RankedRun]) -> list[dict[str, Any]]:
    rows = [
        {"set": "syn", "split": "test", "ranker": r.name, "label": r.name.upper(), "metrics": {"MRR": 0.1}}
        for r in runs
    ]
    return [*rows, {"set": "syn", "split": "test", "ranker": "ada", "label": "Ada", "status": "not run"}]


@pytest.fixture(scope="module")
def compared(runs: list[RankedRun], split: JudgedSplit, table: list[dict[str, Any]]) -> Compared:
    facts = {
        q: {"source": "n8n_official" if n % 2 else "crewai", "golds": "1", "length": "1–12 words"}
        for n, q in enumerate(split.queries.ids)
    }
    return compare(runs, [split], table, by_tool(split), facts, seed=3)


def test_holm_by_hand() -> None:
    # Sorted .01 .02 .03 .04, times 4 3 2 1: .04 .06 .06 .04, then never below what came before.
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.6, 0.5]) == [1.0, 1.0] and holm([0.3]) == [0.3] and holm([]) == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_only_raises_and_keeps_the_order(p: list[float]) -> None:
    found = holm(p)
    assert all(before <= after <= 1 for before, after in zip(p, found, strict=True))
    for i, j in product(range(len(p)), repeat=2):
        assert p[i] > p[j] or found[i] <= found[j]
    assert not p or min(found) == min(1.0, len(p) * min(p))


def test_p_is_the_share_of_all_sign_patterns() -> None:
    rng = np.random.default_rng(0)
    differences = rng.normal(0.2, 0.5, size=(24, 3))
    names = [f"t{n // 3}" for n in range(24)]
    sums = differences.reshape(8, 3, 3).sum(axis=1)
    patterns = np.array(list(product((-1.0, 1.0), repeat=8)))
    exact = (np.abs(patterns @ sums) >= np.abs(sums.sum(axis=0)) - 1e-9).mean(axis=0)
    assert flip_columns(differences, names, flips=100_000) == pytest.approx(exact, abs=0.006)
    # Nothing differs: every pattern reaches it.
    assert flip_columns(np.zeros((5, 2)), list("abcde"), flips=100).tolist() == [1.0, 1.0]


def test_columns_are_what_the_single_functions_say() -> None:
    rng = np.random.default_rng(1)
    values, others = rng.random((60, 2)), rng.random((60, 2))
    names = [f"t{n // 4}" for n in range(60)]
    low, high = interval_columns(values - others, names, seed=5)
    p = flip_columns(values - others, names, seed=5)
    for column in range(2):
        single = paired_test(values[:, column].tolist(), others[:, column].tolist(), names, seed=5)
        assert single.p == pytest.approx(p[column], abs=1e-12)
        assert (single.difference.low, single.difference.high) == pytest.approx((low[column], high[column]))
    assert cluster_interval(values[:, 0].tolist(), names).clusters == 15
    with pytest.raises(UserError, match="3 values and 2"):
        flip_columns(np.zeros((3, 1)), ["a", "b"])


def test_a_query_counts_under_its_source_or_else_its_first_gold() -> None:
    golds = {
        "generated": frozenset({"t01", "t05"}),
        "of a copy": frozenset({"t38", "t39"}),
        "judged": frozenset({"t39", "t02"}),
        "copies": frozenset({"t38", "t39"}),
        "elsewhere": frozenset({"x"}),
    }
    found = tool_clusters(golds, GROUPS, {"generated": "t05", "of a copy": "t39", "not judged": "t01"})
    assert found == {
        "generated": "t05",
        "of a copy": "t38",
        "judged": "t02",
        "copies": "t38",
        "elsewhere": "x",
    }


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.text(max_size=3), st.frozensets(st.sampled_from("abcde"), min_size=1), max_size=8),
    st.dictionaries(st.sampled_from("abcde"), st.sampled_from("abcde")),
)
def test_clusters_do_not_know_copies_apart(golds: dict[str, frozenset[str]], groups: dict[str, str]) -> None:
    found = tool_clusters(golds, groups, {})
    assert found.keys() == golds.keys()
    whole = {q: frozenset(t for t in "abcde" if groups.get(t, t) in {groups.get(g, g) for g in own})
             for q, own in golds.items()}  # fmt: skip
    # Neither whether a query's golds are completed by their copies, nor which copy it was generated for.
    assert found == tool_clusters(whole, groups, {})
    for query, own in golds.items():
        assert found[query] in {groups.get(tool, tool) for tool in own}
        for tool in own:
            copies = [t for t in "abcde" if groups.get(t, t) == groups.get(tool, tool)]
            assert {tool_clusters({query: own}, groups, {query: t})[query] for t in copies} == {
                groups.get(tool, tool)
            }


def test_contrasts_say_who_is_better(split: JudgedSplit, runs: list[RankedRun]) -> None:
    values = split_values(split, runs, by_tool(split))
    found = compare_split(values, flips=4000)
    assert (found.queries, found.tools) == (120, 30)
    assert [(c.ranker, c.metric) for c in found.contrasts] == [
        (r.name, m) for r in runs[:-1] for m in COMPARED
    ]
    means = {(m.ranker, m.metric): m for m in found.means}
    assert len(means) == len(runs) * len(METRICS)
    for row in found.contrasts:
        difference = means["rated", row.metric].mean - means[row.ranker, row.metric].mean
        assert row.difference == pytest.approx(difference)
        assert row.by_tool[0] <= row.difference <= row.by_tool[1]
        assert row.p_by_tool <= row.holm_by_tool <= 1 and row.p_by_query <= row.holm_by_query
        assert row.separable == (row.holm_by_tool < LEVEL)
    assert all(c.separable for c in found.contrasts if c.ranker == "tfidf" and c.metric == "MRR")
    order = [n.better for n in found.neighbours] + [found.neighbours[-1].worse]
    assert order[0] == "rated" and set(order[2:]) == {"tfidf", "bm25"}
    assert not found.neighbours[-1].separable and all(n.difference >= 0 for n in found.neighbours)


def test_intervals_by_query_are_those_of_the_table(split: JudgedSplit, runs: list[RankedRun]) -> None:
    found = compare_split(split_values(split, runs[:1], by_tool(split)), flips=10, seed=7)
    expected = evaluate_run(runs[0], split.golds).intervals(seed=7)
    for row in found.means:
        assert row.by_query == pytest.approx(expected[row.metric])
    assert found.contrasts == () and found.neighbours == ()


def test_by_tool_is_wider_where_tools_are_easy_or_hard_as_a_whole() -> None:
    split = make_split(120, per_tool=10)
    easy = {q: int(min(split.golds[q])[1:]) % 2 for q in split.queries.ids}
    rankings = [[*(["t00x"] if easy[q] else []), *split.golds[q]] for q in split.queries.ids]
    run = RankedRun("rated", split.queries.ids, rankings, [[1.0, 0.5][: len(r)] for r in rankings])
    rows = compare_split(split_values(split, [run], by_tool(split)), flips=10).means
    mrr = next(row for row in rows if row.metric == "MRR")
    assert mrr.by_tool[1] - mrr.by_tool[0] > 2 * (mrr.by_query[1] - mrr.by_query[0])


def test_equal_rankers_are_not_told_apart(split: JudgedSplit) -> None:
    first = make_run("rated", split, 0.5, 1)
    second = RankedRun("copy", first.query_ids, first.tool_ids, first.scores)
    found = compare_split(split_values(split, [second, first], by_tool(split)), flips=200)
    assert {(c.difference, c.p_by_tool, c.separable) for c in found.contrasts} == {(0.0, 1.0, False)}
    assert [n.better for n in found.neighbours] == ["copy"], "ties keep the order of the table"
    with pytest.raises(UserError, match="a name each"):
        split_values(split, [first, first], by_tool(split))


def test_the_order_of_the_queries_changes_nothing(split: JudgedSplit, runs: list[RankedRun]) -> None:
    back = split.queries.ids[::-1]
    turned = JudgedSplit("syn", "test", TextSet(back, back), split.golds)
    one = compare_split(split_values(split, runs, by_tool(split)), flips=500)
    two = compare_split(split_values(turned, runs, by_tool(turned)), flips=500)
    for a, b in zip(one.contrasts, two.contrasts, strict=True):
        assert a.by_tool == pytest.approx(b.by_tool) and a.p_by_tool == b.p_by_tool
        assert a.difference == pytest.approx(b.difference)


def test_curves_are_the_metrics_at_every_depth(split: JudgedSplit) -> None:
    golds = {q: frozenset({*found, "t20", "t21"}) for q, found in split.golds.items()}
    several = JudgedSplit("syn", "test", split.queries, golds)
    run = make_run("rated", split, 0.4, 2)
    curve = recall_curve(run, several, depth=25)
    names = [f"{kind}@{k}" for kind in ("Recall", "Hit") for k in (1, 3, 10, 20)]
    means = evaluate_run(run, golds, names).means()
    for k in (1, 3, 10, 20):
        assert curve.recall[k - 1] == pytest.approx(means[f"Recall@{k}"], abs=1e-9)
        assert curve.hit[k - 1] == pytest.approx(means[f"Hit@{k}"], abs=1e-9)
    assert len(curve.hit) == 25 and curve.hit[24] == curve.hit[19]


def test_files_are_rounded_labelled_and_equal(compared: Compared, tmp_path: Path) -> None:
    one, two = compared.write(tmp_path / "a"), compared.write(tmp_path / "b")
    assert [p.name for p in one] == [
        f"{name}.{kind}" for name in ("comparison", "recall_curves", "slices") for kind in ("json", "csv")
    ]
    assert [p.read_bytes() for p in one] == [p.read_bytes() for p in two]
    content = read_json(tmp_path / "a" / "comparison.json")
    assert content["not_run"] == [
        {"set": "syn", "split": "test", "ranker": "ada", "label": "Ada", "status": "not run"}
    ]
    assert {row["label"] for row in content["rows"]} == {"TFIDF", "BM25", "RATED_WO"}
    assert all(round(row["difference"], 6) == row["difference"] for row in content["rows"])
    with (tmp_path / "a" / "comparison.csv").open(newline="", encoding="utf-8") as handle:
        lines = list(csv.DictReader(handle))
    assert len(lines) == len(content["rows"])
    assert float(lines[0]["by_tool_low"]) == content["rows"][0]["by_tool"][0]
    with (tmp_path / "a" / "recall_curves.csv").open(newline="", encoding="utf-8") as handle:
        assert sum(line["k"] == "100" for line in csv.DictReader(handle)) == 4


def test_one_line_a_split(compared: Compared) -> None:
    (line,) = compared.summary()
    assert line["MRR"].startswith("RATED − RATED_WO: +.") and line["MRR"].endswith(" Holm")
    assert line["told apart below it"].endswith("of 3")
    assert (
        short(0.0784, True) == "+.078" and short(-0.0344) == "−.034" and short(0.00032, digits=4) == ".0003"
    )
    assert short(0.0, True) == ".000" and short(1.0) == "1.000"


def test_without_rated_or_without_any_run_there_is_still_a_file(
    split: JudgedSplit, runs: list[RankedRun], table: list[dict[str, Any]], tmp_path: Path
) -> None:
    found = compare(runs[:2], [split], table[:2], by_tool(split), {}, seed=0)
    assert found.summary() == [] and found.splits[0].neighbours
    nothing = compare([], [split], [table[-1]], by_tool(split), {})
    assert nothing.splits == () and nothing.summary() == []
    nothing.write(tmp_path)
    assert (tmp_path / "comparison.csv").read_text() == ""
    assert len(read_json(tmp_path / "comparison.json")["not_run"]) == 1


def test_few_clusters_are_said() -> None:
    few, enough = make_split(12), make_split(40, name="cold")
    found = compare([make_run("rated", enough, 0.5)], [few, enough], [], by_tool(enough), {})
    notes = " ".join(found.comparison_json()["notes"])
    assert "syn test: 3 tools are too few" in notes and "syn cold: " not in notes


def test_a_large_table_takes_seconds() -> None:
    """Processor time: 12 rankers on 500 queries, a third of the whole."""
    split = make_split(500)
    runs = [make_run("rated" if n == 0 else f"r{n}", split, 0.3 + 0.02 * n, n) for n in range(12)]
    facts = {q: {"golds": str(n % 3), "length": f"{n % 4}"} for n, q in enumerate(split.queries.ids)}
    facts = {q: {"golds": v["golds"], "auth": v["length"]} for q, v in facts.items()}
    before = time.process_time()
    compare(runs, [split], [], by_tool(split), facts)
    assert time.process_time() - before < 20
