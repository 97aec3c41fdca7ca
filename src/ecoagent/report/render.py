"""The report as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import Any

import jinja2

from ecoagent import __version__
from ecoagent.audit import RunTables
from ecoagent.publish import CONFIGS, deviations, model_roles
from ecoagent.publish.card import SOURCE_NAMES, artifacts, ran_models
from ecoagent.publish.layout import SPLITS
from ecoagent.reliability.flaws import FlawTable
from ecoagent.report import comparison_figures, facts, figures
from ecoagent.report.benchmarked import benchmark_section
from ecoagent.report.chain import make_chain
from ecoagent.report.comparison import NOTHING, ComparisonFiles, comparison_section
from ecoagent.report.encoder_ablation import encoder_figures, encoder_section
from ecoagent.report.feedback import feedback_section
from ecoagent.report.figures import Figure
from ecoagent.report.growth import growth_section, tag_table
from ecoagent.report.growth_figures import growth_figure, tags_figure
from ecoagent.report.results import SHOWN_METRICS, OfflineRow, read_dynamic, read_offline
from ecoagent.settings import Settings

SPLIT_ORDER = ("train", "val", "test", "cold")


@dataclass(frozen=True)
class RunFiles:
    """What a report is made from."""

    tables: RunTables
    offline: Mapping[str, Any]
    dynamic: Mapping[str, Any]
    training: Mapping[str, Any]
    label_stats: Mapping[str, Any]
    audit: Mapping[str, Any]
    published: Mapping[str, Any]
    """Rows by ``config/split``, ``left_out`` by reason."""
    manifest: Mapping[str, Any]
    growth: Mapping[str, Any] | None = None
    """``growth.json``, where ``ecoagent growth`` was run."""
    flaws: FlawTable | None = None
    coverage: Sequence[Mapping[str, Any]] = ()
    """Rows of ``syn_coverage.json``."""
    round_trip: Mapping[str, Any] | None = None
    """``round_trip.json``, where ``ecoagent ablate round-trip`` was run; else the shipped one."""
    round_trip_shipped: bool = False
    encoder_ablation: Mapping[str, Any] | None = None
    """``encoder_ablation.json``, where ``ecoagent ablate encoder`` was run; else the shipped one."""
    encoder_ablation_shipped: bool = False
    labeller: Any = None
    """``labeller.json``, where ``ecoagent label --evaluate-on`` was run; else the shipped one."""
    labeller_shipped: bool = False
    review: Mapping[str, Any] | None = None
    """``review.json``, where ``ecoagent review score`` was run."""
    compared: ComparisonFiles = NOTHING
    cold_start: Mapping[str, Any] | None = None
    """``cold_start.json``; an evaluation by an earlier version has none."""
    benchmarks: Mapping[str, Any] | None = None
    """``benchmarks.json``, where ``ecoagent evaluate --benchmark`` was run."""
    feedback: Mapping[str, Any] | None = None
    """``feedback.json``, where ``ecoagent feedback`` was run."""
    feedback_times: Mapping[str, Any] = field(default_factory=dict)
    """What its iterations took; kept beside the results, since times differ."""


@dataclass(frozen=True)
class Report:
    """The page and its pictures by name."""

    html: str
    figures: dict[str, Figure]


@cache
def _template() -> jinja2.Template:
    env = jinja2.Environment(
        loader=jinja2.PackageLoader("ecoagent.report", "templates"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {
        "pct": _percent,
        "num": _number,
        "whole": _integer,
        "seconds": _seconds,
        "cut": _cut,
        "signed": _signed,
    }
    env.globals["style"] = env.get_template("style.css").render()
    return env.get_template("report.html.jinja")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}%"


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}".replace("-", "−")


def _integer(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1f} s" if value < 90 else f"{value / 60:.1f} min"


def _cut(text: object, length: int = 160) -> str:
    shown = " ".join(str(text).split())
    return shown if len(shown) <= length else shown[: length - 1] + "…"


def _figures(files: RunFiles, settings: Settings) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    threshold = settings.reliability.threshold
    scores = facts.scores_by_source(files.tables["tools"])
    if scores:
        found["reliability"] = Figure(
            "r_static.png",
            figures.reliability_figure(scores, threshold),
            f"Histograms of r_static for {', '.join(scores)}, with the threshold {threshold:g}.",
            "Metadata reliability r_static (Eq. 5) by source.",
        )
    rows, _ = read_offline(files.offline)
    if (section := comparison_section(files.compared)) is not None:
        found |= _comparison_figures(section, files.compared)
    elif any(not r.not_run for r in rows):
        found["mrr"] = Figure(
            "mrr.png",
            figures.mrr_figure(rows),
            "Bars: MRR of each ranker on each split; the values are those of Table 1.",
            "MRR by ranker and split; lines are 95% intervals where computed.",
        )
    dynamic_rows, series, _ = read_dynamic(files.dynamic)
    if series:
        onset = next((s.onset for s in series if s.onset is not None), settings.evaluate.onset)
        policies = ", ".join(dict.fromkeys(r.label for r in dynamic_rows))
        found["dynamic"] = Figure(
            "dynamic.png",
            figures.dynamic_figure(series, onset),
            f"Lines over {settings.evaluate.steps:,} steps: success rate and fault rate of {policies};"
            f" the outage begins after step {onset:,}.",
            "Success rate (above) and share of steps that call a tool that is down (below) over time;"
            " means over seeds.",
        )
    losses = files.training.get("losses", [])
    if losses:
        found["loss"] = Figure(
            "loss.png",
            figures.loss_figure(
                losses,
                files.training.get("curve", []),
                files.training.get("stopping", {}).get("kept_step", 0),
            ),
            f"Training loss over {len(losses)} steps, from {losses[0]:.3f} to {losses[-1]:.3f}"
            f"{_validated(files.training)}.",
            "InfoNCE loss (Eq. 3) of the dual encoder, and its validation where it was validated on the way.",
        )
    return found | _growth_figures(files)


def _comparison_figures(section: Mapping[str, Any], files: ComparisonFiles) -> dict[str, Figure]:
    reference = section["reference_label"]
    found = {
        "comparison": Figure(
            "mrr.png",
            comparison_figures.bars_figure(section),
            "Bars: MRR of each ranker on each split with two intervals; the values are those of the table.",
            f"MRR by split, best first, with 95% intervals by query and by tool. Blue: {reference}.",
        )
    }
    if any(row["first"] for split in section["splits"] for row in split["rows"]):
        found["differences"] = Figure(
            "differences.png",
            comparison_figures.differences_figure(section),
            f"Dots with intervals: the MRR of {reference} minus that of each other row, split by split.",
            "RATED minus each other row, 95% by tool. Filled: told apart (blue: RATED is better, orange: "
            "worse); hollow: not.",
        )
    curves = [row for row in files.curves.get("rows") or [] if row.get("recall")]
    if curves:
        found["curves"] = Figure(
            "recall_curves.png",
            comparison_figures.curves_figure(curves, section["reference"]),
            f"Lines: recall and hit rate of each ranker among the first 1–{len(curves[0]['recall'])} tools.",
            "Recall under both definitions by depth: the share of a query’s golds (above), and whether any "
            "is there (below).",
        )
    return found


def _validated(training: Mapping[str, Any]) -> str:
    curve = [point for point in training.get("curve", []) if point.get("MRR") is not None]
    if len(curve) < 2:
        return ""
    return (
        f"; validation MRR from {curve[0]['MRR']:.3f} to {curve[-1]['MRR']:.3f} over {len(curve)} validations"
    )


def _growth_figures(files: RunFiles) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    tags = tag_table(files.tables["tools"])
    picture = tags_figure(tags)
    if picture is not None:
        found["tags"] = Figure(
            "tags.png",
            picture.png,
            "Bars: the most frequent tags and how many tools of each source carry them: "
            + ", ".join(f"{t['tag']} {t['tools']}" for t in tags["top"][:5])
            + ", …",
            "The most frequent tags by source (paper, Figure 1, right). Letter case is ignored.",
            picture.svg,
        )
    picture = growth_figure(files.growth) if files.growth is not None else None
    if picture is not None and files.growth is not None:
        months = files.growth["all"]
        said = (
            f"Lines from {months[0]['month']} to {months[-1]['month']}: tools from {months[0]['total']:,} to "
            f"{months[-1]['total']:,}, reliable ones from {months[0]['reliable']:,} to "
            f"{months[-1]['reliable']:,}."
            if months
            else "Tools of successive crawls by source."
        )
        found["growth"] = Figure(
            "growth.png",
            picture.png,
            said,
            "Tools month by month (paper, Figure 1, left): all in blue, reliable in orange. Dots are months"
            " with a dated release; between two dots the earlier one is held, so nothing is known of the"
            " months between. Below: tools that came and went. The first release is the base, whose age is"
            " not known. Hatched: tools of this run that no date is known of.",
            picture.svg,
        )
    return found


def _offline_groups(rows: list[OfflineRow]) -> list[dict[str, Any]]:
    groups = []
    for (set_name, split), members in groupby(rows, key=lambda r: (r.set_name, r.split)):
        own = list(members)
        best = {m: max((r.metrics[m] for r in own if m in r.metrics), default=None) for m in SHOWN_METRICS}
        queries = max(r.queries for r in own)
        groups.append({"set": set_name, "split": split, "rows": own, "best": best, "queries": queries})
    return groups


def flaw_groups(table: FlawTable | None) -> list[dict[str, Any]]:
    """Flaws in the order of their table: each with its row over all sources and the shares by source."""
    groups = []
    for flaw, members in groupby(table.rows if table is not None else (), key=lambda r: r.flaw):
        own = {r.source: r for r in members}
        if "all" in own:
            groups.append({"flaw": flaw, "all": own["all"], "sources": own})
    return groups


def _published(rows: Mapping[str, int]) -> dict[str, Any]:
    """Rows of each config (down) and split (across); None where a config has no such split."""
    configs = [c.name for c in CONFIGS if any(k.startswith(f"{c.name}/") for k in rows)]
    splits = [s for s in SPLITS if any(k.endswith(f"/{s}") for k in rows)]
    return {"columns": splits, "rows": [(c, [rows.get(f"{c}/{s}") for s in splits]) for c in configs]}


def _stages(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Stages as the manifest has them, in the order of the pipeline."""
    order = ("crawl", "normalize", "score", "synthesize", "label", "train", "evaluate", "audit", "publish")
    stages = manifest.get("stages", {})
    return [
        {
            "name": name,
            "seconds": stages[name].get("seconds"),
            "rows": sum(v for v in stages[name].get("rows", {}).values() if isinstance(v, int)),
            "rejects": sum(v for v in stages[name].get("rejects", {}).values() if isinstance(v, int)),
            "tokens": stages[name].get("tokens", {}),
            "shards": stages[name].get("shards", {}),
        }
        for name in order
        if name in stages
    ]


