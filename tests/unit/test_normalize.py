"""Providers, duplicates, flaws, language and retrieval text."""

from __future__ import annotations

import io
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoagent.crawlers import detect_language, normalize, provider_of
from ecoagent.crawlers.normalize import OPERATIONS_IN_TEXT, registrable_domain, service_of
from ecoagent.crawlers.normalize_stage import NormalizeStage
from ecoagent.crawlers.records import NOT_DEPRECATED, in_order
from ecoagent.runs import Progress, RunContext, execute, read_rows, write_jsonl
from ecoagent.schema import (
    Auth,
    AuthField,
    Candidate,
    Endpoint,
    NormalizedTool,
    Operation,
    Provenance,
    RejectedTool,
    ToolRecord,
    normalize_query,
)
from ecoagent.settings import UserError, load_settings


def record(identifier: str = "crewai:A", **values: Any) -> ToolRecord:
    base: dict[str, Any] = {
        "id": identifier,
        "source": "crewai",
        "name": "Demo tool",
        "description": "Finds the pages that match a question in the demo.",
        "description_origin": "class",
        "kind": "tool",
        "granularity": "tool",
        "group_id": "demo",
        "auth_required": "unknown",
        "deprecated": NOT_DEPRECATED,
        "provenance": Provenance(
            artifact="demo-pkg",
            artifact_version="1",
            sha256="0",
            path="x.py",
            backend="client",
            parser_version="1",
        ),
    }
    return ToolRecord(**{**base, **values})


def kept(*records: ToolRecord) -> list[Candidate]:
    return [Candidate(status="kept", record=r) for r in records]


def endpoint(url: str) -> Endpoint:
    return Endpoint(url=url, origin="literal", is_template="{" in url)


def env(name: str, *, secret: bool = True, required: bool = True) -> Auth:
    field = AuthField(name=name, secret=secret, required=required)
    return Auth(type="env", name=name, fields=[field], required=required, origin="code")


@pytest.mark.parametrize(
    ("url", "domain"),
    [
        ("https://api.github.com/repos", "github.com"),
        ("https://www.gov.co.uk/x", "gov.co.uk"),
        ("https://api.demo.co.uk/x", "demo.co.uk"),
        ("=https://{{$credentials.sub}}.zendesk.com/api", "zendesk.com"),
        ("https://${site}.chargebee.com", "chargebee.com"),
        ("={{$credentials.server}}", None),
        ("https://{host}/api", None),
        ("http://localhost:8080", None),
        ("http://127.0.0.1/x", None),
        ("no address", None),
        ("https://[bad", None),
    ],
)
def test_registrable_domain(url: str, domain: str | None) -> None:
    assert registrable_domain(url) == domain


@pytest.mark.parametrize(
    ("name", "service"),
    [
        ("githubApi", "github"),
        ("githubOAuth2Api", "github"),
        ("GITHUB_APP_PRIVATE_KEY", "github"),
        ("API_KEY", ""),
        ("httpHeaderAuth", ""),
        ("SERPAPI_API_KEY", "serpapi"),
    ],
)
def test_service_of(name: str, service: str) -> None:
    assert service_of(name) == service


def test_provider_chain() -> None:
    both = record(
        endpoints=[endpoint("https://{host}/a"), endpoint("https://api.demo.io/b")], auth=[env("X_KEY")]
    )
    assert provider_of(both) == "demo.io"
    named = record(
        auth=[env("ACTIVE_BRANCH", secret=False), env("GITHUB_APP_ID", secret=False), env("GITHUB_KEY")]
    )
    assert provider_of(named) == "github"
    assert provider_of(record(auth=[env("OPENAI_KEY", required=False), env("TAVILY_KEY")])) == "tavily"
    assert provider_of(record()) == "demo-pkg"
    many = [endpoint("https://a-demo.io"), endpoint("https://b-demo.io")]
    assert provider_of(record(granularity="package", endpoints=many)) == "demo-pkg"


