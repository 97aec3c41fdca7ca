"""What the round-trip filter of EcoAgent-Syn does to retrieval: towers trained with and without it.

A query passes the round trip if search brings its tool back among the first k, and the verifier if
its score for the tool reaches a cut-off. Towers are trained on all pairs, on those of queries that
pass, and on random pairs of the same number: without these a smaller set would be blamed, or
praised, for its size. All are judged on the same unfiltered queries; the test split of
EcoAgent-Real is not among them.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import polars as pl

from ecoagent.evaluation.datasets import EvalData, load_core
from ecoagent.evaluation.offline import DECIMALS, JudgedSplit, all_queries, part_of
from ecoagent.evaluation.round_trip_table import TOWERS, UNTRAINED, result_rows
from ecoagent.evaluation.train_stage import SECONDS_PER_ROW, rows_of
from ecoagent.metrics import evaluate_run
from ecoagent.models import ModelStore
from ecoagent.retrieval import (
    SentenceEncoder,
    TrainingRow,
    build_towers,
    load_two_tower,
    plan_batches,
    rank_dense,
    train_two_tower,
)
from ecoagent.runs import (
    RunContext,
    Shard,
    ShardResult,
    Stage,
    StageReport,
    digest,
    read_json,
    read_table,
    sha256_file,
    write_json,
)
from ecoagent.settings import Settings, UserError

RESULT = "round_trip.json"
ASKED = "round_trip_asked.json"
TESTS: tuple[tuple[str, str], ...] = (("syn", "test"), ("syn", "cold"), ("real", "val"))
"""Splits the towers are compared on. EcoAgent-Real's test split is kept for Table 1."""

FILTERS = ("round_trip", "verifier", "both")
CONTROL = "random_"
"""Prefix of the arm with as many random pairs as a filter leaves."""

FEW_TOOLS = 10
"""With fewer clusters a bootstrap's intervals are too narrow."""

SECONDS_PER_TEXT = 0.012
"""Encoding of one text on 2 cores, for estimates."""
SECONDS_PER_ARM = 6.0
"""Loading and saving of the towers, for estimates."""


@dataclass(frozen=True)
class Filter:
    """When a query passes.

    Attributes:
        max_rank: largest rank of its tool that passes the round trip.
        column: verifier_raw, or verifier_score where the labelling decides by probabilities.
        at_least: smallest value of that column that passes the verifier.
    """

    max_rank: int
    column: Literal["verifier_raw", "verifier_score"]
    at_least: float


@dataclass(frozen=True)
class Arm:
    """Training rows of one arm; an arm without rows is the towers as they were before training."""

    name: str
    rows: tuple[TrainingRow, ...]

    @property
    def content(self) -> str:
        """Digest of what is trained on."""
        return digest([(r.query_id, r.query, r.tool, r.negatives) for r in self.rows])


def filter_of(settings: Settings, max_rank: int, min_raw: float | None) -> Filter:
    """The filter asked for: without ``min_raw`` the run's own cut-off, else that of its labelling."""
    own = min_raw if min_raw is not None else settings.synthesis.min_verifier_raw
    if own is not None:
        return Filter(max_rank, "verifier_raw", own)
    labeling = settings.labeling
    column: Literal["verifier_raw", "verifier_score"] = (
        "verifier_raw" if labeling.verifier_score == "raw" else "verifier_score"
    )
    return Filter(max_rank, column, labeling.verifier_threshold)


def encoders_of(settings: Settings) -> list[str]:
    """Models the towers of a run start from, f_Q first."""
    return [settings.train.query_encoder, settings.train.tool_encoder]


def passing(queries: pl.DataFrame, rule: Filter) -> dict[str, frozenset[str]]:
    """Ids of the queries that pass each filter; as in synthesis, no verdict is no verdict against a query."""
    found = queries.filter(pl.col("round_trip_rank") <= rule.max_rank)
    liked = queries.filter(pl.col(rule.column).is_null() | (pl.col(rule.column) >= rule.at_least))
    back, yes = frozenset(found["query_id"]), frozenset(liked["query_id"])
    return {"round_trip": back, "verifier": yes, "both": back & yes}


