"""Operations of n8n nodes: the pairs a node offers, and each as a tool with the inputs shown for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ecoagent.crawlers.n8n_auth import JSON, dicts, text
from ecoagent.crawlers.n8n_schema import SchemaMaker, names_of_properties
from ecoagent.crawlers.pyschema import schema_text
from ecoagent.schema import Candidate, Operation, fold_space


def version_of(node: JSON) -> float:
    """Highest version a description stands for."""
    versions = node.get("version", 1)
    numbers = [float(v) for v in (versions if isinstance(versions, list) else [versions]) if _number(v)]
    return max(numbers, default=1.0)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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


class Shown:
    """Which properties a node shows once its resource, operation and version are chosen.

    Args:
        node: the description.
        resource: resource chosen; ``None`` where the operation is not bound to one.
        operation: operation chosen.
    """

    def __init__(self, node: JSON, resource: str | None, operation: str) -> None:
        self._known: dict[str, object] = {"operation": operation, "@version": version_of(node)}
        if resource is not None:
            self._known["resource"] = resource

    def __call__(self, prop: JSON, depth: int) -> bool | None:
        """True: always shown. False: never. None: it depends on other inputs."""
        options = prop.get("displayOptions")
        if not isinstance(options, dict):
            return True
        show, hide = options.get("show"), options.get("hide")
        verdicts: list[bool | None] = []
        for key, values in show.items() if isinstance(show, dict) else ():
            verdicts.append(self._holds(key, values, depth))
        for key, values in hide.items() if isinstance(hide, dict) else ():
            held = self._holds(key, values, depth)
            verdicts.append(None if held is None else not held)
        if False in verdicts:
            return False
        return None if None in verdicts else True

    def _holds(self, key: str, values: object, depth: int) -> bool | None:
        # Inside a collection a plain key is a sibling's, one with a slash the node's.
        name = key.removeprefix("/") if depth == 0 or key.startswith("/") else None
        if key == "@version":
            name = key
        if name not in self._known or not isinstance(values, list):
            return None
        verdicts = [_matches(v, self._known[str(name)]) for v in values]
        if True in verdicts:
            return True
        return None if None in verdicts else False


def _matches(wanted: object, actual: object) -> bool | None:
    """Whether a value of ``displayOptions`` matches; None for conditions not known here."""
    condition = wanted.get("_cnd") if isinstance(wanted, dict) else None
    if isinstance(condition, dict):
        verdicts = [_condition(k, v, actual) for k, v in condition.items()]
        return None if None in verdicts else all(verdicts)
    return _equal(wanted, actual)


def _equal(wanted: object, actual: object) -> bool:
    if _number(wanted) and _number(actual):
        return float(str(wanted)) == float(str(actual))
    return str(wanted) == str(actual)


def _condition(name: str, wanted: Any, actual: Any) -> bool | None:
    if name in ("eq", "not"):
        return _equal(wanted, actual) == (name == "eq")
    if not (_number(wanted) and _number(actual)):
        return None
    return {
        "gte": actual >= wanted,
        "lte": actual <= wanted,
        "gt": actual > wanted,
        "lt": actual < wanted,
    }.get(name)


def shown_properties(node: JSON, shown: Shown, fixed: frozenset[str]) -> list[JSON]:
    """Properties that an operation may show, those whose value it fixes left out.

    A property that depends on another one that is never shown is never shown either.
    """
    left = [p for p in dicts(node.get("properties")) if shown(p, 0) is not False]
    while True:
        names = {text(p.get("name")) for p in left}
        kept = [p for p in left if _can_show(p, names)]
        if len(kept) == len(left):
            return [p for p in kept if text(p.get("name")) not in fixed]
        left = kept


def _can_show(prop: JSON, names: set[str]) -> bool:
    options = prop.get("displayOptions")
    show = options.get("show") if isinstance(options, dict) else None
    keys = [k.removeprefix("/") for k in show] if isinstance(show, dict) else []
    return all(k.startswith("@") or "." in k or k in names or k in ("resource", "operation") for k in keys)


def split_operations(whole: Candidate, node: JSON | None = None) -> list[Candidate]:
    """One candidate per operation of a node; the node itself where it has none.

    A repeated pair gets ``~2``, ``~3`` in file order. An operation without words of its own is
    described by the label n8n shows for it; nothing is added to that.

    Args:
        whole: candidate of the node.
        node: its description: with it an operation has the inputs shown for it, without it the
            node's. Resource and operation are what the tool is, not inputs of it.
    """
    record = whole.record
    if not record.operations:
        return [
            Candidate(**{**dict(whole), "record": record.model_copy(update={"granularity": "operation"})})
        ]
    maker = SchemaMaker()
    seen: dict[str, int] = {}
    found: list[Candidate] = []
    for operation in record.operations:
        pair = f"{operation.resource}.{operation.operation}" if operation.resource else operation.operation
        seen[pair] = seen.get(pair, 0) + 1
        suffix = "" if seen[pair] == 1 else f"~{seen[pair]}"
        update = {
            "id": f"{record.id}/{pair}{suffix}",
            "name": f"{record.name}/{pair}",
            "display_name": operation.name,
            "description": operation.description or operation.name,
            "description_origin": "node",
            "kind": "trigger_operation" if record.trigger else "node_operation",
            "granularity": "operation",
            "group_id": record.id,
            "group_name": record.display_name,
            "operations": [],
            **(_inputs(node, operation, maker) if node is not None and record.input_schema else {}),
        }
        made = record.model_copy(update=update)
        found.append(Candidate(status=whole.status, reason=whole.reason, detail=whole.detail, record=made))
    return found


def _inputs(node: JSON, operation: Operation, maker: SchemaMaker) -> Mapping[str, Any]:
    shown = Shown(node, operation.resource, operation.operation)
    fixed = frozenset({"operation"} if operation.resource is None else {"operation", "resource"})
    listed = shown_properties(node, shown, fixed)
    return {
        "input_schema": schema_text(maker.schema(listed, shown)),
        "parameter_names": names_of_properties(listed),
    }
