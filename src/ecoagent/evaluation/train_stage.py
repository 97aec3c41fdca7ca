"""Stage ``train``: RATED's two towers, and the siamese encoder, on the train split of EcoAgent-Syn."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ecoagent.evaluation.datasets import EvalData, load_core
from ecoagent.models import ModelStore
from ecoagent.retrieval import (
    EXPANSION,
    Measured,
    SentenceEncoder,
    TrainingResult,
    TrainingRow,
    Validation,
    build_towers,
    expansion_of,
    find_ranker,
    load_two_tower,
    plan_batches,
    save_expansion,
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
    input_digests,
    read_json,
    read_jsonl,
    sha256_file,
    with_fields,
    write_json,
)
from ecoagent.settings import Settings, TrainSettings, UserError, result_settings

MODEL_LOCK = threading.RLock()
"""One encoder at a time: each uses every core and draws from one random state, and their libraries are not
safe to import twice at once."""

MODEL = "model"
"""Folder of the trained towers in the stage's shard."""

RATED, SIAMESE = "all", "siamese"
"""Shards, one for each encoder."""
RECORD, SIAMESE_RECORD = "training.json", "training_siamese.json"
RECORDS = {RATED: RECORD, SIAMESE: SIAMESE_RECORD}
"""What ``core`` holds of each training."""
DECIMALS = 6
CHECKPOINTS = "checkpoints"
"""Folder of the stage's unfinished trainings; the stage removes it when its shards are done."""

NOT_RESULTS = {"checkpoint_every", "teacher_scores", "siamese"}
"""Settings that are no hyperparameters of the towers; the teacher's scores are known by their digest."""

MINILM_MB = 90.9
SECONDS_PER_ROW = 0.055
"""Measured for MiniLM towers on 2 cores at 64 tokens with one negative: a basis for estimates."""


def model_folder(ctx: RunContext, shard: str = RATED) -> Path:
    """Where the trained towers of a run are, or its siamese encoder."""
    return ctx.paths.raw / TrainStage.name / shard / MODEL


def trains_siamese(settings: Settings) -> bool:
    """Whether the siamese encoder's row is asked for and its weights can be had here."""
    if SIAMESE not in settings.evaluate.rankers:
        return False
    store = ModelStore(settings.models)
    return find_ranker(SIAMESE).fault(settings.train, settings.baselines, store) is None


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


