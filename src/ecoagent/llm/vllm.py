"""The vLLM engine, in process: the paper profile's. Needs the ``vllm`` extra and, in practice, a GPU.

``vllm.LLM`` is one replica: vLLM 0.30 and 0.32 both refuse ``data_parallel_size`` above 1 in a single
process. Several replicas are processes of their own, see ``ecoagent.llm.replicas``.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ecoagent.llm.chat import OVERFLOW, overflows
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
        dtype: number format of the weights.
        tensor_parallel: GPUs.
        gpu_memory_utilization: share of each GPU's memory.
        vllm: the package; imported if none.
        options: further arguments of ``vllm.LLM``.

    Attributes:
        tokens_cached: prompt tokens found in the prefix cache so far, as far as vLLM says.

    Raises:
        UserError: vLLM is not installed or cannot load the model.
    """

    def __init__(
        self,
        path: Path,
        model: str,
        *,
        context: int = 2048,
        dtype: str = "bfloat16",
        tensor_parallel: int = 1,
        gpu_memory_utilization: float = 0.9,
        vllm: ModuleType | Any | None = None,
        **options: Any,
    ) -> None:
        self.model = model
        self.tokens_cached = 0
        self._vllm = vllm if vllm is not None else load_vllm()
        self._refusals, self._deaths = _errors_of(self._vllm)
        troubles: tuple[type[Exception], ...] = (RuntimeError, OSError, *self._refusals)
        try:
            self._llm: Any = self._vllm.LLM(
                model=str(path),
                dtype=dtype,
                max_model_len=context,
                tensor_parallel_size=tensor_parallel,
                gpu_memory_utilization=gpu_memory_utilization,
                enable_prefix_caching=True,
                # Each request brings its own seed; this one is for what has none.
                seed=0,
                **options,
            )
        except troubles as error:
            raise UserError(
                f"vLLM cannot load {path}: {_first_line(error)}",
                remedy="vLLM's own lines above say more; often llm.gpu_memory_utilization, llm.context, "
                "llm.dtype or llm.tensor_parallel does not fit the GPU",
            ) from error

    def generate(
        self, requests: Sequence[GenerationRequest], on_response: OnResponse | None = None
    ) -> list[GenerationResponse]:
        """Answer all requests, in their order, ``CALL_SIZE`` to a call.

        Raises:
            UserError: vLLM's engine died.
        """
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
        except self._refusals as error:
            # vLLM refuses the whole call for one bad prompt (too long, say): halve until it stands alone.
            if len(requests) == 1:
                reason = OVERFLOW if overflows(str(error)) else "request"
                return [error_response(self.model, requests[0], reason)]
            half = len(requests) // 2
            return [*self._call(requests[:half]), *self._call(requests[half:])]
        except self._deaths as error:
            raise UserError(
                f"vLLM's engine died: {_first_line(error)}",
                remedy="answers so far are stored, the same command goes on; if it dies again lower "
                "llm.gpu_memory_utilization",
            ) from error
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
        logprobs = _first_logprobs(first) if request.sampling.top_logprobs else None
        # A token that prints as nothing is an answer where probabilities are what was asked for.
        if not first.text.strip() and not logprobs:
            return error_response(self.model, request, "empty")
        self.tokens_cached += output.num_cached_tokens or 0
        return GenerationResponse(
            id=request.id,
            request_hash=request_hash(self.model, request),
            model=self.model,
            text=first.text,
            tokens_in=len(output.prompt_token_ids or ()),
            tokens_out=len(first.token_ids),
            finish_reason=str(first.finish_reason or "unknown"),
            status="ok",
            first_token_logprobs=logprobs,
        )


def _errors_of(vllm: ModuleType | Any) -> tuple[tuple[type[Exception], ...], tuple[type[Exception], ...]]:
    """What vLLM raises for a bad request, and what for an engine that is no more.

    A refused request is an error of vLLM's own class, which is no ValueError; older releases raised that.
    """
    name = getattr(vllm, "__name__", None)

    def named(module: str, kind: str) -> tuple[type[Exception], ...]:
        try:
            return (getattr(importlib.import_module(f"{name}.{module}"), kind),)
        except (ImportError, AttributeError):
            return ()

    refusals: tuple[type[Exception], ...] = (ValueError, *named("exceptions", "VLLMClientError"))
    return refusals, named("v1.engine.exceptions", "EngineDeadError")


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _first_logprobs(completion: Any) -> dict[str, float] | None:
    if not completion.logprobs:
        return None
    found: dict[str, float] = {}
    for token_id, entry in completion.logprobs[0].items():
        token = entry.decoded_token if entry.decoded_token is not None else f"<{token_id}>"
        found[token] = max(float(entry.logprob), found.get(token, float("-inf")))
    return found
