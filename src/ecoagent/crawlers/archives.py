"""Members of wheels and npm archives, read in memory; nothing is ever unpacked to disk."""

from __future__ import annotations

import gzip
import hashlib
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

from ecoagent.settings import UserError

MIB = 1 << 20
Wanted = Callable[[str], bool]


@dataclass(frozen=True)
class Limits:
    """Caps that end the reading of an archive with an error, never by leaving something out."""

    member_bytes: int = 64 * MIB
    total_bytes: int = 1024 * MIB
    members: int = 200_000
    ratio: int = 200
    """Largest unpacked/packed ratio of a whole archive over 8 MiB unpacked."""


def read_members(path: Path, wanted: Wanted, limits: Limits | None = None) -> dict[str, bytes]:
    """Members of a ``.whl``/``.zip`` or ``.tgz``/``.tar.gz`` whose path ``wanted`` accepts.

    Paths are as in the archive, but for npm's leading ``package/``, which is dropped.

    Raises:
        UserError: the archive is broken, has a path outside itself or a link, or goes over a limit.
    """
    caps = limits or Limits()
    try:
        if path.suffix in (".whl", ".zip"):
            return _read_zip(path, wanted, caps)
        if path.name.endswith((".tgz", ".tar.gz")):
            return _read_tar(path, wanted, caps)
    except (
        zipfile.BadZipFile,
        tarfile.TarError,
        zlib.error,
        EOFError,
        OSError,
        NotImplementedError,
    ) as error:
        raise UserError(
            f"archive {path.name} cannot be read: {type(error).__name__}: {error}",
            remedy="delete it from the artifact store and crawl again",
        ) from error
    raise UserError(f"archive {path.name} is neither a wheel nor a .tgz", remedy="correct its lock entry")


def _refuse(path: Path, member: str, why: str) -> UserError:
    return UserError(
        f"archive {path.name}, member {member!r}: {why}; nothing was read",
        remedy="the package is not safe to read: leave it out of the lock file",
    )


def safe_path(path: Path, name: str) -> str:
    """The member's path, checked.

    Raises:
        UserError: absolute, leaving the archive, or with characters no package needs.
    """
    pure = PurePosixPath(name)
    if (
        not name
        or pure.is_absolute()
        or ".." in pure.parts
        or "\\" in name
        or "\x00" in name
        or (len(name) > 1 and name[1] == ":")
    ):
        raise _refuse(path, name, "path leaves the archive")
    return pure.as_posix()


class _Meter:
    """Counts what has been unpacked against the caps."""

    def __init__(self, path: Path, caps: Limits) -> None:
        self.path, self.caps = path, caps
        self.packed = max(path.stat().st_size, 1)
        self.total = self.count = 0

    def member(self, name: str, size: int) -> None:
        self.count += 1
        self.total += size
        if self.count > self.caps.members:
            raise _refuse(self.path, name, f"more than {self.caps.members} members")
        if size > self.caps.member_bytes:
            raise UserError(
                f"archive {self.path.name}, member {name!r} has {size} bytes, "
                f"over the limit of {self.caps.member_bytes}",
                remedy="raise crawl.max_member_mb if the package is to be trusted",
            )
        if self.total > self.caps.total_bytes:
            raise _refuse(self.path, name, f"more than {self.caps.total_bytes} bytes unpacked")
        if self.total > 8 * MIB and self.total > self.caps.ratio * self.packed:
            raise _refuse(self.path, name, f"unpacks to over {self.caps.ratio} times its size")

    def read(self, handle: IO[bytes], name: str, size: int) -> bytes:
        data = handle.read(size + 1)
        if len(data) != size:
            raise _refuse(self.path, name, "is not as long as the archive says")
        return data


def _read_zip(path: Path, wanted: Wanted, caps: Limits) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    meter = _Meter(path, caps)
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            name = safe_path(path, info.filename)
            mode = info.external_attr >> 16
            if stat.S_ISLNK(mode):
                raise _refuse(path, name, "is a link")
            meter.member(name, info.file_size)
            if info.is_dir() or not wanted(name):
                continue
            if name in found:
                raise _refuse(path, name, "occurs twice")
            if info.flag_bits & 0x1:
                raise _refuse(path, name, "is encrypted")
            with archive.open(info) as handle:
                found[name] = meter.read(handle, name, info.file_size)
    return found


class _Unpacked:
    """A gzip stream that counts what comes out of it.

    The headers of a tar can hold as much as its members, and tell of it to no one.
    """

    def __init__(self, handle: IO[bytes], path: Path, caps: Limits) -> None:
        self.handle, self.path, self.caps = handle, path, caps
        self.packed = max(path.stat().st_size, 1)
        self.total = 0

    def read(self, size: int = -1) -> bytes:
        data = self.handle.read(size)
        self.total += len(data)
        # Each member takes a header of 512 bytes and is filled up to as many.
        headers = 2048 * self.caps.members
        if self.total > self.caps.total_bytes + headers:
            raise _refuse(self.path, "(headers)", f"more than {self.caps.total_bytes} bytes unpacked")
        if self.total > 8 * MIB and self.total > self.caps.ratio * self.packed:
            raise _refuse(self.path, "(headers)", f"unpacks to over {self.caps.ratio} times its size")
        return data


def _opened(stream: gzip.GzipFile, path: Path, caps: Limits) -> tarfile.TarFile:
    unpacked = _Unpacked(cast(IO[bytes], stream), path, caps)
    return tarfile.open(fileobj=cast(IO[bytes], unpacked), mode="r|")


def _read_tar(path: Path, wanted: Wanted, caps: Limits) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    meter = _Meter(path, caps)
    with gzip.open(path, "rb") as stream, _opened(stream, path, caps) as archive:
        for info in archive:
            name = safe_path(path, info.name)
            if info.issym() or info.islnk():
                raise _refuse(path, name, "is a link")
            if not info.isreg() and not info.isdir():
                raise _refuse(path, name, "is neither a file nor a folder")
            meter.member(name, info.size)
            # npm puts everything below one folder, usually but not always called "package".
            name = name.partition("/")[2]
            if info.isdir() or not name or not wanted(name):
                continue
            if name in found:
                raise _refuse(path, name, "occurs twice")
            handle = archive.extractfile(info)
            if handle is None:
                raise _refuse(path, name, "has no content")
            found[name] = meter.read(handle, name, info.size)
    return found


def hashes(path: Path) -> tuple[str, str]:
    """SHA-256 (hex) and SHA-512 (raw digest as hex) of a file."""
    first, second = hashlib.sha256(), hashlib.sha512()
    with path.open("rb") as handle:
        while chunk := handle.read(MIB):
            first.update(chunk)
            second.update(chunk)
    return first.hexdigest(), second.hexdigest()
