"""Queries written for a tool as part of its vector: document expansion in vector space."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ecoagent.retrieval.encoders import Embeddings, OnBatch, SentenceEncoder
from ecoagent.retrieval.pairs import TrainingRow
from ecoagent.settings import UserError

SHORTEST = 1e-6
"""Length of a sum below which its direction is rounding alone."""
_UNREADABLE = (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile, zlib.error)
"""What numpy raises where a file is no archive of arrays, is cut short, or is an array of another kind."""


def expansion_of(rows: Sequence[TrainingRow], encoder: SentenceEncoder) -> dict[str, Embeddings]:
    """Mean query vector of each tool text.

    Args:
        rows: training pairs.
        encoder: of the queries, as trained.

    Returns:
        Digest of a tool's text to (d,) float32; the mean of vectors of length 1, itself shorter.
    """
    queries: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        queries[_key(row.tool)].add(row.query)
    texts = sorted({text for found in queries.values() for text in found})
    vectors = encoder.encode_queries(texts)
    place = {text: n for n, text in enumerate(texts)}
    return {key: vectors[[place[t] for t in sorted(found)]].mean(axis=0) for key, found in queries.items()}


def save_expansion(path: Path, found: dict[str, Embeddings]) -> Path:
    """Write what ``expansion_of`` found; ``load_expansion`` reads it back."""
    keys = sorted(found)
    vectors = np.array([found[key] for key in keys], dtype=np.float32)
    with path.open("wb") as file:
        np.savez(file, keys=np.array(keys, dtype="U64"), vectors=vectors)
    return path


def load_expansion(path: Path) -> dict[str, Embeddings]:
    """What ``save_expansion`` wrote.

    Raises:
        UserError: the file is missing or damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            keys, vectors = stored["keys"], stored["vectors"]
        if keys.ndim != 1 or vectors.ndim != 2 or vectors.dtype != np.float32:
            raise ValueError("its arrays are of another form")
        return dict(zip(keys.tolist(), vectors, strict=True))
    except _UNREADABLE as error:
        raise UserError(
            f"{path} holds no vectors of training queries ({type(error).__name__}: {error})",
            remedy="run `ecoagent train`, which makes anew what is missing or damaged",
        ) from error


class ExpandedEncoder(SentenceEncoder):
    """An encoder whose tool vectors lean to the queries that were written for the tool.

    A tool's vector is norm(f(tool) + weight * mean f(query)); that of a tool without queries is f(tool), and
    so is one whose sum vanishes.
    """

    def __init__(self, encoder: SentenceEncoder, queries: Mapping[str, Embeddings], weight: float) -> None:
        """
        Args:
            encoder: f, for queries and tools; its rows have length 1.
            queries: what ``expansion_of`` found.
            weight: of the mean query vector, at least 0.
        """
        super().__init__(
            encoder.model, name=encoder.name, batch_size=encoder.batch_size, steady=encoder.steady
        )
        self._queries, self._weight = queries, weight

    def encode_documents(self, texts: Sequence[str], on_batch: OnBatch | None = None) -> Embeddings:
        """(n, d) vectors of tool texts, rows of length 1."""
        vectors = super().encode_documents(texts, on_batch)
        for place, text in enumerate(texts):
            found = self._queries.get(_key(text))
            if found is not None:
                moved = vectors[place] + self._weight * found
                length = float(np.linalg.norm(moved))
                if length > SHORTEST:
                    vectors[place] = moved / length
        return vectors


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
