"""``evaluate --benchmark``: independent collections end to end, with a tiny random encoder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ecoagent.cli.app import app
from ecoagent.cli.evaluating import load_benchmarks
from ecoagent.evaluation import benchmark_stage as stages
from ecoagent.evaluation.benchmarks import NO_GOLD, OTHER_GOLD, REPEATED, UNKNOWN_GOLD, make_benchmark
from ecoagent.evaluation.offline import JudgedSplit, NotRun, load_run, offline_row
from ecoagent.evaluation.toolret import load_hub_collections, read_labels
from ecoagent.metrics import TOOLRET_METRICS, evaluate_run
from ecoagent.report.benchmarked import benchmark_section
from ecoagent.report.render import _template
from ecoagent.retrieval import RankedRun, load_encoder, rank_dense
from ecoagent.retrieval.collections import (
    CollectionQuery,
    CollectionTool,
    TestCollection,
    collection_at,
    collection_names,
)
from ecoagent.retrieval.stored import store_size
from ecoagent.runs import read_json
from ecoagent.settings import UserError, load_settings
from tests.unit.tiny_bert import write_tiny_bert

RANKERS = '["tfidf", "bm25", "encoder"]'
TOOLS = [
    {
        "tool_id": "hotel",
        "name": "Hotel search",
        "description": "Finds a bed in a city",
        "category": "Travel",
    },
    {
        "tool_id": "hotel2",
        "name": "hotel  search",
        "description": "Finds a bed in a city",
        "category": "Other",
    },
    {"tool_id": "song", "name": "Song list", "description": "Lists songs", "category": "Music"},
    {"tool_id": "bank", "name": "Bank", "description": "Sends money", "category": ""},
]
QUERIES = [
    {"query_id": "q1", "query": "a bed for tonight in a city", "group": "a", "gold": ["hotel"]},
    {"query_id": "q2", "query": "which songs are there", "group": "a", "gold": ["song"]},
    {"query_id": "q3", "query": "nothing fits this one", "group": "b", "gold": []},
    {"query_id": "q4", "query": "money for a song", "group": "b", "gold": ["bank", "song"]},
]


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_set(folder: Path, name: str, queries: list[dict[str, Any]] | None = None) -> Path:
    write_lines(folder / f"{name}_tools.jsonl", TOOLS)
    write_lines(folder / f"{name}_queries.jsonl", QUERIES if queries is None else queries)
    return folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_bert(tmp_path_factory.mktemp("tiny") / "model", ["bed song money"])


def options(outputs: Path, tiny: Path, rankers: str = RANKERS) -> list[str]:
    pairs = {
        "outputs": f"{outputs}",
        "evaluate.rankers": rankers,
        "models.local": f'{{tiny = "{tiny}"}}',
        "train.query_encoder": "tiny",
        "train.tool_encoder": "tiny",
    }
    return ["--profile", "local", *(p for k, v in pairs.items() for p in ("--set", f"{k}={v}"))]


def call(*words: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["evaluate", *words])
    assert result.exit_code == code, result.output
    return result


def results(outputs: Path) -> dict[str, Any]:
    found: dict[str, Any] = read_json(outputs / "runs" / "local" / "out" / "results" / "benchmarks.json")
    return found


def test_a_set_is_judged_end_to_end(tiny: Path, tmp_path: Path) -> None:
    sets, outputs = write_set(tmp_path / "sets", "restbench"), tmp_path / "outputs"
    shown = json.loads(call("--benchmark", f"{sets}/restbench", "--json", *options(outputs, tiny)).stdout)
    content = results(outputs)
    assert shown["rows"] == content["rows"] and [r["ranker"] for r in shown["rows"]] == json.loads(RANKERS)
    [facts] = content["sets"]
    assert facts["licence"] == "MIT" and facts["origin"] == "Yifan-Song793/RestGPT"
    assert facts["queries"] == 3 and facts["tools"] == 4 and facts["duplicate_tools"] == 1
    assert facts["left_out"] == {NO_GOLD: 1} and (facts["labelled_golds"], facts["golds"]) == (4, 5)
    assert [r["status"] for r in content["rows"]] == ["run"] * 3
    # The same figures as ranking and judging by hand.
    benchmark = make_benchmark(collection_at(f"{sets}/restbench"))
    encoder = load_encoder(tiny, name="tiny", pooling=None, max_length=64)
    run = rank_dense(encoder, benchmark.texts("query", dense=True), benchmark.tools, 100)
    expected = evaluate_run(run, benchmark.golds)
    row = content["rows"][2]
    assert row["metrics"] == {name: round(value, 6) for name, value in expected.means().items()}
    low, high = row["intervals"]["MRR"]
    assert (low, high) == pytest.approx(expected.intervals(seed=0)["MRR"], abs=1e-6)
    assert row["label"] == "tiny (untrained, in DRAGON's role)" and row["set"] == "restbench"
    bm25 = content["rows"][1]["metrics"]
    assert bm25["Hit@1"] == 1 and bm25["Recall@5"] > 0.6
    out = outputs / "runs" / "local" / "out"
    assert {p.name for p in (out / "benchmarks" / "restbench").iterdir()} == {
        "test.qrels", "test.tfidf.run", "test.bm25.run", "test.encoder.run",
    }  # fmt: skip
    assert "q:q1 0 t:hotel2 1" in (out / "benchmarks" / "restbench" / "test.qrels").read_text()
    lines = (out / "results" / "benchmarks.csv").read_text().splitlines()
    assert len(lines) == 4 and lines[0].startswith("set,licence,ranker,label,model,asked,queries,golds,MRR")
    assert lines[1].startswith("restbench,MIT,tfidf,TF-IDF")
    section = benchmark_section(content)
    assert section is not None and section.sets[0].best["Hit@5"] == 1


def test_nothing_is_done_twice_and_other_sets_stay(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets, outputs = write_set(tmp_path / "sets", "one"), tmp_path / "outputs"
    write_set(sets, "two", QUERIES[:2])
    common = options(outputs, tiny)
    with_names = call("--benchmark", str(sets), *common, code=2)
    assert "several collections; it has one, two" in with_names.output
    call("--benchmark", str(sets), "--collection", "one", *common)
    before = results(outputs)
    planned = json.loads(call("--benchmark", f"{sets}/one", "--dry-run", "--json", *common).stdout)
    assert planned == {"one": {"state": "up to date"}}
    again = call("--benchmark", f"{sets}/one", *common)
    assert "benchmark-one: up to date" in again.output
    # Its tools are those of the other set: their vectors are there, and only queries are looked up.
    monkeypatch.setattr("ecoagent.retrieval.resources.load_encoder", None)
    planned = json.loads(
        call("--benchmark", str(sets), "--collection", "all", "--dry-run", "--json", *common).stdout
    )
    assert planned["two"]["texts to encode at most"] == 6 and planned["two"]["rankings"] == 3
    monkeypatch.undo()
    call("--benchmark", f"{sets}/two", *common)
    after = results(outputs)
    assert [f["set"] for f in after["sets"]] == ["one", "two"] and after["rows"][:3] == before["rows"]
    # Without the collections' files the table is what it was; with another encoder its rows go.
    other = write_tiny_bert(tmp_path / "other", seed=1)
    changed = call("--benchmark", f"{sets}/two", *options(outputs, other))
    assert "one: 1 rows are of other weights or settings and are left out" in changed.output
    assert [(r["set"], r["ranker"]) for r in results(outputs)["rows"]] == [
        ("one", "tfidf"), ("one", "bm25"), ("two", "tfidf"), ("two", "bm25"), ("two", "encoder"),
    ]  # fmt: skip


def test_equal_calls_write_equal_bytes(tiny: Path, tmp_path: Path) -> None:
    sets = write_set(tmp_path / "sets", "one")
    for name in ("a", "b"):
        call("--benchmark", f"{sets}/one", *options(tmp_path / name, tiny))
    first, second = (tmp_path / name / "runs" / "local" / "out" for name in ("a", "b"))
    files = sorted(p.relative_to(first) for p in first.rglob("*") if p.is_file())
    assert len(files) == 7
    assert all((first / f).read_bytes() == (second / f).read_bytes() for f in files)


KILLED = """
import os, signal, sys
from ecoagent.cli.app import app
from ecoagent.retrieval import encoders
encode = encoders.SentenceEncoder.encode_queries
def dies(self, *words):
    os.kill(os.getpid(), signal.SIGKILL)
