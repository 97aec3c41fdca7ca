"""Filters on a parsed line: each returns a reason, and what it rejects is kept beside what it passes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ecoagent.schema import normalize_query
from ecoagent.settings import SynthesisSettings

NAME_LEAK = "name_leak"
_WORD = re.compile(r"\w+")
_PLACEHOLDER = re.compile(r"\[[^\]\d]{3,}\]|<[^>\d]{3,}>|\{[^}]{2,}\}|\bXYZ\b|\byour[_-]\w+|\.\.\.$|…$")
_ABOUT_THE_TOOL = re.compile(
    r"\b(?:this|the|that) (?:tool|function|plugin|node|api wrapper|message|assistant|user)(?:['’]s)?\b"
    r"|\b(?:using|with|via) (?:this|the) (?:tool|function|node)\b|\bthe (?:[\w.-]+ ){1,5}tool\b",
    re.IGNORECASE,
)
_ANSWER = re.compile(
    r"^(?:yes\b|no,|you (?:can|could|should|need|will|must)\b|to (?:\w+ ){1,12}?(?:you|simply)\b"
    r"|to [^,?]{3,60}, (?:start|use|open|first|go|click|follow|enter|type)\b|try (?:using|to)\b"
    r"|i(?:['’]ll| will| can) (?:help|assist|find|show|look)\b|it (?:is|allows|provides|returns)\b"
    r"|(?:step|option|answer) \d|.*\bplease try again\b|.*\bi(?:['’]d| would) use\b)",
    re.IGNORECASE,
)


_STATEMENT = re.compile(r"^(?:the|a|an|this|that|these|it|there|my|our)\b[^?]*$", re.IGNORECASE)
_WISH_OR_TROUBLE = re.compile(
    r"\bplease\b|\b(?:can|could|will|would) you\b|\bi(?:['’]d| would)? (?:need|want|like)\b"
    r"|\bneeds?\b|\bhelp\b|\b(?:not|no|never|cannot|but|although|instead|wrong|missing|lost|empty|broken|tr(?:y|ied|ying))\b"
    r"|n['’]t\b|\bfail|\berror"
    r"|\b(?:get|find|show|tell|give|send|check|fix|put|make|look)\b (?:me|it|them|us|up)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Query:
    """An accepted line.

    Attributes:
        tool_id: tool it was written for.
        intent: direct, troubleshooting or howto.
        attempt: round it came from, from 0.
        line: place in its response.
        request_hash: the stored response it came from.
        text: the query.
        flags: flaws that do not reject it, sorted.
        origin: live, or replayed from published responses.
        verifier_raw: what the verifier scored it for its tool, in [0, 1]; none where it was not asked.
    """

    tool_id: str
    intent: str
    attempt: int
    line: int
    request_hash: str
    text: str
    flags: tuple[str, ...] = ()
    origin: str = "live"
    verifier_raw: float | None = None


@dataclass(frozen=True)
class Rejected:
    """A line or response that was not kept: where it is from, the filter, its reason, the text."""

    id: str
    stage: str
    reason: str
    detail: str


def words(text: str) -> list[str]:
    r"""``\w+`` tokens of the normalised text, in order."""
    return _WORD.findall(normalize_query(text))


def too_short_or_long(text: str, settings: SynthesisSettings) -> str | None:
    """Figure 2, requirement 1: 5-120 words, counted between blanks."""
    count = len(text.split())
    if count < settings.min_words:
        return "too_short"
    return "too_long" if count > settings.max_words else None


def verbatim(text: str, description: str, run: int) -> bool:
    """Figure 2, requirement 4: whether ``run`` words in a row stand in the description as well.

    A description shorter than that counts as copied when all its (at least four) words are there.
    """
    source, query = words(description), words(text)
    size = min(run, len(source))
    if size < min(run, 4) or len(query) < size:
        return False
    runs = {tuple(source[i : i + size]) for i in range(len(source) - size + 1)}
    return any(tuple(query[i : i + size]) in runs for i in range(len(query) - size + 1))


def leaks_name(text: str, names: Sequence[str]) -> bool:
    """Whether a query names the tool: the name's words in a row, or the name written as one word.

    Names of one short common word ("Search", "Mail") are no leak: people say them anyway.
    """
    query = words(text.replace("_", " "))
    for name in names:
        parts = words(name.replace("_", " "))
        if not parts:
            continue
        squashed = "".join(parts)
        if len(parts) == 1:
            if len(squashed) >= 8 and squashed in query:
                return True
        elif squashed in query or any(
            query[i : i + len(parts)] == parts for i in range(len(query) - len(parts) + 1)
        ):
            return True
    return False


def no_query(text: str) -> str | None:
    """Lines that are about the tool, are answers or bare statements, or hold a placeholder."""
    if _PLACEHOLDER.search(text):
        return "placeholder"
    if _ABOUT_THE_TOOL.search(text):
        return "about_the_tool"
    if _ANSWER.match(text):
        return "answer"
    return "statement" if _STATEMENT.match(text) and not _WISH_OR_TROUBLE.search(text) else None


def reason_to_reject(text: str, description: str, settings: SynthesisSettings) -> str | None:
    """The first filter a line fails, or none."""
    reason = too_short_or_long(text, settings) or no_query(text)
    if reason is None and verbatim(text, description, settings.verbatim_words):
        return "verbatim"
    return reason


def flagged(query: Query, names: Sequence[str]) -> Query:
    """The query with the flags it earns."""
    return replace(query, flags=(NAME_LEAK,)) if leaks_name(query.text, names) else query


def limit_name_leak(queries: Sequence[Query], share: float) -> tuple[list[Query], list[Query]]:
    """Queries such that at most ``share`` of them name the tool, and the surplus, in order."""
    clean = sum(NAME_LEAK not in q.flags for q in queries)
    allowed = len(queries) if share >= 1 else int(clean * share / (1 - share) + 1e-9)
    kept: list[Query] = []
    surplus: list[Query] = []
    for query in queries:
        if NAME_LEAK in query.flags:
            allowed -= 1
            (kept if allowed >= 0 else surplus).append(query)
        else:
            kept.append(query)
    return kept, surplus
