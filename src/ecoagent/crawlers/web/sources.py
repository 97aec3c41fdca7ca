"""The snapshots there are, by the name of their lock entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ecoagent.crawlers.lock import LockEntry
from ecoagent.crawlers.web import crewai_docs, langchain_docs, n8n_verified
from ecoagent.crawlers.web.documents import Document, Getter, Say, bundle, read_bundle
from ecoagent.schema import Candidate, catalog_of
from ecoagent.schema.tools import Granularity, Source
from ecoagent.settings import HttpSettings, UserError

PASSING = frozenset({"connection", "timeout", "server_error", "rate_limited", "truncated"})
"""Reasons that say nothing of the page: pinned as dead it would be lost for good."""
MAX_FAILED = 0.05
"""Share of pages without an answer up to which a snapshot is still pinned."""

Collect = Callable[[Getter, HttpSettings, Say], list[Document]]
Parse = Callable[[Sequence[Document], LockEntry, Granularity], list[Candidate]]


@dataclass(frozen=True)
class Snapshot:
    """One set of pages that is pinned together.

    Attributes:
        source: catalog its records belong to.
        index: the address it starts from, by the settings.
        licence: licence of the texts; ``None`` where each has its own.
        pages: about how many pages it has, by the projects' own repositories; for estimates alone.
        megabytes: about what is transferred for them, MB.
    """

    source: Source
    index: Callable[[HttpSettings], str]
    collect: Collect
    parse: Parse
    licence: str | None
    pages: int
    megabytes: float


SNAPSHOTS: dict[str, Snapshot] = {
    langchain_docs.NAME: Snapshot(
        "langchain",
        lambda http: http.langchain_docs,
        langchain_docs.collect,
        langchain_docs.parse,
        langchain_docs.LICENCE,
        pages=150,
        megabytes=45.0,
    ),
    crewai_docs.DOCS: Snapshot(
        "crewai",
        lambda http: http.crewai_docs,
        crewai_docs.collect,
        crewai_docs.parse,
        crewai_docs.LICENCE,
        pages=90,
        megabytes=27.0,
    ),
    crewai_docs.SPECS: Snapshot(
        "crewai",
        lambda http: http.crewai_specs,
        crewai_docs.collect_specs,
        crewai_docs.parse_specs,
        crewai_docs.LICENCE,
        pages=1,
        megabytes=0.9,
    ),
    n8n_verified.NAME: Snapshot(
        "n8n_community",
        lambda http: http.n8n_verified,
        n8n_verified.collect,
        n8n_verified.parse,
        None,
        pages=14,
        megabytes=6.0,
    ),
}


def snapshot_named(name: str) -> Snapshot:
    """The snapshot of a lock entry.

    Raises:
        UserError: there is none of that name.
    """
    if name not in SNAPSHOTS:
        raise UserError(
            f"there is no documentation snapshot {name!r}",
            remedy=f"choose among {', '.join(sorted(SNAPSHOTS))}",
        )
    return SNAPSHOTS[name]


def names_for(catalogs: Sequence[str]) -> list[str]:
    """Snapshots of the catalogs given, sorted."""
    return sorted(n for n, s in SNAPSHOTS.items() if catalog_of(s.source) in catalogs)


def filename(name: str) -> str:
    """Name of a snapshot's file."""
    return f"{name}.jsonl"


def snapshot(name: str, http: HttpSettings, client: Getter, say: Say = lambda line: None) -> bytes:
    """The pages of a snapshot as they are now, as one file's bytes.

    Raises:
        UserError: its first page cannot be had, it has too many pages, the site stopped answering on
            the way, or the pages list no tool.
    """
    kind = snapshot_named(name)
    documents = kind.collect(client, http, say)
    failed = [d for d in documents if d.reason in PASSING]
    if len(failed) > MAX_FAILED * len(documents):
        raise UserError(
            f"{len(failed)} of {len(documents)} pages of {name} gave no answer; the first: "
            f"{failed[0].url} ({failed[0].reason})",
            remedy="run it again later: what was read is stored, and only the rest is asked",
        )
    if not kind.parse(documents, _probe_entry(name, kind, http), "tool"):
        raise UserError(
            f"the pages of {name} list no tool",
            remedy=f"look at {kind.index(http)} in a browser; its address may have changed",
        )
    return bundle(documents)


def _probe_entry(name: str, kind: Snapshot, http: HttpSettings) -> LockEntry:
    """An entry to parse by, before there is a file to pin."""
    return LockEntry(
        source=kind.source,
        ecosystem="http",
        name=name,
        version="0",
        filename=filename(name),
        sha256="0" * 64,
        size=1,
        url=kind.index(http),
    )


def parse_snapshot(path: Path, entry: LockEntry, granularity: Granularity) -> list[Candidate]:
    """Every candidate of a verified snapshot, kept and rejected, sorted by id.

    Raises:
        UserError: the file is damaged or of a snapshot that is not known.
    """
    return snapshot_named(entry.name).parse(read_bundle(path), entry, granularity)


def requests_of(names: Sequence[str]) -> tuple[int, float]:
    """About how many requests and MB the snapshots named take."""
    known = [SNAPSHOTS[n] for n in names if n in SNAPSHOTS]
    return sum(s.pages for s in known), sum(s.megabytes for s in known)
