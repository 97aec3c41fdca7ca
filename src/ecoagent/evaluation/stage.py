"""Stage ``evaluate``: the offline table, the dynamic table and the runs behind them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, ClassVar

from ecoagent.evaluation.cold_start import RESULT as COLD_START
from ecoagent.evaluation.cold_start import cold_start
from ecoagent.evaluation.comparison_files import TITLE, compare
from ecoagent.evaluation.datasets import load_core
from ecoagent.evaluation.dynamic import DynamicRow, dynamic_table
from ecoagent.evaluation.offline import (
    all_queries,
    check_rankers,
    judged_splits,
    load_run,
    offline_notes,
    offline_table,
    reported,
    save_run,
    write_trec,
)
from ecoagent.evaluation.rounding import rounded
from ecoagent.evaluation.slices import load_facts
from ecoagent.evaluation.stream import StreamSource
from ecoagent.evaluation.train_stage import deviations, model_folder
from ecoagent.models import ModelStore
from ecoagent.retrieval import RankerResources, find_ranker, rank_vectors
from ecoagent.runs import (
    RunContext,
    Shard,
    ShardResult,
    Stage,
    StageReport,
    digest,
    input_digests,
    read_json,
    read_object,
    write_json,
)
from ecoagent.settings import Settings

DYNAMIC = "dynamic"
DYNAMIC_RANKER = "rated"
DYNAMIC_SPLITS = (("syn", "test"), ("syn", "val"))
"""The stream's queries: the first of these that is reported."""
IMPORTED = "import.json"
RUN_FILE = "run.parquet"
_MODEL_LOCK = threading.Lock()
"""One encoder at a time: each uses every core, and their libraries are not safe to import twice at once."""


