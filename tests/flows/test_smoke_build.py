"""The whole flow on the smoke profile: what a build leaves behind, and that a second one does nothing."""

from __future__ import annotations

import json
import shutil

import polars as pl
import pytest

from ecoagent.runs import read_json, read_rows, sha256_file
from ecoagent.schema import PairRow, QrelRow, QueryRow, ScoredTool, VerdictRow
from tests.flows.conftest import SmokeBuild, ecoagent

pytestmark = [pytest.mark.flow, pytest.mark.network, pytest.mark.llm]

STAGES = [
    "crawl",
    "normalize",
    "score",
    "synthesize",
    "label",
    "train",
    "evaluate",
    "audit",
    "publish",
    "report",
]


def test_every_stage_ran_and_is_recorded(smoke: SmokeBuild) -> None:
    manifest = read_json(smoke.paths.manifest)
    assert sorted(manifest["stages"]) == sorted(STAGES)
    for name, stage in manifest["stages"].items():
        assert stage["outputs"], name
        for relative, expected in stage["outputs"].items():
            assert sha256_file(smoke.paths.root / relative) == expected, relative
    assert manifest["versions"]["torch"]
    assert manifest["settings"]["evaluate"]["gamma"] == 0.95


def test_tables_belong_together(smoke: SmokeBuild) -> None:
    core = smoke.paths.core
    tools = {t.id: t for t in read_rows(core / "tools.parquet", ScoredTool)}
    queries = {q.query_id: q for q in read_rows(core / "syn_queries.parquet", QueryRow)}
    qrels = read_rows(core / "syn_qrels.parquet", QrelRow)
    pairs = read_rows(core / "syn_pairs.parquet", PairRow)
    assert len(tools) >= 5
    assert {t.source for t in tools.values()} == {"llamaindex", "n8n_community"}
    assert {q.split for q in queries.values()} == {"train", "val", "test", "cold"}
    assert {q.intent for q in queries.values()} == {"direct", "troubleshooting", "howto"}
    assert {r.query_id for r in qrels} == set(queries)
    assert {r.tool_id for r in qrels} <= set(tools)
    golds = {(r.query_id, r.tool_id) for r in qrels}
    assert not {(p.query_id, p.tool_id) for p in pairs if p.label == 0} & golds
    assert {p.negative_type for p in pairs} == {None, "hard", "random"}
    for query in queries.values():
        assert 5 <= len(query.text.split()) <= 120


def test_real_queries_were_verified_by_the_model(smoke: SmokeBuild) -> None:
    verdicts = read_rows(smoke.paths.core / "verdicts.parquet", VerdictRow)
    judged = [v for v in verdicts if v.stage == "verifier"]
    assert judged
    assert all(v.response_hash for v in judged)
    kept = {(v.query_id, v.tool_id) for v in verdicts if v.kept}
    verified = {
        (r.query_id, r.tool_id)
        for r in read_rows(smoke.paths.core / "real_qrels.parquet", QrelRow)
        if r.origin == "verified"
    }
    assert verified == kept
    assert pl.read_parquet(smoke.paths.core / "real_responses.parquet").height >= len(
        {v.response_hash for v in judged}
    )


def test_results_hold_every_row_asked_for(smoke: SmokeBuild) -> None:
    offline = read_json(smoke.paths.out / "results" / "offline.json")
    dynamic = read_json(smoke.paths.out / "results" / "dynamic.json")
    settings = read_json(smoke.paths.manifest)["settings"]["evaluate"]
    assert {r["ranker"] for r in offline["rows"]} == set(settings["rankers"])
    assert {(r["policy"], r["rate"]) for r in dynamic["rows"]} == {
        (p, r) for p in settings["policies"] for r in settings["rates"]
    }
    assert all(r["underpowered"] for r in dynamic["rows"]), "two tools are far from 100 golds"
    for row in offline["rows"]:
        for name in ("MRR", "Recall@1", "Recall@5"):
            assert 0 <= row["metrics"][name] <= 1


