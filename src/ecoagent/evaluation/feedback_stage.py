"""Stage ``feedback``: the loop on the test queries of each critic, judged by iteration, domain and fusion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from ecoagent.evaluation.feedback_data import (
    FeedbackData,
    answered,
    critics_of,
    load_feedback,
    prompts_and_reference,
    read_feedback,
    tables,
    with_critic,
    write_feedback,
)
from ecoagent.evaluation.feedback_estimate import RESPONSES_TABLE, question_estimate
from ecoagent.evaluation.feedback_rated import (
    RatedVectors,
    own_candidates,
    rated_key,
    rated_ranking,
    rated_record,
    read_vectors,
    write_vectors,
)
from ecoagent.evaluation.feedback_table import Judged, Ranking, critic_rows, metric_rows
from ecoagent.evaluation.feedback_train import (
    RESULT as TRAINED,
)
from ecoagent.evaluation.feedback_train import (
    SEARCH_DEPTH,
    FeedbackTrainStage,
    ask_critic,
    feedback_deviations,
    model_folder,
)
from ecoagent.evaluation.offline import load_run, save_run
from ecoagent.feedback import Gate, IterationRetriever, fit_gate, fuse_runs, score_gaps
from ecoagent.llm import close_engines, counters_of, engine_record
from ecoagent.retrieval import RankedRun, TextSet, load_two_tower
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
    write_table,
)
from ecoagent.schema import FeedbackRow, ResponseRow
from ecoagent.settings import Settings, result_settings

RESULT = "feedback.json"
GATE, RATED, CRITIC = "gate", "rated", "critic-"
"""Shards; a critic's goes on with a digest of its name."""
RUN = "iteration-{}.parquet"


