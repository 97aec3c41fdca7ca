"""Engines by settings, one of a kind per process."""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any

from ecoagent.llm.embedded import EmbeddedEngine
from ecoagent.llm.engine import EngineCounters, StoredEngine
from ecoagent.llm.protocol import Engine
from ecoagent.llm.reference import open_reference
from ecoagent.llm.replicas import VllmReplicas
from ecoagent.llm.server import ServerEngine
from ecoagent.llm.store import ResponseStore
from ecoagent.llm.vllm import VllmEngine, load_vllm
from ecoagent.models import ModelStore
from ecoagent.runs import Progress
from ecoagent.settings import LLMSettings, Settings

_open: dict[tuple[Any, ...], StoredEngine] = {}
_elsewhere: dict[tuple[Any, ...], EngineCounters] = {}
_guard = threading.Lock()
_shared_store: ResponseStore | None = None


def open_engine(settings: Settings, progress: Progress | None = None) -> StoredEngine:
    """The process's engine for these settings, behind the store of responses.

    Cheap: the model is loaded by the first request that the store cannot answer. Callers with the
    same settings share one engine; do not close it, ``close_engines`` does.
    """
    llm = settings.llm
    key = _key(settings)
    with _guard:
        engine = _open.get(key)
        if engine is None:
            engine = StoredEngine(
                llm.model,
                lambda: make_engine(settings, progress),
                _shared_store or ResponseStore(llm.store),
                progress,
                open_reference(llm.reference),
            )
            _open[key] = engine
        elif progress is not None:
            engine.progress = progress
        return engine


def counters_of(settings: Settings) -> EngineCounters:
    """What the engine of these settings has done so far, in this process and by ``count_elsewhere``."""
    key, none = _key(settings), EngineCounters()
    with _guard:
        engine = _open.get(key)
        return (none if engine is None else engine.counters) + _elsewhere.get(key, none)


def count_elsewhere(settings: Settings, done: EngineCounters) -> None:
    """Count what an engine of these settings did in another process, as workers of a cluster tell it.

    Seconds add up over workers: they may come to more than the clock's.
    """
    key = _key(settings)
    with _guard:
        _elsewhere[key] = _elsewhere.get(key, EngineCounters()) + done


def engine_record(settings: Settings, before: EngineCounters) -> dict[str, Any]:
    """What a stage made of the engine since ``before``, for the manifest."""
    return (counters_of(settings) - before).as_record(settings.llm.engine, settings.llm.model)


def use_store(store: ResponseStore | None) -> None:
    """Engines opened from now on in this process keep responses in ``store``, not in ``llm.store``.

    For workers of a cluster, whose responses go to the driver's store. None: as the settings say.
    """
    global _shared_store
    _shared_store = store


def close_engines() -> None:
    """Free all models and close their stores; also done at exit."""
    with _guard:
        for engine in _open.values():
            engine.close()
            engine.store.close()
        _open.clear()


def _key(settings: Settings) -> tuple[Any, ...]:
    llm = settings.llm
    return (llm.model_dump_json(), settings.models.model_dump_json(), str(llm.store.resolve()))


def make_engine(settings: Settings, progress: Progress | None = None) -> Engine:
    """The bare engine that ``llm.engine`` names, with its model loaded.

    Raises:
        UserError: the engine is not installed or reachable, or the weights cannot be had.
    """
    llm = settings.llm
    if llm.engine == "server":
        return _server(llm, progress)
    if llm.engine == "vllm":
        # Before the weights: a missing package shows at once, not after a download.
        vllm = load_vllm()
        path = ModelStore(settings.models).path(llm.model, progress)
        options: dict[str, Any] = {
            "context": llm.context,
            "dtype": llm.dtype,
            "tensor_parallel": llm.tensor_parallel,
            "gpu_memory_utilization": llm.gpu_memory_utilization,
        }
        if llm.data_parallel > 1:
            return VllmReplicas(path, llm.model, replicas=llm.data_parallel, **options)
        return VllmEngine(path, llm.model, vllm=vllm, **options)
    return EmbeddedEngine(
        ModelStore(settings.models).path(llm.model, progress),
        llm.model,
        concurrency=llm.concurrency,
        context=llm.context,
        threads=llm.threads,
        timeout_s=llm.timeout_s,
        retries=llm.retries,
    )


def _server(llm: LLMSettings, progress: Progress | None) -> ServerEngine:
    return ServerEngine(
        [*([llm.base_url] if llm.base_url else []), *llm.base_urls],
        llm.model,
        concurrency=llm.concurrency,
        timeout_s=llm.timeout_s,
        retries=llm.retries,
        api_key=os.environ.get(llm.api_key_env),
        say=progress.say if progress is not None else None,
    )


atexit.register(close_engines)
