"""What fetching would cost: calls, requests, megabytes, seconds. Nothing is fetched to know it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ecoagent.settings import HttpSettings

_SECONDS_PER_CALL, _BYTES_PER_SECOND = 2.0, 4e6
_TYPICAL_BYTES = {"pip": 100_000, "npm": 150_000}
"""Medians of the packages pinned so far; used where a size is not known yet."""


@dataclass(frozen=True)
class Wanted:
    """Something to fetch; ``size`` in bytes, ``None`` where it is not known; ``dated``: npm is also
    asked when it was published."""

    ecosystem: str
    name: str
    size: int | None = None
    dated: bool = False


@dataclass(frozen=True)
class Cost:
    """Calls of pip and npm, requests of our own, MB and seconds."""

    client_calls: int
    requests: int
    megabytes: float
    seconds: float


def cost_of(wanted: Iterable[Wanted], http: HttpSettings) -> Cost:
    """Cost of fetching; of pages, about; none is taken from the response store."""
    calls = requests = 0
    size = paced = 0.0
    for one in wanted:
        if one.ecosystem == "http":
            # Imported here: the parsers of pages are not needed for anything else.
            from ecoagent.crawlers.web.sources import requests_of

            pages, megabytes = requests_of([one.name])
            requests += pages
            size += megabytes * 1e6
            paced += pages / http.requests_per_second
        else:
            calls += 2 if one.dated and one.ecosystem == "npm" else 1
            size += one.size if one.size is not None else _TYPICAL_BYTES[one.ecosystem]
    return Cost(calls, requests, size / 1e6, calls * _SECONDS_PER_CALL + size / _BYTES_PER_SECOND + paced)