class FeedbackStage(Stage):
    """One shard a critic, one for the confidence of the first search, one for the vectors of RATED."""

    name: ClassVar[str] = "feedback"
    version: ClassVar[str] = "2"
    sections: ClassVar[tuple[str, ...]] = ("feedback", "llm")
    shards_alone: ClassVar[bool] = True

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._engines: dict[str, Any] = {}

    def inputs(self, ctx: RunContext) -> list[Path]:
        """Tools, queries and golds; the records of trainings stand for the weights of both retrievers."""
        rated = rated_record(ctx)
        return [*tables(ctx), ctx.paths.core / TRAINED, *([] if rated is None else [rated])]

    def extra_key(self, ctx: RunContext) -> dict[str, Any]:
        """What the critics are asked and how deep they search, and how RATED orders what was found."""
        return {**self._questions(ctx), "rated": rated_key(ctx)}

    def _questions(self, ctx: RunContext) -> dict[str, Any]:
        depth = ctx.settings.evaluate.depth
        return {**prompts_and_reference(ctx.settings), "limit": self.limit, "depth": depth}

    def plan(self, ctx: RunContext) -> list[Shard]:
        """The gate, the vectors of RATED where it was trained, and the critics."""
        return [
            Shard(GATE),
            *([] if rated_record(ctx) is None else [Shard(RATED)]),
            *(Shard(f"{CRITIC}{digest(name)[:12]}", (name,)) for name in critics_of(ctx.settings)),
        ]

    def shard_content(self, ctx: RunContext, shard: Shard) -> Any:
        """All that is read; a new training of RATED leaves what the critics did as it is."""
        inputs = input_digests(self, ctx)
        rated = rated_record(ctx)
        if rated is not None and shard.key != RATED:
            del inputs[ctx.paths.relative(rated)]
        settings = result_settings(ctx.settings, self.sections)
        return {"inputs": inputs, "settings": settings, "asked": self._questions(ctx)}

    def shard_finished(self, directory: Path) -> bool:
        """Whether every question was answered."""
        return answered(directory)

    def queries(self, ctx: RunContext, found: FeedbackData) -> dict[str, TextSet]:
        """Domain to its queries; domains without any are left out."""
        limits = [n for n in (ctx.settings.feedback.test_queries, self.limit) if n is not None]
        most = min(limits) if limits else None
        parts = {domain: found.queries(domain, most) for domain in ctx.settings.feedback.domains}
        return {domain: part for domain, part in parts.items() if len(part)}

    def _all_queries(self, ctx: RunContext, found: FeedbackData) -> TextSet:
        """Queries of every domain, by id."""
        texts = {
            i: text
            for part in self.queries(ctx, found).values()
            for i, text in zip(part.ids, part.texts, strict=True)
        }
        return TextSet(tuple(sorted(texts)), tuple(texts[i] for i in sorted(texts)))

    def estimate(self, ctx: RunContext) -> dict[str, Any]:
        """Upper bounds of requests, tokens and minutes; nothing is searched or asked."""
        found, settings = load_feedback(ctx), ctx.settings
        parts = self.queries(ctx, found)
        test = len({i for part in parts.values() for i in part.ids})
        train = len(FeedbackTrainStage(self.limit).critic_queries(ctx, found))
        texts = [text for part in parts.values() for text in part.texts]
        return {
            "test queries": {domain: len(part) for domain, part in parts.items()},
            "training queries": train,
            "critics": len(critics_of(settings)),
            "texts RATED encodes at most": 0 if rated_record(ctx) is None else test + len(found.data.tools),
            **question_estimate(ctx, found, texts, train, test),
        }

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        """Fit the gate, encode for RATED, or take every test query through the iterations."""
        found = load_feedback(ctx)
        if shard.key == RATED:
            write_vectors(ctx, found.data, self._all_queries(ctx, found), directory)
            return
        retriever = IterationRetriever(load_two_tower(model_folder(ctx), name="feedback"), found.data.tools)
        if shard.key == GATE:
            write_json(directory / "gate.json", vars(_fit(found, retriever)))
            return
        critic, queries = shard.ids[0], self._all_queries(ctx, found)
        asked = with_critic(ctx.settings, critic)
        before = counters_of(asked)
        feedback = ask_critic(ctx, found, retriever, queries, critic, part="test")
        self._engines[critic] = engine_record(asked, before)
        close_engines()  # one critic's model in memory at a time
        write_feedback(directory, feedback.rows, feedback.responses)
        for iteration, run in enumerate(feedback.runs):
            save_run(directory / RUN.format(iteration), run)

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """The result, every q_t and every answer."""
        settings, found = ctx.settings, load_feedback(ctx)
        folders = {result.shard.key: result.directory for result in results}
        gate = Gate(**read_json(folders[GATE] / "gate.json"))
        vectors = read_vectors(folders[RATED], self._all_queries(ctx, found)) if RATED in folders else None
        rows, responses = read_feedback(ctx.paths.raw / FeedbackTrainStage.name / "iterations")
        answers = {r.request_hash: r for r in responses}
        judged = self._judged(ctx, found)
        table: list[dict[str, Any]] = []
        outcomes: list[dict[str, Any]] = []
        gates: list[dict[str, Any]] = []
        for result in results:
            if not result.shard.key.startswith(CRITIC):
                continue
            critic = result.shard.ids[0]
            own, said = read_feedback(result.directory)
            rows, answers = rows + own, answers | {r.request_hash: r for r in said}
            runs = [
                load_run(result.directory / RUN.format(t), "feedback")
                for t in range(settings.feedback.iterations + 1)
            ]
            for part in judged:
                rankings = self._rankings(found, settings, part, runs, gate, vectors)
                table += metric_rows(critic, part, rankings, seed=settings.seed)
                mine = [row for row in own if row.query_id in part.golds]
                outcomes += critic_rows(critic, part.domain, mine)
                gates.append(_gated(critic, part, mine, runs[0], found, gate, settings))
        trained = read_object(
            ctx.paths.core / TRAINED, {"categories": dict}, remedy="run the command with --force"
        )
        content = {
            "retriever": _retriever(settings),
            "categories": trained["categories"],
            "deviations_from_paper": feedback_deviations(settings.feedback),
            "rows": table,
            "critics": outcomes,
            "gate": {**vars(gate), "calls_below": settings.feedback.gate, "by_domain": gates},
            "notes": _notes(settings, found, judged, self.limit, vectors is not None),
        }
        ordered = sorted(rows, key=lambda r: (r.part, r.critic, r.query_id, r.iteration))
        outputs = [
            write_json(ctx.paths.out / "results" / RESULT, content),
            write_table(ctx.paths.core / "feedback.parquet", ordered, FeedbackRow),
            write_table(
                ctx.paths.core / RESPONSES_TABLE,
                [answers[h] for h in sorted(answers)],
                ResponseRow,
            ),
        ]
        return StageReport(
            outputs=outputs,
            rows={"queries": len({r.query_id for r in ordered}), "rewritten": _count(ordered, "rewritten")},
            rejects={"fallback": _count(ordered, "fallback")},
            tokens={"in": sum(r.tokens_in for r in ordered), "out": sum(r.tokens_out for r in ordered)},
            summary={"incomplete": sum(r.status != "ok" for r in answers.values())},
            engine=self._engines,
        )

    def _judged(self, ctx: RunContext, found: FeedbackData) -> list[Judged]:
        by_tool = found.data.clusters
        judged = []
        for domain, part in self.queries(ctx, found).items():
            golds = {query: found.data.golds[query] for query in part.ids}
            judged.append(Judged(domain, golds, {query: by_tool[query] for query in part.ids}))
        return judged

    def _rankings(
        self,
        found: FeedbackData,
        settings: Settings,
        part: Judged,
        runs: Sequence[RankedRun],
        gate: Gate,
        vectors: RatedVectors | None,
    ) -> list[Ranking]:
        """The iterations, their fusions, the fusion behind the gate, and RATED's order of each.

        All are cut to the domain's queries; without RATED's vectors its rows are left out.
        """
        own, k = [_cut(run, part) for run in runs], settings.feedback.rrf_k
        asked = _asked(own[0], found, gate, settings)
        last = {query: len(own) - 1 if query in asked else 0 for query in own[0].query_ids}
        plain = [Ranking(f"iteration {t}", run, iteration=t) for t, run in enumerate(own)]
        fused = [
            Ranking(f"fused 0..{t}", fuse_runs(own[: t + 1], rrf_k=k), fused_to=t) for t in range(1, len(own))
        ]
        gated = fuse_runs(own, rrf_k=k, last=last)
        fused.append(Ranking("fused, gated", gated, fused_to=len(own) - 1, gated=True))
        if vectors is None:
            return [*plain, *fused]
        data, evaluate = found.data, settings.evaluate
        alone = own_candidates(own[0].query_ids, vectors, data, evaluate)
        candidates = [Ranking("its own candidates", alone), replace(plain[0], fused_to=0), *fused]
        rated = [
            Ranking(
                f"RATED over {c.name}",
                rated_ranking(c.run, vectors, data, evaluate),
                fused_to=c.fused_to,
                gated=c.gated,
                rated=True,
            )
            for c in candidates
        ]
        return [*plain, *fused, *rated]


