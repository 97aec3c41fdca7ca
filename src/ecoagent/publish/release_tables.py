"""The authors' own release into the tables of a run: splits as released, leakage counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ecoagent.publish.released import (
    ReleasedPair,
    ReleasedTool,
    ReleaseFiles,
    read_pairs,
    read_real,
    read_tools,
)
from ecoagent.reliability.score import Embed, score_tools
from ecoagent.retrieval.rows import check_length
from ecoagent.runs import sha256_file, write_json, write_table
from ecoagent.schema import (
    Deprecation,
    PairRow,
    Provenance,
    QrelRow,
    QueryRow,
    Record,
    ScoredTool,
    fold_space,
    normalize_query,
    query_id,
    tool_text,
)
from ecoagent.schema.tools import Source
from ecoagent.settings import ReliabilitySettings, UserError

RECORD = "import.json"
ORIGIN, LICENCE = "EcoAgent release", "Apache-2.0"
DIGITS = 6
MOST_UNKNOWN = 0.1
"""Share of a part's rows whose tool may be missing from the catalog; beyond, files do not belong together."""
_HELD_OUT = {"train": 0, "val": 1, "test": 2}
_SOURCES: Mapping[str, Source] = {
    "langchain": "langchain",
    "crewai": "crewai",
    "llamaindex": "llamaindex",
    "llamahub": "llamaindex",
    "n8n": "n8n_community",
    "n8n_community": "n8n_community",
    "n8n-community": "n8n_community",
    "n8n_official": "n8n_official",
    "n8n-official": "n8n_official",
}
"""Sources as the release spells them; its n8n tools are community packages unless it says official."""


@dataclass(frozen=True)
class Part:
    """EcoAgent-Syn or EcoAgent-Real of a release."""

    queries: list[QueryRow]
    qrels: list[QrelRow]
    pairs: list[PairRow]
    counts: dict[str, Any]


def import_release(
    files: ReleaseFiles, core: Path, embed: Embed, settings: ReliabilitySettings
) -> dict[str, Any]:
    """Write the core tables of a run and ``core/import.json``; returns what the latter holds.

    Args:
        files: of ``find_release``.
        core: folder of the tables; tables of an earlier import there are replaced.
        embed: SBERT, for what of Eq. 4-5 the release does not give.
        settings: weights and threshold of Eq. 5.

    Raises:
        UserError: a file lacks a column or a row does not fit; file and row are named.
    """
    released, table, left_out = read_tools(files)
    tools, scored = make_tools(released, table, files.folder, embed, settings)
    known = {tool.id for tool in tools}
    syn = make_part(read_pairs(files), "syn", known)
    if not any(row.label == 1 and row.split == "train" for row in syn.pairs):
        raise UserError(f"{files.folder} has no positive training pair", remedy="give the release whole")
    real = make_part(read_real(files), "real", known)
    record: dict[str, Any] = {
        "format": "ecoagent-release",
        "tools": {"rows": len(tools), "file": table.name, **left_out, **scored},
        "syn": syn.counts,
        "real": real.counts,
        "not_read": dict(sorted(files.unread.items())),
    }
    record["notes"] = notes(record)
    rows: list[tuple[str, Sequence[Record], type[Record]]] = [
        ("tools", tools, ScoredTool),
        ("syn_queries", syn.queries, QueryRow),
        ("syn_qrels", syn.qrels, QrelRow),
        ("syn_pairs", syn.pairs, PairRow),
    ]
    real_tables = ("real_queries", "real_qrels")
    if real.queries:
        rows += [(real_tables[0], real.queries, QueryRow), (real_tables[1], real.qrels, QrelRow)]
    else:
        for name in real_tables:
            (core / f"{name}.parquet").unlink(missing_ok=True)
    for name, records, model in rows:
        write_table(core / f"{name}.parquet", records, model)
    write_json(core / RECORD, record)
    return record


