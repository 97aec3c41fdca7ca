"""The report: self-contained, complete, tolerant of what a results file lacks."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ecoagent.publish import PublishStage
from ecoagent.report import ReportStage, RunFiles, render_report
from ecoagent.report.figures import dynamic_figure, mrr_figure, reliability_figure
from ecoagent.report.results import read_dynamic, read_offline
from ecoagent.report.stage import read_files
from ecoagent.runs import RunContext, execute, write_json
from ecoagent.settings import UserError
from tests.unit.fixture_run import dynamic_results, fixture_settings, offline_results, write_fixture_run


def built(outputs: Path) -> RunContext:
    """A fixture run with everything the report reads."""
    ctx = write_fixture_run(fixture_settings(outputs))
    check = {"name": "english", "table": "run", "severity": "warning", "says": "queries are English"}
    audit = {
        "passed": True,
        "counts": {"checks": 1, "expectations": 1, "failed_critical": 0, "failed_warning": 1},
        "checks": [{**check, "violations": 1, "examples": ["syn_queries q: language pt <b>"]}],
        "tables": [{"table": "tools", "rows": 30}],
    }
    write_json(ctx.paths.out / "audit.json", audit)
    execute(PublishStage(), ctx)
    return ctx


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunContext:
    ctx = built(tmp_path_factory.mktemp("outputs"))
    execute(ReportStage(), ctx)
    return ctx


@pytest.fixture
def page(run: RunContext) -> str:
    return (run.paths.report / "index.html").read_text("utf-8")


class Checker(HTMLParser):
    """Collects what a page loads, and whether its elements are closed in order."""

    VOID = frozenset({"meta", "link", "img", "br", "hr", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.ids: set[str] = set()
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "img":
            self.images.append(found)
        if tag in ("img", "script", "link", "iframe"):
            self.loads.append(found.get("src") or found.get("href") or "")
        if name := found.get("id"):
            self.ids.add(name)
        if tag == "a" and (target := found.get("href")):
            self.anchors.add(target)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"


def test_page_is_self_contained_and_well_formed(page: str) -> None:
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert all(source.startswith("data:") for source in checker.loads)
    assert len(checker.images) == 5 and all(i.get("alt") for i in checker.images)
    assert {f"#{i}" for i in checker.ids} >= checker.anchors and len(checker.anchors) == 11
    assert "@import" not in page and "url(" not in page


def test_page_says_what_the_run_found(page: str) -> None:
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    assert "tools kept of 31 candidates" in text
    assert "template 1" in text
    assert "near_duplicate 3" in text
    assert "underpowered 25 distinct gold tools" in text
    assert "all-MiniLM-L6-v2 in the thenlper/gte-large role" in text
    assert "labeling.min_cosine 0.7 0.19" in text
    assert "Failed" in text and "280" in text
    assert "tools: licence_not_open 6" in text
    assert "language pt &lt;b&gt;" in page
    assert "from 0.310 to 0.420" in text


def test_samples_name_their_tools(run: RunContext, page: str) -> None:
    section = page[page.index('id="syn"') : page.index('id="real"')]
    rows = re.findall(r'<td class="q">(.+?)</td><td>(.*?)</td><td>(\w+)</td>', section)
    assert len(rows) == 12 and all(tools for _, tools, _ in rows)
    assert {intent for _, _, intent in rows} == {"direct", "troubleshooting", "howto"}


def test_equal_files_give_equal_pages_and_pictures(run: RunContext, tmp_path: Path) -> None:
    files = read_files(run)
    one, two = render_report(files, run.settings), render_report(files, run.settings)
    assert one.html == two.html
    assert {n: f.png for n, f in one.figures.items()} == {n: f.png for n, f in two.figures.items()}
    assert all(f.png.startswith(b"\x89PNG") for f in one.figures.values())
    assert sorted(p.name for p in run.paths.report.glob("*.png")) == sorted(
        f.file for f in one.figures.values()
    )
    assert execute(ReportStage(), run).status == "up to date"


def test_thin_results_still_render(run: RunContext) -> None:
    full = read_files(run)
    thin = RunFiles(
        tables=full.tables,
        offline={"rows": [{"set": "syn", "split": "test", "ranker": "bm25", "metrics": {"MRR": 0.5}}]},
        dynamic={"rows": [{"policy": "static", "rate": 0.2}]},
        training={},
        label_stats={},
        audit=full.audit,
        published={},
        manifest={},
    )
    report = render_report(thin, run.settings)
    assert "No manifest was found" in report.html and set(report.figures) == {"reliability", "mrr", "tags"}
    empty = RunFiles(**{**vars(thin), "offline": {}, "dynamic": {}})
    assert "Nothing was simulated" in render_report(empty, run.settings).html


def test_results_are_read() -> None:
    rows, _ = read_offline(offline_results())
    assert rows[0].label == "TF-IDF" and rows[0].queries == 20 and rows[0].intervals["MRR"][1] > 0.2
    dynamic, series, notes = read_dynamic(dynamic_results())
    static, rated = dynamic[0], dynamic[4]
    assert static.adaptation_shown == "Failed" and rated.adaptation_shown == "160 (1 of 10 failed)"
    assert static.success is not None and static.success.shown == "25.0 ± 1.0"
    assert series[0].label == "Static" and series[0].onset == 2000 and notes


def test_figures_take_few_points() -> None:
    assert reliability_figure({"One": [0.9]}, 0.8).startswith(b"\x89PNG")
    rows, _ = read_offline({"rows": [{"label": "A", "metrics": {"MRR": 0.0}}]})
    assert mrr_figure(rows).startswith(b"\x89PNG")
    _, series, _ = read_dynamic(
        {"series": [{"policy": "a", "rate": 0.2, "bin_steps": 9, "success": [1], "fault": [0]}]}
    )
    assert dynamic_figure(series, 5).startswith(b"\x89PNG")


def test_missing_results_are_named(tmp_path: Path) -> None:
    ctx = built(tmp_path)
    (ctx.paths.out / "results" / "dynamic.json").unlink()
    with pytest.raises(UserError, match=r"dynamic\.json"):
        execute(ReportStage(), ctx)
