"""Stages that judge the run's rankers on independent collections: one a set, one shard a ranker.

A set's results are its own file; ``write_benchmarks`` puts together what is there. A set that is judged later
does not disturb the others, and a killed command takes up at the ranker it was at.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
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
from ecoagent.evaluation.offline import check_rankers, load_run, save_run
from ecoagent.evaluation.ranking import resources_of
from ecoagent.evaluation.train_stage import SIAMESE, model_folder
from ecoagent.evaluation.trec import write_qrels, write_run
from ecoagent.metrics import METRICS, TOOLRET_METRICS
from ecoagent.models import ModelStore
from ecoagent.retrieval import Encoder, RankerResources, find_ranker
from ecoagent.retrieval.stored import keep_vectors, store_folder
from ecoagent.runs import (
    RunContext,
    Shard,
    ShardResult,
    Stage,
    StageReport,
    digest,
    read_json,
    read_object,
    sha256_file,
    sha256_text,
    write_json,
    write_text,
)
from ecoagent.settings import UserError

RESULT, TABLE, PARTS = "benchmarks.json", "benchmarks.csv", "benchmarks"
RUN_FILE, FAULT = "run.parquet", "not_run.json"
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


def ranker_keys(ctx: RunContext, names: Sequence[str]) -> dict[str, str]:
    """What identifies each ranker's weights and settings.

    Raises:
        UserError: a ranker is unknown, or is RATED's and this run has no trained towers.
    """
    check_rankers(names)
    settings, baselines = ctx.settings.train, ctx.settings.baselines
    store = ModelStore(ctx.settings.models)
    used = {"pooling", "max_length", "query_prefix", "tool_prefix", "query_encoder", "tool_encoder"}
    trained: dict[str, Any] = {}
    keys = {}
    for name in names:
        ranker = find_ranker(name)
        content: dict[str, Any] = {
            "declared": asdict(ranker.declared),
            "model": ranker.model(settings, baselines),
        }
        if ranker.trained:
            kind = ranker.declared.kind
            if kind not in trained:
                trained[kind] = _siamese(ctx) if kind == SIAMESE else _trained(ctx, name)
            content["weights"] = trained[kind]
        else:
            content["weights"] = {m: _model_digest(store, m) for m in ranker.models(settings)}
        if not ranker.trained and (ranker.own or ranker.parts(settings)):
            content["settings"] = settings.model_dump(mode="json", include=used)
        if ranker.declared.kind == "endpoint":
            content["endpoint"] = baselines.base_url
        keys[name] = digest(content)
    return keys


def _model_digest(store: ModelStore, name: str) -> str:
    try:
        return store.digest(name)
    except UserError:
        return name  # not of the table: its ranker says what it lacks when it is run


def _trained(ctx: RunContext, ranker: str) -> dict[str, str]:
    folder = model_folder(ctx)
    if not folder.is_dir():
        raise UserError(
            f"run {ctx.settings.run_name!r} has no trained towers, and ranker {ranker!r} needs them",
            remedy="run `ecoagent train` first, name the run with --run, or leave the trained rankers out: "
            """--set 'evaluate.rankers=["tfidf", "bm25", "encoder"]'""",
        )
    return _files(folder)


def _siamese(ctx: RunContext) -> list[Any]:
    """Files of the siamese encoder, none where it is not trained, and what is added to its vectors."""
    return [_files(model_folder(ctx, SIAMESE)), ctx.settings.train.siamese.expansion_weight]


def _files(folder: Path) -> dict[str, str]:
    return {
        p.relative_to(folder).as_posix(): sha256_file(p) for p in sorted(folder.rglob("*")) if p.is_file()
    }


class BenchmarkStage(Stage):
    """Ranks the queries of one set with every ranker, and judges the rankings; see ``benchmark_stage``."""

    version: ClassVar[str] = "1"
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
        """A ranker that could not be run is tried again."""
        return not (directory / FAULT).is_file()

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
        """Rank the set's queries with one ranker; what it lacks is written instead where it cannot be run."""
        name, asked = shard.ids[0], _asked(shard.ids[1])
        ranker, benchmark = find_ranker(name), self.benchmark
        queries = benchmark.texts(asked, dense=ranker.dense)
        shards = [s.key for s in self.plan(ctx)]
        ctx.progress.say(
            f"{benchmark.name}: ranking {shards.index(shard.key) + 1} of {len(shards)}, {shard.key}"
        )
        store = ModelStore(ctx.settings.models)
        train, own = ctx.settings.train, resources_of(ctx)
        resources = StoredResources(
            train,
            own.model_path,
            own.trained,
            own.baselines,
            siamese=own.siamese,
            folder=store_folder(ctx.settings),
            # Vectors of what it starts from are kept as well.
            keys=ranker_keys(ctx, [name, *ranker.parts(train)]),
        )
        work = ranker.work(train, queries, benchmark.tools)
        total, unit = work or len(queries), "queries"
        if work:
            unit = "pairs" if ranker.declared.kind == "reranker" else "texts"
        with ctx.progress.task(f"{benchmark.name}: {shard.key}", total=total, unit=unit) as task:
            try:
                if fault := ranker.fault(train, ctx.settings.baselines, store):
                    raise UserError(fault)
                found = ranker.rank(
                    resources, queries, benchmark.tools, ctx.settings.evaluate.depth, task.advance
                )
            except UserError as error:
                ctx.progress.say(f"{benchmark.name}: {shard.key} not run: {error.message}")
                write_json(directory / FAULT, {"ranker": name, "asked": asked, "why": str(error)})
                return
            if not work:
                task.advance(total)
        save_run(directory / RUN_FILE, found)

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """The set's rows, its qrels and its runs."""
        benchmark, folder = self.benchmark, ctx.paths.out / PARTS / slug(self.benchmark.name)
        rows: list[dict[str, Any]] = []
        not_run: list[dict[str, Any]] = []
        outputs = [write_qrels(folder / f"{SPLIT}.qrels", benchmark.golds)]
        for result in results:
            name, asked = result.shard.ids[0], _asked(result.shard.ids[1])
            if (result.directory / FAULT).is_file():
                label = find_ranker(name).label(ctx.settings.train, ctx.settings.baselines)
                not_run.append({**read_json(result.directory / FAULT), "label": label})
                continue
            run = load_run(result.directory / RUN_FILE, name)
            row = benchmark_row(benchmark, run, asked, ctx.settings.train, ctx.settings.seed)
            rows.append({**row, "key": self._keys[name]})
            outputs.append(write_run(folder / f"{SPLIT}.{result.shard.key}.run", run))
        for stale in sorted({*folder.glob("*.run"), *folder.glob("*.qrels")} - set(outputs)):
            stale.unlink()
        facts = benchmark.facts() | {"not_run": not_run}
        part = ctx.paths.out / "results" / PARTS / f"{slug(benchmark.name)}.json"
        outputs.append(write_json(part, {"set": facts, "rows": rows}))
        return StageReport(
            outputs, {"rows": len(rows)}, summary={"set": benchmark.name, "incomplete": bool(not_run)}
        )


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
                f"{found['set']['set']}: {len(found['rows']) - len(kept)} rows are of other weights and are "
                "left out; judge the set again"
            )
        if kept or found["set"]["not_run"]:
            sets.append(found["set"])
            rows += kept
    notes = [*NOTES, *([OWN_NOTE] if any(row.get("own_metrics") for row in rows) else [])]
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
    """All rows with every metric and its interval, as CSV."""
    metrics = [name for name in METRICS if any(name in row["metrics"] for row in rows)]
    own = [name for name in TOOLRET_METRICS if any(name in row.get("own_metrics", {}) for row in rows)]
    head = ["set", "licence", "ranker", "label", "model", "asked", "queries", "golds"]
    bounds = [f"{name} {end}" for name in metrics for end in ("low", "high")]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*head, *metrics, *bounds, *(f"own {name}" for name in own)])
    for row in rows:
        cells = [row["set"], licences[row["set"]], row["ranker"], row["label"], row["model"], row["asked"]]
        cells += [row["n_queries"], row["n_golds"], *(row["metrics"][name] for name in metrics)]
        cells += [bound for name in metrics for bound in row["intervals"][name]]
        writer.writerow([*cells, *(row.get("own_metrics", {}).get(name, "") for name in own)])
    return text.getvalue()


def shown_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows as the console shows them."""
    return [
        {
            "set": row["set"],
            "ranker": row["label"] + (", with instruction" if row["asked"] == "instruction" else ""),
            "queries": row["n_queries"],
            **{name: round(row["metrics"][name], 3) for name in SHOWN},
            "MRR 95%": "-".join(f"{value:.3f}" for value in row["intervals"]["MRR"]),
            **{f"own {n}": round(v, 3) for n, v in row.get("own_metrics", {}).items() if n.endswith("@10")},
        }
        for row in rows
    ]
