"""One request as a source holds it, before it is checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ecoagent.schema import CATALOGS


@dataclass(frozen=True)
class RequestRow:
    """A request of a foreign set.

    Attributes:
        where: file and row, for errors.
        gold: right tools that are ids of our catalogs.
        group: the set's own group; empty = none.
    """

    where: str
    id: str
    text: str
    gold: tuple[str, ...] = ()
    group: str = ""
    licence: str = "unknown"


def own_gold(gold: Iterable[str]) -> tuple[str, ...]:
    """Ids that name tools of our catalogs, sorted. Others name foreign tools: no tool of ours is right or
    wrong by them, so they stay behind."""
    return tuple(sorted({g for g in gold if g.split(":", 1)[0] in CATALOGS and ":" in g}))
