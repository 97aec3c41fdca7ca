"""Test collections are read from what is there, and faults name file and row."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ecoagent.retrieval.collections import TestCollection, load_collection
from ecoagent.retrieval.rows import read_array, read_lines
from ecoagent.retrieval.toolbench import api_id, standard_name
from ecoagent.settings import UserError
from tests.unit.toolbench_release import SONGS, write_instructions, write_retrieval

BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data" / "queries"
REAL = Path(os.environ.get("ECOAGENT_TEST_QUERIES") or BESIDE)
"""Folder of the six real sets, which are not part of the repository."""
COUNTS = {
    "toolbench": (4948, 13448, 13533),
    "metatool": (21039, 199, 21550),
    "sealtools": (700, 4076, 1804),
    "toollinkos": (1560, 573, 1569),
    "restbench": (157, 94, 369),
    "toolalpaca": (209, 94, 243),
}


def write_lines(path: Path, rows: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))
    return path


def write_set(folder: Path, name: str = "trips", **changes: Any) -> None:
    query = {"query_id": "q2", "query": "A bed in\u2028Riga", "group": "easy", "gold": ["t2", "t1", "t2"]}
    write_lines(
        folder / f"{name}_queries.jsonl",
        [query | changes, {"query_id": "q1", "query": "Ärger mit dem Zug", "group": "hard", "gold": []}],
    )
    write_lines(
        folder / f"{name}_tools.jsonl",
        [
            {"tool_id": "t2", "name": "Beds", "description": "Finds beds.", "category": "travel", "field": 1},
            {"tool_id": "t1"},
        ],
    )


def write_beir(folder: Path) -> None:
    write_lines(
        folder / "corpus.jsonl",
        [
            {"_id": "d1", "title": "Beds", "text": 'Finds "beds.', "metadata": {"category": "travel"}},
            {"_id": "d2", "title": "", "text": "Trains."},
        ],
    )
    write_lines(folder / "queries.jsonl", [{"_id": i, "text": f"query {i}"} for i in ("b", "a", "c")])
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nb\td2\t1\na\td1\t2\na\td2\t0\n")
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nc\td1\t1\n")


@pytest.mark.skipif(not REAL.is_dir(), reason="NOT RUN: the real sets are not beside this checkout")
@pytest.mark.parametrize("name", sorted(COUNTS))
def test_real_sets_have_the_counts_they_are_known_for(name: str) -> None:
    loaded = load_collection(REAL, name)
    assert (len(loaded.queries), len(loaded.tools), sum(len(q.gold) for q in loaded.queries)) == COUNTS[name]
    assert loaded.licence != "unknown"


def test_set_of_two_files(tmp_path: Path) -> None:
    write_set(tmp_path)
    loaded = load_collection(tmp_path)
    assert (loaded.name, loaded.licence) == ("trips", "unknown")
    assert [(q.id, q.group, q.gold) for q in loaded.queries] == [
        ("q1", "hard", ()),
        ("q2", "easy", ("t1", "t2")),
    ]
    assert loaded.queries[1].text == "A bed in\u2028Riga"
    assert [(t.id, t.name, t.description, t.category) for t in loaded.tools] == [
        ("t1", "t1", "", ""),
        ("t2", "Beds", "Finds beds.", "travel"),
    ]
    assert load_collection(tmp_path / "trips_queries.jsonl") == loaded
    assert load_collection(tmp_path, "trips") == loaded
    assert not TestCollection.__test__


def test_of_several_sets_one_is_named(tmp_path: Path) -> None:
    write_set(tmp_path)
    write_set(tmp_path, "metatool")
    write_lines(tmp_path / "lonely_queries.jsonl", [])
    with pytest.raises(UserError, match=r"several collections; it has metatool, trips; remedy: name one"):
        load_collection(tmp_path)
    with pytest.raises(UserError, match=r"no collection 'other'; it has metatool, trips"):
        load_collection(tmp_path, "other")
    assert load_collection(tmp_path, "metatool").licence == "MIT"
    with pytest.raises(UserError, match=r"lonely_queries\.jsonl holds no test collection"):
        load_collection(tmp_path / "lonely_queries.jsonl")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gold": ["t9"]}, r"trips_queries\.jsonl row 1: gold 't9' is not among the tools"),
        ({"gold": "t1"}, r"trips_queries\.jsonl row 1: gold is not a list"),
        ({"query": "?!"}, r"trips_queries\.jsonl row 1: the query has no words"),
        ({"query": None}, r"trips_queries\.jsonl row 1: query is missing"),
        ({"query": ["a"]}, r"trips_queries\.jsonl row 1: query is not a text"),
        ({"query_id": "q1"}, r"trips_queries\.jsonl row 2: id 'q1' occurs twice"),
    ],
)
def test_bad_rows_of_a_set(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    write_set(tmp_path, **changes)
    with pytest.raises(UserError, match=said):
        load_collection(tmp_path)


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere does not exist"):
        load_collection(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"holds no test collection"):
        load_collection(tmp_path)
    write_set(tmp_path)
    tools = tmp_path / "trips_tools.jsonl"
    tools.write_bytes(b'{"tool_id": "t1"}\n{"tool_id": "\xff"}\n')
    with pytest.raises(UserError, match=r"trips_tools\.jsonl row 2: not UTF-8"):
        load_collection(tmp_path)
    tools.write_text('{"tool_id": "t1"}\n[1]\n')
    with pytest.raises(UserError, match=r"trips_tools\.jsonl row 2: not an object"):
        load_collection(tmp_path)
    tools.write_text('{"tool_id": "t1"}\n\n{"tool_id": "t1",\n')
    with pytest.raises(UserError, match=r"trips_tools\.jsonl row 3: not JSON"):
        load_collection(tmp_path)


def test_byte_order_mark_and_windows_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\r\n{"a": 2}\r\n')
    assert [(w, n, r) for w, n, r in read_lines(path)] == [
        ("a.jsonl row 1", 1, {"a": 1}),
        ("a.jsonl row 3", 3, {"a": 2}),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", r"a\.json is not a list"),
        ("", r"a\.json is not JSON"),
        ("[{}, {]", r"a\.json element 1: not JSON"),
        ("[{}, 3]", r"a\.json element 1: not an object"),
        ("[{} {}]", r"a\.json element 0: the file breaks off"),
        ('[{"a": 1}', r"a\.json element 0: the file breaks off"),
    ],
)
def test_bad_arrays(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(UserError, match=said):
        list(read_array(path))
    path.write_text(' [ {"a": 1} ,\n{"a": [2]}\t] ')
    assert [r for _, _, r in read_array(path)] == [{"a": 1}, {"a": [2]}]
    path.write_text("[]")
    assert list(read_array(path)) == []


def test_beir_folder(tmp_path: Path) -> None:
    folder = tmp_path / "trips"
    folder.mkdir()
    write_beir(folder)
    with pytest.raises(UserError, match=r"'x'; it has trips, trips-dev"):
        load_collection(folder, "x")
    loaded = load_collection(folder)
    assert loaded.name == "trips"
    # The test split is those queries that it judges; a score of 0 is no gold.
    assert [(q.id, q.text, q.gold) for q in loaded.queries] == [
        ("a", "query a", ("d1",)),
        ("b", "query b", ("d2",)),
    ]
    assert [(t.name, t.category) for t in loaded.tools] == [("Beds", "travel"), ("d2", "")]
    assert loaded.tools[0].description == 'Finds "beds.'
    assert [q.id for q in load_collection(folder, "trips-dev").queries] == ["c"]
    assert load_collection(tmp_path, "trips") == loaded


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("a\td9\t1", r"qrels/test\.tsv row 2: 'd9' is not in corpus\.jsonl"),
        ("z\td1\t1", r"qrels/test\.tsv: query 'z' is not in queries\.jsonl"),
        ("a\td1", r"test\.tsv row 2: 2 cells, not 3"),
        ("a\td1\tx", r"test\.tsv row 2: score 'x' is not a number"),
    ],
)
def test_bad_qrels(tmp_path: Path, row: str, said: str) -> None:
    write_beir(tmp_path)
    (tmp_path / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{row}\n")
    with pytest.raises(UserError, match=said):
        load_collection(tmp_path)


def test_beir_without_judgements(tmp_path: Path) -> None:
    write_lines(tmp_path / "corpus.jsonl", [{"_id": "d", "text": "x"}])
    write_lines(tmp_path / "queries.jsonl", [{"_id": "q", "text": "x"}])
    with pytest.raises(UserError, match=r"has no qrels"):
        load_collection(tmp_path)


def test_names_as_toolbench_writes_them() -> None:
    assert standard_name("A.I. Smartable") == "a_i_smartable"
    assert standard_name("__2Songs (new)!") == "get_2songs_new"
    assert standard_name("中文 API") == "中文_api"
    assert standard_name("***") == ""
    assert api_id("YH Finance_v2", "stock/get_statements") == "yh_finance_v2/stock_get_statements"
    assert api_id("id", "ID") == "id/is_id"


def test_toolbench_instructions(tmp_path: Path) -> None:
    write_instructions(tmp_path / "data")
    with pytest.raises(
        UserError, match=r"it has instruction/G1, instruction/G3, test_instruction/G1_category"
    ):
        load_collection(tmp_path)
    loaded = load_collection(tmp_path, "instruction/G1")
    assert (loaded.name, loaded.licence) == ("toolbench-instruction-G1", "Apache-2.0")
    assert [(q.id, q.text, q.group, q.gold) for q in loaded.queries] == [
        ("G1-7", "Find a hotel in Riga", "G1", ("hotels_com_2/is_id", "hotels_com_2/search")),
        ("G1-7#2", "Which hotels are in Turku?", "G1", ("hotels_com_2/search",)),
    ]
    # The tools are those of the whole release, and a right API without a document has its name.
    assert [t.id for t in loaded.tools] == [
        "get_2songs/top_100_list",
        "hotels_com_2/is_id",
        "hotels_com_2/search",
    ]
    assert loaded.tools[2].description == "Finds hotels in a city."
    assert loaded.tools[0].name == "2Songs: Top/100 list"
    g3 = load_collection(tmp_path / "data" / "instruction", "G3")
    assert [(t.id, t.description) for t in g3.tools if t.id == "cakes/order"] == [("cakes/order", "")]
    test = load_collection(tmp_path, "G1_category")
    assert [(q.id, q.group, q.gold) for q in test.queries] == [("G1_category-7", "G1", ())]


def test_toolbench_retrieval(tmp_path: Path) -> None:
    group = write_retrieval(tmp_path)
    loaded = load_collection(tmp_path)
    assert loaded.name == "toolbench-retrieval-G1"
    assert [(q.id, q.text, q.gold) for q in loaded.queries] == [
        ("G1-qid-2", 'Songs of "Oslo",\nplease', ("get_2songs/top_100_list",)),
        ("G1-qid-5", "A hotel in Riga", ("hotels_com_2/search",)),
    ]
    assert [t.id for t in loaded.tools] == [
        "get_2songs/top_100_list",
        "hotels_com_2/is_id",
        "hotels_com_2/search",
    ]
    assert loaded.tools[0].description == 'Lists "top" songs.'
    assert load_collection(group) == load_collection(tmp_path / "retrieval", "G1") == loaded
    train = load_collection(tmp_path, "G1-train")
    assert [(q.id, q.gold) for q in train.queries] == [("G1-qid-1", ("hotels_com_2/search",))]
    write_instructions(tmp_path)
    with pytest.raises(UserError, match=r"several collections; it has instruction/G1, .*retrieval/G1-train"):
        load_collection(tmp_path, "G1")


def test_toolbench_retrieval_with_queries_as_json(tmp_path: Path) -> None:
    group = write_retrieval(tmp_path)
    for name in ("test.query.txt", "qrels.test.tsv"):
        (group / name).unlink()
    rows = [
        {
            "query": "Play a song",
            "query_id": 3,
            "api_list": [SONGS],
            "relevant APIs": [["2Songs", "Top/100 list"]],
        }
    ]
    (group / "test.json").write_text(json.dumps(rows))
    only = load_collection(group).queries
    assert [(q.id, q.gold) for q in only] == [("G1-3", ("get_2songs/top_100_list",))]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("qrels.test.tsv", "9\t0\t1\t1\n", r"qrels\.test\.tsv row 1: query '9' is not in test\.query\.txt"),
        ("qrels.test.tsv", "2\t0\t9\t1\n", r"qrels\.test\.tsv row 1: document '9' is not in corpus\.tsv"),
        ("qrels.test.tsv", "2\t0\t1\tyes\n", r"qrels\.test\.tsv row 1: label 'yes' is not a number"),
        ("test.query.txt", "2\ta hotel\n2\ta song\n", r"test\.query\.txt row 2: query '2' has two texts"),
        ("test.query.txt", "2\n", r"test\.query\.txt row 1: 1 cells, not 2"),
        ("corpus.tsv", "docid\tdocument_content\n1\t{]\n", r"corpus\.tsv row 2: the document: not JSON"),
        ("corpus.tsv", "docid\tdocument_content\n1\t{}\n", r"corpus\.tsv row 2: an API without tool_name"),
    ],
)
def test_bad_retrieval_files(tmp_path: Path, name: str, content: str, said: str) -> None:
    group = write_retrieval(tmp_path)
    (group / name).write_text(content)
    with pytest.raises(UserError, match=said):
        load_collection(tmp_path)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"query": []}, r"G1_query\.json element 0: no query text"),
        ({"query": "x", "relevant APIs": ["a"]}, r"G1_query\.json element 0: 'a' is not \[tool, api\]"),
        ({"query": "x", "relevant APIs": {}}, r"G1_query\.json element 0: APIs are not a list"),
        (
            {"query": "x", "api_list": [{"api_name": "a"}]},
            r"G1_query\.json element 0: an API without tool_name",
        ),
    ],
)
def test_bad_instructions(tmp_path: Path, row: dict[str, Any], said: str) -> None:
    (tmp_path / "instruction").mkdir()
    (tmp_path / "instruction" / "G1_query.json").write_text(json.dumps([row]))
    with pytest.raises(UserError, match=said):
        load_collection(tmp_path)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (r'"\ud800"', "half a character"),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5000, "too many digits"),
    ],
)
def test_odd_values_are_named_in_every_layout(tmp_path: Path, value: str, said: str) -> None:
    write_beir(tmp_path / "b")
    (tmp_path / "b" / "queries.jsonl").write_text('{"_id": "q1", "text": ' + value + "}\n")
    with pytest.raises(UserError, match=rf"queries\.jsonl row 1.*{said}"):
        load_collection(tmp_path / "b")
    array = tmp_path / "a.json"
    array.write_text('[{"query": "a song"}, {"query": ' + value + "}]")
    with pytest.raises(UserError, match=rf"a\.json element 1.*{said}"):
        list(read_array(array))
    group = write_retrieval(tmp_path / "r")
    cell = '"' + ('{"tool_name": ' + value + "}").replace('"', '""') + '"'
    (group / "corpus.tsv").write_text("docid\tdocument_content\n1\t" + cell + "\n")
    with pytest.raises(UserError, match=rf"corpus\.tsv row 2.*{said}"):
        load_collection(group)


def test_a_query_of_a_whole_file_is_refused(tmp_path: Path) -> None:
    write_beir(tmp_path)
    (tmp_path / "queries.jsonl").write_text(json.dumps({"_id": "a", "text": "word " * 30_000}) + "\n")
    with pytest.raises(UserError, match=r"row 1: text has 150,000 characters"):
        load_collection(tmp_path)
    with pytest.raises(UserError, match="does not exist"):
        load_collection(Path("x" * 5000))
