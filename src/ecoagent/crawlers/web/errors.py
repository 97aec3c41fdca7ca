"""What can go wrong with a page, and addresses written so that they may be shown."""

from __future__ import annotations

from urllib.parse import SplitResult, urljoin, urlsplit

from ecoagent.settings import UserError

_REMEDIES = {
    "robots": "leave the page out, or ask the site's owner; http.robots=false is for hosts of your own",
    "not_found": "mend or remove the address",
    "gone": "remove the address, its owner took the page down",
    "soft_404": "mend or remove the address",
    "redirect_loop": "open the page in a browser and give the address it ends at",
    "other_host": "give the address on the other host itself, if it is to be trusted",
    "private_address": "name host:port in http.allow_private if the host is your own",
    "too_large": "raise http.max_body_mb if the page is to be trusted",
    "truncated": "try again later",
    "timeout": "try again later, or raise http.timeout_s or http.max_seconds",
    "server_error": "try again later",
    "rate_limited": "try again later, or lower http.requests_per_second",
    "auth_walled": "leave the page out, it asks for a login",
    "no_such_host": "mend the host name, or check the name service of this machine",
    "connection": "check the network and the address, then try again",
    "not_http": "give an http or https address without a user name",
    "bad_status": "open the page in a browser to see what it wants",
    "bad_encoding": "report the page to its owner, its compression cannot be read",
}
REASONS = tuple(_REMEDIES)
"""All values of ``WebError.reason``."""


class WebError(UserError):
    """A page that was not read.

    Attributes:
        reason: one of ``REASONS``.
        status: HTTP status, where there was an answer.
    """

    def __init__(self, reason: str, url: str, detail: str, *, status: int | None = None) -> None:
        self.reason, self.url, self.detail, self.status = reason, scrub(url), detail, status
        super().__init__(f"{self.url}: {detail}", remedy=_REMEDIES[reason])

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self.reason, self.url, self.detail, self.status))


def _rebuild(reason: str, url: str, detail: str, status: int | None) -> WebError:
    return WebError(reason, url, detail, status=status)


def scrub(url: str) -> str:
    """The address without user name, password, query values and fragment, at most 300 characters."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an address that cannot be read"
    query = "&".join(f"{p.partition('=')[0]}=…" if "=" in p else "…" for p in parts.query.split("&") if p)
    place = parts.netloc.rpartition("@")[2]
    shown = SplitResult(parts.scheme, place, parts.path, query, "").geturl()
    shown = "".join(c if c.isprintable() else "?" for c in shown)
    return shown if len(shown) <= 300 else shown[:299] + "…"


def absolute(base: str, link: str) -> str:
    """``link`` as seen from ``base``; empty where it is no address at all, e.g. ``http://[``."""
    try:
        joined = urljoin(base, link.strip())
        urlsplit(joined)
    except ValueError:
        return ""
    return joined


def split_url(url: str) -> SplitResult:
    """The parts of an address that may be fetched.

    Raises:
        WebError: another scheme than http and https, no host, a user name, a bad port or blanks
            (reason ``not_http``).
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise WebError("not_http", url, "the address cannot be read") from error
    if parts.scheme not in ("http", "https"):
        raise WebError("not_http", url, f"scheme {parts.scheme or 'missing'} is not fetched")
    if not host or port == 0 or any(c.isspace() or not c.isprintable() for c in url):
        raise WebError("not_http", url, "the address has no host, a bad port, or blanks in it")
    if "@" in parts.netloc:
        raise WebError("not_http", url, "addresses with a user name are not fetched")
    if "\\" in parts.netloc or any(c in host for c in "{}<>^`|\"'%"):
        raise WebError("not_http", url, "the host name has characters no host has")
    return parts


def place_of(parts: SplitResult) -> tuple[str, int]:
    """Host name in lower case without its final dot, and port, the scheme's own where none is written."""
    host = (parts.hostname or "").rstrip(".")
    return host, parts.port or (443 if parts.scheme == "https" else 80)
