"""Changes of one tool, field by field, down to single credentials, endpoints and operations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ecoagent.runs import canonical_json

DERIVED = frozenset(
    {
        "id", "r_cons", "w_src", "r_qual", "r_static", "reliable", "tool_text", "provenance", "provider",
        "duplicate_group", "language", "quality_flags", "published_at", "downloads",
    }
)  # fmt: skip
"""Columns computed from others, or telling of the artifact and its listing: not changes of a tool."""


@dataclass(frozen=True)
class FieldChange:
    """One fact of one tool that is not what it was.

    Attributes:
        tool_id: id in the later run.
        field: column; for nested facts with the item and its field, ``auth[slackApi].required``.
        old: value before, as text or JSON; ``None`` where the item was not there.
        new: value after; ``None`` where the item is gone.
    """

    tool_id: str
    field: str
    old: str | None
    new: str | None

    @property
    def change(self) -> Literal["added", "removed", "changed"]:
        """Whether the fact is new, gone or another."""
        if self.old is None:
            return "added"
        return "removed" if self.new is None else "changed"


def _auth_name(item: Mapping[str, Any]) -> str:
    return str(item["name"])


def _operation_name(item: Mapping[str, Any]) -> str:
    return f"{item['resource']}/{item['operation']}" if item["resource"] else str(item["operation"])


ITEMS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "auth": _auth_name,
    "fields": _auth_name,
    "endpoints": lambda item: str(item["url"]),
    "operations": _operation_name,
}
"""Lists of records, and what tells their items apart."""


def field_changes(tool_id: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[FieldChange]:
    """Every difference of two rows of one tool; a column that only one of the tables has is left out."""
    for name in new:
        if name in old and name not in DERIVED and old[name] != new[name]:
            yield from _changes(tool_id, name, name, old[name], new[name])


def _changes(tool_id: str, path: str, kind: str, old: Any, new: Any) -> Iterator[FieldChange]:
    if old == new:
        return
    if kind in ITEMS and isinstance(old, list) and isinstance(new, list):
        before, after = _by_key(old, ITEMS[kind]), _by_key(new, ITEMS[kind])
        for key in sorted(before.keys() | after.keys()):
            place = f"{path}[{key}]"
            if key not in after:
                yield FieldChange(tool_id, place, text(before[key]), None)
            elif key not in before:
                yield FieldChange(tool_id, place, None, text(after[key]))
            else:
                for name in after[key]:
                    yield from _changes(
                        tool_id, f"{place}.{name}", name, before[key].get(name), after[key][name]
                    )
    elif isinstance(old, list) and isinstance(new, list):
        for item in sorted({text(i) for i in old} ^ {text(i) for i in new}):
            there = item in {text(i) for i in new}
            yield FieldChange(tool_id, f"{path}[{item}]", None if there else item, item if there else None)
    elif isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            yield from _changes(tool_id, f"{path}.{name}", name, old.get(name), new.get(name))
    elif path == "input_schema" and (schemas := (_properties(old), _properties(new))) != (None, None):
        yield from _schema(tool_id, path, old, new, schemas[0] or {}, schemas[1] or {})
    else:
        yield FieldChange(tool_id, path, _value(old), _value(new))


def _schema(
    tool_id: str, path: str, old: Any, new: Any, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[FieldChange]:
    """Inputs added, removed and changed; the whole schema where the difference lies elsewhere."""
    found = [
        FieldChange(
            tool_id,
            f"{path}[{name}]",
            text(before[name]) if name in before else None,
            text(after[name]) if name in after else None,
        )
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    yield from found or [FieldChange(tool_id, path, _value(old), _value(new))]


def _properties(value: Any) -> dict[str, Any] | None:
    try:
        parsed = json.loads(value) if isinstance(value, str) else None
    except json.JSONDecodeError:
        return None
    properties = parsed.get("properties") if isinstance(parsed, dict) else None
    return properties if isinstance(properties, dict) else None


def _by_key(items: list[Any], key: Callable[[Mapping[str, Any]], str]) -> dict[str, Mapping[str, Any]]:
    """Items by name; a name that occurs again gets a number, in the order of the list."""
    found: dict[str, Mapping[str, Any]] = {}
    for item in items:
        name, number = key(item), 2
        while name in found:
            name, number = f"{key(item)} #{number}", number + 1
        found[name] = item
    return found


def _value(value: Any) -> str | None:
    return None if value is None else text(value)


def text(value: Any) -> str:
    """A value as text; what is not text itself as canonical JSON."""
    return value if isinstance(value, str) else canonical_json(value)
