"""Bodies of ``ecoagent label --evaluate-on`` and ``--propose-cosine``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoagent.cli.options import one_of, print_json
from ecoagent.cli.show import show_rows
from ecoagent.runs import Progress, RunContext, file_lock, read_rows, write_json
from ecoagent.settings import Settings, UserError

if TYPE_CHECKING:
    from ecoagent.labeling.judge import Chain
    from ecoagent.labeling.judge_report import LabellerReport
    from ecoagent.labeling.judge_sample import LabelledSet
    from ecoagent.schema import ScoredTool

NOTED = "noted"
"""In place of a folder: the tools noted with the request set."""


def encoder_at(text: str) -> tuple[str, float]:
    """``NAME@COSINE``.

    Raises:
        UserError: it is something else.
    """
    name, cosine = _encoder_or_default(text)
    if cosine is None:
        raise UserError(
            f"{text!r} has no cosine", remedy="write ENCODER@COSINE, for example thenlper/gte@0.7"
        )
    return name, cosine


def _encoder_or_default(text: str) -> tuple[str, float | None]:
    name, at, number = text.rpartition("@")
    if not at:
        return text, None
    try:
        cosine = float(number)
    except ValueError:
        cosine = 2.0
    if not name or not -1 <= cosine <= 1:
        raise UserError(f"{text!r} is not ENCODER@COSINE", remedy="give a cosine between -1 and 1")
    return name, cosine


def check_encoders(settings: Settings, origin: str, names: Iterable[str]) -> None:
    """Check names of encoders, before anything is read or measured.

    Args:
        origin: the option or key they come from.

    Raises:
        UserError: neither the table of sources nor ``models.local`` has one.
    """
    from ecoagent.models import known_models

    one_of(origin, list(names), sorted({*known_models(), *settings.models.local}))


def show_plan(planned: dict[str, Any], *, as_json: bool) -> None:
    """What a dry run says."""
    if as_json:
        print_json(planned)
    else:
        show_rows("dry run: nothing was done", [{"what": k, "value": v} for k, v in planned.items()])


def _labelled(settings: Settings, where: str | None, collection: str | None, *, fold: str) -> LabelledSet:
    """The labelled set that an option names; none = the noted tools of a fold, where the set has it."""
    from ecoagent.labeling import load_requests
    from ecoagent.labeling.judge_sample import collection_set, noted_set
    from ecoagent.retrieval.collections import collection_at

    if where is not None and where != NOTED:
        return collection_set(collection_at(where, collection))
    if collection is not None:
        raise UserError("--collection chooses in a folder", remedy="give --evaluate-on DIR")
    requests = load_requests(settings.labeling.queries)
    there = {r.fold for r in requests.requests}
    return noted_set(requests, catalog_of(settings), folds=(fold,) if fold in there else tuple(there))


def catalog_of(settings: Settings) -> list[ScoredTool]:
    """The run's scored catalog.

    Raises:
        UserError: the run has none.
    """
    from ecoagent.schema import ScoredTool

    table = RunContext.create(settings).paths.core / "tools.parquet"
    if not table.is_file():
        raise UserError(
            f"{table} is not there", remedy="run `ecoagent score` first, the catalog is measured on"
        )
    return read_rows(table, ScoredTool)


def evaluate(
    settings: Settings,
    where: str,
    collection: str | None,
    encoders: list[str],
    wanted: tuple[int, int, int | None],
    out: Path | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Judge chains and write their reports.

    Args:
        where: folder of a collection, or ``noted``.
        wanted: pairs to judge, pairs to be kept, pairs to verify at most.

    Raises:
        UserError: bad folder, unknown cosine or calibration, no place for the report.
    """
    from ecoagent.labeling.judge import chain_of, evaluate_labeller
    from ecoagent.labeling.judge_report import merge_reports
    from ecoagent.labeling.judge_table import not_gold_rows, render_markdown, write_not_gold
    from ecoagent.llm import close_engines
    from ecoagent.runs import write_text

    ctx = RunContext.create(settings, Progress())
    if out is None and not ctx.paths.root.is_dir():
        raise UserError(
            f"there is no run {settings.run_name!r} to keep the report",
            remedy="give --out FILE, or --run NAME",
        )
    target = out or ctx.paths.out / "results" / "labeller.json"
    if target.suffix != ".json":
        raise UserError(f"{target} is no .json file", remedy="name the report FILE.json")
    asked = [_encoder_or_default(e) for e in encoders or [settings.labeling.encoder]]
    check_encoders(settings, "--encoder" if encoders else "labeling.encoder", [name for name, _ in asked])
    check_encoders(settings, "labeling.encoder", [settings.labeling.encoder])
    chains = [chain_of(settings, name, cosine) for name, cosine in asked]
    labelled = _labelled(settings, where, collection, fold="label")
    pairs, kept, most = wanted
    planned = _plan(settings, labelled, chains, pairs, kept, most)
    if dry_run:
        show_plan(planned, as_json=as_json)
        return 0
    ctx.progress.say(
        f"judging on {labelled.name}: {planned['pairs_verified_at_least']:,} to "
        f"{planned['pairs_verified_at_most']:,} pairs to verify{_minutes(planned)}; "
        "answers in the store cost nothing"
    )
    with file_lock(target, settings.outputs / "store"):
        made = evaluate_labeller(
            labelled,
            settings,
            chains,
            pairs=pairs,
            kept=kept,
            max_pairs=most,
            progress=ctx.progress,
        )
        close_engines()
        reports = merge_reports(target, [e.report for e in made])
        write_text(target.with_suffix(".md"), render_markdown(reports))
        listed = target.with_name(f"{target.stem}_not_gold.csv")
        write_not_gold(listed, made, [row for e in made for row in not_gold_rows(labelled, e)])
    if as_json:
        print_json({"reports": [e.report.to_json() for e in made]})
    else:
        _show([e.report for e in made])
        ctx.progress.say(f"{target}, {target.with_suffix('.md').name}; to be read: {listed.name}")
    return 0


