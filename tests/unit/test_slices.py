"""Slices of the queries: which there are, who is in them, and what is said of them."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoagent.evaluation.comparison import split_values
from ecoagent.evaluation.offline import JudgedSplit
from ecoagent.evaluation.slices import (
    DIMENSIONS,
    LONGEST,
    SLICED,
    SMALL,
    load_facts,
    make_slices,
    slice_rows,
    words_bin,
)
from ecoagent.metrics import evaluate_run
from ecoagent.retrieval import RankedRun, TextSet
from ecoagent.settings import UserError
from tests.unit.fixture_run import fixture_settings, write_fixture_run


def test_length_is_counted_in_words() -> None:
    assert words_bin("find  a\tflight") == "1–12 words" == words_bin("w " * 12)
    assert words_bin("w " * 13) == "13–20 words" == words_bin("w " * 20)
    assert words_bin("w " * 21) == LONGEST


def write_core(core: Path, *, thin: bool = False) -> Path:
    core.mkdir()
    tools = pl.DataFrame(
        {
            "id": ["a", "b", "b2", "c"],
            "source": ["crewai", "langchain", "crewai", "crewai"],
            "auth_required": ["yes", "no", "yes", "yes"],
            "duplicate_group": ["a", "b", "b", "c"],
        }
    )
    queries = pl.DataFrame(
        {
            "query_id": ["q1", "q2", "q3", "q4"],
            "text": ["one two", "w " * 30, "x y z", "nothing"],
            "intent": ["direct", "howto", None, None],
            "query_type": [None, None, "single", "none"],
        }
    )
    qrels = pl.DataFrame(
        {
            "query_id": ["q1", "q1", "q2", "q2", "q3", "q3", "q4"],
            "tool_id": ["b", "b2", "a", "c", "a", "b", "a"],
            "grade": [1, 1, 1, 1, 1, 1, 0],
            "origin": ["generated", "duplicate_group", *["verified"] * 5],
        }
    )
    if thin:
        tools, queries = tools.select("id", "duplicate_group"), queries.select("query_id", "text")
    tools.write_parquet(core / "tools.parquet")
    queries.write_parquet(core / "syn_queries.parquet")
    qrels.write_parquet(core / "syn_qrels.parquet")
    return core


def test_facts_of_each_query(tmp_path: Path) -> None:
    facts = load_facts(write_core(tmp_path / "core"))
    # A copy in another catalog adds neither a source nor a gold.
    assert facts["q1"] == {
        "source": "langchain", "intent": "direct", "length": "1–12 words", "auth": "no", "golds": "1",
    }  # fmt: skip
    assert facts["q2"] == {
        "source": "crewai", "intent": "howto", "length": LONGEST, "auth": "yes", "golds": "2",
    }  # fmt: skip
    assert facts["q3"]["source"] == "several" == facts["q3"]["auth"] and facts["q3"]["query_type"] == "single"
    assert "golds" not in facts["q4"] and "source" not in facts["q4"]


def test_a_data_set_without_columns_has_fewer_dimensions(tmp_path: Path) -> None:
    facts = load_facts(write_core(tmp_path / "core", thin=True))
    assert facts["q2"] == {"length": LONGEST, "golds": "2"}
    (tmp_path / "core" / "syn_qrels.parquet").unlink()
    with pytest.raises(UserError, match="syn_qrels"):
        load_facts(tmp_path / "core")


NAMES = st.sampled_from(["x", "y", "several"])


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.integers(0, 30).map(str), st.dictionaries(st.sampled_from(["source", "intent", "auth"]), NAMES)
    )
)
def test_each_query_is_in_one_slice_of_a_dimension(facts: dict[str, dict[str, str]]) -> None:
    found = make_slices(sorted(facts), facts)
    for dimension in DIMENSIONS:
        members = [q for part in found if part.dimension == dimension for q in part.query_ids]
        assert sorted(members) == sorted(q for q, known in facts.items() if dimension in known)
        names = [part.name for part in found if part.dimension == dimension]
        assert len(set(names)) == len(names) and "several" not in names[:-1]


def test_rows_are_the_metrics_of_their_queries() -> None:
    ids = tuple(f"q{n:02d}" for n in range(30))
    golds = {q: frozenset({f"t{n % 6}"}) for n, q in enumerate(ids)}
    split = JudgedSplit("real", "test", TextSet(ids, ids), golds)
    rankings = [[f"t{(n + n // 7) % 6}", f"t{n % 5}"] for n in range(30)]
    rankings = [list(dict.fromkeys(r)) for r in rankings]
    run = RankedRun("rated", ids, rankings, [[1.0, 0.5][: len(r)] for r in rankings])
    facts = {q: {"golds": "1" if n < 25 else "2", "auth": "yes"} for n, q in enumerate(ids)}
    facts[ids[-1]]["golds"] = "3 or more"
    clusters = {q: min(own) for q, own in golds.items()}
    rows = slice_rows(split_values(split, [run], clusters), facts)
    assert [(r.dimension, r.slice, r.queries, r.small) for r in rows] == [
        ("auth", "yes", 30, False),
        ("golds", "1", 25, False),
        ("golds", "2", 4, True),
        ("golds", "3 or more", 1, True),
    ]
    assert SMALL == 20
    part = {q: golds[q] for q in ids[:25]}
    means = evaluate_run(run, part, SLICED).means()
    assert rows[1].metrics == pytest.approx(means)
    for name in SLICED:
        interval = rows[1].intervals[name]
        assert interval is not None and interval[0] <= means[name] <= interval[1]
    assert rows[3].tools == 1 and set(rows[3].intervals.values()) == {None}


def test_facts_of_a_whole_run(tmp_path: Path) -> None:
    ctx = write_fixture_run(fixture_settings(tmp_path))
    facts = load_facts(ctx.paths.core)
    syn = [f for q, f in facts.items() if q.startswith("q:syn:")]
    real = [f for q, f in facts.items() if q.startswith("q:real:")]
    assert syn and real and all("intent" in f and "query_type" not in f for f in syn)
    assert {f["query_type"] for f in real} == {"single", "multi"} and {f["auth"] for f in real} == {"yes"}
