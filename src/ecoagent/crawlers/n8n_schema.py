"""JSON Schema of an n8n node's properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

JSON = Mapping[str, Any]
_TYPES: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "dateTime": {"type": "string", "format": "date-time"},
    "color": {"type": "string"},
    "json": {},
    "options": {"type": "string"},
    "multiOptions": {"type": "array"},
    "collection": {"type": "object"},
    "fixedCollection": {"type": "object"},
    "resourceLocator": {"type": "object"},
    "resourceMapper": {"type": "object"},
    "filter": {"type": "object"},
    "assignmentCollection": {"type": "object"},
}
_NOT_INPUT = frozenset({"notice"})
_DEPTH = 3


def _dicts(value: object) -> list[JSON]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def parameters_of(node: JSON) -> list[str]:
    """Names of a node's properties, notices left out, each once, sorted."""
    return sorted(
        {
            str(p["name"])
            for p in _dicts(node.get("properties"))
            if "name" in p and p.get("type") not in _NOT_INPUT
        }
    )


def properties_schema(node: JSON) -> dict[str, Any]:
    """JSON Schema of a node's properties; a name used for several resources appears once.

    ``required`` lists what is required whatever the resource: properties shown only for some are
    left out of it.
    """
    return _object(_dicts(node.get("properties")), 0)


def _object(props: list[JSON], depth: int) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for prop in props:
        name = prop.get("name")
        if not isinstance(name, str) or prop.get("type") in _NOT_INPUT:
            continue
        entry = _property(prop, depth)
        if name not in properties:
            properties[name] = entry
        elif "enum" in properties[name] and "enum" in entry:
            known = properties[name]["enum"]
            properties[name] = {
                **properties[name],
                "enum": known + [v for v in entry["enum"] if v not in known],
            }
        if prop.get("required") is True and not prop.get("displayOptions") and name not in required:
            required.append(name)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return schema


def _property(prop: JSON, depth: int) -> dict[str, Any]:
    kind = str(prop.get("type"))
    entry = dict(_TYPES.get(kind, {}))
    options = _dicts(prop.get("options"))
    if kind in ("options", "multiOptions"):
        plain = [o["value"] for o in options if isinstance(o.get("value"), str | int | float | bool)]
        values = [v for i, v in enumerate(plain) if v not in plain[:i]]
        if values and kind == "options":
            entry = {"enum": values}
        elif values:
            entry = {"type": "array", "items": {"enum": values}}
    elif kind == "collection" and depth < _DEPTH:
        entry = _object(options, depth + 1)
    elif kind == "fixedCollection" and depth < _DEPTH:
        groups = {str(o["name"]): _object(_dicts(o.get("values")), depth + 1) for o in options if "name" in o}
        entry = {"type": "object", "properties": groups}
    description = prop.get("description")
    if isinstance(description, str) and description.strip():
        entry["description"] = description.strip()
    default = prop.get("default")
    if isinstance(default, str | int | float | bool) and default != "":
        entry["default"] = default
    settings = prop.get("typeOptions")
    if (
        isinstance(settings, dict)
        and settings.get("multipleValues")
        and kind not in ("collection", "fixedCollection")
    ):
        return {"type": "array", "items": entry}
    return entry
