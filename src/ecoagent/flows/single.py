"""One flow a stage, each startable alone: ``ecoagent.flows.single:crawl`` and so on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefect import Flow, flow

from ecoagent.flows.context import open_run
from ecoagent.flows.stages import STAGE_NAMES, run_stage, runner
from ecoagent.runs import Progress, StageOutcome


def stage_flow(name: str) -> Flow[..., StageOutcome]:
    """The flow that runs the stage ``name`` of a run."""

    def run_one(
        profile: str = "local",
        run: str | None = None,
        overrides: Sequence[str] = (),
        limit: int | None = None,
        seed: int | None = None,
        force: bool = False,
        progress: Progress | None = None,
    ) -> StageOutcome:
        with open_run(profile, run, overrides, limit, seed, progress) as ctx:
            return run_stage(name, ctx, force=force)

    run_one.__doc__ = f"Run the stage {name!r} of a run."
    decorate = flow(name=name, persist_result=False, validate_parameters=False)
    return decorate(run_one)


FLOWS: dict[str, Flow[..., StageOutcome]] = {name: stage_flow(name) for name in STAGE_NAMES}

crawl = FLOWS["crawl"]
normalize = FLOWS["normalize"]
score = FLOWS["score"]
synthesize = FLOWS["synthesize"]
label = FLOWS["label"]
train = FLOWS["train"]
evaluate = FLOWS["evaluate"]
audit = FLOWS["audit"]
publish = FLOWS["publish"]
report = FLOWS["report"]


def call(name: str, workers: int, **parameters: Any) -> StageOutcome:
    """Run a stage's flow with a thread pool of ``workers``."""
    outcome: StageOutcome = FLOWS[name].with_options(task_runner=runner(workers))(**parameters)
    return outcome
