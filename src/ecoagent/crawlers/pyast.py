"""Python source read as data: modules, imports, classes and constants of one wheel.

Nothing here imports or runs the code it reads. Names are followed through imports and re-exports
inside the wheel; whatever lies outside it is known by its dotted name only.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class PyModule:
    """One parsed source file."""

    name: str
    path: str
    tree: ast.Module
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    constants: dict[str, ast.expr] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    functions: dict[str, FunctionNode] = field(default_factory=dict)


@dataclass(frozen=True)
class PyClass:
    """A class and the module it is written in. Equal by place, not by node."""

    module: PyModule = field(compare=False)
    node: ast.ClassDef = field(compare=False)
    id: str = ""

    @cached_property
    def fields(self) -> dict[str, tuple[ast.expr | None, ast.expr | None]]:
        """Class-level names: annotation and default, either may be missing."""
        found: dict[str, tuple[ast.expr | None, ast.expr | None]] = {}
        for item in self.node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                found[item.target.id] = (item.annotation, item.value)
            elif isinstance(item, ast.Assign):
                for target in item.targets:
                    if isinstance(target, ast.Name):
                        found[target.id] = (None, item.value)
        return found

    @cached_property
    def methods(self) -> dict[str, FunctionNode]:
        """Functions written in the class body, properties included."""
        return {n.name: n for n in self.node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}

    @property
    def doc(self) -> str:
        """Docstring, cleaned of its indentation; empty if there is none."""
        return ast.get_docstring(self.node) or ""


class _Modules(Mapping[str, PyModule]):
    """Modules by name, parsed when first asked for: of a large wheel most never are."""

    def __init__(self, files: Mapping[str, bytes], parse: Callable[[str, bytes], PyModule | None]) -> None:
        self._sources = {module_name(p): (p, files[p]) for p in sorted(files)}
        self._parse = parse
        self._parsed: dict[str, PyModule | None] = {}

    def names(self, hint: bytes = b"") -> list[str]:
        """Names in order, of files that contain ``hint``."""
        return [
            n
            for n, (path, source) in sorted(self._sources.items())
            if hint in path.lower().encode() or hint in source.lower()
        ]

    def __getitem__(self, name: str) -> PyModule:
        if name not in self._parsed:
            if name not in self._sources:
                raise KeyError(name)
            self._parsed[name] = self._parse(*self._sources[name])
        found = self._parsed[name]
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return (n for n in self._sources if n in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class PyPackage:
    """All Python modules of one artifact.

    Args:
        files: archive path to source bytes. Files that are not valid Python are listed in
            ``broken`` (path to error text) once they were looked at, and otherwise ignored.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.broken: dict[str, str] = {}
        self._homes: dict[int, PyModule] = {}
        self.modules = _Modules(files, self._parse)

    def _parse(self, path: str, source: bytes) -> PyModule | None:
        try:
            with warnings.catch_warnings():
                # Invalid escapes in crawled text are the package's business, not the user's.
                warnings.simplefilter("ignore", SyntaxWarning)
                warnings.simplefilter("ignore", DeprecationWarning)
                tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            self.broken[path] = f"{type(error).__name__}: {error}"
            return None
        module = PyModule(module_name(path), path, tree)
        _index(module, tree.body, is_package=path.endswith("__init__.py"))
        self._homes |= {id(f): module for f in module.functions.values()}
        return module

    def home_of(self, function: FunctionNode) -> PyModule | None:
        """Module of a top-level function; ``None`` for methods."""
        return self._homes.get(id(function))

    def classes(self, hint: bytes = b"") -> Iterator[PyClass]:
        """Every top-level class, in module and source order.

        Args:
            hint: lower-case text; files that have it neither in their path nor in their source, in
                any case, are passed over unparsed.
        """
        for name in self.modules.names(hint):
            module = self.modules.get(name)
            if module is not None:
                yield from (self._class(module, node) for node in module.classes.values())

    def find_class(self, module: PyModule, expression: ast.expr) -> PyClass | None:
        """The class an expression of ``module`` names, if it lies in this package."""
        found = self.resolve(module, dotted(expression))
        return found if isinstance(found, PyClass) else None

    def resolve(self, module: PyModule, name: str, _seen: frozenset[str] = frozenset()) -> object:
        """What a dotted name means in ``module``.

        Returns:
            ``PyClass``, a function node, a ``(PyModule, expression)`` pair for a constant, a
            ``PyModule``, or the full dotted name as ``str`` where it leaves the package; ``None``
            if the name is unknown.
        """
        key = f"{module.name}:{name}"
        if not name or key in _seen:
            return None
        seen = _seen | {key}
        head, _, rest = name.partition(".")
        if not rest:
            return self._resolve_one(module, head, seen)
        base = self._resolve_one(module, head, seen)
        if isinstance(base, PyModule):
            return self.resolve(base, rest, seen)
        if isinstance(base, PyClass):
            return self._attribute(base, rest)
        if isinstance(base, str):
            return self._global(f"{base}.{rest}", seen)
        return None

    def _attribute(self, owner: PyClass, name: str) -> object:
        for base in self.mro(owner):
            if name in base.fields and base.fields[name][1] is not None:
                return (base.module, base.fields[name][1])
            if name in base.methods:
                return base.methods[name]
            for item in base.node.body:
                if isinstance(item, ast.ClassDef) and item.name == name:
                    return PyClass(base.module, item, f"{base.id}.{name}")
        return None

    def _resolve_one(self, module: PyModule, name: str, seen: frozenset[str]) -> object:
        if name in module.classes:
            return self._class(module, module.classes[name])
        if name in module.functions:
            return module.functions[name]
        if name in module.constants:
            value = module.constants[name]
            if isinstance(value, ast.Name | ast.Attribute):
                target = self.resolve(module, dotted(value), seen)
                if target is not None:
                    return target
            return (module, value)
        if name in module.imports:
            source, attribute = module.imports[name]
            return self._global(source if attribute is None else f"{source}.{attribute}", seen)
        submodule = self.modules.get(f"{module.name}.{name}")
        if submodule is not None:
            return submodule
        for star in module.stars:
            target_module = self.modules.get(star)
            if target_module is not None:
                found = self.resolve(target_module, name, seen)
                if found is not None:
                    return found
        return None

    def _global(self, full: str, seen: frozenset[str]) -> object:
        if full in self.modules:
            return self.modules[full]
        parts = full.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            module = self.modules.get(".".join(parts[:cut]))
            if module is not None:
                found = self.resolve(module, ".".join(parts[cut:]), seen)
                return found if found is not None else full
        return full

    def _class(self, module: PyModule, node: ast.ClassDef) -> PyClass:
        return PyClass(module, node, f"{module.name}.{node.name}")

    def bases(self, cls: PyClass) -> list[PyClass | str]:
        """Direct bases: classes of the package, else dotted names."""
        found: list[PyClass | str] = []
        for expression in cls.node.bases:
            plain = expression.value if isinstance(expression, ast.Subscript) else expression
            name = dotted(plain)
            target = self.resolve(cls.module, name)
            if isinstance(target, PyClass | str):
                found.append(target)
            elif name:
                found.append(name)
        return found

    def mro(self, cls: PyClass) -> list[PyClass]:
        """The class and its bases inside the package, depth first, left to right, each once."""
        order: list[PyClass] = []
        stack = [cls]
        while stack:
            current = stack.pop(0)
            if current in order:
                continue
            order.append(current)
            stack = [b for b in self.bases(current) if isinstance(b, PyClass)] + stack
        return order

    def outer_bases(self, cls: PyClass) -> set[str]:
        """Dotted names of all bases outside the package."""
        return {b for c in self.mro(cls) for b in self.bases(c) if isinstance(b, str)}

    def field_of(self, cls: PyClass, name: str) -> tuple[PyClass, ast.expr | None, ast.expr | None] | None:
        """Owner, annotation and default of a class-level name, following the bases."""
        for owner in self.mro(cls):
            if name in owner.fields:
                return (owner, *owner.fields[name])
        return None

    def method_of(self, cls: PyClass, name: str) -> tuple[PyClass, FunctionNode] | None:
        """Owner and node of a method, following the bases."""
        for owner in self.mro(cls):
            if name in owner.methods:
                return owner, owner.methods[name]
        return None


