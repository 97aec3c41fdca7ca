"""How well towers do on the validation split, during a training and at its ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ecoagent.metrics import evaluate_run
from ecoagent.retrieval.dense import rank_dense
from ecoagent.retrieval.encoders import SentenceEncoder
from ecoagent.retrieval.pairs import TrainingRow, plan_batches
from ecoagent.retrieval.runs import TextSet
from ecoagent.settings import TrainSettings, UserError

DEPTH = 100
"""Tools kept per query; MRR is over them."""
DECIMALS = 6

Measured = dict[str, float | None]
"""``loss`` and ``MRR``; none where the split is empty."""


@dataclass(frozen=True)
class Validation:
    """What towers are validated on; never a query they are later judged on."""

    rows: Sequence[TrainingRow]
    """Pairs whose loss is taken."""
    queries: TextSet
    """Queries whose MRR is taken, among all tools."""
    tools: TextSet
    golds: Mapping[str, frozenset[str]]
    """Query to its golds."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to measure."""
        return not self.rows or not len(self.queries)

    def measure(self, encoder: SentenceEncoder, settings: TrainSettings, seed: int) -> Measured:
        """Loss over the pairs and MRR of the queries, rounded; none where there is nothing to measure."""
        if self.empty:
            return {"loss": None, "MRR": None}
        loss = contrastive_loss(
            encoder,
            self.rows,
            batch_size=settings.batch_size,
            temperature=settings.temperature,
            seed=seed,
        )
        run = rank_dense(encoder, self.queries, self.tools, DEPTH)
        found = evaluate_run(run, {query: self.golds[query] for query in self.queries.ids}, ("MRR",))
        return {"loss": round(loss, DECIMALS), "MRR": round(found.means()["MRR"], DECIMALS)}


def contrastive_loss(
    encoder: SentenceEncoder, rows: Sequence[TrainingRow], *, batch_size: int, temperature: float, seed: int
) -> float:
    """Mean InfoNCE of ``rows`` in batches as in training, without dropout: the validation loss.

    Raises:
        UserError: no rows.
    """
    if not rows:
        raise UserError(
            "there are no pairs to take the loss of", remedy="give rows of a split that has pairs"
        )
    import torch

    from ecoagent.retrieval.losses import info_nce

    texts = sorted({text for row in rows for text in (row.tool, *row.negatives)})
    place = {text: n for n, text in enumerate(texts)}
    tools = encoder.encode_documents(texts)
    queries = encoder.encode_queries([row.query for row in rows])
    total = 0.0
    for _, batch in plan_batches(rows, batch_size, 1, seed):
        chosen = [rows[n] for n in batch]
        width = max(len(row.negatives) for row in chosen)
        negatives, mask = None, None
        if width:
            lengths = np.array([len(row.negatives) for row in chosen])
            filled = [row.negatives + (row.tool,) * (width - len(row.negatives)) for row in chosen]
            negatives = torch.from_numpy(tools[[[place[text] for text in row] for row in filled]])
            mask = torch.from_numpy(np.arange(width) < lengths[:, None])
        value = info_nce(
            torch.from_numpy(queries[batch]),
            torch.from_numpy(tools[[place[row.tool] for row in chosen]]),
            negatives,
            temperature=temperature,
            negative_mask=mask,
        )
        total += float(value) * len(batch)
    return total / len(rows)


def validation_steps(every: float | None, steps: int, epochs: float) -> frozenset[int]:
    """Steps after which a training is validated; the last is always one of them.

    Args:
        every: steps from 1 up, a share of an epoch below; none = no step.
        steps: of the whole training.
        epochs: passes over the rows that these steps are.
    """
    if every is None or steps == 0:
        return frozenset()
    stride = every if every >= 1 else max(1.0, every * steps / epochs)
    found = {round(n * stride) for n in range(1, int(steps / stride) + 1)}
    return frozenset(found | {steps})
