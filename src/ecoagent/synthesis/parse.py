"""Lines of queries out of what instruct models really write; what is not a query keeps its reason."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

from ecoagent.schema import fold_space, normalize_query
from ecoagent.synthesis.language import is_english
from ecoagent.synthesis.pieces import PREAMBLE, Piece, cut, without_tokens

LONGEST = 5000
"""Characters of a line that is looked at; no query is near as long."""
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u061c\u180e\u200b\u200c\u200e\u200f\u202a-\u202e\u2060-\u2064"
    "\u2066-\u206f\ufeff\ufff9-\ufffb]|\u200d(?=[\\w\\s]|$)|(?<![^\\w\\s])\u200d"
)
_NUMBER = re.compile(
    r"^\s*(?:(?:\(\d{1,3}\s*[.):\]]+|#?\d{1,3}\s*[)\]]|\[\d{1,3}\])\s*(?![\d\s])|#?\d{1,3}\s*[.](?=\s"
    r"|[A-Z\"“*])\s*"
    r"|#?\d{1,3}\s*:\s+(?=\D)|\d{1,3}\s+[-–—]\s+(?=[^\W\d]|[\"“*])|\d\ufe0f?\u20e3\s*"
    r"|\(?(?:[a-h]|i{1,3}|iv|vi{0,3})\)\s+)"
)
_BULLET = re.compile(
    r"^\s*(?:[-*+•‣◦·–—>▪●○■□➤➜→✓✔✅☑❓❗⭐🔹🔸👉📌]\ufe0f?\s+"
    r"|[•‣◦▪●](?=\S)|\*(?=[^*\s])|&gt;\s+|\[[ xX]\]\s+)"
)
_LABEL = re.compile(
    r"^(?:\*\*)?\s*(?:user|query|message|request|question|example|prompt|scenario|text|customer|human|q"
    r"|(?:direct|trouble(?:shooting)?|how[- ]to)(?: (?:request|question|message|query))?)"
    r"\s*(?:#?\s*\d{1,3})?\s*(?:\*\*)?\s*(?::|[.)](?=\s|$))\s*(?:\*\*)?\s*",
    re.IGNORECASE,
)
_TAG_BEHIND = re.compile(
    r"\s*[(\[](?:direct|trouble(?:shooting)?|how[- ]?to)(?: (?:request|question|message|query))?[)\]]\.?$",
    re.IGNORECASE,
)
_ANSWER_LABEL = re.compile(
    r"^\W*(?:assistant|answer|response|reply|ai|bot|model|a)\s*\d{0,2}\W{0,2}:", re.IGNORECASE
)
_HTML = re.compile(
    r"^(?:</?(?:html|body|[ou]l|li|p|br|tr|t[dh]|table|thead|tbody|div|span|h[1-6]|blockquote|strong"
    r"|em)\b[^<>]*>\s*)+"
    r"|(?:\s*</?(?:html|body|[ou]l|li|p|br|tr|t[dh]|table|thead|tbody|div|span|h[1-6]|blockquote"
    r"|strong|em)\b[^<>]*>)+$",
    re.IGNORECASE,
)
_HEADING = re.compile(r"^\s*#{1,6}\s+\S|^\s*<h[1-6]\b", re.IGNORECASE)
_BOLD_ONLY = re.compile(r"^\s*(\*\*|__)(?P<inner>[^*]+)\1\s*:?\s*$")
_META = re.compile(
    r"^(?:these (?:messages|queries|requests|examples|are)\b|let me know if you\b"
    r"|i hope (?:this|these)|feel free to (?:ask|reach|let|modify|adjust|use|contact|customi[sz]e)\b"
    r"|\(?notes?\s*:\s*(?:these|this|each|all|the (?:above|messages|queries|requests)|i )\b"
    r"|explanation\b\s*:|each (?:message"
    r"|query)\b"
    r"|\(?end of\b|output\s*:|please note that|(?:in )?summary\s*:)",
    re.IGNORECASE,
)
_PREAMBLE_OF = re.compile(r"\b(?:messages|queries|requests|examples|sentences|prompts)\b", re.IGNORECASE)
_REFUSAL = re.compile(
    r"\bas an? (?:large )?(?:ai\b|language model)|\blanguage model\b(?=.*\bi (?:cannot|can['’]t|do"
    r" not|don['’]t)\b)"
    r"|\bi(?: cannot| can['’]t| am unable to|['’]m unable to|['’]m not able to)"
    r" (?:(?:assist|help)(?: you)? (?:with (?:that|this)|you\b|that\b|generat|creat|writ)"
    r"|fulfill?\b|comply\b|(?:generate|provide|create|write) (?:that|this|these|such|messages|queries))"
    r"|^i['’]m sorry,? but i\b|^i (?:do not|don['’]t) have (?:real-time|the ability)",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"^\s*(?:def \w+\(|class \w+[(:]|import \w+(?: as \w+)?$|from \w+ import|print\(|(?:const|let|var) \w+ ?="
    r"|\$ |<\w+[ >/]|[{}\[\]();,]+$|(?:SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE TABLE)"
    r" .*(?:\b(?:FROM|SET|VALUES)\b|;$)"
    r"|curl -|(?:pip|npm) install \S+$|git \w+ [\w./-]+$)"
    r"|\) ?=>|=> ?\{|^[\w.]+\([^()]*(?:\([^()]*\)[^()]*)*\)\s*;?$"
)
_CUT_OFF = re.compile(
    r"(?:\b(?:the|an|and|or|my|your|our|their|because|than)|(?<=[a-z] )a)(?:\s*(?:\.\.\.|…))?$"
    r"|[,;(\[{–—-]$|\w[,;] ?(?:\.\.\.|…)$"
)
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "`": "`"}


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

    A line that holds several queries, and JSON, come in pieces; see `ecoagent.synthesis.pieces`. What is
    accepted is parsed into itself again.

    Args:
        text: what the model wrote.
        finish_reason: ``length`` if the model was cut off: a last line without its end is not trusted.
    """
    pieces = cut(text)
    unended = finish_reason == "length" and not text.endswith(("\n", "\r"))
    parsed: list[ParsedLine] = []
    seen: set[str] = set()
    for number, piece in enumerate(pieces):
        query, reason = _read(piece)
        if reason is None and unended and number == len(pieces) - 1:
            reason = "cut_off"
        normal = normalize_query(query) if reason is None else ""
        if reason is None and normal in seen:
            reason = "repeated"
        if reason is None:
            seen.add(normal)
        parsed.append(ParsedLine(number, query, reason, piece.raw))
    return parsed


