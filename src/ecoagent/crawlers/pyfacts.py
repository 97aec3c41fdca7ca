"""Facts read off Python code beside its fields: environment names, URLs, deprecation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from ecoagent.crawlers.pyast import PyClass, PyModule, PyPackage, dotted
from ecoagent.crawlers.pyeval import Evaluator
from ecoagent.schema import Auth, AuthField, Deprecation, Endpoint, fold_space

SECRET = re.compile(r"key|token|secret|passw|credential|auth|private|cookie|signature", re.IGNORECASE)
_NOT_CALLED = re.compile(
    r"docs?\.|/docs?(/|$)|/documentation|github\.com/[\w.-]+/[\w.-]+(/|$)|readthedocs|stackoverflow|"
    r"python\.langchain\.com|example\.(com|org)|localhost|127\.0\.0\.1|schemas?\.|w3\.org|"
    r"wikipedia\.org/wiki|^https?://(www\.)?google\.com/?$",
    re.IGNORECASE,
)


def env_auth(names: dict[str, bool], origin: str) -> list[Auth]:
    """Auth entries of environment variables: name to whether it is required."""
    return [
        Auth(
            type="env",
            name=name,
            fields=[AuthField(name=name, secret=bool(SECRET.search(name)), required=names[name])],
            required=names[name],
            origin=origin,
        )
        for name in sorted(names)
    ]


def env_names(evaluator: Evaluator, cls: PyClass) -> dict[str, bool]:
    """Environment variables one class body reads, and whether it does without a default.

    ``from_*`` methods are left out: they are other ways to build the object.
    """
    found: dict[str, bool] = {}
    for item in cls.node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and item.name.startswith("from_"):
            continue
        for node in ast.walk(item):
            for name, required in _env_of(evaluator, cls.module, node):
                found[name] = found.get(name, False) or required
    return found


def _env_of(evaluator: Evaluator, module: PyModule, node: ast.AST) -> Iterator[tuple[str, bool]]:
    if isinstance(node, ast.Subscript) and dotted(node.value) == "os.environ":
        yield from ((name, True) for name in _texts(evaluator, module, node.slice))
    if not isinstance(node, ast.Call):
        return
    called = dotted(node.func)
    last = called.rpartition(".")[2]
    named = {k.arg: k.value for k in node.keywords if k.arg}
    position = {"get_from_dict_or_env": 2, "get_from_env": 1, "secret_from_env": 0, "from_env": 0}.get(last)
    if position is not None:
        key = "key" if last.endswith("from_env") and position == 0 else "env_key"
        argument = node.args[position] if len(node.args) > position else named.get(key)
        required = "default" not in named and len(node.args) <= position + 1
        yield from ((name, required) for name in _texts(evaluator, module, argument))
    elif called in ("os.getenv", "os.environ.get", "getenv") and node.args:
        required = len(node.args) == 1 and "default" not in named
        yield from ((name, required) for name in _texts(evaluator, module, node.args[0]))


def _texts(evaluator: Evaluator, module: PyModule, node: ast.expr | None) -> list[str]:
    value = evaluator.value(module, node)
    items = value if isinstance(value, list | tuple) else [value]
    return [i for i in items if isinstance(i, str)]


def annotated_classes(package: PyPackage, cls: PyClass, levels: int) -> list[PyClass]:
    """The class and the classes its fields' annotations name, ``levels`` deep, each once."""
    found = [cls]
    frontier = [cls]
    for _ in range(levels):
        following: list[PyClass] = []
        for current in frontier:
            for owner in package.mro(current):
                for annotation, _value in owner.fields.values():
                    for name in _names_in(annotation):
                        target = package.resolve(owner.module, name)
                        if isinstance(target, PyClass) and target not in found:
                            found.append(target)
                            following.append(target)
        frontier = following
    return found


def _names_in(annotation: ast.expr | None) -> Iterator[str]:
    if annotation is None:
        return
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name | ast.Attribute):
            yield dotted(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                yield from _names_in(ast.parse(node.value, mode="eval").body)
            except (SyntaxError, ValueError):
                continue


def url_literals(nodes: Iterable[ast.AST], origin: str = "literal") -> list[Endpoint]:
    """URLs in string literals of code, docstrings, documentation links and examples left out."""
    urls: dict[str, bool] = {}
    for root in nodes:
        skipped = _doc_constants(root)
        for node in ast.walk(root):
            if isinstance(node, ast.JoinedStr):
                text = "".join(
                    str(v.value)
                    if isinstance(v, ast.Constant)
                    else "{" + dotted(getattr(v, "value", None)) + "}"
                    for v in node.values
                )
                skipped |= {id(v) for v in node.values}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
                text = node.value
            else:
                continue
            # An address that fills the literal is called; one inside a sentence is talked about.
            url = text.strip()
            if re.match(r"https?://[^\s/]+\.[^\s]+$", url, re.IGNORECASE) and not _NOT_CALLED.search(url):
                urls.setdefault(url, "{" in url or "%s" in url)
    return [Endpoint(url=u, origin=origin, is_template=t) for u, t in urls.items()]


def _doc_constants(root: ast.AST) -> set[int]:
    skipped: set[int] = set()
    for node in ast.walk(root):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        if isinstance(node, ast.keyword) and node.arg in ("description", "examples", "title"):
            skipped |= {id(n) for n in ast.walk(node.value)}
        if isinstance(node, ast.Raise):
            skipped |= {id(n) for n in ast.walk(node)}
    return skipped


def deprecation(evaluator: Evaluator, cls: PyClass) -> Deprecation:
    """What a ``deprecated`` decorator says."""
    for decorator in cls.node.decorator_list:
        if not isinstance(decorator, ast.Call):
            continue
        if dotted(decorator.func).rpartition(".")[2] != "deprecated":
            continue
        named = {k.arg: evaluator.text(cls.module, k.value) for k in decorator.keywords if k.arg}
        since = named.get("since") or (
            evaluator.text(cls.module, decorator.args[0]) if decorator.args else None
        )
        reason = named.get("message") or (f"deprecated since {since}" if since else None)
        return Deprecation(
            state=True,
            reason=fold_space(reason) if reason else None,
            replacement=named.get("alternative_import") or named.get("alternative"),
        )
    return Deprecation(state=False)
