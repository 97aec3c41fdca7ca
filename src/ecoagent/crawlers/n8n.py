"""n8n node descriptions as records: shared by the official and the community parsers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ecoagent.crawlers.lock import LockEntry
from ecoagent.crawlers.n8n_schema import parameters_of, properties_schema
from ecoagent.crawlers.pyschema import schema_text
from ecoagent.crawlers.records import candidate, provenance
from ecoagent.schema import (
    Auth,
    AuthField,
    Candidate,
    Deprecation,
    Endpoint,
    Operation,
    ToolRecord,
    fold_space,
)

JSON = Mapping[str, Any]
_DEPRECATED = re.compile(
    r"^this\b[^.]{0,60}\b(?:is|are)( now)? deprecated|\. this node is deprecated", re.IGNORECASE
)
_INSTEAD = re.compile(r"use (?:the )?['\"“]?([^.'\"”]+?)['\"”]?(?: node)? instead", re.IGNORECASE)
_TAG = re.compile(r"<[^>]+>")
_URL = re.compile(r"https?://[^\s'\"`<>\\]+")
_CREDENTIAL_FIELD = re.compile(r"\$credentials\??(?:\.(\w+)|\[['\"](\w+)['\"]\])")
_NOT_CALLED = re.compile(
    r"^https?://(docs?\.|developers?\.|github\.com|help\.|support\.|example\.|localhost|127\.|"
    r"community\.n8n|n8n\.io|.*\.n8n\.io|.*w3\.org|.*schema|(my|your)[-.])|/docs?/|/documentation",
    re.IGNORECASE,
)


def version_of(node: JSON) -> float:
    """Highest version a description stands for."""
    versions = node.get("version", 1)
    numbers = [float(v) for v in (versions if isinstance(versions, list) else [versions]) if _number(v)]
    return max(numbers, default=1.0)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def newest(nodes: Iterable[JSON]) -> dict[str, JSON]:
    """Node name to the entry of its highest version; the first of equals stays."""
    found: dict[str, JSON] = {}
    for node in nodes:
        name = str(node.get("name", ""))
        if name not in found or version_of(node) > version_of(found[name]):
            found[name] = node
    return found


def dicts(value: object) -> list[JSON]:
    """The mappings of a list; nothing for anything else."""
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def text(value: object) -> str:
    """``value`` stripped, if it is text."""
    return value.strip() if isinstance(value, str) else ""


def operations_of(node: JSON) -> list[Operation]:
    """Resource/operation pairs in file order, repeats included."""
    labels = {
        str(o.get("value")): text(o.get("name"))
        for p in dicts(node.get("properties"))
        if p.get("name") == "resource"
        for o in dicts(p.get("options"))
    }
    found: list[Operation] = []
    for prop in dicts(node.get("properties")):
        if prop.get("name") != "operation" or prop.get("type") != "options":
            continue
        for resource in _shown_for(prop):
            for option in dicts(prop.get("options")):
                if "value" not in option:
                    continue
                action = text(option.get("action"))
                label = action or " ".join(
                    x for x in (text(option.get("name")), labels.get(str(resource), "")) if x
                )
                found.append(
                    Operation(
                        resource=resource,
                        operation=str(option["value"]),
                        name=label or str(option["value"]),
                        description=fold_space(text(option.get("description"))),
                    )
                )
    return found


def _shown_for(prop: JSON) -> list[str | None]:
    options = prop.get("displayOptions")
    show = options.get("show") if isinstance(options, dict) else None
    resources = show.get("resource") if isinstance(show, dict) else None
    return [str(r) for r in resources] if isinstance(resources, list) else [None]


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


def lineage(name: str, types: Mapping[str, JSON]) -> list[JSON]:
    """A credential type and all it extends, each once."""
    found: list[JSON] = []
    queue, seen = [name], set()
    while queue:
        current = queue.pop(0)
        if current in seen or current not in types:
            continue
        seen.add(current)
        found.append(types[current])
        queue += [e for e in types[current].get("extends") or [] if isinstance(e, str)]
    return found


def _auth_type(name: str, kinds: list[JSON], fields: list[AuthField]) -> str:
    names = (
        {str(k.get("name", "")) for k in kinds} | {e for k in kinds for e in k.get("extends") or []} | {name}
    )
    for wanted, label in (("oauth2", "oauth2"), ("oauth1", "oauth1"), ("basicauth", "basic")):
        if any(wanted in str(n).lower().replace("_", "") for n in names):
            return label
    return "api_key" if any(f.secret for f in fields) else "credential"


def auth_of(node: JSON, types: Mapping[str, JSON]) -> list[Auth]:
    """Auth entries of a node's credentials, fields taken from the types and what they extend."""
    found: dict[str, Auth] = {}
    for item in dicts(node.get("credentials")):
        name = text(item.get("name"))
        if not name or name in found:
            continue
        kinds = lineage(name, types)
        fields: dict[str, AuthField] = {}
        for kind in kinds:
            for prop in dicts(kind.get("properties")):
                label = text(prop.get("name"))
                if not label or label in fields or prop.get("type") in ("hidden", "notice"):
                    continue
                options = prop.get("typeOptions")
                secret = bool(isinstance(options, dict) and options.get("password"))
                fields[label] = AuthField(name=label, secret=secret, required=prop.get("required") is True)
        listed = list(fields.values())
        required = item.get("required")
        found[name] = Auth(
            type=_auth_type(name, kinds, listed),
            name=name,
            fields=listed,
            required=required if isinstance(required, bool) else None,
            origin="extends" if len(kinds) > 1 else "credentials",
        )
    return [found[n] for n in sorted(found)]


