"""Rate and number of requests in flight, host by host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Host:
    """One host's turn-taking. Safe for threads."""

    def __init__(
        self, interval_s: float, at_once: int, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        self._interval_s, self._clock, self._sleep = interval_s, clock, sleep
        self._places = threading.BoundedSemaphore(at_once)
        self._lock = threading.Lock()
        self._next = float("-inf")

    @contextmanager
    def turn(self, delay_s: float = 0.0) -> Iterator[None]:
        """Wait for a place and for the rate; held until the body is read.

        Args:
            delay_s: the host's own wish for the time between two requests, seconds.
        """
        with self._places:
            with self._lock:
                now = self._clock()
                start = max(now, self._next)
                self._next = start + max(self._interval_s, delay_s)
            if start > now:
                self._sleep(start - now)
            yield

    def pause(self, seconds: float) -> None:
        """No request to this host before ``seconds`` have passed: it asked for it."""
        with self._lock:
            self._next = max(self._next, self._clock() + seconds)


class Hosts:
    """All hosts of one client, by (host name, port)."""

    def __init__(
        self,
        requests_per_second: float,
        per_host: int,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._interval_s, self._at_once = 1.0 / requests_per_second, per_host
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._hosts: dict[tuple[str, int], Host] = {}

    def of(self, place: tuple[str, int]) -> Host:
        """The state of one host, made at its first request."""
        with self._lock:
            if place not in self._hosts:
                self._hosts[place] = Host(self._interval_s, self._at_once, self._clock, self._sleep)
            return self._hosts[place]
