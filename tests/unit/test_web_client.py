"""The polite client against servers of its own."""

from __future__ import annotations

import gzip
import pickle
import random
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ecoagent.crawlers.web.addresses import AddressGuard, is_public
from ecoagent.crawlers.web.bodies import decode
from ecoagent.crawlers.web.client import PoliteClient
from ecoagent.crawlers.web.errors import WebError, scrub, split_url
from ecoagent.crawlers.web.hosts import Host
from ecoagent.crawlers.web.robots import parse_rules
from ecoagent.crawlers.web.soft404 import is_soft_404
from ecoagent.crawlers.web.store import ResponseStore
from ecoagent.settings.sections import HttpSettings

Reply = tuple[int, dict[str, str], bytes]
HTML = {"Content-Type": "text/html; charset=utf-8"}


class Server:
    """Answers from a table of functions; keeps what was asked."""

    def __init__(self) -> None:
        self.routes: dict[str, Callable[[BaseHTTPRequestHandler], Reply | None]] = {}
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.asked.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
                route = outer.routes.get(self.path, lambda _: (404, {}, b"none"))
                reply = route(self)
                if reply is None:
                    self.close_connection = True
                    return
                status, headers, body = reply
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if "Content-Length" not in headers and "Transfer-Encoding" not in headers:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)
                if headers.get("Content-Length", str(len(body))) != str(len(body)):
                    self.close_connection = True

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.http.handle_error = lambda *a: None  # type: ignore[method-assign]
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()
        self.place = f"127.0.0.1:{self.http.server_address[1]}"

    def url(self, path: str) -> str:
        return f"http://{self.place}{path}"

    def page(self, path: str, body: bytes = b"<h1>Page</h1>", status: int = 200, **headers: str) -> str:
        sent = HTML | {k.replace("_", "-"): v for k, v in headers.items()}
        self.routes[path] = lambda _: (status, sent, body)
        return self.url(path)

    def paths(self) -> list[str]:
        return [p for _, p, _ in self.asked if p != "/robots.txt"]


class World:
    """Clock and sleep in step."""

    def __init__(self) -> None:
        self.time, self.slept = 1000.0, []  # type: float, list[float]

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds

    def clock(self) -> float:
        return self.time


@pytest.fixture
def web() -> Iterator[Server]:
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


@pytest.fixture
def world() -> World:
    return World()


def make(web: Server, world: World, store: Path | None = None, **settings: Any) -> PoliteClient:
    values = {"allow_private": (web.place,), "requests_per_second": 50, "max_body_mb": 0.1} | settings
    options = {k: values.pop(k) for k in ("resolve", "say", "clock") if k in values}
    return PoliteClient(
        HttpSettings(**values),
        store=ResponseStore(store) if store else None,
        sleep=world.sleep,
        random=random.Random(1),
        **({"clock": world.clock} | options),
    )


def reason(call: Callable[[], object]) -> str:
    with pytest.raises(WebError) as caught:
        call()
    assert caught.value.remedy
    return caught.value.reason


def test_a_page(web: Server, world: World) -> None:
    url = web.page("/a", "<h1>Größe\0</h1>".encode())
    page = make(web, world).get(url + "#part")
    assert (page.url, page.status, page.text) == (url, 200, "<h1>Größe</h1>")
    assert not page.from_store
    sent = next(h for _, p, h in web.asked if p == "/a")
    assert sent["accept-encoding"] == "gzip"
    assert sent["user-agent"].startswith("ecoagent/")
    assert "cookie" not in sent and "authorization" not in sent


@pytest.mark.parametrize(
    ("status", "expected"),
    [(404, "not_found"), (410, "gone"), (401, "auth_walled"), (403, "auth_walled"), (400, "bad_status")],
)
def test_a_status_is_asked_for_once_and_kept(
    web: Server, world: World, tmp_path: Path, status: int, expected: str
) -> None:
    url = web.page("/a", status=status)
    assert reason(lambda: make(web, world, tmp_path).get(url)) == expected
    again = make(web, world, tmp_path)
    assert reason(lambda: again.get(url)) == expected
    assert (again.counts.requests, again.counts.from_store) == (0, 1)
    assert web.paths() == ["/a"]


