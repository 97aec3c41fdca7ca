"""Tools that a user brings to an index: JSON lines or Parquet, in the schema of tools or as texts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ecoagent.crawlers.normalize import OPERATIONS_IN_TEXT
from ecoagent.reliability.score import shown_name
from ecoagent.retrieval.rows import read_lines
from ecoagent.schema import tool_text
from ecoagent.settings import UserError

_FORM = "give an id and either a tool_text, or a name and a description"


@dataclass(frozen=True)
class NewTool:
    """A tool to add. Without name and description (a text alone) it has no reliability."""

    id: str
    tool_text: str
    name: str | None = None
    description: str | None = None
    source: str = ""
    tags: tuple[str, ...] = ()


def read_new_tools(path: Path, limit: int | None = None) -> list[NewTool]:
    """Tools of a JSON lines or Parquet file.

    A row has an ``id`` and either a ``tool_text``, or ``name`` and ``description`` with, where there are
    any, ``display_name``, ``group_name``, ``operations`` (texts, or objects with a name), ``tags`` and
    ``source``. Further columns are left alone, so that a run's own table is read as it is.

    Raises:
        UserError: the file cannot be read, or a row lacks what it needs; file and row are named.
    """
    found: dict[str, NewTool] = {}
    for where, row in _rows(path):
        tool = _new_tool(where, row)
        if tool.id in found:
            raise UserError(f"{where}: id {tool.id!r} occurs twice", remedy="give every row its own id")
        found[tool.id] = tool
    if not found:
        raise UserError(f"{path} holds no tool", remedy=_FORM)
    return list(found.values())[:limit]


def _rows(path: Path) -> Iterable[tuple[str, dict[str, Any]]]:
    if path.suffix == ".parquet":
        try:
            table = pq.read_table(path)
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read as Parquet", remedy="give a whole file") from error
        for number, row in enumerate(table.to_pylist(), start=1):
            yield f"{path.name} row {number}", row
        return
    for where, _, row in read_lines(path):
        yield where, row


def _new_tool(where: str, row: dict[str, Any]) -> NewTool:
    def text(key: str) -> str | None:
        value = row.get(key)
        if value is not None and not isinstance(value, str):
            raise UserError(f"{where}: {key} is not a text", remedy=_FORM)
        return value.strip() if value and value.strip() else None

    def texts(key: str) -> tuple[str, ...]:
        value = row.get(key) or ()
        named = [v.get("name") if isinstance(v, dict) else v for v in value] if _listed(value) else [None]
        if not all(isinstance(v, str) for v in named):
            raise UserError(f"{where}: {key} is no list of texts", remedy=f"write {key!r} as a list")
        return tuple(str(v) for v in named)

    identifier, whole, name, about = text("id"), text("tool_text"), text("name"), text("description")
    if identifier is None or (whole is None and (name is None or about is None)):
        missing = "id" if identifier is None else "tool_text" if name is None else "description"
        raise UserError(f"{where}: {missing} is missing", remedy=_FORM)
    shown = None if name is None else shown_name(name, text("display_name"))
    tags = texts("tags")
    if whole is None:
        whole = tool_text(
            str(shown),
            str(about),
            group=text("group_name"),
            operations=texts("operations")[:OPERATIONS_IN_TEXT],
            tags=tags,
        )
    return NewTool(identifier, whole, shown, about, text("source") or "", tags)


def _listed(value: Any) -> bool:
    return isinstance(value, list | tuple)
