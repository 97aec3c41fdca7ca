"""The store of downloaded artifacts, addressed by content and shared by all runs."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from ecoagent.crawlers.archives import MIB, hashes
from ecoagent.crawlers.client import download_tarball, download_wheel
from ecoagent.crawlers.lock import LockEntry
from ecoagent.runs import Progress, temporary_sibling
from ecoagent.settings import CrawlSettings, HttpSettings, UserError

Download = Callable[..., Path]
"""``(name, version, folder, *, timeout_s) -> path`` of the file fetched; an empty version is the newest."""


class HashMismatchError(UserError):
    """An artifact is not the one that was pinned. Ends a crawl: nothing of it is read."""


class ArtifactStore:
    """``<root>/<sha256>/<filename>``; a file is there whole or not at all.

    Args:
        root: folder of the store, made when first needed.
        max_artifact_mb: larger artifacts are refused, MiB.
        timeout_s: limit of one client call, seconds.
        clients: how each ecosystem is fetched; for tests.
        http: how snapshots of pages are collected.
    """

    def __init__(
        self,
        root: Path,
        *,
        max_artifact_mb: int = 256,
        timeout_s: float = 300.0,
        clients: dict[str, Download] | None = None,
        http: HttpSettings | None = None,
    ) -> None:
        self.root, self.limit, self.timeout_s = root, max_artifact_mb * MIB, timeout_s
        self.clients = {
            "pip": download_wheel,
            "npm": download_tarball,
            "http": collector(http or HttpSettings()),
            **(clients or {}),
        }

    @classmethod
    def of(cls, crawl: CrawlSettings, http: HttpSettings | None = None) -> ArtifactStore:
        """Store with the limits of the settings."""
        return cls(
            crawl.artifact_dir, max_artifact_mb=crawl.max_artifact_mb, timeout_s=crawl.timeout_s, http=http
        )

    def path(self, entry: LockEntry) -> Path:
        """Where the artifact is kept."""
        return self.root / entry.sha256 / entry.filename

    def has(self, entry: LockEntry) -> bool:
        """Whether the artifact is there with the pinned hash."""
        path = self.path(entry)
        return path.is_file() and path.stat().st_size == entry.size and hashes(path)[0] == entry.sha256

    def missing(self, entries: Iterable[LockEntry]) -> list[LockEntry]:
        """Those that a crawl would have to fetch; judged by size alone."""
        return [e for e in entries if not self.path(e).is_file() or self.path(e).stat().st_size != e.size]

    def fetch(self, entry: LockEntry) -> Path:
        """Path of the artifact, fetched first if it is not in the store.

        Raises:
            HashMismatchError: what was fetched is not what was pinned.
            FetchError: the client could not deliver it.
            UserError: it is larger than the limit.
        """
        if entry.size > self.limit:
            raise UserError(
                f"artifact {entry.spec} has {entry.size / MIB:.1f} MiB, over the limit of "
                f"{self.limit // MIB} MiB",
                remedy="raise crawl.max_artifact_mb",
            )
        final = self.path(entry)
        if self.has(entry):
            return final
        folder = temporary_sibling(final.parent)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            # Absolute: npm is run inside the folder.
            fetched = self.clients[entry.ecosystem](
                entry.name, entry.version, folder.resolve(), timeout_s=self.timeout_s
            )
            verify(entry, fetched)
            final.parent.mkdir(parents=True, exist_ok=True)
            fetched.replace(final)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return final


def collector(http: HttpSettings) -> Download:
    """Collects the pages of a snapshot into a file; the version is what comes of it, not what is asked."""

    def collect(name: str, version: str, folder: Path, *, timeout_s: float) -> Path:
        # Imported here: most crawls fetch no page.
        from ecoagent.crawlers.web.client import PoliteClient
        from ecoagent.crawlers.web.sources import filename, snapshot

        say = Progress().say
        path = folder / filename(name)
        with PoliteClient(http, say=say) as client:
            path.write_bytes(snapshot(name, http, client, say))
        return path

    return collect


def verify(entry: LockEntry, path: Path) -> None:
    """Check a file against its lock entry.

    Raises:
        HashMismatchError: sha256 or npm's integrity differs; names artifact, expected and got.
    """
    sha256, sha512 = hashes(path)
    if sha256 == entry.sha256 and path.stat().st_size != entry.size:
        raise HashMismatchError(
            f"artifact {entry.spec}: the lock file says {entry.size} bytes, the file of its sha256 has "
            f"{path.stat().st_size}",
            remedy="correct the size in the lock file",
        )
    if sha256 != entry.sha256 and entry.ecosystem == "http":
        raise HashMismatchError(
            f"snapshot {entry.spec}: the pages behind {entry.url} have changed since they were pinned "
            f"(sha256 expected {entry.sha256}, got {sha256})",
            remedy="pin them anew with `ecoagent crawl --update-lock --backend http --lock FILE`, keep the "
            "file of the snapshot in crawl.artifact_dir, or crawl with --backend client",
        )
    if sha256 != entry.sha256:
        raise HashMismatchError(
            f"artifact {entry.spec}: sha256 expected {entry.sha256}, got {sha256} "
            f"({path.stat().st_size} bytes)",
            remedy="see whether the lock file was edited; else find out why the index serves other bytes, "
            "and pin anew only if that is right",
        )
    if entry.integrity is not None and entry.integrity != integrity_of(sha512):
        raise HashMismatchError(
            f"artifact {entry.spec}: integrity expected {entry.integrity}, got {integrity_of(sha512)}",
            remedy="correct the lock entry: its sha256 and its integrity contradict each other",
        )


def integrity_of(sha512_hex: str) -> str:
    """npm's form of a SHA-512."""
    return "sha512-" + base64.b64encode(bytes.fromhex(sha512_hex)).decode("ascii")
