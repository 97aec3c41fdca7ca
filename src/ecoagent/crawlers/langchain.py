"""LangChain wheels: ``BaseTool`` subclasses and the operation dictionaries of toolkits."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from ecoagent.crawlers.lock import LockEntry
from ecoagent.crawlers.pyast import PyClass, PyModule, PyPackage, dotted
from ecoagent.crawlers.pyeval import Evaluator
from ecoagent.crawlers.pyfacts import (
    annotated_classes,
    deprecation,
    env_auth,
    env_names,
    reachable,
    url_literals,
)
from ecoagent.crawlers.pyschema import SchemaReader, names_of, schema_text, takes
from ecoagent.crawlers.records import (
    candidate,
    in_order,
    metadata,
    package_candidate,
    project_url,
    provenance,
    wheel_licence,
    words,
)
from ecoagent.schema import Auth, Candidate, Endpoint, ToolRecord, fold_space
from ecoagent.schema.tools import Granularity

TOOL_BASES = frozenset({"BaseTool", "Tool", "StructuredTool"})
_LEVELS = 2


def wanted(path: str) -> bool:
    """Members the parser reads."""
    return path.endswith((".py", ".dist-info/METADATA"))


def parse(
    members: Mapping[str, bytes], entry: LockEntry, granularity: Granularity = "tool"
) -> list[Candidate]:
    """Candidates of one LangChain wheel, kept and rejected, sorted by id.

    Rejected: ``abstract`` (no ``_run``), ``template`` (no default name or no default text: what the
    tool is, is known only once it is built), ``no_description``.
    """
    package = PyPackage({p: b for p, b in members.items() if p.endswith(".py")})
    reader = _Reader(package, members, entry)
    found = [*reader.classes(), *reader.toolkits()]
    if granularity == "package":
        headers = metadata(members)
        return package_candidate(found, entry, (headers.get("summary") or [""])[0], **reader.shared)
    return in_order(found)


def is_tool(package: PyPackage, cls: PyClass) -> bool:
    """Whether a class derives from one of LangChain's tool classes."""
    return any(
        b.rpartition(".")[2] in TOOL_BASES and not b.startswith("typing") for b in package.outer_bases(cls)
    )


