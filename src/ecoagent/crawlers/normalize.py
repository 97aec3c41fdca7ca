"""Kept candidates as the shared table: provider, flaws, duplicates, retrieval text. Pure functions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from ecoagent.crawlers.language import detect_language
from ecoagent.schema import (
    Candidate,
    NormalizedTool,
    RejectedTool,
    ToolRecord,
    fold_space,
    normalize_query,
    tool_text,
)
from ecoagent.settings import UserError

OPERATIONS_IN_TEXT = 30
"""Operations named in ``tool_text``; a node with hundreds would crowd out everything else."""
BOILERPLATE_SHARE = 3
"""Tools of different names with the same description, from which on it is boilerplate."""

_BOILERPLATE = re.compile(
    r"^(consumes?|interact with|work with)( the)? [\w .&'-]{1,40}\.?$|^uses?( the)? [\w .&'-]{1,40} api\.?$"
)
_TEMPLATE = re.compile(r"(?<!\{)\{[A-Za-z_][\w.]*\}(?!\})|<[A-Z_]{3,}>|\{\{\s*\$")
_WRONG = re.compile(
    r"```|</?(p|br|a|b|i|div|span|img|h\d|ul|li|code|pre)\b[^>]*>|!\[|img\.shields|^deprecated\b|"
    r"^(an agent|you are|todo)\b|lorem ipsum|page not found",
    re.IGNORECASE,
)
_KEY_WORDS = re.compile(
    r"(oauth2?|oauth1|app|http|header|query|basic|access|personal|service|account|bearer|secret|"
    r"client|api|auth|token|key|id|password|user(name)?|url|endpoint|credentials?|path|base|v\d)+$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Normalized:
    """Kept tools and rejects, both sorted by id."""

    tools: list[NormalizedTool]
    rejects: list[RejectedTool]


def normalize(candidates: Iterable[Candidate]) -> Normalized:
    """Turn candidates into the two tables.

    Raises:
        UserError: two kept candidates have the same id.
    """
    listed = list(candidates)
    kept = [c.record for c in listed if c.status == "kept"]
    check_ids(kept)
    kept.sort(key=lambda r: r.id)
    groups = duplicate_groups(kept)
    shared = repeated_descriptions(kept)
    members = Counter(groups.values())
    tools = [_tool(r, groups[r.id], members[groups[r.id]] > 1, shared) for r in kept]
    rejects = [
        RejectedTool(**dict(c.record), stage="crawl", reason=c.reason or "unknown", detail=c.detail)
        for c in listed
        if c.status == "rejected"
    ]
    rejects.sort(key=lambda r: (r.id, r.provenance.artifact, r.provenance.path))
    return Normalized(tools, rejects)


def check_ids(records: Sequence[ToolRecord]) -> None:
    """Ids must be unique.

    Raises:
        UserError: they are not; each clash is listed with the artifacts it comes from.
    """
    counts = Counter(r.id for r in records)
    clashes = sorted(i for i, n in counts.items() if n > 1)
    if clashes:
        where = {i: sorted({r.provenance.artifact for r in records if r.id == i}) for i in clashes[:10]}
        shown = "; ".join(f"{i} in {', '.join(a)}" for i, a in where.items())
        raise UserError(
            f"{len(clashes)} tool ids occur more than once: {shown}",
            remedy="leave one of the packages out with crawl.packages, or in the lock file",
        )


def _tool(record: ToolRecord, group: str, duplicated: bool, shared: frozenset[str]) -> NormalizedTool:
    language = record.language or detect_language(record.description)
    found = flags_of(record, language=language, duplicated=duplicated, shared=shared)
    values: dict[str, Any] = dict(record)
    values |= {
        "language": language,
        "quality_flags": sorted(set(record.quality_flags) | found),
        "provider": provider_of(record),
        "duplicate_group": group,
        "tool_text": text_of(record),
    }
    return NormalizedTool(**values)


def text_of(record: ToolRecord) -> str:
    """The text retrieval sees."""
    names = list(dict.fromkeys(fold_space(o.name) for o in record.operations))
    return tool_text(
        record.display_name or record.name,
        record.description,
        group=record.group_name,
        operations=names[:OPERATIONS_IN_TEXT],
        tags=record.tags,
    )


def flags_of(
    record: ToolRecord, *, language: str | None, duplicated: bool, shared: frozenset[str]
) -> set[str]:
    """Flaws of a kept record's text and facts."""
    description = fold_space(record.description)
    found: set[str] = set()
    if not description:
        found.add("empty")
    if len(description) < 15 and description:
        found.add("short")
    if _BOILERPLATE.match(description.lower()) or normalize_query(description) in shared:
        found.add("boilerplate")
    if _TEMPLATE.search(description):
        found.add("template")
    if language not in (None, "en"):
        found.add("non_english")
    if _WRONG.search(description):
        found.add("wrong_looking")
    if not record.auth and record.auth_required == "unknown" and _domains(record):
        found.add("missing_auth")
    if duplicated:
        found.add("duplicate")
    if record.deprecated.state:
        found.add("deprecated")
    return found


