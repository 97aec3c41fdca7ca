"""Iteration-aware training: the loss is sum_t alpha_t InfoNCE(q_t), negatives are the retriever's own."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ecoagent.feedback.retriever import with_iteration
from ecoagent.retrieval import SentenceEncoder, TextSet, TrainingRow, plan_batches, rank_vectors
from ecoagent.settings import UserError
from ecoagent.settings.feedback import FeedbackSettings

OnStep = Callable[[float], None]
Score = Callable[[SentenceEncoder], float | None]
"""How good the towers are on val; none = val has no query."""

CLIP = 1.0
"""Largest norm of a gradient, as the library's own trainer has it."""
Negatives = Mapping[tuple[int, int], Sequence[str]]
"""(row, iteration) to texts of its negatives."""


@dataclass(frozen=True)
class IterationRow:
    """A positive pair with the texts its query went through.

    Attributes:
        pair: query and gold tool; its own negatives are not used.
        texts: t to q_t, 0 among them; iterations without a new text are absent.
    """

    pair: TrainingRow
    texts: Mapping[int, str]


@dataclass
class Rounds:
    """What a training did.

    Attributes:
        losses: of each step, natural logarithm.
        scores: of val after each round; empty where val is.
        best: round whose weights were kept, from 0.
        stopped_early: whether patience ran out.
        precision: float32 or bfloat16.
    """

    losses: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    best: int = 0
    stopped_early: bool = False
    precision: str = "float32"


def alpha_of(alpha: Sequence[float], iteration: int) -> float:
    """alpha_t; the last one holds for all later t."""
    return alpha[min(iteration, len(alpha) - 1)]


def mine_negatives(
    encoder: SentenceEncoder,
    rows: Sequence[IterationRow],
    tools: TextSet,
    groups: Mapping[str, str],
    count: int,
) -> dict[tuple[int, int], list[str]]:
    """The ``count`` best-ranked tools of each q_t that are no gold of its query, nor a copy of one.

    Args:
        encoder: the towers as they are now.
        rows: training rows.
        tools: every tool with its tool_text.
        groups: tool to duplicate group.
        count: negatives wanted.
    """
    places = [(n, t) for n, row in enumerate(rows) for t in sorted(row.texts)]
    if not count or not places:
        return {}
    texts = dict(zip(tools.ids, tools.texts, strict=True))
    copies: dict[str, int] = {}
    for group in groups.values():
        copies[group] = copies.get(group, 0) + 1
    most = max(sum(copies.get(g, 0) for g in row.pair.gold_groups) for row in rows)
    queries = encoder.encode_queries([with_iteration(rows[n].texts[t], t) for n, t in places])
    vectors = encoder.encode_documents(tools.texts)
    ids = tuple(f"{n}:{t}" for n, t in places)
    run = rank_vectors(queries, vectors, ids, tools.ids, count + most, name="negatives")
    found = {}
    for place, ranked in zip(places, run.tool_ids, strict=True):
        golds = rows[place[0]].pair.gold_groups
        found[place] = [texts[tool] for tool in ranked if groups[tool] not in golds][:count]
    return found


def iteration_loss(
    embed: Callable[[list[str], str], Any],
    rows: Sequence[tuple[int, IterationRow]],
    negatives: Negatives,
    settings: FeedbackSettings,
) -> Any:
    """sum_t alpha_t L(q_t) of a batch, where L is InfoNCE with in-batch and mined negatives.

    L(q_t) is summed over the rows that have a q_t and divided by all rows of the batch, so that a query
    weighs the same whether or not its neighbours were rewritten.

    Args:
        embed: texts and side (query or document) to (n, d) rows of length 1.
        rows: number and row of each member of the batch.
        negatives: mined texts.
        settings: alpha_t and tau.

    Returns:
        Scalar tensor.
    """
    import torch
    from torch.nn import functional

    tools = embed([row.pair.tool for _, row in rows], "document")
    total = tools.new_zeros(())
    for iteration in sorted({t for _, row in rows for t in row.texts}):
        members = [(at, n, row) for at, (n, row) in enumerate(rows) if iteration in row.texts]
        queries = embed([with_iteration(row.texts[iteration], iteration) for _, _, row in members], "query")
        scores = queries @ tools.T
        mined = [negatives.get((n, iteration), ()) for _, n, _ in members]
        width = max(map(len, mined), default=0)
        if width:
            texts = sorted({text for some in mined for text in some})
            place = {text: n for n, text in enumerate(texts)}
            vectors = embed(texts, "document")
            wanted = [[place[text] for text in some] + [0] * (width - len(some)) for some in mined]
            hard = torch.einsum("bd,bhd->bh", queries, vectors[torch.tensor(wanted, device=vectors.device)])
            lengths = torch.tensor([len(some) for some in mined], device=hard.device)
            there = torch.arange(width, device=hard.device) < lengths[:, None]
            scores = torch.cat([scores, hard.masked_fill(~there, float("-inf"))], dim=1)
        labels = torch.tensor([at for at, _, _ in members], device=scores.device)
        summed = functional.cross_entropy(scores.float() / settings.tau, labels, reduction="sum")
        total = total + alpha_of(settings.alpha, iteration) * summed / len(rows)
    return total


