"""The stages of TR-Feedback on a small complete run, with random towers and a scripted critic."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ecoagent.evaluation import feedback_data, feedback_stage
from ecoagent.evaluation.datasets import load_core
from ecoagent.evaluation.feedback_data import LATENCY, load_feedback, read_latency
from ecoagent.evaluation.feedback_stage import FeedbackStage
from ecoagent.evaluation.feedback_table import FEEDBACK_METRICS, latency_rows
from ecoagent.evaluation.feedback_train import FeedbackTrainStage, model_folder
from ecoagent.llm import GenerationRequest, GenerationResponse, StoredEngine
from ecoagent.llm.protocol import OnResponse
from ecoagent.llm.store import ResponseStore
from ecoagent.metrics import evaluate_run
from ecoagent.report.feedback import feedback_section
from ecoagent.retrieval import SentenceEncoder, load_two_tower, rank_dense
from ecoagent.runs import RunContext, Stage, execute, read_json, read_rows
from ecoagent.schema import FeedbackRow, ResponseRow
from ecoagent.settings import Settings
from tests.unit.fixture_run import WORDS, fixture_settings, write_fixture_run
from tests.unit.test_feedback import ScriptedCritic, assessed
from tests.unit.tiny_bert import write_tiny_bert

OUTPUTS = ("core/feedback.parquet", "core/feedback_responses.parquet", "core/feedback_training.json",
           "out/results/feedback.json")  # fmt: skip


def script(turn: int, first: str) -> str | None:
    """Writes the request's own first words, once; stops for some, talks for others."""
    request = first.split("Request: ")[1].splitlines()[0]
    kind = sum(map(ord, request)) % 4
    if turn == 0:
        return "The person wants something."
    if turn == 1:
        return "none of them" if kind == 1 else assessed(stop=kind == 2)
    return "please find " + " ".join(request.split()[:4]).lower().strip("?.")


class Killed(BaseException):
    """What a killed process looks like to a test."""


