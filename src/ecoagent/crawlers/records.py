"""What all parsers share: the parser's version, provenance, candidates and their order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ecoagent.crawlers.lock import LockEntry
from ecoagent.schema import Candidate, Provenance, ToolRecord, fold_space

PARSER_VERSION = "2"
"""Bumped whenever a parser's output changes; part of every shard's key."""

NOT_DEPRECATED: dict[str, Any] = {"state": False, "reason": None, "replacement": None}


def provenance(entry: LockEntry, path: str) -> Provenance:
    """Provenance of a record read from ``path`` inside the artifact."""
    return Provenance(
        artifact=entry.name,
        artifact_version=entry.version,
        sha256=entry.sha256,
        path=path,
        backend="http" if entry.ecosystem == "http" else "client",
        parser_version=PARSER_VERSION,
    )


def candidate(record: ToolRecord, reason: str | None = None, detail: str | None = None) -> Candidate:
    """A kept candidate, or a rejected one if ``reason`` is given."""
    return Candidate(status="rejected" if reason else "kept", reason=reason, detail=detail, record=record)


def in_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Candidates sorted by id, kept before rejected where an id occurs twice."""
    return sorted(candidates, key=lambda c: (c.record.id, c.status))


def metadata(members: Mapping[str, bytes]) -> dict[str, list[str]]:
    """Headers of a wheel's METADATA: lower-cased name to its values."""
    found: dict[str, list[str]] = {}
    for path, data in members.items():
        if not path.endswith(".dist-info/METADATA"):
            continue
        for line in data.decode("utf-8", "replace").splitlines():
            if not line.strip():
                break
            name, separator, value = line.partition(":")
            if separator and not line[0].isspace():
                found.setdefault(name.strip().lower(), []).append(value.strip())
    return found


def project_url(headers: Mapping[str, list[str]], *labels: str) -> str | None:
    """First project URL under one of ``labels`` (lower case)."""
    urls = {}
    for value in headers.get("project-url", []):
        label, _, url = value.partition(",")
        urls[label.strip().lower()] = url.strip()
    return next((urls[label] for label in labels if urls.get(label)), None)


def wheel_licence(headers: Mapping[str, list[str]], entry: LockEntry) -> str | None:
    """Licence as the wheel states it, else as the lock file does."""
    for name in ("license-expression", "license"):
        values = headers.get(name)
        if values and values[0] and len(values[0]) < 80:
            return values[0]
    return entry.licence


def words(name: str) -> str:
    """``google_cloud`` or ``GmailToolSpec`` in words, capitals kept."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return fold_space(re.sub(r"[_\-.]+", " ", spaced))


def package_candidate(
    candidates: list[Candidate], entry: LockEntry, summary: str, **facts: Any
) -> list[Candidate]:
    """One candidate for a whole package (granularity ``package``), from its tools' records.

    The description is the package's own summary; without one the candidate is rejected.
    """
    kept = [c.record for c in candidates if c.status == "kept"]
    known = {a.name: a for r in kept for a in r.auth}
    required = {r.auth_required for r in kept}
    record = ToolRecord(
        id=f"{entry.source}:{entry.name}",
        source=entry.source,
        name=entry.name,
        display_name=words(entry.name),
        description=fold_space(summary),
        description_origin="package" if summary else "none",
        kind="package",
        granularity="package",
        group_id=entry.name,
        version=entry.version,
        auth=[known[n] for n in sorted(known)],
        auth_required="yes" if "yes" in required else ("no" if required == {"no"} else "unknown"),
        endpoints=list({e.url: e for r in kept for e in r.endpoints}.values()),
        tags=sorted({t for r in kept for t in r.tags}),
        deprecated=facts.pop("deprecated", NOT_DEPRECATED),
        provenance=provenance(entry, facts.pop("path", "")),
        **facts,
    )
    if not kept:
        return [candidate(record, "no_tools", "no tool of the package was kept")]
    if not record.description:
        return [candidate(record, "no_description", "the package has no summary")]
    return [candidate(record)]
