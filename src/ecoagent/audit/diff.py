"""What changed between two runs' tools."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ecoagent.audit.diff_fields import FieldChange, field_changes
from ecoagent.runs import read_table
from ecoagent.schema import RejectedTool, ScoredTool
from ecoagent.settings import UserError

TOOLS, REJECTS = "tools.parquet", "tool_rejects.parquet"
_SHOWN, _CELL = 200, 80

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Gone:
    """A tool of the earlier run that the later one does not keep.

    ``reason`` and ``detail`` tell why the later crawl rejected it; ``None`` where it no longer lists it.
    """

    tool_id: str
    source: str
    reason: str | None = None
    detail: str | None = None


@dataclass(frozen=True)
class Come:
    """A tool of the later run that the earlier one did not keep; ``reason`` tells why it rejected it."""

    tool_id: str
    source: str
    reason: str | None = None


@dataclass(frozen=True)
class Renamed:
    """A tool under another id; ``how`` names the facts that were equal."""

    old: str
    new: str
    source: str
    how: str


@dataclass(frozen=True)
class ToolDiff:
    """Tools added, removed, renamed and changed; changes of a renamed tool stand under its new id."""

    gone: tuple[Gone, ...]
    come: tuple[Come, ...]
    renamed: tuple[Renamed, ...]
    changed: tuple[FieldChange, ...]
    sources: Mapping[str, str]
    """Source of each tool with a change, by id."""

    @property
    def added(self) -> tuple[str, ...]:
        """Ids that are new."""
        return tuple(c.tool_id for c in self.come)

    @property
    def removed(self) -> tuple[str, ...]:
        """Ids that are no longer kept."""
        return tuple(g.tool_id for g in self.gone)

    def by_source(self) -> list[dict[str, Any]]:
        """Counts of each source with a difference; ``rejected`` is a part of ``removed``."""
        found: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for come in self.come:
            found[come.source]["added"] += 1
        for gone in self.gone:
            found[gone.source]["removed"] += 1
            found[gone.source]["rejected"] += gone.reason is not None
        for renamed in self.renamed:
            found[renamed.source]["renamed"] += 1
        for tool_id in {c.tool_id for c in self.changed}:
            found[self.sources[tool_id]]["changed"] += 1
        kinds = ("added", "removed", "rejected", "renamed", "changed")
        return [{"source": s, **{k: found[s][k] for k in kinds}} for s in sorted(found)]

    def by_field(self) -> dict[str, int]:
        """Tools in which each field changed, the most frequent first; nested names are left out."""
        pairs = {(c.tool_id, c.field.split("[", 1)[0]) for c in self.changed}
        return dict(sorted(Counter(f for _, f in pairs).items(), key=lambda kv: (-kv[1], kv[0])))

    def rows(self) -> list[dict[str, Any]]:
        """One row a difference, for a table; long values are cut."""
        rows = [_row("added", c.tool_id, old=f"rejected: {c.reason}" if c.reason else "") for c in self.come]
        rows += [
            _row("removed", g.tool_id, new=f"rejected: {g.reason}" if g.reason else "") for g in self.gone
        ]
        rows += [_row("renamed", r.new, r.how, r.old, r.new) for r in self.renamed]
        rows += [_row("changed", c.tool_id, c.field, c.old or "", c.new or "") for c in self.changed]
        return rows

    def shown(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Rows for a terminal: each kind gets its share of the room, so that no kind hides another."""
        return spread(self.rows(), limit or _SHOWN)

    def as_dict(self) -> dict[str, Any]:
        """The whole difference, JSON-able, nothing cut."""
        return {
            "by_source": self.by_source(),
            "by_field": self.by_field(),
            "added": list(self.added),
            "added_rejected_before": {c.tool_id: c.reason for c in self.come if c.reason},
            "removed": [
                {"id": g.tool_id, "source": g.source, "reason": g.reason, "detail": g.detail}
                for g in self.gone
            ],
            "renamed": [{"old": r.old, "new": r.new, "how": r.how} for r in self.renamed],
            "changed": [
                {"id": c.tool_id, "field": c.field, "change": c.change, "old": c.old, "new": c.new}
                for c in self.changed
            ],
        }

    def line(self) -> str:
        """Counts, and the fields that changed in most tools."""
        fields = ", ".join(f"{f} {n}" for f, n in list(self.by_field().items())[:5])
        tools = len({c.tool_id for c in self.changed})
        counted = {"added": len(self.come), "removed": len(self.gone), "renamed": len(self.renamed)}
        text = ", ".join(f"{n} {what}" for what, n in {**counted, "changed": tools}.items())
        return f"{text} ({fields})" if fields else text


