"""Shards on a real local Ray cluster of two workers, asking a stub endpoint on the loopback."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ecoagent.flows.ray_shards import cluster, load_ray, pool_size, ray_mapper
from ecoagent.flows.stages import mapper_of
from ecoagent.llm import ResponseStore, close_engines
from ecoagent.llm.stub import STUB_MODEL
from ecoagent.runs import RunContext, Shard, execute, read_json, sha256_file, write_table
from ecoagent.schema import ScoredTool
from ecoagent.settings import UserError
from ecoagent.synthesis import stage as stage_module
from ecoagent.synthesis.stage import SynthesizeStage
from tests.unit.fixture_run import fixture_settings, make_tools
from tests.unit.stub_server import StubServer, stub_server
from tests.unit.test_synthesis_generate import _HashEncoder

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None,
    reason="NOT RUN: Ray is not installed (extra `ray`), shards on a cluster are untested",
)


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_module, "load_sbert", lambda ctx, name: _HashEncoder())


@pytest.fixture(autouse=True)
def fresh_engines() -> Iterator[None]:
    yield
    close_engines()


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cluster for the module: a start takes many seconds."""
    with cluster(fixture_settings(tmp_path_factory.mktemp("ray"), "flow.workers=2")):
        yield


def context(outputs: Path, url: str, *more: str) -> RunContext:
    overrides = [
        "synthesis.tools_per_catalog=4",
        "flow.tools_per_shard=2",
        "flow.workers=2",
        'flow.runner="ray"',
        'llm.engine="server"',
        f'llm.model="{STUB_MODEL}"',
        f'llm.base_url="{url}"',
        "llm.retries=0",
        'llm.reference="none"',
        "synthesis.verify_queries=false",
        f'llm.store="{outputs / "store.sqlite"}"',
        *more,
    ]
    ctx = RunContext.create(fixture_settings(outputs, *overrides))
    write_table(ctx.paths.core / "tools.parquet", sorted(make_tools(40), key=lambda t: t.id), ScoredTool)
    return ctx


def files(ctx: RunContext) -> dict[str, str]:
    """Digest of every table and of the rows of every shard; how many were replayed may differ."""
    found = [*ctx.paths.core.rglob("syn_*"), *(ctx.paths.raw / "synthesize").glob("[!.]*/*.jsonl")]
    return {ctx.paths.relative(p): sha256_file(p) for p in sorted(found)}


def by_threads(outputs: Path, server: StubServer) -> dict[str, str]:
    """The run as one process makes it."""
    ctx = context(outputs, server.url)
    execute(SynthesizeStage(), ctx)
    close_engines()
    return files(ctx)


def workers() -> list[psutil.Process]:
    """Processes of the cluster's shard workers."""
    return [p for p in psutil.Process().children(recursive=True) if "ShardWorker" in " ".join(p.cmdline())]


@needs_ray
def test_a_cluster_writes_the_same_bytes_and_a_killed_worker_loses_nothing(
    tmp_path: Path, two_workers: None
) -> None:
    with stub_server() as server:
        expected = by_threads(tmp_path / "threads", server)
        alone = len(server.seeds)
    killed: list[int] = []

    def slow_and_deadly(number: int, _: dict[str, Any]) -> None:
        time.sleep(0.02)
        if number == alone // 2:
            victim = workers()[0]
            killed.append(victim.pid)
            victim.kill()

    with stub_server(slow_and_deadly) as server:
        ctx = context(tmp_path / "ray", server.url)
        outcome = execute(SynthesizeStage(), ctx, mapper=mapper_of("synthesize", ctx.settings))
        assert outcome.status == "done" and len(killed) == 1
        assert files(ctx) == expected
        marker = read_json(ctx.paths.markers / "synthesize.json")
        assert marker["shards"]["run"] == marker["shards"]["planned"] > 4
        # Asked again: at most what the killed worker had in flight, or had received and not yet stored.
        again = {seed: n for seed, n in Counter(server.seeds).items() if n > 1}
        assert len(again) <= 2 * ctx.settings.llm.concurrency and set(again.values()) <= {2}
        store = ResponseStore(ctx.settings.llm.store)
        assert store.count() == len(set(server.seeds)) == alone
        store.close()
        assert list(ctx.paths.root.rglob(".tmp-*")) == [] or not again
        before = len(server.seeds)
        assert execute(SynthesizeStage(), ctx).status == "up to date"
        assert len(server.seeds) == before


@needs_ray
def test_a_server_that_goes_down_is_a_users_error_and_the_next_run_asks_the_rest(
    tmp_path: Path, two_workers: None
) -> None:
    with stub_server() as server:
        expected = by_threads(tmp_path / "threads", server)
        alone = len(server.seeds)
    # The key is refused from the middle on: an error that concerns every request, as a server gone is.
    with stub_server(lambda n, _: (401, "") if n >= alone // 2 else None) as server:
        ctx = context(tmp_path / "ray", server.url)
        with pytest.raises(UserError, match="refuses the key"):
            execute(SynthesizeStage(), ctx, mapper=ray_mapper("synthesize", ctx.settings))
        server.fault = None
        before = len(server.seeds)
        execute(SynthesizeStage(), ctx, mapper=ray_mapper("synthesize", ctx.settings))
        asked = len(server.seeds) - before
        assert asked == alone - alone // 2
        assert files(ctx) == expected
        # What the workers' engines did stands in the driver's manifest.
        engine = read_json(ctx.paths.manifest)["stages"]["synthesize"]["engine"]
        assert engine["live"] == asked and engine["replayed"] <= alone - asked
        assert engine["tokens_out"] > 0 and engine["seconds"] > 0


def test_one_cpu_is_left_free() -> None:
    assert pool_size(2, 3, 0, 0) == 2
    assert pool_size(8, 4, 0, 0) == 3
    assert pool_size(8, 16, 4, 2) == 2
    with pytest.raises(UserError, match="1 CPUs and 0 GPUs"):
        pool_size(1, 1, 0, 0)
    with pytest.raises(UserError, match=r"llm\.engine = server"):
        pool_size(1, 8, 0, 1)


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"needs the package ray") as caught:
        load_ray()
    assert caught.value.remedy is not None and "ecoagent[ray]" in caught.value.remedy


def test_only_what_waits_for_a_model_goes_to_the_cluster(tmp_path: Path) -> None:
    settings = fixture_settings(tmp_path, 'flow.runner="ray"')
    names = {n: mapper_of(n, settings).__module__ for n in ("crawl", "synthesize", "label", "train")}
    assert {n for n, module in names.items() if module.endswith("ray_shards")} == {"synthesize", "label"}
    assert mapper_of("synthesize", fixture_settings(tmp_path)).__module__.endswith("flows.stages")
    with pytest.raises(TypeError, match="shards of a stage only"):
        ray_mapper("synthesize", settings)(lambda shard: "", [Shard("a")])
