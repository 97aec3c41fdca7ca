"""What changed between two tool tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ecoagent.runs import canonical_json, read_rows
from ecoagent.schema import Record, ScoredTool

DERIVED = frozenset({"r_cons", "w_src", "r_qual", "r_static", "reliable", "tool_text", "provenance"})
"""Columns computed from others or naming the artifact: not changes of a tool."""


@dataclass(frozen=True)
class FieldChange:
    """One field of one tool that is not what it was."""

    tool_id: str
    field: str
    old: str
    new: str


@dataclass(frozen=True)
class ToolDiff:
    """Tools added, removed, renamed and changed."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...]
    changed: tuple[FieldChange, ...]

    def rows(self) -> list[dict[str, Any]]:
        """One row a difference, for a table."""
        rows = [{"what": "added", "tool": t, "field": "", "old": "", "new": ""} for t in self.added]
        rows += [{"what": "removed", "tool": t, "field": "", "old": "", "new": ""} for t in self.removed]
        rows += [{"what": "renamed", "tool": b, "field": "id", "old": a, "new": b} for a, b in self.renamed]
        rows += [
            {"what": "changed", "tool": c.tool_id, "field": c.field, "old": c.old[:80], "new": c.new[:80]}
            for c in self.changed
        ]
        return rows

    def as_dict(self) -> dict[str, Any]:
        """The whole difference, JSON-able."""
        return {
            "added": list(self.added),
            "removed": list(self.removed),
            "renamed": [{"old": a, "new": b} for a, b in self.renamed],
            "changed": [
                {"id": c.tool_id, "field": c.field, "old": c.old, "new": c.new} for c in self.changed
            ],
        }

    def line(self) -> str:
        """Counts, and the fields that changed most."""
        fields = ", ".join(f"{f} {n}" for f, n in Counter(c.field for c in self.changed).most_common(5))
        tools = len({c.tool_id for c in self.changed})
        counted = {"added": len(self.added), "removed": len(self.removed), "renamed": len(self.renamed)}
        text = ", ".join(f"{n} {what}" for what, n in {**counted, "changed": tools}.items())
        return f"{text} ({fields})" if fields else text


def compare(old: list[ScoredTool], new: list[ScoredTool]) -> ToolDiff:
    """Difference of two tool tables.

    A removed and an added tool of one source with the same name and description, each the only one
    of its kind, are one tool that was renamed.
    """
    before, after = {t.id: t for t in old}, {t.id: t for t in new}
    gone, come = sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())
    renamed = _renamed([before[i] for i in gone], [after[i] for i in come])
    taken = {a for a, _ in renamed} | {b for _, b in renamed}
    changes = [
        FieldChange(
            tool_id, name, _text(getattr(before[tool_id], name)), _text(getattr(after[tool_id], name))
        )
        for tool_id in sorted(before.keys() & after.keys())
        for name in ScoredTool.model_fields
        if name not in DERIVED and getattr(before[tool_id], name) != getattr(after[tool_id], name)
    ]
    return ToolDiff(
        tuple(i for i in come if i not in taken),
        tuple(i for i in gone if i not in taken),
        tuple(renamed),
        tuple(changes),
    )


def _renamed(gone: list[ScoredTool], come: list[ScoredTool]) -> list[tuple[str, str]]:
    def facts(tool: ScoredTool) -> tuple[str, str, str]:
        return (tool.source, tool.name, tool.description)

    old, new = Counter(map(facts, gone)), Counter(map(facts, come))
    by_facts = {facts(t): t.id for t in come}
    return [(t.id, by_facts[facts(t)]) for t in gone if old[facts(t)] == 1 and new[facts(t)] == 1]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    plain = [_plain(v) for v in value] if isinstance(value, list) else _plain(value)
    return canonical_json(plain)


def _plain(value: Any) -> Any:
    return value.model_dump() if isinstance(value, Record) else value


def diff_tools(old: Path, new: Path) -> ToolDiff:
    """Difference of two ``core/tools.parquet`` files."""
    return compare(read_rows(old, ScoredTool), read_rows(new, ScoredTool))