def _row(what: str, tool: str, field: str = "", old: str = "", new: str = "") -> dict[str, Any]:
    def cut(text: str) -> str:
        shown = " ".join(text.split())
        return shown if len(shown) <= _CELL else shown[: _CELL - 1] + "…"

    return {"what": what, "tool": tool, "field": field, "old": cut(old), "new": cut(new)}


def spread(rows: Sequence[dict[str, Any]], room: int) -> list[dict[str, Any]]:
    """At most ``room`` rows, taken from each kind in turn, in the order they had."""
    turns: Counter[str] = Counter()
    order = []
    for place, row in enumerate(rows):
        order.append((turns[row["what"]], place))
        turns[row["what"]] += 1
    kept = sorted(place for _, place in sorted(order)[:room])
    return [rows[place] for place in kept]


def compare(
    old: Iterable[ScoredTool],
    new: Iterable[ScoredTool],
    old_rejects: Iterable[RejectedTool] = (),
    new_rejects: Iterable[RejectedTool] = (),
) -> ToolDiff:
    """Difference of two tool tables, with the rejects of each where they are known."""
    return compare_rows(
        [t.model_dump() for t in old],
        [t.model_dump() for t in new],
        [t.model_dump() for t in old_rejects],
        [t.model_dump() for t in new_rejects],
    )


def compare_rows(
    old: Sequence[Row], new: Sequence[Row], old_rejects: Sequence[Row] = (), new_rejects: Sequence[Row] = ()
) -> ToolDiff:
    """Difference of two tool tables given as rows.

    Raises:
        UserError: the tables hold tools of different granularity.
    """
    check_granularity(old, new)
    before, after = {t["id"]: t for t in old}, {t["id"]: t for t in new}
    lost, was_lost = _rejected(before, new_rejects), _rejected(after, old_rejects)
    out = sorted(before.keys() - after.keys())
    into = sorted(after.keys() - before.keys())
    # What the other crawl saw and rejected under the same id has kept its name: it was not renamed.
    renamed = find_renamed(
        old, new, {i for i in out if i not in lost}, {i for i in into if i not in was_lost}
    )
    taken = {r.old for r in renamed} | {r.new for r in renamed}
    pairs = [(i, before[i], after[i]) for i in before.keys() & after.keys()]
    pairs += [(r.new, before[r.old], after[r.new]) for r in renamed]
    changed = [c for i, a, b in sorted(pairs, key=lambda p: p[0]) for c in field_changes(i, a, b)]
    return ToolDiff(
        gone=tuple(
            Gone(i, before[i]["source"], lost[i]["reason"], lost[i].get("detail"))
            if i in lost
            else Gone(i, before[i]["source"])
            for i in out
            if i not in taken
        ),
        come=tuple(
            Come(i, after[i]["source"], was_lost[i]["reason"] if i in was_lost else None)
            for i in into
            if i not in taken
        ),
        renamed=tuple(renamed),
        changed=tuple(changed),
        sources={c.tool_id: after[c.tool_id]["source"] for c in changed},
    )


def _rejected(tools: Mapping[str, Row], rejects: Sequence[Row]) -> dict[str, Row]:
    """Id of a tool to the reject of the other crawl that is the same tool: by id, else by its own name."""
    by_id = {r["id"]: r for r in rejects}
    by_name = {_own_name_key(r): r for r in rejects if r["name"]}
    found = {i: by_id.get(i) or by_name.get(_own_name_key(t)) for i, t in tools.items()}
    return {i: r for i, r in found.items() if r is not None}


