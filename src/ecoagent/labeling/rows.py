"""One request as a source holds it, before it is checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ecoagent.schema import CATALOGS

UNKNOWN = "unknown"


@dataclass(frozen=True)
class RequestRow:
    """A request of a foreign set.

    Attributes:
        where: file and row, for errors.
        gold: right tools that are ids of our catalogs.
        group: the set's own group; empty = none.
        language: as the set says it.
    """

    where: str
    id: str
    text: str
    gold: tuple[str, ...] = ()
    group: str = ""
    licence: str = "unknown"
    language: str = UNKNOWN


def said_language(row: Mapping[str, Any]) -> str:
    """Language that a source's row names; it is never guessed from the text."""
    named = row.get("language")
    return named if isinstance(named, str) and named else UNKNOWN


def own_gold(gold: Iterable[str]) -> tuple[str, ...]:
    """Ids that name tools of our catalogs, sorted. Others name foreign tools: no tool of ours is right or
    wrong by them, so they stay behind."""
    return tuple(sorted({g for g in gold if g.split(":", 1)[0] in CATALOGS and ":" in g}))
