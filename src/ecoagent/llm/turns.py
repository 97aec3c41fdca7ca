"""The order requests are sent in, so that an engine's prefix cache is used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from typing import TypeVar

Item = TypeVar("Item")

IN_TURN = 4
"""Groups that take turns: as many as an engine has requests in flight by default (``llm.concurrency``)."""


def take_turns(groups: Iterable[Sequence[Item]], lanes: int = IN_TURN) -> list[Item]:
    """The items of all groups, ``lanes`` groups at a time taking turns item by item.

    Requests of one group have a long beginning in common. Sent one after the other, those in flight
    together would all read it anew; taking turns, a group's next request finds it read.
    """
    queues: list[list[Item]] = [[] for _ in range(lanes)]
    for group in groups:
        min(queues, key=len).extend(group)
    missing = object()
    return [item for item in chain(*zip_longest(*queues, fillvalue=missing)) if item is not missing]  # type: ignore[misc]
