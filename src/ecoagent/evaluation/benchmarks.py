"""Independent test collections, made ready to be judged as the run's own splits are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ecoagent.evaluation.offline import DECIMALS, JudgedSplit, Ranked, offline_row
from ecoagent.labeling.prepare import seeded_order
from ecoagent.metrics import TOOLRET_METRICS, evaluate_run
from ecoagent.retrieval import RankedRun, TextSet
from ecoagent.retrieval.collections import CollectionQuery, TestCollection
from ecoagent.runs import digest
from ecoagent.schema import fold_space, normalize_query, tool_text
from ecoagent.settings import BaselineSettings, TrainSettings, UserError

Asked = Literal["query", "instruction"]
"""What a ranker is given: the query alone, or the set's instruction before it."""

SPLIT = "test"
NO_GOLD = "queries without gold"
REPEATED = "rows that repeat a query (golds united)"
OTHER_GOLD = "of these with other golds"
UNKNOWN_GOLD = "golds that are no tool of the set (count as missed)"


@dataclass(frozen=True)
class Benchmark:
    """A test collection as it is judged.

    Attributes:
        tools: every tool with the text rankers see, by id.
        queries: judged queries, by id.
        golds: query to right tools; a gold's duplicates count as gold.
        labelled: query to right tools as the set has them.
        drawn_from: queries with gold, repeats counted once; more than are judged where a limit was given.
        left_out: what is not judged, by reason.
        duplicates: tools that are the same as another, by name and description.
        undescribed: tools that say no more than their name and category.
        own_metrics: metrics of the set's own evaluation, over ``labelled``.
        content: SHA-256 over what rankers see and what they are judged by.
    """

    name: str
    licence: str
    origin: str
    tools: TextSet
    queries: tuple[CollectionQuery, ...]
    golds: Mapping[str, frozenset[str]]
    labelled: Mapping[str, frozenset[str]]
    drawn_from: int
    left_out: Mapping[str, int]
    duplicates: int
    undescribed: int
    own_metrics: tuple[str, ...]
    content: str

    @property
    def asked(self) -> tuple[Asked, ...]:
        """Ways to ask: with an instruction too, where the set has any."""
        return ("query", "instruction") if any(q.instruction for q in self.queries) else ("query",)

    def texts(self, asked: Asked, *, dense: bool) -> TextSet:
        """Query texts by id.

        Args:
            asked: with or without the instruction.
            dense: whether an encoder reads them; lexical rankers get no words that are not the set's. Both
                forms are those of ToolRet's evaluation.
        """
        form = "Instruct: {}\nQuery: {}" if dense else "{} {}"
        texts = [
            form.format(q.instruction, q.text) if asked == "instruction" and q.instruction else q.text
            for q in self.queries
        ]
        return TextSet(tuple(q.id for q in self.queries), tuple(texts))

    def facts(self) -> dict[str, Any]:
        """The set as a result file lists it."""
        return {
            "set": self.name,
            "licence": self.licence,
            "origin": self.origin,
            "queries": len(self.queries),
            "queries_with_gold": self.drawn_from,
            "tools": len(self.tools),
            "duplicate_tools": self.duplicates,
            "tools_without_description": self.undescribed,
            "labelled_golds": sum(map(len, self.labelled.values())),
            "golds": sum(map(len, self.golds.values())),
            "left_out": dict(sorted(self.left_out.items())),
            "content": self.content,
        }


def make_benchmark(
    collection: TestCollection,
    *,
    limit: int | None = None,
    seed: int = 0,
    unknown_golds: int = 0,
    own_metrics: tuple[str, ...] = (),
) -> Benchmark:
    """A collection ready to be judged. Tools of equal name and description are one tool: all are right where
    one is. Rows of equal text are one query, under the first id, and each one's golds are right; a set with
    metrics of its own keeps them apart, as its own evaluation does. Queries without gold are left out. Both
    are counted.

    Args:
        limit: queries judged at most, drawn by a seeded hash of their ids; none = all.
        seed: of the draw.
        unknown_golds: golds that are no tool of the collection, to be counted.
        own_metrics: metrics of the set's own evaluation.

    Raises:
        UserError: no query has gold.
    """
    members = _same_tools(collection)
    rows = [q for q in collection.queries if q.gold]
    with_gold, other_gold = ({q.id: q for q in rows}, 0) if own_metrics else _united(rows)
    if not with_gold:
        raise UserError(
            f"{collection.name}: no query has gold", remedy="give a collection with relevance judgements"
        )
    drawn = sorted(seeded_order(list(with_gold), seed, "benchmark")[:limit] if limit else with_gold)
    queries = tuple(with_gold[i] for i in drawn)
    tools = TextSet(
        tuple(t.id for t in collection.tools),
        tuple(
            t.document or tool_text(t.name, t.description, group=t.category or None) or t.id
            for t in collection.tools
        ),
    )
    labelled = {q.id: frozenset(q.gold) for q in queries}
    golds = {q.id: frozenset(m for g in q.gold for m in members.get(g, (g,))) for q in queries}
    left_out = {
        NO_GOLD: len(collection.queries) - len(rows),
        REPEATED: len(rows) - len(with_gold),
        OTHER_GOLD: other_gold,
        UNKNOWN_GOLD: unknown_golds,
    }
    return Benchmark(
        collection.name,
        collection.licence,
        collection.origin,
        tools,
        queries,
        golds,
        labelled,
        len(with_gold),
        {reason: count for reason, count in left_out.items() if count},
        len(collection.tools) - len({ids[0] for ids in members.values()}),
        sum(not fold_space(tool.document or tool.description) for tool in collection.tools),
        own_metrics,
        digest(
            [
                [tools.ids, tools.texts],
                [[q.id, q.text, q.instruction] for q in queries],
                [sorted(golds[i]) for i in drawn],
                [sorted(labelled[i]) for i in drawn],
            ]
        ),
    )


