"""What the stand-in does under which path.

| path | what comes |
|---|---|
| /ok, /etag, /dated | 200; conditional requests by both validators, by ETag, by Last-Modified |
| /plain | 200 without validators |
| /no-head | 405 to HEAD, 200 to GET |
| /loop, /loop-self | redirects in a circle |
| /chain/N | N redirects on this host, then 200 |
| /missing, /gone | 404, 410 |
| /soft-404, /soft-404-crewai | 200 with the docs site's own "not found" page |
| /login, /forbidden, /proxy-auth | 401, 403, 407 |
| /busy/S, /busy-date | 429 once with Retry-After (S seconds; a date 1 s ahead), then 200 |
| /busy-forever, /busy-long, /busy-odd | 429 always: 0 s; a day; a Retry-After that is no number |
| /flaky, /flaky/N | 500 twice (N times), then 200 |
| /down, /down-after | 503 always; with Retry-After: 0 |
| /slow, /slow/N | a byte every 0.1 s without end; N bytes |
| /silent | the request is read, nothing comes back |
| /cut, /cut-chunked, /cut-once | bodies that end early; the last is whole at the second try |
| /reset | the connection ends before any answer |
| /garbage | not HTTP |
| /big, /big-chunked, /big-close | 100 MB with a length, in chunks, ended by closing |
| /big-lie | a length of 100 MB and a small body |
| /charset/NAME | see ``CHARSETS``; every one reads "Café Größe" |
| /gzip, /gzip-bomb, /gzip-corrupt, /gzip-cut, /deflate | compressed bodies; the bomb is 1 GiB |
| /encoding-odd | Content-Encoding that nobody knows |
| /to/NAME | redirects a careful client refuses, see ``TARGETS``; /to/relative is fine |
| /hostile/NAME | see ``hostile.py``; also deep, deep-table and one-line |
| /headers-many, /header-long | more headers, and longer, than clients take |
"""

from __future__ import annotations

import gzip
import time
import zlib
from collections.abc import Iterator
from email.utils import formatdate
from functools import cache

from tests.standin import hostile
from tests.standin.mintlify import not_found
from tests.standin.server import HTML, Answer, Raw, Reply, Request, Silence, StandIn, redirect, text_page

BIG_BYTES = 100 * 1024 * 1024
BOMB_BYTES = 1024 * 1024 * 1024
_BLOCK = 16 * 1024 * 1024

ACCENTED = "Café Größe"
_ACCENTED_PAGE = f"<!doctype html><html><head>%s<title>t</title></head><body><p>{ACCENTED}</p></body></html>"


def _accented(meta: str, encoding: str) -> bytes:
    return (_ACCENTED_PAGE % meta).encode(encoding)


CHARSETS: dict[str, tuple[bytes, str | None]] = {
    "utf8": (_accented("", "utf-8"), "text/html; charset=utf-8"),
    "latin1": (_accented("", "latin-1"), "text/html; charset=ISO-8859-1"),
    "quoted": (_accented("", "latin-1"), 'text/html; charset="iso-8859-1"'),
    "meta": (_accented('<meta charset="iso-8859-1">', "latin-1"), "text/html"),
    "meta-http": (
        _accented('<meta http-equiv="Content-Type" content="text/html; charset=iso-8859-1">', "latin-1"),
        "text/html",
    ),
    "none": (_accented("", "utf-8"), "text/html"),
    "bogus": (_accented("", "utf-8"), "text/html; charset=x-no-such-charset"),
    "bogus-meta": (_accented('<meta charset="no-such">', "utf-8"), "text/html"),
    "bom": (b"\xef\xbb\xbf" + _accented("", "utf-8"), "text/html"),
    "utf16": (_accented("", "utf-16"), "text/html; charset=utf-16"),
}
WRONG_CHARSETS: dict[str, tuple[bytes, str]] = {
    "says-utf8": (_accented("", "latin-1"), "text/html; charset=utf-8"),
    "says-ascii": (_accented("", "latin-1"), "text/html; charset=us-ascii"),
}
"""The header is a lie: whatever is read, no error, and the rest of the page is intact."""

