"""The text forms everything agrees on: normalised queries, ids, tool_text."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

TOOL_TEXT_VERSION = "1"

_TOKEN = re.compile(r"\w+")


def fold_space(text: str) -> str:
    """White space folded to single blanks, ends stripped."""
    return " ".join(text.split())


@lru_cache(maxsize=4096)
def normalize_query(text: str) -> str:
    """Unicode NFKC, lower case, white space folded, outer punctuation dropped."""
    folded = fold_space(unicodedata.normalize("NFKC", text).lower())
    start, end = 0, len(folded)
    while start < end and unicodedata.category(folded[start])[0] in "PSZ":
        start += 1
    while end > start and unicodedata.category(folded[end - 1])[0] in "PSZ":
        end -= 1
    return folded[start:end]


def query_id(set_name: str, text: str) -> str:
    """``q:<set>:<12 hex>`` of the normalised text."""
    return f"q:{set_name}:{hashlib.sha256(normalize_query(text).encode()).hexdigest()[:12]}"


def tokens(text: str) -> frozenset[str]:
    r"""Set of ``\w+`` tokens of the normalised text: the tokenisation of Jaccard similarity."""
    return frozenset(_TOKEN.findall(normalize_query(text)))


def tool_text(
    name: str,
    description: str,
    *,
    group: str | None = None,
    operations: Iterable[str] = (),
    tags: Sequence[str] = (),
) -> str:
    """``Group: name. description. Operations: a, b, c. Tags: x, y.``, empty parts left out.

    The group (service, package or spec) is left out where the name already says it; without it a
    name like "Create File" means nothing to an encoder or a generator.
    """
    shown = fold_space(name)
    prefix = fold_space(group or "")
    if prefix and _plain(prefix) not in _plain(shown):
        shown = f"{prefix}: {shown}" if shown else prefix
    parts = [shown, fold_space(description)]
    ops = _distinct(operations)
    if ops:
        parts.append("Operations: " + ", ".join(ops))
    labels = _distinct(tags)
    if labels:
        parts.append("Tags: " + ", ".join(labels))
    return " ".join(p if p[-1] in ".!?" else p + "." for p in parts if p)


def _plain(text: str) -> str:
    return "".join(_TOKEN.findall(text.lower())).replace("_", "")


def _distinct(values: Iterable[str]) -> list[str]:
    return [v for v in dict.fromkeys(fold_space(x) for x in values) if v]
