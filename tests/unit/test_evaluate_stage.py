"""Stages train and evaluate on a small complete run, with the real encoder."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from ecoagent.evaluation.datasets import load_core
from ecoagent.evaluation.offline import JUDGED, judged_splits
from ecoagent.evaluation.stage import EvaluateStage, rounded
from ecoagent.evaluation.train_stage import TrainStage, model_folder
from ecoagent.runs import Progress, RunContext, execute, read_json, read_table, write_table
from ecoagent.schema import PairRow, QrelRow, ScoredTool
from ecoagent.settings import UserError
from tests.unit.fixture_run import fixture_settings, write_fixture_run
from tests.unit.tiny_models import tiny_bert

FAST = (
    "train.max_length=16",
    "train.epochs=0.5",
    "evaluate.steps=300",
    "evaluate.onset=100",
    "evaluate.window=150",
    "evaluate.adaptation_window=50",
    "evaluate.seeds=2",
)
NOT_RUN = {"ada_002", "toolllm"}
"""No endpoint, and no source of these weights."""


def build(outputs: Path, *overrides: str) -> RunContext:
    ctx = write_fixture_run(fixture_settings(outputs, *FAST, *overrides))
    for stale in sorted((ctx.paths.out).rglob("*.json")):
        stale.unlink()
    return ctx


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> RunContext:
    ctx = build(tmp_path_factory.mktemp("outputs"))
    execute(TrainStage(), ctx)
    execute(EvaluateStage(), ctx)
    return ctx


def results(ctx: RunContext, name: str) -> dict[str, Any]:
    found: dict[str, Any] = read_json(ctx.paths.out / "results" / f"{name}.json")
    return found


def test_training_record_says_what_was_done(done: RunContext) -> None:
    record = read_json(done.paths.core / "training.json")
    pairs = read_table(done.paths.core / "syn_pairs.parquet")
    train = pairs.filter((pairs["split"] == "train") & (pairs["label"] == 1))
    assert record["pairs"] == len(train) > 0
    assert len(record["losses"]) == len(record["batch_sizes"]) == len(record["epochs"]) > 0
    assert record["settings"]["temperature"] == 0.05 and record["settings"]["max_length"] == 16
    assert record["curve"] == [] and record["stopping"] == {
        "metric": "off",
        "planned_steps": len(record["losses"]),
        "stopped_early": False,
        "kept_step": len(record["losses"]),
    }
    named = {d["setting"]: d for d in record["deviations_from_paper"]}
    assert named["train.max_length"] == {"setting": "train.max_length", "paper": 256, "here": 16}
    assert "train.temperature" not in named
    assert set(record["validation"]["trained"]) == {"loss", "MRR"}
    assert len(record["weights"]) == 2
    assert "seconds" not in json.dumps(record)


def test_a_validated_training_records_its_curve_and_why_it_ended(tmp_path: Path) -> None:
    ctx = build(tmp_path, "train.validate_every=0.25", "train.early_stopping=MRR", "train.checkpoint_every=1")
    execute(TrainStage(), ctx)
    record = read_json(ctx.paths.core / "training.json")
    curve, stopping = record["curve"], record["stopping"]
    assert [p["step"] for p in curve] == sorted({p["step"] for p in curve}) and curve[0]["step"] == 0
    assert {k: curve[0][k] for k in ("loss", "MRR")} == record["validation"]["untrained"]
    best = max(curve, key=lambda p: (p["MRR"], -p["step"]))
    assert stopping["kept_step"] == best["step"] and stopping["metric"] == "MRR"
    assert best["MRR"] == pytest.approx(record["validation"]["trained"]["MRR"], abs=1e-6)
    assert stopping["stopped_early"] == (len(record["losses"]) < stopping["planned_steps"])
    named = {d["setting"] for d in record["deviations_from_paper"]}
    assert "train.early_stopping" in named and "train.checkpoint_every" not in named
    assert "checkpoint_every" not in record["settings"]
    # Nothing is left of the checkpoints.
    assert [p.name for p in (ctx.paths.raw / "train").iterdir()] == ["all"]


def test_offline_table_covers_every_ranker_and_split(done: RunContext) -> None:
    table = results(done, "offline")
    data = load_core(done.paths.core)
    splits = judged_splits(data)
    names = done.settings.evaluate.rankers
    assert [(r["set"], r["split"], r["ranker"]) for r in table["rows"]] == [
        (s.set_name, s.split, name) for s in splits for name in names
    ]
    assert {(s.set_name, s.split) for s in splits} <= set(JUDGED)
    assert {r["ranker"] for r in table["rows"] if r["status"] == "not run"} == NOT_RUN
    for row in table["rows"]:
        assert bool(row["metrics"]) == (row["status"] == "run") == ("reason" not in row)
        for name, value in row["metrics"].items():
            low, high = row["intervals"][name]
            assert 0 <= low <= value <= high <= 1
            assert round(value, 6) == value
    labels = {row["ranker"]: row["label"] for row in table["rows"]}
    assert labels["encoder"] == "all-MiniLM-L6-v2 (untrained, in DRAGON's role)"
    assert any("train.max_length = 16 (paper: 256)" in note for note in table["notes"])


def test_trec_files_are_there_for_every_split_and_ranker(done: RunContext) -> None:
    folder = done.paths.out / "trec"
    splits = [s.name for s in judged_splits(load_core(done.paths.core))]
    expected = {f"{s}.qrels" for s in splits}
    expected |= {
        f"{s}.{name}.run" for s in splits for name in done.settings.evaluate.rankers if name not in NOT_RUN
    }
    assert {p.name for p in folder.iterdir()} == expected


def test_rows_that_were_not_run_say_why_and_run_once_they_can(done: RunContext, tmp_path: Path) -> None:
    rows = {row["ranker"]: row for row in results(done, "offline")["rows"]}
    assert "baselines.base_url" in rows["ada_002"]["reason"]
    assert "no pinned source" in rows["toolllm"]["reason"]
    assert any("2 of 8 rankers were not run" in note for note in results(done, "offline")["notes"])
    assert EvaluateStage().estimate(done)["not run"].keys() == NOT_RUN

    shutil.copytree(done.paths.root, tmp_path / "runs" / done.paths.root.name, copy_function=os.link)
    weights = tiny_bert(tmp_path / "weights")
    given = f'models.local={{"ToolBench/ToolBench_IR_bert_based_uncased" = "{weights}"}}'
    ctx = RunContext.create(fixture_settings(tmp_path, *FAST, given), Progress(quiet=True))
    folder = ctx.paths.raw / "evaluate"
    before = {p.name: (p / "_shard.json").stat().st_mtime_ns for p in folder.iterdir()}
    assert execute(EvaluateStage(), ctx).status == "done"
    after = {p.name: (p / "_shard.json").stat().st_mtime_ns for p in folder.iterdir()}
    assert {name for name in after if after[name] != before[name]} == {"ranker-toolllm"}
    again = {row["ranker"]: row for row in results(ctx, "offline")["rows"]}
    assert again["toolllm"]["status"] == "run" and again["toolllm"]["metrics"]
    assert again["rated"] == rows["rated"]
    assert execute(EvaluateStage(), ctx).status == "up to date"


def test_an_endpoint_that_is_away_is_asked_again(done: RunContext, tmp_path: Path) -> None:
    shutil.copytree(done.paths.root, tmp_path / "runs" / done.paths.root.name, copy_function=os.link)
    more = ('evaluate.rankers=["bm25","ada_002"]', "baselines.base_url=http://127.0.0.1:9/v1")
    ctx = RunContext.create(
        fixture_settings(tmp_path, *FAST, *more, "baselines.retries=0"), Progress(quiet=True)
    )
    for _ in range(2):
        outcome = execute(EvaluateStage(), ctx)
        assert outcome.status == "done" and outcome.report.summary["incomplete"] == ["ada_002"]
    row = next(r for r in results(ctx, "offline")["rows"] if r["ranker"] == "ada_002")
    assert row["status"] == "not run" and "no answer" in row["reason"]


def test_dynamic_table_has_rows_and_curves(done: RunContext) -> None:
    table = results(done, "dynamic")
    settings = done.settings.evaluate
    cells = [(rate, policy) for rate in settings.rates for policy in settings.policies]
    assert [(r["rate"], r["policy"]) for r in table["rows"]] == cells
    assert [(s["rate"], s["policy"]) for s in table["series"]] == cells
    for row in table["rows"]:
        assert row["set"] == "syn" and row["split"] == "test" and row["seeds"] == 2
        assert 0 <= row["SR"]["mean"] <= 1 and 0 <= row["FSR"]["mean"] <= 1
        assert row["underpowered"] is True and row["executions_per_step"] >= 1
        assert len(row["AS"]["steps"]) == 2
    assert any(note.startswith("Underpowered") for note in table["notes"])


def test_a_second_run_is_up_to_date_and_a_second_build_is_equal(done: RunContext, tmp_path: Path) -> None:
    assert execute(TrainStage(), done).status == "up to date"
    assert execute(EvaluateStage(), done).status == "up to date"
    again = build(tmp_path)
    execute(TrainStage(), again)
    execute(EvaluateStage(), again)
    assert (model_folder(again) / "router_config.json").is_file()
    for folder in ("out", "core"):
        one, two = getattr(done.paths, folder), getattr(again.paths, folder)
        files = sorted(p.relative_to(one) for p in one.rglob("*") if p.is_file())
        assert files == sorted(p.relative_to(two) for p in two.rglob("*") if p.is_file())
        for file in files:
            assert (one / file).read_bytes() == (two / file).read_bytes(), file


def test_estimates_need_no_training(done: RunContext) -> None:
    planned = TrainStage().estimate(done)
    assert planned["pairs"] > 0 and planned["steps"] > 0
    assert EvaluateStage().estimate(done)["simulated steps"] == 2 * 5 * 2 * 300


def test_test_queries_cannot_reach_the_training(done: RunContext, tmp_path: Path) -> None:
    """Other test, cold and Real tables give the same training key inputs but for the Syn tables' bytes."""
    data = load_core(done.paths.core)
    train = set(data.queries[("syn", "train")].ids)
    from ecoagent.evaluation.train_stage import rows_of

    assert {row.query_id for row in rows_of(data, done.settings.train, "train")} <= train
    assert not any("real" in path.name for path in TrainStage().inputs(done))


