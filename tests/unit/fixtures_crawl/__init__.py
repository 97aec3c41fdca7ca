"""Builders of small archives, and handwritten packages that hold the catalogs' traps."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from pathlib import Path
from textwrap import dedent

from ecoagent.crawlers import LockEntry
from ecoagent.crawlers.artifacts import integrity_of

METADATA = "Metadata-Version: 2.4\nName: demo\nSummary: A demo package.\nLicense: MIT\nProject-URL: Homepage, https://demo.example.org\n\nBody\n"


def sources(files: dict[str, str]) -> dict[str, bytes]:
    """Members as the parsers take them."""
    return {path: dedent(text).lstrip("\n").encode() for path, text in files.items()}


def wheel(path: Path, files: dict[str, bytes]) -> Path:
    """A wheel of ``files``, equal bytes each time."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, (2020, 2, 2, 0, 0, 0)), files[name], zipfile.ZIP_DEFLATED)
    return path


def tarball(path: Path, files: dict[str, bytes], *, prefix: str = "package/") -> Path:
    """An npm archive of ``files``."""
    with tarfile.open(path, "w:gz") as archive:
        for name in sorted(files):
            info = tarfile.TarInfo(prefix + name)
            info.size = len(files[name])
            archive.addfile(info, io.BytesIO(files[name]))
    return path


def entry_of(path: Path, source: str, name: str = "demo", version: str = "1.0.0") -> LockEntry:
    """Lock entry of a file."""
    data = path.read_bytes()
    npm = source.startswith("n8n")
    return LockEntry(
        source=source,
        ecosystem="npm" if npm else "pip",
        name=name,
        version=version,
        filename=path.name,
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        integrity=integrity_of(hashlib.sha512(data).hexdigest()) if npm else None,
        licence="MIT",
    )


def bare_entry(source: str, name: str = "demo") -> LockEntry:
    """Lock entry for parsers that are handed members."""
    return LockEntry(
        source=source,
        ecosystem="npm" if source.startswith("n8n") else "pip",
        name=name,
        version="1.0.0",
        filename="demo.whl",
        sha256="0" * 64,
        size=1,
        licence="Demo License",
    )


def community(
    nodes: dict[str, str], extra: dict[str, str] | None = None, **manifest: object
) -> dict[str, bytes]:
    """Members of a community package with one file a node."""
    declared = {"nodes": sorted(nodes), "credentials": [p for p in extra or {} if ".credentials." in p]}
    package = {"name": "n8n-nodes-demo", "license": "MIT", "n8n": declared, **manifest}
    files = {p: dedent(t).encode() for p, t in {**nodes, **(extra or {})}.items()}
    return {"package.json": json.dumps(package).encode(), **files}
