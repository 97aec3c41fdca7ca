"""What of a run is published: the licence policy applied to its tables, every omission with a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import polars as pl

from ecoagent.audit import RunTables, mask, scan
from ecoagent.publish.licences import Policy, decide, refusal
from ecoagent.publish.records import PublishedTool, published, withheld
from ecoagent.runs import to_arrow
from ecoagent.schema import RejectRow

REJECTED_SPLIT = "rejected"
"""Split of the verdicts on queries of which no tool was verified."""

_MASKED = ("name", "display_name", "description", "tool_text", "input_schema")


@dataclass(frozen=True)
class Selection:
    """The rows of each config and what was left out."""

    tools: pl.DataFrame
    syn: pl.DataFrame
    real: pl.DataFrame
    syn_qrels: pl.DataFrame
    real_qrels: pl.DataFrame
    syn_pairs: pl.DataFrame
    verdicts: pl.DataFrame
    left_out: tuple[RejectRow, ...]
    withheld: int
    masked: int

    def reasons(self) -> dict[str, int]:
        """How many rows were left out, by ``table: reason``."""
        counts = Counter(f"{r.stage.removeprefix('publish.')}: {r.reason}" for r in self.left_out)
        return dict(sorted(counts.items()))


def _tools(tables: RunTables, policy: Policy) -> tuple[list[dict[str, Any]], list[RejectRow], int, int]:
    rows, left, hidden, masked = [], [], 0, 0
    for tool in tables["tools"].sort("id").iter_rows(named=True):
        decision = decide(tool["licence"], policy)
        if decision == "drop":
            left.append(_left("tools", tool["id"], refusal(tool["licence"]), tool["licence"] or "none given"))
        elif decision == "withhold":
            hidden += 1
            rows.append(withheld(tool))
        else:
            row = published(tool)
            for column in _MASKED:
                if row[column]:
                    row[column], found = mask(row[column])
                    masked += found
            rows.append(row)
    return rows, left, hidden, masked


def _left(table: str, key: str, reason: str, detail: str) -> RejectRow:
    return RejectRow(id=key, stage=f"publish.{table}", reason=reason, detail=detail)


def _queries(
    name: str, queries: pl.DataFrame, answerable: set[str], policy: Policy
) -> tuple[pl.DataFrame, list[RejectRow]]:
    left = []
    for row in queries.iter_rows(named=True):
        key = row["query_id"]
        if decide(row["licence"], policy) != "publish":
            left.append(_left(name, key, refusal(row["licence"]), row["licence"]))
        elif key not in answerable:
            left.append(
                _left(name, key, "no_gold_left", "every gold tool was left out by the licence policy")
            )
        elif findings := scan(row["text"]):
            left.append(_left(name, key, findings[0].kind, findings[0].reason))
    gone = [r.id for r in left]
    return queries.filter(~pl.col("query_id").is_in(gone)).sort("query_id"), left


def _kept(frame: pl.DataFrame, tools: Iterable[str], queries: pl.DataFrame) -> pl.DataFrame:
    """Rows of published tools and queries, with the query's split as ``split``."""
    splits = queries.select("query_id", _split="split")
    joined = frame.filter(pl.col("tool_id").is_in(list(tools))).join(splits, on="query_id", how="inner")
    return joined.drop("split", strict=False).rename({"_split": "split"}).sort("query_id", "tool_id")


def select(tables: RunTables, policy: Policy) -> Selection:
    """Apply a licence policy to the tables of a run.

    ``publish`` drops tools that are not openly licensed, and queries left without a gold tool;
    ``withhold`` keeps their rows without upstream's text; ``all`` keeps everything. Queries that
    hold what looks like a key or a personal address are left out, such places in tools masked.
    """
    rows, left, hidden, masked = _tools(tables, policy)
    kept = {r["id"] for r in rows}
    frames: dict[str, pl.DataFrame] = {}
    for prefix in ("syn", "real"):
        qrels = tables[f"{prefix}_qrels"]
        answerable = set(qrels.filter(pl.col("tool_id").is_in(list(kept)))["query_id"].to_list())
        queries, gone = _queries(prefix, tables[f"{prefix}_queries"], answerable, policy)
        left += gone
        frames[prefix] = queries
        frames[f"{prefix}_qrels"] = _kept(qrels, kept, queries)
    judged = pl.concat(
        [
            frames["real"].select("query_id", "split"),
            tables["real_rejects"].select(query_id="id", split=pl.lit(REJECTED_SPLIT)).unique(),
        ]
    ).unique("query_id", keep="first", maintain_order=True)
    frame = pl.from_arrow(to_arrow(rows, PublishedTool))
    if not isinstance(frame, pl.DataFrame):
        raise TypeError("the tools did not become a table")
    return Selection(
        tools=frame,
        syn=frames["syn"],
        real=frames["real"],
        syn_qrels=frames["syn_qrels"],
        real_qrels=frames["real_qrels"],
        syn_pairs=_kept(tables["syn_pairs"], kept, frames["syn"]),
        verdicts=_kept(tables["verdicts"], kept, judged),
        left_out=tuple(sorted(left, key=lambda r: (r.stage, r.reason, r.id))),
        withheld=hidden,
        masked=masked,
    )