def test_conditional_requests(web: Server, world: World, tmp_path: Path) -> None:
    body = b"<h1>Kept</h1>"

    def route(handler: BaseHTTPRequestHandler) -> Reply:
        if handler.headers.get("If-None-Match") == '"1"':
            return 304, {"ETag": '"1"'}, b""
        return 200, HTML | {"ETag": '"1"', "Last-Modified": formatdate(0, usegmt=True)}, body

    web.routes["/a"] = route
    client = make(web, world, tmp_path)
    client.get(web.url("/a"))
    fresh = client.get(web.url("/a"))
    assert fresh.from_store and fresh.body == body
    stale = client.get(web.url("/a"), max_age_h=0)
    assert stale.not_modified and not stale.from_store and stale.body == body
    assert client.counts.not_modified == 1
    assert "if-modified-since" in web.asked[-1][2]


def test_second_run_without_traffic(web: Server, world: World, tmp_path: Path) -> None:
    web.page("/robots.txt", b"User-agent: *\nDisallow: /no\n")
    web.page("/from", b"", 302, Location="/to")
    web.page("/to")
    web.page("/soft", b"<title>Page Not Found</title><h1>Page not found</h1>")
    web.page("/loop", b"", 302, Location="/loop")

    def run() -> tuple[list[str], PoliteClient]:
        client = make(web, world, tmp_path)
        assert client.get(web.url("/from")).url == web.url("/to")
        wrong = ["/soft", "/loop", "/gone", "/no/page"]
        found = [reason(lambda p=p: client.get(web.url(p))) for p in wrong]
        found.append(client.probe(web.url("/to")).state)
        return found, client

    first, _ = run()
    second, client = run()
    assert first == second == ["soft_404", "redirect_loop", "not_found", "robots", "alive"]
    assert client.counts.requests == 0


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_tries_again(web: Server, world: World, status: int) -> None:
    left = [2]

    def route(_: BaseHTTPRequestHandler) -> Reply:
        left[0] -= 1
        return (status if left[0] >= 0 else 200, HTML, b"<p>up</p>")

    web.routes["/a"] = route
    client = make(web, world)
    assert client.get(web.url("/a")).text == "<p>up</p>"
    assert client.counts.retries == 2
    waits = [s for s in world.slept if s >= 0.9]
    assert len(waits) == 2 and 1 <= waits[0] <= 2 <= waits[1] <= 3


def test_gives_up(web: Server, world: World) -> None:
    url = web.page("/a", status=503)
    assert reason(lambda: make(web, world, retries=2).get(url)) == "server_error"
    assert len(web.paths()) == 3
    url = web.page("/b", status=429)
    assert reason(lambda: make(web, world, retries=1).get(url)) == "rate_limited"


@pytest.mark.parametrize("after", ["7", "date"])
def test_retry_after(web: Server, world: World, after: str) -> None:
    told = []

    def route(_: BaseHTTPRequestHandler) -> Reply:
        told.append(1)
        wait = formatdate(time.time() + 7, usegmt=True) if after == "date" else after
        return (429, {"Retry-After": wait}, b"") if len(told) == 1 else (200, HTML, b"ok")

    web.routes["/a"] = route
    said: list[str] = []
    make(web, world, say=said.append).get(web.url("/a"))
    assert any(5.9 <= s <= 7 for s in world.slept)
    assert any("429" in line for line in said)


def test_a_long_retry_after_ends_the_page_at_once(web: Server, world: World) -> None:
    url = web.page("/a", status=503, Retry_After="86400")
    assert reason(lambda: make(web, world).get(url)) == "rate_limited"
    assert len(web.paths()) == 1


def test_caps(web: Server, world: World) -> None:
    client = make(web, world, retries=0)
    cases = {
        "announced": (b"x" * 200_000, {}),
        "bomb": (gzip.compress(bytes(5_000_000)), {"Content_Encoding": "gzip"}),
        "deflate": (zlib.compress(bytes(5_000_000)), {"Content_Encoding": "deflate"}),
        "members": (gzip.compress(b"a" * 90_000) * 3, {"Content_Encoding": "gzip"}),
        "empty members": (gzip.compress(b"") * 10_000, {"Content_Encoding": "gzip"}),
    }
    for name, (body, headers) in cases.items():
        url = web.page("/" + name.replace(" ", ""), body, **headers)
        assert reason(lambda u=url: client.get(u)) == "too_large", name


