"""The comparison of the rankers as the page shows it; files are read leniently, and may be missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FILES = ("comparison.json", "recall_curves.json", "slices.json")
"""Result files of the evaluation behind the section."""

SLICE_METRICS = ("MRR", "nDCG@10", "Recall@5", "Hit@5")


@dataclass(frozen=True)
class ComparisonFiles:
    """Contents of ``FILES``; empty where a file is missing."""

    comparison: Mapping[str, Any]
    curves: Mapping[str, Any]
    slices: Mapping[str, Any]


NOTHING = ComparisonFiles({}, {}, {})


def _rows(content: Mapping[str, Any], key: str = "rows") -> list[Mapping[str, Any]]:
    return [row for row in content.get(key) or [] if isinstance(row, Mapping)]


def _where(row: Mapping[str, Any]) -> tuple[str, str]:
    return str(row.get("set", "?")), str(row.get("split", "?"))


def comparison_section(files: ComparisonFiles) -> dict[str, Any] | None:
    """Splits with their contrasts, neighbours and slices; None where nothing was compared."""
    content = files.comparison
    splits = _rows(content, "splits")
    if not splits:
        return None
    reference = str(content.get("reference", "rated"))
    metrics = [str(m) for m in content.get("metrics") or []]
    shown = []
    for split in splits:
        where = _where(split)
        shown.append(
            {
                "set": where[0],
                "split": where[1],
                "queries": split.get("queries"),
                "tools": split.get("tools"),
                "rows": _ranked(content, where, reference, metrics),
                "level_pairs": [
                    n for n in _rows(content, "neighbours") if _where(n) == where and not n.get("separable")
                ],
                "neighbours": sum(_where(n) == where for n in _rows(content, "neighbours")),
                "slices": _slices(files.slices, where, reference),
            }
        )
    return {
        "reference": reference,
        "reference_label": content.get("reference_label", reference),
        "metrics": metrics,
        "splits": shown,
        "slice_metrics": SLICE_METRICS,
        "small": files.slices.get("small"),
        "notes": [str(n) for n in content.get("notes") or []],
        "slice_notes": [str(n) for n in files.slices.get("notes") or []],
        "level": content.get("level", 0.05),
    }


def _ranked(
    content: Mapping[str, Any], where: tuple[str, str], reference: str, metrics: Sequence[str]
) -> list[dict[str, Any]]:
    """Rankers of a split, best first, each with its mean and its distance from the reference."""
    first = metrics[0] if metrics else "MRR"
    contrasts = {(c.get("ranker"), c.get("metric")): c for c in _rows(content, "rows") if _where(c) == where}
    found = [
        {
            "ranker": m.get("ranker"),
            "label": m.get("label") or m.get("ranker"),
            "is_reference": m.get("ranker") == reference,
            "mean": m.get("mean"),
            "by_query": m.get("by_query"),
            "by_tool": m.get("by_tool"),
            "first": contrasts.get((m.get("ranker"), first)),
            "others": [contrasts.get((m.get("ranker"), name)) for name in metrics[1:]],
        }
        for m in _rows(content, "means")
        if _where(m) == where and m.get("metric") == first
    ]
    return sorted(found, key=lambda row: -float(row["mean"] or 0.0))


def _slices(content: Mapping[str, Any], where: tuple[str, str], reference: str) -> list[dict[str, Any]]:
    """Slices of a split by dimension: the reference, and the best of the other rankers by MRR."""
    headings = content.get("dimensions") or {}
    members: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in _rows(content):
        if _where(row) == where:
            members.setdefault((str(row.get("dimension")), str(row.get("slice"))), []).append(row)
    groups: dict[str, list[dict[str, Any]]] = {}
    for (dimension, name), rows in members.items():
        own = next((r for r in rows if r.get("ranker") == reference), None)
        others = [r for r in rows if r.get("ranker") != reference]
        best = max(others, key=lambda r: float(r.get("metrics", {}).get("MRR") or 0.0), default=None)
        groups.setdefault(dimension, []).append(
            {
                "name": name,
                "queries": rows[0].get("queries"),
                "tools": rows[0].get("tools"),
                "small": bool(rows[0].get("small")),
                "cells": [_cell(own, metric) for metric in SLICE_METRICS],
                "best": best and {"label": best.get("label"), "mrr": best.get("metrics", {}).get("MRR")},
            }
        )
    return [{"heading": headings.get(d, d), "rows": rows} for d, rows in groups.items() if len(rows) > 1]


def _cell(row: Mapping[str, Any] | None, metric: str) -> dict[str, Any]:
    """Value and interval of a metric, none where the row or the metric is missing."""
    found = row or {}
    return {
        "value": (found.get("metrics") or {}).get(metric),
        "interval": (found.get("intervals") or {}).get(metric),
    }
