"""Stage ``train``: the two towers on the train split of EcoAgent-Syn."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ecoagent.evaluation.datasets import EvalData, load_core
from ecoagent.metrics import evaluate_run
from ecoagent.models import ModelStore
from ecoagent.retrieval import (
    SentenceEncoder,
    TrainingResult,
    TrainingRow,
    build_two_tower,
    contrastive_loss,
    load_two_tower,
    plan_batches,
    rank_dense,
    train_two_tower,
    training_rows,
    warmup_steps,
)
from ecoagent.runs import (
    RunContext,
    Shard,
    ShardResult,
    Stage,
    StageReport,
    read_json,
    sha256_file,
    write_json,
)
from ecoagent.settings import TrainSettings

MODEL = "model"
"""Folder of the trained towers in the stage's shard."""

RECORD = "training.json"
DECIMALS = 6
VALIDATION_DEPTH = 100

SECONDS_PER_ROW = 0.055
"""Measured for MiniLM towers on 2 cores at 64 tokens with one negative: a basis for estimates."""


def model_folder(ctx: RunContext) -> Path:
    """Where the trained towers of a run are."""
    return ctx.paths.raw / TrainStage.name / "all" / MODEL


def rows_of(
    data: EvalData, settings: TrainSettings, split: str, limit: int | None = None
) -> list[TrainingRow]:
    """Training rows of one split of EcoAgent-Syn; the first ``limit`` by query id, which is a hash."""
    return training_rows(
        data.pairs,
        data.query_texts,
        data.tool_texts,
        data.groups,
        split=split,
        hard_negatives=settings.hard_negatives,
    )[:limit]


def deviations(settings: TrainSettings) -> list[dict[str, Any]]:
    """Settings that differ from the paper's, which are the defaults."""
    paper, here = TrainSettings().model_dump(mode="json"), settings.model_dump(mode="json")
    return [
        {"setting": f"train.{name}", "paper": paper[name], "here": here[name]}
        for name in sorted(here)
        if here[name] != paper[name]
    ]


