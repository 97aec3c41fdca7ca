"""ToolRet from the Hub: 35 sets of queries over one pool of 44,453 tools.

``hub:mangopy/ToolRet-Queries[/CONFIG][@REVISION]``: config = set, split ``queries``, columns id, query,
instruction, and labels, a JSON string of ``[{id, doc, relevance}]``. The tools are in the repository beside
it, whose name ends in ``-Tools``: configs web, code and customized, split ``tools``, columns id and
documentation. Whichever set is asked, every query chooses among the tools of all configs, as in ToolRet's own
evaluation.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from ecoagent.labeling.hub import PREFIX, HubSet, hub_configs, hub_licence, hub_set, open_hub
from ecoagent.retrieval.collections import CollectionQuery, CollectionTool, TestCollection
from ecoagent.retrieval.rows import check_length, parse_value
from ecoagent.schema import normalize_query
from ecoagent.settings import UserError

QUERIES, TOOLS = "-Queries", "-Tools"
TOOL_SPLITS = ("tools",)
LONGEST_DOCUMENT = 20_000
"""Characters of a tool's documentation that are kept: an encoder reads some 2,000 of them."""


@dataclass(frozen=True)
class HubCollection:
    """A set of the Hub, and how many of its golds are no tool of the pool.

    Attributes:
        unknown_golds: golds that no ranker can find; they count as missed, as in ToolRet's evaluation.
    """

    collection: TestCollection
    unknown_golds: int


def is_hub(where: str) -> bool:
    """Whether a benchmark is named on the Hub, not by a path."""
    return where.startswith(PREFIX)


def load_hub_collections(where: str, names: list[str] | None = None) -> list[HubCollection]:
    """The sets of a repository of queries with the tools of the repository beside it.

    Args:
        where: ``hub:ORG/NAME-Queries[/CONFIG][@REVISION]``; without a config, every one.
        names: configs, where ``where`` names none.

    Raises:
        UserError: the name has another form, a repository cannot be reached or lacks a column, or a row is
            not valid (set and row are said).
    """
    wanted = hub_set(where)
    if not wanted.repo.endswith(QUERIES):
        raise UserError(
            f"{where} is no repository of queries with its tools beside it",
            remedy="name a repository like hub:mangopy/ToolRet-Queries, or give a folder",
        )
    base = wanted.repo.removesuffix(QUERIES)
    there = [wanted.config] if wanted.config else hub_configs(wanted)
    chosen = names or there
    for name in sorted(set(chosen) - set(there)):
        raise UserError(
            f"{where} has no config {name!r}; it has {', '.join(there)}", remedy="name one of them"
        )
    tools = _tools(HubSet(base + TOOLS))
    known = {tool.id for tool in tools}
    licence = ", ".join(dict.fromkeys((hub_licence(wanted.repo), hub_licence(base + TOOLS))))
    short = base.rsplit("/", 1)[-1].lower()
    found = []
    for name in sorted(set(chosen)):
        queries = _queries(replace(wanted, config=name))
        unknown = sum(gold not in known for query in queries for gold in query.gold)
        found.append(
            HubCollection(
                TestCollection(f"{short}-{name}", queries, tools, licence, f"{wanted.repo}, {base}{TOOLS}"),
                unknown,
            )
        )
    return found


def read_labels(value: Any, where: str) -> tuple[str, ...]:
    """Ids of right tools, sorted: those with a relevance above 0.

    Args:
        value: a JSON string of ``[{id, doc, relevance}]``, or the list itself.
        where: set and row, for errors.

    Raises:
        UserError: it is something else.
    """
    remedy = 'write labels as a JSON list of objects with "id" and "relevance"'
    found = parse_value(value, f"{where}: labels", remedy=remedy) if isinstance(value, str) else value
    golds = set()
    for label in found if isinstance(found, list) else [None]:
        relevance = label.get("relevance", 1) if isinstance(label, dict) else None
        identifier = _identifier(label.get("id")) if isinstance(label, dict) else None
        if identifier is None or not isinstance(relevance, int | float):
            raise UserError(
                f"{where}: labels are no list of objects with an id and a relevance", remedy=remedy
            )
        if relevance > 0:
            golds.add(identifier)
    return tuple(sorted(golds))


def _queries(wanted: HubSet) -> tuple[CollectionQuery, ...]:
    found = open_hub(wanted)
    _columns(wanted, found.table.column_names, ("query", "labels"))
    rows: dict[str, CollectionQuery] = {}
    for number, row in enumerate(found.table):
        where = f"{found.shown(wanted)} row {number}"
        text, instruction = row["query"], row.get("instruction") or ""
        if not isinstance(text, str) or not normalize_query(text) or not isinstance(instruction, str):
            raise UserError(f"{where}: the query has no words", remedy="report it to the set's authors")
        check_length(text, where, "the query")
        check_length(instruction, where, "the instruction")
        identifier = _identifier(row.get("id")) or f"row-{number:06d}"
        # A set of the Hub is not the user's to mend.
        unique, again = identifier, 1
        while unique in rows:
            again += 1
            unique = f"{identifier}#{again}"
        rows[unique] = CollectionQuery(
            unique, text, "", read_labels(row["labels"], where), instruction.strip()
        )
    return tuple(rows[i] for i in sorted(rows))


def _tools(wanted: HubSet) -> tuple[CollectionTool, ...]:
    tools: dict[str, CollectionTool] = {}
    for config in hub_configs(wanted):
        part = replace(wanted, config=config)
        found = open_hub(part, TOOL_SPLITS)
        _columns(part, found.table.column_names, ("id", "documentation"))
        for number, row in enumerate(found.table):
            identifier = _identifier(row["id"])
            if identifier is None:
                raise UserError(
                    f"{found.shown(part)} row {number}: no id", remedy="report it to the set's authors"
                )
            text = row["documentation"]
            document = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False, sort_keys=True)
            document = document[:LONGEST_DOCUMENT]
            # An id of two configs is one tool: golds name ids alone.
            tools.setdefault(identifier, CollectionTool(identifier, identifier, document, config, document))
    if not tools:
        raise UserError(f"{PREFIX}{wanted.repo} holds no tools", remedy="look at the repository's name")
    return tuple(tools[i] for i in sorted(tools))


def _identifier(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        return None
    return str(value)


def _columns(wanted: HubSet, there: list[str], needed: tuple[str, ...]) -> None:
    missing = [name for name in needed if name not in there]
    if missing:
        raise UserError(
            f"{PREFIX}{wanted.name} has no column {', '.join(missing)}; it has {', '.join(sorted(there))}",
            remedy="name a repository in ToolRet's layout",
        )