def teacher_digest(path: Path | None) -> str | None:
    """SHA-256 of ``train.teacher_scores``; none without a file.

    Raises:
        UserError: the file is missing.
    """
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
    """Trains f_Q and f_T (Eq. 1-3), and the siamese encoder where its row is asked for.

    Reads the train split, and val at the end.
    """

    name: ClassVar[str] = "train"
    version: ClassVar[str] = "3"
    sections: ClassVar[tuple[str, ...]] = ("train",)
    shards_alone: ClassVar[bool] = True  # a setting of one encoder must not have the other trained again

    def inputs(self, ctx: RunContext) -> list[Path]:
        """Tools, queries, golds and mined pairs."""
        names = ("syn_pairs", "syn_qrels", "syn_queries", "tools")
        return [ctx.paths.core / f"{name}.parquet" for name in names]

    def extra_key(self, ctx: RunContext) -> dict[str, Any]:
        """Digests of the weights the encoders start from, and of the teacher's scores."""
        return {shard.key: self._weights(ctx, shard) for shard in self.plan(ctx)}

    def plan(self, ctx: RunContext) -> list[Shard]:
        """One shard an encoder."""
        return [Shard(RATED), *([Shard(SIAMESE)] if trains_siamese(ctx.settings) else [])]

    def shard_content(self, ctx: RunContext, shard: Shard) -> Any:
        """Tables, weights, and the settings of this encoder alone."""
        own = ctx.settings.model_copy(update={"train": _settings_of(ctx, shard)})
        settings = result_settings(own, self.sections)
        del settings["train"]["siamese"]
        if shard.key == SIAMESE and ctx.settings.train.siamese.expansion_weight > 0:
            settings["expansion"] = True
        return [input_digests(self, ctx), settings, self._weights(ctx, shard)]

    def estimate(self, ctx: RunContext) -> dict[str, Any]:
        """Pairs, steps and minutes on two cores."""
        data, found = load_core(ctx.paths.core), {}
        sizes = {s.name: s.size_mb for s in ModelStore(ctx.settings.models).status()}
        for shard in self.plan(ctx):
            settings = _settings_of(ctx, shard)
            rows = rows_of(data, settings, "train", ctx.settings.limit)
            plan = training_plan(rows, settings, ctx.settings.seed)
            seconds = SECONDS_PER_ROW * sum(len(b) for _, b in plan) * min(settings.max_length, 64) / 64
            # Other encoders than MiniLM by the size of their weights.
            seconds *= (sizes.get(settings.query_encoder) or MINILM_MB) / MINILM_MB
            found[shard.key] = {
                "pairs": len(rows),
                "steps": len(plan),
                "minutes on 2 cores": round(seconds / 60, 1),
            }
        return found[RATED] if len(found) == 1 else found

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        """Train, validate, and write the encoder and the record of the training."""
        with MODEL_LOCK:
            self._train(ctx, shard, directory)

    def _train(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        settings, seed, limit = _settings_of(ctx, shard), ctx.settings.seed, ctx.settings.limit
        title = "train" if shard.key == RATED else f"train {shard.key}"
        data = load_core(ctx.paths.core)
        rows = rows_of(data, settings, "train", limit, teacher_scores(settings.teacher_scores))
        store = ModelStore(ctx.settings.models)
        query_path = store.path(settings.query_encoder, ctx.progress)
        tool_path = store.path(settings.tool_encoder, ctx.progress)
        steps = len(training_plan(rows, settings, seed))
        if rows and warmup_steps(settings, steps) >= steps:
            ctx.progress.say(
                f"{title}: {steps} steps end within the {warmup_steps(settings, steps)} warm-up steps; "
                "set train.warmup_ratio for a run this short"
            )
        validation = validation_of(data, settings, limit)
        before: Measured | None = None
        if settings.validate_every is None or validation.empty:
            towers = build_towers(settings, query_path, tool_path)
            before = validation.measure(SentenceEncoder(towers, name="untrained"), settings, seed)
            del towers
        with ctx.progress.task(f"{title}: steps", total=steps, unit="steps") as task:
            result = train_two_tower(
                rows,
                settings,
                query_path=query_path,
                tool_path=tool_path,
                output=directory / MODEL,
                seed=seed,
                on_step=lambda loss: task.advance(1, note=f"loss {loss:.3f}"),
                validation=None if validation.empty else validation,
                checkpoints=ctx.paths.raw / self.name / CHECKPOINTS / shard.key,
            )
        if before is None:
            before = {name: result.validations[0][name] for name in ("loss", "MRR")}
        encoder = load_two_tower(directory / MODEL)
        after = validation.measure(encoder, settings, seed)
        found: dict[str, Measured | int] = {
            "untrained": before,
            "trained": after,
            "queries": len(validation.queries),
        }
        if shard.key == SIAMESE and ctx.settings.train.siamese.expansion_weight > 0:
            save_expansion(directory / MODEL / EXPANSION, expansion_of(rows, encoder))
        write_json(directory / RECORD, _record(ctx, settings, rows, result, found, directory / MODEL))

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """Copy the records to core; the encoders stay where they are."""
        outputs: list[Path] = []
        shown: dict[str, Any] = {}
        counts: dict[str, int] = {}
        for result in results:
            key = result.shard.key
            record = read_json(result.directory / RECORD)
            outputs.append(write_json(ctx.paths.core / RECORDS[key], record))
            outputs += sorted(p for p in (result.directory / MODEL).rglob("*") if p.is_file())
            name = "" if key == RATED else f"{key} "
            counts |= {f"{name}pairs": record["pairs"], f"{name}steps": len(record["losses"])}
            shown[f"{name}validation (before -> after)"] = _shown(record["validation"])
        if SIAMESE not in {r.shard.key for r in results}:
            (ctx.paths.core / SIAMESE_RECORD).unlink(missing_ok=True)
        return StageReport(outputs=outputs, rows=counts, summary=shown)

    def _weights(self, ctx: RunContext, shard: Shard) -> dict[str, Any]:
        store, settings = ModelStore(ctx.settings.models), _settings_of(ctx, shard)
        key: dict[str, Any] = {
            name: store.digest(name) for name in sorted({settings.query_encoder, settings.tool_encoder})
        }
        if settings.teacher_scores is not None:
            key["teacher_scores"] = teacher_digest(settings.teacher_scores)
        return key


def _settings_of(ctx: RunContext, shard: Shard) -> TrainSettings:
    """What an encoder is trained with."""
    train = ctx.settings.train
    return train.as_siamese if shard.key == SIAMESE else train


def validation_of(data: EvalData, settings: TrainSettings, limit: int | None = None) -> Validation:
    """Pairs and queries of Syn val, among all tools: what towers are validated on, and no other split."""
    return Validation(
        rows_of(data, settings, "val", limit), data.judged("syn", "val", limit), data.tools, data.golds
    )


def training_plan(rows: list[TrainingRow], settings: TrainSettings, seed: int) -> list[tuple[int, list[int]]]:
    """Batches of a training; see ``plan_batches``."""
    masked = settings.mask_false_negatives
    return plan_batches(rows, settings.batch_size, settings.epochs, seed, masked=masked)


def _shown(validation: dict[str, Any]) -> dict[str, str]:
    before, after = validation["untrained"], validation["trained"]
    shown = {name: f"{before[name]:.3f} -> {after[name]:.3f}" for name in before if after[name] is not None}
    return {**shown, "queries": f"{validation['queries']}"}


def _record(
    ctx: RunContext,
    settings: TrainSettings,
    rows: list[TrainingRow],
    result: TrainingResult,
    validation: dict[str, Measured | int],
    model: Path,
) -> dict[str, Any]:
    """``core/training.json``: everything but times."""
    stopped = result.steps < result.planned_steps
    return {
        "settings": settings.model_dump(mode="json", exclude=NOT_RESULTS),
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
        "teacher_scores": teacher_digest(settings.teacher_scores),
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
