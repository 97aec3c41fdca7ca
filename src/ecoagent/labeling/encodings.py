"""Vectors kept on disk, so that a collection of thousands of tools is encoded once per model."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from ecoagent.models import ModelStore
from ecoagent.retrieval.encoders import Embeddings, Encoder, OnBatch, load_encoder
from ecoagent.runs import Progress, digest, write_bytes
from ecoagent.settings import Settings

CHUNK = 1024
"""Texts a file; a multiple of the encoder's batch, so that vectors are those of an encoder without store."""


class StoredEncoder:
    """An encoder whose vectors are kept under ``digest(model, side, texts)``.

    The model is loaded when something is missing. A damaged file is made anew.

    Attributes:
        dim: length of a vector; 0 until something was encoded.
    """

    def __init__(self, name: str, model_digest: str, folder: Path, load: Callable[[], Encoder]) -> None:
        self.name, self.dim = name, 0
        self._digest, self._folder, self._load = model_digest, folder, load
        self._inner: Encoder | None = None
        self._last: dict[str, tuple[str, Embeddings]] = {}

    def encode_queries(self, texts: Sequence[str], on_batch: OnBatch | None = None) -> Embeddings:
        """(n, d) vectors of queries; see ``Encoder``."""
        return self._encode("queries", texts, on_batch)

    def encode_documents(self, texts: Sequence[str], on_batch: OnBatch | None = None) -> Embeddings:
        """(n, d) vectors of tool texts; see ``Encoder``."""
        return self._encode("documents", texts, on_batch)

    def _encode(
        self, side: Literal["queries", "documents"], texts: Sequence[str], on_batch: OnBatch | None
    ) -> Embeddings:
        whole = digest([side, list(texts)])
        held = self._last.get(side)
        if held is not None and held[0] == whole:
            return held[1]
        # The order of ``SentenceEncoder``: batches of similar length.
        ordered = sorted(set(texts), key=lambda text: (-len(text), text))
        parts = [
            self._chunk(side, ordered[start : start + CHUNK], on_batch)
            for start in range(0, len(ordered), CHUNK)
        ]
        if not parts:
            return np.empty((0, self.dim), dtype=np.float32)
        found = np.concatenate(parts)
        self.dim = int(found.shape[1])
        place = {text: row for row, text in enumerate(ordered)}
        vectors: Embeddings = found[[place[text] for text in texts]]
        self._last[side] = (whole, vectors)
        return vectors

    def _chunk(
        self, side: Literal["queries", "documents"], texts: list[str], on_batch: OnBatch | None
    ) -> Embeddings:
        path = self._folder / f"{digest([self._digest, side, texts])}.npy"
        stored = _read(path, len(texts))
        if stored is not None:
            if on_batch is not None:
                on_batch(len(texts))
            return stored
        if self._inner is None:
            self._inner = self._load()
        encode = self._inner.encode_queries if side == "queries" else self._inner.encode_documents
        vectors = np.ascontiguousarray(encode(texts, on_batch), dtype=np.float32)
        data = io.BytesIO()
        np.save(data, vectors, allow_pickle=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, data.getvalue())
        return vectors


def _read(path: Path, rows: int) -> Embeddings | None:
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if not isinstance(found, np.ndarray) or found.ndim != 2 or len(found) != rows:
        return None
    return found.astype(np.float32, copy=False)


def stored_encoder(settings: Settings, name: str, progress: Progress | None = None) -> StoredEncoder:
    """The candidate encoder of that name, as the labelling stage loads it, behind the vectors kept under
    ``outputs/store/encodings``.

    Raises:
        UserError: no such model; that its weights cannot be had shows when something is to be encoded.
    """
    store = ModelStore(settings.models)

    def load() -> Encoder:
        return load_encoder(store.path(name, progress), name=name, pooling=None)

    return StoredEncoder(name, store.digest(name), settings.outputs / "store" / "encodings", load)
