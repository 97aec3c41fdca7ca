"""Stage ``feedback_train``: TR-Feedback's retriever, first on the queries as they are, then on q_0 to q_T."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, ClassVar, Literal

from ecoagent.evaluation.feedback_data import (
    FeedbackData,
    Timer,
    answered,
    batch_of,
    critic_engine,
    critics_of,
    load_feedback,
    prompts_and_reference,
    read_feedback,
    tables,
    with_critic,
    write_feedback,
)
from ecoagent.evaluation.feedback_estimate import training_estimate
from ecoagent.evaluation.offline import DECIMALS
from ecoagent.feedback import Feedback, Heard, IterationRetriever, Rounds, run_feedback, train_iterations
from ecoagent.llm import close_engines, counters_of, engine_record
from ecoagent.metrics import evaluate_run
from ecoagent.models import ModelStore
from ecoagent.retrieval import (
    SentenceEncoder,
    TextSet,
    build_two_tower,
    load_two_tower,
    plan_batches,
    save_two_tower,
)
from ecoagent.runs import (
    RunContext,
    Shard,
    ShardResult,
    Stage,
    StageReport,
    digest,
    read_json,
    sha256_file,
    write_json,
)
from ecoagent.settings import FeedbackSettings

MODEL, RECORD = "model", "training.json"
RESULT = "feedback_training.json"
WARM, FINAL = "warm", "iterations"
VALIDATED_BY = "nDCG@5"
SEARCH_DEPTH = 100
Part = Literal["train", "test"]


def model_folder(ctx: RunContext) -> Path:
    """Where the trained retriever of a run is."""
    return ctx.paths.raw / FeedbackTrainStage.name / FINAL / MODEL


def feedback_deviations(settings: FeedbackSettings) -> list[dict[str, Any]]:
    """Settings that differ from the defaults, which are the paper's where it gives any."""
    paper, here = FeedbackSettings().model_dump(mode="json"), settings.model_dump(mode="json")
    return [
        {"setting": f"feedback.{name}", "paper": paper[name], "here": here[name]}
        for name in sorted(here)
        if here[name] != paper[name]
    ]


