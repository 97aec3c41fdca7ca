"""The authors' own release, in fixtures of its shape, into the tables of a run."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ecoagent.cli import tail as command
from ecoagent.cli.app import app
from ecoagent.evaluation.datasets import load_core
from ecoagent.evaluation.offline import judged_splits, reported
from ecoagent.evaluation.stage import EvaluateStage
from ecoagent.evaluation.train_stage import TrainStage, rows_of
from ecoagent.publish.release_tables import import_release
from ecoagent.publish.released import find_release, read_pairs, read_real, read_tools
from ecoagent.runs import Progress, RunContext, execute, read_json, read_rows
from ecoagent.schema import PairRow, QrelRow, QueryRow, ScoredTool, query_id
from ecoagent.settings import ReliabilitySettings, TrainSettings, UserError, load_settings
from tests.unit.tiny_bert import write_tiny_bert

TOOLS = [
    ["uid", "name", "description", "tags", "source", "reliability_score"],
    ["u3", "n8n-nodes-hotel", "Books a bed.", "['n8n', 'community-node']", "n8n", "0.7"],
    ["u1", "Song", "Lists songs,\nby line.", '["music"]', "langchain", "0.91"],
    ["u2", "Song", "Lists songs, by line.", "music", "llamaindex", "0.5"],
    ["u4", "Bank", "Sends money.", "", "crewai", "0.4"],
    ["u1", "Song again", "Repeated.", "", "langchain", "0.1"],
]
TRAIN = [
    ["query", "tool_uid", "label", "neg_type"],
    ["Book me a bed", "u3", "1", ""],
    ["Book me a bed", "u4", "0", "hard_semantic"],
    ["list songs please", "u1", "1", ""],
    ["list songs please", "u3", "0", "random"],
    ["send money home", "u4", "1", ""],
    ["send money home", "u4", "1", ""],
    ["send money home", "u1", "0", "hard_lexical"],
    ["wire the rent", "u1", "0", "random"],
]
VAL = [
    ["query", "tool_uid", "label", "neg_type"],
    ["book me a bed!", "u4", "0", "random"],
    ["List songs, please", "u1", "1", ""],
    ["wire the rent", "u4", "1", ""],
]
REAL = [
    {"query": "a room in Riga", "tool_uid": "u3", "label": 1},
    {"query": "a room in Riga", "tool_uid": "u4", "label": 0},
    {"query": "pay for music", "tool_uid": "u1", "label": 1},
    {"query": "pay for music", "tool_uid": "u4", "label": 1},
    {"query": "nobody can", "tool_uid": "u2", "label": 0},
]


def write_csv(path: Path, rows: list[list[str]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle).writerows(rows)
    return path


def write_release(folder: Path) -> Path:
    data = folder / "data"
    write_csv(data / "processed" / "tools_clean_with_reliability.csv", TOOLS)
    write_csv(data / "processed" / "tools_index.csv", [["uid", "name"], ["u9", "not of the catalog"]])
    write_csv(data / "ecoagent_syn" / "train_pairs.csv", TRAIN)
    write_csv(data / "ecoagent_syn" / "val_pairs.csv", VAL)
    write_csv(data / "ecoagent_syn" / "all_pairs.csv", TRAIN)
    real = data / "ecoagent_real_toolbench"
    write_csv(real / "train_positive_pairs.csv", TRAIN)
    for name in ("eval_real.jsonl", "eval_real_test.jsonl"):
        (real / name).write_text("".join(json.dumps(row) + "\n" for row in REAL))
    row = {"query_id": 7, "query": "money and songs", "ground_truth": ["u4", "u1"]}
    (real / "eval_real_val.jsonl").write_text(json.dumps(row) + "\n")
    return folder


def embed(texts: list[str]) -> Any:
    """Any unit vectors: a text's own."""
    rows = [np.frombuffer(hashlib.sha256(t.encode()).digest(), np.uint8).astype(float) for t in texts]
    return np.stack([row / np.linalg.norm(row) for row in rows])


def imported(folder: Path, core: Path) -> dict[str, Any]:
    files = find_release(folder)
    assert files is not None
    return import_release(files, core, embed, ReliabilitySettings())


@pytest.fixture
def release(tmp_path: Path) -> Path:
    return write_release(tmp_path / "EcoAgent")