class EvaluateStage(Stage):
    """Judges every ranker on the reported splits, and every policy under failing tools."""

    name: ClassVar[str] = "evaluate"
    version: ClassVar[str] = "3"
    sections: ClassVar[tuple[str, ...]] = ("evaluate", "train")

    def inputs(self, ctx: RunContext) -> list[Path]:
        """Tools, queries and golds; the record of the training stands for the trained weights."""
        names = ["syn_qrels", "syn_queries", "tools"]
        if (ctx.paths.core / "real_queries.parquet").is_file():
            names += ["real_qrels", "real_queries"]
        imported = [p for p in (ctx.paths.core / IMPORTED,) if p.is_file()]
        tables = [ctx.paths.core / f"{name}.parquet" for name in names]
        return [*tables, ctx.paths.core / "training.json", *imported]

    def extra_key(self, ctx: RunContext) -> dict[str, Any]:
        """Digests of the untrained weights."""
        store, settings = ModelStore(ctx.settings.models), ctx.settings.train
        return {name: store.digest(name) for name in sorted({settings.query_encoder, settings.tool_encoder})}

    def plan(self, ctx: RunContext) -> list[Shard]:
        """One shard a ranker, and one for the dynamic table."""
        names = ctx.settings.evaluate.rankers
        check_rankers(names)
        return [*(Shard(f"ranker-{name}", (name,)) for name in names), Shard(DYNAMIC)]

    def shard_content(self, ctx: RunContext, shard: Shard) -> Any:
        """All inputs, for every shard."""
        return digest(input_digests(self, ctx))

    def estimate(self, ctx: RunContext) -> dict[str, Any]:
        """Texts to encode and steps to simulate."""
        splits = judged_splits(load_core(ctx.paths.core, need_pairs=False), ctx.settings.limit)
        settings = ctx.settings.evaluate
        runs = len(settings.rates) * len(settings.policies) * settings.seeds
        return {
            "rankers": len(settings.rankers),
            "queries": {split.name: len(split.queries) for split in splits},
            "simulated steps": runs * settings.steps,
        }

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        """Rank every query with one ranker, or simulate every policy."""
        if shard.key == DYNAMIC:
            write_json(directory / "dynamic.json", self._dynamic(ctx))
        else:
            self._rank(ctx, shard.ids[0], directory)

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """Metrics, result files and TREC files from the stored runs."""
        data = load_core(ctx.paths.core, need_pairs=False)
        splits = judged_splits(data, ctx.settings.limit)
        folders = {result.shard.key: result.directory for result in results}
        names = ctx.settings.evaluate.rankers
        runs = [load_run(folders[f"ranker-{name}"] / RUN_FILE, name) for name in names]
        rows = offline_table(runs, splits, ctx.settings.train, ctx.settings.seed)
        notes = offline_notes(data, splits, ctx.settings.evaluate.depth) + _training_notes(ctx)
        compared = compare(
            runs, splits, rows, data.groups, load_facts(ctx.paths.core), seed=ctx.settings.seed
        )
        notes += _import_notes(ctx)
        dynamic = read_json(folders[DYNAMIC] / "dynamic.json")
        out = ctx.paths.out
        outputs = [
            write_json(out / "results" / "offline.json", {"rows": rows, "notes": notes}),
            write_json(out / "results" / "dynamic.json", dynamic),
            *compared.write(out / "results"),
            write_json(
                out / "results" / COLD_START,
                cold_start(data, runs, splits, ctx.settings.train, ctx.settings.seed),
            ),
            *write_trec(out / "trec", runs, splits),
        ]
        return StageReport(
            outputs=outputs,
            rows={"offline": len(rows), "dynamic": len(dynamic["rows"])},
            summary={
                "Table 1, offline": summary_rows(rows),
                TITLE: compared.summary(),
                dynamic_title(dynamic): dynamic_summary(dynamic),
            },
        )

    def _rank(self, ctx: RunContext, name: str, directory: Path) -> None:
        settings = ctx.settings
        data = load_core(ctx.paths.core, need_pairs=False)
        queries = all_queries(judged_splits(data, settings.limit))
        ranker = find_ranker(name)
        if not ranker.dense:
            found = ranker.rank(_resources(ctx), queries, data.tools, settings.evaluate.depth, None)
        else:
            total = len(set(queries.texts)) + len(set(data.tools.texts))
            with (
                _MODEL_LOCK,
                ctx.progress.task(f"evaluate: {name}", total=total, unit="texts") as task,
            ):
                found = ranker.rank(
                    _resources(ctx), queries, data.tools, settings.evaluate.depth, task.advance
                )
        save_run(directory / RUN_FILE, found)

    def _dynamic(self, ctx: RunContext) -> dict[str, Any]:
        settings = ctx.settings
        data = load_core(ctx.paths.core, need_pairs=False)
        split = next((s for s in reported(data) if s in DYNAMIC_SPLITS), DYNAMIC_SPLITS[0])
        queries = data.judged(*split, settings.limit)
        where = " ".join(split)
        if not len(queries):
            return {"rows": [], "series": [], "notes": [f"{where}: not simulated, it has no judged query."]}
        with _MODEL_LOCK:
            encoder = _resources(ctx).encoder_of(DYNAMIC_RANKER)
            contexts = encoder.encode_queries(queries.texts)
            tools = encoder.encode_documents(data.tools.texts)
        run = rank_vectors(
            contexts, tools, queries.ids, data.tools.ids, settings.evaluate.top_k, name=DYNAMIC_RANKER
        )
        source = StreamSource(
            query_ids=run.query_ids,
            contexts=contexts,
            candidates=run.tool_ids,
            semantic=run.scores,
            golds=[data.golds[query] for query in run.query_ids],
            tool_ids=data.tools.ids,
            r_static=data.r_static,
            top_k=settings.evaluate.top_k,
        )
        policies = settings.evaluate
        total = len(policies.rates) * len(policies.policies) * policies.seeds
        with ctx.progress.task("evaluate: dynamic", total=total, unit="simulations") as task:
            rows = dynamic_table(
                source,
                settings.evaluate,
                ranker=DYNAMIC_RANKER,
                split=where,
                base_seed=settings.seed,
                on_simulation=task.advance,
            )
        return dynamic_result(rows, settings)


def _resources(ctx: RunContext) -> RankerResources:
    store = ModelStore(ctx.settings.models)
    trained = model_folder(ctx)
    return RankerResources(
        ctx.settings.train,
        lambda name: store.path(name, ctx.progress),
        trained if trained.is_dir() else None,
    )