def module_name(path: str) -> str:
    """Dotted module name of an archive path."""
    parts = path.removesuffix(".py").split("/")
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def dotted(expression: ast.expr | None) -> str:
    """``a.b.c`` of a name or attribute chain; empty for anything else."""
    if isinstance(expression, ast.Name):
        return expression.id
    if isinstance(expression, ast.Attribute):
        head = dotted(expression.value)
        return f"{head}.{expression.attr}" if head else ""
    if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
        text = expression.value.strip()
        return text if all(p.isidentifier() for p in text.split(".")) else ""
    return ""


def _index(module: PyModule, body: list[ast.stmt], *, is_package: bool) -> None:
    for item in body:
        if isinstance(item, ast.ClassDef):
            module.classes[item.name] = item
        elif isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            module.functions[item.name] = item
        elif isinstance(item, ast.Assign):
            for target in item.targets:
                if isinstance(target, ast.Name):
                    module.constants[target.id] = item.value
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.value is not None:
            module.constants[item.target.id] = item.value
        elif isinstance(item, ast.Import):
            for alias in item.names:
                if alias.asname:
                    module.imports[alias.asname] = (alias.name, None)
                else:
                    head = alias.name.split(".")[0]
                    module.imports[head] = (head, None)
        elif isinstance(item, ast.ImportFrom):
            source = _import_source(module.name, item, is_package)
            for alias in item.names:
                if alias.name == "*":
                    module.stars.append(source)
                else:
                    module.imports[alias.asname or alias.name] = (source, alias.name)
        elif isinstance(item, ast.If):
            _index(module, item.orelse, is_package=is_package)
            _index(module, item.body, is_package=is_package)
        elif isinstance(item, ast.Try):
            # The body wins over its fallbacks: `except ImportError: BaseTool = object` is no base.
            for handler in item.handlers:
                _index(module, handler.body, is_package=is_package)
            _index(module, item.body, is_package=is_package)
            _index(module, item.orelse, is_package=is_package)


def _import_source(current: str, item: ast.ImportFrom, is_package: bool) -> str:
    if not item.level:
        return item.module or ""
    parts = current.split(".")
    drop = item.level - 1 if is_package else item.level
    base = parts[: len(parts) - drop] if drop else parts
    return ".".join([*base, *([item.module] if item.module else [])])
