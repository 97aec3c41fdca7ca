"""Learned sparse retrieval (SPLADE): weights over a vocabulary, scored by their dot product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ecoagent.retrieval.encoders import OnBatch, require_model, set_max_length
from ecoagent.retrieval.runs import RankedRun, TextSet, TopK
from ecoagent.settings import UserError

BLOCK = 512
"""Queries scored at once."""
SPARSE_BATCH = 16
"""Texts per forward pass: logits take tokens x vocabulary x 4 bytes for each."""


class SparseTexts:
    """A sentence-transformers ``SparseEncoder``; batches are formed as ``SentenceEncoder`` forms them."""

    def __init__(self, model: Any, *, name: str, batch_size: int = SPARSE_BATCH) -> None:
        self.model, self.name = model, name
        self._batch_size = batch_size

    def encode_queries(self, texts: Sequence[str], on_batch: OnBatch | None = None) -> Any:
        """(n, vocabulary) ``scipy.sparse.csr_matrix`` of float32 weights, in the order of ``texts``."""
        return self._encode(self.model.encode_query, texts, on_batch)

    def encode_documents(self, texts: Sequence[str], on_batch: OnBatch | None = None) -> Any:
        """(n, vocabulary) ``scipy.sparse.csr_matrix`` of float32 weights, in the order of ``texts``."""
        return self._encode(self.model.encode_document, texts, on_batch)

    def _encode(self, encode: Callable[..., Any], texts: Sequence[str], on_batch: OnBatch | None) -> Any:
        from scipy import sparse

        # The model tells the size of its vocabulary by encoding: for no texts, an empty one.
        ordered = sorted(set(texts), key=lambda text: (-len(text), text)) or [""]
        parts = []
        for start in range(0, len(ordered), self._batch_size):
            batch = ordered[start : start + self._batch_size]
            found = encode(batch, batch_size=len(batch), save_to_cpu=True, show_progress_bar=False).coalesce()
            rows, columns = found.indices().numpy()
            values = found.values().numpy().astype(np.float32)
            parts.append(sparse.csr_matrix((values, (rows, columns)), shape=tuple(found.shape)))
            if on_batch is not None and texts:
                on_batch(len(batch))
        whole = sparse.vstack(parts, format="csr")
        place = {text: row for row, text in enumerate(ordered)}
        return whole[[place[text] for text in texts]]


def load_sparse(
    path: Path,
    *,
    name: str,
    max_length: int = 512,
    batch_size: int = SPARSE_BATCH,
    device: str | None = None,
) -> SparseTexts:
    """Load a SPLADE model from a folder, as saved or as a plain masked language model.

    Raises:
        UserError: the folder holds no such model.
    """
    require_model(path)
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    model = SparseEncoder(str(path), device=device, local_files_only=True).float().eval()
    if not any(isinstance(module, SpladePooling) for module in model.modules()):
        # The library would put an untrained layer on top of any other model.
        raise UserError(
            f"{path} holds no SPLADE model: it has no head over the vocabulary",
            remedy="give a model for masked language modelling that was trained as SPLADE",
        )
    set_max_length(model, max_length)
    return SparseTexts(model, name=name, batch_size=batch_size)


def rank_sparse(
    encoder: SparseTexts,
    queries: TextSet,
    tools: TextSet,
    k: int,
    *,
    name: str | None = None,
    on_batch: OnBatch | None = None,
) -> RankedRun:
    """The ``k`` best tools per query by the dot product; tools that share no term are left out."""
    index = encoder.encode_documents(tools.texts, on_batch).T.tocsr()
    vectors = encoder.encode_queries(queries.texts, on_batch)
    kept = TopK(name or encoder.name, tools.ids, k, matches_only=True)
    for start in range(0, len(queries), BLOCK):
        kept.add(queries.ids[start : start + BLOCK], (vectors[start : start + BLOCK] @ index).toarray())
    return kept.run()
