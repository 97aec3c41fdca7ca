"""Requests over several servers of one model: who takes which, and what happens when one is down.

A batch is laid out in contiguous parts, one a server, since neighbours share their beginning and a
server reuses what it has computed for it. A server that runs out takes over half of what another
cannot start yet, from the far end, so none idles. A server that nobody answers at, or that answers
nothing but errors while others work, is taken out, looked at again after a growing pause, and comes
back; its requests go to the others meanwhile. Where no server has ever answered and each only breaks
off, is overloaded or stays silent, the calls end. Each server has its own threads, hence its own
requests in flight.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ecoagent.llm.batch import Batch
from ecoagent.llm.chat import ChatClient, Failure, Passing, Unreachable
from ecoagent.llm.protocol import GenerationRequest, error_response
from ecoagent.settings import UserError

MAX_PAUSE_S = 30.0
ILL_AFTER = 3
"""Failed tries in a row after which a server is taken out, if another one is up."""
_OVERLOADED = frozenset({"http_429", "http_502", "http_503", "http_504", "connection"})
"""Failures of the server rather than of one request: the next ones wait as well."""
_SILENT = _OVERLOADED | {"timeout"}
MIN_ROUNDS = 5
"""Least rounds of tries without an answer before servers that never answered are given up on."""


@dataclass(eq=False)
class _Job:
    batch: Batch
    place: int
    tries: int = 0
    due: float = 0.0
    failed_at: set[int] = field(default_factory=set)

    @property
    def request(self) -> GenerationRequest:
        return self.batch.requests[self.place]


@dataclass(eq=False)
class _Server:
    client: ChatClient
    index: int
    lane: deque[_Job] = field(default_factory=deque)
    busy: int = 0
    up: bool = True
    probing: bool = False
    outages: int = 0
    """Times taken out since it last answered."""
    streak: int = 0
    """Failed tries since it last answered."""
    silent: int = 0
    """Rounds of tries since it last answered that brought no answer at all, if only a wrong one."""
    silent_at: float = 0.0
    reason: str = ""
    """Why the last failed try failed."""
    told: bool = False
    answered_at: float = 0.0
    not_before: float = 0.0
    """While up: when its rate limit ends. While out: when to look again."""
    answered: int = 0
    failed: int = 0
    tokens_cached: int = 0


@dataclass(frozen=True)
class ServerRecord:
    """What one server did."""

    base_url: str
    up: bool
    answered: int
    failed: int
    """Failed tries, repeated ones included."""
    tokens_cached: int
    """Prompt tokens found in the server's cache, as far as it says."""


