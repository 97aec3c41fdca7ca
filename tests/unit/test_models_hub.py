"""The Hub as a source of weights, against a stand-in of the calls its client makes."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import time
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from ecoagent.models import ModelSource, ModelStore, hub
from ecoagent.models.sources import HubSource, WeightFile
from ecoagent.settings import ModelSettings, UserError

EVERYTHING = re.compile("/.*")
REVISION = "0123456789" * 4
FILES = {"config.json": b'{"hidden": 4}', "model.safetensors": b"weights" * 1000, "notes.md": b"not wanted"}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def git_blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class HubStandIn:
    """Answers what ``hf_hub_download`` and ``snapshot_download`` ask of a model repository."""

    def __init__(self, files: dict[str, bytes], listed: dict[str, bytes] | None = None) -> None:
        self.files, self.listed = files, listed or files

    def __call__(self, request: Request) -> Response:
        path = request.path
        if path.startswith("/org/m/resolve/"):
            name = path.split("/", 5)[5]
            if name not in self.files:
                return Response("", 404, {"X-Error-Code": "EntryNotFound"})
            data = self.files[name]
            headers = {"ETag": f'"{sha(data)}"', "X-Repo-Commit": REVISION, "Content-Length": str(len(data))}
            return Response(data, 200, headers)
        if path.startswith("/api/models/org/m/tree"):
            rows = [self._entry(name, data, "path", "oid", "oid") for name, data in self.listed.items()]
            return self._json([{"type": "file", **row} for row in rows])
        if path.startswith("/api/models/org/m"):
            rows = [
                self._entry(name, data, "rfilename", "blobId", "sha256") for name, data in self.listed.items()
            ]
            return self._json({"id": "org/m", "sha": REVISION, "siblings": rows})
        return Response("", 404)

    @staticmethod
    def _entry(name: str, data: bytes, path_key: str, blob_key: str, sum_key: str) -> dict[str, object]:
        row: dict[str, object] = {path_key: name, blob_key: git_blob(data), "size": len(data)}
        if name.endswith(".safetensors"):
            row["lfs"] = {sum_key: sha(data), "size": len(data), "pointerSize": 130}
        return row

    @staticmethod
    def _json(value: object) -> Response:
        return Response(json.dumps(value), 200, content_type="application/json")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    hub.forget_hub_state()
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")


@pytest.fixture
def serve(httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> HTTPServer:
    monkeypatch.setenv("HF_ENDPOINT", httpserver.url_for("").rstrip("/"))
    return httpserver


def pinned(files: dict[str, bytes]) -> ModelSource:
    rows = tuple(WeightFile(path=p, size=len(d), sha256=sha(d)) for p, d in files.items())
    source = HubSource(repo="org/m", revision=REVISION)
    return ModelSource(name="m", role="test", licence="MIT", kind="folder", hub=source, files=rows)


def commit_only() -> ModelSource:
    source = HubSource(repo="org/m", revision=REVISION, patterns=("*.json", "*.safetensors"))
    return ModelSource(name="m", role="test", licence="MIT", kind="folder", hub=source)


def store_of(root: Path, model: ModelSource) -> ModelStore:
    return ModelStore(ModelSettings(dir=root, hub_timeout_s=2.0), {"m": model})


def wanted() -> dict[str, bytes]:
    return {name: FILES[name] for name in ("config.json", "model.safetensors")}


def contents(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_pinned_files_come_from_the_hub(tmp_path: Path, serve: HTTPServer) -> None:
    serve.expect_request(EVERYTHING).respond_with_handler(HubStandIn(FILES))
    store = store_of(tmp_path, pinned(wanted()))
    assert contents(store.path("m")) == wanted()
    assert store.status()[0].origin == "hub"


def test_changed_bytes_on_the_hub_are_refused(tmp_path: Path, serve: HTTPServer) -> None:
    changed = FILES | {"model.safetensors": b"changed" * 1000}
    serve.expect_request(EVERYTHING).respond_with_handler(HubStandIn(changed))
    with pytest.raises(UserError, match=r"hub: the Hub's model\.safetensors: .* has sha256"):
        store_of(tmp_path, pinned(wanted())).path("m")
    assert not (tmp_path / "m").exists()


def test_a_commit_is_held_to_the_sums_the_hub_lists(tmp_path: Path, serve: HTTPServer) -> None:
    serve.expect_request(EVERYTHING).respond_with_handler(HubStandIn(FILES))
    store = store_of(tmp_path, commit_only())
    assert contents(store.path("m")) == wanted()
    requests = len(serve.log)
    assert store.path("m").is_dir() and len(serve.log) == requests


def test_a_commit_whose_sums_do_not_hold_is_refused(tmp_path: Path, serve: HTTPServer) -> None:
    changed = FILES | {"config.json": b'{"hidden": 5}'}
    serve.expect_request(EVERYTHING).respond_with_handler(HubStandIn(changed, listed=FILES))
    with pytest.raises(UserError, match=r"config\.json does not have the sum"):
        store_of(tmp_path, commit_only()).path("m")


@pytest.mark.parametrize(
    ("status", "reason"), [(401, "accept its licence"), (404, "HTTP 404"), (503, "HTTP 503")]
)
def test_a_refusal_is_given_as_the_reason(
    tmp_path: Path, serve: HTTPServer, status: int, reason: str
) -> None:
    serve.expect_request(EVERYTHING).respond_with_data("", status)
    with pytest.raises(UserError, match=reason):
        store_of(tmp_path, commit_only()).path("m")


def test_a_hub_out_of_reach_is_given_up_at_once_and_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
        store, start = store_of(tmp_path, commit_only()), time.monotonic()
        with pytest.raises(UserError, match="out of reach"):
            store.path("m")
        with pytest.raises(UserError, match="not asked again in this process"):
            store.path("m")
        assert time.monotonic() - start < 10


def test_a_silent_hub_costs_no_more_than_the_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(UserError, match=r"did not answer|out of reach"):
            store_of(tmp_path, commit_only()).path("m")


def test_offline_by_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match="HF_HUB_OFFLINE is set"):
        store_of(tmp_path, commit_only()).path("m")
