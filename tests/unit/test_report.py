"""The report: self-contained, complete, tolerant of what a results file lacks."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ecoagent.evaluation.round_trip import encoders_of
from ecoagent.publish import PublishStage
from ecoagent.report import ReportStage, RunFiles, render_report
from ecoagent.report.encoder_ablation import encoder_figures, encoder_section
from ecoagent.report.figures import dynamic_figure, mrr_figure, reliability_figure
from ecoagent.report.generation import Cut, agreement, origin_rows, rank_counts, reject_steps
from ecoagent.report.generation import ablation as ablation_of
from ecoagent.report.labelled import calibration_facts, gold_overlap, hard_cases, pooling
from ecoagent.report.measured import (
    labeller_tables,
    review_section,
    shipped_encoder_ablation,
    shipped_labeller,
    shipped_round_trip,
)
from ecoagent.report.results import read_dynamic, read_offline
from ecoagent.report.stage import read_files
from ecoagent.report.throughput import throughput_rows
from ecoagent.runs import RunContext, execute, write_json
from ecoagent.settings import UserError
from tests.unit.fixture_encoder import ENCODER, encoder_ablation
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
    # One figure a group of the encoder ablation, where a release ships one.
    shipped = encoder_figures(encoder_section(shipped_encoder_ablation(ENCODER)))
    assert len(checker.images) == 10 + len(shipped) and all(i.get("alt") for i in checker.images)
    assert {f"#{i}" for i in checker.ids} >= checker.anchors and len(checker.anchors) == 16
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
    assert "No manifest was found" in report.html and set(report.figures) == {
        "reliability", "mrr", "tags", "syn_lines", "syn_tools", "round_trip", "yield",
    }  # fmt: skip
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


def test_absent_results_name_their_command(page: str) -> None:
    for command in (
        "ecoagent ablate round-trip --run",
        "ecoagent ablate encoder --run",
        "ecoagent label --evaluate-on",
        "ecoagent label --calibrate",
        "ecoagent review sample --run",
        "synthesis.verify_queries=true",
    ):
        assert command in page, command


RESPONSES = pl.DataFrame({"model": ["m"] * 4, "tokens_in": [100] * 4, "tokens_out": [25] * 4})
ENGINE = {"engine": "embedded", "model": "m", "live": 2, "replayed": 0, "failed": 1}


def asked(stage: dict[str, Any], origins: list[str]) -> Any:
    syn = pl.DataFrame({"origin": origins})
    tables = {
        "syn_queries": syn,
        "syn_responses": RESPONSES,
        "real_queries": syn.head(0),
        "real_responses": RESPONSES.head(0),
    }
    rows = throughput_rows({"stages": {"synthesize": stage}}, tables)
    assert len(rows) == 1
    return rows[0]


def test_throughput_is_of_live_responses() -> None:
    engine = {**ENGINE, "tokens_in": 200, "tokens_out": 50, "seconds": 19.0}
    row = asked({"seconds": 20.0, "engine": engine}, ["live"] * 8)
    assert row.state == "live" and row.failed == 1
    assert row.engine_share == pytest.approx(0.95) and row.meets_target
    assert row.tokens_out_per_s == pytest.approx(50 / 19) and row.queries_per_s == pytest.approx(8 / 19)
    assert row.per_1000_out == pytest.approx(80) and row.per_1000 == pytest.approx(16)
    mixed = asked({"seconds": 30.0, "engine": {**engine, "replayed": 2}}, ["live"] * 3 + ["replayed"] * 5)
    assert mixed.state == "partly replayed" and mixed.queries_per_s == pytest.approx(3 / 19)
    assert mixed.meets_target is False


def test_no_speed_is_invented() -> None:
    replayed = asked(
        {"seconds": 2.0, "engine": {**ENGINE, "live": 0, "replayed": 4, "seconds": 0.0}}, ["replayed"]
    )
    old = asked({"seconds": 2.0}, ["generated"])
    for row, state in ((replayed, "replayed"), (old, "not recorded")):
        assert row.state == state
        assert row.tokens_out_per_s is None and row.queries_per_s is None and row.engine_share is None
        assert row.per_1000_out == pytest.approx(10)


def test_round_trip_facts() -> None:
    queries = pl.DataFrame(
        {"round_trip_rank": [1, 2, 5, 12, 80, 1], "verifier_raw": [0.9, 0.8, 0.1, 0.1, 0.9, None]}
    )
    found = agreement(queries, Cut(10, "verifier_raw", 0.5))
    assert found is not None and found["queries"] == 5
    assert found["found"] == {"yes": 2, "no": 1} and found["lost"] == {"yes": 1, "no": 1}
    # By hand: agreement 3/5, by chance 3/5 * 3/5 + 2/5 * 2/5 = 0.52.
    assert found["share"] == pytest.approx(0.6) and found["kappa"] == pytest.approx(0.08 / 0.48)
    counts = dict(rank_counts(queries))
    assert counts["1"] == 2 and counts["4–5"] == 1 and counts["51+"] == 1 and sum(counts.values()) == 6
    nothing = queries.with_columns(verifier_raw=pl.lit(None, dtype=pl.Float64))
    assert agreement(nothing, Cut(10, "verifier_raw", 0.5)) is None


def test_lines_by_step_and_origin() -> None:
    rejects = pl.DataFrame(
        {
            "stage": ["synthesize/parse", "synthesize/filter", "synthesize/filter"],
            "reason": ["refusal", "x", "x"],
        }
    )
    assert reject_steps(rejects) == [("filter", "x", 2), ("parse", "refusal", 1)]
    queries = pl.DataFrame({"origin": ["replayed", "live", "live"], "source_tool_id": ["a", "b", "b"]})
    assert origin_rows(queries) == [("live", 2, 1), ("replayed", 1, 1)]


def test_pooling_counts_what_each_would_miss() -> None:
    verdicts = pl.DataFrame(
        {
            "retriever": ["dense", "dense", "bm25", "bm25", "dense+bm25"],
            "stage": ["verifier", "encoder", "verifier", "verifier", "verifier"],
            "kept": [True, False, True, False, True],
            "reason": [None, "below_min_cosine", None, "below_verifier_threshold", None],
        }
    )
    found = pooling(verdicts)
    assert (found["kept"], found["missed_by_dense"], found["missed_by_bm25"]) == (3, 1, 1)
    assert found["rows"][0] == {"name": "encoder alone", "proposed": 1, "judged": 1, "kept": 1}
    assert not pooling(verdicts.filter(pl.col("retriever") == "dense"))["pooled"]


def test_overlap_counts_duplicates_once(run: RunContext) -> None:
    tables = read_files(run).tables
    rows = {(r["first"], r["second"]): r for r in gold_overlap(tables)}
    assert rows["syn train", "syn cold"]["shared"] == 0
    assert rows["syn train", "syn test"]["shared"] > 0 and ("syn test", "real val") not in rows
    query, tool = tables["verdicts"].select("query_id", "tool_id").row(0)
    stats = {"hard_cases": [{"query_id": query, "tool_id": tool, "score": 0.5}]}
    case = hard_cases(tables, stats, {query: "the text"})[0]
    assert case["query"] == "the text" and case["cosine"] == 0.5 and case["kept"] is not None


def calibration() -> dict[str, Any]:
    curve = [
        {"mean_probability": 0.1, "share_right": 0.0, "pairs": 30.0},
        {"mean_probability": 0.8, "share_right": 0.9, "pairs": 10.0},
    ]
    return {"curve": curve, "pairs": 40, "positives": 10, "method": "platt", "slope": 2.0, "intercept": -1.0}


def test_calibration_of_another_release_still_has_its_curve() -> None:
    found = calibration_facts({"verifier": {"calibration": calibration(), "threshold": 0.5}})
    assert found is not None and found["map"] == []
    assert found["ece"] == pytest.approx(0.1) and found["base_brier"] == pytest.approx(0.1875)
    assert found["base_log_loss"] == pytest.approx(0.5623, abs=1e-4)
    assert found["formula"].endswith("log-odds(raw) − 1.000)")
    assert calibration_facts({"verifier": {"calibration": None}}) is None


def share(value: float) -> dict[str, Any]:
    return {"hits": 1, "of": 2, "value": value, "low": value - 0.1, "high": value + 0.1}


def labeller() -> dict[str, Any]:
    stage = {"queries": 9, "pairs": 20, "right": 10, "precision": share(0.5), "recall": share(0.4)}
    part = {
        "stages": [{**stage, "stage": "candidates"}, {**stage, "stage": "verifier", "precision": share(0.75)}]
    }
    strata = [{**part, "name": n, "sampled": 5, "weight": w} for n, w in (("G1", 1.0), ("G3", 4.0))]
    report = {"collection": "toolbench", "model": "m", "engine": "embedded", "encoder": "e", "form": "yes_no",
              "judged_pairs": 1000, "kept_pairs": 400, "reached": False, "strata": strata,
              "sample": part, "weighted": part}  # fmt: skip
    return {"reports": [report, {"collection": "bare"}, "nonsense"]}


def review(kind: str) -> dict[str, Any]:
    rates = {"judged": 20, "kappa": 0.61, "agreement": {"share": 0.8, "low": 0.6, "high": 0.9}}
    sets = [{"set": "real", "rates": rates, "groups": [{"by": "band", "name": "near", "rates": rates}]}]
    return {"headlines": [{"kind": kind, "judges": ["j"], "sets": sets}], "drawn": 20, "disagreements": [1]}


def ablation() -> dict[str, Any]:
    test = {"difference": -0.02, "interval": [-0.05, 0.01], "p": 0.21}
    common = {"set": "syn", "split": "test", "queries": 9, "tools": 4, "interval": [0.4, 0.6]}
    rows = [
        {"arm": "all", "MRR": 0.5, **common},
        {"arm": "both", "MRR": 0.48, "against_all": test, "against_random": test, **common},
    ]
    arms = [{"arm": "all", "pairs": 80}, {"arm": "both", "pairs": 33}]
    rule = {"max_rank": 2, "column": "verifier_raw", "at_least": 0.5}
    return {"filter": rule, "seeds": [0], "rows": rows, "arms": arms, "notes": ["A note."]}


def test_results_of_other_commands_are_shown(tmp_path: Path) -> None:
    ctx = built(tmp_path)
    results = ctx.paths.out / "results"
    execute(ReportStage(), ctx)
    write_json(results / "labeller.json", labeller())
    write_json(results / "review.json", review("model"))
    write_json(results / "round_trip.json", ablation())
    write_json(results / "encoder_ablation.json", encoder_ablation())
    assert execute(ReportStage(), ctx).status == "done", "the new results are part of the key"
    text = (ctx.paths.report / "index.html").read_text("utf-8")
    checker = Checker()
    checker.feed(text)
    assert checker.open == [] and (ctx.paths.report / "round_trip_mrr.png").is_file()
    assert (ctx.paths.report / "encoder_ablation_sets.png").is_file()
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))
    assert "toolbench: m (embedded, form yes_no), candidates by e" in words
    assert "Measured once for the release" not in words
    assert "Fewer pairs than wanted" in words and "weighted to the whole set" in words
    assert "None of them" not in words and "none is a person" in words
    assert "−0.020, p 0.210 −0.050 to +0.010" in words and "A note." in words
    assert "ecoagent ablate" not in words and "ecoagent review sample" not in words
    # The ablation's own cut is used for the ranks too.
    assert "among the first 2 for" in words


def test_without_a_judged_labeller_of_its_own_a_run_shows_the_shipped_one(run: RunContext, page: str) -> None:
    assert read_files(run).labeller_shipped and "Measured once for the release" in page
    for table in labeller_tables(shipped_labeller(run.settings.llm.model)):
        assert table["title"] in unescape(page) and table["enough"] is not None
    assert shipped_labeller("another-verifier") is None


def test_without_a_round_trip_ablation_of_its_own_a_run_shows_the_shipped_one(
    run: RunContext, page: str
) -> None:
    encoders = encoders_of(run.settings)
    shipped = shipped_round_trip(encoders)
    assert shipped is not None and shipped_round_trip([*encoders[:1], "another"]) is None
    assert (
        read_files(run).round_trip_shipped and "Measured once for the release on the reference build" in page
    )
    found = ablation_of(shipped)
    assert found is not None
    assert {r["arm"] for g in found["groups"] for r in g["rows"]} >= {
        "untrained",
        "all",
        "both",
        "random_both",
    }
    for group in found["groups"]:
        for row in group["rows"]:
            assert f"{row['mrr']:.3f}" in page, row["arm"]


def test_a_models_judgement_is_never_a_persons() -> None:
    by_model, by_person = review_section(review("model")), review_section(review("human"))
    assert by_model is not None and by_person is not None
    assert not by_model["human"] and by_person["human"] and by_model["rows"][0]["kind"] == "model"
    assert by_person["rows"][0]["rates"][0] == {"value": 0.8, "low": 0.6, "high": 0.9}
    assert by_person["rows"][0]["rates"][1] is None and review_section(None) is None


def test_odd_labeller_files_do_not_break_the_page() -> None:
    tables = labeller_tables(labeller())
    assert [len(t["rows"]) for t in tables] == [5, 0]
    assert tables[0]["rows"][1]["precision"] == {"value": 0.75, "low": 0.65, "high": 0.85}
    assert labeller_tables(None) == [] and labeller_tables([{"collection": "x"}])[0]["title"].startswith("x")


def test_pictures_take_little() -> None:
    from ecoagent.report import chain_figures as draw

    bare = {"curve": [{"probability": 0.5, "right": 0.0, "pairs": 1}], "map": [], "threshold": None}
    for png in (
        draw.lines_figure(0, []),
        draw.tools_figure([0], 10, 20),
        draw.round_trip_figure([("1", 0), ("51+", 0)], [], [], 10, 0.5),
        draw.yield_figure([("pairs", "kept", 0)]),
        draw.calibration_figure(bare),
    ):
        assert png.startswith(b"\x89PNG")
