"""Request sets of others: golds of foreign tools stay behind, licences and ids stay theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ecoagent.labeling import hub, requests
from ecoagent.labeling.hub import HubSet, hub_set, read_hub
from ecoagent.labeling.requests import OWN_SET, load_requests
from ecoagent.settings import UserError, load_settings
from tests.unit.toolbench_release import write_instructions, write_retrieval

LABELS = json.dumps([{"id": "apigen_tool_272", "doc": {"name": "growth"}, "relevance": 1}])


def write_lines(path: Path, rows: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))
    return path


def write_set(folder: Path, name: str = "trips") -> Path:
    write_lines(folder / f"{name}_tools.jsonl", [{"tool_id": "t1"}])
    return write_lines(
        folder / f"{name}_queries.jsonl",
        [
            {"query_id": 2, "query": "a bed in Riga", "group": "easy", "gold": ["t1"], "sources": ["mine"]},
            {
                "query_id": "1",
                "query": "write to bo@firm.org with sk-abcdef1234567890",
                "gold": ["crewai:B", "crewai:A", "note: t1"],
                "sources": ["toolplanner_coarse"],
            },
        ],
    )


def test_set_with_its_tools_leaves_its_golds_behind(tmp_path: Path) -> None:
    path = write_set(tmp_path)
    loaded = load_requests(tmp_path)
    assert loaded == load_requests(path) == load_requests(str(path))
    assert loaded.name == "trips"
    # Ids of our catalogs are notes all the same.
    assert loaded.noted
    assert [(r.id, r.gold, r.query_type, r.domain) for r in loaded.requests] == [
        ("1", ["crewai:A", "crewai:B"], "unknown", ""),
        ("2", [], "easy", "easy"),
    ]
    # Texts stay as they are: looking for secrets is the audit's.
    assert loaded.requests[0].text == "write to bo@firm.org with sk-abcdef1234567890"
    assert {r.licence for r in loaded.requests} == {"unknown"}
    (tmp_path / "trips_tools.jsonl").unlink()
    alone = load_requests(tmp_path)
    assert alone.name == "trips_queries" and alone.noted
    assert alone.requests[1].gold == ["t1"]


def test_licence_of_each_text_of_the_toolbench_set(tmp_path: Path) -> None:
    loaded = load_requests(write_set(tmp_path, "toolbench"))
    assert [(r.id, r.licence) for r in loaded.requests] == [("1", "CC-BY-NC-SA-4.0"), ("2", "Apache-2.0")]


def test_several_sets_in_a_folder(tmp_path: Path) -> None:
    write_set(tmp_path)
    write_set(tmp_path, "other")
    with pytest.raises(UserError, match=r"several request sets: other_queries\.jsonl, trips_queries\.jsonl"):
        load_requests(tmp_path)


def test_bad_rows_of_a_set(tmp_path: Path) -> None:
    path = write_set(tmp_path)
    path.write_text('{"query_id": "a", "query": "x"}\n{"query_id": "a", "query": " ?"}\n')
    with pytest.raises(UserError, match=r"trips_queries\.jsonl row 2: text: .*no words"):
        load_requests(path)
    path.write_text('{"query_id": "a", "query": "x"}\n{"query_id": "a", "query": "y"}\n')
    with pytest.raises(
        UserError, match=r"trips_queries\.jsonl row 2: id 'a' occurs twice, first in .* row 1"
    ):
        load_requests(path)


def test_language_is_what_the_set_says(tmp_path: Path, library: FakeLibrary) -> None:
    rows = [{"query_id": "a", "query": "x"}, {"query_id": "b", "query": "y", "language": "de"}]
    write_lines(write_set(tmp_path), rows)
    assert [r.language for r in load_requests(tmp_path).requests] == ["unknown", "de"]
    folder = tmp_path / "beir"
    write_lines(folder / "corpus.jsonl", [{"_id": "d", "text": "t"}])
    write_lines(
        folder / "queries.jsonl", [{"_id": "a", "text": "x"}, {"_id": "b", "text": "y", "language": "de"}]
    )
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\na\td\t1\n")
    assert [r.language for r in load_requests(folder).requests] == ["unknown", "de"]
    library.sets = {"default": {"queries": [{"id": "a", "query": "x", "language": "de"}]}}
    assert [r.language for r in load_requests("hub:a/b").requests] == ["de"]
    library.sets = {"default": {"queries": [{"id": "a", "query": "x"}]}}
    assert [r.language for r in load_requests("hub:a/c").requests] == ["unknown"]


def test_beir_folder(tmp_path: Path) -> None:
    queries = write_lines(
        tmp_path / "queries.jsonl", [{"_id": "b", "text": "a bed"}, {"_id": "a", "text": "a train"}]
    )
    plain = load_requests(queries)
    assert [(r.id, r.text) for r in plain.requests] == [("a", "a train"), ("b", "a bed")]
    write_lines(tmp_path / "corpus.jsonl", [{"_id": "crewai:Bed"}, {"_id": "d"}])
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nb\tcrewai:Bed\t1\na\td\t1\n")
    loaded = load_requests(tmp_path)
    assert loaded == load_requests(queries)
    assert loaded.name == tmp_path.name
    assert [(r.id, r.gold, r.query_type) for r in loaded.requests] == [
        ("a", [], "unknown"),
        ("b", ["crewai:Bed"], "unknown"),
    ]


def test_toolbench_folders(tmp_path: Path) -> None:
    data = tmp_path / "data"
    group = write_retrieval(data)
    found = load_requests(tmp_path)
    assert found.name == "toolbench" and not found.noted
    assert [(r.id, r.text, r.query_type, r.licence) for r in found.requests] == [
        ("G1-qid-1", "Where to sleep in Turku", "G1", "Apache-2.0"),
        ("G1-qid-2", 'Songs of "Oslo",\nplease', "G1", "Apache-2.0"),
        ("G1-qid-5", "A hotel in Riga", "G1", "Apache-2.0"),
    ]
    assert load_requests(data / "retrieval") == load_requests(group) == found
    write_instructions(data)
    # The three hold the same queries; the instructions are the whole.
    whole = load_requests(tmp_path)
    assert [r.id for r in whole.requests] == ["G1-7", "G1-7#2", "G3-7"]
    assert all(not r.gold for r in whole.requests)
    test = load_requests(data / "test_instruction")
    assert [(r.id, r.query_type) for r in test.requests] == [("G1_category-7", "G1")]
    (data / "instruction" / "G1_query.json").unlink()
    (data / "instruction" / "G3_query.json").unlink()
    assert load_requests(data) == test


def test_a_set_is_read_once_and_again_when_its_files_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_set(tmp_path)
    first = load_requests(path)
    assert load_requests(path) is first
    write_lines(path, [{"query_id": "9", "query": "a longer request than before"}])
    assert [r.id for r in load_requests(path).requests] == ["9"]
    assert load_requests().name == OWN_SET


# --- the Hub ---------------------------------------------------------------------------------------------


@pytest.fixture
def hub_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that ``datasets`` reads as the Hub's data set ``acme/asks``, with its cache beside it."""
    import datasets

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(requests, "_READ", {})
    folder = tmp_path / "acme" / "asks"
    for config in ("apigen", "toolbench"):
        write_lines(
            folder / config / "queries.jsonl",
            [
                {
                    "id": f"{config}_query_1",
                    "query": "grow 500 bacteria",
                    "instruction": "i",
                    "labels": LABELS,
                },
                {"id": f"{config}_query_0", "query": "a bed in Riga", "instruction": "i", "labels": "[]"},
            ],
        )
    card = "---\nlicense: mit\nconfigs:\n"
    for config in ("apigen", "toolbench"):
        card += (
            f"- config_name: {config}\n  data_files:\n  - split: queries\n    path: {config}/queries.jsonl\n"
        )
    (folder / "README.md").write_text(card + "---\n")
    return folder


