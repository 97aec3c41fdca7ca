"""The requests that EcoAgent-Real is made from: the project's own set, a user's JSON lines, or a set of
others (``<set>_queries.jsonl``, BEIR, ToolBench's own layout, the Hub).

The project's set was written for it, with the right tools of the small catalog noted by the writer.
A general gateway (a browser agent, a shell, a code runner, Zapier, an MCP client) is noted only where
the request asks for what the gateway itself does; else it would be right for nearly everything.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from ecoagent.labeling.hub import PREFIX, hub_set, read_hub
from ecoagent.labeling.rows import UNKNOWN, RequestRow
from ecoagent.labeling.sources import find_source, read_source
from ecoagent.retrieval.rows import check_length, parse_lines, read_text
from ecoagent.runs import digest
from ecoagent.schema import Record, normalize_query
from ecoagent.settings import UserError

OWN_SET = "ecoagent-requests"
OWN_LICENCE, OWN_LANGUAGE = "Apache-2.0", "en"
SEVERAL_FROM = 3
"""A request with at least this many right tools is of type ``several``."""

FAULTS_TOLD = 3

_ALIASES = {"query_id": "id", "_id": "id", "query": "text", "group": "domain"}
_READ: dict[object, RequestSet] = {}
"""The last set read: a stage asks for it many times, and some are large or far away."""


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
    language: str = Field(default=UNKNOWN, description="ISO 639-1 code, or unknown where nobody says it.")
    licence: str = Field(default=UNKNOWN, description="Licence of the text.")
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

    @cached_property
    def digest(self) -> str:
        """SHA-256 over all requests: part of stage keys."""
        return digest([r.model_dump(mode="json") for r in self.requests])


def query_type_of(gold: Iterable[str]) -> str:
    """``none``, ``single`` (one or two right tools) or ``several``."""
    count = len(set(gold))
    return "none" if not count else "single" if count < SEVERAL_FROM else "several"


def load_requests(path: Path | str | None = None) -> RequestSet:
    """Requests of a file, a folder or the Hub; without a path the set written for this project.

    Golds of a set of others name its own tools and stay behind, but for ids of our catalogs.

    Args:
        path: JSON lines with ``id`` (or ``query_id``) and ``text`` (or ``query``), optionally ``gold``,
            ``query_type``, ``domain``, ``fold``, ``language``, ``licence``; or what
            ``sources.find_source`` knows; or ``hub:ORG/NAME[/CONFIG[/SPLIT]][@REVISION]``.

    Raises:
        UserError: nothing there, a row is not valid (file and row are named), an id occurs twice.
    """
    if path is None:
        return _remembered((OWN_SET,), _own)
    if str(path).startswith(PREFIX):
        wanted = hub_set(str(path))
        return _remembered(wanted, lambda: _foreign(wanted.name, read_hub(wanted)))
    source = find_source(Path(path))
    state = tuple((p.stat().st_mtime_ns, p.stat().st_size) for _, p in source.files)
    if source.kind == "lines":
        return _remembered((source, state), lambda: _lines(source.files[0][1]))
    return _remembered((source, state), lambda: _foreign(source.name, read_source(source)))


def _remembered(key: object, read: Callable[[], RequestSet]) -> RequestSet:
    found = _READ.get(key)
    if found is None:
        found = read()
        _READ.clear()
        _READ[key] = found
    return found


def _own() -> RequestSet:
    text = resources.files("ecoagent.labeling").joinpath("data/requests.jsonl").read_text("utf-8")
    rows = _parse_lines(text, "requests.jsonl")
    own = {"licence": OWN_LICENCE, "language": OWN_LANGUAGE}
    return _set(OWN_SET, [(where, r.model_copy(update=own)) for where, r in rows], noted=True)


def _lines(path: Path) -> RequestSet:
    rows = _parse_lines(read_text(path), path.name)
    return _set(path.stem, rows, noted=any(r.gold for _, r in rows), shown=path.name)


def _foreign(name: str, rows: Iterable[RequestRow]) -> RequestSet:
    requests = [
        (
            row.where,
            Request(
                id=row.id,
                text=row.text,
                gold=list(row.gold),
                query_type=row.group or "unknown",
                domain=row.group,
                language=row.language,
                licence=row.licence,
            ),
        )
        for row in rows
    ]
    return _set(name, requests, noted=any(r.gold for _, r in requests))


def _set(
    name: str, requests: list[tuple[str, Request]], *, noted: bool, shown: str | None = None
) -> RequestSet:
    if not requests:
        raise UserError(f"{shown or name} holds no request", remedy="give a file with at least two requests")
    first: dict[str, str] = {}
    for where, request in requests:
        check_length(request.id, where, "id")
        check_length(request.text, where, "text")
        if request.id in first:
            raise UserError(
                f"{where}: id {request.id!r} occurs twice, first in {first[request.id]}",
                remedy="give every request its own id",
            )
        first[request.id] = where
    return RequestSet(name, tuple(sorted((r for _, r in requests), key=lambda r: r.id)), noted)


def _parse_lines(text: str, shown: str) -> list[tuple[str, Request]]:
    return [
        (where, _request(row, where, default_id=f"row-{number:06d}"))
        for where, number, row in parse_lines(text, shown)
    ]


def _request(row: dict[str, Any], where: str, *, default_id: str) -> Request:
    values = {_ALIASES.get(k, k): v for k, v in row.items()}
    for key in sorted(str(k) for k in values if k not in Request.model_fields):
        # Other fields are a file's own business; a misspelt one would lose its content in silence.
        close = difflib.get_close_matches(key, list(Request.model_fields), n=1, cutoff=0.75)
        if close:
            raise UserError(f"{where}: unknown field {key!r}", remedy=f"did you mean {close[0]!r}?")
    known = {k: v for k, v in values.items() if k in Request.model_fields and v is not None}
    known["id"] = str(known.get("id", default_id))
    try:
        request = Request(**known)
    except ValidationError as error:
        told = error.errors()[:FAULTS_TOLD]
        faults = "; ".join(f"{'.'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in told)
        raise UserError(f"{where}: {faults}", remedy='write {"id": "…", "text": "…"}') from error
    if "gold" in known and "query_type" not in known:
        return request.model_copy(update={"query_type": query_type_of(request.gold)})
    return request
