"""ToolBench's own layout: ``instruction/G*_query.json``, ``test_instruction/*.json``, ``retrieval/G*/``.

Facts about the release (OpenBMB/ToolBench, Apache-2.0): a query is a list in places; right APIs are
[tool, api] pairs; ``api_list`` holds the documents of the APIs a query was written for; the retriever's files
number queries and documents anew, so their ids are not those of the queries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ecoagent.retrieval.rows import check_length, parse_value, read_array, read_table
from ecoagent.schema import normalize_query
from ecoagent.settings import UserError

LICENCE = "Apache-2.0"
_KEPT = re.compile(r"[^a-zA-Z0-9_^\u4e00-\u9fa5]")
_RESERVED = frozenset({"from", "class", "return", "false", "true", "id", "and"})


@dataclass(frozen=True)
class Api:
    """One API as ToolBench describes it; ``id`` is ``tool/api`` in standardised names."""

    id: str
    name: str
    description: str
    category: str


@dataclass(frozen=True)
class ToolBenchQuery:
    """One query.

    Attributes:
        id: unique within its release.
        group: G1, G2 or G3.
        gold: standardised ids of its right APIs.
        apis: documents of the APIs beside it; none in the retriever's files.
    """

    id: str
    text: str
    group: str
    gold: tuple[str, ...]
    apis: tuple[Api, ...] = ()


@lru_cache(maxsize=1 << 16)
def standard_name(name: str) -> str:
    """A name as ToolBench writes it into code: lower case, one ``_`` for a run of what is no letter, digit or
    ``^``, none at the ends, ``get_`` before a digit."""
    short = re.sub("_+", "_", _KEPT.sub("_", name)).lower().strip("_")
    return f"get_{short}" if short[:1].isdigit() else short


def api_id(tool: str, api: str) -> str:
    """``tool/api`` in ToolBench's standardised names; an API with a reserved word for a name gets ``is_``."""
    short = standard_name(api)
    return f"{standard_name(tool)}/{'is_' if short in _RESERVED else ''}{short}"


def query_text(value: Any) -> str | None:
    """Text of a query; of a list (paraphrases or sentences) the first that has words."""
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and normalize_query(text):
            return text
    return None


def instruction_files(path: Path) -> dict[str, Path]:
    """Files of queries by key, such as ``instruction/G1`` and ``test_instruction/G1_category``.

    Args:
        path: a release, its data folder, or one of the two folders.
    """
    found: dict[str, Path] = {}
    for folder in (path / "instruction", path / "data" / "instruction", path):
        for file in sorted(folder.glob("G*_query.json")):
            found.setdefault(f"instruction/{file.name.removesuffix('_query.json')}", file)
    for folder in (path / "test_instruction", path / "data" / "test_instruction"):
        for file in sorted(folder.glob("*.json")):
            found.setdefault(f"test_instruction/{file.stem}", file)
    if path.name == "test_instruction" or not found:
        for file in sorted(path.glob("*.json" if path.name == "test_instruction" else "G[0-9]_*.json")):
            found.setdefault(f"test_instruction/{file.stem}", file)
    return found


def retrieval_folders(path: Path) -> dict[str, Path]:
    """Folders of the retriever's files by key, such as ``retrieval/G1``.

    Args:
        path: a release, its data folder, its retrieval folder, or one group of that.
    """
    found: dict[str, Path] = {}
    parents = [p / name for p in (path, path / "data") for name in ("retrieval", "retriever")]
    for folder in [path, *(c for p in [*parents, path] if p.is_dir() for c in sorted(p.iterdir()))]:
        if (folder / "corpus.tsv").is_file():
            found.setdefault(f"retrieval/{folder.resolve().name}", folder)
    return found


def read_instructions(key: str, path: Path) -> Iterator[ToolBenchQuery]:
    """Queries of an instruction file with their right APIs and the documents of their APIs.

    Args:
        key: of ``instruction_files``.

    Raises:
        UserError: an element has no query text, or its APIs are not pairs; file and element are named.
    """
    kind, name = key.split("/", 1)
    group = group_of(key)
    prefix = group if kind == "instruction" else name
    seen: dict[str, int] = {}
    for where, number, row in read_array(path):
        text = query_text(row.get("query"))
        if text is None:
            raise UserError(f"{where}: no query text", remedy="drop the element")
        check_length(text, where, "the query")
        apis = tuple(_api(d, where) for d in _list(row.get("api_list"), where))
        gold = sorted({_gold(pair, where) for pair in _list(row.get("relevant APIs"), where)})
        identifier = f"{prefix}-{row.get('query_id', number)}"
        seen[identifier] = seen.get(identifier, 0) + 1
        if seen[identifier] > 1:
            # The release is not the user's to mend.
            identifier = f"{identifier}#{seen[identifier]}"
        yield ToolBenchQuery(identifier, text, group, tuple(gold), apis)


