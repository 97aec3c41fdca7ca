"""The server engine: one or several OpenAI-compatible endpoints that serve one model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ecoagent.llm.balance import Balancer, ServerRecord
from ecoagent.llm.chat import ChatClient
from ecoagent.llm.protocol import GenerationRequest, GenerationResponse, OnResponse
from ecoagent.settings import UserError


class ServerEngine:
    """Sends requests over pools of threads; each failure becomes a response with a status.

    Args:
        base_url: address with or without its final ``/v1``, or several of the same model.
        model: name sent to the servers and used in request hashes.
        concurrency: requests in flight at each server.
        timeout_s: limit of one try, seconds.
        retries: further tries of a request that failed in passing (timeout, 408, 429, 5xx, unreadable
            or empty answer), with exponential back-off and jitter, or as ``Retry-After`` says. Where
            there are several servers, the next try is another's.
        api_key: bearer token, if the servers want one.
        extra: further fields of every request body.
        use_proxies: whether the environment's proxies apply.
        say: told when a server gives no answer for the first time, and when one of several is taken out
            or comes back.
    """

    def __init__(
        self,
        base_url: str | Sequence[str],
        model: str,
        *,
        concurrency: int = 4,
        timeout_s: float = 300.0,
        retries: int = 3,
        api_key: str | None = None,
        extra: dict[str, Any] | None = None,
        use_proxies: bool = True,
        backoff_s: float = 0.5,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.model = model
        urls = [base_url] if isinstance(base_url, str) else list(base_url)
        clients = {
            client.base_url: client
            for client in (
                ChatClient(
                    url,
                    model,
                    timeout_s=timeout_s,
                    api_key=api_key,
                    extra=extra,
                    use_proxies=use_proxies,
                )
                for url in urls
            )
        }
        if not clients:
            raise UserError(
                "llm.engine = server needs an address",
                remedy="set llm.base_url, for example http://127.0.0.1:8000/v1",
            )
        self.base_urls = tuple(clients)
        self._balancer = Balancer(
            list(clients.values()), concurrency=concurrency, retries=retries, backoff_s=backoff_s, say=say
        )

    @property
    def base_url(self) -> str:
        """Address of the (first) server."""
        return self.base_urls[0]

    @property
    def records(self) -> list[ServerRecord]:
        """What each server did so far."""
        return self._balancer.records()

    @property
    def tokens_cached(self) -> int:
        """Prompt tokens found in the servers' caches, as far as they say."""
        return sum(record.tokens_cached for record in self.records)

    def generate(
        self, requests: Sequence[GenerationRequest], on_response: OnResponse | None = None
    ) -> list[GenerationResponse]:
        """Answer all requests, in their order; ``on_response`` is called in the caller's thread.

        Raises:
            UserError: no server listens or has ever answered, one refuses the key, or knows no such model
                or path.
        """
        batch = self._balancer.submit(requests)
        results: dict[int, GenerationResponse] = {}
        try:
            for place, response in batch:
                results[place] = response
                if on_response is not None:
                    on_response(response)
        finally:
            # Only an error or an interrupt leaves anything to withdraw.
            self._balancer.withdraw(batch)
        return [results[place] for place in range(len(requests))]

    def close(self) -> None:
        """Stop the threads; requests in flight are not waited for."""
        self._balancer.close()
