"""What a labeller is judged on: a labelled set, its strata, and the order in which queries are drawn.

A set's queries are drawn in rounds, one of every stratum a round, each stratum in the order of a seeded
hash: small strata are served like large ones, and one more query moves at most a few of those drawn. What
the strata stand for is kept as weights, so that the whole can be told too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from ecoagent.labeling.prepare import MAX_JACCARD, duplicate_members, seeded_order, unique_requests
from ecoagent.labeling.requests import Request, RequestSet
from ecoagent.labeling.verify import ToolCard
from ecoagent.retrieval.analysis import words
from ecoagent.retrieval.collections import TestCollection
from ecoagent.retrieval.dedup import deduplicate
from ecoagent.runs import digest
from ecoagent.schema import NormalizedTool, query_id, tokens, tool_text
from ecoagent.settings import UserError

OPENING_WORDS = 4
OPENING_SHARED_BY = 10
"""A query whose first four words are those of at least so many queries is templated."""
SMALL_STRATUM = 20
SMALL_SHARE = 0.01
"""A stratum below both has no cell: it can tell nothing, nor change the whole."""
NO_GOLD = "no gold"
TOO_FEW = "too few queries with gold for a cell"
Kind = Literal["collection", "noted"]


@dataclass(frozen=True)
class LabelledQuery:
    """A query and its right tools, their duplicates included.

    Attributes:
        stratum: as ``stratify`` names it.
        unique: whether the deduplication of the whole set keeps it.
    """

    id: str
    text: str
    stratum: str
    gold: frozenset[str]
    unique: bool = True


@dataclass(frozen=True)
class LabelledSet:
    """Queries with right tools, and the tools they choose from.

    Attributes:
        kind: ``collection`` (official gold) or ``noted`` (the writers' notes on a run's catalog).
        queries: by id, those left out not among them.
        tools: (id, tool_text), sorted.
        cards: what the verifier is told of each tool.
        left_out: queries that are not judged, by reason.
        digest: SHA-256 over queries and tools.
    """

    name: str
    licence: str
    kind: Kind
    queries: tuple[LabelledQuery, ...]
    tools: tuple[tuple[str, str], ...]
    cards: Mapping[str, ToolCard]
    left_out: Mapping[str, int]
    digest: str

    def strata(self) -> dict[str, list[LabelledQuery]]:
        """Queries by stratum, both sorted."""
        found: dict[str, list[LabelledQuery]] = {}
        for query in self.queries:
            found.setdefault(query.stratum, []).append(query)
        return {name: found[name] for name in sorted(found)}


def stratify(
    texts: Mapping[str, str], groups: Mapping[str, str], *, templates: bool = True
) -> dict[str, str]:
    """Stratum of each query: its group; a group that is most of the set is divided by how queries open.

    Args:
        texts: text by query id.
        groups: group by query id; an empty one is shown as ``all``.
        templates: whether the largest group may be divided into ``templated`` and ``other``.
    """
    openings = {i: " ".join(words(text)[:OPENING_WORDS]) for i, text in texts.items()}
    shared = Counter(openings.values())
    sizes = Counter(groups[i] or "all" for i in texts)
    out = {}
    for identifier in sorted(texts):
        group = groups[identifier] or "all"
        out[identifier] = group
        if templates and sizes[group] * 2 > len(texts):
            templated = shared[openings[identifier]] >= OPENING_SHARED_BY
            out[identifier] = f"{group} {'templated' if templated else 'other'}"
    # A division that leaves a part too small to be told apart is none.
    parts = Counter(out.values())
    for identifier, stratum in out.items():
        group = groups[identifier] or "all"
        halves = [parts[f"{group} templated"], parts[f"{group} other"]]
        if stratum != group and min(halves) < SMALL_STRATUM:
            out[identifier] = group
    return out


def collection_set(collection: TestCollection) -> LabelledSet:
    """The labelled set of a test collection. Tools of equal text are one tool: each is right where one is.

    Raises:
        UserError: no query has gold.
    """
    texts = {t.id: tool_text(t.name, t.description, group=t.category or None) for t in collection.tools}
    members = _equal_texts(texts)
    with_gold = [q for q in collection.queries if q.gold]
    if not with_gold:
        raise UserError(
            f"{collection.name}: no query has gold", remedy="give a collection with relevance judgements"
        )
    gold = {q.id: frozenset(m for g in q.gold for m in members.get(g, (g,))) for q in with_gold}
    unique = set(deduplicate({q.id: tokens(q.text) for q in with_gold}, MAX_JACCARD).kept)
    return _labelled(
        collection.name,
        collection.licence,
        "collection",
        {q.id: q.text for q in with_gold},
        {q.id: q.group for q in with_gold},
        gold,
        unique,
        texts,
        {t.id: ToolCard(t.id, t.name, t.category or None, t.description) for t in collection.tools},
        Counter(f"{q.group or 'all'}: {NO_GOLD}" for q in collection.queries if not q.gold),
    )


def noted_set(
    requests: RequestSet, tools: Sequence[NormalizedTool], *, folds: Collection[str] = ("label",)
) -> LabelledSet:
    """The labelled set of a request set's notes on a run's catalog; strata are the noted query types.

    Requests whose noted tools are all missing from the catalog count as having no right tool.

    Args:
        folds: the verifier was fitted on fold ``calibration``; only what needs no verifier may use it.

    Raises:
        UserError: the set has no notes, or no request of these folds.
    """
    if not requests.noted:
        raise UserError(
            f"{requests.name} has no noted tools", remedy='give rows their "gold", or use the project\'s set'
        )
    kept, _ = unique_requests(requests.requests)
    chosen: dict[str, Request] = {}
    for request in requests.requests:
        if request.fold in folds:
            # The first copy stands for all; its golds are the union where it is kept.
            chosen.setdefault(query_id("real", request.text), request)
    chosen = {i: kept.get(i, r) for i, r in chosen.items() if kept.get(i, r).fold in folds}
    if not chosen:
        raise UserError(
            f"{requests.name} has no request of fold {' or '.join(sorted(folds))}",
            remedy='mark rows with "fold": "label" or "calibration"',
        )
    members = duplicate_members(tools)
    return _labelled(
        requests.name,
        ", ".join(sorted({r.licence for r in chosen.values()})),
        "noted",
        {i: r.text for i, r in chosen.items()},
        {i: r.query_type for i, r in chosen.items()},
        {i: frozenset(m for g in r.gold for m in members.get(g, ())) for i, r in chosen.items()},
        set(kept),
        {t.id: t.tool_text for t in tools},
        {t.id: ToolCard.of(t) for t in tools},
        {},
    )


def _equal_texts(texts: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    groups: dict[str, list[str]] = {}
    for identifier in sorted(texts):
        groups.setdefault(texts[identifier], []).append(identifier)
    return {i: tuple(ids) for ids in groups.values() for i in ids}


def _labelled(
    name: str,
    licence: str,
    kind: Kind,
    texts: Mapping[str, str],
    groups: Mapping[str, str],
    gold: Mapping[str, frozenset[str]],
    unique: Collection[str],
    tools: Mapping[str, str],
    cards: Mapping[str, ToolCard],
    left_out: Mapping[str, int],
) -> LabelledSet:
    stratum = stratify(texts, groups, templates=kind == "collection")
    sizes = Counter(stratum.values())
    small = {s for s, n in sizes.items() if n < SMALL_STRATUM and n < SMALL_SHARE * len(texts)}
    queries = tuple(
        LabelledQuery(i, texts[i], stratum[i], gold[i], i in unique)
        for i in sorted(texts)
        if stratum[i] not in small
    )
    out = {reason: left_out[reason] for reason in sorted(left_out)}
    out |= {f"{s}: {TOO_FEW}": sizes[s] for s in sorted(small)}
    content = [[i, texts[i], groups[i], sorted(gold[i])] for i in sorted(texts)]
    listed = tuple(sorted(tools.items()))
    return LabelledSet(name, licence, kind, queries, listed, cards, out, digest([content, listed]))


def draw_order(labelled: LabelledSet, seed: int) -> list[LabelledQuery]:
    """All queries in the order they are drawn: rounds over the strata, seeded hash within a stratum."""
    by_id = {q.id: q for q in labelled.queries}
    columns = [seeded_order([q.id for q in queries], seed, "judge") for queries in labelled.strata().values()]
    return [by_id[i] for one in zip_longest(*columns) for i in one if i is not None]


def weights(labelled: LabelledSet, drawn: Sequence[LabelledQuery]) -> dict[str, float]:
    """Queries of the set that each drawn query of a stratum stands for; over all drawn they sum to those
    of the strata that were drawn from."""
    sizes = {name: len(queries) for name, queries in labelled.strata().items()}
    return {name: sizes[name] / count for name, count in sorted(Counter(q.stratum for q in drawn).items())}