def auth_required(node: JSON) -> Any:
    """yes if a credential is required, no if none is declared, else unknown."""
    listed = dicts(node.get("credentials"))
    if not listed:
        return "no"
    return "yes" if any(c.get("required") is True for c in listed) else "unknown"


def endpoints_of(node: JSON, types: Mapping[str, JSON], literals: Iterable[str]) -> list[Endpoint]:
    """First link of the chain that holds: request defaults, credential test, URL literals in code."""
    defaults = node.get("requestDefaults")
    base = text(defaults.get("baseURL")) if isinstance(defaults, dict) else ""
    if base:
        kinds = [k for c in dicts(node.get("credentials")) for k in lineage(text(c.get("name")), types)]
        return _with_default(base, "request_defaults", kinds)
    found: dict[str, Endpoint] = {}
    for item in dicts(node.get("credentials")):
        kinds = lineage(text(item.get("name")), types)
        for kind in kinds:
            test = kind.get("test")
            request = test.get("request") if isinstance(test, dict) else None
            if not isinstance(request, dict):
                continue
            base = text(request.get("baseURL")) or text(request.get("url"))
            for endpoint in _with_default(base, "credential_test", kinds) if base else []:
                found.setdefault(endpoint.url, endpoint)
    if found:
        return list(found.values())
    urls = [u for u in dict.fromkeys(literals) if not _NOT_CALLED.search(u)]
    return [Endpoint(url=u, origin="literal", is_template="${" in u or "{{" in u) for u in urls[:20]]


def _with_default(base: str, origin: str, kinds: list[JSON]) -> list[Endpoint]:
    """The address as written and, where it is a credential's field, that field's default."""
    template = "{{" in base or base.startswith("=")
    found = [Endpoint(url=base, origin=origin, is_template=template)]
    match = _CREDENTIAL_FIELD.search(base) if template and not _URL.search(base) else None
    for kind in kinds if match else []:
        for prop in dicts(kind.get("properties")):
            if match and prop.get("name") in match.groups() and _URL.match(text(prop.get("default"))):
                default = Endpoint(url=text(prop["default"]), origin="credential_default", is_template=False)
                return [*found, default]
    return found


def url_literals(source: str) -> list[str]:
    """Addresses in JavaScript text."""
    return [u.rstrip(".,;:)]}") for u in _URL.findall(source)]


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

    Rejected: ``hidden``, ``deprecated``, ``no_description``.
    """
    name, shown = text(node.get("name")), fold_space(text(node.get("displayName")))
    description = fold_space(text(node.get("description")))
    groups = [str(g) for g in node.get("group") or []]
    trigger = "trigger" in groups
    hidden = node.get("hidden") is True
    version, default = version_of(node), node.get("defaultVersion")
    schema = properties_schema(node)
    flags = []
    if isinstance(default, int | float) and float(default) != version:
        flags.append(f"default_version_{default:g}")
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
        quality_flags=flags,
        **shared,
    )
    if hidden:
        return candidate(record, "hidden", "n8n does not list it")
    if record.deprecated.state:
        return candidate(record, "deprecated", record.deprecated.reason)
    if not description:
        return candidate(record, "no_description", "the node has no description")
    return candidate(record)


def split_operations(whole: Candidate) -> list[Candidate]:
    """One candidate per operation of a node; the node itself where it has none.

    A repeated pair gets ``~2``, ``~3`` in file order. An operation without words of its own is
    described by the label n8n shows for it; nothing is added to that.
    """
    node = whole.record
    if not node.operations:
        return [Candidate(**{**dict(whole), "record": node.model_copy(update={"granularity": "operation"})})]
    seen: dict[str, int] = {}
    found: list[Candidate] = []
    for operation in node.operations:
        pair = f"{operation.resource}.{operation.operation}" if operation.resource else operation.operation
        seen[pair] = seen.get(pair, 0) + 1
        suffix = "" if seen[pair] == 1 else f"~{seen[pair]}"
        record = node.model_copy(
            update={
                "id": f"{node.id}/{pair}{suffix}",
                "name": f"{node.name}/{pair}",
                "display_name": operation.name,
                "description": operation.description or operation.name,
                "description_origin": "node",
                "kind": "trigger_operation" if node.trigger else "node_operation",
                "granularity": "operation",
                "group_id": node.id,
                "group_name": node.display_name,
                "operations": [],
            }
        )
        found.append(Candidate(status=whole.status, reason=whole.reason, detail=whole.detail, record=record))
    return found
