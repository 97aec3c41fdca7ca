"""Differences between two tool tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoagent.audit.diff import compare, diff_tools, spread
from ecoagent.runs import write_table
from ecoagent.schema import (
    Auth,
    AuthField,
    Deprecation,
    Endpoint,
    Operation,
    Provenance,
    RejectedTool,
    ScoredTool,
    ToolRecord,
)
from ecoagent.settings import UserError


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
        ("crewai:B", "tags[x]", None, "x"),
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
    assert [(r.old, r.new) for r in found.renamed] == [("crewai:Old", "crewai:Renamed")]
    assert found.removed == ("crewai:P", "crewai:Q")
    assert found.added == ("crewai:R",)


def test_other_bytes_alone_are_no_change_of_the_tool(tmp_path: Path) -> None:
    one = write_table(tmp_path / "one.parquet", [tool("crewai:A")], ScoredTool)
    two = write_table(tmp_path / "two.parquet", [tool("crewai:A", version="2")], ScoredTool)
    assert [c.field for c in diff_tools(one, two).changed] == ["version"]
    assert diff_tools(one, one).line() == "0 added, 0 removed, 0 renamed, 0 changed"


def rejected(kept: ScoredTool, reason: str) -> RejectedTool:
    facts = {name: getattr(kept, name) for name in ToolRecord.model_fields}
    return RejectedTool(**facts, stage="crawl", reason=reason, detail="seen by hand")


def changed(old: ScoredTool, new: ScoredTool) -> dict[str, tuple[str, str | None, str | None]]:
    return {c.field: (c.change, c.old, c.new) for c in compare([old], [new]).changed}


def test_nested_facts_change_one_by_one() -> None:
    base = tool("crewai:A")
    key = AuthField(name="key", secret=True, required=True)
    old = base.model_copy(
        update={
            "auth": [
                Auth(type="env", name="ONE_KEY", fields=[key], required=True, origin="env_vars"),
                Auth(type="env", name="OLD_KEY", required=None, origin="env_vars"),
            ],
            "endpoints": [Endpoint(url="https://a.example/v1", origin="literal", is_template=False)],
            "operations": [
                Operation(resource="file", operation="get", name="Get"),
                Operation(resource="file", operation="put", name="Put"),
            ],
        }
    )
    new = base.model_copy(
        update={
            "auth": [
                Auth(
                    type="env",
                    name="ONE_KEY",
                    fields=[key, AuthField(name="region", secret=False, required=False)],
                    required=False,
                    origin="env_vars",
                )
            ],
            "endpoints": [
                Endpoint(url="https://a.example/v1", origin="class", is_template=False),
                Endpoint(url="https://b.example", origin="literal", is_template=False),
            ],
            "operations": [
                Operation(resource="file", operation="get", name="Fetch"),
                Operation(resource=None, operation="get", name="Get any"),
            ],
        }
    )
    found = changed(old, new)
    assert found["auth[ONE_KEY].required"] == ("changed", "true", "false")
    assert found["auth[ONE_KEY].fields[region]"][0] == "added"
    assert found["auth[OLD_KEY]"][0] == "removed" and found["auth[OLD_KEY]"][2] is None
    assert found["endpoints[https://a.example/v1].origin"] == ("changed", "literal", "class")
    assert found["endpoints[https://b.example]"][0] == "added"
    assert found["operations[file/get].name"] == ("changed", "Get", "Fetch")
    assert found["operations[file/put]"][0] == "removed" and found["operations[get]"][0] == "added"
    assert len(found) == 8
    assert compare([old], [new]).by_field() == {"auth": 1, "endpoints": 1, "operations": 1}


def test_inputs_and_facts_that_are_null() -> None:
    base = tool("crewai:A")
    old = base.model_copy(update={"input_schema": '{"properties": {"a": {"type": "string"}, "b": {}}}'})
    new = base.model_copy(update={"input_schema": '{"properties": {"a": {"type": "integer"}, "c": {}}}'})
    found = changed(old, new)
    assert {f: c[0] for f, c in found.items()} == {
        "input_schema[a]": "changed",
        "input_schema[b]": "removed",
        "input_schema[c]": "added",
    }
    assert changed(base, old)["input_schema[b]"] == ("added", None, "{}")
    broken = base.model_copy(update={"input_schema": "{"})
    assert changed(base, broken) == {"input_schema": ("added", None, "{")}
    shown = base.model_copy(update={"display_name": "Brevo"})
    assert changed(base, shown) == {"display_name": ("added", None, "Brevo")}


def test_a_tool_that_is_now_rejected_says_why() -> None:
    one, two = tool("crewai:A", description="One."), tool("crewai:B", description="Two.")
    found = compare([one, two], [two], [], [rejected(one, "deprecated")])
    assert [(g.tool_id, g.reason, g.detail) for g in found.gone] == [
        ("crewai:A", "deprecated", "seen by hand")
    ]
    assert found.by_source() == [
        {"source": "crewai", "added": 0, "removed": 1, "rejected": 1, "renamed": 0, "changed": 0}
    ]
    assert found.rows()[0]["new"] == "rejected: deprecated"
    back = compare([two], [one, two], [rejected(one, "hidden")], [])
    assert back.come[0].reason == "hidden" and back.as_dict()["added_rejected_before"] == {
        "crewai:A": "hidden"
    }


def test_renamed_by_description_or_file_and_still_compared() -> None:
    def at(identifier: str, path: str, **facts: object) -> ScoredTool:
        made = tool(identifier, description=str(facts.pop("description", "Same words.")))
        place = made.provenance.model_copy(update={"path": path})
        return made.model_copy(update={"provenance": place, "name": identifier, **facts})

    old = [at("crewai:x.A", "a.js"), at("crewai:x.B", "b.js", description="Was said so.")]
    new = [at("crewai:A", "c.js", tags=["t"]), at("crewai:B", "b.js", description="Is said so.")]
    found = compare(old, new)
    assert [(r.old, r.new, r.how) for r in found.renamed] == [
        ("crewai:x.A", "crewai:A", "same description"),
        ("crewai:x.B", "crewai:B", "same file"),
    ]
    assert {(c.tool_id, c.field) for c in found.changed} == {
        ("crewai:A", "name"),
        ("crewai:A", "tags[t]"),
        ("crewai:B", "name"),
        ("crewai:B", "description"),
    }


def test_two_granularities_are_refused() -> None:
    whole = tool("crewai:A").model_copy(update={"granularity": "package"})
    with pytest.raises(UserError, match="granularity") as caught:
        compare([whole], [tool("crewai:A")])
    assert caught.value.exit_code == 2
    assert compare([], [tool("crewai:A")]).added == ("crewai:A",)


def test_the_table_shows_every_kind() -> None:
    rows = [{"what": "added", "n": i} for i in range(500)] + [{"what": "changed", "n": i} for i in range(3)]
    kept = spread(rows, 10)
    assert [r["what"] for r in kept] == ["added"] * 7 + ["changed"] * 3
    assert spread(rows[:4], 10) == rows[:4]


def test_rejects_are_read_beside_the_tools(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one = write_table(tmp_path / "one" / "tools.parquet", [tool("crewai:A")], ScoredTool)
    two = write_table(tmp_path / "two" / "tools.parquet", [], ScoredTool)
    lost = [rejected(tool("crewai:A"), "hidden")]
    write_table(tmp_path / "two" / "tool_rejects.parquet", lost, RejectedTool)
    assert diff_tools(one, two).gone[0].reason == "hidden"
    wrong = tmp_path / "one" / "tools_other.parquet"
    from ecoagent.schema import RejectRow

    write_table(wrong, [RejectRow(id="a", stage="s", reason="r", detail="d")], RejectRow)
    with pytest.raises(UserError, match="has no column"):
        diff_tools(wrong, two)