def _cut(run: RankedRun, part: Judged) -> RankedRun:
    keep = [n for n, query in enumerate(run.query_ids) if query in part.golds]
    return RankedRun(
        run.name,
        tuple(run.query_ids[n] for n in keep),
        [run.tool_ids[n] for n in keep],
        [run.scores[n] for n in keep],
    )


def _asked(first: RankedRun, found: FeedbackData, gate: Gate, settings: Settings) -> frozenset[str]:
    """Queries whose first search is not trusted."""
    gaps = score_gaps(first, found.data.groups)
    below = settings.feedback.gate
    return frozenset(
        query
        for query, gap in zip(first.query_ids, gaps, strict=True)
        if below == 1 or gate.probability(gap) < below
    )


def _gated(
    critic: str,
    part: Judged,
    rows: Sequence[FeedbackRow],
    first: RankedRun,
    found: FeedbackData,
    gate: Gate,
    settings: Settings,
) -> dict[str, Any]:
    """What the gate saves: queries and tokens of the critic, of all that would be spent."""
    asked = _asked(_cut(first, part), found, gate, settings)
    spent = {True: 0, False: 0}
    for row in rows:
        spent[row.query_id in asked] += row.tokens_in + row.tokens_out
    return {
        "critic": critic,
        "domain": part.domain,
        "queries": len(part.golds),
        "called": len(asked),
        "tokens": spent[True],
        "tokens_without_gate": spent[True] + spent[False],
    }


