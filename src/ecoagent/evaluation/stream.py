"""The recorded stream that every policy is run on: queries, their candidates, golds and contexts.

Drawing happens once per seed; policies then see the same steps, so that differences can be paired.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ecoagent.settings import UserError

Floats = NDArray[np.floating[Any]]
Arms = NDArray[np.int64]
FailureRule = Literal["paper", "released"]


def _unfit(what: str) -> UserError:
    return UserError(
        f"cannot make a stream: {what}",
        remedy="mend the row named, or build the tables anew",
    )


@dataclass(frozen=True)
class QuerySteps:
    """One query as policies and the simulator see it. Arrays are ``(k,)``, best candidate first."""

    x: Floats
    candidates: Arms
    semantic: Floats
    static: Floats
    gold_among: Mapping[int, bool]
    """Whether a candidate is a gold, by arm."""


@dataclass(frozen=True)
class StreamSource:
    """What streams are drawn from: the queries of one split with a stored run of one ranker.

    Lists are parallel, one entry a query. ``contexts`` is ``(n, d)``, the normalised query embeddings;
    ``candidates`` and ``semantic`` hold tools, best first (score down, tool id up), and their S_sem, of
    which the first ``top_k`` are used; ``golds`` every tool that counts as right, duplicate groups
    included; ``tool_ids`` every tool of the pool, whose order numbers the arms; ``r_static`` the score of
    Eq. 5 of each.

    Raises UserError, naming the query, if lists disagree, a list is not best first, an id is unknown or a
    number is not finite.
    """

    query_ids: Sequence[str]
    contexts: Floats
    candidates: Sequence[Sequence[str]]
    semantic: Sequence[Sequence[float]]
    golds: Sequence[Iterable[str]]
    tool_ids: Sequence[str]
    r_static: Mapping[str, float]
    top_k: int = 10
    queries: tuple[QuerySteps, ...] = field(init=False, repr=False, compare=False)
    gold_ids: tuple[tuple[str, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        n = len(self.query_ids)
        if not n:
            raise UserError("a stream needs at least one query", remedy="choose a split that has queries")
        for what, found in (
            ("contexts", len(self.contexts)),
            ("candidates", len(self.candidates)),
            ("semantic", len(self.semantic)),
            ("golds", len(self.golds)),
        ):
            if found != n:
                raise _unfit(f"{found} {what} for {n} queries")
        contexts = np.ascontiguousarray(self.contexts)
        if contexts.ndim != 2 or not np.isfinite(contexts).all():
            raise _unfit("contexts must be a finite (n, d) array")
        if len(set(self.tool_ids)) != len(self.tool_ids):
            raise _unfit("a tool id appears twice")
        object.__setattr__(self, "contexts", contexts)
        golds = tuple(tuple(sorted(set(one))) for one in self.golds)
        object.__setattr__(self, "gold_ids", golds)
        object.__setattr__(self, "queries", tuple(self._query(i, golds[i]) for i in range(n)))

    def _query(self, i: int, golds: tuple[str, ...]) -> QuerySteps:
        name, ids = self.query_ids[i], list(self.candidates[i])[: self.top_k]
        scores = [float(score) for score in list(self.semantic[i])[: self.top_k]]
        if not ids or len(ids) != len(scores) or len(set(ids)) != len(ids):
            raise _unfit(
                f"query {name}: {len(ids)} candidates with {len(scores)} scores; "
                "needs at least one, no id twice"
            )
        if not golds:
            raise _unfit(f"query {name}: no gold tool")
        unknown = [tool for tool in (*ids, *golds) if tool not in self.arm_of]
        if unknown:
            raise _unfit(f"query {name}: tool {unknown[0]} is not in the pool")
        if not all(map(math.isfinite, scores)):
            raise _unfit(f"query {name}: a score is not finite")
        keys = [(-score, tool) for score, tool in zip(scores, ids, strict=True)]
        if keys != sorted(keys):
            raise _unfit(f"query {name}: candidates are not in order of score, then id")
        arms = np.array([self.arm_of[tool] for tool in ids], dtype=np.int64)
        gold_arms = {self.arm_of[tool] for tool in golds}
        return QuerySteps(
            self.contexts[i],
            arms,
            np.array(scores),
            self.prior[arms],
            {arm: arm in gold_arms for arm in arms.tolist()},
        )

    @cached_property
    def arm_of(self) -> dict[str, int]:
        """Number of each tool as an arm."""
        return {tool: arm for arm, tool in enumerate(self.tool_ids)}

    @cached_property
    def prior(self) -> Floats:
        """r_static by arm: ``(n_tools,)``."""
        missing = [tool for tool in self.tool_ids if tool not in self.r_static]
        if missing:
            raise UserError(f"tool {missing[0]} has no r_static", remedy="run the score stage first")
        return np.array([float(self.r_static[tool]) for tool in self.tool_ids])

    @property
    def dim(self) -> int:
        """Length of a context."""
        return int(self.contexts.shape[1])


@dataclass(frozen=True)
class Stream:
    """T steps: ``draws`` ``(T,)`` are positions in the source's queries."""

    source: StreamSource
    draws: Arms

    @classmethod
    def draw(cls, source: StreamSource, steps: int, seed: int | Sequence[int]) -> Stream:
        """Draw ``steps`` queries with replacement; equal seeds give equal streams."""
        if steps < 1:
            raise UserError(f"a stream of {steps} steps is empty", remedy="set evaluate.steps to at least 1")
        generator = np.random.default_rng(seed)
        return cls(source, generator.integers(len(source.queries), size=steps, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.draws)

    def __iter__(self) -> Iterator[QuerySteps]:
        queries = self.source.queries
        return (queries[i] for i in self.draws.tolist())

    def gold_stream(self) -> Iterator[str]:
        """Each gold of each drawn step, in step order."""
        golds = self.source.gold_ids
        return (tool for i in self.draws.tolist() for tool in golds[i])

    @cached_property
    def gold_counts(self) -> Counter[str]:
        """How often each gold tool is one of the golds of a step."""
        counts: Counter[str] = Counter()
        drawn = np.bincount(self.draws, minlength=len(self.source.queries))
        for golds, times in zip(self.source.gold_ids, drawn.tolist(), strict=True):
            if times:
                counts.update(dict.fromkeys(golds, times))
        return counts


def failing_tools(
    gold_stream: Iterable[str] | Mapping[str, int],
    rate: float,
    skip: float = 0.10,
    *,
    rule: FailureRule = "paper",
) -> list[str]:
    """The tools that fail, most frequent first (Section 4.2 of the paper).

    ``gold_stream`` holds every gold of every step (or their counts). The N distinct golds are ranked by
    count, ties by id. ``paper``: the first ``floor(skip N)`` are skipped and the next ``floor(rate N)``
    fail. ``released`` (the published code): ``n = max(1, int(rate N))`` fail, after skipping a tenth only
    where more than 2n tools are there. Products are rounded to 9 places before the floor.

    Raises UserError if ``rate`` or ``skip`` is outside [0, 1].
    """
    if not (0 <= rate <= 1 and 0 <= skip <= 1):
        raise UserError(
            f"failure rate {rate} and skip {skip} must lie in [0, 1]",
            remedy="set evaluate.rates and evaluate.skip",
        )
    counts = Counter(gold_stream)
    ranked = sorted(counts, key=lambda tool: (-counts[tool], tool))
    number = math.floor(round(rate * len(ranked), 9))
    if rule == "paper":
        first = math.floor(round(skip * len(ranked), 9))
    else:
        number = max(1, number)
        first = len(ranked) // 10 if len(ranked) > 2 * number else 0
    return ranked[first : first + number]