def _united(rows: Sequence[CollectionQuery]) -> tuple[dict[str, CollectionQuery], int]:
    """Queries of different texts by id, and how many rows repeat one with golds it did not have yet.

    Args:
        rows: sorted by id.
    """
    first: dict[tuple[str, str], CollectionQuery] = {}
    other = 0
    for row in rows:
        asked = (normalize_query(row.text), normalize_query(row.instruction))
        kept = first.setdefault(asked, row)
        gold = tuple(sorted({*kept.gold, *row.gold}))
        other += gold != kept.gold
        first[asked] = replace(kept, gold=gold)
    return {query.id: query for query in first.values()}, other


def _same_tools(collection: TestCollection) -> dict[str, tuple[str, ...]]:
    """Each tool with those of the same name and description, sorted."""
    groups: dict[tuple[str, str], list[str]] = {}
    for tool in collection.tools:  # sorted by id
        # A set that prescribes the document has no name beside it.
        name = "" if tool.document else fold_space(tool.name).lower()
        groups.setdefault((name, fold_space(tool.document or tool.description).lower()), []).append(tool.id)
    return {i: tuple(ids) for ids in groups.values() for i in ids}


def benchmark_row(
    benchmark: Benchmark,
    found: Ranked,
    asked: Asked,
    settings: TrainSettings,
    seed: int,
    baselines: BaselineSettings | None = None,
) -> dict[str, Any]:
    """One row, by the function that makes those of Table 1; with the set's own metrics beside, if it has any.

    Raises:
        UserError: the run is not one of a registered ranker.
    """
    queries = benchmark.texts(asked, dense=True)
    split = JudgedSplit(benchmark.name, SPLIT, queries, benchmark.golds)
    row = {**offline_row(found, split, settings, seed, baselines), "asked": asked}
    if benchmark.own_metrics and isinstance(found, RankedRun):
        own = evaluate_run(found, benchmark.labelled, benchmark.own_metrics).means()
        row["own_metrics"] = {name: round(value, DECIMALS) for name, value in own.items()}
    return row


def averages(rows: Sequence[Mapping[str, Any]], origins: Mapping[str, str]) -> list[dict[str, Any]]:
    """Own metrics averaged over the sets of one origin, each set counting once, where there are several.

    Args:
        rows: rows of every set.
        origins: set to where it comes from.
    """
    grouped: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        if row.get("own_metrics"):
            grouped.setdefault((origins[row["set"]], row["ranker"], row["asked"]), []).append(row)
    return [
        {
            "origin": origin,
            "ranker": ranker,
            "asked": asked,
            "label": members[0]["label"],
            "sets": len(members),
            "queries": sum(row["n_queries"] for row in members),
            "own_metrics": {
                name: round(sum(row["own_metrics"][name] for row in members) / len(members), DECIMALS)
                for name in members[0]["own_metrics"]
            },
        }
        for (origin, ranker, asked), members in grouped.items()
        if len(members) > 1
    ]


NOTES: tuple[str, ...] = (
    "Independent sets: nothing of them was trained on. Every ranker chooses among all tools of the set; the "
    "document is tool_text (category as group), or the text a set prescribes.",
    "Not blind: samples of metatool and toolbench were looked at when the siamese encoder's learning rate "
    "and batch size were set; the analysis of lexical rankers was chosen on sealtools, toolalpaca, "
    "restbench, toollinkos and metatool, in their favour.",
    "Tools of equal name and description count as one: where one is right, all are. So do rows of equal "
    "text, except where a set has metrics of its own.",
    "Intervals: 95% percentile bootstrap over queries.",
)
OWN_NOTE = (
    f"{', '.join(sorted({m.partition('@')[0] for m in TOOLRET_METRICS}))} at 5, 10 and 20 are ToolRet's own "
    "metrics, over its labels as they stand (P: Precision; Comp: Comprehensiveness, every gold found)."
)