def test_golds_are_completed_by_duplicate_groups(tmp_path: Path) -> None:
    ctx = build(tmp_path)
    path = ctx.paths.core / "tools.parquet"
    tools = read_table(path).to_dicts()
    first, second = tools[0]["id"], tools[1]["id"]
    tools[1]["duplicate_group"] = tools[0]["duplicate_group"] = first
    write_table(path, tools, ScoredTool)
    data = load_core(ctx.paths.core)
    found = [golds for golds in data.golds.values() if first in golds]
    assert found and all(second in golds for golds in found)


def test_tables_that_do_not_belong_together_are_named(tmp_path: Path) -> None:
    ctx = build(tmp_path)
    core = ctx.paths.core
    qrels = read_table(core / "syn_qrels.parquet").to_dicts()
    qrels[0]["tool_id"] = "crewai:Nowhere"
    write_table(core / "syn_qrels.parquet", qrels, QrelRow)
    with pytest.raises(UserError, match="crewai:Nowhere"):
        load_core(core)
    (core / "syn_pairs.parquet").unlink()
    with pytest.raises(UserError, match="syn_pairs"):
        execute(TrainStage(), ctx)


def test_withheld_texts_name_the_remedy(tmp_path: Path) -> None:
    ctx = build(tmp_path)
    path = ctx.paths.core / "tools.parquet"
    tools = read_table(path).to_dicts()
    tools[2]["tool_text"] = ""
    write_table(path, tools, ScoredTool)
    with pytest.raises(UserError, match=r"1 tools have no text.*rehydrate"):
        load_core(ctx.paths.core)


