"""Addresses an n8n node calls: the first link of a chain that holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ecoagent.crawlers.n8n_auth import JSON, dicts, lineage, text
from ecoagent.crawlers.n8n_code import NOT_CALLED
from ecoagent.schema import Endpoint

MOST = 20
"""Endpoints kept of one node's code."""
_URL = re.compile(r"https?://[^\s'\"`<>\\]+")
_CREDENTIAL_FIELD = re.compile(r"\bcredentials\??(?:\.(\w+)|\[['\"](\w+)['\"]\])")
_SERVER_FIELD = re.compile(
    r"((base|api|server|instance)_?)?(ur[il]|host|domain|endpoint|server)", re.IGNORECASE
)


def endpoints_of(node: JSON, types: Mapping[str, JSON], literals: Iterable[str]) -> list[Endpoint]:
    """Request defaults, else credential test, else addresses in code, else a credential's default server.

    Args:
        node: the description.
        types: credential types by name.
        literals: addresses in the node's code; not looked at where the chain has ended before.
    """
    kinds = [k for c in dicts(node.get("credentials")) for k in lineage(text(c.get("name")), types)]
    defaults = node.get("requestDefaults")
    base = text(defaults.get("baseURL")) if isinstance(defaults, dict) else ""
    if base:
        return _with_default(base, "request_defaults", kinds)
    return _tested(node, types) or _in_code(literals, kinds) or _default_servers(kinds)


def _tested(node: JSON, types: Mapping[str, JSON]) -> list[Endpoint]:
    found: dict[str, Endpoint] = {}
    for item in dicts(node.get("credentials")):
        kinds = lineage(text(item.get("name")), types)
        for kind in kinds:
            test = kind.get("test")
            request = test.get("request") if isinstance(test, dict) else None
            if not isinstance(request, dict):
                continue
            base = text(request.get("baseURL")) or text(request.get("url"))
            for endpoint in _with_default(base, "credential_test", kinds) if base else []:
                found.setdefault(endpoint.url, endpoint)
    return list(found.values())


def _in_code(literals: Iterable[str], kinds: list[JSON]) -> list[Endpoint]:
    found: dict[str, Endpoint] = {}
    for url in literals:
        if len(found) >= MOST:
            break
        for endpoint in _with_default(url, "literal", kinds):
            found.setdefault(endpoint.url, endpoint)
    return list(found.values())


def _default_servers(kinds: list[JSON]) -> list[Endpoint]:
    found: dict[str, Endpoint] = {}
    for kind in kinds:
        for prop in dicts(kind.get("properties")):
            url = text(prop.get("default"))
            named = _SERVER_FIELD.fullmatch(text(prop.get("name")))
            if named and _URL.fullmatch(url) and not NOT_CALLED.search(url):
                found.setdefault(url, Endpoint(url=url, origin="credential_default", is_template=False))
    return list(found.values())


def _with_default(base: str, origin: str, kinds: list[JSON]) -> list[Endpoint]:
    """The address as written and, where it is a credential's field, that field's default."""
    template = "{{" in base or "${" in base or base.startswith("=")
    found = [Endpoint(url=base, origin=origin, is_template=template)]
    match = _CREDENTIAL_FIELD.search(base) if template and not _URL.search(base) else None
    for kind in kinds if match else []:
        for prop in dicts(kind.get("properties")):
            if match and prop.get("name") in match.groups() and _URL.match(text(prop.get("default"))):
                default = Endpoint(url=text(prop["default"]), origin="credential_default", is_template=False)
                return [*found, default]
    return found
