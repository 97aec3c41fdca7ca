"""Sections of the report on how the two query sets were made, with their figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from ecoagent.audit import RunTables
from ecoagent.evaluation.round_trip import filter_of
from ecoagent.report import chain_figures as draw
from ecoagent.report import facts, generation, labelled
from ecoagent.report.figures import Figure
from ecoagent.report.measured import labeller_tables, review_section
from ecoagent.report.throughput import ENGINE_TARGET, LIVE, ThroughputRow, throughput_rows
from ecoagent.settings import Settings

MAX_RANK = 10
"""Rank that passes the round trip where no ablation says otherwise."""


@dataclass(frozen=True)
class Chain:
    """What the sections show; each part is ready for the template."""

    syn: dict[str, Any]
    throughput: dict[str, Any]
    round_trip: dict[str, Any]
    real: dict[str, Any]
    labeller: list[dict[str, Any]]
    review: dict[str, Any] | None
    figures: dict[str, Figure]


def make_chain(
    tables: RunTables,
    settings: Settings,
    *,
    manifest: Mapping[str, Any],
    coverage: Sequence[Mapping[str, Any]],
    label_stats: Mapping[str, Any],
    texts: Mapping[str, str],
    round_trip: Mapping[str, Any] | None,
    round_trip_shipped: bool,
    labeller: Any,
    review: Mapping[str, Any] | None,
) -> Chain:
    """Compute every part and draw its figures.

    Args:
        texts: text of each Real query.
        coverage: rows of ``syn_coverage.json``.
        round_trip: ``round_trip.json``, labeller and review likewise, where there.
        round_trip_shipped: it is of the reference build, whose cuts are not this run's.
    """
    cut = cut_of(settings, None if round_trip_shipped else round_trip)
    syn = {
        "steps": generation.reject_steps(tables["syn_rejects"]),
        "per_tool": generation.queries_per_tool(tables, coverage),
        "short": generation.short_tools(tables, coverage),
        "short_shown": generation.SHORT_SHOWN,
        "origins": generation.origin_rows(tables["syn_queries"]),
        "asked": len(coverage),
    }
    trip = generation.round_trip_section(tables, round_trip, cut, shipped=round_trip_shipped)
    steps = facts.funnel(tables, label_stats)
    real = {
        "steps": steps,
        "pooling": labelled.pooling(tables["verdicts"]),
        "golds": labelled.golds_per_query(tables["real_qrels"]),
        "overlap": labelled.gold_overlap(tables),
        "hard": labelled.hard_cases(tables, label_stats, texts),
        "hard_all": len(label_stats.get("hard_cases", [])),
        "calibration": labelled.calibration_facts(label_stats),
    }
    rows = throughput_rows(manifest, tables)
    return Chain(
        syn=syn,
        throughput={"rows": rows, "target": ENGINE_TARGET, "note": _said(rows)},
        round_trip=trip,
        real=real,
        labeller=labeller_tables(labeller),
        review=review_section(review),
        figures={**_syn_figures(tables, settings, syn, trip), **_real_figures(real)},
    )


def cut_of(settings: Settings, result: Mapping[str, Any] | None) -> generation.Cut:
    """The cuts of the ablation where it was run; else those the ablation would take."""
    asked = (result or {}).get("filter")
    if asked:
        return generation.Cut(asked["max_rank"], asked["column"], asked["at_least"])
    rule = filter_of(settings, settings.synthesis.max_round_trip_rank or MAX_RANK, None)
    return generation.Cut(rule.max_rank, rule.column, rule.at_least)


def _said(rows: Sequence[ThroughputRow]) -> str:
    """Why a stage has no speed."""
    words = {
        "replayed": "every response was replayed from stored or published ones, so there is no speed to tell",
        "partly replayed": "speeds are of the live responses alone",
        "not recorded": "the run was made before engines were recorded",
        "not asked": "nothing was asked of a model the last time the stage ran",
    }
    return "; ".join(f"{r.stage}: {words[r.state]}" for r in rows if r.state != LIVE)


def _listed(pairs: Sequence[tuple[str, int]], most: int = 4) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in pairs[:most])


def _syn_figures(
    tables: RunTables, settings: Settings, syn: Mapping[str, Any], trip: Mapping[str, Any]
) -> dict[str, Figure]:
    queries, found = tables["syn_queries"], {}
    if queries.height or syn["steps"]:
        worst = _listed([(reason, n) for _, reason, n in syn["steps"]])
        found["syn_lines"] = Figure(
            "syn_lines.png",
            draw.lines_figure(queries.height, syn["steps"]),
            f"Bars: {queries.height:,} lines accepted; rejected most often for: {worst or 'nothing'}.",
            "What became of every generated line: accepted, or rejected for a reason by one of the steps.",
        )
    if syn["per_tool"]:
        least, most = settings.synthesis.min_queries_per_tool, settings.synthesis.max_queries_per_tool
        counts = syn["per_tool"]
        found["syn_tools"] = Figure(
            "syn_tools.png",
            draw.tools_figure(counts, least, most),
            f"Histogram of accepted queries for {len(counts)} tools, from {min(counts)} to {max(counts)}; "
            f"{sum(c < least for c in counts)} have fewer than {least}.",
            "Accepted queries per tool; orange: fewer than asked for.",
        )
    ranks = generation.rank_counts(queries)
    cut: generation.Cut = trip["cut"]
    if ranks:
        scored = queries.select("round_trip_rank", cut.column).drop_nulls()
        back = scored.filter(pl.col("round_trip_rank") <= cut.max_rank)[cut.column].to_list()
        lost = scored.filter(pl.col("round_trip_rank") > cut.max_rank)[cut.column].to_list()
        found["round_trip"] = Figure(
            "round_trip.png",
            draw.round_trip_figure(ranks, back, lost, cut.max_rank, cut.at_least),
            f"Bars: queries by the rank of their tool: {_listed(ranks, len(ranks))}."
            + (f" Below, a histogram of {scored.height:,} verifier scores." if scored.height else ""),
            "Does search bring a query back to its tool"
            + (", and does the verifier agree?" if scored.height else "?"),
        )
    if trip["result"]:
        groups = trip["result"]["groups"]
        found["round_trip_mrr"] = Figure(
            "round_trip_mrr.png",
            draw.ablation_figure(groups),
            "Points with 95% intervals: MRR of towers trained on filtered, random and all pairs, on "
            + ", ".join(f"{g['set']} {g['split']}" for g in groups)
            + "; the values are those of the table.",
            "What the filter does to retrieval: filled, filtered; hollow, as many random pairs.",
        )
    return found


def _kind(words: str) -> str:
    """Whether a step of the chain counts queries or pairs."""
    return "queries" if words.startswith(("Requests", "Distinct queries", "Queries")) else "pairs"


def _real_figures(real: Mapping[str, Any]) -> dict[str, Figure]:
    found = {}
    steps = [(_kind(words), words, n) for words, n in real["steps"] if words not in facts.TROUBLES]
    if any(n for _, _, n in steps):
        found["yield"] = Figure(
            "yield.png",
            draw.yield_figure(steps),
            "Bars: what each step of the chain leaves: "
            + _listed([(w, n) for _, w, n in steps], len(steps))
            + ".",
            "Yield of the chain, in queries and in pairs.",
        )
    facts_of = real["calibration"]
    if facts_of is not None:
        bins = ", ".join(f"{c['probability']:.2f} given, {c['right']:.2f} right" for c in facts_of["curve"])
        found["calibration"] = Figure(
            "calibration.png",
            draw.calibration_figure(facts_of),
            f"Reliability diagram: {bins}." + (" Beside it the fitted map." if facts_of["map"] else ""),
            "Does the verifier’s probability hold? On the dashed line it does. Numbers: pairs in the bin; "
            "lines: 95% intervals.",
        )
    return found
