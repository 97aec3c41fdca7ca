"""LangChain's documentation of tools: an index of tables and cards, and a page a tool."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urldefrag, urlsplit

from ecoagent.crawlers.lock import LockEntry
from ecoagent.crawlers.records import candidate, words
from ecoagent.crawlers.web.content import Block, Link, addresses, blocks, every_link
from ecoagent.crawlers.web.documents import Document, Getter, Say, below, follow, slug
from ecoagent.crawlers.web.facts import (
    dead_page,
    deprecation_of,
    description_of,
    documented,
    env_auth_of,
    imports,
    installed,
    lead_of,
    prose_of,
    settle,
    title_of,
)
from ecoagent.schema import Candidate
from ecoagent.schema.tools import Granularity
from ecoagent.settings import HttpSettings

NAME = "langchain-docs"
LICENCE = "MIT"

_FRAMEWORK = frozenset(
    (
        "langchain",
        "langchain_core",
        "langchain_classic",
        "langchain_openai",
        "langchain_anthropic",
        "langchain_experimental",
        "langchain_text_splitters",
        "langchain_mcp_adapters",
        "langchain_chroma",
        "langchain_ollama",
        "langchainhub",
    )
)
_NO_TOOL = re.compile(
    r"^(Chat|Azure(Chat)?OpenAI|OpenAI|HumanMessage|AIMessage|ToolMessage|SystemMessage)|"
    r"(Embeddings?|Wrapper|Loader|VectorStore|Config|Credentials?|Client|Settings|Options|Params|Error|Schema|"
    r"Message|Prompt(Template)?|Parser|Saver|Memory|History|Model|LLM)$"
)
_TOOL = re.compile(r"(Tools?|Toolkit|Search|Results?|Run|Query)$")
_BADGE = re.compile(r"/(?:badge|v|dm|dw|version|downloads)/([A-Za-z0-9][\w.-]*)")
_PROJECT = re.compile(r"/project/([A-Za-z0-9][\w.-]*)")
_PACKAGE_WORD = re.compile(r"^[a-z0-9][a-z0-9._-]*langchain[a-z0-9._-]*$|^langchain[a-z0-9._-]*$")
_TEXT_COLUMN = re.compile(r"description|capabilit|what it does|purpose|summary|key features|about", re.I)
_SUFFIX = re.compile(
    r"\s*(tool\s+)?(integrations?|toolkit integration)(\s+guide)?(\s+(for|with)\s+langchain)?"
    r"(\s*\(python\))?\s*$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Row:
    """One entry of the index: a tool's name, where it is documented, its package and its sentence."""

    name: str
    href: str
    package: str | None
    sentence: str


def collect(client: Getter, http: HttpSettings, say: Say) -> list[Document]:
    """The index and the pages it leads to.

    Raises:
        UserError: the index cannot be read, or the pages are too many.
    """
    start = http.langchain_docs
    prefix = _prefix(start)

    def links(page: Document) -> Iterable[str]:
        # Only the index lists tools; a tool's page links to what is related.
        if page.url != urldefrag(start)[0]:
            return []
        return [address for address in addresses(page) if below(address, prefix)]

    return follow(client, start, links, http, say)


def parse(
    documents: Sequence[Document], entry: LockEntry, granularity: Granularity = "tool"
) -> list[Candidate]:
    """Candidates of the snapshot, kept and rejected, sorted by id.

    Rejected: ``dead_page``, ``no_description``, ``duplicate`` (a class that several pages document).
    """
    pages = {d.url: d for d in documents}
    index = next((d for d in documents if entry.url and d.url == urldefrag(entry.url)[0]), None)
    rows = index_rows(index) if index is not None else []
    by_page: dict[str, list[Row]] = {}
    for row in rows:
        by_page.setdefault(urldefrag(row.href)[0], []).append(row)
    found: list[Candidate] = []
    for url in sorted(pages):
        page = pages[url]
        if page is index:
            continue
        if page.reason is not None:
            found.append(dead_page(entry, page))
        else:
            found.append(_page(page, by_page.get(url, []), entry))
    for url in sorted(set(by_page) - set(pages)):
        found += _listed(by_page[url], entry)
    return settle(found, entry, granularity)


def index_rows(index: Document) -> list[Row]:
    """Entries of the index's tables and cards, in reading order; those without a web address left out."""
    found: list[Row] = []
    prefix = _prefix(index.place)
    for block in blocks(index):
        if block.kind == "row" and block.cells and block.cells[0].links:
            first = block.cells[0]
            found.append(
                Row(first.text, first.links[0].href, package_of(every_link(block)), _sentence(block))
            )
        elif block.kind == "card" and block.links and below(block.links[0].href, prefix):
            text = prose_of(block)
            found.append(Row(block.label or block.links[0].text, block.links[0].href, None, text))
    return [row for row in found if urlsplit(row.href).scheme in ("http", "https")]


