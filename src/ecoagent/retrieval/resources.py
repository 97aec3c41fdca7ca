"""What rankers draw on: settings, weights, and the encoder of each dense declaration."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ecoagent.retrieval.declared import BASELINES, Baseline, Kind, NotAvailable
from ecoagent.retrieval.encoders import Encoder, SentenceEncoder, load_encoder, load_two_tower
from ecoagent.retrieval.endpoint import EndpointEncoder
from ecoagent.retrieval.expansion import ExpandedEncoder, load_expansion
from ecoagent.retrieval.runs import RankedRun
from ecoagent.retrieval.towers import build_towers, build_two_tower
from ecoagent.settings import BaselineSettings, TrainSettings, UserError

DRAGON = "facebook/dragon-plus-query-encoder"
EXPANSION = "expansion.npz"
"""File in the siamese encoder's folder: mean vector of each tool's training queries."""


@dataclass(frozen=True)
class RankerResources:
    """What a ranker may need beyond the texts."""

    settings: TrainSettings
    model_path: Callable[[str], Path]
    """Folder of a model by name; may download it."""
    trained: Path | None = None
    """Folder of the trained towers."""
    baselines: BaselineSettings = field(default_factory=BaselineSettings)
    run_of: Callable[[str], RankedRun] | None = None
    """Runs of other rankers over the same texts, at least ``RERANK_TOP`` deep; none = they are made anew."""
    siamese: Path | None = None
    """Folder of the trained siamese encoder."""

    def encoder_of(self, ranker: str) -> Encoder:
        """The encoder of a dense ranker.

        Raises:
            UserError: ``ranker`` is not dense, or its weights are missing.
        """
        declared = BASELINES.get(ranker)
        if declared is None or declared.kind not in _ENCODER:
            names = ", ".join(name for name, other in BASELINES.items() if other.kind in _ENCODER)
            raise UserError(f"ranker {ranker!r} has no encoder", remedy=f"use one of {names}")
        return _ENCODER[declared.kind](declared, self)

    def weights(self, declared: Baseline) -> list[Path]:
        """Folders of a baseline's weights.

        Raises:
            NotAvailable: they cannot be had.
        """
        try:
            return [self.model_path(name) for name in declared.models]
        except UserError as error:
            raise NotAvailable(error.message, remedy=error.remedy) from error


def short_name(settings: TrainSettings) -> str:
    """The encoder of both towers as tables show it, without its owner."""
    names = dict.fromkeys(n.rsplit("/", 1)[-1] for n in (settings.query_encoder, settings.tool_encoder))
    return " + ".join(names)


def in_role(settings: TrainSettings) -> bool:
    """Whether another model stands in for DRAGON."""
    return settings.query_encoder != DRAGON


def _pretrained(declared: Baseline, resources: RankerResources) -> Encoder:
    """The untrained encoder as its makers pool it; two models are two towers."""
    settings = resources.settings
    if settings.query_encoder != settings.tool_encoder:
        return _untrained_towers(declared, resources)
    return load_encoder(
        resources.model_path(settings.query_encoder),
        name=short_name(settings),
        pooling=None,
        max_length=settings.max_length,
        query_prefix=settings.query_prefix,
        document_prefix=settings.tool_prefix,
    )


def _untrained_towers(declared: Baseline, resources: RankerResources) -> Encoder:
    settings = resources.settings
    model = build_towers(
        settings, resources.model_path(settings.query_encoder), resources.model_path(settings.tool_encoder)
    )
    return SentenceEncoder(model, name=short_name(settings))


def _trained_towers(declared: Baseline, resources: RankerResources) -> Encoder:
    if resources.trained is None:
        raise UserError("the towers have not been trained", remedy="run `ecoagent train` first")
    return load_two_tower(resources.trained, name=f"RATED ({short_name(resources.settings)})")


def _siamese(declared: Baseline, resources: RankerResources) -> Encoder:
    if resources.siamese is None:
        raise NotAvailable("the siamese encoder has not been trained", remedy="run `ecoagent train`")
    settings = resources.settings.siamese
    name = settings.encoder.rsplit("/", 1)[-1]
    encoder = load_two_tower(resources.siamese, name=f"siamese ({name})")
    if settings.expansion_weight == 0:
        return encoder
    if not (resources.siamese / EXPANSION).is_file():
        raise NotAvailable(
            "the siamese encoder was trained without train.siamese.expansion_weight",
            remedy="run `ecoagent train`",
        )
    queries = load_expansion(resources.siamese / EXPANSION)
    return ExpandedEncoder(encoder, queries, settings.expansion_weight)


def _dense(declared: Baseline, resources: RankerResources) -> Encoder:
    (path,) = resources.weights(declared)
    return load_encoder(
        path,
        name=declared.label,
        pooling=declared.pooling,
        max_length=declared.max_length,
        query_prefix=declared.query_prefix,
        document_prefix=declared.document_prefix,
        batch_size=declared.batch_size,
    )


def _two_tower(declared: Baseline, resources: RankerResources) -> Encoder:
    query_path, tool_path = resources.weights(declared)
    model = build_two_tower(
        query_path,
        tool_path,
        pooling=declared.pooling or "cls",
        max_length=declared.max_length,
        query_prefix=declared.query_prefix,
        tool_prefix=declared.document_prefix,
    )
    return SentenceEncoder(
        model, name=declared.label, batch_size=declared.batch_size, normalize=declared.normalize
    )


def _endpoint(declared: Baseline, resources: RankerResources) -> Encoder:
    settings = resources.baselines
    return EndpointEncoder(settings, api_key=os.environ.get(settings.api_key_env))


_ENCODER: Mapping[Kind, Callable[[Baseline, RankerResources], Encoder]] = {
    "pretrained": _pretrained,
    "untrained_towers": _untrained_towers,
    "trained_towers": _trained_towers,
    "siamese": _siamese,
    "dense": _dense,
    "two_tower": _two_tower,
    "endpoint": _endpoint,
}
