"""Client of an OpenAI-compatible chat endpoint: vLLM, llama.cpp or any other."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

import requests
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_exponential_jitter,
)
from urllib3.exceptions import MaxRetryError, NewConnectionError

from ecoagent.llm.protocol import (
    GenerationRequest,
    GenerationResponse,
    OnResponse,
    Sampling,
    error_response,
    request_hash,
)
from ecoagent.llm.workers import Workers
from ecoagent.settings import UserError

MAX_RETRY_AFTER_S = 120.0
CONNECT_TIMEOUT_S = 10.0
POLL_S = 0.5
_TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504})


class _Failure(Exception):  # noqa: N818 - becomes a response's status
    """A try failed; ``reason`` is the status it would end with."""

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason, self.retry_after_s = reason, retry_after_s


class _Passing(_Failure):
    """A failure that another try may mend."""


class _OutOfReach(_Passing):
    """Nobody listens at the address."""


class ServerEngine:
    """Sends requests over a pool of threads; each failure becomes a response with a status.

    Args:
        base_url: address with or without its final ``/v1``.
        model: name sent to the server and used in request hashes.
        concurrency: requests in flight.
        timeout_s: limit of one try, seconds.
        retries: further tries of a request that failed in passing (timeout, 408, 429, 5xx,
            unreadable answer), with exponential back-off and jitter, or as ``Retry-After`` says.
        api_key: bearer token, if the server wants one.
        extra: further fields of every request body.
        use_proxies: whether the environment's proxies apply.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        concurrency: int = 4,
        timeout_s: float = 300.0,
        retries: int = 3,
        api_key: str | None = None,
        extra: dict[str, Any] | None = None,
        use_proxies: bool = True,
        backoff_s: float = 0.5,
    ) -> None:
        self.model = model
        self.base_url = _with_version(base_url)
        self._timeout = (min(CONNECT_TIMEOUT_S, timeout_s), timeout_s)
        self._retries, self._backoff_s = retries, backoff_s
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._extra = extra or {}
        self._use_proxies = use_proxies
        self._local = threading.local()
        self._reached = False
        self._pool = Workers(self._answer, concurrency)

    def generate(
        self, requests: Sequence[GenerationRequest], on_response: OnResponse | None = None
    ) -> list[GenerationResponse]:
        """Answer all requests, in their order; ``on_response`` is called in the caller's thread.

        Raises:
            UserError: nobody listens, the key is refused, or the model or path is unknown.
        """
        pending: dict[Future[GenerationResponse], int] = {
            self._pool.submit(request): place for place, request in enumerate(requests)
        }
        results: dict[int, GenerationResponse] = {}
        try:
            waiting = set(pending)
            while waiting:
                # With a limit: polars' signal handler restarts an endless wait, so that Ctrl-C
                # would be seen only when a response arrives.
                done, waiting = wait(waiting, timeout=POLL_S, return_when=FIRST_COMPLETED)
                for future in sorted(done, key=pending.__getitem__):
                    response = future.result()
                    results[pending[future]] = response
                    if on_response is not None:
                        on_response(response)
        finally:
            # Only an error or an interrupt leaves anything to cancel.
            for future in pending:
                future.cancel()
        return [results[place] for place in range(len(requests))]

    def close(self) -> None:
        """Stop the threads; requests in flight are not waited for."""
        self._pool.close()

    def _answer(self, request: GenerationRequest) -> GenerationResponse:
        retrying = Retrying(
            retry=retry_if_exception_type(_Passing),
            stop=self._stop,
            wait=self._wait,
            reraise=True,
        )
        try:
            return retrying(self._once, request)
        except _OutOfReach as error:
            raise UserError(
                f"no model server answers at {self.base_url}",
                remedy="start it or mend llm.base_url; answers so far are stored, the same command goes on",
            ) from error
        except _Failure as error:
            return error_response(self.model, request, error.reason)

    def _stop(self, state: RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, _OutOfReach) and not self._reached:
            return True
        return stop_after_attempt(self._retries + 1)(state)

    def _wait(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, _Passing) and error.retry_after_s is not None:
            return error.retry_after_s
        return wait_exponential_jitter(initial=self._backoff_s, max=30.0, jitter=self._backoff_s)(state)

    def _once(self, request: GenerationRequest) -> GenerationResponse:
        try:
            reply = self._session().post(
                f"{self.base_url}/chat/completions",
                json=self._body(request),
                headers=self._headers,
                timeout=self._timeout,
            )
        except requests.Timeout as error:
            raise (_OutOfReach if isinstance(error, requests.ConnectTimeout) else _Passing)(
                "timeout"
            ) from error
        except requests.ConnectionError as error:
            cause = error.args[0] if error.args else None
            refused = isinstance(cause, MaxRetryError) and isinstance(cause.reason, NewConnectionError)
            raise (_OutOfReach if refused else _Passing)("connection") from error
        except requests.RequestException as error:
            raise _Failure(type(error).__name__) from error
        self._reached = True
        self._check_status(reply)
        return self._read(request, reply)

    def _check_status(self, reply: requests.Response) -> None:
        code = reply.status_code
        if code < 400:
            return
        if code in (401, 403):
            raise UserError(
                f"{self.base_url} refuses the key (HTTP {code})",
                remedy="put the key into the environment variable that llm.api_key_env names",
            )
        if code == 404:
            raise UserError(
                f"{self.base_url} knows no model {self.model!r} or is no chat endpoint (HTTP 404)",
                remedy="mend llm.model or llm.base_url",
            )
        if code in _TRANSIENT:
            raise _Passing(f"http_{code}", _retry_after(reply))
        raise _Failure(f"http_{code}")

    def _read(self, request: GenerationRequest, reply: requests.Response) -> GenerationResponse:
        try:
            body = reply.json()
            choices = body["choices"]
            if not choices:
                raise _Passing("no_choices")
            choice = choices[0]
            text = choice["message"]["content"]
            usage = body.get("usage") or {}
            if not isinstance(text, str):
                raise _Passing("no_text")
            return GenerationResponse(
                id=request.id,
                request_hash=request_hash(self.model, request),
                model=self.model,
                text=text,
                tokens_in=int(usage.get("prompt_tokens") or 0),
                tokens_out=int(usage.get("completion_tokens") or 0),
                finish_reason=str(choice.get("finish_reason") or "unknown"),
                status="ok",
                first_token_logprobs=_first_logprobs(choice) if request.sampling.top_logprobs else None,
            )
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise _Passing("malformed") from error

    def _body(self, request: GenerationRequest) -> dict[str, Any]:
        return {
            "model": self.model,
            "messages": list(request.messages),
            **body_of(request.sampling),
            **self._extra,
        }

    def _session(self) -> requests.Session:
        """One session a thread: they share connections, not state."""
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = requests.Session()
            session.trust_env = self._use_proxies
            self._local.session = session
        return session


