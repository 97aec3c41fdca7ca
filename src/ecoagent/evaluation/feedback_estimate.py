"""What TR-Feedback will cost at most, and what each figure rests on: this run's own answers, if any."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ecoagent.evaluation.benchmark_stage import MINILM_MB, SECONDS_PER_TEXT
from ecoagent.evaluation.feedback_data import LATENCY, FeedbackData, critics_of, read_latency
from ecoagent.evaluation.train_stage import SECONDS_PER_ROW
from ecoagent.feedback import PROMPTS
from ecoagent.feedback.critic import assessment_request, comprehension_request, refinement_request
from ecoagent.llm import CostEstimate, GenerationRequest, estimate_cost
from ecoagent.models import ModelStore
from ecoagent.prompts import prompt_digests
from ecoagent.retrieval import plan_batches
from ecoagent.runs import RunContext, read_rows
from ecoagent.schema import ResponseRow
from ecoagent.settings import FeedbackSettings, Settings

RESPONSES_TABLE = "feedback_responses.parquet"
AGAIN = "run `ecoagent feedback --force`; stored answers are kept"
ESTIMATED_ON = 40
"""Queries whose questions stand for the others."""
EXPECTED_SHARE = (0.75, 0.45, 0.25)
"""Generated tokens of each turn as a share of its limit where this run has no answer yet: assumed."""
TEXTS_OF_A_ROW = 3
"""What ``SECONDS_PER_ROW`` was measured with: a query, its tool and one negative."""
ENCODED_TOKENS = 44
"""Tokens of the texts that ``SECONDS_PER_TEXT`` was measured with."""
TRAINED_TOKENS = 64
"""As ``SECONDS_PER_ROW`` says."""


def training_estimate(ctx: RunContext, found: FeedbackData, rewritten: int) -> dict[str, Any]:
    """Pairs, steps and minutes of both trainings at most, and where the minutes come from.

    Args:
        rewritten: training queries that the critic rewrites.
    """
    settings: FeedbackSettings = ctx.settings.feedback
    rows = found.rows(settings, {})
    batches = len(plan_batches([r.pair for r in rows], settings.batch_size, 1, ctx.settings.seed))
    golds = max((len(found.data.golds[row.pair.query_id]) for row in rows), default=0)
    further = min(len(rows), rewritten * golds) * settings.iterations
    trained = (2 * len(rows) + further) * (2 + settings.negatives) * settings.epochs
    # Each round mines negatives among all tools and looks at val.
    rounds = settings.epochs / settings.round_epochs
    looked = len(rows) + len(found.seen("val")) + 2 * len(found.data.tools)
    encoded = rounds * (2 * looked + further)
    size = next(
        (s.size_mb for s in ModelStore(ctx.settings.models).status() if s.name == settings.encoder), None
    )
    seconds = trained * SECONDS_PER_ROW / TEXTS_OF_A_ROW * settings.max_length / TRAINED_TOKENS
    seconds += encoded * SECONDS_PER_TEXT * settings.max_length / ENCODED_TOKENS
    seconds *= (size or MINILM_MB) / MINILM_MB
    basis = "MiniLM's training of RATED and its encoding, measured on 2 cores"
    if size is None:
        basis += f"; the size of {settings.encoder} is not known and taken to be MiniLM's"
    elif size != MINILM_MB:
        basis += f"; scaled by the size of the weights ({size:g} MB), which is not measured"
    return {
        "pairs": len(rows),
        "steps at most": round(2 * batches * settings.epochs),
        "minutes on 2 cores at most": round(seconds / 60, 1),
        "minutes from": basis,
    }


def question_estimate(
    ctx: RunContext, found: FeedbackData, texts: Sequence[str], train: int, test: int
) -> dict[str, Any]:
    """Requests, tokens and minutes of all questions at most, and where tokens and minutes come from.

    Args:
        texts: of test queries, which stand for all.
        train: training queries, which the first critic is asked about.
        test: test queries, which every critic is asked about.
    """
    settings = ctx.settings
    shares, tokens_from = generated_shares(ctx)
    critics = critics_of(settings)
    cost = question_cost(settings, found, texts, train + test * len(critics), shares)
    seconds = seconds_per_request(ctx)
    if cost.requests and seconds.keys() >= set(critics):
        asked = dict.fromkeys(critics, test)
        asked[critics[0]] += train
        per_query = 3 * settings.feedback.iterations
        minutes = sum(per_query * asked[name] * seconds[name][0] for name in critics) / 60
        said = ", ".join(f"{name} {seconds[name][0]:.2f} s over {seconds[name][1]:,}" for name in critics)
        cost = replace(cost, minutes=minutes, basis=f"measured, this run's own requests: {said}")
    record = {k: v for k, v in cost.as_record().items() if k != "answered_by_the_store"}
    return {
        **{k if k == "speed" else f"{k}_at_most": v for k, v in record.items()},
        "generated tokens": tokens_from,
    }


def generated_shares(ctx: RunContext) -> tuple[tuple[float, ...], str]:
    """Generated tokens of each turn as a share of its limit, and a sentence on where they come from.

    Means over the answers that this run's critics gave; turns that have none are assumed.
    """
    path, critics = ctx.paths.core / RESPONSES_TABLE, critics_of(ctx.settings)
    rows = read_rows(path, ResponseRow, remedy=AGAIN) if path.is_file() else []
    found: dict[str, list[float]] = {}
    for row in rows:
        limit = _limit(row.sampling)
        if row.status == "ok" and row.model in critics and limit is not None:
            found.setdefault(row.prompt_sha256, []).append(row.tokens_out / limit)
    counts = {sha: (sum(shares) / len(shares), len(shares)) for sha, shares in found.items()}
    digests = prompt_digests()
    known = [counts.get(digests[name]) for name in PROMPTS]
    shares = tuple(k[0] if k else assumed for k, assumed in zip(known, EXPECTED_SHARE, strict=True))
    shown = ", ".join(f"{100 * share:.0f}%" for share in shares)
    if all(known):
        return shares, f"measured: {shown} of the limits over {sum(k[1] for k in known if k):,} answers"
    if any(known):
        what = ", ".join("measured" if k else "assumed" for k in known)
        return shares, f"{shown} of the limits ({what})"
    return shares, f"assumed: {shown} of the limits; not measured"


def _limit(sampling: str) -> int | None:
    """``max_tokens`` of a stored request; none where it says none."""
    try:
        found = json.loads(sampling)["max_tokens"]
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, int) and found > 0 else None


def seconds_per_request(ctx: RunContext) -> dict[str, tuple[float, int]]:
    """Critic to the seconds a request of it took on this run, and how many there were."""
    found = {}
    for critic, iterations in read_latency(ctx.paths.raw / LATENCY).items():
        own = [o for o in iterations.values() if isinstance(o, dict)] if isinstance(iterations, dict) else []
        asked = sum(o.get("asked") or 0 for o in own)
        if asked:
            found[critic] = (sum(o.get("asked_s") or 0.0 for o in own) / asked, asked)
    return found


def question_cost(
    settings: Settings,
    found: FeedbackData,
    texts: Sequence[str],
    queries: int,
    shares: Sequence[float] = EXPECTED_SHARE,
) -> CostEstimate:
    """Upper bound for ``queries`` queries: every turn of every iteration, nothing stored.

    Which questions are stored shows only once there is a ranking; tools shown stand for those found.

    Args:
        shares: generated tokens of each turn as a share of its limit.
    """
    feedback, answers = settings.feedback, "word " * 40
    requests: list[GenerationRequest] = []
    shown = [found.shown[i] for i in sorted(found.shown)]
    for n, text in enumerate(texts[:ESTIMATED_ON] if queries else ()):
        tools = [shown[(n * feedback.tools_shown + i) % len(shown)] for i in range(feedback.tools_shown)]
        first = comprehension_request(str(n), text, text, tools, feedback, 0)
        second = assessment_request(first, answers, feedback)
        requests += [first, second, refinement_request(second, answers, [], feedback)]
    digests = prompt_digests()
    share_of = {digests[name]: share for name, share in zip(PROMPTS, shares, strict=True)}

    def expected(request: GenerationRequest) -> float:
        return share_of[request.prompt_sha256] * request.sampling.max_tokens

    nothing_stored = settings.llm.model_copy(update={"store": Path("-"), "reference": None})
    cost = estimate_cost(requests, settings.model_copy(update={"llm": nothing_stored}), expected)
    wanted = 3 * feedback.iterations * queries
    return cost.scaled(wanted / max(1, len(requests)))
