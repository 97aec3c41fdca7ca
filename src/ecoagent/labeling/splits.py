"""Splits of EcoAgent-Real: dealt out by hash within each query type, so that every split is served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ecoagent.runs import sha256_text

RealSplit = Literal["train", "val", "test"]
NAMES: tuple[RealSplit, ...] = ("train", "val", "test")


def deal_splits(
    strata: Mapping[str, str], shares: tuple[float, float, float], seed: int
) -> dict[str, RealSplit]:
    """Split of each query.

    Queries are put in order by stratum and seeded hash, then each goes to the split that is furthest
    behind its share, so that splits are stratified. A split whose share is too small for so few queries
    takes the last one of the largest: with at least ``splits_wanted`` queries none stays empty.

    Args:
        strata: query type by query id.
        shares: of train, val, test; they sum to 1, as the settings see to.
        seed: of the order within a stratum.
    """
    order = sorted(strata, key=lambda q: (strata[q], sha256_text(f"{seed}:split:{q}"), q))
    dealt = [0, 0, 0]
    out: dict[str, RealSplit] = {}
    for place, query in enumerate(order, start=1):
        behind = [share * place - count for share, count in zip(shares, dealt, strict=True)]
        best = max((i for i in range(3) if shares[i] > 0), key=lambda i: (round(behind[i], 9), -i))
        dealt[best] += 1
        out[query] = NAMES[best]
    if len(order) >= splits_wanted(shares):
        for place, share in enumerate(shares):
            if share > 0 and dealt[place] == 0:
                richest = max(range(3), key=lambda i: dealt[i])
                moved = next(q for q in reversed(order) if out[q] == NAMES[richest])
                out[moved] = NAMES[place]
                dealt[richest], dealt[place] = dealt[richest] - 1, 1
    return out


def splits_wanted(shares: tuple[float, float, float]) -> int:
    """How many splits have a share, and so how many queries they need at least."""
    return sum(share > 0 for share in shares)
