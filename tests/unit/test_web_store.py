"""Stored responses: whole or absent, two writers at once."""

from __future__ import annotations

import json
import multiprocessing
import threading
from pathlib import Path

import pytest

from ecoagent.crawlers.web.store import ResponseStore
from ecoagent.settings import UserError

URL = "http://a.example/x?y=1"


def test_round_trip(tmp_path: Path) -> None:
    store = ResponseStore(tmp_path, now=lambda: 7200.0)
    assert store.load(URL) is None
    store.save(URL, 200, {"etag": '"1"'}, b"body")
    found = ResponseStore(tmp_path).load(URL)
    assert found is not None
    assert (found.status, found.headers, found.body, found.fetched_at) == (
        200,
        {"etag": '"1"'},
        b"body",
        7200.0,
    )
    assert store.load(URL, "robots") is None
    later = ResponseStore(tmp_path, now=lambda: 10800.0)
    assert later.age_h(found) == 1.0
    later.refresh(found, {"etag": '"2"'})
    again = later.load(URL)
    assert again is not None and again.headers == {"etag": '"2"'} and later.age_h(again) == 0.0
    assert ResponseStore(tmp_path, now=lambda: 0.0).age_h(again) == float("inf")


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"url": 1}', "null", "[" * 5000, "\x00"])
def test_damaged_entries_are_absent(tmp_path: Path, damage: str) -> None:
    store = ResponseStore(tmp_path)
    store.save(URL, 200, {}, b"body")
    meta = next(tmp_path.rglob("meta.json"))
    good = json.loads(meta.read_text())
    meta.write_text(damage)
    assert store.load(URL) is None
    for key in good:
        meta.write_text(json.dumps({k: v for k, v in good.items() if k != key}))
        assert store.load(URL) is None, key
        meta.write_text(json.dumps(good | {key: ["odd"]}))
        assert store.load(URL) is None, key
    store.save(URL, 200, {}, b"body")
    body = next(tmp_path.rglob("body"))
    body.write_bytes(b"bod")
    assert store.load(URL) is None
    body.unlink()
    assert store.load(URL) is None
    store.save(URL, 200, {}, b"new")
    found = store.load(URL)
    assert found is not None and found.body == b"new"


def _write(root: str, text: str) -> None:
    store = ResponseStore(Path(root))
    for n in range(25):
        store.save(URL, 200, {}, f"{text} {n}".encode())


def test_two_processes(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    other = context.Process(target=_write, args=(str(tmp_path), "a"))
    other.start()
    store = ResponseStore(tmp_path)
    while other.is_alive():
        store.save(URL, 200, {}, b"b 1")
        found = store.load(URL)
        assert found is None or found.body[:2] in (b"a ", b"b ")
    assert other.exitcode == 0
    store.save(URL, 200, {}, b"last")
    found = store.load(URL)
    assert found is not None and found.body == b"last"
    assert not list(tmp_path.rglob(".tmp-*"))


def test_threads(tmp_path: Path) -> None:
    threads = [threading.Thread(target=_write, args=(str(tmp_path), str(n))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not list(tmp_path.rglob(".tmp-*"))


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    store = ResponseStore(tmp_path / "file")
    assert store.load(URL) is None
    with pytest.raises(UserError, match=r"http\.store"):
        store.save(URL, 200, {}, b"")
