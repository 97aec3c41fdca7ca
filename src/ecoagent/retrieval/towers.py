"""Dual encoders: two untied towers, f_Q and f_T (Section 3.2.1), or one model for both sides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ecoagent.retrieval.encoders import Pooling, load_model, set_max_length
from ecoagent.settings import TrainSettings


def build_towers(
    settings: TrainSettings, query_path: Path, tool_path: Path, *, device: str | None = None
) -> Any:
    """The untrained model that ``settings`` describe, a ``SentenceTransformer``.

    Args:
        settings: towers, pooling, lengths and prefixes.
        query_path: folder f_Q starts from.
        tool_path: folder f_T starts from; with ``towers = "one"`` it is not looked at.
        device: torch device; none = a GPU if there is one.

    Raises:
        UserError: a folder holds no model.
    """
    how: dict[str, Any] = {
        "pooling": settings.pooling,
        "max_length": settings.max_length,
        "query_prefix": settings.query_prefix,
        "tool_prefix": settings.tool_prefix,
        "device": device,
    }
    if settings.towers == "one":
        return build_siamese(query_path, **how)
    return build_two_tower(query_path, tool_path, **how)


def build_siamese(
    path: Path,
    *,
    pooling: Pooling = "mean",
    max_length: int = 128,
    query_prefix: str = "",
    tool_prefix: str = "",
    device: str | None = None,
) -> Any:
    """A ``SentenceTransformer`` whose queries and tools go through the same weights.

    Raises:
        UserError: the folder holds no model.
    """
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(
        modules=_tower(path, pooling), device=device, prompts={"query": query_prefix, "document": tool_prefix}
    )
    set_max_length(model, max_length)
    return model.eval()


def build_two_tower(
    query_path: Path,
    tool_path: Path,
    *,
    pooling: Pooling = "cls",
    max_length: int = 256,
    query_prefix: str = "",
    tool_prefix: str = "",
    device: str | None = None,
) -> Any:
    """A ``SentenceTransformer`` whose queries and tools go through separate weights.

    Both towers may start from one folder; they are loaded twice and share nothing. The prefixes are
    stored as the model's own prompts, so that training, evaluation and anyone who loads the folder
    use the same.

    Raises:
        UserError: a folder holds no model.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Router

    model = SentenceTransformer(
        modules=[
            Router.for_query_document(
                query_modules=_tower(query_path, pooling), document_modules=_tower(tool_path, pooling)
            )
        ],
        device=device,
        prompts={"query": query_prefix, "document": tool_prefix},
    )
    set_max_length(model, max_length)
    return model.eval()


def _tower(path: Path, pooling: Pooling) -> list[Any]:
    from sentence_transformers.sentence_transformer.modules import Pooling as PoolingModule

    transformer = load_model(path, "cpu")[0]
    return [transformer, PoolingModule(transformer.get_embedding_dimension(), pooling_mode=pooling)]


def save_two_tower(model: Any, path: Path) -> None:
    """Write the towers with prefixes and lengths; ``encoders.load_two_tower`` reads them back."""
    model.save_pretrained(str(path), create_model_card=False)
