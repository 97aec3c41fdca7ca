"""Mining negatives by blocks beside one query at a time, in one run.

Usage: python benchmarks/negatives.py [--queries 70000] [--tools 5172] [--plain 4000] [--dims 384,768]
                                      [--results benchmarks/results/negatives.json]

Vectors are made up, by seed: unit vectors of tools at random, those of queries at a cosine of about 0.7 with
their gold, every 50th with two golds. A tenth of the tools in pairs of duplicates; a tenth, the cold
ones, excluded from most queries. One hard and one random negative per positive, as by default. What
is timed is what comes after encoding.

- *ours*: ``mine``, products and selection by blocks;
- *one at a time*: ``mine_plain``, a product and a selection per query, on the first ``--plain`` queries; its
  seconds for all are scaled from those. *ours* runs on the same subset; pairs are compared one by one, as
  is ``mine_plain`` with the block of ``mine``, which must be equal in all.

Each runs in a process of its own. Seconds are of the clock; ``cpu_s`` is processor time of all threads;
peaks are the process's maximum resident size. The limit: 60 s for 70,000 queries and 5,172 tools on 2 cores.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from ecoagent.runs import read_json, write_json
from ecoagent.synthesis.negatives import (
    BLOCK,
    MiningSettings,
    Positive,
    ScoredPair,
    ToolPool,
    mine,
    mine_plain,
)

RESULTS = Path(__file__).parent / "results" / "negatives.json"
LIMIT_S = 60.0
MINING = MiningSettings(hard=1, random=1, margin=0.95, seed=0)


def _units(rng: np.random.Generator, count: int, dim: int) -> np.ndarray:
    rows = rng.standard_normal((count, dim), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def world(queries: int, tools: int, dim: int) -> tuple[list[Positive], np.ndarray, ToolPool]:
    """Positives, their vectors, and the pool."""
    rng = np.random.default_rng(dim)
    ids = [f"tool:{i:05d}" for i in range(tools)]
    vectors = _units(rng, tools, dim)
    golds = rng.integers(0, tools, size=(queries, 2))
    rows = vectors[golds[:, 0]] + _units(rng, queries, dim)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    cold = frozenset(ids[::10])
    positives = []
    for i, (first, second) in enumerate(golds.tolist()):
        own = sorted({ids[first], ids[second]} if i % 50 == 0 else {ids[first]})
        positives.append(Positive(f"q:syn:{i:06d}", tuple(own), frozenset() if cold & {*own} else cold))
    groups = {t: ids[i - i % 2] if i < tools // 10 else t for i, t in enumerate(ids)}
    return positives, rows, ToolPool(ids, vectors, groups)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _timed(way: Any, *args: Any, **options: Any) -> tuple[list[ScoredPair], dict[str, Any]]:
    started, cpu = time.perf_counter(), time.process_time()
    pairs = way(*args, MINING, **options)
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    figures = {"queries": len(args[0]), "pairs": len(pairs), "seconds": seconds, "cpu_s": cpu_s}
    return pairs, {k: round(v, 2) for k, v in figures.items()} | {"peak_mib": _peak()}


def work(step: str, queries: int, tools: int, dim: int, plain: int) -> dict[str, Any]:
    """One way in this process."""
    positives, rows, pool = world(queries, tools, dim)
    before = _peak()
    if step == "ours":
        return _timed(mine, positives, rows, pool)[1] | {"before_mib": before}
    few, vectors = positives[:plain], rows[:plain]
    one, one_figures = _timed(mine_plain, few, vectors, pool)
    ours, ours_figures = _timed(mine, few, vectors, pool)
    assert ours == mine_plain(few, vectors, pool, MINING, block=BLOCK), "blocks differ from one at a time"
    chosen = {(p.query_id, p.tool_id, p.label, p.negative_type) for p in one}
    same = len(chosen & {(p.query_id, p.tool_id, p.label, p.negative_type) for p in ours})
    return {
        "before_mib": before,
        "one_at_a_time": one_figures,
        "ours_subset": ours_figures,
        "equal_with_the_same_block": True,
        "same_pairs_share": round(same / max(len(chosen), len(ours)), 6),
    }


def measured(step: str, given: argparse.Namespace, dim: int) -> dict[str, Any]:
    """One way in a process of its own, so that its peak is its own."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        sizes = ["--queries", str(given.queries), "--tools", str(given.tools), "--plain", str(given.plain)]
        command = [sys.executable, __file__, "--step", step, "--report", str(report), "--dims", str(dim)]
        subprocess.run([*command, *sizes], check=True)
        found: dict[str, Any] = read_json(report)
        return found


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=70_000)
    parser.add_argument("--tools", type=int, default=5_172)
    parser.add_argument("--plain", type=int, default=4_000, help="size of the subset")
    parser.add_argument("--dims", default="384,768")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        found = work(given.step, given.queries, given.tools, int(given.dims), given.plain)
        write_json(given.report, found)
        return
    results: dict[str, Any] = {
        "cores": len(os.sched_getaffinity(0)),
        "load_before": round(os.getloadavg()[0], 2),
        "tools": given.tools,
        "limit_s": LIMIT_S,
    }
    for dim in map(int, given.dims.split(",")):
        ours, both = measured("ours", given, dim), measured("plain", given, dim)
        scale = given.queries / both["one_at_a_time"]["queries"]
        scaled = {f"{k}_scaled": round(both["one_at_a_time"][k] * scale, 1) for k in ("seconds", "cpu_s")}
        results[f"{dim}"] = {**both, **scaled, "ours": ours, "within": ours["seconds"] <= LIMIT_S}
        print(
            f"{dim} numbers a vector, {given.queries:,} queries: ours {ours['seconds']:.1f} s "
            f"({ours['cpu_s']:.1f} s of processor), {ours['peak_mib']} MiB; one at a time, scaled from "
            f"{both['one_at_a_time']['queries']:,}: {scaled['seconds_scaled']} s "
            f"({scaled['cpu_s_scaled']} s); same pairs {both['same_pairs_share']:.4%}"
        )
    results["load_after"] = round(os.getloadavg()[0], 2)
    given.results.parent.mkdir(parents=True, exist_ok=True)
    write_json(given.results, results)
    print(f"written to {given.results}")


if __name__ == "__main__":
    main()
