"""Figures of generation and labelling: PNG bytes, equal for equal data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ecoagent.report.figures import GRID, INK, MUTED, PALETTE, _png, _pyplot

GOOD, BAD = PALETTE[2], PALETTE[1]
WIDTH = 6.4
"""Inches; narrower than the tables' figures, so that their letters stay readable on a phone."""


def _bars(
    axis: Any, names: Sequence[str], values: Sequence[int], tints: Sequence[str], share_of: int
) -> None:
    """Horizontal bars from the top down, each with its number and share."""
    axis.barh(range(len(values)), values, color=tints, height=0.7)
    most = max(values, default=0) or 1
    for place, value in enumerate(values):
        text = f"{value:,}" + (f" ({100 * value / share_of:.1f}%)" if share_of else "")
        axis.text(value + 0.012 * most, place, text, va="center", fontsize=8, color=INK)
    axis.set_yticks(range(len(names)), names)
    axis.tick_params(axis="y", labelcolor=INK, length=0)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.set_xlim(0, 1.25 * most)
    axis.grid(axis="y", visible=False)
    axis.spines["left"].set_color(GRID)


def lines_figure(accepted: int, rejected: Sequence[tuple[str, str, int]]) -> bytes:
    """Generated lines: accepted ones, and rejected ones by reason, coloured by the step that rejected them.

    Args:
        accepted: queries accepted.
        rejected: (step, reason, lines).
    """
    from matplotlib.patches import Patch

    plt = _pyplot()
    steps = list(dict.fromkeys(step for step, _, _ in rejected))
    tint = {
        step: (BAD, PALETTE[4], PALETTE[3], PALETTE[5], PALETTE[6])[i % 5] for i, step in enumerate(steps)
    }
    figure, axis = plt.subplots(figsize=(WIDTH, 1.0 + 0.27 * (len(rejected) + 1)), layout="constrained")
    reasons = [reason for _, reason, _ in rejected]
    names = [
        "accepted",
        *((f"{r} ({s})" if reasons.count(r) > 1 else r).replace("_", " ") for s, r, _ in rejected),
    ]
    values = [accepted, *(n for _, _, n in rejected)]
    _bars(axis, names, values, [GOOD, *(tint[s] for s, _, _ in rejected)], sum(values))
    axis.set_xlabel("lines (share of all)")
    if steps:
        axis.legend(handles=[Patch(color=tint[s], label=f"rejected: {s.replace('_', ' ')}") for s in steps],
                    loc="lower right", fontsize=8)  # fmt: skip
    return _png(plt, figure)


def tools_figure(counts: Sequence[int], least: int, most: int) -> bytes:
    """Tools by their number of accepted queries, with the bounds asked for."""
    plt = _pyplot()
    figure, axis = plt.subplots(figsize=(WIDTH, 2.3), layout="constrained")
    highest = max([*counts, most])
    bins = [i - 0.5 for i in range(highest + 2)]
    _, _, patches = axis.hist(counts, bins=bins, color=GOOD, edgecolor="white", linewidth=0.6)
    for number, patch in enumerate(patches):
        if number < least:
            patch.set_facecolor(BAD)
    for bound in (least - 0.5, most + 0.5):
        axis.axvline(bound, color=INK, linewidth=1, linestyle="--")
    axis.set_xlim(-0.8, highest + 0.8)
    axis.xaxis.set_major_locator(plt.MaxNLocator(12, integer=True))
    axis.yaxis.set_major_locator(plt.MaxNLocator(4, integer=True))
    axis.set_xlabel(f"accepted queries of a tool (dashed: {least} to {most} wanted)")
    axis.set_ylabel("tools")
    axis.grid(axis="x", visible=False)
    return _png(plt, figure)


def round_trip_figure(
    ranks: Sequence[tuple[str, int]],
    found: Sequence[float],
    lost: Sequence[float],
    max_rank: int,
    at_least: float,
) -> bytes:
    """Above: queries by the rank of their tool. Below, where asked: the verifier's scores.

    Args:
        ranks: (bin, queries).
        found: scores of the queries whose tool is among the ``max_rank`` nearest.
        lost: scores of the others.
        max_rank: rank that passes.
        at_least: score that passes.
    """
    plt = _pyplot()
    rows = 2 if found or lost else 1
    figure, axes = plt.subplots(rows, 1, figsize=(WIDTH, 2.2 * rows), squeeze=False, layout="constrained")
    axis, values = axes[0, 0], [n for _, n in ranks]
    passes = [_lower(name) <= max_rank for name, _ in ranks]
    axis.bar(range(len(ranks)), values, color=[PALETTE[0] if p else BAD for p in passes], width=0.78)
    total = sum(values) or 1
    for place, value in enumerate(values):
        axis.annotate(f"{100 * value / total:.0f}%", (place, value), (0, 2), textcoords="offset points",
                      ha="center", fontsize=8, color=INK)  # fmt: skip
    axis.set_xticks(range(len(ranks)), [name for name, _ in ranks])
    axis.set_ylim(0, 1.15 * max([*values, 1]))
    axis.set_xlabel(f"rank of the query’s tool (blue: among the first {max_rank})")
    axis.set_ylabel("queries")
    axis.grid(axis="x", visible=False)
    if rows == 2:
        axis = axes[1, 0]
        axis.hist([found, lost], bins=[i / 20 for i in range(21)], stacked=True, color=[PALETTE[0], BAD],
                  label=[f"tool among the first {max_rank}", "tool further down"],
                  edgecolor="white", linewidth=0.5)  # fmt: skip
        axis.axvline(at_least, color=INK, linewidth=1, linestyle="--")
        axis.set_xlim(0, 1)
        axis.set_xlabel("verifier’s score for query and tool (dashed: accepted from here on)")
        axis.set_ylabel("queries")
        axis.grid(axis="x", visible=False)
        axis.legend(fontsize=8, loc="upper center")
    return _png(plt, figure)


