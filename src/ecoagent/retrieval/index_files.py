"""A ``ToolIndex`` on disk. ``index.json`` names the files it is made of and is replaced last.

Whoever reads finds the earlier index or the later one, never half of each; the files of the earlier one
go afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ecoagent.retrieval.index import ToolIndex, new_graph
from ecoagent.runs import canonical_json, read_json, read_object, sha256_file, temporary_sibling, write_json
from ecoagent.settings import IndexSettings, UserError

FORMAT = 1
POINTER = "index.json"
_ANEW = "build it anew with `ecoagent index build`"
_TRIES = 3
_STEMS = frozenset({"vectors", "ids", "graph", "tools"})
"""What files of an index are called before their sum; nothing else in the folder is touched."""


@dataclass(frozen=True)
class LoadedIndex:
    """An index with what was saved beside it."""

    index: ToolIndex
    about: Mapping[str, Any]
    """What its maker wrote about it."""
    extra: Mapping[str, Path]
    """Further files by name."""


def save_index(
    index: ToolIndex,
    folder: Path,
    *,
    about: Mapping[str, Any] | None = None,
    extra: Mapping[str, Callable[[Path], object]] | None = None,
) -> Path:
    """Write the index, its graph if it has one, and further files; returns the pointer.

    Args:
        about: facts to keep with it, JSON values.
        extra: name to what writes a file at the path it is given.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows, ids = index.rows(), index.slots()
    writers: dict[str, Callable[[Path], object]] = {
        # Through a handle: given a name, numpy puts .npy behind it.
        "vectors.npy": lambda path: _save_array(path, rows),
        "ids.json": lambda path: path.write_text(canonical_json(ids), "utf-8"),
    }
    if index.graph is not None:
        graph = index.graph
        writers["graph.usearch"] = lambda path: graph.save(str(path))
    files = {name: _put(folder, name, write) for name, write in (writers | dict(extra or {})).items()}
    settings = index.settings
    pointer = write_json(
        folder / POINTER,
        {
            "format": FORMAT,
            "dim": index.dim,
            "tools": len(index),
            "about": dict(about or {}),
            "files": files,
            "graph": {"connectivity": settings.connectivity, "expansion_add": settings.expansion_add},
        },
    )
    kept = {entry["file"] for entry in files.values()} | {POINTER}
    for stale in folder.iterdir():
        if stale.is_file() and stale.name not in kept and stale.name.partition("-")[0] in _STEMS:
            stale.unlink(missing_ok=True)
    return pointer


def load_index(folder: Path, settings: IndexSettings | None = None) -> LoadedIndex:
    """Read an index back; its graph answers as before it was saved.

    Raises:
        UserError: there is none, or a file is damaged; it is named.
    """
    for left in reversed(range(_TRIES)):
        try:
            return _load(folder, settings or IndexSettings())
        except FileNotFoundError as error:
            # Saved anew between the pointer and its files: the new pointer names new ones.
            if not left:
                raise UserError(
                    f"{folder / POINTER} names {error.filename}, which is not there", remedy=_ANEW
                ) from error
    raise AssertionError("unreachable")


def _load(folder: Path, settings: IndexSettings) -> LoadedIndex:
    path = folder / POINTER
    if not path.is_file():
        raise UserError(f"there is no index in {folder}", remedy="make one with `ecoagent index build`")
    found = read_object(
        path, {"format": int, "dim": int, "files": dict, "about": dict, "graph": dict}, remedy=_ANEW
    )
    if found["format"] != FORMAT:
        raise UserError(f"{path} is of format {found['format']}, not {FORMAT}", remedy=_ANEW)
    files = {name: _checked(folder, name, entry) for name, entry in found["files"].items()}
    if not {"vectors.npy", "ids.json"} <= files.keys():
        raise UserError(f"{path} names no vectors", remedy=_ANEW)
    vectors = np.load(files["vectors.npy"], allow_pickle=False)
    ids = read_ids(files["ids.json"])
    graph = None
    if "graph.usearch" in files:
        # The graph's own form goes with it; how far a search looks is this run's.
        graph = new_graph(found["dim"], settings.model_copy(update=found["graph"]))
        graph.load(str(files["graph.usearch"]))
        graph.expansion_search = settings.expansion_search
    index = ToolIndex.restore(found["dim"], ids, vectors, graph, settings)
    extra = {n: p for n, p in files.items() if n not in ("vectors.npy", "ids.json", "graph.usearch")}
    return LoadedIndex(index, found["about"], extra)


def read_ids(path: Path) -> list[str | None]:
    """Ids in the order of the rows; none = no tool there."""
    found = read_json(path)
    if not isinstance(found, list) or not all(i is None or isinstance(i, str) for i in found):
        raise UserError(f"{path} is no list of tool ids", remedy=_ANEW)
    return found


def _save_array(path: Path, rows: Any) -> None:
    with path.open("wb") as handle:
        np.save(handle, rows, allow_pickle=False)


def _put(folder: Path, name: str, write: Callable[[Path], object]) -> dict[str, str]:
    """Write one file under a name that holds its sum."""
    temporary = temporary_sibling(folder / name)
    try:
        write(temporary)
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        total = sha256_file(temporary)
        stem, _, ending = name.partition(".")
        final = folder / f"{stem}-{total[:16]}.{ending}"
        temporary.replace(final)
    finally:
        temporary.unlink(missing_ok=True)
    return {"file": final.name, "sha256": total}


def _checked(folder: Path, name: str, entry: Any) -> Path:
    if not isinstance(entry, dict) or not isinstance(entry.get("file"), str):
        raise UserError(f"{folder / POINTER}: {name} names no file", remedy=_ANEW)
    path = folder / Path(entry["file"]).name
    if sha256_file(path) != entry.get("sha256"):
        raise UserError(f"{path} is damaged: its SHA-256 is another", remedy=_ANEW)
    return path
