"""The stand-in does what it says."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import time
import zlib
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from bs4 import BeautifulSoup

from tests.standin import hostile
from tests.standin.behaviours import BIG_BYTES, BOMB_BYTES, CHARSETS, ROBOTS, TARGETS, bomb
from tests.standin.pages import crewai, langchain, n8n, npm
from tests.standin.server import StandIn
from tests.standin.site import TRUTH, Addresses, mount
from tests.standin.truth import SPECS_LEFT_OUT
from tests.standin.truth_npm import N8N_TWICE, NPM_GOOD


@pytest.fixture(scope="module")
def web() -> Iterator[StandIn]:
    with StandIn() as server:
        yield server


@pytest.fixture(scope="module")
def where(web: StandIn) -> Addresses:
    return mount(web)


def ask(
    web: StandIn, path: str, method: str = "GET", headers: dict[str, str] | None = None, timeout: float = 10
) -> tuple[http.client.HTTPResponse, bytes]:
    """One request; the whole body."""
    connection = http.client.HTTPConnection(web.host, timeout=timeout)
    connection.request(method, path, headers=headers or {})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def text(web: StandIn, path: str) -> str:
    answer, body = ask(web, path)
    assert answer.status == 200, path
    return body.decode()


def test_validators_and_the_log(web: StandIn) -> None:
    web.requests.clear()
    first, body = ask(web, "/ok")
    assert (first.status, body[:9]) == (200, b"<!doctype")
    tag, date = first.headers["ETag"], first.headers["Last-Modified"]
    for headers in ({"If-None-Match": tag}, {"If-Modified-Since": date}):
        again, nothing = ask(web, "/ok", headers=headers)
        assert (again.status, nothing) == (304, b"")
    assert ask(web, "/ok", headers={"If-None-Match": '"other"', "If-Modified-Since": date})[0].status == 200
    assert web.paths() == ["/ok"] * 4
    assert web.requests[1].headers["if-none-match"] == tag
    assert ask(web, "/ok", "HEAD")[1] == b""


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/missing", 404),
        ("/gone", 410),
        ("/login", 401),
        ("/forbidden", 403),
        ("/down", 503),
        ("/nothing/here", 404),
    ],
)
def test_plain_statuses(web: StandIn, path: str, status: int) -> None:
    assert ask(web, path)[0].status == status


def test_redirects(web: StandIn) -> None:
    assert ask(web, "/loop")[0].headers["Location"] == "/loop-b"
    assert ask(web, "/loop-b")[0].headers["Location"] == "/loop"
    assert ask(web, "/chain/3")[0].headers["Location"] == "/chain/2"
    assert ask(web, "/chain/0")[0].status == 200
    for name, target in TARGETS.items():
        assert ask(web, f"/to/{name}")[0].headers.get("Location") == target
    assert web.other.host in ask(web, "/to/other-port")[0].headers["Location"]
    assert web.other.port != web.port and not web.other.requests
    assert ask(web.other, "/page")[1] == b"<p>the other host</p>"
    assert web.other.paths() == ["/page"]


def test_troubles_that_pass(web: StandIn) -> None:
    assert [ask(web, "/flaky/1")[0].status for _ in range(2)] == [500, 200]
    assert [ask(web, "/flaky")[0].status for _ in range(3)] == [500, 500, 200]
    busy = [ask(web, "/busy/7")[0] for _ in range(2)]
    assert [b.status for b in busy] == [429, 200]
    assert busy[0].headers["Retry-After"] == "7"
    assert ask(web, "/busy-date")[0].headers["Retry-After"].endswith("GMT")


def test_slow_and_silent(web: StandIn) -> None:
    start = time.monotonic()
    assert ask(web, "/slow/5")[1] == b"....."
    assert time.monotonic() - start >= 0.4
    with pytest.raises(TimeoutError):
        ask(web, "/silent", timeout=0.3)


def test_cut_bodies(web: StandIn) -> None:
    for path in ("/cut", "/cut-chunked", "/big-lie"):
        with pytest.raises(http.client.IncompleteRead):
            ask(web, path)
    with pytest.raises(http.client.IncompleteRead):
        ask(web, "/cut-once")
    assert ask(web, "/cut-once")[1].endswith(b"</p>")
    with pytest.raises(ConnectionError):
        ask(web, "/reset")
    with pytest.raises(http.client.BadStatusLine):
        ask(web, "/garbage")


@pytest.mark.parametrize(
    ("path", "length"), [("/big", str(BIG_BYTES)), ("/big-chunked", None), ("/big-close", None)]
)
def test_big_bodies(web: StandIn, path: str, length: str | None) -> None:
    connection = http.client.HTTPConnection(web.host, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    assert answer.headers.get("Content-Length") == length
    seen = 0
    while seen < 32 << 20:
        seen += len(answer.read(1 << 20))
    connection.close()


def test_bomb() -> None:
    packed = b"".join(bomb())
    assert len(packed) < 2 << 20
    unpacker, total = zlib.decompressobj(31), 0
    rest = packed
    while rest:
        total += len(unpacker.decompress(rest, 1 << 24))
        rest = unpacker.unconsumed_tail
    assert total == BOMB_BYTES and unpacker.eof


def test_compressed(web: StandIn) -> None:
    assert b"packed well" in gzip.decompress(ask(web, "/gzip")[1])
    for path in ("/gzip-corrupt", "/gzip-cut", "/gzip-not"):
        answer, body = ask(web, path)
        assert answer.headers["Content-Encoding"] == "gzip"
        with pytest.raises((OSError, EOFError, zlib.error)):
            gzip.decompress(body)


def test_charsets(web: StandIn) -> None:
    for name, (body, kind) in CHARSETS.items():
        answer, seen = ask(web, f"/charset/{name}")
        assert (answer.headers["Content-Type"], seen) == (kind, body)
    assert "Café Größe".encode("latin-1") in ask(web, "/charset/says-utf8")[1]


@pytest.mark.parametrize("name", sorted(ROBOTS))
def test_robots(name: str) -> None:
    with StandIn(robots=ROBOTS[name]) as server:
        if name == "silent":
            with pytest.raises(TimeoutError):
                ask(server, "/robots.txt", timeout=0.3)
        else:
            assert ask(server, "/robots.txt")[0].status in (200, 302, 403, 404, 410, 500)
        assert server.paths() == []
        assert len(server.paths(robots=True)) == 1


def test_hostile_bodies(web: StandIn) -> None:
    for name, (body, _) in hostile.BODIES.items():
        assert ask(web, f"/hostile/{name}")[1] == body
    assert hostile.deep().count(b"<div>") == hostile.NESTING
    line = ask(web, "/hostile/one-line")[1]
    assert len(line) > 5 << 20 and b"\n" not in line


def test_stops_while_answers_are_under_way() -> None:
    with StandIn() as server:
        open_socket = socket.create_connection(("127.0.0.1", server.port), timeout=5)
        open_socket.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        assert open_socket.recv(10)
        start = time.monotonic()
    assert time.monotonic() - start < 2
    open_socket.close()


def test_langchain_pages_say_what_the_truth_says(web: StandIn, where: Addresses) -> None:
    soup = BeautifulSoup(text(web, langchain.ROOT), "html.parser")
    links = {a.get("href"): a.get_text(strip=True) for a in soup.select("#content-area table a")}
    for entry in TRUTH["langchain_docs"]:
        if entry["docs_url"] is None:
            continue
        assert entry["docs_url"] in links, entry["name"]
        if entry["dead"] is None:
            path = entry["final_url"].split("#")[0]
            answer = [ask(web, path) for _ in range(3)][-1]
            assert answer[0].status == 200
            page = BeautifulSoup(answer[1], "html.parser").select_one("#content-area").get_text("")
            for part in (entry["description"], *entry["classes"]):
                assert part is None or part in page, (entry["name"], part)
    assert ask(web, f"{langchain.ROOT}/tidepool_search")[0].status == 404
    assert "Page not found" in text(web, f"{langchain.ROOT}/lanternfish_search")
    assert "# Tool integrations" in text(web, f"{langchain.ROOT}.md")
    assert where.langchain_docs.endswith(langchain.ROOT)
    assert "tools/quillseek_search.md" in text(web, "/llms.txt")
    assert "Quillseek" in str(soup.find_all("script")), "the page's source comes again in a script"


def test_crewai_pages_say_what_the_truth_says(web: StandIn, where: Addresses) -> None:
    for entry in TRUTH["crewai_docs"]:
        category = BeautifulSoup(text(web, f"/en/tools/{entry['category']}/overview"), "html.parser")
        assert entry["docs_url"] in {a.get("href") for a in category.select("a")} or entry["dead"]
        if entry["dead"] is None:
            page = (
                BeautifulSoup(text(web, entry["docs_url"]), "html.parser")
                .select_one("#content-area")
                .get_text("")
            )
            for part in (entry["class"], entry["name"], entry["description"], entry["lead"]):
                assert part in page, (entry["name"], part)
    assert ask(web, "/en/tools/search-research/wrenvideotool")[0].status == 404
    assert ask(web, "/v1.14.0/en/tools/overview")[0].status == 200
    web_cards = BeautifulSoup(text(web, "/en/tools/web-scraping/overview"), "html.parser")
    assert len(web_cards.select("div.card[role=link]")) == 2
    specs = json.loads(text(web, where.crewai_specs.removeprefix(web.url(""))))["tools"]
    assert len(specs) == len(TRUTH["crewai_specs"]) + SPECS_LEFT_OUT == len(crewai.SPECS["tools"])  # type: ignore[arg-type]


def test_n8n_pages(web: StandIn, where: Addresses) -> None:
    seen: list[str] = []
    for page in (1, 2, 3, 4):
        path = f"/api/community-nodes?{quote('pagination[page]')}={page}&{quote('pagination[pageSize]')}=25"
        answer = json.loads(text(web, path))
        assert answer["meta"]["pagination"]["pageCount"] == 3
        seen += [(d["attributes"] or {}).get("packageName") for d in answer["data"]]
        assert (page < 4) == bool(answer["data"])
    assert answer["meta"]["pagination"]["total"] > len(n8n.entries())
    assert seen.count(N8N_TWICE) == 2
    assert set(seen) == {e["package"] for e in TRUTH["n8n_verified"]} | {None}
    assert where.n8n_verified == web.url("/api/community-nodes")


def test_npm_search(web: StandIn, where: Addresses) -> None:
    def find(start: int, size: int, root: str = "/npm") -> list[object]:
        answer = json.loads(
            text(web, f"{root}/-/v1/search?text=keywords:{npm.KEYWORD}&size={size}&from={start}")
        )
        assert answer["total"] == len(npm.GOOD) + len(npm.ODD)
        return [o["package"]["name"] for o in answer["objects"]]

    names = [n for start in (0, 20, 40) for n in find(start, 20)]
    assert names == find(0, 250) and find(60, 20) == []
    assert set(NPM_GOOD) <= set(names)
    assert find(40, 20, "/npm-loop") == find(0, 20)
    assert json.loads(text(web, "/npm/-/v1/search?text=other"))["objects"] == []
    assert where.npm_registry == web.url("/npm/")
