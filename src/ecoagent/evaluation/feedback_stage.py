"""Stage ``feedback``: the loop on the test queries of each critic, judged by iteration, domain and fusion."""

from __future__ import annotations

from collections.abc import Sequence
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
from ecoagent.evaluation.feedback_table import Judged, critic_rows, metric_rows
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
from ecoagent.feedback.critic import (
    TOKENS_PER_WORD,
    assessment_request,
    comprehension_request,
    refinement_request,
)
from ecoagent.llm import (
    CostEstimate,
    GenerationRequest,
    close_engines,
    counters_of,
    engine_record,
    estimate_cost,
)
from ecoagent.retrieval import RankedRun, TextSet, load_two_tower
from ecoagent.runs import (
    RunContext,
    Shard,
    ShardResult,
    Stage,
    StageReport,
    digest,
    read_json,
    read_object,
    read_table,
    write_json,
    write_table,
)
from ecoagent.schema import FeedbackRow, ResponseRow
from ecoagent.settings import Settings

RESULT = "feedback.json"
GATE = "gate"
ESTIMATED_ON = 40
"""Queries whose questions stand for the others."""
EXPECTED_SHARE = {"comprehension": 0.75, "assessment": 0.45, "refinement": 0.25}
"""Generated tokens of each turn as a share of its limit, for estimates; assumed, not measured."""
RUN = "iteration-{}.parquet"


