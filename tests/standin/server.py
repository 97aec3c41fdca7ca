"""The stand-in server: scripted routes on 127.0.0.1, standard library only.

    with StandIn() as web:
        web.url("/ok")                      # http://127.0.0.1:PORT/ok
        web.add("/page", Reply(b"<p>hi</p>"))
        web.requests                        # what was asked, in order

What the built-in routes do is listed in ``behaviours.py``.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qsl, urlsplit

HTML = "text/html; charset=utf-8"
JSON = "application/json; charset=utf-8"
MODIFIED = formatdate(1_760_000_000, usegmt=True)
"""Last-Modified of every page that has one."""


class Request(NamedTuple):
    """One request as it came in. ``path`` holds the query too; header names are lower case."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass(frozen=True)
class Reply:
    """An answer.

    Args:
        body: bytes, or an iterable of pieces that are sent as they come.
        length: value of Content-Length; none = that of ``body``, or no such header for an iterable.
        chunked: send an iterable in chunks; else the end of the connection ends the body.
        etag: answer conditional requests, with an ETag of the body's hash.
        modified: answer conditional requests, with a Last-Modified.
        cut: end the connection after this many bytes of the body.
    """

    body: bytes | Iterable[bytes] = b""
    status: int = 200
    content_type: str | None = HTML
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = None
    chunked: bool = False
    etag: bool = False
    modified: bool = False
    cut: int | None = None


class Silence(NamedTuple):
    """No answer at all until the server stops or ``seconds`` have passed."""

    seconds: float = 300.0


class Raw(NamedTuple):
    """Bytes put on the wire as they are, then the connection ends."""

    wire: bytes


Answer = Reply | Silence | Raw
Route = Answer | Callable[["StandIn", Request], Answer]


def redirect(location: str | None, status: int = 302) -> Reply:
    """A redirect; none = one without a Location."""
    return Reply(b"", status=status, headers={} if location is None else {"Location": location})


def text_page(body: str) -> Reply:
    """An HTML page that answers conditional requests."""
    return Reply(body.encode(), etag=True, modified=True)


