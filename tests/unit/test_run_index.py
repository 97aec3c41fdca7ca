"""``ecoagent index``: a run's tools, and those that came later, found by request without training."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ecoagent.cli.app import app
from ecoagent.evaluation import run_index
from ecoagent.evaluation.new_tools import NewTool, read_new_tools
from ecoagent.evaluation.run_index import RunIndex
from ecoagent.reliability.score import ReliabilityScales
from ecoagent.retrieval import StoredEncoder
from ecoagent.runs import RunContext, read_rows
from ecoagent.schema import ScoredTool, tool_text
from ecoagent.settings import UserError
from tests.unit.fixture_run import fixture_settings, write_fixture_run

DIM = 256


class Words:
    """A text is its words; counts what it encodes."""

    name, dim = "words", DIM

    def __init__(self) -> None:
        self.seen: list[str] = []

    def encode_queries(self, texts: Sequence[str], on_batch: Callable[[int], None] | None = None) -> Any:
        return self.encode_documents(texts, on_batch)

    def encode_documents(self, texts: Sequence[str], on_batch: Callable[[int], None] | None = None) -> Any:
        self.seen += texts
        rows = np.full((len(texts), DIM), 1e-3, dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.lower().replace(".", " ").split():
                row[sum(n * ord(c) for n, c in enumerate(word, 1)) % DIM] += 1
        if on_batch is not None:
            on_batch(len(texts))
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> Words:
    """Both encoders of an index, behind real stores."""
    inner = Words()

    def run_encoder(ctx: RunContext) -> StoredEncoder:
        return StoredEncoder("words", "w1", ctx.settings.outputs / "store" / "encodings", lambda: inner)

    monkeypatch.setattr(run_index, "run_encoder", run_encoder)
    monkeypatch.setattr(
        run_index,
        "stored_encoder",
        lambda settings, name, progress, pooling: StoredEncoder(
            name, "s1", settings.outputs / "store" / "encodings", lambda: inner
        ),
    )
    return inner


@pytest.fixture
def ctx(tmp_path: Path) -> RunContext:
    found = write_fixture_run(fixture_settings(tmp_path / "outputs"))
    scales = {"description_median": 60.0, "description_scale": 25.0, "tags_median": 4.0, "tags_scale": 3.0}
    (found.paths.core / "reliability_scales.json").write_text(json.dumps({**scales, "tools": 12}))
    return found


FAX = NewTool("mine:fax", "", "Send fax", "Sends a fax to a telephone number.", "crewai", ("fax", "phone"))


def fax() -> NewTool:
    text = tool_text(str(FAX.name), str(FAX.description), tags=FAX.tags)
    return NewTool(FAX.id, text, FAX.name, FAX.description, FAX.source, FAX.tags)


def test_a_new_tool_is_encoded_alone_scored_by_the_runs_ruler_and_found(
    ctx: RunContext, words: Words
) -> None:
    tools = read_rows(ctx.paths.core / "tools.parquet", ScoredTool)
    built = RunIndex(ctx).build()
    assert built.tools == built.added == len(tools) and built.recall is None
    assert built.encoded == len({t.tool_text for t in tools}) and built.store_bytes > 0
    assert RunIndex(ctx).build().encoded == 0
    words.seen.clear()
    report = RunIndex(ctx).add([fax()])
    assert (report.added, report.changed, report.encoded) == (1, 0, 1)
    assert report.tools == len(tools) + 1
    assert sorted(words.seen) == sorted([fax().tool_text, str(FAX.name), str(FAX.description)])
    [[best, *rest]] = RunIndex(ctx).search(["send a fax to this number"], 5)
    assert best.tool.id == "mine:fax" and best.tool.added and len(rest) == 4
    ruler = ReliabilityScales(60.0, 25.0, 4.0, 3.0, 12)
    name, about = Words().encode_documents([str(FAX.name), str(FAX.description)])
    right = ruler.score_new(
        name, about, source="crewai", description=str(FAX.description), tags=FAX.tags,
        settings=ctx.settings.reliability,
    )  # fmt: skip
    assert best.tool.r_static == pytest.approx(right.r_static, abs=1e-6)
    assert best.tool.r_cons == pytest.approx(right.r_cons, abs=1e-6) and best.tool.w_src == 0.9
    # The run's own tools keep their scores.
    [[own]] = RunIndex(ctx).search([tools[0].tool_text], 1)
    assert own.tool.r_static == {t.id: t.r_static for t in tools}[own.tool.id] and own.hit.score == 1.0


def test_adding_again_changes_nothing_and_another_text_takes_the_place(ctx: RunContext, words: Words) -> None:
    RunIndex(ctx).build()
    RunIndex(ctx).add([fax()])
    again = RunIndex(ctx).add([fax(), NewTool(FAX.id + "2", "Telegram of another kind.")])
    assert (again.added, again.changed, again.encoded) == (1, 0, 1)
    same = RunIndex(ctx).add([NewTool(FAX.id, fax().tool_text)])
    assert (same.added, same.changed, same.encoded) == (0, 0, 0)
    [[found]] = RunIndex(ctx).search([fax().tool_text], 1)
    assert found.tool.r_static is not None
    changed = RunIndex(ctx).add([NewTool(FAX.id, "Carrier pigeon service.")])
    assert (changed.added, changed.changed) == (0, 1)
    [[pigeon]] = RunIndex(ctx).search(["carrier pigeon service"], 1)
    assert pigeon.tool.id == FAX.id and pigeon.tool.r_static is None
    assert RunIndex(ctx).remove([FAX.id, FAX.id]) == changed.tools - 1
    [hits] = RunIndex(ctx).search(["carrier pigeon service"], 100)
    assert FAX.id not in {h.tool.id for h in hits} and len(hits) == changed.tools - 1
    with pytest.raises(UserError, match="not in the index"):
        RunIndex(ctx).remove([FAX.id])


def test_recall_is_measured_where_there_is_a_graph(ctx: RunContext, words: Words) -> None:
    pytest.importorskip("usearch")
    chosen = ctx.settings.index.model_copy(update={"exact_limit": 3})
    large = RunContext(ctx.settings.model_copy(update={"index": chosen}), ctx.paths, ctx.progress)
    built = RunIndex(large).build()
    assert built.recall is not None and built.recall.recall == 1.0 and built.recall.queries > 1
    after = RunIndex(large).add([fax()])
    assert after.recall is not None
    [[best]] = RunIndex(large).search(["send a fax to this number"], 1)
    assert best.tool.id == FAX.id


def test_another_encoder_or_no_index_is_said(
    ctx: RunContext, words: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="no index"):
        RunIndex(ctx).search(["x"], 1)
    RunIndex(ctx).build()
    monkeypatch.setattr(
        run_index, "run_encoder", lambda ctx: StoredEncoder("other", "w2", ctx.paths.root / "s", Words)
    )
    with pytest.raises(UserError, match=r"another encoder \(words\)"):
        RunIndex(ctx).add([fax()])


def test_the_command_line(ctx: RunContext, words: Words, tmp_path: Path) -> None:
    where = ["--profile", "local", "--set", f"outputs={ctx.settings.outputs}"]
    where += ["--run", ctx.settings.run_name, "--json"]

    def call(*arguments: str) -> Any:
        done = CliRunner().invoke(app, ["index", *arguments, *where])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    assert call("build", "--dry-run")["tools"] > 0 and not (ctx.paths.root / "index").exists()
    built = call("build")
    folder = ctx.settings.outputs / "store" / "encodings"
    assert built["added"] > 0 and built["store"]["folder"] == str(folder)
    assert built["store"]["vectors"] == built["encoded"] == len(words.seen)
    assert built["store"]["bytes"] == sum(p.stat().st_size for p in folder.glob("*.sqlite"))
    path = tmp_path / "mine.jsonl"
    rows = [
        {"id": "mine:fax", "name": "Send fax", "description": "Sends a fax."},
        {"id": "b", "tool_text": "Bee."},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert call("add", str(path), "--dry-run")["tools"] == 2
    added = call("add", str(path))
    assert added["added"] == 2 and added["encoded"] == 2 and added["encode_s"] >= 0
    # Two tools; and, for r_cons, name and description of the one that has them.
    assert added["store"]["vectors"] == built["store"]["vectors"] + 2 + 2
    best = call("search", "send a fax", "--k", "1")
    assert [b["id"] for b in best] == ["mine:fax"] and best[0]["rank"] == 1
    assert call("remove", "b")["removed"] == 1
    shown = CliRunner().invoke(app, ["index", "build", *where[:-1]])
    assert shown.exit_code == 0 and f"{folder} keeps {added['store']['vectors']:,} vectors" in " ".join(
        shown.output.split()
    )
    wrong = CliRunner().invoke(app, ["index", "search", " ", *where])
    assert wrong.exit_code == 2


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"name": "x", "description": "y"}, "row 2: id is missing"),
        ({"id": "a", "name": "x"}, "row 2: description is missing"),
        ({"id": "a", "description": " "}, "row 2: tool_text is missing"),
        ({"id": "a", "name": 3, "description": "y"}, "row 2: name is not a text"),
        ({"id": "a", "tool_text": "x", "tags": "y"}, "row 2: tags is no list"),
        ({"id": "first", "tool_text": "x"}, "row 2: id 'first' occurs twice"),
    ],
)
def test_wrong_rows_name_file_and_row(row: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = tmp_path / "tools.jsonl"
    path.write_text('{"id": "first", "tool_text": "x"}\n' + json.dumps(row) + "\n")
    with pytest.raises(UserError, match=rf"tools.jsonl {said}"):
        read_new_tools(path)


def test_tools_are_read_from_texts_schema_rows_and_a_runs_own_table(ctx: RunContext, tmp_path: Path) -> None:
    path = tmp_path / "tools.jsonl"
    operations = [{"name": "Get", "resource": None}, "List"]
    row = {"id": "a", "name": "card", "display_name": "Card", "description": "Moves a card.", "tags": ["b"]}
    path.write_text(json.dumps({**row, "group_name": "Trello", "operations": operations}) + "\n\n")
    [found] = read_new_tools(path)
    assert found.tool_text == "Trello: Card. Moves a card. Operations: Get, List. Tags: b."
    assert found.name == "Card" and found.tags == ("b",)
    own = read_new_tools(ctx.paths.core / "tools.parquet", 2)
    tools = read_rows(ctx.paths.core / "tools.parquet", ScoredTool)
    assert [(t.id, t.tool_text) for t in own] == [(t.id, t.tool_text) for t in tools[:2]]
    path.write_text("\n")
    with pytest.raises(UserError, match="holds no tool"):
        read_new_tools(path)
    (tmp_path / "bad.parquet").write_bytes(b"no")
    with pytest.raises(UserError, match="Parquet"):
        read_new_tools(tmp_path / "bad.parquet")
