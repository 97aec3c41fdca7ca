"""Checks across tables and over texts: each returns the rows that break it, with a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import polars as pl

from ecoagent.audit.rules import Severity
from ecoagent.audit.secrets import scan
from ecoagent.audit.tables import RunTables, spec
from ecoagent.retrieval.dedup import deduplicate
from ecoagent.schema import fold_space, normalize_query, query_id, tokens
from ecoagent.settings import Settings

_ARITHMETIC_SLACK = 1e-6


@dataclass(frozen=True)
class Violation:
    """A row that breaks a check."""

    table: str
    row_id: str
    detail: str


Check = Callable[[RunTables, Settings], Iterator[Violation]]


@dataclass(frozen=True)
class CrossCheck:
    """A named check, how bad a breach is, and what it says in words."""

    name: str
    severity: Severity
    says: str
    find: Check


CHECKS: list[CrossCheck] = []


def check(name: str, severity: Severity, says: str) -> Callable[[Check], Check]:
    """Register a check."""

    def register(function: Check) -> Check:
        CHECKS.append(CrossCheck(name, severity, says, function))
        return function

    return register


def _rows(table: str, frame: pl.DataFrame, detail: str) -> Iterator[Violation]:
    """Violations of the rows of ``frame``; ``detail`` may name columns in braces."""
    item = spec(table)
    for key, row in zip(
        frame.select(k=item.row_id())["k"].to_list(), frame.iter_rows(named=True), strict=True
    ):
        yield Violation(table, key, detail.format(**row))


def _missing(
    table: str, column: str, known: pl.Series, frame: pl.DataFrame, where: str
) -> Iterator[Violation]:
    lost = frame.filter(pl.col(column).is_not_null() & ~pl.col(column).is_in(known.to_list()))
    yield from _rows(table, lost, f"{column} {{{column}}} is not in {where}")


@check("references", "critical", "every query, tool and response named in a table exists")
def references(tables: RunTables, settings: Settings) -> Iterator[Violation]:
    """Referential integrity between the tables of a run."""
    tools = tables["tools"]["id"]
    for prefix in ("syn", "real"):
        queries = tables[f"{prefix}_queries"]["query_id"]
        yield from _missing(
            f"{prefix}_queries", "source_tool_id", tools, tables[f"{prefix}_queries"], "tools"
        )
        dependants = [f"{prefix}_qrels"] + (["syn_pairs"] if prefix == "syn" else [])
        for name in dependants:
            yield from _missing(name, "query_id", queries, tables[name], f"{prefix}_queries")
            yield from _missing(name, "tool_id", tools, tables[name], "tools")
    yield from _missing("verdicts", "tool_id", tools, tables["verdicts"], "tools")
    seen = pl.concat([tables["real_queries"]["query_id"], tables["real_rejects"]["id"]])
    yield from _missing("verdicts", "query_id", seen, tables["verdicts"], "real_queries or real_rejects")
    hashes = tables["real_responses"]["request_hash"]
    yield from _missing("verdicts", "response_hash", hashes, tables["verdicts"], "real_responses")
    yield from _missing("tools", "duplicate_group", tools, tables["tools"], "tools")
    yield from _missing("tools", "id", tables["tools_normalized"]["id"], tables["tools"], "tools_normalized")
    yield from _missing("tools_normalized", "id", tools, tables["tools_normalized"], "tools")


@check("query_has_gold", "critical", "every accepted query has at least one gold tool")
def query_has_gold(tables: RunTables, settings: Settings) -> Iterator[Violation]:
    """Queries without a judgement could never be answered right."""
    for prefix in ("syn", "real"):
        judged = tables[f"{prefix}_qrels"]["query_id"].unique().to_list()
        bare = tables[f"{prefix}_queries"].filter(~pl.col("query_id").is_in(judged))
        yield from _rows(f"{prefix}_queries", bare, "no gold tool")


@check("query_ids", "critical", "a query's id is the hash of its normalised text, its set is its table's")
def query_ids(tables: RunTables, settings: Settings) -> Iterator[Violation]:
    """Ids are derived, so that equal queries of two builds have equal ids."""
    for prefix in ("syn", "real"):
        for row in tables[f"{prefix}_queries"].iter_rows(named=True):
            expected = query_id(prefix, row["text"])
            if row["query_id"] != expected or row["set"] != prefix:
                yield Violation(f"{prefix}_queries", row["query_id"], f"expected {expected}, set {prefix}")


@check("splits_disjoint", "critical", "no normalised query text stands in two splits of a set")
def splits_disjoint(tables: RunTables, settings: Settings) -> Iterator[Violation]:
    """Equal texts on both sides of a split would be a leak."""
    for prefix in ("syn", "real"):
        first: dict[str, tuple[str, str]] = {}
        for row in tables[f"{prefix}_queries"].sort("query_id").iter_rows(named=True):
            text = normalize_query(row["text"])
            key, split = first.setdefault(text, (row["query_id"], row["split"]))
            if key != row["query_id"]:
                yield Violation(
                    f"{prefix}_queries", row["query_id"], f"{row['split']}: same text as {key} ({split})"
                )


@check("syn_real_disjoint", "warning", "no Real query equals a Syn query")
def syn_real_disjoint(tables: RunTables, settings: Settings) -> Iterator[Violation]:
    """A Real query seen in Syn is no independent test."""
    syn = {
        normalize_query(t): (q, s)
        for q, t, s in tables["syn_queries"].select("query_id", "text", "split").iter_rows()
    }
    for key, text in tables["real_queries"].select("query_id", "text").iter_rows():
        if (twin := syn.get(normalize_query(text))) is not None:
            yield Violation("real_queries", key, f"same text as {twin[0]} ({twin[1]})")


@check("real_never_trains", "critical", "Real has no training split unless the settings ask for one")
def real_never_trains(tables: RunTables, settings: Settings) -> Iterator[Violation]:
    """The encoder never trains on Real (contract)."""
    if settings.labeling.splits[0] == 0:
        real = tables["real_queries"].filter(~pl.col("split").is_in(["val", "test"]))
        yield from _rows("real_queries", real, "a Real query in split {split}")


@check("cold_never_trains", "critical", "every cold query has a gold tool that is in no training pair")
def cold_never_trains(tables: RunTables, settings: Settings) -> Iterator[Violation]:
    """Cold queries measure what the encoder does with tools it never saw, as positive or negative.

    A text that was generated for a cold tool and for another one is cold, and its other gold may train.
    """
    trained = tables["syn_pairs"].filter(pl.col("split") == "train")["tool_id"].unique().to_list()
    unseen = tables["syn_qrels"].filter(~pl.col("tool_id").is_in(trained))["query_id"].unique().to_list()
    seen = tables["syn_queries"].filter((pl.col("split") == "cold") & ~pl.col("query_id").is_in(unseen))
    yield from _rows("syn_queries", seen, "every gold is in a training pair, among them {source_tool_id}")


@check(
    "pairs_consistent", "critical", "pairs agree with qrels, labels with negative types, splits with queries"
)
def pairs_consistent(tables: RunTables, settings: Settings) -> Iterator[Violation]:
    """Positives are golds, negatives say which kind they are, a pair lies in its query's split."""
    pairs = tables["syn_pairs"]
    yield from _rows(
        "syn_pairs",
        pairs.filter((pl.col("label") == 1) != pl.col("negative_type").is_null()),
        "label {label} with negative type {negative_type}",
    )
    positives = pairs.filter(pl.col("label") == 1)
    orphans = positives.join(tables["syn_qrels"], on=["query_id", "tool_id"], how="anti")
    yield from _rows("syn_pairs", orphans, "a positive that is not in syn_qrels")
    moved = pairs.join(
        tables["syn_queries"].select("query_id", query_split="split"), on="query_id", how="inner"
    ).filter(pl.col("split") != pl.col("query_split"))
    yield from _rows("syn_pairs", moved, "split {split}, its query's is {query_split}")


