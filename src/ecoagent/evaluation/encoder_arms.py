"""Arms of the encoder ablation: one choice of the training changed at a time, and what they are judged on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ecoagent.evaluation.benchmarks import SPLIT, Benchmark
from ecoagent.evaluation.clustered import tool_clusters
from ecoagent.evaluation.datasets import EvalData
from ecoagent.evaluation.offline import JudgedSplit
from ecoagent.retrieval import TextSet
from ecoagent.settings import TrainSettings, UserError

UNTRAINED, CHOSEN, EXPANDED = "untrained", "siamese", "expanded"
"""Arms that others are compared with, and the one that shares the chosen arm's training."""

_POOLING = {"cls": "CLS", "mean": "mean"}

EXPANSION_WEIGHT = 1.0
"""Of the mean query vector in a tool's vector, in the arm ``expanded``."""

CHOICE = (("syn", "val"), ("real", "val"))
"""Splits that choices are made on."""
TESTS = (("syn", "test"), ("syn", "cold"), ("real", "test"))
POOLED = ("syn", "test+cold")
"""Queries of seen and of held-out tools together."""


@dataclass(frozen=True)
class Arm:
    """An encoder of the ablation.

    Attributes:
        settings: what it is built and trained with.
        trained: whether it is trained at all.
    """

    name: str
    label: str
    what: str
    settings: TrainSettings
    trained: bool = True

    @property
    def models(self) -> tuple[str, ...]:
        """Models it starts from, f_Q's first."""
        return tuple(dict.fromkeys((self.settings.query_encoder, self.settings.tool_encoder)))


@dataclass(frozen=True)
class Tests:
    """Queries of one pool of tools.

    Attributes:
        tools: what is ranked.
        splits: judged queries; their ids are distinct within the pool.
        clusters: split to a cluster name for each of its queries.
    """

    tools: TextSet
    splits: tuple[JudgedSplit, ...]
    clusters: Mapping[str, Sequence[str]]


def arms_of(train: TrainSettings, encoders: Sequence[str] = ()) -> list[Arm]:
    """The arms, one change away from the siamese encoder or from the paper's towers.

    Args:
        train: the run's settings.
        encoders: further models for the siamese encoder.

    Raises:
        UserError: a model is asked for twice.
    """
    one = train.as_siamese
    # By the name that arms bear: a model's without its owner.
    if len({_short(name) for name in (*encoders, one.query_encoder)}) != len(encoders) + 1:
        raise UserError(
            "the siamese encoder's own model, or one model twice, is asked for", remedy="name others once"
        )

    def changed(base: TrainSettings, **values: object) -> TrainSettings:
        return base.model_copy(update=values)

    other = "cls" if one.pooling == "mean" else "mean"
    own_way, other_way, paper_way = (_POOLING[p] for p in (one.pooling, other, train.pooling))
    arms = [
        Arm(UNTRAINED, "Untrained", "One model as its makers pool it, not trained.", one, trained=False),
        Arm(CHOSEN, "Siamese", f"One model for both sides, {own_way} pooling, trained.", one),
        Arm("other_pooling", f"Siamese, {other_way} pooling", "Another pooling than the model's own.",
            changed(one, pooling=other)),
        Arm("no_hard_negatives", "Siamese, no hard negatives", "In-batch negatives alone.",
            changed(one, hard_negatives=0)),
        Arm("no_mask", "Siamese, no masking",
            "Batches without each other's golds, instead of masking them in the loss.",
            changed(one, mask_false_negatives=False)),
        Arm("symmetric", "Siamese, both directions", "With a tool-to-query term of weight 1.",
            changed(one, symmetric_weight=1.0)),
        Arm("two_towers", f"Two towers, {own_way} pooling",
            "The same training of two towers that share no weights.", changed(one, towers="two")),
        Arm("rated", f"RATED's towers ({paper_way} pooling)", "As the run trains RATED.", train),
    ]  # fmt: skip
    for name in encoders:
        short = _short(name)
        own = changed(one, query_encoder=name, tool_encoder=name)
        arms += [
            Arm(f"untrained_{short}", f"Untrained, {short}", "Another model, not trained.", own, False),
            Arm(f"{CHOSEN}_{short}", f"Siamese, {short}", "Another model, trained in the same way.", own),
        ]
    return arms


def _short(model: str) -> str:
    return model.rsplit("/", 1)[-1]


def expanded(chosen: Arm) -> Arm:
    """The arm that adds training queries to the chosen arm's tool vectors."""
    return replace(
        chosen,
        name=EXPANDED,
        label="Siamese, queries in tool vectors",
        what=f"{EXPANSION_WEIGHT:g} x the mean vector of a tool's training queries added to its vector.",
    )


def own_tests(data: EvalData) -> Tests:
    """The build's splits that every arm is judged on.

    Raises:
        UserError: none has a judged query.
    """
    splits = []
    for set_name, split in (*CHOICE, *TESTS):
        queries = data.judged(set_name, split)
        if len(queries):
            golds = {query: data.golds[query] for query in queries.ids}
            splits.append(JudgedSplit(set_name, split, queries, golds))
    pooled = [s for s in splits if (s.set_name, s.split) in (("syn", "test"), ("syn", "cold"))]
    if len(pooled) == 2:
        ids = tuple(i for s in pooled for i in s.queries.ids)
        texts = tuple(t for s in pooled for t in s.queries.texts)
        golds = {query: data.golds[query] for query in ids}
        splits.append(JudgedSplit(*POOLED, TextSet(ids, texts), golds))
    if not splits:
        raise UserError(
            "no split to judge on has a judged query", remedy="synthesize for more tools, or label"
        )
    return Tests(data.tools, tuple(splits), {s.name: _clusters(s, data.clusters) for s in splits})


def set_tests(benchmark: Benchmark) -> Tests:
    """An independent set that every arm is judged on, its queries without instructions."""
    whole = JudgedSplit(benchmark.name, SPLIT, benchmark.texts("query", dense=True), benchmark.golds)
    clusters = _clusters(whole, tool_clusters(benchmark.golds, {}, {}))
    return Tests(benchmark.tools, (whole,), {whole.name: clusters})


def _clusters(split: JudgedSplit, clusters: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(clusters[query] for query in split.queries.ids)
