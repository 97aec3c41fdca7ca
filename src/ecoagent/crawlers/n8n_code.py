"""Addresses that compiled n8n code calls, read off its text; nothing is run.

A literal counts if the whole of it is an address: one inside a sentence is talked about, not called.
What stands before it on its line tells a request from a placeholder, a comparison or a link.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath

NOT_CALLED = re.compile(
    r"^https?://(docs?\.(?!googleapis)|developers?\.|(?:gist\.)?github\.com|help\.|support\.|[^/]*\bexample\.|"
    r"localhost|127\.|community\.n8n|n8n\.io|[^/]*\.n8n\.(?:io|cloud)|[^/]*w3\.org|[^/]*schemas?\.|"
    r"my-|your[-.]|cdn\.|(?:drive|console\.cloud)\.google\.com/|analytics\.google\.com/analytics/web)|"
    r"/docs?(/|$)|/documentation|googleapis\.com/auth/|\.(svg|png|ico|pdf|html?)$",
    re.IGNORECASE,
)
"""Documentation, permissions, pictures, pages for people and stand-in hosts: nothing is asked of these."""
_SIGN_IN = re.compile(
    r"^https?://(login|auth|oauth2?|sts|identity|accounts|id)\.|/(token|oauth2?)(/|$)", re.IGNORECASE
)

_LITERAL = re.compile(
    r"'(?P<single>https?://[^'\s\\]+)'|\"(?P<double>https?://[^\"\s\\]+)\"|"
    r"`(?P<template>(?:https?://|(?=\$\{))(?:\$\{[^{}`]*\}|\{[^{}`]*\}|[^`\s\\{}$])*)`"
)
_HOST = re.compile(r"https?://(?:[\w-]+\.|\$\{[^{}]*\}.|[\w-]+:\d)", re.IGNORECASE)
_SHOWN = re.compile(
    r"\b(documentationUrl|placeholder|description|displayName|hint|examples?|icon\w*|notice|message|label|"
    r"href|scopes?|redirect\w*|referer|origin|authUrl|accessTokenUrl|iss|aud|audience)['\"]?\s*[:=]|"
    r"(includes|startsWith|endsWith|indexOf|match|test|replace|split|Error|log|warn)\([^)]*$|"
    r"[!=]==?\s*$|<a\b",
    re.IGNORECASE,
)
_ADDRESS_NAME = r"[\w$.]*(?:ur[il]s?|endpoint|host|base|domain|server|api)\w*"
_ASSIGNED = re.compile(
    rf"\b{_ADDRESS_NAME}['\"]?\s*(?::|=(?!=)|\|\||\?\?)|return\b|\brequest\w*(?:\.call)?\(", re.IGNORECASE
)
_FIRST_NAME = re.compile(
    r"\$\{\s*(?:\(0, [\w.$]+\)\(|[\w.$]+\(|\(|String\()?\s*([A-Za-z_$][\w$]*)([^}]*)\}(.?)"
)
_SERVER_NAME = re.compile(r"ur[il]|host|domain|server|base|endpoint|instance|protocol|ssl", re.IGNORECASE)
_REQUIRE = re.compile(r"""\brequire\(\s*["'](\.{1,2}/[^"']+|\.{1,2})["']\s*\)""")
_VERSION = re.compile(r"(?:^|/)v(\d+)(?:/|$)")
_LISTS = re.compile(r"/(methods|descriptions?|listSearch|loadOptions)[./]")
"""Files that fill menus: their addresses are links to show."""
_HELPER = re.compile(r"(GenericFunctions?|transport|helpers?|[aA]pi|request|utils?)[./]")
FILES = 200
"""Files looked at for one node."""


@dataclass(frozen=True)
class CodeUrls:
    """Addresses of one file.

    Attributes:
        called: given to a request, or to a name that says it is an address.
        others: the rest.
        templates: without a host of their own: a credential gives it.
    """

    called: tuple[str, ...]
    others: tuple[str, ...]
    templates: tuple[str, ...] = ()


def urls_of(source: str) -> CodeUrls:
    """Addresses of JavaScript text, each once, in file order; templates as written."""
    called: dict[str, None] = {}
    others: dict[str, None] = {}
    templates: dict[str, None] = {}
    for match in _LITERAL.finditer(source):
        url = match["single"] or match["double"] or match["template"]
        start = source.rfind("\n", 0, match.start()) + 1
        before = source[max(start, match.start() - 160) : match.start()]
        if "//" in re.sub(r"https?://", "", before) or before.lstrip().startswith("*"):
            continue
        if _SHOWN.search(before):
            continue
        if url.startswith("${"):
            if _ASSIGNED.search(before) and _by_credential(url, source):
                templates[url] = None
            continue
        if not _HOST.match(url) or NOT_CALLED.search(url):
            continue
        (called if _ASSIGNED.search(before) else others)[url] = None
    return CodeUrls(tuple(called), tuple(u for u in others if u not in called), tuple(templates))


def _by_credential(url: str, source: str) -> bool:
    """Whether a template begins with a server's address out of a credential, or a variable set from one."""
    match = _FIRST_NAME.match(url)
    if match is None or match.group(3) not in ("/", "$", ":", ""):
        return False
    name, rest = match.group(1), match.group(2)
    if not _SERVER_NAME.search(f"{name}{rest}") and "://" not in url:
        return False
    if "credential" in f"{name}{rest}".lower():
        return True
    plain = re.escape(name)
    return bool(
        re.search(rf"(?:\b{plain}|\{{[^{{}}]*\b{plain}\b[^{{}}]*\}})\s*=\s*[^;\n]*[cC]redentials\b", source)
    )


