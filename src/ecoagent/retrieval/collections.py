"""IR test collections from disk: queries with their right tools, and the tools to choose from.

Read are pairs of ``<set>_queries.jsonl`` and ``<set>_tools.jsonl``, BEIR folders, and ToolBench's own layout.
They are told apart by what is there. Texts stay as they are: they may hold addresses and keys, which is for
whoever publishes them to look for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ecoagent.retrieval.beir import is_beir, qrels_files, read_qrels
from ecoagent.retrieval.rows import check_length, path_kind, read_lines
from ecoagent.retrieval.toolbench import LICENCE as TOOLBENCH_LICENCE
from ecoagent.retrieval.toolbench import (
    Api,
    ToolBenchQuery,
    instruction_files,
    merge_apis,
    read_instructions,
    read_retrieval,
    retrieval_folders,
    retrieval_splits,
)
from ecoagent.schema import normalize_query
from ecoagent.settings import UserError

QUERIES, TOOLS = "_queries.jsonl", "_tools.jsonl"
SET_LICENCES = {
    "toolbench": "Apache-2.0; texts by way of ToolPlanner's data CC BY-NC-SA 4.0",
    "metatool": "MIT",
    "sealtools": "Apache-2.0",
    "toollinkos": "MIT",
    "restbench": "MIT",
    "toolalpaca": "Apache-2.0",
}
"""Licences of the data of the sets known by name; a file of another name has to be looked up by its user."""
TOOLBENCH_ORIGIN = "OpenBMB/ToolBench"
SET_ORIGINS = {
    "toolbench": f"{TOOLBENCH_ORIGIN}, THUNLP-MT/StableToolBench, XiaoMi/toolplanner",
    "metatool": "HowieHwong/MetaTool",
    "sealtools": "fairyshine/Seal-Tools",
    "toollinkos": "EliasLumer/Graph-RAG-Tool-Fusion-ToolLinkOS",
    "restbench": "Yifan-Song793/RestGPT",
    "toolalpaca": "tangqiaoyu/ToolAlpaca",
}
"""Whom a number made with a set known by name has to be attributed to."""


@dataclass(frozen=True)
class CollectionQuery:
    """A query and its right tools, sorted; none = no tool is noted as right.

    Attributes:
        instruction: what the set tells a retriever to do beside the query; empty = nothing.
    """

    id: str
    text: str
    group: str
    gold: tuple[str, ...]
    instruction: str = ""


@dataclass(frozen=True)
class CollectionTool:
    """A tool that may be returned.

    Attributes:
        document: the text retrieval sees, where the set prescribes it; empty = made of the other fields.
    """

    id: str
    name: str
    description: str
    category: str
    document: str = ""


@dataclass(frozen=True)
class TestCollection:
    """Queries and tools, each sorted by id; every gold is a tool.

    Attributes:
        name: of the set.
        licence: of the data; ``unknown`` where nobody said.
        origin: whom it comes from; empty where nobody said.
    """

    __test__ = False

    name: str
    queries: tuple[CollectionQuery, ...]
    tools: tuple[CollectionTool, ...]
    licence: str
    origin: str = ""


@dataclass(frozen=True)
class _Found:
    """A collection in a folder: how it is called and read, and whether it is meant where none is named."""

    name: str
    load: Callable[[], TestCollection]
    meant: bool = True


def load_collection(path: Path, name: str | None = None) -> TestCollection:
    """Read the test collection at a path.

    Args:
        path: a folder with ``<set>_queries.jsonl`` and ``<set>_tools.jsonl``, or one of these files; a BEIR
            folder; a release of ToolBench, its data folder, ``retrieval/``, ``instruction/``,
            ``test_instruction/`` or one group of ``retrieval/``.
        name: chooses among several, by its whole name or the last part of it. Without one the test split of
            the only set is read.

    Raises:
        UserError: nothing of the kind is there, several are and none is named, or a row is not valid (file
            and row are said).
    """
    found = _some(path)
    if name is None:
        chosen = [f for f in found if f.meant] or found
    else:
        chosen = [f for f in found if f.name == name] or [f for f in found if f.name.endswith(f"/{name}")]
    if len(chosen) != 1:
        names = ", ".join(sorted(f.name for f in found))
        how_many = "several collections" if chosen or name is None else f"no collection {name!r}"
        raise UserError(f"{path} holds {how_many}; it has {names}", remedy="name one of them")
    return chosen[0].load()


def collection_at(where: str, name: str | None = None) -> TestCollection:
    """``load_collection`` of ``DIR``, or of ``DIR/SET`` where no such folder is there.

    Raises:
        UserError: see ``load_collection``.
    """
    path = Path(where)
    if name is not None or path_kind(path) is not None or path_kind(path.parent) != "folder":
        return load_collection(path, name)
    try:
        return load_collection(path.parent, path.name)
    except UserError as error:
        raise UserError(f"{path} does not exist, and {error.message}", remedy=error.remedy) from error


def collection_names(path: Path) -> list[str]:
    """Names of the collections at a path that are meant where none is named, sorted.

    Raises:
        UserError: nothing of the kind is there.
    """
    found = _some(path)
    return sorted(f.name for f in [f for f in found if f.meant] or found)


def _some(path: Path) -> list[_Found]:
    if path_kind(path) is None:
        raise UserError(f"{path} does not exist", remedy="give the folder of a test collection")
    found = _find(path)
    if not found:
        raise UserError(
            f"{path} holds no test collection",
            remedy="give a folder with <set>_queries.jsonl and <set>_tools.jsonl, a BEIR folder with "
            "corpus.jsonl, queries.jsonl and qrels/, or a ToolBench release",
        )
    return found


def set_files(folder: Path) -> dict[str, tuple[Path, Path]]:
    """Files of queries and of tools by set; only sets that have both."""
    pairs = {}
    for queries in sorted(folder.glob(f"*{QUERIES}")):
        name = queries.name.removesuffix(QUERIES)
        tools = folder / f"{name}{TOOLS}"
        if name and tools.is_file():
            pairs[name] = (queries, tools)
    return pairs


def _find(path: Path) -> list[_Found]:
    if path.is_file():
        name = path.name.removesuffix(QUERIES).removesuffix(TOOLS)
        pair = set_files(path.parent).get(name)
        return [_Found(name, partial(_load_set, name, *pair))] if pair else []
    found = [_Found(name, partial(_load_set, name, *pair)) for name, pair in set_files(path).items()]
    for folder in [path, *sorted(p for p in path.iterdir() if p.is_dir())]:
        if is_beir(folder) and (folder / "corpus.jsonl").is_file():
            found += _beir_splits(folder, required=folder == path)
    for key, folder in retrieval_folders(path).items():
        for split in retrieval_splits(folder):
            name = key if split == "test" else f"{key}-{split}"
            found.append(_Found(name, partial(_load_retrieval, name, folder, split), split == "test"))
    files = instruction_files(path)
    return found + [_Found(key, partial(_load_instructions, key, files)) for key in files]


def _load_set(name: str, queries_file: Path, tools_file: Path) -> TestCollection:
    tools = []
    for where, _, row in read_lines(tools_file):
        identifier = _text(row, where, "tool_id")
        tools.append(
            (
                where,
                CollectionTool(
                    identifier,
                    _text(row, where, "name", identifier),
                    _text(row, where, "description", ""),
                    _text(row, where, "category", ""),
                ),
            )
        )
    queries = []
    for where, _, row in read_lines(queries_file):
        gold = row.get("gold") or []
        if not isinstance(gold, list) or not all(isinstance(g, str) for g in gold):
            raise UserError(f"{where}: gold is not a list of tool ids", remedy='write "gold": ["…"]')
        identifier, text = _text(row, where, "query_id"), _text(row, where, "query")
        group = _text(row, where, "group", "")
        queries.append((where, CollectionQuery(identifier, text, group, tuple(sorted(set(gold))))))
    return _collection(name, queries, tools, SET_LICENCES.get(name, "unknown"), SET_ORIGINS.get(name, ""))


def _beir_splits(folder: Path, *, required: bool) -> list[_Found]:
    files = qrels_files(folder)
    if not files and required:
        raise UserError(f"{folder} has no qrels/*.tsv", remedy="give the whole BEIR folder")
    name = folder.resolve().name
    first = "test" if "test" in files else next(iter(files), "")
    return [
        _Found(
            name if split == first else f"{name}-{split}",
            partial(_load_beir, name if split == first else f"{name}-{split}", folder, file),
            split == first and (split == "test" or len(files) == 1),
        )
        for split, file in files.items()
    ]


def _load_beir(name: str, folder: Path, qrels: Path) -> TestCollection:
    """The corpus, and the queries that the split judges."""
    tools = []
    for where, _, row in read_lines(folder / "corpus.jsonl"):
        identifier = _text(row, where, "_id")
        extra = row.get("metadata")
        category = extra.get("category") if isinstance(extra, dict) else None
        tools.append(
            (
                where,
                CollectionTool(
                    identifier,
                    _text(row, where, "title", identifier),
                    _text(row, where, "text", ""),
                    category if isinstance(category, str) else "",
                ),
            )
        )
    known = {tool.id for _, tool in tools}
    gold: dict[str, set[str]] = {}
    for where, query, document in read_qrels(qrels):
        if document not in known:
            raise UserError(f"{where}: {document!r} is not in corpus.jsonl", remedy="drop the row")
        gold.setdefault(query, set()).add(document)
    queries = []
    for where, _, row in read_lines(folder / "queries.jsonl"):
        identifier = _text(row, where, "_id")
        if identifier in gold:
            text = _text(row, where, "text")
            queries.append((where, CollectionQuery(identifier, text, "", tuple(sorted(gold[identifier])))))
    absent = sorted(set(gold) - {query.id for _, query in queries})
    if absent:
        raise UserError(
            f"qrels/{qrels.name}: query {absent[0]!r} is not in queries.jsonl", remedy="drop its rows"
        )
    return _collection(name, queries, tools, "unknown")


def _load_retrieval(key: str, folder: Path, split: str) -> TestCollection:
    return _toolbench(key, *read_retrieval(folder, split))


def _load_instructions(key: str, files: dict[str, Path]) -> TestCollection:
    """Queries of one file against the APIs beside every query of the release."""
    apis: dict[str, Api] = {}
    queries: list[ToolBenchQuery] = []
    for other, file in files.items():
        for query in read_instructions(other, file):
            merge_apis(query.apis, apis)
            if other == key:
                queries.append(ToolBenchQuery(query.id, query.text, query.group, query.gold))
    return _toolbench(key, queries, apis.values())


def _toolbench(key: str, queries: Iterable[ToolBenchQuery], apis: Iterable[Api]) -> TestCollection:
    tools = {api.id: CollectionTool(api.id, api.name, api.description, api.category) for api in apis}
    asked = []
    for query in queries:
        for gold in query.gold:
            # A right API that no list of documents describes has its name all the same.
            tools.setdefault(gold, CollectionTool(gold, gold.replace("/", ": ", 1), "", ""))
        asked.append((query.id, CollectionQuery(query.id, query.text, query.group, query.gold)))
    name = f"toolbench-{key.replace('/', '-')}"
    return _collection(name, asked, list(tools.items()), TOOLBENCH_LICENCE, TOOLBENCH_ORIGIN)


def _collection(
    name: str,
    queries: list[tuple[str, CollectionQuery]],
    tools: list[tuple[str, CollectionTool]],
    licence: str,
    origin: str = "",
) -> TestCollection:
    """Sorted and checked: ids are unique, texts have words, golds are tools."""
    known = _unique(tools)
    for where, query in queries:
        if not normalize_query(query.text):
            raise UserError(f"{where}: the query has no words", remedy="drop the row")
        absent = [g for g in query.gold if g not in known]
        if absent:
            raise UserError(f"{where}: gold {absent[0]!r} is not among the tools", remedy="add it or drop it")
    asked = _unique(queries)
    if not asked or not known:
        raise UserError(
            f"collection {name} has no {'tools' if asked else 'queries'}", remedy="give its files whole"
        )
    return TestCollection(
        name, tuple(asked[i] for i in sorted(asked)), tuple(known[i] for i in sorted(known)), licence, origin
    )


_Row = TypeVar("_Row", CollectionQuery, CollectionTool)


def _unique(rows: list[tuple[str, _Row]]) -> dict[str, _Row]:
    found: dict[str, _Row] = {}
    for where, row in rows:
        if row.id in found:
            raise UserError(f"{where}: id {row.id!r} occurs twice", remedy="give every row its own id")
        found[row.id] = row
    return found


def _text(row: dict[str, Any], where: str, key: str, default: str | None = None) -> str:
    """A text of a row; a number is its digits, and nothing is the default where there is one."""
    value = row.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and (value or default is None):
        check_length(value, where, key)
        return value
    if value in (None, "") and default is not None:
        return default
    raise UserError(
        f"{where}: {key} is {'missing' if value is None else 'not a text'}", remedy=f"give {key!r}"
    )
