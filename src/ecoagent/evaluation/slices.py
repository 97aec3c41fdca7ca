"""Metrics by slices of a split's queries: where the golds come from, what is asked, how, and of what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ecoagent.evaluation.clustered import interval_columns
from ecoagent.evaluation.comparison import Ends, SplitValues
from ecoagent.evaluation.datasets import SETS
from ecoagent.runs import read_table

SLICED: tuple[str, ...] = ("MRR", "nDCG@10", "Recall@5", "Hit@5")
"""Metrics of a slice; recall under both definitions."""

SMALL = 20
"""A slice of fewer queries is marked."""

LENGTHS: tuple[tuple[str, int], ...] = (("1–12 words", 12), ("13–20 words", 20))
"""Bins of query length with their last number of words; fixed, so that sets can be compared."""
LONGEST = "21 words and more"

DIMENSIONS: Mapping[str, str] = {
    "source": "Source of the gold tools",
    "intent": "Intent of the query",
    "query_type": "Type of the request",
    "length": "Length of the query",
    "auth": "Gold tools need authentication",
    "golds": "Number of gold tools",
}
"""Ways to slice, with their headings. A query is in exactly one slice of each that says anything of it."""

SEVERAL = "several"
"""Where the golds of a query differ."""


@dataclass(frozen=True)
class Slice:
    """Queries that have something in common."""

    dimension: str
    name: str
    query_ids: tuple[str, ...]


@dataclass(frozen=True)
class SliceRow:
    """One ranker on one slice."""

    set: str
    split: str
    dimension: str
    slice: str
    queries: int
    tools: int
    """Clusters of the queries, see ``tool_clusters``."""
    small: bool
    ranker: str
    metrics: Mapping[str, float]
    intervals: Mapping[str, Ends | None]
    """95%, by tool; none where all queries are of one tool."""


def words_bin(text: str) -> str:
    """Bin of a query's length, words set apart by white space."""
    words = len(text.split())
    return next((name for name, last in LENGTHS if words <= last), LONGEST)


def load_facts(core: Path) -> dict[str, dict[str, str]]:
    """Query to its slice in each dimension, from the tables of a run or of a data set.

    A column that a data set lacks leaves its dimension out. Golds are those that were judged: copies of
    them in other catalogs neither add a source nor count as further tools.

    Raises:
        UserError: a table is missing, damaged, or lacks a column that every data set has.
    """
    tools = read_table(core / "tools.parquet", ("id", "duplicate_group"))
    own = {name: _column(tools, "id", name) for name in ("source", "auth_required", "duplicate_group")}
    found: dict[str, dict[str, str]] = {}
    for set_name in SETS:
        path = core / f"{set_name}_queries.parquet"
        if not path.is_file():
            continue
        table = read_table(path, ("query_id", "text"))
        qrels = read_table(core / f"{set_name}_qrels.parquet", ("query_id", "tool_id", "grade"))
        golds = judged_golds(qrels)
        asked = {name: _column(table, "query_id", name) for name in ("intent", "query_type")}
        for query, text in table.select("query_id", "text").iter_rows():
            ids = golds.get(query, [])
            groups = {own["duplicate_group"].get(tool, tool) for tool in ids}
            facts = {
                "source": _common(own["source"].get(tool) for tool in ids),
                **{name: values.get(query) for name, values in asked.items()},
                "length": words_bin(text),
                "auth": _common(own["auth_required"].get(tool) for tool in ids),
                "golds": None if not groups else str(len(groups)) if len(groups) < 3 else "3 or more",
            }
            found[query] = {name: value for name, value in facts.items() if value is not None}
    return found


def judged_golds(qrels: pl.DataFrame) -> dict[str, list[str]]:
    """Query to its golds, those left out that are gold only as copies of another."""
    rows = qrels.filter(pl.col("grade") >= 1)
    if "origin" in rows.columns:
        rows = rows.filter(pl.col("origin").ne_missing("duplicate_group"))
    found: dict[str, list[str]] = {}
    for query, tool in rows.select("query_id", "tool_id").sort("query_id", "tool_id").iter_rows():
        found.setdefault(query, []).append(tool)
    return found


def _column(table: pl.DataFrame, key: str, name: str) -> dict[str, str]:
    """Known values of a column by key; none where the table has no such column."""
    if name not in table.columns:
        return {}
    return {k: str(v) for k, v in table.select(key, name).iter_rows() if v is not None}


def _common(values: Iterable[str | None]) -> str | None:
    known = {value for value in values if value is not None}
    return None if not known else next(iter(known)) if len(known) == 1 else SEVERAL


def make_slices(query_ids: Sequence[str], facts: Mapping[str, Mapping[str, str]]) -> list[Slice]:
    """Slices of some queries, by dimension; names in the order of length, else by size.

    Args:
        query_ids: queries of a split.
        facts: query to slice name by dimension; a query may lack any.
    """
    found = []
    for dimension in DIMENSIONS:
        members: dict[str, list[str]] = {}
        for query in query_ids:
            name = facts.get(query, {}).get(dimension)
            if name is not None:
                members.setdefault(name, []).append(query)
        for name in sorted(members, key=_order(dimension, {n: len(q) for n, q in members.items()})):
            found.append(Slice(dimension, name, tuple(members[name])))
    return found


def _order(dimension: str, sizes: Mapping[str, int]) -> Callable[[str], Any]:
    if dimension == "length":
        places = [name for name, _ in LENGTHS] + [LONGEST]
        return places.index
    if dimension == "golds":
        return lambda name: name
    return lambda name: (name == SEVERAL, -sizes[name], name)


def slice_rows(
    found: SplitValues,
    facts: Mapping[str, Mapping[str, str]],
    *,
    metrics: Sequence[str] = SLICED,
    seed: int = 0,
) -> list[SliceRow]:
    """A row for each slice of a split and ranker; all rankers of a slice share the resamples."""
    place = {query: n for n, query in enumerate(found.query_ids)}
    values = found.columns(metrics)
    rows = []
    for part in make_slices(found.query_ids, facts):
        index = [place[query] for query in part.query_ids]
        names = [found.clusters[n] for n in index]
        tools = len(set(names))
        own = values[index]
        means = own.mean(axis=0)
        low, high = interval_columns(own.reshape(len(own), -1), names, seed=seed)
        low, high = low.reshape(means.shape), high.reshape(means.shape)
        for r, ranker in enumerate(found.rankers):
            rows.append(
                SliceRow(
                    found.split.set_name,
                    found.split.split,
                    part.dimension,
                    part.name,
                    len(index),
                    tools,
                    len(index) < SMALL,
                    ranker,
                    {name: float(means[r, m]) for m, name in enumerate(metrics)},
                    {
                        name: (float(low[r, m]), float(high[r, m])) if tools > 1 else None
                        for m, name in enumerate(metrics)
                    },
                )
            )
    return rows
