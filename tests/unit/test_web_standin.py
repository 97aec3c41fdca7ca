"""The client against every case of the stand-in server."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ecoagent.crawlers.web.client import PoliteClient
from ecoagent.crawlers.web.errors import WebError
from ecoagent.crawlers.web.store import ResponseStore
from ecoagent.settings.sections import HttpSettings
from tests.standin import hostile
from tests.standin.behaviours import ACCENTED, CHARSETS, ROBOTS, TARGETS, WRONG_CHARSETS
from tests.standin.server import Reply, StandIn


@pytest.fixture
def web() -> Iterator[StandIn]:
    with StandIn() as server:
        yield server


def make(
    web: StandIn, store: Path | None = None, slept: list[float] | None = None, **settings: Any
) -> PoliteClient:
    values: dict[str, Any] = {
        "allow_private": (web.host,),
        "requests_per_second": 50,
        "max_body_mb": 16,
        "timeout_s": 0.4,
        "max_seconds": 5,
        "retries": 2,
    }
    return PoliteClient(
        HttpSettings(**{**values, **settings}),
        store=ResponseStore(store) if store else None,
        sleep=(slept if slept is not None else []).append,
        random=random.Random(1),
    )


def outcome(client: PoliteClient, url: str) -> str:
    try:
        return f"{client.get(url).status}"
    except WebError as error:
        return error.reason


WHOLE = [
    "/ok", "/etag", "/dated", "/plain", "/no-head", "/chain/0", "/chain/5", "/busy/3", "/busy-date", "/flaky",
    "/flaky/2", "/slow/5", "/cut-once", "/gzip", "/deflate", "/to/relative",
]  # fmt: skip
BROKEN = {
    "/loop": "redirect_loop",
    "/loop-self": "redirect_loop",
    "/chain/6": "redirect_loop",
    "/missing": "not_found",
    "/nowhere": "not_found",
    "/gone": "gone",
    "/soft-404": "soft_404",
    "/soft-404-crewai": "soft_404",
    "/login": "auth_walled",
    "/forbidden": "auth_walled",
    "/proxy-auth": "auth_walled",
    "/busy-forever": "rate_limited",
    "/busy-long": "rate_limited",
    "/busy-odd": "rate_limited",
    "/flaky/3": "server_error",
    "/down": "server_error",
    "/down-after": "server_error",
    "/silent": "timeout",
    "/cut": "truncated",
    "/cut-chunked": "truncated",
    "/reset": "connection",
    "/garbage": "connection",
    "/big-lie": "too_large",
    "/gzip-corrupt": "bad_encoding",
    "/gzip-cut": "truncated",
    "/gzip-not": "bad_encoding",
    "/encoding-odd": "bad_encoding",
    "/headers-many": "connection",
    "/header-long": "connection",
}
REFUSED = {
    "other-host": "other_host",
    "file": "not_http",
    "ftp": "not_http",
    "data": "not_http",
    "javascript": "not_http",
    "garbage": "not_http",
    "userinfo": "not_http",
    "none": "bad_status",
    "empty": "bad_status",
}


@pytest.mark.parametrize("path", WHOLE)
def test_pages_that_come(web: StandIn, path: str) -> None:
    assert outcome(make(web), web.url(path)) == "200"


@pytest.mark.parametrize("path", BROKEN)
def test_pages_that_do_not(web: StandIn, path: str) -> None:
    slept: list[float] = []
    client = make(web, slept=slept)
    assert outcome(client, web.url(path)) == BROKEN[path]
    assert client.counts.requests <= 8
    assert all(s < 120 for s in slept)


def test_a_trickle_ends(web: StandIn) -> None:
    started = time.monotonic()
    assert outcome(make(web, max_seconds=0.5, retries=0), web.url("/slow")) == "timeout"
    assert time.monotonic() - started < 3


@pytest.mark.parametrize("name", [*TARGETS, "localhost", "other-port", "userinfo"])
def test_redirects_that_are_refused(web: StandIn, name: str) -> None:
    assert outcome(make(web), web.url(f"/to/{name}")) == REFUSED.get(name, "private_address")
    assert web.other.requests == []


@pytest.mark.parametrize("path", ["/big", "/big-chunked", "/big-close", "/gzip-bomb"])
def test_memory_stays_near_the_cap(web: StandIn, path: str) -> None:
    client, process = make(web, retries=0, timeout_s=20, max_seconds=60, max_body_mb=16), psutil.Process()
    outcome(client, web.url("/ok"))
    if path == "/gzip-bomb":
        # The server's own part of it, made once.
        outcome(make(web, retries=0, timeout_s=20, max_seconds=60, max_body_mb=0.001), web.url(path))
    before, most, done = process.memory_info().rss, [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            most[0] = max(most[0], process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        assert outcome(client, web.url(path)) == "too_large"
    finally:
        done.set()
        watcher.join()
    grown = (most[0] - before) / 1e6
    print(f"{path}: {grown:.1f} MB")
    assert grown < 2.2 * 16


@pytest.mark.parametrize("name", CHARSETS)
def test_charsets(web: StandIn, name: str) -> None:
    assert f"<p>{ACCENTED}</p>" in make(web).get(web.url(f"/charset/{name}")).text


@pytest.mark.parametrize("name", WRONG_CHARSETS)
def test_charsets_that_are_wrong(web: StandIn, name: str) -> None:
    assert "</p></body>" in make(web).get(web.url(f"/charset/{name}")).text


@pytest.mark.parametrize("name", [*hostile.BODIES, "deep", "deep-table", "one-line"])
def test_hostile_bodies_are_read(web: StandIn, name: str) -> None:
    started = time.process_time()
    assert outcome(make(web, timeout_s=20), web.url(f"/hostile/{name}")) == "200"
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("name", "open_page", "private_page"),
    [
        ("allow", "200", "200"),
        ("deny", "robots", "robots"),
        ("deny-us", "200", "robots"),
        ("delay", "200", "robots"),
        ("delay-day", "rate_limited", "rate_limited"),
        ("missing", "200", "200"),
        ("gone", "200", "200"),
        ("forbidden", "200", "200"),
        ("error", "robots", "robots"),
        ("html", "200", "200"),
        ("huge", "200", "robots"),
        ("binary", "200", "200"),
        ("bom", "200", "robots"),
        ("silent", "robots", "robots"),
        ("redirect", "robots", "robots"),
    ],
)
def test_kinds_of_robots(web: StandIn, name: str, open_page: str, private_page: str) -> None:
    web.set_robots(ROBOTS[name])
    web.add("/private/page", Reply(b"<p>x</p>"))
    client = make(web)
    assert outcome(client, web.url("/ok")) == open_page
    assert outcome(client, web.url("/private/page")) == private_page
    assert make(web, robots=False).get(web.url("/private/page")).status == 200


def test_robots_with_wildcards(web: StandIn) -> None:
    web.set_robots(ROBOTS["wildcards"])
    for path in ("/x.md", "/x.md?y", "/a/1/b", "/a/ok/b"):
        web.add(path.partition("?")[0], Reply(b"<p>x</p>"))
    client = make(web)
    found = [outcome(client, web.url(p)) for p in ("/x.md", "/x.md?y", "/a/1/b", "/a/ok/b")]
    assert found == ["robots", "200", "robots", "200"]


def test_a_second_run_asks_for_nothing(web: StandIn, tmp_path: Path) -> None:
    paths = ["/ok", "/chain/3", "/missing", "/gone", "/soft-404", "/login", "/loop", "/to/private", "/gzip"]
    first = [outcome(make(web, tmp_path), web.url(p)) for p in paths]
    asked = len(web.requests)
    assert [outcome(make(web, tmp_path), web.url(p)) for p in paths] == first
    assert len(web.requests) == asked


@pytest.mark.parametrize("path", ["/ok", "/etag", "/dated", "/gzip"])
def test_unchanged_pages(web: StandIn, tmp_path: Path, path: str) -> None:
    client = make(web, tmp_path)
    first = client.get(web.url(path))
    second = client.get(web.url(path), max_age_h=0)
    assert second.not_modified and second.body == first.body


@pytest.mark.parametrize(
    ("path", "state", "reason"),
    [
        ("/ok", "alive", "status_200"),
        ("/no-head", "alive", "status_200"),
        ("/big", "alive", "status_200"),
        ("/gzip-bomb", "alive", "status_200"),
        ("/chain/2", "alive", "status_200"),
        ("/flaky", "alive", "status_200"),
        ("/missing", "dead", "not_found"),
        ("/gone", "dead", "gone"),
        ("/soft-404", "dead", "soft_404"),
        ("/login", "auth_walled", "status_401"),
        ("/loop", "unknown", "redirect_loop"),
        ("/busy-forever", "unknown", "rate_limited"),
        ("/down", "unknown", "server_error"),
        ("/silent", "unknown", "timeout"),
        ("/reset", "unknown", "connection"),
        ("/to/private", "unknown", "private_address"),
        ("/to/other-port", "unknown", "private_address"),
    ],
)
def test_probes(web: StandIn, path: str, state: str, reason: str) -> None:
    found = make(web, timeout_s=2 if "big" in path or "gzip" in path else 0.4).probe(web.url(path))
    assert (found.state, found.reason) == (state, reason)
    assert web.other.requests == []
