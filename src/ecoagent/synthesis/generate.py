"""Ask, parse, filter, ask again: the queries of a shard's tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ecoagent.llm import AsksModel, GenerationRequest, GenerationResponse, to_response_row
from ecoagent.retrieval.dedup import deduplicate
from ecoagent.schema import ResponseRow, query_id, tokens
from ecoagent.settings import SynthesisSettings
from ecoagent.synthesis.filters import (
    Query,
    Rejected,
    flag_templates,
    flagged,
    leaks_name,
    limit_lines,
    line_id,
    other_names,
    reason_to_reject,
)
from ecoagent.synthesis.parse import parse_response
from ecoagent.synthesis.plan import Ask, ToolFacts, first_asks, request_of, retry_asks

OnResponse = Callable[[GenerationResponse], None]


@dataclass(frozen=True)
class ToolSource:
    """What generation needs of a tool: its facts, its whole description, the names it goes by."""

    facts: ToolFacts
    description: str
    names: tuple[str, ...]


@dataclass
class Coverage:
    """How far a tool got.

    Attributes:
        tool_id: the tool.
        asked: lines asked for.
        accepted: lines that passed the filters.
        attempts: rounds used.
        short: whether it stayed under the wanted number.
        failed: requests that got no answer.
    """

    tool_id: str
    asked: int = 0
    accepted: int = 0
    attempts: int = 0
    short: bool = True
    failed: int = 0


@dataclass
class Generated:
    """What came of a shard: accepted lines, rejects, responses and coverage, all in a fixed order."""

    queries: list[Query] = field(default_factory=list)
    rejects: list[Rejected] = field(default_factory=list)
    responses: list[ResponseRow] = field(default_factory=list)
    coverage: list[Coverage] = field(default_factory=list)
    stats: dict[str, int] = field(default_factory=dict)


@dataclass
class _Tool:
    """Lines collected for one tool so far."""

    coverage: Coverage
    found: list[Query] = field(default_factory=list)
    kept: list[Query] = field(default_factory=list)
    surplus: list[Rejected] = field(default_factory=list)
    rejects: list[Rejected] = field(default_factory=list)


def generate(
    tools: Mapping[str, ToolSource],
    engine: AsksModel,
    settings: SynthesisSettings,
    *,
    seed: int,
    live: Collection[str] = (),
    on_response: OnResponse | None = None,
    label: str = "synthesize",
) -> Generated:
    """Queries for every tool: a first round of all intents, then rounds for those that are short.

    A request that fails is a reject with its status; nothing is raised for it.

    Args:
        tools: what is known of each tool, by id.
        engine: answers requests in order.
        settings: numbers, filters and sampling.
        seed: the run's seed; each request's own seed depends on tool, intent and round.
        live: tools that published responses do not answer for.
        on_response: sees each response as it arrives.
        label: what the progress line calls this work.
    """
    state = {tool_id: _Tool(Coverage(tool_id)) for tool_id in sorted(tools)}
    rows: dict[str, ResponseRow] = {}
    counts: Counter[str] = Counter()
    asks = first_asks(list(state), settings)
    for attempt in range(settings.max_attempts):
        if attempt:
            asks = [
                ask
                for tool_id, tool in state.items()
                if len(tool.kept) < settings.min_queries_per_tool
                for ask in retry_asks(tool_id, Counter(q.intent for q in tool.kept), attempt, settings)
            ]
        if not asks:
            break
        requests = [
            request_of(a, tools[a.tool_id].facts, settings, seed=seed, live=a.tool_id in live) for a in asks
        ]
        answers = engine.generate(requests, on_response, label=label if not attempt else f"{label}, again")
        for ask, request, answer in zip(asks, requests, answers, strict=True):
            rows[answer.request_hash] = to_response_row(request, answer)
            count_answer(counts, answer)
            _collect(state[ask.tool_id], ask, request, answer, tools[ask.tool_id], settings)
        for tool_id in dict.fromkeys(a.tool_id for a in asks):
            tool = state[tool_id]
            tool.coverage.attempts = attempt + 1
            tool.kept, tool.surplus = select_lines(tool.found, settings)
    result = Generated(responses=[rows[h] for h in sorted(rows)], stats=dict(sorted(counts.items())))
    for tool in state.values():
        tool.coverage.accepted = len(tool.kept)
        tool.coverage.short = len(tool.kept) < settings.min_queries_per_tool
        result.queries += flag_templates(tool.kept)
        result.rejects += tool.rejects + tool.surplus
        result.coverage.append(tool.coverage)
    return result


def count_answer(counts: Counter[str], answer: GenerationResponse) -> None:
    """Count a response: requests, live and replayed, failed, tokens."""
    counts["requests"] += 1
    counts["replayed" if answer.replayed else "live"] += 1
    counts["failed"] += not answer.ok
    counts["tokens_in"] += answer.tokens_in
    counts["tokens_out"] += answer.tokens_out
    if not answer.replayed:
        counts["live_tokens_in"] += answer.tokens_in
        counts["live_tokens_out"] += answer.tokens_out


def _collect(
    tool: _Tool,
    ask: Ask,
    request: GenerationRequest,
    answer: GenerationResponse,
    source: ToolSource,
    settings: SynthesisSettings,
) -> None:
    """Sort the lines of one response into found and rejected."""
    tool.coverage.asked += ask.count
    if not answer.ok:
        tool.coverage.failed += 1
        tool.rejects.append(Rejected(request.id, "generate", answer.status, answer.finish_reason))
        return
    lines = parse_response(answer.text, finish_reason=answer.finish_reason)
    if not lines:
        tool.rejects.append(Rejected(request.id, "generate", "empty_response", answer.finish_reason))
    for line in lines:
        where = f"{request.id}.{line.number}"
        if line.reason:
            tool.rejects.append(Rejected(where, "parse", line.reason, line.raw))
            continue
        reason = reason_to_reject(line.text, source.description, settings, known_names(source))
        if reason is None and names_sibling(line.text, source):
            reason = "sibling"
        if reason:
            tool.rejects.append(Rejected(where, "filter", reason, line.text))
            continue
        query = Query(
            ask.tool_id,
            ask.intent,
            ask.attempt,
            line.number,
            answer.request_hash,
            line.text,
            origin="replayed" if answer.published else "live",
        )
        tool.found.append(flagged(query, source.names, source.facts.group))


def names_sibling(text: str, source: ToolSource) -> bool:
    """Whether a line names another tool of the group, and not the one it was written for."""
    siblings = other_names(source.facts.siblings, known_names(source))
    return leaks_name(text, siblings) and not leaks_name(text, source.names)


def known_names(source: ToolSource) -> tuple[str, ...]:
    """What the tool goes by, its group included: a line may say these without copying or straying."""
    return (*source.names, *filter(None, (source.facts.group,)))


def select_lines(found: Sequence[Query], settings: SynthesisSettings) -> tuple[list[Query], list[Rejected]]:
    """A tool's lines without near-duplicates, surplus name leaks and what is over the cap.

    Near-duplicates go greedily in the order of query ids, as over the whole set: the canonical line has
    the smallest id. Equal ids are one query, said first by the line that stays. The order of what is
    kept is that of rounds and lines: earlier ones are preferred under the limits.
    """
    rejects: list[Rejected] = []
    first: dict[str, Query] = {}
    for query in found:
        identifier = query_id("syn", query.text)
        if first.setdefault(identifier, query) is not query:
            detail = f"equal to {identifier} of {line_id(first[identifier])}: {query.text}"
            rejects.append(Rejected(line_id(query), "filter", "repeated", detail))
    unique = deduplicate({i: tokens(q.text) for i, q in first.items()}, settings.jaccard)
    for twin in unique.dropped:
        # The witness's text as well, for people who read the rejects.
        witness = f"{twin.witness} {first[twin.witness].text!r}"
        detail = f"Jaccard {twin.similarity:.3f} with {witness}: {first[twin.id].text}"
        rejects.append(Rejected(line_id(first[twin.id]), "filter", "near_duplicate", detail))
    canonical = set(unique.kept)
    kept, leaking, surplus = limit_lines(
        [q for i, q in first.items() if i in canonical], settings.max_name_leak, settings.max_queries_per_tool
    )
    rejects += [Rejected(line_id(q), "filter", "name_leak", q.text) for q in leaking]
    rejects += [Rejected(line_id(q), "filter", "surplus", q.text) for q in surplus]
    return kept, rejects


def as_row(value: Query | Rejected | Coverage) -> dict[str, Any]:
    """A plain dict of a result, for JSON lines."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in vars(value).items()}
