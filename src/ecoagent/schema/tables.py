"""Rows of every table but ``tools``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ecoagent.schema.base import Record

Split = Literal["train", "val", "test", "cold"]
Outcome = Literal["success", "error", "timeout", "auth", "rate_limited", "bad_request", "wrong_tool"]
UNAVAILABLE: frozenset[str] = frozenset({"error", "timeout", "auth", "rate_limited"})
"""Outcomes that count against availability; bad_request and wrong_tool do not."""


class QueryRow(Record):
    """A query of EcoAgent-Syn or EcoAgent-Real."""

    query_id: str = Field(description="q:<set>:<12 hex of sha256 of the normalised text>.")
    text: str = Field(description="The query as a user would write it.")
    set: Literal["syn", "real"] = Field(description="Generated or real-style.")
    intent: str | None = Field(default=None, description="direct, troubleshooting or howto (syn).")
    source_tool_id: str | None = Field(default=None, description="Tool it was generated for (syn).")
    query_type: str | None = Field(
        default=None, description="single, several or none: right tools of the request (real)."
    )
    language: str = Field(description="ISO 639-1 code; unknown where the source does not say.")
    split: Split = Field(description="Split, never shared by two equal normalised texts.")
    origin: str = Field(
        description="Syn: live, or replayed from published responses; real: the name of the request set."
    )
    licence: str = Field(description="Licence of the text.")
    quality_flags: list[str] = Field(default_factory=list, description="Flaws found, sorted.")
    round_trip_rank: int | None = Field(default=None, description="Best rank of its golds when searched.")
    verifier_raw: float | None = Field(
        default=None, description="Verifier's score for the source tool, where it was asked (syn)."
    )
    verifier_score: float | None = Field(
        default=None, description="The same as a probability, by the calibration of the Real pairs."
    )


class QrelRow(Record):
    """A relevance judgement."""

    query_id: str = Field(description="Query, see the query tables.")
    tool_id: str = Field(description="Tool, see the tools table.")
    grade: int = Field(description="1 = gold.")
    origin: str = Field(description="generated, verified or duplicate_group.")
    encoder_score: float | None = Field(default=None, description="Cosine of the labelling encoder.")
    verifier_raw: float | None = Field(default=None, description="Score the verifier wrote.")
    verifier_probability: float | None = Field(default=None, description="Calibrated probability.")


class PairRow(Record):
    """A training pair."""

    query_id: str = Field(description="Query, see the query tables.")
    tool_id: str = Field(description="Tool, see the tools table.")
    label: int = Field(description="1 positive, 0 negative.")
    negative_type: Literal["hard", "random"] | None = Field(default=None, description="Null for positives.")
    score: float | None = Field(default=None, description="Cosine of the mining encoder.")
    split: Split


class ResponseRow(Record):
    """A stored model response."""

    request_hash: str = Field(description="SHA-256 over model, messages, sampling and seed.")
    model: str
    sampling: str = Field(description="Sampling parameters as JSON text.")
    prompt_sha256: str
    text: str
    tokens_in: int
    tokens_out: int
    finish_reason: str
    status: str = Field(description="ok or an error code.")


class PublishedResponse(ResponseRow):
    """A response as it is published for replay."""

    first_token_logprobs: str | None = Field(
        default=None, description="Most probable first tokens with natural-log probabilities, as JSON text."
    )


class VerdictRow(Record):
    """What each labelling stage said of one query-tool pair."""

    query_id: str = Field(description="Query, see the query tables.")
    tool_id: str = Field(description="Tool, see the tools table.")
    stage: Literal["encoder", "verifier"] = Field(description="Last stage the pair reached.")
    retriever: Literal["dense", "bm25", "dense+bm25"] = Field(
        default="dense", description="Which retrievers proposed the pair."
    )
    encoder_score: float
    verifier_raw: float | None = None
    verifier_probability: float | None = None
    kept: bool
    reason: str | None = Field(default=None, description="Why it was not kept.")
    response_hash: str | None = Field(default=None, description="Key into responses.")


class FeedbackRow(Record):
    """A query of one iteration of TR-Feedback: the text q_t, and how it came about."""

    query_id: str = Field(description="Query, see the query tables.")
    iteration: int = Field(description="t; 0 is the query as it was written.")
    critic: str = Field(description="Model that was asked.")
    part: Literal["train", "test"] = Field(
        description="train: rewritten to train the retriever; test: judged."
    )
    text: str = Field(description="q_t. Where nothing new was written it is the last good query.")
    searched_as: int = Field(
        description="Iteration at which the text was written; what the retriever is told."
    )
    status: Literal["original", "rewritten", "stopped", "fallback"]
    stop: bool = Field(description="Whether the critic said that nothing is missing, now or before.")
    reason: str | None = Field(default=None, description="Why it fell back.")
    response_hashes: list[str] = Field(
        default_factory=list, description="Keys into the responses: comprehension, assessment, refinement."
    )
    tokens_in: int = Field(default=0, description="Prompt tokens of this iteration.")
    tokens_out: int = Field(default=0, description="Generated tokens of this iteration.")


class RejectRow(Record):
    """Something a stage did not keep."""

    id: str
    stage: str
    reason: str
    detail: str


class DuplicateRow(Record):
    """A pair of tools compared for being the same tool."""

    tool_id: str = Field(description="Smaller id of the pair.")
    other_id: str = Field(description="Larger id of the pair.")
    same: bool = Field(description="Whether the pair is one tool; groups are made of such pairs.")
    rule: str = Field(description="Rule that decided.")
    cosine: float | None = Field(default=None, description="SBERT cosine, where the rule asked for it.")


class LinkRow(Record):
    """A documentation or endpoint address, and whether it answers."""

    url: str
    host: str
    kinds: list[str] = Field(description="Where it stands: docs, page, repository, endpoint; sorted.")
    tool_ids: list[str] = Field(description="Tools that name it, sorted.")
    state: Literal["alive", "dead", "auth_walled", "unknown"]
    reason: str = Field(description="What was seen: status_200, not_found, soft_404, no_such_host, …")
    status: int | None = Field(default=None, description="Last HTTP status, where there was an answer.")
    checked_at: str = Field(description="UTC time of the answer.")


class OutcomeRow(Record):
    """Execution feedback of an agent."""

    step: int
    query_id: str = Field(description="Query, see the query tables.")
    tool_id: str = Field(description="Tool, see the tools table.")
    outcome: Outcome
    latency_ms: float | None = None
