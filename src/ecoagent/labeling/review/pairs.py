"""The pairs of a run that may be judged, from its tables."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from ecoagent.labeling.prepare import NOT_VERIFIED
from ecoagent.labeling.requests import load_requests
from ecoagent.labeling.review.sample import Band, ReviewItem, SetName, item_id
from ecoagent.labeling.stats import HARD_MARGIN
from ecoagent.runs import NUMBER, Kind, RunContext, read_object, read_table, with_fields
from ecoagent.schema import fold_space, query_id
from ecoagent.settings import MissingInputError, UserError

TABLES = {
    "real": ("verdicts.parquet", "real_queries.parquet"),
    "syn": ("syn_qrels.parquet", "syn_queries.parquet"),
}
LABELS: dict[str, tuple[str, ...]] = {
    "real": (
        "query_id", "tool_id", "stage", "kept", "reason", "encoder_score", "verifier_raw",
        "verifier_probability",
    ),
    "syn": ("query_id", "tool_id", "origin", "encoder_score"),
}  # fmt: skip
"""Columns wanted of each set's labels; older runs lack the others."""
QUERIES = {"real": ("query_id", "text", "query_type"), "syn": ("query_id", "text", "intent")}
TOOLS = (
    "id", "name", "display_name", "group_name", "source", "description", "parameter_names", "operations",
)  # fmt: skip
COMMANDS = {"real": "ecoagent label", "syn": "ecoagent synthesize"}


@dataclass(frozen=True)
class ReviewPairs:
    """What a sample is drawn from.

    Attributes:
        pairs: sorted by set, query and tool.
        labels: digest of each set's labels.
        left_out: pairs no judgement stands for, by set and reason.
    """

    pairs: list[ReviewItem]
    labels: dict[str, str]
    decides_by: str
    threshold: float
    margin: float
    left_out: dict[str, dict[str, int]] = field(default_factory=dict)


def labels_digest(core: Path, set_name: str) -> str | None:
    """SHA-256 over query, tool and kept of a set's labels; none without the table."""
    path = core / TABLES[set_name][0]
    if not path.is_file():
        return None
    table = read_table(path, LABELS[set_name])
    return digest_of_labels(table, set_name)


def digest_of_labels(table: pl.DataFrame, set_name: str) -> str:
    """SHA-256 over query, tool and kept: of verified verdicts (real), of generated judgements (syn)."""
    if set_name == "real":
        rows = table.filter(pl.col("stage") == "verifier").select("query_id", "tool_id", "kept")
    else:
        rows = table.filter(pl.col("origin") == "generated").select("query_id", "tool_id", kept=pl.lit(True))
    total = hashlib.sha256()
    for query, tool, kept in rows.sort("query_id", "tool_id").iter_rows():
        total.update(f"{query}\t{tool}\t{int(kept)}\n".encode())
    return total.hexdigest()


def band_of(kept: bool, score: float | None, threshold: float, margin: float, *, judged: bool) -> Band:
    """Band of a pair.

    Args:
        kept: what the labeller decided.
        score: verifier's score; none where it was not asked.
        judged: whether the verifier's score decided (real); else it is only an opinion (syn).
    """
    near = score is not None and abs(score - threshold) <= margin + 1e-9
    if near:
        return "near_kept" if kept else "near_rejected"
    if kept and not judged and score is not None and score < threshold:
        return "doubted"
    return "kept" if kept else "rejected"


def read_pairs(ctx: RunContext, sets: Sequence[SetName]) -> ReviewPairs:
    """Pairs the verifier judged (real) and query x source tool pairs (syn) of a run.

    The cut-off is the one the run was labelled by (``core/label_stats.json``), else the settings'.
    Requests that came to nothing are in no table of the run: their texts are read from the request set.

    Raises:
        MissingInputError: a table is not there.
        UserError: a table is damaged.
    """
    core, labeling = ctx.paths.core, ctx.settings.labeling
    decides_by, threshold = str(labeling.verifier_score), float(labeling.verifier_threshold)
    stats = core / "label_stats.json"
    if stats.is_file():
        verifier = _verifier(stats)
        decides_by = verifier.get("decides_by", decides_by)
        threshold = float(verifier.get("threshold", threshold))
    for name in sets:
        for file in TABLES[name]:
            if not (core / file).is_file():
                raise MissingInputError(
                    f"{core / file} is not there", remedy=f"run `{COMMANDS[name]}` and what it needs first"
                )
    tools = _tools(core)
    found = ReviewPairs([], {}, decides_by, threshold, HARD_MARGIN)
    for name in sets:
        read = _real if name == "real" else _syn
        table = read_table(core / TABLES[name][0], LABELS[name])
        found.labels[name] = digest_of_labels(table, name)
        pairs, left_out = read(ctx, table, tools, decides_by, threshold)
        found.pairs.extend(pairs)
        found.left_out[name] = dict(sorted(left_out.items()))
    found.pairs.sort(key=lambda p: (p.set, p.query_id, p.tool_id))
    return found


