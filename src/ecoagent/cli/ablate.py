"""``ecoagent ablate``: what a step of the build does to the results."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ecoagent.cli.data import run_tables
from ecoagent.cli.options import DryRun, Json, Profile, Run, Set, guarded, one_of, print_json, settings_of
from ecoagent.cli.show import show_estimates, show_rows
from ecoagent.cli.stopping import require_space
from ecoagent.runs import RunContext, read_object, run_lock
from ecoagent.settings import UserError

ablate_app = typer.Typer(help="Measure what a step of the build does to the results.", no_args_is_help=True)


@ablate_app.callback()
def _group() -> None:
    """Measure what a step of the build does to the results."""


@ablate_app.command("round-trip")
def round_trip(
    profile: Profile = None,
    run: Run = None,
    max_rank: Annotated[
        int, typer.Option(min=1, help="A query passes if its tool is among this many nearest.")
    ] = 10,
    min_raw: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="Verifier's score from which a query passes; by default the run's own cut-off."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each arm.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Train on at most this many pairs.")] = None,
    overrides: Set = None,
    force: Annotated[bool, typer.Option("--force", help="Train every arm anew.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Train with and without the round-trip filter of EcoAgent-Syn, and compare the rankings.

    Arms: all pairs; those of queries that search brings back to their tool; those the verifier agrees
    with; both; and as many random pairs for each. The towers are not kept.

    Examples:

      ecoagent ablate round-trip --run local --dry-run

      ecoagent ablate round-trip --run local --seeds 3
    """

    def work() -> int:
        from ecoagent.evaluation.round_trip import RESULT, RoundTripStage, filter_of
        from ecoagent.runs import execute

        # The limit is the ablation's own: among the settings it would be recorded as the run's.
        settings = settings_of(profile, run, None, None, overrides)
        run_tables(settings, settings.run_name)
        ctx = RunContext.create(settings)
        stage = RoundTripStage(filter_of(settings, max_rank, min_raw), seeds, limit)
        if dry_run:
            planned = {"round trip": {"state": "would run", **stage.estimate(ctx)}}
            print_json(planned) if as_json else show_estimates(planned)
            return 0
        with run_lock(ctx.paths.root):
            stage.prepare(ctx)
            execute(stage, ctx, force=force)
        shown = dict.fromkeys(("arms", "rows", "notes"), list)
        content = read_object(ctx.paths.out / "results" / RESULT, shown)
        if as_json:
            print_json(content)
        else:
            _show(content, ctx)
        return 0

    guarded(work)


@ablate_app.command("encoder")
def encoder(
    profile: Profile = None,
    run: Run = None,
    benchmark: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR[/SET]", help="Judge on independent collections too; as in `evaluate`."),
    ] = None,
    collection: Annotated[
        list[str] | None, typer.Option(help="The set, where a folder holds several; `all` = each of them.")
    ] = None,
    queries: Annotated[
        int | None, typer.Option(min=1, help="At most this many queries of a collection, drawn by seed.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="A further model for the siamese encoder; may be repeated.")
    ] = None,
    arm: Annotated[
        list[str] | None, typer.Option(help="Only these arms, beside the two that others are compared with.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of the siamese encoder.")] = 1,
    other_seeds: Annotated[
        int | None, typer.Option(min=1, help="Trainings of each other arm; by default as many.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Train on at most this many pairs.")] = None,
    overrides: Set = None,
    force: Annotated[bool, typer.Option("--force", help="Train every arm anew.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Change one choice of the encoder's training at a time, and compare the rankings.

    Arms: the encoder untrained; the siamese encoder; another pooling; without hard negatives; without
    masking; both directions; two towers; RATED's towers; training queries in the tool vectors. Trainings
    that are done are kept when a seed, a set or a model is added; the weights lie in the run's
    raw/encoder_trainings, which may be removed when no further set is to be judged.

    Examples:

      ecoagent ablate encoder --run local --dry-run

      ecoagent ablate encoder --run local --seeds 3 --benchmark DIR --collection all --queries 2000
    """

    def work() -> int:
        from ecoagent.cli.evaluating import load_benchmarks
        from ecoagent.evaluation.encoder_ablation import RESULT, EncoderAblation
        from ecoagent.evaluation.encoder_arms import CHOSEN, EXPANDED, arms_of
        from ecoagent.runs import execute

        if collection and not benchmark:
            raise UserError("--collection chooses in a folder", remedy="give --benchmark DIR")
        settings = settings_of(profile, run, None, None, overrides)
        run_tables(settings, settings.run_name)
        ctx = RunContext.create(settings)
        one_of("--arm", arm or [], [*(a.name for a in arms_of(settings.train, model or [])), EXPANDED])
        sets = load_benchmarks(benchmark or [], collection or [], limit=queries, seed=settings.seed)
        stage = EncoderAblation(
            sets, seeds=seeds, other_seeds=other_seeds, encoders=model or [], only=arm or [], limit=limit
        )
        if dry_run:
            planned = {"encoder ablation": {"state": "would run", **stage.estimate(ctx)}}
            print_json(planned) if as_json else show_estimates(planned)
            return 0
        require_space(ctx.paths.root)
        with run_lock(ctx.paths.root):
            stage.prepare(ctx, anew=force)
            execute(stage, ctx, force=force)
        shown = dict.fromkeys(("arms", "rows", "notes"), list)
        content = read_object(ctx.paths.out / "results" / RESULT, shown)
        if as_json:
            print_json(content)
            return 0
        labels = {a["arm"]: a["label"] for a in content["arms"]}
        show_rows(
            "encoder ablation: MRR",
            [
                {
                    "test": f"{r['set']} {r['split']}",
                    "arm": labels[r["arm"]],
                    "queries": r["queries"],
                    "MRR": r["MRR"],
                    "95% interval": _range(r["interval"]),
                    "against untrained": _difference(r.get("against_untrained")),
                    f"against {CHOSEN}": _difference(r.get("against_chosen")),
                }
                for r in content["rows"]
            ],
        )
        for note in content["notes"]:
            ctx.progress.say(f"encoder ablation: {note}")
        ctx.progress.say(
            f"encoder ablation: {ctx.paths.out / 'results' / RESULT}; `ecoagent report` shows it"
        )
        return 0

    guarded(work)


def _show(content: dict[str, Any], ctx: RunContext) -> None:
    pairs = {a["arm"]: a["pairs"] for a in content["arms"]}
    show_rows(
        "round trip: MRR",
        [
            {
                "test": f"{r['set']} {r['split']}",
                "arm": r["arm"],
                "pairs": pairs[r["arm"]],
                "queries": r["queries"],
                "MRR": r["MRR"],
                "95% interval": _range(r["interval"]),
                "against all": _difference(r.get("against_all")),
                "against random": _difference(r.get("against_random")),
            }
            for r in content["rows"]
        ],
    )
    for note in content["notes"]:
        ctx.progress.say(f"round trip: {note}")
    ctx.progress.say(
        f"round trip: {ctx.paths.out / 'results' / 'round_trip.json'}; `ecoagent report` shows it"
    )


def _range(ends: list[float]) -> str:
    return f"{ends[0]:.3f} to {ends[1]:.3f}"


def _difference(test: dict[str, Any] | None) -> str:
    if test is None:
        return ""
    return f"{test['difference']:+.3f} ({_range(test['interval'])}), p {test['p']:.3f}"