def test_duplicates_are_grouped_by_smallest_id() -> None:
    words = "Drafts an e-mail  with the given text."
    found = normalize(
        kept(
            record("langchain:b.Draft", name="create_gmail_draft", description=words),
            record("langchain:a.Draft", name="Create Gmail Draft", description=words.rstrip(".").upper()),
            record("crewai:Other", name="create_gmail_draft", description="Something else entirely."),
        )
    )
    groups = {t.id: t.duplicate_group for t in found.tools}
    assert groups == {
        "crewai:Other": "crewai:Other",
        "langchain:a.Draft": "langchain:a.Draft",
        "langchain:b.Draft": "langchain:a.Draft",
    }
    assert ["duplicate" in t.quality_flags for t in found.tools] == [False, True, True]


def test_operations_of_two_services_are_two_tools() -> None:
    same = {
        "name": "Create File",
        "description": "Makes a file in the repository.",
        "kind": "toolkit_operation",
    }
    found = normalize(
        kept(
            record("langchain:x#1", group_name="GitHub", **same),
            record("langchain:y#1", group_name="GitLab", **same),
        )
    )
    assert len({t.duplicate_group for t in found.tools}) == 2


def test_id_clash_is_listed() -> None:
    with pytest.raises(UserError, match="crewai:A in demo-pkg"):
        normalize(kept(record(), record()))


def test_a_rejected_candidate_may_share_an_id() -> None:
    rejected = Candidate(status="rejected", reason="abstract", detail="d", record=record(description=""))
    found = normalize([*kept(record()), rejected])
    assert [r.reason for r in found.rejects] == ["abstract"]


@pytest.mark.parametrize(
    ("values", "flag"),
    [
        ({"description": "Consume GitHub API"}, "boilerplate"),
        ({"description": "Interact with the Demo REST API."}, "boilerplate"),
        ({"description": "Runs {graphql_endpoint} queries for you to see."}, "template"),
        ({"description": "Trabalhe com dados da API do Autentique para assinaturas digitais"}, "non_english"),
        ({"description": "An agent responsible for policy analysis."}, "wrong_looking"),
        ({"description": "Deprecated: use the other one instead of it."}, "wrong_looking"),
        ({"description": "```python\nprint(1)\n``` is how to call this"}, "wrong_looking"),
        ({"description": "JWT"}, "short"),
        (
            {"endpoints": [Endpoint(url="https://api.demo.io", origin="class", is_template=False)]},
            "missing_auth",
        ),
        ({"deprecated": {"state": True, "reason": None, "replacement": None}}, "deprecated"),
    ],
)
def test_flags(values: dict[str, Any], flag: str) -> None:
    assert flag in normalize(kept(record(**values))).tools[0].quality_flags


def test_a_sound_record_has_no_flags_and_the_parsers_stay() -> None:
    assert normalize(kept(record())).tools[0].quality_flags == []
    assert normalize(kept(record(quality_flags=["schema_mismatch"]))).tools[0].quality_flags == [
        "schema_mismatch"
    ]
    angle = record(description="Creates an app at the path /apps/<appName> in the database.")
    assert normalize(kept(angle)).tools[0].quality_flags == []


def test_a_sentence_several_tools_share_is_boilerplate() -> None:
    records = [
        record(f"crewai:{n}", name=n, description="Use it in an AI chain of yours.") for n in ("a", "b", "c")
    ]
    assert all("boilerplate" in t.quality_flags for t in normalize(kept(*records)).tools)
    assert not any("boilerplate" in t.quality_flags for t in normalize(kept(*records[:2])).tools)


def test_tool_text() -> None:
    operations = [
        Operation(resource="r", operation=str(i), name=f"Op {i}") for i in range(OPERATIONS_IN_TEXT + 5)
    ]
    tool = normalize(
        kept(
            record(
                name="load_data",
                display_name="Load",
                group_name="Notes",
                operations=operations,
                tags=["Data"],
                description="Loads\n notes",
            )
        )
    ).tools[0]
    assert tool.tool_text.startswith("Notes: Load. Loads notes. Operations: Op 0, Op 1")
    assert tool.tool_text.endswith(f"Op {OPERATIONS_IN_TEXT - 1}. Tags: Data.")
    assert len(tool.operations) == OPERATIONS_IN_TEXT + 5


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Useful for when you need to look up the weather of a city.", "en"),
        ("Trabalhe com dados da API do Autentique para assinaturas digitais", "pt"),
        ("Recebe notificações de eventos da Autentique via webhook", "pt"),
        ("Envía un mensaje a los usuarios con el texto dado por usted", "es"),
        ("Envoie un message aux utilisateurs avec le texte que vous donnez", "fr"),
        ("Sendet eine Nachricht an die Benutzer mit dem Text", "de"),
        ("Consume GitHub API", "en"),
        ("JWT", None),
        ("", None),
    ],
)
def test_detect_language(text: str, language: str | None) -> None:
    assert detect_language(text) == language


