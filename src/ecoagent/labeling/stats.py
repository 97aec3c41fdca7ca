"""Yield of the labelling chain, and its agreement with the tools that the writers noted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ecoagent.schema import VerdictRow

DECIMALS = 4
HARD_MARGIN = 0.1
"""A pair whose deciding score is this near to the cut-off is a hard case."""


@dataclass(frozen=True)
class Noted:
    """What a request's writer noted, cut to the tools of this run's catalog.

    Attributes:
        gold: right tools that are in the catalog, their duplicates included.
        query_type: as noted for the whole catalog.
    """

    gold: frozenset[str]
    query_type: str


@dataclass
class Agreement:
    """Counts over judged pairs; every ratio is None where nothing was counted."""

    queries: int = 0
    kept: int = 0
    right: int = 0
    gold_candidates: int = 0
    gold: int = 0
    top_queries: int = 0
    hit_queries: int = 0
    empty_noted: int = 0
    empty_kept: int = 0

    def add(self, noted: Noted, candidates: Iterable[str], kept: Iterable[str]) -> None:
        """Count one query: its judged candidates and those kept."""
        found, chosen = set(candidates), set(kept)
        self.queries += 1
        self.kept += len(chosen)
        self.right += len(chosen & noted.gold)
        self.gold_candidates += len(found & noted.gold)
        self.gold += len(noted.gold)
        if noted.gold:
            self.top_queries += 1
            self.hit_queries += bool(chosen & noted.gold)
        else:
            self.empty_noted += 1
            self.empty_kept += not chosen

    def summary(self) -> dict[str, Any]:
        """Precision, recall among candidates and over all noted tools, F1, and queries left empty."""
        precision = _ratio(self.right, self.kept)
        recall = _ratio(self.right, self.gold_candidates)
        f1 = None
        if precision is not None and recall is not None:
            f1 = round(2 * precision * recall / (precision + recall), DECIMALS) if precision + recall else 0.0
        return {
            "queries": self.queries,
            "pairs_kept": self.kept,
            "pairs_right": self.right,
            "noted_among_candidates": self.gold_candidates,
            "noted_in_catalog": self.gold,
            "precision": precision,
            "recall_of_candidates": recall,
            "recall_of_noted": _ratio(self.right, self.gold),
            "f1": f1,
            "queries_with_a_noted_tool": self.top_queries,
            "of_these_with_a_right_pair": self.hit_queries,
            "queries_without_right_tool": self.empty_noted,
            "of_these_left_empty": self.empty_kept,
        }


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, DECIMALS) if whole else None


def agreement(
    noted: Mapping[str, Noted], judged: Mapping[str, list[VerdictRow]], empty: Iterable[str] = ()
) -> dict[str, Any]:
    """Agreement overall and by noted query type.

    Args:
        noted: notes of every query that was settled.
        judged: verdicts of the queries that were verified.
        empty: queries settled without a candidate: the encoder left them empty.
    """
    total, by_type = Agreement(), dict[str, Agreement]()
    for query in sorted([*judged, *empty]):
        if query not in noted:
            continue
        rows = [v for v in judged.get(query, []) if v.stage == "verifier"]
        for counter in (total, by_type.setdefault(noted[query].query_type, Agreement())):
            counter.add(noted[query], [v.tool_id for v in rows], [v.tool_id for v in rows if v.kept])
    return {"all": total.summary(), "by_query_type": {k: by_type[k].summary() for k in sorted(by_type)}}


def hard_cases(
    verdicts: Iterable[VerdictRow], threshold: float, *, calibrated: bool, most: int = 50
) -> list[dict[str, Any]]:
    """Pairs nearest to the cut-off, nearest first."""
    near = []
    for row in verdicts:
        score = row.verifier_probability if calibrated else row.verifier_raw
        if score is not None and abs(score - threshold) <= HARD_MARGIN:
            near.append((abs(score - threshold), row.query_id, row.tool_id, score, row.retriever))
    return [
        {"query_id": q, "tool_id": t, "score": s, "retriever": r} for _, q, t, s, r in sorted(near)[:most]
    ]


def pooling(judged: Iterable[VerdictRow]) -> dict[str, dict[str, int]]:
    """Pairs judged and kept by who proposed them: what either retriever alone would have missed."""
    counts: dict[str, dict[str, int]] = {}
    for row in judged:
        found = counts.setdefault(row.retriever, {"judged": 0, "kept": 0})
        found["judged"] += 1
        found["kept"] += row.kept
    return {k: counts[k] for k in sorted(counts)}


def in_words(stats: Mapping[str, Any]) -> list[str]:
    """Yield, and agreement where the set is noted, a line each."""
    y = stats["yield"]
    lines = [
        f"{y['requests_read']} requests, {y['queries_taken']} taken, "
        f"{y['queries_with_candidates']} with candidates ({y['candidate_pairs']} pairs), "
        f"{y['queries_verified']} verified ({y['pairs_verified']} pairs, "
        f"{y['pairs_unreadable']} unreadable, {y['pairs_failed']} failed), {y['pairs_kept']} pairs of "
        f"{y['queries_kept']} queries kept"
    ]
    if stats["agreement"] is not None:
        a = stats["agreement"]["all"]
        lines.append(
            f"agreement with the noted tools: precision {_shown(a['precision'])}, "
            f"recall of candidates {_shown(a['recall_of_candidates'])}, F1 {_shown(a['f1'])}; "
            f"{a['of_these_left_empty']} of "
            f"{a['queries_without_right_tool']} requests without a right tool left empty"
        )
    return lines


def _shown(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2f}"