def make_arms(
    rows: Sequence[TrainingRow], passed: Mapping[str, frozenset[str]], seed: int
) -> tuple[list[Arm], list[str]]:
    """Arms that differ from each other, with a control of equal size for each filter, and what was left out.

    Args:
        rows: all training rows.
        passed: filter to the queries that pass.
        seed: of the controls' draw.
    """
    arms, notes = [Arm("all", tuple(rows))], []
    for name in FILTERS:
        chosen = tuple(r for r in rows if r.query_id in passed[name])
        if not chosen:
            notes.append(f"{name}: not trained, no training pair passes it.")
            continue
        same = next((a.name for a in arms if a.rows == chosen), None)
        if same is not None:
            notes.append(f"{name}: not trained, it leaves the same pairs as {same!r}.")
            continue
        drawn = random.Random(f"{seed}:{CONTROL}{name}").sample(range(len(rows)), len(chosen))
        arms += [Arm(name, chosen), Arm(CONTROL + name, tuple(rows[n] for n in sorted(drawn)))]
    return arms, notes


def tests_of(data: EvalData) -> list[JudgedSplit]:
    """The splits of ``TESTS`` that have judged queries, whole."""
    found = []
    for set_name, split in TESTS:
        queries = data.judged(set_name, split)
        if len(queries):
            golds = {query: data.golds[query] for query in queries.ids}
            found.append(JudgedSplit(set_name, split, queries, golds))
    if not found:
        raise UserError(
            "no split to compare on has a judged query", remedy="synthesize for more tools, or label"
        )
    return found


