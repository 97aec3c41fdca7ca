"""EcoAgent-Syn at the size of a million tools, with a stub in the model's place.

Usage:
    python benchmarks/million.py [--tools 10000] [--folder DIR] [--present | --merge-only]

Plan, shards, generation, filters, exact deduplication, splits and negatives over a made-up catalog,
every step in a process of its own and with its data on disk, so that the peak of a step is its own.
STUBS: the model (``ecoagent.llm.stub``: made-up words, no model was asked) and the sentence encoder
(hashed words). Prompts, parsing, filters, the store of responses, ``generate`` and ``mine`` are the
product's. Planning and merging are done here in pieces, as the product's own hold the whole
catalog and all lines in memory; ``--present`` measures those instead, on the same catalog.
``--merge-only`` leaves out what comes before the merge.

Negatives come from the tool's own hash bucket of about 5,172 tools (the paper's catalog), since a
product of all queries with all tools grows with the square. Seconds are of the clock and of the
processor (other work on the machine moves only the former); peaks are the maximum resident size.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from million_join import TokenSets, join
from scale import HashEncoder, machine, synthetic

from ecoagent.llm.engine import StoredEngine
from ecoagent.llm.store import ResponseStore
from ecoagent.llm.stub import STUB_MODEL, StubEngine, stub_text
from ecoagent.runs import (
    Progress,
    RunContext,
    bucket,
    execute,
    iter_lines,
    iter_rows,
    read_json,
    sha256_text,
    table_groups,
    table_writer,
    write_json,
    write_jsonl,
)
from ecoagent.schema import SOURCES, PairRow, QueryRow, ScoredTool, catalog_of, query_id, tokens, tool_text
from ecoagent.settings import load_settings
from ecoagent.synthesis.generate import ToolSource, as_row, generate
from ecoagent.synthesis.negatives import MiningSettings, Positive, ToolPool, mine
from ecoagent.synthesis.plan import ToolFacts, facts_of, hash_rank
from ecoagent.synthesis.splits import allocate_strata, cold_tools
from ecoagent.synthesis.stage import tool_source

RESULTS = Path(__file__).parent / "results" / "million.json"
STEPS: tuple[str, ...] = ("catalog", "plan", "generate", "merge", "dedup", "split", "negatives")
TOOLS_A_GROUP, TOOLS_A_SHARD = 10, 200
TOOLS_A_POOL = 5172
LINES_A_TOOL = 16
FILES = 64
"""Pieces that queries are sorted in, by the first digits of their ids."""


def settings_of(folder: Path) -> Any:
    """The local profile with the stub's name, so that nothing made here can be published."""
    overrides = [
        f'outputs="{folder}"',
        'llm.engine="server"',
        f'llm.model="{STUB_MODEL}"',
        'llm.reference="none"',
        "synthesis.verify_queries=false",
    ]
    return load_settings("local", overrides=overrides, env={}, run="million")


def jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a JSON-lines file, one at a time; none if it is not there."""
    if path.is_file():
        yield from map(json.loads, iter_lines(path))


class Spread:
    """Appends rows to many files, a few thousand rows at a time."""

    def __init__(self, folder: Path, held: int = 20_000) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._limit = folder, held
        self._rows: defaultdict[str, list[str]] = defaultdict(list)
        self._held = 0

    def add(self, name: str, row: Any) -> None:
        """Append ``row`` to the file ``name``."""
        self._rows[name].append(json.dumps(row, ensure_ascii=False, separators=(",", ":")))
        self._held += 1
        if self._held >= self._limit:
            self.flush()

    def flush(self) -> None:
        """Write what is held."""
        for name, rows in self._rows.items():
            with (self._folder / name).open("a", encoding="utf-8") as handle:
                handle.write("\n".join(rows) + "\n")
        self._rows.clear()
        self._held = 0


def catalog(root: Path, count: int) -> dict[str, Any]:
    """A scored catalog, in the order of ids."""
    import random

    with table_writer(root / "core" / "tools.parquet", ScoredTool) as writer:
        part = -(-count // len(SOURCES))
        for place, source in enumerate(sorted(SOURCES)):
            low, high = place * part, min((place + 1) * part, count)
            rng = random.Random(f"million:{source}")
            for row in synthetic(count, low, high, rng):
                record, number = row["record"], int(row["record"]["id"][-8:])
                group = f"demo-{number // TOOLS_A_GROUP:07d}"
                identifier = f"{source}:{group}.Tool{number:08d}"
                text = record["description"] or "Does one thing."
                record |= {
                    "id": identifier,
                    "source": source,
                    "group_id": group,
                    "description": text,
                    "language": "en",
                    "provider": group,
                    "duplicate_group": identifier,
                    "tool_text": tool_text(record["name"], text, tags=record["tags"]),
                    "r_cons": 0.5, "w_src": 0.9, "r_qual": 0.5, "r_static": 0.62, "reliable": False,
                }  # fmt: skip
                writer.append(ScoredTool.model_validate(record))
    return {"tools": count, "bytes": (root / "core" / "tools.parquet").stat().st_size}


def plan(root: Path, count: int) -> dict[str, Any]:
    """Two passes: ids of the columns that choose, then what generation needs, spread over shards."""
    sizes: defaultdict[str, int] = defaultdict(int)
    path = root / "core" / "tools.parquet"
    for group in table_groups(path, ScoredTool, ["source"]):
        for source in group.column("source").to_pylist():
            sizes[catalog_of(source)] += 1
    spread = Spread(root / "shards")
    rows = 0
    # Groups are contiguous in the order of ids here: siblings are read together.
    for _, members in itertools.groupby(iter_rows(path, ScoredTool), key=lambda t: (t.source, t.group_id)):
        tools = list(members)
        for tool in tools:
            catalog_name = catalog_of(tool.source)
            shards = -(-sizes[catalog_name] // TOOLS_A_SHARD)
            source = tool_source(tool, facts_of(tool, tools))
            row = [tool.id, asdict(source.facts), source.description, list(source.names)]
            spread.add(f"{catalog_name}-{bucket(tool.id, shards):05d}.jsonl", row)
            rows += 1
    spread.flush()
    files = list((root / "shards").iterdir())
    return {"tools": rows, "shards": len(files), "bytes": sum(f.stat().st_size for f in files)}


def generated(root: Path, count: int) -> dict[str, Any]:
    """The product's generation shard by shard, responses in its own store."""
    settings = settings_of(root)
    store = ResponseStore(root / "responses.sqlite")
    engine = StoredEngine(STUB_MODEL, StubEngine, store)
    total: defaultdict[str, int] = defaultdict(int)
    for path in sorted((root / "shards").glob("*.jsonl")):
        sources = {}
        for identifier, facts, description, names in jsonl(path):
            known = {k: tuple(v) if isinstance(v, list) else v for k, v in facts.items()}
            sources[identifier] = ToolSource(ToolFacts(**known), description, tuple(names))
        made = generate(sources, engine, settings.synthesis, seed=0)
        folder = root / "made" / path.stem
        write_jsonl(folder / "lines.jsonl", map(as_row, made.queries))
        write_jsonl(folder / "rejects.jsonl", map(as_row, made.rejects))
        for name, value in made.stats.items():
            total[name] += value
        total["lines"] += len(made.queries)
        total["rejects"] += len(made.rejects)
        total["short_tools"] += sum(c.short for c in made.coverage)
    store.close()
    return {**total, "store_bytes": (root / "responses.sqlite").stat().st_size}


def lines(root: Path, count: int) -> dict[str, Any]:
    """What ``generate`` leaves, straight from the stub: no prompt, no parsing, no filter, no store."""
    written = 0
    for first in range(0, count, TOOLS_A_SHARD):
        rows: list[dict[str, Any]] = []
        for number in range(first, min(first + TOOLS_A_SHARD, count)):
            source = SOURCES[number % len(SOURCES)]
            name = f"{source}:demo-{number // TOOLS_A_GROUP:07d}.Tool{number:08d}"
            for place, line in enumerate(stub_text(number, LINES_A_TOOL).splitlines()):
                text = line.partition(". ")[2]
                rows.append({"tool_id": name, "intent": "direct", "attempt": 0, "line": place, "text": text})
        write_jsonl(root / "made" / f"{first:08d}" / "lines.jsonl", rows)
        written += len(rows)
    return {"lines": written}


