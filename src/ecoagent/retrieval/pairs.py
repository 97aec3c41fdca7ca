"""Training rows from the mined pairs, and batches without false negatives."""

from __future__ import annotations

import heapq
import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ecoagent.schema import PairRow
from ecoagent.settings import UserError

_NEGATIVE_ORDER = {"hard": 0, "random": 1, None: 2}


@dataclass(frozen=True)
class TrainingRow:
    """One positive pair with its negatives."""

    query_id: str
    query: str
    tool_id: str
    tool: str
    negatives: tuple[str, ...]
    """Texts of at most H negatives: mined ones first, random ones where too few were mined."""
    group: str
    """Duplicate group of the positive."""
    gold_groups: frozenset[str]
    """Duplicate groups of every gold of the query."""
    teacher: tuple[float, ...] | None = None
    """Teacher scores of the positive and then of each negative; none = not known."""


def training_rows(
    pairs: Sequence[PairRow],
    query_texts: Mapping[str, str],
    tool_texts: Mapping[str, str],
    groups: Mapping[str, str],
    *,
    split: str,
    hard_negatives: int,
    teacher: Mapping[tuple[str, str], float] | None = None,
) -> list[TrainingRow]:
    """Rows of one split, sorted by query and tool.

    Negatives belong to a query. Those that share a duplicate group with one of its golds are not
    negatives at all and are left out.

    Args:
        pairs: positives and negatives of every split.
        query_texts: query id to text.
        tool_texts: tool id to tool_text.
        groups: tool id to duplicate group.
        split: split whose pairs are used; no other is looked at.
        hard_negatives: H, negatives per row.
        teacher: (query id, tool id) to a teacher's score; a row that lacks one of its own has none.

    Raises:
        UserError: a pair names a query or tool that is in no table.
    """
    golds: dict[str, list[str]] = defaultdict(list)
    mined: dict[str, list[PairRow]] = defaultdict(list)
    for pair in pairs:
        if pair.split != split:
            continue
        if pair.query_id not in query_texts:
            raise UserError(f"pairs name query {pair.query_id!r}, which is not in the queries", remedy=_AGAIN)
        if pair.tool_id not in tool_texts:
            raise UserError(f"pairs name tool {pair.tool_id!r}, which is not in the tools", remedy=_AGAIN)
        if pair.label == 1:
            golds[pair.query_id].append(pair.tool_id)
        else:
            mined[pair.query_id].append(pair)
    rows = []
    for query, tools in sorted(golds.items()):
        gold_groups = frozenset(groups[tool] for tool in tools)
        ordered = sorted(
            (p for p in mined[query] if groups[p.tool_id] not in gold_groups),
            key=lambda p: (_NEGATIVE_ORDER[p.negative_type], -(p.score or 0.0), p.tool_id),
        )
        chosen = list(dict.fromkeys(p.tool_id for p in ordered))[:hard_negatives]
        negatives = tuple(tool_texts[tool] for tool in chosen)
        for tool in sorted(set(tools)):
            scores = [(teacher or {}).get((query, candidate)) for candidate in (tool, *chosen)]
            known = tuple(score for score in scores if score is not None)
            rows.append(
                TrainingRow(
                    query,
                    query_texts[query],
                    tool,
                    tool_texts[tool],
                    negatives,
                    groups[tool],
                    gold_groups,
                    known if len(known) == len(scores) else None,
                )
            )
    return rows


_AGAIN = "synthesize again, so that the tables belong together"


def plan_batches(
    rows: Sequence[TrainingRow], batch_size: int, epochs: float, seed: int, *, masked: bool = False
) -> list[tuple[int, list[int]]]:
    """Every batch of a training as (epoch, row numbers), each row once an epoch.

    No batch holds a duplicate group twice, nor a tool that is a gold of another row's query: as an
    in-batch negative it would be a false one. The groups with most rows left go first, ties by
    chance, so that batches stay full to the end. A fraction of an epoch takes that share of its
    batches.

    Args:
        rows: training rows.
        batch_size: rows per batch at most.
        epochs: passes over the rows; need not be whole.
        seed: of the shuffles.
        masked: the loss masks golds of other rows' queries, so that a batch may hold them; a duplicate
            group still comes once.
    """
    plan: list[tuple[int, list[int]]] = []
    for epoch in range(math.ceil(epochs)):
        batches = _pack(rows, batch_size, random.Random(f"{seed}:batches:{epoch}"), masked)
        share = min(1.0, epochs - epoch)
        plan += [(epoch, batch) for batch in batches[: math.ceil(share * len(batches))]]
    return plan


def _pack(rows: Sequence[TrainingRow], batch_size: int, rng: random.Random, masked: bool) -> list[list[int]]:
    waiting: dict[str, list[int]] = defaultdict(list)
    for number in rng.sample(range(len(rows)), len(rows)):
        waiting[rows[number].group].append(number)
    heap = [(-len(numbers), rng.random(), group) for group, numbers in sorted(waiting.items())]
    heapq.heapify(heap)
    batches = []
    while heap:
        batch: list[int] = []
        golds: set[str] = set()
        groups: set[str] = set()
        seen: list[str] = []
        while heap and len(batch) < batch_size:
            group = heapq.heappop(heap)[2]
            seen.append(group)
            fit = _first_fit(rows, waiting[group], group, golds, groups)
            if fit is not None:
                waiting[group].remove(fit)
                batch.append(fit)
                if not masked:
                    golds |= rows[fit].gold_groups
                    groups.add(group)
        for group in seen:
            if waiting[group]:
                heapq.heappush(heap, (-len(waiting[group]), rng.random(), group))
        batches.append(batch)
    rng.shuffle(batches)
    return batches


def _first_fit(
    rows: Sequence[TrainingRow], numbers: Sequence[int], group: str, golds: set[str], groups: set[str]
) -> int | None:
    if group in golds:
        return None
    return next((n for n in numbers if not rows[n].gold_groups & groups), None)
