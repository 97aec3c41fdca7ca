"""Simulation at scale, second half: merging, exact deduplication, splits and negatives, in pieces on disk."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from million_generation import tables
from million_join import TokenSets, join
from million_parts import FILES, TOOLS_A_POOL, Size, Spread, each, jsonl, settings_of
from scale import HashEncoder

from ecoagent.runs import bucket, read_json, table_groups, table_writer, write_json, write_jsonl
from ecoagent.schema import SOURCES, PairRow, QueryRow, ScoredTool, query_id, tokens
from ecoagent.synthesis.negatives import MiningSettings, Positive, ToolPool, mine
from ecoagent.synthesis.plan import hash_rank
from ecoagent.synthesis.splits import allocate_strata, cold_tools

SPLITS = ("train", "val", "test", "dropped", "cold")
TRAIN, VAL, TEST, DROPPED, COLD = range(5)


def merge(root: Path, size: Size) -> dict[str, Any]:
    """Equal texts become one query: lines spread by the query's id, then each piece sorted by itself."""
    spread, seen = Spread(root / "spread"), 0
    for path in sorted((root / "made").glob("*/lines.jsonl")):
        for row in jsonl(path):
            identifier = query_id("syn", row["text"])
            piece = bucket(identifier, FILES)
            spread.add(
                f"{piece:03d}",
                [identifier, row["tool_id"], row["intent"], row["text"], row["attempt"], row["line"]],
            )
            seen += 1
    spread.flush()
    merged = 0
    (root / "merged").mkdir()
    for number in range(FILES):
        rows = sorted(jsonl(root / "spread" / f"{number:03d}"), key=lambda r: (r[0], r[1], r[4], r[2], r[5]))
        kept = []
        for identifier, same in itertools.groupby(rows, key=lambda r: r[0]):
            every = list(same)
            golds = sorted({r[1] for r in every})
            kept.append({"id": identifier, "golds": golds, "intent": every[0][2], "text": every[0][3]})
        write_jsonl(root / "merged" / f"{number:03d}.jsonl", kept)
        merged += len(kept)
    return {"lines": seen, "queries": merged}


def queries(root: Path) -> Iterator[dict[str, Any]]:
    """Merged queries, piece by piece; the order every step numbers them in."""
    for path in sorted((root / "merged").iterdir()):
        yield from jsonl(path)


def dedup(root: Path, size: Size) -> dict[str, Any]:
    """Exact near-duplicate removal over all queries."""
    folder = root / "join"
    folder.mkdir()
    sets = TokenSets(folder)
    sets.add(tokens(q["text"]) for q in queries(root))
    ranks, offsets = sets.finish()
    found = join(ranks, offsets, settings_of(root, size).synthesis.jaccard, folder)
    write_json(root / "dropped.json", found["dropped"])
    return {"queries": len(offsets) - 1, "dropped": len(found.pop("dropped")), **found}


def split(root: Path, size: Size) -> dict[str, Any]:
    """Splits as ``split_queries`` makes them, from eight bytes of hash a query."""
    settings = settings_of(root, size).synthesis
    dropped = {int(n) for n in read_json(root / "dropped.json")}
    sources: dict[str, str] = {}
    for number, query in enumerate(queries(root)):
        if number not in dropped:
            sources.update((g, g.partition(":")[0]) for g in query["golds"])
    cold = cold_tools(sources, settings.cold_fraction, seed=0)
    places = {s: n for n, s in enumerate(SOURCES)}
    ranks, strata = array("Q"), array("B")
    result = bytearray()
    for number, query in enumerate(queries(root)):
        ranks.append(int(hash_rank(0, "split", query["id"])[:16], 16))
        strata.append(places[query["golds"][0].partition(":")[0]])
        gone = DROPPED if number in dropped else COLD
        result.append(TRAIN if number not in dropped and cold.isdisjoint(query["golds"]) else gone)
    split_of, stratum = np.frombuffer(result, dtype=np.uint8).copy(), np.frombuffer(strata, dtype=np.uint8)
    members = {s: np.flatnonzero((split_of == TRAIN) & (stratum == n)) for s, n in places.items()}
    counts = allocate_strata({s: len(here) for s, here in members.items()}, settings.splits)
    for source, here in members.items():
        order = here[np.argsort(np.frombuffer(ranks, dtype=np.uint64)[here], kind="stable")]
        _, val, test = counts[source]
        split_of[order[:val]] = VAL
        split_of[order[val : val + test]] = TEST
    split_of.tofile(root / "split.bin")
    sizes = {name: int((split_of == n).sum()) for n, name in enumerate(SPLITS)}
    with table_writer(root / "core" / "syn_queries.parquet", QueryRow) as writer:
        for query, place in zip(queries(root), split_of, strict=True):
            if place != DROPPED:
                writer.append(
                    QueryRow(
                        query_id=query["id"],
                        text=query["text"],
                        set="syn",
                        intent=query["intent"],
                        source_tool_id=query["golds"][0],
                        language="en",
                        split=SPLITS[place],
                        origin="live",
                        licence="Apache-2.0",
                    )
                )
    return {**sizes, "bytes": (root / "core" / "syn_queries.parquet").stat().st_size}


def negatives(root: Path, size: Size) -> dict[str, Any]:
    """Negatives from the bucket of a query's first gold, by the product's mining."""
    pools = max(1, round(size.tools / TOOLS_A_POOL))
    tools, asked = Spread(root / "pool"), Spread(root / "asked")
    for group in itertools.chain(*(table_groups(p, ScoredTool, ["id", "tool_text"]) for p in tables(root))):
        for identifier, text in zip(*(group.column(c).to_pylist() for c in ("id", "tool_text")), strict=True):
            tools.add(f"{bucket(identifier, pools):04d}", [identifier, text])
    tools.flush()
    split_of = np.fromfile(root / "split.bin", dtype=np.uint8)
    for query, place in zip(queries(root), split_of, strict=True):
        if place != DROPPED:
            asked.add(f"{bucket(query['golds'][0], pools):04d}", query)
    asked.flush()
    pairs = sum(each(partial(_mine_pool, root, size), range(pools), size.workers))
    written = sum(p.stat().st_size for p in (root / "core" / "syn_pairs").iterdir())
    return {"pools": pools, "pairs": pairs, "bytes": written}


def _mine_pool(root: Path, size: Size, number: int) -> int:
    settings, encoder, pairs = settings_of(root, size).synthesis, HashEncoder(), 0
    mining = MiningSettings(
        settings.hard_negatives, settings.random_negatives, settings.false_negative_margin, 0
    )
    members = sorted(jsonl(root / "pool" / f"{number:04d}"))
    ids = [m[0] for m in members]
    here = set(ids)
    pool = ToolPool(ids, encoder.encode_documents([m[1] for m in members]), {i: i for i in ids})
    rows = jsonl(root / "asked" / f"{number:04d}")
    with table_writer(root / "core" / "syn_pairs" / f"{number:04d}.parquet", PairRow) as writer:
        while block := list(itertools.islice(rows, 4096)):
            vectors = encoder.encode_queries([q["text"] for q in block])
            wanted = [Positive(q["id"], tuple(g for g in q["golds"] if g in here)) for q in block]
            for pair in mine(wanted, vectors, pool, mining):
                writer.append(PairRow(**asdict(pair), split="train"))
                pairs += 1
    return pairs
