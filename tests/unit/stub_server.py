"""A stub chat endpoint on the loopback, whose faults are scripted."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ecoagent.llm.stub import stub_text

Fault = Callable[[int, dict[str, Any]], tuple[int, str] | None]
"""From the number of a request, from 0, and its body to a status and a body; None = a proper answer."""


class StubServer:
    """What was asked, and where."""

    def __init__(self, fault: Fault | None = None) -> None:
        self.fault = fault
        self.seeds: list[int] = []
        self._lock = threading.Lock()
        self.url = ""

    def answer(self, body: dict[str, Any]) -> tuple[int, str]:
        with self._lock:
            number = len(self.seeds)
            self.seeds.append(body["seed"])
        wrong = self.fault(number, body) if self.fault else None
        if wrong is not None:
            return wrong
        text = stub_text(body["seed"], 6)
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 100, "completion_tokens": len(text) // 4}
        return 200, json.dumps({"choices": [choice], "usage": usage})


@contextmanager
def stub_server(fault: Fault | None = None) -> Iterator[StubServer]:
    """Serve on a free port until the block ends."""
    stub = StubServer(fault)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, text = stub.answer(body)
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            with suppress(BrokenPipeError, ConnectionResetError):  # a client that gave up, or was killed
                self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    stub.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
