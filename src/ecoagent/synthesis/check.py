"""The round trip of a generated query: does the verifier agree that its tool does what it asks?

The other half, whether retrieval brings the tool back, needs the whole catalog: see ``assemble``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ecoagent.labeling.verify import Form, ToolCard, verify_pairs
from ecoagent.llm import AsksModel, GenerationRequest, GenerationResponse
from ecoagent.schema import ResponseRow, query_id
from ecoagent.synthesis.filters import Query, Rejected, line_id
from ecoagent.synthesis.generate import count_answer

STAGE = "round_trip"


@dataclass
class Verified:
    """What the verifier said of some queries.

    Attributes:
        queries: the queries in their order, with the score for the tool they were written for.
        responses: its responses by hash.
        stats: requests, live and replayed, failed, tokens: as generation counts its own.
        unscored: queries without a score, by reason: ``unparsable`` or ``engine: <status>``.
    """

    queries: list[Query]
    responses: list[ResponseRow]
    stats: dict[str, int]
    unscored: dict[str, int]


@dataclass
class _Counting:
    """An engine that counts what passes through it: a verdict does not tell a replayed answer."""

    engine: AsksModel
    counts: Counter[str] = field(default_factory=Counter)

    def generate(
        self, requests: Sequence[GenerationRequest], on_response: Any = None, *, label: str = "model"
    ) -> list[GenerationResponse]:
        """Ask the engine behind."""
        answers = self.engine.generate(requests, on_response, label=label)
        for answer in answers:
            count_answer(self.counts, answer)
        return answers


def verify_queries(
    engine: AsksModel,
    queries: Sequence[Query],
    cards: Mapping[str, ToolCard],
    form: Form,
    *,
    max_tokens: int,
    label: str = "round trip",
) -> Verified:
    """Ask the verifier about every query and the tool it was written for.

    A query the verifier gave no readable answer for keeps no score: that is no verdict against it.
    """
    pairs = {(query_id("syn", q.text), q.tool_id): q.text for q in queries}
    counting = _Counting(engine)
    judged = verify_pairs(
        counting,
        list(pairs),
        {identifier: text for (identifier, _), text in pairs.items()},
        dict(cards),
        form,
        max_tokens=max_tokens,
        label=label,
    )
    raw = {(j.query_id, j.tool_id): j.raw for j in judged}
    responses = {j.response.request_hash: j.response for j in judged}
    return Verified(
        [replace(q, verifier_raw=raw[query_id("syn", q.text), q.tool_id]) for q in queries],
        [responses[h] for h in sorted(responses)],
        dict(sorted(counting.counts.items())),
        dict(sorted(Counter(j.reason for j in judged if j.reason).items())),
    )


def keep_verified(queries: Sequence[Query], least: float | None) -> tuple[list[Query], list[Rejected]]:
    """Queries scored at least ``least``, unscored ones included, and a reject for each of the others."""
    kept, rejects = [], []
    for query in queries:
        if least is not None and query.verifier_raw is not None and query.verifier_raw < least:
            detail = f"verifier {query.verifier_raw:.3f} < {least}: {query.text}"
            rejects.append(Rejected(line_id(query), STAGE, "verifier", detail))
        else:
            kept.append(query)
    return kept, rejects
