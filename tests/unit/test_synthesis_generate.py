"""Choosing tools, asking, retrying, and the whole stage with a scripted stand-in of the model."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoagent.llm import (
    GenerationRequest,
    GenerationResponse,
    answered_by_reference,
    to_response_row,
    write_reference,
)
from ecoagent.retrieval.dedup import deduplicate_brute
from ecoagent.runs import RunContext, digest, execute, read_json, read_rows, sha256_file, write_table
from ecoagent.schema import (
    Operation,
    PairRow,
    QueryRow,
    RejectRow,
    ResponseRow,
    ScoredTool,
    catalog_of,
    query_id,
    tokens,
)
from ecoagent.settings import LLMSettings, SynthesisSettings
from ecoagent.synthesis import stage as stage_module
from ecoagent.synthesis.filters import NAME_LEAK, Query
from ecoagent.synthesis.generate import ToolSource, generate, names_sibling, select_lines
from ecoagent.synthesis.plan import (
    ToolFacts,
    brief,
    by_group,
    choose_tools,
    facts_of,
    first_asks,
    humanize,
    lines_per_intent,
    request_of,
    retry_asks,
)
from ecoagent.synthesis.stage import SynthesizeStage
from tests.unit.fixture_run import WORDS, fixture_settings, make_tools
from tests.unit.llm_scripted import answer

SETTINGS = SynthesisSettings(tools_per_catalog=2)
FACTS = ToolFacts("Create File", "GitHub", "Creates a file.", (), ("path",), ("Delete File",))


class ScriptedModel:
    """Stand-in of a model for these tests: lines of seeded random words, and the flaws asked for."""

    model = "scripted"

    def __init__(self, *, short_at_first: bool = False, failing: str = "") -> None:
        self.short_at_first, self.failing = short_at_first, failing
        self.seen: list[str] = []

    def generate(
        self, requests: list[GenerationRequest], on_response: object = None, **_: object
    ) -> list[GenerationResponse]:
        found = []
        for request in requests:
            self.seen.append(request.id)
            rng = random.Random(f"{request.id}:{request.sampling.seed}")
            count = 1 if self.short_at_first and request.id.endswith(".0") else 4
            lines = ["Here are the messages:"]
            for i in range(count):
                lines.append(f"{i + 1}. Please find {' '.join(rng.sample(WORDS, 7))} for me.")
            response = answer(self.model, request, "\n".join(lines))
            if self.failing and self.failing in request.id:
                response = response.model_copy(
                    update={"text": "", "status": "error:timeout", "finish_reason": "error"}
                )
            found.append(response)
        return found

    def close(self) -> None:
        """Nothing to free."""


def _sources(count: int = 2) -> dict[str, ToolSource]:
    return {
        f"tool:{i}": ToolSource(FACTS, "Creates a file in a repository.", ("create_file",))
        for i in range(count)
    }


def test_tools_are_chosen_by_hash_and_a_new_one_shifts_at_most_one() -> None:
    tools = make_tools(30)
    chosen = choose_tools(tools, SETTINGS, seed=0)
    assert chosen == choose_tools(tools[::-1], SETTINGS, seed=0)
    by_id = {t.id: t for t in tools}
    assert set(Counter(catalog_of(by_id[i].source) for i in chosen).values()) == {2}
    for tool in tools:
        fewer = choose_tools([t for t in tools if t.id != tool.id], SETTINGS, seed=0)
        assert len(set(chosen) - set(fewer)) <= 1
    assert choose_tools(tools, SETTINGS, seed=1) != chosen
    assert len(choose_tools(tools, SETTINGS, seed=0, limit=1)) == 4
    everything = choose_tools(tools, SynthesisSettings(), seed=0)
    groups = [by_id[i].duplicate_group for i in everything]
    assert len(groups) == len(set(groups)) < len(tools)


def test_tools_without_text_or_in_another_language_are_not_asked_for() -> None:
    tools = make_tools(12)
    odd = [
        tools[0].model_copy(update={"description": "  "}),
        tools[1].model_copy(update={"language": "pt"}),
        tools[2].model_copy(update={"language": None}),
    ]
    chosen = choose_tools([*odd, *tools[3:]], SynthesisSettings(), seed=0)
    assert tools[0].id not in chosen and tools[1].id not in chosen and tools[2].id in chosen


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("open_weather_map", "open weather map"),
        ("YahooFinanceToolSpec", "Yahoo Finance"),
        ("n8n-nodes-pirate-weather", "pirate weather"),
        ("@acme/n8n-nodes-mail", "mail"),
        ("Create File", "Create File"),
        ("MongoDBVectorSearchTool", "MongoDB Vector Search"),
        ("GitLab", "GitLab"),
        ("Tool", "Tool"),
    ],
)
def test_names_in_words(name: str, shown: str) -> None:
    assert humanize(name) == shown


def test_descriptions_are_cut_at_a_sentence() -> None:
    text = "Reads a file. " * 60
    assert len(brief(text)) <= 300 and brief(text).endswith("file.")
    assert (
        brief("A wrapper around [Minds](https://minds.example). **Useful**.")
        == "A wrapper around Minds. Useful."
    )
    assert brief("Reads a file. **VERY IMPORTANT**: give a path.\nInput should be a path.") == "Reads a file."
    assert brief("Input is an empty string.") == "Input is an empty string."
    assert len(brief("x" * 100 + " " + "y" * 600)) < 365


def test_facts_tell_the_group_siblings_and_operations() -> None:
    base = make_tools(5)[0].model_copy(update={"group_name": "github", "group_id": "g", "display_name": None})
    tool = base.model_copy(
        update={
            "id": "t1",
            "name": "Create File",
            "operations": [Operation(resource="file", operation="create", name="Create")],
            "parameter_names": ["path"],
        }
    )
    sibling = base.model_copy(update={"id": "t2", "name": "Delete File"})
    facts = facts_of(tool, [tool, sibling])
    assert (facts.name, facts.group, facts.siblings) == ("Create File", "github", ("Delete File",))
    assert facts.operations == ("Create (file)",) and facts.parameters == ()
    named = facts_of(tool.model_copy(update={"name": "GitHub Search"}))
    assert named.group is None
    assert by_group([tool, sibling]) == {tool.group_id: [tool, sibling]}


def test_requests_differ_by_intent_and_round_only() -> None:
    first = first_asks(["t"], SETTINGS)
    assert [a.intent for a in first] == ["direct", "troubleshooting", "howto"]
    assert sum(lines_per_intent(SynthesisSettings(queries_per_tool=10))) == 10
    requests = [request_of(a, FACTS, SETTINGS, seed=0) for a in first]
    assert len({r.sampling.seed for r in requests}) == 3
    assert requests == [request_of(a, FACTS, SETTINGS, seed=0) for a in first]
    turns = first_asks([f"t{i}" for i in range(6)], SETTINGS)
    assert [a.tool_id for a in turns[:5]] == ["t0", "t1", "t2", "t3", "t0"]
    assert len({a.id for a in turns}) == len(turns) == 18
    again = retry_asks("t", {"direct": 4, "howto": 3}, 1, SETTINGS)
    assert [(a.intent, a.attempt) for a in again] == [("troubleshooting", 1)]
    assert len(retry_asks("t", {}, 1, SETTINGS)) == 3
    assert retry_asks("t", {"direct": 10}, 1, SETTINGS) == []


def test_short_tools_are_asked_again_until_they_have_enough() -> None:
    model = ScriptedModel(short_at_first=True)
    made = generate(_sources(), model, SETTINGS, seed=0)
    assert [c.accepted >= 10 for c in made.coverage] == [True, True]
    assert [c.short for c in made.coverage] == [False, False]
    assert max(c.attempts for c in made.coverage) > 1
    assert {r.reason for r in made.rejects} == {"preamble"}
    assert len(made.responses) == len(model.seen) == made.stats["requests"] == made.stats["live"]
    assert made == generate(_sources(), ScriptedModel(short_at_first=True), SETTINGS, seed=0)


def test_failed_requests_are_rows_and_the_tool_is_listed_as_short() -> None:
    made = generate(_sources(), ScriptedModel(failing="tool:1"), SETTINGS, seed=0)
    good, bad = made.coverage
    assert not good.short
    assert bad.short and bad.accepted == 0 and bad.failed == 9 and bad.attempts == SETTINGS.max_attempts
    failures = [r for r in made.rejects if r.stage == "generate"]
    assert len(failures) == 9 and {r.reason for r in failures} == {"error:timeout"}
    assert made.stats["failed"] == 9
    assert sum(r.status != "ok" for r in made.responses) == 9


def test_siblings_stand_in_no_prompt_and_their_lines_are_rejected() -> None:
    source = _sources(1)["tool:0"]
    assert not names_sibling("Create a file for the Oslo trip.", source)
    assert names_sibling("Please delete file notes.txt from the Oslo trip.", source)
    assert not names_sibling("After you create_file, delete file old.txt.", source)
    request = request_of(first_asks(["tool:0"], SETTINGS)[0], FACTS, SETTINGS, seed=0)
    assert "Delete File" not in request.messages[-1]["content"]


def test_one_tool_does_not_change_anothers_lines() -> None:
    both = generate(_sources(2), ScriptedModel(), SETTINGS, seed=0)
    alone = generate(_sources(1), ScriptedModel(), SETTINGS, seed=0)
    assert [q for q in both.queries if q.tool_id == "tool:0"] == alone.queries


class _HashEncoder:
    """Stand-in of the sentence encoder: a bag of hashed words."""

    def encode_queries(self, texts: list[str], on_batch: object = None) -> np.ndarray:
        rows = np.zeros((len(texts), 64), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.lower().split():
                row[int(hashlib.sha256(word.encode()).hexdigest()[:4], 16) % 64] += 1
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    encode_documents = encode_queries


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> ScriptedModel:
    scripted = ScriptedModel(short_at_first=True)
    monkeypatch.setattr(stage_module, "open_engine", lambda settings, progress: scripted)
    monkeypatch.setattr(stage_module, "load_sbert", lambda ctx, name: _HashEncoder())
    return scripted


def _context(outputs: Path, *overrides: str) -> RunContext:
    ctx = RunContext.create(
        fixture_settings(outputs, "synthesis.tools_per_catalog=3", "flow.tools_per_shard=2", *overrides)
    )
    write_table(ctx.paths.core / "tools.parquet", sorted(make_tools(40), key=lambda t: t.id), ScoredTool)
    return ctx


def _core(ctx: RunContext) -> dict[str, str]:
    return {p.name: sha256_file(p) for p in sorted(ctx.paths.core.glob("syn_*"))}


def test_the_stage_writes_every_table_and_does_a_shard_once(tmp_path: Path, model: ScriptedModel) -> None:
    ctx = _context(tmp_path / "a")
    stage = SynthesizeStage()
    outcome = execute(stage, ctx)
    core = ctx.paths.core
    queries = read_rows(core / "syn_queries.parquet", QueryRow)
    assert len(queries) == outcome.report.rows["queries"] > 100
    assert {q.split for q in queries} == {"train", "val", "test", "cold"}
    assert [q.query_id for q in queries] == sorted(q.query_id for q in queries)
    coverage = read_json(core / "syn_coverage.json")
    assert len(coverage) == 12 and all(c["kept"] >= 10 for c in coverage)
    responses = {r.request_hash for r in read_rows(core / "syn_responses.parquet", ResponseRow)}
    assert len(responses) == len(model.seen)
    assert {r.stage for r in read_rows(core / "syn_rejects.parquet", RejectRow)} >= {"synthesize/parse"}
    labels = Counter(p.negative_type for p in read_rows(core / "syn_pairs.parquet", PairRow))
    assert labels[None] == len(queries)
    assert len(queries) >= labels["hard"] >= labels["random"] > 0.9 * len(queries)
    assert outcome.report.tokens["live"] == len(model.seen)
    asked = len(model.seen)
    assert execute(stage, ctx).status == "up to date"
    # Lost tables are made again from the shards, without a request.
    before = _core(ctx)
    (core / "syn_queries.parquet").unlink()
    assert execute(stage, ctx).status == "done"
    assert len(model.seen) == asked and _core(ctx) == before


def test_another_run_gives_the_same_bytes(tmp_path: Path, model: ScriptedModel) -> None:
    one, two = _context(tmp_path / "a"), _context(tmp_path / "b")
    execute(SynthesizeStage(), one)
    execute(SynthesizeStage(), two, mapper=lambda work, shards: [work(s) for s in reversed(shards)] and None)
    assert _core(one) == _core(two) and len(_core(one)) == 6


def test_a_new_or_changed_tool_leaves_other_shards_alone(tmp_path: Path, model: ScriptedModel) -> None:
    ctx = _context(tmp_path)
    stage = SynthesizeStage()
    path = ctx.paths.core / "tools.parquet"

    def contents() -> dict[str, str]:
        return {s.key: digest([s.ids, stage.shard_content(ctx, s)]) for s in stage.plan(ctx)}

    before = contents()
    assert len(before) > 4
    tools = {t.id: t for t in read_rows(path, ScoredTool)}
    chosen = [i for s in stage.plan(ctx) for i in s.ids]
    other = tools[chosen[0]].model_copy(update={"description": "Something else entirely, in other words."})
    write_table(path, [other if i == other.id else t for i, t in tools.items()], ScoredTool)
    after = contents()
    assert set(after) == set(before) and sum(before[k] != after[k] for k in before) == 1
    # A new tool that is not chosen changes none; one that is takes a place in its catalog's shards.
    outcomes = set()
    for number in range(40):
        told = {"id": f"{other.id}{number}", "duplicate_group": f"new{number}", "group_id": f"new{number}"}
        new = other.model_copy(update=told)
        write_table(path, sorted([*tools.values(), new], key=lambda t: t.id), ScoredTool)
        now = contents()
        taken = any(new.id in s.ids for s in stage.plan(ctx))
        differ = {k for k in before.keys() | now.keys() if now.get(k) != before.get(k)}
        assert all(k.startswith(catalog_of(new.source)) for k in differ) and bool(differ) == taken
        outcomes.add(taken)
        if len(outcomes) == 2:
            break
    assert outcomes == {True, False}


def test_the_estimate_counts_requests_and_minutes(tmp_path: Path, model: ScriptedModel) -> None:
    ctx = _context(tmp_path)
    estimate = SynthesizeStage().estimate(ctx)
    assert estimate["tools"] == 12 and estimate["requests"] == 36
    assert 36 * 40 < estimate["tokens_out"] < 36 * 200 and estimate["answered_by_the_store"] == 0
    assert estimate["minutes"] > 0 and model.seen == []
    assert not any(key.startswith("verification") for key in estimate)


def test_the_estimate_counts_the_verifier_at_most(tmp_path: Path, model: ScriptedModel) -> None:
    ctx = _context(tmp_path, "synthesis.verify_queries=true")
    estimate = SynthesizeStage().estimate(ctx)
    assert estimate["requests"] == 36
    assert estimate["verification_requests_at_most"] == 12 * 12
    assert estimate["verification_tokens_out_at_most"] == 12 * 12, "one token an answer"
    assert 12 * 12 * 100 < estimate["verification_tokens_in_at_most"] < 12 * 12 * 1000
    assert estimate["verification_minutes_at_most"] > 0 and model.seen == []
    capped = _context(tmp_path / "b", "synthesis.verify_queries=true", "synthesis.max_queries_per_tool=10")
    assert SynthesizeStage().estimate(capped)["verification_requests_at_most"] == 12 * 10


def test_the_estimate_counts_what_published_responses_do_not_answer(
    tmp_path: Path, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[GenerationRequest] = []

    def recorded(llm: LLMSettings, requests: list[GenerationRequest]) -> list[bool]:
        asked.extend(requests)
        return answered_by_reference(llm, requests)

    monkeypatch.setattr(stage_module, "answered_by_reference", recorded)
    ctx = _context(tmp_path)
    assert SynthesizeStage().estimate(ctx)["generated_anew"] == 12 and len(asked) == 36
    name = ctx.settings.llm.model
    rows = [vars(to_response_row(r, answer(name, r, "1. a line"))) for r in asked]
    path = write_reference(tmp_path / "published.parquet", rows)
    replay = (f'llm.reference="{path}"', "synthesis.live_per_catalog=1", "synthesis.verify_queries=true")
    found = SynthesizeStage().estimate(_context(tmp_path / "c", *replay))
    assert 0 < found["generated_anew"] < 12 and found["requests"] == found["generated_anew"] * 3
    assert found["verification_requests_at_most"] == found["generated_anew"] * 12
    other = SynthesizeStage().estimate(_context(tmp_path / "d", *replay, 'llm.model="another-model"'))
    assert other["generated_anew"] == 12 and other["requests"] == 36
    assert model.seen == []


def _lines(*texts: str) -> list[Query]:
    return [Query("t", "direct", 0, n, "h", text) for n, text in enumerate(texts)]


def test_near_duplicates_of_a_tool_go_in_the_order_of_ids() -> None:
    """Whichever line comes first, the smallest id stays, and the reject names it."""
    texts = ("Book a quiet table for four in Graz tonight", "Book a quiet table for four in Graz tonight now")
    canonical, other = sorted(texts, key=lambda t: query_id("syn", t))
    for order in (texts, texts[::-1]):
        kept, (reject,) = select_lines(_lines(*order), SETTINGS)
        assert [q.text for q in kept] == [canonical]
        assert reject.reason == "near_duplicate" and reject.detail.endswith(f": {other}")
        assert query_id("syn", canonical) in reject.detail and repr(canonical) in reject.detail


def test_of_equal_lines_the_first_stays() -> None:
    first, again = "Find the cheapest train to Turin!", "find the cheapest  train to Turin"
    kept, (reject,) = select_lines(_lines(first, again), SETTINGS)
    assert [q.text for q in kept] == [first]
    assert (reject.id, reject.reason) == ("t|direct.0.1", "repeated")
    assert query_id("syn", first) in reject.detail and "t|direct.0.0" in reject.detail


@settings(deadline=None)
@given(st.lists(st.lists(st.sampled_from("abcdef"), min_size=3, max_size=6).map(" ".join), max_size=25))
def test_a_tools_lines_are_deduplicated_as_the_definition_says(texts: list[str]) -> None:
    kept, rejects = select_lines(_lines(*texts), SynthesisSettings(max_queries_per_tool=100))
    want = deduplicate_brute({query_id("syn", t): tokens(t) for t in texts}, 0.7)
    assert {query_id("syn", q.text) for q in kept} == set(want.kept)
    assert [q.line for q in kept] == sorted(q.line for q in kept)
    assert len(kept) + len(rejects) == len(texts)
    near = [r for r in rejects if r.reason == "near_duplicate"]
    witness = {query_id("syn", r.detail.rpartition(": ")[2]): r.detail.split()[3] for r in near}
    assert witness == {d.id: d.witness for d in want.dropped}


@settings(deadline=None)
@given(
    st.lists(st.booleans(), max_size=40),
    st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.99, 1.0]),
    st.integers(1, 25),
)
def test_the_share_of_names_holds_under_the_cap(leaks: list[bool], share: float, cap: int) -> None:
    lines = [
        Query("t", "direct", 0, n, "h", f"w{n}a w{n}b w{n}c", (NAME_LEAK,) if leak else ())
        for n, leak in enumerate(leaks)
    ]
    kept, rejects = select_lines(
        lines, SynthesisSettings(max_name_leak=share, min_queries_per_tool=1, max_queries_per_tool=cap)
    )
    named = sum(NAME_LEAK in q.flags for q in kept)
    assert named <= share * len(kept) + 1e-9 and len(kept) <= cap
    assert len(kept) + len(rejects) == len(lines)
    # No more is lost than both limits ask for.
    clean = len(leaks) - sum(leaks)
    best = max(
        c + n
        for c in range(clean + 1)
        for n in range(sum(leaks) + 1)
        if c + n <= cap and n <= share * (c + n) + 1e-9
    )
    assert len(kept) == best
