"""The project's request set holds what its page promises, and request files are read with clear errors."""

from __future__ import annotations

import json
import re
from collections import Counter
from importlib import resources
from itertools import combinations
from pathlib import Path

import pytest

from ecoagent.labeling import load_requests, query_type_of
from ecoagent.labeling.prepare import unique_requests
from ecoagent.labeling.requests import Request
from ecoagent.runs import read_table
from ecoagent.schema import normalize_query, tokens
from ecoagent.settings import UserError

OWN = load_requests()
ID_FORMS = {
    "langchain": re.compile(r"langchain:langchain_community(\.\w+)+(#.+)?$"),
    "crewai": re.compile(r"crewai:\w+$"),
    "llamaindex": re.compile(r"llamaindex:[\w-]+:\w+\.\w+$"),
    "n8n": re.compile(r"n8n:[\w-]+\.\w+$"),
}
SMOKE = ("llama-index-tools-wikipedia", "llama-index-tools-yahoo-finance", "n8n-nodes-pirate-weather")


def test_own_set_is_large_and_mixed() -> None:
    types = Counter(r.query_type for r in OWN.requests)
    total = len(OWN.requests)
    assert total >= 320
    assert types["single"] / total > 0.5
    assert types["several"] / total > 0.2
    assert types["none"] / total > 0.12
    assert len({r.domain for r in OWN.requests}) >= 20
    assert 90 <= sum(r.fold == "calibration" for r in OWN.requests) <= 130
    for fold in ("calibration", "label"):
        assert {r.query_type for r in OWN.requests if r.fold == fold} == {"single", "several", "none"}


def test_own_set_has_no_two_alike() -> None:
    assert len({r.id for r in OWN.requests}) == len(OWN.requests)
    assert len({normalize_query(r.text) for r in OWN.requests}) == len(OWN.requests)
    words = {r.id: tokens(r.text) for r in OWN.requests}
    for a, b in combinations(sorted(words), 2):
        assert len(words[a] & words[b]) <= 0.7 * len(words[a] | words[b]), (a, b)
    assert unique_requests(OWN.requests)[1] == []


def test_own_set_rows_are_well_formed() -> None:
    text = resources.files("ecoagent.labeling").joinpath("data/requests.jsonl").read_text("utf-8")
    for line in text.splitlines():
        row = json.loads(line)
        assert row["gold"] == sorted(set(row["gold"]))
        assert row["query_type"] == query_type_of(row["gold"])
        assert 5 <= len(row["text"].split()) <= 90, row["id"]
        for tool in row["gold"]:
            assert ID_FORMS[tool.split(":", 1)[0]].match(tool), tool


def test_own_set_covers_the_catalogs_and_the_smoke_packages() -> None:
    golds = {g for r in OWN.requests for g in r.gold}
    per_catalog = Counter(g.split(":", 1)[0] for g in golds)
    assert len(golds) == 352
    assert per_catalog["langchain"] > 150
    assert per_catalog["crewai"] > 80
    assert per_catalog["llamaindex"] == 32
    assert per_catalog["n8n"] == 8
    smoke = [r for r in OWN.requests if any(p in g for g in r.gold for p in SMOKE) and r.fold == "label"]
    assert len(smoke) >= 10


def test_golds_are_tools_of_the_small_catalog_where_it_was_crawled() -> None:
    """Only beside a build of the local profile; elsewhere the form of the ids is all there is."""
    table = Path(__file__).parents[2] / "outputs/runs/local/core/tools.parquet"
    if not table.is_file():
        pytest.skip("no build of the local profile here")
    ids = set(read_table(table)["id"])
    assert {g for r in OWN.requests for g in r.gold} <= ids


def test_own_set_holds_no_secret_or_private_address() -> None:
    for request in OWN.requests:
        for address in re.findall(r"[\w.+-]+@[\w-]+\.[\w.]+", request.text):
            assert address.endswith(("example.com", "example.org")), request.id
        assert not re.search(r"(sk|ghp|xox[bp])[-_][A-Za-z0-9]{8,}", request.text), request.id


