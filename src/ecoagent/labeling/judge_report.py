"""The report of a judged labeller: counts and shares at each stage of the chain, overall and by stratum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, ValidationError

from ecoagent.metrics.intervals import wilson
from ecoagent.runs import read_json, write_json
from ecoagent.schema import Record
from ecoagent.settings import UserError

DECIMALS = 4
StageName = Literal["candidates", "cosine", "verifier", "deduplication"]
STAGES: tuple[StageName, ...] = get_args(StageName)
"""Stages of the chain; each counts what is left after it."""


class Share(Record):
    """A share with its 95% Wilson interval; empty where nothing was counted."""

    hits: float = Field(description="Numerator; weighted sums in a weighted row.")
    of: float = Field(description="Denominator.")
    value: float | None = Field(description="hits / of.")
    low: float | None = Field(description="Lower end.")
    high: float | None = Field(description="Upper end.")
    effective: float | None = Field(
        None, description="Weighted rows: size of the simple sample of pairs that would be as certain."
    )

    @property
    def half_width(self) -> float | None:
        """Half of the interval's width."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


class StageCounts(Record):
    """What a stage leaves."""

    stage: StageName
    queries: float = Field(description="Queries considered; after deduplication those it keeps.")
    pairs: float = Field(description="Pairs left.")
    right: float = Field(description="Right pairs among them.")
    gold: float = Field(description="Right pairs there are for these queries.")
    precision: Share = Field(description="right / pairs: a lower bound where gold is incomplete.")
    recall: Share = Field(description="right / gold.")
    answered: Share = Field(description="Yield: queries with a pair left, of those sampled.")


class StratumReport(Record):
    """One stratum, or the whole."""

    name: str
    population: int = Field(description="Queries of the set in the stratum.")
    sampled: int = Field(description="Queries judged.")
    weight: float = Field(description="Queries of the set that a judged one stands for; 0 = none judged.")
    stages: list[StageCounts]


