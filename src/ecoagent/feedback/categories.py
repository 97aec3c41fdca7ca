"""Categories of tools, and those held out of training: what out-of-domain means.

By default a category is the service a tool belongs to. The catalogs have no common list of topics:
three of the four tag a tool with its service's name and nothing else, and n8n's own words cover few
of its nodes. A service is known of every tool, and a service never trained on is what a retriever
meets when a catalog grows.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from ecoagent.schema import NormalizedTool

By = Literal["service", "tag", "provider"]
Domain = Literal["in_domain", "out_of_domain", "mixed"]
_NO_WORD = re.compile(r"[\W_]+")
_WRAPPING = re.compile(r"^(?:@[\w.-]+/)?(?:n8n-nodes-|llama-index-tools-|langchain-)")


def categories_of(tools: Sequence[NormalizedTool], by: By = "service") -> dict[str, str]:
    """Tool to category, by tool id.

    Names are compared without case, blanks and signs. Categories that hold copies of one tool are one:
    a copy of a held-out tool must not be trained under another name. The smallest name stands for them.

    Args:
        tools: every tool of the pool.
        by: service (group, else package), first tag (else service), or provider.
    """
    named = {tool.id: _name(tool, by) for tool in tools}
    above: dict[str, str] = {}

    def top(name: str) -> str:
        while above.get(name, name) != name:
            name = above[name]
        return name

    first: dict[str, str] = {}
    for tool in sorted(tools, key=lambda t: t.id):
        one, other = top(first.setdefault(tool.duplicate_group, named[tool.id])), top(named[tool.id])
        if one != other:
            above[max(one, other)] = min(one, other)
    return {tool: top(name) for tool, name in sorted(named.items())}


def _name(tool: NormalizedTool, by: By) -> str:
    said = ""
    if by == "provider":
        said = tool.provider
    elif by == "tag" and tool.tags:
        said = min(tool.tags, key=str.lower)
    words = said or tool.group_name or _WRAPPING.sub("", tool.group_id)
    return _NO_WORD.sub("", words.lower()) or words


def hold_out(categories: Mapping[str, str], share: float, seed: int) -> frozenset[str]:
    """Categories held out of training: whole ones in an order drawn by ``seed``, while they fit in
    ``share`` of the tools. A new category moves no other in that order.

    Args:
        categories: tool to category.
        share: of the tools, in [0, 1].
        seed: the run's seed.
    """
    sizes = Counter(categories.values())
    room = share * sum(sizes.values())
    held: set[str] = set()
    for name in sorted(sizes, key=lambda c: hashlib.sha256(f"{seed}:held out:{c}".encode()).hexdigest()):
        if sizes[name] <= room:
            held.add(name)
            room -= sizes[name]
    return frozenset(held)


def domain_of(golds: Iterable[str], categories: Mapping[str, str], held: frozenset[str]) -> Domain:
    """Whether all of a query's golds are of trained categories, of held-out ones, or of both kinds."""
    kinds = {categories[gold] in held for gold in golds}
    if len(kinds) != 1:
        return "mixed"
    return "out_of_domain" if kinds.pop() else "in_domain"
