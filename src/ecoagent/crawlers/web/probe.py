"""Whether an address answers, for link audits."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urldefrag, urlsplit

from ecoagent.crawlers.web.bodies import decode
from ecoagent.crawlers.web.errors import WebError, absolute, split_url
from ecoagent.crawlers.web.soft404 import is_soft_404
from ecoagent.crawlers.web.store import ResponseStore
from ecoagent.crawlers.web.transport import REDIRECTS, Answer, Transport, location
from ecoagent.settings.sections import HttpSettings

Kind = Literal["page", "endpoint"]
State = Literal["alive", "dead", "auth_walled", "unknown"]
READ_BYTES = 64 * 1024
"""Most that is read of a page."""
_LOGIN = re.compile(
    r"(^|[/._-])(log-?in|sign-?in|sso|oauth2?|authorize|authenticate)([/._?-]|$)", re.IGNORECASE
)
_LOGIN_HOST = re.compile(r"^(login|signin|sso|auth|accounts?|id|idp)\.", re.IGNORECASE)
_STATES: dict[str, State] = {
    "not_found": "dead",
    "gone": "dead",
    "soft_404": "dead",
    "no_such_host": "dead",
    "auth_walled": "auth_walled",
}


@dataclass(frozen=True)
class Probe:
    """What was seen. ``reason`` is ``status_200``, ``answers_status_404`` or a ``WebError`` reason;
    ``status`` is the last HTTP status, where there was an answer; ``url`` is where redirects ended."""

    state: State
    reason: str
    status: int | None = None
    url: str = ""


class Prober:
    """Asks with HEAD, then with GET where HEAD does not settle it. See ``PoliteClient.probe``."""

    def __init__(
        self,
        transport: Transport,
        delay: Callable[[str], float],
        settings: HttpSettings,
        store: ResponseStore | None,
    ) -> None:
        self._transport, self._delay, self._settings, self._store = transport, delay, settings, store

    def probe(self, url: str, kind: Kind, max_age_h: float) -> Probe:
        """The state of an address, from the store where that is young enough."""
        target = urldefrag(url).url if "#" in url else url
        place = f"probe {kind}"
        try:
            split_url(target)
            stored = self._store.load(target, place) if self._store else None
            if stored and self._store and self._store.age_h(stored) < max_age_h:
                self._transport.count(from_store=1)
                state: State | None = _state(stored.headers.get("state"))
                if state is not None:
                    reason, end = stored.headers.get("reason", ""), stored.headers.get("url", target)
                    return Probe(state, reason, stored.status or None, end)
            found = self._ask(target, kind)
        except WebError as error:
            found = Probe(_STATES.get(error.reason, "unknown"), error.reason, error.status, target)
        if self._store and found.state != "unknown":
            headers = {"state": found.state, "reason": found.reason, "url": found.url}
            self._store.save(target, found.status or 0, headers, b"", place)
        return found

    def _ask(self, url: str, kind: Kind) -> Probe:
        try:
            head = self._follow("HEAD", url)
            settled = _judge_head(head, kind)
        except WebError as error:
            if error.reason in ("robots", "private_address", "not_http", "no_such_host", "rate_limited"):
                raise
            # Some hosts break on HEAD, whatever the page.
            settled = None
        if settled is None:
            answer = self._follow("GET", url)
            settled = _judge(answer, kind)
            head = answer
        if settled.state == "alive" and head.url != url and _is_login(head.url) and not _is_login(url):
            return Probe("auth_walled", "login_page", head.status, head.url)
        return settled

    def _follow(self, method: str, url: str) -> Answer:
        """The last answer; unlike pages, links may lead to other public hosts: documentation moves."""
        target, seen = url, {url}
        while True:
            tries = 1 if method == "HEAD" else None
            answer = self._transport.send(
                method, target, delay_s=self._delay(target), max_bytes=READ_BYTES, tries=tries
            )
            place = location(answer)
            if answer.status not in REDIRECTS or place is None:
                return answer
            try:
                target = urldefrag(absolute(target, place)).url
            except ValueError as error:
                raise WebError("not_http", url, "redirects to an address that cannot be read") from error
            split_url(target)
            if target in seen or len(seen) > self._settings.max_redirects:
                raise WebError("redirect_loop", url, "redirects without an end", status=answer.status)
            seen.add(target)


def _judge_head(answer: Answer, kind: Kind) -> Probe | None:
    """What a HEAD alone settles; none = ask with GET."""
    html = "html" in answer.headers.get("content-type", "html").lower()
    if 200 <= answer.status < 300 and (kind == "endpoint" or not html):
        return _judge(answer, kind)
    if kind == "endpoint" and answer.status in (400, 404, 405, 406, 415, 422):
        return _judge(answer, kind)
    return None


def _judge(answer: Answer, kind: Kind) -> Probe:
    status, url = answer.status, answer.url
    if 200 <= status < 300:
        content_type = answer.headers.get("content-type", "")
        if kind == "page" and is_soft_404(decode(answer.body, content_type), content_type):
            return Probe("dead", "soft_404", status, url)
        return Probe("alive", f"status_{status}", status, url)
    if status in (401, 403, 407):
        return Probe("auth_walled", f"status_{status}", status, url)
    if status == 410:
        return Probe("dead", "gone", status, url)
    if kind == "endpoint" and 400 <= status < 500 and status != 429:
        return Probe("alive", f"answers_status_{status}", status, url)
    if status == 404:
        return Probe("dead", "not_found", status, url)
    return Probe("unknown", "server_error" if status >= 500 else "bad_status", status, url)


def _is_login(url: str) -> bool:
    parts = urlsplit(url)
    return bool(_LOGIN.search(parts.path) or _LOGIN_HOST.search(parts.hostname or ""))


def _state(text: str | None) -> State | None:
    states: tuple[State, ...] = ("alive", "dead", "auth_walled", "unknown")
    return next((s for s in states if s == text), None)
