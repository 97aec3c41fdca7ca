"""EcoAgent-Syn at the size of a million tools, with a stub in the model's place.

Usage:
    python benchmarks/million.py [--tools 10000] [--intents 3 --lines 16] [--workers 1] [--folder DIR]
                                 [--present | --merge-only]

Plan, shards, generation, filters, exact deduplication, splits and negatives over a made-up catalog,
every step in a process of its own and with its data on disk, so that the peak of a step is its own.
STUBS: the model (``ecoagent.llm.stub``: made-up words, no model was asked) and the sentence encoder
(hashed words). Prompts, parsing, filters, the store of responses, ``generate`` and ``mine`` are the
product's. Planning and merging are done here in pieces, as the product's own hold the whole
catalog and all lines in memory; ``--present`` measures those instead, on a small catalog.
``--merge-only`` leaves out what comes before the merge.

Negatives come from the tool's own hash bucket of about 5,172 tools (the paper's catalog), since a
product of all queries with all tools grows with the square. Seconds are of the clock and of the
processor, of all workers together; peaks are the maximum resident size of the largest process.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import million_generation
import million_merge
from million_parts import Size, settings_of
from scale import HashEncoder, machine

from ecoagent.llm.engine import StoredEngine
from ecoagent.llm.store import ResponseStore
from ecoagent.llm.stub import STUB_MODEL, StubEngine
from ecoagent.runs import (
    Progress,
    RunContext,
    execute,
    iter_rows,
    read_json,
    table_writer,
    write_json,
)
from ecoagent.schema import ScoredTool

RESULTS = Path(__file__).parent / "results" / "million.json"


def present(root: Path, size: Size) -> dict[str, Any]:
    """The product's own stage, whole catalog and all lines in memory."""
    from ecoagent.synthesis import stage as stage_module

    engine = StoredEngine(STUB_MODEL, StubEngine, ResponseStore(root / "present.sqlite"))
    stage_module.open_engine = lambda settings, progress: engine  # type: ignore[assignment]
    stage_module.load_sbert = lambda ctx, name: HashEncoder()  # type: ignore[assignment, return-value]
    ctx = RunContext.create(settings_of(root, size), Progress(quiet=True))
    with table_writer(ctx.paths.core / "tools.parquet", ScoredTool) as writer:
        for path in million_generation.tables(root):
            for tool in iter_rows(path, ScoredTool):
                writer.append(tool)
    return dict(execute(stage_module.SynthesizeStage(), ctx).report.rows)


WORK: dict[str, Callable[[Path, Size], dict[str, Any]]] = {
    "catalog": million_generation.catalog,
    "plan": million_generation.plan,
    "generate": million_generation.generated,
    "lines": million_generation.lines,
    "merge": million_merge.merge,
    "dedup": million_merge.dedup,
    "split": million_merge.split,
    "negatives": million_merge.negatives,
    "present": present,
}
STEPS = {
    "in_pieces": ("catalog", "plan", "generate", "merge", "dedup", "split", "negatives"),
    "merge_only": ("lines", "merge", "dedup", "split"),
    "present": ("catalog", "present"),
}


def measured(step: str, root: Path) -> dict[str, Any]:
    """One step in a process of its own."""
    subprocess.run([sys.executable, __file__, "--step", step, "--folder", str(root)], check=True)
    found: dict[str, Any] = read_json(root / f"{step}.json")
    print(step, json.dumps(found), flush=True)
    return found


def one_step(step: str, root: Path) -> None:
    """The step itself, and what it took."""
    started = time.monotonic()
    counts = WORK[step](root, Size(**read_json(root / "size.json")))
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    figures = {
        "seconds": round(time.monotonic() - started, 1),
        "cpu_seconds": round(sum(u.ru_utime + u.ru_stime for u in used), 1),
        "peak_mib": round(max(u.ru_maxrss for u in used) / 1024, 1),
    }
    write_json(root / f"{step}.json", figures | counts)


def main() -> None:
    """Run the steps, print their figures and add them to the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tools", type=int, default=10_000)
    parser.add_argument("--intents", type=int, default=3, choices=(1, 2, 3), help="prompts a tool")
    parser.add_argument("--lines", type=int, default=16, help="lines a tool, over its prompts")
    parser.add_argument("--workers", type=int, default=1, help="processes for steps made of pieces")
    parser.add_argument("--folder", type=Path, help="where to work; none = a temporary folder")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--present", action="store_true", help="measure the stage as it is instead")
    kind.add_argument("--merge-only", action="store_true", help="lines straight from the stub, merged")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        one_step(given.step, given.folder)
        return
    name = "present" if given.present else "merge_only" if given.merge_only else "in_pieces"
    size = Size(given.tools, given.intents, given.lines, given.workers)
    root = Path(tempfile.mkdtemp(prefix="ecoagent-million-", dir=given.folder))
    where = machine()
    try:
        write_json(root / "size.json", asdict(size))
        figures = {step: measured(step, root) for step in STEPS[name]}
        disk = sum(p.stat().st_size for p in root.rglob("*") if p.is_file())
    finally:
        shutil.rmtree(root, ignore_errors=True)
    known = read_json(given.results) if given.results.is_file() else {}
    stubs = {"model": STUB_MODEL, "encoder": HashEncoder.name}
    entry = {**asdict(size), "stubs": stubs, **where, "disk_bytes": disk, "steps": figures}
    write_json(given.results, known | {f"{name}_{given.tools}": entry})


if __name__ == "__main__":
    main()
