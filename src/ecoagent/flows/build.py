"""The whole pipeline, and its tail, over the stage flows."""

from __future__ import annotations

from collections.abc import Sequence

from prefect import flow

from ecoagent.flows.context import open_run
from ecoagent.flows.single import call
from ecoagent.flows.stages import STAGE_NAMES, stage_named
from ecoagent.llm import close_engines
from ecoagent.runs import Progress, StageOutcome

TAIL: tuple[str, ...] = ("train", "evaluate")
CATALOG: tuple[str, ...] = ("crawl", "normalize", "score")


def _run_stages(
    names: Sequence[str],
    profile: str,
    run: str | None,
    overrides: Sequence[str],
    limit: int | None,
    seed: int | None,
    force: Sequence[str],
    progress: Progress | None,
) -> list[StageOutcome]:
    for name in force:
        stage_named(name)
    outcomes = []
    # One lock over all stages, so that no second build slips in between two of them.
    with open_run(profile, run, overrides, limit, seed, progress) as ctx:
        try:
            for number, name in enumerate(names, 1):
                ctx.progress.say(f"[{number}/{len(names)}] {name}")
                outcomes.append(
                    call(
                        name,
                        ctx.settings.flow.workers,
                        profile=profile,
                        run=run,
                        overrides=overrides,
                        limit=limit,
                        seed=seed,
                        force=name in force,
                        progress=ctx.progress,
                    )
                )
                if name == "label":
                    close_engines()  # frees the model's memory for training
        finally:
            close_engines()
    return outcomes


@flow(name="build", persist_result=False, validate_parameters=False)
def build(
    profile: str = "local",
    run: str | None = None,
    overrides: Sequence[str] = (),
    limit: int | None = None,
    seed: int | None = None,
    force: Sequence[str] = (),
    progress: Progress | None = None,
) -> list[StageOutcome]:
    """Every stage, from the crawl to the report; stages that are up to date are passed over."""
    return _run_stages(STAGE_NAMES, profile, run, overrides, limit, seed, force, progress)


@flow(name="tail", persist_result=False, validate_parameters=False)
def tail(
    profile: str = "local",
    run: str | None = None,
    overrides: Sequence[str] = (),
    limit: int | None = None,
    seed: int | None = None,
    force: Sequence[str] = (),
    progress: Progress | None = None,
) -> list[StageOutcome]:
    """Train and evaluate on the tables of a run."""
    return _run_stages(TAIL, profile, run, overrides, limit, seed, force, progress)


@flow(name="refresh", persist_result=False, validate_parameters=False)
def refresh(
    profile: str = "local",
    run: str | None = None,
    overrides: Sequence[str] = (),
    limit: int | None = None,
    seed: int | None = None,
    force: Sequence[str] = (),
    progress: Progress | None = None,
) -> list[StageOutcome]:
    """Crawl, normalise and score: what a scheduled re-crawl runs."""
    return _run_stages(CATALOG, profile, run, overrides, limit, seed, force, progress)
