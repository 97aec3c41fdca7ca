"""Time and memory of the catalog stages at scale.

Usage:
    python benchmarks/scale.py [--tools 1000000] [--folder DIR] [--keep]
    python benchmarks/scale.py --operations [--all] [--artifacts outputs/store/artifacts]

The first form writes a synthetic catalog as the candidate files of a crawl, and runs the product's
own normalize and score stages over it, each in a process of its own. Only the sentence encoder is
replaced, by sums of hashed word vectors: a million tools through a real one is a question of the
encoder, not of the pipeline. The second form reads both official n8n packages at operation
granularity from the artifact store and normalises them; the limits are 60 s and 1 GiB on 2 cores.

Seconds are of the clock, peaks are the process's maximum resident size, interpreter included. The
figures are added to ``benchmarks/results/scale.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ecoagent.runs import Progress, RunContext, Stage, execute, read_json, write_json
from ecoagent.schema import SOURCES
from ecoagent.settings import load_settings

RESULTS = Path(__file__).parent / "results" / "scale.json"
TOOLS_A_FILE = 20_000
LIMIT_S, LIMIT_MIB = 60.0, 1024.0
OFFICIAL = ("n8n-nodes-base", "@n8n/n8n-nodes-langchain")

_VERBS = (
    "create get list update delete search send upload download convert export import archive merge "
    "watch schedule publish translate summarise validate approve cancel refund invite assign tag "
    "move copy restore count rank compare enrich subscribe pause resume"
)
_THINGS = (
    "invoice contact ticket message file folder row record event calendar order product customer "
    "lead deal campaign page post comment image video report dashboard metric alert job pipeline "
    "branch issue release repository container server domain certificate payment subscription "
    "survey answer document note task project board card label user team role token webhook"
)
_QUALITIES = (
    "recent overdue shared private archived pending assigned scheduled duplicated encrypted nested "
    "remote local daily weekly monthly annual internal public draft final failed active"
)
_FIRST = (
    "amber birch cinder dove elm fern gull heron iris juni kestrel lark moss north oak pine quartz raven "
    "sorrel thorn umber vetch willow yarrow zephyr alder bramble clover dusk ember flint grove hazel ivory "
    "jasper knoll linden maple nettle opal pebble quill reed slate tansy urchin violet wren"
)
_SECOND = (
    "desk mailer mapper lane stock pay chart form board post box space base tide ledger wire ly queue "
    "cloud list flow book cast hub docs works point forge stack loop yard gate nest mark line port"
)
VERBS, THINGS = _VERBS.split(), _THINGS.split()
QUALITIES = _QUALITIES.split()
SERVICES = [first.capitalize() + second for first in _FIRST.split() for second in _SECOND.split()]
ENDINGS = (
    "Use it when the {thing} is known by its identifier.",
    "Returns the {quality} {thing} as JSON with its identifier and the time of the last change.",
    "The input should be the name of a {thing} and, if given, a {quality} date range.",
    "Results come in pages; the next page is asked for with the cursor of the one before.",
    "Needs the right to read every {thing} of the account.",
    "Fails if the {thing} is {quality}.",
)


def synthetic(count: int, first: int, stop: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    """Candidates ``first`` to ``stop`` of ``count``, in the order of ids: 3% rejected, 5% repeat another."""
    file = first // TOOLS_A_FILE
    source = SOURCES[file % len(SOURCES)]
    package = f"demo-{source.replace('_', '-')}-{file:04d}"
    earlier: list[dict[str, Any]] = []
    for number in range(first, stop):
        identifier = f"{source}:{package}.Tool{number:08d}"
        draw = rng.random()
        if earlier and draw < 0.05:
            words = dict(rng.choice(earlier))
            if draw < 0.02:  # not word for word: what only a comparison of near texts finds
                words["description"] += " " + rng.choice(ENDINGS).format(
                    thing=rng.choice(THINGS), quality=rng.choice(QUALITIES)
                )
            elif draw < 0.035:
                words["description"] = words["description"].upper()
        else:
            words = _words(rng)
            if len(earlier) < 2000:
                earlier.append(words)
        rejected = rng.random() < 0.03
        yield {
            "status": "rejected" if rejected else "kept",
            "reason": "no_description" if rejected else None,
            "detail": "the class has no docstring" if rejected else None,
            "record": _record(identifier, source, package, words, rng, empty=rejected),
        }


def _words(rng: random.Random) -> dict[str, Any]:
    verb, thing, quality = rng.choice(VERBS), rng.choice(THINGS), rng.choice(QUALITIES)
    service = rng.choice(SERVICES)
    first = f"{verb.capitalize()}s a {quality} {thing} in {service} by {rng.choice(THINGS)} number."
    rest = [
        e.format(thing=rng.choice(THINGS), quality=rng.choice(QUALITIES))
        for e in rng.sample(ENDINGS, rng.randint(0, 4))
    ]
    return {
        "service": service,
        "name": f"{verb}_{quality}_{thing}",
        "description": " ".join([first, *rest]),
    }


def _record(
    identifier: str, source: str, package: str, words: dict[str, Any], rng: random.Random, *, empty: bool
) -> dict[str, Any]:
    host = words["service"].lower()
    auth = {
        "type": "env",
        "name": f"{host.upper()}_API_KEY",
        "fields": [{"name": "api_key", "secret": True, "required": True}],
        "required": True,
        "origin": "code",
    }
    names = sorted(rng.sample(THINGS, rng.randint(1, 6)))
    properties = {n: {"type": "string", "description": f"The {n} to look at."} for n in names}
    schema = {"type": "object", "properties": properties, "required": names[:1]}
    return {
        "id": identifier,
        "source": source,
        "name": words["name"],
        "display_name": words["name"].replace("_", " ").title(),
        "description": "" if empty else words["description"],
        "description_origin": "none" if empty else "docstring",
        "kind": "tool",
        "granularity": "tool",
        "group_id": package,
        "group_name": words["service"],
        "url": f"https://docs.{host}.io/{words['name']}",
        "version": "1.0.0",
        "auth": [auth] if rng.random() < 0.7 else [],
        "auth_required": "yes" if rng.random() < 0.5 else "unknown",
        "endpoints": [
            {"url": f"https://api.{host}.io/v1/{t}", "origin": "literal", "is_template": False}
            for t in rng.sample(THINGS, rng.randint(0, 2))
        ],
        "tags": sorted(rng.sample(THINGS, rng.randint(0, 4))),
        "deprecated": {"state": rng.random() < 0.01, "reason": None, "replacement": None},
        "licence": "MIT",
        "provenance": {
            "artifact": package,
            "artifact_version": "1.0.0",
            "sha256": f"{zlib.crc32(package.encode()):064x}",
            "path": f"demo/{words['name']}.py",
            "backend": "client",
            "parser_version": "synthetic",
        },
        "parameter_names": names,
        "input_schema": json.dumps(schema, sort_keys=True, separators=(",", ":")),
        "schema_origin": "declared",
        "operations": [],
        "language": None,
        "docs_url": None,
        "repository": f"https://git.{host}.io/demo",
        "published_at": "2026-01-01",
        "downloads": rng.randrange(100_000),
        "usable_as_tool": None,
        "trigger": None,
        "hidden": None,
        "verified": None,
        "quality_flags": [],
    }


def write_catalog(raw: Path, count: int) -> int:
    """Write the candidate files; returns their bytes."""
    size = 0
    for first in range(0, count, TOOLS_A_FILE):
        folder = raw / "crawl" / f"demo__{first // TOOLS_A_FILE:04d}"
        folder.mkdir(parents=True)
        rng = random.Random(f"scale:{first}")
        with (folder / "candidates.jsonl").open("w", encoding="utf-8") as handle:
            for row in synthetic(count, first, min(first + TOOLS_A_FILE, count), rng):
                handle.write(json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n")
        size += (folder / "candidates.jsonl").stat().st_size
    return size


class HashEncoder:
    """Stands in for the sentence encoder: the sum of a text's word vectors, words by hash."""

    name = "hashed words (stub)"
    dim = 384

    def __init__(self) -> None:
        self._table = np.random.default_rng(0).standard_normal((4096, self.dim)).astype(np.float32)

    def encode_documents(
        self, texts: Sequence[str], on_batch: Callable[[int], None] | None = None
    ) -> np.ndarray:
        found = np.zeros((len(texts), self.dim), dtype=np.float32)
        for i, text in enumerate(texts):
            rows = [zlib.crc32(w.encode()) % 4096 for w in text.lower().replace("_", " ").split()]
            if rows:
                total = self._table[rows].sum(axis=0)
                found[i] = total / (np.linalg.norm(total) or 1.0)
        return found

    encode_queries = encode_documents