def test_an_unknown_ranker_and_an_empty_train_split_stop_early(tmp_path: Path) -> None:
    ctx = build(tmp_path, 'evaluate.rankers=["bm25","magic"]')
    with pytest.raises(UserError, match="unknown ranker 'magic'"):
        EvaluateStage().plan(ctx)
    pairs = [
        row for row in read_table(ctx.paths.core / "syn_pairs.parquet").to_dicts() if row["split"] != "train"
    ]
    write_table(ctx.paths.core / "syn_pairs.parquet", pairs, PairRow)
    with pytest.raises(UserError, match="no training pairs"):
        execute(TrainStage(), ctx)


def test_rounding_reaches_every_float() -> None:
    assert rounded({"a": [0.12345678, (1, None)], "b": "x"}) == {"a": [0.123457, [1, None]], "b": "x"}


def test_cold_start_has_a_row_for_every_ranker(done: RunContext) -> None:
    found = results(done, "cold_start")
    offline = [r for r in results(done, "offline")["rows"] if (r["set"], r["split"]) == ("syn", "cold")]
    offline = [r for r in offline if r["status"] == "run"]
    assert [r["ranker"] for r in found["rows"]] == [r["ranker"] for r in offline] != []
    for row, same in zip(found["rows"], offline, strict=True):
        assert row["queries"] == same["n_queries"]
        assert row["metrics"]["MRR"] == same["metrics"]["MRR"]
        assert row["first"]["gold"] == same["metrics"]["Hit@1"]
        assert row["lost_to_seen"] <= row["seen_above_gold"] <= 1
    assert found["change"]["after"] == "rated" and found["tools"]["seen"] > 0 < found["tools"]["cold"]
