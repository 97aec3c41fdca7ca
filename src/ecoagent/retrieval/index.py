"""An index of tool vectors that grows: exact search, and above a size an approximate graph beside it.

The graph is usearch's HNSW. faiss was tried beside it: its HNSW cannot remove a vector, its indexes that can
need training on vectors that are there first, and its wheel is larger. Whatever the graph proposes is scored
again here, so that scores are exact and equal with and without it; only what it misses is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from ecoagent.retrieval.encoders import Embeddings
from ecoagent.retrieval.runs import SCORE_DECIMALS, RankedRun
from ecoagent.settings import IndexSettings, UserError

BLOCK_FLOATS = 1 << 24
"""Scores held at once: 64 MB of float32."""
_SLACK = 1e-5
"""More than float32 products of unit vectors differ by, whatever the order of their sums."""
_OVERSAMPLE = 10
"""Further tools asked of the graph: its half-precision order is not ours among near ties."""
EXTRA = "ann"
"""The optional extra that brings usearch."""


@dataclass(frozen=True)
class Hit:
    """A tool that was found, with its cosine (S_sem, Eq. 2) to six decimals."""

    id: str
    score: float


@dataclass(frozen=True)
class Recall:
    """How much of the exact answer the graph found."""

    k: int
    queries: int
    recall: float
    """Mean share of the exact k best that are among the k returned; as good a score counts as the same."""
    worst: float
    """Least share over the queries."""


class ToolIndex:
    """Vectors of unit length by tool id.

    Up to ``exact_limit`` tools every query is compared with every tool, by one matrix product a block.
    Above, a graph proposes candidates, made at the first search or by ``build_graph``; tools added or removed
    later are put into it or taken out, nothing is built again.

    Equal calls in equal order give an equal index and equal answers: exact search always, the graph with
    ``threads = 1``. With more threads usearch links vectors in the order in which threads reach them,
    and what it misses may differ between two builds.
    """

    def __init__(self, dim: int, settings: IndexSettings | None = None) -> None:
        self.dim = dim
        self.settings = settings or IndexSettings()
        self._vectors = np.zeros((0, dim), dtype=np.float32)
        self._ids: list[str | None] = []
        self._rows: dict[str, int] = {}
        self._free: list[int] = []
        self._graph: Any = None

    @classmethod
    def restore(
        cls,
        dim: int,
        slots: Sequence[str | None],
        rows: Embeddings,
        graph: Any = None,
        settings: IndexSettings | None = None,
    ) -> ToolIndex:
        """The index that had these ``slots``, ``rows`` and ``graph``.

        Raises:
            UserError: they do not belong together.
        """
        index = cls(dim, settings)
        named = {i: row for row, i in enumerate(slots) if i is not None}
        whole = len(named) + sum(i is None for i in slots) == len(slots)
        if rows.shape != (len(slots), dim) or not whole or (graph is not None and len(graph) != len(named)):
            raise UserError("the parts of the index do not belong together", remedy="build it anew")
        index._vectors = np.array(rows, dtype=np.float32)
        index._ids, index._rows, index._graph = list(slots), named, graph
        index._free = sorted((row for row, i in enumerate(slots) if i is None), reverse=True)
        return index

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, identifier: object) -> bool:
        return identifier in self._rows

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all tools, sorted."""
        return tuple(sorted(self._rows))

    @property
    def graph(self) -> Any:
        """The approximate graph, keys = rows; none = there is none yet."""
        return self._graph

    def slots(self) -> list[str | None]:
        """Tool of each row; none = a row that is free."""
        return list(self._ids)

    def rows(self) -> Embeddings:
        """(rows, d) vectors in the order of ``slots``; those of free rows mean nothing."""
        return self._vectors[: len(self._ids)]

    def add(self, ids: Sequence[str], vectors: Embeddings) -> None:
        """Put tools in; one that is there gets the new vector. They are found from the next search on.

        Args:
            ids: n distinct tool ids.
            vectors: (n, d) rows of length 1.

        Raises:
            UserError: an id twice, another shape, or a vector that is not of length 1.
        """
        found = np.asarray(vectors, dtype=np.float32)
        if found.shape != (len(ids), self.dim):
            raise UserError(
                f"{len(ids)} tools with vectors of shape {found.shape}, not ({len(ids)}, {self.dim})",
                remedy="encode them with the model the index was built with",
            )
        if len(set(ids)) != len(ids):
            raise UserError("a tool id occurs twice among those to add", remedy="drop one of the rows")
        lengths = np.linalg.norm(found, axis=1)
        # Written so that NaN is wrong too.
        if not np.all(np.abs(lengths - 1) < 1e-3):
            worst = ids[int(np.argmax(~(np.abs(lengths - 1) < 1e-3)))]
            raise UserError(f"the vector of {worst!r} is not of length 1", remedy="normalise the vectors")
        self.remove([i for i in ids if i in self._rows])
        rows = [self._row() for _ in ids]
        self._vectors[rows] = found
        for identifier, row in zip(ids, rows, strict=True):
            self._ids[row] = identifier
            self._rows[identifier] = row
        if self._graph is not None and rows:
            self._graph.add(np.array(rows, dtype=np.uint64), found, threads=self.settings.threads)

    def remove(self, ids: Collection[str]) -> None:
        """Take tools out; they are not found any more.

        Raises:
            UserError: one is not in the index.
        """
        unknown = [i for i in ids if i not in self._rows]
        if unknown:
            raise UserError(f"tool {unknown[0]!r} is not in the index", remedy="name a tool that is")
        rows = [self._rows.pop(i) for i in ids]
        for row in rows:
            self._ids[row] = None
        # The last row first: the next tool takes the smallest.
        self._free = sorted({*self._free, *rows}, reverse=True)
        if self._graph is not None and rows:
            self._graph.remove(np.array(rows, dtype=np.uint64))

    def search(self, vector: Embeddings, k: int = 10, *, exact: bool | None = None) -> list[Hit]:
        """The ``k`` nearest tools of one query (d,); see ``search_many``."""
        return self.search_many(np.atleast_2d(np.asarray(vector, dtype=np.float32)), k, exact=exact)[0]

    def search_many(self, vectors: Embeddings, k: int = 10, *, exact: bool | None = None) -> list[list[Hit]]:
        """The ``k`` nearest tools of each query, best first, ties by id upwards.

        A query gets the same answer alone and among others.

        Args:
            vectors: (n, d) rows of length 1.
            k: tools a query.
            exact: compare with every tool, or by the graph; none = as the number of tools says.

        Raises:
            UserError: vectors of another length, or a graph asked for without usearch.
        """
        queries = np.asarray(vectors, dtype=np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.dim:
            raise UserError(
                f"queries of shape {queries.shape}, but the index has vectors of {self.dim} numbers",
                remedy="encode them with the model the index was built with",
            )
        if not len(self) or not len(queries) or k < 1:
            return [[] for _ in queries]
        if exact is None:
            exact = len(self) <= self.settings.exact_limit or (self._graph is None and not graph_available())
        if exact:
            return self._exact(queries, min(k, len(self)))
        return self._approximate(queries, min(k, len(self)))

    def run(self, query_ids: tuple[str, ...], vectors: Embeddings, k: int, *, name: str) -> RankedRun:
        """``search_many`` as a ranked run."""
        hits = self.search_many(vectors, k)
        return RankedRun(
            name, query_ids, [[h.id for h in row] for row in hits], [[h.score for h in row] for row in hits]
        )

    def build_graph(self) -> None:
        """Make the approximate graph of all tools, whatever their number.

        Raises:
            UserError: usearch is not installed.
        """
        rows = np.array(sorted(self._rows.values()), dtype=np.uint64)
        graph = new_graph(self.dim, self.settings)
        if len(rows):
            graph.add(rows, self._vectors[rows], threads=self.settings.threads)
        self._graph = graph

    def graph_recall(self, vectors: Embeddings, k: int = 10) -> Recall:
        """Recall@k of the graph against exact search on these queries (n, d).

        Raises:
            UserError: no queries, no tools, or usearch is not installed.
        """
        if not len(vectors) or not len(self):
            raise UserError("recall needs queries and tools", remedy="give at least one of each")
        shares = []
        wanted, given = self.search_many(vectors, k, exact=True), self.search_many(vectors, k, exact=False)
        for right, found in zip(wanted, given, strict=True):
            last = right[-1].score
            shares.append(sum(hit.score >= last for hit in found) / len(right))
        return Recall(k, len(shares), float(np.mean(shares)), float(min(shares)))

    # -- inside --------------------------------------------------------------------------------

    def _row(self) -> int:
        """A row for one more vector."""
        if self._free:
            return self._free.pop()
        row = len(self._ids)
        self._ids.append(None)
        if row >= len(self._vectors):
            more = np.zeros((max(1024, 2 * row), self.dim), dtype=np.float32)
            more[:row] = self._vectors[:row]
            self._vectors = more
        return row

    def _exact(self, queries: Embeddings, k: int) -> list[list[Hit]]:
        size = len(self._ids)
        table = self._vectors[:size]
        dead = np.array(self._free, dtype=np.int64)
        block = max(1, BLOCK_FLOATS // size)
        hits = []
        for start in range(0, len(queries), block):
            part = queries[start : start + block]
            scores = part @ table.T
            scores[:, dead] = -np.inf
            bounds = np.partition(scores, size - k, axis=1)[:, size - k] - _SLACK
            for query, row, bound in zip(part, scores, bounds, strict=True):
                hits.append(self._best(query, np.flatnonzero(row >= bound), k))
        return hits

    def _approximate(self, queries: Embeddings, k: int) -> list[list[Hit]]:
        if self._graph is None:
            self.build_graph()
        asked = min(len(self), k + _OVERSAMPLE)
        found = self._graph.search(queries, asked, threads=self.settings.threads)
        keys, counts = np.atleast_2d(found.keys), np.atleast_1d(getattr(found, "counts", asked))
        return [
            self._best(query, row[:count].astype(np.int64), k)
            for query, row, count in zip(queries, keys, np.broadcast_to(counts, len(queries)), strict=True)
        ]

    def _best(self, query: Embeddings, rows: npt.NDArray[np.int64], k: int) -> list[Hit]:
        """The best of some rows. Sums in float64, row by row: no block, neighbour or thread changes them."""
        products = (self._vectors[rows].astype(np.float64) * query.astype(np.float64)).sum(axis=1)
        scores = np.round(products, SCORE_DECIMALS) + 0.0
        named = [
            (-float(score), identifier)
            for score, row in zip(scores, rows, strict=True)
            if (identifier := self._ids[row]) is not None
        ]
        return [Hit(identifier, -score) for score, identifier in sorted(named)[:k]]


def graph_available() -> bool:
    """Whether usearch is installed."""
    return find_spec("usearch") is not None


def new_graph(dim: int, settings: IndexSettings) -> Any:
    """An empty graph.

    Raises:
        UserError: usearch is not installed.
    """
    if not graph_available():
        raise UserError(
            "the approximate index needs usearch, which is not installed",
            remedy=f"pip install 'ecoagent[{EXTRA}]', or set index.exact_limit above the number of tools",
        )
    from usearch.index import Index

    # Half precision: half the memory, and what is found is scored again in full.
    return Index(
        ndim=dim,
        metric="ip",
        dtype="f16",
        connectivity=settings.connectivity,
        expansion_add=settings.expansion_add,
        expansion_search=settings.expansion_search,
    )
