"""Markdown and MDX pages as blocks: what documentation sites use of them, no more."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ecoagent.crawlers.web.content import Block, Cell, Kind, Link, plain
from ecoagent.crawlers.web.documents import without
from ecoagent.crawlers.web.errors import absolute

_FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})(.*)$")
_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+(.*)$")
_RULE = re.compile(r"^\s*([-*_])(\s*\1){2,}\s*$")
_ALIGN = re.compile(r"^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$")
_NOTICES = "Note|Warning|Info|Tip|Check|Danger|Caution|Callout|Error"
_OPEN_NOTICE = re.compile(rf"^\s*<({_NOTICES})\b[^>]*>(.*)$")
_OPEN_CARD = re.compile(r"^\s*<Card\b(.*)$", re.DOTALL)
_ATTRIBUTE = re.compile(r"(\w+)=(?:\"([^\"]*)\"|'([^']*)'|\{[\"']([^\"']*)[\"']\})")
_TAG_LINE = re.compile(r"^\s*</?[A-Za-z][\w.]*\b[^>]*>\s*$|^\s*<[A-Z][\w.]*\b[^>]*$|^\s*/?>\s*$")
_MODULE = re.compile(r"^(import|export)\s.*(from\s+['\"]|[={;])")
_ALERT = re.compile(r"^\[!\w+\]\s*", re.IGNORECASE)
_HREF = r"\(<?([^()\s>]{0,2000}(?:\([^()\s]{0,200}\)[^()\s]{0,500}){0,5})>?[^()]{0,300}\)"
_IMAGE = re.compile(r"!\[([^\[\]]{0,300})\]" + _HREF)
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]{0,200}\]){0,500})\]" + _HREF)
_ANCHOR = re.compile(
    r"<a\b[^<>]{0,300}?href=[\"']([^\"'<>]{1,2000})[\"'][^<>]{0,300}>(.{0,500}?)</a>",
    re.IGNORECASE | re.DOTALL,
)
_SOURCE = re.compile(r"<img\b[^<>]{0,300}?src=[\"']([^\"']+)[\"']", re.IGNORECASE)
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")


def markdown_blocks(text: str, base: str) -> Iterator[Block]:
    """Blocks of a Markdown page.

    Args:
        text: the page; front matter gives title and lead.
        base: address that relative links are relative to.
    """
    lines, front = _front_matter(text.splitlines())
    if front.get("title"):
        yield Block("title", plain(front["title"]), 1)
    if front.get("description"):
        yield Block("lead", inline(front["description"]))
    yield from _Reader(_without_comments(lines), base).blocks()


def inline(text: str) -> str:
    """Words of one piece of Markdown: no markers, pictures or tags."""
    text = _IMAGE.sub(" ", text)
    text = _ANCHOR.sub(lambda m: m.group(2), text)
    for _ in range(2):
        text = _LINK.sub(lambda m: m.group(1), text)
    text = re.sub(r"@\[(`?[^\]`]+`?)\]", r"\1", text)
    spans = re.split(r"(`+[^`]*`+)", text)
    parts = [
        s.strip("`") if s.startswith("`") and s.endswith("`") and len(s) > 1 else _bare(s) for s in spans
    ]
    return plain("".join(parts))


def _bare(text: str) -> str:
    text = _TAG.sub("", text)
    text = re.sub(r"(\*\*|__)(?=\S)(.{1,500}?)(?<=\S)\1", r"\2", text)
    text = re.sub(r"(?<![\w*])\*(?=\S)([^*]+?)(?<=\S)\*(?![\w*])", r"\1", text)
    text = re.sub(r"(?<![\w_])_(?=\S)([^_]+?)(?<=\S)_(?![\w_])", r"\1", text)
    return re.sub(r"\\([\\`*_{}\[\]()#+.!|<>$&~-])", r"\1", text)


def links_of(text: str, base: str) -> tuple[Link, ...]:
    """Links in one piece of Markdown, those written as HTML included."""
    found: list[tuple[int, Link]] = []
    for match in _LINK.finditer(text):
        images = tuple(m.group(2) for m in _IMAGE.finditer(match.group(1)))
        found.append((match.start(), Link(inline(match.group(1)), absolute(base, match.group(2)), images)))
    for match in _ANCHOR.finditer(text):
        images = tuple(_SOURCE.findall(match.group(2)))
        found.append((match.start(), Link(inline(match.group(2)), absolute(base, match.group(1)), images)))
    return tuple(link for _, link in sorted(found, key=lambda f: f[0]))


def _front_matter(lines: list[str]) -> tuple[list[str], dict[str, str]]:
    if not lines or lines[0].strip() != "---":
        return lines, {}
    end = next((i for i, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
    if end is None:
        return lines, {}
    facts = {}
    for line in lines[1:end]:
        name, separator, value = line.partition(":")
        if separator and not line[0].isspace():
            facts[name.strip()] = value.strip().strip("\"'")
    return lines[end + 1 :], facts


def _without_comments(lines: list[str]) -> list[str]:
    """Lines without comments; fenced code keeps whatever it holds."""
    found: list[str] = []
    text: list[str] = []
    mark = ""
    for line in lines:
        fence = _FENCE.match(line)
        if mark:
            found.append(line)
            if fence and fence.group(2).startswith(mark) and not fence.group(3).strip():
                mark = ""
        elif fence:
            found += _bare_lines(text)
            text = []
            found.append(line)
            mark = fence.group(2)
        else:
            text.append(line)
    return [*found, *_bare_lines(text)]


def _bare_lines(lines: list[str]) -> list[str]:
    text = without("\n".join(lines), "<!--", "-->")
    return without(text, "{/*", "*/}").splitlines()


class _Reader:
    def __init__(self, lines: list[str], base: str) -> None:
        self.lines, self.base, self.at = lines, base, 0
        self.last = ""

    def blocks(self) -> Iterator[Block]:
        """The blocks; a quote right below the title is the page's lead, as sites write it in Markdown."""
        for block in self._blocks():
            self.last = block.kind
            yield block

    def _blocks(self) -> Iterator[Block]:
        paragraph: list[str] = []
        headers: tuple[str, ...] = ()
        while self.at < len(self.lines):
            line = self.lines[self.at]
            self.at += 1
            special = self._special(line)
            starts_quote = line.lstrip().startswith(">")
            is_row = line.lstrip().startswith("|")
            if special is None and not starts_quote and not is_row and line.strip():
                paragraph.append(line)
                continue
            yield from self._paragraph(paragraph)
            paragraph = []
            if special is not None:
                yield from special
            elif starts_quote:
                yield from self._quote(line)
            elif is_row:
                following = self.lines[self.at] if self.at < len(self.lines) else ""
                if _ALIGN.match(following) and "-" in following:
                    headers = tuple(inline(c) for c in _cells(line))
                    self.at += 1
                else:
                    cells = tuple(Cell(inline(c), links_of(c, self.base)) for c in _cells(line))
                    yield Block("row", " | ".join(c.text for c in cells), cells=cells, headers=headers)
        yield from self._paragraph(paragraph)

    def _special(self, line: str) -> list[Block] | None:
        """Blocks a line starts, the lines they take consumed; ``None`` if it is plain text."""
        if fence := _FENCE.match(line):
            return [Block("code", "\n".join(self._until_fence(fence.group(2))))]
        if heading := _HEADING.match(line):
            level = len(heading.group(1))
            return [Block("title" if level == 1 else "heading", inline(heading.group(2)), level)]
        if notice := _OPEN_NOTICE.match(line):
            body = self._until_tag(notice.group(1), notice.group(2))
            return [Block("notice", inline(body), links=links_of(body, self.base))]
        if card := _OPEN_CARD.match(line):
            return self._card(card.group(1))
        if _RULE.match(line) or _TAG_LINE.match(line) or _MODULE.match(line):
            return []
        if item := _ITEM.match(line):
            return [Block("item", inline(item.group(1)), links=links_of(item.group(1), self.base))]
        return None

    def _until_fence(self, mark: str) -> Iterator[str]:
        while self.at < len(self.lines):
            line = self.lines[self.at]
            self.at += 1
            if line.strip().startswith(mark) and not line.strip().strip(mark[0]):
                return
            yield line

    def _until_tag(self, name: str, start: str) -> str:
        parts = [start]
        end = f"</{name}>"
        while end not in parts[-1] and self.at < len(self.lines):
            parts.append(self.lines[self.at])
            self.at += 1
        return " ".join(parts).partition(end)[0]

    def _card(self, start: str) -> list[Block]:
        head = start
        while ">" not in head and self.at < len(self.lines):
            head += " " + self.lines[self.at]
            self.at += 1
        attributes, _, rest = head.partition(">")
        body = "" if attributes.rstrip().endswith("/") else self._until_tag("Card", rest)
        facts = {
            m.group(1): next(g for g in m.groups()[1:] if g is not None)
            for m in _ATTRIBUTE.finditer(attributes)
        }
        label = plain(facts.get("title", ""))
        href = absolute(self.base, facts.get("href", ""))
        return [Block("card", inline(body), links=(Link(label, href),), label=label)]

    def _quote(self, line: str) -> Iterator[Block]:
        body = [line]
        while self.at < len(self.lines) and self.lines[self.at].lstrip().startswith(">"):
            body.append(self.lines[self.at])
            self.at += 1
        bare = [re.sub(r"^\s*>\s?", "", text) for text in body]
        first = next((b for b in bare if b.strip()), "")
        if _ALERT.match(first) or _HEADING.match(first):
            text = " ".join(bare)
            yield Block("notice", inline(_ALERT.sub("", text)), links=links_of(text, self.base))
            return
        kind: Kind = "lead" if self.last == "title" else "paragraph"
        paragraph: list[str] = []
        for text in [*bare, ""]:
            if text.strip():
                paragraph.append(text)
            else:
                yield from self._paragraph(paragraph, kind)
                paragraph = []

    def _paragraph(self, lines: list[str], kind: Kind = "paragraph") -> Iterator[Block]:
        text = " ".join(line.strip() for line in lines)
        words = inline(text)
        if words:
            yield Block(kind, words, links=links_of(text, self.base))


def _cells(line: str) -> list[str]:
    bare = line.strip().removeprefix("|").removesuffix("|")
    return [c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", bare)]
