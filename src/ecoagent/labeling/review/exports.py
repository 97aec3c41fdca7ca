"""The sample for other tools: a CSV for spreadsheets, tasks and a labelling page for Label Studio.

Neither tells what the labeller decided.
"""

from __future__ import annotations

import csv
import io
from importlib import resources
from typing import Any

from ecoagent.labeling.review.sample import ReviewItem, Sample

SHOWN = (
    "query", "tool_name", "tool_group", "tool_description", "tool_operations", "tool_parameters", "tool_id",
)  # fmt: skip
FILLED = ("judgement", "note", "judge", "judge_kind")
"""Columns the judge fills in; the last two in every judged row."""
CSV_COLUMNS = ("sample", "id", *FILLED, "set", *SHOWN)
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")


def guard_cell(text: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text.lstrip(" \u00a0\ufeff").startswith(_FORMULA) else text


def unguard_cell(text: str) -> str:
    """What ``guard_cell`` was given."""
    return text[1:] if text.startswith("'") and guard_cell(text[1:]) == text else text


def _shown(item: ReviewItem) -> dict[str, str]:
    values = item.model_dump()
    return {n: "; ".join(v) if isinstance(v := values[n], list) else v or "" for n in SHOWN}


def to_csv(sample: Sample) -> str:
    """The sample as CSV; starts with a byte order mark, without which spreadsheets misread UTF-8."""
    out = io.StringIO()
    writer = csv.DictWriter(out, CSV_COLUMNS, restval="", lineterminator="\r\n")
    writer.writeheader()
    for item in sample.items:
        row = {"sample": sample.digest, "id": item.id, "set": item.set, **_shown(item)}
        writer.writerow({k: guard_cell(v) for k, v in row.items()})
    return "\ufeff" + out.getvalue()


def to_label_studio(sample: Sample) -> list[dict[str, Any]]:
    """Tasks to import into Label Studio."""
    return [
        {"data": {"sample": sample.digest, "review_id": item.id, "set": item.set, **_shown(item)}}
        for item in sample.items
    ]


def label_studio_config() -> str:
    """Labelling configuration of a Label Studio project."""
    folder = resources.files("ecoagent.labeling.review").joinpath("templates")
    return folder.joinpath("label_studio.xml").read_text("utf-8")