class StandIn:
    """A threaded server on a free port of 127.0.0.1.

    Args:
        robots: robots.txt, as text, or as an answer of its own (see ``ROBOTS`` in ``behaviours.py``).
        builtin: whether the routes of ``behaviours.py`` are there.
    """

    def __init__(self, *, robots: str | Route = "User-agent: *\nAllow: /\n", builtin: bool = True) -> None:
        self.requests: list[Request] = []
        self.routes: dict[str, Route] = {}
        self.prefixes: dict[str, Route] = {}
        self.stop = threading.Event()
        self.counts: dict[str, int] = {}
        self._lock = threading.Lock()
        self._other: StandIn | None = None
        if builtin:
            from tests.standin.behaviours import install

            install(self)
        self.set_robots(robots)
        self._server = _Server(("127.0.0.1", 0), self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving; answers under way end."""
        self.stop.set()
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()
        if self._other is not None:
            self._other.close()

    @property
    def port(self) -> int:
        """The port."""
        return int(self._server.server_address[1])

    @property
    def host(self) -> str:
        """``127.0.0.1:PORT``."""
        return f"127.0.0.1:{self.port}"

    def url(self, path: str = "/") -> str:
        """Address of a path."""
        return f"http://{self.host}{path}"

    @property
    def other(self) -> StandIn:
        """A second server that redirects point at; a careful client never asks it for anything."""
        if self._other is None:
            self._other = StandIn(builtin=False).__enter__()
            self._other.prefixes["/"] = Reply(b"<p>the other host</p>")
        return self._other

    def add(self, path: str, route: Route) -> None:
        """Answer ``path`` (without a query); a path that ends in ``*`` answers all that begin so."""
        if path.endswith("*"):
            self.prefixes[path[:-1]] = route
        else:
            self.routes[path] = route

    def set_robots(self, robots: str | Route) -> None:
        """Replace robots.txt."""
        plain = "text/plain; charset=utf-8"
        self.routes["/robots.txt"] = (
            Reply(robots.encode(), content_type=plain) if isinstance(robots, str) else robots
        )

    def paths(self, *, robots: bool = False) -> list[str]:
        """Paths asked for, in order; robots.txt only on request."""
        return [r.path for r in list(self.requests) if robots or r.path != "/robots.txt"]

    def count(self, key: str) -> int:
        """How often this was called with ``key`` before; used by scripted routes."""
        with self._lock:
            self.counts[key] = self.counts.get(key, -1) + 1
            return self.counts[key]

    def answer(self, request: Request) -> Answer:
        """The answer to a request."""
        with self._lock:
            self.requests.append(request)
        path = urlsplit(request.path).path
        route = self.routes.get(path)
        if route is None:
            best = max((p for p in self.prefixes if path.startswith(p)), key=len, default=None)
            route = self.prefixes[best] if best is not None else None
        if route is None:
            return Reply(b"<!doctype html><title>404</title><h1>Not here</h1>", status=404)
        return route if isinstance(route, Reply | Silence | Raw) else route(self, request)


def query(request: Request) -> dict[str, str]:
    """Query parameters; of a repeated name, the last."""
    return dict(parse_qsl(urlsplit(request.path).query, keep_blank_values=True))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], stand_in: StandIn) -> None:
        super().__init__(address, _Handler)
        self.stand_in = stand_in

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    server: _Server

    def do_GET(self) -> None:
        stand_in = self.server.stand_in
        headers = {k.lower(): v for k, v in self.headers.items()}
        answer = stand_in.answer(Request(self.command, self.path, headers))
        try:
            if isinstance(answer, Silence):
                stand_in.stop.wait(answer.seconds)
                self.close_connection = True
            elif isinstance(answer, Raw):
                self.wfile.write(answer.wire)
                self.close_connection = True
            else:
                self._reply(answer, headers)
            self.wfile.flush()
        except (BrokenPipeError, ConnectionError, TimeoutError):
            self.close_connection = True

    def do_HEAD(self) -> None:
        self.do_GET()

    def _reply(self, reply: Reply, asked: Mapping[str, str]) -> None:
        whole = reply.body if isinstance(reply.body, bytes) else None
        kept = dict(reply.headers)
        if reply.etag and whole is not None:
            kept["ETag"] = f'"{hashlib.sha256(whole).hexdigest()[:16]}"'
        if reply.modified:
            kept["Last-Modified"] = MODIFIED
        if reply.status == 200 and self._unchanged(kept, asked):
            self.send_response(304)
            for name in ("ETag", "Last-Modified"):
                if name in kept:
                    self.send_header(name, kept[name])
            self.end_headers()
            return
        self.send_response(reply.status)
        if reply.content_type is not None:
            self.send_header("Content-Type", reply.content_type)
        for name, value in kept.items():
            self.send_header(name, value)
        length = reply.length if reply.length is not None else (len(whole) if whole is not None else None)
        if length is not None:
            self.send_header("Content-Length", str(length))
        elif reply.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if self.command == "HEAD":
            return
        if whole is None:
            self.wfile.flush()
        self._body(reply, whole)

    @staticmethod
    def _unchanged(kept: Mapping[str, str], asked: Mapping[str, str]) -> bool:
        if "if-none-match" in asked:
            return "ETag" in kept and kept["ETag"] in asked["if-none-match"]
        return "Last-Modified" in kept and asked.get("if-modified-since") == kept["Last-Modified"]

    def _body(self, reply: Reply, whole: bytes | None) -> None:
        pieces: Iterator[bytes] = iter([whole] if whole is not None else reply.body)
        sent = 0
        for piece in pieces:
            if reply.cut is not None and sent + len(piece) > reply.cut:
                rest = piece[: reply.cut - sent]
                if reply.chunked:
                    # The chunk's size is announced in full, so a careful client sees the cut.
                    self.wfile.write(f"{len(piece):x}\r\n".encode() + rest)
                else:
                    self.wfile.write(rest)
                self.wfile.flush()
                self.close_connection = True
                return
            if reply.chunked and whole is None:
                if piece:
                    self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            else:
                self.wfile.write(piece)
            sent += len(piece)
            if whole is None:
                self.wfile.flush()
            if self.server.stand_in.stop.is_set():
                self.close_connection = True
                return
        if reply.chunked and whole is None:
            self.wfile.write(b"0\r\n\r\n")
        elif reply.length is not None and reply.length != sent:
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""
