"""Stage ``evaluate``: the offline table, the dynamic table and the runs behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ecoagent.evaluation.cold_start import RESULT as COLD_START
from ecoagent.evaluation.cold_start import cold_start
from ecoagent.evaluation.comparison_files import FORMAT, TITLE, compare
from ecoagent.evaluation.datasets import load_core
from ecoagent.evaluation.dynamic import DynamicRow, dynamic_table
from ecoagent.evaluation.offline import (
    NOT_RUN,
    NotRun,
    check_rankers,
    is_settled,
    judged_splits,
    load_ranked,
    offline_notes,
    offline_table,
    reported,
    save_ranked,
    write_trec,
)
from ecoagent.evaluation.ranking import Rankings, faults, ranking_notes, resources_of
from ecoagent.evaluation.rounding import rounded
from ecoagent.evaluation.slices import load_facts
from ecoagent.evaluation.stream import StreamSource
from ecoagent.evaluation.train_stage import (
    MODEL_LOCK,
    RATED,
    RECORD,
    RECORDS,
    SIAMESE,
    SIAMESE_RECORD,
    deviations,
)
from ecoagent.retrieval import (
    RankedRun,
    find_ranker,
    rank_vectors,
)
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
from ecoagent.settings import Settings, result_settings

DYNAMIC = "dynamic"
DYNAMIC_RANKER = "rated"
DYNAMIC_SPLITS = (("syn", "test"), ("syn", "val"))
"""The stream's queries: the first of these that is reported."""
IMPORTED = "import.json"


