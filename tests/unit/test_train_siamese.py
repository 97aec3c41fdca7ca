"""The siamese encoder in the stages: trained beside RATED's towers where its row is asked for, and judged."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ecoagent.cli.app import app
from ecoagent.evaluation import run_index, train_stage
from ecoagent.evaluation.stage import EvaluateStage
from ecoagent.evaluation.train_stage import SIAMESE, SIAMESE_RECORD, TrainStage, model_folder
from ecoagent.retrieval import EXPANSION, load_expansion, load_two_tower, training
from ecoagent.runs import Progress, RunContext, Shard, StageOutcome, execute, read_json, read_table
from ecoagent.settings import UserError
from tests.unit.fixture_run import fixture_settings, write_fixture_run
from tests.unit.test_benchmarks import write_set
from tests.unit.tiny_bert import write_tiny_bert

RANKERS = ["bm25", "rated", "siamese"]
WITHOUT = 'evaluate.rankers=["bm25","rated"]'


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("weights")
    return {name: write_tiny_bert(folder / name, seed=n) for n, name in enumerate(("tiny", "other"))}


def options(weights: dict[str, Path], *more: str) -> list[str]:
    local = ", ".join(f'{name} = "{path}"' for name, path in weights.items())
    fast = ["evaluate.steps=60", "evaluate.onset=20", "evaluate.window=30", "evaluate.adaptation_window=10"]
    encoders = ["train.query_encoder=tiny", "train.tool_encoder=tiny", "train.siamese.encoder=other"]
    short = ["train.max_length=16", "train.siamese.max_length=16", "train.batch_size=8", "evaluate.seeds=1"]
    single = ["train.cpu_bfloat16=false", f"evaluate.rankers={json.dumps(RANKERS)}"]
    return [f"models.local={{{local}}}", *fast, *encoders, *short, *single, *more]


def build(outputs: Path, weights: dict[str, Path], *more: str) -> RunContext:
    ctx = write_fixture_run(fixture_settings(outputs, *options(weights, *more)))
    (ctx.paths.core / "training.json").unlink()
    return ctx


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, weights: dict[str, Path]) -> RunContext:
    ctx = build(tmp_path_factory.mktemp("outputs"), weights)
    execute(TrainStage(), ctx)
    execute(EvaluateStage(), ctx)
    return ctx


@pytest.fixture
def again(done: RunContext, weights: dict[str, Path], tmp_path: Path) -> Callable[..., RunContext]:
    """The finished run in a folder of its own, with other settings."""
    shutil.copytree(done.paths.root, tmp_path / "runs" / done.paths.root.name, copy_function=os.link)

    def changed(*more: str) -> RunContext:
        settings = fixture_settings(tmp_path, *options(weights, *more))
        return RunContext.create(settings, Progress(quiet=True))

    return changed


def written(ctx: RunContext, stage: str) -> dict[str, int]:
    """When each shard was written."""
    folder = ctx.paths.raw / stage
    return {p.name: (p / "_shard.json").stat().st_mtime_ns for p in folder.iterdir()}


def run(stage: Any, ctx: RunContext) -> tuple[StageOutcome, set[str]]:
    """How a stage ended, and the shards that it wrote."""
    before = written(ctx, stage.name)
    outcome = execute(stage, ctx)
    after = written(ctx, stage.name)
    return outcome, {name for name in after if after[name] != before.get(name)}


def row_of(ctx: RunContext) -> dict[str, Any]:
    rows = read_json(ctx.paths.out / "results" / "offline.json")["rows"]
    return next(row for row in rows if row["ranker"] == SIAMESE)


# What is trained


def test_each_encoder_has_its_shard_and_record(done: RunContext) -> None:
    assert set(written(done, "train")) == {"all", "siamese"}
    rated = read_json(done.paths.core / "training.json")
    siamese = read_json(done.paths.core / SIAMESE_RECORD)
    assert (rated["settings"]["towers"], siamese["settings"]["towers"]) == ("two", "one")
    assert siamese["settings"]["query_encoder"] == siamese["settings"]["tool_encoder"] == "other"
    assert len(rated["weights"]) == 2 and len(siamese["weights"]) == 1
    assert siamese["pairs"] == rated["pairs"] and siamese["queries"] == rated["queries"]
    assert (rated["settings"]["batch_size"], siamese["settings"]["batch_size"]) == (8, 16)
    for record in (rated, siamese):
        assert "siamese" not in record["settings"] and record["precision"] == "float32"
        assert set(record["validation"]["trained"]) == {"loss", "MRR"}
    named = {d["setting"]: d["here"] for d in siamese["deviations_from_paper"]}
    assert named["train.towers"] == "one" and named["train.pooling"] == "mean"
    assert "train.towers" not in {d["setting"] for d in rated["deviations_from_paper"]}


def test_it_has_one_vector_for_a_text_on_either_side(done: RunContext) -> None:
    texts = list(read_table(done.paths.core / "syn_queries.parquet")["text"][:4])
    one = load_two_tower(model_folder(done, SIAMESE))
    assert (one.encode_queries(texts) == one.encode_documents(texts)).all()
    two = load_two_tower(model_folder(done))
    assert np.abs(two.encode_queries(texts) - two.encode_documents(texts)).max() > 1e-4


def test_its_row_is_judged_beside_the_others(done: RunContext) -> None:
    row = row_of(done)
    assert row["status"] == "run" and row["role"] == "" and row["model"] == "other"
    assert row["label"] == "Siamese encoder (other, trained)" and 0 < row["metrics"]["MRR"] <= 1
    assert (done.paths.out / "trec" / "syn.test.siamese.run").is_file()
    assert execute(TrainStage(), done).status == execute(EvaluateStage(), done).status == "up to date"


@pytest.mark.parametrize(
    ("changed", "trained", "judged"),
    [
        ("train.siamese.learning_rate=1e-3", {"siamese"}, {"ranker-siamese"}),
        ("train.siamese.hard_negatives=0", {"siamese"}, {"ranker-siamese"}),
        ("train.learning_rate=1e-3", {"all"}, {"ranker-rated", "dynamic"}),
        ("train.hard_negatives=0", {"all"}, {"ranker-rated", "dynamic"}),
        ("train.symmetric_weight=0.5", {"all", "siamese"}, {"ranker-rated", "dynamic", "ranker-siamese"}),
    ],
)
def test_a_setting_of_one_encoder_has_the_other_kept(
    again: Callable[..., RunContext], done: RunContext, changed: str, trained: set[str], judged: set[str]
) -> None:
    ctx = again(changed)
    outcome, shards = run(TrainStage(), ctx)
    assert outcome.status == "done" and shards == trained
    assert run(EvaluateStage(), ctx)[1] == judged
    for shard, record in train_stage.RECORDS.items():
        kept = (ctx.paths.core / record).read_bytes() == (done.paths.core / record).read_bytes()
        assert kept == (shard not in trained)


def test_leaving_the_row_out_removes_its_record(again: Callable[..., RunContext], done: RunContext) -> None:
    ctx = again(WITHOUT)
    assert run(TrainStage(), ctx)[1] == set()
    assert not (ctx.paths.core / SIAMESE_RECORD).exists() and not model_folder(ctx, SIAMESE).exists()
    assert (ctx.paths.core / "training.json").read_bytes() == (done.paths.core / "training.json").read_bytes()
    execute(EvaluateStage(), ctx)
    rows = read_json(ctx.paths.out / "results" / "offline.json")["rows"]
    assert {row["ranker"] for row in rows} == {"bm25", "rated"}
    assert not list((ctx.paths.out / "trec").glob("*.siamese.run"))
    assert execute(TrainStage(), ctx).status == execute(EvaluateStage(), ctx).status == "up to date"
    # Asked for again it is trained again, to the same bytes.
    ctx = again()
    assert run(TrainStage(), ctx)[1] == {"siamese"}
    for name in ("training.json", SIAMESE_RECORD):
        assert (ctx.paths.core / name).read_bytes() == (done.paths.core / name).read_bytes()


def test_bfloat16_falls_back_and_the_records_say_so(
    again: Callable[..., RunContext], done: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(training, "multiplies_bfloat16", lambda: bool(asked.append(True)))
    ctx = again("train.cpu_bfloat16=true")
    assert run(TrainStage(), ctx)[1] == {"all", "siamese"} and len(asked) == 2
    for name in train_stage.RECORDS.values():
        here, there = read_json(ctx.paths.core / name), read_json(done.paths.core / name)
        assert here["precision"] == "float32" and here["settings"]["cpu_bfloat16"] is True
        assert here["weights"] == there["weights"] and here["losses"] == there["losses"]
    monkeypatch.setattr(training, "multiplies_bfloat16", lambda: True)
    execute(TrainStage(), ctx, force=True)
    half = read_json(ctx.paths.core / SIAMESE_RECORD)
    assert half["precision"] == "bfloat16" and half["weights"] != there["weights"]


def test_the_estimate_names_each_encoder(done: RunContext, again: Callable[..., RunContext]) -> None:
    planned = TrainStage().estimate(done)
    assert set(planned) == {"all", "siamese"}
    record = read_json(done.paths.core / SIAMESE_RECORD)
    assert (planned["siamese"]["pairs"], planned["siamese"]["steps"]) == (
        record["pairs"],
        len(record["losses"]),
    )
    assert TrainStage().estimate(again(WITHOUT)) == planned["all"]


# What is not


def test_missing_weights_give_a_row_with_a_reason_and_no_shard(
    again: Callable[..., RunContext], done: RunContext
) -> None:
    ctx = again("train.siamese.encoder=thenlper/gte-large")
    assert [s.key for s in TrainStage().plan(ctx)] == ["all"]
    assert run(TrainStage(), ctx)[1] == set()
    assert not model_folder(ctx, SIAMESE).exists() and not (ctx.paths.core / SIAMESE_RECORD).exists()
    outcome, shards = run(EvaluateStage(), ctx)
    assert shards == {"ranker-siamese"} and "incomplete" not in outcome.report.summary
    row = row_of(ctx)
    assert row["status"] == "not run" and row["label"] == "Siamese encoder (gte-large, trained)"
    assert "the weights of thenlper/gte-large are not in the store" in row["reason"]
    assert EvaluateStage().estimate(ctx)["not run"] == {"siamese": row["reason"]}
    assert execute(EvaluateStage(), ctx).status == "up to date"
    assert "no pinned source of mine" in str(
        EvaluateStage().estimate(again("train.siamese.encoder=mine"))["not run"]["siamese"]
    )


def test_an_encoder_that_is_not_trained_is_judged_once_it_is(
    weights: dict[str, Path], tmp_path: Path, done: RunContext
) -> None:
    without, asked = (build(tmp_path, weights, *more) for more in ((WITHOUT,), ()))
    execute(TrainStage(), without)
    for _ in range(2):
        outcome = execute(EvaluateStage(), asked)
        assert outcome.status == "done" and outcome.report.summary["incomplete"] == ["siamese"]
    row = row_of(asked)
    assert row["status"] == "not run" and "has not been trained" in row["reason"]
    execute(TrainStage(), asked)
    outcome, shards = run(EvaluateStage(), asked)
    assert shards == {"ranker-siamese"} and "incomplete" not in outcome.report.summary
    assert row_of(asked) == row_of(done)
    assert execute(EvaluateStage(), asked).status == "up to date"


def test_weights_that_are_damaged_are_trained_again(again: Callable[..., RunContext]) -> None:
    ctx = again()
    [file] = model_folder(ctx, SIAMESE).glob("*.safetensors")
    whole = file.read_bytes()
    file.unlink()  # the copy is a link
    file.write_bytes(whole[:-1])
    outcome, shards = run(TrainStage(), ctx)
    assert outcome.status == "done" and shards == {"siamese"} and file.read_bytes() == whole


# Training queries in the tool vectors


def test_the_expansion_is_made_once_and_its_weight_is_free(
    again: Callable[..., RunContext], done: RunContext
) -> None:
    ctx = again("train.siamese.expansion_weight=0.5")
    # Before it is trained for: the row waits.
    assert execute(EvaluateStage(), ctx).report.summary["incomplete"] == ["siamese"]
    assert "without train.siamese.expansion_weight" in row_of(ctx)["reason"]
    assert run(TrainStage(), ctx)[1] == {"siamese"}
    found = load_expansion(model_folder(ctx, SIAMESE) / EXPANSION)
    assert len(found) == read_json(ctx.paths.core / SIAMESE_RECORD)["tools"]
    assert run(EvaluateStage(), ctx)[1] == {"ranker-siamese"}
    half = row_of(ctx)
    assert half["status"] == "run" and half["metrics"] != row_of(done)["metrics"]
    heavier = again("train.siamese.expansion_weight=2.0")
    assert run(TrainStage(), heavier)[1] == set()
    assert run(EvaluateStage(), heavier)[1] == {"ranker-siamese"}
    assert row_of(heavier)["metrics"] != half["metrics"]


def test_a_damaged_expansion_is_found_and_made_again(again: Callable[..., RunContext]) -> None:
    ctx = again("train.siamese.expansion_weight=0.5")
    execute(TrainStage(), ctx)
    path = model_folder(ctx, SIAMESE) / EXPANSION
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    with pytest.raises(UserError, match=r"expansion\.npz holds no vectors.*ecoagent train"):
        execute(EvaluateStage(), ctx)
    assert run(TrainStage(), ctx)[1] == {"siamese"} and path.read_bytes() == whole
    execute(EvaluateStage(), ctx)
    assert row_of(ctx)["status"] == "run"


# In threads


def in_threads(work: Callable[[Shard], str], shards: Sequence[Shard]) -> None:
    """A mapper that starts every shard at once."""
    with ThreadPoolExecutor(len(shards)) as pool:
        for future in [pool.submit(work, shard) for shard in shards]:
            future.result()


def test_shards_in_threads_train_one_after_the_other(
    weights: dict[str, Path], tmp_path: Path, done: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[bool] = []
    meeting = threading.Barrier(2)
    train, measure = train_stage.train_two_tower, train_stage.Validation.measure

    def alone(call: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*words: Any, **more: Any) -> Any:
            try:
                # Passed only if the other shard is at work as well.
                meeting.wait(timeout=0.5)
                met.append(True)
            except threading.BrokenBarrierError:
                met.append(False)
                meeting.reset()
            return call(*words, **more)

        return guarded

    monkeypatch.setattr(train_stage, "train_two_tower", alone(train))
    monkeypatch.setattr(train_stage.Validation, "measure", alone(measure))
    ctx = build(tmp_path, weights)
    execute(TrainStage(), ctx, mapper=in_threads)
    assert met == [False] * 6, "two trainings, each measured before and after"
    for name in train_stage.RECORDS.values():
        assert (ctx.paths.core / name).read_bytes() == (done.paths.core / name).read_bytes()


# Elsewhere


def test_it_is_judged_on_independent_sets(
    again: Callable[..., RunContext], weights: dict[str, Path], tmp_path: Path
) -> None:
    sets = write_set(tmp_path / "sets", "restbench")
    ctx = again()

    def judge(*more: str) -> dict[str, Any]:
        chosen = [f"outputs={tmp_path}", *options(weights, *more)]
        words = ["--profile", "local", "--run", ctx.paths.root.name, "--json"]
        words += [part for pair in chosen for part in ("--set", pair)]
        done = CliRunner().invoke(app, ["evaluate", "--benchmark", f"{sets}/restbench", *words])
        assert done.exit_code == 0, done.output
        found: dict[str, Any] = json.loads(done.stdout)
        return {r["ranker"]: r for r in found["rows"]}

    first = judge()
    assert first["siamese"]["label"] == "Siamese encoder (other, trained)"
    assert {row["status"] for row in first.values()} == {"run"}
    assert judge() == first
    # Other weights are another key; RATED's row does not hang on them.
    execute(TrainStage(), again("train.siamese.learning_rate=0.01", "train.siamese.expansion_weight=1.0"))
    before = written(ctx, "benchmark-restbench")
    wide = judge("train.siamese.learning_rate=0.01", "train.siamese.expansion_weight=1.0")
    after = written(ctx, "benchmark-restbench")
    assert {name for name in after if after[name] != before[name]} == {"siamese"}
    assert wide["rated"] == first["rated"] and wide["siamese"]["label"].endswith("tool vectors)")
    shutil.rmtree(model_folder(ctx, SIAMESE))
    missing = judge()
    assert missing["rated"] == first["rated"] and missing["siamese"]["status"] == "not run"
    assert "has not been trained" in missing["siamese"]["reason"]
    execute(TrainStage(), again())
    assert judge() == first


def test_the_index_takes_it_before_the_towers(
    again: Callable[..., RunContext], weights: dict[str, Path]
) -> None:
    ctx = again()
    texts = list(read_table(ctx.paths.core / "tools.parquet")["tool_text"][:3])
    found = run_index.run_encoder(ctx)
    assert found.name == "siamese encoder"
    expected = load_two_tower(model_folder(ctx, SIAMESE)).encode_documents(texts)
    assert np.abs(found.encode_documents(texts) - expected).max() < 1e-6
    wide = again("train.siamese.expansion_weight=1.0")
    execute(TrainStage(), wide)
    assert run_index.run_encoder(wide).identity != found.identity
    assert np.abs(run_index.run_encoder(wide).encode_documents(texts) - expected).max() > 1e-3
    without = again(WITHOUT)
    execute(TrainStage(), without)
    assert run_index.run_encoder(without).name == "trained towers"