def test_compressed_bodies(web: Server, world: World) -> None:
    client = make(web, world, retries=0)
    page = b"<p>packed</p>" * 1000
    raw = zlib.compressobj(9, zlib.DEFLATED, -15)
    good = [
        (gzip.compress(page), "gzip"),
        (gzip.compress(page[:50]) + gzip.compress(page[50:]) + b"\0" * 9, "x-gzip"),
        (zlib.compress(page), "deflate"),
        (raw.compress(page) + raw.flush(), "deflate"),
        (page, "identity"),
    ]
    for place, (body, coding) in enumerate(good):
        assert client.get(web.page(f"/{place}", body, Content_Encoding=coding)).body == page
    packed = gzip.compress(random.Random(1).randbytes(9000))
    bad = [
        (packed[:2000] + b"\xff" * 4000 + packed[6000:], "gzip", "bad_encoding"),
        (page, "gzip", "bad_encoding"),
        (packed[: len(packed) // 2], "gzip", "truncated"),
        (page, "br", "bad_encoding"),
        (packed, "gzip, gzip", "bad_encoding"),
    ]
    for place, (body, coding, expected) in enumerate(bad):
        url = web.page(f"/bad{place}", body, Content_Encoding=coding)
        assert reason(lambda u=url: client.get(u)) == expected, place


def test_cut_bodies(web: Server, world: World) -> None:
    client = make(web, world, retries=1)
    url = web.page("/a", b"short", Content_Length="500")
    assert reason(lambda: client.get(url)) == "truncated"
    assert client.counts.retries == 1
    for name, wire in {"size": b"64\r\nonly this", "end": b"3\r\nabc\r\n", "odd": b"zz\r\nabc\r\n"}.items():

        def route(handler: BaseHTTPRequestHandler, wire: bytes = wire) -> Reply:
            handler.close_connection = True
            return 200, HTML | {"Transfer-Encoding": "chunked"}, wire

        web.routes["/" + name] = route
        assert reason(lambda n=name: client.get(web.url("/" + n))) == "truncated", name


def test_slow_bodies_and_headers(web: Server, world: World) -> None:
    stop = threading.Event()

    def trickle(handler: BaseHTTPRequestHandler, head: bytes) -> None:
        handler.wfile.write(head)
        while not stop.wait(0.05):
            handler.wfile.write(b"x")
            handler.wfile.flush()

    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
    web.routes["/body"] = lambda h: trickle(h, head + b"\r\n")  # type: ignore[func-returns-value]
    web.routes["/head"] = lambda h: trickle(h, head + b"X-Slow: ")  # type: ignore[func-returns-value]
    web.routes["/mute"] = lambda h: stop.wait(5) and None
    web.routes["/trailer"] = lambda h: trickle(  # type: ignore[func-returns-value]
        h, head + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: "
    )
    client = make(web, world, retries=0, robots=False, max_seconds=0.3, timeout_s=0.4, clock=time.monotonic)
    try:
        for path in ("/body", "/head", "/mute", "/trailer"):
            started = time.monotonic()
            assert reason(lambda p=path: client.get(web.url(p))) == "timeout", path
            assert time.monotonic() - started < 2, path
    finally:
        stop.set()


def test_redirects(web: Server, world: World) -> None:
    client = make(web, world, max_redirects=3)
    for n in range(6):
        web.page(f"/{n}", b"<p>end</p>", 200 if n == 0 else 301, Location=f"{n - 1}#x")
    assert client.get(web.url("/3")).url == web.url("/0")
    assert reason(lambda: client.get(web.url("/4"))) == "redirect_loop"
    targets = {
        "http://elsewhere.example/": "other_host",
        "//elsewhere.example/": "other_host",
        f"https://{web.place}/": "other_host",
        "http://10.0.0.1/": "private_address",
        "http://[::ffff:127.0.0.1]/": "private_address",
        "http://2130706433/": "private_address",
        "http://127.0.0.1:1/": "private_address",
        "http://localhost:1/": "private_address",
        "file:///etc/passwd": "not_http",
        "javascript:alert(1)": "not_http",
        f"http://{web.place}@elsewhere.example/": "not_http",
        "http://[::1": "not_http",
        "": "bad_status",
    }
    for place, (target, expected) in enumerate(targets.items()):
        url = web.page(f"/t{place}", b"", 302, Location=target)
        assert reason(lambda u=url: client.get(u)) == expected, target


def test_a_redirect_with_a_large_body_is_not_read(web: Server, world: World) -> None:
    web.page("/b")
    url = web.page("/a", b"x" * 5_000_000, 302, Location="/b")
    client = make(web, world)
    assert client.get(url).status == 200
    assert client.counts.bytes < 1000


def test_upgrade_to_https_is_the_same_host(web: Server, world: World) -> None:
    from ecoagent.crawlers.web.transport import Answer

    client = make(web, world)

    def answer(url: str, target: str) -> Answer:
        return Answer(url, 301, {"location": target})

    assert client._next(answer("http://a.example/x", "https://a.example/x"), set()) == "https://a.example/x"
    for source, target in [
        ("https://a.example/", "http://a.example/"),
        ("http://a.example/", "https://www.a.example/"),
        ("http://a.example:81/", "https://a.example/"),
    ]:
        assert reason(lambda s=source, t=target: client._next(answer(s, t), set())) == "other_host"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.2.1", "100.100.100.200", "168.63.129.16", "::1",
        "::", "fe80::1", "fe80::1%lo", "fc00::1", "fd00:ec2::254", "ff02::1", "::ffff:10.0.0.1", "::10.0.0.1",
        "2002:7f00:1::", "64:ff9b::7f00:1", "fec0::1", "no address",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


def test_public_addresses() -> None:
    assert all(
        is_public(a) for a in ("8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808")
    )


def fake_resolve(*addresses: str) -> Callable[..., list[Any]]:
    return lambda host, port, **_: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, port)) for a in addresses]


