"""Checking weights against their pinned sums, and remembering that they held."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ecoagent.models.sources import ModelSource, WeightFile
from ecoagent.settings import UserError

CHUNK = 1 << 20


def hash_range(path: Path, offset: int, size: int) -> str | None:
    """sha256 of ``size`` bytes from ``offset``; None if the file is shorter or absent."""
    digest, left = hashlib.sha256(), size
    try:
        with path.open("rb") as handle:
            handle.seek(offset)
            while left and (block := handle.read(min(CHUNK, left))):
                digest.update(block)
                left -= len(block)
    except FileNotFoundError:
        return None
    return None if left else digest.hexdigest()


def file_fault(path: Path, expected: WeightFile) -> str | None:
    """Why ``path`` is not ``expected``; None if size and sha256 hold."""
    if not path.is_file():
        return f"{path} is missing"
    size = path.stat().st_size
    if size != expected.size:
        return f"{path} has {size} bytes, not {expected.size}"
    found = hash_range(path, 0, size)
    if found != expected.sha256:
        return f"{path} has sha256 {found}, not {expected.sha256}"
    return None


def files_fault(root: Path, files: Iterable[WeightFile]) -> str | None:
    """First fault among a folder's files."""
    return next((fault for f in files if (fault := file_fault(root / f.path, f))), None)


class Marker:
    """Beside a model: the size and time of each file when its sum last held.

    Hashing a gigabyte takes seconds; as long as size and modification time are those recorded, the
    file is the one that was checked.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def holds(self, root: Path, source: ModelSource) -> bool:
        """Whether the recorded files are still there, unchanged, for the same pinned digest."""
        try:
            recorded = json.loads(self.path.read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            return False
        if recorded.get("digest") != source.digest or not recorded.get("files"):
            return False
        listed = {f.path for f in source.files}
        return listed <= set(recorded["files"]) and recorded["files"] == self._stat(root, recorded["files"])

    def write(self, root: Path, source: ModelSource, names: Iterable[str], origin: str) -> None:
        """Record that the files' sums hold. ``origin`` says where the bytes came from."""
        record: dict[str, Any] = {
            "name": source.name,
            "digest": source.digest,
            "origin": origin,
            "files": self._stat(root, names),
        }
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", "utf-8")
        temporary.replace(self.path)

    def origin(self) -> str | None:
        """Where the bytes came from, if recorded."""
        try:
            found = json.loads(self.path.read_text("utf-8")).get("origin")
        except (FileNotFoundError, ValueError):
            return None
        return str(found) if found else None

    @staticmethod
    def _stat(root: Path, names: Iterable[str]) -> dict[str, list[int]]:
        found = {}
        for name in names:
            path = root / name
            if path.is_file():
                state = path.stat()
                found[name] = [state.st_size, state.st_mtime_ns]
        return found


def require_space(folder: Path, needed: int, what: str) -> None:
    """Check free space before a download.

    Raises:
        UserError: fewer than ``needed`` bytes are free where ``folder`` lies.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise UserError(
            f"{what} needs {needed / 1e6:,.0f} MB in {folder}, {free / 1e6:,.0f} MB are free",
            remedy="free some space or set models.dir to a larger disk",
        )
