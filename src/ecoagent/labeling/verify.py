"""The verifier: an instruct model that says whether a tool does what a request asks (paper, Section 2).

Three forms of the question, each giving a raw score in [0, 1]:

- ``score``: the model writes ``{"score": s}``, as the paper's threshold of 0.85 presumes;
- ``yes_no``: P(yes) / (P(yes) + P(no)) over the first token;
- ``grade``: the expected digit over the first token, divided by 9.

Which form separates right from wrong pairs best is a property of the model: ``calibrate`` measures it.
An answer that cannot be read is a verdict with a status, never a guess.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from ecoagent.llm import AsksModel, GenerationRequest, Message, Sampling, take_turns, to_response_row
from ecoagent.prompts import prompt_digests, render
from ecoagent.schema import NormalizedTool, ResponseRow, fold_space

Form = Literal["score", "yes_no", "grade"]
FORMS: tuple[Form, ...] = get_args(Form)

MAX_DESCRIPTION_WORDS = 60
"""Longer descriptions are cut for the prompt: what a tool does stands at their beginning."""
MAX_OPERATIONS = 20
TOP_LOGPROBS = 20
RAW_DECIMALS = 6
UNPARSABLE = "unparsable"

_JSON = re.compile(r"\{[^{}]*\}")
_VALUE = r"(\d+(?:\.\d+)?|\.\d+)\s*(%|(?:/|out of)\s*(\d+))?"
_NUMBER = re.compile(rf"(?<![\w.]){_VALUE}")
_NAMED = re.compile(rf"\bscore\b[\"']?\s*[:=]\s*[\"']?{_VALUE}", re.IGNORECASE)
_LISTED = re.compile(r"^\s*\d+[.)]\s")
SCORE_SCHEMA = (
    '{"type": "object", "properties": {"score": {"type": "number", "minimum": 0, "maximum": 1}}, '
    '"required": ["score"], "additionalProperties": false}'
)
"""What the answer of form ``score`` must follow, where an engine can hold the model to it."""
_WORD = re.compile(r"[a-z]+")
_YES, _NO = frozenset({"yes", "true"}), frozenset({"no", "false", "not"})


@dataclass(frozen=True)
class ToolCard:
    """What the verifier is told of a tool."""

    tool_id: str
    name: str
    group: str | None
    description: str
    operations: tuple[str, ...] = ()

    @classmethod
    def of(cls, tool: NormalizedTool) -> ToolCard:
        """Card of a catalog's tool."""
        names = dict.fromkeys(fold_space(o.name) for o in tool.operations if o.name.strip())
        return cls(tool.id, tool.display_name or tool.name, tool.group_name, tool.description, tuple(names))


@dataclass(frozen=True)
class Judged:
    """What the verifier said of one pair.

    Attributes:
        raw: score in [0, 1]; None where there is none, ``reason`` says why.
        reason: None, ``unparsable`` or ``engine: <status>``.
    """

    query_id: str
    tool_id: str
    raw: float | None
    reason: str | None
    response: ResponseRow


def prompt_name(form: Form) -> str:
    """Prompt of a form."""
    return f"verify_{form}"


def prompt_sha256(form: Form) -> str:
    """Digest of the form's prompt with its parts."""
    return prompt_digests()[prompt_name(form)]


def verification_request(
    query_id: str, text: str, tool: ToolCard, form: Form, *, max_tokens: int = 24
) -> GenerationRequest:
    """The question about one pair. Temperature 0; the instruction first, then the tool, then the request,
    so that pairs sorted by tool share the longest beginning."""
    prompt = render(
        prompt_name(form),
        name=fold_space(tool.name),
        group=None if tool.group is None else fold_space(tool.group),
        description=_cut(tool.description, MAX_DESCRIPTION_WORDS),
        operations=list(tool.operations[:MAX_OPERATIONS]),
        request=fold_space(text),
    )
    one_token = form != "score"
    sampling = Sampling(
        temperature=0.0,
        top_p=1.0,
        max_tokens=1 if one_token else max_tokens,
        seed=0,
        top_logprobs=TOP_LOGPROBS if one_token else 0,
        json_schema=None if one_token else SCORE_SCHEMA,
    )
    messages = tuple(Message(role=m["role"], content=m["content"]) for m in prompt.messages)
    return GenerationRequest(
        id=f"{query_id}|{tool.tool_id}", messages=messages, sampling=sampling, prompt_sha256=prompt.sha256
    )


