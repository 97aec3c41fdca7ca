"""Earlier releases of packages, pinned with their dates: how a catalog grew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ecoagent.crawlers.artifacts import ArtifactStore
from ecoagent.crawlers.catalogs import parse_artifact
from ecoagent.crawlers.lock import LockEntry, read_pinned
from ecoagent.runs import digest, write_json
from ecoagent.schema import Candidate
from ecoagent.settings import CrawlSettings

SHIPPED = "history.lock.json"


class History(BaseModel):
    """Pinned releases, several of a package. Each has the date it was published."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    history_version: Literal[1] = 1
    dates_from: str = Field(min_length=1, description="Where the dates were read, in words.")
    releases: tuple[LockEntry, ...]

    @model_validator(mode="after")
    def _fits(self) -> History:
        counts = Counter((r.name, r.version) for r in self.releases)
        twice = sorted(f"{n}@{v}" for (n, v), c in counts.items() if c > 1)
        if twice:
            raise ValueError(f"release listed twice: {', '.join(twice)}")
        undated = sorted(r.spec for r in self.releases if r.published_at is None)
        if undated:
            raise ValueError(f"release without published_at: {', '.join(undated)}")
        return self

    @property
    def ordered(self) -> list[LockEntry]:
        """Releases by package, oldest first."""
        return sorted(self.releases, key=lambda r: (r.name, r.published_at or "", r.version))

    @property
    def digest(self) -> str:
        """SHA-256 of the content, independent of the file's layout and order."""
        return digest([r.model_dump(mode="json") for r in self.ordered])

    def newest(self, count: int | None) -> History:
        """At most the ``count`` newest releases of each package; all if none is given."""
        if count is None:
            return self
        kept = []
        for name in {r.name for r in self.releases}:
            kept += [r for r in self.ordered if r.name == name][-count:]
        return self.model_copy(update={"releases": tuple(kept)})


def release_key(entry: LockEntry) -> str:
    """Folder name of a release's shard, e.g. ``n8n__n8n-nodes-base__1.68.0``."""
    return f"{entry.key}__{entry.version}"


def load_history(path: Path | None = None) -> History:
    """The history file at ``path``, or the one shipped.

    Raises:
        UserError: the file is missing, is not JSON, or an entry is wrong; file and entry are named.
    """
    return read_pinned(
        History,
        path,
        SHIPPED,
        what="history file",
        where="give a path with --history PATH",
        remedy="mend the entry: each release needs name, version, sha256, size and published_at",
    )


def save_history(path: Path, history: History) -> Path:
    """Write a history file, releases by package and date."""
    return write_json(
        path,
        {
            "history_version": history.history_version,
            "dates_from": history.dates_from,
            "releases": [r.model_dump(mode="json", exclude_none=True) for r in history.ordered],
        },
    )


def missing_releases(history: History, crawl: CrawlSettings) -> Sequence[LockEntry]:
    """Releases that would have to be fetched; judged by size alone."""
    return ArtifactStore.of(crawl).missing(history.ordered)


def read_release(entry: LockEntry, crawl: CrawlSettings) -> list[Candidate]:
    """Every candidate of one release at tool granularity; fetched only if the store lacks it.

    Raises:
        HashMismatchError: the release is not the one pinned.
        ClientMissingError: npm or pip is not installed.
        UserError: it is gone, unsafe, broken or over a limit.
    """
    path = ArtifactStore.of(crawl).fetch(entry)
    found = parse_artifact(path, entry, "tool", max_member_mb=crawl.max_member_mb)
    return [_plain(c, entry) for c in found]


def _plain(found: Candidate, entry: LockEntry) -> Candidate:
    """The candidate under the name later releases give it.

    n8n's lists before 1.79 write the package before every node's name; left there, a node would
    count as gone and come again.
    """
    record, prefix = found.record, f"{entry.name}."
    if not record.name.startswith(prefix):
        return found
    name = record.name.removeprefix(prefix)
    identifier = record.id.replace(f"{prefix}{prefix}", prefix, 1)
    return found.model_copy(update={"record": record.model_copy(update={"name": name, "id": identifier})})
