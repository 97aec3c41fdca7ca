"""The http client of the crawl: polite to hosts, wary of what they send."""

from __future__ import annotations

import random as random_module
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Literal
from urllib.parse import urldefrag

from ecoagent.crawlers.web.addresses import Resolve
from ecoagent.crawlers.web.bodies import decode
from ecoagent.crawlers.web.errors import WebError, absolute, place_of, scrub, split_url
from ecoagent.crawlers.web.probe import Kind, Probe, Prober
from ecoagent.crawlers.web.robots import MAX_BYTES, Robots, RobotsFile
from ecoagent.crawlers.web.soft404 import is_soft_404
from ecoagent.crawlers.web.store import ResponseStore
from ecoagent.crawlers.web.transport import REDIRECTS, Answer, Counts, Transport, location
from ecoagent.settings.sections import HttpSettings

ROBOTS_REDIRECTS = 5
_WALLED = frozenset({401, 403, 407})
_UNSETTLED = frozenset({408, 425, 429})


@dataclass(frozen=True)
class Page:
    """A page that was read. ``url`` is where redirects ended; ``text`` is the decoded ``body``."""

    url: str
    status: int
    content_type: str
    body: bytes
    text: str
    from_store: bool
    not_modified: bool


class PoliteClient:
    """Reads pages. Safe for threads; hosts are asked at their rate whatever the number of threads.

    Args:
        settings: section ``http``.
        store: stored responses; none = nothing is stored; default = the folder of the settings.
        sleep, clock, now, random, resolve: the world, for tests.
        say: told about waits, proxies and the like, in whole lines.
    """

    def __init__(
        self,
        settings: HttpSettings,
        *,
        store: ResponseStore | Literal["settings"] | None = "settings",
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        random: random_module.Random | None = None,
        resolve: Resolve = socket.getaddrinfo,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.settings = settings
        self._store = ResponseStore(settings.store, now=now) if store == "settings" else store
        self._transport = Transport(
            settings,
            sleep=sleep,
            clock=clock,
            now=now,
            random=random or random_module.Random(),
            resolve=resolve,
            say=say or (lambda line: None),
        )
        self._robots = Robots(self._ask_robots, settings.user_agent, settings.max_wait_s)
        self._prober = Prober(self._transport, self._delay, settings, self._store)

    def __enter__(self) -> PoliteClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    @property
    def counts(self) -> Counts:
        """What was done so far."""
        return self._transport.counts

    def get(self, url: str, *, soft_404: bool = True, max_age_h: float | None = None) -> Page:
        """Read a page, from the store where that is young enough.

        Args:
            url: http or https address; a fragment is dropped.
            soft_404: refuse pages that say "not found" with status 200.
            max_age_h: a stored response younger than this is used without asking, hours; none =
                as in the settings.

        Raises:
            WebError: the page was not read, see its ``reason``.
        """
        target = urldefrag(url).url if "#" in url else url
        age = self.settings.max_age_h if max_age_h is None else max_age_h
        seen = {target}
        stored = unchanged = True
        while True:
            answer = self._answer(target, age)
            stored, unchanged = stored and answer.from_store, unchanged and answer.not_modified
            if answer.status not in REDIRECTS:
                break
            target = self._next(answer, seen)
        raise_for_status(answer)
        content_type = answer.headers.get("content-type", "")
        text = decode(answer.body, content_type) if _is_text(content_type) else ""
        if soft_404 and is_soft_404(text, content_type):
            raise WebError(
                "soft_404", target, "the page says that it was not found, with HTTP 200", status=answer.status
            )
        return Page(target, answer.status, content_type, answer.body, text, stored, unchanged)

    def probe(self, url: str, *, kind: Kind = "page", max_age_h: float | None = None) -> Probe:
        """Whether an address answers. Never raises, reads at most 64 KB, sends no credentials.

        Args:
            url: address.
            kind: ``endpoint`` is the base of an API: a 4xx shows that it answers.
            max_age_h: as for ``get``.
        """
        return self._prober.probe(url, kind, self.settings.max_age_h if max_age_h is None else max_age_h)

    def _answer(self, url: str, max_age_h: float) -> Answer:
        """One hop, from the store or the host, robots.txt kept to."""
        split_url(url)
        return self._fetch(url, max_age_h, lambda: self._delay(url))

    def _delay(self, url: str) -> float:
        return self._robots.check(url) if self.settings.robots else 0.0

    def _fetch(
        self,
        url: str,
        max_age_h: float,
        delay: Callable[[], float],
        kind: str = "page",
        max_bytes: int | None = None,
    ) -> Answer:
        stored = self._store.load(url, kind) if self._store else None
        if stored and self._store and self._store.age_h(stored) < max_age_h:
            self._transport.count(from_store=1)
            return Answer(url, stored.status, dict(stored.headers), stored.body, from_store=True)
        conditions = {}
        if stored and 200 <= stored.status < 300:
            if "etag" in stored.headers:
                conditions["If-None-Match"] = stored.headers["etag"]
            if "last-modified" in stored.headers:
                conditions["If-Modified-Since"] = stored.headers["last-modified"]
        answer = self._transport.send("GET", url, conditions, delay_s=delay(), max_bytes=max_bytes)
        if answer.status == 304 and stored and self._store and conditions:
            self._transport.count(not_modified=1)
            fresh = self._store.refresh(stored, answer.headers, kind)
            return Answer(url, fresh.status, dict(fresh.headers), fresh.body, not_modified=True)
        if self._store and _worth_storing(answer):
            self._store.save(url, answer.status, answer.headers, answer.body, kind)
        return answer

    def _next(self, answer: Answer, seen: set[str]) -> str:
        """The address a redirect leads to, on the same host."""
        target = redirect_target(answer)
        here, there = split_url(answer.url), split_url(target)
        old, new = place_of(here), place_of(there)
        if new != old and self._transport.guard.plainly_private(*new):
            raise WebError(
                "private_address", answer.url, f"redirects to {scrub(target)}, a private or local address"
            )
        upgrade = (old[1], new[1], there.scheme) == (80, 443, "https") and here.scheme == "http"
        if new[0] != old[0] or not (upgrade or (here.scheme == there.scheme and new[1] == old[1])):
            raise WebError("other_host", answer.url, f"redirects to another host, {scrub(target)}")
        if target in seen:
            raise WebError("redirect_loop", answer.url, f"redirects in a circle, to {scrub(target)} again")
        if len(seen) > self.settings.max_redirects:
            raise WebError("redirect_loop", answer.url, f"more than {self.settings.max_redirects} redirects")
        seen.add(target)
        return target

    def _ask_robots(self, url: str) -> RobotsFile:
        """A robots.txt; as the standard asks, its redirects are followed to other public hosts too."""
        target = url
        for hop in range(ROBOTS_REDIRECTS + 1):
            try:
                answer = self._fetch(target, self.settings.max_age_h, lambda: 0.0, "robots", MAX_BYTES)
            except WebError as error:
                # A redirect into nowhere says nothing about the host itself.
                raise error if hop == 0 else WebError("connection", target, error.detail) from error
            if answer.status not in REDIRECTS:
                return RobotsFile(answer.status, decode(answer.body, answer.headers.get("content-type", "")))
            target = redirect_target(answer)
        raise WebError("redirect_loop", url, f"more than {ROBOTS_REDIRECTS} redirects")


def redirect_target(answer: Answer) -> str:
    """The full address of a redirect, without fragment.

    Raises:
        WebError: there is none (``bad_status``) or it may not be fetched (``not_http``).
    """
    place = location(answer)
    if place is None:
        raise WebError("bad_status", answer.url, f"HTTP {answer.status} without a place to go to")
    try:
        target = urldefrag(absolute(answer.url, place)).url
    except ValueError as error:
        raise WebError("not_http", answer.url, "redirects to an address that cannot be read") from error
    split_url(target)
    return target


def raise_for_status(answer: Answer) -> None:
    """Raise the ``WebError`` of a status other than 2xx."""
    status = answer.status
    if 200 <= status < 300:
        return
    if status == 404:
        raise WebError("not_found", answer.url, "there is no such page (HTTP 404)", status=status)
    if status == 410:
        raise WebError("gone", answer.url, "the page was taken down (HTTP 410)", status=status)
    if status in _WALLED:
        raise WebError("auth_walled", answer.url, f"the page wants a login (HTTP {status})", status=status)
    reason = "server_error" if status >= 500 else "bad_status"
    raise WebError(reason, answer.url, f"the host answers HTTP {status}", status=status)


def _worth_storing(answer: Answer) -> bool:
    status = answer.status
    if status in REDIRECTS:
        return "location" in answer.headers
    return 200 <= status < 300 or (400 <= status < 500 and status not in _UNSETTLED)


def _is_text(content_type: str) -> bool:
    return not content_type.strip().lower().startswith(("image/", "audio/", "video/", "font/"))
