"""Rows of files that users bring: JSON lines, JSON arrays, tables with tabs. A fault names file and row."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ecoagent.runs import canonical_json, parse_json
from ecoagent.settings import UserError

TAB = "\t"
LONGEST_FIELD = (1 << 31) - 1
"""csv's own limit is 128 KiB; ToolBench writes whole API documents into one field."""
LONGEST_TEXT = 100_000
"""Characters of a user's text. The longest query of seven published sets has 1,100, and a model reads some
8,000 of its 2,048 tokens: what is longer is a file put into a row by mistake, and took minutes to count."""
_CELLS = {TAB: "tabs", ",": "commas"}
_ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def read_text(path: Path) -> str:
    """Text of a UTF-8 file, without a byte-order mark.

    Raises:
        UserError: the file does not exist or is not UTF-8.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror})", remedy="give a file that exists"
        ) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = data[: error.start].count(b"\n") + 1
        raise UserError(
            f"{path.name} row {row}: not UTF-8 ({error.reason})", remedy="save the file as UTF-8"
        ) from error


@contextmanager
def _json_faults(where: str, remedy: str) -> Iterator[None]:
    try:
        yield
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: not JSON ({error.msg})", remedy=remedy) from error
    except UnicodeEncodeError as error:
        # JSON may write half of a pair; no UTF-8 file, hash or tokenizer takes it.
        raise UserError(
            f"{where}: {error.object[error.start]!a} is half a character", remedy="drop it from the text"
        ) from error
    except (RecursionError, ValueError) as error:
        deep = isinstance(error, RecursionError) or "nested" in str(error)
        what = "it is nested too deeply" if deep else "a number has too many digits"
        raise UserError(f"{where}: cannot be read as JSON ({what})", remedy=remedy) from error


def parse_value(text: str, where: str, *, remedy: str) -> Any:
    """JSON that a user brings, whole characters only.

    Args:
        where: file and row, for errors.

    Raises:
        UserError: it is no JSON, beyond what Python reads, or holds half a character.
    """
    with _json_faults(where, remedy):
        value = parse_json(text)
        if _ESCAPED_HALF.search(text):
            canonical_json(value).encode("utf-8")
    return value


def check_length(text: str, where: str, what: str) -> None:
    """Refuse a text longer than any real one.

    Raises:
        UserError: it has more than ``LONGEST_TEXT`` characters.
    """
    if len(text) > LONGEST_TEXT:
        raise UserError(
            f"{where}: {what} has {len(text):,} characters, more than {LONGEST_TEXT:,}",
            remedy="shorten it or drop the row",
        )


def path_kind(path: Path) -> str | None:
    """``file``, ``folder``, or none where nothing can be there: absent, or no name a system takes."""
    try:
        return "file" if path.is_file() else "folder" if path.is_dir() else None
    except (OSError, ValueError):
        return None


def parse_lines(text: str, shown: str) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Where ("file row n"), row number from 1, and object of each line that is not blank.

    Raises:
        UserError: a line is not a JSON object.
    """
    # Not splitlines(): a JSON string may hold U+2028 and its like as they are.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{shown} row {number}"
        row = parse_value(line, where, remedy="write one JSON object a line")
        if not isinstance(row, dict):
            raise UserError(f"{where}: not an object", remedy="write one JSON object a line")
        yield where, number, row


def read_lines(path: Path) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """``parse_lines`` of a file."""
    yield from parse_lines(read_text(path), path.name)


def read_array(path: Path) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Where ("file element n"), number from 0, and object of each element of a JSON array, one at a time:
    ToolBench's files are larger decoded than a small machine's memory.

    Raises:
        UserError: the file is not an array of objects.
    """
    text, decoder = read_text(path), json.JSONDecoder()
    place = _skip(text, 0)
    if text[place : place + 1] != "[":
        what = "is not a list of queries" if text[place : place + 1] == "{" else "is not JSON"
        raise UserError(f"{path.name} {what}", remedy="give the data set's own file, fetched again")
    place, number = _skip(text, place + 1), 0
    while text[place : place + 1] != "]":
        where = f"{path.name} element {number}"
        with _json_faults(where, "fetch the file again"):
            begin = place
            row, place = decoder.raw_decode(text, place)
            if _ESCAPED_HALF.search(text, begin, place):
                canonical_json(row).encode("utf-8")
        if not isinstance(row, dict):
            raise UserError(f"{where}: not an object", remedy="drop the element")
        yield where, number, row
        place, number = _skip(text, place), number + 1
        if text[place : place + 1] == ",":
            place = _skip(text, place + 1)
        elif text[place : place + 1] != "]":
            raise UserError(f"{where}: the file breaks off after it", remedy="fetch the file again")


def _skip(text: str, place: int) -> int:
    while text[place : place + 1] in (" ", "\n", "\r", "\t"):
        place += 1
    return place


def read_table(
    path: Path, columns: int, *, quoted: bool, delimiter: str = TAB
) -> Iterator[tuple[str, int, list[str]]]:
    """Where, line number from 1, and cells of each row of a table; blank rows are left out.

    Args:
        columns: cells a row has at least.
        quoted: whether quotes are csv's (pandas writes them so) or part of the text (BEIR).
        delimiter: what sets cells apart.

    Raises:
        UserError: a row has fewer cells, or is no table's.
    """
    reader = csv.reader(
        io.StringIO(read_text(path), newline=""),
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
    )
    # The limit is the whole process's: it is put back before anything else reads a table.
    usual = csv.field_size_limit(LONGEST_FIELD)
    try:
        rows = [(reader.line_num, cells) for cells in reader]
    except csv.Error as error:
        where = f"{path.name} row {reader.line_num}"
        raise UserError(f"{where}: {error}", remedy="fetch the file again") from error
    finally:
        csv.field_size_limit(usual)
    for number, cells in rows:
        if not any(cell.strip() for cell in cells):
            continue
        where = f"{path.name} row {number}"
        if len(cells) < columns:
            raise UserError(
                f"{where}: {len(cells)} cells, not {columns}",
                remedy=f"separate the cells with {_CELLS.get(delimiter, repr(delimiter))}",
            )
        yield where, number, cells
