"""Stages that judge the run's rankers on independent collections: one a set, one shard a ranker.

A set's results are its own file; ``write_benchmarks`` puts together what is there. A set that is judged later
does not disturb the others, and a killed command takes up at the ranker it was at.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ecoagent.evaluation.benchmarks import (
    NOTES,
    OWN_NOTE,
    SPLIT,
    Asked,
    Benchmark,
    averages,
    benchmark_row,
)
from ecoagent.evaluation.offline import NOT_RUN, NotRun, Ranked, is_settled, load_ranked, save_ranked
from ecoagent.evaluation.ranking import lexical_notes, ranker_keys, resources_of
from ecoagent.evaluation.trec import write_qrels, write_run
from ecoagent.metrics import METRICS, TOOLRET_METRICS
from ecoagent.models import ModelStore
from ecoagent.retrieval import Encoder, RankedRun, Ranker, RankerResources, TextSet, find_ranker
from ecoagent.retrieval.encoders import OnBatch
from ecoagent.retrieval.stored import keep_vectors, store_folder
from ecoagent.runs import (
    RunContext,
    Shard,
    ShardResult,
    Stage,
    StageReport,
    read_object,
    sha256_text,
    write_json,
    write_text,
)
from ecoagent.settings import UserError

RESULT, TABLE, PARTS = "benchmarks.json", "benchmarks.csv", "benchmarks"
SECONDS_PER_TEXT, MINILM_MB = 1 / 152, 90.9
"""MiniLM on two cores at 44 tokens; other encoders are estimated by the size of their weights."""
SHOWN = ("MRR", "nDCG@10", "Recall@1", "Recall@5", "Recall@10", "Hit@5")


@dataclass(frozen=True)
class StoredResources(RankerResources):
    """Resources whose encoders keep their vectors: tools of a set are encoded once for each encoder.

    Attributes:
        folder: where vectors are kept.
        keys: ranker to what identifies its weights and settings.
    """

    folder: Path = Path()
    keys: Mapping[str, str] | None = None

    def encoder_of(self, ranker: str) -> Encoder:
        """The encoder of a dense ranker behind its stored vectors; see ``RankerResources``."""

        def load() -> Encoder:
            return RankerResources.encoder_of(self, ranker)

        key = (self.keys or {}).get(ranker)
        return load() if key is None else keep_vectors(ranker, key, self.folder, load)


class BenchmarkStage(Stage):
    """Ranks the queries of one set with every ranker, and judges the rankings; see ``benchmark_stage``."""

    version: ClassVar[str] = "2"
    shards_alone: ClassVar[bool] = True

    def __init__(self, benchmark: Benchmark, keys: Mapping[str, str]) -> None:
        self.benchmark, self._keys = benchmark, keys

    def extra_key(self, ctx: RunContext) -> dict[str, Any]:
        """The set and the rankers."""
        return {
            "set": self.benchmark.content,
            "facts": self.benchmark.facts(),
            "rankers": dict(self._keys),
            "depth": ctx.settings.evaluate.depth,
        }

    def plan(self, ctx: RunContext) -> list[Shard]:
        """One shard a ranker, and one more with the set's instructions where it has them."""
        return [
            Shard(name if asked == "query" else f"{name}+{asked}", (name, asked))
            for name in self._keys
            for asked in self.benchmark.asked
        ]

    def shard_content(self, ctx: RunContext, shard: Shard) -> Any:
        """The set, the ranker's weights and the depth."""
        return [self.benchmark.content, self._keys[shard.ids[0]], ctx.settings.evaluate.depth]

    def shard_finished(self, directory: Path) -> bool:
        """Whether it is not a ranker that is tried again."""
        return is_settled(directory)

    def estimate(self, ctx: RunContext) -> dict[str, Any]:
        """Texts to encode at most, and minutes where the size of the weights is known."""
        settings = ctx.settings.train
        sizes = {s.name: s.size_mb for s in ModelStore(ctx.settings.models).status()}
        tools = len(set(self.benchmark.tools.texts))
        texts, seconds, unknown = 0, 0.0, []
        for name in self._keys:
            if not find_ranker(name).dense:
                continue
            asked = {t for a in self.benchmark.asked for t in self.benchmark.texts(a, dense=True).texts}
            texts += tools + len(asked)
            size = max((sizes.get(m) or 0.0 for m in find_ranker(name).models(settings)), default=0.0)
            seconds += (tools + len(asked)) * SECONDS_PER_TEXT * size / MINILM_MB
            if not size:
                unknown.append(name)
        minutes: float | str = round(seconds / 60, 1)
        return {
            "queries": len(self.benchmark.queries),
            "tools": len(self.benchmark.tools),
            "rankings": len(self.plan(ctx)),
            "texts to encode at most": texts,
            "minutes on 2 cores": minutes if not unknown else f"more than {minutes} ({', '.join(unknown)})",
        }

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        """Rank the set's queries with one ranker, or say why it cannot be run."""
        name, asked = shard.ids[0], _asked(shard.ids[1])
        ranker, benchmark = find_ranker(name), self.benchmark
        queries = benchmark.texts(asked, dense=ranker.dense)
        shards = [s.key for s in self.plan(ctx)]
        ctx.progress.say(
            f"{benchmark.name}: ranking {shards.index(shard.key) + 1} of {len(shards)}, {shard.key}"
        )
        train = ctx.settings.train
        resources = StoredResources(
            **vars(resources_of(ctx)),
            folder=store_folder(ctx.settings),
            # Vectors of what it starts from are kept as well.
            keys=ranker_keys(ctx, [name, *ranker.parts(train)]),
        )
        work = ranker.work(train, queries, benchmark.tools)
        total, unit = work or len(queries), "queries"
        if work:
            unit = "pairs" if ranker.declared.kind == "reranker" else "texts"
        with ctx.progress.task(f"{benchmark.name}: {shard.key}", total=total, unit=unit) as task:
            found = self._ranked(ctx, ranker, resources, queries, task.advance)
            if not work and isinstance(found, RankedRun):
                task.advance(total)
        if isinstance(found, NotRun):
            ctx.progress.say(f"{benchmark.name}: {shard.key} is not run: {found.reason}")
        save_ranked(directory, found)

    def _ranked(
        self, ctx: RunContext, ranker: Ranker, resources: RankerResources, queries: TextSet, on_batch: OnBatch
    ) -> Ranked:
        settings = ctx.settings
        fault = ranker.fault(settings.train, settings.baselines, ModelStore(settings.models))
        if fault is not None:
            return NotRun(ranker.name, fault)
        try:
            return ranker.rank(resources, queries, self.benchmark.tools, settings.evaluate.depth, on_batch)
        except UserError as error:
            # One of the run's own encoders, too: other rankers and sets do not hang on it.
            return NotRun(ranker.name, error.message, again=True)

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """The set's rows, its qrels and its runs."""
        benchmark, folder = self.benchmark, ctx.paths.out / PARTS / slug(self.benchmark.name)
        settings = ctx.settings
        rows: list[dict[str, Any]] = []
        again: list[str] = []
        outputs = [write_qrels(folder / f"{SPLIT}.qrels", benchmark.golds)]
        for result in results:
            name, asked = result.shard.ids[0], _asked(result.shard.ids[1])
            found = load_ranked(result.directory, name)
            row = benchmark_row(benchmark, found, asked, settings.train, settings.seed, settings.baselines)
            rows.append({**row, "key": self._keys[name]})
            if isinstance(found, RankedRun):
                outputs.append(write_run(folder / f"{SPLIT}.{result.shard.key}.run", found))
            elif found.again:
                again.append(result.shard.key)
        for stale in sorted({*folder.glob("*.run"), *folder.glob("*.qrels")} - set(outputs)):
            stale.unlink()
        part = ctx.paths.out / "results" / PARTS / f"{slug(benchmark.name)}.json"
        outputs.append(write_json(part, {"set": benchmark.facts(), "rows": rows}))
        return StageReport(outputs, {"rows": len(rows)}, summary={"set": benchmark.name, "incomplete": again})


