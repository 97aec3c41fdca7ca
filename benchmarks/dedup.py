"""Exact near-duplicate removal beside comparing every pair and beside MinHash, in one run.

Usage: python benchmarks/dedup.py [--queries 100000] [--brute 5000] [--only ours,brute,datasketch,rensa]
                                  [--results benchmarks/results/dedup.json]

Queries are made up, by seed: two fifths from templates with a few slots; the rest free, of
5 to 40 words of a Zipf vocabulary; a fifth edit one to three words of an earlier query; some pairs
have a similarity of exactly 0.7, which is not above it. No real text is needed to measure a join.

- *ours*: ``ecoagent.retrieval.dedup`` on all queries, and on the first ``--brute`` of them;
- *every pair*: the definition, on the same subset, as it would take hours on all; results are compared;
- *datasketch*, *rensa* (optional: ``pip install datasketch rensa``): MinHash with 128 permutations and
  LSH at 0.7, greedy in the same order: a query goes if a kept candidate's estimated similarity is above 0.7.
  Recall and precision are of the ids dropped, against the exact result.

Each runs in a process of its own. Seconds are of the clock, without making and tokenising the queries
(``tokens_s``); ``cpu_s`` is processor time, which other work on the machine disturbs less; peaks are the
process's maximum resident size, interpreter and queries included (``before_mib``: the queries alone).
Limits for 100,000 queries: 10 s and 2 GiB on 2 cores.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ecoagent.retrieval.dedup import Deduplicated, deduplicate, deduplicate_brute
from ecoagent.runs import read_json, write_json
from ecoagent.schema import query_id, tokens

RESULTS = Path(__file__).parent / "results" / "dedup.json"
THRESHOLD = 0.7
PERMUTATIONS = 128
BANDS = 16
"""16 bands of 8 rows: what rensa needs told; datasketch chooses its own for the threshold."""
LIMIT_S, LIMIT_MIB = 10.0, 2048.0
OPENINGS = (
    "how do i",
    "what is the best way to",
    "can i",
    "please",
    "i tried to",
    "i need to",
    "is there a way to",
    "my team wants to",
)
SMALL_WORDS = (
    *("the", "a", "for", "in", "of", "to", "and", "my", "from", "with"),
    *("on", "that", "is", "it", "every", "when", "all", "into", "by", "at"),
)
TEMPLATES = tuple(
    line.split()
    for line in (
        "how do i VERB a THING in SERVICE when the WORD is WORD",
        "please VERB the WORD THING from SERVICE and send it to my WORD team",
        "i need to VERB all WORD THING of last WORD in SERVICE before WORD",
        "VERB every THING in SERVICE that has the WORD WORD and tell me which ones failed",
        "my THING in SERVICE does not VERB after i changed the WORD what should i check",
        "can you VERB NUMBER THING from SERVICE to SERVICE",
        "what is the fastest way to VERB a WORD THING with SERVICE without losing the WORD WORD of my WORD",
    )
)
SLOTS = {"VERB": 60, "THING": 300, "SERVICE": 500, "NUMBER": 200}


def make_queries(count: int, seed: int = 0, vocabulary: int = 20_000) -> dict[str, str]:
    """``count`` distinct queries by id."""
    rng = random.Random(f"{seed}:dedup")
    weights = [1.0 / (rank + 10) for rank in range(vocabulary)]
    drawn: list[int] = []

    def word() -> str:
        if not drawn:
            drawn.extend(rng.choices(range(vocabulary), weights=weights, k=100_000))
        return f"w{drawn.pop()}"

    def slot(name: str) -> str:
        if name == "WORD":
            return word()
        return f"{name.lower()}{rng.randrange(SLOTS[name])}" if name in SLOTS else name

    def free() -> list[str]:
        length = min(40, max(5, round(rng.lognormvariate(2.7, 0.5))))
        body = [rng.choice(SMALL_WORDS) if rng.random() < 0.35 else word() for _ in range(length)]
        return [*rng.choice(OPENINGS).split(), *body][:length]

    texts: dict[str, str] = {}
    order: list[str] = []
    while len(texts) < count:
        draw = rng.random()
        if order and draw < 0.2:
            words = texts[rng.choice(order)].split()
            for _ in range(rng.randint(1, 3)):
                words[rng.randrange(len(words))] = f"edit{rng.randrange(5000)}"
            made = [words]
        elif draw < 0.22:
            whole = [f"exact{n}" for n in rng.sample(range(9000), k=10 * rng.randint(1, 3))]
            made = [whole, whole[: len(whole) * 7 // 10]]
        elif draw < 0.6:
            made = [[slot(name) for name in rng.choice(TEMPLATES)]]
        else:
            made = [free()]
        for words in made:
            text = " ".join(words)
            identifier = query_id("syn", text)
            if identifier not in texts and len(texts) < count:
                texts[identifier] = text
                order.append(identifier)
    return texts


Sets = Mapping[str, frozenset[str]]


def with_datasketch(sets: Sets) -> list[str]:
    """Ids that datasketch's MinHash drops."""
    from datasketch import MinHash, MinHashLSH  # type: ignore[import-not-found]

    index = MinHashLSH(threshold=THRESHOLD, num_perm=PERMUTATIONS)
    kept: dict[str, Any] = {}
    dropped = []
    ids = sorted(sets)
    texts = ([word.encode() for word in sets[i]] for i in ids)
    for identifier, sketch in zip(ids, MinHash.generator(texts, num_perm=PERMUTATIONS), strict=True):
        if any(sketch.jaccard(kept[other]) > THRESHOLD for other in index.query(sketch)):
            dropped.append(identifier)
        else:
            kept[identifier] = sketch
            index.insert(identifier, sketch)
    return dropped