@check("negatives_not_gold", "critical", "no negative is a gold of its query or a duplicate of one")
def negatives_not_gold(tables: RunTables, settings: Settings) -> Iterator[Violation]:
    """A gold, or the same tool under another id, as negative teaches the encoder what is wrong."""
    group = tables["tools"].select(tool_id="id", duplicate_group="duplicate_group")
    negatives = tables["syn_pairs"].filter(pl.col("label") == 0).join(group, on="tool_id", how="left")
    golds = tables["syn_qrels"].select("query_id", "tool_id").join(group, on="tool_id", how="left")
    plain = negatives.join(golds.select("query_id", "tool_id"), on=["query_id", "tool_id"], how="semi")
    yield from _rows("syn_pairs", plain, "negative {tool_id} is a gold of its query")
    twins = negatives.join(
        golds.select("query_id", "duplicate_group"), on=["query_id", "duplicate_group"], how="semi"
    ).join(plain.select("query_id", "tool_id"), on=["query_id", "tool_id"], how="anti")
    yield from _rows("syn_pairs", twins, "negative {tool_id} is a duplicate of a gold ({duplicate_group})")


@check("duplicate_groups", "critical", "a duplicate group is named by its smallest id")
def duplicate_groups(tables: RunTables, settings: Settings) -> Iterator[Violation]:
    """The name does not depend on the order of arrival."""
    wrong = tables["tools"].filter(pl.col("id").min().over("duplicate_group") != pl.col("duplicate_group"))
    yield from _rows("tools", wrong, "group {duplicate_group} is not named by its smallest id")


@check("real_golds_verified", "critical", "every verified Real gold has a kept verdict")
def real_golds_verified(tables: RunTables, settings: Settings) -> Iterator[Violation]:
    """A judgement of origin ``verified`` without its verdict cannot be checked."""
    kept = tables["verdicts"].filter(pl.col("kept") & (pl.col("stage") == "verifier"))
    verified = tables["real_qrels"].filter(pl.col("origin") == "verified")
    lost = verified.join(kept, on=["query_id", "tool_id"], how="anti")
    yield from _rows("real_qrels", lost, "origin verified, no kept verdict")


