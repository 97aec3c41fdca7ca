"""JSON Schemas of tool inputs, read from annotations, pydantic models and signatures."""

from __future__ import annotations

import ast
import json
from typing import Any

from ecoagent.crawlers.pyast import FunctionNode, PyClass, PyModule, PyPackage, dotted
from ecoagent.crawlers.pyeval import UNKNOWN, Evaluator

_SIMPLE: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "dict": {"type": "object"},
    "list": {"type": "array"},
    "tuple": {"type": "array"},
    "set": {"type": "array", "uniqueItems": True},
    "bytes": {"type": "string"},
    "None": {"type": "null"},
    "Any": {},
    "Dict": {"type": "object"},
    "Mapping": {"type": "object"},
    "List": {"type": "array"},
    "Sequence": {"type": "array"},
    "Tuple": {"type": "array"},
    "Set": {"type": "array", "uniqueItems": True},
    "date": {"type": "string", "format": "date"},
    "datetime": {"type": "string", "format": "date-time"},
    "AnyUrl": {"type": "string", "format": "uri"},
    "HttpUrl": {"type": "string", "format": "uri"},
    "Path": {"type": "string", "format": "path"},
    "FilePath": {"type": "string", "format": "path"},
}
_ARRAYS = frozenset({"list", "List", "Sequence", "Iterable", "set", "Set", "tuple", "Tuple"})
_DEPTH = 5
INJECTED = frozenset({"self", "cls", "run_manager", "callbacks"})
"""Parameters that the framework fills in."""


class SchemaReader:
    """Reads input schemas of one package."""

    def __init__(self, package: PyPackage, evaluator: Evaluator) -> None:
        self.package, self.evaluator = package, evaluator

    def annotation(self, module: PyModule, node: ast.expr | None, depth: int = 0) -> dict[str, Any]:
        """JSON Schema of an annotation; ``{}`` where nothing can be told."""
        if node is None or depth > _DEPTH:
            return {}
        if isinstance(node, ast.Constant):
            if node.value is None:
                return {"type": "null"}
            if isinstance(node.value, str):
                try:
                    return self.annotation(module, ast.parse(node.value, mode="eval").body, depth + 1)
                except (SyntaxError, ValueError):
                    return {}
            return {}
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return _any_of(
                [self.annotation(module, node.left, depth), self.annotation(module, node.right, depth)]
            )
        if isinstance(node, ast.Subscript):
            return self._subscript(module, node, depth)
        name = dotted(node).rpartition(".")[2]
        if name in _SIMPLE:
            return dict(_SIMPLE[name])
        return self._named(module, node, depth)

    def _subscript(self, module: PyModule, node: ast.Subscript, depth: int) -> dict[str, Any]:
        outer = dotted(node.value).rpartition(".")[2]
        parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if outer == "Optional":
            return _any_of([self.annotation(module, parts[0], depth + 1), {"type": "null"}])
        if outer == "Union":
            return _any_of([self.annotation(module, p, depth + 1) for p in parts])
        if outer == "Literal":
            values = [self.evaluator.value(module, p) for p in parts]
            return {"enum": [v for v in values if isinstance(v, str | int | float | bool) or v is None]}
        if outer in ("Annotated", "Required", "NotRequired", "ClassVar", "Final"):
            return self.annotation(module, parts[0], depth + 1)
        if outer in _ARRAYS:
            items = self.annotation(module, parts[0], depth + 1)
            return {"type": "array", "items": items} if items else {"type": "array"}
        return dict(_SIMPLE.get(outer, {}))

    def _named(self, module: PyModule, node: ast.expr, depth: int) -> dict[str, Any]:
        target = self.package.resolve(module, dotted(node))
        if isinstance(target, tuple):
            return self.annotation(target[0], target[1], depth + 1)
        if not isinstance(target, PyClass):
            return {}
        outer = {b.rpartition(".")[2] for b in self.package.outer_bases(target)}
        if outer & {"Enum", "StrEnum", "IntEnum"}:
            values = [self.evaluator.value(target.module, v) for _, v in target.fields.values()]
            return {"enum": [v for v in values if isinstance(v, str | int | float)]}
        if outer & {"BaseModel", "TypedDict"}:
            return self.model(target, depth + 1)
        return {}

    def model(self, cls: PyClass, depth: int = 0) -> dict[str, Any]:
        """JSON Schema of a pydantic model or typed dictionary."""
        fields: dict[str, tuple[PyClass, ast.expr | None, ast.expr | None]] = {}
        for owner in reversed(self.package.mro(cls)):
            for name, (annotation, value) in owner.fields.items():
                if annotation is None and name not in fields:
                    continue
                if name.startswith("_") or name == "model_config" or _is_class_var(annotation):
                    continue
                fields[name] = (owner, annotation if annotation is not None else fields[name][1], value)
        properties: dict[str, Any] = {}
        required: list[str] = []
        for name, (owner, annotation, value) in fields.items():
            spec = self.evaluator.field_spec(owner, annotation, value)
            entry = self.annotation(owner.module, annotation, depth + 1)
            if spec.description:
                entry["description"] = spec.description
            if spec.required:
                required.append(name)
            elif spec.default is not UNKNOWN and _plain(spec.default):
                entry["default"] = spec.default
            properties[name] = entry
        return _object(properties, required)

    def signature(self, module: PyModule, function: FunctionNode) -> dict[str, Any]:
        """JSON Schema of a function's parameters, without those the framework fills in."""
        properties: dict[str, Any] = {}
        required: list[str] = []
        positional = [*function.args.posonlyargs, *function.args.args]
        defaults: list[ast.expr | None] = [None] * (len(positional) - len(function.args.defaults))
        defaults += function.args.defaults
        pairs = list(zip(positional, defaults, strict=True))
        pairs += list(zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True))
        for argument, default in pairs:
            if argument.arg in INJECTED:
                continue
            entry = self.annotation(module, argument.annotation)
            if default is None:
                required.append(argument.arg)
            else:
                found = self.evaluator.value(module, default)
                if found is not UNKNOWN and _plain(found):
                    entry["default"] = found
            properties[argument.arg] = entry
        return _object(properties, required)


