"""Shards of a stage on a Ray cluster: the same shard functions, run by actors through ``ray.data``.

All nodes see the run's folder at the same path; shards appear in it whole or not at all, as with
threads. The store of responses stays a file of the driver, SQLite being unsafe on network file
systems: workers ask and tell it through one actor on the driver's machine. So whatever is killed,
driver or worker, finished shards and every response that arrived are kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ecoagent import __version__
from ecoagent.llm import GenerationRequest, GenerationResponse, ResponseStore
from ecoagent.llm.engine import EngineCounters
from ecoagent.llm.opening import count_elsewhere, counters_of, use_store
from ecoagent.runs import Progress, RunContext, Shard, ShardWork
from ecoagent.runs.stage import Mapper
from ecoagent.settings import FlowSettings, Settings, UserError

ON_RAY = ("synthesize", "label")
"""Stages whose shards wait for a model; the others are too short to be worth the way."""
START_TRIES = 3
"""For the cluster on this machine."""
OBJECT_STORE_BYTES = 200 * 1024**2
"""For the cluster on this machine: between processes go names of shards and single responses."""
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_AUTH_MODE": "disabled",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def load_ray() -> Any:
    """The ``ray`` package, its telemetry and progress bars switched off unless the user wants them.

    Raises:
        UserError: it is not installed.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise UserError(
            f"flow.runner = ray needs the package ray ({error})",
            remedy="install the extra: pip install 'ecoagent[ray]', or set flow.runner = threads",
        ) from error
    return ray


def ray_mapper(name: str, settings: Settings) -> Mapper:
    """Mapper that runs the shards of the stage ``name`` on the cluster that ``flow.ray_address`` names.

    All shards are tried; the first error is raised at the end, as the thread runner does.
    """

    def mapper(work: Callable[[Shard], str], shards: Sequence[Shard]) -> None:
        if not isinstance(work, ShardWork):
            raise TypeError("a Ray worker can run the shards of a stage only")
        if not shards:
            return
        with cluster(settings) as ray:
            errors = list(_run(ray, name, work, shards))
        if errors:
            raise errors[0]

    return mapper


@contextmanager
def cluster(settings: Settings) -> Iterator[Any]:
    """Connect to the cluster, or have one on this machine with a CPU more than there are workers.

    Where the process is connected already, that is used and left open.

    Raises:
        UserError: Ray is not installed, there is no such cluster, or it does not start.
    """
    ray = load_ray()
    if ray.is_initialized():
        yield ray
        return
    _connect(ray, settings.flow)
    try:
        yield ray
    finally:
        ray.shutdown()


def _connect(ray: Any, flow: FlowSettings) -> None:
    how: dict[str, Any] = {
        "address": flow.ray_address or "local",
        "log_to_driver": False,
        "logging_level": "ERROR",
    }
    if flow.ray_address is None:
        how |= {
            "num_cpus": flow.workers + 1,
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE_BYTES,
            "_node_ip_address": "127.0.0.1",
        }
    for tries_left in reversed(range(START_TRIES)):
        try:
            ray.init(**how)
            return
        except Exception as error:
            # Ray raises Exception itself where it gives up.
            ray.shutdown()
            # It gives its processes 15 to 30 s to start, which a busy machine may not keep to.
            if flow.ray_address is None and tries_left:
                continue
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise UserError(
                f"no Ray cluster at {flow.ray_address or 'this machine'}: {first}",
                remedy="mend flow.ray_address (see docs/scale.md), or set flow.runner = threads",
            ) from error


