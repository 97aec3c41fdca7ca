"""Community packages by their keyword, from the registry that the user's npm is set to.

Off unless asked for: it puts hundreds of requests to somebody's registry. What comes back are names,
versions, downloads and dates for the table of packages; no record is made of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from ecoagent.crawlers.client import _run, npm_command
from ecoagent.crawlers.web.documents import Getter, Say
from ecoagent.crawlers.web.n8n_verified import is_npm_name
from ecoagent.runs import parse_json
from ecoagent.settings import HttpSettings, UserError

KEYWORD = "n8n-community-node-package"
PAGE_SIZE = 250
_TIMEOUT_S = 60.0
_VERSION = re.compile(r"[0-9A-Za-z][\w.+!-]*")


@dataclass(frozen=True)
class Found:
    """A package found; ``published`` is the UTC date of its version, ``downloads`` those of a month."""

    name: str
    version: str
    published: str | None = None
    downloads: int | None = None


def registry_of_npm() -> str:
    """Address of the registry that the user's npm is set to.

    Raises:
        ClientMissingError: npm is not installed.
        FetchError: npm gives no answer.
    """
    return _run([*npm_command(), "config", "get", "registry"], "npm config get registry", _TIMEOUT_S).strip()


def search(
    client: Getter,
    http: HttpSettings,
    say: Say,
    *,
    registry: Callable[[], str] = registry_of_npm,
) -> list[Found]:
    """Every package that carries the keyword, sorted by name.

    The registry's own total is not relied on: the search ends with a page that brings nothing new.

    Raises:
        UserError: the setting is off, the registry's address is no web address, or a page cannot be read.
    """
    if not http.npm_search:
        raise UserError(
            "the search for community packages is off", remedy="switch it on with --set http.npm_search=true"
        )
    address = registry()
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(
            "npm's registry is no http(s) address", remedy="look at `npm config get registry`, and set it"
        )
    found: dict[str, Found] = {}
    for number in range(http.max_pages):
        query = urlencode({"text": f"keywords:{KEYWORD}", "size": PAGE_SIZE, "from": number * PAGE_SIZE})
        page = client.get(f"{address.rstrip('/')}/-/v1/search?{query}", soft_404=False)
        fresh = {f.name: f for f in _packages(page.text) if f.name not in found}
        if not fresh:
            break
        found |= fresh
    say(f"npm search: {len(found)} packages with the keyword {KEYWORD}")
    return [found[name] for name in sorted(found)]


def _packages(body: str) -> Iterator[Found]:
    try:
        value = parse_json(body)
    except ValueError as error:
        raise UserError(
            f"the registry's search gave no JSON: {error}", remedy="leave http.npm_search off: it has none"
        ) from error
    for item in value.get("objects") or [] if isinstance(value, dict) else []:
        package = item.get("package") if isinstance(item, dict) else None
        if not isinstance(package, dict):
            continue
        name, version = package.get("name"), package.get("version")
        if not isinstance(name, str) or not is_npm_name(name):
            continue
        yield Found(
            name=name,
            version=version if isinstance(version, str) and _VERSION.fullmatch(version) else "",
            published=_date(package.get("date")),
            downloads=_monthly(item.get("downloads")),
        )


def _date(value: Any) -> str | None:
    return value[:10] if isinstance(value, str) and re.match(r"^\d{4}-\d{2}-\d{2}", value) else None


def _monthly(value: Any) -> int | None:
    count = value.get("monthly") if isinstance(value, dict) else None
    return count if isinstance(count, int) and count >= 0 else None
