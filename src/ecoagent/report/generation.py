"""What the report says of EcoAgent-Syn: lines, tools, and the round trip of its queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from ecoagent.audit import RunTables
from ecoagent.report.facts import by_hash, tool_names

RANK_BINS: tuple[tuple[int, int | None], ...] = (
    (1, 1), (2, 2), (3, 3), (4, 5), (6, 10), (11, 20), (21, 50), (51, None),
)  # fmt: skip
SHORT_SHOWN = 30
DISAGREEMENTS = 4


@dataclass(frozen=True)
class Cut:
    """When a query passes the round trip and the verifier.

    Attributes:
        max_rank: largest rank that passes.
        column: column of the verifier's score.
        at_least: smallest score that passes.
    """

    max_rank: int
    column: str
    at_least: float

    @property
    def verifier(self) -> str:
        """The verifier's part in words."""
        kind = "raw score" if self.column == "verifier_raw" else "probability"
        return f"{kind} of at least {self.at_least:g}"


def reject_steps(rejects: pl.DataFrame) -> list[tuple[str, str, int]]:
    """(step, reason, lines) of the rejected lines, the most frequent first."""
    counts = Counter(
        (stage.rpartition("/")[2], reason) for stage, reason in rejects.select("stage", "reason").iter_rows()
    )
    return [(s, r, n) for (s, r), n in sorted(counts.items(), key=lambda kv: (-kv[1], kv[0]))]


def queries_per_tool(tables: RunTables, coverage: Sequence[Mapping[str, Any]]) -> list[int]:
    """Accepted queries of each tool that was asked for; where that is not known, of each that has any."""
    if coverage:
        return [int(c.get("kept", 0)) for c in coverage]
    golds = tables["syn_qrels"].filter(pl.col("origin") == "generated")
    return sorted(Counter(golds["tool_id"].to_list()).values())


def short_tools(tables: RunTables, coverage: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Tools that stayed under the number asked for, the shortest first."""
    names = tool_names(tables["tools"])
    short = sorted((c for c in coverage if c.get("short")), key=lambda c: (c.get("kept", 0), c["tool_id"]))
    return [
        {"tool": names.get(c["tool_id"], c["tool_id"])}
        | {key: c.get(key) for key in ("kept", "asked", "accepted", "attempts", "failed_requests")}
        for c in short
    ]


def origin_rows(queries: pl.DataFrame) -> list[tuple[str, int, int]]:
    """(origin, queries, tools) of the accepted queries."""
    found = queries.group_by("origin").agg(
        pl.len().alias("queries"), pl.col("source_tool_id").n_unique().alias("tools")
    )
    return [(str(o), int(q), int(t)) for o, q, t in sorted(found.iter_rows())]


def rank_counts(queries: pl.DataFrame) -> list[tuple[str, int]]:
    """Queries by the rank of their tool, in the bins of ``RANK_BINS``."""
    ranks = queries["round_trip_rank"].drop_nulls().to_list()
    if not ranks:
        return []
    return [
        (_bin_name(low, high), sum(low <= r and (high is None or r <= high) for r in ranks))
        for low, high in RANK_BINS
    ]


def _bin_name(low: int, high: int | None) -> str:
    if high is None:
        return f"{low}+"
    return str(low) if low == high else f"{low}–{high}"


def agreement(queries: pl.DataFrame, cut: Cut) -> dict[str, Any] | None:
    """Retrieval against the verifier: the four counts, the share that agrees and Cohen's kappa."""
    both = queries.select("round_trip_rank", cut.column).drop_nulls()
    if both.is_empty():
        return None
    pairs = Counter((r <= cut.max_rank, v >= cut.at_least) for r, v in both.iter_rows())
    n = both.height
    yes_yes, yes_no = pairs[True, True], pairs[True, False]
    no_yes, no_no = pairs[False, True], pairs[False, False]
    agree = (yes_yes + no_no) / n
    back, liked = (yes_yes + yes_no) / n, (yes_yes + no_yes) / n
    chance = back * liked + (1 - back) * (1 - liked)
    return {
        "queries": n,
        "found": {"yes": yes_yes, "no": yes_no},
        "lost": {"yes": no_yes, "no": no_no},
        "share": agree,
        "kappa": (agree - chance) / (1 - chance) if chance < 1 else None,
    }


def disagreements(tables: RunTables, cut: Cut, count: int = DISAGREEMENTS) -> list[dict[str, Any]]:
    """Queries that search loses and the verifier accepts, and the reverse, drawn by hash."""
    queries = tables["syn_queries"]
    names = tool_names(tables["tools"])
    back, liked = pl.col("round_trip_rank") <= cut.max_rank, pl.col(cut.column) >= cut.at_least
    rows = []
    for found in (queries.filter(back & ~liked), queries.filter(~back & liked)):
        for row in by_hash(found, "query_id").head(count).iter_rows(named=True):
            tool = row["source_tool_id"]
            rows.append(
                {
                    "query": row["text"],
                    "tool": names.get(tool, tool),
                    "rank": row["round_trip_rank"],
                    "score": row[cut.column],
                }
            )
    return rows


def round_trip_section(
    tables: RunTables, result: Mapping[str, Any] | None, cut: Cut, *, shipped: bool = False
) -> dict[str, Any]:
    """Ranks, scores and their agreement, and the ablation: the run's own, else the shipped one."""
    queries = tables["syn_queries"]
    ranks = queries["round_trip_rank"].drop_nulls().to_list()
    scores = queries[cut.column].drop_nulls().to_list()
    return {
        "cut": cut,
        "ranked": len(ranks),
        "first": sum(r == 1 for r in ranks),
        "within": sum(r <= cut.max_rank for r in ranks),
        "verified": len(scores),
        "accepted": sum(s >= cut.at_least for s in scores),
        "agreement": agreement(queries, cut),
        "disagreements": disagreements(tables, cut),
        "result": ablation(result),
        "shipped": shipped,
    }


def ablation(result: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """``round_trip.json`` as the page shows it: groups by split, arms with their pairs."""
    if not result or not result.get("rows"):
        return None
    pairs = {a.get("arm"): a.get("pairs") for a in result.get("arms", [])}
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in result["rows"]:
        arm = str(row.get("arm", "?"))
        groups.setdefault((str(row.get("set", "?")), str(row.get("split", "?"))), []).append(
            {
                "arm": arm,
                "label": ARMS.get(arm, arm),
                "pairs": pairs.get(arm),
                "mrr": row.get("MRR"),
                "interval": row.get("interval"),
                "against_all": row.get("against_all"),
                "against_random": row.get("against_random"),
                "queries": row.get("queries"),
                "tools": row.get("tools"),
            }
        )
    return {
        "groups": [{"set": s, "split": p, "rows": rows} for (s, p), rows in groups.items()],
        "seeds": len(result.get("seeds", [])) or 1,
        "passed": result.get("passed", {}),
        "notes": [str(n) for n in result.get("notes", [])],
    }


ARMS = {
    "untrained": "Not trained",
    "all": "All pairs",
    "round_trip": "Found by search",
    "random_round_trip": "as many at random (found)",
    "verifier": "Accepted by the verifier",
    "random_verifier": "as many at random (accepted)",
    "both": "Both",
    "random_both": "as many at random (both)",
}
"""Arms of the ablation in words."""