def make_tools(
    released: Sequence[ReleasedTool], table: Path, folder: Path, embed: Embed, settings: ReliabilitySettings
) -> tuple[list[ScoredTool], dict[str, Any]]:
    """Scored tools by id, and how their scores came about. A released score is r_static as it stands; the
    signals of Eq. 4-5, and r_static where there is none, are computed here.

    Raises:
        UserError: a tool's source is none of the four catalogs.
    """
    sources = [_source(tool) for tool in released]
    scores = score_tools(
        [t.name or t.uid for t in released],
        [t.description or t.text for t in released],
        [t.tags for t in released],
        sources,
        embed,
        settings,
    )
    provenance = Provenance(
        artifact=table.name,
        artifact_version="",
        sha256=sha256_file(table),
        path=table.relative_to(folder).as_posix(),
        backend="release",
        parser_version="release-1",
    )
    first: dict[str, str] = {}
    rows, gaps = [], []
    for i, tool in enumerate(released):
        description = tool.description or ("" if tool.name else tool.text)
        text = tool_text(tool.name, description, tags=tool.tags)
        check_length(text, tool.where, "the tool")
        computed = round(float(scores.r_static[i]), DIGITS)
        if tool.reliability is not None:
            gaps.append(abs(tool.reliability - computed))
        static = computed if tool.reliability is None else tool.reliability
        rows.append(
            ScoredTool(
                id=tool.uid,
                source=sources[i],
                name=tool.name or tool.uid,
                description=description,
                description_origin="none",  # the release does not say
                kind="tool",
                granularity="package",
                group_id=tool.uid,
                url=tool.url or None,
                auth_required="unknown",
                tags=sorted(tool.tags),
                deprecated=Deprecation(state=False),
                provenance=provenance,
                provider=tool.uid,
                # Released in order of uid, so the first of equal texts has the smallest.
                duplicate_group=first.setdefault(fold_space(text).lower(), tool.uid),
                tool_text=text,
                r_cons=round(float(scores.r_cons[i]), DIGITS),
                w_src=float(scores.w_src[i]),
                r_qual=round(float(scores.r_qual[i]), DIGITS),
                r_static=static,
                reliable=static >= settings.threshold,
            )
        )
    facts: dict[str, Any] = {
        "r_static_released": len(gaps),
        "r_static_computed": len(rows) - len(gaps),
        "same_as_another": len(rows) - len(first),
    }
    if gaps:
        facts["r_static_mean_gap"] = round(float(np.mean(gaps)), DIGITS)
    return rows, facts


def _source(tool: ReleasedTool) -> Source:
    named = tool.source or tool.uid.split(":", 1)[0]
    found = _SOURCES.get(named.strip().lower().replace(" ", "_"))
    if found is None:
        raise UserError(
            f"{tool.where}: source {named!r} is none of {', '.join(sorted(_SOURCES))}",
            remedy="write one of them into the column source (or platform, or catalog)",
        )
    return found


def make_part(rows: Iterable[ReleasedPair], set_name: Literal["syn", "real"], known: set[str]) -> Part:
    """Queries, golds and pairs of one part.

    Rows are split in the release one by one; a query has one place here, the most held-out split in which it
    has a gold. Pairs keep the split of their row. A row whose tool is not in the catalog is left out and
    counted.

    Raises:
        UserError: a query has no words, or too many rows name unknown tools.
    """
    texts: dict[str, str] = {}
    labels: dict[tuple[str, str, str], ReleasedPair] = {}
    place: dict[str, str] = {}
    seen: dict[str, str] = {}
    counts: Counter[str] = Counter()
    unknown: ReleasedPair | None = None
    for row in rows:
        if not normalize_query(row.query):
            raise UserError(f"{row.where}: the query has no words", remedy="drop the row")
        check_length(row.query, row.where, "the query")
        counts["rows"] += 1
        identifier = query_id(set_name, row.query)
        texts.setdefault(identifier, row.query)
        seen.setdefault(identifier, row.split)
        if row.uid not in known:
            if row.uid:
                counts["rows_of_unknown_tools"] += 1
                unknown = unknown or row
            continue
        key = (identifier, row.uid, row.split)
        earlier = labels.get(key)
        if earlier is not None:
            counts["repeated_rows" if earlier.label == row.label else "contradicted_negatives"] += 1
        if earlier is None or row.label > earlier.label:
            labels[key] = row
        if row.label == 1 and _HELD_OUT[row.split] >= _HELD_OUT[place.get(identifier, "train")]:
            place[identifier] = row.split
    if unknown is not None and counts["rows_of_unknown_tools"] > MOST_UNKNOWN * counts["rows"]:
        raise UserError(
            f"{counts['rows_of_unknown_tools']:,} of {counts['rows']:,} rows name tools that are not in the "
            f"catalog; the first is {unknown.where}: {unknown.uid!r}",
            remedy="give the tools_*.csv that belongs to these pairs",
        )
    golds: dict[str, set[str]] = {}
    for (identifier, uid, _), row in labels.items():
        if row.label == 1:
            golds.setdefault(identifier, set()).add(uid)
    kept = sorted(texts if set_name == "real" else golds)
    place = seen | place
    facts: dict[str, Any] = {
        **counts,
        "queries": len(kept),
        "queries_without_gold": len(texts) - len(golds),
        "golds": sum(map(len, golds.values())),
        "splits": dict(sorted(Counter(place[i] for i in kept).items())),
    }
    if unknown is not None:
        facts["first_unknown_tool"] = f"{unknown.where}: {unknown.uid}"
    if set_name == "syn":
        facts["leakage"] = leakage(labels)
    return Part(
        [_query(i, texts[i], set_name, place[i], golds.get(i, set())) for i in kept],
        [
            QrelRow(query_id=i, tool_id=uid, grade=1, origin="released")
            for i in kept
            for uid in sorted(golds.get(i, ()))
        ],
        [_pair(*key, row) for key, row in _ordered(labels, golds)] if set_name == "syn" else [],
        facts,
    )


