"""What is known before the verifier is asked: which requests count, their candidates, which are judged."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ecoagent.labeling.candidates import CandidatePair, Candidates, find_candidates
from ecoagent.labeling.requests import Request, RequestSet
from ecoagent.labeling.stats import Noted
from ecoagent.retrieval.dedup import deduplicate
from ecoagent.retrieval.encoders import Encoder
from ecoagent.runs import sha256_text
from ecoagent.schema import NormalizedTool, RejectRow, query_id, tokens

STAGE = "label"
MAX_JACCARD = 0.7
NOT_VERIFIED = "not_verified"
"""Reason of requests and pairs that the budget of verified queries left out."""


@dataclass(frozen=True)
class Prepared:
    """The chain up to the verifier.

    Attributes:
        queries: request of each query id that is neither held out nor a duplicate.
        candidates: pairs to judge, and those below the cosine.
        verified: ids to judge, sorted.
        waiting: ids with candidates beyond the budget, sorted.
        rejects: requests that ended before the verifier.
        requests_in: requests read.
    """

    queries: dict[str, Request]
    candidates: Candidates
    verified: tuple[str, ...]
    waiting: tuple[str, ...]
    rejects: tuple[RejectRow, ...]
    requests_in: int

    def pairs(self, ids: Sequence[str]) -> list[CandidatePair]:
        """Candidate pairs of some queries."""
        grouped = self.candidates.by_query
        return [pair for i in ids for pair in grouped.get(i, ())]


def seeded_order(ids: Sequence[str], seed: int, what: str) -> list[str]:
    """Ids by a seeded hash: a choice that one more id does not stir up."""
    return sorted(ids, key=lambda i: (sha256_text(f"{seed}:{what}:{i}"), i))


def unique_requests(requests: Sequence[Request]) -> tuple[dict[str, Request], list[RejectRow]]:
    """Requests by query id. Equal normalised texts become one with the union of their golds; then, greedily
    in id order, a text whose Jaccard similarity with a kept one is above 0.7 is dropped, witness named."""
    merged: dict[str, Request] = {}
    rejects = []
    for request in sorted(requests, key=lambda r: r.id):
        identifier = query_id("real", request.text)
        first = merged.get(identifier)
        if first is None:
            merged[identifier] = request
            continue
        # A text that was used to calibrate stays out, whichever copy came first.
        fold = "calibration" if "calibration" in (first.fold, request.fold) else "label"
        gold = sorted({*first.gold, *request.gold})
        merged[identifier] = first.model_copy(update={"gold": gold, "fold": fold})
        rejects.append(_reject(identifier, "equal_text", f"request {request.id} equals request {first.id}"))
    result = deduplicate({i: tokens(r.text) for i, r in merged.items()}, MAX_JACCARD)
    for dropped in result.dropped:
        rejects.append(
            _reject(
                dropped.id,
                "near_duplicate",
                f"request {merged[dropped.id].id}; Jaccard {dropped.similarity:.3f} with {dropped.witness}",
            )
        )
    return {i: merged[i] for i in result.kept}, rejects


def prepare(
    requests: RequestSet,
    tools: Sequence[NormalizedTool],
    load_encoder: Callable[[], Encoder],
    *,
    top_k: int,
    min_cosine: float,
    lexical_top_k: int = 0,
    max_verified: int | None,
    limit: int | None,
    hold_out_calibration: bool,
    seed: int,
    on_batch: Callable[[int], None] | None = None,
) -> Prepared:
    """Everything before the verifier.

    Args:
        load_encoder: called once, when there is something to encode.
        lexical_top_k: BM25's tools a query, judged too whatever their cosine.
        max_verified: queries judged at most; none = all that have candidates.
        limit: requests taken at most.
        hold_out_calibration: leave out the fold the verifier was calibrated on.
    """
    unique, rejects = unique_requests(requests.requests)
    eligible = []
    for identifier, request in unique.items():
        if hold_out_calibration and request.fold == "calibration":
            rejects.append(_reject(identifier, "calibration_fold", f"request {request.id}"))
        else:
            eligible.append(identifier)
    taken = set(seeded_order(eligible, seed, "limit")[:limit])
    rejects += [_reject(i, "limit", f"request {unique[i].id}") for i in eligible if i not in taken]
    queries = {i: unique[i] for i in sorted(taken)}
    catalog = sorted((t.id, t.tool_text) for t in tools)
    candidates = find_candidates(
        load_encoder(),
        {i: r.text for i, r in queries.items()},
        catalog,
        top_k=top_k,
        min_cosine=min_cosine,
        lexical_top_k=lexical_top_k,
        on_batch=on_batch,
    )
    grouped, best = candidates.by_query, candidates.best_below()
    for identifier, request in queries.items():
        if identifier not in grouped:
            why = _no_candidate(best.get(identifier), min_cosine, pooled=lexical_top_k > 0)
            rejects.append(_reject(identifier, "no_candidate", f"request {request.id}; {why}"))
    order = seeded_order(sorted(grouped), seed, "verify")
    budget = len(order) if max_verified is None else max_verified
    waiting = tuple(sorted(order[budget:]))
    beyond = f"beyond labeling.max_verified = {max_verified}"
    rejects += [_reject(i, NOT_VERIFIED, f"request {queries[i].id}; {beyond}") for i in waiting]
    return Prepared(
        queries, candidates, tuple(sorted(order[:budget])), waiting, tuple(rejects), len(requests.requests)
    )


def _no_candidate(nearest: CandidatePair | None, min_cosine: float, *, pooled: bool) -> str:
    """Why no retriever proposed a tool: the encoder's reason, and BM25's where it was asked."""
    if nearest is None:
        return "the catalog is empty"
    why = f"nearest {nearest.tool_id} at {nearest.cosine:.3f} < {min_cosine}"
    return f"{why}; BM25: no tool shares a word with it" if pooled else why


def _reject(identifier: str, reason: str, detail: str) -> RejectRow:
    return RejectRow(id=identifier, stage=STAGE, reason=reason, detail=detail)


def duplicate_members(tools: Sequence[NormalizedTool]) -> dict[str, tuple[str, ...]]:
    """All tools that are the same tool as each, itself included."""
    groups: dict[str, list[str]] = {}
    for tool in tools:
        groups.setdefault(tool.duplicate_group, []).append(tool.id)
    return {t.id: tuple(sorted(groups[t.duplicate_group])) for t in tools}


def noted_tools(queries: Mapping[str, Request], members: Mapping[str, tuple[str, ...]]) -> dict[str, Noted]:
    """Notes cut to the catalog, widened by duplicates."""
    return {
        i: Noted(frozenset(m for g in r.gold if g in members for m in members[g]), r.query_type)
        for i, r in queries.items()
    }


def shard_count(queries: int, per_shard: int) -> int:
    """Shards for so many queries."""
    return max(1, math.ceil(queries / per_shard))
