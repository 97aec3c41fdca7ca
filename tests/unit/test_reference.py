"""Published responses and the reference build: what answers before the model, and what is frozen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ecoagent.cli.freezing import freeze as freeze_command
from ecoagent.llm import ReferenceResponses, ResponseStore, StoredEngine, open_reference, write_reference
from ecoagent.models import ModelStore
from ecoagent.publish.reference import STAGES, compare, freeze, load_statistics, statistics, table_facts
from ecoagent.runs import RunContext, read_rows, read_table, sha256_file, write_json, write_table
from ecoagent.schema import QueryRow, ScoredTool, VerdictRow
from ecoagent.settings import SynthesisSettings, UserError, load_settings
from ecoagent.synthesis.generate import generate
from ecoagent.synthesis.plan import by_group, live_tools
from ecoagent.synthesis.stage import tool_sources
from tests.unit.fixture_run import fixture_settings, make_tools, write_fixture_run
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


TABLE = {"rows": 1, "sha256": "a", "content": None}
WHOLE = {"prompts": {}, "models": {}, "tables": {"duplicates": TABLE}, "machine": "m"}


def test_a_whole_reference_build_is_read(tmp_path: Path) -> None:
    write_json(tmp_path / "statistics.json", WHOLE)
    assert load_statistics(tmp_path) == WHOLE | {"elsewhere": {}}
    more = WHOLE | {"elsewhere": {"another": {"duplicates": "b"}}}
    write_json(tmp_path / "statistics.json", more)
    assert load_statistics(tmp_path) == more


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"prompts": {', "not JSON"),
        (b'{"prompts": "\xe9"}', "not UTF-8"),
        (b"[]", "it is not an object"),
        (b"{}", "'prompts' is missing"),
        (json.dumps(WHOLE | {"models": 3}).encode(), "'models' is not an object"),
        (json.dumps(WHOLE | {"tables": {}}).encode(), "'tables' names no table"),
        (json.dumps(WHOLE | {"elsewhere": {"x": {}}}).encode(), "'elsewhere.x.duplicates' is missing"),
        (json.dumps(WHOLE | {"tables": {"t": 5}}).encode(), "'tables.t' is not an object"),
        (json.dumps(WHOLE | {"tables": {"t": {"rows": 1}}}).encode(), "'tables.t.sha256' is missing"),
        (json.dumps(WHOLE | {"tables": {"t": TABLE | {"rows": "1"}}}).encode(), "'tables.t.rows' is not"),
    ],
)
def test_a_damaged_reference_build_is_named(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "statistics.json").write_bytes(content)
    with pytest.raises(UserError, match=rf"statistics\.json is damaged: .*{says}.*`ecoagent freeze --force`"):
        load_statistics(tmp_path)


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunContext:
    """A fixture run whose manifest says that its stages are done; no weights are needed."""
    monkeypatch.setattr(ModelStore, "digest", lambda self, name: f"digest of {name}")
    ctx = write_fixture_run(fixture_settings(tmp_path))
    parts: dict[str, object] = {k: {} for k in ("outputs", "rows", "rejects", "tokens", "summary")}
    entries = {name: {**parts, "seconds": 1.0} for name in STAGES}
    settings = ctx.settings.model_dump(mode="json")
    write_json(ctx.paths.manifest, {"run": "local", "stages": entries, "settings": settings})
    return ctx


@pytest.mark.parametrize("content", [None, b"{", b"[]", b"\xff"])
def test_damaged_label_statistics_are_named(finished: RunContext, content: bytes | None) -> None:
    assert statistics(finished)["label"]
    path = finished.paths.core / "label_stats.json"
    path.unlink() if content is None else path.write_bytes(content)
    says = "is not there" if content is None else "is damaged"
    with pytest.raises(UserError, match=rf"label_stats\.json {says}.*`ecoagent label --force`"):
        statistics(finished)


def test_a_manifest_of_another_form_and_responses_without_status(finished: RunContext) -> None:
    responses = finished.paths.core / "syn_responses.parquet"
    read_table(responses).drop("status").write_parquet(responses)
    with pytest.raises(UserError, match=r"syn_responses\.parquet lacks column 'status'"):
        freeze(finished, finished.paths.root / "frozen")
    content = json.loads(finished.paths.manifest.read_text())
    content["stages"]["label"] = 5
    write_json(finished.paths.manifest, content)
    with pytest.raises(UserError, match="stage 'label' has not run"):
        statistics(finished)


def test_the_command_ends_with_code_2(
    finished: RunContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The fixture's responses are in no store.
    monkeypatch.setattr("ecoagent.publish.reference._wanted", lambda ctx: set())
    app = typer.Typer()
    app.command()(freeze_command)
    named = ["--run", "local", "--set", f"outputs={finished.settings.outputs}"]
    (tmp_path / "statistics.json").write_text("[]")
    (tmp_path / "README.md").write_text("mine")
    content = json.loads(finished.paths.manifest.read_text())
    for arguments, says in (
        (["--check", "--out", str(tmp_path)], "statistics.json is damaged"),
        (["--out", str(tmp_path / "README.md")], "another folder with --out"),
        (["--out", str(tmp_path / "README.md" / "x")], "another folder with --out"),
        (["--set", f"outputs={'x' * 300}"], "File name too long"),
    ):
        ended = CliRunner().invoke(app, [*named, *arguments])
        assert ended.exit_code == 2 and says in " ".join(ended.output.split()), ended.output
    write_json(finished.paths.manifest, content | {"settings": [1]})
    ended = CliRunner().invoke(app, [*named, "--check", "--out", str(tmp_path)])
    assert ended.exit_code == 2 and "holds no recorded settings" in ended.output


def test_sums_of_another_processor_are_kept_and_recognised(
    finished: RunContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "ecoagent.publish.reference"
    monkeypatch.setattr(f"{module}._wanted", lambda ctx: set())
    content = json.loads(finished.paths.manifest.read_text())
    content["stages"]["label"]["outputs"] = {"core/verdicts.parquet": "x", "core/real_qrels.parquet": "x"}
    write_json(finished.paths.manifest, content)
    folder, path = tmp_path / "frozen", finished.paths.core / "verdicts.parquet"
    folder.mkdir()
    monkeypatch.setattr(f"{module}.processor", lambda: "one")
    assert freeze(finished, folder)["elsewhere"] == {}
    first = path.read_bytes()
    rows = read_rows(path, VerdictRow)
    nudged = [r.model_copy(update={"encoder_score": (r.encoder_score or 0.0) + 1e-7}) for r in rows]
    write_table(path, nudged, VerdictRow)
    monkeypatch.setattr(f"{module}.processor", lambda: "two")
    assert [(d.what, d.machine) for d in compare(finished, folder)] == [("verdicts sha256", True)]
    made = freeze(finished, folder)
    assert made["machine"] == "one" and set(made["elsewhere"]) == {"two"}, "it stays as it was generated"
    assert compare(finished, folder) == []
    path.write_bytes(first)
    assert compare(finished, folder) == [], "the bytes of the first processor"
    monkeypatch.setattr(f"{module}.processor", lambda: "one")
    again = freeze(finished, folder)
    assert again == {**made, "responses": again["responses"]}
    write_table(path, rows[1:], VerdictRow)
    assert freeze(finished, folder)["elsewhere"] == {}, "sums of other content are no use"