def merge(root: Path, count: int) -> dict[str, Any]:
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


def dedup(root: Path, count: int) -> dict[str, Any]:
    """Exact near-duplicate removal over all queries."""
    folder = root / "join"
    folder.mkdir()
    sets = TokenSets(folder)
    sets.add(tokens(q["text"]) for q in queries(root))
    ranks, offsets = sets.finish()
    found = join(ranks, offsets, settings_of(root).synthesis.jaccard, folder)
    write_json(root / "dropped.json", found["dropped"])
    return {"queries": len(offsets) - 1, "dropped": len(found.pop("dropped")), **found}


def split(root: Path, count: int) -> dict[str, Any]:
    """Splits as ``split_queries`` makes them, from eight bytes of hash a query."""
    settings = settings_of(root).synthesis
    dropped = {int(n) for n in read_json(root / "dropped.json")}
    sources: dict[str, str] = {}
    for number, query in enumerate(queries(root)):
        if number not in dropped:
            sources.update((g, g.partition(":")[0]) for g in query["golds"])
    cold = cold_tools(sources, settings.cold_fraction, seed=0)
    places = {s: n for n, s in enumerate(SOURCES)}
    rank, stratum = [], bytearray()
    for number, query in enumerate(queries(root)):
        rank.append(int(hash_rank(0, "split", query["id"])[:16], 16) if number not in dropped else 0)
        gone = number in dropped or not cold.isdisjoint(query["golds"])
        stratum.append(
            255 if number in dropped else 254 if gone else places[query["golds"][0].partition(":")[0]]
        )
    ranks, strata = np.asarray(rank, dtype=np.uint64), np.frombuffer(stratum, dtype=np.uint8)
    result = np.full(len(ranks), 3, dtype=np.uint8)
    result[strata == 254] = 4
    counts = allocate_strata({s: int((strata == n).sum()) for s, n in places.items()}, settings.splits)
    for source, n in places.items():
        here = np.flatnonzero(strata == n)
        order = here[np.argsort(ranks[here], kind="stable")]
        _, val, test = counts[source]
        result[order] = 0
        result[order[:val]] = 1
        result[order[val : val + test]] = 2
    result.tofile(root / "split.bin")
    names = ("train", "val", "test", "dropped", "cold")
    sizes = {name: int((result == n).sum()) for n, name in enumerate(names)}
    (root / "core").mkdir(exist_ok=True)
    with table_writer(root / "core" / "syn_queries.parquet", QueryRow) as writer:
        for query, place in zip(queries(root), result, strict=True):
            if place != 3:
                writer.append(
                    QueryRow(
                        query_id=query["id"],
                        text=query["text"],
                        set="syn",
                        intent=query["intent"],
                        source_tool_id=query["golds"][0],
                        language="en",
                        split=names[place],
                        origin="live",
                        licence="Apache-2.0",
                    )
                )
    return {**sizes, "bytes": (root / "core" / "syn_queries.parquet").stat().st_size}


