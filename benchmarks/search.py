"""Search over tool vectors: exact against the graph, and what a change of the index costs.

Usage: python benchmarks/search.py [--sizes 5000,100000,1000000] [--dim 384] [--queries 200] [--quick]
                                   [--model all-MiniLM-L6-v2] [--results benchmarks/results/search.json]

Vectors are made up, by seed. Random directions in 384 dimensions have no near neighbours, and a graph over
them says nothing of real ones; so each lies about one of ``size / 50`` centres, at a cosine of about 0.7 to
it, and queries lie about the centres too. Each size runs in a process of its own:

- *one*: a query at a time, *batch*: ``--queries`` together; milliseconds a query, P50 and P95 for one;
- *recall@10* of the graph against exact search;
- *build*: seconds to make the graph; *add*: milliseconds for one more tool and for 100, which are then
  found; *remove*: milliseconds for one; *save*, *load*: seconds, and the bytes on disk;
- *end to end*: a request as text to its ten tools: encoded alone by ``--model``, then searched.

Exact search is also timed above the limit at which the index goes over to the graph, so that the limit can be
judged. Seconds are of the clock; peaks are the process's maximum resident size.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ecoagent.models import ModelStore
from ecoagent.retrieval import Encoder, ToolIndex, load_encoder, load_index, save_index
from ecoagent.runs import processor, versions, write_json
from ecoagent.settings import IndexSettings, load_settings, quiet_environment

RESULTS = Path(__file__).parent / "results" / "search.json"
K = 10
PER_CENTRE = 50
SPREAD = 1.0
"""Length of the noise beside a centre of length 1: a cosine of about 0.7."""
REQUESTS = (
    "post a message to a channel when a form is filled in",
    "which of my invoices have not been paid",
    "turn this audio file into text",
    "add a row to the spreadsheet with today's orders",
    "find papers about tool retrieval for language models",
    "remind the team of the meeting tomorrow morning",
    "list the open issues of a repository by label",
    "what will the weather be in Lisbon at the weekend",
)


def _about(rng: np.random.Generator, centres: np.ndarray, count: int) -> np.ndarray:
    """(count, d) unit vectors, each about a random centre."""
    rows = rng.standard_normal((count, centres.shape[1]), dtype=np.float32)
    rows *= SPREAD / np.sqrt(centres.shape[1])
    rows += centres[rng.integers(0, len(centres), count)]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def world(size: int, dim: int, queries: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tools, queries, and tools that come later."""
    rng = np.random.default_rng(size)
    centres = rng.standard_normal((max(1, size // PER_CENTRE), dim), dtype=np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    return _about(rng, centres, size), _about(rng, centres, queries), _about(rng, centres, 200)


def timed(work: Callable[[], Any]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def latency(index: ToolIndex, queries: np.ndarray, *, exact: bool) -> dict[str, float]:
    """Milliseconds a query, alone and together."""
    index.search(queries[0], K, exact=exact)
    alone = [1000 * timed(lambda q=query: index.search(q, K, exact=exact)) for query in queries]
    together = 1000 * timed(lambda: index.search_many(queries, K, exact=exact)) / len(queries)
    return {
        "one_p50_ms": round(float(np.percentile(alone, 50)), 3),
        "one_p95_ms": round(float(np.percentile(alone, 95)), 3),
        "batch_ms": round(together, 3),
    }


def end_to_end(index: ToolIndex, encoder: Encoder, rounds: int) -> dict[str, float]:
    """Milliseconds from a request's text to its tools, one at a time."""
    index.search_many(encoder.encode_queries(REQUESTS), K)
    taken = []
    for number in range(rounds):
        text = f"{REQUESTS[number % len(REQUESTS)]} ({number})"
        taken.append(1000 * timed(lambda t=text: index.search(encoder.encode_queries([t])[0], K)))
    return {
        "p50_ms": round(float(np.percentile(taken, 50)), 2),
        "p95_ms": round(float(np.percentile(taken, 95)), 2),
    }


def one_size(size: int, dim: int, queries: int, model: str) -> dict[str, Any]:
    """All figures of one size."""
    tools, asked, later = world(size, dim, queries)
    index = ToolIndex(dim)
    row: dict[str, Any] = {"tools": size, "dim": dim, "queries": queries}
    ids = [f"t{i:07d}" for i in range(size)]
    row["fill_s"] = round(timed(lambda: index.add(ids, tools)), 3)
    row["exact"] = latency(index, asked, exact=True)
    row["exact_add_one_ms"] = round(1000 * timed(lambda: index.add(["n0"], later[:1])), 3)
    row["build_s"] = round(timed(index.build_graph), 3)
    row["graph"] = latency(index, asked, exact=False)
    recall = index.graph_recall(asked, K)
    row["recall@10"], row["worst"] = round(recall.recall, 4), recall.worst
    row["add_one_ms"] = round(1000 * timed(lambda: index.add(["n1"], later[1:2])), 3)
    names = [f"n{i}" for i in range(2, 102)]
    row["add_100_ms"] = round(1000 * timed(lambda: index.add(names, later[2:102])), 3)
    found = index.search_many(later[1:102], 1, exact=False)
    row["added_found"] = float(np.mean([h[0].id == n for h, n in zip(found, ["n1", *names], strict=True)]))
    row["remove_one_ms"] = round(1000 * timed(lambda: index.remove(["n1"])), 3)
    with tempfile.TemporaryDirectory() as folder:
        row["save_s"] = round(timed(lambda: save_index(index, Path(folder))), 3)
        row["bytes"] = sum(p.stat().st_size for p in Path(folder).iterdir())
        row["load_s"] = round(timed(lambda: load_index(Path(folder))), 3)
    path = ModelStore(load_settings("local").models).path(model)
    encoder = load_encoder(path, name=model, pooling=None, steady=True)
    if encoder.dim == dim:
        row["end_to_end"] = end_to_end(index, encoder, queries)
    row["peak_mib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description="Search over tool vectors.")
    parser.add_argument("--sizes", default="5000,100000,1000000")
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    parser.add_argument(
        "--quick", action="store_true", help="1,000 tools and 20 queries, to see that it works"
    )
    parser.add_argument("--results", type=Path)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    quiet_environment()
    queries = 20 if given.quick else given.queries
    if given.one:
        sys.stdout.write(json.dumps(one_size(given.one, given.dim, queries, given.model)) + "\n")
        return
    rows = []
    for size in (1000,) if given.quick else [int(s) for s in given.sizes.split(",")]:
        command = [sys.executable, __file__, "--one", str(size), "--dim", str(given.dim)]
        command += ["--queries", str(queries), "--model", given.model]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        sys.stdout.write(json.dumps(rows[-1], indent=1) + "\n")
    results = given.results or (None if given.quick else RESULTS)
    if results is not None:
        chosen = IndexSettings().model_dump(mode="json")
        write_json(
            results, {"rows": rows, "settings": chosen, "processor": processor(), "versions": versions()}
        )


if __name__ == "__main__":
    main()
