"""Rankers of the offline table (Table 1): what each declaration does with queries and tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ecoagent.models import ModelStore, known_models
from ecoagent.retrieval.declared import (
    BASELINES,
    ENCODERS,
    LEXICAL,
    OWN,
    RERANK_TOP,
    TRAINED,
    Baseline,
    Kind,
    NotAvailable,
)
from ecoagent.retrieval.dense import rank_dense
from ecoagent.retrieval.encoders import OnBatch
from ecoagent.retrieval.fusion import reciprocal_rank_fusion
from ecoagent.retrieval.lexical import rank_bm25, rank_tfidf
from ecoagent.retrieval.rerank import load_reranker, rerank
from ecoagent.retrieval.resources import RankerResources, in_role, short_name
from ecoagent.retrieval.runs import RankedRun, TextSet
from ecoagent.retrieval.sparse import load_sparse, rank_sparse
from ecoagent.settings import BaselineSettings, TrainSettings, UserError

_ADA = str(BaselineSettings.model_fields["model"].default)


@dataclass(frozen=True)
class Ranker:
    """A row of the offline table, ready to run."""

    declared: Baseline

    @property
    def name(self) -> str:
        """As ``evaluate.rankers`` names it."""
        return self.declared.name

    @property
    def role(self) -> str:
        """Its row in the paper's Table 1; empty = not in it."""
        return self.declared.role

    @property
    def dense(self) -> bool:
        """Whether it ranks by vectors of an encoder."""
        return self.declared.kind in ENCODERS

    @property
    def lexical(self) -> bool:
        """Whether it ranks by the words of the texts."""
        return self.declared.kind in LEXICAL

    @property
    def own(self) -> bool:
        """Whether its encoder is the run's own, so that the run cannot do without it."""
        return self.declared.kind in OWN

    @property
    def trained(self) -> bool:
        """Whether it needs an encoder that the run has trained."""
        return self.declared.kind in TRAINED

    def parts(self, settings: TrainSettings) -> tuple[str, ...]:
        """Rankers whose runs it starts from."""
        if self.declared.kind == "fusion":
            return ("bm25", first_stage(settings))
        return (first_stage(settings),) if self.declared.kind == "reranker" else ()

    def models(self, settings: TrainSettings) -> tuple[str, ...]:
        """Names of its weights, those of its parts included."""
        if self.own:
            own: tuple[str, ...] = (settings.query_encoder, settings.tool_encoder)
        elif self.declared.kind == "siamese":
            own = (settings.siamese.encoder,)
        else:
            own = self.declared.models
        below = (name for part in self.parts(settings) for name in find_ranker(part).models(settings))
        return tuple(dict.fromkeys((*own, *below)))

    def label(self, settings: TrainSettings, baselines: BaselineSettings | None = None) -> str:
        """What the table shows; names the model that really runs. ``baselines``: none = the paper's."""
        if self.declared.kind == "endpoint" and baselines is not None and baselines.model != _ADA:
            return f"{baselines.model} (endpoint, in {self.role}'s role)"
        if self.declared.kind in _OWN_LABEL:
            return _OWN_LABEL[self.declared.kind](settings)
        if self.declared.kind == "reranker":
            return f"{self.declared.label} on the top {RERANK_TOP} of {_first_name(settings)}"
        return self.declared.label.format(first=_first_name(settings))

    def model(self, settings: TrainSettings, baselines: BaselineSettings | None = None) -> str:
        """Model ids, or the library that does the work."""
        if self.declared.kind == "endpoint":
            return (baselines or BaselineSettings()).model
        libraries = [find_ranker(part).declared.library for part in self.parts(settings)]
        libraries.append(self.declared.library)
        return " + ".join([*filter(None, libraries), *self.models(settings)])

    def licence(self, settings: TrainSettings) -> str:
        """Licence of the weights; empty where there are none."""
        return self.declared.licence(self.models(settings))

    def work(self, settings: TrainSettings, queries: TextSet, tools: TextSet) -> int:
        """Texts it encodes, or pairs it reads, its parts left out; 0 where it is too quick to count."""
        if self.declared.kind == "reranker":
            return len(queries) * min(RERANK_TOP, len(tools))
        if self.dense or self.declared.kind == "sparse":
            return len(set(queries.texts)) + len(set(tools.texts))
        return 0

    def rank(
        self, resources: RankerResources, queries: TextSet, tools: TextSet, k: int, on_batch: OnBatch | None
    ) -> RankedRun:
        """The ``k`` best tools per query.

        Raises:
            NotAvailable: weights or an endpoint cannot be had, here or in a ranker it starts from.
            UserError: the run's own encoder is missing.
        """
        return _RANK[self.declared.kind](self, resources, queries, tools, k, on_batch)

    def fault(self, settings: TrainSettings, baselines: BaselineSettings, store: ModelStore) -> str | None:
        """Why it cannot run here, as far as settings and the store say; none = it can be tried.

        Asks no network. The run's own encoders have no fault: without them the run stops.
        """
        if self.own:
            return None
        if self.declared.kind == "endpoint" and not baselines.base_url:
            return "no embeddings endpoint is configured (baselines.base_url)"
        for part in self.parts(settings):
            if found := find_ranker(part).fault(settings, baselines, store):
                return f"{find_ranker(part).label(settings)}, which it starts from, cannot run: {found}"
        for name in (settings.siamese.encoder,) if self.declared.kind == "siamese" else self.declared.models:
            if found := _weights_fault(name, baselines, store):
                return found
        return None


