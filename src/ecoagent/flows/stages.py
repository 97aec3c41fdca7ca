"""The order of the stages, and how one of them runs as a Prefect flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from prefect import task
from prefect.futures import PrefectFuture
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from ecoagent.audit.stage import AuditStage
from ecoagent.crawlers.normalize_stage import NormalizeStage
from ecoagent.crawlers.stage import CrawlStage
from ecoagent.evaluation.stage import EvaluateStage
from ecoagent.evaluation.train_stage import TrainStage
from ecoagent.labeling.stage import LabelStage
from ecoagent.publish.stage import PublishStage
from ecoagent.reliability.stage import ScoreStage
from ecoagent.report.stage import ReportStage
from ecoagent.runs import Shard, Stage, StageOutcome, execute
from ecoagent.runs.context import RunContext
from ecoagent.runs.stage import Mapper
from ecoagent.settings import Settings, UserError
from ecoagent.synthesis.stage import SynthesizeStage

STAGES: tuple[type[Stage], ...] = (
    CrawlStage,
    NormalizeStage,
    ScoreStage,
    SynthesizeStage,
    LabelStage,
    TrainStage,
    EvaluateStage,
    AuditStage,
    PublishStage,
    ReportStage,
)
STAGE_NAMES: tuple[str, ...] = tuple(s.name for s in STAGES)


def stage_named(name: str) -> Stage:
    """The stage called ``name``.

    Raises:
        UserError: there is none.
    """
    for stage in STAGES:
        if stage.name == name:
            return stage()
    raise UserError(f"unknown stage {name!r}", remedy=f"use one of {', '.join(STAGE_NAMES)}")


def runner(workers: int) -> TaskRunner[PrefectFuture[Any]]:
    """Task runner for shard tasks: threads, since work inside a shard is native code or waiting."""
    pool: Any = ThreadPoolTaskRunner(max_workers=workers)
    return cast("TaskRunner[PrefectFuture[Any]]", pool)


def as_tasks(name: str) -> Mapper:
    """Mapper that runs each shard as one Prefect task; tasks take a key and give a path.

    Nothing is cached by Prefect: shard markers of ``ecoagent.runs`` decide what is done.
    """

    def mapper(work: Callable[[Shard], str], shards: Sequence[Shard]) -> None:
        by_key = {shard.key: shard for shard in shards}

        def run(key: str) -> str:
            return work(by_key[key])

        decorate = task(name=f"{name}-shard", task_run_name=f"{name}-{{key}}", persist_result=False)
        shard_task = decorate(run)
        futures = [shard_task.submit(key) for key in by_key]
        for future in futures:
            future.wait()
        for future in futures:
            future.result()

    return mapper


def run_stage(name: str, ctx: RunContext, *, force: bool = False) -> StageOutcome:
    """Run one stage inside the current flow, its shards as tasks or on the cluster of ``flow.runner``."""
    return execute(stage_named(name), ctx, force=force, mapper=mapper_of(name, ctx.settings))


def mapper_of(name: str, settings: Settings) -> Mapper:
    """What runs the shards of a stage: Prefect tasks, or a Ray cluster where the settings say so."""
    if settings.flow.runner == "ray":
        # Only then: Ray is an extra.
        from ecoagent.flows.ray_shards import ON_RAY, ray_mapper

        if name in ON_RAY:
            return ray_mapper(name, settings)
    return as_tasks(name)