def test_files_are_told_apart_by_what_is_there(release: Path, tmp_path: Path) -> None:
    files = find_release(release)
    assert files is not None
    assert {k: [p.name for p in v] for k, v in files.syn.items()} == {
        "train": ["train_pairs.csv"],
        "val": ["val_pairs.csv"],
    }
    assert {k: [p.name for p in v] for k, v in files.real.items()} == {
        "test": ["eval_real_test.jsonl"],
        "val": ["eval_real_val.jsonl"],
    }
    assert {Path(p).name for p in files.unread} == {
        "all_pairs.csv",
        "eval_real.jsonl",
        "train_positive_pairs.csv",
    }
    # A flat copy in a folder of any name, with the splits in a column and Real as pairs.
    flat = tmp_path / "my-real-release"
    write_csv(flat / "tools_a.csv", TOOLS)
    rows = [["query", "uid", "label", "split"], ["a bed", "u3", "1.0", "train"], ["a b", "u3", "1", "dev"]]
    write_csv(flat / "all_pairs.csv", rows)
    write_csv(flat / "eval_real_pairs.csv", [["query", "tool_uid", "label"], ["a room", "u3", "True"]])
    found = find_release(flat)
    assert found is not None and list(found.syn) == [None]
    assert [(p.split, p.label) for p in read_pairs(found)] == [("train", 1), ("val", 1)]
    assert [(p.query, p.split) for p in read_real(found)] == [("a room", "test")]
    assert find_release(tmp_path / "nowhere") is None and find_release(flat / "tools_a.csv") is None


def test_tools_keep_their_scores_and_get_what_is_missing(release: Path, tmp_path: Path) -> None:
    record = imported(release, tmp_path / "core")
    tools = read_rows(tmp_path / "core" / "tools.parquet", ScoredTool)
    assert [t.id for t in tools] == ["u1", "u2", "u3", "u4"]
    assert [t.source for t in tools] == ["langchain", "llamaindex", "n8n_community", "crewai"]
    assert [t.r_static for t in tools] == [0.91, 0.5, 0.7, 0.4] and tools[0].reliable
    assert [t.w_src for t in tools] == [0.9, 0.9, 0.8, 0.9]
    assert tools[2].tags == ["community-node", "n8n"] and tools[3].tags == []
    assert tools[0].tool_text == "Song. Lists songs, by line. Tags: music."
    assert [t.duplicate_group for t in tools] == ["u1", "u1", "u3", "u4"]
    assert record["tools"]["repeated_tools"] == 1 and record["tools"]["same_as_another"] == 1
    assert record["tools"]["r_static_released"] == 4 and record["tools"]["r_static_mean_gap"] > 0
    table = release / "data" / "processed" / "tools_clean_with_reliability.csv"
    write_csv(table, [row[:-1] for row in TOOLS[:5]])
    again = imported(release, tmp_path / "two")
    assert again["tools"]["r_static_computed"] == 4 and "r_static_mean_gap" not in again["tools"]
    assert any("r_static of 4 of 4 tools is not in the release" in note for note in again["notes"])
    # A file of scores alone fills them in.
    write_csv(
        table.with_name("tools_reliability_scores_1.csv"), [["uid", "reliability_score"], ["u4", "0.25"]]
    )
    assert imported(release, tmp_path / "three")["tools"]["r_static_released"] == 1
    assert read_rows(tmp_path / "three" / "tools.parquet", ScoredTool)[3].r_static == 0.25


def test_splits_stay_as_released_and_leakage_is_counted(release: Path, tmp_path: Path) -> None:
    core = tmp_path / "core"
    record = imported(release, core)
    queries = {q.text: q for q in read_rows(core / "syn_queries.parquet", QueryRow)}
    bed, songs, rent = query_id("syn", "Book me a bed"), query_id("syn", "list songs please"), "wire the rent"
    assert {text: q.split for text, q in queries.items()} == {
        "Book me a bed": "train", "list songs please": "train", "List songs, please": "val",
        "send money home": "train", rent: "val",
    }  # fmt: skip
    assert queries["Book me a bed"].source_tool_id == "u3" and queries[rent].query_id == query_id("syn", rent)
    pairs = read_rows(core / "syn_pairs.parquet", PairRow)
    kinds = {(p.query_id, p.tool_id, p.split): (p.label, p.negative_type) for p in pairs}
    assert len(kinds) == len(pairs) == 10
    assert kinds[bed, "u4", "train"] == (0, "hard") and kinds[bed, "u4", "val"] == (0, "random")
    assert kinds[songs, "u3", "train"] == (0, "random")
    assert kinds[query_id("syn", "send money home"), "u1", "train"] == (0, "hard")
    assert record["syn"]["repeated_rows"] == 1
    # book (other punctuation, one text) and rent have rows in train; the songs differ by a comma.
    assert record["syn"]["leakage"] == {
        "val": {
            "queries": 3,
            "with_rows_in_train": 2,
            "with_a_gold_in_train": 0,
            "golds_negative_in_train": 0,
        }
    }
    assert any("2 of 3 val queries (66.7%) have rows in train" in note for note in record["notes"])
    assert read_json(core / "import.json") == record
    qrels = read_rows(core / "real_qrels.parquet", QrelRow)
    real = {q.query_id: q for q in read_rows(core / "real_queries.parquet", QueryRow)}
    assert len(real) == 4 and len(qrels) == 5
    assert sorted(q.query_type or "" for q in real.values()) == ["none", "several", "several", "single"]
    assert {q.split for q in real.values()} == {"test", "val"}