def check_granularity(old: Sequence[Row], new: Sequence[Row]) -> None:
    """Both tables must be of one granularity.

    Raises:
        UserError: they are not; every tool would count as removed and added.
    """
    kinds = [sorted({str(t["granularity"]) for t in tools}) for tools in (old, new)]
    if all(kinds) and kinds[0] != kinds[1]:
        first, second = (", ".join(k) for k in kinds)
        raise UserError(
            f"the runs cannot be compared: the first has granularity {first}, the second {second}",
            remedy="crawl both with the same crawl.granularity",
        )


def find_renamed(old: Sequence[Row], new: Sequence[Row], gone: set[str], come: set[str]) -> list[Renamed]:
    """Tools that are the same under another id.

    A removed and an added tool of one source are one if they share a fact that no other tool of
    either table has: name and description, else the name within the package, else the description
    within package and kind, else the file they were read from.

    Args:
        old: the earlier table.
        new: the later table.
        gone: ids of the earlier table to find again.
        come: ids of the later table they may be.
    """
    found: list[Renamed] = []
    gone, come = set(gone), set(come)
    sources = {t["id"]: t["source"] for t in old}
    keys = (
        ("same name and description", _name_key),
        ("same name in the package", _own_name_key),
        ("same description", _text_key),
        ("same file", _path_key),
    )
    for how, key in keys:
        ours, theirs = _unique(old, key), _unique(new, key)
        for value in sorted(ours.keys() & theirs.keys()):
            one, two = ours[value], theirs[value]
            if one in gone and two in come:
                found.append(Renamed(one, two, sources[one], how))
                gone.remove(one)
                come.remove(two)
    return sorted(found, key=lambda r: r.new)


def _name_key(tool: Row) -> tuple[str, ...] | None:
    return (tool["source"], tool["name"], tool["description"])


def _own_name_key(tool: Row) -> tuple[str, ...] | None:
    """Without a prefix: n8n's lists before 1.79 write the package before the node's name."""
    place = tool["provenance"]["artifact"]
    return (tool["source"], place, tool["name"].removeprefix(f"{place}."))


def _text_key(tool: Row) -> tuple[str, ...] | None:
    place = tool["provenance"]["artifact"]
    return (tool["source"], place, tool["kind"], tool["description"]) if tool["description"] else None


def _path_key(tool: Row) -> tuple[str, ...] | None:
    place = tool["provenance"]
    # A list of all nodes, or a module of many tools, says nothing of any one of them.
    return (tool["source"], place["artifact"], tool["kind"], place["path"]) if place["path"] else None


def _unique(tools: Iterable[Row], key: Any) -> dict[tuple[str, ...], str]:
    """Key to id, for keys that exactly one tool has."""
    found: dict[tuple[str, ...], list[str]] = {}
    for tool in tools:
        if (value := key(tool)) is not None:
            found.setdefault(value, []).append(tool["id"])
    return {value: ids[0] for value, ids in found.items() if len(ids) == 1}


def diff_tools(old: Path, new: Path) -> ToolDiff:
    """Difference of two ``core/tools.parquet`` files, with the rejects that lie beside them.

    Raises:
        UserError: a table is damaged, or the runs are of different granularity.
    """
    return compare_rows(_rows(old), _rows(new), _rows(old.with_name(REJECTS)), _rows(new.with_name(REJECTS)))


def _rows(path: Path) -> list[dict[str, Any]]:
    if path.name == REJECTS:
        if not path.is_file():
            return []
        return read_table(path).select("id", "source", "name", "provenance", "reason", "detail").to_dicts()
    frame: pl.DataFrame = read_table(path)
    lacking = {"id", "source", "name", "description", "kind", "granularity", "provenance"} - set(
        frame.columns
    )
    if lacking:
        raise UserError(
            f"file {path} has no column {', '.join(sorted(lacking))}",
            remedy="it is not a table of tools: name a run that was scored",
        )
    return frame.to_dicts()
