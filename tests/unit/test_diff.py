"""Differences between two tool tables."""

from __future__ import annotations

from pathlib import Path

from ecoagent.audit.diff import compare, diff_tools
from ecoagent.runs import write_table
from ecoagent.schema import Deprecation, Provenance, ScoredTool


def tool(
    identifier: str, *, description: str = "Does it.", version: str = "1", tags: list[str] | None = None
) -> ScoredTool:
    return ScoredTool(
        id=identifier,
        source="crewai",
        name="Name",
        description=description,
        description_origin="class",
        kind="tool",
        granularity="tool",
        group_id="crewai:pkg",
        auth_required="unknown",
        tags=tags or [],
        deprecated=Deprecation(state=False),
        provenance=Provenance(
            artifact="a",
            artifact_version=version,
            sha256=version * 4,
            path="p",
            backend="client",
            parser_version="1",
        ),
        version=version,
        provider="p",
        duplicate_group=identifier,
        tool_text=description,
        r_cons=0.5,
        w_src=0.9,
        r_qual=0.5,
        r_static=0.6,
        reliable=False,
    )


def test_added_removed_changed() -> None:
    old = [
        tool("crewai:A"),
        tool("crewai:B", description="Old text."),
        tool("crewai:Gone", description="Only here."),
    ]
    new = [
        tool("crewai:A"),
        tool("crewai:B", description="New text.", tags=["x"]),
        tool("crewai:New", description="Fresh."),
    ]
    found = compare(old, new)
    assert found.added == ("crewai:New",)
    assert found.removed == ("crewai:Gone",)
    assert [(c.tool_id, c.field, c.old, c.new) for c in found.changed] == [
        ("crewai:B", "description", "Old text.", "New text."),
        ("crewai:B", "tags", "[]", '["x"]'),
    ]
    assert found.line() == "1 added, 1 removed, 0 renamed, 1 changed (description 1, tags 1)"


def test_renamed_only_where_it_is_unambiguous() -> None:
    old = [
        tool("crewai:Old", description="Same."),
        tool("crewai:P", description="Twice."),
        tool("crewai:Q", description="Twice."),
    ]
    new = [tool("crewai:Renamed", description="Same."), tool("crewai:R", description="Twice.")]
    found = compare(old, new)
    assert found.renamed == (("crewai:Old", "crewai:Renamed"),)
    assert found.removed == ("crewai:P", "crewai:Q")
    assert found.added == ("crewai:R",)


def test_other_bytes_alone_are_no_change_of_the_tool(tmp_path: Path) -> None:
    one = write_table(tmp_path / "one.parquet", [tool("crewai:A")], ScoredTool)
    two = write_table(tmp_path / "two.parquet", [tool("crewai:A", version="2")], ScoredTool)
    assert [c.field for c in diff_tools(one, two).changed] == ["version"]
    assert diff_tools(one, one).line() == "0 added, 0 removed, 0 renamed, 0 changed"
