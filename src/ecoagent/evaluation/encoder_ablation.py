"""What each choice of the encoder's training does, on the build's splits and on independent sets.

Point of reference are the encoder as it was before training, and the siamese encoder as it is set. All
arms see the same pairs. Choices are made on validation splits; the others are there to be read.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from ecoagent.evaluation.benchmarks import Benchmark
from ecoagent.evaluation.datasets import EvalData, load_core
from ecoagent.evaluation.encoder_arms import (
    CHOICE,
    CHOSEN,
    EXPANDED,
    EXPANSION_WEIGHT,
    UNTRAINED,
    Arm,
    Tests,
    arms_of,
    expanded,
    parent_of,
    tests_of,
)
from ecoagent.evaluation.offline import DECIMALS, RUN, all_queries, part_of
from ecoagent.evaluation.round_trip_table import result_rows
from ecoagent.evaluation.train_stage import MINILM_MB, MODEL_LOCK, SECONDS_PER_ROW, rows_of
from ecoagent.metrics import evaluate_run
from ecoagent.models import ModelStore
from ecoagent.retrieval import (
    ExpandedEncoder,
    SentenceEncoder,
    build_towers,
    expansion_of,
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
    read_json,
    read_object,
    sha256_file,
    write_json,
)
from ecoagent.settings import result_settings

RESULT = "encoder_ablation.json"
ASKED = "encoder_ablation_asked.json"
SECONDS_PER_TEXT = 0.012
"""Encoding of one text by MiniLM on 2 cores, for estimates."""


class EncoderAblation(Stage):
    """Trains the arms, one shard an arm and seed, and compares them."""

    name: ClassVar[str] = "encoder_ablation"
    version: ClassVar[str] = "1"
    sections: ClassVar[tuple[str, ...]] = ("train",)
    shards_alone: ClassVar[bool] = True  # a further seed, set or model must not have the others trained again

    def __init__(
        self,
        benchmarks: Sequence[Benchmark] = (),
        *,
        seeds: int = 1,
        other_seeds: int | None = None,
        encoders: Sequence[str] = (),
        only: Sequence[str] = (),
        limit: int | None = None,
    ) -> None:
        self.benchmarks, self.seeds, self.limit = tuple(benchmarks), seeds, limit
        self.other_seeds = seeds if other_seeds is None else min(seeds, other_seeds)
        self.encoders, self.only = tuple(encoders), frozenset(only)

    def arms(self, ctx: RunContext) -> list[Arm]:
        """The arms asked for; the two that others are compared with are always among them."""
        found = arms_of(ctx.settings.train, self.encoders)
        if not self.only:
            return found
        return [a for a in found if a.name in self.only | {UNTRAINED, CHOSEN}]

    def prepare(self, ctx: RunContext) -> None:
        """Write what was asked into the run, where it counts as an input."""
        asked = {
            "benchmarks": {b.name: b.content for b in self.benchmarks},
            "seeds": [self.seeds, self.other_seeds],
            "encoders": list(self.encoders),
            "only": sorted(self.only),
            "limit": self.limit,
        }
        write_json(ctx.paths.raw / ASKED, asked)

    def tables(self, ctx: RunContext) -> list[Path]:
        """The tables of the run that are read."""
        names = ["syn_pairs", "syn_qrels", "syn_queries", "tools"]
        if (ctx.paths.core / "real_queries.parquet").is_file():
            names += ["real_qrels", "real_queries"]
        return [ctx.paths.core / f"{name}.parquet" for name in names]

    def inputs(self, ctx: RunContext) -> list[Path]:
        """The tables, and what was asked; baselines are shown from the results that are there."""
        return [*self.tables(ctx), ctx.paths.raw / ASKED, *_results(ctx)]

    def extra_key(self, ctx: RunContext) -> dict[str, Any]:
        """Digests of the weights the arms start from."""
        store = ModelStore(ctx.settings.models)
        return {name: store.digest(name) for name in sorted({m for a in self.arms(ctx) for m in a.models})}

    def plan(self, ctx: RunContext) -> list[Shard]:
        """One shard for each untrained arm, and one for each other arm and seed."""
        return [
            Shard(f"{arm.name}-{number}", (arm.name, str(number)))
            for number in range(self.seeds)
            for arm in self.arms(ctx)
            if number < self._trainings(arm)
        ]

    def _trainings(self, arm: Arm) -> int:
        """Shards of an arm: one for each seed, one alone where there is nothing to draw."""
        if not arm.trained:
            return 1
        return self.seeds if arm.name == CHOSEN else self.other_seeds

    def shard_content(self, ctx: RunContext, shard: Shard) -> Any:
        """Tables, sets, weights, and what the arm is trained with."""
        arm = self._arm(ctx, shard)
        own = ctx.settings.model_copy(update={"train": arm.settings})
        settings = result_settings(own, self.sections)
        del settings["train"]["siamese"]
        return {
            "settings": settings,
            "trained": arm.trained,
            "weights": [ModelStore(ctx.settings.models).digest(name) for name in arm.models],
            "tables": {p.name: sha256_file(p) for p in self.tables(ctx)},
            "benchmarks": {b.name: b.content for b in self.benchmarks},
            "limit": self.limit,
            "depth": ctx.settings.evaluate.depth,
        }

    def estimate(self, ctx: RunContext) -> dict[str, Any]:
        """Trainings, and minutes on two cores; other models than MiniLM by the size of their weights."""
        data = load_core(ctx.paths.core)
        sizes = {s.name: s.size_mb for s in ModelStore(ctx.settings.models).status()}
        texts = sum(len(t.tools) + sum(len(s.queries) for s in t.splits) for t in self._tests(data))
        seconds, trainings = 0.0, 0
        for arm in self.arms(ctx):
            rows = rows_of(data, arm.settings, "train", self.limit)
            plan = plan_batches(rows, arm.settings.batch_size, arm.settings.epochs, ctx.settings.seed)
            size = max(sizes.get(name) or MINILM_MB for name in arm.models) / MINILM_MB
            times = self._trainings(arm)
            trainings += times * arm.trained
            training = SECONDS_PER_ROW * sum(len(b) for _, b in plan) if arm.trained else 0.0
            seconds += times * size * (training + SECONDS_PER_TEXT * texts)
        return {
            "arms": [a.name for a in self.arms(ctx)],
            "seeds": self.seeds,
            "sets": [s.name for t in self._tests(data) for s in t.splits],
            "trainings": trainings,
            "minutes on 2 cores": round(seconds / 60, 1),
        }

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        """Train one arm in a temporary folder, and keep its reciprocal ranks alone."""
        with MODEL_LOCK:
            write_json(directory / RESULT, self._judged(ctx, shard, directory))

    def _judged(self, ctx: RunContext, shard: Shard, directory: Path) -> dict[str, Any]:
        data, arm = load_core(ctx.paths.core), self._arm(ctx, shard)
        settings, seed = arm.settings, ctx.settings.seed + int(shard.ids[1])
        store = ModelStore(ctx.settings.models)
        path, tool_path = (store.path(name, ctx.progress) for name in (arm.models[0], arm.models[-1]))
        if not arm.trained:
            encoder = SentenceEncoder(build_towers(settings, path, tool_path), name=arm.name)
            return {"ranks": {arm.name: self._ranks(ctx, encoder, data)}, "parameters": _size(encoder)}
        rows = rows_of(data, settings, "train", self.limit)
        masked = settings.mask_false_negatives
        steps = len(plan_batches(rows, settings.batch_size, settings.epochs, seed, masked=masked))
        with (
            # Inside the shard's own folder, so that what a killed process leaves is cleared away.
            tempfile.TemporaryDirectory(dir=directory) as scratch,
            ctx.progress.task(f"encoder ablation: {shard.key}", total=steps, unit="steps") as task,
        ):
            start = time.perf_counter()
            result = train_two_tower(
                rows,
                settings,
                query_path=path,
                tool_path=tool_path,
                output=Path(scratch),
                seed=seed,
                on_step=lambda loss: task.advance(1, note=f"loss {loss:.3f}"),
            )
            seconds = time.perf_counter() - start
            encoder = load_two_tower(Path(scratch))
            ranks = {arm.name: self._ranks(ctx, encoder, data)}
            if arm.name == CHOSEN:
                wider = ExpandedEncoder(encoder, expansion_of(rows, encoder), EXPANSION_WEIGHT)
                ranks[EXPANDED] = self._ranks(ctx, wider, data)
        return {
            "ranks": ranks,
            "parameters": _size(encoder),
            "pairs": len(rows),
            "steps": result.steps,
            "precision": result.precision,
            "seconds": round(seconds, 1),
        }

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """The table, from the reciprocal ranks of every arm and seed."""
        data = load_core(ctx.paths.core)
        tests = self._tests(data)
        splits = [split for test in tests for split in test.splits]
        clusters = {name: found for test in tests for name, found in test.clusters.items()}
        found: dict[str, list[dict[str, Any]]] = {}
        facts: dict[str, list[dict[str, Any]]] = {}
        for result in results:
            content = read_json(result.directory / RESULT)
            for name, ranks in content["ranks"].items():
                found.setdefault(name, []).append({"reciprocal_ranks": ranks})
                facts.setdefault(name, []).append(content)
        rows = result_rows(
            found,
            splits,
            clusters,
            seed=ctx.settings.seed,
            against={"against_untrained": UNTRAINED, "against_chosen": CHOSEN},
        )
        arms = self.arms(ctx)
        chosen = next(a for a in arms if a.name == CHOSEN)
        place = arms.index(chosen) + 1
        shown = [*arms[:place], expanded(chosen), *arms[place:]]
        content = {
            "seeds": [ctx.settings.seed + n for n in range(self.seeds)],
            "chosen": CHOSEN,
            "arms": [_arm_facts(arm, facts[arm.name]) for arm in shown],
            "rows": rows,
            "baselines": _baselines(ctx, [(s.set_name, s.split) for s in splits]),
            "sets": [b.facts() for b in self.benchmarks],
            "notes": self._notes(ctx),
        }
        path = write_json(ctx.paths.out / "results" / RESULT, content)
        return StageReport(outputs=[path], rows={"rows": len(rows)}, summary={"arms": len(found)})

    def _arm(self, ctx: RunContext, shard: Shard) -> Arm:
        return next(arm for arm in self.arms(ctx) if arm.name == parent_of(shard.ids[0]))

    def _tests(self, data: EvalData) -> list[Tests]:
        return tests_of(data, self.benchmarks)

    def _ranks(
        self, ctx: RunContext, encoder: SentenceEncoder, data: EvalData
    ) -> dict[str, dict[str, float]]:
        """Split to query to reciprocal rank."""
        found = {}
        for test in self._tests(data):
            run = rank_dense(encoder, all_queries(test.splits), test.tools, ctx.settings.evaluate.depth)
            for split in test.splits:
                judged = evaluate_run(part_of(run, split), split.golds, ("MRR",))
                values = (round(v, DECIMALS) for v in judged.values["MRR"].tolist())
                found[split.name] = dict(zip(judged.query_ids, values, strict=True))
        return found

    def _notes(self, ctx: RunContext) -> list[str]:
        """What a reader of the table has to know."""
        train = ctx.settings.train
        chosen = " and ".join(f"{s} {p}" for s, p in CHOICE)
        return [
            "One choice changed at a time; every arm sees the same training pairs of EcoAgent-Syn.",
            f"Choices were made on {chosen}; the other splits and sets are for reading.",
            "Intervals: 95% percentile bootstrap over tools, whose queries stay together, of the mean over "
            "seeds. p: two-sided, signs flipped by tool, not corrected for the number of comparisons.",
            "Seconds: one training on the machine that wrote this.",
            *(["Trained in bfloat16 where the CPU multiplies it."] if train.cpu_bfloat16 else []),
            *([] if self.seeds > 1 else ["One seed: how much a training varies by chance is left out."]),
            *([f"Training pairs capped at {self.limit}, the first by query id."] if self.limit else []),
        ]


def _size(encoder: SentenceEncoder) -> int:
    return sum(int(p.numel()) for p in encoder.model.parameters())


def _arm_facts(arm: Arm, facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    seconds = [f["seconds"] for f in facts if "seconds" in f]
    return {
        "arm": arm.name,
        "label": arm.label,
        "what": arm.what,
        "encoder": " + ".join(arm.models),
        "towers": arm.settings.towers,
        "pooling": arm.settings.pooling,
        "parameters": facts[0]["parameters"],
        "pairs": facts[0].get("pairs"),
        "steps": facts[0].get("steps"),
        "precision": facts[0].get("precision"),
        "seconds": round(sum(seconds) / len(seconds), 1) if seconds else None,
    }


def _results(ctx: RunContext) -> list[Path]:
    folder = ctx.paths.out / "results"
    return [p for p in (folder / "offline.json", folder / "benchmarks.json") if p.is_file()]


def _baselines(ctx: RunContext, splits: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Rows of Table 1 and of the independent sets that are no encoder of the run's own training."""
    found = []
    for path in _results(ctx):
        for row in read_object(path, {"rows": list})["rows"]:
            place = (row["set"], row.get("split", "test"))
            ours = row["ranker"] in ("rated", "rated_wo_contrastive", "siamese")
            if place in splits and not ours and row.get("status", RUN) == RUN:
                found.append(
                    {
                        "ranker": row["ranker"],
                        "label": row["label"],
                        "set": place[0],
                        "split": place[1],
                        "MRR": row["metrics"]["MRR"],
                        "interval": row["intervals"]["MRR"],
                    }
                )
    return found
