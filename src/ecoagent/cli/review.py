"""``ecoagent review``: pairs for people to judge, and how well the labels agree with them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ecoagent.cli.options import (
    DryRun,
    Json,
    Profile,
    Run,
    Seed,
    Set,
    guarded,
    one_of,
    print_json,
    settings_of,
)
from ecoagent.cli.show import show_rows
from ecoagent.runs import Progress, RunContext, read_json, run_lock, write_json
from ecoagent.settings import MissingInputError

if TYPE_CHECKING:
    from ecoagent.labeling.review import ReviewReport, Sample

CHOICES = ("real", "syn", "both")

review_app = typer.Typer(
    help="Judge a sample of the labels by hand, and score the labels against it.", no_args_is_help=True
)


@review_app.command("sample")
def sample(
    n: Annotated[int, typer.Option("--n", min=1, help="Pairs to draw.")] = 200,
    data: Annotated[
        str, typer.Option(help="Pairs of which set: real, syn or both.", metavar="real|syn|both")
    ] = "both",
    out: Annotated[
        Path | None, typer.Option(help="Folder to write to; by default `review` in the run's folder.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Set the files of an earlier sample aside and draw a new one.")
    ] = False,
    profile: Profile = None,
    run: Run = None,
    seed: Seed = None,
    overrides: Set = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Draw a stratified sample and write a page to judge it on, a CSV and Label Studio files.

    Examples:

      ecoagent review sample --run local --n 200

      ecoagent review sample --run local --n 50 --data real --out to-judge
    """

    def work() -> int:
        from ecoagent.labeling.review import DEFAULT_FOLDER, draw_sample, read_pairs, write_sample

        one_of("--data", [data], CHOICES)
        settings = settings_of(profile, run, None, None, overrides)
        ctx = RunContext.create(settings, Progress())
        found = read_pairs(ctx, _sets(ctx, data))
        drawn = draw_sample(
            found.pairs,
            n,
            seed=settings.seed if seed is None else seed,
            run=settings.run_name,
            labels=found.labels,
            decides_by=found.decides_by,
            threshold=found.threshold,
            margin=found.margin,
            left_out=found.left_out,
        )
        written: list[Path] = []
        if not dry_run:
            with run_lock(ctx.paths.root):
                written, notes = write_sample(out or ctx.paths.root / DEFAULT_FOLDER, drawn, force=force)
            for note in notes:
                ctx.progress.say(f"review: {note}")
        if as_json:
            facts = drawn.model_dump(mode="json", exclude={"items"})
            print_json(facts | {"drawn": len(drawn.items), "files": [str(p) for p in written]})
            return 0
        _show_sample(drawn, n, ctx.progress, dry_run=dry_run)
        for path in written:
            ctx.progress.say(f"review: {path}")
        if written:
            ctx.progress.say(f"review: when judged: {_next(settings.run_name, out, overrides)}")
        return 0

    guarded(work, out=out)


def _next(run: str, out: Path | None, overrides: list[str] | None) -> str:
    """The command that scores judgements of the sample just drawn."""
    words = ["ecoagent", "review", "score", "FILE", "--run", run]
    words += ["--sample", str(out)] if out is not None else []
    # Such as the folder of runs: without it the run is not found.
    words += [word for item in overrides or () for word in ("--set", item)]
    return shlex.join(words)


def _sets(ctx: RunContext, data: str) -> tuple[Any, ...]:
    """Sets to draw from; ``both`` takes the one there is, and says so.

    Raises:
        MissingInputError: neither is there.
    """
    from ecoagent.labeling.review.pairs import TABLES

    if data != "both":
        return (data,)
    there = [s for s, files in TABLES.items() if all((ctx.paths.core / f).is_file() for f in files)]
    if not there:
        raise MissingInputError(
            f"run {ctx.paths.root.name!r} has no labels yet",
            remedy="run `ecoagent synthesize` or `ecoagent label` and what they need first",
        )
    for name in sorted(set(TABLES) - set(there)):
        ctx.progress.say(f"review: the run has no {name} labels; only {there[0]} is drawn from")
    return tuple(there)


def _show_sample(drawn: Sample, n: int, progress: Progress, *, dry_run: bool) -> None:
    from ecoagent.labeling.review.sample import BANDS, smallest_whole

    columns = ("set", "band", "kind", "retriever", "population", "sampled")
    rows = [{c: getattr(s, c) for c in columns} for s in drawn.strata]
    show_rows("dry run: nothing was written" if dry_run else f"sample {drawn.digest}", rows)
    progress.say(
        "review: " + "; ".join(f"{b}: {BANDS[b][1]}" for b in BANDS if b in {s.band for s in drawn.strata})
    )
    for name, reasons in drawn.left_out.items():
        if reasons:
            listed = ", ".join(f"{k} {v}" for k, v in reasons.items())
            progress.say(f"review: pairs of {name} that the sample does not stand for: {listed}")
    empty = sum(not s.sampled for s in drawn.strata)
    if empty:
        progress.say(
            f"review: {empty} of {len(drawn.strata)} strata have no pair in the sample; --n "
            f"{smallest_whole(drawn.strata)} is the smallest that has one of each"
        )
    if len(drawn.items) < n:
        progress.say(f"review: the run has {len(drawn.items)} pairs, all are in the sample")