class RoundTripStage(Stage):
    """Trains the arms, one shard an arm and seed, and compares them."""

    name: ClassVar[str] = "round_trip"
    version: ClassVar[str] = "2"
    sections: ClassVar[tuple[str, ...]] = ("train",)

    def __init__(self, rule: Filter, seeds: int = 1, limit: int | None = None) -> None:
        self.rule, self.seeds, self.limit = rule, seeds, limit

    def prepare(self, ctx: RunContext) -> None:
        """Write what was asked into the run, where it counts as an input.

        Not part of the key itself: a further seed must not have the others trained again.
        """
        depth = ctx.settings.evaluate.depth
        asked = {**vars(self.rule), "seeds": self.seeds, "limit": self.limit, "depth": depth}
        write_json(ctx.paths.raw / ASKED, asked)

    def tables(self, ctx: RunContext) -> list[Path]:
        """The tables of the run that are read."""
        names = ["syn_pairs", "syn_qrels", "syn_queries", "tools"]
        if (ctx.paths.core / "real_queries.parquet").is_file():
            names += ["real_qrels", "real_queries"]
        return [ctx.paths.core / f"{name}.parquet" for name in names]

    def inputs(self, ctx: RunContext) -> list[Path]:
        """The tables, and what was asked."""
        return [*self.tables(ctx), ctx.paths.raw / ASKED]

    def extra_key(self, ctx: RunContext) -> dict[str, Any]:
        """Digests of the weights the towers start from."""
        store, settings = ModelStore(ctx.settings.models), ctx.settings.train
        return {name: store.digest(name) for name in sorted({settings.query_encoder, settings.tool_encoder})}

    def plan(self, ctx: RunContext) -> list[Shard]:
        """The untrained towers, and one shard an arm and seed."""
        shards = [Shard(UNTRAINED)]
        for number in range(self.seeds):
            arms, _ = self._arms(ctx, load_core(ctx.paths.core), number)
            shards += [Shard(f"{arm.name}-{number}", (arm.content,)) for arm in arms]
        return shards

    def shard_content(self, ctx: RunContext, shard: Shard) -> Any:
        """The tables judged on, and the depth of the rankings; the arm's pairs are the shard's ids."""
        names = {"tools", "syn_queries", "syn_qrels", "real_queries", "real_qrels"}
        tables = {p.name: sha256_file(p) for p in self.tables(ctx) if p.stem in names}
        return {"tables": tables, "depth": ctx.settings.evaluate.depth}

    def estimate(self, ctx: RunContext) -> dict[str, Any]:
        """Pairs of each arm, and minutes on two cores."""
        data, settings = load_core(ctx.paths.core), ctx.settings.train
        arms, notes = self._arms(ctx, data, 0)
        texts = len(data.tools) + sum(len(s.queries) for s in tests_of(data))
        scale = settings.max_length / 64
        encoding = SECONDS_PER_TEXT * texts * scale + SECONDS_PER_ARM
        seconds = encoding
        for arm in arms:
            plan = plan_batches(arm.rows, settings.batch_size, settings.epochs, ctx.settings.seed)
            rows = sum(len(batch) for _, batch in plan)
            seconds += self.seeds * (SECONDS_PER_ROW * scale * rows + encoding)
        return {
            "pairs": {arm.name: len(arm.rows) for arm in arms},
            "seeds": self.seeds,
            "trainings": self.seeds * len(arms),
            "minutes on 2 cores": round(seconds / 60, 1),
            "left out": notes,
        }

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        """Train one arm in a temporary folder, and keep its reciprocal ranks alone."""
        data = load_core(ctx.paths.core)
        store, settings = ModelStore(ctx.settings.models), ctx.settings.train
        query_path = store.path(settings.query_encoder, ctx.progress)
        tool_path = store.path(settings.tool_encoder, ctx.progress)
        if shard.key == UNTRAINED:
            towers = build_towers(settings, query_path, tool_path)
            write_json(directory / RESULT, self._judge(ctx, SentenceEncoder(towers, name=TOWERS), data))
            return
        name, _, number = shard.key.rpartition("-")
        arms, _ = self._arms(ctx, data, int(number))
        rows = next(arm.rows for arm in arms if arm.name == name)
        seed = ctx.settings.seed + int(number)
        steps = len(plan_batches(rows, settings.batch_size, settings.epochs, seed))
        with (
            # Inside the shard's own folder, so that what a killed process leaves is cleared away.
            tempfile.TemporaryDirectory(dir=directory) as scratch,
            ctx.progress.task(f"round trip: {shard.key}", total=steps, unit="steps") as task,
        ):
            train_two_tower(
                rows,
                settings,
                query_path=query_path,
                tool_path=tool_path,
                output=Path(scratch),
                seed=seed,
                on_step=lambda loss: task.advance(1, note=f"loss {loss:.3f}"),
            )
            content = self._judge(ctx, load_two_tower(Path(scratch)), data)
        facts = {
            "pairs": len(rows),
            "queries": len({r.query_id for r in rows}),
            "tools": len({r.tool_id for r in rows}),
            "steps": steps,
        }
        write_json(directory / RESULT, {**content, **facts})

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """The table, from the reciprocal ranks of every arm and seed."""
        data = load_core(ctx.paths.core)
        queries = _checked(ctx)
        splits = tests_of(data)
        found: dict[str, list[dict[str, Any]]] = {}
        for result in results:
            name = result.shard.key.rpartition("-")[0] or result.shard.key
            found.setdefault(name, []).append(read_json(result.directory / RESULT))
        by_tool = data.clusters
        clusters = {s.name: [by_tool[query] for query in s.queries.ids] for s in splits}
        rows = result_rows(found, splits, clusters, seed=ctx.settings.seed)
        _, left_out = self._arms(ctx, data, 0)
        few = [
            f"{s.set_name} {s.split}: {n} tools are too few for its intervals to hold."
            for s in splits
            if (n := len(set(clusters[s.name]))) < FEW_TOOLS
        ]
        facts = ("pairs", "queries", "tools", "steps")
        content = {
            "encoders": encoders_of(ctx.settings),
            "filter": vars(self.rule),
            "seeds": [ctx.settings.seed + n for n in range(self.seeds)],
            "passed": self._counts(queries),
            "arms": [{"arm": n, **{k: runs[0].get(k) for k in facts}} for n, runs in found.items()],
            "rows": rows,
            "notes": [*left_out, *few, *_notes(ctx, splits, self.seeds, self.limit or ctx.settings.limit)],
        }
        path = write_json(ctx.paths.out / "results" / RESULT, content)
        return StageReport(outputs=[path], rows={"rows": len(rows)}, summary={"arms": len(found)})

    def _arms(self, ctx: RunContext, data: EvalData, number: int) -> tuple[list[Arm], list[str]]:
        rows = rows_of(data, ctx.settings.train, "train", self.limit or ctx.settings.limit)
        queries = _checked(ctx)
        arms, notes = make_arms(rows, passing(queries, self.rule), ctx.settings.seed + number)
        if queries[self.rule.column].drop_nulls().is_empty():
            notes.append(
                f"No query has a {self.rule.column}: set synthesis.verify_queries = true to ask the verifier."
            )
        return arms, notes

    def _judge(self, ctx: RunContext, encoder: SentenceEncoder, data: EvalData) -> dict[str, Any]:
        """Reciprocal rank of every query of the tests, in the order of their ids."""
        splits = tests_of(data)
        run = rank_dense(encoder, all_queries(splits), data.tools, ctx.settings.evaluate.depth, name=TOWERS)
        found = {s.name: evaluate_run(part_of(run, s), s.golds, ("MRR",)) for s in splits}
        return {
            "reciprocal_ranks": {
                name: dict(
                    zip(m.query_ids, (round(v, DECIMALS) for v in m.values["MRR"].tolist()), strict=True)
                )
                for name, m in found.items()
            }
        }

    def _counts(self, queries: pl.DataFrame) -> dict[str, Any]:
        """How many training queries were checked, and how many pass each filter."""
        train = queries.filter(pl.col("split") == "train")
        return {
            "queries": train.height,
            "ranked": train["round_trip_rank"].drop_nulls().len(),
            "verified": train[self.rule.column].drop_nulls().len(),
            **{name: len(ids) for name, ids in passing(train, self.rule).items()},
        }


