"""Documentation pages as a row of blocks, whether they came as HTML or as Markdown."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ecoagent.crawlers.web.documents import Document, is_html
from ecoagent.crawlers.web.errors import absolute
from ecoagent.schema import fold_space

Kind = Literal["title", "lead", "heading", "paragraph", "item", "code", "notice", "card", "row"]

_INVISIBLE = re.compile("[\u200b\u200c\u200d\u2060\ufeff]")
_CONTENT = ("#content-area", "main article", "article", "main", "[role=main]", "#content", "body")
_LEFT_OUT = ("nav", "footer", "aside", "button", "form", "script", "style", "svg", "[hidden]", "noscript")
_NOTICE = re.compile(r"^(callout|admonition|alert|notice|banner|warning|note|caution|danger)(-|$)", re.I)
_DEEPEST = 150
"""Elements within elements; what lies deeper is read as one paragraph."""
_BLOCKS = (
    "p",
    "div",
    "ul",
    "ol",
    "pre",
    "table",
    "section",
    "blockquote",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
)


@dataclass(frozen=True)
class Link:
    """A link: its words, its absolute address, and the addresses of pictures inside it."""

    text: str
    href: str
    images: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    links: tuple[Link, ...] = ()


@dataclass(frozen=True)
class Block:
    """A piece of a page.

    Attributes:
        kind: what it is; a ``lead`` is the line below the title, a ``card`` a link with a text.
        text: its words with white space folded; of code, as written.
        level: of headings, 1 to 6.
        links: links inside; a card's own comes first.
        cells: of table rows.
        headers: titles of the columns, as far as the table has them.
        label: of cards, the title.
    """

    kind: Kind
    text: str
    level: int = 0
    links: tuple[Link, ...] = ()
    cells: tuple[Cell, ...] = ()
    headers: tuple[str, ...] = ()
    label: str = ""


def blocks(page: Document) -> list[Block]:
    """The blocks of a page in reading order; navigation, pictures and buttons are left out."""
    if is_html(page.body, page.content_type):
        return list(_html(page))
    from ecoagent.crawlers.web.markdown import markdown_blocks

    return list(markdown_blocks(page.body, page.place))


def addresses(page: Document) -> list[str]:
    """Every address a page links to, its navigation included, in reading order, each once."""
    if not is_html(page.body, page.content_type):
        return list(dict.fromkeys(link.href for b in blocks(page) for link in every_link(b)))
    from bs4 import BeautifulSoup

    anchors = BeautifulSoup(page.body, "html.parser").find_all("a", href=True)
    return list(dict.fromkeys(absolute(page.place, str(a["href"])) for a in anchors))


def every_link(block: Block) -> list[Link]:
    """Links of a block, those of a row's cells included."""
    return [*block.links, *(link for cell in block.cells for link in cell.links)]


def plain(text: str) -> str:
    """Text without invisible characters, white space folded."""
    return fold_space(_INVISIBLE.sub("", html.unescape(text)))


def _html(page: Document) -> Iterator[Block]:
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(page.body, "html.parser")
    root = next((found for css in _CONTENT if (found := soup.select_one(css)) is not None), soup)
    for css in _LEFT_OUT:
        for tag in root.select(css):
            tag.decompose()
    yield from _Walker(page.place).walk(root, lead=False)


class _Walker:
    def __init__(self, base: str) -> None:
        self.base = base

    def walk(self, tag: Any, *, lead: bool, depth: int = 0) -> Iterator[Block]:
        """Blocks below one element; ``lead``: the element stands in the page's own header."""
        if depth > _DEEPEST:
            yield from self._paragraph([tag], lead)
            return
        loose: list[Any] = []
        for child in tag.children:
            name = getattr(child, "name", None)
            if name is None or not self._is_block(child):
                loose.append(child)
                continue
            yield from self._paragraph(loose, lead)
            loose = []
            yield from self._block(child, name, lead, depth)
        yield from self._paragraph(loose, lead)

    def _is_block(self, tag: Any) -> bool:
        if tag.name in _BLOCKS or tag.name in ("header", "li", "main", "article", "details", "figure", "dl"):
            return True
        return tag.get("data-as") == "p" or self._is_notice(tag) or tag.find(_BLOCKS) is not None

    @staticmethod
    def _is_notice(tag: Any) -> bool:
        if tag.get("data-callout-type") or tag.get("role") in ("alert", "note"):
            return True
        return any(_NOTICE.match(c) for c in tag.get("class") or [])

    def _block(self, tag: Any, name: str, lead: bool, depth: int) -> Iterator[Block]:
        if self._is_notice(tag):
            yield Block("notice", self._words(tag, " "), links=self._links(tag))
        elif re.fullmatch(r"h[1-6]", name):
            level = int(name[1])
            yield Block("title" if level == 1 else "heading", self._words(tag), level)
        elif name == "p" or tag.get("data-as") == "p":
            yield from self._paragraph([tag], lead)
        elif name == "pre":
            yield Block("code", _INVISIBLE.sub("", tag.get_text()).strip("\n"))
        elif name == "table":
            yield from self._table(tag)
        elif name == "li" and tag.find(("pre", "table", "p")) is None:
            yield Block("item", self._words(tag, " " if tag.find("li") else ""), links=self._links(tag))
        elif name == "a":
            yield from self._card(tag)
        else:
            yield from self.walk(tag, lead=lead or name == "header", depth=depth + 1)

    def _card(self, tag: Any) -> Iterator[Block]:
        title = tag.select_one("[data-component-part=card-title], h2, h3, h4, h5, strong")
        label = self._words(title) if title is not None else ""
        if title is not None:
            title.extract()
        href = str(tag.get("href") or "")
        text = self._words(tag, " ")
        yield Block("card", text, links=(Link(label or text, absolute(self.base, href)),), label=label)

    def _table(self, table: Any) -> Iterator[Block]:
        headers: tuple[str, ...] = ()
        rows = [r for r in table.find_all("tr") if r.find_parent("table") is table]
        for row in rows:
            cells = row.find_all(("td", "th"), recursive=False)
            if cells and all(c.name == "th" for c in cells):
                headers = tuple(self._words(c) for c in cells)
                continue
            found = tuple(Cell(self._words(c, " "), self._links(c)) for c in cells)
            if found:
                yield Block("row", " | ".join(c.text for c in found), cells=found, headers=headers)

    def _paragraph(self, parts: list[Any], lead: bool) -> Iterator[Block]:
        text = plain("".join(p.get_text() if hasattr(p, "get_text") else str(p) for p in parts))
        if not text:
            return
        links = tuple(link for p in parts if hasattr(p, "find_all") for link in self._links(p))
        yield Block("lead" if lead else "paragraph", text, links=links)

    def _words(self, tag: Any, separator: str = "") -> str:
        return plain(tag.get_text(separator))

    def _links(self, tag: Any) -> tuple[Link, ...]:
        anchors = [tag] if tag.name == "a" else tag.find_all("a")
        return tuple(
            Link(
                self._words(a),
                absolute(self.base, str(a["href"])),
                tuple(str(i["src"]) for i in a.find_all("img") if i.get("src")),
            )
            for a in anchors
            if a.get("href")
        )
