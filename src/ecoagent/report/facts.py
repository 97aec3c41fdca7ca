"""What the report says of a run, computed from its tables."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ecoagent.audit import RunTables
from ecoagent.labeling.requests import load_requests
from ecoagent.publish.card import SOURCE_NAMES
from ecoagent.publish.licences import is_open, spdx
from ecoagent.runs import sha256_text
from ecoagent.schema import SOURCES, query_id
from ecoagent.settings import UserError

SAMPLE_QUERIES = 12
SAMPLE_REJECTS = 12
SAMPLE_VERDICTS = 10


@dataclass(frozen=True)
class SourceRow:
    """A source: what was found, kept and why not."""

    name: str
    candidates: int
    kept: int
    reasons: tuple[tuple[str, int], ...]
    reliable: int
    median: float | None
    licences: str


@dataclass(frozen=True)
class QuerySample:
    """A query with the tools that answer it."""

    query: str
    split: str
    kind: str
    tools: tuple[str, ...]


@dataclass(frozen=True)
class VerdictSample:
    """A judged pair."""

    query: str
    tool: str
    cosine: float
    raw: float | None
    probability: float | None
    kept: bool
    reason: str


def reasons(values: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Counts by value, the most frequent first."""
    return tuple(sorted(Counter(values).items(), key=lambda kv: (-kv[1], kv[0])))


def source_rows(tables: RunTables) -> list[SourceRow]:
    """The catalog by source; candidates = kept + rejected."""
    rows = []
    for source in SOURCES:
        kept = tables["tools"].filter(pl.col("source") == source)
        lost = tables["tool_rejects"].filter(pl.col("source") == source)
        if kept.height or lost.height:
            scores = kept["r_static"].to_list()
            rows.append(
                SourceRow(
                    SOURCE_NAMES[source],
                    kept.height + lost.height,
                    kept.height,
                    reasons(lost["reason"].to_list()),
                    int(kept["reliable"].sum()),
                    statistics.median(scores) if scores else None,
                    ", ".join(sorted({spdx(t) or "unknown" for t in kept["licence"].to_list()})),
                )
            )
    return rows


def scores_by_source(tools: pl.DataFrame) -> dict[str, list[float]]:
    """r_static values of each source that has tools."""
    found = {SOURCE_NAMES[s]: tools.filter(pl.col("source") == s)["r_static"].to_list() for s in SOURCES}
    return {name: values for name, values in found.items() if values}


def by_hash(frame: pl.DataFrame, key: str) -> pl.DataFrame:
    """Rows in an order that is random to the content but the same every time."""
    order = [sha256_text(f"sample:{value}") for value in frame[key].to_list()]
    return frame.with_columns(_order=pl.Series(order, dtype=pl.String)).sort("_order").drop("_order")


def tool_names(tools: pl.DataFrame) -> dict[str, str]:
    """How a tool is shown: with its service or package where its name alone would mean nothing."""
    names = {}
    for row in tools.select("id", "display_name", "name", "group_name", "source").iter_rows(named=True):
        shown, group = row["display_name"] or row["name"], row["group_name"]
        if group and group.lower() not in shown.lower():
            shown = f"{group}: {shown}"
        names[row["id"]] = f"{shown} ({SOURCE_NAMES.get(row['source'], row['source'])})"
    return names


def query_samples(
    tables: RunTables, prefix: str, kind: str, count: int = SAMPLE_QUERIES
) -> list[QuerySample]:
    """Queries drawn by hash, spread over the values of the column ``kind``."""
    queries = by_hash(tables[f"{prefix}_queries"], "query_id").with_columns(
        _turn=pl.int_range(pl.len()).over(kind)
    )
    names = tool_names(tables["tools"])
    golds: dict[str, list[str]] = {}
    for query, tool in tables[f"{prefix}_qrels"].select("query_id", "tool_id").iter_rows():
        golds.setdefault(query, []).append(names.get(tool, tool))
    return [
        QuerySample(
            row["text"], row["split"], row[kind] or "-", tuple(sorted(golds.get(row["query_id"], [])))
        )
        for row in queries.sort("_turn", maintain_order=True).head(count).iter_rows(named=True)
    ]


