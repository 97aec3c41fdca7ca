"""The tables that training and evaluation read, whichever build or data set they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from ecoagent.evaluation.clustered import tool_clusters
from ecoagent.retrieval import TextSet
from ecoagent.runs import read_rows, read_table
from ecoagent.schema import PairRow, QrelRow, QueryRow
from ecoagent.settings import UserError

SETS: tuple[str, ...] = ("syn", "real")
_TOOL_COLUMNS = ("id", "tool_text", "duplicate_group", "r_static")


@dataclass(frozen=True)
class EvalData:
    """Tools, queries, golds and pairs of one data set."""

    tools: TextSet
    """Every tool with its tool_text, by id."""
    groups: Mapping[str, str]
    """Tool to duplicate group."""
    r_static: Mapping[str, float]
    """Tool to metadata reliability (Eq. 5)."""
    queries: Mapping[tuple[str, str], TextSet]
    """(set, split) to its queries, by id."""
    golds: Mapping[str, frozenset[str]]
    """Query to its golds, completed by the tools that are the same as one of them."""
    pairs: Sequence[PairRow]
    """Training pairs of EcoAgent-Syn, every split."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Query to the tool it was generated for; judged requests have none."""

    @property
    def clusters(self) -> dict[str, str]:
        """Judged query to the tool it counts under in intervals and tests, see ``tool_clusters``."""
        return tool_clusters(self.golds, self.groups, self.sources)

    @property
    def tool_texts(self) -> dict[str, str]:
        """Tool to tool_text."""
        return dict(zip(self.tools.ids, self.tools.texts, strict=True))

    @property
    def query_texts(self) -> dict[str, str]:
        """Query to text, all sets and splits."""
        return {i: t for found in self.queries.values() for i, t in zip(found.ids, found.texts, strict=True)}

    def judged(self, set_name: str, split: str, limit: int | None = None) -> TextSet:
        """Queries of a split that have a gold; the first ``limit`` by id, all if none."""
        found = self.queries.get((set_name, split), TextSet((), ()))
        kept = [(i, text) for i, text in zip(found.ids, found.texts, strict=True) if self.golds.get(i)][
            :limit
        ]
        return TextSet(tuple(i for i, _ in kept), tuple(text for _, text in kept))


def load_core(core: Path, *, need_pairs: bool = True) -> EvalData:
    """The core tables of a run. EcoAgent-Real may be missing, EcoAgent-Syn and the tools may not.

    Raises:
        UserError: a table is missing or its rows do not belong together.
    """
    tools = _tools(core / "tools.parquet")
    queries: list[QueryRow] = []
    qrels: list[QrelRow] = []
    for set_name in SETS:
        path = core / f"{set_name}_queries.parquet"
        if set_name == "syn" or path.is_file():
            queries += read_rows(_existing(path), QueryRow)
            qrels += read_rows(_existing(core / f"{set_name}_qrels.parquet"), QrelRow)
    pairs = read_rows(_existing(core / "syn_pairs.parquet"), PairRow) if need_pairs else []
    groups = dict(zip(tools["id"], tools["duplicate_group"], strict=True))
    return EvalData(
        TextSet(tuple(tools["id"]), tuple(tools["tool_text"])),
        groups,
        dict(zip(tools["id"], tools["r_static"], strict=True)),
        _by_split(queries),
        gold_tools(qrels, groups),
        pairs,
        {row.query_id: row.source_tool_id for row in queries if row.source_tool_id},
    )


def gold_tools(qrels: Sequence[QrelRow], groups: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Query to golds; a gold's duplicate group counts as a whole, listed in the qrels or not.

    Raises:
        UserError: a judgement names a tool that is not in the tools.
    """
    members: dict[str, set[str]] = {}
    for tool, group in groups.items():
        members.setdefault(group, set()).add(tool)
    golds: dict[str, set[str]] = {}
    for row in qrels:
        if row.grade < 1:
            continue
        if row.tool_id not in groups:
            raise UserError(
                f"qrels of {row.query_id!r} name tool {row.tool_id!r}, which is not in the tools",
                remedy="label or synthesize again, so that the tables belong together",
            )
        golds.setdefault(row.query_id, set()).update(members[groups[row.tool_id]])
    return {query: frozenset(found) for query, found in sorted(golds.items())}


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise UserError(f"{path} is missing", remedy="run `ecoagent build`, or give a complete data set")
    return path


def _tools(path: Path) -> pl.DataFrame:
    table = read_table(_existing(path))
    missing = [column for column in _TOOL_COLUMNS if column not in table.columns]
    if missing:
        raise UserError(f"{path} lacks column {missing[0]!r}", remedy="score the tools again")
    table = table.select(_TOOL_COLUMNS).sort("id")
    without = table.filter(pl.col("tool_text").is_null() | (pl.col("tool_text") == ""))
    if len(without):
        raise UserError(
            f"{path}: {len(without)} tools have no text, the first is {without['id'][0]!r}",
            remedy="fill withheld texts in from a crawl of your own with `ecoagent rehydrate`",
        )
    return table


def _by_split(queries: Sequence[QueryRow]) -> dict[tuple[str, str], TextSet]:
    found: dict[tuple[str, str], list[QueryRow]] = {}
    for row in sorted(queries, key=lambda row: row.query_id):
        found.setdefault((row.set, row.split), []).append(row)
    return {
        key: TextSet(tuple(r.query_id for r in rows), tuple(r.text for r in rows))
        for key, rows in sorted(found.items())
    }
