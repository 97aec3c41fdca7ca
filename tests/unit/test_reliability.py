"""Eq. 4-5 against independently computed values, and the ruler for new tools."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoagent.reliability import ReliabilityScales, score_tools, shown_name, source_weight
from ecoagent.reliability import grouping as grouping_module
from ecoagent.reliability import stage as stage_module
from ecoagent.reliability.columns import joined_lengths
from ecoagent.reliability.duplicates import key_of, text_of_key
from ecoagent.reliability.flaws import load_flaws
from ecoagent.reliability.stage import ScoreStage
from ecoagent.reliability.statistics import BINS, describe, statistics
from ecoagent.runs import Progress, RunContext, execute, read_json, read_rows, write_table
from ecoagent.schema import SOURCES, DuplicateRow, NormalizedTool, RejectedTool, ScoredTool
from ecoagent.settings import ReliabilitySettings, UserError, load_settings

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "r_static.json").read_text())


def _catalog() -> tuple[list[str], list[str], list[list[str]], list[str], Any]:
    n = len(GOLDEN["source"])
    names = [f"name {i}" for i in range(n)]
    descriptions = [f"{i:03d}".ljust(length, ".")[:length] for i, length in enumerate(GOLDEN["desc_len"])]
    tags = [["t" * length] if length else [] for length in GOLDEN["tag_len"]]

    def embed(texts: list[str]) -> np.ndarray:
        assert texts == names + descriptions
        return np.array(GOLDEN["name_emb"] + GOLDEN["desc_emb"])

    return names, descriptions, tags, GOLDEN["source"], embed


def test_golden_values_to_1e9() -> None:
    scores = score_tools(*_catalog())
    for column, key in (("r_cons", "cons"), ("w_src", "src"), ("r_qual", "qual"), ("r_static", "r_static")):
        assert getattr(scores, column) == pytest.approx(GOLDEN["expected"][key], abs=1e-9), column
    assert scores.reliable.tolist() == [x >= 0.8 for x in GOLDEN["expected"]["r_static"]]


def test_a_new_tool_is_scored_by_the_same_ruler() -> None:
    names, descriptions, tags, sources, embed = _catalog()
    scores = score_tools(names, descriptions, tags, sources, embed)
    for i in range(len(names)):
        again = scores.scales.score_new(
            np.array(GOLDEN["name_emb"][i]),
            np.array(GOLDEN["desc_emb"][i]),
            source=sources[i],
            description=descriptions[i],
            tags=tags[i],
        )
        assert vars(again) == pytest.approx(scores.row(i), abs=1e-12)


def test_source_weights_listing_and_literal() -> None:
    listed = {
        s: source_weight(s) for s in ("langchain", "crewai", "llamaindex", "n8n_official", "n8n_community")
    }
    assert listed == {
        "langchain": 0.9,
        "crewai": 0.9,
        "llamaindex": 0.9,
        "n8n_official": 1.0,
        "n8n_community": 0.8,
    }
    assert source_weight("n8n_official", "literal") == 0.8
    assert source_weight("langchain", "literal") == 0.9
    assert source_weight("elsewhere") == 0.6


def test_equal_lengths_give_the_middle_not_nan() -> None:
    scores = score_tools(
        ["a", "b"], ["same", "size"], [[], []], ["langchain"] * 2, lambda texts: np.ones((len(texts), 3))
    )
    assert scores.r_qual.tolist() == [0.5, 0.5]
    assert scores.r_static == pytest.approx([0.5 + 0.27 + 0.1] * 2)


def test_no_tools_is_no_error() -> None:
    scores = score_tools([], [], [], [], lambda texts: np.zeros((0, 3)))
    assert scores.r_static.shape == (0,) and scores.scales.tools == 0


def test_tags_count_joined_by_a_blank() -> None:
    scores = score_tools(
        ["a", "b", "c"],
        ["d"] * 3,
        [["ab", "cd"], ["abcde"], []],
        ["x"] * 3,
        lambda texts: np.ones((len(texts), 2)),
    )
    assert scores.r_qual[0] == scores.r_qual[1] > scores.r_qual[2]


@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 300)), min_size=1, max_size=30),
    st.floats(-1, 1),
)
def test_score_stays_in_the_unit_interval_and_grows_with_documentation(
    lengths: list[tuple[int, int]], cosine: float
) -> None:
    scales = ReliabilityScales.measure([d for d, _ in lengths], [t for _, t in lengths])
    vector = np.array([cosine, (1 - cosine**2) ** 0.5])

    def scored(size: int) -> Any:
        return scales.score_new(
            np.array([1.0, 0.0]),
            vector,
            source="n8n",
            description="x" * size,
            tags=[],
            settings=ReliabilitySettings(),
        )

    short, long = scored(10), scored(200)
    assert 0 <= short.r_static <= long.r_static <= 1


def test_the_name_shown_to_people_comes_first() -> None:
    assert shown_name("tavilySearch", "Tavily Search") == "Tavily Search"
    assert shown_name("wikipedia", None) == "wikipedia"
    assert shown_name("wikipedia", "") == "wikipedia"


class HashEncoder:
    """Vectors by hash of the text; counts the texts it was asked for."""

    name, dim = "hash", 8

    def __init__(self) -> None:
        self.asked: list[int] = []

    def encode_documents(self, texts: Sequence[str], on_batch: Any = None) -> np.ndarray:
        self.asked.append(len(texts))
        rows = [np.random.default_rng(zlib.crc32(t.encode())).standard_normal(self.dim) for t in texts]
        return np.array(rows, dtype=np.float32)

    encode_queries = encode_documents


def _tool(i: int) -> NormalizedTool:
    identifier, source = f"{SOURCES[i % 5].removesuffix('_official')}:t{i:03d}", SOURCES[i % 5]
    return NormalizedTool.model_validate(
        {
            "id": identifier,
            "source": source,
            "name": f"tool_{i}",
            "display_name": None if i % 3 else f"Tool {i}",
            "description": f"Döes thing {i}. " * (1 + i % 4),
            "description_origin": "class",
            "kind": "tool",
            "granularity": "tool",
            "group_id": "g",
            "auth_required": "unknown",
            "tags": ["ab", "é" * (i % 6 + 1)][: i % 3],
            "deprecated": {"state": False},
            "provenance": {
                "artifact": "a",
                "artifact_version": "1",
                "sha256": "0",
                "path": "p",
                "backend": "client",
                "parser_version": "1",
            },
            "quality_flags": ["short"] if i % 2 else [],
            "provider": "p",
            "duplicate_group": identifier,
            "tool_text": f"Tool {i}.",
        }
    )


TOOLS = sorted((_tool(i) for i in range(23)), key=lambda t: t.id)


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> HashEncoder:
    made = HashEncoder()
    monkeypatch.setattr(stage_module, "load_sbert", lambda ctx, name: made)
    return made


def _run(folder: Path, tools: list[NormalizedTool] = TOOLS) -> RunContext:
    settings = load_settings("local", overrides=[f'outputs="{folder}"'], env={}, run="t")
    ctx = RunContext.create(settings, Progress(io.StringIO()))
    write_table(ctx.paths.core / "tools_normalized.parquet", tools, NormalizedTool)
    write_table(ctx.paths.core / "tool_rejects.parquet", [], RejectedTool)
    return ctx


def test_the_stage_writes_what_the_function_gives(tmp_path: Path, encoder: HashEncoder) -> None:
    ctx = _run(tmp_path)
    outcome = execute(ScoreStage(), ctx)
    scores = score_tools(
        [shown_name(t.name, t.display_name) for t in TOOLS],
        [t.description for t in TOOLS],
        [t.tags for t in TOOLS],
        [t.source for t in TOOLS],
        encoder.encode_documents,
    )
    rows = read_rows(ctx.paths.core / "tools.parquet", ScoredTool)
    for i, (row, tool) in enumerate(zip(rows, TOOLS, strict=True)):
        expected = tool.model_dump() | scores.row(i)
        assert row.model_dump() == {
            k: pytest.approx(v, abs=1e-6) if k[1] == "_" else v for k, v in expected.items()
        }
        assert row.r_cons == round(row.r_cons, 6)
    scales = read_json(ctx.paths.core / "reliability_scales.json")
    assert scales == vars(scores.scales)
    assert outcome.report.rows == {"tools": 23, "duplicate_pairs": 0}
    assert outcome.report.summary["duplicates"] == {"groups": 0, "tools": 0, "compared_in_parts": 1}
    stats = read_json(ctx.paths.out / "results" / "reliability.json")
    assert stats["scales"] == scales and set(stats["by_source"]) == set(SOURCES)
    assert sum(part["tools"] for part in stats["by_source"].values()) == stats["overall"]["tools"] == 23
    assert stats["overall"]["reliable"] == sum(r.reliable for r in rows)
    flaws = load_flaws(ctx.paths.out)
    assert flaws is not None and flaws.listed == 23 and flaws.row("short").flawed == 11


def test_shards_give_the_same_tables_and_are_kept(
    tmp_path: Path, encoder: HashEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _run(tmp_path / "whole")
    execute(ScoreStage(), whole)
    monkeypatch.setattr(stage_module, "TOOLS_PER_SHARD", 5)
    parts = _run(tmp_path / "parts")
    assert [s.ids for s in ScoreStage().plan(parts) if s.key.startswith("rows")] == [
        ("0", "5"),
        ("5", "10"),
        ("10", "15"),
        ("15", "20"),
        ("20", "23"),
    ]

    class StoppedError(Exception):
        pass

    def stop(self: Any, ctx: Any, results: Any) -> None:
        raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(ScoreStage, "merge", stop)
        with pytest.raises(StoppedError):
            execute(ScoreStage(), parts)
    encoder.asked.clear()
    execute(ScoreStage(), parts)
    assert encoder.asked == [], "the shards of the stopped run are kept"
    for name in (
        "core/tools.parquet",
        "core/reliability_scales.json",
        "out/results/reliability.json",
        "core/duplicates.parquet",
    ):
        assert (whole.paths.root / name).read_bytes() == (parts.paths.root / name).read_bytes(), name


def test_a_shard_of_another_table_is_refused(tmp_path: Path, encoder: HashEncoder) -> None:
    ctx = _run(tmp_path)
    stage = ScoreStage()
    execute(stage, ctx)
    write_table(ctx.paths.core / "tools_normalized.parquet", TOOLS[:-1], NormalizedTool)
    results = [stage_module.ShardResult(s, ctx.paths.raw / "score" / s.key) for s in stage.plan(ctx)]
    with pytest.raises(UserError, match="23 cosines"):
        stage.merge(ctx, results)


@given(st.lists(st.lists(st.text(max_size=4), max_size=4), max_size=8), st.integers(0, 4))
def test_lengths_of_joined_tags(tags: list[list[str]], skip: int) -> None:
    tags = [[t.encode("utf-8", "replace").decode() for t in row] for row in tags]
    column = pa.chunked_array([pa.array(tags, type=pa.list_(pa.string()))]).slice(skip)
    assert joined_lengths(column).tolist() == [len(" ".join(t)) for t in tags[skip:]]


def test_statistics_of_the_golden_catalog() -> None:
    scores = score_tools(*_catalog())
    stats = statistics(scores, GOLDEN["source"], ReliabilitySettings())
    overall = stats["overall"]
    assert overall["signals"]["r_static"]["median"] == pytest.approx(
        float(np.median(scores.r_static)), abs=1e-6
    )
    assert overall["share"] == pytest.approx(scores.reliable.mean(), abs=1e-6)
    assert sum(overall["histogram"]) == overall["tools"] and len(overall["histogram"]) == BINS
    for source, part in stats["by_source"].items():
        index = [i for i, s in enumerate(GOLDEN["source"]) if s == source]
        assert part["tools"] == len(index)
        assert part["signals"]["w_src"]["min"] == source_weight(source)
        low, high = part["share_interval_95"]
        assert 0 <= low <= part["share"] <= high <= 1 and low < high
        assert part["signals"]["r_cons"]["q1"] == pytest.approx(
            np.quantile(scores.r_cons[index], 0.25), abs=1e-6
        )
    assert describe(scores, np.zeros(0, dtype=np.int64)) == {"tools": 0, "reliable": 0}


TWINS = [
    {"id": "langchain:a.Draft", "name": "create_gmail_draft", "group_id": "a"},
    {"id": "langchain:b.Draft", "name": "create_gmail_draft", "group_id": "b"},
    {"id": "langchain:c.Send", "name": "send_gmail_message", "group_id": "c"},
]


def _twins() -> list[NormalizedTool]:
    words = "Drafts a message in Gmail with the given text."
    made = [
        _tool(0).model_copy(update={**t, "display_name": None, "description": words, "group_name": "Gmail"})
        for t in TWINS
    ]
    # What equal words alone said is not the last word, in either direction.
    flagged = made[2].model_copy(
        update={"quality_flags": ["duplicate", "short"], "duplicate_group": made[0].id}
    )
    return [*made[:2], flagged, *(t for t in TOOLS if t.id > flagged.id)]


@pytest.mark.parametrize("together", [25_000, 2])
def test_near_duplicates_replace_the_groups_of_equal_words(
    tmp_path: Path, encoder: HashEncoder, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(grouping_module, "COMPARED_TOGETHER", together)
    tools = _twins()
    ctx = _run(tmp_path, tools)
    execute(ScoreStage(), ctx)
    rows = {r.id: r for r in read_rows(ctx.paths.core / "tools.parquet", ScoredTool)}
    assert list(rows) == [t.id for t in tools]
    first, second, third = (rows[t["id"]] for t in TWINS)
    assert first.duplicate_group == second.duplicate_group == first.id
    assert "duplicate" in first.quality_flags and "duplicate" in second.quality_flags
    assert third.duplicate_group == third.id and third.quality_flags == ["short"]
    pairs = read_rows(ctx.paths.core / "duplicates.parquet", DuplicateRow)
    assert [(p.tool_id, p.other_id) for p in pairs] == sorted((p.tool_id, p.other_id) for p in pairs)
    assert [p.rule for p in pairs if (p.tool_id, p.other_id) == (first.id, second.id)] == ["exact"]
    assert not [p for p in (ctx.paths.raw / "score" / "duplicates").iterdir() if p.is_dir()]


def test_keys_are_those_of_whole_records(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.parquet", _twins(), NormalizedTool)
    for found, tool in zip(grouping_module.keyed_tools(path), _twins(), strict=True):
        assert found.key == key_of(tool) and found.text == text_of_key(tool)
        assert 0 <= grouping_module.part_of(found.key, 7) < 7
