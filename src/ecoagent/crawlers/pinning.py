"""Pinning: artifacts fetched once, their hashes and licences written into the lock file."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ecoagent.crawlers.archives import hashes, read_members
from ecoagent.crawlers.artifacts import ArtifactStore, integrity_of
from ecoagent.crawlers.lock import Lock, LockEntry, load_lock, replace_entries, save_lock
from ecoagent.crawlers.records import metadata
from ecoagent.schema.tools import Source


@dataclass(frozen=True)
class Pin:
    """A version to pin. ``licence`` overrides what the package says of itself."""

    source: Source
    name: str
    version: str
    licence: str | None = None

    @property
    def ecosystem(self) -> str:
        """``npm`` for n8n, else ``pip``."""
        return "npm" if self.source.startswith("n8n") else "pip"


def update_lock(path: Path, pins: Sequence[Pin], store: ArtifactStore) -> Lock:
    """Fetch the versions given, write their entries into the lock file at ``path``, keep the others.

    The artifacts are kept in the store. The file is replaced only once all are fetched.

    Raises:
        FetchError: an artifact could not be fetched.
        UserError: the lock file there cannot be read.
    """
    lock = load_lock(path) if path.is_file() else Lock(artifacts=())
    fresh = [_pin(pin, store) for pin in pins]
    merged = replace_entries(lock, fresh)
    save_lock(path, merged)
    return merged


def _pin(pin: Pin, store: ArtifactStore) -> LockEntry:
    store.root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".tmp-pin-", dir=store.root) as name:
        folder = Path(name).resolve()
        fetched = store.clients[pin.ecosystem](pin.name, pin.version, folder, timeout_s=store.timeout_s)
        sha256, sha512 = hashes(fetched)
        entry = LockEntry.model_validate(
            {
                "source": pin.source,
                "ecosystem": pin.ecosystem,
                "name": pin.name,
                "version": pin.version,
                "filename": fetched.name,
                "sha256": sha256,
                "size": fetched.stat().st_size,
                "integrity": integrity_of(sha512) if pin.ecosystem == "npm" else None,
                "licence": pin.licence or stated_licence(fetched, pin),
            }
        )
        final = store.path(entry)
        final.parent.mkdir(parents=True, exist_ok=True)
        fetched.replace(final)
    return entry


def stated_licence(path: Path, pin: Pin) -> str | None:
    """Licence a package states in its own metadata; ``None`` if it states none."""
    if pin.ecosystem == "pip":
        headers = metadata(read_members(path, lambda p: p.endswith(".dist-info/METADATA")))
        for name in ("license-expression", "license"):
            if headers.get(name):
                return headers[name][0][:80]
        return None
    manifest = json.loads(read_members(path, lambda p: p == "package.json").get("package.json", b"{}"))
    licence = manifest.get("license") if isinstance(manifest, dict) else None
    return licence[:80] if isinstance(licence, str) else None