ROBOTS: dict[str, str | Answer] = {
    "allow": "User-agent: *\nAllow: /\n",
    "deny": "User-agent: *\nDisallow: /\n",
    "deny-us": "User-agent: ecoagent\nDisallow: /private/\nCrawl-delay: 0.2\n\nUser-agent: *\nDisallow:\n",
    "delay": "User-agent: *\nCrawl-delay: 0.2\nDisallow: /private/\n",
    "delay-day": "User-agent: *\nCrawl-delay: 86400\n",
    "wildcards": "User-agent: *\nDisallow: /*.md$\nDisallow: /a/*/b\nAllow: /a/ok/b\n",
    "missing": Reply(b"none", status=404),
    "gone": Reply(b"none", status=410),
    "forbidden": Reply(b"none", status=403),
    "error": Reply(b"oops", status=500),
    "html": Reply(b"<!doctype html><html><body>Disallow: /</body></html>"),
    "huge": Reply(
        b"User-agent: *\nDisallow: /private/\n" + b"Disallow: /filler/path\n" * 100_000,
        content_type="text/plain",
    ),
    "binary": Reply(bytes(range(256)) * 100, content_type="text/plain"),
    "bom": Reply(b"\xef\xbb\xbfUser-agent: *\nDisallow: /private/\n", content_type="text/plain"),
    "silent": Silence(),
    "redirect": redirect("http://10.0.0.1/robots.txt"),
}
"""Kinds of robots.txt for ``StandIn(robots=…)``. RFC 9309: missing = allowed, server error = denied."""

TARGETS: dict[str, str | None] = {
    "private": "http://10.0.0.1/page",
    "metadata": "http://169.254.169.254/latest/meta-data/",
    "link-local-6": "http://[fe80::1]/page",
    "loopback-6": "http://[::1]/page",
    "mapped": "http://[::ffff:127.0.0.1]/page",
    "decimal": "http://2130706433/page",
    "zero": "http://0.0.0.0/page",
    "other-host": "http://elsewhere.example/page",
    "file": "file:///etc/passwd",
    "ftp": "ftp://127.0.0.1/page",
    "data": "data:text/html,<p>x</p>",
    "javascript": "javascript:alert(1)",
    "garbage": "http://[::1",
    "none": None,
    "empty": "",
}
"""Where ``/to/NAME`` redirects; ``localhost`` and ``other-port`` point at ``StandIn.other`` besides."""


def install(web: StandIn) -> None:
    """Add every route of the table above."""
    web.add("/ok", text_page("<!doctype html><title>ok</title><h1>All is well</h1>"))
    web.add("/etag", Reply(b"<p>by hash</p>", etag=True))
    web.add("/dated", Reply(b"<p>by date</p>", modified=True))
    web.add("/plain", Reply(b"<p>plain</p>"))
    web.add("/no-head", lambda _, r: Reply(b"<p>x</p>", status=405 if r.method == "HEAD" else 200))
    web.add("/loop", redirect("/loop-b"))
    web.add("/loop-b", redirect("/loop", 301))
    web.add("/loop-self", redirect("/loop-self", 307))
    web.add("/chain/*", _chain)
    web.add("/missing", Reply(b"<h1>Not here</h1>", status=404))
    web.add("/gone", Reply(b"<h1>Gone</h1>", status=410))
    web.add("/soft-404", text_page(not_found("LangChain")))
    web.add("/soft-404-crewai", text_page(not_found("CrewAI")))
    web.add("/login", Reply(b"who?", status=401, headers={"WWW-Authenticate": 'Basic realm="docs"'}))
    web.add("/forbidden", Reply(b"no", status=403))
    web.add("/proxy-auth", Reply(b"no", status=407))
    web.add("/busy/*", _busy)
    web.add("/busy-date", _busy_date)
    web.add("/busy-forever", Reply(b"busy", status=429, headers={"Retry-After": "0"}))
    web.add("/busy-long", Reply(b"busy", status=429, headers={"Retry-After": "86400"}))
    web.add("/busy-odd", Reply(b"busy", status=429, headers={"Retry-After": "soon"}))
    web.add("/flaky*", _flaky)
    web.add("/down", Reply(b"down", status=503))
    web.add("/down-after", Reply(b"down", status=503, headers={"Retry-After": "0"}))
    web.add("/slow", lambda w, _: Reply(_trickle(w, None), chunked=True))
    web.add("/slow/*", lambda w, r: Reply(_trickle(w, _number(r)), chunked=True))
    web.add("/silent", Silence())
    web.add("/cut", Reply(b"<p>" + b"x" * 5000, length=9000))
    web.add("/cut-chunked", Reply([b"<p>" + b"x" * 500, b"y" * 500], chunked=True, cut=700))
    web.add("/cut-once", _cut_once)
    web.add("/reset", Raw(b""))
    web.add("/garbage", Raw(b"\x16\x03\x01 hello, this is not HTTP\n\n"))
    web.add("/big", lambda w, _: Reply(_zeros(w, BIG_BYTES), length=BIG_BYTES))
    web.add("/big-chunked", lambda w, _: Reply(_zeros(w, BIG_BYTES), chunked=True))
    web.add("/big-close", lambda w, _: Reply(_zeros(w, BIG_BYTES)))
    web.add("/big-lie", Reply(b"<p>small</p>", length=BIG_BYTES))
    for name, (body, kind) in {**CHARSETS, **WRONG_CHARSETS}.items():
        web.add(f"/charset/{name}", Reply(body, content_type=kind))
    _compressed(web)
    for name, target in TARGETS.items():
        web.add(f"/to/{name}", redirect(target))
    web.add("/to/localhost", lambda w, _: redirect(f"http://localhost:{w.other.port}/page"))
    web.add("/to/other-port", lambda w, _: redirect(w.other.url("/page")))
    web.add("/to/userinfo", lambda w, _: redirect(f"http://{w.host}@{w.other.host}/page"))
    web.add("/to/relative", redirect("../ok", 308))
    for name, (body, kind_or_none) in hostile.BODIES.items():
        web.add(f"/hostile/{name}", Reply(body, content_type=kind_or_none))
    web.add("/hostile/deep", lambda _w, _r: Reply(hostile.deep()))
    web.add("/hostile/deep-table", lambda _w, _r: Reply(hostile.deep("table><tr><td")))
    web.add("/hostile/one-line", lambda _w, _r: Reply(hostile.one_line()))
    web.add("/headers-many", Reply(b"x", headers={f"X-Filler-{i}": "y" for i in range(500)}))
    web.add("/header-long", Reply(b"x", headers={"X-Long": "y" * 200_000}))


