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
from ecoagent.llm.replicas import VllmReplicas, device_groups
from ecoagent.models import ModelStore
from ecoagent.settings import Settings, UserError, load_settings
from tests.unit.llm_scripted import ask

MODEL = "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M"


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    close_engines()


def settings_of(tmp_path: Path, *overrides: str, profile: str = "local") -> Settings:
    return load_settings(
        profile, overrides=[f"llm.store={tmp_path / 'r.sqlite'}", "llm.reference=none", *overrides], env={}
    )


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
    assert made._balancer._servers[0].client.headers == {"Authorization": "Bearer k"}
    made.close()


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
            raise ValueError("The decoder prompt (length 60) is longer than the maximum model length of 32.")
        logprobs = [{5: SimpleNamespace(logprob=-0.1, decoded_token="Yes")}]
        return [
            SimpleNamespace(
                prompt_token_ids=[1, 2],
                num_cached_tokens=1,
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
        "dtype": "bfloat16",
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
    assert len(stand_in.calls) == 1 and engine.tokens_cached == 2


def test_vllm_refusing_one_prompt_spoils_no_other() -> None:
    stand_in = VllmStandIn()
    engine = VllmEngine(Path("model"), "m", vllm=stand_in)
    texts = [f"t{i}" for i in range(64)]
    texts[17] = "long " * 50
    responses = engine.generate([ask(t, identifier=str(i)) for i, t in enumerate(texts)])
    assert [r.id for r in responses] == [str(i) for i in range(64)]
    assert [(r.id, r.status) for r in responses if not r.ok] == [("17", "error:context_overflow")]
    # Found by halving, so that the others still run together.
    assert len(stand_in.calls) == 13


def test_vllm_with_nothing_to_say_is_a_row_with_a_status() -> None:
    engine = VllmEngine(Path("model"), "m", vllm=VllmStandIn())
    responses = engine.generate([ask(" ", identifier="blank"), ask("b")])
    assert [(r.id, r.status) for r in responses] == [("blank", "error:empty"), ("b", "ok")]


PACKAGE = {
    "__init__.py": """
import os
from types import SimpleNamespace
from . import exceptions, sampling_params

def SamplingParams(**values):
    return values

class LLM:
    def __init__(self, **values):
        if "broken" in values["model"]:
            raise RuntimeError("CUDA out of memory\\nmore lines")
        self.values = values

    def chat(self, messages, params, use_tqdm):
        texts = [m[-1]["content"] for m in messages]
        if "refuse" in texts:
            raise exceptions.VLLMClientError("bad request")
        if "die" in texts:
            raise exceptions.EngineDeadError("see the stack trace above")
        if "exit" in texts:
            os._exit(3)
        shown = f"{os.environ.get('CUDA_VISIBLE_DEVICES')}|{self.values['tensor_parallel_size']}|"
        return [
            SimpleNamespace(
                prompt_token_ids=[1, 2],
                num_cached_tokens=1,
                outputs=[
                    SimpleNamespace(text=shown + t, token_ids=[5], finish_reason="stop", logprobs=None)
                ],
            )
            for t in texts
        ]
""",
    "exceptions.py": "class VLLMClientError(Exception): ...\nclass EngineDeadError(Exception): ...\n",
    "sampling_params.py": "",
    "v1/__init__.py": "",
    "v1/engine/__init__.py": "",
    "v1/engine/exceptions.py": "from vllm.exceptions import EngineDeadError\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package named vllm, with errors of its own as in 0.30 and 0.32; child processes find it too."""
    for name, text in PACKAGE.items():
        path = tmp_path / "lib" / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in [n for n in sys.modules if n.split(".")[0] == "vllm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    yield
    for name in [n for n in sys.modules if n.split(".")[0] == "vllm"]:
        del sys.modules[name]


@pytest.mark.usefixtures("package")
def test_vllms_own_errors_are_known_by_name() -> None:
    engine = VllmEngine(Path("model"), "m")
    assert [r.status for r in engine.generate([ask("a"), ask("refuse")])] == ["ok", "error:request"]
    with pytest.raises(UserError, match="vLLM's engine died: see the stack trace above"):
        engine.generate([ask("die")])
    with pytest.raises(UserError, match="vLLM cannot load broken: CUDA out of memory; remedy"):
        VllmEngine(Path("broken"), "m")


@pytest.mark.usefixtures("package")
def test_replicas_share_the_requests_and_each_has_its_own_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    replicas = VllmReplicas(Path("model"), "m", replicas=2, tensor_parallel=2)
    try:
        seen: list[str] = []
        responses = replicas.generate([ask(f"t{i}") for i in range(10)], lambda r: seen.append(r.id))
        assert [r.text.split("|")[-1] for r in responses] == [f"t{i}" for i in range(10)]
        assert sorted(seen) == sorted(r.id for r in responses) and replicas.tokens_cached == 10
        assert {r.text.rsplit("|", 1)[0] for r in responses} <= {"4,5|2", "6,7|2"}
        assert replicas.generate([]) == []
        with pytest.raises(UserError, match=r"a vLLM replica died \(exit code 3\)"):
            replicas.generate([ask("exit")])
    finally:
        replicas.close()
    replicas.close()


@pytest.mark.usefixtures("package")
def test_a_replica_that_cannot_load_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    settings = settings_of(
        tmp_path,
        "llm.model=own",
        f"models.local.own={tmp_path / 'broken'}",
        "llm.data_parallel=2",
        profile="paper",
    )
    (tmp_path / "broken").mkdir()
    with pytest.raises(UserError, match="vLLM cannot load"):
        make_engine(settings)


def test_too_few_gpus_for_the_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    with pytest.raises(UserError, match="needs 4 GPUs, 3 can be seen") as caught:
        device_groups(2, 2)
    assert caught.value.remedy is not None and "llm.base_urls" in caught.value.remedy
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert device_groups(2, 1) == [None, None]


def test_several_addresses_make_one_engine(tmp_path: Path) -> None:
    engine = make_engine(
        settings_of(
            tmp_path,
            "llm.engine=server",
            "llm.base_url=http://a:1",
            'llm.base_urls=["http://b:1", "http://a:1/v1"]',
        )
    )
    assert isinstance(engine, ServerEngine)
    assert engine.base_urls == ("http://a:1/v1", "http://b:1/v1")
    engine.close()


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
