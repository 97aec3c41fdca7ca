"""n8n community packages: node classes built in the sandbox."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from ecoagent.crawlers.lock import LockEntry
from ecoagent.crawlers.n8n import JSON, node_candidate, split_operations, text
from ecoagent.crawlers.n8n_auth import BORROWED, borrowed_types
from ecoagent.crawlers.n8n_code import literals_of
from ecoagent.crawlers.n8n_official import shared_facts
from ecoagent.crawlers.records import NOT_DEPRECATED, candidate, in_order, package_candidate, provenance
from ecoagent.crawlers.sandbox import evaluate
from ecoagent.runs import parse_json
from ecoagent.schema import Candidate, ToolRecord
from ecoagent.schema.tools import Granularity
from ecoagent.settings import UserError

_CODE_BYTES = 32 * 1024 * 1024


def wanted(path: str) -> bool:
    """Members the parser reads."""
    return path == "package.json" or (
        path.endswith((".js", ".cjs", ".json")) and "node_modules/" not in path and not path.endswith(".map")
    )


def parse(
    members: Mapping[str, bytes], entry: LockEntry, granularity: Granularity = "tool"
) -> list[Candidate]:
    """Candidates of one community package, kept and rejected, sorted by id.

    Rejected: ``hidden``, ``deprecated``, ``no_description``, ``not_evaluated`` (the class could not
    be built in the sandbox; the detail says why).

    Raises:
        UserError: not an n8n package: ``package.json`` has no ``n8n.nodes``.
    """
    manifest = _manifest(members, entry)
    declared = manifest["n8n"]
    node_paths = _paths(declared.get("nodes"))
    credential_paths = _paths(declared.get("credentials"))
    files = _files(members, entry)
    built = evaluate(files, [*credential_paths, *node_paths])
    own = {
        text(built.values[p].get("name")): built.values[p]
        for p in credential_paths
        if isinstance(built.values.get(p), dict)
    }
    types = {**borrowed_types(members), **own}
    shared = shared_facts(manifest, entry)
    found: list[Candidate] = []
    for path in node_paths:
        value = built.values.get(path)
        description = value.get("description") if isinstance(value, dict) else None
        if not isinstance(description, dict) or not text(description.get("name")):
            why = built.errors.get(path, "the class has no description")
            if path not in files:
                why = "package.json lists a file that is not in the package"
            found.append(_not_evaluated(path, entry, shared, why))
            continue
        node = {**description, **_codex(path, members)}
        made = node_candidate(
            node, entry, types=types, path=path, literals=_literals(path, files), shared=shared
        )
        found += split_operations(made, node) if granularity == "operation" else [made]
    if granularity == "package":
        return package_candidate(
            found, entry, text(manifest.get("description")), path="package.json", **shared
        )
    return in_order(found)


def _manifest(members: Mapping[str, bytes], entry: LockEntry) -> dict[str, Any]:
    try:
        manifest = parse_json(members.get("package.json", b""))
    except ValueError as error:
        raise UserError(
            f"{entry.spec} has no readable package.json: {error}", remedy="pin another release"
        ) from error
    declared = manifest.get("n8n") if isinstance(manifest, dict) else None
    if not isinstance(declared, dict) or not _paths(declared.get("nodes")):
        raise UserError(
            f"{entry.spec} is no n8n package: its package.json has no n8n.nodes",
            remedy="take it out of the lock file",
        )
    return dict(manifest)


def _paths(value: object) -> list[str]:
    if not isinstance(value, list):
        return []
    # Half a character in a path would be no file's name, and no output could hold it.
    whole = [v.encode("utf-8", "replace").decode("utf-8") for v in value if isinstance(v, str)]
    return list(dict.fromkeys(PurePosixPath(v).as_posix() for v in whole))


def _files(members: Mapping[str, bytes], entry: LockEntry) -> dict[str, str]:
    own = {p: b for p, b in members.items() if not p.startswith(BORROWED)}
    total = sum(len(b) for b in own.values())
    if total > _CODE_BYTES:
        raise UserError(
            f"{entry.spec} holds {total} bytes of code, over the sandbox's limit of {_CODE_BYTES}",
            remedy="take it out of the lock file",
        )
    return {p: b.decode("utf-8", "replace") for p, b in own.items()}


def _codex(path: str, members: Mapping[str, bytes]) -> JSON:
    """The codex file beside a node, if there is one that can be read."""
    data = members.get(re.sub(r"\.c?js$", ".json", path))
    if data is None:
        return {}
    try:
        codex = parse_json(data)
    except ValueError:
        return {}
    return {"codex": codex} if isinstance(codex, dict) else {}


def _literals(path: str, files: Mapping[str, str]) -> Iterator[str]:
    """Addresses in the node's code, read only once they are asked for."""
    yield from literals_of(path, files)


def _not_evaluated(path: str, entry: LockEntry, shared: Mapping[str, Any], why: str) -> Candidate:
    name = PurePosixPath(path).name.partition(".")[0]
    record = ToolRecord(
        id=f"n8n:{entry.name}.{name}",
        source=entry.source,
        name=name,
        description="",
        description_origin="none",
        kind="node",
        granularity="tool",
        group_id=entry.name,
        auth_required="unknown",
        deprecated=NOT_DEPRECATED,
        provenance=provenance(entry, path),
        **shared,
    )
    return candidate(record, "not_evaluated", why)
