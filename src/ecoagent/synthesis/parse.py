"""Lines of queries out of what instruct models really write; what is not a query keeps its reason."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from ecoagent.schema import fold_space, normalize_query

_FENCE = re.compile(r"^\s*(?:```|~~~)\s*\w*\s*$")
_NUMBER = re.compile(r"^\s*(?:\(?\d{1,3}\s*[.):\]]|\[\d{1,3}\]|\d{1,3}\s+[-–—])\s*(?=\D)")
_BULLET = re.compile(r"^\s*(?:[-*+•‣◦·–—>]\s+|\*(?=[^*\s]))")
_LABEL = re.compile(
    r"^(?:\*\*)?\s*(?:user|query|message|request|question|example|prompt|scenario|text|customer|q"
    r"|direct request|troubleshooting|how[- ]to(?: question)?)\s*(?:#?\s*\d{1,3})?\s*(?:\*\*)?\s*[:.)]"
    r"\s*(?:\*\*)?\s*",
    re.IGNORECASE,
)
_HEADING = re.compile(r"^\s*#{1,6}\s+\S")
_BOLD_ONLY = re.compile(r"^\s*(\*\*|__)(?P<inner>[^*]+)\1\s*:?\s*$")
_PREAMBLE = re.compile(
    r"^(?:sure|certainly|of course|absolutely|okay|ok|here (?:are|is|it is)|here['’]s|below (?:are|is)"
    r"|the following)\b",
    re.IGNORECASE,
)
_META = re.compile(
    r"^(?:these (?:messages|queries|requests|examples|are)\b|let me know if|i hope (?:this|these)"
    r"|feel free to|note\b\s*[:\-]|explanation\b\s*:|each (?:message|query)\b|\(?end of|output\s*:"
    r"|please note that)",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"\bas an ai\b|\blanguage model\b|\bi(?: cannot| can['’]t| am unable to|['’]m unable to)"
    r" (?:(?:assist|help)(?: you)? (?:with (?:that|this)|you\b|that\b|generat|creat|writ)"
    r"|fulfill?\b|comply\b|(?:generate|provide|create|write) (?:that|this|these|such|messages|queries))"
    r"|^i['’]m sorry,? but\b",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"^\s*(?:def \w+\(|class \w+[(:]|import \w+(?: as \w+)?$|from \w+ import|print\(|(?:const|let|var) \w+ ?="
    r"|\$ |<\w+[ >/]|[{}\[\]();]+$)|=>|\w+\([\w, '\"]*\)\s*;?$"
)
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "`": "`"}
_ENGLISH_WORDS = """
    the a an to of in for and is are i my me we our you your it this that with from on at by can could do does
    what how when where which why please need want all any some new get find show be as into there if not have
    has was were about up out or who tell give make send let us
"""
_OTHER_WORDS = """
    el la los las de del que y en un una por para con como est les des une le du et pour dans sur avec der die
    das und ist nicht ein eine mit auf ich o os um uma não il che di per sono