def test_file_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(
        '{"query_id": "a", "query": "find me a train", "gold": ["crewai:B", "crewai:A"], "extra": 1}'
        '\n\n{"text": "what now"}\n'
    )
    loaded = load_requests(path)
    assert loaded.name == "mine"
    assert loaded.noted
    assert [r.id for r in loaded.requests] == ["a", "row-000003"]
    assert loaded.requests[0].gold == ["crewai:A", "crewai:B"]
    assert loaded.requests[0].query_type == "single"
    assert loaded.requests[1].query_type == "unknown"
    assert loaded.digest != OWN.digest


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"id": "a", "text": "x y"}\nnot json\n', r"bad.jsonl row 2: not JSON"),
        ('{"id": "a", "text": "  ?! "}\n', r"bad.jsonl row 1: text: .*no words"),
        ('{"id": "a"}\n', r"bad.jsonl row 1: text"),
        ("[1]\n", r"bad.jsonl row 1: not an object"),
        (
            '{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}\n',
            r"bad\.jsonl row 2: id 'a' occurs twice, first in bad\.jsonl row 1",
        ),
        ('{"id": "a", "text": "x", "gold": "crewai:A"}\n', r"bad.jsonl row 1: gold"),
        ("\n", r"holds no request"),
    ],
)
def test_bad_files_name_row_and_fault(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match=said):
        load_requests(path)


def test_a_language_is_said_or_unknown(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(
        '{"text": "wo ist mein Paket"}\n{"text": "and mine", "language": "en"}\n'
        '{"text": "no more", "language": null}\n'
    )
    assert [r.language for r in load_requests(path).requests] == ["unknown", "en", "unknown"]
    assert {r.language for r in OWN.requests} == {"en"}


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.jsonl does not exist"):
        load_requests(tmp_path / "none.jsonl")


def test_toolbench_layout(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "instruction"
    folder.mkdir(parents=True)
    (folder / "G1_query.json").write_text(
        json.dumps(
            [
                {"query": "find a hotel in Riga", "query_id": 7, "relevant APIs": [["Hotels", "Search"]]},
                {"query": ["list the songs", "and their years"], "query_id": 8},
            ]
        )
    )
    (folder / "G3_query.json").write_text(json.dumps([{"query": "plan a party", "query_id": 7}]))
    for path in (tmp_path, tmp_path / "data", folder):
        loaded = load_requests(path)
        assert [(r.id, r.text, r.query_type) for r in loaded.requests] == [
            ("G1-7", "find a hotel in Riga", "G1"),
            ("G1-8", "list the songs", "G1"),
            ("G3-7", "plan a party", "G3"),
        ]
        assert not loaded.noted
    (folder / "G2_query.json").write_text('[{"query_id": 1}]')
    with pytest.raises(UserError, match=r"G2_query\.json element 0: no query text"):
        load_requests(tmp_path)
    with pytest.raises(UserError, match=r"no instruction/G\*_query\.json"):
        load_requests(_empty(tmp_path))


def _empty(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def test_equal_and_near_texts_are_one_query() -> None:
    a = Request(id="a", text="Find the opening hours of the museum in Lyon", gold=["crewai:A"])
    b = Request(
        id="b", text="find the opening hours of the  museum in Lyon!", gold=["crewai:B"], fold="calibration"
    )
    c = Request(id="c", text="Find the opening hours of the museum in Lyon today", gold=["crewai:C"])
    d = Request(id="d", text="Translate this letter")
    kept, rejects = unique_requests([d, c, b, a])
    # Of the near-duplicates the one with the smaller query id stays, whatever the order of arrival.
    assert len(kept) == 2
    assert sorted(r.reason for r in rejects) == ["equal_text", "near_duplicate"]
    assert kept == unique_requests([a, b, c, d])[0]
    merged, _ = unique_requests([a, b])
    only = next(iter(merged.values()))
    assert only.gold == ["crewai:A", "crewai:B"]
    assert only.fold == "calibration"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (r'{"id": "1", "text": "hi \ud800 there"}', "half a character"),
        ('{"id": "1", "text": "hi there", "gold": [["a"]]}', "gold"),
        ('{"id": "1", "text": ' + "[" * 100_000, "nested too deeply"),
        ('{"id": ' + "9" * 5000 + ', "text": "hi"}', "too many digits"),
        ('{"id": "1", "text": "' + "word " * 30_000 + '"}', "150,000 characters"),
    ],
)
def test_odd_rows_are_named(tmp_path: Path, row: str, said: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"id": "0", "text": "a fine \\ud83d\\ude00 row"}\n' + row + "\n")
    with pytest.raises(UserError, match=rf"mine\.jsonl row 2.*{said}"):
        load_requests(path)


def test_a_path_no_system_takes_does_not_exist() -> None:
    with pytest.raises(UserError, match="does not exist"):
        load_requests("x" * 5000)