def _ordered(
    labels: Mapping[tuple[str, str, str], ReleasedPair], golds: Mapping[str, set[str]]
) -> list[tuple[tuple[str, str, str], ReleasedPair]]:
    """Pairs of queries that have a gold, in the order of a run's table."""
    chosen = [(key, row) for key, row in labels.items() if key[0] in golds]
    return sorted(chosen, key=lambda item: (item[0][0], item[1].label, item[0][1], item[0][2]))


def _query(
    identifier: str, text: str, set_name: Literal["syn", "real"], split: str, golds: set[str]
) -> QueryRow:
    syn = set_name == "syn"
    query_type = "none" if not golds else "single" if len(golds) == 1 else "several"
    return QueryRow.model_validate(
        {
            "query_id": identifier,
            "text": text,
            "set": set_name,
            "source_tool_id": next(iter(golds)) if syn and len(golds) == 1 else None,
            "query_type": None if syn else query_type,
            "language": "unknown",
            "split": split,
            "origin": ORIGIN,
            "licence": LICENCE,
        }
    )


def _pair(identifier: str, uid: str, split: str, row: ReleasedPair) -> PairRow:
    kinds = {"hard": "hard", "rand": "random"}
    kind = None if row.label else kinds.get(row.kind.lower()[:4])
    return PairRow.model_validate(
        {
            "query_id": identifier,
            "tool_id": uid,
            "label": row.label,
            "negative_type": kind,
            "score": row.score,
            "split": split,
        }
    )


def leakage(labels: Mapping[tuple[str, str, str], ReleasedPair]) -> dict[str, dict[str, int]]:
    """How far held-out queries were seen: of each split that is not train, its queries, those with rows in
    train, those with a gold of theirs among the positives of train, and golds that train calls wrong."""
    by_split: dict[str, dict[str, dict[str, int]]] = {}
    for (identifier, uid, split), row in labels.items():
        by_split.setdefault(split, {}).setdefault(identifier, {})[uid] = row.label
    train = by_split.get("train", {})
    found = {}
    for split in sorted(set(by_split) - {"train"}):
        queries = by_split[split]
        right = [(i, uid) for i, rows in queries.items() for uid, label in rows.items() if label == 1]
        found[split] = {
            "queries": len(queries),
            "with_rows_in_train": sum(i in train for i in queries),
            "with_a_gold_in_train": len({i for i, uid in right if train.get(i, {}).get(uid) == 1}),
            "golds_negative_in_train": sum(train.get(i, {}).get(uid) == 0 for i, uid in right),
        }
    return found


def notes(record: Mapping[str, Any]) -> list[str]:
    """What a reader of results on these tables has to know."""
    said = ["The data are the authors' release; its splits are kept as they are."]
    for split, seen in record["syn"].get("leakage", {}).items():
        share = seen["with_rows_in_train"] / max(1, seen["queries"])
        said.append(
            f"Leakage of the release: {seen['with_rows_in_train']:,} of {seen['queries']:,} {split} queries "
            f"({share:.1%}) have rows in train, {seen['with_a_gold_in_train']:,} of them with the same gold; "
            f"{seen['golds_negative_in_train']:,} golds of {split} are negatives in train."
        )
    tools = record["tools"]
    if tools["r_static_computed"]:
        said.append(
            f"r_static of {tools['r_static_computed']:,} of {tools['rows']:,} tools is not in the release "
            "and was computed by Eq. 4-5."
        )
    if "r_static_mean_gap" in tools:
        said.append(
            f"r_static of {tools['r_static_released']:,} tools is the release's; Eq. 4-5 as read here "
            f"differs from it by {tools['r_static_mean_gap']:.3f} on average."
        )
    for name in ("syn", "real"):
        part = record[name]
        if part.get("rows_of_unknown_tools"):
            said.append(
                f"{name}: {part['rows_of_unknown_tools']:,} of {part['rows']:,} rows name tools that are not "
                f"in the catalog and are left out, the first {part['first_unknown_tool']}."
            )
    if not record["real"].get("queries"):
        said.append("The release has no EcoAgent-Real rows: Real is not evaluated.")
    return said
