"""Request sets of others on disk, told apart by what is there.

In this order: ``<set>_queries.jsonl`` beside ``<set>_tools.jsonl``, BEIR's queries.jsonl, ToolBench's
layout. Texts stay as they are; whoever publishes them looks for addresses and keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ecoagent.labeling.rows import RequestRow, own_gold, said_language
from ecoagent.retrieval.beir import is_beir, qrels_files, read_qrels
from ecoagent.retrieval.collections import QUERIES, SET_LICENCES, TOOLS
from ecoagent.retrieval.rows import path_kind, read_lines
from ecoagent.retrieval.toolbench import (
    LICENCE,
    group_of,
    instruction_files,
    query_text,
    read_instructions,
    read_texts,
    retrieval_folders,
    retrieval_splits,
)
from ecoagent.settings import UserError

TOOLPLANNER_LICENCE = "CC-BY-NC-SA-4.0"


@dataclass(frozen=True)
class Source:
    """A request set on disk.

    Attributes:
        kind: its layout; ``lines`` are a user's own JSON lines, read by ``requests``.
        name: written as origin of the queries.
        files: what is read, by the name the layout gives it.
    """

    kind: Literal["lines", "set", "beir", "instructions", "retrieval"]
    name: str
    files: tuple[tuple[str, Path], ...]


def find_source(path: Path) -> Source:
    """What a file or folder holds.

    A release of ToolBench is read from ``instruction/``, else ``test_instruction/``, else the retriever's
    files: the later two repeat queries of the first. Give one of these folders to read it.

    Raises:
        UserError: nothing is there, or several sets are.
    """
    kind_of_path = path_kind(path)
    if kind_of_path == "file":
        return _file(path)
    if kind_of_path is None:
        raise UserError(
            f"query file {path} does not exist", remedy="set labeling.queries to a file or folder"
        )
    sets = sorted(path.glob(f"*{QUERIES}"))
    if len(sets) > 1:
        raise UserError(
            f"{path} holds several request sets: {', '.join(f.name for f in sets)}",
            remedy="set labeling.queries to one of the files",
        )
    if sets:
        return _file(sets[0])
    if is_beir(path):
        return _beir(path, path / "queries.jsonl")
    files = instruction_files(path)
    for kind in ("instruction/", "test_instruction/"):
        chosen = tuple((key, file) for key, file in files.items() if key.startswith(kind))
        if chosen:
            return Source("instructions", "toolbench", chosen)
    folders = retrieval_folders(path)
    if folders:
        return Source("retrieval", "toolbench", _retrieval_files(folders))
    raise UserError(
        f"{path} has no instruction/G*_query.json, test_instruction/*.json, retrieval/G*/, queries.jsonl or "
        "*_queries.jsonl",
        remedy="give the data folder of a ToolBench release, a BEIR folder or a file",
    )


def read_source(source: Source) -> Iterator[RequestRow]:
    """Requests of a foreign set.

    Raises:
        UserError: a row is not valid; file and row are said.
    """
    if source.kind == "set":
        yield from _read_set(source)
    elif source.kind == "beir":
        yield from _read_beir(source)
    elif source.kind == "instructions":
        for key, file in source.files:
            for query in read_instructions(key, file):
                yield RequestRow(
                    f"{file.name} query {query.id}", query.id, query.text, (), query.group, LICENCE
                )
    else:
        seen = set()
        for key, file in source.files:
            for identifier, text in read_texts(key, file).items():
                # A query may be in both splits: it has one number in either.
                if identifier not in seen:
                    seen.add(identifier)
                    where = f"{file.name} query {identifier}"
                    yield RequestRow(where, identifier, text, (), group_of(key), LICENCE)


def _file(path: Path) -> Source:
    if path.name.endswith(QUERIES):
        name = path.name.removesuffix(QUERIES)
        # A user's own file may be called so; beside a file of tools its golds name those tools.
        if (path.parent / f"{name}{TOOLS}").is_file():
            return Source("set", name, ((name, path),))
    if path.name == "queries.jsonl" and (path.parent / "corpus.jsonl").is_file():
        return _beir(path.parent, path)
    return Source("lines", path.stem, (("", path),))


def _beir(folder: Path, queries: Path) -> Source:
    files = (("queries", queries), *(("qrels", file) for file in qrels_files(folder).values()))
    return Source("beir", folder.resolve().name, files)


def _retrieval_files(folders: dict[str, Path]) -> tuple[tuple[str, Path], ...]:
    files = []
    for key, folder in folders.items():
        for split in retrieval_splits(folder):
            text = folder / f"{split}.query.txt"
            files.append((key, text if text.is_file() else folder / f"{split}.json"))
    return tuple(files)


def _read_set(source: Source) -> Iterator[RequestRow]:
    for where, number, row in read_lines(source.files[0][1]):
        text = query_text(row.get("query", row.get("text")))
        if text is None:
            raise UserError(f"{where}: text: the text has no words", remedy="drop the row")
        gold, group = row.get("gold"), row.get("group")
        yield RequestRow(
            where,
            str(row.get("query_id", f"row-{number:06d}")),
            text,
            own_gold(g for g in gold if isinstance(g, str)) if isinstance(gold, list) else (),
            group if isinstance(group, str) else "",
            _licence(source.name, row),
            said_language(row),
        )


def _licence(name: str, row: dict[str, Any]) -> str:
    for key in ("licence", "license"):
        if isinstance(row.get(key), str) and row[key]:
            return str(row[key])
    if name == "toolbench":
        ways = row.get("sources")
        by_toolplanner = isinstance(ways, list) and any(str(w).startswith("toolplanner") for w in ways)
        return TOOLPLANNER_LICENCE if by_toolplanner else LICENCE
    return SET_LICENCES.get(name, "unknown")


def _read_beir(source: Source) -> Iterator[RequestRow]:
    gold: dict[str, set[str]] = {}
    for kind, file in source.files:
        if kind == "qrels":
            for _, query, document in read_qrels(file):
                gold.setdefault(query, set()).add(document)
    for where, number, row in read_lines(source.files[0][1]):
        text = query_text(row.get("text"))
        if text is None:
            raise UserError(f"{where}: text: the text has no words", remedy="drop the row")
        identifier = str(row.get("_id", f"row-{number:06d}"))
        golds = own_gold(gold.get(identifier, ()))
        yield RequestRow(where, identifier, text, golds, language=said_language(row))
