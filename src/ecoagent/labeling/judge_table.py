"""The table of a judged labeller, as Markdown and for the terminal; the list of pairs kept beyond gold."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ecoagent.labeling.cosine import CosinePoint, CosineProposal
from ecoagent.labeling.judge import Evaluation
from ecoagent.labeling.judge_report import LabellerReport, Share, StageCounts, StratumReport
from ecoagent.labeling.judge_sample import LabelledSet
from ecoagent.runs import write_text

STAGE_NAMES = {
    "candidates": "candidates",
    "cosine": "after cosine",
    "verifier": "after verifier",
    "deduplication": "after deduplication",
}
WELL_KNOWN = 0.05
"""Half-width of precision that counts as known."""


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f}"


def shown(share: Share) -> str:
    """``52.0 (47.1-56.9)``, in percent."""
    if share.value is None:
        return "n/a"
    return f"{_percent(share.value)} ({_percent(share.low)}-{_percent(share.high)})"


def _count(value: float) -> str:
    return f"{round(value):,}"


def last(part: StratumReport) -> StageCounts:
    """What the whole chain leaves."""
    return part.stages[-1]


def parts_of(report: LabellerReport) -> list[StratumReport]:
    """Strata, sample and weighted whole; the last only where it says something else than the sample."""
    drawn = [s for s in report.strata if s.sampled]
    even = len({s.weight for s in drawn}) <= 1
    return [*report.strata, report.sample, *([] if even else [report.weighted])]


def summary_rows(reports: Sequence[LabellerReport]) -> list[dict[str, Any]]:
    """One row a report: what was judged and how the kept pairs fare."""
    rows = []
    for report in reports:
        final, whole = last(report.sample), last(report.weighted)
        rows.append(
            {
                "set": report.collection,
                "engine": report.engine,
                "verifier": report.model,
                "encoder": f"{report.encoder} @ {report.min_cosine:g}",
                "cut-off": f"{report.decides_by} {report.threshold:g}",
                "judged": report.judged_pairs,
                "kept": report.kept_pairs,
                "precision %": shown(final.precision),
                "precision %, weighted": shown(whole.precision),
                "recall %": shown(final.recall),
                "queries answered %": shown(final.answered),
                "enough": "yes" if report.reached else "no",
            }
        )
    return rows


def stage_rows(report: LabellerReport) -> list[dict[str, Any]]:
    """One row a stage and stratum."""
    return [
        {
            "stratum": part.name if n == 0 else "",
            "queries": _count(counts.queries),
            "stage": STAGE_NAMES[counts.stage],
            "pairs": _count(counts.pairs),
            "right": _count(counts.right),
            "precision %": shown(counts.precision),
            "recall %": shown(counts.recall),
            "queries answered %": shown(counts.answered),
        }
        for part in parts_of(report)
        for n, counts in enumerate(part.stages)
        if part.sampled
    ]


def retriever_rows(report: LabellerReport) -> list[dict[str, Any]]:
    """Judged pairs by the retriever that found them."""
    return [
        {
            "found by": name,
            "judged": c["judged"],
            "right": c["right"],
            "kept": c["kept"],
            "kept and right": c["kept_right"],
        }
        for name, c in report.by_retriever.items()
    ]


def proposal_rows(proposal: CosineProposal) -> list[dict[str, Any]]:
    """The target and the proposal."""
    rows = []
    if proposal.like is not None:
        rows.append({"": proposal.target_from, **_point(proposal.like)})
    else:
        rows.append({"": "wanted", "precision %": _percent(proposal.target)})
    return [*rows, {"": f"{proposal.encoder}, proposed", **_point(proposal.at)}]


def curve_rows(proposal: CosineProposal) -> list[dict[str, Any]]:
    """The small curve."""
    return [_point(point) for point in proposal.curve]


def _point(point: CosinePoint) -> dict[str, Any]:
    return {
        "cosine": f"{point.cosine:.2f}",
        "pairs": point.pairs,
        "right": point.right,
        "precision %": shown(point.precision),
        "recall %": shown(point.recall),
        "queries answered %": shown(point.answered),
    }


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not rows:
        return []
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = [f"{v:,}" if isinstance(v, int) else str(v).replace("|", "\\|") for v in row.values()]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def render_markdown(reports: Sequence[LabellerReport]) -> str:
    """The table that is committed: a summary, then every report stage by stage and stratum by stratum."""
    ordered = sorted(reports, key=lambda r: r.key)
    lines = [
        "# The labeller, judged",
        "",
        "The labelling chain run on queries whose right tools are known. *Judged* are the pairs put to the "
        "verifier, *kept* those at or above its cut-off. Brackets: 95% Wilson intervals.",
        "",
        *_table(summary_rows(ordered)),
        "**Precision is a lower bound.** Gold names one set of right tools; another tool that does the same "
        "is not in it, and a kept pair of it counts as wrong here. The list of kept pairs that are not gold "
        "is written beside the report, to be read.",
        "",
        "Recall is over all gold of the judged queries: what the candidates miss, no verifier brings back. "
        "*Queries answered* is the yield: queries with a pair left, of all judged. Queries are drawn in even "
        "numbers from all strata; the *sample* row counts each once, the *weighted* row gives each the "
        "number of queries of the set that it stands for, with an interval that takes the weights and the "
        "likeness of a query's pairs into account. Intervals of the other rows take pairs as independent.",
        "",
    ]
    for report in ordered:
        lines += _section(report)
    return "\n".join(lines).rstrip() + "\n"


def _section(report: LabellerReport) -> list[str]:
    against = "official gold" if report.kind == "collection" else "the writers' notes"
    # A BM25 pair needs no cosine: that is what pooling is for.
    pooled = f" and BM25 top-{report.lexical_top_k} whatever their cosine" if report.lexical_top_k else ""
    half = last(report.sample).precision.half_width
    width = "no pair was kept" if half is None else f"half-width of precision {100 * half:.1f} points"
    if half is not None and half > WELL_KNOWN:
        width += ", more than the 5 points aimed at"
    facts = [
        f"{report.tools:,} tools, {report.pool:,} queries to draw from, {report.sample.sampled:,} judged "
        f"against {against}; licence of the texts: {report.licence}.",
        f"Candidates: {report.encoder} top-{report.top_k} at cosine {report.min_cosine:g} "
        f"({report.cosine_from}){pooled}.",
        f"Verifier: {report.model} ({report.engine}), form {report.form}, {_decision(report)}.",
        f"{report.judged_pairs:,} pairs judged (wanted {report.pairs_wanted:,}), {report.kept_pairs:,} kept "
        f"(wanted {report.kept_wanted:,}), {report.unreadable:,} answers unreadable, {report.failed:,} "
        f"questions failed; {width}.",
        f"AUC over the judged pairs: verifier {_plain(report.auc_raw)}, cosine {_plain(report.auc_cosine)}.",
    ]
    if not report.reached:
        facts.append("**Fewer pairs than wanted**: the set or the budget ended first.")
    facts += [f"Not judged, {reason}: {count:,}." for reason, count in sorted(report.left_out.items())]
    facts.append(
        f"To redo: seed {report.seed}, set {report.collection_digest[:12]}, encoder "
        f"{report.encoder_digest[:12]}, prompt {report.prompt_sha256[:12]}."
    )
    return [
        f"## {report.collection}: {report.encoder}, {report.model}",
        "",
        *(f"- {fact}" for fact in facts),
        "",
        *_table(stage_rows(report)),
        *(_table(retriever_rows(report)) if report.lexical_top_k else []),
    ]


def _decision(report: LabellerReport) -> str:
    if report.decides_by == "raw":
        return f"raw score at least {report.threshold:g}"
    fitted = report.calibration or {}
    said = f"calibrated probability ({fitted.get('method')}) at least {report.threshold:g}"
    if fitted.get("encoder") != report.encoder:
        said += f", calibrated on the candidates of {fitted.get('encoder')}"
    if bool(fitted.get("lexical_top_k")) != bool(report.lexical_top_k):
        said += f", calibrated {'with' if fitted.get('lexical_top_k') else 'without'} BM25's candidates"
    return said


def _plain(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}"


NOT_GOLD_COLUMNS = (
    "collection",
    "engine",
    "model",
    "encoder",
    "stratum",
    "query_id",
    "query",
    "tool_id",
    "tool",
    "description",
    "retriever",
    "cosine",
    "raw",
    "probability",
    "gold",
)


def not_gold_rows(labelled: LabelledSet, evaluation: Evaluation) -> list[dict[str, Any]]:
    """Kept pairs that are not gold, to be read: where gold is incomplete many of them are right."""
    queries = {q.id: q for q in labelled.queries}
    report = evaluation.report
    rows = []
    for row in evaluation.pairs:
        if row.kept and not row.right:
            pair = row.candidate
            query, tool = queries[pair.query_id], labelled.cards[pair.tool_id]
            values = (*report.key, query.stratum, query.id, query.text, tool.tool_id, tool.name)
            scores = (pair.retriever, pair.cosine, row.raw, row.probability, "; ".join(sorted(query.gold)))
            rows.append(dict(zip(NOT_GOLD_COLUMNS, (*values, tool.description, *scores), strict=True)))
    return rows


def write_not_gold(path: Path, made: Sequence[Evaluation], rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write the list; rows of other sets, verifiers and encoders that the file holds stay."""
    replaced = {e.report.key for e in made}
    kept: list[Mapping[str, Any]] = []
    if path.is_file():
        reader = csv.DictReader(io.StringIO(path.read_text("utf-8"), newline=""))
        if tuple(reader.fieldnames or ()) == NOT_GOLD_COLUMNS:
            kept = [r for r in reader if tuple(r[c] for c in NOT_GOLD_COLUMNS[:4]) not in replaced]
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, NOT_GOLD_COLUMNS, lineterminator="\n")
    writer.writeheader()
    ordered = sorted([*kept, *rows], key=lambda r: tuple(str(r[c]) for c in NOT_GOLD_COLUMNS))
    writer.writerows(ordered)
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_text(path, out.getvalue())