@pytest.mark.parametrize("found", [["10.0.0.1"], ["8.8.8.8", "127.0.0.1"]])
def test_a_name_with_a_private_address(web: Server, world: World, found: list[str]) -> None:
    client = make(web, world, resolve=fake_resolve(*found))
    assert reason(lambda: client.get(f"http://docs.example:{web.place[-5:]}/")) == "private_address"
    assert client.probe("http://docs.example/").reason == "private_address"
    assert not web.asked


def test_the_address_checked_is_the_one_connected_to(web: Server, world: World) -> None:
    asked = []

    def rebinding(host: str, port: int, **_: Any) -> list[Any]:
        # The first answer is public, later ones are this machine.
        asked.append(host)
        address = "192.88.99.1" if len(asked) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    port = web.place.split(":")[1]
    client = make(web, world, resolve=rebinding, retries=2, timeout_s=0.2, robots=False)
    assert reason(lambda: client.get(f"http://docs.example:{port}/")) == "private_address"
    assert not web.asked


def test_an_exempt_name_is_reached(web: Server, world: World) -> None:
    port = web.place.split(":")[1]
    web.page("/a")
    client = make(
        web, world, resolve=fake_resolve("127.0.0.1"), allow_private=(f"Docs.example:{port}", web.place)
    )
    assert client.get(f"http://docs.example:{port}/a").status == 200
    assert web.asked[-1][2]["host"] == f"docs.example:{port}"


def test_hosts_without_address(web: Server, world: World) -> None:
    def missing(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "no name")

    def passing(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_AGAIN, "later")

    client = make(web, world, resolve=missing)
    assert reason(lambda: client.get("http://no.example/")) == "no_such_host"
    assert client.probe("http://no.example/").state == "dead"
    client = make(web, world, resolve=passing, robots=False)
    assert reason(lambda: client.get("http://no.example/")) == "connection"
    assert client.counts.retries == 3
    assert client.probe("http://no.example/").state == "unknown"


def test_a_proxy_is_used_and_said(web: Server, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", web.url(""))
    web.page("http://docs.example/a")
    said: list[str] = []
    client = make(web, world, robots=False, say=said.append)
    assert client.get("http://docs.example/a").status == 200
    assert any("proxy" in line for line in said)
    assert reason(lambda: client.get("http://127.1:80/")) == "private_address"


def test_no_credentials_of_the_user(
    web: Server, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    url = web.page("/a", Set_Cookie="a=b")
    client = make(web, world)
    client.get(url)
    client.get(url)
    assert all("authorization" not in h and "cookie" not in h for _, _, h in web.asked)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a.example/", "a.example", "", "http://", "http://user:pw@a.example/", "http://a.example:99999/",
        "http://a b.example/", "http://a.example/\n", "http://[::1", "http://a.example\\@b.example/", "http://{h}/",
        "http://a.example/\u202e", "file:///etc/passwd", "http://a.example:0/", "//a.example/",
    ],
)  # fmt: skip
def test_addresses_that_are_not_asked_for(web: Server, world: World, url: str) -> None:
    client = make(web, world)
    assert reason(lambda: client.get(url)) == "not_http"
    assert client.probe(url).reason == "not_http"


