"""Stored responses: hashes, replay, failures, kill -9, two processes."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from ecoagent.llm import (
    EngineCounters,
    ResponseStore,
    StoredEngine,
    error_response,
    request_hash,
    to_response_row,
)
from ecoagent.settings import UserError
from tests.unit.llm_scripted import ScriptedEngine, answer, ask

ROOT = str(Path(__file__).parents[2])


def stored(engine: ScriptedEngine, path: Path) -> StoredEngine:
    return StoredEngine(engine.model, lambda: engine, ResponseStore(path))


def test_hash_covers_model_messages_sampling_and_seed_but_not_the_id() -> None:
    base = request_hash("m", ask("a"))
    assert base == request_hash("m", ask("a", identifier="other"))
    others = [request_hash("n", ask("a")), request_hash("m", ask("b"))]
    others += [request_hash("m", ask("a", seed=1)), request_hash("m", ask("a", max_tokens=9))]
    assert len({base, *others}) == 5


def test_what_was_stored_is_replayed_without_opening_the_model(tmp_path: Path) -> None:
    first = ScriptedEngine(str.upper)
    live = stored(first, tmp_path / "r.sqlite").generate([ask("a"), ask("b")])
    assert [(r.id, r.text, r.replayed) for r in live] == [("a", "A", False), ("b", "B", False)]

    def never() -> ScriptedEngine:
        raise AssertionError("the model was opened")

    again = StoredEngine("scripted", never, ResponseStore(tmp_path / "r.sqlite"))
    replayed = again.generate([ask("b", identifier="x"), ask("a")])
    assert [(r.id, r.text, r.replayed) for r in replayed] == [("x", "B", True), ("a", "A", True)]
    assert replayed[0].first_token_logprobs == {"Yes": -0.25, "No": -1.5}
    assert again.counters == EngineCounters(replayed=2)
    rows = [to_response_row(ask("b"), r) for r in (live[1], replayed[0])]
    assert rows[0] == rows[1]


def test_only_what_is_missing_is_asked_and_equal_requests_once(tmp_path: Path) -> None:
    scripted = ScriptedEngine(str.upper)
    engine = stored(scripted, tmp_path / "r.sqlite")
    engine.generate([ask("a")])
    seen: list[str] = []
    requests = [ask("b", identifier="1"), ask("a", identifier="2"), ask("b", identifier="3")]
    results = engine.generate(requests, lambda r: seen.append(r.id))
    assert scripted.asked == ["a", "b"]
    assert [r.id for r in results] == ["1", "2", "3"] and [r.text for r in results] == ["B", "A", "B"]
    assert seen == ["2", "1", "3"]
    counters = engine.counters
    assert (counters.live, counters.replayed, counters.tokens_in, counters.tokens_out) == (2, 1, 20, 6)


def test_a_failure_is_a_row_that_is_asked_again_and_never_replayed_as_an_answer(tmp_path: Path) -> None:
    replies: list[str | None] = [None, "now"]
    scripted = ScriptedEngine(lambda _: replies.pop(0))
    engine = stored(scripted, tmp_path / "r.sqlite")
    failed = engine.generate([ask("a")])[0]
    assert (failed.status, failed.ok, failed.text) == ("error:http_500", False, "")
    assert engine.store.get_many([failed.request_hash])[failed.request_hash].status == "error:http_500"
    assert engine.generate([ask("a")])[0].text == "now"
    assert engine.generate([ask("a")])[0].replayed
    assert engine.counters.failed == 1 and scripted.asked == ["a", "a"]


def test_a_stored_answer_is_final(tmp_path: Path) -> None:
    store = ResponseStore(tmp_path / "r.sqlite")
    request = ask("a")
    store.put(answer("m", request, "first"), request)
    assert store.put(answer("m", request, "second"), request).text == "first"
    assert store.put(error_response("m", request, "timeout"), request).text == "first"
    assert store.count() == 1


def test_responses_before_an_interrupt_are_kept(tmp_path: Path) -> None:
    def script(text: str) -> str:
        if text == "c":
            raise KeyboardInterrupt
        return text

    engine = stored(ScriptedEngine(script), tmp_path / "r.sqlite")
    with pytest.raises(KeyboardInterrupt):
        engine.generate([ask("a"), ask("b"), ask("c")])
    assert ResponseStore(tmp_path / "r.sqlite").count() == 2


def test_rows_travel_between_stores(tmp_path: Path) -> None:
    one, two = ResponseStore(tmp_path / "1.sqlite"), ResponseStore(tmp_path / "2.sqlite")
    for text in ("a", "b"):
        one.put(answer("m", ask(text), text), ask(text))
    assert two.load(one.dump()) == 2
    assert two.dump() == one.dump()
    assert [r["text"] for r in one.dump([request_hash("m", ask("b"))])] == ["b"]


def test_many_hashes_are_looked_up_in_batches(tmp_path: Path) -> None:
    store = ResponseStore(tmp_path / "r.sqlite")
    requests = [ask(str(i)) for i in range(1200)]
    store.load([to_response_row(r, answer("m", r, "t")).model_dump() for r in requests])
    assert len(store.get_many(request_hash("m", r) for r in requests)) == 1200


def test_a_file_that_is_no_store_is_a_users_error(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    path.write_text("not a database, but long enough to be taken for one" * 20)
    with pytest.raises(UserError, match="store of responses"):
        ResponseStore(path)


WRITER = """
import sys
from pathlib import Path
from tests.unit.llm_scripted import answer, ask
from ecoagent.llm import ResponseStore
store, name = ResponseStore(Path(sys.argv[1])), sys.argv[2]
for i in range(int(sys.argv[3])):
    request = ask(str(i))
    store.put(answer("m", request, name), request)
    print(i, flush=True)
"""


def test_kill_in_the_middle_of_writing_loses_nothing_reported(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    command = [sys.executable, "-c", WRITER, str(path), "one", "1000000"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            if int(line) == 200:
                writer.send_signal(signal.SIGKILL)
                break
        reported = [200, *[int(line) for line in writer.stdout if line.endswith("\n")]]
    store = ResponseStore(path)
    hashes = [request_hash("m", ask(str(i))) for i in range(max(reported) + 1)]
    assert len(store.get_many(hashes)) == len(hashes)
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_two_processes_share_a_store(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    commands = [[sys.executable, "-c", WRITER, str(path), name, "150"] for name in ("one", "two")]
    running = [subprocess.Popen(c, cwd=ROOT, stdout=subprocess.DEVNULL) for c in commands]
    assert [process.wait(timeout=120) for process in running] == [0, 0]
    store = ResponseStore(path)
    assert store.count() == 150
    assert {row["text"] for row in store.dump()} <= {"one", "two"}
