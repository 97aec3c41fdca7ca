"""The round trip of a generated query: columns, filters and their limits, counts, what redoes a shard."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ecoagent.llm import GenerationRequest, GenerationResponse, error_response
from ecoagent.runs import RunContext, StageReport, digest, execute, read_rows, write_table
from ecoagent.schema import Operation, QueryRow, RejectRow, ResponseRow, ScoredTool, fold_space, query_id
from ecoagent.settings import SynthesisSettings, UserError, load_settings
from ecoagent.synthesis import stage as stage_module
from ecoagent.synthesis.assemble import assemble, keep_found, merge_texts
from ecoagent.synthesis.filters import Query
from ecoagent.synthesis.generate import Coverage
from ecoagent.synthesis.negatives import ToolPool
from ecoagent.synthesis.stage import SynthesizeStage
from tests.unit.fixture_run import fixture_settings, make_tools
from tests.unit.llm_scripted import answer
from tests.unit.test_synthesis_generate import ScriptedModel, _HashEncoder

VERDICTS = ('{"score": 0.2}', '{"score": 0.5}', '{"score": 0.9}', "hm, hard to say", None)
"""What the verifier says, by hash of the text; None is a failed request."""
SCORES = (0.2, 0.5, 0.9, None, None)
LIMIT = 0.5


def kind_of(text: str) -> int:
    return hashlib.sha256(fold_space(text).encode()).digest()[0] % len(VERDICTS)


class ScriptedPair(ScriptedModel):
    """A scripted generator that is its own verifier."""

    def __init__(self) -> None:
        super().__init__()
        self.verified: list[GenerationResponse] = []
        self.judged: Counter[int] = Counter()

    def generate(
        self, requests: Sequence[GenerationRequest], on_response: object = None, **_: object
    ) -> list[GenerationResponse]:
        if not all("Request:" in r.messages[-1]["content"] for r in requests):
            return super().generate(list(requests), on_response)
        found = []
        for request in requests:
            kind = kind_of(request.messages[-1]["content"].split("Request:")[1].splitlines()[0])
            said = VERDICTS[kind]
            self.judged[kind] += 1
            found.append(
                error_response(self.model, request, "timeout")
                if said is None
                else answer(self.model, request, said)
            )
        self.verified += found
        return found


class Run:
    """One run of the stage on the fixture's tools, verified."""

    def __init__(self, outputs: Path, *overrides: str) -> None:
        self.model = ScriptedPair()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stage_module, "open_engine", lambda settings, progress: self.model)
            patch.setattr(stage_module, "load_sbert", lambda ctx, name: _HashEncoder())
            self.ctx = context(outputs, *overrides)
            self.report: StageReport = execute(SynthesizeStage(), self.ctx).report
        core = self.ctx.paths.core
        self.queries = {q.query_id: q for q in read_rows(core / "syn_queries.parquet", QueryRow)}
        self.rejects = read_rows(core / "syn_rejects.parquet", RejectRow)
        self.responses = {r.request_hash: r for r in read_rows(core / "syn_responses.parquet", ResponseRow)}


def context(outputs: Path, *overrides: str) -> RunContext:
    ctx = RunContext.create(
        fixture_settings(
            outputs,
            "synthesis.tools_per_catalog=3",
            "flow.tools_per_shard=2",
            "synthesis.verify_queries=true",
            'labeling.verifier_form="score"',
            *overrides,
        )
    )
    write_table(ctx.paths.core / "tools.parquet", sorted(make_tools(40), key=lambda t: t.id), ScoredTool)
    return ctx


@pytest.fixture(scope="module")
def unfiltered(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("unfiltered"))