def with_rensa(sets: Sets) -> list[str]:
    """Ids that rensa's MinHash drops."""
    from rensa import RMinHash, RMinHashLSH  # type: ignore[import-not-found]

    index = RMinHashLSH(threshold=THRESHOLD, num_perm=PERMUTATIONS, num_bands=BANDS)
    kept: dict[int, Any] = {}
    dropped = []
    for place, identifier in enumerate(sorted(sets)):
        sketch = RMinHash(num_perm=PERMUTATIONS, seed=42)
        sketch.update(sorted(sets[identifier]))
        if any(sketch.jaccard(kept[other]) > THRESHOLD for other in index.query(sketch)):
            dropped.append(identifier)
        else:
            kept[place] = sketch
            index.insert(place, sketch)
    return dropped


def _ours(sets: Sets) -> Deduplicated:
    return deduplicate(sets, THRESHOLD)


def _brute(sets: Sets) -> Deduplicated:
    return deduplicate_brute(sets, THRESHOLD)


WAYS: dict[str, Callable[[Sets], Any]] = {
    "ours": _ours,
    "ours_subset": _ours,
    "brute_subset": _brute,
    "datasketch": with_datasketch,
    "rensa": with_rensa,
}


def work(step: str, total: int, subset: int) -> dict[str, Any]:
    """One way, in this process."""
    texts = make_queries(total)
    if step.endswith("_subset"):
        texts = dict(list(texts.items())[:subset])
    started = time.perf_counter()
    sets = {i: tokens(t) for i, t in texts.items()}
    tokens_s = time.perf_counter() - started
    before = _peak()
    started, cpu = time.perf_counter(), time.process_time()
    found = WAYS[step](sets)
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    return {
        "queries": len(sets),
        "tokens_a_query": round(sum(map(len, sets.values())) / len(sets), 1),
        "seconds": round(seconds, 2),
        "cpu_s": round(cpu_s, 2),
        "tokens_s": round(tokens_s, 2),
        "before_mib": before,
        "peak_mib": _peak(),
        # The whole result, witnesses and similarities too, so that equality is of all of it.
        "found": [[d.id, d.similarity, *d.near] for d in found.dropped]
        if isinstance(found, Deduplicated)
        else [[i] for i in found],
    }


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def measured(step: str, total: int, subset: int) -> dict[str, Any]:
    """One way in a process of its own, so that its peak is its own."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        size = ["--queries", str(total), "--brute", str(subset)]
        subprocess.run([sys.executable, __file__, "--step", step, "--report", str(report), *size], check=True)
        found: dict[str, Any] = read_json(report)
    found["dropped"] = len(found["found"])
    print(
        f"{step:<14}{found['queries']:>9,} queries{found['seconds']:>9.2f} s"
        f"{found['cpu_s']:>9.2f} s of processor{found['peak_mib']:>7} MiB{found['dropped']:>8,} dropped"
    )
    return found


def against(found: dict[str, Any], exact: dict[str, Any]) -> dict[str, float]:
    """Recall and precision of the dropped ids."""
    theirs, true = ({row[0] for row in way["found"]} for way in (found, exact))
    both = len(theirs & true)
    return {"recall": round(both / max(1, len(true)), 4), "precision": round(both / max(1, len(theirs)), 4)}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--brute", type=int, default=5_000, help="size of the subset")
    parser.add_argument("--only", default="ours,brute,datasketch,rensa")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        write_json(given.report, work(given.step, given.queries, given.brute))
        return
    wanted = given.only.split(",")
    results: dict[str, Any] = {
        "cores": len(os.sched_getaffinity(0)),
        "load_before": round(os.getloadavg()[0], 2),
        "threshold": THRESHOLD,
    }
    ways = {"ours": measured("ours", given.queries, given.brute)}
    if given.queries == 100_000:
        within = ways["ours"]["seconds"] <= LIMIT_S and ways["ours"]["peak_mib"] <= LIMIT_MIB
        results["limits"] = {"seconds": LIMIT_S, "mib": LIMIT_MIB, "within": within}
        print(f"limits of {LIMIT_S:.0f} s and {LIMIT_MIB:.0f} MiB: {'kept' if within else 'not kept'}")
    if "brute" in wanted:
        for step in ("ours_subset", "brute_subset"):
            ways[step] = measured(step, given.queries, given.brute)
        equal = ways["ours_subset"]["found"] == ways["brute_subset"]["found"]
        assert equal, "the join differs from comparing every pair"
        scale = (given.queries / given.brute) ** 2
        results["subset_equal"] = equal
        results["every_pair_of_all_estimated_s"] = round(ways["brute_subset"]["seconds"] * scale)
    for name in ("datasketch", "rensa"):
        if name not in wanted:
            continue
        if importlib.util.find_spec(name) is None:
            print(f"{name}: not installed, left out")
            results[name] = "not installed"
            continue
        ways[name] = measured(name, given.queries, given.brute)
        ways[name] |= {"version": version(name), **against(ways[name], ways["ours"])}
        print(f"{name}: recall {ways[name]['recall']}, precision {ways[name]['precision']}")
    results["ways"] = {w: {k: v for k, v in found.items() if k != "found"} for w, found in ways.items()}
    results["load_after"] = round(os.getloadavg()[0], 2)
    given.results.parent.mkdir(parents=True, exist_ok=True)
    write_json(given.results, results)
    print(f"written to {given.results}")


if __name__ == "__main__":
    main()