def test_the_data_set_loads_with_every_split(smoke: SmokeBuild, tmp_path) -> None:  # type: ignore[no-untyped-def]
    from datasets import get_dataset_config_names, load_dataset

    folder = str(smoke.paths.out / "dataset")
    configs = get_dataset_config_names(folder)
    assert {"tools", "syn", "real"} <= set(configs)
    for config in configs:
        loaded = load_dataset(folder, config, cache_dir=str(tmp_path))
        assert loaded
        assert all(len(split) for split in loaded.values()), config
    assert set(load_dataset(folder, "syn", cache_dir=str(tmp_path))) == {"train", "val", "test", "cold"}
    assert set(load_dataset(folder, "real", cache_dir=str(tmp_path))) == {"val", "test"}


def test_report_and_audit(smoke: SmokeBuild) -> None:
    page = (smoke.paths.report / "index.html").read_text("utf-8")
    for word in ("Table 1", "Table 2", "underpowered"):
        assert word in page
    assert len(list(smoke.paths.report.glob("*.png"))) >= 2
    assert (smoke.paths.out / "audit.json").is_file()


def test_the_build_says_where_the_results_are(smoke: SmokeBuild) -> None:
    for name in ("index.html", "dataset", "manifest.json"):
        assert name in smoke.finished.output
    assert "left" in smoke.finished.output, "progress shows the time left"


def test_a_second_build_is_up_to_date(smoke: SmokeBuild) -> None:
    before = smoke.paths.manifest.read_bytes()
    again = ecoagent(["build", "--profile", "smoke"], smoke.home, timeout=120)
    assert again.code == 0
    assert "0 stages run, 10 up to date" in again.output
    assert again.seconds < 60
    assert smoke.paths.manifest.read_bytes() == before


def test_dry_run_writes_nothing(smoke: SmokeBuild) -> None:
    done = ecoagent(
        ["build", "--profile", "smoke", "--run", "dry", "--dry-run", "--json"], smoke.home, timeout=120
    )
    assert done.code == 0, done.output
    planned = json.loads(done.output[done.output.index("{") :])
    assert sorted(planned) == sorted(STAGES)
    assert planned["crawl"]["state"] == "would run"
    assert not (smoke.home / "outputs" / "runs" / "dry" / "core").exists()


def test_frozen_responses_replay_without_a_model(smoke: SmokeBuild) -> None:
    frozen = smoke.home / "frozen"
    written = ecoagent(["freeze", "--run", "smoke", "--out", str(frozen), "--json"], smoke.home, timeout=120)
    assert written.code == 0, written.output
    assert sorted(p.name for p in frozen.iterdir()) == ["responses.parquet", "statistics.json"]
    twice = ecoagent(["freeze", "--run", "smoke", "--out", str(frozen)], smoke.home, timeout=120)
    assert twice.code == 2 and "--force" in twice.output, twice.output
    same = ecoagent(["freeze", "--run", "smoke", "--out", str(frozen), "--check"], smoke.home, timeout=120)
    assert same.code == 0 and "byte for byte" in same.output, same.output

    outputs = smoke.home / "replay"
    shutil.copytree(smoke.paths.root, outputs / "runs" / "smoke")
    # An empty store and nobody at the address: only the frozen file can answer.
    options = ["--run", "smoke", "--set", f"outputs={outputs}", "--set", f"llm.store={outputs / 's.sqlite'}"]
    options += ["--set", "llm.engine=server", "--set", "llm.base_url=http://127.0.0.1:9/v1"]
    options += ["--set", f"llm.reference={frozen / 'responses.parquet'}"]
    replayed = ecoagent(["synthesize", *options], smoke.home, timeout=300)
    assert replayed.code == 0, replayed.output
    live = pl.read_parquet(smoke.paths.core / "syn_queries.parquet")
    again = pl.read_parquet(outputs / "runs" / "smoke" / "core" / "syn_queries.parquet")
    assert set(live["origin"]) == {"live"} and set(again["origin"]) == {"replayed"}
    assert live.drop("origin").equals(again.drop("origin"))
    check = ["freeze", "--check", "--out", str(frozen), *options[:4]]
    alike = ecoagent(check, smoke.home, timeout=120)
    assert alike.code == 0 and "byte for byte" in alike.output, alike.output
    again.head(-1).write_parquet(outputs / "runs" / "smoke" / "core" / "syn_queries.parquet")
    other = ecoagent(check, smoke.home, timeout=120)
    assert other.code == 1 and "syn_queries rows" in other.output, other.output
