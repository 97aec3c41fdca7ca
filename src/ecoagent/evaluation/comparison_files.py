"""Result files of the comparison, the recall curves and the slices, as JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ecoagent.evaluation.comparison import (
    COMPARED,
    COMPARISON_FLIPS,
    FEW_CLUSTERS,
    LEVEL,
    REFERENCE,
    SplitComparison,
    compare_split,
    split_values,
)
from ecoagent.evaluation.curves import Curve, recall_curve
from ecoagent.evaluation.offline import JudgedSplit
from ecoagent.evaluation.rounding import rounded
from ecoagent.evaluation.slices import DIMENSIONS, SMALL, SliceRow, slice_rows
from ecoagent.metrics.ranking import BOOTSTRAP_SAMPLES
from ecoagent.retrieval import RankedRun
from ecoagent.runs import write_json, write_text

FORMAT = 2
"""Of the files: raised where they change though no ranking does."""
TITLE = "RATED against the best other row, MRR"


@dataclass(frozen=True)
class Names:
    """Labels of the rankers, and the rows of the table that have no result."""

    labels: Mapping[str, str]
    not_run: tuple[Mapping[str, Any], ...]

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> Names:
        """From the rows of the offline table; those without metrics were not run."""
        labels = {row["ranker"]: str(row.get("label") or row["ranker"]) for row in rows}
        missing = [
            {key: row.get(key) for key in ("set", "split", "ranker", "label", "status")}
            for row in rows
            if not row.get("metrics")
        ]
        return cls(labels, tuple(missing))

    def __getitem__(self, ranker: str) -> str:
        return self.labels.get(ranker, ranker)


@dataclass(frozen=True)
class Compared:
    """Everything the comparison found, before it is written."""

    splits: tuple[SplitComparison, ...]
    curves: tuple[Curve, ...]
    slices: tuple[SliceRow, ...]
    names: Names

    def write(self, folder: Path) -> list[Path]:
        """``comparison``, ``recall_curves`` and ``slices`` in ``folder``: JSON, and its rows as CSV."""
        files = {
            "comparison": self.comparison_json(),
            "recall_curves": self.curves_json(),
            "slices": self.slices_json(),
        }
        written = []
        for name, content in files.items():
            written.append(write_json(folder / f"{name}.json", content))
            flat = [_flat(row) for row in _long(name, content["rows"])]
            written.append(write_text(folder / f"{name}.csv", _csv(flat)))
        return written

    def comparison_json(self) -> dict[str, Any]:
        """``comparison.json``."""
        found: dict[str, Any] = rounded(
            {
                "reference": REFERENCE,
                "reference_label": self.names[REFERENCE],
                "level": LEVEL,
                "flips": COMPARISON_FLIPS,
                "samples": BOOTSTRAP_SAMPLES,
                "metrics": list(COMPARED),
                "splits": [
                    {"set": s.set, "split": s.split, "queries": s.queries, "tools": s.tools}
                    for s in self.splits
                ],
                "means": [self._labelled(asdict(m)) for s in self.splits for m in s.means],
                "rows": [self._labelled(asdict(c)) for s in self.splits for c in s.contrasts],
                "neighbours": [
                    {
                        **asdict(n),
                        "better_label": self.names[n.better],
                        "worse_label": self.names[n.worse],
                    }
                    for s in self.splits
                    for n in s.neighbours
                ],
                "not_run": list(self.names.not_run),
                "notes": _notes(self.splits),
            }
        )
        return found

    def curves_json(self) -> dict[str, Any]:
        """``recall_curves.json``: the value at place i is that at k = i + 1."""
        found: dict[str, Any] = rounded({"rows": [self._labelled(asdict(curve)) for curve in self.curves]})
        return found

    def slices_json(self) -> dict[str, Any]:
        """``slices.json``."""
        found: dict[str, Any] = rounded(
            {
                "dimensions": dict(DIMENSIONS),
                "small": SMALL,
                "rows": [self._labelled(asdict(row)) for row in self.slices],
                "notes": [
                    "Each query is in one slice of each dimension; golds that differ are 'several'.",
                    "Intervals: 95% percentile bootstrap over gold tools, whose queries stay together.",
                    f"Small: fewer than {SMALL} queries; read nothing into a difference there.",
                ],
            }
        )
        return found

    def summary(self) -> list[dict[str, Any]]:
        """One line a split: the reference against the best of the others."""
        lines = []
        for found in self.splits:
            metric = COMPARED[0]
            means = {m.ranker: m.mean for m in found.means if m.metric == metric}
            rows = {c.ranker: c for c in found.contrasts if c.metric == metric}
            if not rows:
                continue
            best = max(rows, key=lambda ranker: means[ranker])
            row = rows[best]
            below = sum(r.separable and r.difference > 0 for r in rows.values())
            lines.append(
                {
                    "set": found.set,
                    "split": found.split,
                    metric: f"{self.names[row.reference]} − {self.names[best]}: "
                    f"{short(row.difference, True)} ({short(row.by_tool[0])} to {short(row.by_tool[1])}), "
                    f"p={short(row.holm_by_tool, digits=4)} Holm",
                    "told apart below it": f"{below} of {len(rows)}",
                }
            )
        return lines

    def _labelled(self, row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "label": self.names[row["ranker"]]}


def compare(
    runs: Sequence[RankedRun],
    splits: Sequence[JudgedSplit],
    rows: Sequence[Mapping[str, Any]],
    clusters: Mapping[str, str],
    facts: Mapping[str, Mapping[str, str]],
    *,
    seed: int = 0,
) -> Compared:
    """Compare, curve and slice every run on every split.

    Args:
        runs: those of the rankers that ran.
        splits: judged splits.
        rows: of the offline table, for labels; those without metrics are listed as not run.
        clusters: query to the tool it counts under.
        facts: query to its slices, as ``slices.load_facts`` gives them.
        seed: of resamples and sign patterns.
    """
    found, curves, slices = [], [], []
    for split in splits if runs else ():
        values = split_values(split, runs, clusters)
        found.append(compare_split(values, seed=seed))
        curves += [recall_curve(run, split) for run in runs]
        slices += slice_rows(values, facts, seed=seed)
    return Compared(tuple(found), tuple(curves), tuple(slices), Names.of(rows))


def short(value: float, signed: bool = False, digits: int = 3) -> str:
    """A number in few letters: no zero before the point, a minus that is one."""
    text = f"{abs(value):.{digits}f}"
    sign = "" if float(text) == 0 else "−" if value < 0 else "+" if signed else ""
    return sign + text.removeprefix("0")


def _notes(splits: Sequence[SplitComparison]) -> list[str]:
    notes = [
        "Differences are RATED minus the row, query by query. By tool: queries generated for one tool, or "
        "else with one first gold, duplicates as one tool, are resampled and flipped together, for they are "
        "not independent.",
        f"Intervals: 95% percentile bootstrap, {BOOTSTRAP_SAMPLES:,} resamples.",
        f"p: two-sided paired randomisation test, {COMPARISON_FLIPS:,} sign patterns, with Holm's correction "
        "over the rows of a split, metric by metric.",
        f"Told apart: p by tool, corrected, below {LEVEL:g}.",
    ]
    for found in splits:
        where = f"{found.set} {found.split}"
        if found.tools < FEW_CLUSTERS:
            notes.append(f"{where}: {found.tools} tools are too few for intervals by tool to hold.")
    return notes


def _long(name: str, rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Curves as a row for each k; other rows as they are."""
    if name != "recall_curves":
        return list(rows)
    return [
        {**{k: v for k, v in row.items() if k not in ("recall", "hit")}, "k": k, "recall": recall, "hit": hit}
        for row in rows
        for k, (recall, hit) in enumerate(zip(row["recall"], row["hit"], strict=True), 1)
    ]


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Intervals as two columns, metrics as columns of their own."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if key == "metrics":
            flat |= value
        elif key == "intervals":
            for metric, ends in value.items():
                flat[f"{metric}_low"], flat[f"{metric}_high"] = ends or (None, None)
        elif isinstance(value, list):
            flat[f"{key}_low"], flat[f"{key}_high"] = value
        else:
            flat[key] = value
    return flat


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV with a heading; empty where there are none."""
    buffer = io.StringIO()
    if rows:
        writer = csv.DictWriter(buffer, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return buffer.getvalue()