@check("verdict_reasons", "critical", "a dropped pair says why, a kept one does not")
def verdict_reasons(tables: RunTables, settings: Settings) -> Iterator[Violation]:
    """A filter returns a reason."""
    wrong = tables["verdicts"].filter(pl.col("kept") != pl.col("reason").is_null())
    yield from _rows("verdicts", wrong, "kept {kept} with reason {reason}")


@check("r_static", "critical", "r_static is Eq. 5 of its parts, reliable its comparison with the threshold")
def r_static(tables: RunTables, settings: Settings) -> Iterator[Violation]:
    """Recomputed with the run's settings."""
    a, b, c = settings.reliability.weights
    parts = (a * pl.col("r_cons") + b * pl.col("w_src") + c * pl.col("r_qual")).clip(0.0, 1.0)
    off = (parts - pl.col("r_static")).abs() > _ARITHMETIC_SLACK
    label = (pl.col("r_static") >= settings.reliability.threshold) != pl.col("reliable")
    yield from _rows("tools", tables["tools"].filter(off | label), "r_static {r_static}, reliable {reliable}")


def _word_limits(tables: RunTables, prefix: str, low: int, high: int) -> Iterator[Violation]:
    for key, text in tables[f"{prefix}_queries"].select("query_id", "text").iter_rows():
        words = len(fold_space(text).split())
        if not low <= words <= high:
            yield Violation(f"{prefix}_queries", key, f"{words} words, limits {low} to {high}")


@check("syn_words", "critical", "Syn queries keep the word limits of the settings (paper: 5 to 120)")
def syn_words(tables: RunTables, settings: Settings) -> Iterator[Violation]:
    """Figure 2 of the paper, requirement 1."""
    yield from _word_limits(tables, "syn", settings.synthesis.min_words, settings.synthesis.max_words)


@check("real_words", "warning", "Real queries have 2 to 120 words")
def real_words(tables: RunTables, settings: Settings) -> Iterator[Violation]:
    """People write short requests too; a single word is no request."""
    yield from _word_limits(tables, "real", 2, settings.synthesis.max_words)


@check("syn_jaccard", "critical", "no two Syn queries are nearer than the Jaccard limit (paper: 0.7)")
def syn_jaccard(tables: RunTables, settings: Settings) -> Iterator[Violation]:
    """Exact, over the tokenisation of ``schema.tokens``."""
    texts = tables["syn_queries"].select("query_id", "text").iter_rows()
    for twin in deduplicate({key: tokens(text) for key, text in texts}, settings.synthesis.jaccard).dropped:
        yield Violation("syn_queries", twin.id, f"Jaccard {twin.similarity:.3f} with {twin.witness}")


@check("enough_tools", "critical", "at least audit.min_tools tools were kept")
def enough_tools(tables: RunTables, settings: Settings) -> Iterator[Violation]:
    """A half crawl is no release."""
    if (n := tables["tools"].height) < settings.audit.min_tools:
        yield Violation("tools", "(table)", f"{n} tools, audit.min_tools is {settings.audit.min_tools}")


@check("enough_queries", "critical", "at least audit.min_queries Syn queries were accepted")
def enough_queries(tables: RunTables, settings: Settings) -> Iterator[Violation]:
    """A half synthesis is no release."""
    if (n := tables["syn_queries"].height) < settings.audit.min_queries:
        yield Violation(
            "syn_queries", "(table)", f"{n} queries, audit.min_queries is {settings.audit.min_queries}"
        )


PUBLISHED_TEXTS: dict[str, tuple[str, ...]] = {
    "tools": ("name", "display_name", "description", "tool_text", "input_schema", "url", "docs_url"),
    "syn_queries": ("text",),
    "real_queries": ("text",),
    "syn_responses": ("text",),
    "real_responses": ("text",),
}
"""Columns of free text that a release shows."""


def _secrets(tables: RunTables, severity: Severity) -> Iterator[Violation]:
    for table, columns in PUBLISHED_TEXTS.items():
        frame = tables[table]
        keys = frame.select(k=spec(table).row_id())["k"].to_list()
        for column in columns:
            for key, text in zip(keys, frame[column].to_list(), strict=True):
                for finding in scan(text or ""):
                    if finding.severity == severity:
                        yield Violation(table, key, f"{column} {finding.reason}")


@check("no_keys", "critical", "no published text holds a key or token")
def no_keys(tables: RunTables, settings: Settings) -> Iterator[Violation]:
    """Keys in crawled or generated text."""
    yield from _secrets(tables, "critical")


@check("no_addresses", "warning", "no published text holds a personal e-mail address (publishing masks them)")
def no_addresses(tables: RunTables, settings: Settings) -> Iterator[Violation]:
    """Addresses in crawled or generated text; placeholders such as name@example.com are no finding."""
    yield from _secrets(tables, "warning")


@check("english", "warning", "queries are English")
def english(tables: RunTables, settings: Settings) -> Iterator[Violation]:
    """The benchmark is an English one; other languages are kept but named."""
    for prefix in ("syn", "real"):
        other = tables[f"{prefix}_queries"].filter(~pl.col("language").is_in(["en", "unknown"]))
        yield from _rows(f"{prefix}_queries", other, "language {language}")
