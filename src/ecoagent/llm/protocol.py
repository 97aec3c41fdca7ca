"""What every engine speaks: requests, responses and the hash that names a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from ecoagent.runs import canonical_json, digest
from ecoagent.schema import ResponseRow

Tokens = Annotated[int, Field(ge=0, le=2**31)]
"""A number of tokens; beyond it a server counts nonsense, which no store or table could hold."""
LogProb = Annotated[float, Field(allow_inf_nan=False, le=1.0)]
"""Natural logarithm of a probability. Rounding may put it a little above 0."""


class Message(TypedDict):
    """A turn of a chat."""

    role: str
    content: str


class _Value(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Sampling(_Value):
    """How tokens are drawn. Part of a request's identity, seed included."""

    temperature: float = Field(ge=0)
    top_p: float = Field(gt=0, le=1)
    max_tokens: int = Field(ge=1)
    seed: int
    stop: tuple[str, ...] = ()
    top_logprobs: int = Field(0, ge=0, le=20, description="Log-probabilities wanted per token; 0 = none.")
    json_schema: str | None = Field(None, description="JSON Schema (as text) the answer must follow.")

    def shared_fields(self) -> dict[str, Any]:
        """The parameters that every engine knows by the same name; ``stop`` only where there is one."""
        found = self.model_dump(include={"temperature", "top_p", "max_tokens", "seed"})
        return {**found, "stop": list(self.stop)} if self.stop else found


class GenerationRequest(_Value):
    """One prompt. ``id`` is the caller's and no part of the request's hash."""

    id: str
    messages: tuple[Message, ...] = Field(min_length=1)
    sampling: Sampling
    prompt_sha256: str = Field(description="Digest of the prompt template.")
    live: bool = Field(False, description="Published responses do not answer it; no part of its hash.")


class GenerationResponse(_Value):
    """What came back; a failure is a response with a status, never an exception or a gap."""

    id: str
    request_hash: str
    model: str
    text: str
    tokens_in: Tokens
    tokens_out: Tokens
    finish_reason: str
    status: str = Field(description="ok, or error:<what>.")
    first_token_logprobs: dict[str, LogProb] | None = Field(
        None, description="Most probable first tokens with natural-log probabilities, if asked for."
    )
    replayed: bool = Field(False, description="It was stored; the model was not asked.")
    published: bool = Field(False, description="It comes from published responses.")

    @property
    def ok(self) -> bool:
        """Whether there is an answer."""
        return self.status == "ok"


OnResponse = Callable[[GenerationResponse], None]


class Engine(Protocol):
    """Something that answers requests, in their order."""

    @property
    def model(self) -> str:
        """Name of the model, as it stands in hashes and tables."""
        ...

    def generate(
        self, requests: Sequence[GenerationRequest], on_response: OnResponse | None = None
    ) -> list[GenerationResponse]:
        """Answer all requests; ``on_response`` sees each as soon as it arrives."""
        ...

    def close(self) -> None:
        """Free what the engine holds."""
        ...


def request_hash(model: str, request: GenerationRequest) -> str:
    """sha256 over model, messages and sampling (seed included), not over the caller's id."""
    return digest(
        {
            "model": model,
            "messages": [dict(m) for m in request.messages],
            "sampling": request.sampling.model_dump(mode="json"),
        }
    )


def error_response(model: str, request: GenerationRequest, reason: str) -> GenerationResponse:
    """A response that says why there is none."""
    return GenerationResponse(
        id=request.id,
        request_hash=request_hash(model, request),
        model=model,
        text="",
        tokens_in=0,
        tokens_out=0,
        finish_reason="error",
        status=f"error:{reason}",
    )


def to_response_row(request: GenerationRequest, response: GenerationResponse) -> ResponseRow:
    """The row of the ``responses`` table."""
    return ResponseRow(
        request_hash=response.request_hash,
        model=response.model,
        sampling=sampling_text(request.sampling),
        prompt_sha256=request.prompt_sha256,
        text=response.text,
        tokens_in=response.tokens_in,
        tokens_out=response.tokens_out,
        finish_reason=response.finish_reason,
        status=response.status,
    )


def sampling_text(sampling: Sampling) -> str:
    """Sampling parameters as canonical JSON."""
    return canonical_json(sampling.model_dump(mode="json"))


class AsksModel(Protocol):
    """What stages need of an engine: answers in order, and a name for the progress line."""

    def generate(
        self,
        requests: Sequence[GenerationRequest],
        on_response: OnResponse | None = None,
        *,
        label: str = "model",
    ) -> list[GenerationResponse]:
        """Answer all requests, in their order."""
        ...
