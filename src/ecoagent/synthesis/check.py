"""The round trip of a generated query: does the verifier agree that its tool does what it asks?

The other half, whether retrieval brings the tool back, needs the whole catalog: see ``assemble``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ecoagent.labeling.verify import Form, ToolCard, verify_pairs
from ecoagent.llm import AsksModel
from ecoagent.schema import ResponseRow, query_id
from ecoagent.synthesis.filters import Query, Rejected

STAGE = "round_trip"


def verify_queries(
    engine: AsksModel,
    queries: Sequence[Query],
    cards: Mapping[str, ToolCard],
    form: Form,
    *,
    max_tokens: int,
    label: str = "round trip",
) -> tuple[list[Query], list[ResponseRow]]:
    """The queries with the verifier's score for the tool they were written for, and the responses by hash.

    A query the verifier gave no readable answer for keeps none: that is no verdict against it.
    """
    pairs = {(query_id("syn", q.text), q.tool_id): q.text for q in queries}
    judged = verify_pairs(
        engine,
        list(pairs),
        {identifier: text for (identifier, _), text in pairs.items()},
        dict(cards),
        form,
        max_tokens=max_tokens,
        label=label,
    )
    raw = {(j.query_id, j.tool_id): j.raw for j in judged}
    responses = {j.response.request_hash: j.response for j in judged}
    scored = [replace(q, verifier_raw=raw[query_id("syn", q.text), q.tool_id]) for q in queries]
    return scored, [responses[h] for h in sorted(responses)]


def keep_verified(queries: Sequence[Query], least: float | None) -> tuple[list[Query], list[Rejected]]:
    """Queries scored at least ``least``, unscored ones included, and a reject for each of the others."""
    kept, rejects = [], []
    for query in queries:
        if least is not None and query.verifier_raw is not None and query.verifier_raw < least:
            where = f"{query.tool_id}|{query.intent}.{query.attempt}.{query.line}"
            detail = f"verifier {query.verifier_raw:.3f} < {least}: {query.text}"
            rejects.append(Rejected(where, STAGE, "verifier", detail))
        else:
            kept.append(query)
    return kept, rejects