encoders.SentenceEncoder.encode_queries = dies
app(sys.argv[1:])
"""


def test_a_killed_command_goes_on_where_it_was(tiny: Path, tmp_path: Path) -> None:
    sets, outputs = write_set(tmp_path / "sets", "one"), tmp_path / "outputs"
    words = ["evaluate", "--benchmark", f"{sets}/one", *options(outputs, tiny)]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *words], env={**os.environ}, capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    root = outputs / "runs" / "local"
    kept = {
        p.name: (p / "run.parquet").stat().st_mtime_ns for p in (root / "raw" / "benchmark-one").glob("[!.]*")
    }
    assert set(kept) == {"tfidf", "bm25"}
    assert store_size(outputs / "store" / "encodings").vectors == len(TOOLS)  # encoded before
    again = call(*words[1:])
    assert "2 of 3 shards kept from before" in again.output and "one: ranking 3 of 3, encoder" in again.output
    assert {n: (root / "raw" / "benchmark-one" / n / "run.parquet").stat().st_mtime_ns for n in kept} == kept
    clean = tmp_path / "clean"
    call("--benchmark", f"{sets}/one", *options(clean, tiny))
    assert results(clean) == results(outputs)


def test_damage_is_told_or_mended(tiny: Path, tmp_path: Path) -> None:
    sets, outputs = write_set(tmp_path / "sets", "one"), tmp_path / "outputs"
    common = options(outputs, tiny)
    call("--benchmark", f"{sets}/one", *common)
    whole = results(outputs)
    root = outputs / "runs" / "local"
    (root / "raw" / "benchmark-one" / "bm25" / "run.parquet").write_bytes(b"cut")
    (root / "out" / "results" / "benchmarks" / "one.json").write_text("{")
    stored = sorted((outputs / "store" / "encodings").glob("*.sqlite"))
    assert stored
    for path in stored:
        path.write_bytes(path.read_bytes()[:-4096])
    call("--benchmark", f"{sets}/one", *common)
    assert results(outputs) == whole
    write_set(sets, "two")
    (root / "out" / "results" / "benchmarks" / "one.json").write_text("{")
    failed = call("--benchmark", f"{sets}/two", *common, code=2)
    assert "one.json is damaged: not JSON" in failed.output and "judge the set again" in failed.output
    write_lines(sets / "two_queries.jsonl", [{"query_id": "q", "query": "a bed", "gold": ["nowhere"]}])
    failed = call("--benchmark", f"{sets}/two", *common, code=2)
    assert "two_queries.jsonl row 1: gold 'nowhere' is not among the tools" in failed.output
    write_set(sets, "two", QUERIES[2:3])
    assert "two: no query has gold" in call("--benchmark", f"{sets}/two", *common, code=2).output
    assert "give --benchmark DIR" in call("--collection", "one", *common, code=2).output
    assert "two collections are called 'one'" in call(
        "--benchmark", f"{sets}/one", "--benchmark", f"{sets}/one", *common, code=2
    ).output  # fmt: skip


def test_what_cannot_be_run_says_why_and_is_tried_again(tiny: Path, tmp_path: Path) -> None:
    sets, outputs = write_set(tmp_path / "sets", "one"), tmp_path / "outputs"
    failed = call("--benchmark", f"{sets}/one", *options(outputs, tiny, '["rated", "bm25"]'), code=2)
    assert "run 'local' has no trained towers" in failed.output and "ecoagent train" in failed.output
    assert not (outputs / "runs" / "local" / "raw").exists()
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "vocab.txt").write_text("x")
    call("--benchmark", f"{sets}/one", *options(outputs, broken))
    row = results(outputs)["rows"][2]
    assert (row["ranker"], row["status"], row["metrics"], row["intervals"]) == ("encoder", "not run", {}, {})
    assert "holds no sentence-transformers" in row["reason"]
    again = call("--benchmark", f"{sets}/one", *options(outputs, broken))
    assert "2 of 3 shards kept" in again.output
    call("--benchmark", f"{sets}/one", *options(outputs, tiny))
    assert [r["status"] for r in results(outputs)["rows"]] == ["run"] * 3


def test_rows_that_were_not_run_have_the_form_of_table_1(tiny: Path, tmp_path: Path) -> None:
    sets, outputs = write_set(tmp_path / "sets", "one"), tmp_path / "outputs"
    common = options(outputs, tiny, '["bm25", "gte_large", "ada_002"]')
    shown = call("--benchmark", f"{sets}/one", *common)
    assert "one: Ada-002 is not run: no embeddings endpoint is configured" in shown.output
    rows = results(outputs)["rows"]
    assert [r["status"] for r in rows] == ["run", "not run", "not run"]
    # The same function makes the rows of offline.json.
    made = make_benchmark(collection_at(f"{sets}/one"))
    split = JudgedSplit("one", "test", made.texts("query", dense=True), made.golds)
    settings = load_settings("local", env={}).train
    for row in rows[1:]:
        expected = offline_row(NotRun(row["ranker"], row["reason"]), split, settings, 0)
        assert {**expected, "asked": "query", "model": row["model"]} == row
    lines = (outputs / "runs" / "local" / "out" / "results" / "benchmarks.csv").read_text().splitlines()
    assert [line.rsplit(",", 1)[1] for line in lines] == ["status", "run", "not run", "not run"]
    assert lines[2].endswith(",,not run") and len({line.count(",") for line in lines}) == 1
    page = _template().environment.get_template("benchmarks.html.jinja")
    drawn = page.render(benchmarks=benchmark_section(results(outputs)))
    assert f"not run: {rows[2]['reason']}" in drawn and drawn.count("not run: ") == 2
    # A fault that stands is no reason to try again; one that is mended is.
    again = call("--benchmark", f"{sets}/one", *common)
    assert "benchmark-one: up to date" in again.output
    local = f'{{tiny = "{tiny}", "thenlper/gte-large" = "{tiny}"}}'
    call("--benchmark", f"{sets}/one", *common, "--set", f"models.local={local}")
    assert [r["status"] for r in results(outputs)["rows"]] == ["run", "run", "not run"]


def test_another_analysis_is_another_ranking(tiny: Path, tmp_path: Path) -> None:
    asks = [{"query_id": "q", "query": "sending it", "gold": ["bank"]}]
    sets, outputs = write_set(tmp_path / "sets", "one", asks), tmp_path / "outputs"
    common = options(outputs, tiny, '["bm25", "encoder"]')
    call("--benchmark", f"{sets}/one", *common)
    english = results(outputs)
    assert any("baselines.lexical = english" in note for note in english["notes"])
    again = call("--benchmark", f"{sets}/one", *common, "--set", "baselines.lexical=plain")
    assert "1 of 2 shards kept from before" in again.output
    plain = results(outputs)
    assert any("baselines.lexical = plain" in note for note in plain["notes"])
    assert plain["rows"][1] == english["rows"][1]
    # "Sends money" is found by its stem alone.
    assert (plain["rows"][0]["metrics"]["MRR"], english["rows"][0]["metrics"]["MRR"]) == (0, 1)


# --- the collection --------------------------------------------------------------------------------------


def collection(queries: int = 40) -> TestCollection:
    asked = tuple(CollectionQuery(f"q{i:02d}", f"query number {i}", "", ("a",)) for i in range(queries))
    tools = (CollectionTool("a", "A", "", ""), CollectionTool("b", "B", "says something", "c"))
    return TestCollection("made", asked, tools, "MIT")


@given(st.integers(1, 60), st.integers(0, 5))
def test_a_limit_draws_by_hash_and_a_larger_one_keeps_what_was_drawn(limit: int, seed: int) -> None:
    drawn = make_benchmark(collection(), limit=limit, seed=seed)
    more = make_benchmark(collection(), limit=limit + 5, seed=seed)
    ids = [q.id for q in drawn.queries]
    assert ids == sorted(ids) and len(ids) == min(limit, 40) and drawn.drawn_from == 40
    assert set(ids) <= {q.id for q in more.queries}
    assert make_benchmark(collection(), limit=limit, seed=seed).content == drawn.content


def test_texts_and_the_key_follow_the_content() -> None:
    made = make_benchmark(collection(3))
    assert made.tools.texts == ("A.", "c: B. says something.") and made.asked == ("query",)
    assert make_benchmark(collection(4)).content != made.content
    assert stages.slug("restbench") == "restbench"
    assert stages.slug("a/b") != stages.slug("a-b") and "/" not in stages.slug("a/b")


def asked(*rows: tuple[str, str, tuple[str, ...]]) -> TestCollection:
    tools = (CollectionTool("a", "A", "", ""), CollectionTool("b", "B", "", ""))
    return TestCollection(
        "made", tuple(CollectionQuery(i, text, "", gold) for i, text, gold in rows), tools, "MIT"
    )


def test_rows_of_one_text_are_one_query_and_their_golds_are_united() -> None:
    rows = asked(
        ("q1", "Find a paper.", ("a",)),
        ("q2", "find  a paper", ("a",)),
        ("q3", "Find a paper?", ("b",)),
        ("q4", "find a bed", ("b",)),
        ("q5", "Find a paper", ()),
    )
    made = make_benchmark(rows)
    assert [(q.id, q.text, q.gold) for q in made.queries] == [
        ("q1", "Find a paper.", ("a", "b")),
        ("q4", "find a bed", ("b",)),
    ]
    assert made.labelled["q1"] == {"a", "b"} and made.drawn_from == 2
    assert made.left_out == {NO_GOLD: 1, REPEATED: 2, OTHER_GOLD: 1}
    # A set with metrics of its own is judged row by row, as its own evaluation does.
    apart = make_benchmark(rows, own_metrics=TOOLRET_METRICS)
    assert [q.id for q in apart.queries] == ["q1", "q2", "q3", "q4"] and apart.left_out == {NO_GOLD: 1}


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.sets(st.sampled_from("ab"), min_size=1)), min_size=1))
def test_uniting_loses_no_text_and_no_gold(rows: list[tuple[str, set[str]]]) -> None:
    made = make_benchmark(asked(*((f"q{n:03d}", t, tuple(sorted(g))) for n, (t, g) in enumerate(rows))))
    assert len(made.queries) == len({text for text, _ in rows}) == made.drawn_from
    assert len(made.queries) + made.left_out.get(REPEATED, 0) == len(rows)
    for query in made.queries:
        assert set(query.gold) == {g for text, golds in rows if text == query.text for g in golds}


def test_tools_that_say_little_are_judged_as_any(tiny: Path, tmp_path: Path) -> None:
    """As in ToolBench: no description, a name alone, one description for two, a query without gold."""
    sets = tmp_path / "sets"
    write_lines(
        sets / "toolbench_tools.jsonl",
        [
            {"tool_id": "a/api", "name": "a: api", "description": "a", "category": "Advertising"},
            {"tool_id": "songs/top100", "name": "Songs: Top100", "description": "", "category": "Music"},
            {"tool_id": "songs/getArtists", "description": None},
            {"tool_id": "beds/find", "name": "Beds: find", "description": "Finds.", "category": "Travel"},
            {"tool_id": "rooms/find", "name": "Rooms: find", "description": "Finds.", "category": "Travel"},
        ],
    )
    write_lines(
        sets / "toolbench_queries.jsonl",
        [
            {"query_id": "1", "query": "the top 100 in music", "group": "G1", "gold": ["songs/top100"]},
            {"query_id": "2", "query": "which artists", "group": "G3", "gold": ["songs/getArtists"]},
            {"query_id": "3", "query": "find a bed", "group": "G3", "gold": ["beds/find"]},
            {"query_id": "4", "query": "is it on?", "group": "G3", "gold": ["rooms/find"]},
            {"query_id": "5", "query": "plan a party", "group": "G3", "gold": []},
        ],
    )
    outputs = tmp_path / "outputs"
    words = ["--benchmark", str(sets), "--collection", "toolbench"]
    call(*words, *options(outputs, tiny, '["tfidf", "bm25"]'))
    content = results(outputs)
    [facts] = content["sets"]
    assert (facts["queries"], facts["tools"], facts["duplicate_tools"]) == (4, 5, 0)
    assert facts["tools_without_description"] == 2
    assert facts["left_out"] == {NO_GOLD: 1} and facts["licence"].startswith("Apache-2.0")
    # Three are found first by their words; nothing is found for the one that shares none.
    assert [row["metrics"]["MRR"] for row in content["rows"]] == [0.75, 0.75]
    drawn = json.loads(call(*words, "--limit", "2", "--json", *options(outputs, tiny, '["bm25"]')).stdout)
    assert drawn["sets"][0]["queries"] == 2 and drawn["sets"][0]["queries_with_gold"] == 4


def test_names_of_a_folder(tmp_path: Path) -> None:
    write_set(write_set(tmp_path, "one"), "two")
    assert collection_names(tmp_path) == ["one", "two"]
    assert [b.name for b in load_benchmarks([str(tmp_path)], ["all"], limit=1, seed=0)] == ["one", "two"]
    with pytest.raises(UserError, match="--benchmark names several"):
        load_benchmarks(["a", "b"], ["x"], limit=None, seed=0)
    with pytest.raises(UserError, match=r"three does not exist, and .* no collection 'three'"):
        collection_at(f"{tmp_path}/three")


# --- ToolRet ---------------------------------------------------------------------------------------------


def labels(*ids: str, **more: int) -> str:
    rows = [{"id": i, "doc": {"name": i}, "relevance": 1} for i in ids]
    return json.dumps(rows + [{"id": i, "doc": {}, "relevance": r} for i, r in more.items()])


def hub_repository(folder: Path, split: str, configs: dict[str, list[dict[str, Any]]]) -> None:
    card = "---\nlicense: apache-2.0\nconfigs:\n"
    for config, rows in configs.items():
        write_lines(folder / config / f"{split}.jsonl", rows)
        card += (
            f"- config_name: {config}\n  data_files:\n  - split: {split}\n    path: {config}/{split}.jsonl\n"
        )
    (folder / "README.md").write_text(card + "---\n")


@pytest.fixture
def toolret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders that ``datasets`` reads as two repositories of the Hub."""
    import datasets

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    asked = {"instruction": "Retrieve a tool that travels"}
    hub_repository(
        tmp_path / "acme" / "ToolRet-Queries",
        "queries",
        {
            "apigen": [
                {"id": "a1", "query": "a bed in a city", "labels": labels("web_1", web_2=0), **asked},
                {"id": "a0", "query": "send money", "labels": labels("code_1", "gone"), **asked},
            ],
            "gta": [{"id": "g", "query": "songs please", "labels": labels("web_2"), **asked}],
        },
    )
    hub_repository(
        tmp_path / "acme" / "ToolRet-Tools",
        "tools",
        {
            "web": [
                {"id": "web_1", "documentation": '{"name": "hotel", "description": "a bed in a city"}'},
                {"id": "web_2", "documentation": '{"name": "songs", "description": "lists songs"}'},
            ],
            "code": [{"id": "code_1", "documentation": '{"name": "bank", "description": "send money"}'}],
        },
    )
    return tmp_path


