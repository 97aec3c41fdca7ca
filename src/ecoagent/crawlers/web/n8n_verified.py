"""n8n's list of verified community nodes, as its editor reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from ecoagent.crawlers.lock import LockEntry
from ecoagent.crawlers.n8n import JSON, node_candidate, split_operations, text
from ecoagent.crawlers.records import candidate, provenance
from ecoagent.crawlers.web.documents import Document, Getter, Say, fetch, first_page
from ecoagent.crawlers.web.facts import dead_page, settle
from ecoagent.runs import parse_json
from ecoagent.schema import Candidate, fold_space
from ecoagent.schema.tools import Granularity
from ecoagent.settings import HttpSettings, UserError

NAME = "n8n-verified"
PAGE_SIZE = 25
NPM_NAME = re.compile(r"^(@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*$")
"""Stricter than npm at the start: a name must never read as an option of the command line."""
_MAX_NAME = 214
_DATE = re.compile(r"^\d{4}-\d{2}-\d{2}")
_DEAD_IN_A_ROW = 2


@dataclass(frozen=True)
class Verified:
    """What the list says of one node.

    Attributes:
        package: npm name as given.
        node: name of the node inside the package.
        version: npm version that was verified.
        downloads: as the list counts them.
        created: UTC date of the entry.
        description: n8n's node description, or what the entry itself says in its form.
        page: the page it stands on.
    """

    package: str
    node: str
    version: str | None
    downloads: int | None
    created: str | None
    description: JSON
    page: Document


def page_url(start: str, number: int) -> str:
    """Address of one page of the list, the first being 1."""
    parts = urlsplit(start)
    query = [(k, v) for k, v in parse_qsl(parts.query) if not k.startswith("pagination[")]
    query += [("pagination[page]", str(number)), ("pagination[pageSize]", str(PAGE_SIZE))]
    return urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode(query), ""))


def collect(client: Getter, http: HttpSettings, say: Say) -> list[Document]:
    """All pages of the list.

    The totals a page states are not relied on: the list ends with a page that brings nothing new.

    Raises:
        UserError: the first page cannot be read, or the pages are too many.
    """
    found = [first_page(client, page_url(http.n8n_verified, 1))]
    known = {_key(item) for item in items(found[0])}
    dead = 0
    while known or dead:
        if len(found) >= http.max_pages:
            raise UserError(
                f"the list at {http.n8n_verified} has more than {http.max_pages} pages",
                remedy="raise http.max_pages",
            )
        page = fetch(client, page_url(http.n8n_verified, len(found) + 1), soft_404=False)
        if page.reason is not None:
            found.append(page)
            dead += 1
            if dead == _DEAD_IN_A_ROW:
                break
            continue
        dead = 0
        fresh = {_key(item) for item in items(page)} - known
        if not fresh:
            break
        known |= fresh
        found.append(page)
    say(f"{http.n8n_verified}: {len(found)} pages, {len(known)} entries")
    return found


def items(page: Document) -> list[JSON]:
    """Entries of a page, as they stand.

    Raises:
        UserError: the page is no such list.
    """
    try:
        value = parse_json(page.body)
    except ValueError as error:
        raise UserError(
            f"{page.url} is not JSON: {error}", remedy="give the address of the list to http.n8n_verified"
        ) from error
    data = value.get("data") if isinstance(value, dict) else value
    if not isinstance(data, list):
        raise UserError(
            f"{page.url} has no list of nodes", remedy="give the address of the list to http.n8n_verified"
        )
    return [item for item in data if isinstance(item, dict)]


def _key(item: JSON) -> str:
    attributes = _attributes(item)
    return f"{attributes.get('packageName')}|{attributes.get('name')}|{item.get('id')}"


def _attributes(item: JSON) -> JSON:
    nested = item.get("attributes")
    return nested if isinstance(nested, dict) else item


def entries(documents: Sequence[Document]) -> Iterator[Verified]:
    """What the list says, in page order; an entry met twice comes once, the first time."""
    seen: set[tuple[str, str]] = set()
    pages = [d for d in documents if d.reason is None]
    for page in sorted(pages, key=lambda d: _number(d.url)):
        for item in items(page):
            found = _verified(_attributes(item), page)
            if (found.package, found.node) not in seen:
                seen.add((found.package, found.node))
                yield found


def _number(url: str) -> int:
    number = dict(parse_qsl(urlsplit(url).query)).get("pagination[page]", "")
    return int(number) if number.isdigit() else 0


def _verified(attributes: JSON, page: Document) -> Verified:
    given = attributes.get("nodeDescription")
    node = dict(given) if isinstance(given, dict) else {}
    package = text(attributes.get("packageName"))
    # Names come as package.node, the package at times in a preview form: the node's name is the last part.
    full = text(node.get("name")) or text(attributes.get("name"))
    name = full.rpartition(".")[2]
    node["name"] = name
    node["displayName"] = text(node.get("displayName")) or text(attributes.get("displayName"))
    node["description"] = text(node.get("description")) or text(attributes.get("description"))
    downloads = attributes.get("numberOfDownloads")
    created = text(attributes.get("createdAt"))
    version = text(attributes.get("npmVersion"))
    return Verified(
        package=package,
        node=name,
        version=version if re.fullmatch(r"[0-9A-Za-z][\w.+!-]*", version) else None,
        downloads=downloads if isinstance(downloads, int) and downloads >= 0 else None,
        created=created[:10] if _DATE.match(created) else None,
        description=node,
        page=page,
    )


def is_npm_name(name: str) -> bool:
    """Whether npm would accept the name of a package."""
    return len(name) <= _MAX_NAME and bool(NPM_NAME.match(name)) and ".." not in name


def parse(
    documents: Sequence[Document], entry: LockEntry, granularity: Granularity = "tool"
) -> list[Candidate]:
    """Candidates of the list, kept and rejected, sorted by id.

    Rejected: ``dead_page``, ``bad_name`` (no npm name, or a node without a name), ``hidden``,
    ``deprecated``, ``no_description``.
    """
    found = [dead_page(entry, page) for page in documents if page.reason is not None]
    for listed in entries(documents):
        whole = _candidate(listed, entry)
        found += split_operations(whole, listed.description) if granularity == "operation" else [whole]
    return settle(found, entry, granularity)


def _candidate(listed: Verified, entry: LockEntry) -> Candidate:
    node = listed.description
    bad = not is_npm_name(listed.package) or not listed.node
    # A name that is no npm name must not reach the id of a record as if it were one.
    named = entry.model_copy(update={"name": listed.package if not bad else "unnamed"})
    shared: dict[str, Any] = {
        "url": None,
        "licence": entry.licence,
        "downloads": listed.downloads,
        "published_at": listed.created,
        "verified": True,
    }
    made = node_candidate(node, named, types={}, path=listed.page.url, shared=shared)
    update: dict[str, Any] = {"provenance": provenance(entry, listed.page.url)}
    if not node.get("properties"):
        # Entries without a description of their own say nothing of inputs and credentials.
        update |= {"input_schema": None, "schema_origin": None, "parameter_names": []}
        if not node.get("credentials"):
            update["auth_required"] = "unknown"
    if "usableAsTool" not in node:
        update["usable_as_tool"] = None
    if "group" not in node:
        update |= {"trigger": None, "hidden": None}
    if bad:
        shown = fold_space(listed.package)[:120]
        update["id"] = f"n8n:listing#{fold_space(shown)}.{listed.node or 'unnamed'}"
        record = made.record.model_copy(update=update)
        return candidate(record, "bad_name", f"{shown!r} is no npm name with a node ({listed.node!r})")
    return made.model_copy(update={"record": made.record.model_copy(update=update)})
