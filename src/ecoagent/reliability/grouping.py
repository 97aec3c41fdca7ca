"""Near-duplicates of a whole table: keys on disk, comparison in parts that fit in memory."""

from __future__ import annotations

import heapq
import pickle
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ecoagent.reliability.duplicates import ToolKey, duplicate_groups, key_of, text_of_key
from ecoagent.runs import iter_rows, table_groups, table_writer, write_table
from ecoagent.schema import DuplicateRow, NormalizedTool, ToolRecord

COMPARED_TOGETHER = 25_000
"""Tools compared as one set, about 500 MB. A larger table is cut into parts by verb and object."""
PAIRS, GROUPS = "duplicates.parquet", "groups.npy"
_READ = frozenset(
    {"id", "source", "name", "display_name", "description", "kind", "operations", "group_id", "group_name"}
    | {"provenance", "trigger", "tags"}
)
_COLUMNS = [n for n, f in ToolRecord.model_fields.items() if f.is_required() or n in _READ]

Encode = Callable[[list[str]], npt.NDArray[Any]]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Keyed:
    """A tool's row in the table, its key, and the text whose vector is compared."""

    place: int
    key: ToolKey
    text: str


def group_table(path: Path, count: int, encode: Encode, folder: Path) -> None:
    """Write the compared pairs and the groups of a table of normalised tools, sorted by id.

    ``duplicates.parquet`` holds the pairs, sorted; ``groups.npy`` an array of shape (n,): row of the
    smallest id of each tool's group. Tables of more than ``COMPARED_TOGETHER`` tools are cut so that
    tools of one verb and object stay together, or of one service where the name has neither; two
    tools of different parts are then taken to be two.

    Args:
        path: the table.
        count: its rows.
        encode: texts to (n, d) vectors.
        folder: where to write.
    """
    groups = np.arange(count, dtype=np.int64)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".parts-") as name, ExitStack() as opened:
        scratch = Path(name)
        parts = max(1, -(-count // COMPARED_TOGETHER))
        if parts == 1:
            _compare(list(keyed_tools(path)), encode, groups, scratch / "pairs-0.parquet")
        else:
            files = [opened.enter_context((scratch / f"{i}").open("w+b")) for i in range(parts)]
            for tool in keyed_tools(path):
                pickle.dump(tool, files[part_of(tool.key, parts)], protocol=pickle.HIGHEST_PROTOCOL)
            for i, file in enumerate(files):
                file.seek(0)
                _compare(list(_load(file)), encode, groups, scratch / f"pairs-{i}.parquet")
        rows = [iter_rows(scratch / f"pairs-{i}.parquet", DuplicateRow) for i in range(parts)]
        with table_writer(folder / PAIRS, DuplicateRow) as writer:
            for row in heapq.merge(*rows, key=lambda r: (r.tool_id, r.other_id)):
                writer.append(row)
    np.save(folder / GROUPS, groups)


def keyed_tools(path: Path) -> Iterator[Keyed]:
    """The tools of a table in its order; only the columns a key is made of are read."""
    place = 0
    for group in table_groups(path, NormalizedTool, _COLUMNS):
        for batch in group.to_batches(max_chunksize=1000):
            for row in batch.to_pylist():
                record = ToolRecord.model_validate(row)
                yield Keyed(place, key_of(record), text_of_key(record))
                place += 1


def part_of(key: ToolKey, parts: int) -> int:
    """Part a tool is compared in; the same for tools of one name and description."""
    words = (key.verb, *key.objects) if key.verb or key.objects else ("", *key.service)
    return zlib.crc32("\0".join(words).encode()) % parts


def _load(file: Any) -> Iterator[Keyed]:
    while True:
        try:
            yield pickle.load(file)
        except EOFError:
            return


def _compare(tools: Sequence[Keyed], encode: Encode, groups: Places, pairs: Path) -> None:
    """Compare the tools of one part, note their groups, and write its pairs."""

    def vectors_of(places: Sequence[int]) -> npt.NDArray[Any]:
        return encode([tools[p].text for p in places])

    found = duplicate_groups([t.key for t in tools], vectors_of)
    place = {t.key.id: t.place for t in tools}
    for tool in tools:
        groups[tool.place] = place[found.group[tool.key.id]]
    write_table(pairs, found.pairs, DuplicateRow)
