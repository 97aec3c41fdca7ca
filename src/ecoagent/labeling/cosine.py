"""A cosine for another encoder: the one at which its candidates are as often right (``--propose-cosine``).

Cosines of two encoders are not on one scale: 0.7 of one may be 0.3 of the other. What can be carried over is
how often a candidate at or above the cosine is right, measured on queries whose right tools are known.
Only encoders are asked, no verifier.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import Field

from ecoagent.labeling.candidates import find_candidates
from ecoagent.labeling.judge_report import Share, share
from ecoagent.labeling.judge_sample import LabelledSet
from ecoagent.labeling.prepare import seeded_order
from ecoagent.retrieval.encoders import Encoder
from ecoagent.retrieval.stored import stored_encoder
from ecoagent.runs import Progress
from ecoagent.schema import Record
from ecoagent.settings import Settings, UserError

STEP = 0.01
"""Grid of cosines."""
LEAST_PAIRS = 20
"""A precision of fewer pairs proposes nothing."""
CURVE_POINTS = 12


class CosinePoint(Record):
    """Candidates at or above a cosine."""

    cosine: float
    pairs: int
    right: int
    precision: Share = Field(description="Right, of these candidates.")
    recall: Share = Field(description="Right, of all gold of the queries.")
    answered: Share = Field(description="Yield: queries with such a candidate, of all.")


class CosineProposal(Record):
    """What is proposed for one encoder, and what it rests on."""

    encoder: str
    collection: str
    collection_digest: str
    queries: int
    tools: int
    top_k: int
    target: float = Field(description="Precision to be met.")
    target_from: str = Field(description="Where the target comes from.")
    like: CosinePoint | None = Field(description="The other encoder at its cosine, on the same queries.")
    reached: bool = Field(description="Whether a cosine meets the target; else the most precise is given.")
    at: CosinePoint = Field(description="The proposal: the lowest cosine that meets the target.")
    curve: list[CosinePoint] = Field(description="Points over the range of cosines.")


@dataclass(frozen=True)
class Scored:
    """Candidates of some queries: (query, cosine, right) of each pair, and gold in all."""

    pairs: tuple[tuple[str, float, bool], ...]
    queries: int
    gold: int

    def at(self, cosine: float) -> CosinePoint:
        """Candidates at or above a cosine."""
        left = [(q, right) for q, value, right in self.pairs if value >= cosine]
        right = sum(r for _, r in left)
        return CosinePoint(
            cosine=cosine,
            pairs=len(left),
            right=right,
            precision=share(right, len(left)),
            recall=share(right, self.gold),
            answered=share(len({q for q, _ in left}), self.queries),
        )

    def grid(self) -> list[float]:
        """Cosines to try: every step between the least and the largest seen."""
        values = [value for _, value, _ in self.pairs]
        low, high = math.floor(min(values) / STEP), math.floor(max(values) / STEP)
        return [round(step * STEP, 2) for step in range(low, high + 1)]


def score_candidates(
    labelled: LabelledSet,
    encoder: Encoder,
    *,
    top_k: int,
    seed: int,
    limit: int | None = None,
    on_batch: Callable[[int], None] | None = None,
) -> Scored:
    """The encoder's ``top_k`` nearest tools of each query.

    Args:
        limit: queries taken, by seeded hash; none = all.
    """
    chosen = set(seeded_order([q.id for q in labelled.queries], seed, "cosine")[:limit])
    queries = {q.id: q for q in labelled.queries if q.id in chosen}
    found = find_candidates(
        encoder,
        {i: q.text for i, q in queries.items()},
        labelled.tools,
        top_k=top_k,
        min_cosine=-1.0,
        on_batch=on_batch,
    )
    pairs = tuple((p.query_id, p.cosine, p.tool_id in queries[p.query_id].gold) for p in found.kept)
    return Scored(pairs, len(queries), sum(len(q.gold) for q in queries.values()))


def lowest_at(scored: Scored, target: float) -> tuple[CosinePoint, bool]:
    """The lowest cosine whose candidates meet a precision, and true; else the most precise, and false.

    Raises:
        UserError: there are too few candidates to tell.
    """
    points = (
        [p for p in (scored.at(c) for c in scored.grid()) if p.pairs >= LEAST_PAIRS] if scored.pairs else []
    )
    if not points:
        raise UserError(
            f"{len(scored.pairs)} candidates are too few to propose a cosine",
            remedy=f"give labelled queries with at least {LEAST_PAIRS} candidates",
        )
    # The rounded value is what is shown; a target read off a report must be met by its own point.
    enough = [p for p in points if p.precision.value is not None and p.precision.value >= target]
    if enough:
        return min(enough, key=lambda p: p.cosine), True
    return max(points, key=lambda p: (p.right / p.pairs, -p.cosine)), False


def propose_for(
    labelled: LabelledSet,
    settings: Settings,
    encoders: Sequence[str],
    *,
    like: tuple[str, float] | None = None,
    precision: float | None = None,
    encoder_of: Callable[[str], Encoder] | None = None,
    progress: Progress | None = None,
) -> list[CosineProposal]:
    """Propose a cosine for each encoder.

    Args:
        like: encoder and cosine whose precision is to be met, measured on the same queries.
        precision: or the precision itself.
        encoder_of: encoder by name; none = those of the weights store, vectors kept.

    Raises:
        UserError: neither or both targets, nothing at or above the cosine to be met, too few candidates.
    """
    if (like is None) == (precision is None):
        raise UserError(
            "a cosine is proposed for one target", remedy="give --like ENCODER@COSINE or --at-precision P"
        )
    shown = progress or Progress(quiet=True)
    top_k = settings.labeling.top_k

    def scored(name: str) -> Scored:
        encoder = encoder_of(name) if encoder_of else stored_encoder(settings, name, progress)
        queries = len(labelled.queries) if settings.limit is None else settings.limit
        total = len({text for _, text in labelled.tools}) + min(queries, len(labelled.queries))
        with shown.task(f"encode by {name}", total=total, unit="texts") as task:
            return score_candidates(
                labelled,
                encoder,
                top_k=top_k,
                seed=settings.seed,
                limit=settings.limit,
                on_batch=task.advance,
            )

    other: CosinePoint | None = None
    target, origin = precision, "given"
    if like is not None:
        other = scored(like[0]).at(like[1])
        target, origin = other.precision.value, f"{like[0]} at {like[1]:g}"
    if target is None:
        raise UserError(f"no candidate at {origin}", remedy="give a lower cosine")
    made = []
    for name in encoders:
        found = scored(name)
        at, reached = lowest_at(found, target)
        grid = found.grid()
        step = max(1, math.ceil(len(grid) / CURVE_POINTS))
        made.append(
            CosineProposal(
                encoder=name,
                collection=labelled.name,
                collection_digest=labelled.digest,
                queries=found.queries,
                tools=len(labelled.tools),
                top_k=top_k,
                target=target,
                target_from=origin,
                like=other,
                reached=reached,
                at=at,
                curve=[found.at(c) for c in grid[::step]],
            )
        )
    return made
