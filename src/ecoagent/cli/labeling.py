"""``ecoagent label``: EcoAgent-Real, and the measurements its labels rest on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ecoagent.cli.judging import NOTED, catalog_of, check_encoders, encoder_at, evaluate, propose, show_plan
from ecoagent.cli.options import (
    DryRun,
    Json,
    Limit,
    Profile,
    RealSplit,
    Run,
    Seed,
    Set,
    guarded,
    print_json,
    real_split_overrides,
    settings_of,
)
from ecoagent.cli.show import show_rows
from ecoagent.cli.stages import Force, run_flow
from ecoagent.runs import Progress, RunContext, file_lock, run_lock
from ecoagent.settings import Settings, UserError

if TYPE_CHECKING:
    from ecoagent.labeling import Calibration

MEASURING = "Measure the labeller"


def label(
    calibrate: Annotated[
        Path | None,
        typer.Option(
            help="Instead: measure the verifier on the calibration fold and write this file.",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    evaluate_on: Annotated[
        str | None,
        typer.Option(
            metavar="DIR[/SET]",
            help="Instead: judge the chain on a test collection with gold (JSON lines, BEIR, ToolBench), or, "
            f"with the word `{NOTED}`, on the tools noted with the request set, on the run's catalog.",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    collection: Annotated[
        str | None,
        typer.Option(help="The set, where a folder holds several.", rich_help_panel=MEASURING),
    ] = None,
    encoder: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[@COSINE]",
            help="Candidate encoder to judge or to propose a cosine for, instead of labeling.encoder; may be "
            "repeated.",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    pairs: Annotated[
        int, typer.Option(min=1, help="Pairs to judge, for each encoder.", rich_help_panel=MEASURING)
    ] = 1000,
    kept: Annotated[
        int,
        typer.Option(
            min=0,
            help="Of these kept: 385 hold the half-width of precision at 5 points.",
            rich_help_panel=MEASURING,
        ),
    ] = 385,
    max_pairs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Pairs verified at most [default: four times those wanted].",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    propose_cosine: Annotated[
        bool,
        typer.Option(
            "--propose-cosine",
            help="Instead: propose the cosine at which an encoder's candidates are as precise as the "
            "target, on the calibration fold or --evaluate-on. Needs no LLM.",
            rich_help_panel=MEASURING,
        ),
    ] = False,
    like: Annotated[
        str | None,
        typer.Option(
            metavar="ENCODER@COSINE",
            help="Target: the precision of this encoder.",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    at_precision: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Target: this precision.", rich_help_panel=MEASURING),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File of the reports, merged with those it holds [default: out/results/labeller.json of the "
            "run]; a .md table and a .csv of kept pairs that are not gold are written beside it. With "
            "--propose-cosine: file of the proposals.",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    real_split: RealSplit = None,
    profile: Profile = None,
    run: Run = None,
    limit: Limit = None,
    seed: Seed = None,
    overrides: Set = None,
    force: Force = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Label EcoAgent-Real: encoder candidates, then verification by the model.

    Examples:

      ecoagent label --set labeling.max_verified=120

      ecoagent label --calibrate mine.json && ecoagent label --set labeling.calibration=mine.json

      ecoagent label --evaluate-on DIR/toolbench --encoder all-MiniLM-L6-v2@0.19 --out labeller.json

      ecoagent label --propose-cosine --encoder all-mpnet-base-v2 --like all-MiniLM-L6-v2@0.19
    """

    def work() -> int:
        chosen = [*(overrides or ()), *real_split_overrides(real_split)]
        settings = settings_of(profile, run, limit, seed, chosen)
        _only_one(calibrate, evaluate_on, propose_cosine, like, at_precision, collection)
        if calibrate is not None:
            return _calibrate(settings, calibrate, dry_run=dry_run, as_json=as_json)
        if propose_cosine:
            target = (encoder_at(like) if like else None, at_precision)
            return propose(
                settings,
                evaluate_on,
                collection,
                encoder or [],
                target,
                out,
                dry_run=dry_run,
                as_json=as_json,
            )
        if evaluate_on is not None:
            wanted = (pairs, kept, max_pairs)
            return evaluate(
                settings,
                evaluate_on,
                collection,
                encoder or [],
                wanted,
                out,
                dry_run=dry_run,
                as_json=as_json,
            )
        if encoder or out:
            raise UserError(
                "--encoder and --out belong to --evaluate-on and --propose-cosine",
                remedy="set labeling.encoder to label with another encoder",
            )
        check_encoders(settings, "labeling.encoder", [settings.labeling.encoder])
        return run_flow(
            ("label",),
            settings,
            chosen,
            force=("label",) if force else (),
            dry_run=dry_run,
            as_json=as_json,
            flow_name="label",
        )

    guarded(work, out=out)


def _only_one(
    calibrate: Path | None,
    evaluate_on: str | None,
    propose: bool,
    like: str | None,
    at_precision: float | None,
    collection: str | None,
) -> None:
    if calibrate is not None and (evaluate_on is not None or propose):
        raise UserError("--calibrate measures alone", remedy="leave out --evaluate-on and --propose-cosine")
    if not propose and (like is not None or at_precision is not None):
        raise UserError("--like and --at-precision are targets of --propose-cosine", remedy="add it")
    if propose and (like is None) == (at_precision is None):
        raise UserError(
            "a cosine is proposed for one target", remedy="give --like ENCODER@COSINE or --at-precision P"
        )
    if collection is not None and evaluate_on is None:
        raise UserError("--collection chooses in a folder", remedy="give --evaluate-on DIR")


def _calibrate(settings: Settings, target: Path, *, dry_run: bool, as_json: bool) -> int:
    from ecoagent.labeling import load_calibrations
    from ecoagent.labeling.calibration_run import calibrate_verifier, calibration_plan, write_calibrations
    from ecoagent.llm import close_engines

    def known() -> list[Calibration]:
        try:
            target.lstat()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UserError(
                f"{target} cannot be written ({error.strerror})", remedy="name another file"
            ) from error
        return load_calibrations(target)

    ctx = RunContext.create(settings, Progress())
    check_encoders(settings, "labeling.encoder", [settings.labeling.encoder])
    tools = catalog_of(settings)
    if dry_run:
        planned = {"model": settings.llm.model, "file": str(target), "kept_in_it": len(known())}
        planned |= calibration_plan(settings, tools, most_requests=settings.limit)
        show_plan(planned, as_json=as_json)
        return 0
    # Whatever is wrong with the file shows before hours of measuring, not after.
    with run_lock(ctx.paths.root), file_lock(target, settings.outputs / "store"):
        others = known()
        made = calibrate_verifier(settings, tools, ctx.progress, most_requests=settings.limit)
        close_engines()
        same = (made.model, made.encoder, made.form)
        kept = [c for c in others if (c.model, c.encoder, c.form) != same]
        write_calibrations(target, [*kept, made])
    facts = made.model_dump(mode="json", exclude={"curve", "knots_x", "knots_y"})
    if as_json:
        print_json(facts)
    else:
        show_rows(f"calibration written to {target}", [{"what": k, "value": v} for k, v in facts.items()])
        show_rows("reliability curve, cross-validated", made.curve)
    return 0
