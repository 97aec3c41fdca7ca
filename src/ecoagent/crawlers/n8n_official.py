"""n8n's own packages: the node and credential lists they ship."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from ecoagent.crawlers.lock import LockEntry
from ecoagent.crawlers.n8n import (
    JSON,
    dicts,
    newest,
    node_candidate,
    split_operations,
    text,
    url_literals,
)
from ecoagent.crawlers.records import in_order, package_candidate
from ecoagent.schema import Candidate
from ecoagent.schema.tools import Granularity
from ecoagent.settings import UserError

NODES, CREDENTIALS, KNOWN = "dist/types/nodes.json", "dist/types/credentials.json", "dist/known/nodes.json"
_CODE = re.compile(r"^dist/nodes/.+(?:\.node(?:\.ee)?|GenericFunctions|/transport/[^/]+)\.js$")
ENTERPRISE = "n8n Enterprise License"


def wanted(path: str) -> bool:
    """Members the parser reads."""
    return path in (NODES, CREDENTIALS, KNOWN, "package.json") or bool(_CODE.match(path))


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
    types = {text(c.get("name")): c for c in dicts(_json(members, CREDENTIALS, entry))}
    known = _json(members, KNOWN, entry)
    manifest = _json(members, "package.json", entry)
    manifest = manifest if isinstance(manifest, dict) else {}
    code = {p: b for p, b in members.items() if _CODE.match(p)}
    found: list[Candidate] = []
    for name in sorted(nodes):
        place = known.get(name) if isinstance(known, dict) else None
        source = text(place.get("sourcePath")) if isinstance(place, dict) else ""
        shared = shared_facts(manifest, entry)
        if ".ee." in source:
            shared["licence"] = ENTERPRISE
        found.append(
            node_candidate(
                nodes[name],
                entry,
                types=types,
                path=source or NODES,
                literals=_literals(source, code),
                shared=shared,
            )
        )
    if granularity == "operation":
        found = [c for whole in found for c in split_operations(whole)]
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
        return json.loads(members[path])
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(
            f"{entry.spec}, member {path} is not JSON: {error}", remedy="pin another release"
        ) from error


def _literals(source: str, code: Mapping[str, bytes]) -> list[str]:
    """Addresses in the node's file, then in the helper files of its folder and the folders above it."""
    if not source:
        return []
    paths = [source]
    folder = PurePosixPath(source).parent
    while len(folder.parts) > 2:
        prefix = f"{folder}/"
        paths += sorted(
            p
            for p in code
            if p.startswith(prefix)
            and (p == f"{prefix}GenericFunctions.js" or "/transport/" in p[len(prefix) - 1 :])
        )
        folder = folder.parent
    for path in paths:
        urls = url_literals(code.get(path, b"").decode("utf-8", "replace"))
        if urls:
            return urls
    return []
