"""Dense encoders behind one protocol: texts in, L2-normalised float32 rows out (Eq. 1-2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ecoagent.settings import UserError

Pooling = Literal["cls", "mean"]
Embeddings = npt.NDArray[np.float32]
OnBatch = Callable[[int], None]
"""Called with the number of texts just encoded."""

DEFAULT_BATCH = 64
WIDTH_STEP = 16
"""Steady encoding pads to multiples of this many tokens."""
_COUNTED_TOGETHER = 1024


@runtime_checkable
class Encoder(Protocol):
    """Turns queries and documents into vectors whose dot product is the cosine S_sem (Eq. 2)."""

    name: str
    """Model that really runs, as tables and cards show it."""
    dim: int
    """Length d of a vector."""

    def encode_queries(self, texts: Sequence[str], on_batch: OnBatch | None = None) -> Embeddings:
        """(n, d) float32, rows of length 1, in the order of ``texts``."""
        ...

    def encode_documents(self, texts: Sequence[str], on_batch: OnBatch | None = None) -> Embeddings:
        """(n, d) float32, rows of length 1, in the order of ``texts``."""
        ...


class SentenceEncoder:
    """A sentence-transformers model, plain or with a query and a document tower.

    Each distinct text is encoded once, in batches of similar length. Batches are formed from the
    sorted distinct texts, so that the same set of texts gives the same bytes in whatever order it
    comes: padding to a different neighbour may change the last bits of a vector.

    A steady encoder goes further: a text's vector is the same, whatever is encoded with it. Only texts
    of one width (their tokens, rounded up to ``WIDTH_STEP``) share a batch, and on a GPU, whose products
    are computed another way for another number of rows, every batch is filled up to the same size. That
    the rows of one product do not touch each other's bits is how the libraries behave on one machine, as
    tested; between machines and versions it is not promised.

    With ``normalize`` off the rows are as the model gives them, for encoders whose makers score by the
    plain dot product.
    """

    def __init__(
        self,
        model: Any,
        *,
        name: str,
        batch_size: int = DEFAULT_BATCH,
        steady: bool = False,
        normalize: bool = True,
    ) -> None:
        self.model = model
        self.name = name
        self.dim = int(model.get_embedding_dimension())
        self.steady = steady
        self.batch_size, self._normalize = batch_size, normalize

    def encode_queries(self, texts: Sequence[str], on_batch: OnBatch | None = None) -> Embeddings:
        """(n, d) vectors of queries; see ``Encoder``."""
        return self._encode("query", texts, on_batch)

    def encode_documents(self, texts: Sequence[str], on_batch: OnBatch | None = None) -> Embeddings:
        """(n, d) vectors of tool texts; see ``Encoder``."""
        return self._encode("document", texts, on_batch)

    def _encode(
        self, side: Literal["query", "document"], texts: Sequence[str], on_batch: OnBatch | None
    ) -> Embeddings:
        ordered = sorted(set(texts), key=lambda text: (-len(text), text))
        found = np.empty((len(ordered), self.dim), dtype=np.float32)
        encode = self.model.encode_query if side == "query" else self.model.encode_document
        for rows, width in self._batches(side, ordered):
            batch = [ordered[row] for row in rows]
            size = len(batch)
            how: dict[str, Any] = {}
            if width is not None:
                how["processing_kwargs"] = {"text": {"padding": "max_length", "max_length": width}}
                if self.model.device.type != "cpu":
                    batch += [batch[0]] * (self.batch_size - size)
            vectors = encode(
                batch,
                batch_size=len(batch),
                normalize_embeddings=self._normalize,
                show_progress_bar=False,
                **how,
            )
            found[rows] = vectors[:size]
            if on_batch is not None:
                on_batch(size)
        place = {text: row for row, text in enumerate(ordered)}
        return found[[place[text] for text in texts]]

    def _batches(
        self, side: Literal["query", "document"], ordered: list[str]
    ) -> Iterator[tuple[list[int], int | None]]:
        """Rows of each batch, and the width they are padded to; none = their longest."""
        widths = self._widths(side, ordered) if self.steady and ordered else None
        groups: dict[int | None, list[int]] = {}
        for row in range(len(ordered)):
            groups.setdefault(None if widths is None else widths[row], []).append(row)
        # The widest first, as the longest are without widths: what does not fit a memory fails at once.
        for width in sorted(groups, key=lambda w: -(w or 0)):
            rows = groups[width]
            for start in range(0, len(rows), self.batch_size):
                yield rows[start : start + self.batch_size], width

    def _widths(self, side: Literal["query", "document"], ordered: list[str]) -> list[int] | None:
        """Tokens of each text with its prefix, rounded up; none where the model has no tokens to pad."""
        limit = self.model.max_seq_length
        widths: list[int] = []
        for start in range(0, len(ordered), _COUNTED_TOGETHER):
            part = ordered[start : start + _COUNTED_TOGETHER]
            features = self.model.preprocess(part, prompt=self.model.prompts.get(side) or None, task=side)
            if "attention_mask" not in features:
                return None
            for count in features["attention_mask"].sum(dim=1).tolist():
                width = -(-int(count) // WIDTH_STEP) * WIDTH_STEP
                widths.append(width if limit is None else min(width, int(limit)))
        return widths


def load_encoder(
    path: Path,
    *,
    name: str,
    pooling: Pooling | None = "mean",
    max_length: int = 256,
    query_prefix: str = "",
    document_prefix: str = "",
    batch_size: int = DEFAULT_BATCH,
    device: str | None = None,
    steady: bool = False,
) -> SentenceEncoder:
    """Load a folder in sentence-transformers or plain transformers layout; nothing is downloaded.

    Args:
        path: the model's folder.
        name: shown in tables; must name the model that really runs.
        pooling: replaces the folder's own pooling; none = keep it.
        max_length: tokens after which a text is cut, at most what the model has positions for.
        query_prefix: put before each query.
        document_prefix: put before each document.
        batch_size: texts per forward pass.
        device: torch device; none = a GPU if there is one.
        steady: a text's vector does not depend on its neighbours; see ``SentenceEncoder``.

    Raises:
        UserError: the folder holds no model.
    """
    model = load_model(path, device)
    if pooling is not None:
        set_pooling(model, pooling)
    set_max_length(model, max_length)
    model.prompts = {"query": query_prefix, "document": document_prefix}
    return SentenceEncoder(model, name=name, batch_size=batch_size, steady=steady)


def load_two_tower(
    path: Path, *, name: str | None = None, batch_size: int = DEFAULT_BATCH, device: str | None = None
) -> SentenceEncoder:
    """Load towers saved by ``towers.save_two_tower``; prefixes, pooling and lengths come with them.

    Raises:
        UserError: the folder holds no model.
    """
    return SentenceEncoder(load_model(path, device), name=name or path.name, batch_size=batch_size)


def load_model(path: Path, device: str | None = None) -> Any:
    """The ``SentenceTransformer`` of a folder, in float32.

    Raises:
        UserError: the folder holds no model.
    """
    require_model(path)
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(path), device=device, local_files_only=True).float().eval()


def require_model(path: Path) -> None:
    """Check that a folder holds a model, before a library looks for it elsewhere and shows bars.

    Raises:
        UserError: it holds none.
    """
    if not any((path / part).is_file() for part in ("modules.json", "config.json")):
        raise UserError(
            f"{path} holds no sentence-transformers or transformers model",
            remedy="pull the model with `ecoagent models pull` or train it with `ecoagent train`",
        )
    from transformers.utils import logging

    hide_bar: Callable[[], None] = logging.disable_progress_bar
    hide_bar()


def set_pooling(model: Any, mode: Pooling) -> None:
    """Replace the pooling of a plain model."""
    from sentence_transformers.sentence_transformer.modules import Pooling as PoolingModule

    for key, module in model.named_children():
        if isinstance(module, PoolingModule) and module.pooling_mode != mode:
            setattr(model, key, PoolingModule(module.embedding_dimension, pooling_mode=mode))


def set_max_length(model: Any, max_length: int) -> None:
    """Cut texts after ``max_length`` tokens, or after as many as the model has positions for."""
    model.max_seq_length = min([max_length, *_positions(model)])


def _positions(model: Any) -> list[int]:
    """Tokens each part of the model has positions for."""
    found = []
    for name, module in model.named_modules():
        if hasattr(getattr(module, "config", None), "max_position_embeddings"):
            found.append(int(module.config.max_position_embeddings))
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            # RoBERTa's kind counts positions from behind the one of the padding.
            found.append(int(module.num_embeddings) - int(module.padding_idx) - 1)
    return found