def _cut(text: str, words: int) -> str:
    parts = fold_space(text).split(" ")
    return " ".join(parts) if len(parts) <= words else " ".join(parts[:words]) + " …"


def read_answer(form: Form, text: str, first_token: dict[str, float] | None = None) -> float | None:
    """Raw score of an answer, 6 decimals, or None if it cannot be read.

    Args:
        text: the whole answer.
        first_token: natural-log probabilities of the most probable first tokens.
    """
    if form == "score":
        value = read_score(text)
    elif first_token and form == "yes_no":
        value = _share(first_token)
    elif first_token:
        value = _expected_digit(first_token)
    else:
        value = None
    if value is None and form != "score":
        value = _plain(form, text)
    return None if value is None else round(value, RAW_DECIMALS)


def read_score(text: str) -> float | None:
    """A score in [0, 1] from JSON, a number, a percentage, ``8/10`` or a plain yes or no."""
    for written in _JSON.findall(text):
        try:
            value = json.loads(written.replace("'", '"')).get("score")
        except json.JSONDecodeError:
            continue
        if isinstance(value, str):
            return read_score(value) if not _JSON.search(value) else None
        if isinstance(value, bool):
            return float(value)
        if isinstance(value, int | float):
            return float(value) if 0 <= value <= 1 else None
    # Named as the score (JSON that was cut off, say), or the only number there is: of several none is chosen.
    found = _NAMED.findall(text) or ([] if _LISTED.match(text) else _NUMBER.findall(text))
    if len(found) == 1:
        number, suffix, scale = found[0]
        divisor = 100.0 if suffix == "%" else float(scale) if scale else 1.0
        value = float(number) / divisor if divisor else math.inf
        return value if 0 <= value <= 1 else None
    return None if found else _yes_or_no(text)


def _yes_or_no(text: str) -> float | None:
    word = _WORD.search(text.lower())
    if word is None:
        return None
    return 1.0 if word.group() in _YES else 0.0 if word.group() in _NO else None


def _plain(form: Form, text: str) -> float | None:
    if form == "yes_no":
        return _yes_or_no(text)
    digit = re.match(r"\s*([0-9])(?![0-9.])", text)
    return int(digit.group(1)) / 9 if digit else None


def _share(first_token: dict[str, float]) -> float | None:
    """P(yes) / (P(yes) + P(no)); a side that is not among the tokens listed counts as their least."""
    yes = [lp for token, lp in first_token.items() if token.strip().lower() in _YES]
    no = [lp for token, lp in first_token.items() if token.strip().lower() in _NO]
    if not yes and not no:
        return None
    floor = min(first_token.values())
    p_yes = sum(math.exp(lp) for lp in yes) if yes else math.exp(floor)
    p_no = sum(math.exp(lp) for lp in no) if no else math.exp(floor)
    return p_yes / (p_yes + p_no) if p_yes + p_no > 0 else None


def _expected_digit(first_token: dict[str, float]) -> float | None:
    mass: dict[int, float] = {}
    for token, lp in first_token.items():
        shown = token.strip()
        if len(shown) == 1 and shown in "0123456789":
            mass[int(shown)] = mass.get(int(shown), 0.0) + math.exp(lp)
    total = sum(mass.values())
    return sum(digit * p for digit, p in mass.items()) / total / 9 if total > 0 else None


def verify_pairs(
    engine: AsksModel,
    pairs: Sequence[tuple[str, str]],
    queries: dict[str, str],
    tools: dict[str, ToolCard],
    form: Form,
    *,
    max_tokens: int = 24,
    label: str = "verify",
) -> list[Judged]:
    """Ask the model about pairs of (query id, tool id); answers sorted by query and tool."""
    by_tool: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for pair in sorted(set(pairs), key=lambda pair: (pair[1], pair[0])):
        by_tool[pair[1]].append(pair)
    ordered = take_turns(by_tool.values())
    requests = [
        verification_request(q, queries[q], tools[t], form, max_tokens=max_tokens) for q, t in ordered
    ]
    responses = engine.generate(requests, label=label) if requests else []
    judged = []
    for (query, tool), request, response in zip(ordered, requests, responses, strict=True):
        if response.ok:
            raw = read_answer(form, response.text, response.first_token_logprobs)
            reason = UNPARSABLE if raw is None else None
        else:
            raw, reason = None, f"engine: {response.status}"
        judged.append(Judged(query, tool, raw, reason, to_response_row(request, response)))
    return sorted(judged, key=lambda j: (j.query_id, j.tool_id))
