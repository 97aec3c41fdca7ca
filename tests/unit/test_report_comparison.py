"""The comparison in the report: its section, its figures, and rows that were not run."""

from __future__ import annotations

import re
from typing import Any

from ecoagent.evaluation.comparison_files import compare
from ecoagent.evaluation.offline import JudgedSplit
from ecoagent.report.comparison import NOTHING, ComparisonFiles, comparison_section
from ecoagent.report.comparison_figures import bars_figure, curves_figure, differences_figure
from ecoagent.report.figures import mrr_figure
from ecoagent.report.render import _template
from ecoagent.report.results import read_offline
from ecoagent.retrieval import RankedRun, TextSet

NAMES = ("bm25", "rated")


def content(names: tuple[str, ...] = NAMES) -> ComparisonFiles:
    """A comparison of rankers that find the gold of many queries first, the last named of the most."""
    ids = tuple(f"q{n:02d}" for n in range(24))
    split = JudgedSplit(
        "syn", "test", TextSet(ids, ids), {q: frozenset({f"t{n}"}) for n, q in enumerate(ids)}
    )
    runs = []
    for step, name in enumerate(reversed(names), 2):
        rankings = [["x", f"t{n}"] if n % 4 < step - 1 else [f"t{n}", "x"] for n in range(24)]
        runs.append(RankedRun(name, ids, rankings, [[1.0, 0.5]] * 24))
    rows = [{"ranker": name, "label": f"<{name}>", "metrics": {"MRR": 0.1}} for name in names]
    facts = {q: {"source": "crewai" if n < 5 else "langchain", "golds": "1"} for n, q in enumerate(ids)}
    found = compare(runs, [split], rows, {q: f"t{n}" for n, q in enumerate(ids)}, facts)
    return ComparisonFiles(found.comparison_json(), found.curves_json(), found.slices_json())


def section(files: ComparisonFiles) -> dict[str, Any]:
    found = comparison_section(files)
    assert found is not None
    return found


def shown(files: ComparisonFiles) -> str:
    environment = _template().environment
    part = environment.from_string(
        "{% macro figure(name) %}[{{ name }}]{% endmacro %}{% include 'comparison.html.jinja' %}"
    )
    return part.render(comparison=section(files), source_names={"crewai": "CrewAI"})


def test_section_orders_by_mrr_and_holds_the_contrasts() -> None:
    (split,) = section(content())["splits"]
    assert [row["ranker"] for row in split["rows"]] == ["rated", "bm25"]
    assert split["rows"][0]["is_reference"] and split["rows"][0]["first"] is None
    assert split["rows"][1]["first"]["difference"] > 0 and len(split["rows"][1]["others"]) == 4
    # One gold each: a single slice says nothing, and is left out.
    (group,) = split["slices"]
    assert [(r["name"], r["small"]) for r in group["rows"]] == [("langchain", True), ("crewai", True)]
    assert group["rows"][0]["best"]["label"] == "<bm25>"
    assert comparison_section(NOTHING) is None


def test_page_part_says_it_in_words() -> None:
    html = shown(content())
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))
    assert "&lt;rated&gt;" in html and "syn test, 24 queries of 24 tools" in text
    assert "[comparison]" in text and "[differences]" in text and "[curves]" in text
    assert "CrewAI small: fewer than 20 queries 5 5" in text
    assert html.count("<td") == html.count("</td>") and html.count("<tr") == html.count("</tr>")


def test_without_the_reference_there_are_means_alone() -> None:
    found = section(content(("bm25", "tfidf")))
    assert all(row["first"] is None for row in found["splits"][0]["rows"])
    assert "–" in shown(content(("bm25", "tfidf"))) and bars_figure(found).startswith(b"\x89PNG")


def test_figures_are_equal_for_equal_data() -> None:
    files = content()
    found = section(files)
    for draw in (bars_figure, differences_figure):
        assert draw(found) == draw(found) and draw(found).startswith(b"\x89PNG")
    assert curves_figure(files.curves["rows"], "rated") == curves_figure(files.curves["rows"], "rated")


def test_rows_that_were_not_run_say_why_and_are_not_drawn() -> None:
    rows, _ = read_offline(
        {
            "rows": [
                {"label": "A", "metrics": {"MRR": 0.4}, "n_queries": 3},
                {"label": "B", "status": "not run", "reason": "no weights", "metrics": None},
            ]
        }
    )
    assert [r.not_run for r in rows] == ["", "not run: no weights"]
    assert mrr_figure(rows) == mrr_figure(rows[:1])
