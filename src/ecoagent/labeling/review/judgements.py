"""Judgements as they come back: the page's export, the filled CSV, Label Studio's export."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ecoagent.labeling.review.exports import unguard_cell
from ecoagent.labeling.review.page import FORMAT
from ecoagent.labeling.review.sample import Sample
from ecoagent.runs import parse_json
from ecoagent.schema import fold_space
from ecoagent.settings import UserError

ANSWERS = {"yes": "yes", "y": "yes", "no": "no", "n": "no", "unsure": "unsure", "u": "unsure"}
KINDS = ("human", "model")
MAX_NAME = 80


@dataclass(frozen=True)
class Judgement:
    """What one judge said of one pair.

    Attributes:
        item: id of the pair in the sample.
        answer: yes, no or unsure.
        kind: human or model.
        saw_verdict: whether the labeller's verdict was shown at the time; none where that is not known.
        file, row: where it was read.
    """

    item: str
    answer: str
    judge: str
    kind: str
    note: str
    saw_verdict: bool | None
    file: str
    row: int


@dataclass(frozen=True)
class JudgementFile:
    """One file as read; all its judgements are of one kind."""

    name: str
    format: str
    kind: str
    judgements: tuple[Judgement, ...]
    left: int = 0
    """Rows without a judgement."""
    predictions: int = 0
    """Label Studio predictions, which are not read: only annotations say who judged."""


@dataclass(frozen=True)
class _Row:
    """A judged row before it is checked."""

    number: int
    sample: Any
    item: Any
    answer: Any
    judge: Any
    kind: Any
    note: Any = ""
    saw: Any = None


def read_judgements(paths: Sequence[Path], sample: Sample) -> list[JudgementFile]:
    """Read and check files of judgements of one sample.

    Raises:
        UserError: a file is not there, not of a known form or holds no judgement; a row is of another
            sample, of an unknown pair, or without judge or kind of judge; a file mixes kinds; a judge
            judged a pair twice, or is human in one file and a model in another. File and row are named.
    """
    files = [_read(path, sample) for path in paths]
    seen: dict[tuple[str, str], Judgement] = {}
    kinds: dict[str, Judgement] = {}
    for judgement in (j for f in files for j in f.judgements):
        who = judgement.judge.casefold()
        first = kinds.setdefault(who, judgement)
        if first.kind != judgement.kind:
            raise UserError(
                f"{_at(judgement)}: judge {judgement.judge!r} is {judgement.kind}, "
                f"but {first.kind} in {_at(first)}",
                remedy="give a person and a model different names",
            )
        other = seen.setdefault((who, judgement.item), judgement)
        if other is not judgement:
            differs = (
                f"first {other.answer}, then {judgement.answer}"
                if other.answer != judgement.answer
                else "the same"
            )
            raise UserError(
                f"{_at(judgement)}: {judgement.judge!r} judged {judgement.item} before, "
                f"in {_at(other)} ({differs})",
                remedy="leave one of the two out",
            )
    return files


def _at(judgement: Judgement) -> str:
    return f"{judgement.file} row {judgement.row}"


def _read(path: Path, sample: Sample) -> JudgementFile:
    if not path.is_file():
        raise UserError(
            f"file of judgements {path} does not exist", remedy="name the file that was downloaded"
        )
    data = path.read_bytes()
    if not data.strip():
        raise UserError(f"{path} is empty", remedy="download the judgements again")
    name, left, predictions = path.name, 0, 0
    if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        try:
            value = parse_json(data.decode("utf-8-sig"))
        except ValueError as error:
            raise UserError(f"{path} is not JSON: {error}", remedy="download the judgements again") from error
        if isinstance(value, dict):
            form, rows = "page", _page_rows(value, name)
        else:
            form = "label studio"
            rows, left, predictions = _studio_rows(value, name)
    else:
        form = "csv"
        rows, left = _csv_rows(data, name)
    known = frozenset(i.id for i in sample.items)
    judgements = [_checked(row, name, sample.digest, known) for row in rows]
    if not judgements:
        extra = f"; {predictions} predictions, which say not who judged, were not read" if predictions else ""
        raise UserError(f"{path} holds no judgement{extra}", remedy="judge some pairs first")
    first = judgements[0]
    for judgement in judgements:
        if judgement.kind != first.kind:
            raise UserError(
                f"{_at(judgement)}: judge_kind is {judgement.kind!r}, but {first.kind!r} in row {first.row}",
                remedy="put what people and what models judged into files of their own",
            )
    ordered = tuple(judgements)
    return JudgementFile(name, form, first.kind, ordered, left, predictions)


def _checked(row: _Row, name: str, digest: str, known: frozenset[str]) -> Judgement:
    where = f"{name} row {row.number}"
    if row.sample != digest:
        raise UserError(
            f"{where}: judged for sample {row.sample!r}, this is {digest!r}",
            remedy="score it with the folder of its own sample (--sample DIR)",
        )
    if not isinstance(row.item, str) or row.item not in known:
        raise UserError(f"{where}: no pair {row.item!r} in the sample", remedy="leave ids as they were given")
    answer = ANSWERS.get(str(row.answer).strip().lower())
    if answer is None:
        raise UserError(f"{where}: judgement {row.answer!r} is not known", remedy="write yes, no or unsure")
    kind = str(row.kind or "").strip().lower()
    if kind not in KINDS:
        said = f"judge_kind {row.kind!r} is not known" if kind else "judge_kind is missing"
        raise UserError(f"{where}: {said}", remedy="say human or model in every judged row")
    judge = fold_space(row.judge) if isinstance(row.judge, str) else ""
    if not judge or len(judge) > MAX_NAME or not judge.isprintable():
        said = f"judge {judge[:20]!r}… is no name" if judge else "the judge's name is missing"
        raise UserError(f"{where}: {said}", remedy=f"name who judged, in at most {MAX_NAME} letters")
    if row.saw is not None and not isinstance(row.saw, bool):
        raise UserError(f"{where}: saw_verdict is {row.saw!r}", remedy="write true or false")
    note = row.note if isinstance(row.note, str) else ""
    return Judgement(row.item, answer, judge, kind, note, row.saw, name, row.number)


def _page_rows(value: dict[str, Any], name: str) -> list[_Row]:
    if value.get("format") != FORMAT or not isinstance(value.get("judgements"), list):
        raise UserError(
            f"{name} is no export of the review page (format {value.get('format')!r}, wanted {FORMAT!r})",
            remedy="give the file that the page downloads, the filled CSV, or Label Studio's JSON",
        )
    rows = []
    for number, row in enumerate(value["judgements"], 1):
        if not isinstance(row, dict):
            raise UserError(f"{name} row {number}: not an object", remedy="download the judgements again")
        for key in ("judge", "judge_kind"):
            # The head says who the file is of; a row that says otherwise was put in by hand.
            if row.get(key) != value.get(key):
                raise UserError(
                    f"{name} row {number}: {key} is {row.get(key)!r}, but the file says {value.get(key)!r}",
                    remedy="put each judge's judgements into a file of their own",
                )
        rows.append(
            _Row(
                number,
                value.get("sample"),
                row.get("id"),
                row.get("judgement"),
                row.get("judge"),
                row.get("judge_kind"),
                row.get("note", ""),
                row.get("saw_verdict"),
            )
        )
    return rows


def _csv_rows(data: bytes, name: str) -> tuple[list[_Row], int]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UserError(f"{name} line {line}: not UTF-8", remedy="save the sheet as CSV UTF-8") from error
    head = (text.splitlines() or [""])[0]
    # Spreadsheets of many countries write semicolons.
    delimiter = max(",;\t", key=head.count)
    rows, left = [], 0
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
        lacking = [
            c
            for c in ("sample", "id", "judgement", "judge", "judge_kind")
            if c not in (reader.fieldnames or ())
        ]
        if lacking:
            raise UserError(
                f"{name} has no column {lacking[0]!r}", remedy="fill in the review.csv that was written"
            )
        for number, row in enumerate(reader, 2):
            if not (row["judgement"] or "").strip():
                left += 1
                continue
            cells = {k: unguard_cell(row.get(k) or "") for k in ("judge", "judge_kind", "note")}
            rows.append(
                _Row(
                    number,
                    (row["sample"] or "").strip(),
                    (row["id"] or "").strip(),
                    row["judgement"],
                    cells["judge"],
                    cells["judge_kind"],
                    cells["note"],
                )
            )
    except csv.Error as error:
        raise UserError(
            f"{name} is not a CSV that can be read: {error}", remedy="save it as CSV UTF-8"
        ) from error
    return rows, left


def _studio_rows(value: Any, name: str) -> tuple[list[_Row], int, int]:
    """Annotations of a Label Studio export, in its full or its flat form; the row is the task's place."""
    rows, left, predictions = [], 0, 0
    for number, task in enumerate(value, 1):
        if not isinstance(task, dict):
            raise UserError(
                f"{name} row {number}: not a task", remedy="export JSON or JSON-MIN from Label Studio"
            )
        foretold = task.get("predictions") or []
        if not isinstance(foretold, list):
            raise UserError(
                f"{name} row {number}: 'predictions' is not a list", remedy="export JSON from Label Studio"
            )
        predictions += len(foretold)
        found = list(_annotations(task, name, number))
        left += not found
        rows += found
    return rows, left, predictions


