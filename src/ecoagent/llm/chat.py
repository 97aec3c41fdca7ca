"""One request to one OpenAI-compatible chat endpoint: vLLM, llama.cpp, Ollama, a hosted one."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import requests
from pydantic import TypeAdapter
from urllib3.exceptions import HTTPError, MaxRetryError, NewConnectionError, ReadTimeoutError

from ecoagent.llm.protocol import GenerationRequest, GenerationResponse, Sampling, Tokens, request_hash
from ecoagent.settings import UserError

MAX_RETRY_AFTER_S = 120.0
CONNECT_TIMEOUT_S = 10.0
PROBE_TIMEOUT_S = 5.0
MAX_BODY = 64 * 2**20
"""A longer reply is no chat completion, bytes."""
MAX_TEXT = 64 * 2**10
"""A longer text is no answer, bytes. What is asked for is a few hundred tokens, at most some thousand; a
server that heeds no limit may send megabytes, and taking those apart line by line takes minutes."""
OVERFLOW = "context_overflow"
"""Reason of a request that is longer than the model's context."""

_MALFORMED = (
    *(ValueError, KeyError, TypeError, IndexError, AttributeError),
    # An infinite number of tokens; a body nested beyond reason.
    *(OverflowError, RecursionError),
)
_COUNT = TypeAdapter(Tokens)
_TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_NOT_UP = frozenset({502, 503, 504})
_NO_CREDIT = re.compile(r"insufficient[_ ](quota|credit|balance)|exceeded your current quota", re.I)
# llama.cpp, vLLM (two wordings), SGLang, TGI and OpenAI each say it in their own way.
_OVERFLOW = re.compile(
    r"exceed_context_size|context_length_exceeded|context (size|length|window)|context shift"
    r"|maximum (model|context|sequence) length|longer than the (maximum )?model|max_model_len"
    r"|input is too large to process|prompt is too long|inputs?`? (tokens \+|must have less than)",
    re.I,
)


class Failure(Exception):  # noqa: N818 - becomes a response's status
    """A try failed for good; ``reason`` is the status it ends with."""

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason, self.retry_after_s = reason, retry_after_s


class Passing(Failure):
    """A failure that another try may mend."""


class Unreachable(Passing):
    """Nobody listens at the address: the request was not read and is not at fault."""


def overflows(message: str) -> bool:
    """Whether an error message says that a request is longer than the context."""
    return bool(_OVERFLOW.search(message))


