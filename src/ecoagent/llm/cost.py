"""What requests will cost before they are sent: tokens, minutes and, for a priced endpoint, money."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ecoagent.llm.embedded import usable_cores
from ecoagent.llm.protocol import GenerationRequest, request_hash
from ecoagent.llm.reference import open_reference
from ecoagent.llm.store import ResponseStore
from ecoagent.runs import has_gpu
from ecoagent.settings import LLMSettings, Settings

CHARACTERS_PER_TOKEN = 4.1
"""Measured with Qwen2.5's tokenizer: 4.14 over 180 generation prompts, 4.04 over 100 verifier prompts."""
TOKENS_PER_MESSAGE = 5.5
"""What a chat template adds; measured: 662 prompt tokens where the texts of the 8 messages have 617."""
SHARE_OF_LIMIT = 0.48
"""Generated tokens as a share of max_tokens; measured: 134 of 280 over 114 generation responses."""


@dataclass(frozen=True)
class EngineSpeed:
    """Tokens a second of one server, replica or machine.

    Attributes:
        prefill: prompt tokens that the cache of common beginnings does not hold.
        decode: generated tokens, over all requests in flight.
        source: where the figures come from.
    """

    prefill: float
    decode: float
    source: str


SPEEDS = {
    "embedded": EngineSpeed(
        85.0, 18.0, "measured: Qwen2.5-Coder-1.5B Q4_K_M by llama.cpp on 2 idle CPU cores, 4 in flight"
    ),
    "server": EngineSpeed(
        2000.0, 80.0, "assumed: 20 generated tokens a second for each of 4 requests in flight; not measured"
    ),
    "vllm": EngineSpeed(
        20_000.0, 2000.0, "assumed: a model of about 1B parameters on one GPU, large batches; not measured"
    ),
}
MEASURED_BILLIONS = 1.5
"""Parameters of the model that ``SPEEDS["embedded"]`` was measured with; other sizes are scaled."""
MEASURED_CORES = 2
MEASURED_IN_FLIGHT = 4
_BILLIONS = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)b(?![a-z])", re.I)


@dataclass(frozen=True)
class CostEstimate:
    """What is still to be asked.

    Attributes:
        requests: requests to be sent: equal ones once, stored and published ones not at all.
        tokens_in: their prompt tokens.
        tokens_out: expected generated tokens.
        minutes: time of the engine.
        dollars: None without ``llm.price_in`` or ``llm.price_out``. Prompt tokens count in full, also where a
            provider asks less for cached ones.
        answered: requests that stored or published responses answer, or an equal request.
        basis: source of the speed, in a sentence.
    """

    requests: int
    tokens_in: int
    tokens_out: int
    minutes: float
    dollars: float | None
    answered: int = 0
    basis: str = ""

    def scaled(self, factor: float) -> CostEstimate:
        """The same for ``factor`` times as many requests: a sample's cost made that of the whole."""
        return CostEstimate(
            round(self.requests * factor),
            round(self.tokens_in * factor),
            round(self.tokens_out * factor),
            round(self.minutes * factor, 3),
            None if self.dollars is None else round(self.dollars * factor, 4),
            round(self.answered * factor),
            self.basis,
        )

    def as_record(self) -> dict[str, Any]:
        """Plain values for ``--dry-run``; ``dollars`` only where there is a price."""
        found: dict[str, Any] = {
            "requests": self.requests,
            "answered_by_the_store": self.answered,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "minutes": round(self.minutes, 1),
            "speed": self.basis,
        }
        return found if self.dollars is None else {**found, "dollars": self.dollars}


