"""Columns of the table of normalised tools that scoring needs, a row group in memory at a time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ecoagent.reliability.score import shown_name
from ecoagent.runs import table_groups
from ecoagent.schema import NormalizedTool

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Measured:
    """Lengths and sources of n tools, in the order of the table.

    Attributes:
        descriptions: (n,) characters of the description.
        tags: (n,) characters of the tags joined by a blank.
        sources: source of each.
    """

    descriptions: Integers
    tags: Integers
    sources: list[str]


def measure(path: Path) -> Measured:
    """What Eq. 5 asks of every tool but its cosine.

    Raises:
        UserError: the table is missing, damaged, or lacks a column.
    """
    descriptions, tags, sources = [], [], []
    known: dict[str, str] = {}
    for group in table_groups(path, NormalizedTool, ("description", "tags", "source")):
        descriptions.append(_integers(pc.utf8_length(group["description"])))
        tags.append(joined_lengths(group["tags"]))
        # One string object a source, not one a tool.
        sources += [known.setdefault(s, s) for s in group["source"].to_pylist()]
    return Measured(_joined(descriptions), _joined(tags), sources)


def joined_lengths(column: pa.ChunkedArray) -> Integers:
    """(n,) characters of each list of texts joined by a blank."""
    counts = _integers(pc.fill_null(pc.list_value_length(column), 0))
    ends = np.cumsum(counts)
    letters = np.concatenate([[0], np.cumsum(_integers(pc.utf8_length(pc.list_flatten(column))))])
    return np.asarray(letters[ends] - letters[ends - counts] + np.maximum(counts - 1, 0), dtype=np.int64)


def names_and_descriptions(path: Path, start: int, stop: int) -> tuple[list[str], list[str]]:
    """The two texts Eq. 4 compares, of the tools in rows ``start`` to ``stop``."""
    names: list[str] = []
    descriptions: list[str] = []
    columns = ("name", "display_name", "description")
    for group in table_groups(path, NormalizedTool, columns, start=start, stop=stop):
        pairs = zip(group["name"].to_pylist(), group["display_name"].to_pylist(), strict=True)
        names += [shown_name(name, display) for name, display in pairs]
        descriptions += group["description"].to_pylist()
    return names, descriptions


def _integers(column: pa.ChunkedArray) -> Integers:
    return np.asarray(column.to_numpy(), dtype=np.int64)


def _joined(parts: list[Integers]) -> Integers:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
