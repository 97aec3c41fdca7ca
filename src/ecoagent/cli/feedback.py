"""``ecoagent feedback``: TR-Feedback on a run."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ecoagent.cli.data import run_tables
from ecoagent.cli.options import DryRun, Json, Profile, Run, Seed, Set, guarded, print_json, settings_of
from ecoagent.cli.show import show_estimates, show_rows
from ecoagent.cli.stopping import require_space
from ecoagent.runs import RunContext, read_object, run_lock

SHOWN = ("nDCG@1", "nDCG@5", "Recall@1", "Recall@5")


def feedback(
    profile: Profile = None,
    run: Run = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="At most this many training queries, and test queries of a domain."),
    ] = None,
    seed: Seed = None,
    overrides: Set = None,
    force: Annotated[
        bool, typer.Option("--force", help="Train and judge anew; stored answers of the critic are kept.")
    ] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Let a language model criticise what was found and rewrite the query, up to feedback.iterations times.

    Trains an iteration-aware retriever on tool categories that are not held out, then judges iterations 0
    to T on trained and on held-out categories (TR-Feedback, arXiv 2406.17465). No part of `build`: on a CPU
    the critic takes an estimated half a minute for a query.

    Examples:

      ecoagent feedback --run local --dry-run

      ecoagent feedback --run local --limit 10

      ecoagent feedback --run local --set feedback.test_queries=100 --set feedback.gate=0.3
    """

    def work() -> int:
        from ecoagent.evaluation.feedback_data import LATENCY, read_latency
        from ecoagent.evaluation.feedback_stage import RESULT, FeedbackStage
        from ecoagent.evaluation.feedback_table import latency_rows
        from ecoagent.evaluation.feedback_train import FeedbackTrainStage
        from ecoagent.runs import execute

        # The limit is the command's own: among the settings it would be recorded as the run's.
        settings = settings_of(profile, run, None, seed, overrides)
        run_tables(settings, settings.run_name)
        ctx = RunContext.create(settings)
        stages = (FeedbackTrainStage(limit), FeedbackStage(limit))
        if dry_run:
            planned = {stage.name: {"state": "would run", **stage.estimate(ctx)} for stage in stages}
            print_json(planned) if as_json else show_estimates(planned)
            return 0
        require_space(ctx.paths.root)
        with run_lock(ctx.paths.root):
            for stage in stages:
                execute(stage, ctx, force=force)
        content = read_object(
            ctx.paths.out / "results" / RESULT, dict.fromkeys(("rows", "critics", "notes"), list)
        )
        times = latency_rows(read_latency(ctx.paths.raw / LATENCY))
        if as_json:
            print_json({**content, "latency": times})
        else:
            _show(content, times, ctx)
        return 0

    guarded(work)


def _show(content: dict[str, Any], times: list[dict[str, Any]], ctx: RunContext) -> None:
    show_rows(
        f"feedback: {content['retriever']['label']}",
        [
            {
                "critic": r["critic"],
                "domain": r["domain"].replace("_", "-"),
                "ranking": r["ranking"],
                "queries": r["queries"],
                **{metric: r["metrics"][metric] for metric in SHOWN},
                "Recall@5 against iteration 0": _difference(r["against_first"].get("Recall@5")),
            }
            for r in content["rows"]
        ],
    )
    show_rows(
        "feedback: what the critic did",
        [
            {
                "critic": r["critic"],
                "domain": r["domain"].replace("_", "-"),
                "t": r["iteration"],
                **{k: r[k] for k in ("queries", "rewritten", "stopped", "fallback")},
                "fell back for": ", ".join(f"{k} {n}" for k, n in r["reasons"].items()),
                "tokens a query": r["tokens_per_query"],
            }
            for r in content["critics"]
        ],
    )
    show_rows("feedback: time, over all calls on this run that asked the model", times)
    for note in content["notes"]:
        ctx.progress.say(f"feedback: {note}")
    ctx.progress.say(f"feedback: {ctx.paths.out / 'results' / 'feedback.json'}; `ecoagent report` shows it")


def _difference(test: dict[str, Any] | None) -> str:
    if test is None:
        return ""
    low, high = test["interval"]
    return f"{test['difference']:+.3f} ({low:+.3f} to {high:+.3f}), p {test['p']:.3f}"
