"""One odd answer is a row with a status; servers that give none end the run; damaged responses are named."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ecoagent.llm import (
    GenerationRequest,
    ReferenceResponses,
    ResponseStore,
    Sampling,
    ServerEngine,
    StoredEngine,
    balance,
    request_hash,
    write_reference,
)
from ecoagent.llm.chat import MAX_TEXT
from ecoagent.runs import read_rows
from ecoagent.schema import PublishedResponse
from ecoagent.settings import UserError
from tests.unit.llm_scripted import answer, ask
from tests.unit.llm_standin import ChatStandIn, Script, completion, echo

Start = Callable[[Script], ChatStandIn]


@pytest.fixture
def start() -> Iterator[Start]:
    made: list[ChatStandIn] = []

    def make(script: Script) -> ChatStandIn:
        made.append(ChatStandIn(script))
        return made[-1]

    yield make
    for server in made:
        server.stop()


def engine_of(*servers: ChatStandIn, **settings: object) -> ServerEngine:
    values = {"timeout_s": 10.0, "retries": 0, "backoff_s": 0.01, "concurrency": 2, **settings}
    return ServerEngine([s.url for s in servers], "m", **values)  # type: ignore[arg-type]


def with_logprobs(text: str) -> GenerationRequest:
    sampling = Sampling(temperature=0.0, top_p=1.0, max_tokens=1, seed=0, top_logprobs=5)
    return ask(text).model_copy(update={"sampling": sampling})


def usage(tokens: str) -> str:
    choice = '{"message": {"content": "fine"}, "finish_reason": "stop"}'
    return f'{{"choices": [{choice}], "usage": {{"prompt_tokens": 7, {tokens}}}}}'


def first_token(token: str, logprob: str) -> str:
    top = f'[{{"token": "yes", "logprob": -0.5}}, {{"token": "{token}", "logprob": {logprob}}}]'
    logprobs = f'{{"content": [{{"token": "yes", "logprob": -0.5, "top_logprobs": {top}}}]}}'
    return f'{{"choices": [{{"message": {{"content": "yes"}}, "logprobs": {logprobs}}}]}}'


ODD = {
    "surrogate": r'{"choices": [{"message": {"content": "1. a \ud800 b"}}]}',
    "reason with a surrogate": r'{"choices": [{"message": {"content": "a"}, "finish_reason": "\udc00"}]}',
    "many tokens": usage('"completion_tokens": 99999999999999999999999'),
    "more than 2^31 tokens": usage(f'"completion_tokens": {2**31 + 1}'),
    "infinite tokens": usage('"completion_tokens": 1e400'),
    "no number of tokens": usage('"completion_tokens": NaN'),
    "negative tokens": usage('"completion_tokens": -5'),
    "infinite cached": usage('"prompt_tokens_details": {"cached_tokens": 1e400}'),
    "negative cached": usage('"prompt_tokens_details": {"cached_tokens": -3}'),
    "logprob no number": first_token("no", "NaN"),
    "logprob infinite": first_token("no", "1e400"),
    "logprob minus infinite": first_token("no", "-Infinity"),
    "logprob too large an integer": first_token("no", "1" + "0" * 400),
    "logprob above one": first_token("no", "1000"),
    "logprob of a surrogate": first_token(r"\ud800", "-2.0"),
    "logprob of much text": first_token("x" * MAX_TEXT, "-2.0"),
    "too long": completion("word " * (MAX_TEXT // 5 + 1)),
    "too long in bytes": completion("\u00e9" * (MAX_TEXT // 2 + 1)),
}


@pytest.mark.parametrize("body", ODD.values(), ids=ODD.keys())
def test_one_odd_answer_is_a_row_and_the_others_are_stored(tmp_path: Path, start: Start, body: str) -> None:
    server = start(lambda prompt: (200, body) if prompt == "odd" else echo(prompt))
    store = ResponseStore(tmp_path / "r.sqlite")
    engine = StoredEngine("m", lambda: engine_of(server, retries=1), store)
    got = engine.generate([with_logprobs(p) for p in ("a", "odd", "b")])
    assert [(r.text, r.status) for r in got] == [("A", "ok"), ("", "error:malformed"), ("B", "ok")]
    assert server.asked.count("odd") == 2, "another try might have mended it"
    assert store.count() == 3 and (engine.counters.live, engine.counters.failed) == (3, 1)
    assert engine.counters.tokens_in == 14


def test_an_answer_may_be_as_long_as_the_limit_and_hold_any_character(start: Start) -> None:
    text = ("\U0001f600\u2028\x00" + "x" * MAX_TEXT)[: MAX_TEXT - 5]
    response = engine_of(start(lambda _: (200, completion(text)))).generate([ask("a")])[0]
    assert response.ok and response.text == text and len(text.encode()) == MAX_TEXT


# -- servers that give no answer ----------------------------------------------------------------

SILENT: dict[str, tuple[Script, str]] = {
    "drops": (lambda _: None, "connection"),
    **{str(c): (lambda _, c=c: (c, "no"), f"http_{c}") for c in (429, 502, 503, 504)},  # type: ignore[misc]
}


@pytest.mark.parametrize(("script", "reason"), SILENT.values(), ids=SILENT.keys())
@pytest.mark.parametrize("retries", [0, 3])
def test_a_server_that_never_answers_is_given_up_on(
    start: Start, script: Script, reason: str, retries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balance, "MAX_PAUSE_S", 0.2)
    said: list[str] = []
    server = start(script)
    engine = engine_of(server, retries=retries, say=said.append, backoff_s=0.001)
    with pytest.raises(UserError, match="no model server answers at") as caught:
        engine.generate([ask(str(n)) for n in range(500)])
    assert server.url in str(caught.value) and f"last: {reason}" in str(caught.value)
    assert caught.value.remedy is not None and "llm.base_url" in caught.value.remedy
    assert said == [f"{server.url} gives no answer ({reason}); it is tried again"]
    rounds = max(5, 2 * (retries + 1))
    assert rounds <= len(server.asked) <= 2 * (rounds + 1)


def test_a_server_that_only_hangs_is_given_up_on(start: Start) -> None:
    def hang(prompt: str) -> tuple[int, str]:
        time.sleep(0.5)
        return echo(prompt)

    with pytest.raises(UserError, match=r"no model server answers at .*last: timeout"):
        engine_of(start(hang), timeout_s=0.05).generate([ask(str(n)) for n in range(500)])


def test_several_servers_that_never_answer_are_given_up_on(start: Start) -> None:
    one, two = start(lambda _: None), start(lambda _: (503, "loading"))
    with pytest.raises(UserError, match="no model server answers at") as caught:
        engine_of(one, two, backoff_s=0.001).generate([ask(str(n)) for n in range(500)])
    assert f"{one.url} (last: connection)" in str(caught.value)
    assert f"{two.url} (last: http_503)" in str(caught.value)


def test_one_that_is_down_does_not_keep_one_that_never_answers(start: Start) -> None:
    one, two = start(echo), start(lambda _: None)
    one.stop()
    with pytest.raises(UserError, match="no model server answers at"):
        engine_of(one, two, retries=1, backoff_s=0.01).generate([ask(str(n)) for n in range(500)])


def test_after_it_was_given_up_on_the_next_call_tries_at_once(start: Start) -> None:
    server = start(lambda _: None)
    engine = engine_of(server, backoff_s=0.001, concurrency=1)
    with pytest.raises(UserError, match="no model server answers"):
        engine.generate([ask(str(n)) for n in range(500)])
    before = len(server.asked)
    with pytest.raises(UserError, match="no model server answers"):
        engine.generate([ask(f"again {n}") for n in range(500)])
    assert len(server.asked) <= before + 2
    server.script = echo
    assert all(r.ok for r in engine.generate([ask(f"third {n}") for n in range(20)]))


def test_a_server_that_has_answered_once_is_waited_for(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ecoagent.llm.balance.MAX_PAUSE_S", 0.01)
    server = start(echo)
    engine = engine_of(server, backoff_s=0.001)
    assert engine.generate([ask("first")])[0].ok
    server.script = lambda _: None
    got = engine.generate([ask(str(n)) for n in range(40)])
    assert [r.status for r in got] == ["error:connection"] * 40


def test_requests_that_fail_together_are_one_round(start: Start) -> None:
    """A server that loads its model answers nothing at first, at however many requests."""
    ready = time.monotonic() + 0.5

    def loading(prompt: str) -> tuple[int, str]:
        return echo(prompt) if time.monotonic() > ready else (503, '{"error": "Loading model"}')

    engine = engine_of(start(loading), concurrency=32, retries=3, backoff_s=0.2)
    assert all(r.ok for r in engine.generate([ask(str(n)) for n in range(64)]))


def test_answers_that_are_wrong_are_answers(start: Start) -> None:
    got = engine_of(start(lambda _: (200, "<html>log in</html>"))).generate([ask(str(n)) for n in range(40)])
    assert [r.status for r in got] == ["error:malformed"] * 40


# -- damaged stores and files of responses ------------------------------------------------------

BROKEN: dict[str, dict[str, Any]] = {
    "no JSON": {"first_token_logprobs": "not json"},
    "a list": {"first_token_logprobs": "[1]"},
    "a word": {"first_token_logprobs": '{"yes": "x"}'},
    "not a number": {"first_token_logprobs": '{"yes": NaN}'},
    "infinite": {"first_token_logprobs": '{"yes": -Infinity}'},
    "nested": {"first_token_logprobs": "[" * 100_000},
    "negative": {"tokens_in": -5},
    "huge": {"tokens_out": 2**40},
}
IN_STORES: dict[str, dict[str, Any]] = {
    **BROKEN,
    "letters": {"tokens_in": "xx"},
    "bytes": {"text": b"\xff\x00\xff"},
    "binary logprobs": {"first_token_logprobs": b"\xff"},
}


def filled(folder: Path) -> ResponseStore:
    store = ResponseStore(folder / "r.sqlite")
    for text in ("a", "b"):
        store.put(answer("m", ask(text), text), ask(text))
    return store


def assert_named(error: UserError, path: Path, change: dict[str, Any]) -> None:
    said = str(error)
    assert str(path) in said and request_hash("m", ask("b")) in said and next(iter(change)) in said
    assert error.remedy is not None and "ecoagent build" not in error.remedy


@pytest.mark.parametrize("change", IN_STORES.values(), ids=IN_STORES.keys())
def test_a_damaged_row_of_a_store_is_named(tmp_path: Path, change: dict[str, Any]) -> None:
    store = filled(tmp_path)
    broken = request_hash("m", ask("b"))
    with sqlite3.connect(store.path) as db:
        for column, value in change.items():
            db.execute(f"UPDATE responses SET {column} = ? WHERE request_hash = ?", (value, broken))
    assert store.get_many([request_hash("m", ask("a"))]) and store.dump([request_hash("m", ask("a"))])
    for read in (store.get_many, store.dump):
        with pytest.raises(UserError) as caught:
            read([broken])
        assert_named(caught.value, store.path, change)
        assert "llm.store" in str(caught.value.remedy)


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN.keys())
def test_a_damaged_row_of_published_responses_is_named(tmp_path: Path, change: dict[str, Any]) -> None:
    good, broken = request_hash("m", ask("a")), request_hash("m", ask("b"))
    path = write_reference(tmp_path / "f.parquet", filled(tmp_path).dump())
    table = pq.read_table(path)
    rows = [{**r, **(change if r["request_hash"] == broken else {})} for r in table.to_pylist()]
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    reference = ReferenceResponses(path)
    assert reference.get_many([good]) and reference.dump([good])
    for read in (reference.get_many, reference.dump):
        with pytest.raises(UserError) as caught:
            read([broken])
        assert_named(caught.value, path, change)
        assert "llm.reference" in str(caught.value.remedy)


@pytest.mark.parametrize("change", IN_STORES.values(), ids=IN_STORES.keys())
def test_nothing_damaged_is_published(tmp_path: Path, change: dict[str, Any]) -> None:
    good, broken = filled(tmp_path).dump([request_hash("m", ask(t)) for t in ("a", "b")])
    if broken["request_hash"] != request_hash("m", ask("b")):
        good, broken = broken, good
    path = write_reference(tmp_path / "f.parquet", [good])
    before = path.read_bytes()
    with pytest.raises(UserError) as caught:
        write_reference(path, [good, {**broken, **change}])
    assert_named(caught.value, path, change)
    assert path.read_bytes() == before


def test_a_failure_in_a_published_file_is_no_answer(tmp_path: Path) -> None:
    path = write_reference(tmp_path / "f.parquet", filled(tmp_path).dump())
    rows = [r.model_dump() | {"status": "error:x"} for r in read_rows(path, PublishedResponse)]
    pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(path)), path)
    assert len(ReferenceResponses(path)) == 0


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:500])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def without_text(path: Path) -> None:
    pq.write_table(pq.read_table(path).drop(["text"]), path)


@pytest.mark.parametrize("spoil", [cut, empty, without_text])
def test_the_remedy_of_damaged_published_responses_is_no_build(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    path = write_reference(tmp_path / "f.parquet", filled(tmp_path).dump())
    spoil(path)
    with pytest.raises(UserError, match=r"f\.parquet") as caught:
        ReferenceResponses(path).get_many(["x"])
    assert caught.value.remedy is not None and "published responses" in caught.value.remedy
    assert "ecoagent build" not in caught.value.remedy