def test_every_query_has_its_rank_and_score(unfiltered: Run) -> None:
    queries = unfiltered.queries.values()
    assert len(queries) > 100
    assert [q.verifier_raw for q in queries] == [SCORES[kind_of(q.text)] for q in queries]
    ranks = [q.round_trip_rank for q in queries]
    assert all(r is not None and 1 <= r <= 40 for r in ranks) and len(set(ranks)) > 3
    said = {r.request_hash for r in unfiltered.model.verified}
    assert len(said) >= len(queries) and said <= set(unfiltered.responses)
    assert not [r for r in unfiltered.rejects if r.stage == "synthesize/round_trip"]


def test_the_verifiers_requests_are_counted_and_failures_told_from_not_asked(unfiltered: Run) -> None:
    model, tokens = unfiltered.model, unfiltered.report.tokens
    assert min(model.judged.values()) > 0 and set(model.judged) == set(range(len(VERDICTS)))
    assert tokens["requests"] == tokens["live"] == len(model.seen) + len(model.verified)
    assert tokens["failed"] == model.judged[4] and "replayed" not in tokens
    rows = unfiltered.responses.values()
    assert tokens["tokens_in"] == sum(r.tokens_in for r in rows)
    assert unfiltered.report.summary["unverified_by_reason"] == {
        "engine: error:timeout": model.judged[4],
        "unparsable": model.judged[3],
    }


def test_queries_scored_below_the_limit_are_dropped(unfiltered: Run, tmp_path: Path) -> None:
    run = Run(tmp_path, f"synthesis.min_verifier_raw={LIMIT}")
    low = {i for i, q in unfiltered.queries.items() if q.verifier_raw is not None and q.verifier_raw < LIMIT}
    kept = {q.verifier_raw for q in run.queries.values()}
    # At the limit and without a score they stay.
    assert low and kept == {0.5, 0.9, None}
    assert set(run.queries) == set(unfiltered.queries) - low
    lost = [r for r in run.rejects if r.stage == "synthesize/round_trip"]
    assert len(lost) == run.model.judged[0] and {r.reason for r in lost} == {"verifier"}
    assert all(r.detail.startswith("verifier 0.200 < 0.5: Please") for r in lost)
    # What the verifier said of the dropped ones is kept.
    assert {r.request_hash for r in run.model.verified} <= set(run.responses)


def test_queries_ranked_below_the_limit_are_dropped(unfiltered: Run, tmp_path: Path) -> None:
    rank = {i: q.round_trip_rank or 0 for i, q in unfiltered.queries.items()}
    most = sorted(rank.values())[len(rank) // 2]
    run = Run(tmp_path, f"synthesis.max_round_trip_rank={most}")
    assert {i: q.round_trip_rank for i, q in run.queries.items()} == {
        i: r for i, r in rank.items() if r <= most
    }
    assert most in rank.values() and len(run.queries) < len(rank)
    lost = [r for r in run.rejects if r.stage == "synthesize/round_trip"]
    assert {r.id for r in lost} == {i for i, r in rank.items() if r > most}
    assert {r.reason for r in lost} == {"rank"}
    assert run.report.summary["short_tools"], "tools that fall short by it are listed"


@pytest.mark.parametrize("set_to", ["0.5", "0.0"])
def test_a_limit_needs_scores(set_to: str) -> None:
    chosen = [f"synthesis.min_verifier_raw={set_to}", "synthesis.verify_queries=false"]
    with pytest.raises(UserError, match=r"min_verifier_raw.*set synthesis\.verify_queries = true"):
        load_settings("paper", overrides=chosen, env={})
    assert load_settings("paper", overrides=chosen[1:], env={}).synthesis.min_verifier_raw is None
    asked = load_settings("paper", overrides=[chosen[0], "synthesis.verify_queries=true"], env={})
    assert asked.synthesis.min_verifier_raw == float(set_to)


def contents(ctx: RunContext) -> dict[str, str]:
    stage = SynthesizeStage()
    return {s.key: digest(stage.shard_content(ctx, s)) for s in stage.plan(ctx)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # The generator is told of 8 operations, and of no group that the name holds already.
        ({}, {"operations": 12}),
        ({"group_name": "Amber"}, {"group_name": "Anchor"}),
    ],
)
def test_what_only_the_verifier_sees_redoes_its_shard(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any]
) -> None:
    def changed(verify: bool) -> int:
        ctx = context(tmp_path / str(verify), f"synthesis.verify_queries={str(verify).lower()}")
        stage = SynthesizeStage()
        chosen = stage.plan(ctx)[0].ids[0]
        path = ctx.paths.core / "tools.parquet"
        found = []
        for update in (before, after):
            renamed = update.get("operations")
            names = [f"Do {n}" if n != renamed else "Do otherwise" for n in range(1, 21)]
            ops = [Operation(resource="item", operation=f"o{i}", name=n) for i, n in enumerate(names)]
            told = {"name": "amber anchor", "display_name": None, **update, "operations": ops}
            tools = [t.model_copy(update=told) if t.id == chosen else t for t in read_rows(path, ScoredTool)]
            write_table(path, tools, ScoredTool)
            found.append(contents(ctx))
        return sum(found[0][key] != found[1][key] for key in found[0])

    assert changed(verify=True) == 1
    assert changed(verify=False) == 0


