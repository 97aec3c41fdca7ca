"""Several vLLM replicas on one machine, each a process with GPUs of its own (``llm.data_parallel``).

A model as small as Gemma-3-1b fits on one GPU, so replicas need not talk to each other: each takes the
next part of the requests. Across machines: servers, one a machine, in ``llm.base_urls``.
"""

from __future__ import annotations

# Imported here for the order of exit handlers: multiprocessing's waits for children, so that the one
# which ends them (``ecoagent.llm.opening``) must have been registered after it.
import multiprocessing.util  # noqa: F401
import os
import threading
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from ecoagent.llm.protocol import GenerationRequest, GenerationResponse, OnResponse
from ecoagent.llm.vllm import CALL_SIZE, VllmEngine
from ecoagent.settings import UserError

POLL_S = 0.5
EXIT_S = 20.0
"""Time a replica gets to free its GPUs before it is killed."""

_Part = tuple[int, Sequence[GenerationRequest]]


class VllmReplicas:
    """One engine over several processes with a ``VllmEngine`` each.

    Args:
        path: model folder in Hugging Face layout.
        model: name used in hashes and tables.
        replicas: processes.
        tensor_parallel: GPUs of each.
        options: what else ``VllmEngine`` takes.

    Raises:
        UserError: too few GPUs, or a replica cannot load the model.
    """

    def __init__(
        self, path: Path, model: str, *, replicas: int, tensor_parallel: int = 1, **options: Any
    ) -> None:
        self.model = model
        self.tokens_cached = 0
        context = get_context("spawn")
        self._members: list[tuple[Any, Connection]] = []
        for devices in device_groups(replicas, tensor_parallel):
            ours, theirs = context.Pipe()
            arguments = (theirs, devices, path, model, {"tensor_parallel": tensor_parallel, **options})
            # Not a daemon: those may have no children, and vLLM's engine is one.
            process = context.Process(target=_serve, args=arguments, name="vllm-replica")
            process.start()
            theirs.close()
            self._members.append((process, ours))
        try:
            for process, connection in self._members:
                _exchange(process, connection)
        except BaseException:
            self.close()
            raise

    def generate(
        self, requests: Sequence[GenerationRequest], on_response: OnResponse | None = None
    ) -> list[GenerationResponse]:
        """Answer all requests, in their order; each replica takes the next part when it is free.

        Raises:
            UserError: a replica died.
        """
        size = max(1, min(CALL_SIZE, -(-len(requests) // len(self._members))))
        parts: SimpleQueue[_Part] = SimpleQueue()
        for start in range(0, len(requests), size):
            parts.put((start, requests[start : start + size]))
        answers: SimpleQueue[tuple[int, list[GenerationResponse] | Exception]] = SimpleQueue()
        threads = [
            threading.Thread(target=self._feed, args=(member, parts, answers), daemon=True)
            for member in self._members
        ]
        for thread in threads:
            thread.start()
        results: dict[int, GenerationResponse] = {}
        while len(results) < len(requests):
            try:
                start, got = answers.get(timeout=POLL_S)
            except Empty:
                continue
            if isinstance(got, Exception):
                raise got
            for place, response in enumerate(got, start):
                results[place] = response
                if on_response is not None:
                    on_response(response)
        return [results[place] for place in range(len(requests))]

    def close(self) -> None:
        """End the replicas and free their GPUs; safe to call twice."""
        members, self._members = self._members, []
        for _, connection in members:
            try:
                connection.send(None)
            except OSError:
                continue
        for process, connection in members:
            process.join(EXIT_S)
            if process.is_alive():
                process.kill()
                process.join()
            connection.close()

    def _feed(
        self,
        member: tuple[Any, Connection],
        parts: SimpleQueue[_Part],
        answers: SimpleQueue[tuple[int, list[GenerationResponse] | Exception]],
    ) -> None:
        process, connection = member
        while True:
            try:
                start, requests = parts.get_nowait()
            except Empty:
                return
            try:
                responses, cached = _exchange(process, connection, list(requests))
            except UserError as error:
                answers.put((start, error))
                return
            self.tokens_cached += cached
            answers.put((start, responses))


def device_groups(replicas: int, tensor_parallel: int) -> list[str | None]:
    """GPUs of each replica as ``CUDA_VISIBLE_DEVICES`` names them; None where there are no GPUs.

    Raises:
        UserError: fewer GPUs than ``replicas`` times ``tensor_parallel``.
    """
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        devices = [d.strip() for d in named.split(",") if d.strip()]
    else:
        import torch

        devices = [str(number) for number in range(torch.cuda.device_count())]
    if not devices:
        # vLLM's CPU build.
        return [None] * replicas
    if len(devices) < replicas * tensor_parallel:
        raise UserError(
            f"llm.data_parallel = {replicas} with llm.tensor_parallel = {tensor_parallel} needs "
            f"{replicas * tensor_parallel} GPUs, {len(devices)} can be seen",
            remedy="lower one of them; or start a server on each machine and list them in llm.base_urls with "
            "llm.engine = server",
        )
    return [
        ",".join(devices[number * tensor_parallel : (number + 1) * tensor_parallel])
        for number in range(replicas)
    ]


def _exchange(
    process: Any, connection: Connection, requests: list[GenerationRequest] | None = None
) -> tuple[list[GenerationResponse], int]:
    """Send a part, if there is one, and wait for what the replica has to say."""
    try:
        if requests is not None:
            connection.send(requests)
        said: tuple[list[GenerationResponse], int] | UserError = connection.recv()
    except (EOFError, OSError) as error:
        process.join(EXIT_S)
        raise UserError(
            f"a vLLM replica died (exit code {process.exitcode})",
            remedy="its own lines above say why; answers so far are stored, the same command goes on",
        ) from error
    if isinstance(said, UserError):
        raise said
    return said


def _serve(
    connection: Connection, devices: str | None, path: Path, model: str, options: dict[str, Any]
) -> None:
    """A replica: loads the model, then answers parts until told to stop or its parent is gone."""
    if devices is not None:
        # Before CUDA starts.
        os.environ["CUDA_VISIBLE_DEVICES"] = devices
    try:
        engine = VllmEngine(path, model, **options)
        connection.send(([], 0))
        while (requests := connection.recv()) is not None:
            before = engine.tokens_cached
            responses = engine.generate(requests)
            connection.send((responses, engine.tokens_cached - before))
        engine.close()
    except UserError as error:
        connection.send(error)
    except EOFError:
        return