def _show(reports: Sequence[LabellerReport]) -> None:
    from ecoagent.labeling.judge_table import retriever_rows, stage_rows, summary_rows

    for report in reports:
        show_rows(f"{report.collection}: {report.encoder}, {report.model}", stage_rows(report))
        if report.lexical_top_k:
            show_rows("judged pairs by retriever", retriever_rows(report))
    for row in summary_rows(reports):
        show_rows(
            f"{row['set']}: {row['encoder']} (precision is a lower bound: gold is incomplete)",
            [{"what": k, "value": v} for k, v in row.items()],
        )


def _plan(
    settings: Settings, labelled: LabelledSet, chains: list[Chain], pairs: int, kept: int, most: int | None
) -> dict[str, Any]:
    """What an evaluation costs, as far as it is known before anything is encoded."""
    from ecoagent.labeling.estimate import verification_cost
    from ecoagent.labeling.judge import MOST

    labeling = settings.labeling
    a_query = labeling.top_k * len(chains) + labeling.lexical_top_k
    ceiling = min(MOST * max(pairs, kept) if most is None else most, a_query * len(labelled.queries))
    least = min(pairs, ceiling)
    planned: dict[str, Any] = {
        "set": labelled.name,
        "queries_to_draw_from": len(labelled.queries),
        "strata": {name: len(queries) for name, queries in labelled.strata().items()},
        "left_out": dict(labelled.left_out),
        "encoders": [f"{c.encoder}@{c.min_cosine:g}" for c in chains],
        "texts_to_encode_at_most": len(labelled.tools) + len(labelled.queries),
        "pairs_verified_at_least": least,
        "pairs_verified_at_most": ceiling,
    }
    cards, texts = list(labelled.cards.values()), [q.text for q in labelled.queries]
    cost = verification_cost(settings, cards, texts, ceiling).as_record()
    planned |= {k if k == "speed" else f"{k}_at_most": v for k, v in cost.items()}
    planned["minutes_at_least"] = round(cost["minutes"] * least / max(1, ceiling), 1)
    return planned


def _minutes(planned: dict[str, Any]) -> str:
    low, high = planned["minutes_at_least"], planned["minutes_at_most"]
    return f", {low:g} to {high:g} minutes"


def propose(
    settings: Settings,
    where: str | None,
    collection: str | None,
    encoders: list[str],
    target: tuple[tuple[str, float] | None, float | None],
    out: Path | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Propose a cosine for each encoder.

    Args:
        where: folder of a collection; none or ``noted`` = the calibration fold of the request set.
        target: encoder and cosine to be like, or a precision.
    """
    from ecoagent.labeling.cosine import propose_for
    from ecoagent.labeling.judge_table import curve_rows, proposal_rows

    progress = Progress()
    names = [_encoder_or_default(e)[0] for e in encoders] or [settings.labeling.encoder]
    like, precision = target
    check_encoders(settings, "--encoder" if encoders else "labeling.encoder", names)
    check_encoders(settings, "--like", [like[0]] if like else [])
    labelled = _labelled(settings, where, collection, fold="calibration")
    if dry_run:
        asked = sorted({*names, *([like[0]] if like else [])})
        texts = len(labelled.tools) + len(labelled.queries)
        progress.say(f"would encode at most {texts:,} texts of {labelled.name} by {', '.join(asked)}")
        return 0
    made = propose_for(labelled, settings, names, like=like, precision=precision, progress=progress)
    values = {"proposals": [p.model_dump(mode="json") for p in made]}
    if out is not None:
        write_json(out, values)
    if as_json:
        print_json(values)
        return 0
    for proposal in made:
        show_rows(f"{proposal.encoder} on {proposal.collection}", proposal_rows(proposal))
        show_rows("candidates at or above a cosine", curve_rows(proposal))
        if not proposal.reached:
            progress.say(f"no cosine of {proposal.encoder} reaches the target; the most precise is shown")
    return 0
