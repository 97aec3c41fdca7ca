"""The offline table (Table 1): every ranker on every judged split, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ecoagent.evaluation.datasets import EvalData
from ecoagent.evaluation.trec import write_qrels, write_run
from ecoagent.metrics import evaluate_run
from ecoagent.retrieval import RankedRun, TextSet, find_ranker
from ecoagent.runs import read_json, read_table, write_json
from ecoagent.settings import BaselineSettings, TrainSettings, UserError

JUDGED: tuple[tuple[str, str], ...] = (("syn", "test"), ("syn", "cold"), ("real", "test"))
"""Splits that are reported. No setting is tuned on them: training looks at train and val alone."""

RUN, NOT_RUN = "run", "not run"
"""Values of a row's ``status``."""

DECIMALS = 6
"""Decimals of numbers in result files: what is beyond differs between machines."""


@dataclass(frozen=True)
class JudgedSplit:
    """Queries of one split with their golds."""

    set_name: str
    split: str
    queries: TextSet
    golds: Mapping[str, frozenset[str]]

    @property
    def name(self) -> str:
        """``<set>.<split>``, as files are called."""
        return f"{self.set_name}.{self.split}"


def reported(data: EvalData) -> tuple[tuple[str, str], ...]:
    """Splits that are reported: Syn val takes the place of a Syn test split that the data set does not have,
    as in the authors' release."""
    if len(data.judged("syn", "test", 1)) or not len(data.judged("syn", "val", 1)):
        return JUDGED
    return tuple(("syn", "val") if place == ("syn", "test") else place for place in JUDGED)


def judged_splits(data: EvalData, limit: int | None = None) -> list[JudgedSplit]:
    """The reported splits that have judged queries."""
    found = []
    for set_name, split in reported(data):
        queries = data.judged(set_name, split, limit)
        if len(queries):
            golds = {query: data.golds[query] for query in queries.ids}
            found.append(JudgedSplit(set_name, split, queries, golds))
    return found


def all_queries(splits: Sequence[JudgedSplit]) -> TextSet:
    """Queries of every split in one set, so that each text is encoded once."""
    texts = {i: t for s in splits for i, t in zip(s.queries.ids, s.queries.texts, strict=True)}
    return TextSet(tuple(texts), tuple(texts.values()))


def part_of(run: RankedRun, split: JudgedSplit) -> RankedRun:
    """The part of a run that answers a split's queries."""
    place = {query: n for n, query in enumerate(run.query_ids)}
    rows = [place[query] for query in split.queries.ids]
    return RankedRun(
        run.name, split.queries.ids, [run.tool_ids[n] for n in rows], [run.scores[n] for n in rows]
    )


@dataclass(frozen=True)
class NotRun:
    """A ranker that could not run here: its rows say so."""

    name: str
    reason: str
    again: bool = False
    """Whether the next evaluation tries again: something was asked for and did not come."""


Ranked = RankedRun | NotRun

RUN_FILE = "run.parquet"
NOT_RUN_FILE = "not_run.json"


def save_ranked(folder: Path, found: Ranked) -> Path:
    """Write what came of a ranker; ``load_ranked`` reads it back."""
    if isinstance(found, RankedRun):
        return save_run(folder / RUN_FILE, found)
    return write_json(folder / NOT_RUN_FILE, {"reason": found.reason, "again": found.again})


def load_ranked(folder: Path, name: str) -> Ranked:
    """What ``save_ranked`` wrote for the ranker ``name``."""
    if (folder / NOT_RUN_FILE).is_file():
        stored = read_json(folder / NOT_RUN_FILE)
        return NotRun(name, str(stored["reason"]), bool(stored["again"]))
    return load_run(folder / RUN_FILE, name)


def is_settled(folder: Path) -> bool:
    """Whether what ``save_ranked`` wrote stands: it is no ranker that the next evaluation tries again."""
    path = folder / NOT_RUN_FILE
    return not path.is_file() or not read_json(path)["again"]


def save_run(path: Path, run: RankedRun) -> Path:
    """Write a run as Parquet: query_id, tool_ids, scores."""
    pl.DataFrame(
        {"query_id": list(run.query_ids), "tool_ids": run.tool_ids, "scores": run.scores},
        schema={"query_id": pl.String, "tool_ids": pl.List(pl.String), "scores": pl.List(pl.Float64)},
    ).write_parquet(path, compression="zstd")
    return path


