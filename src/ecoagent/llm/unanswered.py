"""Requests that stayed without an answer, named before what follows from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ecoagent.schema import ResponseRow
from ecoagent.settings import LLMSettings, UserError


@contextmanager
def unanswered_first(responses: Iterable[ResponseRow], llm: LLMSettings) -> Iterator[None]:
    """Tables are made of responses inside: an error there is told together with the requests that failed.

    Raises:
        UserError: no request was answered, or some were not and an error came up inside.
    """
    statuses = Counter(row.status for row in responses)
    failed = {status: n for status, n in sorted(statuses.items()) if status != "ok"}
    if not failed:
        yield
        return
    counted = ", ".join(f"{status} {n:,}" for status, n in failed.items())
    said = f"{sum(failed.values()):,} of {statuses.total():,} requests to {_asked(llm)} failed ({counted})"
    remedy = "see that the model answers, then run the same command again: only those are asked"
    if not statuses["ok"]:
        raise UserError(said, remedy=remedy)
    try:
        yield
    except UserError as error:
        raise UserError(f"{said}, and then: {error.message}", remedy=remedy) from error


def _asked(llm: LLMSettings) -> str:
    addresses = ", ".join(dict.fromkeys([*llm.base_urls, *([llm.base_url] if llm.base_url else [])]))
    return f"{llm.model} at {addresses}" if llm.engine == "server" and addresses else llm.model
