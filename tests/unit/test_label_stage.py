"""The chain on a small catalog, with a scripted stand-in of the LLM and a word-overlap encoder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ecoagent.labeling import stage as stage_module
from ecoagent.labeling.splits import deal_splits
from ecoagent.labeling.stage import LabelStage
from ecoagent.labeling.stats import Noted, agreement
from ecoagent.llm import (
    GenerationRequest,
    GenerationResponse,
    ResponseStore,
    StoredEngine,
    error_response,
    request_hash,
)
from ecoagent.llm.protocol import OnResponse
from ecoagent.runs import Progress, RunContext, execute, read_json, read_rows, write_table
from ecoagent.schema import (
    Deprecation,
    Provenance,
    QrelRow,
    QueryRow,
    RejectRow,
    ScoredTool,
    VerdictRow,
    tokens,
    tool_text,
)
from ecoagent.settings import Settings, UserError, load_settings

WORDS = ("weather", "parcel", "recipe", "flight", "invoice", "song")


class OverlapEncoder:
    """Counts the words of WORDS: a stand-in with understandable cosines."""

    name, dim = "overlap", len(WORDS) + 1

    def _encode(self, texts: Sequence[str], on_batch: Any = None) -> np.ndarray:
        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        for i, text in enumerate(texts):
            found = tokens(text)
            rows[i, :-1] = [float(w in found) for w in WORDS]
            rows[i, -1] = 0.0 if rows[i].any() else 1.0
        if on_batch:
            on_batch(len(texts))
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    encode_queries = encode_documents = _encode


class ScriptedVerifier:
    """A scripted stand-in of the LLM: says yes unless the request holds the word 'play' or 'cook'."""

    model = "scripted"

    def __init__(self) -> None:
        self.asked = 0

    def generate(
        self, requests: Sequence[GenerationRequest], *, label: str = "model"
    ) -> list[GenerationResponse]:
        self.asked += len(requests)
        out = []
        for request in requests:
            said = request.messages[-1]["content"].split("Request:")[1].lower()
            text = (
                "hm"
                if "mumble" in said
                else '{"score": 0.2}'
                if {"play", "cook"} & tokens(said)
                else '{"score": 0.9}'
            )
            out.append(
                GenerationResponse(
                    id=request.id,
                    request_hash=request_hash(self.model, request),
                    model=self.model,
                    text=text,
                    tokens_in=10,
                    tokens_out=5,
                    finish_reason="stop",
                    status="ok",
                )
            )
        return out


def tool(word: str, identifier: str, duplicate_of: str | None = None) -> ScoredTool:
    description = f"Finds what there is about {word}."
    return ScoredTool(
        id=identifier,
        source="crewai",
        name=f"{word} finder",
        description=description,
        description_origin="class",
        kind="tool",
        granularity="tool",
        group_id=identifier,
        auth_required="no",
        deprecated=Deprecation(state=False),
        provenance=Provenance(
            artifact="a", artifact_version="1", sha256="0", path="p", backend="client", parser_version="1"
        ),
        provider="p",
        duplicate_group=duplicate_of or identifier,
        tool_text=tool_text(f"{word} finder", description),
        r_cons=0.5,
        w_src=0.9,
        r_qual=0.5,
        r_static=0.6,
        reliable=False,
    )


TOOLS = [tool(w, f"crewai:{w.title()}") for w in WORDS] + [tool("weather", "crewai:Zephyr", "crewai:Weather")]
REQUESTS: list[dict[str, Any]] = [
    {"id": "r1", "text": "weather in Turku this evening", "gold": ["crewai:Weather"]},
    {"id": "r2", "text": "where on earth is my parcel", "gold": ["crewai:Parcel"]},
    {"id": "r3", "text": "a recipe with leeks and rye", "gold": ["crewai:Recipe"]},
    {"id": "r4", "text": "cheapest flight to Faro", "gold": ["crewai:Flight"]},
    {"id": "r5", "text": "read the invoice of Mrs. Sand", "gold": ["crewai:Invoice"]},
    {"id": "r6", "text": "play the song loudly", "gold": []},
    {"id": "r7", "text": "book me a haircut", "gold": []},
    {"id": "r8", "text": "mumble about a song", "gold": ["crewai:Song"]},
    {"id": "r9", "text": "weather and flight for Oslo", "gold": ["crewai:Flight", "crewai:Weather"]},
    {"id": "c1", "text": "what parcel rates are there", "gold": ["crewai:Parcel"], "fold": "calibration"},
]


def context(tmp_path: Path, *overrides: str, requests: list[dict[str, Any]] | None = None) -> RunContext:
    path = tmp_path / "requests.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in requests or REQUESTS))
    settings = load_settings(
        "local",
        env={},
        overrides=[
            f'labeling.queries="{path}"',
            'labeling.verifier_score="raw"',
            'labeling.verifier_form="score"',
            "labeling.verifier_threshold=0.5",
            "labeling.min_cosine=0.5",
            "labeling.max_verified=100",
            "labeling.lexical_top_k=0",
            "llm.reference=none",
            *overrides,
        ],
        outputs=tmp_path / "outputs",
    )
    ctx = RunContext.create(settings, Progress(quiet=True))
    write_table(ctx.paths.core / "tools.parquet", sorted(TOOLS, key=lambda t: t.id), ScoredTool)
    return ctx


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> ScriptedVerifier:
    scripted = ScriptedVerifier()
    monkeypatch.setattr(stage_module, "open_engine", lambda settings, progress=None: scripted)
    monkeypatch.setattr(LabelStage, "_encoder", lambda self, ctx: OverlapEncoder())
    return scripted


def test_chain_keeps_what_the_verifier_says_and_explains_the_rest(
    tmp_path: Path, engine: ScriptedVerifier
) -> None:
    ctx = context(tmp_path)
    outcome = execute(LabelStage(), ctx)
    core = ctx.paths.core
    queries = read_rows(core / "real_queries.parquet", QueryRow)
    qrels = read_rows(core / "real_qrels.parquet", QrelRow)
    rejects = read_rows(core / "real_rejects.parquet", RejectRow)
    verdicts = read_rows(core / "verdicts.parquet", VerdictRow)
    by_text = {q.text: q for q in queries}
    # Raw scores decide, so the calibration fold may be part of Real.
    assert len(queries) == 7
    assert {q.split for q in queries} == {"val", "test"}
    assert all(q.origin == "requests" and q.set == "real" for q in queries)
    assert [q.query_id for q in queries] == sorted(q.query_id for q in queries)
    assert {(r.reason, r.detail.split(";")[0]) for r in rejects} == {
        ("no_candidate", "request r7"),
        ("no_pair_kept", "request r6"),
        ("no_verdict", "request r8"),
    }
    weather = {
        r.tool_id: r.origin for r in qrels if r.query_id == by_text["weather in Turku this evening"].query_id
    }
    assert weather == {"crewai:Weather": "verified", "crewai:Zephyr": "verified"}
    assert {v.stage for v in verdicts} == {"encoder", "verifier"}
    assert all((v.response_hash is None) == (v.stage == "encoder") for v in verdicts)
    assert {v.reason for v in verdicts if not v.kept} == {
        "below_min_cosine",
        "below_verifier_threshold",
        "unparsable",
    }
    stats = read_json(core / "label_stats.json")
    assert stats["yield"]["queries_verified"] == 9
    assert stats["yield"]["pairs_unreadable"] == 1
    assert stats["agreement"]["all"]["precision"] == 1.0
    assert stats["agreement"]["all"]["of_these_left_empty"] == 2
    assert set(stats["agreement"]["by_query_type"]) == {"none", "single"}
    assert outcome.report.rows["real_queries"] == 7
    # Two tools with one text are one question.
    assert outcome.report.rows["real_responses"] == 10
    assert outcome.report.tokens == {"in": 100, "out": 50}


def test_duplicates_of_a_kept_tool_are_gold(tmp_path: Path, engine: ScriptedVerifier) -> None:
    ctx = context(tmp_path, "labeling.top_k=1")
    execute(LabelStage(), ctx)
    qrels = read_rows(ctx.paths.core / "real_qrels.parquet", QrelRow)
    zephyr = [r for r in qrels if r.tool_id == "crewai:Zephyr"]
    assert zephyr
    assert {r.origin for r in zephyr} == {"duplicate_group"}
    assert all(r.verifier_raw is None and r.encoder_score is None and r.grade == 1 for r in zephyr)


def test_budget_limit_and_held_out_fold_are_recorded(
    tmp_path: Path, engine: ScriptedVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = context(tmp_path, "labeling.max_verified=4", "limit=8")
    stage = LabelStage()
    execute(stage, ctx)
    reasons = [r.reason for r in read_rows(ctx.paths.core / "real_rejects.parquet", RejectRow)]
    assert reasons.count("limit") == 2
    assert reasons.count("not_verified") >= 2
    details = [
        r.detail
        for r in read_rows(ctx.paths.core / "real_rejects.parquet", RejectRow)
        if r.reason == "not_verified"
    ]
    assert all(d.endswith("; beyond labeling.max_verified = 4") for d in details)
    waiting = {
        v.reason for v in read_rows(ctx.paths.core / "verdicts.parquet", VerdictRow) if v.stage == "encoder"
    }
    assert waiting == {"not_verified", "below_min_cosine"}
    verified = {
        v.query_id for v in read_rows(ctx.paths.core / "verdicts.parquet", VerdictRow) if v.response_hash
    }
    assert len(verified) == 4
    assert stage.estimate(ctx)["verified_queries_at_most"] == 4

    from ecoagent.labeling.prepare import prepare
    from ecoagent.labeling.requests import load_requests

    held = prepare(
        load_requests(ctx.settings.labeling.queries),
        TOOLS,
        OverlapEncoder,
        top_k=5,
        min_cosine=0.5,
        max_verified=None,
        limit=None,
        hold_out_calibration=True,
        seed=0,
    )
    assert [r.detail for r in held.rejects if r.reason == "calibration_fold"] == ["request c1"]
    assert "c1" not in {r.id for r in held.queries.values()}


def test_equal_runs_give_equal_bytes_and_a_second_run_asks_nothing(
    tmp_path: Path, engine: ScriptedVerifier
) -> None:
    ctx = context(tmp_path)
    execute(LabelStage(), ctx)
    names = [
        "real_queries.parquet",
        "real_qrels.parquet",
        "verdicts.parquet",
        "real_rejects.parquet",
        "real_responses.parquet",
        "label_stats.json",
    ]
    first = {n: (ctx.paths.core / n).read_bytes() for n in names}
    asked = engine.asked
    assert execute(LabelStage(), ctx).status == "up to date"
    assert engine.asked == asked
    assert execute(LabelStage(), ctx, force=True).status == "done"
    assert {n: (ctx.paths.core / n).read_bytes() for n in names} == first


class Outage:
    """The scripted verifier as an engine; it fails on requests whose text holds a word of ``down``."""

    model = ScriptedVerifier.model

    def __init__(self, *down: str) -> None:
        self.down = frozenset(down)
        self.asked: list[str] = []

    def generate(
        self, requests: Sequence[GenerationRequest], on_response: OnResponse | None = None
    ) -> list[GenerationResponse]:
        answers = []
        for request, answer in zip(requests, ScriptedVerifier().generate(requests), strict=True):
            said = request.messages[-1]["content"].split("Request:")[1]
            self.asked.append(said.strip())
            down = self.down & tokens(said)
            answers.append(error_response(self.model, request, "http_503") if down else answer)
            if on_response is not None:
                on_response(answers[-1])
        return answers

    def close(self) -> None:
        pass


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch, engine: ScriptedVerifier) -> Outage:
    """An engine behind a store of responses, as a run has it, and a shard a query or so."""
    made = Outage()

    def opened(settings: Settings, progress: object = None) -> StoredEngine:
        return StoredEngine(made.model, lambda: made, ResponseStore(settings.llm.store))

    monkeypatch.setattr(stage_module, "open_engine", opened)
    monkeypatch.setattr(stage_module, "QUERIES_PER_SHARD", 2)
    return made


def tables(ctx: RunContext) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(ctx.paths.core.iterdir())}


def test_a_later_run_asks_failed_questions_again_and_nothing_else(tmp_path: Path, outage: Outage) -> None:
    whole = context(tmp_path / "whole")
    assert execute(LabelStage(), whole).report.summary["incomplete"] == 0
    outage.down = frozenset({"faro", "turku"})
    ctx = context(tmp_path)
    first = execute(LabelStage(), ctx)
    failed = first.report.summary["incomplete"]
    assert failed == first.report.summary["yield"]["pairs_failed"] - 1 > 0  # two tools with one text
    assert tables(ctx) != tables(whole)
    del outage.asked[:]
    outage.down = frozenset()
    second = execute(LabelStage(), ctx)
    assert second.status == "done" and second.report.summary["incomplete"] == 0
    assert len(outage.asked) == failed
    assert all({"faro", "turku"} & tokens(said) for said in outage.asked)
    assert tables(ctx) == tables(whole)
    assert execute(LabelStage(), ctx).status == "up to date"


def test_an_outage_of_everything_is_said_and_mended_by_the_next_run(tmp_path: Path, outage: Outage) -> None:
    outage.down = frozenset().union(*(tokens(r["text"]) for r in REQUESTS))
    ctx = context(tmp_path)
    with pytest.raises(
        UserError, match=r"(\d+) of \1 requests to .* failed \(error:http_503 \1\).*same command"
    ):
        execute(LabelStage(), ctx)
    outage.down = frozenset()
    assert execute(LabelStage(), ctx).report.rows["real_queries"] == 7


def test_a_wrong_encoder_is_told_by_its_name_not_as_a_missing_calibration(tmp_path: Path) -> None:
    ctx = context(tmp_path, "labeling.encoder=all-MiniLM-L6-v3")
    with pytest.raises(UserError, match="no model 'all-MiniLM-L6-v3'"):
        execute(LabelStage(), ctx)


def test_shards_share_one_reading_of_the_catalog_and_one_grouping(
    tmp_path: Path, engine: ScriptedVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_module, "QUERIES_PER_SHARD", 1)
    read: list[Path] = []

    def counted(path: Path, model: Any) -> Any:
        read.append(path)
        return read_rows(path, model)

    monkeypatch.setattr(stage_module, "read_rows", counted)
    stage, ctx = LabelStage(), context(tmp_path)
    execute(stage, ctx)
    assert len(list((ctx.paths.raw / "label").iterdir())) > 3
    assert read == [ctx.paths.core / "tools.parquet"]
    prepared = stage._prepared(ctx)
    assert prepared is stage._prepared(ctx)
    assert prepared.candidates.by_query is prepared.candidates.by_query
    # Other tools are other bytes: what was read before no longer stands.
    write_table(ctx.paths.core / "tools.parquet", TOOLS[:3], ScoredTool)
    assert len(stage._tools(ctx)) == 3 and len(read) == 2


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["labeling.min_cosine=1.0"], "lower labeling.min_cosine"),
        (["labeling.verifier_threshold=0.95"], "lower labeling.verifier_threshold"),
        (["labeling.max_verified=1"], "raise labeling.max_verified"),
    ],
)
def test_an_empty_split_names_the_threshold(
    tmp_path: Path, engine: ScriptedVerifier, overrides: list[str], said: str
) -> None:
    requests = [r | {"text": f"{r['text']} parcel weather"} for r in REQUESTS] if "cosine" in said else None
    with pytest.raises(UserError, match=said):
        execute(LabelStage(), context(tmp_path, *overrides, requests=requests))


def test_calibrated_scores_need_a_calibration(tmp_path: Path, engine: ScriptedVerifier) -> None:
    ctx = context(tmp_path, 'labeling.verifier_score="calibrated"', 'llm.model="google/gemma-3-1b-it"')
    with pytest.raises(UserError, match=r"no calibration of 'google/gemma-3-1b-it'"):
        execute(LabelStage(), ctx)


def test_splits_are_stratified_and_never_empty() -> None:
    strata = {f"q{i:03d}": ("single" if i % 3 else "several") for i in range(61)}
    dealt = deal_splits(strata, (0.0, 0.5, 0.5), 0)
    for kind in ("single", "several"):
        mine = [dealt[q] for q in strata if strata[q] == kind]
        assert abs(mine.count("val") - mine.count("test")) <= 1
    assert deal_splits(dict(reversed(strata.items())), (0.0, 0.5, 0.5), 0) == dealt
    assert deal_splits(strata, (0.0, 0.5, 0.5), 1) != dealt
    assert sorted(deal_splits({"a": "single", "b": "several"}, (0.0, 0.5, 0.5), 0).values()) == [
        "test",
        "val",
    ]
    eighty = list(deal_splits(strata, (0.8, 0.1, 0.1), 0).values())
    assert (eighty.count("train"), eighty.count("val"), eighty.count("test")) == (49, 6, 6)


def test_agreement_counts() -> None:
    def row(query: str, tool_id: str, kept: bool) -> VerdictRow:
        return VerdictRow(query_id=query, tool_id=tool_id, stage="verifier", encoder_score=0.5, kept=kept)

    noted = {
        "a": Noted(frozenset({"t1", "t2", "t9"}), "several"),
        "b": Noted(frozenset(), "none"),
        "c": Noted(frozenset(), "none"),
        "d": Noted(frozenset({"t4"}), "single"),
    }
    judged = {
        "a": [row("a", "t1", True), row("a", "t2", False), row("a", "t3", True)],
        "b": [row("b", "t1", True)],
    }
    found = agreement(noted, judged, ["c", "d"])
    assert found["all"] == {
        "queries": 4,
        "pairs_kept": 3,
        "pairs_right": 1,
        "noted_among_candidates": 2,
        "noted_in_catalog": 4,
        "precision": 0.3333,
        "recall_of_candidates": 0.5,
        "recall_of_noted": 0.25,
        "f1": 0.4,
        "queries_with_a_noted_tool": 2,
        "of_these_with_a_right_pair": 1,
        "queries_without_right_tool": 2,
        "of_these_left_empty": 1,
    }
    assert found["by_query_type"]["single"]["precision"] is None
