"""Throughput of the engines on the same generation requests: tokens, queries, and the engine's share of time.

Usage: python benchmarks/throughput.py --engine embedded|server|vllm --model NAME --weights PATH
           [--tools TABLE] [--count 6] [--concurrency N] [--threads N] [--context 2048]

Generates for ``count`` tools of a scored catalog (``core/tools.parquet`` of a run) as `ecoagent synthesize`
does, with an empty store, and puts its row into ``benchmarks/results/throughput.json`` beside those of other
engines and models.

- embedded: llama.cpp in this process, ``--weights`` is a GGUF file;
- server: the same in a process of its own, spoken to over HTTP;
- vllm: ``vllm.LLM`` in process, ``--weights`` is a folder; run it with the Python of ``.venv-vllm``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ecoagent.llm import EmbeddedEngine, Engine, ResponseStore, ServerEngine, StoredEngine, VllmEngine
from ecoagent.runs import read_rows, write_json
from ecoagent.schema import ScoredTool
from ecoagent.settings import load_settings
from ecoagent.synthesis.generate import ToolSource, generate
from ecoagent.synthesis.plan import by_group, choose_tools
from ecoagent.synthesis.stage import tool_sources

RESULTS = Path(__file__).resolve().parent / "results" / "throughput.json"
SERVE = """
import sys, threading
from pathlib import Path
from ecoagent.llm import EmbeddedEngine
path, model, concurrency, context, threads = sys.argv[1:]
engine = EmbeddedEngine(Path(path), model, concurrency=int(concurrency), context=int(context),
                        threads=int(threads) or None)
print(engine.base_url, flush=True)
sys.stdin.read()
"""


def read_sources(table: Path, count: int) -> dict[str, ToolSource]:
    """The tools of lowest hash over all catalogs, ``count`` of them, with what their prompts say."""
    settings = load_settings("reference", env={})
    tools = {tool.id: tool for tool in read_rows(table, ScoredTool)}
    per_catalog = choose_tools(
        list(tools.values()), settings.synthesis, seed=settings.seed, limit=-(-count // 2)
    )
    chosen = tuple(per_catalog[:: max(1, len(per_catalog) // count)][:count])
    return tool_sources(tools, by_group(tools.values()), chosen)


@contextmanager
def opened(arguments: argparse.Namespace) -> Iterator[Engine]:
    """The engine, its model loaded."""
    path, model = arguments.weights, arguments.model
    concurrency, context = arguments.concurrency, arguments.context
    if arguments.engine == "vllm":
        engine: Engine = VllmEngine(
            path, model, context=context, enforce_eager=True, max_num_seqs=concurrency
        )
        yield engine
    elif arguments.engine == "embedded":
        engine = EmbeddedEngine(
            path, model, concurrency=concurrency, context=context, threads=arguments.threads or None
        )
        yield engine
    else:
        command = [sys.executable, "-c", SERVE, str(path), model, str(concurrency), str(context)]
        command.append(str(arguments.threads))
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None and process.stdin is not None
            url = process.stdout.readline().strip()
            engine = ServerEngine(url, model, concurrency=concurrency, timeout_s=1200.0, use_proxies=False)
            yield engine
            process.stdin.close()
    engine.close()


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """One row of the table."""
    sources = read_sources(arguments.tools, arguments.count)
    settings = load_settings("reference", env={})
    with opened(arguments) as bare, tempfile.TemporaryDirectory() as folder:
        store = ResponseStore(Path(folder) / "responses.sqlite")
        engine = StoredEngine(arguments.model, lambda: bare, store)
        load = os.getloadavg()[0]
        start = time.monotonic()
        made = generate(sources, engine, settings.synthesis, seed=settings.seed)
        seconds = time.monotonic() - start
        counters, cached = engine.counters, getattr(bare, "tokens_cached", 0)
        store.close()
    tokens = counters.tokens_in + counters.tokens_out
    return {
        "engine": arguments.engine,
        "model": arguments.model,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} CPU cores, no GPU; load before the start {load:.1f}",
        "in_flight": arguments.concurrency,
        "tools": len(sources),
        "requests": counters.live,
        "failed": counters.failed,
        "seconds": round(seconds, 1),
        "tokens_in": counters.tokens_in,
        "tokens_in_cached": cached,
        "tokens_out": counters.tokens_out,
        "tokens_out_per_s": round(counters.tokens_out / seconds, 2),
        "accepted_queries": len(made.queries),
        "queries_per_s": round(len(made.queries) / seconds, 3),
        "share_of_time_in_engine": round(counters.seconds / seconds, 4),
        "accepted_per_1000_tokens_out": round(1000 * len(made.queries) / max(1, counters.tokens_out), 2),
        "accepted_per_1000_tokens": round(1000 * len(made.queries) / max(1, tokens), 2),
    }


def main() -> None:
    """Measure, print the row, and merge it into the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", choices=("embedded", "server", "vllm"), required=True)
    parser.add_argument("--model", required=True, help="name in the table")
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--tools", type=Path, default=Path("outputs/runs/reference/core/tools.parquet"))
    parser.add_argument("--count", type=int, default=6)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--threads", type=int, default=0, help="of llama.cpp; 0 = all cores")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    row = measure(arguments)
    print(json.dumps(row, indent=1))
    rows = json.loads(arguments.results.read_text("utf-8")) if arguments.results.is_file() else []
    rows = [r for r in rows if (r["engine"], r["model"]) != (row["engine"], row["model"])] + [row]
    write_json(arguments.results, sorted(rows, key=lambda r: (r["model"], r["engine"])))


if __name__ == "__main__":
    main()