class Balancer:
    """Threads that send requests to servers.

    Args:
        clients: one a server.
        concurrency: requests in flight at each server.
        retries: further tries of a request that failed in passing.
        backoff_s: first pause before a further try, doubled each time, with jitter.
        say: told when a server gives no answer for the first time, is taken out or comes back.
    """

    def __init__(
        self,
        clients: Sequence[ChatClient],
        *,
        concurrency: int,
        retries: int,
        backoff_s: float,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._servers = [_Server(client, index) for index, client in enumerate(clients)]
        self._concurrency, self._retries, self._backoff_s = concurrency, retries, backoff_s
        self._say = say
        self._changed = threading.Condition()
        self._again: list[_Job] = []
        self._reached = self._closed = False
        for server in self._servers:
            for _ in range(concurrency):
                # Daemons: an interrupted program ends at once instead of waiting for what is in flight.
                threading.Thread(target=self._work, args=(server,), name="llm", daemon=True).start()

    def submit(self, requests: Sequence[GenerationRequest]) -> Batch:
        """Queue the requests of one call; iterate over the batch for what comes of them."""
        batch = Batch(requests)
        jobs = [_Job(batch, place) for place in range(len(requests))]
        with self._changed:
            if self._closed:
                raise RuntimeError("the engine is closed")
            if all(not s.up or self._gone(s) for s in self._servers):
                # All were given up on earlier: look at each now.
                for server in self._servers:
                    server.not_before, server.outages = 0.0, self._patience()
            up = [s for s in self._servers if s.up] or self._servers
            takers = sorted(up, key=lambda s: (len(s.lane) + s.busy, s.index))
            share, rest = divmod(len(jobs), len(takers))
            start = 0
            for position, server in enumerate(takers):
                end = start + share + (position < rest)
                server.lane.extend(jobs[start:end])
                start = end
            self._changed.notify_all()
        return batch

    def withdraw(self, batch: Batch) -> None:
        """Drop what has not been sent of a batch; what is in flight is not waited for."""
        with self._changed:
            batch.closed = True

    def close(self) -> None:
        """End the threads; does not wait. Whoever still waits for an answer gets an error."""
        with self._changed:
            self._closed = True
            for job in self._empty_queues():
                job.batch.deliver(job.place, RuntimeError("the engine is closed"))
            self._changed.notify_all()

    def records(self) -> list[ServerRecord]:
        """What each server did so far."""
        with self._changed:
            return [
                ServerRecord(s.client.base_url, s.up, s.answered, s.failed, s.tokens_cached)
                for s in self._servers
            ]

    # -- a server's thread ---------------------------------------------------------------------

    def _work(self, server: _Server) -> None:
        while (job := self._next(server)) is not None:
            started, settled = time.monotonic(), False
            try:
                self._try(server, job, started)
                settled = True
            finally:
                with self._changed:
                    server.busy -= 1
                    self._changed.notify_all()
                if not settled:
                    # A defect: the thread ends with its traceback, and the caller must not wait.
                    error = RuntimeError("a worker thread failed, see its traceback")
                    job.batch.deliver(job.place, error)

    def _next(self, server: _Server) -> _Job | None:
        """The server's next request; waits for one. None once closed."""
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                if server.up and now >= server.not_before:
                    job = self._take(server, now)
                    if job is not None:
                        server.busy += 1
                        return job
                elif not server.up and not server.probing and now >= server.not_before and self._has_work():
                    self._look_again(server)
                    continue
                moments = [j.due for j in self._again]
                if server.not_before > now:
                    moments.append(server.not_before)
                # A moment that has passed is another thread's to use: it will notify.
                coming = [m - now for m in moments if m > now]
                self._changed.wait(min(coming) if coming else None)
            return None

    def _take(self, server: _Server, now: float) -> _Job | None:
        """A request that is due again, else one of its own, else others' that cannot start yet."""
        self._drop_withdrawn()
        for job in self._again:
            if job.due <= now and (server.index not in job.failed_at or not self._fresh(job, now)):
                self._again.remove(job)
                return job
        if not server.lane:
            victim = max(self._servers, key=lambda s: self._stuck(s, now))
            count = -(-self._stuck(victim, now) // 2)
            taken = [victim.lane.pop() for _ in range(count)]
            server.lane.extend(reversed(taken))
        return server.lane.popleft() if server.lane else None

    def _stuck(self, server: _Server, now: float) -> int:
        """Requests laid out for a server beyond those it can start at once."""
        ready = server.up and now >= server.not_before
        return max(0, len(server.lane) - (self._concurrency - server.busy if ready else 0))

    def _fresh(self, job: _Job, now: float) -> bool:
        """Whether a server takes requests at which this one has not failed."""
        return any(s.up and now >= s.not_before and s.index not in job.failed_at for s in self._servers)

    def _drop_withdrawn(self) -> None:
        self._again = [j for j in self._again if not j.batch.closed]
        for server in self._servers:
            while server.lane and server.lane[0].batch.closed:
                server.lane.popleft()

    def _has_work(self) -> bool:
        self._drop_withdrawn()
        return bool(self._again) or any(s.lane for s in self._servers)

    def _try(self, server: _Server, job: _Job, started: float) -> None:
        if job.batch.closed:
            return
        try:
            response, cached = server.client.ask(job.request)
        except Unreachable as error:
            self._unreachable(server, job, error, started)
        except Passing as error:
            self._failed(server, job, error, started)
        except Failure as error:
            self._answered(server, cached=0, failed=True)
            job.batch.deliver(job.place, error_response(server.client.model, job.request, error.reason))
        except UserError as error:
            job.batch.deliver(job.place, error)
        else:
            self._answered(server, cached=cached, failed=False)
            job.batch.deliver(job.place, response)

    # -- health ----------------------------------------------------------------------------------

    def _answered(self, server: _Server, *, cached: int, failed: bool) -> None:
        with self._changed:
            self._reached = True
            server.outages = server.streak = server.silent = 0
            server.answered_at = time.monotonic()
            server.answered += not failed
            server.failed += failed
            server.tokens_cached += cached

    def _failed(self, server: _Server, job: _Job, error: Passing, started: float) -> None:
        """Another try, elsewhere if possible; the row with its status once the tries are used up."""
        with self._changed:
            now = time.monotonic()
            self._reached = True
            server.failed += 1
            server.streak += 1
            server.reason = error.reason
            job.tries += 1
            job.failed_at.add(server.index)
            others = any(s.up and s is not server for s in self._servers)
            hangs = error.reason == "timeout" and server.answered_at < started
            if server.up and others and (hangs or server.streak >= ILL_AFTER):
                self._take_out(server, now, error.reason)
            if error.reason in _SILENT:
                self._silent(server, now, started)
            if server.up and error.reason in _OVERLOADED:
                rest = error.retry_after_s
                rest = self._pause(server.streak) if rest is None else rest
                server.not_before = max(server.not_before, now + rest)
            if job.tries > self._retries:
                job.batch.deliver(job.place, error_response(server.client.model, job.request, error.reason))
            else:
                self._try_again(job, now, error.retry_after_s)
            self._give_up_if_none_answers()

    def _try_again(self, job: _Job, now: float, pause: float | None) -> None:
        if self._fresh(job, now):
            job.due = now
        else:
            job.failed_at.clear()
            job.due = now + (self._pause(job.tries) if pause is None else pause)
        self._again.append(job)

    def _silent(self, server: _Server, now: float, started: float) -> None:
        # Requests in flight together are one round.
        if started > server.silent_at:
            server.silent, server.silent_at = server.silent + 1, now
        if not server.told and self._say is not None:
            self._say(f"{server.client.base_url} gives no answer ({server.reason}); it is tried again")
        server.told = True

    def _unreachable(self, server: _Server, job: _Job, error: Unreachable, started: float) -> None:
        """The request goes elsewhere, at no cost to its tries; the server is taken out."""
        with self._changed:
            server.failed += 1
            server.reason = error.reason
            job.due = time.monotonic()
            self._again.append(job)
            # Requests in flight together find one outage, not one each.
            if server.up:
                self._take_out(server, job.due, error.reason)
            self._give_up_if_none_answers()

    def _take_out(self, server: _Server, now: float, reason: str) -> None:
        server.up = False
        server.outages += 1
        server.not_before = now + self._pause(server.outages)
        if len(self._servers) > 1 and self._say is not None:
            self._say(f"{server.client.base_url} is taken out ({reason}); the other servers go on")

    def _look_again(self, server: _Server) -> None:
        """Probe a server that is out; called with the lock, which is given up meanwhile."""
        server.probing = True
        self._changed.release()
        try:
            alive = server.client.alive()
        finally:
            self._changed.acquire()
            server.probing = False
        if alive:
            server.up, server.streak, server.not_before = True, 0, 0.0
            if len(self._servers) > 1 and self._say is not None:
                self._say(f"{server.client.base_url} is back")
        else:
            server.outages += 1
            server.not_before = time.monotonic() + self._pause(server.outages)
            self._give_up_if_none_answers()
        self._changed.notify_all()

    def _gone(self, server: _Server) -> bool:
        """Whether it is given up on: out at too many looks, or up but silent where none ever answered."""
        if not server.up and server.outages > self._patience():
            return True
        rounds = max(MIN_ROUNDS, 2 * (self._retries + 1))
        return server.silent >= rounds and not any(s.answered for s in self._servers)

    def _give_up_if_none_answers(self) -> None:
        """Ends every call once no server is left: at once at the start, later after some looks."""
        if not all(self._gone(s) for s in self._servers):
            return
        where = ", ".join(f"{s.client.base_url} (last: {s.reason})" for s in self._servers)
        for job in self._empty_queues():
            error = UserError(
                f"no model server answers at {where}",
                remedy="start it or mend llm.base_url (llm.base_urls); answers so far are stored, the same "
                "command goes on",
            )
            job.batch.deliver(job.place, error)

    def _patience(self) -> int:
        """Outages in a row that are borne: none before anything has answered, a mistyped address shows."""
        return self._retries if self._reached else 0

    def _empty_queues(self) -> list[_Job]:
        waiting = [*self._again, *(j for s in self._servers for j in s.lane)]
        self._again = []
        for server in self._servers:
            server.lane.clear()
        return waiting

    def _pause(self, number: int) -> float:
        doubled: float = self._backoff_s * 2.0 ** min(number - 1, 16)
        return min(MAX_PAUSE_S, doubled) + random.uniform(0, self._backoff_s)
