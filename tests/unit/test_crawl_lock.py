"""The lock file: what it holds, what is wrong with it, what is selected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ecoagent.crawlers import Pin, load_lock, pin_all, selected
from ecoagent.crawlers.artifacts import ArtifactStore
from ecoagent.crawlers.client import FetchError
from ecoagent.crawlers.lock import Lock, save_lock
from ecoagent.settings import CrawlSettings, UserError, load_settings

from .fixtures_crawl import METADATA, tarball, wheel


def test_shipped_lock_pins_every_artifact() -> None:
    lock = load_lock()
    assert len(lock.artifacts) == 16
    short = {a.name: a.sha256[:16] for a in lock.artifacts}
    assert short["langchain-community"] == "84dd8c5122532394"
    assert short["crewai-tools"] == "7bb131c416511196"
    assert short["n8n-nodes-base"] == "d63bed213ca3595a"
    assert short["@n8n/n8n-nodes-langchain"] == "2d259b615b614307"
    assert all(a.licence for a in lock.artifacts)
    assert all((a.integrity is not None) == (a.ecosystem == "npm") for a in lock.artifacts)
    assert "://" not in json.dumps([a.model_dump() for a in lock.artifacts])


def test_keys_are_folder_names() -> None:
    keys = {a.name: a.key for a in load_lock().artifacts}
    assert keys["langchain-community"] == "langchain__langchain-community"
    assert keys["@n8n/n8n-nodes-langchain"] == "n8n__n8n__n8n-nodes-langchain"


def write(path: Path, change: dict[str, object], drop: str | None = None) -> Path:
    lock = json.loads(json.dumps({"artifacts": [a.model_dump(mode="json") for a in load_lock().artifacts]}))
    lock["artifacts"][2].update(change)
    if drop:
        del lock["artifacts"][2][drop]
    path.write_text(json.dumps(lock))
    return path


@pytest.mark.parametrize(
    ("change", "drop", "expected"),
    [
        ({"sha256": "abc"}, None, "sha256"),
        ({"sha265": "0" * 64}, None, "sha265"),
        ({"size": 0}, None, "size"),
        ({}, "version", "version"),
        ({"source": "pypi"}, None, "source"),
        ({"ecosystem": "npm"}, None, "does not come from npm"),
        ({"version": "1.0; rm -rf"}, None, "version"),
        ({"name": "--index-url=x"}, None, "name"),
        ({"filename": "../x.whl"}, None, "filename"),
    ],
)
def test_errors_name_file_and_entry(
    tmp_path: Path, change: dict[str, object], drop: str | None, expected: str
) -> None:
    path = write(tmp_path / "my.lock.json", change, drop)
    with pytest.raises(UserError) as error:
        load_lock(path)
    assert "my.lock.json" in str(error.value)
    assert "entry 3" in str(error.value)
    assert expected in str(error.value)


def test_file_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load_lock(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(UserError, match="not JSON"):
        load_lock(tmp_path / "bad.json")
    twice = {"artifacts": [load_lock().artifacts[0].model_dump(mode="json")] * 2}
    (tmp_path / "twice.json").write_text(json.dumps(twice))
    with pytest.raises(UserError, match="listed twice"):
        load_lock(tmp_path / "twice.json")


def test_selection() -> None:
    lock = load_lock()
    assert len(selected(lock, CrawlSettings())) == 16
    assert len(selected(lock, CrawlSettings(n8n_official=False))) == 14
    local = load_settings("local", env={}).crawl
    assert {e.source for e in selected(lock, local)} == {"langchain", "crewai", "llamaindex", "n8n_community"}
    smoke = load_settings("smoke", env={}).crawl
    assert [e.name for e in selected(lock, smoke)] == [
        "llama-index-tools-wikipedia",
        "llama-index-tools-yahoo-finance",
        "n8n-nodes-pirate-weather",
    ]
    limited = selected(lock, CrawlSettings(), limit=1)
    assert [e.catalog for e in limited] == ["crewai", "langchain", "llamaindex", "n8n"]


def test_selection_errors() -> None:
    with pytest.raises(UserError, match="names left-pad"):
        selected(load_lock(), CrawlSettings(packages=("left-pad",)))
    with pytest.raises(UserError, match="no artifact"):
        selected(load_lock(), CrawlSettings(packages=("n8n-nodes-base",), n8n_official=False))


def test_digest_is_of_content_not_layout(tmp_path: Path) -> None:
    lock = load_lock()
    turned = Lock(artifacts=tuple(reversed(lock.artifacts)))
    assert turned.digest == lock.digest
    save_lock(tmp_path / "a.json", turned)
    assert load_lock(tmp_path / "a.json") == Lock(
        artifacts=tuple(sorted(lock.artifacts, key=lambda a: a.key))
    )


def test_update_lock_replaces_only_what_is_given(tmp_path: Path) -> None:
    built = {
        "demo": wheel(tmp_path / "demo-2-py3-none-any.whl", {"demo.dist-info/METADATA": METADATA.encode()}),
        "n8n-nodes-demo": tarball(tmp_path / "n8n-nodes-demo-2.tgz", {"package.json": b'{"license": "ISC"}'}),
    }

    def download(name: str, version: str, folder: Path, *, timeout_s: float) -> Path:
        if name not in built:
            raise FetchError(f"{name} is gone")
        target = folder / built[name].name
        target.write_bytes(built[name].read_bytes())
        return target

    store = ArtifactStore(tmp_path / "store", clients={"pip": download, "npm": download})
    path = tmp_path / "lock.json"
    pin_all(path, [Pin("langchain", "demo", "2")], store)
    lock = pin_all(path, [Pin("n8n_community", "n8n-nodes-demo", "2")], store).lock
    assert load_lock(path) == lock
    assert {a.name: a.licence for a in lock.artifacts} == {"demo": "MIT", "n8n-nodes-demo": "ISC"}
    assert store.missing(lock.artifacts) == []
    before = path.read_bytes()
    with pytest.raises(UserError, match="gone is gone"):
        pin_all(path, [Pin("crewai", "gone", "1")], store)
    assert path.read_bytes() == before