def test_hub_set_through_the_real_library(hub_folder: Path) -> None:
    settings = load_settings("local", env={}, overrides=['labeling.queries="hub:acme/asks/apigen"'])
    loaded = load_requests(settings.labeling.queries)
    assert loaded.name == "acme/asks/apigen" and not loaded.noted
    assert [(r.id, r.text, r.gold, r.domain, r.licence) for r in loaded.requests] == [
        ("apigen_query_0", "a bed in Riga", [], "apigen", "mit"),
        ("apigen_query_1", "grow 500 bacteria", [], "apigen", "mit"),
    ]
    with pytest.raises(UserError, match=r"acme/asks has several configs; it has 2: apigen, toolbench"):
        load_requests("hub:acme/asks")
    with pytest.raises(UserError, match=r"has no config 'other'; it has 2: apigen, toolbench"):
        load_requests("hub:acme/asks/other")
    with pytest.raises(UserError, match=r"has no split 'test'; it has 1: queries"):
        load_requests("hub:acme/asks/apigen/test")


def test_hub_set_of_one_parquet_file(hub_folder: Path) -> None:
    import polars as pl

    folder = hub_folder.parent / "flat"
    folder.mkdir()
    table = pl.DataFrame(
        {"question": ["where is my parcel", "who sings"], "labels": [0, 1], "licence": ["", "x"]}
    )
    table.write_parquet(folder / "train.parquet")
    loaded = load_requests("hub:acme/flat")
    assert loaded.name == "acme/flat"
    assert [(r.id, r.text, r.query_type, r.licence) for r in loaded.requests] == [
        ("row-000000", "where is my parcel", "unknown", "unknown"),
        ("row-000001", "who sings", "unknown", "x"),
    ]


