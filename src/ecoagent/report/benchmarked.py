"""The table of independent collections, from ``benchmarks.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BENCHMARKS = "benchmarks.json"
SHOWN = ("MRR", "nDCG@5", "nDCG@10", "Recall@1", "Recall@5", "Recall@10", "Hit@5")


@dataclass(frozen=True)
class BenchmarkSet:
    """One collection with the rows of its rankers.

    Attributes:
        facts: licence, origin, sizes and what was left out.
        rows: rows of the file, in its order.
        best: best value of each metric.
        own: metrics of the set's own evaluation, by name; none where it has none.
    """

    name: str
    facts: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    best: Mapping[str, float]
    own: Sequence[str]


@dataclass(frozen=True)
class BenchmarkSection:
    """Everything the section shows."""

    metrics: Sequence[str]
    sets: Sequence[BenchmarkSet]
    averages: Sequence[Mapping[str, Any]]
    own: Sequence[str]
    notes: Sequence[str]


def benchmark_section(content: Mapping[str, Any] | None) -> BenchmarkSection | None:
    """The section of a result file, read leniently; none where no collection was judged."""
    if content is None or not content.get("sets"):
        return None
    rows = [row for row in content.get("rows", []) if isinstance(row, Mapping)]
    metrics = [m for m in SHOWN if any(m in row.get("metrics", {}) for row in rows)]
    sets = []
    for facts in content["sets"]:
        own = [row for row in rows if row.get("set") == facts.get("set")]
        values = {m: [row["metrics"][m] for row in own if m in row.get("metrics", {})] for m in metrics}
        best = {m: max(found) for m, found in values.items() if found}
        names = list(dict.fromkeys(name for row in own for name in row.get("own_metrics", {})))
        sets.append(BenchmarkSet(str(facts.get("set", "?")), facts, own, best, names))
    averages = [a for a in content.get("averages", []) if isinstance(a, Mapping)]
    names = list(dict.fromkeys(name for s in sets for name in s.own))
    return BenchmarkSection(metrics, sets, averages, names, [str(n) for n in content.get("notes", [])])
