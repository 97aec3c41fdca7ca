"""Engines by settings, one of a kind per process."""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any

from ecoagent.llm.embedded import EmbeddedEngine
from ecoagent.llm.engine import StoredEngine
from ecoagent.llm.protocol import Engine
from ecoagent.llm.reference import open_reference
from ecoagent.llm.server import ServerEngine
from ecoagent.llm.store import ResponseStore
from ecoagent.llm.vllm import VllmEngine, load_vllm
from ecoagent.models import ModelStore
from ecoagent.runs import Progress
from ecoagent.settings import LLMSettings, Settings, UserError

_open: dict[tuple[Any, ...], StoredEngine] = {}
_guard = threading.Lock()


def open_engine(settings: Settings, progress: Progress | None = None) -> StoredEngine:
    """The process's engine for these settings, behind the store of responses.

    Cheap: the model is loaded by the first request that the store cannot answer. Callers with the
    same settings share one engine; do not close it, ``close_engines`` does.
    """
    llm = settings.llm
    key = (llm.model_dump_json(), settings.models.model_dump_json(), str(llm.store.resolve()))
    with _guard:
        engine = _open.get(key)
        if engine is None:
            engine = StoredEngine(
                llm.model,
                lambda: make_engine(settings, progress),
                ResponseStore(llm.store),
                progress,
                open_reference(llm.reference),
            )
            _open[key] = engine
        elif progress is not None:
            engine.progress = progress
        return engine


def close_engines() -> None:
    """Free all models and close their stores; also done at exit."""
    with _guard:
        for engine in _open.values():
            engine.close()
            engine.store.close()
        _open.clear()


def make_engine(settings: Settings, progress: Progress | None = None) -> Engine:
    """The bare engine that ``llm.engine`` names, with its model loaded.

    Raises:
        UserError: the engine is not installed or reachable, or the weights cannot be had.
    """
    llm = settings.llm
    if llm.engine == "server":
        return _server(llm)
    if llm.engine == "vllm":
        # Before the weights: a missing package shows at once, not after a download.
        vllm = load_vllm()
        return VllmEngine(
            ModelStore(settings.models).path(llm.model, progress),
            llm.model,
            context=llm.context,
            tensor_parallel=llm.tensor_parallel,
            gpu_memory_utilization=llm.gpu_memory_utilization,
            vllm=vllm,
        )
    return EmbeddedEngine(
        ModelStore(settings.models).path(llm.model, progress),
        llm.model,
        concurrency=llm.concurrency,
        context=llm.context,
        threads=llm.threads,
        timeout_s=llm.timeout_s,
        retries=llm.retries,
    )


def _server(llm: LLMSettings) -> ServerEngine:
    if not llm.base_url:
        raise UserError(
            "llm.engine = server needs an address",
            remedy="set llm.base_url, for example http://127.0.0.1:8000/v1",
        )
    return ServerEngine(
        llm.base_url,
        llm.model,
        concurrency=llm.concurrency,
        timeout_s=llm.timeout_s,
        retries=llm.retries,
        api_key=os.environ.get(llm.api_key_env),
    )


atexit.register(close_engines)
