"""Contrastive loss of the dual encoder (Eq. 3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


def info_nce(
    queries: Tensor,
    positives: Tensor,
    negatives: Tensor | None = None,
    *,
    temperature: float,
    negative_mask: Tensor | None = None,
) -> Tensor:
    """Mean InfoNCE over a batch (Eq. 3): in-batch negatives and each query's own hard negatives.

    Args:
        queries: (B, d), rows of length 1.
        positives: (B, d); row i is the gold tool of query i, the other rows are its negatives.
        negatives: (B, H, d) hard negatives; row i enters the denominator of query i alone.
        temperature: tau.
        negative_mask: (B, H) booleans, false where a query has fewer than H negatives.

    Returns:
        Scalar, natural logarithm.
    """
    scores = queries @ positives.T / temperature
    if negatives is not None:
        hard = torch.einsum("bd,bhd->bh", queries, negatives) / temperature
        if negative_mask is not None:
            hard = hard.masked_fill(~negative_mask, float("-inf"))
        scores = torch.cat([scores, hard], dim=1)
    return functional.cross_entropy(scores, torch.arange(len(queries), device=scores.device))


class InfoNCELoss(nn.Module):
    """``info_nce`` in the form the sentence-transformers trainer calls.

    Columns of a training row are the query, its gold tool and H negatives; the label is how many
    of the negatives are real. ``values`` keeps the loss of every training step.
    """

    def __init__(self, model: Any, temperature: float) -> None:
        super().__init__()
        self.model = model
        self.temperature = temperature
        self.values: list[float] = []

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Loss of a batch of tokenised columns."""
        vectors = [
            functional.normalize(self.model(features)["sentence_embedding"], dim=-1)
            for features in sentence_features
        ]
        negatives, mask = None, None
        if len(vectors) > 2:
            negatives = torch.stack(vectors[2:], dim=1)
            if labels is not None:
                mask = torch.arange(negatives.shape[1], device=labels.device) < labels[:, None]
        loss = info_nce(vectors[0], vectors[1], negatives, temperature=self.temperature, negative_mask=mask)
        if self.training:
            self.values.append(float(loss.detach()))
        return loss