def train_iterations(
    model: Any,
    rows: Sequence[IterationRow],
    tools: TextSet,
    groups: Mapping[str, str],
    settings: FeedbackSettings,
    *,
    seed: int,
    score: Score,
    on_step: OnStep | None = None,
) -> Rounds:
    """Train the towers in place; the weights of the best round are left in them.

    A round mines its negatives anew, trains ``round_epochs`` and looks at val. Two trainings of the same
    rows with the same seed on the same machine and number of threads give the same weights.

    Args:
        model: two towers, see ``retrieval.build_two_tower``.
        rows: positives of the train split alone, with their q_t.
        tools: every tool.
        groups: tool to duplicate group.
        settings: hyperparameters.
        seed: of batches and dropout.
        score: val's judgement of the towers; higher is better.
        on_step: told the loss of each step.

    Raises:
        UserError: no rows, or the loss is no longer a number.
    """
    if not rows:
        raise UserError(
            "no training pair is of a category that is not held out",
            remedy="lower feedback.held_out, or synthesize queries for more tools",
        )
    import torch
    from torch.nn.utils import clip_grad_norm_
    from transformers import get_linear_schedule_with_warmup, set_seed

    set_seed(seed)
    device = model.device
    half = device.type == "cuda" and torch.cuda.is_bf16_supported()
    encoder = SentenceEncoder(model, name="feedback")
    pairs = [row.pair for row in rows]
    rounds = math.ceil(settings.epochs / settings.round_epochs)
    first = plan_batches(pairs, settings.batch_size, min(settings.round_epochs, settings.epochs), seed)
    steps = max(1, round(len(first) * settings.epochs / min(settings.round_epochs, settings.epochs)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=0.0)
    linear: Callable[..., Any] = get_linear_schedule_with_warmup
    schedule = linear(optimizer, math.ceil(settings.warmup_ratio * steps), steps)

    def embed(texts: list[str], side: str) -> Any:
        features = model.preprocess(texts, task=side)
        moved = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in features.items()}
        return torch.nn.functional.normalize(model(moved, task=side)["sentence_embedding"], dim=-1)

    done, left = Rounds(precision="bfloat16" if half else "float32"), settings.epochs
    kept: dict[str, Any] | None = None
    for number in range(rounds):
        model.eval()
        negatives = mine_negatives(encoder, rows, tools, groups, settings.negatives)
        model.train()
        share = min(settings.round_epochs, left)
        for _, batch in plan_batches(pairs, settings.batch_size, share, seed + number):
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=half):
                loss = iteration_loss(embed, [(n, rows[n]) for n in batch], negatives, settings)
            value = float(loss.detach())
            if not math.isfinite(value):
                raise UserError(
                    f"training diverged: the loss of step {len(done.losses) + 1} is {value}",
                    remedy="lower feedback.learning_rate",
                )
            optimizer.zero_grad()
            loss.backward()
            clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            schedule.step()
            done.losses.append(value)
            if on_step is not None:
                on_step(value)
        left -= share
        model.eval()
        found = score(encoder)
        if found is None:
            done.best = number
            continue
        done.scores.append(found)
        if found > max(done.scores[:-1], default=-math.inf):
            done.best, kept = number, copy.deepcopy(model.state_dict())
        if number - done.best >= settings.patience:
            done.stopped_early = True
            break
    if kept is not None:
        model.load_state_dict(kept)
    return done