def body_of(sampling: Sampling) -> dict[str, Any]:
    """Sampling in the fields of the chat completions protocol."""
    body = sampling.shared_fields()
    if sampling.top_logprobs:
        body |= {"logprobs": True, "top_logprobs": sampling.top_logprobs}
    if sampling.json_schema is not None:
        schema = {"name": "answer", "strict": True, "schema": json.loads(sampling.json_schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def _first_logprobs(choice: dict[str, Any]) -> dict[str, float] | None:
    content = (choice.get("logprobs") or {}).get("content") or []
    if not content:
        return None
    found: dict[str, float] = {}
    for item in content[0].get("top_logprobs") or []:
        # Several special tokens may all print as nothing; the most probable stands for them.
        found[item["token"]] = max(float(item["logprob"]), found.get(item["token"], float("-inf")))
    return found


def _retry_after(reply: requests.Response) -> float | None:
    """Seconds of a ``Retry-After`` header, capped; None if absent or a date."""
    try:
        return min(max(float(reply.headers["Retry-After"]), 0.0), MAX_RETRY_AFTER_S)
    except (KeyError, ValueError):
        return None


def _with_version(url: str) -> str:
    trimmed = url.rstrip("/")
    if "://" not in trimmed:
        raise UserError(f"llm.base_url = {url!r} is no URL", remedy="write http://host:port/v1")
    return trimmed if trimmed.rsplit("/", 1)[-1].startswith("v") else f"{trimmed}/v1"
