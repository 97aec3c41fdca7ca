"""Encoding beside plain ``SentenceTransformer.encode``, in one run, on the same texts.

Usage: python benchmarks/encode.py [--run local] [--model all-MiniLM-L6-v2] [--texts 4000] [--repeat 3]
                                   [--quick] [--results benchmarks/results/encode.json]

Texts are the tool texts and queries of a run, in seeded random order, each query ``--copies`` times over (a
stage asks for the same text for many pairs), cut to ``--texts``. The ways:

- *plain*: the library's ``encode`` with its own batch of 32, which sorts by length itself;
- *ours*: ``SentenceEncoder``: distinct texts, sorted, batches of 64;
- *steady*: the same padded to fixed widths, so that a vector does not depend on its neighbours;
- *stored, empty*: steady through an empty store, writes included;
- *stored, full*: the same texts again: nothing is encoded, no model is loaded;
- *stored, one more*: the same texts and a new one.

Each way runs ``--repeat`` times, the ways in turn, and the fastest counts; models are loaded before, but for
the full store, which loads none. Vectors of every way are compared with the plain ones: at most 1e-6 apart in
each number. Seconds are of the clock; ``cpu_s`` is processor time of all threads.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ecoagent.models import ModelStore
from ecoagent.retrieval import Encoder, StoredEncoder, load_encoder
from ecoagent.runs import processor, read_table, versions, write_json
from ecoagent.settings import load_settings, quiet_environment

RESULTS = Path(__file__).parent / "results" / "encode.json"
TOLERANCE = 1e-6
QUICK = 300
"""Texts with ``--quick``, once each; nothing is written then unless ``--results`` is given."""


def texts_of(core: Path, count: int, copies: int) -> list[str]:
    """Texts in seeded random order."""
    found = read_table(core / "tools.parquet", ("tool_text",))["tool_text"].to_list()
    found += read_table(core / "syn_queries.parquet", ("text",))["text"].to_list() * copies
    random.Random(0).shuffle(found)
    if len(found) < count:
        sys.stderr.write(f"the run has {len(found)} texts, not {count}\n")
    return found[:count]


def _never() -> Encoder:
    raise AssertionError("a full store loads no model")


def measure(
    ways: dict[str, Callable[[], tuple[np.ndarray, int]]], repeat: int
) -> tuple[dict[str, dict[str, Any]], dict[str, np.ndarray]]:
    """Fastest seconds of each way, and its vectors."""
    best: dict[str, dict[str, Any]] = {}
    vectors: dict[str, np.ndarray] = {}
    for _ in range(repeat):
        for name, way in ways.items():
            clock, cpu = time.perf_counter(), time.process_time()
            found, encoded = way()
            row = {
                "seconds": round(time.perf_counter() - clock, 3),
                "cpu_s": round(time.process_time() - cpu, 3),
                "encoded": encoded,
            }
            if name not in best or row["seconds"] < best[name]["seconds"]:
                best[name] = row
            vectors[name] = found
    return best, vectors


def ways_of(
    path: Path, name: str, texts: Sequence[str], scratch: Path
) -> dict[str, Callable[[], tuple[np.ndarray, int]]]:
    """The ways by name; each gives vectors of ``texts``, and how many texts it encoded."""
    ours = load_encoder(path, name=name, pooling=None)
    steady = load_encoder(path, name=name, pooling=None, steady=True)
    model, distinct = ours.model, len(set(texts))
    store = scratch / "full"

    def plain() -> tuple[np.ndarray, int]:
        return model.encode(list(texts), normalize_embeddings=True, show_progress_bar=False), len(texts)

    def empty() -> tuple[np.ndarray, int]:
        shutil.rmtree(store, ignore_errors=True)
        encoder = StoredEncoder(name, "benchmark", store, lambda: steady)
        return encoder.encode_documents(texts), encoder.encoded

    def full() -> tuple[np.ndarray, int]:
        encoder = StoredEncoder(name, "benchmark", store, _never)
        return encoder.encode_documents(texts), encoder.encoded

    def one_more() -> tuple[np.ndarray, int]:
        encoder = StoredEncoder(name, "benchmark", store, lambda: steady)
        new = f"A tool that came at {time.perf_counter_ns()}."
        return encoder.encode_documents([*texts, new])[:-1], encoder.encoded

    return {
        "plain": plain,
        "ours": lambda: (ours.encode_documents(texts), distinct),
        "steady": lambda: (steady.encode_documents(texts), distinct),
        "stored, empty": empty,
        "stored, full": full,
        "stored, one more": one_more,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Encoding beside plain SentenceTransformer.encode.")
    parser.add_argument("--run", default="local", help="run under outputs/runs, or its folder")
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    parser.add_argument("--texts", type=int, default=4000)
    parser.add_argument("--copies", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a few texts once, to see that it works")
    parser.add_argument("--results", type=Path)
    given = parser.parse_args()
    quiet_environment()
    settings = load_settings("local")
    root = next(
        (p for p in (settings.outputs / "runs" / given.run, Path(given.run)) if (p / "core").is_dir()), None
    )
    if root is None:
        parser.error(f"no run {given.run!r}: build one, or give its folder with --run")
    texts = texts_of(root / "core", QUICK if given.quick else given.texts, given.copies)
    path = ModelStore(settings.models).path(given.model)
    with tempfile.TemporaryDirectory() as scratch:
        ways = ways_of(path, given.model, texts, Path(scratch))
        ways["ours"]()  # the first call of a process is slower, whosever it is
        rows, vectors = measure(ways, 1 if given.quick else given.repeat)
        size = sum(p.stat().st_size for p in Path(scratch).rglob("*.sqlite"))
    for name, row in rows.items():
        row["texts_per_s"] = round(len(texts) / row["seconds"], 1)
        row["times_plain"] = round(rows["plain"]["seconds"] / row["seconds"], 2)
        row["furthest"] = float(np.abs(vectors[name] - vectors["plain"]).max())
        sys.stdout.write(
            f"{name:18} {row['seconds']:9.3f} s {row['cpu_s']:9.3f} cpu s {row['texts_per_s']:10.1f} "
            f"texts/s {row['times_plain']:8.2f} times plain, {row['encoded']:6} encoded, "
            f"{row['furthest']:.1e} apart\n"
        )
    wrong = [name for name, row in rows.items() if row["furthest"] > TOLERANCE]
    assert not wrong, f"not the vectors of the library: {wrong}"
    assert np.array_equal(vectors["stored, empty"], vectors["stored, full"])
    results = given.results or (None if given.quick else RESULTS)
    if results is not None:
        write_json(
            results,
            {
                "model": given.model,
                "texts": len(texts),
                "distinct": len(set(texts)),
                "store_bytes": size,
                "rows": rows,
                "processor": processor(),
                "versions": versions(),
            },
        )


if __name__ == "__main__":
    main()
