"""CrewAI's documentation of tools, and the specification file it publishes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urldefrag, urlsplit

from ecoagent.crawlers.lock import LockEntry
from ecoagent.crawlers.pyfacts import SECRET
from ecoagent.crawlers.pyschema import names_of, schema_text
from ecoagent.crawlers.records import candidate, words
from ecoagent.crawlers.web.content import Block, addresses, blocks
from ecoagent.crawlers.web.documents import Document, Getter, Say, below, first_page, follow, slug
from ecoagent.crawlers.web.facts import (
    auth_required,
    dead_page,
    deprecation_of,
    description_of,
    documented,
    env_auth_of,
    imports,
    lead_of,
    settle,
    title_of,
)
from ecoagent.runs import parse_json
from ecoagent.schema import Auth, AuthField, Candidate, Endpoint, fold_space
from ecoagent.schema.tools import Granularity
from ecoagent.settings import HttpSettings, UserError

DOCS, SPECS = "crewai-docs", "crewai-specs"
PACKAGE, LICENCE = "crewai-tools", "MIT"
_MODULE = "crewai_tools"


def collect(client: Getter, http: HttpSettings, say: Say) -> list[Document]:
    """The overview, the categories it leads to, and the tools those lead to.

    Pages of other languages and versions lie below other paths and are not followed.

    Raises:
        UserError: the overview cannot be read, or the pages are too many.
    """
    prefix = _prefix(http.crewai_docs)

    def links(page: Document) -> Iterable[str]:
        return [address for address in addresses(page) if below(address, prefix)]

    return follow(client, http.crewai_docs, links, http, say)


def parse(
    documents: Sequence[Document], entry: LockEntry, granularity: Granularity = "tool"
) -> list[Candidate]:
    """Candidates of the pages, kept and rejected, sorted by id.

    Rejected: ``dead_page``, ``no_description``, ``duplicate`` (a class that several pages document).
    """
    start = urldefrag(entry.url or "")[0]
    sentences = {
        urldefrag(block.links[0].href)[0]: block
        for page in documents
        if page.reason is None and is_overview(page)
        for block in blocks(page)
        if block.kind == "card" and block.links
    }
    found: list[Candidate] = []
    for page in sorted(documents, key=lambda d: d.url):
        if page.reason is not None:
            found.append(dead_page(entry, page))
        elif page.url != start and not is_overview(page):
            found.append(_page(page, sentences.get(page.url), entry))
    return settle(found, entry, granularity, PACKAGE)


def is_overview(page: Document) -> bool:
    """Whether a page lists tools and is about none."""
    return slug(page.url) in ("overview", "index", "tools")


def _prefix(start: str) -> str:
    return urlsplit(start).path.rstrip("/").rpartition("/")[0] + "/"


def _page(page: Document, card: Block | None, entry: LockEntry) -> Candidate:
    content = blocks(page)
    title = title_of(content)
    name = tool_class(content, slug(page.url))
    description = description_of(content) or lead_of(content) or (card.text if card else "")
    folder = urlsplit(page.url).path.split("/")[-2]
    facts: dict[str, Any] = {
        "id": f"crewai:{name}" if name else f"crewai:docs#{slug(page.url)}",
        "name": name or title or slug(page.url),
        "display_name": title or (card.label if card else "") or None,
        "description": description,
        "kind": "tool" if name else "documented_tool",
        "group_id": PACKAGE,
        "auth": env_auth_of(content),
        "tags": [folder] if folder not in ("tools", "") else [],
        "deprecated": deprecation_of(content, title),
    }
    record = documented(entry, page, page.place, facts)
    if not record.description:
        return candidate(record, "no_description", "the page has no paragraph on what the tool does")
    return candidate(record)


def tool_class(content: Sequence[Block], page_slug: str) -> str | None:
    """The class a page is about: of those imported the one its address names, else the first tool."""
    names = [n for module, n in imports(content) if module.partition(".")[0] == _MODULE and n[:1].isupper()]
    if not names:
        return None
    wanted = _letters(page_slug)
    return next(
        (n for n in names if _letters(n) == wanted),
        next((n for n in names if re.search(r"Tools?$", n)), names[0]),
    )


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]|tool$", "", re.sub(r"[^a-z0-9]", "", name.lower()))


def collect_specs(client: Getter, http: HttpSettings, say: Say) -> list[Document]:
    """The specification file.

    Raises:
        UserError: it cannot be had.
    """
    page = first_page(client, urldefrag(http.crewai_specs)[0])
    say(f"{page.url}: {len(page.body)} characters")
    return [page]


def parse_specs(
    documents: Sequence[Document], entry: LockEntry, granularity: Granularity = "tool"
) -> list[Candidate]:
    """Candidates of the specification file, sorted by id.

    Rejected: ``no_description``, ``bad_name`` (no Python class name).

    Raises:
        UserError: the file is not JSON, or has no list of tools.
    """
    found: list[Candidate] = []
    for page in documents:
        if page.reason is not None:
            found.append(dead_page(entry, page))
            continue
        for spec in _tools(page):
            found.append(_spec(spec, page, entry))
    return settle(found, entry, granularity, PACKAGE)


def _tools(page: Document) -> list[dict[str, Any]]:
    try:
        value = parse_json(page.body)
    except ValueError as error:
        raise UserError(
            f"{page.url} is not JSON: {error}",
            remedy="give the address of tool.specs.json to http.crewai_specs",
        ) from error
    tools = value.get("tools") if isinstance(value, dict) else value
    if not isinstance(tools, list):
        raise UserError(
            f"{page.url} has no list of tools",
            remedy="give the address of tool.specs.json to http.crewai_specs",
        )
    return [t for t in tools if isinstance(t, dict)]


def _spec(spec: dict[str, Any], page: Document, entry: LockEntry) -> Candidate:
    name, shown = _text(spec.get("name")), _text(spec.get("humanized_name"))
    description = _text(spec.get("description"))
    schema = spec.get("run_params_schema")
    schema = schema if isinstance(schema, dict) and isinstance(schema.get("properties"), dict) else None
    auth = _env(spec.get("env_vars"))
    facts: dict[str, Any] = {
        "id": f"crewai:{name or 'specs#unnamed'}",
        "name": shown or name,
        "description": description,
        "kind": "tool",
        "group_id": PACKAGE,
        "group_name": words(re.sub(r"Tools?$", "", name)) or None,
        "auth": auth,
        "auth_required": auth_required(auth),
        "endpoints": _endpoints(spec.get("init_params_schema")),
        "parameter_names": names_of(schema),
        "input_schema": schema_text(schema),
        "schema_origin": "specs" if schema else None,
        "docs_url": None,
    }
    record = documented(entry, page, page.place, facts)
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        return candidate(record, "bad_name", f"{name!r} is no class name")
    if not record.description:
        return candidate(record, "no_description", "the specification has no description")
    return candidate(record)


def _text(value: Any) -> str:
    """``value`` with white space folded, if it is text."""
    return fold_space(value) if isinstance(value, str) else ""


def _env(value: Any) -> list[Auth]:
    found: dict[str, Auth] = {}
    for item in value if isinstance(value, list) else []:
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str) or not name:
            continue
        required = item.get("required", True) is True
        found[name] = Auth(
            type="env",
            name=name,
            fields=[AuthField(name=name, secret=bool(SECRET.search(name)), required=required)],
            required=required,
            origin="env_vars",
        )
    return [found[n] for n in sorted(found)]


def _endpoints(schema: Any) -> list[Endpoint]:
    """Addresses that are the default of a parameter named after one."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    found: dict[str, Endpoint] = {}
    for name, prop in sorted(properties.items()) if isinstance(properties, dict) else []:
        default = prop.get("default") if isinstance(prop, dict) else None
        named = name.endswith(("url", "uri", "endpoint", "host"))
        if named and isinstance(default, str) and default.startswith("http"):
            found[default] = Endpoint(url=default, origin="class", is_template="{" in default)
    return list(found.values())
