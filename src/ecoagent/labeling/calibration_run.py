"""Measures a verifier on the calibration fold: the form of the question, the map, both thresholds.

The cosine comes first and costs no verdict: it is read off the right pairs among each request's nearest
tools. All forms are then asked about the pairs of one sample of requests, and a noted tool beyond the nearest
for each; the form with the best AUC is asked about the candidate pairs of the rest. Candidates are those the
labelling stage would judge: with ``labeling.lexical_top_k`` also BM25's, whatever their cosine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ecoagent.labeling.calibrate import Calibration, LabelledPair, auc, fit_calibration, propose_cosine
from ecoagent.labeling.candidates import find_candidates
from ecoagent.labeling.estimate import verification_cost
from ecoagent.labeling.prepare import duplicate_members, noted_tools, seeded_order, unique_requests
from ecoagent.labeling.requests import Request, RequestSet, load_requests
from ecoagent.labeling.verify import FORMS, Form, Judged, ToolCard, verify_pairs
from ecoagent.llm import open_engine
from ecoagent.models import ModelStore
from ecoagent.retrieval.encoders import load_encoder
from ecoagent.runs import Progress, digest, write_json
from ecoagent.schema import NormalizedTool
from ecoagent.settings import Settings, UserError

NOTED_BEYOND = 1
"""Noted tools beyond the nearest, per request: right pairs that the encoder alone would not show."""
FORM_REQUESTS = 20
"""Requests that every form is asked about."""


@dataclass(frozen=True)
class _Pairs:
    """Pairs of the calibration fold.

    Attributes:
        right: noted tools by request.
        cosine: of every pair proposed, by the encoder or BM25.
        dense: of those the encoder proposed.
        pooled: pairs that BM25 proposed.
        beyond: noted tools that nobody proposed.
    """

    texts: dict[str, str]
    right: dict[str, frozenset[str]]
    cosine: dict[tuple[str, str], float]
    dense: dict[tuple[str, str], float]
    pooled: frozenset[tuple[str, str]]
    beyond: tuple[tuple[str, str], ...]
    fold_digest: str
    name: str

    def candidates(self, queries: Sequence[str], min_cosine: float) -> list[tuple[str, str]]:
        """Candidate pairs of some queries: at the cosine, or found by BM25."""
        wanted = set(queries)
        return [
            pair
            for pair, cosine in self.cosine.items()
            if pair[0] in wanted and (cosine >= min_cosine or pair in self.pooled)
        ]

    def noted_beyond(self, queries: Sequence[str]) -> list[tuple[str, str]]:
        """Noted tools of some queries that are not among the nearest."""
        wanted = set(queries)
        return [p for p in self.beyond if p[0] in wanted]

    def is_right(self, judged: Judged) -> bool:
        """Whether the pair is noted as right."""
        return judged.tool_id in self.right[judged.query_id]

    def labelled(self, judged: Judged, raw: float) -> LabelledPair:
        """The judged pair with its truth."""
        pair = (judged.query_id, judged.tool_id)
        return LabelledPair(
            *pair,
            self.is_right(judged),
            raw,
            self.cosine.get(pair, 0.0),
            candidate=pair in self.cosine,
            pooled=pair in self.pooled,
        )


def calibrate_verifier(
    settings: Settings,
    tools: Sequence[NormalizedTool],
    progress: Progress | None = None,
    *,
    forms: Sequence[Form] = FORMS,
    form_requests: int = FORM_REQUESTS,
    most_requests: int | None = None,
    min_precision: float = 0.8,
) -> Calibration:
    """Calibrate ``llm.model`` behind ``labeling.encoder`` on the calibration fold of the request set.

    Args:
        tools: the catalog whose ids the requests' notes use.
        forms: forms to compare; one = no comparison.
        form_requests: requests each form is asked about.
        most_requests: requests the best form is asked about; none = the whole fold.
        min_precision: aim of the proposed cut-off.

    Raises:
        UserError: the set has no noted calibration fold, its pairs are all right or all wrong, or no answer
            can be read.
    """
    pairs = _pairs(settings, tools)
    cards = {t.id: ToolCard.of(t) for t in tools}
    engine = open_engine(settings, progress)
    order = seeded_order(sorted(pairs.texts), settings.seed, "calibrate")
    cosine = propose_cosine(c for (q, t), c in pairs.dense.items() if t in pairs.right[q])
    common = pairs.candidates(order[:form_requests], cosine) + pairs.noted_beyond(order[:form_requests])

    def ask(form: Form, wanted: Sequence[tuple[str, str]]) -> list[Judged]:
        return verify_pairs(
            engine,
            wanted,
            pairs.texts,
            cards,
            form,
            max_tokens=settings.labeling.verifier_max_tokens,
            label=f"calibrate {form}",
        )

    areas: dict[Form, float] = {}
    unreadable: dict[str, int] = {}
    for form in forms:
        answered = ask(form, common)
        # What cannot be read is not kept, so it counts as 0: each form is judged on every pair.
        areas[form] = auc([pairs.is_right(j) for j in answered], [j.raw or 0.0 for j in answered])
        unreadable[form] = sum(j.raw is None for j in answered)
    best = max(areas, key=lambda f: (areas[f], f))
    judged = ask(best, pairs.candidates(order[:most_requests], cosine))
    if all(j.raw is None for j in judged):
        raise UserError(
            f"no answer of {settings.llm.model} could be read in any form of the question",
            remedy="try another model, or see that the engine answers",
        )
    return fit_calibration(
        [pairs.labelled(j, j.raw) for j in judged if j.raw is not None],
        model=settings.llm.model,
        form=best,
        encoder=settings.labeling.encoder,
        requests=pairs.name,
        requests_digest=pairs.fold_digest,
        auc_by_form={str(f): a for f, a in areas.items()},
        form_pairs=len(common),
        min_cosine=cosine,
        min_precision=min_precision,
        unreadable_by_form=unreadable,
        lexical_top_k=settings.labeling.lexical_top_k,
    )


def calibration_plan(
    settings: Settings,
    tools: Sequence[NormalizedTool],
    *,
    forms: Sequence[Form] = FORMS,
    form_requests: int = FORM_REQUESTS,
    most_requests: int | None = None,
) -> dict[str, Any]:
    """What a calibration costs at most: which pairs are candidates shows only once there are cosines.

    Args:
        tools, forms, form_requests, most_requests: as ``calibrate_verifier`` takes them.

    Raises:
        UserError: the set has no noted calibration fold.
    """
    labeling = settings.labeling
    loaded, fold = _calibration_fold(settings)
    unique, _ = unique_requests(fold)
    asked = len(unique) if most_requests is None else min(most_requests, len(unique))
    sample = min(form_requests, len(unique))
    a_request = min(labeling.top_k + labeling.lexical_top_k, len(tools))
    per_form = sample * min(a_request + NOTED_BEYOND, len(tools))
    # The best form has answered the sample already.
    rest = max(0, asked - sample) * a_request
    cards, texts = [ToolCard.of(t) for t in tools], [r.text for r in unique.values()]
    costs = []
    for form in forms:
        chosen = settings.model_copy(update={"labeling": labeling.model_copy(update={"verifier_form": form})})
        costs.append([verification_cost(chosen, cards, texts, pairs) for pairs in (per_form, rest)])
    # Which form will be the best is not known: the rest costs what the dearest would.
    parts = [c for c, _ in costs] + [max((r for _, r in costs), key=lambda r: (r.minutes, r.tokens_in))]
    planned: dict[str, Any] = {
        "set": loaded.name,
        "requests_of_the_fold": len(fold),
        "requests_asked_about": max(asked, sample),
        "forms": ", ".join(forms),
        "requests_for_each_form": sample,
        "encoder": labeling.encoder,
        "texts_to_encode_at_most": len(tools) + len(unique),
        "pairs_verified_at_most": per_form * len(forms) + rest,
        "requests_at_most": sum(p.requests for p in parts),
        "tokens_in_at_most": sum(p.tokens_in for p in parts),
        "tokens_out_at_most": sum(p.tokens_out for p in parts),
        "minutes_at_most": round(sum(p.minutes for p in parts), 1),
        "speed": parts[0].basis,
    }
    prices = [p.dollars for p in parts if p.dollars is not None]
    return {**planned, "dollars_at_most": round(sum(prices), 4)} if prices else planned


def write_calibrations(path: Path, calibrations: Sequence[Calibration]) -> Path:
    """Write a calibration file, sorted by model, encoder and form."""
    ordered = sorted(calibrations, key=lambda c: (c.model, c.encoder, c.form))
    return write_json(path, {"calibrations": [c.model_dump(mode="json") for c in ordered]})


def _calibration_fold(settings: Settings) -> tuple[RequestSet, list[Request]]:
    loaded = load_requests(settings.labeling.queries)
    fold = [r for r in loaded.requests if r.fold == "calibration"]
    if not fold or not loaded.noted:
        raise UserError(
            f"{loaded.name} has no calibration fold with noted tools",
            remedy='mark some rows "fold": "calibration" and give their "gold", or use the project\'s set',
        )
    return loaded, fold


def _pairs(settings: Settings, tools: Sequence[NormalizedTool]) -> _Pairs:
    labeling = settings.labeling
    loaded, fold = _calibration_fold(settings)
    unique, _ = unique_requests(fold)
    members = duplicate_members(tools)
    right = {i: n.gold for i, n in noted_tools(unique, members).items()}
    name = labeling.encoder
    encoder = load_encoder(ModelStore(settings.models).path(name), name=name, pooling=None)
    texts = {i: r.text for i, r in unique.items()}
    found = find_candidates(
        encoder,
        texts,
        sorted((t.id, t.tool_text) for t in tools),
        top_k=labeling.top_k,
        min_cosine=-1.0,
        lexical_top_k=labeling.lexical_top_k,
    )
    cosine = {(p.query_id, p.tool_id): p.cosine for p in found.kept}
    dense = {(p.query_id, p.tool_id): p.cosine for p in found.kept if p.retriever != "bm25"}
    pooled = frozenset((p.query_id, p.tool_id) for p in found.kept if p.retriever != "dense")
    beyond = []
    for query in sorted(texts):
        rest = [t for t in sorted(right[query]) if (query, t) not in cosine]
        beyond += [(query, t) for t in seeded_order(rest, settings.seed, query)[:NOTED_BEYOND]]
    fold_digest = digest([r.model_dump(mode="json") for r in sorted(fold, key=lambda r: r.id)])
    return _Pairs(texts, right, cosine, dense, pooled, tuple(beyond), fold_digest, loaded.name)
