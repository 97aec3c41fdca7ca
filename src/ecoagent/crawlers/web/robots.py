"""robots.txt, once for each host."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from protego import Protego

from ecoagent.crawlers.web.errors import WebError, place_of, split_url

MAX_BYTES = 512 * 1024
"""Read of a robots.txt; the rest is passed over, as the standard allows."""
_NO_RULES = "User-agent: *\nDisallow:\n"


@dataclass(frozen=True)
class RobotsFile:
    """A robots.txt as it came: HTTP status and text."""

    status: int
    text: str = ""


@dataclass
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    rules: Protego | None = None
    delay_s: float = 0.0
    failure: WebError | None = None
    known: bool = False


class Robots:
    """Rules of all hosts of one client. Safe for threads; each file is asked for once.

    Args:
        ask: fetches an address; raises ``WebError`` where there was no answer after all tries.
        user_agent: as sent; its product name is what rules are matched against.
        max_wait_s: a longer crawl delay ends the pages of the host.
    """

    def __init__(self, ask: Callable[[str], RobotsFile], user_agent: str, max_wait_s: float) -> None:
        self._ask, self._max_wait_s = ask, max_wait_s
        self._agent = user_agent.split("/", 1)[0].split(maxsplit=1)[0] if user_agent.strip() else "*"
        self._lock = threading.Lock()
        self._entries: dict[tuple[str, str, int], _Entry] = {}

    def check(self, url: str) -> float:
        """Seconds the host wants between two requests.

        Raises:
            WebError: the rules forbid the page or could not be read (``robots``), want too long
                a delay (``rate_limited``), or the host itself is refused or missing.
        """
        parts = split_url(url)
        key = (parts.scheme, *place_of(parts))
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
        with entry.lock:
            if not entry.known:
                self._load(entry, f"{parts.scheme}://{parts.netloc}/robots.txt")
                entry.known = True
        if entry.failure is not None:
            raise self._refusal(entry.failure, url)
        if entry.rules is not None and not entry.rules.can_fetch(url, self._agent):
            raise WebError("robots", url, "robots.txt of the host forbids this page")
        # Also true for a delay that is no number.
        if not entry.delay_s <= self._max_wait_s:
            raise WebError("rate_limited", url, f"robots.txt asks for {entry.delay_s:g} s between requests")
        return entry.delay_s

    def _load(self, entry: _Entry, url: str) -> None:
        try:
            found = self._ask(url)
        except WebError as error:
            if error.reason in ("redirect_loop", "not_http", "bad_status", "auth_walled"):
                # No rules can be had although the host answers: as if there were none.
                return
            entry.failure = error
            return
        if not 200 <= found.status < 300:
            return
        entry.rules = parse_rules(found.text)
        entry.delay_s = _delay(entry.rules, self._agent)

    def _refusal(self, failure: WebError, url: str) -> WebError:
        if failure.reason in ("no_such_host", "private_address"):
            return WebError(failure.reason, url, failure.detail)
        return WebError(
            "robots", url, f"robots.txt of the host cannot be read ({failure.reason}: {failure.detail})"
        )


def parse_rules(text: str) -> Protego:
    """Rules of a robots.txt; a page of HTML in its place holds none."""
    if text.lstrip("\ufeff \t\r\n").startswith("<"):
        return Protego.parse(_NO_RULES)
    try:
        return Protego.parse(text)
    except (ValueError, RecursionError, OverflowError):
        return Protego.parse(_NO_RULES)


def _delay(rules: Protego, agent: str) -> float:
    rate = rules.request_rate(agent)
    wishes = [
        rules.crawl_delay(agent) or 0.0,
        rate.seconds / rate.requests if rate and rate.requests else 0.0,
    ]
    return max(0.0, *wishes)