def _annotations(task: dict[str, Any], name: str, number: int) -> Iterator[_Row]:
    if "annotations" not in task and "data" not in task:
        if _first(task.get("judgement")):
            yield _studio_row(number, task, task, task.get("annotator"))
        return
    data, given = task.get("data"), task.get("annotations") or []
    if not isinstance(data, dict) or not isinstance(given, list):
        raise UserError(f"{name} row {number}: not a task with data", remedy="export JSON from Label Studio")
    for annotation in given:
        if not isinstance(annotation, dict) or not isinstance(annotation.get("result", []), list):
            raise UserError(f"{name} row {number}: not an annotation", remedy="export JSON from Label Studio")
        values: dict[str, Any] = {}
        for result in annotation.get("result", []):
            if isinstance(result, dict) and isinstance(result.get("value"), dict):
                values[str(result.get("from_name"))] = result["value"].get("choices") or result["value"].get(
                    "text"
                )
        if not annotation.get("was_cancelled") and _first(values.get("judgement")):
            yield _studio_row(number, data, values, annotation.get("completed_by"))


def _studio_row(number: int, data: dict[str, Any], values: dict[str, Any], by: Any) -> _Row:
    # The annotator's number, never the address: names are shown in the card.
    place = by.get("id") if isinstance(by, dict) else by
    judge = _first(values.get("judge")) or (f"annotator {place}" if isinstance(place, int) else "")
    return _Row(
        number,
        data.get("sample"),
        data.get("review_id"),
        _first(values.get("judgement")),
        judge,
        _first(values.get("judge_kind")),
        _first(values.get("note")),
    )


def _first(value: Any) -> str:
    """Label Studio writes a single value now bare, now in a list or under ``choices``."""
    if isinstance(value, dict):
        value = value.get("choices") or value.get("text")
    if isinstance(value, list):
        value = value[0] if len(value) == 1 else "; ".join(str(v) for v in value)
    return value if isinstance(value, str) else ""