def test_golds_that_train_calls_wrong_are_counted(release: Path, tmp_path: Path) -> None:
    path = release / "data" / "ecoagent_syn" / "val_pairs.csv"
    rows = [["book me a BED", "u4", "1", ""], ["send money home", "u4", "1", ""]]
    write_csv(path, [VAL[0], *rows])
    seen = imported(release, tmp_path / "core")["syn"]["leakage"]["val"]
    assert seen == {
        "queries": 2,
        "with_rows_in_train": 2,
        "with_a_gold_in_train": 1,
        "golds_negative_in_train": 1,
    }
    data = load_core(tmp_path / "core")
    assert data.golds[query_id("syn", "book me a bed")] == {"u3", "u4"}
    assert len(data.judged("syn", "val")) == 2


def test_val_is_reported_where_there_is_no_test(release: Path, tmp_path: Path) -> None:
    imported(release, tmp_path)
    data = load_core(tmp_path)
    assert reported(data) == (("syn", "val"), ("syn", "cold"), ("real", "test"))
    assert [s.name for s in judged_splits(data)] == ["syn.val", "real.test"]
    assert {r.query_id for r in rows_of(data, TrainSettings(), "train")} >= {query_id("syn", "book me a bed")}


def test_an_import_is_repeated_to_the_byte_and_replaces_the_one_before(release: Path, tmp_path: Path) -> None:
    imported(release, tmp_path / "a")
    imported(release, tmp_path / "b")
    names = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert len(names) == 7
    assert all((tmp_path / "a" / n).read_bytes() == (tmp_path / "b" / n).read_bytes() for n in names)
    for path in (release / "data" / "ecoagent_real_toolbench").glob("eval_real*"):
        path.unlink()
    record = imported(release, tmp_path / "a")
    assert not (tmp_path / "a" / "real_queries.parquet").exists()
    assert any("no EcoAgent-Real rows" in note for note in record["notes"])


SYN, PROCESSED = "data/ecoagent_syn/train_pairs.csv", "data/processed/tools_clean_with_reliability.csv"
REAL_TEST = "data/ecoagent_real_toolbench/eval_real_test.jsonl"


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        (SYN, "query,slug_of_tool,label\na b,u1,1\n", "slug_of_tool, label, and none for tool; "
         "remedy: name a column .tool: tool_uid or uid or"),
        (SYN, "query,tool_uid,label\na b,u1,1\na b,u2,maybe\n", "train_pairs.csv row 3: label 'maybe'"),
        (SYN, "query,tool_uid,label\na b,u1\n", "train_pairs.csv row 2: 2 cells, but 3 columns"),
        (SYN, "query,tool_uid,label\n  ,u1,1\n", "row 2: no query"),
        (SYN, "query,tool_uid,label\n?!,u1,1\n", "train_pairs.csv row 2: the query has no words"),
        (SYN, "query,tool_uid,label\na b,,1\n", "train_pairs.csv row 2: no tool"),
        (SYN, "query,tool_uid,label\na b,u8,1\na c,u1,1\n", "rows name tools that are not in the "
         "catalog; the first is train_pairs.csv row 2: 'u8'"),
        (SYN, "query,tool_uid,label\n", "no positive training pair"),
        (SYN, "", "train_pairs.csv is empty"),
        (SYN, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "pointer of Git LFS"),
        (REAL_TEST, "version https://git-lfs.github.com/spec/v1\n", "pointer of Git LFS.*git lfs pull"),
        (REAL_TEST, '{"query": "a b", "label": 1}\n', "test.jsonl row 1: no tool_uid or .*it has label"),
        (REAL_TEST, '{"query": "a b", "tool_uid": "u1", "label": 2}\n', "row 1: label 2 is neither 0 nor 1"),
        (REAL_TEST, '{"query": "a", "tool_uid": ["u1"], "label": [1, 0]}\n', "row 1: 1 tools but 2 labels"),
        (REAL_TEST, '{"query": "a"\n', "eval_real_test.jsonl row 1: not JSON"),
        (PROCESSED, "uid,name,source\n,A,n8n\n", "row 2: the tool has no uid"),
        (PROCESSED, "uid,name,source,tags\nu1,A,pypi,\n", "row 2: source 'pypi' is none of"),
        (PROCESSED, "uid,name,source,reliability_score\nu1,A,n8n,high\n", "reliability 'high' is not a"),
        (PROCESSED, "uid,name,source,reliability_score\nu1,A,n8n,nan\n", "reliability 'nan' is not a"),
        (PROCESSED, "uid,name,source,reliability_score\nu1,A,n8n,7\n", "reliability 7 is not between"),
        (PROCESSED, "uid,name,description,source\nu1,,,n8n\n", "row 2: tool 'u1' has neither name nor"),
    ],
)  # fmt: skip
def test_damage_names_file_and_row(release: Path, tmp_path: Path, file: str, text: str, said: str) -> None:
    (release / file).write_text(text)
    with pytest.raises(UserError, match=said):
        imported(release, tmp_path / "core")
    assert not (tmp_path / "core").exists()


