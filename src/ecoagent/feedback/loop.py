"""Search, criticise, rewrite, search again: T times for many queries together."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ecoagent.feedback.critic import (
    Fault,
    ShownTool,
    assessment_request,
    comprehension_request,
    fault_of,
    read_assessment,
    read_query,
    refinement_request,
)
from ecoagent.feedback.retriever import IterationRetriever
from ecoagent.llm import AsksModel, GenerationRequest, GenerationResponse, to_response_row
from ecoagent.retrieval import RankedRun, TextSet
from ecoagent.schema import FeedbackRow, ResponseRow
from ecoagent.settings.feedback import FeedbackSettings

Part = Literal["train", "test"]


@dataclass(frozen=True)
class Heard:
    """What a batch of the loop took, for progress and timing.

    Attributes:
        iteration: t, from 1; 0 is the first search.
        queries: queries that are done with the iteration.
        asked: requests the model answered now; stored answers do not count.
        seconds: the model's time for those.
        search_s: time of the search; once an iteration.
        searched: queries searched.
    """

    iteration: int
    queries: int = 0
    asked: int = 0
    seconds: float = 0.0
    search_s: float = 0.0
    searched: int = 0


OnHeard = Callable[[Heard], None]


@dataclass(frozen=True)
class Feedback:
    """What came of the loop.

    Attributes:
        rows: q_t of every query and iteration, by query and iteration.
        runs: one ranking of all queries an iteration, 0 to T. A query without a new text keeps its ranking.
        responses: every answer, by hash.
    """

    rows: list[FeedbackRow]
    runs: list[RankedRun]
    responses: list[ResponseRow]


@dataclass
class _Query:
    """One query on its way."""

    id: str
    request: str
    text: str
    searched_as: int = 0
    earlier: list[str] = field(default_factory=list)
    stopped: bool = False
    fault: Fault | None = None
    answers: list[GenerationResponse] = field(default_factory=list)
    written: bool = False

    def waits(self, settings: FeedbackSettings) -> bool:
        """Whether the critic is asked. At temperature 0 the same question has the same unusable answer; one
        that got no answer is put again."""
        if self.stopped:
            return False
        return self.fault is None or self.fault == "engine" or settings.temperature > 0


def run_feedback(
    engine: AsksModel,
    retriever: IterationRetriever,
    queries: TextSet,
    tools: Mapping[str, ShownTool],
    settings: FeedbackSettings,
    *,
    critic: str,
    part: Part,
    depth: int,
    seed: int,
    batch: int = 4,
    on_heard: OnHeard | None = None,
) -> Feedback:
    """The iterations 0 to T of every query.

    A critic whose answer cannot be used (see ``critic.Fault``) leaves the last good query and its ranking
    in place, with the reason in the row. One that says stop ends the iterations of its query.

    Args:
        engine: answers the critic's questions, behind the store of responses.
        retriever: searches with q_t and t.
        queries: the requests, q_0.
        tools: every tool as the critic sees it.
        settings: T, what is shown, limits.
        critic: name of the critic in the rows.
        part: what the rows are for.
        depth: tools kept per ranking.
        seed: of the critic's sampling, where it has a temperature.
        batch: queries whose turns follow each other, so that an engine still holds their conversation; no
            influence on what is asked.
        on_heard: told what each batch took.
    """
    tell = on_heard or (lambda _: None)
    states = [_Query(i, text, text) for i, text in zip(queries.ids, queries.texts, strict=True)]
    responses: dict[str, ResponseRow] = {}
    rows = [_row(state, 0, critic, part) for state in states]
    started = time.monotonic()
    found = retriever.search(queries.ids, queries.texts, 0, depth)
    tell(Heard(0, len(states), search_s=time.monotonic() - started, searched=len(states)))
    runs = [found]
    for iteration in range(1, settings.iterations + 1):
        for state in states:
            state.answers, state.written = [], False
        ranked = dict(zip(runs[-1].query_ids, runs[-1].tool_ids, strict=True))
        asked = [state for state in states if state.waits(settings)]
        tell(Heard(iteration, len(states) - len(asked)))
        for start in range(0, len(asked), max(1, batch)):
            some = asked[start : start + max(1, batch)]
            shown = {s.id: [tools[t] for t in ranked[s.id][: settings.tools_shown]] for s in some}
            live, seconds = _criticise(engine, some, shown, settings, iteration, seed, responses)
            tell(Heard(iteration, len(some), live, seconds))
        runs.append(_search_again(retriever, states, runs[-1], iteration, depth, tell))
        rows += [_row(state, iteration, critic, part) for state in states]
    rows.sort(key=lambda row: (row.query_id, row.iteration))
    return Feedback(rows, runs, [responses[h] for h in sorted(responses)])


def _search_again(
    retriever: IterationRetriever,
    states: Sequence[_Query],
    before: RankedRun,
    iteration: int,
    depth: int,
    tell: OnHeard,
) -> RankedRun:
    written = [state for state in states if state.written]
    if not written:
        return RankedRun(before.name, before.query_ids, before.tool_ids, before.scores)
    started = time.monotonic()
    new = retriever.search([s.id for s in written], [s.text for s in written], iteration, depth)
    tell(Heard(iteration, search_s=time.monotonic() - started, searched=len(written)))
    place = {query: n for n, query in enumerate(new.query_ids)}
    tool_ids, scores = list(before.tool_ids), list(before.scores)
    for n, query in enumerate(before.query_ids):
        if query in place:
            tool_ids[n], scores[n] = new.tool_ids[place[query]], new.scores[place[query]]
    return RankedRun(before.name, before.query_ids, tool_ids, scores)


def _criticise(
    engine: AsksModel,
    states: Sequence[_Query],
    shown: Mapping[str, Sequence[ShownTool]],
    settings: FeedbackSettings,
    iteration: int,
    seed: int,
    responses: dict[str, ResponseRow],
) -> tuple[int, float]:
    """The three turns for some queries; returns requests answered now, and the seconds they took."""
    live, seconds = 0, 0.0

    def ask(asked: Sequence[tuple[_Query, GenerationRequest]]) -> list[tuple[_Query, GenerationRequest, str]]:
        """Answers of those that got one; the others have fallen back."""
        nonlocal live, seconds
        if not asked:
            return []
        started = time.monotonic()
        answers = engine.generate([request for _, request in asked], label="feedback")
        now = sum(not answer.replayed for answer in answers)
        if now:
            live, seconds = live + now, seconds + time.monotonic() - started
        heard = []
        for (state, request), answer in zip(asked, answers, strict=True):
            state.answers.append(answer)
            responses[answer.request_hash] = to_response_row(request, answer)
            if answer.ok:
                heard.append((state, request, answer.text))
            else:
                state.fault = "engine"
        return heard

    for state in states:
        state.fault = None
    first = ask(
        [
            (
                state,
                comprehension_request(
                    f"{state.id}|{iteration}",
                    state.request,
                    state.text,
                    shown[state.id],
                    settings,
                    _seed(seed, state.id, iteration, settings),
                ),
            )
            for state in states
        ]
    )
    for state, _, text in first:
        state.fault = None if text.strip() else "no_comprehension"
    second = ask(
        [(s, assessment_request(request, text, settings)) for s, request, text in first if s.fault is None]
    )
    third = []
    for state, request, text in second:
        assessment = read_assessment(text, len(shown[state.id]))
        if assessment is None:
            state.fault = "assessment"
        elif assessment.stop:
            state.stopped = True
        else:
            tried = state.earlier[1:] + ([state.text] if state.searched_as else [])
            third.append((state, refinement_request(request, text, tried, settings)))
    for state, _, text in ask(third):
        query, fault = read_query(text, state.answers[-1].finish_reason)
        earlier = [*state.earlier, state.text]
        fault = fault or fault_of(query, state.request, earlier, shown[state.id], settings.max_words)
        if fault is not None:
            state.fault = fault
            continue
        state.earlier, state.text, state.searched_as, state.written = earlier, query, iteration, True
    return live, seconds


def _seed(seed: int, query: str, iteration: int, settings: FeedbackSettings) -> int:
    """Of the sampling. Without temperature there is nothing to draw: equal questions are one."""
    if settings.temperature == 0:
        return 0
    return int(hashlib.sha256(f"{seed}:{query}:{iteration}".encode()).hexdigest()[:8], 16) & 0x7FFFFFFF


def _row(state: _Query, iteration: int, critic: str, part: Part) -> FeedbackRow:
    status: Literal["original", "rewritten", "stopped", "fallback"]
    if iteration == 0:
        status = "original"
    elif state.stopped:
        status = "stopped"
    else:
        status = "rewritten" if state.written else "fallback"
    return FeedbackRow(
        query_id=state.id,
        iteration=iteration,
        critic=critic,
        part=part,
        text=state.text,
        searched_as=state.searched_as,
        status=status,
        stop=state.stopped,
        reason=state.fault if status == "fallback" else None,
        response_hashes=[answer.request_hash for answer in state.answers],
        tokens_in=sum(answer.tokens_in for answer in state.answers),
        tokens_out=sum(answer.tokens_out for answer in state.answers),
    )