def _verifier(path: Path) -> dict[str, Any]:
    """What ``label_stats.json`` says of the verifier and its cut-off; empty where it says nothing.

    Raises:
        UserError: the file is damaged.
    """
    remedy = "run `ecoagent label --force` on the run"
    kinds: dict[str, Kind] = {"decides_by": str, "threshold": NUMBER}
    found = read_object(path, remedy=remedy).get("verifier") or {}
    told = {k: kind for k, kind in kinds.items() if isinstance(found, dict) and k in found}
    return with_fields(path, found, told, within="verifier", remedy=remedy)


def _tools(core: Path) -> dict[str, dict[str, Any]]:
    path = core / "tools.parquet"
    if not path.is_file():
        raise MissingInputError(f"{path} is not there", remedy="run `ecoagent score` and what it needs first")
    shown = {}
    for row in read_table(path, TOOLS).iter_rows(named=True):
        names = dict.fromkeys(fold_space(o["name"]) for o in row["operations"] or () if o["name"].strip())
        shown[row["id"]] = {
            "tool_name": row["display_name"] or row["name"],
            "tool_group": row["group_name"],
            "tool_source": row["source"],
            "tool_description": row["description"],
            "tool_parameters": list(row["parameter_names"] or ()),
            "tool_operations": list(names),
        }
    return shown


def _real(
    ctx: RunContext,
    verdicts: pl.DataFrame,
    tools: Mapping[str, dict[str, Any]],
    decides_by: str,
    threshold: float,
) -> tuple[list[ReviewItem], Counter[str]]:
    column = "verifier_probability" if decides_by == "calibrated" else "verifier_raw"
    left_out: Counter[str] = Counter()
    judged = []
    for row in verdicts.iter_rows(named=True):
        if row["stage"] != "verifier" or row["verifier_raw"] is None:
            left_out[row["reason"] or NOT_VERIFIED] += 1
        else:
            judged.append(row)
    queries = {
        r["query_id"]: (r["text"], r["query_type"])
        for r in read_table(ctx.paths.core / "real_queries.parquet", QUERIES["real"]).iter_rows(named=True)
    }
    if any(row["query_id"] not in queries for row in judged):
        for request in load_requests(ctx.settings.labeling.queries).requests:
            queries.setdefault(query_id("real", request.text), (request.text, request.query_type))
    pairs = []
    for row in judged:
        if row["query_id"] not in queries or row["tool_id"] not in tools:
            left_out["text_not_known"] += 1
            continue
        text, kind = queries[row["query_id"]]
        pairs.append(
            ReviewItem(
                id=item_id("real", row["query_id"], row["tool_id"]),
                set="real",
                query_id=row["query_id"],
                tool_id=row["tool_id"],
                query=text,
                kept=row["kept"],
                score=row[column],
                cosine=row["encoder_score"],
                band=band_of(row["kept"], row[column], threshold, HARD_MARGIN, judged=True),
                kind=kind or "unknown",
                retriever=row.get("retriever") or "dense",
                **tools[row["tool_id"]],
            )
        )
    return pairs, left_out


def _syn(
    ctx: RunContext,
    qrels: pl.DataFrame,
    tools: Mapping[str, dict[str, Any]],
    decides_by: str,
    threshold: float,
) -> tuple[list[ReviewItem], Counter[str]]:
    column = "verifier_score" if decides_by == "calibrated" else "verifier_raw"
    queries = {
        r["query_id"]: r
        for r in read_table(ctx.paths.core / "syn_queries.parquet", QUERIES["syn"]).iter_rows(named=True)
    }
    left_out: Counter[str] = Counter()
    pairs = []
    for row in qrels.iter_rows(named=True):
        query = queries.get(row["query_id"])
        if row["origin"] != "generated":
            left_out[row["origin"]] += 1
        elif query is None or row["tool_id"] not in tools:
            left_out["text_not_known"] += 1
        else:
            score = query.get(column)
            pairs.append(
                ReviewItem(
                    id=item_id("syn", row["query_id"], row["tool_id"]),
                    set="syn",
                    query_id=row["query_id"],
                    tool_id=row["tool_id"],
                    query=query["text"],
                    kept=True,
                    score=score,
                    cosine=row["encoder_score"],
                    band=band_of(True, score, threshold, HARD_MARGIN, judged=False),
                    kind=query["intent"] or "unknown",
                    retriever="generated",
                    **tools[row["tool_id"]],
                )
            )
    return pairs, left_out


def check_labels(ctx: RunContext, labels: Mapping[str, str]) -> None:
    """Check that a run still has the labels a sample was drawn from.

    Raises:
        UserError: a set was labelled anew.
    """
    for name, expected in sorted(labels.items()):
        if labels_digest(ctx.paths.core, name) != expected:
            raise UserError(
                f"run {ctx.settings.run_name!r} has other labels of {name} than the sample was drawn from",
                remedy="draw a new sample with `ecoagent review sample`, or name the run it was drawn from",
            )