def reject_samples(rejects: pl.DataFrame, count: int = SAMPLE_REJECTS) -> list[dict[str, str]]:
    """Rejected items drawn by hash, spread over the reasons."""
    spread = by_hash(rejects, "id").with_columns(_turn=pl.int_range(pl.len()).over("reason"))
    return (
        spread.sort("_turn", maintain_order=True)
        .head(count)
        .select("reason", "stage", "detail", "id")
        .to_dicts()
    )


def verdict_samples(
    tables: RunTables, texts: dict[str, str], count: int = SAMPLE_VERDICTS
) -> list[VerdictSample]:
    """Judged pairs drawn by hash, kept and not kept in turn; only those the verifier saw, if any."""
    verdicts = tables["verdicts"]
    seen = verdicts.filter(pl.col("stage") == "verifier")
    chosen = by_hash(
        (seen if seen.height else verdicts).with_columns(_k=pl.col("query_id") + pl.col("tool_id")), "_k"
    )
    turns = chosen.with_columns(_turn=pl.int_range(pl.len()).over("kept")).sort("_turn", maintain_order=True)
    names = tool_names(tables["tools"])
    return [
        VerdictSample(
            texts.get(r["query_id"], r["query_id"]),
            names.get(r["tool_id"], r["tool_id"]),
            r["encoder_score"],
            r["verifier_raw"],
            r["verifier_probability"],
            r["kept"],
            r["reason"] or "",
        )
        for r in turns.head(count).iter_rows(named=True)
    ]


def real_texts(tables: RunTables, requests: Path | None) -> dict[str, str]:
    """Text of each Real query; those of queries that were not accepted are read from the request file."""
    texts = dict(tables["real_queries"].select("query_id", "text").iter_rows())
    if str(requests).startswith("hub:"):
        return texts  # A page is made without asking the network.
    try:
        asked = load_requests(requests).requests
    except UserError:
        # The file may have gone since the queries were labelled; ids are shown instead.
        return texts
    return {query_id("real", r.text): r.text for r in asked} | texts


def cross_table(frame: pl.DataFrame, row: str, column: str, order: Iterable[str]) -> dict[str, Any]:
    """Counts of one column against another, with sums: ``{"columns", "rows", "sums"}``."""
    counts = Counter(frame.select(pl.col(row).fill_null("-"), pl.col(column).fill_null("-")).iter_rows())
    columns = [c for c in order if any(k[1] == c for k in counts)]
    names = sorted({k[0] for k in counts})
    return {
        "columns": columns,
        "rows": [
            (n, [counts.get((n, c), 0) for c in columns], sum(counts.get((n, c), 0) for c in columns))
            for n in names
        ],
        "sums": [sum(counts.get((n, c), 0) for n in names) for c in columns],
        "all": frame.height,
    }


YIELD_WORDS = {
    "requests_read": "Requests read",
    "queries_taken": "Distinct queries, less the calibration fold",
    "queries_with_candidates": "Queries with a candidate",
    "candidate_pairs": "Candidate pairs",
    "queries_verified": "Queries the verifier saw",
    "pairs_verified": "Pairs the verifier judged",
    "pairs_unreadable": "Verdicts that could not be read",
    "pairs_failed": "Verdicts that failed",
    "pairs_kept": "Pairs kept",
    "queries_kept": "Queries accepted",
}
"""Steps of the labelling chain, as ``label_stats.json`` counts them."""

TROUBLES = frozenset({YIELD_WORDS["pairs_unreadable"], YIELD_WORDS["pairs_failed"]})
"""Counted beside the chain: no step leaves them."""


def funnel(tables: RunTables, stats: Mapping[str, Any]) -> list[tuple[str, int]]:
    """How many queries and pairs passed each step of labelling; from the tables where nothing was counted."""
    counted = stats.get("yield", {})
    if counted:
        return [(words, counted[key]) for key, words in YIELD_WORDS.items() if key in counted]
    verdicts = tables["verdicts"]
    return [
        ("Pairs the verifier judged", verdicts.filter(pl.col("stage") == "verifier").height),
        ("Pairs kept", int(verdicts["kept"].sum())),
        ("Queries accepted", tables["real_queries"].height),
    ]


def licence_rows(tools: pl.DataFrame) -> list[tuple[str, int, bool]]:
    """(licence, tools, openly licensed) of the run's tools."""
    counts = Counter(spdx(t) for t in tools["licence"].to_list())
    return [
        (name or "unknown", n, is_open(name))
        for name, n in sorted(counts.items(), key=lambda kv: (-kv[1], kv[0] or ""))
    ]