def _number(request: Request) -> int:
    return int(request.path.rsplit("/", 1)[1])


def _chain(_: StandIn, request: Request) -> Answer:
    left = _number(request)
    return redirect(f"/chain/{left - 1}", 301) if left else text_page("<p>end of the chain</p>")


def _busy(web: StandIn, request: Request) -> Answer:
    if web.count(request.path) == 0:
        return Reply(b"busy", status=429, headers={"Retry-After": str(_number(request))})
    return text_page("<p>free again</p>")


def _busy_date(web: StandIn, request: Request) -> Answer:
    if web.count(request.path) == 0:
        when = formatdate(time.time() + 2, usegmt=True)
        return Reply(b"busy", status=429, headers={"Retry-After": when})
    return text_page("<p>free again</p>")


def _flaky(web: StandIn, request: Request) -> Answer:
    failures = _number(request) if request.path.count("/") > 1 else 2
    if web.count(request.path) < failures:
        return Reply(b"oops", status=500)
    return text_page("<p>up again</p>")


def _cut_once(web: StandIn, request: Request) -> Answer:
    body = b"<p>" + b"z" * 5000 + b"</p>"
    if web.count(request.path) == 0:
        return Reply(body, length=len(body), cut=1000)
    return Reply(body)


def _trickle(web: StandIn, count: int | None) -> Iterator[bytes]:
    sent = 0
    while count is None or sent < count:
        yield b"."
        sent += 1
        if web.stop.wait(0.1):
            return


def _zeros(web: StandIn, count: int) -> Iterator[bytes]:
    piece = b"<p>0</p>" * 8192
    for start in range(0, count, len(piece)):
        if web.stop.is_set():
            return
        yield piece[: count - start]


@cache
def _bomb_block() -> bytes:
    """16 MiB of zeros as a deflate block that can stand after any other."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(bytes(_BLOCK)) + packer.flush(zlib.Z_FULL_FLUSH)


@cache
def _bomb_sum() -> int:
    zeros, total = bytes(_BLOCK), 0
    for _ in range(BOMB_BYTES // _BLOCK):
        total = zlib.crc32(zeros, total)
    return total


def bomb() -> Iterator[bytes]:
    """A gzip stream of 1 MB that unpacks to 1 GiB."""
    yield b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"
    for _ in range(BOMB_BYTES // _BLOCK):
        yield _bomb_block()
    yield b"\x03\x00" + _bomb_sum().to_bytes(4, "little") + (BOMB_BYTES % 2**32).to_bytes(4, "little")


def _compressed(web: StandIn) -> None:
    page = b"<!doctype html><title>packed</title><p>packed well</p>" + b"<p>filler</p>" * 500
    packed = gzip.compress(page, mtime=0)
    coded = {"Content-Encoding": "gzip"}
    web.add("/gzip", Reply(packed, headers=coded, etag=True))
    web.add("/gzip-bomb", lambda _w, _r: Reply(bomb(), headers=coded, chunked=True))
    web.add("/gzip-corrupt", Reply(packed[:40] + b"\x00\xff" * 20 + packed[80:], headers=coded))
    web.add("/gzip-cut", Reply(packed[: len(packed) // 2], headers=coded))
    web.add("/gzip-not", Reply(page, headers=coded))
    web.add("/deflate", Reply(zlib.compress(page), headers={"Content-Encoding": "deflate"}))
    web.add("/encoding-odd", Reply(page, content_type=HTML, headers={"Content-Encoding": "x-nobody"}))
