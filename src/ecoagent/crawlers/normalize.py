"""Kept candidates as the shared table: provider, flaws, duplicates, retrieval text. Pure functions.

Candidates are looked at twice, in the order of ids: ``Survey`` keeps a few bytes of each, ``Rows``
makes the rows. Neither holds a record, so that a catalog need not fit in memory.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from ecoagent.crawlers.language import detect_language
from ecoagent.crawlers.merging import Brief, joined
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
    r"^(?!.* (?:from|to|using) )(consumes?|interact with|work with)( the)? [\w .&'-]{1,40}\.?$|"
    r"^uses?( the)? [\w .&'-]{1,40} api\.?$"
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
    """Turn candidates into the two tables, all of them in memory.

    Raises:
        UserError: two kept candidates have the same id.
    """
    listed = joined(candidates)
    survey = Survey()
    for found in listed:
        survey.add(found)
    rows = Rows(survey.settle())
    tools = [NormalizedTool(**rows.tool(c.record)) for c in listed if c.status == "kept"]
    return Normalized(tools, [RejectedTool(**row) for row in reject_rows(listed)])


class Survey:
    """First look at the candidates, in the order of ids: what a tool has to know of the others.

    A kept tool leaves three hashes of eight bytes. They stand for equal texts: among a million
    tools two different texts meet by chance in one catalog of thirty million.
    """

    def __init__(self) -> None:
        self._descriptions, self._named, self._keys = array("Q"), array("Q"), array("Q")
        self._last: str | None = None
        self._artifact = ""
        self._clashes: dict[str, set[str]] = {}
        self.rejected = 0

    def add(self, found: Candidate | Brief) -> None:
        """Count in the next candidate."""
        if found.status != "kept":
            self.rejected += 1
            return
        record, artifact = found.record, found.record.provenance.artifact
        if record.id == self._last:
            self._clashes.setdefault(record.id, {self._artifact}).add(artifact)
        self._last, self._artifact = record.id, artifact
        name = plain_name(record.name, record.display_name)
        description = normalize_query(record.description)
        service = _service(record.kind, record.group_name)
        self._descriptions.append(_hash(description) if description else 0)
        self._named.append(_hash(description, name))
        self._keys.append(_hash(name, description, service))

    def settle(self) -> Shared:
        """What was found.

        Raises:
            UserError: ids are not unique; each clash is listed with the artifacts it comes from.
        """
        if self._clashes:
            shown = "; ".join(f"{i} in {', '.join(sorted(a))}" for i, a in list(self._clashes.items())[:10])
            raise UserError(
                f"{len(self._clashes)} tool ids occur more than once: {shown}",
                remedy="leave one of the packages out with crawl.packages, or in the lock file",
            )
        descriptions, keys = _array(self._descriptions), _array(self._keys)
        _, of_pairs = np.unique(_array(self._named), return_index=True)
        found, names = np.unique(descriptions[of_pairs], return_counts=True)
        repeated = np.isin(descriptions, found[(names >= BOILERPLATE_SHARE) & (found != 0)])
        _, first, inverse, members = np.unique(
            keys, return_index=True, return_inverse=True, return_counts=True
        )
        return Shared(repeated, first[inverse], members[inverse], int((members > 1).sum()))


@dataclass(frozen=True)
class Shared:
    """What the kept tools have in common; arrays of shape (n,) in the order of ids.

    Attributes:
        repeated: whether tools of ``BOILERPLATE_SHARE`` names or more have this tool's description.
        first: place of the smallest id with the same name, description and service.
        members: number of tools with the same.
        groups: number of sets of two or more.
    """

    repeated: npt.NDArray[np.bool_]
    first: npt.NDArray[np.int64]
    members: npt.NDArray[np.int64]
    groups: int


class Rows:
    """Second look: rows of the table of tools, made in the order of ids."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._place = 0
        self._named: dict[int, str] = {}

    def tool(self, record: ToolRecord) -> dict[str, Any]:
        """The row of the next kept record: fields of ``NormalizedTool``."""
        place, shared = self._place, self._shared
        self._place += 1
        group, duplicated = record.id, bool(shared.members[place] > 1)
        if duplicated:
            # Names and descriptions are compared in the normal form of queries, underscores as
            # blanks. The service counts too: "Create File" of two hosts is two tools however alike
            # the words are.
            group = self._named.setdefault(int(shared.first[place]), record.id)
        language = record.language or detect_language(record.description)
        found = flags_of(
            record, language=language, duplicated=duplicated, repeated=bool(shared.repeated[place])
        )
        return record.model_dump() | {
            "language": language,
            "quality_flags": sorted(set(record.quality_flags) | found),
            "provider": provider_of(record),
            "duplicate_group": group,
            "tool_text": text_of(record),
        }


def reject_rows(candidates: Iterable[Candidate]) -> Iterator[dict[str, Any]]:
    """Rows of the rejected among candidates in the order of ids, by id, artifact and member."""
    rejected = (c for c in candidates if c.status == "rejected")
    for _, same in groupby(rejected, key=lambda c: c.record.id):
        ordered = sorted(same, key=lambda c: (c.record.provenance.artifact, c.record.provenance.path))
        yield from map(reject_row, ordered)


def reject_row(found: Candidate) -> dict[str, Any]:
    """Fields of ``RejectedTool``."""
    return found.record.model_dump() | {
        "stage": "crawl",
        "reason": found.reason or "unknown",
        "detail": found.detail,
    }


def _hash(*parts: str) -> int:
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def _array(values: array[int]) -> npt.NDArray[np.uint64]:
    return np.frombuffer(values, dtype=np.uint64) if values else np.zeros(0, dtype=np.uint64)


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


def flags_of(record: ToolRecord, *, language: str | None, duplicated: bool, repeated: bool) -> set[str]:
    """Flaws of a kept record's text and facts.

    Args:
        record: the tool.
        language: language of its description, if known.
        duplicated: whether another record is the same tool.
        repeated: whether tools of other names have its description.
    """
    description = fold_space(record.description)
    found: set[str] = set()
    if not description:
        found.add("empty")
    if len(description) < 15 and description:
        found.add("short")
    if _BOILERPLATE.match(description.lower()) or repeated:
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


def plain_name(name: str, display_name: str | None) -> str:
    """The name shown, in the form names are compared in."""
    return normalize_query(display_name or name).replace("_", " ")


def _service(kind: str, group_name: str | None) -> str:
    """What tells two tools of the same words apart: their group, where the name does not say it."""
    return normalize_query(group_name or "") if kind.endswith("_operation") else ""


def provider_of(record: ToolRecord) -> str:
    """Who runs the endpoint.

    The registrable domain of the first endpoint that has one, else the service its first
    credential is named after, else the package. A package of several services is its own; a page's
    tool has its package in ``group_id``, since what it was read from holds many.
    """
    domains = _domains(record)
    package = record.group_id if record.provenance.backend == "http" else record.provenance.artifact
    if record.granularity == "package" and len(set(domains)) > 1:
        return package
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
    return package


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
