"""Stage ``train``: the two towers on the train split of EcoAgent-Syn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ecoagent.evaluation.datasets import EvalData, load_core
from ecoagent.models import ModelStore
from ecoagent.retrieval import (
    Measured,
    SentenceEncoder,
    TrainingResult,
    TrainingRow,
    Validation,
    build_two_tower,
    load_two_tower,
    plan_batches,
    train_two_tower,
    training_rows,
    warmup_steps,
)
from ecoagent.runs import (
    NUMBER,
    Kind,
    RunContext,
    Shard,
    ShardResult,
    Stage,
    StageReport,
    read_json,
    read_jsonl,
    sha256_file,
    with_fields,
    write_json,
)
from ecoagent.settings import TrainSettings, UserError, result_settings

MODEL = "model"
"""Folder of the trained towers in the stage's shard."""

RECORD = "training.json"
DECIMALS = 6
CHECKPOINTS = "checkpoints"
"""Folder of the stage's unfinished training; the stage removes it when its shard is done."""

NOT_RESULTS = {"checkpoint_every", "teacher_scores"}
"""Settings that are no hyperparameters; the teacher's scores are known by their digest."""

SECONDS_PER_ROW = 0.055
"""Measured for MiniLM towers on 2 cores at 64 tokens with one negative: a basis for estimates."""


def model_folder(ctx: RunContext) -> Path:
    """Where the trained towers of a run are."""
    return ctx.paths.raw / TrainStage.name / "all" / MODEL


def rows_of(
    data: EvalData,
    settings: TrainSettings,
    split: str,
    limit: int | None = None,
    teacher: Mapping[tuple[str, str], float] | None = None,
) -> list[TrainingRow]:
    """Training rows of one split of EcoAgent-Syn; the first ``limit`` by query id, which is a hash."""
    return training_rows(
        data.pairs,
        data.query_texts,
        data.tool_texts,
        data.groups,
        split=split,
        hard_negatives=settings.hard_negatives,
        teacher=teacher,
    )[:limit]


def teacher_scores(path: Path | None) -> dict[tuple[str, str], float]:
    """Scores of ``train.teacher_scores`` by query and tool id; none without a file.

    Raises:
        UserError: the file is missing, or a line lacks a field.
    """
    if path is None:
        return {}
    remedy = "give JSON lines with query_id, tool_id and score in train.teacher_scores"
    fields: dict[str, Kind] = {"query_id": str, "tool_id": str, "score": NUMBER}
    found = {}
    for number, row in enumerate(read_jsonl(path, remedy=remedy), 1):
        with_fields(path, row, fields, within=f"line {number}", remedy=remedy)
        found[row["query_id"], row["tool_id"]] = float(row["score"])
    return found


def _teacher_digest(path: Path | None) -> str | None:
    if path is not None and not path.is_file():
        raise UserError(f"train.teacher_scores: {path} is not there", remedy="give the file, or leave it out")
    return None if path is None else sha256_file(path)


def deviations(settings: TrainSettings) -> list[dict[str, Any]]:
    """Settings that differ from the paper's, which are the defaults."""
    paper, here = (s.model_dump(mode="json", exclude=NOT_RESULTS) for s in (TrainSettings(), settings))
    return [
        {"setting": f"train.{name}", "paper": paper[name], "here": here[name]}
        for name in sorted(here)
        if here[name] != paper[name]
    ]


