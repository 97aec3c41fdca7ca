"""Speed and memory of exact near-duplicate removal, beside comparing every pair.

Usage: python benchmarks/dedup.py [--queries 100000] [--brute 4000] [--vocabulary 20000]

The queries are drawn from a Zipf-like vocabulary over common openings, with planted near-duplicates:
about 15 words each, as generated queries have. No real text is needed to measure a join.
"""

from __future__ import annotations

import argparse
import random
import resource
import time

from ecoagent.schema import query_id, tokens
from ecoagent.retrieval.dedup import deduplicate, deduplicate_brute

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
SMALL_WORDS = ("the", "a", "for", "in", "of", "to", "and", "my", "from", "with", "on", "that")


def make_queries(count: int, seed: int = 0, vocabulary: int = 20_000) -> dict[str, str]:
    """``count`` distinct queries by id, a fifth of them small edits of earlier ones."""
    rng = random.Random(f"{seed}:dedup")
    weights = [1.0 / (rank + 10) for rank in range(vocabulary)]
    draws = iter(rng.choices(range(vocabulary), weights=weights, k=count * 16))
    texts: dict[str, str] = {}
    order: list[str] = []
    while len(texts) < count:
        if order and rng.random() < 0.2:
            words = texts[rng.choice(order)].split()
            words[rng.randrange(len(words))] = f"edit{rng.randrange(5000)}"
        else:
            body = [f"w{next(draws)}" for _ in range(rng.randint(5, 11))]
            for small in rng.choices(SMALL_WORDS, k=rng.randint(2, 5)):
                body.insert(rng.randrange(len(body)), small)
            words = [*rng.choice(OPENINGS).split(), *body]
        text = " ".join(words)
        identifier = query_id("syn", text)
        if identifier not in texts:
            texts[identifier] = text
            order.append(identifier)
    return texts


def main() -> None:
    """Print one line a measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--brute", type=int, default=4_000)
    parser.add_argument("--vocabulary", type=int, default=20_000)
    chosen = parser.parse_args()
    few = {i: tokens(t) for i, t in make_queries(chosen.brute).items()}
    start = time.perf_counter()
    expected = deduplicate_brute(few)
    brute_s = time.perf_counter() - start
    start = time.perf_counter()
    found = deduplicate(few)
    join_s = time.perf_counter() - start
    assert found == expected, "the join differs from comparing every pair"
    scale = (chosen.queries / chosen.brute) ** 2
    print(f"{chosen.brute:,} queries: every pair {brute_s:.2f} s, join {join_s:.3f} s, equal results")
    print(f"every pair at {chosen.queries:,} queries would take about {brute_s * scale / 60:.0f} min")
    texts = make_queries(chosen.queries, vocabulary=chosen.vocabulary)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    start = time.perf_counter()
    sets = {i: tokens(t) for i, t in texts.items()}
    tokenized = time.perf_counter()
    result = deduplicate(sets)
    end = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    words = sum(map(len, sets.values())) / len(sets)
    print(
        f"{len(sets):,} queries of {words:.1f} distinct tokens: tokens {tokenized - start:.2f} s, "
        f"join {end - tokenized:.2f} s, peak {peak:.2f} GiB ({before:.2f} before), "
        f"{len(result.kept):,} kept, {len(result.dropped):,} dropped"
    )


if __name__ == "__main__":
    main()
