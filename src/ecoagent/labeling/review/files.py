"""The files of a sample, and that none with judgements is lost."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

from pydantic import ValidationError

from ecoagent.labeling.review.exports import FILLED, label_studio_config, to_csv, to_label_studio
from ecoagent.labeling.review.page import render_page
from ecoagent.labeling.review.sample import SAMPLE_VERSION, Sample
from ecoagent.runs import parse_json, write_json, write_text
from ecoagent.settings import UserError

DEFAULT_FOLDER = "review"
"""Folder in a run's folder."""
SAMPLE_FILE, PAGE_FILE, CSV_FILE = "sample.json", "review.html", "review.csv"
TASKS_FILE, CONFIG_FILE = "label_studio.json", "label_studio.xml"
FILES = (SAMPLE_FILE, PAGE_FILE, CSV_FILE, TASKS_FILE, CONFIG_FILE)


def load_sample(folder: Path) -> Sample:
    """The sample of a folder.

    Raises:
        UserError: there is none, or it was changed by hand.
    """
    path = folder / SAMPLE_FILE
    if not path.is_file():
        raise UserError(
            f"{path} is not there", remedy="draw a sample with `ecoagent review sample`, or name its folder"
        )
    try:
        value = parse_json(path.read_bytes())
        if isinstance(value, dict) and value.get("version") != SAMPLE_VERSION:
            raise UserError(
                f"{path} has version {value.get('version')!r}, this release reads {SAMPLE_VERSION}",
                remedy="score it with the release that drew it, or draw a new sample",
            )
        sample = Sample.model_validate(value)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(p) for p in fault["loc"])
        raise UserError(f"{path}, {where!r}: {fault['msg']}", remedy="draw the sample anew") from error
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}", remedy="draw the sample anew") from error
    if sample.computed_digest() != sample.digest:
        raise UserError(
            f"{path} was changed since it was drawn (its digest is not that of its contents)",
            remedy="put the file back as it was, or draw the sample anew",
        )
    return sample


def write_sample(folder: Path, sample: Sample, *, force: bool = False) -> tuple[list[Path], list[str]]:
    """Write page, CSV, Label Studio files and the sample itself; never over an earlier sample's judgements.

    Args:
        folder: where to; made if it is not there.
        force: set the files of another sample aside, in ``earlier-<digest>`` beside them.

    Returns:
        The files written, and what there is to say.

    Raises:
        UserError: the folder holds another sample, and ``force`` is not given.
    """
    notes: list[str] = []
    there = [name for name in FILES if (folder / name).exists()]
    same = False
    # Without a sample.json, which is written last, the files are what a stopped command left.
    if SAMPLE_FILE in there or _filled(folder / CSV_FILE):
        # A damaged sample.json is treated as another sample: what stands beside it may be judged.
        try:
            earlier = load_sample(folder).digest
        except UserError:
            earlier = "unknown"
        same = earlier == sample.digest
        if not same:
            if not force:
                raise UserError(
                    f"{folder} holds another sample ({earlier}), which may have been judged",
                    remedy="give another --out, or --force, which sets its files aside",
                )
            notes.append(f"the earlier sample was set aside in {_set_aside(folder, there, earlier)}")
    csv_text = to_csv(sample)
    contents = {
        PAGE_FILE: render_page(sample),
        CSV_FILE: csv_text,
        TASKS_FILE: json.dumps(to_label_studio(sample), indent=1, ensure_ascii=False) + "\n",
        CONFIG_FILE: label_studio_config(),
    }
    if same and _filled(folder / CSV_FILE):
        notes.append(f"{folder / CSV_FILE} has judgements of this very sample and was left as it is")
        del contents[CSV_FILE]
    written = [write_text(folder / name, text) for name, text in contents.items()]
    # Last: a folder with a sample.json is whole.
    written.append(write_json(folder / SAMPLE_FILE, sample.model_dump(mode="json")))
    return sorted(written), notes


def _set_aside(folder: Path, names: list[str], digest: str) -> Path:
    target, number = folder / f"earlier-{digest}", 1
    while target.exists():
        number += 1
        target = folder / f"earlier-{digest}-{number}"
    target.mkdir(parents=True)
    for name in names:
        (folder / name).rename(target / name)
    return target


def _filled(path: Path) -> bool:
    """Whether a CSV may hold judgements; one that cannot be read may."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""))
        rows = list(reader)
    except FileNotFoundError:
        return False
    except (UnicodeDecodeError, csv.Error):
        return True
    if text.strip() and not set(FILLED) <= set(reader.fieldnames or ()):
        return True
    return any((row.get(c) or "").strip() for row in rows for c in FILLED)
