"""Eq. 4-5 against independently computed values, and the ruler for new tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoagent.reliability import ReliabilityScales, score_tools, shown_name, source_weight
from ecoagent.settings import ReliabilitySettings

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "r_static.json").read_text())


def _catalog() -> tuple[list[str], list[str], list[list[str]], list[str], Any]:
    n = len(GOLDEN["source"])
    names = [f"name {i}" for i in range(n)]
    descriptions = [f"{i:03d}".ljust(length, ".")[:length] for i, length in enumerate(GOLDEN["desc_len"])]
    tags = [["t" * length] if length else [] for length in GOLDEN["tag_len"]]

    def embed(texts: list[str]) -> np.ndarray:
        assert texts == names + descriptions
        return np.array(GOLDEN["name_emb"] + GOLDEN["desc_emb"])

    return names, descriptions, tags, GOLDEN["source"], embed


def test_golden_values_to_1e9() -> None:
    scores = score_tools(*_catalog())
    for column, key in (("r_cons", "cons"), ("w_src", "src"), ("r_qual", "qual"), ("r_static", "r_static")):
        assert getattr(scores, column) == pytest.approx(GOLDEN["expected"][key], abs=1e-9), column
    assert scores.reliable.tolist() == [x >= 0.8 for x in GOLDEN["expected"]["r_static"]]


def test_a_new_tool_is_scored_by_the_same_ruler() -> None:
    names, descriptions, tags, sources, embed = _catalog()
    scores = score_tools(names, descriptions, tags, sources, embed)
    for i in range(len(names)):
        again = scores.scales.score_new(
            np.array(GOLDEN["name_emb"][i]),
            np.array(GOLDEN["desc_emb"][i]),
            source=sources[i],
            description=descriptions[i],
            tags=tags[i],
        )
        assert vars(again) == pytest.approx(scores.row(i), abs=1e-12)


def test_source_weights_listing_and_literal() -> None:
    listed = {
        s: source_weight(s) for s in ("langchain", "crewai", "llamaindex", "n8n_official", "n8n_community")
    }
    assert listed == {
        "langchain": 0.9,
        "crewai": 0.9,
        "llamaindex": 0.9,
        "n8n_official": 1.0,
        "n8n_community": 0.8,
    }
    assert source_weight("n8n_official", "literal") == 0.8
    assert source_weight("langchain", "literal") == 0.9
    assert source_weight("elsewhere") == 0.6


def test_equal_lengths_give_the_middle_not_nan() -> None:
    scores = score_tools(
        ["a", "b"], ["same", "size"], [[], []], ["langchain"] * 2, lambda texts: np.ones((len(texts), 3))
    )
    assert scores.r_qual.tolist() == [0.5, 0.5]
    assert scores.r_static == pytest.approx([0.5 + 0.27 + 0.1] * 2)


def test_no_tools_is_no_error() -> None:
    scores = score_tools([], [], [], [], lambda texts: np.zeros((0, 3)))
    assert scores.r_static.shape == (0,) and scores.scales.tools == 0


def test_tags_count_joined_by_a_blank() -> None:
    scores = score_tools(
        ["a", "b", "c"],
        ["d"] * 3,
        [["ab", "cd"], ["abcde"], []],
        ["x"] * 3,
        lambda texts: np.ones((len(texts), 2)),
    )
    assert scores.r_qual[0] == scores.r_qual[1] > scores.r_qual[2]


@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 300)), min_size=1, max_size=30),
    st.floats(-1, 1),
)
def test_score_stays_in_the_unit_interval_and_grows_with_documentation(
    lengths: list[tuple[int, int]], cosine: float
) -> None:
    scales = ReliabilityScales.measure([d for d, _ in lengths], [t for _, t in lengths])
    vector = np.array([cosine, (1 - cosine**2) ** 0.5])

    def scored(size: int) -> Any:
        return scales.score_new(
            np.array([1.0, 0.0]),
            vector,
            source="n8n",
            description="x" * size,
            tags=[],
            settings=ReliabilitySettings(),
        )

    short, long = scored(10), scored(200)
    assert 0 <= short.r_static <= long.r_static <= 1


def test_the_name_shown_to_people_comes_first() -> None:
    assert shown_name("tavilySearch", "Tavily Search") == "Tavily Search"
    assert shown_name("wikipedia", None) == "wikipedia"
    assert shown_name("wikipedia", "") == "wikipedia"