@pytest.mark.parametrize("host", ["a" * 70 + ".example", "a..example", ".example"])
def test_hosts_that_cannot_be(web: Server, world: World, host: str) -> None:
    assert reason(lambda: make(web, world).get(f"http://{host}/")) in ("not_http", "no_such_host")


def test_robots(web: Server, world: World) -> None:
    rules = b"User-agent: ecoagent\nDisallow: /private\nCrawl-delay: 3\n\nUser-agent: *\nDisallow: /\n"
    web.page("/robots.txt", rules)
    web.page("/a")
    client = make(web, world)
    client.get(web.url("/a"))
    client.get(web.url("/a"))
    assert reason(lambda: client.get(web.url("/private/x"))) == "robots"
    assert client.probe(web.url("/private/x")).reason == "robots"
    assert [p for _, p, _ in web.asked] == ["/robots.txt", "/a", "/a"]
    assert any(2.9 <= s <= 3 for s in world.slept)
    assert make(web, world, robots=False).get(web.page("/private/x")).status == 200


@pytest.mark.parametrize(
    ("status", "body", "allowed"),
    [
        (200, b"<!doctype html>\nUser-agent: *\nDisallow: /\n", True),
        (404, b"", True),
        (403, b"", True),
        (500, b"", False),
        (503, b"", False),
        (200, b"User-agent: *\nDisallow: /\n" + b"# filler\n" * 100_000, False),
        (200, b"User-agent: *\nAllow: /\n" + b"# filler\n" * 200_000, True),
        (200, bytes(range(256)) * 50, True),
        (200, b"\xef\xbb\xbfUser-agent: *\nDisallow: /\n", False),
    ],
)
def test_kinds_of_robots(web: Server, world: World, status: int, body: bytes, allowed: bool) -> None:
    web.page("/robots.txt", body, status)
    url = web.page("/a")
    if allowed:
        assert make(web, world).get(url).status == 200
    else:
        assert reason(lambda: make(web, world).get(url)) == "robots"


def test_robots_behind_redirects(web: Server, world: World) -> None:
    web.page("/robots.txt", b"", 301, Location="/rules")
    web.page("/rules", b"User-agent: *\nDisallow: /a\n")
    url = web.page("/a")
    assert reason(lambda: make(web, world).get(url)) == "robots"
    web.page("/robots.txt", b"", 301, Location="http://10.0.0.1/robots.txt")
    assert reason(lambda: make(web, world).get(url)) == "robots"
    web.page("/robots.txt", b"", 301, Location="/robots.txt")
    assert make(web, world).get(url).status == 200


def test_a_crawl_delay_too_long(web: Server, world: World) -> None:
    web.page("/robots.txt", b"User-agent: *\nCrawl-delay: 9999\n")
    assert reason(lambda: make(web, world).get(web.page("/a"))) == "rate_limited"
    assert parse_rules("User-agent: *\nCrawl-delay: soon\nRequest-rate: 0/5\n") is not None


def test_rate_and_number_in_flight() -> None:
    now, slept, lock = [0.0], [], threading.Lock()
    flying, most = [0], [0]
    host = Host(0.5, 2, lambda: now[0], slept.append)

    def ask() -> None:
        with host.turn():
            with lock:
                flying[0] += 1
                most[0] = max(most[0], flying[0])
            time.sleep(0.01)
            with lock:
                flying[0] -= 1

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] == 2
    assert sorted(slept) == [0.5 * n for n in range(1, 8)]
    host.pause(100)
    with host.turn():
        assert slept[-1] == 100


