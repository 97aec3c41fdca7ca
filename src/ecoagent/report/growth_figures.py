"""Figure 1: growth of the catalog and the spread of tags, as PNG and SVG."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from ecoagent.publish.card import SOURCE_NAMES
from ecoagent.report.figures import DPI, GRID, INK, MUTED, PALETTE, _pyplot
from ecoagent.schema import SOURCES

TOTAL, RELIABLE = PALETTE[0], PALETTE[1]
"""Blue and orange, as in the paper's figure."""
ADDED, REMOVED = PALETTE[2], PALETTE[3]
SOURCE_COLOURS = {s: PALETTE[i] for i, s in enumerate(SOURCES)}
"""A source has one colour, whichever sources a run has."""
MARKERS = dict(zip(SOURCES, "osD^v", strict=True))


@dataclass(frozen=True)
class Picture:
    """One figure in two forms; equal data give equal bytes."""

    png: bytes
    svg: bytes


def _both(plt: Any, figure: Any, salt: str) -> Picture:
    png, svg = io.BytesIO(), io.BytesIO()
    figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None}, facecolor="white")
    # Ids of an SVG are random unless salted; text stays text, so that it can be searched and restyled.
    with plt.rc_context({"svg.hashsalt": salt, "svg.fonttype": "none"}):
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")
    plt.close(figure)
    return Picture(png.getvalue(), svg.getvalue())


def _month(month: str) -> date:
    return date.fromisoformat(f"{month}-01")


def _dates(axis: Any, plt: Any) -> None:
    dates: Any = plt.matplotlib.dates
    low, high = axis.get_xlim()
    # The table is by month: a short span must not be marked by days.
    short = high - low < 200
    axis.xaxis.set_major_locator(
        dates.MonthLocator() if short else dates.AutoDateLocator(minticks=4, maxticks=9)
    )
    axis.xaxis.set_major_formatter(dates.ConciseDateFormatter(axis.xaxis.get_major_locator()))


def growth_figure(growth: Mapping[str, Any]) -> Picture | None:
    """Cumulative total (blue) and reliable tools (orange), what came and went below, crawls beside.

    Args:
        growth: the content of ``growth.json``; ``None`` is returned if it holds nothing dated.
    """
    rows, crawls = growth["all"], growth.get("crawls", [])
    beside = len({c["date"] for c in crawls}) > 1
    if not rows and not beside:
        return None
    plt = _pyplot()
    undated = growth.get("undated", []) if rows else []
    ratios = [5.2 if rows else 0, 0.9 if undated else 0, 3.6 if beside else 0]
    columns = [r for r in ratios if r]
    figure = plt.figure(figsize=(max(7.2, 1.15 * sum(columns)), 4.2), layout="constrained")
    grid = figure.add_gridspec(2, len(columns), height_ratios=(3.4, 1), width_ratios=columns)
    if rows:
        upper = figure.add_subplot(grid[0, 0])
        lower = figure.add_subplot(grid[1, 0], sharex=upper)
        _cumulative(upper, rows)
        _changes(lower, rows, plt)
        _dates(lower, plt)
        upper.tick_params(labelbottom=False)
        if undated:
            _undated(figure.add_subplot(grid[0, 1], sharey=upper), undated)
        highest = max([r["total"] for r in rows] + [sum(u["tools"] for u in undated), 1])
        upper.set_ylim(0, 1.16 * highest)
    if beside:
        _crawls(figure.add_subplot(grid[0, -1]), figure.add_subplot(grid[1, -1]), crawls, plt)
    return _both(plt, figure, "growth")


