"""The table of packages, and pinning many of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ecoagent.cli.app import app
from ecoagent.crawlers import Pin, load_lock, pin_all
from ecoagent.crawlers.artifacts import ArtifactStore
from ecoagent.crawlers.client import ClientMissingError, FetchError
from ecoagent.crawlers.table import HEADER, Package, added, chosen, load_table, save_table
from ecoagent.settings import UserError

from .fixtures_crawl import METADATA, tarball, wheel


def test_shipped_table_holds_what_is_locked_and_names_no_host() -> None:
    table = load_table()
    by_name = {p.package: p for p in table}
    locked = load_lock().artifacts
    assert {p.package for p in table if p.crawled} == {e.name for e in locked}
    for entry in locked:
        assert by_name[entry.name].version == entry.version
        assert by_name[entry.name].source == entry.source
    assert all(p.seen_in in ("docs", "monorepo", "here") for p in table)
    assert sum(p.source == "langchain" for p in table) > 60
    assert sum(p.source == "llamaindex" for p in table) > 60
    assert {"langchain-tavily", "langchain-google-community", "llama-index-tools-tavily-research"} <= set(
        by_name
    )
    assert load_table(Path("shipped")) == table


def test_a_table_keeps_its_rows_and_sorts_them(tmp_path: Path) -> None:
    rows = [
        Package("n8n_community", "@a/n8n-nodes-x", "1.0.0", "MIT", "npm", False),
        Package("crewai", "crewai-tools", "", "a, b", "here", True),
        Package("langchain", "Zed_Tools", "", "", "docs", False),
        Package("langchain", "alpha", "", "", "docs", False),
    ]
    path = save_table(tmp_path / "t.csv", rows)
    assert path.read_text().splitlines()[0] == ",".join(HEADER)
    assert [p.package for p in load_table(path)] == ["alpha", "Zed_Tools", "crewai-tools", "@a/n8n-nodes-x"]
    assert set(load_table(path)) == set(rows)
    assert added(
        rows, [Package("langchain", "zed.tools"), Package("langchain", "new"), Package("crewai", "new")]
    ) == [Package("langchain", "new")]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("pypi,demo,", "unknown source 'pypi'"),
        ("langchain,--index-url=x,", "no name of a package"),
        ("langchain,../demo,", "no name of a package"),
        ("langchain,@scope/demo,", "no name of a Python package"),
        ("langchain,demo,1.0; rm", "no version"),
        ("langchain,First_Demo,", "repeats First_Demo, which is in row 2"),
        ("langchain,a,1,MIT,docs,maybe", "'maybe' for crawled"),
        ("langchain,a,1,MIT,docs,no,more", "has 7 values"),
        (",demo,", "unknown source"),
    ],
)
def test_errors_name_file_and_row(tmp_path: Path, row: str, expected: str) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(",".join(HEADER) + f"\nlangchain,first-demo\n\n{row}\n")
    with pytest.raises(UserError) as error:
        load_table(path)
    assert "mine.csv row 4" in str(error.value)
    assert expected in str(error.value)
    assert error.value.remedy


def test_file_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load_table(tmp_path / "none.csv")
    for text in ("", "name,source\n", "source,package,colour\n"):
        (tmp_path / "bad.csv").write_text(text)
        with pytest.raises(UserError, match=r"bad\.csv row 1"):
            load_table(tmp_path / "bad.csv")


def test_choice() -> None:
    table = load_table()
    some = chosen(table, ["langchain", "n8n"], n8n_official=False, limit=2)
    assert [p.source for p in some] == ["langchain", "langchain", "n8n_community", "n8n_community"]
    assert len(chosen(table, ["n8n"], n8n_official=True)) == 8


class Index:
    """Stands for pip and npm: packages by name, and what was asked."""

    def __init__(self, root: Path) -> None:
        self.root, self.asked = root, list[str]()
        self.files = {
            "demo": wheel(
                root / "demo-2-py3-none-any.whl",
                {"demo.dist-info/METADATA": METADATA.replace("Summary", "Version: 2.0\nSummary").encode()},
            ),
            "n8n-nodes-demo": tarball(
                root / "n8n-nodes-demo-2.tgz", {"package.json": b'{"license": "ISC", "version": "3.1.0"}'}
            ),
            "bare": wheel(root / "bare-1-py3-none-any.whl", {"bare.dist-info/METADATA": b"Name: bare\n"}),
            "odd": tarball(root / "odd-2.tgz", {"package.json": b"not json"}),
        }

    def __call__(self, name: str, version: str, folder: Path, *, timeout_s: float) -> Path:
        self.asked.append(f"{name}=={version}")
        if name not in self.files:
            raise FetchError(f"{name} is gone")
        target = folder / self.files[name].name
        target.write_bytes(self.files[name].read_bytes())
        return target


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(tmp_path)


def store_of(tmp_path: Path, index: Index) -> ArtifactStore:
    return ArtifactStore(tmp_path / "store", clients={"pip": index, "npm": index})


PINS = [Pin("langchain", "demo", ""), Pin("crewai", "gone", "1"), Pin("n8n_community", "n8n-nodes-demo", "")]


def test_newest_dates_and_one_dead(tmp_path: Path, index: Index) -> None:
    def times(name: str) -> dict[str, str]:
        return {"created": "2024-01-02T03:04:05Z", "3.1.0": "2025-06-07T08:09:10Z"}

    said: list[str] = []
    path = tmp_path / "lock.json"
    done = pin_all(path, PINS, store_of(tmp_path, index), times=times, say=said.append)
    found = {e.name: e for e in load_lock(path).artifacts}
    assert {n: e.version for n, e in found.items()} == {"demo": "2.0", "n8n-nodes-demo": "3.1.0"}
    node = found["n8n-nodes-demo"]
    assert (node.published_at, node.created_at, node.licence) == ("2025-06-07", "2024-01-02", "ISC")
    assert found["demo"].published_at is None
    assert done.failed == {"gone==1": "gone is gone"}
    assert any("gone==1 left out" in line for line in said)


def test_what_is_there_is_not_fetched_again(tmp_path: Path, index: Index) -> None:
    path, store = tmp_path / "lock.json", store_of(tmp_path, index)
    pin_all(path, PINS, store)
    before = path.read_bytes()
    index.asked.clear()
    done = pin_all(path, PINS, store)
    assert (len(done.reused), len(done.fetched)) == (2, 0)
    assert index.asked == ["gone==1"]
    assert path.read_bytes() == before
    pin_all(path, PINS, store, force=True)
    assert len(index.asked) == 4
    for kept in (tmp_path / "store").glob("*/demo-2*"):
        kept.write_bytes(b"x" * kept.stat().st_size)
    index.asked.clear()
    assert [e.name for e in pin_all(path, PINS, store).fetched] == ["demo"]
    assert [e.name for e in pin_all(path, [Pin("langchain", "demo", "1.9")], store).fetched] == ["demo"]


def test_dates_may_be_unknown(tmp_path: Path, index: Index) -> None:
    def times(name: str) -> dict[str, str]:
        raise FetchError("the index does not tell")

    done = pin_all(tmp_path / "l.json", PINS[2:], store_of(tmp_path, index), times=times)
    assert done.fetched[0].published_at is None


def test_none_is_an_error_and_a_missing_client_too(tmp_path: Path, index: Index) -> None:
    store = store_of(tmp_path, index)
    with pytest.raises(UserError, match=r"none of 1 could be pinned.*gone"):
        pin_all(tmp_path / "l.json", PINS[1:2], store)
    for name, source in (("bare", "langchain"), ("odd", "n8n_community")):
        with pytest.raises(UserError, match=r"no version|package\.json"):
            pin_all(tmp_path / "l.json", [Pin(source, name, "")], store)  # type: ignore[arg-type]
    assert not (tmp_path / "l.json").exists()

    index.asked.clear()
    with pytest.raises(UserError, match="no name and version"):
        pin_all(tmp_path / "l.json", [Pin("langchain", "--index-url=x", "")], store)
    assert index.asked == []

    def missing(*args: object, **kwargs: object) -> Path:
        raise ClientMissingError("pip is needed")

    with pytest.raises(ClientMissingError):
        pin_all(tmp_path / "l.json", PINS, ArtifactStore(tmp_path / "s", clients={"pip": missing}))


# The command line.


@pytest.fixture
def command(tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("ecoagent.crawlers.artifacts.download_wheel", index)
    monkeypatch.setattr("ecoagent.crawlers.artifacts.download_tarball", index)
    monkeypatch.setattr("ecoagent.crawlers.npm_times.publication_times", lambda name: {})

    def run(*arguments: str) -> Any:
        sets = [f"crawl.artifact_dir={json.dumps(str(tmp_path / 'store'))}"]
        return CliRunner().invoke(app, ["crawl", *arguments, *(x for s in sets for x in ("--set", s))])

    return run


def test_pin_a_table(tmp_path: Path, index: Index, command: Any) -> None:
    table, lock = tmp_path / "t.csv", tmp_path / "my.lock.json"
    save_table(table, [Package(p.source, p.name, p.version) for p in PINS])
    arguments = ("--update-lock", "--table", str(table), "--lock", str(lock))
    dry = command(*arguments, "--dry-run", "--json")
    assert dry.exit_code == 0, dry.output
    planned = json.loads(dry.stdout)["update-lock"]
    assert (planned["packages"], planned["in_store"], planned["requests"]) == (3, 0, 0)
    assert planned["client_calls"] == 4  # npm is also asked for the dates
    assert planned["minutes"] > 0
    assert index.asked == []
    done = command(*arguments)
    assert done.exit_code == 0, done.output
    assert "1 left out: gone==1" in done.output.replace("\n", " ")
    assert {e.name for e in load_lock(lock).artifacts} == {"demo", "n8n-nodes-demo"}
    assert json.loads(command(*arguments, "--dry-run", "--json").stdout)["update-lock"]["in_store"] == 2
    index.asked.clear()
    again = command(*arguments, "--source", "langchain", "--json")
    assert json.loads(again.stdout)["reused"] == ["demo==2.0"]
    assert index.asked == []


def test_table_with_nothing_alive(tmp_path: Path, command: Any) -> None:
    save_table(tmp_path / "t.csv", [Package("crewai", "gone")])
    done = command("--update-lock", "--table", str(tmp_path / "t.csv"), "--lock", str(tmp_path / "l.json"))
    assert done.exit_code == 2
    assert "none of 1" in done.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--table", "shipped"), "does nothing by itself"),
        (("--update-lock",), "--lock FILE"),
        (("--update-lock", "--lock", "l.json", "--table", "none.csv"), "cannot be read"),
        (("--update-lock", "--lock", "l.json", "--pin", "demo"), "SOURCE:NAME==VERSION"),
        (("--backend", "ftp"), "backend"),
    ],
)
def test_wrong_use(
    tmp_path: Path, command: Any, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = command(*arguments)
    assert done.exit_code == 2, done.output
    assert expected in done.output.replace("\n", " ")


def test_shipped_table_is_limited_by_catalog(tmp_path: Path, command: Any) -> None:
    done = command(
        "--update-lock",
        "--table",
        "shipped",
        "--limit",
        "2",
        "--lock",
        str(tmp_path / "l"),
        "--dry-run",
        "--json",
    )
    assert json.loads(done.stdout)["update-lock"]["packages"] == 7


def test_rows_that_are_no_csv_and_columns_named_twice(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("source,package\nlangchain," + "a" * 200_000 + "\n")
    with pytest.raises(UserError, match="is no CSV"):
        load_table(path)
    path.write_text("source,package,package\n")
    with pytest.raises(UserError, match="twice"):
        load_table(path)
