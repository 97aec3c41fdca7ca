"""The report's figures: PNG bytes, equal for equal data."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ecoagent.report.results import OfflineRow, Series

INK, MUTED, GRID = "#1f2933", "#5f6b7a", "#dde3ea"
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6b6b6b")
"""Okabe and Ito's colours, told apart by the colour-blind too."""

DASHES = ("-", "--", "-.", ":")
DPI = 144


@dataclass(frozen=True)
class Figure:
    """A picture with the text that stands for it."""

    file: str
    png: bytes
    alt: str
    caption: str
    svg: bytes | None = None

    @property
    def data_uri(self) -> str:
        """The picture inside the page."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode("ascii")


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "font.family": "DejaVu Sans",
            "font.size": 9,
            "text.color": INK,
            "axes.edgecolor": MUTED,
            "axes.labelcolor": INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": GRID,
            "grid.linewidth": 0.7,
            "xtick.color": MUTED,
            "ytick.color": MUTED,
            "legend.frameon": False,
        }
    )
    return plt


def _png(plt: Any, figure: Any) -> bytes:
    buffer = io.BytesIO()
    # No date and no library version in the file: equal data give equal bytes.
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None}, facecolor="white")
    plt.close(figure)
    return buffer.getvalue()


def colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for each name, the same in every figure that is given the same names."""
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}


