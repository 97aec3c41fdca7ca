"""A response cut into pieces that may each hold one query; together they are the whole response.

The pieces' raw texts, put one after the other, are the response without the white space between lines:
nothing of what a model wrote gets lost before it has been judged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

PREAMBLE = re.compile(
    r"^(?:sure|certainly|of course|absolutely|okay|ok|great|here (?:are|is|it is)|here['’]s|below (?:are|is)"
    r"|the following)\b",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^\s*(?:`{3,}|~{3,})\s*[\w+-]*\s*$")
_THINK = re.compile(r"(?=<think(?:ing)?>)|(?<=</think>)|(?<=</thinking>)", re.IGNORECASE)
_THINK_OPEN = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_THINK_CLOSE = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_TOKEN = re.compile(r"<\|[^|<>\n]{1,40}\|>|</?s>|\[/?INST\]|<(?:start|end)_of_turn>|<｜[^｜<>\n]{1,40}｜>")
_AFTER_TOKEN = re.compile(r"(?<=\|>)(?=\s*[^\s<])|(?<=</s>)(?=\s*[^\s<])|(?<=_of_turn>)(?=\s*[^\s<])")
_ROLE = re.compile(r"^\s*(?:#+\s*)?(user|system|assistant|model|human|ai)\s*:?\s*$", re.IGNORECASE)
_ROW = re.compile(r"^\s*\|.*\|\s*$")
_RULE_ROW = re.compile(r"^[\s|:+=-]+$")
_HTML_END = re.compile(r"(?<=</li>)|(?<=</p>)|(?<=</tr>)|(?<=<br>)|(?<=<br/>)|(?<=<br />)", re.IGNORECASE)
_QUOTED_LIST = re.compile(r"^\s*\[?\s*([\"']).+\1\s*,\s*[\"'].+[\"']\s*,?\s*\]?\s*,?\s*$")
_IN_LIST = re.compile(r"(?<=[\"'],)\s*(?=[\"'])")
_FIRST_NUMBER = re.compile(
    r"^(?P<head>[^\d\n]{0,120}?[:!.]\s+)?(?=(?P<open>\(?)(?P<number>\d{1,2})(?P<close>[.):])\s)"
)
_JSON_START = re.compile(r"^\s*(?:\{\s*(?:$|[\"}])|\[\s*(?:$|[\"{\[\]]))")
_JSON_TOKEN = re.compile(
    r"\s+|(?P<string>\"(?:[^\"\\\n]|\\.)*\")|(?P<mark>[\[\]{}:,])|(?:true|false|null"
    r"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\b"
)
_JSON_KEYS = ("query", "message", "text", "question", "request", "content", "user", "prompt")
_NUMBERED_KEY = re.compile(r"^[A-Za-z]*[ _-]?\d{1,3}$")
_ESCAPED_BREAK = re.compile(r"(?<!\\)(?:\\\\)*\\n")


@dataclass(frozen=True)
class Piece:
    """A part of a response.

    Attributes:
        raw: as written.
        text: what may be a query; the same as ``raw`` where nothing is known of it.
        reason: why it is none, where its place says so (``thinking``, ``chat_markup``, ``markup``,
            ``heading``, ``cut_off``); none otherwise.
    """

    raw: str
    text: str
    reason: str | None = None


def cut(text: str) -> list[Piece]:
    """The pieces of a response, in order; blank ones are left out.

    Told apart are blocks of thought, turns of a chat template, fences, JSON (whole, cut off, or one
    value a line), tables, HTML lists, and several numbered or quoted lines in one paragraph.
    """
    found: list[Piece] = []
    plain: list[str] = []
    for piece in _turns(text):
        if piece.reason is None:
            plain.append(piece.raw)
            continue
        found += _blocks(plain)
        plain = []
        found.append(piece)
    return found + _blocks(plain)


def _turns(text: str) -> Iterator[Piece]:
    """Lines, or parts of them, with what stands in thoughts and in the turns of others marked."""
    opened, closed = _THINK_OPEN.search(text), _THINK_CLOSE.search(text)
    # A template may hold the opening mark in the prompt, so that only the closing one is written.
    thinking = bool(closed and (not opened or closed.start() < opened.start()))
    others = False
    for line in text.splitlines():
        for part in _THINK.split(line):
            if not part.strip():
                continue
            thought = thinking = thinking or bool(_THINK_OPEN.match(part))
            if _THINK_CLOSE.search(part):
                thinking = False
            if thought:
                yield Piece(part, part, "thinking")
                continue
            for bit in _AFTER_TOKEN.split(part):
                bare = _TOKEN.sub(" ", bit)
                role = _ROLE.match(bare)
                if role:
                    others = role[1].lower() in ("user", "system", "human")
                if not bit.strip():
                    continue
                marked = role or others or not bare.strip()
                yield Piece(bit, bare, "chat_markup" if marked else None)


def without_tokens(text: str) -> str:
    """A text without the marks of chat templates and thoughts."""
    return _THINK_CLOSE.sub(" ", _THINK_OPEN.sub(" ", _TOKEN.sub(" ", text)))


def _blocks(lines: list[str]) -> list[Piece]:
    """Pieces of lines in a row that are the assistant's own."""
    found: list[Piece] = []
    place = 0
    while place < len(lines):
        line = lines[place]
        head, rest = _preamble_of_json(line)
        region = _json_region([rest, *lines[place + 1 :]]) if _JSON_START.match(rest) else None
        if region is not None:
            pieces, taken = region
            found += [Piece(head, head)] * bool(head) + pieces
            place += taken
            continue
        place += 1
        following = lines[place] if place < len(lines) else ""
        if _FENCE.match(line) or (_RULE_ROW.match(line) and "|" in line):
            found.append(Piece(line, line, "markup"))
        elif _ROW.match(line):
            header = "|" in following and _RULE_ROW.match(following)
            cells = [c.strip() for c in line.strip().strip("|").split("|")]
            found.append(Piece(line, max(cells, key=len), "heading" if header else None))
        else:
            found += [Piece(part, part) for part in _split_paragraph(line) if part.strip()]
    return found


