"""JSON that the program wrote itself, read so that damage is told by file and key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from ecoagent.runs.atomic import iter_lines, parse_json
from ecoagent.settings import MissingInputError, UserError

AGAIN = "run the command that writes it again, with --force"
Kind: TypeAlias = type | tuple[type, ...]
NUMBER = (int, float)
_KINDS = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


class UnreadableError(UserError, ValueError):
    """A file of the program's own is cut, or of another form.

    Also a ``ValueError``, for those who can do without the file.
    """


class AbsentError(MissingInputError, UnreadableError):
    """A file of the program's own is not there."""


def read_json(path: Path, *, remedy: str = AGAIN) -> Any:
    """The value of a JSON file.

    Raises:
        AbsentError: the file is not there.
        UnreadableError: it is not JSON in UTF-8.
    """
    try:
        return parse_json(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise AbsentError(f"{path} is not there", remedy=remedy) from error
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{path} is damaged: not UTF-8", remedy=remedy) from error
    except ValueError as error:
        raise UnreadableError(f"{path} is damaged: not JSON ({error})", remedy=remedy) from error


def read_object(
    path: Path, fields: Mapping[str, Kind] | None = None, *, remedy: str = AGAIN
) -> dict[str, Any]:
    """The object of a JSON file, with these fields at least.

    Raises:
        AbsentError: the file is not there.
        UnreadableError: it is not JSON, no object, or a field is missing or of another kind.
    """
    return with_fields(path, read_json(path, remedy=remedy), fields or {}, remedy=remedy)


def with_fields(
    path: Path, value: Any, fields: Mapping[str, Kind], *, within: str = "", remedy: str = AGAIN
) -> dict[str, Any]:
    """``value`` as an object that has these fields.

    Args:
        path: the file it was read from.
        value: what is to be checked.
        fields: kind of each field by its name.
        within: where in the file the value stands; empty for the whole.

    Raises:
        UnreadableError: it is no object, or a field is missing or of another kind.
    """
    if not isinstance(value, dict):
        what = f"{within!r} is" if within else "it is"
        raise UnreadableError(f"{path} is damaged: {what} not an object", remedy=remedy)
    for name, kind in fields.items():
        where = f"{within}.{name}" if within else name
        if name not in value:
            raise UnreadableError(f"{path} is damaged: {where!r} is missing", remedy=remedy)
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not _is(value[name], kinds):
            wanted = " or ".join(dict.fromkeys(_KINDS[k] for k in kinds))
            raise UnreadableError(f"{path} is damaged: {where!r} is not {wanted}", remedy=remedy)
    return value


def each_with_fields(
    path: Path, value: Any, fields: Mapping[str, Kind], *, within: str, remedy: str = AGAIN
) -> list[dict[str, Any]]:
    """``value`` as a list of objects that have these fields; see ``with_fields``."""
    if not isinstance(value, list):
        raise UnreadableError(f"{path} is damaged: {within!r} is not a list", remedy=remedy)
    return [
        with_fields(path, row, fields, within=f"{within}.{number}", remedy=remedy)
        for number, row in enumerate(value)
    ]


def _is(value: Any, kinds: tuple[type, ...]) -> bool:
    # To Python true is a number, to JSON it is none.
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def read_jsonl(path: Path, *, remedy: str = AGAIN) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file.

    Raises:
        AbsentError: the file is not there.
        UnreadableError: a line is no JSON object; it is named.
    """
    rows: list[dict[str, Any]] = []
    try:
        for number, line in enumerate(iter_lines(path), 1):
            if line.strip():
                rows.append(_object(path, number, line, remedy))
    except FileNotFoundError as error:
        raise AbsentError(f"{path} is not there", remedy=remedy) from error
    return rows


def _object(path: Path, number: int, line: bytes, remedy: str) -> dict[str, Any]:
    try:
        value = parse_json(line)
    except ValueError as error:
        raise UnreadableError(f"{path} line {number} is damaged: {error}", remedy=remedy) from error
    return with_fields(path, value, {}, within=f"line {number}", remedy=remedy)