class FeedbackStage(Stage):
    """One shard a critic, and one for the confidence of the first search."""

    name: ClassVar[str] = "feedback"
    version: ClassVar[str] = "1"
    sections: ClassVar[tuple[str, ...]] = ("feedback", "llm")

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._engines: dict[str, Any] = {}

    def inputs(self, ctx: RunContext) -> list[Path]:
        """Tools, queries and golds; the record of the training stands for the retriever's weights."""
        return [*tables(ctx), ctx.paths.core / TRAINED]

    def extra_key(self, ctx: RunContext) -> dict[str, Any]:
        """Prompts, published responses, the limit and the depth of the rankings."""
        depth = ctx.settings.evaluate.depth
        return {**prompts_and_reference(ctx.settings), "limit": self.limit, "depth": depth}

    def plan(self, ctx: RunContext) -> list[Shard]:
        """The gate, and the critics."""
        return [
            Shard(GATE),
            *(Shard(f"critic-{digest(name)[:12]}", (name,)) for name in critics_of(ctx.settings)),
        ]

    def shard_finished(self, directory: Path) -> bool:
        """Whether every question was answered."""
        return answered(directory)

    def queries(self, ctx: RunContext, found: FeedbackData) -> dict[str, TextSet]:
        """Domain to its queries; domains without any are left out."""
        limits = [n for n in (ctx.settings.feedback.test_queries, self.limit) if n is not None]
        most = min(limits) if limits else None
        parts = {domain: found.queries(domain, most) for domain in ctx.settings.feedback.domains}
        return {domain: part for domain, part in parts.items() if len(part)}

    def estimate(self, ctx: RunContext) -> dict[str, Any]:
        """Upper bounds of requests, tokens and minutes; nothing is searched or asked."""
        found, settings = load_feedback(ctx), ctx.settings
        parts = self.queries(ctx, found)
        test = len({i for part in parts.values() for i in part.ids})
        train = len(FeedbackTrainStage(self.limit).critic_queries(ctx, found))
        texts = [text for part in parts.values() for text in part.texts]
        asked = train + test * len(critics_of(settings))
        cost = question_cost(settings, found, texts, asked)
        return {
            "test queries": {domain: len(part) for domain, part in parts.items()},
            "training queries": train,
            "critics": len(critics_of(settings)),
            **{k if k == "speed" else f"{k}_at_most": v for k, v in cost.as_record().items()},
        }

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        """Fit the gate, or take every test query through the iterations."""
        found = load_feedback(ctx)
        retriever = IterationRetriever(load_two_tower(model_folder(ctx), name="feedback"), found.data.tools)
        if shard.key == GATE:
            write_json(directory / "gate.json", vars(_fit(found, retriever)))
            return
        critic = shard.ids[0]
        texts = {
            i: text
            for part in self.queries(ctx, found).values()
            for i, text in zip(part.ids, part.texts, strict=True)
        }
        queries = TextSet(tuple(sorted(texts)), tuple(texts[i] for i in sorted(texts)))
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
        gate = Gate(**read_json(results[0].directory / "gate.json"))
        rows, responses = read_feedback(ctx.paths.raw / FeedbackTrainStage.name / "iterations")
        answers = {r.request_hash: r for r in responses}
        judged = self._judged(ctx, found)
        table: list[dict[str, Any]] = []
        outcomes: list[dict[str, Any]] = []
        gates: list[dict[str, Any]] = []
        for result in results[1:]:
            critic = result.shard.ids[0]
            own, said = read_feedback(result.directory)
            rows, answers = rows + own, answers | {r.request_hash: r for r in said}
            runs = [
                load_run(result.directory / RUN.format(t), "feedback")
                for t in range(settings.feedback.iterations + 1)
            ]
            for part in judged:
                table += metric_rows(
                    critic, part, self._rankings(found, settings, part, runs, gate), seed=settings.seed
                )
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
            "notes": _notes(settings, found, judged, self.limit),
        }
        ordered = sorted(rows, key=lambda r: (r.part, r.critic, r.query_id, r.iteration))
        outputs = [
            write_json(ctx.paths.out / "results" / RESULT, content),
            write_table(ctx.paths.core / "feedback.parquet", ordered, FeedbackRow),
            write_table(
                ctx.paths.core / "feedback_responses.parquet",
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
        sources: dict[str, str] = {}
        for path in tables(ctx):
            if path.stem.endswith("_queries"):
                table = read_table(path)
                if "source_tool_id" in table.columns:
                    sources |= dict(table.select("query_id", "source_tool_id").drop_nulls().iter_rows())
        judged = []
        for domain, part in self.queries(ctx, found).items():
            golds = {query: found.data.golds[query] for query in part.ids}
            clusters = {q: found.data.groups[sources.get(q) or min(golds[q])] for q in part.ids}
            judged.append(Judged(domain, golds, clusters))
        return judged

    def _rankings(
        self,
        found: FeedbackData,
        settings: Settings,
        part: Judged,
        runs: Sequence[RankedRun],
        gate: Gate,
    ) -> dict[str, tuple[int | None, RankedRun]]:
        """The iterations, their fusion, and the fusion behind the gate, cut to the domain's queries."""
        own = [_cut(run, part) for run in runs]
        named: dict[str, tuple[int | None, RankedRun]] = {
            f"iteration {t}": (t, run) for t, run in enumerate(own)
        }
        k = settings.feedback.rrf_k
        asked = _asked(own[0], found, gate, settings)
        last = {query: len(own) - 1 if query in asked else 0 for query in own[0].query_ids}
        named["all iterations fused"] = (None, fuse_runs(own, rrf_k=k))
        named["fused"] = (None, fuse_runs(own, rrf_k=k, last=last))
        return named


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


def question_cost(
    settings: Settings, found: FeedbackData, texts: Sequence[str], queries: int
) -> CostEstimate:
    """Upper bound for ``queries`` queries: every turn of every iteration, nothing stored.

    Which questions are stored shows only once there is a ranking; tools shown stand for those found.
    """
    feedback, answers = settings.feedback, "word " * 40
    requests: list[GenerationRequest] = []
    shown = [found.shown[i] for i in sorted(found.shown)]
    for n, text in enumerate(texts[:ESTIMATED_ON] if queries else ()):
        tools = [shown[(n * feedback.tools_shown + i) % len(shown)] for i in range(feedback.tools_shown)]
        first = comprehension_request(str(n), text, text, tools, feedback, 0)
        second = assessment_request(first, answers, feedback)
        requests += [first, second, refinement_request(second, answers, [], feedback)]
    limits = {
        feedback.comprehension_tokens: EXPECTED_SHARE["comprehension"],
        feedback.assessment_tokens: EXPECTED_SHARE["assessment"],
        TOKENS_PER_WORD * feedback.max_words + 16: EXPECTED_SHARE["refinement"],
    }

    def expected(request: GenerationRequest) -> float:
        return limits[request.sampling.max_tokens] * request.sampling.max_tokens

    nothing_stored = settings.llm.model_copy(update={"store": Path("-"), "reference": None})
    cost = estimate_cost(requests, settings.model_copy(update={"llm": nothing_stored}), expected)
    wanted = 3 * feedback.iterations * queries
    return cost.scaled(wanted / max(1, len(requests)))


def _notes(settings: Settings, found: FeedbackData, judged: Sequence[Judged], limit: int | None) -> list[str]:
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
        f"Fused: reciprocal-rank fusion (k = {feedback.rrf_k}) of the iterations where the calibrated "
        f"probability that the first tool is right is below {feedback.gate:g}, else iteration 0.",
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
