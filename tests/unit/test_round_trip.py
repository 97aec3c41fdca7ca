"""The round-trip ablation: who passes, arms and controls, clustered statistics, resumption."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner, Result

from ecoagent.cli.ablate import ablate_app
from ecoagent.evaluation import round_trip
from ecoagent.evaluation.clustered import cluster_interval, paired_test
from ecoagent.evaluation.round_trip import Filter, RoundTripStage, filter_of, make_arms, passing
from ecoagent.models import ModelStore
from ecoagent.retrieval import TrainingResult, TrainingRow
from ecoagent.runs import RunContext, execute, read_json, read_rows, write_table
from ecoagent.schema import QueryRow
from ecoagent.settings import UserError
from tests.unit.fixture_run import fixture_settings, write_fixture_run


def test_interval_of_single_queries_is_the_plain_one_and_wider_for_clusters() -> None:
    rng = np.random.default_rng(1)
    tools = np.repeat(np.arange(40), 10)
    values = (rng.random(40)[tools] + 0.1 * rng.random(400)).tolist()
    alone = cluster_interval(values, [str(i) for i in range(400)])
    together = cluster_interval(values, [str(t) for t in tools])
    assert alone.mean == pytest.approx(np.mean(values)) == together.mean
    half = 1.96 * float(np.std(values)) / 20
    assert (alone.high - alone.low) / 2 == pytest.approx(half, rel=0.1)
    assert together.high - together.low > 2 * (alone.high - alone.low)
    assert (together.values, together.clusters) == (400, 40)
    with pytest.raises(UserError, match="2 values and 1"):
        cluster_interval([0.1, 0.2], ["a"])


def test_clusters_of_unequal_size_weigh_by_their_queries() -> None:
    found = cluster_interval([1.0, 1.0, 1.0, 0.0], ["a", "a", "a", "b"])
    assert found.mean == 0.75 and found.low == 0.0 and found.high == 1.0


def test_paired_test_flips_whole_clusters() -> None:
    same = paired_test([0.5, 0.2, 0.1], [0.5, 0.2, 0.1], ["a", "b", "c"])
    assert same.p == 1.0 and same.difference.mean == 0.0
    # Three clusters have 8 sign patterns, 2 of which are as far from 0 as all alike: p = 1/4.
    few = paired_test([1.0] * 300, [0.0] * 300, ["a", "b", "c"] * 100, flips=20_000)
    assert few.p == pytest.approx(0.25, abs=0.02)
    many = paired_test([0.6] * 60, [0.4] * 60, [str(i) for i in range(60)])
    assert many.p == pytest.approx(1 / 10_001) and many.difference.low > 0.19


def test_paired_test_keeps_its_level() -> None:
    rng = np.random.default_rng(2)
    names = [str(i // 5) for i in range(100)]
    found = []
    for _ in range(200):
        shift = np.repeat(rng.normal(0, 0.2, 20), 5)
        values = rng.random(100)
        found.append(paired_test((values + shift).tolist(), values.tolist(), names, flips=500).p)
    assert np.mean(np.array(found) < 0.05) < 0.1


def queries(rows: Sequence[tuple[str, int | None, float | None]]) -> pl.DataFrame:
    return pl.DataFrame(
        list(rows),
        schema={"query_id": pl.String, "round_trip_rank": pl.Int64, "verifier_raw": pl.Float64},
        orient="row",
    )


RULE = Filter(10, "verifier_raw", 0.5)


def test_who_passes() -> None:
    table = queries([("a", 1, 0.9), ("b", 10, 0.5), ("c", 11, 0.9), ("d", 2, 0.4), ("e", 3, None)])
    found = passing(table, RULE)
    assert found["round_trip"] == {"a", "b", "d", "e"}
    assert found["verifier"] == {"a", "b", "c", "e"}
    assert found["both"] == {"a", "b", "e"}


def row(name: str) -> TrainingRow:
    return TrainingRow(name, f"text of {name}", "t", "tool", (), "t", frozenset({"t"}))


def test_controls_have_the_size_of_their_filter() -> None:
    rows = [row(f"q{i:02d}") for i in range(40)]
    passed = {
        "round_trip": frozenset(r.query_id for r in rows[:30]),
        "verifier": frozenset(r.query_id for r in rows[20:]),
        "both": frozenset(r.query_id for r in rows[20:30]),
    }
    arms, notes = make_arms(rows, passed, 0)
    sizes = {a.name: len(a.rows) for a in arms}
    assert sizes == {
        "all": 40, "round_trip": 30, "random_round_trip": 30,
        "verifier": 20, "random_verifier": 20, "both": 10, "random_both": 10,
    }  # fmt: skip
    assert notes == []
    again, other = make_arms(rows, passed, 0)[0], make_arms(rows, passed, 1)[0]
    assert [a.content for a in again] == [a.content for a in arms]
    by_name = {a.name: a for a in other}
    assert by_name["round_trip"].rows == arms[1].rows and by_name["random_round_trip"].rows != arms[2].rows
    assert len(set(arms[2].rows)) == 30 and set(arms[2].rows) <= set(rows)


def test_an_arm_like_another_is_not_trained() -> None:
    rows = [row("a"), row("b")]
    everything, nothing = frozenset({"a", "b"}), frozenset[str]()
    arms, notes = make_arms(rows, {"round_trip": everything, "verifier": nothing, "both": nothing}, 0)
    assert [a.name for a in arms] == ["all"]
    assert "same pairs as 'all'" in notes[0] and "no training pair passes" in notes[1]


def test_the_cut_is_the_runs_own(tmp_path: Path) -> None:
    settings = fixture_settings(tmp_path)
    assert filter_of(settings, 5, None) == Filter(5, "verifier_score", settings.labeling.verifier_threshold)
    assert filter_of(settings, 5, 0.2) == Filter(5, "verifier_raw", 0.2)
    own = fixture_settings(tmp_path, "synthesis.min_verifier_raw=0.3", "synthesis.verify_queries=true")
    assert filter_of(own, 5, None) == Filter(5, "verifier_raw", 0.3)
    raw = fixture_settings(tmp_path, "labeling.verifier_score=raw", "labeling.verifier_threshold=0.85")
    assert filter_of(raw, 5, None) == Filter(5, "verifier_raw", 0.85)


class WordTowers:
    """An encoder of words by hash, so that the stage runs without weights."""

    name = "words"

    def _encode(self, texts: Sequence[str]) -> Any:
        vectors = np.zeros((len(texts), 64), dtype=np.float32)
        for n, text in enumerate(texts):
            for word in text.lower().split():
                vectors[n, hashlib.sha256(word.encode()).digest()[0] % 64] += 1
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)

    def encode_queries(self, texts: Sequence[str], on_batch: Any = None) -> Any:
        return self._encode(texts)

    def encode_documents(self, texts: Sequence[str], on_batch: Any = None) -> Any:
        return self._encode(texts)


class Trainings(list[tuple[int, int, Path]]):
    """Trainings asked for, as (pairs, seed, folder)."""

    stop_after: int | None = None
    """Trainings after which the process is stopped."""


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Trainings:
    """What was asked to be trained; nothing is."""
    calls = Trainings()

    def train(rows: Sequence[TrainingRow], settings: Any, **asked: Any) -> TrainingResult:
        if len(calls) == calls.stop_after:
            raise KeyboardInterrupt
        calls.append((len(rows), asked["seed"], asked["output"]))
        (asked["output"] / "weights").write_text("large")
        return TrainingResult([1.0], [0], [len(rows)], 0, "float32")

    monkeypatch.setattr(round_trip, "train_two_tower", train)
    monkeypatch.setattr(round_trip, "build_towers", lambda *a, **k: None)
    monkeypatch.setattr(round_trip, "SentenceEncoder", lambda *a, **k: WordTowers())
    monkeypatch.setattr(round_trip, "load_two_tower", lambda *a, **k: WordTowers())
    monkeypatch.setattr(ModelStore, "path", lambda self, name, progress=None: Path(name))
    monkeypatch.setattr(ModelStore, "digest", lambda self, name: name)
    return calls


def scored_run(outputs: Path) -> RunContext:
    """A fixture run whose Syn queries have verifier scores."""
    ctx = write_fixture_run(fixture_settings(outputs))
    path = ctx.paths.core / "syn_queries.parquet"
    rows = read_rows(path, QueryRow)
    scored = [q.model_copy(update={"verifier_raw": 0.9 if n % 3 else 0.1}) for n, q in enumerate(rows)]
    write_table(path, scored, QueryRow)
    return ctx


def ask(ctx: RunContext, **asked: Any) -> dict[str, Any]:
    stage = RoundTripStage(Filter(2, "verifier_raw", 0.5), **asked)
    stage.prepare(ctx)
    execute(stage, ctx)
    found: dict[str, Any] = read_json(ctx.paths.out / "results" / "round_trip.json")
    return found


def test_stage_compares_arms_on_unfiltered_tests(tmp_path: Path, trained: Trainings) -> None:
    ctx = scored_run(tmp_path)
    content = ask(ctx)
    arms = {a["arm"]: a["pairs"] for a in content["arms"]}
    assert arms["untrained"] is None and arms["random_both"] == arms["both"] < arms["verifier"] < arms["all"]
    assert len(trained) == 7 and {seed for _, seed, _ in trained} == {0}
    # Towers are gone, and never lay where the run's own are.
    assert not any(folder.exists() for _, _, folder in trained)
    assert not (ctx.paths.raw / "train").exists()
    assert {(r["set"], r["split"]) for r in content["rows"]} == {
        ("syn", "test"),
        ("syn", "cold"),
        ("real", "val"),
    }
    first = {r["arm"]: r for r in content["rows"] if r["split"] == "test"}
    # The stub's towers are the same for every arm.
    assert first["both"]["against_all"]["difference"] == 0.0 and first["both"]["against_all"]["p"] == 1.0
    assert "against_random" in first["both"] and "against_random" not in first["random_both"]
    assert "against_all" not in first["all"] and first["all"]["tools"] <= first["all"]["queries"]
    test = pl.read_parquet(ctx.paths.core / "syn_queries.parquet").filter(pl.col("split") == "test")
    assert first["all"]["queries"] == test.height
    assert content["passed"]["verified"] == content["passed"]["queries"]
    assert any("One seed" in n for n in content["notes"])
    cold = next(r for r in content["rows"] if r["split"] == "cold")
    assert f"syn cold: {cold['tools']} tools are too few for its intervals to hold." in content["notes"]


def test_finished_arms_are_kept(tmp_path: Path, trained: Trainings) -> None:
    ctx = scored_run(tmp_path)
    trained.stop_after = 3
    with pytest.raises(KeyboardInterrupt):
        ask(ctx)
    assert not (ctx.paths.out / "results" / "round_trip.json").exists()
    trained.stop_after = None
    unbroken = scored_run(tmp_path / "other")
    assert ask(ctx) == ask(unbroken)
    assert len(trained) == 7 + 7
    ask(ctx)
    assert len(trained) == 14, "up to date"
    content = ask(ctx, seeds=2)
    assert len(trained) == 21, "the first seed is not trained again"
    assert content["seeds"] == [0, 1] and len(content["rows"][1]["by_seed"]) == 2


def test_limit_caps_the_pairs(tmp_path: Path, trained: Trainings) -> None:
    content = ask(scored_run(tmp_path), limit=12)
    assert trained[0][0] == 12 and any("capped at 12" in n for n in content["notes"])


def test_without_verdicts_the_verifier_has_no_arm(tmp_path: Path, trained: Trainings) -> None:
    ctx = write_fixture_run(fixture_settings(tmp_path))
    planned = RoundTripStage(Filter(2, "verifier_raw", 0.5)).estimate(ctx)
    assert set(planned["pairs"]) == {"all", "round_trip", "random_round_trip"}
    assert planned["trainings"] == 3 and planned["minutes on 2 cores"] > 0
    assert any("verify_queries" in n for n in planned["left out"])
    assert trained == []


def test_a_table_of_an_older_release_is_named(tmp_path: Path, trained: Trainings) -> None:
    ctx = scored_run(tmp_path)
    path = ctx.paths.core / "syn_queries.parquet"
    pl.read_parquet(path).drop("verifier_raw").write_parquet(path)
    with pytest.raises(UserError, match="verifier_raw"):
        ask(ctx)


def call(ctx: RunContext, *words: str) -> Result:
    outputs = f'outputs="{ctx.settings.outputs}"'
    return CliRunner().invoke(
        ablate_app, ["round-trip", "--run", ctx.paths.root.name, "--set", outputs, *words]
    )


def test_command_plans_and_measures(tmp_path: Path, trained: Trainings) -> None:
    ctx = scored_run(tmp_path)
    planned = call(ctx, "--max-rank", "2", "--min-raw", "0.5", "--dry-run", "--json")
    assert planned.exit_code == 0 and json.loads(planned.stdout)["round trip"]["trainings"] == 7
    assert trained == [] and not (ctx.paths.raw / "round_trip").exists()
    done = call(ctx, "--max-rank", "2", "--min-raw", "0.5", "--limit", "40", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["filter"]["max_rank"] == 2
    # The limit is not left behind as the run's own.
    assert read_json(ctx.paths.manifest)["settings"]["limit"] is None
    shown = call(ctx, "--max-rank", "2", "--min-raw", "0.5", "--limit", "40")
    assert shown.exit_code == 0 and "random_both" in shown.stdout
    assert call(RunContext.create(fixture_settings(tmp_path, run="absent"))).exit_code == 2