def literals_of(path: str, code: Mapping[str, str | bytes]) -> list[str]:
    """Addresses a node calls: of its file and of the package's files it requires, helpers first.

    Args:
        path: the node's file.
        code: path to text of the package's JavaScript files.
    """
    files = [f for f in closure(path, code) if not _LISTS.search(f)]
    ordered = [*(f for f in files if _HELPER.search(f)), *(f for f in files if not _HELPER.search(f))]
    found = [_urls(_text(code[f])) for f in ordered]
    called = dict.fromkeys(u for f in found for u in f.called)
    others = dict.fromkeys(u for f in found for u in f.others)
    templates = dict.fromkeys(u for f in found for u in f.templates)
    # Where one signs in comes after what the tool is for.
    return sorted(called or others or templates, key=lambda u: bool(_SIGN_IN.search(u)))


def closure(path: str, code: Mapping[str, str | bytes]) -> list[str]:
    """The file and all files of its top folder that it requires, nearest first, ``FILES`` at most.

    Of several versions of a node only the highest is followed.
    """
    top = "/".join(path.split("/")[: _depth(path)]) + "/"
    return _follow(path, code, lambda wanted: [p for p in _newest(wanted) if p.startswith(top)], FILES)


def required(path: str, code: Mapping[str, str | bytes]) -> list[str]:
    """The file and every file of the package it requires by a literal path, nearest first."""
    return _follow(path, code, list, len(code))


def _follow(
    path: str,
    code: Mapping[str, str | bytes],
    choose: Callable[[list[str]], list[str]],
    most: int,
) -> list[str]:
    if path not in code:
        return []
    found, queue = {path: None}, [path]
    while queue and len(found) < most:
        current = queue.pop(0)
        wanted = [w for w in (_target(current, r, code) for r in _requires(_text(code[current]))) if w]
        for target in choose(wanted):
            if target not in found:
                found[target] = None
                queue.append(target)
    return list(found)


def _depth(path: str) -> int:
    """Parts of a path that name its top folder: ``dist/nodes/Google``."""
    parts = path.split("/")
    place = parts.index("nodes") + 2 if "nodes" in parts[:-1] else 0
    return place if place < len(parts) else len(parts) - 1


def _newest(paths: Iterable[str]) -> list[str]:
    listed = list(paths)
    versions = [int(m.group(1)) for p in listed if (m := _VERSION.search(p))]
    if not versions:
        return listed
    return [p for p in listed if (m := _VERSION.search(p)) is None or int(m.group(1)) == max(versions)]


def _target(source: str, name: str, code: Mapping[str, str | bytes]) -> str | None:
    parts: list[str] = list(PurePosixPath(source).parent.parts)
    for part in name.split("/"):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    base = "/".join(parts)
    return next((p for p in (base, f"{base}.js", f"{base}/index.js", f"{base}.cjs") if p in code), None)


def _text(data: str | bytes) -> str:
    return data if isinstance(data, str) else data.decode("utf-8", "replace")


@lru_cache(maxsize=512)
def _urls(source: str) -> CodeUrls:
    return urls_of(source)


def _requires(source: str) -> list[str]:
    return _REQUIRE.findall(source)