def _weights_fault(name: str, baselines: BaselineSettings, store: ModelStore) -> str | None:
    if name in store.settings.local or any(
        row.name == name and row.state == "ready" for row in store.status()
    ):
        return None
    source = known_models().get(name)
    if source is None:
        return f"no pinned source of {name} is known; give a copy as models.local"
    if baselines.pull == "all" or (baselines.pull == "packages" and source.packages):
        return None
    return f"the weights of {name} are not in the store, and baselines.pull = {baselines.pull} fetches none"


def first_stage(settings: TrainSettings) -> str:
    """The dense ranker that the reranker and the hybrid start from: DRAGON, or what stands in for it."""
    return "encoder" if in_role(settings) else "dragon"


def _first_name(settings: TrainSettings) -> str:
    return short_name(settings) if in_role(settings) else BASELINES["dragon"].label


def _encoder_label(settings: TrainSettings) -> str:
    if not in_role(settings):
        return "DRAGON (cosine)"
    return f"{short_name(settings)} (untrained, in DRAGON's role)"


def _rated_label(suffix: str) -> Callable[[TrainSettings], str]:
    def label(settings: TrainSettings) -> str:
        towers = f" ({short_name(settings)} towers)" if in_role(settings) else ""
        return f"RATED{suffix}{towers}"

    return label


def _siamese_label(settings: TrainSettings) -> str:
    name = settings.siamese.encoder.rsplit("/", 1)[-1]
    more = ", training queries in tool vectors" if settings.siamese.expansion_weight > 0 else ""
    return f"Siamese encoder ({name}, trained{more})"


_OWN_LABEL: Mapping[Kind, Callable[[TrainSettings], str]] = {
    "pretrained": _encoder_label,
    "untrained_towers": _rated_label(" w/o Contrastive"),
    "trained_towers": _rated_label(""),
    "siamese": _siamese_label,
}


# -- rankings --------------------------------------------------------------------------------

_Rank = Callable[[Ranker, RankerResources, TextSet, TextSet, int, OnBatch | None], RankedRun]


def _by_words(rank: Callable[..., RankedRun]) -> _Rank:
    def ranked(
        ranker: Ranker, resources: RankerResources, queries: TextSet, tools: TextSet, k: int, on_batch: Any
    ) -> RankedRun:
        return rank(queries, tools, k, name=ranker.name, analysis=resources.baselines.lexical)

    return ranked


def _by_vectors(
    ranker: Ranker, resources: RankerResources, queries: TextSet, tools: TextSet, k: int, on_batch: Any
) -> RankedRun:
    encoder = resources.encoder_of(ranker.name)
    return rank_dense(
        encoder, queries, tools, k, name=ranker.name, on_batch=on_batch, decimals=ranker.declared.decimals
    )


def _by_terms(
    ranker: Ranker, resources: RankerResources, queries: TextSet, tools: TextSet, k: int, on_batch: Any
) -> RankedRun:
    declared = ranker.declared
    (path,) = resources.weights(declared)
    encoder = load_sparse(
        path, name=declared.label, max_length=declared.max_length, batch_size=declared.batch_size
    )
    return rank_sparse(encoder, queries, tools, k, name=ranker.name, on_batch=on_batch)


def _part_runs(
    ranker: Ranker, resources: RankerResources, queries: TextSet, tools: TextSet, k: int
) -> list[RankedRun]:
    runs = []
    for part in ranker.parts(resources.settings):
        try:
            if resources.run_of is not None:
                runs.append(resources.run_of(part))
            else:
                depth = max(k, RERANK_TOP)
                runs.append(find_ranker(part).rank(resources, queries, tools, depth, None))
        except NotAvailable as error:
            label = find_ranker(part).label(resources.settings)
            raise NotAvailable(
                f"{label}, which it starts from, cannot run: {error.message}", remedy=error.remedy
            ) from error
    return runs


def _fused(
    ranker: Ranker, resources: RankerResources, queries: TextSet, tools: TextSet, k: int, on_batch: Any
) -> RankedRun:
    return reciprocal_rank_fusion(_part_runs(ranker, resources, queries, tools, k), k, name=ranker.name)


def _reranked(
    ranker: Ranker, resources: RankerResources, queries: TextSet, tools: TextSet, k: int, on_batch: Any
) -> RankedRun:
    declared = ranker.declared
    (path,) = resources.weights(declared)
    (first,) = _part_runs(ranker, resources, queries, tools, k)
    scorer = load_reranker(
        path, name=declared.label, max_length=declared.max_length, batch_size=declared.batch_size
    )
    return rerank(scorer.score, first, queries, tools, k, name=ranker.name, on_batch=on_batch)


_RANK: Mapping[Kind, _Rank] = {
    "tfidf": _by_words(rank_tfidf),
    "bm25": _by_words(rank_bm25),
    "sparse": _by_terms,
    "fusion": _fused,
    "reranker": _reranked,
    **dict.fromkeys(ENCODERS, _by_vectors),
}


RANKERS: dict[str, Ranker] = {name: Ranker(declared) for name, declared in BASELINES.items()}
"""Rankers by name."""


def find_ranker(name: str) -> Ranker:
    """The ranker called ``name``.

    Raises:
        UserError: there is none.
    """
    if name not in RANKERS:
        raise UserError(f"unknown ranker {name!r}", remedy=f"use {', '.join(RANKERS)} in evaluate.rankers")
    return RANKERS[name]
