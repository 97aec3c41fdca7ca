"""Hard and random negatives of every positive pair, by whole matrix products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ecoagent.synthesis.plan import seed_of

BLOCK = 1024
"""Queries per matrix product: 1024 x 5,172 cosines take 21 MB."""
DIGITS = 6
"""Cosines are compared and kept to this many digits: below lies noise of float32 sums."""


@dataclass(frozen=True)
class Positive:
    """A query with its gold tools, and tools that are neither gold nor negative for it."""

    query_id: str
    golds: tuple[str, ...]
    excluded: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ScoredPair:
    """A pair with the cosine of the mining encoder."""

    query_id: str
    tool_id: str
    label: int
    negative_type: Literal["hard", "random"] | None
    score: float


@dataclass(frozen=True)
class MiningSettings:
    """Numbers per positive, the margin, and the run's seed."""

    hard: int
    random: int
    margin: float
    seed: int


class ToolPool:
    """The tools negatives are drawn from.

    Args:
        ids: tool ids, sorted: the order of ``vectors`` and of ties.
        vectors: (n, d) unit vectors.
        duplicate_groups: duplicate group by tool id.
    """

    def __init__(
        self, ids: Sequence[str], vectors: npt.NDArray[Any], duplicate_groups: Mapping[str, str]
    ) -> None:
        self.ids = list(ids)
        self.vectors = np.asarray(vectors, dtype=np.float32)
        self.place = {tool_id: i for i, tool_id in enumerate(self.ids)}
        self._groups = duplicate_groups
        self._members: dict[str, list[int]] = {}
        for i, tool_id in enumerate(self.ids):
            self._members.setdefault(duplicate_groups[tool_id], []).append(i)

    def with_duplicates(self, tool_ids: Sequence[str] | frozenset[str]) -> list[int]:
        """Places of the tools and of everything in their duplicate groups."""
        return sorted({i for t in tool_ids for i in self._members[self._groups[t]]})


def mine(
    queries: Sequence[Positive],
    vectors: npt.NDArray[Any],
    pool: ToolPool,
    settings: MiningSettings,
    *,
    block: int = BLOCK,
) -> list[ScoredPair]:
    """Positives and their negatives, query by query.

    A negative is never a gold, never in a gold's duplicate group, never an excluded tool or a
    duplicate of one, and scores below ``margin`` times its gold's cosine: above, it may well be
    right. Hard negatives are the best tools left; random ones are drawn from the others, seeded
    by query and gold. Where fewer tools are left, there are fewer negatives.

    Args:
        queries: one entry per row of ``vectors``.
        vectors: (n, d) unit vectors of the queries.
        pool: tools.
        settings: numbers, margin and seed.
        block: queries per matrix product.
    """
    pairs: list[ScoredPair] = []
    rows = np.asarray(vectors, dtype=np.float32)
    for start in range(0, len(queries), block):
        scores = np.round(rows[start : start + block] @ pool.vectors.T, DIGITS)
        for query, cosines in zip(queries[start : start + block], scores, strict=True):
            pairs += _mine_one(query, cosines, pool, settings)
    return pairs


def _mine_one(
    query: Positive, cosines: npt.NDArray[np.float32], pool: ToolPool, settings: MiningSettings
) -> list[ScoredPair]:
    pairs: list[ScoredPair] = []
    left = cosines.copy()
    left[pool.with_duplicates([*query.golds, *query.excluded])] = np.inf

    def take(place: int, kind: Literal["hard", "random"]) -> None:
        score = round(float(cosines[place]), DIGITS)
        pairs.append(ScoredPair(query.query_id, pool.ids[place], 0, kind, score))
        # Taken: no pair occurs twice, whatever number of golds a query has.
        left[place] = np.inf

    for gold in query.golds:
        cosine = float(cosines[pool.place[gold]])
        pairs.append(ScoredPair(query.query_id, gold, 1, None, round(cosine, DIGITS)))
        # A gold that the encoder puts below zero must not let everything through.
        bound = min(settings.margin * cosine, cosine)
        open_places = np.flatnonzero(left < bound)
        if settings.hard:
            best = _best(left, open_places, settings.hard)
            for place in best:
                take(int(place), "hard")
            open_places = np.setdiff1d(open_places, best, assume_unique=True)
        wanted = min(settings.random, len(open_places))
        if wanted:
            rng = np.random.default_rng(seed_of(settings.seed, "random", query.query_id, gold))
            for place in sorted(rng.choice(len(open_places), size=wanted, replace=False)):
                take(int(open_places[place]), "random")
    return pairs


def _best(scores: npt.NDArray[np.float32], places: npt.NDArray[np.intp], count: int) -> npt.NDArray[np.intp]:
    """The ``count`` best of ``places``: score down, place (and so id) up."""
    if count == 1 and len(places):
        # argmax returns the first of equals.
        return places[[int(np.argmax(scores[places]))]]
    order = np.lexsort((places, -scores[places]))
    best: npt.NDArray[np.intp] = places[order[:count]]
    return best


def best_ranks(
    vectors: npt.NDArray[Any], targets: Sequence[Sequence[int]], pool: ToolPool, *, block: int = BLOCK
) -> list[int]:
    """Rank, from 1, of the best of each query's target tools when all tools are searched.

    Ties as everywhere: score down, id up.

    Args:
        vectors: (n, d) unit vectors of the queries.
        targets: places in the pool, one non-empty list per query.
        pool: tools.
        block: queries per matrix product.
    """
    rows = np.asarray(vectors, dtype=np.float32)
    ranks: list[int] = []
    for start in range(0, len(targets), block):
        scores = np.round(rows[start : start + block] @ pool.vectors.T, DIGITS)
        for cosines, wanted in zip(scores, targets[start : start + block], strict=True):
            place = min(wanted, key=lambda i: (-cosines[i], i))
            above = int((cosines > cosines[place]).sum())
            ranks.append(1 + above + int((cosines[:place] == cosines[place]).sum()))
    return ranks
