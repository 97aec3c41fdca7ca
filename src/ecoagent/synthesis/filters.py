"""Filters on a parsed line: each returns a reason, and what it rejects is kept beside what it passes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ecoagent.schema import normalize_query
from ecoagent.settings import SynthesisSettings
from ecoagent.synthesis.wording import copies_prompt, mask_names, names_as_tool, no_query, wording_flags

NAME_LEAK = "name_leak"
TEMPLATED = "templated"
"""Flag: begins with the same words as several other lines of its tool."""
TEMPLATE_WORDS, TEMPLATE_LINES = 6, 3
"""A template is this many first words that at least this many lines of a tool share."""
LEAST_CONTENT = 3
"""Words that carry meaning in a run; "to send a message with the" is plain English, no copy."""
LONG_NAME = 8
"""Letters from which a one-word name leaks however it is written."""
SHORT_NAME = 3
"""Letters below which a one-word name never leaks."""
_WORD = re.compile(r"\w+")
_SENTENCE_START = re.compile(r"(?:^|[.!?…:][\"'”’)\]]*\s+|\n)[\"'“‘(\[]*$")
"""Matches what stands before the first word of a sentence."""
_SMALL_TEXT = """
    a an the this that these those of to in on at by for from with without as and or but if is are was were be
    been being it its i my me we our us you your can could will would should do does did have has had not
    all any some what which who when where how there their them they than then into about
