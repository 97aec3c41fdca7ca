"""Review of labels: sample, page, exports, judgements, scores, card."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import time
import xml.etree.ElementTree as ET
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import typer
from click.testing import Result
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ecoagent.audit import load_tables
from ecoagent.cli.review import review_app
from ecoagent.labeling.review import (
    ReviewItem,
    Sample,
    draw_sample,
    load_review,
    load_sample,
    read_judgements,
    read_pairs,
    render_page,
    score,
    write_sample,
)
from ecoagent.labeling.review.exports import (
    guard_cell,
    label_studio_config,
    to_csv,
    to_label_studio,
    unguard_cell,
)
from ecoagent.labeling.review.pairs import band_of
from ecoagent.labeling.review.rates import cohen_kappa, effective_size
from ecoagent.labeling.review.sample import allocate, item_id
from ecoagent.labeling.review.score import majority, stratum_weights
from ecoagent.metrics.intervals import wilson
from ecoagent.publish.card import person, render_card
from ecoagent.publish.layout import split_frames
from ecoagent.publish.selection import select
from ecoagent.runs import RunContext, read_json, read_table, write_json, write_table
from ecoagent.schema import VerdictRow
from ecoagent.settings import MissingInputError, UserError
from tests.unit import chromium
from tests.unit.fixture_run import fixture_settings, write_fixture_run

HOSTILE = '</script><img src=x onerror="window.pwned=1"><script>window.pwned=1</script>\u2028\'"&{{7*7}}'


def item(number: int, **fields: Any) -> ReviewItem:
    """A pair; a real one, kept, unless said otherwise."""
    base: dict[str, Any] = {
        "id": item_id("real", f"q{number}", "t"),
        "set": "real",
        "query_id": f"q{number}",
        "tool_id": "t",
        "query": f"request {number}",
        "tool_name": "Tool",
        "tool_source": "crewai",
        "tool_description": "Does it.",
        "kept": True,
        "score": 0.9,
        "band": "kept",
        "kind": "single",
        "retriever": "dense",
    }
    return ReviewItem.model_validate(base | fields)


def drawn(pairs: list[ReviewItem], n: int = 100, seed: int = 0) -> Sample:
    return draw_sample(
        pairs, n, seed=seed, run="r", labels={"real": "x"}, decides_by="raw", threshold=0.85, margin=0.1
    )


def export(
    folder: Path,
    sample: Sample,
    answers: dict[str, str],
    judge: str = "Ann",
    kind: str = "human",
    **head: Any,
) -> Path:
    """A file as the page downloads it."""
    rows = [
        {"id": i, "judgement": a, "note": "", "saw_verdict": False, "judge": judge, "judge_kind": kind}
        for i, a in answers.items()
    ]
    value = {
        "format": "ecoagent-review-1",
        "sample": sample.digest,
        "run": "r",
        "judge": judge,
        "judge_kind": kind,
        "judgements": rows,
    }
    return write_json(folder / f"{judge}-{kind}.json", value | head)


# ---- numbers


def test_kappa_by_hand() -> None:
    # 20 both yes, 5 only the first, 10 only the second, 15 both no: agreed 0.7, by chance 0.5, kappa 0.4.
    first = [True] * 25 + [False] * 25
    second = [True] * 20 + [False] * 5 + [True] * 10 + [False] * 15
    assert cohen_kappa(first, second) == pytest.approx(0.4)
    cells = ([True, True, False, False], [True, False, True, False], [20.0, 5.0, 10.0, 15.0])
    assert cohen_kappa(*cells) == pytest.approx(0.4)
    assert cohen_kappa([True] * 3, [True] * 3) is None and cohen_kappa([], []) is None
    with pytest.raises(ValueError, match="lengths"):
        cohen_kappa([True], [])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.floats(0.1, 9)), min_size=2, max_size=30))
def test_kappa_as_sklearn(rows: list[tuple[bool, bool, float]]) -> None:
    from sklearn.metrics import cohen_kappa_score

    first, second, weights = (list(column) for column in zip(*rows, strict=True))
    mine = cohen_kappa(first, second, weights)
    if mine is not None:
        assert mine == pytest.approx(cohen_kappa_score(first, second, sample_weight=weights), abs=1e-9)


def test_effective_size() -> None:
    assert effective_size([2.0] * 4) == 4 and effective_size([3, 1]) == pytest.approx(1.6)
    assert effective_size([]) == 0


def test_allocate() -> None:
    assert allocate(10, [100, 100], [3, 2]) == [6, 4]
    assert allocate(10, [2, 100], [3, 2]) == [2, 8], "what a small group cannot take goes to the others"
    assert allocate(3, [100, 1, 0, 1], [100, 1, 1, 1]) == [1, 1, 0, 1], "one each, if that fits"
    assert allocate(1, [5, 5], [1, 1]) == [1, 0] and allocate(99, [2, 3], [1, 1]) == [2, 3]


# ---- the sample


def many() -> list[ReviewItem]:
    pairs = []
    for i in range(400):
        band = (
            "kept"
            if i % 20 == 0
            else "near_kept"
            if i % 20 == 1
            else "near_rejected"
            if i % 20 == 2
            else "rejected"
        )
        kind = ("single", "several")[i % 3 == 0]
        pairs.append(item(i, band=band, kept=band in ("kept", "near_kept"), kind=kind))
    return pairs


def test_sample_is_stratified_and_stable() -> None:
    pairs = many()
    sample = drawn(pairs, 100)
    assert len(sample.items) == 100 == len({i.id for i in sample.items})
    assert sum(s.population for s in sample.strata) == 400
    assert {s.key: s.sampled for s in sample.strata} == dict(Counter(i.stratum for i in sample.items))
    bands = Counter(i.band for i in sample.items)
    assert bands["near_kept"] == bands["near_rejected"] == 20, "5% of the pairs, 20% of the sample"
    assert drawn(list(reversed(pairs)), 100) == sample, "the order of the table does not matter"
    other = drawn(pairs, 100, seed=1)
    assert other.digest != sample.digest and {i.id for i in other.items} != {i.id for i in sample.items}
    assert {i.id for i in drawn(pairs, 50).items} <= {i.id for i in sample.items}, (
        "a smaller one is a part of it"
    )
    assert (
        sample.computed_digest()
        == sample.digest
        == sample.model_copy(update={"run": "moved"}).computed_digest()
    )


def test_bands() -> None:
    assert band_of(True, 0.95, 0.85, 0.1, judged=True) == "near_kept"
    assert band_of(False, 0.75, 0.85, 0.1, judged=True) == "near_rejected"
    assert band_of(True, 0.99, 0.85, 0.1, judged=True) == "kept"
    assert band_of(True, None, 0.85, 0.1, judged=False) == "kept"
    assert band_of(True, 0.2, 0.85, 0.1, judged=False) == "doubted"
    assert band_of(False, 0.2, 0.85, 0.1, judged=True) == "rejected"


@pytest.fixture
def run(tmp_path: Path) -> RunContext:
    return write_fixture_run(fixture_settings(tmp_path))


def test_pairs_of_a_run(run: RunContext) -> None:
    found = read_pairs(run, ("real", "syn"))
    verdicts = read_table(run.paths.core / "verdicts.parquet")
    # The fixture's rejected requests are in no request set: their texts are not known.
    assert found.left_out == {"real": {"text_not_known": 8}, "syn": {}}
    real = [p for p in found.pairs if p.set == "real"]
    assert len(real) == verdicts.height - 8 and sum(p.kept for p in real) == verdicts["kept"].sum()
    assert {p.band for p in real} == {"kept", "rejected"} and {p.retriever for p in real} == {"dense"}
    syn = [p for p in found.pairs if p.set == "syn"]
    assert len(syn) == 112 and {p.kind for p in syn} == {"direct", "troubleshooting", "howto"}
    assert found.threshold == run.settings.labeling.verifier_threshold


def test_pairs_of_an_older_run_and_of_other_cut_offs(run: RunContext) -> None:
    """Tables before 1.2.0 have no retriever; label_stats.json says what the run was decided by."""
    core = run.paths.core
    read_table(core / "verdicts.parquet").drop("retriever").write_parquet(core / "verdicts.parquet")
    stats = read_json(core / "label_stats.json") | {"verifier": {"decides_by": "raw", "threshold": 0.95}}
    write_json(core / "label_stats.json", stats)
    found = read_pairs(run, ("real",))
    assert {p.band for p in found.pairs} == {"near_kept", "rejected"} and found.decides_by == "raw"
    assert {p.score for p in found.pairs} == {0.0, 1.0}


def test_pairs_not_verified_are_counted(run: RunContext) -> None:
    path = run.paths.core / "verdicts.parquet"
    rows = read_table(path).to_dicts()
    rows[0] |= {"stage": "encoder", "verifier_raw": None, "kept": False, "reason": "below_min_cosine"}
    rows[1] |= {"verifier_raw": None, "kept": False, "reason": "unparsable"}
    write_table(path, rows, VerdictRow)
    left = read_pairs(run, ("real",)).left_out["real"]
    assert left["below_min_cosine"] == 1 and left["unparsable"] == 1


def test_nothing_to_draw(run: RunContext) -> None:
    with pytest.raises(UserError, match="no pair to judge"):
        drawn([])
    (run.paths.core / "verdicts.parquet").unlink()
    with pytest.raises(MissingInputError, match=r"verdicts.parquet is not there"):
        read_pairs(run, ("real",))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "not JSON"),
        (b"[]", "it is not an object"),
        (b"\xff", "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"verifier": [1]}', "'verifier' is not an object"),
        (b'{"verifier": {"threshold": "abc"}}', "'verifier.threshold' is not a number"),
        (b'{"verifier": {"decides_by": 3}}', "'verifier.decides_by' is not a text"),
    ],
)
def test_damaged_label_statistics_are_named(run: RunContext, content: bytes, says: str) -> None:
    (run.paths.core / "label_stats.json").write_bytes(content)
    refused = ecoagent("sample", *options(run))
    assert refused.exit_code == 2, refused.output
    with pytest.raises(UserError, match=rf"label_stats\.json is damaged.*{says}.*`ecoagent label --force`"):
        read_pairs(run, ("real",))


@pytest.mark.parametrize(
    ("file", "column"),
    [
        ("verdicts", "kept"),
        ("syn_qrels", "origin"),
        ("real_queries", "text"),
        ("syn_queries", "intent"),
        ("tools", "group_name"),
    ],
)
def test_tables_of_another_schema_are_named(run: RunContext, file: str, column: str) -> None:
    path = run.paths.core / f"{file}.parquet"
    read_table(path).drop(column).write_parquet(path)
    with pytest.raises(UserError, match=rf"{file}\.parquet lacks column '{column}'"):
        read_pairs(run, ("real", "syn"))


# ---- files


def test_judged_files_are_never_lost(tmp_path: Path) -> None:
    first, second = drawn(many(), 20), drawn(many(), 20, seed=1)
    written, notes = write_sample(tmp_path, first)
    assert [p.name for p in written] == [
        "label_studio.json", "label_studio.xml", "review.csv", "review.html", "sample.json",
    ]  # fmt: skip
    assert not notes and load_sample(tmp_path) == first
    assert write_sample(tmp_path, first)[1] == [], "the same sample again is the same files"
    sheet = tmp_path / "review.csv"
    judged = sheet.read_text("utf-8").replace(f"{first.items[0].id},", f"{first.items[0].id},yes", 1)
    sheet.write_text(judged, "utf-8")
    _, notes = write_sample(tmp_path, first)
    assert "left as it is" in notes[0] and sheet.read_text("utf-8") == judged
    with pytest.raises(UserError, match=rf"holds another sample \({first.digest}\).*--force"):
        write_sample(tmp_path, second)
    _, notes = write_sample(tmp_path, second, force=True)
    aside = tmp_path / f"earlier-{first.digest}"
    assert str(aside) in notes[0] and (aside / "review.csv").read_text("utf-8") == judged
    assert load_sample(aside) == first and load_sample(tmp_path) == second
    write_sample(tmp_path, first, force=True)
    write_sample(tmp_path, second, force=True)
    assert (tmp_path / f"earlier-{first.digest}-2").is_dir(), "nor does setting aside overwrite"


def test_what_a_stopped_command_left_is_written_over(tmp_path: Path) -> None:
    first, second = drawn(many(), 20), drawn(many(), 20, seed=1)
    write_sample(tmp_path, first)
    (tmp_path / "sample.json").unlink()
    assert write_sample(tmp_path, second)[1] == [] and load_sample(tmp_path) == second
    (tmp_path / "sample.json").unlink()
    sheet = tmp_path / "review.csv"
    judged = sheet.read_text("utf-8").replace(f"{second.items[0].id},", f"{second.items[0].id},yes", 1)
    sheet.write_text(judged, "utf-8")
    with pytest.raises(UserError, match=r"another sample \(unknown\).*--force"):
        write_sample(tmp_path, second)
    assert sheet.read_text("utf-8") == judged


def test_a_stray_or_damaged_sample_counts_as_another(tmp_path: Path) -> None:
    sample = drawn(many(), 5)
    (tmp_path / "review.csv").write_text("mine", "utf-8")
    with pytest.raises(UserError, match="another sample"):
        write_sample(tmp_path, sample)
    (tmp_path / "sample.json").write_text("{", "utf-8")
    with pytest.raises(UserError, match="not JSON"):
        load_sample(tmp_path)
    write_json(tmp_path / "sample.json", {"version": 9})
    with pytest.raises(UserError, match="version 9"):
        load_sample(tmp_path)
    write_json(tmp_path / "sample.json", sample.model_dump(mode="json") | {"threshold": 0.1})
    with pytest.raises(UserError, match="changed since it was drawn"):
        load_sample(tmp_path)
    write_json(tmp_path / "sample.json", {"version": 1})
    with pytest.raises(UserError, match="Field required"):
        load_sample(tmp_path)


@pytest.mark.parametrize(
    "cell", ["=1+1", "+1", "-1", "@x", "\t=1", " =1", "|x", "\r=1", "\ufeff=1", "plain", "'=1", ""]
)
def test_no_cell_is_a_formula(cell: str) -> None:
    guarded = guard_cell(cell)
    assert not guarded.lstrip(" \ufeff").startswith(("=", "+", "-", "@", "\t", "\r", "|"))
    assert unguard_cell(guarded) == cell or cell.startswith("'")


def test_exports_do_not_tell_the_verdict() -> None:
    sample = drawn(
        [
            item(1, query="=cmd|' /C calc'!A0", tool_operations=["a", "b"]),
            item(2, kept=False, band="rejected"),
        ]
    )
    rows = list(csv.DictReader(io.StringIO(to_csv(sample).removeprefix("\ufeff"))))
    assert [r["id"] for r in rows] == [i.id for i in sample.items]
    assert not {"kept", "score", "band", "cosine"} & set(rows[0])
    assert "'=cmd|' /C calc'!A0" in {r["query"] for r in rows} and {r["judge_kind"] for r in rows} == {""}
    tasks = to_label_studio(sample)
    assert {t["data"]["sample"] for t in tasks} == {sample.digest}
    assert not {"kept", "score", "band"} & set(tasks[0]["data"])
    config = ET.fromstring(label_studio_config())
    shown = {e.get("value", "")[1:] for e in config.iter("Text") if e.get("value", "").startswith("$")}
    assert shown <= set(tasks[0]["data"])
    required = {e.get("name") for e in config.iter("Choices") if e.get("required") == "true"}
    assert required == {"judgement", "judge_kind"}


# ---- the page


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.seen and self.seen[-1][0] == "script":
            self.scripts[-1] += data


def hostile_sample() -> Sample:
    texts = {"query": HOSTILE, "tool_name": HOSTILE, "tool_description": HOSTILE, "tool_group": HOSTILE}
    lists = {"tool_operations": [HOSTILE], "tool_parameters": [HOSTILE]}
    pairs = [item(i, **texts, **lists, tool_id=HOSTILE) for i in range(6)]
    return draw_sample(
        pairs, 6, seed=0, run=HOSTILE, labels={"real": "x"}, decides_by="raw", threshold=0.85, margin=0.1
    )


def test_page_stands_alone_and_holds_texts_as_data() -> None:
    sample = hostile_sample()
    page = render_page(sample)
    assert render_page(sample) == page
    elements = _Elements()
    elements.feed(page)
    tags = [t for t, _ in elements.seen]
    assert tags.count("script") == 2 and not {"img", "iframe", "object", "link", "base", "form"} & set(tags)
    assert not any(k in a for _, a in elements.seen for k in ("src", "href", "style")), "nothing is fetched"
    assert not any(k.startswith("on") for _, a in elements.seen for k in a), "no handler in the markup"
    assert not re.search(r"https?://|url\(|@import", page.replace(json.dumps(HOSTILE), ""))
    data = json.loads(elements.scripts[0])
    assert data["items"][0]["query"] == HOSTILE and data["run"] == HOSTILE
    assert not {"band", "kind", "retriever", "cosine", "query_id"} & set(data["items"][0])
    policy = next(a["content"] or "" for t, a in elements.seen if t == "meta" and a.get("http-equiv"))
    assert "default-src 'none'" in policy and "script-src 'sha256-" in policy and "unsafe" not in policy
    script = elements.scripts[1]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|fetch\(|XMLHttp", script)
    labelled = {a.get("for") for t, a in elements.seen if t == "label"}
    assert {"progress", "note"} <= labelled and ("p", "status") in {
        (t, a.get("role")) for t, a in elements.seen
    }
    assert "prefers-color-scheme: dark" in page


def text_of(page: chromium.Page, identifier: str) -> Any:
    return page.run(f"document.getElementById({identifier!r}).textContent")


@pytest.mark.skipif(chromium.PROGRAM is None, reason="needs a Chromium")
def test_page_in_a_browser(tmp_path: Path) -> None:
    """Real keys in a real browser: required fields, judging, undo, resuming, download, hostile texts."""
    sample = hostile_sample()
    folder, downloads = tmp_path / "files", tmp_path / "downloads"
    write_sample(folder, sample)
    downloads.mkdir()
    with chromium.browser(tmp_path) as page:
        address = (folder / "review.html").as_uri()
        page.open(address, downloads)
        page.press("y")
        page.click("#start")
        assert "Give a name" in text_of(page, "message") and page.run(
            "document.getElementById('work').hidden"
        )
        page.click("#name")
        page.type("  Ann   Example ")
        page.press("Enter")
        assert "person or a model" in text_of(page, "message"), "the kind has no default"
        page.click("input[value=human]")
        page.click("#start")
        assert text_of(page, "query") == HOSTILE and text_of(page, "tool-name") == HOSTILE
        page.press("e")
        assert text_of(page, "message") == "Nothing is judged yet."
        assert page.run("document.getElementById('verdict').hidden"), "the verdict is hidden by default"
        for key in ("y", "N", "u"):
            page.press(key)
        assert text_of(page, "counts") == "3 of 6 judged" and text_of(page, "place") == "4 of 6"
        page.press("z")
        assert text_of(page, "counts") == "2 of 6 judged" and text_of(page, "place") == "3 of 6"
        page.press("m")
        page.type("y n u")
        page.press("Escape")
        page.press("s")
        page.press("ArrowLeft")
        assert page.run("document.getElementById('note').value") == "y n u", "letters of a note judge nothing"
        page.click("#show")
        assert "kept" in text_of(page, "verdict")
        page.press("n")
        page.press("y", modifiers=2)
        assert text_of(page, "counts") == "3 of 6 judged", "Ctrl+Y is not y"
        page.load(address + "?again")
        assert page.run("document.getElementById('name').value") == "Ann Example"
        page.click("#start")
        assert text_of(page, "counts") == "3 of 6 judged" and text_of(page, "place") == "4 of 6"
        page.press("o")
        page.press("e")
        end = time.monotonic() + 20
        while not (found := list(downloads.glob("*.json"))) and time.monotonic() < end:
            time.sleep(0.05)
        page.click("#other")
        page.click("#name")
        page.type("Bob")
        page.click("input[value=model]")
        page.click("#start")
        assert text_of(page, "counts") == "0 of 6 judged", "another judge starts anew"
        assert page.run("window.pwned") is None and page.run("document.images.length") == 0
        urls = [
            e["params"]["request"]["url"] for e in page.events if e["method"] == "Network.requestWillBeSent"
        ]
        assert urls and all(u.startswith(("file:", "blob:")) for u in urls), "nothing is fetched"
        faults = [e for e in page.events if e["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")]
        assert not faults, faults
    assert [p.name for p in found] == [f"judgements-{sample.digest}-human-ann-example.json"]
    (read,) = read_judgements(found, sample)
    assert [j.answer for j in read.judgements] == ["yes", "no", "no"] and read.kind == "human"
    assert {j.judge for j in read.judgements} == {"Ann Example"} and read.judgements[2].note == "y n u"
    assert [j.saw_verdict for j in read.judgements] == [False, False, True]


# ---- reading judgements


@pytest.fixture
def sample() -> Sample:
    return drawn(many(), 30)


def sheet(sample: Sample, filled: dict[int, tuple[str, ...]], delimiter: str = ",") -> str:
    """The CSV with some rows filled in: judgement, note, judge, judge_kind."""
    rows = list(csv.reader(io.StringIO(to_csv(sample).removeprefix("\ufeff"))))
    for place, cells in filled.items():
        rows[place + 1][2 : 2 + len(cells)] = cells
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows(rows)
    return "\ufeff" + out.getvalue()


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_filled_csv(sample: Sample, tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / "ann.csv"
    filled = {0: ("Y", "'=why", "Ann", "Human"), 4: ("unsure", "", "Ann", "human")}
    path.write_text(sheet(sample, filled, delimiter), "utf-8")
    (read,) = read_judgements([path], sample)
    assert [(j.item, j.answer, j.note, j.row) for j in read.judgements] == [
        (sample.items[0].id, "yes", "=why", 2),
        (sample.items[4].id, "unsure", "", 6),
    ]
    assert read.left == 28 and read.kind == "human" and read.format == "csv"


def studio(sample: Sample, place: int, **values: str) -> dict[str, Any]:
    result = [
        {
            "from_name": k,
            "to_name": "query",
            "value": {"text": [v]} if k in ("note", "judge") else {"choices": [v]},
        }
        for k, v in values.items()
    ]
    task = to_label_studio(sample)[place]
    return {
        "id": place,
        **task,
        "annotations": [{"completed_by": {"id": 7, "email": "a@b.example"}, "result": result}],
    }


def test_label_studio_exports(sample: Sample, tmp_path: Path) -> None:
    full = [
        studio(sample, 0, judgement="yes", judge_kind="human", note="n"),
        studio(sample, 1, judgement="no", judge_kind="human") | {"predictions": [{"result": []}]},
        studio(sample, 2),
        {
            **studio(sample, 3, judgement="no", judge_kind="human"),
            "annotations": [{"was_cancelled": True, "result": []}],
        },
    ]
    path = write_json(tmp_path / "ls.json", full)
    (read,) = read_judgements([path], sample)
    assert [(j.answer, j.judge, j.note) for j in read.judgements] == [
        ("yes", "annotator 7", "n"),
        ("no", "annotator 7", ""),
    ]
    assert (read.left, read.predictions) == (2, 1), "skipped tasks are not judged, predictions are nobody's"
    flat = [
        {
            **to_label_studio(sample)[0]["data"],
            "judgement": "yes",
            "judge_kind": "model",
            "judge": ["M"],
            "annotator": 1,
        },
        {**to_label_studio(sample)[1]["data"], "annotator": 1},
    ]
    (read,) = read_judgements([write_json(tmp_path / "min.json", flat)], sample)
    assert [(j.judge, j.kind) for j in read.judgements] == [("M", "model")] and read.left == 1


def faulty(sample: Sample, what: str) -> str:
    """Text of a file with one fault."""
    first, second = sample.items[0].id, sample.items[1].id
    row = {"id": first, "judgement": "yes", "judge": "Ann", "judge_kind": "human"}
    head = {"format": "ecoagent-review-1", "sample": sample.digest, "judge": "Ann", "judge_kind": "human"}
    page = {
        "kind absent": {k: v for k, v in head.items() if k != "judge_kind"}
        | {"judgements": [{k: v for k, v in row.items() if k != "judge_kind"}]},
        "kind unknown": head | {"judge_kind": "robot", "judgements": [row | {"judge_kind": "robot"}]},
        "kind changed": head | {"judgements": [row, row | {"id": second, "judge_kind": "model"}]},
        "no judge": head | {"judge": " ", "judgements": [row | {"judge": " "}]},
        "long judge": head | {"judge": "x" * 99, "judgements": [row | {"judge": "x" * 99}]},
        "other sample": head | {"sample": "s-0", "judgements": [row]},
        "unknown id": head | {"judgements": [row, row | {"id": "r-0"}]},
        "odd id": head | {"judgements": [row | {"id": [1]}]},
        "odd answer": head | {"judgements": [row | {"judgement": "perhaps"}]},
        "odd flag": head | {"judgements": [row | {"saw_verdict": "no"}]},
        "twice": head | {"judgements": [row, row]},
        "conflict": head | {"judgements": [row, row | {"judgement": "no"}]},
        "no row": head | {"judgements": [3]},
        "none": head | {"judgements": []},
        "other json": {"hello": 1},
    }
    if what in page:
        return json.dumps(page[what])
    return {
        "empty": " \n",
        "bom": "\ufeff",
        "broken": "{",
        "no column": "id,judgement\n1,yes\n",
        "untouched csv": sheet(sample, {}),
        "csv without kind": sheet(sample, {3: ("yes", "", "Ann", "")}),
        "csv mixed": sheet(sample, {0: ("yes", "", "Ann", "human"), 1: ("no", "", "Bot", "model")}),
        "csv of another run": sheet(sample, {0: ("yes", "", "Ann", "human")}).replace(sample.digest, "s-1"),
        "studio without kind": json.dumps([studio(sample, 0, judgement="yes")]),
        "studio mixed": json.dumps(
            [studio(sample, i, judgement="yes", judge_kind=k) for i, k in enumerate(("human", "model"))]
        ),
        "studio predictions only": json.dumps([{"data": {}, "predictions": [{}]}]),
        "studio odd": json.dumps([{"data": 3}]),
        "studio row": json.dumps([3]),
        "studio predictions": json.dumps([{"data": {}, "predictions": 5}]),
        "studio annotation": json.dumps([{"data": {}, "annotations": [3]}]),
    }[what]


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("kind absent", "f row 1: judge_kind is missing"),
        ("kind unknown", "f row 1: judge_kind 'robot' is not known"),
        ("kind changed", "f row 2: judge_kind is 'model', but the file says 'human'"),
        ("no judge", "f row 1: the judge's name is missing"),
        ("long judge", "f row 1: judge 'x{20}'… is no name"),
        ("other sample", "f row 1: judged for sample 's-0'"),
        ("unknown id", "f row 2: no pair 'r-0'"),
        ("odd id", "f row 1: no pair"),
        ("odd answer", "f row 1: judgement 'perhaps' is not known"),
        ("odd flag", "f row 1: saw_verdict is 'no'"),
        ("twice", r"f row 2: 'Ann' judged r-\w+ before, in f row 1 \(the same\)"),
        ("conflict", r"in f row 1 \(first yes, then no\)"),
        ("no row", "f row 1: not an object"),
        ("none", "holds no judgement"),
        ("other json", "no export of the review page"),
        ("empty", "f is empty"),
        ("bom", "has no column"),
        ("broken", "f is not JSON"),
        ("no column", "f has no column 'sample'"),
        ("untouched csv", "holds no judgement"),
        ("csv without kind", "f row 5: judge_kind is missing"),
        ("csv mixed", "f row 3: judge_kind is 'model', but 'human' in row 2"),
        ("csv of another run", "f row 2: judged for sample 's-1'"),
        ("studio without kind", "f row 1: judge_kind is missing"),
        ("studio mixed", "f row 2: judge_kind is 'model', but 'human' in row 1"),
        ("studio predictions only", "1 predictions, which say not who judged"),
        ("studio odd", "f row 1: not a task with data"),
        ("studio row", "f row 1: not a task"),
        ("studio predictions", "f row 1: 'predictions' is not a list"),
        ("studio annotation", "f row 1: not an annotation"),
    ],
)
def test_faulty_files_are_refused(sample: Sample, tmp_path: Path, what: str, says: str) -> None:
    path = tmp_path / "f"
    path.write_text(faulty(sample, what), "utf-8")
    with pytest.raises(UserError, match=says):
        read_judgements([path], sample)


def test_faults_between_files(sample: Sample, tmp_path: Path) -> None:
    one = sample.items[0].id
    first = export(tmp_path, sample, {one: "yes"})
    with pytest.raises(
        UserError, match=r"Ann-model.json row 1: judge 'ann' is model, but human in Ann-human.json row 1"
    ):
        model = write_json(
            tmp_path / "Ann-model.json", read_json(export(tmp_path, sample, {one: "yes"}, "ann", "model"))
        )
        read_judgements([first, model], sample)
    with pytest.raises(UserError, match="judged r-"):
        read_judgements([first, first], sample)
    with pytest.raises(UserError, match=r"nowhere.json does not exist"):
        read_judgements([tmp_path / "nowhere.json"], sample)
    latin = tmp_path / "latin.csv"
    latin.write_bytes(b"sample,id\nx,\xe9\n")
    with pytest.raises(UserError, match=r"latin.csv line 2: not UTF-8"):
        read_judgements([latin], sample)


# ---- scores


def worked() -> tuple[Sample, dict[str, str]]:
    """10 kept pairs of which 2 are drawn, 90 rejected of which 3; judged yes, no / no, no, yes."""
    pairs = [item(i) for i in range(2)] + [
        item(i, kept=False, band="rejected", score=0.1) for i in range(10, 13)
    ]
    sample = drawn(pairs)
    strata = [s.model_copy(update={"population": 10 if s.band == "kept" else 90}) for s in sample.strata]
    answers = dict(zip([p.id for p in pairs], ("yes", "no", "no", "no", "yes"), strict=True))
    return sample.model_copy(update={"strata": strata}), answers


def test_scores_by_hand(tmp_path: Path) -> None:
    """Weights 5, 5, 30, 30, 30 of 100."""
    sample, answers = worked()
    report = score(sample, read_judgements([export(tmp_path, sample, answers)], sample))
    (part,) = report.headlines[0].sets
    rates = part.rates
    assert (rates.population, rates.judged, rates.decided, rates.right) == (100, 5, 5, 2)
    assert rates.agreement.share == 0.65 and rates.agreement.pairs == 5
    low, high = wilson(0.65, 10000 / 2750)
    assert (rates.agreement.low, rates.agreement.high) == (round(low, 4), round(high, 4))
    assert rates.false_discovery.share == 0.5 and rates.false_omission.share == 0.3333
    assert rates.false_positive.share == 0.0769, "5 of 65"
    assert rates.false_negative.share == 0.8571, "30 of 35"
    assert rates.kappa == 0.0789, "chance 0.1 x 0.35 + 0.9 x 0.65 = 0.62; (0.65 - 0.62) / 0.38"
    assert part.sample_agreement.share == 0.6 and part.sample_kappa == 0.1667, "chance 0.52; 0.08 / 0.48"
    assert part.covered == 1
    group = {(g.by, g.name): g.rates for g in part.groups}
    kept = group["stratum", "kept | single | dense"]
    assert kept.false_discovery.share == 0.5 and kept.false_positive.share is None and kept.kappa is None
    assert (kept.false_discovery.low, kept.false_discovery.high) == tuple(round(x, 4) for x in wilson(0.5, 2))
    assert [(d.answer, d.kept) for d in report.disagreements].count(("no", True)) == 1
    assert len(report.disagreements) == 2


def test_partial_and_unsure(tmp_path: Path) -> None:
    sample, answers = worked()
    ids = list(answers)
    given = {ids[0]: "yes", ids[1]: "unsure"}
    report = score(sample, read_judgements([export(tmp_path, sample, given)], sample))
    (part,) = report.headlines[0].sets
    assert part.covered == 0.1 and part.rates.unsure.share == 0.5 and part.rates.decided == 1
    assert part.rates.false_omission.share is None and part.rates.false_negative.share is None
    assert report.judges[0].not_judged == 3 and report.judges[0].unsure == 1
    unsure = score(sample, read_judgements([export(tmp_path, sample, {ids[0]: "unsure"})], sample))
    assert unsure.headlines[0].sets[0].rates.agreement.share is None


def test_a_stratum_without_judgement_is_stood_for_by_its_band() -> None:
    pairs = [item(1), item(2, kind="several"), item(3, kind="none", kept=False, band="rejected")]
    sample = drawn(pairs)
    strata = [
        s.model_copy(update={"population": {"single": 30, "several": 10, "none": 60}[s.kind]})
        for s in sample.strata
    ]
    weights = stratum_weights(sample.items, strata, {pairs[0].id: "yes", pairs[2].id: "no"})
    assert weights == {pairs[0].id: pytest.approx(40), pairs[2].id: pytest.approx(60)}


def test_people_and_models_never_mix(tmp_path: Path) -> None:
    sample, answers = worked()
    ids = list(answers)
    other = answers | {ids[0]: "no", ids[4]: "unsure"}
    files = [
        export(tmp_path, sample, answers, "Ann"),
        export(tmp_path, sample, other, "Bob"),
        export(tmp_path, sample, dict.fromkeys(ids, "yes"), "Bot", "model"),
    ]
    report = score(sample, read_judgements(files, sample))
    assert [(h.kind, h.judges) for h in report.headlines] == [("human", ["Ann", "Bob"]), ("model", ["Bot"])]
    human, model = report.headlines
    assert human.split == 1 and human.sets[0].rates.unsure.share == 0.2, "Ann says yes, Bob no"
    assert human.sets[0].rates.decided == 4 and model.sets[0].rates.right == 5
    assert [(j.judge, j.kind) for j in report.judges] == [
        ("Ann", "human"),
        ("Bob", "human"),
        ("Bot", "model"),
    ]
    assert [(b.first, b.second, b.pairs) for b in report.between] == [
        ("Ann", "Bob", 4),
        ("Ann", "Bot", 5),
        ("Bob", "Bot", 4),
    ]
    # yes no no no against no no no no: agreed 3 of 4, which is what chance gives: kappa 0.
    assert report.between[0].agreement.share == 0.75 and report.between[0].kappa == 0
    assert {row["judged by"] for row in report.rows()} == {"human", "model"}
    assert type(report).model_validate_json(json.dumps(report.to_json())) == report


def test_majority() -> None:
    assert majority(Counter(yes=2, no=1)) == "yes" and majority(Counter(no=1, unsure=5)) == "no"
    assert majority(Counter(yes=1, no=1)) == "unsure" and majority(Counter(unsure=1)) == "unsure"


def test_syn_has_no_rates_among_the_rejected(tmp_path: Path) -> None:
    pairs = [item(i, set="syn", retriever="generated", kind="direct") for i in range(4)]
    sample = drawn(pairs)
    answers = dict(zip([p.id for p in pairs], ("yes", "yes", "no", "yes"), strict=True))
    (part,) = score(sample, read_judgements([export(tmp_path, sample, answers)], sample)).headlines[0].sets
    assert part.set == "syn" and part.rates.false_discovery.share == 0.25
    assert part.rates.false_positive.share is None and part.rates.kappa is None and part.sample_kappa is None


# ---- command and card


def ecoagent(*arguments: str) -> Result:
    app = typer.Typer()
    app.add_typer(review_app, name="review")
    return CliRunner().invoke(app, ["review", *arguments])


def options(run: RunContext) -> list[str]:
    return ["--run", run.settings.run_name, "--set", f"outputs={run.settings.outputs}"]


def test_command_from_sample_to_card(run: RunContext, tmp_path: Path) -> None:
    planned = ecoagent("sample", "--n", "40", "--dry-run", "--json", *options(run))
    assert planned.exit_code == 0 and not (run.paths.root / "review").exists()
    made = ecoagent("sample", "--n", "40", *options(run))
    assert made.exit_code == 0, made.output
    sample = load_sample(run.paths.root / "review")
    assert sample.digest == json.loads(planned.stdout)["digest"] and len(sample.items) == 40
    assert {i.set for i in sample.items} == {"real", "syn"}
    again = ecoagent("sample", "--n", "41", *options(run))
    assert again.exit_code == 2 and "another sample" in again.output
    answers = {i.id: "yes" if i.kept else "no" for i in sample.items}
    model = export(tmp_path, sample, answers, "Bot [1](x)", "model", run="elsewhere")
    scored = ecoagent("score", str(model), *options(run))
    assert scored.exit_code == 0, scored.output
    assert "no person judged any pair" in scored.output and "human" not in scored.stdout
    review = load_review(run.paths.out)
    assert review is not None and review.headlines[0].kind == "model"
    other = ecoagent(
        "score", str(export(tmp_path, sample, answers, "Bot 2", "model")), "--dry-run", *options(run)
    )
    assert "also counted Bot [1](x)" in other.output and load_review(run.paths.out) == review
    tables = load_tables(run.paths.core)
    selection = select(tables, "publish")
    audit = {
        "passed": True,
        "counts": {"checks": 3, "expectations": 4, "failed_critical": 0, "failed_warning": 0},
        "checks": [],
    }

    def card(found: Any) -> str:
        text = render_card(tables, selection, [], run.settings, audit, found)
        return text.split("### Review of the labels", 1)[1].split("## Columns", 1)[0]

    assert split_frames(selection)
    shown = card(review)
    assert "**No person judged these labels" in shown and "| human" not in shown
    assert r"| model: Bot \[1\]\(x\) | real |" in shown and "100.0% (" in shown
    human = review.model_copy(
        update={"headlines": [h.model_copy(update={"kind": "human"}) for h in review.headlines]}
    )
    assert "No person" not in card(human)
    assert "have not been reviewed" in card(None)
    stale = review.model_copy(update={"labels": {"real": "0"}})
    assert "other labels than these" in card(stale) and "Bot" not in card(stale)


def test_the_next_command_is_told(run: RunContext, tmp_path: Path) -> None:
    folder = tmp_path / "to judge"
    made = ecoagent("sample", "--n", "10", "--out", str(folder), *options(run))
    assert made.exit_code == 0, made.output
    (line,) = [part for part in made.output.splitlines() if "when judged" in part]
    words = shlex.split(line.partition("when judged: ")[2])
    assert words[:4] == ["ecoagent", "review", "score", "FILE"] and words[4:6] == options(run)[:2]
    sample = load_sample(folder)
    judged = export(tmp_path, sample, {sample.items[0].id: "yes"})
    assert ecoagent("score", str(judged), *words[4:]).exit_code == 0
    assert "when judged" not in ecoagent("sample", "--n", "10", "--dry-run", *options(run)).output


def test_a_sample_too_small_for_its_strata_says_so(run: RunContext) -> None:
    small = ecoagent("sample", "--n", "2", "--dry-run", *options(run))
    found = re.search(r"(\d+) of (\d+) strata have no pair in the sample; --n (\d+) is", small.output)
    assert found is not None and int(found[2]) - int(found[1]) == 2
    enough = int(found[3])
    assert (
        "strata have no pair" in ecoagent("sample", "--n", str(enough - 1), "--dry-run", *options(run)).output
    )
    assert "strata have no pair" not in ecoagent("sample", "--n", found[3], "--dry-run", *options(run)).output


@pytest.mark.parametrize("below", ["", "x", "x/y"])
def test_a_file_where_a_folder_is_meant(run: RunContext, tmp_path: Path, below: str) -> None:
    (tmp_path / "README.md").write_text("mine")
    out = tmp_path / "README.md" / below
    refused = ecoagent("sample", "--n", "5", "--out", str(out), *options(run))
    assert refused.exit_code == 2, refused.output
    assert "cannot read or write" in refused.output and "another folder with --out" in refused.output
    assert "outputs=DIR" not in refused.output and (tmp_path / "README.md").read_text() == "mine"


def test_score_refuses_labels_made_anew(run: RunContext, tmp_path: Path) -> None:
    missing = ecoagent("score", "x.json", *options(run))
    assert missing.exit_code == 2 and "sample.json is not there" in missing.output.replace("\n", "")
    assert ecoagent("sample", "--n", "10", "--data", "real", *options(run)).exit_code == 0
    sample = load_sample(run.paths.root / "review")
    path = run.paths.core / "verdicts.parquet"
    flipped = read_table(path).with_columns(kept=~pl.col("kept"))
    write_table(path, flipped, VerdictRow)
    judged = export(tmp_path, sample, {sample.items[0].id: "yes"})
    refused = ecoagent("score", str(judged), *options(run))
    assert refused.exit_code == 2 and "other labels of real" in refused.output
    assert load_review(run.paths.out) is None


def test_sets_that_are_not_there(run: RunContext) -> None:
    wrong = ecoagent("sample", "--data", "rael", *options(run))
    assert wrong.exit_code == 2 and "did you mean 'real'" in wrong.output
    (run.paths.core / "verdicts.parquet").unlink()
    half = ecoagent("sample", "--n", "5", "--json", *options(run))
    assert half.exit_code == 0 and "no real labels" in half.output
    (run.paths.core / "syn_qrels.parquet").unlink()
    none = ecoagent("sample", *options(run))
    assert none.exit_code == 2 and "has no labels yet" in none.output


def test_damaged_review_file(run: RunContext) -> None:
    write_json(run.paths.out / "results" / "review.json", {"version": 7})
    with pytest.raises(UserError, match="no scored review of this release"):
        load_review(run.paths.out)
    assert person("a|b\n*c* <i>") == "a/b \\*c\\* &lt;i>"