def _cumulative(axis: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    times = [_month(r["month"]) for r in rows]
    floor = [0] * len(rows)
    for key, colour, words in (("reliable", RELIABLE, "reliable"), ("total", TOTAL, "all")):
        values = [r[key] for r in rows]
        axis.fill_between(times, floor, values, color=colour, alpha=0.12, linewidth=0, step="post")
        axis.step(times, values, where="post", color=colour, linewidth=1.8)
        pins = [(t, v) for t, v, r in zip(times, values, rows, strict=True) if r["pinned"]]
        axis.plot(*zip(*pins, strict=True), "o", color=colour, markersize=4)
        style = {"textcoords": "offset points", "color": colour, "fontsize": 9, "weight": "bold"}
        axis.annotate(f"{pins[0][1]:,}", pins[0], (0, 7), ha="left", **style)
        if len(pins) > 1:
            axis.annotate(f"{words} {pins[-1][1]:,}", pins[-1], (4, 7), ha="right", **style)
        floor = values
    axis.set_ylabel("tools, cumulative")
    axis.set_title("Tools whose date is known", loc="left", fontsize=9.5, color=INK)
    axis.grid(axis="x", visible=False)


def _undated(axis: Any, undated: Sequence[Mapping[str, Any]]) -> None:
    """The tools that no date is known of, beside the line: when they came is not claimed."""
    total, reliable = (sum(u[key] for u in undated) for key in ("tools", "reliable"))
    axis.bar([0], [total], width=0.7, color="white", edgecolor=TOTAL, hatch="////", linewidth=1)
    axis.bar([0], [reliable], width=0.7, color=RELIABLE)
    style = {"textcoords": "offset points", "ha": "center", "fontsize": 9, "weight": "bold"}
    axis.annotate(f"{total:,}", (0, total), (0, 4), color=TOTAL, **style)
    axis.annotate(f"{reliable:,}", (0.37, reliable), (9, -3), color=RELIABLE, **style)
    axis.set_xlim(-0.55, 0.85)
    axis.set_xticks([0], ["now"])
    axis.tick_params(axis="y", labelleft=False, length=0)
    axis.spines["left"].set_visible(False)
    axis.set_title("no date", loc="left", fontsize=9.5, color=INK)
    axis.grid(axis="x", visible=False)


def _changes(axis: Any, rows: Sequence[Mapping[str, Any]], plt: Any) -> None:
    times = [_month(r["month"]) for r in rows]
    up, down = [r["added"] for r in rows], [-r["removed"] for r in rows]
    axis.bar(times, up, width=16, color=ADDED)
    axis.bar(times, down, width=16, color=REMOVED)
    style = {"textcoords": "offset points", "ha": "center", "fontsize": 8}
    for t, more, less in zip(times, up, down, strict=True):
        if more:
            axis.annotate(f"+{more}", (t, more), (0, 2), va="bottom", color=ADDED, **style)
        if less:
            axis.annotate(f"\u2212{-less}", (t, less), (0, -2), va="top", color=REMOVED, **style)
    axis.axhline(0, color=MUTED, linewidth=0.8)
    high, low = max([*up, 1]), min([*down, 0])
    axis.set_ylim(low - 0.55 * (high - low), high + 0.5 * (high - low))
    axis.yaxis.set_major_locator(plt.MaxNLocator(3, integer=True))
    axis.yaxis.set_major_formatter(lambda v, _: f"{abs(v):g}")
    axis.set_ylabel("came, went")
    axis.grid(axis="x", visible=False)


def _crawls(axis: Any, below: Any, crawls: Sequence[Mapping[str, Any]], plt: Any) -> None:
    from matplotlib.lines import Line2D

    sources = [s for s in SOURCES if any(c["source"] == s for c in crawls)]
    days = sorted({c["date"] for c in crawls})
    for source in sources:
        own = sorted((c["date"], c["total"], c["reliable"]) for c in crawls if c["source"] == source)
        style = {"color": SOURCE_COLOURS[source], "marker": MARKERS[source], "markersize": 4}
        x = [date.fromisoformat(d) for d, _, _ in own]
        axis.plot(x, [t for _, t, _ in own], linewidth=1.6, label=SOURCE_NAMES[source], **style)
        axis.plot(x, [r for _, _, r in own], linewidth=1.2, linestyle=":", fillstyle="none", **style)
    axis.set_ylim(0, 1.16 * max(c["total"] for c in crawls if c["source"] != "all"))
    axis.margins(x=0.12)
    axis.set_ylabel("tools")
    if len(days) <= 4:
        axis.set_xticks([date.fromisoformat(d) for d in days], days)
        axis.tick_params(axis="x", labelsize=8)
    else:
        _dates(axis, plt)
    axis.set_title("Successive crawls, by source", loc="left", fontsize=9.5, color=INK)
    axis.grid(axis="x", visible=False)
    handles, names = axis.get_legend_handles_labels()
    handles.append(Line2D([], [], color=MUTED, linestyle=":", marker="o", fillstyle="none", markersize=4))
    below.axis("off")
    below.legend(handles, [*names, "dotted: reliable"], fontsize=8, loc="center", ncols=2)


def tags_figure(tags: Mapping[str, Any]) -> Picture | None:
    """The most frequent tags as bars, stacked by source; ``None`` if no tool has a tag."""
    top = tags["top"]
    if not top:
        return None
    plt = _pyplot()
    figure, axis = plt.subplots(figsize=(7.2, max(2.4, 1.05 + 0.215 * len(top))), layout="constrained")
    sources = [s for s in SOURCES if any(s in t["by_source"] for t in top)]
    left = [0] * len(top)
    for source in sources:
        values = [t["by_source"].get(source, 0) for t in top]
        axis.barh(
            range(len(top)), values, left=left, height=0.72, color=SOURCE_COLOURS[source],
            label=SOURCE_NAMES[source], edgecolor="white", linewidth=0.5,
        )  # fmt: skip
        left = [a + b for a, b in zip(left, values, strict=True)]
    for place, item in enumerate(top):
        axis.annotate(
            f"{item['tools']:,}", (item["tools"], place), (4, 0), textcoords="offset points", va="center",
            fontsize=8, color=INK,
        )  # fmt: skip
    axis.set_yticks(range(len(top)), [t["tag"] for t in top])
    axis.tick_params(axis="y", labelcolor=INK, length=0)
    axis.set_ylim(len(top) - 0.4, -0.6)
    axis.set_xlim(0, 1.09 * max(t["tools"] for t in top))
    axis.set_xlabel("tools that carry the tag")
    axis.set_title(
        f"The {len(top)} most frequent of {tags['distinct']:,} tags", loc="left", fontsize=9.5, color=INK
    )
    axis.spines["left"].set_color(GRID)
    axis.grid(axis="y", visible=False)
    axis.legend(loc="lower right", fontsize=8.5)
    return _both(plt, figure, "tags")
