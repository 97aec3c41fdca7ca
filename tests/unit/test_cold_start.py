"""Tools held out of training: how often their queries are lost to a tool that was seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ecoagent.evaluation.cold_start import (
    AFTER,
    BEFORE,
    change,
    cold_start,
    seen_above_gold,
    seen_tools,
    winner,
)
from ecoagent.evaluation.datasets import EvalData
from ecoagent.evaluation.offline import judged_splits
from ecoagent.report.render import _template
from ecoagent.report.stage import read_cold_start
from ecoagent.retrieval import RankedRun, TextSet
from ecoagent.settings import TrainSettings, UserError

TOOLS = ("c1", "c2", "idle", "s1", "s2")
GOLDS = {
    "q:train": frozenset({"s1", "s2"}),
    "q:a": frozenset({"c1"}),
    "q:b": frozenset({"c1"}),
    "q:c": frozenset({"c2"}),
    "q:d": frozenset({"c2"}),
}
COLD = ("q:a", "q:b", "q:c", "q:d")


def data(*, cold: bool = True) -> EvalData:
    queries = {("syn", "train"): TextSet(("q:train",), ("t",))}
    if cold:
        queries["syn", "cold"] = TextSet(COLD, tuple("abcd"))
    return EvalData(
        TextSet(TOOLS, TOOLS), {t: t for t in TOOLS}, dict.fromkeys(TOOLS, 0.5), queries, GOLDS, ()
    )


def run(name: str, rankings: list[list[str]]) -> RankedRun:
    return RankedRun(name, COLD, rankings, [[1 - n / 10 for n in range(len(r))] for r in rankings])


RUNS = [
    run(BEFORE, [["c1"], ["s1", "c1"], ["idle", "s1", "c2"], ["c2"]]),
    run(AFTER, [["s2", "c1"], ["c1", "s1"], ["c1", "c2"], []]),
]


def test_rows_and_change_by_hand() -> None:
    found = cold_start(data(), RUNS, judged_splits(data()), TrainSettings(), 0)
    before, after = found["rows"]
    assert before["ranker"] == BEFORE and before["queries"] == 4 and before["tools"] == 2
    assert before["metrics"]["MRR"] == pytest.approx((1 + 1 / 2 + 1 / 3 + 1) / 4, abs=1e-6)
    assert before["first"] == {"gold": 0.5, "seen": 0.25, "cold": 0.0, "other": 0.25, "none": 0.0}
    assert before["lost_to_seen"] == 0.25 and before["seen_above_gold"] == 0.5
    assert after["metrics"]["MRR"] == pytest.approx((1 / 2 + 1 + 1 / 2 + 0) / 4, abs=1e-6)
    assert after["first"] == {"gold": 0.25, "seen": 0.25, "cold": 0.25, "other": 0.0, "none": 0.25}
    assert after["lost_to_seen"] == after["seen_above_gold"] == 0.25
    assert all(sum(row["first"].values()) == pytest.approx(1) for row in found["rows"])
    assert found["tools"] == {"all": 5, "seen": 2, "cold": 2, "seen_share_of_wrong": 0.5}
    moved = found["change"]
    assert moved["MRR"]["mean"] == pytest.approx((2 - 17 / 6) / 4, abs=1e-6)
    assert moved["lost_to_seen"]["mean"] == 0
    assert moved["right_before_lost_to_seen_after"] == 1 and moved["lost_to_seen_before_right_after"] == 1
    low, high = moved["lost_to_seen"]["interval"]
    assert low <= 0 <= high
    assert found == cold_start(data(), RUNS, judged_splits(data()), TrainSettings(), 0)


def test_without_cold_queries_or_towers_there_is_nothing_to_compare() -> None:
    none = cold_start(data(cold=False), RUNS, [], TrainSettings(), 0)
    assert none["rows"] == [] and none["change"] is None and none["notes"]
    one = cold_start(data(), RUNS[:1], judged_splits(data()), TrainSettings(), 0)
    assert len(one["rows"]) == 1 and one["change"] is None
    assert change({BEFORE: [1.0]}, {BEFORE: ["gold"]}, ["t"], 0) is None


def test_winners() -> None:
    seen, cold = seen_tools(data()), {"c1", "c2"}
    assert seen == {"s1", "s2"}
    assert winner(["c1", "s1"], {"c1"}, seen, cold) == "gold"
    assert winner(["c2"], {"c1"}, seen, cold) == "cold"
    assert winner(["idle"], {"c1"}, seen, cold) == "other"
    assert winner([], {"c1"}, seen, cold) == "none"
    assert seen_above_gold(["idle", "s1"], {"c1"}, seen)
    assert not seen_above_gold(["c1", "s1"], {"c1"}, seen) and not seen_above_gold([], {"c1"}, seen)


def test_the_report_shows_it_and_names_damage(tmp_path: Path) -> None:
    path = tmp_path / "cold_start.json"
    assert read_cold_start(path) is None
    found = cold_start(data(), RUNS, judged_splits(data()), TrainSettings(), 0)
    path.write_text(json.dumps(found))
    section = _template().environment.get_template("cold_start.html.jinja")
    page = section.render(cold=read_cold_start(path))
    assert "4 queries of 2 tools that training never saw" in page
    assert "1 that were right are now lost to a seen tool, 1 the other way round" in page
    none = cold_start(data(cold=False), RUNS, [], TrainSettings(), 0)
    assert "No judged query of a held-out tool" in section.render(cold=none)
    assert "earlier version" in section.render(cold={"rows": [], "notes": []})
    del found["rows"][0]["first"]
    path.write_text(json.dumps(found))
    with pytest.raises(UserError, match=r"cold_start.json.*evaluate --force"):
        read_cold_start(path)