@review_app.command("score")
def score(
    files: Annotated[
        list[Path],
        typer.Argument(help="Exports of the page, filled CSVs, Label Studio exports.", metavar="FILE..."),
    ],
    sample_dir: Annotated[
        Path | None,
        typer.Option("--sample", help="Folder of the sample; by default `review` in the run's folder."),
    ] = None,
    profile: Profile = None,
    run: Run = None,
    overrides: Set = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Agreement, Cohen's kappa and error rates of the labels, by who judged, into the run and its card.

    A model's judgements are never counted with those of people.

    Example: ecoagent review score judgements-*.json --run local
    """

    def work() -> int:
        from ecoagent.labeling.review import DEFAULT_FOLDER, REVIEW_FILE, load_sample, read_judgements
        from ecoagent.labeling.review import score as score_judgements
        from ecoagent.labeling.review.pairs import check_labels

        ctx = RunContext.create(settings_of(profile, run, None, None, overrides), Progress())
        drawn = load_sample(sample_dir or ctx.paths.root / DEFAULT_FOLDER)
        check_labels(ctx, drawn.labels)
        read = read_judgements(files, drawn)
        report = score_judgements(drawn, read)
        target = ctx.paths.out / "results" / REVIEW_FILE
        lost = _left_out(target, report)
        if lost:
            ctx.progress.say(
                f"review: the earlier score in {target} also counted {', '.join(lost)}; name all files in "
                "one command to count them together"
            )
        if not dry_run:
            with run_lock(ctx.paths.root):
                write_json(target, report.to_json())
        if as_json:
            print_json(report.to_json())
            return 0
        for file in read:
            ignored = f"; {file.predictions} predictions were not read" if file.predictions else ""
            ctx.progress.say(
                f"review: {file.name}: {len(file.judgements)} judgements of kind {file.kind}{ignored}"
            )
        _show_report(report, ctx.progress)
        if dry_run:
            ctx.progress.say("review: dry run, nothing was written")
        else:
            ctx.progress.say(f"review: {target}; `ecoagent publish` puts it into the card")
        return 0

    guarded(work)


def _left_out(target: Path, report: ReviewReport) -> list[str]:
    """Judges whom the score about to be replaced has and the new one lacks, if of the same sample."""
    try:
        earlier = read_json(target) if target.is_file() else {}
        judges = (
            {str(j["judge"]) for j in earlier["judges"]} if earlier.get("sample") == report.sample else set()
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
    return sorted(judges - {j.judge for j in report.judges})


def _show_report(report: ReviewReport, progress: Progress) -> None:
    from ecoagent.labeling.review.report import rate_text

    show_rows(
        "judges",
        [
            j.model_dump(include={"judge", "kind", "judged", "unsure", "not_judged", "saw_verdict"})
            for j in report.judges
        ],
    )
    show_rows("the labels, as judged; weighted back to the run's pairs, 95% intervals", report.rows())
    for headline in report.headlines:
        for part in headline.sets:
            show_rows(
                f"{part.set}, judged by {headline.kind}: by band, kind and retriever",
                [
                    {
                        "by": g.by,
                        "what": g.name,
                        "pairs of the run": g.rates.population,
                        "judged": g.rates.judged,
                        "kept, wrong": rate_text(g.rates.false_discovery),
                        "rejected, right": rate_text(g.rates.false_omission),
                        "false positives": rate_text(g.rates.false_positive),
                        "false negatives": rate_text(g.rates.false_negative),
                    }
                    for g in part.groups
                    if g.by != "stratum"
                ],
            )
            if part.covered < 1:
                progress.say(
                    f"review: {part.set}, {headline.kind}: bands with {100 * (1 - part.covered):.1f}% of the "
                    "pairs have no decided judgement, the rates are of the others"
                )
    show_rows(
        "between judges",
        [
            {
                "first": f"{b.first} ({b.first_kind})",
                "second": f"{b.second} ({b.second_kind})",
                "pairs": b.pairs,
                "agreement": rate_text(b.agreement),
                "kappa": b.kappa,
            }
            for b in report.between
        ],
    )
    partial = [f"{j.judge} {j.judged} of {report.drawn}" for j in report.judges if j.not_judged]
    if partial:
        progress.say(f"review: not the whole sample was judged: {', '.join(partial)}")
    if not any(h.kind == "human" for h in report.headlines):
        progress.say("review: no person judged any pair; a model's judgements stand under its kind only")
