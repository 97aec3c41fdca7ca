"""Credentials of n8n nodes: their types, what those extend, and types that lie in another package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ecoagent.runs import parse_json
from ecoagent.schema import Auth, AuthField

JSON = Mapping[str, Any]
TYPES = "dist/types/credentials.json"
"""Member of n8n's packages that lists their credential types."""
BORROWED = "//credentials/"
"""Begin of the keys under which a crawl hands in lists of other packages; no archive has such a path."""
ELSEWHERE = "credential_type_elsewhere"
"""Flaw of a record whose credential type, or what it extends, is in no package that was read."""


def dicts(value: object) -> list[JSON]:
    """The mappings of a list; nothing for anything else."""
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def text(value: object) -> str:
    """``value`` stripped, if it is text."""
    return value.strip() if isinstance(value, str) else ""


def by_name(types: object) -> dict[str, JSON]:
    """Credential types by name."""
    return {text(c.get("name")): c for c in dicts(types)}


def borrowed_types(members: Mapping[str, bytes]) -> dict[str, JSON]:
    """Types of other packages that were handed in with the members of this one."""
    found: dict[str, JSON] = {}
    for key in sorted(m for m in members if m.startswith(BORROWED)):
        found = {**by_name(parse_json(members[key])), **found}
    return found


def lineage(name: str, types: Mapping[str, JSON]) -> list[JSON]:
    """A credential type and all it extends, each once; what is not in ``types`` is left out."""
    return [types[n] for n in _names(name, types) if n in types]


def unknown_types(node: JSON, types: Mapping[str, JSON]) -> list[str]:
    """Credential types that a node needs and ``types`` does not hold, sorted."""
    needed = {n for c in dicts(node.get("credentials")) for n in _names(text(c.get("name")), types)}
    return sorted(n for n in needed if n and n not in types)


def _names(name: str, types: Mapping[str, JSON]) -> list[str]:
    found: dict[str, None] = {}
    queue = [name]
    while queue:
        current = queue.pop(0)
        if current in found:
            continue
        found[current] = None
        queue += [e for e in types.get(current, {}).get("extends") or [] if isinstance(e, str)]
    return list(found)


def auth_of(node: JSON, types: Mapping[str, JSON]) -> list[Auth]:
    """Auth entries of a node's credentials, fields taken from the types and what they extend."""
    found: dict[str, Auth] = {}
    for item in dicts(node.get("credentials")):
        name = text(item.get("name"))
        if not name or name in found:
            continue
        kinds = lineage(name, types)
        listed = _fields(kinds)
        required = item.get("required")
        found[name] = Auth(
            type=_auth_type(name, kinds, listed),
            name=name,
            fields=listed,
            required=required if isinstance(required, bool) else None,
            origin="extends" if len(kinds) > 1 else "credentials",
        )
    return [found[n] for n in sorted(found)]


def _fields(kinds: list[JSON]) -> list[AuthField]:
    fields: dict[str, AuthField] = {}
    for kind in kinds:
        for prop in dicts(kind.get("properties")):
            label = text(prop.get("name"))
            if not label or label in fields or prop.get("type") in ("hidden", "notice"):
                continue
            options = prop.get("typeOptions")
            secret = bool(isinstance(options, dict) and options.get("password"))
            fields[label] = AuthField(name=label, secret=secret, required=prop.get("required") is True)
    return list(fields.values())


def _auth_type(name: str, kinds: list[JSON], fields: list[AuthField]) -> str:
    names = (
        {str(k.get("name", "")) for k in kinds} | {e for k in kinds for e in k.get("extends") or []} | {name}
    )
    for wanted, label in (("oauth2", "oauth2"), ("oauth1", "oauth1"), ("basicauth", "basic")):
        if any(wanted in str(n).lower().replace("_", "") for n in names):
            return label
    return "api_key" if any(f.secret for f in fields) else "credential"


def auth_required(node: JSON) -> Any:
    """yes if a credential is required, no if none is declared, else unknown."""
    listed = dicts(node.get("credentials"))
    if not listed:
        return "no"
    return "yes" if any(c.get("required") is True for c in listed) else "unknown"
