"""Stand-ins of the engines, for tests that are about what lies around a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ecoagent.llm import GenerationRequest, GenerationResponse, Sampling, error_response, request_hash
from ecoagent.llm.protocol import OnResponse


def ask(text: str, *, identifier: str = "", seed: int = 0, max_tokens: int = 8) -> GenerationRequest:
    sampling = Sampling(temperature=0.0, top_p=1.0, max_tokens=max_tokens, seed=seed)
    message = {"role": "user", "content": text}
    return GenerationRequest.model_validate(
        {"id": identifier or text, "messages": [message], "sampling": sampling, "prompt_sha256": "p" * 64}
    )


def answer(model: str, request: GenerationRequest, text: str) -> GenerationResponse:
    return GenerationResponse(
        id=request.id,
        request_hash=request_hash(model, request),
        model=model,
        text=text,
        tokens_in=10,
        tokens_out=3,
        finish_reason="stop",
        status="ok",
        first_token_logprobs={"Yes": -0.25, "No": -1.5},
    )


class ScriptedEngine:
    """Answers by a function of the prompt; a reply of None is a failed request."""

    def __init__(self, script: Callable[[str], str | None], model: str = "scripted") -> None:
        self.model, self.script = model, script
        self.asked: list[str] = []
        self.closed = False

    def generate(
        self, requests: Sequence[GenerationRequest], on_response: OnResponse | None = None
    ) -> list[GenerationResponse]:
        results = []
        for request in requests:
            text = request.messages[-1]["content"]
            self.asked.append(text)
            reply = self.script(text)
            response = (
                error_response(self.model, request, "http_500")
                if reply is None
                else answer(self.model, request, reply)
            )
            results.append(response)
            if on_response is not None:
                on_response(response)
        return results

    def close(self) -> None:
        self.closed = True
