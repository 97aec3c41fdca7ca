"""Addresses that tools name, and whether they answer: what to ask, in which order, and what is kept.

Asking itself is the work of ``ecoagent.crawlers.web.client``; here it is anything with its ``probe``.
"""

from __future__ import annotations

import ipaddress
import queue
import re
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol, cast
from urllib.parse import urlsplit, urlunsplit

from ecoagent.schema import LinkRow, Record, ToolRecord

State = Literal["alive", "dead", "auth_walled", "unknown"]
Kind = Literal["page", "endpoint"]
STATES: tuple[State, ...] = ("alive", "dead", "auth_walled", "unknown")
KINDS = ("docs", "page", "repository", "endpoint")
_PORTS = {"http": 80, "https": 443}
_PLACEHOLDER = re.compile(r"[{}<>$\s\"'`|\\^]|%7b|%3c|\.\.\.", re.IGNORECASE)
_RESERVED = (".example", ".invalid", ".test", ".localhost", ".local", ".internal", ".lan", ".home")
_EXAMPLES = ("example.com", "example.org", "example.net")
_TIME = "%Y-%m-%dT%H:%M:%SZ"


class ProbeLike(Protocol):
    """What is used of an answer."""

    @property
    def state(self) -> State:
        """Whether the address answers."""

    @property
    def reason(self) -> str:
        """What was seen."""

    @property
    def status(self) -> int | None:
        """Last HTTP status."""


class Prober(Protocol):
    """What is used of the HTTP client."""

    def probe(self, url: str, *, kind: Kind = "page") -> ProbeLike:
        """Whether an address answers; never raises."""


@dataclass(frozen=True)
class Target:
    """An address to ask; ``kinds``, ``sources`` and ``tool_ids`` are sorted."""

    url: str
    host: str
    kinds: tuple[str, ...]
    sources: tuple[str, ...]
    tool_ids: tuple[str, ...]

    @property
    def probe_kind(self) -> Kind:
        """An address that is nowhere else than in code is asked as an endpoint."""
        return "endpoint" if self.kinds == ("endpoint",) else "page"


@dataclass(frozen=True)
class Result:
    """What an address said, and when (UTC)."""

    url: str
    state: State
    reason: str
    status: int | None
    checked_at: str

    def at(self) -> datetime:
        """The time as a time."""
        return datetime.strptime(self.checked_at, _TIME).replace(tzinfo=UTC)


def normal_url(url: str, allowed: Collection[str] = ()) -> str | None:
    """An address in the form two of them are compared in; ``None`` if nobody could ask it.

    Left out: templates, other schemes, addresses with a user name, hosts that are local, reserved
    for examples, or numbers. The fragment, the default port and an ``=`` of n8n in front are dropped.

    Args:
        url: as written in the source.
        allowed: ``host:port`` of local hosts that may be asked all the same.
    """
    text = url.strip().removeprefix("=").removeprefix("git+")
    try:
        # The fragment is never sent, so that a placeholder in it does no harm.
        parts = urlsplit(text)._replace(fragment="")
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return None
    scheme = parts.scheme.lower()
    if scheme not in _PORTS or parts.username or parts.password or _PLACEHOLDER.search(urlunsplit(parts)):
        return None
    port = None if port == _PORTS[scheme] else port
    if f"{host}:{port or _PORTS[scheme]}" not in allowed and not _is_public(host):
        return None
    netloc = f"{host}:{port}" if port else host
    return urlunsplit((scheme, netloc, parts.path or "/", parts.query, ""))


