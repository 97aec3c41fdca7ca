"""What the critic is asked, and what is taken of its answers.

Three turns of one conversation: comprehension (the goal, and what each tool found does), assessment
(usable, missing, or stop) and refinement (nothing but a rewritten query). An answer that cannot be
used has a reason; nothing is guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ecoagent.labeling.verify import ToolCard
from ecoagent.llm import GenerationRequest, Message, Sampling
from ecoagent.prompts import render
from ecoagent.schema import fold_space, normalize_query
from ecoagent.settings.feedback import FeedbackSettings
from ecoagent.synthesis.language import is_english

COMPREHEND, ASSESS, REFINE = "feedback_comprehend", "feedback_assess", "feedback_refine"
PROMPTS = (COMPREHEND, ASSESS, REFINE)
Fault = Literal[
    "engine", "no_comprehension", "assessment", "format", "cut_off", "empty", "repeated", "too_long",
    "language", "tools_echoed",
]  # fmt: skip
"""Why a query fell back, in the order in which it is looked for."""

TOKENS_PER_WORD = 2
ECHOED_WORDS = 6
"""So many words of a description in a row are a copy of it."""
MOST_SURE = 7
"""Up to so many words, one word of another language decides; longer keyword queries lack small words."""

ASSESSMENT_SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "usable": {"type": "array", "items": {"type": "integer"}},
            "missing": {"type": "string"},
            "stop": {"type": "boolean"},
        },
        "required": ["usable", "missing", "stop"],
        "additionalProperties": False,
    }
)
"""What the assessment must follow, where an engine can hold the model to it."""

_OBJECT = re.compile(r"\{.*\}", re.DOTALL)
_LABEL = re.compile(
    r"^(?:(?:the )?(?:better|new|rewritten|refined|improved|search)? ?(?:search )?query) ?: *", re.I
)
_TALK = re.compile(
    r"^(?:sure|certainly|of course|okay|here(?:'s| is| are)|i(?:'m| am) (?:sorry|unable)|i can(?:no|')t"
    r"|sorry|as an ai|note:|assistant:|the (?:better |rewritten |new )?query)\b",
    re.IGNORECASE,
)
_QUOTES = "\"'`“”‘’«» "
_WORD = re.compile(r"\w+")
_IDENTIFIER = re.compile(r"_|[a-z][A-Z]")


@dataclass(frozen=True)
class ShownTool:
    """A tool as the critic sees it."""

    tool_id: str
    name: str
    group: str | None
    description: str


@dataclass(frozen=True)
class Assessment:
    """What the critic thinks of the tools found.

    Attributes:
        usable: places of usable tools, from 1.
        missing: what no tool found does.
        stop: whether nothing is missing.
    """

    usable: tuple[int, ...]
    missing: str
    stop: bool


def shown_tool(card: ToolCard, words: int) -> ShownTool:
    """A card with its description, or else its operations, cut after ``words`` words."""
    said = fold_space(card.description) or ", ".join(card.operations)
    parts = said.split(" ")
    cut = said if len(parts) <= words else " ".join(parts[:words]) + " …"
    name, group = fold_space(card.name), fold_space(card.group or "")
    known = _plain(group) in _plain(name)
    return ShownTool(card.tool_id, name, None if known else group, cut)


def _plain(text: str) -> str:
    return "".join(_WORD.findall(text.lower())).replace("_", "")


def _request(
    identifier: str,
    messages: Sequence[Message],
    prompt_sha256: str,
    settings: FeedbackSettings,
    **sampling: Any,
) -> GenerationRequest:
    return GenerationRequest(
        id=identifier,
        messages=tuple(messages),
        prompt_sha256=prompt_sha256,
        sampling=Sampling(temperature=settings.temperature, top_p=1.0, **sampling),
    )


def comprehension_request(
    identifier: str,
    request: str,
    query: str,
    tools: Sequence[ShownTool],
    settings: FeedbackSettings,
    seed: int,
) -> GenerationRequest:
    """First turn: the request, what was searched for, the tools found."""
    prompt = render(COMPREHEND, request=fold_space(request), query=fold_space(query), tools=list(tools))
    messages = [Message(role=m["role"], content=m["content"]) for m in prompt.messages]
    return _request(
        identifier,
        messages,
        prompt.sha256,
        settings,
        max_tokens=settings.comprehension_tokens,
        seed=seed,
    )


def _next_turn(before: GenerationRequest, answer: str, user: str) -> list[Message]:
    turn = Message(role="assistant", content=answer.strip())
    return [*before.messages, turn, Message(role="user", content=user)]


def assessment_request(
    before: GenerationRequest, answer: str, settings: FeedbackSettings
) -> GenerationRequest:
    """Second turn, after the comprehension."""
    prompt = render(ASSESS)
    return _request(
        before.id,
        _next_turn(before, answer, prompt.user),
        prompt.sha256,
        settings,
        max_tokens=settings.assessment_tokens,
        seed=before.sampling.seed,
        json_schema=ASSESSMENT_SCHEMA,
    )


def refinement_request(
    before: GenerationRequest, answer: str, tried: Sequence[str], settings: FeedbackSettings
) -> GenerationRequest:
    """Third turn; ``tried`` are rewritten queries of earlier iterations."""
    prompt = render(REFINE, max_words=settings.max_words, tried=[fold_space(t) for t in tried])
    return _request(
        before.id,
        _next_turn(before, answer, prompt.user),
        prompt.sha256,
        settings,
        max_tokens=TOKENS_PER_WORD * settings.max_words + 16,
        seed=before.sampling.seed,
    )


def read_assessment(text: str, shown: int) -> Assessment | None:
    """The assessment in an answer, or None where it is none.

    A number beyond the tools shown is left out. Stop without a usable tool contradicts itself: the
    search goes on.

    Args:
        text: the whole answer.
        shown: tools the critic saw.
    """
    found = _OBJECT.search(text)
    if found is None:
        return None
    try:
        value = json.loads(found.group())
    except (ValueError, RecursionError):
        return None
    usable, missing, stop = value.get("usable"), value.get("missing"), value.get("stop")
    if not isinstance(usable, list) or not isinstance(stop, bool) or not isinstance(missing, str | None):
        return None
    places = {n for n in usable if isinstance(n, int) and not isinstance(n, bool) and 1 <= n <= shown}
    return Assessment(tuple(sorted(places)), fold_space(missing or ""), stop and bool(places))


def read_query(text: str, finish_reason: str = "stop") -> tuple[str, Fault | None]:
    """The query in an answer and, where there is none, the fault: empty, cut_off or format.

    A label before it and quotes around it are taken off; a second line, JSON or talk about the query is a
    fault.
    """
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return "", "empty"
    if len(lines) > 1 or lines[0].startswith(("{", "[", "```")) or _TALK.match(lines[0]):
        return "", "format"
    query = fold_space(_LABEL.sub("", lines[0].lstrip("-*• ")).strip(_QUOTES))
    if not normalize_query(query):
        return "", "empty"
    if finish_reason == "length":
        return "", "cut_off"
    return query, None


def fault_of(
    query: str, request: str, earlier: Sequence[str], tools: Sequence[ShownTool], max_words: int
) -> Fault | None:
    """Why a rewritten query is not used, or None.

    Args:
        query: the rewritten query.
        request: the query as the person wrote it.
        earlier: queries searched with before, the request among them.
        tools: what the critic saw.
        max_words: words a query may have.
    """
    if normalize_query(query) in {normalize_query(text) for text in (request, *earlier)}:
        return "repeated"
    if len(query.split()) > max_words:
        return "too_long"
    if reads_english(query) != reads_english(request):
        return "language"
    return "tools_echoed" if echoes(query, request, tools) else None


def reads_english(text: str) -> bool:
    """``is_english``, but a long row of key words need not hold an English small word."""
    if is_english(text):
        return True
    return len(text.split()) > MOST_SURE and is_english(f"the {text}")


def echoes(query: str, request: str, tools: Sequence[ShownTool]) -> bool:
    """Whether a query repeats the tools shown: an id, one name and nothing else, two names, or a piece of a
    description. What the person said themselves is no echo."""
    said, asked = _words(query), _words(request)
    names = 0
    for tool in tools:
        name = _words(tool.name)
        if tool.tool_id.lower() in query.lower() or (name and name == said and not _within(name, asked)):
            return True
        telling = len(name) > 1 or bool(_IDENTIFIER.search(tool.name))
        names += telling and _within(name, said) and not _within(name, asked)
        copied = _words(tool.description)
        for start in range(len(copied) - ECHOED_WORDS + 1):
            piece = copied[start : start + ECHOED_WORDS]
            if _within(piece, said) and not _within(piece, asked):
                return True
    return names > 1


def _words(text: str) -> list[str]:
    return _WORD.findall(normalize_query(text))


def _within(part: Sequence[str], whole: Sequence[str]) -> bool:
    size = len(part)
    return size > 0 and any(list(whole[i : i + size]) == list(part) for i in range(len(whole) - size + 1))
