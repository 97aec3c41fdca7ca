"""Tools that documentation and packages both tell of: one record each, the package's. Pure functions.

The package's text stands; the documentation adds what the package does not hold: the page, the date,
the downloads, the verification.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ecoagent.schema import Candidate, ToolRecord

KNOWN, NOT_IN_PACKAGE = "known_from_package", "not_in_package"
UNAVAILABLE = "unavailable"
"""Reason of the reject that stands for a package that could not be read: nothing is known of its tools."""
_FILLED = ("docs_url", "published_at", "downloads", "verified")
_SINGLE_PACKAGE = {"crewai": "crewai-tools"}


def join(candidates: Iterable[Candidate]) -> list[Candidate]:
    """All candidates, those of the documentation joined to those of the packages, sorted by id.

    A documented tool that a crawled package holds is rejected as ``known_from_package``; one whose
    package was crawled and does not hold it as ``not_in_package``.
    """
    listed = list(candidates)
    pages = [c for c in listed if c.record.provenance.backend == "http"]
    packages = {
        c.record.provenance.artifact
        for c in listed
        if c.record.provenance.backend != "http" and c.reason != UNAVAILABLE
    }
    joiner = Joiner(pages, packages)
    joined = [joiner.apply(c) for c in listed if c.record.provenance.backend != "http"]
    return sorted([*joined, *joiner.rest()], key=lambda c: (c.record.id, c.status))


class Joiner:
    """The same for a stream: documentation in memory, packages one candidate at a time.

    Args:
        pages: candidates of the http backend, kept and rejected.
        packages: names of the packages that were crawled and could be read.
    """

    def __init__(self, pages: Iterable[Candidate], packages: Iterable[str] = ()) -> None:
        self._packages = {plain_package(p) for p in packages}
        self._others: list[Candidate] = []
        self._kept: list[ToolRecord] = []
        self._by_id: dict[str, list[int]] = {}
        self._by_class: dict[tuple[str, str, str], list[int]] = {}
        self._matched: dict[int, str] = {}
        for found in pages:
            if found.status != "kept":
                self._others.append(found)
                continue
            place, record = len(self._kept), found.record
            self._kept.append(record)
            self._by_id.setdefault(record.id, []).append(place)
            if (key := _class_key(record)) is not None:
                self._by_class.setdefault(key, []).append(place)

    def apply(self, found: Candidate) -> Candidate:
        """A package's candidate with what its pages add; facts it has stay as they are.

        Rejected candidates are matched too: what the package says of a tool holds for its page.
        """
        places = self._by_id.get(found.record.id, [])
        if not places and (key := _class_key(found.record)) is not None:
            places = self._by_class.get(key, [])
        if not places:
            return found
        update: dict[str, object] = {}
        for place in places:
            self._matched.setdefault(place, found.record.id)
            page = self._kept[place]
            for name in _FILLED:
                if getattr(found.record, name) is None and getattr(page, name) is not None:
                    update.setdefault(name, getattr(page, name))
        if not update:
            return found
        return found.model_copy(update={"record": found.record.model_copy(update=update)})

    def rest(self) -> list[Candidate]:
        """The documentation's candidates once all of the packages' went through ``apply``, sorted by id.

        A tool that both pages and a specification file tell of stays once: as the file has it.
        """
        found = list(self._others)
        for places in self._by_id.values():
            free = [p for p in places if p not in self._matched]
            first = min(free, key=lambda p: _poverty(self._kept[p])) if free else None
            for place in places:
                found.append(self._settled(place, first, places))
        return sorted(found, key=lambda c: (c.record.id, c.status, c.record.provenance.artifact))

    def _settled(self, place: int, first: int | None, places: list[int]) -> Candidate:
        record = self._kept[place]
        if place in self._matched:
            return Candidate(status="rejected", reason=KNOWN, detail=self._matched[place], record=record)
        package = package_of(record)
        if package is not None and package in self._packages:
            detail = f"{package} was read and does not hold it"
            return Candidate(status="rejected", reason=NOT_IN_PACKAGE, detail=detail, record=record)
        if place != first and first is not None:
            detail = f"also in {self._kept[first].provenance.artifact}"
            return Candidate(status="rejected", reason="duplicate", detail=detail, record=record)
        update: dict[str, object] = {}
        for other in places:
            for name in _FILLED:
                value = getattr(self._kept[other], name)
                if other != place and getattr(record, name) is None and value is not None:
                    update.setdefault(name, value)
        return Candidate(status="kept", record=record.model_copy(update=update) if update else record)


def _poverty(record: ToolRecord) -> tuple[bool, bool, str]:
    return record.input_schema is None, not record.auth, record.provenance.artifact


def plain_package(name: str) -> str:
    """A package's name in the form names are compared in."""
    return re.sub(r"[-_.]+", "-", name).lower() if not name.startswith("@") else name.lower()


def package_of(record: ToolRecord) -> str | None:
    """Package a record belongs to, compared form; ``None`` where documentation does not say."""
    if record.provenance.backend != "http":
        return plain_package(record.provenance.artifact)
    if record.source in _SINGLE_PACKAGE:
        return _SINGLE_PACKAGE[record.source]
    # The parsers of pages put the package's name there, and the page's where they found none.
    if record.source.startswith("n8n"):
        named = re.fullmatch(r"n8n:((?:@[^/]+/)?[^/.]+(?:\.[^/.]+)*?)\.[^./]+", record.group_id)
        return plain_package(named.group(1) if named else record.group_id)
    return None if record.group_id.startswith("docs#") else plain_package(record.group_id)


def _class_key(record: ToolRecord) -> tuple[str, str, str] | None:
    """Catalog, package and class of a Python tool; ``None`` for records that are no class."""
    if record.source.startswith("n8n") or record.granularity != "tool":
        return None
    _, _, place = record.id.partition(":")
    if "#" in place or ":" in place:
        return None
    package = package_of(record)
    if package is None:
        return None
    return record.source, package, place.rpartition(".")[2]