"""
_ENGLISH = frozenset(_ENGLISH_WORDS.split())
_OTHER_LANGUAGES = frozenset(_OTHER_WORDS.split())
_JSON_KEYS = ("query", "message", "text", "question", "request", "content", "user")


@dataclass(frozen=True)
class ParsedLine:
    """One line of a response.

    Attributes:
        number: place in the response, from 0.
        text: the query with its wrapping taken off.
        reason: why it is no query; none if it may be one.
        raw: the line as written.
    """

    number: int
    text: str
    reason: str | None
    raw: str


def parse_response(text: str, *, finish_reason: str = "stop") -> list[ParsedLine]:
    """Every non-empty line of a response, in order, with the query it holds or a reason.

    Args:
        text: what the model wrote.
        finish_reason: ``length`` if the model was cut off: the last line is then not trusted.
    """
    raws = _from_json(text)
    if raws is None:
        raws = [line for line in text.splitlines() if line.strip() and not _FENCE.match(line)]
    parsed: list[ParsedLine] = []
    seen: set[str] = set()
    for number, raw in enumerate(raws):
        reason = _reason_of_raw(raw)
        query = unwrap(raw)
        reason = reason or reason_of(query)
        if reason is None and finish_reason == "length" and number == len(raws) - 1:
            reason = "cut_off"
        normal = normalize_query(query)
        if reason is None and normal in seen:
            reason = "repeated"
        if reason is None:
            seen.add(normal)
        parsed.append(ParsedLine(number, query, reason, raw))
    return parsed


def _from_json(text: str) -> list[str] | None:
    """Strings of a JSON list, or of an object that holds one; none if the text is no such JSON."""
    body = "\n".join(line for line in text.splitlines() if not _FENCE.match(line)).strip()
    start = min((body.find(c) for c in "[{" if c in body), default=-1)
    if start < 0 or (start > 0 and not _PREAMBLE.match(body[:start].strip())):
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(body[start:])
    except json.JSONDecodeError:
        return None
    if isinstance(value, dict):
        value = next((v for v in value.values() if isinstance(v, list)), [value])
    found = [_json_text(item) for item in value] if isinstance(value, list) else []
    return [item for item in found if item] or None


def _json_text(item: Any) -> str:
    if isinstance(item, str):
        return item
    if isinstance(item, dict):
        named = next((item[k] for k in _JSON_KEYS if isinstance(item.get(k), str)), None)
        return named or next((v for v in item.values() if isinstance(v, str)), "")
    return ""


def _reason_of_raw(raw: str) -> str | None:
    if _HEADING.match(raw):
        return "heading"
    bold = _BOLD_ONLY.match(raw)
    if bold and (raw.rstrip().endswith(":") or bold["inner"].rstrip().endswith(":")):
        return "heading"
    if bold and len(bold["inner"].split()) < 5 and not bold["inner"].rstrip().endswith((".", "?", "!")):
        return "heading"
    return None


def unwrap(raw: str) -> str:
    """The query without numbering, bullet, label, markdown, quotes and JSON remains."""
    text = fold_space(raw)
    while True:
        before = text
        text = _BULLET.sub("", text)
        text = _NUMBER.sub("", text)
        text = re.sub(r"\*\*(.+?)\*\*", r"\1", text)
        text = _LABEL.sub("", text)
        text = re.sub(r"^(?:\*\*|__)\s*|\s*(?:\*\*|__)$", "", text).strip()
        # A comma after a closing quote is left over from a JSON list.
        if len(text) > 2 and text[-1] == "," and text[-2] in _QUOTES.values():
            text = text[:-1]
        if len(text) > 1 and _QUOTES.get(text[0]) == text[-1] and text[-1] not in text[1:-1]:
            text = text[1:-1].strip()
        elif text[:1] in ('"', "“") and not any(q in text[1:] for q in '"”'):
            text = text[1:].strip()
        elif text[-1:] in ('"', "”") and not any(q in text[:-1] for q in '"“'):
            text = text[:-1].strip()
        if text == before:
            return text


def reason_of(query: str) -> str | None:
    """Why an unwrapped line is no query in English, or none."""
    if not normalize_query(query):
        return "empty"
    if _REFUSAL.search(query):
        return "refusal"
    if query.endswith(":") or (
        _PREAMBLE.match(query) and re.search(r"\b(?:messages|queries|requests)\b", query)
    ):
        return "preamble"
    if _META.match(query):
        return "meta"
    if _CODE.search(query):
        return "code"
    if not is_english(query):
        return "language"
    return None


def is_english(text: str) -> bool:
    """A cheap test: Latin letters, and English small words not outnumbered by those of its neighbours."""
    letters = [c for c in text if c.isalpha()]
    foreign = sum(not unicodedata.name(c, "").startswith("LATIN") for c in letters)
    if letters and foreign > 0.2 * len(letters):
        return False
    words = re.findall(r"[^\W\d_]+", text.lower())
    english = sum(w in _ENGLISH for w in words)
    other = sum(w in _OTHER_LANGUAGES for w in words)
    return english >= other and (english > 0 or len(words) < 8)
