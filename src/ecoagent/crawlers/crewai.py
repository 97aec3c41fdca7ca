"""The ``crewai-tools`` wheel: ``BaseTool`` subclasses it exports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ecoagent.crawlers.lock import LockEntry
from ecoagent.crawlers.pyast import PyClass, PyPackage, dotted
from ecoagent.crawlers.pyeval import Evaluator
from ecoagent.crawlers.pyfacts import SECRET, reachable, reads_undeclared_secrets, url_literals
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
from ecoagent.schema import Auth, AuthField, Candidate, Deprecation, ToolRecord
from ecoagent.schema.tools import Granularity

_ADDRESS = re.compile(r"(ur[il]|endpoint|host)$", re.IGNORECASE)


def wanted(path: str) -> bool:
    """Members the parser reads."""
    return path.endswith((".py", ".dist-info/METADATA"))


def parse(
    members: Mapping[str, bytes], entry: LockEntry, granularity: Granularity = "tool"
) -> list[Candidate]:
    """Candidates of a CrewAI wheel, kept and rejected, sorted by id.

    Rejected: ``alias`` (a deprecated second name), ``not_exported`` (not in the package's
    ``__all__``), ``abstract`` (no ``_run``), ``template`` (text given only when built),
    ``no_description``.
    """
    package = PyPackage({p: b for p, b in members.items() if p.endswith(".py")})
    reader = _Reader(package, members, entry)
    found = list(reader.classes())
    if granularity == "package":
        headers = metadata(members)
        return package_candidate(found, entry, (headers.get("summary") or [""])[0], **reader.shared)
    return in_order(found)


class _Reader:
    def __init__(self, package: PyPackage, members: Mapping[str, bytes], entry: LockEntry) -> None:
        self.package, self.entry = package, entry
        self.evaluator = Evaluator(package)
        self.schemas = SchemaReader(package, self.evaluator)
        headers = metadata(members)
        self.shared: dict[str, Any] = {
            "url": project_url(headers, "homepage"),
            "docs_url": project_url(headers, "documentation"),
            "repository": project_url(headers, "repository", "source"),
            "licence": wheel_licence(headers, entry),
        }
        self.exported = self._exported()

    def _exported(self) -> set[str] | None:
        """Names in the root module's ``__all__``; ``None`` if it has none."""
        tops = [self.package.modules.get(n) for n in self.package.modules.names() if "." not in n]
        roots = [m for m in tops if m is not None and "__all__" in m.constants]
        names: set[str] = set()
        for root in roots:
            value = self.evaluator.value(root, root.constants["__all__"])
            names |= {n for n in value if isinstance(n, str)} if isinstance(value, list | tuple) else set()
        return names or None

    def classes(self) -> Iterator[Candidate]:
        for cls in self.package.classes(b"tool"):
            if self._is_tool(cls):
                yield self._class(cls)

    def _is_tool(self, cls: PyClass) -> bool:
        return any(b.rpartition(".")[2] == "BaseTool" for b in self.package.outer_bases(cls))

    def _class(self, cls: PyClass) -> Candidate:
        name = self.evaluator.field_text(cls, "name")
        declared = self.package.field_of(cls, "description")
        description = (self.evaluator.field_text(cls, "description") or "").strip()
        alias = self._alias(cls)
        schema = self._schema(cls)
        run = self.package.method_of(cls, "_run")
        auth = self._auth(cls)
        flags = ["missing_auth"] if reads_undeclared_secrets(self.evaluator, cls, auth) else []
        if schema is not None and run is not None and not takes(run[1], schema):
            flags.append("schema_mismatch")
        folder = folder_of(cls.module.name)
        record = ToolRecord(
            id=f"crewai:{cls.node.name}",
            source="crewai",
            name=name or cls.node.name,
            description=description,
            description_origin="class" if description else "none",
            kind="tool",
            granularity="tool",
            group_id=".".join(cls.module.name.split(".")[:3]),
            group_name=words(folder) or None,
            version=self.entry.version,
            auth=auth,
            auth_required=_required(auth),
            endpoints=self._endpoints(cls),
            tags=[folder] if folder else [],
            deprecated=Deprecation(
                state=alias is not None,
                reason="deprecated alias" if alias else None,
                replacement=alias or None,
            ),
            provenance=provenance(self.entry, cls.module.path),
            parameter_names=names_of(schema),
            input_schema=schema_text(schema),
            schema_origin="args_schema" if schema else None,
            quality_flags=flags,
            **self.shared,
        )
        if alias is not None:
            return candidate(record, "alias", f"deprecated alias of {alias or 'another class'}")
        if run is None:
            return candidate(record, "abstract", "no _run")
        if self.exported is not None and cls.node.name not in self.exported:
            return candidate(record, "not_exported", "not in the package's __all__")
        if declared is None or declared[2] is None:
            return candidate(record, "template", "no default description: known only once it is built")
        if not description:
            return candidate(record, "no_description", "the default description is empty")
        return candidate(record)

    def _alias(self, cls: PyClass) -> str | None:
        """Name of the class this one is a deprecated alias of, ``""`` if not known."""
        if "is_deprecated_alias" not in cls.fields:
            return None
        if self.evaluator.value(cls.module, cls.fields["is_deprecated_alias"][1]) is not True:
            return None
        bases = [b for b in self.package.bases(cls) if isinstance(b, PyClass)]
        return bases[0].node.name if bases else ""

    def _schema(self, cls: PyClass) -> dict[str, Any] | None:
        found = self.package.field_of(cls, "args_schema")
        if found is None or found[2] is None:
            return None
        node = found[2]
        if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] == "Field":
            named = {k.arg: k.value for k in node.keywords}
            inner = node.args[0] if node.args else named.get("default") or named.get("default_factory")
            node = inner.body if isinstance(inner, ast.Lambda) else inner or node
        model = self.package.find_class(found[0].module, node)
        return self.schemas.model(model) if model else None

    def _auth(self, cls: PyClass) -> list[Auth]:
        found = self.package.field_of(cls, "env_vars")
        if found is None or found[2] is None:
            return []
        owner, value = found[0], found[2]
        names: dict[str, bool] = {}
        for node in ast.walk(value):
            if not isinstance(node, ast.Call) or dotted(node.func).rpartition(".")[2] != "EnvVar":
                continue
            named = {k.arg: k.value for k in node.keywords if k.arg}
            first = named.get("name") or (node.args[0] if node.args else None)
            name = self.evaluator.text(owner.module, first)
            if name:
                # EnvVar's own default is required=True.
                required = (
                    self.evaluator.value(owner.module, named["required"]) if "required" in named else True
                )
                names[name] = names.get(name, False) or required is True
        return [
            Auth(
                type="env",
                name=n,
                fields=[AuthField(name=n, secret=bool(SECRET.search(n)), required=names[n])],
                required=names[n],
                origin="env_vars",
            )
            for n in sorted(names)
        ]

    def _endpoints(self, cls: PyClass) -> list[Any]:
        declared: list[ast.AST] = []
        rest: list[ast.AST] = []
        for owner in self.package.mro(cls):
            reached = reachable(self.package, owner, self._is_tool)
            rest += reached
            for node in reached:
                if isinstance(node, ast.ClassDef):
                    fields = PyClass(owner.module, node).fields.items()
                    declared += [v for n, (_, v) in fields if v is not None and _ADDRESS.search(n)]
        first = {e.url: e for e in url_literals(declared, "class")}
        for endpoint in url_literals(rest):
            first.setdefault(endpoint.url, endpoint)
        return list(first.values())


def folder_of(module: str) -> str:
    """Folder below ``tools``/``aws`` a module lies in, without its ``_tool`` ending."""
    parts = module.split(".")
    folder = (
        parts[2] if len(parts) > 2 and parts[1] in ("tools", "aws") else parts[1] if len(parts) > 1 else ""
    )
    for ending in ("_tools", "_tool"):
        folder = folder.removesuffix(ending)
    return folder


def _required(auth: list[Auth]) -> Any:
    if not auth:
        return "unknown"
    return "yes" if any(a.required for a in auth) else "no"
