"""The candidate files of a crawl as one stream in the order of ids, however many there are."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ValidationError

from ecoagent.crawlers.joining import Joiner
from ecoagent.runs import iter_lines
from ecoagent.schema import Candidate
from ecoagent.settings import UserError

Key = tuple[str, str]
"""Id and status: kept comes before rejected."""
UNAVAILABLE = "unavailable"
"""Reason of the candidate that stands for an artifact that could not be had or read."""
_AGAIN = "run `ecoagent crawl` again; a file written by another version must be made anew"


class BriefProvenance(BaseModel):
    """The package a candidate comes from, and how it was fetched."""

    artifact: str
    backend: str


class BriefRecord(BaseModel):
    """What two tools are compared by; fields as in ``ToolRecord``."""

    id: str
    name: str
    display_name: str | None = None
    description: str
    kind: str
    group_name: str | None = None
    provenance: BriefProvenance


class Brief(BaseModel):
    """A candidate in brief."""

    status: Literal["kept", "rejected"]
    reason: str | None = None
    record: BriefRecord


T = TypeVar("T", Brief, Candidate)


class Crawled:
    """The candidates of a crawl, documentation joined to packages, to be gone through repeatedly.

    Candidates of documentation pages, a few thousand at most, are kept in memory; those of packages
    are read anew each time.

    Args:
        files: candidate files; those of one file are all of one backend.

    Raises:
        UserError: a line is not a candidate, or a file is not in the order of ids.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        pages: list[Path] = []
        self._packages: list[Path] = []
        read: list[str] = []
        for path in files:
            first = next(merged_briefs([path]), None)
            if first is not None and first.record.provenance.backend == "http":
                pages.append(path)
                continue
            self._packages.append(path)
            if first is not None and first.reason != UNAVAILABLE:
                read.append(first.record.provenance.artifact)
        self._joiner = Joiner(merged_candidates(pages), read) if pages else None
        self._pages: list[Candidate] = []
        if self._joiner is not None:
            for found in merged_candidates(self._packages):
                self._joiner.apply(found)
            self._pages = self._joiner.rest()

    def briefs(self) -> Iterator[Brief | Candidate]:
        """Every candidate in brief, by id, kept before rejected."""
        packages: Iterator[Brief | Candidate] = iter(merged_briefs(self._packages))
        return heapq.merge(packages, self._pages, key=_place)

    def candidates(self) -> Iterator[Candidate]:
        """Every candidate, by id, kept before rejected."""
        packages = merged_candidates(self._packages)
        if self._joiner is None:
            return packages
        return heapq.merge(map(self._joiner.apply, packages), self._pages, key=_place)


def merged_candidates(files: Sequence[Path]) -> Iterator[Candidate]:
    """Every candidate of the files, by id, kept before rejected; one of each file is in memory.

    Raises:
        UserError: a line is not a candidate, or a file is not in the order of ids.
    """
    return _merge(files, Candidate.model_validate_json)


def merged_briefs(files: Sequence[Path]) -> Iterator[Brief]:
    """The same with few fields, the others not looked at: several times as fast.

    Raises:
        UserError: as ``merged_candidates``, for the fields a brief has.
    """
    return _merge(files, Brief.model_validate_json)


def joined(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The same for candidates in memory, in any order."""
    listed = list(candidates)
    pages = [c for c in listed if c.record.provenance.backend == "http"]
    packages = [c for c in listed if c.record.provenance.backend != "http"]
    read = {c.record.provenance.artifact for c in packages if c.reason != UNAVAILABLE}
    joiner = Joiner(pages, read)
    return sorted([*map(joiner.apply, packages), *joiner.rest()], key=_place)


def _place(found: Brief | Candidate) -> Key:
    return found.record.id, found.status


def _merge(files: Sequence[Path], parse: Callable[[bytes], T]) -> Iterator[T]:
    # The files' order decides between equal keys: heapq.merge is stable.
    return iter(heapq.merge(*(_read(path, parse) for path in files), key=_place))


def _read(path: Path, parse: Callable[[bytes], T]) -> Iterator[T]:
    last: Key = ("", "")
    for number, line in enumerate(iter_lines(path), start=1):
        if not line:
            continue
        try:
            value = parse(line)
            here = _place(value)
        except ValidationError as error:
            raise not_a_candidate(path, number, error) from error
        if here < last:
            raise UserError(f"file {path} row {number} is not in the order of ids", remedy=_AGAIN)
        last = here
        yield value


def not_a_candidate(path: Path, number: int, error: ValidationError) -> UserError:
    """What is said of a line that cannot be read: its first fault."""
    fault = error.errors()[0]
    where = ".".join(str(p) for p in fault["loc"])
    shown = f"{where}: {fault['msg']}" if where else fault["msg"]
    return UserError(f"file {path} row {number} is not a candidate: {shown}", remedy=_AGAIN)
