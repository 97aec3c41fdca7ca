"""A real Chromium over its debugging pipe, with real key presses: no browser library is needed."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)
NAMED = {"ArrowLeft": 37, "ArrowRight": 39, "Escape": 27, "Enter": 13, "Tab": 9, " ": 32}


class Page:
    """One tab."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self._reader, self._writer = reader, writer
        self._session: str | None = None
        self._number = 0
        self._rest = b""
        self.events: list[dict[str, Any]] = []

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._writer.write(json.dumps(message).encode() + b"\0")
        self._writer.flush()
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            block = os.read(self._reader.fileno(), 1 << 16)
            assert block, "the browser ended"
            self._rest += block
        message, self._rest = self._rest.split(b"\0", 1)
        value: dict[str, Any] = json.loads(message)
        return value

    def open(self, address: str, downloads: Path) -> None:
        """Attach to a new tab, let it download, and load the page."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(downloads))
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.load(address)

    def load(self, address: str) -> None:
        """Load a page and wait until it is there."""
        self.send("Page.navigate", url=address)
        self.wait(f"document.readyState === 'complete' && location.href === {address!r}")

    def run(self, script: str) -> Any:
        """Value of a script."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 20.0) -> None:
        """Wait until a script says true."""
        end = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < end, condition
            time.sleep(0.05)

    def press(self, key: str, modifiers: int = 0) -> None:
        """Press and release one key."""
        code = NAMED.get(key) or ord(key.upper())
        facts: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        text = {"text": key} if len(key) == 1 and not modifiers else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", **facts, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", **facts)

    def type(self, text: str) -> None:
        """Type letters into what has the focus."""
        self.send("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click an element at its middle, as a mouse does."""
        box = self.run(
            f"(() => {{ const e = document.querySelector({selector!r});"
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A browser of its own profile, ended with the block."""
    assert PROGRAM is not None
    to_browser, from_us = os.pipe()
    to_us, from_browser = os.pipe()
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (to_browser, from_browser)]

    def place() -> None:
        os.dup2(high[0], 3)
        os.dup2(high[1], 4)

    command = [
        PROGRAM, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
        "--no-first-run", "--disable-dev-shm-usage", f"--user-data-dir={folder / 'profile'}", "about:blank",
    ]  # fmt: skip
    process = subprocess.Popen(
        command,
        preexec_fn=place,
        close_fds=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for fd in (*high, to_browser, from_browser):
        os.close(fd)
    try:
        with os.fdopen(to_us, "rb") as reader, os.fdopen(from_us, "wb") as writer:
            yield Page(reader, writer)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