def _read(piece: Piece) -> tuple[str, str | None]:
    """The query of a piece, and why it is none."""
    if len(piece.text) > LONGEST:
        return fold_space(piece.text), "too_long"
    query = unwrap(piece.text)
    reason = piece.reason or _reason_of_raw(piece.text) or reason_of(query)
    if reason is None and (
        _reason_of_raw(query) or [(p.text, p.reason) for p in cut(query)] != [(query, None)]
    ):
        # Only odd nestings of marks come here: taken off, they leave what would be read otherwise.
        reason = "markup"
    return query, reason


def _reason_of_raw(raw: str) -> str | None:
    if _HEADING.match(raw):
        return "heading"
    if _ANSWER_LABEL.match(raw):
        return "answer"
    bold = _BOLD_ONLY.match(raw)
    if bold and (raw.rstrip().endswith(":") or bold["inner"].rstrip().endswith(":")):
        return "heading"
    if bold and len(bold["inner"].split()) < 5 and not bold["inner"].rstrip().endswith((".", "?", "!")):
        return "heading"
    return None


def unwrap(raw: str) -> str:
    """The query without numbering, bullet, label, markdown, HTML, quotes, JSON and template remains."""
    text = raw
    while True:
        before = text
        text = fold_space(_INVISIBLE.sub("", without_tokens(text)))
        if "&" in text:
            text = html.unescape(text)
        text = _HTML.sub("", text)
        text = re.sub(r"^\|\s*|\s*\|$", "", text)
        text = _BULLET.sub("", text)
        text = _NUMBER.sub("", text)
        text = re.sub(r"\\([_*#\[\]])", r"\1", text)
        text = re.sub(r"\*\*(.+?)\*\*", r"\1", text)
        text = _TAG_BEHIND.sub("", _LABEL.sub("", text))
        text = re.sub(r"^(?:\*\*|__)\s*|\s*(?:\*\*|__)$", "", text).strip()
        if text.endswith("*") and text.count("*") == 1:
            text = text[:-1].strip()
        text = _without_quotes(re.sub(r"^\[\s*(?=[\"'])|(?<=[\"'])\s*\]$", "", text))
        if text == before:
            return text


def _without_quotes(text: str) -> str:
    """A text without the quotes around it; those of a name inside stay."""
    # A comma after a closing quote is left over from a list.
    if len(text) > 2 and text[-1] == "," and text[-2] in _QUOTES.values():
        text = text[:-1]
    if len(text) > 1 and _QUOTES.get(text[0]) == text[-1] and _is_around(text):
        return text[1:-1].strip()
    if text[:1] in ('"', "“") and not any(q in text[1:] for q in '"”'):
        return text[1:].strip()
    if text[-1:] in ('"', "”") and not any(q in text[:-1] for q in '"“'):
        return text[:-1].strip()
    return text


def _is_around(text: str) -> bool:
    """Whether the first and the last quote of a text are a pair: the next one in it opens another."""
    quote, inner = text[-1], text[1:-1]
    place = inner.find(quote)
    if place < 0 or text[0] != quote:
        return place < 0
    return (
        inner.count(quote) % 2 == 0
        and re.search(r"(?<=[\s(])" + quote + r"(?=\S)", inner[: place + 2]) is not None
    )


def reason_of(query: str) -> str | None:
    """Why an unwrapped line is no query in English, or none."""
    if not normalize_query(query):
        return "empty"
    if _REFUSAL.search(query):
        return "refusal"
    introduces = PREAMBLE.match(query) and _PREAMBLE_OF.search(query)
    if query.endswith(":") or (introduces and not re.search(r"\b(?:my|me|our|us)\b", query)):
        return "preamble"
    if _META.match(query):
        return "meta"
    if _ANSWER_LABEL.match(query):
        return "answer"
    if _CODE.search(query):
        return "code"
    if not is_english(query):
        return "language"
    return "cut_off" if _CUT_OFF.search(query) else None
