"""Embeddings of an OpenAI-compatible endpoint: batches, faults that pass, and what is stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from ecoagent.retrieval import EndpointEncoder, NotAvailable, RankerResources, TextSet, find_ranker
from ecoagent.retrieval.endpoint import EmbeddingStore
from ecoagent.settings import BaselineSettings, TrainSettings, UserError

PATH = "/v1/embeddings"
TEXTS = ["slack message", "weather", "slack message", "", "mail"]


def vector(text: str) -> list[float]:
    return [float(len(text) + 1), float(text.count("s") + 1), float(text.count("e") + 1)]


class Served:
    """A stand-in endpoint; the first replies are those of ``faults``."""

    def __init__(self, *faults: Response) -> None:
        self.faults, self.bodies, self.keys = list(faults), [], []  # type: ignore[var-annotated]

    def __call__(self, request: Request) -> Response:
        self.bodies.append(json.loads(request.data))
        self.keys.append(request.headers.get("Authorization"))
        if self.faults:
            return self.faults.pop(0)
        rows = [{"index": n, "embedding": vector(t)} for n, t in enumerate(self.bodies[-1]["input"])]
        return Response(json.dumps({"data": rows[::-1]}), content_type="application/json")


def serve(server: HTTPServer, *faults: Response) -> Served:
    served = Served(*faults)
    server.expect_request(PATH, method="POST").respond_with_handler(served)
    return served


def settings(server: HTTPServer, tmp_path: Path, **more: Any) -> BaselineSettings:
    values = {"base_url": server.url_for("/"), "store": tmp_path / "e.sqlite", "backoff_s": 0.0} | more
    return BaselineSettings.model_validate(values)


def test_vectors_come_in_batches_in_order_and_are_asked_once(httpserver: HTTPServer, tmp_path: Path) -> None:
    served = serve(httpserver)
    encoder = EndpointEncoder(settings(httpserver, tmp_path, batch_size=3), api_key="k")
    seen: list[int] = []
    found = encoder.encode_queries(TEXTS, seen.append)
    expected = np.array([vector(text) for text in TEXTS], dtype=np.float32)
    assert np.abs(found - expected / np.linalg.norm(expected, axis=1, keepdims=True)).max() < 1e-6
    assert found.dtype == np.float32 and encoder.dim == 3 and sum(seen) == 4
    assert [len(body["input"]) for body in served.bodies] == [3, 1]
    assert sorted(t for b in served.bodies for t in b["input"]) == sorted(set(TEXTS))
    assert {body["model"] for body in served.bodies} == {"text-embedding-ada-002"}
    assert set(served.keys) == {"Bearer k"}
    again = EndpointEncoder(settings(httpserver, tmp_path))
    assert (again.encode_documents(TEXTS) == found).all() and len(served.bodies) == 2
    again.encode_documents([*TEXTS, "new"])
    assert served.bodies[2:] == [
        {"model": "text-embedding-ada-002", "input": ["new"], "encoding_format": "float"}
    ]
    EndpointEncoder(settings(httpserver, tmp_path, model="other")).encode_queries(["new"])
    assert served.bodies[-1]["model"] == "other"
    assert encoder.encode_queries([]).shape == (0, 3)


def test_faults_that_pass_are_tried_again(httpserver: HTTPServer, tmp_path: Path) -> None:
    served = serve(httpserver, Response(status=503), Response(status=429, headers={"Retry-After": "0"}))
    assert EndpointEncoder(settings(httpserver, tmp_path, retries=2)).encode_queries(["x"]).shape == (1, 3)
    assert len(served.bodies) == 3


def test_what_was_stored_before_a_fault_is_kept(httpserver: HTTPServer, tmp_path: Path) -> None:
    served = serve(httpserver)
    few = settings(httpserver, tmp_path, batch_size=1, retries=1)
    EndpointEncoder(few).encode_queries(["a"])
    served.faults = [Response(status=500), Response(status=500)]
    with pytest.raises(NotAvailable, match="HTTP 500, after 2 tries"):
        EndpointEncoder(few).encode_queries(["a", "b"])
    assert [b["input"] for b in served.bodies] == [["a"], ["b"], ["b"]]


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Response(status=401), "refuses the key.*OPENAI_API_KEY"),
        (Response("no such model", status=404), "HTTP 404 for model.*no such model"),
        (Response("[]"), "gave no list of 1 embeddings"),
        (Response("<html>"), "gave no list of 1 embeddings"),
        (Response(json.dumps({"data": []})), "gave no list of 1 embeddings"),
        (Response(json.dumps({"data": [{"index": 0, "embedding": []}]})), "no list of finite numbers"),
        (Response('{"data": [{"index": 0, "embedding": [NaN]}]}'), "no list of finite numbers"),
    ],
)
def test_other_faults_are_told_at_once(
    httpserver: HTTPServer, tmp_path: Path, reply: Response, said: str
) -> None:
    served = serve(httpserver, reply)
    with pytest.raises(NotAvailable, match=said):
        EndpointEncoder(settings(httpserver, tmp_path)).encode_queries(["x"])
    assert len(served.bodies) == 1


def test_nobody_there_no_address_and_a_damaged_store(httpserver: HTTPServer, tmp_path: Path) -> None:
    with pytest.raises(NotAvailable, match="no embeddings endpoint"):
        EndpointEncoder(BaselineSettings())
    with pytest.raises(NotAvailable, match="is no URL"):
        EndpointEncoder(BaselineSettings(base_url="localhost:1"))
    nobody = settings(httpserver, tmp_path, base_url="http://127.0.0.1:9", retries=0)
    with pytest.raises(NotAvailable, match=r"no answer.*after 1 tries"):
        EndpointEncoder(nobody).encode_queries(["x"])
    (tmp_path / "bad.sqlite").write_bytes(b"no database, " * 100)
    with pytest.raises(UserError, match="store of embeddings"):
        EmbeddingStore(tmp_path / "bad.sqlite")


def test_vectors_of_another_model_in_one_store_are_noticed(httpserver: HTTPServer, tmp_path: Path) -> None:
    served = serve(httpserver)
    EndpointEncoder(settings(httpserver, tmp_path)).encode_queries(["a"])
    row = {"index": 0, "embedding": [1.0, 2.0]}
    served.faults = [Response(json.dumps({"data": [row]}))]
    with pytest.raises(NotAvailable, match="2 lengths: 2, 3"):
        EndpointEncoder(settings(httpserver, tmp_path)).encode_queries(["a", "b"])


def test_the_ranker_takes_its_key_from_the_environment(
    httpserver: HTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve(httpserver)
    monkeypatch.setenv("SOME_KEY", "secret")
    own = settings(httpserver, tmp_path, api_key_env="SOME_KEY")
    resources = RankerResources(TrainSettings(), Path, baselines=own)
    tools = TextSet(("b", "a", "c"), ("eeee", "eeee", "sssssss"))
    run = find_ranker("ada_002").rank(resources, TextSet(("q",), ("eeee",)), tools, 3, None)
    assert run.tool_ids == [["a", "b", "c"]] and run.scores[0][:2] == [1.0, 1.0]
    assert set(served.keys) == {"Bearer secret"}