def test_many_threads(web: Server, world: World, tmp_path: Path) -> None:
    urls = [web.page(f"/p{n}", f"<p>{n}</p>".encode()) for n in range(20)]
    client = make(web, world, tmp_path, per_host=8)
    found: dict[str, str] = {}

    def ask(url: str) -> None:
        found[url] = client.get(url).text

    threads = [threading.Thread(target=ask, args=(u,)) for u in urls * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {u: f"<p>{n}</p>" for n, u in enumerate(urls)}
    assert [p for _, p, _ in web.asked].count("/robots.txt") == 1


def test_broken_connections(web: Server, world: World) -> None:
    web.routes["/reset"] = lambda h: h.connection.close()  # type: ignore[func-returns-value]
    web.routes["/noise"] = lambda h: h.wfile.write(b"\x16\x03 no http\r\n\r\n") and None
    client = make(web, world, retries=1, robots=False)
    assert reason(lambda: client.get(web.url("/reset"))) == "connection"
    assert reason(lambda: client.get(web.url("/noise"))) == "connection"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    client = make(web, world, allow_private=(place,), robots=False)
    assert reason(lambda: client.get(f"http://{place}/")) == "connection"
    assert client.probe(f"http://{place}/").state == "unknown"
    assert (
        reason(lambda: make(web, world, robots=False).get(web.url("/a").replace("http", "https")))
        == "connection"
    )


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("Größe".encode(), "text/html; charset=utf-8"),
        ("Größe".encode("latin-1"), "text/html; charset=ISO-8859-1"),
        ("Größe".encode(), "text/html; charset=x-none"),
        ("Größe".encode(), "text/html; charset=hex"),
        ("Größe".encode(), "text/html; charset=idna"),
        ("\ufeffGröße".encode(), "text/html"),
        ("Größe".encode("utf-16"), "text/html"),
        ("Größe".encode("utf-16"), "text/html; charset=utf-16"),
        ("Größe".encode(), ""),
        ("Größe".encode(), 'text/html; charset="'),
        ("Größe".encode(), "text/html; charset*=utf-8''%00"),
    ],
)
def test_charsets(body: bytes, content_type: str) -> None:
    assert decode(body, content_type) == "Größe"


def test_charset_of_the_markup() -> None:
    page = '<meta charset="windows-1252"><p>Größe €'
    assert "Größe €" in decode(page.encode("cp1252"), "text/html")
    assert "Größe" in decode('<meta charset="utf-16"><p>Größe'.encode(), "text/html")
    assert "\ufffd" in decode(b"<p>\xff\xfe\xfa"[3:] + b"\xff", "text/html; charset=utf-8")


@pytest.mark.parametrize(
    "page",
    [
        "<title>Page Not Found - Docs</title><h1>Page not found!</h1>" + "<a>Nav</a>" * 1000,
        "<title>404: This page could not be found.</title><h1>404</h1><h2>This page could not be found.</h2>",
        "<title>Docs</title><h1>404</h1><p>The page you’re looking for doesn’t exist.</p>",
        "<title>Docs</title><h1>This page doesn't exist</h1><a>Go home</a>",
        "<title>404 Not Found | Acme</title><div>Nothing here</div>",
        "<title>Acme</title><div>404</div><div>Sorry, we couldn't find the page you were looking for.</div>",
        "<html><head><title>Page not found</title><body><div id=root></div>",
        "<title>Acme</title><!-- x --><h1><span>Oops!</span></h1><p>The page you requested was not found",
    ],
)
def test_soft_404(page: str) -> None:
    assert is_soft_404(page, "text/html; charset=utf-8")


@pytest.mark.parametrize(
    "page",
    [
        "<title>Errors | Docs</title><h1>Errors</h1><p>404: the page you're looking for does not exist.</p>",
        "<title>404 Not Found - HTTP</title><h1>404 Not Found</h1><p>"
        + "The status means that a server. " * 40,
        "<title>How to fix page not found errors</title><h1>How to fix page not found errors</h1><p>Do this.",
        "<title>Search tool</title><h1>Search tool</h1><p>Raises 404 not found where there is none.",
        "<title>Page not found handling in the router</title><h1>Fallback pages</h1><p>Text",
        "<p>404</p>",
        "",
    ],
)
def test_no_soft_404(page: str) -> None:
    assert not is_soft_404(page, "text/html")


def test_soft_404_of_other_kinds() -> None:
    assert is_soft_404("# Page Not Found\n\nGo home.", "text/markdown")
    assert not is_soft_404("# Errors\n\n404: page not found\n", "text/markdown")
    assert not is_soft_404('{"error": "page not found"}', "application/json")


@pytest.mark.parametrize(
    "unit", ["<div>", "<", "<a ", "<!--", "</", "<h1>", "<title>", "404 ", "page not ", "oops! "]
)
def test_soft_404_of_hostile_pages(unit: str) -> None:
    started = time.process_time()
    for text in ("<" + unit * 100_000, "<title>" + unit * 100_000, "<p>" + unit * 100_000):
        is_soft_404(text, "text/html")
    assert time.process_time() - started < 5