class TrainStage(Stage):
    """Trains f_Q and f_T (Eq. 1-3); reads the train split, and val at the end."""

    name: ClassVar[str] = "train"
    version: ClassVar[str] = "2"
    sections: ClassVar[tuple[str, ...]] = ("train",)

    def inputs(self, ctx: RunContext) -> list[Path]:
        """Tools, queries, golds and mined pairs."""
        names = ("syn_pairs", "syn_qrels", "syn_queries", "tools")
        return [ctx.paths.core / f"{name}.parquet" for name in names]

    def extra_key(self, ctx: RunContext) -> dict[str, Any]:
        """Digests of the weights the towers start from, and of the teacher's scores."""
        store, settings = ModelStore(ctx.settings.models), ctx.settings.train
        names = sorted({settings.query_encoder, settings.tool_encoder})
        key: dict[str, Any] = {name: store.digest(name) for name in names}
        if settings.teacher_scores is not None:
            key["teacher_scores"] = _teacher_digest(settings.teacher_scores)
        return key

    def estimate(self, ctx: RunContext) -> dict[str, Any]:
        """Pairs, steps and minutes on two cores."""
        settings = ctx.settings.train
        rows = rows_of(load_core(ctx.paths.core), settings, "train", ctx.settings.limit)
        plan = _plan(rows, settings, ctx.settings.seed)
        seconds = SECONDS_PER_ROW * sum(len(b) for _, b in plan) * settings.max_length / 64
        return {"pairs": len(rows), "steps": len(plan), "minutes on 2 cores": round(seconds / 60, 1)}

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        """Train, validate, and write the towers and the record of the training."""
        settings, seed, limit = ctx.settings.train, ctx.settings.seed, ctx.settings.limit
        data = load_core(ctx.paths.core)
        rows = rows_of(data, settings, "train", limit, teacher_scores(settings.teacher_scores))
        store = ModelStore(ctx.settings.models)
        query_path = store.path(settings.query_encoder, ctx.progress)
        tool_path = store.path(settings.tool_encoder, ctx.progress)
        steps = len(_plan(rows, settings, seed))
        if rows and warmup_steps(settings, steps) >= steps:
            ctx.progress.say(
                f"train: {steps} steps end within the {warmup_steps(settings, steps)} warm-up steps; "
                "set train.warmup_ratio for a run this short"
            )
        validation = validation_of(data, settings, limit)
        before: Measured | None = None
        if settings.validate_every is None or validation.empty:
            towers = build_two_tower(
                query_path,
                tool_path,
                pooling=settings.pooling,
                max_length=settings.max_length,
                query_prefix=settings.query_prefix,
                tool_prefix=settings.tool_prefix,
            )
            before = validation.measure(SentenceEncoder(towers, name="untrained"), settings, seed)
            del towers
        with ctx.progress.task("train: steps", total=steps, unit="steps") as task:
            result = train_two_tower(
                rows,
                settings,
                query_path=query_path,
                tool_path=tool_path,
                output=directory / MODEL,
                seed=seed,
                on_step=lambda loss: task.advance(1, note=f"loss {loss:.3f}"),
                validation=None if validation.empty else validation,
                checkpoints=ctx.paths.raw / self.name / CHECKPOINTS,
            )
        if before is None:
            before = {name: result.validations[0][name] for name in ("loss", "MRR")}
        after = validation.measure(load_two_tower(directory / MODEL), settings, seed)
        found: dict[str, Measured | int] = {
            "untrained": before,
            "trained": after,
            "queries": len(validation.queries),
        }
        write_json(directory / RECORD, _record(ctx, rows, result, found, directory / MODEL))

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


def validation_of(data: EvalData, settings: TrainSettings, limit: int | None = None) -> Validation:
    """Pairs and queries of Syn val, among all tools: what towers are validated on, and no other split."""
    return Validation(
        rows_of(data, settings, "val", limit), data.judged("syn", "val", limit), data.tools, data.golds
    )


def _plan(rows: list[TrainingRow], settings: TrainSettings, seed: int) -> list[tuple[int, list[int]]]:
    masked = settings.mask_false_negatives
    return plan_batches(rows, settings.batch_size, settings.epochs, seed, masked=masked)


def _shown(validation: dict[str, Any]) -> dict[str, str]:
    before, after = validation["untrained"], validation["trained"]
    shown = {name: f"{before[name]:.3f} -> {after[name]:.3f}" for name in before if after[name] is not None}
    return {**shown, "queries": f"{validation['queries']}"}


def _record(
    ctx: RunContext,
    rows: list[TrainingRow],
    result: TrainingResult,
    validation: dict[str, Measured | int],
    model: Path,
) -> dict[str, Any]:
    """``core/training.json``: everything but times."""
    settings = ctx.settings.train
    stopped = result.steps < result.planned_steps
    return {
        "settings": result_settings(ctx.settings, ("train",))["train"],
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
        "validation": validation,
        "curve": result.validations,
        "teacher_scores": _teacher_digest(settings.teacher_scores),
        "stopping": {
            "metric": settings.early_stopping,
            "planned_steps": result.planned_steps,
            "stopped_early": stopped,
            "kept_step": result.kept_step,
        },
        "weights": {
            p.relative_to(model).as_posix(): sha256_file(p) for p in sorted(model.rglob("*.safetensors"))
        },
    }