WORDS = st.sampled_from(["Find a page", "find  a page.", "Send mail", "find_a_page", "Ｆind a page", ""])


@given(st.lists(st.tuples(WORDS, WORDS, st.sampled_from([None, "Hub", "hub"]), st.booleans()), max_size=12))
def test_groups_and_shared_sentences_are_those_of_comparing_every_pair(
    drawn: list[tuple[str, str, str | None, bool]],
) -> None:
    records = [
        record(
            f"crewai:{i:02d}",
            name="agent_name",
            display_name=name,
            description=words,
            group_name=group,
            kind="toolkit_operation" if operation else "tool",
        )
        for i, (name, words, group, operation) in enumerate(drawn)
    ]
    smallest: dict[tuple[str, str, str], str] = {}
    names: defaultdict[str, set[str]] = defaultdict(set)
    for found in normalize(kept(*reversed(records))).tools:
        name = normalize_query(found.display_name or found.name).replace("_", " ")
        words = normalize_query(found.description)
        service = normalize_query(found.group_name or "") if found.kind == "toolkit_operation" else ""
        assert found.duplicate_group == smallest.setdefault((name, words, service), found.id)
        names[words].add(name)
    for found in normalize(kept(*records)).tools:
        words = normalize_query(found.description)
        assert ("boilerplate" in found.quality_flags) == (bool(words) and len(names[words]) >= 3)


def run_with(folder: Path, files: dict[str, list[Candidate]]) -> RunContext:
    settings = load_settings("local", overrides=[f'outputs="{folder}"'], env={}, run="t")
    ctx = RunContext.create(settings, Progress(io.StringIO()))
    for name, found in files.items():
        write_jsonl(ctx.paths.raw / "crawl" / name / "candidates.jsonl", found)
    return ctx


def rejected(identifier: str, artifact: str, path: str = "x.py") -> Candidate:
    origin = record().provenance.model_copy(update={"artifact": artifact, "path": path})
    return Candidate(
        status="rejected", reason="abstract", detail="d", record=record(identifier, provenance=origin)
    )


def test_the_stage_streams_what_the_function_gives(tmp_path: Path) -> None:
    words = "Use it in an AI chain of\u2028yours."
    first = [
        *kept(record("crewai:m", description=words)),
        rejected("crewai:m", "z"),
        rejected("crewai:c", "b"),
    ]
    second = [
        *kept(*(record(f"crewai:{n}", name=n, description=words) for n in "adz")),
        rejected("crewai:c", "b", "w.py"),
        rejected("crewai:c", "a", "y.py"),
        rejected("crewai:c", "a", "x.py"),
    ]
    third = [*kept(record("crewai:b", name="A", description=words.upper()))]
    files = {"one": in_order(first), "two": in_order(second), "three": in_order(third), "four": []}
    ctx = run_with(tmp_path, files)
    outcome = execute(NormalizeStage(), ctx)
    expected = normalize([*first, *second, *third])
    tools = read_rows(ctx.paths.core / "tools_normalized.parquet", NormalizedTool)
    rejects = read_rows(ctx.paths.core / "tool_rejects.parquet", RejectedTool)
    assert tools == expected.tools and rejects == expected.rejects
    assert [(r.id, r.provenance.artifact, r.provenance.path) for r in rejects] == [
        ("crewai:c", "a", "x.py"),
        ("crewai:c", "a", "y.py"),
        ("crewai:c", "b", "w.py"),
        ("crewai:c", "b", "x.py"),
        ("crewai:m", "z", "x.py"),
    ]
    assert outcome.report.rows == {"tools": 5, "rejects": 5}
    assert outcome.report.rejects == {"abstract": 5}
    assert outcome.report.summary["duplicate_groups"] == 1
    assert outcome.report.summary["quality_flags"] == {"boilerplate": 5, "duplicate": 2}