def retrieval_splits(folder: Path) -> list[str]:
    """Splits of a retrieval folder: those with a file of queries."""
    files = [*folder.glob("*.query.txt"), *folder.glob("*.json")]
    return sorted(
        {f.name.split(".", 1)[0] for f in files if f.name.split(".", 1)[0] in ("train", "dev", "test")}
    )


def read_retrieval(folder: Path, split: str) -> tuple[list[ToolBenchQuery], list[Api]]:
    """Queries of one split and every API of the corpus.

    Documents that differ in their examples only are one API, as are names that are equal once standardised.

    Raises:
        UserError: a row is not what its file promises, or names a query or document that does not exist.
    """
    of_document, apis = _corpus(folder / "corpus.tsv")
    key = f"retrieval/{folder.resolve().name}"
    file = folder / f"{split}.query.txt"
    if not file.is_file():
        return list(read_instructions(key, folder / f"{split}.json")), apis
    texts = read_texts(key, file)
    gold: dict[str, set[str]] = {query: set() for query in texts}
    for where, _, (number, _, document, label, *_rest) in read_table(
        folder / f"qrels.{split}.tsv", 4, quoted=True
    ):
        query = _qid(key, number)
        if query not in texts:
            raise UserError(f"{where}: query {number!r} is not in {file.name}", remedy="drop the row")
        if document not in of_document:
            raise UserError(f"{where}: document {document!r} is not in corpus.tsv", remedy="drop the row")
        if _number(label, where) > 0:
            gold[query].add(of_document[document])
    group = group_of(key)
    queries = [ToolBenchQuery(i, text, group, tuple(sorted(gold[i]))) for i, text in texts.items()]
    return queries, apis


def read_texts(key: str, file: Path) -> dict[str, str]:
    """Texts by id of one file of the retriever's queries, which repeats a query for each of its documents.

    Args:
        key: of ``retrieval_folders``.
        file: ``<split>.query.txt`` or ``<split>.json``.

    Raises:
        UserError: a row has no text, or a number has two.
    """
    if file.suffix == ".json":
        return {query.id: query.text for query in read_instructions(key, file)}
    texts: dict[str, str] = {}
    for where, _, (number, text, *_rest) in read_table(file, 2, quoted=True):
        if not normalize_query(text):
            raise UserError(f"{where}: no query text", remedy="drop the row")
        check_length(text, where, "the query")
        if texts.setdefault(_qid(key, number), text) != text:
            raise UserError(f"{where}: query {number!r} has two texts", remedy="fetch the file again")
    return texts


def merge_apis(apis: Iterable[Api], merged: dict[str, Api]) -> dict[str, Api]:
    """``merged`` with one document for each API: the first, or the first that says something."""
    for api in apis:
        if api.id not in merged or (api.description and not merged[api.id].description):
            merged[api.id] = api
    return merged


def group_of(key: str) -> str:
    """G1, G2 or G3 of a key such as ``test_instruction/G1_category``."""
    return key.split("/", 1)[1].split("_", 1)[0]


def _qid(key: str, number: str) -> str:
    """The retriever's numbers are its own, and say so."""
    return f"{group_of(key)}-qid-{number}"


def _corpus(path: Path) -> tuple[dict[str, str], list[Api]]:
    of_document: dict[str, str] = {}
    found: list[Api] = []
    for where, line, (document, content, *_rest) in read_table(path, 2, quoted=True):
        # Every occurrence of a document is written, under one number.
        if (line == 1 and document == "docid") or document in of_document:
            continue
        api = _api(parse_value(content, f"{where}: the document", remedy="fetch the file again"), where)
        of_document[document] = api.id
        found.append(api)
    merged = merge_apis(found, {})
    return of_document, [merged[i] for i in sorted(merged)]


def _api(row: Any, where: str) -> Api:
    tool, name = (row.get("tool_name"), row.get("api_name")) if isinstance(row, dict) else (None, None)
    if not isinstance(tool, str) or not isinstance(name, str):
        raise UserError(f"{where}: an API without tool_name and api_name", remedy="give ToolBench's own file")
    description, category = row.get("api_description"), row.get("category_name")
    return Api(
        api_id(tool, name),
        f"{tool}: {name}",
        " ".join(description.split()) if isinstance(description, str) else "",
        category if isinstance(category, str) else "",
    )


def _gold(pair: Any, where: str) -> str:
    if not isinstance(pair, list) or len(pair) < 2 or not all(isinstance(p, str) for p in pair[:2]):
        raise UserError(f"{where}: {pair!r} is not [tool, api]", remedy="give ToolBench's own file")
    return api_id(pair[0], pair[1])


def _list(value: Any, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise UserError(f"{where}: APIs are not a list", remedy="give ToolBench's own file")
    return value


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise UserError(f"{where}: label {text!r} is not a number", remedy="write 0 or 1") from error
