"""Rankers of the offline table (Table 1), each a small registered declaration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ecoagent.models import known_models
from ecoagent.retrieval.dense import rank_dense
from ecoagent.retrieval.encoders import Encoder, OnBatch, SentenceEncoder, load_encoder, load_two_tower
from ecoagent.retrieval.lexical import rank_bm25, rank_tfidf
from ecoagent.retrieval.runs import RankedRun, TextSet
from ecoagent.retrieval.towers import build_two_tower
from ecoagent.settings import TrainSettings, UserError

DRAGON = "facebook/dragon-plus-query-encoder"


@dataclass(frozen=True)
class RankerResources:
    """What a ranker may need beyond the texts."""

    settings: TrainSettings
    model_path: Callable[[str], Path]
    """Folder of a model by name; may download it."""
    trained: Path | None = None
    """Folder of the trained towers."""

    def encoder_of(self, ranker: str) -> Encoder:
        """The encoder of a dense ranker.

        Raises:
            UserError: ``ranker`` is not dense, or its weights are missing.
        """
        if ranker not in _ENCODERS:
            raise UserError(f"ranker {ranker!r} has no encoder", remedy=f"use one of {', '.join(_ENCODERS)}")
        return _ENCODERS[ranker](self)


class Rank(Protocol):
    """Ranks tools for queries."""

    def __call__(
        self, resources: RankerResources, queries: TextSet, tools: TextSet, k: int, on_batch: OnBatch | None
    ) -> RankedRun:
        """The ``k`` best tools per query."""
        ...


@dataclass(frozen=True)
class Ranker:
    """A row of the offline table."""

    name: str
    role: str
    """Its row in the paper's Table 1."""
    label: Callable[[TrainSettings], str]
    """What the table shows; names the model that really runs."""
    model: Callable[[TrainSettings], str]
    """Model id, or the library that does the work."""
    dense: bool
    trained: bool
    rank: Rank

    def licence(self, settings: TrainSettings) -> str:
        """Licence of the weights as the weights table has it; empty where there are none."""
        if not self.dense:
            return ""
        names = dict.fromkeys((settings.query_encoder, settings.tool_encoder))
        table = known_models()
        return ", ".join(dict.fromkeys(table[n].licence if n in table else "unknown" for n in names))


def short_name(settings: TrainSettings) -> str:
    """The encoder of both towers as tables show it, without its owner."""
    names = dict.fromkeys(n.rsplit("/", 1)[-1] for n in (settings.query_encoder, settings.tool_encoder))
    return " + ".join(names)


def in_role(settings: TrainSettings) -> bool:
    """Whether another model stands in for DRAGON."""
    return settings.query_encoder != DRAGON


def _towers(settings: TrainSettings) -> str:
    return " + ".join(dict.fromkeys((settings.query_encoder, settings.tool_encoder)))


def _pretrained(resources: RankerResources) -> Encoder:
    """The untrained encoder as its makers pool it; two models are two towers."""
    settings = resources.settings
    if settings.query_encoder != settings.tool_encoder:
        return _untrained_towers(resources)
    return load_encoder(
        resources.model_path(settings.query_encoder),
        name=short_name(settings),
        pooling=None,
        max_length=settings.max_length,
        query_prefix=settings.query_prefix,
        document_prefix=settings.tool_prefix,
    )


def _untrained_towers(resources: RankerResources) -> Encoder:
    settings = resources.settings
    model = build_two_tower(
        resources.model_path(settings.query_encoder),
        resources.model_path(settings.tool_encoder),
        pooling=settings.pooling,
        max_length=settings.max_length,
        query_prefix=settings.query_prefix,
        tool_prefix=settings.tool_prefix,
    )
    return SentenceEncoder(model, name=short_name(settings))


def _trained_towers(resources: RankerResources) -> Encoder:
    if resources.trained is None:
        raise UserError("the towers have not been trained", remedy="run `ecoagent train` first")
    return load_two_tower(resources.trained, name=f"RATED ({short_name(resources.settings)})")


_ENCODERS: dict[str, Callable[[RankerResources], Encoder]] = {
    "encoder": _pretrained,
    "rated_wo_contrastive": _untrained_towers,
    "rated": _trained_towers,
}


def _dense(name: str) -> Rank:
    def rank(
        resources: RankerResources, queries: TextSet, tools: TextSet, k: int, on_batch: OnBatch | None
    ) -> RankedRun:
        return rank_dense(resources.encoder_of(name), queries, tools, k, name=name, on_batch=on_batch)

    return rank


def _tfidf(
    resources: RankerResources, queries: TextSet, tools: TextSet, k: int, on_batch: OnBatch | None
) -> RankedRun:
    return rank_tfidf(queries, tools, k)


def _bm25(
    resources: RankerResources, queries: TextSet, tools: TextSet, k: int, on_batch: OnBatch | None
) -> RankedRun:
    return rank_bm25(queries, tools, k)


def _encoder_label(settings: TrainSettings) -> str:
    if not in_role(settings):
        return "DRAGON"
    return f"{short_name(settings)} (untrained, in DRAGON's role)"


def _rated_label(suffix: str) -> Callable[[TrainSettings], str]:
    def label(settings: TrainSettings) -> str:
        towers = f" ({short_name(settings)} towers)" if in_role(settings) else ""
        return f"RATED{suffix}{towers}"

    return label


RANKERS: dict[str, Ranker] = {
    ranker.name: ranker
    for ranker in (
        Ranker("tfidf", "TF-IDF", lambda s: "TF-IDF", lambda s: "scikit-learn", False, False, _tfidf),
        Ranker("bm25", "BM25", lambda s: "BM25", lambda s: "bm25s", False, False, _bm25),
        Ranker("encoder", "DRAGON", _encoder_label, _towers, True, False, _dense("encoder")),
        Ranker(
            "rated_wo_contrastive",
            "RATED w/o Contrastive",
            _rated_label(" w/o Contrastive"),
            _towers,
            True,
            False,
            _dense("rated_wo_contrastive"),
        ),
        Ranker("rated", "RATED", _rated_label(""), _towers, True, True, _dense("rated")),
    )
}
"""Rankers by name, in the order of the table."""


def find_ranker(name: str) -> Ranker:
    """The ranker called ``name``.

    Raises:
        UserError: there is none.
    """
    if name not in RANKERS:
        raise UserError(f"unknown ranker {name!r}", remedy=f"use {', '.join(RANKERS)} in evaluate.rankers")
    return RANKERS[name]
