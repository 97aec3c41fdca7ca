"""The whole pipeline, and its tail, over the stage flows."""

from __future__ import annotations

from collections.abc import Sequence

from prefect import Flow, flow

from ecoagent.flows.context import open_run
from ecoagent.flows.single import call
from ecoagent.flows.stages import STAGE_NAMES, stage_named
from ecoagent.llm import close_engines
from ecoagent.runs import Progress, StageOutcome, finished

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
                done = None if name in force else finished(stage_named(name), ctx)
                if done is not None:  # no flow run for a stage that has nothing to do
                    ctx.progress.say(f"{name}: up to date")
                    outcomes.append(done)
                    continue
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


def chain(name: str, names: Sequence[str], what: str) -> Flow[..., list[StageOutcome]]:
    """A flow that runs stages one after the other under one lock."""

    def run_all(
        profile: str = "local",
        run: str | None = None,
        overrides: Sequence[str] = (),
        limit: int | None = None,
        seed: int | None = None,
        force: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> list[StageOutcome]:
        return _run_stages(names, profile, run, overrides, limit, seed, force, progress)

    run_all.__doc__ = what
    decorate = flow(name=name, persist_result=False, validate_parameters=False)
    return decorate(run_all)


build = chain(
    "build",
    STAGE_NAMES,
    "Every stage, from the crawl to the report; stages that are up to date are passed over.",
)
tail = chain("tail", TAIL, "Train and evaluate on the tables of a run.")
refresh = chain("refresh", CATALOG, "Crawl, normalise and score: what a scheduled re-crawl runs.")
