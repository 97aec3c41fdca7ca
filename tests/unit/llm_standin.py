"""Chat endpoints scripted by a function of the prompt, several at a time, that can go down and come back."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Script = Callable[[str], "tuple[int, str] | None"]
"""Prompt to HTTP status and body; None breaks the connection off."""


def completion(text: str | None, **more: Any) -> str:
    """Body of an answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {
        "prompt_tokens": 7,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 5},
    }
    return json.dumps({"choices": [choice], "usage": usage, **more})


def echo(prompt: str) -> tuple[int, str]:
    """Answers with the prompt in capitals."""
    return 200, completion(prompt.upper())


class ChatStandIn:
    """A server on a loopback port of its own.

    Attributes:
        asked: last message of each request, in the order of arrival.
        most: most requests in work at a time.
    """

    def __init__(self, script: Script = echo) -> None:
        self.script = script
        self.asked: list[str] = []
        self.most = self._now = 0
        self._lock = threading.Lock()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._server: ThreadingHTTPServer | None = None
        self._open: set[socket.socket] = set()
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        """Listen; also after ``stop``, at the same address."""
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                stand_in._open.add(self.connection)

            def do_GET(self) -> None:
                self._reply(200, '{"data": []}')

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = stand_in._answer(body["messages"][-1]["content"])
                if answer is None:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self._reply(*answer)

            def _reply(self, status: int, text: str) -> None:
                raw = text.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: Any) -> None:
                return

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, *_: Any) -> None:
                return

        self._server = Quiet(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Go down: stop listening and break off what is open."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            for connection in list(self._open):
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
            self._open.clear()

    def _answer(self, prompt: str) -> tuple[int, str] | None:
        with self._lock:
            self.asked.append(prompt)
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            return self.script(prompt)
        finally:
            with self._lock:
                self._now -= 1