def _preamble_of_json(line: str) -> tuple[str, str]:
    """``Here it is: [`` in two; an empty head where a line does not begin so."""
    if PREAMBLE.match(line.strip()):
        for place in (line.find("["), line.find("{")):
            if place > 0 and line[:place].rstrip().endswith(":") and _JSON_START.match(line[place:]):
                return line[:place], line[place:]
    return "", line


def _split_paragraph(line: str) -> list[str]:
    """Several queries in one line: numbered from 1 on, quoted with commas between, or items of HTML."""
    parts = [p for p in _HTML_END.split(line) if p.strip()]
    if len(parts) > 1 and re.match(r"\s*<", line):
        return parts
    if _QUOTED_LIST.match(line):
        return _IN_LIST.split(line)
    first = _FIRST_NUMBER.match(line)
    if not first:
        return [line]
    cuts, number, at = [first.end()], int(first["number"]), first.end()
    while True:
        number += 1
        mark = re.escape(f"{first['open']}{number}{first['close']}")
        following = re.compile(rf"(?<=\s){mark}\s+(?=[A-Z\"“'*])").search(line, at + 1)
        if not following:
            break
        at = following.start()
        cuts.append(at)
    if len(cuts) < 2:
        return [line]
    return [line[a:b] for a, b in zip([0, *cuts], [*cuts, len(line)], strict=True)]


@dataclass
class _Container:
    """An open list or object: the places of its strings, and whether it holds others."""

    kind: str
    strings: list[tuple[int, int, str]] = field(default_factory=list)
    nested: bool = False
    key: str = ""

    def chosen(self) -> list[tuple[int, int]]:
        """Places of the strings that may be queries."""
        if self.kind == "[":
            return [(a, b) for a, b, _ in self.strings]
        numbered = [(a, b) for a, b, key in self.strings if _NUMBERED_KEY.match(key)]
        if numbered:
            return numbered
        for name in _JSON_KEYS:
            named = [(a, b) for a, b, key in self.strings if key.lower() == name]
            if named:
                return named
        spans = [(a, b) for a, b, _ in self.strings]
        return [] if self.nested or not spans else [max(spans, key=lambda s: s[1] - s[0])]


def _json_region(lines: list[str]) -> tuple[list[Piece], int] | None:
    """Pieces of the JSON value that begins the lines, and how many lines it takes; none if it is none.

    A value that breaks off is taken up to where it does.
    """
    text = "\n".join(lines)
    open_: list[_Container] = []
    chosen: list[tuple[int, int]] = []
    at = 0
    while at < len(text):
        token = _JSON_TOKEN.match(text, at)
        if token is None:
            break
        at = token.end()
        mark = token["mark"]
        if token["string"]:
            is_key = open_[-1].kind == "{" and re.match(r"\s*:", text[at : at + 20])
            if is_key:
                open_[-1].key = token["string"][1:-1]
            else:
                open_[-1].strings.append((token.start(), at, open_[-1].key))
        elif mark and mark in "[{":
            if open_:
                open_[-1].nested = True
            open_.append(_Container(mark))
        elif mark and mark in "]}":
            chosen += open_.pop().chosen()
            if not open_:
                break
    end = text.find("\n", at)
    if not open_ and at:
        if _TOKEN.sub("", text[at : end if end >= 0 else None]).strip(" \t,;"):
            return None
        stop = len(text) if end < 0 else end
        return _json_pieces(text[:stop], sorted(chosen), None), text[:stop].count("\n") + 1
    broken = None
    if at < len(text):
        first_line = text.find("\n")
        if text[at] == '"' and text.count("\n", at) == 0:
            broken = at
        elif first_line < 0 or at < first_line:
            return None
        else:
            # Not JSON from here on: what follows is read line by line.
            text = text[: text.rfind("\n", 0, at)]
    for container in open_:
        chosen += container.chosen()
    kept = sorted(span for span in chosen if span[1] <= len(text))
    return _json_pieces(text, kept, broken), text.count("\n") + 1


def _json_pieces(text: str, spans: list[tuple[int, int]], broken: int | None) -> list[Piece]:
    """JSON text cut after each chosen string and at line ends."""
    cuts: dict[int, tuple[int, int] | None] = {i: None for i, c in enumerate(text) if c == "\n"}
    for start, end in spans:
        breaks = [m.end() for m in _ESCAPED_BREAK.finditer(text, start, end - 1)]
        edges = [start + 1, *breaks, end - 1]
        for a, b in pairwise(edges):
            tail = re.compile(r"[ \t,\]}]*").match(text, end) if b == end - 1 else None
            cuts[tail.end() if tail else b] = (a, b)
    cuts.setdefault(len(text), None)
    pieces, last = [], 0
    for stop in sorted(cuts):
        raw, inner = text[last:stop].strip("\n"), cuts[stop]
        if raw.strip():
            if broken is not None and last <= broken < stop:
                pieces.append(Piece(raw, raw, "cut_off"))
            elif inner is None:
                pieces.append(Piece(raw, raw, "markup"))
            else:
                pieces.append(Piece(raw, _decoded(text[inner[0] : inner[1]])))
        last = stop
    return pieces


def _decoded(body: str) -> str:
    try:
        return str(json.loads(f'"{body}"', strict=False))
    except json.JSONDecodeError:
        return body
