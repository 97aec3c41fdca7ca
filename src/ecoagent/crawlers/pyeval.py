"""Values of constant Python expressions, worked out without running them."""

from __future__ import annotations

import ast
import inspect
import re
import string
import textwrap
from dataclasses import dataclass
from typing import cast

from ecoagent.crawlers.pyast import PyClass, PyModule, PyPackage, dotted


class Unknown:
    """The value cannot be told without running code."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        return False


UNKNOWN = Unknown()
REQUIRED = Unknown()
"""Default of a field that has none (``Field(...)``)."""

FIELD_CALLS = frozenset({"Field", "PrivateAttr", "FieldInfo"})
_TEXT_METHODS = frozenset(
    {"strip", "lstrip", "rstrip", "lower", "upper", "format", "replace", "join", "title"}
)
_SPEC = re.compile(r"[a-z,]?|\.\d{1,2}[fge]")
_DEPTH = 100
_STEPS = 20_000
"""Expressions looked at for one value: code written to explode is given up on."""
_MAX_TEXT = 1_000_000


@dataclass(frozen=True)
class FieldSpec:
    """A class-level field: its default and what ``Field(...)`` says of it."""

    default: object
    description: str | None
    required: bool
    excluded: bool = False


class Evaluator:
    """Evaluates constant expressions of one package."""

    def __init__(self, package: PyPackage) -> None:
        self.package = package
        self._bound: list[dict[str, object]] = []
        self._inlined: list[ast.FunctionDef] = []
        self._steps = 0

    def value(self, module: PyModule, node: ast.expr | None, depth: int = 0) -> object:
        """Value of ``node``, or ``UNKNOWN``.

        Handles literals, concatenation, f-strings of constants, names and attributes of the
        package, ``dedent``/``cleandoc``, a few methods of text, and calls of package functions
        that consist of one ``return`` of such an expression.
        """
        if depth == 0 and not self._inlined:
            self._steps = 0
        self._steps += 1
        if node is None or depth > _DEPTH or self._steps > _STEPS:
            return UNKNOWN
        nxt = depth + 1
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.JoinedStr):
            return self._join(module, node, nxt)
        if isinstance(node, ast.BinOp):
            return self._binary(module, node, nxt)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            items = [self.value(module, e, nxt) for e in node.elts]
            return tuple(items) if isinstance(node, ast.Tuple) else items
        if isinstance(node, ast.Dict):
            keys = [self.value(module, k, nxt) for k in node.keys]
            if any(not isinstance(k, str | int) for k in keys):
                return UNKNOWN
            return {k: self.value(module, v, nxt) for k, v in zip(keys, node.values, strict=True)}
        if isinstance(node, ast.Call):
            return self._call(module, node, nxt)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.value(module, node.operand, nxt)
            return -inner if isinstance(inner, int | float) else UNKNOWN
        if isinstance(node, ast.IfExp):
            chosen = self._compare(module, node.test, nxt)
            return (
                UNKNOWN if chosen is None else self.value(module, node.body if chosen else node.orelse, nxt)
            )
        if isinstance(node, ast.Name | ast.Attribute):
            return self._name(module, node, nxt)
        return UNKNOWN

    def _compare(self, module: PyModule, node: ast.expr, depth: int) -> bool | None:
        """Truth of one comparison of constants; ``None`` where it cannot be told."""
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            return None
        left, right = self.value(module, node.left, depth), self.value(module, node.comparators[0], depth)
        if left is UNKNOWN or right is UNKNOWN:
            return None
        if isinstance(node.ops[0], ast.Eq):
            return left == right
        return left != right if isinstance(node.ops[0], ast.NotEq) else None

    def text(self, module: PyModule, node: ast.expr | None) -> str | None:
        """Value of ``node`` if it is text."""
        found = self.value(module, node)
        return found if isinstance(found, str) else None

    def _name(self, module: PyModule, node: ast.expr, depth: int) -> object:
        if isinstance(node, ast.Name) and self._bound and node.id in self._bound[-1]:
            return self._bound[-1][node.id]
        found = self.package.resolve(module, dotted(node))
        if isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], PyModule):
            return self.value(found[0], found[1], depth)
        if isinstance(node, ast.Attribute) and node.attr == "__doc__":
            owner = self.package.resolve(module, dotted(node.value))
            return owner.doc if isinstance(owner, PyClass) else UNKNOWN
        if isinstance(node, ast.Attribute) and node.attr in ("value", "name"):
            # Members of enumerations: Enum.MEMBER.value is the constant behind MEMBER.
            member = self.package.resolve(module, dotted(node.value))
            if isinstance(member, tuple):
                return self.value(member[0], member[1], depth) if node.attr == "value" else node.attr
        return UNKNOWN

    def _join(self, module: PyModule, node: ast.JoinedStr, depth: int) -> object:
        parts: list[str] = []
        for item in node.values:
            inner = item.value if isinstance(item, ast.FormattedValue) else item
            found = self.value(module, inner, depth)
            if not isinstance(found, str | int | float):
                return UNKNOWN
            if not isinstance(item, ast.FormattedValue):
                parts.append(str(found))
                continue
            spec = self.value(module, item.format_spec, depth) if item.format_spec is not None else ""
            if item.conversion != -1 or not isinstance(spec, str) or not _SPEC.fullmatch(spec):
                return UNKNOWN
            try:
                parts.append(format(found, spec))
            except ValueError:
                return UNKNOWN
        return "".join(parts)

    def constant_part(self, module: PyModule, node: ast.expr | None) -> str | None:
        """An f-string with what only running code could fill in left out."""
        if not isinstance(node, ast.JoinedStr):
            return None
        parts = [self.value(module, v.value if isinstance(v, ast.FormattedValue) else v) for v in node.values]
        return "".join(str(p) for p in parts if isinstance(p, str | int | float)) or None

    def _binary(self, module: PyModule, node: ast.BinOp, depth: int) -> object:
        left, right = self.value(module, node.left, depth), self.value(module, node.right, depth)
        if isinstance(node.op, ast.Add):
            if isinstance(left, str) and isinstance(right, str) and len(left) + len(right) <= _MAX_TEXT:
                return left + right
            if isinstance(left, list) and isinstance(right, list):
                return left + right
            if isinstance(left, int | float) and isinstance(right, int | float):
                return left + right
        if isinstance(node.op, ast.Mult) and isinstance(left, int | float) and isinstance(right, int | float):
            return left * right
        return UNKNOWN

    def _call(self, module: PyModule, node: ast.Call, depth: int) -> object:
        called = dotted(node.func)
        last = called.rpartition(".")[2]
        if last in FIELD_CALLS:
            return self.field_call(module, node).default
        if last in ("dedent", "cleandoc") and len(node.args) == 1:
            inner = self.value(module, node.args[0], depth)
            if not isinstance(inner, str):
                return UNKNOWN
            return textwrap.dedent(inner) if last == "dedent" else inspect.cleandoc(inner)
        if last == "getdoc" and len(node.args) == 1:
            owner = self.package.find_class(module, node.args[0])
            return owner.doc if owner else UNKNOWN
        if called in ("list", "dict", "tuple") and not node.args and not node.keywords:
            return {} if called == "dict" else []
        if isinstance(node.func, ast.Attribute) and node.func.attr in _TEXT_METHODS:
            return self._text_method(module, node, node.func, depth)
        target = self.package.resolve(module, called) if called else None
        if isinstance(target, ast.FunctionDef):
            return self._inline(module, target, node, depth)
        return UNKNOWN

    def _inline(self, module: PyModule, function: ast.FunctionDef, call: ast.Call, depth: int) -> object:
        """Value of a package function whose body is one ``return``; functions of one module only."""
        body = [
            s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        ]
        args = function.args
        if (
            len(body) != 1
            or not isinstance(body[0], ast.Return)
            or args.vararg
            or args.kwarg
            or args.kwonlyargs
        ):
            return UNKNOWN
        if function is not module.functions.get(function.name) or len(call.args) > len(args.args):
            return UNKNOWN
        if function in self._inlined:
            return UNKNOWN
        names = [a.arg for a in args.args]
        bound: dict[str, object] = dict.fromkeys(names, UNKNOWN)
        for name, default in zip(names[len(names) - len(args.defaults) :], args.defaults, strict=True):
            bound[name] = self.value(module, default, depth)
        bound.update({n: self.value(module, a, depth) for n, a in zip(names, call.args, strict=False)})
        bound.update({k.arg: self.value(module, k.value, depth) for k in call.keywords if k.arg in bound})
        self._bound.append(bound)
        self._inlined.append(function)
        try:
            return self.value(module, body[0].value, depth)
        finally:
            self._bound.pop()
            self._inlined.pop()

    def _text_method(self, module: PyModule, node: ast.Call, func: ast.Attribute, depth: int) -> object:
        owner = self.value(module, func.value, depth)
        args = [self.value(module, a, depth) for a in node.args]
        named = {k.arg: self.value(module, k.value, depth) for k in node.keywords if k.arg}
        if not isinstance(owner, str) or any(a is UNKNOWN for a in [*args, *named.values()]):
            return UNKNOWN
        if func.attr == "join":
            words = [str(w) for w in args[0]] if args and isinstance(args[0], list | tuple) else None
            if words is None or not all(isinstance(w, str) for w in cast(list[object], args[0])):
                return UNKNOWN
            size = sum(map(len, words)) + len(owner) * len(words)
            return owner.join(words) if size <= _MAX_TEXT else UNKNOWN
        if not all(isinstance(a, str | int | float) for a in [*args, *named.values()]):
            return UNKNOWN
        if not _bounded(func.attr, owner, args):
            return UNKNOWN
        try:
            result = getattr(owner, func.attr)(*args, **{str(k): v for k, v in named.items()})
        except (TypeError, ValueError, IndexError, KeyError, AttributeError, MemoryError, OverflowError):
            return UNKNOWN
        return result if isinstance(result, str) and len(result) <= _MAX_TEXT else UNKNOWN

    def field_call(self, module: PyModule, node: ast.Call) -> FieldSpec:
        """What a ``Field(...)`` call declares."""
        default: object = REQUIRED
        if node.args:
            ellipsis = isinstance(node.args[0], ast.Constant) and node.args[0].value is ...
            default = REQUIRED if ellipsis else self.value(module, node.args[0])
        description: str | None = None
        excluded = False
        for keyword in node.keywords:
            if keyword.arg == "default":
                ellipsis = isinstance(keyword.value, ast.Constant) and keyword.value.value is ...
                default = REQUIRED if ellipsis else self.value(module, keyword.value)
            elif keyword.arg == "default_factory":
                default = self._factory(module, keyword.value)
            elif keyword.arg == "description":
                description = self.text(module, keyword.value)
            elif keyword.arg == "exclude":
                excluded = self.value(module, keyword.value) is True
        return FieldSpec(default, description, required=default is REQUIRED, excluded=excluded)

    def _factory(self, module: PyModule, node: ast.expr) -> object:
        if isinstance(node, ast.Lambda):
            return self.value(module, node.body)
        if isinstance(node, ast.Name) and node.id in ("list", "dict", "tuple", "set"):
            return {} if node.id == "dict" else []
        return UNKNOWN

    def field_spec(self, owner: PyClass, annotation: ast.expr | None, value: ast.expr | None) -> FieldSpec:
        """Default and description of a class-level field, ``Annotated[..., Field()]`` included."""
        if isinstance(value, ast.Call) and dotted(value.func).rpartition(".")[2] in FIELD_CALLS:
            return self.field_call(owner.module, value)
        described: FieldSpec | None = None
        if isinstance(annotation, ast.Subscript) and dotted(annotation.value).endswith("Annotated"):
            parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else []
            for part in parts[1:]:
                if isinstance(part, ast.Call) and dotted(part.func).rpartition(".")[2] in FIELD_CALLS:
                    described = self.field_call(owner.module, part)
        if value is None:
            return described or FieldSpec(REQUIRED, None, required=True)
        found = self.value(owner.module, value)
        return FieldSpec(found, described.description if described else None, required=False)

    def field_text(self, cls: PyClass, name: str) -> str | None:
        """Text default of a field, following the bases; ``None`` if there is none."""
        found = self.package.field_of(cls, name)
        if found is None:
            return None
        owner, annotation, value = found
        if isinstance(value, ast.Call) and dotted(value.func) == "":
            return self.text(owner.module, value)
        default = self.field_spec(owner, annotation, value).default
        return default if isinstance(default, str) else None


def _bounded(method: str, owner: str, args: list[object]) -> bool:
    """Whether a text method's result stays small and looks at nothing but its arguments."""
    if method == "replace":
        if len(args) != 2 or not isinstance(args[0], str) or not isinstance(args[1], str) or not args[0]:
            return False
        return len(owner) + owner.count(args[0]) * len(args[1]) <= _MAX_TEXT
    if method == "format":
        try:
            fields = [(name or "", spec or "") for _, name, spec, _ in string.Formatter().parse(owner)]
        except ValueError:
            return False
        return all(re.fullmatch(r"\w*", n) and len(s) <= 3 and "{" not in s for n, s in fields)
    return True