def load_run(path: Path, name: str) -> RankedRun:
    """Read a run that ``save_run`` wrote."""
    table = read_table(path)
    return RankedRun(name, tuple(table["query_id"]), table["tool_ids"].to_list(), table["scores"].to_list())


def offline_row(
    found: Ranked,
    split: JudgedSplit,
    settings: TrainSettings,
    seed: int,
    baselines: BaselineSettings | None = None,
) -> dict[str, Any]:
    """One row of the table: the means of each metric with 95% bootstrap intervals, or why there are none.

    Raises:
        UserError: the run is not one of a registered ranker.
    """
    ranker = find_ranker(found.name)
    row: dict[str, Any] = {
        "set": split.set_name,
        "split": split.split,
        "ranker": ranker.name,
        "role": ranker.role,
        "label": ranker.label(settings, baselines),
        "model": ranker.model(settings, baselines),
        "licence": ranker.licence(settings),
        "n_queries": len(split.queries),
        "n_golds": sum(map(len, split.golds.values())),
    }
    if isinstance(found, NotRun):
        return {**row, "status": NOT_RUN, "reason": found.reason, "metrics": {}, "intervals": {}}
    judged = evaluate_run(part_of(found, split), split.golds)
    return {
        **row,
        "status": RUN,
        "metrics": {name: round(value, DECIMALS) for name, value in judged.means().items()},
        "intervals": {
            name: [round(low, DECIMALS), round(high, DECIMALS)]
            for name, (low, high) in judged.intervals(seed=seed).items()
        },
    }


def offline_table(
    found: Sequence[Ranked],
    splits: Sequence[JudgedSplit],
    settings: TrainSettings,
    seed: int,
    baselines: BaselineSettings | None = None,
) -> list[dict[str, Any]]:
    """Rows for every split and ranker, in that order."""
    return [offline_row(one, split, settings, seed, baselines) for split in splits for one in found]


def write_trec(folder: Path, runs: Sequence[RankedRun], splits: Sequence[JudgedSplit]) -> list[Path]:
    """Qrels and runs of every split in TREC format; names in ``folder`` of other runs are removed."""
    written = []
    for split in splits:
        written.append(write_qrels(folder / f"{split.name}.qrels", split.golds))
        for run in runs:
            written.append(write_run(folder / f"{split.name}.{run.name}.run", part_of(run, split)))
    for stale in sorted(set(folder.iterdir()) - set(written)) if folder.is_dir() else []:
        if stale.suffix in (".run", ".qrels"):
            stale.unlink()
    return written


def offline_notes(data: EvalData, splits: Sequence[JudgedSplit], depth: int) -> list[str]:
    """What a reader of the table has to know."""
    notes = [
        f"Rankings are cut after {depth} tools; MRR is over those.",
        f"Every ranker chooses among all {len(data.tools)} tools of the run; the document is tool_text.",
        "A gold's duplicate group counts as gold; queries without any gold are left out.",
        "Intervals: 95% percentile bootstrap over queries.",
        "Recall@k is the share of a query's golds among the first k, Hit@k whether any is.",
    ]
    present = {(s.set_name, s.split) for s in splits}
    if ("real", "test") in present:
        notes.append(
            "Real's golds were judged among what the labelling step's encoder and BM25 proposed: "
            "a right tool that only another ranker finds counts as wrong."
        )
    if ("syn", "val") in present:
        notes.append("The data set has no Syn test split: Syn val, which training looks at, is reported.")
    for set_name, split in reported(data):
        found = data.queries.get((set_name, split), TextSet((), ()))
        if (set_name, split) not in present:
            notes.append(f"{set_name} {split}: not evaluated, it has no judged query.")
        elif left := sum(1 for query in found.ids if not data.golds.get(query)):
            notes.append(f"{set_name} {split}: {left} of {len(found)} queries have no gold and are left out.")
    return notes


def check_rankers(names: Sequence[str]) -> None:
    """UserError if a ranker is unknown, asked for twice, or none is."""
    if not names:
        raise UserError("evaluate.rankers is empty", remedy="name at least one ranker")
    for name in names:
        find_ranker(name)
    if len(set(names)) != len(names):
        raise UserError(f"evaluate.rankers names a ranker twice: {', '.join(names)}", remedy="name each once")