def _line(tool: str, text: str, raw: float | None = None) -> Query:
    return Query(tool, "direct", 0, 0, "h", text, verifier_raw=raw)


SHARED = "Book a quiet table for four in Graz tonight"


@pytest.mark.parametrize(
    ("scores", "best"),
    [((0.1, 0.9), 0.9), ((0.9, 0.1), 0.9), ((None, 0.3), 0.3), ((0.0, None), 0.0), ((None, None), None)],
)
def test_a_shared_text_has_the_best_score_over_its_golds(
    scores: tuple[float | None, float | None], best: float | None
) -> None:
    lines = [_line("tool:a", SHARED, scores[0]), _line("tool:b", SHARED + "!", scores[1])]
    (merged,) = merge_texts(lines).values()
    assert merged.golds == ("tool:a", "tool:b") and merged.first.tool_id == "tool:a"
    assert merged.verifier_raw == best


def test_a_shared_text_has_the_best_rank_over_its_golds() -> None:
    merged = merge_texts([_line("tool:a", SHARED), _line("tool:b", SHARED), _line("tool:c", "Other text")])
    ids = ["tool:a", "tool:b", "tool:c"]
    pool = ToolPool(ids, np.array([[0, 1], [1, 0], [0, 1]], float), {i: i for i in ids})
    kept, lost = keep_found(merged, lambda texts: np.array([[1.0, 0.0]] * len(texts)), pool, 1)
    assert set(kept) == {query_id("syn", SHARED)}, "tool:b is first, tool:a is not"
    assert [r.detail for r in lost] == ["tool:c at rank 3: Other text"]


def test_the_tables_hold_the_best_over_the_golds() -> None:
    tools = make_tools(30)
    encoder = _HashEncoder()
    far, near = tools[0], tools[12]
    assert far.id < near.id
    shared = f"Please {near.tool_text} for me"
    lines = [_line(far.id, shared, 0.1), _line(near.id, shared, 0.8)]
    lines += [
        _line(t.id, f"Please get item{i} thing{t.id[-6:]}{i} place{i} and day{i} for me")
        for t in (far, near, tools[5])
        for i in range(10)
    ]
    tables = assemble(
        tools,
        lines,
        [],
        [Coverage(t.id, 12, 10, 1, False) for t in (far, near, tools[5])],
        (encoder.encode_queries, encoder.encode_documents),
        SynthesisSettings(cold_fraction=0.25),
        seed=1,
    )
    (row,) = [q for q in tables.queries if q.query_id == query_id("syn", shared)]
    assert row.source_tool_id == far.id
    assert (row.round_trip_rank, row.verifier_raw) == (1, 0.8)
