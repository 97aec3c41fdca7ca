"""The result files of the evaluation, read leniently: what a file lacks is shown as a dash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SHOWN_METRICS: tuple[str, ...] = (
    "MRR",
    "Recall@1",
    "Recall@5",
    "Hit@1",
    "Hit@5",
    "nDCG@1",
    "nDCG@5",
    "nDCG@10",
)
"""Columns of Table 1, where the file has them."""


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over seeds; the deviation is None for one seed."""

    mean: float
    sd: float | None

    @property
    def shown(self) -> str:
        """In percent."""
        return f"{100 * self.mean:.1f}" + ("" if self.sd is None else f" ± {100 * self.sd:.1f}")


@dataclass(frozen=True)
class OfflineRow:
    """One ranker on one split (Table 1)."""

    set_name: str
    split: str
    ranker: str
    label: str
    model: str
    queries: int
    metrics: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    licence: str = ""
    """Of the weights; empty where there are none."""
    not_run: str = ""
    """Why there is no result, in words; empty where there is one."""


@dataclass(frozen=True)
class DynamicRow:
    """One policy at one failure rate (Table 2)."""

    where: str
    ranker: str
    policy: str
    label: str
    rate: float
    seeds: int
    distinct_golds: int
    failing: int | None
    underpowered: bool
    success: Spread | None
    fault: Spread | None
    adaptation: float | None
    adaptation_failed: int
    executions: float | None

    @property
    def adaptation_shown(self) -> str:
        """Median steps over the seeds that recovered, and how many did not."""
        if self.failing == 0:
            return "no tool failed"
        if self.adaptation is None:
            return "Failed"
        text = f"{self.adaptation:,.0f}"
        return text + (
            f" ({self.adaptation_failed} of {self.seeds} failed)" if self.adaptation_failed else ""
        )


@dataclass(frozen=True)
class Series:
    """Success and fault rates per bin of steps."""

    policy: str
    label: str
    rate: float
    bin_steps: int
    onset: int | None
    success: tuple[float, ...]
    fault: tuple[float, ...]


def _label(row: Mapping[str, Any], key: str) -> str:
    return str(row.get("label") or row.get(key) or "?")


def _not_run(row: Mapping[str, Any]) -> str:
    if row.get("metrics"):
        return ""
    why = row.get("reason") or row.get("why")
    return f"not run: {why}" if why else "not run"


def read_offline(data: Mapping[str, Any]) -> tuple[list[OfflineRow], list[str]]:
    """Rows of ``offline.json`` in their order, and its notes."""
    rows = [
        OfflineRow(
            set_name=str(r.get("set", "?")),
            split=str(r.get("split", "?")),
            ranker=str(r.get("ranker", "?")),
            label=_label(r, "ranker"),
            model=str(r.get("model") or ""),
            queries=int(r.get("n_queries") or 0),
            metrics=dict(r.get("metrics") or {}),
            intervals={k: (float(v[0]), float(v[1])) for k, v in (r.get("intervals") or {}).items()},
            licence=str(r.get("licence") or ""),
            not_run=_not_run(r),
        )
        for r in data.get("rows", [])
    ]
    return rows, [str(n) for n in data.get("notes", [])]


def _spread(value: Any) -> Spread | None:
    if isinstance(value, Mapping) and value.get("mean") is not None:
        sd = value.get("sd")
        return Spread(float(value["mean"]), None if sd is None else float(sd))
    return None


def read_dynamic(data: Mapping[str, Any]) -> tuple[list[DynamicRow], list[Series], list[str]]:
    """Rows and curves of ``dynamic.json`` in their order, and its notes."""
    rows = []
    for r in data.get("rows", []):
        metrics = r.get("metrics", {})
        adaptation = r.get("AS") or {}
        split = str(r.get("split", "?"))
        rows.append(
            DynamicRow(
                where=f"{r['set']} {split}" if r.get("set") else split,
                ranker=str(r.get("ranker_label") or r.get("ranker") or "?"),
                policy=str(r.get("policy", "?")),
                label=_label(r, "policy"),
                rate=float(r.get("rate", 0.0)),
                seeds=int(r.get("seeds", 0)),
                distinct_golds=int(r.get("distinct_golds", 0)),
                failing=r.get("failing"),
                underpowered=bool(r.get("underpowered", False)),
                success=_spread(metrics.get("SR")),
                fault=_spread(metrics.get("FSR")),
                adaptation=adaptation.get("median"),
                adaptation_failed=int(adaptation.get("failed", 0)),
                executions=r.get("executions_per_step"),
            )
        )
    labels = {r.policy: r.label for r in rows}
    series = [
        Series(
            policy=str(s.get("policy", "?")),
            label=str(s.get("label") or labels.get(s.get("policy", ""), s.get("policy", "?"))),
            rate=float(s.get("rate", 0.0)),
            bin_steps=int(s.get("bin_steps", 1)),
            onset=s.get("onset"),
            success=tuple(s.get("success", ())),
            fault=tuple(s.get("fault", ())),
        )
        for s in data.get("series", [])
    ]
    return rows, series, [str(n) for n in data.get("notes", [])]
