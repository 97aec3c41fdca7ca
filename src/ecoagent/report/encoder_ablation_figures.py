"""Forest plots of the encoder ablation: PNG bytes, equal for equal data."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from ecoagent.report.figures import GRID, INK, MUTED, PALETTE, _png, _pyplot

WIDTH = 7.2
COLUMNS = 3
LABEL_LETTERS, TITLE_LETTERS = 24, 25
"""Letters of a line, after which labels and titles go on in the next one."""
SHADE = "#eef3f8"


def differences_figure(
    titles: Sequence[str], rows: Sequence[tuple[str, bool, Sequence[Mapping[str, Any] | None]]]
) -> bytes:
    """Differences with their intervals, a panel a title, three in a row; filled where 0 is outside.

    Args:
        titles: of the panels.
        rows: label, whether the row is shaded, and the ``difference`` and ``interval`` of each panel, none
            where there is none.
    """
    plt = _pyplot()
    across = 2 if len(titles) == 4 else min(COLUMNS, len(titles))
    down = -(-len(titles) // across)
    labels = [_wrapped(label, LABEL_LETTERS) for label, _, _ in rows]
    lines = sum(label.count("\n") + 1 for label in labels)
    figure, axes = plt.subplots(
        down,
        across,
        figsize=(WIDTH, 0.25 + down * (0.75 + 0.155 * lines + 0.11 * len(rows))),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for number, title in enumerate(titles):
        axis = axes[number // across, number % across]
        for place, (_, shaded, tests) in enumerate(rows):
            if shaded:
                axis.axhspan(place - 0.5, place + 0.5, color=SHADE, zorder=0)
            if (test := tests[number]) is not None:
                _interval(axis, place, test)
        axis.axvline(0, color=INK, linewidth=1)
        axis.set_title(_wrapped(title, TITLE_LETTERS), loc="left", fontsize=9)
        axis.grid(axis="y", color=GRID)
        axis.locator_params(axis="x", nbins=5)
        if number + across >= len(titles):
            axis.set_xlabel("MRR − untrained")
            axis.tick_params(axis="x", labelbottom=True)
    for spare in range(len(titles), down * across):
        axes[spare // across, spare % across].set_axis_off()
    axes[0, 0].set_yticks(range(len(rows)), labels)
    for axis in axes[:, 0]:
        axis.tick_params(axis="y", labelcolor=INK)
        for text, (_, shaded, _) in zip(axis.get_yticklabels(), rows, strict=True):
            text.set_fontweight("bold" if shaded else "normal")
    axes[0, 0].set_ylim(len(rows) - 0.4, -0.6)
    return _png(plt, figure)


def _wrapped(text: str, letters: int) -> str:
    """Text in lines; at hyphens only where a word alone is longer than a line."""
    long = any(len(word) > letters for word in text.split())
    return textwrap.fill(text, letters, break_on_hyphens=long)


def _interval(axis: Any, place: int, test: Mapping[str, Any]) -> None:
    low, high = test["interval"]
    told = not low <= 0 <= high
    tint = MUTED if not told else PALETTE[0] if low > 0 else PALETTE[1]
    axis.plot([low, high], [place, place], color=tint, linewidth=1.4)
    axis.plot(
        test["difference"], place, "o", color=tint, markersize=5, markerfacecolor=tint if told else "white"
    )
