"""From verdicts to the tables of EcoAgent-Real."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ecoagent.labeling.calibrate import Calibration
from ecoagent.labeling.candidates import CandidatePair
from ecoagent.labeling.prepare import NOT_VERIFIED, STAGE, Prepared
from ecoagent.labeling.requests import RequestSet
from ecoagent.labeling.splits import deal_splits, splits_wanted
from ecoagent.labeling.verify import Judged
from ecoagent.schema import QrelRow, QueryRow, RejectRow, VerdictRow
from ecoagent.settings import LabelingSettings, UserError

BELOW_COSINE = "below_min_cosine"
BELOW_THRESHOLD = "below_verifier_threshold"


@dataclass(frozen=True)
class RealTables:
    """Rows of EcoAgent-Real, sorted."""

    queries: list[QueryRow]
    qrels: list[QrelRow]
    rejects: list[RejectRow]


def verdict_rows(
    prepared: Prepared,
    judged: Mapping[tuple[str, str], Judged],
    settings: LabelingSettings,
    calibration: Calibration | None,
) -> list[VerdictRow]:
    """What each step said of every nearest pair; sorted by query and tool.

    The decision uses the raw score (``paper``) or the calibrated probability; both are stored.
    """
    rows = [_encoder_row(pair, BELOW_COSINE) for pair in prepared.candidates.below]
    for pair in prepared.candidates.kept:
        said = judged.get((pair.query_id, pair.tool_id))
        if said is None:
            rows.append(_encoder_row(pair, NOT_VERIFIED))
            continue
        probability = calibration.probability(said.raw) if calibration and said.raw is not None else None
        score = probability if settings.verifier_score == "calibrated" else said.raw
        kept = score is not None and score >= settings.verifier_threshold
        rows.append(
            VerdictRow(
                query_id=pair.query_id,
                tool_id=pair.tool_id,
                stage="verifier",
                retriever=pair.retriever,
                encoder_score=pair.cosine,
                verifier_raw=said.raw,
                verifier_probability=probability,
                kept=kept,
                reason=None if kept else said.reason or BELOW_THRESHOLD,
                response_hash=said.response.request_hash,
            )
        )
    return sorted(rows, key=lambda v: (v.query_id, v.tool_id))


def _encoder_row(pair: CandidatePair, reason: str) -> VerdictRow:
    return VerdictRow(
        query_id=pair.query_id,
        tool_id=pair.tool_id,
        stage="encoder",
        retriever=pair.retriever,
        encoder_score=pair.cosine,
        kept=False,
        reason=reason,
    )


def real_tables(
    requests: RequestSet,
    prepared: Prepared,
    verdicts: Sequence[VerdictRow],
    members: Mapping[str, tuple[str, ...]],
    settings: LabelingSettings,
    seed: int,
) -> RealTables:
    """Queries with at least one kept pair, their qrels (a gold's duplicates are gold), and the rejects.

    Raises:
        UserError: a split stays empty; the threshold that did it is named.
    """
    by_query: dict[str, list[VerdictRow]] = {}
    for row in verdicts:
        by_query.setdefault(row.query_id, []).append(row)
    kept = {i: [v for v in by_query[i] if v.kept] for i in prepared.verified}
    rejects = list(prepared.rejects)
    for identifier, rows in kept.items():
        if not rows:
            rejects.append(_none_kept(identifier, by_query[identifier], prepared))
    kept = {i: rows for i, rows in kept.items() if rows}
    _require_splits(prepared, verdicts, len(kept), settings)
    types = {i: _query_type(prepared.queries[i].query_type, len(rows)) for i, rows in kept.items()}
    splits = deal_splits(types, settings.splits, seed)
    queries = [
        QueryRow(
            query_id=i,
            text=prepared.queries[i].text,
            set="real",
            query_type=types[i],
            language=prepared.queries[i].language,
            split=splits[i],
            origin=requests.name,
            licence=prepared.queries[i].licence,
        )
        for i in sorted(kept)
    ]
    qrels = [row for i in sorted(kept) for row in _qrels(i, kept[i], by_query[i], members)]
    return RealTables(queries, qrels, sorted(rejects, key=lambda r: (r.id, r.reason, r.detail)))


def _query_type(noted: str, kept: int) -> str:
    """The noted type; a request noted as having no tool that found one is told by what was kept."""
    if noted in ("unknown", "none"):
        return "single" if kept <= 2 else "several"
    return noted


def _qrels(
    query: str, kept: Sequence[VerdictRow], rows: Sequence[VerdictRow], members: Mapping[str, tuple[str, ...]]
) -> list[QrelRow]:
    seen = {v.tool_id: v for v in rows}
    verified = {v.tool_id for v in kept}
    golds = verified | {m for tool in verified for m in members.get(tool, ())}
    out = []
    for tool in sorted(golds):
        row = seen.get(tool)
        out.append(
            QrelRow(
                query_id=query,
                tool_id=tool,
                grade=1,
                origin="verified" if tool in verified else "duplicate_group",
                encoder_score=row.encoder_score if row else None,
                verifier_raw=row.verifier_raw if row else None,
                verifier_probability=row.verifier_probability if row else None,
            )
        )
    return out


def _none_kept(identifier: str, rows: Sequence[VerdictRow], prepared: Prepared) -> RejectRow:
    judged = [v for v in rows if v.stage == "verifier"]
    scored = [v for v in judged if v.verifier_raw is not None]
    if not scored:
        reasons = sorted({v.reason or "" for v in judged})
        return RejectRow(
            id=identifier,
            stage=STAGE,
            reason="no_verdict",
            detail=f"request {prepared.queries[identifier].id}; {', '.join(reasons)}",
        )
    best = max(scored, key=lambda v: (v.verifier_raw or 0.0, v.tool_id))
    shown = f"raw {best.verifier_raw:.3f}"
    if best.verifier_probability is not None:
        shown += f", probability {best.verifier_probability:.3f}"
    return RejectRow(
        id=identifier,
        stage=STAGE,
        reason="no_pair_kept",
        detail=f"request {prepared.queries[identifier].id}; best {best.tool_id}: {shown}",
    )


def _require_splits(
    prepared: Prepared, verdicts: Sequence[VerdictRow], queries: int, settings: LabelingSettings
) -> None:
    # From here on ``deal_splits`` leaves no split empty.
    needed = splits_wanted(settings.splits)
    if queries >= needed:
        return
    with_candidates = len(prepared.verified) + len(prepared.waiting)
    pooled = f" or among the {settings.lexical_top_k} best of BM25" if settings.lexical_top_k else ""
    state = (
        f"EcoAgent-Real has {queries} queries for {needed} splits: of {len(prepared.queries)} requests "
        f"{with_candidates} have a tool at labeling.min_cosine = {settings.min_cosine}{pooled}, "
        f"{len(prepared.verified)} were verified, {queries} have a pair at "
        f"labeling.verifier_threshold = {settings.verifier_threshold}"
    )
    judged = [v for v in verdicts if v.stage == "verifier"]
    failed = sum(v.verifier_raw is None for v in judged)
    if with_candidates < needed:
        raise UserError(state, remedy="lower labeling.min_cosine")
    if len(prepared.verified) < needed:
        raise UserError(state, remedy="raise labeling.max_verified")
    if failed and failed == len(judged):
        raise UserError(
            f"{state}; no answer of {settings.verifier_form!r} could be read", remedy="try another model"
        )
    if prepared.waiting:
        raise UserError(state, remedy="lower labeling.verifier_threshold or raise labeling.max_verified")
    raise UserError(state, remedy="lower labeling.verifier_threshold")