class ChatClient:
    """Client of one endpoint; safe to use from several threads.

    Args:
        base_url: address with or without its final ``/v1``.
        model: name sent to the server and used in request hashes.
        timeout_s: limit of one request, its whole reply included, seconds.
        api_key: bearer token, if the server wants one.
        extra: further fields of every request body.
        use_proxies: whether the environment's proxies apply.

    Raises:
        UserError: the address is no URL.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        timeout_s: float = 300.0,
        api_key: str | None = None,
        extra: Mapping[str, Any] | None = None,
        use_proxies: bool = True,
    ) -> None:
        self.base_url, self.model = _with_version(base_url), model
        self.timeout_s = timeout_s
        self.headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._extra = dict(extra or {})
        self._use_proxies = use_proxies
        self._local = threading.local()

    def ask(self, request: GenerationRequest) -> tuple[GenerationResponse, int]:
        """The answer, and how many of its prompt tokens came from the server's cache (0 if not said).

        Raises:
            Failure: this try failed; its class says what may mend it.
            UserError: the key is refused, the account is empty, or the model or path is unknown.
        """
        deadline = time.monotonic() + self.timeout_s
        try:
            with self._session().post(
                f"{self.base_url}/chat/completions",
                json={
                    "model": self.model,
                    "messages": list(request.messages),
                    **body_of(request.sampling),
                    **self._extra,
                },
                headers=self.headers,
                timeout=(min(CONNECT_TIMEOUT_S, self.timeout_s), self.timeout_s),
                stream=True,
            ) as reply:
                content = _content(reply, deadline)
        except requests.Timeout as error:
            kind = Unreachable if isinstance(error, requests.ConnectTimeout) else Passing
            raise kind("timeout") from error
        except ReadTimeoutError as error:
            raise Passing("timeout") from error
        except requests.ConnectionError as error:
            cause = error.args[0] if error.args else None
            refused = isinstance(cause, MaxRetryError) and isinstance(cause.reason, NewConnectionError)
            raise (Unreachable if refused else Passing)("connection") from error
        except requests.RequestException as error:
            raise Failure(type(error).__name__) from error
        except (HTTPError, OSError) as error:
            # The body broke off.
            raise Passing("connection") from error
        self._check_status(reply, content)
        return self._read(request, content)

    def alive(self) -> bool:
        """Whether the server answers at all; asks for its list of models."""
        try:
            reply = self._session().get(
                f"{self.base_url}/models",
                headers=self.headers,
                timeout=min(PROBE_TIMEOUT_S, self.timeout_s),
            )
        except requests.RequestException:
            return False
        return reply.status_code not in _NOT_UP

    def _check_status(self, reply: requests.Response, content: bytes) -> None:
        code = reply.status_code
        if code < 400:
            return
        said = content[:4000].decode("utf-8", "replace")
        if code in (401, 403):
            raise UserError(
                f"{self.base_url} refuses the key (HTTP {code})",
                remedy="put the key into the environment variable that llm.api_key_env names",
            )
        if code == 402 or (code == 429 and _NO_CREDIT.search(said)):
            raise UserError(
                f"{self.base_url} says that the account has no credit left (HTTP {code})",
                remedy="top it up; answers so far are stored, the same command goes on",
            )
        if code == 404:
            raise UserError(
                f"{self.base_url} knows no model {self.model!r} or is no chat endpoint (HTTP 404)",
                remedy="mend llm.model, llm.base_url or llm.base_urls",
            )
        if code in (400, 413, 422, 500) and overflows(said):
            # A 500 may mean that all sequences together filled the cache: that passes.
            raise (Passing if code == 500 else Failure)(OVERFLOW)
        if code in _TRANSIENT:
            raise Passing(f"http_{code}", _retry_after(reply))
        raise Failure(f"http_{code}")

    def _read(self, request: GenerationRequest, content: bytes) -> tuple[GenerationResponse, int]:
        try:
            body = json.loads(content)
            if "choices" not in body and overflows(json.dumps(body.get("error") or "")):
                raise Failure(OVERFLOW)
            choices = body["choices"]
            if not choices:
                raise Passing("no_choices")
            choice = choices[0]
            text = choice["message"]["content"]
            logprobs = _first_logprobs(choice) if request.sampling.top_logprobs else None
            if not isinstance(text, str):
                raise Passing("no_text")
            # A token that prints as nothing is an answer where probabilities are what was asked for.
            if not text.strip() and not logprobs:
                raise Passing("empty")
            usage = body.get("usage") or {}
            details = usage.get("prompt_tokens_details") or {}
            cached = details.get("cached_tokens") or (body.get("timings") or {}).get("cache_n") or 0
            response = GenerationResponse(
                id=request.id,
                request_hash=request_hash(self.model, request),
                model=self.model,
                text=text,
                tokens_in=int(usage.get("prompt_tokens") or 0),
                tokens_out=int(usage.get("completion_tokens") or 0),
                finish_reason=str(choice.get("finish_reason") or "unknown"),
                status="ok",
                first_token_logprobs=logprobs,
            )
            _check_text(text, response.finish_reason, json.dumps(logprobs, ensure_ascii=False))
            return response, _COUNT.validate_python(int(cached))
        except _MALFORMED as error:
            raise Passing("malformed") from error

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


def _content(reply: requests.Response, deadline: float) -> bytes:
    """The whole body. A server that drips bytes is held to the deadline, not to the gap between two."""
    pieces: list[bytes] = []
    size = 0
    while piece := reply.raw.read1(65536, decode_content=True):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_BODY:
            raise Passing("malformed")
        if time.monotonic() > deadline:
            raise Passing("timeout")
    return b"".join(pieces)


def _check_text(*texts: str) -> None:
    """Raises ValueError where a text is too long, or no UTF-8 since half of a surrogate pair is missing."""
    for text in texts:
        if len(text.encode()) > MAX_TEXT:
            raise ValueError("the text is too long")


def _first_logprobs(choice: dict[str, Any]) -> dict[str, float] | None:
    content = (choice.get("logprobs") or {}).get("content") or []
    if not content:
        return None
    found: dict[str, float] = {}
    for item in content[0].get("top_logprobs") or []:
        # Several special tokens may all print as nothing; the most probable stands for them.
        token, logprob = item["token"], float(item["logprob"])
        if not math.isfinite(logprob):
            raise ValueError("a log-probability is not finite")
        found[token] = max(logprob, found.get(token, logprob))
    return found


def _retry_after(reply: requests.Response) -> float | None:
    """Seconds of a ``Retry-After`` header, a number or a date, capped; None if there is none."""
    value = reply.headers.get("Retry-After", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return None
    if math.isnan(seconds):
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S)


def _with_version(url: str) -> str:
    trimmed = url.strip().rstrip("/")
    if "://" not in trimmed:
        raise UserError(f"llm.base_url = {url!r} is no URL", remedy="write http://host:port/v1")
    # Some hosts have more after the version: /v1beta/openai.
    return trimmed if re.search(r"/v\d\w*(/|$)", trimmed) else f"{trimmed}/v1"
