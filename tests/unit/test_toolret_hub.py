"""ToolRet from the Hub, over HTTP: a process of its own, since the libraries read the Hub's address once."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pytest_httpserver import HTTPServer

from ecoagent.evaluation.benchmarks import UNKNOWN_GOLD
from ecoagent.metrics import TOOLRET_METRICS
from ecoagent.runs import read_json
from tests.unit.hub_standin import DataHub, hub_environment, serve

QUERIES, TOOLS = "acme/ToolRet-Queries", "acme/ToolRet-Tools"
COMMAND = """
import sys, time
time.sleep = lambda seconds: None  # the Hub's client waits between its tries
from ecoagent.cli.app import app
app(sys.argv[1:])
"""


def table(rows: list[dict[str, Any]]) -> bytes:
    found = io.BytesIO()
    pl.DataFrame(rows).write_parquet(found)
    return found.getvalue()


def repository(split: str, configs: dict[str, list[dict[str, Any]]]) -> dict[str, bytes]:
    card = ["---", "license: apache-2.0", "configs:"]
    for config in configs:
        card += [f"- config_name: {config}", "  data_files:", f"  - split: {split}"]
        card += [f"    path: {config}/{split}-*"]
    files = {f"{c}/{split}-00000-of-00001.parquet": table(rows) for c, rows in configs.items()}
    return {"README.md": "\n".join([*card, "---", ""]).encode(), **files}


def labels(**relevance: int) -> str:
    return json.dumps([{"id": i, "doc": {"name": i}, "relevance": r} for i, r in relevance.items()])


def query(identifier: str, text: str, right: str, instruction: str) -> dict[str, Any]:
    return {
        "id": identifier,
        "query": text,
        "instruction": instruction,
        "labels": right,
        "category": "web",
    }


def document(name: str, description: str) -> str:
    return json.dumps({"name": name, "description": description})


@pytest.fixture
def hub() -> DataHub:
    asks = {
        "apigen": [
            query(
                "apigen_1", "the usual, please", labels(web_2=1, web_1=0), "Retrieve tools that list songs"
            ),
            query("apigen_0", "book beds in a city", labels(web_1=1, gone=1), "Retrieve tools for trips"),
        ],
        "gta": [query("gta_0", "send money", labels(code_1=1), "")],
    }
    tools = {
        "code": [{"id": "code_1", "documentation": document("sendMoney", "transfers it")}],
        "customized": [{"id": "custom_1", "documentation": document("clock", "tells the time")}],
        "web": [
            {"id": "web_1", "documentation": document("hotel_search", "books a bed in a city")},
            {"id": "web_2", "documentation": document("SongList", "lists what is sung")},
        ],
    }
    return DataHub({QUERIES: repository("queries", asks), TOOLS: repository("tools", tools)})


def evaluate(
    where: str, endpoint: str, home: Path, *more: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    words = ["evaluate", "--benchmark", where, "--profile", "local", "--set", f"outputs={home / 'outputs'}"]
    words += ["--set", 'evaluate.rankers=["tfidf", "bm25"]', *more]
    home.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-c", COMMAND, *words],
        env=hub_environment(endpoint, home / "hub", **environment),
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def results(home: Path) -> Path:
    return home / "outputs" / "runs" / "local" / "out" / "results" / "benchmarks.json"


def test_toolret_is_downloaded_and_judged(httpserver: HTTPServer, hub: DataHub, tmp_path: Path) -> None:
    done = evaluate(f"hub:{QUERIES}", serve(httpserver, hub), tmp_path)
    assert done.returncode == 0, done.stderr
    got = {line.partition(" ")[2] for line in hub.asked if line.startswith("GET /datasets/")}
    for repo in (QUERIES, TOOLS):
        for path in hub.repositories[repo]:
            assert any(name.startswith(f"/datasets/{repo}/resolve/") and path in name for name in got), path
    content = read_json(results(tmp_path))
    facts = {f["set"]: f for f in content["sets"]}
    assert list(facts) == ["toolret-apigen", "toolret-gta"]
    apigen = facts["toolret-apigen"]
    assert (apigen["queries"], apigen["tools"], apigen["labelled_golds"]) == (2, 4, 3)
    assert apigen["left_out"] == {UNKNOWN_GOLD: 1} and facts["toolret-gta"]["left_out"] == {}
    assert apigen["licence"] == "apache-2.0" and apigen["origin"] == f"{QUERIES}, {TOOLS}"
    rows = {(r["set"], r["ranker"], r["asked"]): r for r in content["rows"]}
    # gta gives no instruction, so nothing is asked with one.
    assert [key[1:] for key in rows if key[0] == "toolret-gta"] == [("tfidf", "query"), ("bm25", "query")]
    for ranker in ("tfidf", "bm25"):
        alone = rows["toolret-apigen", ranker, "query"]["own_metrics"]
        told = rows["toolret-apigen", ranker, "instruction"]["own_metrics"]
        assert set(alone) == set(told) == set(TOOLRET_METRICS)
        # apigen_0 finds one gold of two, the other is no tool of the pool; apigen_1 needs its instruction.
        assert (alone["Recall@5"], told["Recall@5"]) == (0.25, 0.75)
        assert (alone["Comp@5"], told["Comp@5"]) == (0, 0.5)
        assert rows["toolret-gta", ranker, "query"]["own_metrics"]["Recall@5"] == 1
    means = {(a["ranker"], a["asked"]): a for a in content["averages"]}
    assert set(means) == {("tfidf", "query"), ("bm25", "query")}
    assert means["bm25", "query"]["own_metrics"]["Recall@5"] == pytest.approx((0.25 + 1) / 2)


def test_one_set_at_a_revision_and_again_from_the_cache(
    httpserver: HTTPServer, hub: DataHub, tmp_path: Path
) -> None:
    where = f"hub:{QUERIES}/gta@{hub.revision(QUERIES)}"
    endpoint = serve(httpserver, hub)
    assert evaluate(where, endpoint, tmp_path).returncode == 0
    first = results(tmp_path).read_bytes()
    assert not any("apigen/queries-" in line for line in hub.asked if line.startswith("GET /datasets/"))
    hub.asked.clear()
    again = evaluate(where, endpoint, tmp_path)
    assert "benchmark-toolret-gta: up to date" in again.stderr, again.stderr
    assert results(tmp_path).read_bytes() == first
    assert not [line for line in hub.asked if line.startswith("GET") and line.endswith(".parquet")]
    unknown = evaluate(f"hub:{QUERIES}/gta@{'0' * 40}", endpoint, tmp_path / "other")
    assert unknown.returncode == 2 and f"hub:{QUERIES}/gta cannot be read" in unknown.stderr


def test_a_hub_that_is_busy_for_a_while_is_asked_again(
    httpserver: HTTPServer, hub: DataHub, tmp_path: Path
) -> None:
    hub.busy, hub.busy_answers = 503, 2
    done = evaluate(f"hub:{QUERIES}/gta", serve(httpserver, hub), tmp_path)
    assert done.returncode == 0, done.stderr
    assert hub.busy_answers == 0 and read_json(results(tmp_path))["sets"][0]["queries"] == 1


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (503, "(the Hub answers HTTP 503); remedy: try again later"),
        (429, "(the Hub answers HTTP 429); remedy: try again later"),
        (403, "(the Hub refuses it with HTTP 403); remedy: accept its terms on its page and set HF_TOKEN"),
    ],
)
def test_a_hub_that_does_not_give_it_is_told(
    httpserver: HTTPServer, hub: DataHub, tmp_path: Path, status: int, said: str
) -> None:
    hub.busy = status
    done = evaluate(f"hub:{QUERIES}", serve(httpserver, hub), tmp_path)
    assert done.returncode == 2 and hub.asked
    assert f"error: hub:{QUERIES} cannot be read {said}" in done.stderr
    assert not (tmp_path / "outputs" / "runs" / "local" / "raw").exists()


def test_offline_and_out_of_reach_are_told(httpserver: HTTPServer, hub: DataHub, tmp_path: Path) -> None:
    endpoint = serve(httpserver, hub)
    done = evaluate(f"hub:{QUERIES}", endpoint, tmp_path, HF_HUB_OFFLINE="1")
    assert done.returncode == 2 and hub.asked == []
    assert "(HF_HUB_OFFLINE is set, and it is not in the cache); remedy: unset HF_HUB_OFFLINE" in done.stderr
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    done = evaluate(f"hub:{QUERIES}", nobody, tmp_path)
    assert done.returncode == 2
    assert f"(the Hub at {nobody}: Couldn't reach '{QUERIES}' on the Hub" in done.stderr
    assert "remedy: look at the network and HF_ENDPOINT" in done.stderr
    done = evaluate("hub:nobody/ToolRet-Queries", endpoint, tmp_path)
    assert done.returncode == 2 and "doesn't exist on the Hub" in done.stderr


def test_a_row_whose_labels_are_none_is_named(httpserver: HTTPServer, tmp_path: Path) -> None:
    asks = {"gta": [query("a", "x", labels(web_1=1), ""), query("b", "y", "[{'id': 'web_1'}]", "")]}
    tools = {"web": [{"id": "web_1", "documentation": document("x", "y")}]}
    hub = DataHub({QUERIES: repository("queries", asks), TOOLS: repository("tools", tools)})
    done = evaluate(f"hub:{QUERIES}", serve(httpserver, hub), tmp_path)
    assert done.returncode == 2
    assert f"hub:{QUERIES}/gta/queries row 1: labels: not JSON" in done.stderr