class FakeTable:
    """A table as ``datasets`` gives it."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows
        self.column_names = list(rows[0])

    def select_columns(self, names: list[str]) -> list[dict[str, Any]]:
        return [{n: row[n] for n in names} for row in self.rows]


class FakeLibrary:
    """The three functions of ``datasets`` that are used, over rows in memory; notes how it was asked."""

    def __init__(self, sets: dict[str, dict[str, list[dict[str, Any]]]]) -> None:
        self.sets = sets
        self.asked: list[Any] = []

    def get_dataset_config_names(self, repo: str, **kw: Any) -> list[str]:
        self.asked.append(("configs", repo, kw))
        return list(self.sets)

    def get_dataset_split_names(self, repo: str, config: str, **kw: Any) -> list[str]:
        return list(self.sets[config])

    def load_dataset(self, repo: str, config: str, *, split: str, **kw: Any) -> FakeTable:
        self.asked.append((repo, config, split, kw))
        return FakeTable(self.sets[config][split])


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    fake = FakeLibrary({"default": {"queries": [{"id": "a", "query": "a bed"}]}})
    monkeypatch.setattr(hub, "_datasets", lambda: fake)
    monkeypatch.setattr(hub, "hub_licence", lambda repo: "unknown")
    monkeypatch.setattr(requests, "_READ", {})
    return fake


def test_toolret_has_35_configs(library: FakeLibrary) -> None:
    names = [f"part{n:02d}" for n in range(35)]
    library.sets = {
        n: {"queries": [{"id": "q", "query": "a", "instruction": "i", "labels": LABELS}]} for n in names
    }
    with pytest.raises(UserError, match=r"has 35: part00, .*, part34; remedy: write hub:mangopy"):
        load_requests("hub:mangopy/ToolRet-Queries")
    loaded = load_requests(Path("hub:mangopy/ToolRet-Queries/part07"))
    assert loaded.name == "mangopy/ToolRet-Queries/part07" and not loaded.noted
    assert library.asked[-1] == ("mangopy/ToolRet-Queries", "part07", "queries", {})
    asked = len(library.asked)
    assert load_requests("hub:mangopy/ToolRet-Queries/part07") is loaded
    assert len(library.asked) == asked


def test_split_that_is_meant(library: FakeLibrary) -> None:
    rows = library.sets["default"]["queries"]
    library.sets = {"other": {"train": rows}, "default": {"train": rows, "test": rows}}
    assert load_requests("hub:a/b").name == "a/b"
    assert library.asked[-1][1:3] == ("default", "test")
    load_requests("hub:a/b/other")
    assert library.asked[-1][1:3] == ("other", "train")
    load_requests("hub:a/b/default/train@v1.0")
    assert library.asked[-1] == ("a/b", "default", "train", {"revision": "v1.0"})
    library.sets = {"default": {"train": rows, "validation": rows}}
    with pytest.raises(UserError, match=r"several splits; it has 2: train, validation; .*CONFIG/SPLIT"):
        load_requests("hub:c/d")


def test_columns_and_golds(library: FakeLibrary) -> None:
    ours = [{"id": "crewai:A", "relevance": 1}, {"id": "crewai:B", "relevance": 0}, {"id": "x"}, 3]
    library.sets["default"]["queries"] = [
        {"qid": 7, "text": ["", "a bed"], "labels": json.dumps(ours)},
        {"qid": 7, "text": "a song", "labels": "not json"},
        {"qid": None, "text": "a train", "labels": ["crewai:C"]},
    ]
    loaded = load_requests("hub:a/b")
    assert loaded.noted
    assert [(r.id, r.text, r.gold) for r in loaded.requests] == [
        ("7", "a bed", ["crewai:A"]),
        ("7#2", "a song", []),
        ("row-000002", "a train", ["crewai:C"]),
    ]
    library.sets["default"]["queries"] = [{"id": "a", "prompt": "x", "body": "y"}]
    with pytest.raises(UserError, match=r"no column query, text, question; it has body, id, prompt"):
        load_requests("hub:c/d")
    library.sets["default"]["queries"] = [{"query": "x"}, {"query": None}]
    with pytest.raises(UserError, match=r"hub:e/f/default/queries row 1: query has no words"):
        load_requests("hub:e/f")


@pytest.mark.parametrize(
    ("error", "said", "remedy"),
    [
        (ConnectionError("no route"), "the Hub at .*: no route", "HF_ENDPOINT"),
        (ValueError("bad\nsecond"), "bad", "HF_TOKEN"),
        (RuntimeError(), "RuntimeError", "HF_TOKEN"),
    ],
)
def test_hub_out_of_reach(
    library: FakeLibrary, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str, remedy: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(library, "load_dataset", fail)
    with pytest.raises(UserError, match=rf"hub:a/b cannot be read \({said}\); remedy: .*{remedy}"):
        load_requests("hub:a/b")


def test_names_of_the_hub() -> None:
    assert hub_set("hub:a/b") == HubSet("a/b")
    assert hub_set("hub:a-1/b.c/d e/f@0ab") == HubSet("a-1/b.c", "d e", "f", "0ab")
    assert hub_set("hub:a/b/c@x").name == "a/b/c"
    for text in ("hub:a", "hub:", "hub:a/b/c/d/e", "hub:a//b", "hub:a/b@"):
        with pytest.raises(UserError, match="names no data set of the Hub"):
            hub_set(text)
    assert callable(read_hub)
