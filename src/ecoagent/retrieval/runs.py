"""Ranked runs: what a ranker returned for each query, best first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ecoagent.settings import UserError

SCORE_DECIMALS = 6
"""Scores are rounded before they are compared: matrix products of equal vectors differ in the last bits
with the place of a column, and two copies of a tool must tie."""


@dataclass(frozen=True)
class RankedList:
    """Tools ranked for one query."""

    query_id: str
    tool_ids: tuple[str, ...]
    scores: tuple[float, ...]


@dataclass(frozen=True)
class RankedRun:
    """A ranker's answer to many queries; ties are broken by tool id, upwards."""

    name: str
    query_ids: tuple[str, ...]
    tool_ids: list[list[str]]
    scores: list[list[float]]

    def __post_init__(self) -> None:
        if not len(self.query_ids) == len(self.tool_ids) == len(self.scores):
            raise UserError(
                f"run {self.name}: {len(self.query_ids)} queries but {len(self.tool_ids)} rankings",
                remedy="give one ranking per query",
            )

    def __len__(self) -> int:
        return len(self.query_ids)

    def ranking(self, index: int) -> RankedList:
        """Ranking of the query at ``index``."""
        return RankedList(self.query_ids[index], tuple(self.tool_ids[index]), tuple(self.scores[index]))

    def top(self, k: int) -> RankedRun:
        """The same run cut after ``k`` tools a query."""
        return RankedRun(
            self.name, self.query_ids, [t[:k] for t in self.tool_ids], [s[:k] for s in self.scores]
        )


@dataclass(frozen=True)
class TextSet:
    """Texts with their ids: the queries to answer, or the tools to choose from."""

    ids: tuple[str, ...]
    texts: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.texts):
            raise UserError(f"{len(self.ids)} ids but {len(self.texts)} texts", remedy="give one id per text")
        if len(set(self.ids)) != len(self.ids):
            twice = next(i for n, i in enumerate(self.ids) if i in self.ids[:n])
            raise UserError(f"id {twice!r} occurs twice", remedy="drop one of the rows")

    def __len__(self) -> int:
        return len(self.ids)


class TopK:
    """Keeps the best ``k`` columns of score blocks; score down, then tool id up.

    With ``matches_only`` a tool that scores 0 was not found and is left out of the ranking. ``decimals``
    are those that are compared; fewer where scores are large, float32 having seven digits in all.
    """

    def __init__(
        self,
        name: str,
        tools: Sequence[str],
        k: int,
        *,
        matches_only: bool = False,
        decimals: int = SCORE_DECIMALS,
    ) -> None:
        self._name, self._k, self._matches_only = name, min(k, len(tools)), matches_only
        self._decimals = decimals
        order = sorted(range(len(tools)), key=lambda i: tools[i])
        self._ids = [tools[i] for i in order]
        self._columns = np.array(order, dtype=np.int64)
        self._query_ids: list[str] = []
        self._tool_ids: list[list[str]] = []
        self._scores: list[list[float]] = []

    def add(self, query_ids: Sequence[str], scores: npt.NDArray[np.floating]) -> None:
        """Add a block: ``scores`` is (queries, tools), columns in the order of ``tools``."""
        rounded = np.round(scores[:, self._columns].astype(np.float64), self._decimals) + 0.0
        # A stable sort over columns in id order breaks ties by id.
        best = np.argsort(-rounded, axis=1, kind="stable")[:, : self._k]
        for row, query in enumerate(query_ids):
            columns = [c for c in best[row] if not self._matches_only or rounded[row, c] > 0]
            self._query_ids.append(query)
            self._tool_ids.append([self._ids[c] for c in columns])
            self._scores.append([float(rounded[row, c]) for c in columns])

    def run(self) -> RankedRun:
        """What was kept so far."""
        return RankedRun(self._name, tuple(self._query_ids), self._tool_ids, self._scores)
