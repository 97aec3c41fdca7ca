"""The reference build: stored responses and statistics that others replay and compare with.

``freeze`` takes them from a finished run; ``compare`` says where another run of the same settings differs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ecoagent.llm import ResponseStore, open_reference, write_reference
from ecoagent.llm.reference import FILE
from ecoagent.models import ModelStore
from ecoagent.prompts import prompt_digests
from ecoagent.runs import (
    Kind,
    RunContext,
    digest,
    load_manifest,
    processor,
    read_object,
    read_rows,
    read_table,
    sha256_file,
    with_fields,
    write_json,
    write_table,
)
from ecoagent.schema import SCHEMA_VERSION, QueryRow
from ecoagent.settings import MissingInputError, UserError, result_settings

STATISTICS = "statistics.json"
STAGES = ("crawl", "normalize", "score", "synthesize", "label")
SECTIONS = ("crawl", "reliability", "llm", "synthesis", "labeling")
RESPONSE_TABLES = ("syn_responses", "real_responses")
_ENCODED = pl.selectors.float()
"""Cosines: their last digit depends on the processor, and what is ranked by them with it."""
_BY_COSINE = frozenset({"round_trip_rank"})
_CHOSEN_BY_COSINE = frozenset({"syn_pairs", "duplicates"})
RELABEL = "run `ecoagent label --force` on the run"
REFREEZE = "name the folder of a reference build, or write it again with `ecoagent freeze --force`"
_WITH_ORIGIN = "syn_queries"
"""Its queries say live or replayed; a reference build is known by what a replay of it writes."""


@dataclass(frozen=True)
class Difference:
    """A table or number of a run that is not as in the reference build."""

    what: str
    expected: str
    found: str
    machine: bool
    """Whether a processor's arithmetic alone may be the cause."""


def freeze(ctx: RunContext, folder: Path) -> dict[str, Any]:
    """Write a run's responses and statistics.

    Where the folder holds a build of the same content, the digests of this kind of processor are added to it.

    Args:
        ctx: a run whose stages up to ``label`` are done.
        folder: where ``responses.parquet`` and ``statistics.json`` go.

    Returns:
        The statistics.

    Raises:
        UserError: a table is missing, or a response is in no store.
    """
    wanted = _wanted(ctx)
    rows = {r["request_hash"]: r for r in _held(ctx, wanted)}
    lost = sorted(wanted - rows.keys())
    if lost:
        raise UserError(
            f"{len(lost)} of {len(wanted)} responses of the run are in no store, the first is {lost[0]}",
            remedy="set llm.store to the store the run was made with",
        )
    path = write_reference(folder / FILE, [rows[h] for h in sorted(rows)])
    found = _joined(folder, statistics(ctx))
    found["responses"] = {
        "file": FILE,
        "rows": len(wanted),
        "sha256": sha256_file(path),
        "tokens_in": sum(r["tokens_in"] for r in rows.values()),
        "tokens_out": sum(r["tokens_out"] for r in rows.values()),
    }
    write_json(folder / STATISTICS, found)
    return found


def _joined(folder: Path, found: dict[str, Any]) -> dict[str, Any]:
    """``found``, or what the folder holds with the digests of this kind of processor added to it.

    Tables of the same content are the same reference build: it stays as it was generated.
    """
    if not (folder / STATISTICS).is_file():
        return {**found, "elsewhere": {}}
    before = load_statistics(folder)
    same = ("rows", "content")
    content = [{n: [t[k] for k in same] for n, t in part["tables"].items()} for part in (before, found)]
    if content[0] != content[1]:
        return {**found, "elsewhere": {}}
    others = {**before["elsewhere"], found["machine"]: _sums(found)}
    if found["machine"] == before["machine"]:
        del others[before["machine"]]
        return {**found, "elsewhere": others}
    return {**before, "elsewhere": {name: others[name] for name in sorted(others)}}


def _sums(statistics: dict[str, Any]) -> dict[str, str]:
    return {name: table["sha256"] for name, table in statistics["tables"].items()}


def _wanted(ctx: RunContext) -> set[str]:
    """Hashes of the answers a run's tables rest on."""
    hashes: set[str] = set()
    for name in RESPONSE_TABLES:
        path = ctx.paths.core / f"{name}.parquet"
        if not path.is_file():
            raise MissingInputError(f"{path} is not there", remedy="run `ecoagent build` first")
        table = read_table(path, ("status", "request_hash")).filter(pl.col("status") == "ok")
        hashes |= set(table["request_hash"].to_list())
    return hashes


def _held(ctx: RunContext, wanted: set[str]) -> Iterator[dict[str, Any]]:
    reference = open_reference(ctx.settings.llm.reference) if ctx.settings.llm.reference else None
    if reference is not None:
        yield from reference.dump(wanted)
    store = ResponseStore(ctx.settings.llm.store)
    try:
        yield from (row for row in store.dump(wanted) if row["status"] == "ok")
    finally:
        store.close()


