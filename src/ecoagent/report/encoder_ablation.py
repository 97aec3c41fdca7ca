"""What each choice of the encoder's training does, as the page shows it, from ``encoder_ablation.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ecoagent.report.encoder_ablation_figures import differences_figure
from ecoagent.report.figures import Figure
from ecoagent.runs import Kind, UnreadableError, each_with_fields, read_object, with_fields

ENCODER_ABLATION = "encoder_ablation.json"
REMEDY = "run `ecoagent ablate encoder --force` on the run"
BUILD_SETS = ("syn", "real")
TITLES = {"build": "Splits of the build", "sets": "Independent collections"}
"""Groups of the section: what the encoder was made for, and what others made."""

_NUMBER = (int, float)
_FIELDS: dict[str, Kind] = {"chosen": str, "seeds": list, "arms": list, "rows": list, "notes": list}
_ARM: dict[str, Kind] = {"arm": str, "label": str, "what": str, "encoder": str, "parameters": int}
_ROW: dict[str, Kind] = {
    "arm": str,
    "set": str,
    "split": str,
    "queries": int,
    "tools": int,
    "MRR": _NUMBER,
    "interval": list,
}
_TEST: dict[str, Kind] = {"difference": _NUMBER, "interval": list, "p": _NUMBER}
_BASELINE: dict[str, Kind] = {"label": str, "set": str, "split": str, "MRR": _NUMBER, "interval": list}


@dataclass(frozen=True)
class Column:
    """Queries of one set and split; ``tools`` are the clusters they were resampled by."""

    set_name: str
    split: str
    queries: int
    tools: int

    @property
    def name(self) -> str:
        """Set and split; an independent collection has one split."""
        return f"{self.set_name} {self.split}" if self.set_name in BUILD_SETS else self.set_name


@dataclass(frozen=True)
class Cell:
    """MRR of an arm or a ranker on a column.

    Attributes:
        difference: from the untrained encoder: ``difference``, ``interval`` and ``p``.
        like_chosen: the interval of the difference from the chosen arm holds 0.
        best: no other arm has a higher MRR on the column.
    """

    mrr: float
    interval: Sequence[float]
    difference: Mapping[str, Any] | None = None
    like_chosen: bool = False
    best: bool = False


@dataclass(frozen=True)
class ArmRow:
    """One encoder with a cell a column, none where it was not judged."""

    arm: str
    label: str
    what: str
    parameters: int | None
    steps: int | None
    seconds: float | None
    cells: Sequence[Cell | None]


@dataclass(frozen=True)
class Group:
    """One table: arms down, sets and splits across.

    Attributes:
        key: of ``TITLES``.
        baselines: rankers that are no encoder of this training, with a cell a column.
    """

    key: str
    columns: Sequence[Column]
    arms: Sequence[ArmRow]
    baselines: Sequence[tuple[str, Sequence[Cell | None]]]

    @property
    def title(self) -> str:
        """Its heading."""
        return TITLES[self.key]

    @property
    def figure(self) -> str:
        """Name of its figure."""
        return f"encoder_ablation_{self.key}"


@dataclass(frozen=True)
class EncoderSection:
    """Everything the section shows.

    Attributes:
        encoder: model that the chosen arm starts from.
        shipped: it is of the reference build.
    """

    groups: Sequence[Group]
    chosen: str
    chosen_label: str
    encoder: str
    seeds: int
    notes: Sequence[str]
    shipped: bool


def read_encoder_ablation(path: Path) -> dict[str, Any] | None:
    """The result of ``ecoagent ablate encoder``; None where it was not run.

    Raises:
        UserError: the file is damaged.
    """
    if not path.is_file():
        return None
    found = read_object(path, _FIELDS, remedy=REMEDY)
    each_with_fields(path, found["arms"], _ARM, within="arms", remedy=REMEDY)
    for part, fields in (("rows", _ROW), ("baselines", _BASELINE)):
        rows = each_with_fields(path, found.get(part, []), fields, within=part, remedy=REMEDY)
        for number, row in enumerate(rows):
            _check_interval(path, row, f"{part}.{number}")
            for key in ("against_untrained", "against_chosen"):
                if key in row:
                    within = f"{part}.{number}.{key}"
                    _check_interval(
                        path, with_fields(path, row[key], _TEST, within=within, remedy=REMEDY), within
                    )
    return found


def _check_interval(path: Path, row: Mapping[str, Any], within: str) -> None:
    ends = row["interval"]
    if len(ends) != 2 or not all(isinstance(end, _NUMBER) for end in ends):
        raise UnreadableError(f"{path} is damaged: '{within}.interval' is not two numbers", remedy=REMEDY)


def encoder_of(content: Mapping[str, Any]) -> str | None:
    """The model the chosen arm of a result starts from."""
    return next((str(a["encoder"]) for a in content["arms"] if a["arm"] == content["chosen"]), None)


def encoder_section(content: Mapping[str, Any] | None, *, shipped: bool = False) -> EncoderSection | None:
    """Tables of a result that was read; None where nothing was measured.

    Args:
        content: ``encoder_ablation.json``.
        shipped: it is of the reference build.
    """
    if content is None or not content["rows"]:
        return None
    labels = {a["arm"]: str(a["label"]) for a in content["arms"]}
    chosen = str(content["chosen"])
    return EncoderSection(
        groups=[group for key in TITLES if (group := _group(content, key)) is not None],
        chosen=chosen,
        chosen_label=labels.get(chosen, chosen),
        encoder=encoder_of(content) or "?",
        seeds=len(content["seeds"]) or 1,
        notes=[str(n) for n in content["notes"]],
        shipped=shipped,
    )


def _group(content: Mapping[str, Any], key: str) -> Group | None:
    rows = [r for r in content["rows"] if (r["set"] in BUILD_SETS) == (key == "build")]
    if not rows:
        return None
    places = {(r["set"], r["split"]): r for r in rows}
    columns = [Column(*place, r["queries"], r["tools"]) for place, r in places.items()]
    best = {p: max(r["MRR"] for r in rows if (r["set"], r["split"]) == p) for p in places}
    cells: dict[str, dict[tuple[str, str], Cell]] = {}
    for row in rows:
        place = (row["set"], row["split"])
        cells.setdefault(row["arm"], {})[place] = Cell(
            row["MRR"],
            row["interval"],
            row.get("against_untrained"),
            like_chosen=holds_zero(row.get("against_chosen")),
            best=row["MRR"] == best[place],
        )
    arms = [
        ArmRow(
            a["arm"],
            a["label"],
            a["what"],
            a["parameters"],
            a.get("steps"),
            a.get("seconds"),
            [cells[a["arm"]].get(place) for place in places],
        )
        for a in content["arms"]
        if a["arm"] in cells
    ]
    others: dict[str, dict[tuple[str, str], Cell]] = {}
    for row in content.get("baselines", []):
        if (place := (row["set"], row["split"])) in places:
            others.setdefault(row["label"], {}).setdefault(place, Cell(row["MRR"], row["interval"]))
    baselines = [(label, [found.get(place) for place in places]) for label, found in others.items()]
    return Group(key, columns, arms, baselines)


def holds_zero(test: Mapping[str, Any] | None) -> bool:
    """Whether the interval of a difference holds 0; not where nothing was compared."""
    return test is not None and test["interval"][0] <= 0 <= test["interval"][1]


def encoder_figures(section: EncoderSection | None) -> dict[str, Figure]:
    """A figure a group, where any arm was compared with the untrained encoder."""
    if section is None:
        return {}
    drawn = ((group, _figure(group, section)) for group in section.groups)
    return {group.figure: figure for group, figure in drawn if figure is not None}


def _figure(group: Group, section: EncoderSection) -> Figure | None:
    rows = [(r.label, r.arm == section.chosen, [_difference(c) for c in r.cells]) for r in group.arms]
    rows = [row for row in rows if any(row[2])]
    if not rows:
        return None
    told = "; ".join(
        f"{column.name} {test['difference']:+.3f}"
        for _, chosen, tests in rows
        if chosen
        for column, test in zip(group.columns, tests, strict=True)
        if test is not None
    )
    label = section.chosen_label
    return Figure(
        f"{group.figure}.png",
        # The blank does not break, so that a long name leaves the number whole.
        differences_figure(
            [f"{c.name} ({c.queries:,}\N{NO-BREAK SPACE}queries)" for c in group.columns], rows
        ),
        f"Dots with 95% intervals: MRR of {len(rows)} encoders minus that of the untrained one"
        + (f"; {label}: {told}" if told else "")
        + ". The values are those of the table.",
        f"{group.title}: MRR minus that of the untrained encoder, 95% by tool. Filled: the interval is on "
        f"one side of 0 (blue: better, orange: worse); hollow: it holds 0. Shaded: {label}.",
    )


def _difference(cell: Cell | None) -> Mapping[str, Any] | None:
    return None if cell is None else cell.difference