def render_report(files: RunFiles, settings: Settings) -> Report:
    """Render the page; equal inputs give equal text."""
    tables = files.tables
    texts = facts.real_texts(tables, settings.labeling.queries)
    chain = make_chain(
        tables,
        settings,
        manifest=files.manifest,
        coverage=files.coverage,
        label_stats=files.label_stats,
        texts=texts,
        round_trip=files.round_trip,
        round_trip_shipped=files.round_trip_shipped,
        labeller=files.labeller,
        review=files.review,
    )
    feedback, feedback_figures = feedback_section(files.feedback, files.feedback_times)
    ablated = encoder_section(files.encoder_ablation, shipped=files.encoder_ablation_shipped)
    pictures = _figures(files, settings) | chain.figures | encoder_figures(ablated) | feedback_figures
    offline, offline_notes = read_offline(files.offline)
    dynamic, _, dynamic_notes = read_dynamic(files.dynamic)
    tools, syn, real = tables["tools"], tables["syn_queries"], tables["real_queries"]
    sources = facts.source_rows(tables)
    html = _template().render(
        version=__version__,
        settings=settings,
        manifest=files.manifest,
        stages=_stages(files.manifest),
        figures=pictures,
        sources=sources,
        reliable=int(tools["reliable"].sum()),
        counts={
            "candidates": sum(s.candidates for s in sources),
            "tools": tools.height,
            "syn": syn.height,
            "syn_rejects": tables["syn_rejects"].height,
            "real": real.height,
            "real_rejects": tables["real_rejects"].height,
            "pairs": tables["syn_pairs"].height,
            "syn_tools": syn["source_tool_id"].drop_nulls().n_unique(),
            "duplicate_groups": tools.filter(tools["duplicate_group"].is_duplicated())[
                "duplicate_group"
            ].n_unique(),
        },
        chain=chain,
        labeller_shipped=files.labeller_shipped,
        syn_reasons=facts.reasons(tables["syn_rejects"]["reason"].to_list()),
        syn_table=facts.cross_table(syn, "intent", "split", SPLIT_ORDER),
        syn_samples=facts.query_samples(tables, "syn", "intent"),
        syn_rejects=facts.reject_samples(tables["syn_rejects"]),
        real_reasons=facts.reasons(tables["real_rejects"]["reason"].to_list()),
        verdict_reasons=facts.reasons(tables["verdicts"]["reason"].drop_nulls().to_list()),
        real_table=facts.cross_table(real, "query_type", "split", SPLIT_ORDER),
        label_stats=files.label_stats,
        verdicts=facts.verdict_samples(tables, texts),
        metrics=[m for m in SHOWN_METRICS if any(m in r.metrics for r in offline)],
        offline=_offline_groups(offline),
        offline_notes=offline_notes,
        comparison=comparison_section(files.compared),
        cold=files.cold_start or {"rows": [], "notes": []},
        benchmarks=benchmark_section(files.benchmarks),
        ablated=ablated,
        dynamic=dynamic,
        dynamic_notes=dynamic_notes,
        training=files.training,
        deviations=deviations(settings),
        roles=model_roles(settings),
        llms=ran_models(tables),
        audit=files.audit,
        licences=facts.licence_rows(tools),
        published=files.published,
        published_table=_published(files.published.get("rows", {})),
        artifacts=artifacts(tools),
        growth=growth_section(files.growth, tools),
        flaws=flaw_groups(files.flaws),
        feedback=feedback,
        source_names=SOURCE_NAMES | {"all": "All"},
    )
    return Report(html, pictures)
