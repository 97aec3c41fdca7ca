"""Engines by settings, vLLM's parameters against a stand-in, and the real model in process."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ecoagent.llm import (
    EmbeddedEngine,
    GenerationRequest,
    Sampling,
    ServerEngine,
    VllmEngine,
    close_engines,
    make_engine,
    open_engine,
)
from ecoagent.models import ModelStore
from ecoagent.settings import Settings, UserError, load_settings
from tests.unit.llm_scripted import ask

MODEL = "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M"


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    close_engines()


def settings_of(tmp_path: Path, *overrides: str, profile: str = "local") -> Settings:
    return load_settings(profile, overrides=[f"llm.store={tmp_path / 'r.sqlite'}", *overrides], env={})


def test_one_engine_for_equal_settings_and_no_model_before_it_is_needed(tmp_path: Path) -> None:
    one = open_engine(settings_of(tmp_path))
    assert open_engine(settings_of(tmp_path)) is one and one.model == MODEL
    assert open_engine(settings_of(tmp_path, "llm.model=other")) is not one


def test_a_server_without_address_is_a_users_error(tmp_path: Path) -> None:
    engine = open_engine(settings_of(tmp_path, "llm.engine=server"))
    with pytest.raises(UserError, match="needs an address"):
        engine.generate([ask("a")])


def test_the_servers_key_comes_from_the_named_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "k")
    made = make_engine(
        settings_of(
            tmp_path, "llm.engine=server", "llm.base_url=http://127.0.0.1:9", "llm.api_key_env=MY_KEY"
        )
    )
    assert isinstance(made, ServerEngine) and made.base_url == "http://127.0.0.1:9/v1"
    assert made._headers == {"Authorization": "Bearer k"}


def test_embedded_needs_a_gguf_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs a GGUF file"):
        EmbeddedEngine(tmp_path, "m")


def test_vllm_missing_is_said_before_any_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    engine = open_engine(settings_of(tmp_path, profile="paper"))
    with pytest.raises(UserError, match="vllm cannot be imported") as caught:
        engine.generate([ask("a")])
    assert caught.value.remedy is not None and "ecoagent[vllm]" in caught.value.remedy


@dataclass
class VllmStandIn:
    """Stands in for the vllm package: records what it is given and echoes prompts."""

    made: dict[str, Any] = field(default_factory=dict)
    calls: list[list[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sampling_params = SimpleNamespace(StructuredOutputsParams=lambda **kw: SimpleNamespace(**kw))

    @staticmethod
    def SamplingParams(**values: Any) -> dict[str, Any]:
        return values

    def LLM(self, **values: Any) -> VllmStandIn:
        self.made = values
        return self

    def chat(self, messages: list[list[dict[str, str]]], params: list[Any], use_tqdm: bool) -> list[Any]:
        self.calls.append(params)
        texts = [m[-1]["content"] for m in messages]
        if any(len(text) > 100 for text in texts):
            raise ValueError("prompt too long")
        logprobs = [{5: SimpleNamespace(logprob=-0.1, decoded_token="Yes")}]
        return [
            SimpleNamespace(
                prompt_token_ids=[1, 2],
                outputs=[
                    SimpleNamespace(text=t.upper(), token_ids=[5], finish_reason="stop", logprobs=logprobs)
                ],
            )
            for t in texts
        ]


def test_vllm_gets_its_parameters_and_one_call_for_all() -> None:
    stand_in = VllmStandIn()
    engine = VllmEngine(Path("model"), "m", context=512, tensor_parallel=2, vllm=stand_in)
    assert stand_in.made == {
        "model": "model",
        "max_model_len": 512,
        "tensor_parallel_size": 2,
        "gpu_memory_utilization": 0.9,
        "enable_prefix_caching": True,
        "seed": 0,
    }
    full = Sampling(
        temperature=0.5,
        top_p=0.9,
        max_tokens=4,
        seed=7,
        stop=("x",),
        top_logprobs=3,
        json_schema='{"type": "object"}',
    )
    requests = [ask("a"), ask("b").model_copy(update={"sampling": full})]
    responses = engine.generate(requests)
    assert [(r.id, r.text, r.status, r.tokens_in, r.tokens_out) for r in responses] == [
        ("a", "A", "ok", 2, 1),
        ("b", "B", "ok", 2, 1),
    ]
    assert responses[0].first_token_logprobs is None and responses[1].first_token_logprobs == {"Yes": -0.1}
    plain, rich = stand_in.calls[0]
    assert plain == {"temperature": 0.0, "top_p": 1.0, "max_tokens": 8, "seed": 0}
    assert rich.pop("structured_outputs").json == {"type": "object"}
    assert rich == {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 4,
        "seed": 7,
        "stop": ["x"],
        "logprobs": 3,
    }
    assert len(stand_in.calls) == 1


def test_vllm_refusing_one_prompt_spoils_no_other() -> None:
    engine = VllmEngine(Path("model"), "m", vllm=VllmStandIn())
    responses = engine.generate([ask("a"), ask("long " * 50, identifier="b"), ask("c")])
    assert [(r.id, r.status) for r in responses] == [("a", "ok"), ("b", "error:request"), ("c", "ok")]


@pytest.mark.llm
def test_the_real_model_in_process_and_over_its_loopback_port(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    path = ModelStore(settings.models).path(MODEL)
    embedded = EmbeddedEngine(path, MODEL, concurrency=1, context=512)
    try:
        sampling = Sampling(temperature=0.0, top_p=1.0, max_tokens=6, seed=1, top_logprobs=5)
        question = ask("Is Paris the capital of France? Answer with one word, Yes or No.")
        request = question.model_copy(update={"sampling": sampling})
        first = embedded.generate([request])[0]
        server = ServerEngine(embedded.base_url, MODEL, concurrency=1, use_proxies=False)
        second = server.generate([request])[0]
        assert first.ok and first.text.strip().lower().startswith("yes")
        assert first.tokens_in > 10 and 0 < first.tokens_out <= 6
        # The second finds its prompt in the cache: another batch shape, so other last digits.
        assert (second.text, second.tokens_in, second.request_hash) == (
            first.text,
            first.tokens_in,
            first.request_hash,
        )
        assert second.first_token_logprobs == pytest.approx(first.first_token_logprobs, abs=0.2)
        assert first.first_token_logprobs is not None
        best = max(first.first_token_logprobs, key=first.first_token_logprobs.__getitem__)
        assert best.strip().lower() == "yes" and len(first.first_token_logprobs) <= 5
        assert 0 <= _score(embedded, request) <= 10
    finally:
        embedded.close()


def _score(embedded: EmbeddedEngine, request: GenerationRequest) -> int:
    schema = {
        "type": "object",
        "properties": {"score": {"type": "integer", "minimum": 0, "maximum": 10}},
        "required": ["score"],
        "additionalProperties": False,
    }
    sampling = Sampling(temperature=0.0, top_p=1.0, max_tokens=24, seed=1, json_schema=json.dumps(schema))
    response = embedded.generate([request.model_copy(update={"sampling": sampling})])[0]
    return int(json.loads(response.text)["score"])
