"""The vLLM engine, in process: the paper profile's. Needs the ``vllm`` extra and, in practice, a GPU."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ecoagent.llm.protocol import (
    GenerationRequest,
    GenerationResponse,
    OnResponse,
    Sampling,
    error_response,
    request_hash,
)
from ecoagent.settings import UserError

CALL_SIZE = 512
"""Prompts of one vLLM call. Its continuous batching runs over all of them; the responses are stored
when the call returns, so this bounds what a killed run generates again."""


def load_vllm() -> ModuleType:
    """The vllm package.

    Raises:
        UserError: it is not installed, or does not import here.
    """
    try:
        return importlib.import_module("vllm")
    except (ImportError, OSError, RuntimeError) as error:
        raise UserError(
            f"llm.engine = vllm, but vllm cannot be imported ({error})",
            remedy="pip install 'ecoagent[vllm]' where there is a GPU, or set llm.engine to embedded",
        ) from error


class VllmEngine:
    """A model served by ``vllm.LLM`` with prefix caching.

    Args:
        path: model folder in Hugging Face layout.
        model: name used in hashes and tables.
        context: longest prompt plus response, tokens.
        tensor_parallel: GPUs.
        gpu_memory_utilization: share of each GPU's memory.
        vllm: the package; imported if none.
    """

    def __init__(
        self,
        path: Path,
        model: str,
        *,
        context: int = 2048,
        tensor_parallel: int = 1,
        gpu_memory_utilization: float = 0.9,
        vllm: ModuleType | Any | None = None,
    ) -> None:
        self.model = model
        self._vllm = vllm if vllm is not None else load_vllm()
        self._llm: Any = self._vllm.LLM(
            model=str(path),
            max_model_len=context,
            tensor_parallel_size=tensor_parallel,
            gpu_memory_utilization=gpu_memory_utilization,
            enable_prefix_caching=True,
            # Each request brings its own seed; this one is for what has none.
            seed=0,
        )

    def generate(
        self, requests: Sequence[GenerationRequest], on_response: OnResponse | None = None
    ) -> list[GenerationResponse]:
        """Answer all requests, in their order, ``CALL_SIZE`` to a call."""
        results: list[GenerationResponse] = []
        for start in range(0, len(requests), CALL_SIZE):
            for response in self._call(requests[start : start + CALL_SIZE]):
                results.append(response)
                if on_response is not None:
                    on_response(response)
        return results

    def close(self) -> None:
        """Let go of the model; vLLM frees the GPU when it is collected."""
        self._llm = None

    def _call(self, requests: Sequence[GenerationRequest]) -> list[GenerationResponse]:
        try:
            outputs = self._llm.chat(
                [[dict(m) for m in r.messages] for r in requests],
                [self.sampling_params(r.sampling) for r in requests],
                use_tqdm=False,
            )
        except ValueError:
            # vLLM refuses the whole call for one bad prompt (too long, say): find which.
            if len(requests) == 1:
                return [error_response(self.model, requests[0], "request")]
            return [response for request in requests for response in self._call([request])]
        return [self._response(r, o) for r, o in zip(requests, outputs, strict=True)]

    def sampling_params(self, sampling: Sampling) -> Any:
        """vLLM's form of the sampling parameters."""
        values = sampling.shared_fields()
        if sampling.top_logprobs:
            values["logprobs"] = sampling.top_logprobs
        if sampling.json_schema is not None:
            structured = self._vllm.sampling_params.StructuredOutputsParams
            values["structured_outputs"] = structured(json=json.loads(sampling.json_schema))
        return self._vllm.SamplingParams(**values)

    def _response(self, request: GenerationRequest, output: Any) -> GenerationResponse:
        if not output.outputs:
            return error_response(self.model, request, "no_choices")
        first = output.outputs[0]
        return GenerationResponse(
            id=request.id,
            request_hash=request_hash(self.model, request),
            model=self.model,
            text=first.text,
            tokens_in=len(output.prompt_token_ids or ()),
            tokens_out=len(first.token_ids),
            finish_reason=str(first.finish_reason or "unknown"),
            status="ok",
            first_token_logprobs=_first_logprobs(first) if request.sampling.top_logprobs else None,
        )


def _first_logprobs(completion: Any) -> dict[str, float] | None:
    if not completion.logprobs:
        return None
    found: dict[str, float] = {}
    for token_id, entry in completion.logprobs[0].items():
        token = entry.decoded_token if entry.decoded_token is not None else f"<{token_id}>"
        found[token] = max(float(entry.logprob), found.get(token, float("-inf")))
    return found