def _lower(name: str) -> int:
    return int(name.rstrip("+").split("–")[0])


def ablation_figure(groups: Sequence[Mapping[str, Any]]) -> bytes:
    """MRR of each arm with its interval, a panel a split; controls are hollow."""
    plt = _pyplot()
    labels = list(dict.fromkeys(r["label"] for g in groups for r in g["rows"]))
    figure, axes = plt.subplots(
        1,
        len(groups),
        figsize=(max(WIDTH, 2.5 * len(groups)), 0.9 + 0.3 * len(labels)),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for group, axis in zip(groups, axes[0], strict=True):
        for row in group["rows"]:
            if row["mrr"] is None:
                continue
            place, control = labels.index(row["label"]), row["arm"].startswith("random_")
            tint = MUTED if control or row["arm"] == "untrained" else PALETTE[0]
            if row["interval"]:
                axis.plot(row["interval"], [place, place], color=tint, linewidth=1.3)
            axis.plot(
                row["mrr"], place, "o", color=tint, markersize=5, markerfacecolor="white" if control else tint
            )
            if row["arm"] == "all":
                axis.axvline(row["mrr"], color=GRID, linewidth=1.2, zorder=0)
        axis.set_title(
            f"{group['set']} {group['split']} ({group['rows'][0]['queries']} queries)", loc="left", fontsize=9
        )
        axis.set_xlabel("MRR")
        axis.grid(axis="y", visible=False)
    axes[0, 0].set_yticks(range(len(labels)), labels)
    axes[0, 0].tick_params(axis="y", labelcolor=INK)
    axes[0, 0].set_ylim(len(labels) - 0.4, -0.6)
    axes[0, 0].set_xlim(0, 1)
    return _png(plt, figure)


def yield_figure(steps: Sequence[tuple[str, str, int]]) -> bytes:
    """How many queries, and how many pairs, each step of labelling leaves.

    Args:
        steps: (queries or pairs, step, count), in order.
    """
    plt = _pyplot()
    kinds = [k for k in ("queries", "pairs") if any(kind == k for kind, _, _ in steps)]
    parts = [[(words, n) for kind, words, n in steps if kind == k] for k in kinds]
    figure, axes = plt.subplots(
        len(kinds),
        1,
        figsize=(WIDTH, 0.5 + sum(0.55 + 0.27 * len(p) for p in parts)),
        height_ratios=[len(p) + 0.6 for p in parts],
        squeeze=False,
        layout="constrained",
    )
    for kind, part, axis, tint in zip(kinds, parts, axes[:, 0], (PALETTE[0], PALETTE[4]), strict=False):
        _bars(axis, [w for w, _ in part], [n for _, n in part], [tint] * len(part), part[0][1])
        axis.set_xlabel(f"{kind} (share of the first bar)")
    return _png(plt, figure)


def calibration_figure(facts: Mapping[str, Any]) -> bytes:
    """Left: share of right pairs against the probability given, by bin. Right: the fitted map."""
    plt = _pyplot()
    columns = 2 if facts["map"] else 1
    figure, axes = plt.subplots(1, columns, figsize=(WIDTH, 3.0), squeeze=False, layout="constrained")
    axis, curve = axes[0, 0], facts["curve"]
    axis.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle="--")
    x, y = [c["probability"] for c in curve], [c["right"] for c in curve]
    for c, a, b in zip(curve, x, y, strict=True):
        low, high = _wilson(b, c["pairs"])
        axis.plot([a, a], [low, high], color=PALETTE[0], linewidth=1)
    axis.plot(x, y, "o-", color=PALETTE[0], linewidth=1.4, markersize=5)
    for c, a, b in zip(curve, x, y, strict=True):
        axis.annotate(f"{c['pairs']}", (a, b), (6, -9), textcoords="offset points", fontsize=7.5, color=MUTED)
    axis.set_xlabel("probability given (mean of the bin)")
    axis.set_ylabel("share of right pairs")
    axis.set_title("Reliability, cross-validated", loc="left", fontsize=9)
    if columns == 2:
        right = axes[0, 1]
        right.plot(
            [r for r, _ in facts["map"]], [p for _, p in facts["map"]], color=PALETTE[2], linewidth=1.6
        )
        if facts["threshold"] is not None:
            cut, raw = facts["threshold"], facts["decides_by"] == "raw"
            (right.axvline if raw else right.axhline)(cut, color=INK, linewidth=1, linestyle="--")
            right.annotate(f"kept from {cut:g}", (cut, 0.97) if raw else (0.03, cut), (4, 3),
                           textcoords="offset points", fontsize=8, color=INK)  # fmt: skip
        right.set_xlabel("raw score of the verifier")
        right.set_ylabel("probability")
        right.set_title(f"Fitted map ({facts['method']})", loc="left", fontsize=9)
    for each in axes[0]:
        each.set_xlim(-0.02, 1.02)
        each.set_ylim(-0.02, 1.02)
    return _png(plt, figure)


def _wilson(share: float, of: int) -> tuple[float, float]:
    from ecoagent.metrics.intervals import wilson

    return wilson(share, of)
