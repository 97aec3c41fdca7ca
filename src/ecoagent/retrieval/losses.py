"""Contrastive loss of the dual encoder (Eq. 3), and the terms that may be added to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ecoagent.retrieval.pairs import TrainingRow
from ecoagent.settings import TrainSettings, UserError

PAD = -1
"""Row number of a row that only fills a process's share of a batch; it takes no part in the loss."""


def info_nce(
    queries: Tensor,
    positives: Tensor,
    negatives: Tensor | None = None,
    *,
    temperature: float,
    negative_mask: Tensor | None = None,
    in_batch_mask: Tensor | None = None,
) -> Tensor:
    """Mean InfoNCE over a batch (Eq. 3): in-batch negatives and each query's own hard negatives.

    Args:
        queries: (B, d), rows of length 1.
        positives: (B, d); row i is the gold tool of query i, the other rows are its negatives.
        negatives: (B, H, d) hard negatives; row i enters the denominator of query i alone.
        temperature: tau.
        negative_mask: (B, H) booleans, false where a query has fewer than H negatives.
        in_batch_mask: (B, B) booleans, false where tool j is no negative of query i; true at j = i.

    Returns:
        Scalar, natural logarithm.
    """
    scores = contrastive_scores(
        queries,
        positives,
        negatives,
        temperature=temperature,
        negative_mask=negative_mask,
        in_batch_mask=in_batch_mask,
    )
    return functional.cross_entropy(scores, torch.arange(len(queries), device=scores.device))


def contrastive_scores(
    queries: Tensor,
    positives: Tensor,
    negatives: Tensor | None = None,
    *,
    temperature: float,
    negative_mask: Tensor | None = None,
    in_batch_mask: Tensor | None = None,
) -> Tensor:
    """(b, B + H) logits of ``info_nce``; b may be a share of the B queries. What is masked is -inf."""
    scores = queries @ positives.T / temperature
    if in_batch_mask is not None:
        scores = scores.masked_fill(~in_batch_mask, float("-inf"))
    if negatives is not None:
        hard = torch.einsum("bd,bhd->bh", queries, negatives) / temperature
        if negative_mask is not None:
            hard = hard.masked_fill(~negative_mask, float("-inf"))
        scores = torch.cat([scores, hard], dim=1)
    return scores


def distillation(
    queries: Tensor, candidates: Tensor, mask: Tensor, teacher: Tensor, *, temperature: float, softness: float
) -> Tensor:
    """KL divergence of each query's scores over its own candidates from a teacher's.

    Args:
        queries: (B, d).
        candidates: (B, C, d), the gold first, then the row's negatives.
        mask: (B, C) booleans, false where a row has fewer candidates.
        teacher: (B, C) teacher scores, on a scale of the teacher's own.
        temperature: tau of the student's scores.
        softness: the teacher's scores are divided by it before the softmax.

    Returns:
        (B,), natural logarithm.
    """
    own = torch.einsum("bd,bcd->bc", queries, candidates) / temperature
    # A finite floor: with -inf the product of a zero probability and its logarithm is no number.
    lowest = torch.finfo(own.dtype).min
    student = functional.log_softmax(own.masked_fill(~mask, lowest), dim=1)
    target = functional.log_softmax((teacher.to(own) / softness).masked_fill(~mask, lowest), dim=1)
    terms = target.exp() * (target - student)
    return terms.masked_fill(~mask, 0.0).sum(dim=1)