"""
_SMALL_WORDS = frozenset(_SMALL_TEXT.split())


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


def line_id(query: Query) -> str:
    """Where a line stands: tool, intent, round and place in the response."""
    return f"{query.tool_id}|{query.intent}.{query.attempt}.{query.line}"


def words(text: str) -> list[str]:
    r"""``\w+`` tokens of the normalised text, in order."""
    return _WORD.findall(normalize_query(text))


def too_short_or_long(text: str, settings: SynthesisSettings) -> str | None:
    """Figure 2, requirement 1: 5-120 words, counted between blanks."""
    count = len(text.split())
    if count < settings.min_words:
        return "too_short"
    return "too_long" if count > settings.max_words else None


def verbatim(text: str, description: str, run: int, names: Sequence[str] = ()) -> bool:
    """Figure 2, requirement 4: whether ``run`` words in a row stand in the description as well.

    A description shorter than that counts as copied when all its (at least four) words are there. The
    names of the tool and its group are taken out of both first: naming it is judged apart (`leaks_name`).
    A run of which fewer than three words carry meaning is no copy.
    """
    source, query = words(_unnamed(description, names)), words(_unnamed(text, names))
    size = min(run, len(source))
    if size < min(run, 4) or len(query) < size:
        return False
    runs = {tuple(source[i : i + size]) for i in range(len(source) - size + 1)}
    least = 0 if size < run else min(LEAST_CONTENT, run)
    return any(
        tuple(query[i : i + size]) in runs
        and sum(w not in _SMALL_WORDS for w in query[i : i + size]) >= least
        for i in range(len(query) - size + 1)
    )


def _unnamed(text: str, names: Sequence[str]) -> str:
    """A text without the names; what stood on both sides then stands together."""
    return mask_names(text, names, by=" ")


def leaks_name(text: str, names: Sequence[str]) -> bool:
    """Whether a query names the tool: the name's words in a row, or the name written as one word.

    A name of one short word is often plain English ("Search", "Mail"), which people say anyway: it
    leaks only where it is written as a name, see ``_says_short_name``.
    """
    plain = text.replace("_", " ")
    query = words(plain)
    for name in names:
        parts = words(name.replace("_", " "))
        if not parts:
            continue
        squashed = "".join(parts)
        if len(parts) == 1:
            if (squashed in query) if len(squashed) >= LONG_NAME else _says_short_name(plain, name):
                return True
        elif squashed in query or any(
            query[i : i + len(parts)] == parts for i in range(len(query) - len(parts) + 1)
        ):
            return True
    return False


def _says_short_name(text: str, name: str) -> bool:
    """Whether a one-word name stands in a text with a capital, and not as the first word of a sentence.

    "Post it on Slack" does, for a tool called slack too; "Search for a flight" and "search" do not.
    """
    written = name.replace("_", " ").strip()
    if sum(c.isalpha() for c in written) < SHORT_NAME:
        return False
    return any(
        found.group() != found.group().lower() and not _SENTENCE_START.search(text, 0, found.start())
        for found in re.finditer(rf"(?<!\w){re.escape(written)}(?!\w)", text, re.IGNORECASE)
    )


def reason_to_reject(
    text: str, description: str, settings: SynthesisSettings, names: Sequence[str] = ()
) -> str | None:
    """The first filter a line fails, or none.

    Args:
        text: the line.
        description: the tool's whole description.
        settings: word limits and the length of a copied run.
        names: what the tool and its group are called.
    """
    reason = too_short_or_long(text, settings) or no_query(text, names)
    if reason is None and copies_prompt(text, " ".join((*names, description))):
        return "prompt_copy"
    if reason is None and verbatim(text, description, settings.verbatim_words, names):
        return "verbatim"
    return reason


def flagged(query: Query, names: Sequence[str], group: str | None = None) -> Query:
    """The query with the flags it earns by itself, beside those it has.

    Args:
        query: an accepted line.
        names: forms of the tool's name; a line that holds one leaks it.
        group: name of the tool's group, which a line may well say.
    """
    known = (*names, group) if group else names
    found = {*query.flags, *wording_flags(query.text, known)}
    if leaks_name(query.text, names) or names_as_tool(query.text, known):
        found.add(NAME_LEAK)
    return replace(query, flags=tuple(sorted(found)))


def flag_templates(
    queries: Sequence[Query], *, first: int = TEMPLATE_WORDS, lines: int = TEMPLATE_LINES
) -> list[Query]:
    """The queries, in order, with the flag ``templated`` where ``lines`` of a tool begin alike.

    Similarity of whole lines misses "How do I make my agent sleep for 20 seconds …" said six times.

    Args:
        queries: accepted lines of any tools.
        first: words from the start that are compared.
        lines: lines of one tool that make a template.
    """
    starts = [(q.tool_id, *words(q.text)[:first]) for q in queries]
    counts = Counter(starts)
    return [
        replace(q, flags=tuple(sorted({*q.flags, TEMPLATED})))
        if counts[start] >= lines and len(start) > first
        else q
        for q, start in zip(queries, starts, strict=True)
    ]


def other_names(siblings: Sequence[str], names: Sequence[str]) -> list[str]:
    """Siblings that a line may not name: those not named by the tool's or its group's own name.

    "Brave Search" is a tool beside "Brave Video Search" and the name of their group: it tells nothing.

    Args:
        siblings: names of the other tools of the group.
        names: what the tool and its group are called.
    """
    own = [frozenset(words(n.replace("_", " "))) for n in names]
    return [s for s in siblings if not any(frozenset(words(s.replace("_", " "))) <= o for o in own)]


def limit_lines(
    queries: Sequence[Query], share: float, most: int
) -> tuple[list[Query], list[Query], list[Query]]:
    """At most ``most`` queries, of which at most ``share`` name the tool; earlier ones are preferred.

    Both limits in one pass: a cap set afterwards would cut clean lines and so raise the share.

    Returns:
        What is kept, what names the tool too often, and what is over the cap, each in order.
    """
    clean = sum(NAME_LEAK not in q.flags for q in queries)
    # Of n lines share * n may leak; n is the cap, or else every clean line with the leaks they allow.
    allowed = most if share >= 1 else int(min(clean * share / (1 - share), share * most) + 1e-9)
    kept: list[Query] = []
    leaking: list[Query] = []
    surplus: list[Query] = []
    for query in queries:
        leaks = NAME_LEAK in query.flags
        if leaks and not allowed:
            leaking.append(query)
        elif len(kept) == most:
            surplus.append(query)
        else:
            kept.append(query)
            allowed -= leaks
    return kept, leaking, surplus