class EvaluateStage(Stage):
    """Judges every ranker on the reported splits, and every policy under failing tools."""

    name: ClassVar[str] = "evaluate"
    version: ClassVar[str] = "3"
    sections: ClassVar[tuple[str, ...]] = ("baselines", "evaluate", "train")
    shards_alone: ClassVar[bool] = True

    def __init__(self) -> None:
        self._rankings = Rankings()

    def inputs(self, ctx: RunContext) -> list[Path]:
        """Tools, queries and golds; the record of the training stands for the trained weights."""
        names = ["syn_qrels", "syn_queries", "tools"]
        if (ctx.paths.core / "real_queries.parquet").is_file():
            names += ["real_qrels", "real_queries"]
        imported = [p for p in (ctx.paths.core / IMPORTED,) if p.is_file()]
        tables = [ctx.paths.core / f"{name}.parquet" for name in names]
        records = [ctx.paths.core / RECORD]
        if SIAMESE in ctx.settings.evaluate.rankers and (ctx.paths.core / SIAMESE_RECORD).is_file():
            records.append(ctx.paths.core / SIAMESE_RECORD)
        return [*tables, *records, *imported]

    def extra_key(self, ctx: RunContext) -> dict[str, Any]:
        """Digests of the weights, which baselines cannot run for want of them, the comparison's format."""
        names = ctx.settings.evaluate.rankers
        check_rankers(names)
        found = {name: self._rankings.standing(ctx, name) for name in (*names, DYNAMIC_RANKER)}
        return {**found, "comparison": FORMAT}

    def plan(self, ctx: RunContext) -> list[Shard]:
        """One shard a ranker, and one for the dynamic table."""
        names = ctx.settings.evaluate.rankers
        check_rankers(names)
        return [*(Shard(f"ranker-{name}", (name,)) for name in names), Shard(DYNAMIC)]

    def shard_content(self, ctx: RunContext, shard: Shard) -> Any:
        """What a ranking hangs on, the training only where it was trained; for Table 2, its settings too."""
        name = DYNAMIC_RANKER if shard.key == DYNAMIC else shard.ids[0]
        inputs = input_digests(self, ctx)
        behind = RECORDS[SIAMESE if name == SIAMESE else RATED] if find_ranker(name).trained else None
        for record in RECORDS.values():
            if record != behind:
                inputs.pop(ctx.paths.relative(ctx.paths.core / record), None)
        settings = result_settings(ctx.settings, ("evaluate",))
        evaluate = settings["evaluate"]
        del evaluate["rankers"]
        if shard.key != DYNAMIC:
            settings = {"limit": settings["limit"], "depth": evaluate["depth"]}
        return {"inputs": inputs, "settings": settings, "ranker": self._rankings.standing(ctx, name)}

    def shard_finished(self, directory: Path) -> bool:
        """Whether it is not the row of a baseline that is tried again."""
        return is_settled(directory)

    def estimate(self, ctx: RunContext) -> dict[str, Any]:
        """Texts to encode and steps to simulate."""
        splits = judged_splits(load_core(ctx.paths.core, need_pairs=False), ctx.settings.limit)
        settings = ctx.settings.evaluate
        runs = len(settings.rates) * len(settings.policies) * settings.seeds
        check_rankers(settings.rankers)
        return {
            "rankers": len(settings.rankers),
            "not run": faults(ctx.settings),
            "queries": {split.name: len(split.queries) for split in splits},
            "simulated steps": runs * settings.steps,
        }

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        """Rank every query with one ranker, or simulate every policy."""
        if shard.key == DYNAMIC:
            write_json(directory / "dynamic.json", self._dynamic(ctx))
        else:
            found = self._rankings.find(ctx, shard.ids[0], digest(input_digests(self, ctx)))
            if isinstance(found, NotRun):
                ctx.progress.say(f"evaluate: {found.name} is not run: {found.reason}")
            save_ranked(directory, found)

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """Metrics, result files and TREC files from the stored runs."""
        data = load_core(ctx.paths.core, need_pairs=False)
        splits = judged_splits(data, ctx.settings.limit)
        folders = {result.shard.key: result.directory for result in results}
        settings = ctx.settings
        found = [load_ranked(folders[f"ranker-{n}"], n) for n in settings.evaluate.rankers]
        runs = [one for one in found if isinstance(one, RankedRun)]
        missing = [one for one in found if isinstance(one, NotRun)]
        rows = offline_table(found, splits, settings.train, settings.seed, settings.baselines)
        notes = offline_notes(data, splits, settings.evaluate.depth) + _training_notes(ctx)
        notes += ranking_notes(settings, missing)
        notes += _import_notes(ctx)
        compared = compare(runs, splits, rows, data.clusters, load_facts(ctx.paths.core), seed=settings.seed)
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
                **({"not run": [_shown(settings, one) for one in missing]} if missing else {}),
                dynamic_title(dynamic): dynamic_summary(dynamic),
                **({"incomplete": again} if (again := [m.name for m in missing if m.again]) else {}),
            },
        )

    def _dynamic(self, ctx: RunContext) -> dict[str, Any]:
        settings = ctx.settings
        data = load_core(ctx.paths.core, need_pairs=False)
        split = next((s for s in reported(data) if s in DYNAMIC_SPLITS), DYNAMIC_SPLITS[0])
        queries = data.judged(*split, settings.limit)
        where = " ".join(split)
        if not len(queries):
            return {"rows": [], "series": [], "notes": [f"{where}: not simulated, it has no judged query."]}
        with MODEL_LOCK:
            encoder = resources_of(ctx).encoder_of(DYNAMIC_RANKER)
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


def _shown(settings: Settings, found: NotRun) -> dict[str, str]:
    label = find_ranker(found.name).label(settings.train, settings.baselines)
    return {"ranker": label, "why": found.reason}


def summary_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The offline table as the console shows it."""
    return [_summary_row(row) for row in rows]


def _summary_row(row: dict[str, Any]) -> dict[str, Any]:
    shown = ("MRR", "Recall@1", "Recall@5")
    run = row["status"] != NOT_RUN
    interval = "-".join(f"{value:.3f}" for value in row["intervals"]["MRR"]) if run else NOT_RUN
    return {
        "set": row["set"],
        "split": row["split"],
        "ranker": row["label"],
        "queries": row["n_queries"],
        **{name: round(row["metrics"][name], 3) if run else None for name in shown},
        "MRR 95%": interval,
    }


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
