"""The flaw table: what is judged, counted and kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoagent.reliability.flaws import (
    CRITICAL,
    FlawTable,
    flaw_table,
    iter_facts,
    load_flaws,
    write_flaws,
)
from ecoagent.runs import write_table
from ecoagent.schema import (
    SOURCES,
    Auth,
    Deprecation,
    Endpoint,
    LinkRow,
    NormalizedTool,
    Provenance,
    RejectedTool,
)


def facts(name: str, **changes: Any) -> dict[str, Any]:
    source = changes.pop("source", "langchain")
    backend, page = changes.pop("backend", "client"), changes.pop("page", "tool.py")
    return {
        "id": f"{source}:{name}",
        "source": source,
        "name": name,
        "description": "Looks up the tide at a harbour.",
        "description_origin": "class",
        "kind": "tool",
        "granularity": "tool",
        "group_id": "pack",
        "auth_required": "no",
        "deprecated": Deprecation(state=False),
        "provenance": Provenance(
            artifact="pack", artifact_version="1", sha256="0", path=page, backend=backend, parser_version="2"
        ),
    } | changes


def tool(name: str, **changes: Any) -> NormalizedTool:
    more = {"provider": "pack", "duplicate_group": name, "tool_text": name}
    return NormalizedTool(**facts(name, **changes), **more)


def reject(name: str, reason: str, detail: str | None = None, **changes: Any) -> RejectedTool:
    return RejectedTool(**facts(name, **changes), stage="crawl", reason=reason, detail=detail)


def calls(url: str) -> dict[str, Any]:
    """A tool that calls ``url`` and declares nothing."""
    endpoint = Endpoint(url=url, origin="literal", is_template=False)
    return {"endpoints": [endpoint], "auth_required": "unknown", "quality_flags": ["missing_auth"]}


def link(
    url: str, state: Any, *ids: str, kinds: Sequence[str] = ("docs",), status: int | None = None
) -> LinkRow:
    return LinkRow(
        url=url, host="h", kinds=list(kinds), tool_ids=list(ids), state=state, reason="r", status=status,
        checked_at="2026-01-01T00:00:00Z",
    )  # fmt: skip


def counts(table: FlawTable, flaw: str, source: str = "all") -> tuple[int, int, int]:
    row = table.row(flaw, source)
    return row.flawed, row.tools, row.unknown


def test_what_is_listed() -> None:
    rejects = [
        reject("a", "no_description", description=""),
        reject("b", "deprecated", deprecated=Deprecation(state=True)),
        *(reject(r, r) for r in ("template", "abstract", "alias", "not_exported", "hidden", "no_tools")),
    ]
    table = flaw_table([tool("t")], rejects, None)
    assert table.listed == 3
    assert counts(table, "empty_description") == (1, 3, 0)
    assert counts(table, "deprecated") == (1, 3, 0)
    assert counts(table, "any_critical") == (2, 3, 0)
    assert counts(table, "boilerplate") == (0, 1, 2), "the text of rejects was never looked at"


def test_authentication_is_judged_only_where_something_is_known() -> None:
    key = Auth(type="env", name="TIDE_API_KEY", origin="code")
    table = flaw_table(
        [
            tool("flawed", **calls("https://api.tides.com/v1")),
            tool("open", **calls("https://www.wikidata.org/w/api.php")),
            tool("half", **calls("https://wikidata.org.tides.com/")),
            tool("declares", auth=[key], auth_required="yes"),
            tool("needs none", auth_required="no"),
            tool("says nothing", auth_required="unknown"),
        ],
        [],
        None,
    )
    assert counts(table, "missing_auth") == (2, 5, 1)
    assert "1 neither" in table.row("missing_auth").note


def test_a_401_tells_that_authentication_is_missing() -> None:
    tools = [tool("a", auth_required="no"), tool("b", auth_required="unknown"), tool("c")]
    walled = [
        link("https://x.io/", "auth_walled", "langchain:a", "langchain:b", kinds=["endpoint"], status=401),
        link("https://y.io/", "auth_walled", "langchain:c", kinds=["endpoint"], status=403),
    ]
    assert counts(flaw_table(tools, [], walled), "missing_auth") == (2, 3, 0)


def test_links() -> None:
    tools = [tool(n) for n in "abcde"]
    table = flaw_table(
        tools,
        [],
        [
            link("1", "alive", "langchain:a", "langchain:b", "langchain:c"),
            link("2", "dead", "langchain:b", kinds=["endpoint"]),
            link("3", "dead", "langchain:c", kinds=["repository"]),
            link("4", "unknown", "langchain:d"),
            link("5", "auth_walled", "langchain:e", kinds=["docs", "repository"]),
        ],
    )
    assert counts(table, "broken_link") == (1, 4, 1)
    assert counts(table, "broken_repository") == (1, 2, 3)
    assert table.links == 4
    assert "1 without" in table.row("broken_link").note


def test_without_links_the_table_says_so() -> None:
    table = flaw_table([tool("a")], [], None)
    row = table.row("broken_link")
    assert (row.tools, row.share, row.low, row.high) == (0, None, None, None)
    assert "not checked" in row.note
    assert "lower bound" in table.row("any_critical").note
    assert "50%" in str(table.row("any_critical").paper_claim)


def test_pages_of_the_crawl_are_checked_links() -> None:
    page: dict[str, Any] = {"backend": "http", "page": "https://d.io/a", "docs_url": "https://d.io/a"}
    rejects = [
        reject("gone", "dead_page", "soft_404", **page | {"description": ""}),
        reject("slow", "dead_page", "timeout", **page | {"description": ""}),
        reject("same", "known_from_package", **page),
        reject("list", "dead_page", "gone", source="n8n_community", **page),
        reject("spec", "dead_page", "gone", **page | {"docs_url": "https://d.io/specs.json"}),
    ]
    tools = [
        tool("read", **page),
        tool("from package"),
        tool("listing", **page | {"docs_url": "https://d.io/b"}),
    ]
    table = flaw_table(tools, rejects, None)
    assert table.listed == 5
    # Read, gone, and the page of the tool that is known from its package.
    assert counts(table, "broken_link") == (1, 3, 2)
    assert counts(table, "empty_description") == (0, 3, 2)
    assert counts(table, "any_critical") == (1, 4, 1), "of a page that timed out nothing is known"


def test_minor_flags_and_totals() -> None:
    table = flaw_table(
        [tool("a", quality_flags=["boilerplate", "short"]), tool("b", quality_flags=["default_version_1"])],
        [],
        None,
    )
    assert counts(table, "short") == (1, 2, 0)
    assert counts(table, "any_critical") == (0, 2, 0)
    assert counts(table, "any_named") == (1, 2, 0)
    with pytest.raises(KeyError):
        table.row("default_version_1")


tool_facts = st.fixed_dictionaries(
    {
        "source": st.sampled_from(SOURCES),
        "description": st.sampled_from(["", "Looks up tides."]),
        "auth_required": st.sampled_from(["yes", "no", "unknown"]),
        "quality_flags": st.lists(st.sampled_from(["boilerplate", "missing_auth", "short"]), unique=True),
        "deprecated": st.builds(Deprecation, state=st.booleans()),
    }
)
states = st.sampled_from(["alive", "dead", "auth_walled", "unknown"])


@given(
    st.lists(tool_facts, max_size=30),
    st.lists(st.sampled_from(["no_description", "hidden", "dead_page"]), max_size=5),
    st.none() | st.lists(st.tuples(states, st.integers(0, 29)), max_size=30),
)
def test_shares_and_sums(
    rows: list[dict[str, Any]], reasons: list[str], seen: list[tuple[Any, int]] | None
) -> None:
    tools = [tool(str(n), **row) for n, row in enumerate(rows)]
    rejects = [reject(f"r{n}", reason) for n, reason in enumerate(reasons)]
    links = None
    if seen is not None:
        links = [link(f"u{i}", s, *(t.id for t in tools[n : n + 1])) for i, (s, n) in enumerate(seen)]
    table = flaw_table(tools, rejects, links)
    for row in table.rows:
        assert 0 <= row.flawed <= row.tools <= table.listed
        assert row.tools + row.unknown >= row.flawed
        if row.share is not None:
            assert row.low is not None and row.high is not None
            assert 0 <= row.low <= row.share <= row.high <= 1
        if row.source == "all":
            parts = [r for r in table.rows if r.flaw == row.flaw and r.source != "all"]
            assert sum(r.flawed for r in parts) == row.flawed
            assert sum(r.tools for r in parts) == row.tools
            assert row.tools + row.unknown == table.listed
    for name in CRITICAL:
        assert table.row(name).flawed <= table.row("any_critical").flawed
    assert table.row("any_critical").flawed <= table.row("any_named").flawed


def test_files(tmp_path: Path) -> None:
    tools = [tool("a"), tool("b", **calls("https://api.tides.com/"))]
    rejects = [reject("c", "no_description", description="")]
    assert load_flaws(tmp_path) is None
    plain = flaw_table(tools, rejects, None)
    path = write_flaws(tmp_path, plain)
    assert path == tmp_path / "results" / "flaws.json"
    first = path.read_bytes()
    assert load_flaws(tmp_path) == plain

    linked = flaw_table(tools, rejects, [link("1", "dead", "langchain:a")])
    assert linked.tools_digest == plain.tools_digest
    assert write_flaws(tmp_path, linked).name == "flaws_links.json"
    assert load_flaws(tmp_path) == linked
    assert path.read_bytes() == first, "what the score stage wrote does not change with the links"

    changed = flaw_table(
        [tool("a", description="Another text, deprecated.", auth_required="yes")], rejects, None
    )
    write_flaws(tmp_path, changed)
    assert load_flaws(tmp_path) == changed, "links of other tools are left out"

    path.write_text("{", "utf-8")
    (tmp_path / "results" / "flaws_links.json").write_text("[]", "utf-8")
    assert load_flaws(tmp_path) is None


def test_rows_of_tables_give_the_same_table(tmp_path: Path) -> None:
    tools = [tool("a", docs_url="https://d.io/a"), tool("b", **calls("https://api.tides.com/"))]
    rejects = [reject("c", "no_description", "said nothing", description="")]
    kept = write_table(tmp_path / "tools.parquet", tools, NormalizedTool)
    dropped = write_table(tmp_path / "rejects.parquet", rejects, RejectedTool)
    read = flaw_table(iter_facts(kept, NormalizedTool), iter_facts(dropped, RejectedTool), None)
    assert read == flaw_table(tools, rejects, None)
