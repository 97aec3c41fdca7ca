"""The section on TR-Feedback, read leniently, with its figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from ecoagent.evaluation.feedback_table import FEEDBACK_METRICS, latency_rows
from ecoagent.report.figures import MUTED, PALETTE, Figure, _png, _pyplot

DOMAINS = {"in_domain": "In-domain", "out_of_domain": "Out-of-domain", "real": "Real test"}
DRAWN = ("nDCG@5", "Recall@5")
WIDTH = 6.4


def feedback_section(
    content: Mapping[str, Any] | None, times: Mapping[str, Any]
) -> tuple[dict[str, Any] | None, dict[str, Figure]]:
    """What the template shows and the figure; none where ``ecoagent feedback`` was not run.

    Args:
        content: ``feedback.json``.
        times: ``feedback_latency.json``.
    """
    if not content:
        return None, {}
    rows = [row for row in content.get("rows") or [] if isinstance(row, Mapping) and row.get("metrics")]
    groups = []
    for (critic, domain), members in groupby(rows, key=lambda r: (r.get("critic"), r.get("domain"))):
        own = list(members)
        best = {m: max(r["metrics"].get(m, 0.0) for r in own) for m in FEEDBACK_METRICS}
        groups.append(
            {"critic": critic, "domain": DOMAINS.get(str(domain), domain), "rows": own, "best": best}
        )
    section = {
        "groups": groups,
        "metrics": FEEDBACK_METRICS,
        "critics": [
            {**row, "domain": DOMAINS.get(str(row.get("domain")), row.get("domain"))}
            for row in content.get("critics") or []
        ],
        "gate": content.get("gate") or {},
        "domains": DOMAINS,
        "retriever": (content.get("retriever") or {}).get("label", "?"),
        "categories": content.get("categories") or {},
        "notes": content.get("notes") or [],
        "times": latency_rows(times),
    }
    if not groups:
        return section, {}
    last = max((int(r["iteration"]) for g in groups for r in _iterations(g["rows"])), default=0)
    caption = "Metrics over the iterations of TR-Feedback, with 95% intervals; dashed: the gated fusion."
    if any(_rated(g["rows"]) for g in groups):
        caption += " Squares: RATED's order of the fusion of iterations 0 to t."
    said = "; ".join(f"{g['critic']}, {g['domain']}: {_said(g['rows'])}" for g in groups)
    return section, {
        "feedback": Figure(
            "feedback.png", feedback_figure(groups), f"Lines over iterations 0 to {last}: {said}.", caption
        )
    }


def _said(rows: Sequence[Mapping[str, Any]]) -> str:
    rated = _rated(rows)
    own = f"Recall@5 {_path(_iterations(rows), 'Recall@5')}"
    return own + (f", RATED over the fusions {_path(rated, 'Recall@5')}" if rated else "")


def _iterations(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows of the feedback's retriever as it stands, by iteration."""
    return sorted((r for r in rows if r.get("iteration") is not None), key=lambda r: int(r["iteration"]))


def _rated(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows of RATED's order of the fusions of iterations 0 to t, by t; none in results without them."""
    found = (r for r in rows if r.get("rated") and not r.get("gated") and r.get("fused_to") is not None)
    return sorted(found, key=lambda r: int(r["fused_to"]))


def _path(rows: Sequence[Mapping[str, Any]], metric: str) -> str:
    values = [r["metrics"].get(metric) for r in rows]
    return ", ".join("–" if v is None else f"{v:.3f}" for v in values)


def feedback_figure(groups: Sequence[Mapping[str, Any]]) -> bytes:
    """A panel a metric and domain, a line a critic; squares are RATED's, dashed is the gated fusion."""
    plt = _pyplot()
    domains = list(dict.fromkeys(g["domain"] for g in groups))
    critics = list(dict.fromkeys(g["critic"] for g in groups))
    figure, axes = plt.subplots(
        len(DRAWN),
        len(domains),
        figsize=(max(WIDTH, 3.1 * len(domains)), 2.2 * len(DRAWN) + 0.4),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    ends: list[float] = []
    for group in groups:
        column, number = domains.index(group["domain"]), critics.index(group["critic"])
        tint = PALETTE[number % len(PALETTE)]
        steps, rated = _iterations(group["rows"]), _rated(group["rows"])
        fused = next((r for r in group["rows"] if r.get("gated") and not r.get("rated")), None)
        for axis, metric in zip(axes[:, column], DRAWN, strict=True):
            # Side by side, so that the intervals of several critics stay apart.
            aside = 0.06 * (number - (len(critics) - 1) / 2)
            x = [r["iteration"] + aside for r in steps]
            axis.plot(x, [r["metrics"][metric] for r in steps], "o-", color=tint, linewidth=1.5,
                      markersize=4.5, label=group["critic"])  # fmt: skip
            for place, step in zip(x, steps, strict=True):
                if span := (step.get("intervals") or {}).get(metric):
                    axis.plot([place, place], span, color=tint, linewidth=1)
                    ends += span
            if rated:
                y = [r["metrics"][metric] for r in rated]
                axis.plot([r["fused_to"] + aside for r in rated], y, "s:", color=tint, linewidth=1.1,
                          markersize=4, markerfacecolor="white")  # fmt: skip
                ends += y
            if fused is not None:
                axis.axhline(fused["metrics"][metric], color=tint, linewidth=1.1, linestyle="--")
                ends.append(fused["metrics"][metric])
            axis.set_xticks(sorted({r["iteration"] for r in steps}))
    for column, domain in enumerate(domains):
        queries = next(g["rows"][0].get("queries") for g in groups if g["domain"] == domain)
        axes[0, column].set_title(f"{domain} ({queries} queries)", loc="left", fontsize=9)
        axes[-1, column].set_xlabel("iteration")
    for row, metric in enumerate(DRAWN):
        axes[row, 0].set_ylabel(metric)
        for axis in axes[row]:
            axis.grid(axis="x", visible=False)
    if ends:
        axes[0, 0].set_ylim(max(0.0, min(ends) - 0.04), min(1.0, max(ends) + 0.04))
    handles, labels = axes[0, 0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, labelcolor=MUTED)
    return _png(plt, figure)