def takes(function: FunctionNode, schema: dict[str, Any]) -> bool:
    """Whether a function can be called with the inputs a schema declares.

    It cannot if it lacks a parameter that the schema has, or needs one that the schema lacks.
    Positional catch-alls are taken to accept anything: how they are filled is not in the signature.
    """
    arguments = function.args
    positional = [a.arg for a in [*arguments.posonlyargs, *arguments.args]]
    named = [*positional, *(a.arg for a in arguments.kwonlyargs)]
    optional = set(positional[len(positional) - len(arguments.defaults) :] if arguments.defaults else [])
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    optional |= {a.arg for a, default in pairs if default is not None}
    declared = set(schema.get("properties", {}))
    if arguments.vararg is not None:
        return True
    lacking = set() if arguments.kwarg is not None else declared - set(named)
    needed = set(named) - optional - declared - INJECTED
    return not lacking and not needed


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return schema


def _any_of(options: list[dict[str, Any]]) -> dict[str, Any]:
    flat: list[dict[str, Any]] = []
    for option in options:
        flat += option["anyOf"] if set(option) == {"anyOf"} else [option]
    if {} in flat:
        return {}
    unique = [o for i, o in enumerate(flat) if o not in flat[:i]]
    return unique[0] if len(unique) == 1 else {"anyOf": unique}


def _is_class_var(annotation: ast.expr | None) -> bool:
    plain = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return dotted(plain).rpartition(".")[2] == "ClassVar"


def _plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(_plain(v) for v in value)
    if isinstance(value, dict):
        return all(isinstance(k, str) and _plain(v) for k, v in value.items())
    return value is None or isinstance(value, str | int | float | bool)


def schema_text(schema: dict[str, Any] | None) -> str | None:
    """The schema as JSON text in a fixed form; ``None`` stays ``None``."""
    return None if schema is None else json.dumps(schema, sort_keys=True, ensure_ascii=False)


def names_of(schema: dict[str, Any] | None) -> list[str]:
    """Names of a schema's properties, sorted."""
    return sorted((schema or {}).get("properties", {}))
