"""Flows as Prefect sees them: entry points, the deployment, shards as tasks."""

from __future__ import annotations

import threading
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from prefect import Flow, flow
from prefect.flows import load_flow_from_entrypoint

from ecoagent.evaluation import train_stage
from ecoagent.evaluation.train_stage import TrainStage
from ecoagent.flows.single import FLOWS
from ecoagent.flows.stages import STAGE_NAMES, STAGES, as_tasks, runner, stage_named
from ecoagent.runs import Progress, RunContext, Shard, ShardResult, Stage, StageReport, execute, write_bytes
from ecoagent.settings import UserError, load_settings
from tests.flows.conftest import REPOSITORY
from tests.unit.fixture_run import fixture_settings, write_fixture_run
from tests.unit.tiny_bert import write_tiny_bert


class Squares(Stage):
    """One number a shard."""

    name: ClassVar[str] = "squares"
    version: ClassVar[str] = "1"
    broken: ClassVar[bool] = False

    def plan(self, ctx: RunContext) -> list[Shard]:
        return [Shard(f"s{i}", (str(i),)) for i in range(5)]

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        if self.broken and shard.key == "s3":
            raise UserError("shard s3 has no input", remedy="give it one")
        (directory / "n").write_text(str(int(shard.ids[0]) ** 2))

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        text = ",".join((r.directory / "n").read_text() for r in results)
        return StageReport([write_bytes(ctx.paths.core / "squares", text.encode())])


@pytest.fixture
def ctx(tmp_path: Path) -> RunContext:
    Squares.broken = False
    settings = load_settings("smoke", overrides=[f'outputs="{tmp_path}"'], env={})
    return RunContext.create(settings, Progress(quiet=True))


def run_as_flow(ctx: RunContext, stage: Stage | None = None) -> Any:
    chosen = stage or Squares()

    @flow(name=chosen.name, task_runner=runner(2), persist_result=False)
    def run() -> Any:
        return execute(chosen, ctx, mapper=as_tasks(chosen.name))

    return run()


def test_shards_run_as_tasks_and_are_kept(prefect_harness: None, ctx: RunContext) -> None:
    Squares.broken = True
    with pytest.raises(UserError, match="s3 has no input"):
        run_as_flow(ctx)
    kept = sorted(p.name for p in (ctx.paths.raw / "squares").iterdir())
    assert kept == ["s0", "s1", "s2", "s4"], "what finished stays, what failed leaves nothing"
    Squares.broken = False
    assert run_as_flow(ctx).status == "done"
    assert (ctx.paths.core / "squares").read_text() == "0,1,4,9,16"
    assert run_as_flow(ctx).status == "up to date"


def test_encoders_are_trained_one_after_the_other(
    prefect_harness: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both shards of ``train`` are tasks of one thread pool, and draw from one random state."""
    tiny = write_tiny_bert(tmp_path / "tiny")
    short = ["train.max_length=16", "train.siamese.max_length=16", 'evaluate.rankers=["rated","siamese"]']
    encoders = ["train.query_encoder=tiny", "train.tool_encoder=tiny", "train.siamese.encoder=tiny"]
    at_work: list[int] = []
    most: list[int] = []
    train = train_stage.train_two_tower

    def watched(*words: Any, **more: Any) -> Any:
        at_work.append(1)

        def step(loss: float) -> None:
            most.append(len(at_work))
            # Gives way to the other task, were it let in.
            threading.Event().wait(0.05)
            more_step(loss)

        more_step = more.pop("on_step")
        try:
            return train(*words, on_step=step, **more)
        finally:
            at_work.pop()

    monkeypatch.setattr(train_stage, "train_two_tower", watched)
    records = []
    for name in ("tasks", "serial"):
        settings = fixture_settings(tmp_path / name, f'models.local={{tiny = "{tiny}"}}', *short, *encoders)
        ctx = write_fixture_run(settings)
        if name == "tasks":
            assert run_as_flow(ctx, TrainStage()).status == "done"
        else:
            execute(TrainStage(), ctx)
        records.append([(ctx.paths.core / record).read_bytes() for record in train_stage.RECORDS.values()])
    assert set(most) == {1} and len(most) > 4
    assert records[0] == records[1]


def test_every_stage_has_a_flow_of_its_name() -> None:
    assert tuple(FLOWS) == STAGE_NAMES
    single = import_module("ecoagent.flows.single")
    for stage in STAGES:
        assert getattr(single, stage.name) is FLOWS[stage.name]
        assert isinstance(stage_named(stage.name), stage)
    with pytest.raises(UserError, match="unknown stage 'crawls'"):
        stage_named("crawls")


@pytest.mark.parametrize("name", ["build", "tail", "refresh"])
def test_flows_load_by_module_as_one_copy(name: str) -> None:
    module = import_module("ecoagent.flows.build")
    loaded = load_flow_from_entrypoint(f"ecoagent.flows.build.{name}")
    assert isinstance(loaded, Flow)
    assert loaded is getattr(module, name)


def test_the_deployment_names_a_flow_and_its_parameters() -> None:
    described = yaml.safe_load((REPOSITORY / "prefect.yaml").read_text("utf-8"))
    for deployment in described["deployments"]:
        loaded = load_flow_from_entrypoint(deployment["entrypoint"])
        assert set(deployment["parameters"]) <= set(loaded.parameters.properties)
        load_settings(deployment["parameters"]["profile"], env={})
        assert deployment["schedules"][0]["cron"]