def test_toolret_end_to_end_with_and_without_instruction(toolret: Path, tiny: Path, tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    call("--benchmark", "hub:acme/ToolRet-Queries", *options(outputs, tiny))
    content = results(outputs)
    assert [f["set"] for f in content["sets"]] == ["toolret-apigen", "toolret-gta"]
    facts = content["sets"][0]
    assert facts["licence"] == "apache-2.0" and facts["tools"] == 3
    assert facts["origin"] == "acme/ToolRet-Queries, acme/ToolRet-Tools"
    assert facts["left_out"] == {UNKNOWN_GOLD: 1}
    assert [(r["set"], r["ranker"], r["asked"]) for r in content["rows"][:6]] == [
        ("toolret-apigen", ranker, asked)
        for ranker in json.loads(RANKERS)
        for asked in ("query", "instruction")
    ]
    bm25 = next(r for r in content["rows"] if r["ranker"] == "bm25" and r["asked"] == "query")
    own = bm25["own_metrics"]
    assert set(own) == set(TOOLRET_METRICS)
    # a1 finds its one tool first; a0 finds one of two first, the other is no tool of the pool.
    assert own["Recall@5"] == 0.75 and own["Comp@5"] == 0.5 and own["MAP@5"] == 0.75 and own["P@5"] == 0.2
    gain = 1 / (1 + 1 / np.log2(3))
    assert own["nDCG@10"] == pytest.approx((1 + gain) / 2, abs=1e-6)
    means = {(a["ranker"], a["asked"]): a for a in content["averages"]}
    assert len(means) == 6 and means["bm25", "query"]["sets"] == 2
    assert means["bm25", "query"]["own_metrics"]["Recall@5"] == pytest.approx((0.75 + 1) / 2)
    assert any("ToolRet's own metrics" in note for note in content["notes"])
    # The pool is encoded once, whichever set asks; so is each query, with and without its instruction.
    assert store_size(outputs / "store" / "encodings").vectors == 3 + 2 * 3
    folder = outputs / "runs" / "local" / "raw" / "benchmark-toolret-gta"
    assert load_run(folder / "bm25" / "run.parquet", "bm25").tool_ids[0] == ["web_2"]


def test_toolret_texts_and_choices(toolret: Path) -> None:
    [one] = load_hub_collections("hub:acme/ToolRet-Queries/apigen")
    made = make_benchmark(one.collection, unknown_golds=one.unknown_golds)
    assert made.texts("instruction", dense=True).texts[0] == (
        "Instruct: Retrieve a tool that travels\nQuery: send money"
    )
    assert made.texts("instruction", dense=False).texts[0] == "Retrieve a tool that travels send money"
    assert made.texts("query", dense=True).texts == ("send money", "a bed in a city")
    assert made.tools.texts[0] == '{"name": "bank", "description": "send money"}'
    assert len(load_hub_collections("hub:acme/ToolRet-Queries", ["gta"])) == 1
    with pytest.raises(UserError, match="has no config 'nope'; it has apigen, gta"):
        load_hub_collections("hub:acme/ToolRet-Queries", ["nope"])
    with pytest.raises(UserError, match="no repository of queries with its tools"):
        load_hub_collections("hub:acme/other")
    # Repositories of their own: the library keeps what it has read of the others.
    hub_repository(toolret / "acme" / "Odd-Queries", "queries", {"a": [{"query": "a bed", "labels": "[]"}]})
    hub_repository(toolret / "acme" / "Odd-Tools", "tools", {"web": [{"id": "x", "doc": "y"}]})
    with pytest.raises(UserError, match="Odd-Tools/web has no column documentation; it has doc, id"):
        load_hub_collections("hub:acme/Odd-Queries/a")


def test_a_hub_out_of_reach_is_told(toolret: Path) -> None:
    with pytest.raises(UserError, match=r"hub:nobody/ToolRet-.* cannot be read"):
        load_hub_collections("hub:nobody/ToolRet-Queries")


@pytest.mark.parametrize(
    "value", ["{", '"x"', "[1]", '[{"relevance": 1}]', '[{"id": "a", "relevance": "high"}]', 7, None]
)
def test_labels_that_are_none_name_the_row(value: Any) -> None:
    with pytest.raises(UserError, match=r"set row 3: labels"):
        read_labels(value, "set row 3")


def test_labels_of_both_forms() -> None:
    assert read_labels(labels("b", "a", c=0), "x") == ("a", "b")
    assert read_labels([{"id": 7, "relevance": 1}, {"id": "z"}], "x") == ("7", "z")
    assert read_labels("[]", "x") == ()


@given(st.lists(st.sampled_from("abcdef"), unique=True), st.sets(st.sampled_from("abcdef"), min_size=1))
def test_completeness_is_a_recall_of_one(ranking: list[str], golds: set[str]) -> None:
    run = RankedRun("r", ("q",), [ranking], [[1.0] * len(ranking)])
    found = evaluate_run(run, {"q": golds}, ("Comp@3", "Recall@3", "MAP@3", "P@3")).means()
    hits = [tool in golds for tool in ranking[:3]]
    assert found["Comp@3"] == (sum(hits) == len(golds))
    assert found["Recall@3"] == pytest.approx(sum(hits) / len(golds))
    precision = [sum(hits[: i + 1]) / (i + 1) for i, hit in enumerate(hits) if hit]
    assert found["MAP@3"] == pytest.approx(sum(precision) / len(golds))
    assert found["P@3"] == pytest.approx(sum(hits) / 3)
