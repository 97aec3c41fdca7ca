"""A stub in a model's place, for simulations of scale: it writes lines of made-up words.

No setting opens it: ``llm.engine`` does not know it, and ``publish`` refuses a run whose model has
its name. Benchmarks and tests make one themselves.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import lru_cache

from ecoagent.llm.protocol import GenerationRequest, GenerationResponse, OnResponse, request_hash

STUB_PREFIX = "stub-"
STUB_MODEL = "stub-lines-1"
VOCABULARY = 200_000
FAMILIES = 50_000
"""Wordings that lines which repeat another come from."""
REPEATED, NEAR = 0.01, 0.02
"""Shares of lines that are word for word, or nearly, those of another tool."""
_WANTED = re.compile(r"\b(\d+) (?:\w+ ){0,4}?messages\b")
_SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]


def is_stub(model: str) -> bool:
    """Whether a model's name is a stub's."""
    return model.startswith(STUB_PREFIX)


@lru_cache(VOCABULARY)
def _word(number: int) -> str:
    first, rest = divmod(number, len(_SYLLABLES) ** 2)
    return _SYLLABLES[first] + _SYLLABLES[rest // len(_SYLLABLES)] + _SYLLABLES[rest % len(_SYLLABLES)]


def _line(rng: random.Random) -> str:
    # Log-uniform ranks: word frequencies fall off as in running text.
    words = [_word(int(VOCABULARY ** rng.random())) for _ in range(rng.randint(6, 14))]
    return f"Please find {' '.join(words)} for me."


def stub_text(seed: int, lines: int) -> str:
    """A numbered list of ``lines`` made-up requests; the same for the same seed."""
    rng = random.Random(seed)
    written = []
    for number in range(1, lines + 1):
        draw = rng.random()
        if draw < REPEATED + NEAR:
            text = _line(random.Random(rng.randrange(FAMILIES)))
            if draw < NEAR:
                text = text.replace(" for me.", f" for {_word(rng.randrange(VOCABULARY))}.")
        else:
            text = _line(rng)
        written.append(f"{number}. {text}")
    return "\n".join(written)


class StubEngine:
    """Answers at once, by the request's seed alone."""

    model = STUB_MODEL

    def generate(
        self, requests: Sequence[GenerationRequest], on_response: OnResponse | None = None
    ) -> list[GenerationResponse]:
        """Lines for every request, as many as its prompt asks for."""
        answers = []
        for request in requests:
            answer = self._answer(request)
            answers.append(answer)
            if on_response is not None:
                on_response(answer)
        return answers

    def close(self) -> None:
        """Nothing to free."""

    def _answer(self, request: GenerationRequest) -> GenerationResponse:
        prompt = request.messages[-1]["content"]
        found = _WANTED.findall(prompt)
        text = stub_text(request.sampling.seed, int(found[-1]) if found else 4)
        return GenerationResponse(
            id=request.id,
            request_hash=request_hash(self.model, request),
            model=self.model,
            text=text,
            tokens_in=sum(len(m["content"]) for m in request.messages) // 4,
            tokens_out=len(text) // 4,
            finish_reason="stop",
            status="ok",
        )
