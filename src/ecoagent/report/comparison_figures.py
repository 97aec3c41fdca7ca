"""Figures of the comparison: PNG bytes, equal for equal data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ecoagent.report.figures import DASHES, GRID, INK, MUTED, PALETTE, _png, _pyplot

WIDTH = 7.2
LIGHT = "#b9c6d3"
SHORT_LABEL = 34


def _short(label: str) -> str:
    return label if len(label) <= SHORT_LABEL else label[: SHORT_LABEL - 1] + "…"


def bars_figure(section: Mapping[str, Any]) -> bytes:
    """MRR with both intervals, a panel a split from the top down, best first; the reference in blue.

    Hollow dots stand for rows that are not told apart from the reference.
    """
    plt = _pyplot()
    splits = section["splits"]
    heights = [len(s["rows"]) + 1.2 for s in splits]
    figure, axes = plt.subplots(
        len(splits),
        1,
        figsize=(WIDTH, 0.5 + 0.235 * sum(heights)),
        height_ratios=heights,
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    highest = 0.05
    for split, axis in zip(splits, axes[:, 0], strict=True):
        rows = split["rows"]
        for place, row in enumerate(rows):
            mean = float(row["mean"] or 0.0)
            axis.barh(place, mean, color=PALETTE[0] if row["is_reference"] else LIGHT, height=0.72)
            end = mean
            for ends, width in ((row["by_tool"], 1.0), (row["by_query"], 2.6)):
                if ends:
                    axis.plot(ends, [place, place], color=INK, linewidth=width, solid_capstyle="butt")
                    end = max(end, ends[1])
            highest = max(highest, end)
            axis.annotate(f"{mean:.3f}{_mark(row)}", (end, place), (5, 0), textcoords="offset points",
                          va="center", fontsize=8, color=INK)  # fmt: skip
        axis.set_yticks(range(len(rows)), [_short(str(r["label"])) for r in rows])
        axis.tick_params(axis="y", labelcolor=INK, length=0)
        axis.set_ylim(len(rows) - 0.4, -0.6)
        axis.grid(axis="y", visible=False)
        axis.set_title(_title(split), loc="left", fontsize=9)
    axes[-1, 0].set_xlim(0, min(1.3, 1.2 * highest))
    axes[-1, 0].set_xlabel("MRR (thick: 95% by query, thin: by tool; ≈ not told apart from RATED)")
    return _png(plt, figure)


def _mark(row: Mapping[str, Any]) -> str:
    first = row["first"]
    return " ≈" if first and not first.get("separable") else ""


def _title(split: Mapping[str, Any]) -> str:
    return f"{split['set']} {split['split']}: {split['queries']} queries of {split['tools']} tools"


def differences_figure(section: Mapping[str, Any]) -> bytes:
    """The reference's MRR minus each row's, by tool, a panel a split; hollow: not told apart."""
    plt = _pyplot()
    splits = section["splits"]
    labels = list(dict.fromkeys(str(r["label"]) for s in splits for r in s["rows"] if r["first"]))
    figure, axes = plt.subplots(
        1,
        len(splits),
        figsize=(max(WIDTH, 2.5 * len(splits)), 0.9 + 0.27 * max(1, len(labels))),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for split, axis in zip(splits, axes[0], strict=True):
        for row in split["rows"]:
            if not (first := row["first"]):
                continue
            place, value = labels.index(str(row["label"])), first["difference"]
            told = bool(first.get("separable"))
            tint = MUTED if not told else PALETTE[0] if value > 0 else PALETTE[1]
            if first.get("by_tool"):
                axis.plot(first["by_tool"], [place, place], color=tint, linewidth=1.4)
            axis.plot(value, place, "o", color=tint, markersize=5, markerfacecolor=tint if told else "white")
        axis.axvline(0, color=INK, linewidth=1)
        axis.set_title(
            f"{split['set']} {split['split']} ({split['queries']} queries)", loc="left", fontsize=9
        )
        axis.set_xlabel("RATED − row, MRR")
        axis.grid(axis="y", color=GRID)
        axis.locator_params(axis="x", nbins=4)
    axes[0, 0].set_yticks(range(len(labels)), [_short(label) for label in labels])
    axes[0, 0].tick_params(axis="y", labelcolor=INK)
    axes[0, 0].set_ylim(len(labels) - 0.4, -0.6)
    return _png(plt, figure)


def curves_figure(rows: Sequence[Mapping[str, Any]], reference: str) -> bytes:
    """Recall (above) and hit rate (below) at every depth, a column a split; thick: the reference."""
    plt = _pyplot()
    panels = list(dict.fromkeys((str(r["set"]), str(r["split"])) for r in rows))
    rankers = list(dict.fromkeys(str(r["ranker"]) for r in rows))
    tints = [c for c in PALETTE if c != PALETTE[0]]
    others = [r for r in rankers if r != reference]
    figure, axes = plt.subplots(
        2, len(panels), figsize=(max(WIDTH, 2.7 * len(panels)), 5.6), sharex=True, sharey=True,
        squeeze=False, layout="constrained",
    )  # fmt: skip
    for column, panel in enumerate(panels):
        own = [r for r in rows if (str(r["set"]), str(r["split"])) == panel]
        # The reference last, so that it lies on top.
        for row in sorted(own, key=lambda r: str(r["ranker"]) == reference):
            ranker = str(row["ranker"])
            if ranker == reference:
                style: dict[str, Any] = {"color": PALETTE[0], "linewidth": 2.4}
            else:
                place = others.index(ranker)
                style = {
                    "color": tints[place % len(tints)],
                    "linewidth": 1.2,
                    "linestyle": DASHES[place // len(tints) % len(DASHES)],
                }
            for axis, key in zip(axes[:, column], ("recall", "hit"), strict=True):
                values = row.get(key) or []
                axis.plot(range(1, len(values) + 1), values, label=_short(str(row["label"])), **style)
        axes[0, column].set_title(f"{panel[0]} {panel[1]}", loc="left", fontsize=9)
        axes[1, column].set_xscale("log")
        axes[1, column].set_xticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
        axes[1, column].minorticks_off()
        axes[1, column].set_xlabel("k")
    axes[0, 0].set_ylabel("Recall@k (share of the golds)")
    axes[1, 0].set_ylabel("Hit@k (any gold)")
    axes[0, 0].set_ylim(0, 1.02)
    handles, names = axes[0, 0].get_legend_handles_labels()
    pairs = sorted(zip(handles, names, strict=True), key=lambda pair: pair[0].get_linewidth() < 2)
    figure.legend([h for h, _ in pairs], [n for _, n in pairs], loc="outside lower center",
                  ncols=3 if len(panels) > 1 else 2, fontsize=8)  # fmt: skip
    return _png(plt, figure)