def statistics(ctx: RunContext) -> dict[str, Any]:
    """What the reference build is known by: settings, prompts, weights, and every table's size and digests.

    Raises:
        MissingInputError: a stage has not run.
    """
    stages = load_manifest(ctx.paths.manifest).get("stages", {})
    missing = [s for s in STAGES if s not in stages]
    if missing:
        raise MissingInputError(f"stage {missing[0]!r} has not run", remedy="run `ecoagent build` first")
    settings = ctx.settings
    store = ModelStore(settings.models)
    encoders = sorted({settings.reliability.encoder, settings.synthesis.encoder, settings.labeling.encoder})
    chosen = result_settings(settings, SECTIONS)
    chosen["llm"].pop("reference", None)
    return {
        "schema_version": SCHEMA_VERSION,
        "seed": settings.seed,
        "settings": chosen,
        "prompts": prompt_digests(),
        "models": {name: store.digest(name) for name in sorted({settings.llm.model, *encoders})},
        "tables": {p.stem: table_facts(p) for p in _tables(ctx, stages)},
        "synthesize": stages["synthesize"]["summary"],
        "label": read_object(ctx.paths.core / "label_stats.json", remedy=RELABEL),
        "machine": processor(),
    }


def _tables(ctx: RunContext, stages: dict[str, Any]) -> list[Path]:
    outputs = {o for stage in STAGES[1:] for o in stages[stage]["outputs"]}
    return sorted(ctx.paths.root / o for o in outputs if o.startswith("core/") and o.endswith(".parquet"))


def table_facts(path: Path) -> dict[str, Any]:
    """Rows of a table, the digest of its bytes, and that of what no encoder computed.

    Both are of the table that a replay writes: a live run and its replay are the same reference build.
    """
    with tempfile.TemporaryDirectory() as folder:
        if path.stem == _WITH_ORIGIN:
            path = _as_replayed(path, Path(folder))
        table = read_table(path)
        plain = table.select(~_ENCODED).drop(*(c for c in table.columns if c in _BY_COSINE))
        return {
            "rows": table.height,
            "sha256": sha256_file(path),
            "content": None if path.stem in _CHOSEN_BY_COSINE else digest(plain.to_dicts()),
        }


def _as_replayed(path: Path, folder: Path) -> Path:
    rows = (row.model_copy(update={"origin": "replayed"}) for row in read_rows(path, QueryRow))
    return write_table(folder / path.name, rows, QueryRow)


def load_statistics(folder: Path) -> dict[str, Any]:
    """The statistics of a reference build.

    Raises:
        UserError: the folder holds none, or a damaged one.
    """
    path = folder / STATISTICS
    if not path.is_file():
        raise UserError(f"{path} is not there", remedy="name the folder of a reference build")
    kinds: dict[str, Kind] = {"prompts": dict, "models": dict, "tables": dict, "machine": str}
    found = read_object(path, kinds, remedy=REFREEZE)
    if not found["tables"]:
        raise UserError(f"{path} is damaged: 'tables' names no table", remedy=REFREEZE)
    facts: dict[str, Kind] = {"rows": int, "sha256": str, "content": (str, type(None))}
    for name, table in found["tables"].items():
        with_fields(path, table, facts, within=f"tables.{name}", remedy=REFREEZE)
    others = found.setdefault("elsewhere", {})
    with_fields(path, found, {"elsewhere": dict}, within="", remedy=REFREEZE)
    for machine, sums in others.items():
        with_fields(
            path, sums, dict.fromkeys(found["tables"], str), within=f"elsewhere.{machine}", remedy=REFREEZE
        )
    return found


def compare(ctx: RunContext, folder: Path) -> list[Difference]:
    """Where a run differs from a reference build: rows, content, bytes of every table; prompts; weights.

    Bytes are compared with those of the kind of processor whose tables are most like the run's.
    """
    expected, found = load_statistics(folder), statistics(ctx)
    differences = [
        Difference(f"{part} {name}", str(value), str(found[part].get(name)), machine=False)
        for part in ("prompts", "models")
        for name, value in expected[part].items()
        if found[part].get(name) != value
    ]
    absent = {"rows": None, "sha256": None, "content": None}
    here = _sums(found)
    sums = min(
        (_sums(expected), *expected["elsewhere"].values()),
        key=lambda known: sum(known.get(name) != here.get(name) for name in {*known, *here}),
    )
    for name in sorted({*expected["tables"], *found["tables"]}):
        facts, there = (part["tables"].get(name, absent) for part in (expected, found))
        facts = {**facts, "sha256": sums.get(name)}
        for key in ("rows", "content", "sha256"):
            if there[key] != facts[key]:
                machine = key == "sha256" or name in _CHOSEN_BY_COSINE
                differences.append(Difference(f"{name} {key}", str(facts[key]), str(there[key]), machine))
                break
    return differences
