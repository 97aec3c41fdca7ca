"""What the report says of EcoAgent-Real: the chain, its calibration, pooling and golds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import polars as pl
from pydantic import ValidationError

from ecoagent.audit import RunTables
from ecoagent.labeling.calibrate import Calibration
from ecoagent.report.facts import tool_names

HARD_SHOWN = 12
RETRIEVERS = {"dense": "encoder alone", "bm25": "BM25 alone", "dense+bm25": "both"}
MAP_POINTS = 101


def pooling(verdicts: pl.DataFrame) -> dict[str, Any]:
    """Pairs by the retrievers that proposed them, and what each alone would have missed of those kept."""
    counts: Counter[tuple[str, str]] = Counter()
    columns = verdicts.select("retriever", "stage", "kept", "reason")
    for retriever, stage, kept, reason in columns.iter_rows():
        counts[retriever, "proposed"] += reason != "below_min_cosine"
        counts[retriever, "judged"] += stage == "verifier"
        counts[retriever, "kept"] += kept
    rows = [
        {"name": words, **{k: counts[key, k] for k in ("proposed", "judged", "kept")}}
        for key, words in RETRIEVERS.items()
        if counts[key, "proposed"]
    ]
    kept = sum(counts[key, "kept"] for key in RETRIEVERS)
    return {
        "rows": rows,
        "kept": kept,
        "missed_by_dense": counts["bm25", "kept"],
        "missed_by_bm25": counts["dense", "kept"],
        "pooled": bool(counts["bm25", "proposed"] or counts["dense+bm25", "proposed"]),
    }


def golds_per_query(qrels: pl.DataFrame) -> list[tuple[int, int]]:
    """(golds, queries that have so many)."""
    sizes = Counter(qrels["query_id"].to_list()).values()
    return sorted(Counter(sizes).items())


def gold_overlap(tables: RunTables) -> list[dict[str, Any]]:
    """For each two splits how many golds they have and share; duplicates count as one tool."""
    group = dict(tables["tools"].select("id", "duplicate_group").iter_rows())
    golds: dict[tuple[str, str], set[str]] = {}
    for name in ("syn", "real"):
        split = dict(tables[f"{name}_queries"].select("query_id", "split").iter_rows())
        for query, tool in tables[f"{name}_qrels"].select("query_id", "tool_id").iter_rows():
            if query in split:
                golds.setdefault((name, split[query]), set()).add(group.get(tool, tool))
    order = {s: n for n, s in enumerate(("train", "val", "test", "cold"))}
    keys = sorted(golds, key=lambda k: (k[0] == "real", order.get(k[1], 9)))
    wanted = [
        (a, b) for a, b in combinations(keys, 2) if a[0] == b[0] or (a == ("syn", "train") and b[0] == "real")
    ]
    return [
        {
            "first": " ".join(a),
            "second": " ".join(b),
            "golds": (len(golds[a]), len(golds[b])),
            "shared": len(golds[a] & golds[b]),
        }
        for a, b in wanted
    ]


def hard_cases(
    tables: RunTables, stats: Mapping[str, Any], texts: Mapping[str, str], count: int = HARD_SHOWN
) -> list[dict[str, Any]]:
    """Pairs nearest to the verifier's cut-off, with their texts."""
    names = tool_names(tables["tools"])
    verdicts = {
        (q, t): (cosine, kept)
        for q, t, cosine, kept in tables["verdicts"]
        .select("query_id", "tool_id", "encoder_score", "kept")
        .iter_rows()
    }
    rows = []
    for case in stats.get("hard_cases", [])[:count]:
        query, tool = case.get("query_id", "?"), case.get("tool_id", "?")
        cosine, kept = verdicts.get((query, tool), (None, None))
        rows.append(
            {
                "query": texts.get(query, query),
                "tool": names.get(tool, tool),
                "score": case.get("score"),
                "cosine": cosine,
                "kept": kept,
            }
        )
    return rows


def calibration_facts(stats: Mapping[str, Any]) -> dict[str, Any] | None:
    """The map from raw score to probability and how it fared; None where the run has none."""
    verifier = stats.get("verifier") or {}
    found = verifier.get("calibration")
    if not found or not found.get("curve"):
        return None
    curve = [
        {"probability": c["mean_probability"], "right": c["share_right"], "pairs": int(c["pairs"])}
        for c in found["curve"]
    ]
    pairs = sum(c["pairs"] for c in curve)
    try:
        fitted: Calibration | None = Calibration.model_validate(found)
    except ValidationError:
        # Of another release: the curve still says how it fared.
        fitted = None
    raws = [i / (MAP_POINTS - 1) for i in range(MAP_POINTS)]
    return {
        "curve": curve,
        "pairs": found.get("pairs", pairs),
        "positives": found.get("positives"),
        "queries": found.get("queries"),
        "method": found.get("method"),
        "formula": _formula(found),
        "log_loss": dict(sorted((found.get("log_loss") or {}).items())),
        "base_log_loss": _entropy(found.get("positives"), found.get("pairs")),
        "brier": found.get("brier"),
        "base_brier": _spread(found.get("positives"), found.get("pairs")),
        "auc": found.get("auc"),
        "auc_cosine": found.get("auc_cosine"),
        "auc_by_form": dict(sorted((found.get("auc_by_form") or {}).items())),
        "form": found.get("form"),
        # Expected calibration error: mean distance of bin and diagonal, weighted by pairs.
        "ece": sum(c["pairs"] * abs(c["probability"] - c["right"]) for c in curve) / pairs if pairs else None,
        "map": [(r, fitted.probability(r)) for r in raws] if fitted is not None else [],
        "threshold": verifier.get("threshold"),
        "decides_by": verifier.get("decides_by"),
    }


def _formula(found: Mapping[str, Any]) -> str:
    slope, intercept = found.get("slope"), found.get("intercept")
    if slope is None:
        return "a rising step function of the raw score"
    bias = f" {'+' if intercept >= 0 else '−'} {abs(intercept):.3f}" if intercept else ""
    return f"p = sigmoid({slope:.3f} · log-odds(raw){bias})"


def _entropy(positives: int | None, pairs: int | None) -> float | None:
    """Log loss of saying the share of right pairs each time."""
    if not positives or not pairs or positives >= pairs:
        return None
    p = positives / pairs
    return -(p * math.log(p) + (1 - p) * math.log(1 - p))


def _spread(positives: int | None, pairs: int | None) -> float | None:
    """Brier score of saying the share of right pairs each time."""
    return None if positives is None or not pairs else positives / pairs * (1 - positives / pairs)
