"""LlamaIndex tool wheels: one tool per ``spec_functions`` entry of each ``BaseToolSpec``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ecoagent.crawlers.lock import LockEntry
from ecoagent.crawlers.pyast import FunctionNode, PyClass, PyPackage
from ecoagent.crawlers.pyeval import Evaluator
from ecoagent.crawlers.pyfacts import reads_undeclared_secrets, url_literals
from ecoagent.crawlers.pyschema import SchemaReader, names_of, schema_text
from ecoagent.crawlers.records import (
    NOT_DEPRECATED,
    candidate,
    in_order,
    metadata,
    package_candidate,
    project_url,
    provenance,
    wheel_licence,
    words,
)
from ecoagent.schema import Auth, AuthField, Candidate, Endpoint, ToolRecord
from ecoagent.schema.tools import Granularity

_SECTION = re.compile(
    r"^\s*(args?|arguments?|returns?|raises?|examples?|params?|parameters|yields?|notes?)\s*:?\s*$"
    r"|^\s*(args?|returns?|raises?|examples?|params?)\s*:",
    re.IGNORECASE,
)
_SECRET_PARAMETER = re.compile(
    r"key|token|secret|password|credential|client_id|service_account|authorized_user|engine", re.IGNORECASE
)


def wanted(path: str) -> bool:
    """Members the parser reads."""
    return path.endswith((".py", ".dist-info/METADATA"))


def parse(
    members: Mapping[str, bytes], entry: LockEntry, granularity: Granularity = "tool"
) -> list[Candidate]:
    """Candidates of one LlamaIndex wheel, kept and rejected, sorted by id.

    Rejected: ``no_description`` (no docstring), ``not_found`` (a listed function that is not there),
    ``template`` (the list of functions is made at run time).
    """
    package = PyPackage({p: b for p, b in members.items() if p.endswith(".py")})
    reader = _Reader(package, members, entry)
    found = list(reader.specs())
    if granularity == "package":
        return package_candidate(found, entry, reader.summary, **reader.shared)
    return in_order(found)


def short_doc(text: str) -> str:
    """A docstring up to its first section line (Args, Returns, Raises, Examples, Params)."""
    lines: list[str] = []
    for line in text.splitlines():
        if _SECTION.match(line):
            break
        lines.append(line)
    return "\n".join(lines).strip()


class _Reader:
    def __init__(self, package: PyPackage, members: Mapping[str, bytes], entry: LockEntry) -> None:
        self.package, self.entry = package, entry
        self.evaluator = Evaluator(package)
        self.schemas = SchemaReader(package, self.evaluator)
        headers = metadata(members)
        self.summary = (headers.get("summary") or [""])[0]
        self.shared: dict[str, Any] = {
            "url": project_url(headers, "homepage"),
            "docs_url": project_url(headers, "documentation"),
            "repository": project_url(headers, "repository", "source"),
            "licence": wheel_licence(headers, entry),
        }

    def specs(self) -> Iterator[Candidate]:
        for cls in self.package.classes(b"tool"):
            if any(b.rpartition(".")[2] == "BaseToolSpec" for b in self.package.outer_bases(cls)):
                yield from self._spec(cls)

    def _spec(self, cls: PyClass) -> Iterator[Candidate]:
        found = self.package.field_of(cls, "spec_functions")
        listed = self.evaluator.value(found[0].module, found[2]) if found else None
        if not isinstance(listed, list | tuple):
            yield candidate(
                self._record(cls, "", "", None, None), "template", "spec_functions is made at run time"
            )
            return
        for item in listed:
            # A tuple is (sync, async): one tool, named by the first.
            name = item[0] if isinstance(item, list | tuple) and item else item
            if isinstance(name, str):
                yield self._function(cls, name)

    def _function(self, cls: PyClass, name: str) -> Candidate:
        method = self.package.method_of(cls, name)
        if method is None:
            record = self._record(cls, name, "", None, None)
            return candidate(record, "not_found", f"{cls.node.name} lists {name} but has no such function")
        owner, node = method
        description = short_doc(ast.get_docstring(node) or "")
        signature = self.schemas.signature(owner.module, node)
        declared = self._declared(cls, name)
        flags = ["schema_mismatch"] if declared and names_of(declared) != names_of(signature) else []
        record = self._record(cls, name, description, declared or signature, node, flags)
        if declared:
            record = record.model_copy(update={"schema_origin": "declared"})
        if not description:
            return candidate(record, "no_description", "the function has no docstring")
        return candidate(record)

    def _declared(self, cls: PyClass, name: str) -> dict[str, Any] | None:
        """Schema that ``get_fn_schema_from_fn_name`` returns for ``name``, read off its branches."""
        method = self.package.method_of(cls, "get_fn_schema_from_fn_name")
        if method is None:
            return None
        owner, node = method
        for branch in ast.walk(node):
            if not isinstance(branch, ast.If) or not isinstance(branch.test, ast.Compare):
                continue
            compared = [branch.test.left, *branch.test.comparators]
            if not any(isinstance(c, ast.Constant) and c.value == name for c in compared):
                continue
            for statement in branch.body:
                if isinstance(statement, ast.Return) and statement.value is not None:
                    model = self.package.find_class(owner.module, statement.value)
                    return self.schemas.model(model) if model else None
        return None

    def _record(
        self,
        cls: PyClass,
        function: str,
        description: str,
        schema: dict[str, Any] | None,
        node: FunctionNode | None,
        flags: list[str] | None = None,
    ) -> ToolRecord:
        auth = self._auth(cls)
        found = list(flags or [])
        if reads_undeclared_secrets(self.evaluator, cls, auth):
            found.append("missing_auth")
        service = re.sub(r"Tool?Spec$", "", cls.node.name)
        return ToolRecord(
            id=f"llamaindex:{self.entry.name}:{cls.node.name}" + (f".{function}" if function else ""),
            source="llamaindex",
            name=f"{cls.node.name}.{function}" if function else cls.node.name,
            display_name=function or None,
            description=description,
            description_origin="docstring" if description else "none",
            kind="spec_function",
            granularity="tool",
            group_id=f"{self.entry.name}:{cls.node.name}",
            group_name=words(service) or None,
            version=self.entry.version,
            auth=auth,
            auth_required=_required(auth),
            endpoints=self._endpoints(cls, node),
            tags=[self.entry.name.removeprefix("llama-index-tools-")],
            deprecated=NOT_DEPRECATED,
            provenance=provenance(self.entry, cls.module.path),
            parameter_names=names_of(schema),
            input_schema=schema_text(schema),
            schema_origin="signature" if schema is not None else None,
            quality_flags=sorted(found),
            **self.shared,
        )

    def _auth(self, cls: PyClass) -> list[Auth]:
        method = self.package.method_of(cls, "__init__")
        if method is None:
            return []
        schema = self.schemas.signature(method[0].module, method[1])
        required = set(schema.get("required", []))
        names = [n for n in schema["properties"] if _SECRET_PARAMETER.search(n)]
        return [
            Auth(
                type="init_parameter",
                name=n,
                fields=[
                    AuthField(name=n, secret=not re.search(r"client_id|engine", n), required=n in required)
                ],
                required=n in required,
                origin="init",
            )
            for n in sorted(names)
        ]

    def _endpoints(self, cls: PyClass, node: FunctionNode | None) -> list[Endpoint]:
        roots: list[ast.AST] = [node] if node is not None else []
        roots += [o.node for o in self.package.mro(cls)]
        for root in list(roots):
            for name in sorted({n.id for n in ast.walk(root) if isinstance(n, ast.Name)}):
                target = self.package.resolve(cls.module, name)
                if isinstance(target, tuple):
                    roots.append(target[1])
        found = {e.url: e for e in url_literals(roots)}
        # OAuth scopes look like addresses but name permissions.
        return [e for e in found.values() if "/auth/" not in e.url]


def _required(auth: list[Auth]) -> Any:
    if not auth:
        return "unknown"
    return "yes" if any(a.required for a in auth) else "no"
