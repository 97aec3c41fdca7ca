"""Pages that say "not found" with HTTP 200.

The page is cut at its ``<`` in one pass, without a parser: the standard library's needs quadratic time for
some broken pages of a few hundred KB, and a tree can be nested too deep.
"""

from __future__ import annotations

import html
import re

MAX_CHARS = 400_000
"""Read of a page, in characters; the pages meant here are short."""
_LEAD = 400
_SHORT = 1500
_BARE = 400
_SKIPPED = ("script", "style", "noscript", "template", "svg", "head", "nav", "header", "footer", "aside")
_WHAT = r"(?:page|document|doc|article|content|resource|url|path|site)"
# A whole heading, or a whole part of a title.
_SURE = re.compile(
    r"(?:(?:http )?(?:error )?404(?: error)?\W{0,3}\s*)?(?:(?:oops|sorry|uh[- ]oh|whoops|hmm)\W{0,3}\s*)?"
    rf"(?:(?:the|this|that|your|requested) ){{0,2}}{_WHAT}(?: you(?:'re| are| were) looking for)? "
    r"(?:(?:was |is |could |can)?not (?:be )?found|(?:couldn't|can't|wasn't|isn't) (?:be )?found|"
    r"(?:doesn't|does not|no longer) exists?|missing|(?:is )?not available)(?: \(?404\)?)?"
    rf"|(?:we )?(?:couldn't|could not|can't|cannot) find (?:the|this|that|your) {_WHAT}"
    r"(?: you(?:'re| are| were) looking for)?"
)
# What documentation about errors may be called as well.
_LIKELY = re.compile(
    r"(?:http )?(?:error )?(?:code )?404(?: error)?(?:\W{0,3}\s*(?:not found|error))?|"
    r"not found(?: \(?404\)?)?|nothing (?:was )?found(?: here)?|oops\W*"
)
_PHRASE = re.compile(
    rf"\b{_WHAT} you(?:'re| are| were|'ve| have)? (?:looking for|requested|tried|trying)|"
    r"\b(?:couldn't|could not|can't|cannot|unable to) (?:find|locate) "
    rf"(?:the|this|that|your) (?:requested )?{_WHAT}\b|"
    rf"\b(?:this|the|that) (?:requested )?{_WHAT} (?:was not found|could not be found|does not exist|"
    r"doesn't exist|no longer exists|may have (?:been )?moved|might have been (?:moved|removed)|"
    r"has been (?:moved|removed))|"
    r"\b(?:go|back|return|take me)(?: back)? (?:to )?(?:the )?(?:home|main ?page)"
)
_SPLIT = re.compile(r"\s[|\-–—·•»:]\s|\s*[|·•»]\s*|:\s")


def is_soft_404(text: str, content_type: str = "") -> bool:
    """Whether a page says that it was not found.

    Judged by title, first heading and the words after it; a page that only writes about such errors,
    in whatever length, is none. Markdown and plain text are judged by their first line. Never raises.

    Args:
        text: decoded page.
        content_type: its header; JSON, XML feeds and the like are never judged.
    """
    kind = content_type.partition(";")[0].strip().lower()
    text = text[:MAX_CHARS]
    if kind in ("text/markdown", "text/plain", "text/x-markdown"):
        return _plain(text)
    if kind not in ("", "text/html", "application/xhtml+xml") or "<" not in text[:1000]:
        return False
    title, heading, words, lead = _outline(text)
    return _judge(title, heading, words, lead)


def _judge(title: str, heading: str | None, words: str, lead: str) -> bool:
    title_sure, title_likely = _parts_match(title, _SURE), _parts_match(title, _LIKELY)
    heading_sure = heading is not None and _parts_match(heading, _SURE)
    heading_likely = heading is not None and _parts_match(heading, _LIKELY)
    phrase, short = bool(_PHRASE.search(lead)), len(words) < _SHORT
    if heading_sure:
        return title_sure or title_likely or short or phrase
    if heading_likely:
        # A page about the status has it in its heading too, but then goes on about it.
        return title_sure or phrase or len(words) < _BARE
    if heading:
        # Another heading: the page has something to say, whatever its title.
        return title_sure and short and phrase
    if title_sure or title_likely:
        return short or phrase
    return len(words) < _BARE and phrase and bool(re.search(r"\b404\b|not found|sorry|oops", words))


def _plain(text: str) -> bool:
    lines = [line.strip().lstrip("#").strip() for line in text[:4000].splitlines() if line.strip()]
    if not lines:
        return False
    first, rest = _tidy(lines[0]), _tidy(" ".join(lines[1:]))
    if _parts_match(first, _SURE):
        return len(text) < _SHORT or bool(_PHRASE.search(rest[:_LEAD]))
    return _parts_match(first, _LIKELY) and (len(text) < 200 or bool(_PHRASE.search(rest[:_LEAD])))


def _parts_match(text: str, pattern: re.Pattern[str]) -> bool:
    if len(text) > 200:
        return False
    return any(pattern.fullmatch(part.strip(" .!?…\"'()[]:-–—")) for part in (text, *_SPLIT.split(text)))


def _tidy(text: str) -> str:
    return " ".join(html.unescape(text).replace("\u2019", "'").lower().split())


def _outline(text: str) -> tuple[str, str | None, str, str]:
    """Title, first heading, visible words, and the words from the first heading on; all tidied."""
    title: list[str] = []
    heading: list[str] = []
    words: list[str] = []
    taking: list[str] | None = None
    begun = 0
    skipping: str | None = None
    for piece in text.split("<"):
        tag, closed, rest = piece.partition(">")
        name = re.match(r"/?[a-z][a-z0-9]*", tag[:20].lower())
        word = name.group(0) if name else ""
        if skipping is not None:
            if word == "/" + skipping or (skipping == "head" and word == "body"):
                skipping = None
            elif skipping == "!--" and "-->" in piece:
                skipping, rest = None, piece.partition("-->")[2]
            elif word == "title" and not title:
                title.append(rest)
                continue
            else:
                continue
        elif tag.startswith("!--") and "-->" not in piece:
            skipping = "!--"
            continue
        elif word in _SKIPPED and not tag.endswith("/"):
            skipping = word
            continue
        elif word == "title" and not title:
            title.append(rest)
            continue
        elif word == "h1" and not heading:
            taking, begun = heading, len(words)
        elif word == "/h1":
            taking = None
        visible = rest if closed else piece
        if visible.strip():
            words.append(visible)
            if taking is not None and len(taking) < 50:
                taking.append(visible)
    shown = _tidy(" ".join(words))
    lead = _tidy(" ".join(words[begun : begun + 60]))[: _LEAD + 200]
    return _tidy(" ".join(title)), _tidy(" ".join(heading)) if heading else None, shown, lead