def package_of(links: Iterable[Link]) -> str | None:
    """Package that a badge or a link to its index page names."""
    for link in links:
        if match := _PROJECT.search(urlsplit(link.href).path):
            return match.group(1)
        for image in link.images:
            if match := _BADGE.search(image):
                return match.group(1)
    return None


def _sentence(row: Block) -> str:
    """The cell that says what the tool does, if one does: prices and result fields do not."""
    for position, cell in enumerate(row.cells[1:], 1):
        title = row.headers[position] if position < len(row.headers) else ""
        told = Block("paragraph", cell.text, links=cell.links)
        if prose_of(told) and (_TEXT_COLUMN.search(title) or (not title and cell.text.endswith("."))):
            return cell.text
    return ""


def _page(page: Document, rows: list[Row], entry: LockEntry) -> Candidate:
    content = blocks(page)
    title = title_of(content)
    stated = next((r.package for r in rows if r.package), None) or _stated_package(content)
    first = _installed_package(content)
    named = tool_class(content, stated or first)
    # What a page installs first may be there for the example; what the class comes from is not.
    package = stated or (named[0].partition(".")[0].replace("_", "-") if named else first)
    sentence = next((r.sentence for r in rows if r.sentence), "")
    shown = next((r.name for r in rows if r.name), "") or _SUFFIX.sub("", title)
    facts: dict[str, Any] = {
        "id": f"langchain:{'.'.join(named)}" if named else f"langchain:docs#{slug(page.url)}",
        "name": named[1] if named else shown or slug(page.url),
        "display_name": shown or None,
        "description": description_of(content) or sentence or lead_of(content),
        "kind": "tool" if named else "documented_tool",
        "group_id": package or f"docs#{slug(page.url)}",
        "group_name": words(package.removeprefix("langchain-")) if package else None,
        "auth": env_auth_of(content),
        "tags": [slug(page.url)],
        "deprecated": deprecation_of(content, title),
    }
    record = documented(entry, page, page.place, facts)
    if not record.description:
        return candidate(record, "no_description", "the page has no paragraph on what the tool does")
    return candidate(record)


def _listed(rows: list[Row], entry: LockEntry) -> list[Candidate]:
    """Entries of the index whose documentation lies elsewhere: what the index says is all there is."""
    row = next((r for r in rows if r.sentence), rows[0])
    package = next((r.package for r in rows if r.package), None)
    name = re.sub(r"[^a-z0-9]+", "_", row.name.lower()).strip("_") or slug(row.href)
    facts: dict[str, Any] = {
        "id": f"langchain:docs#{name}",
        "name": row.name or name,
        "display_name": row.name or None,
        "description": row.sentence,
        "kind": "documented_tool",
        "group_id": package or f"docs#{name}",
        "group_name": words(package.removeprefix("langchain-")) if package else None,
        "tags": [name],
    }
    record = documented(entry, None, row.href, facts)
    if not row.sentence:
        return [candidate(record, "no_description", "the index has no sentence on it")]
    return [candidate(record)]


def tool_class(content: Iterable[Block], package: str | None) -> tuple[str, str] | None:
    """Module and class of the tool a page is about.

    The first class imported from the page's own package, else from any LangChain package. Models,
    wrappers and messages are imported for the example's sake; so is the framework itself.
    """
    own = package.replace("-", "_") if package else ""
    best: tuple[int, tuple[str, str]] | None = None
    for module, name in imports(content):
        top = module.partition(".")[0]
        if top != own and ("langchain" not in top or top in _FRAMEWORK):
            continue
        if not name[:1].isupper() or name.isupper() or _NO_TOOL.search(name):
            continue
        rank = (0 if not own or top == own else 2) + (0 if _TOOL.search(name) else 1)
        if best is None or rank < best[0]:
            best = (rank, (module, name))
    return best[1] if best else None


def _stated_package(content: Sequence[Block]) -> str | None:
    """Package by the page's table of details."""
    for block in content:
        if block.kind == "row" and any(re.match(r"package\b", h, re.IGNORECASE) for h in block.headers):
            position = next(
                i for i, h in enumerate(block.headers) if re.match(r"package\b", h, re.IGNORECASE)
            )
            if position < len(block.cells):
                cell = block.cells[position]
                if _PACKAGE_WORD.match(cell.text.lower()):
                    return cell.text.lower()
                if linked := package_of(cell.links):
                    return linked
    return None


def _installed_package(content: Iterable[Block]) -> str | None:
    """The first LangChain package that the page's code installs."""
    for name in installed(content):
        plain = name.lower().replace("_", "-")
        if _PACKAGE_WORD.match(plain) and plain.replace("-", "_") not in _FRAMEWORK:
            return plain
    return None


def _prefix(start: str) -> str:
    """Path below which the index's own pages lie."""
    path = urlsplit(start).path
    path = re.sub(r"(/index)?\.mdx?$|/index$", "", path).rstrip("/")
    return f"{path}/"
