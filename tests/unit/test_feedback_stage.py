"""The stages of TR-Feedback on a small complete run, with random towers and a scripted critic."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ecoagent.evaluation import feedback_data, feedback_stage, train_stage
from ecoagent.evaluation.datasets import EvalData, load_core
from ecoagent.evaluation.feedback_data import LATENCY, load_feedback, read_latency
from ecoagent.evaluation.feedback_estimate import EXPECTED_SHARE
from ecoagent.evaluation.feedback_rated import RatedVectors, rated_ranking, read_vectors
from ecoagent.evaluation.feedback_stage import FeedbackStage
from ecoagent.evaluation.feedback_table import FEEDBACK_METRICS, latency_rows
from ecoagent.evaluation.feedback_train import FeedbackTrainStage, model_folder
from ecoagent.feedback.critic import TOKENS_PER_WORD
from ecoagent.llm import GenerationRequest, GenerationResponse, StoredEngine
from ecoagent.llm.protocol import OnResponse
from ecoagent.llm.store import ResponseStore
from ecoagent.metrics import evaluate_run
from ecoagent.rated import PolicyContext, policy_spec
from ecoagent.report.feedback import feedback_section
from ecoagent.retrieval import (
    RankedRun,
    SentenceEncoder,
    TextSet,
    build_two_tower,
    load_two_tower,
    rank_dense,
    save_two_tower,
)
from ecoagent.runs import RunContext, Stage, execute, read_json, read_rows, write_json
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


def with_rated(ctx: RunContext, tiny: Path) -> RunContext:
    """The run with towers as the train stage leaves them."""
    towers = build_two_tower(tiny, tiny, pooling="mean", max_length=32)
    save_two_tower(towers, train_stage.model_folder(ctx))
    return ctx


@pytest.fixture(scope="module")
def critics(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = Critics(tmp_path_factory.mktemp("store"))
    patch = pytest.MonkeyPatch()
    patch.setattr(feedback_data, "open_engine", made)
    yield made
    patch.undo()


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, tiny: Path, critics: Critics) -> RunContext:
    ctx = with_rated(context(tmp_path_factory.mktemp("outputs"), tiny), tiny)
    assert run(ctx) == ["done", "done"]
    return ctx


def result(ctx: RunContext) -> dict[str, Any]:
    found: dict[str, Any] = read_json(ctx.paths.out / "results" / "feedback.json")
    return found


def test_every_critic_domain_and_iteration_has_a_row(done: RunContext) -> None:
    rows = result(done)["rows"]
    fused = [*(f"fused 0..{t}" for t in range(1, 4)), "fused, gated"]
    names = [*(f"iteration {t}" for t in range(4)), *fused]
    names += [f"RATED over {n}" for n in ("its own candidates", "iteration 0", *fused)]
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
    again = with_rated(context(tmp_path, tiny), tiny)
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
    ctx = with_rated(context(tmp_path / "outputs", tiny), tiny)
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
    vectors = read_vectors(done.paths.raw / "feedback" / "rated", stage._all_queries(done, found))
    for value, other in ((0.0, "iteration 0"), (1.0, "fused 0..3")):
        chosen = done.settings.feedback.model_copy(update={"gate": value})
        settings = done.settings.model_copy(update={"feedback": chosen})
        rankings = stage._rankings(found, settings, part, runs, gate, vectors)
        by_name = {r.name: r.run.tool_ids for r in rankings}
        assert by_name["fused, gated"] == by_name[other]
        assert by_name["RATED over fused, gated"] == by_name[f"RATED over {other}"]
    for row in result(done)["gate"]["by_domain"]:
        assert 0 <= row["called"] <= row["queries"] and row["tokens"] <= row["tokens_without_gate"]


# RATED's order of what the iterations found


def random_vectors(data: EvalData, seed: int, queries: TextSet) -> RatedVectors:
    rng = np.random.default_rng(seed)

    def drawn(count: int) -> Any:
        found = rng.normal(size=(count, 24)).astype(np.float32)
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    return RatedVectors(queries.ids, drawn(len(queries)), drawn(len(data.tools)))


@pytest.mark.parametrize("seed", range(3))
def test_rated_orders_the_candidates_as_its_first_step_would(done: RunContext, seed: int) -> None:
    """Eq. 9 written out; and what Algorithm 1, which has executed nothing, would choose."""
    data = load_core(done.paths.core, need_pairs=False)
    queries = data.judged("syn", "test")
    vectors, evaluate = random_vectors(data, seed, queries), done.settings.evaluate
    rng, k = np.random.default_rng(seed + 10), evaluate.top_k
    lists = [[str(t) for t in rng.permutation(data.tools.ids)] for _ in queries.ids]
    fused = RankedRun("fused", queries.ids, lists, [[-float(n) for n in range(len(x))] for x in lists])
    found = rated_ranking(fused, vectors, data, evaluate)
    place = {tool: n for n, tool in enumerate(data.tools.ids)}
    w1, w2, w3 = evaluate.fusion
    context = PolicyContext(
        np.array([data.r_static[t] for t in data.tools.ids]), 24, evaluate.alpha, evaluate.gamma
    )
    for n, query in enumerate(queries.ids):
        x = vectors.contexts[n].astype(np.float64)
        assert set(found.tool_ids[n]) == set(lists[n][:k])

        def final(tool: str, x: Any = x) -> float:
            cold = data.r_static[tool] * float(x.sum()) / np.sqrt(24) + evaluate.alpha
            return w1 * float(vectors.tools[place[tool]] @ x) + w2 * cold + w3 * data.r_static[tool]

        assert found.scores[n] == pytest.approx([final(t) for t in found.tool_ids[n]], abs=2e-6)
        assert found.scores[n] == sorted(found.scores[n], reverse=True)
        arms = np.array(sorted((place[t] for t in lists[n][:k]), key=lambda a: -float(vectors.tools[a] @ x)))
        semantic, static = vectors.tools[arms] @ x, context.prior[arms]
        (chosen,) = policy_spec("rated").build(context).choose(1, vectors.contexts[n], arms, semantic, static)
        assert data.tools.ids[chosen] == found.tool_ids[n][0], query


def test_rated_rows_are_those_of_the_towers_of_the_run(done: RunContext) -> None:
    found, stage = load_feedback(done), FeedbackStage()
    model = load_two_tower(train_stage.model_folder(done))
    for part in stage._judged(done, found):
        queries = stage.queries(done, found)[part.domain]
        own = rank_dense(model, queries, found.data.tools, done.settings.evaluate.top_k)
        vectors = RatedVectors(
            queries.ids, model.encode_queries(queries.texts), model.encode_documents(found.data.tools.texts)
        )
        again = rated_ranking(own, vectors, found.data, done.settings.evaluate)
        expected = evaluate_run(again, part.golds, FEEDBACK_METRICS).means()
        for row in result(done)["rows"]:
            if (row["domain"], row["ranking"]) == (part.domain, "RATED over its own candidates"):
                assert row["metrics"] == pytest.approx(expected, abs=1e-6)
                assert row["rated"] and row["fused_to"] is None and row["iteration"] is None


def test_without_towers_of_rated_its_rows_are_left_out_and_come_later(
    done: RunContext, tmp_path: Path, tiny: Path, critics: Critics
) -> None:
    ctx, asked = context(tmp_path, tiny), critics.asked()
    assert run(ctx) == ["done", "done"]
    whole = [r for r in result(done)["rows"] if not r["rated"]]
    assert result(ctx)["rows"] == whole and len(whole) < len(result(done)["rows"])
    assert any("towers were not trained" in note for note in result(ctx)["notes"])
    kept = {p.name: p.stat().st_mtime_ns for p in (ctx.paths.raw / "feedback").iterdir()}
    assert run(with_rated(ctx, tiny)) == ["up to date", "done"]
    now = {p.name: p.stat().st_mtime_ns for p in (ctx.paths.raw / "feedback").iterdir()}
    # What the critics did does not hang on RATED.
    assert {name: now[name] for name in kept} == kept and now.keys() - kept.keys() == {"rated"}
    assert result(ctx) == result(done) and critics.asked() == asked


def test_estimates_say_what_is_assumed_and_take_what_the_run_measured(
    done: RunContext, tmp_path: Path, tiny: Path, critics: Critics
) -> None:
    ctx = context(tmp_path, tiny)
    fresh = FeedbackStage().estimate(ctx)
    assert fresh["minutes_at_most"] > 0
    write_json(
        ctx.paths.raw / LATENCY,
        {
            "one": {"0": {"searched": 9, "searched_s": 9.0}, "1": {"asked": 10, "asked_s": 20.0}},
            "two": {"1": {"asked": 3, "asked_s": 2.0}, "2": {"asked": 1, "asked_s": 2.0}},
        },
    )
    timed, tests = FeedbackStage().estimate(ctx), sum(fresh["test queries"].values())
    # Nine requests a query: two seconds each of the first critic, one of the second.
    minutes = 9 * (2 * (tests + fresh["training queries"]) + tests) / 60
    assert timed["minutes_at_most"] == pytest.approx(minutes, abs=0.051)
    assert timed["speed"].endswith("one 2.00 s over 10, two 1.00 s over 4")
    assert fresh["generated tokens"] == "assumed: 75%, 45%, 25% of the limits; not measured"
    assert "this run" not in fresh["speed"] and fresh["texts RATED encodes at most"] == 0
    settings = done.settings.feedback
    limits = (settings.comprehension_tokens, settings.assessment_tokens)
    limits += (TOKENS_PER_WORD * settings.max_words + 16,)
    a_query = sum(share * limit for share, limit in zip(EXPECTED_SHARE, limits, strict=True))
    assert fresh["tokens_out_at_most"] == pytest.approx(a_query * fresh["requests_at_most"] / 3, abs=2)
    known = FeedbackStage().estimate(done)
    answers = read_rows(done.paths.core / "feedback_responses.parquet", ResponseRow)
    assert known["generated tokens"].endswith(f"of the limits over {len(answers):,} answers")
    assert known["generated tokens"].startswith("measured: ")
    # A scripted answer has three tokens, far from what is assumed of a turn.
    assert known["tokens_out_at_most"] == pytest.approx(3 * known["requests_at_most"], abs=2)
    assert known["requests_at_most"] == fresh["requests_at_most"]
    assert known["speed"].startswith("measured, this run's own requests: one ") and ", two " in known["speed"]
    alone = done.settings.feedback.model_copy(update={"critics": ("three",)})
    other = replace(done, settings=done.settings.model_copy(update={"feedback": alone}))
    unknown = FeedbackStage().estimate(other)
    assert "assumed" in unknown["generated tokens"] and "this run" not in unknown["speed"]
    training = FeedbackTrainStage().estimate(done)
    assert "MiniLM" in training["minutes from"] and "tiny is not known" in training["minutes from"]


def test_estimates_count_the_questions_and_ask_none(done: RunContext, critics: Critics) -> None:
    asked = critics.asked()
    planned = FeedbackStage().estimate(done)
    test = sum(planned["test queries"].values())
    assert planned["requests_at_most"] == 3 * 3 * (planned["training queries"] + 2 * test)
    assert planned["tokens_in_at_most"] > 100 * planned["requests_at_most"]
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
