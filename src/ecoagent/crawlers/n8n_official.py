"""n8n's own packages: the node and credential lists they ship."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ecoagent.crawlers.lock import LockEntry
from ecoagent.crawlers.n8n import JSON, dicts, newest, node_candidate, split_operations, text
from ecoagent.crawlers.n8n_auth import TYPES, borrowed_types, by_name
from ecoagent.crawlers.n8n_code import literals_of
from ecoagent.crawlers.records import in_order, package_candidate
from ecoagent.runs import parse_json
from ecoagent.schema import Candidate
from ecoagent.schema.tools import Granularity
from ecoagent.settings import UserError

NODES, KNOWN = "dist/types/nodes.json", "dist/known/nodes.json"
_CODE = re.compile(r"^dist/nodes/.+\.js$")
_NO_REQUESTS = re.compile(r"/(__schema__|descriptions?|test|methods)/|Descriptions?\.js$|\.test\.js$")
"""Most of the code, and nothing in it is called."""
ENTERPRISE = "n8n Enterprise License"


def wanted(path: str) -> bool:
    """Members the parser reads."""
    return path in (NODES, TYPES, KNOWN, "package.json") or _is_code(path)


def _is_code(path: str) -> bool:
    return bool(_CODE.match(path)) and not _NO_REQUESTS.search(path)


def parse(
    members: Mapping[str, bytes], entry: LockEntry, granularity: Granularity = "tool"
) -> list[Candidate]:
    """Candidates of one of n8n's packages, kept and rejected, sorted by id.

    Entries are grouped by name and the highest version's kept.

    Raises:
        UserError: the package ships no list of nodes, or one that cannot be read.
    """
    if NODES not in members:
        raise UserError(
            f"{entry.spec} has no {NODES}",
            remedy="pin a release that ships it, or list the package as n8n_community",
        )
    nodes = newest(dicts(_json(members, NODES, entry)))
    types = {**borrowed_types(members), **by_name(_json(members, TYPES, entry))}
    known = _json(members, KNOWN, entry)
    manifest = _json(members, "package.json", entry)
    manifest = manifest if isinstance(manifest, dict) else {}
    code = {p: b for p, b in members.items() if _is_code(p)}
    found: list[Candidate] = []
    for name in sorted(nodes):
        place = known.get(name) if isinstance(known, dict) else None
        source = text(place.get("sourcePath")) if isinstance(place, dict) else ""
        shared = shared_facts(manifest, entry)
        if ".ee." in source:
            shared["licence"] = ENTERPRISE
        node = nodes[name]
        made = node_candidate(
            node,
            entry,
            types=types,
            path=source or NODES,
            literals=_literals(source, code),
            shared=shared,
        )
        found += split_operations(made, node) if granularity == "operation" else [made]
    if granularity == "package":
        return package_candidate(
            found, entry, text(manifest.get("description")), **shared_facts(manifest, entry)
        )
    return in_order(found)


def shared_facts(manifest: JSON, entry: LockEntry) -> dict[str, Any]:
    """Facts of ``package.json`` that every record of the package carries."""
    repository = manifest.get("repository")
    address = text(repository.get("url")) if isinstance(repository, dict) else text(repository)
    licence = text(manifest.get("license"))
    if entry.licence and (not licence or licence.upper().startswith("SEE LICENSE")):
        licence = entry.licence
    return {
        "url": text(manifest.get("homepage")) or None,
        "repository": re.sub(r"^git\+|\.git$", "", address) or None,
        "licence": licence or None,
    }


def _json(members: Mapping[str, bytes], path: str, entry: LockEntry) -> Any:
    if path not in members:
        return {}
    try:
        return parse_json(members[path])
    except ValueError as error:
        raise UserError(
            f"{entry.spec}, member {path} is not JSON: {error}", remedy="pin another release"
        ) from error


def _literals(source: str, code: Mapping[str, bytes]) -> Iterator[str]:
    """Addresses in the node's code, read only once they are asked for."""
    yield from literals_of(source, code)