def test_tables_without_the_columns_of_tools(tmp_path: Path) -> None:
    write_csv(tmp_path / "tools_a.csv", [["code", "words"], ["u1", "x"]])
    write_csv(tmp_path / "train_pairs.csv", TRAIN)
    files = find_release(tmp_path)
    assert files is not None
    with pytest.raises(UserError, match=r"tools_a.csv has the columns code, words, and none for uid, name"):
        read_tools(files)


def test_few_rows_of_unknown_tools_are_left_out_and_counted(release: Path, tmp_path: Path) -> None:
    rows = [[f"ask number {i} again", "u4", "1", ""] for i in range(20)]
    write_csv(release / SYN, [*TRAIN, *rows, ["what is that", "u9", "1", ""]])
    record = imported(release, tmp_path)
    assert record["syn"]["rows_of_unknown_tools"] == 1
    assert record["syn"]["first_unknown_tool"] == "train_pairs.csv row 30: u9"
    assert any("syn: 1 of 32 rows name tools" in note for note in record["notes"])


def test_the_command_line(release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []

    def flow(names: Any, settings: Any, *words: Any, **more: Any) -> int:
        ran.append((names, settings.run_name))
        return 0

    monkeypatch.setattr(command, "run_flow", flow)
    tiny = write_tiny_bert(tmp_path / "tiny")
    base = ["--profile", "local", "--set", f"outputs={tmp_path / 'out'}", "--set", "reliability.encoder=tiny"]
    base += ["--set", f'models.local={{tiny = "{tiny}"}}', "--run", "theirs"]

    def call(*words: str) -> Any:
        return CliRunner().invoke(app, ["tail", *base, *words])

    dry = call("--dataset", str(release), "--dry-run")
    assert dry.exit_code == 0 and "would import" in dry.output and not (tmp_path / "out").exists()
    done = call("--dataset", str(release))
    assert done.exit_code == 0, done.output
    assert ran == [(("train", "evaluate"), "theirs")]
    assert "4 tools, 5 syn queries, 4 real queries" in done.output.replace("\n", " ")
    assert "import: Leakage of the release" in done.output and "all_pairs.csv is not read" in done.output
    kept = list((tmp_path / "out" / "store" / "encodings").glob("*.sqlite"))
    assert len(kept) == 1
    assert call("--dataset", str(release / "data"), "--format", "ecoagent-release").exit_code == 0
    assert len(list((tmp_path / "out" / "store" / "encodings").glob("*.sqlite"))) == 1
    wrong = call("--dataset", str(tmp_path), "--format", "ecoagent-release")
    assert wrong.exit_code == 0  # the release lies below it
    empty = tmp_path / "empty"
    empty.mkdir()
    wrong = call("--dataset", str(empty), "--format", "ecoagent-release")
    assert wrong.exit_code == 2 and "no tools_*.csv with *_pairs.csv" in wrong.output
    assert "did you mean 'hub'" in call("--dataset", str(release), "--format", "huv").output
    assert "give --dataset DIR" in call("--format", "hub").output


def test_train_and_evaluate_run_on_it(release: Path, tmp_path: Path) -> None:
    tiny = write_tiny_bert(tmp_path / "tiny")
    settings = load_settings(
        "local",
        env={},
        outputs=tmp_path / "out",
        overrides=[
            f'models.local={{tiny = "{tiny}"}}', "train.query_encoder=tiny", "train.tool_encoder=tiny",
            "train.epochs=1", "train.max_length=16", "evaluate.steps=60", "evaluate.onset=20",
            "evaluate.window=30", "evaluate.adaptation_window=10", "evaluate.seeds=1",
        ],
    )  # fmt: skip
    ctx = RunContext.create(settings, Progress(quiet=True))
    record = imported(release, ctx.paths.core)
    execute(TrainStage(), ctx)
    execute(EvaluateStage(), ctx)
    table = read_json(ctx.paths.out / "results" / "offline.json")
    assert {(r["set"], r["split"]) for r in table["rows"]} == {("syn", "val"), ("real", "test")}
    assert set(record["notes"]) <= set(table["notes"])
    dynamic = read_json(ctx.paths.out / "results" / "dynamic.json")
    assert dynamic["rows"] and {r["split"] for r in dynamic["rows"]} == {"val"}
    assert (ctx.paths.out / "trec" / "syn.val.qrels").is_file()