def benchmark_stage(benchmark: Benchmark, keys: Mapping[str, str]) -> BenchmarkStage:
    """The stage of one set.

    Args:
        keys: of ``ranker_keys``, in the order of the table.
    """

    class OneBenchmark(BenchmarkStage):
        name: ClassVar[str] = f"benchmark-{slug(benchmark.name)}"

    return OneBenchmark(benchmark, keys)


def slug(name: str) -> str:
    """A set's name as a file's; names that would fall together keep apart by a hash."""
    short = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "set"
    return short if short == name else f"{short[:80]}-{sha256_text(name)[:6]}"


def _asked(text: str) -> Asked:
    return "instruction" if text == "instruction" else "query"


def write_benchmarks(ctx: RunContext, say: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Put the results of every set judged so far into ``benchmarks.json`` and ``benchmarks.csv``.

    Rows of a ranker whose weights or settings are no longer those of the run are left out.

    Args:
        say: told what was left out.

    Raises:
        UserError: a result file is damaged.
    """
    folder = ctx.paths.out / "results"
    sets: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    current: dict[str, str | None] = {}
    for path in sorted((folder / PARTS).glob("*.json")):
        remedy = f"remove {path} and judge the set again"
        found = read_object(path, {"set": dict, "rows": list}, remedy=remedy)
        kept = []
        for row in found["rows"]:
            if row["ranker"] not in current:
                current[row["ranker"]] = _current_key(ctx, row["ranker"])
            if row["key"] == current[row["ranker"]]:
                kept.append({name: value for name, value in row.items() if name != "key"})
        if say is not None and len(kept) < len(found["rows"]):
            say(
                f"{found['set']['set']}: {len(found['rows']) - len(kept)} rows are of other weights "
                "or settings and are left out; judge the set again"
            )
        if kept:
            sets.append(found["set"])
            rows += kept
    notes = [*NOTES, *lexical_notes(ctx.settings, dict.fromkeys(row["ranker"] for row in rows))]
    notes += [*([OWN_NOTE] if any(row.get("own_metrics") for row in rows) else [])]
    origins = {facts["set"]: facts["origin"] for facts in sets}
    result = {"sets": sets, "rows": rows, "averages": averages(rows, origins), "notes": notes}
    write_json(folder / RESULT, result)
    write_text(folder / TABLE, table_csv(rows, {facts["set"]: facts["licence"] for facts in sets}))
    return result


def _current_key(ctx: RunContext, ranker: str) -> str | None:
    try:
        return ranker_keys(ctx, [ranker])[ranker]
    except UserError:
        return None


def table_csv(rows: Sequence[Mapping[str, Any]], licences: Mapping[str, str]) -> str:
    """All rows with every metric and its interval, as CSV; no numbers where a ranker was not run."""
    metrics = [name for name in METRICS if any(name in row["metrics"] for row in rows)]
    own = [name for name in TOOLRET_METRICS if any(name in row.get("own_metrics", {}) for row in rows)]
    head = ["set", "licence", "ranker", "label", "model", "asked", "queries", "golds"]
    bounds = [f"{name} {end}" for name in metrics for end in ("low", "high")]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*head, *metrics, *bounds, *(f"own {name}" for name in own), "status"])
    for row in rows:
        cells = [row["set"], licences[row["set"]], row["ranker"], row["label"], row["model"], row["asked"]]
        cells += [row["n_queries"], row["n_golds"], *(row["metrics"].get(name, "") for name in metrics)]
        cells += [bound for name in metrics for bound in row["intervals"].get(name, ("", ""))]
        cells += [row.get("own_metrics", {}).get(name, "") for name in own]
        writer.writerow([*cells, row["status"]])
    return text.getvalue()


def shown_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows as the console shows them."""
    return [_shown_row(row, run=row["status"] != NOT_RUN) for row in rows]


def _shown_row(row: Mapping[str, Any], *, run: bool) -> dict[str, Any]:
    return {
        "set": row["set"],
        "ranker": row["label"] + (", with instruction" if row["asked"] == "instruction" else ""),
        "queries": row["n_queries"],
        **{name: round(row["metrics"][name], 3) if run else None for name in SHOWN},
        "MRR 95%": "-".join(f"{value:.3f}" for value in row["intervals"]["MRR"]) if run else NOT_RUN,
        **shown_own(row),
    }


def shown_own(row: Mapping[str, Any]) -> dict[str, float]:
    """A set's own metrics as the console shows them: at 10 alone."""
    return {f"own {n}": round(v, 3) for n, v in row.get("own_metrics", {}).items() if n.endswith("@10")}