class TrainStage(Stage):
    """Trains f_Q and f_T (Eq. 1-3); reads the train split, and val at the end."""

    name: ClassVar[str] = "train"
    version: ClassVar[str] = "1"
    sections: ClassVar[tuple[str, ...]] = ("train",)

    def inputs(self, ctx: RunContext) -> list[Path]:
        """Tools, queries, golds and mined pairs."""
        names = ("syn_pairs", "syn_qrels", "syn_queries", "tools")
        return [ctx.paths.core / f"{name}.parquet" for name in names]

    def extra_key(self, ctx: RunContext) -> dict[str, Any]:
        """Digests of the weights the towers start from."""
        store, settings = ModelStore(ctx.settings.models), ctx.settings.train
        return {name: store.digest(name) for name in sorted({settings.query_encoder, settings.tool_encoder})}

    def estimate(self, ctx: RunContext) -> dict[str, Any]:
        """Pairs, steps and minutes on two cores."""
        settings = ctx.settings.train
        rows = rows_of(load_core(ctx.paths.core), settings, "train", ctx.settings.limit)
        plan = plan_batches(rows, settings.batch_size, settings.epochs, ctx.settings.seed)
        seconds = SECONDS_PER_ROW * sum(len(b) for _, b in plan) * settings.max_length / 64
        return {"pairs": len(rows), "steps": len(plan), "minutes on 2 cores": round(seconds / 60, 1)}

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        """Train, validate, and write the towers and the record of the training."""
        settings, seed = ctx.settings.train, ctx.settings.seed
        data = load_core(ctx.paths.core)
        rows = rows_of(data, settings, "train", ctx.settings.limit)
        store = ModelStore(ctx.settings.models)
        query_path = store.path(settings.query_encoder, ctx.progress)
        tool_path = store.path(settings.tool_encoder, ctx.progress)
        steps = len(plan_batches(rows, settings.batch_size, settings.epochs, seed))
        if rows and warmup_steps(settings, steps) >= steps:
            ctx.progress.say(
                f"train: {steps} steps end within the {warmup_steps(settings, steps)} warm-up steps; "
                "set train.warmup_ratio for a run this short"
            )
        untrained = SentenceEncoder(
            build_two_tower(
                query_path,
                tool_path,
                pooling=settings.pooling,
                max_length=settings.max_length,
                query_prefix=settings.query_prefix,
                tool_prefix=settings.tool_prefix,
            ),
            name="untrained",
        )
        before = self._validate(ctx, untrained, data)
        del untrained
        with ctx.progress.task("train: steps", total=steps, unit="steps") as task:
            result = train_two_tower(
                rows,
                settings,
                query_path=query_path,
                tool_path=tool_path,
                output=directory / MODEL,
                seed=seed,
                on_step=lambda loss: task.advance(1, note=f"loss {loss:.3f}"),
            )
        after = self._validate(ctx, load_two_tower(directory / MODEL), data)
        write_json(directory / RECORD, _record(ctx, rows, result, before, after, directory / MODEL))

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """Copy the record to core; the towers stay where they are."""
        folder = results[0].directory
        record = read_json(folder / RECORD)
        path = write_json(ctx.paths.core / RECORD, record)
        weights = sorted(p for p in (folder / MODEL).rglob("*") if p.is_file())
        return StageReport(
            outputs=[path, *weights],
            rows={"pairs": record["pairs"], "steps": len(record["losses"])},
            summary={"validation (before -> after)": _shown(record["validation"])},
        )

    def _validate(self, ctx: RunContext, encoder: SentenceEncoder, data: EvalData) -> dict[str, float | None]:
        """Loss over the pairs of val, and MRR of its queries among all tools; none where val is empty."""
        settings = ctx.settings.train
        rows = rows_of(data, settings, "val", ctx.settings.limit)
        queries = data.judged("syn", "val", ctx.settings.limit)
        if not rows or not len(queries):
            return {"loss": None, "MRR": None}
        loss = contrastive_loss(
            encoder,
            rows,
            batch_size=settings.batch_size,
            temperature=settings.temperature,
            seed=ctx.settings.seed,
        )
        run = rank_dense(encoder, queries, data.tools, VALIDATION_DEPTH)
        found = evaluate_run(run, {query: data.golds[query] for query in queries.ids}, ("MRR",))
        return {"loss": round(loss, DECIMALS), "MRR": round(found.means()["MRR"], DECIMALS)}


def _shown(validation: dict[str, Any]) -> dict[str, str]:
    before, after = validation["untrained"], validation["trained"]
    shown = {name: f"{before[name]:.3f} -> {after[name]:.3f}" for name in before if after[name] is not None}
    return {**shown, "queries": f"{validation['queries']}"}


def _record(
    ctx: RunContext,
    rows: list[TrainingRow],
    result: TrainingResult,
    before: dict[str, float | None],
    after: dict[str, float | None],
    model: Path,
) -> dict[str, Any]:
    """``core/training.json``: everything but times."""
    settings = ctx.settings.train
    return {
        "settings": settings.model_dump(mode="json"),
        "deviations_from_paper": deviations(settings),
        "seed": ctx.settings.seed,
        "pairs": len(rows),
        "queries": len({row.query_id for row in rows}),
        "tools": len({row.tool_id for row in rows}),
        "negatives": sum(len(row.negatives) for row in rows),
        "precision": result.precision,
        "warmup_steps": result.warmup_steps,
        "losses": [round(loss, DECIMALS) for loss in result.losses],
        "epochs": result.epochs,
        "batch_sizes": result.batch_sizes,
        "validation": {"untrained": before, "trained": after, "queries": _validated(ctx)},
        "weights": {
            p.relative_to(model).as_posix(): sha256_file(p) for p in sorted(model.rglob("*.safetensors"))
        },
    }


def _validated(ctx: RunContext) -> int:
    return len(load_core(ctx.paths.core, need_pairs=False).judged("syn", "val", ctx.settings.limit))
