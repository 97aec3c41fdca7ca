"""An engine behind the store of responses: replay what is stored, ask the model for the rest."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

from ecoagent.llm.protocol import Engine, GenerationRequest, GenerationResponse, OnResponse, request_hash
from ecoagent.llm.reference import ReferenceResponses
from ecoagent.llm.store import ResponseStore
from ecoagent.runs import Progress


@dataclass(frozen=True)
class EngineCounters:
    """What an engine did. Subtract two to get what happened in between."""

    live: int = 0
    """Requests the model was asked, failures included."""
    failed: int = 0
    replayed: int = 0
    tokens_in: int = 0
    """Prompt tokens of live responses."""
    tokens_out: int = 0
    """Generated tokens of live responses."""
    seconds: float = 0.0
    """Wall-clock time during which the model was at work, for however many callers."""

    def __sub__(self, other: EngineCounters) -> EngineCounters:
        return EngineCounters(
            self.live - other.live,
            self.failed - other.failed,
            self.replayed - other.replayed,
            self.tokens_in - other.tokens_in,
            self.tokens_out - other.tokens_out,
            self.seconds - other.seconds,
        )

    def __add__(self, other: EngineCounters) -> EngineCounters:
        return self - (EngineCounters() - other)

    def as_record(self, engine: str, model: str) -> dict[str, Any]:
        """What the manifest says of a stage's use of the engine."""
        return {"engine": engine, "model": model, **asdict(self), "seconds": round(self.seconds, 3)}


class StoredEngine:
    """An engine wrapped in a ``ResponseStore``.

    Equal requests are asked once. Each response is stored as soon as it arrives, so that a killed
    run resumes where it was. A stored failure is asked again. Published responses come before the
    store, but for requests marked live. The model is opened when, and only when, something is missing.
    """

    def __init__(
        self,
        model: str,
        opener: Callable[[], Engine],
        store: ResponseStore,
        progress: Progress | None = None,
        reference: ReferenceResponses | None = None,
    ) -> None:
        self.model = model
        self.store = store
        self.progress = progress
        self.reference = reference
        self._opener = opener
        self._engine: Engine | None = None
        self._lock = threading.RLock()
        self._counters = EngineCounters()
        self._callers, self._since = 0, 0.0

    @property
    def counters(self) -> EngineCounters:
        """Totals since the engine was made."""
        return self._counters

    def generate(
        self,
        requests: Sequence[GenerationRequest],
        on_response: OnResponse | None = None,
        *,
        label: str = "model",
    ) -> list[GenerationResponse]:
        """Answer all requests, in their order.

        Args:
            requests: prompts; put those that share their beginning next to each other, servers
                reuse the work done for a common prefix.
            on_response: sees each response as it arrives, stored ones first, never two at a time.
            label: what the progress line calls this work.

        Raises:
            UserError: the engine cannot be opened or reached. Single failures are responses.
        """
        hashes = [request_hash(self.model, r) for r in requests]
        answers = {h: r for h, r in self.store.get_many(hashes).items() if r.ok}
        if self.reference is not None:
            answers |= self.reference.get_many(h for h, r in zip(hashes, requests, strict=True) if not r.live)
        asked: dict[str, GenerationRequest] = {}
        places: dict[str, list[int]] = {}
        for place, (key, request) in enumerate(zip(hashes, requests, strict=True)):
            places.setdefault(key, []).append(place)
            if key not in answers:
                asked.setdefault(key, request)
        results: list[GenerationResponse | None] = [None] * len(requests)

        def settle(key: str, answer: GenerationResponse) -> None:
            for place in places[key]:
                results[place] = result = answer.model_copy(update={"id": requests[place].id})
                if on_response is not None:
                    on_response(result)

        replayed = 0
        for key in places:
            if key in answers:
                settle(key, answers[key])
                replayed += len(places[key])
        self._count(EngineCounters(replayed=replayed))
        if asked:
            self._ask(asked, settle, label)
        return [r for r in results if r is not None]

    def close(self) -> None:
        """Free the model; the store stays open for replay."""
        with self._lock:
            if self._engine is not None:
                self._engine.close()
                self._engine = None

    def _ask(
        self,
        asked: dict[str, GenerationRequest],
        settle: Callable[[str, GenerationResponse], None],
        label: str,
    ) -> None:
        engine = self._open()
        start, tokens = time.monotonic(), 0
        shown = (
            self.progress.task(label, total=len(asked), unit="responses") if self.progress else nullcontext()
        )
        with shown as task:

            def arrived(response: GenerationResponse) -> None:
                nonlocal tokens
                self._count(
                    EngineCounters(
                        live=1,
                        failed=int(not response.ok),
                        tokens_in=response.tokens_in,
                        tokens_out=response.tokens_out,
                    )
                )
                held = self.store.put(response, asked[response.request_hash])
                tokens += response.tokens_out
                if task is not None:
                    task.advance(1, f"{tokens / max(time.monotonic() - start, 1e-9):.1f} tokens/s")
                settle(response.request_hash, held)

            with self._at_work():
                engine.generate(list(asked.values()), arrived)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Counts the time, once, that one or more callers wait for the model."""
        with self._lock:
            if not self._callers:
                self._since = time.monotonic()
            self._callers += 1
        try:
            yield
        finally:
            with self._lock:
                self._callers -= 1
                if not self._callers:
                    self._count(EngineCounters(seconds=time.monotonic() - self._since))

    def _open(self) -> Engine:
        with self._lock:
            if self._engine is None:
                if self.progress is not None:
                    self.progress.say(f"opening {self.model}")
                self._engine = self._opener()
            return self._engine

    def _count(self, more: EngineCounters) -> None:
        with self._lock:
            self._counters = self._counters + more
