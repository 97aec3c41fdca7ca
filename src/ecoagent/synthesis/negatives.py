"""Hard and random negatives of every positive pair, by whole matrix products."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ecoagent.synthesis.plan import seed_of

BLOCK = 1024
"""Queries per matrix product: 1024 x 5,172 cosines take 21 MB."""
DIGITS = 6
"""Cosines are compared and kept to this many digits: below lies noise of float32 sums."""
REMEMBERED = 1024
"""Sets of excluded tools whose places are remembered."""


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
        self._known: dict[frozenset[str], npt.NDArray[np.intp]] = {}

    def with_duplicates(self, tool_ids: Iterable[str]) -> list[int]:
        """Places of the tools and of everything in their duplicate groups."""
        return sorted({i for t in tool_ids for i in self._members[self._groups[t]]})

    def excluded_places(self, tool_ids: frozenset[str]) -> npt.NDArray[np.intp]:
        """``with_duplicates``, remembered: most queries exclude one and the same set, the cold tools."""
        found = self._known.get(tool_ids)
        if found is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            found = self._known[tool_ids] = np.array(self.with_duplicates(tool_ids), dtype=np.intp)
        return found


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
    by query and gold. Where fewer tools are left, there are fewer negatives. Ties go to the tool
    of smaller place, and no pair occurs twice.

    Queries of one gold, nearly all, are selected a block at a time; the result is that of
    ``mine_plain`` with the same block.

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
        here = queries[start : start + block]
        single = [i for i, query in enumerate(here) if len(query.golds) == 1]
        whole = len(single) == len(here)
        found = iter(
            _mine_single([here[i] for i in single], scores if whole else scores[single], pool, settings)
        )
        for query, cosines in zip(here, scores, strict=True):
            pairs += next(found) if len(query.golds) == 1 else _mine_one(query, cosines, pool, settings)
    return pairs


def mine_plain(
    queries: Sequence[Positive],
    vectors: npt.NDArray[Any],
    pool: ToolPool,
    settings: MiningSettings,
    *,
    block: int = 1,
) -> list[ScoredPair]:
    """``mine``, every query by itself: for tests and the benchmark.

    A product of one row and one of many may differ in a last bit, so that cosines agree to about
    1e-6; with the block of ``mine`` the pairs are the same.
    """
    pairs: list[ScoredPair] = []
    rows = np.asarray(vectors, dtype=np.float32)
    for start in range(0, len(queries), block):
        scores = np.round(rows[start : start + block] @ pool.vectors.T, DIGITS)
        for query, cosines in zip(queries[start : start + block], scores, strict=True):
            pairs += _mine_one(query, cosines, pool, settings)
    return pairs


def _bounds(cosines: npt.NDArray[np.float64], margin: float) -> npt.NDArray[np.float32]:
    """What a negative scores below, in the precision of the scores.

    A gold that the encoder puts below zero must not let everything through.
    """
    return np.minimum(margin * cosines, cosines).astype(np.float32)


def _mine_single(
    queries: Sequence[Positive], scores: npt.NDArray[np.float32], pool: ToolPool, settings: MiningSettings
) -> list[list[ScoredPair]]:
    """Pairs of queries of one gold each, one list a query; ``scores`` are (queries, tools)."""
    each: npt.NDArray[np.intp] = np.arange(len(queries))
    golds: npt.NDArray[np.intp] = np.array([pool.place[q.golds[0]] for q in queries], dtype=np.intp)
    cosines = scores[each, golds].astype(np.float64)
    left = np.where(scores < _bounds(cosines, settings.margin)[:, None], scores, -np.inf)
    for row, query in zip(left, queries, strict=True):
        row[pool.excluded_places(query.excluded)] = -np.inf
        row[pool.with_duplicates(query.golds)] = -np.inf
    hard: list[list[int]] = [[] for _ in queries]
    for _ in range(settings.hard):
        # argmax returns the first of equals.
        best = left.argmax(axis=1)
        for i in np.flatnonzero(left[each, best] > -np.inf).tolist():
            hard[i].append(int(best[i]))
        left[each, best] = -np.inf
    found: list[list[ScoredPair]] = []
    for i, query in enumerate(queries):
        gold = query.golds[0]
        pairs = [ScoredPair(query.query_id, gold, 1, None, round(float(cosines[i]), DIGITS))]
        taken: list[tuple[int, Literal["hard", "random"]]] = [(place, "hard") for place in hard[i]]
        if settings.random:
            open_places = np.flatnonzero(left[i] > -np.inf)
            drawn = _draw(open_places, query.query_id, gold, settings)
            taken += [(place, "random") for place in drawn]
        for place, kind in taken:
            score = round(float(scores[i, place]), DIGITS)
            pairs.append(ScoredPair(query.query_id, pool.ids[place], 0, kind, score))
        found.append(pairs)
    return found


def _draw(places: npt.NDArray[np.intp], query_id: str, gold: str, settings: MiningSettings) -> list[int]:
    """Random ones of the places, in their order; only query, gold and seed decide which."""
    wanted = min(settings.random, len(places))
    if not wanted:
        return []
    rng = np.random.default_rng(seed_of(settings.seed, "random", query_id, gold))
    return [int(places[i]) for i in sorted(rng.choice(len(places), size=wanted, replace=False))]


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
        bound = _bounds(np.array([cosine]), settings.margin)[0]
        open_places = np.flatnonzero(left < bound)
        if settings.hard:
            best = _best(left, open_places, settings.hard)
            for place in best:
                take(int(place), "hard")
            open_places = np.setdiff1d(open_places, best, assume_unique=True)
        for place in _draw(open_places, query.query_id, gold, settings):
            take(place, "random")
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