def dynamic_result(rows: list[DynamicRow], settings: Settings) -> dict[str, Any]:
    """``out/results/dynamic.json``: rows and curves, rates as shares in [0, 1]."""
    label = find_ranker(DYNAMIC_RANKER).label(settings.train)
    table, series = [], []
    for row in rows:
        values = row.as_json()
        curve = values.pop("curve")
        set_name, _, split = row.split.partition(" ")
        spread = {"SR": row.success_rate, "FSR": row.fault_rate}
        metrics = {name: {"mean": found.mean, "sd": found.sd} for name, found in spread.items()}
        failed = sum(steps is None for steps in row.adaptation.steps)
        table.append(
            {
                **values,
                **metrics,
                "metrics": metrics,
                "AS": {"median": row.adaptation.median, "failed": failed, "steps": row.adaptation.steps},
                "executions_per_step": row.executions.mean,
                "ranker_label": label,
                "set": set_name,
                "split": split,
            }
        )
        series.append(
            {"policy": row.policy, "label": row.label, "rate": row.rate, "onset": row.onset, **curve}
        )
    notes = [
        f"Candidates: the first {settings.evaluate.top_k} tools of {label}; contexts: its query vectors.",
        "SR and FSR are shares of the steps in the window after onset: mean and deviation over seeds.",
        "AS: steps from onset until the trailing success rate is back at theta times its peak before.",
    ]
    if any(row.underpowered for row in rows):
        notes.append(
            f"Underpowered: fewer than {settings.evaluate.min_golds} distinct gold tools; "
            "differences between policies mean little."
        )
    result: dict[str, Any] = rounded({"rows": table, "series": series, "notes": notes})
    return result


def _import_notes(ctx: RunContext) -> list[str]:
    """What the import of another data set found out about it."""
    path = ctx.paths.core / IMPORTED
    return [str(note) for note in read_object(path, {"notes": list})["notes"]] if path.is_file() else []


def _training_notes(ctx: RunContext) -> list[str]:
    notes = []
    if {"encoder", "rated_wo_contrastive"} <= {*ctx.settings.evaluate.rankers}:
        notes.append(
            f"RATED w/o Contrastive is the untrained encoder with RATED's pooling "
            f"({ctx.settings.train.pooling}); the untrained encoder's own row has its makers' pooling."
        )
    found = deviations(ctx.settings.train)
    if found:
        listed = ", ".join(f"{d['setting']} = {d['here']} (paper: {d['paper']})" for d in found)
        notes.append(f"Training deviates from the paper: {listed}.")
    return notes


def summary_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The offline table as the console shows it."""
    shown = ("MRR", "Recall@1", "Recall@5")
    return [
        {
            "set": row["set"],
            "split": row["split"],
            "ranker": row["label"],
            "queries": row["n_queries"],
            **{name: round(row["metrics"][name], 3) for name in shown},
            "MRR 95%": "-".join(f"{value:.3f}" for value in row["intervals"]["MRR"]),
        }
        for row in rows
    ]


def _adaptation(row: dict[str, Any]) -> str:
    """Median steps to recovery; nothing to recover from where no tool was broken."""
    if row["failing"] == 0:
        return "no tool failed"
    steps = row["AS"]["median"]
    return "Failed" if steps is None else f"{steps:,.0f} ({row['AS']['failed']} of {row['seeds']} failed)"


def dynamic_title(dynamic: dict[str, Any]) -> str:
    """Name of the dynamic table, with the stamp it bears where its golds are few."""
    rows = dynamic["rows"]
    if not any(row["underpowered"] for row in rows):
        return "Table 2, dynamic"
    return f"Table 2, dynamic (UNDERPOWERED: {rows[0]['distinct_golds']} distinct gold tools)"


def dynamic_summary(dynamic: dict[str, Any]) -> list[dict[str, Any]]:
    """The dynamic table as the console shows it."""
    return [
        {
            "policy": row["label"],
            "rate": row["rate"],
            "SR": round(row["SR"]["mean"], 3),
            "FSR": round(row["FSR"]["mean"], 3),
            "AS": _adaptation(row),
            "failing": row["failing"],
            "executions": round(row["executions_per_step"], 2),
        }
        for row in dynamic["rows"]
    ]
