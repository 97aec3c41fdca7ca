"""Responses kept on disk, so that a second run asks only what is stale.

One folder for each address, named by its SHA-256: ``meta.json`` and ``body``. Both are whole or absent,
and ``meta.json`` holds the body's hash: an entry that is damaged, or half of two writers, counts as absent.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from ecoagent.runs import read_json, write_bytes, write_json
from ecoagent.settings import UserError


@dataclass(frozen=True)
class Stored:
    """One response. ``headers`` has lower-case names; ``fetched_at`` is in seconds since 1970."""

    url: str
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    fetched_at: float = 0.0


class ResponseStore:
    """Responses by address, for threads and processes side by side.

    Args:
        root: folder, made at the first write.
        now: seconds since 1970.
    """

    def __init__(self, root: Path, *, now: Callable[[], float] = time.time) -> None:
        self.root, self._now = root, now

    def load(self, url: str, kind: str = "page") -> Stored | None:
        """The stored response, or none where there is none that can be read.

        Args:
            url: address asked for.
            kind: name of a further set of answers to the same address, e.g. of a link audit.
        """
        for _ in range(2):
            # A second look: another process may have been between the two files.
            found = self._read(url, kind)
            if found is not None:
                return found
            if not (self._folder(url, kind) / "meta.json").exists():
                return None
        return None

    def age_h(self, stored: Stored) -> float:
        """Hours since it was fetched or last found unchanged; infinite where the clock went backwards."""
        age = (self._now() - stored.fetched_at) / 3600.0
        return age if age >= -0.1 else float("inf")

    def save(
        self, url: str, status: int, headers: Mapping[str, str], body: bytes, kind: str = "page"
    ) -> Stored:
        """Store a response as fetched now.

        Raises:
            UserError: the folder cannot be written.
        """
        stored = Stored(url, status, dict(headers), body, self._now())
        self._write(stored, kind, with_body=True)
        return stored

    def refresh(self, stored: Stored, headers: Mapping[str, str], kind: str = "page") -> Stored:
        """Note that the stored response was found unchanged now; headers given anew replace old ones."""
        fresh = replace(stored, headers={**stored.headers, **headers}, fetched_at=self._now())
        self._write(fresh, kind, with_body=False)
        return fresh

    def _folder(self, url: str, kind: str) -> Path:
        key = url if kind == "page" else f"{kind} {url}"
        name = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
        return self.root / name[:2] / name

    def _write(self, stored: Stored, kind: str, *, with_body: bool) -> None:
        folder = self._folder(stored.url, kind)
        try:
            if with_body:
                write_bytes(folder / "body", stored.body)
            self._write_meta(folder, stored)
        except OSError as error:
            raise UserError(
                f"stored responses cannot be written to {self.root}: {error.strerror or error}",
                remedy="mend the folder or give another with http.store",
            ) from error

    def _write_meta(self, folder: Path, stored: Stored) -> None:
        write_json(
            folder / "meta.json",
            {
                "url": stored.url,
                "status": stored.status,
                "headers": dict(stored.headers),
                "sha256": hashlib.sha256(stored.body).hexdigest(),
                "fetched_at": datetime.fromtimestamp(stored.fetched_at, UTC).isoformat(),
            },
        )

    def _read(self, url: str, kind: str) -> Stored | None:
        folder = self._folder(url, kind)
        try:
            meta = read_json(folder / "meta.json")
            body = (folder / "body").read_bytes()
            stored = Stored(
                url=str(meta["url"]),
                status=int(meta["status"]),
                headers={str(k): str(v) for k, v in meta["headers"].items()},
                body=body,
                fetched_at=datetime.fromisoformat(meta["fetched_at"]).timestamp(),
            )
            whole = meta["sha256"] == hashlib.sha256(body).hexdigest()
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return None
        return stored if whole and stored.url == url else None