def reliability_figure(scores: Mapping[str, Sequence[float]], threshold: float) -> bytes:
    """Histogram of r_static for each source, one row each, with the threshold.

    Args:
        scores: source name to r_static values, in the order of the rows.
        threshold: a tool is reliable from here on.
    """
    plt = _pyplot()
    figure, axes = plt.subplots(
        len(scores),
        1,
        figsize=(7.2, 0.5 + 1.05 * len(scores)),
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    bins = [i / 40 for i in range(41)]
    low = min((min(v) for v in scores.values() if len(v)), default=0.0)
    for (name, values), axis, colour in zip(scores.items(), axes[:, 0], PALETTE, strict=False):
        axis.hist(values, bins=bins, color=colour, alpha=0.85)
        axis.axvline(threshold, color=INK, linewidth=1, linestyle="--")
        share = sum(v >= threshold for v in values) / len(values) if len(values) else 0.0
        axis.set_title(
            f"{name}: {len(values)} tools, {100 * share:.1f}% reliable", loc="left", fontsize=9, color=INK
        )
        axis.yaxis.set_major_locator(plt.MaxNLocator(3, integer=True))
        axis.grid(axis="x", visible=False)
    axes[-1, 0].set_xlim(max(0.0, math.floor(low * 20) / 20), 1.0)
    axes[-1, 0].set_xlabel(f"r_static (dashed: {threshold:g}, reliable from here on)")
    figure.supylabel("tools", fontsize=9)
    return _png(plt, figure)


def mrr_figure(rows: Sequence[OfflineRow]) -> bytes:
    """MRR of every ranker that ran, a panel a split, with intervals where the file has them."""
    plt = _pyplot()
    rows = [row for row in rows if not row.not_run]
    panels = list(dict.fromkeys((r.set_name, r.split) for r in rows))
    labels = list(dict.fromkeys(r.label for r in rows))
    colour = colours(labels)
    figure, axes = plt.subplots(
        1,
        len(panels),
        figsize=(max(7.2, 2.9 * len(panels)), 0.9 + 0.34 * len(labels)),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for (set_name, split), axis in zip(panels, axes[0], strict=True):
        own = {r.label: r for r in rows if (r.set_name, r.split) == (set_name, split)}
        for place, label in enumerate(labels):
            if (row := own.get(label)) is None or "MRR" not in row.metrics:
                continue
            value = row.metrics["MRR"]
            axis.barh(place, value, color=colour[label], height=0.66)
            end = value
            if interval := row.intervals.get("MRR"):
                axis.plot(interval, [place, place], color=INK, linewidth=1.1)
                end = interval[1]
            axis.text(end + 0.015, place, f"{value:.3f}", va="center", fontsize=8, color=INK)
        queries = next(iter(own.values())).queries
        axis.set_title(f"{set_name} {split} ({queries} queries)", loc="left", fontsize=9)
        axis.set_xlabel("MRR")
        axis.grid(axis="y", visible=False)
    axes[0, 0].set_yticks(range(len(labels)), labels)
    axes[0, 0].tick_params(axis="y", labelcolor=INK)
    axes[0, 0].set_ylim(len(labels) - 0.4, -0.6)
    highest = max((max(r.intervals.get("MRR", (0, r.metrics.get("MRR", 0.0)))) for r in rows), default=1.0)
    axes[0, 0].set_xlim(0, min(1.25, highest * 1.25 + 0.02))
    return _png(plt, figure)


def dynamic_figure(series: Sequence[Series], onset: int) -> bytes:
    """Success rate (above) and fault rate (below) over time, a column a failure rate, a line a policy."""
    plt = _pyplot()
    rates = sorted({s.rate for s in series})
    labels = list(dict.fromkeys(s.label for s in series))
    colour = colours(labels)
    figure, axes = plt.subplots(
        2, len(rates), figsize=(max(7.2, 4.2 * len(rates)), 5.2), sharex=True, sharey="row", squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for column, rate in enumerate(rates):
        for item in (s for s in series if s.rate == rate):
            place = labels.index(item.label)
            style = {"color": colour[item.label], "linewidth": 1.5, "linestyle": DASHES[place % len(DASHES)]}
            steps = [item.bin_steps * (i + 0.5) for i in range(len(item.success))]
            axes[0, column].plot(steps, [100 * v for v in item.success], label=item.label, **style)
            axes[1, column].plot(steps[: len(item.fault)], [100 * v for v in item.fault], **style)
        for axis in axes[:, column]:
            axis.axvline(onset, color=MUTED, linewidth=1)
        axes[0, column].set_title(f"{100 * rate:g}% of the gold tools fail", loc="left", fontsize=9)
        axes[0, column].annotate(
            "outage",
            (onset, 1),
            xycoords=("data", "axes fraction"),
            xytext=(4, -9),
            textcoords="offset points",
            fontsize=8,
            color=MUTED,
        )
        axes[1, column].set_xlabel("step")
    axes[0, 0].set_ylabel("success, % of steps")
    axes[1, 0].set_ylabel("call to a tool that is down, %")
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=min(len(names), 5))
    # After every panel of a row has drawn: setting a limit ends its autoscaling.
    for row, rates_of in enumerate(([s.success for s in series], [s.fault for s in series])):
        highest = 100 * max((max(values, default=0.0) for values in rates_of), default=0.0)
        axes[row, 0].set_ylim(0, max(1.0, 1.06 * highest))
    return _png(plt, figure)


def loss_figure(losses: Sequence[float], curve: Sequence[Mapping[str, Any]] = (), kept: int = 0) -> bytes:
    """Training loss by step, with its running mean; below it what validations on the way gave.

    Args:
        losses: loss of each step.
        curve: ``step``, ``loss`` and ``MRR`` of each validation, the first of step 0.
        kept: step whose weights were kept; marked where it is not the last.
    """
    plt = _pyplot()
    validated = [point for point in curve if point.get("MRR") is not None]
    rows = 2 if len(validated) > 1 else 1
    figure, axes = plt.subplots(
        rows,
        1,
        figsize=(7.2, 2.3 if rows == 1 else 4.0),
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    axis = axes[0, 0]
    steps = list(range(1, len(losses) + 1))
    axis.plot(steps, losses, color=PALETTE[5], linewidth=0.8, marker="." if len(losses) < 60 else None)
    width = max(1, len(losses) // 10)
    running = [sum(losses[max(0, i - width) : i]) / min(i, width) for i in steps]
    axis.plot(steps, running, color=PALETTE[0], linewidth=1.6)
    axes[-1, 0].set_xlabel(f"step (bold: mean of {width} steps)")
    axis.set_ylabel("InfoNCE loss")
    if rows == 2:
        at = [point["step"] for point in validated]
        axis.plot(
            at, [p["loss"] for p in validated], color=PALETTE[1], marker="o", markersize=3.5, linewidth=1.2
        )
        axis.annotate(
            "validation",
            (at[-1], validated[-1]["loss"]),
            xytext=(0, 7),
            textcoords="offset points",
            ha="right",
            fontsize=8,
            color=PALETTE[1],
        )
        below = axes[1, 0]
        below.plot(at, [p["MRR"] for p in validated], color=PALETTE[2], marker="o", markersize=3.5)
        below.set_ylabel("validation MRR")
        for panel in axes[:, 0] if 0 < kept < len(losses) else ():
            panel.axvline(kept, color=MUTED, linewidth=1, linestyle="--")
        if 0 < kept < len(losses):
            below.annotate(
                "kept",
                (kept, 0),
                xycoords=("data", "axes fraction"),
                xytext=(4, 4),
                textcoords="offset points",
                fontsize=8,
                color=MUTED,
            )
    axis.set_ylim(bottom=0)
    return _png(plt, figure)
