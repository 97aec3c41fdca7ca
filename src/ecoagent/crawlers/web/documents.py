"""A snapshot of documentation pages: the pages as read, in one file whose hash pins them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urldefrag, urlsplit

from ecoagent.crawlers.web.errors import WebError, absolute
from ecoagent.runs import canonical_json
from ecoagent.settings import HttpSettings, UserError

Say = Callable[[str], None]
"""Takes a line for the user."""

_UNREAD = re.compile(
    r"<(script|style|svg|noscript|template|iframe)\b[^<>]{0,2000}>|<!--|<(?:link|meta)\b[^<>]{0,4000}>",
    re.IGNORECASE,
)


class PageLike(Protocol):
    """What is used of a fetched page."""

    @property
    def url(self) -> str:
        """Where the page was found in the end."""

    @property
    def status(self) -> int:
        """HTTP status."""

    @property
    def content_type(self) -> str:
        """Media type."""

    @property
    def text(self) -> str:
        """The body, decoded."""


class Getter(Protocol):
    """What is used of the HTTP client."""

    def get(self, url: str, *, soft_404: bool = True, max_age_h: float | None = None) -> PageLike:
        """A page; raises ``WebError`` where there is none."""


@dataclass(frozen=True)
class Document:
    """One page of a snapshot.

    Attributes:
        url: the address asked, without a fragment.
        status: HTTP status; 0 where no answer came.
        reason: why there is no page; ``None`` for a page that was read.
        content_type: media type.
        body: the text that parsers see: no scripts, styles, pictures or comments.
        final_url: where the page was found, if a redirect led elsewhere.
    """

    url: str
    status: int
    reason: str | None
    content_type: str
    body: str
    final_url: str | None = None

    @property
    def place(self) -> str:
        """Address of the page as a reader should be given it."""
        return self.final_url or self.url


def bundle(documents: Iterable[Document]) -> bytes:
    """JSON lines sorted by address: the same pages give the same bytes.

    Raises:
        ValueError: an address occurs twice with different content.
    """
    found: dict[str, Document] = {}
    for document in documents:
        if found.setdefault(document.url, document) != document:
            raise ValueError(f"two different pages of {document.url}")
    lines = (
        canonical_json({k: v for k, v in asdict(found[u]).items() if v is not None}) for u in sorted(found)
    )
    return "".join(line + "\n" for line in lines).encode("utf-8", "surrogatepass")


def read_bundle(path: Path) -> list[Document]:
    """The pages of a snapshot, sorted by address.

    Raises:
        UserError: the file cannot be read, or a line is no page; file and line are named.
    """
    found: list[Document] = []
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"snapshot {path} cannot be read: {error.strerror}", remedy=_ANEW) from error
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            value = json.loads(line.decode("utf-8", "surrogatepass"))
            found.append(_document(value))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"snapshot {path} line {number} is no page: {error}", remedy=_ANEW) from error
    return found


_ANEW = "pin the snapshot anew with `ecoagent crawl --update-lock --backend http --lock FILE`"


def _document(value: Any) -> Document:
    final = value.get("final_url")
    reason = value.get("reason")
    return Document(
        url=str(value["url"]),
        status=int(value["status"]),
        reason=None if reason is None else str(reason),
        content_type=str(value["content_type"]),
        body=str(value["body"]),
        final_url=None if final is None else str(final),
    )


def slim(text: str) -> str:
    """A page without what no parser reads; line ends made equal, ends of lines kept bare.

    What is left out is also what changes from one build of a site to the next.
    """
    if is_html(text):
        text = "".join(_read_parts(text))
    return "\n".join(line.rstrip() for line in text.splitlines()).strip() + "\n"


def _read_parts(text: str) -> Iterator[str]:
    """The text without scripts and the like; looked through once, whatever a page leaves open."""
    place, lower, open_ended = 0, text.lower(), set[str]()
    for match in _UNREAD.finditer(text):
        if match.start() < place:
            continue
        name = (match.group(1) or "").lower()
        end = match.end()
        if name or match.group() == "<!--":
            closing = f"</{name}" if name else "-->"
            if closing in open_ended:
                continue
            found = lower.find(closing, end)
            if found < 0:
                open_ended.add(closing)
                continue
            end = lower.find(">", found) + 1 or len(text)
        yield text[place : match.start()] + " "
        place = end
    yield text[place:]


def without(text: str, opening: str, closing: str) -> str:
    """The text without what stands between two marks, marks included; an open one stays."""
    parts: list[str] = []
    place = 0
    while (start := text.find(opening, place)) >= 0:
        end = text.find(closing, start + len(opening))
        if end < 0:
            break
        parts.append(text[place:start])
        place = end + len(closing)
    return "".join([*parts, text[place:]])


def is_html(text: str, content_type: str = "") -> bool:
    """Whether a page is HTML and not Markdown or JSON."""
    start = text.lstrip()[:512].lower()
    return "html" in content_type.lower() or start.startswith(("<!doctype", "<html")) or "<body" in start


def fetch(client: Getter, url: str, *, soft_404: bool = True) -> Document:
    """The page at ``url``; a page that cannot be had is a document with a reason."""
    try:
        page = client.get(url, soft_404=soft_404)
    except WebError as error:
        return Document(url, error.status or 0, error.reason, "", "")
    final = urldefrag(page.url)[0]
    body = slim(page.text)
    return Document(
        url=url,
        status=page.status,
        reason=None if body.strip() else "empty",
        content_type=page.content_type.partition(";")[0].strip().lower(),
        body=body if body.strip() else "",
        final_url=None if final == url else final,
    )


def first_page(client: Getter, url: str) -> Document:
    """The page a snapshot starts from.

    Raises:
        UserError: it cannot be had; without it there is nothing to read.
    """
    page = fetch(client, url)
    if page.reason is not None:
        raise UserError(
            f"the index page {url} cannot be read: {page.reason}",
            remedy="look at it in a browser; give another address with --set http.NAME=URL, or leave the "
            "http backend out with --backend client",
        )
    return page


def follow(
    client: Getter,
    start: str,
    links: Callable[[Document], Iterable[str]],
    http: HttpSettings,
    say: Say,
) -> list[Document]:
    """The index page and every page that ``links`` finds, breadth first, each once.

    Args:
        client: fetches.
        start: address of the index.
        links: addresses a page leads to; those of other hosts are left out here.
        http: ``max_pages`` bounds the snapshot.
        say: told how far it is.

    Raises:
        UserError: the index cannot be read, or there are more pages than allowed.
    """
    start = urldefrag(start)[0]
    index = first_page(client, start)
    found = {start: index}
    queue = list(_new(index, links, found))
    while queue:
        url = queue.pop(0)
        if url in found:
            continue
        if len(found) >= http.max_pages:
            raise UserError(
                f"the documentation behind {start} has more than {http.max_pages} pages",
                remedy="raise http.max_pages",
            )
        found[url] = fetch(client, url)
        if found[url].reason is None:
            queue += _new(found[url], links, found)
        if len(found) % 50 == 0:
            say(f"{start}: {len(found)} pages read, {len(queue)} more known")
    dead = sum(d.reason is not None for d in found.values())
    say(f"{start}: {len(found)} pages, {dead} of them not to be had")
    return list(found.values())


def _new(
    page: Document, links: Callable[[Document], Iterable[str]], found: dict[str, Document]
) -> Iterator[str]:
    host = urlsplit(page.place).netloc
    for link in links(page):
        url = urldefrag(absolute(page.place, link))[0]
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.netloc == host and url not in found:
            yield url


def below(url: str, prefix: str) -> bool:
    """Whether the path of ``url`` lies below ``prefix`` (a path that ends in a slash)."""
    path = urlsplit(url).path
    return path.startswith(prefix) and len(path) > len(prefix)


def slug(url: str) -> str:
    """Last part of an address's path, without an ending."""
    return re.sub(r"\.(mdx?|html?)$", "", urlsplit(url).path.rstrip("/").rpartition("/")[2])
