"""One request and its further tries: rate, address check, caps, back-off."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import requests
from requests.utils import select_proxy
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt
from urllib3.exceptions import HTTPError

from ecoagent.crawlers.web.addresses import AddressGuard, CheckedAdapter, QuietSession, Resolve
from ecoagent.crawlers.web.bodies import Body, Caps, read_body
from ecoagent.crawlers.web.errors import WebError, place_of, split_url
from ecoagent.crawlers.web.hosts import Hosts
from ecoagent.settings.sections import HttpSettings

REDIRECTS = frozenset({301, 302, 303, 307, 308})
_AGAIN = frozenset({429, 500, 502, 503, 504})
_PASSING = frozenset({"truncated", "timeout", "connection"})
_KEPT = ("content-type", "etag", "last-modified", "location")


@dataclass(frozen=True)
class Answer:
    """One response, redirects not followed. ``headers`` holds the few that matter, in lower case."""

    url: str
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    from_store: bool = False
    not_modified: bool = False


@dataclass(frozen=True)
class Counts:
    """What a client did so far. ``bytes`` is on the wire."""

    requests: int = 0
    bytes: int = 0
    from_store: int = 0
    not_modified: int = 0
    retries: int = 0


class _Again(Exception):  # noqa: N818 - never leaves this module
    """A try failed in a way that another may mend."""

    def __init__(self, error: WebError, retry_after_s: float | None = None) -> None:
        super().__init__(str(error))
        self.error, self.retry_after_s = error, retry_after_s


class Transport:
    """Sends GET and HEAD requests. Safe for threads."""

    def __init__(
        self,
        settings: HttpSettings,
        *,
        sleep: Callable[[float], None],
        clock: Callable[[], float],
        now: Callable[[], float],
        random: random.Random,
        resolve: Resolve,
        say: Callable[[str], None],
    ) -> None:
        self._settings, self._sleep, self._clock, self._now = settings, sleep, clock, now
        self._random, self._say = random, say
        self.guard = AddressGuard(settings.allow_private, resolve)
        self.hosts = Hosts(settings.requests_per_second, settings.per_host, clock, sleep)
        self._session = QuietSession(CheckedAdapter(self.guard, settings.max_seconds, settings.per_host))
        self._lock = threading.Lock()
        self._counts = Counts()
        self._told: set[str] = set()
        self.max_bytes = max(1, int(settings.max_body_mb * 1_000_000))

    @property
    def counts(self) -> Counts:
        """What was done so far."""
        return self._counts

    def count(self, **more: int) -> None:
        """Add to the counts."""
        with self._lock:
            self._counts = replace(self._counts, **{k: getattr(self._counts, k) + n for k, n in more.items()})

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def send(
        self,
        method: str,
        url: str,
        headers: dict[str, str] | None = None,
        *,
        delay_s: float = 0.0,
        max_bytes: int | None = None,
        tries: int | None = None,
    ) -> Answer:
        """The answer of the host, whatever its status, after further tries where they may help.

        Args:
            method: GET or HEAD.
            url: address, see ``split_url``.
            headers: further headers.
            delay_s: the host's wish between two requests, seconds.
            max_bytes: read no more than this of the body instead of refusing a larger one.
            tries: tries in all; none = as in the settings.

        Raises:
            WebError: no answer, or one that is refused.
        """
        retrying = Retrying(
            retry=retry_if_exception_type(_Again),
            stop=stop_after_attempt(self._settings.retries + 1 if tries is None else tries),
            wait=self._wait,
            sleep=self._sleep,
            before_sleep=self._before_sleep,
            reraise=True,
        )
        try:
            return retrying(self._once, method, url, headers or {}, delay_s, max_bytes)
        except _Again as again:
            raise again.error from again

    def _once(
        self, method: str, url: str, headers: dict[str, str], delay_s: float, max_bytes: int | None
    ) -> Answer:
        host = self.hosts.of(place_of(split_url(url)))
        with host.turn(delay_s):
            response = self._open(method, url, headers)
            try:
                return self._take(method, url, response, max_bytes)
            except _Again as again:
                if again.retry_after_s is not None:
                    host.pause(again.retry_after_s)
                raise
            except WebError as error:
                if error.reason in _PASSING:
                    raise _Again(error) from error
                raise
            finally:
                response.close()

    def _open(self, method: str, url: str, headers: dict[str, str]) -> requests.Response:
        sent = {
            "User-Agent": self._settings.user_agent,
            "Accept": "text/html,text/markdown,application/json;q=0.9,*/*;q=0.5",
            "Accept-Encoding": "gzip",
            **headers,
        }
        try:
            request = self._session.prepare_request(requests.Request(method, url, headers=sent))
            options = self._session.merge_environment_settings(request.url or url, {}, True, None, None)
            self._check_proxied(request.url or url, options["proxies"])
        except (requests.RequestException, HTTPError, ValueError) as error:
            raise WebError("not_http", url, "the address cannot be asked for") from error
        self.count(requests=1)
        timeout = self._settings.timeout_s
        try:
            return self._session.send(request, timeout=(timeout, timeout), allow_redirects=False, **options)
        except WebError as error:
            # Raised at the connection, which knows only host and port.
            known = WebError(error.reason, url, error.detail)
            raise (_Again(known) if error.reason in _PASSING else known) from error
        except requests.exceptions.SSLError as error:
            raise WebError("connection", url, "the host's certificate or encryption is refused") from error
        except requests.Timeout as error:
            raise _Again(WebError("timeout", url, "no answer in time")) from error
        except requests.ConnectionError as error:
            raise _Again(WebError("connection", url, _why(error))) from error
        except (requests.RequestException, HTTPError, ValueError) as error:
            raise WebError("connection", url, f"the answer is not http ({type(error).__name__})") from error

    def _check_proxied(self, url: str, proxies: Any) -> None:
        proxy = select_proxy(url, proxies)
        if not proxy:
            return
        host, port = place_of(split_url(url))
        if self.guard.plainly_private(host, port):
            raise WebError("private_address", url, "a private or local address is not fetched")
        if host not in self._told:
            self._told.add(host)
            self._say(f"{host} is reached through a proxy: only its name is checked, not its address")

    def _take(self, method: str, url: str, response: requests.Response, max_bytes: int | None) -> Answer:
        status = response.status_code
        if status in _AGAIN:
            self._raise_again(url, response)
        headers = {k: response.headers[k] for k in _KEPT if k in response.headers}
        data = Body(b"", 0)
        if 200 <= status < 300 and method == "GET" and status not in (204, 205):
            cap = self.max_bytes if max_bytes is None else max_bytes
            caps = Caps(cap, self._settings.max_seconds)
            data = read_body(response, url, caps, self._clock, cut=max_bytes is not None)
            self.count(bytes=data.raw_bytes)
        return Answer(url, status, headers, data.data)

    def _raise_again(self, url: str, response: requests.Response) -> None:
        status = response.status_code
        wait = self._retry_after(response)
        if wait is not None and wait > self._settings.max_wait_s:
            detail = f"HTTP {status}, the host asks to wait {wait:,.0f} s, more than http.max_wait_s"
            raise WebError("rate_limited", url, detail, status=status)
        reason = "rate_limited" if status == 429 else "server_error"
        raise _Again(WebError(reason, url, f"the host answers HTTP {status}", status=status), wait)

    def _retry_after(self, response: requests.Response) -> float | None:
        text = response.headers.get("retry-after", "").strip()
        if text.isascii() and text.isdigit():
            return float(text[:12])
        try:
            when = parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
        when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
        return max(0.0, (when - datetime.fromtimestamp(self._now(), UTC)).total_seconds())

    def _wait(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, _Again) and error.retry_after_s is not None:
            return error.retry_after_s
        base = self._settings.backoff_s
        wait = base * 2.0 ** (state.attempt_number - 1) + self._random.uniform(0.0, base)
        return min(wait, self._settings.max_wait_s)

    def _before_sleep(self, state: RetryCallState) -> None:
        self.count(retries=1)
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, _Again) and state.next_action is not None:
            self._say(f"{error.error.url}: {error.error.detail}; again in {state.next_action.sleep:.1f} s")


def _why(error: BaseException) -> str:
    """Plain words for a broken connection; the error's own text would repeat the address in full."""
    seen: BaseException | None = error
    for _ in range(8):
        if isinstance(seen, OSError) and seen.strerror:
            return f"no connection ({seen.strerror.lower()})"
        reason = getattr(seen, "reason", None)
        inner = [a for a in getattr(seen, "args", ()) if isinstance(a, BaseException)]
        following = reason if isinstance(reason, BaseException) else seen.__cause__ if seen else None
        seen = following or (inner[0] if inner else None)
    return "no connection, or it broke before the answer"


def location(answer: Answer) -> str | None:
    """The ``Location`` of a redirect; bytes outside ASCII are read as UTF-8."""
    found = answer.headers.get("location")
    if not found:
        return None
    try:
        return found.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return found