def _count(rows: Sequence[FeedbackRow], status: str) -> int:
    return sum(row.status == status for row in rows)


def _fit(found: FeedbackData, retriever: IterationRetriever) -> Gate:
    """The gate on Syn val of trained categories, which no result is reported on."""
    queries = found.seen("val")
    if not len(queries):
        return fit_gate([], [])
    run = retriever.search(queries.ids, queries.texts, 0, SEARCH_DEPTH)
    right = [tools[0] in found.data.golds[q] for q, tools in zip(run.query_ids, run.tool_ids, strict=True)]
    return fit_gate(score_gaps(run, found.data.groups), right)


def _retriever(settings: Settings) -> dict[str, Any]:
    encoder, role = settings.feedback.encoder, type(settings.feedback).model_fields["encoder"].default
    short = encoder.rsplit("/", 1)[-1]
    label = short if encoder == role else f"{short} (in BERT-base's role)"
    return {"model": encoder, "role": role, "label": label}


def _rated_notes(settings: Settings, rated: bool) -> list[str]:
    if not rated:
        return ["RATED's order of the candidates is left out: its towers were not trained in this run."]
    return [
        f"RATED over …: the first {settings.evaluate.top_k} of that ranking by S_final (Eq. 9), with e_q0 as "
        "query and context and the bandit at its prior: nothing was executed. Its own candidates: the same "
        "from its own search, without feedback.",
        "RATED's towers were trained on every category: those held out are new to the feedback's retriever "
        "alone.",
    ]


def _notes(
    settings: Settings, found: FeedbackData, judged: Sequence[Judged], limit: int | None, rated: bool
) -> list[str]:
    """What a reader of the table has to know."""
    feedback = settings.feedback
    present = {part.domain for part in judged}
    mixed = {domain: found.mixed(domain) for domain in feedback.domains}
    notes = [
        f"In-domain: Syn test, golds of categories trained on; out-of-domain: Syn test and cold, golds of "
        f"categories held out. Category: {feedback.category}; whole categories, drawn by the seed, while "
        f"they fit in {100 * feedback.held_out:g}% of the tools.",
        "Every ranking chooses among all tools of the run. A gold's duplicate group counts as gold.",
        "Iteration 0 is the query as written. A query that was stopped or fell back keeps its last ranking.",
        "Intervals: 95% percentile bootstrap over tools, whose queries stay together. p: two-sided against "
        "iteration 0, signs flipped by tool, not corrected for the number of comparisons.",
        f"Fused 0..t: reciprocal-rank fusion (k = {feedback.rrf_k}) of iterations 0 to t. Gated: of all of "
        f"them where the calibrated probability that the first tool is right is below {feedback.gate:g}, and "
        "only there the critic would be called; else iteration 0.",
        *_rated_notes(settings, rated),
    ]
    if feedback.encoder != type(feedback).model_fields["encoder"].default:
        notes.append(
            f"The retriever is {feedback.encoder} in BERT-base's role, trained for a bounded run; "
            "TR-Feedback's own numbers are of another retriever, critic and benchmark."
        )
    if feedback.critic_queries is not None or limit is not None:
        most = min(n for n in (feedback.critic_queries, limit) if n is not None)
        notes.append(
            f"The critic rewrote at most {most} training queries; all others train iteration 0 alone."
        )
    if feedback.test_queries is not None or limit is not None:
        most = min(n for n in (feedback.test_queries, limit) if n is not None)
        notes.append(f"At most {most} test queries of a domain, the first by id, which is a hash.")
    notes += [f"{d}: {n} queries with golds of both kinds are left out." for d, n in mixed.items() if n]
    notes += [f"{d}: not judged, it has no query." for d in feedback.domains if d not in present]
    return notes
