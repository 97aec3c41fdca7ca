"""One registered parser a source of packages; snapshots of pages have their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ecoagent.crawlers import crewai, langchain, llamaindex, n8n_community, n8n_official
from ecoagent.crawlers.archives import MIB, Limits, read_members
from ecoagent.crawlers.lock import LockEntry
from ecoagent.schema import Candidate
from ecoagent.schema.tools import Granularity, Source

Parse = Callable[[Mapping[str, bytes], LockEntry, Granularity], list[Candidate]]


@dataclass(frozen=True)
class CatalogParser:
    """Which members a source's parser reads, and how it turns them into candidates."""

    wanted: Callable[[str], bool]
    parse: Parse


PARSERS: dict[Source, CatalogParser] = {
    "langchain": CatalogParser(langchain.wanted, langchain.parse),
    "crewai": CatalogParser(crewai.wanted, crewai.parse),
    "llamaindex": CatalogParser(llamaindex.wanted, llamaindex.parse),
    "n8n_official": CatalogParser(n8n_official.wanted, n8n_official.parse),
    "n8n_community": CatalogParser(n8n_community.wanted, n8n_community.parse),
}


def parse_artifact(
    path: Path,
    entry: LockEntry,
    granularity: Granularity = "tool",
    *,
    max_member_mb: int = 64,
    borrowed: Mapping[str, bytes] | None = None,
) -> list[Candidate]:
    """Every candidate of a verified artifact, kept and rejected, sorted by id.

    Args:
        path: the artifact.
        entry: its lock entry.
        granularity: level of the records.
        max_member_mb: larger members are refused, MiB.
        borrowed: what other artifacts lend the parser, under keys no archive has.

    Raises:
        UserError: the archive is unsafe, broken or over a limit, or is not what its entry says.
    """
    if entry.ecosystem == "http":
        # Imported here: HTML is read only where there is a snapshot of pages.
        from ecoagent.crawlers.web.sources import parse_snapshot

        return parse_snapshot(path, entry, granularity)
    parser = PARSERS[entry.source]
    members = read_members(path, parser.wanted, Limits(member_bytes=max_member_mb * MIB))
    members |= borrowed or {}
    return [with_listing(c, entry) for c in parser.parse(members, entry, granularity)]


def with_listing(found: Candidate, entry: LockEntry) -> Candidate:
    """The candidate with what the lock file knows of its package: date, downloads, verification."""
    known = {
        "published_at": entry.published_at,
        "downloads": entry.downloads,
        "verified": entry.verified,
    }
    lacking = {k: v for k, v in known.items() if v is not None and getattr(found.record, k) is None}
    if not lacking:
        return found
    return found.model_copy(update={"record": found.record.model_copy(update=lacking)})