class _Gather(torch.autograd.Function):
    """Rows of every process in order; the gradient of a row is the sum of all processes' gradients."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        found = [torch.empty_like(rows) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(found, rows.contiguous())
        ctx.rows = len(rows)
        return torch.cat(found)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous()
        torch.distributed.all_reduce(total)
        start = torch.distributed.get_rank() * int(ctx.rows)
        return total[start : start + int(ctx.rows)]


def world_size() -> int:
    """Processes that train together; 1 without torchrun."""
    ready = torch.distributed.is_available() and torch.distributed.is_initialized()
    return int(torch.distributed.get_world_size()) if ready else 1


def gather(rows: Tensor) -> Tensor:
    """(n, ...) rows of every process, one after the other, with gradients; ``rows`` itself if alone."""
    if world_size() == 1:
        return rows
    if not rows.is_floating_point():
        found = [torch.empty_like(rows) for _ in range(world_size())]
        torch.distributed.all_gather(found, rows.contiguous())
        return torch.cat(found)
    apply: Callable[[Tensor], Tensor] = _Gather.apply
    return apply(rows)


class InfoNCELoss(nn.Module):
    """``info_nce`` in the form the sentence-transformers trainer calls.

    Columns of a training row are the query, its gold tool and H negatives; the label is the row's
    number, by which its facts are looked up. Under torchrun every process holds a share of one
    planned batch: tools are gathered with their gradients, so that a query meets the same negatives
    however many processes there are, and the loss is the mean over the whole batch.

    ``values`` keeps the loss of every training step.

    Raises:
        UserError: distillation is asked for and a row has no teacher scores.
    """

    def __init__(self, model: Any, rows: Sequence[TrainingRow], settings: TrainSettings) -> None:
        super().__init__()
        self.model = model
        self.settings = settings
        self.values: list[float] = []
        width = max((len(row.negatives) for row in rows), default=0)
        self._counts = torch.tensor([len(row.negatives) for row in rows], dtype=torch.long)
        self._rows = rows
        self._teacher: Tensor | None = None
        if settings.distill_weight > 0:
            missing = next((row for row in rows if row.teacher is None), None)
            if missing is not None:
                raise UserError(
                    f"query {missing.query_id!r} has no teacher score for {missing.tool_id!r} or a negative",
                    remedy="give scores of every candidate in train.teacher_scores, "
                    "or set train.distill_weight = 0",
                )
            filled = [tuple(row.teacher or ()) for row in rows]
            self._teacher = torch.tensor([t + (0.0,) * (width + 1 - len(t)) for t in filled])

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """Loss of a batch of tokenised columns."""
        encoded = [self.model(features)["sentence_embedding"] for features in sentence_features]
        numbers = labels.view(-1)
        # Mixed precision is for the encoder: at tau = 0.05 a logit in half precision is off by a tenth.
        with torch.autocast(numbers.device.type, enabled=False):
            return self._loss(
                [functional.normalize(_single(vectors), dim=-1) for vectors in encoded], numbers
            )

    def _loss(self, vectors: list[Tensor], numbers: Tensor) -> Tensor:
        queries, positives = vectors[0], vectors[1]
        negatives = torch.stack(vectors[2:], dim=1) if len(vectors) > 2 else None
        plain = self.settings.symmetric_weight == 0 and self._teacher is None
        if world_size() == 1 and plain and not self.settings.mask_false_negatives:
            loss = info_nce(
                queries,
                positives,
                negatives,
                temperature=self.settings.temperature,
                negative_mask=self._negative_mask(numbers, negatives),
            )
            value = loss
        else:
            loss, value = self._shared(queries, positives, negatives, numbers)
        if self.training:
            self.values.append(float(value.detach()))
        return loss

    def _shared(
        self, queries: Tensor, positives: Tensor, negatives: Tensor | None, numbers: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Loss to take the gradient of, and the mean over the whole batch to show."""
        settings = self.settings
        every = gather(numbers)
        place = _rank() * len(numbers) + torch.arange(len(numbers), device=numbers.device)
        own = torch.arange(len(every), device=every.device) == place[:, None]
        tools = gather(positives)
        allowed = ((every != PAD) | own) & self._in_batch_mask(numbers, every)
        scores = contrastive_scores(
            queries,
            tools,
            negatives,
            temperature=settings.temperature,
            negative_mask=self._negative_mask(numbers, negatives),
            in_batch_mask=allowed,
        )
        terms = functional.cross_entropy(scores, place, reduction="none")
        if settings.symmetric_weight > 0:
            back = positives @ gather(queries).T / settings.temperature
            back = back.masked_fill(~((every != PAD) | own), float("-inf"))
            # Read the other way: query j is no negative of tool i where tool i is a gold of query j.
            back = back.masked_fill(~self._in_batch_mask(every, numbers, once=False).T, float("-inf"))
            terms = terms + settings.symmetric_weight * functional.cross_entropy(
                back, place, reduction="none"
            )
        if self._teacher is not None:
            terms = terms + settings.distill_weight * self._distilled(queries, positives, negatives, numbers)
        real = (numbers != PAD).to(terms.dtype)
        count = (every != PAD).sum()
        # The trainer averages the gradients of the processes, hence their number.
        loss = (terms * real).sum() * (world_size() / count.to(terms.dtype))
        value = loss.detach().clone()
        if world_size() > 1:
            torch.distributed.all_reduce(value)
            value = value / world_size()
        return loss, value

    def _negative_mask(self, numbers: Tensor, negatives: Tensor | None) -> Tensor | None:
        if negatives is None:
            return None
        counts = self._counts.to(numbers.device)[numbers.clamp(min=0)]
        return torch.arange(negatives.shape[1], device=numbers.device) < counts[:, None]

    def _in_batch_mask(self, queries: Tensor, tools: Tensor, *, once: bool = True) -> Tensor:
        """(queries, tools): whether a tool may count against a query; always true for its own.

        With ``once`` a tool that is a hard negative of the query as well counts as that alone.
        """
        shape = (len(queries), len(tools))
        if not self.settings.mask_false_negatives:
            return torch.ones(shape, dtype=torch.bool, device=queries.device)
        columns = [None if t == PAD else self._rows[t] for t in tools.tolist()]
        allowed = []
        for number in queries.tolist():
            row = self._rows[max(number, 0)]
            hard = set(row.negatives) if once else set()
            allowed.append(
                [t is None or t is row or not (t.group in row.gold_groups or t.tool in hard) for t in columns]
            )
        return torch.tensor(allowed, dtype=torch.bool, device=queries.device).view(shape)

    def _distilled(
        self, queries: Tensor, positives: Tensor, negatives: Tensor | None, numbers: Tensor
    ) -> Tensor:
        candidates = positives[:, None]
        mask = torch.ones(len(queries), 1, dtype=torch.bool, device=queries.device)
        real = self._negative_mask(numbers, negatives)
        if negatives is not None and real is not None:
            candidates = torch.cat([candidates, negatives], dim=1)
            mask = torch.cat([mask, real], dim=1)
        teacher = self._teacher
        if teacher is None:  # pragma: no cover - only called where there is one
            raise ValueError("no teacher scores")
        chosen = teacher.to(queries.device)[numbers.clamp(min=0)]
        return distillation(
            queries,
            candidates,
            mask,
            chosen,
            temperature=self.settings.temperature,
            softness=self.settings.distill_temperature,
        )


def _single(vectors: Tensor) -> Tensor:
    """Vectors in single precision, or as they are where they have more."""
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))


def _rank() -> int:
    return int(torch.distributed.get_rank()) if world_size() > 1 else 0