def estimate_cost(
    requests: Iterable[GenerationRequest],
    settings: Settings,
    expected: Callable[[GenerationRequest], float] | None = None,
) -> CostEstimate:
    """Cost of the requests that neither the store nor published responses answer.

    Nothing is sent or created. Prompts are counted by length; of each, what it shares with the one before
    is read from the engine's cache.

    Args:
        requests: in the order in which they will be sent.
        settings: engine, prices, store and published responses.
        expected: generated tokens of a request; none = ``SHARE_OF_LIMIT`` of its limit, at least 1.
    """
    asked, answered = _unanswered(list(requests), settings)
    characters = fresh = messages = 0
    out, before = 0.0, ""
    for request in asked:
        text = "\n".join(m["content"] for m in request.messages)
        characters += len(text)
        fresh += len(text) - _shared(before, text)
        messages += len(request.messages)
        limit = request.sampling.max_tokens
        out += expected(request) if expected is not None else max(1.0, SHARE_OF_LIMIT * limit)
        before = text
    tokens_in = round(characters / CHARACTERS_PER_TOKEN + messages * TOKENS_PER_MESSAGE)
    tokens_out = round(out)
    speed = speed_of(settings.llm)
    seconds = fresh / CHARACTERS_PER_TOKEN / speed.prefill + tokens_out / speed.decode
    return CostEstimate(
        len(asked),
        tokens_in,
        tokens_out,
        round(seconds / 60, 3),
        _dollars(tokens_in, tokens_out, settings.llm),
        answered,
        speed.source,
    )


def speed_of(llm: LLMSettings) -> EngineSpeed:
    """Speed of the engine with all its servers or replicas.

    Servers on this machine, where it has no GPU, share its cores and are as fast as the embedded engine.
    """
    speed = SPEEDS[llm.engine]
    servers = {*llm.base_urls, *([llm.base_url] if llm.base_url else [])}
    on_cpu = llm.engine == "server" and bool(servers) and all(map(_local, servers)) and not has_gpu()
    if on_cpu:
        like = SPEEDS["embedded"]
        source = f"a server on this machine, which has no GPU, taken to be like the engine {like.source}"
        speed = EngineSpeed(like.prefill, like.decode, source)
    if llm.engine == "embedded" or on_cpu:
        size = _BILLIONS.search(llm.model.replace("-", " "))
        # Its speed is that of reading the weights, on as many cores as it may use.
        factor = MEASURED_BILLIONS / float(size.group(1)) if size and float(size.group(1)) > 0 else 1.0
        factor *= (llm.threads or usable_cores()) / MEASURED_CORES
    elif llm.engine == "server":
        factor = max(1, len(servers)) * llm.concurrency / MEASURED_IN_FLIGHT
    else:
        factor = llm.data_parallel
    return EngineSpeed(speed.prefill * factor, speed.decode * factor, speed.source)


def _local(url: str) -> bool:
    return urlsplit(url).hostname in {"127.0.0.1", "::1", "localhost"}


def answered_by_reference(llm: LLMSettings, requests: Sequence[GenerationRequest]) -> list[bool]:
    """Whether the published responses answer each request; never one that is to be asked live.

    Raises:
        UserError: the published responses are not there or damaged.
    """
    reference = open_reference(llm.reference)
    if reference is None:
        return [False] * len(requests)
    hashes = [request_hash(llm.model, r) for r in requests]
    known = reference.get_many(hashes)
    return [not r.live and h in known for h, r in zip(hashes, requests, strict=True)]


def _unanswered(
    requests: Sequence[GenerationRequest], settings: Settings
) -> tuple[list[GenerationRequest], int]:
    llm = settings.llm
    hashes = [request_hash(llm.model, r) for r in requests]
    published = answered_by_reference(llm, requests)
    known = {h for h, said in zip(hashes, published, strict=True) if said}
    if llm.store.is_file():
        store = ResponseStore(llm.store)
        try:
            known |= {h for h, response in store.get_many(hashes).items() if response.ok}
        finally:
            store.close()
    asked: dict[str, GenerationRequest] = {}
    for key, request in zip(hashes, requests, strict=True):
        if key not in known:
            asked.setdefault(key, request)
    return list(asked.values()), len(requests) - len(asked)


def _shared(one: str, other: str) -> int:
    """Length of the common beginning; by halving, since prompts are long and many."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _dollars(tokens_in: int, tokens_out: int, llm: LLMSettings) -> float | None:
    if llm.price_in is None and llm.price_out is None:
        return None
    return round((tokens_in * (llm.price_in or 0.0) + tokens_out * (llm.price_out or 0.0)) / 1e6, 4)