def work(step: str, root: Path, artifacts: Path) -> dict[str, Any]:
    """One measured step, in this process."""
    overrides = [f'outputs="{root}"', f'crawl.artifact_dir="{artifacts}"']
    if step.endswith("operations"):
        overrides += ['crawl.granularity="operation"', "crawl.n8n_official=true"]
    if step == "official_operations":
        overrides += [f"crawl.packages={json.dumps(OFFICIAL)}"]
    settings = load_settings("local", overrides=overrides, env={}, run="scale")
    ctx = RunContext.create(settings, Progress(quiet=True))
    seconds: dict[str, float] = {}
    rows: dict[str, Any] = {}
    for stage in _stages(step):
        started = time.monotonic()
        rows[stage.name] = execute(stage, ctx).report.rows
        seconds[stage.name] = round(time.monotonic() - started, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "peak_mib": round(peak, 1), "rows": rows}


def _stages(step: str) -> list[Stage]:
    import ecoagent.reliability.stage as score_module
    from ecoagent.crawlers import CrawlStage, NormalizeStage

    if step.endswith("operations"):
        return [CrawlStage(), NormalizeStage()]
    if step == "normalize":
        return [NormalizeStage()]
    score_module.load_sbert = lambda ctx, name: HashEncoder()  # type: ignore[assignment, return-value]
    return [score_module.ScoreStage()]


