"""The client of chat endpoints, against a scripted server."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from ecoagent.llm import Sampling, ServerEngine
from ecoagent.settings import UserError
from tests.unit.llm_scripted import ask

CHAT = "/v1/chat/completions"


def reply(text: str | None = "hello", **choice: object) -> dict[str, object]:
    first = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop", **choice}
    return {"choices": [first], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}


def engine(server: HTTPServer, **settings: object) -> ServerEngine:
    values = {"timeout_s": 10.0, "retries": 2, "backoff_s": 0.01, **settings}
    return ServerEngine(server.url_for(""), "m", **values)  # type: ignore[arg-type]


def test_an_answer(httpserver: HTTPServer) -> None:
    httpserver.expect_request(CHAT, method="POST").respond_with_json(reply())
    response = engine(httpserver).generate([ask("hi", identifier="x")])[0]
    assert (response.id, response.text, response.status, response.finish_reason) == (
        "x",
        "hello",
        "ok",
        "stop",
    )
    assert (response.tokens_in, response.tokens_out, response.first_token_logprobs) == (7, 2, None)


def test_the_body_carries_every_sampling_parameter(httpserver: HTTPServer) -> None:
    logprobs = {"content": [{"token": "Yes", "logprob": -0.1, "top_logprobs": []}]}
    logprobs["content"][0]["top_logprobs"] = [
        {"token": "Yes", "logprob": -0.1},
        {"token": "", "logprob": -3.0},
        {"token": "", "logprob": -5.0},
    ]
    httpserver.expect_request(CHAT).respond_with_json(reply("Yes", logprobs=logprobs))
    sampling = Sampling(
        temperature=0.5,
        top_p=0.9,
        max_tokens=5,
        seed=3,
        stop=("\n",),
        top_logprobs=4,
        json_schema='{"type": "object"}',
    )
    request = ask("hi").model_copy(update={"sampling": sampling})
    client = engine(httpserver, api_key="secret", extra={"cache_prompt": True})
    response = client.generate([request])[0]
    assert response.first_token_logprobs == {"Yes": -0.1, "": -3.0}
    sent = httpserver.log[0][0]
    assert sent.headers["Authorization"] == "Bearer secret"
    assert json.loads(sent.get_data()) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 5,
        "seed": 3,
        "stop": ["\n"],
        "logprobs": True,
        "top_logprobs": 4,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "strict": True, "schema": {"type": "object"}},
        },
        "cache_prompt": True,
    }


def test_two_server_errors_then_an_answer(httpserver: HTTPServer) -> None:
    for _ in range(2):
        httpserver.expect_ordered_request(CHAT).respond_with_data("busy", 500)
    httpserver.expect_ordered_request(CHAT).respond_with_json(reply())
    assert engine(httpserver).generate([ask("hi")])[0].text == "hello"
    assert len(httpserver.log) == 3


def test_retry_after_is_heeded(httpserver: HTTPServer) -> None:
    httpserver.expect_ordered_request(CHAT).respond_with_data("slow", 429, {"Retry-After": "1"})
    httpserver.expect_ordered_request(CHAT).respond_with_json(reply())
    start = time.monotonic()
    assert engine(httpserver).generate([ask("hi")])[0].ok
    assert time.monotonic() - start >= 1.0


@pytest.mark.parametrize(
    ("response", "status", "tries"),
    [
        (Response("busy", 503), "error:http_503", 3),
        (Response("{not json", 200), "error:malformed", 3),
        (Response('{"choices": []}', 200), "error:no_choices", 3),
        (Response('{"choices": [{"message": {"content": null}}]}', 200), "error:no_text", 3),
        (Response('["a list"]', 200), "error:malformed", 3),
        (Response('{"choices": [{"message": {"content": " "}}]}', 200), "error:empty", 3),
        (Response("bad parameter", 400), "error:http_400", 1),
    ],
)
def test_what_stays_wrong_is_a_response_with_a_status(
    httpserver: HTTPServer, response: Response, status: str, tries: int
) -> None:
    httpserver.expect_request(CHAT).respond_with_response(response)
    got = engine(httpserver).generate([ask("hi", identifier="x")])[0]
    assert (got.id, got.status, got.text, got.ok) == ("x", status, "", False)
    assert len(httpserver.log) == tries


OVERFLOWS = [
    # llama.cpp
    '{"error": {"code": 400, "message": "request (2024 tokens) exceeds the available context size '
    '(256 tokens), try increasing it", "type": "exceed_context_size_error", "n_ctx": 256}}',
    # vLLM, twice
    '{"error": {"message": "This model\'s maximum context length is 256 tokens. However, your prompt '
    'contains at least 257 input tokens.", "type": "BadRequestError", "code": 400}}',
    '{"object": "error", "message": "The decoder prompt (length 300) is longer than the maximum model '
    'length of 256."}',
    # SGLang, TGI, OpenAI
    '{"message": "The input (300 tokens) is longer than the model\'s context length (256 tokens)."}',
    '{"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 256"}',
    '{"error": {"code": "context_length_exceeded", "message": "Please reduce the length of the messages."}}',
]


@pytest.mark.parametrize(
    ("said", "code"), [(said, 400) for said in OVERFLOWS] + [(s, 200) for s in OVERFLOWS if '"error": ' in s]
)
def test_a_prompt_longer_than_the_context_is_told_apart_and_not_asked_again(
    httpserver: HTTPServer, said: str, code: int
) -> None:
    httpserver.expect_request(CHAT).respond_with_data(said, code)
    assert engine(httpserver).generate([ask("hi")])[0].status == "error:context_overflow"
    assert len(httpserver.log) == 1


def test_log_probabilities_answer_where_the_text_is_blank(httpserver: HTTPServer) -> None:
    logprobs = {
        "content": [{"token": " ", "logprob": -0.1, "top_logprobs": [{"token": " ", "logprob": -0.1}]}]
    }
    httpserver.expect_request(CHAT).respond_with_json(reply(" ", logprobs=logprobs))
    sampling = Sampling(temperature=0.0, top_p=1.0, max_tokens=1, seed=0, top_logprobs=1)
    assert engine(httpserver).generate([ask("hi").model_copy(update={"sampling": sampling})])[0].ok


@pytest.mark.parametrize("said", ["nan", "-inf", "-5", "soon"])
def test_a_retry_after_that_is_no_pause_is_none(httpserver: HTTPServer, said: str) -> None:
    httpserver.expect_ordered_request(CHAT).respond_with_data("slow", 429, {"Retry-After": said})
    httpserver.expect_ordered_request(CHAT).respond_with_json(reply())
    got: list[bool] = []
    client = engine(httpserver)
    thread = threading.Thread(target=lambda: got.extend(r.ok for r in client.generate([ask("hi")])))
    thread.daemon = True
    thread.start()
    thread.join(10)
    assert got == [True]


def test_retry_after_may_be_a_date(httpserver: HTTPServer) -> None:
    when = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
    httpserver.expect_ordered_request(CHAT).respond_with_data("slow", 429, {"Retry-After": when})
    httpserver.expect_ordered_request(CHAT).respond_with_json(reply())
    start = time.monotonic()
    assert engine(httpserver).generate([ask("hi")])[0].ok
    assert time.monotonic() - start >= 0.9


def test_a_server_that_drips_its_answer_is_given_up() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(4)

        def drip() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                for _ in range(40):
                    try:
                        connection.sendall(b" ")
                    except OSError:
                        return
                    time.sleep(0.1)

        threading.Thread(target=drip, daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        start = time.monotonic()
        got = ServerEngine(url, "m", timeout_s=0.5, retries=0).generate([ask("hi")])[0]
        assert got.status == "error:timeout" and time.monotonic() - start < 3


def test_an_empty_account_ends_the_run(httpserver: HTTPServer) -> None:
    httpserver.expect_request(CHAT).respond_with_data('{"error": {"code": "insufficient_quota"}}', 429)
    with pytest.raises(UserError, match="no credit left"):
        engine(httpserver).generate([ask("hi")])


def test_a_slow_server_is_given_up(httpserver: HTTPServer) -> None:
    def slow(_: Request) -> Response:
        time.sleep(1.0)
        return Response("{}")

    httpserver.expect_request(CHAT).respond_with_handler(slow)
    got = engine(httpserver, timeout_s=0.2, retries=0).generate([ask("hi")])[0]
    assert got.status == "error:timeout"


def test_order_is_kept_and_one_failure_spoils_nothing(httpserver: HTTPServer) -> None:
    def handler(request: Request) -> Response:
        text = json.loads(request.get_data())["messages"][0]["content"]
        time.sleep(0.05 * (3 - int(text)))
        return Response("no", 400) if text == "1" else Response(json.dumps(reply(text)))

    httpserver.expect_request(CHAT).respond_with_handler(handler)
    seen: list[str] = []
    got = engine(httpserver, concurrency=4).generate(
        [ask(str(i)) for i in range(4)], lambda r: seen.append(r.id)
    )
    assert [r.text for r in got] == ["0", "", "2", "3"] and [r.id for r in got] == ["0", "1", "2", "3"]
    assert sorted(seen) == ["0", "1", "2", "3"]


@pytest.mark.parametrize(("code", "words"), [(401, "refuses the key"), (404, "knows no model 'm'")])
def test_what_concerns_every_request_ends_the_run(httpserver: HTTPServer, code: int, words: str) -> None:
    httpserver.expect_request(CHAT).respond_with_data("", code)
    with pytest.raises(UserError, match=words):
        engine(httpserver).generate([ask("a"), ask("b")])


def test_nobody_listening_is_a_users_error_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        client = ServerEngine(f"http://127.0.0.1:{free.getsockname()[1]}/v1", "m", retries=5)
        start = time.monotonic()
        with pytest.raises(UserError, match="no model server answers at") as caught:
            client.generate([ask("a")])
        assert caught.value.remedy is not None and "llm.base_url" in caught.value.remedy
        assert time.monotonic() - start < 5


def test_an_address_without_scheme_is_refused() -> None:
    with pytest.raises(UserError, match="is no URL"):
        ServerEngine("localhost:8000", "m")


def test_the_version_is_added_to_a_bare_address() -> None:
    assert ServerEngine("http://h:1", "m").base_url == "http://h:1/v1"
    assert ServerEngine("http://h:1/v1/", "m").base_url == "http://h:1/v1"
    assert ServerEngine("http://h/v1beta/openai", "m").base_url == "http://h/v1beta/openai"


# A test run in the background may have been started with SIGINT ignored, which children inherit.
INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from ecoagent.llm import ServerEngine
from tests.unit.llm_scripted import ask
print("asking", flush=True)
ServerEngine(sys.argv[1], "m", timeout_s=120.0).generate([ask(str(i)) for i in range(8)])
"""


def test_an_interrupt_does_not_wait_for_requests_in_flight() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)
        command = [sys.executable, "-c", INTERRUPTED, f"http://127.0.0.1:{silent.getsockname()[1]}"]
        with subprocess.Popen(
            command,
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as asking:
            assert asking.stdout is not None and asking.stdout.readline() == "asking\n"
            silent.settimeout(60.0)
            connection, _ = silent.accept()
            with connection:
                asking.send_signal(signal.SIGINT)
                try:
                    assert asking.wait(timeout=30) != 0
                finally:
                    asking.kill()
