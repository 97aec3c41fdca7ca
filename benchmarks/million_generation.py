"""Simulation at scale, first half: a made-up catalog, the plan, and generation shard by shard."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from million_parts import TOOLS_A_GROUP, TOOLS_A_SHARD, Size, Spread, each, jsonl, settings_of
from scale import synthetic

from ecoagent.llm.engine import StoredEngine
from ecoagent.llm.store import ResponseStore
from ecoagent.llm.stub import STUB_MODEL, StubEngine, stub_text
from ecoagent.runs import bucket, iter_rows, table_writer, write_jsonl
from ecoagent.schema import SOURCES, ScoredTool, catalog_of, tool_text
from ecoagent.synthesis.generate import ToolSource, as_row, generate
from ecoagent.synthesis.plan import ToolFacts, by_group
from ecoagent.synthesis.stage import tool_sources

ORDER = sorted(SOURCES)


def catalog(root: Path, size: Size) -> dict[str, Any]:
    """A scored catalog, one table a source, in the order of ids."""
    counts = list(each(partial(_source, root, size), range(len(ORDER)), size.workers))
    return {"tools": sum(counts), "bytes": sum(p.stat().st_size for p in (root / "tools").iterdir())}


def tables(root: Path) -> list[Path]:
    """The catalog's tables, in the order of sources."""
    return [root / "tools" / f"{source}.parquet" for source in ORDER]


def _source(root: Path, size: Size, place: int) -> int:
    source, part = ORDER[place], -(-size.tools // len(ORDER))
    low, high = place * part, min((place + 1) * part, size.tools)
    rng = random.Random(f"million:{source}")
    with table_writer(root / "tools" / f"{source}.parquet", ScoredTool) as writer:
        for row in synthetic(size.tools, low, high, rng):
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
    return high - low


def plan(root: Path, size: Size) -> dict[str, Any]:
    """What generation needs of each tool, spread over shards, a catalog at a time."""
    catalogs = sorted({catalog_of(source) for source in ORDER})
    rows = sum(each(partial(_plan_catalog, root, size), catalogs, size.workers))
    files = list((root / "shards").iterdir())
    return {"tools": rows, "shards": len(files), "bytes": sum(f.stat().st_size for f in files)}


def _plan_catalog(root: Path, size: Size, name: str) -> int:
    sources = [source for source in ORDER if catalog_of(source) == name]
    shards = max(1, len(sources) * -(-size.tools // len(ORDER)) // TOOLS_A_SHARD)
    spread, rows = Spread(root / "shards"), 0
    read = itertools.chain(*(iter_rows(root / "tools" / f"{s}.parquet", ScoredTool) for s in sources))
    # Groups are contiguous in the order of ids here: siblings are read together.
    for _, members in itertools.groupby(read, key=lambda t: (t.source, t.group_id)):
        tools = {t.id: t for t in members}
        for identifier, source in tool_sources(tools, by_group(tools.values()), list(tools)).items():
            row = [identifier, asdict(source.facts), source.description, list(source.names)]
            spread.add(f"{name}-{bucket(identifier, shards):05d}.jsonl", row)
            rows += 1
    spread.flush()
    return rows


def generated(root: Path, size: Size) -> dict[str, Any]:
    """The product's generation shard by shard, responses in its own store."""
    total: Counter[str] = Counter()
    paths = sorted((root / "shards").glob("*.jsonl"))
    for counts in each(partial(_generate_shard, root, size), paths, size.workers):
        total += counts
    return {**dict(sorted(total.items())), "store_bytes": (root / "responses.sqlite").stat().st_size}


def _generate_shard(root: Path, size: Size, path: Path) -> Counter[str]:
    settings = settings_of(root, size)
    store = ResponseStore(root / "responses.sqlite")
    engine = StoredEngine(STUB_MODEL, StubEngine, store)
    sources = {}
    for identifier, facts, description, names in jsonl(path):
        known = {k: tuple(v) if isinstance(v, list) else v for k, v in facts.items()}
        sources[identifier] = ToolSource(ToolFacts(**known), description, tuple(names))
    made = generate(sources, engine, settings.synthesis, seed=0)
    store.close()
    folder = root / "made" / path.stem
    write_jsonl(folder / "lines.jsonl", map(as_row, made.queries))
    write_jsonl(folder / "rejects.jsonl", map(as_row, made.rejects))
    here = {"lines": len(made.queries), "rejects": len(made.rejects)}
    return Counter(made.stats) + Counter(here) + Counter(short_tools=sum(c.short for c in made.coverage))


def lines(root: Path, size: Size) -> dict[str, Any]:
    """What ``generate`` leaves, straight from the stub: no prompt, no parsing, no filter, no store."""
    written = 0
    for first in range(0, size.tools, TOOLS_A_SHARD):
        stop = min(first + TOOLS_A_SHARD, size.tools)
        rows = [row for number in range(first, stop) for row in _stub_rows(number, size.lines)]
        write_jsonl(root / "made" / f"{first:08d}" / "lines.jsonl", rows)
        written += len(rows)
    return {"lines": written}


def _stub_rows(number: int, count: int) -> Iterator[dict[str, Any]]:
    name = f"{ORDER[number % len(ORDER)]}:demo-{number // TOOLS_A_GROUP:07d}.Tool{number:08d}"
    for place, line in enumerate(stub_text(number, count).splitlines()):
        text = line.partition(". ")[2]
        yield {"tool_id": name, "intent": "direct", "attempt": 0, "line": place, "text": text}
