"""JSON Schema of an n8n node's properties."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

JSON = Mapping[str, Any]
Visible = Callable[[JSON, int], bool | None]
"""Of a property and its depth: always shown (True), never (False) or depending on other inputs (None)."""

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


def names_of_properties(props: Iterable[JSON]) -> list[str]:
    """Names of properties, notices left out, each once, sorted."""
    return sorted({str(p["name"]) for p in props if "name" in p and p.get("type") not in _NOT_INPUT})


def parameters_of(node: JSON) -> list[str]:
    """Names of a node's properties, notices left out, each once, sorted."""
    return names_of_properties(_dicts(node.get("properties")))


def properties_schema(node: JSON) -> dict[str, Any]:
    """JSON Schema of a node's properties; a name used for several resources appears once.

    ``required`` lists what is required whatever the resource: properties shown only for some are
    left out of it.
    """
    return SchemaMaker().schema(_dicts(node.get("properties")))


def _unconditional(prop: JSON, depth: int) -> bool | None:
    return None if prop.get("displayOptions") else True


class SchemaMaker:
    """Makes schemas of one node's properties; what is the same in several is made once."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int], dict[str, Any]] = {}
        self._bound: dict[int, bool] = {}

    def schema(self, props: list[JSON], shown: Visible = _unconditional) -> dict[str, Any]:
        """JSON Schema of properties.

        Args:
            props: properties of a node, in file order; they must outlive this object.
            shown: what is never shown is left out, only what is always shown can be required.
        """
        return self._object(props, 0, shown)

    def _object(self, props: list[JSON], depth: int, shown: Visible) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        required: list[str] = []
        for prop in props:
            name = prop.get("name")
            visible = shown(prop, depth)
            if not isinstance(name, str) or prop.get("type") in _NOT_INPUT or visible is False:
                continue
            entry = self._property(prop, depth, shown)
            if name not in properties:
                properties[name] = entry
            elif "enum" in properties[name] and "enum" in entry:
                known = properties[name]["enum"]
                properties[name] = {
                    **properties[name],
                    "enum": known + [v for v in entry["enum"] if v not in known],
                }
            if prop.get("required") is True and visible is True and name not in required:
                required.append(name)
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if required:
            schema["required"] = required
        return schema

    def _property(self, prop: JSON, depth: int, shown: Visible) -> dict[str, Any]:
        key = (id(prop), depth)
        if key not in self._made:
            made = self._build(prop, depth, shown)
            if self._is_bound(prop):
                return made
            self._made[key] = made
        return self._made[key]

    def _is_bound(self, prop: JSON) -> bool:
        """Whether something inside the property is shown for some operations or versions only."""
        if id(prop) not in self._bound:
            inner = [*_dicts(prop.get("options")), *_dicts(prop.get("values"))]
            self._bound[id(prop)] = any(_names_node(i) or self._is_bound(i) for i in inner)
        return self._bound[id(prop)]

    def _build(self, prop: JSON, depth: int, shown: Visible) -> dict[str, Any]:
        kind = str(prop.get("type"))
        entry = dict(_TYPES.get(kind, {}))
        options = _dicts(prop.get("options"))
        if kind in ("options", "multiOptions"):
            entry = _choice(options, kind, entry)
        elif kind == "collection" and depth < _DEPTH:
            entry = self._object(options, depth + 1, shown)
        elif kind == "fixedCollection" and depth < _DEPTH:
            many = _multiple(prop)
            groups: dict[str, Any] = {}
            for option in options:
                if "name" in option and shown(option, depth + 1) is not False:
                    group = self._object(_dicts(option.get("values")), depth + 1, shown)
                    groups[str(option["name"])] = {"type": "array", "items": group} if many else group
            entry = {"type": "object", "properties": groups}
        description = prop.get("description")
        if isinstance(description, str) and description.strip():
            entry["description"] = description.strip()
        default = prop.get("default")
        if isinstance(default, str | int | float | bool) and default != "":
            entry["default"] = default
        if _multiple(prop) and kind not in ("collection", "fixedCollection"):
            return {"type": "array", "items": entry}
        return entry


def _choice(options: list[JSON], kind: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Schema of a choice among listed values; a list made at run time is not known."""
    plain = [o["value"] for o in options if isinstance(o.get("value"), str | int | float | bool)]
    # 1 and True are equal in Python, but not in JSON.
    values = list({(isinstance(v, bool), v): v for v in plain}.values())
    if not values:
        return entry
    return {"enum": values} if kind == "options" else {"type": "array", "items": {"enum": values}}


def _multiple(prop: JSON) -> bool:
    settings = prop.get("typeOptions")
    return bool(isinstance(settings, dict) and settings.get("multipleValues"))


def _names_node(prop: JSON) -> bool:
    options = prop.get("displayOptions")
    if not isinstance(options, dict):
        return False
    keys = [k for part in ("show", "hide") if isinstance(options.get(part), dict) for k in options[part]]
    return any(str(k).startswith(("/", "@")) for k in keys)
