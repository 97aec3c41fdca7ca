"""Documentation and packages: one record a tool."""

from __future__ import annotations

from typing import Any

import pytest

from ecoagent.crawlers.joining import Joiner, join
from ecoagent.crawlers.records import NOT_DEPRECATED
from ecoagent.schema import Candidate, Provenance, ToolRecord


def record(tool_id: str, *, pages: str = "", package: str = "", **more: Any) -> Candidate:
    status, reason = more.pop("status", "kept"), more.pop("reason", None)
    source = more.pop("source", tool_id.partition(":")[0])
    made = ToolRecord(
        id=tool_id,
        source="n8n_community" if source == "n8n" else source,
        name=tool_id,
        description=more.pop("description", f"{pages or package} says so"),
        description_origin="docs" if pages else "class",
        kind="tool",
        granularity=more.pop("granularity", "tool"),
        group_id=more.pop("group_id", package),
        auth_required="unknown",
        deprecated=NOT_DEPRECATED,
        provenance=Provenance(
            artifact=pages or package,
            artifact_version="1",
            sha256="0" * 64,
            path="x",
            backend="http" if pages else "client",
            parser_version="1",
        ),
        **more,
    )
    return Candidate(status=status, reason=reason, record=made)


def by_artifact(found: list[Candidate]) -> dict[str, list[tuple[str, str | None]]]:
    shown: dict[str, list[tuple[str, str | None]]] = {}
    for c in found:
        shown.setdefault(c.record.provenance.artifact, []).append((c.record.id, c.reason))
    return shown


def test_same_id_and_facts_the_package_lacks() -> None:
    node = "n8n:n8n-nodes-a.a"
    found = join(
        [
            record(node, package="n8n-nodes-a", downloads=7),
            record(
                node,
                pages="n8n-verified",
                group_id="n8n-nodes-a",
                downloads=9,
                verified=True,
                published_at="2025-01-02",
                docs_url="https://a.example/x",
            ),
        ]
    )
    kept = next(c.record for c in found if c.status == "kept")
    assert kept.description == "n8n-nodes-a says so"
    assert (kept.downloads, kept.verified, kept.published_at) == (7, True, "2025-01-02")
    assert kept.docs_url == "https://a.example/x"
    assert by_artifact(found)["n8n-verified"] == [(node, "known_from_package")]


def test_same_class_in_the_same_package() -> None:
    found = join(
        [
            record("langchain:langchain_x.search.tool.XSearch", package="langchain-x"),
            record("langchain:langchain_y.XSearch", package="langchain-y"),
            record(
                "langchain:langchain_x.XSearch",
                pages="langchain-docs",
                group_id="langchain_x",
                docs_url="https://d/x",
            ),
            record("langchain:langchain_z.XSearch", pages="langchain-docs", group_id="langchain-z"),
            record("langchain:langchain_y.YToolkit", pages="langchain-docs", group_id="langchain-y"),
            record("langchain:docs#plain", pages="langchain-docs", group_id="docs#plain"),
        ]
    )
    kept = {c.record.id: c.record for c in found if c.status == "kept"}
    assert kept["langchain:langchain_x.search.tool.XSearch"].docs_url == "https://d/x"
    assert kept["langchain:langchain_y.XSearch"].docs_url is None
    assert dict(by_artifact(found)["langchain-docs"]) == {
        "langchain:langchain_x.XSearch": "known_from_package",
        "langchain:langchain_z.XSearch": None,
        "langchain:langchain_y.YToolkit": "not_in_package",
        "langchain:docs#plain": None,
    }


def test_crewai_pages_and_specifications() -> None:
    pages = [
        record("crewai:A", pages="crewai-docs", group_id="crewai-tools", docs_url="https://d/a"),
        record("crewai:A", pages="crewai-specs", group_id="crewai-tools", input_schema="{}"),
        record("crewai:B", pages="crewai-docs", group_id="crewai-tools"),
    ]
    alone = join(pages)
    assert by_artifact(alone) == {
        "crewai-docs": [("crewai:A", "duplicate"), ("crewai:B", None)],
        "crewai-specs": [("crewai:A", None)],
    }
    assert next(c.record for c in alone if c.status == "kept").docs_url == "https://d/a"
    packaged = join([*pages, record("crewai:A", package="crewai-tools")])
    assert by_artifact(packaged) == {
        "crewai-tools": [("crewai:A", None)],
        "crewai-docs": [("crewai:A", "known_from_package"), ("crewai:B", "not_in_package")],
        "crewai-specs": [("crewai:A", "known_from_package")],
    }


def test_a_tool_the_package_rejects_stays_rejected() -> None:
    found = join(
        [
            record("crewai:A", package="crewai-tools", status="rejected", reason="template"),
            record("crewai:A", pages="crewai-docs", group_id="crewai-tools"),
        ]
    )
    assert {c.reason for c in found} == {"template", "known_from_package"}


@pytest.mark.parametrize("package", ["n8n-nodes-a", "@s/n8n-nodes-a", "n8n-nodes-a.b"])
def test_operations_know_their_package(package: str) -> None:
    group = f"n8n:{package}.node"
    found = join(
        [
            record(f"{group}/x.get", package=package, granularity="operation"),
            record(f"{group}/x.get", pages="n8n-verified", group_id=group, granularity="operation"),
            record(f"{group}/x.put", pages="n8n-verified", group_id=group, granularity="operation"),
        ]
    )
    assert dict(by_artifact(found)["n8n-verified"]) == {
        f"{group}/x.get": "known_from_package",
        f"{group}/x.put": "not_in_package",
    }


def test_rejects_of_pages_pass_through_and_order_is_by_id() -> None:
    dead = record("crewai:docs#a", pages="crewai-docs", status="rejected", reason="dead_page")
    found = join([record("crewai:Z", package="crewai-tools"), dead])
    assert [c.record.id for c in found] == ["crewai:Z", "crewai:docs#a"]
    assert found[1] == dead


def test_joining_twice_changes_nothing_and_streams_alike() -> None:
    mixed = [
        record("crewai:A", package="crewai-tools"),
        record("crewai:A", pages="crewai-docs", group_id="crewai-tools", docs_url="https://d/a"),
        record("crewai:B", pages="crewai-docs", group_id="crewai-tools"),
    ]
    whole = join(mixed)
    assert join(whole) == whole
    joiner = Joiner(mixed[1:], {"crewai_tools"})
    assert sorted([joiner.apply(mixed[0]), *joiner.rest()], key=lambda c: c.record.id + c.status) == whole
    untouched = record("crewai:C", package="crewai-tools")
    assert joiner.apply(untouched) is untouched


def test_a_package_that_could_not_be_read_is_not_counted() -> None:
    page = record("crewai:B", pages="crewai-docs", group_id="crewai-tools")
    assert Joiner([page]).rest() == [page]
    dead = record("crewai:crewai-tools", package="crewai-tools", status="rejected", reason="unavailable")
    assert page in join([page, dead])
