"""The calls of the Hub that ``datasets`` makes to read a data set, over loopback."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from ecoagent.runs import sha256_text

_API = re.compile(r"/api/datasets/(?P<repo>[^/]+/[^/]+)(?:/(?P<what>[\w-]+)(?:/(?P<rest>.*))?)?")
_FILE = re.compile(r"/datasets/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)")


class DataHub:
    """Repositories of data sets, by name, each with one commit.

    Attributes:
        busy: an HTTP status that is answered instead; none = what is asked for is.
        busy_answers: how many answers have it; none = all.
        asked: method and path of each request.
    """

    def __init__(self, repositories: Mapping[str, Mapping[str, bytes]]) -> None:
        self.repositories = repositories
        self.busy: int | None = None
        self.busy_answers: int | None = None
        self.asked: list[str] = []

    def revision(self, repo: str) -> str:
        """Id of the commit: changes with the files."""
        files = self.repositories[repo]
        return sha256_text(repr(sorted((path, _sha(data)) for path, data in files.items())))[:40]

    def __call__(self, request: Request) -> Response:
        self.asked.append(f"{request.method} {request.path}")
        if self.busy is not None and self.busy_answers != 0:
            self.busy_answers = None if self.busy_answers is None else self.busy_answers - 1
            return Response("", self.busy)
        for form, answer in ((_FILE, self._file), (_API, self._listing)):
            if found := form.fullmatch(request.path):
                files = self.repositories.get(found["repo"])
                if files is None:
                    return _absent("RepoNotFound")
                return answer(request, found, files)
        return _absent("EntryNotFound")

    def _file(self, request: Request, found: re.Match[str], files: Mapping[str, bytes]) -> Response:
        if found["revision"] not in ("main", self.revision(found["repo"])):
            return _absent("RevisionNotFound")
        data = files.get(found["path"])
        if data is None:
            return _absent("EntryNotFound")
        headers = {"ETag": f'"{_sha(data)}"', "X-Repo-Commit": self.revision(found["repo"])}
        answer = Response(data, 200, headers, content_type="application/octet-stream")
        return answer.make_conditional(request, accept_ranges=True, complete_length=len(data))

    def _listing(self, request: Request, found: re.Match[str], files: Mapping[str, bytes]) -> Response:
        repo, what, rest = found["repo"], found["what"], found["rest"] or ""
        commit = self.revision(repo)
        if what in (None, "revision"):
            if what and rest not in ("main", commit):
                return _absent("RevisionNotFound")
            siblings = [{"rfilename": path} for path in sorted(files)]
            return _json({"id": repo, "sha": commit, "private": False, "tags": [], "siblings": siblings})
        if what == "tree":
            folder = rest.partition("/")[2].strip("/")
            deep = request.args.get("recursive", "").lower() in ("1", "true")
            rows = [row for row in _entries(files) if _below(row["path"], folder, deep)]
            return _json(rows) if rows or not folder else _absent("EntryNotFound")
        if what == "paths-info":
            wanted = request.form.getlist("paths") or (request.get_json(silent=True) or {}).get("paths", [])
            return _json([row for row in _entries(files) if row["path"] in wanted])
        return _absent("EntryNotFound")


def _entries(files: Mapping[str, bytes]) -> list[dict[str, Any]]:
    folders = {str(parent) for path in files for parent in Path(path).parents} - {"."}
    rows = [{"type": "directory", "path": p, "size": 0, "oid": sha256_text(p)[:40]} for p in folders]
    for path, data in files.items():
        row = {"type": "file", "path": path, "size": len(data), "oid": _sha(data)[:40]}
        if path.endswith(".parquet"):
            row["lfs"] = {"oid": _sha(data), "size": len(data), "pointerSize": 130}
        rows.append(row)
    return sorted(rows, key=lambda row: str(row["path"]))


def _below(path: str, folder: str, deep: bool) -> bool:
    inside = path.removeprefix(f"{folder}/") if folder else path
    return (not folder or inside != path) and (deep or "/" not in inside)


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _json(value: object) -> Response:
    return Response(json.dumps(value), 200, content_type="application/json")


def _absent(code: str) -> Response:
    return Response(json.dumps({"error": code}), 404, {"X-Error-Code": code}, content_type="application/json")


def hub_environment(endpoint: str, home: Path, **more: str) -> dict[str, str]:
    """Environment of a process whose Hub is at ``endpoint`` and whose caches are below ``home``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return kept | {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        **more,
    }


def serve(server: HTTPServer, hub: DataHub) -> str:
    """Let ``server`` answer for ``hub``; its address."""
    server.expect_request(re.compile("/.*")).respond_with_handler(hub)
    return server.url_for("").rstrip("/")
