"""A release of ToolBench in small, in its own layout."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any


def document(
    tool: str, api: str, description: str = "", category: str = "Travel", **extra: Any
) -> dict[str, Any]:
    """One API as ToolBench describes it."""
    return {
        "category_name": category,
        "tool_name": tool,
        "api_name": api,
        "api_description": description,
        "required_parameters": [],
        "optional_parameters": [],
        "method": "GET",
    } | extra


HOTELS = document("Hotels.com 2", "Search", "Finds hotels\n in a city.")
PRICES = document("Hotels.com 2", "id", " ")
SONGS = document("2Songs", "Top/100 list", 'Lists "top" songs.', "Music")


def write_instructions(folder: Path) -> None:
    """``instruction/`` and ``test_instruction/``."""
    (folder / "instruction").mkdir(parents=True)
    (folder / "test_instruction").mkdir()
    g1 = [
        {
            "api_list": [HOTELS, PRICES],
            "query": "Find a hotel in Riga",
            "relevant APIs": [["Hotels.com 2", "Search"], ["Hotels.com 2", "id"]],
            "query_id": 7,
        },
        {
            "api_list": [HOTELS],
            "query": ["  ", "Which hotels are in Turku?", "And in Oslo?"],
            "relevant APIs": [["Hotels.com 2", "Search"]],
            "query_id": 7,
        },
    ]
    g3 = [
        {"api_list": [SONGS], "query": "Plan a party", "relevant APIs": [["Cakes", "Order"]], "query_id": 7}
    ]
    test = [{"api_list": [], "query": "Find a hotel in Riga", "query_id": "7"}]
    (folder / "instruction" / "G1_query.json").write_text(json.dumps(g1, indent=4))
    (folder / "instruction" / "G3_query.json").write_text(json.dumps(g3))
    (folder / "test_instruction" / "G1_category.json").write_text(json.dumps(test))


def write_retrieval(folder: Path) -> Path:
    """``retrieval/G1`` as ToolBench's own script writes it with pandas; documents and queries repeat."""
    group = folder / "retrieval" / "G1"
    group.mkdir(parents=True)
    corpus = [[1, HOTELS], [2, PRICES], [1, HOTELS], [3, HOTELS | {"method": "POST"}], [4, SONGS]]
    _write(group / "corpus.tsv", [["docid", "document_content"], *([i, json.dumps(d)] for i, d in corpus)])
    asked = [[2, 'Songs of "Oslo",\nplease'], [5, "A hotel in Riga"], [2, 'Songs of "Oslo",\nplease']]
    _write(group / "test.query.txt", asked)
    _write(group / "qrels.test.tsv", [[2, 0, 4, 1], [5, 0, 1, 1], [5, 0, 3, 1], [2, 0, 2, 0]])
    _write(group / "train.query.txt", [[1, "Where to sleep in Turku"]])
    _write(group / "qrels.train.tsv", [[1, 0, 1, 1]])
    return group


def _write(path: Path, rows: list[list[Any]]) -> None:
    with path.open("w", newline="") as handle:
        csv.writer(handle, delimiter="\t", lineterminator="\n").writerows(rows)
