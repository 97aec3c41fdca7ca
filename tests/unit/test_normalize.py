"""Providers, duplicates, flaws, language and retrieval text."""

from __future__ import annotations

from typing import Any

import pytest

from ecoagent.crawlers import detect_language, normalize, provider_of
from ecoagent.crawlers.normalize import OPERATIONS_IN_TEXT, registrable_domain, service_of
from ecoagent.crawlers.records import NOT_DEPRECATED
from ecoagent.schema import Auth, AuthField, Candidate, Endpoint, Operation, Provenance, ToolRecord
from ecoagent.settings import UserError


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
        ("Consume GitHub API", None),
        ("JWT", None),
        ("", None),
    ],
)
def test_detect_language(text: str, language: str | None) -> None:
    assert detect_language(text) == language