def pool_size(workers: int, cpus: float, gpus: float, gpus_each: int) -> int:
    """Actors of one CPU each: one CPU is left to ``ray.data``, whose reading would wait for ever else.

    Raises:
        UserError: the cluster cannot hold a single actor.
    """
    if cpus < 2 or gpus < gpus_each:
        raise UserError(
            f"the Ray cluster has {cpus:g} CPUs and {gpus:g} GPUs; a worker needs one CPU and "
            f"{gpus_each} GPUs, and one CPU must be left",
            remedy="start nodes with more (--num-cpus counts logical ones), or set llm.engine = server",
        )
    size = min(workers, int(cpus) - 1)
    return min(size, int(gpus // gpus_each)) if gpus_each else size


def _run(ray: Any, name: str, work: ShardWork, shards: Sequence[Shard]) -> Iterator[Exception]:
    """The errors of the shards, as they end."""
    settings = work.ctx.settings
    llm = settings.llm
    gpus_each = llm.tensor_parallel * llm.data_parallel if llm.engine == "vllm" else 0
    have = ray.cluster_resources()
    size = pool_size(settings.flow.workers, have.get("CPU", 0), have.get("GPU", 0), gpus_each)
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=False
    )
    keeper = ray.remote(StoreKeeper).options(
        num_cpus=0, scheduling_strategy=here, max_restarts=-1, max_task_retries=-1, max_concurrency=size + 1
    )
    store = keeper.remote(llm.store.resolve())
    rows = [{"key": s.key, "ids": list(s.ids), "content": work.keys[s.key]} for s in shards]
    # A block a shard: what a lost worker had is done again shard by shard.
    done = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
        ShardWorker,
        fn_constructor_args=(name, settings, str(Path.cwd()), __version__, store),
        compute=ray.data.ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=1),
        num_cpus=1,
        **({"num_gpus": gpus_each} if gpus_each else {}),
    )
    with work.ctx.progress.task(f"{name} on {size} workers", total=len(shards), unit="shards") as task:
        for row in done.iter_rows():
            task.advance(1)
            count_elsewhere(settings, EngineCounters(**json.loads(row["counters"])))
            if row["error"]:
                yield UserError(row["error"], remedy=row["remedy"] or None)


class StoreKeeper:
    """Actor beside the driver that alone opens the store of responses."""

    def __init__(self, path: Path) -> None:
        self._store = ResponseStore(path)

    def get_many(self, hashes: list[str]) -> dict[str, GenerationResponse]:
        """As ``ResponseStore.get_many``."""
        return self._store.get_many(hashes)

    def put(self, response: GenerationResponse, request: GenerationRequest) -> GenerationResponse:
        """As ``ResponseStore.put``: on disk before it returns."""
        return self._store.put(response, request)


class RemoteStore(ResponseStore):
    """The driver's store as a worker sees it."""

    def __init__(self, keeper: Any) -> None:
        self._ray, self._keeper = load_ray(), keeper

    def get_many(self, hashes: Iterable[str]) -> dict[str, GenerationResponse]:
        """As ``ResponseStore.get_many``."""
        found: dict[str, GenerationResponse] = self._ray.get(self._keeper.get_many.remote(list(hashes)))
        return found

    def put(self, response: GenerationResponse, request: GenerationRequest) -> GenerationResponse:
        """As ``ResponseStore.put``."""
        held: GenerationResponse = self._ray.get(self._keeper.put.remote(response, request))
        return held

    def close(self) -> None:
        """Nothing to close here."""


class ShardWorker:
    """One actor: opens the run's settings once, then runs shards into the run's folder."""

    def __init__(self, name: str, settings: Settings, cwd: str, version: str, keeper: Any) -> None:
        # Here and not above: this module is loaded by the one that lists the stages.
        from ecoagent.flows.stages import stage_named

        if version != __version__:
            raise RuntimeError(f"this Ray node has ecoagent {__version__}, the driver {version}")
        self._trouble: UserError | None = None
        root = Path(cwd, settings.outputs, "runs", settings.run_name)
        if not root.is_dir():
            self._trouble = UserError(
                f"Ray node {os.uname().nodename} does not see the run's folder {root}",
                remedy="put outputs on a file system that every node mounts at the same path",
            )
            return
        os.chdir(cwd)  # relative paths of the settings mean the same as on the driver
        use_store(RemoteStore(keeper))
        self._stage = stage_named(name)
        self._ctx = RunContext.create(settings, Progress(quiet=True))

    def __call__(self, row: dict[str, Any]) -> dict[str, str]:
        """Run one shard. An error of the user's is told, anything else raised."""
        told = {"key": str(row["key"]), "error": "", "remedy": ""}
        before = counters_of(self._ctx.settings) if self._trouble is None else EngineCounters()
        try:
            if self._trouble is not None:
                raise self._trouble
            shard = Shard(row["key"], tuple(row["ids"]))
            ShardWork(self._stage, self._ctx, {shard.key: row["content"]})(shard)
        except UserError as error:
            told |= {"error": error.message, "remedy": error.remedy or ""}
        done = EngineCounters() if self._trouble else counters_of(self._ctx.settings) - before
        return {**told, "counters": json.dumps(asdict(done))}