def test_documentation_joins_packages_in_the_stream_too(tmp_path: Path) -> None:
    def page(identifier: str, artifact: str = "demo-docs", **values: Any) -> Candidate:
        origin = record().provenance.model_copy(update={"backend": "http", "artifact": artifact})
        return kept(record(identifier, source="langchain", provenance=origin, **values))[0]

    known = page("langchain:demo.A", docs_url="https://docs.demo.io/a", group_id="langchain-demo")
    lost = page("langchain:demo.Gone", group_id="langchain-demo")
    new = page("langchain:other.B", group_id="langchain-other")
    unread = page("langchain:dead.C", group_id="langchain-dead")
    package = record().provenance.model_copy(update={"artifact": "langchain-demo"})
    dead = record().provenance.model_copy(update={"artifact": "langchain-dead"})
    of_package = kept(record("langchain:demo.A", source="langchain", name="Mine", provenance=package))
    failed = Candidate(
        status="rejected",
        reason="unavailable",
        record=record("langchain:langchain-dead", source="langchain", provenance=dead),
    )
    files = {"pages": in_order([known, lost, new, unread]), "package": of_package, "dead": [failed]}
    ctx = run_with(tmp_path, files)
    execute(NormalizeStage(), ctx)
    tools = read_rows(ctx.paths.core / "tools_normalized.parquet", NormalizedTool)
    rejects = read_rows(ctx.paths.core / "tool_rejects.parquet", RejectedTool)
    expected = normalize([c for found in files.values() for c in found])
    assert tools == expected.tools and rejects == expected.rejects
    assert [(t.id, t.name, t.docs_url) for t in tools] == [
        ("langchain:dead.C", "Demo tool", None),
        ("langchain:demo.A", "Mine", "https://docs.demo.io/a"),
        ("langchain:other.B", "Demo tool", None),
    ]
    assert {r.id: r.reason for r in rejects} == {
        "langchain:demo.A": "known_from_package",
        "langchain:demo.Gone": "not_in_package",
        "langchain:langchain-dead": "unavailable",
    }


def test_hundreds_of_files_need_no_open_file_each(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    files = {f"p{i:03d}": kept(record(f"crewai:{i * 7919 % 300:03d}")) for i in range(300)}
    ctx = run_with(tmp_path, files)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The limit is on the number of a file: above those that this process holds anyway.
    held = max(int(p.name) for p in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (held + 100, limits[1]))
    try:
        outcome = execute(NormalizeStage(), ctx)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert outcome.report.rows["tools"] == 300


def test_clash_between_files_names_both(tmp_path: Path) -> None:
    other = record(provenance=record().provenance.model_copy(update={"artifact": "other-pkg"}))
    ctx = run_with(tmp_path, {"one": kept(record()), "two": kept(other)})
    with pytest.raises(UserError, match="1 tool ids occur more than once: crewai:A in demo-pkg, other-pkg"):
        execute(NormalizeStage(), ctx)


def test_all_rejected_is_an_error(tmp_path: Path) -> None:
    ctx = run_with(tmp_path, {"one": [rejected("crewai:A", "a"), rejected("crewai:B", "a")]})
    with pytest.raises(UserError, match="all 2 candidates were rejected"):
        execute(NormalizeStage(), ctx)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{broken", "row 2 is not a candidate"),
        ('{"status": "kept"}', "row 2 is not a candidate"),
        ("FIRST", "row 2 is not in the order of ids"),
        ("EXTRA", "row 2 is not a candidate: .*surprise"),
    ],
)
def test_a_line_that_does_not_fit_is_named_and_nothing_is_written(
    tmp_path: Path, line: str, message: str
) -> None:
    ctx = run_with(tmp_path, {"one": kept(record("crewai:B"))})
    path = ctx.paths.raw / "crawl" / "one" / "candidates.jsonl"
    if line == "FIRST":
        line = kept(record("crewai:A"))[0].model_dump_json()
    if line == "EXTRA":
        line = kept(record("crewai:C"))[0].model_dump_json()[:-1] + ', "surprise": 1}'
    path.write_text(path.read_text("utf-8") + line + "\n", "utf-8")
    with pytest.raises(UserError, match=message):
        execute(NormalizeStage(), ctx)
    assert not [p for p in ctx.paths.core.glob("*") if p.is_file()]
