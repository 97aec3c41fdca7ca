"""n8n node descriptions as records: shared by the official and the community parsers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ecoagent.crawlers.lock import LockEntry
from ecoagent.crawlers.n8n_auth import (
    ELSEWHERE,
    JSON,
    auth_of,
    auth_required,
    dicts,
    text,
    unknown_types,
)
from ecoagent.crawlers.n8n_endpoints import endpoints_of
from ecoagent.crawlers.n8n_operations import operations_of, split_operations, version_of
from ecoagent.crawlers.n8n_schema import parameters_of, properties_schema
from ecoagent.crawlers.pyschema import schema_text
from ecoagent.crawlers.records import candidate, provenance
from ecoagent.schema import Candidate, Deprecation, ToolRecord, fold_space

__all__ = ["JSON", "dicts", "newest", "node_candidate", "split_operations", "text"]

_DEPRECATED = re.compile(
    r"^this\b[^.]{0,60}\b(?:is|are)( now)? deprecated|\. this node is deprecated", re.IGNORECASE
)
_INSTEAD = re.compile(r"use (?:the )?['\"“]?([^.'\"”]+?)['\"”]?(?: node)? instead", re.IGNORECASE)
_TAG = re.compile(r"<[^>]+>")


def newest(nodes: Iterable[JSON]) -> dict[str, JSON]:
    """Node name to the entry of its highest version; the first of equals stays."""
    found: dict[str, JSON] = {}
    for node in nodes:
        name = str(node.get("name", ""))
        if name not in found or version_of(node) > version_of(found[name]):
            found[name] = node
    return found


def deprecation_of(node: JSON) -> Deprecation:
    """Deprecation by the description itself or by a notice that always shows.

    An option's or one version's "deprecated" is not the node's.
    """
    description = text(node.get("description"))
    if description.lower().startswith("deprecated"):
        return Deprecation(state=True, reason=fold_space(description), replacement=_instead(description))
    for prop in dicts(node.get("properties")):
        if prop.get("type") != "notice" or prop.get("displayOptions"):
            continue
        notice = fold_space(_TAG.sub("", text(prop.get("displayName"))))
        if _DEPRECATED.search(notice):
            return Deprecation(state=True, reason=notice, replacement=_instead(notice))
    return Deprecation(state=False)


def _instead(notice: str) -> str | None:
    found = _INSTEAD.search(notice)
    return found.group(1).strip() if found else None


def tags_of(node: JSON) -> list[str]:
    """Codex categories, subcategories and aliases, sorted."""
    codex = node.get("codex")
    if not isinstance(codex, dict):
        return []
    found = {text(t) for k in ("categories", "alias") for t in codex.get(k) or []}
    subcategories = codex.get("subcategories")
    for values in subcategories.values() if isinstance(subcategories, dict) else []:
        found |= {text(t) for t in values} if isinstance(values, list) else set()
    return sorted(found - {""})


def docs_of(node: JSON) -> str | None:
    """Documentation page by the node or its codex."""
    codex = node.get("codex")
    resources = codex.get("resources") if isinstance(codex, dict) else None
    pages = dicts(resources.get("primaryDocumentation")) if isinstance(resources, dict) else []
    url = text(node.get("documentationUrl")) or next((text(p.get("url")) for p in pages), "")
    return url if url.startswith("http") else None


def node_candidate(
    node: JSON,
    entry: LockEntry,
    *,
    types: Mapping[str, JSON],
    path: str,
    literals: Iterable[str] = (),
    shared: Mapping[str, Any],
) -> Candidate:
    """The candidate of one node description.

    Args:
        node: the description.
        entry: its artifact.
        types: credential types by name.
        path: member it was read from.
        literals: addresses in its code; not looked at where better is known.
        shared: further facts of the record.

    Rejected: ``hidden``, ``deprecated``, ``no_description``.
    """
    # Releases before 2025 write the package into the name.
    name = text(node.get("name")).removeprefix(f"{entry.name}.")
    shown = fold_space(text(node.get("displayName")))
    description = fold_space(text(node.get("description")))
    groups = [str(g) for g in node.get("group") or []]
    trigger = "trigger" in groups
    hidden = node.get("hidden") is True
    version, default = version_of(node), node.get("defaultVersion")
    schema = properties_schema(node)
    flags = []
    if isinstance(default, int | float) and float(default) != version:
        flags.append(f"default_version_{default:g}")
    if unknown_types(node, types):
        flags.append(ELSEWHERE)
    record = ToolRecord(
        id=f"n8n:{entry.name}.{name}",
        source=entry.source,
        name=name,
        display_name=shown or None,
        description=description,
        description_origin="node" if description else "none",
        kind="trigger" if trigger else "node",
        granularity="tool",
        group_id=entry.name,
        version=f"{version:g}",
        auth=auth_of(node, types),
        auth_required=auth_required(node),
        endpoints=endpoints_of(node, types, literals),
        tags=tags_of(node),
        deprecated=deprecation_of(node),
        provenance=provenance(entry, path),
        parameter_names=parameters_of(node),
        input_schema=schema_text(schema),
        schema_origin="properties",
        operations=operations_of(node),
        docs_url=docs_of(node),
        usable_as_tool=bool(node.get("usableAsTool")),
        trigger=trigger,
        hidden=hidden,
        quality_flags=sorted(flags),
        **shared,
    )
    if hidden:
        return candidate(record, "hidden", "n8n does not list it")
    if record.deprecated.state:
        return candidate(record, "deprecated", record.deprecated.reason)
    if not description:
        return candidate(record, "no_description", "the node has no description")
    return candidate(record)
