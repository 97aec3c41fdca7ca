"""Facts read off Python code beside its fields: environment names, URLs, deprecation."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator

from ecoagent.crawlers.pyast import PyClass, PyModule, PyPackage, dotted
from ecoagent.crawlers.pyeval import Evaluator
from ecoagent.schema import Auth, AuthField, Deprecation, Endpoint, fold_space

SECRET = re.compile(r"key|token|secret|passw|credential|auth|private|cookie|signature", re.IGNORECASE)
_NOT_CALLED = re.compile(
    r"docs?\.|/docs?(/|$)|/documentation|github\.com/[\w.-]+/[\w.-]+(/|$)|readthedocs|stackoverflow|"
    r"python\.langchain\.com|example\.(com|org)|localhost|127\.0\.0\.1|schemas?\.|w3\.org|"
    r"wikipedia\.org/wiki|^https?://(www\.)?google\.com/?$|^https?://mail\.google\.com/?$|/\.default$|"
    r"googleapis\.com/auth/",
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


def reads_undeclared_secrets(evaluator: Evaluator, cls: PyClass, declared: list[Auth]) -> bool:
    """Whether a class declares no authentication but reads a secret from the environment.

    This is all a parser can know of a missing declaration: that an address wants a key is told by no
    one but the code that fetches the key.
    """
    if declared:
        return False
    names = {n for owner in evaluator.package.mro(cls) for n in env_names(evaluator, owner)}
    return any(SECRET.search(n) for n in names)


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


def reachable(
    package: PyPackage, cls: PyClass, skip: Callable[[PyClass], bool], levels: int = 3
) -> list[ast.AST]:
    """A class body and the constants, functions and classes of the package it uses, each once.

    Args:
        package: the package.
        cls: where to begin.
        skip: classes not to be entered, for instance other tools.
        levels: how far to follow.
    """
    found: list[ast.AST] = [cls.node]
    frontier: list[tuple[PyModule, ast.AST]] = [(cls.module, cls.node)]
    for _ in range(levels):
        following: list[tuple[PyModule, ast.AST]] = []
        for module, root in frontier:
            for name in _names_used(root):
                target = _place(package, package.resolve(module, name), skip)
                if target is not None and target[1] not in found:
                    found.append(target[1])
                    following.append(target)
        frontier = following
    return found


def _place(
    package: PyPackage, target: object, skip: Callable[[PyClass], bool]
) -> tuple[PyModule, ast.AST] | None:
    if isinstance(target, PyClass):
        return None if skip(target) else (target.module, target.node)
    if isinstance(target, tuple):
        return target
    if isinstance(target, ast.FunctionDef | ast.AsyncFunctionDef):
        module = package.home_of(target)
        return (module, target) if module is not None else None
    return None


def _names_used(root: ast.AST) -> list[str]:
    """Names and attributes read in a body; what the inputs are is no part of what is called."""
    found: set[str] = set()
    queue: list[ast.AST] = [root]
    while queue:
        node = queue.pop()
        if isinstance(node, ast.AnnAssign) and dotted(node.target) == "args_schema":
            continue
        if isinstance(node, ast.Name | ast.Attribute):
            found.add(dotted(node))
        queue += ast.iter_child_nodes(node)
    return sorted(n for n in found if n and not n.lower().endswith(("scope", "scopes")))


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
        if not _mentions_url(root):
            continue
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


def _mentions_url(root: ast.AST) -> bool:
    return any(
        isinstance(n, ast.Constant) and isinstance(n.value, str) and "://" in n.value for n in ast.walk(root)
    )


def _doc_constants(root: ast.AST) -> set[int]:
    skipped: set[int] = set()
    for node in ast.walk(root):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        if isinstance(node, ast.keyword) and node.arg in ("description", "examples", "title"):
            skipped |= {id(n) for n in ast.walk(node.value)}
        # What a permission is called, or whom a request says it comes from, is not called.
        if isinstance(node, ast.keyword) and (node.arg or "").lower().endswith(("scope", "scopes")):
            skipped |= {id(n) for n in ast.walk(node.value)}
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(dotted(t).lower().endswith(("scope", "scopes")) for t in targets):
                skipped |= {id(n) for n in ast.walk(node.value)}
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and str(key.value).lower() in ("referer", "origin"):
                    skipped |= {id(n) for n in ast.walk(value)}
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
