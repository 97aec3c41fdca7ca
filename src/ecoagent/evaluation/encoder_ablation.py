"""What each choice of the encoder's training does, on the build's splits and on independent sets.

Point of reference are the encoder as it was before training, and the siamese encoder as it is set. All
arms see the same pairs. Choices are made on validation splits; the others are there to be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from ecoagent.evaluation.benchmark_stage import slug
from ecoagent.evaluation.benchmarks import SPLIT, Benchmark
from ecoagent.evaluation.datasets import SETS, EvalData, load_core
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
    own_tests,
    set_tests,
)
from ecoagent.evaluation.encoder_trainings import TABLES, Trainings
from ecoagent.evaluation.offline import DECIMALS, RUN, JudgedSplit, all_queries, part_of
from ecoagent.evaluation.round_trip_table import result_rows
from ecoagent.evaluation.train_stage import MINILM_MB, MODEL_LOCK, SECONDS_PER_ROW, training_plan
from ecoagent.metrics import evaluate_run
from ecoagent.models import ModelStore
from ecoagent.retrieval import Encoder, ExpandedEncoder, rank_dense
from ecoagent.runs import (
    RunContext,
    Shard,
    ShardResult,
    Stage,
    StageReport,
    missing_shards,
    read_json,
    read_object,
    sha256_file,
    write_json,
)
from ecoagent.settings import UserError

RESULT = "encoder_ablation.json"
ASKED = "encoder_ablation_asked.json"
SECONDS_PER_TEXT = 0.012
"""Encoding of one text by MiniLM on 2 cores, for estimates."""


class EncoderAblation(Stage):
    """Ranks with every arm, one shard an arm, seed and set, and compares them.

    Encoders come from ``Trainings``, which keeps them: a further seed, set or model has nothing else trained.
    """

    name: ClassVar[str] = "encoder_ablation"
    version: ClassVar[str] = "2"
    sections: ClassVar[tuple[str, ...]] = ("train",)
    shards_alone: ClassVar[bool] = True

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
        """
        Raises:
            UserError: a collection is called as a set of the build is.
        """
        self.benchmarks, self.seeds = {b.name: b for b in benchmarks}, seeds
        for name in SETS:
            if name in self.benchmarks:
                raise UserError(
                    f"a collection is called {name!r}, as a set of the build is", remedy="rename it"
                )
        self.other_seeds = seeds if other_seeds is None else min(seeds, other_seeds)
        self.encoders, self.only = tuple(encoders), frozenset(only)
        self.trainings = Trainings(limit)

    def arms(self, ctx: RunContext) -> list[Arm]:
        """The arms asked for; the two that others are compared with are always among them."""
        found = arms_of(ctx.settings.train, self.encoders)
        if not self.only:
            return found
        return [a for a in found if a.name in self.only | {UNTRAINED, CHOSEN}]

    def prepare(self, ctx: RunContext, *, anew: bool = False) -> None:
        """Write what was asked into the run, where it counts as an input.

        Args:
            ctx: the run.
            anew: forget the trainings of the arms asked for.
        """
        asked = {
            "benchmarks": {name: b.content for name, b in self.benchmarks.items()},
            "seeds": [self.seeds, self.other_seeds],
            "encoders": list(self.encoders),
            "only": sorted(self.only),
            "limit": self.trainings.limit(ctx),
        }
        write_json(ctx.paths.raw / ASKED, asked)
        self.trainings.begin(ctx)
        for arm, number in self._planned(ctx) if anew else []:
            self.trainings.forget(ctx, arm, number)

    def tables(self, ctx: RunContext) -> list[Path]:
        """The tables of the run that are read."""
        real = ("real_qrels", "real_queries") if (ctx.paths.core / "real_queries.parquet").is_file() else ()
        return [ctx.paths.core / f"{name}.parquet" for name in (*TABLES, *real)]

    def inputs(self, ctx: RunContext) -> list[Path]:
        """The tables, and what was asked; baselines are shown from the results that are there."""
        return [*self.tables(ctx), ctx.paths.raw / ASKED, *_results(ctx)]

    def extra_key(self, ctx: RunContext) -> dict[str, Any]:
        """What the arms' encoders depend on."""
        return {f"{arm.name}-{n}": self.trainings.key(ctx, arm, n) for arm, n in self._planned(ctx)}

    def plan(self, ctx: RunContext) -> list[Shard]:
        """A shard for each arm, seed and set, the build's own splits as one set; those of an arm together."""
        return [
            Shard(
                f"{arm.name}-{number}+{slug(name)}" if name else f"{arm.name}-{number}",
                (arm.name, str(number), name),
            )
            for arm, number in self._planned(ctx)
            for name in ("", *self.benchmarks)
        ]

    def _planned(self, ctx: RunContext) -> list[tuple[Arm, int]]:
        """Every arm with the numbers of its trainings."""
        arms = self.arms(ctx)
        return [(arm, n) for n in range(self.seeds) for arm in arms if n < self._trainings(arm)]

    def _trainings(self, arm: Arm) -> int:
        """Trainings of an arm: one for each seed, one alone where there is nothing to draw."""
        if not arm.trained:
            return 1
        return self.seeds if arm.name == CHOSEN else self.other_seeds

    def shard_content(self, ctx: RunContext, shard: Shard) -> Any:
        """The encoder, what it is judged on, and how deep."""
        name = shard.ids[2]
        return {
            "encoder": self.trainings.key(ctx, *self._trained(ctx, shard)),
            "judged": self.benchmarks[name].content
            if name
            else {p.name: sha256_file(p) for p in self.tables(ctx) if p.stem != "syn_pairs"},
            "depth": ctx.settings.evaluate.depth,
        }

    def estimate(self, ctx: RunContext) -> dict[str, Any]:
        """What is still to be done, in minutes on two cores; models by the size of their weights."""
        data = load_core(ctx.paths.core)
        sizes = {s.name: s.size_mb for s in ModelStore(ctx.settings.models).status()}
        tests = dict(zip(("", *self.benchmarks), self._tests(data), strict=True))
        arms = self.arms(ctx)
        size = {arm.name: max(sizes.get(name) or MINILM_MB for name in arm.models) for arm in arms}
        texts = {n: len(t.tools) + sum(len(s.queries) for s in t.splits) for n, t in tests.items()}
        seconds, new = 0.0, set()
        for shard in missing_shards(self, ctx):
            arm, number = self._trained(ctx, shard)
            seconds += SECONDS_PER_TEXT * texts[shard.ids[2]] * size[arm.name] / MINILM_MB
            if (arm.name, number) in new or not arm.trained or self.trainings.kept(ctx, arm, number):
                continue
            new.add((arm.name, number))
            rows = self.trainings.rows(ctx, arm, data)
            plan = training_plan(rows, arm.settings, ctx.settings.seed + number)
            seconds += SECONDS_PER_ROW * sum(len(b) for _, b in plan) * size[arm.name] / MINILM_MB
        towers = {arm.name: 2 if arm.settings.towers == "two" else 1 for arm in arms}
        return {
            "arms": [arm.name for arm in arms],
            "seeds": self.seeds,
            "sets": [s.name for t in tests.values() for s in t.splits],
            "trainings": len(new),
            "MB of weights": round(sum(size[name] * towers[name] for name, _ in new)),
            "minutes on 2 cores": round(seconds / 60, 1),
        }

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        """Rank with one encoder, trained if it is not yet, and keep the reciprocal ranks alone."""
        arm, number = self._trained(ctx, shard)
        name = shard.ids[2]
        with MODEL_LOCK:
            ready = self.trainings.find(ctx, arm, number)
            test = set_tests(self.benchmarks[name]) if name else own_tests(load_core(ctx.paths.core))
            ranks = {arm.name: _ranks(ctx, ready.encoder, test)}
            if arm.name == CHOSEN:
                wider = ExpandedEncoder(ready.encoder, ready.expansion, EXPANSION_WEIGHT)
                ranks[EXPANDED] = _ranks(ctx, wider, test)
        write_json(directory / RESULT, {"ranks": ranks, "facts": ready.facts})

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """The table, from the reciprocal ranks of every arm, seed and set."""
        tests = self._tests(load_core(ctx.paths.core))
        splits = [split for test in tests for split in test.splits]
        clusters = {name: found for test in tests for name, found in test.clusters.items()}
        found: dict[str, dict[str, dict[str, Any]]] = {}
        facts: dict[str, dict[str, dict[str, Any]]] = {}
        for result in results:
            content, number = read_json(result.directory / RESULT), result.shard.ids[1]
            for name, ranks in content["ranks"].items():
                run = found.setdefault(name, {}).setdefault(number, {"reciprocal_ranks": {}})
                run["reciprocal_ranks"].update(ranks)
                facts.setdefault(name, {})[number] = content["facts"]
        arms = self.arms(ctx)
        place = next(n for n, arm in enumerate(arms) if arm.name == CHOSEN) + 1
        arms.insert(place, expanded(arms[place - 1]))
        rows = result_rows(
            {arm.name: list(found[arm.name].values()) for arm in arms},
            splits,
            clusters,
            seed=ctx.settings.seed,
            against={"against_untrained": UNTRAINED, "against_chosen": CHOSEN},
        )
        content = {
            "seeds": [ctx.settings.seed + n for n in range(self.seeds)],
            "chosen": CHOSEN,
            "arms": [_arm_facts(arm, list(facts[arm.name].values())) for arm in arms],
            "rows": rows,
            "baselines": self._baselines(ctx, splits),
            "sets": [b.facts() for b in self.benchmarks.values()],
            "notes": self._notes(ctx),
        }
        path = write_json(ctx.paths.out / "results" / RESULT, content)
        return StageReport(outputs=[path], rows={"rows": len(rows)}, summary={"arms": len(found)})

    def _trained(self, ctx: RunContext, shard: Shard) -> tuple[Arm, int]:
        """A shard's arm, and the number of its training."""
        return next(arm for arm in self.arms(ctx) if arm.name == shard.ids[0]), int(shard.ids[1])

    def _tests(self, data: EvalData) -> list[Tests]:
        """What every arm is judged on: the build's splits, then each set."""
        return [own_tests(data), *map(set_tests, self.benchmarks.values())]

    def _notes(self, ctx: RunContext) -> list[str]:
        """What a reader of the table has to know."""
        train, limit = ctx.settings.train, self.trainings.limit(ctx)
        chosen = " and ".join(f"{s} {p}" for s, p in CHOICE)
        return [
            "One choice changed at a time; every arm sees the same training pairs of EcoAgent-Syn.",
            f"Choices were made on {chosen}, with samples of metatool and toolbench beside them; the other "
            "splits and sets are for reading.",
            "Intervals: 95% percentile bootstrap over tools, whose queries stay together, of the mean over "
            "seeds. p: two-sided, signs flipped by tool, not corrected for the number of comparisons.",
            "Seconds: one training on the machine that wrote this.",
            *(["Trained in bfloat16 where the CPU multiplies it."] if train.cpu_bfloat16 else []),
            *([] if self.seeds > 1 else ["One seed: how much a training varies by chance is left out."]),
            *([f"Training pairs capped at {limit}, the first by query id."] if limit else []),
        ]

    def _baselines(self, ctx: RunContext, splits: Sequence[JudgedSplit]) -> list[dict[str, Any]]:
        """Rows of Table 1 and of the independent sets that are no encoder of the run's own training.

        Those alone that were judged on the same queries, without instructions.
        """
        sizes = {(s.set_name, s.split): len(s.queries) for s in splits}
        found = []
        for path in _results(ctx):
            content = read_object(path, {"rows": list})
            known = {facts.get("set"): facts.get("content") for facts in content.get("sets", [])}
            for row in content["rows"]:
                place = (row["set"], row.get("split", SPLIT))
                ours = row["ranker"] in ("rated", "rated_wo_contrastive", "siamese")
                if ours or row.get("status", RUN) != RUN or row.get("asked", "query") != "query":
                    continue
                benchmark = self.benchmarks.get(row["set"])
                if benchmark is not None and known.get(row["set"]) != benchmark.content:
                    continue
                if sizes.get(place) == row["n_queries"]:
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


def _ranks(ctx: RunContext, encoder: Encoder, test: Tests) -> dict[str, dict[str, float]]:
    """Split to query to reciprocal rank."""
    run = rank_dense(encoder, all_queries(test.splits), test.tools, ctx.settings.evaluate.depth)
    found = {}
    for split in test.splits:
        judged = evaluate_run(part_of(run, split), split.golds, ("MRR",))
        values = (round(v, DECIMALS) for v in judged.values["MRR"].tolist())
        found[split.name] = dict(zip(judged.query_ids, values, strict=True))
    return found


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
