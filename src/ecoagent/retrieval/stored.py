"""Vectors kept on disk by text, so that what was encoded once is not encoded again.

One SQLite file a model and side. Adding a tool encodes that tool alone; a second run encodes nothing and
loads no model. The encoders loaded here are steady: a text's vector does not depend on what it was encoded
with, so that a store gives the same bytes in whatever order and by however many processes it was filled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ecoagent.models import ModelStore
from ecoagent.retrieval.encoders import (
    WIDTH_STEP,
    Embeddings,
    Encoder,
    OnBatch,
    Pooling,
    SentenceEncoder,
    load_encoder,
)
from ecoagent.retrieval.vector_file import VectorFile
from ecoagent.runs import Progress, digest, has_gpu, processor
from ecoagent.settings import Settings

CHUNK = 1024
"""Texts encoded between two writes: what a killed process encodes again is at most this."""
_LIBRARIES = ("torch", "transformers", "tokenizers", "sentence-transformers")

Side = Literal["queries", "documents"]
SIDES: tuple[Side, ...] = ("queries", "documents")


class StoredEncoder:
    """An encoder whose vectors are kept by text, in one file a model and side.

    The model is loaded when something is missing. Whether an equal store gives equal bytes is up to the
    encoder behind it: a steady ``SentenceEncoder`` gives a text one vector, whatever comes with it.

    Attributes:
        dim: length of a vector; 0 until something was encoded.
        encoded: texts that were not in the store, so far.
        identity: of everything that changes a vector.
    """

    def __init__(self, name: str, identity: str, folder: Path, load: Callable[[], Encoder]) -> None:
        """
        Args:
            name: model, as tables show it.
            identity: of everything that changes a vector: weights, pooling, prefixes, lengths, libraries.
            folder: where the files are kept.
            load: gives the encoder; called once, when a text is missing.
        """
        self.name, self.dim, self.encoded = name, 0, 0
        self.identity = identity
        self._load = load
        self._files = {side: VectorFile(folder / f"{digest([identity, side])[:32]}.sqlite") for side in SIDES}
        self._inner: Encoder | None = None
        self._last: dict[str, tuple[str, Embeddings]] = {}

    def encode_queries(self, texts: Sequence[str], on_batch: OnBatch | None = None) -> Embeddings:
        """(n, d) vectors of queries; see ``Encoder``."""
        return self._encode("queries", texts, on_batch)

    def encode_documents(self, texts: Sequence[str], on_batch: OnBatch | None = None) -> Embeddings:
        """(n, d) vectors of tool texts; see ``Encoder``."""
        return self._encode("documents", texts, on_batch)

    def encode_unkept(self, texts: Sequence[str]) -> Embeddings:
        """(n, d) vectors of queries that are asked once, such as a user's own: neither read nor kept."""
        return self.inner().encode_queries(texts)

    def inner(self) -> Encoder:
        """The encoder behind the store, loaded if it is not yet."""
        if self._inner is None:
            self._inner = self._load()
        return self._inner

    def _encode(self, side: Side, texts: Sequence[str], on_batch: OnBatch | None) -> Embeddings:
        whole = digest([side, list(texts)])
        held = self._last.get(side)
        if held is not None and held[0] == whole:
            return held[1]
        # Longest first, as encoders have it, so that a chunk holds texts of similar length.
        ordered = sorted(set(texts), key=lambda text: (-len(text), text))
        if not ordered:
            return np.empty((0, self.dim), dtype=np.float32)
        keys = [_key(text) for text in ordered]
        stored = self._files[side].get(keys)
        missing = [row for row, key in enumerate(keys) if key not in stored]
        if on_batch is not None and len(missing) < len(ordered):
            on_batch(len(ordered) - len(missing))
        for start in range(0, len(missing), CHUNK):
            part = missing[start : start + CHUNK]
            encode = getattr(self.inner(), f"encode_{side}")
            vectors: Embeddings = np.asarray(encode([ordered[row] for row in part], on_batch), np.float32)
            self._files[side].put([keys[row] for row in part], vectors)
            stored |= {keys[row]: vector for row, vector in zip(part, vectors, strict=True)}
            self.encoded += len(part)
        self.dim = len(stored[keys[0]])
        place = {text: row for row, text in enumerate(ordered)}
        vectors = np.stack([stored[key] for key in keys])[[place[text] for text in texts]]
        self._last[side] = (whole, vectors)
        return vectors

    def size(self) -> StoreSize:
        """Vectors of this model that are kept, and the bytes they take."""
        files = self._files.values()
        return StoreSize(
            vectors=sum(file.count() for file in files),
            bytes=sum(file.path.stat().st_size for file in files if file.path.is_file()),
            files=sum(file.path.is_file() for file in files),
        )


@dataclass(frozen=True)
class StoreSize:
    """What a store takes."""

    vectors: int
    bytes: int
    files: int


def store_size(folder: Path) -> StoreSize:
    """All vectors kept under ``folder``, whatever the model."""
    files = sorted(folder.glob("*.sqlite")) if folder.is_dir() else []
    return StoreSize(
        sum(VectorFile(path).count() for path in files), sum(p.stat().st_size for p in files), len(files)
    )


def store_folder(settings: Settings) -> Path:
    """Where vectors are kept, shared by runs."""
    return settings.outputs / "store" / "encodings"


def surroundings() -> dict[str, Any]:
    """What else the last bits of a vector depend on: libraries, processor, whether there is a GPU."""
    return {
        "libraries": {name: version(name) for name in _LIBRARIES},
        "processor": processor(),
        "gpu": has_gpu(),
        "width": WIDTH_STEP,
    }


def keep_vectors(name: str, content: Any, folder: Path, load: Callable[[], Encoder]) -> StoredEncoder:
    """An encoder of any making behind the vectors kept in ``folder``.

    Args:
        content: what its vectors depend on, weights and lengths included; the surroundings are added.
        load: opens it, when a vector is missing.
    """

    def steady() -> Encoder:
        encoder = load()
        if isinstance(encoder, SentenceEncoder):
            encoder.steady = True
        return encoder

    return StoredEncoder(name, digest([content, surroundings()]), folder, steady)


def stored_encoder(
    settings: Settings,
    name: str,
    progress: Progress | None = None,
    *,
    pooling: Pooling | None = None,
    max_length: int = 256,
    query_prefix: str = "",
    document_prefix: str = "",
) -> StoredEncoder:
    """A model of the weights store behind the vectors kept under ``outputs/store/encodings``.

    Args:
        pooling: none = the model's own, as the labelling stage loads its candidate encoder.
        max_length: tokens after which a text is cut.
        query_prefix: put before each query.
        document_prefix: put before each document.

    Raises:
        UserError: no such model; that its weights cannot be had shows when something is to be encoded.
    """
    store = ModelStore(settings.models)

    def load() -> Encoder:
        return load_encoder(
            store.path(name, progress),
            name=name,
            pooling=pooling,
            max_length=max_length,
            query_prefix=query_prefix,
            document_prefix=document_prefix,
            steady=True,
        )

    identity = digest(
        {
            "model": store.digest(name),
            "pooling": pooling,
            "max_length": max_length,
            "prefixes": [query_prefix, document_prefix],
            **surroundings(),
        }
    )
    return StoredEncoder(name, identity, store_folder(settings), load)


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]
