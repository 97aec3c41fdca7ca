"""The requests of one call and what comes of them, on its way from the servers' threads to the caller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue

from ecoagent.llm.protocol import GenerationRequest, GenerationResponse
from ecoagent.settings import UserError

POLL_S = 0.5

Outcome = GenerationResponse | UserError | RuntimeError


class Batch:
    """The requests of one call and the queue their outcomes arrive in."""

    def __init__(self, requests: Sequence[GenerationRequest]) -> None:
        self.requests = requests
        self.closed = False
        self._arrived: SimpleQueue[tuple[int, Outcome]] = SimpleQueue()

    def deliver(self, place: int, outcome: Outcome) -> None:
        """Hand over what came of the request at ``place``."""
        self._arrived.put((place, outcome))

    def __iter__(self) -> Iterator[tuple[int, GenerationResponse]]:
        """Responses with their places, as they arrive.

        Raises:
            UserError: no server can answer any of the requests.
        """
        for _ in self.requests:
            place, outcome = self._next()
            if isinstance(outcome, Exception):
                raise outcome
            yield place, outcome

    def _next(self) -> tuple[int, Outcome]:
        while True:
            try:
                # With a limit: polars' signal handler restarts an endless wait, so that Ctrl-C
                # would be seen only when a response arrives.
                return self._arrived.get(timeout=POLL_S)
            except Empty:
                continue
