"""Published responses and the reference build: what answers before the model, and what is frozen."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoagent.llm import ReferenceResponses, ResponseStore, StoredEngine, open_reference, write_reference
from ecoagent.publish.reference import table_facts
from ecoagent.runs import read_rows, sha256_file, write_table
from ecoagent.schema import QueryRow, ScoredTool
from ecoagent.settings import SynthesisSettings, UserError, load_settings
from ecoagent.synthesis.generate import generate
from ecoagent.synthesis.plan import by_group, live_tools
from ecoagent.synthesis.stage import tool_sources
from tests.unit.fixture_run import make_tools
from tests.unit.llm_scripted import ScriptedEngine, ask


def published(folder: Path, *texts: str) -> ReferenceResponses:
    """A file of the answers that a first engine gave to some prompts."""
    store = ResponseStore(folder / "first.sqlite")
    engine = StoredEngine(
        "scripted", lambda: ScriptedEngine(lambda t: None if t == "bad" else t.upper()), store
    )
    engine.generate([ask(t) for t in texts])
    path = write_reference(folder / "responses.parquet", store.dump())
    store.close()
    return ReferenceResponses(path)


def never() -> ScriptedEngine:
    raise AssertionError("the model was opened")


def test_published_responses_answer_before_the_model(tmp_path: Path) -> None:
    reference = published(tmp_path, "a", "b", "bad")
    assert len(reference) == 2, "a failure is no answer"
    engine = StoredEngine("scripted", never, ResponseStore(tmp_path / "own.sqlite"), reference=reference)
    said = engine.generate([ask("b", identifier="x"), ask("a")])
    assert [(r.id, r.text, r.published, r.replayed) for r in said] == [
        ("x", "B", True, True),
        ("a", "A", True, True),
    ]
    assert said[1].first_token_logprobs == {"Yes": -0.25, "No": -1.5}
    assert engine.store.count() == 0, "what is published is not copied"


def test_a_live_request_is_asked_once_whatever_is_published(tmp_path: Path) -> None:
    reference = published(tmp_path, "a")
    model = ScriptedEngine(lambda t: f"{t} anew")
    engine = StoredEngine(
        "scripted", lambda: model, ResponseStore(tmp_path / "own.sqlite"), reference=reference
    )
    request = ask("a").model_copy(update={"live": True})
    first, second = engine.generate([request])[0], engine.generate([request])[0]
    assert (first.text, first.published, second.replayed) == ("a anew", False, True)
    assert model.asked == ["a"] and engine.generate([ask("a")])[0].text == "A"


def test_equal_responses_give_equal_bytes(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert published(one, "a", "b", "c").digest == published(two, "c", "a", "b").digest


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing\.parquet are not there"):
        open_reference(str(tmp_path / "nothing.parquet"))
    (tmp_path / "text.parquet").write_text("no table")
    found = open_reference(str(tmp_path / "text.parquet"))
    assert found is not None
    with pytest.raises(UserError, match=r"text\.parquet"):
        found.get_many(["x"])
    assert open_reference(None) is None
    assert load_settings("local", overrides=["llm.reference=none"], env={}).llm.reference is None


def lines_of(text: str) -> str:
    tool = next(line for line in text.splitlines() if line.startswith("Tool: ")).removeprefix("Tool: ")
    return "\n".join(f"Please look up matter {n} of {tool[::-1]} from day {n} for aunt {n}" for n in range(6))


def test_origin_says_what_was_replayed(tmp_path: Path) -> None:
    tools: dict[str, ScoredTool] = {t.id: t for t in make_tools(6)}
    sources = tool_sources(tools, by_group(tools.values()), tools)
    settings = SynthesisSettings()
    first = ResponseStore(tmp_path / "first.sqlite")
    generate(sources, StoredEngine("scripted", lambda: ScriptedEngine(lines_of), first), settings, seed=0)
    reference = ReferenceResponses(write_reference(tmp_path / "responses.parquet", first.dump()))
    live = live_tools({i: t.source for i, t in tools.items()}, 1, seed=0)
    assert 0 < len(live) < len(tools)
    model = ScriptedEngine(lines_of)
    engine = StoredEngine(
        "scripted", lambda: model, ResponseStore(tmp_path / "own.sqlite"), reference=reference
    )
    made = generate(sources, engine, settings, seed=0, live=live)
    assert {q.tool_id for q in made.queries if q.origin == "live"} == live
    assert {q.tool_id for q in made.queries if q.origin == "replayed"} == tools.keys() - live
    assert model.asked, "the live tools were asked for"


def test_live_tools_are_some_of_every_catalog() -> None:
    sources = {t.id: t.source for t in make_tools(30)}
    two = live_tools(sources, 2, seed=0)
    assert len(two) == 8, "two of each of four catalogs"
    assert live_tools(dict(reversed(sources.items())), 2, seed=0) == two
    assert live_tools(sources, 99, seed=0) == sources.keys() and not live_tools(sources, 0, seed=0)


def test_a_live_run_and_its_replay_are_the_same_reference_build(tmp_path: Path) -> None:
    row = {"query_id": "q:syn:0123456789ab", "text": "find my parcel", "set": "syn", "language": "en"}
    row |= {"split": "test", "licence": "Apache-2.0", "source_tool_id": "crewai:X", "quality_flags": []}
    paths = [
        write_table(tmp_path / origin / "syn_queries.parquet", [{**row, "origin": origin}], QueryRow)
        for origin in ("live", "replayed")
    ]
    assert sha256_file(paths[0]) != sha256_file(paths[1])
    assert table_facts(paths[0]) == table_facts(paths[1])
    assert table_facts(paths[1])["sha256"] == sha256_file(paths[1]), "a replay's own bytes"
    changed = {**row, "text": "find it", "origin": "live"}
    other = write_table(tmp_path / "syn_queries.parquet", [changed], QueryRow)
    assert table_facts(other)["content"] != table_facts(paths[1])["content"]
    assert [q.origin for q in read_rows(paths[0], QueryRow)] == ["live"], "the run's table stays as it is"