class _Reader:
    def __init__(self, package: PyPackage, members: Mapping[str, bytes], entry: LockEntry) -> None:
        self.package, self.entry = package, entry
        self.evaluator = Evaluator(package)
        self.schemas = SchemaReader(package, self.evaluator)
        self._urls: dict[str, list[Endpoint]] = {}
        self._environment: dict[str, dict[str, bool]] = {}
        headers = metadata(members)
        self.shared: dict[str, Any] = {
            "url": project_url(headers, "homepage"),
            "docs_url": project_url(headers, "documentation"),
            "repository": project_url(headers, "source", "repository", "source code"),
            "licence": wheel_licence(headers, entry),
        }

    def classes(self) -> Iterator[Candidate]:
        for cls in self.package.classes(b"tool"):
            if is_tool(self.package, cls):
                yield self._class(cls)

    def _class(self, cls: PyClass) -> Candidate:
        name = self.evaluator.field_text(cls, "name")
        description = self.evaluator.field_text(cls, "description")
        flags: list[str] = []
        if description is None:
            found = self.package.field_of(cls, "description")
            part = self.evaluator.constant_part(found[0].module, found[2]) if found else None
            description = fold_space(part) if part else None
            flags = ["template"] if description else []
        schema, origin = self._schema(cls)
        run = self.package.method_of(cls, "_run")
        if schema is not None and origin == "args_schema" and run is not None and not takes(run[1], schema):
            flags.append("schema_mismatch")
        names: dict[str, bool] = {}
        for other in annotated_classes(self.package, cls, _LEVELS):
            for owner in self.package.mro(other):
                for variable, required in self._own_names(owner).items():
                    names[variable] = names.get(variable, False) or required
        auth = env_auth(names, "code")
        group = group_of(cls.module.name)
        record = ToolRecord(
            id=f"langchain:{cls.id}",
            source="langchain",
            name=name or "",
            description=(description or "").strip(),
            description_origin="class" if description and description.strip() else "none",
            kind="tool",
            granularity="tool",
            group_id=".".join([*cls.module.name.split(".")[:2], group]),
            group_name=words(group),
            version=self.entry.version,
            auth=auth,
            auth_required=_required(auth),
            endpoints=self._endpoints(cls),
            tags=[group],
            deprecated=deprecation(self.evaluator, cls),
            provenance=provenance(self.entry, cls.module.path),
            parameter_names=names_of(schema),
            input_schema=schema_text(schema),
            schema_origin=origin,
            quality_flags=sorted(flags),
            **self.shared,
        )
        outside = {b.rpartition(".")[2] for b in self.package.outer_bases(cls)} & {"Tool", "StructuredTool"}
        if not name and run is None and not outside:
            return candidate(record, "abstract", "no _run and no default name")
        if not name or description is None:
            missing = "name" if not name else "description"
            return candidate(record, "template", f"no default {missing}: known only once it is built")
        if not record.description:
            return candidate(record, "no_description", "the default description is empty")
        return candidate(record)

    def _schema(self, cls: PyClass) -> tuple[dict[str, Any] | None, str | None]:
        found = self.package.field_of(cls, "args_schema")
        if found is not None and found[2] is not None:
            model = self._model(found[0].module, found[2])
            if model is not None:
                return self.schemas.model(model), "args_schema"
        run = self.package.method_of(cls, "_run")
        if run is None:
            return None, None
        return self.schemas.signature(run[0].module, run[1]), "signature"

    def _model(self, module: PyModule, node: ast.expr) -> PyClass | None:
        if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] == "Field":
            named = {k.arg: k.value for k in node.keywords}
            inner = node.args[0] if node.args else named.get("default") or named.get("default_factory")
            if isinstance(inner, ast.Lambda):
                inner = inner.body
            return self._model(module, inner) if isinstance(inner, ast.expr) else None
        return self.package.find_class(module, node)

    def _endpoints(self, cls: PyClass) -> list[Endpoint]:
        found: dict[str, Endpoint] = {}
        for other in annotated_classes(self.package, cls, _LEVELS):
            if other != cls and is_tool(self.package, other):
                continue
            for owner in self.package.mro(other):
                for endpoint in self._own_endpoints(owner):
                    found.setdefault(endpoint.url, endpoint)
        return list(found.values())

    def _own_endpoints(self, owner: PyClass) -> list[Endpoint]:
        """Addresses in one class body and in what it uses; wrappers are shared, so kept."""
        if owner.id not in self._urls:
            nodes = reachable(self.package, owner, lambda c: is_tool(self.package, c))
            self._urls[owner.id] = url_literals(nodes)
        return self._urls[owner.id]

    def _own_names(self, owner: PyClass) -> dict[str, bool]:
        if owner.id not in self._environment:
            self._environment[owner.id] = env_names(self.evaluator, owner)
        return self._environment[owner.id]

    def toolkits(self) -> Iterator[Candidate]:
        for cls in self.package.classes(b"tool"):
            if cls.module.name.endswith(".toolkit") and cls.node.name.endswith("Toolkit"):
                yield from self._operations(cls)

    def _operations(self, cls: PyClass) -> Iterator[Candidate]:
        auth: list[Auth] | None = None
        seen: dict[str, int] = {}
        for node in ast.walk(cls.node):
            if not isinstance(node, ast.Dict):
                continue
            keys = {
                k.value: v for k, v in zip(node.keys, node.values, strict=True) if isinstance(k, ast.Constant)
            }
            if not {"mode", "name", "description"} <= set(keys):
                continue
            auth = self._toolkit_auth(cls) if auth is None else auth
            name = self.evaluator.text(cls.module, keys["name"])
            description = self.evaluator.text(cls.module, keys["description"])
            mode = self.evaluator.text(cls.module, keys["mode"]) or ""
            if not name:
                continue
            seen[name] = seen.get(name, 0) + 1
            suffix = "" if seen[name] == 1 else f"~{seen[name]}"
            yield self._operation(cls, keys, name, suffix, mode, (description or "").strip(), auth)

    def _operation(
        self,
        cls: PyClass,
        keys: Mapping[Any, ast.expr],
        name: str,
        suffix: str,
        mode: str,
        description: str,
        auth: list[Auth],
    ) -> Candidate:
        model = self.package.find_class(cls.module, keys["args_schema"]) if "args_schema" in keys else None
        schema = self.schemas.model(model) if model else None
        group = group_of(cls.module.name)
        record = ToolRecord(
            id=f"langchain:{cls.module.name}#{name}{suffix}",
            source="langchain",
            name=name,
            description=description,
            description_origin="class" if description else "none",
            kind="toolkit_operation",
            granularity="tool",
            group_id=cls.id,
            group_name=cls.node.name.removesuffix("Toolkit"),
            version=self.entry.version,
            auth=auth,
            auth_required=_required(auth),
            endpoints=self._toolkit_endpoints(cls),
            tags=[group],
            deprecated=deprecation(self.evaluator, cls),
            provenance=provenance(self.entry, cls.module.path),
            parameter_names=names_of(schema),
            input_schema=schema_text(schema),
            schema_origin="args_schema" if schema else None,
            **self.shared,
        )
        if not description:
            return candidate(record, "no_description", f"operation {mode}")
        return candidate(record)

    def _wrappers(self, cls: PyClass) -> list[PyClass]:
        """Classes that the toolkit's ``from_*`` methods are given."""
        found: list[PyClass] = []
        for method in cls.methods.values():
            if not method.name.startswith("from_"):
                continue
            for argument in method.args.args:
                target = (
                    self.package.find_class(cls.module, argument.annotation) if argument.annotation else None
                )
                if target is not None and target not in found:
                    found.append(target)
        return found

    def _toolkit_auth(self, cls: PyClass) -> list[Auth]:
        names: dict[str, bool] = {}
        for wrapper in self._wrappers(cls):
            for owner in self.package.mro(wrapper):
                names |= self._own_names(owner)
        return env_auth(names, "code")

    def _toolkit_endpoints(self, cls: PyClass) -> list[Endpoint]:
        found = {e.url: e for w in self._wrappers(cls) for e in self._endpoints(w)}
        return list(found.values())


def group_of(module: str) -> str:
    """Service folder of a module: ``gmail`` of ``langchain_community.tools.gmail.search``."""
    parts = module.split(".")
    for anchor in ("tools", "agent_toolkits"):
        if anchor in parts[:-1]:
            return parts[parts.index(anchor) + 1]
    return parts[-2] if len(parts) > 1 and parts[-1] in ("tool", "tools", "toolkit", "base") else parts[-1]


def _required(auth: list[Auth]) -> Any:
    if not auth:
        return "unknown"
    return "yes" if any(a.required for a in auth) else "no"
