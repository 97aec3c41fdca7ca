"""The embedded engine: llama.cpp in this process, spoken to over a loopback port.

It offers the same protocol as any other server, so both engines share one client. Continuous
batching, log-probabilities and reuse of common prompt beginnings are llama.cpp's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ecoagent.llm.protocol import GenerationRequest, GenerationResponse, OnResponse
from ecoagent.llm.server import ServerEngine
from ecoagent.settings import UserError

PROMPT_CACHE_MIB = 1024
"""Memory for the states of earlier prompts, MiB."""


class EmbeddedEngine:
    """A GGUF model served in process.

    Args:
        path: the GGUF file.
        model: name used in hashes and tables.
        concurrency: sequences decoded together; each has ``context`` tokens of its own.
        context: context length per sequence, tokens.
        threads: CPU threads; none = all cores this process may use.
        timeout_s: limit of one request that has the machine to itself, seconds.
        retries: further tries of a failed request.

    Raises:
        UserError: the file is no model llama.cpp can load.
    """

    def __init__(
        self,
        path: Path,
        model: str,
        *,
        concurrency: int = 4,
        context: int = 2048,
        threads: int | None = None,
        timeout_s: float = 300.0,
        retries: int = 3,
    ) -> None:
        self.model = model
        self._server = _start(path, model, concurrency, context, threads or usable_cores())
        self._client = ServerEngine(
            str(self._server.listening_address),
            model,
            concurrency=concurrency,
            # The requests in flight share this machine's cores, so each may take so many times longer.
            timeout_s=timeout_s * concurrency,
            retries=retries,
            extra={"cache_prompt": True},
            use_proxies=False,
        )

    @property
    def base_url(self) -> str:
        """Address of the chat endpoint, for as long as this engine is open."""
        return self._client.base_url

    @property
    def tokens_cached(self) -> int:
        """Prompt tokens found in the cache so far."""
        return self._client.tokens_cached

    def generate(
        self, requests: Sequence[GenerationRequest], on_response: OnResponse | None = None
    ) -> list[GenerationResponse]:
        """Answer all requests, in their order."""
        return self._client.generate(requests, on_response)

    def close(self) -> None:
        """Stop the server and free the model."""
        self._client.close()
        self._server = None


def _start(path: Path, model: str, concurrency: int, context: int, threads: int) -> Any:
    import xllamacpp

    if path.is_dir() or path.suffix != ".gguf":
        raise UserError(
            f"llm.engine = embedded needs a GGUF file, {model} is {path}",
            remedy="choose a GGUF model, or llm.engine = vllm or server",
        )
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.model_alias = {model}
    params.n_parallel = concurrency
    params.n_ctx = context * concurrency
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.cache_prompt = True
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.verbosity = 0
    # Nothing but the chat endpoint: no page, no view of the prompts in work.
    params.ui = False
    params.endpoint_slots = False
    params.hostnames = ["127.0.0.1"]
    try:
        return xllamacpp.Server(params)
    except (RuntimeError, ValueError) as error:
        raise UserError(f"llama.cpp cannot load {path}: {error}", remedy="pull the model again") from error


def usable_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