def measured(step: str, root: Path, artifacts: Path) -> dict[str, Any]:
    """One step in a process of its own, so that its peak is its own."""
    report = root / f"{step}.json"
    command = [sys.executable, __file__, "--step", step, "--folder", str(root), "--artifacts", str(artifacts)]
    subprocess.run([*command, "--report", str(report)], check=True)
    found: dict[str, Any] = read_json(report)
    print(f"{step}: {found['seconds']} s, peak {found['peak_mib']:.0f} MiB, rows {found['rows']}")
    return found


def machine() -> dict[str, Any]:
    """Cores this process may use, and how busy they are with other work."""
    return {"cores": len(os.sched_getaffinity(0)), "load_before": round(os.getloadavg()[0], 2)}


def run_operations(step: str, root: Path, artifacts: Path) -> dict[str, Any]:
    """Both official n8n packages, or all of the lock file, at operation granularity."""
    root.mkdir(parents=True, exist_ok=True)
    where = machine()
    found = measured(step, root, artifacts)
    total = round(sum(found["seconds"].values()), 1)
    within = total <= LIMIT_S and found["peak_mib"] <= LIMIT_MIB
    print(f"{step}: {total} s of {LIMIT_S:.0f}, {found['peak_mib']:.0f} MiB of {LIMIT_MIB:.0f}")
    limits = {"limit_s": LIMIT_S, "limit_mib": LIMIT_MIB, "within": within}
    return {**where, **found, "total_seconds": total, **limits}


def run_synthetic(root: Path, count: int, artifacts: Path) -> dict[str, Any]:
    """A synthetic catalog through normalize and score."""
    run = root / "runs" / "scale"
    started = time.monotonic()
    size = write_catalog(run / "raw", count)
    print(f"synthetic catalog: {count:,} candidates, {size / 1e9:.2f} GB, {time.monotonic() - started:.0f} s")
    where = machine()
    steps = {name: measured(name, root, artifacts) for name in ("normalize", "score")}
    core = {p.name: p.stat().st_size for p in sorted((run / "core").iterdir())}
    return {
        "candidates": count,
        "candidate_bytes": size,
        "encoder": HashEncoder.name,
        **where,
        "steps": steps,
        "table_bytes": core,
    }


def main() -> None:
    """Run the chosen measurement, print its figures and add them to the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tools", type=int, default=1_000_000)
    parser.add_argument("--operations", action="store_true", help="the real packages instead")
    parser.add_argument("--all", action="store_true", help="with --operations: every package of the lock")
    parser.add_argument("--artifacts", type=Path, default=Path("outputs/store/artifacts"))
    parser.add_argument("--folder", type=Path, help="where to work; none = a temporary folder")
    parser.add_argument("--keep", action="store_true", help="leave the synthetic data there")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    artifacts = given.artifacts.resolve()
    if given.step:
        write_json(given.report, work(given.step, given.folder, artifacts))
        return
    root = (given.folder or Path(tempfile.mkdtemp(prefix="ecoagent-scale-"))).resolve()
    try:
        if given.operations:
            name = "operations" if given.all else "official_operations"
            figures = run_operations(name, root, artifacts)
        else:
            name, figures = f"synthetic_{given.tools}", run_synthetic(root, given.tools, artifacts)
    finally:
        if not given.keep:
            shutil.rmtree(root / "runs" if given.folder else root, ignore_errors=True)
    known = read_json(given.results) if given.results.is_file() else {}
    write_json(given.results, known | {name: figures})


if __name__ == "__main__":
    main()