def _checked(ctx: RunContext) -> pl.DataFrame:
    """What the round trip found of each query of EcoAgent-Syn."""
    path = ctx.paths.core / "syn_queries.parquet"
    table = read_table(path)
    columns = (
        "query_id",
        "split",
        "round_trip_rank",
        "verifier_raw",
        "verifier_score",
    )
    missing = [c for c in columns if c not in table.columns]
    if missing:
        raise UserError(f"{path} lacks column {missing[0]!r}", remedy="synthesize and label again")
    return table.select(columns)


def _notes(ctx: RunContext, splits: Sequence[JudgedSplit], seeds: int, limit: int | None) -> list[str]:
    """What a reader of the table has to know."""
    synthesis = ctx.settings.synthesis
    own = [
        f"{key} = {value}"
        for key in ("max_round_trip_rank", "min_verifier_raw")
        if (value := getattr(synthesis, key)) is not None
    ]
    present = {(s.set_name, s.split) for s in splits}
    return [
        "Every arm has the train stage's settings and the same seeds, and is judged on all queries of the "
        "split, whether they pass the filter or not.",
        "Controls: random pairs of the whole, as many as the filter leaves; drawn anew for each seed.",
        "Intervals: 95% percentile bootstrap over tools, whose queries stay together. p: two-sided, signs "
        "flipped by tool, not corrected for the number of comparisons.",
        *([] if seeds > 1 else ["One seed: intervals leave out how much a training varies by chance."]),
        *([f"This run's queries were filtered before: {', '.join(own)}."] if own else []),
        *([f"Training pairs capped at {limit}, the first by query id."] if limit else []),
        *(f"{s} {p}: no judged query, not compared." for s, p in TESTS if (s, p) not in present),
    ]