def negatives(root: Path, count: int) -> dict[str, Any]:
    """Negatives from the bucket of a query's first gold, by the product's mining."""
    settings, encoder = settings_of(root).synthesis, HashEncoder()
    pools = max(1, round(count / TOOLS_A_POOL))
    split_of = np.fromfile(root / "split.bin", dtype=np.uint8)
    tools, asked = Spread(root / "pool"), Spread(root / "asked")
    for group in table_groups(root / "core" / "tools.parquet", ScoredTool, ["id", "tool_text"]):
        for identifier, text in zip(*(group.column(c).to_pylist() for c in ("id", "tool_text")), strict=True):
            tools.add(f"{bucket(identifier, pools):04d}", [identifier, text])
    for query, place in zip(queries(root), split_of, strict=True):
        if place != 3:
            asked.add(f"{bucket(query['golds'][0], pools):04d}", query)
    tools.flush()
    asked.flush()
    mining = MiningSettings(
        settings.hard_negatives, settings.random_negatives, settings.false_negative_margin, 0
    )
    pairs = 0
    with table_writer(root / "core" / "syn_pairs.parquet", PairRow) as writer:
        for number in range(pools):
            members = sorted(jsonl(root / "pool" / f"{number:04d}"))
            if not members:
                continue
            ids = [m[0] for m in members]
            here = set(ids)
            pool = ToolPool(ids, encoder.encode_documents([m[1] for m in members]), {i: i for i in ids})
            rows = jsonl(root / "asked" / f"{number:04d}")
            while block := list(itertools.islice(rows, 4096)):
                vectors = encoder.encode_queries([q["text"] for q in block])
                wanted = [Positive(q["id"], tuple(g for g in q["golds"] if g in here)) for q in block]
                for pair in mine(wanted, vectors, pool, mining):
                    writer.append(PairRow(**asdict(pair), split="train"))
                    pairs += 1
    return {"pools": pools, "pairs": pairs, "bytes": (root / "core" / "syn_pairs.parquet").stat().st_size}


def present(root: Path, count: int) -> dict[str, Any]:
    """The product's own stage, whole catalog and all lines in memory."""
    from ecoagent.synthesis import stage as stage_module

    engine = StoredEngine(STUB_MODEL, StubEngine, ResponseStore(root / "present.sqlite"))
    stage_module.open_engine = lambda settings, progress: engine  # type: ignore[assignment]
    stage_module.load_sbert = lambda ctx, name: HashEncoder()  # type: ignore[assignment, return-value]
    ctx = RunContext.create(settings_of(root), Progress(quiet=True))
    ctx.paths.core.mkdir(parents=True)
    shutil.copy(root / "core" / "tools.parquet", ctx.paths.core / "tools.parquet")
    outcome = execute(stage_module.SynthesizeStage(), ctx)
    return dict(outcome.report.rows)


WORK = {
    "catalog": catalog,
    "plan": plan,
    "generate": generated,
    "lines": lines,
    "merge": merge,
    "dedup": dedup,
    "split": split,
    "negatives": negatives,
    "present": present,
}


def measured(step: str, root: Path, count: int) -> dict[str, Any]:
    """One step in a process of its own."""
    report = root / f"{step}.json"
    command = [sys.executable, __file__, "--step", step, "--folder", str(root), "--tools", str(count)]
    subprocess.run([*command, "--report", str(report)], check=True)
    found: dict[str, Any] = read_json(report)
    print(step, json.dumps(found), flush=True)
    return found


def main() -> None:
    """Run the steps, print their figures and add them to the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tools", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="where to work; none = a temporary folder")
    parser.add_argument("--present", action="store_true", help="measure the stage as it is instead")
    parser.add_argument("--merge-only", action="store_true", help="lines straight from the stub, merged")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        started = time.monotonic()
        counts = WORK[given.step](given.folder, given.tools)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        seconds = {
            "seconds": round(time.monotonic() - started, 1),
            "cpu_seconds": round(time.process_time(), 1),
        }
        write_json(given.report, {**seconds, "peak_mib": round(peak, 1), **counts})
        return
    root = Path(tempfile.mkdtemp(prefix="ecoagent-million-", dir=given.folder))
    where = machine()
    try:
        name, steps = "in_pieces", STEPS
        if given.present:
            name, steps = "present", ("catalog", "present")
        elif given.merge_only:
            name, steps = "merge_only", ("lines", "merge", "dedup", "split")
        figures = {step: measured(step, root, given.tools) for step in steps}
        disk = sum(p.stat().st_size for p in root.rglob("*") if p.is_file())
    finally:
        shutil.rmtree(root, ignore_errors=True)
    name = f"{name}_{given.tools}"
    known = read_json(given.results) if given.results.is_file() else {}
    stubs = {"model": STUB_MODEL, "encoder": HashEncoder.name, "key": sha256_text(STUB_MODEL)[:12]}
    write_json(
        given.results,
        known | {name: {"tools": given.tools, "stubs": stubs, **where, "disk_bytes": disk, "steps": figures}},
    )


if __name__ == "__main__":
    main()
