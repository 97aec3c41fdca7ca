"""llama.cpp's own server with a tiny random model: what the protocol says is what a real server does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ecoagent.llm import EmbeddedEngine, GenerationRequest, GenerationResponse, Sampling, ServerEngine
from ecoagent.settings import UserError
from tests.unit.llm_scripted import ask
from tests.unit.tiny_gguf import write_tiny_model

SERVE = """
import sys, threading
from pathlib import Path
from ecoagent.llm import EmbeddedEngine
engine = EmbeddedEngine(Path(sys.argv[1]), "tiny", concurrency=2, context=512, threads=1)
print(engine.base_url, flush=True)
threading.Event().wait()
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="module")
def embedded(model: Path) -> Iterator[EmbeddedEngine]:
    engine = EmbeddedEngine(model, "tiny", concurrency=2, context=256, threads=1, retries=1)
    yield engine
    engine.close()


def sampled(text: str, **fields: object) -> GenerationRequest:
    values = {"temperature": 0.0, "top_p": 1.0, "max_tokens": 8, "seed": 1, **fields}
    return ask(text).model_copy(update={"sampling": Sampling.model_validate(values)})


def test_answers_in_order_with_token_counts(embedded: EmbeddedEngine) -> None:
    responses = embedded.generate([ask(f"prompt {i}") for i in range(6)])
    assert [(r.id, r.status, r.finish_reason) for r in responses] == [
        (f"prompt {i}", "ok", "length") for i in range(6)
    ]
    assert all(r.tokens_out == 8 and r.tokens_in > 20 and r.text.strip() for r in responses)


def test_a_seed_gives_the_same_answer_and_another_seed_another(embedded: EmbeddedEngine) -> None:
    hot = {"temperature": 1.0, "max_tokens": 24}
    first, again, other = embedded.generate(
        [sampled("seeds", seed=5, **hot), sampled("seeds", seed=5, **hot), sampled("seeds", seed=6, **hot)]
    )
    assert first.text == again.text != other.text


def test_log_probabilities_of_the_first_token(embedded: EmbeddedEngine) -> None:
    response = embedded.generate([sampled("hi", max_tokens=1, top_logprobs=5)])[0]
    found = response.first_token_logprobs
    assert found is not None and 1 < len(found) <= 5
    assert max(found, key=found.__getitem__) == response.text and all(v <= 0 for v in found.values())


def test_structured_output_follows_its_schema(embedded: EmbeddedEngine) -> None:
    schema = {
        "type": "object",
        "properties": {"score": {"type": "integer", "minimum": 0, "maximum": 10}},
        "required": ["score"],
        "additionalProperties": False,
    }
    for seed in range(3):
        request = sampled("x", temperature=1.0, seed=seed, max_tokens=60, json_schema=json.dumps(schema))
        response = embedded.generate([request])[0]
        value = json.loads(response.text)
        assert set(value) == {"score"} and 0 <= value["score"] <= 10 and response.finish_reason == "stop"


def test_a_prompt_beyond_the_context_is_a_row_and_spoils_no_other(embedded: EmbeddedEngine) -> None:
    responses = embedded.generate([ask("a"), ask("long " * 200, identifier="b"), ask("c")])
    assert [(r.id, r.status) for r in responses] == [
        ("a", "ok"),
        ("b", "error:context_overflow"),
        ("c", "ok"),
    ]


def test_a_shared_beginning_is_found_in_the_cache(embedded: EmbeddedEngine) -> None:
    before = embedded.tokens_cached
    embedded.generate([ask("the same beginning of every prompt, number " + str(i)) for i in range(6)])
    assert embedded.tokens_cached - before > 100


def test_no_model_file_is_a_users_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF nothing of the kind")
    with pytest.raises(UserError, match=r"llama\.cpp cannot load"):
        EmbeddedEngine(broken, "broken", concurrency=1, context=256, threads=1)


def test_one_of_two_real_servers_is_killed_midway(model: Path) -> None:
    command = [sys.executable, "-c", SERVE, str(model)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        urls = []
        for process in processes:
            assert process.stdout is not None
            urls.append(process.stdout.readline().strip())
        said: list[str] = []
        engine = ServerEngine(
            urls, "tiny", concurrency=2, timeout_s=60.0, backoff_s=0.1, use_proxies=False, say=said.append
        )
        seen: list[str] = []

        def arrived(response: GenerationResponse) -> None:
            seen.append(response.id)
            if len(seen) == 20:
                processes[0].send_signal(signal.SIGKILL)

        requests = [ask(f"prompt {i}", max_tokens=32) for i in range(200)]
        responses = engine.generate(requests, arrived)
        assert [r.id for r in responses] == [r.id for r in requests] and all(r.ok for r in responses)
        assert sorted(seen) == sorted(r.id for r in requests)
        assert [r.up for r in engine.records] == [False, True]
        assert [urls[0] in line for line in said] == [True, True] and "is taken out" in said[1]
        engine.close()
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
