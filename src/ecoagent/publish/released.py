"""The authors' own EcoAgent release as files: ``tools_*.csv``, ``*_pairs.csv``, ``eval_real*.jsonl``.

Facts about it (github.com/Elliotes/EcoAgent, Apache-2.0; its data files are in Git LFS): tools have uid,
name, description, tags, source and reliability_score; pairs have query, tool_uid, label, one file a split,
and were split row by row; its Real queries lie in files of their own. Which spelling a column has is not
promised anywhere, so each has the names below; what a row holds is checked strictly.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from ecoagent.retrieval.rows import read_lines, read_table, read_text
from ecoagent.settings import UserError

FORMAT = "ecoagent-release"
SPLITS = ("train", "val", "test")
_SPELLINGS = {"valid": "val", "validation": "val", "dev": "val", "training": "train", "eval": "val"}
_POINTER = "version https://git-lfs"

TOOL_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "uid": ("uid", "tool_uid", "tool_id", "id", "tool_slug", "slug"),
    "name": ("name", "tool_name", "title"),
    "description": ("description", "tool_description", "desc"),
    "text": ("tool_text", "text"),
    "tags": ("tags", "keywords", "categories"),
    "source": ("source", "platform", "catalog"),
    "url": ("url", "link", "homepage"),
    "reliability": ("reliability_score", "r_static", "static_reliability", "reliability"),
}
PAIR_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "query": ("query", "query_text", "question", "text"),
    "tool": ("tool_uid", "uid", "tool_id", "tool_slug", "tool"),
    "label": ("label", "llm_label", "relevance"),
    "split": ("split",),
    "kind": ("neg_type", "negative_type"),
    "score": ("score", "similarity", "cosine"),
}
REAL_FIELDS: Mapping[str, tuple[str, ...]] = {
    "query": ("query", "query_text", "question", "text"),
    "tool": ("tool_uid", "ground_truth", "tool_uids", "gold", "tool_id", "uid"),
    "label": ("label", "labels", "llm_label"),
}
"""What is read, by our name for it: the spellings of its column, the first that is there."""


@dataclass(frozen=True)
class ReleaseFiles:
    """Files of a release.

    Attributes:
        tools: candidates for the table of tools.
        syn: pairs of EcoAgent-Syn by split; ``None`` where the rows say it.
        real: rows of EcoAgent-Real by split.
        unread: files of the release's kinds that are not read, with why.
    """

    folder: Path
    tools: tuple[Path, ...]
    syn: Mapping[str | None, tuple[Path, ...]]
    real: Mapping[str, tuple[Path, ...]]
    unread: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ReleasedTool:
    """One row of the table of tools; ``reliability`` is none where the release has no score."""

    where: str
    uid: str
    name: str
    description: str
    text: str
    tags: tuple[str, ...]
    source: str
    url: str
    reliability: float | None


@dataclass(frozen=True)
class ReleasedPair:
    """A query and a tool, right or not."""

    where: str
    query: str
    uid: str
    label: int
    split: str
    kind: str = ""
    score: float | None = None


def find_release(folder: Path) -> ReleaseFiles | None:
    """Files of a release below a folder; none if it holds no tools or no pairs."""
    if not folder.is_dir():
        return None
    found = sorted(p for p in folder.rglob("*") if p.is_file() and not _hidden(p.relative_to(folder)))
    tools = tuple(p for p in found if p.name.startswith("tools_") and p.suffix == ".csv")
    pairs = [p for p in found if p.name.endswith("_pairs.csv")]
    if not tools or not pairs:
        return None
    unread: dict[str, str] = {}
    syn: list[Path] = []
    real_pairs: list[Path] = []
    for path in pairs:
        # Files of positives belong to Real, whose pairs no encoder is trained on.
        inside = path.relative_to(folder)
        is_real = any("real" in part.lower() for part in inside.parts[:-1]) or "positive" in path.name
        (real_pairs if is_real or path.name.startswith("eval_real") else syn).append(path)
    by_split: dict[str | None, list[Path]] = {}
    for path in syn:
        by_split.setdefault(_split_of(path.name.removesuffix("_pairs.csv")), []).append(path)
    if any(split is not None for split in by_split):
        for path in by_split.pop(None, []):
            unread[_shown(path, folder)] = "there are files for each split"
    lines = [p for p in found if p.name.startswith("eval_real") and p.suffix == ".jsonl"]
    real: dict[str, list[Path]] = {}
    for path in lines:
        real.setdefault(_split_of(path.stem.removeprefix("eval_real")) or "", []).append(path)
    whole = real.pop("", [])
    if whole and not real:
        real["test"] = whole
    else:
        unread |= {_shown(p, folder): "there are files for each split" for p in whole}
    for path in real_pairs:
        if path.name.startswith("eval_real") and not lines:
            real.setdefault("test", []).append(path)
        else:
            unread[_shown(path, folder)] = "Real is read from eval_real*.jsonl, and never trained on"
    return ReleaseFiles(
        folder,
        tools,
        {split: tuple(paths) for split, paths in by_split.items()},
        {split: tuple(paths) for split, paths in real.items()},
        unread,
    )


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _shown(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _split_of(text: str) -> str | None:
    name = text.strip("_").lower()
    name = _SPELLINGS.get(name, name)
    return name if name in SPLITS else None


def read_tools(files: ReleaseFiles) -> tuple[list[ReleasedTool], Path, dict[str, int]]:
    """The tools, in order of uid; the file they are from; and what was left out, counted.

    Of several tables the one with most of the columns is the catalog. Scores of another file fill in what it
    lacks. A uid that occurs again is passed over, as in the authors' own code.

    Raises:
        UserError: no file has the columns of tools, a row has no uid or no text, or a score is no number.
    """
    headers = {path: _header(path, TOOL_COLUMNS) for path in files.tools}
    tables = [p for p, (there, _) in headers.items() if "uid" in there and ({"name", "text"} & set(there))]
    if not tables:
        path, (_, columns) = next(iter(headers.items()))
        _lacks(path, columns, TOOL_COLUMNS, ("uid", "name"))
    catalog = max(tables, key=lambda p: (len(headers[p][0]), p.name))
    scores: dict[str, float] = {}
    for path, (there, _) in headers.items():
        if path != catalog and {"uid", "reliability"} <= set(there):
            for where, row in _rows(path, TOOL_COLUMNS, ("uid", "reliability")):
                if row["reliability"]:
                    scores.setdefault(row["uid"], _number(row["reliability"], where, "reliability"))
    tools: dict[str, ReleasedTool] = {}
    again = 0
    for where, row in _rows(catalog, TOOL_COLUMNS, ("uid",)):
        uid = row["uid"]
        if not uid:
            raise UserError(f"{where}: the tool has no uid", remedy="drop the row")
        if uid in tools:
            again += 1
            continue
        name, description, text = (row.get(c, "") for c in ("name", "description", "text"))
        if not (name or description or text):
            raise UserError(f"{where}: tool {uid!r} has neither name nor description", remedy="drop the row")
        said = row.get("reliability", "")
        score = _number(said, where, "reliability") if said else scores.get(uid)
        if score is not None and not 0 <= score <= 1:
            raise UserError(f"{where}: reliability {score:g} is not between 0 and 1", remedy="mend the row")
        tools[uid] = ReleasedTool(
            where,
            uid,
            name,
            description,
            text,
            _list(row.get("tags", "")),
            row.get("source", ""),
            row.get("url", ""),
            score,
        )
    if not tools:
        raise UserError(f"{catalog} has no rows", remedy="give the release whole")
    return [tools[uid] for uid in sorted(tools)], catalog, {"repeated_tools": again} if again else {}


def read_pairs(files: ReleaseFiles) -> Iterator[ReleasedPair]:
    """Pairs of EcoAgent-Syn, as released.

    Raises:
        UserError: a column is missing, or a row has no query, no tool, no label of 0 or 1, or no split.
    """
    for split, paths in files.syn.items():
        needed = ("query", "tool", "label") if split is not None else ("query", "tool", "label", "split")
        for path in paths:
            for where, row in _rows(path, PAIR_COLUMNS, needed):
                named = split or _split_of(row["split"])
                if named is None:
                    raise UserError(
                        f"{where}: split {row['split']!r} is not known", remedy="write train, val or test"
                    )
                score = row.get("score", "")
                yield ReleasedPair(
                    where,
                    _given(row["query"], where, "query"),
                    _given(row["tool"], where, "tool"),
                    _label(row["label"], where),
                    named,
                    row.get("kind", ""),
                    _number(score, where, "score") if score else None,
                )


def read_real(files: ReleaseFiles) -> Iterator[ReleasedPair]:
    """Judgements of EcoAgent-Real: a row a pair, or a row a query with its right tools.

    Raises:
        UserError: a field is missing, or a row is not what its file promises.
    """
    for split, paths in files.real.items():
        for path in paths:
            if path.suffix == ".csv":
                for where, row in _rows(path, PAIR_COLUMNS, ("query", "tool", "label")):
                    query, uid = _given(row["query"], where, "query"), _given(row["tool"], where, "tool")
                    yield ReleasedPair(where, query, uid, _label(row["label"], where), split)
                continue
            _no_pointer(path)
            for where, _, line in read_lines(path):
                yield from _real_row(line, where, split)


def _real_row(line: Mapping[str, Any], where: str, split: str) -> Iterator[ReleasedPair]:
    keys = {str(k).strip().lower(): v for k, v in line.items()}
    found = {name: next((keys[a] for a in REAL_FIELDS[name] if a in keys), None) for name in REAL_FIELDS}
    if found["query"] is None or found["tool"] is None:
        lacking = [n for n in ("query", "tool") if found[n] is None]
        raise UserError(
            f"{where}: no {' and no '.join(' or '.join(REAL_FIELDS[n]) for n in lacking)}; "
            f"it has {', '.join(sorted(keys))}",
            remedy="give eval_real*.jsonl as released: query, tool_uid, label",
        )
    query = _given(found["query"], where, "query")
    tools, labels = found["tool"], found["label"]
    listed = tools if isinstance(tools, list) else [tools]
    given = labels if isinstance(labels, list) else [1 if labels is None else labels] * len(listed)
    if len(given) != len(listed):
        raise UserError(f"{where}: {len(listed)} tools but {len(given)} labels", remedy="mend the row")
    if not listed:
        yield ReleasedPair(where, query, "", 0, split)
    for tool, label in zip(listed, given, strict=True):
        yield ReleasedPair(where, query, _given(tool, where, "tool"), _label(label, where), split)


def _header(path: Path, columns: Mapping[str, Sequence[str]]) -> tuple[dict[str, int], list[str]]:
    """Place of each column that is there, by our name for it, and the columns as the file has them."""
    _no_pointer(path)
    for _, _, cells in read_table(path, 1, quoted=True, delimiter=","):
        there = [cell.strip() for cell in cells]
        lowered = [name.lower() for name in there]
        places = {
            name: next((lowered.index(a) for a in spellings if a in lowered), -1)
            for name, spellings in columns.items()
        }
        return {name: place for name, place in places.items() if place >= 0}, there
    raise UserError(f"{path} is empty", remedy="give the release whole")


def _rows(
    path: Path, columns: Mapping[str, Sequence[str]], needed: Sequence[str]
) -> Iterator[tuple[str, dict[str, str]]]:
    """Where, and cells by our name for their column."""
    places, there = _header(path, columns)
    if any(name not in places for name in needed):
        _lacks(path, there, columns, needed)
    rows = read_table(path, 1, quoted=True, delimiter=",")
    next(rows)
    for where, _, cells in rows:
        if len(cells) != len(there):
            raise UserError(
                f"{where}: {len(cells)} cells, but {len(there)} columns", remedy="mend the row's quotes"
            )
        yield where, {name: cells[place].strip() for name, place in places.items()}


def _lacks(
    path: Path, there: Sequence[str], columns: Mapping[str, Sequence[str]], needed: Sequence[str]
) -> NoReturn:
    lowered = {name.lower() for name in there}
    missing = [name for name in needed if not lowered & set(columns[name])]
    expected = "; ".join(f"{name}: {' or '.join(columns[name])}" for name in missing)
    raise UserError(
        f"{path} has the columns {', '.join(there)}, and none for {', '.join(missing)}",
        remedy=f"name a column ({expected})",
    )


def _no_pointer(path: Path) -> None:
    """Refuse what Git LFS leaves in a clone without it."""
    if path.stat().st_size < 1024 and read_text(path).startswith(_POINTER):
        raise UserError(
            f"{path} is a pointer of Git LFS, not the file", remedy="run `git lfs pull` in the clone"
        )


def _given(value: Any, where: str, what: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{where}: no {what}", remedy="drop the row")
    return value.strip()


def _label(value: Any, where: str) -> int:
    known = {"1": 1, "1.0": 1, "true": 1, "0": 0, "0.0": 0, "false": 0}
    found = known.get(str(value).strip().lower())
    if found is None:
        raise UserError(f"{where}: label {value!r} is neither 0 nor 1", remedy="write 0 or 1")
    return found


def _number(text: str, where: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if value != value or value in (float("inf"), float("-inf")):
        raise UserError(f"{where}: {what} {text!r} is not a number", remedy="mend the row")
    return value


def _list(text: str) -> tuple[str, ...]:
    """Tags: a list as JSON or Python writes it, or words set apart by commas, semicolons or bars."""
    values: Any = None
    if text.startswith("["):
        for read in (json.loads, ast.literal_eval):
            try:
                values = read(text)
                break
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
    if not isinstance(values, list):
        values = text.strip("[]").replace(";", ",").replace("|", ",").split(",")
    return tuple(dict.fromkeys(str(v).strip() for v in values if str(v).strip()))
