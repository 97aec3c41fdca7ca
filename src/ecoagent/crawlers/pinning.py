"""Pinning: artifacts fetched once, their hashes and licences written into the lock file."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ecoagent.crawlers.archives import hashes, read_members
from ecoagent.crawlers.artifacts import ArtifactStore, integrity_of
from ecoagent.crawlers.client import ClientMissingError, FetchError
from ecoagent.crawlers.lock import NAME, VERSION, Lock, LockEntry, load_lock, replace_entries, save_lock
from ecoagent.crawlers.records import metadata
from ecoagent.runs import parse_json
from ecoagent.schema.tools import Source
from ecoagent.settings import UserError

Times = Callable[[str], Mapping[str, str]]
"""npm name to the UTC times of its versions, with ``created``; raises ``FetchError`` where not known."""
_SAVE_EVERY = 10


@dataclass(frozen=True)
class Pin:
    """Something to pin. ``licence`` overrides what a package says of itself.

    Attributes:
        source: catalog.
        name: package, or snapshot of pages.
        version: version; empty = the newest, and always so for pages.
        licence: licence if known.
        kind: package or pages.
        url: first of the pages.
    """

    source: Source
    name: str
    version: str
    licence: str | None = None
    kind: Literal["package", "pages"] = "package"
    url: str | None = None

    @property
    def ecosystem(self) -> str:
        """``http`` for pages; ``npm`` for n8n, else ``pip``."""
        if self.kind == "pages":
            return "http"
        return "npm" if self.source.startswith("n8n") else "pip"

    @property
    def spec(self) -> str:
        """Name and version as shown."""
        mark = "==" if self.ecosystem == "pip" else "@"
        return f"{self.name}{mark}{self.version}" if self.version else self.name


@dataclass(frozen=True)
class Pinned:
    """What became of the pins: the lock as written, entries fetched and reused, failures by spec."""

    lock: Lock
    fetched: tuple[LockEntry, ...]
    reused: tuple[LockEntry, ...]
    failed: Mapping[str, str]


def pin_all(
    path: Path,
    pins: Sequence[Pin],
    store: ArtifactStore,
    *,
    force: bool = False,
    times: Times | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Pinned:
    """Fetch what is given, write its entries into the lock file at ``path``, keep the others.

    One that cannot be had is left out and named, and does not lose the rest.

    A package whose pinned version is asked, or whose newest is asked and some version is pinned, is
    not fetched again while the artifact is in the store as pinned. What is fetched is written to the
    lock file now and then, so that an interrupted run goes on where it stopped. Pages are always
    asked anew: the response store keeps that cheap.

    Args:
        path: lock file, made if it is not there.
        pins: what is wanted.
        store: where artifacts are kept.
        force: fetch everything, the newest where no version is given.
        times: times of publication for npm packages.
        say: told what was left out and how far it is.

    Raises:
        ClientMissingError: pip or npm is not installed.
        UserError: nothing could be pinned, or the lock file there cannot be read.
    """
    lock = load_lock(path) if path.is_file() else Lock(artifacts=())
    known: dict[tuple[str, str, str], LockEntry] = {
        (e.source, e.ecosystem, e.name): e for e in lock.artifacts
    }
    fetched: list[LockEntry] = []
    reused: list[LockEntry] = []
    failed: dict[str, str] = {}
    for number, pin in enumerate(pins, 1):
        entry = known.get((pin.source, pin.ecosystem, pin.name))
        if not force and entry is not None and _still_good(entry, pin, store):
            reused.append(entry)
            continue
        try:
            fetched.append(_pin(pin, store, times))
        except ClientMissingError:
            raise
        except UserError as error:
            failed[pin.spec] = error.message
            say(f"pin: {pin.spec} left out: {error.message}")
            continue
        if len(fetched) % _SAVE_EVERY == 0:
            save_lock(path, replace_entries(lock, fetched))
            say(f"pin: {number} of {len(pins)}, {len(fetched)} fetched")
    if not fetched and not reused:
        first = failed[min(failed)] if failed else "nothing was asked for"
        raise UserError(
            f"none of {len(pins)} could be pinned; the first: {first}",
            remedy="check the network, the configuration of pip and npm, and the names",
        )
    lock = replace_entries(lock, fetched)
    save_lock(path, lock)
    return Pinned(lock, tuple(fetched), tuple(reused), failed)


def _still_good(entry: LockEntry, pin: Pin, store: ArtifactStore) -> bool:
    return pin.kind == "package" and pin.version in ("", entry.version) and store.has(entry)


def _pin(pin: Pin, store: ArtifactStore, times: Times | None) -> LockEntry:
    if not re.match(NAME, pin.name) or (pin.version and not re.match(VERSION, pin.version)):
        # Checked before a client sees it: it would take --x for an option.
        raise UserError(f"{pin.spec} is no name and version of a package", remedy="correct the name")
    store.root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".tmp-pin-", dir=store.root) as name:
        folder = Path(name).resolve()
        fetched = store.clients[pin.ecosystem](pin.name, pin.version, folder, timeout_s=store.timeout_s)
        sha256, sha512 = hashes(fetched)
        facts: dict[str, Any] = {
            "source": pin.source,
            "ecosystem": pin.ecosystem,
            "name": pin.name,
            "filename": fetched.name,
            "sha256": sha256,
            "size": fetched.stat().st_size,
        }
        if pin.kind == "pages":
            facts |= {"version": sha256[:12], "url": pin.url, "licence": pin.licence}
        else:
            version = pin.version or stated_version(fetched, pin)
            facts |= {
                "version": version,
                "integrity": integrity_of(sha512) if pin.ecosystem == "npm" else None,
                "licence": pin.licence or stated_licence(fetched, pin),
                **(_dates(pin.name, version, times) if pin.ecosystem == "npm" else {}),
            }
        if facts["size"] > store.limit:
            raise UserError(
                f"{pin.spec} has {facts['size'] / 2**20:.1f} MiB, over the limit of {store.limit >> 20} MiB",
                remedy="raise crawl.max_artifact_mb",
            )
        try:
            entry = LockEntry.model_validate(facts)
        except ValueError as error:
            raise UserError(
                f"{pin.spec} cannot be pinned: {str(error).splitlines()[-2].strip()[:200]}",
                remedy="pin another release",
            ) from error
        final = store.path(entry)
        final.parent.mkdir(parents=True, exist_ok=True)
        fetched.replace(final)
    return entry


def _dates(name: str, version: str, times: Times | None) -> dict[str, str | None]:
    """Publication of the version and of the package; nothing where the index does not tell."""
    if times is None:
        return {}
    try:
        known = times(name)
    except FetchError:
        return {}
    found = {"published_at": known.get(version), "created_at": known.get("created")}
    return {k: v[:10] for k, v in found.items() if v}


def stated_version(path: Path, pin: Pin) -> str:
    """Version a package states of itself.

    Raises:
        UserError: it states none.
    """
    if pin.ecosystem == "pip":
        headers = metadata(read_members(path, lambda p: p.endswith(".dist-info/METADATA")))
        version: Any = (headers.get("version") or [""])[0]
    else:
        version = _manifest(path).get("version")
    if not isinstance(version, str) or not version:
        raise UserError(f"{path.name} states no version", remedy=f"name one: {pin.name} and its version")
    return version


def stated_licence(path: Path, pin: Pin) -> str | None:
    """Licence a package states in its own metadata; ``None`` if it states none."""
    if pin.ecosystem == "pip":
        headers = metadata(read_members(path, lambda p: p.endswith(".dist-info/METADATA")))
        for name in ("license-expression", "license"):
            if headers.get(name):
                return headers[name][0][:80]
        return None
    licence = _manifest(path).get("license")
    return licence[:80] if isinstance(licence, str) else None


def _manifest(path: Path) -> dict[str, Any]:
    data = read_members(path, lambda p: p == "package.json").get("package.json", b"{}")
    try:
        manifest = parse_json(data)
    except ValueError as error:
        raise UserError(f"{path.name} has no readable package.json", remedy="pin another release") from error
    return manifest if isinstance(manifest, dict) else {}