def repeated_descriptions(records: Sequence[ToolRecord]) -> frozenset[str]:
    """Normalised descriptions that several tools of different names share."""
    names: dict[str, set[str]] = {}
    for record in records:
        names.setdefault(normalize_query(record.description), set()).add(_plain_name(record))
    return frozenset(d for d, n in names.items() if d and len(n) >= BOILERPLATE_SHARE)


def _plain_name(record: ToolRecord) -> str:
    return normalize_query(record.display_name or record.name).replace("_", " ")


def duplicate_groups(records: Sequence[ToolRecord]) -> dict[str, str]:
    """Id to the smallest id of the records with the same name, description and service.

    Names and descriptions are compared in the normal form of queries, underscores as blanks. The
    service counts too: "Create File" of two hosts is two tools however alike the words are.
    """
    smallest: dict[tuple[str, str, str], str] = {}
    keys = {r.id: (_plain_name(r), normalize_query(r.description), _service(r)) for r in records}
    for record in records:
        key = keys[record.id]
        smallest[key] = min(smallest.get(key, record.id), record.id)
    return {i: smallest[k] for i, k in keys.items()}


def _service(record: ToolRecord) -> str:
    """What tells two tools of the same words apart: their group, where the name does not say it."""
    return normalize_query(record.group_name or "") if record.kind.endswith("_operation") else ""


def provider_of(record: ToolRecord) -> str:
    """Who runs the endpoint.

    The registrable domain of the first endpoint that has one, else the service its first
    credential is named after, else the package. A package of several services is its own.
    """
    domains = _domains(record)
    if record.granularity == "package" and len(set(domains)) > 1:
        return record.provenance.artifact
    if domains:
        return domains[0]
    # What must be given and kept secret names the service; a branch or a region does not.
    ordered = sorted(
        record.auth, key=lambda a: (a.required is not True, not any(f.secret for f in a.fields), a.name)
    )
    for auth in ordered:
        service = service_of(auth.name) if auth.type != "init_parameter" else ""
        if service:
            return service
    return record.provenance.artifact


def _domains(record: ToolRecord) -> list[str]:
    return [d for d in (registrable_domain(e.url) for e in record.endpoints) if d]


def service_of(name: str) -> str:
    """Service a credential or environment variable is named after; empty if it names none.

    ``githubOAuth2Api`` and ``GITHUB_APP_PRIVATE_KEY`` both give ``github``.
    """
    if name.isupper() or "_" in name:
        first = name.lower().split("_")[0]
        return "" if _KEY_WORDS.fullmatch(first) else first
    plain = re.sub(r"(OAuth2|OAuth1|OAuth)?(Api|ApiKey|Auth|Token|Account)*$", "", name)
    return "" if not plain or _KEY_WORDS.fullmatch(plain) else plain.lower()


@lru_cache(maxsize=4096)
def registrable_domain(url: str) -> str | None:
    """Registrable domain of an address; ``None`` for templates in the host, local names and numbers."""
    try:
        host = urlsplit(url.strip().removeprefix("=")).hostname or ""
    except ValueError:
        return None
    if not host or not re.fullmatch(r"[a-z0-9.-]+", host):
        # A template may still end in a real domain: {subdomain}.zendesk.com.
        match = re.match(
            r"=?https?://[^/]*?[}\])]\.([a-z0-9-]+(?:\.[a-z0-9-]+)+)(?:[:/?]|$)", url, re.IGNORECASE
        )
        if match is None:
            return None
        host = match.group(1).lower()
    return _extract(host)


def _extract(host: str) -> str | None:
    found = _extractor()(host)
    return str(found.top_domain_under_public_suffix).lower() or None


@lru_cache(maxsize=1)
def _extractor() -> Any:
    import tldextract

    # No address lists: the snapshot inside the package is used, nothing is fetched.
    return tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)