def _is_public(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
        return False
    except ValueError:
        pass
    if "." not in host or host.startswith(".") or host.endswith(_RESERVED):
        return False
    return not any(host == name or host.endswith("." + name) for name in _EXAMPLES)


def link_targets(
    tools: Iterable[ToolRecord | Mapping[str, Any]], *, allowed: Collection[str] = ()
) -> list[Target]:
    """Distinct addresses that tools name, sorted.

    An endpoint with a fragment is no endpoint but a link in the code to documentation, since a
    fragment is never sent: its kind is ``docs``.
    """
    found: dict[str, tuple[set[str], set[str], set[str]]] = {}
    for tool in tools:
        row = tool.model_dump() if isinstance(tool, Record) else tool
        named = [("docs", row["docs_url"]), ("page", row["url"]), ("repository", row["repository"])]
        for endpoint in row["endpoints"] or ():
            if not endpoint["is_template"]:
                named.append(("docs" if "#" in endpoint["url"] else "endpoint", endpoint["url"]))
        for kind, address in named:
            url = normal_url(address, allowed) if address else None
            if url is not None:
                kinds, sources, ids = found.setdefault(url, (set(), set(), set()))
                kinds.add(kind)
                sources.add(row["source"])
                ids.add(row["id"])
    return [
        Target(url, urlsplit(url).netloc, *(tuple(sorted(part)) for part in found[url]))
        for url in sorted(found)
    ]


def chosen(targets: Iterable[Target], kinds: Collection[str], sources: Collection[str]) -> list[Target]:
    """Targets of some kinds and sources; none given = all."""
    return [
        t
        for t in targets
        if (not kinds or not set(kinds).isdisjoint(t.kinds))
        and (not sources or not set(sources).isdisjoint(t.sources))
    ]


def due(
    targets: Iterable[Target],
    known: Mapping[str, Result],
    *,
    now: datetime,
    max_age_days: float,
    retry_unknown: bool = False,
) -> list[Target]:
    """Targets to ask: never asked, asked too long ago, or, if wanted, without a clear answer."""
    oldest = now - timedelta(days=max_age_days)

    def stale(result: Result | None) -> bool:
        return result is None or result.at() < oldest or (retry_unknown and result.state == "unknown")

    return [t for t in targets if stale(known.get(t.url))]


@dataclass(frozen=True)
class Plan:
    """What a check costs. ``requests``: a robots.txt a host, one for an endpoint, two for a page.

    A page is asked for with HEAD and then read, since many say "not found" in words only.
    """

    urls: int
    hosts: int
    requests: int
    minutes: float
    busiest: tuple[tuple[str, int], ...]


def plan(targets: Sequence[Target], *, per_second: float, workers: int) -> Plan:
    """Cost by the rate of each host, answers at once; slow hosts and further tries take longer."""
    hosts = Counter(t.host for t in targets)
    requests = Counter(hosts.keys())
    for target in targets:
        requests[target.host] += 1 if target.probe_kind == "endpoint" else 2
    slowest = max(requests.values(), default=0) / per_second
    seconds = max(slowest, requests.total() / (per_second * workers))
    return Plan(
        len(targets), len(hosts), requests.total(), round(seconds / 60, 1), tuple(hosts.most_common(10))
    )


def check(
    targets: Sequence[Target],
    prober: Prober,
    *,
    workers: int,
    on_result: Callable[[Result], None],
    stop: threading.Event | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> int:
    """Ask all targets; returns how many were asked.

    A host is asked by one thread at a time, and the host with most left to ask comes first: it is
    what the whole takes, and the others are asked in the meantime.

    Args:
        targets: what to ask.
        prober: asks, at the rate it thinks right; used from several threads.
        workers: threads.
        on_result: called in this thread with each result.
        stop: once set, no further address is asked.
        now: the clock of ``checked_at``.

    Raises:
        Exception: what ``prober`` or ``on_result`` raised; results before it were handed over.
    """
    halt = stop or threading.Event()
    waiting = _Hosts(targets)
    results: queue.SimpleQueue[Result | Exception | None] = queue.SimpleQueue()

    def work() -> None:
        try:
            while (target := waiting.take()) is not None and not halt.is_set():
                try:
                    seen = prober.probe(target.url, kind=target.probe_kind)
                finally:
                    waiting.release(target.host)
                at = now().astimezone(UTC).strftime(_TIME)
                results.put(Result(target.url, seen.state, seen.reason, seen.status, at))
            results.put(None)
        except Exception as error:  # noqa: BLE001 - raised again in the thread that asked for the check
            results.put(error)

    count = max(1, min(workers, len({t.host for t in targets})))
    # Daemons: a host that keeps a connection open must not keep the command from ending.
    for number in range(count):
        threading.Thread(target=work, name=f"links-{number}", daemon=True).start()
    done = 0
    try:
        while count:
            item = results.get()
            if item is None:
                count -= 1
            elif isinstance(item, Exception):
                raise item
            else:
                on_result(item)
                done += 1
    finally:
        waiting.close()
    return done


class _Hosts:
    """Targets by host; a host is given out to one thread at a time."""

    def __init__(self, targets: Iterable[Target]) -> None:
        self._free: dict[str, deque[Target]] = {}
        self._busy: dict[str, deque[Target]] = {}
        self._changed = threading.Condition()
        for target in targets:
            self._free.setdefault(target.host, deque()).append(target)

    def take(self) -> Target | None:
        """The next target; waits while all that is left belongs to busy hosts. None = nothing is left."""
        with self._changed:
            while not self._free and any(self._busy.values()):
                self._changed.wait()
            if not self._free:
                return None
            host = max(self._free, key=lambda h: len(self._free[h]))
            self._busy[host] = self._free.pop(host)
            return self._busy[host].popleft()

    def release(self, host: str) -> None:
        """The host may be asked again."""
        with self._changed:
            rest = self._busy.pop(host, None)
            if rest:
                self._free[host] = rest
            self._changed.notify_all()

    def close(self) -> None:
        """Give out nothing more."""
        with self._changed:
            self._free.clear()
            self._busy.clear()
            self._changed.notify_all()


def state_counts(targets: Iterable[Target], rows: Iterable[LinkRow]) -> list[dict[str, Any]]:
    """Addresses by source, kind and state; one named by two sources counts in both."""
    of = {row.url: row.state for row in rows}
    counts: dict[tuple[str, str], Counter[str]] = {}
    for target in targets:
        state = of.get(target.url, "not checked")
        for source in target.sources:
            for kind in target.kinds:
                counts.setdefault((source, kind), Counter())[state] += 1
    columns = (*STATES, cast("State", "not checked"))
    return [
        {"source": source, "kind": kind, **{c: found[c] for c in columns}}
        for (source, kind), found in sorted(counts.items())
    ]
