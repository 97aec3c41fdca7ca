"""The requests that EcoAgent-Real is made from: the project's own set, JSON lines, or ToolBench's layout.

The project's set was written for it, with the right tools of the small catalog noted by the writer.
A general gateway (a browser agent, a shell, a code runner, Zapier, an MCP client) is noted only where
the request asks for what the gateway itself does; else it would be right for nearly everything.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from ecoagent.runs import digest
from ecoagent.schema import Record, normalize_query
from ecoagent.settings import UserError

OWN_SET = "ecoagent-requests"
OWN_LICENCE = "Apache-2.0"
SEVERAL_FROM = 3
"""A request with at least this many right tools is of type ``several``."""

_ALIASES = {"query_id": "id", "query": "text", "group": "domain"}


class Request(Record):
    """One request and what its writer noted."""

    id: str = Field(description="Stable id within its set.")
    text: str = Field(description="The request as a user would write it.")
    gold: list[str] = Field(default_factory=list, description="Right tools, sorted; empty = none fits.")
    query_type: str = Field(default="unknown", description="single, several, none; else the set's own.")
    domain: str = Field(default="", description="Field of life.")
    fold: Literal["calibration", "label"] = Field(
        default="label", description="calibration: only used to fit the verifier, never part of Real."
    )
    language: str = Field(default="en", description="ISO 639-1 code.")
    licence: str = Field(default="unknown", description="Licence of the text.")
    note: str | None = Field(default=None, description="The writer's remark.")

    @field_validator("text")
    @classmethod
    def _has_words(cls, text: str) -> str:
        if not normalize_query(text):
            raise ValueError("the text has no words")
        return text

    @field_validator("gold")
    @classmethod
    def _sorted(cls, gold: list[str]) -> list[str]:
        return sorted(set(gold))


@dataclass(frozen=True)
class RequestSet:
    """Requests of one source.

    Attributes:
        name: name written as ``origin`` of the queries.
        requests: sorted by id.
        noted: whether the right tools are noted as ids of our catalogs, so that agreement can be told.
    """

    name: str
    requests: tuple[Request, ...]
    noted: bool

    @property
    def digest(self) -> str:
        """SHA-256 over all requests: part of stage keys."""
        return digest([r.model_dump(mode="json") for r in self.requests])


def query_type_of(gold: Iterable[str]) -> str:
    """``none``, ``single`` (one or two right tools) or ``several``."""
    count = len(set(gold))
    return "none" if not count else "single" if count < SEVERAL_FROM else "several"


def load_requests(path: Path | None = None) -> RequestSet:
    """Requests of a file or directory; without a path the set written for this project.

    Args:
        path: JSON lines with ``id`` (or ``query_id``) and ``text`` (or ``query``), optionally ``gold``,
            ``query_type``, ``domain``, ``fold``, ``language``, ``licence``; or a directory in ToolBench's
            own layout (``instruction/G*_query.json``).

    Raises:
        UserError: nothing there, a row is not valid (file and row are named), an id occurs twice.
    """
    if path is None:
        text = resources.files("ecoagent.labeling").joinpath("data/requests.jsonl").read_text("utf-8")
        rows = _parse_lines(text, "requests.jsonl")
        return _set(OWN_SET, [r.model_copy(update={"licence": OWN_LICENCE}) for r in rows], noted=True)
    if path.is_dir():
        return _set("toolbench", _toolbench(path), noted=False)
    if not path.is_file():
        raise UserError(
            f"query file {path} does not exist", remedy="set labeling.queries to a file or folder"
        )
    rows = _parse_lines(_read_text(path), path.name)
    return _set(path.stem, rows, noted=any(r.gold for r in rows), shown=path.name)


def _read_text(path: Path) -> str:
    data = path.read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        row = data[: error.start].count(b"\n") + 1
        raise UserError(
            f"{path.name} row {row}: not UTF-8 ({error.reason})", remedy="save the file as UTF-8"
        ) from error


def _set(name: str, requests: list[Request], *, noted: bool, shown: str | None = None) -> RequestSet:
    if not requests:
        raise UserError(f"{shown or name} holds no request", remedy="give a file with at least two requests")
    seen: set[str] = set()
    for request in requests:
        if request.id in seen:
            raise UserError(
                f"{shown or name}: id {request.id!r} occurs twice", remedy="give every request its own id"
            )
        seen.add(request.id)
    return RequestSet(name, tuple(sorted(requests, key=lambda r: r.id)), noted)


def _parse_lines(text: str, shown: str) -> list[Request]:
    requests = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(
                f"{shown} row {number}: not JSON ({error.msg})", remedy="one object a line"
            ) from error
        requests.append(_request(row, f"{shown} row {number}", default_id=f"row-{number:06d}"))
    return requests


def _request(row: Any, where: str, *, default_id: str) -> Request:
    if not isinstance(row, dict):
        raise UserError(f"{where}: not an object", remedy="write one JSON object a line")
    values = {_ALIASES.get(k, k): v for k, v in row.items()}
    for key in sorted(str(k) for k in values if k not in Request.model_fields):
        # Other fields are a file's own business; a misspelt one would lose its content in silence.
        close = difflib.get_close_matches(key, list(Request.model_fields), n=1, cutoff=0.75)
        if close:
            raise UserError(f"{where}: unknown field {key!r}", remedy=f"did you mean {close[0]!r}?")
    known = {k: v for k, v in values.items() if k in Request.model_fields and v is not None}
    known["id"] = str(known.get("id", default_id))
    if "query_type" not in known and known.get("gold") is not None:
        known["query_type"] = query_type_of(known["gold"]) if isinstance(known["gold"], list) else "unknown"
    try:
        return Request(**known)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in error.errors())
        raise UserError(f"{where}: {faults}", remedy='write {"id": "…", "text": "…"}') from error


def _toolbench(path: Path) -> list[Request]:
    """Requests of ``instruction/G*_query.json``; their golds name ToolBench's own APIs and stay behind."""
    for folder in (path / "instruction", path / "data" / "instruction", path):
        files = sorted(folder.glob("G*_query.json"))
        if files:
            break
    else:
        raise UserError(
            f"{path} has no instruction/G*_query.json", remedy="give the data folder of a ToolBench release"
        )
    requests = []
    for file in files:
        group = file.name.split("_", 1)[0]
        try:
            rows = json.loads(file.read_text("utf-8"))
        except json.JSONDecodeError as error:
            raise UserError(f"{file} is not JSON: {error}", remedy="fetch the file again") from error
        if not isinstance(rows, list):
            raise UserError(f"{file} is not a list of queries", remedy="give ToolBench's own file")
        for number, row in enumerate(rows):
            query = row.get("query") if isinstance(row, dict) else None
            # In places the query is a list of paraphrases or sentences; the first is the request.
            text = query[0] if isinstance(query, list) and query else query
            if not isinstance(text, str) or not normalize_query(text):
                raise UserError(f"{file.name} element {number}: no query text", remedy="drop the element")
            identifier = f"{group}-{row.get('query_id', number)}"
            requests.append(
                Request(id=identifier, text=text, query_type=group, domain=group, licence="Apache-2.0")
            )
    return requests