class LabellerReport(Record):
    """A labelling chain judged on one set. Settings, seed and digests are all that is needed to redo it."""

    collection: str
    kind: Literal["collection", "noted"]
    licence: str
    collection_digest: str = Field(description="SHA-256 over queries, gold and tools.")
    tools: int
    engine: str
    model: str = Field(description="Verifier.")
    encoder: str
    encoder_digest: str
    form: str = Field(description="Form of the question.")
    prompt_sha256: str
    decides_by: Literal["raw", "calibrated"]
    threshold: float
    min_cosine: float
    cosine_from: str = Field(description="Where the cosine comes from.")
    top_k: int
    lexical_top_k: int
    calibration: dict[str, Any] | None = Field(description="The map from raw score to probability, if any.")
    seed: int
    pairs_wanted: int
    kept_wanted: int
    max_pairs: int
    reached: bool = Field(description="Whether so many pairs were judged and kept.")
    judged_pairs: int = Field(description="Pairs of this chain put to the verifier.")
    kept_pairs: int
    unreadable: int = Field(description="Answers that could not be read; never kept.")
    failed: int = Field(description="Questions the engine did not answer; never kept.")
    auc_raw: float | None = Field(description="AUC of the raw score over the judged pairs.")
    auc_cosine: float | None = Field(description="AUC of the cosine over the same pairs.")
    pool: int = Field(description="Queries that could be drawn.")
    left_out: dict[str, int] = Field(description="Queries that could not, by reason.")
    strata: list[StratumReport]
    sample: StratumReport = Field(description="All judged queries, each counted once.")
    weighted: StratumReport = Field(description="All judged queries, weighted to the set.")
    by_retriever: dict[str, dict[str, int]] = Field(
        description="Judged pairs, right, kept, and kept and right, by the retriever that found them."
    )

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What a report is of; a newer one takes the place of an older one."""
        return self.collection, self.engine, self.model, self.encoder

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return self.model_dump(mode="json")

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LabellerReport:
        """The report of plain values."""
        return cls.model_validate(value)


@dataclass(frozen=True)
class QueryCounts:
    """What a stage leaves of one query; a query that deduplication drops is not ``counted``."""

    stratum: str
    pairs: int
    right: int
    gold: int
    counted: bool = True


def share(hits: float, of: float, effective: float | None = None) -> Share:
    """A share with its interval, from counts or from an effective size."""
    if of <= 0:
        return Share(hits=_shown(hits), of=_shown(of), value=None, low=None, high=None)
    value = hits / of
    low, high = wilson(value, of if effective is None else effective)
    return Share(
        hits=_shown(hits),
        of=_shown(of),
        value=round(value, DECIMALS),
        low=round(low, DECIMALS),
        high=round(high, DECIMALS),
        effective=None if effective is None else round(effective, 1),
    )


def _shown(number: float) -> float:
    return round(float(number), 2)


def weighted_share(parts: Sequence[tuple[str, float, float]], weights: Mapping[str, float]) -> Share:
    """Ratio of weighted sums over a stratified sample of queries.

    Its effective size comes from the linearised variance with queries as units (Cochran 1977, 6.13), so that
    neither the weights nor the likeness of a query's pairs makes the interval too narrow; never more
    than the pairs counted.

    Args:
        parts: (stratum, numerator, denominator) of each query.
        weights: weight by stratum.
    """
    hits = sum(weights[s] * y for s, y, _ in parts)
    of = sum(weights[s] * x for s, _, x in parts)
    if of <= 0:
        return share(hits, of)
    ratio, counted = hits / of, sum(x for _, _, x in parts)
    spread: dict[str, list[float]] = {}
    for stratum, y, x in parts:
        spread.setdefault(stratum, []).append(weights[stratum] * (y - ratio * x))
    variance = 0.0
    for values in spread.values():
        n = len(values)
        mean = sum(values) / n if n > 1 else 0.0
        variance += max(1.0, n / max(1, n - 1)) * sum((v - mean) ** 2 for v in values)
    variance /= of**2
    # The size that unequal weights alone leave (Kish 1965): where all or none is right there is no variance.
    effective = of**2 / sum(weights[s] ** 2 * x for s, _, x in parts)
    if variance > 1e-15 and 0 < ratio < 1:
        effective = min(effective, ratio * (1 - ratio) / variance)
    return share(hits, of, min(effective, counted))


def stage_counts(
    stage: StageName, rows: Sequence[QueryCounts], weights: Mapping[str, float] | None = None
) -> StageCounts:
    """Counts and shares of a stage; with weights those of the set."""
    counted = [r for r in rows if r.counted]

    def total(values: Iterable[tuple[str, float]]) -> float:
        return _shown(sum(v if weights is None else weights[s] * v for s, v in values))

    def ratio(parts: list[tuple[str, float, float]]) -> Share:
        if weights is not None:
            return weighted_share(parts, weights)
        return share(sum(y for _, y, _ in parts), sum(x for _, _, x in parts))

    return StageCounts(
        stage=stage,
        queries=total((r.stratum, 1) for r in counted),
        pairs=total((r.stratum, r.pairs) for r in counted),
        right=total((r.stratum, r.right) for r in counted),
        gold=total((r.stratum, r.gold) for r in counted),
        precision=ratio([(r.stratum, r.right, r.pairs) for r in counted]),
        recall=ratio([(r.stratum, r.right, r.gold) for r in counted]),
        answered=ratio([(r.stratum, float(r.counted and r.pairs > 0), 1.0) for r in rows]),
    )


def load_reports(path: Path) -> list[LabellerReport]:
    """Reports of a file.

    Raises:
        UserError: the file is not there or not one of ours.
    """
    if not path.is_file():
        raise UserError(
            f"{path} does not exist", remedy="make it with `ecoagent label --evaluate-on DIR --out FILE`"
        )
    try:
        return [LabellerReport.from_json(entry) for entry in read_json(path)["reports"]]
    except (ValidationError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} holds no reports of a labeller: {error}", remedy="give another --out, or move it away"
        ) from error


def merge_reports(path: Path, made: Sequence[LabellerReport]) -> list[LabellerReport]:
    """Write reports to a file that may hold others; one of the same set, verifier and encoder is replaced.

    Returns:
        All reports the file now holds, sorted by key.
    """
    reports = {r.key: r for r in (load_reports(path) if path.is_file() else [])}
    reports |= {r.key: r for r in made}
    ordered = [reports[key] for key in sorted(reports)]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"reports": [r.to_json() for r in ordered]})
    return ordered