class Critics:
    """Stands in for the process's engines: one store, one scripted critic a model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: dict[str, ScriptedCritic] = {}
        self.engines: dict[str, StoredEngine] = {}
        self.dies_after: int | None = None

    def __call__(self, settings: Settings, progress: Any = None) -> StoredEngine:
        model = settings.llm.model
        if model not in self.opened:
            critic = ScriptedCritic(script)
            critic.model = model
            outer, plain = self, critic.generate

            def generate(
                requests: Sequence[GenerationRequest], on_response: OnResponse | None = None
            ) -> list[GenerationResponse]:
                found = []
                for request in requests:
                    if outer.dies_after is not None and outer.asked() >= outer.dies_after:
                        raise Killed
                    found += plain([request], on_response)
                return found

            critic.generate = generate  # type: ignore[method-assign]
            self.opened[model] = critic
            store = ResponseStore(self.folder / "responses.sqlite")
            self.engines[model] = StoredEngine(model, lambda: critic, store, progress)
        return self.engines[model]

    def asked(self) -> int:
        return sum(len(c.asked) for c in self.opened.values())


def run(ctx: RunContext, limit: int | None = None, *, force: bool = False) -> list[str]:
    stages: list[Stage] = [FeedbackTrainStage(limit), FeedbackStage(limit)]
    return [execute(stage, ctx, force=force).status for stage in stages]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_bert(tmp_path_factory.mktemp("weights"), [*WORDS, "search", "tags", "please", "find"])


def context(outputs: Path, tiny: Path, *overrides: str) -> RunContext:
    chosen = (
        f'models.local={{tiny="{tiny}"}}',
        'feedback.encoder="tiny"',
        "feedback.max_length=32",
        "feedback.batch_size=8",
        "feedback.epochs=2",
        "feedback.learning_rate=1e-3",
        "feedback.critic_queries=6",
        "feedback.test_queries=8",
        "feedback.held_out=0.3",
        'feedback.critics=["one","two"]',
        *overrides,
    )
    return write_fixture_run(fixture_settings(outputs, *chosen), tools=20, per_tool=5)


@pytest.fixture(scope="module")
def critics(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = Critics(tmp_path_factory.mktemp("store"))
    patch = pytest.MonkeyPatch()
    patch.setattr(feedback_data, "open_engine", made)
    yield made
    patch.undo()


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, tiny: Path, critics: Critics) -> RunContext:
    ctx = context(tmp_path_factory.mktemp("outputs"), tiny)
    assert run(ctx) == ["done", "done"]
    return ctx


def result(ctx: RunContext) -> dict[str, Any]:
    found: dict[str, Any] = read_json(ctx.paths.out / "results" / "feedback.json")
    return found


def test_every_critic_domain_and_iteration_has_a_row(done: RunContext) -> None:
    rows = result(done)["rows"]
    names = [*(f"iteration {t}" for t in range(4)), "all iterations fused", "fused"]
    assert [(r["critic"], r["domain"], r["ranking"]) for r in rows] == [
        (c, d, n) for c in ("one", "two") for d in ("in_domain", "out_of_domain") for n in names
    ]
    for row in rows:
        assert set(row["metrics"]) == set(FEEDBACK_METRICS) and row["queries"] > 0
        for metric, value in row["metrics"].items():
            low, high = row["intervals"][metric]
            assert 0 <= low <= value <= high <= 1
        assert bool(row["against_first"]) == (row["ranking"] != "iteration 0")
        for metric, test in row["against_first"].items():
            first = next(r for r in rows if r["domain"] == row["domain"] and r["critic"] == row["critic"])
            gain = row["metrics"][metric] - first["metrics"][metric]
            assert test["difference"] == pytest.approx(gain, abs=2e-6)
            assert test["interval"][0] <= test["difference"] <= test["interval"][1] and 0 < test["p"] <= 1


def test_iteration_zero_is_the_plain_ranker_of_the_trained_towers(done: RunContext) -> None:
    data = load_feedback(done)
    model = load_two_tower(model_folder(done)).model
    model.prompts = {"query": "Iteration 0: ", "document": ""}
    for domain in ("in_domain", "out_of_domain"):
        queries = FeedbackStage().queries(done, data)[domain]
        plain = rank_dense(SentenceEncoder(model, name="plain"), queries, data.data.tools, 100)
        golds = {q: data.data.golds[q] for q in queries.ids}
        expected = evaluate_run(plain, golds, FEEDBACK_METRICS).means()
        row = next(r for r in result(done)["rows"] if r["domain"] == domain and r["iteration"] == 0)
        assert row["metrics"] == pytest.approx(expected, abs=1e-6)


def test_held_out_categories_are_in_no_training_row(done: RunContext) -> None:
    found = load_feedback(done)
    assert found.held and result(done)["categories"]["held_out"] == sorted(found.held)
    rows = found.rows(done.settings.feedback, {})
    assert rows and not {found.categories[r.pair.tool_id] for r in rows} & found.held
    data = load_core(done.paths.core)
    train = set(data.queries["syn", "train"].ids)
    assert {r.pair.query_id for r in rows} <= train
    stage = FeedbackStage()
    for domain, part in stage.queries(done, found).items():
        assert not set(part.ids) & train
        for query in part.ids:
            inside = {found.categories[g] in found.held for g in data.golds[query]}
            assert inside == {domain == "out_of_domain"}
    first = found.rows(done.settings.feedback, {rows[-1].pair.query_id: {1: "again"}})[0]
    assert first.pair.query_id == rows[-1].pair.query_id and first.texts[1] == "again"


def test_every_query_of_every_iteration_is_stored_with_its_answers(done: RunContext) -> None:
    rows = read_rows(done.paths.core / "feedback.parquet", FeedbackRow)
    answers = {r.request_hash for r in read_rows(done.paths.core / "feedback_responses.parquet", ResponseRow)}
    assert {h for r in rows for h in r.response_hashes} == answers
    by_query: dict[Any, list[int]] = {}
    for row in rows:
        by_query.setdefault((row.part, row.critic, row.query_id), []).append(row.iteration)
    assert all(found == [0, 1, 2, 3] for found in by_query.values())
    assert {(r.part, r.critic) for r in rows} == {("train", "one"), ("test", "one"), ("test", "two")}
    assert {r.status for r in rows} == {"original", "rewritten", "stopped", "fallback"}
    for told in result(done)["critics"]:
        own = [
            r for r in rows if (r.part, r.critic, r.iteration) == ("test", told["critic"], told["iteration"])
        ]
        assert told["queries"] == told["rewritten"] + told["stopped"] + told["fallback"]
        assert sum(told["reasons"].values()) == told["fallback"] and told["tokens_in"] <= sum(
            r.tokens_in for r in own
        )


def test_the_training_record_says_what_was_done(done: RunContext) -> None:
    record = read_json(done.paths.core / "feedback_training.json")
    assert record["critic"] == "one" and record["critic_queries"] == 6
    assert record["iterations"]["texts"]["0"] == record["iterations"]["pairs"] == record["warm"]["pairs"]
    assert record["iterations"]["texts"]["1"] == record["critic_outcomes"]["rewritten"] > 0
    assert len(record["warm"]["validation"]) == 2 and len(record["weights"]) == 2
    named = {d["setting"]: d for d in record["deviations_from_paper"]}
    assert named["feedback.batch_size"] == {"setting": "feedback.batch_size", "paper": 128, "here": 8}
    assert "feedback.tau" not in named and "seconds" not in json.dumps(record)


def test_a_second_run_is_up_to_date_and_a_forced_one_is_equal(
    done: RunContext, tmp_path: Path, tiny: Path, critics: Critics
) -> None:
    asked = critics.asked()
    assert run(done) == ["up to date", "up to date"]
    again = context(tmp_path, tiny)
    run(again)
    assert critics.asked() == asked, "a stored answer was asked for again"
    for name in OUTPUTS:
        assert (done.paths.root / name).read_bytes() == (again.paths.root / name).read_bytes(), name
    assert read_latency(again.paths.raw / LATENCY).get("one", {}).get("1", {}).get("asked") is None


def test_a_killed_run_goes_on_where_it_was(
    done: RunContext, tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = Critics(tmp_path)
    monkeypatch.setattr(feedback_data, "open_engine", fresh)
    ctx = context(tmp_path / "outputs", tiny)
    for most in (5, 40):
        fresh.dies_after = most
        with pytest.raises(Killed):
            run(ctx)
        assert fresh.asked() == most
    fresh.dies_after = None
    # The second kill came after the training.
    assert run(ctx) == ["up to date", "done"]
    told = [text for critic in fresh.opened.values() for text in critic.asked]
    assert len(told) == len(read_rows(ctx.paths.core / "feedback_responses.parquet", ResponseRow))
    for name in OUTPUTS:
        assert (done.paths.root / name).read_bytes() == (ctx.paths.root / name).read_bytes(), name


def test_times_stand_beside_the_results(done: RunContext) -> None:
    times = latency_rows(read_latency(done.paths.raw / LATENCY))
    assert {(t["critic"], t["iteration"]) for t in times} >= {("one", 0), ("one", 1), ("two", 1)}
    assert all(t["s_per_query"] is None or t["s_per_query"] >= 0 for t in times)
    assert "latency" not in json.dumps(result(done)) and "_s" not in result(done)["rows"][0]
    assert latency_rows({"x": 3, "y": {"1": None, "2": {"asked": 6, "queries": 2, "asked_s": 3.0}}}) == [
        {"critic": "y", "iteration": 2, "requests": 6, "s_per_query": 1.5, "ms_search_per_query": None}
    ]
    assert read_latency(done.paths.root / "nowhere.json") == {}


def test_the_gate_calls_nobody_or_everybody_at_its_ends(done: RunContext) -> None:
    found, stage = load_feedback(done), FeedbackStage()
    part = stage._judged(done, found)[0]
    gate = feedback_stage.Gate(
        **{k: result(done)["gate"][k] for k in ("slope", "intercept", "queries", "right")}
    )
    folder = next(p for p in (done.paths.raw / "feedback").iterdir() if p.name.startswith("critic-"))
    runs = [feedback_stage.load_run(folder / f"iteration-{t}.parquet", "x") for t in range(4)]
    for value, other in ((0.0, "iteration 0"), (1.0, "all iterations fused")):
        chosen = done.settings.feedback.model_copy(update={"gate": value})
        settings = done.settings.model_copy(update={"feedback": chosen})
        found_runs = stage._rankings(found, settings, part, runs, gate)
        assert found_runs["fused"][1].tool_ids == found_runs[other][1].tool_ids
    for row in result(done)["gate"]["by_domain"]:
        assert 0 <= row["called"] <= row["queries"] and row["tokens"] <= row["tokens_without_gate"]


def test_estimates_count_the_questions_and_ask_none(done: RunContext, critics: Critics) -> None:
    asked = critics.asked()
    planned = FeedbackStage().estimate(done)
    test = sum(planned["test queries"].values())
    assert planned["requests_at_most"] == 3 * 3 * (planned["training queries"] + 2 * test)
    assert planned["tokens_in_at_most"] > 100 * planned["requests_at_most"] and planned["minutes_at_most"] > 0
    assert FeedbackTrainStage().estimate(done)["pairs"] > 0
    assert FeedbackStage(2).estimate(done)["training queries"] == 2
    assert critics.asked() == asked


def test_the_report_has_a_section_with_its_figure(done: RunContext) -> None:
    section, figures = feedback_section(result(done), read_latency(done.paths.raw / LATENCY))
    assert section is not None and len(section["groups"]) == 4
    assert figures["feedback"].png == feedback_section(result(done), {})[1]["feedback"].png
    assert figures["feedback"].png.startswith(b"\x89PNG") and "Recall@5" in figures["feedback"].alt
    assert feedback_section(None, {}) == (None, {})
    assert feedback_section({"rows": []}, {})[1] == {}


def test_the_command_plans_without_doing(done: RunContext, critics: Critics, capfd: Any) -> None:
    from typer.testing import CliRunner

    from ecoagent.cli.app import app

    asked = critics.asked()
    options = ["--run", done.paths.root.name, "--set", f"outputs={done.settings.outputs}", "--limit", "3"]
    found = CliRunner().invoke(app, ["feedback", *options, "--dry-run", "--json"])
    assert found.exit_code == 0, found.output
    planned = json.loads(capfd.readouterr().out or found.stdout)
    assert planned["feedback"]["training queries"] == 3
    assert planned["feedback"]["test queries"]["in_domain"] <= 3
    assert planned["feedback_train"]["state"] == "would run" and critics.asked() == asked
    missing = CliRunner().invoke(app, ["feedback", "--run", "nowhere", *options[2:]])
    assert missing.exit_code == 2
