"""Several servers behind one engine: who takes what, one that is slow, broken or down, and coming back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from ecoagent.llm import GenerationResponse, ServerEngine
from ecoagent.llm.balance import Balancer
from ecoagent.settings import UserError
from tests.unit.llm_scripted import ask
from tests.unit.llm_standin import ChatStandIn, Script, completion, echo

Pair = Callable[..., tuple[ChatStandIn, ChatStandIn]]


@pytest.fixture
def pair() -> Iterator[Pair]:
    made: list[ChatStandIn] = []

    def make(first: Script = echo, second: Script = echo) -> tuple[ChatStandIn, ChatStandIn]:
        made.extend([ChatStandIn(first), ChatStandIn(second)])
        return made[-2], made[-1]

    yield make
    for server in made:
        server.stop()


def slowly(seconds: float) -> Script:
    def script(prompt: str) -> tuple[int, str]:
        time.sleep(seconds)
        return echo(prompt)

    return script


def engine_of(*servers: ChatStandIn, **settings: object) -> ServerEngine:
    values = {"timeout_s": 10.0, "retries": 2, "backoff_s": 0.02, "concurrency": 2, **settings}
    return ServerEngine([s.url for s in servers], "m", **values)  # type: ignore[arg-type]


def prompts(count: int) -> list[str]:
    return [f"p{number:03d}" for number in range(count)]


def assert_all_answered(responses: list[GenerationResponse], count: int) -> None:
    assert [(r.id, r.status, r.text) for r in responses] == [(p, "ok", p.upper()) for p in prompts(count)]


def test_neighbours_go_to_the_same_server_and_order_is_kept(pair: Pair) -> None:
    one, two = pair(slowly(0.02), slowly(0.02))
    engine = engine_of(one, two)
    assert_all_answered(engine.generate([ask(p) for p in prompts(40)]), 40)
    assert set(one.asked) | set(two.asked) == set(prompts(40))
    # Equal halves; a server that is done first may have helped with the other's last ones.
    early = [set(one.asked[:16]), set(two.asked[:16])]
    assert early[0] <= set(prompts(40)[:20]) and early[1] <= set(prompts(40)[20:])
    assert len(one.asked) + len(two.asked) == 40
    assert [r.answered for r in engine.records] == [len(one.asked), len(two.asked)]
    assert engine.tokens_cached == 40 * 5


def test_no_server_idles_while_another_has_more_than_it_can_start(pair: Pair) -> None:
    quick, slow = pair(slowly(0.01), slowly(0.2))
    start = time.monotonic()
    assert_all_answered(engine_of(quick, slow).generate([ask(p) for p in prompts(40)]), 40)
    assert time.monotonic() - start < 1.5, "the slow one alone would need 2 s for its half"
    assert len(slow.asked) <= 12
    # It is helped out from the far end, so that it keeps what shares its beginning.
    assert slow.asked[0] in {"p020", "p021"} and "p039" in quick.asked


def test_concurrency_is_each_servers_own(pair: Pair) -> None:
    one, two = pair(slowly(0.05), slowly(0.05))
    engine_of(one, two, concurrency=3).generate([ask(p) for p in prompts(24)])
    assert (one.most, two.most) == (3, 3)


def test_a_few_requests_keep_all_servers_busy(pair: Pair) -> None:
    one, two = pair(slowly(0.2), slowly(0.2))
    engine_of(one, two, concurrency=8).generate([ask("a"), ask("b")])
    assert (len(one.asked), len(two.asked)) == (1, 1)


def test_one_server_dies_midway_and_its_requests_go_to_the_other(pair: Pair) -> None:
    said: list[str] = []
    one, two = pair(slowly(0.02), slowly(0.02))
    engine = engine_of(one, two, say=said.append)
    seen: list[str] = []

    def arrived(response: GenerationResponse) -> None:
        seen.append(response.id)
        if len(seen) == 10:
            one.stop()

    assert_all_answered(engine.generate([ask(p) for p in prompts(40)], arrived), 40)
    assert sorted(seen) == prompts(40)
    assert any("is taken out" in line and one.url in line for line in said)
    assert [r.up for r in engine.records] == [False, True]


def test_a_server_that_was_down_comes_back(pair: Pair) -> None:
    said: list[str] = []
    one, two = pair(slowly(0.02), slowly(0.02))
    one.stop()
    engine = engine_of(one, two, say=said.append)
    back = threading.Timer(0.3, one.start)
    back.start()
    assert_all_answered(engine.generate([ask(p) for p in prompts(100)]), 100)
    assert len(one.asked) >= 5, "it took its share once it was back"
    assert [line.split(" ", 1)[1].split(" (")[0] for line in said] == ["is taken out", "is back"]


def test_only_when_all_are_down_the_run_ends(pair: Pair) -> None:
    one, two = pair()
    engine = engine_of(one, two)
    assert_all_answered(engine.generate([ask(p) for p in prompts(4)]), 4)
    one.stop()
    two.stop()
    with pytest.raises(UserError, match="no model server answers at") as caught:
        engine.generate([ask(p) for p in prompts(8)])
    assert one.url in str(caught.value) and two.url in str(caught.value)
    two.start()
    assert_all_answered(engine.generate([ask(p) for p in prompts(8)]), 8)


def test_none_up_at_the_start_is_said_at_once(pair: Pair) -> None:
    one, two = pair()
    one.stop()
    two.stop()
    start = time.monotonic()
    with pytest.raises(UserError, match="no model server answers at"):
        engine_of(one, two, retries=9, backoff_s=5.0).generate([ask("a")])
    assert time.monotonic() - start < 3


@pytest.mark.parametrize(
    "script",
    [
        lambda _: (200, "<html>it works</html>"),
        lambda _: (200, "[" * 100_000),
        lambda _: (200, completion("")),
        lambda _: (200, completion(None)),
        lambda _: (500, "boom"),
        lambda _: (503, "loading"),
        lambda _: None,
    ],
    ids=["page", "nested", "empty", "null", "500", "503", "broken off"],
)
def test_a_server_that_answers_garbage_spoils_nothing(pair: Pair, script: Script) -> None:
    bad, good = pair(script, slowly(0.01))
    engine = engine_of(bad, good, backoff_s=0.2)
    assert_all_answered(engine.generate([ask(p) for p in prompts(40)]), 40)
    # Taken out after a few tries, not asked again for every request.
    assert len(bad.asked) <= 16
    assert [r.answered for r in engine.records] == [0, 40]


def test_a_server_that_hangs_is_taken_out_after_one_timeout(pair: Pair) -> None:
    release = threading.Event()

    def hang(prompt: str) -> tuple[int, str]:
        release.wait(20)
        return echo(prompt)

    hung, good = pair(hang, slowly(0.01))
    start = time.monotonic()
    engine = engine_of(hung, good, timeout_s=0.5, backoff_s=5.0)
    try:
        assert_all_answered(engine.generate([ask(p) for p in prompts(20)]), 20)
    finally:
        release.set()
    assert time.monotonic() - start < 3
    assert len(hung.asked) == 2 and not engine.records[0].up


def test_a_limited_server_rests_while_the_other_goes_on(pair: Pair) -> None:
    def limited(_: str) -> tuple[int, str]:
        return 429, "slow down"

    one, two = pair(limited, slowly(0.01))
    assert_all_answered(engine_of(one, two, backoff_s=1.0).generate([ask(p) for p in prompts(30)]), 30)
    assert len(one.asked) <= 4


def test_what_fails_everywhere_is_a_row_and_takes_no_server_out(pair: Pair) -> None:
    def script(prompt: str) -> tuple[int, str]:
        time.sleep(0.01)
        return (500, "no") if prompt == "p003" else echo(prompt)

    one, two = pair(script, script)
    engine = engine_of(one, two, retries=3)
    responses = engine.generate([ask(p) for p in prompts(20)])
    assert [r.status for r in responses if r.id == "p003"] == ["error:http_500"]
    assert sum(r.ok for r in responses) == 19
    assert (one.asked + two.asked).count("p003") == 4
    assert one.asked.count("p003") == two.asked.count("p003") == 2, "tried at both in turn"
    assert all(r.up for r in engine.records)


def test_a_refused_key_at_one_of_them_ends_the_run_and_names_it(pair: Pair) -> None:
    one, two = pair(slowly(0.05), lambda _: (401, "who are you"))
    with pytest.raises(UserError, match="refuses the key") as caught:
        engine_of(one, two).generate([ask(p) for p in prompts(8)])
    assert two.url in str(caught.value)


def test_an_overloaded_server_is_left_alone_for_a_while(pair: Pair) -> None:
    """Where it is the only one, its other requests wait too instead of failing one after the other."""
    ready = time.monotonic() + 0.6

    def loading(prompt: str) -> tuple[int, str]:
        return echo(prompt) if time.monotonic() > ready else (503, '{"error": "Loading model"}')

    one, _ = pair(loading)
    engine = engine_of(one, retries=4, backoff_s=0.1)
    assert_all_answered(engine.generate([ask(p) for p in prompts(50)]), 50)
    assert len(one.asked) < 80


def test_two_callers_share_the_servers_and_each_gets_its_own(pair: Pair) -> None:
    one, two = pair(slowly(0.01), slowly(0.01))
    engine = engine_of(one, two)
    got: dict[str, list[GenerationResponse]] = {}

    def call(name: str) -> None:
        got[name] = engine.generate([ask(f"{name}{i}") for i in range(20)])

    threads = [threading.Thread(target=call, args=(name,)) for name in "xy"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert {n: [r.text for r in rs] for n, rs in got.items()} == {
        n: [f"{n.upper()}{i}" for i in range(20)] for n in "xy"
    }


def test_the_same_address_twice_is_one_server() -> None:
    engine = ServerEngine(["http://h:1", "http://h:1/v1/", "http://h:2"], "m", concurrency=1)
    assert engine.base_urls == ("http://h:1/v1", "http://h:2/v1")


def test_closing_leaves_no_caller_waiting(pair: Pair) -> None:
    one, two = pair(slowly(0.3), slowly(0.3))
    engine = engine_of(one, two, concurrency=1)
    threading.Timer(0.1, engine.close).start()
    with pytest.raises(RuntimeError, match="is closed"):
        engine.generate([ask(p) for p in prompts(20)])
    with pytest.raises(RuntimeError, match="is closed"):
        engine.generate([ask("a")])


def test_a_defect_in_a_worker_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        base_url, model = "http://h", "m"

        def ask(self, _: object) -> None:
            raise ZeroDivisionError

    monkeypatch.setattr("threading.excepthook", lambda _: None)
    balancer = Balancer([Broken()], concurrency=1, retries=0, backoff_s=0.01)  # type: ignore[list-item]
    with pytest.raises(RuntimeError, match="a worker thread failed"):
        list(balancer.submit([ask("a")]))