class FeedbackTrainStage(Stage):
    """Trains on categories that are not held out; looks at train and val alone.

    The critic rewrites training queries once, on what the retriever finds after the first training; the
    second training goes on from there with every q_t.
    """

    name: ClassVar[str] = "feedback_train"
    version: ClassVar[str] = "1"
    sections: ClassVar[tuple[str, ...]] = ("feedback", "llm")

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._engine: dict[str, Any] = {}

    def inputs(self, ctx: RunContext) -> list[Path]:
        """Tools, queries and golds."""
        return [p for p in tables(ctx) if not p.name.startswith("real_")]

    def extra_key(self, ctx: RunContext) -> dict[str, Any]:
        """Prompts, published responses, weights and the limit."""
        encoder = ModelStore(ctx.settings.models).digest(ctx.settings.feedback.encoder)
        return {**prompts_and_reference(ctx.settings), "encoder": encoder, "limit": self.limit}

    def plan(self, ctx: RunContext) -> list[Shard]:
        """The training on q_0, and the one on every q_t."""
        return [Shard(WARM), Shard(FINAL)]

    def critic_queries(self, ctx: RunContext, found: FeedbackData) -> TextSet:
        """Training queries that are rewritten."""
        limits = [n for n in (ctx.settings.feedback.critic_queries, self.limit) if n is not None]
        return found.seen("train", min(limits) if limits else None)

    def estimate(self, ctx: RunContext) -> dict[str, Any]:
        """Pairs, steps and minutes of both trainings at most; the questions are in the next stage's."""
        found = load_feedback(ctx)
        return training_estimate(ctx, found, len(self.critic_queries(ctx, found)))

    def shard_finished(self, directory: Path) -> bool:
        """Whether every question was answered."""
        return answered(directory)

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        """Train from the untrained towers, or rewrite and train on."""
        found = load_feedback(ctx)
        if shard.key == WARM:
            self._warm(ctx, found, directory)
        else:
            self._iterations(ctx, found, directory)

    def _warm(self, ctx: RunContext, found: FeedbackData, directory: Path) -> None:
        settings = ctx.settings.feedback
        path = ModelStore(ctx.settings.models).path(settings.encoder, ctx.progress)
        model = build_two_tower(path, path, pooling=settings.pooling, max_length=settings.max_length)
        before = _score(found, SentenceEncoder(model, name="untrained"))
        record = self._train(ctx, model, found, {}, directory, "q_0")
        write_json(directory / RECORD, {**record, "untrained": before})

    def _iterations(self, ctx: RunContext, found: FeedbackData, directory: Path) -> None:
        critic = critics_of(ctx.settings)[0]
        warm = ctx.paths.raw / self.name / WARM / MODEL
        encoder = load_two_tower(warm, name="feedback")
        queries = self.critic_queries(ctx, found)
        asked = with_critic(ctx.settings, critic)
        before = counters_of(asked)
        feedback = ask_critic(
            ctx, found, IterationRetriever(encoder, found.data.tools), queries, critic, part="train"
        )
        self._engine = engine_record(asked, before)
        close_engines()  # frees the critic's memory for training
        write_feedback(directory, feedback.rows, feedback.responses)
        texts: dict[str, dict[int, str]] = {}
        for row in feedback.rows:
            if row.status == "rewritten":
                texts.setdefault(row.query_id, {})[row.iteration] = row.text
        if not texts:
            # Nothing to learn from: the towers stay as the first training left them.
            save_two_tower(encoder.model.eval(), directory / MODEL)
            write_json(directory / RECORD, {"pairs": 0, "texts": {}, **_said(Rounds())})
            return
        record = self._train(ctx, encoder.model, found, texts, directory, "q_0 to q_T")
        write_json(directory / RECORD, record)

    def _train(
        self,
        ctx: RunContext,
        model: Any,
        found: FeedbackData,
        texts: dict[str, dict[int, str]],
        directory: Path,
        what: str,
    ) -> dict[str, Any]:
        settings, seed = ctx.settings.feedback, ctx.settings.seed
        rows = found.rows(settings, texts)
        batches = len(plan_batches([r.pair for r in rows], settings.batch_size, 1, seed))
        total = max(1, round(batches * settings.epochs))
        with ctx.progress.task(f"feedback: train on {what}", total=total, unit="steps") as task:
            done = train_iterations(
                model,
                rows,
                found.data.tools,
                found.data.groups,
                settings,
                seed=seed,
                score=lambda encoder: _score(found, encoder),
                on_step=lambda loss: task.advance(1, note=f"loss {loss:.3f}"),
            )
        save_two_tower(model.eval(), directory / MODEL)
        counts = Counter(t for row in rows for t in row.texts)
        return {
            "pairs": len(rows),
            "texts": {str(t): counts[t] for t in sorted(counts)},
            **_said(done),
        }

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """``core/feedback_training.json``: everything but times; the retriever stays where it is."""
        settings = ctx.settings.feedback
        folders = {result.shard.key: result.directory for result in results}
        rows, responses = read_feedback(folders[FINAL])
        found = load_feedback(ctx)
        held = sorted(found.held)
        model = folders[FINAL] / MODEL
        weights = sorted(p for p in model.rglob("*") if p.is_file())
        statuses = Counter(row.reason or row.status for row in rows if row.iteration)
        record = {
            "settings": settings.model_dump(mode="json"),
            "deviations_from_paper": feedback_deviations(settings),
            "seed": ctx.settings.seed,
            "critic": critics_of(ctx.settings)[0],
            "categories": {
                "by": settings.category,
                "all": len(set(found.categories.values())),
                "held_out": held,
                "tools_held_out": sum(c in found.held for c in found.categories.values()),
                "tools": len(found.categories),
            },
            "warm": read_json(folders[WARM] / RECORD),
            "iterations": read_json(folders[FINAL] / RECORD),
            "critic_queries": sum(row.iteration == 0 for row in rows),
            "critic_outcomes": dict(sorted(statuses.items())),
            "validated_by": f"{VALIDATED_BY} of Syn val, trained categories, iteration 0",
            "rows": digest([row.model_dump(mode="json") for row in rows]),
            "weights": {
                p.relative_to(model).as_posix(): sha256_file(p) for p in weights if p.suffix == ".safetensors"
            },
        }
        path = write_json(ctx.paths.core / RESULT, record)
        return StageReport(
            outputs=[path, *weights],
            rows={"pairs": record["warm"]["pairs"], "rewritten": statuses["rewritten"]},
            tokens={"in": sum(r.tokens_in for r in rows), "out": sum(r.tokens_out for r in rows)},
            summary={"incomplete": sum(r.status != "ok" for r in responses)},
            engine=self._engine,
        )


def _said(done: Rounds) -> dict[str, Any]:
    return {
        "losses": [round(loss, DECIMALS) for loss in done.losses],
        "validation": done.scores,
        "best_round": done.best,
        "stopped_early": done.stopped_early,
        "precision": done.precision,
    }


def _score(found: FeedbackData, encoder: SentenceEncoder) -> float | None:
    queries = found.seen("val")
    if not len(queries):
        return None
    run = IterationRetriever(encoder, found.data.tools).search(queries.ids, queries.texts, 0, SEARCH_DEPTH)
    golds = {query: found.data.golds[query] for query in queries.ids}
    return round(evaluate_run(run, golds, (VALIDATED_BY,)).means()[VALIDATED_BY], DECIMALS)


def ask_critic(
    ctx: RunContext,
    found: FeedbackData,
    retriever: IterationRetriever,
    queries: TextSet,
    critic: str,
    *,
    part: Part,
) -> Feedback:
    """The loop over some queries, with progress and times."""
    settings, timer = ctx.settings, Timer(ctx, critic)
    total = len(queries) * settings.feedback.iterations
    with ctx.progress.task(f"feedback: {critic}, {part}", total=total, unit="queries x t") as task:

        def heard(what: Heard) -> None:
            if what.iteration:
                task.advance(what.queries, note=f"iteration {what.iteration}")
            if part == "test":
                timer(what)

        return run_feedback(
            critic_engine(ctx, critic),
            retriever,
            queries,
            found.shown,
            settings.feedback,
            critic=critic,
            part=part,
            depth=settings.evaluate.depth,
            seed=settings.seed,
            batch=batch_of(settings),
            on_heard=heard,
        )
