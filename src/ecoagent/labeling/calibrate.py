"""From raw verifier scores to probabilities, fitted on labelled pairs; proposals for both thresholds.

Three maps are tried, each judged on folds that keep a query's pairs together: temperature scaling of the
log-odds of the raw score, Platt scaling (temperature and bias), and isotonic regression. The lower log loss
wins.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal, Self, get_args

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field, ValidationError, model_validator

from ecoagent.labeling.verify import Form, prompt_sha256
from ecoagent.retrieval.rows import parse_value, path_kind, read_text
from ecoagent.schema import Record
from ecoagent.settings import UserError

EDGE = 1e-4
"""Raw scores are kept this far from 0 and 1 before their log-odds are taken."""
DECIMALS = 6
FOLDS = 5
FAULTS_TOLD = 3
_MAKE = "`ecoagent label --calibrate FILE`"
COSINE_KEEPS = 0.9
"""Share of right candidate pairs that the proposed cosine must let through."""
Floats = npt.NDArray[np.float64]
Method = Literal["temperature", "platt", "isotonic"]
METHODS: tuple[Method, ...] = get_args(Method)
"""From the fewest numbers fitted to the most: of two equal losses the simpler map wins."""


class Calibration(Record):
    """A fitted map and what it was fitted on."""

    # A probability of NaN would keep no pair and name no fault.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    model: str = Field(description="Verifier that was measured.")
    form: Form = Field(description="Form of the question.")
    encoder: str = Field(description="Encoder that proposed the pairs.")
    prompt_sha256: str = Field(description="Prompt that was measured.")
    requests: str = Field(description="Request set; its calibration fold was used.")
    requests_digest: str = Field(description="SHA-256 over the requests of that fold.")
    queries: int = Field(description="Requests with at least one judged pair.")
    pairs: int = Field(description="Candidate pairs the map was fitted on.")
    positives: int = Field(description="Right pairs among them.")
    auc: float = Field(description="AUC of the raw score over these pairs.")
    auc_cosine: float = Field(description="AUC of the encoder's cosine over the same pairs.")
    auc_by_form: dict[str, float] = Field(description="AUC of each form tried, over one common set of pairs.")
    form_pairs: int = Field(description="Size of that common set: candidates and noted tools beyond them.")
    unreadable_by_form: dict[str, int] = Field(
        default_factory=dict,
        description="Pairs of that set without a readable answer: they count as score 0.",
    )
    lexical_top_k: int = Field(default=0, description="BM25's tools among the candidates of a request.")
    method: Method = Field(description="Map with the lowest log loss.")
    slope: float | None = Field(
        default=None, description="Temperature, Platt: factor of the log-odds, 1 / temperature."
    )
    intercept: float | None = Field(default=None, description="Platt: bias.")
    knots_x: list[float] = Field(default_factory=list, description="Isotonic: raw scores, rising.")
    knots_y: list[float] = Field(default_factory=list, description="Isotonic: probabilities, rising.")
    log_loss: dict[str, float] = Field(description="Cross-validated log loss of each map, nats.")
    brier: float = Field(description="Cross-validated Brier score of the map chosen.")
    min_cosine: float = Field(description="Proposed cosine.")
    threshold: float = Field(description="Proposed cut-off of the calibrated probability.")
    precision: float = Field(description="Cross-validated precision of kept pairs at the cut-off.")
    recall: float = Field(description="Share of right judged pairs kept at the cut-off, cross-validated.")
    curve: list[dict[str, float]] = Field(
        description="Reliability curve: mean probability, share right and pairs per bin, cross-validated."
    )

    @model_validator(mode="after")
    def _has_a_map(self) -> Self:
        if self.method != "isotonic":
            if self.slope is None or (self.method == "platt" and self.intercept is None):
                raise ValueError(f"method {self.method} without its slope or intercept")
            return self
        if not self.knots_x or len(self.knots_x) != len(self.knots_y):
            raise ValueError("method isotonic needs knots_x and knots_y, equally many and at least one")
        if self.knots_x != sorted(self.knots_x) or self.knots_y != sorted(self.knots_y):
            raise ValueError("knots_x and knots_y must not fall")
        return self

    def probability(self, raw: float) -> float:
        """Probability that the pair is right, 6 decimals."""
        if self.method != "isotonic":
            value = _sigmoid((self.slope or 0.0) * _log_odds(raw) + (self.intercept or 0.0))
        else:
            value = float(np.interp(raw, self.knots_x, self.knots_y))
        return round(min(1.0, max(0.0, value)), DECIMALS)


@dataclass(frozen=True)
class LabelledPair:
    """A judged pair whose truth is known.

    Attributes:
        candidate: whether a retriever proposed it (else it is a noted tool beyond the nearest).
        pooled: whether BM25 proposed it, so that no cosine drops it.
    """

    query_id: str
    tool_id: str
    right: bool
    raw: float
    cosine: float
    candidate: bool = True
    pooled: bool = False


def _log_odds(raw: float) -> float:
    clipped = min(1 - EDGE, max(EDGE, raw))
    return math.log(clipped / (1 - clipped))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def auc(labels: Sequence[bool], scores: Sequence[float]) -> float:
    """Area under the ROC curve, ties counted half.

    Raises:
        UserError: only one class is there.
    """
    truth, values = np.array(labels, dtype=bool), np.array(scores, dtype=np.float64)
    positives, negatives = int(truth.sum()), int((~truth).sum())
    if not positives or not negatives:
        raise UserError(
            f"{positives} right and {negatives} wrong pairs: both are needed to calibrate",
            remedy="give more labelled requests",
        )
    ranks = np.empty(len(values))
    order = np.argsort(values, kind="stable")
    ranks[order] = np.arange(1, len(values) + 1)
    unique, inverse = np.unique(values, return_inverse=True)
    means = np.bincount(inverse, ranks) / np.bincount(inverse, minlength=len(unique))
    area = (means[inverse][truth].sum() - positives * (positives + 1) / 2) / (positives * negatives)
    return round(float(area), 4)


@dataclass(frozen=True)
class _Map:
    """A fitted map before it is written down."""

    method: Method
    slope: float = 0.0
    intercept: float = 0.0
    x: tuple[float, ...] = ()
    y: tuple[float, ...] = ()

    def apply(self, raw: Floats) -> Floats:
        if self.method == "isotonic":
            return np.interp(raw, self.x, self.y).astype(np.float64)
        odds = np.array([_log_odds(r) for r in raw])
        return np.array([_sigmoid(v) for v in self.slope * odds + self.intercept], dtype=np.float64)


def _fit(method: Method, raw: Floats, right: npt.NDArray[np.bool_]) -> _Map:
    if method != "isotonic":
        from sklearn.linear_model import LogisticRegression

        odds = np.array([[_log_odds(r)] for r in raw])
        biased = method == "platt"
        model = LogisticRegression(C=1e3, fit_intercept=biased).fit(odds, right)
        bias = float(model.intercept_[0]) if biased else 0.0
        return _Map(method, round(float(model.coef_[0, 0]), DECIMALS), round(bias, DECIMALS))
    from sklearn.isotonic import IsotonicRegression

    # A step seen all wrong or all right is no certainty: keep clear of 0 and 1.
    model = IsotonicRegression(y_min=0.01, y_max=0.99, out_of_bounds="clip").fit(raw, right.astype(float))
    x, y = model.X_thresholds_, model.y_thresholds_
    return _Map(
        "isotonic",
        x=tuple(round(float(v), DECIMALS) for v in x),
        y=tuple(round(float(v), DECIMALS) for v in y),
    )


def _cross_validated(method: Method, pairs: Sequence[LabelledPair], folds: npt.NDArray[np.int64]) -> Floats:
    raw, right = np.array([p.raw for p in pairs]), np.array([p.right for p in pairs])
    out = np.zeros(len(pairs))
    for fold in range(FOLDS):
        held = folds == fold
        if not held.any():
            continue
        train = ~held
        if right[train].all() or not right[train].any():
            out[held] = right[train].mean()
        else:
            out[held] = _fit(method, raw[train], right[train]).apply(raw[held])
    return out


def _log_loss(right: npt.NDArray[np.bool_], probability: Floats) -> float:
    p = np.clip(probability, 1e-6, 1 - 1e-6)
    return float(-np.mean(np.where(right, np.log(p), np.log(1 - p))))


def propose_cosine(right_cosines: Iterable[float], keeps: float = COSINE_KEEPS) -> float:
    """Largest cosine, to 0.01, that lets ``keeps`` of the right candidate pairs through.

    It only spares the verifier work; judging is the verifier's task.
    """
    ordered = sorted(right_cosines)
    if not ordered:
        raise UserError("no right pair among the candidates", remedy="give more labelled requests")
    dropped = math.floor((1 - keeps) * len(ordered) + 1e-9)
    return math.floor(ordered[dropped] * 100 + 1e-9) / 100


def propose_threshold(
    right: Sequence[bool], probability: Sequence[float], min_precision: float
) -> tuple[float, float, float]:
    """Cut-off, precision and recall: the most recall at ``min_precision``, else the best F1.

    Cut-offs are tried on a grid of 0.05; at least five pairs must stay.
    """
    truth, scores = np.array(right, dtype=bool), np.array(probability, dtype=np.float64)
    rows = []
    for cut in (round(0.05 * step, 2) for step in range(1, 20)):
        kept = scores >= cut
        if kept.sum() >= 5:
            hits = int((kept & truth).sum())
            rows.append((cut, hits / int(kept.sum()), hits / max(1, int(truth.sum()))))
    if not rows:
        raise UserError("too few pairs to propose a cut-off", remedy="give more labelled requests")
    precise = [r for r in rows if r[1] >= min_precision]
    if precise:
        return max(precise, key=lambda r: (r[2], -r[0]))
    return max(rows, key=lambda r: (2 * r[1] * r[2] / max(r[1] + r[2], 1e-9), -r[0]))


def fit_calibration(
    pairs: Sequence[LabelledPair],
    *,
    model: str,
    form: Form,
    encoder: str,
    requests: str,
    requests_digest: str,
    auc_by_form: dict[str, float],
    form_pairs: int,
    min_cosine: float,
    min_precision: float = 0.8,
    unreadable_by_form: dict[str, int] | None = None,
    lexical_top_k: int = 0,
) -> Calibration:
    """Fit on the candidate pairs, so that probabilities are those of the pairs that will be judged.

    Args:
        pairs: judged pairs; those that are no candidates at ``min_cosine`` are left out.
        auc_by_form: AUC of each form over ``form_pairs`` common pairs.
        min_precision: aim of the proposed cut-off.
        unreadable_by_form: of these, pairs without a readable answer.
        lexical_top_k: BM25's tools among the candidates; they are judged whatever their cosine.

    Raises:
        UserError: the pairs are all right or all wrong.
    """
    judged = (p for p in pairs if p.candidate and (p.pooled or p.cosine >= min_cosine))
    used = sorted(judged, key=lambda p: (p.query_id, p.tool_id))
    right = np.array([p.right for p in used], dtype=bool)
    area = auc(list(right), [p.raw for p in used])
    names = sorted({p.query_id for p in used})
    place = {name: i % FOLDS for i, name in enumerate(names)}
    folds = np.array([place[p.query_id] for p in used], dtype=np.int64)
    held_out = {m: _cross_validated(m, used, folds) for m in METHODS}
    losses = {m: round(_log_loss(right, held_out[m]), DECIMALS) for m in METHODS}
    chosen: Method = min(METHODS, key=lambda m: losses[m])
    final = _fit(chosen, np.array([p.raw for p in used]), right)
    probability = held_out[chosen]
    threshold, precision, recall = propose_threshold(
        [bool(r) for r in right], [float(p) for p in probability], min_precision
    )
    return Calibration(
        model=model,
        form=form,
        encoder=encoder,
        prompt_sha256=prompt_sha256(form),
        requests=requests,
        requests_digest=requests_digest,
        queries=len(names),
        pairs=len(used),
        positives=int(right.sum()),
        auc=area,
        auc_cosine=auc(list(right), [p.cosine for p in used]),
        auc_by_form=dict(sorted(auc_by_form.items())),
        form_pairs=form_pairs,
        unreadable_by_form=dict(sorted((unreadable_by_form or {}).items())),
        lexical_top_k=lexical_top_k,
        method=chosen,
        slope=final.slope if chosen != "isotonic" else None,
        intercept=final.intercept if chosen == "platt" else None,
        knots_x=list(final.x),
        knots_y=list(final.y),
        log_loss={str(m): loss for m, loss in losses.items()},
        brier=round(float(np.mean((probability - right) ** 2)), DECIMALS),
        min_cosine=min_cosine,
        threshold=threshold,
        precision=round(precision, 4),
        recall=round(recall, 4),
        curve=_curve(right, probability),
    )


def _curve(right: npt.NDArray[np.bool_], probability: Floats, bins: int = 5) -> list[dict[str, float]]:
    rows = []
    for step in range(bins):
        low, high = step / bins, (step + 1) / bins
        inside = (probability >= low) & ((probability < high) if step < bins - 1 else (probability <= 1))
        if inside.any():
            rows.append(
                {
                    "mean_probability": round(float(probability[inside].mean()), 4),
                    "share_right": round(float(right[inside].mean()), 4),
                    "pairs": float(inside.sum()),
                }
            )
    return rows


def load_calibrations(path: Path | None = None) -> list[Calibration]:
    """Calibrations of a file; without a path those shipped.

    Raises:
        UserError: the file is not there or not one of ours.
    """
    if path is None:
        text = resources.files("ecoagent.labeling").joinpath("data/calibration.json").read_text("utf-8")
    elif path_kind(path) == "file":
        text = read_text(path)
    else:
        fault = "is a folder" if path_kind(path) == "folder" else "does not exist"
        raise UserError(f"calibration file {path} {fault}", remedy=f"make it with {_MAKE}")
    shown = f"{path or 'calibration.json'} is no calibration file"
    remedy = f"delete it, or name another, and make it anew with {_MAKE}"
    raw = parse_value(text, shown, remedy=remedy)
    entries = raw.get("calibrations") if isinstance(raw, dict) else None
    if not isinstance(entries, list):
        raise UserError(f'{shown}: it has no list "calibrations"', remedy=remedy)
    found = []
    for number, entry in enumerate(entries, start=1):
        try:
            found.append(Calibration.model_validate(entry))
        except ValidationError as error:
            told = error.errors()[:FAULTS_TOLD]
            faults = "; ".join(": ".join([*map(str, e["loc"]), e["msg"]]) for e in told)
            raise UserError(f"{shown}: entry {number}: {faults}", remedy=remedy) from error
    return found


def find_calibration(model: str, encoder: str, form: Form, path: Path | None = None) -> Calibration | None:
    """Calibration of a verifier and form behind an encoder, made with the present prompt; else None."""
    for entry in load_calibrations(path):
        same = (entry.model, entry.encoder, entry.form) == (model, encoder, form)
        if same and entry.prompt_sha256 == prompt_sha256(form):
            return entry
    return None
