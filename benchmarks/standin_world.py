"""A loopback host that serves the locked artifacts' own files, and crawlers that read it file by file.

Two views of the same bytes:
- a package index: ``/index/NAME`` (a small JSON) and ``/files/FILENAME`` (the archive);
- a git host: ``/tree/NAME/FOLDER`` (a listing of names) and ``/raw/NAME/PATH`` (one file).

What the crawlers re-implement, and how they are judged, stands at the head of ``crawl.py``.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote

import requests

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.standin.server import JSON, Answer, Reply, Request, StandIn

from ecoagent.crawlers.lock import LockEntry

NODE_FILE = re.compile(r"^dist/nodes/.+\.node(\.ee)?\.js$")
FIRST_TEXT = re.compile(r"""\bdescription:\s*(['"])((?:\\.|(?!\1).)*)\1""")
FIRST_NAME = re.compile(r"""\bdisplayName:\s*(['"])((?:\\.|(?!\1).)*)\1""")


def members(path: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Files of a wheel or npm archive, without npm's leading ``package/``."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return {n: wheel.read(n) for n in wheel.namelist() if not n.endswith("/") and wanted(n)}
    found: dict[str, bytes] = {}
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            name = member.name.removeprefix("package/")
            handle = archive.extractfile(member) if member.isfile() and wanted(name) else None
            if handle is not None:
                found[name] = handle.read()
    return found


class World(StandIn):
    """The host. ``published`` holds, per package, the files of its git view."""

    def __init__(self) -> None:
        super().__init__(builtin=False)
        self.published: dict[str, dict[str, bytes]] = {}
        self.add("/tree/*", self._tree)
        self.add("/raw/*", self._raw)

    def publish(self, entry: LockEntry, path: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
        """Serve an artifact in both views; the files of the git view come back."""
        about = {"name": entry.name, "version": entry.version, "file": entry.filename, "sha256": entry.sha256}
        self.add(f"/index/{entry.key}", Reply(json.dumps(about).encode(), content_type=JSON))
        self.add(
            f"/files/{quote(entry.filename)}",
            Reply(path.read_bytes(), content_type="application/octet-stream"),
        )
        self.published[entry.key] = members(path, wanted)
        return self.published[entry.key]

    def _find(self, request: Request, view: str) -> tuple[dict[str, bytes], str]:
        package, _, place = unquote(request.path.removeprefix(f"/{view}/")).partition("/")
        return self.published.get(package, {}), place

    def _tree(self, _: StandIn, request: Request) -> Answer:
        files, place = self._find(request, "tree")
        deep = place.endswith("**")
        folder = place.removesuffix("**").strip("/")
        inside = [n[len(folder) :].strip("/") for n in files if n.startswith(f"{folder}/")]
        names = inside if deep else sorted({n.split("/")[0] + ("/" if "/" in n else "") for n in inside})
        return Reply(json.dumps(sorted(names)).encode(), content_type=JSON)

    def _raw(self, _: StandIn, request: Request) -> Answer:
        files, place = self._find(request, "raw")
        body = files.get(place)
        if body is None:
            return Reply(b"404: Not Found", status=404, content_type="text/plain")
        return Reply(body, content_type="text/plain; charset=utf-8")


@dataclass
class Found:
    """One tool a crawler came back with; ``path`` says where from (a file, or a folder ending in ``/``)."""

    path: str
    text: str
    id: str | None = None


@dataclass
class Run:
    """Outcome of one crawler on one catalog."""

    requests: int = 0
    bytes: int = 0
    seconds: float = 0.0
    found: list[Found] = field(default_factory=list)


class Client:
    """A session that counts."""

    def __init__(self, world: World) -> None:
        self.world, self.session, self.run = world, requests.Session(), Run()
        self.session.trust_env = False
        self.start = time.perf_counter()

    def get(self, path: str) -> bytes | None:
        """The body, or none for a status other than 200."""
        answer = self.session.get(self.world.url(path), timeout=60)
        self.run.requests += 1
        self.run.bytes += len(answer.content)
        return answer.content if answer.status_code == 200 else None

    def listing(self, package: str, folder: str) -> list[str]:
        """Names in a folder; folders end in ``/``."""
        names: list[str] = json.loads(self.get(f"/tree/{package}/{quote(folder)}") or b"[]")
        return names

    def raw(self, package: str, path: str) -> str | None:
        """Text of a file."""
        body = self.get(f"/raw/{package}/{quote(path)}")
        return None if body is None else body.decode("utf-8", "replace")

    def done(self, found: Iterable[Found]) -> Run:
        """Stop the clock."""
        self.run.found = list(found)
        self.run.seconds = time.perf_counter() - self.start
        self.session.close()
        return self.run


def first_paragraph(readme: str) -> str:
    """First paragraph of a README that is not a heading."""
    body = "\n".join("" if line.startswith("#") else line for line in readme.splitlines())
    return next((p.strip() for p in re.split(r"\n\s*\n", body) if p.strip()), "")


def _unquoted(match: re.Match[str] | None) -> str:
    return re.sub(r"\\(.)", r"\1", match[2]) if match else ""


def n8n_by_file(client: Client, package: str, *, collapse: bool) -> Run:
    """One request a ``*.node.js``; the first description in it; one tool per top folder, or per file."""
    found: dict[str, Found] = {}
    for name in client.listing(package, "dist/nodes/**"):
        path = f"dist/nodes/{name}"
        if not NODE_FILE.match(path):
            continue
        code = client.raw(package, path) or ""
        if not FIRST_NAME.search(code):
            continue
        text = _unquoted(FIRST_TEXT.search(code))
        key = f"dist/nodes/{name.split('/')[0]}/" if collapse else path
        if key not in found or not found[key].text:
            found[key] = Found(key, text)
    return client.done(found.values())


def crewai_by_file(client: Client, package: str) -> Run:
    """One README per tool folder."""
    root, found = "crewai_tools/tools", []
    for name in client.listing(package, root):
        if not name.endswith("/"):
            continue
        readme = client.raw(package, f"{root}/{name}README.md")
        if readme is not None:
            found.append(Found(f"{root}/{name}", first_paragraph(readme)))
    return client.done(found)


def langchain_by_file(client: Client, package: str) -> Run:
    """One request per entry of ``tools/``, ``__init__.py`` among them; the doc string's first paragraph."""
    root, found = "langchain_community/tools", []
    for name in client.listing(package, root):
        if not name.endswith(("/", ".py")):
            continue
        path = f"{root}/{name}__init__.py" if name.endswith("/") else f"{root}/{name}"
        code = client.raw(package, path)
        if code is not None:
            doc = ast.get_docstring(ast.parse(code)) or ""
            found.append(Found(f"{root}/{name}", first_paragraph(doc)))
    return client.done(found)


def llamaindex_by_file(client: Client, packages: Sequence[LockEntry]) -> Run:
    """One README per package; one tool per package."""
    found = []
    for entry in packages:
        path = f"{entry.name.replace('-', '_')}-{entry.version}.dist-info/METADATA"
        text = client.raw(entry.key, path)
        if text is not None:
            found.append(Found(f"{entry.name}:", first_paragraph(text.partition("\n\n")[2])))
    return client.done(found)