def test_probe_of_pages(web: Server, world: World) -> None:
    client = make(web, world, retries=1)
    web.page("/page")
    web.page("/file", b"%PDF", Content_Type="application/pdf")
    web.page("/large", b"<p>" + b"x" * 500_000)
    web.page("/soft", b"<title>Page Not Found</title><h1>Page Not Found</h1>")
    web.page("/gone", status=410)
    web.page("/walled", status=401)
    web.page("/moved", b"", 301, Location="/page")
    web.page("/loop", b"", 301, Location="/loop")
    web.page("/private", b"", 301, Location="http://10.0.0.1/")
    web.page("/wants", b"", 302, Location="/login?next=/wants")
    web.page("/login?next=/wants")
    web.page("/down", status=500)
    web.page("/odd", status=418)
    for path, lie in {"/nohead": 405, "/lies": 404, "/breaks": 500}.items():
        web.routes[path] = lambda h, s=lie: (s if h.command == "HEAD" else 200, HTML, b"<p>x</p>")
    expected = {
        "/page": ("alive", "status_200", 200),
        "/file": ("alive", "status_200", 200),
        "/large": ("alive", "status_200", 200),
        "/nohead": ("alive", "status_200", 200),
        "/lies": ("alive", "status_200", 200),
        "/breaks": ("alive", "status_200", 200),
        "/moved": ("alive", "status_200", 200),
        "/soft": ("dead", "soft_404", 200),
        "/missing": ("dead", "not_found", 404),
        "/gone": ("dead", "gone", 410),
        "/walled": ("auth_walled", "status_401", 401),
        "/wants": ("auth_walled", "login_page", 200),
        "/loop": ("unknown", "redirect_loop", 301),
        "/private": ("unknown", "private_address", None),
        "/down": ("unknown", "server_error", 500),
        "/odd": ("unknown", "bad_status", 418),
    }
    for path, wanted in expected.items():
        found = client.probe(web.url(path))
        assert (found.state, found.reason, found.status) == wanted, path
    assert {m for m, _, _ in web.asked} == {"GET", "HEAD"}


def test_probe_follows_to_another_host(web: Server, world: World) -> None:
    other = Server()
    try:
        web.page("/a", b"", 301, Location=other.page("/b"))
        client = make(web, world, allow_private=(web.place, other.place))
        found = client.probe(web.url("/a"))
        assert (found.state, found.url) == ("alive", other.url("/b"))
        other.page("/robots.txt", b"User-agent: *\nDisallow: /\n")
        client = make(web, world, allow_private=(web.place, other.place))
        assert client.probe(web.url("/a")).reason == "robots"
        assert reason(lambda: client.get(web.url("/a"))) == "other_host"
    finally:
        other.http.shutdown()
        other.http.server_close()


@pytest.mark.parametrize(
    ("status", "state", "why"),
    [
        (200, "alive", "status_200"),
        (404, "alive", "answers_status_404"),
        (405, "alive", "answers_status_405"),
        (401, "auth_walled", "status_401"),
        (403, "auth_walled", "status_403"),
        (410, "dead", "gone"),
        (500, "unknown", "server_error"),
        (429, "unknown", "rate_limited"),
    ],
)
def test_probe_of_endpoints(web: Server, world: World, status: int, state: str, why: str) -> None:
    found = make(web, world, retries=0).probe(web.page("/v1", status=status), kind="endpoint")
    assert (found.state, found.reason) == (state, why)


def test_messages_hide_what_is_private() -> None:
    assert scrub("http://me:pw@a.example:8/x?token=secret&b#f") == "http://a.example:8/x?token=…&…"
    error = WebError("timeout", "http://a.example/?key=secret", "late", status=503)
    copy = pickle.loads(pickle.dumps(error))
    assert "secret" not in str(error) and str(copy) == str(error) and copy.reason == "timeout"
    assert len(scrub("http://a.example/" + "x" * 999)) == 300
    assert split_url("https://a.example:8443/x").port == 8443


def test_guard_judges_names_without_asking() -> None:
    guard = AddressGuard(("[::1]:80",), resolve=lambda *a, **k: pytest.fail("asked"))
    assert guard.exempt("::1", 80) and not guard.plainly_private("::1", 80)
    for host in ("localhost", "x.localhost", "127.1", "0x7f000001", "metadata.google.internal", "::1"):
        assert guard.plainly_private(host, 81), host
    assert not guard.plainly_private("docs.example", 80)
